"""What is said of objects: what is wrong with them."""

from __future__ import annotations

import msgspec


class Problem(msgspec.Struct, frozen=True, order=True):
    """Something wrong with an object, for its owner to mend: the name of its kind (``vcd.model.kinds``, or a plugin's),
    its key (``namespace/name``, or ``name``), and a sentence that names the field, its value and what to do. Without
    kind and key it is about the configuration."""

    kind: str
    key: str
    message: str

"""Problems of objects, found by plugins."""

from __future__ import annotations

import msgspec


class Problem(msgspec.Struct, frozen=True, order=True):
    """Something wrong with an object, for its owner to fix.

    ``kind`` is a name from ``vcd.model.kinds`` or of a plugin's kind, ``key`` is ``namespace/name`` or ``name``, and
    ``message`` is a sentence with the field, its value and what to do. Without kind and key it is about the
    configuration.
    """

    kind: str
    key: str
    message: str

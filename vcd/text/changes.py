"""A change of cluster objects as a line of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from vcd.model.wording import counted, some

WORDS: Final[dict[str, str]] = {
    "added": "added",
    "removed": "removed",
    "not-ready": "not ready",
    "ready": "ready again",
    "cordoned": "cordoned",
    "uncordoned": "uncordoned",
    "taint-added": "got taint {detail}",
    "taint-removed": "lost taint {detail}",
    "allocatable": "allocatable {detail}",
    "label": "label {detail}",
    "created": "created",
    "gone": "deleted",
    "changed": "{detail}",
    "began": "{detail}",
    "ended": "is over",
}
"""Templates by the kind of change; ``detail`` has what changed exactly."""


def change_in_words(kind: str, names: Sequence[str], what: str, detail: str) -> str:
    """Return ``3 Nodes not ready: n1, n2, n3``, or ``Queue a: spec.weight 4 -> 1`` for a single object."""
    words = WORDS[what].format(detail=detail)
    if len(names) > 1:
        return f"{counted(len(names), kind)} {words}: {some(names)}"
    return f"{' '.join(filter(None, [kind, *names]))}: {words}" if detail else f"{' '.join([kind, *names])} {words}"

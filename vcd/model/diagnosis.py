"""A diagnosis as data: the cause, its subject, and quantities."""

from __future__ import annotations

import msgspec

Amounts = dict[str, dict[str, int]]
"""By resource (empty for plain counts) and role, in base units."""


class FunnelLine(msgspec.Struct, frozen=True):
    """A line of the funnel: how many nodes pass the clause alone, and how many pass it and all before."""

    cause: str
    clause: str
    passes: int
    left: int

    def __str__(self) -> str:
        return f"{self.clause}: {self.passes}" + (f" ({self.left} left)" if self.left != self.passes else "")


class Diagnosis(msgspec.Struct, frozen=True):
    """Why a job waits: the cause (a ``Cause``), names by role, and amounts by resource and role, in base units.

    The resource is empty for plain counts. ``words`` is the text of a reason that is passed on unchanged.
    """

    cause: str
    subject: dict[str, str] = {}
    amounts: Amounts = {}
    words: str = ""
    funnel: list[FunnelLine] = []

"""Why a job waits, as data: the cause, what it is about, and the figures."""

from __future__ import annotations

import msgspec

Amounts = dict[str, dict[str, int]]
"""By resource (empty for plain counts) and role, in base units."""


class FunnelLine(msgspec.Struct, frozen=True):
    """A line of the funnel: how many nodes pass the clause alone, and how many it and all before."""

    cause: str
    clause: str
    passes: int
    left: int

    def __str__(self) -> str:
        return f"{self.clause}: {self.passes}" + (f" ({self.left} left)" if self.left != self.passes else "")


class Diagnosis(msgspec.Struct, frozen=True):
    """The cause (a ``Cause``), names by the roles that they play, and amounts by resource (empty for plain counts) and
    role, in base units; ``words`` are the reason's own where it was taken as it was given."""

    cause: str
    subject: dict[str, str] = {}
    amounts: Amounts = {}
    words: str = ""
    funnel: list[FunnelLine] = []

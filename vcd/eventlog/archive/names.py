"""What a segment's name says of it, so that a list of an archive tells which segments follow each other."""

from __future__ import annotations

import re
from typing import Self

import msgspec

from vcd.eventlog.copying import Position

END = ".vcdlog"
"""What each name ends with."""
_NAME = re.compile(
    r"(?P<after>[0-9]{12,18})-(?P<last>[0-9]{12,18})-e(?P<epoch>[0-9]{6,18})-s(?P<session>[0-9]{8,18})"
    r"-t(?P<time>[0-9]{10,18})-(?P<before>[0-9a-f]{32}|none)-(?P<link>[0-9a-f]{32})-(?P<digest>[0-9a-f]{32})"
    r"(?P<base>-base)?" + re.escape(END)
)


class ArchiveSegment(msgspec.Struct, frozen=True, order=True):
    """The events after one and up to another. It follows a segment that ends with the same event and link.

    ``before`` is the link of event ``after`` (None: the log begins here, or had no chain there), ``epoch`` that of the
    leader that shipped it, ``session`` the last session's number and ``time`` (s, rounded up) the last event's.
    ``digest`` is that of its bytes. One that is a ``base`` begins with the state, so that a log can begin with it.
    """

    after: int
    last: int
    epoch: int
    session: int
    time: int
    before: bytes | None
    link: bytes
    digest: bytes
    is_base: bool

    @property
    def name(self) -> str:
        """The name, which no other segment has: nothing that is in an archive is ever written over."""
        before = "none" if self.before is None else self.before.hex()
        return (
            f"{self.after:012}-{self.last:012}-e{self.epoch:06}-s{self.session:08}-t{self.time:010}-{before}"
            f"-{self.link.hex()}-{self.digest.hex()}{'-base' if self.is_base else ''}.vcdlog"
        )

    @classmethod
    def read(cls, name: str) -> Self | None:
        """What a name says; None for what is no segment."""
        if not (match := _NAME.fullmatch(name)):
            return None
        after, last, epoch, session, time = (int(match[part]) for part in ("after", "last", "epoch", "session", "time"))
        before = None if match["before"] == "none" else bytes.fromhex(match["before"])
        link, digest = (bytes.fromhex(match[part]) for part in ("link", "digest"))
        found = cls(after, last, epoch, session, time, before, link, digest, match["base"] is not None)
        return found if found.name == name else None  # a number has one form: more zeros are another's name

    @property
    def end(self) -> Position:
        """Its last event."""
        return Position(self.last, self.link)

    @property
    def rank(self) -> tuple[int, int, int]:
        """Of two ends the one that ranks higher is the newer: of a later leader, or of the same one and later."""
        return self.epoch, self.time, self.last

    def __str__(self) -> str:
        return f"events {self.after + 1} to {self.last} of epoch {self.epoch}"

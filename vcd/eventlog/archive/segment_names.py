"""The names of segments, from which an archive's listing shows which segments follow each other."""

from __future__ import annotations

import re
from typing import Self

import msgspec

from vcd.eventlog.replication import Position

END = ".vcdlog"
"""Suffix of every name."""
_NAME = re.compile(
    r"(?P<after>[0-9]{12,18})-(?P<last>[0-9]{12,18})-e(?P<epoch>[0-9]{6,18})-s(?P<session>[0-9]{8,18})"
    r"-t(?P<time>[0-9]{10,18})-(?P<before>[0-9a-f]{32}|none)-(?P<link>[0-9a-f]{32})-(?P<digest>[0-9a-f]{32})"
    r"(?P<base>-base)?" + re.escape(END)
)


class ArchiveSegment(msgspec.Struct, frozen=True, order=True):
    """The events after ``after`` up to ``last``. It follows a segment that ends with the same event and link.

    Attributes:
        epoch: Epoch of the leader that shipped it.
        session: Number of the last session.
        time: Time of the last event (s, rounded up).
        before: Link of event ``after``; None if the log begins here or has no chain there.
        link: Link of event ``last``.
        digest: Digest of the segment's bytes.
        is_base: Whether it begins with a checkpoint, so that a log can start with it.
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
        """The name. It contains the digest, so nothing in an archive is ever overwritten with other content."""
        before = "none" if self.before is None else self.before.hex()
        return (
            f"{self.after:012}-{self.last:012}-e{self.epoch:06}-s{self.session:08}-t{self.time:010}-{before}"
            f"-{self.link.hex()}-{self.digest.hex()}{'-base' if self.is_base else ''}.vcdlog"
        )

    @classmethod
    def read(cls, name: str) -> Self | None:
        """Parse a name; None if it is not a segment's."""
        if not (match := _NAME.fullmatch(name)):
            return None
        after, last, epoch, session, time = (int(match[part]) for part in ("after", "last", "epoch", "session", "time"))
        before = None if match["before"] == "none" else bytes.fromhex(match["before"])
        link, digest = (bytes.fromhex(match[part]) for part in ("link", "digest"))
        found = cls(after, last, epoch, session, time, before, link, digest, match["base"] is not None)
        return found if found.name == name else None  # reject extra leading zeros: names must be unique

    @property
    def end(self) -> Position:
        """The position of the last event."""
        return Position(self.last, self.link)

    @property
    def rank(self) -> tuple[int, int, int]:
        """Order of ends: the newer one is of a later leader, or of the same leader and later."""
        return self.epoch, self.time, self.last

    def __str__(self) -> str:
        return f"events {self.after + 1} to {self.last} of epoch {self.epoch}"

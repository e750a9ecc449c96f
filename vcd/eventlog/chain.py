"""The chain of a log: each event's link is made of the link before it and of all that the event's row says.

A link is BLAKE2b, 16 bytes, of the msgpack array ``[before, marks, content]``: ``before`` is the link of the event
before (nil where the chain begins), ``content`` the row with its payload unpacked, and ``marks`` what was written
between the two events: checkpoints that were kept, and segments that begin. Whoever knows one link can tell whether
anything up to its event was changed.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

Content = tuple[int, int, str, str, str, str, bytes | None]
"""What a link is made of: sequence, time (ns), type, kind, key, resource version and payload of an event."""
Mark = tuple[Any, ...]
"""What was written between two events: ``seal`` or ``segment``, and what it says."""

_encode = msgspec.msgpack.Encoder().encode


def seal(checkpoint: int, time: int, digest: bytes) -> Mark:
    """The mark of a checkpoint that was kept: its sequence, time (ns) and the digest of its state."""
    return "seal", checkpoint, time, digest


def segment(live: int, source: str) -> Mark:
    """The mark of a segment that begins."""
    return "segment", live, source


class Chain:
    """A chain as of one event, going from event to event."""

    def __init__(self, link: bytes | None = None) -> None:
        """``link``: that of the last event; None where the chain is yet to begin."""
        self.link = link
        self._marks: dict[int, list[Mark]] = {}

    def mark(self, after: int, mark: Mark) -> None:
        """Note what was written after an event, and is part of the next one's link; in any order."""
        self._marks.setdefault(after, []).append(mark)

    def copy(self) -> Chain:
        """Another chain that is where this one is."""
        other = Chain(self.link)
        other._marks = {after: list(marks) for after, marks in self._marks.items()}
        return other

    def go_to(self, sequence: int, link: bytes | None) -> None:
        """Be where an event has a link that is known to be its own."""
        self._marks.pop(sequence - 1, None)
        self.link = link

    def extend(self, content: Content) -> bytes:
        """Go on to the next event; returns its link."""
        marks = sorted(self._marks.pop(content[0] - 1, ())) if self._marks else ()
        self.link = link = blake2b(_encode((self.link, marks, content)), digest_size=16).digest()
        return link

    def follow(self, content: Content, link: bytes | None) -> bool:
        """Go on to the next event, whose row has ``link``; whether that is the one that its content gives.

        None is right only where no event had a link yet.
        """
        begun = self.link is not None
        expected = self.extend(content)
        self.link = link
        return link == expected or (link is None and not begun)

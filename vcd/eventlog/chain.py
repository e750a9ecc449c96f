"""The hash chain of a log: each event's link covers the previous link and the event's row.

A link is BLAKE2b, 16 bytes, of the msgpack array ``[before, marks, content]``: the previous event's link (nil where the
chain begins), the checkpoints that were written between the two events, and the row with its payload unpacked. So one
trusted link proves that nothing up to its event was changed. This encoding is fixed: a change makes every existing log
invalid.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

Content = tuple[int, int, str, str, str, str, bytes | None]
"""The linked columns of an event's row: sequence, time (ns), type, kind, key, resource version and payload."""
Mark = tuple[Any, ...]
"""What was written between two events: "seal", and its fields."""

_encode = msgspec.msgpack.Encoder().encode


def seal_mark(checkpoint: int, time: int, digest: bytes) -> Mark:
    """Return the mark of a complete checkpoint: its sequence, time (ns) and the digest of its state."""
    return "seal", checkpoint, time, digest


class Chain:
    """The chain at one event, advancing event by event."""

    def __init__(self, link: bytes | None = None) -> None:
        self.link = link
        self._marks: dict[int, list[Mark]] = {}

    def mark(self, after: int, mark: Mark) -> None:
        """Add a mark written after an event, to be covered by the next event's link. Order does not matter."""
        self._marks.setdefault(after, []).append(mark)

    def copy(self) -> Chain:
        other = Chain(self.link)
        other._marks = {after: list(marks) for after, marks in self._marks.items()}
        return other

    def set_link(self, sequence: int, link: bytes | None) -> None:
        """Advance to an event whose link is already verified."""
        self._marks.pop(sequence - 1, None)
        self.link = link

    def extend(self, content: Content) -> bytes:
        """Advance to the next event and return its link."""
        marks = sorted(self._marks.pop(content[0] - 1, ())) if self._marks else ()
        self.link = link = blake2b(_encode((self.link, marks, content)), digest_size=16).digest()
        return link

    def check_next(self, content: Content, link: bytes | None) -> bool:
        """Advance to the next event and return whether ``link``, as stored in its row, is right.

        A missing link is right only before the first link, in logs that an older vcd began.
        """
        begun = self.link is not None
        expected = self.extend(content)
        self.link = link
        return link == expected or (link is None and not begun)

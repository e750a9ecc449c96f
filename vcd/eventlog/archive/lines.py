"""Which segments of an archive follow each other, which may go, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec

from vcd.eventlog.archive.names import ArchiveSegment
from vcd.eventlog.archive.stores import ArchiveError

SECOND = 1_000_000_000


class Line(msgspec.Struct, frozen=True):
    """Segments that follow each other, the first of which a log can begin with; and what is missing, in sentences."""

    segments: list[ArchiveSegment]
    gaps: list[str]


class ListedSegments:
    """The segments that are in an archive."""

    def __init__(self, segments: Iterable[ArchiveSegment]) -> None:
        self.segments = sorted(segments, key=lambda one: one.last)
        self._before: dict[ArchiveSegment, ArchiveSegment | None] = {}
        begins: dict[ArchiveSegment, int] = {}
        ends: dict[tuple[int, bytes | None], list[ArchiveSegment]] = {}
        for one in self.segments:
            known = ends.get((one.after, one.before), ())
            before = min(known, key=lambda each: (begins[each], each), default=None)
            self._before[one] = before
            begins[one] = one.after if before is None else begins[before]
            ends.setdefault((one.last, one.link), []).append(one)

    @classmethod
    def of(cls, names: Iterable[str]) -> ListedSegments:
        """Those among the names of an archive."""
        return cls(one for name in names if (one := ArchiveSegment.read(name)) is not None)

    def without(self, segment: ArchiveSegment) -> ListedSegments:
        """All but one."""
        return ListedSegments(one for one in self.segments if one != segment)

    def to(self, end: ArchiveSegment) -> list[ArchiveSegment]:
        """The segments that lead to one, and it, as far back as they go."""
        found, one = [end], self._before[end]
        while one is not None:
            found.append(one)
            one = self._before[one]
        return found[::-1]

    def gaps(self) -> list[str]:
        """Where segments begin with an event that no other ends with, and neither the log nor the archive begins."""
        return [gap for one in self.segments if self._before[one] is None and (gap := self._gap_before(one))]

    def line(self, *, at: int | None = None, epoch: int | None = None, age: int | None = None) -> Line:
        """What a log is restored from: what leads to the newest end, or to the newest that was there at a time (ns), or
        of a leader's epoch and those before; all of it, or from the last state on that is by ``age`` (ns) older.

        Raises ArchiveError where there is none.
        """
        ends = [one for one in self.segments if epoch is None or one.epoch <= epoch]
        ends = [one for one in ends if at is None or self._begins_before(one, at)] or ends
        gaps: list[str] = []
        for end in sorted(ends, key=lambda one: one.rank, reverse=True):
            segments = self.to(end)
            bases = [place for place, one in enumerate(segments) if one.is_base]
            if bases:
                if gap := self._gap_before(segments[0]):
                    gaps.append(gap)
                if bases[0]:
                    first, last = segments[0].after + 1, segments[bases[0] - 1].last
                    gaps.append(f"events {first} to {last} are there, but not the state before them")
                since = end.time * SECOND - (age or 0)
                old = [place for place in bases if age is not None and self._begins_before(segments[place], since)]
                return Line(segments[(old or bases[:1])[-1] :], gaps)
            gaps.append(f"{end}: there, but no state that leads to it")
        raise ArchiveError("; ".join(["nothing in it can be restored", *gaps[:3]]))

    def _begins_before(self, one: ArchiveSegment, moment: int) -> bool:
        """Whether a segment has events of before a time, as far as names tell."""
        before = self._before[one]
        if before is None:
            return (one.time if one.after else 0) * SECOND <= moment
        return (before.time - 1) * SECOND <= moment  # names round times up

    def _gap_before(self, one: ArchiveSegment) -> str | None:
        """What is missing before a segment that follows none; None where that is the beginning of all."""
        if one.after == 0:
            return None
        older = [each.last for each in self.segments if each.last <= one.after and each.rank < one.rank]
        if older and max(older) == one.after:
            return f"what is before event {one.after + 1} is another log's"
        if older:
            return f"events {max(older) + 1} to {one.after} are missing"
        return None if one.is_base else f"the events before {one.after + 1} are missing"

    def expired(self, sizes: Mapping[str, int], age: int | None, size: int | None) -> list[ArchiveSegment]:
        """What may go: segments of more than ``age`` (ns) before the newest, or beyond ``size`` bytes; oldest first.

        Of what leads to the newest end always so many that what stays begins with a state, and the last state stays.
        """
        if not self.segments:
            return []
        main = self.to(max(self.segments, key=lambda one: one.rank))
        steps = self._steps(main)
        newest = max(one.time for one in self.segments)
        total, gone = sum(sizes[one.name] for one in self.segments), list[ArchiveSegment]()
        for step in steps:
            is_old = age is not None and max(one.time for one in step) * SECOND < newest * SECOND - age
            if not is_old and (size is None or total <= size):
                break
            gone += step
            total -= sum(sizes[one.name] for one in step)
        return gone

    def _steps(self, main: Sequence[ArchiveSegment]) -> list[list[ArchiveSegment]]:
        """Segments that go together, the oldest first: those of the main line up to a state, and each beside it."""
        states = [place for place, one in enumerate(main) if one.is_base] or [0]
        starts = [0, *(place for place in states if place)]
        steps = [list(main[start:stop]) for start, stop in pairwise(starts)]
        steps += [[one] for one in self.segments if one not in set(main)]
        return sorted(steps, key=lambda step: max(one.time for one in step))

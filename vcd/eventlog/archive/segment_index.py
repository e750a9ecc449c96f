"""Order the segments of an archive: which follow each other, which are missing, and which may be deleted.

Works on names only, so listing an archive suffices. Several leaders may have shipped overlapping segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec

from vcd.eventlog.archive.segment_names import ArchiveSegment
from vcd.eventlog.archive.stores import ArchiveError
from vcd.model.wording import SECOND


class SegmentChain(msgspec.Struct, frozen=True):
    """Consecutive segments, of which the first can start a log; and sentences that state what is missing."""

    segments: list[ArchiveSegment]
    gaps: list[str]


class SegmentIndex:
    """The segments in an archive."""

    def __init__(self, segments: Iterable[ArchiveSegment]) -> None:
        self.segments = sorted(segments, key=lambda one: one.last)
        self._predecessors: dict[ArchiveSegment, ArchiveSegment | None] = {}
        begins: dict[ArchiveSegment, int] = {}
        ends: dict[tuple[int, bytes | None], list[ArchiveSegment]] = {}
        for one in self.segments:
            known = ends.get((one.after, one.before), ())
            before = min(known, key=lambda each: (begins[each], each), default=None)
            self._predecessors[one] = before
            begins[one] = one.after if before is None else begins[before]
            ends.setdefault((one.last, one.link), []).append(one)

    @classmethod
    def of(cls, names: Iterable[str]) -> SegmentIndex:
        """Return an index of the segments among the names in an archive."""
        return cls(one for name in names if (one := ArchiveSegment.read(name)) is not None)

    def without(self, segment: ArchiveSegment) -> SegmentIndex:
        return SegmentIndex(one for one in self.segments if one != segment)

    def chain_to(self, end: ArchiveSegment) -> list[ArchiveSegment]:
        """Return the segments that lead to ``end``, and it, as far back as they are continuous."""
        found, one = [end], self._predecessors[end]
        while one is not None:
            found.append(one)
            one = self._predecessors[one]
        return found[::-1]

    def gaps(self) -> list[str]:
        """Return sentences about segments whose predecessor is missing, unless the log or the archive begins there."""
        return [gap for one in self.segments if self._predecessors[one] is None and (gap := self._describe_gap(one))]

    def select(self, *, at: int | None = None, epoch: int | None = None, age: int | None = None) -> SegmentChain:
        """Return the segments to restore a log from: those that lead to the newest end.

        Args:
            at: Use the newest end that existed at this time (ns).
            epoch: Use ends of leaders up to this epoch only.
            age: Start with the last state that is older than the end by this (ns), instead of the first.

        Raises ArchiveError if nothing can be restored.
        """
        ends = [one for one in self.segments if epoch is None or one.epoch <= epoch]
        ends = [one for one in ends if at is None or self._has_events_before(one, at)] or ends
        gaps: list[str] = []
        for end in sorted(ends, key=lambda one: one.rank, reverse=True):
            segments = self.chain_to(end)
            bases = [place for place, one in enumerate(segments) if one.is_base]
            if bases:
                if gap := self._describe_gap(segments[0]):
                    gaps.append(gap)
                if bases[0]:
                    first, last = segments[0].after + 1, segments[bases[0] - 1].last
                    gaps.append(f"events {first} to {last} are there, but not the state before them")
                since = end.time * SECOND - (age or 0)
                old = [place for place in bases if age is not None and self._has_events_before(segments[place], since)]
                return SegmentChain(segments[(old or bases[:1])[-1] :], gaps)
            gaps.append(f"{end}: there, but no state that leads to it")
        raise ArchiveError("; ".join(["no part of it can be restored", *gaps[:3]]))

    def _has_events_before(self, one: ArchiveSegment, moment: int) -> bool:
        before = self._predecessors[one]
        if before is None:
            return (one.time if one.after else 0) * SECOND <= moment
        return (before.time - 1) * SECOND <= moment  # names round times up to seconds

    def _describe_gap(self, one: ArchiveSegment) -> str | None:
        """Return what is missing before a segment without predecessor; None if the history begins there."""
        if one.after == 0:
            return None
        older = [each.last for each in self.segments if each.last <= one.after and each.rank < one.rank]
        if older and max(older) == one.after:
            return f"what is before event {one.after + 1} is another log's"
        if older:
            return f"events {max(older) + 1} to {one.after} are missing"
        return None if one.is_base else f"the events before {one.after + 1} are missing"

    def expired(self, sizes: Mapping[str, int], age: int | None, size: int | None) -> list[ArchiveSegment]:
        """Return segments to delete, oldest first: older than the newest by ``age`` (ns), or beyond ``size`` bytes.

        The rest of the newest log always begins with a checkpoint, and its last checkpoint is not deleted.
        """
        if not self.segments:
            return []
        main = self.chain_to(max(self.segments, key=lambda one: one.rank))
        steps = self._removal_steps(main)
        newest = max(one.time for one in self.segments)
        total, gone = sum(sizes[one.name] for one in self.segments), list[ArchiveSegment]()
        for step in steps:
            is_old = age is not None and max(one.time for one in step) * SECOND < newest * SECOND - age
            if not is_old and (size is None or total <= size):
                break
            gone += step
            total -= sum(sizes[one.name] for one in step)
        return gone

    def _removal_steps(self, main: Sequence[ArchiveSegment]) -> list[list[ArchiveSegment]]:
        """Return segments to delete together, oldest first: the main chain's up to a state, and each of the others."""
        states = [place for place, one in enumerate(main) if one.is_base] or [0]
        starts = [0, *(place for place in states if place)]
        steps = [list(main[start:stop]) for start, stop in pairwise(starts)]
        steps += [[one] for one in self.segments if one not in set(main)]
        return sorted(steps, key=lambda step: max(one.time for one in step))

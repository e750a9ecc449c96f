"""Proof that an archive is sound: each segment is what was shipped, and follows the one before it."""

from __future__ import annotations

from vcd.eventlog.archive.lines import ListedSegments
from vcd.eventlog.archive.names import ArchiveSegment
from vcd.eventlog.archive.restoring import Empty
from vcd.eventlog.archive.segments import Damaged, pieces
from vcd.eventlog.archive.stores import store_of
from vcd.eventlog.verify import Head, Verified


def check(where: str) -> Verified:
    """Read every segment of an archive. Problems are segments that were changed or exchanged, and gaps; what no log can
    be restored of besides is told as not covered. Raises ArchiveError."""
    store = store_of(where)
    listed = ListedSegments.of(store.sizes())
    if not listed.segments:
        raise Empty(where)
    problems = list[str]()
    for segment in listed.segments:
        try:
            for _ in pieces(segment, store.get(segment.name)):
                pass
        except Damaged as damaged:
            problems.append(str(damaged))
    newest = max(listed.segments, key=lambda one: one.rank)
    beside = [one for one in listed.segments if one not in set(listed.to(newest))]
    return Verified([*problems, *listed.gaps()], _told(beside), Head(newest.last, newest.link))


def _told(beside: list[ArchiveSegment]) -> list[str]:
    return [f"{one} are not part of the newest log; `vcd log restore --epoch {one.epoch}`" for one in beside]

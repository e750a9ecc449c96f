"""Verify an archive: each segment is unchanged and follows the one before it."""

from __future__ import annotations

from vcd.eventlog.archive.restoration import EmptyArchive
from vcd.eventlog.archive.segment_index import SegmentIndex
from vcd.eventlog.archive.segments import DamagedSegment, read_pieces
from vcd.eventlog.archive.stores import store_of
from vcd.eventlog.log_verification import Head, Verified


def check(where: str) -> Verified:
    """Read every segment of an archive.

    Problems are changed segments and gaps. Segments that do not belong to the newest log are reported as uncovered.
    Raises ArchiveError.
    """
    store = store_of(where)
    listed = SegmentIndex.of(store.sizes())
    if not listed.segments:
        raise EmptyArchive(where)
    problems = list[str]()
    for segment in listed.segments:
        try:
            for _ in read_pieces(segment, store.get(segment.name)):
                pass
        except DamagedSegment as damaged:
            problems.append(str(damaged))
    newest = max(listed.segments, key=lambda one: one.rank)
    others = [one for one in listed.segments if one not in set(listed.chain_to(newest))]
    uncovered = [f"{one} are not part of the newest log; `vcd log restore --epoch {one.epoch}`" for one in others]
    return Verified([*problems, *listed.gaps()], uncovered, Head(newest.last, newest.link))

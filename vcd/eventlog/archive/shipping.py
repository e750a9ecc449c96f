"""Ship a log to an archive: write segments of the events that the archive lacks, then delete expired segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, pairwise

import msgspec

from vcd.eventlog.archive.segment_index import SegmentIndex
from vcd.eventlog.archive.segment_names import ArchiveSegment
from vcd.eventlog.archive.segments import FORMAT, Header, SegmentWriter
from vcd.eventlog.archive.stores import ArchiveError, store_of
from vcd.eventlog.replication import LogSource, Piece
from vcd.model.version import __version__

SIZE = 8 << 20
"""Bytes after which a segment ends, because it is built in memory."""


class ShipJob(msgspec.Struct, frozen=True, tag="ship"):
    """Ship the log at ``path`` as the leader of ``epoch``; None: only report how much of it is shipped.

    Then delete segments older than ``keep_age`` (ns) or beyond ``keep_size`` (bytes); None: none.
    """

    path: str
    where: str
    identity: str
    epoch: int | None
    keep_age: int | None = None
    keep_size: int | None = None


class ShipProgress(msgspec.Struct, frozen=True, tag="shipped"):
    """The last event of this log in the archive (0: none), its time (s), and the bytes sent in this step."""

    sequence: int
    time: int
    bytes: int = 0


def ship(job: ShipJob, report: Callable[[ShipProgress], None]) -> None:
    """Run a job; ``report`` is called for each step. Raises ArchiveError, and LogError for missing events."""
    store = store_of(job.where)
    sizes = store.sizes()
    listed = SegmentIndex.of(sizes)
    with LogSource(job.path) as source:
        at = source.last_shared(one.end for one in listed.segments)
        last = next((one for one in listed.segments if one.last == at and source.has(one.end)), None)
        report(_progress(last))
        if job.epoch is None:
            return
        _check_leads(job, listed, source)
        made = list[ArchiveSegment]()
        for segment, data in _build_segments(source, last, job.identity, job.epoch):
            store.put(segment.name, data)
            sizes[segment.name] = len(data)
            made.append(segment)
            last = segment
            report(ShipProgress(segment.last, segment.time, len(data)))
    for segment in SegmentIndex([*listed.segments, *made]).expired(sizes, job.keep_age, job.keep_size):
        store.delete(segment.name)
        report(_progress(last))
    store.tidy()


def _progress(last: ArchiveSegment | None) -> ShipProgress:
    return ShipProgress(0, 0) if last is None else ShipProgress(last.last, last.time)


def _check_leads(job: ShipJob, listed: SegmentIndex, source: LogSource) -> None:
    """Raise ArchiveError if a later leader shipped events that this log does not have."""
    newest = max(listed.segments, key=lambda one: one.rank, default=None)
    if newest is not None and job.epoch is not None and newest.epoch > job.epoch and not source.has(newest.end):
        raise ArchiveError(
            f"archive {job.where}: a leader of epoch {newest.epoch} shipped to it, and this one leads under epoch"
            f" {job.epoch} without what that one had; give this cluster another directory or prefix, or begin with the"
            " archive's log (`vcd log restore`)"
        )


def _build_segments(
    source: LogSource, last: ArchiveSegment | None, identity: str, epoch: int
) -> Iterator[tuple[ArchiveSegment, bytes]]:
    """Yield segments, with their bytes, for the events after ``last`` (None: all). A segment begins at each state."""
    head, begin = source.head(), source.oldest() if last is None else last.last
    if head is None:
        return
    states = [each for each in source.checkpoints(begin) if each <= head.sequence]
    session = 0 if last is None else last.session
    for start, stop in pairwise(sorted({begin, *states, head.sequence})):
        if last is None or start in states:
            pieces: Iterator[Piece] = chain(source.pieces_from_checkpoint(start), source.pieces_up_to(stop))
        else:
            source.continue_after(start, [])
            pieces = source.pieces_up_to(stop)
        header = Header(FORMAT, __version__, identity, epoch, start, source.link(start))
        for writer in _split(header, pieces, session):
            session = writer.session
            yield writer.finish()


def _split(header: Header, pieces: Iterator[Piece], session: int) -> Iterator[SegmentWriter]:
    writer = SegmentWriter(header, session)
    for piece in pieces:
        if len(writer) >= SIZE and writer.end is not None:
            yield writer
            after = writer.end
            header = msgspec.structs.replace(header, after=after.sequence, before=after.link)
            writer = SegmentWriter(header, writer.session)
        writer.add(piece)
    if writer.end is not None:
        yield writer

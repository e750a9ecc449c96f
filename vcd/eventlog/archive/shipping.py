"""Shipping a log: what is not in the archive yet becomes segments, in order, a few megabytes at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, pairwise

import msgspec

from vcd.eventlog.archive.lines import ListedSegments
from vcd.eventlog.archive.names import ArchiveSegment
from vcd.eventlog.archive.segments import FORMAT, Header, SegmentWriter
from vcd.eventlog.archive.stores import ArchiveError, store_of
from vcd.eventlog.copying import LogSource, Piece
from vcd.model.version import __version__

SIZE = 8 << 20
"""Bytes after which a segment ends: it is made in memory."""


class Ship(msgspec.Struct, frozen=True, tag="ship"):
    """Ship the log at ``path`` to an archive, as who led under an epoch; None: only look how far it is shipped. Take
    away what is older than ``keep_age`` (ns) or more than ``keep_size`` (bytes); None: nothing."""

    path: str
    where: str
    identity: str
    epoch: int | None
    keep_age: int | None = None
    keep_size: int | None = None


class Shipped(msgspec.Struct, frozen=True, tag="shipped"):
    """Up to which event the archive has this log (0: nothing), that event's time (s), and the bytes that were sent."""

    sequence: int
    time: int
    bytes: int = 0


def ship(job: Ship, say: Callable[[Shipped], None]) -> None:
    """Do it; ``say`` is told of each step. Raises ArchiveError, and LogError for what the log does not hold."""
    store = store_of(job.where)
    sizes = store.sizes()
    listed = ListedSegments.of(sizes)
    with LogSource(job.path) as source:
        at = source.shared(one.end for one in listed.segments)
        last = next((one for one in listed.segments if one.last == at and source.has(one.end)), None)
        say(_shipped(last))
        if job.epoch is None:
            return
        _check_leads(job, listed, source)
        made = list[ArchiveSegment]()
        for segment, data in _made(source, last, job.identity, job.epoch):
            store.put(segment.name, data)
            sizes[segment.name] = len(data)
            made.append(segment)
            last = segment
            say(Shipped(segment.last, segment.time, len(data)))
    for segment in ListedSegments([*listed.segments, *made]).expired(sizes, job.keep_age, job.keep_size):
        store.delete(segment.name)
        say(_shipped(last))
    store.tidy()


def _shipped(last: ArchiveSegment | None) -> Shipped:
    """That nothing more is there than was."""
    return Shipped(0, 0) if last is None else Shipped(last.last, last.time)


def _check_leads(job: Ship, listed: ListedSegments, source: LogSource) -> None:
    """Raises ArchiveError where a later leader shipped what this log has not."""
    newest = max(listed.segments, key=lambda one: one.rank, default=None)
    if newest is not None and job.epoch is not None and newest.epoch > job.epoch and not source.has(newest.end):
        raise ArchiveError(
            f"archive {job.where}: a leader of epoch {newest.epoch} shipped to it, and this one leads under epoch"
            f" {job.epoch} without what that one had; give this cluster another directory or prefix, or begin with the"
            " archive's log (`vcd log restore`)"
        )


def _made(
    source: LogSource, last: ArchiveSegment | None, identity: str, epoch: int
) -> Iterator[tuple[ArchiveSegment, bytes]]:
    """The segments of what follows the last one (None: of all), each with its bytes; one begins with each state."""
    head, begin = source.head(), source.oldest() if last is None else last.last
    if head is None:
        return
    states = [each for each in source.checkpoints(begin) if each <= head.sequence]
    session = 0 if last is None else last.session
    for start, stop in pairwise(sorted({begin, *states, head.sequence})):
        if last is None or start in states:
            pieces: Iterator[Piece] = chain(source.from_checkpoint(start), source.up_to(stop))
        else:
            source.go_on(start, [])
            pieces = source.up_to(stop)
        header = Header(FORMAT, __version__, identity, epoch, start, source.link(start))
        for writer in _written(header, pieces, session):
            session = writer.session
            yield writer.done()


def _written(header: Header, pieces: Iterator[Piece], session: int) -> Iterator[SegmentWriter]:
    """Segments of the pieces of a log, each begun when the one before is as large as it may be."""
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

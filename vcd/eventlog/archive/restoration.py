"""Restore a log from an archive: write its segments one after the other, each checked against the chain.

If a segment is damaged, the restore starts again without it and reports it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path

import msgspec

from vcd.eventlog.archive.segment_index import SegmentChain, SegmentIndex
from vcd.eventlog.archive.segment_names import ArchiveSegment
from vcd.eventlog.archive.segments import DamagedSegment, read_pieces
from vcd.eventlog.archive.stores import ArchiveError, ArchiveStore, store_of
from vcd.eventlog.log_errors import LogError
from vcd.eventlog.log_file import connect, translate_errors
from vcd.eventlog.log_writer import EventLog
from vcd.eventlog.replication import CheckpointPiece, EventsPiece, Piece, StartPiece, write_piece
from vcd.eventlog.rows import to_logged
from vcd.model.events import SessionDecided
from vcd.model.wording import SECOND

_PIECES = 4


class RestoreJob(msgspec.Struct, frozen=True, tag="restore"):
    """Restore an archive's newest log into the new file ``out``; see `SegmentIndex.select` for ``at``, ``epoch`` and
    ``age``.

    ``at`` (ns) is also the time of the last restored event, and ``to`` the number of the last restored session.
    """

    where: str
    out: str
    at: int | None = None
    to: int | None = None
    epoch: int | None = None
    age: int | None = None


class RestoreProgress(msgspec.Struct, frozen=True, tag="fetched"):
    """The event up to which segments were fetched; 0: the archive was listed."""

    last: int


class Restored(msgspec.Struct, frozen=True, tag="restored"):
    """The result: first and last event, the last session, and sentences that state what was missing."""

    first: int
    last: int
    session: int
    gaps: list[str]


class EmptyArchive(ArchiveError):
    """The archive has no segments yet."""

    def __init__(self, where: str) -> None:
        super().__init__(f"archive {where}: there is no segment of a log in it")


def ends_at(where: str) -> int:
    """Return the time (ns) of an archive's newest event, rounded up to a second. Raises ArchiveError."""
    listed = SegmentIndex.of(store_of(where).sizes())
    if not listed.segments:
        raise EmptyArchive(where)
    return max(one.time for one in listed.segments) * SECOND


async def restore(job: RestoreJob, report: Callable[[RestoreProgress], None] = lambda _: None) -> Restored:
    """Run a job; ``report`` is called for each step. Raises ArchiveError and LogError, and then leaves no file."""
    out, store = Path(job.out), store_of(job.where)
    await asyncio.to_thread(_check_new, out)
    listed = SegmentIndex.of(await asyncio.to_thread(store.sizes))
    if not listed.segments:
        raise EmptyArchive(job.where)
    report(RestoreProgress(0))
    damages: list[str] = []
    while True:
        line = _select_chain(job, listed, damages)
        try:
            return await _write_log(store, line, job, damages, report)
        except DamagedSegment as damaged:
            damages.append(str(damaged))
            listed = listed.without(damaged.segment)


def _check_new(out: Path) -> None:
    with translate_errors(out):
        if out.exists():
            raise _exists_error(out)
        if not out.parent.is_dir():
            raise LogError(f"event log {out}: there is no such directory")


def _exists_error(out: Path) -> LogError:
    return LogError(f"event log {out}: it exists already; name a new file")


def _select_chain(job: RestoreJob, listed: SegmentIndex, damages: list[str]) -> SegmentChain:
    try:
        return listed.select(at=job.at, epoch=job.epoch, age=job.age)
    except ArchiveError as error:
        raise ArchiveError(f"archive {job.where}: {'; '.join([str(error), *damages])}") from error


async def _write_log(
    store: ArchiveStore,
    line: SegmentChain,
    job: RestoreJob,
    damages: list[str],
    report: Callable[[RestoreProgress], None],
) -> Restored:
    out = Path(job.out)
    partial = _partial_path(out)
    remove_partial(out)
    try:
        async with EventLog.open(partial) as log:
            first = line.segments[0].after + 1
            async for piece in _until_end(_read_all(store, line.segments, report), job):
                await write_piece(log, piece)
            last, session = log.head, log.last_session
        if last < first or job.to not in (None, session):
            there = "all its events are later"
            if job.to is not None:
                there = f"it {'ends with' if session < job.to else 'begins after'} session {session}"
            raise ArchiveError(f"archive {job.where}: no event to restore up to the given end; {there}")
        with translate_errors(out):
            with closing(connect(partial)) as connection:
                connection.execute("PRAGMA journal_mode = DELETE").fetchall()
            _publish(partial, out)
        return Restored(first, last, session, [*damages, *line.gaps])
    finally:
        remove_partial(out)


def _publish(partial: Path, out: Path) -> None:
    """Rename a restored log, unless another file has appeared under the name. Raises LogError then."""
    _check_new(out)
    for suffix in ("-wal", "-shm", "-journal"):  # left by a deleted log; SQLite would apply them to this one
        out.with_name(out.name + suffix).unlink(missing_ok=True)
    try:
        os.link(partial, out)
    except FileExistsError as error:
        raise _exists_error(out) from error
    except OSError:  # a file system without hard links
        _check_new(out)
        partial.rename(out)


def _partial_path(out: Path) -> Path:
    return out.with_name(f"{out.name}.partial")


def remove_partial(out: Path) -> None:
    """Remove what an interrupted restore into ``out`` wrote."""
    partial = _partial_path(out)
    for suffix in ("", "-wal", "-shm", "-lock"):
        with suppress(OSError):  # report the first error
            partial.with_name(partial.name + suffix).unlink(missing_ok=True)


async def _read_all(
    store: ArchiveStore, segments: list[ArchiveSegment], report: Callable[[RestoreProgress], None]
) -> AsyncIterator[Piece]:
    """Yield the pieces to write, of consecutive segments; only the first segment's start is retained."""
    for place, segment in enumerate(segments):
        data = await asyncio.to_thread(store.get, segment.name)
        report(RestoreProgress(segment.last))
        found, base = read_pieces(segment, data), None
        while some := await asyncio.to_thread(list, islice(found, _PIECES)):
            for piece in some:
                checkpoint = piece if isinstance(piece, CheckpointPiece) else None
                if checkpoint and checkpoint.after is None:
                    base = checkpoint
                if place == 0:
                    yield _drop_older_state(piece, segment.after)
                elif checkpoint and base and checkpoint is not base and checkpoint.sequence == base.sequence:
                    yield msgspec.structs.replace(checkpoint, parts=base.parts)
                elif not isinstance(piece, StartPiece) and piece is not base:
                    yield piece


def _drop_older_state(piece: Piece, begin: int) -> Piece:
    is_older = isinstance(piece, CheckpointPiece) and piece.sequence < begin
    return msgspec.structs.replace(piece, parts=[]) if is_older else piece


async def _until_end(found: AsyncIterator[Piece], job: RestoreJob) -> AsyncIterator[Piece]:
    async for piece in found:
        if not isinstance(piece, EventsPiece):
            yield piece
            continue
        rows = piece.rows
        stop = next((place for place, (content, _) in enumerate(rows) if _is_past_end(content, job)), len(rows))
        if stop:
            yield EventsPiece(rows[:stop])
        if stop < len(rows):
            return


def _is_past_end(content: tuple[int, int, str, str, str, str, bytes | None], job: RestoreJob) -> bool:
    if job.at is not None and content[1] > job.at:
        return True
    if job.to is None or content[2] != "session":
        return False
    event = to_logged(content).event
    return isinstance(event, SessionDecided) and event.session > job.to

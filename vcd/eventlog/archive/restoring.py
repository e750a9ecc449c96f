"""A log out of an archive: its segments written one after the other, each held against the chain."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path

import msgspec

from vcd.eventlog.archive.lines import SECOND, Line, ListedSegments
from vcd.eventlog.archive.names import ArchiveSegment
from vcd.eventlog.archive.segments import Damaged, pieces
from vcd.eventlog.archive.stores import ArchiveError, ArchiveStore, store_of
from vcd.eventlog.copying import Begin, Events, Kept, Piece, write_copy
from vcd.eventlog.errors import LogError
from vcd.eventlog.log import EventLog
from vcd.eventlog.rows import logged_of
from vcd.eventlog.store import connect, failures_explained
from vcd.model.events import SessionDecided

_PIECES = 4
"""Pieces that are read at a time."""


class Restore(msgspec.Struct, frozen=True, tag="restore"):
    """Restore an archive's newest log into the new file ``out``: as of a time (ns), up to a session, or as of a
    leader's epoch, where given; all of it, or from the last state on that is by ``age`` (ns) older than its end."""

    where: str
    out: str
    at: int | None = None
    to: int | None = None
    epoch: int | None = None
    age: int | None = None


class Fetched(msgspec.Struct, frozen=True, tag="fetched"):
    """What the archive gave: up to which event (0: the list of what is in it)."""

    last: int


class Restored(msgspec.Struct, frozen=True, tag="restored"):
    """What the new file holds: its first and last event, the last session; and what was missing, in sentences."""

    first: int
    last: int
    session: int
    gaps: list[str]


class Empty(ArchiveError):
    """An archive holds nothing yet."""

    def __init__(self, where: str) -> None:
        super().__init__(f"archive {where}: there is no segment of a log in it")


def ends_at(where: str) -> int:
    """The time (ns) of an archive's newest event, rounded up to a second. Raises ArchiveError."""
    listed = ListedSegments.of(store_of(where).sizes())
    if not listed.segments:
        raise Empty(where)
    return max(one.time for one in listed.segments) * SECOND


async def restore(job: Restore, say: Callable[[Fetched], None] = lambda _: None) -> Restored:
    """Do it; ``say`` is told of each step. Raises ArchiveError and LogError, and leaves no file then."""
    out, store = Path(job.out), store_of(job.where)
    await asyncio.to_thread(_check_new, out)
    listed = ListedSegments.of(await asyncio.to_thread(store.sizes))
    if not listed.segments:
        raise Empty(job.where)
    say(Fetched(0))
    damages: list[str] = []
    while True:
        line = _line(job, listed, damages)
        try:
            return await _restored(store, line, job, damages, say)
        except Damaged as damaged:
            damages.append(str(damaged))
            listed = listed.without(damaged.segment)


def _check_new(out: Path) -> None:
    with failures_explained(out):
        if out.exists():
            raise _is_there(out)
        if not out.parent.is_dir():
            raise LogError(f"event log {out}: there is no such directory")


def _is_there(out: Path) -> LogError:
    return LogError(f"event log {out}: it exists already; name a new file")


def _line(job: Restore, listed: ListedSegments, damages: list[str]) -> Line:
    try:
        return listed.line(at=job.at, epoch=job.epoch, age=job.age)
    except ArchiveError as error:
        raise ArchiveError(f"archive {job.where}: {'; '.join([str(error), *damages])}") from error


async def _restored(
    store: ArchiveStore, line: Line, job: Restore, damages: list[str], say: Callable[[Fetched], None]
) -> Restored:
    out = Path(job.out)
    partial = _partial(out)
    remove_unfinished(out)
    try:
        async with EventLog.open(partial) as log:
            first = line.segments[0].after + 1
            async for piece in _cut(_pieces(store, line.segments, say), job):
                await write_copy(log, piece)
            last, session = log.head, log.last_session
        if last < first or job.to not in (None, session):
            there = "its events are of later"
            if job.to is not None:
                there = f"it {'ends with' if session < job.to else 'begins after'} session {session}"
            raise ArchiveError(f"archive {job.where}: there is nothing of then to restore; {there}")
        with failures_explained(out):
            with closing(connect(partial)) as connection:
                connection.execute("PRAGMA journal_mode = DELETE").fetchall()
            _name(partial, out)
        return Restored(first, last, session, [*damages, *line.gaps])
    finally:
        remove_unfinished(out)


def _name(partial: Path, out: Path) -> None:
    """Give a restored log its name, unless another was made under it meanwhile. Raises LogError then."""
    _check_new(out)
    for suffix in ("-wal", "-shm", "-journal"):  # of a log that is gone; SQLite would replay it into this one
        out.with_name(out.name + suffix).unlink(missing_ok=True)
    try:
        os.link(partial, out)
    except FileExistsError as error:
        raise _is_there(out) from error
    except OSError:  # a file system without hard links
        _check_new(out)
        partial.rename(out)


def _partial(out: Path) -> Path:
    return out.with_name(f"{out.name}.partial")


def remove_unfinished(out: Path) -> None:
    """Remove what a restore into ``out`` that was ended had written."""
    partial = _partial(out)
    for suffix in ("", "-wal", "-shm", "-lock"):
        with suppress(OSError):  # the first error is the one to tell
            partial.with_name(partial.name + suffix).unlink(missing_ok=True)


async def _pieces(
    store: ArchiveStore, segments: list[ArchiveSegment], say: Callable[[Fetched], None]
) -> AsyncIterator[Piece]:
    """What is written of segments that follow each other: the first with what a log begins with."""
    for place, segment in enumerate(segments):
        data = await asyncio.to_thread(store.get, segment.name)
        say(Fetched(segment.last))
        found, base = pieces(segment, data), None
        while some := await asyncio.to_thread(list, islice(found, _PIECES)):
            for piece in some:
                if isinstance(piece, Kept) and piece.after is None:
                    base = piece
                if place == 0:
                    yield _without_older(piece, segment.after)
                elif isinstance(piece, Kept) and piece.after is not None and base and piece.sequence == base.sequence:
                    yield msgspec.structs.replace(piece, parts=base.parts)
                elif not isinstance(piece, Begin) and piece is not base:
                    yield piece


def _without_older(piece: Piece, begin: int) -> Piece:
    """Of a checkpoint before the one that a log begins with, only that it was kept."""
    is_older = isinstance(piece, Kept) and piece.sequence < begin
    return msgspec.structs.replace(piece, parts=[]) if is_older else piece


async def _cut(found: AsyncIterator[Piece], job: Restore) -> AsyncIterator[Piece]:
    """The pieces up to where the restored log is to end."""
    async for piece in found:
        if not isinstance(piece, Events):
            yield piece
            continue
        rows = piece.rows
        stop = next((place for place, (content, _) in enumerate(rows) if _is_after(content, job)), len(rows))
        if stop:
            yield Events(rows[:stop])
        if stop < len(rows):
            return


def _is_after(content: tuple[int, int, str, str, str, str, bytes | None], job: Restore) -> bool:
    if job.at is not None and content[1] > job.at:
        return True
    if job.to is None or content[2] != "session":
        return False
    event = logged_of(content).event
    return isinstance(event, SessionDecided) and event.session > job.to

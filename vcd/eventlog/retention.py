"""Which history may go, and taking it away in small steps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import aiosqlite
import msgspec

from vcd.eventlog.reader import LAST, CheckpointInfo, LogReader
from vcd.eventlog.statements import statements

STEP_BYTES = 4 << 20
"""Payload bytes that one transaction deletes at most (one event at least)."""

_SQL = statements("retain")
Transact = Callable[[Callable[[aiosqlite.Connection], Awaitable[Any]]], Awaitable[Any]]


class Retained(msgspec.Struct, frozen=True):
    """What retention did: events removed, the checkpoint that the history now begins with (0: nothing was
    removed), and the size of the file in bytes."""

    removed: int
    begins: int
    size: int


async def retain(
    path: Path, transact: Transact, before: int | None, max_bytes: int | None, elsewhere: int | None = None
) -> Retained:
    """Remove history up to checkpoints, through ``transact``: see ``EventLog.retain``; ``before`` is a time in ns."""
    checkpoints, first = await asyncio.to_thread(_extent, path)
    removed = begins = 0
    known = LAST if elsewhere is None else elsewhere
    old = [c.sequence for c in checkpoints if before is not None and c.time <= before and c.sequence <= known]
    if old:
        begins = old[-1]
        removed = await _remove(transact, begins)
    elif checkpoints and first not in (None, 1):
        # an interrupted run had deleted the checkpoints before its own first, and not all that lies before that
        removed = await _remove(transact, checkpoints[0].sequence)
    later = [c.sequence for c in checkpoints if c.sequence > begins]
    size = await _give_back(transact)
    while max_bytes is not None and size > max_bytes and later:
        begins = later.pop(0)
        removed += await _remove(transact, begins)
        size = await _give_back(transact)
    return Retained(removed, begins if removed else 0, size)


def _extent(path: Path) -> tuple[list[CheckpointInfo], int | None]:
    with LogReader(path) as reader:
        return reader.checkpoints(), reader.first()


async def _remove(transact: Transact, cut: int) -> int:
    """Remove what lies at or before the checkpoint at ``cut``; returns the number of events."""
    removed: int = await transact(lambda db: _remove_bases(db, cut))
    while count := await transact(lambda db: _remove_events(db, cut)):
        removed += count
    ((session,),) = await transact(lambda db: db.execute_fetchall(_SQL["last_session"], {"cut": cut}))
    values = {"cut": cut, "session": session}
    for name in ("part", "operation", "statement", "outcome", "session"):
        while await transact(partial(_deleted, sql=_SQL[name], values=values)):
            pass
    group: str | None = ""
    while group is not None:
        group = await transact(partial(_remove_group_events, cut=cut, after=group))
    for name in ("seal", "policy"):
        await transact(partial(_deleted, sql=_SQL[name], values=values))
    return removed


async def _remove_bases(connection: aiosqlite.Connection, cut: int) -> int:
    """First the checkpoints that are to go, and the log's very first event: from then on nobody begins before ``cut``,
    and the chain begins there. Returns the number of events."""
    await connection.execute(_SQL["link"], {"cut": cut})
    await connection.execute(_SQL["checkpoint_before"], {"cut": cut})
    await connection.execute(_SQL["segment_before"], {"cut": cut})
    return await _deleted(connection, _SQL["events"], {"upto": 1})


async def _remove_events(connection: aiosqlite.Connection, cut: int) -> int:
    upto = bytes_seen = 0
    for sequence, length in await connection.execute_fetchall(_SQL["lengths"], {"cut": cut}):
        bytes_seen += length
        if upto and bytes_seen > STEP_BYTES:
            break
        upto = sequence
    return await _deleted(connection, _SQL["events"], {"upto": upto}) if upto else 0


async def _remove_group_events(connection: aiosqlite.Connection, cut: int, after: str) -> str | None:
    """Take some groups' events out of the index, from the group after one on; the last of these groups."""
    ((upto,),) = await connection.execute_fetchall(_SQL["groups"], {"after": after})
    if upto is None:
        return None
    await _deleted(connection, _SQL["group_event"], {"cut": cut, "after": after, "upto": upto})
    return str(upto)


async def _deleted(connection: aiosqlite.Connection, sql: str, values: dict[str, int | str]) -> int:
    """Execute a DELETE; returns the number of rows."""
    async with connection.execute(sql, values) as cursor:
        return cursor.rowcount


async def _give_back(transact: Transact) -> int:
    """Return free pages to the file system, some at a time; returns the size of the file in bytes."""
    while await transact(_vacuum_some):
        pass
    return await size_of(transact)


async def size_of(transact: Transact) -> int:
    """Return the bytes of the file once all that was written has reached it."""
    ((pages,),) = await transact(lambda db: db.execute_fetchall(_SQL["pages"]))
    ((page_size,),) = await transact(lambda db: db.execute_fetchall(_SQL["page_size"]))
    return int(pages * page_size)


async def _vacuum_some(connection: aiosqlite.Connection) -> bool:
    """One step of the vacuum; True when it got somewhere and pages are left."""
    ((before,),) = await connection.execute_fetchall(_SQL["free"])
    if before:
        await connection.execute_fetchall(_SQL["vacuum"])
    ((after,),) = await connection.execute_fetchall(_SQL["free"])
    return bool(0 < after < before)

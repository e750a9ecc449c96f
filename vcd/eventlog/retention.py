"""Remove history up to a checkpoint, in many small transactions so that appends are not delayed.

An interruption at any point leaves a valid log: first checkpoints and the first event are removed, which moves the
beginning of the history, then everything before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import aiosqlite
import msgspec

from vcd.eventlog.log_reader import LAST, CheckpointInfo, LogReader
from vcd.eventlog.sql_statements import statements

STEP_BYTES = 4 << 20
"""Payload bytes deleted per transaction; at least one event."""

_SQL = statements("retain")
Transact = Callable[[Callable[[aiosqlite.Connection], Awaitable[Any]]], Awaitable[Any]]


class Retained(msgspec.Struct, frozen=True):
    """The result: number of removed events, the checkpoint that the history begins with now (0: nothing was removed),
    and the size of the file in bytes."""

    removed: int
    begins: int
    size: int


async def retain(
    path: Path, transact: Transact, before: int | None, max_bytes: int | None, archived_until: int | None = None
) -> Retained:
    """Remove history older than ``before`` (ns) or beyond ``max_bytes``: see ``EventLog.retain``."""
    checkpoints, first = await asyncio.to_thread(_read_extent, path)
    removed = begins = 0
    limit = LAST if archived_until is None else archived_until
    old = [c.sequence for c in checkpoints if before is not None and c.time <= before and c.sequence <= limit]
    if old:
        begins = old[-1]
        removed = await _remove(transact, begins)
    elif checkpoints and first not in (None, 1):
        # complete an interrupted run, which has deleted the older checkpoints but not all events before this one
        removed = await _remove(transact, checkpoints[0].sequence)
    later = [c.sequence for c in checkpoints if c.sequence > begins]
    size = await _release_pages(transact)
    while max_bytes is not None and size > max_bytes and later:
        begins = later.pop(0)
        removed += await _remove(transact, begins)
        size = await _release_pages(transact)
    return Retained(removed, begins if removed else 0, size)


def _read_extent(path: Path) -> tuple[list[CheckpointInfo], int | None]:
    with LogReader(path) as reader:
        return reader.checkpoints(), reader.first()


async def _remove(transact: Transact, cut: int) -> int:
    removed: int = await transact(lambda db: _remove_bases(db, cut))
    while count := await transact(lambda db: _remove_events(db, cut)):
        removed += count
    ((session,),) = await transact(lambda db: db.execute_fetchall(_SQL["last_session"], {"cut": cut}))
    values = {"cut": cut, "session": session}
    for name in ("part", "operation", "statement", "outcome", "session"):
        while await transact(partial(_delete, sql=_SQL[name], values=values)):
            pass
    group: str | None = ""
    while group is not None:
        group = await transact(partial(_remove_group_events, cut=cut, after=group))
    for name in ("seal", "policy"):
        await transact(partial(_delete, sql=_SQL[name], values=values))
    return removed


async def _remove_bases(connection: aiosqlite.Connection, cut: int) -> int:
    """Remove the older checkpoints and the first event, so that no reader starts before ``cut``."""
    await connection.execute(_SQL["link"], {"cut": cut})
    await connection.execute(_SQL["checkpoint_before"], {"cut": cut})
    return await _delete(connection, _SQL["events"], {"upto": 1})


async def _remove_events(connection: aiosqlite.Connection, cut: int) -> int:
    upto = bytes_seen = 0
    for sequence, length in await connection.execute_fetchall(_SQL["lengths"], {"cut": cut}):
        bytes_seen += length
        if upto and bytes_seen > STEP_BYTES:
            break
        upto = sequence
    return await _delete(connection, _SQL["events"], {"upto": upto}) if upto else 0


async def _remove_group_events(connection: aiosqlite.Connection, cut: int, after: str) -> str | None:
    """Remove index rows of the groups that follow ``after``; return the last of these groups, None at the end."""
    ((upto,),) = await connection.execute_fetchall(_SQL["groups"], {"after": after})
    if upto is None:
        return None
    await _delete(connection, _SQL["group_event"], {"cut": cut, "after": after, "upto": upto})
    return str(upto)


async def _delete(connection: aiosqlite.Connection, sql: str, values: dict[str, int | str]) -> int:
    async with connection.execute(sql, values) as cursor:
        return cursor.rowcount


async def _release_pages(transact: Transact) -> int:
    while await transact(_vacuum_step):
        pass
    return await read_size(transact)


async def read_size(transact: Transact) -> int:
    """Return the size of the file in bytes once the WAL is written back."""
    ((pages,),) = await transact(lambda db: db.execute_fetchall(_SQL["pages"]))
    ((page_size,),) = await transact(lambda db: db.execute_fetchall(_SQL["page_size"]))
    return int(pages * page_size)


async def _vacuum_step(connection: aiosqlite.Connection) -> bool:
    ((before,),) = await connection.execute_fetchall(_SQL["free"])
    if before:
        await connection.execute_fetchall(_SQL["vacuum"])
    ((after,),) = await connection.execute_fetchall(_SQL["free"])
    return bool(0 < after < before)

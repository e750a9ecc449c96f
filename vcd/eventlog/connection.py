"""The writer's connection to the log's file, with transactions by hand."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiosqlite
import anyio

from vcd.eventlog.errors import LogError
from vcd.eventlog.rows import Row
from vcd.eventlog.store import BUSY_SECONDS, SETTINGS, failures_explained, in_place, uri_of

BEGIN = "BEGIN IMMEDIATE"
COMMIT = "COMMIT"


class LogConnection(aiosqlite.Connection):
    """One that can make a whole transaction in a single turn of its thread: each turn costs the event loop as much as a
    few rows."""

    async def write(self, statements: Iterable[tuple[str, Iterable[Row]]]) -> None:
        """Execute statements, each for its rows, in one transaction. Raises what sqlite3 does, the transaction open."""
        await self._execute(self._write, statements)  # type: ignore[no-untyped-call]

    def _write(self, statements: Iterable[tuple[str, Iterable[Row]]]) -> None:
        self._conn.execute(BEGIN)
        for sql, rows in statements:
            self._conn.executemany(sql, rows)
        self._conn.execute(COMMIT)


@asynccontextmanager
async def connected(path: Path, file: int) -> AsyncIterator[LogConnection]:
    """A connection for writing to a log's file that is there, and locked by a descriptor. Raises LogError."""
    uri = uri_of(path, "mode=rw")
    connection = LogConnection(lambda: sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_SECONDS), 64)
    with failures_explained(path):
        await connection
    try:
        with failures_explained(path):
            await connection.executescript(SETTINGS)  # which touches the file
        yield connection
    finally:
        with anyio.CancelScope(shield=True):
            await _empty_wal_of_moved(connection, path, file)
            await connection.close()


async def _empty_wal_of_moved(connection: LogConnection, path: Path, file: int) -> None:
    """Write what is in the WAL to a file that was moved. SQLite leaves it there, to be read as that of whatever file
    has taken its place."""
    try:
        in_place(path, file)
    except LogError:
        with suppress(sqlite3.Error):  # of a disk that fails; that the file was moved is told in any case
            await connection.execute_fetchall("PRAGMA wal_checkpoint(TRUNCATE)")

"""The log writer's asynchronous SQLite connection, in autocommit mode: transactions are explicit."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiosqlite
import anyio

from vcd.eventlog.log_errors import LogError
from vcd.eventlog.log_file import BUSY_SECONDS, SETTINGS, check_in_place, sqlite_uri, translate_errors
from vcd.eventlog.rows import Row

BEGIN = "BEGIN IMMEDIATE"
COMMIT = "COMMIT"


class LogConnection(aiosqlite.Connection):
    """A connection that can run a whole transaction in one call to its thread.

    Each call costs the event loop as much as writing a few rows.
    """

    async def write(self, statements: Iterable[tuple[str, Iterable[Row]]]) -> None:
        """Execute statements, each for its rows, in one transaction.

        Raises sqlite3's errors and leaves the transaction open.
        """
        await self._execute(self._write, statements)  # type: ignore[no-untyped-call]

    def _write(self, statements: Iterable[tuple[str, Iterable[Row]]]) -> None:
        self._conn.execute(BEGIN)
        for sql, rows in statements:
            self._conn.executemany(sql, rows)
        self._conn.execute(COMMIT)


@asynccontextmanager
async def open_connection(path: Path, file: int) -> AsyncIterator[LogConnection]:
    """Open an existing, locked log file for writing; ``file`` is its descriptor. Raises LogError."""
    uri = sqlite_uri(path, "mode=rw")
    connection = LogConnection(lambda: sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_SECONDS), 64)
    with translate_errors(path):
        await connection
    try:
        with translate_errors(path):
            await connection.executescript(SETTINGS)
        yield connection
    finally:
        with anyio.CancelScope(shield=True):
            await _empty_wal_of_moved(connection, path, file)
            await connection.close()


async def _empty_wal_of_moved(connection: LogConnection, path: Path, file: int) -> None:
    """Write back the WAL of a moved file, which SQLite would leave for whatever file has taken its place."""
    try:
        check_in_place(path, file)
    except LogError:
        with suppress(sqlite3.Error):  # the writer reports the move in any case
            await connection.execute_fetchall("PRAGMA wal_checkpoint(TRUNCATE)")

"""A replica's disk: real files in a folder. Writes take simulated time, can fail, and are lost if the power fails."""

from __future__ import annotations

import random
import resource
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.simulation.loop import SimulatedLoop

LOG = "events.sqlite"
WAL = f"{LOG}-wal"
SECTOR = 512
"""Bytes that a disk writes atomically."""
PAGE = 4096
"""Bytes of a page of SQLite."""
OFF, NORMAL, FULL = range(3)
"""The values of SQLite's ``PRAGMA synchronous``: no sync; the WAL before a checkpoint; and also each commit."""
_NO_LIMIT = 1_073_741_823
"""The maximum number of pages of a database."""
_NEVER_FAIL = ("close", "close_and_stop")
"""Functions of SQLite that succeed whatever the disk's state is, because they end a connection."""

Image = dict[str, bytes]
"""The log's files on a disk, by name."""


@dataclass(eq=False)
class Drive:
    """The device of a replica's disks; it outlives the replica's programs.

    ``slow`` is added to the seconds of each write. ``capacity`` limits the bytes of the log's files together: as with a
    limit on file sizes, no write goes beyond it. ``pages`` limits the pages of the database: as on a device without
    free blocks, existing pages can be overwritten, and SQLite reports that the disk is full. None means no limit.
    ``fails`` returns, for each write, whether it fails "before" any part of it is done, "after" all of it, or "" for
    not at all.
    """

    slow: float = 0.0
    capacity: int | None = None
    pages: int | None = None
    fails: Callable[[], str] = field(default=lambda: "")
    statement: str = ""
    """The SQL of the current write, if it is a single statement."""
    plans: list[Callable[[bool], None]] = field(default_factory=list)
    """Functions that are called before each later write (with False) and after it (with True)."""

    damaged: bool = False
    """Whether an event of the log on the disk is unreadable."""

    def mend(self) -> None:
        """Remove all faults and planned functions."""
        self.plans.clear()
        self.make_room()
        self.slow, self.fails = 0.0, lambda: ""

    def make_room(self) -> None:
        """Remove the limits of size."""
        self.capacity = self.pages = None


@dataclass(eq=False)
class Disk:
    """The files of one incarnation of a replica. If ``gone``, its program has ended, and writes have no effect."""

    folder: Path
    drive: Drive = field(default_factory=Drive)
    gone: bool = False
    refused: bool = False
    """Whether a write failed, or exceeded a limit."""
    changed: frozenset[str] = frozenset()
    """The log's files that the disk itself changed. Illegal."""
    lacks: bool = False
    """Whether the disk lost a part of the log that it had reported as written. Illegal."""
    synced: Image | None = None
    """The files at the last sync, if they were written since; None if all of them is on the disk."""
    _writer: sqlite3.Connection | None = None
    """The program's open connection for writing."""
    _syncs: int = FULL
    """The value of ``PRAGMA synchronous``."""
    _limited: bool = False
    """Whether the database has a limit of pages."""

    @property
    def log(self) -> Path:
        """The path of the event log."""
        return self.folder / LOG

    def time_of_write(self, loop: SimulatedLoop) -> float:
        """Return the seconds that a write takes, mostly for the fsync of its transaction."""
        return 1e-4 + 0.002 * loop.rng.expovariate(1.0) + self.drive.slow

    def perform(self, function: Callable[[], Any]) -> Any:
        """Run a function of SQLite. Raises SQLite's errors if the disk is full or fails."""
        named, given = getattr(function, "func", function), getattr(function, "args", ())
        self.drive.statement = given[0] if given and isinstance(given[0], str) else ""
        self._tell(False)
        if self.gone:
            return None
        if getattr(named, "__name__", "") in _NEVER_FAIL:
            self._writer, fails = None, ""
        else:
            fails = self.drive.fails()
        self.refused |= bool(fails)
        if fails == "before":
            raise _io_error()
        result = self._done(function)
        self._tell(True)
        if fails == "after":
            raise _io_error()
        return result

    def _done(self, function: Callable[[], Any]) -> Any:
        self._limit()
        before = self.image() if self._syncs < FULL else None
        try:
            with self._bounded():
                result = function()
        except (sqlite3.Error, OSError):
            self.refused |= self.drive.capacity is not None or self.drive.pages is not None
            raise
        if isinstance(result, sqlite3.Connection):
            self._writer, self._syncs, self._limited = result, FULL, False
        self._note_syncs(before)
        return result

    def _limit(self) -> None:
        """Make SQLite find the disk full if ``pages`` is set."""
        limited = self.drive.pages is not None
        if self._writer is not None and (limited or self._limited):
            self._writer.execute(f"PRAGMA max_page_count = {self.drive.pages if limited else _NO_LIMIT}").fetchall()
            self._limited = limited

    def _note_syncs(self, before: Image | None) -> None:
        """Record what a write has certainly put on the disk. ``before`` are the files before it, if less may be
        certain."""
        if self._writer is not None and "synchronous" in self.drive.statement:
            (self._syncs,) = self._writer.execute("PRAGMA synchronous").fetchone()
        if self._syncs >= FULL:
            self.synced = None
        elif before is not None and (after := self.image()) != before:
            is_checkpoint = self._syncs == NORMAL and before.get(LOG) != after.get(LOG)
            self.synced = None if is_checkpoint else self.synced or before

    def _tell(self, done: bool) -> None:
        for plan in list(self.drive.plans):
            plan(done)

    # --- after the program's end --------------------------------------------------------------------------------------

    def after_crash(self, folder: Path) -> Disk:
        """Return the files after the program was killed: everything that it wrote."""
        folder.mkdir(parents=True)
        for file in self.folder.iterdir():
            # the index of the WAL only matters to processes that have it open
            if file.is_file() and not file.name.endswith("-shm"):
                shutil.copyfile(file, folder / file.name)
        return Disk(folder, self.drive, synced=self.synced)

    def image(self) -> Image:
        """Return the log's files as they are now."""
        return {name: (self.folder / name).read_bytes() for name in (LOG, WAL) if (self.folder / name).exists()}

    def after_power_loss(self, folder: Path, before: Image, rng: random.Random) -> Disk:
        """Return the files after a power failure during the last write; ``before`` are the files before it.

        SQLite syncs the WAL at each commit, before it copies any of it to the database. So either the WAL is torn, or
        the WAL is whole and the database is torn. SQLite syncs the database before it removes the WAL. Without these
        syncs, all that was written since the last sync is torn.
        """
        after, old = self.image(), before.get(WAL, b"")
        if self._syncs == OFF:
            since = self.synced or before
            left = {name: torn_amid(since.get(name, b""), after.get(name, b""), rng) for name in (LOG, WAL)}
            return self.with_image(folder, left)
        before = self.synced or before
        ends = len(after.get(WAL, b"")) < len(old)
        if ends or (before.get(LOG) != after.get(LOG) and rng.random() < 0.5):
            database = torn_amid(before.get(LOG, b""), after.get(LOG, b""), rng)
            left = {LOG: database, WAL: old if ends else after.get(WAL, b"")}
        else:
            left = {**before, WAL: torn_amid(before.get(WAL, b""), after.get(WAL, b""), rng)}
        return self.with_image(folder, left)

    def with_image(self, folder: Path, image: Image) -> Disk:
        """Return the folder's remaining files, with these files of the log."""
        made = self.after_crash(folder)
        made.synced = None
        for name in (LOG, WAL):
            (folder / name).unlink(missing_ok=True)
        for name, data in image.items():
            (folder / name).write_bytes(data)
        return made

    @contextmanager
    def _bounded(self) -> Iterator[None]:
        if self.drive.capacity is None:
            yield
            return
        sizes = {file.name: file.stat().st_size for file in self.folder.iterdir() if file.name in (LOG, WAL)}
        most = sizes.get(WAL, 0) + max(0, self.drive.capacity - sum(sizes.values()))
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


def torn_amid(before: bytes, after: bytes, rng: random.Random) -> bytes:
    """Return a file in which each changed sector is as before or as after, with a size between the two sizes."""
    size = rng.randint(min(len(before), len(after)), max(len(before), len(after)))
    left = bytearray(before.ljust(size, b"\0")[:size])
    for start in range(0, size, SECTOR):
        sector = slice(start, min(start + SECTOR, size))
        if after[sector] != before[sector] and rng.random() < 0.5:
            left[sector] = after[sector].ljust(sector.stop - start, b"\0")
    return bytes(left)


def _io_error() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
    return error

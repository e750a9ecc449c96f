"""A replica's disk: real files in a folder, whose writes take time, can fail, and are lost with the power."""

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
"""Bytes that a disk writes as one."""
PAGE = 4096
"""Bytes of a page of SQLite's."""
OFF, NORMAL, FULL = range(3)
"""What SQLite syncs (``PRAGMA synchronous``): nothing; the WAL before a checkpoint; with each commit, too."""
_NO_LIMIT = 1_073_741_823
"""Pages that a database may have."""
_NEVER_FAIL = ("close", "close_and_stop")
"""What SQLite does at the end succeeds, whatever the disk says of it."""

Image = dict[str, bytes]
"""The log's files that are on a disk, by name."""


@dataclass(eq=False)
class Drive:
    """The device that a replica's disks are on, whichever of its programs writes.

    ``slow`` is the seconds that each write takes longer. ``capacity`` is how many bytes the log's files may have
    together: as with a limit of a file's size, nothing is written beyond it. ``pages`` is how many of them the database
    may have: as where no block is left, what is there can be written over, and SQLite finds the disk full. None is for
    as many as they like. ``fails`` says of each write whether it fails "before" anything of it was done or "after" all
    of it was, or "" for not at all.
    """

    slow: float = 0.0
    capacity: int | None = None
    pages: int | None = None
    fails: Callable[[], str] = field(default=lambda: "")
    statement: str = ""
    """The SQL of the write that is being made, where it is a single statement."""
    plans: list[Callable[[bool], None]] = field(default_factory=list)
    """What is planned for writes to come: told of each before it is made (False) and after it (True)."""

    damaged: bool = False
    """Whether an event of the log that is on it cannot be read any more."""

    def mend(self) -> None:
        """Let it be as good as new, with nothing planned."""
        self.plans.clear()
        self.make_room()
        self.slow, self.fails = 0.0, lambda: ""

    def make_room(self) -> None:
        """Let the log grow as it likes."""
        self.capacity = self.pages = None


@dataclass(eq=False)
class Disk:
    """The files of one incarnation of a replica.

    One that is ``gone`` is written no more: its program was ended.
    """

    folder: Path
    drive: Drive = field(default_factory=Drive)
    gone: bool = False
    refused: bool = False
    """Whether it has failed a write, or had no room for one."""
    changed: frozenset[str] = frozenset()
    """The log's files in which a disk changed something by itself. Illegal."""
    lacks: bool = False
    """Whether a disk lost of the log what it said to be written. Illegal."""
    synced: Image | None = None
    """The files as the last sync left them, where they were written since; None where all of them is on the disk."""
    _writer: sqlite3.Connection | None = None
    """The connection by which the program writes, while it is open."""
    _syncs: int = FULL
    """Which syncs it makes."""
    _limited: bool = False
    """Whether it was told that its database may have no more than so many pages."""

    @property
    def log(self) -> Path:
        """The event log."""
        return self.folder / LOG

    def time_of_write(self, loop: SimulatedLoop) -> float:
        """Seconds that a write takes, mostly the fsync of its transaction."""
        return 1e-4 + 0.002 * loop.rng.expovariate(1.0) + self.drive.slow

    def perform(self, function: Callable[[], Any]) -> Any:
        """Let SQLite do what it was asked for. Raises what SQLite does where the disk is full or fails."""
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
        """Let SQLite find the disk full where it is."""
        limited = self.drive.pages is not None
        if self._writer is not None and (limited or self._limited):
            self._writer.execute(f"PRAGMA max_page_count = {self.drive.pages if limited else _NO_LIMIT}").fetchall()
            self._limited = limited

    def _note_syncs(self, before: Image | None) -> None:
        """Note what a write has put on the disk for sure; ``before`` is what there was, where it may be less than
        all."""
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

    # --- what is left of it -------------------------------------------------------------------------------------------

    def after_crash(self, folder: Path) -> Disk:
        """What is on the disk when the program was killed: all that it wrote."""
        folder.mkdir(parents=True)
        for file in self.folder.iterdir():
            if file.is_file() and not file.name.endswith("-shm"):  # the index of the WAL counts for who has it open
                shutil.copyfile(file, folder / file.name)
        return Disk(folder, self.drive, synced=self.synced)

    def image(self) -> Image:
        """The log's files as they are now."""
        return {name: (self.folder / name).read_bytes() for name in (LOG, WAL) if (self.folder / name).exists()}

    def after_power_loss(self, folder: Path, before: Image, rng: random.Random) -> Disk:
        """What is on the disk when the power was lost amid the last write, before which it was as ``before``.

        SQLite syncs the WAL with each commit, and before anything of it goes into the database: so either the WAL is
        torn, or it is whole and the database is. It syncs the database before the WAL goes. Where it does not, all is
        torn that was written since it last did.
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
        """What is left, with these files of the log."""
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
    """A file of which each sector that a write changed is as before or as after, and its size somewhere between."""
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

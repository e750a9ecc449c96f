"""A replica's disk: real files in a folder, whose writes take their time, fail, and are lost with the power."""

from __future__ import annotations

import random
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.simulation.loop import SimulatedLoop

LOG = "events.sqlite"


class PowerLost(BaseException):
    """The machine lost its power amid a write: the program is no more."""


@dataclass(eq=False)
class Disk:
    """The files of one incarnation of a replica.

    ``slow`` is the seconds that each write takes longer. ``room`` is how many bytes files may still grow, None for as
    many as they like. ``on_write`` is told of each write before it is made, and again after it.
    """

    folder: Path
    slow: float = 0.0
    room: int | None = None
    writes: int = 0
    on_write: Callable[[int, bool], None] = field(default=lambda number, done: None)

    @property
    def log(self) -> Path:
        """The event log."""
        return self.folder / LOG

    def time_of_write(self, loop: SimulatedLoop) -> float:
        """Seconds that a write takes, mostly the fsync of its transaction."""
        return 1e-4 + 0.002 * loop.rng.expovariate(1.0) + self.slow

    def perform(self, function: Callable[[], Any]) -> Any:
        """Let SQLite do what it was asked for. Raises what SQLite does where the disk is full."""
        self.writes += 1
        self.on_write(self.writes, False)
        with self._bounded():
            result = function()
        self.on_write(self.writes, True)
        return result

    def after_crash(self, folder: Path) -> Disk:
        """What is on the disk when the program was killed: all that it wrote."""
        folder.mkdir()
        for suffix in ("", "-wal"):
            file = self.folder / f"{LOG}{suffix}"
            if file.exists():
                shutil.copyfile(file, folder / file.name)
        return Disk(folder)

    def after_power_loss(self, folder: Path, before: int, rng: random.Random) -> Disk:
        """What is on the disk when the power was lost amid a write, before which the WAL had ``before`` bytes: each
        sector that was written since is there, or not."""
        made = self.after_crash(folder)
        wal = folder / f"{LOG}-wal"
        if wal.exists() and (size := wal.stat().st_size) > before:
            with wal.open("r+b") as file:
                for start in range(before, size, 512):
                    if rng.random() < 0.5:
                        file.seek(start)
                        file.write(bytes(min(512, size - start)))
                file.truncate(rng.randint(before, size))
        return made

    def wal_size(self) -> int:
        """Bytes of the write-ahead log."""
        wal = self.folder / f"{LOG}-wal"
        return wal.stat().st_size if wal.exists() else 0

    @contextmanager
    def _bounded(self) -> Iterator[None]:
        if self.room is None:
            yield
            return
        sizes = [file.stat().st_size for file in self.folder.iterdir() if file.name.startswith(LOG)]
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (max(sizes, default=0) + self.room, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

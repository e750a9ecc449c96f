"""How many files a daemon has open once all has come to rest: those of its log, and none beside it.

All programs are one process here, and those that were killed leave theirs open. A log is in a folder that one program
alone has (``Disk``); of other files it is noted who opened them (``machine.OPENED``).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation.machine import OPENED

if TYPE_CHECKING:
    from tests.simulation.replica import Machine
    from tests.simulation.simulation import Simulation

MOST = 14
"""Files of its log that a program has open at most: six by which it writes it (twice the database, by the lock and by
SQLite, and of who has read it a third that SQLite closes with them; its WAL, the WAL's index, the lock beside it), and
two (database and WAL) by each who reads it: two replicas that follow, the program itself, and who looks at it here."""
_OPEN = Path("/proc/self/fd")


class Handles:
    """Counts the files that are open, by the programs whose they are."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim

    def at_rest(self) -> None:
        """Look at each program that runs; at none where the system does not tell which files are open."""
        files = dict(_files())
        logs = {machine.disk.folder.resolve() for machine in self._sim.machines}
        for replica in self._sim.replicas:
            if replica.service is not None and replica.machine is not None:
                self._look(replica.machine, files, logs)

    def _look(self, machine: Machine, files: dict[int, Path], logs: set[Path]) -> None:
        folder = machine.disk.folder.resolve()
        own = [file.name for file in files.values() if file.parent == folder]
        if len(own) > MOST:
            self._violated(machine, f"{len(own)} of its log, as {max(own, key=own.count)}")
        beside = [file for number, file in files.items() if file.parent not in logs and OPENED.get(number) is machine]
        if beside:
            self._violated(machine, f"{len(beside)} beside its log, as {beside[0]}")

    def _violated(self, machine: Machine, what: str) -> None:
        self._sim.violated("files are closed", f"{machine.name} has open {what}")


def _files() -> list[tuple[int, Path]]:
    """The files that are open, by descriptor."""
    found = []
    for link in _OPEN.iterdir() if _OPEN.is_dir() else ():
        try:
            found.append((int(link.name), link.readlink()))
        except FileNotFoundError:  # that of the list itself
            continue
    return found

"""Logs in which a disk changed something by itself, or of which it lost what it said to be written.

A look through such a log finds it, or what is left is what was logged; and nobody goes on with anything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation.disk import WAL, Disk
from tests.simulation.invariants.logfiles import problem_of
from tests.simulation.replica import Machine, Replica
from vcd.eventlog import LogError, LogReader
from vcd.eventlog.log_file import prepare
from vcd.eventlog.log_reader import Checkpoint

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

_ALL = 1 << 40
Events = Mapping[int, object]
"""By number."""
Last = tuple[int, int]
"""The last event and the last session of a log."""


class Spoilt:
    """Looks at what each program finds that starts on such a disk, beside what the one before it had."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._replicas: dict[str, str] = {}
        """What is not as it was logged where a program would go on with it, empty for nothing; by replica."""
        self._machines: dict[str, str] = {}
        """The same by machine that starts with such a log."""
        self._of_log: dict[str, list[str]] = {}
        """The machines that wrote a replica's log, one after the other."""
        self._left: dict[str, Last] = {}
        """Up to where a disk kept what a machine logged."""
        self._changed: dict[str, int] = {}
        """The last event of a replica's log when a disk last changed something of it; only with a change."""

    def starts(self, replica: Replica, name: str, disk: Disk | None) -> None:
        """A machine of this name is about to start."""
        if disk is None or not disk.log.exists():
            self._replicas.pop(replica.name, None)
            self._changed.pop(replica.name, None)
            self._of_log[replica.name] = [name]
            return
        if disk.changed or disk.lacks:
            self._look(replica, name, disk)
        self._of_log[replica.name].append(name)
        if replica.name in self._replicas:
            self._machines[name] = self._replicas[replica.name]

    def serves(self, machine: Machine) -> None:
        """A machine goes on with what it found."""
        if what := self._machines.get(machine.name):
            self._sim.violated("a damaged log is refused", f"{machine.name} goes on with it: {what}")

    def is_on(self, machine: Machine) -> bool:
        """Whether a machine started with such a log."""
        return machine.name in self._machines

    def changed_until(self, machine: Machine) -> int:
        """The last event that may be another one in a machine's log than it was, where verification finds that; a
        program starts from the last checkpoint and does not read older events."""
        until = self._changed.get(machine.replica, 0)
        return until if until and problem_of(machine.disk.log) else 0

    def left_of(self, name: str) -> Last:
        """The last event and session of a machine that can be asked for."""
        return self._left.get(name, (_ALL, _ALL))

    def _look(self, replica: Replica, name: str, disk: Disk) -> None:
        """Look at a copy: who opens a log changes the files beside it."""
        log = disk.after_crash(self._sim.folder / f"{name}-as-found").log
        problem, had = _made(log) or problem_of(log), _tail(replica.kept[-1].disk.log)
        self._replicas.setdefault(replica.name, "")
        if disk.changed:
            self._changed[replica.name] = _last(log)[0]
        if had is None:
            return  # it was damaged before
        self._replicas[replica.name] = _gone_on_with(had, _tail(log))
        may_end = disk.lacks or WAL in disk.changed  # a WAL counts up to where it is whole
        if may_end:
            last = _last(log)
            for machine in self._of_log[replica.name]:
                self._left[machine] = min(self.left_of(machine), last)
        if not problem and (what := _other(_events(replica.kept[-1].disk.log), _events(log), may_end=may_end)):
            self._sim.violated("a damaged log is refused", f"{name}: it verifies, and {what}")


def _made(log: Path) -> str:
    """Make of a file what a program writes that starts with it; returns why it does not."""
    try:
        prepare(log)
    except LogError as error:
        return str(error)
    return ""


def _tail(log: Path) -> tuple[Checkpoint, Events] | None:
    """The state that a program goes on from, and the events after it; None where they cannot be read."""
    try:
        with LogReader(log) as reader:
            base = reader.base(reader.head())
            return base, {logged.sequence: logged for logged in reader.read(base.sequence)}
    except LogError:
        return None


def _last(log: Path) -> Last:
    """What a log ends with; nothing can be asked for of one that cannot be read."""
    try:
        with LogReader(log) as reader:
            return reader.head(), reader.last_session()
    except LogError:
        return 0, 0


def _events(log: Path) -> Events:
    """What the rows of events say, with their links."""
    with LogReader(log) as reader:
        rows = reader.rows("linked", after=0, until=_ALL, limit=_ALL)
        return {int(row[0]): (reader.parse_row(row[:-1])[0], row[-1]) for row in rows}


def _other(had: Events, has: Events, *, may_end: bool) -> str:
    """Which event is not the one that it was, or is not there; empty for none. What is older, retention took away."""
    for number, event in had.items():
        if number not in has and not (may_end and number > max(has, default=0)):
            return f"event {number} is not there"
        if has.get(number, event) != event:
            return f"event {number} is another one"
    return ""


def _gone_on_with(had: tuple[Checkpoint, Events], has: tuple[Checkpoint, Events] | None) -> str:
    """What is not as it was of the state and the events by which a program goes on."""
    if has is None:
        return "it cannot be read"
    (before, old), (now, new) = had, has
    if now.sequence == before.sequence and now.state != before.state:
        return f"the checkpoint at {now.sequence} is another one"
    return _other({number: event for number, event in old.items() if number > now.sequence}, new, may_end=True)

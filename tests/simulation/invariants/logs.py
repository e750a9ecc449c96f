"""The logs that a run leaves: sound, replayed byte for byte, and with all that was done in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation.disk import Disk
from tests.simulation.invariants.acknowledged import Acknowledged
from tests.simulation.invariants.folding import Folding
from tests.simulation.invariants.logfiles import operations_in, problem_of
from tests.simulation.invariants.onelog import is_one_log
from tests.simulation.invariants.spoilt import Spoilt
from tests.simulation.invariants.witness import Operation, Witness
from tests.simulation.replica import Machine, Replica
from vcd.daemon.service import SchedulerService

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


class Logs:
    """Looks at the files once all has come to rest."""

    def __init__(
        self,
        sim: Simulation,
        witness: Witness,
        done: Mapping[str, Sequence[tuple[Operation, int]]],
        acknowledged: Acknowledged,
    ) -> None:
        self._sim, self._done, self._acknowledged = sim, done, acknowledged
        self._anew: set[str] = set()
        """Incarnations that began without a log."""
        self._damaged: set[str] = set()
        """Those that began with one that cannot be read."""
        self.spoilt = Spoilt(sim)
        self._folding = Folding(sim)
        witness.services.append(self._served)
        for replica in sim.replicas:
            replica.start = partial(self._start, replica, replica.start)  # type: ignore[method-assign]

    def _start(self, replica: Replica, start: Callable[[Disk | None], None], disk: Disk | None = None) -> None:
        name = f"{replica.name}-{replica.starts + 1}"
        if disk is None or not disk.log.exists():
            self._anew.add(name)
        elif replica.drive.damaged:
            self._damaged.add(name)
        self.spoilt.starts(replica, name, disk)
        start(disk)

    def _served(self, machine: Machine, _: SchedulerService) -> None:
        if machine.name in self._damaged:
            self._sim.violated("a damaged log is refused", f"{machine.name} goes on with it")
        self.spoilt.serves(machine)

    def at_rest(self) -> None:
        """Hold each replica's last log, and those that were lost before, to what was done."""
        one_log = is_one_log(self._sim.script)  # of these ``onelog`` knows what is to hold
        for replica in self._sim.replicas:
            lineages = self._lineages(replica.kept)
            for machines in lineages:
                if machines[-1].service is None and self._is_not_made(machines[-1].disk.log):
                    continue
                log, damaged = machines[-1].disk.log, machines[-1].name in self._damaged
                if log.exists() and not damaged and self._is_sound(log, found=self.spoilt.is_on(machines[-1])):
                    if not one_log:
                        self._holds_what_was_done(log, machines)
                        self._acknowledged.is_in(log, machines, self.spoilt.left_of)
                    is_last = machines is lineages[-1]
                    runs = is_last and machines[-1].alive and (not one_log or _leads(machines[-1]))
                    self._folding.holds(log, replica.machine if runs else None)

    def _lineages(self, machines: Sequence[Machine]) -> list[list[Machine]]:
        """The incarnations of a replica, divided where one began without the log of the one before."""
        found: list[list[Machine]] = []
        for machine in machines:
            if not found or machine.name in self._anew:
                found.append([])
            found[-1].append(machine)
        return found

    def _is_not_made(self, log: Path) -> bool:
        """Whether a log that a machine was lost before it served with may be as an older vcd wrote it, or be without
        its first transaction."""
        return any(act.what == "age_log" for act in self._sim.script.acts) or _size_of(log) == 0

    def _is_sound(self, log: Path, *, found: bool = False) -> bool:
        """Whether a log is; ``found``: it is enough where it is found not to be."""
        if (problem := problem_of(log)) and not found:
            self._sim.violated("sound log", f"{log.parent.name}: {problem}")
        return not problem

    def _holds_what_was_done(self, log: Path, machines: Sequence[Machine]) -> None:
        done = [(machine.name, each) for machine in machines for each in self._done.get(machine.name, ())]
        if not done:
            return
        intended, first = operations_in(log)
        for name, (operation, session) in done:
            _, last = self.spoilt.left_of(name)
            if operation not in intended and first <= session <= last:  # what is older, retention took away
                self._sim.violated("logged for good", f"{name}: {operation} is not in {log.parent.name}")


def _size_of(log: Path) -> int:
    return sum(each.stat().st_size for each in (log, log.with_name(f"{log.name}-wal")) if each.exists())


def _leads(machine: Machine) -> bool:
    return machine.service is not None and machine.service.terms.leads()

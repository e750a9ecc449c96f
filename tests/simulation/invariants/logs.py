"""The logs that a run leaves: sound, replayed byte for byte, merged, and with all that was done in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation.disk import Disk
from tests.simulation.invariants.decisions import operations_of
from tests.simulation.replica import Machine, Replica
from vcd.eventlog import LogError, LogReader, import_logs
from vcd.model import events as ev
from vcd.timetravel.logfile import verify
from vcd.timetravel.replay import replay

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

Operation = tuple[str, str, str, str]
ROTTEN = ("flip_bits", "lose_syncs")
"""What makes of a disk one that keeps nothing for sure: nothing can be asked of it."""


class Logs:
    """Looks at the files once all has come to rest."""

    def __init__(self, sim: Simulation, done: Mapping[str, Sequence[tuple[Operation, int]]]) -> None:
        self._sim, self._done = sim, done
        self._anew: set[str] = set()
        """Incarnations that began without a log."""
        for replica in sim.replicas:
            replica.start = partial(self._start, replica, replica.start)  # type: ignore[method-assign]

    def _start(self, replica: Replica, start: Callable[[Disk | None], None], disk: Disk | None = None) -> None:
        if disk is None or not disk.log.exists():
            self._anew.add(f"{replica.name}-{replica.starts + 1}")
        start(disk)

    def at_rest(self) -> None:
        """Hold each replica's last log, and those that were lost before, to what was done; then all together."""
        merged: list[Path] = []
        for replica in self._sim.replicas:
            if any(replica.road.affected[act] for act in ROTTEN):
                continue
            lineages = self._lineages(replica.kept)
            for machines in lineages:
                if (log := machines[-1].disk.log).exists() and self._is_sound(log):
                    self._holds_what_was_done(log, machines)
                    if _has_sessions(log) and machines is lineages[-1]:
                        merged.append(log)
        if merged:
            self._merge(merged)

    def _lineages(self, machines: Sequence[Machine]) -> list[list[Machine]]:
        """The incarnations of a replica, divided where one began without the log of the one before."""
        found: list[list[Machine]] = []
        for machine in machines:
            if not found or machine.name in self._anew:
                found.append([])
            found[-1].append(machine)
        return found

    def _is_sound(self, log: Path) -> bool:
        try:
            problems = verify(log).problems
        except LogError as error:
            problems = [str(error)]
        if problems:
            self._sim.violated("sound log", f"{log.parent.name}: {problems[0]}")
        return not problems

    def _holds_what_was_done(self, log: Path, machines: Sequence[Machine]) -> None:
        done = [(machine.name, each) for machine in machines for each in self._done.get(machine.name, ())]
        if not done:
            return
        with LogReader(log) as reader:
            events = [logged.event for logged in reader.find(type="session")]
            whole, last = reader.oldest() == 0, reader.last_session()
        sessions = [event for event in events if isinstance(event, ev.SessionDecided)]
        first = 0 if whole else min((event.session for event in sessions), default=last + 1)
        intended = {operation for event in sessions for operation in operations_of(event)}
        for name, (operation, session) in done:
            if operation not in intended and session >= first:  # what is older, retention took away
                self._sim.violated("logged for good", f"{name}: {operation} is not in {log.parent.name}")

    def _merge(self, logs: Sequence[Path]) -> None:
        """Every session of every replica is in the merged log, and is decided again there."""
        out = self._sim.folder / "merged.sqlite"
        try:
            import_logs(logs, out)
        except LogError as error:
            self._sim.violated("logs merge", str(error))
            return
        if self._is_sound(out):
            for one in replay(out):
                if one.difference:
                    self._sim.violated("replay", f"session {one.session}: {one.difference}")


def _has_sessions(log: Path) -> bool:
    with LogReader(log) as reader:
        return any(True for _ in reader.sessions(limit=1))

"""What a daemon was told to be logged is in its log for good, whatever happened to its program and its machine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation.invariants.witness import Witness
from tests.simulation.replica import Machine
from vcd.daemon.service import SchedulerService
from vcd.eventlog import LogReader
from vcd.model import events as ev

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


class Acknowledged:
    """Remembers each event that a daemon folded, by the number that its log gave it."""

    def __init__(self, sim: Simulation, witness: Witness) -> None:
        self._sim = sim
        self._events: dict[str, dict[int, ev.Event]] = defaultdict(dict)
        """By the name of the machine."""
        witness.services.append(self._watch)

    def _watch(self, machine: Machine, service: SchedulerService) -> None:
        if service.replica is not None:
            return  # what a leader of one log wrote, and nobody else had, goes with it
        kept, state = self._events[machine.name], service.state_writer.state

        def folded(event: ev.Event) -> None:
            kept[state.sequence] = event

        service.state_writer.observers.append(folded)

    def is_in(self, log: Path, machines: Sequence[Machine], left_of: Callable[[str], tuple[int, int]]) -> None:
        """Hold a log to what the machines were told that wrote it one after the other; ``left_of`` gives the last event
        of a machine that its disk kept."""
        with LogReader(log) as reader:
            first = reader.first() or reader.head() + 1
            logged = {one.sequence: one.event for one in reader.read()}
        for machine in machines:
            for sequence, event in self._events[machine.name].items():
                # what is older, retention took away
                if first <= sequence <= left_of(machine.name)[0] and logged.get(sequence) != event:
                    is_there = "another one" if sequence in logged else "not there"
                    what = f"{machine.name}: event {sequence} is {is_there} in {log.parent.name}: {_named(event)}"
                    self._sim.violated("logged for good", what)
                    return


def _named(event: ev.Event) -> str:
    return " ".join([type(event).__name__, *(str(getattr(event, name, "")) for name in ("kind", "key", "session"))])

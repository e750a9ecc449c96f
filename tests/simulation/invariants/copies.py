"""Logs while they grow: nothing is folded before it is on the disk; and of replicas of one log, a copy is the leader's,
and is said to be there when it is on the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.invariants.witness import Witness
from tests.simulation.replica import Machine
from tests.simulation.socket import End
from vcd.daemon.replicas import replica_protocol
from vcd.daemon.service import SchedulerService
from vcd.eventlog import LogReader
from vcd.model import events as ev

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


class Copies:
    """Looks at each word of a follower on how far it is, and at each event that a daemon folds."""

    def __init__(self, sim: Simulation, witness: Witness) -> None:
        self._sim = sim
        self._same: dict[End, int] = {}
        """Up to which event a follower was found to have the same as whom it follows, by its end of the connection."""
        sim.peers.sent.append(self._said)
        witness.services.append(self._watch)

    def _said(self, end: End, data: bytes) -> None:
        if not end.dialled:
            return
        said = replica_protocol.from_follower(data)
        if isinstance(said, replica_protocol.Follow):
            self._same[end] = said.after or 0
            if end.machine.version != end.other.machine.version:
                self._sim.violated("of one version", f"{end.machine.name} follows {end.other.machine.name}")
        elif isinstance(said, replica_protocol.Have) and said.sequence > self._same.get(end, 0):
            self._compare(end.machine, end.other.machine, self._same.get(end, 0), said.sequence)
            self._same[end] = said.sequence

    def _compare(self, follower: Machine, leader: Machine, after: int, until: int) -> None:
        """Hold what a follower has to the log that it follows; retention may have taken the beginning of either."""
        here, there = contents(follower, after, until), contents(leader, after, until)
        missing = [sequence for sequence in range(after + 1, until + 1) if sequence not in here]
        if missing and missing[-1] >= max(here, default=0):
            self._sim.violated(
                "said when it is durable", f"{follower.name} says {until}, and {missing[-1]} is not there"
            )
        for sequence in sorted(here.keys() & there.keys()):
            if here[sequence] != there[sequence]:
                what = f"{follower.name} has another event {sequence} than {leader.name}"
                self._sim.violated("a copy is the leader's log", what)
                return

    def _watch(self, machine: Machine, service: SchedulerService) -> None:
        state_writer = service.state_writer

        def folded(event: ev.Event) -> None:
            if state_writer.state.sequence > state_writer.log.head:
                what = f"{machine.name} folds {state_writer.state.sequence}, and {state_writer.log.head} is durable"
                self._sim.violated("log first", what)

        state_writer.observers.append(folded)


def head(machine: Machine) -> int:
    """The last event that is in a machine's log now."""
    if not machine.disk.log.exists():
        return 0
    with LogReader(machine.disk.log) as reader:
        return reader.head()


def end(machine: Machine) -> tuple[int, bytes | None]:
    """The last event that a machine's log was told of, with its link, also where retention left none."""
    if not machine.disk.log.exists():
        return 0, None
    with LogReader(machine.disk.log) as reader:
        return reader.head(), reader.link(reader.head())


def contents(machine: Machine, after: int, until: int) -> dict[int, tuple[object, ...]]:
    """What is in a machine's log now, by number: the events with their links."""
    if not machine.disk.log.exists():
        return {}
    with LogReader(machine.disk.log) as reader:
        rows = reader.rows("linked", after=after, until=until, limit=until - after)
        return {int(row[0]): (reader.parse_row(row[:-1])[0], row[-1]) for row in rows}

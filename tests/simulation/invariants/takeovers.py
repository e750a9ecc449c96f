"""Who leads next has what any other replica had that it could ask, before it writes."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tests.simulation.invariants.copies import contents, head
from tests.simulation.invariants.witness import Witness
from tests.simulation.replica import Machine
from tests.simulation.socket import End
from vcd.daemon.replicas import replica_protocol
from vcd.daemon.service import SchedulerService
from vcd.model import events as ev

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

_ENOUGH = 4.0
"""Seconds that a connection lasts at most over which all came that was asked for, rather than it took too long."""


class Takeovers:
    """Looks at whom replicas know, at whom they ask, and at what they log when they begin to lead."""

    def __init__(self, sim: Simulation, witness: Witness) -> None:
        self._sim = sim
        self._knows: dict[str, dict[str, str]] = defaultdict(dict)
        """The other replicas that a machine knows, and where they are, by its name."""
        self._tried: dict[str, dict[str, float]] = defaultdict(dict)
        """Where a machine tried to reach others, and when last."""
        self._heard_at: dict[str, float] = {}
        """When a machine last heard who leads."""
        self._leader: dict[str, tuple[str, str]] = {}
        """Whom a machine followed last, and where that is."""
        self._asked: dict[End, int] = {}
        """Connections to others that are asked for what they have, and where their logs ended then."""
        sim.peers.read.append(self._read)
        sim.peers.sent.append(self._said)
        sim.peers.tried.append(self._try)
        witness.services.append(self._watch)

    def _try(self, machine: Machine, url: str) -> None:
        self._tried[machine.name][url] = self._sim.loop.time()

    def _said(self, end: End, data: bytes) -> None:
        said = replica_protocol.from_follower(data) if end.dialled else None
        if isinstance(said, replica_protocol.Hello) and not said.address:
            self._asked[end] = head(end.other.machine)

    def _read(self, end: End, data: bytes) -> None:
        said = replica_protocol.from_leader(data) if end.dialled and end not in self._asked else None
        if isinstance(said, replica_protocol.LogEnd):
            self._leader[end.machine.name] = end.other.machine.name, end.url
            peers = {each.name: each.address.partition("#")[0] for each in said.peers}
            self._knows[end.machine.name] = {k: v for k, v in peers.items() if k != end.machine.name}
            self._heard_at[end.machine.name] = self._sim.loop.time()

    def _watch(self, machine: Machine, service: SchedulerService) -> None:
        self._knows.pop(machine.name, None)
        self._leader.pop(machine.name, None)
        state = service.state_writer.state

        def folded(event: ev.Event) -> None:
            mine = isinstance(event, ev.LeadershipChanged) and event.leading and event.identity == machine.name
            if mine and service.terms.elector.is_leader():
                self._begins(machine, state.sequence)

        if service.replica is not None:
            service.state_writer.observers.append(folded)

    def _begins(self, machine: Machine, sequence: int) -> None:
        """A machine leads, and says so by this event: the first that it logs."""
        since, tried = self._heard_at.get(machine.name, 0.0), self._tried[machine.name]
        known = dict(self._knows.get(machine.name, {}))
        leader, where = self._leader.get(machine.name, ("", ""))
        if where and not known and all(at < since for url, at in tried.items() if url != where):
            known[leader] = where  # and it did not try to follow another one since
        for name, url in known.items():
            if tried.get(url, -1.0) < since:
                self._sim.violated("what others have is taken over", f"{machine.name} does not ask {name}")
        for end, ended in self._asked.items():
            lasted = (end.ended_at or self._sim.loop.time()) - end.began_at
            is_done = end.machine is machine and end.began_at >= since and end.left and lasted < _ENOUGH
            if is_done and ended >= sequence:
                self._has_all_of(machine, end.other.machine, sequence)

    def _has_all_of(self, machine: Machine, other: Machine, sequence: int) -> None:
        """Where another log goes on where this one went on by its leader's own doing, it was to be taken over."""
        here, there = contents(machine, sequence - 2, sequence), contents(other, sequence - 2, sequence)
        same = here.get(sequence - 1) is not None and here.get(sequence - 1) == there.get(sequence - 1)
        if same and sequence in there and there[sequence] != here.get(sequence):
            what = f"{machine.name} leads from event {sequence} on, which {other.name} had before"
            self._sim.violated("what others have is taken over", what)

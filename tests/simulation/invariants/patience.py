"""What is decided is elsewhere before it is done, and nobody is waited for too long."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.invariants.decisions import operations_of
from tests.simulation.invariants.witness import Call, Operation, Witness
from tests.simulation.replica import Machine
from tests.simulation.socket import End
from vcd.daemon.replicas import replica_protocol
from vcd.daemon.service import SchedulerService
from vcd.eventlog import LogError, LogReader
from vcd.model import events as ev

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

PATIENCE, PAUSE = 1.0, 2.0
"""Seconds that a decision waits for a follower, and for which one that was late is not waited for
(docs/operations/high-availability.md)."""
_A_LITTLE = 0.05
_LOOKS = 4


@dataclass(eq=False)
class _Copy:
    """A follower, as who is followed sees it. ``told``, ``has``: where the log ends, as it was told and says."""

    is_replica: bool = False
    told: int = -1
    has: int = 0
    keeps_up: bool = False
    """Whether it had all that it was told of; one that was late once does not count any more."""
    was_late: bool = False
    awaited: dict[int, float] = field(default_factory=dict)
    """Events of sessions that it does not have yet, and since when they are in the log."""

    def look(self, now: float) -> None:
        """See whether it is late."""
        self.was_late |= any(now - since >= PATIENCE - _A_LITTLE for since in self.awaited.values())


@dataclass(eq=False)
class _Decided:
    """A session that was logged: when, as which event, and who kept up then."""

    at: float
    sequence: int
    event: ev.SessionDecided
    kept_up: list[End]


class Patience:
    """Looks at what replicas say to each other, at sessions as they are logged, and at calls. ``elsewhere`` has, for
    each bind or eviction of a machine, the replicas that had its session when it was made."""

    def __init__(self, sim: Simulation, witness: Witness) -> None:
        self._sim = sim
        self._copies: dict[End, _Copy] = defaultdict(_Copy)
        self._decided: dict[tuple[str, Operation], _Decided] = {}
        self._late: dict[str, float] = {}
        """When a decision of a machine was not waited for any longer, while the same follow it in one term."""
        self._welcomed: dict[str, int] = defaultdict(int)
        self.elsewhere: dict[tuple[str, Operation], set[str]] = {}
        sim.peers.sent.append(self._said)
        sim.peers.read.append(self._heard)
        witness.services.append(self._watch)
        witness.calls.append(self._called)

    # --- who keeps up -------------------------------------------------------------------------------------------------

    def _said(self, end: End, data: bytes) -> None:
        if end.dialled:
            return
        said = replica_protocol.from_leader(data)
        if isinstance(said, replica_protocol.LogEnd):
            self._copies[end].told = said.sequence
        elif isinstance(said, replica_protocol.Welcome):
            self._late.pop(end.machine.name, None)
            self._welcomed[end.machine.name] += 1

    def _heard(self, end: End, data: bytes) -> None:
        if end.dialled:
            return
        said, now = replica_protocol.from_follower(data), self._sim.loop.time()
        copy = self._copies[end]
        if isinstance(said, replica_protocol.Hello):
            copy.is_replica = bool(said.address)
        if isinstance(said, replica_protocol.Have):
            copy.look(now)
            copy.has = max(copy.has, said.sequence)
            copy.keeps_up |= copy.is_replica and 0 <= copy.told <= copy.has
            copy.awaited = {each: since for each, since in copy.awaited.items() if each > copy.has}

    def _watch(self, machine: Machine, service: SchedulerService) -> None:
        if service.replica is None:
            return
        state = service.state_writer.state

        def folded(event: ev.Event) -> None:
            if isinstance(event, ev.SessionDecided) and service.terms.leads():
                self._session(machine, event, state.sequence)
            elif isinstance(event, ev.LeadershipChanged) and event.identity == machine.name and event.leading:
                self._late.pop(machine.name, None)  # who takes the lead waits for who followed the one before

        service.state_writer.observers.append(folded)
        service.replica.have_all = self._watched(machine, service.replica.have_all)  # type: ignore[method-assign]

    def _session(self, machine: Machine, event: ev.SessionDecided, sequence: int) -> None:
        now, kept_up = self._sim.loop.time(), []
        for end, copy in self._copies.items():
            if end.machine is machine and end.lives:
                copy.look(now)
                if copy.keeps_up and not copy.was_late:
                    kept_up.append(end)
                copy.awaited[sequence] = now
        for operation in operations_of(event):
            self._decided[machine.name, operation] = _Decided(now, sequence, event, kept_up)

    # --- before it is done --------------------------------------------------------------------------------------------

    def _called(self, call: Call) -> None:
        if call.operation is None:
            return
        key = call.machine.name, call.operation
        decided = self._decided.get(key)
        if decided is None or key in self.elsewhere:
            return
        self.elsewhere[key] = self._who_has(call, decided.event)
        if any(self._copies[end].has >= decided.sequence for end in decided.kept_up):
            return  # who said so may have lost its disk since
        waits = [end for end in decided.kept_up if end.lives and not self._is_late(end)]
        waited = self._sim.loop.time() - decided.at
        if waits and not self.elsewhere[key] and waited < PATIENCE - _A_LITTLE:
            names = [end.other.machine.name for end in waits]
            what = f"{call}: {names} keep up, and have not session {decided.event.session}"
            self._sim.violated("elsewhere before it is done", what)

    def _is_late(self, end: End) -> bool:
        self._copies[end].look(self._sim.loop.time())
        return self._copies[end].was_late

    def _who_has(self, call: Call, event: ev.SessionDecided) -> set[str]:
        """The other replicas that have a session of this one on their disks."""
        others = [each.machine for each in self._sim.replicas if each.machine and each.name != call.machine.replica]
        return {each.replica for each in others if _logged(each, event.session) == event}

    # --- not too long -------------------------------------------------------------------------------------------------

    def _watched(
        self, machine: Machine, have_all: Callable[[int | None], Awaitable[bool]]
    ) -> Callable[[int | None], Awaitable[bool]]:
        async def watched(sequence: int | None = None) -> bool:
            began, name = self._sim.loop.time(), machine.name
            since, welcomed = self._late.get(name), self._welcomed[name]
            followed = sum(end.machine is machine and end.lives for end in self._copies)
            is_passed_over = since is not None and began - since < PAUSE - _A_LITTLE and followed == 1
            ended: list[bool] = []
            self._look(machine, ended, _A_LITTLE if is_passed_over else PATIENCE + _A_LITTLE)
            try:
                had = await have_all(sequence)
            finally:
                ended.append(True)
            waited = self._sim.loop.time() - began
            if not had and waited >= PATIENCE - _A_LITTLE and not machine.stopped and welcomed == self._welcomed[name]:
                self._late[name] = self._sim.loop.time()
            return had

        return watched

    def _look(self, machine: Machine, ended: list[bool], most: float) -> None:
        """Look a few times, since a machine that stood still is not late."""
        began, seen, world = self._sim.loop.time(), 0, self._sim.loop.world.context()

        def look() -> None:
            nonlocal seen
            if ended or not machine.alive:
                return
            seen = 0 if machine.stopped else seen + 1
            if seen < _LOOKS:
                self._sim.loop.call_later(_A_LITTLE, look, context=world)
            else:
                what = f"{machine.name} waits for followers since {began:.3f} s"
                self._sim.violated("nobody is waited for too long", what)

        self._sim.loop.call_later(most, look, context=world)


def _logged(machine: Machine, session: int) -> ev.SessionDecided | None:
    try:
        with LogReader(machine.disk.log) as reader:
            return reader.session(session) if any(reader.sessions(session, session)) else None
    except LogError:  # it is not made yet
        return None

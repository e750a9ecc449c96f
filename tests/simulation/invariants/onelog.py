"""Replicas of one log, once all has come to rest: all have the same, and no session whose calls were made is lost."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation.invariants.copies import contents, end
from tests.simulation.invariants.logfiles import differences, operations_in, problem_of
from tests.simulation.invariants.patience import Patience
from tests.simulation.invariants.spoilt import Spoilt
from tests.simulation.invariants.takeovers import Takeovers
from tests.simulation.invariants.witness import Operation, Witness
from tests.simulation.replica import Machine
from vcd.daemon import process
from vcd.daemon.replicas.log_divergence import rewind_and_preserve
from vcd.daemon.service import SchedulerService
from vcd.eventlog import LogReader

if TYPE_CHECKING:
    from tests.simulation.script import Script
    from tests.simulation.simulation import Simulation

APART = "events-apart-*.sqlite"
DAMAGES = ("flip_bits", "lose_syncs", "damage_event")
"""What damages a replica's log in place."""
LOSES = ("lose_disk", *DAMAGES)
"""What takes a replica's log away."""
PARTS = (*LOSES, "age_log")
"""What makes it another than that of the others: what an older vcd wrote has no chain, and can be no copy."""
_LOOKS, _LATE = 20, 70.0
"""Seconds in which replicas have to agree that nothing disturbed for long, and after which none is passed over that was
late once (``follower_registry.LONGEST``)."""


def is_one_log(script: Script) -> bool:
    """Whether the replicas of a run have one log."""
    return "replicas-address" in script.flags


class OneLog:
    """Looks at the logs, and at who follows whom. ``done`` has binds and evictions by machine."""

    def __init__(
        self, sim: Simulation, witness: Witness, done: Mapping[str, Sequence[tuple[Operation, int]]], spoilt: Spoilt
    ) -> None:
        self._sim, self._done, self._spoilt = sim, done, spoilt
        self._apart: dict[Path, tuple[set[Operation], int]] = {}
        """What is in logs that were kept beside, and the first session that retention left in them."""
        self._left: dict[str, int] = defaultdict(int)
        """The first session that retention had left in a log that went back, by replica."""
        Takeovers(sim, witness)
        self._patience = Patience(sim, witness)
        process.rewind_and_preserve = self._watched  # type: ignore[attr-defined]
        witness.services.append(lambda machine, _: self._collect(machine))

    async def at_rest(self) -> None:
        """All of it."""
        services = [each.service for each in self._sim.replicas if each.service is not None]
        leaders = [each for each in services if each.terms.leads()]
        if len(leaders) != 1 or len(services) != len(self._sim.replicas):
            return  # which is told elsewhere
        if not await self._agree(leaders[0], services):
            return
        for machine in self._sim.machines:
            self._collect(machine)
        leader = next(each.machine for each in self._sim.replicas if each.service is leaders[0])
        assert leader is not None
        if self._all_have_the_same(leader) and not self._spoilt.changed_until(leader):
            self._replays(leader.disk.log)
            self._holds_what_was_done(leader.disk.log)

    # --- all have the same --------------------------------------------------------------------------------------------

    async def _agree(self, leader: SchedulerService, services: Sequence[SchedulerService]) -> bool:
        problem = ""
        for _ in range(_LOOKS):
            problem = self._disagreement(leader, services)
            if not problem:
                return True
            await asyncio.sleep(1.0)
        self._sim.violated("all have one log", problem)
        return False

    def _disagreement(self, leader: SchedulerService, services: Sequence[SchedulerService]) -> str:
        """What is not as it should be; empty if nothing is."""
        name, sequence = leader.terms.elector.identity, leader.state_writer.state.sequence
        dump = leader.state_writer.state.dump()
        for service in services:
            replica, identity = service.replica, service.terms.elector.identity
            assert replica is not None
            if service is not leader:
                if replica.follower.leader != name:
                    return f"{identity} follows {replica.follower.leader!r}, and {name} leads"
                if why := service.ready():
                    return f"{identity} is not ready: {why}"
            if service.state_writer.log.head != sequence or service.state_writer.state.sequence != sequence:
                at = f"{service.state_writer.state.sequence} of {service.state_writer.log.head}"
                return f"{identity} has {at}, and {name} {sequence}"
            if service.state_writer.state.dump() != dump:
                return f"{identity} has another state than {name}"
        assert leader.replica is not None
        connected = leader.replica.followers.connected
        now = leader.clock.monotonic()
        for one in connected:
            if not one.keeps_up and now - one._late_at > _LATE:
                return f"{one.name} does not keep up with {name}"
        return "" if len(connected) == len(services) - 1 else f"{len(connected)} follow {name}"

    def _all_have_the_same(self, leader: Machine) -> bool:
        there = contents(leader, self._spoilt.changed_until(leader), 1 << 40)
        for replica in self._sim.replicas:
            machine = replica.machine
            assert machine is not None
            here = contents(machine, self._spoilt.changed_until(machine), 1 << 40)
            other = [each for each in sorted(here.keys() & there.keys()) if here[each] != there[each]]
            if other or end(machine) != end(leader):  # each keeps as much history as its file has room for
                what = f"{machine.name} has another event {other[:1]} than {leader.name}, or another end"
                self._sim.violated("all have one log", what)
                return False
        return True

    def _replays(self, log: Path) -> None:
        with LogReader(log) as reader:
            decided = reader.sessions_with_state()  # retention may have taken all away
        for difference in differences(log) if decided else ():
            self._sim.violated("replay", difference)

    # --- nothing is lost ----------------------------------------------------------------------------------------------

    def _watched(self, path: Path, to: int | None) -> Path | None:
        """Let a log go back; what its replica did is in it afterwards, or in one beside it."""
        name = path.parent.name.partition("-")[0]
        names = [machine.name for machine in self._sim.machines if machine.replica == name]
        held, first = operations_in(path)
        done = {operation for each in names for operation, _ in self._done.get(each, ())} & held
        self._left[name] = max(self._left[name], first)
        aside = rewind_and_preserve(path, to)
        for log in (path, aside):
            if log is not None and log.exists():
                done -= operations_in(log)[0]
        for operation in sorted(done):
            self._sim.violated(
                "nothing decided is lost", f"{name}: {operation} is gone since its log went back to {to}"
            )
        return aside

    def _collect(self, machine: Machine) -> None:
        """Read the logs that a machine keeps beside its own: the oldest of them go. One that a disk damaged is set
        aside as it is."""
        is_damaged = machine.replica in self._affected_by(DAMAGES)
        for file in sorted(machine.disk.folder.glob(APART)):
            if file not in self._apart:
                problem = problem_of(file)
                if problem and not is_damaged:
                    self._sim.violated("sound log", f"{machine.name}, {file.name}: {problem}")
                self._apart[file] = (set(), 0) if problem else operations_in(file)

    def _holds_what_was_done(self, log: Path) -> None:
        known, first = operations_in(log)
        apart: dict[str, set[Operation]] = defaultdict(set)
        oldest = self._left.copy()
        for file, (operations, begins) in self._apart.items():
            name = file.parent.name.partition("-")[0]
            apart[name] |= operations
            oldest[name] = max(oldest[name], begins)
        lost = self._affected_by(LOSES)
        is_another = bool(self._affected_by(PARTS))
        everybody = {each.name for each in self._sim.replicas}
        for machine in self._sim.machines:
            for operation, session in self._done.get(machine.name, ()):
                if operation in known or not session or session < max(first, oldest[machine.replica]):
                    continue  # what is older, retention took away
                elsewhere = self._patience.elsewhere.get((machine.name, operation), set())
                has = f"{machine.name}: {operation} of session {session}"
                kept = session >= max(oldest.values())  # else retention took it away from somebody who led next
                if kept and not is_another and elsewhere | {machine.replica} == everybody:
                    self._sim.violated("known to who leads next", f"{has} is not in the log that all have")
                elif machine.replica not in lost and operation not in apart[machine.replica]:
                    self._sim.violated("nothing decided is lost", f"{has} is in no log of its replica")

    def _affected_by(self, acts: Sequence[str]) -> set[str]:
        """The replicas to which one of these faults happened."""
        return {each.name for each in self._sim.replicas if any(each.road.affected[act] for act in acts)}

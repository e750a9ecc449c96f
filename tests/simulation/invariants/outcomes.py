"""What a log says became of a bind or an eviction is what the server did."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tests.simulation import illegal
from tests.simulation.invariants.witness import Call, Operation, Witness
from tests.simulation.replica import Machine
from tests.simulation.script import Act
from vcd.daemon.service import SchedulerService
from vcd.model import events as ev

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

Obj = dict[str, Any]
_REFUSED = ("failed", "conflict")


class Outcomes:
    """Looks at each outcome as it is logged: done is what the server shows, and refused is what it never did."""

    def __init__(self, sim: Simulation, witness: Witness) -> None:
        self._sim = sim
        self._intended: dict[tuple[str, int, int, int], tuple[Operation, float]] = {}
        """Operations, and when they were logged, by replica, session, statement and their place in it."""
        self._carried_out: dict[tuple[str, Operation], float] = {}
        """When the server last did what a replica asked for."""
        self._bound: set[tuple[str, str]] = set()
        """UIDs of pods, and the nodes that they were ever on."""
        self._ended: set[str] = set()
        """UIDs of pods that were ever told to end, or went."""
        self._until = min((_from(act) for act in sim.script.acts if act.what in illegal.ACTS), default=math.inf)
        """From when on a server that forgets what it did, or tells of it wrongly, makes a liar of everyone."""
        witness.services.append(self._watch)
        witness.calls.append(self._called)
        sim.store.subscribe(["pods"], self._pod)

    def _watch(self, machine: Machine, service: SchedulerService) -> None:
        replica = machine.name.partition("-")[0]
        self._keep_pending(replica, service)

        def folded(event: ev.Event) -> None:
            if isinstance(event, ev.SessionDecided):
                self._decided(replica, event)
            elif isinstance(event, ev.OperationDone):
                self._outcome(replica, machine.name, event)

        service.state_writer.observers.append(folded)

    def _keep_pending(self, replica: str, service: SchedulerService) -> None:
        """A program begins: of what its replica intended before, that counts which its log still waits for. Sessions of
        a log that it gave up may have the numbers of others."""
        pending = {
            (replica, each.session, each.statement, each.operation): (key, each.uid)
            for key, each in service.state_writer.state.intents.items()
        }
        self._intended = {
            place: known
            for place, known in self._intended.items()
            if place[0] != replica or pending.get(place) == known[0][1:3]
        }

    def _decided(self, replica: str, event: ev.SessionDecided) -> None:
        now = self._sim.loop.time()
        for number, statement in enumerate(ev.decode_plan(event.plan).statements):
            for place, each in enumerate(statement.operations):
                operation = (each.verb, each.key, each.uid, each.node if each.verb == "bind" else "")
                self._intended[replica, event.session, number, place] = operation, now

    def _called(self, call: Call) -> None:
        if call.operation is not None:
            self._carried_out[call.machine.name.partition("-")[0], call.operation] = self._sim.loop.time()

    def _pod(self, event: str, _: str, obj: Obj) -> None:
        uid, node = obj["metadata"]["uid"], obj["spec"].get("nodeName")
        if node:
            self._bound.add((uid, node))
        if event == "DELETED" or obj["metadata"].get("deletionTimestamp"):
            self._ended.add(uid)

    def _outcome(self, replica: str, name: str, event: ev.OperationDone) -> None:
        known = self._intended.get((replica, event.session, event.statement, event.operation))
        if self._sim.loop.time() >= self._until or known is None or known[0][0] not in ("bind", "evict"):
            return
        operation, since = known
        verb, key, uid, node = operation
        if event.result == "done" and not ((uid, node) in self._bound if verb == "bind" else uid in self._ended):
            self._sim.violated("outcomes are true", f"{name}: {verb} of {key} {uid} is done, and was not")
        done = self._carried_out.get((replica, operation), -1.0)
        if event.result in _REFUSED and since <= done < self._decided_anew(replica, operation, event.session):
            self._sim.violated("outcomes are true", f"{name}: {verb} of {key} {uid} {event.result}, and was done")

    def _decided_anew(self, replica: str, operation: Operation, session: int) -> float:
        """When a later session decided the same: what was done since then was done for that."""
        anew = (
            since
            for (name, number, _, _), (known, since) in self._intended.items()
            if name == replica and number > session and known == operation
        )
        return min(anew, default=math.inf)


def _from(act: Act) -> float:
    """When an illegal act shows; a restored server forgets what it did since the backup, which is made at once."""
    return act.at + (float(act.given[0]) if act.what == "restore" else 0.0)

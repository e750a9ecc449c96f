"""What replicas write: as holders of the Lease, after an intent that is in the log, and nobody is evicted twice."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tests.e2e.cluster import GROUPS, LEASES, QUEUES
from tests.simulation.acts import ILLEGAL
from tests.simulation.invariants.decisions import Decisions
from tests.simulation.invariants.terms import Terms
from tests.simulation.invariants.witness import Call, Witness
from vcd.embedded.resources import PDBS, PRIORITY_CLASSES

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

Obj = dict[str, Any]
_MINDED = ("nodes", QUEUES, GROUPS, PDBS, PRIORITY_CLASSES)
"""Of these, what is not status is input to who is evicted; and the status of nodes and budgets."""


class Writes:
    """Looks at each write as the server carries it out. ``done`` has the binds and evictions, and the session that
    intended each (0: none), by machine."""

    def __init__(self, sim: Simulation, witness: Witness, decisions: Decisions, terms: Terms) -> None:
        self._sim, self._witness, self._decisions, self._terms = sim, witness, decisions, terms
        self.done: dict[str, list[tuple[tuple[str, str, str, str], int]]] = defaultdict(list)
        self._bound: set[str] = set()
        """UIDs of pods whose binding the server accepted from a replica, unless its storage may be restored."""
        self._restored = any(act.what in ILLEGAL for act in sim.script.acts)
        self._evicted: set[str] = set()
        """UIDs of pods that replicas evicted, and that are still there."""
        self._last: dict[str, tuple[object, ...]] = {}
        """By which input a pod of a name was evicted last."""
        self._input = 0
        """How often something came that may be a reason to evict."""
        self._known: dict[tuple[str, str], object] = {}
        witness.calls.append(self._called)
        sim.store.subscribe(_MINDED, self._changed)
        sim.store.subscribe(["pods"], self._pod)

    def _called(self, call: Call) -> None:
        if not call.writes or call.is_of_lease:
            return
        self._held(call)
        if call.operation is not None:
            self._intended(call, call.operation)
            verb, key, uid, _ = call.operation
            if verb == "evict":
                self._once(call, key, uid)
            elif uid in self._bound and not self._restored:
                self._sim.violated("bound once", f"{key} {uid} again, by {call.machine.name}")
            else:
                self._bound.add(uid)

    def _held(self, call: Call) -> None:
        service = call.machine.service
        if service is None or not service.options.leader_elect:
            return
        lease = self._sim.store.find(LEASES, service.options.lease_namespace, service.options.lease_name)
        holder = "" if lease is None else lease["spec"].get("holderIdentity")
        if holder != call.machine.name and not self._terms.may_still_write(call.machine.name):
            self._sim.violated("written by who leads", f"{call}, while {holder!r} holds the Lease")

    def _intended(self, call: Call, operation: tuple[str, str, str, str]) -> None:
        session = self._decisions.durable[call.machine.name].get(operation, 0)
        self.done[call.machine.name].append((operation, session))
        if not session:
            self._sim.violated("intended first", f"{call.machine.name}: {operation} is in no session of its log")

    # --- nobody twice -------------------------------------------------------------------------------------------------

    def _once(self, call: Call, key: str, uid: str) -> None:
        if uid in self._evicted:
            self._sim.violated("nobody evicted twice", f"{key} {uid} by {call.machine.name}")
        self._evicted.add(uid)
        given = (self._input, call.machine.name, self._decisions.policies.get(call.machine.name))
        if self._last.get(key) == given:
            self._sim.violated("nobody evicted twice", f"{key} came back and went again, and nothing else happened")
        self._last[key] = given

    def _changed(self, event: str, resource: str, obj: Obj) -> None:
        kept = obj.get("spec"), obj["metadata"].get("labels"), obj["metadata"].get("annotations"), obj.get("value")
        status = obj.get("status") if resource in (PDBS, "nodes") else None
        name = f"{obj['metadata'].get('namespace')}/{obj['metadata']['name']}"
        if event == "DELETED" or self._known.get((resource, name)) != (kept, status):
            self._input += 1
        self._known[resource, name] = kept, status

    def _pod(self, event: str, _: str, obj: Obj) -> None:
        key, uid = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}", obj["metadata"]["uid"]
        if event == "DELETED" or not obj["metadata"].get("deletionTimestamp"):
            self._evicted.discard(uid)
        ended = event == "DELETED" and self._witness.asking is None and not obj["metadata"].get("deletionTimestamp")
        came = event == "ADDED" and key not in self._last
        if came or ended or obj["status"].get("phase") in ("Succeeded", "Failed"):
            self._input += 1

"""What replicas write: as holders of the Lease, after an intent that is in the log, and nobody is evicted twice."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tests.e2e.cluster import GROUPS, LEASES, QUEUES
from tests.simulation.invariants.decisions import Decided, Decisions
from tests.simulation.invariants.replacements import EXEMPT
from tests.simulation.invariants.terms import Terms
from tests.simulation.invariants.witness import Call, Operation, Witness
from vcd.model.controllers import GROUP_NAME

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

Obj = dict[str, Any]
_MARKS = ("labels", "annotations")


class Writes:
    """Looks at each write as the server carries it out. ``done`` has the binds and evictions, and the session that
    intended each (0: none), by machine."""

    def __init__(self, sim: Simulation, witness: Witness, decisions: Decisions, terms: Terms) -> None:
        self._sim, self._witness, self._decisions, self._terms = sim, witness, decisions, terms
        self.done: dict[str, list[tuple[Operation, int]]] = defaultdict(list)
        self._evicted: set[str] = set()
        """UIDs of pods that replicas evicted, and that are still there."""
        self._last: dict[str, tuple[str, Decided]] = {}
        """Which machine evicted a pod of a name last, and how it had decided that."""
        self._input_at: dict[str, float] = defaultdict(lambda: -math.inf)
        """When something last came that may be a reason to evict pods of a group; under "" those of any."""
        self._losers: set[str] = set()
        """Groups of which pods were evicted: that these come and go is no news for others."""
        self._known: dict[tuple[str, str], object] = {}
        self._groups: dict[str, str] = {}
        """The keys of pods' groups, by UID."""
        witness.calls.append(self._called)
        sim.store.subscribe(["nodes", QUEUES, GROUPS], self._changed)
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

    def _held(self, call: Call) -> None:
        service = call.machine.service
        if service is None or not service.options.leader_elect:
            return
        lease = self._sim.store.find(LEASES, service.options.lease_namespace, service.options.lease_name)
        holder = "" if lease is None else lease["spec"].get("holderIdentity")
        if holder != service.options.identity and not self._terms.may_still_write(call.machine.name):
            self._sim.violated("written by who leads", f"{call}, while {holder!r} holds the Lease")

    def _intended(self, call: Call, operation: Operation) -> None:
        session = self._decisions.durable[call.machine.name].get(operation, 0)
        self.done[call.machine.name].append((operation, session))
        if not session:
            self._sim.violated("intended first", f"{call.machine.name}: {operation} is in no session of its log")

    # --- nobody twice -------------------------------------------------------------------------------------------------

    def _once(self, call: Call, key: str, uid: str) -> None:
        if uid in self._evicted:
            self._sim.violated("nobody evicted twice", f"{key} {uid} by {call.machine.name}")
        self._evicted.add(uid)
        decided = self._decisions.decided[call.machine.name].get(("evict", key, uid, ""))
        if decided is None or decided.action in EXEMPT:
            return
        machine, before = self._last.get(key, ("", decided))
        self._losers.add(self._groups.get(uid, ""))
        same = machine == call.machine.name and (before.policy, before.anew) == (decided.policy, decided.anew)
        if same and max(self._input_at[""], self._input_at[self._groups.get(uid, "")]) < before.known:
            self._sim.violated("nobody evicted twice", f"{key} came back and went again, and nothing else happened")
        self._last[key] = call.machine.name, decided

    def _changed(self, event: str, resource: str, obj: Obj) -> None:
        """Nodes, queues and groups are input for all (docs/semantics/actions.md#not-evicted-twice)."""
        name = f"{obj['metadata'].get('namespace')}/{obj['metadata']['name']}"
        marks = () if resource == GROUPS else tuple(obj["metadata"].get(mark) for mark in _MARKS)
        kept = obj.get("spec"), marks, obj["status"].get("allocatable") if resource == "nodes" else None
        if event == "DELETED" or self._known.get((resource, name)) != kept:
            self._input_at[""] = self._sim.loop.time()
        self._known[resource, name] = kept

    def _pod(self, event: str, _: str, obj: Obj) -> None:
        """Who takes the place of whom is told by a group's pods, as they come and end."""
        metadata, uid = obj["metadata"], obj["metadata"]["uid"]
        group = self._groups[uid] = f"{metadata['namespace']}/{(metadata.get('annotations') or {}).get(GROUP_NAME)}"
        if event == "DELETED" or not metadata.get("deletionTimestamp"):
            self._evicted.discard(uid)
        ended = event == "DELETED" and self._witness.asking is None and not metadata.get("deletionTimestamp")
        came = event == "ADDED" and f"{metadata['namespace']}/{metadata['name']}" not in self._last
        if came or ended or obj["status"].get("phase") in ("Succeeded", "Failed"):
            self._input_at[group if group in self._losers else ""] = self._sim.loop.time()

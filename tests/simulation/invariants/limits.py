"""Limits by the server's truth, as binds and evictions are carried out: two terms that each kept to what they knew have
exceeded none of a queue's or a namespace's, nor a disruption budget."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tests.e2e.cluster import GROUPS, QUEUES
from tests.laws.accounts import Accounts
from tests.reference.model import pod_requests
from tests.reference.values import quantity
from tests.simulation.invariants.decisions import RELEASE, SETTLING, Decided, Decisions, protection, selects
from tests.simulation.invariants.namespaces import still_asked
from tests.simulation.invariants.places import Places
from tests.simulation.invariants.quotas import Quotas
from tests.simulation.invariants.truth import group_of
from tests.simulation.invariants.witness import Call, Witness
from vcd.embedded.resource_types import PDBS
from vcd.model.objects import Object, Pod, PodDisruptionBudget
from vcd.model.projection_codec import BadObject, from_manifest
from vcd.state.records import GroupRecord, NodeRecord, QueueRecord

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

Obj = dict[str, Any]
T = TypeVar("T")
_RECORDS: dict[str, Callable[[Any], object]] = {
    "nodes": NodeRecord.of, QUEUES: QueueRecord.of, GROUPS: GroupRecord.of, "pods": lambda pod: pod,
}  # fmt: skip
_MARKS = ("labels", "annotations")


class Limits:
    """Keeps what the server has, and when that last changed on which limits depend."""

    def __init__(self, sim: Simulation, witness: Witness, decisions: Decisions, places: Places) -> None:
        self._sim, self._witness, self._decisions, self._places = sim, witness, decisions, places
        self._objects: dict[str, dict[str, Obj]] = {resource: {} for resource in _RECORDS}
        self._records: dict[tuple[str, str], object] = {}
        """What objects come to, as far as somebody asked since they last changed."""
        self._facts: dict[tuple[str, str], object] = {}
        """On what of an object limits depend."""
        self._changed_at = 0.0
        self._pods: dict[str, Obj] = {}
        """Pods as they were last seen, by UID, and"""
        self._marked_at: dict[str, float] = {}
        """when their labels or annotations, or what they ask for, last changed."""
        self._budgets: dict[str, list[tuple[float, PodDisruptionBudget | None]]] = defaultdict(list)
        """What each budget said, and since when; None where it is gone."""
        self._evicted: dict[str, tuple[float, Pod]] = {}
        """Pods that replicas evicted to make room, by UID, and when."""
        self._quotas: dict[str, list[tuple[float, Obj]]] = defaultdict(list)
        """The status of each ResourceQuota, and since when it says that; nothing where it is gone."""
        self._asked_anew: dict[str, float] = {}
        """When somebody changed what a group asks for at least."""
        sim.store.subscribe(["nodes", QUEUES, GROUPS], self._changed)
        sim.store.subscribe(["pods"], self._pod)
        sim.store.subscribe([PDBS], self._budget)
        sim.store.subscribe(["resourcequotas"], self._quota)
        witness.calls.append(self._called)

    # --- what the server has ------------------------------------------------------------------------------------------

    def _changed(self, event: str, resource: str, obj: Obj) -> None:
        name = _key(obj)
        facts = None if event == "DELETED" else _facts(resource, obj)
        known = self._facts.get((resource, name))
        if known != facts and not (resource == GROUPS and known is None):  # a group's first pods come with it
            self._changed_at = self._sim.loop.time()
        self._facts[resource, name] = facts
        before = self._objects[resource].get(name)
        self._keep(event, resource, name, obj)
        if resource == GROUPS and before is not None and event != "DELETED":
            self._group(name, before, obj)

    def _pod(self, event: str, resource: str, obj: Obj) -> None:
        uid, before = obj["metadata"]["uid"], self._pods.get(obj["metadata"]["uid"])
        if before is None or _said_by(before) != _said_by(obj):
            self._marked_at[uid] = self._sim.loop.time()
        self._pods[uid] = obj
        self._keep(event, resource, _key(obj), obj)
        call = self._witness.asking
        if before is not None and not before["spec"].get("nodeName") and obj["spec"].get("nodeName") and call:
            self._bound(call, _key(obj))

    def _keep(self, event: str, resource: str, name: str, obj: Obj) -> None:
        self._records.pop((resource, name), None)
        if event == "DELETED":
            self._objects[resource].pop(name, None)
        else:
            self._objects[resource][name] = obj

    def _budget(self, event: str, _: str, obj: Obj) -> None:
        budget = None if event == "DELETED" else _read(obj)
        assert budget is None or isinstance(budget, PodDisruptionBudget)
        self._budgets[_key(obj)].append((self._sim.loop.time(), budget))

    def _recorded(self, resource: str) -> Iterator[tuple[str, Any]]:
        """What the server's objects come to, but for those that nobody can read."""
        for name, obj in self._objects[resource].items():
            if (resource, name) not in self._records:
                self._records[resource, name] = _record(resource, obj)
            if (found := self._records[resource, name]) is not None:
                yield name, found

    # --- queues -------------------------------------------------------------------------------------------------------

    def _bound(self, call: Call, key: str) -> None:
        """No queue has more than it may, once a pod is where its session wanted it."""
        decided = self._decided(call)
        if decided is None or self._changed_at >= decided.known:
            return
        there = _There(
            {name: dict(self._recorded(name)) for name in ("nodes", QUEUES, GROUPS)}, self._known(decided.known)
        )
        going = {each for uid, each in self._decisions.to_go.items() if self._is_there(each, uid)}
        for invariant, what in Quotas(there, decided.plugins, going).over([key] if key in there.pods else []):
            self._sim.violated(invariant, f"{call.machine.name}, by the server's truth: {what}")

    def _known(self, until: float) -> Iterator[tuple[str, Pod]]:
        """The pods with nodes that who knows all until a time knows to have them."""
        for key, pod in self._recorded("pods"):
            if self._places.is_known(pod.metadata.uid, until, self._marked_at[pod.metadata.uid]):
                yield key, pod

    def _is_there(self, key: str, uid: str) -> bool:
        found = self._objects["pods"].get(key)
        return found is not None and found["metadata"]["uid"] == uid

    def _decided(self, call: Call) -> Decided | None:
        return self._decisions.decided[call.machine.name].get(call.operation) if call.operation else None

    # --- namespaces ---------------------------------------------------------------------------------------------------

    def _quota(self, event: str, _: str, obj: Obj) -> None:
        status = {} if event == "DELETED" else obj.get("status") or {}
        self._quotas[_key(obj)].append((self._sim.loop.time(), status))

    def _group(self, name: str, before: Obj, obj: Obj) -> None:
        """No group is admitted beyond any of its namespace's quotas."""
        if before["spec"].get("minResources") != obj["spec"].get("minResources"):
            self._asked_anew[name] = self._sim.loop.time()
        was, now = ((each.get("status") or {}).get("phase") or "Pending" for each in (before, obj))
        call = self._witness.asking
        known = None if call is None else self._decisions.admitted.get((call.machine.name, name))
        if was != "Pending" or now != "Inqueue" or known is None or self._asked_anew.get(name, 0.0) >= known:
            return
        for quota, history in sorted(self._quotas.items()):
            if quota.partition("/")[0] != name.partition("/")[0] or history[0][0] >= known:
                continue
            pods = [pod for pod in self._objects["pods"].values() if group_of(pod) == name]
            if not any(_has_room(status, obj["spec"], pods) for status in self._shown(history, known)):
                self._sim.violated("no namespace over", f"{name} is admitted, by the server's truth beyond {quota}")

    def _shown(self, history: list[tuple[float, T]], known: float) -> list[T]:
        """What was so at any time that who knows all until a time may take for now."""
        ends = [since for since, _ in history[1:]] + [self._sim.loop.time() + 1]
        return [what for (_, what), end in zip(history, ends, strict=True) if end >= known]

    # --- evictions ----------------------------------------------------------------------------------------------------

    def _called(self, call: Call) -> None:
        decided = self._decided(call)
        if call.operation is None or call.operation[0] != "evict" or decided is None or decided.action == RELEASE:
            return
        uid = call.operation[2]
        pod = _read(self._pods[uid]) if uid in self._pods else None
        if not isinstance(pod, Pod) or uid in self._evicted:
            return
        found = list(protection(pod, decided.plugins)) if self._marked_at[uid] < decided.known else []
        self._evicted[uid] = self._sim.loop.time(), pod
        if "pdb" in decided.plugins and self._marked_at[uid] < decided.known:
            found += self._beyond_budgets(pod, decided.known)
        for invariant, what in found:
            self._sim.violated(invariant, f"{call.machine.name}, by the server's truth: {what}")

    def _beyond_budgets(self, pod: Pod, known: float) -> Iterator[tuple[str, str]]:
        """A budget's status says how many more may go, until it is written anew: one of those that may have been known
        has to allow it."""
        for name, history in sorted(self._budgets.items()):
            shown = self._shown([(said[0], said) for said in history], known)
            if history[0][0] < known and not any(map(partial(self._allows, pod), shown)):
                yield "no budget overspent", f"{pod.key} went, and {name} does not allow that"

    def _allows(self, pod: Pod, said: tuple[float, PodDisruptionBudget | None]) -> bool:
        since, budget = said
        if budget is None or not selects(budget, pod) or pod.metadata.name in budget.status.disrupted_pods:
            return True
        lately, gone = max(since, self._sim.loop.time() - SETTLING + 1.0), 0  # when it was asked to go has no fractions
        for uid, (at, other) in self._evicted.items():
            stays = uid == pod.metadata.uid or self._is_there(other.key, uid)
            gone += stays and at > lately and selects(budget, other)
        return gone <= max(0, budget.status.disruptions_allowed)


class _There(Accounts):
    """What the server has, as far as it is known to who decided."""

    def __init__(self, records: dict[str, dict[str, Any]], pods: Iterable[tuple[str, Pod]]) -> None:
        self.nodes, self.queues, self.groups = records["nodes"], records[QUEUES], records[GROUPS]
        self.former = {}
        self.pods = dict(pods)
        self.node_of = {key: pod.spec.node_name for key, pod in self.pods.items()}


def _has_room(status: Obj, spec: Obj, pods: list[Obj]) -> bool:
    hard, used = status.get("hard") or {}, status.get("used") or {}
    asked = still_asked(spec.get("minResources"), pods, used)
    return all(quantity(used.get(name, 0)) + asked[name] <= quantity(hard[name]) for name in asked.keys() & hard.keys())


def _said_by(pod: Obj) -> object:
    """What of a pod may be changed on which limits depend."""
    return *(pod["metadata"].get(mark) for mark in _MARKS), pod_requests(pod, True)


def _facts(resource: str, obj: Obj) -> object:
    """On what of an object queues' limits depend, and who counts for them."""
    metadata = obj["metadata"]
    if resource == GROUPS:
        return obj["spec"].get("queue")
    room = obj["status"].get("allocatable") if resource == "nodes" else None
    return obj.get("spec"), *(metadata.get(mark) for mark in _MARKS), room


def _record(resource: str, obj: Obj) -> object:
    read = _read(obj)
    try:
        return None if read is None else _RECORDS[resource](read)
    except BadObject:
        return None


def _read(obj: Obj) -> Object | None:
    """An object as vcd reads it; None for one that it cannot read, and counts nowhere."""
    try:
        return from_manifest(obj)[1]
    except BadObject:
        return None


def _key(obj: Obj) -> str:
    metadata = obj["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])

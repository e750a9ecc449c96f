"""Where pods are by the server's truth: each bound once, to a node that is there and has room, gangs whole."""

from __future__ import annotations

from collections import Counter, defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tests.reference.model import Quantities, pod_requests, quantities
from tests.simulation.invariants.decisions import Decisions
from tests.simulation.invariants.known import Known
from tests.simulation.invariants.witness import Call, Witness

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

Obj = dict[str, Any]
SHARED_CARDS, CARDS_GIVEN = "volcano.sh/gpu-number", "volcano.sh/gpu-index"
_OVER = ("Succeeded", "Failed")


class Places:
    """Looks at each pod's node as it gets it."""

    def __init__(self, sim: Simulation, witness: Witness, decisions: Decisions, known: Known) -> None:
        self._sim, self._witness, self._decisions, self._known = sim, witness, decisions, known
        self._bound: dict[str, str] = {}
        """Nodes, by the UID of the pod that is there."""
        self._ours: set[str] = set()
        """UIDs of pods that replicas bound."""
        self._since: dict[str, float] = {}
        """When pods were bound, by UID."""
        self._on: dict[str, dict[str, Obj]] = defaultdict(dict)
        """The pods of each node that use its room, by UID."""
        self._asked: dict[str, list[tuple[float, Quantities]]] = defaultdict(list)
        """What each pod has counted with, by UID, and since when: it may be resized in place."""
        self._rooms: dict[str, list[tuple[float, Quantities]]] = defaultdict(list)
        """What each node has had to give, and since when; nothing where it was not there."""
        sim.store.subscribe(["pods"], self._pod)
        sim.store.subscribe(["nodes"], self._node)

    def _node(self, event: str, _: str, obj: Obj) -> None:
        name = obj["metadata"]["name"]
        room = {} if event == "DELETED" else quantities(obj["status"].get("allocatable"))
        if not self._rooms[name] or self._rooms[name][-1][1] != room:
            self._rooms[name].append((self._sim.loop.time(), room))

    def _pod(self, event: str, _: str, obj: Obj) -> None:
        name, uid, node = obj["metadata"]["name"], obj["metadata"]["uid"], obj["spec"].get("nodeName")
        self._sim.note(event, name, node, obj["status"].get("phase"))
        before = self._bound.get(uid)
        if before is not None and (event == "DELETED" or not node or obj["status"].get("phase") in _OVER):
            self._on[before].pop(uid, None)
        if event == "DELETED":
            return
        asked = pod_requests(obj, True)
        if not self._asked[uid] or self._asked[uid][-1][1] != asked:
            self._asked[uid].append((self._sim.loop.time(), asked))
        if not node:
            self._bound.pop(uid, None)  # the server's storage was restored
            return
        if before is not None and before != node:
            self._sim.violated("bound once", f"{name} to {before} and to {node}")
        self._bound[uid] = node
        if obj["status"].get("phase") not in _OVER:
            self._on[node][uid] = obj
        if before is None:
            self._came(name, uid, node)

    def _came(self, name: str, uid: str, node: str) -> None:
        self._since[uid] = self._sim.loop.time()
        call = self._witness.asking
        if call is None:
            return
        self._ours.add(uid)
        known = self._known_by(call)
        rooms = self._that_may_be_known(self._rooms[node], known)
        if not any(rooms):
            self._sim.violated("bound there", f"{name} to {node}, which is gone, by {call.machine.name}")
            return
        used = self._used_that_is_known(node, known)
        most: Quantities = {}
        for room in rooms:
            most = {key: max(room.get(key, Fraction(0)), most.get(key, Fraction(0))) for key in {**room, **most}}
        self._shares_no_card(name, uid, node)
        mine = {"pods", "cpu", "memory", *pod_requests(self._on[node][uid], True)}
        if over := sorted(key for key in mine if used[key] > most.get(key, 0)):
            here = sorted(each["metadata"]["name"] for each in self._on[node].values())
            self._sim.violated("no node over", f"{node} has too little {over} for {name} with {here}")

    def _shares_no_card(self, name: str, uid: str, node: str) -> None:
        """Cards that a pod got to itself are nobody else's who is there."""
        mine = _cards_of(self._on[node][uid])
        for other, pod in self._on[node].items():
            if other != uid and (same := sorted(mine & _cards_of(pod))):
                self._sim.violated("no card shared", f"{name} and {pod['metadata']['name']} have {same} of {node}")

    def _known_by(self, call: Call) -> float:
        """Until when who decided a call knew all."""
        decided = self._decisions.decided[call.machine.name].get(call.operation) if call.operation else None
        return self._known.until(call.machine) if decided is None else decided.known

    def is_known(self, uid: str, known: float, marked_at: float = 0.0) -> bool:
        """Whether who knows all until a time knows where a pod is, and how it was marked last: what replicas bound each
        of them knows, as it was marked when it was bound."""
        since = self._since.get(uid, known)
        return marked_at < known or marked_at <= since if uid in self._ours else max(since, marked_at) < known

    def _that_may_be_known(self, history: list[tuple[float, Quantities]], earliest: float) -> list[Quantities]:
        """What was so at any time that a leader may take for now: what a node had to give, or a pod asked for."""
        ends = [since for since, _ in history[1:]] + [self._sim.loop.time() + 1]
        return [amounts for (_, amounts), end in zip(history, ends, strict=True) if end >= earliest]

    def _used_that_is_known(self, node: str, known: float) -> Counter[str]:
        """What pods use of a node that who knows all until a time can know."""
        used: Counter[str] = Counter()
        for uid in self._on[node]:
            if self.is_known(uid, known):
                used["pods"] += 1
                asked = self._that_may_be_known(self._asked[uid], known)
                for key in asked[0]:
                    used[key] += min(each.get(key, Fraction(0)) for each in asked)  # type: ignore[assignment]
        return used


def _cards_of(pod: Obj) -> frozenset[str]:
    """The numbers of the whole cards that a pod was given on its node."""
    given = (pod["metadata"].get("annotations") or {}).get(CARDS_GIVEN)
    return frozenset(given.split(",")) if given and pod_requests(pod, False).get(SHARED_CARDS) else frozenset()

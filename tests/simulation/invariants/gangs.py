"""Gangs by the server's truth: whole, or released in the time that is stated."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tests.e2e.cluster import GROUPS
from tests.reference.model import TASK_SPEC, pod_requests
from tests.simulation import illegal
from tests.simulation.invariants.decisions import Decisions, operations_of
from tests.simulation.invariants.logfiles import operations_in
from tests.simulation.invariants.witness import Operation, Witness
from tests.simulation.replica import Machine, Replica
from vcd.daemon.service import SchedulerService
from vcd.model import events as ev
from vcd.model.controllers import GROUP_NAME
from vcd.state.records import Settings

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

Obj = dict[str, Any]
TICK = 5.0
"""Seconds between looks."""
SLACK = 25.0
"""Seconds that it may take until what is to be released is seen, decided and done."""
TOGETHER = 10.0
"""Seconds in which all binds of a gang are made. Who was let in and is refused by its kubelet counts for so long."""
DAMAGED = ("flip_bits", "lose_syncs")
"""What makes of a log one that may not be read."""


class Gangs:
    """Follows how many members of each group are bound or done.

    What people, and others who bind our pods, make of a gang is theirs: nothing is asked of such a group until none of
    it is placed.
    """

    def __init__(self, sim: Simulation, witness: Witness, decisions: Decisions) -> None:
        self._sim, self._witness, self._decisions = sim, witness, decisions
        self._members: dict[str, dict[str, Obj]] = defaultdict(dict)
        self._groups: dict[str, str] = {}
        """The group of each pod, by UID; empty for none. People may move it to another one."""
        self._partial: dict[str, float] = {}
        """Since when gangs are placed in part, and have not been whole since nothing of them was."""
        self._bound_at: dict[str, float] = {}
        """When pods got their nodes, by UID."""
        self._were_whole: set[str] = set()
        """Those that have been whole since nothing of them was placed."""
        self._theirs: set[str] = set()
        """Those of which somebody else has bound a pod, or moved one to them that was placed, or changed what they ask
        for, or that a session bound that asks nobody for minima, since nothing of them was placed."""
        self._minima: dict[str, Obj] = {}
        self._told: set[str] = set()
        self._intended: dict[str, set[str]] = {}
        """The UIDs of pods that sessions bind, as each machine was told since it last began with its log."""
        self._calm_at: float | None = None
        witness.services.append(self._watch)
        sim.store.subscribe(["pods"], self._pod)
        sim.store.subscribe([GROUPS], self._group)
        self._asked_since: float | None = None
        """Since when who leads asks for minima."""
        self._behind: set[str] = set()
        """Machines that started with a clock that was behind: they count the time by that (docs/reliability.md)."""
        # where events were lost nobody may know before all is listed
        self._is_told = not any(act.what in illegal.ACTS for act in sim.script.acts)
        sim.loop.call_later(TICK, self._tick)

    def _group(self, event: str, _: str, obj: Obj) -> None:
        key = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
        if key in self._minima and (event == "DELETED" or _asked_of(self._minima[key]) != _asked_of(obj["spec"])):
            self._theirs.add(key)
        self._minima[key] = {} if event == "DELETED" else obj["spec"]
        self._look(key)

    def _pod(self, event: str, _: str, obj: Obj) -> None:
        name, uid = (obj["metadata"].get("annotations") or {}).get(GROUP_NAME), obj["metadata"]["uid"]
        key = f"{obj['metadata']['namespace']}/{name}" if name else ""
        former = self._groups.get(uid, key)
        self._groups[uid] = key
        if former != key and self._members[former].pop(uid, None) is not None:
            self._look(former)
        if not key:
            return
        before = self._members[key].get(uid)
        placed_anew = obj["spec"].get("nodeName") and not (before or {}).get("spec", {}).get("nodeName")
        if placed_anew and former == key:
            self._bound_at[uid] = self._sim.loop.time()
        if placed_anew and (former != key or not self._asks_for_minima()):
            self._theirs.add(key)
        if event == "DELETED":
            self._members[key].pop(uid, None)
        else:
            self._members[key][uid] = obj
        self._look(key)

    def _asks_for_minima(self) -> bool:
        """Whether what the server does now is of a session that asks for minima, and not somebody else's."""
        call = self._witness.asking
        if call is None or call.operation is None:
            return False
        decided = self._decisions.decided[call.machine.name].get(call.operation)
        return decided is not None and "gang" in decided.plugins

    def _look(self, key: str) -> None:
        members, lately = self._members[key], self._sim.loop.time() - TOGETHER
        placed = sum(bool(each["spec"].get("nodeName")) and not _is_over(each) for each in members.values())
        ready = [each for uid, each in members.items() if _is_ready(each) or self._bound_at.get(uid, lately) > lately]
        if not placed:
            self._were_whole.discard(key)
            self._theirs.discard(key)
        if _is_whole(ready, self._minima.get(key, {})):
            self._were_whole.add(key)
        if placed and key not in self._were_whole | self._theirs:
            self._partial.setdefault(key, self._sim.loop.time())
        else:
            self._partial.pop(key, None)

    def _tick(self) -> None:
        """Look again and again, once nothing goes wrong any more, whether somebody leads that should have done it."""
        if self._calm_at is None and self._sim.calm:
            self._calm_at = self._sim.loop.time()
        leading = [each for each in self._sim.replicas if each.leads]
        if len(leading) == 1:
            self._follow(leading[0])
        if self._calm_at is not None and len(leading) == 1 and self._is_told:
            self._look_at_all(self._calm_at)
        self._sim.loop.call_later(TICK, self._tick)

    def _follow(self, leader: Replica) -> None:
        assert leader.service is not None
        assert leader.machine is not None
        plugins = {option.name for tier in leader.service._policy_in_force().tiers for option in tier}
        if "gang" not in plugins or leader.machine.name in self._behind:
            self._asked_since = None
        elif self._asked_since is None:
            self._asked_since = self._sim.loop.time()

    def at_rest(self) -> None:
        """No gang is placed in part for longer than it takes to release it."""
        self._look_at_all(0.0)

    def _look_at_all(self, earliest: float) -> None:
        if self._asked_since is None:
            return
        for key, since in self._partial.items():
            due = max(since, self._asked_since) + Settings().release_after
            late = max(due, earliest) + SLACK < self._sim.loop.time()
            if late and self._minima.get(key) and key not in self._told and self._is_known(key):
                self._told.add(key)
                placed = [each["metadata"]["name"] for each in self._members[key].values() if _is_ready(each)]
                self._sim.violated("gangs whole", f"{key} has {placed} of {self._minima[key]} since {since:.3f} s")

    def _watch(self, machine: Machine, service: SchedulerService) -> None:
        intended = self._intended[machine.name] = set()
        if machine.wall_ahead < 0:
            self._behind.add(machine.name)

        def folded(event: ev.Event) -> None:
            if isinstance(event, ev.SessionDecided):
                intended.update(_bound_by(operations_of(event)))

        service.state_writer.observers.append(folded)

    def _is_known(self, key: str) -> bool:
        """Whether who leads was told that a pod of a gang was to be bound, by its log or before retention took that
        away: what another one decided, and had logged alone, it takes for somebody else's doing (docs/reliability.md).
        """
        known = set[str]()
        for each in self._sim.replicas:
            if each.leads and each.machine is not None:
                known |= self._intended[each.machine.name]
                if not any(each.road.affected[act] for act in DAMAGED):
                    known |= _bound_by(operations_in(each.machine.disk.log)[0])
        return not known.isdisjoint(self._members[key])


def _bound_by(operations: Iterable[Operation]) -> set[str]:
    """The UIDs of pods that are to be bound."""
    return {uid for verb, _, uid, _ in operations if verb == "bind"}


def _asked_of(spec: Obj) -> tuple[int, dict[str, int]]:
    """What a group asks for of its members together."""
    return spec.get("minMember", 0), spec.get("minTaskMember") or {}


def _is_whole(ready: list[Obj], asked: Obj) -> bool:
    """Whether a group's pods that are ready are as many as it asks for, and those of each role. Minima of roles bind
    only while the group's is at least their sum."""
    least, of_role = _asked_of(asked)
    roles = Counter((pod["metadata"].get("annotations") or {}).get(TASK_SPEC, "") for pod in ready)
    short = sum(of_role.values()) <= least and any(roles[role] < count for role, count in of_role.items())
    return len(ready) >= least and not short


def _is_over(pod: Obj) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed") or "deletionTimestamp" in pod["metadata"]


def _is_ready(pod: Obj) -> bool:
    if pod["status"].get("phase") == "Succeeded":
        return True
    if _is_over(pod):
        return False
    free = not any(pod_requests(pod, False).values()) and not pod["spec"].get("schedulingGates")
    return bool(pod["spec"].get("nodeName")) or free

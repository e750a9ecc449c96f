"""Who waits is told so, each pod by its condition, which autoscalers look at; and who does not wait is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.e2e.cluster import GROUPS
from tests.simulation.invariants.witness import Witness
from vcd.daemon.service import SchedulerService
from vcd.model.controllers import GROUP_NAME

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


Obj = dict[str, Any]


class Told:
    """Looks at groups as replicas write them, and at the pods on the server once all has come to rest."""

    def __init__(self, sim: Simulation, witness: Witness) -> None:
        self._sim, self._witness = sim, witness
        self._scheduled: set[str] = set()
        """The groups that are called scheduled."""
        sim.store.subscribe([GROUPS], self._group)

    def _group(self, event: str, _: str, obj: Obj) -> None:
        key, last = _key(obj), ((obj.get("status") or {}).get("conditions") or [{}])[-1]
        held = last.get("status") == "True"
        if event == "DELETED" or not (held and last.get("type") == "Scheduled"):
            is_turned = key in self._scheduled and held and last.get("type") == "Unschedulable"
            if is_turned and event != "DELETED" and self._witness.asking is not None and self._is_placed(key, obj):
                self._sim.violated("reasons are true", f"{key} is called unschedulable as all of it is placed")
            self._scheduled.discard(key)
        else:
            self._scheduled.add(key)

    def _is_placed(self, key: str, obj: Obj) -> bool:
        """Whether all pods of a group have nodes, as many as it needs, and none has ended."""
        pods = [pod for pod in self._sim.store.list("pods") if _group_of(pod) == key]
        running = [pod["status"].get("phase") in ("Pending", "Running") and pod["spec"].get("nodeName") for pod in pods]
        return all(running) and len(running) >= obj["spec"].get("minMember", 1)

    def at_rest(self) -> None:
        """Each pod of a group that waits, by the leader's state, has the condition."""
        for replica in self._sim.replicas:
            if replica.service is not None and replica.leads:
                self._all_told(replica.service)

    def _all_told(self, service: SchedulerService) -> None:
        for pod in self._sim.store.list("pods"):
            group = _group_of(pod)
            reasons = service.keeper.state.waiting.get(group, ())
            # where the queue is not there only the group is told, as in Volcano, which looks at no pod of it
            has_queue = all(each.reason.code != "queue-missing" for each in reasons)
            if reasons and has_queue and _waits(pod) and not _is_told(pod):
                what = f"{_key(pod)} waits with {group}, and has no condition that says so"
                self._sim.violated("who waits is told", what)


def _key(obj: Obj) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def _group_of(pod: Obj) -> str:
    return f"{pod['metadata']['namespace']}/{(pod['metadata'].get('annotations') or {}).get(GROUP_NAME)}"


def _waits(pod: Obj) -> bool:
    """Whether it is up to a scheduler of ours that it does; of one with gates the API server tells."""
    spec, ours = pod["spec"], pod["spec"].get("schedulerName") == "volcano"
    there = not spec.get("nodeName") and not pod["metadata"].get("deletionTimestamp")
    return ours and there and not spec.get("schedulingGates") and pod["status"].get("phase", "Pending") == "Pending"


def _is_told(pod: Obj) -> bool:
    return any(each["type"] == "PodScheduled" for each in pod["status"].get("conditions") or ())

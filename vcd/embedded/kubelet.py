"""The kubelets of all nodes: start the pods bound to their node, end them, and remove deleted pods.

A pod runs for the seconds in its annotation ``vcd.sim/run-seconds`` (without it: until it is deleted), and ends with
the code in ``vcd.sim/exit-code`` (0, the default: Succeeded; other codes: Failed). All containers end together, and
restartPolicy is ignored. One object acts for all kubelets, with one timer per pod and no task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final

from vcd.embedded.cluster_clock import Timer, parse_seconds, parse_timestamp
from vcd.embedded.controllers.controller_base import (
    DELETED,
    NODES,
    PODS,
    Controller,
    Key,
    Manager,
    Obj,
    annotations_of,
    is_deleting,
    key_of,
    with_condition,
)
from vcd.embedded.controllers.pod_properties import TERMINAL, Amounts, condition_of, node_of, phase_of, requests_of
from vcd.model.quantity import add, format_resource, resource_value

RUN_SECONDS: Final = "vcd.sim/run-seconds"
START_DELAY: Final = 1.0
"""Cluster seconds between bind and Running."""
EXIT_CODE: Final = "vcd.sim/exit-code"
_NODE, _POD = "Node", "Pod"
_HEALTHY: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)
_ADDRESSES: Final = 1 << 23


@dataclass(slots=True)
class _Stay:
    """A pod on its node: what it requests there, and the timer of its next step."""

    key: Key
    node: str
    requests: Amounts
    ip: str = ""
    doing: str = ""
    timer: Timer | None = None
    due: Callable[[Obj], None] | None = None


class Kubelets(Controller):
    """All kubelets of the cluster. Keys are (kind, namespace, name).

    Conditions of nodes get only the first heartbeat, because each one would be a write per node.
    """

    name: ClassVar[str] = "kubelet"
    resources = (NODES, PODS)

    def __init__(self, manager: Manager) -> None:
        super().__init__(manager)
        self._stays: dict[str, _Stay] = {}
        self._pods = manager.index(PODS, node_of)
        self._used: dict[str, Amounts] = {}
        self._allocatable: dict[str, Amounts] = {}
        self._addresses = 0

    def observe(self, event: str, resource: str, obj: Obj) -> None:
        """Note a change of a node, or of a pod bound to one."""
        if resource == NODES:
            name = obj["metadata"]["name"]
            if event == DELETED:
                self._allocatable.pop(name, None)
            else:
                self.enqueue((_NODE, "", name))
            return
        uid, node = obj["metadata"]["uid"], "" if event == DELETED else node_of(obj)
        if uid in self._stays and self._stays[uid].node != node:
            self._leave(uid)  # no request unbinds a pod, but a restore to a state before the bind does
        if node:
            if uid not in self._stays:
                self._stays[uid] = _Stay(key_of(obj), node, {})
            self.enqueue((_POD, *key_of(obj)))

    def reconcile(self, key: Key) -> None:
        """Update a node's conditions, or carry out the next step of a pod."""
        kind, namespace, name = key
        if kind == _NODE:
            node = self.find(NODES, "", name)
            if node is not None:
                self._register(node)
            return
        pod = self.find(PODS, namespace, name)
        if pod is None or node_of(pod) not in self._allocatable:
            return
        stay = self._stays[pod["metadata"]["uid"]]
        if stay.due is not None:
            stay.due(pod)
            stay.due, stay.doing = None, ""
        else:
            self._see_to(pod, stay)

    # --- nodes ---

    def _register(self, node: Obj) -> None:
        """Note the node's allocatable resources, report it healthy, and continue pods that were bound before."""
        name = node["metadata"]["name"]
        status = node.get("status") or {}
        room = status.get("allocatable") or status.get("capacity") or {}
        known = name in self._allocatable
        self._allocatable[name] = {resource: resource_value(resource, text) for resource, text in room.items()}
        fresh = {**status, "conditions": self._first_conditions(status.get("conditions") or [])}
        if status.get("capacity") and not status.get("allocatable"):
            fresh["allocatable"] = dict(status["capacity"])
        if not status.get("addresses"):
            fresh["addresses"] = [
                {"type": "InternalIP", "address": self._next_address(172)},
                {"type": "Hostname", "address": name},
            ]
        self.write_status(NODES, node, fresh)
        if not known:
            for pod in self._pods.of(name):
                self.enqueue((_POD, *key_of(pod)))

    def _first_conditions(self, conditions: list[Obj]) -> list[Obj]:
        """Return the conditions with the missing ones added."""
        present = {each.get("type") for each in conditions}
        now = self.store.now
        for kind, state, reason, message in _HEALTHY:
            if kind not in present:
                fresh = {"type": kind, "status": state, "reason": reason, "message": message, "lastHeartbeatTime": now}
                conditions = with_condition(conditions, fresh, now)
        return conditions

    def _next_address(self, network: int) -> str:
        self._addresses = (self._addresses + 1) % _ADDRESSES
        number = self._addresses
        return f"{network}.{16 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"

    # --- pods ---

    def _see_to(self, pod: Obj, stay: _Stay) -> None:
        phase = phase_of(pod)
        if phase in TERMINAL:
            self._release(stay)
        if is_deleting(pod):
            self._see_off(pod, stay)
        elif phase in TERMINAL:
            self._plan(stay, "")
        elif phase == "Running":
            self._take(stay, pod)
            if RUN_SECONDS in annotations_of(pod):
                end = _started_at(pod) + parse_seconds(annotations_of(pod)[RUN_SECONDS])
                self._plan(stay, "finish", end, self._finish)
        elif stay.doing != "start" and (stay.requests or self._admit(pod, stay)):
            self._plan(stay, "start", self.clock.now() + START_DELAY, self._start)

    def _see_off(self, pod: Obj, stay: _Stay) -> None:
        """Remove a deleted pod: at once if it is not running, else after its grace period."""
        if phase_of(pod) == "Running":
            until = parse_timestamp(pod["metadata"]["deletionTimestamp"])
            if until > self.clock.now():
                self._plan(stay, f"remove at {until}", until, self._remove)
                return
        self._plan(stay, "")
        self._remove(pod)

    def _admit(self, pod: Obj, stay: _Stay) -> bool:
        """Admit the pod if the node has capacity for it, as a kubelet does; otherwise the pod fails."""
        wanted = {**requests_of(pod["spec"]), "pods": 1}
        used, room = self._used.get(stay.node, {}), self._allocatable[stay.node]
        for resource, amount in wanted.items():
            if resource in room and used.get(resource, 0) + amount > room[resource]:
                figures = (amount, used.get(resource, 0), room[resource])
                asked, taken, limit = (format_resource(resource, figure) for figure in figures)
                self._write_status(
                    pod,
                    {
                        "phase": "Failed",
                        "reason": f"OutOf{resource}",
                        "message": f"Pod was rejected: Node didn't have enough resource: {resource}, "
                        f"requested: {asked}, used: {taken}, capacity: {limit}",
                        "startTime": self.store.now,
                    },
                )
                return False
        self._take(stay, pod)
        return True

    def _take(self, stay: _Stay, pod: Obj) -> None:
        if not stay.requests:
            stay.requests = {**requests_of(pod["spec"]), "pods": 1}
            add(self._used.setdefault(stay.node, {}), stay.requests)

    def _release(self, stay: _Stay) -> None:
        add(self._used.setdefault(stay.node, {}), {resource: -amount for resource, amount in stay.requests.items()})
        stay.requests = {}

    def _leave(self, uid: str) -> None:
        stay = self._stays.pop(uid)
        self._plan(stay, "")
        self._release(stay)

    def _plan(self, stay: _Stay, doing: str, when: float = 0.0, act: Callable[[Obj], None] | None = None) -> None:
        """Call ``act`` with the pod at a time, in place of the earlier plan. An equal plan changes nothing."""
        if stay.doing == doing:
            return
        if stay.timer is not None:
            stay.timer.cancel()
        stay.doing = doing
        stay.timer = None
        if act is not None:
            stay.timer = self.clock.call_at(when, lambda: self._fall_due(stay, act))

    def _fall_due(self, stay: _Stay, act: Callable[[Obj], None]) -> None:
        stay.timer = None
        stay.due = act
        self.enqueue((_POD, *stay.key))

    def _start(self, pod: Obj) -> None:
        stay = self._stays[pod["metadata"]["uid"]]
        stay.ip = stay.ip or self._next_address(10)
        now = self.store.now
        conditions: list[Obj] = list((pod.get("status") or {}).get("conditions") or [])
        if condition_of(pod, "PodScheduled") is None:
            conditions = with_condition(conditions, {"type": "PodScheduled", "status": "True"}, now)
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"):
            conditions = with_condition(conditions, {"type": kind, "status": "True"}, now)
        self._write_status(
            pod,
            {
                "phase": "Running",
                "conditions": conditions,
                "hostIP": self._host_ip(stay.node),
                "podIP": stay.ip,
                "podIPs": [{"ip": stay.ip}],
                "startTime": now,
                "containerStatuses": [_running(each, now) for each in pod["spec"].get("containers") or ()],
                **_init_statuses(pod, now),
            },
        )

    def _host_ip(self, node: str) -> str:
        found = self.find(NODES, "", node) or {}
        addresses = (found.get("status") or {}).get("addresses") or ()
        return next((each["address"] for each in addresses if each.get("type") == "InternalIP"), "")

    def _finish(self, pod: Obj) -> None:
        code = int(annotations_of(pod).get(EXIT_CODE, "0"))
        now = self.store.now
        conditions = list((pod.get("status") or {}).get("conditions") or [])
        reason = "PodFailed" if code else "PodCompleted"
        for kind in ("Ready", "ContainersReady"):
            conditions = with_condition(conditions, {"type": kind, "status": "False", "reason": reason}, now)
        statuses = (pod.get("status") or {}).get("containerStatuses") or []
        self._write_status(
            pod,
            {
                "phase": "Failed" if code else "Succeeded",
                "conditions": conditions,
                "containerStatuses": [_ended_container(each, code, now) for each in statuses],
            },
        )

    def _remove(self, pod: Obj) -> None:
        self.remove(PODS, pod, grace_period=0)

    def _write_status(self, pod: Obj, changed: Obj) -> None:
        self.write_status(PODS, pod, {**(pod.get("status") or {}), **changed})


def _started_at(pod: Obj) -> float:
    """Return when the pod's first running container started; else the pod's start or creation time."""
    for each in pod["status"].get("containerStatuses") or ():
        since = ((each.get("state") or {}).get("running") or {}).get("startedAt")
        if since:
            return parse_timestamp(since)
    return parse_timestamp(pod["status"].get("startTime") or pod["metadata"]["creationTimestamp"])


def _init_statuses(pod: Obj, now: str) -> Obj:
    """Return the statuses of init containers: ended, or running for sidecars."""
    made = []
    for container in pod["spec"].get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            made.append(_running(container, now))
        else:
            made.append({**_ended_container(_running(container, now), 0, now), "ready": True})
    return {"initContainerStatuses": made} if made else {}


def _running(container: Obj, now: str) -> Obj:
    image = container.get("image", "")
    return {
        "name": container["name"],
        "image": image,
        "imageID": image,
        "ready": True,
        "started": True,
        "restartCount": 0,
        "lastState": {},
        "state": {"running": {"startedAt": now}},
    }


def _ended_container(status: Obj, code: int, now: str) -> Obj:
    started = ((status.get("state") or {}).get("running") or {}).get("startedAt", now)
    ended = {"exitCode": code, "reason": "Error" if code else "Completed", "startedAt": started, "finishedAt": now}
    return {**status, "ready": False, "started": False, "state": {"terminated": ended}}

"""A session in the JSON that an extender reads: Volcano's own structures, as Go's encoding/json writes them.

Fields have Go's names (``TaskInfo.Resreq``); objects of Kubernetes and Volcano have those of their API (``Pod.spec``).
Cpu and scalars are in thousandths, memory in bytes, pods in units. Encoded parts are cached until they change.

Not provided, and sent as Go's zero value: fields of pods, nodes and groups that the watches do not store; dynamic
resource claims; NUMA information; devices (``NodeInfo.Others``); images (``ImageStates``; but ``Node.status.images`` is
sent); sub-jobs and network topologies; fit errors; generations. Source: Volcano ``pkg/scheduler/api``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec
import numpy as np

from vcd.model.objects import Object, PodGroup, Quantities
from vcd.model.quantity import QuantityError, to_volcanos_unit
from vcd.model.resource_requests import CPU, MEMORY, PODS, resource_values
from vcd.model.status import TaskStatus
from vcd.scheduling.framework.arguments import parse_duration
from vcd.scheduling.framework.usage_samples import USAGE, UsageError, read_samples
from vcd.scheduling.session.nodes import Ints
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.state.records import ANY_ZONE, TRUE, ZONE, is_preemptable, task_role, uses_zones
from vcd.state.sums import sum_of

HIERARCHY = "volcano.sh/hierarchy"
HIERARCHY_WEIGHTS = "volcano.sh/hierarchy-weights"
WAITING_TIMES = ("volcano.sh/sla-waiting-time", "sla-waiting-time")
MIN_AVAILABLE = "volcano.sh/jdb-min-available"
MAX_UNAVAILABLE = "volcano.sh/jdb-max-unavailable"
OVERSUBSCRIPTION_NODE = "volcano.sh/oversubscription"
OFFLINE_JOB_EVICTING = "volcano.sh/offline-job-evicting"

_PERIOD = "10m"
"""The only period of average usage."""
_NO_TIME = "0001-01-01T00:00:00Z"
_READY = 1
_ON_NODE = (TaskStatus.ALLOCATED, TaskStatus.PIPELINED, TaskStatus.BINDING)

_json = msgspec.json.Encoder(order="deterministic")
Json = msgspec.Raw


class Wire:
    """Encodes tasks, nodes, jobs and queues of a session as JSON. Call ``moved`` for every task that changes."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._facts = session.nodes.facts
        self._pod = cache(lambda row: _raw(session.snapshot.tasks.pods[row]))
        self._tasks: dict[int, tuple[tuple[int, int], Json]] = {}
        self._nodes: dict[int, Json] = {}
        self._moved: dict[int, Task] = {}
        self._arrived: dict[int, dict[int, Task]] = {}
        self._rows_on: dict[int, list[int]] | None = None
        self._usage = _usage_of(session)

    def moved(self, task: Task, row: int) -> None:
        """Record that a task was placed on a node or removed from it."""
        self._moved[task.row] = task
        arrived = self._arrived.setdefault(row, {})
        if task.node == row and task.status in _ON_NODE:
            arrived[task.row] = task
        else:
            arrived.pop(task.row, None)
        self._nodes.pop(row, None)

    # --- tasks ------------------------------------------------------------------------------------------------------

    def task(self, task: Task) -> Json:
        """Return a TaskInfo with the task's current state."""
        self._moved.setdefault(task.row, task)
        return self._task(task.row)

    def _task(self, row: int) -> Json:
        columns, moved = self._session.snapshot.tasks, self._moved.get(row)
        if moved is None:
            state = (int(columns.status[row]), int(columns.node[row]))
        else:
            state = (moved.status, moved.node)
        known = self._tasks.get(row)
        if known is None or known[0] != state:
            known = self._tasks[row] = (state, self._encoded(row, *state))
        return known[1]

    def _encoded(self, row: int, status: int, node: int) -> Json:
        session = self._session
        columns = session.snapshot.tasks
        pod = columns.pods[row]
        assert pod is not None
        meta, number = pod.metadata, int(columns.shape[row])
        shape = session.snapshot.shapes[number]
        request = self.resource(session.requests[number])
        return _raw(
            {
                "UID": meta.uid,
                "Job": pod.group_key,
                "Name": meta.name,
                "Namespace": meta.namespace,
                "TaskRole": task_role(pod),
                "Resreq": request,
                "InitResreq": request,
                "DRAResreq": None,
                "ResourceClaimKeys": None,
                "ResourceClaimDRAResreq": None,
                "NodeName": self._facts.names[node] if node >= 0 else "",
                "EvictionOccurred": False,
                "JobAllocatedHyperNode": "",
                "Status": 1 << status,
                "LastTransaction": None,
                "Priority": int(columns.priority[row]),
                "VolumeReady": False,
                "Preemptable": is_preemptable(pod),
                "BestEffort": shape is not None and shape.best_effort,
                "HasRestartableInitContainer": any(one.restart_policy == "Always" for one in pod.spec.init_containers),
                "SchGated": bool(pod.spec.scheduling_gates),
                "RevocableZone": ANY_ZONE if uses_zones(pod) else "",
                "NumaInfo": None,
                "Pod": self._pod(row),
                "PodAnnotations": meta.annotations,
                "CustomBindErrHandlerSucceeded": False,
            }
        )

    # --- nodes ------------------------------------------------------------------------------------------------------

    def node(self, row: int) -> Json:
        """Return a NodeInfo with the node's current state and tasks."""
        found = self._nodes.get(row)
        if found is None:
            found = self._nodes[row] = self._encoded_node(row)
        return found

    def _encoded_node(self, row: int) -> Json:
        session, node, usage = self._session, self._facts.nodes[row], self._session.nodes.usage
        labels, annotations = node.metadata.labels, node.metadata.annotations
        there = usage.allocatable[:, row] > 0
        return _raw(
            {
                "Name": self._facts.names[row],
                "Node": node,
                "State": {"Phase": _READY, "Reason": ""},
                "Releasing": self.resource(usage.releasing[:, row]),
                "Pipelined": self.resource(usage.pipelined[:, row]),
                "Idle": self.resource(usage.idle[:, row], there),
                "Used": self.resource(usage.used[:, row]),
                "Allocatable": self.resource(usage.allocatable[:, row], pods=True),
                "Capacity": self._capacity(node.status.capacity, usage.allocatable[:, row]),
                "ResourceUsage": self._usage.get(self._facts.names[row], _usage(_NO_TIME, None)),
                "Tasks": {session.snapshot.tasks.keys[task]: self._task(task) for task in self._tasks_on(row)},
                "NumaInfo": None,
                "UnassignedNumaPods": None,
                "NumaSchedulerInfo": None,
                "RevocableZone": labels.get(ZONE, ""),
                "Others": {},
                "OversubscriptionNode": labels.get(OVERSUBSCRIPTION_NODE) in TRUE,
                "OfflineJobEvicting": annotations.get(OFFLINE_JOB_EVICTING) in TRUE,
                "OversubscriptionResource": _EMPTY,
                "ImageStates": {},
                "Generation": 0,
                "BindGeneration": 0,
            }
        )

    def _tasks_on(self, row: int) -> list[int]:
        """Return the rows of the tasks on a node, sorted by key, including trial placements."""
        if self._rows_on is None:
            tasks = self._session.snapshot.tasks
            placed = np.flatnonzero(tasks.placed)
            self._rows_on = {}
            for task in placed.tolist():
                self._rows_on.setdefault(int(tasks.node[task]), []).append(task)
        keys = self._session.snapshot.tasks.keys
        found = dict.fromkeys([*self._rows_on.get(row, ()), *self._arrived.get(row, {})])
        return sorted(found, key=lambda task: keys[task] or "")

    def _capacity(self, quantities: Quantities, otherwise: Ints) -> dict[str, Any]:
        try:
            values = resource_values(quantities)
        except QuantityError:
            return self.resource(otherwise, pods=True)
        return {
            "MilliCPU": values.pop(CPU, 0),
            "Memory": values.pop(MEMORY, 0),
            "ScalarResources": {name: value * to_volcanos_unit(name) for name, value in values.items()} or None,
            "MaxTaskNum": values.get(PODS, 0),
        }

    # --- jobs and queues --------------------------------------------------------------------------------------------

    def job(self, job: Job) -> Json:
        """Return a JobInfo with the job's current state and tasks."""
        session, group = self._session, job.record.group
        meta = group.metadata
        tasks = {task.uid: self.task(task) for task in job.tasks()}
        by_status: dict[str, dict[str, Json]] = {}
        for task in job.tasks():
            by_status.setdefault(str(1 << task.status), {})[task.uid] = tasks[task.uid]
        requests = np.array([task.request for task in job.tasks()], np.int64)
        requested = sum_of(requests.reshape(-1, len(session.nodes.resources)))  # works for a job without pods, too
        return _raw(
            {
                "UID": job.key,
                "PgUID": meta.uid,
                "Name": job.name,
                "Namespace": job.namespace,
                "Queue": job.queue.name,
                "Priority": job.priority,
                "MinAvailable": job.min_available,
                "WaitingTime": _waiting_time(meta.annotations),
                "JobFitErrors": "",
                "NodesFitErrors": {},
                "AllocatedHyperNode": "",
                "NetworkTopology": None,
                "SubJobs": {},
                "TaskToSubJob": {},
                "MinSubJobs": {},
                "TaskStatusIndex": by_status,
                "Tasks": tasks,
                "TaskMinAvailable": job.role_minima,
                "TaskMinAvailableTotal": job.role_total,
                "Allocated": self.resource(job.allocated),
                "TotalRequest": self.resource(requested),
                "CreationTimestamp": meta.creation_timestamp,
                "PodGroup": _group(group, job),
                "ScheduleStartTimestamp": None,
                "Preemptable": is_preemptable(group, unsaid=False),
                "RevocableZone": ANY_ZONE if uses_zones(group) else "",
                "Budget": _budget(meta.annotations),
            }
        )

    def queue(self, queue: Queue) -> Json:
        """Return a QueueInfo."""
        found = queue.record.queue
        return _raw(
            {
                "UID": queue.name,
                "Name": queue.name,
                "Weight": queue.weight,
                "Weights": found.metadata.annotations.get(HIERARCHY_WEIGHTS, ""),
                "Hierarchy": found.metadata.annotations.get(HIERARCHY, ""),
                "Queue": found,
            }
        )

    def everything(self) -> dict[str, Any]:
        """Return the session as an OnSessionOpenRequest."""
        session = self._session
        nodes = {name: self.node(row) for row, name in enumerate(self._facts.names)}
        zones = [node.metadata.labels.get(ZONE) for node in self._facts.nodes]
        return {
            "Jobs": {job.key: self.job(job) for job in session.all_jobs()},
            "Nodes": nodes,
            "Queues": {queue.name: self.queue(queue) for queue in session.queue_list},
            "NamespaceInfo": _namespaces(session.snapshot.others.get("ResourceQuota", {})),
            "RevocableNodes": {name: nodes[name] for name, zone in zip(self._facts.names, zones, strict=True) if zone},
            "NodeList": None,
        }

    def resource(self, values: Iterable[int], there: Any = None, *, pods: bool = False) -> dict[str, Any]:
        """Return a Resource of quantities in the session's order, with scalars that are not 0 or are ``there``."""
        amounts = dict(zip(self._session.nodes.resources, (int(value) for value in values), strict=True))
        named = dict(zip(amounts, there, strict=True)) if there is not None else {}
        scalars = {
            name: amount * to_volcanos_unit(name)
            for name, amount in amounts.items()
            if name not in (CPU, MEMORY) and (amount or named.get(name, False))
        }
        return {
            "MilliCPU": amounts.get(CPU, 0),
            "Memory": amounts.get(MEMORY, 0),
            "ScalarResources": scalars or None,
            "MaxTaskNum": amounts.get(PODS, 0) if pods else 0,
        }


_EMPTY: dict[str, Any] = {"MilliCPU": 0, "Memory": 0, "ScalarResources": None, "MaxTaskNum": 0}


def encode(request: Mapping[str, Any]) -> bytes:
    """Encode a request; equal requests have equal bytes."""
    return _json.encode(request)


def _raw(value: Any) -> Json:
    return msgspec.Raw(_json.encode(value))


def _waiting_time(annotations: Mapping[str, str]) -> int | None:
    for key in WAITING_TIMES:
        try:
            waiting = parse_duration(annotations.get(key, ""))
        except ValueError:
            continue
        if waiting > 0:
            return waiting
    return None


def _budget(annotations: Mapping[str, str]) -> dict[str, str]:
    least = annotations.get(MIN_AVAILABLE)
    most = annotations.get(MAX_UNAVAILABLE, "") if least is None else ""
    return {"MinAvailable": least or "", "MaxUnavailable": most}


def _group(group: PodGroup, job: Job) -> dict[str, Any]:
    """Return the group with its phase in the session."""
    encoded: dict[str, Any] = msgspec.to_builtins(group)
    encoded["status"] = {**encoded.get("status", {}), "phase": job.phase.text}
    return {**encoded, "Version": "v1beta1"}


def _namespaces(quotas: Mapping[str, Object]) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {}
    for key in sorted(quotas):
        namespace, _, name = key.partition("/")
        status = getattr(quotas[key], "status", None)
        found.setdefault(namespace, {})[name] = status
    return {namespace: {"Name": namespace, "QuotaStatus": statuses} for namespace, statuses in found.items()}


def _usage(time: str, average: tuple[float, float] | None) -> dict[str, Any]:
    cpu, memory = ({_PERIOD: average[0]}, {_PERIOD: average[1]}) if average is not None else (None, None)
    return {"MetricsTime": time, "CPUUsageAvg": cpu, "MEMUsageAvg": memory}


def _usage_of(session: Session) -> dict[str, dict[str, Any]]:
    answer = session.snapshot.answers.get(USAGE)
    if answer is None:
        return {}
    try:
        samples = read_samples(answer)
    except UsageError:
        return {}
    time = datetime.fromtimestamp(samples.at // 1_000_000_000, UTC).isoformat().replace("+00:00", "Z")
    return {name: _usage(time, (node.cpu, node.memory)) for name, node in samples.nodes.items()}

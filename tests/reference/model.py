"""The cluster as plain objects: tasks, jobs, nodes, queues, made from manifests."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tests.reference.values import CPU, MEMORY, PODS, Resource, is_scalar_name, quantity, whole

GROUP_KEYS = ("scheduling.k8s.io/group-name",)
TASK_SPEC = "volcano.sh/task-spec"
TASK_PRIORITY = "volcano.sh/task-priority"
QUEUE_KEY = "scheduling.volcano.sh/queue-name"
CARD_NAME = "volcano.sh/card.name"
QUEUE_GATE = "scheduling.volcano.sh/queue-allocation-gate"
DEFAULT_QUEUE = "default"
ROOT_QUEUE = "root"
EPOCH = datetime.datetime.min.replace(tzinfo=datetime.UTC)

ALLOCATED = ("Bound", "Binding", "Running", "Allocated")
READY = (*ALLOCATED, "Succeeded")

Manifest = dict[str, Any]
Quantities = dict[str, Fraction]


def meta(manifest: Manifest) -> dict[str, Any]:
    return manifest.get("metadata") or {}


def annotations_of(manifest: Manifest) -> dict[str, str]:
    return meta(manifest).get("annotations") or {}


def labels(manifest: Manifest) -> dict[str, str]:
    return meta(manifest).get("labels") or {}


def key_of(manifest: Manifest) -> str:
    return f"{meta(manifest).get('namespace') or 'default'}/{meta(manifest).get('name')}"


def created(manifest: Manifest) -> datetime.datetime:
    text = meta(manifest).get("creationTimestamp")
    if not text:
        return EPOCH
    if isinstance(text, datetime.datetime):
        return text if text.tzinfo else text.replace(tzinfo=datetime.UTC)
    return datetime.datetime.fromisoformat(str(text).replace("Z", "+00:00"))


def quantities(raw: dict[str, Any] | None) -> Quantities:
    return {name: quantity(value) for name, value in (raw or {}).items()}


def restartable(container: dict[str, Any]) -> bool:
    return container.get("restartPolicy") == "Always"


@dataclass(eq=False)
class Task:
    """A pod. `status` and `node` change while the session goes on."""

    pod: Manifest
    key: str
    uid: str
    job: str
    role: str
    priority: int
    request: Resource
    status: str
    node: str
    gated: bool
    gated_by_queue_only: bool
    best_effort: bool
    too_large: bool = False
    waits_in_vain: bool = False
    needs_no_room: bool = False
    """Whether it counts as ready while it is pending: it asks for nothing, and no gate holds it."""
    evicted: bool = False

    @property
    def holds_nothing(self) -> bool:
        return self.gated and (self.waits_in_vain or not self.gated_by_queue_only)

    @property
    def name(self) -> str:
        return str(meta(self.pod).get("name"))

    @property
    def namespace(self) -> str:
        return self.key.split("/", 1)[0]

    @property
    def spec(self) -> dict[str, Any]:
        return self.pod.get("spec") or {}

    @property
    def labels(self) -> dict[str, str]:
        return labels(self.pod)

    @property
    def index(self) -> int | None:
        """The pod's number within its task, from a name of three or more parts."""
        parts = self.name.split("-")
        if len(parts) < 3 or not parts[-1].lstrip("+").isdigit():
            return None
        return int(parts[-1])


@dataclass(eq=False)
class Job:
    """A pod group and its tasks."""

    key: str
    group: Manifest
    queue: str
    phase: str
    priority: int
    min_available: int
    task_minima: dict[str, int]
    min_resources: Quantities | None
    tasks: list[Task] = field(default_factory=list)
    fit_errors: dict[str, dict[str, int]] = field(default_factory=dict)
    failed_roles: set[str] = field(default_factory=set)
    failed_kinds: list[Any] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    too_large: bool = False
    broken: bool = False
    opened_with_pending: bool = False

    def having(self, *statuses: str) -> list[Task]:
        return [task for task in self.tasks if task.status in statuses]

    @property
    def allocated(self) -> Resource:
        return total(task.request for task in self.having(*ALLOCATED))

    @property
    def min_request(self) -> Resource:
        return Resource() if self.min_resources is None else Resource.of(self.min_resources)

    @property
    def ready_count(self) -> int:
        return len(self.having(*READY))

    @property
    def pending_best_effort(self) -> int:
        return sum(task.needs_no_room for task in self.having("Pending"))

    @property
    def waiting_count(self) -> int:
        return len(self.having("Pipelined"))

    @property
    def is_ready(self) -> bool:
        return self.ready_count + self.pending_best_effort >= self.min_available

    @property
    def is_pending(self) -> bool:
        return self.phase in ("", "Pending")

    @property
    def checks_roles(self) -> bool:
        """Task minima bind only while the job asks for at least their sum."""
        return self.min_available >= sum(self.task_minima.values())

    def has_enough_of_each_role(self, *statuses: str) -> bool:
        """Whether tasks of these statuses, and best-effort ones that wait, are each role's minimum."""
        if not self.checks_roles:
            return True
        placed = self.having(*statuses) + [task for task in self.having("Pending") if task.needs_no_room]
        return all(sum(task.role == role for task in placed) >= least for role, least in self.task_minima.items())

    def without_gated(self, amount: Resource, nowhere: frozenset[str] = frozenset()) -> Resource:
        """amount less what tasks ask for that are behind gates that nobody will lift, or that no node could hold or
        takes (``nowhere``), not below zero; nothing for a group that no node could hold."""
        if self.too_large:
            return Resource()
        gated = total(
            t.request
            for t in self.tasks
            if t.too_large or t.waits_in_vain or (t.gated and not t.gated_by_queue_only) or t.key in nowhere
        )
        if gated.is_empty():
            return amount
        out = Resource(max(amount.cpu - gated.cpu, 0), max(amount.memory - gated.memory, 0))
        if amount.scalars is not None:
            out.scalars = {
                n: max(v - gated.get(n), 0) if n in (gated.scalars or {}) else v for n, v in amount.scalars.items()
            }
        return out

    def outstanding(self) -> Resource:
        """minResources less what the job has, not below zero."""
        minimum, has, out = self.min_request, self.allocated, Resource()
        for name in self.min_resources or {}:
            if name in (CPU, MEMORY):
                left = max(minimum.get(name) - has.get(name), 0)
                out.cpu, out.memory = (left, out.memory) if name == CPU else (out.cpu, left)
            elif name == PODS or is_scalar_name(name):
                left = minimum.get(name) - has.get(name)
                if left > 0 or (name != PODS and name not in (has.scalars or {})):
                    out.add_scalar(name, left)
        return out


@dataclass(eq=False)
class Node:
    """A node and what is on it; tasks by key, with the status under which each was added."""

    name: str
    manifest: Manifest
    allocatable: Resource
    max_pods: int
    listed: Quantities
    used: Resource = field(default_factory=Resource)
    releasing: Resource = field(default_factory=Resource)
    pipelined: Resource = field(default_factory=Resource)
    tasks: dict[str, tuple[Task, str]] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, str]:
        return labels(self.manifest)

    @property
    def spec(self) -> dict[str, Any]:
        return self.manifest.get("spec") or {}

    @property
    def idle(self) -> Resource:
        return self.allocatable.clone().sub(self.used)

    @property
    def future_idle(self) -> Resource:
        return self.idle.add(self.releasing).sub(self.pipelined)

    def pods(self) -> list[Task]:
        """The tasks on it, but for those that were evicted in this session."""
        return [task for _, (task, _) in sorted(self.tasks.items()) if not task.evicted]

    def add(self, task: Task) -> None:
        self.tasks[task.key] = (task, task.status)
        self._account(task, task.status, 1)

    def remove(self, task: Task) -> None:
        _, status = self.tasks.pop(task.key)
        self._account(task, status, -1)

    def _account(self, task: Task, status: str, sign: int) -> None:
        change = task.request.clone().multiply(sign)
        if status == "Pipelined":
            self.pipelined.add(change)
            return
        if status == "Releasing":
            self.releasing.add(change)
        self.used.add(change)


@dataclass(eq=False)
class Queue:
    """A queue; its name is its identity."""

    name: str
    manifest: Manifest
    weight: int
    priority: int
    open: bool
    capability: Resource | None
    guarantee: Resource | None


@dataclass
class Cluster:
    """All objects, by kind and key."""

    tasks: dict[str, Task]
    jobs: dict[str, Job]
    orphans: dict[str, str]
    nodes: dict[str, Node]
    queues: dict[str, Queue]
    objects: dict[str, dict[str, Manifest]]

    def find(self, kind: str, key: str) -> Manifest | None:
        return self.objects.get(kind, {}).get(key)

    def all(self, kind: str) -> list[Manifest]:
        return [manifest for _, manifest in sorted(self.objects.get(kind, {}).items())]


def judge_gates(cluster: Cluster) -> None:
    """Mark pending pods at the queue's gate that do not ask for it to be lifted; who asks for nothing needs no room
    unless a gate holds it."""
    for job in cluster.jobs.values():
        for task in job.having("Pending"):
            task.needs_no_room = task.best_effort and not task.gated
            task.waits_in_vain = task.gated and annotations_of(task.pod).get(QUEUE_GATE) != "true"


def judge_sizes(cluster: Cluster) -> None:
    """Mark pending pods that no node could hold were it empty, and the groups that cannot have their minimum so."""
    for job in cluster.jobs.values():
        for task in job.having("Pending"):
            task.too_large = bool(cluster.nodes) and not any(
                _is_as_large(n, task.request) for n in cluster.nodes.values()
            )
        rest = [task for task in job.having(*READY, "Pending") if not task.too_large]
        job.too_large = any(task.too_large for task in job.tasks) and len(rest) < max(1, job.min_available)
        if not job.tasks and cluster.nodes and _is_of_volcano_job(job.group):
            largest = Resource()
            for node in cluster.nodes.values():
                largest.set_max(node.allocatable)
            wanted, members = job.min_request, max(1, job.min_available)
            job.too_large = any(wanted.get(n) > members * largest.get(n) for n in wanted.names() if n != PODS)


def _is_as_large(node: Node, wanted: Resource) -> bool:
    return all(node.allocatable.get(name) >= wanted.get(name) for name in wanted.names() if name != PODS)


def _is_of_volcano_job(group: Manifest) -> bool:
    owners = meta(group).get("ownerReferences") or []
    return any(o.get("kind") == "Job" and str(o.get("apiVersion")).startswith("batch.volcano.sh/") for o in owners)


def total(parts: Iterable[Resource]) -> Resource:
    out = Resource()
    for part in parts:
        out.add(part)
    return out


def build(manifests: Iterable[Manifest], *, makes_default: bool = True) -> Cluster:
    """Sort manifests into a cluster, as a session sees it when it opens; ``makes_default`` where the scheduler begins
    on them, which makes the default queue if it is missing."""
    objects = _by_kind(manifests)
    cluster = Cluster({}, {}, {}, {}, {}, objects)
    cluster.queues = {meta(q)["name"]: _queue(q) for q in cluster.all("Queue")}
    for name in (DEFAULT_QUEUE, ROOT_QUEUE):
        if name not in cluster.queues and (makes_default or name == ROOT_QUEUE):
            cluster.queues[name] = _queue({"metadata": {"name": name}, "spec": {"weight": 1}})
    cluster.nodes = {meta(n)["name"]: _node(n) for n in cluster.all("Node")}
    groups = dict(sorted(objects.get("PodGroup", {}).items()))
    for pod in cluster.all("Pod"):
        task = _task(pod)
        if not task.job and (task.status == "Pending" or task.spec.get("schedulerName") == "volcano"):
            group = _implied_group(pod, task)
            task.job = key_of(group)
            groups.setdefault(task.job, group)
        cluster.tasks[task.key] = task
        if task.node in cluster.nodes and task.status not in ("Succeeded", "Failed"):
            cluster.nodes[task.node].add(task)
    for key, group in sorted(groups.items()):
        job = _job(cluster, key, group)
        if job.queue in cluster.queues:
            job.tasks = [task for _, task in sorted(cluster.tasks.items()) if task.job == key]
            job.opened_with_pending = bool(job.having("Pending"))
            cluster.jobs[key] = job
        else:
            cluster.orphans[key] = job.phase
    return cluster


def pod_requests(
    pod: Manifest, use_status: bool, missing: Quantities | None = None, pod_level: bool = True
) -> Quantities:
    """The pod's total request; `missing` is what a container asks for that says nothing of a resource."""
    spec, statuses = pod.get("spec") or {}, _container_statuses(pod) if use_status else {}

    def asked(container: dict[str, Any], with_status: bool) -> Quantities:
        resources = container.get("resources") or {}
        own = quantities({**(resources.get("limits") or {}), **(resources.get("requests") or {})})
        status = statuses.get(str(container.get("name"))) if with_status else None
        if status and status.get("resources") is not None:
            lists = [quantities(status["resources"].get("requests")), quantities(status.get("allocatedResources"))]
            own = _largest(lists if _resize_infeasible(pod) else [own, *lists])
        return {**(missing or {}), **own}

    out: Quantities = {}
    for container in spec.get("containers") or []:
        _add(out, asked(container, True))
    sidecars: Quantities = {}
    peak: Quantities = {}
    for container in spec.get("initContainers") or []:
        wanted = asked(container, restartable(container))
        if restartable(container):
            _add(out, wanted)
            _add(sidecars, wanted)
            wanted = sidecars
        else:
            wanted = _add(dict(wanted), sidecars)
        peak = _largest([peak, wanted])
    out = _largest([out, peak])
    for name, value in quantities((spec.get("resources") or {}).get("requests")).items():
        if pod_level and (name in (CPU, MEMORY) or name.startswith("hugepages-")):
            out[name] = value
    return _add(out, quantities(spec.get("overhead")))


def claim_names(pod: Manifest) -> list[tuple[str, bool]]:
    """The claims of a pod's volumes in order, and whether each is the pod's own (generic ephemeral)."""
    found = []
    for volume in (pod.get("spec") or {}).get("volumes") or []:
        if volume.get("persistentVolumeClaim") is not None:
            found.append((volume["persistentVolumeClaim"].get("claimName") or "", False))
        elif volume.get("ephemeral") is not None:
            found.append((f"{meta(pod)['name']}-{volume['name']}", True))
    return found


def storage_class_of(claim_or_volume: Manifest) -> str:
    beta = annotations_of(claim_or_volume).get("volume.beta.kubernetes.io/storage-class")
    return beta if beta is not None else (claim_or_volume.get("spec") or {}).get("storageClassName") or ""


def _by_kind(manifests: Iterable[Manifest]) -> dict[str, dict[str, Manifest]]:
    cluster_wide = {
        "Node",
        "Queue",
        "PriorityClass",
        "PersistentVolume",
        "StorageClass",
        "CSINode",
        "CSIDriver",
        "Namespace",
    }
    found: dict[str, dict[str, Manifest]] = {}
    for manifest in manifests:
        kind = manifest["kind"]
        key = meta(manifest)["name"] if kind in cluster_wide else key_of(manifest)
        found.setdefault(kind, {})[key] = manifest
    return found


def _queue(manifest: Manifest) -> Queue:
    spec = manifest.get("spec") or {}
    guarantee = (spec.get("guarantee") or {}).get("resource")
    return Queue(
        name=meta(manifest)["name"],
        manifest=manifest,
        weight=int(spec.get("weight", 1)),
        priority=int(spec.get("priority") or 0),
        open=((manifest.get("status") or {}).get("state") or "Open") == "Open",
        capability=Resource.of(quantities(spec["capability"])) if spec.get("capability") else None,
        guarantee=Resource.of(quantities(guarantee)) if guarantee else None,
    )


def _node(manifest: Manifest) -> Node:
    status = manifest.get("status") or {}
    listed = quantities(status["allocatable"] if status.get("allocatable") is not None else status.get("capacity"))
    name = meta(manifest)["name"]
    allocatable = Resource.of(listed)
    marks = annotations_of(manifest)
    allocatable.cpu += _float(marks.get("volcano.sh/oversubscription-cpu"))
    allocatable.memory += _float(marks.get("volcano.sh/oversubscription-memory"))
    return Node(name, manifest, allocatable, whole(listed.get(PODS, Fraction(0))), listed)


def _task(pod: Manifest) -> Task:
    request = Resource.of(pod_requests(pod, use_status=True))
    request.add_scalar(PODS, 1)
    spec, key = pod.get("spec") or {}, key_of(pod)
    group = next((annotations_of(pod)[k] for k in GROUP_KEYS if annotations_of(pod).get(k)), "")
    gates = spec.get("schedulingGates") or []
    return Task(
        pod=pod,
        key=key,
        uid=str(meta(pod).get("uid") or ""),
        job=f"{key.split('/', 1)[0]}/{group}" if group else "",
        role=annotations_of(pod).get(TASK_SPEC) or labels(pod).get(TASK_SPEC) or "",
        priority=_task_priority(pod),
        request=request,
        status=_status(pod),
        node=spec.get("nodeName") or "",
        gated=bool(gates),
        gated_by_queue_only=len(gates) == 1 and gates[0].get("name") == QUEUE_GATE,
        best_effort=request.is_empty(),
        needs_no_room=request.is_empty(),
    )


def _job(cluster: Cluster, key: str, group: Manifest) -> Job:
    spec = group.get("spec") or {}
    minima = {role: int(count) for role, count in (spec.get("minTaskMember") or {}).items()}
    return Job(
        key=key,
        group=group,
        queue=spec.get("queue") or DEFAULT_QUEUE,
        phase=(group.get("status") or {}).get("phase") or "",
        priority=_job_priority(cluster, spec.get("priorityClassName") or ""),
        min_available=int(spec.get("minMember") or 0),
        task_minima=minima,
        min_resources=None if spec.get("minResources") is None else quantities(spec["minResources"]),
    )


def _implied_group(pod: Manifest, task: Task) -> Manifest:
    """The group that Volcano's controller makes for a pod without one."""
    owners = [o for o in meta(pod).get("ownerReferences") or [] if o.get("controller")]
    identity = str(owners[0].get("uid")) if owners else task.uid or task.name
    requests = pod_requests(pod, use_status=True)
    minimum = {n: str(v) for n, v in requests.items() if n in (CPU, MEMORY, "ephemeral-storage")}
    return {
        "kind": "PodGroup",
        "metadata": {
            "name": f"podgroup-{identity}",
            "namespace": task.namespace,
            "creationTimestamp": meta(pod).get("creationTimestamp"),
            "annotations": {k: v for k, v in annotations_of(pod).items() if k.startswith("volcano.sh/")},
        },
        "spec": {
            "minMember": 1,
            "queue": annotations_of(pod).get(QUEUE_KEY) or "",
            "priorityClassName": task.spec.get("priorityClassName") or "",
            "minResources": {**{n: _exact(requests[n]) for n in minimum}, PODS: "1"},
        },
        "status": {"phase": "Pending"},
    }


def _exact(value: Fraction) -> str:
    return f"{(value * 10**9).numerator // (value * 10**9).denominator}n"


def _task_priority(pod: Manifest) -> int:
    text = annotations_of(pod).get(TASK_PRIORITY)
    if text is not None:
        try:
            value = int(text)
        except ValueError:
            value = 2**31
        if -(2**31) <= value < 2**31:
            return value
    priority = (pod.get("spec") or {}).get("priority")
    return 1 if priority is None else int(priority)


def _job_priority(cluster: Cluster, name: str) -> int:
    found = cluster.find("PriorityClass", name)
    if found is None:
        found = next((c for c in reversed(cluster.all("PriorityClass")) if c.get("globalDefault")), {})
    return int(found.get("value") or 0)


def _status(pod: Manifest) -> str:
    phase = (pod.get("status") or {}).get("phase") or "Pending"
    if phase in ("Running", "Pending"):
        if meta(pod).get("deletionTimestamp"):
            return "Releasing"
        if phase == "Running":
            return "Running"
        return "Bound" if (pod.get("spec") or {}).get("nodeName") else "Pending"
    return phase if phase in ("Succeeded", "Failed") else "Unknown"


def _container_statuses(pod: Manifest) -> dict[str, dict[str, Any]]:
    status = pod.get("status") or {}
    both = (status.get("containerStatuses") or []) + (status.get("initContainerStatuses") or [])
    return {item["name"]: item for item in both}


def _resize_infeasible(pod: Manifest) -> bool:
    for condition in (pod.get("status") or {}).get("conditions") or []:
        if condition.get("type") == "PodResizePending":
            return bool(condition.get("reason") == "Infeasible")
    return False


def _add(target: Quantities, more: Quantities) -> Quantities:
    for name, value in more.items():
        target[name] = target.get(name, Fraction(0)) + value
    return target


def _largest(lists: list[Quantities]) -> Quantities:
    out: Quantities = {}
    for items in lists:
        for name, value in items.items():
            out[name] = max(out.get(name, value), value)
    return out


def _float(text: str | None) -> float:
    try:
        return float(text) if text is not None else 0
    except ValueError:
        return 0

"""What Kubernetes' and Volcano's controllers create from workloads, as plain manifests: pods, groups, annotations.

Sources: Volcano ``pkg/controllers/job``, ``pkg/controllers/podgroup``, ``pkg/controllers/queue`` and
``pkg/webhooks/admission/jobs``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

Manifest = dict[str, Any]
PriorityOf = Callable[[str], int]

GROUP_NAME: Final = "scheduling.k8s.io/group-name"
JOB_NAME: Final = "volcano.sh/job-name"
JOB_NAMESPACE: Final = "volcano.sh/job-namespace"
JOB_VERSION: Final = "volcano.sh/job-version"
TASK_SPEC: Final = "volcano.sh/task-spec"
PARTITION: Final = "volcano.sh/partition-id"
DEFAULT_MAX_RETRY: Final = 3
_TASK_INDEX: Final = "volcano.sh/task-index"
_JOB_RETRY: Final = "volcano.sh/job-retry-count"
_QUEUE_NAME: Final = "volcano.sh/queue-name"
_TEMPLATE: Final = "volcano.sh/template-uid"
_NUMA_POLICY: Final = "volcano.sh/numa-topology-policy"
POD_LABELS: Final = ("volcano.sh/preemptable", "volcano.sh/cooldown-time")
_ANNOTATIONS: Final = (*POD_LABELS, "volcano.sh/revocable-zone")
_BUDGETS: Final = ("volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable")
POD_ANNOTATIONS: Final = (*_ANNOTATIONS, *_BUDGETS)
"""Volcano's annotations that are copied from a pod to its group."""
_MIN_MEMBER: Final = "scheduling.volcano.sh/group-min-member"
_TOPOLOGY_MODE: Final = "volcano.sh/network-topology-mode"
_TOPOLOGY_TIER: Final = "volcano.sh/network-topology-highest-tier"


def controller_reference(owner: Manifest) -> Manifest:
    """Return the owner reference that makes ``owner`` the controller of another object."""
    return {
        "apiVersion": owner.get("apiVersion", ""),
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_of_template(owner: Manifest, template: Manifest) -> Manifest:
    """Create a pod from a template, controlled by ``owner``; it has no name yet."""
    meta = template.get("metadata") or {}
    copied = {field: meta[field] for field in ("labels", "annotations", "finalizers") if meta.get(field)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **copied,
            "namespace": owner["metadata"]["namespace"],
            "ownerReferences": [controller_reference(owner)],
        },
        "spec": dict(template.get("spec") or {}),
    }


# --- groups for pods without one --------------------------------------------------------------------------------------


def min_member(annotations: Mapping[str, Any], otherwise: int = 1) -> int:
    """Return the workload's minimum number of members by annotation; ``otherwise`` if it is missing or invalid."""
    return _parse_small(str(annotations.get(_MIN_MEMBER, "")), otherwise)


def topology_of(annotations: Mapping[str, str]) -> Manifest:
    """Return the network topology that a pod requests by annotation; empty if it requests none."""
    mode, tier = annotations.get(_TOPOLOGY_MODE), annotations.get(_TOPOLOGY_TIER)
    if mode is None and tier is None:
        return {}
    wanted: Manifest = {"mode": "soft" if (mode or "").lower() == "soft" else "hard"}
    highest = _parse_small(tier or "", -1)
    return wanted if highest < 0 else {**wanted, "highestTierAllowed": highest}


def _parse_small(text: str, otherwise: int) -> int:
    """Parse a number of at most nine digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else otherwise


# --- queues -----------------------------------------------------------------------------------------------------------

OPEN, CLOSED, CLOSING, UNKNOWN = "Open", "Closed", "Closing", "Unknown"
SHUT: Final = (CLOSED, CLOSING)
OPEN_AGAIN, CLOSE = "OpenQueue", "CloseQueue"
CLOSED_BY_PARENT: Final = "volcano.sh/closed-by-parent"
_COUNTED: Final = ("Pending", "Running", "Unknown", "Inqueue", "Completed")


def state_after(state: str, action: str, groups: int) -> str:
    """Return the state of a queue after an action (OpenQueue, CloseQueue, or anything else for a check).

    A queue that is closed while it has groups is Closing until the last one is deleted.
    """
    shut = CLOSING if groups else CLOSED
    if action == OPEN_AGAIN:
        return OPEN
    if action == CLOSE:
        return CLOSED if state == CLOSED else shut
    if state in ("", OPEN):
        return OPEN
    if state == CLOSING:
        return shut
    return state if state == CLOSED else UNKNOWN


def action_of_parent(state: str, parent: str, annotations: Mapping[str, str]) -> str:
    """Return the action for an open queue, or one closed by its parent, that follows from the parent's state, or ""."""
    if parent in SHUT and state not in SHUT:
        return CLOSE
    was_closed_by_it = annotations.get(CLOSED_BY_PARENT) == "true"
    return OPEN_AGAIN if parent == OPEN and state in SHUT and was_closed_by_it else ""


def counts_by_phase(groups: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of a queue's groups by phase in the form of its status; ``groups`` has them by phase."""
    return {phase.lower(): groups.get(phase, 0) for phase in _COUNTED}


# --- the Volcano Job --------------------------------------------------------------------------------------------------


def tasks_of(job: Manifest) -> list[Manifest]:
    return job["spec"].get("tasks") or []


def total_replicas(job: Manifest) -> int:
    """Return the number of pods of all tasks."""
    return sum(task.get("replicas", 0) for task in tasks_of(job))


def task_minimum(task: Manifest) -> int:
    """Return how many pods of a task the gang needs: minAvailable, else the minimal partitions, else all replicas."""
    if task.get("minAvailable") is not None:
        return int(task["minAvailable"])
    partition = task.get("partitionPolicy") or {}
    return int(partition.get("minPartitions", 0) * partition.get("partitionSize", 0)) or int(task.get("replicas", 0))


def with_defaults(job: Manifest) -> Manifest:
    """Return a copy of the job with the defaults of Volcano's webhook and CRD.

    Queue ``default``, scheduler ``volcano``, three retries, names ``default<i>`` for tasks without one, and
    minAvailable: for a task its minimum, for the job the sum over its tasks.
    """
    spec = dict(job.get("spec") or {})
    spec["tasks"] = [_task_with_defaults(index, task) for index, task in enumerate(spec.get("tasks") or [])]
    spec["queue"] = spec.get("queue") or "default"
    spec["schedulerName"] = spec.get("schedulerName") or "volcano"
    spec["maxRetry"] = spec.get("maxRetry") or DEFAULT_MAX_RETRY
    spec["minAvailable"] = spec.get("minAvailable") or sum(task["minAvailable"] for task in spec["tasks"])
    return {**job, "spec": spec}


def _task_with_defaults(index: int, task: Manifest) -> Manifest:
    filled = {**task, "replicas": task.get("replicas", 0)}
    filled["name"] = task.get("name") or f"default{index}"
    filled["maxRetry"] = task.get("maxRetry") or DEFAULT_MAX_RETRY
    filled["minAvailable"] = task_minimum(filled)
    return filled


def pod_name(job: Manifest, task: str, index: int) -> str:
    """Return ``<job>-<task>-<index>``."""
    return f"{job['metadata']['name']}-{task}-{index}"


def group_name(job: Manifest) -> str:
    """Return ``<job>-<uid of the job>``."""
    return f"{job['metadata']['name']}-{job['metadata']['uid']}"


def pod_of_task(job: Manifest, task: Manifest, index: int) -> Manifest:
    """Create the pod of a task (defaults filled in) with an index, without what the job's volumes and plugins add."""
    pod = pod_of_template(job, task.get("template") or {})
    meta, spec = pod["metadata"], pod["spec"]
    meta.pop("finalizers", None)
    spec["schedulerName"] = spec.get("schedulerName") or job["spec"]["schedulerName"]
    if not spec.get("priorityClassName") and job["spec"].get("priorityClassName"):
        spec["priorityClassName"] = job["spec"]["priorityClassName"]
    meta["name"] = pod_name(job, task["name"], index)
    meta["labels"] = {**meta.get("labels", {}), **_labels(job, task, index)}
    meta["annotations"] = {**meta.get("annotations", {}), **_annotations(job, task, index)}
    return pod


def _labels(job: Manifest, task: Manifest, index: int) -> dict[str, str]:
    labels = {
        _TASK_INDEX: str(index),
        JOB_NAME: job["metadata"]["name"],
        TASK_SPEC: task["name"],
        JOB_NAMESPACE: job["metadata"]["namespace"],
        _QUEUE_NAME: job["spec"]["queue"],
    }
    given = job["metadata"].get("labels") or {}
    labels.update({key: given[key] for key in POD_LABELS if key in given})
    partition = task.get("partitionPolicy")
    if partition:
        labels[PARTITION] = str(index // max(1, partition.get("partitionSize", 1)))
    return labels


def _annotations(job: Manifest, task: Manifest, index: int) -> dict[str, str]:
    status = job.get("status") or {}
    marks = {
        _TASK_INDEX: str(index),
        TASK_SPEC: task["name"],
        GROUP_NAME: group_name(job),
        JOB_NAME: job["metadata"]["name"],
        _QUEUE_NAME: job["spec"]["queue"],
        JOB_VERSION: str(status.get("version", 0)),
        _TEMPLATE: f"{job['metadata']['name']}-{task['name']}",
        _JOB_RETRY: str(status.get("retryCount", 0)),
    }
    if task.get("topologyPolicy"):
        marks[_NUMA_POLICY] = task["topologyPolicy"]
    given = job["metadata"].get("annotations") or {}
    marks.update({key: given[key] for key in _ANNOTATIONS if key in given})
    budget = next((key for key in _BUDGETS if key in given), None)
    if budget:
        marks[budget] = given[budget]
    return marks


def group_of_job(job: Manifest, min_resources: dict[str, str]) -> Manifest:
    """Create the job's PodGroup, with the job's labels and annotations."""
    spec: Manifest = {"queue": job["spec"]["queue"], **group_wishes(job, min_resources)}
    if job["spec"].get("networkTopology"):
        spec["networkTopology"] = job["spec"]["networkTopology"]
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "namespace": job["metadata"]["namespace"],
            "name": group_name(job),
            "annotations": dict(job["metadata"].get("annotations") or {}),
            "labels": dict(job["metadata"].get("labels") or {}),
            "ownerReferences": [controller_reference(job)],
        },
        "spec": spec,
        "status": {"phase": "Pending"},
    }


def group_wishes(job: Manifest, min_resources: dict[str, str]) -> Manifest:
    """Return the part of the PodGroup's spec that follows the job when it is scaled."""
    spec = job["spec"]
    wishes: Manifest = {
        "minMember": spec["minAvailable"],
        "minTaskMember": {task["name"]: task_minimum(task) for task in tasks_of(job)},
        "minResources": min_resources,
    }
    if spec.get("priorityClassName"):
        wishes["priorityClassName"] = spec["priorityClassName"]
    policies = [_sub_group(task) for task in tasks_of(job) if task.get("partitionPolicy")]
    if policies:
        wishes["subGroupPolicy"] = policies
    return wishes


def _sub_group(task: Manifest) -> Manifest:
    partition = task["partitionPolicy"]
    policy = {
        "name": task["name"],
        "subGroupSize": partition["partitionSize"],
        "minSubGroups": partition.get("minPartitions", 0),
        "labelSelector": {"matchLabels": {TASK_SPEC: task["name"]}},
        "matchLabelKeys": [PARTITION],
    }
    return {**policy, **({"networkTopology": partition["networkTopology"]} if partition.get("networkTopology") else {})}


def least_pods(job: Manifest, priority_of: PriorityOf) -> list[tuple[Manifest, int]]:
    """Return for each task how many of its pods belong to the minimum with which the job runs; higher priority first.

    If minAvailable covers the tasks' own minima, these count first and other replicas fill up. Otherwise replicas count
    in order until there are minAvailable.
    """
    tasks = sorted(tasks_of(job), key=lambda task: -priority_of(template_spec(task).get("priorityClassName") or ""))
    wanted = job["spec"]["minAvailable"]
    minima = [task_minimum(task) for task in tasks]
    if wanted < sum(minima):
        counts = list(_take_in_order([task["replicas"] for task in tasks], wanted))
    else:
        spare = [task["replicas"] - least for task, least in zip(tasks, minima, strict=True)]
        more = _take_in_order(spare, wanted - sum(minima))
        counts = [least + extra for least, extra in zip(minima, more, strict=True)]
    return list(zip(tasks, counts, strict=True))


def _take_in_order(offers: Iterable[int], wanted: int) -> Iterator[int]:
    """Yield how much of each offer is taken, in order, until ``wanted`` is reached."""
    for offer in offers:
        given = min(offer, wanted)
        wanted -= given
        yield given


def template_spec(task: Manifest) -> Manifest:
    """Return the spec of the task's pods."""
    return (task.get("template") or {}).get("spec") or {}

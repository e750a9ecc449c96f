"""The pods and the PodGroup that a Volcano Job asks for: how they are named, marked and counted."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from vcd.embedded.controllers.base import Obj, annotations_of, controller_reference, labels_of
from vcd.embedded.controllers.jobspec import task_minimum, tasks_of
from vcd.embedded.controllers.pods import add_quotas, phase_of, quota_usage

TASK_SPEC: Final = "volcano.sh/task-spec"
TASK_INDEX: Final = "volcano.sh/task-index"
JOB_NAME: Final = "volcano.sh/job-name"
JOB_NAMESPACE: Final = "volcano.sh/job-namespace"
JOB_VERSION: Final = "volcano.sh/job-version"
JOB_RETRY: Final = "volcano.sh/job-retry-count"
QUEUE_NAME: Final = "volcano.sh/queue-name"
TEMPLATE: Final = "volcano.sh/template-uid"
PARTITION: Final = "volcano.sh/partition-id"
NUMA_POLICY: Final = "volcano.sh/numa-topology-policy"
OUT_OF_SYNC: Final = "volcano.sh/controller-out-of-sync"
GROUP_NAME: Final = "scheduling.k8s.io/group-name"
_LABELS: Final = ("volcano.sh/preemptable", "volcano.sh/cooldown-time")
_ANNOTATIONS: Final = (*_LABELS, "volcano.sh/revocable-zone")
_BUDGETS: Final = ("volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable")
_INDEX_VARIABLES: Final = ("VC_TASK_INDEX", "VK_TASK_INDEX")

PriorityOf = Callable[[str], int]


def pod_name(job: Obj, task: str, index: int) -> str:
    """``<job>-<task>-<index>``."""
    return f"{job['metadata']['name']}-{task}-{index}"


def group_name(job: Obj) -> str:
    """``<job>-<uid of the job>``."""
    return f"{job['metadata']['name']}-{job['metadata']['uid']}"


def claim_name(job: Obj, volume: Obj) -> str:
    """The claim of one of the job's volumes: the one that it names, or ``<job>-pvc-<hash>`` for one of its own."""
    named = volume.get("volumeClaimName")
    if named:
        return str(named)
    digest = hashlib.sha256(f"{job['metadata']['uid']}{volume['mountPath']}".encode()).hexdigest()
    return f"{job['metadata']['name']}-pvc-{digest[:12]}"


def build_claim(job: Obj, volume: Obj) -> Obj:
    """The claim that the job makes for a volume with a ``volumeClaim``."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "namespace": job["metadata"]["namespace"],
            "name": claim_name(job, volume),
            "ownerReferences": [controller_reference(job)],
        },
        "spec": dict(volume["volumeClaim"]),
    }


def is_out_of_sync(pod: Obj) -> bool:
    """Whether the controller itself takes this pod away, so that its end is no event for the job's policies."""
    return OUT_OF_SYNC in annotations_of(pod)


def build_pod(job: Obj, task: Obj, index: int) -> Obj:
    """The pod of a task with that index, with Volcano's labels and annotations."""
    template = task.get("template") or {}
    meta = template.get("metadata") or {}
    spec = dict(template.get("spec") or {})
    spec["schedulerName"] = spec.get("schedulerName") or job["spec"]["schedulerName"]
    if not spec.get("priorityClassName") and job["spec"].get("priorityClassName"):
        spec["priorityClassName"] = job["spec"]["priorityClassName"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": job["metadata"]["namespace"],
            "name": pod_name(job, task["name"], index),
            "labels": {**(meta.get("labels") or {}), **_labels(job, task, index)},
            "annotations": {**(meta.get("annotations") or {}), **_annotations(job, task, index)},
            "ownerReferences": [controller_reference(job)],
        },
        "spec": _with_volumes(job, spec),
    }
    return _with_plugins(job, pod, index)


def _labels(job: Obj, task: Obj, index: int) -> dict[str, str]:
    labels = {
        TASK_INDEX: str(index),
        JOB_NAME: job["metadata"]["name"],
        TASK_SPEC: task["name"],
        JOB_NAMESPACE: job["metadata"]["namespace"],
        QUEUE_NAME: job["spec"]["queue"],
    }
    labels.update({key: labels_of(job)[key] for key in _LABELS if key in labels_of(job)})
    partition = task.get("partitionPolicy")
    if partition:
        labels[PARTITION] = str(index // max(1, partition.get("partitionSize", 1)))
    return labels


def _annotations(job: Obj, task: Obj, index: int) -> dict[str, str]:
    status = job.get("status") or {}
    marks = {
        TASK_INDEX: str(index),
        TASK_SPEC: task["name"],
        GROUP_NAME: group_name(job),
        JOB_NAME: job["metadata"]["name"],
        QUEUE_NAME: job["spec"]["queue"],
        JOB_VERSION: str(status.get("version", 0)),
        TEMPLATE: f"{job['metadata']['name']}-{task['name']}",
        JOB_RETRY: str(status.get("retryCount", 0)),
    }
    if task.get("topologyPolicy"):
        marks[NUMA_POLICY] = task["topologyPolicy"]
    given = annotations_of(job)
    marks.update({key: given[key] for key in _ANNOTATIONS if key in given})
    budget = next((key for key in _BUDGETS if key in given), None)
    if budget:
        marks[budget] = given[budget]
    return marks


def _with_volumes(job: Obj, spec: Obj) -> Obj:
    """The pod's specification with the job's claims mounted in each container."""
    claims = {claim_name(job, volume): volume for volume in job["spec"].get("volumes") or []}
    if not claims:
        return spec
    names = {claim: f"{job['metadata']['name']}-volume-{index}" for index, claim in enumerate(claims)}
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": claim}} for claim, name in names.items()]
    mounts = [{"name": names[claim], "mountPath": volume["mountPath"]} for claim, volume in claims.items()]
    return {
        **spec,
        "volumes": [*(spec.get("volumes") or []), *volumes],
        "containers": [
            {**container, "volumeMounts": [*(container.get("volumeMounts") or []), *mounts]}
            for container in spec["containers"]
        ],
    }


def _with_plugins(job: Obj, pod: Obj, index: int) -> Obj:
    """What the job's plugins do to a pod: ``env`` tells it its index, ``svc`` gives it a name in the job's domain."""
    plugins = job["spec"].get("plugins") or {}
    spec = pod["spec"]
    if "svc" in plugins:
        spec = {
            **spec,
            "hostname": spec.get("hostname") or pod["metadata"]["name"],
            "subdomain": spec.get("subdomain") or job["metadata"]["name"],
        }
    if "env" in plugins:
        variables = [{"name": name, "value": str(index)} for name in _INDEX_VARIABLES]
        for field in ("containers", "initContainers"):
            if spec.get(field):
                spec = {**spec, field: [{**c, "env": [*(c.get("env") or []), *variables]} for c in spec[field]]}
    return {**pod, "spec": spec}


def build_group(job: Obj, priority_of: PriorityOf) -> Obj:
    """The job's PodGroup, with the job's labels and annotations."""
    spec: Obj = {"queue": job["spec"]["queue"], **group_wishes(job, priority_of)}
    topology = job["spec"].get("networkTopology")
    if topology:
        spec["networkTopology"] = topology
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "namespace": job["metadata"]["namespace"],
            "name": group_name(job),
            "annotations": dict(annotations_of(job)),
            "labels": dict(labels_of(job)),
            "ownerReferences": [controller_reference(job)],
        },
        "spec": spec,
        "status": {"phase": "Pending"},
    }


def group_wishes(job: Obj, priority_of: PriorityOf) -> Obj:
    """What of the PodGroup's specification follows the job when that is scaled."""
    spec = job["spec"]
    wishes: Obj = {
        "minMember": spec["minAvailable"],
        "minTaskMember": {task["name"]: task_minimum(task) for task in tasks_of(job)},
        "minResources": min_resources(job, priority_of),
    }
    if spec.get("priorityClassName"):
        wishes["priorityClassName"] = spec["priorityClassName"]
    policies = [_sub_group(task) for task in tasks_of(job) if task.get("partitionPolicy")]
    if policies:
        wishes["subGroupPolicy"] = policies
    return wishes


def _sub_group(task: Obj) -> Obj:
    partition = task["partitionPolicy"]
    policy = {
        "name": task["name"],
        "subGroupSize": partition["partitionSize"],
        "minSubGroups": partition.get("minPartitions", 0),
        "labelSelector": {"matchLabels": {TASK_SPEC: task["name"]}},
        "matchLabelKeys": [PARTITION],
    }
    return {**policy, **({"networkTopology": partition["networkTopology"]} if partition.get("networkTopology") else {})}


def min_resources(job: Obj, priority_of: PriorityOf) -> dict[str, str]:
    """What the least number of pods that the job can run with asks for, tasks of higher priority first.

    Where minAvailable covers the tasks' own minima, these count first and other replicas fill up; else replicas count
    in order until there are minAvailable.
    """
    tasks = sorted(tasks_of(job), key=lambda task: -priority_of(_template_spec(task).get("priorityClassName") or ""))
    wanted = job["spec"]["minAvailable"]
    minima = [task_minimum(task) for task in tasks]
    if wanted < sum(minima):
        counts = list(_taken([task["replicas"] for task in tasks], wanted))
    else:
        spare = [task["replicas"] - least for task, least in zip(tasks, minima, strict=True)]
        more = _taken(spare, wanted - sum(minima))
        counts = [least + extra for least, extra in zip(minima, more, strict=True)]
    return add_quotas(quota_usage(_template_spec(task), count) for task, count in zip(tasks, counts, strict=True))


def _taken(offers: Iterable[int], wanted: int) -> Iterator[int]:
    """How much each offer gives, in order, until there is as much as wanted."""
    for offer in offers:
        given = min(offer, wanted)
        wanted -= given
        yield given


def _template_spec(task: Obj) -> Obj:
    return (task.get("template") or {}).get("spec") or {}


def count_pods(job: Obj, pods: Iterable[Obj]) -> Obj:
    """The counts of a job's status: pods by phase, in all and by task; those on their way out count as terminating."""
    fields = {phase: phase.lower() for phase in ("Pending", "Running", "Succeeded", "Failed", "Unknown")}
    counts: dict[str, Any] = dict.fromkeys([*fields.values(), "terminating"], 0)
    by_task: dict[str, dict[str, int]] = {}
    for pod in pods:
        if pod["metadata"].get("deletionTimestamp"):
            counts["terminating"] += 1
            continue
        phase = phase_of(pod)
        counts[fields[phase]] += 1
        of_task = by_task.setdefault(annotations_of(pod).get(TASK_SPEC, ""), {})
        of_task[phase] = of_task.get(phase, 0) + 1
    counts["taskStatusCount"] = {task: {"phase": by_task[task]} for task in sorted(by_task)}
    counts["minAvailable"] = job["spec"]["minAvailable"]
    return counts

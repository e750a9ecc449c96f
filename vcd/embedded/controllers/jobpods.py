"""Builds the pods and claims of a Volcano Job with the additions of volumes and plugins, and counts its pods."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Final

from vcd.embedded.controllers.controller_base import Obj, annotations_of
from vcd.embedded.controllers.pod_properties import add_quotas, phase_of, quota_usage
from vcd.model.controllers import TASK_SPEC, PriorityOf, controller_reference, least_pods, pod_of_task, template_spec

OUT_OF_SYNC: Final = "volcano.sh/controller-out-of-sync"
_INDEX_VARIABLES: Final = ("VC_TASK_INDEX", "VK_TASK_INDEX")


def claim_name(job: Obj, volume: Obj) -> str:
    """Return the name of a volume's claim: the stated one, or ``<job>-pvc-<hash>`` for one that the job creates."""
    named = volume.get("volumeClaimName")
    if named:
        return str(named)
    digest = hashlib.sha256(f"{job['metadata']['uid']}{volume['mountPath']}".encode()).hexdigest()
    return f"{job['metadata']['name']}-pvc-{digest[:12]}"


def build_claim(job: Obj, volume: Obj) -> Obj:
    """Return the claim that the job creates for a volume with a ``volumeClaim``."""
    return {
        "metadata": {
            "namespace": job["metadata"]["namespace"],
            "name": claim_name(job, volume),
            "ownerReferences": [controller_reference(job)],
        },
        "spec": dict(volume["volumeClaim"]),
    }


def is_out_of_sync(pod: Obj) -> bool:
    """Return whether the controller itself deleted this pod, so that its end causes no policy event."""
    return OUT_OF_SYNC in annotations_of(pod)


def build_pod(job: Obj, task: Obj, index: int) -> Obj:
    """Return the pod of a task with that index, with the job's claims and the additions of its plugins."""
    pod = pod_of_task(job, task, index)
    return _with_plugins(job, {**pod, "spec": _with_volumes(job, pod["spec"])}, index)


def _with_volumes(job: Obj, spec: Obj) -> Obj:
    """Return the pod's spec with the job's claims mounted in each container."""
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
    """Apply the job's plugins: ``env`` sets variables with the index, ``svc`` sets a name in the job's domain."""
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


def min_resources(job: Obj, priority_of: PriorityOf) -> dict[str, str]:
    """Return the quota usage of the smallest number of pods with which the job can run."""
    return add_quotas(quota_usage(template_spec(task), count) for task, count in least_pods(job, priority_of))


def count_pods(job: Obj, pods: Iterable[Obj]) -> Obj:
    """Return the counts of a job's status: pods by phase, in total and by task; terminating pods count separately."""
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

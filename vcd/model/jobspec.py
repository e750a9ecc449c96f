"""Validation of the Volcano Job as in its webhook. Source: Volcano ``pkg/webhooks/admission/jobs/validate``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from vcd.model.controllers import Manifest, total_replicas

EVENTS: Final = ("*", "PodFailed", "PodEvicted", "PodPending", "Unknown", "TaskCompleted", "TaskFailed")
ACTIONS: Final = (
    "AbortJob",
    "RestartJob",
    "RestartTask",
    "RestartPod",
    "RestartPartition",
    "TerminateJob",
    "CompleteJob",
    "ResumeJob",
)
PLUGINS: Final = ("env", "hcclrank", "mpi", "pytorch", "ray", "ssh", "svc", "tensorflow")

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration_seconds(text: str) -> float:
    """Return the seconds of a Go duration such as ``1h30m`` or ``500ms``. Raises ValueError for anything else."""
    parts = list(_DURATION.finditer(text))
    if not parts or "".join(part[0] for part in parts) != text:
        raise ValueError(f"{text!r} is no duration such as 30s or 1h30m")
    return sum(float(part[1]) * _SECONDS[part[2]] for part in parts)


def policy_events(policy: Manifest) -> list[str]:
    """Return the events that a policy names, in ``event`` or ``events``."""
    return [*(policy.get("events") or ()), *([policy["event"]] if policy.get("event") else [])]


def problems(job: Manifest) -> Iterator[str]:
    """Yield a sentence for each error in a job whose defaults are filled in."""
    spec = job["spec"]
    if spec["minAvailable"] < 0:
        yield "job 'minAvailable' must be >= 0"
    if spec["maxRetry"] < 0:
        yield "'maxRetry' cannot be less than zero"
    if (spec.get("ttlSecondsAfterFinished") or 0) < 0:
        yield "'ttlSecondsAfterFinished' cannot be less than zero"
    if not spec["tasks"]:
        yield "No task specified in job spec"
    names: set[str] = set()
    for task in spec["tasks"]:
        if task["name"] in names:
            yield f"duplicated task name {task['name']}"
        names.add(task["name"])
        yield from _task_problems(task)
    if total_replicas(job) < spec["minAvailable"]:
        yield "job 'minAvailable' should not be greater than total replicas in tasks"
    yield from _policy_problems("spec.policies", spec.get("policies") or [])
    yield from _volume_problems(spec.get("volumes") or [])
    yield from _dependency_problems(spec["tasks"], names)
    for plugin in spec.get("plugins") or {}:
        if plugin not in PLUGINS:
            yield f"unable to find job plugin: {plugin}; there are {', '.join(PLUGINS)}"


def _task_problems(task: Manifest) -> Iterator[str]:
    name = task["name"]
    if not _NAME.fullmatch(name) or len(name) > 63:
        yield f"task name {name!r} must be a DNS label"
    if task["replicas"] < 0:
        yield f"'replicas' < 0 in task: {name}"
    if not task["minAvailable"] >= 0:
        yield f"'minAvailable' < 0 in task: {name}"
    elif task["minAvailable"] > task["replicas"]:
        yield f"'minAvailable' is greater than 'replicas' in task: {name}"
    if not ((task.get("template") or {}).get("spec") or {}).get("containers"):
        yield f"task {name}: template.spec.containers: Required value"
    partition = task.get("partitionPolicy")
    if partition and partition.get("totalPartitions", 0) * partition.get("partitionSize", 0) != task["replicas"]:
        yield f"'Replicas' are not equal to TotalPartitions*PartitionSize in task: {name}"
    yield from _policy_problems(f"task {name}: policies", task.get("policies") or [])


def _policy_problems(where: str, policies: list[Manifest]) -> Iterator[str]:
    seen: list[Any] = []
    for policy in policies:
        events, code = policy_events(policy), policy.get("exitCode")
        if events and code is not None:
            yield f"{where}: must not specify event and exitCode simultaneously"
        if not events and code is None:
            yield f"{where}: either event and exitCode should be specified"
        if code == 0:
            yield f"{where}: 0 is not a valid error code"
        unknown = [event for event in events if event not in EVENTS]
        if unknown:
            yield f"{where}: invalid policy event {unknown[0]!r}; valid events are {', '.join(EVENTS)}"
        if policy.get("action") not in ACTIONS:
            yield f"{where}: invalid policy action {policy.get('action')!r}; valid actions are {', '.join(ACTIONS)}"
        for subject in dict.fromkeys([*events, *([code] if code is not None else [])]):
            if subject in seen:
                yield f"{where}: duplicate {'event' if isinstance(subject, str) else 'exitCode'} {subject}"
            seen.append(subject)
        yield from _timeout_problems(where, policy.get("timeout"))
    if "*" in seen and sum(isinstance(subject, str) for subject in seen) > 1:
        yield f"{where}: if there's * here, no other policy should be here"


def _volume_problems(volumes: list[Manifest]) -> Iterator[str]:
    paths: set[str] = set()
    for volume in volumes:
        path = volume["mountPath"]
        if path in paths:
            yield f"duplicated mountPath: {path}"
        paths.add(path)
        if bool(volume.get("volumeClaimName")) == bool(volume.get("volumeClaim")):
            yield f"volume at {path}: one of volumeClaim and volumeClaimName must be specified, and only one"


def _timeout_problems(where: str, timeout: str | None) -> Iterator[str]:
    if timeout is None:
        return
    try:
        duration_seconds(timeout)
    except ValueError as error:
        yield f"{where}: timeout: {error}"


def _dependency_problems(tasks: list[Manifest], names: set[str]) -> Iterator[str]:
    waits = {task["name"]: list((task.get("dependsOn") or {}).get("name") or ()) for task in tasks}
    for name, on in waits.items():
        missing = [each for each in on if each not in names]
        if missing:
            yield f"task {name} depends on {missing[0]}, which is no task of the job"
    settled: set[str] = set()
    while ready := [name for name, on in waits.items() if name not in settled and settled.issuperset(on)]:
        settled.update(ready)
    if len(settled) < len(waits) and all(names.issuperset(on) for on in waits.values()):
        yield "job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG)"

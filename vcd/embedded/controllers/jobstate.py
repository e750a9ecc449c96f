"""The state machine of a Volcano Job: what an action does in each phase, and when the phase changes.

Pure functions of the job and its status; the controller carries out the returned step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from vcd.embedded.controllers.controller_base import Obj
from vcd.model.controllers import task_minimum, tasks_of, total_replicas
from vcd.model.jobspec import policy_events

SYNC: Final = "SyncJob"
RESTART_TARGET: Final = ("RestartTask", "RestartPod", "RestartPartition")
FINISHED: Final = ("Completed", "Failed", "Terminated")
KEEP_ENDED: Final = frozenset({"Succeeded", "Failed"})
KEEP_NONE: Final[frozenset[str]] = frozenset()
_INTERNAL: Final = ("OutOfSync", "CommandIssued", "PodRunning")
_LEAVING: Final = {"AbortJob": "Aborting", "CompleteJob": "Completing", "TerminateJob": "Terminating"}

NextPhase = Callable[[Obj, Obj], str]


class PodWork(Enum):
    """What a step does with the job's pods."""

    SYNC = "create what is missing, delete what is too much"
    KILL = "delete all pods"
    KILL_TARGET = "delete the pods of the task, partition or pod that the event came from"


@dataclass(frozen=True)
class Step:
    """Work on the pods, then ``next_phase(job, status)`` on the new counts.

    ``keep``: phases of pods that a kill does not delete; ``retries``: the step counts as a retry.
    """

    work: PodWork
    next_phase: NextPhase
    keep: frozenset[str] = KEEP_ENDED
    retries: bool = False


@dataclass(frozen=True)
class JobEvent:
    """A policy event of a pod, or of the job itself (empty ``task``)."""

    kind: str
    task: str = ""
    pod: str = ""
    pod_uid: str = ""
    partition: str = ""
    version: int = 0
    exit_code: int = 0
    job_uid: str = ""
    action: str = ""


def reaction(job: Obj, event: JobEvent) -> tuple[str, str | None]:
    """Return (action, timeout) of the first policy for an event; the task's policies come before the job's.

    An event of an earlier version of the job, or of an earlier job with its name, only causes a sync.
    """
    if event.action:
        return event.action, None
    if event.kind in _INTERNAL or (event.job_uid and event.job_uid != job["metadata"]["uid"]):
        return SYNC, None
    if event.task and event.version < (job.get("status") or {}).get("version", 0):
        return SYNC, None
    own = next((task.get("policies") or [] for task in tasks_of(job) if task["name"] == event.task), [])
    for policy in [*own, *(job["spec"].get("policies") or [])]:
        named = policy_events(policy)
        by_event = bool(named) and (event.kind in named or "*" in named)
        if by_event and event.kind == "PodPending" and policy.get("timeout") is None:
            by_event = False  # each new pod is pending; the event requires a timeout
        code = policy.get("exitCode")
        if by_event or (code is not None and code == event.exit_code):
            return policy["action"], policy.get("timeout")
    return SYNC, None


def step(phase: str, action: str) -> Step:
    """Return the step for ``action`` in a phase, as in Volcano's job states."""
    if phase in ("", "Pending", "Running"):
        return _active_step(phase, action)
    if phase == "Restarting":
        if action == SYNC:
            return Step(PodWork.SYNC, _after_restart)
        if action in RESTART_TARGET:
            return Step(PodWork.KILL_TARGET, _after_restart)
        return Step(PodWork.KILL, _after_restart, keep=KEEP_NONE)
    if phase in ("Aborting", "Aborted") and action == "ResumeJob":
        return Step(PodWork.KILL, _to("Restarting"), retries=True)
    leaving = {"Aborting": "Aborted", "Completing": "Completed", "Terminating": "Terminated"}
    return Step(PodWork.KILL, _when_empty(leaving[phase]) if phase in leaving else _stay)


def _active_step(phase: str, action: str) -> Step:
    if action == "RestartJob":
        return Step(PodWork.KILL, _to("Restarting"), keep=KEEP_NONE, retries=True)
    if action in RESTART_TARGET:
        return Step(PodWork.KILL_TARGET, _to("Restarting"), retries=True)
    if action in _LEAVING:
        return Step(PodWork.KILL, _to(_LEAVING[action]))
    return Step(PodWork.SYNC, _while_running if phase == "Running" else _while_pending)


def _to(phase: str) -> NextPhase:
    return lambda job, status: phase


def _stay(_job: Obj, status: Obj) -> str:
    return str(status["state"]["phase"])


def _when_empty(phase: str) -> NextPhase:
    def next_phase(_job: Obj, status: Obj) -> str:
        alive = status["terminating"] or status["pending"] or status["running"]
        return str(status["state"]["phase"]) if alive else phase

    return next_phase


def _after_restart(job: Obj, status: Obj) -> str:
    if status.get("retryCount", 0) >= job["spec"]["maxRetry"]:
        return "Failed"
    enough = total_replicas(job) - status["terminating"] >= status["minAvailable"]
    return "Pending" if enough else "Restarting"


def _while_pending(job: Obj, status: Obj) -> str:
    started = status["running"] + status["succeeded"] + status["failed"]
    return "Running" if job["spec"]["minAvailable"] <= started else "Pending"


def _while_running(job: Obj, status: Obj) -> str:
    total = total_replicas(job)
    if total == 0:
        return "Running"
    succeeded, wanted = status["succeeded"], job["spec"].get("minSuccess")
    if wanted is not None and succeeded >= wanted:
        return "Completed"
    if succeeded + status["failed"] == total:
        if wanted is None and _tasks_satisfied(job, status) and succeeded >= job["spec"]["minAvailable"]:
            return "Completed"
        return "Failed"
    if status["pending"] > total - job["spec"]["minAvailable"]:
        return "Pending"
    return "Running"


def _tasks_satisfied(job: Obj, status: Obj) -> bool:
    """Return whether each task has its minimum of successes. True if the job's minimum is below the tasks' sum."""
    if job["spec"]["minAvailable"] < sum(map(task_minimum, tasks_of(job))):
        return True
    counts = status["taskStatusCount"]
    return all(
        counts[task["name"]]["phase"].get("Succeeded", 0) >= task["minAvailable"]
        for task in tasks_of(job)
        if task.get("minAvailable") is not None and task["name"] in counts
    )

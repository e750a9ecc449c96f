"""Room that is idle is waited for by nobody: what allocate and backfill take back before they begin."""

from __future__ import annotations

from collections.abc import Callable

from tests.reference.model import Job, Task
from tests.reference.session import Session


def unpipeline_idle(session: Session, is_mine: Callable[[Task], bool]) -> None:
    """Tasks that other actions let wait are pending again where all of their job's that have room now make it ready.

    Where somebody was evicted, those that mind where pods are stay: who leaves is in their way until the next session.
    """
    minds = session.functions("minds", "predicate")
    chosen = [
        task
        for task in session.waiting
        if is_mine(task)
        and task.request.fits(session.cluster.nodes[task.node].idle)
        and not (session.evicted and any(function(task) for function in minds))
    ]
    for key in sorted({task.job for task in chosen}):
        own = [task for task in chosen if task.job == key]
        if _is_ready_with(session, session.cluster.jobs[key], own):
            for task in own:
                session.displace(task)
                session.waiting.remove(task)


def _is_ready_with(session: Session, job: Job, tasks: list[Task]) -> bool:
    """Whether the job could be bound if these had their room; nothing changes."""
    places = [session.cluster.nodes[task.node] for task in tasks]
    for status in ("Allocated", "Pipelined"):
        for task, node in zip(tasks, places, strict=True):
            session.displace(task)
            session.place(task, node, status)
        if status == "Allocated":
            ready = session.job_ready(job)
    return ready

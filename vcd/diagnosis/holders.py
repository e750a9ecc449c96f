"""The jobs that hold the resources that other jobs wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec
import numpy as np

from vcd.model.resource_requests import format_sum
from vcd.model.status import ALLOCATED_STATUSES
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.session.nodes import Ints
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task

KEPT = 20
"""Holders that are listed, at most."""


class Holder(msgspec.Struct, frozen=True):
    """A job that holds resources that are short: ``pods`` pods, ``amounts`` by resource as quantities."""

    job: str
    queue: str
    priority: int
    pods: int
    amounts: dict[str, str]


def amount_of(session: Session, resource: str, task: Task, row: int | None = None) -> int:
    """Return how much of a resource, or of what a plugin counts, a task takes on its node, or on another one."""
    column = session.nodes.column_of.get(resource)
    if column is not None:
        return int(task.amounts[column])
    quotas = [quota for plugin in framework_of(session).plugins for quota in plugin.quotas]
    return sum(quota.used(session, task, resource, task.node if row is None else row) for quota in quotas)


def holders_of(session: Session, tasks: Iterable[Task], names: list[str]) -> list[Holder]:
    """Return the jobs of some tasks by how much they hold of the first resource, the largest first."""
    sums: dict[int, Counter[str]] = {}
    pods: Counter[int] = Counter()
    for task in tasks:
        amounts = {name: amount for name in names if (amount := amount_of(session, name, task))}
        if amounts:
            pods[task.job.index] += 1
            sums.setdefault(task.job.index, Counter()).update(amounts)
    first = names[0] if names else ""
    order = sorted(sums, key=lambda index: (-sums[index].get(first, 0), session.job(index).key))
    return [_holder(session.job(index), pods[index], sums[index]) for index in order[:KEPT]]


def _holder(job: Job, pods: int, amounts: Mapping[str, int]) -> Holder:
    texts = {name: format_sum(name, amount) for name, amount in amounts.items()}
    return Holder(job.key, job.queue.name, job.priority, pods, texts)


def held_in(session: Session, queue: Queue | None, resource: str) -> list[Holder]:
    """Return the jobs in a queue's subtree (None: all jobs) that hold most of a resource, the largest first."""
    column, jobs = session.nodes.column_of.get(resource), jobs_in(session, queue)
    if column is None:
        return holders_of(session, _placed_tasks(session, jobs), [resource])
    held = _allocated_by_job(session, column)[jobs]
    # jobs are in key order, so ties keep it
    most = jobs[np.argsort(-held, kind="stable")[: min(KEPT, np.count_nonzero(held))]]
    found = [session.job(index) for index in most.tolist()]
    return [_holder(job, _pods_with(job, column), {resource: job.allocated[column]}) for job in found]


def amount_in(session: Session, queue: Queue | None, resource: str) -> int:
    """Return how much of a resource, or of what a plugin counts, the jobs in a queue's subtree hold."""
    column, jobs = session.nodes.column_of.get(resource), jobs_in(session, queue)
    if column is not None:
        return sum(_allocated_by_job(session, column)[jobs].tolist())
    return sum(amount_of(session, resource, task) for task in _placed_tasks(session, jobs))


def jobs_in(session: Session, queue: Queue | None) -> Ints:
    """Return the indices of the jobs in a queue's subtree, without creating a view of each."""
    inside = [
        one.index for one in session.queue_list if queue is None or one is queue or queue in session.lineage(one)[1:]
    ]
    return np.flatnonzero(np.isin(session.jobs.queue, inside))


def _allocated_by_job(session: Session, column: int) -> Ints:
    """Return how much of a resource each job holds."""
    held = session.jobs.allocated[:, column].copy()
    for job in session.views.jobs():
        held[job.index] = job.allocated[column]
    return held


def _placed_tasks(session: Session, jobs: Ints) -> Iterator[Task]:
    """Yield the tasks of jobs that have nodes."""
    for index in jobs.tolist():
        yield from (task for task in session.job(index).tasks() if task.status in ALLOCATED_STATUSES)


def _pods_with(job: Job, column: int) -> int:
    return sum(task.status in ALLOCATED_STATUSES and task.amounts[column] > 0 for task in job.tasks())

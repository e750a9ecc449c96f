"""One waiting job at the end of one session: what it needs, which nodes fit it, and which pods got capacity before
it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache, cached_property

import numpy as np

from vcd.diagnosis.funnel import Funnel
from vcd.diagnosis.group_wait import GroupWait, waiting_task
from vcd.diagnosis.holders import held_in
from vcd.model import events as ev
from vcd.model.diagnosis import Amounts, Diagnosis
from vcd.model.reasons import Cause, Reason
from vcd.model.resource_requests import UNOFFERED
from vcd.model.status import ALLOCATED_STATUSES, TaskStatus
from vcd.scheduling.framework.declared_reasons import cause_of, declared, keeps_back, told
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.session.nodes import Ints
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.state.shape_columns import unoffered
from vcd.state.sums import sum_of
from vcd.text.reason_sentences import reason_text

_GATES = ("enqueue", "invalid", "unsupported", "gated", "queue", "predicate")
"""The gates in the order in which a job passes them; gates of other plugins follow."""
_LAST = len(_GATES) + 2
"""The rank of reasons that do not keep a job from starting."""


Served = Callable[[Session], Ints]
"""Returns the rows of the pods that were placed while a job waited."""


def served(pods: frozenset[str]) -> Served:
    """Return a function that returns the rows of these pods, as far as they still exist."""

    def rows(session: Session) -> Ints:
        keys = session.snapshot.tasks.keys if pods else ()
        return np.array([row for row, key in enumerate(keys) if key in pods], np.int64)

    return rows


def served_since(session: Session, served_at: Mapping[str, int]) -> Callable[[int], Served]:
    """Return a function from a session's number to the pods that were placed since it; ``served_at`` maps pods to the
    session that placed them. It applies to ``session`` alone."""

    @cache
    def by_row() -> Ints:
        return np.array([served_at.get(key or "", 0) for key in session.snapshot.tasks.keys], np.int64)

    return lambda number: lambda _: np.flatnonzero(by_row() >= number)


class Case:
    """A job in a session that has ended. ``served`` returns the pods that were placed while the job waited."""

    def __init__(self, wait: GroupWait, job: Job, served: Served) -> None:
        self.wait, self.job, self.session = wait, job, wait.session
        self._served = served

    @cached_property
    def reasons(self) -> list[ev.Waiting]:
        """The job's reasons in the order of their gates, the gang's last: a gang waits because of the other reasons."""
        return in_order(self.wait.reasons)

    @cached_property
    def missing(self) -> int:
        """The number of pods missing to the minimum, at least one."""
        pending = sum(task.status == TaskStatus.PENDING for task in self.job.pending())
        return max(1, min(self.job.min_available - self.job.ready_count, pending))

    @cached_property
    def _missing_tasks(self) -> list[Task]:
        """The missing pods, in task order."""
        pending = [task for task in self.job.pending() if task.status == TaskStatus.PENDING]
        return framework_of(self.session).in_task_order(pending)[: self.missing] if pending else []

    @cached_property
    def missing_equal(self) -> int:
        """How many of the missing pods request the same as the funnel's pod."""
        if self.funnel is None:
            return self.missing
        request = self.funnel.task.request
        return max(1, sum(np.array_equal(task.request, request) for task in self._missing_tasks))

    @cached_property
    def short(self) -> list[int]:
        """The columns of the resources of which less is idle in sum than the missing pods request, the scarcest
        first."""
        free = sum_of(np.maximum(self.session.nodes.usage.idle, 0), axis=1)
        columns: list[int] = np.flatnonzero((self.needed > 0) & (free < self.needed)).tolist()
        return sorted(columns, key=lambda column: free[column] / self.needed[column])

    @cached_property
    def funnel(self) -> Funnel | None:
        """The nodes for the pod that found none; None if no pod waits for a node, or there are no nodes."""
        task = waiting_task(self.wait, self.job)
        return None if task is None or not len(self.session.nodes) else Funnel(self.session, task)

    @cached_property
    def needed(self) -> Ints:
        """The sum of the missing pods' requests, by column; zeros if no pod waits for a node."""
        if self.funnel is None:
            return np.zeros(len(self.session.nodes.resources), np.int64)
        return sum_of(np.array([task.request for task in self._missing_tasks]), axis=0)

    def amounts_by_role(self, columns: list[int], **amounts: Ints) -> Amounts:
        """Return quantities of the resources in some columns, by role."""
        return {
            self._resource_name(column): {role: int(of[column]) for role, of in amounts.items()} for column in columns
        }

    def _resource_name(self, column: int) -> str:
        """Return the name of a column's resource; in the column of resources that no node offers, the pod's requests
        there."""
        nodes = self.session.nodes
        name = nodes.resources[column]
        if name != UNOFFERED or self.funnel is None:
            return name
        return unoffered(nodes.column_of, self.funnel.task.shape.requests) or name

    def diagnose_terminating(self) -> Diagnosis:
        """Return the diagnosis that pods are terminating: on the nodes where pods of the job are pipelined, else on
        any."""
        rows = {task.node for task in self.job.tasks() if task.status == TaskStatus.PIPELINED}
        going: dict[str, int] = {}
        viewed = {job.index for job in self.session.views.jobs()}  # the jobs that this session may have evicted pods of
        for index in sorted(viewed.union(np.flatnonzero(self.session.jobs.counts[:, TaskStatus.RELEASING]).tolist())):
            other = self.session.job(index)
            tasks = other.tasks() if other.counts[TaskStatus.RELEASING] else ()
            count = sum(task.status == TaskStatus.RELEASING and (not rows or task.node in rows) for task in tasks)
            if count:
                going[other.key] = count
        holder = max(sorted(going), key=going.__getitem__, default="")
        subject = {"holder": holder} if holder else {}
        return Diagnosis(Cause.LEAVING, subject, {"": {"pods": sum(going.values()), "needs": self.missing}})

    def idle_total(self, column: int) -> int:
        """Return how much of a resource is idle on all nodes together."""
        return int(sum_of(np.maximum(self.session.nodes.usage.idle[column], 0)))

    def diagnose_full_cluster(self, asks: Mapping[int, int]) -> Diagnosis:
        """Return the diagnosis that less is idle in sum than the job needs, and which job holds most; ``asks`` has the
        needs by column, the scarcest resource first."""
        nodes = self.session.nodes
        held = held_in(self.session, None, nodes.resources[next(iter(asks))])
        amounts = {
            self._resource_name(column): {
                "asks": amount,
                "free": self.idle_total(column),
                "total": int(nodes.total[column]),
            }
            for column, amount in asks.items()
        }
        return Diagnosis(Cause.CLUSTER_FULL, {"holder": held[0].job} if held else {}, amounts)

    # --- what other jobs got ------------------------------------------------------------------------------------------

    def placed_while_waiting(self) -> Iterator[Task]:
        """Yield the tasks of other jobs that were placed while this job waited, and still hold their nodes."""
        rows = self._served(self.session)
        for task in self.session.views.tasks_at(rows[self.session.job_of_row[rows] >= 0].tolist()):
            if task.job is not self.job and task.status in ALLOCATED_STATUSES and task.node >= 0:
                yield task

    def diagnose_order(self, given: dict[str, int]) -> Diagnosis:
        """Return the diagnosis that other jobs got what this one needs; ``given`` has how much each got of it."""
        first = max(sorted(given), key=given.__getitem__)
        counts = {"served": len(given), "needs": self.missing}
        return Diagnosis(Cause.ORDER, {"ahead": first}, {"": counts})


def in_order(reasons: Collection[ev.Waiting]) -> list[ev.Waiting]:
    """Return reasons in the order of their gates, the gang's last.

    At one gate a refusal to borrow comes first: a queue that has its deserved share waits only if it cannot borrow.
    """
    return sorted(reasons, key=lambda reason: (_rank(reason), not _refuses_loan(reason)))


def _refuses_loan(reason: ev.Waiting) -> bool:
    """Return whether a queue cannot borrow: its capability, or the holds of other queues, leave too little."""
    stated, ends = reason.reason, (Cause.OTHERS_GUARANTEE, Cause.QUEUE_CAPABILITY)
    return cause_of(reason) in ends and isinstance(stated, Reason) and bool(stated.amounts)


def _rank(reason: ev.Waiting) -> int:
    return rank(reason.gate, cause_of(reason)) if keeps_back(reason) else _LAST


def rank(gate: str, cause: str) -> int:
    """Return the rank of a gate's and cause's reasons among a job's reasons."""
    if cause == Cause.GANG_INCOMPLETE:
        return len(_GATES) + 1
    return _GATES.index(gate) if gate in _GATES else len(_GATES)


def as_given(reason: ev.Waiting) -> Diagnosis:
    """Return the diagnosis that a reason itself states."""
    words = reason_text(told(reason))
    if isinstance(reason.reason, str):
        return Diagnosis(cause_of(reason), {}, {}, words)
    subject, amounts, field = dict(reason.reason.names), reason.reason.by_resource(), field_of(reason.reason)
    return Diagnosis(cause_of(reason), {**subject, "field": field} if field else subject, amounts, words)


def field_of(reason: Reason) -> str:
    """Return the field of a queue, a quota or the configuration that decides about the first resource; empty if none
    does."""
    code = declared(reason)
    return "" if code is None else code.field.replace("{resource}", next((name for _, name, _ in reason.amounts), ""))

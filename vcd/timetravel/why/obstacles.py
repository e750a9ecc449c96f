"""The obstacles of a job at a session: which jobs were served before it, and which hold what it needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec
import numpy as np

from vcd.diagnosis.funnel import Funnel
from vcd.diagnosis.group_wait import pending_task, task_without_node
from vcd.diagnosis.holders import KEPT, Holder, amount_of, held_in, holders_of
from vcd.model import events as ev
from vcd.model.quantity import format_resource
from vcd.model.reasons import Reason
from vcd.model.resource_requests import format_sum
from vcd.model.status import TaskStatus
from vcd.scheduling.framework.declared_reasons import keeps_back, told
from vcd.scheduling.framework.framework import trace_of
from vcd.scheduling.framework.quotas import OF_THE_CLUSTER
from vcd.scheduling.framework.registry import limits_of
from vcd.scheduling.framework.trace import Trace
from vcd.scheduling.session.nodes import Ints, room_needed
from vcd.scheduling.session.nodeview import NodeView
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.text.reason_sentences import reason_text
from vcd.text.spared_victims import spared_in_words
from vcd.text.time_formats import moment
from vcd.timetravel.history import History
from vcd.timetravel.why.job_waits import Wait, wait_of
from vcd.timetravel.why.name_lookup import Kind, named
from vcd.timetravel.why.near_domains import NearDomain, near_domains
from vcd.timetravel.why.queueplace import QueuePlace, place_in_queue

_UNASKED = int(np.iinfo(np.int64).min)
"""The value in ``room_needed`` for a resource that is not requested."""


class Limit(msgspec.Struct, frozen=True):
    """A quota, or the bound of an admission, that the job reaches in one resource, as quantities.

    ``bound`` is what the limit is ("capability", "deserved"; "limit" of the whole cluster, then ``queue`` is empty);
    ``taken`` what counts against it already, ``own`` the part of that which other pods of the job had before they were
    rolled back, since not enough of them fit; ``held_by`` the jobs of the queue (of the cluster) that hold most.
    """

    gate: str
    plugin: str
    queue: str
    resource: str
    bound: str
    asks: str
    taken: str
    limit: str
    own: str
    held_by: list[Holder]


class NearNode(msgspec.Struct, frozen=True):
    """A node that passes all filters of the pod except resources: how many more such pods fit (``fits``), and of the
    resources that are short for the next one what is free, the node's total, and what is missing, as quantities."""

    name: str
    fits: int
    free: dict[str, str]
    total: dict[str, str]
    lacks: dict[str, str]
    held_by: list[Holder]


class Ahead(msgspec.Struct, frozen=True):
    """A job that was served earlier in the session, and what it got of the missing resources, as quantities. ``how``
    is "admitted" (its minimum is reserved) or "placed"."""

    job: str
    queue: str
    priority: int
    how: Literal["admitted", "placed"]
    pods: int
    amounts: dict[str, str]


class Obstacles(msgspec.Struct, frozen=True):
    """The obstacles of a job at a session; ``time`` is the session's (RFC 3339).

    ``asks`` is what a pod that found no node requests, ``fits`` how many such pods fit on all nodes that it may use,
    ``wants`` with how many pods the job waits. ``ahead`` is in the order of service, ``nodes`` has the nearest first,
    ``held_by`` the jobs of the cluster that hold most of what the nearest node lacks, at most 20. ``evicts`` states
    why nothing is evicted for it, empty if no action searched victims; ``place`` is its position among the waiting
    jobs of its queue. ``domains`` are the HyperNodes that its network topology allows; ``remarks`` are what plugins
    noted about its nodes.
    """

    kind: Kind
    key: str
    group: str
    queue: str
    session: int
    time: str
    limits: list[Limit]
    asks: dict[str, str]
    wants: int
    fits: int
    nodes: list[NearNode]
    ahead: list[Ahead]
    evicts: str = ""
    place: QueuePlace | None = None
    held_by: list[Holder] = []
    domains: list[NearDomain] = []
    remarks: list[str] = []


def obstacles(history: History, name: str, session: int | None = None) -> Obstacles:
    """Return the obstacles of a job at a session of a log, by default the last one in which it waited.

    Names are as for ``explain``. Raises NotFound if no job has the name or it does not wait there, and LogError for
    what the log does not have.
    """
    _, group, _ = named(history, "job", name)
    wait = wait_of(history, group, session)
    return _obstacles_of(wait, _ServiceOrder(wait.session, trace_of(wait.session)))


def _not_evicted(wait: Wait) -> str:
    """Return why the evicting actions found no victims, from the reasons of its wait."""
    remarks = [(one.gate, one.reason.code, one.plugin) for one in wait.reasons if isinstance(one.reason, Reason)]
    return spared_in_words(remarks)


def _obstacles_of(wait: Wait, turns: _ServiceOrder) -> Obstacles:
    session, job = wait.session, wait.job
    record = session.snapshot.groups[wait.group]
    task = None if job is None else task_without_node(job, wait)
    near = None if task is None else nearness(Funnel(session, task))
    nodes = [] if near is None else [_near_node(session, near, row) for row in near.rows[:KEPT]]
    limits = [] if job is None else [limit for reason in wait.reasons for limit in _limits(session, job, reason, turns)]
    lacking = {one.resource: session.queues.get(one.queue) for one in limits}
    lacking |= dict.fromkeys(name for node in nodes for name in node.lacks)
    return Obstacles(
        "job",
        wait.group,
        wait.group,
        session.queue_name_of(record),
        wait.record.session,
        moment(wait.record.now),
        limits,
        {} if task is None else {n: text for n, text in session.amounts(task.request).items() if n != "pods"},
        0 if job is None else sum(one.status == TaskStatus.PENDING for one in job.pending()),
        0 if near is None else int(near.fits[near.rows].sum()),
        nodes,
        [] if job is None else turns.ahead_of(job, lacking),
        _not_evicted(wait),
        None if job is None else place_in_queue(session, job),
        held_in(session, None, next(iter(nodes[0].lacks), "")) if nodes else [],
        [] if job is None else near_domains(session, job),
        [reason_text(told(one)) for one in wait.reasons if one.gate == "predicate" and not keeps_back(one)],
    )


# --- nodes ------------------------------------------------------------------------------------------------------------


class Nearness(msgspec.Struct, frozen=True):
    """The nodes that pass all filters of a task except resources, at the end of the session, with future idle
    resources: ``rows`` has those first that lack least for one more such task; per node of the session ``fits`` is how
    many more fit, and per resource ``room`` what is free and ``lacks`` what is missing."""

    rows: list[int]
    fits: Ints
    room: Ints
    lacks: Ints


def nearness(funnel: Funnel) -> Nearness:
    """Return how near each node is to fitting a task."""
    usage, request = funnel.session.nodes.usage, funnel.task.request
    room, requested = usage.future_idle, request > 0
    takes = funnel.within & (room[:2] >= 0).all(axis=0)
    fits = np.maximum(room[requested] // request[requested][:, None], 0).min(axis=0) * takes
    floor = room_needed(request)[:, None]
    lacks = np.where(floor > _UNASKED, np.maximum(floor + request[:, None] * fits - room, 0), 0)
    far = (lacks / np.maximum(request, 1)[:, None]).sum(axis=0)
    rows = [row for row in np.argsort(far, kind="stable").tolist() if funnel.passing[row] and far[row]]
    return Nearness(rows, fits, room, lacks)


def _near_node(session: Session, near: Nearness, row: int) -> NearNode:
    column_of, total = session.nodes.column_of, session.nodes.usage.allocatable
    names = [name for name, column in column_of.items() if near.lacks[column, row]]

    def told(values: Ints) -> dict[str, str]:
        return {name: format_resource(name, int(values[column_of[name], row])) for name in names}

    held_by = holders_of(session, NodeView(session, row).tasks, names)
    name = session.nodes.facts.names[row]
    return NearNode(name, int(near.fits[row]), told(near.room), told(total), told(near.lacks), held_by)


# --- limits -----------------------------------------------------------------------------------------------------------


def _limits(session: Session, job: Job, reason: ev.Waiting, turns: _ServiceOrder) -> Iterator[Limit]:
    """Yield the limits that a reason states as too low, by resource, in the order of its numbers."""
    for queue_limit in limits_of(reason):
        if queue_limit.bound and (queue_limit.asks is not None or _requests(session, job, queue_limit.resource)):
            queue = None if queue_limit.bound == OF_THE_CLUSTER else session.queues.get(queue_limit.queue, job.queue)
            asks, taken, limit = (
                "" if amount is None else format_resource(queue_limit.resource, amount)
                for amount in (queue_limit.asks, queue_limit.taken, queue_limit.limit)
            )
            own, held = turns.own_before(reason, queue_limit.resource), held_in(session, queue, queue_limit.resource)
            name = "" if queue is None else queue.name
            yield Limit(
                reason.gate, reason.plugin, name, queue_limit.resource, queue_limit.bound, asks, taken, limit, own, held
            )


def _requests(session: Session, job: Job, resource: str) -> bool:
    """Return whether a job's next pod requests a resource."""
    task, column = pending_task(session, job), session.nodes.column_of.get(resource)
    return task is not None and column is not None and bool(task.amounts[column])


# --- jobs ahead -------------------------------------------------------------------------------------------------------


class _ServiceOrder:
    """The order in which jobs were admitted and placed in a session, from its trace."""

    def __init__(self, session: Session, trace: Trace) -> None:
        self.session = session
        self._waiting = session.snapshot.tasks.status == TaskStatus.PENDING
        self._admitted: list[Job] = []
        self._admissions_before: dict[int, int] = {}
        """The number of admissions before a job was considered, by the job's index."""
        self._turns: dict[int, int] = {}
        """The question with which a job's first turn began, by the job's index."""
        self._turns_of_pods: dict[str, int] = {}
        for number, (point, asked, _, _) in enumerate(trace.questions):
            if point == "job_enqueueable":
                self._admissions_before.setdefault(asked[0].index, len(self._admitted))
            elif point == "job_enqueued":
                self._admitted.append(asked[0])
            elif point == "allocatable":
                self._turns.setdefault(asked[1].job.index, number)
                self._turns_of_pods.setdefault(asked[1].key, number)
        self._moves = trace.moves()

    def ahead_of(self, job: Job, lacking: Mapping[str, Queue | None]) -> list[Ahead]:
        """Return the jobs served before a job that got some of the missing resources in a queue's subtree (None:
        anywhere); all such jobs if its turn never came."""
        by_job: dict[int, list[Task]] = {}
        for task, _ in self._placed_before(self._turns.get(job.index)):
            if task.job is not job:
                by_job.setdefault(task.job.index, []).append(task)
        found = []
        if job.is_pending():
            found = [
                _admitted(self.session, one, lacking)
                for one in self._admitted[: self._admissions_before.get(job.index)]
            ]
        found += [_placed(self.session, tasks, lacking) for tasks in by_job.values()]
        return [one for one in found if one.amounts]

    def own_before(self, reason: ev.Waiting, resource: str) -> str:
        """Return what other pods of a job had of a resource when a reason's first pod was considered, and lost before
        the end: a quantity, empty for none."""
        if not reason.pods:
            return ""
        placed = self._placed_before(self._turns_of_pods.get(reason.pods[0], 0))
        back = [
            (task, row) for task, row in placed if task.job.key == reason.group and task.status == TaskStatus.PENDING
        ]
        amount = sum(amount_of(self.session, resource, task, row) for task, row in back)
        return format_resource(resource, amount) if amount else ""

    def _placed_before(self, question: int | None) -> Iterable[tuple[Task, int]]:
        """Return the pods that waited when the session began and had a node before a question (None: at the end), with
        its row."""
        placed: dict[int, tuple[Task, int]] = {}
        for task, row, number in self._moves:
            if question is not None and number >= question:
                break
            if row is None:
                placed.pop(task.row, None)
            elif self._waiting[task.row]:  # rolling back an eviction places a pod, too
                placed[task.row] = (task, row)
        return placed.values()


def _admitted(session: Session, job: Job, lacking: Mapping[str, Queue | None]) -> Ahead:
    minimum, column_of = job.record.min_resources or {}, session.nodes.column_of
    names = [name for name, queue in lacking.items() if name in column_of and _is_in(session, job, queue)]
    amounts = {name: format_resource(name, minimum[name]) for name in names if minimum.get(name)}
    return Ahead(job.key, job.queue.name, job.priority, "admitted", 0, amounts)


def _placed(session: Session, tasks: list[Task], lacking: Mapping[str, Queue | None]) -> Ahead:
    job = tasks[0].job
    names = [name for name, queue in lacking.items() if _is_in(session, job, queue)]
    sums = {name: sum(amount_of(session, name, task) for task in tasks) for name in names}
    amounts = {name: format_sum(name, amount) for name, amount in sums.items() if amount}
    return Ahead(job.key, job.queue.name, job.priority, "placed", len(tasks), amounts)


def _is_in(session: Session, job: Job, queue: Queue | None) -> bool:
    return queue is None or queue in session.lineage(job.queue)

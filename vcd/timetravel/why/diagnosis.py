"""What a waiting job's reasons come to at one session: the one cause, whom or what it is about, and the figures."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property

import msgspec
import numpy as np

from vcd.model import events as ev
from vcd.model.reasons import Cause
from vcd.model.status import ALLOCATED_STATUSES, TaskStatus
from vcd.scheduling.framework.quotas import OF_THE_CLUSTER, QueueLimit
from vcd.scheduling.framework.reasons import cause_of, declared, told
from vcd.scheduling.framework.registry import limits_of
from vcd.scheduling.session.nodes import Ints
from vcd.scheduling.session.nodeview import NodeView
from vcd.scheduling.session.queues import Queue
from vcd.scheduling.session.views import Job, Task
from vcd.state.sums import sum_of
from vcd.timetravel.why.funnel import Clause, Funnel, FunnelLine
from vcd.timetravel.why.obstacles import amount_in, held_in, holders_of, pending_task, task_without_node
from vcd.timetravel.why.waits import Wait

_GATES = ("enqueue", "invalid", "unsupported", "gated", "queue", "predicate")
"""The gates in the order in which a job comes to them; those of other plugins come next."""
OF_THE_CASE = (Cause.FRAGMENTATION, Cause.CLUSTER_FULL, Cause.ORDER)
"""Causes that no reason has by itself: they are found by looking at all nodes and all who were served."""
_OF_ROOM = (Cause.NODE_ROOM, Cause.SHAPE, Cause.SELECTOR, Cause.TAINT, Cause.UNSCHEDULABLE_NODE, Cause.NODE_POLICY)
_OF_QUEUES = (Cause.QUEUE_CAPABILITY, Cause.QUEUE_DESERVED, Cause.PARENT_LIMIT, Cause.CARD_QUOTA)


class Diagnosis(msgspec.Struct, frozen=True):
    """The cause (a ``Cause``), names by the roles that they play, and amounts by resource (empty for plain counts) and
    role, in base units; ``words`` are the reason's own where it was taken as it was given."""

    cause: str
    subject: dict[str, str] = {}
    amounts: dict[str, dict[str, int]] = {}
    words: str = ""
    funnel: list[FunnelLine] = []


def diagnose(wait: Wait, served: Collection[str]) -> Diagnosis:
    """Why a job waits at a session; ``served`` are the pods that were given nodes while it waited."""
    case = _Case(wait, served)
    found = case.diagnosis()
    return found if case.funnel is None else msgspec.structs.replace(found, funnel=case.funnel.lines())


def pods_missing(job: Job) -> Diagnosis | None:
    """That fewer pods exist than a job's minimum, and whose task it is to create them; None where enough do."""
    if job.task_count >= job.min_available:
        return None
    owners = [one for one in job.record.group.metadata.owner_references if one.controller]
    owner = f"{owners[0].kind} {owners[0].name}" if owners else "whoever made the group"
    return Diagnosis(Cause.PODS_MISSING, {"owner": owner}, {"": {"pods": job.task_count, "minimum": job.min_available}})


class _Case:
    """One job at the end of one session."""

    def __init__(self, wait: Wait, served: Collection[str]) -> None:
        self.wait, self.session, self.served = wait, wait.session, served
        self.names = self.session.nodes.resources

    def diagnosis(self) -> Diagnosis:
        job = self.wait.job
        reasons = sorted(self._blocking(), key=_rank)
        if job is not None and job.waiting_count and job.waiting_count >= self.missing:
            return self._leaving(job)
        for reason in reasons:
            found = self._of(job, reason)
            if found is not None:
                return found
        if job is not None and self.funnel is not None:
            return self._of_nodes(job)
        return _as_given(self.wait.reasons[0])

    def _blocking(self) -> list[ev.Waiting]:
        """The reasons without which the job could have its minimum; all where none alone is in its way."""
        job, reasons = self.wait.job, [one for one in self.wait.reasons if one.gate != "annotation"]
        if job is None:
            return reasons
        found = [one for one in reasons if not one.tasks or job.task_count - one.tasks < max(job.min_available, 1)]
        return found or reasons

    def _of(self, job: Job | None, reason: ev.Waiting) -> Diagnosis | None:
        cause = cause_of(reason)
        if cause == Cause.GANG_INCOMPLETE:  # since others of it wait, for what their reasons say
            return None
        if job is not None and reason.gate in ("enqueue", "queue"):
            if self.funnel is not None and self.funnel.never:
                return self._shape(self.funnel)
            limit = next((one for one in limits_of(reason) if one.is_short), None)
            if limit is not None:
                return self._of_limit(job, reason, limit)
        if job is not None and reason.gate == "predicate" and self._is_of_nodes(reason, cause):
            return self._of_nodes(job)
        if cause == Cause.LEAVING and job is not None:
            return self._leaving(job)
        if cause == Cause.PODS_MISSING and job is not None:
            return pods_missing(job) or _as_given(reason)
        found = _as_given(reason)
        return found if job is None else msgspec.structs.replace(found, subject={**_about(job, cause), **found.subject})

    def _is_of_nodes(self, reason: ev.Waiting, cause: str) -> bool:
        """Whether a cause is one that the nodes tell more of than the reason does: which clause, and how many."""
        names_claim = not isinstance(reason.reason, str) and "claim" in dict(reason.reason.names)
        if self.funnel is None or names_claim:
            return False
        return cause in _OF_ROOM or cause in [clause.cause for clause in (*self.funnel.lasting, *self.funnel.moving)]

    # --- what it needs ------------------------------------------------------------------------------------------------

    @cached_property
    def missing(self) -> int:
        """How many pods are missing to the minimum; one where it has that."""
        job = self.wait.job
        return 1 if job is None else max(1, min(job.min_available - job.ready_count, len(self._pending(job))))

    @staticmethod
    def _pending(job: Job) -> list[Task]:
        return [task for task in job.pending() if task.status == TaskStatus.PENDING]

    @cached_property
    def funnel(self) -> Funnel | None:
        """The nodes for the pod that found none; None where no pod waits for one, or there is no node."""
        job = self.wait.job
        task = None if job is None else task_without_node(job, self.wait) or pending_task(self.session, job)
        return None if task is None or not len(self.session.nodes) else Funnel(self.session, task)

    @cached_property
    def needed(self) -> Ints:
        """What the pods that are missing ask for together, by resource."""
        assert self.funnel is not None
        return self.funnel.task.request * self.missing

    # --- nodes --------------------------------------------------------------------------------------------------------

    def _of_nodes(self, job: Job) -> Diagnosis:
        funnel = self.funnel
        assert funnel is not None
        if funnel.never:
            return self._shape(funnel)
        if funnel.now[funnel.allowed].sum() < self.missing:
            clause = self._decisive(funnel)
            if clause is not None:
                return self._excluded(funnel, clause)
            return self._order(job, funnel) or self._room(job, funnel)
        takes = [(int(funnel.now[funnel.allowed & one.passes].sum()), one) for one in funnel.moving]
        count, clause = min(takes, key=lambda each: each[0], default=(self.missing, None))
        if clause is not None and count < self.missing:
            return self._excluded(funnel, clause)
        others = [
            one
            for one in sorted(self.wait.reasons, key=_rank)
            if cause_of(one) not in (*_OF_ROOM, Cause.GANG_INCOMPLETE)
        ]
        if others:
            return self._said_of_nodes(funnel, others[0])
        return self._order(job, funnel) or Diagnosis(Cause.ORDER, {}, self._counts(funnel))

    def _said_of_nodes(self, funnel: Funnel, reason: ev.Waiting) -> Diagnosis:
        """What kept a pod out in its turn, beside others of the job that had places then."""
        clause = next((one for one in funnel.moving if one.cause == cause_of(reason)), None)
        if clause is None:
            return _as_given(reason)
        counts = self._counts(funnel)
        counts[""] |= {"passes": len(funnel.now) - reason.nodes, "excluded with room": 0}
        return Diagnosis(clause.cause, self._named(clause), counts)

    def _decisive(self, funnel: Funnel) -> Clause | None:
        """Of the lasting clauses that keep the job from nodes with room for it, the one whose removal gives most."""
        if funnel.now.sum() < self.missing:
            return None
        gains = [(int(funnel.now[funnel.without(one)].sum()), one) for one in funnel.lasting]
        best = max(gains, key=lambda each: each[0], default=None)
        if best is None or best[0] == funnel.now[funnel.allowed].sum():  # several exclude the same nodes
            return max(funnel.lasting, key=lambda one: int(funnel.now[~one.passes].sum()), default=None)
        return best[1]

    def _counts(self, funnel: Funnel) -> dict[str, dict[str, int]]:
        return {"": {"nodes": len(funnel.now), "needs": self.missing, "fits": int(funnel.now[funnel.allowed].sum())}}

    def _excluded(self, funnel: Funnel, clause: Clause) -> Diagnosis:
        counts = self._counts(funnel)
        with_room = (funnel.now > 0) & ~clause.passes
        counts[""] |= {"passes": int(clause.passes.sum()), "excluded with room": int(with_room.sum())}
        return Diagnosis(clause.cause, self._named(clause), counts, clause.reason.words)

    @staticmethod
    def _named(clause: Clause) -> dict[str, str]:
        """What a clause is about: what it names, its text as a clause of nodes or a term of pods."""
        names = {role: name for role, name in clause.reason.names if role not in ("clause", "taint")}
        return {**names, "clause" if clause.cause in _OF_ROOM else "term": clause.text}

    def _shape(self, funnel: Funnel) -> Diagnosis:
        """The allowed node that comes nearest, and what it lacks."""
        allowed = funnel.allowed if funnel.allowed.any() else np.ones_like(funnel.allowed)
        room, request = self.session.nodes.usage.allocatable, funnel.task.request
        part = (room / np.maximum(request, 1)[:, None])[request > 0]
        row = int(np.where(allowed, part.min(axis=0), -1).argmax())
        lacks: list[int] = np.flatnonzero(room[:, row] < request).tolist()
        subject = {"node": self.session.nodes.facts.names[row]}
        clauses = [one.text for one in funnel.lasting if not one.passes.all()]
        if clauses:
            subject["clause"] = "; ".join(clauses)
        return Diagnosis(Cause.SHAPE, subject, self._told(lacks, asks=request, largest=room[:, row]))

    def _room(self, job: Job, funnel: Funnel) -> Diagnosis:
        """Nodes that may take the job have no room: too little in sum, in pieces too small, or held by others."""
        usage = self.session.nodes.usage
        if funnel.freed[funnel.allowed].sum() >= self.missing:
            return self._leaving(job)
        idle, asked = np.maximum(usage.idle, 0), self.needed > 0
        free, allowed = sum_of(idle, axis=1), sum_of(idle[:, funnel.allowed], axis=1)
        short = np.flatnonzero(asked & (free < self.needed)).tolist()
        if short:
            return self._full(short, free)
        near = self._nearest(funnel, idle)
        lacking = self._lacking(funnel, idle[:, near])
        if (allowed[asked] >= self.needed[asked]).all():
            amounts = self._told(lacking, asks=self.needed, free=allowed, largest=idle[:, funnel.allowed].max(axis=1))
            return Diagnosis(Cause.FRAGMENTATION, {}, amounts | self._counts(funnel))
        subject = {"node": self.session.nodes.facts.names[near]}
        held = holders_of(self.session, NodeView(self.session, near).tasks, [self.names[column] for column in lacking])
        if held:
            subject["holder"] = held[0].job
        amounts = self._told(lacking, asks=funnel.task.request, most=idle[:, near])
        return Diagnosis(Cause.NODE_ROOM, subject, amounts | self._counts(funnel))

    def _nearest(self, funnel: Funnel, idle: Ints) -> int:
        """The allowed node with the largest part of what a pod asks for."""
        request = funnel.task.request
        part = (idle / np.maximum(request, 1)[:, None])[request > 0].min(axis=0)
        return int(np.where(funnel.allowed, part, -1).argmax())

    @staticmethod
    def _lacking(funnel: Funnel, room: Ints) -> list[int]:
        """The resources of which a node has too little, that first of which it has the smallest part."""
        request = funnel.task.request
        lacking: list[int] = np.flatnonzero((request > 0) & (room < request)).tolist()
        return sorted(
            lacking or np.flatnonzero(request > 0).tolist()[:1], key=lambda column: room[column] / request[column]
        )

    def _full(self, columns: list[int], free: Ints) -> Diagnosis:
        """Less is free in sum than the job needs: who holds most."""
        columns.sort(key=lambda column: free[column] / self.needed[column])
        held = held_in(self.session, None, self.names[columns[0]])
        subject = {"holder": held[0].job} if held else {}
        amounts = self._told(columns, asks=self.needed, free=free, total=self.session.nodes.total)
        return Diagnosis(Cause.CLUSTER_FULL, subject, amounts)

    # --- limits -------------------------------------------------------------------------------------------------------

    def _of_limit(self, job: Job, reason: ev.Waiting, limit: QueueLimit) -> Diagnosis:
        cause, queue = cause_of(reason), self.session.queues.get(limit.queue, job.queue)
        column = self.session.nodes.column_of.get(limit.resource)
        asks, taken = limit.asks if limit.asks is not None else self._asks(column), limit.taken
        if reason.gate == "queue":  # a pod's turn, beside what other pods of the job had for the moment
            asks, taken = asks * self.missing, amount_in(self.session, queue, limit.resource)
        limit = limit._replace(taken=taken)
        amounts = {limit.resource: {"asks": asks, "has": taken, "limit": limit.limit}}
        code = declared(reason.reason)
        field = "" if code is None else code.field.replace("{resource}", limit.resource)
        of_cluster = limit.bound == OF_THE_CLUSTER
        if column is not None:
            total, free = int(self.session.nodes.total[column]), self._free(column)
            is_elastic = of_cluster or cause == Cause.QUEUE_DESERVED
            if (free < asks and is_elastic) or (limit.limit >= total and not of_cluster):
                held = held_in(self.session, None, limit.resource)
                subject = {"holder": held[0].job} if held else {}
                return self._order_of_limit(limit, None, asks) or Diagnosis(
                    Cause.CLUSTER_FULL, subject, {limit.resource: {"asks": asks, "free": free, "total": total}}
                )
        if of_cluster:
            return Diagnosis(cause, {"field": field, **self._reserver(limit.resource)}, amounts)
        ordered = self._order_of_limit(limit, queue, asks)
        if ordered is not None:
            return ordered
        cause, names = self._whose(job, cause, queue, limit, field)
        return Diagnosis(cause, names, amounts)

    def _whose(self, job: Job, cause: str, queue: Queue, limit: QueueLimit, field: str) -> tuple[str, dict[str, str]]:
        """Whose limit a queue runs into: others' guarantees, a capability of its own or of a queue above it, or
        what the reason says."""
        resource = limit.resource
        if cause == Cause.CARD_QUOTA:
            return cause, {"queue": queue.name, "field": field, "card": resource}
        other = self._guaranteed(queue, limit)
        if other is not None:
            return Cause.OTHERS_GUARANTEE, {"queue": other.name, "field": f"spec.guarantee.resource.{resource}"}
        for one in self.session.lineage(queue):
            if one.record.capability.get(resource) == limit.limit:
                cause = Cause.QUEUE_CAPABILITY if one is job.queue else Cause.PARENT_LIMIT
                return cause, {"queue": one.name, "field": f"spec.capability.{resource}"}
        return cause, {"queue": queue.name, "field": field}

    def _asks(self, column: int | None) -> int:
        return 0 if column is None or self.funnel is None else int(self.funnel.task.request[column])

    def _free(self, column: int) -> int:
        return int(sum_of(np.maximum(self.session.nodes.usage.idle[column], 0)))

    def _reserver(self, resource: str) -> dict[str, str]:
        """Who reserved most of a resource by being admitted."""
        jobs, column = self.session.jobs, self.session.nodes.column_of[resource]
        reserved = jobs.missing(np.arange(len(jobs)))[:, column].copy()
        reserved[[one.index for one in self.session.all_jobs() if one.is_pending()]] = 0
        row = int(reserved.argmax()) if len(reserved) else 0
        return {"holder": jobs.keys[row]} if len(reserved) and reserved[row] else {}

    def _guaranteed(self, queue: Queue, limit: QueueLimit) -> Queue | None:
        """The other queue to which most of a resource is guaranteed, where it is guarantees that make a limit: no
        capability that is stated does, and all that they leave of the cluster is not more."""
        mine, resource = self.session.lineage(queue), limit.resource
        others = [one for one in self.session.queue_list if one not in mine and one.record.guarantee.get(resource)]
        stated = [one.record.capability.get(resource, 0) for one in mine]
        column = self.session.nodes.column_of.get(resource)
        if not others or column is None or any(0 < most <= limit.limit for most in stated):
            return None
        apart = [one for one in others if not any(above in others for above in self.session.lineage(one)[1:])]
        left = int(self.session.nodes.total[column]) - sum(one.record.guarantee[resource] for one in apart)
        if limit.limit < left:
            return None
        return max(others, key=lambda one: (one.record.guarantee[resource], one.name))

    # --- others -------------------------------------------------------------------------------------------------------

    def _leaving(self, job: Job) -> Diagnosis:
        """Whose pods are leaving, on the nodes where room is held for the job, else anywhere."""
        rows = {task.node for task in job.tasks() if task.status == TaskStatus.PIPELINED}
        going: dict[str, int] = {}
        for other in self.session.all_jobs():
            count = sum(
                task.status == TaskStatus.RELEASING and (not rows or task.node in rows)
                for task in (other.tasks() if other.counts[TaskStatus.RELEASING] else ())
            )
            if count:
                going[other.key] = count
        holder = max(sorted(going), key=going.__getitem__, default="")
        subject = {"holder": holder} if holder else {}
        return Diagnosis(Cause.LEAVING, subject, {"": {"pods": sum(going.values()), "needs": self.missing}})

    def _order(self, job: Job, funnel: Funnel) -> Diagnosis | None:
        """Whether what others were given while it waited would let it in."""
        idle = self.session.nodes.usage.idle
        room, back = idle.copy(), dict[str, Ints]()
        for other, task in self._placed_meanwhile():
            alone = back.setdefault(other.key, idle.copy())
            alone[:, task.node] += task.request
            room[:, task.node] += task.request
        if not back or funnel.with_room(room)[funnel.allowed].sum() < self.missing:
            return None
        fits = int(funnel.now[funnel.allowed].sum())
        given = {key: int(funnel.with_room(alone)[funnel.allowed].sum()) - fits for key, alone in back.items()}
        return self._overtaken({key: pods for key, pods in given.items() if pods} or dict.fromkeys(given, 1))

    def _order_of_limit(self, limit: QueueLimit, queue: Queue | None, asks: int) -> Diagnosis | None:
        """The same of what a queue, and those below it, may hold."""
        column = self.session.nodes.column_of.get(limit.resource)
        given: dict[str, int] = {}
        for other, task in self._placed_meanwhile():
            if column is not None and (queue is None or queue in self.session.lineage(other.queue)):
                given[other.key] = given.get(other.key, 0) + int(task.request[column])
        if limit.taken - sum(given.values()) + asks > limit.limit or not any(given.values()):
            return None
        return self._overtaken(given)

    def _placed_meanwhile(self) -> Iterator[tuple[Job, Task]]:
        of_job = self.session.job_of_row
        rows = [
            row for row, key in enumerate(self.session.snapshot.tasks.keys) if key in self.served and of_job[row] >= 0
        ]
        for task in self.session.views.tasks_at(rows):
            if task.job.key != self.wait.group and task.status in ALLOCATED_STATUSES and task.node >= 0:
                yield task.job, task

    def _overtaken(self, given: dict[str, int]) -> Diagnosis:
        first = max(sorted(given), key=given.__getitem__)
        mine = self.wait.session.snapshot.groups[self.wait.group].created
        later = sum(self.session.snapshot.groups[key].created > mine for key in given)
        return Diagnosis(
            Cause.ORDER, {"ahead": first}, {"": {"served": len(given), "later": later, "needs": self.missing}}
        )

    def _told(self, columns: list[int], **amounts: Ints) -> dict[str, dict[str, int]]:
        return {
            self.names[column]: {role: int(values[column]) for role, values in amounts.items()} for column in columns
        }


def _rank(reason: ev.Waiting) -> int:
    if cause_of(reason) == Cause.GANG_INCOMPLETE:
        return len(_GATES) + 1
    return _GATES.index(reason.gate) if reason.gate in _GATES else len(_GATES)


def _as_given(reason: ev.Waiting) -> Diagnosis:
    """What a reason says itself."""
    words = told(reason).text
    if isinstance(reason.reason, str):
        return Diagnosis(cause_of(reason), {}, {}, words)
    code, subject = declared(reason.reason), dict(reason.reason.names)
    if code is not None and code.field:
        subject["field"] = code.field.replace("{resource}", next(iter(reason.reason.by_resource()), ""))
    return Diagnosis(cause_of(reason), subject, reason.reason.by_resource(), words)


def _about(job: Job, cause: str) -> dict[str, str]:
    """What reasons of some causes are about beside what they name: the job's queue, the gates of its pods."""
    if cause == Cause.QUEUE_CLOSED:
        return {"queue": job.queue.name}
    if cause == Cause.UNSUPPORTED:
        return {
            "field": ", ".join(
                dict.fromkeys([*job.record.unsupported, *(f for task in job.pending() for f in task.unsupported)])
            )
        }
    if cause == Cause.GATED:
        gates = [gate.name for task in job.pending() for gate in task.shape.spec.scheduling_gates]
        return {"gate": ", ".join(dict.fromkeys(gates))}
    return {}

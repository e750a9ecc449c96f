"""allocate: place the tasks of admitted jobs on nodes (docs/semantics/actions.md).

Nominated jobs come first, then all jobs in order, then lent shares, then jobs that were refused because of their own
tasks. Undo changes only through the statement (save points, `discard`), because plugins count what it places.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TypeVar

import numpy as np

from vcd.model.events import Waiting
from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.model.status import Phase, TaskStatus
from vcd.model.wording import rfc3339, some
from vcd.scheduling.actions.enqueue import may_be_admitted, namespace_hold_reason, unsupported_reason
from vcd.scheduling.eviction.idle_placement import unpipeline_idle
from vcd.scheduling.eviction.nominations import nominated_jobs, nominations_of
from vcd.scheduling.framework.action import Action
from vcd.scheduling.framework.arguments import Argument
from vcd.scheduling.framework.demand import demand_of
from vcd.scheduling.framework.domainsearch import Attempt, Share, place_in_domains
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.framework.job_validity import note_not_ready, unplaceable, why_invalid
from vcd.scheduling.framework.order import JobQueue, PriorityQueue
from vcd.scheduling.framework.worksheet import Worksheet, units
from vcd.scheduling.search.candidates import Candidates
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement
from vcd.scheduling.session.views import Job, Partition, SubJob, Task
from vcd.scheduling.topology.domain_scope import scope_of
from vcd.scheduling.topology.tree import Domain
from vcd.state.backoff import NAMESPACE, RELEASE, RefusalBackoff
from vcd.state.records import QUEUE_ADMISSION_GATE, has_foreign_gate, has_gate, opts_into_queue_gate

_AT_GATE = ReasonCode(
    "scheduling-gate",
    Cause.GATED,
    "a scheduling gate holds the pod",
    mend="whoever set the gate has to remove it",
)
_AT_QUEUE_GATE = ReasonCode(
    "scheduling-gate-unannotated",
    Cause.GATED,
    "a scheduling gate holds the pod, and an annotation is missing for it",
    mend="whoever set the gate has to remove it",
)
_GATE_LIFTED = ReasonCode(
    "scheduling-gate-lifted", Cause.GATED, "its queue has room for it, and its scheduling gate is being lifted"
)
_REFUSED = ReasonCode(
    "refused-by-api-server",
    Cause.OUTSIDE,
    "the API server refused to {verb} the pod (refusals in a row: {attempts}): {message}; it is tried again at {until}",
    mend="whatever refuses it (an admission webhook, a quota, missing rights) has to allow it",
)
_BIND_REFUSED = ReasonCode(
    "bind-refused-by-api-server",
    Cause.OUTSIDE,
    "the API server refused to bind the pod (refusals in a row: {attempts}): {message}; it is tried again at {until}, "
    "on nodes other than {nodes} first",
    mend="whatever refuses it (an admission webhook or policy, missing rights) has to allow it",
)
_RELEASED = ReasonCode(
    "gang-released",
    Cause.OUTSIDE,
    "the API server admitted its gang only in part (times in a row: {attempts}); it is tried again at {until}",
    mend="whatever refuses pods of the gang (an admission webhook, a quota, missing rights) has to allow them",
)
_REFUSED_THERE = ReasonCode(
    "bind-refused-there",
    Cause.OUTSIDE,
    "had a bind of the pod refused by the API server, so that other nodes come first",
    remark=True,
)
_ROOM_LEAVING = ReasonCode("room-leaving", Cause.LEAVING, "room is still being freed", nodes_help=True)

_PENDING = int(TaskStatus.PENDING)
_OPT_IN = f'{QUEUE_ADMISSION_GATE}: "true"'

RemainingTasks = deque[Task] | Worksheet
"""The tasks of a job that are still to be placed."""
Unit = TypeVar("Unit", Job, SubJob)
"""What is placed as a whole or not at all."""

PREDICATE_ERROR_CACHE = Argument(
    "predicateErrorCacheEnable",
    "bool",
    True,
    "Whether nodes that failed a task are remembered for those of its role.",
    without_effect="failures are always cached until something that they depend on changes; decisions do not depend "
    "on it",
)


class AllocateAction(Action):
    """Place tasks queue by queue, job by job, task by task, each on the best node that passes all predicates.

    A job's placements are committed if the plugins find it ready, left pipelined if it only waits for releasing
    resources, and rolled back otherwise. A job that its group's ``subGroupPolicy`` divides is placed sub-job by
    sub-job, each by the same rule.

    When a task finds no node, other tasks of its role, which mostly have the same request, are skipped. So is the rest
    of a job that cannot have its minimum without them. They get a second round if nothing else could be placed. So do
    tasks refused by their queue because of other tasks of their job: within the share of their queue, then beyond it.

    In a last round, the unused share of all queues is lent to jobs that still wait (point ``lend``).
    """

    name = "allocate"
    follows_order = True
    arguments = (PREDICATE_ERROR_CACHE,)

    def execute(self, framework: Framework) -> None:
        session = framework.session
        if "enqueue" not in framework.policy.actions:
            _admit_all(session)
        unpipeline_idle(framework, lambda _: True)
        jobs, tasks = self._jobs_to_place(framework, session.jobs_with_pending())
        all_jobs = {index: list(queued) for index, queued in jobs.items()}
        nominations_of(framework).served = True
        self._place_nominated(framework, jobs, tasks)
        waiting = {index: framework.jobs_in_order(queued) for index, queued in jobs.items()}
        self._place_in_order(framework, waiting, tasks)
        self._lend(framework)
        for lends in (False, True):
            self._second_round(framework, all_jobs, lends)

    @classmethod
    def place_nominated(cls, framework: Framework) -> None:
        """Place nominated jobs before an action ahead of allocate gives their capacity away.

        Jobs that cannot be placed here are tried again by allocate, which notes the reasons.
        """
        nominations = nominations_of(framework)
        if nominations.served or cls.name not in framework.policy.actions:
            return
        nominations.served = True
        found = nominations.jobs_and_rivals()
        reasons_before = [(job, list(job.why)) for job in found]
        jobs, tasks = cls._jobs_to_place(framework, found)
        cls._place_nominated(framework, jobs, tasks)
        for job, why in reasons_before:
            job.why[:] = why
            job.failed_roles.clear()
            job.failed.clear()
            job.wants_second_round = False

    @classmethod
    def _jobs_to_place(
        cls, framework: Framework, jobs: Iterable[Job]
    ) -> tuple[dict[int, list[Job]], dict[int, RemainingTasks]]:
        """Return the jobs that have tasks to place, by queue, and their tasks in task order.

        Tasks of jobs whose pods are all equivalent are listed only when the job's turn comes.
        """
        queued: dict[int, list[Job]] = {}
        tasks: dict[int, RemainingTasks] = {}
        alike = framework.session.classes.has_equivalent_pods
        for job in jobs:
            if not cls._can_be_tried(framework, job):
                continue
            if not (alike(job.index) and job.queue.is_open and job.counts[TaskStatus.PENDING]):
                tasks[job.index] = cls._tasks_to_place(framework, job)
            if tasks.get(job.index, True):
                queued.setdefault(job.queue.index, []).append(job)
        return queued, tasks

    @classmethod
    def _tasks_to_place(cls, framework: Framework, job: Job) -> RemainingTasks:
        """Return the tasks of a job that may be placed; note why the others may not."""
        session = framework.session
        wanted = [task for task in job.pending() if task.status == _PENDING and not task.best_effort]
        if not job.queue.is_open:  # if many are held, the reason names the pods that would be tried first
            wanted = framework.in_task_order(wanted)
        if not (job.queue.is_open and session.classes.has_equivalent_pods(job.index)):
            wanted = [task for task in wanted if not is_held(session, task, _is_gated_first(session, task))]
        if wanted and job.partition is not None:
            return Worksheet(framework, job.partition, wanted)
        return deque(framework.in_task_order(wanted))

    def _place_in_order(
        self,
        framework: Framework,
        waiting: dict[int, JobQueue],
        tasks: dict[int, RemainingTasks],
        before: dict[int, tuple[int, list[Waiting]]] | None = None,
    ) -> None:
        """Place one job of a queue, then one of the next queue, until no job is left that could be placed.

        ``before`` receives, for jobs that are tried again, the number of pending tasks and the reasons noted so far.
        """
        session = framework.session
        queues: PriorityQueue[Queue] = PriorityQueue(
            framework.queue_key, [session.queue_list[index] for index in sorted(waiting)]
        )
        while queues:
            queue = queues.pop()
            heap = waiting[queue.index]
            if not heap:
                continue
            overused = framework.overused(queue)
            if overused is not None:
                for job in heap.rest() if before is None else ():
                    job.note("queue", *overused)
                continue
            if session.is_full():
                for jobs in waiting.values():
                    jobs.rest()  # settles the queue, so that no untried job gets the result of the last class
                return
            job = heap.pop()
            if before is not None and job.index not in before:
                before[job.index] = job.counts[_PENDING], list(job.why)
                job.why.clear()
                job.failed_roles.clear()
            left = tasks.pop(job.index, None)
            if left is None and self._can_be_tried(framework, job):
                left = self._tasks_to_place(framework, job)
            if left and self._allocate(framework, queue, job, left) and left:
                tasks[job.index] = left
                heap.push(job)
            queues.push(queue)

    def _lend(self, framework: Framework) -> None:
        """Lend the remaining resources to jobs that wait only for their queue's limit, in the same order.

        During this round the plugins at ``lend`` allow queues to exceed their share. A job that gets nothing keeps its
        earlier reasons, plus those that lending adds.
        """
        session = framework.session
        limited = [job for job in session.jobs_with_pending() if any(why.gate == "queue" for why in job.why)]
        if limited and not session.is_full() and framework.lend(True):
            jobs, tasks = self._jobs_to_place(framework, filter(demand_of(session).may_gain, limited))
            waiting = {index: framework.jobs_in_order(queued) for index, queued in jobs.items()}
            before: dict[int, tuple[int, list[Waiting]]] = {}
            self._place_in_order(framework, waiting, tasks, before)
            for index, (pending, reasons_before) in before.items():
                job = session.job(index)
                if job.counts[_PENDING] == pending:
                    job.why[:] = [
                        *reasons_before,
                        *[why for why in job.why if why.gate == "queue" and why not in reasons_before],
                    ]
        framework.lend(False)

    def _second_round(self, framework: Framework, jobs: dict[int, list[Job]], lends: bool) -> None:
        """Retry jobs whose own tasks were in the way of others, if the session has placed no task.

        ``lends``: beyond the share of their queues. Tasks equivalent to one that failed on its own are left out.
        """
        session = framework.session
        found = {
            index: [job for job in queued if job.wants_second_round and len(job.pending()) > 1]
            for index, queued in jobs.items()
        }
        if session.trial.placements or not any(found.values()) or (lends and not framework.lend(True)):
            return
        for index, queued in found.items():
            queue = session.queue_list[index]
            for job in sorted(queued, key=framework.job_key):
                others = self._tasks_to_retry(framework, job) if queue.is_open else []
                if others and framework.overused(queue) is None and not session.is_full():
                    self._retry(framework, queue, job, others)
        if lends:
            framework.lend(False)

    @staticmethod
    def _tasks_to_retry(framework: Framework, job: Job) -> list[Task]:
        """Return a job's pending tasks, roles below their minimum first; none if all tasks are equivalent."""
        tasks = [
            task
            for task in job.pending()
            if task.status == TaskStatus.PENDING and not (task.best_effort or task.gated or task.unsupported)
        ]
        keys_in_job = framework.evaluator.keys.keys_in_job
        keys, failed = keys_in_job(tasks), set(keys_in_job(job.failed))
        if len({(key, task.role) for key, task in zip(keys, tasks, strict=True)}) < 2:
            return []
        left = {task.row for key, task in zip(keys, tasks, strict=True) if key not in failed}
        ordered = framework.in_task_order(tasks) if left else []  # the order of the first round
        return sorted((task for task in ordered if task.row in left), key=lambda task: not job.misses(task.role))

    def _retry(self, framework: Framework, queue: Queue, job: Job, others: list[Task]) -> None:
        statement = framework.statement(self.name, job)
        for sub_job, tasks in units(framework, job, others):
            save_point = statement.save()
            for task in tasks:
                if framework.allocatable(queue, task, 1) is not None or not place(framework, statement, [task]):
                    continue
                if framework.job_ready(job) and (sub_job is None or framework.sub_job_ready(sub_job)):
                    statement.commit()
                    statement, save_point = framework.statement(self.name, job), 0
            if sub_job is not None and not framework.sub_job_ready(sub_job):
                statement.undo(save_point)
        if len(statement) and framework.job_pipelined(job):
            statement.stay_pipelined()
        else:
            statement.discard()

    @classmethod
    def _place_nominated(
        cls, framework: Framework, jobs: dict[int, list[Job]], tasks: dict[int, RemainingTasks]
    ) -> None:
        """Place nominated jobs first, so that no other job takes the capacity that is being freed for them.

        The latest nomination comes before older ones whose capacity was given to it. Jobs that outrank a nominated job
        come before it.
        """
        session = framework.session
        nominations = nominations_of(framework)
        turn_of = nominations.turn
        for job, turn in nominated_jobs(framework, [job for queued in jobs.values() for job in queued]):
            cls._place_rivals(framework, job, turn, jobs[job.queue.index], tasks)
            if not nominations.holds(job, turn):
                continue
            left = tasks[job.index] if job.index in tasks else cls._tasks_to_place(framework, job)
            if isinstance(left, deque):
                left = tasks[job.index] = deque(sorted(left, key=lambda task: turn_of(task) != turn))
            goes_on = bool(left)
            while goes_on and framework.overused(job.queue) is None and not session.is_full():
                goes_on = cls._allocate(framework, job.queue, job, left) and any(turn_of(task) == turn for task in left)
        for queued in jobs.values():
            queued[:] = [job for job in queued if tasks.get(job.index, True)]

    @classmethod
    def _place_rivals(
        cls, framework: Framework, job: Job, turn: int, queued: list[Job], tasks: dict[int, RemainingTasks]
    ) -> None:
        """Place the jobs of ``queued`` that outrank a nominated job, until its nomination ends; remove tried ones."""
        session, nominations = framework.session, nominations_of(framework)
        rivals = [other for other in queued if nominations.outranks(other, job)]
        if not rivals:
            return
        heap = framework.jobs_in_order(rivals)
        while heap and nominations.holds(job, turn) and framework.overused(job.queue) is None and not session.is_full():
            other = heap.pop()
            left = tasks.pop(other.index, None)
            if left is None and cls._can_be_tried(framework, other):
                left = cls._tasks_to_place(framework, other)
            if left and cls._allocate(framework, job.queue, other, left) and left:
                tasks[other.index] = left
                heap.push(other)
        queued[:] = [*(other for other in queued if other not in rivals), *heap.rest()]

    @staticmethod
    def _can_be_tried(framework: Framework, job: Job) -> bool:
        """Whether a job may be placed at all. For an admitted job that may not, note why."""
        if job.is_pending():
            return False
        invalid = why_invalid(framework, job)
        if invalid is not None:
            for task in unplaceable(framework, job) if job.is_broken else ():
                refused = framework.pre_predicate(task)
                if refused is not None:
                    job.note("predicate", *refused, nodes=len(framework.session.nodes), task=task)
                else:
                    _note_reasons(task, framework.candidates(task))
            job.note("invalid", *invalid)
        return invalid is None

    @classmethod
    def _allocate(cls, framework: Framework, queue: Queue, job: Job, tasks: RemainingTasks) -> bool:
        """Place a job's tasks until it is ready; return whether that was committed."""
        statement = framework.statement(cls.name, job)
        if isinstance(tasks, Worksheet):
            placed = cls._place_sub_jobs(framework, queue, statement, tasks)
            ready = framework.job_ready(job) and cls._exclude_waiting(framework, statement, tasks.partition, placed)
        else:
            _place_unit(framework, queue, statement, job, tasks, None)
            ready = framework.job_ready(job)
        if ready:
            statement.commit()
            return True
        note_not_ready(framework, job)
        if framework.job_pipelined(job):
            statement.stay_pipelined()
        else:
            statement.discard()
        return False

    @staticmethod
    def _place_sub_jobs(framework: Framework, queue: Queue, statement: Statement, worksheet: Worksheet) -> list[Task]:
        """Place sub-jobs, each its size or nothing, until the job is ready; return the placed tasks.

        A sub-job that cannot be placed is not tried again. One with tasks beyond its size gets one more per turn.
        """
        job = statement.job

        def attempt(domain: Domain | None, _: Sequence[Share]) -> Attempt[tuple[Worksheet, list[Task]]]:
            left = worksheet if domain is None else worksheet.copy()
            placed, points = list[Task](), 0.0
            while left:
                sub_job, tasks = left.pop()
                tried = list(tasks)
                save_point = statement.save()
                points += _place_unit(framework, queue, statement, sub_job, tasks, domain)
                if not (framework.sub_job_ready(sub_job) or framework.sub_job_pipelined(sub_job)):
                    sub_job.missed = sub_job.min_available + sub_job.margin + sub_job.waiting_count
                    statement.undo(save_point)
                elif statement.save() > save_point:
                    placed += [task for task in tried if task.status != TaskStatus.PENDING]
                    if tasks:
                        left.push(sub_job)
                    if framework.job_ready(job):
                        break
            return Attempt((left, placed), points)

        done = place_in_domains(framework, statement, job, worksheet, None, attempt)
        left, placed = (None, []) if done is None else done.result
        worksheet.assign(left)
        known = [why.reason for why in job.why]
        for remark in worksheet.partition.remarks():
            if remark not in known:
                job.note("gang", "", remark)
        return placed

    @classmethod
    def _exclude_waiting(
        cls, framework: Framework, statement: Statement, partition: Partition, placed: list[Task]
    ) -> bool:
        """Exclude sub-jobs that still wait for releases from the commit: a sub-job is bound as a whole.

        Return whether the job is ready without them; if not, all of it waits.
        """
        if all(framework.sub_job_ready(partition.of(task)) for task in placed):
            return True
        places = [(task, task.node, task.status) for task in placed]
        waiting = [not framework.sub_job_ready(partition.of(task)) for task in placed]
        statement.discard()
        _place_again(statement, [place for place, waits in zip(places, waiting, strict=True) if not waits])
        ready = framework.job_ready(statement.job)
        held = framework.statement(cls.name, statement.job) if ready else statement
        _place_again(held, [place for place, waits in zip(places, waiting, strict=True) if waits])
        framework.session.pipelined_sub_jobs.append(held)
        if ready:
            held.stay_pipelined()
        return ready


def _place_again(statement: Statement, places: list[tuple[Task, int, int]]) -> None:
    for task, node, status in places:
        statement.place_again(task, node, status)


def _place_unit(
    framework: Framework,
    queue: Queue,
    statement: Statement,
    unit: Job | SubJob,
    tasks: deque[Task],
    root: Domain | None,
) -> float:
    """Place tasks of a job, or of a sub-job, within ``root`` until it is ready. Return the points of its domain.

    Tasks that were placed or failed are removed from ``tasks``.
    """

    def place_some(some: deque[Task]) -> None:
        if isinstance(unit, Job):
            _place_until_ready(framework, queue, statement, unit, some, framework.job_ready, needs_more)
        else:
            unit.failed_roles.clear()
            _place_until_ready(framework, queue, statement, unit, some, framework.sub_job_ready, SubJob.needs_more)

    def attempt(domain: Domain | None, shares: Sequence[Share]) -> Attempt[deque[Task]]:
        left = tasks if domain is None else deque(tasks)
        for share in shares:
            some = deque([left.popleft() for _ in range(min(share.tasks, len(left)))])
            with scope_of(framework.session).within(statement.job, share.domain):
                place_some(some)
            left.extendleft(reversed(some))
        if not shares:
            place_some(left)
        return Attempt(left)

    done = place_in_domains(framework, statement, unit, tasks, root, attempt)
    left = deque[Task]() if done is None else done.result
    if left is not tasks:
        tasks.clear()
        tasks.extend(left)
    return 0.0 if done is None else done.points


def _place_until_ready(
    framework: Framework,
    queue: Queue,
    statement: Statement,
    unit: Unit,
    tasks: deque[Task],
    ready: Callable[[Unit], bool],
    more: Callable[[Unit], bool],
) -> None:
    """Place tasks of a job or sub-job until it is ``ready``, or cannot become so by ``more``.

    Equivalent tasks are placed together, but no more than could be refused by their queue, or make the job ready.
    """
    session, job = framework.session, statement.job
    together = unit is job and framework.can_place_together(job)
    while tasks:
        count: int = max(1, min(len(tasks), framework.missing_tasks(job))) if together else 1
        task = tasks.popleft()
        refused = framework.allocatable(queue, task, count)
        while refused is not None and count > 1:
            count //= 2
            refused = framework.allocatable(queue, task, count)
        if refused is not None:
            job.note("queue", *refused, task=task)
            job.wants_second_round |= len(statement) > 0  # without placements of its own, a retry cannot help
        elif not (is_held(session, task, task.gated) or (task.role and task.role in unit.failed_roles)):
            placed = place(framework, statement, [task, *islice(tasks, count - 1)])
            for _ in range(placed - 1):
                tasks.popleft()
            if not placed:
                job.wants_second_round = True
                unit.failed_roles.add(task.role)
                if not len(statement):  # else the job's own placements may be in the way
                    job.failed.append(task)
                if not more(unit):
                    break
            elif ready(unit):
                break


def _admit_all(session: Session) -> None:
    """Count pending groups of open queues as admitted, valid or not, if no action admits groups."""
    for index in session.tried(np.flatnonzero(session.jobs.phase == Phase.PENDING)):
        job = session.job(index)
        if may_be_admitted(session, job):
            job.phase = Phase.INQUEUE
    for lead, others in session.classes.followers():
        session.views.phases[others] = session.job(lead).phase
    for job in session.views.jobs():
        if session.classes.follows[job.index]:
            job.phase = Phase(session.views.phases[job.index])


def is_held(session: Session, task: Task, gated: bool) -> bool:
    """Whether a task may not be placed at all, because it is ``gated`` or its queue is not open; note why."""
    if task.unsupported:
        task.job.note("unsupported", "", unsupported_reason(task.unsupported), task=task)
        return True
    backoff = session.backing_off.get(task.row)
    if backoff is not None:
        task.job.note("gated", "", _backoff_reason(backoff), task=task)
    elif gated:
        task.job.note("gated", "", _gate_reason(session, task), task=task)
    elif not task.job.queue.is_open:
        task.job.note("queue", "", task.job.queue.why_closed(), task=task)
    return gated or not task.job.queue.is_open


def _is_gated_first(session: Session, task: Task) -> bool:
    """Whether a task is held regardless of its queue's free capacity."""
    return task.gated and (has_gate(task.shape) or task.row in session.backing_off)


def _backoff_reason(backoff: RefusalBackoff) -> Reason:
    """Return why a task backs off after a refusal of the API server, or with its namespace."""
    names = {"until": rfc3339(backoff.until)}
    times = [("attempts", "", backoff.attempts)]
    if backoff.verb == NAMESPACE:
        return namespace_hold_reason(backoff.until)
    if backoff.verb == RELEASE:
        return _RELEASED(names, times)
    if backoff.nodes:
        return _BIND_REFUSED({**names, "nodes": some(backoff.nodes), "message": backoff.message}, times)
    return _REFUSED({"verb": backoff.verb, **names, "message": backoff.message}, times)


def _gate_reason(session: Session, task: Task) -> Reason:
    """Return why a scheduling gate holds a task. Record a queue admission gate to be lifted: its queue has capacity."""
    if has_foreign_gate(task.shape.spec):
        return _AT_GATE()
    if not opts_into_queue_gate(task.pod):
        return _AT_QUEUE_GATE({"annotation": _OPT_IN})
    if task.key not in session.snapshot.lifting:
        session.ungated[task.row] = task
    return _GATE_LIFTED()


def place(framework: Framework, statement: Statement, tasks: list[Task], *, may_wait: bool = True) -> int:
    """Place the first of equivalent tasks, or as many as idle resources suffice for, each on the best node at its turn.
    Return how many; if no node takes the first one now or (``may_wait``) after releases, note the reasons.

    If a plugin refuses to place the first one, it stays pending and counts as placed: no other node is tried.
    """
    session, task = framework.session, tasks[0]
    refused = framework.pre_predicate(task)
    if refused is not None:
        task.job.note("predicate", *refused, nodes=len(session.nodes), task=task)
        return 0
    candidates = framework.candidates(task)
    rows = candidates.best_in_turn(len(tasks)) if len(tasks) > 1 else []
    if rows and statement.allocate(tasks[: len(rows)], rows):
        return len(rows)
    row = _after_refusals(framework, task, candidates) if task.row in session.snapshot.backoffs else None
    if row is None:
        row = _best_place(framework, task, candidates, may_wait)
    if row is None:
        _note_reasons(task, candidates)
        return 0
    if session.nodes.has_room(row, task.floor):
        statement.allocate([task], [row])
    elif may_wait:
        statement.pipeline([task], [row])
    else:
        _note_reasons(task, candidates)
        nodes = int(candidates.passing().sum())
        task.job.note("predicate", "", _ROOM_LEAVING(), nodes=nodes, task=task)
        return 0
    return 1


def _after_refusals(framework: Framework, task: Task, candidates: Candidates) -> int | None:
    """Return the node for a task that the API server refused to bind to some nodes.

    None if it refused none, or if no node has idle resources for the task. The other nodes come first, since a webhook
    or policy may refuse some nodes only. After them comes the node with the oldest refusal: if the best one always came
    first, a node would never be retried after a passing problem.
    """
    session = framework.session
    refusing, has_room = session.refusing_nodes(task), session.nodes.has_room

    def best_without(rows: list[int]) -> int | None:
        row = framework.best_node(task, candidates.without(rows, _REFUSED_THERE()))
        return row if row is not None and has_room(row, task.floor) else None

    other = best_without(refusing) if refusing else None
    oldest = next((row for row in refusing if candidates.passes(row) and has_room(row, task.floor)), None)
    if other is not None or oldest is None:
        return other
    return best_without([row for row in refusing if row != oldest])


def _best_place(framework: Framework, task: Task, candidates: Candidates, may_wait: bool) -> int | None:
    """Return the best node for a task, its nominated node first."""
    has_room = framework.session.nodes.has_room
    row = framework.nominated(task, candidates) if may_wait else None
    if row is None or not has_room(row, task.floor):
        best = framework.best_node(task, candidates)
        if row is None or (best is not None and has_room(best, task.floor)):
            row = best  # a nominated task does not wait for pods to terminate while another node is idle
    return row


def _note_reasons(task: Task, candidates: Candidates) -> None:
    for reason, nodes in candidates.reasons().items():
        task.job.note("predicate", "", reason, nodes=nodes, task=task)


def needs_more(job: Job) -> bool:
    """Whether trying further tasks of a job can still make it ready after one found no node.

    Source: Volcano ``JobInfo.NeedContinueAllocating``.
    """
    if job.min_available >= job.task_count:
        return False
    if job.min_available < job.role_total:
        left = sum(task.status == TaskStatus.PENDING and task.role not in job.failed_roles for task in job.pending())
        return job.ready_count + left >= job.min_available
    if not job.has_roles:
        return True
    counts = job.role_counts()
    for role in sorted(job.failed_roles):
        minimum = job.role_minima.get(role, 0)
        if minimum and job.role_allocated(counts.get(role)) < minimum:
            return False
    return True

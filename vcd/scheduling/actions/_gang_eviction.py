"""Evict gangs for gangs: victims come in bundles, and a job gets capacity for all of its pending tasks or none.

What many preemptors share (the order of their victims, the most that victims hold) is computed once and follows the
evictions. A loop over all jobs or tasks for each preemptor makes the session quadratic; ``tests/cost`` counts it.

Source: Volcano ``actions/utils`` (bundles, nomination plan).
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import ClassVar

import msgspec
import numpy as np
import numpy.typing as npt

from vcd.model.reasons import Reason, ReasonCode
from vcd.scheduling.actions.allocate import AllocateAction
from vcd.scheduling.eviction.displacement import displacing
from vcd.scheduling.eviction.preemptors import jobs_in_turn, schedulable_tasks
from vcd.scheduling.eviction.vetoes import (
    IMMUNE,
    MARKED,
    MAY_NOT_RECLAIM,
    NEVER_EVICTS,
    NOT_LOWER,
    NOT_RECLAIMABLE,
    NOT_WHOLE,
    REFUSED,
    Vetoes,
    has_unreclaimable_usage,
)
from vcd.scheduling.eviction.victim_jobs import Ranks, VictimJobs
from vcd.scheduling.eviction.victim_search import PLACED, EvictionContext, Freeable, fits_on, may_preempt, placed_tasks
from vcd.scheduling.framework.action import Action
from vcd.scheduling.framework.arguments import Argument, ArgumentValues
from vcd.scheduling.framework.domainsearch import evict_in_domains
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.framework.worksheet import units
from vcd.scheduling.search.parts import Mask
from vcd.scheduling.session.job_columns import are_preemptable
from vcd.scheduling.session.nodes import Ints, fits
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.session_immunity import immunity_of
from vcd.scheduling.session.statement import Statement
from vcd.scheduling.session.subjobs import SpareSubJobs
from vcd.scheduling.session.views import Job, Task
from vcd.scheduling.topology.domain_scope import scope_of
from vcd.state.sums import sum_of


class Bundle(msgspec.Struct, frozen=True, dict=True):
    """Tasks of one job that are evicted together: its surplus above its minima, or (``whole``) all the rest."""

    whole: bool
    job: Job
    tasks: tuple[Task, ...]

    @cached_property
    def units(self) -> Sequence[tuple[Task, ...]]:
        """The tasks that can be evicted without the others, in eviction order."""
        return [self.tasks] if self.whole else [(task,) for task in self.tasks]

    @cached_property
    def freed(self) -> Ints:
        return _sum(self.tasks)

    @cached_property
    def lost(self) -> Ints:
        """The request of the whole job."""
        return _sum(self.job.tasks())


class GangEvictionAction(Action):
    """Base of gangpreempt and gangreclaim. A subclass defines which jobs may lose tasks, and in which order."""

    arguments = (
        Argument(
            "maxDomains",
            "int",
            8,
            "The most domains that are tried.",
            without_effect="every HyperNode that could hold the gang is tried",
        ),
        Argument("allowWholeBundle", "bool", True, "Whether a job may be evicted as a whole, below its minimum."),
    )
    follows_order = True
    why: ClassVar[str]
    largest_first: ClassVar[bool] = False
    """Whether the job of the largest rank is evicted first."""

    def __init__(self, arguments: ArgumentValues) -> None:
        super().__init__(arguments)
        self._victims: dict[Hashable, VictimJobs] = {}
        self._known: dict[Hashable, dict[int, tuple[list[int], list[Bundle]]]] = {}
        """The bundles of each job, with its counts at that time: valid while the counts are the same.

        By the pods that are immune to the preemptor, and by the resources that it needs.
        """
        self._unoffered: dict[tuple[ReasonCode, Hashable], dict[int, None]] = {}
        """The jobs with pods that are not offered to the plugins, by rule.

        For immune pods, also by the pods that are immune to the preemptor.
        """
        self._vetoes = Vetoes()
        self._preemptor: Job | None = None
        self._scope: Hashable = None

    def execute(self, framework: Framework) -> None:
        AllocateAction.place_nominated(framework)
        for job in jobs_in_turn(framework, lambda queue: self.may_take(framework, queue)):
            self._evict_for(framework, job)

    @abstractmethod
    def may_take(self, framework: Framework, queue: Queue) -> bool:
        """Whether jobs of a queue may evict pods of other jobs."""

    def refusal(self, framework: Framework, job: Job, tasks: list[Task]) -> tuple[str, Reason] | None:
        """Return the plugin by which a job may not evict others for ``tasks``, and the reason; None if it may."""
        return None

    @abstractmethod
    def victim_queues(self, session: Session, job: Job) -> list[Queue]:
        """Return the queues whose jobs may lose tasks for a job; the same for all jobs of one queue."""

    def victims_below(self, job: Job) -> int | None:
        """Return the priority below which jobs may lose tasks for ``job``, or None if priority does not matter."""
        return None

    def order_key(self, need: Ints, wanted: Mask) -> Hashable:
        """Return what ``rank`` depends on in addition to the jobs."""
        return None

    @abstractmethod
    def rank(self, framework: Framework, need: Ints, wanted: Mask, jobs: Sequence[Job]) -> Iterable[Ranks]:
        """Rank jobs of one queue that may lose tasks, in the order given."""

    def _evict_for(self, framework: Framework, job: Job) -> None:
        tasks = [task for task in schedulable_tasks(framework, job) if not task.best_effort]
        self._vetoes = Vetoes()
        is_served = False
        if not all(may_preempt(task) for task in tasks):
            self._vetoes.add(NEVER_EVICTS)
        elif tasks and (refused := self.refusal(framework, job, tasks)) is not None:
            self._vetoes.add(MAY_NOT_RECLAIM, refused[0])
        elif tasks:
            self._preemptor, self._scope = job, immunity_of(framework.session).scope(job)
            is_served = self._serve(framework, job, tasks) or (
                self.victims_below(job) is not None
                and displacing(framework, self.name, job, lambda: self._serve(framework, job, tasks))
            )
        self._vetoes.note(job, self.name, evicted=is_served)

    def _serve(self, framework: Framework, job: Job, tasks: list[Task]) -> bool:
        """Evict for all tasks and commit it. Return False if not all can have capacity; then no pod is evicted."""
        statement, need = framework.statement(self.name, job), _sum(tasks)
        if evict_in_domains(
            framework, statement, job, tasks, lambda: self._take(framework, statement, job, tasks, need)
        ):
            statement.commit()
            return True
        statement.discard()
        self._add_unoffered(framework.session, job, need > 0)
        return False

    def _add_unoffered(self, session: Session, job: Job, wanted: Mask) -> None:
        """Add the rules by which placed groups that hold some of ``wanted`` were not offered to the plugins."""
        jobs, below, queues = session.jobs, self.victims_below(job), self.victim_queues(session, job)
        there = placed_tasks(session).is_placed & (jobs.allocated[:, wanted] > 0).any(axis=1)
        there[job.index] = False
        there &= np.isin(jobs.queue, [queue.index for queue in queues])
        lower = there if below is None else there & (jobs.priority < below)
        if (there & ~lower).any():
            self._vetoes.add(NOT_LOWER)
        if (lower & ~jobs.derived(are_preemptable)).any():
            self._vetoes.add(MARKED)
        for (code, scope), by_job in self._unoffered.items():
            if scope in (None, self._scope) and lower[list(by_job)].any():
                self._vetoes.add(code)
        if job.queue not in queues and has_unreclaimable_usage(session, job.queue):
            self._vetoes.add(NOT_RECLAIMABLE)

    def _take(self, framework: Framework, statement: Statement, job: Job, tasks: list[Task], need: Ints) -> bool:
        """Evict bundle after bundle until all tasks find a node; undo evictions that turn out to be needless."""
        session, inside = framework.session, scope_of(framework.session).nodes_for(job)
        room = sum_of(np.maximum(session.nodes.usage.future_idle, 0)[:, inside], axis=1)
        lacking = need > room
        wanted = lacking if lacking.any() else need > 0
        taken: list[Bundle] = []
        context = EvictionContext(self.name, job, tuple(tasks))
        lacks, queue = _NodeShortage(session, tasks), _QueueShortage(framework, tasks)
        if framework.trace is None and lacks and not lacks.could_place(self._freeable(session, job)):
            return False
        for bundle in chain((None,), self._permitted_bundles(framework, context, need, wanted)):
            if bundle is not None and not any(inside[task.node] for task in bundle.tasks):
                continue
            if bundle is not None:
                self._evict(statement, bundle.tasks)
                room += bundle.freed
                taken.append(bundle)
                lacks.update({task.node for task in bundle.tasks})
                queue.update(bundle.freed)
            if ((need > 0) & (room < need)).any() or lacks or queue:
                continue
            if self._try_placing(framework, statement, tasks, taken, queue):
                return True
        return bool(queue) and self._try_placing(framework, statement, tasks, taken, queue)

    def _try_placing(
        self, framework: Framework, statement: Statement, tasks: list[Task], taken: list[Bundle], queue: _QueueShortage
    ) -> bool:
        """Pipeline all tasks on what the ``taken`` bundles free, and spare victims that they do not need.

        Return False, with nothing changed, if a task finds no node.
        """
        save_point = statement.save()
        if _place_all(framework, statement, tasks, queue):
            return self._spare_needless_victims(framework, statement, tasks, taken)
        statement.undo(save_point)
        return False

    def _freeable(self, session: Session, job: Job) -> Freeable:
        """Return the most that could be evicted for a job.

        Includes pods that only their own annotation protects: finding these would need a look at each pod.
        """
        placed, below = placed_tasks(session), self.victims_below(job)
        return placed.freeable_in(
            (self.name, job.queue.index, below),
            lambda: _victims_of(session, self.victim_queues(session, job), below)[placed.jobs],
        )

    def _evict(self, statement: Statement, victims: Iterable[Task]) -> None:
        job = statement.job
        for task in victims:
            statement.evict(task, f"{self.why} for {job.key} of queue {job.queue.name}")

    def _spare_needless_victims(
        self, framework: Framework, statement: Statement, tasks: list[Task], taken: list[Bundle]
    ) -> bool:
        """Undo evictions that the tasks do not need on their nodes, the last in eviction order first.

        A job evicted as a whole is spared as a whole. Return False if a plugin no longer lets the tasks wait. Idle
        resources of nodes decide which victims are needed. If a predicate or the queue's limit then refuses the tasks,
        more victims are evicted, in eviction order and as few as possible.
        """
        order = [unit for bundle in taken for unit in bundle.units]
        needed = _needed_victims(framework.session, taken)
        others = [place for place, unit in enumerate(order) if unit[0].row not in needed]
        if not others:
            return True
        places = [task.node for task in tasks]

        def fits_with(count: int) -> bool:
            spared = set(others[count:])
            statement.undo(0)
            self._evict(statement, chain.from_iterable(u for place, u in enumerate(order) if place not in spared))
            return all(_place_at(framework, statement, task, node) for task, node in zip(tasks, places, strict=True))

        if fits_with(0):
            return True
        fewest = bisect_left(range(1, len(others)), True, key=fits_with) + 1
        if fits_with(fewest):
            return True
        statement.undo(0)
        self._evict(statement, chain.from_iterable(order))
        return _place_all(framework, statement, tasks, _QueueShortage(framework, tasks))

    def _permitted_bundles(
        self, framework: Framework, context: EvictionContext, need: Ints, wanted: Mask
    ) -> Iterator[Bundle]:
        """Yield what the plugins let be evicted of each bundle.

        Plugins decide when the bundle's turn comes, so earlier evictions count. If they protect some of a job's
        surplus, other tasks of the job are tried as its surplus.
        """
        session = framework.session
        staying: set[int] = set()
        for bundle in self._in_order(framework, context.job, need, wanted):
            other = bundle.job
            tasks = self._evictable(framework, context, list(bundle.tasks))
            if not bundle.whole and len(tasks) < len(bundle.tasks):
                staying.add(other.index)
                candidates = self._candidates(session, other)
                free = framework.unified_evictable(context, candidates).tasks
                spare = [task for each in bundles_of(other, free, wanted) if not each.whole for task in each.tasks]
                tasks = self._evictable(framework, context, spare)
            if bundle.whole and not self.values["allowWholeBundle"]:
                self._vetoes.add(NOT_WHOLE)
                continue
            if bundle.whole and (len(tasks) < len(bundle.tasks) or other.index in staying):
                continue
            if tasks:
                yield Bundle(bundle.whole, other, tasks)

    def _evictable(self, framework: Framework, context: EvictionContext, tasks: list[Task]) -> tuple[Task, ...]:
        """Return the tasks that the plugins permit to evict together."""
        victims = framework.unified_evictable(context, tasks)
        going = victims.together()
        if len(going) < len(tasks):
            self._vetoes.add_protectors(victims)
        if framework.trace is not None:
            framework.trace.searched(context, context.job, going, victims)
        return tuple(going)

    def _in_order(self, framework: Framework, job: Job, need: Ints, wanted: Mask) -> Iterator[Bundle]:
        """Yield the surplus of jobs, then whole jobs, queue by queue; each bundle is built at its turn."""
        session = framework.session
        found = {
            queue: self._victims_in(framework, queue, job, need, wanted).current_orders()
            for queue in self.victim_queues(session, job)
        }
        queues = [queue for queue, jobs in found.items() if any(jobs)]
        framework.sort_by_victim_queue(queues, lambda queue: queue, job.queue)
        known: dict[int, list[Bundle]] = {}
        for other in chain.from_iterable(found[queue][0] for queue in queues):
            known[other.index] = self.bundles(session, other, wanted)
            yield from (bundle for bundle in known[other.index] if not bundle.whole)
        for other in chain.from_iterable(found[queue][1] for queue in queues):
            bundles = known[other.index] if other.index in known else self.bundles(session, other, wanted)
            yield from (bundle for bundle in bundles if bundle.whole)

    def _victims_in(self, framework: Framework, queue: Queue, job: Job, need: Ints, wanted: Mask) -> VictimJobs:
        session, below = framework.session, self.victims_below(job)
        key = self._scope, queue.index, below, self.order_key(need, wanted)
        if key not in self._victims:
            chosen = _victims_of(session, [queue], below) & placed_tasks(session).is_placed
            jobs = [session.job(index) for index in np.flatnonzero(chosen).tolist()]
            rank = partial(self.rank, framework, need, wanted)
            self._victims[key] = VictimJobs(session.views.moves, jobs, rank, largest_first=self.largest_first)
        return self._victims[key]

    def bundles(self, session: Session, job: Job, wanted: Mask) -> list[Bundle]:
        """Return the surplus of a job, and the rest of it."""
        known = self._known.setdefault((self._scope, wanted.tobytes()), {})
        cached = known.get(job.index)
        if cached is None or cached[0] != job.counts:
            bundles = list(bundles_of(job, self._candidates(session, job), wanted))
            cached = known[job.index] = (list(job.counts), bundles)
        return cached[1]

    def _candidates(self, session: Session, job: Job) -> list[Task]:
        """Return a job's tasks that may be offered to the plugins."""
        there = [task for task in placed_tasks(session).of_job(job.index) if task.status in PLACED]
        immunity = immunity_of(session)
        found = []
        for task in there:
            if not task.preemptable:
                code: ReasonCode = REFUSED if task.eviction_was_refused else MARKED
                self._unoffered.setdefault((code, None), {})[job.index] = None
            elif immunity and self._preemptor is not None and immunity.covers(task, self._preemptor):
                self._unoffered.setdefault((IMMUNE, self._scope), {})[job.index] = None
            else:
                found.append(task)
        return found


def _victims_of(session: Session, queues: Sequence[Queue], below: int | None) -> npt.NDArray[np.bool_]:
    """Return which groups of some queues may lose tasks, by the group's index."""
    jobs = session.jobs
    chosen = np.isin(jobs.queue, [queue.index for queue in queues]) & jobs.derived(are_preemptable)
    return chosen if below is None else chosen & (jobs.priority < below)


class _QueueShortage:
    """What must be freed until a gang's queue accepts all of its tasks, once it refused one.

    That is more of a resource than the tasks after the refused one request. This is right for limits of resources. For
    any other limit, the gang is tried again when no bundle is left.
    """

    def __init__(self, framework: Framework, tasks: list[Task]) -> None:
        self._framework = framework
        self._tasks = tasks
        self._requested: Mask | None = None
        self._remaining: Ints

    def __bool__(self) -> bool:
        return self._requested is not None and not (self._remaining[self._requested] < 0).any()

    def update(self, freed: Ints) -> None:
        """Count what a bundle freed."""
        if self._requested is not None:
            self._remaining = self._remaining - freed

    def refuses(self, place: int) -> bool:
        """Whether the queue refuses the task at ``place`` after the earlier ones were placed; remember a refusal."""
        task = self._tasks[place]
        if self._framework.allocatable(task.job.queue, task, 1) is None:
            return False
        self._requested, self._remaining = task.request > 0, _sum(self._tasks[place:]) - task.request
        return True


class _NodeShortage:
    """The requests of a gang's tasks that fit no node yet. As long as there are any, the gang cannot be placed."""

    def __init__(self, session: Session, tasks: list[Task]) -> None:
        self._usage = session.nodes.usage
        floors = {task.floor.tobytes(): task.floor for task in tasks}.values()
        self._floors = [floor for floor in floors if not fits(floor, self._usage.future_idle).any()]

    def __bool__(self) -> bool:
        return bool(self._floors)

    def update(self, nodes: set[int]) -> None:
        """Check the nodes on which a bundle freed resources."""
        if self._floors:
            room = self._usage.future_idle[:, sorted(nodes)]
            self._floors = [floor for floor in self._floors if not fits(floor, room).any()]

    def could_place(self, freeable: Freeable) -> bool:
        """Whether each task would fit somewhere if all of ``freeable`` was evicted."""
        most = self._usage.future_idle + freeable.left()
        return all(fits(floor, most).any() for floor in self._floors)


def bundles_of(job: Job, tasks: list[Task], wanted: Mask) -> Iterator[Bundle]:
    """Split a job's tasks into its surplus (minima of tasks, roles and sub-groups hold without it) and the rest.

    Tasks without the resources ``wanted`` are the last choice for the surplus. The rest is yielded only if no placed
    task of the job would stay behind.
    """
    tasks = sorted(tasks, key=lambda task: (not (task.request[wanted] > 0).any(), task.priority, task.uid, task.key))
    if not tasks:
        return
    surplus = job.ready_count - job.min_available
    if surplus < 0:
        if not (job.waiting_count and job.is_pipelined()):
            # the gang is and stays below its minimum, so its tasks can be evicted one by one
            yield Bundle(False, job, tuple(tasks))
        return
    roles = _role_surplus(job)
    sub_jobs = SpareSubJobs(job.partition) if job.partition is not None else None
    spare, rest = [], []
    for task in tasks:
        if surplus > 0 and roles.get(task.role, 1) > 0 and (sub_jobs is None or sub_jobs.may_lose(task)):
            spare.append(task)
            surplus -= 1
            if sub_jobs is not None:
                sub_jobs.lose(task)
            if task.role in roles:
                roles[task.role] -= 1
        else:
            rest.append(task)
    if spare:
        yield Bundle(False, job, tuple(spare))
    if rest and len(tasks) == job.allocated_count and not job.waiting_count:
        yield Bundle(True, job, tuple(rest))


def _sum(tasks: Iterable[Task]) -> Ints:
    return sum_of(np.array([task.request for task in tasks]))


def _role_surplus(job: Job) -> dict[str, int]:
    """Return how many tasks each role with a minimum could lose."""
    if not job.minds_roles:
        return {}
    counts = job.role_counts()
    return {role: job.role_allocated(counts.get(role)) - least for role, least in job.role_minima.items()}


def _needed_victims(session: Session, taken: list[Bundle]) -> set[int]:
    """Return the victims, by row, without whose eviction the waiting tasks do not fit on their nodes."""
    rooms: dict[int, Ints] = {}
    going: set[int] = set()
    ended: set[int] = set()
    for bundle in reversed(taken):
        for unit in reversed(bundle.units):
            if bundle.job.index in ended or not _fits_back(session, rooms, unit):
                going.update(task.row for task in unit)
                if bundle.whole:
                    ended.add(bundle.job.index)  # the gang is evicted, so its surplus is evicted, too
    return going


def _fits_back(session: Session, rooms: dict[int, Ints], unit: tuple[Task, ...]) -> bool:
    """Whether tasks can stay on their nodes in addition to the tasks waiting there; if so, update ``rooms``."""
    after: dict[int, Ints] = {}
    for task in unit:
        room = after.get(task.node, rooms.get(task.node))
        after[task.node] = (session.nodes.usage.future_idle_of(task.node) if room is None else room) - task.request
        if (after[task.node][task.request > 0] < 0).any() and session.nodes.usage.pipelined[:, task.node].any():
            return False
    rooms.update(after)
    return True


def _place_at(framework: Framework, statement: Statement, task: Task, node: int) -> bool:
    """Pipeline a task on a node if queue, resources and every predicate allow it."""
    if not fits_on(framework, task, node, framework.candidates(task)):
        return False
    return statement.pipeline([task], [node])


def _place_all(framework: Framework, statement: Statement, tasks: list[Task], queue: _QueueShortage) -> bool:
    """Pipeline all tasks on their best nodes; False if one finds none, or the job may not wait then."""
    job, places = statement.job, {task.row: place for place, task in enumerate(tasks)}

    def place_unit(unit: list[Task]) -> bool:
        for task in unit:
            if queue.refuses(places[task.row]) or framework.pre_predicate(task) is not None:
                return False
            row = framework.best_to_wait(task, framework.candidates(task))
            if row is None or not statement.pipeline([task], [row]):
                return False
        return True

    for sub_job, unit in units(framework, job, tasks):
        place = partial(place_unit, unit)
        if not (place() if sub_job is None else evict_in_domains(framework, statement, sub_job, unit, place)):
            return False
    return framework.job_ready(job) or framework.job_pipelined(job)

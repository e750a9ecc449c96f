"""The plugins of one session, and the methods by which actions call them.

``Framework`` builds a method for each extension point from the active plugins (``points.py``, ``rules.py``). The other
methods need several points at once, such as keys that end in age and name. Third-party plugins are called through gates
(``guard.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, ParamSpec, TypeVar

from vcd.scheduling.framework import answer_checks, rules
from vcd.scheduling.framework.guard import Closed, Failure, Guard, MakeCheck, Method, follows_session, is_ours
from vcd.scheduling.framework.order import JobQueue, VictimOrder, ordered_tasks
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.points import IN_CONFIGURED_ORDER, POINTS, Point, Points, reads_jobs
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.framework.rules import Participants, plugin_of
from vcd.scheduling.framework.trace import PROTECTS, Trace
from vcd.scheduling.search.candidates import Candidates, Evaluator, Memory
from vcd.scheduling.search.parts import ANY_KEY, ANY_LABEL, Reads, pod_keys
from vcd.scheduling.session.live_holds import state_holds
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Hooks, Statement
from vcd.scheduling.session.views import Job, SubJob, Task
from vcd.state.holds import Hold

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


class Framework(Points):
    """The plugins of a session. Each extension point is a method that calls all plugins that take part.

    Within a tier, plugins are opened, called and closed in the order of their names, not of the configuration file,
    except at points about order (``IN_CONFIGURED_ORDER``). ``evaluator`` searches nodes with the plugins' predicates
    and scores; ``memory`` holds its results from earlier sessions. ``mark`` is called with "open" or
    "close" before each plugin, and with "open/PLUGIN" or "close/PLUGIN" after it, to record timings. ``trace`` records
    the calls and their results.
    """

    def __init__(
        self,
        session: Session,
        policy: Policy,
        plugins: Sequence[Sequence[tuple[Any, Plugin]]],
        memory: Memory,
        guard: Guard | None = None,
        mark: Callable[[str], None] = lambda _: None,
        trace: Trace | None = None,
    ) -> None:
        self.session = session
        self.policy = policy
        self.guard = guard or Guard()
        self.trace = trace
        self._mark = mark
        self.participants = _PointRegistry(policy, plugins, self.guard, trace)
        """The plugins that take part at each point."""
        named = [plugin for tier in self.participants.by_name for _, plugin in tier]
        self.plugins = [each for each in named if self.guard.failed.get(each.name) is not Failure.BROKEN]
        if trace is not None:
            trace.open(session, self.participants)
        session.trial.hooks = Hooks(self.on_allocate, self.on_deallocate, self.pre_bind, self.bind_annotations)
        session.provide(self)
        session.views.supported = frozenset(chain.from_iterable(plugin.supports for plugin in self.plugins))
        self.tell("open")
        predicates = (*self.predicates(), *self.hyper_node_limits())
        self.evaluator = Evaluator(session, predicates, (*self.node_order(), *self.batch_node_order()), memory)

    def release(self) -> None:
        """Drop references to the session."""
        self.evaluator.release()

    def build_method(self, point: Point[P, R]) -> Callable[P, R]:
        """Build the method by which actions call a point."""
        call = point.rule(self.participants[point.name])
        return call if self.trace is None else self.trace.record_calls(point.name, call)

    def tell(self, part: str) -> None:
        """Open or close the plugins, one after the other."""
        for plugin in self.plugins:
            if part == "close" and plugin.name in self.guard.failed:
                continue  # its gauges would be computed from incomplete data
            self._mark(part)
            self.guard.method(plugin, part)(self.session)
            self._mark(f"{part}/{plugin.name}")

    def holds(self) -> list[Hold]:
        """Return all live holds of the state and of the plugins, in canonical order."""
        found = [*state_holds(self.session), *(hold for plugin in self.plugins for hold in plugin.holds())]
        return sorted(found, key=lambda hold: (hold.kind, hold.owner, hold.subject, hold.node, hold.until))

    def queue_key(self, queue: Queue) -> tuple[Any, ...]:
        """Return the sort key of a queue: the smallest is served first."""
        return (*self.queue_order(queue), queue.created, queue.name)

    def job_key(self, job: Job) -> tuple[Any, ...]:
        """Return the sort key of a job: the smallest is served first."""
        return (*self.job_order(job), not job.is_stranded, job.refused_until, job.created, job.key)

    def sub_job_key(self, sub_job: SubJob) -> tuple[Any, ...]:
        """Return the sort key of a sub-job among those of its job: the smallest is served first."""
        last = (sub_job.match_index, sub_job.uid, sub_job.groups.index, sub_job.values)
        return (*self.sub_job_order(sub_job), *last)

    def victim_key(self, job: Job) -> tuple[Any, ...]:
        """Return the key by which jobs lose pods, the largest first: as ``job_key``, without refusals. Cached until a
        task of the job moves."""
        return (*self._victim_order.job_key(job), job.created, job.key)

    @cached_property
    def _victim_order(self) -> VictimOrder:
        return VictimOrder(self.session, self.job_order, self.task_order)

    def find_equivalent_jobs(self) -> None:
        """Find classes of equivalent jobs, unless a plugin may distinguish any two jobs or calls are traced."""
        if self.trace is not None and not self.trace.is_idle:
            return
        parts = self.evaluator.parts
        keys = {key for part in parts for key in pod_keys(part) if key != ANY_LABEL}
        of_jobs = {part.owner for part in parts if part.reads & Reads.JOB}
        for plugin in self.plugins:
            if ANY_KEY not in plugin.keys or reads_jobs(type(plugin)) or plugin.name in of_jobs:
                keys.update(plugin.keys)
        if ANY_KEY not in keys:
            session = self.session
            session.classes.find(session.snapshot, keys, session.views.supported, self.evaluator.keys.labels_matter_in)

    def jobs_in_order(self, jobs: Iterable[Job]) -> JobQueue:
        """Return a queue of jobs that pops the first to be served."""
        return JobQueue(self.session, self.job_key, jobs)

    def in_task_order(self, tasks: list[Task]) -> list[Task]:
        """Return tasks of one job, the first to be placed first."""
        are_equivalent = bool(tasks) and self.can_place_together(tasks[0].job)
        return ordered_tasks(None if are_equivalent else self._task_key, tasks)

    def _task_key(self, task: Task) -> tuple[Any, ...]:
        return (*self.task_order(task), task.refused_until)

    def can_place_together(self, job: Job) -> bool:
        """Return whether the tasks of a job are equivalent for all plugins, so that several can be placed at once."""
        follows = self.trace is not None and self.trace.follows(job)
        return self.many_at_once and not follows and self.session.classes.has_equivalent_pods(job.index)

    def unprotected(self, tasks: list[Task]) -> list[Task]:
        """Return the tasks that no plugin protects if they are all evicted without a preemptor."""
        return rules.unprotected(self.participants["victim_tasks"], tasks)

    def in_victim_order(self, tasks: list[Task], queue: Queue) -> list[Task]:
        """Return tasks in the order in which they are evicted for a task of ``queue``.

        Tasks are ordered by queue first: by the plugins' order of victim queues, then the queue that is served last.
        Then come the job and the task that are served last.
        """
        if len(tasks) < 2:
            return tasks
        result = self._victim_order.sorted(tasks)
        if len({task.job.queue.index for task in result}) > 1:
            self.sort_by_victim_queue(result, lambda task: task.job.queue, queue)
        return result

    def sort_by_victim_queue(self, items: list[S], queue_of: Callable[[S], Queue], queue: Queue) -> None:
        """Sort items in place and stably, by the order in which their queues lose pods to ``queue``."""
        queues = {each.index: each for each in map(queue_of, items)}
        served = {index: self.queue_key(each) for index, each in queues.items()}
        gives = {index: self.victim_queue_order(each, queue) for index, each in queues.items()}
        items.sort(key=lambda item: served[queue_of(item).index], reverse=True)
        items.sort(key=lambda item: gives[queue_of(item).index])

    def statement(self, action: str, job: Job) -> Statement:
        """Return a new statement of an action on behalf of a job."""
        return Statement(self.session.trial, action, job)

    @cached_property
    def many_at_once(self) -> bool:
        """Whether several equivalent tasks of one job can be placed at once: no plugin chooses nodes, or has a
        ``pre_predicate`` and no ``keys``."""
        testing = [plugin_of(method) for method in self.participants["pre_predicate"].methods]
        return not (self.participants["best_node"].methods or any(ANY_KEY in plugin.keys for plugin in testing))

    def candidates(self, task: Task) -> Candidates:
        """Return the candidate nodes of a task."""
        return self.evaluator.table(task)

    def best_to_wait(self, task: Task, candidates: Candidates) -> int | None:
        """Return the best node on which to pipeline a task; None if no node is feasible."""
        row: int | None = self.best_node(task, candidates)
        return candidates.best_to_wait() if row is None else row

    def nominated(self, task: Task, candidates: Candidates) -> int | None:
        """Return the node on which an earlier preemption freed resources for a task, if it is still feasible."""
        row = self.session.nominated_node(task) if self.session.snapshot.nominated else None
        return row if row is not None and candidates.passes(row) else None


class _PointRegistry(Mapping[str, Participants]):
    """The participants of each point, built on first access.

    ``by_name`` has the plugins tier by tier in the order of their names, each with its option.
    """

    def __init__(
        self, policy: Policy, plugins: Sequence[Sequence[tuple[Any, Plugin]]], guard: Guard, trace: Trace | None
    ) -> None:
        self._guard = guard
        self._trace = trace
        self._as_configured = plugins
        self.by_name = [sorted(tier, key=lambda entry: entry[1].name) for tier in plugins]
        self._participants: dict[str, Participants] = {}
        kinds = tuple([tuple([type(plugin) for _, plugin in tier]) for tier in plugins])
        all_built_in = all(map(is_ours, chain.from_iterable(kinds)))
        self._places: dict[str, list[tuple[int, int]]] = policy.cached(kinds, dict) if all_built_in else {}
        """The tier and place of each point's plugins. Sessions of a policy share it if all plugins are built-in."""

    def __getitem__(self, name: str) -> Participants:
        if name not in self._participants:
            self._participants[name] = self._build(POINTS[name])
        return self._participants[name]

    def __iter__(self) -> Iterator[str]:
        return iter(POINTS)

    def __len__(self) -> int:
        return len(POINTS)

    def _build(self, point: Point[..., Any]) -> Participants:
        """Build the methods by which the rule of a point calls the plugins."""
        tiers: list[list[Method]] = [[] for _ in self.by_name]
        for tier, plugin in self._plugins_at(point):
            tiers[tier].append(self._method(tier, plugin, point.name, point.check, point.closed))
        others = self._plugins_at(POINTS[point.protected_as]) if point.protected_as else []
        protecting = [plugin for _, plugin in others if plugin.protects or plugin.name in self._guard.failed]
        unprotected = [
            self._method(PROTECTS, plugin, "unprotected", answer_checks.victims, answer_checks.no_victims)
            for plugin in protecting
        ]
        return Participants(point.name, tiers, unprotected)

    def _plugins_at(self, point: Point[..., Any]) -> list[tuple[int, Plugin]]:
        """Return the plugins that implement a point and whose flags allow it, each with its tier."""
        tiers, name = self._as_configured if point.rule in IN_CONFIGURED_ORDER else self.by_name, point.name
        if name not in self._places:
            self._places[name] = [
                (number, place)
                for number, tier in enumerate(tiers)
                for place, (one, plugin) in enumerate(tier)
                if hasattr(plugin, name) and one.is_on(point)
            ]
        found = [(tier, tiers[tier][place][1]) for tier, place in self._places[name]]
        if self._guard.failed:
            found = [(tier, plugin) for tier, plugin in found if self._takes_part(plugin, point)]
        return found

    def _takes_part(self, plugin: Plugin, point: Point[..., Any]) -> bool:
        """Return whether a plugin takes part at a point after failures.

        A failed plugin takes part where its restrictive answer is used, and where it follows the session unless it is
        broken.
        """
        failure = self._guard.failed.get(plugin.name)
        if failure is None or point.closed is not None:
            return True
        return follows_session(point.name) and failure is not Failure.BROKEN

    def _method(self, tier: int, plugin: Plugin, name: str, check: MakeCheck | None, closed: Closed | None) -> Method:
        method = self._guard.method(plugin, name, check, closed)
        return method if self._trace is None else self._trace.record_answers(tier, method)


def framework_of(session: Session) -> Framework:
    """Return the framework of a session that has plugins."""
    return session.provided(Framework)


def trace_of(session: Session) -> Trace:
    """Return the trace of a session that records one."""
    trace = framework_of(session).trace
    assert trace is not None
    return trace

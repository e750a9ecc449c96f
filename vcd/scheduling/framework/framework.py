"""The plugins of a session, and what actions ask them, point by point and tier by tier."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from vcd.model.events import VolumeChoice, by_key
from vcd.scheduling.framework import guard
from vcd.scheduling.framework.order import JobQueue, ordered_tasks
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.points import IN_CONFIGURED_ORDER, POINTS, VICTIM_POINTS, Vote
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.framework.victims import Victims, VictimsAnswer
from vcd.scheduling.search.candidates import Candidates, Evaluator, Memory
from vcd.scheduling.search.parts import Predicate, Score
from vcd.scheduling.session.reasons import Refusal
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Hooks, Statement
from vcd.scheduling.session.subjobs import SubJob
from vcd.scheduling.session.views import Job, Queue, Task

P = TypeVar("P", Predicate, Score)
S = TypeVar("S")
Method = Callable[..., Any]
"""A plugin's method for a point, as the framework calls it."""


class Framework:
    """The plugins of a session, and one method for each thing that actions want to know of them.

    Within a tier plugins are opened, asked and closed in the order of their names, whatever their order in the file is,
    but at the points that are about order (``IN_CONFIGURED_ORDER``). ``evaluator`` is the search over their predicates
    and scores; ``memory`` what it knows from earlier sessions. ``mark`` is told "open/PLUGIN" as each was opened.
    """

    def __init__(
        self,
        session: Session,
        policy: Policy,
        plugins: Sequence[Sequence[tuple[Any, Plugin]]],
        memory: Memory,
        watch: guard.Watch | None = None,
        mark: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.session = session
        self.policy = policy
        by_name = [sorted(tier, key=lambda entry: entry[1].name) for tier in plugins]
        self.plugins = [plugin for tier in by_name for _, plugin in tier]
        self._methods = {
            name: _methods(plugins if point.combine in IN_CONFIGURED_ORDER else by_name, name, watch)
            for name, point in POINTS.items()
        }
        self._flat = {name: [method for tier in tiers for method in tier] for name, tiers in self._methods.items()}
        self._protecting = {
            point: [method for method in self._flat[point] if _plugin(method).protects] for point in VICTIM_POINTS
        }
        session.hooks = Hooks(
            [(owner(method), method) for method in self._flat["on_allocate"]],
            self._flat["on_deallocate"],
            self._pre_bind,
            self._bind_annotations,
        )
        session.provide(self)
        for plugin in self.plugins:
            mark("open")
            guard.open_plugin(plugin, session, watch)
            mark(f"open/{plugin.name}")
        self.evaluator = session.provide(Evaluator(session, self._predicates(), self._scores(), memory))
        if all(plugin.treats_alike for plugin in self.plugins):
            marks = {mark for plugin in self.plugins for mark in plugin.annotations}
            session.classes.find(session.snapshot, marks, self.evaluator.tells_labels)

    def jobs_in_order(self, jobs: Iterable[Job]) -> JobQueue:
        """Jobs, the first to be served first."""
        return JobQueue(self.session, self.job_key, jobs)

    def answering(self, point: str) -> list[list[tuple[Plugin, Callable[..., Any]]]]:
        """Who is asked at a point, tier by tier: each plugin, and its method as the session calls it."""
        return [[(_plugin(method), method) for method in tier] for tier in self._methods[point]]

    def _predicates(self) -> list[Predicate]:
        return [_owned(part, method) for method in self._flat["predicates"] for part in method()]

    def _scores(self) -> list[Score]:
        points = ("node_order", "batch_node_order")
        return [_owned(part, method) for point in points for method in self._flat[point] for part in method()]

    # --- orders -----------------------------------------------------------------------------------------------------

    def queue_key(self, queue: Queue) -> tuple[Any, ...]:
        """The smaller key is served first."""
        return (*[key(queue) for key in self._flat["queue_order"]], queue.created, queue.name)

    def job_key(self, job: Job) -> tuple[Any, ...]:
        """The smaller key is served first."""
        return (*[key(job) for key in self._flat["job_order"]], job.created, job.key)

    def job_plugin_key(self, job: Job) -> tuple[Any, ...]:
        """What the plugins say about the order of jobs."""
        return tuple([key(job) for key in self._flat["job_order"]])

    def sub_job_key(self, sub_job: SubJob) -> tuple[Any, ...]:
        """The smaller key is served first, among the sub-jobs of one job."""
        keys = [key(sub_job) for key in self._flat["sub_job_order"]]
        return (*keys, sub_job.match_index, sub_job.uid, sub_job.groups.index, sub_job.values)

    def task_plugin_key(self, task: Task) -> tuple[Any, ...]:
        """What the plugins say about the order of tasks."""
        return tuple([key(task) for key in self._flat["task_order"]])

    # --- gates ------------------------------------------------------------------------------------------------------

    def job_valid(self, job: Job) -> tuple[str, Refusal] | None:
        """Why a job cannot be placed at all (plugin, refusal), None where it can be tried."""
        return self._first_refusal("job_valid", job)

    def overused(self, queue: Queue) -> tuple[str, Refusal] | None:
        """Which plugin says that a queue has more than its share, None where none does."""
        return self._first_refusal("overused", queue)

    def allocatable(self, queue: Queue, task: Task) -> tuple[str, Refusal] | None:
        """Which plugin says that a queue has no room for a task, None where all permit."""
        for method in self._flat["allocatable"]:
            refusal = method(queue, task)
            if refusal is not None:
                return owner(method), refusal
        return None

    def pre_predicate(self, task: Task) -> tuple[str, Refusal] | None:
        """Which plugin says that no node can take a task, None where none does."""
        return self._first_refusal("pre_predicate", task)

    def preemptive(self, queue: Queue, tasks: list[Task]) -> tuple[str, Refusal] | None:
        """Which plugin says that a queue may not take room from others for tasks, None where all permit."""
        return self._first_refusal("preemptive", queue, tasks)

    def _first_refusal(self, point: str, *subject: Any) -> tuple[str, Refusal] | None:
        for method in self._flat[point]:
            refusal = method(*subject)
            if refusal is not None:
                return owner(method), refusal
        return None

    def job_enqueueable(self, job: Job) -> tuple[str, Refusal] | None:
        """Which plugin rejects a group's admission, None where it is admitted."""
        for tier in self._methods["job_enqueueable"]:
            permitted = False
            for method in tier:
                answer = method(job)
                if isinstance(answer, Refusal):
                    return owner(method), answer
                permitted |= answer is Vote.PERMIT
            if permitted:
                return None
        return None

    def job_enqueued(self, job: Job) -> None:
        """Tell the plugins that a group was admitted."""
        self.session.decisions += 1
        for method in self._flat["job_enqueued"]:
            method(job)

    def job_ready(self, job: Job) -> bool:
        """Whether all plugins find enough of a job placed to bind it."""
        for method in self._flat["job_ready"]:  # noqa: SIM110 - called after every placement
            if not method(job):
                return False
        return True

    def sub_job_ready(self, sub_job: SubJob) -> bool:
        """Whether all plugins find enough of a sub-job placed."""
        return all(method(sub_job) for method in self._flat["sub_job_ready"])

    def job_pipelined(self, job: Job) -> bool:
        """Whether a job may keep room that it waits for."""
        return self._voted("job_pipelined", job)

    def sub_job_pipelined(self, sub_job: SubJob) -> bool:
        """Whether a sub-job may keep room that it waits for."""
        return self._voted("sub_job_pipelined", sub_job)

    def _voted(self, point: str, subject: Job | SubJob) -> bool:
        for tier in self._methods[point]:
            permitted = False
            for method in tier:
                vote = method(subject)
                if vote < 0:
                    return False
                permitted |= vote > 0
            if permitted:
                return True
        return True

    def job_starving(self, job: Job) -> bool:
        """Whether a job needs more than it has: all of the first tier that knows must say so."""
        for tier in self._methods["job_starving"]:
            if tier:
                return all(method(job) for method in tier)
        return False

    # --- victims ----------------------------------------------------------------------------------------------------

    def victims(self, point: str, asker: Any, tasks: list[Task]) -> Victims:
        """Who of ``tasks``, given in the order in which they would go, may go for ``asker``.

        ``point`` is preemptable, reclaimable or unified_evictable. All plugins of a tier that have an opinion, and
        those of other tiers that protect (docs/laws.md, law 7), must permit a pod; the first tier that lets somebody go
        decides. Each is asked about all of the pods.
        """
        protecting = self._protecting[point]
        for tier in self._methods[point] if tasks else ():
            found = victims_of_tier(tier, protecting, point, asker, tasks)
            if found.tasks:
                return found
        return Victims(())

    def victim_tasks(self, tasks: list[Task]) -> list[Task]:
        """Which of ``tasks`` plugins want gone of themselves: all that the first tier names of whom anybody may go.
        Plugins that protect keep theirs, and who is kept takes nobody else's place."""
        for tier in self._methods["victim_tasks"]:
            named = _named(tier, tasks)
            if not named:
                continue
            free = Victims(tasks, self._kept_by_protection(tasks)).tasks
            left = self.unprotected(_named(tier, free) if len(free) < len(tasks) else named)
            if left:
                return left
        return []

    def unprotected(self, tasks: list[Task]) -> list[Task]:
        """Of tasks that would go of themselves those that no plugin protects, if all of them go."""
        return Victims(tasks, self._kept_by_protection(tasks)).together()

    def _kept_by_protection(self, tasks: list[Task]) -> Iterator[tuple[str, VictimsAnswer]]:
        return _protections(self._protecting["unified_evictable"], "victim_tasks", None, tasks)

    def in_task_order(self, tasks: list[Task]) -> list[Task]:
        """Tasks of one job, the first to be placed first."""
        return ordered_tasks(self.task_plugin_key, tasks)

    def in_victim_order(self, tasks: list[Task], queue: Queue) -> list[Task]:
        """Tasks in the order in which they go for a task of ``queue``: queues by the plugins' order of victim queues
        (else the last served first), then the job that comes last, then the task that comes last."""
        if len(tasks) < 2:
            return tasks
        result = self.in_task_order(tasks)
        result.reverse()
        if len({task.job.index for task in result}) > 1:
            result.sort(key=lambda task: self.job_plugin_key(task.job), reverse=True)
            if len({task.job.queue.index for task in result}) > 1:
                self.sort_by_victim_queue(result, lambda task: task.job.queue, queue)
        return result

    def sort_by_victim_queue(self, items: list[S], queue_of: Callable[[S], Queue], queue: Queue) -> None:
        """Sort, in place and stably, by the order in which queues give for ``queue``."""
        methods = self._flat["victim_queue_order"]
        items.sort(key=lambda item: self.queue_key(queue_of(item)), reverse=True)
        if methods:
            items.sort(key=lambda item: tuple([method(queue_of(item), queue) for method in methods]))

    # --- placing ----------------------------------------------------------------------------------------------------

    def statement(self, action: str, job: Job) -> Statement:
        """A new statement of an action on behalf of a job."""
        return Statement(self.session, action, job)

    def candidates(self, task: Task) -> Candidates:
        """Where tasks like this one can go."""
        return self.evaluator.table(task)

    def best_node(self, task: Task, candidates: Candidates) -> int | None:
        """The row of the best node for a task, None when none passes; a plugin's own choice comes first."""
        if self._flat["best_node"]:
            keys = candidates.keys()
            for method in self._flat["best_node"]:
                row: int | None = method(task, keys)
                if row is not None:
                    return row
        return candidates.best()

    def nominated(self, task: Task, candidates: Candidates) -> int | None:
        """The node that an earlier preemption made room on for a task, where it still passes."""
        row = self.session.nominated_node(task)
        return row if row is not None and candidates.passes(row) else None

    def _pre_bind(self, task: Task, row: int) -> tuple[VolumeChoice, ...]:
        return tuple([choice for method in self._flat["pre_bind"] for choice in method(task, row)])

    def _bind_annotations(self, task: Task, row: int) -> dict[str, str]:
        methods = self._flat["bind_annotations"]
        return by_key({key: text for method in methods for key, text in method(task, row).items()}) if methods else {}


def framework_of(session: Session) -> Framework:
    """The plugins of a session that has some."""
    return session.provided(Framework)


def victims_of_tier(
    tier: Iterable[Method], protecting: Iterable[Method], point: str, asker: Any, tasks: list[Task]
) -> Victims:
    """Who may go by the plugins of one tier and those of others that protect; nobody where the tier has no opinion."""
    answers = [(owner(method), answer) for method in tier if (answer := method(asker, tasks)) is not None]
    if not answers:
        return Victims(())
    others = [method for method in protecting if method not in tier]
    return Victims(tasks, (*answers, *_protections(others, point, asker, tasks)))


def _protections(
    methods: Iterable[Method], point: str, asker: Any, tasks: list[Task]
) -> Iterator[tuple[str, VictimsAnswer]]:
    return ((owner(method), _plugin(method).unprotected(point, asker, tasks)) for method in methods)


def _named(tier: Iterable[Method], tasks: list[Task]) -> list[Task]:
    """Those of ``tasks`` that any plugin of a tier wants gone."""
    rows = frozenset([task.row for method in tier for task in method(tasks)])
    return [task for task in tasks if task.row in rows] if rows else []


def owner(method: Callable[..., Any]) -> str:
    """The name of the plugin that a bound method belongs to."""
    return _plugin(method).name


def _plugin(method: Callable[..., Any]) -> Plugin:
    plugin: Plugin = method.__self__  # type: ignore[attr-defined]
    return plugin


def _owned(part: P, method: Callable[..., Any]) -> P:
    part.owner = owner(method)
    return part


def _methods(
    plugins: Sequence[Sequence[tuple[Any, Plugin]]], name: str, watch: guard.Watch | None
) -> list[list[Callable[..., Any]]]:
    """The plugins' methods for a point, tier by tier, as far as they are on."""
    point = POINTS[name]
    return [
        [guard.point(plugin, name, watch) for option, plugin in tier if hasattr(plugin, name) and option.is_on(point)]
        for tier in plugins
    ]

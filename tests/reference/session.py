"""One session: extension points and how their answers combine, statements, and what comes out."""

from __future__ import annotations

import datetime
import hashlib
from collections import Counter
from collections.abc import Callable
from functools import cmp_to_key
from typing import Any

from tests.reference.config import Configuration, PluginOption
from tests.reference.model import Cluster, Job, Node, Queue, Task, created, judge_gates, judge_sizes

PERMIT, ABSTAIN, REJECT = 1, 0, -1

UNRESOLVABLE, UNSCHEDULABLE = "UnschedulableAndUnresolvable", "Unschedulable"


class PredicateFailure(Exception):
    """A task cannot go anywhere, found before any node is looked at."""


class Session:
    """Functions by extension point and plugin name, over a cluster that changes."""

    def __init__(
        self, cluster: Cluster, configuration: Configuration, seed: int, pains: bool, now: datetime.datetime
    ) -> None:
        self.cluster, self.configuration, self.seed, self.pains = cluster, configuration, seed, pains
        self.now = now
        if pains:
            judge_sizes(cluster)
            judge_gates(cluster)
        self.points: dict[str, dict[str, Callable[..., Any]]] = {}
        self.handlers: list[tuple[Callable[[Task], bool | None], Callable[[Task], None]]] = []
        """What is told of each placement, and may refuse it, and of each that is taken back."""
        self.openers: list[Callable[[], object]] = []
        self.closers: list[Callable[[], None]] = []
        self.nowhere: tuple[frozenset[str], frozenset[str]] | None = None
        """Tasks that no node takes, and jobs too few of whose tasks have one (``lending.nowhere``)."""
        self.binds: dict[str, str] = {}
        self.bind_annotations: dict[str, dict[str, str]] = {}
        self.evicted: list[Task] = []
        self.waiting: list[Task] = []
        self.placed: list[Task] = []
        """Who was placed, the last last."""
        self.evicting: set[str] = set()
        """The jobs for which others go."""
        """Who waits for room, by what was committed."""
        self.may_wait = False
        """Whether the task that is tried will wait in any case: what is being freed need not be free yet."""
        self.assumed_volumes: dict[str, str] = {}
        self.assumed_claims: dict[str, str] = {}
        self.unschedulable: set[str] = set()
        digests = {
            n: hashlib.blake2b(f"{seed - 1}/{n}".encode(), digest_size=8).digest() if seed else b""
            for n in cluster.nodes
        }
        self.node_order = sorted(cluster.nodes.values(), key=lambda n: (int.from_bytes(digests[n.name], "big"), n.name))

    # -- extension points -------------------------------------------------

    def register(self, point: str, plugin: str, function: Callable[..., Any]) -> None:
        self.points.setdefault(point, {})[plugin] = function

    def tiers(self, point: str, flag: str | None = None) -> list[list[Callable[..., Any]]]:
        """A point's functions by tier, of plugins that have it and did not turn it off."""
        found = self.points.get(point, {})

        def on(option: PluginOption) -> bool:
            return option.name in found and (flag or point) not in option.off

        return [[found[option.name] for option in tier if on(option)] for tier in self.configuration.tiers]

    def option(self, plugin: str) -> PluginOption:
        """The entry of a plugin that is on."""
        return next(option for tier in self.configuration.tiers for option in tier if option.name == plugin)

    def functions(self, point: str, flag: str | None = None) -> list[Callable[..., Any]]:
        return [function for tier in self.tiers(point, flag) for function in tier]

    def first_difference(self, point: str, left: Any, right: Any) -> int:
        for function in self.functions(point):
            if (answer := function(left, right)) != 0:
                return int(answer)
        return 0

    def vote(self, point: str, subject: Any, flag: str | None = None) -> bool:
        """Any reject of a tier refuses, else any permit of it grants; without votes: yes."""
        for tier in self.tiers(point, flag):
            answers = []
            for function in tier:
                answers.append(function(subject))
                if answers[-1] < 0:
                    return False
            if any(answer > 0 for answer in answers):
                return True
        return True

    # -- orders -----------------------------------------------------------

    def queues_in_order(self, queues: list[Queue]) -> list[Queue]:
        def compare(left: Queue, right: Queue) -> int:
            return self.first_difference("queueOrder", left, right) or _order(_queue_key(left), _queue_key(right))

        return sorted(queues, key=cmp_to_key(compare))

    def jobs_in_order(self, jobs: list[Job]) -> list[Job]:
        def compare(left: Job, right: Job) -> int:
            return self.first_difference("jobOrder", left, right) or _order(_job_key(left), _job_key(right))

        return sorted(jobs, key=cmp_to_key(compare))

    def tasks_in_order(self, tasks: list[Task]) -> list[Task]:
        """By plugins, then by index where every task has one, then by age."""
        by_index = all(task.index is not None for task in tasks)

        def key(task: Task) -> tuple[Any, ...]:
            return (task.index if by_index else 0, created(task.pod), task.uid, task.key)

        def compare(left: Task, right: Task) -> int:
            return self.first_difference("taskOrder", left, right) or _order(key(left), key(right))

        return sorted(tasks, key=cmp_to_key(compare))

    # -- questions that actions ask ---------------------------------------

    def job_valid(self, job: Job) -> str | None:
        """Why the job cannot run at all, if so. Not governed by any flag."""
        for tier in self.configuration.tiers:
            for option in tier:
                function = self.points.get("jobValid", {}).get(option.name)
                if function is not None and (reason := function(job)) is not None:
                    return str(reason)
        return None

    def why_invalid(self, job: Job) -> str | None:
        """As job_valid; best-effort tasks that no node takes, wherever other pods are, are not there."""
        reason = self.job_valid(job)
        if reason is None and self.pains and self.node_order:
            lost = [task for task in job.having("Pending") if task.best_effort and not task.gated]
            lost = [task for task in lost if not any(self._takes(task, node) for node in self.node_order)]
            for task in lost:
                task.status = "Aside"
            reason = self.job_valid(job)
            for task in lost:
                task.status = "Pending"
            job.broken = reason is not None
        return reason

    def _takes(self, task: Task, node: Node) -> bool:
        return all(function(task, node) for function in self.functions("takes", "predicate"))

    def job_ready(self, job: Job) -> bool:
        return all(function(job) for function in self.functions("jobReady"))

    def job_pipelined(self, job: Job) -> bool:
        return self.vote("jobPipelined", job)

    def job_starving(self, job: Job) -> bool:
        """Whether the first tier that knows says so as one."""
        for tier in self.tiers("jobStarving"):
            if tier:
                return all(function(job) for function in tier)
        return False

    def overused(self, queue: Queue) -> bool:
        return any(function(queue) for function in self.functions("overused"))

    def allocatable(self, queue: Queue, task: Task) -> bool:
        """Closed and closing queues get no placements, whichever plugins are on."""
        return queue.open and all(function(queue, task) for function in self.functions("allocatable"))

    def enqueueable(self, job: Job) -> bool:
        return self.vote("jobEnqueueable", job, "jobEnqueued")

    # -- nodes for a task -------------------------------------------------

    def misfits(self, task: Task, node: Node, need_idle: bool = False) -> list[str]:
        """Why the task cannot go to the node; nothing when it can."""
        short = task.request.exceeding(node.future_idle) or (need_idle and task.request.exceeding(node.idle))
        if short:
            return [f"Insufficient {short[0]}"]
        for function in self.functions("predicate"):
            if reasons := function(task, node):
                return list(reasons)
        return []

    def feasible(self, task: Task, nodes: list[Node], need_idle: bool = False) -> tuple[list[Node], dict[str, int]]:
        """Nodes that the task can go to, and for the others how many had which reason."""
        fitting, reasons = [], Counter[str]()
        for node in nodes:
            found = self.misfits(task, node, need_idle)
            if found:
                reasons.update(found)
            else:
                fitting.append(node)
        return fitting, dict(sorted(reasons.items()))

    def places_to_wait(self, task: Task) -> list[Node]:
        """Where a task can wait: of the nodes that take it those with room now, if any; else those on which it would
        have to wait."""
        nodes, _ = self.feasible(task, self.node_order)
        idle = [node for node in nodes if task.request.fits(node.idle)]
        return idle or nodes or [node for node in self.node_order if self.takes_waiting(task, node)]

    def takes_waiting(self, task: Task, node: Node) -> bool:
        """Whether a task can wait on a node as things are now."""
        self.may_wait = True
        reasons = self.misfits(task, node)
        self.may_wait = False
        return not reasons

    def may_be_freed(self, nodes: list[Node], task: Task) -> list[Node]:
        """Those that may take a task once pods went: of the others Volcano says UnschedulableAndUnresolvable."""
        functions = list(self.functions("unresolvable", "predicate"))
        return [node for node in nodes if not any(function(task, node) for function in functions)]

    def pre_predicate(self, task: Task) -> None:
        for function in self.functions("prePredicate", "predicate"):
            function(task)

    def best(self, task: Task, nodes: list[Node]) -> Node:
        """The node of the highest score; of equals the first in the seeded order."""
        return nodes[0] if len(nodes) == 1 else self.ranked(task, nodes)[0]

    def ranked(self, task: Task, nodes: list[Node]) -> list[Node]:
        """Nodes by score, the highest first; equals in the seeded order."""
        totals = {node.name: 0 for node in nodes}
        for function in self.functions("nodeOrder"):
            for name, score in function(task, nodes).items():
                totals[name] += round(score * 10**6)
        return sorted((node for node in self.node_order if node.name in totals), key=lambda node: -totals[node.name])

    def kind(self, task: Task) -> Any:
        """All of a task that decides where it can go: spec, labels, and what else plugins read."""
        return task.spec, task.labels, [function(task) for function in self.functions("kind", "predicate")]

    # -- changes ----------------------------------------------------------

    def place(self, task: Task, node: Node, status: str) -> bool:
        """Put a task on a node; False, with all as it was, where somebody who is told of it refuses it."""
        task.status, task.node = status, node.name
        self.placed = [*(each for each in self.placed if each is not task), task]
        node.add(task)
        refused = [allocate(task) for allocate, _ in self.handlers]
        if any(refused):
            self.displace(task)
        return not any(refused)

    def displace(self, task: Task) -> None:
        task.status = "Pending"
        self.cluster.nodes[task.node].remove(task)
        for _, deallocate in self.handlers:
            deallocate(task)
        task.node = ""

    def evict(self, task: Task) -> None:
        """The task is leaving: its room is being freed, and for whom else it mattered it is gone."""
        node = self.cluster.nodes[task.node]
        node.remove(task)
        task.status, task.evicted = "Releasing", True
        node.add(task)
        self.evicted.append(task)
        for _, deallocate in self.handlers:
            deallocate(task)

    def restore(self, task: Task, status: str) -> None:
        """The reverse of ``evict``."""
        node = self.cluster.nodes[task.node]
        node.remove(task)
        task.status, task.evicted = status, False
        node.add(task)
        self.evicted.remove(task)
        for allocate, _ in self.handlers:
            allocate(task)

    def bind(self, task: Task) -> None:
        task.status = "Binding"
        self.binds[task.key] = task.node
        for function in self.functions("bindAnnotations"):
            if marks := function(task):
                self.bind_annotations.setdefault(task.key, {}).update(marks)


class Statement:
    """Placements and evictions that hold together: committed whole or taken back whole."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.steps: list[tuple[Task, str]] = []
        """Each task with the status that it had before."""

    def allocate(self, task: Task, node: Node) -> bool:
        return self._place(task, node, "Allocated")

    def pipeline(self, task: Task, node: Node) -> bool:
        return self._place(task, node, "Pipelined")

    def _place(self, task: Task, node: Node, status: str) -> bool:
        placed = self.session.place(task, node, status)
        if placed:
            self.steps.append((task, "Pending"))
        return placed

    def evict(self, task: Task) -> None:
        self.steps.append((task, task.status))
        self.session.evict(task)

    @property
    def evicts(self) -> bool:
        return any(before != "Pending" for _, before in self.steps)

    def commit(self) -> None:
        if self.evicts:
            self.session.evicting |= {task.job for task, before in self.steps if before == "Pending"}
        for task, _ in self.steps:
            if task.status == "Allocated":
                self.session.bind(task)
            elif task.status == "Pipelined":
                self.session.waiting.append(task)
        self.steps = []

    def discard(self) -> None:
        self.undo(0)

    def undo(self, start: int) -> None:
        """Take back all steps from number ``start`` on."""
        while len(self.steps) > start:
            task, before = self.steps.pop()
            if before == "Pending":
                self.session.displace(task)
            else:
                self.session.restore(task, before)


def _order(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _queue_key(queue: Queue) -> tuple[Any, ...]:
    return (created(queue.manifest), queue.name)


def _job_key(job: Job) -> tuple[Any, ...]:
    return (created(job.group), job.key)

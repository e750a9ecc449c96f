"""preempt: starving jobs preempt jobs of their queue, and tasks of their own job (docs/semantics/actions.md).

This module chooses preemptors and their order. `vcd.scheduling.eviction` searches victims, and the plugins decide which
tasks may be victims.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, partial

import numpy as np
import numpy.typing as npt

from vcd.model.status import TaskStatus
from vcd.scheduling.actions.allocate import PREDICATE_ERROR_CACHE, AllocateAction
from vcd.scheduling.eviction.budgets import budgets_now
from vcd.scheduling.eviction.displacement import displacing
from vcd.scheduling.eviction.nominations import is_nominated, nominated_jobs
from vcd.scheduling.eviction.preemptors import pipeline_with_evictions, schedulable_tasks, starving_jobs
from vcd.scheduling.eviction.vetoes import NEVER_EVICTS, NOT_LOWER, Vetoes
from vcd.scheduling.eviction.victim_search import VictimFinder, may_preempt, placed_tasks
from vcd.scheduling.framework.action import Action
from vcd.scheduling.framework.arguments import Argument
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.framework.order import PriorityQueue
from vcd.scheduling.framework.worksheet import is_whole, units
from vcd.scheduling.search.candidates import best_first, rate_last
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement
from vcd.scheduling.session.views import Job, Task
from vcd.state.records import seconds_of

_NOT_YET = 2**63 - 1


class PreemptAction(Action):
    """Evict tasks of lower jobs in the same queue, so that tasks of a starving job can wait for their resources.

    First comes preemption between the jobs of a queue. It is committed if the job may wait for the resources; otherwise
    no pod is evicted. Then comes preemption between the tasks of each of these jobs, in the same way. Nodes that need
    no eviction come first, since earlier evictions may suffice. Otherwise the best rated node where victims suffice is
    chosen, with the fewest victims. Resources, queue and every predicate are evaluated as they are after the evictions.

    With topology-aware preemption, several nodes are compared. The best has the fewest violated disruption budgets,
    then the lowest highest priority of a victim, the lowest sum of priorities, the fewest victims, and the latest start
    among the earliest started victims of that highest priority. Source: Volcano ``actions/preempt``.
    """

    name = "preempt"
    follows_order = True
    kinds = ("PodDisruptionBudget",)
    arguments = (
        PREDICATE_ERROR_CACHE,
        Argument("enableTopologyAwarePreemption", "bool", False, "Whether nodes are compared by their victims."),
        Argument(
            "topologyAwarePreemptWorkerNum",
            "int",
            16,
            "How many nodes are tried at once.",
            without_effect="nodes are tried in sequence, so that a replay gives the same decisions",
        ),
        Argument("minCandidateNodesPercentage", "int", 10, "Percentage of nodes to compare.", minimum=0, maximum=100),
        Argument("minCandidateNodesAbsolute", "int", 1, "The fewest nodes to compare.", minimum=0),
        Argument("maxCandidateNodesAbsolute", "int", 100, "The most nodes to compare.", minimum=1),
    )

    def execute(self, framework: Framework) -> None:
        session = framework.session
        AllocateAction.place_nominated(framework)
        starving = starving_jobs(framework)
        for job, _ in nominated_jobs(framework, [job for jobs in starving.values() for job in jobs]):
            if not session.is_full():
                self._preempt_jobs(framework, job)
        queues: PriorityQueue[Queue] = PriorityQueue(
            framework.queue_key, [session.queue_list[index] for index in sorted(starving)]
        )
        while queues:
            queue = queues.pop()
            jobs = framework.jobs_in_order(starving[queue.index])
            while jobs:
                if session.is_full():
                    jobs.rest()  # settles the queue, so that no untried job gets the result of the last class
                    return
                self._preempt_jobs(framework, jobs.pop())
            for job in starving[queue.index]:
                self._preempt_within(framework, job)

    def _preempt_jobs(self, framework: Framework, job: Job) -> None:
        vetoes = Vetoes()

        def evict() -> bool:
            statement = framework.statement(self.name, job)
            return pipeline_with_evictions(
                framework,
                statement,
                lambda: partial(
                    self._take, framework, statement, self._victim_search(framework, job, vetoes, within=False)
                ),
            )

        evicted = evict() or displacing(framework, self.name, job, evict)
        vetoes.note(job, self.name, evicted=evicted)

    def _preempt_within(self, framework: Framework, job: Job) -> None:
        for sub_job, tasks in units(framework, job, schedulable_tasks(framework, job)):
            search = self._victim_search(framework, job, Vetoes(), within=True)
            statement = framework.statement(self.name, job)
            for task in tasks:
                taken = self._take(framework, statement, search, task)
                is_part = sub_job is not None and not is_whole(framework, sub_job)
                if not taken or not (is_part or framework.job_pipelined(job)):
                    statement.discard()
                    return
                if not is_part:
                    statement.commit()
                    statement = framework.statement(self.name, job)
            statement.discard()

    @staticmethod
    def _victim_search(framework: Framework, job: Job, vetoes: Vetoes, *, within: bool) -> VictimFinder:
        session = framework.session
        placed = placed_tasks(session)
        if within:
            freeable = placed.freeable(placed.jobs == job.index)
        else:
            queue = job.queue.index
            freeable = placed.freeable_in(("queue", queue), lambda: session.jobs.queue[placed.jobs] == queue)

        @cache
        def outranks(other: Job) -> bool:
            """Whether another job would get the capacity that its own evicted pods free (``Nominations.outranks``)."""
            return other.priority > job.priority and framework.job_key(other) < framework.job_key(job)

        def exempt(task: Task) -> str:
            if task.job.queue is not job.queue:
                return "is of another queue, {queue}"
            if (task.job is job) is not within:
                return "is of another job" if within else "is of the job itself"
            if not within and outranks(task.job):
                vetoes.add(NOT_LOWER)
                return "is of a job of higher priority"
            return ""

        why = f"preemption for {job.key} of queue {job.queue.name}"
        return VictimFinder(framework, job, framework.preemptable, freeable, exempt, why, vetoes)

    def _take(self, framework: Framework, statement: Statement, search: VictimFinder, task: Task) -> bool:
        """Pipeline a task where evictions free resources for it.

        Return False, with nothing changed, if there is no such node.
        """
        session = framework.session
        if not may_preempt(task):
            search.vetoes.add(NEVER_EVICTS)
            return False
        if framework.pre_predicate(task) is not None:
            return False
        compares = self.values["enableTopologyAwarePreemption"]
        # as in Volcano, this mode starts with victims; what earlier evictions left over is used before new ones
        tries_without_eviction = (
            not compares or len(statement) or session.trial.statements or is_nominated(framework, task)
        )
        row = search.node_without_eviction(task) if tries_without_eviction else None
        if row is not None:
            return statement.pipeline([task], [row])
        resolvable = search.resolvable(task)
        if not resolvable.any() or _waits_for_nominated(session, task, resolvable):
            return False
        rating, is_failure_shared = search.candidates(task).rating(resolvable), search.is_failure_shared(task)
        rate_last(rating, session.refusing_nodes(task))
        nodes = best_first(rating, search.reach(task))
        if compares:
            nodes = self._best_compared(
                session, statement, search, task, nodes, self._compared_count(int(resolvable.sum()))
            )
        save_point = statement.save()
        for node in nodes:
            if search.evict_for(statement, task, node, search.victim_candidates(task, node)) is not None:
                if is_failure_shared and not compares:
                    resolvable &= rating <= rating[node]  # nodes rated above it had no victims
                if statement.pipeline([task], [node]):
                    return True
                statement.undo(save_point)  # a plugin refused it: evict no pod in vain
                return False
        if not compares:
            resolvable[:] = False
        return False

    @staticmethod
    def _best_compared(
        session: Session, statement: Statement, search: VictimFinder, task: Task, nodes: Iterable[int], wanted: int
    ) -> Iterator[int]:
        """Yield the node whose victims are the smallest loss, among ``wanted`` nodes with victims.

        Nodes that had a bind of the task refused come last.
        """
        budgets, refusing = budgets_now(session), session.refusing_nodes(task)
        found: list[tuple[tuple[int, ...], int]] = []
        for node in nodes:
            save_point = statement.save()
            victims = search.evict_for(statement, task, node, search.victim_candidates(task, node))
            statement.undo(save_point)
            if victims:
                found.append(((node in refusing, budgets.violated(victims), *_loss(victims)), node))
                if len(found) >= wanted:
                    break
        return iter([min(found, key=lambda pair: pair[0])[1]] if found else [])

    def _compared_count(self, nodes: int) -> int:
        share: int = nodes * self.values["minCandidateNodesPercentage"] // 100
        fewest: int = self.values["minCandidateNodesAbsolute"]
        most: int = self.values["maxCandidateNodesAbsolute"]
        return max(1, min(max(share, fewest), most, nodes))


def _loss(victims: list[Task]) -> tuple[int, ...]:
    """Return the loss of victims as a sort key: highest priority, sum of priorities, count, earliest start."""
    priorities = [victim.shape.spec.priority or 0 for victim in victims]
    highest = max(priorities)
    earliest = min(
        _start_time(victim) for victim, priority in zip(victims, priorities, strict=True) if priority == highest
    )
    return highest, sum(priority + 2**31 for priority in priorities), len(victims), -earliest


def _start_time(task: Task) -> int:
    """Return when a pod started. A pod that has not started, or has no valid time, counts as the youngest."""
    text = task.pod.status.start_time
    try:
        return seconds_of(text) if text else _NOT_YET
    except ValueError:
        return _NOT_YET


def _waits_for_nominated(session: Session, task: Task, resolvable: npt.NDArray[np.bool_]) -> bool:
    """Whether victims of a task are still releasing on its nominated node, and the node may take it afterwards."""
    node = session.nominated_node(task)
    if node is None or not resolvable[node]:
        return False
    tasks = session.snapshot.tasks
    releasing = (tasks.node == node) & (tasks.status == TaskStatus.RELEASING) & (tasks.priority < task.priority)
    return bool(releasing.any())

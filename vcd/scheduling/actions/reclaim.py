"""reclaim: a queue takes resources back that other queues hold beyond their share (docs/semantics/actions.md)."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np
import numpy.typing as npt

from vcd.scheduling.actions.allocate import PREDICATE_ERROR_CACHE, AllocateAction
from vcd.scheduling.eviction.preemptors import jobs_in_turn, pipeline_with_evictions
from vcd.scheduling.eviction.vetoes import (
    MAY_NOT_RECLAIM,
    NEVER_EVICTS,
    NOT_RECLAIMABLE,
    Vetoes,
    has_unreclaimable_usage,
)
from vcd.scheduling.eviction.victim_search import VictimFinder, may_preempt, placed_tasks
from vcd.scheduling.framework.action import Action
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement
from vcd.scheduling.session.views import Job, Task


class ReclaimAction(Action):
    """Evict tasks of other queues, so that starving jobs of a queue below its share can wait for their resources.

    Nodes that need no eviction come first. Otherwise victims are bound or running tasks of reclaimable queues that all
    plugins permit; on the first node where they suffice, the fewest are evicted. Resources, queue and every predicate
    are evaluated as they are after the evictions. Evictions are committed if the job may wait for the resources;
    otherwise no pod is evicted. Source: Volcano ``actions/reclaim``.
    """

    name = "reclaim"
    follows_order = True
    arguments = (PREDICATE_ERROR_CACHE,)

    def execute(self, framework: Framework) -> None:
        AllocateAction.place_nominated(framework)
        for job in jobs_in_turn(framework, lambda queue: framework.overused(queue) is None):
            self._reclaim(framework, job)

    def _reclaim(self, framework: Framework, job: Job) -> None:
        statement, vetoes = framework.statement(self.name, job), Vetoes()
        evicted = pipeline_with_evictions(framework, statement, lambda: self._search(framework, statement, vetoes))
        vetoes.note(job, self.name, evicted=evicted)

    def _search(self, framework: Framework, statement: Statement, vetoes: Vetoes) -> Callable[[Task], None]:
        """Return a function that pipelines one of the job's tasks where it can."""
        session = framework.session
        job, queue = statement.job, statement.job.queue

        def exempt(other: Task) -> str:
            theirs = other.job.queue
            if theirs is queue:
                return "is of queue {queue} itself"
            return "" if theirs.reclaimable else "queue {queue} is not reclaimable"

        search = VictimFinder(
            framework,
            job,
            framework.reclaimable,
            placed_tasks(session).freeable_in(("other queues", queue.index), lambda: _of_other_queues(session, queue)),
            exempt,
            f"reclaim for {job.key} of queue {queue.name}",
            vetoes,
        )
        nodes: dict[Hashable, list[int]] = {}
        """The nodes to try for the tasks of a kind that the same nodes refused, in reverse order."""

        def take(task: Task) -> None:
            if not may_preempt(task):
                vetoes.add(NEVER_EVICTS)
                return
            refused = framework.preemptive(queue, [task])
            if refused is not None:
                vetoes.add(MAY_NOT_RECLAIM, refused[0])
                return
            if has_unreclaimable_usage(session, queue):
                vetoes.add(NOT_RECLAIMABLE)
            if framework.pre_predicate(task) is None:
                refusing = session.refusing_nodes(task)
                kind = search.kind(task), *refusing
                if kind not in nodes or search.moves(task):
                    nodes[kind] = _in_seeded_order(session, search.resolvable(task), refusing)
                self._take(framework, statement, search, task, nodes[kind])

        return take

    @staticmethod
    def _take(framework: Framework, statement: Statement, search: VictimFinder, task: Task, nodes: list[int]) -> None:
        """Pipeline a task where no eviction is needed, else on the last of ``nodes`` with victims.

        Nodes that have no victims for any equivalent task are removed.
        """
        row = search.node_without_eviction(task)
        if row is not None:
            statement.pipeline([task], [row])
            return
        save_point = statement.save()
        refused, remaining = list[int](), list[int]()
        while nodes:
            if _evict_candidates(search, statement, task, nodes[-1]):
                if statement.pipeline([task], [nodes[-1]]):
                    break
                statement.undo(save_point)  # a plugin refused it: evict no pod in vain
                refused.append(nodes[-1])
                remaining.append(nodes[-1])
            elif not search.is_failure_shared(task):
                remaining.append(nodes[-1])
            nodes.pop()
        # a plugin may admit other tasks of the kind; if no pod was evicted, nodes without victims stay without
        nodes.extend(reversed(remaining if nodes else refused))


def _evict_candidates(search: VictimFinder, statement: Statement, task: Task, node: int) -> bool:
    offered = search.victim_candidates(task, node)
    return bool(offered) and search.evict_for(statement, task, node, offered) is not None


def _in_seeded_order(session: Session, mask: npt.NDArray[np.bool_], refusing: list[int]) -> list[int]:
    """Return the rows of a mask in reverse seeded order; ``refusing`` rows come before all others in the list."""
    rows = np.flatnonzero(mask)
    order: list[int] = rows[np.argsort(-session.nodes.facts.ties(session.seed)[rows])].tolist()
    if not refusing:
        return order
    return [row for row in reversed(refusing) if mask[row]] + [row for row in order if row not in refusing]


def _of_other_queues(session: Session, queue: Queue) -> npt.NDArray[np.bool_]:
    """Return which of the placed tasks belong to other, reclaimable queues."""
    placed = placed_tasks(session)
    fair = np.array([other.reclaimable and other is not queue for other in session.queue_list], np.bool_)
    queues = session.jobs.queue[placed.jobs]
    chosen: npt.NDArray[np.bool_] = fair[queues]
    return chosen

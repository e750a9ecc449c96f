"""reclaim: a queue takes back what others hold beyond their share (docs/semantics/actions.md)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable

import numpy as np
import numpy.typing as npt

from vcd.scheduling.actions.allocate import PREDICATE_ERROR_CACHE, AllocateAction
from vcd.scheduling.eviction.room import Room, may_preempt, placed_tasks
from vcd.scheduling.eviction.starving import jobs_in_turn, make_wait
from vcd.scheduling.eviction.vetoes import MAY_NOT_RECLAIM, NEVER_EVICTS, NOT_RECLAIMABLE, Vetoes, holds_back
from vcd.scheduling.framework.action import Action
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.session.queues import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement
from vcd.scheduling.session.views import Job, Task


class ReclaimAction(Action):
    """Starving jobs of queues that are below their share wait on nodes for room that other queues' tasks give up.

    Room that nobody has to give up comes first. Else victims are bound or running tasks of queues that are reclaimable,
    and all plugins let them go; on the first node where they suffice the fewest are taken. Room, queue and every
    predicate are looked at as they are after the evictions. What a job took is committed when it may wait for its room,
    else it costs nobody anything. Source: Volcano ``actions/reclaim``.
    """

    name = "reclaim"
    treats_alike = True
    arguments = (PREDICATE_ERROR_CACHE,)

    def execute(self, framework: Framework) -> None:
        AllocateAction.place_nominated(framework)
        for job in jobs_in_turn(framework, lambda queue: framework.overused(queue) is None):
            self._reclaim(framework, job)

    def _reclaim(self, framework: Framework, job: Job) -> None:
        statement, vetoes = framework.statement(self.name, job), Vetoes()
        evicted = make_wait(framework, statement, lambda: self._search(framework, statement, vetoes))
        vetoes.note(job, self.name, evicted=evicted)

    def _search(self, framework: Framework, statement: Statement, vetoes: Vetoes) -> Callable[[deque[Task]], None]:
        """What lets the first of a job's tasks wait where it can, and those alike after it."""
        session = framework.session
        job, queue = statement.job, statement.job.queue

        def exempt(other: Task) -> str:
            theirs = other.job.queue
            if theirs is queue:
                return "is of queue {queue} itself"
            return "" if theirs.reclaimable else "queue {queue} is not reclaimable"

        room = Room(
            framework,
            job,
            framework.reclaimable,
            placed_tasks(session).freeable_in(("other queues", queue.index), lambda: _of_other_queues(session, queue)),
            exempt,
            f"reclaim for {job.key} of queue {queue.name}",
            vetoes,
        )
        nodes: dict[Hashable, list[int]] = {}
        """The nodes to try for the tasks of a kind that the same nodes refused, the first to be tried last."""

        def take(tasks: deque[Task]) -> None:
            several = room.several(tasks)
            if several and framework.preemptive(queue, several) is None and framework.pre_predicate(tasks[0]) is None:
                for _ in range(room.exchange_together(statement, several)):
                    tasks.popleft()
                return
            task = tasks.popleft()
            if not may_preempt(task):
                vetoes.add(NEVER_EVICTS)
                return
            refused = framework.preemptive(queue, [task])
            if refused is not None:
                vetoes.add(MAY_NOT_RECLAIM, refused[0])
                return
            if holds_back(session, queue):
                vetoes.add(NOT_RECLAIMABLE)
            if framework.pre_predicate(task) is None:
                refusing = session.refusing_nodes(task)
                kind = room.kind(task), *refusing
                if kind not in nodes or room.moves(task):
                    nodes[kind] = _in_seeded_order(session, room.resolvable(task), refusing)
                self._take(framework, statement, room, task, nodes[kind])

        return take

    @staticmethod
    def _take(framework: Framework, statement: Statement, room: Room, task: Task, nodes: list[int]) -> None:
        """Let a task wait where nobody has to go, else on the last of ``nodes`` that gives; those that have nothing for
        any like it are taken off."""
        vacant = room.vacant(task)
        if vacant is not None:
            statement.pipeline(task, vacant)
            return
        save_point, stays_shut = statement.save(), room.stays_shut(task)
        refused, kept = list[int](), list[int]()
        while nodes:
            if room.exchange(statement, task, nodes[-1]) or _free(room, statement, task, nodes[-1]):
                if statement.pipeline(task, nodes[-1]):
                    break
                statement.undo(save_point)  # a plugin refused it: nobody goes for nothing
                refused.append(nodes[-1])
                kept.append(nodes[-1])
            elif not stays_shut:
                kept.append(nodes[-1])
            nodes.pop()
        # others of its kind may be let in; where nobody went for it, what had nothing for it has nothing for those
        nodes.extend(reversed(kept if nodes else refused))


def _free(room: Room, statement: Statement, task: Task, node: int) -> bool:
    """Whether somebody who may go from a node goes for a task."""
    offered = room.offered(task, node)
    return bool(offered) and room.free(statement, task, node, offered) is not None


def _in_seeded_order(session: Session, mask: npt.NDArray[np.bool_], refusing: list[int]) -> list[int]:
    """The rows of a mask, the first of the seeded order last; before all of them those that are ``refusing``."""
    rows = np.flatnonzero(mask)
    order: list[int] = rows[np.argsort(-session.nodes.facts.ties(session.seed)[rows])].tolist()
    if not refusing:
        return order
    return [row for row in reversed(refusing) if mask[row]] + [row for row in order if row not in refusing]


def _of_other_queues(session: Session, queue: Queue) -> npt.NDArray[np.bool_]:
    """Return which of the placed tasks are of other queues that are reclaimable."""
    placed = placed_tasks(session)
    fair = np.array([other.reclaimable and other is not queue for other in session.queue_list], np.bool_)
    queues = session.jobs.queue[placed.jobs]
    chosen: npt.NDArray[np.bool_] = fair[queues]
    return chosen

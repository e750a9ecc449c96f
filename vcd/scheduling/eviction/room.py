"""Making room: who may go from a node for a task, in which order, and the fewest that suffice.

A trial is a statement taken to a save point and back: what a plugin keeps follows it, so that affinity, spread, budgets
and queues' accounts are those after the evictions (Volcano #5022).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property, partial
from itertools import islice, takewhile
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from vcd.model.status import TaskStatus
from vcd.scheduling.eviction.vetoes import IMMUNE, Vetoes
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.framework.victims import Victims
from vcd.scheduling.search.candidates import Candidates
from vcd.scheduling.session.immunity import immunity_of
from vcd.scheduling.session.nodes import Ints, fits
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement
from vcd.scheduling.session.views import Job, Task
from vcd.state.sums import sums_by

NEVER = "Never"
PLACED = (int(TaskStatus.BOUND), int(TaskStatus.RUNNING))
"""The statuses of possible victims. A bound pod holds its resources even if it never runs, say for want of an image."""

Exempt = Callable[["Task"], str]
"""Why a task is not asked about at all, ``{queue}`` standing for its queue; empty where plugins are asked."""
Ask = Callable[["Task", "list[Task]"], "Victims"]
"""Who of some tasks may go for a task."""


class EvictionContext(msgspec.Struct, frozen=True, dict=True):
    """For whom whole gangs are asked: the action's name, the job, and those of its tasks that want room."""

    kind: str
    job: Job
    tasks: tuple[Task, ...]

    @cached_property
    def wanted(self) -> Ints:
        """What the tasks ask for together."""
        total: Ints = np.sum([task.request for task in self.tasks], axis=0)
        return total


class PlacedTasks:
    """The tasks that sat on nodes when the session began, node by node: a service of the session."""

    def __init__(self, session: Session) -> None:
        tasks = session.snapshot.tasks
        chosen = np.isin(tasks.status, PLACED) & (tasks.node >= 0) & (session.job_of_row >= 0)
        rows = np.flatnonzero(chosen)
        self.rows: npt.NDArray[np.intp] = rows[np.argsort(tasks.node[rows], kind="stable")]
        self.nodes = tasks.node[self.rows]
        self.jobs = session.job_of_row[self.rows]
        self._starts = np.searchsorted(self.nodes, np.arange(len(session.nodes) + 1))
        self._session = session
        self._freeable: dict[Hashable, Freeable] = {}
        self._on_node: dict[int, list[Task]] = {}
        self._staying: dict[int, list[Task]] = {}
        self._marked: dict[int, list[Task]] = {}
        self._seen = len(session.nodes.log)

    def on_node(self, node: int) -> Sequence[Task]:
        """The tasks of a node that may still be evicted, in order of key."""
        session = self._session
        for changed in session.nodes.log[self._seen :]:
            self._staying.pop(changed, None)
        self._seen = len(session.nodes.log)
        staying = self._staying.get(node)
        if staying is None:
            found = self._on_node.get(node)
            if found is None:
                rows = self.rows[self._starts[node] : self._starts[node + 1]].tolist()
                tasks = session.views.tasks_at(rows)
                self._marked[node] = [task for task in tasks if not task.preemptable]
                found = self._on_node[node] = sorted(
                    (task for task in tasks if task.preemptable), key=lambda task: task.key
                )
            staying = self._staying[node] = [task for task in found if task.status in PLACED]
        return staying

    def marked_on(self, node: int) -> list[Task]:
        """The tasks of a node, asked about before, that may not be evicted by their own annotation or label."""
        return self._marked.get(node, [])

    def all_on(self, node: int) -> list[Task]:
        """The tasks of a node that are still there, in order of key, whether they may be evicted or not."""
        tasks = self._session.views.tasks_at(self.rows[self._starts[node] : self._starts[node + 1]].tolist())
        return sorted((task for task in tasks if task.status in PLACED), key=lambda task: task.key)

    def of_job(self, job: int) -> list[Task]:
        """Return the tasks of a job, node by node."""
        rows = self._rows_by_job[self._job_starts[job] : self._job_starts[job + 1]].tolist()
        return self._session.views.tasks_at(rows)

    @cached_property
    def is_placed(self) -> npt.NDArray[np.bool_]:
        """Which groups have tasks here, by the group's index."""
        return np.diff(self._job_starts) > 0

    @cached_property
    def _rows_by_job(self) -> npt.NDArray[np.intp]:
        return self.rows[np.argsort(self.jobs, kind="stable")]

    @cached_property
    def _job_starts(self) -> npt.NDArray[np.intp]:
        return np.searchsorted(np.sort(self.jobs), np.arange(len(self._session.jobs) + 1))

    def freeable(self, chosen: npt.NDArray[np.bool_]) -> Freeable:
        """What the ``chosen`` of ``rows`` would free at most."""
        return Freeable(self._session, self.rows[chosen], self.nodes[chosen])

    def freeable_in(self, scope: Hashable, choose: Callable[[], npt.NDArray[np.bool_]]) -> Freeable:
        """What those that ``choose`` chooses would free, found once for each ``scope``."""
        found = self._freeable.get(scope)
        if found is None:
            found = self._freeable[scope] = self.freeable(choose())
        return found


class Freeable:
    """What some of the placed tasks would free at most, by node, as (resources, nodes)."""

    def __init__(self, session: Session, rows: npt.NDArray[np.intp], nodes: npt.NDArray[np.int32]) -> None:
        tasks = session.snapshot.tasks
        self.at_first: Ints = np.ascontiguousarray(
            sums_by(nodes, session.requests[tasks.shape[rows]], len(session.nodes)).T
        )
        """What they would have freed when the session began."""
        self._left = self.at_first
        self._among = np.zeros(len(tasks.status), np.bool_)
        self._among[rows] = True
        self._gone: set[int] = set()
        self._moves = session.views.moves
        self._seen = 0

    def left(self) -> Ints:
        """What they would free beside those that went since; read only, and as of now."""
        if self._left is self.at_first:
            self._left = self.at_first.copy()
        for task in self._moves[self._seen :]:
            gone = task.status not in PLACED
            if self._among[task.row] and gone != (task.row in self._gone):
                (self._gone.add if gone else self._gone.remove)(task.row)
                self._left[:, task.node] += -task.request if gone else task.request
        self._seen = len(self._moves)
        return self._left


def placed_tasks(session: Session) -> PlacedTasks:
    """The session's index of placed tasks."""
    return session.provided(PlacedTasks, lambda: PlacedTasks(session))


def may_preempt(task: Task) -> bool:
    """Whether a pod's preemption policy lets it cost others anything."""
    return task.shape.spec.preemption_policy != NEVER


def fits_on(framework: Framework, task: Task, node: int, candidates: Candidates) -> bool:
    """Whether a task could be on a node as things are now: its queue, the node's coming room, every predicate."""
    session = framework.session
    return (
        session.nodes.will_have_room(node, task.floor)
        and framework.allocatable(task.job.queue, task) is None
        and candidates.passes_on(node)
    )


def choose_victims(
    task: Task, room: Ints, ask: Callable[[], Victims], *, enough: bool = False
) -> tuple[list[Task], Victims]:
    """Who goes for a task from a node with ``room``, one after the other, and the leave that they spent; nobody where
    no room comes of it. ``ask`` puts the question to the plugins anew. Where room lacks, no more than make ``enough``
    of it, if that is asked for.

    Those that may not go all together are first tried in the order in which they would go; where some resource lacks
    then, by how much they hold of it.
    """
    leave = ask()
    first = leave.first if enough else None
    if first is not None and _makes_enough(first, room, task) and leave.take(first):
        return [first], leave
    victims = leave.tasks
    scarce = np.zeros(len(room), np.bool_)
    while victims and (_with(room, victims) >= task.floor).all():
        going = _going_together(task, room, leave, victims, enough)
        lacking = task.floor > _with(room, going)
        if not lacking.any():
            return going, leave
        if not (lacking & ~scarce).any():
            break
        scarce |= lacking
        leave = ask()
        victims = _most_first(leave.tasks, (task.floor - room)[scarce], scarce)
    return [], leave


def _makes_enough(victim: Task, room: Ints, task: Task) -> bool:
    """Whether a task lacks room that one victim alone makes."""
    have, least, held = room.tolist(), task.floor.tolist(), victim.amounts
    lacking = [column for column, amount in enumerate(least) if have[column] < amount]
    return bool(lacking) and all(have[column] + held[column] >= least[column] for column in lacking)


def _with(room: Ints, victims: list[Task]) -> Ints:
    """A node's room with what victims hold beside it."""
    room = room.copy()
    for victim in victims:
        room += victim.request
    return room


def _going_together(task: Task, room: Ints, leave: Victims, victims: list[Task], enough: bool) -> list[Task]:
    """Those of ``victims`` that go, as far as they have leave to go together: first those that hold some of what still
    lacks, then the others, since who brings no room may be in the way of a predicate (Volcano #4918).

    With ``enough`` they end with the one after whom nothing lacks any more.
    """
    room = room.copy()
    lacking = task.floor > room
    going: list[Task] = []
    for _ in range(2):
        others = []
        for victim in victims:
            lacks = bool(lacking.any())
            if lacks and not (victim.request[lacking] > 0).any():
                others.append(victim)
            elif leave.take(victim):
                going.append(victim)
                room += victim.request
                lacking = task.floor > room
                if enough and lacks and not lacking.any():
                    return going
        victims = others
    return going


def _most_first(victims: list[Task], lack: Ints, columns: npt.NDArray[np.bool_]) -> list[Task]:
    """Victims by how much they hold of some resources, each as part of what lacks of it."""
    return sorted(victims, key=lambda victim: -float((np.minimum(victim.request[columns], lack) / lack).sum()))


class _Exchange(NamedTuple):
    """One task was evicted for another on a node, and held just as much."""

    asker: Task
    kind: Hashable
    node: int
    leave: Victims
    rest: list[Task] | None
    """Who is left there, in the order in which they would go; None where that order may change with who goes."""
    changes: int
    """How much had changed in the session once the asker waits there."""


class Room:
    """The search for room for one job's tasks: ``exempt`` says who is not asked about, ``ask`` asks the plugins.

    ``freeable`` is the most that tasks that are not exempt would free, by node. Nodes that had nothing for a kind
    of task are not looked at again for the same job, since what a job takes leaves less for it; but where other pods'
    places matter (affinity, spread) what it takes may open a node, too, and where its queue had no room who goes.
    """

    def __init__(
        self,
        framework: Framework,
        job: Job,
        ask: Ask,
        freeable: Freeable,
        exempt: Exempt,
        why: str,
        vetoes: Vetoes,
    ) -> None:
        self.framework = framework
        self.session = framework.session
        self.job = job
        self.why = why
        self.vetoes = vetoes
        self._ask = ask
        self._exempt = exempt
        self._placed = placed_tasks(framework.session)
        self._immunity = immunity_of(framework.session)
        self._freeable = freeable
        self._resolvable: dict[Hashable, npt.NDArray[np.bool_]] = {}
        self._candidates: tuple[Task, Candidates] | None = None
        self._exchange: _Exchange | None = None
        self._is_full = False
        """Whether no node had room for the task that was looked at last."""
        self._open: tuple[Task | None, int, npt.NDArray[np.bool_] | None] = (None, 0, None)
        self._passing: tuple[Task, int, npt.NDArray[np.bool_]] | None = None

    def resolvable(self, task: Task) -> npt.NDArray[np.bool_]:
        """Nodes that may have room for a task once some are gone. Clear one that had nothing: it is remembered for all
        tasks of this kind."""
        kind = self.kind(task)
        mask = self._resolvable.get(kind)
        if mask is None or self.moves(task):
            mask = self.candidates(task).resolvable()
            mask &= fits(task.floor, self.session.nodes.usage.future_idle + self._freeable.at_first)
            if self.framework.allocatable(task.job.queue, task) is not None:
                mask &= self._freeable.at_first.any(axis=0)  # only where somebody goes can the queue get room
            self._resolvable[kind] = mask
        return mask

    def stays_shut(self, task: Task) -> bool:
        """Whether nodes that have nothing for a task now have nothing for those alike either: where its queue, or one
        above it, has no room, who goes from another node may make some."""
        return self.framework.allocatable(task.job.queue, task) is None

    def reach(self, task: Task) -> npt.NDArray[np.bool_]:
        """Nodes that would have room for a task if all went that may and are still there; as of now."""
        return fits(task.floor, self.session.nodes.usage.future_idle + self._freeable.left())

    def kind(self, task: Task) -> Hashable:
        """What tasks have in common that find the same nodes, as things are now."""
        return self.framework.evaluator.kind(task), task.labels  # who may go for it may hang on its labels

    def moves(self, task: Task) -> bool:
        """Whether what its job takes may open nodes to a task: where other pods are matters to it."""
        return self.framework.evaluator.kinds.moves(task)

    def vacant(self, task: Task) -> int | None:
        """The node that takes a task without anybody going, its nominated one first; evictions may have left room."""
        last = self._exchange
        if last is not None and self._is_full and self._follows(last, task):
            self._open = task, self.session.trial.changes, None  # what was full then is full now
            return None
        if self._open_nodes(task) is None:
            return None
        candidates = self.candidates(task)
        row = self.framework.nominated(task, candidates)
        return self.framework.best_to_wait(task, candidates) if row is None else row

    def _open_nodes(self, task: Task) -> npt.NDArray[np.bool_] | None:
        """The nodes that have room for a task as things are now, and are not ruled out by facts; None where there is
        none, or its queue has no room: a full cluster, the usual case here, costs no ratings."""
        session = self.session
        known, changes, mask = self._open
        if known is not task or changes != session.trial.changes:
            mask, self._is_full = None, False
            if self.framework.allocatable(task.job.queue, task) is None:
                found = session.nodes.with_room(task.floor) & self.candidates(task).static.mask
                self._is_full = not found.any()
                mask = None if self._is_full else found
            self._open = task, session.trial.changes, mask
        return mask

    def candidates(self, task: Task) -> Candidates:
        """The table of a task's class, kept while the same task is tried."""
        if self._candidates is None or self._candidates[0] is not task:
            self._candidates = (task, self.framework.candidates(task))
        return self._candidates[1]

    def offered(self, task: Task, node: int) -> list[Task]:
        """Whom to ask about on a node, in the order in which they would go."""
        tasks = [other for other in self._placed.on_node(node) if not self._exempt(other)]
        if self._immunity:
            asked = [other for other in tasks if not self._immunity.covers(other, self.job)]
            if len(asked) < len(tasks):
                self.vetoes.add(IMMUNE)
            tasks = asked
        if task.best_effort:
            tasks = [other for other in tasks if other.best_effort]
        return self.framework.in_victim_order(tasks, task.job.queue)

    def exempt_on(self, task: Task, node: int, offered: list[Task]) -> Iterator[tuple[Task, str]]:
        """Who on a node is not among those ``offered`` for a task, in order of key, and why not."""
        asked = {other.row for other in offered}
        for other in self._placed.all_on(node):
            if other.row in asked:
                continue
            if other.eviction_was_refused:
                yield other, "backs off, since the API server refused its eviction"
            elif not other.preemptable:
                yield other, "says that it may not be preempted"
            elif self._immunity.covers(other, self.job):
                yield other, "replaces a pod that was evicted for this job or an equivalent one"
            elif why := self._exempt(other):
                yield other, why.format(queue=other.job.queue.name)
            else:
                yield other, "is not best-effort, as the one that wants room is"

    def fits(self, task: Task, node: int) -> bool:
        """Whether a task could be on a node as things are now."""
        return fits_on(self.framework, task, node, self.candidates(task))

    def _fits_already(self, task: Task, node: int) -> bool:
        """``fits``, for all nodes at once while nothing is placed or evicted: most of them are looked at in vain."""
        nodes = self._open_nodes(task)
        if nodes is None or not nodes[node]:
            return False
        changes = self.session.trial.changes
        if self._passing is None or self._passing[0] is not task:
            self._passing = task, changes, self.candidates(task).passing_on_all()
        _, since, mask = self._passing
        return bool(mask[node]) if since == changes else self.candidates(task).passes_on(node)

    def free(self, statement: Statement, task: Task, node: int, offered: list[Task]) -> list[Task] | None:
        """Evict the fewest of those ``offered`` on a node that let the task fit, and return them.

        None, with nothing done, where not even all of them would.
        """
        if self._fits_already(task, node):
            return []
        self.vetoes.add_unasked(other for other in self._placed.marked_on(node) if not self._exempt(other))
        if not offered:
            return None
        room = self.session.nodes.usage.room_of(node)
        ask = partial(self._ask, task, offered)
        going, leave = choose_victims(task, room, ask, enough=True)
        self._write_down(task, node, offered, going, leave)
        chosen = self._evict_until_fit(statement, task, node, going)
        if chosen is None and 0 < len(going) < len(offered):  # room there is; others may be in a predicate's way
            going, leave = choose_victims(task, room, ask)
            self._write_down(task, node, offered, going, leave)
            chosen = self._evict_until_fit(statement, task, node, going)
        elif chosen and leave.lasts and len(going) == 1 and going[0].amounts == task.amounts:
            jobs, queues = {other.job.index for other in offered}, {other.job.queue.index for other in offered}
            rest = offered if len(jobs) == len(offered) and len(queues) == 1 else None
            self._exchanged(task, self.kind(task), node, leave, rest, going[0])
        if chosen is None:
            self.vetoes.add_keepers(leave)
        return chosen

    def _write_down(self, task: Task, node: int, offered: list[Task], going: list[Task], leave: Victims) -> None:
        trace = self.framework.trace
        if trace is not None:
            trace.searched(task, self.job, going, leave, node, lambda: self.exempt_on(task, node, offered))

    def exchange(self, statement: Statement, task: Task, node: int) -> bool:
        """Evict who is next on a node where the task before, one alike, waits for as much as its victim held: as
        ``free`` would, without asking all again. False, with nothing done, where there is more to look at."""
        last, self._exchange = self._exchange, None
        if last is None or last.node != node or not self._follows(last, task):
            return False
        victim = last.leave.again(self.offered(task, node) if last.rest is None else last.rest).first
        if victim is None or victim.amounts != task.amounts or not last.leave.take(victim):
            return False
        self.candidates(task)  # as things are before anybody goes
        statement.evict(victim, self.why)
        if not self.fits(task, node):
            statement.undo(statement.save() - 1)
            return False
        self._exchanged(task, last.kind, node, last.leave, last.rest, victim)
        return True

    def several(self, tasks: deque[Task]) -> list[Task]:
        """Of a job's next tasks those alike that may be exchanged at once on the node of the last exchange; the last
        one is none of them, since a job that needs no more may not take more."""
        last, first, count = self._exchange, tasks[0], len(tasks) - 1
        if last is None or not last.rest or not (self._is_full and self.framework.places_alike(self.job)):
            return []
        count = min(count, len(last.rest))
        if count < 2 or not self._follows(last, first):
            return []
        alike = list(takewhile(lambda task: task.labels == first.labels, islice(tasks, count)))
        return alike if self.framework.allocatable_together(self.job.queue, first, len(alike)) else []

    def exchange_together(self, statement: Statement, tasks: list[Task]) -> int:
        """``exchange`` as many of the first of ``several`` tasks as can be at once, and how many that are."""
        last, self._exchange = self._exchange, None
        assert last is not None and last.rest is not None
        rest, victims = last.rest[:], []
        for task in tasks:
            victim = last.leave.again(rest).first
            if victim is None or victim.amounts != task.amounts or not last.leave.take(victim):
                break
            rest.remove(victim)
            victims.append(victim)
        tasks = tasks[: len(victims)]
        if not tasks or not self._fit_in_turn(tasks, victims, last.node):
            return 0
        save_point = statement.save()
        statement.exchange(tasks, victims, last.node, self.why)
        if not self.framework.job_starving(self.job):
            statement.undo(save_point)
            return 0
        self._exchange = last._replace(asker=tasks[-1], rest=rest, changes=self.session.trial.changes)
        return len(tasks)

    def _fit_in_turn(self, tasks: list[Task], victims: list[Task], node: int) -> bool:
        """Whether each of some tasks alike could be on a node once its victim went, who held just as much, where those
        before it wait."""
        usage = self.session.nodes.usage
        changes = np.array([victim.deltas.evict for victim in victims])
        changes[1:] += tasks[0].deltas.pipeline
        stages = usage.take(np.full(len(victims), node))
        stages.matrix += np.cumsum(changes, axis=0).T
        enough = _makes_enough(victims[0], usage.room_of(node), tasks[0])
        return enough and self.candidates(tasks[0]).passes_in(stages)

    def _exchanged(
        self, task: Task, kind: Hashable, node: int, leave: Victims, offered: list[Task] | None, victim: Task
    ) -> None:
        rest = None if offered is None else [other for other in offered if other is not victim]
        self._exchange = _Exchange(task, kind, node, leave, rest, self.session.trial.changes + 1)

    def _follows(self, last: _Exchange, task: Task) -> bool:
        """Whether a task is alike to the one of the last exchange, which waits on its node, and nothing else happened
        since."""
        return (
            last.changes == self.session.trial.changes
            and last.asker.node == last.node
            and self.session.classes.has_pods_alike(self.job.index)
            and self.kind(task) == last.kind
            and not self.moves(task)
        )

    def _evict_until_fit(self, statement: Statement, task: Task, node: int, going: list[Task]) -> list[Task] | None:
        """Evict one after the other until the task fits, then give back whom it takes not; None, with nothing done,
        where it does not fit without all of them."""
        save_point = statement.save()
        for count, victim in enumerate(going, 1):
            statement.evict(victim, self.why)
            if self.fits(task, node):
                return self._spare(statement, save_point, task, node, going[:count])
        statement.undo(save_point)
        return None

    def _spare(self, statement: Statement, save_point: int, task: Task, node: int, chosen: list[Task]) -> list[Task]:
        """Give back whom it takes not, those that would go last first."""
        for victim in reversed(chosen[:-1]):
            room = self.session.nodes.usage.room_of(node) - victim.request
            if (room < task.floor).any():
                continue
            rest = [other for other in chosen if other is not victim]
            self._evict_just(statement, save_point, rest)
            if self.fits(task, node):
                chosen = rest
            else:
                self._evict_just(statement, save_point, chosen)
        return chosen

    def _evict_just(self, statement: Statement, save_point: int, victims: list[Task]) -> None:
        statement.undo(save_point)
        for victim in victims:
            statement.evict(victim, self.why)

"""Victim search: which pods may be evicted from a node for a task, in which order, and the fewest that suffice.

Each attempt is a statement that is undone to a save point. Plugins' accounts follow it, so that affinity, spread,
budgets and queues are evaluated as they are after the evictions (Volcano #5022).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property, partial

import msgspec
import numpy as np
import numpy.typing as npt

from vcd.model.status import TaskStatus
from vcd.scheduling.eviction.vetoes import IMMUNE, Vetoes
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.framework.victims import Victims
from vcd.scheduling.search.candidates import Candidates
from vcd.scheduling.search.equivalence import EquivalenceKey
from vcd.scheduling.session.nodes import Ints, fits
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.session_immunity import immunity_of
from vcd.scheduling.session.statement import Statement
from vcd.scheduling.session.views import Job, Task
from vcd.state.sums import sums_by

NEVER = "Never"
PLACED = (int(TaskStatus.BOUND), int(TaskStatus.RUNNING))
"""The statuses of possible victims. A bound pod holds its resources even if it never runs, say for want of an image."""

ExemptionOf = Callable[["Task"], str]
"""Returns why a task is no candidate (``{queue}`` is replaced by its queue's name), or "" to let the plugins decide."""
VictimsFor = Callable[["Task", "list[Task]"], "Victims"]
"""Returns which of the given tasks may be evicted for a task."""


class EvictionContext(msgspec.Struct, frozen=True, dict=True):
    """The beneficiary of gang evictions: the action's name, the job, and those of its tasks that need capacity."""

    kind: str
    job: Job
    tasks: tuple[Task, ...]

    @cached_property
    def wanted(self) -> Ints:
        """The sum of the tasks' requests."""
        total: Ints = np.sum([task.request for task in self.tasks], axis=0)
        return total


class PlacedTasks:
    """The tasks that were on nodes when the session began, by node. One object per session."""

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
        """Return the tasks of a node that may still be evicted, in order of key."""
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

    def opted_out_on(self, node: int) -> list[Task]:
        """Return the tasks that opt out of preemption on a node for which ``on_node`` was called before."""
        return self._marked.get(node, [])

    def all_on(self, node: int) -> list[Task]:
        """Return the tasks that are still on a node, in order of key, evictable or not."""
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
        """Return the most that the ``chosen`` of ``rows`` would free."""
        return Freeable(self._session, self.rows[chosen], self.nodes[chosen])

    def freeable_in(self, scope: Hashable, choose: Callable[[], npt.NDArray[np.bool_]]) -> Freeable:
        """Return the most that the chosen tasks would free, computed once for each ``scope``."""
        found = self._freeable.get(scope)
        if found is None:
            found = self._freeable[scope] = self.freeable(choose())
        return found


class Freeable:
    """The most that a set of placed tasks would free, by node, as (resources, nodes)."""

    def __init__(self, session: Session, rows: npt.NDArray[np.intp], nodes: npt.NDArray[np.int32]) -> None:
        tasks = session.snapshot.tasks
        self.initial: Ints = np.ascontiguousarray(
            sums_by(nodes, session.requests[tasks.shape[rows]], len(session.nodes)).T
        )
        """What they would have freed when the session began."""
        self._left = self.initial
        self._among = np.zeros(len(tasks.status), np.bool_)
        self._among[rows] = True
        self._gone: set[int] = set()
        self._moves = session.views.moves
        self._seen = 0

    def left(self) -> Ints:
        """Return what they would still free, without tasks evicted since the session began. Read-only, valid now."""
        if self._left is self.initial:
            self._left = self.initial.copy()
        for task in self._moves[self._seen :]:
            gone = task.status not in PLACED
            if self._among[task.row] and gone != (task.row in self._gone):
                (self._gone.add if gone else self._gone.remove)(task.row)
                self._left[:, task.node] += -task.request if gone else task.request
        self._seen = len(self._moves)
        return self._left


def placed_tasks(session: Session) -> PlacedTasks:
    """Return the session's index of placed tasks."""
    return session.provided(PlacedTasks, lambda: PlacedTasks(session))


def may_preempt(task: Task) -> bool:
    """Whether a pod's preemption policy allows evictions for it."""
    return task.shape.spec.preemption_policy != NEVER


def fits_on(framework: Framework, task: Task, node: int, candidates: Candidates) -> bool:
    """Whether a node takes a task now: its queue, the node's future idle resources, and every predicate allow it."""
    session = framework.session
    return (
        session.nodes.will_have_room(node, task.floor)
        and framework.allocatable(task.job.queue, task, 1) is None
        and candidates.passes_on(node)
    )


def choose_victims(
    task: Task, room: Ints, ask: Callable[[], Victims], *, enough: bool = False
) -> tuple[list[Task], Victims]:
    """Choose victims for a task from a node with ``room``, in eviction order; none if they do not suffice.

    Also return the plugins' verdict on which the victims were spent. ``ask`` gets a new verdict. If resources are
    short, ``enough`` limits the victims to what makes the task fit. Victims that may not all be evicted together are
    first tried in eviction order; if a resource is short then, by how much they hold of it.
    """
    verdict = ask()
    first = verdict.first if enough else None
    if first is not None and _suffices_alone(first, room, task) and verdict.take(first):
        return [first], verdict
    victims = verdict.tasks
    scarce = np.zeros(len(room), np.bool_)
    while victims and (_room_with_victims(room, victims) >= task.floor).all():
        going = _select_victims(task, room, verdict, victims, enough)
        lacking = task.floor > _room_with_victims(room, going)
        if not lacking.any():
            return going, verdict
        if not (lacking & ~scarce).any():
            break
        scarce |= lacking
        verdict = ask()
        victims = _sort_by_share(verdict.tasks, (task.floor - room)[scarce], scarce)
    return [], verdict


def _suffices_alone(victim: Task, room: Ints, task: Task) -> bool:
    """Whether a task lacks resources that this one victim frees."""
    have, least, held = room.tolist(), task.floor.tolist(), victim.amounts
    lacking = [column for column, amount in enumerate(least) if have[column] < amount]
    return bool(lacking) and all(have[column] + held[column] >= least[column] for column in lacking)


def _room_with_victims(room: Ints, victims: list[Task]) -> Ints:
    """Return a node's resources plus those of the victims."""
    room = room.copy()
    for victim in victims:
        room += victim.request
    return room


def _select_victims(task: Task, room: Ints, verdict: Victims, victims: list[Task], enough: bool) -> list[Task]:
    """Return the ``victims`` that may be evicted together.

    First come victims that hold some of what is lacking, then the others, since these may be in the way of a predicate
    (Volcano #4918). With ``enough``, stop at the victim after which nothing is lacking.
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
            elif verdict.take(victim):
                going.append(victim)
                room += victim.request
                lacking = task.floor > room
                if enough and lacks and not lacking.any():
                    return going
        victims = others
    return going


def _sort_by_share(victims: list[Task], lack: Ints, columns: npt.NDArray[np.bool_]) -> list[Task]:
    """Sort victims by how much they hold of some resources, each as a fraction of what is lacking."""
    return sorted(victims, key=lambda victim: -float((np.minimum(victim.request[columns], lack) / lack).sum()))


class VictimFinder:
    """The search for victims for one job's tasks.

    ``exempt`` excludes tasks, ``ask`` gets the plugins' verdict on the others. ``freeable`` is the most that non-exempt
    tasks would free, by node. A node without victims for a kind of task is not searched again for the same job, since
    later tasks of the job find less. Exceptions: with affinity or spread, a placement may make a node feasible; and if
    the queue is at its limit, an eviction elsewhere may.
    """

    def __init__(
        self,
        framework: Framework,
        job: Job,
        ask: VictimsFor,
        freeable: Freeable,
        exempt: ExemptionOf,
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
        self._table: tuple[Task, EquivalenceKey, Candidates] | None = None
        self._open: tuple[Task | None, int, npt.NDArray[np.bool_] | None] = (None, 0, None)
        self._passing: tuple[Task, int, npt.NDArray[np.bool_]] | None = None

    def resolvable(self, task: Task) -> npt.NDArray[np.bool_]:
        """Return nodes that may take a task after evictions.

        The mask is cached for all tasks of this kind: clear a node that has no victims.
        """
        kind = self.kind(task)
        mask = self._resolvable.get(kind)
        if mask is None or self.moves(task):
            mask = self.candidates(task).resolvable()
            mask &= fits(task.floor, self.session.nodes.usage.future_idle + self._freeable.initial)
            if self.framework.allocatable(task.job.queue, task, 1) is not None:
                mask &= self._freeable.initial.any(axis=0)  # at its limit, a queue needs an eviction
            self._resolvable[kind] = mask
        return mask

    def is_failure_shared(self, task: Task) -> bool:
        """Whether nodes without victims for a task stay so for equivalent tasks.

        They may not if its queue, or one above, is at its limit: an eviction elsewhere may make the difference.
        """
        return self.framework.allocatable(task.job.queue, task, 1) is None

    def reach(self, task: Task) -> npt.NDArray[np.bool_]:
        """Return nodes that would have capacity for a task if all remaining candidates were evicted."""
        return fits(task.floor, self.session.nodes.usage.future_idle + self._freeable.left())

    def kind(self, task: Task) -> Hashable:
        """Return a key of the tasks that have the same feasible nodes and victims now."""
        return self._table_of(task)[1], task.labels  # victims may depend on the labels

    def moves(self, task: Task) -> bool:
        """Whether placements of the task's own job may make more nodes feasible, because of other pods' positions."""
        return self.framework.evaluator.keys.moves(task)

    def node_without_eviction(self, task: Task) -> int | None:
        """Return the node that takes a task without evictions, its nominated node first.

        Earlier evictions of the session may have left enough.
        """
        if self._open_nodes(task) is None:
            return None
        candidates = self.candidates(task)
        row = self.framework.nominated(task, candidates)
        return self.framework.best_to_wait(task, candidates) if row is None else row

    def _open_nodes(self, task: Task) -> npt.NDArray[np.bool_] | None:
        """Return nodes that have capacity for a task now and are not excluded by facts.

        None if there is none or the queue is at its limit: in a full cluster, the usual case here, nothing is rated.
        """
        session = self.session
        known, changes, mask = self._open
        if known is not task or changes != session.trial.changes:
            mask = None
            if self.framework.allocatable(task.job.queue, task, 1) is None:
                found = session.nodes.with_room(task.floor) & self.candidates(task).static.mask
                mask = found if found.any() else None
            self._open = task, session.trial.changes, mask
        return mask

    def candidates(self, task: Task) -> Candidates:
        """Return the candidate table of a task, cached while the same task is tried."""
        return self._table_of(task)[2]

    def _table_of(self, task: Task) -> tuple[Task, EquivalenceKey, Candidates]:
        if self._table is None or self._table[0] is not task:
            evaluator = self.framework.evaluator
            key, parts = evaluator.keys.of(task)
            self._table = task, key, evaluator.table_of(task, key, parts)
        return self._table

    def victim_candidates(self, task: Task, node: int) -> list[Task]:
        """Return the candidates for eviction on a node, in eviction order."""
        tasks = [other for other in self._placed.on_node(node) if not self._exempt(other)]
        if self._immunity:
            offered = [other for other in tasks if not self._immunity.covers(other, self.job)]
            if len(offered) < len(tasks):
                self.vetoes.add(IMMUNE)
            tasks = offered
        if task.best_effort:
            tasks = [other for other in tasks if other.best_effort]
        return self.framework.in_victim_order(tasks, task.job.queue)

    def exemptions_on(self, task: Task, node: int, offered: list[Task]) -> Iterator[tuple[Task, str]]:
        """Yield tasks on a node that are not in ``offered``, in order of key, each with the reason."""
        offered_rows = {other.row for other in offered}
        for other in self._placed.all_on(node):
            if other.row in offered_rows:
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
        return fits_on(self.framework, task, node, self.candidates(task))

    def _fits_already(self, task: Task, node: int) -> bool:
        """Same as ``fits``, but computed for all nodes at once until something changes: most nodes fail."""
        nodes = self._open_nodes(task)
        if nodes is None or not nodes[node]:
            return False
        changes = self.session.trial.changes
        if self._passing is None or self._passing[0] is not task:
            self._passing = task, changes, self.candidates(task).passing_on_all()
        _, since, mask = self._passing
        return bool(mask[node]) if since == changes else self.candidates(task).passes_on(node)

    def evict_for(self, statement: Statement, task: Task, node: int, offered: list[Task]) -> list[Task] | None:
        """Evict the fewest of ``offered`` on a node that let the task fit, and return them.

        Return None, with nothing changed, if not even all of them suffice.
        """
        if self._fits_already(task, node):
            return []
        self.vetoes.add_unoffered(other for other in self._placed.opted_out_on(node) if not self._exempt(other))
        if not offered:
            return None
        room = self.session.nodes.usage.future_idle_of(node)
        ask = partial(self._ask, task, offered)
        going, verdict = choose_victims(task, room, ask, enough=True)
        self._trace_search(task, node, offered, going, verdict)
        chosen = self._evict_until_fit(statement, task, node, going)
        if chosen is None and 0 < len(going) < len(offered):  # others may block a predicate
            going, verdict = choose_victims(task, room, ask)
            self._trace_search(task, node, offered, going, verdict)
            chosen = self._evict_until_fit(statement, task, node, going)
        if chosen is None:
            self.vetoes.add_protectors(verdict)
        return chosen

    def _trace_search(self, task: Task, node: int, offered: list[Task], victims: list[Task], verdict: Victims) -> None:
        trace = self.framework.trace
        if trace is not None:
            trace.searched(task, self.job, victims, verdict, node, lambda: self.exemptions_on(task, node, offered))

    def _evict_until_fit(self, statement: Statement, task: Task, node: int, going: list[Task]) -> list[Task] | None:
        """Evict ``going`` one by one until the task fits, then spare victims that are not needed.

        Return None, with nothing changed, if all of them do not suffice.
        """
        save_point = statement.save()
        for count, victim in enumerate(going, 1):
            statement.evict(victim, self.why)
            if self.fits(task, node):
                return self._spare(statement, save_point, task, node, going[:count])
        statement.undo(save_point)
        return None

    def _spare(self, statement: Statement, save_point: int, task: Task, node: int, chosen: list[Task]) -> list[Task]:
        """Undo evictions that the task does not need, the last in eviction order first."""
        for victim in reversed(chosen[:-1]):
            room = self.session.nodes.usage.future_idle_of(node) - victim.request
            if (room < task.floor).any():
                continue
            rest = [other for other in chosen if other is not victim]
            self._evict_exactly(statement, save_point, rest)
            if self.fits(task, node):
                chosen = rest
            else:
                self._evict_exactly(statement, save_point, chosen)
        return chosen

    def _evict_exactly(self, statement: Statement, save_point: int, victims: list[Task]) -> None:
        statement.undo(save_point)
        for victim in victims:
            statement.evict(victim, self.why)

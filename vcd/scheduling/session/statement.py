"""Trial changes to a session, made all or none.

Every operation carries its reverse, so a statement can be taken back whole, or to a save point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from vcd.model import events as ev
from vcd.model.reasons import Reason
from vcd.model.status import TaskStatus
from vcd.scheduling.session.nodes import Nodes
from vcd.scheduling.session.views import Job, Task
from vcd.state.content import TaskColumns

_PENDING, _ALLOCATED, _PIPELINED = int(TaskStatus.PENDING), int(TaskStatus.ALLOCATED), int(TaskStatus.PIPELINED)
_RELEASING, _BINDING = int(TaskStatus.RELEASING), int(TaskStatus.BINDING)
_LEAVES = {"bind": _BINDING, "pipeline": _PIPELINED}
"""The status of tasks of which an operation leaves the session; an eviction always does."""


class Hooks(msgspec.Struct, frozen=True):
    """Whom a statement tells of a task and its node's row: ``allocated`` gives those who refuse, each with its name,
    which takes the placement back; of several alike tasks at once nobody refuses one; an eviction is a
    ``deallocated``, taken back it is an ``allocated``. The others say what is done together with a bind."""

    allocated: Callable[[Task, int], Sequence[tuple[str, Reason]]] = lambda task, node: ()
    deallocated: Callable[[Task, int], None] = lambda task, node: None
    volumes: Callable[[Task, int], tuple[ev.VolumeChoice, ...]] = lambda task, node: ()
    annotations: Callable[[Task, int], dict[str, str]] = lambda task, node: {}
    allocated_together: Callable[[list[Task], list[int]], None] = lambda tasks, nodes: None


class _Done(msgspec.Struct, eq=False):
    """One operation, with what its reverse needs."""

    verb: ev.Verb
    task: Task
    node: int
    status_before: int
    node_before: int
    reason: str
    volumes: tuple[ev.VolumeChoice, ...] = ()
    annotations: dict[str, str] | None = None


Withdrawn = list[tuple[int, _Done]]
"""Placements that were taken back, and their positions in the statement."""


class Trial:
    """What statements change, and nobody else.

    ``changes`` counts placements, evictions and their reverses, so that who keeps something can tell whether it still
    holds; ``placements`` what is placed, and ``staying`` what of it stays pipelined; ``decisions`` how often something
    was decided that stays: a statement was committed, left pipelined or taken back after that, a group admitted.
    ``statements`` are committed; ``pipelined`` those, by job, that are neither committed nor taken back. ``hooks``
    takes part in what they do.
    """

    def __init__(self, nodes: Nodes, tasks: TaskColumns) -> None:
        self.nodes = nodes
        self.tasks = tasks
        self.hooks = Hooks()
        self.changes = 0
        self.placements = self.staying = 0
        self.decisions = 0
        self.statements: list[Statement] = []
        self.pipelined: dict[int, list[Statement]] = {}

    def release(self) -> None:
        """Let go of the statements, which refer to each other and to tasks, and of the plugins, which have the session:
        else only the garbage collector frees it, which does not know how large its columns are."""
        self.pipelined.clear()
        self.statements.clear()
        self.hooks = Hooks()


class Statement:
    """Operations on behalf of one job. Each takes effect in the session at once; nothing leaves it before commit."""

    def __init__(self, trial: Trial, action: str, job: Job) -> None:
        self._trial = trial
        self.action = action
        self.job = job
        self._done: list[_Done] = []
        self._stays_pipelined = False

    def __len__(self) -> int:
        return len(self._done)

    # --- operations -------------------------------------------------------------------------------------------------

    def allocate(self, task: Task, node: int) -> bool:
        """Give a pending task room on a node that has it now; False where a plugin refused it when it was told."""
        return self._place("bind", task, node, _ALLOCATED)

    def allocate_together(self, tasks: list[Task], nodes: list[int]) -> None:
        """``allocate`` each of several alike tasks of the job, pending, on the node at its place."""
        trial, first = self._trial, tasks[0]
        self._done.extend(
            [_Done("bind", task, node, _PENDING, task.node, "") for task, node in zip(tasks, nodes, strict=True)]
        )
        trial.nodes.change_together(nodes, first.deltas.allocate, first.shape)
        self.job.moved(tasks, _ALLOCATED)
        for task, node in zip(tasks, nodes, strict=True):
            task.node = node
        trial.changes += len(tasks)
        self._count(len(tasks))
        trial.hooks.allocated_together(tasks, nodes)

    def pipeline(self, task: Task, node: int) -> bool:
        """Let a pending task wait for room that is being freed on a node; False where a plugin refused it."""
        return self._place("pipeline", task, node, _PIPELINED)

    def place_again(self, task: Task, node: int, status: int) -> None:
        """Undo that a task's placement was taken back. Who let it in is told, and not asked once more."""
        self._place("bind" if status == _ALLOCATED else "pipeline", task, node, status, asks=False)

    def _place(self, verb: ev.Verb, task: Task, node: int, status: int, *, asks: bool = True) -> bool:
        self._done.append(_Done(verb, task, node, task.status, task.node, ""))
        trial = self._trial
        if status == _ALLOCATED:
            trial.nodes.change(node, task.deltas.allocate, task.shape, 1)
        else:
            trial.nodes.change(node, task.deltas.pipeline, None, 1)
        task.job.moved((task,), status)
        task.node = node
        trial.changes += 1
        self._count(1)
        refused = trial.hooks.allocated(task, node)
        if not asks:
            return True
        for name, refusal in refused:
            task.job.note("predicate", name, refusal, task=task)
        if refused:
            self.undo(len(self._done) - 1)
        return not refused

    def evict(self, task: Task, reason: str) -> None:
        """Let a placed task go; its room counts as releasing from now on."""
        self._done.append(_Done("evict", task, task.node, task.status, task.node, reason))
        trial = self._trial
        trial.nodes.change(task.node, task.deltas.evict, None, 1)
        task.job.moved((task,), _RELEASING)
        trial.changes += 1
        trial.hooks.deallocated(task, task.node)

    def exchange(self, tasks: list[Task], victims: list[Task], node: int, reason: str) -> None:
        """``evict`` each of several tasks of a node, and ``pipeline`` the one of several alike tasks there that has its
        place."""
        trial, count = self._trial, len(tasks)
        change = tasks[0].deltas.pipeline * count
        for task, victim in zip(tasks, victims, strict=True):
            self._done.append(_Done("evict", victim, node, victim.status, node, reason))
            self._done.append(_Done("pipeline", task, node, _PENDING, task.node, ""))
            change += victim.deltas.evict
            victim.job.moved((victim,), _RELEASING)
            task.node = node
        self.job.moved(tasks, _PIPELINED)
        trial.nodes.change(node, change, None, 1)
        trial.changes += 2 * count
        self._count(count)
        for victim in victims:
            trial.hooks.deallocated(victim, node)
        trial.hooks.allocated_together(tasks, [node] * count)

    # --- reverse ----------------------------------------------------------------------------------------------------

    def save(self) -> int:
        """A save point: what ``undo`` can go back to."""
        return len(self._done)

    def undo(self, save_point: int = 0) -> None:
        """Take back all that was done since a save point, latest first."""
        while len(self._done) > save_point:
            self._reverse(self._done.pop())

    def discard(self) -> None:
        """Take back everything."""
        self.undo(0)

    def _reverse(self, done: _Done) -> None:
        trial, task = self._trial, done.task
        trial.changes += 1
        if done.verb == "evict":
            trial.nodes.change(done.node, task.deltas.evict, None, -1)
            task.job.moved((task,), done.status_before)
            trial.hooks.allocated(task, done.node)
            return
        if done.verb == "bind":
            trial.nodes.change(done.node, task.deltas.allocate, task.shape, -1)
        else:
            trial.nodes.change(done.node, task.deltas.pipeline, None, -1)
        self._count(-1)
        task.job.moved((task,), done.status_before)
        task.node = done.node_before
        trial.hooks.deallocated(task, done.node)

    def evicted(self) -> list[Task]:
        """Tasks that go."""
        return [done.task for done in self._done if done.verb == "evict"]

    # --- waiting ----------------------------------------------------------------------------------------------------

    def pipelined(self) -> list[Task]:
        """Tasks that it lets wait for room."""
        return [done.task for done in self._done if done.verb == "pipeline"]

    def unpipeline(self, task: Task) -> int:
        """Take back one task's waiting, whatever was done after it; the position that it had."""
        self._trial.decisions += 1
        position = next(i for i, done in enumerate(self._done) if done.verb == "pipeline" and done.task is task)
        self._reverse(self._done.pop(position))
        return position

    def pipeline_again(self, task: Task, node: int, position: int) -> None:
        """Undo an ``unpipeline``."""
        self.place_again(task, node, _PIPELINED)
        self._done.insert(position, self._done.pop())

    def withdraw(self) -> Withdrawn:
        """Take back all placements that are not committed as binds, latest first; return what ``restore`` needs."""
        withdrawn = [
            (position, done)
            for position, done in enumerate(self._done)
            if done.verb != "evict" and done.task.status in (_ALLOCATED, _PIPELINED)
        ]
        for position, done in reversed(withdrawn):
            del self._done[position]
            self._reverse(done)
        return withdrawn

    def restore(self, withdrawn: Withdrawn) -> None:
        """Undo a ``withdraw``, or make its first placements again, one after the other."""
        for position, done in withdrawn:
            self.place_again(done.task, done.node, _ALLOCATED if done.verb == "bind" else _PIPELINED)
            self._done.insert(position, self._done.pop())

    # --- ends -------------------------------------------------------------------------------------------------------

    def _count(self, placements: int) -> None:
        self._trial.placements += placements
        if self._stays_pipelined:
            self._trial.staying += placements

    def _stay(self, stays: bool) -> None:
        if stays is not self._stays_pipelined:
            self._stays_pipelined = stays
            placements = sum(done.verb != "evict" for done in self._done)
            self._trial.staying += placements if stays else -placements

    def commit(self) -> None:
        """Make it part of the decision: allocated tasks will be bound, evicted ones evicted."""
        self._stay(False)
        if not self._done:
            return
        self._trial.decisions += 1
        hooks = self._trial.hooks
        bound = [done for done in self._done if done.verb == "bind" and done.task.status == _ALLOCATED]
        if bound:
            self.job.moved([done.task for done in bound], _BINDING)
        for done in bound:
            if done.task.shape.spec.volumes:
                done.volumes = hooks.volumes(done.task, done.node)
            done.annotations = hooks.annotations(done.task, done.node)
        self._trial.statements.append(self)

    def stay_pipelined(self) -> None:
        """Neither commit nor discard: tasks hold their room in this session, waiting for more (pipelined jobs)."""
        self._stay(True)
        self._trial.decisions += 1
        self._trial.pipelined.setdefault(self.job.index, []).append(self)

    def operations(self) -> tuple[ev.Operation, ...]:
        """What of it leaves the session: binds of binding tasks, evictions, and who waits where."""
        leaving = [done for done in self._done if done.task.status == _LEAVES.get(done.verb, done.task.status)]
        names, uids = self._trial.nodes.facts.names, self._trial.tasks.uids_of([done.task.row for done in leaving])
        return tuple(
            [
                ev.Operation(
                    done.verb, done.task.key, uid, names[done.node], done.reason, done.volumes, done.annotations or {}
                )
                for done, uid in zip(leaving, uids, strict=True)
            ]
        )

"""Statements: trial changes to a session that are committed or discarded together.

Every operation records what its reversal needs, so a statement can be undone completely, or to a save point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from vcd.model import events as ev
from vcd.model.reasons import Reason
from vcd.model.status import TaskStatus
from vcd.scheduling.session.nodes import Nodes
from vcd.scheduling.session.views import Job, Task
from vcd.state.snapshot_content import TaskColumns

_PENDING, _ALLOCATED, _PIPELINED = int(TaskStatus.PENDING), int(TaskStatus.ALLOCATED), int(TaskStatus.PIPELINED)
_RELEASING, _BINDING = int(TaskStatus.RELEASING), int(TaskStatus.BINDING)
_PLANNED_STATUS = {"bind": _BINDING, "pipeline": _PIPELINED}
"""The status of a task for which an operation becomes part of the plan; evictions always do."""


class Hooks(msgspec.Struct, frozen=True):
    """Callbacks to plugins for tasks and the rows of their nodes.

    ``allocated`` is called after equivalent tasks were placed, and returns the plugins that refuse it, with reasons;
    the placement is then undone. An eviction calls ``deallocated``, and its reversal ``allocated``. ``volumes`` and
    ``annotations`` return what is written with a bind.
    """

    allocated: Callable[[list[Task], list[int]], Sequence[tuple[str, Reason]]] = lambda tasks, nodes: ()
    deallocated: Callable[[list[Task], list[int]], None] = lambda tasks, nodes: None
    volumes: Callable[[Task, int], tuple[ev.VolumeChoice, ...]] = lambda task, node: ()
    annotations: Callable[[Task, int], dict[str, str]] = lambda task, node: {}


class _Operation(msgspec.Struct, eq=False):
    """One operation, with what its reversal needs."""

    verb: ev.Verb
    task: Task
    node: int
    status_before: int
    node_before: int
    reason: str
    volumes: tuple[ev.VolumeChoice, ...] = ()
    annotations: dict[str, str] | None = None


Withdrawn = list[tuple[int, _Operation]]
"""Undone placements, and their positions in the statement."""


class Trial:
    """The changes of a session by statements.

    ``changes`` counts placements, evictions and their reversals, so that caches can detect changes. ``placements``
    counts current placements, and ``staying`` those that stay pipelined. ``decisions`` counts lasting decisions:
    statements that were committed, left pipelined, or reversed after that, and admissions of groups. ``statements`` are
    committed; ``pipelined`` has, by job, statements that stay pipelined. ``hooks`` are called for every operation.
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
        """Drop the statements, which refer to each other and to tasks, and the hooks, which refer to the session.

        Otherwise only the garbage collector would free the session, and the collector ignores the size of columns.
        """
        self.pipelined.clear()
        self.statements.clear()
        self.hooks = Hooks()


class Statement:
    """Operations on behalf of one job. Each takes effect in the session at once, and enters the plan by ``commit``."""

    def __init__(self, trial: Trial, action: str, job: Job) -> None:
        self._trial = trial
        self.action = action
        self.job = job
        self._operations: list[_Operation] = []
        self._stays_pipelined = False

    def __len__(self) -> int:
        return len(self._operations)

    # --- operations -------------------------------------------------------------------------------------------------

    def allocate(self, tasks: list[Task], nodes: list[int]) -> bool:
        """Allocate equivalent pending tasks, each on the node at its position, which has enough idle resources. Return
        False if a plugin refused and it was undone; only for a single task this is noted."""
        return self._place("bind", tasks, nodes, _ALLOCATED)

    def pipeline(self, tasks: list[Task], nodes: list[int]) -> bool:
        """Pipeline equivalent pending tasks, to wait for resources being freed. The result is as of ``allocate``."""
        return self._place("pipeline", tasks, nodes, _PIPELINED)

    def place_again(self, task: Task, node: int, status: int) -> None:
        """Repeat a placement that was undone. Plugins are notified, but cannot refuse."""
        self._place("bind" if status == _ALLOCATED else "pipeline", [task], [node], status, may_refuse=False)

    def _place(
        self, verb: ev.Verb, tasks: list[Task], nodes: list[int], status: int, *, may_refuse: bool = True
    ) -> bool:
        trial, first, save_point = self._trial, tasks[0], len(self._operations)
        self._operations += [
            _Operation(verb, task, node, task.status, task.node, "") for task, node in zip(tasks, nodes, strict=True)
        ]
        if status == _ALLOCATED:
            trial.nodes.change(nodes, first.deltas.allocate, first.shape, 1)
        else:
            trial.nodes.change(nodes, first.deltas.pipeline, None, 1)
        first.job.moved(tasks, status)
        for task, node in zip(tasks, nodes, strict=True):
            task.node = node
        trial.changes += len(tasks)
        self._count(len(tasks))
        refusals = trial.hooks.allocated(tasks, nodes)
        if not (refusals and may_refuse):
            return True
        if len(tasks) == 1:
            for name, refusal in refusals:
                first.job.note("predicate", name, refusal, task=first)
        self.undo(save_point)
        return False

    def evict(self, task: Task, reason: str) -> None:
        """Evict a placed task. Its resources count as releasing from now on."""
        self._operations.append(_Operation("evict", task, task.node, task.status, task.node, reason))
        trial = self._trial
        trial.nodes.change([task.node], task.deltas.evict, None, 1)
        task.job.moved([task], _RELEASING)
        trial.changes += 1
        trial.hooks.deallocated([task], [task.node])

    # --- reverse ----------------------------------------------------------------------------------------------------

    def save(self) -> int:
        """Return a save point for ``undo``."""
        return len(self._operations)

    def undo(self, save_point: int = 0) -> None:
        """Reverse everything since a save point, latest first."""
        while len(self._operations) > save_point:
            self._reverse(self._operations.pop())

    def discard(self) -> None:
        """Reverse everything."""
        self.undo(0)

    def _reverse(self, operation: _Operation) -> None:
        trial, task, nodes = self._trial, operation.task, [operation.node]
        trial.changes += 1
        if operation.verb == "evict":
            trial.nodes.change(nodes, task.deltas.evict, None, -1)
            task.job.moved([task], operation.status_before)
            trial.hooks.allocated([task], nodes)
            return
        if operation.verb == "bind":
            trial.nodes.change(nodes, task.deltas.allocate, task.shape, -1)
        else:
            trial.nodes.change(nodes, task.deltas.pipeline, None, -1)
        self._count(-1)
        task.job.moved([task], operation.status_before)
        task.node = operation.node_before
        trial.hooks.deallocated([task], nodes)

    def placements(self, save_point: int) -> list[tuple[Task, int, int]]:
        """Return the tasks placed since a save point, each with its node and status, for ``place_again``."""
        placed = [operation.task for operation in self._operations[save_point:] if operation.verb != "evict"]
        return [(task, task.node, task.status) for task in placed]

    def evicted(self) -> list[Task]:
        """Return the victims."""
        return [operation.task for operation in self._operations if operation.verb == "evict"]

    # --- pipelined tasks --------------------------------------------------------------------------------------------

    def pipelined(self) -> list[Task]:
        """Return the tasks that it pipelined."""
        return [operation.task for operation in self._operations if operation.verb == "pipeline"]

    def unpipeline(self, task: Task) -> int:
        """Reverse the pipelining of one task, even if it was not the last operation. Return its position."""
        self._trial.decisions += 1
        position = next(
            i for i, operation in enumerate(self._operations) if operation.verb == "pipeline" and operation.task is task
        )
        self._reverse(self._operations.pop(position))
        return position

    def pipeline_again(self, task: Task, node: int, position: int) -> None:
        """Reverse an ``unpipeline``."""
        self.place_again(task, node, _PIPELINED)
        self._operations.insert(position, self._operations.pop())

    def withdraw(self) -> Withdrawn:
        """Reverse all placements that are not committed, latest first. Return what ``restore`` needs."""
        withdrawn = [
            (position, operation)
            for position, operation in enumerate(self._operations)
            if operation.verb != "evict" and operation.task.status in (_ALLOCATED, _PIPELINED)
        ]
        for position, operation in reversed(withdrawn):
            del self._operations[position]
            self._reverse(operation)
        return withdrawn

    def restore(self, withdrawn: Withdrawn) -> None:
        """Repeat placements that ``withdraw`` reversed, all or the first of them, in order."""
        for position, operation in withdrawn:
            self.place_again(operation.task, operation.node, _ALLOCATED if operation.verb == "bind" else _PIPELINED)
            self._operations.insert(position, self._operations.pop())

    # --- ends -------------------------------------------------------------------------------------------------------

    def _count(self, placements: int) -> None:
        self._trial.placements += placements
        if self._stays_pipelined:
            self._trial.staying += placements

    def _set_stays_pipelined(self, stays: bool) -> None:
        if stays is not self._stays_pipelined:
            self._stays_pipelined = stays
            placements = sum(operation.verb != "evict" for operation in self._operations)
            self._trial.staying += placements if stays else -placements

    def commit(self) -> None:
        """Make the statement part of the plan: allocated tasks will be bound, victims evicted."""
        self._set_stays_pipelined(False)
        if not self._operations:
            return
        self._trial.decisions += 1
        hooks = self._trial.hooks
        bound = [
            operation
            for operation in self._operations
            if operation.verb == "bind" and operation.task.status == _ALLOCATED
        ]
        if bound:
            self.job.moved([operation.task for operation in bound], _BINDING)
        for operation in bound:
            if operation.task.shape.spec.volumes:
                operation.volumes = hooks.volumes(operation.task, operation.node)
            operation.annotations = hooks.annotations(operation.task, operation.node)
        self._trial.statements.append(self)

    def stay_pipelined(self) -> None:
        """Neither commit nor discard: tasks retain their resources in this session, while the job waits for more."""
        self._set_stays_pipelined(True)
        self._trial.decisions += 1
        self._trial.pipelined.setdefault(self.job.index, []).append(self)

    def operations(self) -> tuple[ev.Operation, ...]:
        """Return the operations for the plan: binds, evictions, and pipelined placements."""
        planned = [
            operation
            for operation in self._operations
            if operation.task.status == _PLANNED_STATUS.get(operation.verb, operation.task.status)
        ]
        names, uids = (
            self._trial.nodes.facts.names,
            self._trial.tasks.uids_of([operation.task.row for operation in planned]),
        )
        return tuple(
            [
                ev.Operation(
                    operation.verb,
                    operation.task.key,
                    uid,
                    names[operation.node],
                    operation.reason,
                    operation.volumes,
                    operation.annotations or {},
                )
                for operation, uid in zip(planned, uids, strict=True)
            ]
        )

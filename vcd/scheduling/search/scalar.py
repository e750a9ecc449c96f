"""Predicates and scores written for one node at a time, for third-party plugins that are to be short.

The framework calls for whole columns (`vcd.scheduling.framework.plugin.Predicate`). The bases here fill a column by one
Python call per node, which is noticeable in clusters of about ten thousand nodes and more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from vcd.model.objects import PodSpec
from vcd.model.reasons import Reason
from vcd.scheduling.search.parts import Depends, Mask, Predicate, Score, Scores
from vcd.scheduling.session.nodes import Usage
from vcd.scheduling.session.nodeview import NodeView
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task

T = TypeVar("T", bound=np.generic)

_MOVING = Depends.PODS | Depends.JOB | Depends.QUEUE | Depends.TIME
"""What is computed for all nodes again after each placement, or at least once a session."""
_CHANGING = Depends.USAGE | Depends.PODS | Depends.JOB | Depends.QUEUE
"""What a placement changes."""


class UndeclaredError(AttributeError):
    """A predicate or score read something that its ``depends`` does not declare."""

    def __init__(self, reader: str, what: str, needed: Depends) -> None:
        flags = " or ".join(f"Depends.{flag.name}" for flag in needed)
        super().__init__(f"{reader} reads {what}: declare it, depends = {flags} (several are joined by |)")


class TaskView:
    """The part of a task that equivalent tasks share: the predicate or score is called once for all of them.

    Pods are equivalent that have the same spec; with PODS, JOB, QUEUE or TIME also the same namespace; with PODS also
    the same labels; with JOB the same job; and with ``kind_of`` the same ``kind``. To decide by anything else, such as
    the pod's name, use the point ``pre_predicate``, which is called for each pod.
    """

    __slots__ = ("_declared", "_reader", "_session", "_task", "kind")

    def __init__(self, session: Session, task: Task, reader: str, declared: Depends, kind: Hashable = None) -> None:
        self._session = session
        self._task = task
        self._reader = reader
        self._declared = declared
        self.kind = kind
        """The result of ``kind_of`` of the predicate or score."""

    def _needs(self, what: str, needed: Depends) -> None:
        if not self._declared & needed:
            raise UndeclaredError(self._reader, what, needed)

    @property
    def spec(self) -> PodSpec:
        return self._task.shape.spec

    @property
    def request(self) -> dict[str, int]:
        """Its request, as integers by resource name, in the units of `NodeView`."""
        return dict(zip(self._session.nodes.resources, self._task.amounts, strict=True))

    @property
    def best_effort(self) -> bool:
        """Whether it requests nothing."""
        return bool(self._task.best_effort)

    @property
    def namespace(self) -> str:
        self._needs("task.namespace", _MOVING)
        return self._task.namespace

    @property
    def labels(self) -> Mapping[str, str]:
        self._needs("task.labels", Depends.PODS)
        return self._task.pod.metadata.labels

    @property
    def job(self) -> Job:
        """Its job; ``job.queue.name`` names the queue."""
        self._needs("task.job", Depends.JOB)
        return self._task.job


class DeclaredNode(NodeView):
    """A node that exposes only what was declared."""

    __slots__ = ("_declared", "_reader")

    def __init__(self, session: Session, row: int, usage: Usage, column: int, reader: str, declared: Depends) -> None:
        super().__init__(session, row, usage, column)
        self._reader = reader
        self._declared = declared

    def _needs(self, what: str, needed: Depends) -> None:
        if not self._declared & needed:
            raise UndeclaredError(self._reader, what, needed)

    @property
    def used(self) -> dict[str, int]:
        self._needs("node.used", _CHANGING)
        return super().used

    @property
    def idle(self) -> dict[str, int]:
        self._needs("node.idle", _CHANGING)
        return super().idle

    @property
    def releasing(self) -> dict[str, int]:
        self._needs("node.releasing", _CHANGING)
        return super().releasing

    @property
    def pods(self) -> int:
        self._needs("node.pods", _CHANGING)
        return super().pods

    @property
    def tasks(self) -> list[Task]:
        self._needs("node.tasks", Depends.PODS)
        return super().tasks


class _NodeCaller:
    """Calls a function for each node, and caches the results that no placement of the session changes."""

    def __init__(self, session: Session, reader: str, declared: Depends, kind_of: Callable[[Task], Hashable]) -> None:
        self._session = session
        self._reader = reader
        self._declared = declared
        self._kind_of = kind_of
        self._cached: dict[Hashable, npt.NDArray[np.generic]] = {}

    @property
    def depends(self) -> Depends:
        """What the framework needs to know. A part recomputed after each placement sees current usage anyway."""
        return self._declared & ~Depends.USAGE if self._declared & _MOVING else self._declared

    def column(
        self, task: Task, usage: Usage, dtype: type[T], call: Callable[[TaskView, NodeView], object]
    ) -> npt.NDArray[T]:
        """Return the results for the rows of ``usage``."""
        rows = range(len(usage)) if usage.rows is None else usage.rows.tolist()
        if self._declared & _CHANGING:
            return self._compute(task, usage, rows, dtype, call)
        key = (task.shape, task.namespace, self._kind_of(task))
        found = self._cached.get(key)
        if found is None:
            whole = self._session.nodes.usage
            found = self._cached[key] = self._compute(task, whole, range(len(whole)), dtype, call)
        result: npt.NDArray[T] = (found if usage.rows is None else found[usage.rows]).astype(dtype)
        return result

    def _compute(
        self, task: Task, usage: Usage, rows: range | list[int], dtype: type[T], call: Callable[..., object]
    ) -> npt.NDArray[T]:
        view = self.task(task)
        answers = [call(view, self.node(row, usage, column)) for column, row in enumerate(rows)]
        return np.array(answers, dtype)

    def task(self, task: Task) -> TaskView:
        return TaskView(self._session, task, self._reader, self._declared, self._kind_of(task))

    def node(self, row: int, usage: Usage, column: int) -> NodeView:
        return DeclaredNode(self._session, row, usage, column, self._reader, self._declared)


class ScalarPredicate(Predicate):
    """A predicate of one node. A subclass sets ``name``, ``reason``, ``depends``, and defines ``passes``."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._caller = _NodeCaller(session, f"predicate {self.name}", type(self).depends, self.kind_of)
        vars(self)["depends"] = self._caller.depends

    def passes(self, task: TaskView, node: NodeView) -> bool | Reason:
        """Return whether the node takes the task; a Reason means no."""
        raise NotImplementedError

    def mask(self, task: Task, usage: Usage) -> Mask:
        """Return `passes` over the rows of ``usage``."""
        return self._caller.column(task, usage, np.bool_, self._passes)

    def reasons(self, task: Task, usage: Usage, failed: Mask) -> Mapping[Reason, int]:
        """Return the reasons of `passes` for the failed nodes, or ``reason`` where it returns False."""
        view = self._caller.task(task)
        counts: Counter[Reason] = Counter()
        for column in np.flatnonzero(failed).tolist():
            row = column if usage.rows is None else int(usage.rows[column])
            answer = self.passes(view, self._caller.node(row, usage, column))
            counts[answer if isinstance(answer, Reason) else self.reason] += 1
        return counts

    def _passes(self, task: TaskView, node: NodeView) -> bool:
        answer = self.passes(task, node)
        if not isinstance(answer, bool | np.bool_ | Reason):
            raise TypeError(f"predicate {self.name} answers {answer!r} for {node.name}: neither a bool nor a Reason")
        return not isinstance(answer, Reason) and bool(answer)


class ScalarScore(Score):
    """A rating of one node. A subclass sets ``name`` and ``depends``, and defines ``points``.

    ``normalised`` scores also define ``normalise``, which sees all nodes.
    """

    def __init__(self, session: Session, weight: float = 1) -> None:
        super().__init__(weight)
        self.session = session
        self._caller = _NodeCaller(session, f"score {self.name}", type(self).depends, self.kind_of)
        vars(self)["depends"] = self._caller.depends

    def points(self, task: TaskView, node: NodeView) -> float:
        """Return the node's points for the task, more is better; 0 to 100 is the range of most other scores."""
        raise NotImplementedError

    def raw(self, task: Task, usage: Usage) -> Scores:
        """Return `points` over the rows of ``usage``."""
        return self._caller.column(task, usage, np.float64, self.points)

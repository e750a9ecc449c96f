"""Predicates and scores written for one node at a time, for third-party plugins that are to be short.

The framework calls for whole columns (`vcd.scheduling.search.parts`). The bases here fill a column by one Python call
per node, which is noticeable in clusters of about ten thousand nodes and more. They pass views of task and node that
raise if something is read that ``reads`` and ``keys`` do not declare, so their declarations are complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from vcd.model.objects import Node, PodSpec
from vcd.model.reasons import Reason
from vcd.scheduling.search.parts import (
    ANY_KEY,
    ANY_LABEL,
    MOVING,
    Mask,
    Reads,
    Scores,
    VectorPredicate,
    VectorScore,
    key_values,
    pod_keys,
)
from vcd.scheduling.session.nodes import Usage
from vcd.scheduling.session.nodeview import NodeView
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task

T = TypeVar("T", bound=np.generic)

_FACTS = Reads.FACTS | MOVING
_CHANGING = Reads.USAGE | Reads.PODS | Reads.JOB | Reads.QUEUE
"""What a placement changes."""


class UndeclaredError(AttributeError):
    """A predicate or score read something that it does not declare."""

    def __init__(self, reader: str, what: str, needed: Reads | str) -> None:
        if isinstance(needed, str):
            declaration = f"keys = ({needed!r},)"
        else:
            flags = " or ".join(f"Reads.{flag.name}" for flag in needed)
            declaration = f"reads = {flags} (several are joined by |)"
        super().__init__(f"{reader} reads {what}: declare it, {declaration}")


class _Declared:
    """What a predicate or score declares, and a session."""

    __slots__ = ("keys", "name", "reads", "session")

    def __init__(self, session: Session, name: str, part: VectorPredicate | VectorScore) -> None:
        self.session = session
        self.name = name
        self.reads = part.reads
        self.keys = frozenset(pod_keys(part))

    def require(self, what: str, needed: Reads) -> None:
        """Raise UndeclaredError if none of some flags is declared."""
        if not self.reads & needed:
            raise UndeclaredError(self.name, what, needed)


class _DeclaredTexts(Mapping[str, str]):
    """The annotations or labels of a pod or group that are declared."""

    def __init__(self, declared: _Declared, what: str, texts: Mapping[str, str], owner: str = "pod") -> None:
        self._declared, self._what, self._texts, self._owner = declared, what, texts, owner

    def __getitem__(self, key: str) -> str:
        if key not in self._declared.keys and ANY_KEY not in self._declared.keys:
            raise UndeclaredError(self._declared.name, f"the {self._what} {key} of the {self._owner}", key)
        return self._texts[key]

    def __contains__(self, key: object) -> bool:
        return self.get(str(key)) is not None

    def __iter__(self) -> Iterator[str]:
        if ANY_KEY in self._declared.keys:
            return iter(self._texts)
        return iter([key for key in self._texts if key in self._declared.keys])

    def __len__(self) -> int:
        return sum(1 for _ in self)


class JobView:
    """The job of a task. It has what a `Job` has, except that of its group's annotations and labels only those are
    visible that are declared: jobs that differ in others are equivalent."""

    __slots__ = ("_declared", "_job")

    def __init__(self, declared: _Declared, job: Job) -> None:
        self._declared = declared
        self._job = job

    @property
    def annotations(self) -> Mapping[str, str]:
        """The annotations of its group among ``keys``."""
        return _DeclaredTexts(self._declared, "annotation", self._job.record.group.metadata.annotations, "group")

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of its group among ``keys``."""
        return _DeclaredTexts(self._declared, "label", self._job.record.group.metadata.labels, "group")

    def __getattr__(self, name: str) -> Any:
        if name == "record" and ANY_KEY not in self._declared.keys:
            what = "task.job.record; use task.job.annotations or task.job.labels"
            raise UndeclaredError(self._declared.name, what, ANY_KEY)
        return getattr(self._job, name)


class TaskView:
    """The part of a task that equivalent tasks share: the predicate or score is called once for all of them.

    Pods are equivalent that have the same spec and the same values of the declared ``keys``; with PODS, JOB, QUEUE or
    TIME also the same namespace; with PODS also the same labels; with JOB the same job. To decide by anything else,
    such as the pod's name, use the point ``pre_predicate``, which is called for each pod.
    """

    __slots__ = ("_declared", "_task")

    def __init__(self, declared: _Declared, task: Task) -> None:
        self._declared = declared
        self._task = task

    @property
    def spec(self) -> PodSpec:
        return self._task.shape.spec

    @property
    def request(self) -> dict[str, int]:
        """Its request, as integers by resource name, in the units of `NodeView`."""
        return dict(zip(self._declared.session.nodes.resources, self._task.amounts, strict=True))

    @property
    def best_effort(self) -> bool:
        """Whether it requests nothing."""
        return bool(self._task.best_effort)

    @property
    def namespace(self) -> str:
        self._declared.require("task.namespace", MOVING)
        return self._task.namespace

    @property
    def annotations(self) -> Mapping[str, str]:
        """Its annotations among ``keys``."""
        return _DeclaredTexts(self._declared, "annotation", self._task.pod.metadata.annotations)

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels: with PODS all of them, otherwise those among ``keys``."""
        labels = self._task.pod.metadata.labels
        if self._declared.reads & Reads.PODS or ANY_LABEL in self._declared.keys:
            return labels
        return _DeclaredTexts(self._declared, "label", labels)

    @property
    def queue(self) -> str:
        """The name of its queue."""
        self._declared.require("task.queue", Reads.QUEUE | Reads.JOB)
        return self._task.job.queue.name

    @property
    def job(self) -> JobView:
        self._declared.require("task.job", Reads.JOB)
        return JobView(self._declared, self._task.job)


class DeclaredNode(NodeView):
    """A node that exposes only what was declared."""

    __slots__ = ("_declared",)

    def __init__(self, declared: _Declared, row: int, usage: Usage, column: int) -> None:
        super().__init__(declared.session, row, usage, column)
        self._declared = declared

    @property
    def name(self) -> str:
        self._declared.require("node.name", _FACTS)
        return super().name

    @property
    def node(self) -> Node:
        self._declared.require("node.labels, node.annotations or node.node", _FACTS)
        return super().node

    @property
    def used(self) -> dict[str, int]:
        self._declared.require("node.used", _CHANGING)
        return super().used

    @property
    def idle(self) -> dict[str, int]:
        self._declared.require("node.idle", _CHANGING)
        return super().idle

    @property
    def releasing(self) -> dict[str, int]:
        self._declared.require("node.releasing", _CHANGING)
        return super().releasing

    @property
    def pods(self) -> int:
        self._declared.require("node.pods", _CHANGING)
        return super().pods

    @property
    def tasks(self) -> list[Task]:
        self._declared.require("node.tasks", Reads.PODS)
        return super().tasks


class _NodeCaller:
    """Calls a function for each node, and caches the results that no placement of the session changes."""

    def __init__(self, session: Session, part: VectorPredicate | VectorScore, label: str) -> None:
        if not isinstance(part.reads, Reads):
            raise TypeError(f"{type(part).__name__}.reads: must be Reads, such as Reads.USAGE, not {part.reads!r}")
        if part.reads & Reads.PODS:
            part.keys = (*part.keys, ANY_LABEL)
        if _overrides_applies(part):
            part.keys = (ANY_KEY,)
        self._part = part
        self._declared = _Declared(session, f"{label} {part.name}", part)
        self._cached: dict[Hashable, npt.NDArray[np.generic]] = {}

    def column(
        self, task: Task, usage: Usage, dtype: type[T], call: Callable[[TaskView, NodeView], object]
    ) -> npt.NDArray[T]:
        """Return the results for the rows of ``usage``."""
        rows = range(len(usage)) if usage.rows is None else usage.rows.tolist()
        if self._declared.reads & _CHANGING:
            return self._compute(task, usage, rows, dtype, call)
        key = (task.shape, task.namespace, key_values(self._part, task))
        found = self._cached.get(key)
        if found is None:
            whole = self._declared.session.nodes.usage
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
        return TaskView(self._declared, task)

    def node(self, row: int, usage: Usage, column: int) -> NodeView:
        return DeclaredNode(self._declared, row, usage, column)


def _overrides_applies(part: VectorPredicate | VectorScore) -> bool:
    """Whether a part decides by the whole task whether it applies, and declares no keys."""
    return type(part).applies is not VectorPredicate.applies and type(part).keys is ScalarPredicate.keys


class ScalarPredicate(VectorPredicate):
    """A predicate of one node. A subclass sets ``name``, ``reason``, ``reads``, ``keys``, and defines ``passes``."""

    reads = Reads.FACTS
    keys = ()

    def __init__(self, session: Session) -> None:
        self.session = session
        self._caller = _NodeCaller(session, self, "predicate")

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


class ScalarScore(VectorScore):
    """A rating of one node. A subclass sets ``name``, ``reads`` and ``keys``, and defines ``points``.

    It may define ``normalise``, which sees all nodes.
    """

    reads = Reads.FACTS
    keys = ()

    def __init__(self, session: Session, weight: float = 1) -> None:
        super().__init__(weight)
        self.session = session
        self._caller = _NodeCaller(session, self, "score")

    def points(self, task: TaskView, node: NodeView) -> float:
        """Return the node's points for the task, more is better; 0 to 100 is the range of most other scores."""
        raise NotImplementedError

    def raw(self, task: Task, usage: Usage) -> Scores:
        """Return `points` over the rows of ``usage``."""
        return self._caller.column(task, usage, np.float64, self.points)

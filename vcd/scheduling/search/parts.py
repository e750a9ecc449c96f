"""The base classes of node search: predicates decide whether a node takes a task, scores rate the nodes that do.

Third-party plugins derive from ``VectorPredicate`` and ``VectorScore``, or from their forms for single nodes in
``vcd.scheduling.search.scalar``. Built-in plugins derive from ``Predicate`` and ``Score``, which have more methods.

A part declares what it reads (``reads``, ``keys``). From this alone the framework derives which tasks are equivalent,
what is cached, and what is computed again after a placement (``vcd.scheduling.search.equivalence``). The defaults are
those of a part that reads anything, which is correct and slow.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from vcd.model.reasons import Reason
from vcd.scheduling.session.nodes import Ints, Usage
from vcd.scheduling.session.views import Task

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]
Scores = npt.NDArray[np.float64]


class Reads(enum.Flag):
    """What a predicate or score reads in addition to the task. It is computed again only after such a change."""

    FACTS = enum.auto()
    """Names, labels and taints of nodes, and other objects: nothing that a placement changes."""
    USAGE = enum.auto()
    """Usage and allocatable of the node itself. Without FACTS, nodes with equal values are computed once."""
    PODS = enum.auto()
    """Positions of other pods: affinity, spread, ports."""
    JOB = enum.auto()
    """Positions of the job's own tasks."""
    QUEUE = enum.auto()
    """What queues hold."""
    TIME = enum.auto()
    """The time of the session."""


MOVING = Reads.PODS | Reads.JOB | Reads.QUEUE | Reads.TIME
"""What can change for all nodes after a placement, or from session to session."""
EVERYTHING = Reads.FACTS | Reads.USAGE | MOVING

ANY_KEY = "*"
"""In ``keys``: anything of the pod, its name included. No two pods are equivalent."""
ANY_LABEL = "labels.*"
"""In ``keys``: all labels of the pod."""
VOLUMES = "spec.volumes"
"""In ``keys``: the pod's volumes, with the claims behind them."""
_SPEC = "spec."


class _Part:
    """What predicates and scores have in common."""

    name: ClassVar[str]
    reads: Reads = EVERYTHING
    keys: tuple[str, ...] = (ANY_KEY,)
    """Annotations and labels of the pod that it uses. With FACTS alone also fields of the pod's spec, such as
    ``spec.tolerations``: then pods that differ in others share its result. Without such a field it may use the whole
    spec."""

    def applies(self, task: Task) -> bool:
        """Whether it distinguishes nodes for the task; False spares the computation."""
        return True


class VectorPredicate(_Part):
    """One test of nodes: ``mask`` returns the nodes that pass."""

    reason: ClassVar[Reason]
    """Why nodes fail, unless ``reasons`` is overridden."""

    def mask(self, task: Task, usage: Usage) -> Mask:
        """Return which nodes pass, one bool per row of ``usage``.

        With FACTS alone, ``usage`` covers all nodes. With USAGE, ``usage`` may cover any selection of nodes. The result
        may depend only on what is declared.
        """
        raise NotImplementedError

    def reasons(self, task: Task, usage: Usage, failed: Mask) -> Mapping[Reason, int]:
        """Return reasons with the number of ``failed`` nodes that have each."""
        return {self.reason: int(failed.sum())}


class VectorScore(_Part):
    """One rating of nodes. Its weighted value is a float64 per node; a plugin's scores are added in order."""

    def __init__(self, weight: float = 1) -> None:
        self.weight = weight

    def raw(self, task: Task, usage: Usage) -> Scores:
        """Return the rating, one float64 per row of ``usage``, before normalisation and weight."""
        raise NotImplementedError

    def normalise(self, raw: Scores, feasible: Mask) -> Scores:
        """Make the rating comparable over the feasible nodes, which it may depend on."""
        return raw


class _Searched(_Part):
    """What the framework needs of predicates and scores in addition."""

    owner: str = ""
    """The name of its plugin; set by the framework."""
    kinds: tuple[str, ...] | None = None
    """Kinds of objects that it reads; by default those of its plugin. Cached results are dropped if one changes."""

    def key_of(self, task: Task) -> Hashable:
        """Return the values of ``keys``; with QUEUE also the queue.

        A part overrides this if what it reads of the task is less than that, or not in the pod. If ``keys`` are fields
        of the spec alone, the result is then all that it reads. Results must mean the same in every session: names and
        values, not numbers that a session assigned.
        """
        return key_values(self, task)

    def labels_matter_in(self, namespace: str) -> bool:
        """Whether pods of a namespace that differ in labels alone may get different results. A part overrides this if
        other objects decide."""
        return not {ANY_KEY, ANY_LABEL}.isdisjoint(self.keys)


class Predicate(_Searched, VectorPredicate):
    """A predicate as the framework uses it. The defaults suit any predicate."""

    waits: ClassVar[bool] = False
    """Whether a task may wait on a node that fails.

    If such a predicate is called for all nodes, it fails nodes where the task would have to wait, so that the task is
    not bound there at once. If it is called for selected rows, on which evictions are tried, it passes nodes where the
    task can wait.
    """

    def stable_for(self, task: Task, count: int) -> bool:
        """Whether its result for each node is the same while ``count`` tasks like this are placed anywhere."""
        return False

    def excludes_beside(self, task: Task, others: Iterable[Task]) -> bool:
        """Whether ``others``, which this session evicts, may exclude nodes for the task until they have terminated."""
        return False

    def reachable(self, task: Task, coming: Mask) -> Mask | None:
        """With PODS: return the nodes that can pass after the right evictions, or once the pods in rows ``coming`` are
        placed. None means that any node may pass."""
        return None

    def divisions(self, task: Task, rows: Rows) -> Sequence[Rows]:
        """With PODS: return partitions of the nodes. Each part of a partition takes at most one of the pods in
        ``rows``; these pods have the task's shape. A division is a number per node, -1 for none."""
        return ()

    def known_mask(self, task: Task, usage: Usage) -> Mask:
        """Return the mask without calls to other servers. A node without a known answer passes."""
        return self.mask(task, usage)

    def unresolvable_nodes(self, task: Task, usage: Usage, failed: Mask) -> Mask:
        """Return the ``failed`` nodes on which no eviction would help: all, if it reads only what no eviction
        changes. Not called for predicates of FACTS alone."""
        return np.zeros_like(failed) if self.reads & (EVERYTHING & ~Reads.FACTS & ~Reads.TIME) else failed

    def clauses(self, task: Task, usage: Usage) -> Sequence[tuple[Reason, Mask]]:
        """Return the user-written clauses of the test, each with its reason and the nodes that pass it.

        A node passes the test if it passes every clause. Used for explanations.
        """
        return [(self.reason, self.mask(task, usage))]


class PointsInTurn:
    """The points of a score by groups of nodes, while equivalent tasks are placed one after the other.

    ``of`` is the group of each node, below ``count``. All nodes of a group have the same points.
    """

    of: Rows
    count: int

    def points(self, rated: Ints) -> Scores:
        """Return the points of each group before the weight; ``rated`` is how many nodes of each are feasible now."""
        raise NotImplementedError

    def place(self, group: int) -> None:
        """Count one more task on a node of a group."""
        raise NotImplementedError


class Score(_Searched, VectorScore):
    """A score as the framework uses it. The defaults suit any score."""

    def in_turn(self, task: Task) -> PointsInTurn | None:
        """With PODS or JOB: return the same points while tasks like this are placed in sequence.

        Such tasks are then placed together. None if single nodes of a group may differ.
        """
        return None


# --- what is derived from the declarations ----------------------------------------------------------------------------


def is_fixed(part: _Part) -> bool:
    """Whether no placement changes a part's results: it reads FACTS alone."""
    return not part.reads & ~Reads.FACTS


def is_moving(part: _Part) -> bool:
    """Whether a placement may change a part's results for all nodes."""
    return bool(part.reads & MOVING)


def is_by_usage(part: _Part) -> bool:
    """Whether only the usage of a node changes a part's results for it."""
    return not is_fixed(part) and not is_moving(part)


def compares(score: VectorScore) -> bool:
    """Whether a score compares the feasible nodes with each other."""
    return _function(score.normalise) is not VectorScore.normalise


def has_own_key(part: _Searched) -> bool:
    """Whether a part overrides ``key_of``."""
    return _function(part.key_of) is not _Searched.key_of


def distinguishes_pods(part: _Searched) -> bool:
    """Whether a part may distinguish pods of one spec, namespace and job."""
    if part.keys and not pod_keys(part):
        return False
    return has_own_key(part) or bool(part.keys) or bool(part.reads & Reads.QUEUE)


def pod_keys(part: _Part) -> tuple[str, ...]:
    """Return the ``keys`` that are no fields of the pod's spec."""
    return tuple([key for key in part.keys if not key.startswith(_SPEC)])


def reader(part: _Searched) -> Callable[[Task], Hashable]:
    """Return a function that returns all that a part of FACTS alone reads of a task."""
    fields = [_field(key.removeprefix(_SPEC)) for key in part.keys if key.startswith(_SPEC) and key != VOLUMES]
    if not fields or VOLUMES in part.keys:
        return lambda task: (task.shape, owner_of_claims(task), part.key_of(task))
    if not distinguishes_pods(part):
        if has_own_key(part):
            return part.key_of
        if len(fields) == 1:
            return lambda task: fields[0](task.shape.spec)
        return lambda task: tuple([field(task.shape.spec) for field in fields])
    return lambda task: (*[field(task.shape.spec) for field in fields], part.key_of(task))


def _field(path: str) -> Callable[[object], Hashable]:
    """Return a function that returns a field, given by its path in a manifest: None if it is absent, and a tuple if the
    path passes a list."""
    names = ["".join([f"_{each.lower()}" if each.isupper() else each for each in name]) for name in path.split(".")]

    def read(found: object, names: Sequence[str] = names) -> Hashable:
        for at, name in enumerate(names):
            if isinstance(found, tuple):
                return tuple([read(item, names[at:]) for item in found])
            found = None if found is None else getattr(found, name)
        return tuple(found.items()) if isinstance(found, dict) else found

    return read


def key_values(part: _Part, task: Task) -> Hashable:
    """Return the task's values of a part's ``keys``; with QUEUE also the queue."""
    found: list[Hashable] = [task.job.queue.name] if part.reads & Reads.QUEUE else []
    for key in pod_keys(part):
        if key == ANY_KEY:
            return task.key
        if key == ANY_LABEL:
            found.append(task.labels)
        else:
            metadata = task.pod.metadata
            found.append((metadata.annotations.get(key), metadata.labels.get(key)))
    return tuple(found)


def owner_of_claims(task: Task) -> str | None:
    """Return the owner of the task's claims: the task for ephemeral volumes, else its namespace; None without any."""
    volumes = task.shape.spec.volumes
    if not volumes:
        return None
    return task.key if any(volume.ephemeral is not None for volume in volumes) else task.namespace


def _function(method: Callable[..., object]) -> object:
    return getattr(method, "__func__", method)

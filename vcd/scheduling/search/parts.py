"""The base classes of node search: predicates decide whether a node takes a task, scores rate the nodes that do."""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from vcd.model.reasons import Reason
from vcd.scheduling.session.nodes import Usage
from vcd.scheduling.session.views import Task

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]
Scores = npt.NDArray[np.float64]
Columns = Sequence[npt.NDArray[np.int64] | npt.NDArray[np.float64]]


class Depends(enum.Flag):
    """What a predicate or score reads in addition to the task. The framework recomputes it only after such a change."""

    FACTS = 0
    """Labels, taints and allocatable of nodes, and other objects: nothing that a placement changes."""
    USAGE = enum.auto()
    """The usage of the node itself."""
    PODS = enum.auto()
    """Positions of other pods: affinity, spread, ports."""
    JOB = enum.auto()
    """Positions of the job's own tasks."""
    QUEUE = enum.auto()
    """What queues hold. ``kind_of`` declares which queue matters."""
    TIME = enum.auto()
    """The time of the session."""


class Predicate:
    """One test of nodes.

    If ``unresolvable`` is true, evicting pods from a failed node never helps (Kubernetes'
    ``UnschedulableAndUnresolvable``). If that holds for some nodes or pods only, override ``unresolvable_nodes``.
    ``owner`` is the plugin's name, set when the session collects it.
    """

    owner: str = ""
    name: ClassVar[str]
    reason: ClassVar[Reason]
    depends: ClassVar[Depends] = Depends.FACTS
    unresolvable: ClassVar[bool] = False
    reads: ClassVar[tuple[str, ...]] = ()
    """Kinds that it reads, other than Pod and Node. A change in one of them invalidates cached results."""
    differs_by_pod: ClassVar[bool] = True
    """Whether ``applies`` or ``kind_of`` can differ between pods of one shape and queue. Only used with FACTS alone."""
    minds_labels: ClassVar[bool] = True
    """With PODS: whether a pod's labels matter in addition to its terms and constraints."""
    lets_wait: ClassVar[bool] = False
    """Whether a task may wait on a node that fails.

    Called for all nodes, such a predicate fails nodes where the task would have to wait, so that it is not bound there
    at once. Called for selected rows, for which evictions are tried, it passes nodes where the task can wait. Only used
    if ``depends`` names more than FACTS and USAGE.
    """
    idle: bool = False
    """Whether it applies to no task under the current facts, and need not be called. Only used with FACTS alone."""

    def applies(self, task: Task) -> bool:
        """Whether the task can fail it; False spares the test. Also called for tasks that ``pre_predicate`` refuses."""
        return True

    def stands_still(self, task: Task, count: int) -> bool:
        """Whether its result for each node is the same while ``count`` tasks like this are placed anywhere.

        If so, they are placed as one batch. Only called if ``depends`` names more than FACTS and USAGE.
        """
        return False

    def keeps_away(self, task: Task, others: Iterable[Task]) -> bool:
        """Whether ``others``, which this session evicts, may keep the task from nodes until they have terminated."""
        return False

    def reachable(self, task: Task, coming: Mask) -> Mask | None:
        """Return the nodes that can pass after the right evictions, or once the pods in rows ``coming`` are placed.

        None means that any node may pass. Called for built-in predicates that depend on PODS.
        """
        return None

    def divisions(self, task: Task, rows: Rows) -> Sequence[Rows]:
        """Return divisions of the nodes of which each part takes at most one of the pods ``rows``.

        A division is a number per node, -1 for none. The pods have the task's shape. Called for built-in predicates
        that depend on PODS.
        """
        return ()

    def tells_labels(self, namespace: str) -> bool:
        """Whether pods of a namespace that differ in labels alone may get different results."""
        return self.minds_labels and bool(self.depends & Depends.PODS)

    def kind_of(self, task: Task) -> Hashable:
        """Return what else distinguishes the tasks to which it applies, such as an annotation or the queue's name.

        The predicate is called with one task on behalf of all equivalent ones. Tasks are equivalent if they have one
        shape and equal results here; also one namespace if the pod names claims or ``depends`` is more than FACTS,
        equal labels with PODS, and one job with JOB. Results must mean the same in every session: use names and values,
        not numbers that a session assigned.
        """
        return None

    def reads_of(self, task: Task) -> Hashable:
        """With FACTS alone: return all that it reads of a task. Tasks with equal results share one column."""
        return _all_of(task, self)

    def node_columns(self) -> Columns | None:
        """With USAGE: return what it reads of nodes in addition to usage and allocatable, as columns over all nodes.

        Nodes that agree in all of it are computed once. None means that it may read anything.
        """
        return None

    def mask(self, task: Task, usage: Usage) -> Mask:
        """Return which nodes pass, one bool per row of ``usage``.

        With FACTS, ``usage`` covers all nodes. With USAGE, it may hold any selection of rows. The result may depend
        only on what is part of the task's kind, see ``kind_of``.
        """
        raise NotImplementedError

    def known_mask(self, task: Task, usage: Usage) -> Mask:
        """Return the mask without calls to other servers. A node without a known answer passes."""
        return self.mask(task, usage)

    def unresolvable_nodes(self, task: Task, usage: Usage, failed: Mask) -> Mask:
        """Return the ``failed`` nodes on which no eviction would help. Not called for predicates of FACTS alone."""
        return failed if self.unresolvable else np.zeros_like(failed)

    def reasons(self, task: Task, usage: Usage, failed: Mask) -> Mapping[Reason, int]:
        """Return reasons with the number of ``failed`` nodes that have each."""
        return {self.reason: int(failed.sum())}

    def clauses(self, task: Task, usage: Usage) -> Sequence[tuple[Reason, Mask]]:
        """Return the user-written clauses of the test, each with its reason and the nodes that pass it.

        A node passes the test if it passes every clause. Used for explanations.
        """
        return [(self.reason, self.mask(task, usage))]


class Score:
    """One rating of nodes. Its weighted value is a float64 per node; a plugin's scores are added in order.

    ``owner`` is the plugin's name, set when the session collects it.
    """

    owner: str = ""
    name: ClassVar[str]
    depends: ClassVar[Depends] = Depends.FACTS
    normalised: ClassVar[bool] = False
    """Whether ``normalise`` depends on the set of feasible nodes."""
    by_highest: ClassVar[bool] = False
    """Whether it depends only on the highest rating in that set (0 if all are lower)."""
    whole: ClassVar[bool] = False
    """Whether its ratings are integers."""
    reads: ClassVar[tuple[str, ...]] = ()
    minds_labels: ClassVar[bool] = True
    idle: bool = False
    """``minds_labels`` and ``idle``: see ``Predicate``."""

    def __init__(self, weight: float = 1) -> None:
        self.weight = weight

    def applies(self, task: Task) -> bool:
        """Whether it rates nodes differently for this task; False spares the computation."""
        return True

    def tells_labels(self, namespace: str) -> bool:
        """Whether pods of a namespace that differ in labels alone may get different ratings."""
        return self.minds_labels and bool(self.depends & Depends.PODS)

    def kind_of(self, task: Task) -> Hashable:
        """Return what else distinguishes tasks; see ``Predicate.kind_of``."""
        return None

    def reads_of(self, task: Task) -> Hashable:
        """Return all that it reads of a task; see ``Predicate.reads_of``."""
        return _all_of(task, self)

    def node_columns(self) -> Columns | None:
        """Return what it reads of nodes; see ``Predicate.node_columns``."""
        return None

    def raw(self, task: Task, usage: Usage) -> Scores:
        """Return the rating, one float64 per row of ``usage``, before normalisation and weight."""
        raise NotImplementedError

    def normalise(self, raw: Scores, feasible: Mask) -> Scores:
        """Make the rating comparable over the feasible nodes. Only called if ``normalised``."""
        return raw


def tells_kinds(part: Predicate | Score) -> bool:
    """Whether a part overrides ``kind_of``."""
    return _function(part.kind_of) not in (Predicate.kind_of, Score.kind_of)


def tells_pods_apart(part: Predicate) -> bool:
    """Whether a predicate of FACTS alone may treat pods of one shape and queue differently."""
    return part.differs_by_pod and (tells_kinds(part) or _function(part.applies) is not Predicate.applies)


def _function(method: Callable[..., object]) -> object:
    return getattr(method, "__func__", method)


def owner_of_claims(task: Task) -> str | None:
    """Return the owner of the task's claims: the task for ephemeral volumes, else its namespace; None without any."""
    volumes = task.shape.spec.volumes
    if not volumes:
        return None
    return task.key if any(volume.ephemeral is not None for volume in volumes) else task.namespace


def _all_of(task: Task, part: Predicate | Score) -> Hashable:
    return task.shape, owner_of_claims(task), part.kind_of(task)

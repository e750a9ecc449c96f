"""What the search for nodes is made of: predicates, which say where a task can be, and scores, which say where best."""

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
    """What a predicate or score looks at, beside the task: the framework computes it again only when that changed."""

    FACTS = 0
    """The nodes' labels, taints, room and other objects: what no placement changes."""
    USAGE = enum.auto()
    """What is used of the node itself."""
    PODS = enum.auto()
    """Where other pods are: affinity, spread, ports."""
    JOB = enum.auto()
    """Where the job's own tasks are."""
    QUEUE = enum.auto()
    """What queues hold; which one's matters is for ``kind_of`` to say."""
    TIME = enum.auto()
    """The session's time."""


class Predicate:
    """One test of nodes. ``unresolvable``: evicting pods from a node that fails it would not help, whatever the pod;
    where that is so of some nodes or pods only, ``unresolvable_nodes`` says which (Kubernetes'
    ``UnschedulableAndUnresolvable``).

    ``owner`` is the plugin's name, set when the session collects it.
    """

    owner: str = ""
    name: ClassVar[str]
    reason: ClassVar[Reason]
    depends: ClassVar[Depends] = Depends.FACTS
    unresolvable: ClassVar[bool] = False
    reads: ClassVar[tuple[str, ...]] = ()
    """Kinds beside pods and nodes; a change in one of them makes kept results void."""
    differs_by_pod: ClassVar[bool] = True
    """Whether ``applies`` or ``kind_of`` can differ between pods of one shape and queue. Only used where it depends on
    FACTS alone."""
    minds_labels: ClassVar[bool] = True
    """Whether, where it depends on PODS, a pod's labels matter beside its terms and constraints."""
    lets_wait: ClassVar[bool] = False
    """Whether a task may wait on a node that fails it: asked about all nodes, it keeps the task from being bound at
    once; asked about some rows, for which evictions are tried, it passes where the task can wait. Only used where it
    depends on more than FACTS and USAGE."""
    idle: bool = False
    """Whether it applies to no task, as the facts are: then it is not asked. For who depends on FACTS alone."""

    def applies(self, task: Task) -> bool:
        """Whether the task can fail it at all; False spares the test. Asked about tasks too that ``pre_predicate``
        refuses."""
        return True

    def stands_still(self, task: Task, count: int) -> bool:
        """Whether it says the same of each node while ``count`` tasks like one are placed, wherever they go: then they
        may be placed at once. Only asked where it depends on more than FACTS and USAGE."""
        return False

    def keeps_away(self, task: Task, others: Iterable[Task]) -> bool:
        """Whether it may keep the task from nodes because of others that this session evicts: they are in the way
        until they are gone."""
        return False

    def reachable(self, task: Task, coming: Mask) -> Mask | None:
        """Return the nodes that can pass once the right pods left, or pods of the rows ``coming`` are placed.

        None: any node may. Asked of built-in predicates that depend on PODS.
        """
        return None

    def divisions(self, task: Task, rows: Rows) -> Sequence[Rows]:
        """Return divisions of the nodes, a number per node and -1 for none, of which each part takes at most one of
        the pods ``rows``, which have the task's shape. Asked of built-in predicates that depend on PODS."""
        return ()

    def tells_labels(self, namespace: str) -> bool:
        """Whether pods of a namespace that differ in labels alone may not be alike to it, be it that it does not apply
        to each of them."""
        return self.minds_labels and bool(self.depends & Depends.PODS)

    def kind_of(self, task: Task) -> Hashable:
        """What else tells the tasks to which it applies apart for it, such as an annotation, or the queue's name.

        One task is asked about in place of all of its kind: those of one shape (with the namespace where that names
        claims; in any case where it depends on more than FACTS), labels where it depends on PODS, job where it depends
        on JOB, and equal answers here. Answers mean the same from session to session: names and values, no numbers
        that a session gave.
        """
        return None

    def reads_of(self, task: Task) -> Hashable:
        """All that it looks at of a task to which it applies, where it depends on FACTS alone: its column is made once
        for tasks of equal answers."""
        return _all_of(task, self)

    def node_columns(self) -> Columns | None:
        """What it looks at of nodes beside their usage and what they have to allocate, with USAGE, as columns over all
        nodes: those that agree in all of it are asked about once. None: it may look at anything."""
        return None

    def mask(self, task: Task, usage: Usage) -> Mask:
        """Which nodes pass, one bool per row of ``usage``. With FACTS it sees all nodes; with USAGE ``usage`` may hold
        any selection of rows. Only what makes the task's kind may matter, see ``kind_of``."""
        raise NotImplementedError

    def known_mask(self, task: Task, usage: Usage) -> Mask:
        """Return the mask without calls to other servers. A node of which no answer is known passes."""
        return self.mask(task, usage)

    def unresolvable_nodes(self, task: Task, usage: Usage, failed: Mask) -> Mask:
        """Of the ``failed`` nodes those on which no eviction would help. Not asked of predicates that depend on FACTS
        alone: nothing that is evicted changes these."""
        return failed if self.unresolvable else np.zeros_like(failed)

    def reasons(self, task: Task, usage: Usage, failed: Mask) -> Mapping[Reason, int]:
        """Reasons and how many of the ``failed`` nodes have them."""
        return {self.reason: int(failed.sum())}

    def clauses(self, task: Task, usage: Usage) -> Sequence[tuple[Reason, Mask]]:
        """The parts of the test that a user wrote each by itself, for who explains it: why a node fails each, and which
        nodes pass it. A node passes the test that passes them all."""
        return [(self.reason, self.mask(task, usage))]


class Score:
    """One rating of nodes. Its weighted value is a float64 per node; a plugin's scores are added in order.

    ``owner`` is the plugin's name, set when the session collects it.
    """

    owner: str = ""
    name: ClassVar[str]
    depends: ClassVar[Depends] = Depends.FACTS
    normalised: ClassVar[bool] = False
    """Whether ``normalise`` looks at the set of feasible nodes."""
    by_highest: ClassVar[bool] = False
    """Whether all that it looks at of that set is its highest rating, 0 where that is less."""
    whole: ClassVar[bool] = False
    """Whether its ratings are whole numbers."""
    reads: ClassVar[tuple[str, ...]] = ()
    minds_labels: ClassVar[bool] = True
    idle: bool = False
    """Both as of a predicate."""

    def __init__(self, weight: float = 1) -> None:
        self.weight = weight

    def applies(self, task: Task) -> bool:
        """Whether it tells nodes apart for this task; False spares the computation."""
        return True

    def tells_labels(self, namespace: str) -> bool:
        """Whether pods of a namespace that differ in labels alone may not be alike to it; see ``Predicate``."""
        return self.minds_labels and bool(self.depends & Depends.PODS)

    def kind_of(self, task: Task) -> Hashable:
        """What else tells the tasks to which it applies apart for it; see ``Predicate.kind_of``."""
        return None

    def reads_of(self, task: Task) -> Hashable:
        """All that it looks at of a task, see ``Predicate.reads_of``."""
        return _all_of(task, self)

    def node_columns(self) -> Columns | None:
        """What it looks at of nodes; see ``Predicate.node_columns``."""
        return None

    def raw(self, task: Task, usage: Usage) -> Scores:
        """The rating, one float64 per row of ``usage``, before normalisation and weight."""
        raise NotImplementedError

    def normalise(self, raw: Scores, feasible: Mask) -> Scores:
        """The rating made comparable over the feasible nodes (only asked when ``normalised``)."""
        return raw


def tells_kinds(part: Predicate | Score) -> bool:
    """Whether a part has a ``kind_of`` of its own; the others are not asked."""
    return _function(part.kind_of) not in (Predicate.kind_of, Score.kind_of)


def tells_pods_apart(part: Predicate) -> bool:
    """Whether a predicate that depends on FACTS may treat pods of one shape and queue differently."""
    return part.differs_by_pod and (tells_kinds(part) or _function(part.applies) is not Predicate.applies)


def _function(method: Callable[..., object]) -> object:
    return getattr(method, "__func__", method)


def owner_of_claims(task: Task) -> str | None:
    """Whose claims a task's volumes are: its namespace's where it names some, its own where it makes some."""
    volumes = task.shape.spec.volumes
    if not volumes:
        return None
    return task.key if any(volume.ephemeral is not None for volume in volumes) else task.namespace


def _all_of(task: Task, part: Predicate | Score) -> Hashable:
    return task.shape, owner_of_claims(task), part.kind_of(task)

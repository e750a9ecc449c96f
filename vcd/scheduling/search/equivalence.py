"""The equivalence key of tasks: tasks with equal keys cannot be distinguished by any predicate or score.

The key follows from what the parts declare (``vcd.scheduling.search.parts``). There is no other notion of equal tasks:
candidate tables, results of facts, and classes of pending jobs use it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from vcd.scheduling.search.parts import (
    Predicate,
    Reads,
    Score,
    compares,
    distinguishes_pods,
    is_by_usage,
    is_fixed,
    is_moving,
    owner_of_claims,
    reader,
)
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.records import Shape

Part = Predicate | Score


class EquivalenceKey(NamedTuple):
    """Equivalence key of a task. Tasks with equal keys find the same nodes."""

    shape: Shape
    claims_of: str | None
    namespace: str
    applying: int
    """The parts that apply, as bits. Can change when a pod with affinity terms is placed."""
    labels: int | None
    job: str | None
    part_keys: tuple[Hashable, ...]
    """The ``key_of`` of each part that distinguishes pods of one shape."""


class ApplyingParts(NamedTuple):
    """The parts that apply to a task.

    ``by_usage`` and ``moving`` are (predicates, scores) that depend on a node's usage and on MOVING. ``comparing`` are
    the scores by usage that compare nodes. ``compares`` is whether a score compares nodes or is among ``moving``.
    ``distinguishing`` are the parts that distinguish pods of one shape. ``by_labels`` and ``by_job`` are whether labels
    and job belong to the key.
    """

    bits: int
    by_usage: tuple[tuple[Predicate, ...], tuple[Score, ...]]
    moving: tuple[tuple[Predicate, ...], tuple[Score, ...]]
    comparing: tuple[Score, ...]
    compares: bool
    distinguishing: tuple[Part, ...]
    by_labels: bool
    by_job: bool


class EquivalenceKeys:
    """Finds the keys of a session's tasks. ``fixed_parts`` are the parts that read FACTS alone."""

    def __init__(self, session: Session, parts: Sequence[Part]) -> None:
        self._trial = session.trial
        self._parts = tuple(parts)
        self.fixed_parts = tuple(part for part in parts if is_fixed(part) and _has_effect(part))
        self._readers = [reader(part) for part in self.fixed_parts]
        # Moving parts come last: another session may have other ones, and the bits of the rest must keep their meaning.
        others = [part for part in parts if part not in self.fixed_parts and _has_effect(part)]
        self._others = sorted(others, key=is_moving)
        self._stays = [not is_moving(part) for part in self._others]
        self._fixed_distinguish = [distinguishes_pods(part) for part in self.fixed_parts]
        self._distinguishing_predicates = tuple(
            part for part in parts if isinstance(part, Predicate) and distinguishes_pods(part)
        )
        self._applying: dict[tuple[tuple[int, ...], tuple[bool, ...]], ApplyingParts] = {}
        self._last_fixed: tuple[Task | None, tuple[int, ...]] = None, ()
        self._last: tuple[Task | None, int, tuple[EquivalenceKey, ApplyingParts]] | None = None

    def of(self, task: Task) -> tuple[EquivalenceKey, ApplyingParts]:
        """Return the task's key and the parts that apply to it, cached until a task is placed or removed."""
        last, changes = self._last, self._trial.changes
        if last is None or last[0] is not task or last[1] != changes:
            last = self._last = task, changes, self.find(task)
        return last[2]

    def fixed(self, task: Task) -> tuple[int, ...]:
        """Return the indexes of the ``fixed_parts`` that apply to a task."""
        if self._last_fixed[0] is not task:
            self._last_fixed = task, tuple([at for at, part in enumerate(self.fixed_parts) if part.applies(task)])
        return self._last_fixed[1]

    def facts(self, task: Task) -> Hashable:
        """Return which ``fixed_parts`` apply to a task, and all that these read of it."""
        fixed, readers = self.fixed(task), self._readers
        return fixed, tuple([readers[at](task) for at in fixed])

    def find(self, task: Task, moving: bool = True) -> tuple[EquivalenceKey, ApplyingParts]:
        """Compute the key and the applying parts. ``moving=False`` leaves out the moving parts."""
        others = [
            (moving or stays) and part.applies(task) for part, stays in zip(self._others, self._stays, strict=True)
        ]
        applying = self.fixed(task), tuple(others)
        parts = self._applying.get(applying)
        if parts is None:
            parts = self._applying[applying] = self._build_applying(*applying)
        key = EquivalenceKey(
            task.shape,
            owner_of_claims(task),
            task.namespace,
            parts.bits,
            task.labels if parts.by_labels else None,
            task.job.key if parts.by_job else None,
            tuple([part.key_of(task) for part in parts.distinguishing]) if parts.distinguishing else (),
        )
        return key, parts

    def _build_applying(self, fixed: tuple[int, ...], applying: tuple[bool, ...]) -> ApplyingParts:
        others = [part for part, applies in zip(self._others, applying, strict=True) if applies]
        moving = _split([part for part in others if is_moving(part)])
        predicates, scores = _split([part for part in others if is_by_usage(part)])
        comparing = tuple(score for score in scores if compares(score))
        return ApplyingParts(
            sum(1 << at for at in fixed) | sum(on << at for at, on in enumerate(applying, len(self.fixed_parts))),
            (predicates, tuple(score for score in scores if not compares(score))),
            moving,
            comparing,
            bool(comparing or moving[1]),
            tuple(part for part in (*[self.fixed_parts[at] for at in fixed], *others) if distinguishes_pods(part)),
            any(part.reads & Reads.PODS for part in others),
            any(part.reads & Reads.JOB for part in others),
        )

    def labels_matter_in(self, namespace: str) -> bool:
        """Whether some part may treat pods of a namespace differently that differ in labels alone."""
        return any(part.labels_matter_in(namespace) for part in self._parts)

    def moves(self, task: Task, evicted: Sequence[Task] = ()) -> bool:
        """Whether the positions of other pods, or time, affect which nodes take a task.

        ``evicted`` pods count as still present.
        """
        if self.of(task)[1].moving[0]:
            return True
        return bool(evicted) and any(
            isinstance(part, Predicate) and is_moving(part) and part.excludes_beside(task, evicted)
            for part in self._parts
        )

    def keys_in_job(self, tasks: Sequence[Task]) -> list[Hashable]:
        """Return a key per task of a job. Tasks with equal keys have the same feasible nodes now."""
        known: dict[Hashable, Hashable] = {}
        found: list[Hashable] = []
        for task in tasks:
            part_keys = tuple(
                [(part.key_of(task),) if part.applies(task) else () for part in self._distinguishing_predicates]
            )
            key = (task.shape, task.labels, task.key if task.shape.spec.volumes else None, part_keys)
            equivalence = known.get(key)
            if equivalence is None:
                equivalence = known[key] = self.of(task)[0] if self.moves(task) else (self.fixed_key(task), part_keys)
            found.append(equivalence)
        return found

    def fixed_key(self, task: Task) -> Hashable:
        """Return a key of all that the ``fixed_parts`` may read of a task; other than ``facts``, with its shape."""
        fixed = self.fixed(task)
        part_keys = [self.fixed_parts[at].key_of(task) for at in fixed if self._fixed_distinguish[at]]
        return task.shape, owner_of_claims(task), fixed, tuple(part_keys)


def _has_effect(part: Part) -> bool:
    """Whether a part has any effect: a score of weight 0 has none."""
    return isinstance(part, Predicate) or bool(part.weight)


def _split(parts: Sequence[Part]) -> tuple[tuple[Predicate, ...], tuple[Score, ...]]:
    scores = tuple(part for part in parts if isinstance(part, Score) and part.weight)
    return tuple(part for part in parts if isinstance(part, Predicate)), scores

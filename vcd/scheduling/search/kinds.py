"""Equivalence of tasks: tasks are of one kind if no predicate and no score can distinguish them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from vcd.scheduling.search.parts import Depends, Predicate, Score, owner_of_claims, tells_kinds
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.records import Shape

MOVING = Depends.PODS | Depends.JOB | Depends.QUEUE | Depends.TIME
"""What can change for all nodes after a placement, or from session to session."""

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
    """The ``kind_of`` of each part that defines it."""


class ApplyingParts(NamedTuple):
    """The parts that apply to a task.

    ``by_usage`` and ``moving`` are (predicates, scores) that depend on USAGE and on MOVING. ``compares`` is whether a
    score compares nodes or is among ``moving``. ``distinguishing`` are the parts with a ``kind_of``. ``by_labels`` and
    ``by_job`` are whether labels and job belong to the key.
    """

    bits: int
    by_usage: tuple[tuple[Predicate, ...], tuple[Score, ...]]
    moving: tuple[tuple[Predicate, ...], tuple[Score, ...]]
    compares: bool
    distinguishing: tuple[Part, ...]
    by_labels: bool
    by_job: bool


class EquivalenceKeys:
    """Finds the kinds of a session's tasks. ``fixed_parts`` are the parts that depend on FACTS alone and can apply."""

    def __init__(self, session: Session, parts: Sequence[Part]) -> None:
        self._trial = session.trial
        self._parts = tuple(parts)
        self.fixed_parts = tuple(part for part in parts if not part.depends and _has_effect(part) and not part.idle)
        # # MOVING parts come last: another session may have other ones, and the bits of the rest must keep their
        # meaning
        self._others = sorted((part for part in parts if part.depends), key=lambda part: bool(part.depends & MOVING))
        self._distinguishing_predicates = tuple(
            part for part in parts if isinstance(part, Predicate) and tells_kinds(part)
        )
        self._applying: dict[tuple[tuple[int, ...], tuple[bool, ...]], ApplyingParts] = {}
        self._last_fixed: tuple[Task | None, tuple[int, ...]] = None, ()
        self._last: tuple[Task | None, int, tuple[EquivalenceKey, ApplyingParts]] | None = None

    def of(self, task: Task) -> tuple[EquivalenceKey, ApplyingParts]:
        """Return the task's kind and the parts that apply to it, cached until a task is placed or removed."""
        last, changes = self._last, self._trial.changes
        if last is None or last[0] is not task or last[1] != changes:
            last = self._last = task, changes, self.find(task)
        return last[2]

    def fixed(self, task: Task) -> tuple[int, ...]:
        """Return the indexes of the ``fixed_parts`` that apply to a task."""
        if self._last_fixed[0] is not task:
            self._last_fixed = task, tuple([at for at, part in enumerate(self.fixed_parts) if part.applies(task)])
        return self._last_fixed[1]

    def find(self, task: Task, moving: bool = True) -> tuple[EquivalenceKey, ApplyingParts]:
        """Compute the kind and applying parts. ``moving=False`` leaves out the parts that depend on MOVING."""
        others = [part.applies(task) and (moving or not part.depends & MOVING) for part in self._others]
        applying = self.fixed(task), tuple(others)
        parts = self._applying.get(applying)
        if parts is None:
            parts = self._applying[applying] = self._build_applying(*applying)
        kind = EquivalenceKey(
            task.shape,
            owner_of_claims(task),
            task.namespace,
            parts.bits,
            task.labels if parts.by_labels else None,
            task.job.key if parts.by_job else None,
            tuple([part.kind_of(task) for part in parts.distinguishing]) if parts.distinguishing else (),
        )
        return kind, parts

    def _build_applying(self, fixed: tuple[int, ...], applying: tuple[bool, ...]) -> ApplyingParts:
        others = [part for part, applies in zip(self._others, applying, strict=True) if applies]
        moving = [part for part in others if part.depends & MOVING]
        return ApplyingParts(
            sum(1 << at for at in fixed) | sum(on << at for at, on in enumerate(applying, len(self.fixed_parts))),
            _split([part for part in others if part.depends & Depends.USAGE]),
            _split(moving),
            any(isinstance(part, Score) and part.weight and (part.normalised or part in moving) for part in others),
            tuple(part for part in (*[self.fixed_parts[at] for at in fixed], *others) if tells_kinds(part)),
            any(part.depends & Depends.PODS for part in moving),
            any(part.depends & Depends.JOB for part in moving),
        )

    def tells_labels(self, namespace: str) -> bool:
        """Whether some part may treat pods of a namespace differently that differ in labels alone."""
        return any(part.tells_labels(namespace) for part in self._parts)

    def moves(self, task: Task, evicted: Sequence[Task] = ()) -> bool:
        """Whether the positions of other pods, or time, affect which nodes take a task.

        ``evicted`` pods count as still present.
        """
        if self.of(task)[1].moving[0]:
            return True
        return bool(evicted) and any(
            isinstance(part, Predicate) and part.depends & MOVING and part.keeps_away(task, evicted)
            for part in self._parts
        )

    def likeness(self, tasks: Sequence[Task]) -> list[Hashable]:
        """Return a key per task of a job. Tasks with equal keys have the same feasible nodes now."""
        known: dict[Hashable, Hashable] = {}
        found: list[Hashable] = []
        for task in tasks:
            part_keys = tuple(
                [(part.kind_of(task),) if part.applies(task) else () for part in self._distinguishing_predicates]
            )
            key = (task.shape, task.labels, task.key if task.shape.spec.volumes else None, part_keys)
            kind = known.get(key)
            if kind is None:
                kind = known[key] = self.of(task)[0] if self.moves(task) else (self.static_key(task), part_keys)
            found.append(kind)
        return found

    def static_key(self, task: Task) -> Hashable:
        """Return everything that parts depending on FACTS alone may read of a task."""
        fixed = self.fixed(task)
        part_keys = [self.fixed_parts[at].kind_of(task) for at in fixed if tells_kinds(self.fixed_parts[at])]
        return task.shape, owner_of_claims(task), fixed, tuple(part_keys)


def _has_effect(part: Part) -> bool:
    """Whether a part has any effect: a score of weight 0 has none."""
    return isinstance(part, Predicate) or bool(part.weight)


def _split(parts: Sequence[Part]) -> tuple[tuple[Predicate, ...], tuple[Score, ...]]:
    scores = tuple(part for part in parts if isinstance(part, Score) and part.weight)
    return tuple(part for part in parts if isinstance(part, Predicate)), scores

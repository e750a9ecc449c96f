"""Marks that keep the tables of candidates apart for tasks of one shape that a plugin treats differently.

A table is shared by all tasks of one shape to which the same predicates and scores apply, so what a plugin takes from
a task's queue, annotations or place within its job needs more than its shape. A class of tasks is a number from 0, for
those that the plugin has nothing to say about; each binary digit of it becomes one mark, which applies where the digit
is set and does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from vcd.scheduling.nodes import Usage
from vcd.scheduling.plugin import Depends, Mask, Predicate, Score, Scores
from vcd.scheduling.views import Task

ClassOf = Callable[[Task], int]


class _PredicateMark(Predicate):
    """One digit; it lets every node pass."""

    name = "mark"
    reason = "none"
    depends = Depends.PODS

    def __init__(self, class_of: ClassOf, digit: int, nodes: int) -> None:
        self._class_of = class_of
        self._digit = digit
        self._all = np.ones(nodes, np.bool_)

    def applies(self, task: Task) -> bool:
        return _is_set(self._class_of(task), self._digit)

    def mask(self, task: Task, usage: Usage) -> Mask:
        return self._all[: len(usage)]


class _ScoreMark(Score):
    """One digit; of weight 0, so that nobody asks for its points."""

    name = "mark"
    depends = Depends.PODS

    def __init__(self, class_of: ClassOf, digit: int) -> None:
        super().__init__(0)
        self._class_of = class_of
        self._digit = digit

    def applies(self, task: Task) -> bool:
        return _is_set(self._class_of(task), self._digit)

    def raw(self, task: Task, usage: Usage) -> Scores:
        return np.zeros(len(usage))


def predicate_marks(class_of: ClassOf, classes: int, nodes: int) -> Iterator[Predicate]:
    """The marks for classes 1 to ``classes``, beside a predicate that applies to all of these."""
    for digit in range(_digits(classes)):
        yield _PredicateMark(class_of, digit, nodes)


def score_marks(class_of: ClassOf, classes: int) -> Iterator[Score]:
    """The marks for classes 1 to ``classes``, beside a score that applies to all of these."""
    for digit in range(_digits(classes)):
        yield _ScoreMark(class_of, digit)


def _digits(classes: int) -> int:
    return max(0, classes - 1).bit_length()


def _is_set(number: int, digit: int) -> bool:
    return number > 0 and bool((number - 1) >> digit & 1)

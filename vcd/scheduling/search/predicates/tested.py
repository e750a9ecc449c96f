"""Predicates that are made of several tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np

from vcd.model.reasons import Reason
from vcd.scheduling.search.parts import Mask, Predicate
from vcd.scheduling.search.predicates.node import at_rows
from vcd.scheduling.session.nodes import Usage
from vcd.scheduling.session.views import Task


class TestedPredicate(Predicate):
    """A node passes when it passes all tests, and fails for the reason of the first that it does not pass.

    ``lasting`` is the reason that no eviction mends.
    """

    lasting: ClassVar[Reason]

    def tests(self, task: Task) -> Iterable[tuple[Reason, Mask]]:
        """The tests in kube-scheduler's order, over all nodes, each with the reason of those that fail it."""
        raise NotImplementedError

    def mask(self, task: Task, usage: Usage) -> Mask:
        """Nodes that pass all tests."""
        passed = np.ones(len(usage), np.bool_)
        for _, test in self.tests(task):
            passed &= at_rows(test, usage)
        return passed

    def unresolvable_nodes(self, task: Task, usage: Usage, failed: Mask) -> Mask:
        """Nodes that fail a test for the lasting reason, be it not the first that they fail."""
        result = np.zeros_like(failed)
        for reason, test in self.tests(task):
            if reason == self.lasting:
                result |= failed & ~at_rows(test, usage)
        return result

    def clauses(self, task: Task, usage: Usage) -> list[tuple[Reason, Mask]]:
        """The tests one by one, each named as the user wrote it."""
        found = []
        for number, (reason, test) in enumerate(self.tests(task)):
            text = self.written(task, reason, number)
            found.append((reason.declared({"clause": text}) if text else reason, at_rows(test, usage)))
        return found

    def written(self, task: Task, reason: Reason, number: int) -> str:
        """What a user wrote for one of a task's tests, by its reason and place; empty where there is no such text."""
        return ""

    def reasons(self, task: Task, usage: Usage, failed: Mask) -> Mapping[Reason, int]:
        """How many fail for which reason."""
        counts: dict[Reason, int] = {}
        left = failed.copy()
        for reason, test in self.tests(task):
            fails = left & ~at_rows(test, usage)
            if fails.any():
                counts[reason] = counts.get(reason, 0) + int(fails.sum())
                left &= ~fails
        return counts

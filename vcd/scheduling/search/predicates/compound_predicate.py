"""Base of predicates that consist of several tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np

from vcd.model.reasons import Reason
from vcd.scheduling.search.parts import Mask, Predicate
from vcd.scheduling.search.predicates.node_predicates import at_rows
from vcd.scheduling.session.nodes import Usage
from vcd.scheduling.session.views import Task


class TestedPredicate(Predicate):
    """A node passes if it passes all tests; otherwise the first failed test gives the reason.

    ``lasting`` is the reason that no eviction can fix.
    """

    lasting: ClassVar[Reason]

    def tests(self, task: Task) -> Iterable[tuple[Reason, Mask]]:
        """Return the tests in kube-scheduler's order, over all nodes, each with the reason for nodes that fail it."""
        raise NotImplementedError

    def mask(self, task: Task, usage: Usage) -> Mask:
        """Return nodes that pass all tests."""
        passed = np.ones(len(usage), np.bool_)
        for _, test in self.tests(task):
            passed &= at_rows(test, usage)
        return passed

    def unresolvable_nodes(self, task: Task, usage: Usage, failed: Mask) -> Mask:
        """Return nodes that fail a test with the lasting reason, even if another test failed first."""
        result = np.zeros_like(failed)
        for reason, test in self.tests(task):
            if reason == self.lasting:
                result |= failed & ~at_rows(test, usage)
        return result

    def clauses(self, task: Task, usage: Usage) -> list[tuple[Reason, Mask]]:
        """Return the tests one by one, each with the text of its declaration in the pod."""
        found = []
        for number, (reason, test) in enumerate(self.tests(task)):
            text = self.clause_text(task, reason, number)
            found.append((reason.declared({"clause": text}) if text else reason, at_rows(test, usage)))
        return found

    def clause_text(self, task: Task, reason: Reason, number: int) -> str:
        """Return the declaration behind a test, given by its reason and index; empty if there is no such text."""
        return ""

    def reasons(self, task: Task, usage: Usage, failed: Mask) -> Mapping[Reason, int]:
        """Count the failed nodes by their first reason."""
        counts: dict[Reason, int] = {}
        left = failed.copy()
        for reason, test in self.tests(task):
            fails = left & ~at_rows(test, usage)
            if fails.any():
                counts[reason] = counts.get(reason, 0) + int(fails.sum())
                left &= ~fails
        return counts

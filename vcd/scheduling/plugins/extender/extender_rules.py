"""An extender's verbs predicate and prioritize, as filters and a score of nodes.

predicate is called for one task and one node. It is called only for nodes that pass everything else and have
capacity, once for equivalent tasks, and again only after the node changed; calls are sent concurrently. prioritize
compares the remaining nodes, so it is called for each choice among at least two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple

import numpy as np

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.plugins.extender.extender_calls import Extender, PredicateAnswer, PrioritizeAnswer
from vcd.scheduling.plugins.extender.extender_encoding import Wire
from vcd.scheduling.search.parts import ANY_KEY, Mask, Predicate, Reads, Score, Scores, is_fixed
from vcd.scheduling.session.nodes import Ints, Usage, fits
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.records import Shape

UNANSWERED = ReasonCode("extender-unanswered", Cause.OUTSIDE, "the extender did not answer: {error}")
_STATED = ReasonCode("extender-says", Cause.OUTSIDE, "{text}", nodes_help=True)
_NO_PRIORITIES = ReasonCode("extender-no-priorities-but", Cause.OUTSIDE, "the extender returned no priorities: {error}")

SUCCESS, ERROR, UNSCHEDULABLE = 0, 1, 2
"""Volcano's codes of a predicate's response; only UNSCHEDULABLE can be resolved by evictions."""
LARGEST_POINTS = 1e9
"""Points are limited to this, positive or negative, so that sums remain exact."""
NUMBERS = (
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
    "statefulset.kubernetes.io/pod-name",
    "volcano.sh/task-index",
)
"""Labels and annotations in which pods of one controller differ only by their number."""


class Progress:
    """Tracks when each node last changed in the session."""

    def __init__(self, session: Session, is_managed: Callable[[Shape], bool]) -> None:
        self._session = session
        self.is_managed = is_managed
        self.changed: Ints = np.zeros(len(session.nodes), np.int64)
        """By node, the number of the last change."""
        self._changes = 0
        self._equivalence_keys: dict[int, Hashable] = {}

    def equivalence_key(self, task: Task) -> Hashable:
        """Return what distinguishes a task, for an extender, from others of its job and shape: not name, UID or age."""
        found = self._equivalence_keys.get(task.row)
        if found is None:
            marks = (task.pod.metadata.labels, task.pod.metadata.annotations)
            named = [tuple(sorted(item for item in each.items() if item[0] not in NUMBERS)) for each in marks]
            found = self._equivalence_keys[task.row] = (task.role, task.priority, *named)
        return found

    def moved(self, row: int) -> None:
        """Record that something was placed on a node, or removed from it."""
        self._changes += 1
        self.changed[row] = self._changes

    def forget(self) -> None:
        """Invalidate all responses about nodes, and the candidate tables that were built from them."""
        self._changes += 1
        self.changed[:] = self._changes
        self._session.trial.changes += 1


class ExtenderSession(NamedTuple):
    """The extender in a session, with everything that a request is built from."""

    session: Session
    extender: Extender
    wire: Wire
    progress: Progress
    ignorable: bool

    @property
    def passes_unanswered(self) -> bool:
        """Whether a node without a response passes: not if the extender is unreachable and not ignorable."""
        return self.ignorable or not self.extender.out

    def priorities(self, verb: str, task: Task, among: Mask) -> tuple[Mapping[str, float], str]:
        """Return the points of nodes for a task, and why there are none; a single node needs none."""
        rows = np.flatnonzero(among).tolist()
        if len(rows) < 2:
            return {}, ""
        request = {"task": self.wire.task(task), "nodes": [self.wire.node(row) for row in rows]}
        response = self.extender.query(verb, request, PrioritizeAnswer)
        if response.error:
            return {}, "" if self.ignorable else response.error
        if response.answer.error_message or response.answer.node_score is None:
            return {}, response.answer.error_message or "it answers none"
        return response.answer.node_score, ""


class _Verdicts:
    """The extender's responses about each node for equivalent tasks.

    ``as_of`` is the change that a response refers to. ``unresolvable`` nodes are not helped by evictions.
    """

    def __init__(self, count: int) -> None:
        self.as_of: Ints = np.full(count, -1, np.int64)
        self.passed: Mask = np.ones(count, np.bool_)
        self.unresolvable: Mask = np.zeros(count, np.bool_)
        self.reasons: dict[int, Reason | None] = {}


class ExtenderPredicate(Predicate):
    """Accepts nodes that the extender accepts; it is not called for nodes that another filter excludes."""

    name = "extender"
    reason = ReasonCode("extender-node", Cause.OUTSIDE, "the extender refuses the node", nodes_help=True)()
    reads = Reads.JOB | Reads.TIME
    keys = ()

    def __init__(self, context: ExtenderSession, verb: str) -> None:
        self._context = context
        self._verb = verb
        self._verdicts: dict[Hashable, _Verdicts] = {}

    def applies(self, task: Task) -> bool:
        return self._context.progress.is_managed(task.shape)

    def key_of(self, task: Task) -> Hashable:
        return self._context.progress.equivalence_key(task)

    def _known(self, task: Task) -> _Verdicts:
        key = (task.job.index, task.shape, self._context.progress.equivalence_key(task))
        found = self._verdicts.get(key)
        if found is None:
            found = self._verdicts[key] = _Verdicts(len(self._context.session.nodes))
        return found

    def mask(self, task: Task, usage: Usage) -> Mask:
        if self._context.extender.out:
            return self.known_mask(task, usage)
        rows = np.arange(len(usage)) if usage.rows is None else usage.rows
        verdicts = self._known(task)
        open_ = passing_nodes(self._context.session, task, usage, (ExtenderPredicate.name, ExtenderPriorities.name))
        due = open_ & (verdicts.as_of[rows] < self._context.progress.changed[rows])
        if due.any():
            self._query(task, rows[due].tolist(), verdicts)
        result = verdicts.passed[rows] | ~open_
        return result

    def known_mask(self, task: Task, usage: Usage) -> Mask:
        rows = np.arange(len(usage)) if usage.rows is None else usage.rows
        verdicts = self._known(task)
        result: Mask = np.where(self._fresh(verdicts, rows), verdicts.passed[rows], self._context.passes_unanswered)
        return result

    def _fresh(self, verdicts: _Verdicts, rows: Ints) -> Mask:
        """Return a mask of nodes with a response since their last change."""
        fresh: Mask = verdicts.as_of[rows] >= self._context.progress.changed[rows]
        return fresh

    def _query(self, task: Task, rows: list[int], verdicts: _Verdicts) -> None:
        requests = [{"task": self._context.wire.task(task), "node": self._context.wire.node(row)} for row in rows]
        answers = self._context.extender.query_all(self._verb, requests, PredicateAnswer)
        for row, response in zip(rows, answers, strict=True):
            status, code = response.answer.status, response.answer.code or ERROR
            reason = _STATED({"text": status}) if status else None
            if response.error:
                reason, code = (None if self._context.ignorable else UNANSWERED({"error": response.error})), ERROR
            verdicts.as_of[row] = self._context.progress.changed[row]
            verdicts.passed[row] = not reason
            verdicts.unresolvable[row] = code != UNSCHEDULABLE
            verdicts.reasons[row] = reason

    def unresolvable_nodes(self, task: Task, usage: Usage, failed: Mask) -> Mask:
        verdicts = self._known(task)
        rows = np.arange(len(usage)) if usage.rows is None else usage.rows
        return failed & (verdicts.unresolvable[rows] | ~self._fresh(verdicts, rows))

    def reasons(self, task: Task, usage: Usage, failed: Mask) -> Mapping[Reason, int]:
        known, out = self._known(task).reasons, self._context.extender.out
        rows = np.flatnonzero(failed) if usage.rows is None else usage.rows[failed]
        unanswered = UNANSWERED({"error": out}) if out else self.reason
        return Counter(known.get(row) or unanswered for row in rows.tolist())


class ExtenderPriorities(Predicate):
    """Accepts no node while the extender cannot rank several candidates."""

    name = "extender priorities"
    reason = ReasonCode("extender-no-priorities", Cause.OUTSIDE, "the extender returned no priorities")()
    reads = Reads.JOB | Reads.TIME
    keys = (ANY_KEY,)  # priorities are requested for each choice

    def __init__(self, context: ExtenderSession, verb: str) -> None:
        self._context = context
        self._verb = verb
        self._why = ""

    def applies(self, task: Task) -> bool:
        return self._context.progress.is_managed(task.shape)

    def mask(self, task: Task, usage: Usage) -> Mask:
        result: Mask = np.ones(len(usage), np.bool_)
        if usage.rows is not None:
            return result  # selected rows are not compared
        if self._context.extender.out:
            self._why = self._context.extender.out
            return self.known_mask(task, usage)
        passed = passing_nodes(self._context.session, task, usage, (ExtenderPriorities.name,))
        now = passed & fits(task.floor, usage.idle)
        candidates = now if now.any() else passed
        _, self._why = self._context.priorities(self._verb, task, candidates)
        if self._why:
            result[passed] = False
        return result

    def known_mask(self, task: Task, usage: Usage) -> Mask:
        return np.full(len(usage), self._context.passes_unanswered)

    def reasons(self, task: Task, usage: Usage, failed: Mask) -> Mapping[Reason, int]:
        return {_NO_PRIORITIES({"error": self._why}) if self._why else self.reason: int(failed.sum())}


class ExtenderScore(Score):
    """The points that the extender gives each node, 0 for nodes that it does not name."""

    name = "extender"
    reads = Reads.JOB | Reads.TIME
    keys = (ANY_KEY,)  # points are requested for each choice

    def __init__(self, context: ExtenderSession, verb: str) -> None:
        super().__init__(1)
        self._context = context
        self._verb = verb
        self._task: Task | None = None

    def applies(self, task: Task) -> bool:
        return self._context.progress.is_managed(task.shape)

    def raw(self, task: Task, usage: Usage) -> Scores:
        self._task = task
        return np.zeros(len(usage))

    def normalise(self, raw: Scores, feasible: Mask) -> Scores:
        """Request points for the feasible nodes, which are known only now."""
        if self._task is None or len(raw) != len(self._context.session.nodes):
            return raw
        scores, _ = self._context.priorities(self._verb, self._task, feasible)
        if not scores:
            return raw
        row_of, result = self._context.session.nodes.facts.row_of, raw.copy()
        for name, points in scores.items():
            row = row_of.get(name)
            if row is not None and feasible[row]:
                result[row] = min(max(points, -LARGEST_POINTS), LARGEST_POINTS)
        return result


def passing_nodes(session: Session, task: Task, usage: Usage, without: tuple[str, ...]) -> Mask:
    """Return nodes with idle or releasing resources for a task that pass all filters but those in ``without``."""
    evaluator = framework_of(session).evaluator
    static = evaluator.static(task).mask
    result: Mask = fits(task.floor, usage.future_idle)
    result &= static if usage.rows is None else static[usage.rows]
    for predicate in evaluator.predicates:
        if not is_fixed(predicate) and predicate.name not in without and predicate.applies(task):
            result &= predicate.mask(task, usage)
    return result

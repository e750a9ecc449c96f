"""The answers that a third-party plugin may give, point by point; `vcd.scheduling.framework.guard` calls these checks.

A check receives the answer and the arguments of the call, and returns the answer in the form that the framework uses.
Predicates, scores and allowances have methods of their own, so they are wrapped to pass their plugin's gate, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from vcd.model.events import VolumeChoice
from vcd.model.reasons import Cause, InvalidReason, Reason, ReasonCode, well_formed
from vcd.scheduling.framework.guard import Check, Closed, Gate, GuardedMethod, MakeCheck, expected, is_ours
from vcd.scheduling.framework.plugin import Vote
from vcd.scheduling.framework.victims import Allowance, VictimsAnswer
from vcd.scheduling.search.candidates import NOWHERE
from vcd.scheduling.search.parts import (
    VOLUMES,
    Mask,
    Predicate,
    Reads,
    Score,
    Scores,
    VectorPredicate,
    VectorScore,
    compares,
    has_own_key,
    pod_keys,
)
from vcd.scheduling.session.nodes import Usage
from vcd.scheduling.session.object_problems import Problem
from vcd.scheduling.session.views import Task
from vcd.scheduling.topology.tree import Domain

REJECTED = ReasonCode("rejected", Cause.PLUGIN, "the plugin rejects it")

FAILED = ReasonCode("plugin-failed", Cause.PLUGIN, "the plugin failed, and forbids what it cannot judge")
"""The text names no error, because tenants read reasons and an error may name an object of another namespace. Errors
are in the plan's faults only."""

LARGEST_POINTS = 1e9
"""Limit of a score's weighted points. In millionths, float64 sums below 2**53 are exact integers."""


# --- predicates, scores and allowances --------------------------------------------------------------------------------


def _route_through_gate(
    guarded: Any, gate: Gate, part: Any, label: str, fields: Mapping[str, type], **methods: Check | None
) -> None:
    """Copy the declarations of a part to its guarded replacement, and route its methods through the gate."""
    for field, kind in fields.items():
        value = getattr(part, field, None)
        if not isinstance(value, kind):
            expected(f"{type(part).__name__}.{field} to be a {kind.__name__}", value)
        setattr(guarded, field, value)
    if fields:
        guarded.keys = _keys(part)
    if is_ours(type(part)) and isinstance(part, Predicate | Score):
        guarded.kinds = part.kinds
        methods |= dict.fromkeys(("labels_matter_in", "key_of") if has_own_key(part) else ("labels_matter_in",))
    label = f"{label} {part.name}" if fields else label
    for method, check in methods.items():
        check = None if gate.trusted else check
        closed = _CLOSED_PARTS.get(method)
        setattr(guarded, method, GuardedMethod(part, method, gate, check, f"{label}.{method}", closed))


def _keys(part: Any) -> tuple[str, ...]:
    """Return the declared keys. Fields of the spec are left out, because nothing holds the part to them: it may use the
    whole spec."""
    keys: Any = part.keys
    if not isinstance(keys, tuple) or not all(isinstance(key, str) for key in keys):
        expected(f"{type(part).__name__}.keys to be a tuple of texts", keys)
    return (*pod_keys(part), *([VOLUMES] if VOLUMES in keys else []))


class GuardedPredicate(Predicate):
    """A predicate behind its plugin's gate."""

    def __init__(self, gate: Gate, part: VectorPredicate) -> None:
        fields: dict[str, type] = {"name": str, "reason": Reason, "reads": Reads}
        methods: dict[str, Check | None] = {"applies": _truth, "mask": _mask, "reasons": _reasons}
        if is_ours(type(part)) and isinstance(part, Predicate):
            fields["waits"] = bool
            methods |= dict.fromkeys(("excludes_beside", "unresolvable_nodes"))
        _route_through_gate(self, gate, part, "predicate", fields, **methods)


class GuardedScore(Score):
    """A score behind its plugin's gate."""

    def __init__(self, gate: Gate, part: VectorScore) -> None:
        weight = part.weight
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight):
            expected("a finite number as the weight of a Score", weight)
        super().__init__(weight)

        limit = 1 if compares(part) else weight

        def raw(answer: Any, task: Task, usage: Usage) -> Scores:
            return _rating(answer, len(usage), limit)

        def normalised(answer: Any, raw: Scores, feasible: Mask) -> Scores:
            return _rating(answer, len(raw), weight)

        fields = {"name": str, "reads": Reads}
        methods: dict[str, Check | None] = {"applies": _truth, "raw": raw}
        if compares(part):
            methods["normalise"] = normalised
        _route_through_gate(self, gate, part, "score", fields, **methods)


class GuardedAllowance(Allowance):
    """An allowance behind its plugin's gate."""

    def __init__(self, gate: Gate, part: Allowance) -> None:
        _route_through_gate(self, gate, part, "Allowance", {}, permits=_truth, spend=None, spare=None)
        self.records_refusals = part.records_refusals is True


# --- what a plugin that failed forbids --------------------------------------------------------------------------------


def refuses(*arguments: Any) -> Reason:
    """Return the reason of a failed plugin, for points that return a refusal or None."""
    return FAILED()


def denies(*arguments: Any) -> bool:
    """Return False, for points that return whether something is allowed."""
    return False


def rejects(*arguments: Any) -> Vote:
    """Return a vote against, for points that return votes."""
    return Vote.REJECT


def no_victims(*arguments: Any) -> list[Task]:
    """Return no victims: the answer of a failed plugin at victims' points."""
    return []


def no_node(*arguments: Any) -> list[Predicate]:
    """Return a predicate that fails every node, for a plugin whose predicates are unknown."""
    return [_NoNode()]


class _NoNode(Predicate):
    """Fails every node."""

    name = "failed"
    reads = Reads.FACTS | Reads.JOB
    keys = ()
    reason = FAILED()

    def mask(self, task: Task, usage: Usage) -> Mask:
        return np.zeros(len(usage), np.bool_)


_CLOSED_PARTS: Mapping[str, Closed] = {
    "applies": lambda *arguments: True,
    "mask": lambda task, usage: np.zeros(len(usage), np.bool_),
    "unresolvable_nodes": lambda task, usage, failed: failed,
    "labels_matter_in": lambda *arguments: True,
    "excludes_beside": lambda *arguments: True,
    "key_of": lambda task: task.key,
    "reasons": lambda task, usage, failed: {FAILED(): int(failed.sum())},
    "permits": denies,
}
"""Answers of methods of predicates and allowances that fail. Scores of a failed plugin are left out."""


# --- what answers are -------------------------------------------------------------------------------------------------


def _plain(check: Check) -> MakeCheck:
    """Make a check that does not depend on the gate, except that trusted plugins are not checked."""
    return lambda gate: None if gate.trusted else check


def keys(gate: Gate) -> Check | None:
    """Accept keys of one form: keys of different forms cannot be compared."""
    if gate.trusted:
        return None
    form: list[Any] = []

    def check(answer: Any, *arguments: Any) -> Any:
        key, its_form = _read_key(answer)
        if not form:
            form.append(its_form)
        elif its_form != form[0]:
            expected(f"a key like the first one ({_form_in_words(form[0])})", answer)
        return key

    return check


def _read_key(answer: Any) -> tuple[Any, Any]:
    """Return a key in plain types, and its form: two keys can be compared if their forms are equal."""
    if isinstance(answer, np.generic):
        answer = answer.item()
    if isinstance(answer, bool | int | float):
        if answer != answer:
            expected("a key that equals itself", answer)
        return answer, "number"
    if isinstance(answer, str):
        return answer, "text"
    if isinstance(answer, tuple):
        read = [_read_key(part) for part in answer]
        return tuple([key for key, _ in read]), tuple([form for _, form in read])
    return expected("a key: a number, a text, or a tuple of these", answer)


def _form_in_words(form: Any) -> str:
    return form if isinstance(form, str) else f"({', '.join(map(_form_in_words, form))})"


@_plain
def refusal(answer: Any, *arguments: Any) -> Reason | None:
    """Accept a Reason, or None."""
    if answer is None:
        return None
    if not isinstance(answer, Reason):
        expected("a Reason, or None", answer)
    return check_reason(answer)


@_plain
def consent(answer: Any, *arguments: Any) -> Reason | None:
    """Accept any answer. Only a Reason is a refusal, as at points that only notify."""
    return check_reason(answer) if isinstance(answer, Reason) else None


def check_reason(reason: Any) -> Reason:
    """Return a reason that the log can hold: its code is declared, and its values have the declared types."""
    if not isinstance(reason, Reason):
        expected("a Reason", reason)
    try:
        return well_formed(reason)
    except InvalidReason as error:
        return expected(str(error), reason)


@_plain
def admission(answer: Any, *arguments: Any) -> Vote | Reason:
    """Accept a Vote, or a Reason, which is a reject with its cause."""
    if isinstance(answer, Reason):
        return check_reason(answer)
    return REJECTED() if _vote(answer) is Vote.REJECT else answer


def _vote(answer: Any, *arguments: Any) -> Vote:
    return answer if isinstance(answer, Vote) else expected("a Vote", answer)


def _truth(answer: Any, *arguments: Any) -> bool:
    return bool(answer) if isinstance(answer, bool | np.bool_) else expected("True or False", answer)


def _count(answer: Any, *arguments: Any) -> int:
    counts = isinstance(answer, int | np.integer) and not isinstance(answer, bool) and answer >= 0
    return int(answer) if counts else expected("a whole number, 0 or more", answer)


vote, truth, count = _plain(_vote), _plain(_truth), _plain(_count)


def victims(gate: Gate) -> Check:
    """Accept an allowance, some of the tasks in the call, or None."""

    def check(answer: Any, *arguments: Any) -> VictimsAnswer:
        if isinstance(answer, Allowance):
            return GuardedAllowance(gate, answer)
        return answer if answer is None or gate.trusted else _listed_victims(answer, *arguments)

    return check


def _listed_victims(answer: Any, *arguments: Any) -> list[Task]:
    """Accept some of the tasks in the call, each once. Return them in the order of the call."""
    offered: Sequence[Task] = arguments[-1]
    if not isinstance(answer, list | tuple):
        expected("a list of some of the tasks offered", answer)
    by_row = {task.row: task for task in offered}
    chosen: dict[int, Task] = {}
    for victim in answer:
        row: Any = getattr(victim, "row", None)
        task = by_row.get(row)
        if task is None or task is not victim or row in chosen:
            expected("each victim to be one of the tasks offered, named once", getattr(victim, "key", victim))
        chosen[row] = task
    return [task for task in offered if task.row in chosen]


listed_victims = _plain(_listed_victims)


@_plain
def row(answer: Any, task: Task, keys: Any) -> int | None:
    """Accept the row of a node that is feasible for the task, or None."""
    if answer is None:
        return None
    if isinstance(answer, bool) or not isinstance(answer, int | np.integer) or not 0 <= answer < len(keys):
        expected(f"a row from 0 to {len(keys) - 1}, or None", answer)
    if keys[answer] == NOWHERE:
        expected("the row of a node that takes the task, or None", int(answer))
    return int(answer)


@_plain
def domains(answer: Any, *arguments: Any) -> list[list[Domain]] | None:
    """Accept rows of Domains, or None."""
    return None if answer is None else [list(_every(row, Domain)) for row in _every(answer)]


@_plain
def ratings(answer: Any, subject: Any, items: Sequence[Any]) -> list[float]:
    """Accept one finite number for each item, or none at all."""
    found = [float(each) for each in _every(answer, (int, float, np.number))]
    if len(found) not in (0, len(items)) or not all(map(math.isfinite, found)):
        expected(f"{len(items)} finite numbers", answer)
    return found


def _every(answer: Any, kind: type | tuple[type, ...] = object) -> tuple[Any, ...]:
    """Return all items of an iterable; third-party generators run here, within the plugin's time limit."""
    found = tuple(answer) if isinstance(answer, Iterable) else expected("an iterable", answer)
    wrong = [each for each in found if not isinstance(each, kind)]
    names = kind.__name__ if isinstance(kind, type) else kind[0].__name__
    return expected(f"{names}s", wrong[0]) if wrong else found


every = _plain(_every)
volumes = _plain(lambda answer, *arguments: _every(answer, VolumeChoice))


def problems(kinds: Collection[str]) -> MakeCheck:
    """Make a check of Problems, which become Events: their words must be texts, their kinds must be in ``kinds``."""

    def check(answer: Any) -> tuple[Problem, ...]:
        found = _every(answer)
        for each in found:
            if not isinstance(each, Problem) or not all(isinstance(text, str) for text in (each.key, each.message)):
                expected("Problems, their keys and messages texts", each)
            if each.kind and each.kind not in kinds:
                expected(f"the kind of a Problem to be one of {', '.join(kinds)}, or none", each.kind)
        return found

    return _plain(check)


def _parts(kind: type, guarded: Callable[[Gate, Any], Any]) -> MakeCheck:
    """Make a check of predicates or scores, which wraps each of them behind the gate."""
    return lambda gate: lambda answer, *arguments: [guarded(gate, part) for part in _every(answer, kind)]


predicates, scores = _parts(VectorPredicate, GuardedPredicate), _parts(VectorScore, GuardedScore)


@_plain
def texts(answer: Any, *arguments: Any) -> dict[str, str]:
    """Accept texts by annotation."""
    if not isinstance(answer, Mapping) or not all(isinstance(text, str) for pair in answer.items() for text in pair):
        expected("texts by annotation", answer)
    return dict(answer)


def _mask(answer: Any, task: Task, usage: Usage, *arguments: Any) -> Mask:
    count = len(usage)
    if not isinstance(answer, np.ndarray) or answer.dtype != np.bool_ or answer.shape != (count,):
        expected(f"an array of bool of shape ({count},)", answer)
    return answer


def _rating(answer: Any, count: int, weight: float) -> Scores:
    if not isinstance(answer, np.ndarray) or answer.dtype != np.float64 or answer.shape != (count,):
        expected(f"an array of float64 of shape ({count},)", answer)
    if not np.isfinite(answer).all():
        expected("finite points", answer[~np.isfinite(answer)][0].item())
    if count and np.abs(answer).max() * abs(weight) > LARGEST_POINTS:
        expected(f"points of at most {LARGEST_POINTS:g}, weight included", np.abs(answer).max().item() * abs(weight))
    return answer


def _reasons(answer: Any, *arguments: Any) -> dict[Reason, int]:
    fits = isinstance(answer, Mapping) and all(
        isinstance(reason, Reason) and isinstance(nodes, int | np.integer) for reason, nodes in answer.items()
    )
    if not fits:
        expected("numbers by Reason", answer)
    return {check_reason(reason): int(nodes) for reason, nodes in answer.items()}

"""The way into plugins and actions that are not ours: what they answer is checked where it comes in.

Ours are tested with the rest and asked directly. Those from elsewhere may raise, give nonsense or never come back, and
a cycle goes on without them (`vcd.scheduling.decide`). So each call of theirs passes a `Gate`: a `Watch` is told who
is asked, and whatever comes out but an answer that the point allows is theirs to blame.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np

from vcd.model.events import VolumeChoice
from vcd.model.status import TaskStatus
from vcd.scheduling.framework.arguments import ArgumentValues
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.points import Vote
from vcd.scheduling.framework.victims import Allowance, VictimsAnswer
from vcd.scheduling.search.parts import Depends, Mask, Predicate, Score, Scores, tells_kinds
from vcd.scheduling.session.nodes import Usage
from vcd.scheduling.session.reasons import Problem, Refusal
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task

T = TypeVar("T", bound=np.generic)
Check = Callable[..., Any]
"""Called with an answer and what was asked; gives the answer as the framework takes it, or calls `_expected`."""

LARGEST_POINTS = 1e9
"""A score's weighted points lie within this: in millionths, sums of float64 are whole numbers up to 2**53."""
_SHOWN = 200
"""Characters of an answer or an error that a fault shows."""
_OURS = "vcd."
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_ACTION = "action "
_NOWHERE = int(np.iinfo(np.int64).min)
_ON_NODES = (TaskStatus.ALLOCATED, TaskStatus.PIPELINED, TaskStatus.BINDING, TaskStatus.RELEASING)


class Watch(Protocol):
    """Who is told when a plugin or action that is not ours is entered and left, and may interrupt the session there."""

    def enter(self, name: str, point: str) -> int:
        """The deciding thread goes into it; the number of those that it was in before."""

    def leave(self, depth: int) -> None:
        """The deciding thread comes back from it, and is in as many as ``enter`` said."""


class Interrupted(BaseException):
    """Raised by a Watch at the gate of a plugin or action that took too long; no plugin that asks it may catch it."""


class Nonsense(ValueError):
    """An answer that its point does not allow: who gave it where, what was expected, and what came."""

    def __init__(self, name: str, point: str, expected: str, given: str) -> None:
        super().__init__(f"{name}, asked at {point}: expected {expected}, got {given}")
        self.in_words = f"expected {expected} at {point}, got {given}"


class Unexpected(Exception):
    """What a check raises."""


def is_ours(kind: type) -> bool:
    """Whether a class comes with vcd."""
    return kind.__module__.startswith(_OURS)


def is_asked_directly(kind: type) -> bool:
    """Whether it comes with vcd and nobody watches over it."""
    return is_ours(kind) and not getattr(kind, "asks_outside", False)


# --- faults -----------------------------------------------------------------------------------------------------------


def action_name(name: str) -> str:
    """How faults name an action, which may be called as a plugin is."""
    return f"{_ACTION}{name}"


def fault(name: str, error: BaseException) -> str:
    """A fault as a plan has it: ``name: error``. Of an error's text it holds nothing that differs from run to run."""
    return f"{name}: {error.in_words if isinstance(error, Nonsense) else _shown(error)}"


def name_in(text: str) -> str:
    """The plugin, or ``action NAME``, that a fault is about."""
    return text.partition(": ")[0]


def _shown(value: object) -> str:
    """A value as one line of a fault."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    try:
        text = " ".join(_ADDRESS.sub("", repr(value)).split())
    except Exception:  # noqa: BLE001 - a stranger's object may fail to tell what it is
        return f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def expected(what: str, answer: object) -> NoReturn:
    raise Unexpected(what, _shown(answer))


# --- gates ------------------------------------------------------------------------------------------------------------


class Gate:
    """The way into one plugin or action."""

    __slots__ = ("name", "watch")

    def __init__(self, name: str, watch: Watch | None) -> None:
        self.name = name
        self.watch = watch

    def ask(
        self, point: str, check: Check | None, asked: tuple[Any, ...], method: Callable[..., Any], *given: Any
    ) -> Any:
        """What ``method`` answers, given ``given``, as ``check`` takes it. ``asked`` is the question for the check.

        Raises Nonsense, and what the method raises; what would end the program is Nonsense, too.
        """
        watch = self.watch
        depth = 0 if watch is None else watch.enter(self.name, point)
        try:
            answer = method(*given)
            return answer if check is None else check(answer, *asked)
        except Unexpected as wrong:
            raise Nonsense(self.name, point, *wrong.args) from None
        except (StopIteration, StopAsyncIteration) as error:  # a generator of ours would turn it into another error
            raise Nonsense(self.name, point, "an answer", _shown(error)) from error
        except (Exception, Interrupted, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise Nonsense(self.name, point, "an answer", _shown(error)) from error
        finally:
            if watch is not None:
                watch.leave(depth)


class GuardedPoint:
    """A plugin's method for a point, behind its gate; it passes for the bound method that it stands for."""

    __slots__ = ("__self__", "_check", "_gate", "_method", "_point")

    def __init__(self, plugin: Plugin, point: str, watch: Watch | None) -> None:
        self.__self__ = plugin
        self._gate = Gate(plugin.name, watch)
        self._point = point
        self._method = getattr(plugin, point)
        make = _CHECKS.get(point)
        self._check = None if make is None else make(self._gate)

    def __call__(self, *asked: Any) -> Any:
        return self._gate.ask(self._point, self._check, asked, self._method, *[_sealed(each) for each in asked])


def point(plugin: Plugin, name: str, watch: Watch | None) -> Callable[..., Any]:
    """A plugin's method for a point as the framework calls it."""
    method: Callable[..., Any] = getattr(plugin, name)
    return method if is_asked_directly(type(plugin)) else GuardedPoint(plugin, name, watch)


def make(kind: type[Plugin], arguments: ArgumentValues, flags: Mapping[str, bool], watch: Watch | None) -> Plugin:
    """A new instance of a plugin, with its enable flags."""

    def made() -> Plugin:
        plugin = kind(arguments)
        plugin.flags = flags
        return plugin

    if is_asked_directly(kind):
        return made()
    plugin: Plugin = Gate(kind.name, watch).ask("__init__", None, (), made)
    return plugin


def open_plugin(plugin: Plugin, session: Session, watch: Watch | None) -> None:
    """Tell a plugin that the session begins."""
    if is_asked_directly(type(plugin)):
        plugin.open(session)
    else:
        Gate(plugin.name, watch).ask("open", None, (), plugin.open, session)


def close_plugin(plugin: Plugin, session: Session, watch: Watch | None) -> None:
    """Tell a plugin that the session ends."""
    if is_asked_directly(type(plugin)):
        plugin.close(session)
    else:
        Gate(plugin.name, watch).ask("close", None, (), plugin.close, session)


def _sealed(value: Any) -> Any:
    """What a stranger may look at, and not change."""
    if isinstance(value, list):
        return list(value)
    if isinstance(value, np.ndarray):
        return _read_only(value)
    if isinstance(value, Usage):
        return Usage(_read_only(value.matrix), _read_only(value.allocatable), len(value.allocatable), value.rows)
    return value


def _read_only(array: np.ndarray[Any, np.dtype[T]]) -> np.ndarray[Any, np.dtype[T]]:
    view = array.view()
    view.flags.writeable = False
    return view


# --- predicates and scores --------------------------------------------------------------------------------------------


class GuardedPredicate(Predicate):
    """A predicate behind its plugin's gate."""

    def __init__(self, gate: Gate, part: Predicate) -> None:
        self._gate = gate
        self._part = part
        self.owner = gate.name
        _take_over(self, part, {"name": str, "reason": str, "depends": Depends, "unresolvable": bool, "reads": tuple})
        if tells_kinds(part):
            vars(self)["kind_of"] = self._kind_of

    def _ask(self, question: str, check: Check, task: Task, *given: Any) -> Any:
        method, where = getattr(self._part, question), f"predicate {self.name}.{question}"
        return self._gate.ask(where, check, (task, *given), method, task, *[_sealed(each) for each in given])

    def applies(self, task: Task) -> bool:
        return self._ask("applies", _truth, task)  # type: ignore[no-any-return]

    def _kind_of(self, task: Task) -> Hashable:
        return self._ask("kind_of", _kind, task)  # type: ignore[no-any-return]

    def mask(self, task: Task, usage: Usage) -> Mask:
        return self._ask("mask", _mask, task, usage)  # type: ignore[no-any-return]

    def hopeless(self, task: Task, usage: Usage, failed: Mask) -> Mask:
        return self._ask("hopeless", _mask, task, usage, failed)  # type: ignore[no-any-return]

    def reasons(self, task: Task, usage: Usage, failed: Mask) -> Mapping[str, int]:
        return self._ask("reasons", _reasons, task, usage, failed)  # type: ignore[no-any-return]


class GuardedScore(Score):
    """A score behind its plugin's gate."""

    def __init__(self, gate: Gate, part: Score) -> None:
        weight = part.weight
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight):
            expected("a finite number as the weight of a Score", weight)
        super().__init__(weight)
        self._gate = gate
        self._part = part
        self.owner = gate.name
        _take_over(self, part, {"name": str, "depends": Depends, "normalised": bool, "reads": tuple})
        if tells_kinds(part):
            vars(self)["kind_of"] = self._kind_of

    def _ask(self, question: str, check: Check, asked: tuple[Any, ...], *given: Any) -> Any:
        method, where = getattr(self._part, question), f"score {self.name}.{question}"
        return self._gate.ask(where, check, asked, method, *[_sealed(each) for each in given])

    def applies(self, task: Task) -> bool:
        return self._ask("applies", _truth, (), task)  # type: ignore[no-any-return]

    def _kind_of(self, task: Task) -> Hashable:
        return self._ask("kind_of", _kind, (), task)  # type: ignore[no-any-return]

    def raw(self, task: Task, usage: Usage) -> Scores:
        weight = 1 if self.normalised else self.weight
        return self._ask("raw", _points, (len(usage), weight), task, usage)  # type: ignore[no-any-return]

    def normalise(self, raw: Scores, feasible: Mask) -> Scores:
        return self._ask("normalise", _points, (len(raw), self.weight), raw, feasible)  # type: ignore[no-any-return]


class GuardedAllowance(Allowance):
    """An allowance behind its plugin's gate."""

    def __init__(self, gate: Gate, part: Allowance) -> None:
        self._gate = gate
        self._part = part

    def permits(self, task: Task) -> bool:
        return self._gate.ask("Allowance.permits", _truth, (), self._part.permits, task)  # type: ignore[no-any-return]

    def spend(self, task: Task) -> None:
        self._gate.ask("Allowance.spend", None, (), self._part.spend, task)


def _take_over(guarded: Predicate | Score, part: Predicate | Score, fields: Mapping[str, type]) -> None:
    """Have the guarded part declare what the part behind it does."""
    for field, kind in fields.items():
        value = getattr(part, field, None)
        if not isinstance(value, kind):
            expected(f"{type(part).__name__}.{field} to be a {kind.__name__}", value)
        setattr(guarded, field, value)


# --- checks -----------------------------------------------------------------------------------------------------------


def _key(gate: Gate) -> Check:
    """Keys, all of one form: those of another could not be compared with them."""
    form: list[Any] = []

    def check(answer: Any, *asked: Any) -> Any:
        key, its_form = _read_key(answer)
        if not form:
            form.append(its_form)
        elif its_form != form[0]:
            expected(f"a key like the first one ({_form_in_words(form[0])})", answer)
        return key

    return check


def _read_key(answer: Any) -> tuple[Any, Any]:
    """A key in plain types, and its form: the types as far as they matter to a comparison."""
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


def _kind(answer: Any, *asked: Any) -> Hashable:
    """Kinds are compared with those of earlier sessions: plain values, which stay what they are."""
    if isinstance(answer, np.generic):
        answer = answer.item()
    if isinstance(answer, tuple):
        return tuple([_kind(part) for part in answer])
    if answer is None or (isinstance(answer, bool | int | float | str) and answer == answer):
        return answer
    return expected("a kind: None, a number, a text, or a tuple of these", answer)


def _form_in_words(form: Any) -> str:
    return form if isinstance(form, str) else f"({', '.join(map(_form_in_words, form))})"


def _refusal(answer: Any, *asked: Any) -> Refusal | None:
    if answer is None:
        return None
    if not isinstance(answer, Refusal):
        expected("a Refusal, or None", answer)
    return _well_told(answer)


def _consent(answer: Any, *asked: Any) -> Refusal | None:
    """What is no Refusal is not looked at, as at the points of rule NOTIFY."""
    return _well_told(answer) if isinstance(answer, Refusal) else None


def _well_told(refusal: Refusal) -> Refusal:
    """A refusal goes into the log: its words have to be texts."""
    detail = refusal.detail
    if not isinstance(refusal.reason, str):
        expected("a text as the reason of a Refusal", refusal.reason)
    if not isinstance(detail, Mapping) or not all(isinstance(text, str) for pair in detail.items() for text in pair):
        expected("texts by name as the detail of a Refusal", detail)
    return refusal


def _admission(answer: Any, *asked: Any) -> Vote | Refusal:
    if isinstance(answer, Refusal):
        return _well_told(answer)
    return Refusal("the plugin rejects it") if _vote(answer) is Vote.REJECT else answer


def _vote(answer: Any, *asked: Any) -> Vote:
    return answer if isinstance(answer, Vote) else expected("a Vote", answer)


def _truth(answer: Any, *asked: Any) -> bool:
    return bool(answer) if isinstance(answer, bool | np.bool_) else expected("True or False", answer)


def _victims(gate: Gate) -> Check:
    def check(answer: Any, *asked: Any) -> VictimsAnswer:
        if isinstance(answer, Allowance):
            return GuardedAllowance(gate, answer)
        return None if answer is None else _listed_victims(answer, *asked)

    return check


def _listed_victims(answer: Any, *asked: Any) -> list[Task]:
    """Some of the tasks that were offered, each once, in the order in which they were."""
    offered: Sequence[Task] = asked[-1]
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


def _one_offered(answer: Any, *asked: Any) -> Any:
    if answer is not None and not any(answer is each for each in asked[-1]):
        expected("one of those offered, or None", getattr(answer, "key", answer))
    return answer


def _row(answer: Any, task: Task, keys: Any) -> int | None:
    if answer is None:
        return None
    if isinstance(answer, bool) or not isinstance(answer, int | np.integer) or not 0 <= answer < len(keys):
        expected(f"a row from 0 to {len(keys) - 1}, or None", answer)
    if keys[answer] == _NOWHERE:
        expected("the row of a node that takes the task, or None", int(answer))
    return int(answer)


def every(answer: Any, *asked: Any) -> tuple[Any, ...]:
    """All of an iterable, made within the plugin's time."""
    return tuple(answer) if isinstance(answer, Iterable) else expected("an iterable", answer)


def problems_of(answer: Any, kinds: Collection[str]) -> tuple[Problem, ...]:
    """Problems are told in Events about their objects: their words have to be texts, their kinds known."""
    found = every(answer)
    for each in found:
        if not isinstance(each, Problem) or not all(isinstance(text, str) for text in (each.key, each.message)):
            expected("Problems, their keys and messages texts", each)
        if each.kind and each.kind not in kinds:
            expected(f"the kind of a Problem to be one of {', '.join(kinds)}, or none", each.kind)
    return found


def _predicates(gate: Gate) -> Check:
    def check(answer: Any, *asked: Any) -> list[Predicate]:
        parts = every(answer)
        wrong = [part for part in parts if not isinstance(part, Predicate)]
        return expected("Predicates", wrong[0]) if wrong else [GuardedPredicate(gate, part) for part in parts]

    return check


def _scores(gate: Gate) -> Check:
    def check(answer: Any, *asked: Any) -> list[Score]:
        parts = every(answer)
        wrong = [part for part in parts if not isinstance(part, Score)]
        return expected("Scores", wrong[0]) if wrong else [GuardedScore(gate, part) for part in parts]

    return check


def _volumes(answer: Any, *asked: Any) -> tuple[VolumeChoice, ...]:
    choices = every(answer)
    wrong = [choice for choice in choices if not isinstance(choice, VolumeChoice)]
    return expected("VolumeChoices", wrong[0]) if wrong else choices


def _texts(answer: Any, *asked: Any) -> dict[str, str]:
    if not isinstance(answer, Mapping) or not all(isinstance(text, str) for pair in answer.items() for text in pair):
        expected("texts by annotation", answer)
    return dict(answer)


def _mask(answer: Any, task: Task, usage: Usage, *asked: Any) -> Mask:
    count = len(usage)
    if not isinstance(answer, np.ndarray) or answer.dtype != np.bool_ or answer.shape != (count,):
        expected(f"an array of bool of shape ({count},)", answer)
    return answer


def _points(answer: Any, count: int, weight: float) -> Scores:
    if not isinstance(answer, np.ndarray) or answer.dtype != np.float64 or answer.shape != (count,):
        expected(f"an array of float64 of shape ({count},)", answer)
    if not np.isfinite(answer).all():
        expected("finite points", answer[~np.isfinite(answer)][0].item())
    if count and np.abs(answer).max() * abs(weight) > LARGEST_POINTS:
        expected(f"points of at most {LARGEST_POINTS:g}, weight included", np.abs(answer).max().item() * abs(weight))
    return answer


def _reasons(answer: Any, *asked: Any) -> dict[str, int]:
    fits = isinstance(answer, Mapping) and all(
        isinstance(reason, str) and isinstance(nodes, int | np.integer) for reason, nodes in answer.items()
    )
    return {reason: int(nodes) for reason, nodes in answer.items()} if fits else expected("numbers by reason", answer)


def _same(check: Check) -> Callable[[Gate], Check]:
    return lambda gate: check


_CHECKS: Mapping[str, Callable[[Gate], Check]] = {
    **dict.fromkeys(
        ("queue_order", "job_order", "sub_job_order", "task_order", "cluster_order", "victim_queue_order"), _key
    ),
    **dict.fromkeys(
        (
            "job_valid",
            "overused",
            "allocatable",
            "preemptive",
            "pre_predicate",
            "simulate_predicate",
            "simulate_allocatable",
        ),
        _same(_refusal),
    ),
    "job_enqueueable": _same(_admission),
    "on_allocate": _same(_consent),
    **dict.fromkeys(("job_ready", "sub_job_ready", "job_starving"), _same(_truth)),
    **dict.fromkeys(("job_pipelined", "sub_job_pipelined"), _same(_vote)),
    "predicates": _predicates,
    **dict.fromkeys(("node_order", "batch_node_order"), _scores),
    "best_node": _same(_row),
    **dict.fromkeys(("preemptable", "reclaimable", "unified_evictable"), _victims),
    "victim_tasks": _same(_listed_victims),
    "target_job": _same(_one_offered),
    "pre_bind": _same(_volumes),
    "bind_annotations": _same(_texts),
}
"""How the answer at a point is checked; what a point of rule NOTIFY gives back is not looked at."""

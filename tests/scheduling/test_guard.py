"""Plugins and actions that are not ours: nonsense is found where it comes in, blamed on who gave it, and left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.dsl import NOW_NS, flat, gang, node, open_session, queue
from tests.plugins.opened import job_of, task_of
from tests.reasons import because
from vcd.model import events as ev
from vcd.model.reasons import Reason
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import decide, instances, run
from vcd.scheduling.framework import execution, guard, registry
from vcd.scheduling.framework.action import Action
from vcd.scheduling.framework.declared_reasons import all_told
from vcd.scheduling.framework.framework import Framework, framework_of
from vcd.scheduling.framework.guard import InvalidAnswer
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.points import POINTS, Vote
from vcd.scheduling.framework.victims import Allowance
from vcd.scheduling.search.candidates import Memory
from vcd.scheduling.search.parts import Predicate, Reads, Score, distinguishes_pods
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement
from vcd.state.snapshot import Snapshot, SnapshotMaker
from vcd.timetravel.planning import state_of

CONF = "actions: enqueue, allocate, backfill\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n"
WITH = CONF + "  - name: odd\n"


def snapshot_of(*objects: Any) -> Snapshot:
    return SnapshotMaker(state_of(flat(objects))).snapshot()


def cluster() -> Snapshot:
    return snapshot_of(
        [node(f"n{i}", cpu=8) for i in range(3)],
        [queue("q")],
        gang("old", 2, on=["n0", "n1"], cpu=2),
        gang("a", 2, cpu=2, created=1),
        gang("b", 1, cpu=3, created=2, queue="q"),
        gang("c", 1, cpu=99, created=3),
    )


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., type[Plugin]]:
    """Have a plugin named odd, with these members, beside ours."""
    known = dict(registry.plugins())

    def offered(**members: Any) -> type[Plugin]:
        kind = type("Odd", (Plugin,), {"name": "odd", "__module__": __name__, **members})
        monkeypatch.setattr(registry, "plugins", lambda: MappingProxyType({**known, "odd": kind}))
        return kind

    return offered


def act(monkeypatch: pytest.MonkeyPatch, execute: Callable[[Session], None]) -> None:
    """Have an action named odd beside ours."""

    class Odd(Action):
        name = "odd"

        def execute(self, framework: Framework) -> None:
            execute(framework.session)

    known = {**registry.actions(), "odd": Odd}
    monkeypatch.setattr(registry, "actions", lambda: MappingProxyType(known))


def opened(conf: str = WITH, snapshot: Snapshot | None = None) -> Session:
    policy = read_policy(conf)
    return open_session(snapshot or cluster(), policy, instances(policy), NOW_NS, 0, Memory())


def asked_of(plugin: Plugin, point: str) -> guard.Method:
    """A plugin's method for a point as a session asks it."""
    return guard.Guard().method(plugin, point, POINTS[point].check)


def says(answer: Any) -> Callable[..., Any]:
    """A method that answers so whatever it is asked."""
    return lambda self, *asked: answer


# --- one answer -------------------------------------------------------------------------------------------------------

NAN, INFINITE = float("nan"), float("inf")

WRONG: list[tuple[str, Any, str]] = [
    *[
        (point, answer, "expected a key")
        for point in ("queue_order", "job_order", "task_order", "sub_job_order", "victim_queue_order")
        for answer in (None, NAN, (1, None), (1, NAN), [1], {1: 2}, np.array([1]), b"x")
    ],
    *[
        (point, answer, "Reason")
        for point in ("job_valid", "overused", "allocatable", "preemptive", "pre_predicate")
        for answer in (False, True, "no", Vote.REJECT, Reason)
    ],
    ("job_valid", Reason(3), "a Reason with texts"),  # type: ignore[arg-type]
    ("job_valid", Reason("nobody declared this"), "a declared code"),
    ("job_valid", because("no", {"cpu": 3}), "a Reason with texts"),  # type: ignore[dict-item]
    ("job_valid", Reason(because().code, "x"), "a Reason with texts"),  # type: ignore[arg-type]
    *[("job_enqueueable", answer, "a Vote") for answer in (None, True, 1, "yes")],
    *[("job_pipelined", answer, "a Vote") for answer in (None, True, 1)],
    *[("sub_job_pipelined", answer, "a Vote") for answer in (None, False, 0)],
    *[("job_ready", answer, "True or False") for answer in (None, 1, "yes", Vote.PERMIT)],
    *[("missing_tasks", answer, "0 or more") for answer in (None, -1, 1.0, True, "one", np.float64(1))],
    *[("sub_job_ready", answer, "True or False") for answer in (None, 1)],
    *[("job_starving", answer, "True or False") for answer in (None, 0)],
    *[("predicates", answer, "Predicates") for answer in ([1], [Predicate], [Score()])],
    *[("predicates", answer, "an iterable") for answer in (None, 3)],
    *[("node_order", answer, "Scores") for answer in ([1], [Score], [Predicate()])],
    ("batch_node_order", [None], "Scores"),
    *[("pre_bind", answer, "expected") for answer in (None, ["claim"])],
    *[("bind_annotations", answer, "texts by annotation") for answer in (None, {"a": 1}, {1: "a"}, [("a", "b")])],
]


@pytest.mark.parametrize(("point", "answer", "expected"), WRONG)
def test_nonsense_is_told_with_plugin_point_and_what_was_expected(
    offer: Callable[..., type[Plugin]], point: str, answer: Any, expected: str
) -> None:
    plugin = offer(**{point: says(answer)})(read_arguments())
    asked = (None, []) if point == "preemptive" else (None,)
    with pytest.raises(InvalidAnswer, match=f"odd, asked at {point}: expected .*") as raised:
        asked_of(plugin, point)(*asked)
    assert expected in str(raised.value)


def read_arguments() -> Any:
    from vcd.scheduling.framework.arguments import parse_arguments

    return parse_arguments((), {})


RIGHT: list[tuple[str, Any, Any]] = [
    *[("job_order", key, key) for key in (1, -1.5, INFINITE, True, "x", (), (1, ("a", 2.0)))],
    ("job_order", np.int64(3), 3),
    ("job_order", (np.float64(1), np.str_("a")), (1.0, "a")),
    ("job_valid", None, None),
    ("job_enqueueable", Vote.ABSTAIN, Vote.ABSTAIN),
    ("job_enqueueable", Vote.REJECT, Reason("rejected")),
    ("job_ready", np.True_, True),
    ("missing_tasks", 0, 0),
    ("missing_tasks", np.int64(3), 3),
    ("pre_bind", [ev.VolumeChoice("ns/claim")], (ev.VolumeChoice("ns/claim"),)),
    ("pre_bind", iter(()), ()),
    ("bind_annotations", MappingProxyType({"a": "b"}), {"a": "b"}),
    ("on_allocate", "whatever", None),
    ("on_allocate", because(), because()),
    ("on_deallocate", "whatever", "whatever"),
]


@pytest.mark.parametrize(("point", "answer", "taken"), RIGHT)
def test_what_a_point_allows_is_taken(offer: Callable[..., type[Plugin]], point: str, answer: Any, taken: Any) -> None:
    result = asked_of(offer(**{point: says(answer)})(read_arguments()), point)(None)
    assert result == taken
    assert type(result) is type(taken)


def test_keys_of_one_session_have_one_form(offer: Callable[..., type[Plugin]]) -> None:
    """A text and a number could not be compared, and the framework would be to blame."""
    answers = iter([(1, "a"), (True, "b"), (2.5, "c"), ("a", 1)])
    key = asked_of(offer(job_order=lambda self, job: next(answers))(read_arguments()), "job_order")
    assert [key(None) for _ in range(3)] == [(1, "a"), (True, "b"), (2.5, "c")]
    with pytest.raises(InvalidAnswer, match=r"a key like the first one \(\(number, text\)\)"):
        key(None)


def test_ours_are_asked_directly() -> None:
    session = opened(CONF)
    methods = [method for who in framework_of(session).participants.values() for method in who.methods]
    assert methods
    assert not any(isinstance(method, guard.GuardedMethod) for method in methods)


# --- tasks, jobs and rows ---------------------------------------------------------------------------------------------

VICTIM_POINTS = ("preemptable", "reclaimable", "unified_evictable")


@pytest.mark.parametrize("point", [*VICTIM_POINTS, "victim_tasks"])
@pytest.mark.parametrize("answer", ["not offered", "twice", "key", "set", 3])
def test_victims_are_among_those_offered(offer: Callable[..., type[Plugin]], point: str, answer: Any) -> None:
    offer()
    session = opened()
    first, second, other = (task_of(session, name) for name in ("old-0", "old-1", "a-0"))
    given = {"not offered": [first, other], "twice": [first, first], "key": [first.key], "set": {first}}.get(answer, 3)
    method = asked_of(offer(**{point: says(given)})(read_arguments()), point)
    with pytest.raises(InvalidAnswer, match="offered"):
        method(*((other, [first, second]) if point != "victim_tasks" else ([first, second],)))


@pytest.mark.parametrize("point", VICTIM_POINTS)
def test_victims_come_in_the_order_of_the_offer(offer: Callable[..., type[Plugin]], point: str) -> None:
    offer()
    session = opened()
    tasks = [task_of(session, name) for name in ("old-0", "old-1")]
    method = asked_of(offer(**{point: lambda self, asker, given: given[::-1]})(read_arguments()), point)
    assert method(None, tasks) == tasks
    assert asked_of(offer(**{point: says(None)})(read_arguments()), point)(None, tasks) is None


def test_a_plugin_does_not_change_the_offer(offer: Callable[..., type[Plugin]]) -> None:
    offer()
    session = opened()
    tasks = [task_of(session, name) for name in ("old-0", "old-1")]
    kind = offer(preemptable=lambda self, asker, given: given.clear() or given)
    assert asked_of(kind(read_arguments()), "preemptable")(None, tasks) == []
    assert len(tasks) == 2


@pytest.mark.parametrize("question", ["permits", "spend", "spare"])
def test_what_several_are_allowed_together_is_asked_through_the_gate(
    offer: Callable[..., type[Plugin]], question: str
) -> None:
    """An allowance that answers nonsense, or raises when a task is evicted or spared, is its plugin's to blame."""

    class Odd(Allowance):
        records_refusals = True

        def permits(self, task: Any) -> Any:
            return "perhaps" if question == "permits" else question == "spend"

        def spend(self, task: Any) -> None:
            raise KeyError("spend")

        def spare(self, task: Any) -> None:
            raise KeyError("spare")

    conf = "actions: preempt\ntiers:\n- plugins:\n  - name: odd\n"
    offer(preemptable=lambda self, asker, given: Odd(), job_starving=lambda self, job: job.name == "new")
    old, new = gang("old", 1, on=["n"], cpu=4), gang("new", 1, cpu=4)
    plan = decide(snapshot_of(node("n", cpu=4), old, new), read_policy(conf), NOW_NS, 0)
    nonsense = "expected True or False at Allowance.permits, got 'perhaps'"
    expected = nonsense if question == "permits" else f"KeyError('{question}')"
    assert plan.faults == (f"odd: {expected}",)


@pytest.mark.parametrize("row", [-1, 3, 99, 1.0, True, "n0", np.float64(1)])
def test_a_best_node_is_a_row(offer: Callable[..., type[Plugin]], row: Any) -> None:
    offer(best_node=says(row))
    plan = decide(cluster(), read_policy(WITH), NOW_NS, 0)
    assert plan.faults[0].startswith("odd: expected a row from 0 to 2, or None at best_node, got ")


def test_a_best_node_takes_the_task(offer: Callable[..., type[Plugin]]) -> None:
    """The row of a node that is full exists, and would put it over."""
    offer(best_node=says(0))
    snapshot = snapshot_of(node("full", cpu=1), node("m"), gang("g", 1, cpu=2))
    plan = decide(snapshot, read_policy(WITH), NOW_NS, 0)
    assert plan.faults == ("odd: expected the row of a node that takes the task, or None at best_node, got 0",)
    assert [op.node for s in plan.statements for op in s.operations] == ["m"]


def test_a_best_node_may_be_a_number_of_numpy(offer: Callable[..., type[Plugin]]) -> None:
    offer(best_node=says(np.int64(1)))
    plan = decide(snapshot_of(node("n"), node("m"), gang("g", 1, cpu=1)), read_policy(WITH), NOW_NS, 0)
    assert plan.faults == ()
    assert [op.node for s in plan.statements for op in s.operations] == ["n"]


# --- columns ----------------------------------------------------------------------------------------------------------


class _Passes(Predicate):
    """Passes what it is told to."""

    name = "fit"
    reason = because("does not fit")
    answer: ClassVar[Any] = None
    among: ClassVar[Any] = None

    def mask(self, task: Any, usage: Any) -> Any:
        return type(self).answer(len(usage)) if self.answer is not None else np.ones(len(usage), np.bool_)


class _Rates(Score):
    name = "rate"
    answer: ClassVar[Any] = None

    def raw(self, task: Any, usage: Any) -> Any:
        return type(self).answer(len(usage))


def predicate(**members: Any) -> Predicate:
    return type("Fit", (_Passes,), members)()  # type: ignore[no-any-return]


def score(weight: float = 1, **members: Any) -> Score:
    return type("Rate", (_Rates,), members)(weight)  # type: ignore[no-any-return]


MASKS: list[tuple[Callable[[int], Any], str]] = [
    (lambda n: None, "got None"),
    (lambda n: [True] * n, "got [True"),
    (lambda n: np.ones(n), "got an array of float64 of shape (3,)"),
    (lambda n: np.ones(n, np.int64), "got an array of int64"),
    (lambda n: np.ones(n + 1, np.bool_), "of shape (4,)"),
    (lambda n: np.ones((n, 1), np.bool_), "of shape (3, 1)"),
    (lambda n: np.True_, "got "),
]


@pytest.mark.parametrize(("answer", "told"), MASKS)
@pytest.mark.parametrize("reads", [Reads.FACTS, Reads.USAGE | Reads.FACTS, Reads.PODS])
def test_a_mask_is_a_bool_for_each_node(
    offer: Callable[..., type[Plugin]], answer: Callable[[int], Any], told: str, reads: Reads
) -> None:
    offer(predicates=lambda self: [predicate(answer=staticmethod(answer), reads=reads)])
    plan = decide(cluster(), read_policy(WITH), NOW_NS, 0)
    assert plan.faults[0].startswith("odd: expected an array of bool of shape (3,) at predicate fit.mask, got")
    assert told in plan.faults[0]
    assert plan.statements == ()  # a node that it cannot judge takes nothing


def test_parts_that_tell_no_kinds_are_not_asked_for_them(offer: Callable[..., type[Plugin]]) -> None:
    offer(predicates=lambda self: [predicate(reads=Reads.USAGE, keys=())])
    session = run(cluster(), read_policy(WITH), NOW_NS, 0)
    assert not any(distinguishes_pods(part) for part in framework_of(session).evaluator.parts if part.owner == "odd")


SCORES: list[tuple[Callable[[int], Any], float, str]] = [
    (lambda n: None, 1, "an array of float64 of shape (3,)"),
    (lambda n: [1.0] * n, 1, "an array of float64 of shape (3,)"),
    (lambda n: np.ones(n, np.int64), 1, "an array of float64 of shape (3,)"),
    (lambda n: np.ones(n, np.float32), 1, "an array of float64 of shape (3,)"),
    (lambda n: np.ones(n - 1), 1, "an array of float64 of shape (3,)"),
    (lambda n: np.array([1.0, NAN, 2.0][:n]), 1, "finite points"),
    (lambda n: np.array([1.0, INFINITE, 2.0][:n]), 1, "finite points"),
    (lambda n: np.array([1.0, -INFINITE, 2.0][:n]), 1, "finite points"),
    (lambda n: np.array([1.0, 1e300, 2.0][:n]), 1, "points of at most 1e+09"),
    (lambda n: np.array([1.0, -1e6, 2.0][:n]), 1e4, "points of at most 1e+09"),
]


@pytest.mark.parametrize(("answer", "weight", "expected"), SCORES)
@pytest.mark.parametrize("reads", [Reads.FACTS, Reads.JOB])
@pytest.mark.parametrize("point", ["node_order", "batch_node_order"])
def test_points_are_finite_floats(
    offer: Callable[..., type[Plugin]],
    answer: Callable[[int], Any],
    weight: float,
    expected: str,
    reads: Reads,
    point: str,
) -> None:
    part = {"answer": staticmethod(answer), "reads": reads}
    offer(**{point: lambda self: [score(weight, **part)]})
    plan = decide(cluster(), read_policy(WITH), NOW_NS, 0)
    assert plan.faults[0].startswith(f"odd: expected {expected}")
    assert "at score rate.raw" in plan.faults[0]
    assert plan.statements == decide(cluster(), read_policy(CONF), NOW_NS, 0).statements


def test_normalised_points_are_checked_as_well(offer: Callable[..., type[Plugin]]) -> None:
    def normalise(self: Any, raw: Any, feasible: Any) -> Any:
        return raw * NAN

    part = score(answer=staticmethod(lambda n: np.arange(n, dtype=np.float64)), normalise=normalise)
    offer(node_order=lambda self: [part])
    (fault,) = decide(cluster(), read_policy(WITH), NOW_NS, 0).faults
    assert fault == "odd: expected finite points at score rate.normalise, got nan"


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({"name": 3}, "Fit.name to be a str at predicates, got 3"),
        ({"reason": None}, "Fit.reason to be a Reason"),
        ({"reads": "USAGE"}, "Fit.reads to be a Reads"),
        ({"keys": "rack"}, "Fit.keys to be a tuple of texts"),
        ({"applies": says(1)}, "True or False at predicate fit.applies, got 1"),
        ({"answer": staticmethod(lambda n: np.zeros(n, np.bool_)), "reasons": says(3)}, "numbers by Reason"),
        ({"answer": staticmethod(lambda n: np.zeros(n, np.bool_)), "reasons": says({"x": "y"})}, "numbers by Reason"),
    ],
)
def test_what_a_predicate_says_of_itself_is_checked(
    offer: Callable[..., type[Plugin]], members: dict[str, Any], told: str
) -> None:
    offer(predicates=lambda self: [predicate(**members)])
    (fault,) = decide(cluster(), read_policy(WITH), NOW_NS, 0).faults
    assert told in fault


@pytest.mark.parametrize("weight", [NAN, INFINITE, "1", None, True])
def test_a_weight_is_a_finite_number(offer: Callable[..., type[Plugin]], weight: Any) -> None:
    offer(node_order=lambda self: [score(weight)])
    (fault,) = decide(cluster(), read_policy(WITH), NOW_NS, 0).faults
    assert fault.startswith("odd: expected a finite number as the weight of a Score at node_order, got ")


def test_parts_that_answer_well_take_part(offer: Callable[..., type[Plugin]]) -> None:
    fits = np.array([True, True, False])
    offer(
        predicates=lambda self: [predicate(answer=staticmethod(lambda n: fits))],
        node_order=lambda self: [score(answer=staticmethod(lambda n: np.arange(float(n))))],
    )
    session = run(cluster(), read_policy(WITH), NOW_NS, 0)
    assert session.faults == ()
    placed = {op.key: op.node for s in session.trial.statements for op in s.operations()}
    assert placed == {"default/a-0": "n1", "default/a-1": "n1", "default/b-0": "n0"}
    evaluator = framework_of(session).evaluator
    assert evaluator.predicates[-1].owner == evaluator.scores[-1].owner == "odd"


def test_the_reasons_of_a_predicate_are_told(offer: Callable[..., type[Plugin]]) -> None:
    offer(predicates=lambda self: [predicate(answer=staticmethod(lambda n: np.array([name > 1 for name in range(n)])))])
    session = run(
        snapshot_of([node(f"n{i}", cpu=2 - i) for i in range(3)], gang("g", 1, cpu=1)), read_policy(WITH), 1, 0
    )
    assert [(why.reason, why.nodes) for why in all_told(job_of(session, "g").why[:2])] == [
        ("Insufficient cpu", 1),
        ("does not fit", 2),
    ]


@pytest.mark.parametrize("spoil", ["usage", "allocatable"])
def test_what_parts_are_shown_cannot_be_written(offer: Callable[..., type[Plugin]], spoil: str) -> None:
    def mask(self: Any, task: Any, usage: Any) -> Any:
        (usage.idle if spoil == "usage" else usage.allocatable)[:] = 10**9
        return np.ones(len(usage), np.bool_)

    offer(predicates=lambda self: [predicate(mask=mask)])
    plan = decide(cluster(), read_policy(WITH), NOW_NS, 0)
    assert plan.faults == ("odd: ValueError('assignment destination is read-only')",)
    assert plan.statements == ()


def test_keys_of_candidates_cannot_be_written(offer: Callable[..., type[Plugin]]) -> None:
    offer(best_node=lambda self, task, keys: keys.fill(0))
    assert decide(cluster(), read_policy(WITH), NOW_NS, 0).faults[0].startswith("odd: ValueError(")


# --- who is to blame --------------------------------------------------------------------------------------------------


def test_who_asks_ours_for_nonsense_is_to_blame(offer: Callable[..., type[Plugin]]) -> None:
    """The innermost plugin on the traceback is gang; a cycle without it would place half a gang."""

    def opens(self: Any, session: Session) -> None:
        framework_of(session).job_ready("no job")  # type: ignore[arg-type]

    offer(open=opens)
    plan = decide(cluster(), read_policy(WITH), NOW_NS, 0)
    assert [guard.name_in(fault) for fault in plan.faults] == ["odd"]
    assert plan.statements == decide(cluster(), read_policy(CONF), NOW_NS, 0).statements


def test_a_constructor_without_a_self_is_attributed(offer: Callable[..., type[Plugin]]) -> None:
    def made(this: Any, arguments: Any) -> None:
        raise RuntimeError("no")

    offer(__init__=made)
    assert decide(cluster(), read_policy(WITH), NOW_NS, 0).faults == ("odd: RuntimeError('no')",)


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), StopIteration()])
def test_a_plugin_cannot_end_the_program(offer: Callable[..., type[Plugin]], error: BaseException) -> None:
    def job_order(self: Any, job: Any) -> int:
        raise error

    offer(job_order=job_order)
    (fault,) = decide(cluster(), read_policy(WITH), NOW_NS, 0).faults
    assert fault == f"odd: expected an answer at job_order, got {error!r}"


def test_a_user_can_end_the_program_while_a_plugin_runs(offer: Callable[..., type[Plugin]]) -> None:
    def job_order(self: Any, job: Any) -> int:
        raise KeyboardInterrupt

    offer(job_order=job_order)
    with pytest.raises(KeyboardInterrupt):
        decide(cluster(), read_policy(WITH), NOW_NS, 0)


class _Mute:
    def __repr__(self) -> str:
        raise RuntimeError("not even this")


@pytest.mark.parametrize(
    ("value", "told"),
    [(_Mute(), "a ValueError"), ("a\nb" * 3, "ValueError('a\\nba\\nba\\nb')"), ("x" * 999, "x...")],
)
def test_a_fault_is_one_line_whatever_the_error(offer: Callable[..., type[Plugin]], value: object, told: str) -> None:
    def job_order(self: Any, job: Any) -> int:
        raise ValueError(value)

    offer(job_order=job_order)
    (fault,) = decide(cluster(), read_policy(WITH), NOW_NS, 0).faults
    assert fault.endswith(told)
    assert len(fault) < 250
    assert "\n" not in fault


def test_a_fault_holds_nothing_that_differs_from_run_to_run(offer: Callable[..., type[Plugin]]) -> None:
    def job_order(self: Any, job: Any) -> int:
        raise ValueError(object())

    offer(job_order=job_order)
    (fault,) = decide(cluster(), read_policy(WITH), NOW_NS, 0).faults
    assert fault == "odd: ValueError(<object object>)"


def test_a_plugin_that_fails_once_spoils_no_table(offer: Callable[..., type[Plugin]]) -> None:
    """It raises amid the update of a table that the memory keeps: the next session must not read what is half done."""
    failing: list[bool] = []

    def mask(self: Any, task: Any, usage: Any) -> Any:
        if failing:
            raise RuntimeError("once")
        return usage.used[0] <= 0

    offer(predicates=lambda self: [predicate(mask=mask, reads=Reads.USAGE)])
    policy, memory = read_policy(WITH), Memory()
    before = snapshot_of([node("n0"), node("n1")], gang("g", 1, cpu=99, created=1))
    after = snapshot_of([node("n0"), node("n1")], gang("h", 1, on=["n0"], cpu=1), gang("g", 1, cpu=1, created=1))
    decide(before, policy, NOW_NS, 0, memory)
    failing.append(True)
    assert decide(after, policy, NOW_NS, 0, memory).faults
    failing.clear()
    assert decide(after, policy, NOW_NS, 0, memory) == decide(after, policy, NOW_NS, 0)


def test_errors_are_kept_for_who_tells_of_them(offer: Callable[..., type[Plugin]]) -> None:
    offer(job_valid=says(False))
    session = run(cluster(), read_policy(WITH), NOW_NS, 0)
    assert isinstance(session.errors["odd"], InvalidAnswer)


# --- actions ----------------------------------------------------------------------------------------------------------

ACTIONS = CONF.replace("enqueue, allocate", "enqueue, odd, allocate")


def test_an_action_that_raises_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def execute(session: Session) -> None:
        raise RuntimeError("no")

    act(monkeypatch, execute)
    plan = decide(cluster(), read_policy(ACTIONS), NOW_NS, 0)
    assert plan.faults == ("action odd: RuntimeError('no')",)
    assert plan.statements == decide(cluster(), read_policy(CONF), NOW_NS, 0).statements


def test_an_action_that_asks_ours_for_nonsense_is_to_blame(monkeypatch: pytest.MonkeyPatch) -> None:
    act(monkeypatch, lambda session: framework_of(session).job_ready(None))  # type: ignore[arg-type,return-value]
    (fault,) = decide(cluster(), read_policy(ACTIONS), NOW_NS, 0).faults
    assert fault.startswith("action odd: AttributeError(")


def test_an_action_that_puts_a_node_over_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def execute(session: Session) -> None:
        job = job_of(session, "c")
        statement = Statement(session.trial, "odd", job)
        statement.allocate([job.pending()[0]], [1])
        statement.commit()

    act(monkeypatch, execute)
    plan = decide(cluster(), read_policy(ACTIONS), NOW_NS, 0)
    assert plan.faults == ("action odd: expected no node above its capacity at execute, got n1 93000 over in cpu",)
    assert "default/c-0" not in [op.key for s in plan.statements for op in s.operations]


def test_a_node_that_was_over_before_is_not_the_actions_doing(monkeypatch: pytest.MonkeyPatch) -> None:
    act(monkeypatch, lambda session: None)
    snapshot = snapshot_of(node("n", cpu=1), gang("g", 2, on=["n", "n"], cpu=1))
    assert decide(snapshot, read_policy(ACTIONS), NOW_NS, 0).faults == ()


def test_an_action_that_places_nowhere_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def execute(session: Session) -> None:
        job = job_of(session, "a")
        statement = Statement(session.trial, "odd", job)
        statement.allocate([job.pending()[0]], [-1])
        statement.commit()

    act(monkeypatch, execute)
    (fault,) = decide(cluster(), read_policy(ACTIONS), NOW_NS, 0).faults
    assert fault == "action odd: expected default/a-0 on a row from 0 to 2 at execute, got -1"


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (Reason(3), "expected a Reason with texts and integers (Expected `str`, got `int`"),  # type: ignore[arg-type]
        (because("no", {"cpu": 1}), "expected a Reason with texts and integers (Expected `str`, got `int`"),  # type: ignore[dict-item]
    ],
)
def test_an_action_whose_reasons_could_not_be_logged_is_left_out(
    monkeypatch: pytest.MonkeyPatch, reason: Reason, told: str
) -> None:
    act(monkeypatch, lambda session: job_of(session, "c").note("predicate", "", reason))
    plan = decide(cluster(), read_policy(ACTIONS), NOW_NS, 0)
    assert plan.faults[0].startswith(f"action odd: {told}")
    assert ev.decode_plan(ev.encode_plan(plan)) == plan


def test_an_action_whose_statement_could_not_be_logged_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def execute(session: Session) -> None:
        statement = Statement(session.trial, "odd", job_of(session, "old"))
        statement.evict(task_of(session, "old-0"), None)  # type: ignore[arg-type]
        statement.commit()

    act(monkeypatch, execute)
    plan = decide(cluster(), read_policy(ACTIONS), NOW_NS, 0)
    assert plan.faults[0].startswith("action odd: expected texts as a statement's action and reasons at execute, got ")


def test_an_action_that_evicts_who_is_nowhere_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def execute(session: Session) -> None:
        statement = Statement(session.trial, "odd", job_of(session, "a"))
        statement.evict(task_of(session, "a-0"), "why not")
        statement.commit()

    act(monkeypatch, execute)
    (fault,) = decide(cluster(), read_policy(ACTIONS), NOW_NS, 0).faults
    assert fault == "action odd: expected default/a-0 on a row from 0 to 2 at execute, got -1"


def test_an_action_and_a_plugin_of_one_name_are_two(
    monkeypatch: pytest.MonkeyPatch, offer: Callable[..., type[Plugin]]
) -> None:
    def raises(*asked: Any) -> None:
        raise RuntimeError("no")

    act(monkeypatch, raises)
    told: list[str] = []
    offer(open=lambda self, session: told.append("opened"))
    plan = decide(cluster(), read_policy(ACTIONS + "  - name: odd\n"), NOW_NS, 0)
    assert plan.faults == ("action odd: RuntimeError('no')",)
    assert told == ["opened"] * 2


# --- interrupted in another attempt -----------------------------------------------------------------------------------


def test_who_was_interrupted_is_left_out_from_the_beginning(offer: Callable[..., type[Plugin]]) -> None:
    told: list[str] = []
    offer(open=lambda self, session: told.append("opened"), overused=says(because("never")))
    fault = "odd: too slow"
    session = run(cluster(), read_policy(WITH), NOW_NS, 0, interrupted=(fault,))
    assert told == []
    assert session.faults == session.interrupted == (fault,)
    assert session.trial.statements


def test_tables_of_sessions_with_and_without_a_plugin_are_kept_apart(offer: Callable[..., type[Plugin]]) -> None:
    offer(node_order=lambda self: [score(answer=staticmethod(lambda n: np.arange(float(n)) * 1000))])
    memory, policy = Memory(), read_policy(WITH)
    for interrupted in ((), ("odd: too slow",), ("odd: too slow",), ()):
        with_memory = decide(cluster(), policy, NOW_NS, 0, memory, interrupted=interrupted)
        assert with_memory == decide(cluster(), policy, NOW_NS, 0, interrupted=interrupted)


def test_a_session_without_a_plugin_uses_the_tables_of_the_last_one(offer: Callable[..., type[Plugin]]) -> None:
    offer()
    memory, policy, snapshot = Memory(), read_policy(WITH), cluster()
    made = [
        framework_of(run(snapshot, policy, NOW_NS, 0, memory, interrupted=("odd: too slow",))).evaluator.evaluations
        for _ in range(2)
    ]
    assert made[1] < made[0]


def test_an_action_that_was_interrupted_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Session] = []
    act(monkeypatch, told.append)
    plan = decide(cluster(), read_policy(ACTIONS), NOW_NS, 0, interrupted=("action odd: too slow",))
    assert (told, plan.faults) == ([], ("action odd: too slow",))


class _Watch:
    """Writes down who is entered and left."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.inside: list[str] = []

    def enter(self, name: str, point: str) -> int:
        self.inside.append(f"{name} {point}")
        self.told.append(self.inside[-1])
        return len(self.inside) - 1

    def leave(self, depth: int) -> None:
        assert len(self.inside) == depth + 1
        del self.inside[depth:]


def test_a_watch_is_told_of_each_way_into_a_plugin(offer: Callable[..., type[Plugin]]) -> None:
    def gauges(self: Any) -> Iterator[Any]:
        yield from ()

    offer(
        job_order=says(1),
        predicates=lambda self: (predicate(answer=staticmethod(lambda n: np.ones(n, np.bool_))) for _ in range(1)),
        node_order=lambda self: [score(answer=staticmethod(lambda n: np.arange(float(n))))],
        gauges=gauges,
    )
    watch = _Watch()
    session = run(cluster(), read_policy(WITH), NOW_NS, 0, watch=watch)
    execution.take_gauges(framework_of(session), watch)
    assert watch.inside == []
    assert set(watch.told) >= {
        *("odd __init__", "odd open", "odd close", "odd gauges", "odd job_order", "odd predicates", "odd node_order"),
        *("odd predicate fit.mask", "odd predicate fit.applies", "odd score rate.raw"),
    }


def test_a_watch_is_told_of_the_way_out_of_a_plugin_that_raises(offer: Callable[..., type[Plugin]]) -> None:
    def raises(self: Any, job: Any) -> int:
        raise RuntimeError("no")

    offer(job_order=raises)
    watch = _Watch()
    run(cluster(), read_policy(WITH), NOW_NS, 0, watch=watch)
    assert watch.told.count("odd job_order") == 1
    assert watch.inside == []


def test_a_watch_may_interrupt_the_session_where_a_plugin_is_left(offer: Callable[..., type[Plugin]]) -> None:
    class Watch(_Watch):
        def leave(self, depth: int) -> None:
            super().leave(depth)
            if self.told[-1] == "odd job_order":
                raise guard.Interrupted

    offer(job_order=says(1))
    watch = Watch()
    with pytest.raises(guard.Interrupted):
        run(cluster(), read_policy(WITH), NOW_NS, 0, watch=watch)
    assert (watch.told[-1], watch.inside) == ("odd job_order", [])


def test_a_watch_is_told_of_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    act(monkeypatch, lambda session: None)
    watch = _Watch()
    run(cluster(), read_policy(ACTIONS), NOW_NS, 0, watch=watch)
    assert watch.told == ["action odd execute"]


def test_gauges_that_fail_decide_nothing(offer: Callable[..., type[Plugin]]) -> None:
    def gauges(self: Any) -> Iterator[Any]:
        raise RuntimeError("no")

    offer(gauges=gauges)
    session = run(cluster(), read_policy(WITH), NOW_NS, 0)
    execution.take_gauges(framework_of(session), None)
    assert session.faults == ()
    assert repr(session.gauges["odd"]) == "RuntimeError('no')"


def test_a_session_row_without_interruptions_is_as_it_was() -> None:
    """Old logs have no such field; new ones have it only where it says something."""
    record = ev.SessionDecided(1, 1, "digest", 1, 0, 1, {}, b"")
    assert b"interrupted" not in ev.encode_event(record)
    named = ev.SessionDecided(1, 1, "digest", 1, 0, 1, {}, b"", interrupted=("odd: too slow",))
    assert ev.decode_event(ev.encode_event(named)) == named


def test_pods_that_no_plugin_failed_on_are_placed(offer: Callable[..., type[Plugin]]) -> None:
    offer(task_order=says(None))
    snapshot = snapshot_of(node("n"), gang("g", 2, cpu=1))
    plan = decide(snapshot, read_policy(WITH), NOW_NS, 0)
    assert [op.key for s in plan.statements for op in s.operations] == ["default/g-0", "default/g-1"]
    assert plan.faults == ("odd: expected a key: a number, a text, or a tuple of these at task_order, got None",)

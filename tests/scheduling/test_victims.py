"""Who may go: how the answers of plugins and tiers combine, who protects, and the order in which they go."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import pytest

from tests.dsl import gang, moment, node, queue, session_of
from tests.plugins.opened import named, queue_of, task_of, tasks_of
from vcd.scheduling.framework import registry
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.victims import Allowance
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task

NAMES = ["a-0", "a-1", "a-2", "a-3"]
POINT = pytest.mark.parametrize("point", ["preemptable", "reclaimable", "unified_evictable"])


def session_with(
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    tiers: list[list[Any]],
    *,
    flags: str = "",
    protecting: tuple[int, ...] = (),
) -> Session:
    """A session of plugins p0, p1, ... that name these tasks (None: abstain), tier by tier."""
    known: dict[str, type[Plugin]] = {}
    lines = ["actions: allocate", "tiers:"]
    for tier in tiers:
        lines.append("- plugins:")
        for answer in tier:
            name = f"p{len(known)}"

            def ask(self: Plugin, *subject: Any, answer: Any = answer) -> Any:
                return answer(*subject) if callable(answer) else naming(answer)(*subject)

            parts = {"name": name, point: ask, "protects": len(known) in protecting}
            known[name] = type(name, (Plugin,), parts)
            lines.append(f"  - name: {name}{flags}")
    monkeypatch.setattr(registry, "plugins", lambda: MappingProxyType(known))
    objects = [node("n"), gang("a", 4, on=["n"] * 4, cpu=1), gang("new", 1, cpu=1)]
    return session_of(*objects, conf="\n".join(lines) + "\n")


def naming(names: Any) -> Any:
    """The answer of a plugin that names some of those it is asked about."""

    def answer(*subject: Any) -> Any:
        return None if names is None else [task for task in subject[-1] if task.name in names]

    return answer


def victims(session: Session, point: str) -> list[str]:
    return named(getattr(framework_of(session), point)(task_of(session, "new-0"), tasks_of(session, *NAMES)).together())


@POINT
@pytest.mark.parametrize(
    ("tiers", "expected"),
    [
        ([], []),
        ([[["a-1", "a-2"]]], ["a-1", "a-2"]),
        ([[["a-1", "a-2"], ["a-2", "a-3"]]], ["a-2"]),
        ([[["a-1", "a-2"], ["a-3"]]], []),
        ([[["a-1"], []], [["a-3"]]], ["a-3"]),
        ([[["a-1"], ["a-2"]], [["a-3"]]], ["a-3"]),
        ([[["a-1"]], [["a-3"]]], ["a-1"]),
        ([[["a-1"]], [[]]], ["a-1"]),
        ([[[]], [[]]], []),
        ([[None]], []),
        ([[None, None], [["a-3"]]], ["a-3"]),
        ([[None, ["a-1"]], [["a-3"]]], ["a-1"]),
        ([[["a-1"], None], [["a-3"]]], ["a-1"]),
        ([[["a-1"], ["a-2"], ["a-3"]]], []),
    ],
)
def test_tiers(monkeypatch: pytest.MonkeyPatch, point: str, tiers: list[list[Any]], expected: list[str]) -> None:
    """All of a tier must name a victim; the first tier that names one decides; None has no opinion."""
    assert victims(session_with(monkeypatch, point, tiers), point) == expected


@POINT
def test_each_plugin_is_asked_about_all(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """What the ones before it left is not for it to see: its answer must not hang on its place in the tier."""
    asked: list[list[str]] = []

    def second(*subject: Any) -> list[Task]:
        asked.append(named(subject[-1]))
        return list(subject[-1])

    assert victims(session_with(monkeypatch, point, [[["a-1", "a-3"], second]]), point) == ["a-1", "a-3"]
    assert asked == [NAMES]


class AtMost(Allowance):
    """So many tasks, the names that it does not let go at all left out."""

    def __init__(self, count: int, never: Sequence[str] = ()) -> None:
        self._left = count
        self._never = never

    def permits(self, task: Task) -> bool:
        return self._left > 0 and task.name not in self._never

    def spend(self, task: Task) -> None:
        self._left -= 1


@POINT
@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([partial(AtMost, 2)], ["a-0", "a-1"]),
        ([partial(AtMost, 1), ["a-2", "a-3"]], ["a-2"]),
        ([partial(AtMost, 2), partial(AtMost, 3, ["a-0", "a-1"])], ["a-2", "a-3"]),
        ([partial(AtMost, 2), partial(AtMost, 1), ["a-1", "a-2"]], ["a-1"]),
        ([partial(AtMost, 1, ["a-3"]), ["a-3"]], []),
        ([partial(AtMost, 0)], []),
        ([partial(AtMost, 1), None], ["a-0"]),
    ],
)
def test_what_is_allowed_to_several_goes_to_those_that_nobody_keeps(
    monkeypatch: pytest.MonkeyPatch, point: str, answers: list[Any], expected: list[str]
) -> None:
    """In every order of the plugins of a tier, in one tier and from one that protects in another."""
    asked = [(lambda *_, make=each: make()) if callable(each) else each for each in answers]
    for order in itertools.permutations(asked):
        assert victims(session_with(monkeypatch, point, [list(order)]), point) == expected
    later = session_with(monkeypatch, point, [[NAMES], *[[each] for each in asked]], protecting=(1, 2, 3))
    assert victims(later, point) == expected


@pytest.mark.parametrize(("tells", "asked"), [(False, ["a-0", "a-1"]), (True, NAMES)])
def test_who_goes_first_is_found_without_asking_about_the_others(
    monkeypatch: pytest.MonkeyPatch, tells: bool, asked: list[str]
) -> None:
    """Unless a plugin notes whom it keeps: what it tells of them must not hang on who was enough."""
    seen: list[str] = []

    class Noting(Allowance):
        def permits(self, task: Task) -> bool:
            seen.append(task.name)
            return task.name != "a-0"

    Noting.records_refusals = tells
    session = session_with(monkeypatch, "preemptable", [[lambda *_: Noting()]])
    found = framework_of(session).preemptable(task_of(session, "new-0"), tasks_of(session, *NAMES)).first
    assert found is not None
    assert (found.name, seen) == ("a-1", asked)


@POINT
def test_a_plugin_that_protects_has_the_last_word_from_any_later_tier(
    monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    session = session_with(monkeypatch, point, [[["a-1", "a-2"]], [["a-2", "a-3"]]], protecting=(1,))
    assert victims(session, point) == ["a-2"]


@POINT
def test_a_plugin_that_protects_has_the_last_word_from_an_earlier_tier(
    monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """It names nobody in its own tier together with its neighbour; what the next tier names it still narrows."""
    session = session_with(monkeypatch, point, [[["a-0", "a-1"], ["a-3"]], [["a-1", "a-2"]]], protecting=(0,))
    assert victims(session, point) == ["a-1"]


@POINT
def test_where_protection_leaves_nobody_the_next_tier_is_asked(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    session = session_with(monkeypatch, point, [[["a-1"]], [["a-2"]], [["a-2"]]], protecting=(2,))
    assert victims(session, point) == ["a-2"]


@POINT
def test_a_protecting_plugin_that_abstains_protects_nobody(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    assert victims(session_with(monkeypatch, point, [[["a-1"]], [None]], protecting=(1,)), point) == ["a-1"]


@POINT
def test_a_plugin_that_does_not_protect_has_no_say_beyond_its_tier(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    assert victims(session_with(monkeypatch, point, [[["a-1"]], [[]]]), point) == ["a-1"]


@pytest.mark.parametrize(
    ("point", "flag"), [("preemptable", "enablePreemptable"), ("reclaimable", "enableReclaimable")]
)
@pytest.mark.parametrize("protecting", [(), (0,)])
def test_a_flag_that_is_off_takes_a_plugin_out(
    monkeypatch: pytest.MonkeyPatch, point: str, flag: str, protecting: tuple[int, ...]
) -> None:
    """Its protection, too."""
    session = session_with(monkeypatch, point, [[[]], [["a-1"]]], flags=f"\n    {flag}: false", protecting=protecting)
    assert victims(session, point) == []
    session = session_with(monkeypatch, point, [[["a-0"]], [["a-1"]]], protecting=protecting)
    assert victims(session, point) == ["a-0"]


def test_nobody_is_asked_about_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise AssertionError("asked")

    session = session_with(monkeypatch, "preemptable", [[fail], [fail]])
    assert framework_of(session).preemptable(task_of(session, "new-0"), []).together() == []


# --- victims by the plugins' own wish -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tiers", "expected"),
    [
        ([], []),
        ([[["a-2"], ["a-1"]]], ["a-1", "a-2"]),
        ([[["a-1"], ["a-1"]]], ["a-1"]),
        ([[[]], [["a-3"]]], ["a-3"]),
        ([[["a-1"]], [["a-3"]]], ["a-1"]),
    ],
)
def test_all_that_the_first_tier_names_that_names_one(
    monkeypatch: pytest.MonkeyPatch, tiers: list[list[Any]], expected: list[str]
) -> None:
    session = session_with(monkeypatch, "victim_tasks", tiers)
    assert named(framework_of(session).victim_tasks(tasks_of(session, *NAMES))) == expected


def test_the_flag_of_own_victims(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_with(monkeypatch, "victim_tasks", [[["a-1"]]], flags="\n    enabledVictim: false")
    assert framework_of(session).victim_tasks(tasks_of(session, *NAMES)) == []


# --- order ----------------------------------------------------------------------------------------------------


def two_queues(monkeypatch: pytest.MonkeyPatch, **points: Any) -> Session:
    """Tasks of two jobs in each of the queues p and q, and one plugin with these points."""
    methods = {point: lambda self, *subject, of=of: of(*subject) for point, of in points.items()}
    known = {"p0": type("p0", (Plugin,), {"name": "p0", **methods})}
    monkeypatch.setattr(registry, "plugins", lambda: MappingProxyType(known))
    jobs = [
        gang(f"{name}{i}", 2, on=["n", "n"], cpu=1, queue=name, created=10 * i + (name == "q"))
        for name in "pq"
        for i in range(2)
    ]
    return session_of(
        node("n", cpu=16),
        queue("p"),
        queue("q"),
        queue("new"),
        *jobs,
        conf="actions: allocate\ntiers:\n- plugins:\n  - name: p0\n",
    )


ALL = [f"{name}{i}-{k}" for name in "pq" for i in range(2) for k in range(2)]


def ordered(session: Session, names: list[str] = ALL) -> list[str]:
    return named(framework_of(session).in_victim_order(tasks_of(session, *names), queue_of(session, "new")))


def test_the_last_served_queue_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    session = two_queues(monkeypatch, queue_order=lambda queue: {"p": 2, "q": 1}.get(queue.name, 0))
    assert [name[0] for name in ordered(session)] == ["p"] * 4 + ["q"] * 4


def test_plugins_order_victims_queues_for_the_queue_that_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()

    def order(queue: Any, taker: Any) -> int:
        seen.add(taker.name)
        return 0 if queue.name == "q" else 1

    session = two_queues(monkeypatch, queue_order=lambda queue: queue.name, victim_queue_order=order)
    assert [name[0] for name in ordered(session)] == ["q"] * 4 + ["p"] * 4
    assert seen == {"new"}


def test_equal_victim_queues_are_not_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    session = two_queues(monkeypatch, victim_queue_order=lambda queue, taker: 0)
    queues = [name[0] for name in ordered(session)]
    assert queues in (["p"] * 4 + ["q"] * 4, ["q"] * 4 + ["p"] * 4)


def test_then_the_job_that_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    session = two_queues(monkeypatch, job_order=lambda job: {"p0": 2, "p1": 1}.get(job.name, 0))
    assert ordered(session, ["p1-0", "p0-0", "p1-1", "p0-1"]) == ["p0-1", "p0-0", "p1-1", "p1-0"]


def test_numbers_in_names_count_once_those_without_one_are_no_longer_asked_about() -> None:
    jobs = [gang("a-b", 11, on=["n"] * 11, cpu=1), gang("c", 1, on=["n"], cpu=1)]
    session = session_of(node("n", cpu=16), queue("default"), queue("new"), *jobs, conf="actions: allocate\n")
    assert ordered(session, ["a-b-2", "a-b-10", "c-0"]) == ["c-0", "a-b-2", "a-b-10"]
    assert ordered(session, ["a-b-2", "a-b-10"]) == ["a-b-10", "a-b-2"]
    assert ordered(session, ["a-b-2", "a-b-3", "a-b-10"]) == ["a-b-10", "a-b-3", "a-b-2"]
    assert ordered(session, ["a-b-10", "a-b-2"]) == ["a-b-10", "a-b-2"]


def test_a_job_that_lost_a_task_is_looked_at_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """And once more when it has it back."""
    session = two_queues(monkeypatch, job_order=lambda job: job.ready_count)
    others = ["p0-0", "p1-0"]
    assert ordered(session, others) == ["p1-0", "p0-0"]
    task = task_of(session, "p1-1")
    statement = framework_of(session).statement("preempt", task.job)
    statement.evict(task, "")
    assert ordered(session, others) == ["p0-0", "p1-0"]
    statement.discard()
    assert ordered(session, others) == ["p1-0", "p0-0"]


def test_jobs_that_no_plugin_tells_apart_give_their_youngest_tasks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Volcano: the age of jobs orders service, not victims."""
    session = two_queues(monkeypatch)
    assert ordered(session, ["p0-0", "p1-0", "p0-1", "p1-1"]) == ["p1-1", "p1-0", "p0-1", "p0-0"]


def test_then_the_task_that_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    session = two_queues(monkeypatch, task_order=lambda task: -int(task.name[-1]))
    assert ordered(session, ["p0-0", "p0-1"]) == ["p0-0", "p0-1"]


def test_the_order_in_which_tasks_are_given_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    session = two_queues(monkeypatch)
    assert ordered(session, ALL) == ordered(session, ALL[::-1])


def test_gang_names_a_jobs_tasks_above_its_minimum_in_that_order() -> None:
    conf = "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n"
    objects = [node("n"), gang("a", 4, members=2, on=["n"] * 4, cpu=1), gang("new", 1, cpu=1)]
    session = session_of(*objects, conf=conf)
    asked = tasks_of(session, "a-3", "a-1", "a-2", "a-0")
    assert named(framework_of(session).preemptable(task_of(session, "new-0"), asked).together()) == [
        "a-3",
        "a-1",
    ]


@pytest.mark.parametrize(
    ("size", "members", "count"),
    [(4, 2, 2), (4, 4, 0), (3, 1, 3), (1, 1, 1), (2, 2, 0), (2, 5, 2)],
)
@pytest.mark.parametrize("point", ["preemptable", "reclaimable"])
def test_gang_protects_minima_from_the_choice_of_another_tier(point: str, size: int, members: int, count: int) -> None:
    """A job of one pod goes whole, and so does the last of those that need no other; a broken gang may go."""
    conf = "actions: allocate\ntiers:\n- plugins:\n  - name: conformance\n- plugins:\n  - name: gang\n"
    objects = [node("n"), gang("a", size, members=members, on=["n"] * size, cpu=1), gang("new", 1, cpu=1)]
    session = session_of(*objects, conf=conf)
    asked = tasks_of(session, *[f"a-{i}" for i in range(size)])
    assert len(getattr(framework_of(session), point)(task_of(session, "new-0"), asked).together()) == count


def test_moments_order_what_nothing_else_does() -> None:
    manifests = [*gang("a", 3, on=["n"] * 3, cpu=1)]
    manifests[2]["metadata"]["creationTimestamp"] = moment(60)
    session = session_of(node("n"), manifests)
    asked = tasks_of(session, "a-0", "a-1", "a-2")
    assert named(framework_of(session).in_victim_order(asked, queue_of(session, "default")))[0] == "a-1"

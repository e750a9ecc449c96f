"""The extension points: one table of keys, rules and defaults, and how answers combine."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest

from tests.dsl import gang, node, session_of
from tests.plugins.opened import job_of, queue_of, task_of
from tests.reasons import because
from vcd.scheduling.framework import registry
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.points import FLAGS, POINTS, Vote
from vcd.scheduling.search.parts import Score
from vcd.scheduling.session.session import Session

YES, NO, SILENT = Vote.PERMIT, Vote.REJECT, Vote.ABSTAIN


def test_the_keys_are_spelt_as_in_volcano() -> None:
    """Irregular as they are (Volcano ``conf/scheduler_conf.go``)."""
    assert {flag for flag in FLAGS if flag.startswith("enabled")} == {
        "enabledOverused",
        "enabledAllocatable",
        "enabledClusterOrder",
        "enabledHyperNodeGradient",
        "enabledHyperNodeOrder",
        "enabledVictim",
        "enabledSubJobReady",
        "enabledSubJobPipelined",
        "enabledSubJobOrder",
    }


def test_what_no_flag_turns_off() -> None:
    assert {name for name, point in POINTS.items() if not point.flag} == {
        "bind_annotations",
        "hyper_node_limits",
        "job_valid",
        "on_allocate",
        "on_deallocate",
        "unified_evictable",
        "victim_queue_order",
    }


def test_all_flags_but_two_are_on_where_the_file_is_silent() -> None:
    assert {flag for flag, on in FLAGS.items() if not on} == {"enableHierarchy", "enabledClusterOrder"}


def test_every_flag_of_a_point_is_known_to_the_configuration() -> None:
    assert {point.flag for point in POINTS.values() if point.flag} <= FLAGS.keys()


@pytest.mark.parametrize("name", sorted(registry.plugins()))
def test_public_methods_of_plugins_that_take_part_are_points(name: str) -> None:
    """A misspelt point would never be asked."""
    own = vars(registry.plugins()[name])
    similar = {"order", "ready", "pipelined", "starving", "valid", "enqueueable", "enqueued", "able", "predicate"}
    named = {key for key, value in own.items() if callable(value) and key.split("_")[-1] in similar}
    assert {key for key in named if not key.startswith("_")} <= POINTS.keys()


# --- how answers combine --------------------------------------------------------------------------------------------


def session_with(monkeypatch: pytest.MonkeyPatch, point: str, tiers: list[list[Any]], flags: str = "") -> Session:
    """A session of plugins that give these answers at a point, tier by tier."""
    known: dict[str, type[Plugin]] = {}
    lines = ["actions: allocate", "tiers:"]
    for tier in tiers:
        lines.append("- plugins:")
        for answer in tier:
            name = f"p{len(known)}"

            def ask(self: Plugin, *subject: Any, answer: Any = answer) -> Any:
                return answer(*subject) if callable(answer) else answer

            known[name] = type(name, (Plugin,), {"name": name, point: ask})
            lines.append(f"  - name: {name}{flags}")
    monkeypatch.setattr(registry, "plugins", lambda: MappingProxyType(known))
    return session_of(
        node("n"), gang("a", 1, cpu=1, created=1), gang("b", 1, cpu=1, created=2), conf="\n".join(lines) + "\n"
    )


REFUSE = because("no")


@pytest.mark.parametrize(
    ("tiers", "admitted"),
    [
        ([], True),
        ([[SILENT]], True),
        ([[YES]], True),
        ([[REFUSE]], False),
        ([[YES, REFUSE]], False),
        ([[REFUSE, YES]], False),
        ([[YES], [REFUSE]], True),
        ([[SILENT], [REFUSE]], False),
        ([[SILENT, YES], [REFUSE]], True),
    ],
)
def test_admission_votes(monkeypatch: pytest.MonkeyPatch, tiers: list[list[Any]], admitted: bool) -> None:
    session = session_with(monkeypatch, "job_enqueueable", tiers)
    assert (framework_of(session).job_enqueueable(job_of(session, "a")) is None) is admitted


@pytest.mark.parametrize(
    ("tiers", "kept"),
    [([], True), ([[SILENT]], True), ([[YES], [NO]], True), ([[YES, NO]], False), ([[SILENT], [NO]], False)],
)
def test_votes_on_waiting(monkeypatch: pytest.MonkeyPatch, tiers: list[list[Any]], kept: bool) -> None:
    session = session_with(monkeypatch, "job_pipelined", tiers)
    assert framework_of(session).job_pipelined(job_of(session, "a")) is kept


@pytest.mark.parametrize(
    ("tiers", "ready"), [([], True), ([[True, True]], True), ([[True], [False]], False), ([[False, True]], False)]
)
def test_all_must_find_a_job_ready(monkeypatch: pytest.MonkeyPatch, tiers: list[list[Any]], ready: bool) -> None:
    session = session_with(monkeypatch, "job_ready", tiers)
    assert framework_of(session).job_ready(job_of(session, "a")) is ready


@pytest.mark.parametrize(
    ("tiers", "starving"),
    [([], False), ([[True, True], [False]], True), ([[True, False], [True]], False), ([[False], [True]], False)],
)
def test_the_first_tier_that_knows_says_who_starves(
    monkeypatch: pytest.MonkeyPatch, tiers: list[list[Any]], starving: bool
) -> None:
    session = session_with(monkeypatch, "job_starving", tiers)
    assert framework_of(session).job_starving(job_of(session, "a")) is starving


def _first_refusals() -> dict[str, Callable[[Session], Any]]:
    return {
        "job_valid": lambda s: framework_of(s).job_valid(job_of(s, "a")),
        "overused": lambda s: framework_of(s).overused(queue_of(s, "default")),
        "allocatable": lambda s: framework_of(s).allocatable(queue_of(s, "default"), task_of(s, "a-0"), 1),
        "pre_predicate": lambda s: framework_of(s).pre_predicate(task_of(s, "a-0")),
    }


@pytest.mark.parametrize("point", sorted(_first_refusals()))
def test_the_first_refusal_is_named_with_its_plugin(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    session = session_with(monkeypatch, point, [[None, because("first")], [because("second")]])
    assert _first_refusals()[point](session) == ("p1", because("first"))


@pytest.mark.parametrize("point", sorted(_first_refusals()))
def test_without_a_refusal_there_is_none(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    assert _first_refusals()[point](session_with(monkeypatch, point, [[None], [None]])) is None


def test_the_first_plugin_that_tells_two_jobs_apart_orders_them(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_with(monkeypatch, "job_order", [[lambda job: 0], [lambda job: -job.created]])
    assert framework_of(session).job_key(job_of(session, "b")) < framework_of(session).job_key(job_of(session, "a"))


def test_age_then_name_order_what_no_plugin_tells_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_with(monkeypatch, "job_order", [[lambda job: 0]])
    assert framework_of(session).job_key(job_of(session, "a")) < framework_of(session).job_key(job_of(session, "b"))


def test_a_flag_that_is_off_takes_a_plugin_out_of_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_with(monkeypatch, "job_ready", [[False]], flags="\n    enableJobReady: false")
    assert framework_of(session).job_ready(job_of(session, "a"))


def test_a_question_without_a_flag_is_always_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_with(monkeypatch, "job_valid", [[REFUSE]], flags="\n    enableJobReady: false")
    assert framework_of(session).job_valid(job_of(session, "a")) is not None


def test_all_are_told_of_an_admission(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    session = session_with(
        monkeypatch, "job_enqueued", [[lambda job: told.append("p0")], [lambda job: told.append("p1")]]
    )
    framework_of(session).job_enqueued(job_of(session, "a"))
    assert told == ["p0", "p1"]


def test_the_first_choice_of_a_node_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [[lambda task, keys: None, lambda task, keys: 0], [lambda task, keys: 7]]
    session = session_with(monkeypatch, "best_node", answers)
    task = task_of(session, "a-0")
    assert framework_of(session).best_node(task, framework_of(session).candidates(task)) == 0


@pytest.mark.parametrize("point", ["node_order", "batch_node_order"])
def test_scores_of_both_node_order_points_count(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    class Given(Score):
        name = "given"

    session = session_with(monkeypatch, point, [[lambda: [Given()]], [lambda: [Given(), Given()]]])
    assert [score.owner for score in framework_of(session).evaluator.scores] == ["p0", "p1", "p1"]


@pytest.mark.parametrize("point", ["node_order", "batch_node_order"])
def test_a_flag_that_is_off_takes_a_plugins_scores_away(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    session = session_with(monkeypatch, point, [[lambda: [Score()]]], "\n    enableNodeOrder: false")
    assert framework_of(session).evaluator.scores == ()

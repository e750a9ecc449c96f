"""What of plugins is news: problems with other people's objects, how many and whose they are; and plugins' faults."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.daemon.pages import kept, observe_session, page_of
from tests.dsl import gang, node, pod, priority_class, queue, session_after
from tests.kube.scripted import FakeClock
from tests.world import World
from vcd.daemon.metrics.metrics_collector import Metrics
from vcd.daemon.reporting.report_dedup import CHANGE, REPEAT, FaultDedup, ProblemDedup, uid_of
from vcd.model.events import Plan
from vcd.scheduling.session.object_problems import Problem
from vcd.scheduling.session.session import Session

ONE = Problem("Queue", "a", "deserves too much")
OTHER = Problem("Pod", "default/p", "names no card")


def session_with(**told: tuple[Problem, ...] | Exception) -> Session:
    """A session whose plugins told this."""
    session = session_after(node("n"))
    session.problems.update(told)
    return session


def test_a_problem_is_news_once() -> None:
    seen = ProblemDedup()
    assert seen.news(session_with(x=(ONE,))) == [ONE]
    assert seen.news(session_with(x=(ONE,))) == []


def test_only_what_is_new_is_news() -> None:
    seen = ProblemDedup()
    seen.news(session_with(x=(ONE,)))
    assert seen.news(session_with(x=(ONE, OTHER))) == [OTHER]


def test_a_problem_that_was_mended_and_comes_back_is_news() -> None:
    seen = ProblemDedup()
    seen.news(session_with(x=(ONE,)))
    assert seen.news(session_with(x=())) == []
    assert seen.news(session_with(x=(ONE,))) == [ONE]


def test_another_message_about_the_same_object_is_news() -> None:
    seen = ProblemDedup()
    seen.news(session_with(x=(ONE,)))
    more = Problem("Queue", "a", "deserves too much by far")
    assert seen.news(session_with(x=(more,))) == [more]


def test_what_two_plugins_tell_alike_is_told_once_and_in_order() -> None:
    seen = ProblemDedup()
    assert seen.news(session_with(x=(ONE, OTHER), y=(ONE,))) == [OTHER, ONE]
    assert seen.counts() == {("Pod", "default/p"): 1, ("Queue", "a"): 1}


def test_while_a_plugin_fails_to_tell_what_stood_stands() -> None:
    seen = ProblemDedup()
    seen.news(session_with(x=(ONE,)))
    assert seen.news(session_with(x=RuntimeError("no"))) == []
    assert seen.counts() == {("Queue", "a"): 1}
    assert seen.news(session_with(x=(ONE,))) == []


def test_what_another_plugin_sees_mended_meanwhile_does_not_stand() -> None:
    seen = ProblemDedup()
    seen.news(session_with(x=(ONE,), y=(OTHER,)))
    seen.news(session_with(x=RuntimeError("no"), y=()))
    assert seen.counts() == {("Queue", "a"): 1}


def test_a_deleted_object_has_no_problems() -> None:
    """A replica that no longer led kept those of a queue until it led again."""
    seen = ProblemDedup()
    seen.news(session_with(x=(ONE, OTHER), y=(ONE,)))
    assert not seen.forget("Queue", "b")
    assert seen.forget("Queue", "a")
    assert not seen.forget("Queue", "a")
    assert seen.counts() == {("Pod", "default/p"): 1}
    assert seen.news(session_with(x=(ONE, OTHER))) == [ONE]


def test_counts_are_of_objects() -> None:
    seen = ProblemDedup()
    seen.news(session_with(x=(ONE, Problem("Queue", "a", "and more"))))
    assert seen.counts() == {("Queue", "a"): 2}
    seen.news(session_with(x=()))
    assert seen.counts() == {}


@pytest.mark.parametrize(
    ("kind", "key"),
    [("Queue", "q"), ("Pod", "default/p"), ("PodGroup", "default/g"), ("Node", "n"), ("PriorityClass", "high")],
)
def test_the_uid_is_that_of_the_object(kind: str, key: str) -> None:
    objects = [node("n"), queue("q"), pod("p"), *gang("g", 1), priority_class("high", 1)]
    for manifest in objects:
        name = manifest["metadata"]["name"]
        manifest["metadata"]["uid"] = f"uid of {name}"
    world = World(objects)
    assert uid_of(world.state, kind, key) == f"uid of {key.rpartition('/')[2]}"
    assert uid_of(world.state, kind, "none/none") == ""


class TestMetrics:
    def test_an_objects_problems_are_a_gauge(self) -> None:
        metrics = Metrics()
        metrics.observe_misconfigured({("Queue", "a"): 2, ("Pod", "default/p"): 1})
        shown = page_of(metrics)["vcd_misconfigured"]
        assert shown == {kept(kind="Queue", name="a"): 2, kept(kind="Pod", name="default/p"): 1}

    def test_the_series_goes_with_the_problem(self) -> None:
        metrics = Metrics()
        metrics.observe_misconfigured({("Queue", "a"): 2})
        metrics.observe_misconfigured({})
        assert "vcd_misconfigured" not in page_of(metrics)

    def test_who_does_not_lead_shows_none(self) -> None:
        metrics = Metrics()
        metrics.observe_misconfigured({("Queue", "a"): 2})
        metrics.observe_leadership(False, 3)
        assert "vcd_misconfigured" not in page_of(metrics)

    def test_a_plugin_that_cannot_tell_is_counted(self) -> None:
        metrics = Metrics()
        observe_session(metrics, session_with(odd=RuntimeError("no")), Plan(), None, {})
        faults = page_of(metrics)["vcd_plugin_faults_total"]
        assert {labels: count for labels, count in faults.items() if count} == {kept(plugin="odd"): 1}


# --- faults ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def news(clock: FakeClock) -> Callable[[str], bool]:
    return FaultDedup(clock.monotonic).is_news


def test_a_fault_that_lasts_is_told_now_and_then(clock: FakeClock) -> None:
    is_news = news(clock)
    told = 0
    for _ in range(int(REPEAT) * 3):
        told += is_news("slow: too slow")
        clock.advance(1.0)
    assert told == 3


def test_other_words_are_told_sooner(clock: FakeClock) -> None:
    is_news = news(clock)
    told = 0
    for second in range(int(CHANGE) * 3):
        told += is_news(f"slow: pod-{second} is odd")
        clock.advance(1.0)
    assert told == 3


def test_each_plugin_is_news(clock: FakeClock) -> None:
    is_news = news(clock)
    assert [is_news("a: no"), is_news("b: no"), is_news("a: no")] == [True, True, False]

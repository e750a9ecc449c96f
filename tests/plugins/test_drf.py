"""drf: the dominant share orders jobs."""

from __future__ import annotations

import pytest

from tests.dsl import gang, group, node, planned, pod, session_of
from tests.plugins.opened import conf, job_of, let_go, plugin_of, task_of, tasks_of
from vcd.scheduling.plugins.drf import DrfPlugin
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement

CONF = conf("drf")


def share(session: Session, name: str) -> float:
    return plugin_of(session, DrfPlugin).job_order(job_of(session, name))


def test_the_share_is_that_of_the_dominant_resource() -> None:
    """9 CPU and 18 Gi; A holds 3 x (1 CPU, 4 Gi), B 2 x (3 CPU, 1 Gi): shares 12/18 and 6/9 (the paper's example)."""
    session = session_of(
        node("n", cpu=9, memory=18),
        gang("a", 3, on=["n"] * 3, cpu=1, memory=4),
        gang("b", 2, on=["n"] * 2, cpu=3, memory=1),
        conf=CONF,
    )
    assert share(session, "a") == pytest.approx(2 / 3)
    assert share(session, "b") == pytest.approx(2 / 3)


def test_the_paper_s_division_is_reached() -> None:
    """Filled one task at a time, A gets three tasks and B two."""
    result = planned(
        node("n", cpu=9, memory=18),
        gang("a", 9, members=0, cpu=1, memory=4),
        gang("b", 9, members=0, cpu=3, memory=1),
        conf=CONF,
    )
    assert sorted(key[8] for key in result.binds) == ["a", "a", "a", "b", "b"]


def test_a_job_that_has_nothing_has_share_zero() -> None:
    assert share(session_of(node("n"), gang("g", 1, cpu=1), conf=CONF), "g") == 0.0


def test_scalars_and_pods_count() -> None:
    session = session_of(
        node("n", cpu=100, gpu=4, pods=10),
        gang("gpus", 1, on=["n"], cpu=1, gpu=3),
        gang("many", 6, on=["n"] * 6, cpu="1m"),
        conf=CONF,
    )
    assert (share(session, "gpus"), share(session, "many")) == (0.75, 0.6)


def test_a_resource_that_the_cluster_lacks_does_not_count() -> None:
    session = session_of(node("n", cpu=10), gang("g", 1, on=["gone"], cpu=1, gpu=3), conf=CONF)
    assert share(session, "g") == pytest.approx(0.1)


def test_the_smaller_share_comes_first() -> None:
    result = planned(
        node("n", cpu=8),
        gang("rich", 4, members=1, on=["n"] * 3, cpu=2),
        gang("poor", 2, members=1, on=["n"], cpu=1, created=9),
        conf=CONF,
    )
    assert list(result.binds) == ["default/poor-1"]


def test_job_order_off_leaves_it_to_age() -> None:
    result = planned(
        node("n", cpu=9),
        gang("rich", 4, members=1, on=["n"] * 3, cpu=2),
        gang("poor", 2, members=1, on=["n"], cpu=1, created=9),
        conf=CONF + "    enableJobOrder: false\n",
    )
    assert list(result.binds) == ["default/rich-3"]


def test_shares_follow_placements_and_their_reverse() -> None:
    session = session_of(node("n", cpu=8), gang("g", 1, cpu=2), conf=CONF)
    statement = Statement(session.trial, "test", job_of(session, "g"))
    statement.allocate([task_of(session, "g-0")], [0])
    assert share(session, "g") == 0.25
    statement.discard()
    assert share(session, "g") == 0.0


def test_a_task_that_waits_for_room_holds_its_share() -> None:
    session = session_of(node("n", cpu=8), gang("g", 1, cpu=2), conf=CONF)
    Statement(session.trial, "test", job_of(session, "g")).pipeline([task_of(session, "g-0")], [0])
    assert share(session, "g") == 0.25


@pytest.mark.parametrize(
    ("held", "wanted", "victims"),
    [
        pytest.param(4, 1, ["rich-0"], id="the preemptor would still have less"),
        pytest.param(3, 2, ["rich-0"], id="equal after the exchange"),
        pytest.param(3, 3, [], id="the preemptor would have more"),
    ],
)
def test_victims_are_taken_from_who_keeps_no_less(held: int, wanted: int, victims: list[str]) -> None:
    """8 CPU; one of the rich job's 1-CPU tasks goes, the preemptor gets `wanted`."""
    session = session_of(
        node("n", cpu=8),
        gang("rich", held, on=["n"] * held, cpu=1),
        gang("poor", 1, cpu=wanted),
        conf=CONF,
    )
    drf, asker = plugin_of(session, DrfPlugin), task_of(session, "poor-0")
    assert let_go(drf, "preemptable", asker, tasks_of(session, "rich-0")) == victims


def test_each_victim_lowers_its_jobs_share() -> None:
    """Of 4 CPU at most 2 may go for one of 2: 4-1 and 4-2 keep at least 2, 4-3 does not."""
    session = session_of(
        node("n", cpu=8), gang("rich", 4, on=["n"] * 4, cpu=1), group("g"), pod("p", group="g", cpu=2), conf=CONF
    )
    rich = tasks_of(session, "rich-0", "rich-1", "rich-2", "rich-3")
    victims = let_go(plugin_of(session, DrfPlugin), "preemptable", task_of(session, "p"), rich)
    assert victims == ["rich-0", "rich-1"]

"""drf with its hierarchy: shares along a tree of queues."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dsl import Manifest, gang, group, node, planned, pod, queue, session_after, session_of
from tests.plugins.opened import conf, job_of, let_go, plugin_of, queue_of, task_of, tasks_of
from tests.sizes import examples
from vcd.scheduling.framework.declared_reasons import all_told
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.order_positions import standing_of_queue
from vcd.scheduling.plugins.drf import DrfPlugin
from vcd.scheduling.plugins.drf.hierarchy import ONE, Places
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement

HIERARCHICAL = conf("gang", "drf", actions="allocate") + "    enableHierarchy: true\n"
FLAT = conf("gang", "drf", actions="allocate")
GRAIN = 1024


def placed(name: str, hierarchy: str | None, weights: str | None = None, **options: Any) -> Manifest:
    """A queue with its place in the hierarchy."""
    marks = {"volcano.sh/hierarchy": hierarchy, "volcano.sh/hierarchy-weights": weights}
    manifest = queue(name, **options)
    manifest["metadata"]["annotations"] = {key: text for key, text in marks.items() if text is not None}
    return manifest


def standing(session: Session, name: str) -> list[tuple[bool, float]]:
    """Per place from the top: whether it is saturated, and its share by weight."""
    rank = plugin_of(session, DrfPlugin).queue_order(queue_of(session, name))
    assert not isinstance(rank, int)
    return [(saturated, pytest.approx(share * GRAIN / ONE, abs=1e-9)) for saturated, share in rank.standing]


def first(session: Session, *names: str) -> list[str]:
    """Queues, the one served first in front."""
    return sorted(names, key=lambda name: framework_of(session).queue_key(queue_of(session, name)))


def reclaimable(session: Session, reclaimer: str, *names: str) -> list[str]:
    drf = plugin_of(session, DrfPlugin)
    return let_go(drf, "reclaimable", task_of(session, reclaimer), tasks_of(session, *names))


# --- the flag -------------------------------------------------------------------------------------------------------


def test_without_the_flag_queues_are_not_ordered() -> None:
    session = session_of(
        node("n", cpu=8),
        placed("a", "root/a", "1/1"),
        placed("b", "root/b", "1/1"),
        gang("ga", 2, members=1, queue="a", on=["n"], cpu=4),
        gang("gb", 1, queue="b", cpu=4),
        conf=FLAT,
    )
    assert first(session, "b", "a") == ["a", "b"]


def test_without_the_flag_nothing_is_said_about_reclaim() -> None:
    session = session_of(node("n"), gang("a", 1, on=["n"], cpu=1), gang("b", 1, cpu=1), conf=FLAT)
    assert plugin_of(session, DrfPlugin).reclaimable(task_of(session, "b-0"), tasks_of(session, "a-0")) is None


# --- worked examples ------------------------------------------------------------------------------------------------


def test_shares_are_compared_by_weight() -> None:
    """A has 0.4 and weight 2, B 0.3 and weight 1: 0.2 against 0.3, A first."""
    session = session_of(
        node("n", cpu=10),
        placed("a", "root/a", "1/2"),
        placed("b", "root/b", "1/1"),
        gang("ga", 5, members=1, queue="a", on=["n"] * 4, cpu=1),
        gang("gb", 4, members=1, queue="b", on=["n"] * 3, cpu=1),
        conf=HIERARCHICAL,
    )
    assert (standing(session, "a"), standing(session, "b")) == ([(False, 0.2)], [(False, 0.3)])
    assert first(session, "a", "b") == ["a", "b"]


def test_the_dominant_resource_of_a_queue_makes_its_share() -> None:
    """32 CPU and 128 Gi; 8 CPU and 24 Gi are held: 25 % of CPU, 18.75 % of memory."""
    session = session_of(
        node("n", cpu=32, memory=128),
        placed("a", "root/a", "1/1"),
        gang("ga", 9, members=1, queue="a", on=["n"] * 8, cpu=1, memory=3),
        conf=HIERARCHICAL,
    )
    assert standing(session, "a") == [(False, 0.25)]


def rescaling() -> list[Manifest]:
    """Volcano's design, first example: complementary children of eng."""
    return [
        node("n", cpu=10, memory=10, pods=50),
        placed("q1", "root/sci", "100/50"),
        placed("q2", "root/eng/dev", "100/50/50"),
        placed("q3", "root/eng/prod", "100/50/50"),
        *gang("pg1", 10, members=0, queue="q1", cpu=1, memory=1),
        *gang("pg21", 10, members=0, queue="q2", cpu=1),
        *gang("pg22", 10, members=0, queue="q3", memory=1),
    ]


def test_children_are_rescaled_to_the_smallest_share() -> None:
    result = planned(*rescaling(), conf=HIERARCHICAL)
    assert count(result.binds) == {"pg1": 5, "pg21": 5, "pg22": 5}


def test_a_saturated_child_is_not_rescaled() -> None:
    """30 CPU and 30 Gi: three queues share the CPU, and two the memory alone (Volcano's design, second example)."""
    result = planned(
        node("n", cpu=30, memory=30, pods=500),
        placed("q1", "root/pg1", "100/25"),
        placed("q2", "root/pg2", "100/25"),
        placed("q31", "root/pg3/pg31", "100/25/50"),
        placed("q32", "root/pg3/pg32", "100/25/50"),
        placed("q4", "root/pg4", "100/25"),
        gang("pg1", 30, members=0, queue="q1", cpu=1),
        gang("pg2", 30, members=0, queue="q2", cpu=1),
        gang("pg31", 30, members=0, queue="q31", cpu=1),
        gang("pg32", 30, members=0, queue="q32", memory=1),
        gang("pg4", 30, members=0, queue="q4", memory=1),
        conf=HIERARCHICAL,
    )
    assert count(result.binds) == {"pg1": 10, "pg2": 10, "pg31": 10, "pg32": 15, "pg4": 15}


def count(binds: dict[str, str]) -> dict[str, int]:
    groups = [key.partition("/")[2].rpartition("-")[0] for key in binds]
    return {name: groups.count(name) for name in sorted(set(groups))}


def test_a_place_holds_its_children_scaled_to_the_smallest() -> None:
    """dev holds 4/8 CPU, prod 2/8 CPU: eng has 2/8 + 2/8."""
    session = session_of(
        node("n", cpu=8),
        placed("dev", "root/eng/dev", "1/1/1"),
        placed("prod", "root/eng/prod", "1/1/1"),
        gang("d", 5, members=1, queue="dev", on=["n"] * 4, cpu=1),
        gang("p", 3, members=1, queue="prod", on=["n"] * 2, cpu=1),
        conf=HIERARCHICAL,
    )
    assert standing(session, "dev") == [(False, 0.5), (False, 0.5)]
    assert standing(session, "prod") == [(False, 0.5), (False, 0.25)]


# --- saturation -----------------------------------------------------------------------------------------------------


def test_a_job_that_has_all_it_asks_for_is_saturated() -> None:
    session = session_of(
        node("n", cpu=8),
        placed("full", "root/full", "1/1"),
        placed("more", "root/more", "1/1"),
        gang("f", 1, queue="full", on=["n"], cpu=1),
        gang("m", 2, members=1, queue="more", on=["n"], cpu=3),
        conf=HIERARCHICAL,
    )
    assert standing(session, "full")[0][0]
    assert first(session, "full", "more") == ["more", "full"]


def test_tasks_that_ended_ask_for_nothing_more() -> None:
    session = session_of(
        node("n", cpu=8),
        placed("q", "root/q", "1/1"),
        group("g", queue="q"),
        pod("done", group="g", on="n", phase="Succeeded", cpu=1),
        pod("runs", group="g", on="n", cpu=1),
        group("old", queue="q"),
        pod("gone", group="old", on="n", phase="Failed", cpu=1),
        conf=HIERARCHICAL,
    )
    assert standing(session, "q") == [(True, 0.125)]


@pytest.mark.parametrize("held", [0, 1, 3])
def test_a_job_is_saturated_by_what_is_used_up_if_it_holds_some_of_it_not_if_it_asks_for_some(held: int) -> None:
    session = session_of(
        node("n", cpu=4),
        placed("a", "root/a", "1/1"),
        placed("b", "root/b", "1/1"),
        gang("ga", 4, members=0, queue="a", on=["n"] * held, cpu=1),
        gang("gb", 5, members=1, queue="b", on=["n"] * (4 - held), cpu=1),
        conf=HIERARCHICAL,
    )
    assert standing(session, "a") == [(held > 0, held / 4)]


@pytest.mark.parametrize(("holds", "saturated"), [("cpu", False), ("memory", True)])
def test_what_is_used_up_saturates_a_job_that_holds_it_beside_another_that_it_holds_too_little_of(
    holds: str, saturated: bool
) -> None:
    """Memory is used up; the job wants both and holds one of them."""
    rest = 8 if holds == "cpu" else 7
    session = session_of(
        node("n", cpu=8, memory=8),
        placed("a", "root/a", "1/1"),
        placed("b", "root/b", "1/1"),
        group("ga", members=0, queue="a"),
        pod("holds", group="ga", on="n", **{holds: 1}),
        pod("wants", group="ga", cpu=2, memory=2),
        gang("gb", rest + 1, members=1, queue="b", on=["n"] * rest, memory=1),
        conf=HIERARCHICAL,
    )
    assert standing(session, "a") == [(saturated, 0.125)]
    statement = Statement(session.trial, "test", job_of(session, "gb"))
    statement.evict(task_of(session, "gb-0"), "test")
    assert standing(session, "a") == [(False, 0.125)]


def test_a_queue_that_has_nothing_comes_before_one_that_holds_what_is_used_up() -> None:
    """The one that merely asks for it is not done yet."""
    session = session_of(
        node("n", cpu=4),
        placed("a", "root/a", "1/1"),
        placed("b", "root/b", "1/9"),
        gang("ga", 1, queue="a", cpu=1),
        gang("gb", 5, members=1, queue="b", on=["n"] * 4, cpu=1),
        conf=HIERARCHICAL,
    )
    assert first(session, "b", "a") == ["a", "b"]


def test_a_job_that_asks_for_nothing_that_is_used_up_is_not_saturated() -> None:
    session = session_of(
        node("n", cpu=4, memory=8),
        placed("a", "root/a", "1/1"),
        placed("b", "root/b", "1/1"),
        gang("ga", 5, members=1, queue="a", on=["n"] * 4, cpu=1),
        gang("gb", 5, members=1, queue="b", on=["n"] * 4, memory=1),
        conf=HIERARCHICAL,
    )
    assert (standing(session, "a")[0][0], standing(session, "b")[0][0]) == (True, False)


def test_a_place_is_saturated_when_all_below_it_is() -> None:
    session = session_of(
        node("n", cpu=8),
        placed("a", "root/p/a", "1/1/1"),
        placed("b", "root/p/b", "1/1/1"),
        gang("ga", 1, queue="a", on=["n"], cpu=1),
        gang("gb", 2, members=1, queue="b", on=["n"], cpu=1),
        conf=HIERARCHICAL,
    )
    assert standing(session, "a") == [(False, 0.25), (True, 0.125)]
    statement = Statement(session.trial, "test", job_of(session, "gb"))
    statement.allocate([task_of(session, "gb-1")], [0])
    assert standing(session, "a") == [(True, 0.375), (True, 0.125)]


def test_freed_room_ends_saturation() -> None:
    session = session_of(
        node("n", cpu=4),
        placed("a", "root/a", "1/1"),
        placed("b", "root/b", "1/1"),
        gang("ga", 4, members=1, queue="a", on=["n"] * 3, cpu=1),
        gang("gb", 1, queue="b", on=["n"], cpu=1),
        conf=HIERARCHICAL,
    )
    assert standing(session, "a") == [(True, 0.75)]
    statement = Statement(session.trial, "test", job_of(session, "ga"))
    statement.evict(task_of(session, "gb-0"), "test")
    assert standing(session, "a") == [(False, 0.75)]
    statement.discard()
    assert standing(session, "a") == [(True, 0.75)]


# --- the order of queues --------------------------------------------------------------------------------------------


def test_the_top_of_the_tree_decides_first() -> None:
    session = session_of(
        node("n", cpu=10),
        placed("poor", "root/big/poor", "1/1/1"),
        placed("rich", "root/big/rich", "1/1/1"),
        placed("other", "root/other", "1/1"),
        gang("gp", 3, members=1, queue="poor", on=["n"], cpu=1),
        gang("gr", 4, members=1, queue="rich", on=["n"] * 3, cpu=1),
        gang("go", 3, members=1, queue="other", on=["n"], cpu="1500m"),
        conf=HIERARCHICAL,
    )
    assert first(session, "poor", "rich", "other") == ["other", "poor", "rich"]


def test_equal_queues_go_by_age() -> None:
    session = session_of(node("n"), placed("b", "root/b", "1/1"), placed("a", "root/a", "1/1"), conf=HIERARCHICAL)
    assert first(session, "b", "a") == ["a", "b"]


def test_queues_are_compared_as_far_down_as_both_go() -> None:
    """p and c are equal: whatever is below p, age and name decide."""
    session = session_of(
        node("n", cpu=8),
        placed("b", "root/p/b", "1/1/1"),
        placed("c", "root/c", "1/1"),
        gang("gb", 2, members=1, queue="b", on=["n"], cpu=1),
        gang("gc", 2, members=1, queue="c", on=["n"], cpu=1),
        conf=HIERARCHICAL,
    )
    assert first(session, "c", "b") == ["b", "c"]
    assert reclaimable(session, "gb-1", "gc-0") == []


def test_queue_order_off_leaves_it_to_age() -> None:
    session = session_of(
        node("n"),
        placed("a", "root/a", "1/1"),
        placed("b", "root/b", "1/1"),
        gang("ga", 2, members=1, queue="a", on=["n"], cpu=1),
        gang("gb", 1, queue="b", cpu=1),
        conf=HIERARCHICAL + "    enableQueueOrder: false\n",
    )
    assert first(session, "b", "a") == ["a", "b"]


def test_queues_that_wait_in_a_heap_move_with_what_is_placed_beside_them() -> None:
    """A key taken before a sibling got something compares as things are then."""
    session = session_of(
        node("n", cpu=8),
        placed("a", "root/p/a", "1/1/1"),
        placed("b", "root/p/b", "1/1/1"),
        placed("c", "root/c", "1/1"),
        gang("ga", 2, members=0, queue="a", cpu=1),
        gang("gb", 2, members=0, queue="b", cpu=1),
        gang("gc", 2, members=0, queue="c", cpu=1),
        conf=HIERARCHICAL,
    )
    b, c = (framework_of(session).queue_key(queue_of(session, name)) for name in "bc")
    assert b < c
    Statement(session.trial, "test", job_of(session, "ga")).allocate([task_of(session, "ga-0")], [0])
    assert c < b


# --- reclaim --------------------------------------------------------------------------------------------------------


def two_queues(weights: tuple[str, str] = ("1/1", "1/1"), held: int = 8) -> Session:
    """8 CPU; queue rich runs `held` one-CPU pods, queue poor wants one."""
    return session_of(
        node("n", cpu=8),
        placed("rich", "root/rich", weights[0]),
        placed("poor", "root/poor", weights[1]),
        gang("r", held + 1, members=1, queue="rich", on=["n"] * held, cpu=1),
        gang("p", 9, members=1, queue="poor", on=["n"] * (8 - held), cpu=1),
        conf=HIERARCHICAL,
    )


@pytest.mark.parametrize(
    ("weights", "held", "goes"),
    [
        pytest.param(("1/1", "1/1"), 8, True, id="1/8 against 7/8"),
        pytest.param(("1/1", "1/1"), 6, True, id="3/8 against 5/8"),
        pytest.param(("1/1", "1/1"), 5, False, id="equal after the exchange"),
        pytest.param(("1/1", "1/1"), 4, False, id="the reclaimer would have more"),
        pytest.param(("1/4", "1/1"), 7, False, id="2/8 against 6/8 of weight 4"),
        pytest.param(("1/1", "1/4"), 4, True, id="5/8 of weight 4 against 3/8"),
    ],
)
def test_a_task_may_go_when_its_queue_still_comes_after(weights: tuple[str, str], held: int, goes: bool) -> None:
    session = two_queues(weights, held)
    assert reclaimable(session, "p-8", "r-0") == (["r-0"] if goes else [])


def test_each_task_is_judged_by_itself_in_the_order_given() -> None:
    assert reclaimable(two_queues(), "p-0", "r-3", "r-0", "r-1") == ["r-3", "r-0", "r-1"]


def test_asking_changes_nothing() -> None:
    """Looked at anew after a placement elsewhere was made and taken back, all is as it was."""
    session = session_of(
        node("n", cpu=8),
        placed("rich", "root/rich", "1/1"),
        placed("poor", "root/poor", "1/1"),
        gang("r", 7, members=1, queue="rich", on=["n"] * 6, cpu=1),
        gang("p", 3, members=1, queue="poor", on=["n"] * 2, cpu=1),
        gang("other", 1, queue="poor", memory=1),
        conf=HIERARCHICAL,
    )
    before = standing(session, "rich"), standing(session, "poor")
    assert reclaimable(session, "p-2", "r-0", "r-1") == ["r-0", "r-1"]
    statement = Statement(session.trial, "test", job_of(session, "other"))
    statement.allocate([task_of(session, "other-0")], [0])
    statement.discard()
    assert (standing(session, "rich"), standing(session, "poor")) == before


@pytest.mark.parametrize(("wanted", "evicted"), [(1, 1), (4, 3), (9, 7)])
def test_the_action_takes_back_as_long_as_the_giver_has_more(wanted: int, evicted: int) -> None:
    """8 CPU, all held by one queue; the other wants pods of one CPU: 3 against 5, and 4 would not be less than 4.

    While one of its jobs has nothing at all it is not saturated, as in Volcano, and comes before the one that is.
    """
    result = planned(
        node("n", cpu=8),
        placed("rich", "root/rich", "1/1"),
        placed("poor", "root/poor", "1/1"),
        gang("r", 9, members=1, queue="rich", on=["n"] * 8, cpu=1),
        [each for i in range(wanted) for each in gang(f"p{i}", 1, queue="poor", cpu=1)],
        conf=HIERARCHICAL.replace('actions: "allocate"', 'actions: "allocate, reclaim"'),
    )
    assert len(result.evictions) == evicted


@pytest.mark.parametrize("others", [0, 1])
def test_a_saturated_queue_gives_whatever_its_share(others: int) -> None:
    """5 CPU, all used. With a job that wants memory alone the reclaimer's queue is not saturated; the giver's is."""
    session = session_of(
        node("n", cpu=5),
        placed("less", "root/less", "1/1"),
        placed("more", "root/more", "1/1"),
        gang("l", 3, members=1, queue="less", on=["n"] * 2, cpu=1),
        gang("m", 4, members=1, queue="more", on=["n"] * 3, cpu=1),
        gang("waits", others, members=0, queue="more", memory=1),
        conf=HIERARCHICAL,
    )
    assert reclaimable(session, "m-3", "l-0") == ["l-0"] * others


# --- annotations ----------------------------------------------------------------------------------------------------


def test_a_queue_without_hierarchy_is_a_child_of_the_root() -> None:
    session = session_of(
        node("n", cpu=10),
        placed("a", "root/a", "1/1"),
        queue("plain"),
        placed("root", "root", "1"),
        gang("ga", 2, members=1, queue="a", on=["n"], cpu=1),
        gang("gp", 4, members=1, queue="plain", on=["n"] * 2, cpu=1),
        gang("gr", 4, members=1, queue="root", on=["n"] * 3, cpu=1),
        conf=HIERARCHICAL,
    )
    assert (standing(session, "plain"), standing(session, "root")) == ([(False, 0.2)], [(False, 0.3)])
    assert first(session, "plain", "root", "a") == ["a", "plain", "root"]


def test_a_queue_above_others_has_its_jobs_beside_them() -> None:
    session = session_of(
        node("n", cpu=10),
        placed("top", "root/top", "1/1"),
        placed("below", "root/top/below", "1/1/1"),
        gang("gt", 2, members=1, queue="top", on=["n"], cpu=1),
        gang("gb", 2, members=1, queue="below", on=["n"], cpu=2),
        conf=HIERARCHICAL,
    )
    assert (standing(session, "top")[1], standing(session, "below")[1]) == ((False, 0.1), (False, 0.2))


@pytest.mark.parametrize(
    ("hierarchy", "weights", "words"),
    [
        ("root/a", "1", "must hold one weight for each of the 2 names; missing ones are 1"),
        ("root/a", None, "must hold one weight for each of the 2 names; missing ones are 1"),
        ("root/a", "1/1/3", "must hold one weight for each of the 2 names; missing ones are 1"),
        ("root/a", "1/x", "holds 'x', which counts as 1; write a number of at least 1"),
        ("root/a", "1/nan", "holds 'nan', which counts as 1; write a number of at least 1"),
        ("root/a", "1/1e999", "holds '1e999', which counts as 1; write a number of at least 1"),
        ("root/a", "1/-3", "holds '-3', which counts as 1; write a number of at least 1"),
        ("root/a", "1/0.5", "holds '0.5', which counts as 1; write a number of at least 1"),
        ("root/a", "1/3", "differs from that of queue b for a, whose weight holds"),
        ("top/a", "1/1", "is read as names below the root; write root/<name>/..."),
        ("root//a", "1/1/1", "is read as names below the root; write root/<name>/..."),
        ("root/b", "1/1", "names a place with queues below it; give the jobs a queue below it"),
    ],
)
def test_what_cannot_be_taken_as_written_is_told(hierarchy: str, weights: str | None, words: str) -> None:
    others = [placed("b", "root/a", "1/1"), placed("d", "root/b/c", "1/1/1")]
    session = session_after(
        node("n", cpu=1), *others, placed("q", hierarchy, weights), gang("g", 1, queue="q", cpu=2), conf=HIERARCHICAL
    )
    told = [waits.reason for waits in all_told(job_of(session, "g").why) if waits.plugin == "drf"]
    assert [reason.partition(" of queue q ")[2] for reason in told] == [words]


def test_what_is_right_is_not_complained_of() -> None:
    session = session_of(*rescaling(), conf=HIERARCHICAL)
    assert not any(Places(session.queue_list).wrong)


def test_decimal_weights_count() -> None:
    session = session_of(
        node("n", cpu=10),
        placed("a", "root/a", "1/2.5"),
        gang("g", 6, members=1, queue="a", on=["n"] * 5, cpu=1),
        conf=HIERARCHICAL,
    )
    assert standing(session, "a") == [(False, 0.2)]


# --- the tree held to the recursion ---------------------------------------------------------------------------------

PATHS = ("root/a", "root/b/x", "root/b/y", "root/c/d/e", "root/c/d/f", "root/c/g")


class Place(NamedTuple):
    """What the recursion says of a place: what it holds, its share, whether it is saturated."""

    held: list[float]
    share: float
    saturated: bool


def recursion(session: Session) -> dict[str, Place]:
    """The rules with plain loops over plain numbers: every place by its path."""
    totals = [float(total) for total in session.nodes.total]
    jobs = [(job.queue.name, job.allocated, live(session, job.index)) for job in session.all_jobs()]
    used = [sum(allocated[column] for _, allocated, _ in jobs) for column in range(len(totals))]
    full = [total <= amount for total, amount in zip(totals, used, strict=True)]
    found: dict[str, Place] = {}

    def share_of(held: list[float]) -> float:
        return max((have / total for have, total in zip(held, totals, strict=True) if total), default=0.0)

    def visit(path: str) -> Place:
        below = {"/".join(other.split("/")[: path.count("/") + 2]) for other in PATHS if other.startswith(f"{path}/")}
        children = [visit(child) for child in sorted(below)]
        for name, allocated, wanted in jobs:
            if f"root/{name.replace('.', '/')}" == path and any(wanted):
                pairs = zip(allocated, wanted, full, strict=True)
                saturated = any(want and have and (have >= want or none_left) for have, want, none_left in pairs)
                children.append(Place([float(have) for have in allocated], share_of(allocated), saturated))
        rising = [child for child in children if child.share and not child.saturated]
        least = min([1.0, *[child.share for child in rising]])
        held = [0.0] * len(totals)
        for child in children:
            factor = 1.0 if child.saturated else least / child.share if child.share else 0.0
            held = [have + part * factor for have, part in zip(held, child.held, strict=True)]
        found[path] = Place(held, share_of(held), all(child.saturated for child in children))
        return found[path]

    visit("root")
    return found


def live(session: Session, job: int) -> list[int]:
    tasks = [task for task in session.job(job).tasks() if task.status not in (7, 8)]
    return [sum(task.amounts[column] for task in tasks) for column in range(len(session.nodes.resources))]


weight = st.sampled_from(["1", "2", "3", "7.5"])
size = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2))
job = st.tuples(st.sampled_from(PATHS), size, st.integers(0, 4), st.integers(0, 3), st.integers(0, 1))


@settings(max_examples=examples(80), deadline=None)
@given(
    weights=st.lists(weight, min_size=9, max_size=9),
    jobs=st.lists(job, min_size=1, max_size=8),
    room=st.tuples(st.integers(1, 30), st.integers(1, 30), st.integers(1, 10)),
    moves=st.lists(st.tuples(st.booleans(), st.integers(0, 50)), max_size=12),
)
def test_the_sums_kept_are_those_of_the_recursion(
    weights: list[str], jobs: list[Any], room: tuple[int, int, int], moves: list[tuple[bool, int]]
) -> None:
    names = sorted(
        {"/".join(path.split("/")[: depth + 1]) for path in PATHS for depth in range(1, path.count("/") + 1)}
    )
    weight_of = dict(zip(["root", *names], ["1", *weights], strict=False))
    objects: list[Manifest] = [node("n", cpu=room[0], memory=room[1], gpu=room[2], pods=1000)]
    for path in PATHS:
        parts = path.split("/")
        texts = [weight_of["/".join(parts[: depth + 1])] for depth in range(len(parts))]
        objects.append(placed(".".join(parts[1:]), path, "/".join(texts)))
    for number, (path, (cpu, memory, gpu), pending, running, ended) in enumerate(jobs):
        objects.append(group(f"g{number}", members=0, queue=".".join(path.split("/")[1:])))
        phases = ["Pending"] * pending + ["Running"] * running + ["Succeeded"] * ended
        for index, phase in enumerate(phases):
            place = "n" if phase != "Pending" else ""
            amounts = {"cpu": cpu, "memory": memory, "gpu": gpu}
            objects.append(pod(f"p{number}-{index}", group=f"g{number}", on=place, phase=phase, **amounts))
    session = session_of(*objects, conf=HIERARCHICAL)
    start = all_standings(session)
    check(session, weight_of)
    statements = []
    for allocates, which in moves:
        wanted = 0 if allocates else 5
        tasks = [task for each in session.all_jobs() for task in each.tasks() if task.status == wanted]
        if tasks:
            task = tasks[which % len(tasks)]
            statements.append(Statement(session.trial, "test", task.job))
            statements[-1].allocate([task], [0]) if allocates else statements[-1].evict(task, "test")
            check(session, weight_of)
    for statement in reversed(statements):
        statement.discard()
    assert all_standings(session) == start


def test_where_a_queue_stood_stays_what_it_was_then() -> None:
    """Its key compares as things stand; what is written down of it does not change with what is placed later."""
    jobs = [gang("g", 2, queue="a", cpu=2), gang("h", 2, queue="b", cpu=2)]
    session = session_of(
        node("n", cpu=8), placed("a", "root/a", "1/1"), placed("b", "root/b", "1/1"), *jobs, conf=HIERARCHICAL
    )
    who, (first, second) = framework_of(session).participants, (session.queues["a"], session.queues["b"])
    before = standing_of_queue(who, first)
    assert before.key == framework_of(session).queue_key(first)
    (figures,) = [each.shown() for each in before.said if each.plugin == "drf"]
    task = next(iter(next(job for job in session.all_jobs() if job.queue is first).tasks()))
    Statement(session.trial, "test", task.job).allocate([task], [0])
    assert framework_of(session).queue_key(first) > framework_of(session).queue_key(second)
    assert [each.shown() for each in before.said if each.plugin == "drf"] == [figures]
    assert before.key < standing_of_queue(who, first).key


def all_standings(session: Session) -> list[Any]:
    plugin = plugin_of(session, DrfPlugin)
    return [getattr(plugin.queue_order(each), "standing", None) for each in session.queue_list]


def check(session: Session, weight_of: dict[str, str]) -> None:
    expected = recursion(session)
    for path in PATHS:
        parts = path.split("/")
        places = ["/".join(parts[: depth + 1]) for depth in range(1, len(parts))]
        wanted = [(expected[place].saturated, expected[place].share / float(weight_of[place])) for place in places]
        assert standing(session, ".".join(parts[1:])) == wanted

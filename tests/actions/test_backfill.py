"""backfill."""

from __future__ import annotations

from tests.dsl import gang, group, node, planned, pod

CONF = "actions: allocate, backfill\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n"


def test_a_best_effort_pod_is_placed() -> None:
    assert planned(node("n"), gang("g", 1), conf=CONF).binds == {"default/g-0": "n"}


def test_allocate_alone_leaves_best_effort_pods() -> None:
    assert planned(node("n"), gang("g", 1), conf=CONF.replace(", backfill", "")).binds == {}


def test_a_node_without_a_place_for_a_pod_takes_none() -> None:
    result = planned(node("n", pods=1), gang("old", 1, on=["n"]), gang("g", 1), conf=CONF)
    assert result.binds == {}
    assert result.why["default/g"][0]["reason"] == "Too many pods"


def test_a_best_effort_pod_behind_a_bad_one_still_binds() -> None:
    """pains.md 20."""
    bad = pod("a-bad", group="g", spec={"schedulingGates": [{"name": "wait"}]})
    result = planned(node("n"), group("g"), bad, pod("b-good", group="g"), conf=CONF)
    assert result.binds == {"default/b-good": "n"}


def test_best_effort_pods_count_towards_the_gang() -> None:
    result = planned(
        node("n", cpu=2),
        group("g", members=3),
        pod("a", group="g", cpu=1),
        pod("b", group="g", cpu=1),
        pod("c", group="g"),
        conf=CONF,
    )
    assert len(result.binds) == 3


def test_a_pending_group_waits_for_enqueue() -> None:
    result = planned(
        node("n"), gang("g", 1, phase="Pending"), conf="actions: backfill\ntiers:\n- plugins:\n  - name: gang\n"
    )
    assert result.binds == {}

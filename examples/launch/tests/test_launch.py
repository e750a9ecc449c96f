"""The action launch: the node with the fewest pods."""

from __future__ import annotations

from clusters import CONF, group, node, planned, pod


def test_a_pod_goes_to_the_node_with_the_fewest_pods() -> None:
    running = [pod("x", on="a"), pod("y", on="a"), pod("z", on="b")]
    result = planned(node("a", 64), node("b", 8), *running, pod("new"))
    assert result.binds == {"default/new": "b"}


def test_of_equals_the_first_by_name_is_taken() -> None:
    assert planned(node("b"), node("a"), pod("new")).binds == {"default/new": "a"}


def test_each_pod_counts_for_the_next() -> None:
    result = planned(node("a"), node("b"), group("g", 4), *[pod(f"g-{i}", group="g") for i in range(4)])
    assert sorted(result.binds.values()) == ["a", "a", "b", "b"]


def test_a_node_without_room_takes_nothing() -> None:
    result = planned(node("a", 2), node("b", 8), pod("x", on="b"), pod("big", 4))
    assert result.binds == {"default/big": "b"}


def test_predicates_hold() -> None:
    result = planned(node("a"), node("b"), pod("x", on="b"), pod("new", nodeSelector={"kubernetes.io/os": "plan9"}))
    assert result.binds == {}
    assert "node(s)" in result.why["default/podgroup-new"][0]["reason"]


def test_half_a_gang_is_not_placed() -> None:
    result = planned(node("a", 2), group("g", 3), *[pod(f"g-{i}", group="g") for i in range(3)], pod("other"))
    assert result.binds == {"default/other": "a"}
    assert result.why["default/g"][0]["reason"] == "Insufficient cpu"


def test_what_is_above_the_minimum_is_placed_as_far_as_there_is_room() -> None:
    result = planned(node("a", 2), group("g", 1), *[pod(f"g-{i}", group="g") for i in range(3)])
    assert len(result.binds) == 2


def test_a_gang_with_too_few_pods_is_not_tried() -> None:
    assert planned(node("a"), group("g", 2), pod("g-0", group="g")).why["default/g"][0]["gate"] == "invalid"


def test_a_group_that_was_not_admitted_waits_for_enqueue() -> None:
    objects = (node("a"), group("g", 1, phase="Pending"), pod("g-0", group="g"))
    first = CONF.replace("enqueue, launch", "launch, enqueue")
    assert planned(*objects, conf=first).binds == {}
    assert planned(*objects).binds == {"default/g-0": "a"}
    assert planned(*objects, conf=CONF.replace("enqueue, ", "")).binds == {"default/g-0": "a"}


def test_a_queue_that_has_its_share_gets_no_more() -> None:
    capped = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "default"},
        "spec": {"weight": 1, "capability": {"cpu": "2"}},
    }
    conf = CONF + "  - name: proportion\n"
    pods = [pod(f"p{i}") for i in range(3)]
    assert len(planned(node("a"), capped, *pods, conf=conf).binds) == 2

"""capacity-card: which cards nodes have, by their labels and what is allocatable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.dsl import gang, node, planned, session_of
from tests.plugins.opened import plugin_of
from tests.plugins.test_capacity_card import (
    GPU,
    H200,
    A,
    B,
    allocate_reason,
    card_conf,
    card_queue,
    carded,
    gauges,
    opened,
    users,
)
from tests.predicates.asking import named, passing, pending
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.plugins.capacity_card import CapacityCardPlugin
from vcd.scheduling.plugins.capacity_card.node_cards import NodeCards, cards_of

Manifest = dict[str, Any]


def cards(*nodes: Manifest) -> NodeCards:
    return cards_of(session_of(*nodes).nodes.facts)


def totals(*nodes: Manifest) -> dict[str, float]:
    """What the cluster has, in cards."""
    return {name: amount / 1000 for name, amount in cards(*nodes).total.items()}


def labelled(*, allocatable: dict[str, Any], **labels: str) -> Manifest:
    """A node with labels under nvidia.com/ and what is allocatable."""
    return node(
        "n", labels={f"nvidia.com/{key.replace('__', '.')}": text for key, text in labels.items()}, **allocatable
    )


def test_the_document_s_node_has_eight_cards() -> None:
    """NIVIDIA-H20, 8 cards of 97871 MiB."""
    assert totals(carded("n", "NIVIDIA-H20", 8, memory="97871")) == {"NIVIDIA-H20": 8}


def test_the_document_s_mps_shares_by_the_formula() -> None:
    """97871 MiB are 96 GiB (examples in circulation write 90), each card in 2."""
    shared = carded(
        "n", "NIVIDIA-H20", 0, memory="97871", labels={"nvidia.com/gpu.replicas": "2"}, **{"nvidia.com/gpu.shared": 8}
    )
    assert totals(shared) == {"NIVIDIA-H20": 0, "NIVIDIA-H20/mps-96g*1/2": 8}


@pytest.mark.parametrize(
    ("memory", "name"),
    [("81920", "X/mps-80g*1/2"), ("81559", "X/mps-80g*1/2"), ("24564", "X/mps-24g*1/2"), ("512", "X/mps-1g*1/2")],
)
def test_a_share_s_memory_is_rounded_to_gigabytes(memory: str, name: str) -> None:
    shared = labelled(gpu__product="X", gpu__memory=memory, gpu__replicas="2", allocatable={"nvidia.com/gpu.shared": 4})
    assert totals(shared) == {name: 4}


def test_the_document_s_mig_slices() -> None:
    sliced = carded("n", "NIVIDIA-H20", 6, **{"nvidia.com/mig-1g.12gb": 2})
    assert totals(sliced) == {"NIVIDIA-H20": 6, "NIVIDIA-H20/mig-1g.12gb-mixed": 2}


def test_the_document_s_node_of_whole_cards_and_slices() -> None:
    """Eight H200: seven whole, one cut into a 3g.71gb and three 1g.18gb; what is allocatable counts, not the label."""
    mixed = carded(
        "n", H200, 7, labels={"nvidia.com/gpu.count": "8"}, **{"nvidia.com/mig-3g.71gb": 1, "nvidia.com/mig-1g.18gb": 3}
    )
    assert totals(mixed) == {H200: 7, f"{H200}/mig-3g.71gb-mixed": 1, f"{H200}/mig-1g.18gb-mixed": 3}


def test_amounts_of_all_nodes_add_up_by_model() -> None:
    assert totals(carded("a", A, 2), carded("b", A, 3), carded("c", B, 1)) == {A: 5, B: 1}


def test_any_vendor_s_labels_count() -> None:
    huawei = carded("n", "Ascend-910B", 8, vendor="huawei.com", kind="npu")
    assert totals(huawei) == {"Ascend-910B": 8}
    ppu = node(
        "m",
        labels={"alibaba.com/ppu.product": "PPU-ZW810E", "alibaba.com/ppu.memory": "96000"},
        **{"alibaba.com/zw": 4},
    )
    assert totals(ppu) == {"PPU-ZW810E": 4}


def test_of_a_vendor_s_resources_the_one_of_the_label_is_the_whole_card() -> None:
    both = carded("n", A, 4, **{"nvidia.com/fabric": 9})
    assert totals(both) == {A: 4}
    assert cards(both).resources == (GPU,)


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"gpu__product": A},
        {"gpu__memory": "81920"},
        {"gpu__product": "", "gpu__memory": "81920"},
        {"mig-1g.5gb__product": A, "mig-1g.5gb__memory": "4864"},
    ],
)
def test_without_product_and_memory_there_is_no_card(labels: dict[str, str]) -> None:
    assert totals(labelled(allocatable={"gpu": 4}, **labels)) == {}


@pytest.mark.parametrize("replicas", [None, "", "x", "0", "-2"])
def test_shares_without_a_number_of_replicas_are_no_cards(replicas: str | None) -> None:
    marks = {} if replicas is None else {"gpu__replicas": replicas}
    shared = labelled(gpu__product=A, gpu__memory="81920", allocatable={"gpu": 1, "nvidia.com/gpu.shared": 4}, **marks)
    assert totals(shared) == {A: 1}


def test_memory_that_is_no_number_matters_to_shares_alone() -> None:
    marks = {"gpu__product": A, "gpu__memory": "much", "gpu__replicas": "2"}
    assert totals(labelled(allocatable={"gpu": 1, "nvidia.com/gpu.shared": 4}, **marks)) == {A: 1}


def test_of_several_models_on_one_node_the_first_label_counts() -> None:
    two = node(
        "n",
        labels={"b.com/gpu.product": "B", "b.com/gpu.memory": "1", "a.com/gpu.product": "A", "a.com/gpu.memory": "1"},
        **{"a.com/gpu": 1, "b.com/gpu": 2},
    )
    assert totals(two) == {"A": 1}


def test_labels_without_cards_and_cards_without_labels_disturb_nobody_and_show() -> None:
    label_only = node("label-only", labels={"nvidia.com/gpu.product": A, "nvidia.com/gpu.memory": "81920"})
    nodes = [carded("good", A, 1), label_only, node("room-only", gpu=4)]
    session = opened(card_queue("q", {A: 8}), *nodes, users("g", 4, A))
    assert gauges(session)["vcd_card_nodes_unidentified", GPU] == 1
    assert passing(session, "CardModel") == {"good", "label-only"}
    assert planned(card_queue("q", {A: 8}), *nodes, users("g", 4, A), conf=card_conf()).binds == {"default/g-0": "good"}


def test_a_pod_that_names_no_card_may_use_what_nobody_can_name() -> None:
    nodes = [carded("a", A), node("room-only", gpu=4)]
    result = planned(card_queue("q", {}), *nodes, users("g", 2, None), conf=card_conf())
    assert set(result.binds.values()) == {"room-only"}


def test_pods_on_a_node_whose_device_plugin_is_down_are_still_charged() -> None:
    down = node("down", labels={"nvidia.com/gpu.product": B, "nvidia.com/gpu.memory": "81920"})
    nodes = [carded("up", B), down]
    session = opened(
        card_queue("q", {A: 4, B: 2}), *nodes, users("g", 2, f"{A}|{B}", on=["down", "down"]), users("h", 1, B)
    )
    assert "total would be <3>" in (allocate_reason(session, "h-0") or "")


def test_cards_are_told_once_as_long_as_no_node_changes() -> None:
    session = session_of(carded("a", A))
    assert cards_of(session.nodes.facts) is cards_of(session.nodes.facts)


def test_where_every_node_has_the_named_card_no_node_is_tested() -> None:
    session = opened(card_queue("q", {A: 2}), carded("a", A), node("cpu"), users("g", 1, A))
    assert not any(predicate.applies(pending(session)) for predicate in named(session, "CardModel"))


def test_pods_without_cards_are_not_tested() -> None:
    session = opened(card_queue("q", {A: 2}), carded("a", A), gang("g", 1, queue="q", cpu=1))
    assert not any(predicate.applies(pending(session)) for predicate in named(session, "CardModel"))


def test_a_cluster_without_cards_has_no_tests_of_cards() -> None:
    session = opened(card_queue("q", {A: 2}), node("n"), users("g", 1, None))
    assert named(session, "CardModel") == []
    assert plugin_of(session, CapacityCardPlugin).allocatable(session.queues["q"], pending(session), 1) is None


def test_another_card_is_unresolvable_and_a_used_up_quota_is_not() -> None:
    nodes = [carded("a", A), carded("b", B), carded("h", H200)]
    session = opened(card_queue("q", {B: 1}), *nodes, users("g", 1, f"{A}|{B}"))
    (test,) = named(session, "CardModel")
    task, usage = pending(session), session.nodes.usage
    failed = ~test.mask(task, usage)
    assert failed.tolist() == [True, False, True]
    assert test.unresolvable_nodes(task, usage, failed).tolist() == [False, False, True]
    rows = usage.take(np.array([2, 1]))
    assert test.mask(task, rows).tolist() == [False, True]


def test_where_its_affinity_keeps_a_pod_on_the_named_card_no_node_is_tested() -> None:
    nodes = [carded("a", A), carded("b", B)]
    conf = card_conf("predicates")
    on_a = users("g", 1, A, spec={"nodeSelector": {"nvidia.com/gpu.product": A}})
    on_b = users("h", 1, A, spec={"nodeSelector": {"nvidia.com/gpu.product": B}})
    session = session_of(card_queue("q", {A: 2}), *nodes, on_a, on_b, conf=conf)
    (test,) = named(session, "CardModel")
    assert not test.applies(pending(session, "g-0"))
    assert test.applies(pending(session, "h-0"))
    assert framework_of(session).candidates(pending(session, "h-0")).best() is None

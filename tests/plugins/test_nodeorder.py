"""The nodeorder plugin: weights and their defaults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.dsl import gang, node, planned, pod, session_of
from tests.predicates.asking import pending, with_arguments
from vcd.scheduling.framework.arguments import parse_arguments
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.registry import plugins

DEFAULTS = {
    "leastrequested": 1,
    "balancedresource": 1,
    "nodeaffinity": 2,
    "InterPodAffinity": 2,
    "tainttoleration": 3,
    "imagelocality": 1,
    "PodTopologySpread": 2,
}
NEAR = {
    "affinity": {
        "podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 100,
                    "podAffinityTerm": {
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {"matchLabels": {"app": "web"}},
                    },
                }
            ]
        }
    }
}


def weights(arguments: dict[str, Any] | None = None) -> dict[str, float]:
    session = session_of(
        node("n", taints=[{"key": "a", "effect": "PreferNoSchedule"}], status={"images": [{"names": ["a"]}]}),
        pod("p"),
        conf=with_arguments("nodeorder", arguments),
    )
    return {score.name: score.weight for score in framework_of(session).evaluator.scores}


def test_the_weights_are_volcanos() -> None:
    assert weights() == DEFAULTS


@pytest.mark.parametrize(
    ("argument", "name"),
    [
        ("leastrequested", "leastrequested"),
        ("mostrequested", "mostrequested"),
        ("balancedresource", "balancedresource"),
        ("nodeaffinity", "nodeaffinity"),
        ("podaffinity", "InterPodAffinity"),
        ("tainttoleration", "tainttoleration"),
        ("imagelocality", "imagelocality"),
        ("podtopologyspread", "PodTopologySpread"),
    ],
)
def test_each_weight_can_be_set(argument: str, name: str) -> None:
    assert weights({f"{argument}.weight": 7}) == {**DEFAULTS, name: 7}


@pytest.mark.parametrize("argument", ["leastrequested", "podaffinity", "podtopologyspread", "tainttoleration"])
def test_weight_zero_turns_a_score_off(argument: str) -> None:
    names = {"podaffinity": "InterPodAffinity", "podtopologyspread": "PodTopologySpread"}
    assert names.get(argument, argument) not in weights({f"{argument}.weight": 0})


def test_an_unknown_weight_is_warned_of() -> None:
    values = parse_arguments(plugins()["nodeorder"].arguments, {"leastrequest.weight": 1})
    assert values.warnings == ("leastrequest.weight is not read; did you mean leastrequested.weight?",)


def test_scores_are_added_by_weight() -> None:
    soft = {"key": "soft", "effect": "PreferNoSchedule"}
    session = session_of(
        node("n", taints=[soft]),
        node("m", cpu=4),
        pod("p", cpu=1, memory=4),
        conf=with_arguments("nodeorder", {"leastrequested.weight": 2, "balancedresource.weight": 0}),
    )
    task, rows = pending(session), session.nodes.facts.row_of
    expected = {"n": 2 * (87 + 87) // 2, "m": 2 * ((75 + 87) // 2) + 3 * 100}
    keys = framework_of(session).candidates(task).keys()
    bits = framework_of(session).evaluator.bits
    difference = (keys[rows["m"]] >> bits) - (keys[rows["n"]] >> bits)
    assert difference == (expected["m"] - expected["n"]) * 1_000_000


def test_pods_placed_in_the_session_attract_without_the_predicates_plugin() -> None:
    conf = with_arguments("nodeorder", {"leastrequested.weight": 0, "balancedresource.weight": 0})
    for seed in range(4):
        result = planned(
            node("n"), node("m"), gang("g", 3, labels={"app": "web"}, spec=NEAR, cpu=1), conf=conf, seed=seed
        )
        assert len(set(result.binds.values())) == 1


def test_placed_pods_are_counted_once_whichever_plugins_ask() -> None:
    conf = with_arguments("nodeorder") + "  - name: predicates\n"
    session = session_of(node("n"), pod("p", labels={"app": "web"}, spec=NEAR, cpu=1), conf=conf)
    followers = [
        plugin.name for plugin in framework_of(session).plugins if getattr(plugin, "_followed", None) is not None
    ]
    assert followers == ["nodeorder"]


def test_no_score_raises_where_there_is_no_node() -> None:
    session = session_of(pod("p", cpu=1), conf=with_arguments("nodeorder", {"mostrequested.weight": 1}))
    task = pending(session)
    for score in framework_of(session).evaluator.scores:
        assert not score.applies(task) or np.array_equal(score.raw(task, session.nodes.usage), np.zeros(0))

"""Soft topology spread constraints."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given

from tests.dsl import Manifest, node, pod, session_of
from tests.predicates.random_pods import SEEDS, Twins, check_score_against_reference, random_spread, tasks_of
from tests.reference.scores import topology_spread
from vcd.scheduling.search.scores.spread_score import PodTopologySpreadScore

WEB = {"app": "web"}
NODES = [
    node("n1", labels={"zone": "a"}),
    node("n2", labels={"zone": "a"}),
    node("n3", labels={"zone": "b"}),
    node("n4"),
]


def spread(*keys: str, skew: int = 1, **more: str) -> Manifest:
    """A spec with a soft constraint for each topology key over pods labelled web."""
    return {
        "topologySpreadConstraints": [
            {
                "maxSkew": skew,
                "topologyKey": key,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": WEB},
                **more,
            }
            for key in keys
        ]
    }


def points(*objects: Manifest, feasible: tuple[int, ...] = (0, 1, 2, 3)) -> list[float]:
    """The task ``new``'s points for the nodes, 0 for those that are not feasible."""
    session = session_of(*NODES, *objects)
    score, usage = PodTopologySpreadScore(session, 1), session.nodes.usage
    mask = np.isin(np.arange(len(usage)), feasible)
    found: list[float] = score.normalise(score.raw(tasks_of(session)["default/new"], usage), mask).tolist()
    return found


@given(SEEDS)
def test_equals_the_reference_after_any_placements_and_reverses(seed: int) -> None:
    twins = Twins.of(seed, random_spread)
    check_score_against_reference(twins, PodTopologySpreadScore(twins.session, 1), topology_spread)


def test_emptier_domains_are_better() -> None:
    assert points(pod("a", on="n1", labels=WEB), pod("new", spec=spread("zone"))) == [0, 0, 100, 0]


def test_without_any_matching_pod_all_labelled_nodes_are_best() -> None:
    assert points(pod("new", spec=spread("zone"))) == [100, 100, 100, 0]


def test_host_names_count_the_node_s_own_pods() -> None:
    others = [pod("a", on="n1", labels=WEB), pod("b", on="n1", labels=WEB), pod("c", on="n2", labels=WEB)]
    whole = [math.floor(count * math.log(6) + 0.5) for count in (2, 1, 0, 0)]
    expected = [100 * (whole[0] + whole[3] - value) // whole[0] for value in whole]
    assert points(*others, pod("new", spec=spread("kubernetes.io/hostname"))) == expected


def test_host_names_count_pods_of_nodes_that_the_policies_exclude() -> None:
    spec = spread("kubernetes.io/hostname") | {"nodeSelector": {"zone": "b"}}
    assert points(pod("a", on="n1", labels=WEB), pod("new", spec=spec)) == [0, 100, 100, 100]


def test_nodes_that_share_a_host_name_are_domains_of_their_own() -> None:
    twins = [node(f"m{i}", labels={"kubernetes.io/hostname": "same"}) for i in range(20)]
    session = session_of(
        *twins, pod("a", on="m0", labels=WEB), pod("new", spec=spread("kubernetes.io/hostname", skew=2))
    )
    score, usage = PodTopologySpreadScore(session, 1), session.nodes.usage
    found = score.normalise(score.raw(tasks_of(session)["default/new"], usage), np.ones(20, np.bool_))
    most = math.floor(math.log(22) + 1.5)
    assert found.tolist() == [100 * 1 // most, *[100] * 19]


def test_the_weight_of_a_domain_s_count_grows_with_the_feasible_domains() -> None:
    others = [pod(f"p{i}", on="n1", labels=WEB) for i in range(10)] + [pod("q", on="n3", labels=WEB)]
    both = [math.floor(count * math.log(4) + 0.5) for count in (10, 1)]
    assert points(*others, pod("new", spec=spread("zone"))) == [
        100 * both[1] // both[0], 100 * both[1] // both[0], 100, 0,
    ]  # fmt: skip


def test_only_feasible_nodes_are_compared() -> None:
    others = [pod("a", on="n1", labels=WEB), pod("b", on="n3", labels=WEB)]
    assert points(*others, pod("new", spec=spread("zone")), feasible=(0, 1)) == [100, 100, 0, 0]


def test_a_wider_skew_waters_differences_down() -> None:
    other = pod("a", on="n1", labels=WEB)
    assert points(other, pod("new", spec=spread("zone", skew=6))) == [
        100 * 5 // math.floor(math.log(4) + 5.5), 100 * 5 // math.floor(math.log(4) + 5.5), 100, 0,
    ]  # fmt: skip


def test_nodes_need_the_keys_of_all_constraints() -> None:
    assert points(pod("new", spec=spread("zone", "kubernetes.io/hostname"))) == [100, 100, 100, 0]


def test_no_feasible_node_has_the_keys() -> None:
    assert points(pod("new", spec=spread("rack"))) == [0, 0, 0, 0]


def test_does_not_apply_to_hard_constraints() -> None:
    session = session_of(*NODES, pod("new", spec=spread("zone", whenUnsatisfiable="DoNotSchedule")))
    assert not PodTopologySpreadScore(session, 1).applies(tasks_of(session)["default/new"])

"""Preferred pod affinity and anti-affinity."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from tests.dsl import Manifest, node, pod, session_of
from tests.predicates.random_pods import SEEDS, Twins, check_score_against_reference, random_affinity, tasks_of
from tests.reference.scores import pod_affinity
from vcd.scheduling.search.podindex import index_of
from vcd.scheduling.search.scores.affinity_score import InterPodAffinityScore

WEB, DB = {"app": "web"}, {"app": "db"}
NODES = [node("n1", labels={"zone": "a"}), node("n2", labels={"zone": "b"}), node("n3")]


def prefers(kind: str, *terms: tuple[int, dict[str, str]]) -> Manifest:
    """A spec with preferred terms: weights and the labels selected, by zone."""
    preferred = [
        {"weight": weight, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": labels}}}
        for weight, labels in terms
    ]
    return {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


def rated(*objects: Manifest, feasible: tuple[bool, ...] = (True, True, True)) -> tuple[list[float], list[float]]:
    """The task ``new``'s raw and normalised ratings of the nodes."""
    session = session_of(*NODES, *objects)
    score = InterPodAffinityScore(session, 1)
    raw = score.raw(tasks_of(session)["default/new"], session.nodes.usage)
    return raw.tolist(), score.normalise(raw, np.array(feasible)).tolist()


@given(SEEDS)
def test_equals_the_reference_after_any_placements_and_reverses(seed: int) -> None:
    twins = Twins.of(seed, random_affinity)
    check_score_against_reference(twins, InterPodAffinityScore(twins.session, 1), pod_affinity)


def test_preferred_company_adds_the_weight_of_each_pod() -> None:
    others = [pod("a", on="n1", labels=WEB), pod("b", on="n1", labels=WEB), pod("c", on="n2", labels=WEB)]
    assert rated(*others, pod("new", spec=prefers("podAffinity", (10, WEB)))) == ([20, 10, 0], [100, 50, 0])


def test_shunned_company_takes_it_away() -> None:
    assert rated(pod("a", on="n1", labels=WEB), pod("new", spec=prefers("podAntiAffinity", (10, WEB)))) == (
        [-10, 0, 0],
        [0, 100, 100],
    )


def test_preferences_of_placed_pods_count() -> None:
    other = pod("a", on="n2", spec=prefers("podAffinity", (7, WEB)))
    assert rated(other, pod("new", labels=WEB))[0] == [0, 7, 0]


def test_terms_that_differ_in_weight_only_add_up() -> None:
    others = [pod(f"p{weight}", on="n2", spec=prefers("podAntiAffinity", (weight, WEB))) for weight in (3, 4)]
    assert rated(*others, pod("new", labels=WEB))[0] == [0, -7, 0]


def test_normalised_over_the_feasible_nodes_and_rounded_down() -> None:
    others = [pod("a", on="n1", labels=WEB), pod("b", on="n2", labels=DB)]
    spec = prefers("podAffinity", (3, WEB), (2, DB))
    assert rated(*others, pod("new", spec=spec))[1] == [100, 66, 0]
    assert rated(*others, pod("new", spec=spec), feasible=(False, True, True))[1][1:] == [100, 0]


def test_equal_ratings_are_worth_nothing() -> None:
    others = [pod("a", on="n1", labels=WEB), pod("b", on="n2", labels=WEB)]
    spec = prefers("podAffinity", (3, WEB))
    assert rated(*others, pod("new", spec=spec), feasible=(True, True, False))[1][:2] == [0, 0]


def test_required_terms_of_placed_pods_are_worth_nothing() -> None:
    required = [{"topologyKey": "zone", "labelSelector": {"matchLabels": WEB}}]
    spec = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
    assert rated(pod("a", on="n1", spec=spec), pod("new", labels=WEB))[0] == [0, 0, 0]


def test_applies_while_a_placed_pod_prefers_the_task() -> None:
    session = session_of(*NODES, pod("a", spec=prefers("podAffinity", (7, WEB))), pod("new", labels=WEB))
    score, tasks, index = InterPodAffinityScore(session, 1), tasks_of(session), index_of(session)
    before = score.applies(tasks["default/new"])
    index.move([tasks["default/a"]], [0], 1)
    during = score.applies(tasks["default/new"])
    index.move([tasks["default/a"]], [0], -1)
    assert (before, during, score.applies(tasks["default/new"])) == (False, True, False)

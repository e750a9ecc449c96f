"""Hard topology spread constraints."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from tests.dsl import Manifest, node, pod, session_of
from tests.predicates.random_pods import SEEDS, Twins, check_against_reference, random_spread, tasks_of
from tests.reasons import told
from tests.reference.predicates import topology_spread
from vcd.scheduling.search.podindex import index_of
from vcd.scheduling.search.predicates.spread_predicate import SKEWED, UNLABELLED, PodTopologySpread
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task

WEB = {"app": "web"}
ZONES = [
    node("n1", labels={"zone": "a"}),
    node("n2", labels={"zone": "b"}),
    node("n3", labels={"zone": "c"}),
    node("n4"),
]


def constraint(*, key: str = "zone", **more: object) -> Manifest:
    """A hard constraint over pods labelled web."""
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": WEB},
        **more,
    }


def spread(**more: object) -> Manifest:
    """A spec with one such constraint."""
    return {"topologySpreadConstraints": [constraint(**more)]}  # type: ignore[arg-type]


def asked(*objects: Manifest) -> tuple[Session, Task, PodTopologySpread]:
    """A session over the objects, its task ``new``, and the predicate."""
    session = session_of(*objects)
    return session, tasks_of(session)["default/new"], PodTopologySpread(session)


def passing(*objects: Manifest) -> list[str]:
    """The nodes that the task ``new`` can go to."""
    session, task, predicate = asked(*objects)
    mask = predicate.mask(task, session.nodes.usage)
    return [name for name, passed in zip(session.nodes.facts.names, mask, strict=True) if passed]


@given(SEEDS)
def test_equals_the_reference_after_any_placements_and_reverses(seed: int) -> None:
    twins = Twins.of(seed, random_spread)
    predicate = PodTopologySpread(twins.session)
    check_against_reference(twins, predicate, lambda task, place: topology_spread(twins.slow, task, place))


TWO = [pod("a", on="n1", labels=WEB), pod("b", on="n2", labels=WEB)]
THREE = [*TWO, pod("c", on="n3", labels=WEB)]
LABELLED = ["n1", "n2", "n3"]
POOL = [node(f"n{i}", labels={"zone": zone, "pool": "x"}) for i, zone in enumerate("ab", 1)]
IN_POOL = {"nodeSelector": {"pool": "x"}}
TAINTED = node("n3", labels={"zone": "c"}, taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])


@pytest.mark.parametrize(
    ("nodes", "others", "spec", "expected"),
    [
        pytest.param(ZONES, TWO, spread(), ["n3"], id="the skew"),
        pytest.param(ZONES, TWO, spread(maxSkew=2), LABELLED, id="a wider skew"),
        pytest.param(ZONES, THREE, spread(minDomains=4), [], id="too few domains make the least zero"),
        pytest.param(ZONES, THREE, spread(minDomains=3), LABELLED, id="enough domains"),
        pytest.param(ZONES, [pod("a", on="n1", labels=WEB, deleting=True)], spread(), LABELLED, id="deleted"),
        pytest.param(ZONES, [pod("a", on="n1", labels=WEB, namespace="other")], spread(), LABELLED, id="namespace"),
        pytest.param([*POOL, ZONES[2]], TWO, spread() | IN_POOL, LABELLED, id="a node outside the affinity"),
        pytest.param(
            [*POOL, ZONES[2]], TWO, spread(nodeAffinityPolicy="Ignore") | IN_POOL, ["n3"], id="affinity is ignored"
        ),
        pytest.param([*ZONES[:2], TAINTED], TWO, spread(nodeTaintsPolicy="Honor"), LABELLED, id="a tainted node"),
        pytest.param(
            ZONES, [pod("a", on="n1", labels=WEB | {"v": "1"})], spread(matchLabelKeys=["v"]), LABELLED, id="match"
        ),
    ],
)
def test_a_pod_can_go_to(nodes: list[Manifest], others: list[Manifest], spec: Manifest, expected: list[str]) -> None:
    assert passing(*nodes, *others, pod("new", labels=WEB | {"v": "2"}, spec=spec)) == expected


def test_who_does_not_match_its_constraint_is_not_counted() -> None:
    others = [pod("a", on="n1", labels=WEB), pod("b", on="n2", labels=WEB)]
    assert passing(*ZONES, *others, pod("new", spec=spread())) == ["n1", "n2", "n3"]


def test_follows_placements_of_the_session() -> None:
    session, task, predicate = asked(*ZONES, pod("other", labels=WEB), pod("new", labels=WEB, spec=spread()))
    assert predicate.mask(task, session.nodes.usage).tolist() == [True, True, True, False]
    index_of(session).move([tasks_of(session)["default/other"]], [1], 1)
    assert predicate.mask(task, session.nodes.usage).tolist() == [True, False, True, False]


def test_reasons_tell_missing_keys_from_skew() -> None:
    session, task, predicate = asked(*ZONES, pod("a", on="n1", labels=WEB), pod("new", labels=WEB, spec=spread()))
    failed = ~predicate.mask(task, session.nodes.usage)
    assert predicate.reasons(task, session.nodes.usage, failed) == {SKEWED: 1, UNLABELLED: 1}


def test_looks_at_chosen_rows_only() -> None:
    session, task, predicate = asked(*ZONES, pod("a", on="n1", labels=WEB), pod("new", labels=WEB, spec=spread()))
    assert predicate.mask(task, session.nodes.usage.take(np.array([0, 2]))).tolist() == [False, True]


def test_soft_constraints_exclude_no_node() -> None:
    _, task, predicate = asked(*ZONES, pod("new", labels=WEB, spec=spread(whenUnsatisfiable="ScheduleAnyway")))
    assert not predicate.applies(task)


def test_refuses_a_pod_whose_selector_cannot_be_read() -> None:
    selector = {"matchExpressions": [{"key": "app", "operator": "Near"}]}
    _, task, predicate = asked(*ZONES, pod("new", spec=spread(labelSelector=selector)))
    assert "matchExpressions[0].operator: 'Near'" in str(told(predicate.refusal(task)))


def test_node_affinity_terms_that_cannot_be_read_select_no_node() -> None:
    needs = [
        {"key": "zone", "operator": "Near", "values": ["c"]},
        {"key": "zone", "operator": "In", "values": ["a", "b"]},
    ]
    terms = [{"matchExpressions": [need]} for need in needs]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    spec = spread() | {"affinity": {"nodeAffinity": required}}
    others = [pod("a", on="n1", labels=WEB), pod("b", on="n2", labels=WEB), pod("c", on="n1", labels=WEB)]
    assert passing(*ZONES, *others, pod("new", labels=WEB, spec=spec)) == ["n2", "n3"]


def test_nodes_that_lack_a_key_of_another_constraint_do_not_count() -> None:
    nodes = [node("n1", labels={"zone": "a", "rack": "r"}), node("n2", labels={"zone": "b", "rack": "s"})]
    bare = node("n3", labels={"zone": "a"})
    new = pod("new", labels=WEB, spec={"topologySpreadConstraints": [constraint(), constraint(key="rack")]})
    assert passing(*nodes, bare, pod("a", on="n3", labels=WEB), new) == ["n1", "n2"]


@pytest.mark.parametrize(
    "other",
    [
        {"nodeSelector": {"zone": "a"}},
        {"tolerations": [{"operator": "Exists"}]},
        {"topologySpreadConstraints": [constraint(nodeTaintsPolicy="Honor", key=key) for key in ("zone", "rack")]},
    ],
)
def test_tasks_with_like_constraints_do_not_share_the_nodes_that_count(other: Manifest) -> None:
    tainted = node("n2", labels={"zone": "b"}, taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
    pods = [pod("a", on="n1", labels=WEB), pod("b", on="n1", labels=WEB), pod("c", on="n3", labels=WEB)]
    honest = spread(nodeTaintsPolicy="Honor")
    tasks = [pod("first", labels=WEB, spec=honest | other), pod("new", labels=WEB, spec=honest)]
    session, task, predicate = asked(ZONES[0], tainted, ZONES[2], *pods, *tasks)
    first = predicate.mask(tasks_of(session)["default/first"], session.nodes.usage)
    assert predicate.mask(task, session.nodes.usage).tolist() == [False, True, True] != first.tolist()

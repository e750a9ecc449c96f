"""Required pod affinity and anti-affinity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from tests.cost.counting import calls_of
from tests.dsl import Manifest, node, pod, session_of
from tests.predicates.random_pods import SEEDS, Twins, check_against_reference, random_affinity, tasks_of
from tests.reasons import told
from tests.reference.predicates import pod_affinity
from vcd.scheduling.search.podindex import index_of
from vcd.scheduling.search.predicates.affinity_predicate import ANTI_AFFINITY, NO_AFFINITY, OPPOSED, InterPodAffinity
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task

WEB, DB = {"app": "web"}, {"app": "db"}
ZONES = [
    node("n1", labels={"zone": "a"}),
    node("n2", labels={"zone": "a"}),
    node("n3", labels={"zone": "b"}),
    node("n4"),
]


def terms(kind: str, *selected: dict[str, str], key: str = "zone", **more: object) -> Manifest:
    """A spec with a required term for each set of labels."""
    required = [{"topologyKey": key, "labelSelector": {"matchLabels": labels}, **more} for labels in selected]
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def near(*selected: dict[str, str], **more: object) -> Manifest:
    return terms("podAffinity", *selected, **more)  # type: ignore[arg-type]


def far(*selected: dict[str, str], **more: object) -> Manifest:
    return terms("podAntiAffinity", *selected, **more)  # type: ignore[arg-type]


def asked(*objects: Manifest) -> tuple[Session, Task, InterPodAffinity]:
    """A session over the zones, its task ``new``, and the predicate."""
    session = session_of(*ZONES, *objects)
    return session, tasks_of(session)["default/new"], InterPodAffinity(session)


def passing(*objects: Manifest) -> list[str]:
    """The nodes that the task ``new`` can go to."""
    session, task, predicate = asked(*objects)
    mask = predicate.mask(task, session.nodes.usage)
    return [name for name, passed in zip(session.nodes.facts.names, mask, strict=True) if passed]


@given(SEEDS)
def test_equals_the_reference_after_any_placements_and_reverses(seed: int) -> None:
    twins = Twins.of(seed, random_affinity)
    predicate = InterPodAffinity(twins.session)
    check_against_reference(twins, predicate, lambda task, place: pod_affinity(twins.slow, task, place))


EVERY = ["n1", "n2", "n3", "n4"]
ON_A, OFF_A, LABELLED = ["n1", "n2"], ["n3", "n4"], ["n1", "n2", "n3"]
DB_1 = pod("db", on="n1", labels=DB)
VERSIONS = [pod("a", on="n1", labels=DB | {"v": "1"}), pod("b", on="n3", labels=DB | {"v": "2"})]
TEAM = {"kind": "Namespace", "metadata": {"name": "other", "labels": {"team": "t"}}}
OF_TEAM = [TEAM, pod("a", on="n1", labels=DB, namespace="other"), pod("b", on="n3", labels=DB)]


@pytest.mark.parametrize(
    ("others", "new", "expected"),
    [
        pytest.param([DB_1], {"spec": near(DB)}, ON_A, id="the domains of matching pods"),
        pytest.param(
            [DB_1, pod("web", on="n1", labels=WEB)], {"spec": near(DB, WEB)}, [], id="all terms match one pod"
        ),
        pytest.param([], {"labels": DB, "spec": near(DB)}, LABELLED, id="the first of a series, where the key is"),
        pytest.param([], {"labels": WEB, "spec": near(DB)}, [], id="it does not match itself"),
        pytest.param(
            [pod("db", on="n4", labels=DB)], {"labels": DB, "spec": near(DB)}, LABELLED, id="a pod without the key"
        ),
        pytest.param([DB_1], {"spec": far(DB)}, OFF_A, id="anti-affinity"),
        pytest.param([pod("db", on="n1", spec=far(WEB))], {"labels": WEB}, OFF_A, id="anti-affinity of a placed pod"),
        pytest.param([pod("db", on="n1", labels=DB, deleting=True)], {"spec": far(DB)}, OFF_A, id="deleted"),
        pytest.param(
            [pod("db", on="n1", labels=DB, phase="Succeeded", spec=far(WEB))],
            {"labels": WEB, "spec": far(DB)},
            EVERY,
            id="ended",
        ),
        pytest.param([pod("db", on="n1", labels=DB, namespace="other")], {"spec": far(DB)}, EVERY, id="namespace"),
        pytest.param(
            OF_TEAM,
            {"spec": far(DB, namespaceSelector={"matchLabels": {"team": "t"}})},
            OFF_A,
            id="a selector of namespaces by their labels",
        ),
        pytest.param(
            VERSIONS, {"labels": {"v": "2"}, "spec": far(DB, matchLabelKeys=["v"])}, ["n1", "n2", "n4"], id="match"
        ),
        pytest.param(VERSIONS, {"labels": {"v": "2"}, "spec": far(DB, mismatchLabelKeys=["v"])}, OFF_A, id="mismatch"),
    ],
)
def test_a_pod_can_go_to(others: list[Manifest], new: dict[str, Any], expected: list[str]) -> None:
    assert passing(*others, pod("new", **new)) == expected


def test_many_placed_pods_of_each_of_two_shapes_keep_others_away() -> None:
    names = [f"m{number:03}" for number in range(140)]
    nodes = [node(name, labels={"zone": name}) for name in names]
    others = [pod(f"p-{name}", on=name, cpu=1 + place // 70, spec=far(WEB)) for place, name in enumerate(names)]
    assert passing(*nodes, *others, pod("new", labels=WEB)) == ["n1", "n2", "n3", "n4"]


def test_terms_of_another_namespace_cost_nothing_whatever_labels_they_name() -> None:
    others = [pod(f"p{i}", on="n1", namespace="other", spec=far({**WEB, "tier": f"{i}"})) for i in range(20)]
    session, task, predicate = asked(*others, pod("new", labels=WEB))
    calls = calls_of(lambda: predicate.mask(task, session.nodes.usage))
    assert calls["model/selectors.py:Selector.matches"] == 0


@pytest.mark.parametrize(
    ("keys", "expected"), [("matchLabelKeys", ["n3", "n4"]), ("mismatchLabelKeys", ["n1", "n2", "n4"])]
)
def test_terms_by_own_labels_differ_between_pods_of_one_shape(keys: str, expected: list[str]) -> None:
    spec = far(DB, **{keys: ["v"]})
    others = [pod("a", on="n1", labels={"v": "1"}, spec=spec), pod("b", on="n3", labels={"v": "2"}, spec=spec)]
    assert passing(*others, pod("new", labels=DB | {"v": "1"})) == expected


def test_reasons_name_the_first_rule_that_a_node_breaks() -> None:
    both = near(DB)["affinity"] | far(WEB, key="kubernetes.io/hostname")["affinity"]
    others = [
        pod("db", on="n1", labels=DB),
        pod("web", on="n1", labels=WEB),
        pod("shy", on="n2", spec=far({"app": "new"}, key="kubernetes.io/hostname")),
    ]
    session, task, predicate = asked(*others, pod("new", labels={"app": "new"}, spec={"affinity": both}))
    failed = ~predicate.mask(task, session.nodes.usage)
    assert predicate.reasons(task, session.nodes.usage, failed) == {NO_AFFINITY: 2, ANTI_AFFINITY: 1, OPPOSED: 1}


def test_looks_at_chosen_rows_only() -> None:
    session, task, predicate = asked(pod("db", on="n1", labels=DB), pod("new", spec=far(DB)))
    some = session.nodes.usage.take(np.array([1, 2]))
    assert predicate.mask(task, some).tolist() == [False, True]


def test_does_not_apply_where_nobody_has_terms() -> None:
    _, task, predicate = asked(pod("db", on="n1", labels=DB), pod("new"))
    assert not predicate.applies(task)


def test_does_not_apply_where_placed_pods_shun_others() -> None:
    _, task, predicate = asked(pod("db", on="n1", spec=far(DB)), pod("new", labels=WEB))
    assert not predicate.applies(task)


@pytest.mark.parametrize("placed", [True, False])
def test_applies_while_a_pod_of_this_session_shuns_the_task(placed: bool) -> None:
    session, task, predicate = asked(pod("db", spec=far(WEB)), pod("new", labels=WEB))
    assert not predicate.applies(task)
    index, other = index_of(session), tasks_of(session)["default/db"]
    index.move([other], [0], 1)
    if not placed:
        index.move([other], [0], -1)
    assert predicate.applies(task) is placed


def test_refuses_a_pod_whose_selector_cannot_be_read() -> None:
    spec = near(DB)
    spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]["labelSelector"] = {
        "matchExpressions": [{"key": "app", "operator": "Near"}]
    }
    _, task, predicate = asked(pod("new", spec=spec))
    assert "matchExpressions[0].operator: 'Near'" in str(told(predicate.refusal(task)))


def test_passes_over_terms_of_placed_pods_that_cannot_be_read() -> None:
    spec = far(DB)
    spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]["labelSelector"] = {
        "matchExpressions": [{"key": "app", "operator": "Near"}]
    }
    assert passing(pod("bad", on="n1", spec=spec), pod("new", labels=DB)) == ["n1", "n2", "n3", "n4"]

"""The predicates plugin: its switches, and that sessions obey it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cost.counting import calls_of
from tests.dsl import gang, node, planned, pod, queue, session_of
from tests.predicates.asking import PREDICATES, named, pending, with_arguments
from tests.predicates.storage import claim, csi_node, storage_class, using, volume
from vcd.diagnosis.funnel import Funnel
from vcd.scheduling.framework.arguments import parse_arguments
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.registry import plugins
from vcd.scheduling.search.parts import is_fixed
from vcd.scheduling.session.session import Session

Manifest = dict[str, Any]

HOST_PORT = {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
APART = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
            ]
        }
    }
}
SPREAD = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ]
}
TAINTED = node("n", taints=[{"key": "dedicated", "value": "x", "effect": "NoSchedule"}])
WEB = {"app": "web"}
RUNNING = pod("running", on="n", labels=WEB)
TWO_ON_N = [node("m"), RUNNING, pod("full", on="m", cpu=8)]

BLOCKED: dict[str, list[Manifest]] = {
    "NodeAffinityEnable": [node("n"), pod("p", spec={"nodeSelector": {"disk": "ssd"}}, cpu=1)],
    "TaintTolerationEnable": [TAINTED, pod("p", cpu=1)],
    "NodePortsEnable": [node("n"), pod("running", on="n", spec=HOST_PORT), pod("p", spec=HOST_PORT)],
    "PodAffinityEnable": [node("n"), RUNNING, pod("p", labels=WEB, spec=APART, cpu=1)],
    "PodTopologySpreadEnable": [node("n"), *TWO_ON_N, pod("p", labels=WEB, spec=SPREAD, cpu=1)],
    "NodeVolumeLimitsEnable": [
        node("n"),
        csi_node("n", csi_example_com=0),
        claim("data", volume="v"),
        volume("v", driver="csi.example.com", claim="data"),
        pod("p", spec=using("data"), cpu=1),
    ],
    "VolumeZoneEnable": [
        node("n", labels={"topology.kubernetes.io/zone": "a"}),
        claim("data", volume="v"),
        volume("v", claim="data", labels={"topology.kubernetes.io/zone": "b"}),
        pod("p", spec=using("data"), cpu=1),
    ],
    "VolumeBindingEnable": [node("n"), storage_class(), claim("data"), pod("p", spec=using("data"), cpu=1)],
}
"""What each switch forbids: a pod ``p`` that could be placed on the node ``n`` without it."""


def best(session: Session) -> int | None:
    task = pending(session, "p")
    return (
        None if framework_of(session).pre_predicate(task) is not None else framework_of(session).candidates(task).best()
    )


@pytest.mark.parametrize("switch", BLOCKED)
def test_each_test_is_on_unless_switched_off(switch: str) -> None:
    assert best(session_of(*BLOCKED[switch], conf=PREDICATES)) is None


@pytest.mark.parametrize("switch", BLOCKED)
def test_each_test_can_be_switched_off(switch: str) -> None:
    session = session_of(*BLOCKED[switch], conf=with_arguments("predicates", {f"predicate.{switch}": "false"}))
    row = best(session)
    assert row is not None
    assert session.nodes.facts.names[row] == "n"


def test_the_pod_count_and_the_cordon_have_no_switch() -> None:
    everything_off = with_arguments("predicates", {f"predicate.{switch}": "false" for switch in BLOCKED})
    session = session_of(node("n", unschedulable=True), pod("p"), conf=everything_off)
    assert [predicate.name for predicate in framework_of(session).evaluator.predicates] == [
        "NodePodNumber",
        "NodeUnschedulable",
    ]


def test_the_tests_come_in_volcanos_order() -> None:
    conf = with_arguments("predicates", {"predicate.ProportionalEnable": "true"})
    cordoned = node("n", unschedulable=True, taints=[{"key": "a", "effect": "NoSchedule"}])
    session = session_of(cordoned, claim("data", volume="v"), csi_node("n"), pod("p", spec=using("data")), conf=conf)
    assert [predicate.name for predicate in framework_of(session).evaluator.predicates] == [
        "NodePodNumber",
        "NodeUnschedulable",
        "NodeAffinity",
        "TaintToleration",
        "NodePorts",
        "InterPodAffinity",
        "NodeVolumeLimits",
        "VolumeZone",
        "PodTopologySpread",
        "VolumeBinding",
        "VolumeBinding",
        "Proportional",
    ]


def test_kept_results_are_void_when_a_kind_that_was_read_changes() -> None:
    session = session_of(node("n"), claim("data"), csi_node("n"), pod("p", spec=using("data")), conf=PREDICATES)
    fixed = [predicate for predicate in framework_of(session).evaluator.predicates if is_fixed(predicate)]
    assert {kind for predicate in fixed for kind in predicate.kinds or ()} == {
        "PersistentVolume",
        "PersistentVolumeClaim",
        "StorageClass",
    }


@pytest.mark.parametrize(
    "argument",
    [
        "predicate.CacheEnable",
        "predicate.GPUSharingEnable",
        "predicate.GPUNumberEnable",
        "predicate.DynamicResourceAllocationEnable",
    ],
)
def test_switches_without_effect_here_are_accepted_and_told_of(argument: str) -> None:
    (told,) = parse_arguments(plugins()["predicates"].arguments, {argument: "true"}).warnings
    assert told.startswith(f"{argument} has no effect: ")


def test_arguments_of_volume_binding_and_dynamic_resources_are_accepted_and_told_of() -> None:
    raw = {
        "volumebinding.bindTimeoutSeconds": 300,
        "volumebinding.weight": 2,
        "volumebinding.shape": [{"utilization": 0, "score": 10}],
        "dynamicresources.filterTimeoutSeconds": 5,
    }
    told = [text.partition(": ")[0] for text in parse_arguments(plugins()["predicates"].arguments, raw).warnings]
    assert told == [f"{key} has no effect" for key in list(raw)[1:]]


def test_the_reason_of_a_waiting_pod_names_its_missing_claim() -> None:
    result = planned(node("n"), gang("g", 1, cpu=1, spec=using("data")))
    assert 'persistentvolumeclaim "data" not found' in {entry["reason"] for entry in result.why["default/g"]}


def test_a_pod_without_its_claim_does_not_stop_the_next_one() -> None:
    result = planned(node("n"), gang("bad", 1, cpu=1, spec=using("data")), gang("good", 1, cpu=1, created=1))
    assert result.binds == {"default/good-0": "n"}


def test_pods_placed_earlier_in_the_session_keep_later_ones_away() -> None:
    result = planned(node("n"), node("m"), gang("g", 2, labels=WEB, spec=APART, cpu=1))
    assert set(result.binds.values()) == {"n", "m"}


def test_one_volume_is_not_given_to_two_pods() -> None:
    claims = [claim("x"), claim("y")]
    pods = [pod(name, spec=using(wanted), cpu=1) for name, wanted in (("a", "x"), ("b", "y"))]
    result = planned(node("n"), storage_class(), *claims, volume("v"), *pods)
    assert result.binds == {"default/a": "n"}


def test_a_gang_that_is_taken_back_gives_its_volume_back() -> None:
    claims = [claim("x"), claim("y")]
    tight = gang("tight", 2, cpu=6, spec=using("x"))
    result = planned(
        node("n"), storage_class(), *claims, volume("v"), tight, pod("later", created=9, spec=using("y"), cpu=1)
    )
    assert result.binds == {"default/later": "n"}


def test_tests_are_off_when_the_flag_of_the_point_is() -> None:
    conf = PREDICATES.replace("- name: predicates", "- name: predicates\n    enablePredicate: false")
    session = session_of(TAINTED, pod("p", cpu=1), conf=conf)
    assert best(session) == 0
    assert named(session, "TaintToleration") == []


UNREADABLE = {"tolerations": [{"key": "d", "operator": "Somehow"}]}


@pytest.mark.parametrize("actions", ["allocate", "preempt", "reclaim", "allocate, backfill"])
def test_tolerations_that_cannot_be_read_stop_their_own_pod_only(actions: str) -> None:
    """Also where nodes are cordoned or tainted, and its job has more pods like it; other pods are tested as ever."""
    conf = f"actions: {actions}\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n"
    tainted = node("tainted", taints=[{"key": "d", "value": "x", "effect": "NoSchedule"}])
    bad = gang("bad", 2, cpu=1, spec=UNREADABLE)
    wants_ssd = gang("ssd", 1, cpu=1, created=5, spec={"nodeSelector": {"disk": "ssd"}})
    plan = planned(node("open"), node("cordoned", unschedulable=True), tainted, bad, wants_ssd, conf=conf)
    assert (plan.faults, plan.binds) == ([], {})


@pytest.mark.parametrize("actions", ["allocate", "allocate, preempt", "allocate, reclaim"])
def test_so_they_do_where_a_card_may_be_on_tainted_nodes(actions: str) -> None:
    conf = f"actions: {actions}\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n  - name: capacity-card\n"
    quota = queue("q")
    quota["metadata"]["annotations"] = {"volcano.sh/card.quota": '{"H200": 8, "H800": 8}'}
    taints = [{"key": "d", "value": "x", "effect": "NoSchedule"}]
    labels = {card: {"nvidia.com/gpu.product": card, "nvidia.com/gpu.memory": "81920"} for card in ("H200", "H800")}
    nodes = [node(card.lower(), gpu=8, labels=of, taints=taints) for card, of in labels.items()]
    asked = {"volcano.sh/card.name": "H200"}
    plan = planned(
        quota, *nodes, gang("bad", 2, cpu=1, gpu=1, queue="q", spec=UNREADABLE, annotations=asked), conf=conf
    )
    assert (plan.faults, plan.binds) == ([], {})


def _funnel_of_terms(count: int) -> Funnel:
    """The nodes for a pod whose required node affinity has many terms, of which node n matches the last one."""
    terms = [{"matchExpressions": [{"key": f"key-{number}", "operator": "Exists"}]} for number in range(count)]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    nodes = node("m"), node("n", labels={f"key-{count - 1}": ""})
    session = session_of(*nodes, gang("g", 1, spec={"affinity": {"nodeAffinity": required}}), conf=PREDICATES)
    return Funnel(session, session.job(0).pending()[0])


def test_terms_of_a_pod_that_states_too_many_are_not_evaluated() -> None:
    calls = calls_of(lambda: _funnel_of_terms(4000))
    assert calls["state/node_facts.py:NodeFacts.matches_term"] == 0


@pytest.mark.parametrize("count", [2, 8, 9, 250])
def test_a_clause_names_few_of_many_terms(count: int) -> None:
    (clause,) = [one for one in _funnel_of_terms(count).lasting if "Affinity" in one.text]
    named = [f"key-{number} Exists" for number in range(min(count, 8))]
    assert clause.text == "nodeAffinity " + " or ".join([*named, *([f"{count - 8} more"] if count > 8 else [])])
    assert clause.passes.tolist() == [False, True]

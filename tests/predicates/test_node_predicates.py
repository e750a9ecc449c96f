"""Predicates that look at one node alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import node, pod, session_of
from tests.predicates.asking import PREDICATES, applies, named, passing, pending, reasons, refusal, with_arguments
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement

Manifest = dict[str, Any]


def opened(*objects: Manifest, **arguments: Any) -> Session:
    conf = with_arguments("predicates", {f"predicate.{key}": value for key, value in arguments.items()})
    return session_of(*objects, conf=conf)


def taint(effect: str, key: str = "dedicated", value: str = "x") -> Manifest:
    return {"key": key, "value": value, "effect": effect}


def asking_for(*expressions: Manifest, fields: tuple[Manifest, ...] = (), **spec: Any) -> Manifest:
    """A pod that requires one node selector term."""
    term = {"matchExpressions": list(expressions), "matchFields": list(fields)}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return pod("p", spec={"affinity": {"nodeAffinity": required}, **spec}, cpu=1)


# --- number of pods ---------------------------------------------------------------------------------------------------


def test_a_node_with_as_many_pods_as_it_allows_takes_no_more() -> None:
    session = opened(node("full", pods=1), node("free", pods=2), pod("a", on="full"), pod("b", on="free"), pod("p"))
    assert passing(session, "NodePodNumber") == {"free"}


def test_pods_that_leave_still_count() -> None:
    session = opened(node("n", pods=1), pod("leaving", on="n", deleting=True), pod("p"))
    assert reasons(session, "NodePodNumber") == {"node(s) pod number exceeded": 1}


def test_pods_that_wait_for_room_count() -> None:
    session = opened(node("n", pods=1), pod("first", created=1), pod("second", created=2))
    first = pending(session, "first")
    Statement(session.trial, "allocate", first.job).pipeline([first], [0])
    assert passing(session, "NodePodNumber", "second") == set()


def test_ended_pods_do_not_count() -> None:
    session = opened(node("n", pods=1), pod("done", on="n", phase="Succeeded"), pod("p"))
    assert passing(session, "NodePodNumber") == {"n"}


# --- cordon -----------------------------------------------------------------------------------------------------------


def test_a_cordoned_node_takes_no_pod() -> None:
    session = opened(node("n", unschedulable=True), node("m"), pod("p"))
    assert passing(session, "NodeUnschedulable") == {"m"}
    assert reasons(session, "NodeUnschedulable") == {"node(s) were unschedulable": 1}


def test_a_pod_that_tolerates_the_cordon_is_let_in() -> None:
    toleration = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
    session = opened(node("n", unschedulable=True), pod("p", spec={"tolerations": [toleration]}))
    assert not applies(session, "NodeUnschedulable")


def test_without_a_cordoned_node_the_test_is_spared() -> None:
    assert not applies(opened(node("n"), pod("p")), "NodeUnschedulable")


@pytest.mark.parametrize("condition", ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"])
def test_conditions_are_not_looked_at(condition: str) -> None:
    bad = {"conditions": [{"type": condition, "status": "Unknown"}]}
    session = opened(node("n", status=bad), pod("p", cpu=1))
    assert framework_of(session).candidates(pending(session)).best() == 0


# --- labels -----------------------------------------------------------------------------------------------------------


def test_a_node_needs_all_labels_of_the_selector() -> None:
    session = opened(
        node("both", labels={"disk": "ssd", "zone": "a"}),
        node("one", labels={"disk": "ssd"}),
        pod("p", spec={"nodeSelector": {"disk": "ssd", "zone": "a"}}),
    )
    assert passing(session, "NodeAffinity") == {"both"}
    assert reasons(session, "NodeAffinity") == {"node(s) didn't match Pod's node affinity/selector": 1}


def test_required_terms_are_ored() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in "ab"]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    nodes = [node(zone, labels={"zone": zone}) for zone in "abc"]
    assert passing(opened(*nodes, pod("p", spec={"affinity": affinity})), "NodeAffinity") == {"a", "b"}


def test_selector_and_required_terms_must_both_hold() -> None:
    session = opened(
        node("n", labels={"zone": "a"}),
        node("m", labels={"zone": "a", "disk": "ssd"}),
        asking_for({"key": "zone", "operator": "Exists"}, nodeSelector={"disk": "ssd"}),
    )
    assert passing(session, "NodeAffinity") == {"m"}


def test_a_node_can_be_required_by_name() -> None:
    named_m = {"key": "metadata.name", "operator": "In", "values": ["m"]}
    assert passing(opened(node("n"), node("m"), asking_for(fields=(named_m,))), "NodeAffinity") == {"m"}


def test_required_affinity_without_terms_matches_no_node() -> None:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
    session = opened(node("n"), pod("p", spec={"affinity": {"nodeAffinity": required}}))
    assert passing(session, "NodeAffinity") == set()


def test_terms_that_ask_for_two_names_at_once_are_refused_before_any_node() -> None:
    fields = tuple({"key": "metadata.name", "operator": "In", "values": [name]} for name in "nm")
    assert refusal(opened(node("n"), asking_for(fields=fields))) == "pod affinity terms conflict"


def test_a_term_that_cannot_be_read_is_refused_naming_field_and_value() -> None:
    found = refusal(opened(node("n"), asking_for({"key": "zone", "operator": "Near", "values": ["a"]})))
    assert found is not None
    assert "matchExpressions[0].operator: 'Near'" in found


def test_a_term_that_cannot_be_read_does_not_hide_one_that_matches() -> None:
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "Near"}]},
        {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
    ]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    session = opened(node("n", labels={"zone": "a"}), node("m"), pod("p", spec={"affinity": affinity}))
    assert refusal(session) is None
    assert passing(session, "NodeAffinity") == {"n"}


def test_affinity_can_be_switched_off() -> None:
    session = opened(node("n"), pod("p", spec={"nodeSelector": {"disk": "ssd"}}), NodeAffinityEnable=False)
    assert named(session, "NodeAffinity") == []


# --- taints -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_hard_taint_keeps_pods_away(effect: str) -> None:
    session = opened(node("n", taints=[taint(effect)]), node("m"), pod("p"))
    assert passing(session, "TaintToleration") == {"m"}


def test_a_soft_taint_keeps_none_away() -> None:
    assert not applies(opened(node("n", taints=[taint("PreferNoSchedule")]), pod("p")), "TaintToleration")


def test_a_tolerated_taint_lets_the_pod_in() -> None:
    toleration = {"key": "dedicated", "operator": "Equal", "value": "x"}
    session = opened(
        node("n", taints=[taint("NoSchedule")]),
        node("m", taints=[taint("NoSchedule", value="y")]),
        pod("p", spec={"tolerations": [toleration]}),
    )
    assert passing(session, "TaintToleration") == {"n"}


def test_the_reason_names_the_first_taint_that_is_not_tolerated() -> None:
    tolerated = {"key": "gpu", "operator": "Exists"}
    taints = [taint("NoSchedule", "gpu"), taint("NoSchedule"), taint("NoExecute", "broken")]
    session = opened(
        node("n", taints=taints),
        node("m", taints=taints),
        node("o", taints=[taint("NoExecute", "broken", "")]),
        pod("p", spec={"tolerations": [tolerated]}),
    )
    assert reasons(session, "TaintToleration") == {
        "node(s) had untolerated taint {dedicated: x}": 2,
        "node(s) had untolerated taint {broken: }": 1,
    }


def test_a_toleration_that_cannot_be_read_is_refused() -> None:
    session = opened(node("n"), pod("p", spec={"tolerations": [{"key": "a", "operator": "Like"}]}))
    assert refusal(session) == (
        "tolerations cannot be read: tolerations[0].operator: 'Like' is unknown; allowed are Equal, Exists, Lt, Gt"
    )


def test_taints_can_be_switched_off() -> None:
    session = opened(node("n", taints=[taint("NoSchedule")]), pod("p"), TaintTolerationEnable=False)
    assert framework_of(session).candidates(pending(session)).best() == 0


def test_evicting_pods_does_not_help_against_cordon_labels_and_taints() -> None:
    session = session_of(
        node("a", labels={"disk": "ssd"}, unschedulable=True),
        node("b", labels={"disk": "ssd"}, taints=[taint("NoSchedule")]),
        node("c", labels={"disk": "hdd"}),
        node("d", labels={"disk": "ssd"}, cpu=1),
        pod("p", spec={"nodeSelector": {"disk": "ssd"}}, cpu=2),
        conf=PREDICATES,
    )
    assert framework_of(session).candidates(pending(session)).resolvable().tolist() == [False, False, False, True]

"""Pods without topology spread constraints that belong to a Service or a set of pods: kube-scheduler's default."""

from __future__ import annotations

import math
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dsl import Manifest, gang, group, node, planned, pod, session_of
from tests.predicates.asking import with_arguments
from tests.scores.rating import points, rated
from vcd.model.kinds import KINDS
from vcd.model.projection_codec import encode_payload, from_manifest
from vcd.scheduling.framework.framework import framework_of

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
SPREAD = "PodTopologySpread"
CONF = with_arguments("nodeorder")
WEB = {"app": "web"}
NODES = [
    node("n1", labels={ZONE: "a"}),
    node("n2", labels={ZONE: "a"}),
    node("n3", labels={ZONE: "b"}),
]


def service(name: str = "web", selector: dict[str, str] | None = None, namespace: str = "default") -> Manifest:
    spec = {"selector": WEB if selector is None else selector, "ports": [{"port": 80}], "clusterIP": "10.0.0.1"}
    return {"kind": "Service", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def made_of(kind: str, name: str, selector: Manifest) -> Manifest:
    template = {"metadata": {"labels": WEB}, "spec": {"containers": [{"name": "c", "env": [{"name": "A"}]}]}}
    metadata = {"name": name, "namespace": "default", "labels": WEB, "annotations": {"replicas": "3"}}
    return {"kind": kind, "metadata": metadata, "spec": {"replicas": 3, "selector": selector, "template": template}}


def owned(manifest: Manifest, kind: str, version: str, name: str = "web", controller: bool = True) -> Manifest:
    owner = {"kind": kind, "apiVersion": version, "name": name, "uid": "u", "controller": controller}
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}}


def applies(*objects: Any) -> bool:
    return rated(session_of(*NODES, *objects, conf=CONF), SPREAD)


def whole(*parts: float) -> int:
    return math.floor(sum(parts) + 0.5)


# --- whose pods ---------------------------------------------------------------------------------------------------

NEW = pod("new", labels=WEB)
SELECTOR = {"matchLabels": WEB}


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([NEW], False),
        ([NEW, service()], True),
        ([NEW, service(selector={"app": "db"})], False),
        ([NEW, service(selector={})], False),
        ([NEW, service(namespace="other")], False),
        ([pod("new", labels=WEB, namespace="other"), service(namespace="other")], True),
        ([owned(NEW, "ReplicaSet", "apps/v1"), made_of("ReplicaSet", "web", SELECTOR)], True),
        ([owned(NEW, "StatefulSet", "apps/v1"), made_of("StatefulSet", "web", SELECTOR)], True),
        ([owned(NEW, "ReplicationController", "v1"), made_of("ReplicationController", "web", WEB)], True),
        ([NEW, made_of("ReplicaSet", "web", SELECTOR)], False),
        ([owned(NEW, "ReplicaSet", "apps/v1", controller=False), made_of("ReplicaSet", "web", SELECTOR)], False),
        ([owned(NEW, "ReplicaSet", "apps/v1", name="gone"), made_of("ReplicaSet", "web", SELECTOR)], False),
        ([owned(NEW, "ReplicaSet", "example.com/v1"), made_of("ReplicaSet", "web", SELECTOR)], False),
        ([owned(NEW, "Job", "batch/v1"), made_of("ReplicaSet", "web", SELECTOR)], False),
        ([owned(NEW, "ReplicaSet", "apps/v1"), made_of("ReplicaSet", "web", {})], False),
        ([owned(NEW, "Job", "batch.volcano.sh/v1alpha1"), service()], True),
    ],
)
def test_whose_pods_are_spread(objects: list[Manifest], expected: bool) -> None:
    assert applies(*objects) is expected


def test_a_pod_with_constraints_of_its_own_has_these_alone() -> None:
    raw = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": SELECTOR}
    assert not applies(pod("new", labels=WEB, spec={"topologySpreadConstraints": [raw]}), service())


def test_what_is_not_watched_spreads_nothing() -> None:
    """Without nodeorder nobody reads Services."""
    assert "Service" not in session_of(*NODES, service(), NEW).snapshot.others


# --- points -------------------------------------------------------------------------------------------------------


def test_hosts_and_zones_are_weighed_together() -> None:
    others = [pod("a", on="n1", labels=WEB), pod("b", on="n1", labels=WEB), pod("c", on="n3", labels=WEB)]
    session = session_of(*NODES, service(), *others, NEW, conf=CONF)
    hosts, zones = math.log(3 + 2), math.log(2 + 2)
    n1 = whole(2 * hosts + 2, 2 * zones + 4)
    n2 = whole(0 * hosts + 2, 2 * zones + 4)
    n3 = whole(1 * hosts + 2, 1 * zones + 4)
    least = min(n1, n2, n3)
    expected = {name: 100 * (n1 + least - own) // n1 for name, own in (("n1", n1), ("n2", n2), ("n3", n3))}
    assert points(session, SPREAD, "new") == expected


def test_nodes_without_a_zone_are_spread_by_host_name_all_the_same() -> None:
    """They are one zone more among those whose number weighs, and nothing is added for theirs."""
    nodes = [*NODES, node("n4"), node("n5")]
    others = [pod("a", on="n1", labels=WEB), pod("b", on="n4", labels=WEB)]
    session = session_of(*nodes, service(), *others, NEW, conf=CONF)
    hosts, zones = math.log(5 + 2), math.log(3 + 2)
    rates = {
        "n1": whole(1 * hosts + 2, 1 * zones + 4),
        "n2": whole(0 * hosts + 2, 1 * zones + 4),
        "n3": whole(0 * hosts + 2, 0 * zones + 4),
        "n4": whole(1 * hosts + 2),
        "n5": whole(0 * hosts + 2),
    }
    most, least = max(rates.values()), min(rates.values())
    assert points(session, SPREAD, "new") == {name: 100 * (most + least - own) // most for name, own in rates.items()}


def test_pods_that_are_going_and_pods_of_others_do_not_count() -> None:
    others = [
        pod("a", on="n1", labels=WEB, deleting=True),
        pod("b", on="n1", labels={"app": "db"}),
        pod("c", on="n1", labels=WEB, namespace="other"),
    ]
    session = session_of(*NODES, service(), *others, NEW, conf=CONF)
    assert set(points(session, SPREAD, "new").values()) == {100}


def test_what_several_select_is_asked_for_together() -> None:
    """A pod is like another that all of its Services and its set select."""
    labels = {**WEB, "tier": "front", "hash": "1"}
    sets = made_of("ReplicaSet", "web", {"matchExpressions": [{"key": "hash", "operator": "In", "values": ["1"]}]})
    new = owned(pod("new", labels=labels), "ReplicaSet", "apps/v1")
    services = [service("one"), service("two", {"tier": "front"}), service("three", {"tier": "back"})]
    others = [
        pod("a", on="n1", labels=labels),
        pod("b", on="n2", labels={**labels, "hash": "2"}),
        pod("c", on="n2", labels={**WEB, "hash": "1"}),
        pod("d", on="n2", labels={"tier": "front", "hash": "1"}),
    ]
    session = session_of(*NODES, sets, *services, *others, new, conf=CONF)
    rates = points(session, SPREAD, "new")
    assert rates["n1"] < rates["n2"] < rates["n3"]


def test_pods_of_a_service_go_apart() -> None:
    """What users notice: replicas on nodes that are otherwise alike."""
    nodes = [node(f"n{i}", cpu=64, memory=256) for i in range(4)]
    conf = "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n  - name: nodeorder\n"
    conf += "    arguments:\n      leastrequested.weight: 0\n      balancedresource.weight: 0\n"
    pods = list(gang("web", 8, members=1, labels=WEB, cpu=1))
    together = planned(*nodes, *pods, conf=conf).binds
    apart = planned(*nodes, *pods, service(), conf=conf).binds
    assert sorted(list(together.values()).count(f"n{i}") for i in range(4)) == [0, 0, 0, 8]
    assert sorted(list(apart.values()).count(f"n{i}") for i in range(4)) == [2, 2, 2, 2]


def test_pods_of_different_sets_do_not_share_what_is_known_of_nodes() -> None:
    sets = [made_of("ReplicaSet", name, {"matchLabels": {"set": name}}) for name in "ab"]
    there = [pod("x", on="n1", labels={"set": "a"}), pod("y", on="n3", labels={"set": "b"})]
    news = [owned(pod(f"new-{name}", labels=WEB), "ReplicaSet", "apps/v1", name) for name in "ab"]
    session = session_of(*NODES, *sets, *there, *news, group("g"), conf=CONF)
    found = [points(session, SPREAD, f"new-{name}") for name in "ab"]
    assert found[0]["n1"] < found[0]["n3"] and found[1]["n3"] < found[1]["n1"]
    tasks = [task for job in session.jobs_with_pending() for task in job.pending()]
    assert len({framework_of(session).evaluator.keys.of(task)[0] for task in tasks}) == 2


# --- against plain loops ------------------------------------------------------------------------------------------


def expected_points(nodes: list[Manifest], pods: list[Manifest], selector: dict[str, str]) -> dict[str, int]:
    """kube-scheduler's PreScore, Score and NormalizeScore, node by node."""
    labels = {each["metadata"]["name"]: each["metadata"]["labels"] for each in nodes}
    like = [each for each in pods if selector.items() <= each["metadata"]["labels"].items()]
    on = {name: sum(each["spec"]["nodeName"] == name for each in like) for name in labels}
    zones = {own.get(ZONE, "") for own in labels.values()}
    in_zone = {zone: sum(on[name] for name in labels if labels[name].get(ZONE) == zone) for zone in zones}
    rates = {}
    for name, own in labels.items():
        total = on[name] * math.log(len(labels) + 2) + 2
        if ZONE in own:
            total += in_zone[own[ZONE]] * math.log(len(zones) + 2) + 4
        rates[name] = math.floor(total + 0.5)
    most, least = max(rates.values()), min(rates.values())
    return {name: 100 if most == 0 else 100 * (most + least - rate) // most for name, rate in rates.items()}


@given(st.integers(0, 2**32))
def test_equals_kube_schedulers_loops(seed: int) -> None:
    rand = random.Random(seed)
    nodes = []
    for number in range(rand.randrange(1, 7)):
        zone = rand.choice(({}, {ZONE: "a"}, {ZONE: "b"}, {ZONE: "c"}))
        nodes.append(node(f"n{number}", labels=zone))
    kinds = [{"app": app, "tier": tier} for app in "xy" for tier in "xy"]
    names = [each["metadata"]["name"] for each in nodes]
    pods = [pod(f"p{i}", on=rand.choice(names), labels=rand.choice(kinds)) for i in range(rand.randrange(9))]
    wanted_by = [dict(rand.sample(sorted(rand.choice(kinds).items()), rand.randrange(3))) for _ in range(3)]
    services = [service(f"s{i}", wanted) for i, wanted in enumerate(wanted_by)]
    new = pod("new", labels=rand.choice(kinds))
    selector: dict[str, str] = {}
    for wanted in wanted_by:
        if wanted and wanted.items() <= new["metadata"]["labels"].items():
            selector |= wanted
    session = session_of(*nodes, *pods, *services, new, conf=CONF)
    assert rated(session, SPREAD, "new") is bool(selector)
    if selector:
        assert points(session, SPREAD, "new") == expected_points(nodes, pods, selector)


# --- what is kept of them -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "manifest", [service(), made_of("ReplicaSet", "web", SELECTOR), made_of("ReplicationController", "web", WEB)]
)
def test_of_a_service_or_set_only_its_name_and_selector_are_kept(manifest: Manifest) -> None:
    kind, obj, _ = from_manifest({**manifest, "metadata": {**manifest["metadata"], "uid": "u"}})
    data = msgspec.msgpack.decode(encode_payload(obj))
    assert set(data) == {"metadata", "spec"} and set(data["spec"]) == {"selector"}
    assert set(data["metadata"]) == {"name", "namespace", "uid"}
    assert type(obj) is KINDS[kind].type


def test_what_changes_daily_in_a_set_is_no_change_here() -> None:
    """Replicas, annotations, the status: nothing is logged anew, nobody decides anew."""
    before = made_of("ReplicaSet", "web", SELECTOR)
    after = made_of("ReplicaSet", "web", SELECTOR)
    after["spec"]["replicas"] = 9
    after["metadata"] |= {"annotations": {"replicas": "9"}, "generation": 2, "resourceVersion": "7"}
    after["status"] = {"replicas": 9}
    assert encode_payload(from_manifest(before)[1]) == encode_payload(from_manifest(after)[1])

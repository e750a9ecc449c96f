"""Predicates about the volumes behind a pod's claims."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import NOW_NS, node, pod, session_of
from tests.predicates.asking import PREDICATES, applies, named, passing, pending, reasons, refusal, with_arguments
from tests.predicates.storage import capacity, claim, csi_driver, csi_node, storage_class, using, volume
from vcd.model import events as ev
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import run
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.planning import state_of

Manifest = dict[str, Any]

CSI = "csi.example.com"
NODES = [node(zone, labels={"zone": zone}) for zone in "abc"]


def user(name: str = "p", *claims: str, **options: Any) -> Manifest:
    """A pod that uses claims."""
    return pod(name, spec=using(*claims), cpu=1, **options)


def opened(*objects: Manifest, **arguments: Any) -> Session:
    conf = with_arguments("predicates", {f"predicate.{key}": value for key, value in arguments.items()})
    return session_of(*objects, conf=conf)


def place(session: Session, task: str, on: str, verb: str = "allocate") -> Statement:
    """Place a pending task in trial."""
    found = pending(session, task)
    statement = Statement(session.trial, "allocate", found.job)
    getattr(statement, verb)([found], [session.nodes.facts.row_of[on]])
    return statement


# --- refused before any node ------------------------------------------------------------------------------------------


def test_a_missing_claim_is_named() -> None:
    assert refusal(opened(node("n"), user("p", "data"))) == 'persistentvolumeclaim "data" not found'


@pytest.mark.parametrize("off", ["VolumeZoneEnable", "VolumeBindingEnable", "NodeVolumeLimitsEnable"])
def test_a_missing_claim_is_named_as_long_as_one_volume_test_is_on(off: str) -> None:
    switches = {name: name == off for name in ("VolumeZoneEnable", "VolumeBindingEnable", "NodeVolumeLimitsEnable")}
    assert refusal(opened(node("n"), user("p", "data"), **switches)) == 'persistentvolumeclaim "data" not found'


def test_without_volume_tests_claims_are_not_looked_at() -> None:
    switches = dict.fromkeys(("VolumeZoneEnable", "VolumeBindingEnable", "NodeVolumeLimitsEnable"), False)
    session = opened(node("n"), user("p", "data"), **switches)
    assert refusal(session) is None
    assert framework_of(session).candidates(pending(session)).best() == 0


def test_a_claim_in_another_namespace_is_missing() -> None:
    session = opened(node("n"), claim("data", volume="v"), volume("v"), user("p", "data", namespace="other"))
    assert refusal(session) == 'persistentvolumeclaim "data" not found'


def test_an_unbound_claim_that_binds_immediately_holds_the_pod() -> None:
    session = opened(node("n"), claim("data"), storage_class(mode="Immediate"), user("p", "data"))
    refused = framework_of(session).pre_predicate(pending(session))
    assert refused is not None
    assert refused[1].words == "pod has unbound immediate PersistentVolumeClaims"
    assert refused[1].detail["claim"] == "default/data"


def test_a_claim_with_a_volume_that_is_not_bound_yet_holds_the_pod() -> None:
    session = opened(node("n"), claim("data", volume="v", bound=False), volume("v"), storage_class(), user("p", "data"))
    assert refusal(session) == "pod has unbound immediate PersistentVolumeClaims"


def test_a_lost_claim_is_refused() -> None:
    session = opened(node("n"), claim("data", volume="v", phase="Lost"), volume("v"), user("p", "data"))
    assert refusal(session) == 'persistentvolumeclaim "data" bound to non-existent persistentvolume "v"'


def test_a_claim_that_is_being_deleted_is_refused() -> None:
    leaving = claim("data", volume="v")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert refusal(opened(node("n"), leaving, volume("v"), user("p", "data"))) == (
        'persistentvolumeclaim "data" is being deleted'
    )


def test_a_claim_whose_size_cannot_be_read_is_refused() -> None:
    session = opened(node("n"), claim("data", size="big"), storage_class(), user("p", "data"))
    found = refusal(session)
    assert found is not None
    assert found.startswith("persistentvolumeclaim \"data\" cannot be read: quantity 'big' is malformed")


def test_an_ephemeral_volume_waits_for_its_claim() -> None:
    session = opened(node("n"), pod("p", spec={"volumes": [{"name": "tmp", "ephemeral": {}}]}))
    assert refusal(session) == ('waiting for ephemeral volume controller to create the persistentvolumeclaim "p-tmp"')


def owned_claim(uid: str) -> Manifest:
    made = claim("p-tmp", volume="v")
    made["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": "p", "uid": uid, "controller": True}]
    return made


def test_an_ephemeral_volume_takes_the_claim_that_the_pod_owns() -> None:
    owner = pod("p", spec={"volumes": [{"name": "tmp", "ephemeral": {}}]})
    session = opened(node("n"), owned_claim(owner["metadata"]["uid"]), volume("v"), owner)
    assert refusal(session) is None


def test_an_ephemeral_volume_does_not_take_a_strangers_claim() -> None:
    owner = pod("p", spec={"volumes": [{"name": "tmp", "ephemeral": {}}]})
    session = opened(node("n"), owned_claim("another"), volume("v"), owner)
    assert refusal(session) == "PVC default/p-tmp was not created for pod default/p (pod is not owner)"


def test_pods_alike_go_where_their_own_ephemeral_volumes_are() -> None:
    pods = [pod(name, spec={"volumes": [{"name": "tmp", "ephemeral": {}}]}, cpu=1) for name in ("p", "q")]
    claims = [claim("p-tmp", volume="v"), claim("q-tmp", volume="w")]
    for made, owner in zip(claims, pods, strict=True):
        made["metadata"]["ownerReferences"] = [{"uid": owner["metadata"]["uid"], "controller": True}]
    volumes = [volume("v", zones=("a",)), volume("w", zones=("b",))]
    session = opened(*NODES, *claims, *volumes, *pods)
    best = [framework_of(session).candidates(pending(session, name)).best() for name in ("p", "q")]
    assert best == [0, 1]


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (claim("data", volume="gone"), 'persistentvolume "gone" not found'),
        (claim("data", storage_class=""), "PersistentVolumeClaim had no pv name and storageClass name"),
        (claim("data", storage_class="odd"), 'storageclass.storage.k8s.io "odd" not found'),
        (claim("data", storage_class="now"), "PersistentVolume had no name"),
    ],
)
def test_claims_whose_zone_cannot_be_told_are_refused(made: Manifest, reason: str) -> None:
    session = opened(
        node("n"), made, storage_class("now", mode="Immediate"), user("p", "data"), VolumeBindingEnable=False
    )
    assert refusal(session) == reason


# --- bound claims -----------------------------------------------------------------------------------------------------


def test_a_bound_volume_decides_where_the_pod_can_go() -> None:
    session = opened(*NODES, claim("data", volume="v"), volume("v", zones=("a", "b")), user("p", "data"))
    assert passing(session, "VolumeBinding") == {"a", "b"}
    assert reasons(session, "VolumeBinding") == {"node(s) had volume node affinity conflict": 1}


def test_a_node_must_reach_all_volumes() -> None:
    volumes = [volume("v", zones=("a", "b")), volume("w", zones=("b", "c"))]
    session = opened(*NODES, claim("x", volume="v"), claim("y", volume="w"), *volumes, user("p", "x", "y"))
    assert passing(session, "VolumeBinding") == {"b"}


def test_a_volume_without_affinity_is_everywhere() -> None:
    session = opened(*NODES, claim("data", volume="v"), volume("v"), user("p", "data"))
    assert passing(session, "VolumeBinding") == {"a", "b", "c"}


def test_a_bound_volume_whose_affinity_cannot_be_read_is_nowhere() -> None:
    broken = {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Near"}]}]}}
    session = opened(*NODES, claim("data", volume="v"), volume("v", nodeAffinity=broken), user("p", "data"))
    assert passing(session, "VolumeBinding") == set()


def test_a_bound_volume_that_is_gone_is_nowhere() -> None:
    session = opened(*NODES, claim("data", volume="v"), user("p", "data"), VolumeZoneEnable=False)
    assert reasons(session, "VolumeBinding") == {
        "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)": 3
    }


def test_volume_binding_can_be_switched_off() -> None:
    session = opened(*NODES, claim("data"), storage_class(), user("p", "data"), VolumeBindingEnable=False)
    assert named(session, "VolumeBinding") == []


# --- claims that wait for their first pod -----------------------------------------------------------------------------


def test_an_unbound_claim_goes_where_a_volume_is_free() -> None:
    session = opened(*NODES, storage_class(), claim("data"), volume("v", zones=("b",)), user("p", "data"))
    assert passing(session, "VolumeBinding") == {"b"}
    assert reasons(session, "VolumeBinding") == {"node(s) didn't find available persistent volumes to bind": 2}


@pytest.mark.parametrize(
    "unsuitable",
    [
        {"size": "1Mi"},
        {"storage_class": "other"},
        {"phase": "Released"},
        {"claim": "another"},
        {"volumeMode": "Block"},
        {"accessModes": ["ReadOnlyMany"]},
        {"labels": {"tier": "iron"}},
    ],
)
def test_a_volume_that_does_not_suit_the_claim_is_not_taken(unsuitable: Manifest) -> None:
    wanted = claim("data", selector={"matchLabels": {"tier": "gold"}})
    offered = volume("v", **{"labels": {"tier": "gold"}, **unsuitable})
    session = opened(*NODES, storage_class(), wanted, offered, user("p", "data"))
    assert passing(session, "VolumeBinding") == set()


def test_a_volume_that_suits_the_claim_is_taken() -> None:
    wanted = claim("data", selector={"matchLabels": {"tier": "gold"}})
    session = opened(NODES[0], storage_class(), wanted, volume("v", labels={"tier": "gold"}), user("p", "data"))
    assert passing(session, "VolumeBinding") == {"a"}


def test_a_volume_meant_for_the_claim_is_taken_or_none() -> None:
    volumes = [volume("meant", zones=("c",), claim="data"), volume("free", size="1Gi")]
    session = opened(*NODES, storage_class(), claim("data"), *volumes, user("p", "data"))
    assert passing(session, "VolumeBinding") == {"c"}


def test_a_volume_meant_for_a_former_claim_of_the_name_is_not_taken() -> None:
    former = volume("v", claim="data")
    former["spec"]["claimRef"]["uid"] = "former"
    session = opened(*NODES, storage_class(), claim("data"), former, user("p", "data"))
    assert passing(session, "VolumeBinding") == set()


def test_two_claims_of_a_pod_need_two_volumes_on_the_node() -> None:
    volumes = [volume("v", zones=("a", "b")), volume("w", zones=("b",))]
    session = opened(*NODES, storage_class(), claim("x"), claim("y"), *volumes, user("p", "x", "y"))
    assert passing(session, "VolumeBinding") == {"b"}


def test_the_smaller_claim_chooses_first_and_takes_the_smallest_volume() -> None:
    volumes = [volume("v", size="5Gi", labels={"tier": "gold"}), volume("w", size="9Gi")]
    claims = [claim("large", size="3Gi", selector={"matchLabels": {"tier": "gold"}}), claim("small", size="1Gi")]
    session = opened(NODES[0], storage_class(), *claims, *volumes, user("p", "large", "small"))
    assert passing(session, "VolumeBinding") == set()


def test_a_volume_taken_by_an_earlier_placement_is_not_free() -> None:
    claims = [claim("x"), claim("y")]
    session = opened(*NODES, storage_class(), *claims, volume("v"), user("first", "x"), user("second", "y"))
    place(session, "first", "a")
    assert passing(session, "VolumeBinding", "second") == set()


def test_what_is_taken_back_is_free_again() -> None:
    claims = [claim("x"), claim("y")]
    session = opened(*NODES, storage_class(), *claims, volume("v"), user("first", "x"), user("second", "y"))
    statement = place(session, "first", "a")
    assert passing(session, "VolumeBinding", "second") == set()
    statement.discard()
    assert passing(session, "VolumeBinding", "second") == {"a", "b", "c"}


def test_a_pod_that_waits_for_room_takes_no_volume() -> None:
    claims = [claim("x"), claim("y")]
    session = opened(*NODES, storage_class(), *claims, volume("v"), user("first", "x"), user("second", "y"))
    place(session, "first", "a", "pipeline")
    assert passing(session, "VolumeBinding", "second") == {"a", "b", "c"}


def test_pods_that_share_a_claim_share_its_volume() -> None:
    session = opened(
        *NODES, storage_class(), claim("x"), volume("v", zones=("a", "b")), user("first", "x"), user("second", "x")
    )
    place(session, "first", "a")
    assert passing(session, "VolumeBinding", "second") == {"a", "b"}


def test_a_pod_that_an_earlier_session_placed_keeps_its_volume_until_it_is_bound() -> None:
    claims = [claim("x"), claim("y")]
    state = state_of([*NODES, storage_class(), *claims, volume("v"), user("first", "x"), user("second", "y")])
    chosen = (ev.VolumeChoice("default/x", "v", "uid-x"),)
    bind = ev.Operation("bind", "default/first", "uid-default-first", "a", volumes=chosen)
    plan = ev.encode_plan(ev.Plan((ev.Statement("default/first", "allocate", (bind,)),)))
    state.apply(state.sequence + 1, ev.SessionDecided(1, 0, "", 0, 0, 1, {}, plan))
    session = run(SnapshotMaker(state).snapshot(), read_policy(PREDICATES), NOW_NS, 0)
    assert session.trial.placements == 0
    assert reasons(session, "VolumeBinding") == {"node(s) didn't find available persistent volumes to bind": 3}


# --- volumes that are made --------------------------------------------------------------------------------------------


def test_a_class_that_provisions_lets_the_pod_go_anywhere() -> None:
    session = opened(*NODES, storage_class(provisioner=CSI), claim("data"), user("p", "data"))
    assert passing(session, "VolumeBinding") == {"a", "b", "c"}


def test_a_class_provisions_within_its_topologies() -> None:
    session = opened(*NODES, storage_class(provisioner=CSI, zones=("a", "c")), claim("data"), user("p", "data"))
    assert passing(session, "VolumeBinding") == {"a", "c"}


def test_a_claim_with_a_selected_node_goes_there() -> None:
    session = opened(*NODES, storage_class(provisioner=CSI), claim("data", selected="b"), user("p", "data"))
    assert passing(session, "VolumeBinding") == {"b"}


def test_a_claim_to_be_made_for_an_earlier_placement_is_on_that_node() -> None:
    session = opened(*NODES, storage_class(provisioner=CSI), claim("x"), user("first", "x"), user("second", "x"))
    place(session, "first", "c")
    assert passing(session, "VolumeBinding", "second") == {"c"}


def test_a_claim_stays_on_its_node_while_one_of_its_pods_does() -> None:
    users = [user(name, "x") for name in ("first", "second", "third")]
    session = opened(*NODES, storage_class(provisioner=CSI), claim("x"), *users)
    place(session, "first", "c")
    place(session, "second", "c").discard()
    assert passing(session, "VolumeBinding", "third") == {"c"}


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ([], set()),
        ([capacity("r", {"matchLabels": {"zone": "a"}}, capacity="5Gi")], {"a"}),
        ([capacity("r", {"matchLabels": {"zone": "a"}}, capacity="500Mi")], set()),
        ([capacity("r", {"matchLabels": {"zone": "a"}}, capacity="5Gi", maximumVolumeSize="500Mi")], set()),
        ([capacity("r", {"matchLabels": {"zone": "a"}}, "other", capacity="5Gi")], set()),
        ([capacity("r", {"matchLabels": {"zone": "a"}})], set()),
        ([capacity("r", None, capacity="5Gi")], set()),
        ([capacity("r", {}, capacity="plenty")], set()),
        ([capacity("r", {}, capacity="5Gi")], {"a", "b", "c"}),
    ],
)
def test_a_driver_that_tracks_capacity_needs_room_for_the_volume(listed: list[Manifest], expected: set[str]) -> None:
    session = opened(
        *NODES,
        storage_class(provisioner=CSI),
        csi_driver(CSI, storage_capacity=True),
        claim("data", size="1Gi"),
        *listed,
        user("p", "data"),
    )
    assert passing(session, "VolumeBinding") == expected


def test_the_reason_tells_missing_room_from_missing_volumes() -> None:
    session = opened(
        *NODES,
        storage_class(provisioner=CSI, zones=("a", "b")),
        csi_driver(CSI, storage_capacity=True),
        claim("data"),
        user("p", "data"),
    )
    assert reasons(session, "VolumeBinding") == {
        "node(s) did not have enough free storage": 2,
        "node(s) didn't find available persistent volumes to bind": 1,
    }


def test_a_driver_that_does_not_track_capacity_is_trusted() -> None:
    session = opened(
        *NODES,
        storage_class(provisioner=CSI),
        csi_driver(CSI, storage_capacity=False),
        claim("data"),
        user("p", "data"),
    )
    assert passing(session, "VolumeBinding") == {"a", "b", "c"}


# --- zones ------------------------------------------------------------------------------------------------------------

ZONE, OLD_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({ZONE: "a"}, {"a", "old", "none"}),
        ({ZONE: "a__b"}, {"a", "b", "old", "none"}),
        ({OLD_ZONE: "a"}, {"a", "old", "none"}),
        ({ZONE: "a__"}, {"a", "b", "old", "none"}),
        ({"topology.kubernetes.io/region": "r"}, {"none"}),
        ({}, {"a", "b", "old", "none"}),
    ],
)
def test_a_volume_is_used_in_its_zones(labels: dict[str, str], expected: set[str]) -> None:
    session = opened(
        node("a", labels={ZONE: "a"}),
        node("b", labels={ZONE: "b"}),
        node("old", labels={OLD_ZONE: "a", ZONE: "a"}),
        node("none"),
        claim("data", volume="v"),
        volume("v", labels=labels),
        user("p", "data"),
    )
    assert passing(session, "VolumeZone") == expected


def test_zones_can_be_switched_off() -> None:
    session = opened(
        node("b", labels={ZONE: "b"}),
        claim("data", volume="v"),
        volume("v", labels={ZONE: "a"}),
        user("p", "data"),
        VolumeZoneEnable=False,
    )
    assert framework_of(session).candidates(pending(session)).best() == 0


# --- limits -----------------------------------------------------------------------------------------------------------


def attached(number: int) -> list[Manifest]:
    """Claims ``c0`` ... bound to volumes of the driver."""
    return [
        made
        for i in range(number)
        for made in (claim(f"c{i}", volume=f"v{i}"), volume(f"v{i}", driver=CSI, claim=f"c{i}"))
    ]


def test_a_node_takes_as_many_volumes_as_its_driver_says() -> None:
    session = opened(
        node("full"),
        node("free"),
        csi_node("full", csi_example_com=1),
        csi_node("free", csi_example_com=2),
        *attached(3),
        user("a", "c0", on="full"),
        user("b", "c1", on="free"),
        user("p", "c2"),
    )
    assert passing(session, "NodeVolumeLimits") == {"free"}
    assert reasons(session, "NodeVolumeLimits") == {"node(s) exceed max volume count": 1}


def test_all_new_volumes_of_the_pod_count() -> None:
    session = opened(node("n"), csi_node("n", csi_example_com=1), *attached(2), user("p", "c0", "c1"))
    assert passing(session, "NodeVolumeLimits") == set()


def test_a_shared_volume_counts_once() -> None:
    session = opened(
        node("n"), csi_node("n", csi_example_com=1), *attached(1), user("a", "c0", on="n"), user("p", "c0")
    )
    assert passing(session, "NodeVolumeLimits") == {"n"}


def test_a_volume_that_is_there_already_is_let_in_above_the_limit() -> None:
    session = opened(
        node("n"),
        csi_node("n", csi_example_com=1),
        *attached(2),
        user("a", "c0", "c1", on="n"),
        user("p", "c0"),
    )
    assert passing(session, "NodeVolumeLimits") == {"n"}


def test_volumes_of_earlier_placements_count_until_they_are_taken_back() -> None:
    session = opened(
        node("n"), csi_node("n", csi_example_com=1), *attached(2), user("first", "c0"), user("second", "c1")
    )
    statement = place(session, "first", "n")
    assert passing(session, "NodeVolumeLimits", "second") == set()
    statement.discard()
    assert passing(session, "NodeVolumeLimits", "second") == {"n"}


def test_a_claim_to_be_made_counts_for_its_classs_driver() -> None:
    session = opened(
        node("n"), csi_node("n", csi_example_com=0), storage_class(provisioner=CSI), claim("data"), user("p", "data")
    )
    assert passing(session, "NodeVolumeLimits") == set()


@pytest.mark.parametrize("listed", [{}, {"other_driver": 0}, {"csi_example_com": None}])
def test_a_driver_without_a_number_is_not_limited(listed: dict[str, int | None]) -> None:
    session = opened(node("n"), csi_node("n", **listed), *attached(1), user("p", "c0"))
    assert not applies(session, "NodeVolumeLimits")


def test_volumes_of_no_driver_are_not_counted() -> None:
    session = opened(
        node("n"), csi_node("n", csi_example_com=0), claim("data", volume="v"), volume("v"), user("p", "data")
    )
    assert not applies(session, "NodeVolumeLimits")


def test_limits_can_be_switched_off() -> None:
    session = opened(
        node("n"), csi_node("n", csi_example_com=0), *attached(1), user("p", "c0"), NodeVolumeLimitsEnable=False
    )
    assert framework_of(session).candidates(pending(session)).best() == 0


def test_without_pods_that_use_claims_no_volume_is_looked_at() -> None:
    session = session_of(node("n"), claim("data", volume="v"), pod("p"), conf=PREDICATES)
    assert not named(session, "VolumeBinding")

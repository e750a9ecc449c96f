"""What a pod's unbound claims get: in the plan, in sessions until the pod is bound, and against the head state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.dsl import group, node, pod
from tests.predicates.asking import with_arguments
from tests.predicates.storage import claim, storage_class, using, volume
from tests.world import World
from vcd.model import events as ev
from vcd.scheduling.statement_verification import stale_statements

Manifest = dict[str, Any]

CSI = "csi.example.com"
NODES = [node(zone, labels={"zone": zone}) for zone in "abc"]
LOCAL = [storage_class(), claim("data"), volume("v", zones=("b",))]
MADE = [storage_class(provisioner=CSI, zones=("c",)), claim("data")]
ON_B = ev.VolumeChoice("default/data", "v", "uid-data")
ON_C = ev.VolumeChoice("default/data", "", "uid-data")


def user(name: str, *claims: str, **options: Any) -> list[Manifest]:
    """A pod that uses claims, and its group."""
    return [group(name), pod(name, group=name, spec=using(*claims), cpu=1, **options)]


def world(*objects: Manifest | list[Manifest], **arguments: Any) -> World:
    return World(*NODES, *objects, conf=with_arguments("predicates", arguments) + "  - name: gang\n")


def binds(plan: ev.Plan) -> dict[str, ev.Operation]:
    """The binds of a plan, by pod."""
    return {each.key: each for statement in plan.statements for each in statement.operations if each.verb == "bind"}


# --- in the plan ------------------------------------------------------------------------------------------------------


def test_a_volume_that_was_chosen_is_in_the_plan() -> None:
    bind = binds(world(*LOCAL, user("p", "data")).decide())["default/p"]
    assert (bind.node, bind.volumes) == ("b", (ON_B,))


def test_a_claim_without_a_volume_is_to_be_provisioned_on_the_node() -> None:
    bind = binds(world(*MADE, user("p", "data")).decide())["default/p"]
    assert (bind.node, bind.volumes) == ("c", (ON_C,))


def test_each_claim_of_a_pod_gets_its_own_volume() -> None:
    objects = [storage_class(), claim("large", size="8Gi"), claim("small"), volume("v1", size="1Gi"), volume("v9")]
    chosen = binds(world(*objects, user("p", "large", "small")).decide())["default/p"].volumes
    assert {choice.claim: choice.volume for choice in chosen} == {"default/large": "v9", "default/small": "v1"}


def test_a_claim_that_is_bound_already_is_not_in_the_plan() -> None:
    bound = [storage_class(), claim("data", volume="v"), volume("v", claim="data")]
    assert binds(world(*bound, user("p", "data")).decide())["default/p"].volumes == ()


def test_pods_that_share_a_claim_both_wait_for_its_volume() -> None:
    found = binds(world(*LOCAL, user("p", "data"), user("q", "data")).decide())
    assert [found[key].volumes for key in ("default/p", "default/q")] == [(ON_B,), (ON_B,)]


def test_a_volume_that_a_discarded_statement_chose_is_chosen_by_the_next() -> None:
    gang = [group("gang", members=2), *[pod(f"gang-{i}", group="gang", spec=using("x"), cpu=5) for i in range(2)]]
    objects = [storage_class(), claim("x"), claim("data"), volume("v", zones=("b",)), *gang]
    found = binds(world(*objects, user("p", "data")).decide())
    assert {key: each.volumes for key, each in found.items()} == {"default/p": (ON_B,)}


def test_without_volume_binding_nothing_is_chosen() -> None:
    cluster = world(*LOCAL, user("p", "data"), **{"predicate.VolumeBindingEnable": False})
    assert binds(cluster.decide())["default/p"].volumes == ()


# --- while the pod is being bound -------------------------------------------------------------------------------------


def rival(*objects: Manifest) -> list[Manifest]:
    """A pod that wants what ``p`` got, and its claim."""
    return [*objects, claim("other"), *user("q", "other")]


def test_a_volume_of_a_pod_that_is_being_bound_is_not_chosen_again() -> None:
    cluster = world(*LOCAL, user("p", "data"))
    cluster.decide()
    cluster.put(*rival())
    assert binds(cluster.decide()) == {}
    assert "didn't find available persistent volumes" in cluster.reasons("q")


def test_the_volume_chosen_is_kept_though_a_better_one_appears() -> None:
    cluster = world(*LOCAL, user("p", "data"))
    cluster.decide()
    cluster.put(*rival(volume("better", zones=("b",), size="2Gi")))
    (choice,) = binds(cluster.decide())["default/q"].volumes
    assert choice.volume == "better"


def test_a_claim_that_is_being_provisioned_keeps_its_node() -> None:
    anywhere = [storage_class(provisioner=CSI), claim("data")]
    cluster = world(*anywhere, user("p", "data"))
    place = binds(cluster.decide())["default/p"].node
    cluster.put(*user("q", "data"))
    assert binds(cluster.decide())["default/q"].node == place


def test_a_volume_is_free_again_when_the_bind_failed() -> None:
    cluster = world(*LOCAL, user("p", "data"))
    cluster.decide()
    cluster.put(*rival())
    cluster.happen(ev.OperationDone(cluster.state.session, 0, 0, "failed"))
    cluster.remove("Pod", "default/p")
    (choice,) = binds(cluster.decide())["default/q"].volumes
    assert choice == ev.VolumeChoice("default/other", "v", "uid-other")


def test_a_volume_that_vanished_is_held_for_nobody() -> None:
    cluster = world(*LOCAL, user("p", "data"))
    cluster.decide()
    cluster.remove("PersistentVolume", "v")
    cluster.put(*rival(volume("w", zones=("c",))))
    assert binds(cluster.decide())["default/q"].node == "c"


def test_a_claim_that_is_bound_by_now_holds_nothing_more() -> None:
    cluster = world(*LOCAL, user("p", "data"))
    cluster.decide()
    cluster.put(claim("data", volume="v"), volume("v", zones=("b",), claim="data"))
    cluster.put(*user("q", "data"))
    bind = binds(cluster.decide())["default/q"]
    assert (bind.node, bind.volumes) == ("b", ())


# --- against the head state -------------------------------------------------------------------------------------------


def verdict(objects: list[Manifest], happening: Callable[[World], None]) -> str:
    """Why a decided bind does not hold any more after something happened."""
    cluster = world(*objects, user("p", "data"))
    plan = ev.Plan((ev.Statement("default/p", "allocate", (bind_of(objects),)),))
    base = cluster.maker.snapshot()
    happening(cluster)
    return dict(stale_statements(plan, cluster.maker.snapshot(), base)).get(0, "")


def bind_of(objects: list[Manifest]) -> ev.Operation:
    return binds(world(*objects, user("p", "data")).decide())["default/p"]


@pytest.mark.parametrize("objects", [LOCAL, MADE], ids=["volume", "provisioned"])
def test_a_choice_that_holds_is_not_stale(objects: list[Manifest]) -> None:
    assert verdict(objects, lambda cluster: None) == ""


def leaving(manifest: Manifest) -> Manifest:
    return {**manifest, "metadata": {**manifest["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}


def renewed(manifest: Manifest) -> Manifest:
    return {**manifest, "metadata": {**manifest["metadata"], "uid": "another"}}


@pytest.mark.parametrize(
    ("objects", "happening", "reason"),
    [
        (LOCAL, lambda w: w.remove("PersistentVolumeClaim", "default/data"), "claim default/data is gone"),
        (LOCAL, lambda w: w.put(leaving(claim("data"))), "claim default/data is gone"),
        (MADE, lambda w: w.put(renewed(claim("data"))), "claim default/data is gone"),
        (LOCAL, lambda w: w.put(claim("data", volume="w")), "claim default/data was bound to volume w"),
        (MADE, lambda w: w.put(claim("data", volume="w")), "claim default/data was bound to volume w"),
        (MADE, lambda w: w.put(claim("data", selected="a")), "claim default/data is to be provisioned on node a"),
        (LOCAL, lambda w: w.remove("PersistentVolume", "v"), "volume v is gone"),
        (LOCAL, lambda w: w.put(leaving(volume("v"))), "volume v is gone"),
        (LOCAL, lambda w: w.put(volume("v", claim="theirs")), "volume v is no longer available"),
        (LOCAL, lambda w: w.put(volume("v", phase="Failed")), "volume v is no longer available"),
    ],
)
def test_a_choice_that_no_longer_holds_is_stale(
    objects: list[Manifest], happening: Callable[[World], None], reason: str
) -> None:
    assert verdict(objects, happening) == f"bind default/p: {reason}"


@pytest.mark.parametrize(
    ("objects", "change"),
    [
        (LOCAL, claim("data", volume="v")),
        (LOCAL, volume("v", claim="data")),
        (MADE, claim("data", selected="c")),
    ],
    ids=["claim bound", "volume meant for it", "node selected"],
)
def test_a_choice_that_came_about_is_not_stale(objects: list[Manifest], change: Manifest) -> None:
    assert verdict(objects, lambda cluster: cluster.put(change)) == ""

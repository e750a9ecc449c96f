"""The group that the daemon makes of a pod as it is in the state, and what of one that is there becomes another."""

from __future__ import annotations

from typing import Any

import pytest

from vcd.daemon.workloads import OwnerManifest, changes, group_for, group_key
from vcd.model.codec import from_manifest
from vcd.model.objects import Pod

QUEUE, MINIMUM = "scheduling.volcano.sh/queue-name", "scheduling.volcano.sh/group-min-member"
OWNERS = [
    {"apiVersion": "example.com/v1", "kind": "Batch", "name": "b", "uid": "u-b"},
    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u-r", "controller": True,
     "blockOwnerDeletion": True},
]  # fmt: skip


def pod(owners: list[dict[str, Any]], **annotations: str) -> Pod:
    """A pod whose init container and sidecar ask for something, too."""
    meta = {"name": "p", "namespace": "ns", "uid": "u-p", "annotations": annotations, "ownerReferences": owners}
    cpu = {"resources": {"requests": {"cpu": "500m"}, "limits": {"memory": "1Gi"}}}
    spec = {
        "containers": [{"name": "c", **cpu}],
        "initContainers": [{"name": "s", "restartPolicy": "Always", **cpu}],
        "priorityClassName": "high",
    }
    _, made, _ = from_manifest({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    assert isinstance(made, Pod)
    return made


def spec_of(pod: Pod, queue: str = "", **marks: str) -> dict[str, Any]:
    found: dict[str, Any] = group_for(pod, OwnerManifest(marks), queue)["spec"]
    return found


def test_a_group_is_named_after_the_controller_or_the_pod() -> None:
    assert (group_key(pod(OWNERS)), group_key(pod([]))) == ("ns/podgroup-u-r", "ns/podgroup-u-p")
    assert group_key(pod(OWNERS[:1])) == "ns/podgroup-u-p"


def test_nobodys_deletion_waits_for_a_group() -> None:
    for owners in (OWNERS, []):
        made = group_for(pod(owners), OwnerManifest(), "")["metadata"]["ownerReferences"]
        assert [owner.get("blockOwnerDeletion") for owner in made] == [None] * len(made)
        assert [owner["uid"] for owner in made if owner.get("controller")] == ["u-r" if owners else "u-p"]


def test_its_minimum_is_the_workloads_and_a_bare_pods_own_says_nothing() -> None:
    assert spec_of(pod(OWNERS), **{MINIMUM: "3"})["minMember"] == 3
    assert spec_of(pod([], **{MINIMUM: "3"}))["minMember"] == 1


def test_what_it_needs_is_what_as_many_pods_use_of_a_quota() -> None:
    assert spec_of(pod(OWNERS), **{MINIMUM: "2"})["minResources"] == {
        "count/pods": "2", "cpu": "2", "limits.memory": "4Gi", "pods": "2", "requests.cpu": "2",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("own", "namespaces", "expected"), [("a", "b", "a"), ("a", "", "a"), ("", "b", "b"), ("", "", None)]
)
def test_its_queue_is_the_pods_or_else_its_namespaces(own: str, namespaces: str, expected: str | None) -> None:
    named = {QUEUE: own} if own else {}
    assert spec_of(pod(OWNERS, **named), namespaces).get("queue") == expected


def test_nothing_changes_at_a_group_that_is_as_it_would_be_made() -> None:
    made = group_for(pod(OWNERS), OwnerManifest({"volcano.sh/a": "1"}, {"volcano.sh/b": "2"}), "q")
    assert changes(made, made) == {}
    shown = {**made, "metadata": {**made["metadata"], "annotations": {"volcano.sh/a": "1", "mine": "2"}}}
    assert changes(shown, made) == {}


def test_what_is_another_is_patched_and_what_is_no_longer_needed_goes() -> None:
    made = group_for(pod(OWNERS), OwnerManifest({"volcano.sh/a": "1"}), "")
    needed = {**made["spec"]["minResources"], "cpu": "9", "nvidia.com/gpu": "1"}
    shown = {"metadata": {"annotations": {"volcano.sh/a": "0"}}, "spec": {**made["spec"], "minResources": needed}}
    assert changes(shown, made) == {
        "metadata": {"annotations": {"volcano.sh/a": "1"}},
        "spec": {"minResources": {**made["spec"]["minResources"], "nvidia.com/gpu": None}},
    }

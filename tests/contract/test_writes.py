"""Writes: conflicts, patches, status, preconditions, generated names, namespaces, the server-side time-out."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.server import JSON_PATCH, Obj, Server, named
from vcd.kube.client import MERGE_PATCH, STRATEGIC_PATCH
from vcd.kube.write_limiter import Urgency


async def labels(server: Server, name: str = "a") -> Obj:
    found: Obj = (await server.get("Pod", name))["metadata"].get("labels") or {}
    return found


def condition(type: str, status: str = "True") -> Obj:
    return {"type": type, "status": status, "reason": "Contract", "lastTransitionTime": "2026-01-01T00:00:00Z"}


# --- conflicts ------------------------------------------------------------------------------------------------------


async def test_a_second_creation_conflicts(server: Server) -> None:
    await server.pod("a")
    containers = [{"name": "main", "image": "pause"}]
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": containers}}
    error = await server.refused("POST", server.path("Pod"), body)
    assert (error.status, error.reason) == (409, "AlreadyExists")


async def test_an_update_of_an_old_copy_conflicts(server: Server) -> None:
    old = await server.pod("a")
    await server.call("PATCH", server.path("Pod", "a"), {"metadata": {"labels": {"x": "1"}}}, MERGE_PATCH)
    error = await server.refused("PUT", server.path("Pod", "a"), old)
    assert (error.status, error.reason) == (409, "Conflict")


async def test_an_update_of_the_newest_copy_is_taken(server: Server) -> None:
    await server.pod("a")
    await server.change("Pod", "a", lambda pod: pod["metadata"].update(labels={"x": "1"}))
    assert await labels(server) == {"x": "1"}


@pytest.mark.parametrize("media", [MERGE_PATCH, STRATEGIC_PATCH])
async def test_a_patch_against_an_old_version_conflicts(server: Server, media: str) -> None:
    old = await server.pod("a")
    await server.call("PATCH", server.path("Pod", "a"), {"metadata": {"labels": {"x": "1"}}}, MERGE_PATCH)
    patch = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"], "labels": {"x": "2"}}}
    assert (await server.refused("PATCH", server.path("Pod", "a"), patch, media)).status == 409
    assert await labels(server) == {"x": "1"}


async def test_what_is_not_there_is_404(server: Server) -> None:
    for method, body in (("GET", None), ("DELETE", None), ("PATCH", {"metadata": {}})):
        error = await server.refused(method, server.path("Pod", "absent"), body, MERGE_PATCH)
        assert (error.status, error.reason) == (404, "NotFound"), method


async def test_an_invalid_object_is_422_and_names_the_field(server: Server) -> None:
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": []}}
    error = await server.refused("POST", server.path("Pod"), body)
    assert (error.status, error.reason) == (422, "Invalid")
    assert "spec.containers" in error.message


# --- patches --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("media", "patch"),
    [
        (MERGE_PATCH, {"metadata": {"labels": {"b": None, "c": "3"}}}),
        (STRATEGIC_PATCH, {"metadata": {"labels": {"b": None, "c": "3"}}}),
        (JSON_PATCH, [{"op": "remove", "path": "/metadata/labels/b"},
                      {"op": "add", "path": "/metadata/labels/c", "value": "3"}]),
    ],
    ids=["merge", "strategic", "json"],
)  # fmt: skip
async def test_a_patch_adds_and_removes(server: Server, media: str, patch: Any) -> None:
    await server.pod("a", {"a": "1", "b": "2"})
    await server.call("PATCH", server.path("Pod", "a"), patch, media)
    assert await labels(server) == {"a": "1", "c": "3"}


async def test_a_json_patch_whose_test_fails_changes_nothing(server: Server) -> None:
    await server.pod("a", {"a": "1"})
    patch = [{"op": "replace", "path": "/metadata/labels/a", "value": "2"},
             {"op": "test", "path": "/metadata/labels/a", "value": "9"}]  # fmt: skip
    assert (await server.refused("PATCH", server.path("Pod", "a"), patch, JSON_PATCH)).status == 422
    assert await labels(server) == {"a": "1"}


async def test_a_strategic_patch_merges_conditions_by_their_type(server: Server) -> None:
    await server.pod("a")
    status = server.path("Pod", "a", "status")
    for type, value in (("Ready", "False"), ("example.com/Contract", "True"), ("Ready", "True")):
        patch = {"status": {"conditions": [condition(type, value)]}}
        await server.call("PATCH", status, patch, STRATEGIC_PATCH)
    found = {each["type"]: each["status"] for each in (await server.get("Pod", "a"))["status"]["conditions"]}
    assert (found["Ready"], found["example.com/Contract"]) == ("True", "True")


async def test_a_patch_of_another_type_is_415(server: Server) -> None:
    await server.pod("a")
    assert (await server.refused("PATCH", server.path("Pod", "a"), {}, "application/json")).status == 415


# --- the UID as a fence ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["", "status"])
async def test_a_patch_for_another_uid_is_refused(server: Server, part: str) -> None:
    await server.pod("a")
    patch = {"metadata": {"uid": "00000000-0000-4000-8000-000000000000", "labels": {"x": "1"}},
             "status": {"conditions": [condition("DisruptionTarget")]}}  # fmt: skip
    error = await server.refused("PATCH", server.path("Pod", "a", part), patch, STRATEGIC_PATCH)
    assert error.status in (409, 422)
    pod = await server.get("Pod", "a")
    assert "x" not in (pod["metadata"].get("labels") or {})
    assert "DisruptionTarget" not in [each["type"] for each in pod["status"].get("conditions") or ()]


@pytest.mark.parametrize("part", ["", "status"])
async def test_a_patch_for_the_pods_own_uid_is_taken(server: Server, part: str) -> None:
    pod = await server.pod("a")
    patch = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"conditions": [condition("DisruptionTarget")]}}
    answer = await server.call("PATCH", server.path("Pod", "a", part), patch, STRATEGIC_PATCH)
    assert answer["metadata"]["uid"] == pod["metadata"]["uid"]


# --- status ---------------------------------------------------------------------------------------------------------


async def test_status_is_not_written_with_the_object(server: Server) -> None:
    await server.pod("a")
    await server.call("PATCH", server.path("Pod", "a"), {"status": {"nominatedNodeName": "n"}}, MERGE_PATCH)
    assert "nominatedNodeName" not in (await server.get("Pod", "a"))["status"]


async def test_the_object_is_not_written_with_its_status(server: Server) -> None:
    await server.pod("a", {"x": "1"})
    patch = {"spec": {"activeDeadlineSeconds": 9}, "status": {"nominatedNodeName": "n"}}
    await server.call("PATCH", server.path("Pod", "a", "status"), patch, MERGE_PATCH)
    pod = await server.get("Pod", "a")
    assert "activeDeadlineSeconds" not in pod["spec"]
    assert pod["status"]["nominatedNodeName"] == "n"


async def test_a_new_pod_is_pending_whatever_it_says(server: Server) -> None:
    made = await server.create("Pod", {
        "metadata": {"name": "a"}, "status": {"phase": "Running"},
        "spec": {"schedulerName": "vcd-contract-nobody", "containers": [{"name": "main", "image": "pause"}]},
    })  # fmt: skip
    assert made["status"]["phase"] == "Pending"


# --- deletion -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precondition", [{"uid": "00000000-0000-4000-8000-000000000000"}, {"resourceVersion": "1"}])
async def test_a_deletion_of_another_object_conflicts(server: Server, precondition: Obj) -> None:
    pod = await server.pod("a")
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": precondition}
    error = await server.refused("DELETE", server.path("Pod", "a"), options)
    assert (error.status, error.reason) == (409, "Conflict")
    assert (await server.get("Pod", "a"))["metadata"]["uid"] == pod["metadata"]["uid"]


async def test_a_deletion_of_this_object_is_done(server: Server) -> None:
    pod = await server.pod("a")
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": pod["metadata"]["uid"]}}
    await server.call("DELETE", server.path("Pod", "a"), options)
    assert await server.names("Pod") == []


async def test_a_pod_on_a_node_stays_until_its_end_is_confirmed(server: Server) -> None:
    await server.pod("a", terminationGracePeriodSeconds=30)
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"},
               "target": {"name": server.unique("nowhere")}}  # fmt: skip
    await server.call("POST", server.path("Pod", "a", "binding"), binding)
    await server.call("DELETE", server.path("Pod", "a"))
    metadata = (await server.get("Pod", "a"))["metadata"]
    assert (bool(metadata["deletionTimestamp"]), metadata["deletionGracePeriodSeconds"]) == (True, 30)


async def test_an_object_of_the_same_name_has_another_uid(server: Server) -> None:
    first = await server.pod("a")
    await server.call("DELETE", server.path("Pod", "a"))
    assert (await server.pod("a"))["metadata"]["uid"] != first["metadata"]["uid"]


# --- names and namespaces -------------------------------------------------------------------------------------------


async def test_generated_names_begin_as_asked_and_differ(server: Server) -> None:
    spec = {"schedulerName": "vcd-contract-nobody", "containers": [{"name": "main", "image": "pause"}]}
    made = [await server.create("Pod", {"metadata": {"generateName": "gang-"}, "spec": spec}) for _ in range(3)]
    names = [pod["metadata"]["name"] for pod in made]
    assert len({*names}) == 3
    assert all(name.startswith("gang-") and len(name) > len("gang-") for name in names)


async def test_nothing_is_created_in_a_namespace_that_is_not_there(server: Server) -> None:
    path = server.path("Pod").replace(server.namespace, server.unique("absent"))
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
            "spec": {"containers": [{"name": "main", "image": "pause"}]}}  # fmt: skip
    assert (await server.refused("POST", path, body)).status in (403, 404)


async def test_a_namespace_takes_what_is_in_it_along(server: Server) -> None:
    start = (await server.listed("Pod"))["metadata"]["resourceVersion"]
    await server.pod("a")
    await server.call("DELETE", server.path("Namespace", server.namespace))
    async with server.watch("Pod", resourceVersion=start) as lines:
        await lines.until(named("DELETED", "a"))
    await server.until_gone("Namespace", server.namespace)


async def test_a_namespace_that_ends_takes_nothing_new(server: Server) -> None:
    body = {"metadata": {"name": "held", "finalizers": ["contract.vcd.example/held"]}, "capacity": "1Gi"}
    await server.create("CSIStorageCapacity", {**body, "storageClassName": "nobody"})
    await server.call("DELETE", server.path("Namespace", server.namespace))
    try:
        namespace = await server.get("Namespace", server.namespace)
        assert namespace["status"]["phase"] == "Terminating"
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "late"},
               "spec": {"containers": [{"name": "main", "image": "pause"}]}}  # fmt: skip
        assert (await server.refused("POST", server.path("Pod"), pod)).status == 403
    finally:
        await server.call(
            "PATCH", server.path("CSIStorageCapacity", "held"), {"metadata": {"finalizers": None}}, MERGE_PATCH
        )
    await server.until_gone("Namespace", server.namespace)


# --- time-outs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("urgency", Urgency)
async def test_a_write_that_tells_the_server_its_timeout_is_taken(server: Server, urgency: Urgency) -> None:
    await server.pod("a")
    path = server.path("Pod", "a")
    body = b'{"metadata": {"labels": {"x": "1"}}}'
    await server.client.request("PATCH", path, body, content_type=MERGE_PATCH, timeout=2.5, urgency=urgency)
    assert await labels(server) == {"x": "1"}
    await server.call("DELETE", f"{path}?timeout=3s")
    assert await server.names("Pod") == []

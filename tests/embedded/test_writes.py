"""Patches, server-side apply, field ownership and validation, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.embedded.serving import (
    APPLY,
    GROUPS,
    JSON_PATCH,
    MERGE,
    PODS,
    QUEUES,
    STRATEGIC,
    Api,
    Obj,
    config_map,
    pod,
    queue,
    serving,
)

MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def deployment(name: str, **container: Any) -> Obj:
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "main", "image": "a", **container}]},
        }},
    }  # fmt: skip


async def containers(api: Api, name: str = "d") -> list[Obj]:
    found: list[Obj] = (await api.get(f"{DEPLOYMENTS}/{name}")).body["spec"]["template"]["spec"]["containers"]
    return found


# --- patches --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patch", "names"),
    [
        ([{"name": "side", "image": "s"}], ["side", "main"]),
        ([{"name": "main", "image": "b"}], ["main"]),
        ([{"name": "main", "$patch": "delete"}, {"name": "side", "image": "s"}], ["side"]),
        ([{"$patch": "replace"}, {"name": "only", "image": "s"}], ["only"]),
    ],
)
async def test_strategic_merge_of_a_list_by_its_key(patch: list[Obj], names: list[str]) -> None:
    async with serving() as api:
        await api.post(DEPLOYMENTS, deployment("d"))
        body = {"spec": {"template": {"spec": {"containers": patch}}}}
        assert (await api.patch(f"{DEPLOYMENTS}/d", body, STRATEGIC)).status == 200
        assert [container["name"] for container in await containers(api)] == names


async def test_strategic_merge_keeps_the_order_asked_for() -> None:
    async with serving() as api:
        await api.post(DEPLOYMENTS, deployment("d"))
        spec = {
            "$setElementOrder/containers": [{"name": "main"}, {"name": "side"}],
            "containers": [{"name": "side", "image": "s"}],
        }
        await api.patch(f"{DEPLOYMENTS}/d", {"spec": {"template": {"spec": spec}}}, STRATEGIC)
        assert [container["name"] for container in await containers(api)] == ["main", "side"]


async def test_strategic_merge_deletes_from_a_list_of_values() -> None:
    async with serving() as api:
        await api.post(MAPS, {**config_map("c"), "metadata": {"name": "c", "finalizers": ["a/b", "c/d"]}})
        body = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/b"]}}
        answer = await api.patch(f"{MAPS}/c", body, STRATEGIC)
        assert answer.body["metadata"]["finalizers"] == ["c/d"]


async def test_strategic_merge_replaces_a_map_on_request() -> None:
    async with serving() as api:
        await api.post(MAPS, config_map("c", a="1"))
        answer = await api.patch(f"{MAPS}/c", {"data": {"$patch": "replace", "b": "2"}}, STRATEGIC)
        assert answer.body["data"] == {"b": "2"}


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([{"op": "add", "path": "/data/b~1c", "value": "2"}], {"a": "1", "b/c": "2"}),
        ([{"op": "replace", "path": "/data/a", "value": "3"}], {"a": "3"}),
        ([{"op": "move", "from": "/data/a", "path": "/data/z"}], {"z": "1"}),
        ([{"op": "copy", "from": "/data/a", "path": "/data/z"}], {"a": "1", "z": "1"}),
        ([{"op": "test", "path": "/data/a", "value": "1"}, {"op": "remove", "path": "/data/a"}], {}),
    ],
)
async def test_json_patch(operations: list[Obj], expected: Obj) -> None:
    async with serving() as api:
        await api.post(MAPS, config_map("c", a="1"))
        answer = await api.patch(f"{MAPS}/c", operations, JSON_PATCH)
        assert answer.body.get("data", {}) == expected


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/data/none"},
        {"op": "replace", "path": "/data/none", "value": "1"},
        {"op": "add", "path": "data", "value": "1"},
        {"op": "shout", "path": "/data"},
        {"op": "copy", "from": 5, "path": "/data/c"},
        {"op": "remove", "path": "/metadata/finalizers/²"},
    ],
)
async def test_a_json_patch_that_cannot_be_applied_changes_nothing(operation: Obj) -> None:
    async with serving() as api:
        made = config_map("c", a="1")
        await api.post(MAPS, {**made, "metadata": {**made["metadata"], "finalizers": ["a/a"]}})
        answer = await api.patch(f"{MAPS}/c", [{"op": "add", "path": "/data/b", "value": "2"}, operation], JSON_PATCH)
        assert answer.status == 422
        assert (await api.get(f"{MAPS}/c")).body["data"] == {"a": "1"}


async def test_a_json_patch_of_a_list() -> None:
    async with serving() as api:
        await api.post(MAPS, {**config_map("c"), "metadata": {"name": "c", "finalizers": ["a/a", "b/b"]}})
        operations = [
            {"op": "add", "path": "/metadata/finalizers/-", "value": "z/z"},
            {"op": "add", "path": "/metadata/finalizers/0", "value": "first/x"},
            {"op": "remove", "path": "/metadata/finalizers/1"},
        ]
        answer = await api.patch(f"{MAPS}/c", operations, JSON_PATCH)
        assert answer.body["metadata"]["finalizers"] == ["first/x", "b/b", "z/z"]


# --- apply and ownership --------------------------------------------------------------------------------------------


async def apply(api: Api, path: str, body: Obj, manager: str = "me", force: bool = False) -> Any:
    name = body["metadata"]["name"]
    return await api.patch(f"{path}/{name}?fieldManager={manager}&force={str(force).lower()}", body, APPLY)


def managers(obj: Obj) -> list[tuple[str, str]]:
    return [(entry["manager"], entry["operation"]) for entry in obj["metadata"].get("managedFields", [])]


async def test_apply_takes_away_what_it_no_longer_names() -> None:
    async with serving() as api:
        await apply(api, MAPS, config_map("c", a="1", b="2"))
        assert (await apply(api, MAPS, config_map("c", a="1"))).body["data"] == {"a": "1"}


async def test_apply_leaves_what_others_own() -> None:
    async with serving() as api:
        await apply(api, MAPS, config_map("c", a="1", b="2"))
        await apply(api, MAPS, config_map("c", b="2"), "other")
        assert (await apply(api, MAPS, config_map("c", a="1"))).body["data"] == {"a": "1", "b": "2"}


async def test_apply_by_force_takes_a_field_over() -> None:
    async with serving() as api:
        await apply(api, MAPS, config_map("c", a="1"))
        taken = await apply(api, MAPS, config_map("c", a="2"), "other", force=True)
        assert taken.body["data"] == {"a": "2"}
        assert managers(taken.body) == [("other", "Apply")]


async def test_apply_again_changes_nothing() -> None:
    async with serving() as api:
        first = await apply(api, QUEUES, queue("q", weight=2))
        again = await apply(api, QUEUES, queue("q", weight=2))
        assert (first.status, again.status) == (201, 200)
        assert first.body == again.body


async def test_apply_merges_list_items_by_their_keys() -> None:
    async with serving() as api:
        await api.post(DEPLOYMENTS, deployment("d", env=[{"name": "A", "value": "1"}]))
        body = deployment("d", env=[{"name": "B", "value": "2"}], ports=[{"containerPort": 80}])
        for _ in range(2):
            assert (await apply(api, DEPLOYMENTS, body)).status == 200
        (container,) = await containers(api)
        assert [variable["name"] for variable in container["env"]] == ["A", "B"]
        assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}]


async def test_apply_conflicts_name_every_field_and_its_owner() -> None:
    async with serving() as api:
        await apply(api, MAPS, config_map("c", a="1", b="2"))
        answer = await apply(api, MAPS, config_map("c", a="3", b="4"), "other")
        assert answer.status == 409
        assert [cause["field"] for cause in answer.body["details"]["causes"]] == [".data.a", ".data.b"]
        assert answer.body["message"] == 'Apply failed with 2 conflicts: conflicts with "me":\n- .data.a\n- .data.b'


async def test_apply_takes_yaml() -> None:
    async with serving() as api:
        text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  day: '2026-01-01'\n"
        answer = await api.call("PATCH", f"{MAPS}/c?fieldManager=me", text, APPLY)
        assert answer.body["data"] == {"day": "2026-01-01"}


async def test_apply_needs_a_manager() -> None:
    async with serving() as api:
        assert (await api.patch(f"{MAPS}/c", config_map("c"), APPLY)).status == 422


async def test_an_update_takes_over_what_it_changes() -> None:
    async with serving() as api:
        await apply(api, MAPS, config_map("c", a="1", b="2"))
        changed = await api.patch(f"{MAPS}/c?fieldManager=hand", {"data": {"a": "9"}}, MERGE)
        owned = {entry["manager"]: entry["fieldsV1"] for entry in changed.body["metadata"]["managedFields"]}
        assert owned == {"me": {"f:data": {"f:b": {}}}, "hand": {"f:data": {"f:a": {}}}}


# --- bodies ---------------------------------------------------------------------------------------------------------


async def test_unknown_fields_anywhere_are_named() -> None:
    async with serving() as api:
        made = pod("a")
        made["spec"]["containers"][0]["imaeg"] = "x"
        answer = await api.post(f"{PODS}?fieldValidation=Strict", made)
        assert answer.status == 400
        assert 'unknown field "spec.containers[0].imaeg"' in answer.body["message"]


async def test_unknown_fields_can_be_ignored() -> None:
    async with serving() as api:
        answer = await api.post(f"{GROUPS}?fieldValidation=Ignore", {
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "g"},
            "spec": {"nonsense": 1}})  # fmt: skip
        assert "Warning" not in answer.headers
        assert "nonsense" not in answer.body["spec"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "Node"}, "cannot be handled as a Pod"),
        ({"apiVersion": "v2"}, "does not match the expected API version"),
        ({"spec": "none"}, "json: cannot unmarshal string into Go struct field Pod.spec of type object"),
    ],
)
async def test_a_body_that_is_something_else_is_refused(change: Obj, message: str) -> None:
    async with serving() as api:
        answer = await api.post(PODS, {**pod("a"), **change})
        assert answer.status == 400
        assert message in answer.body["message"]


async def test_a_put_to_another_name_is_refused() -> None:
    async with serving() as api:
        await api.post(MAPS, config_map("c"))
        answer = await api.call("PUT", f"{MAPS}/c", config_map("d"))
        assert (answer.status, answer.body["reason"]) == (400, "BadRequest")


async def test_a_custom_resource_is_not_replaced_blindly() -> None:
    async with serving() as api:
        await api.post(QUEUES, queue("q", weight=2))
        answer = await api.call("PUT", f"{QUEUES}/q", queue("q", weight=3))
        assert (answer.status, answer.body["details"]["causes"][0]["field"]) == (422, "metadata.resourceVersion")


async def test_scale_is_a_view_of_the_replicas() -> None:
    async with serving() as api:
        await api.post(DEPLOYMENTS, deployment("d"))
        scale = (await api.get(f"{DEPLOYMENTS}/d/scale")).body
        assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == ("Scale", {"replicas": 1}, "app=d")
        await api.patch(f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": 4}}, MERGE)
        assert (await api.get(f"{DEPLOYMENTS}/d")).body["spec"]["replicas"] == 4


async def test_a_stale_scale_conflicts() -> None:
    async with serving() as api:
        await api.post(DEPLOYMENTS, deployment("d"))
        scale = (await api.get(f"{DEPLOYMENTS}/d/scale")).body
        await api.patch(f"{DEPLOYMENTS}/d", {"metadata": {"labels": {"a": "b"}}}, MERGE)
        assert (await api.call("PUT", f"{DEPLOYMENTS}/d/scale", scale)).status == 409


async def test_both_forms_of_an_event_are_the_same_object() -> None:
    async with serving() as api:
        body = {
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "note": "text",
            "regarding": {"kind": "Pod", "namespace": "default", "name": "a"}, "reason": "R", "type": "Normal",
            "action": "A", "reportingController": "vcd", "reportingInstance": "0",
            "eventTime": "2026-01-01T00:00:00.000000Z",
        }  # fmt: skip
        answer = await api.post("/apis/events.k8s.io/v1/namespaces/default/events", body)
        assert answer.status == 201, answer.text
        core = (await api.get("/api/v1/namespaces/default/events/e")).body
        assert (core["message"], core["involvedObject"]["name"], core["reportingComponent"]) == ("text", "a", "vcd")
        listed = (await api.get("/apis/events.k8s.io/v1/events")).body
        assert listed["items"][0]["note"] == "text"
        patched = await api.patch(
            "/apis/events.k8s.io/v1/namespaces/default/events/e", {"series": {
                "count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}}, MERGE)  # fmt: skip
        assert patched.body["series"]["count"] == 2


async def test_an_event_is_applied_in_its_newer_form() -> None:
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    body = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "note": "first",
            "regarding": {"kind": "Pod", "namespace": "default", "name": "a"}, "reason": "R"}  # fmt: skip
    async with serving() as api:
        await apply(api, path, body)
        assert (await apply(api, path, {**body, "note": "second"})).status == 200
        core = (await api.get("/api/v1/namespaces/default/events/e")).body
        assert (core["message"], core["reason"], core["involvedObject"]["name"]) == ("second", "R", "a")

"""Whatever a client sends, the answer is the server's, never a crash."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.embedded.serving import (
    APPLY,
    JSON_PATCH,
    MERGE,
    PODS,
    QUEUES,
    STRATEGIC,
    TABLE,
    make_store,
    pod,
    serving,
)
from tests.model.oddities import MANIFESTS, ODD_JSON, mutated
from tests.model.test_yamltext import bomb
from vcd.embedded import protobuf
from vcd.embedded.resource_types import ResourceType

TYPES = [rtype for rtype in make_store().registry if "create" in rtype.verbs]
SPARSE: tuple[dict[str, Any], ...] = (
    {}, {"spec": {}}, {"spec": None}, {"spec": []}, {"spec": {"containers": [{}], "ports": [{}], "drivers": [{}]}},
    {"status": {"conditions": [{}], "containerStatuses": [{}], "addresses": [{}]}}, {"metadata": {}},
    {"metadata": {"name": "a", "ownerReferences": [{}], "labels": {"a": None}}}, {"metadata": None}, {"metadata": 1},
    {"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Maybe"}]}, "template": {}}},
    {"subjects": [{}], "roleRef": {}, "rules": [{}], "involvedObject": {}, "regarding": {}},
)  # fmt: skip


def base(rtype: ResourceType) -> str:
    root = f"/apis/{rtype.group}/{rtype.version}" if rtype.group else f"/api/{rtype.version}"
    return f"{root}/namespaces/default/{rtype.plural}" if rtype.namespaced else f"{root}/{rtype.plural}"


@pytest.mark.parametrize("rtype", TYPES, ids=[rtype.resource for rtype in TYPES])
async def test_sparse_and_odd_objects_are_taken_or_refused(rtype: ResourceType) -> None:
    async with serving() as api:
        for index, rest in enumerate(SPARSE):
            name = f"a{index}"
            body = {"apiVersion": rtype.api_version, "kind": rtype.kind, "metadata": {"name": name}, **rest}
            answer = await api.post(base(rtype), body)
            assert answer.status < 500, answer.text
            if "get" not in rtype.verbs or answer.status != 201:
                continue
            path = f"{base(rtype)}/{answer.body['metadata']['name']}"
            for part in ("", *(f"/{part.name}" for part in rtype.subresources)):
                for patch in ({"spec": None}, {"status": {"conditions": [{}]}}, {"spec": {"replicas": "x"}}):
                    for kind in (MERGE, STRATEGIC):
                        assert (await api.patch(path + part, patch, kind)).status < 500
                assert (await api.call("PUT", path + part, body)).status < 500
                if part in ("/binding", "/eviction"):
                    assert (await api.post(path + part, {"target": {}})).status < 500
            assert (await api.get(base(rtype), TABLE)).status == 200
            assert (await api.call("DELETE", path)).status == 200


@pytest.mark.parametrize("raw", [b"", b"null", b"[]", b'"x"', b"{", b"\xff", b"k8s\0"])
@pytest.mark.parametrize("media", ["application/json", "application/yaml", protobuf.MEDIA, "x/y"])
async def test_bodies_that_are_no_objects_are_refused(raw: bytes, media: str) -> None:
    async with serving() as api:
        answer = await api.call("POST", base(TYPES[1]), raw, {"Content-Type": media})
        assert 400 <= answer.status < 500, answer.text


POD = pod("fuzzed")
DEEP = b'{"a":' * 3000 + b"1" + b"}" * 3000
BODIES = {
    "nested": b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"},"spec":%s}' % DEEP,
    "nested labels": b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","labels":%s},"spec":{}}' % DEEP,
    "only nested": DEEP,
    "open brackets": b"[" * 200_000,
    "no UTF-8": b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"\xff\xfe"},"spec":{}}',
    "half a surrogate": b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"\\ud800"},"spec":{}}',
    "a long number": b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"},"spec":{"priority":%s}}' % (b"1" * 6000),
    "65 bits": b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"},"spec":{"activeDeadlineSeconds":%d}}' % 2**64,
    "a huge float": b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"},"spec":{"priority":1e999}}',
}


@pytest.mark.parametrize(
    "media", ["application/json", "application/yaml", "application/merge-patch+json", "application/apply-patch+yaml"]
)
@pytest.mark.parametrize("raw", BODIES.values(), ids=BODIES)
async def test_whatever_bytes_a_body_is_made_of_it_is_answered(raw: bytes, media: str) -> None:
    async with serving() as api:
        assert (await api.post(PODS, POD)).status == 201
        headers = {"Content-Type": media}
        for method, path in (
            ("POST", PODS), ("PUT", f"{PODS}/fuzzed"), ("PATCH", f"{PODS}/fuzzed?fieldManager=m"),
            ("PATCH", f"{PODS}/fuzzed/status"), ("POST", f"{PODS}/fuzzed/binding"), ("POST", f"{PODS}/fuzzed/eviction"),
            ("DELETE", f"{PODS}/none"), ("POST", QUEUES),
        ):  # fmt: skip
            answer = await api.call(method, path, raw, headers)
            assert 400 <= answer.status < 500, (method, path, answer.status, answer.text[:200])
        assert (await api.get(f"{PODS}/fuzzed")).status == 200


_DIGITS = "9" * 5000


@pytest.mark.parametrize("number", ["²", "٣", _DIGITS, "18446744073709551616", "-1", "1.0"])
async def test_numbers_that_are_none_or_too_large_are_refused(number: str) -> None:
    async with serving() as api:
        for query in ("limit", "resourceVersion", "watch=1&resourceVersion", "watch=1&timeoutSeconds"):
            assert (await api.get(f"{PODS}?{query}={number}")).status == 400, query
        assert (await api.call("DELETE", f"{PODS}/none?gracePeriodSeconds={number}")).status == 400


@pytest.mark.parametrize("ports", ["²", _DIGITS, "65536"])
async def test_ports_that_are_none_are_refused(ports: str) -> None:
    upgrade = {
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol": "v4.channel.k8s.io",
    }  # fmt: skip
    async with serving() as api:
        assert (await api.post(PODS, POD)).status == 201
        assert (await api.get(f"{PODS}/fuzzed/portforward?ports={ports}", upgrade)).status == 400


@pytest.mark.parametrize(
    ("field", "taken", "refused"),
    [
        ("priority", 2**31 - 1, 2**31),
        ("terminationGracePeriodSeconds", 2**31, 2**63),
        ("activeDeadlineSeconds", 2**63 - 1, 2**63),
    ],
)
async def test_an_integer_has_as_many_bits_as_the_api_gives_it(field: str, taken: int, refused: int) -> None:
    async with serving() as api:
        answer = await api.post(PODS, pod("a", **{field: refused}))
        assert answer.status == 400
        assert f"cannot unmarshal number into Go struct field Pod.spec.{field}" in answer.body["message"]
        assert (await api.post(PODS, pod("a", **{field: taken}))).status == 201
        deployments = "/apis/apps/v1/namespaces/default/deployments"
        assert (await api.post(deployments, {"metadata": {"name": "d"}, "spec": {"replicas": 2**31}})).status == 400


@pytest.mark.parametrize("seconds", [2**63 - 1, 10**12])
async def test_a_grace_without_end_is_one_that_can_be_told(seconds: int) -> None:
    async with serving() as api:
        for name, given in (("a", {}), ("b", {"terminationGracePeriodSeconds": seconds})):
            assert (await api.post(PODS, pod(name, nodeName="n", **given))).status == 201
            asked = {} if given else {"gracePeriodSeconds": seconds}
            assert (await api.call("DELETE", f"{PODS}/{name}", asked)).status == 200
            assert (await api.get(f"{PODS}/{name}")).body["metadata"]["deletionTimestamp"].startswith("21")
            assert (await api.call("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")).status == 200
        assert await api.names(PODS) == []


@pytest.mark.parametrize("spec", [{"expirationSeconds": 2**63 - 1}, {"expirationSeconds": 2**32 + 1}, 5, "x"])
async def test_token_requests_that_are_none_are_refused(spec: Any) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    async with serving() as api:
        assert (await api.post(accounts, {"metadata": {"name": "a"}})).status == 201
        assert (await api.post(f"{accounts}/a/token", {"spec": spec})).status in (400, 422)


@pytest.mark.parametrize(
    ("body", "words"),
    [("a: " + "[" * 200_000, "nested more than 300 deep"), (bomb(9), "aliases add more than")],
    ids=["brackets", "aliases"],
)
async def test_the_cost_of_a_body_in_yaml_is_bounded_by_its_length(body: str, words: str) -> None:
    async with serving() as api:
        answer = await api.call("POST", PODS, body.encode(), {"Content-Type": "application/yaml"})
        assert (answer.status, words in answer.body["message"]) == (400, True)


async def test_numbers_are_text_where_they_are_keys_in_yaml() -> None:
    body = b"metadata: {name: a, labels: {1: x, 2.5: y}}\nspec: {containers: [{name: a, image: b}]}\n"
    async with serving() as api:
        answer = await api.call("POST", PODS, body, {"Content-Type": "application/yaml"})
        assert answer.status == 201, answer.text
        assert answer.body["metadata"]["labels"] == {"1": "x", "2.5": "y"}


@pytest.mark.parametrize(
    ("patch", "what"),
    [
        ({"spec": {"$setElementOrder/containers": 1}}, "setElementOrder list"),
        ({"spec": {"$setElementOrder/containers": 1, "containers": [{"name": "main"}]}}, "setElementOrder list"),
        ({"metadata": {"$deleteFromPrimitiveList/finalizers": 1}}, "primitive list"),
        ({"spec": {"$retainKeys": "containers"}}, "retainKeys"),
    ],
)
async def test_directives_whose_value_is_no_list_are_refused(patch: dict[str, Any], what: str) -> None:
    async with serving() as api:
        made = {**POD, "metadata": {**POD["metadata"], "finalizers": ["example.com/a"]}}
        assert (await api.post(PODS, made)).status == 201
        answer = await api.patch(f"{PODS}/fuzzed", patch, STRATEGIC)
        assert (answer.status, answer.body["message"]) == (400, f"invalid patch format of {what}")


# --- custom resources -------------------------------------------------------------------------------------------------

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def definition(**version: Any) -> dict[str, Any]:
    """Widgets of one version."""
    schema = {"schema": {"openAPIV3Schema": {"type": "object"}}}
    return {
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": True, "storage": True, **schema, **version}],
        },
    }  # fmt: skip


def sized(**size: Any) -> dict[str, Any]:
    """Widgets with a size."""
    return {"schema": {"openAPIV3Schema": {"type": "object", "properties": {"size": size}}}}


@pytest.mark.parametrize(
    ("version", "field"),
    [
        (sized(type="integer", minimum="3"), "schema.openAPIV3Schema"),
        (sized(type="string", pattern="("), "schema.openAPIV3Schema"),
        (sized(type="string", enum="abc"), "schema.openAPIV3Schema"),
        (sized(type=["string"]), "schema.openAPIV3Schema"),
        ({"schema": {"openAPIV3Schema": {"properties": [1]}}}, "schema.openAPIV3Schema"),
        ({"schema": {"openAPIV3Schema": {"properties": {"size": 1}}}}, "schema.openAPIV3Schema"),
        ({"additionalPrinterColumns": [{"name": "a", "type": "string"}]}, "additionalPrinterColumns[0].jsonPath"),
        ({"selectableFields": [{}]}, "selectableFields[0].jsonPath"),
        ({"name": ""}, "name"),
    ],
    ids=lambda value: str(value)[:80],
)
async def test_a_definition_that_nothing_could_be_read_by_is_refused(version: dict[str, Any], field: str) -> None:
    async with serving() as api:
        answer = await api.post(DEFINITIONS, definition(**version))
        assert answer.status == 422, answer.text
        assert [cause["field"] for cause in answer.body["details"]["causes"]] == [f"spec.versions[0].{field}"]
        assert (await api.get("/openapi/v2")).status == 200


_EACH: dict[str, Any] = {"minimum": 3, "minLength": 2, "maxItems": 0, "minProperties": 1}


@pytest.mark.parametrize(
    ("size", "taken", "refused"),
    [
        ({"x-kubernetes-int-or-string": True, "minimum": 3, "pattern": "^a"}, ["abc", 5], ["b", 2]),
        (
            {"x-kubernetes-preserve-unknown-fields": True, **_EACH},
            ["abc", 5, True, [], {"a": 1}],
            ["a", 1.5, [1], {}],
        ),
        ({"type": "integer", "minLength": 3, "minimum": None}, [5, -5], ["abc"]),
        ({"type": "string", "maximum": 3}, ["abc"], [5]),
    ],
    ids=str,
)
async def test_a_limit_is_one_of_values_of_its_type(size: dict[str, Any], taken: list[Any], refused: list[Any]) -> None:
    async with serving() as api:
        assert (await api.post(DEFINITIONS, definition(**sized(**size)))).status == 201
        for value in (*taken, *refused):
            made = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"generateName": "w"}, "size": value}
            answer = await api.post("/apis/example.com/v1/namespaces/default/widgets", made)
            assert answer.status == (201 if value in taken else 422), (value, answer.text)


@pytest.mark.parametrize("group", range(4))
async def test_objects_changed_at_random_are_taken_or_refused(group: int) -> None:
    types = {rtype.kind: rtype for rtype in TYPES}
    manifests = [POD, *(manifest for manifest in MANIFESTS if manifest["kind"] in types)]
    async with serving() as api:
        for seed in range(group, 400, 4):
            manifest = manifests[seed % len(manifests)]
            rtype = types[manifest["kind"]]
            whole = {**manifest, "apiVersion": rtype.api_version}
            changed = mutated(whole, seed, ODD_JSON)
            answer = await api.call("POST", base(rtype), msgspec.json.encode(changed))
            assert answer.status < 500, (changed, answer.text)
            name = answer.body["metadata"].get("name", "") if answer.status == 201 else ""
            if not name:
                continue
            path = f"{base(rtype)}/{name}"
            for again in range(3):
                odd = msgspec.json.encode(mutated(whole, seed + 1000 * again, ODD_JSON))
                for kind in (MERGE, STRATEGIC, JSON_PATCH, APPLY):
                    patched = await api.call("PATCH", f"{path}?fieldManager=m&force=true", odd, kind)
                    assert patched.status < 500, (odd, patched.text)
            assert (await api.call("DELETE", f"{path}?gracePeriodSeconds=0")).status < 500


async def test_managed_fields_nested_without_end_are_stored_shown_and_kept() -> None:
    fields = b'{"f:a":' * 3000 + b"{}" + b"}" * 3000
    entry = b'{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":%s}' % fields
    body = msgspec.json.encode(POD).replace(b'"metadata":{', b'"metadata":{"managedFields":[%s],' % entry)
    applied = b'{"apiVersion":"v1","kind":"Pod"}'
    async with serving() as api:
        created = await api.call("POST", PODS, body)
        assert created.status == 201
        assert fields.decode() in created.text
        for answer in (
            await api.patch(f"{PODS}/fuzzed", {"metadata": {"labels": {"b": "c"}}}, MERGE),
            await api.call("PATCH", f"{PODS}/fuzzed?fieldManager=k&force=true", applied, APPLY),
            await api.post(f"{PODS}/fuzzed/binding", {"target": {"name": "n"}}),
            await api.get(PODS),
            await api.get(PODS, TABLE),
        ):
            assert answer.status < 300, answer.text
        assert fields.decode() in (await api.get(f"{PODS}/fuzzed")).text

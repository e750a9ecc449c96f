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
from vcd.embedded import protobuf
from vcd.embedded.resources import ResourceType

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

"""Whatever a client sends, the answer is the server's, never a crash."""

from __future__ import annotations

from typing import Any

import pytest

from tests.embedded.serving import MERGE, STRATEGIC, TABLE, make_store, serving
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

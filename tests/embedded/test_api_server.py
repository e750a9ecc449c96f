"""What is not about single objects: identities, audit, faults, reviews, discovery, documents, tables, protobuf."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from tests.embedded.disturbed import Call
from tests.embedded.serving import PODS, QUEUES, TABLE, pod, queue, serving
from vcd.embedded import protobuf
from vcd.embedded.printer_columns import human_duration
from vcd.embedded.status_errors import StatusError

# --- identities -----------------------------------------------------------------------------------------------------

TOKENS = {"secret": "system:serviceaccount:vcd:vcd"}
BEARER = {"Authorization": "Bearer secret"}


async def test_calls_are_counted_by_identity() -> None:
    async with serving(tokens=TOKENS) as api:
        api.store.create("pods", pod("a"))
        await api.get("/api/v1/nodes", BEARER)
        await api.get(PODS, BEARER)
        await api.get(PODS, BEARER)
        await api.post(f"{PODS}/a/binding", {"target": {"name": "n1"}}, BEARER)
        async with api.watch("/api/v1/pods?watch=1", BEARER):
            assert api.server.audit["system:serviceaccount:vcd:vcd"] == {
                Call("list", "nodes", "", None): 1,
                Call("list", "pods", "", "default"): 2,
                Call("create", "pods", "binding", "default"): 1,
                Call("watch", "pods", "", None): 1,
            }


async def test_a_wrong_token_is_nobody() -> None:
    async with serving(tokens=TOKENS) as api:
        assert (await api.get(PODS, {"Authorization": "Bearer wrong"})).status == 401


async def test_the_authorizer_can_refuse() -> None:
    async with serving(tokens=TOKENS) as api:
        api.server.authorize = lambda identity, call, name: call.verb != "list"
        answer = await api.get(PODS, BEARER)
        assert answer.status == 403
        assert answer.body["message"] == (
            'pods is forbidden: User "system:serviceaccount:vcd:vcd" cannot list resource "pods" in API group "" '
            'in the namespace "default"'
        )


async def test_reviews_know_the_caller() -> None:
    async with serving(tokens=TOKENS) as api:
        path = "/apis/authentication.k8s.io/v1"
        mine = await api.post(f"{path}/selfsubjectreviews", {}, BEARER)
        assert mine.body["status"]["userInfo"]["username"] == "system:serviceaccount:vcd:vcd"
        asked = await api.post(f"{path}/tokenreviews", {"spec": {"token": "secret"}}, BEARER)
        assert asked.body["status"]["authenticated"] is True
        may = await api.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": {}}, BEARER)
        assert may.body["status"] == {"allowed": True}


async def test_a_token_is_reviewed_for_an_audience() -> None:
    async with serving(tokens=TOKENS | {"projected": "ann"}) as api:
        api.server.audiences = {"projected": ("vcd", "vault")}

        async def status(token: str, *audiences: str) -> Any:
            spec = {"token": token} | ({"audiences": list(audiences)} if audiences else {})
            answer = await api.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": spec}, BEARER)
            return answer.body["status"]

        known = {"username": "ann", "groups": ["system:authenticated"]}
        assert await status("projected", "vcd") == {"authenticated": True, "user": known, "audiences": ["vcd"]}
        assert (await status("projected", "other", "vault", "vcd"))["audiences"] == ["vault", "vcd"]
        for refused in (await status("projected"), await status("projected", "other"), await status("none", "vcd")):
            assert "authenticated" not in refused and refused["user"] == {}
            assert refused["error"].startswith("[invalid bearer token, ")
        assert (await status("secret"))["audiences"] == ["https://kubernetes.default.svc.cluster.local"]


async def test_a_review_that_asks_nothing_is_refused() -> None:
    async with serving(tokens=TOKENS) as api:
        answer = await api.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {}}, BEARER)
        assert (answer.status, answer.body["message"]) == (400, "token is required for TokenReview in authentication")
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        url, pods = {"path": "/metrics", "verb": "get"}, {"verb": "get", "resource": "pods"}
        for spec, says in (
            ({"user": "ann"}, "exactly one of nonResourceAttributes or resourceAttributes must be specified"),
            (
                {
                    "user": "ann",
                    "nonResourceAttributes": url,
                    "resourceAttributes": pods,
                },
                "exactly one of nonResourceAttributes or resourceAttributes must be specified",
            ),
            ({"nonResourceAttributes": url}, "at least one of user or group must be specified"),
        ):
            answer = await api.post(path, {"spec": spec}, BEARER)
            assert answer.status == 422
            assert says in answer.body["message"]
        answer = await api.post(path, {"spec": {"user": "ann", "nonResourceAttributes": url}}, BEARER)
        assert (answer.status, answer.body["status"]) == (201, {"allowed": True})


# --- faults ---------------------------------------------------------------------------------------------------------


async def test_a_fault_can_answer_in_place_of_the_server() -> None:
    async with serving() as api:
        api.server.faults = lambda request: web.Response(status=503) if request.method == "POST" else None
        assert (await api.post(PODS, pod("a"))).status == 503
        assert await api.names(PODS) == []


async def test_a_fault_can_wait_and_let_pass() -> None:
    async with serving() as api:
        seen: list[str] = []

        async def hook(request: web.Request) -> None:
            seen.append(request.path)

        api.server.faults = hook
        await api.get(PODS)
        assert seen == [PODS]


# --- discovery and documents ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/api/v2/pods", "/apis/apps/v1/nothing", "/apis/apps/v2/deployments", "/metrics"])
async def test_paths_that_are_not_served(path: str) -> None:
    async with serving() as api:
        answer = await api.get(path)
        assert (answer.status, answer.text) == (404, "404 page not found\n")


async def test_a_verb_that_a_resource_has_not() -> None:
    async with serving() as api:
        assert (await api.call("DELETE", "/api/v1/namespaces")).status == 405


async def test_protobuf_answers_are_not_served() -> None:
    async with serving() as api:
        assert (await api.get(PODS, {"Accept": "application/vnd.kubernetes.protobuf"})).status == 406


async def test_a_new_definition_shows_up_in_discovery_and_openapi() -> None:
    async with serving() as api:
        before = (await api.get("/openapi/v3")).body["paths"]
        api.store.create("customresourcedefinitions.apiextensions.k8s.io", {
            "metadata": {"name": "widgets.example.com"},
            "spec": {"group": "example.com", "scope": "Cluster", "names": {"plural": "widgets", "kind": "Widget"},
                     "versions": [{"name": "v1", "served": True, "storage": True,
                                   "schema": {"openAPIV3Schema": {"type": "object"}}}]}})  # fmt: skip
        after = (await api.get("/openapi/v3")).body["paths"]
        assert set(after) - set(before) == {"apis/example.com/v1"}
        listed = (await api.get("/apis/example.com/v1")).body["resources"]
        assert [entry["name"] for entry in listed] == ["widgets"]


async def test_openapi_has_what_kubectl_reads() -> None:
    async with serving() as api:
        document = (await api.get("/openapi/v3/api/v1")).body
        patch = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
        assert patch["x-kubernetes-group-version-kind"] == {"group": "", "version": "v1", "kind": "Pod"}
        assert {parameter["name"] for parameter in patch["parameters"]} >= {"fieldValidation", "dryRun"}
        containers = document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
        assert containers["x-kubernetes-patch-merge-key"] == "name"
        assert containers["x-kubernetes-patch-strategy"] == "merge"


@pytest.mark.parametrize("version", ["v2", "v3"])
async def test_every_reference_in_openapi_leads_somewhere(version: str) -> None:
    def references(node: Any) -> set[str]:
        if isinstance(node, dict):
            own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
            return own.union(*(references(part) for part in node.values()))
        if isinstance(node, list):
            return set().union(*(references(part) for part in node))
        return set()

    async with serving() as api:
        paths = ["/openapi/v2"]
        if version == "v3":
            paths = [f"/openapi/v3/{path}" for path in (await api.get("/openapi/v3")).body["paths"]]
        for path in paths:
            document = (await api.get(path)).body
            known = document["definitions"] if version == "v2" else document["components"]["schemas"]
            assert {reference.rpartition("/")[2] for reference in references(document)} <= set(known)


# --- tables ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (119, "119s"), (120, "2m"), (185, "3m5s"), (600, "10m"), (10800, "3h"), (7 * 3600 + 60, "7h1m"),
        (86400, "24h"), (3 * 86400 + 7200, "3d2h"), (30 * 86400, "30d"), (800 * 86400, "2y70d"), (-5, "<invalid>"),
    ],
)  # fmt: skip
def test_durations_as_kubectl_writes_them(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text


async def test_every_served_kind_has_a_table() -> None:
    async with serving() as api:
        for rtype in api.store.registry:
            if "list" in rtype.verbs:
                base = f"/apis/{rtype.group}/{rtype.version}" if rtype.group else f"/api/{rtype.version}"
                table = (await api.get(f"{base}/{rtype.plural}", TABLE)).body
                assert table["kind"] == "Table", rtype.resource
                assert table["columnDefinitions"], rtype.resource


async def cells(path: str, *objects: tuple[str, dict[str, Any]]) -> list[Any]:
    async with serving() as api:
        for resource, obj in objects:
            made = api.store.create(resource, obj)
            if "status" in obj:
                metadata = made["metadata"]
                api.store.patch(
                    resource, metadata.get("namespace"), metadata["name"], {"status": obj["status"]}, "status"
                )
        found: list[Any] = (await api.get(path, TABLE)).body["rows"][0]["cells"]
        return found


async def test_the_row_of_a_running_pod() -> None:
    state = {"name": "main", "ready": True, "restartCount": 2, "state": {"running": {}}}
    status = {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [state]}
    row = await cells(PODS, ("pods", {**pod("a", nodeName="n1"), "status": status}))
    assert row == ["a", "1/1", "Running", "2", "0s", "10.0.0.1", "n1", "<none>", "<none>"]


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ({"phase": "Pending", "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "X"}}}]}, "X"),
        ({"phase": "Failed", "containerStatuses": [
            {"name": "main", "state": {"terminated": {"exitCode": 3}}}]}, "ExitCode:3"),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
    ],
)  # fmt: skip
async def test_a_pods_status_says_why(status: dict[str, Any], shown: str) -> None:
    assert (await cells(PODS, ("pods", {**pod("a"), "status": status})))[2] == shown


async def test_the_row_of_a_node() -> None:
    node = {
        "metadata": {"name": "n", "labels": {"node-role.kubernetes.io/gpu": ""}}, "spec": {"unschedulable": True},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1"},
                   "addresses": [{"type": "InternalIP", "address": "10.0.0.2"}]},
    }  # fmt: skip
    row = await cells("/api/v1/nodes", ("nodes", node))
    assert row[:6] == ["n", "Ready,SchedulingDisabled", "gpu", "0s", "v1", "10.0.0.2"]


async def test_the_row_of_a_pod_group() -> None:
    group = {"metadata": {"name": "g"}, "spec": {"minMember": 2, "queue": "q"}}
    path = "/apis/scheduling.volcano.sh/v1beta1/podgroups"
    assert await cells(path, ("podgroups.scheduling.volcano.sh", group)) == ["g", None, 2, None, "0s", "q"]


async def test_a_table_can_carry_whole_objects() -> None:
    async with serving() as api:
        await api.post(QUEUES, queue("q", weight=2))
        row = (await api.get(f"{QUEUES}?includeObject=Object", TABLE)).body["rows"][0]
        assert row["object"]["spec"]["weight"] == 2


# --- protobuf -------------------------------------------------------------------------------------------------------


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return bytes([number << 3]) + varint(value)
    return bytes([number << 3 | 2]) + varint(len(value)) + value


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def message(api_version: bytes, kind: bytes, body: bytes) -> bytes:
    return b"k8s\0" + field(1, field(1, api_version) + field(2, kind)) + field(2, body)


def test_a_protobuf_body_is_read() -> None:
    metadata = field(1, b"c") + field(7, 0) + field(11, field(1, b"app") + field(2, b"x"))
    raw = message(b"v1", b"ConfigMap", field(1, metadata) + field(2, field(1, b"k") + field(2, b"v")))
    assert protobuf.read(raw) == {
        "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c", "labels": {"app": "x"}}, "data": {"k": "v"}
    }  # fmt: skip


def test_a_zero_that_was_set_is_kept_in_protobuf() -> None:
    raw = message(b"v1", b"DeleteOptions", field(1, 0))
    assert protobuf.read(raw)["gracePeriodSeconds"] == 0


def test_times_negative_numbers_and_numbers_or_text_in_protobuf() -> None:
    spec = field(1, 5) + field(4, field(2, field(1, field(1, 1) + field(3, b"25%"))))
    metadata = field(8, field(1, 1_700_000_000)) + field(10, -1)
    read = protobuf.read(message(b"apps/v1", b"Deployment", field(1, metadata) + field(2, spec)))
    assert read["spec"]["strategy"] == {"rollingUpdate": {"maxUnavailable": "25%"}}
    assert read["metadata"] == {"creationTimestamp": "2023-11-14T22:13:20Z", "deletionGracePeriodSeconds": -1}


async def test_tokens_are_asked_for_in_protobuf() -> None:
    spec = field(1, b"vcd-page") + field(3, field(1, b"Pod") + field(3, b"p")) + field(4, 900)
    raw = message(b"authentication.k8s.io/v1", b"TokenRequest", field(2, spec))
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    async with serving() as api:
        assert (await api.post(accounts, {"metadata": {"name": "a"}})).status == 201
        asked = await api.call("POST", f"{accounts}/a/token", raw, {"Content-Type": protobuf.MEDIA})
    assert asked.status == 201, asked.text
    assert asked.body["spec"] == {"audiences": ["vcd-page"], "expirationSeconds": 900, "boundObjectRef": None}


BEYOND = message(b"v1", b"ConfigMap", field(1, field(8, field(1, 1 << 62))))
"""A time that no calendar has."""


@pytest.mark.parametrize("raw", [b"", b"k8s\0\xff\xff", b"k8s\0\x12\x05a", message(b"v1", b"Nothing", b""), BEYOND])
def test_a_broken_protobuf_body_is_refused(raw: bytes) -> None:
    with pytest.raises(StatusError) as error:
        protobuf.read(raw)
    assert error.value.code == 400

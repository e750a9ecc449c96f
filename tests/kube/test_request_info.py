"""What a request is about and how it ended, as it is counted, and which refusals are faults of the installation."""

from __future__ import annotations

import pytest
import structlog
from structlog.testing import capture_logs

from tests.kube.scripted import Answer, client_of, failure, scripted
from vcd.kube.api_errors import ApiError, NoResponse
from vcd.kube.client import KubeClient
from vcd.kube.request_info import CompletedRequest, is_installation_fault, namespace_of, verb_and_resource

POD = "/api/v1/namespaces/default/pods/a"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1"


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/api/v1/nodes?limit=500", "list nodes"),
        ("GET", "/api/v1/pods?watch=1&resourceVersion=7", "watch pods"),
        ("GET", POD, "get pods"),
        ("GET", "/api/v1/namespaces/default", "get namespaces"),
        ("POST", "/api/v1/namespaces/default/events?timeout=4s", "create events"),
        ("POST", f"{POD}/binding", "create pods/binding"),
        ("PATCH", f"{GROUPS}/namespaces/default/podgroups/g", "patch podgroups"),
        ("PATCH", f"{GROUPS}/queues/q/status", "patch queues/status"),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b", "update leases"),
        ("DELETE", POD, "delete pods"),
        ("GET", "/api/v1/namespaces/m/services/p:80/proxy/api/v1/query?query=x", "get services/proxy"),
        ("GET", "/version", "get /version"),
    ],
)
def test_a_request_has_the_verb_and_the_resource_of_its_rule(method: str, path: str, expected: str) -> None:
    assert " ".join(verb_and_resource(method, path)) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"{POD}/binding?timeout=4s", "default"),
        (f"{GROUPS}/namespaces/a/podgroups", "a"),
        (f"{GROUPS}/queues/q/status", ""),
        ("/api/v1/namespaces/a?timeout=4s", ""),
    ],
)
def test_a_request_has_the_namespace_of_its_object(path: str, expected: str) -> None:
    assert namespace_of(path) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ApiError(403, "Forbidden", 'podgroups "g" is forbidden: User "x" cannot patch'), True),
        (ApiError(403, "Forbidden", "no new content in namespace a because it is being terminated"), False),
        (ApiError(400, "BadRequest", 'admission webhook "v.example.com" denied the request: no'), True),
        (ApiError(404, "", "404 page not found"), False),
        (ApiError(404, "NotFound", "the server could not find the requested resource"), True),
        (ApiError(404, "NotFound", 'podgroups "g" not found'), False),
        (ApiError(409, "Conflict", "the object has been modified"), False),
        (ApiError(422, "Invalid", "status.phase: Unsupported value"), True),
        (ApiError(422, "Invalid", "metadata.uid: Invalid value: field is immutable"), False),
        (ApiError(429, "TooManyRequests", "slow down"), False),
        (ApiError(500, "InternalError", 'failed calling webhook "v.example.com": connection refused'), True),
        (ApiError(503, "ServiceUnavailable", "the server is starting"), False),
    ],
)  # fmt: skip
def test_what_is_a_fault_of_the_installation(error: ApiError, expected: bool) -> None:
    assert is_installation_fault(error) is expected


def counted(client: KubeClient) -> list[CompletedRequest]:
    """The requests that a client completes from now on."""
    found: list[CompletedRequest] = []
    client.on_completed = found.append
    return found


async def test_each_request_is_reported_once_with_how_it_ended() -> None:
    async with scripted() as server, client_of(server) as client:
        found = counted(client)
        server.on("PATCH", "/a", Answer(200, {}))
        server.on("PATCH", "/b", failure(403, "Forbidden", "no right"))
        server.on("PATCH", "/c", Answer(drop=True))
        await client.request("PATCH", POD, b"{}")
        with pytest.raises(ApiError):
            await client.request("PATCH", f"{POD[:-1]}b", b"{}")
        with pytest.raises(NoResponse):
            await client.request("PATCH", f"{POD[:-1]}c", b"{}")
    assert [(*one[:3], str(one.error or "")) for one in found] == [
        ("patch", "pods", 200, ""), ("patch", "pods", 403, "403 Forbidden: no right"), ("patch", "pods", 0, ""),
    ]  # fmt: skip
    assert all(one.seconds >= 0 for one in found)


async def test_a_watch_is_reported_when_the_server_has_answered() -> None:
    async with scripted() as server, client_of(server) as client:
        found = counted(client)
        server.on("GET", "watch", Answer(lines=[], stay=True))
        async for _ in client.watch("/api/v1/pods?watch=true", idle_timeout=5.0):
            break
    assert [one[:3] for one in found] == [("watch", "pods", 200)]


async def test_what_the_fence_stops_is_no_request() -> None:
    async with scripted() as server, client_of(server) as client:
        found = counted(client)
        with pytest.raises(Exception, match="lost leadership"):
            await client.request("POST", f"{POD}/binding", b"{}", fence=lambda: False)
    assert found == []


async def test_an_api_server_that_is_gone_is_one_warning_and_then_details() -> None:
    async with scripted() as server, client_of(server) as client:
        server.on("GET", "/a", *[Answer(drop=True)] * 5, Answer(200, {}))
        with capture_logs() as lines:
            for _ in range(5):
                with pytest.raises(NoResponse) as caught:
                    await client.request("GET", POD)
                client.log_failure(structlog.get_logger(), "failed", caught.value, kind="Pod")
            assert client.unreachable_since > 0
            client.log_failure(structlog.get_logger(), "failed", ApiError(403, "", "no"), kind="Pod")
        assert [line["log_level"] for line in lines] == ["warning", "warning", "debug", "debug", "debug", "warning"]
        await client.request("GET", POD)
        assert client.unreachable_since == 0

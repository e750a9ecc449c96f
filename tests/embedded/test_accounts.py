"""Tokens of ServiceAccounts, and ports of pods, at the embedded server as at a kube-apiserver."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from tests.embedded.disturbed import DisturbedServer
from tests.embedded.serving import make_store, pod

TOKEN = "/api/v1/namespaces/default/serviceaccounts/reader/token"
REVIEW = "/apis/authentication.k8s.io/v1/tokenreviews"
FORWARD = "/api/v1/namespaces/default/pods/p/portforward"


class Served:
    """A server with a ServiceAccount ``reader`` and a running pod ``p``."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0
        store = make_store()
        store.clock = lambda: self.now
        store.create("serviceaccounts", {"metadata": {"name": "reader", "namespace": "default"}})
        store.create("pods", {**(made := pod("p")), "metadata": {**made["metadata"], "namespace": "default"}})
        store.patch("pods", "default", "p", {"status": {"phase": "Running", "podIP": "127.0.0.1"}}, "status")
        self.server = DisturbedServer(store)

    async def __aenter__(self) -> Served:
        await self.server.start()
        self.session = aiohttp.ClientSession(self.server.url)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()
        await self.server.stop()

    async def post(self, path: str, **spec: Any) -> tuple[int, Any]:
        async with self.session.post(path, json={"spec": spec}) as answer:
            return answer.status, await answer.json()

    async def reviewed(self, token: str, *audiences: str) -> Any:
        _, body = await self.post(REVIEW, token=token, audiences=list(audiences))
        return body["status"]


async def test_a_token_is_for_its_audience_and_its_account_until_it_ends() -> None:
    async with Served() as served:
        status, made = await served.post(TOKEN, audiences=["vcd"], expirationSeconds=600)
        assert (status, made["kind"], made["spec"]["audiences"]) == (201, "TokenRequest", ["vcd"])
        assert made["status"]["expirationTimestamp"] == "2023-11-14T22:23:20Z"
        token = made["status"]["token"]
        known = await served.reviewed(token, "vcd")
        assert (known["authenticated"], known["audiences"]) == (True, ["vcd"])
        assert known["user"]["username"] == "system:serviceaccount:default:reader"
        assert not (await served.reviewed(token)).get("authenticated")
        served.now += 601
        assert not (await served.reviewed(token, "vcd")).get("authenticated")


async def test_without_an_audience_it_is_for_the_api_server() -> None:
    async with Served() as served:
        _, made = await served.post(TOKEN)
        assert (await served.reviewed(made["status"]["token"]))["authenticated"]
        assert made["spec"]["expirationSeconds"] == 3600


@pytest.mark.parametrize(
    ("spec", "status", "words"),
    [
        ({"expirationSeconds": 10}, 422, "may not specify a duration less than 10 minutes"),
        ({"audiences": "vcd"}, 400, "of type []string"),
        ({"audiences": [1]}, 400, "of type []string"),
    ],
    ids=str,
)
async def test_a_request_that_is_none_is_refused(spec: dict[str, Any], status: int, words: str) -> None:
    async with Served() as served:
        answered, body = await served.post(TOKEN, **spec)
        assert answered == status
        assert words in body["message"]


async def test_of_an_account_that_is_not_there_no_token_is_made() -> None:
    async with Served() as served:
        assert (await served.post(TOKEN.replace("reader", "none")))[0] == 404


@pytest.mark.parametrize(
    ("query", "words"),
    [("", 'query parameter "port" is required'), ("?ports=0", "as a port"), ("?ports=80,x", 'unable to parse "x"')],
    ids=repr,
)
async def test_a_port_that_is_none_is_refused(query: str, words: str) -> None:
    async with Served() as served:
        headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
        headers |= {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol": "v4.channel.k8s.io"}
        async with served.session.get(FORWARD + query, headers=headers) as answer:
            assert answer.status == 400
            assert words in (await answer.json())["message"]


async def test_only_a_websocket_is_forwarded() -> None:
    async with Served() as served, served.session.post(f"{FORWARD}?ports=80") as answer:
        assert answer.status == 400
        assert (await answer.json())["message"] == "Upgrade request required"


async def test_discovery_has_both() -> None:
    async with Served() as served, served.session.get("/api/v1") as answer:
        found = {each["name"]: each for each in (await answer.json())["resources"]}
    assert found["pods/portforward"]["verbs"] == ["create", "get"]
    assert found["pods/portforward"]["kind"] == "PodPortForwardOptions"
    assert (found["serviceaccounts/token"]["group"], found["serviceaccounts/token"]["kind"]) == (
        "authentication.k8s.io",
        "TokenRequest",
    )

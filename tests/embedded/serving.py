"""A served store for tests: an HTTP client that speaks JSON, and short manifests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import aiohttp

from tests.embedded.disturbed import DisturbedServer
from tests.waiting import WAIT_LIMIT
from vcd.embedded.store import Store

Obj = dict[str, Any]
START = 1_700_000_000.0
PODS = "/api/v1/namespaces/default/pods"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
MERGE = {"Content-Type": "application/merge-patch+json"}
STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}
JSON_PATCH = {"Content-Type": "application/json-patch+json"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


def pod(name: str, **spec: Any) -> Obj:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"containers": [container], **spec}}  # fmt: skip


def queue(name: str, **spec: Any) -> Obj:
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def config_map(name: str, **data: str) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def make_store(**options: Any) -> Store:
    return Store(lambda: START, Random(3), **options)


class Answer:
    """Status, headers and decoded body of an answer."""

    def __init__(self, status: int, headers: Mapping[str, str], text: str) -> None:
        self.status = status
        self.headers = headers
        self.text = text

    @property
    def body(self) -> Any:
        return json.loads(self.text)


class Lines:
    """The events of an open watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def next(self) -> Obj | None:
        """The next event; None when the watch has ended."""
        line = await asyncio.wait_for(self._response.content.readline(), WAIT_LIMIT)
        return json.loads(line) if line else None

    async def take(self, count: int) -> list[tuple[str, str]]:
        """(type, name) of the next events."""
        events = [await self.next() for _ in range(count)]
        return [(event["type"], event["object"]["metadata"]["name"]) for event in events if event]


class Api:
    """The client; ``store`` and ``server`` are what it talks to."""

    def __init__(self, server: DisturbedServer, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.store = server.store
        self._session = session

    async def call(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **(headers or {})}
        async with self._session.request(method, self.server.url + path, data=data, headers=sent) as response:
            return Answer(response.status, response.headers, await response.text())

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return await self.call("GET", path, None, headers)

    async def post(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> Answer:
        return await self.call("POST", path, body, headers)

    async def patch(self, path: str, body: Any, headers: Mapping[str, str]) -> Answer:
        return await self.call("PATCH", path, body, headers)

    async def names(self, path: str) -> list[str]:
        return [item["metadata"]["name"] for item in (await self.get(path)).body["items"]]

    @asynccontextmanager
    async def watch(self, path: str, headers: Mapping[str, str] | None = None) -> AsyncIterator[Lines]:
        async with self._session.get(self.server.url + path, headers=headers) as response:
            yield Lines(response)


@asynccontextmanager
async def serving(store: Store | None = None, **options: Any) -> AsyncIterator[Api]:
    server = DisturbedServer(store or make_store(), **options)
    await server.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession() as session:
            yield Api(server, session)
    finally:
        await server.stop()

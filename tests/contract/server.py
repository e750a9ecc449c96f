"""An API server under test: paths, requests, watches, and a namespace of its own that is left clean."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.embedded.disturbed import DisturbedServer
from tests.waiting import WAIT_LIMIT
from vcd.embedded.cluster_clock import ClusterClock
from vcd.embedded.embedded_cluster import EmbeddedCluster
from vcd.embedded.store import Store
from vcd.kube.api_errors import ApiError
from vcd.kube.client import JSON, KubeClient
from vcd.kube.kube_connection import Connection, connect
from vcd.model.kinds import KINDS

Obj = dict[str, Any]

KUBECONFIG = "VCD_TEST_KUBECONFIG"
NODES = "VCD_TEST_NODES"
SCHEDULER = "vcd-contract-nobody"
JSON_PATCH = "application/json-patch+json"

# What the daemon writes beside the kinds that it reads, and what a namespace has to have before pods come.
_OTHERS = {
    "Event": ("/api/v1", "events"),
    "Lease": ("/apis/coordination.k8s.io/v1", "leases"),
    "ServiceAccount": ("/api/v1", "serviceaccounts"),
}
_API_VERSIONS = {"Event": "v1", "Lease": "coordination.k8s.io/v1"}


class Lines:
    """The events of one watch, one after the other."""

    def __init__(self, stream: AsyncGenerator[list[bytes], None]) -> None:
        self._stream = stream
        self._waiting: deque[Obj] = deque()

    async def next(self) -> Obj | None:
        """The next event; None when the server has ended the watch."""
        async with asyncio.timeout(WAIT_LIMIT):
            while not self._waiting:
                try:
                    self._waiting.extend(json.loads(line) for line in await anext(self._stream))
                except StopAsyncIteration:
                    return None
        return self._waiting.popleft()

    async def until(self, last: Callable[[Obj], bool]) -> list[Obj]:
        """The events up to and with the first for which ``last`` holds; fails when the watch ends before."""
        events: list[Obj] = []
        while not events or not last(events[-1]):
            event = await self.next()
            assert event is not None, f"the watch ended after {[each['type'] for each in events]}"
            assert event["type"] != "ERROR", event["object"]
            events.append(event)
        return events


def named(type: str, name: str) -> Callable[[Obj], bool]:
    """Whether an event is of this type, about an object of this name."""
    return lambda event: event["type"] == type and event["object"]["metadata"].get("name") == name


@dataclass
class Server:
    """A server, a client of it, and the test's own namespace there.

    ``store`` and ``api`` are the embedded server's own parts, None for a real one. ``may_create_nodes``: whether the
    tests may have Nodes of their own.
    """

    connection: Connection
    client: KubeClient
    namespace: str
    may_create_nodes: bool
    store: Store | None = None
    api: DisturbedServer | None = None
    _made: list[str] = field(default_factory=list)

    # --- paths and manifests ----------------------------------------------------------------------------------------

    def path(self, kind: str, name: str = "", part: str = "") -> str:
        """The path of a kind's list, an object, or a part of one; in the test's namespace where it has one."""
        if kind in _OTHERS:
            base, plural = _OTHERS[kind]
            path = f"{base}/namespaces/{self.namespace}/{plural}"
        else:
            known = KINDS[kind]
            base, _, plural = known.path.rpartition("/")
            path = f"{base}/namespaces/{self.namespace}/{plural}" if known.namespaced else known.path
        return "/".join(piece for piece in (path, name, part) if piece)

    def key(self, name: str) -> str:
        """The key of an object in the test's namespace."""
        return f"{self.namespace}/{name}"

    def unique(self, name: str) -> str:
        """A name for an object of no namespace that is nobody else's."""
        return f"{self.namespace}-{name}"

    # --- requests ---------------------------------------------------------------------------------------------------

    async def call(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> Any:
        """One request; its decoded answer. Raises ApiError."""
        raw = None if body is None else json.dumps(body).encode()
        return json.loads(await self.client.request(method, path, raw, content_type=content_type))

    async def refused(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> ApiError:
        """The error of a request that must not succeed."""
        try:
            answer = await self.call(method, path, body, content_type)
        except ApiError as error:
            return error
        pytest.fail(f"{method} {path} was let through: {answer}")

    async def get(self, kind: str, name: str) -> Obj:
        """One object. Raises ApiError."""
        found: Obj = await self.call("GET", self.path(kind, name))
        return found

    async def listed(self, kind: str, **query: str | int) -> Obj:
        """A list of a kind, in the test's namespace where it has one."""
        found: Obj = await self.call("GET", f"{self.path(kind)}?{urlencode(query)}")
        return found

    async def names(self, kind: str, **query: str | int) -> list[str]:
        """The names in a list."""
        return [item["metadata"]["name"] for item in (await self.listed(kind, **query))["items"]]

    async def create(self, kind: str, body: Obj) -> Obj:
        """Create an object, which goes with the namespace or is deleted after the test."""
        api_version = _API_VERSIONS.get(kind) or _api_version(kind)
        made: Obj = await self.call("POST", self.path(kind), {"apiVersion": api_version, "kind": kind, **body})
        if "namespace" not in made["metadata"]:
            self._made.append(self.path(kind, made["metadata"]["name"]))
        return made

    async def pod(self, name: str, labels: Obj | None = None, **spec: Any) -> Obj:
        """Create a pod that no scheduler takes."""
        container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1m"}}}
        return await self.create("Pod", {
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {"schedulerName": SCHEDULER, "containers": [container], "terminationGracePeriodSeconds": 0, **spec},
        })  # fmt: skip

    async def change(self, kind: str, name: str, alter: Callable[[Obj], None]) -> Obj:
        """Read, alter and put an object, again while somebody else writes it in between."""
        while True:
            obj = await self.get(kind, name)
            alter(obj)
            try:
                done: Obj = await self.call("PUT", self.path(kind, name), obj)
                return done
            except ApiError as error:
                if error.status != 409:
                    raise

    # --- watches ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def watch(self, kind: str, **query: str | int) -> AsyncIterator[Lines]:
        """An open watch of a kind, in the test's namespace where it has one."""
        path = f"{self.path(kind)}?{urlencode({'watch': '1', **query})}"
        async with contextlib.aclosing(self.client.watch(path, idle_timeout=WAIT_LIMIT)) as stream:
            yield Lines(stream)

    async def until(self, kind: str, name: str, holds: Callable[[Obj], bool]) -> Obj:
        """An object, once it is there and the condition holds for it."""
        # from any version: asked for the newest, a server whose cache is behind answers with an error
        async with self.watch(kind, fieldSelector=f"metadata.name={name}", resourceVersion="0") as lines:
            events = await lines.until(lambda event: event["type"] != "DELETED" and holds(event["object"]))
        found: Obj = events[-1]["object"]
        return found

    async def until_gone(self, kind: str, name: str) -> None:
        """Return once there is no object of this name."""
        found = await self.listed(kind, fieldSelector=f"metadata.name={name}")
        if not found["items"]:
            return
        version = found["metadata"]["resourceVersion"]
        async with self.watch(kind, fieldSelector=f"metadata.name={name}", resourceVersion=version) as lines:
            await lines.until(named("DELETED", name))

    # --- before and after -------------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Make the namespace; where it gets a service account, pods need it."""
        await self.create("Namespace", {"metadata": {"name": self.namespace}})
        if self.store is None:
            await self.until("ServiceAccount", "default", lambda _: True)

    async def clean(self) -> None:
        """Delete all that the test made; pods at once, since no kubelet confirms their end."""
        for name in await self.names("Pod"):
            await self._delete(f"{self.path('Pod', name)}?gracePeriodSeconds=0")
        for path in reversed(self._made):
            await self._delete(path)

    async def _delete(self, path: str) -> None:
        try:
            await self.call("DELETE", path)
        except ApiError as error:
            if error.status not in (404, 409):  # gone, or a namespace that is ending already
                raise


def _api_version(kind: str) -> str:
    known = KINDS[kind]
    return f"{known.group}/{known.version}" if known.group else known.version


@asynccontextmanager
async def embedded() -> AsyncIterator[Server]:
    """The embedded server over HTTP, with the controllers that belong to a cluster."""
    clock = ClusterClock()
    store = Store(clock.now)
    api = DisturbedServer(store)
    await api.start()
    try:
        async with EmbeddedCluster(store, clock), _opened(await connect(master=api.url)) as server:
            server.store, server.api, server.may_create_nodes = store, api, True
            yield server
    finally:
        await api.stop()


@asynccontextmanager
async def real(kubeconfig: str, *, nodes: bool) -> AsyncIterator[Server]:
    """The server of a kubeconfig; ``nodes``: whether the tests may have some of their own there."""
    async with _opened(await connect(kubeconfig=kubeconfig)) as server:
        server.may_create_nodes = nodes
        yield server


@asynccontextmanager
async def _opened(connection: Connection) -> AsyncIterator[Server]:
    async with KubeClient(connection) as client:
        yield Server(connection, client, f"vcd-contract-{secrets.token_hex(4)}", may_create_nodes=False)

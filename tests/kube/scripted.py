"""An API server that plays a script, a clock that a test turns, and a way to wait for a condition."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.waiting import WAIT_LIMIT, until
from vcd.kube.client import KubeClient
from vcd.kube.kube_connection import connect
from vcd.model import projection_codec
from vcd.model.events import Event, ObjectBad, ObjectGone, ObjectPut
from vcd.serving.connection_limits import listening

START = 1_767_225_600_000_000_000  # 2026-01-01T00:00:00Z


class FakeClock:
    """Time that moves only when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> int:
        return START + round((self.now - 1000.0) * 1e9)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + seconds, next(self._order), future))
        await future

    @property
    def sleeping(self) -> int:
        return sum(not future.done() for _, _, future in self._sleepers)

    @property
    def next_wake(self) -> float:
        """When the next sleeper is due."""
        return min((due for due, _, future in self._sleepers if not future.done()), default=self.now)

    def advance(self, seconds: float) -> None:
        """Move time, and wake all whose time has come."""
        self.now += seconds
        while self._sleepers and self._sleepers[0][0] <= self.now + 1e-9:
            future = heapq.heappop(self._sleepers)[2]
            if not future.done():
                future.set_result(None)

    async def advance_when_asleep(self, seconds: float, sleepers: int = 1) -> None:
        """Wait until so many sleep, then move time."""
        await until(lambda: self.sleeping >= sleepers)
        self.advance(seconds)


class HastyClock(FakeClock):
    """Time that jumps over every sleep."""

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


async def timeouts_until(reached: Callable[[], object]) -> AsyncIterator[float]:
    """Yield ever longer timeouts, in seconds, until a request has reached its server, however slow the machine is."""
    seconds = 0.1
    while not reached():
        assert seconds < WAIT_LIMIT
        yield seconds
        seconds *= 3


@dataclass
class Seen:
    """A request that the server got."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class Answer:
    """How one request is answered: a status and a body, or one of the faults."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False
    """Close the connection without an answer."""
    hang: bool = False
    """Never answer."""
    lines: Sequence[bytes | dict[str, Any]] | None = None
    """A watch: these lines."""
    stay: bool = False
    """A watch that stays open after its lines."""
    cut: bool = False
    """A watch whose connection breaks after its lines."""


def status(code: int, reason: str, message: str = "", **extra: Any) -> dict[str, Any]:
    """A Status object as the API server writes it."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message} | {
        "reason": reason,
        "code": code,
        **extra,
    }


def failure(code: int, reason: str, message: str = "", **headers: str) -> Answer:
    """An error answer."""
    return Answer(code, status(code, reason, message), {name.replace("_", "-"): text for name, text in headers.items()})


Handler = Callable[[Seen], Answer | Awaitable[Answer]]


class ScriptedServer:
    """Answers each route from its script, one answer a request; the last one is repeated."""

    def __init__(self) -> None:
        self.url = ""
        self.seen: list[Seen] = []
        self.closing = asyncio.Event()
        self._staying = asyncio.Event()
        self._routes: list[tuple[str, re.Pattern[str], list[Answer] | Handler]] = []

    def on(self, method: str, path: str, *script: Answer | Handler) -> None:
        """Script a route: a method and a pattern of path and query. Later ones win."""
        handler: Any = script[0] if len(script) == 1 and callable(script[0]) else list(script)
        self._routes.insert(0, (method, re.compile(path), handler))

    def calls(self, method: str, path: str = "") -> list[Seen]:
        """The requests seen so far whose path matches."""
        return [seen for seen in self.seen if seen.method == method and re.search(path, seen.path)]

    def end_watches(self) -> None:
        """End the watches that are open."""
        self._staying.set()
        self._staying = asyncio.Event()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        seen = Seen(request.method, request.path, dict(request.query), dict(request.headers), json.loads(raw or "null"))
        self.seen.append(seen)
        answer = await self._answer(seen, f"{request.path}?{request.query_string}")
        if answer.drop:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if answer.hang:
            await self.closing.wait()
        if answer.lines is not None:
            return await self._stream(request, answer)
        if isinstance(answer.body, str | bytes):
            body = answer.body.encode() if isinstance(answer.body, str) else answer.body
        else:
            body = json.dumps(answer.body).encode()
        headers = {"Content-Type": "application/json", **answer.headers}
        return web.Response(status=answer.status, body=body, headers=headers)

    async def _answer(self, seen: Seen, target: str) -> Answer:
        for method, pattern, script in self._routes:
            if method == seen.method and pattern.search(target):
                if isinstance(script, list):
                    return script.pop(0) if len(script) > 1 else script[0]
                answer = script(seen)
                return answer if isinstance(answer, Answer) else await answer
        return failure(404, "NotFound", f"no script for {seen.method} {target}")

    async def _stream(self, request: web.Request, answer: Answer) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        for line in answer.lines or ():
            raw = line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
            await response.write(raw)
        if answer.stay:
            await self._staying.wait()
        if answer.cut:
            assert request.transport is not None
            request.transport.close()
        return response


@asynccontextmanager
async def scripted() -> AsyncIterator[ScriptedServer]:
    """A scripted server on a free port."""
    server = ScriptedServer()
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{path:.*}", server._handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    async with listening(runner, "127.0.0.1", 0, most=4096) as port:
        server.url = f"http://127.0.0.1:{port}"
        try:
            yield server
        finally:
            server.closing.set()
            server.end_watches()


@asynccontextmanager
async def client_of(server: ScriptedServer, **options: Any) -> AsyncIterator[KubeClient]:
    """An open client of a scripted server."""
    async with KubeClient(await connect(master=server.url), **options) as client:
        yield client


@asynccontextmanager
async def running(coroutine: Any) -> AsyncIterator[asyncio.Task[Any]]:
    """Run something in the background; fails the test if it raised."""
    task = asyncio.ensure_future(coroutine)
    try:
        yield task
    finally:
        if not task.done():
            task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                raise error


class Log:
    """A sink that remembers, and answers as a state that is the fold of what it got."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.batches: list[list[Event]] = []
        self._digests: dict[tuple[str, str], int | None] = {}

    async def sink(self, batch: Sequence[Event]) -> None:
        self.batches.append(list(batch))
        for event in batch:
            self.events.append(event)
            if isinstance(event, ObjectPut) and event.payload is not None:
                self._digests[event.kind, event.key] = projection_codec.payload_digest(event.payload)
            elif isinstance(event, ObjectBad):
                self._digests[event.kind, event.key] = None
            elif isinstance(event, ObjectGone):
                self._digests.pop((event.kind, event.key), None)

    def digest(self, kind: str, key: str) -> int | None:
        return self._digests.get((kind, key))

    def keys(self, kind: str) -> list[str]:
        return [key for name, key in self._digests if name == kind]

    def of(self, *types: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, types)]

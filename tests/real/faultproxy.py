"""What stands between one replica and the API server and does to its requests what networks and servers do.

It ends TLS, so that it answers, delays, cuts and keeps back whole requests, answers and lines of watches. What it does
is drawn from the chance that it was given. A request goes on to the server only while its sender still waits for the
answer, and within ``LATEST`` seconds of its coming: none is delivered after the sender gave it up.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
from aiohttp import web

from tests.real.certificates import Pair
from vcd.serving.connection_limits import Acceptor, stop_listening

LATEST = 0.8
"""Seconds after which a request is not sent on any more: less than any replica's time-out."""
DELAY = 0.4
"""Seconds that a request, and an answer, may be late."""
STALL = 12.0
"""Seconds for which a watch may stand still."""
RATES = {
    **dict.fromkeys(("429", "500", "503", "504", "500 after the write", "504 after the write"), 0.006),
    **dict.fromkeys(("lost before the server", "lost answer", "half an answer"), 0.006),
    **dict.fromkeys(("late request", "late answer"), 0.02),
    **dict.fromkeys(("watch cut in a line", "watch stalled"), 0.3),
}
"""Each fault with the share of requests (of watches, for theirs) that it meets, where a seed has it as it is."""
REASONS = {429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}
PASSED_ON = ("Content-Type", "Retry-After", "Audit-Id", "Cache-Control", "Warning")


class FaultProxy:
    """One replica's way to the API server, in the place of ``tests.e2e.cluster.Wire``.

    ``trust`` verifies the server at ``server``, ``serving`` is shown to the replica. Nothing goes wrong before
    ``begin`` and after ``heal``, which also lets all through that a partition keeps back.
    """

    def __init__(self, server: str, trust: Path, serving: Pair, chance: random.Random) -> None:
        self.url = ""
        self.injected: Counter[str] = Counter()
        self._to = server
        self._trust = ssl.create_default_context(cafile=str(trust))
        self._shown = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._shown.load_cert_chain(serving.certificate, serving.key)
        self._chance = chance
        self._rates = {fault: rate * chance.choice((0.0, 0.5, 1.0, 2.0)) for fault, rate in RATES.items()}
        self._well, self._up, self._down = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._port = 0
        self._listening: asyncio.Server | None = None

    async def start(self) -> None:
        self._web = web.Server(self._handle, handler_cancellation=True, access_log=None, keepalive_timeout=3600)
        self._acceptor = Acceptor(self._web, most=4096)
        connector = aiohttp.TCPConnector(ssl=self._trust, limit=0)
        self._session = aiohttp.ClientSession(
            connector=connector, auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None, sock_connect=5)
        )
        self._well.set()
        self.join()
        await self.listen()
        self.url = f"https://127.0.0.1:{self._port}"

    async def stop(self) -> None:
        """End it; a second time does nothing."""
        if not self._session.closed:
            await self.refuse()
            self._acceptor.give_up()
            await self._web.shutdown(timeout=5)
            await self._session.close()

    # --- what is drawn for each request -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Let things go wrong from now on."""
        self._well.clear()

    def heal(self) -> None:
        """Let nothing go wrong any more."""
        self._well.set()
        self.join()

    def _draws(self, *faults: str) -> str | None:
        """One of these faults, or none; counted."""
        number = self._chance.random()
        for fault in () if self._well.is_set() else faults:
            number -= self._rates[fault]
            if number < 0:
                self.injected[fault] += 1
                return fault
        return None

    # --- what lasts ---------------------------------------------------------------------------------------------------

    def part(self, *, up: bool = False, down: bool = False) -> None:
        """Let no request through from now on, or no answer and no line of a watch, or neither."""
        if up:
            self._up.clear()
        if down:
            self._down.clear()

    def join(self) -> None:
        """Let all through again. What could not get to the server meanwhile is lost; answers come late."""
        self._up.set()
        self._down.set()

    async def refuse(self) -> None:
        """End all connections and take no new ones, as a server that is restarted."""
        assert self._listening is not None
        await stop_listening(self._listening)
        self.cut()

    async def listen(self) -> None:
        """Take connections, again at the same address."""
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(
            self._acceptor, "127.0.0.1", self._port, ssl=self._shown, reuse_address=True
        )
        self._port = self._listening.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """End all connections."""
        for connection in self._web.connections:
            if connection.transport is not None:
                connection.transport.abort()

    # --- one request --------------------------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        came, body = time.monotonic(), await request.read()
        if not self._up.is_set():
            await self._up.wait()
            return _aborted(request)
        if request.query.get("watch") in ("1", "true"):
            return await self._watch(request)
        fault = self._draws("429", "500", "503", "504", "lost before the server", "late request")
        if fault == "lost before the server":
            return _aborted(request)
        if fault == "late request":
            await asyncio.sleep(self._chance.uniform(0, DELAY))
        elif fault is not None:
            return _failed(int(fault))
        if time.monotonic() - came > LATEST:
            return _aborted(request)
        try:
            async with self._asked(request, body) as answer:
                return await self._answered(request, answer, await answer.read())
        except aiohttp.ClientError:
            return _aborted(request)

    @contextlib.asynccontextmanager
    async def _asked(self, request: web.BaseRequest, body: bytes) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {name: request.headers[name] for name in request.headers if name not in ("Host", "Content-Length")}
        url = f"{self._to}{request.path_qs}"
        async with self._session.request(request.method, url, headers=headers, data=body or None) as answer:
            yield answer

    async def _answered(
        self, request: web.BaseRequest, answer: aiohttp.ClientResponse, body: bytes
    ) -> web.StreamResponse:
        """What becomes of an answer on its way to the replica."""
        await self._down.wait()
        fault = self._draws(
            "500 after the write", "504 after the write", "lost answer", "half an answer", "late answer"
        )
        if fault in ("500 after the write", "504 after the write"):
            return _failed(int(fault[:3]))
        if fault == "lost answer":
            return _aborted(request)
        if fault == "late answer":
            await asyncio.sleep(self._chance.uniform(0, DELAY))
        whole = web.StreamResponse(status=answer.status, headers=_headers(answer))
        whole.content_length = len(body)
        await whole.prepare(request)
        if fault == "half an answer":
            await whole.write(body[: len(body) // 2])
            return _aborted(request)
        await whole.write(body)
        await whole.write_eof()
        return whole

    async def _watch(self, request: web.BaseRequest) -> web.StreamResponse:
        fault = self._draws("watch cut in a line", "watch stalled")
        left = self._chance.randint(1, 20) if fault else 0  # pieces after which it happens
        try:
            async with self._asked(request, b"") as answer:
                told = web.StreamResponse(status=answer.status, headers=_headers(answer))
                await self._down.wait()
                await told.prepare(request)
                async for piece in answer.content.iter_any():
                    await self._down.wait()
                    left -= 1
                    if fault == "watch stalled" and left == 0:
                        await self._stall()
                    if fault == "watch cut in a line" and left == 0:
                        await told.write(piece[: max(1, len(piece) // 2)])
                        return _aborted(request)
                    await told.write(piece)
                await told.write_eof()
                return told
        except (aiohttp.ClientError, ConnectionError):
            return _aborted(request)

    async def _stall(self) -> None:
        """Tell nothing of a watch for a while, or until all is well."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._well.wait(), self._chance.uniform(1, STALL))


def _headers(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {name: answer.headers[name] for name in PASSED_ON if name in answer.headers}


def _aborted(request: web.BaseRequest) -> web.Response:
    """End the connection as a reset does; what is answered then gets nowhere."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _failed(status: int) -> web.Response:
    """A Status as the API server has them."""
    body = {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "injected by the storm",
        "reason": REASONS[status], "code": status,
    }  # fmt: skip
    headers = {"Retry-After": "1"} if status in (429, 503) else {}
    return web.Response(text=json.dumps(body), status=status, content_type="application/json", headers=headers)

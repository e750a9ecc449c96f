"""Requests over real sockets: TLS, connections that end at a bad moment, cancelled requests, broken servers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import socket
import ssl
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from tests.kube.scripted import FakeClock, timeouts_until, until
from tests.kube.test_kube_connection import kubeconfig
from tests.real.certificates import Authority, Pair
from tests.waiting import WAIT_LIMIT
from vcd.kube.api_errors import ApiError, KubeError, LeadershipLost, NoResponse
from vcd.kube.client import KubeClient
from vcd.kube.kube_connection import connect
from vcd.kube.write_limiter import Urgency


@dataclass
class Asked:
    """A request that the server read wholly."""

    line: str
    headers: dict[str, str]
    body: bytes
    connection: int
    subject: str

    @property
    def target(self) -> str:
        return self.line.split(" ")[1]


class Line:
    """A connection as the server sees it."""

    def __init__(self, peer: Peer, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number = number
        self.writer = writer
        self.head = b""
        self.ended = self.reset = False
        self._peer = peer
        self._reader = reader

    async def read_head(self) -> dict[str, str]:
        """The next request without its body; raises EOFError when the client has closed the connection."""
        try:
            self.head = await self._reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            self.ended = True
            raise EOFError from error
        self._peer.heads.append(self.head.partition(b"\r\n")[0].decode())
        rows = self.head.decode().split("\r\n")[1:-2]
        return {name.lower(): value.strip() for name, _, value in (row.partition(":") for row in rows)}

    async def read(self) -> Asked:
        """The next request."""
        headers = await self.read_head()
        body = await self._reader.readexactly(int(headers.get("content-length", "0")))
        certificate = self.writer.get_extra_info("peercert") or {}
        names = [value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"]
        asked = Asked(self.head.partition(b"\r\n")[0].decode(), headers, body, self.number, "".join(names))
        self._peer.asked.append(asked)
        return asked

    async def answer(self, body: bytes = b"{}", status: str = "200 OK", *headers: str) -> None:
        """An answer after which the connection stays open."""
        head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
        await self.raw("\r\n".join(head).encode() + b"\r\n\r\n" + body)

    async def raw(self, data: bytes) -> None:
        """Bytes as they are."""
        self.writer.write(data)
        await self.writer.drain()

    async def rest(self) -> bytes:
        """What comes until the client closes the connection."""
        try:
            data = await self._reader.read()
        except ConnectionError:
            data, self.reset = b"", True
        self.ended = True
        return data


Talk = Callable[[Line], Awaitable[None]]


class Peer:
    """A server whose every connection is a conversation; it is closed when that ends."""

    def __init__(self, talk: Talk) -> None:
        self.port = 0
        self.asked: list[Asked] = []
        self.heads: list[str] = []
        """The first lines of all requests, also of those that were not read wholly."""
        self.lines: list[Line] = []
        self.refused = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self._talk = talk

    def hang_up(self) -> None:
        """End all connections."""
        for line in self.lines:
            line.writer.transport.abort()

    def targets(self, method: str) -> list[str]:
        """What was asked for by a method, be it read wholly or not."""
        return [head.split(" ")[1] for head in self.heads if head.startswith(f"{method} ")]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        line = Line(self, len(self.lines), reader, writer)
        self.lines.append(line)
        try:
            await self._talk(line)
        except (EOFError, ConnectionError, asyncio.CancelledError):
            line.ended = True
        finally:
            writer.close()
            self.tasks.discard(task)


@asynccontextmanager
async def served(talk: Talk, tls: ssl.SSLContext | None = None) -> AsyncIterator[Peer]:
    """A server on a free port."""
    peer = Peer(talk)
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0, ssl=tls, limit=1 << 20, backlog=512)
    peer.port = server.sockets[0].getsockname()[1]
    try:
        yield peer
    finally:
        server.close()
        tasks = list(peer.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        peer.hang_up()
        await server.wait_closed()


@asynccontextmanager
async def client_of(peer: Peer, **options: Any) -> AsyncIterator[KubeClient]:
    """An open client of a server without TLS."""
    async with KubeClient(await connect(master=f"http://127.0.0.1:{peer.port}"), **options) as client:
        yield client


async def polite(line: Line) -> None:
    """Answers everything."""
    while True:
        await line.read()
        await line.answer()


def answering(data: bytes) -> Talk:
    """Answers the first request of a connection with these bytes, and closes it."""

    async def talk(line: Line) -> None:
        await line.read()
        await line.raw(data)

    return talk


async def mute(line: Line) -> None:
    """Says nothing, whatever it is asked."""
    await line.read()
    await line.rest()


def serving(pair: Pair, asking: Authority | None = None) -> ssl.SSLContext:
    """The TLS of a server, which asks for certificates of an authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    if asking is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(asking.certificate)
    return context


class Renewable(Authority):
    """An authority whose certificates say by which key they are signed, as Kubernetes' do: all have one name here."""

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        own = x509.SubjectKeyIdentifier.from_public_key(key)
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return super()._builder(subject, key).add_extension(own, critical=False).add_extension(signer, critical=False)


def authority(folder: Path) -> Authority:
    """An authority with a folder of its own."""
    folder.mkdir()
    return Renewable(folder)


def configured(folder: Path, server: str, cluster: dict[str, Any], user: dict[str, Any] | None = None) -> str:
    """A kubeconfig of a server."""
    return kubeconfig(folder / "k", user, server, **cluster)


def sockets() -> set[str]:
    """The sockets that this process has open."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        if target.startswith("socket:"):
            found.add(target)
    return found


async def unanswered(request: Awaitable[bytes]) -> NoResponse:
    """The error of a request without an answer."""
    with pytest.raises(NoResponse) as caught:
        await asyncio.wait_for(request, WAIT_LIMIT)
    return caught.value


# --- TLS --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trusted", "name", "answers"),
    [
        ("ours", None, True),
        (None, None, True),
        ("ours", "kubernetes.default.svc", True),
        ("ours", "localhost", True),
        ("ours", "api.example", False),
        ("another", None, False),
    ],
)
async def test_a_server_gets_requests_if_its_certificate_is_of_the_authority_and_name_that_are_configured(
    tmp_path: Path, trusted: str | None, name: str | None, answers: bool
) -> None:
    """Without a trusted authority any certificate will do."""
    authorities = {each: authority(tmp_path / each) for each in ("ours", "another")}
    cluster: dict[str, Any] = {"insecure-skip-tls-verify": True}
    if trusted is not None:
        cluster = {"certificate-authority": str(authorities[trusted].certificate)}
    if name is not None:
        cluster["tls-server-name"] = name
    async with served(polite, serving(authorities["ours"].issue("server"))) as peer:
        path = configured(tmp_path, f"https://127.0.0.1:{peer.port}", cluster)
        async with KubeClient(await connect(path)) as client:
            if answers:
                assert await client.request("GET", "/version") == b"{}"
                assert await client.request("POST", "/pods", b"[1]") == b"{}"
            for method in () if answers else ("GET", "POST", "DELETE"):
                error = await unanswered(client.request(method, "/x", b"{}" if method == "POST" else None))
                assert not error.sent
        assert [asked.body for asked in peer.asked] == ([b"", b"[1]"] if answers else [])
        assert len(peer.heads) == len(peer.asked)
        assert {asked.headers["host"] for asked in peer.asked} <= {f"127.0.0.1:{peer.port}"}
        assert len(peer.lines) == 1 or not answers


async def test_the_systems_authorities_do_not_count_where_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, system = authority(tmp_path / "ours"), authority(tmp_path / "system")
    monkeypatch.setenv("SSL_CERT_FILE", str(system.certificate))
    async with served(polite, serving(system.issue("server"))) as peer:
        url = f"https://127.0.0.1:{peer.port}"
        path = configured(tmp_path, url, {"certificate-authority": str(ours.certificate)})
        async with KubeClient(await connect(path)) as client:
            assert not (await unanswered(client.request("GET", "/version"))).sent
        async with KubeClient(await connect(master=url)) as client:
            assert await client.request("GET", "/version") == b"{}"
        assert len(peer.heads) == 1


# --- the client's certificate -----------------------------------------------------------------------------------------


def _asking(folder: Path, port: int, ours: Authority, pair: Pair) -> str:
    user = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
    cluster = {"certificate-authority": str(ours.certificate)}
    return configured(folder, f"https://127.0.0.1:{port}", cluster, user)


async def test_a_replaced_certificate_is_shown_from_the_next_request_on(tmp_path: Path) -> None:
    ours, clock, go = authority(tmp_path / "ours"), FakeClock(), asyncio.Event()

    async def talk(line: Line) -> None:
        while True:
            asked = await line.read()
            if asked.target == "/slow":
                await go.wait()
            await line.answer()

    async with served(talk, serving(ours.issue("server"), ours)) as peer:
        path = _asking(tmp_path, peer.port, ours, ours.issue("first"))
        async with KubeClient(await connect(path, clock=clock)) as client:
            await client.request("GET", "/a")
            slow = asyncio.create_task(client.request("GET", "/slow"))
            await until(lambda: len(peer.asked) == 2)
            _asking(tmp_path, peer.port, ours, ours.issue("second"))
            clock.advance(61)
            await client.request("GET", "/b")
            go.set()
            await slow
            await asyncio.gather(*(client.request("GET", f"/c{n}") for n in range(4)))
            await client.request("POST", "/d", b"{}")
        subjects = {asked.target.partition("?")[0]: asked.subject for asked in peer.asked}
    assert subjects == {"/a": "first", "/slow": "first"} | dict.fromkeys(
        ("/b", "/c0", "/c1", "/c2", "/c3", "/d"), "second"
    )


async def test_a_certificate_that_is_replaced_in_its_file_is_shown_by_the_next_connection(tmp_path: Path) -> None:
    ours, clock = authority(tmp_path / "ours"), FakeClock()

    async def talk(line: Line) -> None:
        await line.read()
        await line.answer(b"{}", "200 OK", "Connection: close")

    async with served(talk, serving(ours.issue("server"), ours)) as peer:
        pair, second = ours.issue("first"), ours.issue("second")
        async with KubeClient(await connect(_asking(tmp_path, peer.port, ours, pair), clock=clock)) as client:
            await client.request("GET", "/a")
            pair.certificate.write_bytes(second.certificate.read_bytes())
            pair.key.write_bytes(second.key.read_bytes())
            clock.advance(61)
            await client.request("GET", "/b")
        assert [asked.subject for asked in peer.asked] == ["first", "second"]


async def test_a_certificate_that_is_replaced_in_its_file_is_shown_though_the_connection_is_kept(
    tmp_path: Path,
) -> None:
    """A connection that is used each two seconds, as for the Lease, never ends by itself."""
    ours, clock = authority(tmp_path / "ours"), FakeClock()
    async with served(polite, serving(ours.issue("server"), ours)) as peer:
        pair, second = ours.issue("first"), ours.issue("second")
        async with KubeClient(await connect(_asking(tmp_path, peer.port, ours, pair), clock=clock)) as client:
            await client.request("GET", "/a")
            _replace(pair, second)
            clock.advance(61)
            await client.request("GET", "/b")
        assert [asked.subject for asked in peer.asked] == ["first", "second"]


@pytest.mark.parametrize("in_its_place", [False, True], ids=["another file", "in its place"])
async def test_what_was_refused_with_an_old_certificate_is_asked_again_with_the_new_one(
    tmp_path: Path, in_its_place: bool
) -> None:
    ours = authority(tmp_path / "ours")

    async def talk(line: Line) -> None:
        while True:
            asked = await line.read()
            old = asked.subject == "first" and asked.target != "/a"
            await line.answer(b"{}", "401 Unauthorized" if old else "200 OK")

    async with served(talk, serving(ours.issue("server"), ours)) as peer:
        pair, second = ours.issue("first"), ours.issue("second")
        async with KubeClient(await connect(_asking(tmp_path, peer.port, ours, pair))) as client:
            await client.request("GET", "/a")
            if in_its_place:
                _replace(pair, second)
            else:
                _asking(tmp_path, peer.port, ours, second)
            assert await client.request("POST", "/binding", b"{}") == b"{}"
        assert [asked.subject for asked in peer.asked] == ["first", "first", "second"]


async def test_each_watch_shows_the_certificate_that_holds(tmp_path: Path) -> None:
    ours, clock = authority(tmp_path / "ours"), FakeClock()
    async with served(polite, serving(ours.issue("server"), ours)) as peer:
        pair, second = ours.issue("first"), ours.issue("second")
        async with KubeClient(await connect(_asking(tmp_path, peer.port, ours, pair), clock=clock)) as client:
            for _ in range(2):
                async for _ in client.watch("/pods?watch=1", idle_timeout=WAIT_LIMIT):
                    pass
                _replace(pair, second)
                clock.advance(61)
        assert [asked.subject for asked in peer.asked] == ["first", "second"]


async def once(line: Line) -> None:
    """Answers the first request of a connection, and closes it: each request begins with a handshake."""
    await line.read()
    await line.answer(b"{}", "200 OK", "Connection: close")


@pytest.mark.parametrize("talk", [once, polite], ids=["connections end", "connections are kept"])
async def test_an_authority_that_comes_to_a_file_in_use_is_believed_by_requests_and_watches(
    tmp_path: Path, talk: Talk
) -> None:
    old, new, clock = authority(tmp_path / "old"), authority(tmp_path / "new"), FakeClock()
    tls = serving(old.issue("server"))
    async with served(talk, tls) as peer:
        cluster = {"certificate-authority": str(old.certificate)}
        path = configured(tmp_path, f"https://127.0.0.1:{peer.port}", cluster)
        async with KubeClient(await connect(path, clock=clock)) as client:
            await client.request("GET", "/pods")
            old.certificate.write_bytes(old.certificate.read_bytes() + new.certificate.read_bytes())
            clock.advance(61)
            await client.request("GET", "/pods")
            renewed = new.issue("server")
            tls.load_cert_chain(renewed.certificate, renewed.key)
            peer.hang_up()
            assert await client.request("GET", "/pods") == b"{}"
            assert await client.request("POST", "/pods", b"{}") == b"{}"
            assert await anext(client.watch("/pods?watch=1", idle_timeout=WAIT_LIMIT)) == []


@pytest.mark.parametrize("form", ["file", "data"])
async def test_an_authority_that_the_configuration_names_anew_is_believed_and_the_old_one_no_more(
    tmp_path: Path, form: str
) -> None:
    old, new, clock = authority(tmp_path / "old"), authority(tmp_path / "new"), FakeClock()

    def named(ours: Authority, port: int) -> str:
        by_file = {"certificate-authority": str(ours.certificate)}
        cluster = by_file if form == "file" else {"certificate-authority-data": ours.bundle}
        return configured(tmp_path, f"https://127.0.0.1:{port}", cluster)

    tls = serving(old.issue("server"))
    async with served(polite, tls) as peer:
        async with KubeClient(await connect(named(old, peer.port), clock=clock)) as client:
            await client.request("GET", "/a")
            named(new, peer.port)
            clock.advance(61)
            assert not (await unanswered(client.request("GET", "/b"))).sent
            renewed = new.issue("server")
            tls.load_cert_chain(renewed.certificate, renewed.key)
            assert await client.request("GET", "/c") == b"{}"
        assert [asked.target for asked in peer.asked] == ["/a", "/c"]


def _replace(pair: Pair, by: Pair) -> None:
    pair.certificate.write_bytes(by.certificate.read_bytes())
    pair.key.write_bytes(by.key.read_bytes())


# --- proxies ----------------------------------------------------------------------------------------------------------


async def test_a_proxy_of_the_environment_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = authority(tmp_path / "ours")
    async with (
        served(polite) as proxy,
        served(polite) as plain,
        served(polite, serving(ours.issue("server"))) as secure,
    ):
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
            monkeypatch.setenv(name.lower(), f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        async with client_of(plain) as client:
            await client.request("GET", "/version")
        cluster = {"certificate-authority": str(ours.certificate)}
        path = configured(tmp_path, f"https://127.0.0.1:{secure.port}", cluster)
        async with KubeClient(await connect(path)) as client:
            await client.request("POST", "/pods", b"{}")
        assert (len(plain.asked), len(secure.asked), proxy.lines) == (1, 1, [])


async def test_a_proxy_of_the_configuration_is_used(tmp_path: Path) -> None:
    async with served(polite) as proxy:
        path = configured(tmp_path, "http://api.invalid:1", {"proxy-url": f"http://127.0.0.1:{proxy.port}"})
        async with KubeClient(await connect(path)) as client:
            await client.request("GET", "/version")
        assert [asked.target for asked in proxy.asked] == ["http://api.invalid:1/version"]
        assert proxy.asked[0].headers["host"] == "api.invalid:1"


# --- connections that end ---------------------------------------------------------------------------------------------

WRITES = [("POST", b"{}"), ("PATCH", b"{}"), ("DELETE", b"{}"), ("DELETE", None), ("POST", None), ("POST", b"")]


@pytest.mark.parametrize(("method", "body"), [("GET", None), *WRITES])
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
async def test_a_request_survives_that_an_idle_connection_was_closed(
    method: str, body: bytes | None, reset: bool
) -> None:
    """A body that went into a connection just closed cannot be told from one that arrived: no answer is right then."""
    closed = asyncio.Event()

    async def talk(line: Line) -> None:
        await line.read()
        await line.answer()
        if line.number == 0:
            if reset:
                line.writer.transport.abort()
            line.writer.close()
            await _gone(line)
            closed.set()
        else:
            await polite(line)

    async with served(talk) as peer, client_of(peer) as client:
        await client.request("GET", "/first")
        await asyncio.wait_for(closed.wait(), WAIT_LIMIT)
        if body:
            try:
                assert await client.request(method, "/second", body) == b"{}"
                arrived = 1
            except NoResponse:
                arrived = 0
        else:
            assert await client.request(method, "/second", body) == b"{}"
            arrived = 1
        assert peer.asked[0].target == "/first"
        assert [asked.target.partition("?")[0] for asked in peer.asked[1:]] == ["/second"] * arrived
        assert len(peer.heads) == len(peer.asked)
        assert await client.request(method, "/third", body) == b"{}"


async def _gone(line: Line) -> None:
    try:
        await line.writer.wait_closed()
    except ConnectionError:
        return


def _closing(*, whole: bool, reset: bool) -> Talk:
    """Answers the first request of a connection, and closes it on the next, be it wholly read or not."""

    async def talk(line: Line) -> None:
        await line.read()
        await line.answer()
        if whole:
            await line.read()
        else:
            await line.read_head()
        if reset:
            line.writer.transport.abort()

    return talk


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
async def test_a_question_is_asked_again_when_its_old_connection_is_closed_on_it(reset: bool) -> None:
    async with served(_closing(whole=True, reset=reset)) as peer, client_of(peer) as client:
        await client.request("GET", "/first")
        assert await client.request("GET", "/second") == b"{}"
        assert peer.targets("GET") == ["/first", "/second", "/second"]


@pytest.mark.parametrize("size", [2, 300 << 10])
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "head"])
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
async def test_a_write_is_not_sent_again_when_its_old_connection_is_closed_on_it(
    method: str, reset: bool, whole: bool, size: int
) -> None:
    async with served(_closing(whole=whole, reset=reset)) as peer, client_of(peer) as client:
        await client.request("GET", "/first")
        error = await unanswered(client.request(method, "/second", b"x" * size))
        assert error.sent
        await client.request("GET", "/third")
        assert [target.partition("?")[0] for target in peer.targets(method)] == ["/second"]


@pytest.mark.parametrize(("method", "body"), WRITES)
async def test_a_write_is_not_sent_again_when_its_new_connection_is_closed_on_it(
    method: str, body: bytes | None
) -> None:
    async def talk(line: Line) -> None:
        asked = await line.read()
        if asked.target == "/first":
            await line.answer()
            await line.read()

    async with served(talk) as peer, client_of(peer) as client:
        await client.request("GET", "/first")
        error = await unanswered(client.request(method, "/second", body))
        assert error.sent
        assert len(peer.targets(method)) == 1


@pytest.mark.parametrize("method", ["DELETE", "POST"])
async def test_a_write_without_a_body_takes_no_old_connection(method: str) -> None:
    async with served(_closing(whole=True, reset=False)) as peer, client_of(peer) as client:
        await client.request("GET", "/first")
        assert await client.request(method, "/second") == b"{}"
        assert await client.request(method, "/second") == b"{}"
        assert len(peer.targets(method)) == 2


# --- servers that are broken ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "body"), [("GET", None), ("POST", b"{}"), ("DELETE", None)])
async def test_a_refused_connection_was_not_sent(method: str, body: bytes | None) -> None:
    async with served(polite) as peer:
        pass
    async with client_of(peer) as client:
        assert not (await unanswered(client.request(method, "/x", body))).sent


@pytest.mark.parametrize(("method", "body"), [("GET", None), ("POST", b"{}"), ("DELETE", None)])
async def test_a_server_that_says_nothing_is_given_up_after_the_timeout(method: str, body: bytes | None) -> None:
    async with served(mute) as peer, client_of(peer) as client:
        async for seconds in timeouts_until(lambda: peer.asked):
            begin = asyncio.get_running_loop().time()
            error = await unanswered(client.request(method, "/x", body, timeout=seconds))
            assert asyncio.get_running_loop().time() - begin >= seconds * 0.75
        assert error.sent
        await until(lambda: all(line.ended for line in peer.lines))


async def test_a_handshake_that_never_ends_was_not_sent(tmp_path: Path) -> None:
    async def talk(line: Line) -> None:
        await line.rest()

    async with served(talk) as peer:
        path = configured(tmp_path, f"https://127.0.0.1:{peer.port}", {"insecure-skip-tls-verify": True})
        async with KubeClient(await connect(path)) as client:
            assert not (await unanswered(client.request("POST", "/x", b"{}", timeout=0.2))).sent
            await until(lambda: any(line.ended for line in peer.lines))


BROKEN = {
    "not HTTP": b"220 mail.example ESMTP ready\r\n",
    "nothing": b"",
    "no status": b"HTTP/1.1 \r\n\r\n",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "half of the heads": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n",
    "half a body": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}",
    "half a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{}",
    "no last chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
    "no chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "bad length": b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\n{}",
}


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
async def test_a_broken_answer_is_none(data: bytes, method: str) -> None:
    async with served(answering(data)) as peer, client_of(peer) as client:
        error = await unanswered(client.request(method, "/x", b"{}" if method == "POST" else None))
        assert error.sent
        assert len(peer.heads) == 1


WHOLE = {
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "empty": (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
    "chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n1;a=b\r\n \r\n0\r\nT: x\r\n\r\n",
        b"{} ",
    ),
    "until the end": (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}", b"{}"),
    "an old protocol": (b"HTTP/1.0 200 OK\r\n\r\n{}", b"{}"),
    "after a hint": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"{}",
    ),
}


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(("data", "body"), WHOLE.values(), ids=WHOLE)
async def test_an_answer_is_read_however_its_end_is_told(data: bytes, body: bytes, method: str) -> None:
    async with served(answering(data)) as peer, client_of(peer) as client:
        assert await client.request(method, "/x", b"{}" if method == "POST" else None) == body
        assert await client.request("GET", "/y") == body


async def test_a_connection_is_used_again_after_an_answer_without_content() -> None:
    async def talk(line: Line) -> None:
        await line.read()
        await line.raw(b"HTTP/1.1 204 No Content\r\n\r\n")
        await polite(line)

    async with served(talk) as peer, client_of(peer) as client:
        assert await client.request("POST", "/x", b"{}") == b""
        assert await client.request("POST", "/x", b"{}") == b"{}"
        assert len(peer.lines) == 1


async def test_a_long_answer_and_a_long_request_arrive_as_they_are() -> None:
    answer, body = os.urandom(5 << 20), os.urandom(300 << 10)

    async def talk(line: Line) -> None:
        while True:
            await line.read()
            await line.answer(answer)

    async with served(talk) as peer, client_of(peer) as client:
        assert await client.request("GET", "/x") == answer
        assert await client.request("POST", "/x", body) == answer
        assert peer.asked[1].body == body
        assert peer.asked[1].headers["content-length"] == str(len(body))
        assert "expect" not in peer.asked[1].headers
        assert "transfer-encoding" not in peer.asked[1].headers


async def test_an_error_before_the_body_was_read_is_taken_over() -> None:
    async def talk(line: Line) -> None:
        await line.read_head()
        await line.answer(b"too long", "413 Request Entity Too Large", "Connection: close")
        await line.rest()

    async with served(talk) as peer, client_of(peer) as client:
        with pytest.raises(ApiError, match="too long") as caught:
            await client.request("POST", "/x", b"x" * (8 << 20))
        assert caught.value.status == 413


# --- cancelled --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def slow(tmp_path: Path, tls: bool) -> AsyncIterator[tuple[Peer, str]]:
    """A server that answers all but ``/slow``, and the kubeconfig that leads to it."""
    ours = authority(tmp_path / "ours")

    async def talk(line: Line) -> None:
        while (await line.read()).target.partition("?")[0] != "/slow":
            await line.answer()
        await line.rest()

    async with served(talk, serving(ours.issue("server")) if tls else None) as peer:
        cluster = {"certificate-authority": str(ours.certificate)} if tls else {}
        yield peer, configured(tmp_path, f"http{'s' * tls}://127.0.0.1:{peer.port}", cluster)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_cancelled_requests_connection_is_closed(tmp_path: Path, method: str, tls: bool) -> None:
    async with slow(tmp_path, tls) as (peer, path), KubeClient(await connect(path), in_flight=1) as client:
        await client.request("GET", "/first")
        waiting = asyncio.create_task(client.request(method, "/slow", b"{}" if method == "POST" else None))
        await until(lambda: len(peer.asked) == 2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: peer.lines[peer.asked[1].connection].ended)
        assert await client.request(method, "/next", b"{}" if method == "POST" else None) == b"{}"
        assert await client.request("GET", "/next") == b"{}"


async def test_requests_may_be_cancelled_at_any_moment() -> None:
    async with served(polite) as peer, client_of(peer) as client:
        for turns in range(40):
            body = b"x" * (100 << 10)
            tasks = [asyncio.create_task(client.request("POST", "/x", body)) for _ in range(4)]
            for _ in range(turns):
                await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            done = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), WAIT_LIMIT)
            assert [done[1], done[3]] == [b"{}", b"{}"]
            assert all(one == b"{}" or isinstance(one, asyncio.CancelledError) for one in done)
        assert await client.request("GET", "/last") == b"{}"


# --- the end of the client --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_leaving_the_client_ends_what_is_under_way(tmp_path: Path, tls: bool) -> None:
    async with slow(tmp_path, tls) as (peer, path):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", ResourceWarning)
            before = sockets()
            async with KubeClient(await connect(path)) as client:
                await asyncio.gather(*(client.request("GET", "/quick") for _ in range(3)))
                tasks = [
                    asyncio.create_task(client.request(method, "/slow", b"{}" if method == "POST" else None))
                    for method in ("GET", "POST", "DELETE")
                ]
                await until(lambda: len(peer.asked) == 6)
            for task in tasks:
                assert (await unanswered(task)).sent
            await until(lambda: all(line.ended for line in peer.lines))
            del client
            gc.collect()
            await until(lambda: sockets() <= before)
        assert [one for one in warned if issubclass(one.category, ResourceWarning)] == []


async def test_leaving_the_client_while_it_connects_leaves_nothing_behind(tmp_path: Path) -> None:
    async def talk(line: Line) -> None:
        await line.rest()

    async with served(talk) as peer:
        path = configured(tmp_path, f"https://127.0.0.1:{peer.port}", {"insecure-skip-tls-verify": True})
        async with KubeClient(await connect(path)) as client:
            task = asyncio.create_task(client.request("POST", "/x", b"{}"))
            await until(lambda: peer.lines)
        assert not (await unanswered(task)).sent
        await until(lambda: peer.lines[0].ended)


async def test_leaving_the_client_ends_what_waits_for_admission() -> None:
    async with served(mute) as peer:
        async with client_of(peer, in_flight=1) as client:
            tasks = [asyncio.create_task(client.request("POST", "/x", b"{}")) for _ in range(3)]
            await until(lambda: peer.asked)
        done = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), WAIT_LIMIT)
        assert all(isinstance(one, KubeError) for one in done), done
        assert len(peer.heads) == 1


def _slow(peer: Peer, wanted: int) -> bool:
    return peer.targets("GET").count("/slow") == wanted


async def test_a_second_client_works_where_the_first_was_closed_with_requests_under_way() -> None:
    async def talk(line: Line) -> None:
        while (await line.read()).target.partition("?")[0] != "/slow":
            await line.answer()
        await line.rest()

    async with served(talk) as peer:
        for turn in range(5):
            async with client_of(peer) as client:
                assert await client.request("GET", "/a") == b"{}"
                tasks = [asyncio.create_task(client.request("GET", "/slow")) for _ in range(4)]
                wanted = 4 * (turn + 1)
                await until(partial(_slow, peer, wanted))
                assert await client.request("POST", "/b", b"{}") == b"{}"
            for task in tasks:
                await unanswered(task)


# --- the fence --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reused", [False, True], ids=["new", "old"])
@pytest.mark.parametrize("size", [2, 300 << 10])
async def test_a_fence_that_falls_before_the_body_lets_nothing_of_it_out(reused: bool, size: int) -> None:
    received: list[bytes] = []

    async def talk(line: Line) -> None:
        while True:
            headers = await line.read_head()
            if "content-length" in headers:
                received.append(await line.rest())
                return
            await line.answer()

    async with served(talk) as peer, client_of(peer) as client:
        if reused:
            await client.request("GET", "/first")
        answers = iter((True, False))
        with pytest.raises(LeadershipLost):
            await client.request("POST", "/x", b"#" * size, urgency=Urgency.LEASE, fence=lambda: next(answers))
        assert await client.request("GET", "/next") == b"{}"
        await until(lambda: all(line.ended for line in peer.lines if line.head.startswith(b"POST")))
        assert b"".join(received) == b""
        assert peer.targets("GET")[-1] == "/next"


async def test_a_fence_that_holds_is_asked_before_and_with_the_body() -> None:
    asked = 0

    def fence() -> bool:
        nonlocal asked
        asked += 1
        return True

    async with served(polite) as peer, client_of(peer) as client:
        assert await client.request("POST", "/x", b"#" * (300 << 10), fence=fence) == b"{}"
    assert asked == 2


# --- many, and as they were given -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_many_requests_at_once_are_all_answered(method: str) -> None:
    async def talk(line: Line) -> None:
        while True:
            asked = await line.read()
            await line.answer(asked.target.encode() + asked.body)

    async with served(talk) as peer, client_of(peer, in_flight=64) as client:
        bodies = [f"body {n}".encode() if method == "POST" else None for n in range(200)]
        requests = [client.request(method, f"/pods/p{n}", body) for n, body in enumerate(bodies)]
        answers = await asyncio.wait_for(asyncio.gather(*requests), WAIT_LIMIT)
        query = "" if method == "GET" else "?timeout=4s"
        assert answers == [f"/pods/p{n}{query}".encode() + (body or b"") for n, body in enumerate(bodies)]
        assert len(peer.asked) == 200


@pytest.mark.parametrize(
    "path",
    [
        "/a/../b",
        "/a/./b//c",
        "/a%2Fb",
        "/a%2E%2E/b",
        "/a?a=b&c=d",
        "/a?x=%26%3D&y=/../z",
        "/a:b@c/{d}[e]~!$'()*,;+",
        "/?",
    ],
)
async def test_a_path_arrives_as_it_was_given(path: str) -> None:
    async with served(polite) as peer, client_of(peer) as client:
        await client.request("GET", path)
        assert [asked.target for asked in peer.asked] == [path]


async def test_nothing_of_a_request_is_left_for_the_next() -> None:
    async with served(polite) as peer, client_of(peer) as client:
        await client.request("POST", "/a", b"12345", content_type="text/plain")
        await client.request("GET", "/b")
        await client.request("PATCH", "/c", b"1", content_type="application/merge-patch+json")
        await client.request("DELETE", "/d")
        await client.request("PUT", "/e", b"2")
        rows = [
            (one.line.partition("?")[0].partition(" HTTP")[0], one.body, one.headers.get("content-type"))
            for one in peer.asked
        ]
    assert rows == [
        ("POST /a", b"12345", "text/plain"),
        ("GET /b", b"", None),
        ("PATCH /c", b"1", "application/merge-patch+json"),
        ("DELETE /d", b"", None),
        ("PUT /e", b"2", "application/json"),
    ]


async def test_the_pause_that_a_server_asks_for_is_of_its_answer_alone() -> None:
    async def talk(line: Line) -> None:
        await line.read()
        await line.answer(b"slow down", "429 Too Many Requests", "Retry-After: 7")
        await line.read()
        await line.answer(b"broken", "500 Internal Server Error")
        await line.read()
        await line.answer(b"", "503 Service Unavailable", "Retry-After: soon")

    async with served(talk) as peer, client_of(peer) as client:
        errors = []
        for _ in range(3):
            with pytest.raises(ApiError) as caught:
                await client.request("POST", "/x", b"{}")
            errors.append((caught.value.status, caught.value.retry_after))
        assert errors == [(429, 7.0), (500, None), (503, None)]
        assert len(peer.lines) == 1


async def test_a_redirection_is_not_followed() -> None:
    async def talk(line: Line) -> None:
        await line.read()
        await line.answer(b"", "307 Temporary Redirect", "Location: /elsewhere")
        await polite(line)

    async with served(talk) as peer, client_of(peer) as client:
        with pytest.raises(ApiError, match="307"):
            await client.request("GET", "/x")
        assert peer.targets("GET") == ["/x"]


async def test_a_list_is_read_over_one_connection() -> None:
    async def talk(line: Line) -> None:
        while True:
            asked = await line.read()
            last = "continue=" in asked.target
            meta = {"resourceVersion": "7"} | ({} if last else {"continue": "a/b+c="})
            await line.answer(json.dumps({"metadata": meta, "items": [{}]}).encode())

    async with served(talk) as peer, client_of(peer) as client:
        assert [len(page.items) async for page in client.list_pages("/pods", limit=1)] == [1, 1]
        assert peer.targets("GET") == ["/pods?limit=1", "/pods?limit=1&continue=a%2Fb%2Bc%3D"]
        assert len(peer.lines) == 1


# --- nothing comes late -----------------------------------------------------------------------------------------------


async def test_a_connection_whose_request_is_given_up_is_reset_and_with_it_what_was_not_delivered() -> None:
    async def talk(line: Line) -> None:
        await line.rest()

    async with served(talk) as peer, client_of(peer, request_timeout=0.3) as client:
        with pytest.raises(NoResponse):
            await client.request("POST", "/binding", b"{}")
        await until(lambda: any(line.ended for line in peer.lines))
        assert peer.lines[0].reset


async def test_the_kernel_drops_what_it_cannot_deliver_within_the_timeout_of_a_request() -> None:
    async with served(polite) as peer, client_of(peer, request_timeout=1.5) as client:
        await client.request("POST", "/binding", b"{}")
        assert _patience(peer.port) == [1500]


def _patience(port: int) -> list[int]:
    """Milliseconds after which this process's connections to a port are dropped where nothing is received."""
    found = list[int]()
    for number in sorted(int(name) for name in os.listdir("/proc/self/fd")):  # noqa: PTH208
        try:
            if not os.readlink(f"/proc/self/fd/{number}").startswith("socket:"):  # noqa: PTH115
                continue
        except OSError:  # it was that of the folder itself
            continue
        one = socket.socket(fileno=os.dup(number))
        with one, contextlib.suppress(OSError):  # it listens, or is not connected
            if one.family == socket.AF_INET and one.getpeername()[1] == port:
                found.append(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
    return found

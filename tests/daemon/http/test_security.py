"""Metrics by TLS and for who has a token: through the daemon's ports, and the API server's reviews."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import cast

import aiohttp
import pytest
from structlog.testing import capture_logs

from tests.kube.scripted import until
from tests.serving.pairs import name_of, trusting, write_pair
from tests.view.cluster import Roles, client_of
from tests.waiting import WAIT_LIMIT
from vcd.daemon.http.endpoints import serve_metrics
from vcd.daemon.http.security import Security
from vcd.daemon.metrics.metrics_collector import Metrics
from vcd.daemon.options import parse_options
from vcd.kube.client import KubeClient
from vcd.kube.kube_connection import ConfigurationError
from vcd.serving.connection_limits import CONNECTIONS

NOBODY = cast(KubeClient, None)
RIGHTS = {"prometheus": ["get on the nonResourceURL /metrics"], "ann": ["get on the nonResourceURL /vcd/page"]}


def secured(client: KubeClient, refused: Callable[[], None] = lambda: None, **flags: object) -> Security:
    given = {name.replace("_", "-"): [str(value)] for name, value in flags.items()}
    return Security(parse_options(given), client, refused)


@asynccontextmanager
async def serving(security: Security) -> AsyncIterator[int]:
    """The port of the metrics."""
    options = parse_options({"listen-address": ["127.0.0.1:0"], "healthz-address": ["127.0.0.1:0"]})
    async with serve_metrics(options, Metrics(), security) as port:
        assert port is not None
        yield port


async def get(port: int, scheme: str = "http", token: str = "") -> tuple[int, str, aiohttp.ClientResponse]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting())) as session,
        session.get(f"{scheme}://127.0.0.1:{port}/metrics", headers=headers) as response,
    ):
        return response.status, await response.text(), response


async def shown(port: int, **options: str) -> str:
    """The certificate that a new connection is shown."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting(), **options)
    found = name_of(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
    writer.close()
    await writer.wait_closed()
    return found


# --- tokens -----------------------------------------------------------------------------------------------------------


async def test_without_the_flag_nobody_needs_a_token() -> None:
    async with serving(secured(NOBODY)) as port:
        assert (await get(port))[0] == 200


async def test_with_it_a_token_of_who_may_get_metrics_is_needed(tmp_path: Path) -> None:
    async with client_of(RIGHTS, tmp_path) as (client, server):
        server.permit = Roles(RIGHTS).permit
        async with serving(secured(client, metrics_require_token="true")) as port:
            status, text, response = await get(port)
            assert (status, response.headers["WWW-Authenticate"]) == (401, "Bearer")
            assert text == "a bearer token is needed; kubectl create token NAME makes one"
            assert (await get(port, token="nobody"))[0] == 401
            status, text, _ = await get(port, token="ann")
            refusal = "ann may not read the metrics; get on the nonResourceURL /metrics is required"
            assert (status, text) == (403, refusal)
            status, text, _ = await get(port, token="prometheus")
            assert status == 200 and "vcd_leader" in text


async def test_scrapes_are_reviewed_once_a_minute(tmp_path: Path) -> None:
    async with client_of(RIGHTS, tmp_path) as (client, server):
        roles = Roles(RIGHTS)
        server.permit = roles.permit
        async with serving(secured(client, metrics_require_token="true")) as port:
            for _ in range(5):
                assert (await get(port, token="prometheus"))[0] == 200
        assert roles.asked == [("prometheus", "get on the nonResourceURL /metrics")]


async def test_a_review_that_fails_shows_nobody_the_metrics(tmp_path: Path) -> None:
    async with client_of(RIGHTS, tmp_path) as (client, server):
        roles = Roles(RIGHTS)
        server.permit, roles.fails = roles.permit, True
        async with serving(secured(client, metrics_require_token="true")) as port:
            status, text, _ = await get(port, token="prometheus")
            assert (status, text) == (503, "the API server did not answer about what you may do")


# --- TLS --------------------------------------------------------------------------------------------------------------


def with_pair(folder: Path, refused: Callable[[], None] = lambda: None, name: str = "one", key: str = "") -> Security:
    certificate, private_key = write_pair(folder, name, key)
    flags = {"tls_cert_file": certificate, "tls_private_key_file": private_key, "metrics_secure": "true"}
    return secured(NOBODY, refused, **flags)


async def test_metrics_are_served_by_tls_alone(tmp_path: Path) -> None:
    async with serving(with_pair(tmp_path)) as port:
        assert (await get(port, "https"))[0] == 200
        assert await shown(port) == "one"
        with pytest.raises(aiohttp.ClientError):
            await get(port, "http")


async def test_without_metrics_secure_they_stay_plain(tmp_path: Path) -> None:
    certificate, key = write_pair(tmp_path, "one")
    async with serving(secured(NOBODY, tls_cert_file=certificate, tls_private_key_file=key)) as port:
        assert (await get(port, "http"))[0] == 200


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
async def test_tls_is_1_2_at_least(tmp_path: Path, version: str) -> None:
    security, context = with_pair(tmp_path), trusting()
    context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    async with serving(security) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        assert writer.get_extra_info("ssl_object").version() == version.replace("_", ".")
        writer.close()
        await writer.wait_closed()
    # an older handshake fails anyhow where OpenSSL is configured so, and proves nothing
    assert security.metrics_tls is not None
    assert security.metrics_tls.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("options", [{}, {"server_hostname": "localhost"}], ids=["without a name", "with a name"])
async def test_a_new_certificate_is_shown_once_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    monkeypatch.setattr("vcd.serving.tls.PERIOD", 0.01)
    async with serving(with_pair(tmp_path)) as port, asyncio.timeout(WAIT_LIMIT):
        assert await shown(port, **options) == "one"
        with capture_logs() as logs:
            write_pair(tmp_path, "two")
            await until(lambda: any(line["event"] == "certificate reloaded" for line in logs))
        assert await shown(port, **options) == "two"


async def test_a_bad_new_pair_keeps_the_old_one_and_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vcd.serving.tls.PERIOD", 0.01)
    refused: list[int] = []
    async with serving(with_pair(tmp_path, lambda: refused.append(1))) as port, asyncio.timeout(WAIT_LIMIT):
        with capture_logs() as logs:
            (tmp_path / "tls.crt").write_text("nothing")
            await until(lambda: len(refused) == 1)
            assert await shown(port) == "one"
            (tmp_path / "tls.crt").unlink()
            await until(lambda: len(refused) == 2)
            assert await shown(port) == "one"
            write_pair(tmp_path, "two")
            await until(lambda: any(line["event"] == "certificate reloaded" for line in logs))
        assert await shown(port) == "two"
        told = [line["reason"] for line in logs if line["event"] == "certificate refused; the one in force stays"]
        assert len(told) == len(refused)
        assert f"--tls-cert-file={tmp_path / 'tls.crt'} --tls-private-key-file={tmp_path / 'tls.key'}: " in told[0]
        assert "cannot be read: No such file or directory" in told[1]


@pytest.mark.parametrize(
    ("name", "key", "says"),
    [
        ("one", "two", "the key is not the certificate's; give both of one pair"),
        ("one", "locked", "no certificate in PEM with its key, unencrypted, can be read from them"),
    ],
)
def test_a_bad_pair_at_the_start_is_one_error(tmp_path: Path, name: str, key: str, says: str) -> None:
    where = f"--tls-cert-file={tmp_path}/tls.crt --tls-private-key-file={tmp_path}/tls.key: "
    with pytest.raises(ConfigurationError) as raised:
        with_pair(tmp_path, name=name, key=key)
    assert str(raised.value).startswith(where + says)


@pytest.mark.parametrize("missing", ["tls.crt", "tls.key"])
def test_a_missing_file_is_named(tmp_path: Path, missing: str) -> None:
    certificate, key = write_pair(tmp_path, "one")
    (tmp_path / missing).unlink()
    with pytest.raises(ConfigurationError, match=rf"{missing} cannot be read: No such file or directory$"):
        secured(NOBODY, tls_cert_file=certificate, tls_private_key_file=key)


async def test_who_connects_and_begins_no_handshake_keeps_nobody_out_and_the_oldest_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each holds a file of the process, which needs them to reach the API server."""
    monkeypatch.setattr(
        "vcd.serving.connection_limits.HANDSHAKE_SECONDS", 2 * WAIT_LIMIT
    )  # the bound alone closes them
    loop = asyncio.get_running_loop()
    async with serving(with_pair(tmp_path)) as port, AsyncExitStack() as stack:
        silent = []
        for _ in range(3 * CONNECTIONS):
            connection = stack.enter_context(socket.socket())
            connection.setblocking(False)
            await loop.sock_connect(connection, ("127.0.0.1", port))
            silent.append(connection)
        async with asyncio.timeout(WAIT_LIMIT):
            for connection in silent[:CONNECTIONS]:
                assert await loop.sock_recv(connection, 100) == b""
        assert (await get(port, "https"))[0] == 200

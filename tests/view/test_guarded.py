"""The page where others reach it: by which names, by which certificate, and for whom tokens were made."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from itertools import product
from pathlib import Path
from typing import cast

import aiohttp
import pytest

from tests.serving.pairs import name_of, trusting, write_pair
from tests.view.cluster import Roles, client_of, guarded
from tests.view.pages import asking
from tests.waiting import WAIT_LIMIT
from vcd.daemon.http.security import ApiReviews
from vcd.kube.client import KubeClient
from vcd.serving.connection_limits import CONNECTIONS
from vcd.serving.tls import Certificate
from vcd.view.page_server import View

pytestmark = pytest.mark.usefixtures("patient_page")

RIGHTS = {"root": ["get on the nonResourceURL /vcd/page"]}


# --- names ------------------------------------------------------------------------------------------------------------


TAKEN = (
    *("10.1.2.3", "10.1.2.3:8090", "[fd00::1]:8090", "127.0.0.1", "localhost:8090", "vcd-scheduler-7d9-x2"),
    *("page.volcano-system.svc", "Page.Volcano-System.svc.cluster.local.:8090"),
)
REFUSED = (
    "evil.example",
    "evil.example:8090",
    "10.1.2.3.evil.example",
    "svc.evil.example",
    "evil.svc.example",
    "",
    "a b",
)


async def test_unless_told_hosts_are_taken_that_nobody_can_have_in_the_public_dns(busy: Path) -> None:
    async with guarded(busy, RIGHTS) as (page, _):
        for host in TAKEN:
            assert (await page.get("", Host=host))[0] == 200, host
            assert (await page.get("api/head", Host=host, Authorization="Bearer root"))[0] == 200, host


async def test_a_host_that_somebody_may_own_is_refused(busy: Path) -> None:
    async with guarded(busy, RIGHTS) as (page, _):
        for host, path in product(REFUSED, ("", "app.js", "api/head")):
            status, sentence = await page.error(path, Host=host, Authorization="Bearer root")
            assert (status, sentence) == (403, f"Host {host!r} is not a host of this page; --page-host adds one")


async def test_with_hosts_these_are_taken_and_no_other(busy: Path) -> None:
    async with guarded(busy, RIGHTS, hosts=["vcd.example.com", "Page.Example.com"]) as (page, _):
        for host in ("vcd.example.com", "VCD.example.com:443", "page.example.com"):
            assert (await page.get("", Host=host))[0] == 200
        for host in ("10.1.2.3", "localhost", "page.volcano-system.svc", "example.com", "a.vcd.example.com"):
            assert (await page.get("", Host=host))[0] == 403


async def test_on_this_machine_alone_only_its_own_names_are_taken(busy: Path) -> None:
    async with asking(busy, hosts=["vcd.example.com"]) as page:
        assert (await page.get("", Host="localhost"))[0] == 200
        assert (await page.get("", Host="vcd.example.com"))[0] == 403


# --- TLS --------------------------------------------------------------------------------------------------------------


async def test_others_get_the_page_by_tls_with_the_newest_certificate(
    busy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vcd.serving.tls.PERIOD", 0.01)
    certificate = Certificate(*write_pair(tmp_path, "one"))
    async with (
        asyncio.timeout(WAIT_LIMIT),
        client_of(RIGHTS, tmp_path) as (client, server),
        View(busy, "0.0.0.0", reviews=ApiReviews(client), tls=certificate.context) as view,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting())) as http,
    ):
        server.permit = Roles(RIGHTS).permit
        assert view.url == f"https://0.0.0.0:{view.port}/"
        url, headers = f"https://127.0.0.1:{view.port}/api/head", {"Authorization": "Bearer root"}
        async with http.get(url, headers=headers) as answer:
            assert (answer.status, (await answer.json())["last"]) == (200, 8)
        with pytest.raises(aiohttp.ClientError):
            await http.get(url.replace("https:", "http:"), headers=headers)
        assert await shown(view.port) == "one"
        following = asyncio.create_task(certificate.follow(lambda: None))
        write_pair(tmp_path, "two")
        while await shown(view.port) != "two":
            pass
        following.cancel()


async def shown(port: int) -> str:
    """The certificate that a new connection is shown."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting())
    found = name_of(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
    writer.close()
    await writer.wait_closed()
    return found


async def test_this_machine_gets_it_plain(busy: Path, tmp_path: Path) -> None:
    certificate = Certificate(*write_pair(tmp_path, "one"))
    async with asking(busy, tls=certificate.context) as page:
        assert page.view.url.startswith("http://127.0.0.1:")
        assert (await page.get("api/head"))[0] == 200


# --- audiences --------------------------------------------------------------------------------------------------------


async def test_a_token_must_be_made_for_the_page_where_it_has_an_audience(busy: Path) -> None:
    users = {**RIGHTS, "both": RIGHTS["root"], "elsewhere": RIGHTS["root"]}
    made_for = {"both": ("vcd", "vault"), "elsewhere": ("vault",)}
    async with guarded(busy, users, audiences=("vcd",), made_for=made_for) as (page, _):
        told = {user: (await page.get("api/head", Authorization=f"Bearer {user}"))[0] for user in users}
    assert told == {"root": 401, "both": 200, "elsewhere": 401}


async def test_without_an_audience_tokens_for_the_api_server_are_taken_and_no_other(busy: Path) -> None:
    users = {**RIGHTS, "elsewhere": RIGHTS["root"]}
    async with guarded(busy, users, made_for={"elsewhere": ("vault",)}) as (page, _):
        told = {user: (await page.get("api/head", Authorization=f"Bearer {user}"))[0] for user in users}
    assert told == {"root": 200, "elsewhere": 401}


async def test_a_server_that_knows_nothing_of_audiences_lets_nobody_in(busy: Path) -> None:
    async with guarded(busy, RIGHTS, audiences=("vcd",), minds_audiences=False) as (page, _):
        assert (await page.get("api/head", Authorization="Bearer root"))[0] == 401


# --- who connects and says nothing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_who_connects_and_says_nothing_keeps_nobody_out_and_the_oldest_go(
    busy: Path, tmp_path: Path, tls: bool
) -> None:
    """The page is in the scheduler's process, which needs files to reach the API server."""
    loop = asyncio.get_running_loop()
    context = Certificate(*write_pair(tmp_path, "one")).context if tls else None
    reviews = ApiReviews(cast(KubeClient, None))
    async with View(busy, "0.0.0.0", reviews=reviews, tls=context) as view, AsyncExitStack() as stack:
        silent = []
        for _ in range(3 * CONNECTIONS):
            connection = stack.enter_context(socket.socket())
            connection.setblocking(False)
            await loop.sock_connect(connection, ("127.0.0.1", view.port))
            silent.append(connection)
        async with asyncio.timeout(WAIT_LIMIT):
            for connection in silent[:CONNECTIONS]:
                assert await loop.sock_recv(connection, 100) == b""
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting())) as session,
            session.get(f"http{'s' * tls}://127.0.0.1:{view.port}/") as response,
        ):
            assert response.status == 200

"""The page over HTTP: what is served, to whom, with which headers; and the process that answers."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest

from tests.kube.scripted import until
from tests.view.pages import Asker, asking
from vcd.serving.access_rights import Access
from vcd.serving.authorization import KEPT_SECONDS, MOST_A_SECOND, MOST_AT_ONCE, REFUSED_SECONDS
from vcd.serving.host_header import is_local
from vcd.view.page_server import View, ViewError

MODULES = [file.name for file in resources.files("vcd.view").joinpath("static").iterdir() if file.name.endswith(".js")]

pytestmark = pytest.mark.usefixtures("patient_page")


@pytest.fixture
async def page(busy: Path) -> AsyncIterator[Asker]:
    """Its page, on this machine."""
    async with asking(busy) as asker:
        yield asker


class Known(NamedTuple):
    """Somebody whom the API server knows."""

    name: str


class Reviewer:
    """Stands for the API server: knows a reader's token and that of somebody who may do nothing, notes the tokens that
    it is asked about, fails while told to, and answers once it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fails = False
        self.answers = asyncio.Event()
        self.answers.set()

    async def who(self, token: str) -> Known | None:
        self.asked.append(token)
        await self.answers.wait()
        if self.fails:
            raise OSError("connection refused")
        name = {"good": "ann", "other": "bob"}.get(token)
        return None if name is None else Known(name)

    async def may(self, who: Known, access: Access) -> bool:
        return who.name == "ann" and access.path == "/vcd/page"


# --- what is served ---------------------------------------------------------------------------------------------------


async def test_every_question_is_answered_by_the_process(page: Asker) -> None:
    assert (await page.data("head"))["last"] == 8
    assert len(await page.data("sessions?from=2&to=4")) == 3
    assert (await page.data("overview?session=3"))["session"] == 3
    assert (await page.data("session?number=3"))["session"] == 3
    assert (await page.data("job?key=default/large"))["key"] == "default/large"
    assert (await page.data("eta?key=default/large"))["key"] == "default/large"
    assert (await page.data("at?time=1m"))["session"] == 7
    assert [pod["job"] for pod in (await page.data("node?name=n4"))["pods"]] == ["default/large"] * 3
    assert (await page.data("whatif?key=default/third&queue=default"))["lines"][0][1].startswith("with queue default ")


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("whatif?key=default/third", 400, "state a change: queue=NAME, or priority=NAME"),
        ("whatif?key=default/third&queue=smal", 404, "there is no Queue smal in the log; did you mean small?"),
        ("whatif?key=default/third&queue=small", 400, "'queue small' changes nothing"),
        ("node?name=n44", 404, "session 8 has no node n44; did you mean n4?"),
        ("at?time=noon", 400, "'noon' is not a time; write one such as"),
        ("at?time=2020-01-01T00:00:00Z", 404, "no session is at or before 2020-01-01"),
    ],
)
async def test_what_cannot_be_answered_is_said(page: Asker, path: str, status: int, words: str) -> None:
    code, sentence = await page.error(f"api/{path}")
    assert (code, words in sentence) == (status, True), sentence


async def test_a_question_that_takes_too_long_is_given_up(page: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await page.data("head"))["last"] == 8
    worker = page.view._worker._pool
    monkeypatch.setattr("vcd.view.page_worker.LIMIT", 0.0)
    assert await page.error("api/head") == (503, "the answer takes more than 0 s; try again later")
    monkeypatch.undo()
    assert (await page.data("head"))["last"] == 8
    assert page.view._worker._pool is not worker  # the process that would have worked on is gone


async def test_a_forecast_keeps_nobody_waiting(page: Asker) -> None:
    await page.data("eta?key=default/large")
    assert page.view._worker._pool is None  # it has a process of its own
    assert page.view._patient._pool is not None


async def test_mistakes_are_said_in_json(page: Asker) -> None:
    assert await page.error("api/overview?session=x") == (
        400,
        "session: 'x' is not a session's number; write one such as session=1",
    )
    assert await page.error("api/overview?number=3") == (
        400,
        "/api/overview has no parameter 'number'; it takes session",
    )
    assert await page.error("api/head?x=1") == (400, "/api/head has no parameter 'x'; it takes none")
    assert await page.error("api/none") == (404, "there is no page /api/none")
    assert await page.error("static/../server.py") == (404, "there is no page /server.py")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_the_page_only_reads(page: Asker, method: str) -> None:
    assert await page.error("api/head", method) == (405, f"{method} is not allowed: the page only reads")


async def test_head_is_answered_without_a_body(page: Asker) -> None:
    status, body, headers = await page.get("", "HEAD")
    assert (status, body) == (200, "")
    assert int(headers["Content-Length"]) > 1000


@pytest.mark.parametrize(
    ("path", "kind", "caching"),
    [
        ("", "text/html; charset=utf-8", "no-cache"),
        ("app.js", "text/javascript; charset=utf-8", "no-cache"),
        ("style.css", "text/css; charset=utf-8", "no-cache"),
        ("icon.svg", "image/svg+xml; charset=utf-8", "no-cache"),
        ("api/head", "application/json", "no-store"),
        ("api/none", "application/json", "no-store"),
    ],
)
async def test_every_answer_has_its_headers(page: Asker, path: str, kind: str, caching: str) -> None:
    _, _, headers = await page.get(path)
    assert headers["Content-Type"].removesuffix("; charset=utf-8") == kind.removesuffix("; charset=utf-8")
    assert headers["Cache-Control"] == caching
    assert headers["Content-Security-Policy"].startswith("default-src 'self';")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Server"] == "vcd"
    assert "Access-Control-Allow-Origin" not in headers


async def test_the_page_takes_nothing_from_elsewhere_and_has_no_inline_script(page: Asker) -> None:
    _, html, _ = await page.get("")
    assert '<script type="module" src="app.js"></script>' in html
    assert html.count("<script") == 1
    assert "style=" not in html and "onclick" not in html
    for name in ("", *MODULES, "style.css"):
        _, text, _ = await page.get(name)
        assert "http://" not in text and "https://" not in text
        assert "innerHTML" not in text and "insertAdjacentHTML" not in text and "document.write" not in text


# --- to whom ----------------------------------------------------------------------------------------------------------


async def test_a_foreign_host_is_refused_on_this_machine(page: Asker) -> None:
    for host in ("evil.example", "evil.example:8090", "127.0.0.1.evil.example", "", "[::2]:8090"):
        for path in ("", "api/head"):
            status, sentence = await page.error(path, Host=host)
            assert (status, sentence) == (403, f"Host {host!r} is not this machine; open the page as http://localhost")


async def test_this_machines_names_are_served(page: Asker) -> None:
    for host in ("localhost", "LOCALHOST:9999", "127.0.0.1:1", "127.8.8.8", "[::1]:8090"):
        assert (await page.get("", Host=host))[0] == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_page_elsewhere_has_no_browser_ask(page: Asker, site: str) -> None:
    sentence = f"requests of other websites are refused (Sec-Fetch-Site: {site}); open the address itself"
    for path in ("api/head", "api/overview?session=3", "api/none"):
        assert await page.error(path, **{"Sec-Fetch-Site": site}) == (403, sentence)
    assert (await page.get("", **{"Sec-Fetch-Site": site}))[0] == 200  # a link to the page


@pytest.mark.parametrize("site", ["none", "same-origin"])
async def test_the_page_itself_and_who_opens_an_address_are_answered(page: Asker, site: str) -> None:
    assert (await page.get("api/head", **{"Sec-Fetch-Site": site}))[0] == 200


def test_what_only_this_machine_reaches() -> None:
    assert [host for host in ("127.0.0.1", "localhost", "::1", "127.1.2.3") if not is_local(host)] == []
    assert [
        host for host in ("", "0.0.0.0", "::", "10.0.0.1", "node-1", "localhost.evil.example") if is_local(host)
    ] == []


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
async def test_elsewhere_it_does_not_start_without_a_review(busy: Path, host: str) -> None:
    with pytest.raises(ViewError, match=r"--address .*:0: others could read the log there, and nothing reviews"):
        await View(busy, host).__aenter__()


async def test_elsewhere_a_token_is_needed(busy: Path) -> None:
    reviewer = Reviewer()
    async with asking(busy, "0.0.0.0", reviews=reviewer) as page:
        status, sentence = await page.error("api/head")
        assert (status, sentence) == (401, "a bearer token is needed; kubectl create token NAME makes one")
        _, _, headers = await page.get("api/head")
        assert headers["WWW-Authenticate"] == "Bearer"
        assert (await page.error("api/head", Authorization="Basic good"))[0] == 401
        assert (await page.error("api/head", Authorization="Bearer "))[0] == 401
        assert reviewer.asked == []
        assert (await page.get("api/head", Authorization="Bearer good"))[0] == 200
        assert (await page.get("api/head", Authorization="bearer good"))[0] == 200
        status, sentence = await page.error("api/head", Authorization="Bearer bad")
        assert (status, sentence) == (401, "the API server does not know this token here; it may have expired")


async def test_the_page_itself_holds_no_data_and_needs_no_token(busy: Path) -> None:
    async with asking(busy, "0.0.0.0", reviews=Reviewer()) as page:
        assert (await page.get(""))[0] == 200
        assert (await page.get("app.js"))[0] == 200


async def test_a_review_is_kept_for_a_minute(busy: Path) -> None:
    reviewer, clock = Reviewer(), [1000.0]
    async with asking(busy, "0.0.0.0", reviews=reviewer, now=lambda: clock[0]) as page:
        for _ in range(3):
            await page.get("api/head", Authorization="Bearer good")
            await page.get("api/head", Authorization="Bearer bad")
        assert sorted(reviewer.asked) == ["bad", "good"]
        clock[0] += KEPT_SECONDS - 1
        await page.get("api/head", Authorization="Bearer good")
        assert len(reviewer.asked) == 2
        clock[0] += 1
        await page.get("api/head", Authorization="Bearer good")
        assert reviewer.asked[2:] == ["good"]


async def test_who_is_known_and_may_see_nothing_is_told_what_is_missing(busy: Path) -> None:
    """To be somebody in the cluster is not enough: names of all jobs and queues are on the page."""
    async with asking(busy, "0.0.0.0", reviews=Reviewer()) as page:
        status, sentence = await page.error("api/overview", Authorization="Bearer other")
        assert status == 403
        assert sentence.startswith(
            "bob may see nothing of session 8: it takes list podgroups.scheduling.volcano.sh in "
        )
        assert sentence.endswith(", or for everything get on the nonResourceURL /vcd/page")


async def test_a_refusal_is_kept_for_a_shorter_time(busy: Path) -> None:
    reviewer, clock = Reviewer(), [1000.0]
    async with asking(busy, "0.0.0.0", reviews=reviewer, now=lambda: clock[0]) as page:
        for token in ("bad", "bad"):
            await page.get("api/head", Authorization=f"Bearer {token}")
        assert reviewer.asked == ["bad"]
        clock[0] += REFUSED_SECONDS
        assert (await page.get("api/head", Authorization="Bearer bad"))[0] == 401
        assert len(reviewer.asked) == 2


async def test_one_token_is_reviewed_once_however_many_questions_wait_for_it(busy: Path) -> None:
    reviewer = Reviewer()
    reviewer.answers.clear()
    async with asking(busy, "0.0.0.0", reviews=reviewer) as page:
        questions = [asyncio.create_task(page.get("api/head", Authorization="Bearer good")) for _ in range(8)]
        await until(lambda: reviewer.asked)
        reviewer.answers.set()
        assert {status for status, _, _ in await asyncio.gather(*questions)} == {200}
    assert reviewer.asked == ["good"]


async def test_reviews_under_way_are_bounded(busy: Path) -> None:
    reviewer = Reviewer()
    reviewer.answers.clear()
    async with asking(busy, "0.0.0.0", reviews=reviewer) as page:
        tokens = [f"guess-{number}" for number in range(MOST_AT_ONCE)]
        questions = [asyncio.create_task(page.get("api/head", Authorization=f"Bearer {token}")) for token in tokens]
        await until(lambda: len(reviewer.asked) == MOST_AT_ONCE)
        status, _, headers = await page.get("api/head", Authorization="Bearer one-more")
        assert (status, headers["Retry-After"]) == (429, "1")
        reviewer.answers.set()
        assert {status for status, _, _ in await asyncio.gather(*questions)} == {401}
    assert len(reviewer.asked) == MOST_AT_ONCE


async def test_reviews_of_new_tokens_in_a_second_are_bounded_and_a_good_one_goes_on(busy: Path) -> None:
    reviewer, clock = Reviewer(), [1000.0]
    async with asking(busy, "0.0.0.0", reviews=reviewer, now=lambda: clock[0]) as page:
        assert (await page.get("api/head", Authorization="Bearer good"))[0] == 200
        clock[0] += KEPT_SECONDS
        told = [
            (await page.get("api/head", Authorization=f"Bearer {number}"))[0] for number in range(2 * MOST_A_SECOND)
        ]
        assert told == [401] * MOST_A_SECOND + [429] * MOST_A_SECOND
        assert (await page.get("api/head", Authorization="Bearer good"))[0] == 200
        clock[0] += 1
        assert (await page.get("api/head", Authorization="Bearer 999"))[0] == 401


async def test_who_guesses_elsewhere_keeps_nobody_out(busy: Path) -> None:
    reviewer, clock = Reviewer(), [1000.0]
    async with asking(busy, "0.0.0.0", reviews=reviewer, now=lambda: clock[0]) as page:
        guesses = [await page.get("api/head", Authorization=f"Bearer {number}") for number in range(MOST_A_SECOND + 1)]
        assert guesses[-1][0] == 429
        reviewer.answers.clear()
        clock[0] += 1
        stuck = [
            asyncio.create_task(page.get("api/head", Authorization=f"Bearer a{number}"))
            for number in range(MOST_AT_ONCE)
        ]
        await until(lambda: len(reviewer.asked) == MOST_A_SECOND + MOST_AT_ONCE)
        elsewhere = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
        async with aiohttp.ClientSession(connector=elsewhere) as http:
            good = asyncio.create_task(Asker(page.view, http).get("api/head", Authorization="Bearer good"))
            await until(lambda: reviewer.asked[-1] == "good" or good.done())
            reviewer.answers.set()
            assert (await good)[0] == 200
        assert {status for status, _, _ in await asyncio.gather(*stuck)} == {401}


async def test_what_can_be_no_token_is_not_reviewed(busy: Path) -> None:
    reviewer = Reviewer()
    async with asking(busy, "0.0.0.0", reviews=reviewer) as page:
        assert (await page.error("api/head", Authorization="Bearer gu\u00e9ss"))[0] == 401
    assert reviewer.asked == []


async def test_a_review_that_fails_lets_nobody_in_and_is_not_kept(busy: Path) -> None:
    reviewer = Reviewer()
    async with asking(busy, "0.0.0.0", reviews=reviewer) as page:
        reviewer.fails = True
        assert await page.error("api/head", Authorization="Bearer good") == (
            503,
            "the API server did not answer about the token",
        )
        reviewer.fails = False
        assert (await page.get("api/head", Authorization="Bearer good"))[0] == 200


# --- the process ------------------------------------------------------------------------------------------------------


def worker_of(asker: Asker) -> int:
    """The process that answers."""
    (pid,) = asker.view._worker._pool._processes  # type: ignore[union-attr]
    return int(pid)


async def test_a_process_that_dies_is_replaced(page: Asker) -> None:
    await page.data("head")
    first = worker_of(page)
    os.kill(first, signal.SIGKILL)
    while (answer := await page.get("api/head"))[0] != 200:
        assert answer[:2] == (503, {"error": "the worker process ended; try again"})
    assert worker_of(page) != first


async def test_ctrl_c_is_not_for_the_process(page: Asker) -> None:
    await page.data("head")
    os.kill(worker_of(page), signal.SIGINT)
    first = worker_of(page)
    assert (await page.data("head"))["last"] == 8
    assert worker_of(page) == first


async def test_the_process_ends_with_the_page(busy: Path) -> None:
    async with asking(busy) as page:
        await page.data("head")
        pid = worker_of(page)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_an_address_that_is_taken_is_named(busy: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ViewError, match=rf"--address 127\.0\.0\.1:{port}: .*; give another port"):
            await View(busy, "127.0.0.1", port).__aenter__()


async def test_the_address_can_be_opened(busy: Path) -> None:
    async with View(busy) as view:
        assert view.url == f"http://127.0.0.1:{view.port}/"
        _, writer = await asyncio.open_connection("127.0.0.1", view.port)
        writer.close()
        await writer.wait_closed()

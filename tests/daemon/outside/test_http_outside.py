"""Questions over HTTP: what comes back when a server answers, and when it does anything else."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.daemon.answering import Answering, Request, nobodys_url, server
from tests.kube.scripted import until
from tests.waiting import WAIT_LIMIT
from vcd.daemon.outside.http_outside import AT_ONCE, HttpOutside
from vcd.scheduling.session.outside import OUT_OF_TIME, Question, Reply

MS = 1_000_000
LONG = 600_000 * MS
"""A time-out that no test reaches."""


@pytest.fixture
def told() -> Iterator[Answering]:
    with server() as answering:
        yield answering


@pytest.fixture
def asking() -> Iterator[HttpOutside]:
    """On an event loop in another thread, as the deciding thread has it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    made = asyncio.run_coroutine_threadsafe(_made(), loop).result(WAIT_LIMIT)
    yield made
    asyncio.run_coroutine_threadsafe(made.close(), loop).result(WAIT_LIMIT)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def _made() -> HttpOutside:
    return HttpOutside()


def question(url: str, body: bytes = b"{}", timeout: int = LONG, limit: int = 1000) -> Question:
    return Question("extender", url, body, timeout, limit)


def test_the_body_is_posted_as_json_and_the_answer_comes_back(told: Answering, asking: HttpOutside) -> None:
    told.answer = lambda request: (200, request.body + b"!")
    assert asking.ask(question(f"{told.url}/predicate?x=1", b'{"a":1}')) == Reply(b'{"a":1}!')
    (request,) = told.requests
    assert (request.method, request.path) == ("POST", "/predicate?x=1")
    assert request.headers["Content-Type"] == "application/json"
    assert "Authorization" not in request.headers


def test_one_connection_serves_many_questions(told: Answering, asking: HttpOutside) -> None:
    for number in range(5):
        assert not asking.ask(question(f"{told.url}/{number}")).error
    assert (told.connections, [request.path for request in told.requests]) == (1, [f"/{n}" for n in range(5)])


def test_user_and_password_of_the_url_become_a_header(told: Answering, asking: HttpOutside) -> None:
    asking.ask(question(told.url.replace("http://", "http://me:p%40ss@")))
    assert told.requests[0].headers["Authorization"] == "Basic " + base64.b64encode(b"me:p@ss").decode()
    assert told.requests[0].headers["Host"] == told.url.removeprefix("http://")


@pytest.mark.parametrize("status", [201, 204, 302, 404, 500])
def test_another_status_than_200_is_an_error(told: Answering, asking: HttpOutside, status: int) -> None:
    told.answer = lambda _: (status, b"" if status == 204 else b"why")
    assert asking.ask(question(told.url)) == Reply(error=f"HTTP {status}")
    told.answer = lambda _: (200, b"well")
    assert asking.ask(question(told.url)) == Reply(b"well")


def test_an_answer_of_the_largest_size_is_taken(told: Answering, asking: HttpOutside) -> None:
    told.answer = lambda _: (200, b"x" * 1000)
    assert len(asking.ask(question(told.url)).body) == 1000


def test_an_answer_that_is_too_large_is_an_error(told: Answering, asking: HttpOutside) -> None:
    told.answer = lambda _: (200, b"x" * 1001)
    assert asking.ask(question(told.url)) == Reply(error="the answer has more than 1000 bytes")


def test_an_endless_answer_is_cut_at_the_limit(told: Answering, asking: HttpOutside) -> None:
    told.raw = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 100_000
    assert asking.ask(question(told.url)) == Reply(error="the answer has more than 1000 bytes")


def test_an_answer_that_breaks_off_is_an_error(told: Answering, asking: HttpOutside) -> None:
    told.raw = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}"
    assert asking.ask(question(told.url)) == Reply(error="the answer was cut off")


@pytest.mark.parametrize("raw", [b"", b"\x00\xff\r\n\r\n", b"SSH-2.0-OpenSSH\r\n"])
def test_what_is_no_http_is_an_error(told: Answering, asking: HttpOutside, raw: bytes) -> None:
    told.raw = raw
    reply = asking.ask(question(told.url))
    assert (reply.body, bool(reply.error)) == (b"", True)


def test_where_nobody_listens_it_is_an_error(asking: HttpOutside) -> None:
    assert "ConnectionRefusedError" in asking.ask(question(nobodys_url())).error


@pytest.mark.parametrize("url", ["", "server:80/x", "ftp://server/x", "http://", "http://server:port/", "http://a b/"])
def test_an_address_that_is_none_is_an_error(asking: HttpOutside, url: str) -> None:
    assert asking.ask(question(url)).error.startswith("the address cannot be queried: ")


def test_errors_name_no_password(asking: HttpOutside) -> None:
    url = nobodys_url().replace("http://", "http://me:secret@")
    assert "secret" not in asking.ask(question(url)).error


def test_a_server_that_hangs_costs_the_time_out(told: Answering, asking: HttpOutside) -> None:
    told.answer = told.hang
    began = time.monotonic()
    assert asking.ask(question(told.url, timeout=50 * MS)) == Reply(error="no answer within 50ms")
    assert time.monotonic() - began >= 0.05
    told.released.set()
    told.answer = lambda _: (200, b"on time")
    assert asking.ask(question(told.url)) == Reply(b"on time")  # not the late answer to the question before


def test_a_server_that_trickles_costs_the_time_out(asking: HttpOutside) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        stop = threading.Event()
        thread = threading.Thread(target=_trickle, args=(listening, stop), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        assert asking.ask(question(url, timeout=200 * MS)).error == "no answer within 200ms"
        stop.set()
        thread.join()


def _trickle(listening: socket.socket, stop: threading.Event) -> None:
    """Each byte comes long before a time-out of the socket alone would strike."""
    connection, _ = listening.accept()
    with connection:
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while not stop.wait(0.01):
            try:
                connection.sendall(b"x")
            except OSError:
                return


def test_a_name_that_takes_long_to_look_up_costs_the_time_out(
    asking: HttpOutside, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()

    def slowly(*_: object, **__: object) -> list[object]:
        released.wait(WAIT_LIMIT)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", slowly)
    assert asking.ask(question("http://server/", timeout=50 * MS)) == Reply(error="no answer within 50ms")
    assert asking.ask(question(nobodys_url())).error  # nobody else waits for it
    released.set()


def test_a_connection_that_the_server_dropped_is_made_again(asking: HttpOutside) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        dropped = threading.Event()
        thread = threading.Thread(target=_once_each, args=(listening, dropped), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        assert asking.ask(question(url)) == Reply(b"1")
        assert dropped.wait(WAIT_LIMIT)
        assert asking.ask(question(url)) == Reply(b"2")
        thread.join()


def _once_each(listening: socket.socket, dropped: threading.Event) -> None:
    """Answer once on each of two connections, promising to keep it, and drop it."""
    for number in (b"1", b"2"):
        connection, _ = listening.accept()
        with connection:
            received = b""
            while not received.endswith(b"\r\n\r\n{}"):
                received += connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" + number)
            connection.shutdown(socket.SHUT_RDWR)
        dropped.set()


async def test_the_event_loop_turns_while_a_server_hangs(told: Answering) -> None:
    asking = HttpOutside()
    told.answer = told.hang
    waiting = asyncio.get_running_loop().create_task(asyncio.to_thread(asking.ask, question(told.url)))
    await until(told.hanging.is_set)  # a loop that is blocked does not come here
    assert not waiting.done()
    told.released.set()
    assert await waiting == Reply(b"late")
    await asking.close()


async def test_closing_ends_what_is_being_asked(told: Answering) -> None:
    asking = HttpOutside()
    told.answer = told.hang
    waiting = asyncio.get_running_loop().create_task(asyncio.to_thread(asking.ask, question(told.url)))
    await until(told.hanging.is_set)
    await asking.close()
    assert await asyncio.wait_for(waiting, WAIT_LIMIT) == Reply(error="stopping")
    assert asking.ask(question(told.url)) == Reply(error="stopping")


async def test_it_leaves_nothing_behind(told: Answering) -> None:
    asking, mine = HttpOutside(), asyncio.all_tasks()
    await asyncio.to_thread(asking.ask, question(told.url))
    told.answer = told.hang
    await asyncio.to_thread(asking.ask, question(told.url, timeout=50 * MS))
    await asking.close()
    await until(lambda: asyncio.all_tasks() == mine)


async def test_who_waits_is_looked_after_and_may_be_interrupted(told: Answering) -> None:
    """What it asked is given up with it."""

    class Enough(BaseException):
        pass

    def look() -> None:
        if told.hanging.is_set():
            raise Enough

    asking, mine = HttpOutside(look), asyncio.all_tasks()
    told.answer = told.hang
    waiting = asyncio.ensure_future(asyncio.to_thread(asking.ask, question(told.url)))
    with pytest.raises(Enough):
        await asyncio.wait_for(waiting, WAIT_LIMIT)
    await until(lambda: asyncio.all_tasks() == mine)
    await asking.close()


def test_json_of_any_size_is_sent(told: Answering, asking: HttpOutside) -> None:
    sizes: list[int] = []

    def measure(request: Request) -> tuple[int, bytes]:
        sizes.append(len(json.loads(request.body)["x"]))
        return 200, b"{}"

    answer: Callable[[Request], tuple[int, bytes]] = measure
    told.answer = answer
    asking.ask(question(told.url, json.dumps({"x": "y" * 3_000_000}).encode()))
    assert sizes == [3_000_000]


# --- many at once -----------------------------------------------------------------------------------------------------


class Gauge:
    """Answers by the request's path once as many are under way as a test waits for."""

    def __init__(self, wanted: int) -> None:
        self.most = 0
        self._under_way = 0
        self._wanted = wanted
        self._changed = threading.Condition()

    def __call__(self, request: Request) -> tuple[int, bytes]:
        with self._changed:
            self._under_way += 1
            self.most = max(self.most, self._under_way)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.most >= self._wanted, WAIT_LIMIT)
            self._under_way -= 1
        return 200, request.path.encode()


@pytest.mark.parametrize("count", [3, AT_ONCE, 50])
def test_questions_are_asked_side_by_side_and_answered_in_their_order(
    told: Answering, asking: HttpOutside, count: int
) -> None:
    gauge = Gauge(min(count, AT_ONCE))
    told.answer = gauge
    replies = asking.ask_all([question(f"{told.url}/{number}") for number in range(count)], LONG)
    assert replies == [Reply(f"/{number}".encode()) for number in range(count)]
    assert (gauge.most, told.connections) == (min(count, AT_ONCE), min(count, AT_ONCE))


@pytest.mark.parametrize(("count", "timeout"), [(1000, 100 * MS), (40, LONG)])
def test_a_silent_server_costs_all_questions_together_no_more_than_they_may_take(
    told: Answering, asking: HttpOutside, count: int, timeout: int
) -> None:
    """A thousand questions to a server that is silent took as many time-outs, one after the other."""
    told.answer = told.hang
    began = time.monotonic()
    replies = asking.ask_all([question(told.url, timeout=timeout) for _ in range(count)], 500 * MS)
    assert time.monotonic() - began >= 0.5
    assert {reply.error for reply in replies} <= {"no answer within 100ms", OUT_OF_TIME}
    assert replies[-1] == Reply(error=OUT_OF_TIME)


def test_one_that_hangs_holds_up_no_other(told: Answering, asking: HttpOutside) -> None:
    told.answer = lambda request: told.hang(request) if request.path == "/3" else (200, request.path.encode())
    timeouts = {3: 300 * MS}
    replies = asking.ask_all([question(f"{told.url}/{n}", timeout=timeouts.get(n, LONG)) for n in range(40)], LONG)
    assert {n: reply.error for n, reply in enumerate(replies) if reply.error} == {3: "no answer within 300ms"}
    assert replies[39] == Reply(b"/39")


async def test_closing_ends_all_that_is_being_asked(told: Answering) -> None:
    asking = HttpOutside()
    told.answer = told.hang
    questions = [question(told.url) for _ in range(3 * AT_ONCE)]
    waiting = asyncio.get_running_loop().create_task(asyncio.to_thread(asking.ask_all, questions, LONG))
    await until(told.hanging.is_set)
    await asking.close()
    assert await asyncio.wait_for(waiting, WAIT_LIMIT) == [Reply(error="stopping")] * len(questions)

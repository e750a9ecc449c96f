"""Requests, lists and watches against scripted answers and faults."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.kube.recorded import answer
from tests.kube.scripted import Answer, FakeClock, client_of, failure, running, scripted, timeouts_until, until
from vcd.kube.api_errors import ApiError, BadResponse, IdleWatch, LeadershipLost, NoResponse
from vcd.kube.client import KubeClient
from vcd.kube.kube_connection import connect
from vcd.kube.write_limiter import Urgency

PODS = "/api/v1/namespaces/default/pods"


async def test_an_error_carries_status_reason_and_message() -> None:
    async with scripted() as server, client_of(server) as client:
        server.on("POST", "binding", answer("bind again"))
        with pytest.raises(ApiError) as caught:
            await client.request("POST", f"{PODS}/g-p1/binding", b"{}")
    error = caught.value
    assert (error.status, error.reason) == (409, "Conflict")
    assert error.message.endswith('pod g-p1 is already assigned to node "g-n1"')


async def test_an_error_that_is_no_status_object_keeps_its_text() -> None:
    async with scripted() as server, client_of(server) as client:
        server.on("GET", "/apis/nope", answer("unknown path"))
        with pytest.raises(ApiError, match="404: 404 page not found"):
            await client.request("GET", "/apis/nope.example/v1/things")


async def test_retry_after_is_read_from_the_header() -> None:
    async with scripted() as server, client_of(server) as client:
        server.on("POST", "binding", failure(429, "TooManyRequests", "slow down", Retry_After="3"))
        with pytest.raises(ApiError) as caught:
            await client.request("POST", f"{PODS}/a/binding", b"{}")
    assert caught.value.retry_after == 3


async def test_a_server_cannot_ask_for_an_endless_pause() -> None:
    async with scripted() as server, client_of(server) as client:
        server.on("POST", "binding", failure(429, "TooManyRequests", "", Retry_After="86400"))
        with pytest.raises(ApiError) as caught:
            await client.request("POST", f"{PODS}/a/binding", b"{}")
    assert caught.value.retry_after == 30


async def test_a_refused_connection_was_not_sent() -> None:
    async with scripted() as server:
        url = server.url
    async with KubeClient(await connect(master=url)) as client:
        with pytest.raises(NoResponse) as caught:
            await client.request("POST", f"{PODS}/a/binding", b"{}")
    assert not caught.value.sent


@pytest.mark.parametrize("fault", [Answer(drop=True), Answer(hang=True)], ids=["dropped", "hanging"])
async def test_a_lost_answer_leaves_the_outcome_in_doubt(fault: Answer) -> None:
    async with scripted() as server, client_of(server) as client:
        server.on("POST", "binding", fault)
        async for seconds in timeouts_until(lambda: server.seen):
            with pytest.raises(NoResponse) as caught:
                await client.request("POST", f"{PODS}/a/binding", b"{}", timeout=seconds)
    assert caught.value.sent


async def test_the_server_is_told_to_give_up_on_a_write_when_we_do() -> None:
    async with scripted() as server, client_of(server, request_timeout=2.5) as client:
        server.on("POST", "binding", Answer(201, {}))
        await client.request("POST", f"{PODS}/a/binding", b"{}")
        assert server.seen[0].query == {"timeout": "2.5s"}


async def test_user_agent_and_content_type_are_sent() -> None:
    async with scripted() as server, client_of(server, user_agent="volcano/1.0") as client:
        server.on("PATCH", "", Answer(200, {}))
        await client.request("PATCH", f"{PODS}/a", b"{}", content_type="application/merge-patch+json")
        headers = server.seen[0].headers
    assert (headers["User-Agent"], headers["Content-Type"]) == ("volcano/1.0", "application/merge-patch+json")


async def test_the_fence_stops_a_request_before_it_is_made() -> None:
    async with scripted() as server, client_of(server) as client:
        with pytest.raises(LeadershipLost):
            await client.request("POST", f"{PODS}/a/binding", b"{}", fence=lambda: False)
        assert server.seen == []


async def test_the_fence_is_asked_again_when_there_is_a_connection() -> None:
    async with scripted() as server, client_of(server) as client:
        answers = iter((True, False))
        with pytest.raises(LeadershipLost):
            await client.request("POST", f"{PODS}/a/binding", b"{}", fence=lambda: next(answers))
        assert server.seen == []


async def test_the_fence_is_asked_after_the_wait_for_admission() -> None:
    leading = True
    async with scripted() as server, client_of(server, in_flight=1) as client:
        server.on("POST", "first", Answer(hang=True))
        server.on("POST", "second", Answer(201, {}))
        first = asyncio.create_task(client.request("POST", "/first", b"{}"))
        await until(lambda: server.seen)
        second = asyncio.create_task(client.request("POST", "/second", b"{}", fence=lambda: leading))
        leading = False
        server.closing.set()
        await first
        with pytest.raises(LeadershipLost):
            await second


def _page(names: list[str], token: str = "", version: str = "7") -> Answer:
    meta = {"resourceVersion": version} | ({"continue": token} if token else {})
    return Answer(200, {"metadata": meta, "items": [{"metadata": {"name": name}} for name in names]})


async def _names(client: KubeClient, **options: int) -> list[tuple[list[str], bool]]:
    return [
        ([json.loads(bytes(item))["metadata"]["name"] for item in page.items], page.first)
        async for page in client.list_pages(PODS, **options)
    ]


async def test_a_list_is_read_page_by_page() -> None:
    async with scripted() as server, client_of(server) as client:
        server.on("GET", "limit=2$", answer("list, page of two"))
        server.on("GET", "continue=", answer("next page"), _page(["g-l3", "g-l4"]))
        pages = await _names(client, limit=2)
        assert [name for names, _ in pages for name in names][2:] == ["g-l1", "g-l2", "g-l3", "g-l4"]
        assert [first for _, first in pages] == [True, False, False]


async def test_an_expired_page_token_starts_the_list_again_in_larger_pages() -> None:
    async with scripted() as server, client_of(server) as client:
        server.on("GET", "limit=2$", _page(["a", "b"], token="t/+="))
        server.on("GET", "continue=", answer("page token after compaction"))
        server.on("GET", "limit=8", _page(["b", "c"]))
        assert await _names(client, limit=2) == [(["a", "b"], True), (["b", "c"], True)]
        assert server.seen[1].query["continue"] == "t/+="


async def test_a_list_whose_page_tokens_always_expire_is_not_begun_again_for_ever() -> None:
    async with scripted() as server, client_of(server) as client:
        server.on("GET", "continue=", answer("page token after compaction"))
        server.on("GET", r"limit=\d+$", _page(["a", "b"], token="t"))
        with pytest.raises(ApiError, match="410"):
            await _names(client, limit=2)
        begun = [seen.query["limit"] for seen in server.seen if "continue" not in seen.query]
        assert begun == ["2", "8", "32", "128", "512"]


async def test_a_list_that_is_refused_raises() -> None:
    async with scripted() as server, client_of(server) as client:
        server.on("GET", "", answer("garbage continue"))
        with pytest.raises(ApiError, match="400 BadRequest"):
            await _names(client)


async def test_a_list_that_is_no_list_is_malformed() -> None:
    async with scripted() as server, client_of(server) as client:
        server.on("GET", "", Answer(200, "<html>"))
        with pytest.raises(BadResponse):
            await _names(client)


async def _lines(client: KubeClient, idle: float = 5.0) -> list[bytes]:
    return [line async for lines in client.watch(f"{PODS}?watch=1", idle_timeout=idle) for line in lines]


async def test_watch_lines_come_whole_whatever_the_chunks() -> None:
    text = b'{"a":1}\n{"b":' + b"x" * 3_000_000 + b"}\n\n{}\n"
    pieces = [text[:3], text[3:9], text[9:2_000_000], text[2_000_000:]]
    async with scripted() as server, client_of(server) as client:
        server.on("GET", "watch=1", Answer(lines=pieces))
        assert await _lines(client) == [line for line in text.split(b"\n") if line]


async def test_a_silent_watch_is_noticed() -> None:
    async with scripted() as server, client_of(server) as client:
        server.on("GET", "watch=1", Answer(lines=[b"{}\n"], stay=True))
        with pytest.raises(IdleWatch):
            await _lines(client, idle=0.1)


async def test_a_watch_that_is_never_answered_is_noticed() -> None:
    async with scripted() as server, client_of(server) as client:
        server.on("GET", "watch=1", Answer(hang=True))
        with pytest.raises(NoResponse):
            await _lines(client, idle=0.1)


async def test_a_watch_that_breaks_raises() -> None:
    async with scripted() as server, client_of(server) as client:
        server.on("GET", "watch=1", Answer(lines=[b"{}\n"], cut=True))
        with pytest.raises(NoResponse):
            await _lines(client)


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "PodList", "metadata": {}, "items": []},
        {"kind": "PodList", "metadata": {"resourceVersion": ""}, "items": []},
        {"kind": "PodList", "metadata": {"resourceVersion": "0"}, "items": []},
        {"kind": "PodList", "metadata": {"resourceVersion": "7"}},
        {"kind": "Status", "status": "Success", "metadata": {}},
        b'{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}},{"me',
        b'{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"a":]},{"b":1}],"x":[1]}',
        {"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": {}},
        {"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": ""},
        b'{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[],"x":',
        b'{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[],"x":]',
        b'{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[]}{"items":[]}',
    ],
    ids=[
        *("no version", "empty version", "version 0", "no items", "a Status", "half a list", "brackets astray"),
        *("items an object", "items a text", "broken off after items", "another bracket at the end", "two lists"),
    ],
)
async def test_what_is_no_list_of_one_moment_is_not_believed(body: Any) -> None:
    async with scripted() as server, client_of(server) as client:
        server.on("GET", PODS, Answer(200, body))
        with pytest.raises(BadResponse):
            async for _ in client.list_pages(PODS):
                pass


DEEP = b'{"f:a":' * 20_000 + b"{}" + b"}" * 20_000
ODD = {
    "nested": b'{"metadata":{"name":"odd","managedFields":[{"fieldsV1":' + DEEP + b"}]}}",
    "no UTF-8": b'{"metadata":{"name":"odd\xff"}}',
    "no JSON": b'{"metadata":{"name":"odd"},"spec":\xff}',
    "half a surrogate": b'{"metadata":{"name":"odd","x":"\\ud800"}}',
    "a long number": b'{"metadata":{"name":"odd"},"x":' + b"1" * 6000 + b"}",
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
async def test_an_item_that_cannot_be_read_leaves_the_others_of_its_list_alone(odd: bytes) -> None:
    items = b'{"metadata":{"name":"a"}},%s,{"metadata":{"name":"b"}}' % odd
    body = b'{"metadata":{"resourceVersion":"7"},"items":[%s]}' % items
    async with scripted() as server, client_of(server) as client:
        server.on("GET", PODS, Answer(200, body))
        pages = [page async for page in client.list_pages(PODS)]
    assert [bytes(item) for item in pages[0].items][::2] == [b'{"metadata":{"name":"a"}}', b'{"metadata":{"name":"b"}}']
    assert len(pages[0].items) == 3


async def test_a_watch_that_is_refused_raises() -> None:
    async with scripted() as server, client_of(server) as client:
        server.on("GET", "watch=1", failure(410, "Gone", "too old resource version"))
        with pytest.raises(ApiError, match="410"):
            await _lines(client)


async def test_the_lease_never_queues() -> None:
    async with scripted() as server, client_of(server, in_flight=1) as client:
        server.on("POST", "slow", Answer(hang=True))
        server.on("PUT", "lease", Answer(200, {}))
        slow = asyncio.create_task(client.request("POST", "/slow", b"{}"))
        await until(lambda: server.seen)
        await client.request("PUT", "/lease", b"{}", urgency=Urgency.LEASE)
        server.closing.set()
        await slow


@pytest.mark.parametrize(("method", "urgency", "counts"), [
    ("POST", Urgency.COMMIT, True), ("PATCH", Urgency.STATUS, True), ("PUT", Urgency.LEASE, False),
    ("GET", Urgency.COMMIT, False),
])  # fmt: skip
async def test_it_knows_of_writes_under_way(method: str, urgency: Urgency, counts: bool) -> None:
    async with scripted() as server, client_of(server) as client:
        server.on(method, "slow", Answer(hang=True))
        assert not client.is_writing
        slow = asyncio.create_task(client.request(method, "/slow", b"{}", urgency=urgency))
        await until(lambda: server.seen)
        assert client.is_writing is counts
        server.closing.set()
        await slow
        assert not client.is_writing


async def test_a_write_that_is_cancelled_may_be_carried_out_until_the_server_gives_up() -> None:
    clock = FakeClock()
    async with scripted() as server, client_of(server, clock=clock, request_timeout=3.0) as client:
        server.on("POST", "slow", Answer(hang=True))
        async with running(client.request("POST", "/slow", b"{}")):
            await until(lambda: server.seen)
        assert client.is_writing
        clock.advance(2.9)
        assert client.is_writing
        clock.advance(0.2)
        assert not client.is_writing

"""The watcher on recorded bytes, and through every fault of a watch."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.kube.recorded import answer, watch_lines
from tests.kube.scripted import (
    Answer,
    FakeClock,
    HastyClock,
    Log,
    ScriptedServer,
    Seen,
    client_of,
    failure,
    running,
    scripted,
    until,
)
from tests.kube.scripted import status as status_object
from tests.model.oddities import ODD_JSON, mutated
from tests.sizes import seeds
from vcd.kube.watcher import Watcher
from vcd.model import projection_codec
from vcd.model.events import KindListed, ObjectBad, ObjectGone, ObjectPut
from vcd.model.kinds import KINDS, Kind

STAY = Answer(lines=[], stay=True)


def pod(name: str, version: int, **labels: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "ns", "uid": f"u-{name}", "resourceVersion": str(version), "labels": labels}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": meta}


def listing(version: int, *items: dict[str, Any], token: str = "") -> Answer:
    meta = {"resourceVersion": str(version)} | ({"continue": token} if token else {})
    return Answer(200, {"kind": "PodList", "metadata": meta, "items": list(items)})


def line(type: str, obj: dict[str, Any]) -> dict[str, Any]:
    return {"type": type, "object": obj}


def bookmark(version: int) -> dict[str, Any]:
    return line("BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": str(version)}})


EXPIRED = line("ERROR", status_object(410, "Expired", "too old resource version: 1 (19192)"))


class Fixture:
    """A watcher of pods on a scripted server."""

    def __init__(self, server: ScriptedServer, watcher: Watcher, log: Log) -> None:
        self.server, self.watcher, self.log = server, watcher, log

    def lists(self) -> list[str]:
        return [seen.query.get("continue", "") for seen in self.server.seen if "watch" not in seen.query]

    def watches(self) -> list[str]:
        return [seen.query["resourceVersion"] for seen in self.server.seen if "watch" in seen.query]


@asynccontextmanager
async def watching(
    lists: list[Answer],
    watches: list[Answer],
    log: Log | None = None,
    clock: Any = None,
    kind: Kind = KINDS["Pod"],
    **options: Any,
) -> AsyncIterator[Fixture]:
    log = log or Log()
    async with scripted() as server, client_of(server) as client:
        server.on("GET", "/api/v1/pods", *lists)
        server.on("GET", "/api/v1/pods.*watch=1", *watches)
        clock = clock or HastyClock()
        watcher = Watcher(client, kind, log, log.sink, clock=clock, rand=lambda: 0.5, **options)
        async with running(watcher.run()):
            yield Fixture(server, watcher, log)


async def test_the_list_comes_first_and_is_announced_when_complete() -> None:
    async with watching([listing(5, pod("a", 3), pod("b", 4))], [STAY]) as f:
        await until(f.watches)
        assert [type(event) for event in f.log.events] == [ObjectPut, ObjectPut, KindListed]
        assert f.log.events[-1] == KindListed("Pod", "5")
        assert f.watches() == ["5"]


async def test_recorded_changes_become_events() -> None:
    recorded = Answer(lines=watch_lines("watch from a version"), stay=True)
    async with watching([listing(31192)], [recorded]) as f:
        await until(lambda: f.log.of(ObjectGone))
        puts = f.log.of(ObjectPut)
        assert [event.resource_version for event in puts[:2]] == ["31193", "31194"]
        assert projection_codec.decode_payload("Pod", puts[1].payload).metadata.labels == {"app": "moved"}
        assert f.log.of(ObjectGone)[-1].key == "default/g-w1"


async def test_an_object_that_leaves_the_selection_is_gone() -> None:
    recorded = Answer(lines=watch_lines("watch with a selector"), stay=True)
    async with watching([listing(31196)], [recorded], kind=replace(KINDS["Pod"], object="g-w1")) as f:
        await until(lambda: f.log.of(ObjectGone))
        assert f.server.seen[0].query["fieldSelector"] == "metadata.name=g-w1"
        assert f.server.seen[-1].query["fieldSelector"] == "metadata.name=g-w1"


async def test_a_write_that_a_scheduler_cannot_see_carries_no_payload() -> None:
    lines = [line("ADDED", pod("a", 6)), line("MODIFIED", pod("a", 7)), line("MODIFIED", pod("a", 8, x="y"))]
    async with watching([listing(5)], [Answer(lines=lines, stay=True)]) as f:
        await until(lambda: len(f.log.of(ObjectPut)) == 3)
        assert [event.payload is None for event in f.log.of(ObjectPut)] == [False, True, False]


async def test_an_object_deleted_and_made_again_carries_its_payload_again() -> None:
    lines = [line("ADDED", pod("a", 6)), line("DELETED", pod("a", 7)), line("ADDED", pod("a", 8))]
    async with watching([listing(5)], [Answer(lines=lines, stay=True)]) as f:
        await until(lambda: len(f.log.of(ObjectPut)) == 2)
        assert all(event.payload for event in f.log.of(ObjectPut))


async def test_a_list_says_nothing_of_objects_that_did_not_change() -> None:
    log = Log()
    async with watching([listing(5, pod("a", 3), pod("b", 4))], [STAY], log) as f:
        await until(f.watches)
    log.events.clear()
    async with watching([listing(9, pod("a", 3), pod("b", 8, x="y"))], [STAY], log) as f:
        await until(f.watches)
    assert [getattr(event, "key", "") for event in log.events] == ["ns/b", ""]


async def test_bookmarks_move_the_version_and_make_no_event() -> None:
    watches = [Answer(lines=[bookmark(77)]), STAY]
    async with watching([listing(5)], watches) as f:
        await until(lambda: len(f.watches()) == 2)
        assert f.watches() == ["5", "77"]
        assert f.log.events == [KindListed("Pod", "5")]


async def test_a_watch_ended_by_the_server_goes_on_from_its_last_version() -> None:
    recorded = Answer(lines=watch_lines("watch ends by timeoutSeconds"))
    async with watching([listing(31196)], [recorded, STAY]) as f:
        await until(lambda: len(f.watches()) == 2)
        assert f.lists() == [""]
        assert int(f.watches()[1]) > 31196


@pytest.mark.parametrize(
    "expiry",
    [Answer(lines=[EXPIRED]), Answer(lines=watch_lines("watch from a compacted")), failure(410, "Gone", "too old")],
    ids=["event", "recorded", "status"],
)
async def test_an_expired_version_lists_again_and_finds_what_was_deleted(expiry: Answer) -> None:
    lists = [listing(5, pod("a", 3), pod("b", 4), pod("c", 4)), listing(40, pod("b", 4), pod("d", 39))]
    async with watching(lists, [expiry, STAY]) as f:
        await until(lambda: len(f.watches()) == 2)
        assert f.log.events[4:] == [
            f.log.of(ObjectPut)[-1],
            ObjectGone("Pod", "ns/a", "40"),
            ObjectGone("Pod", "ns/c", "40"),
            KindListed("Pod", "40"),
        ]
        assert f.log.of(ObjectPut)[-1].key == "ns/d"
        assert f.watcher.status.relists == 1


async def test_events_before_the_expiry_in_the_same_chunk_are_kept() -> None:
    lists = [listing(5), listing(40, pod("a", 6))]
    async with watching(lists, [Answer(lines=[line("ADDED", pod("a", 6)), EXPIRED]), STAY]) as f:
        await until(lambda: len(f.watches()) == 2)
        assert [event.key for event in f.log.of(ObjectPut)] == ["ns/a"]


async def test_a_server_that_always_says_gone_is_not_asked_without_pause() -> None:
    clock = FakeClock()
    async with watching([listing(5)], [failure(410, "Gone", "")], clock=clock) as f:
        for _ in range(4):
            await clock.advance_when_asleep(40)
        await until(lambda: clock.sleeping)
        assert clock.slept == sorted(clock.slept)
        assert clock.slept[-1] >= 4 * clock.slept[0]
        assert f.watcher.status.relists == 5


async def test_a_list_that_loses_its_page_token_starts_again() -> None:
    lists = [
        listing(5, pod("a", 1), pod("b", 1), token="t"),
        answer("page token after compaction"),
        listing(9, pod("b", 1), pod("c", 8)),
    ]
    async with watching(lists, [STAY]) as f:
        await until(f.watches)
        assert ObjectGone("Pod", "ns/a", "9") in f.log.events
        assert f.lists() == ["", "t", ""]


async def test_a_list_whose_page_tokens_always_expire_is_tried_again_after_a_pause() -> None:
    clock = FakeClock()
    begun, expired = listing(5, pod("a", 1), token="t"), answer("page token after compaction")
    async with watching([*[begun, expired] * 5, listing(9, pod("b", 1))], [STAY], clock=clock) as f:
        await until(lambda: clock.sleeping)
        assert f.lists() == ["", "t"] * 5
        assert not f.watcher.status.synced
        await clock.advance_when_asleep(30)
        await until(f.watches)
        assert ObjectGone("Pod", "ns/a", "9") in f.log.events


@pytest.mark.parametrize(
    "fault",
    [Answer(drop=True), Answer(lines=[bookmark(6)], cut=True), failure(429, "TooManyRequests", "later")],
    ids=["dropped", "cut", "429"],
)
async def test_a_watch_that_was_only_cut_off_is_taken_up_again_without_a_list(fault: Answer) -> None:
    async with watching([listing(5)], [fault, Answer(lines=[line("ADDED", pod("a", 7))], stay=True)]) as f:
        await until(lambda: f.log.of(ObjectPut))
        assert f.lists() == [""]


@pytest.mark.parametrize(
    "fault",
    [
        Answer(lines=[b'{"type":"ADDED","object":{"metadata"\n']),
        Answer(lines=[b'{"type":"NOVEL","object":{}}\n']),
        Answer(lines=[line("ERROR", status_object(500, "InternalError", "etcd"))]),
        Answer(lines=[line("ERROR", status_object(403, "Forbidden", "no"))]),
        Answer(lines=[line("ADDED", pod("b", 6)), line("ERROR", {"kind": "Status"})]),
        Answer(lines=[b'{"type":"ERROR","object":[[[\n']),
        failure(400, "BadRequest", "the resource version is from another server"),
        failure(401, "Unauthorized", "no"),
        failure(403, "Forbidden", "no"),
        failure(500, "InternalError", "etcd"),
        failure(503, "ServiceUnavailable", "starting"),
        failure(504, "Timeout", "Too large resource version: 5, current: 2"),
        Answer(200, "<html>a proxy</html>"),
        Answer(lines=[]),
    ],
    ids=[
        "half a line", "novel type", "error 500", "error 403", "error of no code", "broken error",
        "400", "401", "403", "500", "503", "504", "html", "nothing",
    ],
)  # fmt: skip
async def test_whatever_else_ends_a_watch_leads_to_a_list(fault: Answer) -> None:
    lists = [listing(5, pod("a", 4)), listing(9, pod("c", 8))]
    async with watching(lists, [fault, STAY]) as f:
        await until(lambda: f.watches()[-1:] == ["9"])
        assert [event.key for event in f.log.of(ObjectGone) if event.key == "ns/a"] == ["ns/a"]
        assert f.log.of(ObjectPut)[-1].key == "ns/c"
        assert f.watcher.status.relists == 1


@pytest.mark.parametrize(
    "fault", [Answer(drop=True), failure(429, "TooManyRequests", "later"), Answer(lines=[], cut=True)]
)
async def test_a_watch_that_is_cut_off_without_end_leads_to_a_list(fault: Answer) -> None:
    lists = [listing(5, pod("a", 4)), listing(9)]
    async with watching(lists, [fault]) as f:
        await until(lambda: f.log.of(ObjectGone))
        assert len(f.watches()) > 3


@pytest.mark.parametrize("version", [None, "", "0"])
async def test_a_list_of_no_version_is_not_believed(version: str | None) -> None:
    empty = Answer(200, {"kind": "PodList", "metadata": {} if version is None else {"resourceVersion": version}})
    empty.body["items"] = []
    lists = [listing(5, pod("a", 4), pod("b", 4)), empty, empty, listing(9, pod("a", 4), pod("b", 4))]
    async with watching(lists, [Answer(lines=[EXPIRED]), STAY]) as f:
        await until(lambda: len(f.watches()) == 2)
        assert f.watches() == ["5", "9"]
        assert not f.log.of(ObjectGone)
        assert "resourceVersion" in f.watcher.status.last_error


async def test_a_list_that_fails_is_tried_again() -> None:
    faults = [Answer(drop=True), failure(500, "InternalError", ""), Answer(200, "<html>"), listing(5)]
    async with watching(faults, [STAY]) as f:
        await until(f.watches)
        assert f.watcher.status.synced


async def test_pauses_between_attempts_grow() -> None:
    clock = FakeClock()
    async with watching([failure(500, "InternalError", "")], [STAY], clock=clock):
        for _ in range(11):
            await clock.advance_when_asleep(30)
        assert clock.slept[:3] == pytest.approx([0.075, 0.15, 0.3])
        assert clock.slept[-1] == pytest.approx(22.5)


async def test_the_server_decides_the_pause_when_it_names_one() -> None:
    clock = FakeClock()
    busy = failure(429, "TooManyRequests", "", Retry_After="7")
    async with watching([busy, listing(5)], [STAY], clock=clock) as f:
        await until(lambda: clock.sleeping)
        assert clock.slept == [7]
        clock.advance(7)
        await until(f.watches)


async def test_a_watch_that_falls_silent_is_begun_anew_and_that_is_no_error() -> None:
    watches = [Answer(lines=[bookmark(6)], stay=True), STAY]
    async with watching([listing(5)], watches, idle_timeout=0.5) as f:
        await until(lambda: len(f.watches()) >= 4)
        assert f.watches()[:4] == ["5", "6", "6", "6"]
        assert f.lists() == [""]
        assert (f.watcher.status.errors, f.watcher.status.last_error, f.watcher.status.relists) == (0, "", 0)


async def test_a_silent_watch_is_not_stale_however_long_it_is() -> None:
    clock = FakeClock()
    async with watching([listing(5)], [STAY], clock=clock) as f:
        await until(lambda: f.watcher.status.watched)
        clock.advance(10_000)
        assert f.watcher.status.stale_seconds(clock.now) == 0


@pytest.mark.parametrize(
    "fault", [failure(403, "Forbidden", "no"), failure(500, "InternalError", ""), Answer(200, "<html>a proxy</html>")]
)
async def test_a_kind_is_stale_from_when_its_watch_ended_until_a_list_or_a_watch_succeeds(fault: Answer) -> None:
    clock = FakeClock()
    ended = Answer(lines=[line("ERROR", status_object(403, "Forbidden", "no"))])
    async with watching([listing(5)], [ended, STAY], clock=clock) as f:
        f.server.on("GET", r"/api/v1/pods\?(?!.*watch)", listing(5), fault, fault, fault, fault, listing(9))
        for tries in range(2, 6):
            await clock.advance_when_asleep(30)
            await until(lambda tries=tries: len(f.lists()) == tries)
            assert f.watcher.status.stale_seconds(clock.now) == 30 * (tries - 1)
        await clock.advance_when_asleep(30)
        await until(lambda: f.watcher.status.watched)
        assert f.watcher.status.stale_seconds(clock.now) == 0


async def test_a_list_that_fails_at_the_same_page_each_time_gets_no_further() -> None:
    clock = FakeClock()
    broken = failure(500, "InternalError", "")
    async with watching([broken], [STAY], clock=clock) as f:
        f.server.on("GET", r"/api/v1/pods\?(?!.*watch)(?!.*continue)", listing(5, pod("a", 4), token="t"))
        f.server.on("GET", "/api/v1/pods.*continue", broken)
        for _ in range(6):
            await clock.advance_when_asleep(30)
        await until(lambda: clock.sleeping)
        assert f.lists().count("t") >= 5
        assert f.watcher.status.stale_seconds(clock.now) >= 150
        assert not f.watcher.status.synced


async def test_a_kind_that_is_not_served_is_not_stale() -> None:
    clock = FakeClock()
    async with watching([failure(404, "NotFound", "")], [STAY], clock=clock) as f:
        for _ in range(100):
            await clock.advance_when_asleep(5)
        await until(lambda: clock.sleeping)
        assert f.watcher.status.stale_seconds(clock.now) == 0
        assert f.watcher.status.synced


async def test_a_watch_that_is_never_answered_is_an_error() -> None:
    async with watching([listing(5)], [Answer(hang=True), STAY], idle_timeout=0.1) as f:
        await until(lambda: len(f.watches()) >= 2)
        assert f.watcher.status.errors == 1


async def test_what_no_watch_told_is_found_by_a_list_of_that_very_version_and_counted() -> None:
    lists = [listing(5, pod("a", 3), pod("b", 4), pod("c", 4)), listing(6, pod("a", 3, x="y"), pod("b", 4))]
    async with watching(lists, [Answer(lines=[bookmark(6)]), STAY], relist_period=0) as f:
        await until(lambda: len(f.watches()) >= 2)
        assert f.watches()[:2] == ["5", "6"]
        compared = [seen.query for seen in f.server.seen if seen.query.get("resourceVersionMatch") == "Exact"]
        assert compared[0]["resourceVersion"] == "6"
        assert (f.log.of(ObjectPut)[-1].key, f.log.of(ObjectGone)[-1].key) == ("ns/a", "ns/c")
        assert f.watcher.status.drift == 2
        assert f.watcher.status.errors == 0


async def test_a_comparison_counts_no_drift_where_there_is_none() -> None:
    bad = pod("bad", 3) | {"spec": {"containers": "none"}}
    lists = [listing(5, pod("a", 3), bad), listing(6, pod("a", 3), bad)]
    async with watching(lists, [Answer(lines=[bookmark(6)]), STAY], relist_period=0) as f:
        await until(lambda: len(f.watches()) >= 2)
        assert f.watcher.status.lists >= 2
        assert f.watcher.status.drift == 0


async def test_where_the_reached_version_is_compacted_a_list_of_the_present_is_taken() -> None:
    lists = [listing(5, pod("a", 3)), failure(410, "Expired", "compacted"), listing(9)]
    async with watching(lists, [Answer(lines=[bookmark(6)]), STAY], relist_period=0) as f:
        await until(lambda: len(f.watches()) >= 2)
        assert f.watches()[:2] == ["5", "9"]
        assert f.log.of(ObjectGone) == [ObjectGone("Pod", "ns/a", "9")]
        assert f.watcher.status.drift == 0


SHED = [
    failure(429, "TooManyRequests", "later"),
    failure(500, "InternalError", "etcd"),
    failure(503, "ServiceUnavailable", "starting"),
    failure(504, "Timeout", "the list took too long"),
    Answer(drop=True),
    Answer(200, "<html>a proxy</html>"),
]


async def next_watch(f: Fixture, seconds: float) -> None:
    """Let a watch end that has lasted so long, and return once there is another one."""
    await until(lambda: f.watcher.status.watched)
    watches = len(f.watches())
    f.watcher.clock.advance(seconds)  # type: ignore[attr-defined]
    f.server.end_watches()
    await until(lambda: len(f.watches()) > watches and f.watcher.status.watched)


@pytest.mark.parametrize("fault", SHED, ids=["429", "500", "503", "504", "dropped", "html"])
async def test_a_comparison_that_fails_is_put_off_and_told_and_the_watch_goes_on(fault: Answer) -> None:
    clock = FakeClock()
    told = Answer(lines=[line("ADDED", pod("b", 7))], stay=True)
    async with watching([listing(5, pod("a", 4)), fault], [STAY, told, STAY], clock=clock) as f:
        with capture_logs() as logs:
            await next_watch(f, 2000)
            await until(lambda: len(f.log.of(ObjectPut)) == 2)
        assert f.watches() == ["5", "5"]
        assert f.watcher.status.stale_seconds(clock.now) == 0
        assert (f.watcher.status.lists, f.watcher.status.errors, f.watcher.status.relists) == (1, 1, 0)
        assert clock.slept == []
        assert [(entry["event"], entry["retry_in"]) for entry in logs] == [("comparison_failed", 300.0)]
        assert logs[0]["error"] == f.watcher.status.last_error


@pytest.mark.parametrize("fault", SHED, ids=["429", "500", "503", "504", "dropped", "html"])
async def test_so_is_one_whose_version_is_compacted_where_the_list_of_the_present_fails_too(fault: Answer) -> None:
    clock = FakeClock()
    lists = [listing(5, pod("a", 4)), failure(410, "Expired", "compacted"), fault]
    async with watching(lists, [STAY], clock=clock) as f:
        await next_watch(f, 2000)
        assert f.watches() == ["5", "5"]
        assert len(f.lists()) >= 3
        assert f.watcher.status.stale_seconds(clock.now) == 0
        assert clock.slept == []


async def test_one_that_takes_long_is_put_off_and_nothing_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcd.kube.watcher.COMPARE_TIMEOUT", 0.05)
    clock = FakeClock()
    told = Answer(lines=[line("MODIFIED", pod("b", 7))], stay=True)
    lists = [listing(5, pod("a", 4)), listing(5, pod("b", 5), token="t"), Answer(hang=True)]
    async with watching(lists, [STAY, told], clock=clock) as f:
        await next_watch(f, 2000)
        await until(lambda: f.log.of(ObjectPut) and f.log.of(ObjectPut)[-1].resource_version == "7")
        assert f.watches() == ["5", "5"]
        assert "took longer than 0.05 s" in f.watcher.status.last_error


async def test_while_it_lasts_what_is_known_grows_old() -> None:
    clock = FakeClock()
    lists = [listing(5, pod("a", 4)), listing(5, pod("a", 4), token="t"), Answer(hang=True)]
    async with watching(lists, [STAY], clock=clock) as f:
        await until(lambda: f.watcher.status.watched)
        clock.advance(2000)
        f.server.end_watches()
        await until(lambda: not f.watcher.status.watched)
        clock.advance(7)
        await until(lambda: f.lists() == ["", "", "t"])
        assert f.watcher.status.stale_seconds(clock.now) == 7


async def test_a_comparison_that_was_put_off_is_made_minutes_later() -> None:
    async with watching([listing(5, pod("a", 4)), *SHED[:2], listing(5)], [STAY], clock=FakeClock()) as f:
        compared = []
        for seconds in (2000, 290, 20, 290, 20, 310):
            await next_watch(f, seconds)
            compared.append(len(f.lists()) - 1)
        assert compared == [1, 1, 2, 2, 3, 3]
        assert f.watcher.status.drift == 1
        assert f.log.of(ObjectGone) == [ObjectGone("Pod", "ns/a", "5")]


async def test_a_list_after_a_comparison_that_failed_gets_on_by_its_own_measure() -> None:
    clock = FakeClock()
    expired = Answer(lines=[EXPIRED])
    lists = [listing(5), listing(5, pod("a", 4), pod("b", 4), token="t"), SHED[0]]
    async with watching([*lists, listing(9, pod("a", 4), token="t"), SHED[0]], [STAY, expired], clock=clock) as f:
        await until(lambda: f.watcher.status.watched)
        clock.advance(2000)
        f.server.end_watches()
        await clock.advance_when_asleep(100)
        await until(lambda: f.lists() == ["", "", "t", "", "t"] and clock.sleeping)
        assert f.watcher.status.stale_seconds(clock.now) == 0


async def test_comparisons_come_at_their_time_and_not_before() -> None:
    clock = HastyClock()
    ends = [Answer(lines=[bookmark(version)]) for version in range(6, 400)]
    async with watching([listing(5)], [*ends, STAY], clock=clock, relist_period=10.0) as f:
        began = clock.now
        await until(lambda: f.watcher.status.lists >= 3)
        assert 2 * 10.0 <= clock.now - began < 3 * 10.0


async def test_a_pod_whose_managed_fields_are_nested_without_end_is_a_pod_like_any_other() -> None:
    raw = json.dumps(pod("deep", 6)).replace(
        '"labels"', '"managedFields": [{"fieldsV1": ' + '{"f:a":' * 2000 + "{}" + "}" * 2000 + '}], "labels"'
    )
    lists = [Answer(200, f'{{"metadata":{{"resourceVersion":"6"}},"items":[{raw},{json.dumps(pod("a", 5))}]}}')]
    lines = [f'{{"type":"MODIFIED","object":{raw}}}\n'.encode(), line("ADDED", pod("b", 8))]
    async with watching(lists, [Answer(lines=lines, stay=True)]) as f:
        await until(lambda: len(f.log.of(ObjectPut)) == 4)
        assert [event.key for event in f.log.of(ObjectPut)] == ["ns/deep", "ns/a", "ns/deep", "ns/b"]
        assert not f.log.of(ObjectBad)
        assert (f.watcher.status.errors, f.watcher.status.crashes) == (0, 0)


async def test_a_watch_line_that_is_no_text_names_its_object_and_the_watch_goes_on() -> None:
    bad = b'{"type":"ADDED","object":{"metadata":{"namespace":"ns","name":"odd","resourceVersion":"7","uid":"\xff"}}}\n'
    lines = [bad, line("ADDED", pod("b", 8))]
    async with watching([listing(5)], [Answer(lines=lines, stay=True)]) as f:
        await until(lambda: f.log.of(ObjectPut))
        event = f.log.of(ObjectBad)[0]
        assert (event.key, event.resource_version) == ("ns/odd", "7")
        assert f.lists() == [""]


async def test_an_object_without_a_name_is_set_aside() -> None:
    nameless = pod("", 6)
    async with watching([listing(7, nameless, pod("a", 4))], [STAY]) as f:
        await until(f.watches)
        assert [event.key for event in f.log.of(ObjectPut)] == ["ns/a"]
        assert "metadata.name" in f.log.of(ObjectBad)[0].message


async def test_a_bad_object_is_set_aside_and_the_rest_goes_on() -> None:
    bad = pod("bad", 3) | {"spec": {"containers": "none"}}
    async with watching([listing(5, bad, pod("a", 4))], [STAY]) as f:
        await until(f.watches)
        event = f.log.events[0]
        assert isinstance(event, ObjectBad)
        assert (event.key, event.resource_version) == ("ns/bad", "3")
        assert "containers" in event.message
        assert f.log.of(ObjectPut)[0].key == "ns/a"


async def test_a_bad_object_is_not_taken_for_deleted() -> None:
    log = Log()
    bad = pod("a", 8) | {"spec": {"containers": "none"}}
    async with watching([listing(5, pod("a", 3)), listing(9, bad)], [Answer(lines=[EXPIRED]), STAY], log) as f:
        await until(lambda: len(f.watches()) == 2)
        assert not log.of(ObjectGone)


async def test_a_kind_that_is_not_served_is_empty_and_tried_slowly() -> None:
    clock = FakeClock()
    async with watching([failure(404, "NotFound", ""), listing(5, pod("a", 4))], [STAY], clock=clock) as f:
        await until(lambda: clock.sleeping)
        assert f.log.events == [KindListed("Pod", "")]
        assert (f.watcher.status.missing, f.watcher.status.synced) == (True, True)
        assert clock.slept == [5]
        clock.advance(5)
        await until(f.watches)
        assert not f.watcher.status.missing


async def test_known_objects_outlive_a_404_that_passes() -> None:
    lists = [
        listing(5, pod("a", 4)),
        failure(404, "NotFound", ""),
        failure(404, "NotFound", ""),
        listing(9, pod("a", 4)),
    ]
    clock = HastyClock()
    async with watching(lists, [failure(404, "NotFound", ""), STAY], clock=clock) as f:
        await until(lambda: len(f.watches()) == 2)
        assert not f.log.of(ObjectGone)
        assert clock.now - 1000 < 30


async def test_known_objects_are_gone_when_the_404_lasts() -> None:
    lists = [listing(5, pod("a", 4)), failure(404, "NotFound", "")]
    async with watching(lists, [failure(404, "NotFound", "")]) as f:
        await until(lambda: f.log.of(ObjectGone))
        assert f.log.events[-1] == KindListed("Pod", "")


async def test_the_watcher_waits_for_the_sink() -> None:
    log, gate = Log(), asyncio.Event()
    entered = 0

    async def slow(batch: Any) -> None:
        nonlocal entered
        entered += 1
        await gate.wait()
        await log.sink(batch)

    async with scripted() as server, client_of(server) as client:
        server.on("GET", "watch=1", STAY)
        server.on("GET", "/api/v1/pods.limit", listing(5, pod("a", 1), token="t"))
        server.on("GET", "continue=t", listing(5, pod("b", 1)))
        async with running(Watcher(client, KINDS["Pod"], log, slow, clock=HastyClock()).run()):
            await until(lambda: entered == 1)
            assert len(server.seen) == 1
            gate.set()
            await until(lambda: len(server.seen) == 3)


async def test_a_sink_that_fails_ends_the_watcher() -> None:
    async def full(batch: Any) -> None:
        raise OSError("disk full")

    async with scripted() as server, client_of(server) as client:
        server.on("GET", "", listing(5, pod("a", 1)))
        with pytest.raises(OSError, match="disk full"):
            await Watcher(client, KINDS["Pod"], Log(), full).run()


async def test_a_defect_of_the_watcher_is_told_and_it_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(kind: Any, raw: Any) -> Any:
        monkeypatch.setattr(projection_codec, "decode_json", decode)
        raise RecursionError("too deep")

    decode = projection_codec.decode_json
    async with watching([listing(5)], [Answer(lines=[line("ADDED", pod("a", 6))]), STAY]) as f:
        monkeypatch.setattr(projection_codec, "decode_json", stumble)
        await until(lambda: len(f.lists()) == 2)
        assert f.watcher.status.crashes == 1
        assert "too deep" in f.watcher.status.last_error


async def test_a_long_list_lets_the_event_loop_breathe() -> None:
    spec = {"containers": [{"name": f"c{i}", "image": "busybox", "resources": {}} for i in range(5)]}
    items = [pod(f"p{i}", 1, app="x") | {"spec": spec} for i in range(20_000)]
    body = json.dumps(listing(5, *items).body).encode()
    beats = 0
    between: list[tuple[int, float]] = []

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0)
            beats += 1

    class Spy(Log):
        def digest(self, kind: str, key: str) -> int | None:
            between.append((beats, time.thread_time()))
            return super().digest(kind, key)

    async with scripted() as server, client_of(server) as client:
        server.on("GET", "", lambda seen: Answer(200, body) if "limit" in seen.query else STAY)
        log = Spy()
        async with running(beat()), running(Watcher(client, KINDS["Pod"], log, log.sink).run()):
            await until(lambda: log.of(KindListed))
    turns = {turn: [moment for other, moment in between if other == turn] for turn in {turn for turn, _ in between}}
    assert len(turns) > 3
    assert max(max(moments) - min(moments) for moments in turns.values()) < 0.1


def garbled(raw: bytes, random: Random) -> bytes:
    """The bytes with a few of them changed, none of them to the end of a line."""
    changed = bytearray(raw)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(changed))
        changed[at : at + random.randint(0, 2)] = random.choice(
            (b"", b"\xff", b"{", b"}", b"[", b'"', b"\\", b"\0", b"9")
        )
    return bytes(changed).replace(b"\n", b" ")


@pytest.mark.parametrize("seed", seeds(3, 5))
async def test_lines_and_lists_garbled_at_random_break_nothing(seed: int) -> None:
    random = Random(seed)
    whole = json.dumps(line("ADDED", pod("a", 6, x="y"))).encode()
    listed = json.dumps(listing(5, pod("a", 3), pod("b", 4)).body).encode()
    lines = [Answer(lines=[garbled(whole, random) + b"\n"]) for _ in range(60)]
    lists = [Answer(200, garbled(listed, random)) for _ in range(60)]
    good = Answer(lines=[line("ADDED", pod("last", 9))], stay=True)
    async with watching([*lists, listing(8)], [*lines, good]) as f:
        await until(lambda: any(event.key == "ns/last" for event in f.log.of(ObjectPut)))
        assert f.watcher.status.crashes == 0
        assert {event.kind for event in f.log.events} == {"Pod"}


@pytest.mark.parametrize("seed", seeds(3, 5))
async def test_objects_changed_at_random_in_lines_and_lists_cost_nobody_else_anything(seed: int) -> None:
    sound = pod("sound", 7)
    odd = [mutated(pod(f"odd{number}", 6, x="y"), seed * 100 + number, ODD_JSON) for number in range(30)]
    lines = [line("ADDED", obj) for obj in odd]
    lines.append(line("ADDED", pod("last", 9)))
    async with watching([listing(8, *odd, sound)], [Answer(lines=lines, stay=True)]) as f:
        await until(lambda: any(event.key == "ns/last" for event in f.log.of(ObjectPut)))
        assert any(event.key == "ns/sound" for event in f.log.of(ObjectPut))
        assert f.lists() == [""]
        assert (f.watcher.status.crashes, f.watcher.status.errors) == (0, 0)


# staging/src/k8s.io/apiserver/pkg/storage/etcd3/store.go
REFUSAL = "specifying resource version is not allowed when using continue"


async def test_a_comparison_of_several_pages_names_its_version_only_at_the_first() -> None:
    lists = 0

    def listed(seen: Seen) -> Answer:
        nonlocal lists
        if seen.query.get("continue"):
            if seen.query.get("resourceVersion", "0") != "0":
                return failure(400, "BadRequest", REFUSAL)
            return listing(6, pod("b", 4))
        lists += 1
        return listing(6, pod("a", 3, x="y" if lists > 1 else "x"), token="t")

    async with watching([], [Answer(lines=[bookmark(6)]), STAY], relist_period=0) as f:
        f.server.on("GET", r"/api/v1/pods\?(?!.*watch=1)", listed)
        await until(lambda: f.watcher.status.lists >= 2)
        assert f.watcher.status.errors == 0, f.watcher.status.last_error
        assert f.watcher.status.drift == 1

"""Kubernetes Events as client-go writes them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.kube.recorded import answer, exchange
from tests.kube.scripted import START, Answer, HastyClock, ScriptedServer, client_of, failure, running, scripted
from vcd.kube.event_recorder import COMBINED, EventRecorder

POD = ("Pod", "default/g-prio", "u-1")


class Fixture:
    def __init__(self, server: ScriptedServer, recorder: EventRecorder, clock: HastyClock) -> None:
        self.server, self.recorder, self.clock = server, recorder, clock
        self.leading = True

    async def record(self, *messages: str, reason: str = "FailedScheduling", subject: Any = POD) -> None:
        for message in messages:
            self.recorder.record(*subject, "Warning", reason, message)
            await self.recorder.wait_until_idle()

    def posts(self) -> list[Any]:
        return [seen.body for seen in self.server.calls("POST")]

    def patches(self) -> list[Any]:
        return [seen.body for seen in self.server.calls("PATCH")]


@asynccontextmanager
async def recording(**options: Any) -> AsyncIterator[Fixture]:
    clock = HastyClock()
    async with scripted() as server, client_of(server) as client:
        server.on("POST", "/events", answer("create core Event"))
        server.on("PATCH", "/events/", answer("create core Event"))
        recorder = EventRecorder(client, "vcd", lambda: f.leading, clock=clock, **options)
        f = Fixture(server, recorder, clock)
        async with running(recorder.run()):
            yield f


@pytest.fixture(name="f")
async def fixture() -> AsyncIterator[Fixture]:
    async with recording() as f:
        yield f


async def test_an_event_is_the_recorded_request(f: Fixture) -> None:
    await f.record("m")
    (call,) = f.server.calls("POST")
    recorded = exchange("create core Event")["request"]
    assert call.path == recorded["path"]
    body = dict(call.body)
    assert body.pop("metadata") == {"name": f"g-prio.{START:x}", "namespace": "default"}
    assert body.pop("reportingComponent") == "vcd"
    assert body["involvedObject"].pop("uid") == "u-1"
    assert body["involvedObject"].pop("apiVersion") == "v1"
    assert body == {name: value for name, value in recorded["body"].items() if name != "metadata"}


async def test_a_repeated_event_is_counted(f: Fixture) -> None:
    await f.record("m")
    f.clock.now += 60
    await f.record("m")
    assert len(f.posts()) == 1
    assert f.patches() == [{"count": 2, "lastTimestamp": "2026-01-01T00:01:00Z", "message": "m"}]
    assert f.server.calls("PATCH")[0].path.endswith(f"/{f.posts()[0]['metadata']['name']}")


async def test_different_reasons_are_different_events(f: Fixture) -> None:
    await f.record("m", reason="A")
    await f.record("m", reason="B")
    assert [post["reason"] for post in f.posts()] == ["A", "B"]


async def test_many_similar_events_are_combined(f: Fixture) -> None:
    await f.record(*(f"{number} nodes" for number in range(12)))
    assert [post["message"] for post in f.posts()] == [*(f"{n} nodes" for n in range(9)), f"{COMBINED}9 nodes"]
    assert [patch["message"] for patch in f.patches()] == [f"{COMBINED}10 nodes", f"{COMBINED}11 nodes"]


async def test_similar_events_that_are_far_apart_are_not_combined(f: Fixture) -> None:
    for number in range(12):
        f.clock.now += 601
        await f.record(f"{number} nodes")
    assert not any(post["message"].startswith(COMBINED) for post in f.posts())


async def test_an_object_that_floods_is_limited(f: Fixture) -> None:
    for _ in range(30):
        f.recorder.record(*POD, "Warning", "R", "m")
    f.recorder.record("Pod", "default/other", "u-2", "Warning", "R", "m")
    await f.recorder.wait_until_idle()
    assert {post["involvedObject"]["name"]: post["count"] for post in f.posts()} == {"g-prio": 25, "other": 1}


async def test_the_limit_recovers(f: Fixture) -> None:
    for _ in range(30):
        f.recorder.record(*POD, "Warning", "R", "m")
    f.clock.now += 300
    f.recorder.record(*POD, "Warning", "R", "m")
    await f.recorder.wait_until_idle()
    assert [post["count"] for post in f.posts()] == [26]


async def test_repeats_before_the_first_is_written_are_one_request(f: Fixture) -> None:
    for _ in range(3):
        f.recorder.record(*POD, "Warning", "R", "m")
    await f.recorder.wait_until_idle()
    assert [post["count"] for post in f.posts()] == [3]
    assert f.patches() == []


async def test_an_event_that_expired_on_the_server_is_made_anew(f: Fixture) -> None:
    await f.record("m")
    f.server.on("PATCH", "/events/", failure(404, "NotFound", ""))
    f.clock.now += 60
    await f.record("m")
    first, second = f.posts()
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert second["count"] == 2


async def test_a_cluster_scoped_object_has_its_events_in_default(f: Fixture) -> None:
    await f.record("m", subject=("Queue", "q", "u-q"))
    (post,) = f.posts()
    assert post["metadata"]["namespace"] == "default"
    assert post["involvedObject"] == {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "name": "q",
        "uid": "u-q",
    }


async def test_an_event_may_be_about_a_config_map_which_is_not_watched(f: Fixture) -> None:
    await f.record("m", subject=("ConfigMap", "vcd/conf", ""))
    (call,) = f.server.calls("POST")
    assert call.path == "/api/v1/namespaces/vcd/events"
    involved = {"apiVersion": "v1", "kind": "ConfigMap", "name": "conf", "uid": "", "namespace": "vcd"}
    assert call.body["involvedObject"] == involved


async def test_long_messages_are_cut(f: Fixture) -> None:
    await f.record("x" * 2000)
    assert len(f.posts()[0]["message"]) == 1024


async def test_a_queue_that_is_full_drops_and_tells_of_each() -> None:
    dropped: list[str] = []
    async with recording(capacity=2, on_dropped=dropped.append) as f:
        for number in range(5):
            f.recorder.record("Pod", f"default/p{number}", "u", "Normal", "R", "m")
        await f.recorder.wait_until_idle()
        assert [post["involvedObject"]["name"] for post in f.posts()] == ["p0", "p1"]
        assert dropped == ["Event"] * 3


async def test_trouble_passes(f: Fixture) -> None:
    f.server.on("POST", "/events", failure(503, "ServiceUnavailable", ""), Answer(drop=True), Answer(201, {}))
    with capture_logs() as told:
        await f.record("m")
    assert (len(f.posts()), told) == (3, [])


async def test_an_event_whose_answer_was_lost_is_not_lost(f: Fixture) -> None:
    f.server.on("POST", "/events", Answer(drop=True), failure(409, "AlreadyExists", ""))
    with capture_logs() as told:
        await f.record("m", "m")
    assert (len(f.posts()), len(f.patches()), told) == (2, 1, [])


async def test_a_refused_event_is_lost_and_told(f: Fixture) -> None:
    f.server.on("POST", "/events", answer("event of another namespace's object"))
    with capture_logs() as told:
        await f.record("m")
    assert (len(f.posts()), [line["event"] for line in told]) == (1, ["event_lost"])


async def test_trouble_that_lasts_is_given_up_and_told(f: Fixture) -> None:
    f.server.on("POST", "/events", failure(503, "ServiceUnavailable", ""))
    with capture_logs() as told:
        await f.record("m")
    assert (len(f.posts()), [line["event"] for line in told]) == (5, ["event_lost"])


async def test_a_replica_that_does_not_lead_writes_no_events(f: Fixture) -> None:
    f.leading = False
    await f.record("m")
    assert f.server.seen == []


async def test_the_event_of_an_object_with_a_long_name_has_a_name_that_a_server_takes(f: Fixture) -> None:
    for long in ("a" * 253, "a" * 235 + "-" + "b" * 17, "a" * 234 + "." + "b" * 18):
        await f.record("m", subject=("Pod", f"default/{long}", f"u-{len(f.posts())}"))
        name = f.posts()[-1]["metadata"]["name"]
        assert len(name) <= 253
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", name)
    assert len(f.posts()) == 3

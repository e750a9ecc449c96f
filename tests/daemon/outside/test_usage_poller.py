"""Samples of the nodes' usage: taken from each kind of source at the interval, and never made up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from structlog.testing import capture_logs

from tests.daemon.answering import Answering, Request, nobodys_url, server
from tests.daemon.cycle.test_session_loop import puts
from tests.daemon.fakes import FakeLog
from tests.dsl import node
from tests.kube.scripted import FakeClock, running, until
from vcd.daemon.outside.usage_poller import UsagePoller, settings_of
from vcd.daemon.persistence.state_writer import StateWriter
from vcd.kube.client import KubeClient
from vcd.kube.kube_connection import connect
from vcd.model.events import Answered
from vcd.model.wording import rfc3339
from vcd.scheduling.framework.usage_samples import NodeUsage, read_samples
from vcd.state.cluster_state import ClusterState

Answer = Callable[[Request], tuple[int, bytes]]


class Poller:
    """A poller on a fake log, with nodes a and b of 4 cpu and 8 Gi."""

    def __init__(self, client: Any) -> None:
        self.log = FakeLog()
        self.is_relevant: Callable[[str], bool] = lambda _: True
        self.state_writer = StateWriter(
            self.log.as_log(), ClusterState(), is_relevant=lambda question: self.is_relevant(question)
        )
        self.settings: dict[str, str] = {}
        self.polls: list[str] = []
        self.clock = FakeClock()
        self.poller = UsagePoller(
            client, self.state_writer.state, self.state_writer.put, lambda: self.settings, self.polls.append, self.clock
        )

    @property
    def samples(self) -> list[dict[str, NodeUsage]]:
        """What came into the log."""
        return [dict(read_samples(each.answer).nodes) for each in self.log.appended if isinstance(each, Answered)]

    async def once(self) -> list[dict[str, NodeUsage]]:
        """One sample by the settings; all of them so far."""
        await self.poller.once(settings_of(self.settings))
        return self.samples


@pytest.fixture
def told() -> Iterator[Answering]:
    with server() as answering:
        yield answering


async def made(client: Any = None) -> Poller:
    found = Poller(client)
    await found.state_writer.put(puts(node("a", cpu=4, memory=8), node("b", cpu=4, memory=8)))
    return found


def vector(values: dict[str, Any]) -> dict[str, Any]:
    result = [{"metric": {"instance": name}, "value": [1.5, value]} for name, value in values.items()]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def prometheus(cpu: Any, memory: Any) -> Answer:
    """Answers the two queries."""

    def answer(request: Request) -> tuple[int, bytes]:
        query = parse_qs(urlsplit(request.path).query)["query"][0]
        return 200, json.dumps(cpu if "node_cpu" in query else memory).encode()

    return answer


# --- Prometheus -------------------------------------------------------------------------------------------------------


async def test_prometheus_is_asked_for_all_nodes_at_once(told: Answering) -> None:
    poller = await made()
    poller.settings = {"type": "prometheus", "address": told.url + "/"}
    told.answer = prometheus(vector({"a": "12.345", "b": "0"}), vector({"a": "50", "b": "100"}))
    assert await poller.once() == [{"a": NodeUsage(12.35, 50.0), "b": NodeUsage(0.0, 100.0)}]
    assert [urlsplit(request.path).path for request in told.requests] == ["/api/v1/query"] * 2
    answer = next(each for each in poller.log.appended if isinstance(each, Answered))
    sample = read_samples(answer.answer)
    assert (answer.question, sample.at, sample.source) == ("usage", poller.clock.wall(), "prometheus")
    assert poller.polls == ["taken"]


async def test_prometheus_is_the_type_of_an_address(told: Answering) -> None:
    poller = await made()
    poller.settings = {"address": told.url}
    told.answer = prometheus(vector({"a": "1"}), vector({"a": "2"}))
    assert await poller.once() == [{"a": NodeUsage(1.0, 2.0)}]


async def test_instances_may_name_a_port(told: Answering) -> None:
    poller = await made()
    poller.settings = {"address": told.url}
    told.answer = prometheus(vector({"a:9100": "1", "b": "3", "b:9100": "9"}), vector({"a:9100": "2", "b": "4"}))
    assert await poller.once() == [{"a": NodeUsage(1.0, 2.0), "b": NodeUsage(3.0, 4.0)}]


async def test_a_node_of_which_only_one_is_known_is_unknown(told: Answering) -> None:
    poller = await made()
    poller.settings = {"address": told.url}
    told.answer = prometheus(vector({"a": "1", "b": "2", "c": "3"}), vector({"a": "1", "b": "NaN", "c": "3"}))
    assert await poller.once() == [{"a": NodeUsage(1.0, 1.0)}]


async def test_what_is_beyond_the_bounds_is_at_the_bounds(told: Answering) -> None:
    poller = await made()
    poller.settings = {"address": told.url}
    told.answer = prometheus(vector({"a": "-0.01"}), vector({"a": "100.01"}))
    assert await poller.once() == [{"a": NodeUsage(0.0, 100.0)}]


# --- Elasticsearch ----------------------------------------------------------------------------------------------------


async def test_elasticsearch_is_asked_for_averages_by_host(told: Answering) -> None:
    poller = await made()
    poller.settings = {
        "type": "elasticsearch",
        "address": told.url,
        "elasticsearch.username": "me",
        "elasticsearch.password": "pass",
    }
    buckets = [
        {"key": "a", "cpu": {"value": 0.25}, "mem": {"value": 0.5}},
        {"key": "b", "cpu": {"value": None}, "mem": {"value": 0.5}},
    ]
    told.answer = lambda _: (200, json.dumps({"aggregations": {"nodes": {"buckets": buckets}}}).encode())
    assert await poller.once() == [{"a": NodeUsage(25.0, 50.0)}]
    (request,) = told.requests
    assert (request.method, request.path) == ("POST", "/metricbeat-*/_search")
    assert request.headers["Authorization"] == "Basic bWU6cGFzcw=="
    body = json.loads(request.body)
    assert body["query"]["bool"]["filter"][1] == {"terms": {"host.hostname": ["a", "b"]}}
    assert body["aggs"]["nodes"]["terms"] == {"field": "host.hostname", "size": 2}


async def test_index_and_host_name_field_are_configured(told: Answering) -> None:
    poller = await made()
    poller.settings = {
        "type": "elasticsearch",
        "address": told.url,
        "elasticsearch.index": "mine",
        "elasticsearch.hostnameFieldName": "node",
    }
    await poller.once()
    (request,) = told.requests
    assert request.path == "/mine/_search"
    assert json.loads(request.body)["aggs"]["nodes"]["terms"]["field"] == "node"
    assert "Authorization" not in request.headers


async def test_a_number_beyond_all_bounds_is_told_of(told: Answering) -> None:
    poller = await made()
    poller.settings = {"type": "elasticsearch", "address": told.url}
    buckets = [{"key": "a", "cpu": {"value": 10**400}, "mem": {"value": 0.5}}]
    told.answer = lambda _: (200, json.dumps({"aggregations": {"nodes": {"buckets": buckets}}}).encode())
    with capture_logs() as logs:
        assert await poller.once() == []
    assert "no buckets of nodes" in str(logs)


# --- by way of the API server -----------------------------------------------------------------------------------------


def moment(ago: int) -> int:
    """So many seconds before the poller's time, in nanoseconds."""
    return FakeClock().wall() - ago * 10**9


def measured(name: str, ago: int, **used: str) -> dict[str, Any]:
    """An item of metrics-server's list, measured so many seconds before the poller's time."""
    return {"metadata": {"name": name}, "timestamp": rfc3339(moment(ago)), "window": "20s", "usage": used}


async def polled_through(told: Answering, kind: str) -> Poller:
    async with KubeClient(await connect(None, told.url)) as client:
        poller = await made(client)
        poller.settings = {"type": kind}
        await poller.once()
    return poller


async def test_metrics_server_is_asked_through_the_api_server(told: Answering) -> None:
    items = [
        measured("a", 20, cpu="1000000000n", memory="2Gi"),
        measured("b", 20, cpu="1", memory="?"),
        measured("gone", 20, cpu="1"),
    ]
    told.answer = lambda _: (200, json.dumps({"kind": "NodeMetricsList", "items": items}).encode())
    poller = await polled_through(told, "metrics_server")
    assert poller.samples == [{"a": NodeUsage(25.0, 25.0, moment(20))}]
    assert [(request.method, request.path) for request in told.requests] == [
        ("GET", "/apis/metrics.k8s.io/v1beta1/nodes")
    ]


@pytest.mark.parametrize("kind", ["prometheus_adaptor", "prometheus_adapt"])
@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
async def test_prometheus_adapter_is_asked_through_the_api_server(told: Answering, kind: str, version: str) -> None:
    def answer(request: Request) -> tuple[int, bytes]:
        if version not in request.path:
            return 404, b"{}"
        value = "123m" if request.path.endswith("/node_cpu_usage_avg") else "1"
        return 200, json.dumps({"items": [{"describedObject": {"name": "a"}, "value": value}]}).encode()

    told.answer = answer
    poller = await polled_through(told, kind)
    assert poller.samples == [{"a": NodeUsage(12.3, 100.0)}]
    paths = [request.path for request in told.requests if version in request.path]
    base = f"/apis/custom.metrics.k8s.io/{version}/nodes/*"
    assert paths == [f"{base}/node_cpu_usage_avg", f"{base}/node_memory_usage_avg"]


HALF = {"cpu": "2", "memory": "4Gi"}


def adapted(ago_cpu: int, ago_memory: int) -> Answer:
    """Prometheus Adapter's answers about node a, measured so many seconds ago."""

    def answer(request: Request) -> tuple[int, bytes]:
        ago = ago_cpu if request.path.endswith("/node_cpu_usage_avg") else ago_memory
        item = {"describedObject": {"name": "a"}, "value": "500m", "timestamp": rfc3339(moment(ago))}
        return 200, json.dumps({"items": [item]}).encode()

    return answer


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("metrics_server", lambda _: (200, json.dumps({"items": [measured("a", 301, **HALF)]}).encode())),
        ("metrics_server", lambda _: (200, json.dumps({"items": [measured("a", 86_400, **HALF)]}).encode())),
        ("prometheus_adaptor", adapted(301, 301)),
        ("prometheus_adaptor", adapted(10, 600)),
        ("prometheus_adaptor", adapted(600, 10)),
    ],
)
async def test_what_was_measured_too_long_ago_is_no_sample(told: Answering, kind: str, answer: Answer) -> None:
    """An old measurement of metrics-server or Prometheus Adapter, which say when they made it, counted as fresh."""
    told.answer = answer
    with capture_logs() as logs:
        poller = await polled_through(told, kind)
    assert (poller.samples, poller.polls) == ([], ["failed"])
    assert "all that it knows was measured more than 5m ago" in str(logs)


@pytest.mark.parametrize("kind", ["metrics_server", "prometheus_adaptor"])
async def test_what_was_measured_lately_is_a_sample_with_its_time(told: Answering, kind: str) -> None:
    """Of two times the earlier one counts."""
    items = json.dumps({"items": [measured("a", 90, **HALF)]}).encode()
    told.answer = adapted(30, 90) if kind == "prometheus_adaptor" else lambda _: (200, items)
    poller = await polled_through(told, kind)
    assert poller.samples == [{"a": NodeUsage(50.0, 50.0, moment(90))}]


async def test_a_node_without_a_time_of_its_own_has_the_samples(told: Answering) -> None:
    item = {**measured("a", 0, **HALF), "timestamp": None}
    told.answer = lambda _: (200, json.dumps({"items": [item, measured("b", 301, **HALF)]}).encode())
    poller = await polled_through(told, "metrics_server")
    assert poller.samples == [{"a": NodeUsage(50.0, 50.0), "b": NodeUsage(50.0, 50.0, moment(301))}]


async def test_a_time_that_cannot_be_read_makes_a_node_unknown(told: Answering) -> None:
    bad = {**measured("b", 0, **HALF), "timestamp": "yesterday"}
    told.answer = lambda _: (200, json.dumps({"items": [measured("a", 0, **HALF), bad]}).encode())
    poller = await polled_through(told, "metrics_server")
    assert list(poller.samples[0]) == ["a"]


@pytest.mark.parametrize("stated", ["9999-12-31T23:59:59Z", "ahead"])
async def test_what_a_clock_that_is_ahead_measured_is_as_old_as_the_sample(told: Answering, stated: str) -> None:
    """It would count as fresh for as long as that clock is ahead, however long nobody measured anything."""
    item = {**measured("a", -3600, **HALF), **({} if stated == "ahead" else {"timestamp": stated})}
    told.answer = lambda _: (200, json.dumps({"items": [item]}).encode())
    poller = await polled_through(told, "metrics_server")
    assert poller.samples == [{"a": NodeUsage(50.0, 50.0)}]


# --- failures ---------------------------------------------------------------------------------------------------------


def empty(_: Request) -> tuple[int, bytes]:
    return 200, json.dumps(vector({})).encode()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda _: (500, b"oops"), "HTTP 500"),
        (lambda _: (302, b""), "HTTP 302"),
        (lambda _: (200, b"<html>"), "no JSON"),
        (lambda _: (200, b"[]"), "no vector"),
        (lambda _: (200, b'{"status": "error", "data": {}}'), "no vector"),
        (lambda _: (200, b'{"status": "success", "data": {"resultType": "scalar", "result": [1, "1"]}}'), "no vector"),
        (empty, "knows no node's usage"),
        (prometheus(vector({"x": "1"}), vector({"x": "1"})), "knows no node's usage"),
        (prometheus(vector({"a": 10**400}), vector({"a": "1"})), "knows no node's usage"),
        (lambda _: (200, b"x" * ((32 << 20) + 1)), "more than"),
    ],
)
async def test_a_sample_that_cannot_be_taken_is_told_and_leaves_no_event(
    told: Answering, answer: Answer, words: str
) -> None:
    poller = await made()
    poller.settings = {"address": told.url}
    told.answer = answer
    with capture_logs() as logs:
        assert await poller.once() == []
    assert poller.polls == ["failed"]
    (line,) = [each for each in logs if each["log_level"] == "warning"]
    assert words in line["reason"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"type": "prometheus"}, "metrics.address is no URL"),
        ({"type": "prometheus", "address": "me:secret@server:9090"}, "is no URL"),
    ],
)
async def test_settings_that_cannot_work_are_told(settings: dict[str, str], words: str) -> None:
    poller = await made()
    poller.settings = settings
    with capture_logs() as logs:
        assert await poller.once() == []
    assert (poller.polls, words in str(logs), "secret" in str(logs)) == (["failed"], True, False)


async def test_a_source_that_is_not_there_is_told_without_its_password() -> None:
    poller = await made()
    poller.settings = {"address": nobodys_url().replace("http://", "http://me:secret@")}
    with capture_logs() as logs:
        assert await poller.once() == []
    assert ("cannot be queried" in str(logs), "secret" in str(logs)) == (True, False)


async def test_a_source_that_hangs_is_given_up(told: Answering) -> None:
    poller = await made()
    poller.settings = {"address": told.url, "timeout": "100ms"}
    told.answer = told.hang
    with capture_logs() as logs:
        assert await poller.once() == []
    assert "did not answer within 100ms (metrics.timeout)" in str(logs)


async def test_an_api_server_that_hangs_is_given_up(told: Answering) -> None:
    told.answer = told.hang
    async with KubeClient(await connect(None, told.url)) as client:
        poller = await made(client)
        poller.settings = {"type": "metrics_server", "timeout": "100ms"}
        with capture_logs() as logs:
            assert await poller.once() == []
    assert "within 100ms" in str(logs)


@pytest.mark.parametrize(("text", "seconds"), [(None, 60), ("5s", 5), ("1h", 3600), ("0", 60), ("", 60)])
def test_how_long_a_sample_may_take(text: str | None, seconds: float) -> None:
    assert settings_of({} if text is None else {"timeout": text})["timeout"] == seconds * 10**9


async def test_an_api_server_that_refuses_is_told(told: Answering) -> None:
    told.answer = lambda _: (403, b'{"kind": "Status", "reason": "Forbidden", "message": "nodes.metrics.k8s.io"}')
    poller = await polled_through(told, "metrics_server")
    assert (poller.polls, poller.samples) == (["failed"], [])


# --- the interval -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"), [(None, 30), ("5s", 5), ("1m30s", 90), ("0", 30), ("-5s", 30), ("often", 30), ("", 30)]
)
def test_the_interval(text: str | None, seconds: float) -> None:
    assert settings_of({} if text is None else {"interval": text})["interval"] == seconds * 10**9


async def test_samples_come_at_the_interval_and_failures_in_between_change_nothing(told: Answering) -> None:
    poller = await made()
    poller.settings = {"address": told.url, "interval": "10s"}
    good = prometheus(vector({"a": "1"}), vector({"a": "2"}))
    told.answer = good
    async with running(poller.poller.run()):
        await until(lambda: poller.polls == ["taken"])
        told.answer = lambda _: (500, b"")
        await poller.clock.advance_when_asleep(10)
        await until(lambda: poller.polls == ["taken", "failed"])
        told.answer = good
        await poller.clock.advance_when_asleep(9.5)
        assert len(poller.polls) == 2
        poller.clock.advance(0.5)
        await until(lambda: poller.polls == ["taken", "failed", "taken"])
    assert len(poller.samples) == 2


async def test_it_waits_until_there_are_nodes(told: Answering) -> None:
    poller = Poller(None)
    poller.settings = {"address": told.url}
    told.answer = prometheus(vector({"a": "1"}), vector({"a": "2"}))
    async with running(poller.poller.run()):
        await until(lambda: poller.clock.sleeping)
        assert poller.polls == []
        await poller.state_writer.put(puts(node("a")))
        poller.clock.advance(1)
        await until(lambda: poller.polls == ["taken"])


async def test_another_configuration_is_in_force_at_once(told: Answering) -> None:
    poller = await made()
    told.answer = prometheus(vector({"a": "1"}), vector({"a": "2"}))
    async with running(poller.poller.run()):
        poller.settings = {"address": told.url, "interval": "1h"}
        poller.poller.reloaded.set()
        await until(lambda: poller.polls == ["taken"])
        poller.settings = {"address": nobodys_url(), "interval": "1h"}
        await until(lambda: poller.clock.sleeping)
        poller.poller.reloaded.set()
        await until(lambda: poller.polls == ["taken", "failed"])
        poller.settings = {"interval": "5s", "tls.insecureSkipVerify": "true"}
        poller.poller.reloaded.set()
        await until(lambda: not poller.clock.sleeping)


async def test_a_sample_starts_a_cycle_only_when_someone_decides_by_it(told: Answering) -> None:
    poller = await made()
    poller.settings = {"address": told.url}
    told.answer = prometheus(vector({"a": "1"}), vector({"a": "2"}))
    state_writer = poller.state_writer
    asked: list[str] = []

    def is_relevant(question: str) -> bool:
        asked.append(question)
        return len(asked) > 1

    poller.is_relevant = is_relevant
    state_writer.changed.clear()
    await poller.once()
    assert not state_writer.changed.is_set()
    await poller.once()
    assert state_writer.changed.is_set()
    assert asked == ["usage", "usage"]
    assert state_writer.state.answers["usage"]


async def test_what_its_pause_meets_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    poller, slept = Poller(None), list[float]()  # without nodes
    poller.settings = {"address": nobodys_url()}

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        raise OSError("no clock")

    monkeypatch.setattr(poller.clock, "sleep", sleep)
    with pytest.raises(OSError, match="no clock"):
        async with running(poller.poller.run()) as polling:
            await until(lambda: polling.done() or len(slept) > 1)
    assert len(slept) == 1

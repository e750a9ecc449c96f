"""A daemon that asks the world: an extender in its sessions, and Prometheus between them. Its log holds the answers."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.daemon.answering import Answering, Request, server
from tests.e2e.cluster import Cluster, Obj, node, until
from vcd.model import events as ev
from vcd.scheduling.framework.usage_samples import NodeUsage, read_samples
from vcd.timetravel.replay import replay

CONF = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: usage
  - name: extender
    arguments:
      extender.urlPrefix: {url}
      extender.httpTimeout: 10s
      extender.predicateVerb: predicate
metrics:
  address: {url}
  interval: 1s
"""
USAGE = {"node-00": "95", "node-01": "10", "node-02": "20"}


def answer(request: Request) -> tuple[int, bytes]:
    """The extender wants nothing on node-01; node-00 is too busy."""
    parts = urlsplit(request.path)
    if parts.path == "/predicate":
        refused = json.loads(request.body)["node"]["Name"] == "node-01"
        return 200, json.dumps({"status": "not there"} if refused else {}).encode()
    assert parse_qs(parts.query)["query"]
    result = [{"metric": {"instance": name}, "value": [0, value]} for name, value in USAGE.items()]
    return 200, json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def asked(told: Answering) -> set[str]:
    """The nodes that the extender was asked about."""
    return {json.loads(each.body)["node"]["Name"] for each in told.requests if each.path == "/predicate"}


def holding(folder: Path, text: bytes) -> list[str]:
    """The files below a folder that hold a text."""
    return [each.name for each in sorted(folder.rglob("*")) if each.is_file() and text in each.read_bytes()]


@pytest.mark.plugin("extender")
@pytest.mark.plugin("usage")
async def test_what_the_world_said_is_in_the_log_and_decides_again_without_it(tmp_path: Path) -> None:
    with server() as told:
        told.answer = answer
        async with Cluster(tmp_path) as cluster:
            cluster.add_nodes(3)
            file = tmp_path / "scheduler.conf"
            file.write_text(CONF.format(url=told.url.replace("http://", "http://me:s3cret@")))
            daemon = await cluster.started("a", f"--scheduler-conf={file}")
            await until(lambda: daemon.events("answer"), what="a sample is in the log")
            keys = cluster.submit("gang", 3)
            await cluster.until_bound(keys)
            assert {bound.node for bound in cluster.binds} == {"node-02"}
            assert (await daemon.metrics())['vcd_usage_polls_total{result="taken"}'] >= 1
        assert asked(told) == {"node-01", "node-02"}
    log = daemon.log
    sample = next(event for event in daemon.events("answer") if isinstance(event, ev.Answered))
    assert read_samples(sample.answer).nodes["node-00"] == NodeUsage(95.0, 95.0)
    assert any(session.asked for session in daemon.sessions())
    assert [one.difference for one in replay(log) if one.difference is not None] == []
    texts = [event.text for event in daemon.events("policy") if isinstance(event, ev.PolicyLoaded)]
    assert [told.url in text for text in texts] == [True]
    assert holding(tmp_path, b"s3cret") == ["scheduler.conf"]
    assert "s3cret" not in "".join(texts)


SILENT = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: extender
    arguments:
      extender.urlPrefix: {url}
      extender.httpTimeout: 10s
      extender.sessionTimeout: 300ms
      extender.predicateVerb: predicate
      extender.managedResources: example.com/license
"""


def faults(cluster: Cluster) -> list[Obj]:
    """The Events of plugins that cannot do their work."""
    return [event for event in cluster.store.list("events") if event["reason"] == "PluginFault"]


async def test_an_extender_that_is_silent_holds_up_nobody_and_is_told_of(tmp_path: Path) -> None:
    with server() as told:
        told.answer = told.hang
        async with Cluster(tmp_path) as cluster:
            cluster.add_nodes(2)
            licensed = node("licensed")
            licensed["status"]["allocatable"]["example.com/license"] = "4"
            cluster.store.create("nodes", licensed)
            file = tmp_path / "scheduler.conf"
            file.write_text(SILENT.format(url=told.url))
            daemon = await cluster.started("a", f"--scheduler-conf={file}")
            asks = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": "1", "example.com/license": "1"}}}
            waiting = cluster.submit("licensed", 2, containers=[asks])
            await until(lambda: faults(cluster), what="the Event")
            assert "is not asked any more in this session" in faults(cluster)[0]["message"]
            assert faults(cluster)[0]["involvedObject"]["kind"] == "ConfigMap"
            await daemon.until_metric("vcd_extender_out", 1)
            await cluster.until_bound(cluster.submit("plain", 2))
            assert not cluster.bound(waiting)
            told.answer = lambda _: (200, b"{}")
            told.released.set()
            await cluster.until_bound(waiting)
            await until(lambda: daemon.sessions()[-1].asked, what="a session with answers")
    assert [one.difference for one in replay(daemon.log) if one.difference is not None] == []

"""Plugins that have running pods moved, through the daemon: tdm when a zone closes, rescheduling by what nodes use."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.daemon.answering import Request, server
from tests.e2e.cluster import GROUPS, Cluster, Obj, group, node, pod, until
from vcd.timetravel.replay import replay

TDM = """
actions: "enqueue, allocate, shuffle"
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: tdm
    arguments:
      tdm.revocable-zone.z: "{window}"
      tdm.evict.period: 1s
"""
RESCHEDULING = """
actions: "enqueue, allocate, shuffle"
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: rescheduling
    arguments:
      interval: 1s
      strategies:
      - name: lowNodeUtilization
        params:
          thresholds: {{cpu: 30, memory: 90}}
          targetThresholds: {{cpu: 60}}
metrics:
  address: {url}
  interval: 1s
"""
WHOLE_DAY = "0:00-0:00"


def in_two_hours() -> str:
    """A window that is closed now, and for as long as a test may take."""
    begin = datetime.now(UTC) + timedelta(hours=2)
    return f"{begin:%H:%M}-{begin + timedelta(hours=1):%H:%M}"


def left(cluster: Cluster, prefix: str) -> list[str]:
    """The pods of a group that are there and not going."""
    found = [each["metadata"] for each in cluster.store.list("pods", "default")]
    return [meta["name"] for meta in found if meta["name"].startswith(prefix) and "deletionTimestamp" not in meta]


def running(cluster: Cluster, count: int) -> bool:
    phases = [each.get("status", {}).get("phase") for each in cluster.store.list("pods", "default")]
    return phases.count("Running") == count


async def test_a_strict_gang_leaves_a_zone_when_it_closes(tmp_path: Path) -> None:
    zone: Obj = node("zone")
    zone["metadata"]["labels"]["volcano.sh/revocable-zone"] = "z"
    file = tmp_path / "scheduler.conf"
    file.write_text(TDM.format(window=WHOLE_DAY))
    async with Cluster(tmp_path) as cluster:
        cluster.store.create("nodes", zone)
        daemon = await cluster.started("a", f"--scheduler-conf={file}")
        cluster.store.create(GROUPS, group("gang", 3))
        for number in range(3):
            made = pod(f"gang-{number}", "gang")
            made["metadata"]["annotations"]["volcano.sh/revocable-zone"] = "*"
            cluster.store.create("pods", made)
        await cluster.until_bound([f"default/gang-{number}" for number in range(3)])
        await until(lambda: running(cluster, 3), what="all of it runs")
        file.write_text(TDM.format(window=in_two_hours()))
        await until(lambda: left(cluster, "gang") == [], what="the whole gang goes")
    assert [one.difference for one in replay(daemon.log) if one.difference is not None] == []


@pytest.mark.plugin("rescheduling")
async def test_pods_leave_a_node_that_is_busy_for_one_that_is_not(tmp_path: Path) -> None:
    usage = {"busy": "20", "idle": "20"}

    def answer(request: Request) -> tuple[int, bytes]:
        assert parse_qs(urlsplit(request.path).query)["query"]
        result = [{"metric": {"instance": name}, "value": [0, value]} for name, value in usage.items()]
        return 200, json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()

    with server() as told:
        told.answer = answer
        file = tmp_path / "scheduler.conf"
        file.write_text(RESCHEDULING.format(url=told.url))
        async with Cluster(tmp_path) as cluster:
            cluster.store.create("nodes", node("busy"))
            daemon = await cluster.started("a", f"--scheduler-conf={file}")
            await cluster.until_bound(cluster.submit("train", 4, minimum=2))
            await until(lambda: running(cluster, 4), what="all of it runs")
            cluster.store.create("nodes", node("idle"))
            usage["busy"] = "95"
            await until(lambda: len(left(cluster, "train")) == 2, what="what it has beyond its minimum goes")
            cluster.store.create("nodes", node("another"))
            await until(lambda: len(daemon.events("answer")) > 3, what="more samples came")
            assert len(left(cluster, "train")) == 2
            assert (await daemon.metrics())["vcd_rescheduling_known_nodes"] == 2
    assert [one.difference for one in replay(daemon.log) if one.difference is not None] == []

"""A plugin from elsewhere that never comes back: the scheduler goes on without it, and so do watch and lease."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import LEASES, NAMESPACE, RENEW_DEADLINE, Cluster, Obj, node, until
from vcd.model import events as ev
from vcd.scheduling.framework import registry
from vcd.timetravel.replay import replay

LIMIT = 2.0
CONF = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: gang
  - name: endless
  - name: predicates
"""
MODULE = """
from vcd.scheduling.framework.plugin import Plugin

class Endless(Plugin):
    name = "endless"

    def job_valid(self, job):
        while True:
            pass
"""
FAULT = f"endless: interrupted at job_valid, since it took more than {LIMIT:g} s in one session"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which a distribution with the plugin is installed, for this process and those that it starts."""
    folder = tmp_path / "site"
    info = folder / "endless-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: endless\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[vcd.plugins]\nendless = endless_plugin:Endless\n")
    (folder / "endless_plugin.py").write_text(MODULE)
    known = (registry.plugins, registry.actions, registry.distributions)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])))
    for each in known:
        each.cache_clear()
    yield folder
    for each in known:
        each.cache_clear()


def faults(cluster: Cluster) -> list[Obj]:
    """The Events of plugins that failed."""
    return [event for event in cluster.store.list("events") if event["reason"] == "PluginFault"]


async def test_the_scheduler_survives_a_plugin_in_an_endless_loop(tmp_path: Path, installed: Path) -> None:
    file = tmp_path / "scheduler.conf"
    file.write_text(CONF)
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1, 16)
        daemon = await cluster.started("a", f"--scheduler-conf={file}", f"--plugin-timeout={LIMIT:g}s")
        began = time.monotonic()
        keys = cluster.submit("train", 3)
        await until(lambda: cluster.calls(daemon, "update", since=began + LIMIT / 4))  # it holds the session by now
        cluster.store.create("nodes", node("late", 1))
        await until(lambda: "late" in [event.key for event in daemon.events("put") if isinstance(event, ev.ObjectPut)])
        assert not cluster.bound(keys)  # the watch went on while the session did not end
        await cluster.until_bound(keys)
        ended = time.monotonic()
        assert ended - began > LIMIT
        renewals = [made.at for made in cluster.calls(daemon, "update", since=began) if made.call.resource == LEASES]
        gaps = [after - before for before, after in zip([began, *renewals], [*renewals, ended], strict=True)]
        assert max(gaps) < RENEW_DEADLINE

        others = cluster.submit("later", 2)
        await cluster.until_bound(others, LIMIT / 2)  # it is not tried again at once
        assert (await daemon.metrics())['vcd_plugin_faults_total{plugin="endless"}'] >= 2
        await until(lambda: faults(cluster), what="the Event")
        told = faults(cluster)
        assert [(event["message"], event["count"], event["involvedObject"]["namespace"]) for event in told] == [
            (f"{FAULT}; the cycle went on without it", 1, NAMESPACE)
        ]
        sessions = [record for record in daemon.sessions() if record.interrupted]
        assert len(sessions) >= 2
        for record in sessions:
            assert record.interrupted == ev.decode_plan(record.plan).faults == (FAULT,)
            assert record.versions["endless"] == "1.0"
        assert {each.difference for each in replay(daemon.log)} == {None}

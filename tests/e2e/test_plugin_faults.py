"""A plugin from elsewhere that never comes back: watch and lease go on, and after a restart sessions without it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import LEASES, NAMESPACE, RENEW_DEADLINE, Cluster, Obj, node, until
from tests.waiting import assert_prompt
from vcd.model import events as ev
from vcd.scheduling.framework import registry
from vcd.timetravel.replay import replay

LIMIT = 3.0
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
FAULT = f"endless: took more than {LIMIT:g} s in one session, at job_valid"


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
    flags = (f"--scheduler-conf={file}", f"--plugin-timeout={LIMIT:g}s")
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1, 16)
        daemon = await cluster.started("a", *flags)
        began = time.monotonic()
        keys = cluster.submit("train", 3)
        await until(lambda: daemon.events("late"), what="the log tells of it")
        cluster.store.create("nodes", node("late", 1))
        await until(lambda: daemon.has_seen(["late"]))
        assert await daemon.health() == 503
        assert await daemon.health("readyz") == 200
        assert (await daemon.metrics())['vcd_plugin_faults_total{plugin="endless"}'] == 1
        await until(lambda: faults(cluster), what="the Event")
        (told,) = faults(cluster)
        words = "endless does not come back from job_valid; vcd has to be restarted, and goes on without it"
        assert (told["message"], told["count"], told["involvedObject"]["namespace"]) == (words, 1, NAMESPACE)
        ended = time.monotonic()
        assert ended - began > LIMIT
        renewals = [made.at for made in cluster.calls(daemon, "update", since=began) if made.call.resource == LEASES]
        gaps = [after - before for before, after in zip([began, *renewals], [*renewals, ended], strict=True)]
        assert renewals  # the lease went on while the session did not end
        assert_prompt(max(gaps), RENEW_DEADLINE)

        daemon.signal(signal.SIGTERM)  # as the kubelet does once the probe has failed for a while
        assert await daemon.ended() == 0
        assert not cluster.bound(keys)
        again = await cluster.started("a", *flags, log=daemon.log)
        await cluster.until_bound(keys)
        others = cluster.submit("later", 2)
        await cluster.until_bound(others)
        assert await again.health() == 200
        sessions = [record for record in again.sessions() if record.interrupted]
        assert len(sessions) >= 2
        for record in sessions:
            assert record.interrupted == ev.decode_plan(record.plan).faults == (FAULT,)
            assert record.versions["endless"] == "1.0"
        assert {each.difference for each in replay(again.log)} == {None}

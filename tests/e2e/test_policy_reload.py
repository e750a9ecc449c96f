"""A configuration that changes while the daemon runs: a good one comes into force, a bad one told (Volcano #4660)."""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from pathlib import Path

import pytest
from aiohttp import web

from tests.e2e.cluster import GROUPS, NAMESPACE, Cluster, Daemon, Obj, until, until_quiet
from tests.e2e.test_replicas import Replicas
from tests.sizes import some
from vcd.model.events import PolicyLoaded

GOOD = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: predicates
  - name: nodeorder
"""
TYPO = GOOD.replace("allocate", "allocat")
NAMELESS = GOOD.replace("- name: gang", "- name: |\n")
"""A bar too many: a plugin without a name."""
IN_A_MAPPING = GOOD + "  - name: usage\n    arguments: {thresholds: {cpu: eighty}}\nmetrics: {type: promtheus}\n"
OTHER = GOOD.replace("nodeorder", "binpack")
STAYS = "configuration refused; the one in force stays"
REFUSED = 'vcd_installation_faults{code="configuration-refused",subject="--scheduler-conf"}'


async def configured(cluster: Cluster, folder: Path, *flags: str) -> tuple[Daemon, Path]:
    """A daemon with a configuration file, and one node."""
    cluster.add_nodes(1, 16)
    file = folder / "scheduler.conf"
    file.write_text(GOOD)
    return await cluster.started("a", f"--scheduler-conf={file}", *flags), file


async def in_force(daemon: Daemon) -> list[str]:
    """The digests that the metrics page shows."""
    return [name for name, value in (await daemon.metrics()).items() if name.startswith("vcd_policy_info") and value]


def policies(daemon: Daemon) -> list[str]:
    """The texts in the log, in order."""
    return [event.text for event in daemon.events("policy") if isinstance(event, PolicyLoaded)]


REFUSALS = {
    TYPO: ["did you mean allocate?"],
    IN_A_MAPPING: ['thresholds.cpu: "eighty": must be an integer from 0 to 100', "did you mean prometheus?"],
    NAMELESS: ["the plugin has no name"],  # it once passed, and ended the leader that reloaded it
}


@pytest.mark.parametrize("name", some(1, ["vcd-scheduler-configmap", ""]))
async def test_a_bad_configuration_is_reported_by_log_metrics_and_event_and_changes_nothing(
    tmp_path: Path, name: str
) -> None:
    async with Cluster(tmp_path) as cluster:
        daemon, file = await configured(cluster, tmp_path, *([f"--scheduler-configmap={name}"] if name else []))
        before = await in_force(daemon)
        for number, text in enumerate(REFUSALS, 1):
            file.write_text(text)
            await until(partial(_refused_times, daemon, number), what="it is refused")
        lines = daemon.lines(STAYS)
        assert {line["level"] for line in lines} == {"error"}
        for line, words in zip(lines, REFUSALS.values(), strict=True):
            assert all(each in line["reason"] for each in words), line
        assert (await daemon.metrics())["vcd_policy_reload_errors_total"] == len(REFUSALS)
        assert await in_force(daemon) == before
        assert len(before) == 1
        await until(lambda: any("the plugin has no name" in event["message"] for event in told(cluster)))
        first = told(cluster)[0]
        assert (first["type"], "did you mean allocate?" in first["message"]) == ("Warning", True)
        assert first["involvedObject"]["kind"] == "ConfigMap"
        assert first["involvedObject"]["name"] == (name or "volcano-scheduler-configmap")
        await cluster.until_bound(cluster.submit("gang", 8))
        assert policies(daemon) == [GOOD]
        assert len({session.policy for session in daemon.sessions()}) == 1


def _refused_times(daemon: Daemon, count: int) -> bool:
    return len(daemon.lines(STAYS)) == count


def told(cluster: Cluster) -> list[Obj]:
    return [each for each in cluster.store.list("events", NAMESPACE) if each["reason"] == "BadConfiguration"]


async def test_a_good_configuration_comes_into_force(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        daemon, file = await configured(cluster, tmp_path)
        await cluster.until_bound(cluster.submit("first", 4))
        before = await in_force(daemon)
        file.write_text(OTHER)
        await until(lambda: daemon.lines("configuration reloaded"))
        await cluster.until_bound(cluster.submit("second", 4))
        assert policies(daemon) == [GOOD, OTHER]
        assert len({session.policy for session in daemon.sessions()}) == 2
        assert await in_force(daemon) != before


async def test_a_bad_configuration_at_the_start_ends_the_program(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        file = tmp_path / "scheduler.conf"
        file.write_text(TYPO)
        daemon = await cluster.start("a", f"--scheduler-conf={file}")
        assert await daemon.ended() == 2
        assert "did you mean allocate?" in daemon.lines("stopped")[0]["reason"]


async def test_a_bad_configuration_at_the_next_start_leaves_the_last_good_one_in_force(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        daemon, file = await configured(cluster, tmp_path)
        await cluster.until_bound(cluster.submit("first", 1))
        daemon.signal(signal.SIGTERM)
        assert await daemon.ended() == 0
        file.write_text(TYPO)
        again = await cluster.started("a", f"--scheduler-conf={file}")
        await cluster.until_bound(cluster.submit("second", 1))
        await again.until_metric(REFUSED, 1)
        assert (await again.metrics())["vcd_policy_last_reload_successful"] == 0
        await until(lambda: told(cluster))
        assert policies(again) == [GOOD]
        file.write_text(OTHER)
        await again.until_metric("vcd_policy_last_reload_successful", 1)
        await again.until_metric(REFUSED, None)


STILL = GOOD.replace("enqueue, allocate, backfill", "enqueue, backfill")


@pytest.mark.parametrize("slow", some(1, [0.3, 0.0]))
async def test_who_waited_for_another_configuration_is_served_once_its_kinds_are_listed(
    tmp_path: Path, slow: float
) -> None:
    async def slowly(request: web.Request) -> None:
        if request.path.endswith("/resourcequotas") and "watch" not in request.query:
            await asyncio.sleep(slow)

    async with Cluster(tmp_path) as cluster:
        daemon, file = await configured(cluster, tmp_path)
        cluster.server.faults = slowly
        file.write_text(STILL)
        await until(lambda: daemon.lines("configuration reloaded"))
        names = cluster.submit("gang", 2)
        await until(lambda: cluster.store.list(GROUPS)[0].get("status", {}).get("phase") == "Inqueue")
        await until_quiet(daemon)
        file.write_text(GOOD + "  - name: resourcequota\n")
        await until(lambda: len(daemon.lines("configuration reloaded")) == 2)
        await cluster.until_bound(names)


async def test_who_takes_over_decides_by_the_file_as_it_is_then(tmp_path: Path) -> None:
    """It followed while the file changed: what it read at its own start was in force long ago."""
    async with Replicas(tmp_path) as cluster:
        leader, file = await configured(cluster, tmp_path)
        follower = await cluster.start("b", f"--scheduler-conf={file}")
        await cluster.until_following(follower)
        await cluster.until_bound(cluster.submit("first", 1))
        file.write_text(OTHER)
        await until(lambda: policies(leader)[-1:] == [OTHER], what="the new one is in force")
        await cluster.until_bound(cluster.submit("second", 1))
        await cluster.until_agreed(leader, follower)
        await leader.kill()
        before = len(follower.sessions())
        cluster.submit("third", 1)
        await cluster.until_leading(follower)
        await cluster.until_bound(["default/third-0"])
        digests = {one.digest: one.text for one in follower.events("policy") if isinstance(one, PolicyLoaded)}
        assert {digests[each.policy] for each in follower.sessions()[before:]} == {OTHER}
        assert policies(follower) == [GOOD, OTHER]


async def test_who_takes_over_keeps_what_was_in_force_where_the_file_is_bad(tmp_path: Path) -> None:
    async with Replicas(tmp_path) as cluster:
        leader, file = await configured(cluster, tmp_path)
        follower = await cluster.start("b", f"--scheduler-conf={file}")
        await cluster.until_following(follower)
        file.write_text(OTHER)
        await until(lambda: policies(leader)[-1:] == [OTHER], what="the new one is in force")
        file.write_text(TYPO)
        await until(lambda: leader.lines(STAYS))
        await cluster.until_bound(cluster.submit("second", 1))
        await cluster.until_agreed(leader, follower)
        await leader.kill()
        await cluster.until_leading(follower)
        assert follower.lines(STAYS)
        await cluster.until_bound(cluster.submit("third", 1))
        assert policies(follower) == [GOOD, OTHER]

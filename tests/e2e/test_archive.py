"""The log in an archive: all replicas and their disks are lost, and a new one goes on from what was shipped."""

from __future__ import annotations

import asyncio
import shutil
import signal
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, Daemon, until
from tests.e2e.test_replicas import Replicas
from vcd.api import explain
from vcd.eventlog import LogReader
from vcd.eventlog.archive.checking import check
from vcd.eventlog.archive.lines import ListedSegments

OFTEN = ("--archive-every=200ms", "--checkpoint-interval=100")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An empty directory."""
    return made(tmp_path / "archive")


def made(folder: Path) -> Path:
    """A directory, now."""
    folder.mkdir()
    return folder


def shipped(archive: Path) -> int:
    """The last event that is there."""
    return max((one.last for one in ListedSegments.of(each.name for each in archive.iterdir()).segments), default=0)


def head(daemon: Daemon) -> int:
    """The last event of a replica's log."""
    with LogReader(daemon.log) as reader:
        return reader.head()


def sessions(log: Path) -> dict[int, bytes]:
    """The sessions of a log with their plans."""
    with LogReader(log) as reader:
        return {info.number: reader.session(info.number).plan for info in reader.sessions()}


async def lose(daemon: Daemon) -> Path:
    """Kill a replica and take its disk away; a copy of its log, for the test alone."""
    await daemon.kill()
    kept = daemon.log.with_name(f"lost-{daemon.log.name}")
    with LogReader(daemon.log):  # so that what is in the write-ahead log is in the file
        pass
    for suffix in ("", "-wal", "-shm"):
        beside = daemon.log.with_name(daemon.log.name + suffix)
        if beside.exists():
            shutil.move(beside, kept.with_name(kept.name + suffix))
    daemon.log.with_name(daemon.log.name + "-lock").unlink(missing_ok=True)
    return kept


async def test_all_replicas_and_their_disks_are_lost_under_load(tmp_path: Path, archive: Path) -> None:
    flags = (f"--archive={archive}", *OFTEN)
    async with Replicas(tmp_path) as cluster:
        cluster.add_nodes(60)
        leader = await cluster.started("a", *flags, E2E_HOUSEKEEPING="0.1")
        follower = await cluster.start("b", *flags, E2E_HOUSEKEEPING="0.1")
        await cluster.until_following(follower)
        keys: list[str] = []
        for number in range(40):
            keys += cluster.submit(f"gang-{number}", 8)
        await until(lambda: len(cluster.binds) > 100)
        at_least = head(leader)
        await until(lambda: shipped(archive) >= at_least, limit=40, what="it is shipped")
        leader.process.kill()
        follower.process.kill()
        lost = [await lose(daemon) for daemon in (leader, follower)]
        there = shipped(archive)
        assert check(str(archive)).problems == []

        again = await cluster.started("a", *flags, E2E_HOUSEKEEPING="0.1")
        other = await cluster.start("b", *flags, E2E_HOUSEKEEPING="0.1")
        await cluster.until_following(other)
        (restored,) = again.lines("restored")
        assert restored["event"] == "restored"
        await cluster.until_bound(keys, limit=60)
        assert sorted(bind.key for bind in cluster.binds) == sorted(keys)
        with LogReader(lost[0]) as before, LogReader(again.log) as now:
            assert now.link(there) == before.link(there) is not None
            known = {info.number for info in before.sessions() if info.sequence <= there}
        old, new = sessions(lost[0]), sessions(again.log)
        assert known
        assert {number: new[number] for number in known} == {number: old[number] for number in known}
        assert sorted(new) == list(range(1, max(new) + 1))
        assert max(new) > max(known)
        assert "bound" in {episode.what for episode in explain(again.log, "job", "gang-0").episodes}
        await until(lambda: shipped(archive) > there, limit=40, what="it is shipped on")
        assert check(str(archive)).problems == []


async def test_a_replica_that_is_told_to_stop_ships_all(tmp_path: Path, archive: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        daemon = await cluster.started("a", f"--archive={archive}")
        await cluster.until_bound(cluster.submit("gang", 4))
        daemon.signal(signal.SIGTERM)
        assert await daemon.ended() == 0
        assert shipped(archive) == head(daemon)


async def test_without_its_store_a_daemon_goes_on_and_tells(tmp_path: Path) -> None:
    archive = tmp_path / "unmounted"
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(2)
        # without a store there is nothing to begin with either: it waits for none
        daemon = await cluster.start("a", f"--archive={archive}", *OFTEN, log=await begun(cluster, tmp_path))
        await cluster.until_leading(daemon)
        await cluster.until_bound(cluster.submit("gang", 4))
        await until(lambda: len(daemon.lines("the event log is not shipped")) > 1, limit=40, what="it is told")
        assert "there is no such directory; mount it" in daemon.lines("the event log is not shipped")[0]["reason"]
        assert (await daemon.metrics())["vcd_log_archive_failures_total"] >= 2
        made(archive)
        await until(lambda: shipped(archive) >= head(daemon) > 0, limit=40, what="it is shipped")
        await daemon.until_metric("vcd_log_archive_age_seconds", 0)


async def begun(cluster: Cluster, folder: Path) -> Path:
    """The log of a replica that ended well."""
    daemon = await cluster.started("first")
    daemon.signal(signal.SIGTERM)
    await daemon.ended()
    return daemon.log


async def test_a_store_that_cannot_be_read_at_the_start_does_not_keep_a_replica_from_scheduling(tmp_path: Path) -> None:
    archive = tmp_path / "unmounted"
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        daemon = await cluster.start("a", f"--archive={archive}")
        await until(lambda: daemon.lines("the event log is not restored"), what="it is told")
        assert await daemon.health("healthz") == 200
        assert await daemon.health("readyz") == 503
        await until(lambda: daemon.lines("started"), 40, "it begins without")
        await cluster.until_leading(daemon)
        await cluster.until_bound(cluster.submit("gang", 4))


class Shrinking(Cluster):
    """A cluster whose logs keep next to nothing: not each session that is left can be decided again."""

    def check_laws(self) -> None:
        """As elsewhere, but for replays."""
        assert not self._watched.broken
        assert not self.refused


async def test_history_that_is_not_shipped_goes_only_for_the_size_of_the_log(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    flags = (f"--archive={archive}", *OFTEN, "--log-retention-age=1ms", "--log-retention-size=300Ki")
    async with Shrinking(tmp_path) as cluster:
        cluster.add_nodes(40)
        daemon = await cluster.start("a", *flags, log=await begun(cluster, tmp_path), E2E_HOUSEKEEPING="0.05")
        await cluster.until_leading(daemon)
        await until(lambda: daemon.lines("shipped"), what="the archive is there")
        archive.rename(tmp_path / "unmounted")
        number = 0
        while not daemon.lines("history was removed that is not in the archive, since the log may not grow any more"):
            assert number < 30
            number += 1
            await cluster.until_bound(cluster.submit(f"gang-{number}", 8))
            await asyncio.sleep(0)
        assert (await daemon.metrics())["vcd_log_archive_missed_events_total"] > 0

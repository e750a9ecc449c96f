"""The log in an archive: all replicas and their disks are lost, and a new one goes on from what was shipped."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, Daemon, until
from tests.e2e.s3 import Bucket, found_by_tools
from tests.e2e.test_replicas import Replicas
from tests.sizes import some
from vcd.api import explain
from vcd.eventlog import LogReader
from vcd.eventlog.archive.archive_verification import check
from vcd.eventlog.archive.segment_index import SegmentIndex

WITHOUT = "the event log starts without its history; restore it from the archive with `vcd log restore`"
OFTEN = ("--archive-every=200ms", "--checkpoint-interval=100")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An empty directory."""
    return made(tmp_path / "archive")


def made(folder: Path) -> Path:
    """A directory, now."""
    folder.mkdir()
    return folder


def names(folder: Path) -> list[str]:
    """The files in a folder."""
    return [each.name for each in folder.iterdir()]


def partials(folder: Path) -> list[str]:
    """Those that are not whole."""
    return [name for name in names(folder) if ".partial" in name]


def shipped(archive: Path) -> int:
    """The last event that is there."""
    return max((one.last for one in SegmentIndex.of(names(archive)).segments), default=0)


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
        await until(lambda: shipped(archive) >= at_least, what="it is shipped")
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
        keys += cluster.submit("afterwards", 8)
        await cluster.until_bound(keys)
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
        await until(lambda: shipped(archive) > there, what="it is shipped on")
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
        await until(lambda: len(daemon.lines("the event log is not shipped")) > 1, what="it is told")
        assert "there is no such directory; mount it" in daemon.lines("the event log is not shipped")[0]["reason"]
        assert (await daemon.metrics())["vcd_log_archive_failures_total"] >= 2
        made(archive)
        await until(lambda: shipped(archive) >= head(daemon) > 0, what="it is shipped")
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
        await until(lambda: daemon.lines("started"), what="it begins without")
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
        cluster.add_nodes(40, cpu=80)
        daemon = await cluster.start("a", *flags, log=await begun(cluster, tmp_path), E2E_HOUSEKEEPING="0.05")
        await cluster.until_leading(daemon)
        await until(lambda: daemon.lines("shipped"), what="the archive is there")
        archive.rename(tmp_path / "unmounted")
        number = 0
        while not daemon.lines("history was removed that is not in the archive, since the log may not grow any more"):
            assert number < 300, "the log grows without end"
            number += 1
            await cluster.until_bound(cluster.submit(f"gang-{number}", 8))
        assert (await daemon.metrics())["vcd_log_archive_missed_events_total"] > 0


async def test_a_store_that_never_answers_is_given_up_and_nothing_in_it_is_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = Bucket()
    async with bucket.served(), Cluster(tmp_path) as cluster:
        found_by_tools(bucket.url, tmp_path, monkeypatch)
        cluster.add_nodes(2)
        flags = ("--archive=s3://logs/one", *OFTEN)
        first = await cluster.started("a", *flags, E2E_HOUSEKEEPING="0.1")
        await cluster.until_bound(cluster.submit("before", 4))
        await until(lambda: first.lines("shipped"), what="it is shipped")
        first.signal(signal.SIGTERM)
        assert await first.ended() == 0
        before = dict(bucket.objects)
        bucket.answers.clear()
        asked = bucket.asked
        again = await cluster.start("b", *flags, E2E_HOUSEKEEPING="0.1", E2E_ARCHIVE="8")
        await again.until_healthy()  # it answers before it asks the store
        assert await again.health("readyz") == 503
        await until(lambda: bucket.asked > asked, what="it asks the store")
        await cluster.until_leading(again)
        assert "did not answer for 8 s" in again.lines("the event log is not restored")[0]["reason"]
        (given_up,) = again.lines(WITHOUT)
        assert given_up["reason"] == "it was not restored within 16 s"
        await cluster.until_bound(cluster.submit("after", 4))
        await until(lambda: again.lines("the event log is not shipped"), what="that is told, too")
        bucket.answers.set()
        await until(lambda: again.lines("shipped"), what="it is shipped")
        assert before.items() <= bucket.objects.items()
        assert partials(tmp_path) == []


@pytest.mark.parametrize("status", some(1, [403, 404, 500]))
async def test_what_a_store_answers_is_told_and_a_replica_begins_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    bucket = Bucket()
    bucket.status = status
    async with bucket.served(), Cluster(tmp_path) as cluster:
        found_by_tools(bucket.url, tmp_path, monkeypatch)
        cluster.add_nodes(1)
        daemon = await cluster.start("a", "--archive=s3://logs/one", *OFTEN)
        await cluster.until_leading(daemon)
        assert f"Injected{status}" in daemon.lines("the event log is not restored")[0]["reason"]
        await cluster.until_bound(cluster.submit("gang", 4))
        bucket.status = 200
        await until(lambda: daemon.lines("shipped"), what="it is shipped")


async def test_what_killed_processes_had_begun_to_write_is_removed_unless_it_may_still_be_written(
    tmp_path: Path, archive: Path
) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        first = await cluster.started("a", f"--archive={archive}", *OFTEN)
        await until(lambda: first.lines("shipped"), what="it is shipped")
        segment = SegmentIndex.of(names(archive)).segments[0].name
        left, older, stopped, new = (
            archive / f"{segment}{suffix}.partial" for suffix in (".1a2b3c4d", "", ".00000001", ".00000002")
        )
        others = archive / "somebody-elses.partial"
        with stopped.open("wb") as writer:
            fcntl.flock(writer, fcntl.LOCK_EX)
            for each in (left, older, stopped, new, others):
                each.write_bytes(b"half of a segment")
            for each in (left, older, stopped, others):
                os.utime(each, (time.time() - 7200,) * 2)
            await cluster.until_bound(cluster.submit("gang", 4))
            await until(lambda: not left.exists() and not older.exists(), what="what is left goes")
            assert stopped.exists() and new.exists() and others.exists()
        await until(lambda: shipped(archive) >= head(first), what="it is shipped on")
        assert check(str(archive)).problems == []

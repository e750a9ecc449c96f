"""A log shipped in segments is restored as it was; what is missing or was changed is named."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from tests.eventlog.samples import SECOND, Clock, fold, leads, noise, put, write_history
from tests.eventlog.test_replication import content
from tests.eventlog.test_retention import begin_retention
from tests.kube.scripted import FakeClock, until
from vcd.daemon.metrics.metrics_collector import Metrics
from vcd.daemon.options import Options
from vcd.daemon.persistence.archiver import Archiver
from vcd.eventlog import EventLog, LogError, LogReader, verify
from vcd.eventlog.archive import restoration, shipping
from vcd.eventlog.archive.archive_verification import check
from vcd.eventlog.archive.restoration import Restored, RestoreJob, restore
from vcd.eventlog.archive.segment_index import SegmentIndex
from vcd.eventlog.archive.segment_names import ArchiveSegment
from vcd.eventlog.archive.segments import read_pieces
from vcd.eventlog.archive.shipping import ShipJob, ShipProgress, ship
from vcd.eventlog.archive.stores import ArchiveError, store_of
from vcd.eventlog.replication import Piece


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An empty directory."""
    (tmp_path / "archive").mkdir()
    return tmp_path / "archive"


def shipped(path: Path, archive: Path, epoch: int | None = 1, age: int | None = None, size: int | None = None) -> int:
    """ShipJob a log; up to which event it is there then."""
    told: list[ShipProgress] = []
    ship(ShipJob(str(path), str(archive), "test", epoch, age, size), told.append)
    return told[-1].sequence


def listed(archive: Path) -> list[ArchiveSegment]:
    """The segments that are there."""
    return SegmentIndex.of(each.name for each in archive.iterdir()).segments


def names(folder: Path) -> set[str]:
    """What is in a folder, but for what SQLite keeps beside a log."""
    return {each.name for each in folder.iterdir() if each.suffix in ("", ".sqlite")}


async def restored(archive: Path, out: Path, **job: int) -> Restored:
    """RestoreJob a log, which is sound and stands alone."""
    found = await restore(RestoreJob(str(archive), str(out), **job))
    assert verify(out, fold).problems == []
    assert [each.name for each in out.parent.glob(f"{out.name}*")] == [out.name]
    return found


async def test_a_log_is_restored_as_it_was_shipped_step_by_step(tmp_path: Path, archive: Path) -> None:
    path, out = tmp_path / "log.sqlite", tmp_path / "out.sqlite"
    clock = Clock()
    for round_ in range(4):
        await write_history(path, 2, checkpoints=(2 * round_ + 1,), clock=clock)
        assert shipped(path, archive) == 12 * (round_ + 1)
    assert check(str(archive)).problems == []
    assert await restored(archive, out) == Restored(1, 48, 8, [])
    assert content(out) == content(path)


async def test_what_is_shipped_again_is_nothing(tmp_path: Path, archive: Path) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 2, checkpoints=(2,))
    shipped(path, archive)
    before = listed(archive)
    assert (shipped(path, archive), listed(archive)) == (12, before)


async def test_a_restored_log_goes_on_and_is_shipped_on(tmp_path: Path, archive: Path) -> None:
    path, out, again = (tmp_path / f"{name}.sqlite" for name in ("log", "out", "again"))
    await write_history(path, 3, checkpoints=(2,))
    shipped(path, archive)
    await restored(archive, out)
    await write_history(out, 2)
    assert shipped(out, archive, epoch=2) == 30
    assert await restored(archive, again) == Restored(1, 30, 5, [])
    assert content(again) == content(out)


async def test_a_log_without_its_beginning_is_shipped_from_its_first_checkpoint_on(
    tmp_path: Path, archive: Path
) -> None:
    path, out = tmp_path / "log.sqlite", tmp_path / "out.sqlite"
    await write_history(path, 4, checkpoints=(2, 3))
    async with EventLog.open(path) as log:
        await log.retain(max_age=61 * SECOND)
    shipped(path, archive)
    assert await restored(archive, out) == Restored(13, 24, 4, [])
    assert content(out) == content(path)


async def test_a_log_that_begins_with_a_checkpoint_numbers_its_sessions_on(tmp_path: Path, archive: Path) -> None:
    path, out = tmp_path / "log.sqlite", tmp_path / "out.sqlite"
    await write_history(path, 3, checkpoints=(3,))
    async with EventLog.open(path) as log:
        await log.append([put(100)])
        await log.retain(max_age=0)
    shipped(path, archive)
    assert await restored(archive, out) == Restored(19, 19, 3, [])
    await write_history(out, 1)
    with LogReader(out) as reader:
        assert [info.number for info in reader.sessions()] == [4]


async def test_large_logs_are_many_segments(tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "SIZE", 20_000)
    path, out = tmp_path / "log.sqlite", tmp_path / "out.sqlite"
    async with EventLog.open(path) as log:
        for number in range(6):
            await log.append([noise(500 * number + each, 200) for each in range(500)])
    await write_history(path, 2, checkpoints=(1,))
    shipped(path, archive)
    assert len(listed(archive)) > 4
    await restored(archive, out)
    assert content(out) == content(path)


async def test_a_missing_segment_is_named_and_what_is_after_it_is_restored(tmp_path: Path, archive: Path) -> None:
    path, out = tmp_path / "log.sqlite", tmp_path / "out.sqlite"
    await three_segments(path, archive)
    (archive / listed(archive)[1].name).unlink()
    assert check(str(archive)).problems == ["events 13 to 24 are missing"]
    assert await restored(archive, out) == Restored(25, 36, 6, ["events 13 to 24 are missing"])


async def three_segments(path: Path, archive: Path) -> None:
    """A log of three segments that each begin with a state."""
    for number in range(3):
        await write_history(path, 2, checkpoints=(2 * number + 2,), clock=Clock(Clock().now + number * 3600 * SECOND))
        shipped(path, archive)


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_damaged_segment_is_named_and_what_can_be_restored_is(
    tmp_path: Path, archive: Path, place: int
) -> None:
    path, out = tmp_path / "log.sqlite", tmp_path / "out.sqlite"
    await three_segments(path, archive)
    file = archive / listed(archive)[place].name
    file.write_bytes(file.read_bytes()[:-9] + b"something")
    (problem,) = check(str(archive)).problems
    assert file.name in problem
    found = await restored(archive, out)
    assert (found.first, found.last) == [(13, 36), (25, 36), (1, 24)][place]
    assert file.name in found.gaps[0]


async def test_a_segment_that_was_changed_with_its_name_is_named(tmp_path: Path, archive: Path) -> None:
    """Whoever gives it a digest that is right cannot make its links right as well."""
    path = tmp_path / "log.sqlite"
    await three_segments(path, archive)
    victim = listed(archive)[1]
    file = archive / victim.name
    data = zstandard.ZstdDecompressor().stream_reader(file.read_bytes()).read()
    forged = zstandard.compress(data.replace(b"node-1", b"node-9"))
    name = msgspec.structs.replace(victim, digest=shipping_digest(forged)).name
    file.unlink()
    (archive / name).write_bytes(forged)
    (problem,) = check(str(archive)).problems
    assert "was changed or moved" in problem
    assert name in problem


def shipping_digest(data: bytes) -> bytes:
    """The digest in a segment's name."""
    return blake2b(data, digest_size=16).digest()


async def test_a_log_is_restored_up_to_a_session_or_a_time(tmp_path: Path, archive: Path) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 4, checkpoints=(2,))
    shipped(path, archive)
    assert await restored(archive, tmp_path / "to.sqlite", to=3) == Restored(1, 21, 3, [])
    with LogReader(path) as reader:
        time = next(iter(reader.read(9, 10))).time
    assert (await restored(archive, tmp_path / "at.sqlite", at=time)).last == 12
    with pytest.raises(ArchiveError, match="it ends with session 4"):
        await restore(RestoreJob(str(archive), str(tmp_path / "none.sqlite"), to=9))
    with pytest.raises(ArchiveError, match="all its events are later"):
        await restore(RestoreJob(str(archive), str(tmp_path / "none.sqlite"), at=5))
    assert names(tmp_path) == {"archive", "at.sqlite", "log.sqlite", "to.sqlite"}


async def test_only_what_is_newer_than_an_age_is_restored(tmp_path: Path, archive: Path) -> None:
    path = tmp_path / "log.sqlite"
    await three_segments(path, archive)
    assert (await restored(archive, tmp_path / "hour.sqlite", age=3700 * SECOND)).first == 13
    assert (await restored(archive, tmp_path / "out.sqlite", age=0)).first == 25
    assert (await restored(archive, tmp_path / "all.sqlite", age=86400 * SECOND)).first == 1


async def test_an_older_leader_cannot_ship_after_a_later_one(tmp_path: Path, archive: Path) -> None:
    old, new = tmp_path / "old.sqlite", tmp_path / "new.sqlite"
    await write_history(old, 2, checkpoints=(1,))
    shipped(old, archive, epoch=3)
    await restored(archive, new)
    async with EventLog.open(new) as log:
        await log.append([leads(4), put(50)])
    shipped(new, archive, epoch=4)
    async with EventLog.open(old) as log:
        await log.append([put(60), put(61), put(62)])
    before = listed(archive)
    with pytest.raises(ArchiveError, match="a leader of epoch 4 shipped to it"):
        shipped(old, archive, epoch=3)
    assert listed(archive) == before


async def test_what_an_older_leader_shipped_beside_is_told_and_can_be_restored(tmp_path: Path, archive: Path) -> None:
    """It was cut off, and another led that did not have its last events."""
    old, new = tmp_path / "old.sqlite", tmp_path / "new.sqlite"
    await write_history(old, 2, checkpoints=(1,))
    shipped(old, archive, epoch=3)
    await restored(archive, new)
    async with EventLog.open(old) as log:
        await log.append([put(60), put(61)])
    shipped(old, archive, epoch=3)
    async with EventLog.open(new) as log:
        await log.append([leads(4), put(50)])
    shipped(new, archive, epoch=4)
    found = check(str(archive))
    assert (found.problems, len(found.uncovered)) == ([], 1)
    await restored(archive, tmp_path / "out.sqlite")
    assert content(tmp_path / "out.sqlite") == content(new)
    await restored(archive, tmp_path / "beside.sqlite", epoch=3)
    assert content(tmp_path / "beside.sqlite") == content(old)


async def test_what_is_old_goes_up_to_a_state(tmp_path: Path, archive: Path) -> None:
    path = tmp_path / "log.sqlite"
    await three_segments(path, archive)
    shipped(path, archive, age=3600 * SECOND)
    assert (await restored(archive, tmp_path / "out.sqlite")).first == 13
    shipped(path, archive, size=1)
    assert await restored(archive, tmp_path / "small.sqlite") == Restored(25, 36, 6, [])


async def test_who_does_not_lead_only_looks(tmp_path: Path, archive: Path) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 1)
    assert shipped(path, archive, epoch=None) == 0
    assert listed(archive) == []


async def test_what_cannot_be_used_is_told(tmp_path: Path, archive: Path) -> None:
    path, out = tmp_path / "log.sqlite", tmp_path / "out.sqlite"
    await write_history(path, 1)
    with pytest.raises(ArchiveError, match="there is no segment"):
        await restore(RestoreJob(str(archive), str(out)))
    with pytest.raises(ArchiveError, match="there is no such directory; mount it"):
        shipped(path, tmp_path / "unmounted")
    with pytest.raises(ArchiveError, match="it is neither a directory nor s3://BUCKET/PREFIX"):
        ship(ShipJob(str(path), "gs://bucket", "test", 1), lambda _: None)
    shipped(path, archive)
    out.write_text("mine")
    with pytest.raises(LogError, match="exists already"):
        await restore(RestoreJob(str(archive), str(out)))
    assert out.read_text() == "mine"


async def test_what_a_newer_vcd_ships_is_not_taken_for_damage(
    tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 1)
    monkeypatch.setattr(shipping, "FORMAT", 2)
    shipped(path, archive)
    with pytest.raises(LogError, match="wrote the archive; use that version"):
        await restore(RestoreJob(str(archive), str(tmp_path / "out.sqlite")))


async def test_what_is_left_of_a_log_that_is_gone_is_not_replayed(tmp_path: Path, archive: Path) -> None:
    path, gone, out = (tmp_path / f"{name}.sqlite" for name in ("log", "gone", "out"))
    await write_history(path, 2)
    shipped(path, archive)
    async with EventLog.open(gone) as log:
        await log.append([noise(number, 300) for number in range(200)])
        shutil.copy(f"{gone}-wal", f"{out}-wal")
    await restored(archive, out)
    assert content(out) == content(path)


@pytest.mark.parametrize("has_links", [True, False])
async def test_a_log_that_is_made_meanwhile_stays(
    tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    path, out = tmp_path / "log.sqlite", tmp_path / "out.sqlite"
    await write_history(path, 2)
    shipped(path, archive)

    def made_meanwhile(segment: ArchiveSegment, data: bytes) -> Iterator[Piece]:
        out.write_text("mine")
        return read_pieces(segment, data)

    def refused(*_: Path) -> None:
        raise PermissionError

    if not has_links:
        monkeypatch.setattr(os, "link", refused)
        await restored(archive, tmp_path / "unlinked.sqlite")
    monkeypatch.setattr(restoration, "read_pieces", made_meanwhile)
    with pytest.raises(LogError, match="exists already"):
        await restore(RestoreJob(str(archive), str(out)))
    assert out.read_text() == "mine"


async def test_a_session_before_the_archives_first_is_refused(tmp_path: Path, archive: Path) -> None:
    path = tmp_path / "log.sqlite"
    await three_segments(path, archive)
    (archive / listed(archive)[0].name).unlink()
    with pytest.raises(ArchiveError, match="it begins after session 2"):
        await restore(RestoreJob(str(archive), str(tmp_path / "out.sqlite"), to=1))
    assert (await restored(archive, tmp_path / "out.sqlite", to=3)).session == 3


async def test_segments_of_one_second_are_restored_up_to_a_time_within_it(tmp_path: Path, archive: Path) -> None:
    path, clock = tmp_path / "log.sqlite", Clock()
    begin = clock.now
    for tenth in (2, 4, 6):
        clock.now = begin + tenth * SECOND // 10
        await write_history(path, 1, clock=clock)
        shipped(path, archive)
    assert (await restored(archive, tmp_path / "out.sqlite", at=begin + SECOND // 2)).last == 12


def test_a_name_has_one_form() -> None:
    segment = ArchiveSegment(1, 2, 3, 4, 1_767_600_000, None, bytes(16), bytes(16), True)
    assert ArchiveSegment.read(segment.name) == segment
    assert ArchiveSegment.read(f"0{segment.name}") is None


async def test_an_archive_that_never_worked_grows_old(tmp_path: Path) -> None:
    options = Options(event_log=tmp_path / "log.sqlite", archive=str(tmp_path / "unmounted"))
    metrics, clock = Metrics(), FakeClock()
    async with EventLog.open(options.event_log) as log:
        await log.append([put(1)])
        archiver = Archiver(options, log, metrics, "test", lambda: 1, clock)
        work = asyncio.create_task(archiver.run())
        await until(lambda: shown(metrics, "vcd_log_archive_failures_total"))
        archiver.show()
        clock.now += 600
        archiver.show()
        work.cancel()
    assert shown(metrics, "vcd_log_archive_age_seconds") == 600


def shown(metrics: Metrics, name: str) -> float | None:
    """A series' value on the page."""
    pages = (page for page in metrics.series.pages())
    return next((each.value for page in pages for each in page.samples if each.name == name), None)


class Slow:
    """A store, while whose first write something else happens."""

    def __init__(self, where: str, meanwhile: Callable[[], None]) -> None:
        self._store, self._meanwhile = store_of(where), meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put(self, name: str, data: bytes) -> None:
        self._store.put(name, data)
        meanwhile, self._meanwhile = self._meanwhile, lambda: None
        meanwhile()


async def test_a_checkpoint_that_goes_while_the_log_is_shipped(
    tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out, clock = tmp_path / "log.sqlite", tmp_path / "out.sqlite", Clock()
    await write_history(path, 6, checkpoints=(2, 4), clock=clock)
    retained = lambda: asyncio.run(begin_retention(path, clock, 1))  # noqa: E731
    monkeypatch.setattr(shipping, "store_of", lambda where: Slow(where, retained))
    with suppress(LogError):
        await asyncio.to_thread(ship, ShipJob(str(path), str(archive), "test", 1), lambda _: None)
    await asyncio.to_thread(ship, ShipJob(str(path), str(archive), "test", 1), lambda _: None)  # the next run
    first, *_ = listed(archive)
    (archive / first.name).unlink()  # as --archive-keep does, since the next begins with a state
    assert not [one for one in check(str(archive)).problems if "are missing" not in one]
    await restore(RestoreJob(str(archive), str(out)))
    assert verify(out, fold).problems == []
    with LogReader(out) as reader:
        reader.base(reader.head())


def flip(path: Path, checkpoint: int) -> None:
    """Change one bit of a checkpoint's state."""
    with closing(sqlite3.connect(path)) as db, db:
        ((data,),) = db.execute("SELECT data FROM checkpoint_part WHERE sequence = ?", (checkpoint,)).fetchall()
        changed = data[:-1] + bytes([data[-1] ^ 1])
        db.execute("UPDATE checkpoint_part SET data = ? WHERE sequence = ?", (changed, checkpoint))


async def test_a_state_that_was_damaged_before_it_was_shipped(tmp_path: Path, archive: Path) -> None:
    path, out, clock = tmp_path / "log.sqlite", tmp_path / "out.sqlite", Clock()
    await write_history(path, 6, checkpoints=(2, 5), clock=clock)
    flip(path, 12)
    shipped(path, archive)
    assert [one.after for one in listed(archive)] == [0, 12, 30]
    assert any("checkpoint 12" in problem for problem in check(str(archive)).problems)
    found = await restore(RestoreJob(str(archive), str(out)))
    assert (found.first, found.last) == (31, 36)
    assert any("checkpoint 12" in gap for gap in found.gaps)
    assert verify(out, fold).problems == []

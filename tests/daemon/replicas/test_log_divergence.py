"""What only this replica's log has goes out of it, and is kept beside it where sessions are among it."""

from __future__ import annotations

import datetime
import shutil
import sqlite3
import ssl
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tests import dsl
from tests.eventlog.samples import write_history
from tests.timetravel.histories import SCORED, scheduler, write_busy_history
from vcd.daemon.replicas.log_divergence import MOST, rewind_and_preserve
from vcd.daemon.replicas.replica_identity import Address, certificate
from vcd.eventlog import EventLog, LogError, LogReader
from vcd.timetravel.log_operations import verify
from vcd.timetravel.replay import replay


def apart(folder: Path, suffix: str = "") -> list[Path]:
    """The logs that are kept beside, or what belongs to them."""
    return sorted(folder.glob(f"events-apart-*.sqlite{suffix}"))


def add_what_belongs_to(log: Path | None) -> None:
    """Make the files that SQLite and the lock leave beside a log."""
    for suffix in ("-wal", "-shm", "-lock"):
        Path(f"{log}{suffix}").touch()


async def test_sessions_that_go_are_a_log_that_replays(tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite"
    await write_busy_history(path)
    with LogReader(path) as reader:
        infos = list(reader.sessions())
    to = infos[len(infos) // 2].sequence
    aside = rewind_and_preserve(path, to)
    assert aside == tmp_path / "events-apart-1.sqlite"
    with LogReader(path) as kept, LogReader(aside) as apart:
        assert kept.head() == to
        numbers = [info.number for log in (kept, apart) for info in log.sessions()]
        assert numbers == [info.number for info in infos]
    for log in (path, aside):
        assert not verify(log).problems
        assert [one.difference for one in replay(log) if one.difference is not None] == []


async def test_where_no_session_goes_nothing_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite"
    await write_busy_history(path)
    with LogReader(path) as reader:
        last, head = list(reader.sessions())[-1].sequence, reader.head()
    assert head > last
    assert rewind_and_preserve(path, last) is None
    assert apart(tmp_path) == []


async def test_a_log_of_another_beginning_goes_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite"
    await write_busy_history(path)
    with LogReader(path) as reader:
        head = reader.head()
    aside = rewind_and_preserve(path, None)
    assert aside is not None and not path.exists()
    with LogReader(aside) as reader:
        assert reader.head() == head


async def test_the_oldest_of_too_many_goes(tmp_path: Path) -> None:
    path, source = tmp_path / "events.sqlite", tmp_path / "source"
    async with scheduler(source) as made:
        await made.cycle()
    found = []
    for _ in range(MOST + 2):
        shutil.copy(source, path)
        found.append(rewind_and_preserve(path, None))
        add_what_belongs_to(found[-1])
    kept = apart(tmp_path)
    assert len(kept) == MOST
    assert found[-1] in kept
    assert len(apart(tmp_path, "*")) == 4 * MOST  # each with what belongs to it


async def test_large_ones_go_sooner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, source = tmp_path / "events.sqlite", tmp_path / "source"
    async with scheduler(source) as made:
        await made.cycle()
    monkeypatch.setattr("vcd.daemon.replicas.log_divergence.MOST_BYTES", source.stat().st_size - 1)
    for _ in range(3):
        shutil.copy(source, path)
        newest = rewind_and_preserve(path, None)
        assert apart(tmp_path) == [newest]


async def test_a_log_that_does_not_reach_back_so_far_stays(tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite"
    await write_busy_history(path)
    before = path.read_bytes()
    with pytest.raises(LogError, match="cannot go back"):
        rewind_and_preserve(path, 10**9)
    assert path.read_bytes() == before


async def test_a_checkpoint_of_another_version_is_told_of_and_the_log_stays(tmp_path: Path) -> None:
    """Its state is in words that this one does not know: the sessions that would go cannot be kept beside."""
    path = tmp_path / "events.sqlite"
    async with scheduler(path) as made:
        kept = made.log.head
        await made.log.checkpoint(kept, msgspec.msgpack.encode({"of": "a newer version"}))
        await made.load(SCORED)
        await made.cycle()
    with pytest.raises(LogError, match="this version cannot fold the events from a checkpoint on"):
        rewind_and_preserve(path, kept)
    assert apart(tmp_path) == []
    with LogReader(path) as reader:
        assert reader.last_session() == 1


@pytest.mark.parametrize("host", ["10.0.0.7", "fd00::7", "vcd-1.vcd.svc"])
def test_an_address_is_read_as_it_was_written(host: str) -> None:
    context, fingerprint = certificate("replica " * 20, host, datetime.datetime.now(datetime.UTC))
    address = Address.of(host, 8444, fingerprint)
    assert Address.read(str(address)) == address
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    "text",
    ["", "http://a:1/vcd/log#sha256=" + "00" * 32, "https://a:1/vcd/log", "https://a:1/vcd/log#sha256=00",
     "https://a:1/vcd/log#sha256=" + "zz" * 32],
)  # fmt: skip
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"address of a log|fingerprint|non-hexadecimal"):
        Address.read(text)


async def test_a_session_that_retention_left_without_its_state_is_kept_beside(tmp_path: Path) -> None:
    """The log may grow no more, a checkpoint was kept while a session was decided, and the leader has not that one."""
    path = tmp_path / "events.sqlite"
    async with scheduler(path) as made:
        await made.show(dsl.node("n1", cpu=8), dsl.queue("root"), dsl.queue("default"))
        record = await made.cycle()
        head = made.state.sequence
        await made.show(dsl.node("n2", cpu=8))
        await made.checkpoint()  # while the next session is decided
        kept = made.state.sequence
        await made.tell(msgspec.structs.replace(record, session=2, head=head))
        await made.log.retain(max_bytes=1)
    assert not verify(path).problems
    aside = rewind_and_preserve(path, kept)
    assert aside is not None
    with LogReader(aside) as reader:
        assert [info.number for info in reader.sessions()] == [2]
    assert not path.exists() or not verify(path).problems


async def test_a_log_that_begins_later_than_it_has_to_go_back_to_goes_as_a_whole(tmp_path: Path) -> None:
    """Retention left no session in it, and what it begins with is of another leader."""
    path = tmp_path / "events.sqlite"
    async with scheduler(path) as made:
        await made.show(dsl.node("n1", cpu=8), dsl.queue("root"), dsl.queue("default"))
        await made.cycle()
        await made.checkpoint()
        begins = made.state.sequence
        await made.show(dsl.node("n2", cpu=8))
        await made.log.retain(max_bytes=1)
    with LogReader(path) as reader:
        assert (reader.oldest(), list(reader.sessions())) == (begins, [])
    assert rewind_and_preserve(path, begins - 1) is None
    assert not path.exists()


@pytest.mark.parametrize("changed", [20, 27])
async def test_a_log_that_the_disk_changed_is_kept_beside_as_it_is(tmp_path: Path, changed: int) -> None:
    """Before the newest checkpoint, where a start does not look: so this replica ran, led, and has to go back now."""
    path = tmp_path / "events.sqlite"
    await write_history(path, 6, checkpoints=(6,))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE event SET resource_version = '77' WHERE sequence = ?", (changed,))
    before = path.read_bytes()
    aside = rewind_and_preserve(path, 16)
    assert aside is not None and aside.read_bytes() == before
    assert not path.exists()


async def test_a_log_that_has_its_name_from_a_link_goes_aside_where_that_leads(tmp_path: Path) -> None:
    large, path = tmp_path / "large", tmp_path / "events.sqlite"
    large.mkdir()
    path.symlink_to(large / "events.sqlite")
    await write_history(path, 2)
    aside = rewind_and_preserve(path, None)
    async with EventLog.open(path):
        pass
    assert aside is not None and aside.resolve().parent == large
    assert (large / "events.sqlite").is_file() and path.is_symlink()

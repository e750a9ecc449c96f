"""The files in which what was read of a log is kept: who writes, who reads, and what is taken back."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.eventlog.samples import put
from vcd.daemon.reader.kubeconfig import ClusterError
from vcd.daemon.reader.log_cache import Busy, Cache, State
from vcd.eventlog import EventLog, LogReader
from vcd.eventlog.log_file import migrations


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return Cache.of("https://one:6443", "volcano-system/volcano")


async def write(cache: Cache, count: int) -> Path:
    async with EventLog.open(cache.written) as log:
        await log.append([put(number) for number in range(count)])
    cache.publish(State(cache.written.name, "a", count, count, 1.0))
    return cache.path


def head(path: Path) -> int:
    with LogReader(path) as reader:
        return reader.head()


def test_each_log_of_each_server_has_a_folder_for_its_owner_alone(cache: Cache, tmp_path: Path) -> None:
    others = [Cache.of("https://two:6443", "volcano-system/volcano"), Cache.of("https://one:6443", "batch/volcano")]
    folders = {one.folder for one in (cache, *others)}
    assert len(folders) == 3
    assert {one.parent for one in folders} == {tmp_path / "vcd"}
    assert {one.stat().st_mode & 0o777 for one in (*folders, tmp_path / "vcd")} == {0o700}


def test_without_the_variable_it_is_below_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Cache.of("https://one", "a/b").folder.parent == tmp_path / ".cache" / "vcd"


def test_one_writes_at_a_time_also_of_two_processes(cache: Cache) -> None:
    code = "import pathlib, sys; from vcd.daemon.reader.log_cache import Cache as C; C(pathlib.Path(sys.argv[1]))"
    tried = [sys.executable, "-c", f"{code}.writing().__enter__()", str(cache.folder)]
    with cache.writing():
        with pytest.raises(Busy), Cache(cache.folder).writing():
            pass
        assert b"Busy" in subprocess.run(tried, capture_output=True).stderr
    assert subprocess.run(tried, capture_output=True).returncode == 0


async def test_history_is_taken_out_of_the_file_where_nobody_reads_it(cache: Cache) -> None:
    path = await write(cache, 9)
    cache.go_back(4)
    assert (cache.path, head(path)) == (path, 4)


async def test_who_reads_keeps_what_they_read_and_the_next_one_reads_the_copy(cache: Cache) -> None:
    path = await write(cache, 9)
    with cache.reading() as mine:
        assert mine == path
        cache.go_back(4)
        assert head(mine) == 9
        assert cache.path != mine
        with Cache(cache.folder).reading() as theirs:
            assert (theirs, head(theirs)) == (cache.path, 4)
        assert theirs.stat().st_mode & 0o777 == 0o600
        cache.clear()
        assert mine.exists()
    cache.clear()
    assert not list(cache.folder.glob(f"{path.name}*"))
    assert head(cache.path) == 4


async def test_a_log_that_shares_nothing_is_begun_anew_and_read_once_it_has_all(cache: Cache) -> None:
    path = await write(cache, 9)
    cache.go_back(None)
    assert (cache.path, head(path)) == (path, 9)
    assert cache.written != path
    assert Cache(cache.folder).written == cache.written  # so that the next one goes on with it
    new = await write(cache, 2)
    assert (cache.path, cache.written, head(new)) == (new, new, 2)
    assert path.exists()
    cache.clear()
    assert not path.exists()


async def test_what_is_begun_anew_can_be_taken_back_and_begun_anew(cache: Cache) -> None:
    path = await write(cache, 9)
    cache.go_back(None)
    async with EventLog.open(cache.written) as log:
        await log.append([put(number) for number in range(5)])
    second = cache.written
    cache.go_back(3)
    assert (cache.written, head(second), cache.path) == (second, 3, path)
    cache.go_back(None)
    assert cache.written not in (path, second)
    assert (cache.path, second.exists(), path.exists()) == (path, False, True)


async def test_while_somebody_reads_history_does_not_go_and_while_somebody_follows_it_does(cache: Cache) -> None:
    await write(cache, 3)
    with cache.reading(), pytest.raises(Busy), cache.unread():
        pass
    with cache.following(), cache.unread():
        pass


async def test_a_file_that_is_followed_is_not_taken_back(cache: Cache) -> None:
    path = await write(cache, 9)
    with cache.following() as mine:
        cache.go_back(4)
        assert (mine, head(mine), head(cache.path)) == (path, 9, 4)
        cache.clear()
        assert mine.exists()
    cache.clear()
    assert not path.exists()


async def test_a_copy_that_the_disk_has_no_room_for_is_told_and_leaves_nothing(cache: Cache) -> None:
    path = await write(cache, 2000)
    before, limit = resource.getrlimit(resource.RLIMIT_FSIZE), path.stat().st_size // 2
    with cache.reading() as mine:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            with pytest.raises(ClusterError) as told:
                cache.go_back(4)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert re.search(r"event log .*/events-2\.sqlite: the disk .*; or set XDG_CACHE_HOME", str(told.value))
        assert (cache.path, head(mine)) == (path, 2000)
    assert not list(cache.folder.glob("events-2.sqlite*"))
    cache.go_back(4)
    assert head(path) == 4


async def test_another_version_of_the_schema_has_a_folder_of_its_own(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = migrations()
    monkeypatch.setattr("vcd.daemon.reader.log_cache.migrations", lambda: known[:-1])
    assert Cache.of("https://one:6443", "volcano-system/volcano").folder != cache.folder


@pytest.mark.parametrize("text", ["", "{", '{"file": "../../etc/passwd"}', '{"file": 1}', "[]"])
def test_a_state_that_is_none_names_no_other_file(cache: Cache, text: str) -> None:
    (cache.folder / "state.json").write_text(text)
    assert cache.path == cache.folder / "events-1.sqlite"


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("no folder")
    with pytest.raises(ClusterError, match=r"/a/b: .*; or set XDG_CACHE_HOME to another folder"):
        Cache(tmp_path / "a" / "b")

"""Files that cannot be used, disks that are full, processes that are killed."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import re
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.eventlog.samples import gone, noise, put, write_history
from tests.sizes import WIDE
from tests.waiting import WAIT_LIMIT
from vcd.eventlog import EventLog, LogError, LogReader, verify
from vcd.eventlog.log_errors import DamagedLog, explain_error
from vcd.eventlog.log_file import migrations

ROOT = Path(__file__).parents[2]


async def refusal(path: Path, **options: bool) -> str:
    """The message with which opening is refused."""
    with pytest.raises(LogError) as caught:
        async with EventLog.open(path, **options):  # type: ignore[arg-type]
            pass
    assert str(path) in str(caught.value)
    return str(caught.value)


def modes_in(folder: Path) -> set[int]:
    """The permissions of the files in a folder."""
    return {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def names_in(folder: Path) -> set[str]:
    """The names of the files in a folder."""
    return {path.name for path in folder.iterdir()}


def run_python(code: str, *args: object) -> subprocess.CompletedProcess[str]:
    """Run a program that may import the project."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, args)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=WAIT_LIMIT)


async def test_a_second_writer_is_refused_and_told_who_writes(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    async with EventLog.open(path) as log:
        await log.append([put(1)])
        assert f"process {os.getpid()} writes it" in await refusal(path)
        assert await log.append([put(2)]) == 2


async def test_a_second_process_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    async with EventLog.open(path):
        done = run_python(
            """
            import sys
            from vcd.eventlog import LogError, compact
            try:
                compact(sys.argv[1])
            except LogError as error:
                print(error)
            """,
            path,
        )
    assert f"process {os.getpid()} writes it" in done.stdout, done.stderr


async def test_the_lock_ends_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    for _ in range(2):
        async with EventLog.open(path) as log:
            await log.append([put(1)])
    assert log.head == 2


async def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        await write_history(tmp_path / "log.sqlite", 1)
        async with EventLog.open(tmp_path / "log.sqlite"):
            modes = modes_in(tmp_path)
    finally:
        os.umask(before)
    assert modes == {0o600}


async def test_a_missing_file_is_not_made_when_it_should_exist(tmp_path: Path) -> None:
    assert "there is no such file" in await refusal(tmp_path / "log.sqlite", create=False)
    with pytest.raises(LogError, match="there is no such file"):
        LogReader(tmp_path / "log.sqlite")


async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    assert "No such file or directory" in await refusal(tmp_path / "none" / "log.sqlite")


async def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = path.read_bytes()
    assert "not a vcd log" in await refusal(path)
    with pytest.raises(LogError, match="not a vcd log"):
        LogReader(path)
    assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("hello " * 1000)
    assert "not a vcd log" in await refusal(path)


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 1)
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {migrations()[-1][0] + 1}")
    connection.close()
    assert "a newer vcd wrote it" in await refusal(path)
    with pytest.raises(LogError, match="a newer vcd wrote it"):
        LogReader(path)


async def test_an_older_schema_is_migrated_by_a_writer_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 1)
    later = (*migrations(), (migrations()[-1][0] + 1, "CREATE TABLE later (x INTEGER) STRICT;\n"))
    monkeypatch.setattr("vcd.eventlog.log_file.migrations", lambda: later)
    with pytest.raises(LogError, match="written by an older vcd"):
        LogReader(path)
    async with EventLog.open(path) as log:
        assert log.head == 6
    assert verify(path).problems == []


async def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 50)
    os.truncate(path, path.stat().st_size // 2)
    assert "truncated or damaged" in await refusal(path)
    with pytest.raises(LogError, match="truncated or damaged"):
        LogReader(path)


async def test_one_whose_schema_a_disk_made_no_text_is_refused(tmp_path: Path) -> None:
    """SQLite names the column that is not there, in bytes that are no UTF-8."""
    path = tmp_path / "log.sqlite"
    await write_history(path, 1)
    path.write_bytes(path.read_bytes().replace(b"(sequence, part)", b"(sequence,\xa0part)"))
    assert "truncated or damaged" in await refusal(path)
    with pytest.raises(DamagedLog, match="truncated or damaged"):
        LogReader(path)


async def test_a_file_emptied_by_a_crash_before_its_first_write_is_used(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    path.touch()
    async with EventLog.open(path) as log:
        assert await log.append([put(1)]) == 1


async def test_a_directory_that_may_not_be_written(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "log.sqlite"
    path.parent.mkdir()
    await write_history(path, 1)
    (path.parent / "log.sqlite-lock").unlink()
    for folder in (tmp_path, *tmp_path.parents):
        if folder.name.startswith(("test_", "pytest-", "popen-")):
            folder.chmod(0o755)
    path.parent.chmod(0o555)
    path.chmod(0o644)
    done = run_python(
        """
        import asyncio, os, sys
        from vcd.eventlog import EventLog, LogError, LogReader
        from vcd.eventlog.sql_statements import statements
        from vcd.eventlog.log_file import migrations
        async def write():
            async with EventLog.open(sys.argv[1]): pass
        for group in ("read", "append", "checkpoint"):
            statements(group)
        migrations()
        if os.getuid() == 0:
            os.setuid(65534)
        with LogReader(sys.argv[1]) as reader:
            print("read", reader.head())
        try:
            asyncio.run(write())
        except LogError as error:
            print(error)
        """,
        path,
    )
    path.parent.chmod(0o755)
    assert done.stdout.startswith("read 6\n"), done.stderr
    assert "Permission denied; check the path, its owner and mode" in done.stdout


FULL_DISK = """
    import asyncio, resource, signal, sys
    from tests.eventlog.samples import noise, put
    from vcd.eventlog import EventLog, LogError
    async def main():
        async with EventLog.open(sys.argv[1]) as log:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
            last = 0
            try:
                while True:
                    last = await log.append([noise(last + n, 3000) for n in range(20)])
            except LogError as error:
                print(last, error)
            for refused in (log.append([put(1)]), log.checkpoint(1, b"state"), log.retain()):
                try:
                    await refused
                    print("taken")
                except LogError as error:
                    print("refused", log.failure is not None)
    asyncio.run(main())
"""


def test_a_file_that_may_not_grow_stops_the_log_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    first, *rest = run_python(FULL_DISK, path).stdout.splitlines()
    acknowledged, _, message = first.partition(" ")
    assert "make room" in message or "file size limits" in message
    assert rest == ["refused True"] * 3
    with LogReader(path) as reader:
        assert [one.sequence for one in reader.read()] == list(range(1, int(acknowledged) + 1))
    assert int(acknowledged) > 0
    assert verify(path).problems == []


async def test_a_full_disk_is_said_so_and_the_log_works_again_when_opened_anew(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    async with EventLog.open(path) as log:
        await log.append([put(1)])
        await log.run_in_transaction(lambda db: db.execute_fetchall("PRAGMA max_page_count = 60"))
        with pytest.raises(LogError, match="the disk is full"):
            await log.append([noise(n, 3000) for n in range(200)])
        with pytest.raises(LogError, match="the disk is full"):
            await log.append([put(1)])
    async with EventLog.open(path) as log:
        assert await log.append([put(2)]) == 2
    assert verify(path).problems == []


def test_a_log_that_cannot_be_opened_for_want_of_room_says_so(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    done = run_python(
        """
        import asyncio, resource, signal, sys
        from tests.eventlog.samples import put
        from vcd.eventlog import EventLog, LogError, log_connection
        async def main():
            async with EventLog.open(sys.argv[1]) as log:
                await log.append([put(1)])
            made = log_connection.LogConnection.executescript
            async def amid(self, script):
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
                return await made(self, script)
            log_connection.LogConnection.executescript = amid
            try:
                async with EventLog.open(sys.argv[1]):
                    print("opened")
            except LogError as error:
                print("refused:", error)
        asyncio.run(main())
        """,
        path,
    )
    assert done.stdout.startswith(f"refused: event log {path}: "), done.stdout + done.stderr


async def test_a_file_that_another_program_locks_is_said_to_be_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.sqlite"
    monkeypatch.setattr("vcd.eventlog.log_connection.BUSY_SECONDS", 0.01)
    async with EventLog.open(path) as log:
        await log.append([put(1)])
        with sqlite3.connect(path, isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(LogError, match="another program holds it locked"):
                await log.append([put(2)])
            other.execute("ROLLBACK")
        other.close()
    with LogReader(path) as reader:
        assert reader.head() == 1


async def test_every_waiting_call_is_told_of_the_failure(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "log.sqlite") as log:
        await log.run_in_transaction(lambda db: db.execute_fetchall("PRAGMA max_page_count = 60"))
        results = await asyncio.gather(*(log.append([noise(n, 900)] * 50) for n in range(500)), return_exceptions=True)
    assert all(isinstance(result, LogError) for result in results)


async def test_what_cannot_be_written_stops_the_log_with_its_reason(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "log.sqlite") as log:
        with pytest.raises(LogError, match="UnicodeEncodeError"):
            await log.append([gone(1), type(gone(1))("Pod", "\ud800")])


APPENDER = """
    import asyncio, os, sys
    from tests.eventlog.samples import fold, outcome, put, session
    from vcd.eventlog import EventLog
    async def puts(log, number):
        while True:
            number += 10
            say(await log.append([put(number, 200)] * (number % 7 + 1)))
    async def sessions(log):
        while True:
            head = log.head
            say(await log.append([session(log.last_session + 1, head)]))
            say(await log.append([outcome(log.last_session, 0), outcome(log.last_session, 1)]))
            await log.checkpoint(log.head, os.urandom(50_000))
            await log.retain(max_bytes=300_000)
    def say(sequence):
        os.write(1, b"%d\\n" % sequence)
    async def main():
        async with EventLog.open(sys.argv[1]) as log:
            await asyncio.gather(sessions(log), *(puts(log, number) for number in range(4)))
    asyncio.run(main())
"""


def test_kill_9_at_any_moment_loses_nothing_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    chance = random.Random(5)
    acknowledged = 0
    for _ in range(15 if WIDE else 6):
        command = [sys.executable, "-c", textwrap.dedent(APPENDER), str(path)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(chance.randrange(1, 300)):
                assert process.stdout.readline()
            process.send_signal(signal.SIGKILL)
            said = process.stdout.read().split("\n")[:-1]
        acknowledged = max([acknowledged, *map(int, said)])
        with LogReader(path) as reader:
            assert reader.head() >= acknowledged
        assert verify(path).problems == []


@pytest.mark.parametrize("link", [os.symlink, os.link])
async def test_another_name_of_the_same_file_is_no_second_log(
    tmp_path: Path, link: Callable[[Path, Path], None]
) -> None:
    """Two daemons that wrote one file by two names stopped each other."""
    path, other = tmp_path / "log.sqlite", tmp_path / "elsewhere" / "other.sqlite"
    other.parent.mkdir()
    async with EventLog.open(path) as log:
        await log.append([put(1)])
        link(path, other)
        with pytest.raises(LogError, match="it is locked"):
            async with EventLog.open(other):
                pass
        done = run_python(_OPEN, other)
        assert "it is locked" in done.stdout, done.stderr
        assert await log.append([put(2)]) == 2
    assert run_python(_OPEN, other).stdout.strip() == "opened"
    assert verify(path).problems == []


_OPEN = """
    import asyncio, sys
    from vcd.eventlog import EventLog, LogError

    async def main():
        try:
            async with EventLog.open(sys.argv[1]):
                print("opened")
        except LogError as error:
            print(error)

    asyncio.run(main())
"""


async def _damaged_while_written(path: Path) -> LogError:
    """The failure of a log whose older pages were overwritten while it was open: a start does not read them."""
    async with EventLog.open(path) as log:
        for number in range(300):
            await log.append([noise(number, 900)])
        await log.checkpoint(log.head, b"state")
        await log.append([put(1)])
    with pytest.raises(LogError) as caught:
        async with EventLog.open(path) as log:
            _overwrite(path)
            await log.retain(max_bytes=1)
            await log.append([put(2)])
    return caught.value


def _overwrite(path: Path) -> None:
    """Zeros in the pages of the oldest events, nowhere else."""
    data = bytearray(path.read_bytes())
    begin = data.find(b"noise-100")
    assert begin > 0
    page = begin // 4096 * 4096
    data[page : page + 4096] = bytes(4096)
    path.write_bytes(data)


async def test_after_damage_that_showed_while_it_was_written_it_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    failure = await _damaged_while_written(path)
    assert "damaged" in str(failure)
    assert "damaged" in await refusal(path)
    assert "damaged" in await refusal(path)


async def test_a_good_copy_in_a_damaged_logs_place_is_taken(tmp_path: Path) -> None:
    path, copy = tmp_path / "log.sqlite", tmp_path / "copy.sqlite"
    await write_history(copy, 40)
    await _damaged_while_written(path)
    _put_in_place(copy, path)
    async with EventLog.open(path) as log:
        await log.append([put(1)])
    assert verify(path).problems == []
    assert "log.sqlite-damaged" not in names_in(tmp_path)


def _put_in_place(copy: Path, path: Path) -> None:
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    shutil.copy(copy, path)


async def test_a_directory_that_takes_no_lock_file_is_told_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    (tmp_path / "log.sqlite-lock").mkdir()
    assert "log.sqlite" in await refusal(path)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_without_room_for_the_lock_is_told_as_such(number: int) -> None:
    """Of the files beside the log, which SQLite does not write."""
    words = f"event log log.sqlite: {os.strerror(number)}; free space and restart"
    assert str(explain_error(Path("log.sqlite"), OSError(number, os.strerror(number)))) == words


# --- a file that is not where it was ----------------------------------------------------------------------------------


def take_away(path: Path, how: str) -> None:
    """Have another file, or none, in a log's place."""
    match how:
        case "deleted":
            path.unlink()
        case "its folder moved":
            path.parent.rename(path.parent.with_name("elsewhere"))
        case "replaced by a file":
            path.with_suffix(".copy").touch()
            path.with_suffix(".copy").rename(path)
        case "replaced by a copy":
            shutil.copy(path, path.with_suffix(".copy"))
            path.with_suffix(".copy").rename(path)


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ("deleted", "no file"),
        ("its folder moved", "no file"),
        ("replaced by a file", "another file"),
        ("replaced by a copy", "another file"),
    ],
)
async def test_a_file_that_is_no_longer_in_its_place_is_noticed(tmp_path: Path, how: str, what: str) -> None:
    path = tmp_path / "logs" / "log.sqlite"
    path.parent.mkdir()
    async with EventLog.open(path) as log:
        await log.append([put(1)])
        assert log.size() == path.stat().st_size
        take_away(path, how)
        with pytest.raises(LogError, match=re.escape(f"event log {path}: {what} is in its place")):
            log.size()


async def test_a_log_known_by_a_link_is_the_one_that_the_link_names(tmp_path: Path) -> None:
    await write_history(tmp_path / "one", 1)
    await write_history(tmp_path / "other", 1)
    link = tmp_path / "link"
    link.symlink_to("one")
    async with EventLog.open(link) as log:
        (tmp_path / "one").rename(tmp_path / "moved")
        link.unlink()
        link.symlink_to("moved")
        assert log.size() > 0
        link.unlink()
        link.symlink_to("other")
        with pytest.raises(LogError, match="another file is in its place"):
            log.size()


async def test_a_log_that_was_moved_while_it_was_written_has_all_and_what_took_its_place_nothing_of_it(
    tmp_path: Path,
) -> None:
    """SQLite leaves the WAL at the old name, and would read it with whatever file is there then."""
    path, moved, other = (tmp_path / name for name in ("log.sqlite", "moved.sqlite", "other.sqlite"))
    await write_history(path, 2)
    shutil.copy(path, other)
    async with EventLog.open(path) as log:
        for number in range(3, 200):
            await log.append([put(number)])
        path.rename(moved)
        other.rename(path)
        await log.append([put(200)])
    for file, head in ((moved, log.head), (path, log.head - 198)):
        assert verify(file).problems == []
        with LogReader(file) as reader:
            assert reader.head() == head

"""``vcd log restore``: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.results import run_vcd as run
from tests.timetravel.histories import write_busy_history
from vcd.eventlog import LogReader
from vcd.eventlog.archive.shipping import ShipJob, ship
from vcd.model.wording import rfc3339


@pytest.fixture
async def log(tmp_path: Path) -> Path:
    """A log that a scheduler wrote."""
    await write_busy_history(tmp_path / "log.sqlite")
    return tmp_path / "log.sqlite"


@pytest.fixture
def archive(tmp_path: Path, log: Path) -> Path:
    """It is shipped there."""
    (tmp_path / "archive").mkdir()
    ship(ShipJob(str(log), str(tmp_path / "archive"), "test", 1), lambda _: None)
    return tmp_path / "archive"


def answered(log: Path, *question: str) -> str:
    """What a question to a log is answered."""
    result = run(*question, "--event-log", log)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_restored_log_answers_as_the_one_that_was_shipped(tmp_path: Path, log: Path, archive: Path) -> None:
    out = tmp_path / "out.sqlite"
    result = run("log", "restore", archive, out)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"{out}: events 1 to ")
    assert answered(out, "explain", "job", "large") == answered(log, "explain", "job", "large")
    assert answered(out, "replay") == answered(log, "replay")
    assert run("log", "verify", out).stdout.splitlines()[0] == run("log", "verify", log).stdout.splitlines()[0]


def test_a_log_is_restored_up_to_a_session(tmp_path: Path, archive: Path) -> None:
    out = tmp_path / "out.sqlite"
    result = run("log", "restore", archive, out, "--to", 4, "-o", "json")
    told = json.loads(result.stdout)
    assert (told["kind"], told["session"], told["gaps"]) == ("RestoredLog", 4, [])
    with LogReader(out) as reader:
        assert reader.head() == told["last"]


def test_a_log_is_restored_as_of_a_time(tmp_path: Path, log: Path, archive: Path) -> None:
    with LogReader(log) as reader:
        (wanted,) = reader.sessions(3, 3)
    out = tmp_path / "out.sqlite"
    assert run("log", "restore", archive, out, "--at", rfc3339(wanted.time, 9)).exit_code == 0
    with LogReader(out) as reader:
        assert (reader.last_session(), reader.last_time()) == (3, wanted.time)
    result = run("log", "restore", archive, tmp_path / "none.sqlite", "--at", "noon")
    assert (result.exit_code, "'noon' is not a time" in result.stderr) == (2, True)
    result = run("log", "restore", archive, tmp_path / "none.sqlite", "--at", "9999d")
    assert (result.exit_code, "no event to restore up to the given end" in result.stderr) == (2, True)


def test_what_was_changed_is_named(tmp_path: Path, archive: Path) -> None:
    sound = run("log", "restore", archive, "--check")
    assert (sound.exit_code, sound.stdout.splitlines()[-1]) == (0, f"{archive}: sound")
    file = min(archive.iterdir())
    file.write_bytes(file.read_bytes()[::-1])
    changed = run("log", "restore", archive, "--check", "-o", "json")
    problems = json.loads(changed.stdout)["problems"]
    assert (changed.exit_code, file.name in problems[0]) == (1, True)
    result = run("log", "restore", archive, tmp_path / "out.sqlite")
    assert (result.exit_code, f"(segment {file.name})" in result.stderr) == (1, True)
    assert run("log", "verify", tmp_path / "out.sqlite").exit_code == 0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("nowhere", "out.sqlite"), "there is no such directory"),
        (("gs://bucket", "out.sqlite"), "nor s3://BUCKET/PREFIX"),
        (("s3://B", "out.sqlite"), "write it as s3://BUCKET"),
        ((".",), "name the FILE to write"),
        ((".", "out.sqlite", "--check"), "leave FILE"),
        ((".", "out.sqlite"), "there is no segment of a log in it"),
    ],
)
def test_a_mistake_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("log", "restore", *given)
    assert (result.exit_code, told in result.stderr) == (2, True)


def test_the_name_of_a_file_gives_a_terminal_no_orders(tmp_path: Path, archive: Path) -> None:
    moved = archive.rename(tmp_path / "\x1b[31m")
    assert run("log", "restore", moved, "--check").stdout.splitlines()[-1] == f"{tmp_path}/\\x1b[31m: sound"
    assert run("log", "restore", moved, moved.with_suffix(".sqlite")).stdout.startswith(
        f"{tmp_path}/\\x1b[31m.sqlite: "
    )

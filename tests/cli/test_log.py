"""``vcd log``: what the commands print, and their exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.cli.results import without_defect
from tests.eventlog.samples import gone, leads, noise, put, write_history
from tests.timetravel.histories import write_busy_history
from vcd.cli.log import log
from vcd.eventlog import EventLog, LogReader, verify
from vcd.model.events import Event

ROOT = Path(__file__).parents[2]


def run(*arguments: object) -> Result:
    """Run ``vcd log`` with these arguments; a traceback fails the test."""
    result = CliRunner().invoke(log, [str(argument) for argument in arguments])
    return without_defect(result)


def lines(result: Result) -> list[dict[str, Any]]:
    """What a command printed with -o json."""
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


async def append(path: Path, events: list[Event]) -> None:
    """Open a log and append events."""
    async with EventLog.open(path) as opened:
        await opened.append(events)


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A log of four sessions, six events each, with a checkpoint after the second."""
    await write_history(tmp_path / "log.sqlite", 4, checkpoints=(2,))
    return tmp_path / "log.sqlite"


def test_ls_shows_events_as_a_table(path: Path) -> None:
    result = run("ls", path)
    assert result.exit_code == 0
    heading, first, *rest = result.stdout.splitlines()
    assert heading.split() == ["sequence", "time", "type", "kind", "key", "version", "what"]
    assert first.split()[:6] == ["1", "2026-01-05T08:00:00.000000Z", "put", "Pod", "ns/pod-1", "1"]
    assert len(rest) == 23
    assert "session 1: 1 statements, 2 operations, 0 stale" in result.stdout


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("--key", "ns/pod-2"), [2]),
        (("--kind", "Pod", "--from", "20"), [20, 21]),
        (("--kind", "pod", "--from", "20"), [20, 21]),
        (("--type", "session"), [4, 10, 16, 22]),
        (("--from", "3", "--to", "5"), [3, 4, 5]),
        (("--limit", "2"), [1, 2]),
        (("--limit", "0"), list(range(1, 25))),
    ],
)
def test_ls_chooses_events(path: Path, options: tuple[str, ...], found: list[int]) -> None:
    assert [line["sequence"] for line in lines(run("ls", path, "-o", "json", *options))] == found


def test_ls_shows_objects_and_plans_as_json(path: Path) -> None:
    events = [line["event"] for line in lines(run("ls", path, "-o", "json", "--to", "4"))]
    assert events[0]["payload"]["metadata"]["name"] == "pod-1"
    assert events[3]["plan"]["statements"][0]["operations"][0] == {
        "verb": "bind", "key": "ns/pod-1", "uid": "uid-1", "node": "node-1",
    }  # fmt: skip


def test_ls_says_that_there_is_more(path: Path) -> None:
    assert "and more" in run("ls", path, "--limit", "23").stderr
    assert "and more" not in run("ls", path, "--limit", "24").stderr


def test_ls_names_the_kinds_that_there_are(path: Path) -> None:
    result = run("ls", path, "--kind", "Pdo", "-o", "json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: there is no kind Pdo; did you mean Pod?; there are Pod, Node, ")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--kind", "Pod", "--key", "ns/nope"), "Pod ns/nope"),
        (("--key", "ns/nope"), "ns/nope"),
        (("--kind", "CSINode"), "CSINode"),
        (("--kind", "Pod", "--key", "ns/pod-1", "--from", "20"), "Pod ns/pod-1 with that --type, --from or --to"),
    ],
)
@pytest.mark.parametrize("output", ["table", "json"])
def test_ls_says_of_what_nothing_was_logged(path: Path, options: tuple[str, ...], words: str, output: str) -> None:
    result = run("ls", path, *options, "-o", output)
    assert (result.exit_code, result.stderr) == (0, f"note: no event was logged about {words}\n")


def test_ls_lists_sessions(path: Path) -> None:
    found = lines(run("ls", path, "--sessions", "--from", "2", "--to", "3", "-o", "json"))
    assert [(line["session"], line["head"], line["operations"]) for line in found] == [(2, 9, 2), (3, 15, 2)]


def test_ls_of_sessions_has_more_columns_or_numbers_alone(path: Path) -> None:
    table, wide, names = (run("ls", path, "--sessions", "-o", form).stdout for form in ("table", "wide", "name"))
    assert table.splitlines()[0].split() == ["session", "time", "head", "epoch", "statements", "operations"]
    assert {*wide.splitlines()[0].split()} - {*table.splitlines()[0].split()} == {"now", "policy"}
    assert names.split() == ["1", "2", "3", "4"]


def test_ls_of_sessions_takes_no_filter_of_events(path: Path) -> None:
    result = run("ls", path, "--sessions", "--kind", "Pod")
    assert (result.exit_code, "leave them out with --sessions" in result.stderr) == (2, True)


async def test_ls_shows_what_this_version_cannot_read(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "log.sqlite") as opened:
        await opened.append([noise(1, 9), leads(3)])
    first, second = lines(run("ls", opened.path, "-o", "json"))
    assert (first["of"], first["what"]) == ("Noise", "40 bytes")
    assert [line["of"] for line in lines(run("ls", opened.path, "--kind", "Noise", "-o", "json"))] == ["Noise"]
    assert second["what"] == "epoch=3 identity=replica leading=True"


def test_tail_shows_the_last_events(path: Path) -> None:
    assert [line["sequence"] for line in lines(run("tail", path, "-n", "2", "-o", "json"))] == [23, 24]


def test_tail_follows_a_log_that_is_written(path: Path) -> None:
    program = "from vcd.cli.log import log; log()"
    command = [sys.executable, "-c", program, "tail", str(path), "-n", "1", "-f", "-o", "json"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["sequence"] == 24
            asyncio.run(append(path, [put(1), gone(1)]))
            assert [json.loads(process.stdout.readline())["type"] for _ in range(2)] == ["put", "gone"]
        finally:
            process.kill()


async def test_verify_says_that_a_file_is_sound(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    await write_busy_history(path)
    result = run("verify", path)
    head, sound = result.stdout.splitlines()
    assert (result.exit_code, head.startswith("head: "), sound) == (0, True, f"{path}: sound")


async def test_verify_compares_a_head_that_was_noted(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    await write_busy_history(path)
    (told,) = lines(run("verify", path, "-o", "json"))
    await append(path, [gone(1)])
    assert run("verify", path, "--head", told["head"]).exit_code == 0
    result = run("verify", path, "--head", f"{'0' * 32}@12")
    assert (result.exit_code, "event 12 does not have the noted link" in result.stdout) == (1, True)


@pytest.mark.parametrize("value", ["12", "0a@12", f"{'0' * 32}@", f"{'0' * 31}x@1"])
def test_verify_says_how_to_write_a_head(path: Path, value: str) -> None:
    result = run("verify", path, "--head", value)
    assert (result.exit_code, "is not a head" in result.stderr) == (2, True)


def test_verify_names_problems_and_exits_with_1(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM event WHERE sequence = 5")
    connection.close()
    result = run("verify", path)
    assert (result.exit_code, "events 5 to 5 are missing" in result.stdout) == (1, True)
    result = run("verify", path, "-o", "json")
    assert (result.exit_code, "events 5 to 5 are missing" in json.loads(result.stdout)["problems"]) == (1, True)


async def test_export_writes_the_sessions_chosen(tmp_path: Path) -> None:
    path, out = tmp_path / "log.sqlite", tmp_path / "out.sqlite"
    await write_history(path, 4)
    (written,) = lines(run("export", path, out, "--from", "3", "--to", "3", "-o", "json"))
    assert written == {
        "apiVersion": "vcd/v1",
        "kind": "WrittenLog",
        "file": str(out),
        "first": 16,
        "last": 21,
        "sessions": 1,
    }
    assert verify(out).problems == []


async def test_export_without_names(tmp_path: Path) -> None:
    log, out = tmp_path / "log.sqlite", tmp_path / "out.sqlite"
    await write_busy_history(log)
    result = run("export", log, out, "--from", "6", "--to", "7", "--anonymise")
    assert (result.exit_code, result.stdout) == (0, f"{out}: events 53 to 58, 2 sessions\n")
    assert "large" not in run("ls", out, "-o", "json").stdout
    assert verify(out).problems == []


def test_export_refuses_a_range_that_runs_backwards(path: Path, tmp_path: Path) -> None:
    result = run("export", path, tmp_path / "out.sqlite", "--from", "3", "--to", "2")
    assert (result.exit_code, "--from 3 comes after --to 2" in result.stderr) == (2, True)


def test_compact_removes_what_is_old_first(path: Path) -> None:
    (done,) = lines(run("compact", path, "--max-age", "1s", "-o", "json"))
    assert (done["removed"], done["after"]) == (12, path.stat().st_size)
    with LogReader(path) as reader:
        assert reader.first() == 13


@pytest.mark.parametrize(("option", "value"), [("--max-age", "3 fortnights"), ("--max-size", "much")])
def test_compact_says_how_to_write_an_option(path: Path, option: str, value: str) -> None:
    result = run("compact", path, option, value)
    assert (result.exit_code, "; write one" in result.stderr) == (2, True)


@pytest.mark.parametrize("command", ["ls", "tail", "verify", "compact"])
def test_a_missing_file_exits_with_2(tmp_path: Path, command: str) -> None:
    result = run(command, tmp_path / "none.sqlite")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "No such file" in result.stderr or "there is no such file" in result.stderr


def test_a_foreign_file_exits_with_2(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello " * 1000)
    result = run("verify", tmp_path / "text")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: event log {tmp_path / 'text'}: it is not a vcd log")


def test_a_reader_that_goes_away_is_no_error(path: Path) -> None:
    program = "from vcd.cli.log import log; log()"
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = [sys.executable, "-c", program, "ls", str(path), "-o", "json"]
        done = subprocess.run(command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writing)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words", [("ls", "--from"), ("ls", "--sessions", "--to"), ("ls", "--limit"), ("tail", "-n"), ("export", "--from")]
)
def test_a_number_that_no_log_holds_is_refused(path: Path, words: tuple[str, ...]) -> None:
    out = ["out.sqlite"] if words[0] == "export" else []
    result = run(*words, 2**63, path, *out)
    assert result.exit_code == 2
    assert f"{2**63} is more than the largest number in a log" in result.stderr


def test_a_number_as_large_as_a_log_may_hold_is_taken(path: Path) -> None:
    assert run("ls", "--limit", 2**63 - 1, path).stdout == run("ls", "--limit", 0, path).stdout
    assert run("ls", "--from", 2**63 - 1, path).exit_code == 0


async def test_the_name_of_a_file_gives_a_terminal_no_orders(tmp_path: Path) -> None:
    path, out = tmp_path / "\x1b[31m\n.sqlite", tmp_path / "\x1b[32m\n.sqlite"
    await write_busy_history(path)
    for words in (("verify", path), ("compact", path), ("export", path, out)):
        told = run(*words).stdout.splitlines()[-1]
        assert told.startswith(f"{tmp_path}/\\x1b[3{2 if out in words else 1}m\\n.sqlite: ")

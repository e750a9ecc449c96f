"""``vcd bisect``: what it prints and how it exits."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.cli.results import run_vcd
from tests.timetravel.test_bisect import slowed, starved

run = partial(run_vcd, "bisect")


async def test_a_job(tmp_path: Path) -> None:
    log = await starved(tmp_path / "log")
    result = run("job", "bert", "--event-log", log)
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 5)
    assert result.stdout.startswith("bert would have started at session 6 ")
    printed = json.loads(run("job", "default/bert", "--event-log", log, "--from", 4, "--to", 4, "-o", "json").stdout)
    assert (printed["found"]["change"]["key"], len(printed["changes"])) == ("small", 1)


async def test_waits(tmp_path: Path) -> None:
    log = await slowed(tmp_path / "log")
    result = run("waits", "--queue", "small", "--event-log", log)
    assert (result.exit_code, result.stdout.startswith("waits in queue small would have been ")) == (0, True)
    printed = json.loads(run("waits", "--event-log", log, "--to", 29, "-o", "json").stdout)
    assert (printed["found"], printed["runs"]) == (None, 2)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("job", "none"), 2, "no job default/none is in it"),
        (("waits", "--queue", "none"), 2, "no job was in queue none"),
        (("job",), 2, "Missing argument 'NAME'"),
    ],
)
async def test_what_cannot_be_told_is_said_in_a_line(
    tmp_path: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    result = run(*arguments, "--event-log", await starved(tmp_path / "log"))
    assert (result.exit_code, words in result.stderr) == (code, True), result.output


def test_a_missing_file_exits_with_2(tmp_path: Path) -> None:
    assert run("waits", "--event-log", tmp_path / "none").exit_code == 2

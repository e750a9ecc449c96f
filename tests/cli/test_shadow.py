"""``vcd shadow``: what it prints, and what it says to a user's mistakes."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.cli.results import run_vcd
from tests.eventlog.samples import spoil_plan
from tests.timetravel.histories import write_busy_history
from tests.timetravel.shadowed import write_shadow_history

run = partial(run_vcd, "shadow")


@pytest.fixture
async def log(tmp_path: Path) -> Path:
    await write_shadow_history(tmp_path / "shadow.log")
    return tmp_path / "shadow.log"


def test_counts_come_first_then_queues_then_pods(log: Path) -> None:
    told = run(log)
    assert told.exit_code == 0
    lines = told.output.splitlines()
    assert lines[0].startswith("2 sessions of a shadow, 2026-01-01T")
    assert "     1  kept-back   bound while vcd held it back" in lines
    assert "     1  waiting     placed by neither" in lines
    assert any(line.startswith("small ") for line in lines)
    (kept,) = [line for line in lines if line.startswith("default/kept-0")]
    assert "queue-deserved: queue has no room" in kept
    assert "n0" in kept


def test_json_has_each_pod(log: Path) -> None:
    told = json.loads(run(log, "-o", "json").stdout)
    assert told["kind"] == "ShadowComparison"
    assert {one["kind"] for one in told["differences"]} == {kind for kind, count in told["pods"].items() if count}


def test_a_session_whose_plan_cannot_be_read_is_said_in_a_line(log: Path) -> None:
    spoil_plan(log)
    told = run(log)
    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr.startswith("Error: this version cannot read a part of the log: ")
    assert told.stderr.endswith("; run `vcd log verify`\n")


def test_pods_are_chosen_by_kind_queue_and_number(log: Path) -> None:
    for options, count in ((("--kind", "only-vcd"), 1), (("--queue", "small"), 1), (("--limit", "2"), 2), ((), 5)):
        assert len(json.loads(run(log, "-o", "json", *options).stdout)["differences"]) == count
    assert "... and 3 more" in run(log, "--limit", "2").output


async def test_mistakes_are_told_without_a_traceback(log: Path, tmp_path: Path) -> None:
    await write_busy_history(tmp_path / "busy.log")
    for arguments, words in (
        ((tmp_path / "busy.log",), "it is not the log of a shadow; `vcd run --shadow` writes one"),
        ((tmp_path / "none.log",), "none.log"),
        ((log, "--kind", "kept"), "kept-back"),
        ((log, "--queue", "smal"), "those of default, small were"),
        ((), "give a log"),
    ):
        told = run(*arguments)
        assert (told.exit_code, "Traceback" in told.output, words in told.output) == (2, False, True), told.output

"""``vcd replay``: what it prints and how it exits."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from tests import dsl
from tests.cli.results import run_vcd
from tests.sizes import some
from tests.timetravel.histories import scheduler
from tests.timetravel.test_log_upgrade import make_older
from vcd.cli import main
from vcd.model import events as ev
from vcd.scheduling.decide import RULES_VERSION, versions

run = partial(run_vcd, "replay")


@pytest.fixture
async def forged(tmp_path: Path) -> Path:
    """A log whose second and third session bind a pod elsewhere than was decided, made by another version."""

    def elsewhere(plan: ev.Plan) -> ev.Plan:
        (statement,) = plan.statements
        (bind,) = statement.operations
        other = msgspec.structs.replace(bind, node="n9")
        return msgspec.structs.replace(plan, statements=(msgspec.structs.replace(statement, operations=(other,)),))

    path = tmp_path / "forged.log"
    async with scheduler(path) as made:
        await made.show(dsl.queue("default"), dsl.node("n1"), dsl.gang("a", 1, cpu=1))
        await made.carry_out(await made.cycle())
        for name in "bc":
            await made.show(dsl.gang(name, 1, cpu=1))
            await made.cycle(forge=elsewhere, made_by={"vcd": "0.0.1"})
    return path


def test_identical_plans_exit_with_0(busy: Path) -> None:
    result = run("--event-log", busy)
    assert (result.exit_code, result.stdout) == (0, "sessions 1 to 8: 8 of 8 identical (13 operations)\n")


def test_a_tampered_plan_exits_with_1_and_names_the_operation(forged: Path) -> None:
    result = run("--event-log", forged)
    lines = result.stdout.splitlines()
    assert (result.exit_code, lines[0]) == (1, "sessions 1 to 3: 1 of 3 identical (3 operations)")
    assert lines[1].startswith("session 2 (decided for 2026-01-01T00:00:01.000Z, event ")
    assert lines[2:5] == [
        "  statement 0 (allocate for default/b), operation 0",
        "    recorded: bind default/b-0 to n9",
        "    replayed: bind default/b-0 to n1",
    ]


def test_another_version_is_told_beside_the_difference(forged: Path) -> None:
    lines = run("--event-log", forged).stdout.splitlines()
    assert any(line.startswith("  vcd was 0.0.1 then and is ") for line in lines)


def test_the_sessions_that_differ_and_what_decided_them_are_told(forged: Path) -> None:
    lines = run("--event-log", forged).stdout.splitlines()
    assert "    no node n9 was there" in lines
    assert lines[-3] == "different: sessions 2 to 3"
    assert lines[-2] == f"sessions 2 to 3: decided by earlier rules (1, now {RULES_VERSION}); see CHANGELOG.md"
    assert re.fullmatch(r"sessions 2 to 3: decided by .*vcd 0\.0\.1 \(now .+\); 2 of 2 differ", lines[-1])


async def test_identical_sessions_of_another_version_are_told(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.node("n1"), dsl.gang("a", 1, cpu=1))
        await made.carry_out(await made.cycle(made_by={**versions(), "vcd": "0.0.1"}))
    result = run("--event-log", tmp_path / "log")
    assert (result.exit_code, result.stdout.splitlines()[1]) == (
        0,
        f"session 1: decided by vcd 0.0.1 (now {versions()['vcd']}); 0 of 1 differ",
    )


async def test_a_plan_that_earlier_rules_made_is_attributed_to_them(tmp_path: Path) -> None:
    """Not to a plugin that is not pure; and the exit code says that the plan differs."""
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.node("n1"), dsl.gang("a", 1, cpu=1))
        for rules in ("0", RULES_VERSION):
            await made.cycle(forge=lambda plan: ev.Plan(), made_by={**versions(), "rules": rules})
    result = run("--event-log", tmp_path / "log")
    found = [line for line in result.stdout.splitlines() if "earlier rules" in line]
    assert (result.exit_code, found) == (
        1,
        [f"session 1: decided by earlier rules (0, now {RULES_VERSION}); see CHANGELOG.md"],
    )


async def test_the_very_version_that_decided_is_told_to_differ(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.node("n1"), dsl.gang("a", 1, cpu=1))
        await made.cycle(forge=lambda plan: ev.Plan())
    result = run("--event-log", tmp_path / "log")
    assert result.exit_code == 1
    assert "  it was decided by the installed versions" in result.stdout.splitlines()


@pytest.mark.parametrize("output", some(1, ["json", "text"]))
def test_the_number_of_processes_changes_nothing(forged: Path, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcd.timetravel.replay.LEAST", 1)
    one, two = (run("--event-log", forged, "-o", output, "--jobs", jobs) for jobs in (1, 2))
    assert (one.exit_code, one.stdout) == (two.exit_code, two.stdout)
    assert one.exit_code == 1


def test_no_process_at_all_is_a_mistake(busy: Path) -> None:
    assert run("--event-log", busy, "--jobs", 0).exit_code == 2


def test_a_file_of_an_older_vcd_is_replayed_from_a_copy(busy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_older(busy, monkeypatch)
    before = busy.read_bytes()
    result = run("--event-log", busy)
    assert (result.exit_code, result.stdout) == (0, "sessions 1 to 8: 8 of 8 identical (13 operations)\n")
    assert result.stderr.startswith(f"note: event log {busy} was written by an older vcd; a copy of it is read")
    assert busy.read_bytes() == before


def test_a_file_of_an_older_vcd_is_explained_from_a_copy(busy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_older(busy, monkeypatch)
    result = CliRunner().invoke(main, ["explain", "job", "first", "--event-log", str(busy)])
    assert (result.exit_code, "a copy of it is read" in result.stderr) == (0, True)
    assert result.stdout.startswith("default/first  3 Succeeded  queue default\n")


def test_json_holds_every_difference(forged: Path) -> None:
    result = run("--event-log", forged, "-o", "json")
    printed = json.loads(result.stdout)
    assert (result.exit_code, printed["sessions"], printed["identical"]) == (1, 3, 1)
    assert [one["session"] for one in printed["different"]] == [2, 3]
    assert printed["different"][0]["difference"]["recorded"] == "bind default/b-0 to n9"


@pytest.mark.parametrize(
    ("options", "first_line"),
    [
        (("--session", 1), "session 1: 1 of 1 identical (1 operations)"),
        (("--from", 1, "--to", 1), "session 1: 1 of 1 identical (1 operations)"),
        (("--from", 2), "sessions 2 to 3: 0 of 2 identical (2 operations)"),
        (("--no-memory",), "sessions 1 to 3: 1 of 3 identical (3 operations)"),
    ],
)
def test_sessions_are_chosen(forged: Path, options: tuple[object, ...], first_line: str) -> None:
    line = run("--event-log", forged, *options).stdout.splitlines()[0]
    assert line.replace("sessions 1:", "session 1:") == first_line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--session", 99), "session 99 is not in it"),
        (("--from", 9), "it has no sessions from 9 to the end"),
        (("--session", 1, "--to", 2), "leave out --from and --to"),
        (("--from", 3, "--to", 2), "--from 3 comes after --to 2"),
    ],
)
def test_sessions_that_are_not_there_exit_with_2(busy: Path, options: tuple[object, ...], message: str) -> None:
    result = run("--event-log", busy, *options)
    assert (result.exit_code, message in result.stderr, result.stdout) == (2, True, "")


def test_a_file_that_is_no_log_exits_with_2(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello " * 1000)
    result = run("--event-log", tmp_path / "text")
    assert (result.exit_code, "it is not a vcd log" in result.stderr) == (2, True)


def test_a_missing_file_exits_with_2(tmp_path: Path) -> None:
    assert run("--event-log", tmp_path / "none").exit_code == 2


def test_no_bar_is_drawn_where_there_is_no_terminal(busy: Path) -> None:
    assert run("--event-log", busy).stderr == ""

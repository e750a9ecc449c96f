"""examples/ci: workflows that GitHub would take, whose commands vcd takes, and whose conditions can be read."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from vcd.cli import main
from vcd.timetravel.whatif.fail_conditions import ConditionError, Unit, read_condition

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "ci"
WORKFLOWS = sorted(FOLDER.glob("*.yaml"))
UNITS: dict[str, Unit] = {
    "wait.p95": "seconds",
    "evictions": "count",
    "started": "count",
    "utilisation.nvidia.com/gpu": "part",
}


def workflow(path: Path) -> dict[str, Any]:
    """The file as YAML 1.2 has it, where ``on`` is a key and no truth value."""
    loaded: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {"on" if key is True else key: value for key, value in loaded.items()}


def commands(text: str) -> list[list[str]]:
    """The lines of a script that call vcd, as words."""
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.split(line)[1:] for line in lines if line.startswith("vcd ")]


def scripts(path: Path) -> list[str]:
    return [step["run"] for job in workflow(path)["jobs"].values() for step in job["steps"] if "run" in step]


def parsed(words: list[str]) -> dict[str, Any]:
    """The options of a command line. Raises UsageError for what the command does not take."""
    command: click.Command = main
    context = click.Context(main, info_name="vcd")
    while isinstance(command, click.Group):
        name, inner, words = command.resolve_command(context, words)
        assert inner is not None
        command, context = inner, click.Context(inner, info_name=name, parent=context)
    command.parse_args(context, list(words))
    return context.params


def test_there_is_a_workflow_that_gates() -> None:
    assert [words[0] for path in WORKFLOWS for text in scripts(path) for words in commands(text)].count("gate") == 1


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_what_github_asks_for(path: Path) -> None:
    found = workflow(path)
    assert {"name", "on", "jobs"} <= found.keys()
    for job in found["jobs"].values():
        assert job["runs-on"]
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step), step
            assert "uses" not in step or re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"]), step


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_vcd_takes_its_commands(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scheduler").mkdir()
    (tmp_path / "scheduler" / "volcano-scheduler.conf").write_text("actions: allocate\n")  # `conf check` wants the file
    lines = [words for text in scripts(path) for words in commands(text)]
    assert lines
    for words in lines:
        parsed(words)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_its_conditions_can_be_read(path: Path) -> None:
    (gate,) = [parsed(words) for text in scripts(path) for words in commands(text) if words[0] == "gate"]
    assert len(gate["fail_if"]) > 1
    for text in gate["fail_if"]:
        assert read_condition(text, UNITS).clauses


def test_a_flag_that_there_is_not_would_be_found() -> None:
    with pytest.raises(click.NoSuchOption):
        parsed(["gate", "--event-log", "f", "--new", "g", "--fail-when", "evictions > 0"])
    with pytest.raises(ConditionError):
        read_condition("wait.p99 > 1m", UNITS)

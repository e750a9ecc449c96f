"""``vcd``: its commands, loaded one by one, and how it ends."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import vcd
from tests.cli.results import without_defect
from vcd.cli import Commands, main

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def commands() -> list[str]:
    return main.list_commands(click.Context(main))


def test_version() -> None:
    assert run("--version").stdout == f"vcd, version {vcd.__version__}\n"


def test_help_lists_the_commands() -> None:
    text = run("--help").stdout
    assert all(f"  {name}  " in text for name in commands())


def test_commands_of_the_design_are_there() -> None:
    assert {"plan", "replay", "explain", "log", "conf", "completion"} <= set(commands())


@pytest.mark.parametrize("name", commands())
def test_each_command_has_help(name: str) -> None:
    result = run(name, "--help")
    assert (result.exit_code, result.stdout.startswith("Usage: main " + name)) == (0, True)


def test_a_command_that_there_is_not_is_told() -> None:
    result = run("nothing")
    assert (result.exit_code, "No such command 'nothing'" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "meant"), [(("explian",), "explain"), (("log", "veryfy"), "verify"), (("bisect", "wait"), "waits")]
)
def test_a_mistyped_command_is_told_what_is_near(words: tuple[str, ...], meant: str) -> None:
    result = run(*words)
    said = f"Error: No such command {words[-1]!r}; did you mean {meant}?\n"
    assert (result.exit_code, result.stderr.endswith(said)) == (2, True), result.stderr


def test_help_imports_no_command() -> None:
    program = (
        "import sys\nfrom vcd.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([name for name in sys.modules if name.startswith('vcd.cli.')])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_an_interrupt_ends_it_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Commands, "get_command", lambda *_: interrupted)
    result = run("conf")
    assert (result.exit_code, result.output) == (130, "")


def test_a_defect_is_told_with_its_place_and_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def broken() -> None:
        raise ArithmeticError("of nobody's making")

    monkeypatch.setattr(Commands, "get_command", lambda *_: broken)
    result = run("gate")
    assert (result.exit_code, result.stdout) == (70, "")
    assert result.stderr.splitlines()[0] == "Traceback (most recent call last):"
    assert result.stderr.splitlines()[-1] == "ArithmeticError: of nobody's making"
    with pytest.raises(AssertionError, match="of nobody's making"):
        without_defect(result)


def test_who_reads_no_more_ends_it_without_a_word() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "vcd", "plan", "-f", "examples/gang.yaml"]
    done = subprocess.run(command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_help_that_cannot_be_written_is_told() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "vcd", "--help"],
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": ""},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (2, "Error: No space left on device\n")


def test_standard_input_that_is_closed_is_told() -> None:
    command = f"exec {sys.executable} -m vcd plan -f - <&-"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "Error: -: standard input is closed\n")


def test_a_broken_installation_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from vcd.scheduling.framework.registry import RegistryError

    def broken() -> None:
        raise RegistryError("entry point mine = my.plugin:Mine: it does not load")

    monkeypatch.setattr("vcd.scheduling.framework.registry.plugins", broken)
    result = CliRunner().invoke(
        main, ["plan", "-f", "-"], input=json.dumps({"kind": "Node", "metadata": {"name": "n"}})
    )
    assert (result.exit_code, result.stderr) == (2, "Error: entry point mine = my.plugin:Mine: it does not load\n")


def test_log_lines_go_to_standard_error() -> None:
    program = (
        "import structlog\nfrom vcd.cli import main\n"
        "main(['completion', 'zsh'], standalone_mode=False)\nstructlog.get_logger().error('a line of the log')"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ("a line of the log" in done.stderr, "a line of the log" in done.stdout) == (True, False)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_scripts_call_vcd(shell: str) -> None:
    assert f"_VCD_COMPLETE={shell}_complete" in run("completion", shell).stdout


def test_bash_can_read_its_completion_script() -> None:
    script = run("completion", "bash").stdout
    assert shutil.which("bash") is not None
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, "_vcd_completion" in script) == (0, True)


def test_a_shell_is_given_the_commands_that_begin_so() -> None:
    env = {**os.environ, "_VCD_COMPLETE": "bash_complete", "COMP_WORDS": "vcd re", "COMP_CWORD": "1"}
    program = "from vcd.cli import main; main(prog_name='vcd')"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["plain,replay"]


@pytest.mark.parametrize("command", ["run", "sim", "view"])
def test_what_a_command_logs_goes_to_standard_error(command: str) -> None:
    """Their loggers are set up when they are imported; a command that has none does without the import."""
    code = (
        f"import sys; from vcd.cli import main; main(['{command}', '--help'], standalone_mode=False);"
        "sys.modules['structlog'].get_logger().warning('said')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ("said" in done.stderr, "said" in done.stdout) == (True, False)


def test_an_explanation_needs_neither_loggers_nor_tables() -> None:
    code = "import sys, vcd.cli.explain; print({'structlog', 'rich', 'aiohttp'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"

"""Which log a command reads: a file by argument, option or variable, or a cluster's; one of them, and no two."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.cli.results import without_defect
from tests.eventlog.samples import write_history
from tests.sizes import some
from vcd.cli import main
from vcd.cli.kubectl import ASKING, kubectl_vcd

BY_ARGUMENT = ("top", "view", "whatif", "replay", "sweep", "gate", "bisect waits", "log ls", "log tail", "log verify")
BY_OPTION = (*BY_ARGUMENT, "explain job a", "bisect job a", "log export out", "conf show")
CONF = Path(__file__).parents[2] / "tests" / "data" / "configurations" / "actions-allocate.yaml"
NEEDED = {"gate": ("--new", CONF, "--fail-if", "evictions > 1")}
WAYS = "--event-log FILE, the variable VCD_EVENT_LOG, or --from-cluster"


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    path = tmp_path / "events.sqlite"
    await write_history(path, 20)
    return path


def run(*words: object, variable: object = None, program: object = main) -> Result:
    """Run a command; a traceback fails the test."""
    environment = {"VCD_EVENT_LOG": None if variable is None else str(variable), "KUBECONFIG": "/nowhere/kubeconfig"}
    result = CliRunner(env=environment).invoke(program, list(map(str, words)))  # type: ignore[arg-type]
    return without_defect(result)


def words_of(command: str) -> tuple[object, ...]:
    return (*command.split(), *NEEDED.get(command, ()))


def says(result: Result, words: str) -> bool:
    return words in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize("command", BY_ARGUMENT)
def test_without_a_log_all_ways_to_give_one_are_told(command: str) -> None:
    result = run(*words_of(command))
    assert result.exit_code == 2
    assert says(result, f"give a log: FILE, {WAYS}"), result.stderr


@pytest.mark.parametrize("command", ["explain job a", "bisect job a"])
def test_where_names_are_arguments_a_file_is_none(command: str) -> None:
    result = run(*words_of(command))
    assert says(result, f"give a log: {WAYS}"), result.stderr


@pytest.mark.parametrize("command", BY_OPTION)
def test_two_logs_are_one_too_many(command: str) -> None:
    result = run(*words_of(command), "--event-log", "a", "--from-cluster")
    assert result.exit_code == 2
    assert says(result, "give one log: "), result.stderr


@pytest.mark.parametrize("command", BY_ARGUMENT)
def test_a_file_and_a_cluster_are_two_logs(command: str) -> None:
    for other in (("--event-log", "b"), ("--from-cluster",)):
        assert says(run(*words_of(command), "a", *other), f"give one log: FILE, {WAYS}")


@pytest.mark.parametrize("command", BY_OPTION)
def test_options_of_a_cluster_are_for_one(command: str) -> None:
    for option in ("--context", "--kubeconfig", "--scheduler-namespace", "--token-file"):
        result = run(*words_of(command), option, "x", "--event-log", "a")
        assert says(result, f"{option}: for --from-cluster only"), result.stderr


@pytest.mark.parametrize("command", BY_OPTION)
def test_a_cluster_goes_before_the_variable_and_is_asked(command: str) -> None:
    result = run(*words_of(command), "--from-cluster", variable="a")
    assert result.exit_code == 2
    assert says(result, "kubeconfig /nowhere/kubeconfig does not exist"), result.stderr


@pytest.mark.parametrize(
    "command", ["top --once", "replay --jobs 1", "log ls", "log tail", "log verify", "sweep --jobs 1"]
)
def test_argument_option_and_variable_are_the_same(command: str, file: Path) -> None:
    words = (*command.split(), "-o", "json")
    asked = [run(*words, file), run(*words, "--event-log", file), run(*words, variable=file)]
    assert len({(one.exit_code, one.stdout) for one in asked}) == 1
    assert "give a log" not in asked[0].stderr


@pytest.mark.parametrize("command", ["log ls", "log tail"])
def test_an_argument_and_an_option_go_before_the_variable(command: str, file: Path) -> None:
    for given in ((file,), ("--event-log", file)):
        assert run(*command.split(), *given, variable="/nowhere/b").exit_code == 0


def test_an_export_needs_out_alone_where_the_log_is_known(file: Path, tmp_path: Path) -> None:
    outs = [tmp_path / name for name in ("a", "b", "c")]
    assert run("log", "export", file, outs[0]).exit_code == 0
    assert run("log", "export", outs[1], "--event-log", file).exit_code == 0
    assert run("log", "export", outs[2], variable=file).exit_code == 0
    assert all(out.exists() for out in outs)
    assert says(run("log", "export", file, outs[0], outs[1]), "give FILE and OUT, or OUT alone")
    assert says(run("log", "export", file, outs[0], "--event-log", file), "give one log")


def test_what_changes_a_log_takes_files_only(file: Path) -> None:
    assert run("log", "compact", "--event-log", file).exit_code == 0
    assert run("log", "compact", variable=file).exit_code == 0
    assert says(run("log", "compact"), "give a log: FILE, --event-log FILE, or the variable VCD_EVENT_LOG")
    assert says(run("log", "compact", file, "--event-log", file), "give one log: FILE, or --event-log FILE")
    assert says(run("log", "compact", "--from-cluster"), "No such option")


def test_a_shadows_log_is_a_file_and_how_to_reach_it_is_told(file: Path) -> None:
    for words in (("--from-cluster",), (file, "--from-cluster")):
        result = run("shadow", *words)
        assert result.exit_code == 2
        assert says(result, "a shadow has no Lease and does not serve its log; run the command where the log is")
        assert says(result, "exec deploy/vcd-scheduler -- vcd shadow /var/lib/vcd/events.sqlite"), result.stderr
    assert says(run("shadow"), "give a log: FILE, --event-log FILE, or the variable VCD_EVENT_LOG")
    assert says(run("shadow", variable=file), "it is not the log of a shadow")
    assert "--from-cluster" not in run("shadow", "--help").stdout
    assert run("shadow", file, program=kubectl_vcd).exit_code == 2


@pytest.mark.parametrize("command", some(1, [(("plan",),), (("top",),), (("explain", "job", "a"),)]))
def test_of_a_kubeconfig_that_is_not_there_only_that_is_said(command: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "vcd", *command, "--from-cluster", "--kubeconfig", "/nowhere/config"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: kubeconfig /nowhere/config does not exist\n"


# --- kubectl vcd ------------------------------------------------------------------------------------------------------


def test_the_plugin_has_the_commands_that_ask() -> None:
    text = run("--help", program=kubectl_vcd).stdout
    assert "Usage: kubectl-vcd" in text or "Usage: kubectl" in text
    assert all(f"  {name} " in text for name in ASKING)
    assert run("run", program=kubectl_vcd).exit_code == 2


@pytest.mark.parametrize("command", BY_OPTION)
def test_the_plugin_asks_a_cluster_also_where_the_variable_names_a_file(command: str, file: Path) -> None:
    result = run(*words_of(command), variable=file, program=kubectl_vcd)
    assert says(result, "kubeconfig /nowhere/kubeconfig does not exist"), result.stderr


def test_the_plugin_reads_a_file_that_is_given(file: Path) -> None:
    for given in ((file,), ("--event-log", file)):
        result = run("log", "verify", *given, "-o", "json", program=kubectl_vcd)
        assert json.loads(result.stdout)["file"] == str(file)


def test_the_plugins_options_are_understood_before_and_after_the_command() -> None:
    for words in (("--kubeconfig", "/mine", "top"), ("top", "--kubeconfig", "/mine")):
        assert says(run(*words, program=kubectl_vcd), "kubeconfig /mine does not exist")


def test_the_plugin_plans_a_cluster_unless_files_are_given() -> None:
    assert says(run("--kubeconfig", "/mine", "plan", program=kubectl_vcd), "kubeconfig /mine does not exist")
    assert says(run("plan", "-f", "/nowhere/x", program=kubectl_vcd), "/nowhere/x: No such file")

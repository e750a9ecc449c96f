"""Every command that reads a log reads one of before the chain, too, and leaves it as it is."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from vcd.cli import main
from vcd.cli.fromcluster import FileLog

SCHEMA_1 = Path(__file__).parents[1] / "data" / "older" / "schema-1.sqlite"
"""By version 0.1.0: queue research takes back from serving what it deserves, and one of its jobs is too large."""
ASKED = {
    ("explain", "job", "train", "--all"): "bind of train-0, train-2, train-1: done by the API server",
    ("explain", "job", "large", "--change", "--all"): "largest node cpu 8, needs cpu 12",
    ("explain", "pod", "train-0", "--all"): "session 4 (reclaim) holds capacity that is being freed",
    ("explain", "queue", "research"): "weight 3  under root",
    ("explain", "session", "5"): "decided from event 107",
    ("explain", "order", "research"): "default/large",
    ("explain", "eviction", "sweep-3"): "evicted by reclaim of queue research",
    ("top", "--once"): "2/2 nodes",
    ("whatif", "--set", "queue/research.spec.weight=1"): "queue/research.spec.weight=1",
    ("conf", "show"): "enqueue, allocate, reclaim, preempt, backfill",
    ("log", "ls"): "identity=replica_",
    ("log", "ls", "--sessions"): "2026-11-23",
    ("log", "tail"): "unchanged",
    ("log", "verify"): "sound",
}


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """A copy of the log."""
    return Path(shutil.copy(SCHEMA_1, tmp_path / "older.sqlite"))


def run(*arguments: object) -> str:
    """What a command prints that ends well."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def replayed(log: Path) -> str:
    """What a replay prints: session 13 was decided by earlier rules, which left capacity idle."""
    result = CliRunner().invoke(main, ["replay", "--event-log", str(log)])
    assert result.exit_code == 1, result.output
    return result.stdout


def test_a_replay_names_the_sessions_that_earlier_rules_decided(older: Path) -> None:
    before, found = older.read_bytes(), replayed(older)
    assert "sessions 1 to 17: 16 of 17 identical (27 operations)" in found
    assert "session 13: decided by earlier rules (1, now 2); see CHANGELOG.md" in found
    assert older.read_bytes() == before


@pytest.mark.parametrize("command", ASKED, ids=" ".join)
def test_a_question_is_answered(older: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VCD_EVENT_LOG", str(older))
    before = older.read_bytes()
    assert ASKED[command] in run(*command)
    assert older.read_bytes() == before


def test_verify_says_what_has_no_chain(older: Path) -> None:
    told = json.loads(run("log", "verify", older, "-o", "json"))
    assert (told["problems"], told["head"]) == ([], None)
    assert told["uncovered"] == ["events 1 to 185 were written before there was a chain"]


@pytest.mark.parametrize(
    "command",
    [
        ("replay", "--session", "5000"),
        ("explain", "job", "nope"),
        ("explain", "session", "5000"),
        ("explain", "order", "--at", "2020-01-01T00:00:00Z"),
        ("bisect", "job", "nope"),
        ("shadow",),
    ],
    ids=" ".join,
)
def test_errors_name_the_file_that_was_given(
    older: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VCD_EVENT_LOG", str(older))
    result = CliRunner().invoke(main, list(command))
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith(f"Error: event log {older}: "), result.stderr


@pytest.mark.parametrize("command", [("whatif", "--seed", "1"), ("sweep", "--jobs", "1")], ids=" ".join)
def test_json_names_the_file_that_was_given(older: Path, command: tuple[str, ...]) -> None:
    assert json.loads(run(*command, "--event-log", older, "-o", "json"))["file"] == str(older)


def test_two_jobs_that_are_compared_are_of_the_files_that_were_given(older: Path) -> None:
    other = Path(shutil.copy(older, older.with_name("other.sqlite")))
    words = ("explain", "diff", "train", "large", "--event-log", older)
    found = json.loads(run(*words, "-o", "json"))
    assert (found["one"]["file"], found["other"]["file"]) == (str(older), str(older))
    assert f"large of {other}" in run(*words, "--other-log", other)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_copy_goes_with_a_command_that_a_signal_ends(older: Path, tmp_path: Path, number: signal.Signals) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    command = [sys.executable, "-m", "vcd", "log", "tail", str(older), "-n", "1", "-f"]
    environment = {**os.environ, "TMPDIR": str(copies)}
    before = signal.signal(number, signal.SIG_DFL)  # as nohup has pytest ignore one, what it begins would, too
    try:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    finally:
        signal.signal(number, before)
    with process:
        try:
            assert process.stdout is not None
            assert "unchanged" in process.stdout.readline()
            assert len(list(copies.iterdir())) == 1
            process.send_signal(number)
            assert process.wait() == 128 + number
        finally:
            process.kill()
    assert list(copies.iterdir()) == []


def test_a_signal_that_is_ignored_stays_so(older: Path) -> None:
    """As where nohup begins the command."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with FileLog(older).reading():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


def test_another_file_is_made_of_it(older: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.sqlite"
    assert "17 sessions" in run("log", "export", older, out)
    assert "sound" in run("log", "verify", out)
    assert "16 of 17 identical" in replayed(out)


def test_compacting_brings_it_up_to_date(older: Path) -> None:
    run("log", "compact", older)
    assert "sound" in run("log", "verify", older)
    assert "16 of 17 identical" in replayed(older)

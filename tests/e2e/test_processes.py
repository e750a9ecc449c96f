"""Forked processes are as those of their own: arguments, environment, output, exit codes and signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e import processes
from tests.waiting import WAIT_LIMIT

HERE = "tests.e2e.test_processes"


def tell() -> None:
    """In the process: what it was given; then the exit code that is asked for."""
    importable = "only_here" in sys.modules or __import__("importlib.util").util.find_spec("only_here") is not None
    print(json.dumps([sys.argv[1:], dict(os.environ), str(Path.cwd()), os.getpid(), importable]))  # noqa: T201
    print("said", file=sys.stderr)  # noqa: T201
    sys.exit(int(sys.argv[1]))


def fail() -> None:
    """In the process: what nobody catches."""
    raise ValueError("nobody catches it")


def wait() -> None:
    """In the process: until a signal comes."""
    print("waits", flush=True)  # noqa: T201
    signal.pause()


def test_it_has_arguments_environment_folder_output_and_exit_code_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "only_here.py").touch()
    environment = {"PYTHONPATH": str(tmp_path), "A": "b"}
    done = processes.run(f"{HERE}:tell", [3, "x y"], tmp_path, environment, WAIT_LIMIT)
    assert (done.returncode, done.stderr) == (3, "said\n")
    arguments, given, folder, pid, importable = json.loads(done.stdout)
    assert (arguments, given, folder, importable) == (["3", "x y"], environment, str(processes.ROOT), True)
    done = processes.run(f"{HERE}:tell", [0], tmp_path, {}, WAIT_LIMIT)
    assert done.returncode == 0
    assert json.loads(done.stdout)[3] != pid
    assert json.loads(done.stdout)[4] is False


def test_what_nobody_catches_is_a_traceback_and_exit_code_1(tmp_path: Path) -> None:
    done = processes.run(f"{HERE}:fail", [], tmp_path, os.environ, WAIT_LIMIT)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0].startswith("Traceback")
    assert done.stderr.splitlines()[-1] == "ValueError: nobody catches it"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_ends_it_and_is_its_exit_code(tmp_path: Path, number: signal.Signals) -> None:
    output = tmp_path / "output"
    with output.open("wb") as file:
        process = processes.start(f"{HERE}:wait", [], stdout=file, stderr=file, environment=os.environ)
    deadline = time.monotonic() + WAIT_LIMIT
    while output.read_text() != "waits\n":
        assert time.monotonic() < deadline
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.0)
    process.send_signal(number)
    assert process.wait(WAIT_LIMIT) == process.poll() == -number
    process.send_signal(number)  # to nobody

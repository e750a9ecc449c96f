"""A hundred seeds of the simulation, and that a seed decides everything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = 25


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command of the simulation in a process of its own, whose standard library it replaces."""
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONHASHSEED": "0"}
    )


@pytest.mark.parametrize("first", range(0, 100, BLOCK))
def test_no_invariant_is_violated(first: int) -> None:
    done = ran(f"{first}:{first + BLOCK}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{BLOCK} seeds, 0 with violations" in done.stdout


def test_a_seed_decides_everything(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    assert ran("7:10", "--digests", str(before)).returncode == 0
    assert ran("9:10", "--digests", str(after)).returncode == 0
    assert before.read_text().splitlines()[-1] == after.read_text().strip()
    assert len({line.split()[1] for line in before.read_text().splitlines()}) == 3

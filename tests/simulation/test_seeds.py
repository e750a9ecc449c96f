"""A hundred seeds of the simulation, and that a seed decides everything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation import record

ROOT = Path(__file__).resolve().parents[2]
BLOCK = 10


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
    kept = tmp_path / "kept"
    assert ran("7:10", "--digests", str(kept)).returncode == 0
    assert len(set(record.read(kept).values())) == 3
    assert ran("9:10", "--against", str(kept)).returncode == 0
    kept.write_text(kept.read_text().replace(record.read(kept)[9], "00000000"))
    other = ran("9:10", "--against", str(kept))
    assert other.returncode == 1
    assert "1 went another way" in other.stdout


def test_a_record_has_the_digest_of_each_seed(tmp_path: Path) -> None:
    digests = {seed: f"{seed:016x}"[::-1] for seed in range(95, 120)}
    record.write(tmp_path / "kept", range(95, 120), "25 seeds", digests)
    kept = record.read(tmp_path / "kept")
    assert kept == {seed: digest[:8] for seed, digest in digests.items()}
    assert record.differing(kept, {**digests, 97: "f" * 16, 500: ""}) == [97]


def test_a_night_has_parts(tmp_path: Path) -> None:
    file, first, second = tmp_path / "kept", dict.fromkeys(range(8, 12), "a" * 16), dict.fromkeys((20, 22), "b" * 16)
    record.write(file, range(8, 12), "4 seeds", first)
    record.write(file, range(20, 24), "1 seed so far", {20: "c" * 16})
    record.write(file, range(20, 24), "2 seeds so far", second)
    assert record.read(file) == {seed: digest[:8] for seed, digest in (first | second).items()}
    assert [line for line in file.read_text().splitlines() if line.startswith("#")] == [
        "# 8:12: 4 seeds", "# 20:24: 2 seeds so far",
    ]  # fmt: skip
    record.write(file, range(0, 30), "30 seeds", dict.fromkeys(range(30), "d" * 16))
    assert file.read_text().startswith("# 0:30: 30 seeds\n0 dddddddd")
    assert len(file.read_text().splitlines()) == 4


def with_the_machine(program: str) -> subprocess.CompletedProcess[str]:
    """A program in a process whose standard library the simulation replaces."""
    command = [sys.executable, "-c", "from tests.simulation import machine; machine.install()\n" + program]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)


def test_each_act_is_drawn() -> None:
    done = with_the_machine("from tests.simulation.swarm.tables import undrawn; print(undrawn())")
    assert done.stdout == "[]\n", done.stderr


def test_each_seed_draws_acts_that_there_are_in_their_order() -> None:
    done = with_the_machine(
        "from tests.simulation.acts import ACTS; from tests.simulation.swarm import drawn\n"
        "for seed in range(5000):\n"
        "    script = drawn(seed)\n"
        "    acts = [act for act in script.acts if act.at <= script.storm]\n"
        "    assert len(script.acts) - len(acts) in (0, 2), seed\n"  # those of what is healed later
        "    assert {act.what for act in acts} <= ACTS.keys(), seed\n"
        "    assert [act.at for act in acts] == sorted(act.at for act in acts), seed\n"
    )
    assert done.returncode == 0, done.stderr

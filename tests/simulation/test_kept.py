"""Scripts in which vcd once violated an invariant: it does not now, but does so with the bug planted again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.mutants import mutants
from tests.simulation.test_seeds import ran
from tests.sizes import some

KEPT = {
    "no-room-at-the-start": "opening-unexplained",
    "whole-again": "opposite-not-counted",
    "nominated-by-arrival": "nominated-by-arrival",
    "back-by-doubling": "back-by-doubling",
}
"""Each script of ``kept/``, with the mutant that is the bug it found."""


def script(name: str) -> str:
    return str(Path(__file__).parent / "kept" / f"{name}.json")


def test_each_script_that_is_kept_is_run() -> None:
    assert sorted(KEPT) == sorted(file.stem for file in (Path(__file__).parent / "kept").iterdir())


@pytest.mark.parametrize("name", some(2, KEPT))
def test_what_was_found_is_fixed(name: str) -> None:
    fixed = ran("run", script(name))
    assert fixed.returncode == 0, fixed.stdout + fixed.stderr


@pytest.mark.wide
@pytest.mark.parametrize(("name", "mutant"), KEPT.items())
def test_the_bug_planted_again_is_found(name: str, mutant: str) -> None:
    planted = ran("run", script(name), "--mutant", mutant)
    assert planted.returncode == 1, planted.stdout + planted.stderr
    assert f"\n{mutants()[mutant].found_by} at " in f"\n{planted.stdout}"

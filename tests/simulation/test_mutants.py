"""Every planted bug still has its place in the code."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import msgspec
import pytest

from tests.simulation.hunting import Hunt, table
from tests.simulation.mutants import ROOT, SCRIPTS, Mutant, mutants
from tests.simulation.names import NAMES
from tests.simulation.script import Script
from tests.simulation.test_seeds import ran

_MUTANTS = mutants()
_FEWEST = 45


def test_there_are_enough_of_them() -> None:
    assert len(_MUTANTS) >= _FEWEST


@pytest.mark.parametrize("mutant", _MUTANTS.values(), ids=_MUTANTS)
def test_a_mutant_is_a_patch_of_the_code_as_it_is(mutant: Mutant) -> None:
    assert mutant.module.startswith("vcd.")
    assert not mutant.module.startswith("vcd.embedded"), "the world is not what is tried"
    assert mutant.does.endswith(".")
    assert mutant.fires in NAMES
    before, after = ast.parse(mutant.path.read_text()), ast.parse(mutant.source())
    assert ast.dump(before) != ast.dump(after), "only the form is another one"


def test_each_script_is_named_by_the_bug_that_it_shows() -> None:
    scripts = {file.stem: msgspec.json.decode(file.read_bytes(), type=Script) for file in SCRIPTS.iterdir()}
    assert scripts.keys() <= _MUTANTS.keys()
    assert all(script.acts for script in scripts.values())


def test_a_text_that_is_not_there_once_is_told() -> None:
    mutant = Mutant("vcd.kube.lease", "Nothing.", "nothing", "no such text", "")
    with pytest.raises(ValueError, match="has 0 times"):
        mutant.source()


def test_a_planted_bug_is_in_the_module_that_is_imported() -> None:
    program = (
        "from tests.simulation.mutants import plant; plant('refused-twice-forgotten'); "
        "from vcd.kube import status; print(status._AGAIN)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "1000000000.0\n"


def test_the_module_as_it_is_stays_in_the_cache() -> None:
    from vcd.kube import status

    assert status._AGAIN == 10


def test_the_table_tells_what_was_found_and_what_was_not() -> None:
    found = Hunt("bind-unfenced", 3, seed=2, invariant="written by who leads")
    assert table([found, Hunt("epoch-reused", 2000)], 920.0).splitlines()[2:] == [
        f"| `bind-unfenced` (kube.committer) | {_MUTANTS['bind-unfenced'].does} | 3 seeds | written by who leads |",
        f"| `epoch-reused` (kube.lease) | {_MUTANTS['epoch-reused'].does} | not in 2,000 | – |",
        "",
        "1 of 2 planted bugs are found, in 15 minutes.",
    ]


def test_the_kept_table_has_each_planted_bug_and_all_are_found() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    kept = re.findall(r"^\| `([\w-]+)` \(([\w.]+)\) \| (.*) \| [\d,]+ seeds? \| .+ \|$", page, re.MULTILINE)
    assert kept == [(name, mutant.module.removeprefix("vcd."), mutant.does) for name, mutant in _MUTANTS.items()]
    assert f"{len(kept)} of {len(kept)} planted bugs are found" in page


def test_a_hunt_tells_in_how_many_seeds_a_bug_is_found() -> None:
    name = "done-asked-again"
    done = ran("mutants", name, "--seeds", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = [line for line in done.stdout.splitlines() if line.startswith(f"| `{name}`")]
    assert row.endswith(f"| 1 seed | {mutants()[name].fires} |")

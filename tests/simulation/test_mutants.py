"""Each planted bug replaces a function of vcd, names what finds it, and is in docs/reliability.md."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from inspect import signature
from pathlib import Path

import msgspec
import pytest

from tests.simulation.hunting import Hunt, _fails, table
from tests.simulation.mutants import ROOT, SCRIPTS, Mutant, mutants
from tests.simulation.names import NAMES
from tests.simulation.script import Script
from tests.simulation.test_seeds import ran

_MUTANTS = mutants()
_MOST = 80
"""A limit for readers: each bug must represent a law or a kind of fault that no other one represents."""


def test_there_are_not_too_many_and_each_layer_has_some() -> None:
    assert len(_MUTANTS) <= _MOST
    for layer in ("daemon", "daemon.replicas", "eventlog", "kube", "model", "scheduling", "state"):
        assert any(mutant.module.startswith(f"vcd.{layer}") for mutant in _MUTANTS.values()), layer


@pytest.mark.parametrize("mutant", _MUTANTS.values(), ids=_MUTANTS)
def test_a_mutant_has_its_targets_parameters_and_names_what_finds_it(mutant: Mutant) -> None:
    assert mutant.module.startswith("vcd.")
    assert not mutant.module.startswith("vcd.embedded"), "the environment is not under test"
    assert list(signature(mutant.replacement).parameters) == list(signature(mutant.target).parameters)
    assert mutant.does.endswith(".")
    file, _, test = mutant.found_by.partition("::")
    assert mutant.found_by in NAMES or f"def {test}(" in Path(ROOT, file).read_text()


def test_each_script_is_named_by_the_bug_that_it_shows() -> None:
    scripts = {file.stem: msgspec.json.decode(file.read_bytes(), type=Script) for file in SCRIPTS.iterdir()}
    assert scripts.keys() <= _MUTANTS.keys()
    assert all(script.acts for script in scripts.values())


def test_a_planted_bug_is_wherever_its_target_is_looked_up() -> None:
    program = (
        "from tests.simulation.mutants import mutants, plant; from vcd.kube import client, lease, watcher; "
        "plant('deadline-not-kept', 'retry-after-ignored'); method, function = (mutants()[name].replacement "
        "for name in ('deadline-not-kept', 'retry-after-ignored')); "
        "print(lease.LeaderElector.is_leader is method, client.pause_after is watcher.pause_after is function)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"


def test_the_kept_table_has_each_planted_bug_and_all_are_found() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    row = re.compile(
        r"^\| `([\w-]+)` \(([\w.]+)\) \| (.*) \| (?:[\d,]+ seeds?|its test|its script) \| .+ \|$", re.MULTILINE
    )
    assert row.findall(page) == [
        (name, mutant.module.removeprefix("vcd."), mutant.does) for name, mutant in _MUTANTS.items()
    ]
    assert f"{len(_MUTANTS)} of {len(_MUTANTS)} planted bugs are found" in page


def test_the_table_has_what_was_found_and_what_was_not() -> None:
    by_test = "lease-of-our-name-is-ours"
    found = Hunt("bind-unfenced", 3, seed=2, invariant="written by who leads")
    tested = Hunt(by_test, 0, seed=0, invariant=_MUTANTS[by_test].found_by)
    scripted = Hunt("bind-unfenced", 0, seed=0, invariant="written by who leads")
    assert table([found, Hunt("epoch-reused", 2000), tested, scripted], 920.0).splitlines()[2:] == [
        f"| `bind-unfenced` (kube.committer) | {_MUTANTS['bind-unfenced'].does} | 3 seeds | written by who leads |",
        f"| `epoch-reused` (kube.lease) | {_MUTANTS['epoch-reused'].does} | not in 2,000 | – |",
        f"| `{by_test}` (kube.lease) | {_MUTANTS[by_test].does} | its test | `{_MUTANTS[by_test].found_by}` |",
        f"| `bind-unfenced` (kube.committer) | {_MUTANTS['bind-unfenced'].does} | its script | written by who leads |",
        "",
        "3 of 4 planted bugs are found, in 15 minutes.",
    ]


@pytest.mark.wide
def test_a_test_shows_a_bug_only_if_it_fails_with_it_and_passes_without_it() -> None:
    mutant = _MUTANTS["names-of-queues-forgotten"]
    file, _, _ = mutant.found_by.partition("::")
    passes, is_missing = f"{file}::test_a_bind_that_failed_leaves_the_pod_pending", f"{file}::test_no_such"
    mutants_of_test = [dataclasses.replace(mutant, found_by=test) for test in (mutant.found_by, passes, is_missing)]
    assert [_fails(each) for each in mutants_of_test] == [True, False, False]


@pytest.mark.wide
@pytest.mark.timeout(900)  # six seconds alone, and minutes on a busy machine
def test_a_hunt_prints_what_finds_a_bug() -> None:
    done = ran("mutants", "put-returns-at-once", "release-counts-anew", "--seeds", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    by_seed, by_script = [line for line in done.stdout.splitlines() if line.startswith("| `")]
    assert by_seed.endswith("| 1 seed | intended first |")
    assert by_script.endswith("| its script | gangs whole |")


def test_an_unknown_bug_is_refused() -> None:
    done = ran("run", __file__, "--mutant", "no-such")
    assert done.returncode == 2
    assert "no planted bug is called no-such" in done.stderr

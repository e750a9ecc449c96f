"""Measures in how many seeds the simulation finds each planted bug.

Several bugs that are not found yet are planted together. If a seed then violates an invariant that it does not violate
without them, each half is tried, and so on, until the bugs that violate an invariant alone are known. A bug that
another one hides in a seed is found in a later seed, so the result is never below the seeds that the bug needs.
"""

from __future__ import annotations

import dataclasses
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from tests.simulation.mutants import ROOT, SCRIPTS, Mutant, mutants, plant
from tests.simulation.names import ITSELF
from tests.simulation.night import outcomes, run_script, run_seed
from tests.simulation.script import Script
from tests.simulation.simulation import Outcome

BESIDE = 2
"""Runs at a time."""
_BLOCK = 50
"""Seeds that are tried with one group of bugs before the next group."""
_TOGETHER = 16
"""The maximum number of bugs that are planted together: with more, they hide each other too often."""
_PATIENCE = 60
"""Seconds of processor time after which a run violates "comes to an end". Other load on the machine does not count."""


class Hunt(msgspec.Struct, frozen=True):
    """The result of the search for a bug: the seed that found it (None: none of the ``tried`` seeds did), and the first
    invariant that it violates. ``tried`` is 0 for a bug that its test or script finds; ``invariant`` is the test."""

    name: str
    tried: int
    seed: int | None = None
    invariant: str = ""


class State(msgspec.Struct):
    """The progress of a hunt.

    ``seed`` is the next seed of the block that begins with ``first``. The bugs in ``left`` are planted together, then
    the ``aside`` bugs from the block's first seed on. The bugs in ``through`` were tried in the whole block.
    ``seconds`` is the time spent.
    """

    left: list[str]
    aside: list[str] = []
    through: list[str] = []
    first: int = 0
    seed: int = 0
    hunts: list[Hunt] = []
    seconds: float = 0.0


class _Culprits(NamedTuple):
    """The bugs that violate an invariant in a seed alone, with that invariant; and the bugs that do so only with
    others."""

    alone: list[tuple[str, str]]
    with_others: list[str]


def hunt_all(names: Sequence[str], seeds: int, kept: Path | None = None) -> int:
    """Hunt the named bugs, or all, and print the table; return 1 if one was not found.

    Args:
        names: Names of bugs; none for all.
        seeds: The number of seeds that are tried for each bug, at most.
        kept: A file with the progress, from which a hunt with the same code goes on.

    Raises:
        click.UsageError: For an unknown name.
    """
    chosen = _chosen(names)
    by_tests = [each for each in chosen.values() if each.has_test]
    state = State([name for name, each in chosen.items() if not each.has_test])
    state.hunts += [Hunt(each.name, 0, 0 if _fails(each) else None, each.found_by) for each in by_tests]
    if kept is not None and kept.exists():
        state = msgspec.json.decode(kept.read_bytes(), type=State)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that its files go, as after Ctrl-C
    hunting = _Hunting(state, seeds, kept)
    while state.left:
        hunting.on()
    of = {hunt.name: hunt for hunt in state.hunts}
    left = [chosen[name] for name, hunt in of.items() if hunt.seed is None and _script(name).exists()]
    not_shown = _not_shown_by_script(left)
    of |= {each.name: Hunt(each.name, 0, 0, each.found_by) for each in left if each.name not in not_shown}
    hunts = [of[name] for name in chosen if name in of]
    click.echo(table(hunts, state.seconds))
    return int(any(hunt.seed is None for hunt in hunts))


def _chosen(names: Sequence[str]) -> dict[str, Mutant]:
    known = mutants()
    if strange := [name for name in names if name not in known]:
        raise click.UsageError(f"no planted bug is called {strange[0]}; tests/simulation/mutants has them")
    return {name: each for name, each in known.items() if not names or name in names}


class _Hunting:
    """A hunt that continues from ``state`` and saves its progress there."""

    def __init__(self, state: State, seeds: int, kept: Path | None) -> None:
        self._state = state
        self._seeds = seeds
        self._kept = kept
        self._sound: dict[int, frozenset[str]] = {}
        self._began = time.monotonic()

    def on(self) -> None:
        """Run seeds until one violates an invariant or a block ends."""
        state = self._state
        together = _compatible(state.left)
        state.left, state.aside = together, [*state.aside, *(name for name in state.left if name not in together)]
        block = range(state.seed, min(state.first + _BLOCK, self._seeds))
        with closing(_in_order(partial(_run_planted, together), block)) as found:
            new = ((seed, self._new(seed, each)) for seed, each in zip(block, found, strict=True))
            violated, broken = next(((seed, each) for seed, each in new if each), (None, []))
        if violated is not None:
            state.seed = violated
            self._note(violated, self._culprits(violated, state.left, broken))
        if violated is None or not state.left:
            self._go_on(block.stop)
        click.echo(f"seed {state.seed}: {len(state.left + state.aside + state.through)} bugs not found yet", err=True)
        self._keep()

    def _go_on(self, stop: int) -> None:
        """End a block for the planted bugs; continue with other bugs in it, or with all bugs in the next block."""
        state = self._state
        state.through += state.left
        state.left, state.aside = state.aside, []
        if not state.left:
            state.left, state.through, state.first = state.through, [], stop
        state.seed = state.first
        if state.first >= self._seeds:
            state.hunts += [Hunt(name, self._seeds) for name in state.left]
            state.left = []

    def _note(self, seed: int, culprits: _Culprits) -> None:
        state, found = self._state, dict(culprits.alone)
        for name, invariant in found.items():
            state.hunts.append(Hunt(name, seed + 1, seed, invariant))
            click.echo(f"{name}: {_place(state.hunts[-1])}, {invariant}", err=True)
        aside = culprits.with_others or ([] if found else state.left[:1])  # a violation in one group is found again
        state.aside += aside
        state.left = [name for name in state.left if name not in found and name not in aside]

    def _culprits(self, seed: int, names: Sequence[str], broken: Sequence[str]) -> _Culprits:
        """Return the bugs that cause the violated invariants of a seed with all of them."""
        if len(names) == 1:
            return _Culprits([(names[0], broken[0])], [])
        middle = len(names) // 2
        halves = names[:middle], names[middle:]
        found = _Culprits([], [])
        for half, outcome in zip(halves, _in_order(lambda at: _run_planted(halves[at], seed), range(2)), strict=True):
            if of_half := self._new(seed, outcome):
                more = self._culprits(seed, half, of_half)
                found = _Culprits(found.alone + more.alone, found.with_others + more.with_others)
        return found if found.alone or found.with_others else _Culprits([], list(names[:middle]))

    def _new(self, seed: int, outcome: Outcome) -> list[str]:
        """Return the invariants that a run violates and the code without a bug does not."""
        if (violated := _violated(outcome)) and seed not in self._sound:
            (without,) = _in_order(run_seed, range(seed, seed + 1))
            self._sound[seed] = frozenset(_violated(without))
        return [invariant for invariant in violated if invariant not in self._sound[seed]]

    def _keep(self) -> None:
        now = time.monotonic()
        self._state.seconds += now - self._began
        self._began = now
        if self._kept is not None:
            self._kept.with_suffix(".new").write_bytes(msgspec.json.encode(self._state))
            self._kept.with_suffix(".new").replace(self._kept)


def _compatible(names: Sequence[str]) -> list[str]:
    """Return the first of some bugs that can be planted together: no two of them replace one function."""
    known, chosen = mutants(), dict[str, str]()
    for name in names:
        if len(chosen) < _TOGETHER:
            chosen.setdefault(known[name].target_name, name)
    return list(chosen.values())


def _violated(outcome: Outcome) -> list[str]:
    """Return the invariants that a run violates, the first one first; not what the simulation itself does wrong."""
    return [name for name in dict.fromkeys(each.invariant for each in outcome.violations) if name != ITSELF]


def _run_planted(names: Sequence[str], seed: int) -> Outcome:
    """Run a seed with planted bugs, in its own process, because planting cannot be undone."""
    plant(*names)
    return run_seed(seed)


def _in_order(run: Callable[[int], Outcome], numbers: range) -> Iterator[Outcome]:
    """Yield the outcome of each number, in order, each run by a process of its own."""

    def numbered(number: int) -> Outcome:
        resource.setrlimit(resource.RLIMIT_CPU, (_PATIENCE, _PATIENCE))
        return dataclasses.replace(run(number), seed=number)

    found: dict[int, Outcome] = {}
    first = numbers.start
    with closing(outcomes(numbered, numbers, BESIDE)) as runs:
        for outcome in runs:
            found[outcome.seed] = outcome
            while first in found:
                yield found.pop(first)
                first += 1


def show_all(names: Sequence[str]) -> int:
    """Run the script or test of the named bugs, or of all; return 1 if one finds nothing.

    With the bug, its script has to violate the bug's invariant, and without the bug nothing. With the bug, its test has
    to fail. Raises click.UsageError for a bug that has neither.
    """
    chosen = {name: each for name, each in _chosen(names).items() if each.has_test or _script(name).exists()}
    if missing := [name for name in names if name not in chosen]:
        raise click.UsageError(f"no script shows {missing[0]}; {SCRIPTS.relative_to(ROOT)} has them")
    bad = {each.name: "its test passes" for each in chosen.values() if each.has_test and not _fails(each)}
    bad |= _not_shown_by_script([each for each in chosen.values() if not each.has_test])
    for name, printed in bad.items():
        click.echo(f"{name}: {printed}")
    click.echo(f"{len(chosen) - len(bad)} of {len(chosen)} planted bugs are found by their script or test.")
    return int(bool(bad))


def _not_shown_by_script(bugs: Sequence[Mutant]) -> dict[str, str]:
    """Return the bugs, by name, that their scripts do not find, with the invariants that the scripts violate."""
    scripts = [msgspec.json.decode(_script(each.name).read_bytes(), type=Script) for each in bugs]

    def run(number: int) -> Outcome:
        if number % 2:
            plant(bugs[number // 2].name)
        return run_script(scripts[number // 2])

    found = list(_in_order(run, range(2 * len(scripts))))
    return {
        each.name: "; ".join(map(str, without.violations or with_it.violations)) or "nothing is violated"
        for each, without, with_it in zip(bugs, found[::2], found[1::2], strict=True)
        if without.violations or each.found_by not in _violated(with_it)
    }


def _script(name: str) -> Path:
    return SCRIPTS / f"{name}.json"


def _fails(mutant: Mutant) -> bool:
    """Return whether the test that finds a bug fails with it and passes without it."""
    return _exit_code_of_test(mutant, []) == 0 and _exit_code_of_test(mutant, [mutant.name]) == 1


def _exit_code_of_test(mutant: Mutant, planted: Sequence[str]) -> int:
    program = (
        "import sys, pytest; from tests.simulation.mutants import plant; "
        "at = sys.argv.index('--'); plant(*sys.argv[1:at]); sys.exit(pytest.main(sys.argv[at + 1 :]))"
    )
    # pytest warns of modules that planting has imported earlier, and would exit with an error instead of running the
    # test
    options = ["-q", "-x", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    words = [sys.executable, "-c", program, *planted, "--", *options, mutant.found_by]
    return subprocess.run(words, cwd=ROOT, capture_output=True).returncode


def table(hunts: Sequence[Hunt], seconds: float) -> str:
    """Return the hunts as a Markdown table, with a line on all of them."""
    known = mutants()
    lines = ["| mutant | what it would do | found after | by |", "|---|---|---:|---|"]
    for one in hunts:
        mutant = known[one.name]
        by = f"`{one.invariant}`" if mutant.has_test else one.invariant or "–"
        where = f"`{one.name}` ({mutant.module.removeprefix('vcd.')})"
        lines.append(f"| {where} | {mutant.does} | {_place(one)} | {by} |")
    found = sum(one.seed is not None for one in hunts)
    return "\n".join([*lines, "", f"{found} of {len(hunts)} planted bugs are found, in {seconds / 60:.0f} minutes."])


def _place(found: Hunt) -> str:
    if not found.tried:
        found_by = "its test" if mutants()[found.name].has_test else "its script"
        return "no seed" if found.seed is None else found_by
    if found.seed is None:
        return f"not in {found.tried:,}"
    return f"{found.tried:,} seed{'s' if found.tried > 1 else ''}"

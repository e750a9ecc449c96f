"""In how many seeds each planted bug is found: runs the seeds with them, in programs of their own, until one tells.

Some that are not found yet are planted at once. Where a seed then violates what it does not violate without them,
halves of them are, and so on, until it is known which of them does so by itself. One that another one hides in a seed
is found in a later one: in no fewer seeds than it needs.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from tests.simulation.machine import IN_MEMORY
from tests.simulation.mutants import ROOT, SCRIPTS, mutants

BESIDE = 2
"""Seeds that run beside each other."""
_BLOCK = 50
"""Seeds that one program runs: what they leave behind cannot fill the machine."""
_TOGETHER = 16
"""So many are planted at once, at most: of more, so many hide one another that to tell them apart takes longer."""
_PATIENCE = 120.0
"""Seconds after which a seed that does not end is taken for one that never would."""
_NEVER_ENDS = "comes to an end"


class Hunt(msgspec.Struct, frozen=True):
    """What came of the search for a mutant: the seed that found it, None where none of the ``tried`` did, and the first
    invariant that it violates."""

    name: str
    tried: int
    seed: int | None = None
    invariant: str = ""


class State(msgspec.Struct):
    """How far a hunt got. Of the block of seeds that begins with ``first``, ``seed`` is the next to be tried, with
    those of ``left`` planted together; after them those of ``aside``, from the first on; those of ``through`` have been
    tried in all of the block. ``seconds`` is how long it took."""

    left: list[str]
    aside: list[str] = []
    through: list[str] = []
    first: int = 0
    seed: int = 0
    hunts: list[Hunt] = []
    seconds: float = 0.0


class _Culprits(NamedTuple):
    """Which of some mutants violate an invariant in a seed, each by itself, and which; and those that do so with others
    alone."""

    alone: list[tuple[str, str]]
    with_others: list[str]


def hunt_all(names: Sequence[str], seeds: int, kept: Path | None = None) -> int:
    """Hunt the mutants of some names, or all, and print the table; 1 where one was not found. ``seeds`` is how many are
    tried for each at most; a hunt goes on where ``kept``, of the same code, says that it was. Raises click.UsageError
    for a name that is none."""
    known = mutants()
    if strange := [name for name in names if name not in known]:
        raise click.UsageError(f"no mutant is called {strange[0]}; tests/simulation/mutants has them")
    chosen = [name for name in known if not names or name in names]
    state = State(chosen)
    if kept is not None and kept.exists():
        state = msgspec.json.decode(kept.read_bytes(), type=State)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that its files go, as after Ctrl-C
    hunting = _Hunting(state, seeds, kept)
    while state.left:
        hunting.on()
    of = {hunt.name: hunt for hunt in state.hunts}
    hunts = [of[name] for name in chosen if name in of]
    click.echo(table(hunts, state.seconds))
    return int(any(hunt.seed is None for hunt in hunts))


class _Hunting:
    """A hunt that goes on by ``state``, which is kept."""

    def __init__(self, state: State, seeds: int, kept: Path | None) -> None:
        self._state = state
        self._seeds = seeds
        self._kept = kept
        self._sound: dict[int, frozenset[str]] = {}
        self._began = time.monotonic()
        self._running = threading.Semaphore(BESIDE)

    def on(self) -> None:
        """Run some seeds, until one violates something or a block of them is through."""
        state = self._state
        state.left, apart = _compatible(state.left)
        state.aside += apart
        block = range(state.seed, min(state.first + _BLOCK, self._seeds))
        with contextlib.closing(_outcomes(block, state.left, BESIDE)) as outcomes:
            violated = next((seed for seed, broken in outcomes if self._new(seed, broken)), None)
        if violated is not None:
            state.seed = violated
            self._note(violated, self._culprits(violated, state.left))
        if violated is None or not state.left:
            self._go_on(block.stop)
        click.echo(f"seed {state.seed}: {len(state.left + state.aside + state.through)} are not found yet", err=True)
        self._keep()

    def _go_on(self, stop: int) -> None:
        """Those that are planted now are through with a block that ends there: try others in it, or all in the next."""
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
        aside = culprits.with_others or ([] if found else state.left[:1])  # what shows in a group shows again
        state.aside += aside
        state.left = [name for name in state.left if name not in found and name not in aside]

    def _culprits(self, seed: int, names: Sequence[str]) -> _Culprits:
        """Those of some mutants that violate something in a seed."""
        with self._running:
            broken = [new for _, each in _outcomes(range(seed, seed + 1), names, 1) for new in self._new(seed, each)]
        if not broken:
            return _Culprits([], [])
        if len(names) == 1:
            return _Culprits([(names[0], broken[0])], [])
        middle = len(names) // 2
        with ThreadPoolExecutor(2) as pool:
            one, other = pool.map(lambda some: self._culprits(seed, some), (names[:middle], names[middle:]))
        found = _Culprits([*one.alone, *other.alone], [*one.with_others, *other.with_others])
        return found if found.alone or found.with_others else _Culprits([], list(names[:middle]))

    def _new(self, seed: int, violated: Sequence[str]) -> list[str]:
        """What the code without a bug does not violate in a seed."""
        if violated and seed not in self._sound:
            ((_, without),) = _outcomes(range(seed, seed + 1), (), 1)
            self._sound[seed] = frozenset(without)
        return [invariant for invariant in violated if invariant not in self._sound[seed]]

    def _keep(self) -> None:
        now = time.monotonic()
        self._state.seconds += now - self._began
        self._began = now
        if self._kept is not None:
            self._kept.with_suffix(".new").write_bytes(msgspec.json.encode(self._state))
            self._kept.with_suffix(".new").replace(self._kept)


def _compatible(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Those that can be in one program, up to a number of them, and the others."""
    known, texts, together = mutants(), dict[str, str](), list[str]()
    for name in names:
        if len(together) == _TOGETHER:
            break
        with contextlib.suppress(ValueError, SyntaxError):
            known[name].plant_in(texts)
            together.append(name)
    return together, [name for name in names if name not in together]


def show_all(names: Sequence[str]) -> int:
    """Run the scripts of some mutants, or of all that have one, with the bug and without it, and tell of those that do
    not violate what is expected of the bug, or violate something without it; 1 where there was one. Raises
    click.UsageError for a name that has none."""
    scripts = {file.stem: file for file in sorted(SCRIPTS.glob("*.json"))}
    if strange := [name for name in names if name not in scripts]:
        raise click.UsageError(f"no script shows {strange[0]}; {SCRIPTS.relative_to(ROOT)} has them")
    chosen = [name for name in scripts if not names or name in names]
    with ThreadPoolExecutor(BESIDE) as pool:
        found = list(pool.map(lambda name: (_ran(scripts[name], name), _ran(scripts[name])), chosen))
    known, bad = mutants(), dict[str, str]()
    for name, (with_it, without) in zip(chosen, found, strict=True):
        if without.returncode or not shows(with_it, known[name].fires):
            bad[name] = (without if without.returncode else with_it).stdout.strip()
    for name, printed in bad.items():
        click.echo(f"{name}: {printed}")
    click.echo(f"{len(chosen) - len(bad)} of {len(chosen)} scripts show the bug that they were written for.")
    return int(bool(bad))


def shows(done: subprocess.CompletedProcess[str], invariant: str) -> bool:
    """Whether a run that is done has violated an invariant, and says so."""
    return done.returncode == 1 and any(line.startswith(f"{invariant} at ") for line in done.stdout.splitlines())


def _ran(script: Path, *names: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(**_program("run", str(script), names), capture_output=True, text=True)


def _program(command: str, given: str, names: Sequence[str], *options: str, **environ: str) -> dict[str, Any]:
    """A command of the simulation as subprocess takes it, with planted bugs."""
    bugs = [word for name in names for word in ("--mutant", name)]
    words = [sys.executable, "-m", "tests.simulation", command, given, *bugs, *options]
    return {"args": words, "cwd": ROOT, "env": {**os.environ, "PYTHONHASHSEED": "0", **environ}}


def table(hunts: Sequence[Hunt], seconds: float) -> str:
    """The hunts as a table of Markdown, with a line on all of them."""
    known = mutants()
    lines = ["| mutant | what it would do | found after | by the invariant |", "|---|---|---:|---|"]
    for one in hunts:
        mutant = known[one.name]
        where = f"`{one.name}` ({mutant.module.removeprefix('vcd.')})"
        lines.append(f"| {where} | {mutant.does} | {_place(one)} | {one.invariant or '–'} |")
    found = sum(one.seed is not None for one in hunts)
    return "\n".join([*lines, "", f"{found} of {len(hunts)} planted bugs are found, in {seconds / 60:.0f} minutes."])


def _place(found: Hunt) -> str:
    if found.seed is None:
        return f"not in {found.tried:,}"
    return f"{found.tried:,} seed{'s' if found.tried > 1 else ''}"


def _outcomes(seeds: range, names: Sequence[str], workers: int) -> Iterator[tuple[int, list[str]]]:
    """Each seed with the invariants that it violates where some mutants are planted, run by a program of its own."""
    block = f"{seeds.start}:{seeds.stop}"
    with tempfile.TemporaryDirectory(dir=IN_MEMORY, ignore_cleanup_errors=True) as files:  # also of seeds that we end
        asked = _program("outcomes", block, names, "--workers", str(workers), TMPDIR=files)
        with subprocess.Popen(**asked, stdout=subprocess.PIPE, text=True, start_new_session=True) as program:
            yield from _told(program, seeds)


def _told(program: subprocess.Popen[str], seeds: range) -> Iterator[tuple[int, list[str]]]:
    """What a program tells of seeds; it ends with the last that is asked for."""
    try:
        for seed in seeds:
            line = _line_of(program)
            if line is None:
                yield seed, [_NEVER_ENDS]
                return
            outcome = json.loads(line)
            assert outcome["seed"] == seed
            yield seed, outcome["violated"]
    finally:
        _end(program)


def _end(program: subprocess.Popen[str]) -> None:
    """End a program, and the processes that it began."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)


def _line_of(program: subprocess.Popen[str]) -> str | None:
    """The next line that a program prints; None where it took too long, and was ended. Raises ChildProcessError."""
    assert program.stdout is not None
    late = threading.Event()

    def end() -> None:
        late.set()
        _end(program)

    timer = threading.Timer(_PATIENCE, end)
    timer.start()
    try:
        line = program.stdout.readline()
    finally:
        timer.cancel()
    if not line and not late.is_set():
        raise ChildProcessError(f"{' '.join(program.args)} ended early, with {program.wait()}")  # type: ignore[arg-type]
    return line or None

"""In how many seeds each planted bug is found: runs the seeds with it, in programs of their own, until one tells."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tests.simulation.mutants import ROOT, SCRIPTS, Mutant, mutants

BESIDE = 2
"""Mutants that are hunted at once."""
_BLOCK = 100
"""Seeds that one program runs: what they leave behind cannot fill the machine."""
_PATIENCE = 300.0
"""Seconds after which a seed that does not end is taken for one that never would."""
_NEVER_ENDS = "comes to an end"


@dataclass(frozen=True)
class Hunt:
    """What came of the search for a mutant: the seed that found it, None where none of the ``tried`` did, the first
    invariant that it violates, and how many real seconds that took."""

    name: str
    mutant: Mutant
    tried: int
    seconds: float
    seed: int | None = None
    invariant: str = ""


class _Sound:
    """What the code without a bug violates: that says nothing of a mutant."""

    def __init__(self) -> None:
        self._known: dict[int, frozenset[str]] = {}
        self._asking = threading.Lock()

    def __call__(self, seed: int) -> frozenset[str]:
        with self._asking:
            if seed not in self._known:
                ((_, violated),) = _outcomes(range(seed, seed + 1), None)
                self._known[seed] = frozenset(violated)
            return self._known[seed]


def hunt_all(names: Sequence[str], seeds: int) -> int:
    """Hunt the mutants of some names, or all, and print the table; 1 where one was not found. ``seeds`` is how many are
    tried for each at most. Raises click.UsageError for a name that is none."""
    known, sound = mutants(), _Sound()
    if strange := [name for name in names if name not in known]:
        raise click.UsageError(f"no mutant is called {strange[0]}; tests/simulation/mutants has them")
    chosen = {name: mutant for name, mutant in known.items() if not names or name in names}

    def told(named: tuple[str, Mutant]) -> Hunt:
        found = _hunted(*named, seeds, sound)
        click.echo(f"{found.name}: {_place(found)}{found.invariant and ', '}{found.invariant}", err=True)
        return found

    with ThreadPoolExecutor(BESIDE) as pool:
        hunts = list(pool.map(told, chosen.items()))
    click.echo(table(hunts))
    return int(any(found.seed is None for found in hunts))


def show_all(names: Sequence[str]) -> int:
    """Run the scripts of some mutants, or of all that have one, with the bug and without it, and tell of those that do
    not show it; 1 where there was one. Raises click.UsageError for a name that has none."""
    scripts = {file.stem: file for file in sorted(SCRIPTS.glob("*.json"))}
    if strange := [name for name in names if name not in scripts]:
        raise click.UsageError(f"no script shows {strange[0]}; {SCRIPTS.relative_to(ROOT)} has them")
    chosen = [name for name in scripts if not names or name in names]
    with ThreadPoolExecutor(BESIDE) as pool:
        codes = list(pool.map(lambda name: (_ran(scripts[name], name), _ran(scripts[name], None)), chosen))
    bad = {name: found for name, found in zip(chosen, codes, strict=True) if found != (1, 0)}
    for name, (planted, sound) in bad.items():
        click.echo(f"{name}: " + ("the code without it violates something, too" if sound else f"ends with {planted}"))
    click.echo(f"{len(chosen) - len(bad)} of {len(chosen)} scripts show the bug that they were written for.")
    return int(bool(bad))


def _ran(script: Path, name: str | None) -> int:
    return subprocess.run(**_program("run", str(script), name), stdout=subprocess.DEVNULL).returncode


def _program(command: str, given: str, name: str | None) -> dict[str, Any]:
    """A command of the simulation as subprocess takes it, with a planted bug if one is named."""
    planted = [] if name is None else ["--mutant", name]
    words = [sys.executable, "-m", "tests.simulation", command, given, *planted]
    return {"args": words, "cwd": ROOT, "env": {**os.environ, "PYTHONHASHSEED": "0"}}


def table(hunts: Sequence[Hunt]) -> str:
    """The hunts as a table of Markdown, with a line on all of them."""
    lines = ["| mutant | what it would do | found after | by the invariant | seconds |", "|---|---|---:|---|---:|"]
    for one in hunts:
        where = f"`{one.name}` ({one.mutant.module.removeprefix('vcd.')})"
        lines.append(f"| {where} | {one.mutant.does} | {_place(one)} | {one.invariant or '–'} | {one.seconds:.0f} |")
    found = sum(one.seed is not None for one in hunts)
    return "\n".join([*lines, "", f"{found} of {len(hunts)} planted bugs are found."])


def _place(found: Hunt) -> str:
    if found.seed is None:
        return f"not in {found.tried:,}"
    return f"{found.tried:,} seed{'s' if found.tried > 1 else ''}"


def _hunted(name: str, mutant: Mutant, seeds: int, sound: _Sound) -> Hunt:
    began = time.monotonic()
    for first in range(0, seeds, _BLOCK):
        with contextlib.closing(_outcomes(range(first, min(first + _BLOCK, seeds)), name)) as outcomes:
            for seed, violated in outcomes:
                new = [invariant for invariant in violated if invariant not in sound(seed)] if violated else []
                if new:
                    return Hunt(name, mutant, seed + 1, time.monotonic() - began, seed, new[0])
    return Hunt(name, mutant, seeds, time.monotonic() - began)


def _outcomes(seeds: range, name: str | None) -> Iterator[tuple[int, list[str]]]:
    """Each seed with the invariants that it violates, run by a program of its own, which ends with the iterator."""
    asked = _program("outcomes", f"{seeds.start}:{seeds.stop}", name)
    with subprocess.Popen(**asked, stdout=subprocess.PIPE, text=True, start_new_session=True) as program:
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

"""In how many seeds each planted bug is found: runs the seeds with it, in programs of their own, until one tells."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from tests.simulation.mutants import ROOT, SCRIPTS, mutants

_T = TypeVar("_T")

BESIDE = 2
"""Mutants that are hunted at once."""
_BLOCK = 100
"""Seeds that one program runs: what they leave behind cannot fill the machine."""
_PATIENCE = 300.0
"""Seconds after which a seed that does not end is taken for one that never would."""
_NEVER_ENDS = "comes to an end"


class Hunt(msgspec.Struct, frozen=True):
    """What came of the search for a mutant: the seed that found it, None where none of the ``tried`` did, the first
    invariant that it violates, in how many seeds of these its code was come to, and how many real seconds that took."""

    name: str
    tried: int
    reached: int
    seconds: float
    seed: int | None = None
    invariant: str = ""


class Told(msgspec.Struct, frozen=True):
    """What a program tells of a seed that it ran."""

    seed: int
    violated: list[str] = []
    reached: list[str] = []


class _Kept:
    """What was found by an earlier hunt in the same code, and what is found, in a folder; or, without one, nowhere."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def read(self, type_: type[_T]) -> list[_T]:
        """All of a type."""
        file = self._file(type_)
        if file is None or not file.exists():
            return []
        return [msgspec.json.decode(line, type=type_) for line in file.read_bytes().splitlines()]

    def add(self, one: msgspec.Struct) -> None:
        """Keep one more."""
        if (file := self._file(type(one))) is not None:
            with file.open("ab") as lines:
                lines.write(msgspec.json.encode(one) + b"\n")

    def _file(self, type_: type) -> Path | None:
        return None if self._folder is None else self._folder / f"{type_.__name__.lower()}.jsonl"


class _Sound:
    """What seeds do without a bug. One that violates something by itself says nothing of a mutant, nor does one that
    never comes to its code."""

    def __init__(self, seeds: int, kept: _Kept) -> None:
        self._seeds = seeds
        self._kept = kept
        self._known = {each.seed: each for each in kept.read(Told)}
        self._asking = threading.Lock()

    def block(self, first: int) -> list[Told]:
        """Some seeds, from the first of a block on."""
        seeds = range(first, min(first + _BLOCK, self._seeds))
        with self._asking:
            missing = [seed for seed in seeds if seed not in self._known]
            for told in _outcomes(missing, "--reached", "--workers", str(BESIDE)) if missing else ():
                self._known[told.seed] = told
                self._kept.add(told)
            return [self._known[seed] for seed in seeds]


def hunt_all(names: Sequence[str], seeds: int, folder: Path | None = None) -> int:
    """Hunt the mutants of some names, or all, and print the table; 1 where one was not found. ``seeds`` is how many are
    tried for each at most; what ``folder`` has, from a hunt in the same code, is not hunted again. Raises
    click.UsageError for a name that is none."""
    known, kept = mutants(), _Kept(folder)
    if strange := [name for name in names if name not in known]:
        raise click.UsageError(f"no mutant is called {strange[0]}; tests/simulation/mutants has them")
    chosen = [name for name in known if not names or name in names]
    sound, before = _Sound(seeds, kept), {one.name: one for one in kept.read(Hunt)}

    def told(name: str) -> Hunt:
        hunt = before.get(name) or _hunted(name, seeds, sound)
        click.echo(f"{name}: {_place(hunt)}{hunt.invariant and ', '}{hunt.invariant}", err=True)
        if name not in before:
            kept.add(hunt)
        return hunt

    with ThreadPoolExecutor(BESIDE) as pool:
        hunts = list(pool.map(told, chosen))
    click.echo(table(hunts))
    return int(any(hunt.seed is None for hunt in hunts))


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


def _program(command: str, given: str, name: str | None, *options: str) -> dict[str, Any]:
    """A command of the simulation as subprocess takes it, with a planted bug if one is named."""
    planted = [] if name is None else ["--mutant", name]
    words = [sys.executable, "-m", "tests.simulation", command, given, *planted, *options]
    return {"args": words, "cwd": ROOT, "env": {**os.environ, "PYTHONHASHSEED": "0"}}


def table(hunts: Sequence[Hunt]) -> str:
    """The hunts as a table of Markdown, with a line on all of them."""
    known = mutants()
    lines = [
        "| mutant | what it would do | found after | of these came to its code | by the invariant |",
        "|---|---|---:|---:|---|",
    ]
    for one in hunts:
        mutant = known[one.name]
        where = f"`{one.name}` ({mutant.module.removeprefix('vcd.')})"
        lines.append(f"| {where} | {mutant.does} | {_place(one)} | {one.reached:,} | {one.invariant or '–'} |")
    found = sum(one.seed is not None for one in hunts)
    minutes = sum(one.seconds for one in hunts) / 60
    return "\n".join([*lines, "", f"{found} of {len(hunts)} planted bugs are found, in {minutes:.0f} minutes."])


def _place(found: Hunt) -> str:
    if found.seed is None:
        return f"not in {found.tried:,}"
    return f"{found.tried:,} seed{'s' if found.tried > 1 else ''}"


def _hunted(name: str, seeds: int, sound: _Sound) -> Hunt:
    seconds, reached = 0.0, 0
    for first in range(0, seeds, _BLOCK):
        known = {each.seed: each.violated for each in sound.block(first) if name in each.reached}
        if not known:
            continue
        began = time.monotonic()
        with contextlib.closing(_outcomes(list(known), "--mutant", name)) as outcomes:
            for told in outcomes:
                reached += 1
                if new := [invariant for invariant in told.violated if invariant not in known[told.seed]]:
                    return Hunt(name, told.seed + 1, reached, seconds + time.monotonic() - began, told.seed, new[0])
        seconds += time.monotonic() - began
    return Hunt(name, seeds, reached, seconds)


def _outcomes(seeds: Sequence[int], *options: str) -> Iterator[Told]:
    """What each seed comes to, run by a program of its own, which ends with the iterator."""
    asked = _program("outcomes", ",".join(map(str, [*seeds, ""])), None, *options)
    with subprocess.Popen(**asked, stdout=subprocess.PIPE, text=True, start_new_session=True) as program:
        try:
            for seed in seeds:
                line = _line_of(program)
                if line is None:
                    yield Told(seed, [_NEVER_ENDS])
                    return
                told = msgspec.json.decode(line, type=Told)
                assert told.seed == seed
                yield told
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

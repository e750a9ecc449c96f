"""``python -m tests.simulation [SEEDS]``: run seeds, and print violated invariants. SEEDS is N (the first N) or A:B.

``python -m tests.simulation --help`` lists further commands.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tests.simulation import machine
from tests.simulation.mutants import mutants, plant
from tests.simulation.script import Script
from tests.simulation.shrinking import Shrinker

if TYPE_CHECKING:
    from tests.simulation.simulation import Outcome


class _Seeds(click.ParamType[range]):
    """``N``: the first N; ``A:B``: from one to before another."""

    name = "seeds"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> range:
        if isinstance(value, range):
            return value
        first, _, last = value.rpartition(":")
        if not (last.isdigit() and (not first or first.isdigit())):
            self.fail(f"{value} is neither N nor A:B", param, ctx)
        return range(int(first or 0), int(last))


_mutant = click.option("--mutant", help="Run with this planted bug.")


def _simulated(planted: str | None = None) -> None:
    """Make this a process in which simulations run, with a planted bug. Raises click.UsageError for an unknown one."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        arguments = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        sys.stdout.flush()
        os.execve(sys.executable, arguments, {**os.environ, "PYTHONHASHSEED": "0"})
    machine.install()  # before vcd is imported
    if planted is not None:
        if planted not in mutants():
            raise click.UsageError(f"no planted bug is called {planted}; tests/simulation/mutants has them")
        plant(planted)
    from tests.simulation.night import silence

    silence()


def _runner(keep: Path | None = None) -> Callable[[Script], Outcome]:
    """What runs a script; ``keep`` is where its logs are left."""
    from tests.simulation.night import outcomes, run_script

    def run(script: Script) -> Outcome:
        return next(outcomes(lambda _: run_script(script, keep), [script.seed]))

    return run


@click.group()
def main() -> None:
    """The simulation of the whole system. Without a command: the seeds that are named, the first 100 by default."""


@main.result_callback()
def _end(code: int) -> None:
    sys.exit(code)


@main.command("seeds")
@click.argument("seeds", type=_Seeds(), default="100")
@click.option(
    "--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes that run seeds in parallel."
)
@click.option("--digests", type=click.Path(path_type=Path), help="A file to write the seeds' digests to.")
@click.option(
    "--against", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A file of digests to compare with."
)
@_mutant
def seeds_(seeds: range, workers: int, digests: Path | None, against: Path | None, mutant: str | None) -> int:
    """Run seeds, and print violated invariants."""
    _simulated(mutant)
    from tests.simulation.night import run_seeds

    return run_seeds(seeds, workers, digests, against)


@main.command("mutants")
@click.argument("names", nargs=-1)
@click.option(
    "--seeds",
    type=click.IntRange(1),
    default=2000,
    show_default=True,
    help="Maximum number of seeds to try for each bug.",
)
@click.option(
    "--kept",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file to store results in, and to continue from.",
)
def mutants_(names: tuple[str, ...], seeds: int, kept: Path | None) -> int:
    """Search for planted bugs, all or the named ones, and print the number of seeds that find each."""
    _simulated()
    from tests.simulation.hunting import hunt_all

    return hunt_all(names, seeds, kept)


@main.command("shown")
@click.argument("names", nargs=-1)
def shown(names: tuple[str, ...]) -> int:
    """Run the scripts and tests that find planted bugs. Without its bug, a script violates nothing."""
    _simulated()
    from tests.simulation.hunting import show_all

    return show_all(names)


@main.command("shrink")
@click.argument("seed", type=int)
@_mutant
@click.option("--out", type=click.Path(path_type=Path), help="The folder for script.json and the replicas' logs.")
@click.option(
    "--most", type=click.IntRange(1), default=1000, show_default=True, help="Maximum number of scripts to run."
)
def shrink(seed: int, mutant: str | None, out: Path | None, most: int) -> int:
    """Reduce the script of a seed that violates an invariant, and write it with its logs."""
    _simulated(mutant)
    from tests.simulation.swarm import drawn

    script, run = drawn(seed), _runner()
    if not (violations := run(script).violations):
        raise click.UsageError(f"seed {seed} violates nothing")
    click.echo(f"{len(script.acts)} acts: {violations[0]}")
    shrinker = Shrinker(
        lambda one: [violation.invariant for violation in run(one).violations],
        violations[0].invariant,
        most,
        lambda found: click.echo(f"{len(found.acts)} acts, {shrinker.left} runs left", err=True),
    )
    script = shrinker.shrunk(script)
    out = out or Path(f"seed-{seed}")
    out.mkdir(parents=True, exist_ok=True)
    (out / "script.json").write_bytes(msgspec.json.format(msgspec.json.encode(script)) + b"\n")
    for violation in _runner(out)(script).violations:
        click.echo(f"{len(script.acts)} acts: {violation}")
    for log in sorted(out.glob("*/events.sqlite")):
        click.echo(f"vcd explain --event-log {log}    vcd view --event-log {log}")
    return 0


@main.command("run")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_mutant
@click.option("--keep", type=click.Path(path_type=Path), help="The folder for the replicas' logs.")
def run(file: Path, mutant: str | None, keep: Path | None) -> int:
    """Run a stored script, and print violated invariants."""
    _simulated(mutant)
    try:
        script = msgspec.json.decode(file.read_bytes(), type=Script)
    except msgspec.MsgspecError as error:
        raise click.UsageError(f"{file}: not a script of the simulation: {error}") from error
    outcome = _runner(keep)(script)
    for violation in outcome.violations:
        click.echo(str(violation))
    click.echo(f"digest {outcome.digest}, {outcome.steps:,} steps")
    return int(bool(outcome.violations))


def _with_command(arguments: list[str]) -> list[str]:
    """Arguments, with the command that is meant where there is none."""
    named = bool(arguments) and (arguments[0] in main.commands or arguments[0] == "--help")
    return arguments if named else ["seeds", *arguments]


if __name__ == "__main__":
    main.main(_with_command(sys.argv[1:]), prog_name="python -m tests.simulation")

"""Runs many seeds in parallel processes, prints their violations, and records their digests."""

from __future__ import annotations

import faulthandler
import logging
import multiprocessing
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import NamedTuple

import click
import structlog

from tests.simulation import record
from tests.simulation.acts import ACTS
from tests.simulation.invariants import Invariants
from tests.simulation.machine import REAL_SECONDS
from tests.simulation.script import Script
from tests.simulation.simulation import Outcome, Violation, simulate
from tests.simulation.swarm import drawn
from vcd.embedded import schema
from vcd.embedded.resource_types import BUILT_IN
from vcd.embedded.store import Store
from vcd.scheduling.configuration import read_policy

DEADLINE = 600.0
"""Real seconds after which a seed that does not end is taken for one that never would."""
_KEPT_EACH = 100
"""Seeds after which digests are kept: a night that is cut short has those of its first hours."""


class _Child(NamedTuple):
    """A process that runs one script."""

    process: BaseProcess
    seed: int


def outcomes(
    run: Callable[[int], Outcome], seeds: Iterable[int], workers: int = 1, deadline: float = DEADLINE
) -> Iterator[Outcome]:
    """What comes of each seed, as soon as it is known: each is run by a process of its own, which then ends. What it
    leaves behind goes with it, and nobody collects it. One that is killed, or does not end within ``deadline`` real
    seconds, has violated something.

    They are forked, so that they have the clocks and the seed of hashes of this process, and what it has imported.
    Their temporary files end with this function, also those of children that are killed.
    """
    _warm_up()
    left, running = iter(seeds), dict[Connection, _Child]()
    files = tempfile.TemporaryDirectory(prefix="vcd-simulations-", ignore_cleanup_errors=True)
    try:
        while True:
            for seed in islice(left, workers - len(running)):
                connection, child = _begun(run, seed, deadline, files.name)
                running[connection] = child
            if not running:
                return
            for connection in wait(list(running)):
                assert isinstance(connection, Connection)
                yield _outcome_of(connection, running.pop(connection))
    finally:
        for child in running.values():
            child.process.kill()
            child.process.join()
        files.cleanup()


def _warm_up() -> None:
    """Do once what each child would do again: import plugins, try out the default configuration, read schemas."""
    read_policy(None)
    Store(lambda: 0.0, Random(0))
    for each in BUILT_IN:
        schema.built_in(each.group, each.version, each.kind)


def _begun(run: Callable[[int], Outcome], seed: int, deadline: float, files: str) -> tuple[Connection, _Child]:
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    def work() -> None:
        faulthandler.dump_traceback_later(deadline, exit=True)
        tempfile.tempdir = files
        there.send(run(seed))

    process = context.Process(target=work, daemon=True)
    process.start()
    there.close()
    return here, _Child(process, seed)


def _outcome_of(connection: Connection, child: _Child) -> Outcome:
    try:
        found = connection.recv()
        assert isinstance(found, Outcome)
    except EOFError:
        child.process.join()
        what = f"its process ended with {child.process.exitcode}, and said nothing"
        found = Outcome(child.seed, [Violation("comes to an end", 0.0, what)])
    child.process.join()
    connection.close()
    return found


class Effects:
    """Counts, for each act, the seeds that drew it and the seeds in which it had an effect."""

    def __init__(self) -> None:
        self._drawn: Counter[str] = Counter()
        self._had: Counter[str] = Counter()

    def add(self, outcome: Outcome) -> None:
        """Count those of a run."""
        self._drawn.update(list(outcome.effects))
        self._had.update(name for name, count in outcome.effects.items() if count)

    def missed(self) -> Iterator[str]:
        """Yield a line for each act without effect, the most frequently drawn acts first."""
        for name, count in self._drawn.most_common():
            if not self._had[name]:
                yield f"act without effect in any of {count} seeds: {name}"


def silence() -> None:
    """Suppress the log lines of simulated programs."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def run_seed(seed: int) -> Outcome:
    """Run what a seed draws."""
    return run_script(drawn(seed))


def run_script(script: Script, keep: Path | None = None) -> Outcome:
    """Run a script; ``keep`` is the folder for its logs. An exception of the simulation itself becomes a violation with
    its traceback."""
    try:
        return simulate(script, Invariants, ACTS, keep)
    except Exception:  # noqa: BLE001 - one seed must not end a night
        last = traceback.format_exc().strip()
        return Outcome(script.seed, [Violation("the simulation works", 0.0, last)])


def run_seeds(seeds: range, workers: int = 1, digests: Path | None = None, against: Path | None = None) -> int:
    """Run seeds; print each violation and each digest that differs from ``against``; return 1 if there is any.

    Digests are written to ``digests`` during the run, too.
    """
    began, failed, found, effects = REAL_SECONDS(), 0, dict[int, str](), Effects()

    def told() -> str:
        seconds = (REAL_SECONDS() - began) / max(len(found), 1)
        so_far = "" if len(found) == len(seeds) else " so far"
        return (
            f"{len(found):,} seeds{so_far}, {failed} with violations, {seconds:.2f} s per seed with {workers} processes"
        )

    for outcome in outcomes(run_seed, seeds, workers):
        for violation in outcome.violations:
            click.echo(f"seed {outcome.seed}: {violation}")
        failed += bool(outcome.violations)
        found[outcome.seed] = outcome.digest
        effects.add(outcome)
        if digests is not None and len(found) % _KEPT_EACH == 0:
            record.write(digests, seeds, told(), found)
    click.echo(told())
    for line in effects.missed():
        click.echo(line)
    if digests is not None:
        record.write(digests, seeds, told(), found)
    others = [] if against is None else record.differing(record.read(against), found)
    if others:
        click.echo(f"{len(others)} seeds differ from {against}, the first is {others[0]}")
    return int(failed > 0 or bool(others))

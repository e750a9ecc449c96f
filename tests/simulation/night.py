"""Many seeds: run beside each other, told of, and their digests kept."""

from __future__ import annotations

import logging
import multiprocessing
import traceback
from multiprocessing.pool import Pool
from pathlib import Path

import click
import structlog

from tests.simulation import record
from tests.simulation.acts import ACTS
from tests.simulation.invariants import Invariants
from tests.simulation.machine import REAL_SECONDS
from tests.simulation.script import Script
from tests.simulation.simulation import Outcome, Violation, simulate
from tests.simulation.swarm import drawn
from vcd.scheduling.framework.registry import kinds

_KEPT_EACH = 100
"""Seeds after which digests are kept: a night that is cut short has those of its first hours."""


def children(workers: int = 1) -> Pool:
    """Processes that run one seed or script each and end: what it leaves behind goes with it, and nobody collects it.

    They are forked, so that they have the clocks and the seed of hashes of this process, and what it has imported.
    """
    kinds()  # imports each plugin and action, which each child would do anew
    return multiprocessing.get_context("fork").Pool(workers, maxtasksperchild=1)


def silence() -> None:
    """Let programs that are simulated say nothing."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def run_seed(seed: int) -> Outcome:
    """Run what a seed draws."""
    return run_script(drawn(seed))


def run_script(script: Script, keep: Path | None = None) -> Outcome:
    """Run a script; ``keep`` is where its logs are left. What the simulation itself raises is told as a violation, with
    where it came from."""
    try:
        return simulate(script, Invariants, ACTS, keep)
    except Exception:  # noqa: BLE001 - one seed must not end a night
        last = traceback.format_exc().strip()
        return Outcome(script.seed, [Violation("the simulation works", 0.0, last)])


def run_seeds(seeds: range, workers: int = 1, digests: Path | None = None, against: Path | None = None) -> int:
    """Run seeds and tell of each that violates an invariant, or goes another way than ``against`` has it; 1 where there
    was one. ``digests`` is where their digests are kept, those that are through while others run."""
    began, failed, found = REAL_SECONDS(), 0, dict[int, str]()

    def told() -> str:
        seconds = (REAL_SECONDS() - began) / max(len(found), 1)
        so_far = "" if len(found) == len(seeds) else " so far"
        return (
            f"{len(found):,} seeds{so_far}, {failed} with violations, "
            f"{seconds:.2f} s a seed with {workers} beside each other"
        )

    with children(workers) as pool:
        for outcome in pool.imap_unordered(run_seed, seeds):
            for violation in outcome.violations:
                click.echo(f"seed {outcome.seed}: {violation}")
            failed += bool(outcome.violations)
            found[outcome.seed] = outcome.digest
            if digests is not None and len(found) % _KEPT_EACH == 0:
                record.write(digests, seeds, told(), found)
    click.echo(told())
    if digests is not None:
        record.write(digests, seeds, told(), found)
    others = [] if against is None else record.differing(record.read(against), found)
    if others:
        click.echo(f"{len(others)} went another way than {against} has it, the first of them {others[0]}")
    return int(failed > 0 or bool(others))

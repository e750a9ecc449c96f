"""Many seeds, one after the other."""

from __future__ import annotations

from collections.abc import Iterable

import click
import structlog

from tests.simulation.acts import ACTS
from tests.simulation.invariants import Invariants
from tests.simulation.machine import REAL_SECONDS
from tests.simulation.simulation import Outcome, simulate
from tests.simulation.swarm import drawn


def silence() -> None:
    """Let programs that are simulated say nothing."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(50), logger_factory=structlog.ReturnLoggerFactory()
    )


def run_seed(seed: int) -> Outcome:
    """Run what a seed draws."""
    return simulate(drawn(seed), Invariants, ACTS)


def run_seeds(seeds: Iterable[int]) -> int:
    """Run seeds and tell of each; 1 where an invariant did not hold."""
    silence()
    failed, began, count = 0, REAL_SECONDS(), 0
    for seed in seeds:
        outcome = run_seed(seed)
        count += 1
        for violation in outcome.violations:
            click.echo(f"seed {seed}: {violation}")
        failed += bool(outcome.violations)
    click.echo(f"{count} seeds, {failed} with violations, {(REAL_SECONDS() - began) / max(count, 1):.2f} s a seed")
    return int(failed > 0)

"""The cost of tracing a session: pairs of sessions with and without a trace on the same clusters.

``python -m bench.asked [--pairs N]`` prints the table; each value is the median of the pairs' ratios.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable

import click

from bench.clusters import pending_gangs
from bench.contention import CONFS, half_deserved
from bench.session import DEFAULT, different_pods
from bench.table import Row, row, show
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import decide
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.framework.trace import Trace
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.planning import state_of

MOST = 1.05
"""The largest accepted ratio of a session with a trace to one without."""


def _seconds(state: ClusterState, policy: Policy, trace: Trace | None) -> float:
    maker = SnapshotMaker(state)
    gc.collect()
    gc.freeze()
    began = time.perf_counter()
    decide(maker.snapshot(), policy, 0, 0, trace=trace)
    return time.perf_counter() - began


def compared(what: str, make: Callable[[], ClusterState], conf: str, pairs: int) -> Row:
    """Measure how many times as long a session with a trace takes."""
    policy, state = read_policy(conf), make()
    _seconds(state, policy, None)
    ratios = []
    for number in range(pairs):
        first = _seconds(state, policy, Trace() if number % 2 else None)
        second = _seconds(state, policy, None if number % 2 else Trace())
        ratios.append(first / second if number % 2 else second / first)
    return row(f"with a trace: {what}", statistics.median(ratios), "times", None, MOST)


def run(pairs: int = 15) -> list[Row]:
    """Measure all rows."""
    return [
        compared("5,000 nodes, 10,000 pods in gangs", lambda: pending_gangs(5000, 10_000, 4), DEFAULT, pairs),
        compared("5,000 nodes, 10,000 pods, all different", lambda: state_of(different_pods()), DEFAULT, pairs),
        compared("reclaim on 1,000 nodes", lambda: state_of(half_deserved(1000)), CONFS["reclaim"], pairs),
    ]


@click.command()
@click.option("--pairs", default=15, show_default=True, help="How many pairs of sessions.")
def main(pairs: int) -> None:
    """Print the table."""
    show(run(pairs))


if __name__ == "__main__":
    main()

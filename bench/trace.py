"""The published GPU cluster trace, simulated: cluster, API server (HTTP) and daemon in one process.

``python -m bench.trace [--compress N]... [--limit N] [--no-replay]`` prints the cost of a run, and whether its log
replays identically. Without --compress, there are two runs: as recorded, and with arrivals compressed by a factor of
300.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import numpy as np

from bench import gputrace
from bench.table import Row, row, show
from vcd.cli import simview
from vcd.cli.simulation import Scenario, Simulation
from vcd.daemon import structured_logging
from vcd.eventlog import LogReader
from vcd.model.events import SessionDecided, decode_plan
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import Snapshot, SnapshotMaker

TRACE = Path(__file__).resolve().parents[2] / "shared" / "traces" / "openb"
"""Directory of the trace, next to the project; it is not part of the project."""

COMPRESSIONS = (1.0, 300.0)
NOWHERE = ["default/openb-pod-1639"]
"""The single task of the trace that fits on no node."""


def run(compressions: Iterable[float] = COMPRESSIONS, limit: int | None = None, replayed: bool = True) -> list[Row]:
    """Return the rows for each compression of the arrivals, or one row if the trace is missing."""
    if not (TRACE / "pods.csv").is_file():
        return [row("trace: skipped, there is no shared/traces/openb beside the project", None, "")]
    rows: list[Row] = []
    for compression in compressions:
        with tempfile.TemporaryDirectory() as folder:
            rows.extend(_run(Path(folder), compression, limit, replayed))
    return rows


def _run(folder: Path, compression: float, limit: int | None, replayed: bool) -> list[Row]:
    log, tasks = folder / "events.sqlite", limited(TRACE / "pods.csv", folder, limit)
    found = simulate(scenario(log, tasks, compression))
    with tasks.open(encoding="utf-8") as lines:
        count = sum(1 for _ in lines) - 1
    unplaced = [pod.name for pod in found.never_bound]
    if found.refused or not set(unplaced) <= set(NOWHERE) or found.binds + len(unplaced) != count:
        raise RuntimeError(f"{found.binds} binds of {count} tasks, never bound {unplaced}, {found.refused}")
    name = f"trace, {found.nodes:,} nodes, {count:,} tasks" + (f", {compression:g}-fold" if compression != 1 else "")
    rows = [
        row(f"{name}: wall time", found.wall_seconds, "s"),
        row("  CPU: cluster, API server and daemon", found.cpu_seconds, "s"),
        row("  CPU for a task", 1000 * found.cpu_seconds / count, "ms"),
        row("  binds", found.binds, ""),
        row("  sessions", found.sessions, ""),
        row("  log", found.log_bytes / 2**20, "MiB"),
    ]
    check_laws(log)
    if replayed:
        began = time.perf_counter()
        replay = vcd("replay", "--event-log", log, "-o", "json")
        rows.append(row("  sessions that replay identically", replay["identical"], "", goal=replay["sessions"]))
        rows.append(row("  replaying them", time.perf_counter() - began, "s"))
    return rows


def scenario(log: Path, tasks: Path, compression: float, conf: Path | None = None) -> Scenario:
    """Return the simulation of a file of tasks on the trace's nodes, with the configuration in a file."""
    rows = gputrace.read_tasks(tasks)
    return Scenario(
        event_log=log,
        nodes=gputrace.read_nodes(TRACE / "nodes.csv"),
        queues=gputrace.queues_of(rows),
        arrivals=gputrace.arrivals(rows, compression=compression),
        conf=conf,
        remove_after=gputrace.KEPT_SECONDS,
    )


def simulate(plan: Scenario) -> simview.SimulationSummary:
    """Run a simulation until no event is due, and return its outcome; progress goes to standard error."""
    structured_logging.configure(verbosity=-1)
    return asyncio.run(_simulate(plan))


async def _simulate(plan: Scenario) -> simview.SimulationSummary:
    timing = simview.Timing()
    async with Simulation(plan) as simulation:
        progress = asyncio.create_task(_print_progress(simulation))
        try:
            await simulation.wait(idle=True)
        finally:
            progress.cancel()
        ended = simview.summary(simulation, timing)
    return ended.closed(timing)


async def _print_progress(simulation: Simulation) -> None:
    while True:
        await asyncio.sleep(10)
        click.echo(simview.progress(simulation), err=True)


def check_laws(log: Path) -> None:
    """Raise RuntimeError if a pod was bound twice, or a node was above its allocatable after a session."""
    state, bound = ClusterState(), dict[str, str]()
    maker = SnapshotMaker(state)
    with LogReader(log) as reader:
        for logged in reader.read():
            state.apply(logged.sequence, logged.event)
            if not isinstance(logged.event, SessionDecided):
                continue
            binds = [
                operation
                for statement in decode_plan(logged.event.plan).statements
                for operation in statement.operations
                if operation.verb == "bind"
            ]
            for operation in binds:
                if bound.setdefault(operation.uid, operation.node) != operation.node:
                    raise RuntimeError(f"{operation.key} was bound to {bound[operation.uid]} and {operation.node}")
            if binds:
                check_capacity(maker.snapshot())


def check_capacity(snapshot: Snapshot) -> None:
    """Raise RuntimeError if a node is above its allocatable."""
    room = snapshot.usage[: len(snapshot.resources)].T
    if (room < 0).any():
        row, column = np.argwhere(room < 0)[0]
        raise RuntimeError(f"node {snapshot.facts.names[row]} is over its {snapshot.resources[column]}")


def limited(tasks: Path, folder: Path, limit: int | None) -> Path:
    """Return a file with the first ``limit`` tasks of a file; the file itself if ``limit`` is None."""
    if limit is None:
        return tasks
    short = folder / "pods.csv"
    with tasks.open(encoding="utf-8") as lines:
        short.write_text("".join(itertools.islice(lines, limit + 1)), encoding="utf-8")
    return short


def vcd(*arguments: object) -> Any:
    """Run a command of vcd and return its JSON output; progress goes to standard error."""
    command = [sys.executable, "-m", "vcd", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}")
    return json.loads(done.stdout)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compress", type=float, action="append", help="divides the times of arrival; may be repeated")
    parser.add_argument("--limit", type=int, help="only so many tasks, the first of the file")
    parser.add_argument("--no-replay", action="store_true", help="do not decide the sessions again")
    given = parser.parse_args()
    show(run(given.compress or COMPRESSIONS, given.limit, not given.no_replay))


if __name__ == "__main__":
    main()

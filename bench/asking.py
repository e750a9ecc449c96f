"""The cost of queries to a long log: ``python -m bench.asking [--keep FILE]``.

The log has 1,500 nodes with 20,000 pods at any time, and 6,500 sessions, as ``bench.replay`` writes them. The queried
job waits from the first minute to the end; the queried pod was placed in the middle. Each query is a command of its
own, so the start of Python counts. Goals are for wall time, which depends on other load of the machine. CPU is the time
of all processes of the command.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.replay import CPU, LARGE, timed, write
from bench.table import Row, row, show
from vcd.embedded.workload_generator import gang, pod, pod_spec
from vcd.eventlog import LogReader

NODES, SESSIONS, REPLAYED = 1500, 6500, 5600
BUSY_NODES, RUNNING, BUSY_SESSIONS = 75, 1600, 600
"""A cluster that is nearly full, so that a submitted job has to wait."""


def run(keep: Path | None = None) -> list[Row]:
    """Return two rows per query: its wall time and goal, and its CPU time, all in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "history.sqlite" if keep is None else keep
        if not log.exists():
            asyncio.run(write(log, SESSIONS, NODES))
        found = [row(f"questions to a log of {SESSIONS:,} sessions, {NODES:,} nodes", None, ""), *_rows(log)]
        return [*found, *_submission(Path(folder))]


def _rows(log: Path) -> Iterator[Row]:
    job, pod = _asked(log)
    timed("explain", "order", "--event-log", str(log), "-o", "json")  # compiles modules that have no bytecode yet
    for name, goal, *arguments in (
        ("explain job", 0.5, "explain", "job", job),
        ("explain job --change", 3.0, "explain", "job", job, "--change"),
        ("explain pod", 0.5, "explain", "pod", pod),
        ("explain order", 0.5, "explain", "order"),
        ("explain queue", 1.0, "explain", "queue", "q0"),
        ("jobs", 1.0, "jobs"),
        ("top", 1.0, "top"),
        ("log verify", 5.0, "log", "verify", str(log)),
        (f"replay of {REPLAYED:,} sessions", 20.0, "replay", "--to", str(REPLAYED)),
    ):
        named = () if name == "log verify" else ("--event-log", str(log))
        _, wall, cpu = timed(*arguments, *named, "-o", "json")
        yield row(f"  {name}", wall, "s", goal=goal)
        yield row("    CPU", cpu, "s")


def _submission(folder: Path) -> Iterator[Row]:
    """Forecast the start of a job that requests half of each of a tenth of the nodes."""
    log, job = folder / "busy.sqlite", folder / "job.json"
    asyncio.run(write(log, BUSY_SESSIONS, BUSY_NODES, RUNNING))
    large = pod_spec({"cpu": str(CPU // 2)})
    pods = [pod(f"large-{number}", large, {}) for number in range(BUSY_NODES // 10)]
    group, *members = [one for _, one in gang("large", "q0", pods)]
    items = [{"kind": "PodGroup", **group}, *({"kind": "Pod", **member} for member in members)]
    job.write_bytes(msgspec.json.encode({"kind": "List", "items": items}))
    asked = ("whatif", "--event-log", log, "--submit", job, "--samples", 20, "-o", "json")
    found, wall, cpu = timed(*asked)
    started = found["jobs"][0]["starts"]
    if found["samples"] != 20 or started is None:
        raise RuntimeError(f"it was to wait and to start: {found}")
    yield row(f"  whatif --submit, 20 samples, {RUNNING:,} running pods", wall, "s", goal=20.0)
    yield row("    CPU", cpu, "s")


def _asked(log: Path) -> tuple[str, str]:
    """Return the first job that waits until the end, and a pod that was placed in the middle."""
    with LogReader(log) as reader:
        groups = {key for (key,) in reader.rows("served", first=1, last=SESSIONS)}
        middle = sorted(key for (key,) in reader.rows("served", first=SESSIONS // 2, last=SESSIONS // 2))
    numbers = sorted(int(key.split("-")[1]) for key in groups)
    return f"bench/gang-{-(-numbers[0] // LARGE) * LARGE:05}", middle[0]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="write the history here, or take the one that is there")
    show(run(parser.parse_args().keep))


if __name__ == "__main__":
    main()

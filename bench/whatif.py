"""What-ifs on the published GPU cluster trace: binpack, spreading and resource-strategy-fit on one history.

``python -m bench.whatif [--compress N] [--limit N] [--keep FOLDER]`` writes the trace's history with
compressed arrivals, runs ``vcd sweep`` with the configurations in examples/whatif, and prints waits, whole free GPUs,
and the share of allocated GPUs over time, until the last job started.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from bench.table import Row, row, show
from bench.trace import TRACE, limited, scenario, simulate, vcd

COMPRESSION = 300.0
EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "whatif"
CONFS = ("binpack", "spread", "fit")
PARTS = 4
"""Number of equal parts of the time, for the allocation over time."""


def run(compression: float = COMPRESSION, limit: int | None = None, keep: Path | None = None) -> list[Row]:
    """Measure and return the rows, or one row if the trace is missing."""
    if not (TRACE / "pods.csv").is_file():
        return [row("whatif: skipped, there is no shared/traces/openb beside the project", None, "")]
    with nullcontext(keep) if keep is not None else tempfile.TemporaryDirectory() as folder:
        log, tasks = Path(folder) / "openb.sqlite", limited(TRACE / "pods.csv", Path(folder), limit)
        if not log.exists():
            simulate(scenario(log, tasks, compression, EXAMPLES / "binpack.conf"))
        began = time.perf_counter()
        confs = [text for name in CONFS for text in ("--scheduler-conf", EXAMPLES / f"{name}.conf")]
        found = vcd("sweep", "--event-log", log, *confs, "-o", "json")
        took = time.perf_counter() - began
    rows = [
        row(f"whatif: {len(CONFS)} runs of {len(found['runs'][0]['jobs']):,} jobs, {compression:g}-fold", took, "s")
    ]
    for one in found["runs"]:
        rows += _rows(one)
    return rows


def _rows(one: dict[str, Any]) -> list[Row]:
    waits = one["waits"]
    rows = [
        row(one["name"].removesuffix(".conf"), None, ""),
        row("  jobs that waited at all", sum(bool(wait) for _, wait in one["jobs"].values()), ""),
        row("  wait, mean", waits["mean"], "s"),
        row("  wait, 95 in 100 under", waits["p95"], "s"),
        row("  wait, longest", max(wait or 0 for _, wait in one["jobs"].values()), "s"),
        row("  whole GPUs free, mean", one["free_gpus"], ""),
        row("  of them on nodes that are free of GPU pods", one["free_gpus_on_empty_nodes"], ""),
        row("  GPUs allocated, mean", 100 * one["utilisation"]["nvidia.com/gpu"], "%"),
    ]
    course = [value for _, value in one["courses"]["nvidia.com/gpu used"]]
    size = -(-len(course) // PARTS)
    for part in range(PARTS):
        values = course[part * size : (part + 1) * size]
        if values:
            rows.append(row(f"    in quarter {part + 1} of the time", 100 * sum(values) / len(values), "%"))
    return rows


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compress", type=float, default=COMPRESSION, help="divides the times of arrival")
    parser.add_argument("--limit", type=int, help="only so many tasks, the first of the file")
    parser.add_argument("--keep", type=Path, help="a folder for the history, which is kept and used again")
    given = parser.parse_args()
    show(run(given.compress, given.limit, given.keep))


if __name__ == "__main__":
    main()

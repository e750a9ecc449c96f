"""Runs benchmarks and prints one table: ``python -m bench [--write] [NAME ...]``."""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor

import click

from bench.page import write_table
from bench.table import Row, show

BENCHES = (
    "session",
    "asked",
    "steady",
    "contention",
    "topology",
    "hostile",
    "waiting",
    "endtoend",
    "replicas",
    "restart",
    "eventlog",
    "trace",
    "cardtrace",
    "replay",
    "explain",
    "asking",
    "why",
    "whatif",
    "forecast",
)
"""Modules of this package with a ``run()`` that returns rows."""

NAMED_ONLY = ("real", "hostile_real", "soak")
"""Benchmarks that need more than Python (``make real-tools``) or an hour. They run only if they are named."""


def known() -> list[str]:
    """Return the names of all benchmarks whose module exists."""
    return [name for name in (*BENCHES, *NAMED_ONLY) if importlib.util.find_spec(f"bench.{name}") is not None]


@click.command()
@click.argument("names", metavar="[NAME ...]", nargs=-1, type=click.Choice(known()))
@click.option("--write", is_flag=True, help="Write the figures into docs/performance.md, where they have a table.")
def main(names: tuple[str, ...], write: bool) -> None:
    """Run the named benchmarks (default: all that need only Python); print the results, Volcano's results and goals."""
    rows: list[Row] = []
    for name in names or [each for each in known() if each not in NAMED_ONLY]:
        began = time.monotonic()
        click.echo(f"{name} ...", err=True)
        # Linux counts a parent's peak memory as its child's, so each benchmark runs in a new process
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            found = process.submit(importlib.import_module(f"bench.{name}").run).result()
        click.echo(f"{name}: {time.monotonic() - began:.0f} s", err=True)
        if write:
            write_table(name, found)
        rows += found
    show(rows)


if __name__ == "__main__":
    main()

"""All benchmarks in one table: ``python -m bench [--write] [NAME ...]``, each NAME one of those below."""

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
"""Modules of this package with a ``run()`` that gives rows."""

NAMED_ONLY = ("real", "soak")
"""Those that need more than Python (``make real-tools``) or an hour, and are run only when they are named."""


def known() -> list[str]:
    """Those of them that there are."""
    return [name for name in (*BENCHES, *NAMED_ONLY) if importlib.util.find_spec(f"bench.{name}") is not None]


@click.command()
@click.argument("names", metavar="[NAME ...]", nargs=-1, type=click.Choice(known()))
@click.option("--write", is_flag=True, help="Write the figures into docs/performance.md, where they have a table.")
def main(names: tuple[str, ...], write: bool) -> None:
    """Run benchmarks, all that need Python alone unless some are named; print their figures, Volcano's, the goals."""
    rows: list[Row] = []
    for name in names or [each for each in known() if each not in NAMED_ONLY]:
        began = time.monotonic()
        click.echo(f"{name} ...", err=True)
        # Linux counts a parent's peak memory as its child's, so each begins in a fresh process
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            found = process.submit(importlib.import_module(f"bench.{name}").run).result()
        click.echo(f"{name}: {time.monotonic() - began:.0f} s", err=True)
        if write:
            write_table(name, found)
        rows += found
    show(rows)


if __name__ == "__main__":
    main()

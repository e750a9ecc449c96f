"""Writes the results into ``docs/performance.md``: one table per benchmark, by ``python -m bench --write``.

A table is between ``<!-- begin: NAME -->`` and ``<!-- end: NAME -->``, where NAME is the benchmark. A line above the
table names the measured commit. The text around the tables is written by hand.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from bench.table import Row, number

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "performance.md"
_PART = re.compile(r"(<!-- begin: ([a-z]+) -->\n).*?(<!-- end: \2 -->)", re.DOTALL)
_COLUMNS = ("what", "vcd", "unit", "Volcano", "goal")


def tables_of(text: str) -> list[str]:
    """Return the benchmarks that have a table on a page, in its order."""
    return [match[2] for match in _PART.finditer(text)]


def with_table(text: str, name: str, rows: Iterable[Row], measured: str) -> str:
    """Return a page with the table of one benchmark replaced; unchanged if the page has no such table."""
    part = f"\n{measured}\n\n{_table(rows)}\n"
    return _PART.sub(lambda match: match[1] + part + match[3] if match[2] == name else match[0], text)


def write_table(name: str, rows: Iterable[Row]) -> None:
    """Write the results of a benchmark into the page."""
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), name, rows, measured_now()), encoding="utf-8")


def measured_now() -> str:
    """Return the commit with its date, the Python version and the processors."""
    commit = _git("log", "-1", "--format=%h of %cs")
    changed = " with local changes" if _git("status", "--porcelain", "--", "vcd", "bench") else ""
    return (
        f"Commit {commit}{changed}, Python {platform.python_version()}, "
        f"{os.cpu_count()} processors ({platform.machine()})."
    )


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def _table(rows: Iterable[Row]) -> str:
    lines = [_COLUMNS, ("---", "---:", "---", "---:", "---:"), *map(_cells, rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cells(line: Row) -> tuple[str, ...]:
    what = line["what"].replace("|", "\\|")
    indented = what.lstrip()
    what = "&emsp;" * ((len(what) - len(indented)) // 2) + indented
    ours, peer, goal = (number(line.get(name)) for name in ("value", "peer", "goal"))
    return what, ours, line["unit"], peer, goal

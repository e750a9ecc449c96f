"""The table that benchmarks print: the measured values, Volcano's values and the goals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

Row = dict[str, Any]


def row(what: str, value: Any, unit: str, peer: float | None = None, goal: float | None = None) -> Row:
    """Return a row of the table: a measured value, Volcano's value (``peer``) and the goal for vcd."""
    return {"what": what, "value": value, "unit": unit, "peer": peer, "goal": goal}


def show(rows: Iterable[Row]) -> None:
    """Print rows as a table."""
    table = Table(box=None)
    table.add_column("what")
    table.add_column("ours", justify="right")
    table.add_column("unit")
    table.add_column("Volcano", justify="right")
    table.add_column("goal", justify="right")
    for line in rows:
        ours, peer, goal = (number(line.get(name)) for name in ("value", "peer", "goal"))
        table.add_row(line["what"], ours, line["unit"], peer, goal)
    Console(width=140).print(table)


def number(value: Any) -> str:
    """Format a number with three digits; an empty text for None."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"

"""The table that benchmarks print: what was measured, beside the peer's figure and the goal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

Row = dict[str, Any]


def row(what: str, value: Any, unit: str, peer: float | None = None, goal: float | None = None) -> Row:
    """One line of the table: what was measured, Volcano's figure and ours to reach."""
    return {"what": what, "value": value, "unit": unit, "peer": peer, "goal": goal}


def show(rows: Iterable[Row]) -> None:
    """Print rows of what, value, unit, peer, goal."""
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
    """Format a figure to three digits; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"

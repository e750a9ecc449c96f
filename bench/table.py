"""The table that benchmarks print: what was measured, beside the peer's figure and the goal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table


def show(rows: Iterable[dict[str, Any]]) -> None:
    """Print rows of what, value, unit, peer, goal."""
    table = Table(box=None)
    for name, side in (("what", "left"), ("ours", "right"), ("unit", "left"), ("Volcano", "right"), ("goal", "right")):
        table.add_column(name, justify="right" if side == "right" else "left")
    for row in rows:
        table.add_row(
            row["what"], _number(row["value"]), row["unit"], _number(row.get("peer")), _number(row.get("goal"))
        )
    Console(width=140).print(table)


def _number(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"

"""How commands print: data as JSON, tables as wide as there is room for."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
import msgspec

if TYPE_CHECKING:  # most commands draw no tables, and importing it takes longer than they do
    from rich.console import Console
    from rich.table import Table


def print_json(data: Any) -> None:
    """Structures as JSON that people can read, too."""
    click.echo(msgspec.json.format(msgspec.json.encode(data)).decode())


def print_told(found: Any, lines: Iterable[str], output: str) -> None:
    """What was found as JSON where ``output`` says so, else told in lines."""
    if output == "json":
        print_json(found)
        return
    for line in lines:
        click.echo(line)


def filled(table: Table, rows: Iterable[Sequence[Any]], limit: int, count: int) -> Table:
    """The table with the first of so many rows."""
    from rich.text import Text

    for cells in islice(rows, limit):
        table.add_row(*cells)
    if count > limit:
        table.add_row(Text(f"... and {count - limit:,} more", style="dim"))
    return table


def console(width: int = 160) -> Console:
    """Standard output; of so many columns where it is no terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else width, highlight=False)

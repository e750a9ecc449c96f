"""The option ``-o`` of all commands, and the renderer of lists."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import click

from vcd.cli.fromcluster import Decorator
from vcd.cli.printing import print_lines, print_rows

WIDTH = 100
"""Maximum number of columns of a row if the output is not a terminal."""


def output_option(*forms: str, help: str | None = None) -> Decorator:
    """Pass a command the form of its output as ``output``; the first of ``forms`` is the default."""
    choice = click.Choice(forms)
    return click.option("-o", "--output", type=choice, default=forms[0], show_default=True, help=help)


text_output = output_option("text", "json")
table_output = output_option("table", "json")
list_output = output_option(
    "table", "wide", "name", "json", help="wide: more columns, nothing cut. name: the first column alone, for scripts."
)


class Listing(NamedTuple):
    """A list as a table. The first column names a row; the last one is a sentence, which is cut if space is short.

    ``wide`` names the columns that only ``-o wide`` prints. In other forms, a row that is not printed to a terminal
    has at most ``width`` columns (None: any number).
    """

    columns: Sequence[str]
    rows: Iterable[Sequence[str]]
    wide: Collection[str] = ()
    width: int | None = None


def print_listing(listing: Listing, output: str) -> None:
    """Print a list as a table, ``wide`` or not, or as the names of its rows (``name``)."""
    if output == "name":
        print_lines(row[0] for row in listing.rows)
        return
    if output == "wide":
        print_rows(listing.columns, listing.rows)
        return
    indexes = [index for index, column in enumerate(listing.columns) if column not in listing.wide]
    rows = ([row[index] for index in indexes] for row in listing.rows)
    print_rows([listing.columns[index] for index in indexes], rows, listing.width)

"""How commands print: data as JSON; text and tables within a terminal's width, or in full width elsewhere."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TextIO

import click
import msgspec

from vcd.model.wording import cut

if TYPE_CHECKING:  # most commands print no tables, and the import takes longer than they do
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

API_VERSION = "vcd/v1"
"""The version of the documents that ``-o json`` prints: within it, fields are added, never renamed or changed."""
_UNBOUNDED = 100_000
"""Columns if the output is not a terminal: nothing is cut or wrapped."""
_TABLE = 1_000
"""The maximum number of rows of a table: all of them are in memory and are printed at once."""
_COLUMNS = 80
"""Columns of a terminal of unknown width."""
_LEAST = 20
"""Columns in which the end of a row is readable."""
_NO_LETTER = re.compile("[\ud800-\udfff]")
"""What Python has for bytes that are not text; JSON cannot represent them, so they are escaped as in sentences."""
_HEAD = re.compile(r" *(?:.{,38}\S)?  +(?=\S)| *")
"""The part of a line before its text: its indent and its first columns."""


def document(found: msgspec.Struct) -> dict[str, Any]:
    """Return a structure as it is printed, with version and kind. If it has a field ``kind`` itself, that is named
    ``of``."""
    plain: dict[str, Any] = msgspec.to_builtins(found, str_keys=True)
    of = {"of": plain.pop("kind")} if "kind" in plain else {}
    return {"apiVersion": API_VERSION, "kind": type(found).__name__, **of, **plain}


def print_json(found: msgspec.Struct, *, line: bool = False) -> None:
    """Print a document as readable JSON, or on a single ``line``."""
    plain = document(found)
    try:
        text = msgspec.json.encode(plain)
    except UnicodeEncodeError:  # by the name of a file
        text = _NO_LETTER.sub(lambda byte: f"\\\\u{ord(byte[0]):x}", json.dumps(plain, ensure_ascii=False)).encode()
    click.echo((text if line else msgspec.json.format(text)).decode())


def print_result(found: msgspec.Struct, lines: Iterable[str], output: str) -> None:
    """Print a result as JSON if ``output`` is ``json``, else as lines."""
    if output == "json":
        print_json(found)
        return
    print_lines(lines)


def print_lines(lines: Iterable[str], *, colour: str | None = None, err: bool = False) -> None:
    """Print sentences, one per line, on standard error with ``err``. A terminal's lines break between words, and
    continue below the beginning of their text."""
    width = terminal_width(sys.stderr if err else sys.stdout)
    for line in map(printable, lines):
        text = line if width is None or len(line) <= width else _wrapped_line(line, width)
        click.echo(click.style(text, fg=colour) if colour else text, err=err)


def printable(text: str) -> str:
    """Return a text with control characters escaped: anyone who may create a PodGroup could write terminal sequences
    or line breaks into it."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _wrapped_line(line: str, width: int) -> str:
    found = _HEAD.match(line)
    indent = 0 if found is None else found.end()
    below = " " * (indent if indent <= width // 2 else 0)
    return textwrap.fill(line, width, subsequent_indent=below, break_on_hyphens=False)


def terminal_width(stream: TextIO | None = None) -> int | None:
    """Return the columns of the terminal that a stream is (default: standard output), or COLUMNS; None if it is not a
    terminal, or closed."""
    stream = sys.stdout if stream is None else stream
    if stream is None or not stream.isatty():
        return None
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    return os.get_terminal_size(stream.fileno()).columns or _COLUMNS  # a terminal of unknown width reports 0


def table(*columns: str, right: bool = False) -> Table:
    """Return a table without lines; ``right``: all but its first column are numbers."""
    from rich.table import Table

    result = Table(*columns, box=None, pad_edge=False)
    for column in result.columns[1:] if right else ():
        column.justify = "right"
    return result


def add_row(table: Table, *cells: str | Text) -> None:
    """Add a row whose brackets are not markup, and whose control characters are escaped."""
    from rich.text import Text

    table.add_row(*(each if isinstance(each, Text) else Text(printable(each)) for each in cells))


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[str]], most: int | None = None) -> None:
    """Print a table in which only the last column wraps. If the terminal is too narrow, print a sentence per row
    instead, since a cut number, time or name would be wrong.

    The first rows determine the column widths; later rows follow as they arrive. If the output is not a terminal, the
    last column is cut so that rows have ``most`` columns (None: nothing is cut).
    """
    cells = ([*map(printable, row)] for row in rows)
    first, width = list(islice(cells, _TABLE)), terminal_width()
    widths = [max(map(len, column)) for column in zip(columns, *first, strict=True)]
    if width is None:
        left = None if most is None else max(most - sum(widths[:-1]) - 2 * len(widths[:-1]), _LEAST)
        print_lines(_line(_cut(row, left), widths) for row in chain([columns], first, cells))
    elif sum(widths[:-1]) + 2 * len(widths) + min(widths[-1], _LEAST) > width:
        print_lines(
            "  ".join(f"{name} {cell}" for name, cell in zip(columns, row, strict=True) if cell)
            for row in chain(first, cells)
        )
    else:
        drawn = table(*columns)
        for column in drawn.columns:
            column.no_wrap, column.overflow = column is not drawn.columns[-1], "fold"
        for row in first:
            add_row(drawn, *row)
        print_tables(drawn)
        print_lines(_line(row, widths) for row in cells)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip()


def _cut(row: Sequence[str], most: int | None) -> Sequence[str]:
    return row if most is None else [*row[:-1], cut(row[-1], most)]


def filled(table: Table, rows: Iterable[Sequence[str | Text]], limit: int, count: int) -> Table:
    """Return the table with the first ``limit`` rows, and how many more there are."""
    from rich.text import Text

    for cells in islice(rows, limit):
        add_row(table, *cells)
    if count > limit:
        table.add_row(Text(f"... and {count - limit:,} more", style="dim"))
    return table


def console() -> Console:
    """Return the terminal that standard output is."""
    from rich.console import Console

    return Console(width=terminal_width(), highlight=False)


def print_tables(*parts: RenderableType) -> None:
    """Print tables and texts within the terminal's width; if there is no terminal, plain and in full width."""
    if not parts:
        return
    if terminal_width() is not None:
        console().print(*parts, sep="\n")
        return
    from rich.console import Console

    plain = io.StringIO()
    Console(file=plain, width=_UNBOUNDED, highlight=False, color_system=None).print(*parts, sep="\n")
    for line in plain.getvalue().splitlines():
        click.echo(line.rstrip())

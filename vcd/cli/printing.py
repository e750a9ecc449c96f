"""How commands print: data as JSON, tables as wide as there is room for."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec
from rich.console import Console


def print_json(data: Any) -> None:
    """Structures as JSON that people can read, too."""
    click.echo(msgspec.json.format(msgspec.json.encode(data)).decode())


def console(width: int = 160) -> Console:
    """Standard output; of so many columns where it is no terminal."""
    return Console(width=None if sys.stdout.isatty() else width, highlight=False)

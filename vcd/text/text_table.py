"""Tables in plain text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def aligned(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table: each column as wide as its longest cell, two spaces apart. Columns without any text
    are omitted."""
    body = list(rows)
    used = [place for place in range(len(head)) if any(row[place] for row in body)]
    widths = [max(len(row[place]) for row in (head, *body)) for place in used]
    for row in (head, *body):
        yield "  ".join(row[place].ljust(width) for place, width in zip(used, widths, strict=True)).rstrip()

"""Tables as files: CSV and Parquet."""

from __future__ import annotations

import csv
import importlib
import io
from datetime import datetime
from typing import Any, get_type_hints

from vcd.timetravel.log_tables import TableRows, as_text

FORMATS = ("csv", "parquet")


class NoWriter(Exception):
    """A format that needs a package which is not installed; the message names both."""


def table_bytes(rows: TableRows, format: str) -> bytes:
    """Return a table in one of FORMATS. Raises NoWriter."""
    return _parquet(rows) if format == "parquet" else _csv(rows)


def _csv(rows: TableRows) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rows.columns)
    writer.writerows([as_text(value) for value in row.values()] for row in rows)
    return text.getvalue().encode(errors="backslashreplace")


def _parquet(rows: TableRows) -> bytes:
    try:
        arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        words = "parquet needs pyarrow: pip install pyarrow, or vcd's wheel with its extra [parquet]"
        raise NoWriter(words) from None
    hints, file = get_type_hints(rows.kind), io.BytesIO()
    fields = [arrow.field(column, _arrow_type(arrow, hints[column])) for column in rows.columns]
    parquet.write_table(arrow.Table.from_pylist(rows, schema=arrow.schema(fields)), file)
    return file.getvalue()


def _arrow_type(arrow: Any, hint: Any) -> Any:
    """Return the Arrow type of a column, which does not depend on its rows."""
    types = {
        str: arrow.string(),
        int: arrow.int64(),
        bool: arrow.bool_(),
        float: arrow.float64(),
        datetime: arrow.timestamp("us", "UTC"),
        list[str]: arrow.list_(arrow.string()),
    }
    return next(types[one] for one in types if hint in (one, one | None))

"""``vcd export``: tables as CSV and Parquet."""

from __future__ import annotations

import csv
import io
import sys
from functools import partial
from pathlib import Path

import pytest
from pyarrow import parquet

from tests.cli.results import run_vcd

run = partial(run_vcd, "export")


def test_csv_has_a_head_and_a_line_for_each_row(busy: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(run("jobs", "--event-log", busy).stdout)))
    assert [(row["name"], row["state"], row["nodes"]) for row in rows][1:3] == [
        ("large", "starting", "n2 n3 n4"),
        ("second", "running", "n0 n1"),
    ]


@pytest.mark.parametrize(("table", "rows"), [("sessions", 8), ("evictions", 0)])
def test_parquet_has_typed_columns_also_without_rows(busy: Path, table: str, rows: int) -> None:
    out = busy.parent / "out.parquet"
    assert run(table, "--event-log", busy, "--format", "parquet", "--out", out).stdout == ""
    found = parquet.read_table(out)
    types = {field.name: str(field.type) for field in found.schema}
    assert (found.num_rows, types["session"], types["time"]) == (rows, "int64", "timestamp[us, tz=UTC]")


def test_parquet_without_pyarrow_names_the_extra(busy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = run("jobs", "--event-log", busy, "--format", "parquet", "--out", busy.parent / "out")
    assert (result.exit_code, (busy.parent / "out").exists()) == (2, False)
    assert result.stderr == (
        "Error: --format parquet needs pyarrow: pip install pyarrow, or vcd's wheel with its extra [parquet]\n"
    )


def test_a_file_that_cannot_be_written_is_named(busy: Path) -> None:
    result = run("jobs", "--event-log", busy, "--out", busy.parent / "none" / "jobs.csv")
    assert (result.exit_code, result.stderr) == (2, f"Error: {busy.parent}/none/jobs.csv: No such file or directory\n")

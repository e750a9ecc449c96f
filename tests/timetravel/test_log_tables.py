"""Tables of a log: each has the rows that were worked out by hand, in flat columns of one type."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow
import pytest

import vcd
from tests.timetravel.histories import scheduler
from tests.timetravel.test_eviction_explanation import CONF as RECLAIM
from tests.timetravel.test_eviction_explanation import reclaimed
from vcd.timetravel.log_tables import TABLES, TableRows


def test_waits_are_the_jobs_that_wait(busy: Path) -> None:
    with vcd.open(busy) as log:
        (wait,) = log.waits()
        names = {row["name"]: row["state"] for row in log.jobs()}
    assert names == {"first": "completed", "large": "starting", "second": "running", "third": "waiting"}
    assert (wait["namespace"], wait["name"], wait["waited"], wait["cause"]) == (
        "default",
        "third",
        664,
        "queue-capability",
    )


def test_sessions_are_counted(busy: Path) -> None:
    with vcd.open(busy) as log:
        rows = log.sessions()
    assert [(row["session"], row["binds"], row["admitted"]) for row in rows][2:4] == [(3, 2, 1), (4, 0, 1)]
    assert rows[0]["time"] == datetime(2026, 1, 1, tzinfo=UTC)


def test_usage_of_queues_is_in_cores_and_bytes(busy: Path) -> None:
    with vcd.open(busy) as log:
        rows = log.queue_usage(2)
    (small,) = (row for row in rows if (row["session"], row["queue"], row["resource"]) == (8, "small", "cpu"))
    assert {row["session"] for row in rows} == {1, 5, 8}
    assert (small["allocated"], small["request"], small["capability"], small["guarantee"]) == (6.0, 10.0, 8.0, None)


async def test_evictions_name_who_went_for_whom(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", RECLAIM) as made:
        await made.carry_out(await reclaimed(made))
    with vcd.open(tmp_path / "log") as log:
        rows = log.evictions()
    assert [(row["session"], row["pod"], row["queue"], row["for_group"], row["for_queue"]) for row in rows] == [
        (1, "default/x-1", "a", "default/new", "b")
    ]
    assert {row["action"] for row in rows} == {"reclaim"}


@pytest.mark.parametrize("name", TABLES)
def test_rows_have_the_columns_that_the_table_declares(busy: Path, name: str) -> None:
    with vcd.open(busy) as log:
        rows = TABLES[name](log.history)
    assert {tuple(row) for row in rows} <= {rows.columns}
    assert set(pyarrow.Table.from_pylist(rows).column_names) in ({*rows.columns}, set())


async def test_a_log_without_sessions_has_tables_without_rows(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log"):
        pass
    with vcd.open(tmp_path / "log") as log:
        assert [len(TABLES[name](log.history)) for name in TABLES] == [0] * len(TABLES)


def test_a_notebook_displays_the_first_rows_and_no_markup_of_others(busy: Path) -> None:
    with vcd.open(busy) as log:
        rows = log.jobs()
        kind = rows.kind
        many = TableRows(kind, [kind(**{**rows[0], "name": "<b>"}) for _ in range(60)])
    html = many._repr_html_()
    assert (html.count("<tr>"), html.count("&lt;b&gt;"), "<b>" in html) == (51, 50, False)
    assert html.endswith("<p>10 more rows</p>")

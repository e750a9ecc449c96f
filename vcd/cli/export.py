"""``vcd export``: tables of an event log, for notebooks and spreadsheets."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from vcd.cli.command_errors import Unusable, report_errors
from vcd.cli.fromcluster import EventLog
from vcd.cli.inputs import event_log_option
from vcd.timetravel.history import opened
from vcd.timetravel.log_tables import TABLES
from vcd.timetravel.tablefiles import FORMATS, NoWriter, table_bytes


@click.command()
@click.argument("table", type=click.Choice(list(TABLES)))
@event_log_option
@click.option("--format", "format_", type=click.Choice(FORMATS), default="csv", show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="The file; standard output unless given.")
@report_errors
def export(table: str, event_log: EventLog, format_: str, out: Path | None) -> None:
    """Write TABLE of an event log as CSV or Parquet.

    \b
    jobs         all jobs after the last session: state, needs, age, why they wait
    waits        the waiting jobs among these, the longest waits first
    sessions     all sessions with the numbers of binds, evictions, admissions
    evictions    each evicted pod, with the group and queue that it was evicted for
    queue-usage  what queues used, requested and deserved in 40 sessions, which
                 are decided again

    Times are in UTC, quantities in cores, bytes and pieces. In Python the same rows are log.jobs() and so on, with log
    = vcd.open(FILE). Parquet needs pyarrow.

    Exits with 0; with 2 if the file cannot be used or pyarrow is missing.
    """
    if out is None and format_ == "parquet" and sys.stdout.isatty():
        raise click.UsageError("Parquet cannot be printed to a terminal; give --out FILE")
    with event_log.reading() as path, opened(path) as history, history.reader.pinned():
        rows = TABLES[table](history)
    try:
        data = table_bytes(rows, format_)
        if out is None:
            click.echo(data, nl=False)
        else:
            out.write_bytes(data)
    except NoWriter as error:
        raise Unusable(f"--format {error}") from None
    except OSError as error:
        if out is None:
            raise
        raise Unusable(f"{out}: {error.strerror or error}") from None

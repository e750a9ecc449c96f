"""``vcd bisect``: find the change of the configuration, a queue, a quota or a priority class that made waits worse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from vcd.cli import Group
from vcd.cli.command_errors import report_errors
from vcd.cli.completion import complete_named
from vcd.cli.fromcluster import EventLog
from vcd.cli.inputs import NUMBER, event_log_argument, event_log_option, namespace_option, period_option
from vcd.cli.output import text_output
from vcd.cli.printing import print_result
from vcd.cli.whatif import progress_bars
from vcd.timetravel.bisect import bisect_job, bisect_waits

_first = click.option("--from", "first", type=NUMBER, help="Changes from this session on.")
_last = click.option("--to", "last", type=NUMBER, help="Changes up to this session.")


def _with_range(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that all bisect commands have."""
    for option in (text_output, _last, _first):
        command = option(command)
    return command


@click.group(cls=Group)
def bisect() -> None:
    """Find the change of the configuration, a queue, a quota or a priority class that made a job, or waits, worse."""


@bisect.command("job")
@click.argument("name", shell_complete=complete_named)
@namespace_option
@event_log_option
@_with_range
@report_errors
def job(
    name: str, namespace: str | None, event_log: EventLog, first: int | None, last: int | None, output: str
) -> None:
    """Find the change without which a job would have started.

    Each change is reverted in the sessions after it in which the job waits, and these sessions are decided again. What
    other jobs did in the log stays. The output has, for each change, the session in which the job starts without it.

    Exits with 0; with 2 if the file cannot be used, the log has no such job, or the job never waits.
    """
    with event_log.reading() as log:
        found = bisect_job(log, name, namespace or event_log.namespace, first, last)
    print_result(found, found.lines(), output)


@bisect.command("waits")
@click.option(
    "--queue", default="", help="Waits of this queue's jobs; of all jobs unless given.", shell_complete=complete_named
)
@period_option
@event_log_argument
@_with_range
@report_errors
def waits(queue: str, period: int, event_log: EventLog, first: int | None, last: int | None, output: str) -> None:
    """Find the change without which jobs would have waited least.

    The logged workload runs again in simulated time, once with all changes and once without each. With more than eight
    changes, halves are tried first, as long as that helps. Runs are compared by the 95th percentile of waits, then by
    the mean.

    Exits with 0; with 2 if the file cannot be used or no job was in the queue.
    """
    with event_log.reading() as log, progress_bars() as progress:
        found = bisect_waits(log, queue, first, last, period=period, progress=progress)
    print_result(found, found.lines(), output)

"""``vcd jobs``: all jobs of an event log, each with its state and why it waits."""

from __future__ import annotations

import click

from vcd.cli.command_errors import report_errors
from vcd.cli.completion import complete_causes, complete_named
from vcd.cli.fromcluster import EventLog, implied
from vcd.cli.inputs import event_log_argument
from vcd.cli.output import WIDTH, Listing, list_output, print_listing
from vcd.cli.printing import print_json, print_lines
from vcd.model.wording import some, span_in_words
from vcd.timetravel.history import opened
from vcd.timetravel.joblines import STATES
from vcd.timetravel.joblist import JobFilter, JobRow, Jobs
from vcd.timetravel.joblist import jobs as list_jobs

_COLUMNS = ("JOB", "STATE", "QUEUE", "OWNER", "PRIORITY", "MIN", "PODS", "NEEDS", "AGE", "GROUP", "NODES", "WHY")
_WIDE = ("OWNER", "PRIORITY", "MIN", "PODS", "GROUP", "NODES")


@click.command()
@event_log_argument
@click.option("-n", "--namespace", default="", help="Only jobs of this namespace.", shell_complete=complete_named)
@click.option("--queue", default="", help="Only jobs of this queue.", shell_complete=complete_named)
@click.option("--state", type=click.Choice(STATES), help="Only jobs in this state.")
@click.option("--cause", default="", help="Only jobs that wait for this cause.", shell_complete=complete_causes)
@list_output
@report_errors
def jobs(event_log: EventLog, output: str, namespace: str, queue: str, state: str | None, cause: str) -> None:
    """List the jobs of an event log at its last session: state, queue, what they need, age, why they wait.

    \b
    waiting      fewer pods than the minimum have nodes, or no pods exist
    partial      the minimum of pods has nodes, and other pods wait
    starting     all pods have nodes, and some do not run yet
    running      all pods run
    terminating  all pods are being deleted
    completed    all pods ended
    failed       all pods ended, some failed, and fewer than the minimum succeeded

    A job has the name of its Volcano Job, else of its PodGroup. NEEDS is what its pods without a node request; for a
    job that does not wait, what all its pods request. AGE is counted up to now while the log is being written, else up
    to its last event.

    Exits with 0, also if no job is found; with 2 if the file cannot be used.
    """
    wanted = JobFilter(namespace or implied().namespace, queue, state or "", cause)
    with event_log.reading() as path, opened(path) as history, history.reader.pinned():
        all_jobs = list_jobs(history)
    found = wanted.chosen(all_jobs)
    if output == "json":
        print_json(found)
    elif found.jobs:
        print_listing(Listing(_COLUMNS, map(_cells, found.jobs), _WIDE, WIDTH), output)
    if not found.jobs:
        print_lines([_nothing(event_log.name, wanted, all_jobs)], err=True)


def _cells(row: JobRow) -> list[str]:
    age = "" if row.age is None else span_in_words(row.age)
    counts = f"{row.priority:,}", f"{row.minimum:,}", f"{row.running:,} of {row.pods:,}"
    about = row.needs, age, row.group, some(row.nodes)
    return [row.job, row.state, row.queue, row.owner_kind, *counts, *about, row.why]


def _nothing(name: str, wanted: JobFilter, found: Jobs) -> str:
    if not found.session:
        return f"{name}: no session yet"
    return f"{name}: {wanted.missing(found) if found.jobs else 'no jobs'}"

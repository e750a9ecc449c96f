"""Print runs of a workload next to each other: as a table, as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click
from rich.markup import escape

from vcd.cli.command_errors import InvalidConf, Unusable
from vcd.cli.printing import add_row, print_json, print_lines, print_rows, print_tables, table
from vcd.model.projection_codec import BadObject
from vcd.model.wording import span_in_words
from vcd.scheduling.framework.policy import PolicyError
from vcd.text.outcomes import Screen
from vcd.text.time_formats import moment
from vcd.timetravel.whatif.cluster_edits import EditError
from vcd.timetravel.whatif.fidelity import Fidelity, unlike_in_words
from vcd.timetravel.whatif.runs import Comparison, Run
from vcd.timetravel.whatif.whatif_screens import comparison_screen

_SHIFTS = 10


@contextmanager
def refused(conf: str | None) -> Iterator[None]:
    """Report errors in the user's input as messages; ``conf`` names the configuration, None the log's."""
    try:
        yield
    except PolicyError as error:
        raise InvalidConf(conf or "the log's configuration", error) from None
    except (BadObject, EditError) as error:
        raise Unusable(str(error)) from None


def print_comparison(comparison: Comparison, output: str, *, all_of_it: bool) -> None:
    if output == "json":
        print_json(comparison)
    else:
        print_screen(comparison_screen(comparison))
        if all_of_it:
            _print_detail(comparison)


def print_screen(screen: Screen) -> None:
    """Print the outcome of a run compared with another one: the answer, the tables, and the basis."""
    print_lines(screen.answer)
    for columns, rows in screen.tables:
        click.echo()
        print_rows(columns, rows)
    click.echo()
    width = max(len(label) for label, _ in screen.basis)
    print_lines(f"{label:<{width}}  {sentence}" for label, sentence in screen.basis)


def _print_detail(comparison: Comparison) -> None:
    begin, end = moment(comparison.begin), moment(comparison.end)
    click.echo()
    print_lines([f"{comparison.file}: {comparison.pods:,} pods from {begin} to {end}"])
    print_runs(comparison.runs)
    _print_shifts(comparison)


def print_unlike(found: Fidelity) -> None:
    """Warn if the baseline does not reproduce the record."""
    if found.far:
        print_lines([unlike_in_words(found)])


def print_runs(runs: Sequence[Run]) -> None:
    """Print a column for each run."""
    runs_table = table("", *(escape(run.name) for run in runs), right=True)
    add_row(runs_table, "what is other", *(run.what for run in runs))
    for title, value in _ROWS:
        cells = [value(run) for run in runs]
        if any(cells):
            add_row(runs_table, title, *cells)
    for resource in dict.fromkeys(name for run in runs for name in run.utilisation):
        add_row(
            runs_table,
            f"{resource} used",
            *(f"{run.utilisation[resource]:.1%}" if resource in run.utilisation else "" for run in runs),
        )
    for queue in dict.fromkeys(name for run in runs for name in run.queues):
        waits = [run.queues.get(queue) for run in runs]
        counts = ("" if one is None else f"{one.jobs:,}" for one in waits)
        add_row(runs_table, f"queue {queue or '(none)'}: jobs", *counts)
        add_row(runs_table, "  wait, median", *("" if one is None else span_in_words(one.median) for one in waits))
        add_row(
            runs_table, "  wait, 95 in 100 under", *("" if one is None else span_in_words(one.p95) for one in waits)
        )
    print_tables(runs_table)


_ROWS: tuple[tuple[str, Callable[[Run], str]], ...] = (
    ("jobs that came", lambda run: f"{run.waits.jobs:,}"),
    ("  more that ran already", lambda run: f"{run.running:,}" if run.running else ""),
    ("  never started", lambda run: f"{run.waits.never:,}"),
    ("  wait, median", lambda run: span_in_words(run.waits.median)),
    ("  wait, 95 in 100 under", lambda run: span_in_words(run.waits.p95)),
    ("  wait, mean", lambda run: span_in_words(run.waits.mean)),
    ("the last started after", lambda run: span_in_words(run.busy_seconds)),
    ("all over after", lambda run: span_in_words(run.seconds)),
    ("evictions", lambda run: ", ".join(f"{count:,} {name}" for name, count in run.evictions.items()) or "0"),
    ("  pod-hours lost by them", lambda run: f"{run.lost_hours:,.1f}"),
    ("GPUs free, mean", lambda run: f"{run.free_gpus:,.1f} of {run.gpus:,.0f}" if run.gpus else ""),
    ("  of them on empty nodes", lambda run: f"{run.free_gpus_on_empty_nodes:,.1f}" if run.gpus else ""),
    ("fairness, mean", lambda run: "" if run.fairness is None else f"{run.fairness:.3f}"),
    ("sessions", lambda run: f"{run.sessions:,}" if run.sessions else ""),
)


def _print_shifts(comparison: Comparison) -> None:
    printed: dict[str, int] = {}
    for shift in comparison.shifts:
        printed[shift.run] = printed.get(shift.run, 0) + 1
        if printed[shift.run] == 1:
            print_lines([f"waits that change most under {shift.run}:"])
        if printed[shift.run] <= _SHIFTS:
            waits = f"{span_in_words(shift.baseline)} -> {span_in_words(shift.wait)}"
            print_lines([f"  {shift.job} (queue {shift.queue}): {waits}"])

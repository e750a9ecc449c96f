"""``vcd whatif``: run a log's workload again under other conditions, or forecast submitted jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from vcd.cli.command_errors import Unusable, report_errors
from vcd.cli.conffile import read_configuration
from vcd.cli.fromcluster import EventLog
from vcd.cli.inputs import (
    COUNT,
    NUMBER,
    RUN_COUNT,
    as_span,
    end_by,
    event_log_argument,
    gpu_option,
    period_option,
    print_reading,
    read_manifests,
    strict_option,
)
from vcd.cli.output import text_output
from vcd.cli.printing import print_lines, print_result
from vcd.cli.run_output import print_comparison, refused
from vcd.timetravel.process_pool import processors
from vcd.timetravel.whatif.cluster_edits import read_edits
from vcd.timetravel.whatif.forecasts import Submission
from vcd.timetravel.whatif.runs import Variant
from vcd.timetravel.whatif.runs import whatif as run_whatif
from vcd.timetravel.whatif.submission_forecast import RUNS
from vcd.timetravel.whatif.submission_forecast import submit as forecast_submission
from vcd.timetravel.whatif.submitted_groups import NO_POD, NothingSubmitted


@click.command()
@event_log_argument
@click.option("--scheduler-conf", "conf", help="Another configuration file.")
@click.option(
    "--set",
    "fields",
    multiple=True,
    metavar="KIND/NAME.FIELD=VALUE",
    help="Change a field, such as queue/a.spec.weight=4.",
)
@click.option("--without", multiple=True, metavar="KIND/NAME", help="Leave out an object, such as node/x.")
@click.option("--add", "added", multiple=True, metavar="FILE", help="Manifests of nodes, queues, ... to add.")
@click.option("--submit", multiple=True, metavar="FILE", help="Forecast what happens to these manifests, and when.")
@click.option("--session", type=NUMBER, help="With --submit: as of this session; by default the last.")
@click.option(
    "--samples", type=RUN_COUNT, help="Simulated runs of --submit; by default 20 if not all pods can be placed at once."
)
@click.option(
    "--run",
    "runs_for",
    callback=as_span,
    metavar="DURATION",
    help="With --submit: how long its pods run, such as 30m.",
)
@click.option("--seed", type=COUNT, default=0, show_default=True, help="Orders equal nodes.")
@period_option
@gpu_option
@click.option("--all", "all_of_it", is_flag=True, help="Print all statistics, also of the recorded run.")
@strict_option
@text_output
@report_errors
def whatif(
    event_log: EventLog,
    conf: str | None,
    fields: tuple[str, ...],
    without: tuple[str, ...],
    added: tuple[str, ...],
    submit: tuple[str, ...],
    session: int | None,
    samples: int | None,
    runs_for: int | None,
    seed: int,
    period: int,
    gpu: str,
    all_of_it: bool,
    strict: bool,
    output: str,
) -> None:
    """Run a log's workload again on a simulated cluster, unchanged and with a change.

    What users submitted, when, and how long it ran is taken from the log. The scheduler decides it again, under
    another configuration or on a changed cluster. BEFORE is the baseline, the workload under the log's own
    configuration; AFTER is with the change. The last lines state whether the baseline reproduces the record, and which
    run times are not in the log. --all also prints the statistics of the recorded run and of queues.

    With --submit: what would happen to manifests that are submitted at the log's end, and when. If all their pods can
    be placed at once, that is the answer. Otherwise, or with --samples or --run, it forecasts when they start and end,
    and which jobs wait longer because of them, as far as run times and future arrivals can be estimated.

    Queues, PriorityClasses, Namespaces and other objects in the submitted manifests replace the cluster's.

    Exits with 0; with 1 if something that is submitted or added was refused, or, with --strict, is not understood;
    with 2 if a file, a configuration or a change cannot be used, or no pod is submitted.
    """
    text = None if conf is None else read_configuration(conf)
    if submit and (fields or without or added):
        raise click.UsageError("--set, --without and --add compare whole histories; omit --submit")
    if not submit and session is not None:
        raise click.UsageError("--session is for --submit; a history is run again from its beginning")
    if not submit and (samples is not None or runs_for is not None):
        raise click.UsageError("--samples and --run are for --submit")
    with refused(conf), _expecting_pods(strict=strict), event_log.reading() as log:
        if submit:
            submission = _submit(log, read_manifests(submit), text, session, samples, seed, period, runs_for, output)
            print_reading(submission.refused, submission.unknown, strict=strict)
            end_by(submission.refused, submission.unknown, strict=strict)
        else:
            edits = read_edits(fields, without, read_manifests(added))
            if text is None and not edits and not seed:
                raise click.UsageError("no change: give --scheduler-conf, --set, --without, --add or --seed")
            name = Path(conf).name if conf is not None else "changed"
            variant = Variant(name, text, edits, seed)
            with progress_bars() as progress:
                comparison = run_whatif(
                    log, [variant], period=period, gpu=gpu, called=event_log.name, progress=progress
                )
            print_comparison(comparison, output, all_of_it=all_of_it)
            print_reading(edits.refused, edits.unknown, strict=strict)
            end_by(edits.refused, edits.unknown, strict=strict)


def _submit(
    log: Path,
    manifests: list[Any],
    conf: str | None,
    session: int | None,
    samples: int | None,
    seed: int,
    period: int,
    runs_for: int | None,
    output: str,
) -> Submission:
    """Print and return the forecast; as text, print first what the first session does if more runs follow."""
    runs = samples or RUNS
    with progress_bars() as progress:
        submission = forecast_submission(
            log,
            manifests,
            conf=conf,
            session=session,
            samples=samples,
            seed=seed,
            period=period,
            runs_for=runs_for,
            jobs=processors(),
            first=lambda found: None if output == "json" else print_lines(found.lines()),
            progress=lambda done: progress(f"{runs} runs", done / runs),
        )
    print_result(submission, submission.lines(), output)
    return submission


@contextmanager
def _expecting_pods(*, strict: bool) -> Iterator[None]:
    """Print why the submitted manifests contain no pod, as for manifests with pods. Raises Unusable."""
    try:
        yield
    except NothingSubmitted as error:
        print_lines((f"note: {note}" for note in error.notes), err=True)
        print_reading(error.refused, error.unknown, strict=strict)
        raise Unusable(f"{NO_POD}; give manifests of pods or of workloads") from None


@contextmanager
def progress_bars() -> Iterator[Callable[[str, float], None]]:
    """Draw a progress bar for each run on standard error if that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bars: dict[str, TaskID] = {}

        def advance(name: str, part: float) -> None:
            if name not in bars:
                bars[name] = progress.add_task(name, total=1.0)
            progress.update(bars[name], completed=part)

        yield advance

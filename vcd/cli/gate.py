"""``vcd gate``: judge a change of the configuration by the workload of a log."""

from __future__ import annotations

from pathlib import Path

import click

from vcd.cli.command_errors import InvalidConf, Unusable, report_errors
from vcd.cli.conffile import read_configuration
from vcd.cli.fromcluster import EventLog
from vcd.cli.inputs import RUN_COUNT, event_log_argument, gpu_option, period_option
from vcd.cli.output import text_output
from vcd.cli.printing import add_row, print_json, print_lines, print_tables, table
from vcd.cli.run_output import print_screen
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.framework.policy import PolicyError
from vcd.timetravel.log_times import BadTime
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.whatif.fail_conditions import ConditionError
from vcd.timetravel.whatif.gate import GateError, GateResult, change_in_words, spread_in_words, summary, told_figures
from vcd.timetravel.whatif.gate import gate as judge
from vcd.timetravel.whatif.whatif_screens import gate_screen

FAILED = 1
"""The exit code of a configuration that does not pass."""


@click.command()
@event_log_argument
@click.option("--old", metavar="FILE", help="The present configuration; by default the last one in the log.")
@click.option("--new", required=True, metavar="FILE", help="The new configuration.")
@click.option(
    "--fail-if",
    "fail_if",
    multiple=True,
    required=True,
    metavar="CONDITION",
    help="METRIC OP VALUE, such as 'wait.p95 > +10%'; several with 'and'. May be repeated: any of them fails the gate.",
)
@click.option(
    "--from", "begin", metavar="TIME", help="Run what was submitted after TIME: RFC 3339, 05:12, or 2h before the end."
)
@click.option("--to", "end", metavar="TIME", help="Run what was submitted until TIME.")
@click.option("--since", metavar="SPAN", help="Run the last SPAN of the log, or before --to, such as 7d.")
@click.option(
    "--seeds",
    type=RUN_COUNT,
    default=3,
    show_default=True,
    help="Runs of each configuration, each with another order of equally good nodes; medians are compared.",
)
@click.option("--jobs", type=RUN_COUNT, help="Processes that work at once; by default one per processor.")
@period_option
@gpu_option
@click.option("--all", "all_of_it", is_flag=True, help="Print all statistics.")
@text_output
@report_errors
def gate(
    event_log: EventLog,
    old: str | None,
    new: str,
    fail_if: tuple[str, ...],
    begin: str | None,
    end: str | None,
    since: str | None,
    seeds: int,
    jobs: int | None,
    period: int,
    gpu: str,
    all_of_it: bool,
    output: str,
) -> None:
    """Run a log's workload under two configurations, and fail if the new one does worse than allowed.

    What users submitted, when, and how long it ran is taken from the log. The scheduler decides it again, under each
    configuration and with each seed, which orders equal nodes. The medians over the seeds are compared.

    A condition is METRIC OP VALUE. METRIC is wait.p95, wait.max{queue=research}, evictions, started,
    utilisation.nvidia.com/gpu and others (an unknown metric is answered with the list of all). OP is one of > >= < <=.
    VALUE is a quantity (30m, 0.5, 12) or a change from old to new (+10%, -5%).

    BEFORE is the old configuration, AFTER the new one. The baseline is the workload under the log's own configuration.

    Exits with 0 if no condition holds, with 1 if one does, and with 2 if that cannot be judged: a file, a
    configuration or a condition cannot be used, the baseline does not reproduce the record, jobs start after the end
    of pods whose run time is assumed, or nothing starts under either configuration.
    """
    if begin is not None and since is not None:
        raise click.UsageError("--from and --since both choose the beginning; omit one")
    before, after = (None if name is None else (name, _read_valid(name)) for name in (old, new))
    assert after is not None
    try:
        with event_log.reading() as log:
            found = judge(
                log,
                (Path(after[0]).name, after[1]),
                fail_if,
                old=None if before is None else (Path(before[0]).name, before[1]),
                seeds=seeds,
                begin=begin,
                end=end,
                since=since,
                jobs=jobs,
                period=period,
                gpu=gpu,
                called=event_log.name,
                progress=lambda name: click.echo(f"{name}: done", err=True),
            )
    except PolicyError as error:
        raise InvalidConf("the log's configuration", error) from None
    except ConditionError as error:
        raise Unusable(f"--fail-if {error}") from None
    except (BadTime, GateError, NotFound) as error:
        raise Unusable(str(error)) from None
    if output == "json":
        print_json(found)
    else:
        _print(found, all_of_it=all_of_it)
    if found.unjudged:
        raise Unusable(f"this cannot be judged: {'; '.join(found.unjudged)}")
    if not found.passed:
        raise click.exceptions.Exit(FAILED)


def _read_valid(name: str) -> str:
    """Return the text of a valid configuration. Raises Unusable, InvalidConf."""
    text = read_configuration(name)
    try:
        read_policy(text)
    except PolicyError as error:
        raise InvalidConf(name, error) from None
    return text


def _print(found: GateResult, *, all_of_it: bool) -> None:
    print_screen(gate_screen(found))
    if not all_of_it:
        return
    click.echo()
    print_lines([summary(found)])
    figures = table("", "old", "new", "change", right=True)
    for figure in told_figures(found):
        spreads = [spread_in_words(one, figure.unit) for one in (figure.old, figure.new)]
        add_row(figures, figure.name, *spreads, change_in_words(figure))
    print_tables(figures)

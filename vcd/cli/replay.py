"""``vcd replay``: decide logged sessions again and compare the plans byte for byte."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vcd.cli.command_errors import report_errors
from vcd.cli.fromcluster import EventLog
from vcd.cli.inputs import NUMBER, event_log_argument
from vcd.cli.output import text_output
from vcd.cli.printing import print_json, print_lines
from vcd.text.time_formats import moment
from vcd.timetravel.process_pool import processors
from vcd.timetravel.replay import Replayed
from vcd.timetravel.replay import replay as replay_sessions

_NAMED_RUNS = 10
"""Runs of sessions that a line names."""


class Replay(msgspec.Struct):
    """How many sessions of a file were decided again, how many with the same plan, and the sessions that differ."""

    file: str
    sessions: int
    identical: int
    different: list[Replayed]


@click.command()
@event_log_argument
@click.option("--session", type=NUMBER, help="Only this session.")
@click.option("--from", "first", type=NUMBER, help="The first session; by default the oldest.")
@click.option("--to", "last", type=NUMBER, help="The last session; by default the newest.")
@click.option(
    "--memory/--no-memory",
    default=True,
    show_default=True,
    help="Reuse results of the previous session, as the daemon does; plans must not depend on this.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=processors,
    show_default="the processors there are",
    help="Processes that share the sessions; the result is the same for any number.",
)
@text_output
@report_errors
def replay(
    event_log: EventLog, session: int | None, first: int | None, last: int | None, memory: bool, jobs: int, output: str
) -> None:
    """Decide the sessions of an event log again, each from what was known when it was decided.

    A file of an older vcd is read from an upgraded copy; the file itself does not change.

    Exits with 0 if every plan is byte-identical, with 1 if one is not (the first difference is printed), with 2 if the
    file cannot be used or has no such session. A plan that earlier decision rules made may differ on purpose: these
    sessions are listed with the version of their rules, and the exit code is still 1.
    """
    if session is not None and (first is not None or last is not None):
        raise click.UsageError("--session chooses one session; leave out --from and --to")
    if session is not None:
        first = last = session
    if first is not None and last is not None and first > last:
        raise click.UsageError(f"--from {first} comes after --to {last}")
    with event_log.reading() as log:
        found = list(_with_progress(log, first, last, memory, jobs))
    different = [one for one in found if one.difference is not None]
    if output == "json":
        print_json(Replay(event_log.name, len(found), len(found) - len(different), different))
    else:
        _print(found, different)
    sys.exit(1 if different else 0)


def _with_progress(event_log: Path, first: int | None, last: int | None, memory: bool, jobs: int) -> Iterator[Replayed]:
    """Yield the replayed sessions, with a progress bar on standard error if that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("sessions", total=None)
        yield from replay_sessions(
            event_log,
            first,
            last,
            memory=memory,
            jobs=jobs,
            total=lambda count: progress.update(bar, total=count),
            advanced=lambda: progress.advance(bar),
        )


def _print(found: list[Replayed], different: list[Replayed]) -> None:
    numbers = f"{found[0].session} to {found[-1].session}" if len(found) > 1 else f"{found[0].session}"
    operations = sum(one.operations for one in found)
    click.echo(
        f"sessions {numbers}: {len(found) - len(different):,} of {len(found):,} identical ({operations:,} operations)"
    )
    if different:
        _print_difference(different[0])
        click.echo(f"different: {_numbers(one.session for one in different)}")
    for line in _by_earlier_rules(different):
        click.echo(line)
    for line in _versions(found):
        click.echo(line)


def _print_difference(one: Replayed) -> None:
    click.echo(f"session {one.session} (decided for {moment(one.now)}, event {one.sequence}) differs first:")
    assert one.difference is not None
    found = one.difference
    print_lines([f"  {found.where}", f"    recorded: {found.recorded}", f"    replayed: {found.replayed}"])
    print_lines(f"    {why}" for why in found.why)
    for name, (then, now) in one.versions.items():
        click.echo(f"  {name} was {then or 'not there'} then and is {now or 'not there'} now")
    if not one.versions:
        click.echo("  it was decided by the installed versions")


def _by_earlier_rules(different: Iterable[Replayed]) -> Iterator[str]:
    """Yield the earlier rules that decided some of the differing sessions, with these sessions."""
    by_rules: dict[tuple[str, str], list[int]] = {}
    for one in different:
        if one.other_rules is not None:
            by_rules.setdefault(one.other_rules, []).append(one.session)
    for (then, now), sessions in by_rules.items():
        yield f"{_numbers(sessions)}: decided by earlier rules ({then}, now {now}); see CHANGELOG.md"


def _versions(found: Iterable[Replayed]) -> Iterator[str]:
    """Yield which sessions were decided by other versions, and how many of them differ."""
    decided_by: dict[str, list[Replayed]] = {}
    for one in found:
        moved = one.versions.items()
        words = ", ".join(f"{name} {then or 'none'} (now {now or 'none'})" for name, (then, now) in moved)
        decided_by.setdefault(words, []).append(one)
    for words, sessions in decided_by.items():
        if words:
            count = sum(one.difference is not None for one in sessions)
            numbers = _numbers(one.session for one in sessions)
            yield f"{numbers}: decided by {words}; {count:,} of {len(sessions):,} differ"


def _numbers(numbers: Iterable[int]) -> str:
    """Return rising numbers with runs written as one: ``sessions 1 to 3, 7``; the first of many."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    words = [f"{first}" if first == last else f"{first} to {last}" for first, last in runs]
    more = f" and {len(words) - _NAMED_RUNS:,} more" if len(words) > _NAMED_RUNS else ""
    noun = "session" if words == [f"{runs[0][0]}"] else "sessions"
    return f"{noun} {', '.join(words[:_NAMED_RUNS])}{more}"

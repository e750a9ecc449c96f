"""``vcd replay``: decide logged sessions again and compare the plans byte for byte."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vcd import api
from vcd.cli.errors import says_errors


@click.command()
@click.option(
    "--event-log", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The log file to replay."
)
@click.option("--session", type=click.IntRange(min=1), help="Only this session.")
@click.option("--from", "first", type=click.IntRange(min=1), help="The first session; the oldest unless given.")
@click.option("--to", "last", type=click.IntRange(min=1), help="The last session; the newest unless given.")
@click.option(
    "--memory/--no-memory",
    default=True,
    show_default=True,
    help="Keep what a session computed for the next one, as the daemon does; no plan may depend on it.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@says_errors
def replay(
    event_log: Path, session: int | None, first: int | None, last: int | None, memory: bool, output: str
) -> None:
    """Decide the sessions of an event log again, each from what was known when it was decided.

    Exits with 0 if every plan is byte-identical, with 1 if one is not (the first difference is printed), with 2 if
    the file cannot be used or holds no such session.
    """
    if session is not None and (first is not None or last is not None):
        raise click.UsageError("--session chooses one session; leave out --from and --to")
    if session is not None:
        first = last = session
    if first is not None and last is not None and first > last:
        raise click.UsageError(f"--from {first} comes after --to {last}")
    found = list(_with_progress(event_log, first, last, memory))
    different = [one for one in found if one.difference is not None]
    if output == "json":
        result = {"file": str(event_log), "sessions": len(found), "identical": len(found) - len(different)}
        click.echo(msgspec.json.format(msgspec.json.encode({**result, "different": different})).decode())
    else:
        _print(found, different)
    sys.exit(1 if different else 0)


def _with_progress(event_log: Path, first: int | None, last: int | None, memory: bool) -> Iterator[api.Replayed]:
    """The replayed sessions, with a bar on standard error where that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("sessions", total=None)

        def total(count: int) -> None:
            progress.update(bar, total=count)

        for replayed in api.replay(event_log, first, last, memory=memory, total=total):
            progress.advance(bar)
            yield replayed


def _print(found: list[api.Replayed], different: list[api.Replayed]) -> None:
    numbers = f"{found[0].session} to {found[-1].session}" if len(found) > 1 else f"{found[0].session}"
    operations = sum(one.operations for one in found)
    click.echo(
        f"sessions {numbers}: {len(found) - len(different):,} of {len(found):,} identical ({operations:,} operations)"
    )
    if not different:
        return
    one = different[0]
    click.echo(f"session {one.session} (decided for {api.moment(one.now)}, event {one.sequence}) differs first:")
    assert one.difference is not None
    click.echo(f"  {one.difference.where}")
    click.echo(f"    recorded: {one.difference.recorded}")
    click.echo(f"    replayed: {one.difference.replayed}")
    for name, (then, now) in one.versions.items():
        click.echo(f"  {name} was {then or 'not there'} then and is {now or 'not there'} now")

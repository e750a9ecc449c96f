"""``vcd log``: list, verify, export and compact event logs.

Exit codes: 0 done, 1 ``verify`` found problems, 2 a wrong option or a file that cannot be used.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from vcd.cli import Group
from vcd.cli.command_errors import report_errors
from vcd.cli.fromcluster import EventLog, FollowedLog, files_of, print_note
from vcd.cli.inputs import COUNT, NUMBER, as_span, event_log_and_out, event_log_argument, event_log_path
from vcd.cli.logrestore import LogVerification, restore
from vcd.cli.output import Listing, list_output, print_listing, table_output
from vcd.cli.printing import print_json, print_lines, printable
from vcd.model.quantity import QuantityError, parse_units
from vcd.timetravel import log_operations

TYPES = (
    "put",
    "gone",
    "bad",
    "listed",
    "policy",
    "leadership",
    "clock",
    "answer",
    "late",
    "foreign",
    "fault",
    "session",
    "outcome",
)


class LogEvent(msgspec.Struct):
    """An event of a log: the kind and key of its object (both may be empty), and its content."""

    sequence: int
    time: str
    type: str
    kind: str
    key: str
    version: str
    what: str
    event: dict[str, Any]


class LogSession(msgspec.Struct):
    """A session of a log: the number of its event, the last event that it was decided from, and its content."""

    session: int
    sequence: int
    time: str
    head: int
    epoch: int
    now: str
    policy: str
    statements: int
    operations: int


class WrittenLog(msgspec.Struct):
    """A new log: its first and last event, and the number of its sessions. ``renamed`` are sessions of an anonymised
    log that this version does not decide identically."""

    file: str
    first: int
    last: int
    sessions: int
    renamed: list[int] | msgspec.UnsetType = msgspec.UNSET


class LogCompaction(msgspec.Struct):
    """A compacted log: the number of removed events, and its size in bytes before and after."""

    file: str
    removed: int
    before: int
    after: int


def _size(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """Parse a size like 500Mi or 20Gi to bytes."""
    try:
        return None if value is None else parse_units(value)
    except QuantityError:
        raise click.BadParameter(f"{value!r} is not a size; write one like 500Mi or 20Gi") from None


def _head(context: click.Context, option: click.Parameter, value: str | None) -> log_operations.Head | None:
    """Parse the head of a chain, as ``verify`` prints it."""
    if value is None:
        return None
    if not (match := re.fullmatch(r"([0-9a-f]{32})@(\d{1,18})", value)):
        raise click.BadParameter(f"{value!r} is not a head; write it as `vcd log verify` prints it, such as 0f..9a@120")
    return log_operations.Head(int(match[2]), bytes.fromhex(match[1]))


@click.group(cls=Group)
def log() -> None:
    """List, verify, export and compact event logs."""


@log.command("ls")
@event_log_argument
@click.option("--sessions", is_flag=True, help="List sessions instead of events.")
@click.option("--kind", help="Only events of this kind of object, such as Pod.")
@click.option("--key", help="Only events of this object: NAMESPACE/NAME, or NAME for cluster-scoped objects.")
@click.option("--type", "type_", type=click.Choice(TYPES), help="Only events of this type.")
@click.option("--from", "first", type=NUMBER, help="First sequence (or session) number.")
@click.option("--to", "last", type=NUMBER, help="Last sequence (or session) number.")
@click.option("--limit", type=COUNT, default=100, show_default=True, help="At most this many; 0: all.")
@list_output
@report_errors
def ls(
    event_log: EventLog,
    sessions: bool,
    kind: str | None,
    key: str | None,
    type_: str | None,
    first: int | None,
    last: int | None,
    limit: int,
    output: str,
) -> None:
    """List the events of FILE, or its sessions, in order. With -o json, one object per line."""
    if sessions and (kind or key or type_):
        raise click.UsageError("--kind, --key and --type choose events; leave them out with --sessions")
    most = limit + 1 if limit else None
    with event_log.reading() as log:
        if sessions:
            _print_lines(log_operations.sessions(log, first, last, most), LogSession, limit, output)
        else:
            found = log_operations.events(log, kind=kind, key=key, type=type_, first=first, last=last, limit=most)
            narrowed = " with that --type, --from or --to" if type_ or first or last else ""
            _print_lines(_with_note(found, " ".join(filter(None, (kind, key))), narrowed), LogEvent, limit, output)


def _with_note(lines: Iterator[dict[str, Any]], of: str, narrowed: str) -> Iterator[dict[str, Any]]:
    """Yield the lines; if there are none for an object or a kind, print a note."""
    first = next(lines, None)
    if first is not None:
        yield first
        yield from lines
    elif of:
        print_note(f"note: no event was logged about {of}{narrowed}")


@log.command("tail")
@event_log_argument
@click.option("-n", "count", type=COUNT, default=10, show_default=True, help="The number of events.")
@click.option("-f", "--follow", is_flag=True, help="Continue with appended events, until interrupted.")
@list_output
@report_errors
def tail(event_log: EventLog, count: int, follow: bool, output: str) -> None:
    """Print the last events of FILE. With -o json, one object per line."""
    if not follow:
        with event_log.reading() as log:
            _print_lines(log_operations.tail(log, count), LogEvent, 0, output)
        return
    with event_log.following() as followed:
        for line in _follow(followed, count):
            if output == "json":
                print_json(LogEvent(**line), line=True)
            else:
                columns = _COLUMNS[LogEvent][:1] if output == "name" else _COLUMNS[LogEvent]
                print_lines(["  ".join(str(line[name]) for name in columns)])


def _follow(followed: FollowedLog, count: int) -> Iterator[dict[str, Any]]:
    """Yield the last events and all later ones, without end, also after another file replaced the log's."""
    last: dict[str, Any] | None = None
    for path in files_of(followed, print_note):
        for line in log_operations.tail(path, count, follow=lambda path=path: not followed.is_other(path), last=last):  # type: ignore[misc]
            last = line
            yield line


@log.command("verify")
@event_log_argument
@click.option(
    "--head",
    callback=_head,
    metavar="HEX@EVENT",
    help="The head that an earlier run printed: check that it is still in the log.",
)
@table_output
@report_errors
def verify(event_log: EventLog, head: log_operations.Head | None, output: str) -> None:
    """Verify FILE; exit with 1 and print a line for each problem if it has any.

    Prints the head of its hash chain, too. If you store the head elsewhere and pass it as --head later, the command
    reports whether any event up to it was changed or removed since.
    """
    with event_log.reading() as log:
        found = log_operations.verify(log, head)
    last = None if found.head is None else str(found.head)
    if output == "json":
        print_json(LogVerification(event_log.name, found.problems, found.uncovered, last), line=True)
    else:
        print_lines((*found.problems, *(f"note: {sentence}" for sentence in found.uncovered)))
        if last is not None:
            click.echo(f"head: {last}")
        verdict = f"{len(found.problems)} problems" if found.problems else "sound"
        click.echo(f"{printable(event_log.name)}: {verdict}")
    sys.exit(1 if found.problems else 0)


@log.command("export")
@event_log_and_out
@click.option("--from", "first", type=NUMBER, help="First session; by default the first in the log.")
@click.option("--to", "last", type=NUMBER, help="Last session; by default the last in the log.")
@click.option(
    "--anonymise", is_flag=True, help="Rename all names given by users, and remove fields that no reader uses."
)
@table_output
@report_errors
def export(event_log: EventLog, out: Path, first: int | None, last: int | None, anonymise: bool, output: str) -> None:
    """Write sessions of FILE, with the earlier events that their replay needs, to the new file OUT.

    With --anonymise, you can share OUT: names of objects, label values, images and so on are replaced, each by the
    same word everywhere; labels and annotations that nothing reads are left out. The sessions decide the same.
    """
    if first and last and first > last:
        raise click.UsageError(f"--from {first} comes after --to {last}")
    with event_log.reading() as log:
        if not anonymise:
            _print_written(log_operations.export(log, out, first, last), out, output)
            return
        done = log_operations.anonymise(log, out, first, last)
        _print_written(done, out, output)
    if done.renamed:
        click.echo(
            f"note: this version decides {len(done.renamed)} sessions otherwise than they were decided (the first is"
            f" {done.renamed[0]}); their rows are only renamed",
            err=True,
        )


@log.command("compact")
@event_log_path
@click.option("--max-age", callback=as_span, help="First remove history older than this, such as 14d.")
@click.option("--max-size", callback=_size, help="First remove old history until the file is no larger, such as 20Gi.")
@table_output
@report_errors
def compact(event_log: Path, max_age: int | None, max_size: int | None, output: str) -> None:
    """Rewrite FILE without free space, and upgrade it to this version's schema. No process may be writing it.

    History is removed up to a checkpoint; the newest checkpoint always stays.
    """
    done = log_operations.compact(event_log, max_age, max_size)
    if output == "json":
        print_json(LogCompaction(str(event_log), **msgspec.structs.asdict(done)), line=True)
    else:
        summary = f"{done.removed:,} events removed, {done.before:,} bytes before, {done.after:,} bytes after"
        click.echo(f"{printable(str(event_log))}: {summary}")


log.add_command(restore)


_COLUMNS: dict[type[msgspec.Struct], tuple[str, ...]] = {
    LogEvent: ("sequence", "time", "type", "kind", "key", "version", "what"),
    LogSession: ("session", "time", "now", "head", "epoch", "policy", "statements", "operations"),
}
_WIDE = ("now", "policy")


def _print_lines(lines: Iterator[dict[str, Any]], kind: type[LogEvent | LogSession], limit: int, output: str) -> None:
    """Print lines as a list or as JSON; report when there are more than ``limit`` (0: no limit)."""
    chosen = itertools.islice(lines, limit) if limit else lines
    if output == "json":
        for line in chosen:
            print_json(kind(**line), line=True)
        return
    columns = _COLUMNS[kind]
    print_listing(Listing(columns, ([str(line[name]) for name in columns] for line in chosen), _WIDE), output)
    if next(iter(lines), None) is not None:
        click.echo(f"... and more; choose with --from, or --limit above {limit}", err=True)


def _print_written(written: log_operations.Written | log_operations.Anonymised, out: Path, output: str) -> None:
    if output == "json":
        print_json(WrittenLog(str(out), **msgspec.structs.asdict(written)), line=True)
    else:
        summary = f"events {written.first:,} to {written.last:,}, {written.sessions:,} sessions"
        click.echo(f"{printable(str(out))}: {summary}")

"""``vcd log restore``: restore a log from an archive.

Exit codes: 0 done, 1 something is missing in the archive or was changed there, 2 a wrong option or nothing to restore.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from vcd.cli.command_errors import report_errors
from vcd.cli.output import table_output
from vcd.cli.printing import print_json, printable
from vcd.timetravel import log_operations
from vcd.timetravel.log_times import BadTime


class RestoredLog(msgspec.Struct):
    """A log restored from an archive: its first and last event, its last session, and what was missing."""

    file: str
    first: int
    last: int
    session: int
    gaps: list[str]


class LogVerification(msgspec.Struct):
    """The problems of a log, what its hash chain does not cover, and the chain's head."""

    file: str
    problems: list[str]
    uncovered: list[str]
    head: str | None


@click.command("restore")
@click.argument("source")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option("--at", metavar="TIME", help="As of this time: RFC 3339, 05:12 (UTC), or 2h before the end.")
@click.option("--to", "last", type=click.IntRange(min=1), help="Up to this session, with its outcomes.")
@click.option(
    "--epoch", type=click.IntRange(min=0), help="Restore what the leader of this epoch archived, not a later one."
)
@click.option("--check", is_flag=True, help="Write no file; check everything in the archive.")
@table_output
@report_errors
def restore(
    source: str, file: Path | None, at: str | None, last: int | None, epoch: int | None, check: bool, output: str
) -> None:
    """Write the newest log of an archive to the new FILE, or check with --check that the archive is complete.

    SOURCE is the value of `vcd run --archive`: a directory, or s3://BUCKET/PREFIX. Each event is verified by the hash
    chain. Missing and changed parts are reported, with exit code 1; the log then begins with the next
    checkpoint after them.
    """
    if check:
        if file or at or last or epoch is not None:
            raise click.UsageError("--check looks through the whole archive; leave FILE, --at, --to and --epoch out")
        _check(source, output)
    if file is None:
        raise click.UsageError("name the FILE to write, or give --check")
    try:
        done = log_operations.restore(source, file, at, last, epoch)
    except BadTime as error:
        raise click.UsageError(f"--at: {error}") from None
    for gap in done.gaps:
        click.echo(f"missing: {printable(gap)}", err=True)
    if output == "json":
        print_json(RestoredLog(str(file), **msgspec.structs.asdict(done)), line=True)
    else:
        summary = f"events {done.first:,} to {done.last:,}, up to session {done.session:,}"
        click.echo(f"{printable(str(file))}: {summary}")
    sys.exit(1 if done.gaps else 0)


def _check(source: str, output: str) -> None:
    found = log_operations.check_archive(source)
    head = None if found.head is None else str(found.head)
    if output == "json":
        print_json(LogVerification(source, found.problems, found.uncovered, head), line=True)
    else:
        for line in (*found.problems, *(f"note: {sentence}" for sentence in found.uncovered)):
            click.echo(printable(line))
        click.echo(f"head: {head}")
        verdict = f"{len(found.problems)} problems" if found.problems else "sound"
        click.echo(f"{printable(source)}: {verdict}")
    sys.exit(1 if found.problems else 0)

"""``vcd sweep``: run many what-ifs at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from vcd.cli.command_errors import report_errors
from vcd.cli.fromcluster import EventLog
from vcd.cli.inputs import (
    LARGEST,
    MOST_RUNS,
    RUN_COUNT,
    end_by,
    event_log_argument,
    gpu_option,
    period_option,
    print_reading,
    read_manifests,
    read_text,
    strict_option,
)
from vcd.cli.output import text_output
from vcd.cli.printing import print_json
from vcd.cli.run_output import print_runs, print_unlike, refused
from vcd.timetravel.whatif.cluster_edits import read_edits
from vcd.timetravel.whatif.runs import Variant
from vcd.timetravel.whatif.sweep import sweep as run_sweep
from vcd.timetravel.whatif.sweep import variants_of


@click.command()
@event_log_argument
@click.option("--scheduler-conf", "confs", multiple=True, metavar="FILE", help="A configuration; may be repeated.")
@click.option("--seeds", default="0", show_default=True, metavar="N or N-M", help="Seeds of the order of equal nodes.")
@click.option("--set", "fields", multiple=True, metavar="KIND/NAME.FIELD=VALUE", help="In all runs.")
@click.option("--without", multiple=True, metavar="KIND/NAME", help="In all runs.")
@click.option("--add", "added", multiple=True, metavar="FILE", help="In all runs.")
@click.option("--jobs", type=RUN_COUNT, help="Processes that work at once; by default one per processor.")
@period_option
@gpu_option
@strict_option
@text_output
@report_errors
def sweep(
    event_log: EventLog,
    confs: tuple[str, ...],
    seeds: str,
    fields: tuple[str, ...],
    without: tuple[str, ...],
    added: tuple[str, ...],
    jobs: int | None,
    period: int,
    gpu: str,
    strict: bool,
    output: str,
) -> None:
    """Run a log's workload under each configuration with each seed, several at a time, and compare.

    Without --scheduler-conf the log's own configuration is run.

    Exits with 0; with 1 if something that is added was refused, or, with --strict, is not understood; with 2 if a
    file, a configuration or a change cannot be used.
    """
    named: list[tuple[str, str | None]] = [*zip(_names(confs), map(read_text, confs), strict=True)]
    with refused(", ".join(confs) or None):
        edits = read_edits(fields, without, read_manifests(added))
        variants = variants_of(named or [("as it was", None)], _range(seeds), Variant("", edits=edits))
        with event_log.reading() as log:
            found = run_sweep(
                log,
                variants,
                jobs=jobs,
                period=period,
                gpu=gpu,
                called=event_log.name,
                progress=lambda name: click.echo(f"{name}: done", err=True),
            )
    if output == "json":
        print_json(found)
    else:
        print_unlike(found.fidelity)
        print_runs(found.runs)
    print_reading(edits.refused, edits.unknown, strict=strict)
    end_by(edits.refused, edits.unknown, strict=strict)


def _names(files: Sequence[str]) -> list[str]:
    """Return a name for each file: the shortest end of its path that is unique."""
    paths = [Path(file).parts for file in files]

    def name(path: tuple[str, ...]) -> str:
        others = [other for other in paths if other != path]
        sizes = (size for size in range(1, len(path)) if all(other[-size:] != path[-size:] for other in others))
        return str(Path(*path[-next(sizes, len(path)) :]))

    return list(map(name, paths))


def _range(text: str) -> range:
    first, dash, last = text.partition("-")
    try:
        seeds = range(int(first), (int(last) if dash else int(first)) + 1)
    except ValueError:
        seeds = range(0)
    if not seeds or seeds.start < 0:
        raise click.BadParameter(f"{text!r} is neither a seed nor a range of seeds; write one like 3 or 0-9")
    if seeds.stop > LARGEST or len(seeds) > MOST_RUNS:
        raise click.BadParameter(f"{text!r}: at most {MOST_RUNS:,} seeds, each less than {LARGEST:,}")
    return seeds

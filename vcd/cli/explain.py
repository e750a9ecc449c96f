"""``vcd explain``: why a job or pod waits, or went where it went, over time."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click
import msgspec

from vcd import api
from vcd.cli.errors import says_errors


@click.command()
@click.argument("kind", type=click.Choice(["job", "pod"]))
@click.argument("name")
@click.option("--event-log", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The log file.")
@click.option("-n", "--namespace", default="default", show_default=True, help="The namespace of NAME.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@says_errors
def explain(kind: Literal["job", "pod"], name: str, event_log: Path, namespace: str, output: str) -> None:
    """Tell from an event log when a job or pod waited for what, where it was placed and why there.

    NAME is a pod; or a job by its PodGroup, by the Volcano Job that the PodGroup was made for, or by as much of the
    PodGroup's name as only one has. NAMESPACE/NAME is understood, too. Times are in UTC.

    Exits with 0, with 1 if there is no such job or pod, with 2 if the file cannot be used.
    """
    explanation = api.explain(event_log, kind, name, namespace)
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(explanation)).decode())
        return
    for line in explanation.lines():
        click.echo(line)

"""``vcd hypernodes``: print HyperNodes for the node labels of a cluster."""

from __future__ import annotations

import click
import yaml

from vcd.cli.command_errors import Unusable, report_errors
from vcd.cli.inputs import read_manifests
from vcd.timetravel.hypernodes import hyper_nodes_for
from vcd.timetravel.manifest_reader import read


@click.command()
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    type=click.Path(allow_dash=True),
    help="A file or folder of manifests with the nodes, or - for standard input; may be given several times.",
)
@click.option(
    "--labels",
    required=True,
    metavar="LABELS",
    help="The node labels, the widest first, for example topology.kubernetes.io/zone,rack.",
)
@report_errors
def hypernodes(files: tuple[str, ...], labels: str) -> None:
    """Print the HyperNodes that node labels describe, as manifests for kubectl apply.

    Nodes with equal values of a label and of all labels before it form a HyperNode. The last label has tier 1, or tier
    0 if it is kubernetes.io/hostname. Nodes that get the labels later join, but a new value needs the command again.

    Exits with 0; with 2 if a file cannot be read, or no node has the first label.
    """
    keys = [key.strip() for key in labels.split(",") if key.strip()]
    found = hyper_nodes_for(read(read_manifests(files), to_create=False).objects, keys)
    if not found:
        raise Unusable(f"--labels: no node has the label {keys[0]!r}" if keys else "--labels: name a node label")
    click.echo(yaml.safe_dump_all(found, sort_keys=False), nl=False)

"""``kubectl vcd``: the commands that ask, of the cluster that kubectl's own options say."""

from __future__ import annotations

from typing import Any

import click

from vcd import __version__
from vcd.cli import COMMANDS, Commands
from vcd.cli.fromcluster import CLUSTER_OPTIONS, ChosenCluster

ASKING = (
    *("explain", "jobs", "top", "view", "plan", "whatif", "gate", "sweep"),
    *("replay", "bisect", "export", "log", "conf"),
)
"""The commands that ask a cluster."""


class KubectlPlugin(Commands):
    """The commands of ``vcd`` that ask a cluster."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands that there are."""
        return list(ASKING)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, None where there is none here."""
        return super().get_command(ctx, cmd_name) if cmd_name in ASKING else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands with their short help, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in ASKING])


@click.group(cls=KubectlPlugin, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kubectl vcd")
@click.option("-n", "--namespace", default="", help="The namespace of names; the context's unless given.")
@click.pass_context
def kubectl_vcd(context: click.Context, /, **options: Any) -> None:
    """Ask the vcd that runs in a cluster: as vcd with --from-cluster. An --event-log, or a FILE, goes before that."""
    context.obj = ChosenCluster(**options, implied=True)


for _option in CLUSTER_OPTIONS:
    _option(kubectl_vcd)


def main() -> None:
    """The executable that kubectl finds."""
    kubectl_vcd(prog_name="kubectl vcd")

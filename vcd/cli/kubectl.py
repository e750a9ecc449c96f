"""``kubectl vcd``: the commands that read a cluster's log, for the cluster that kubectl's options select."""

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
"""The commands that read a cluster."""


class KubectlPlugin(Commands):
    """The commands of ``vcd`` that read a cluster."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(ASKING)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a name, or None."""
        return super().get_command(ctx, cmd_name) if cmd_name in ASKING else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their short help, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in ASKING])


@click.group(cls=KubectlPlugin, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kubectl vcd")
@click.option("-n", "--namespace", default="", help="The namespace of names; by default the context's.")
@click.pass_context
def kubectl_vcd(context: click.Context, /, **options: Any) -> None:
    """Query the vcd that runs in a cluster, as vcd --from-cluster does. An --event-log, or a FILE, takes precedence."""
    context.obj = ChosenCluster(**options, implied=True)


for _option in CLUSTER_OPTIONS:
    _option(kubectl_vcd)


def main() -> None:
    """Run the executable that kubectl finds."""
    kubectl_vcd(prog_name="kubectl vcd")

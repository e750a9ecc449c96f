"""``vcd completion``: what a shell needs to complete commands, options and file names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that makes SHELL complete vcd's commands.

    \b
    bash:  echo 'eval "$(vcd completion bash)"' >> ~/.bashrc
    zsh:   echo 'eval "$(vcd completion zsh)"' >> ~/.zshrc
    fish:  vcd completion fish > ~/.config/fish/completions/vcd.fish
    """
    found = get_completion_class(shell)
    assert found is not None, "click knows each of SHELLS"
    root = context.find_root()
    click.echo(found(root.command, {}, "vcd", "_VCD_COMPLETE").source())

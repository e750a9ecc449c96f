"""``vcd completion``: shell completion of commands, options, file names, and names of objects in a log."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import get_completion_class

from vcd.model.reasons import CAUSES
from vcd.timetravel.history import opened
from vcd.timetravel.log_operations import LogError
from vcd.timetravel.lognames import names_in

SHELLS = ("bash", "zsh", "fish")
_DEFAULT = "default/"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that lets SHELL complete vcd's commands, and names of jobs, pods, queues and namespaces in the
    log that --event-log or VCD_EVENT_LOG names.

    \b
    bash:  echo 'eval "$(vcd completion bash)"' >> ~/.bashrc
    zsh:   echo 'eval "$(vcd completion zsh)"' >> ~/.zshrc
    fish:  vcd completion fish > ~/.config/fish/completions/vcd.fish
    """
    found = get_completion_class(shell)
    assert found is not None, "click knows each of SHELLS"
    root = context.find_root()
    click.echo(found(root.command, {}, "vcd", "_VCD_COMPLETE").source())


def complete_causes(context: click.Context, parameter: click.Parameter, begin: str) -> list[str]:
    """Return the causes that begin with a text."""
    return [cause for cause in CAUSES if cause.startswith(begin)]


def complete_named(context: click.Context, parameter: click.Parameter, begin: str) -> list[str]:
    """Return the names of objects in the command line's log file that begin with a text.

    The kind of the objects follows from the option, the argument KIND, or the command. Without a readable log file
    there are none, and none with --from-cluster: a key press must not call the API server.
    """
    given = context.params
    path, kind = given.get("log_file") or given.get("event_log"), _KINDS.get(str(parameter.name))
    if kind is None:
        kind = _KINDS.get(given.get("kind") or context.info_name or "")
    if path is None or kind is None or given.get("from_cluster"):
        return []
    try:
        with opened(path) as history:
            names = names_in(history, kind)
    except LogError:
        return []
    if kind in ("job", "pod"):
        names = _in_namespace(names, given.get("namespace"))
    return [name for name in names if name.startswith(begin)]


_KINDS: dict[str, Any] = {
    "namespace": "namespace",
    "queue": "queue",
    "order": "queue",
    "job": "job",
    "diff": "job",
    "pod": "pod",
    "eviction": "pod",
}
"""The kind of the names by option, by KIND of ``vcd explain``, or by command."""


def _in_namespace(names: list[str], namespace: str | None) -> list[str]:
    """Return the names as a command takes them: relative to ``namespace`` if given, else also to the default one."""
    if namespace:
        return [name.removeprefix(f"{namespace}/") for name in names if name.startswith(f"{namespace}/")]
    return [name.removeprefix(_DEFAULT) for name in names if name.startswith(_DEFAULT)] + names

"""``vcd conf``: check, compare and print configuration files, and print the roles that they need."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click
import msgspec
import yaml
from rich.text import Text

from vcd.cli import Group
from vcd.cli.command_errors import InvalidConf, Unusable, report_errors
from vcd.cli.conffile import read_configuration
from vcd.cli.fromcluster import EventLog
from vcd.cli.inputs import (
    end_by,
    is_log_chosen,
    optional_event_log,
    print_reading,
    read_manifests,
    strict_option,
)
from vcd.cli.output import output_option, text_output
from vcd.cli.printing import add_row, document, print_json, print_lines, print_tables, table
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.framework.permissions import roles_for
from vcd.scheduling.framework.policy import Policy, PolicyError, Problem
from vcd.scheduling.framework.policydiff import PolicyChange, policy_changes
from vcd.scheduling.framework.queuefields import check_queues, unread_queue_fields
from vcd.scheduling.framework.registry import describe_policy
from vcd.timetravel import log_operations
from vcd.timetravel.manifest_reader import queues_in, read


class ConfigurationCheck(msgspec.Struct):
    """Whether a configuration file can be used, and its problems.

    ``unread_queue_fields`` are the fields of Queues that no plugin of the file reads, each with the plugins that
    would. ``queues`` has a sentence for each such field that is set in the given Queues.
    """

    file: str
    usable: bool
    problems: list[Problem]
    warnings: list[Problem]
    unread_queue_fields: dict[str, list[str]] = {}
    queues: list[str] = []


class ConfigurationChange(msgspec.Struct):
    """How the decisions of two configurations differ, and which new settings cannot work together."""

    old: str
    new: str
    changes: list[PolicyChange]
    misfits: list[Problem]


class Configuration(msgspec.Struct):
    """The policy of a configuration file: see ``registry.describe_policy``."""

    digest: str
    actions: list[dict[str, Any]]
    tiers: list[list[dict[str, Any]]]
    metrics: dict[str, str]
    warnings: list[str]


class _Invalid(InvalidConf):
    """A configuration file that was read and has problems: exit code 1, since the question was whether it has."""

    exit_code = 1


@click.group(cls=Group)
def conf() -> None:
    """Check, compare and print the scheduler's configuration."""


@conf.command()
@click.argument("file", type=click.Path(allow_dash=True))
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    type=click.Path(allow_dash=True),
    help="A file or folder of manifests: fields of its Queues that FILE's plugins do not read are listed.",
)
@strict_option
@text_output
@report_errors
def check(file: str, files: tuple[str, ...], strict: bool, output: str) -> None:
    """Check FILE (- for standard input), a configuration of vc-scheduler, and print its problems.

    FILE may be a ConfigMap that contains the configuration, or the values of vcd's or Volcano's Helm chart.

    Fields of Queues that no plugin of FILE reads are listed, too: a value there has no effect.

    Exits with 0 if FILE can be used (it may have warnings); with 1 if it cannot, if something in the manifests is
    refused, or, with --strict, is not understood; with 2 if a file cannot be read.
    """
    reading = read(read_manifests(files), to_create=False)
    stated = queues_in(reading)
    problems: tuple[Problem, ...] = ()
    unread: dict[str, list[str]] = {}
    queues: list[str] = []
    try:
        policy = read_policy(read_configuration(file))
        warnings, unread = (*policy.warnings, *policy.misfits), unread_queue_fields(policy)
        queues = check_queues(policy, stated)
    except PolicyError as error:
        problems, warnings = error.problems, error.warnings
    if output == "json":
        print_json(ConfigurationCheck(file, not problems, list(problems), list(warnings), unread, queues))
    else:
        _print_findings(file, problems, warnings)
        print_lines([f"{file}: warning: {sentence}" for sentence in queues], colour="yellow")
        print_lines(f"{file}: {_unread_in_words(*each)}" for each in unread.items())
    print_reading(reading.refused(), reading.unknown, strict=strict)
    if problems:
        sys.exit(1)
    end_by(reading.refused(), reading.unknown, strict=strict)


@conf.command()
@click.argument("old", type=click.Path(allow_dash=True))
@click.argument("new", type=click.Path(allow_dash=True))
@text_output
@report_errors
def diff(old: str, new: str, output: str) -> None:
    """Print how decisions change if the configuration OLD becomes NEW. Comments and the order of keys do not matter.

    Exits with 0 if nothing changes, with 1 if something does, with 2 if a file cannot be read or used.
    """
    before, after = (_usable(file) for file in (old, new))
    changes = policy_changes(before, after)
    misfits = [one for one in after.misfits if one.message not in {each.message for each in before.misfits}]
    if output == "json":
        print_json(ConfigurationChange(old, new, changes, misfits))
    else:
        print_lines(map(_change_in_words, changes))
        print_lines([_line(new, "warning", one) for one in misfits], colour="yellow")
        if not changes:
            print_lines([f"{old} and {new} decide identically"])
    sys.exit(1 if changes else 0)


def _usable(file: str) -> Policy:
    try:
        return read_policy(read_configuration(file))
    except PolicyError as error:
        raise Unusable(f"{file}: {error.problems[0]}; vcd conf check {file} prints all that is wrong") from None


def _change_in_words(change: PolicyChange) -> str:
    words = f"{change.what}: {change.before or 'none'} -> {change.after or 'none'}"
    return f"{words} ({change.effect})" if change.effect else words


def _unread_in_words(field: str, plugins: list[str]) -> str:
    return f"spec.{field} of queues is not read; {' and '.join(plugins)} would read it"


@conf.command()
@click.argument("file", type=click.Path(allow_dash=True), required=False)
@optional_event_log
@output_option("table", "json", "yaml")
@report_errors
def show(file: str | None, event_log: EventLog | None, output: str) -> None:
    """Print the policy of FILE (- for standard input); without FILE, the compiled-in default.

    With --event-log or --from-cluster, and without FILE, print the policy in force: the one that the scheduler that
    writes the log decides with.

    Exits with 0, with 1 if FILE has problems, with 2 if it cannot be read.
    """
    if file is not None and is_log_chosen():
        raise click.UsageError("FILE and a log are two configurations; give one of them")
    if event_log is not None and file is None:
        text = _policy_in_force(event_log)
        file = f"in force in {event_log.name}"
        policy = _policy(file, text, logged=True)
    else:
        policy = _policy(file, None if file is None else read_configuration(file))
    described = describe_policy(policy)
    if output == "json":
        print_json(Configuration(**described))
    elif output == "yaml":
        click.echo(yaml.safe_dump(document(Configuration(**described)), sort_keys=False, allow_unicode=True), nl=False)
    else:
        _print_policy(file or "compiled-in default", described)
        print_lines((_line(str(file), "warning", warning) for warning in policy.warnings), err=True)


@conf.command()
@click.argument("file", type=click.Path(allow_dash=True), required=False)
@click.option(
    "--service-account", default="vcd-scheduler", show_default=True, help="The ServiceAccount that gets the roles."
)
@click.option("--namespace", default="volcano-system", show_default=True, help="The ServiceAccount's namespace.")
@report_errors
def rbac(file: str | None, service_account: str, namespace: str) -> None:
    """Print the roles that let a scheduler read what FILE's plugins declare, for kubectl apply.

    deploy/base allows what vcd's built-in plugins read with their default arguments. More is needed if an argument
    names another object, and for third-party plugins that read kinds of their own.

    Exits with 0, with 1 if FILE has problems, with 2 if it cannot be read.
    """
    policy = _policy(file, None if file is None else read_configuration(file))
    roles = roles_for(policy, service_account, namespace)
    click.echo(yaml.dump_all(roles, Dumper=_Plain, sort_keys=False), nl=False)


def _policy(name: str | None, text: str | None, *, logged: bool = False) -> Policy:
    try:
        return read_policy(text, logged=logged)
    except PolicyError as error:
        raise _Invalid(str(name), error) from None


class _Plain(yaml.SafeDumper):
    """YAML without anchors, as people write it."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _policy_in_force(event_log: EventLog) -> str:
    with event_log.reading() as log:
        text = log_operations.policy_in_force(log)
    if text is None:
        raise Unusable(f"{event_log.name}: no configuration was loaded yet")
    return text


def _line(name: str, severity: str, problem: Problem) -> str:
    return f"{name}:{problem.line}: {severity}: {problem.sentence}"


def _print_findings(name: str, problems: tuple[Problem, ...], warnings: tuple[Problem, ...]) -> None:
    rows = [(item.line, "error", "red", item) for item in problems]
    rows += [(item.line, "warning", "yellow", item) for item in warnings]
    for _, severity, style, item in sorted(rows, key=lambda row: row[0]):
        print_lines([_line(name, severity, item)], colour=style)
    counts = f"errors: {len(problems)}, warnings: {len(warnings)}"
    print_lines([f"{name}: {'cannot' if problems else 'can'} be used ({counts})"])


def _print_policy(name: str, described: Mapping[str, Any]) -> None:
    click.secho(f"{name} (digest {described['digest'][:16]})", bold=True)
    print_lines(["actions: " + ", ".join(action["name"] for action in described["actions"])])
    tiers = table("tier", "plugin", "flags", "argument", "value", "from")
    for number, tier in enumerate(described["tiers"], 1):
        for plugin in tier:
            flags = ", ".join(f"{flag}: {_format_value(on)}" for flag, on in plugin["flags"].items())
            for row in _rows((str(number), plugin["name"], flags), plugin["arguments"]):
                add_row(tiers, *row)
    print_tables(tiers)
    if any(action["arguments"] for action in described["actions"]):
        arguments = table("action", "argument", "value", "from")
        for action in described["actions"]:
            for row in _rows((action["name"],), action["arguments"]):
                add_row(arguments, *row)
        print_tables(arguments)
    for key, value in described["metrics"].items():
        click.echo(f"metrics.{key}: {value}")


def _rows(head: tuple[str, ...], arguments: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str | Text, ...]]:
    """Yield a row for each argument, defaults dimmed; ``head`` is only in the first row."""
    if not arguments:
        yield (*head, "", "", "")
    for index, (key, argument) in enumerate(arguments.items()):
        style = "dim" if argument["default"] else ""
        origin = "default" if argument["default"] else "file"
        cells = (Text(word, style=style) for word in (key, _format_value(argument["value"]), origin))
        yield (*(head if index == 0 else ("",) * len(head)), *cells)


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)

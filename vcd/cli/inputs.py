"""Inputs of commands: numbers, texts in files, event logs, and manifests from files, folders and standard input.

Every command gets its inputs through these functions, so that equal mistakes have equal messages. They read and check
form only; the meaning of a manifest is checked by the commands.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from vcd.cli.command_errors import Unusable
from vcd.cli.completion import complete_named
from vcd.cli.fromcluster import CLUSTER_OPTIONS, ChosenCluster, ClusterLog, EventLog, FileLog, implied
from vcd.cli.printing import print_lines
from vcd.model.jsontext import shallow
from vcd.model.manifests import plain
from vcd.model.plainjson import TOO_MANY_DIGITS
from vcd.model.projection_codec import BadObject
from vcd.model.wording import SECOND
from vcd.model.yamltext import YamlError, read_documents
from vcd.timetravel.log_times import BadTime, span_of

Manifest = dict[str, Any]

EVENT_LOG = "VCD_EVENT_LOG"
"""The variable that names the event log if no option or argument does."""

_file = click.Path(dir_okay=False, path_type=Path)
_event_log = click.option("--event-log", envvar=EVENT_LOG, type=_file, help="The log file.", show_envvar=True)
_from_cluster = click.option("--from-cluster", is_flag=True, help="Read the log of a cluster's running scheduler.")
_positional = click.argument("log_file", type=_file, required=False, metavar="[FILE]")
_before_out = click.argument("paths", type=_file, nargs=-1, required=True, metavar="[FILE] OUT")
_WAYS = "--event-log FILE, the variable VCD_EVENT_LOG, or --from-cluster"

Command = Callable[..., Any]


class FiniteRange(click.FloatRange):
    """A number in a range, except NaN, which compares as if it were in every range, and infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class LoggedNumber(click.IntRange):
    """An integer that a log can hold."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number: int = super().convert(value, param, ctx)
        if number > LARGEST:
            self.fail(f"{value} is more than the largest number in a log ({LARGEST:,}).", param, ctx)
        return number


LARGEST = 2**63 - 1
NUMBER = LoggedNumber(min=1)
"""The number of a session, or of an event."""
COUNT = LoggedNumber(min=0)
"""A count, or a seed."""
MOST_RUNS = 10_000
"""Maximum number of runs of one command."""
RUN_COUNT = click.IntRange(1, MOST_RUNS)
"""A number of runs, or of processes."""
DAY = 86_400


def as_span(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """Parse a duration like 36h or 14d to nanoseconds."""
    try:
        return None if value is None else span_of(value)
    except BadTime as error:
        raise click.BadParameter(str(error)) from None


period_option = click.option(
    "--period",
    type=FiniteRange(0.001, DAY),
    default=1.0,
    show_default=True,
    callback=lambda _, __, seconds: round(seconds * SECOND),  # commands get nanoseconds
    help="The length of a cycle in seconds.",
)
gpu_option = click.option(
    "--gpu", default="nvidia.com/gpu", show_default=True, help="The resource whose whole units are counted."
)


def event_log_option(command: Command) -> Command:
    """Pass a command the log that it reads as ``event_log``: a file by option or variable, or a cluster's."""
    return _with_log(command, _WAYS, (_event_log, _from_cluster, *CLUSTER_OPTIONS))


def event_log_argument(command: Command) -> Command:
    """Do the same for a command whose log file may also be an argument."""
    return _with_log(command, f"FILE, {_WAYS}", (_positional, _event_log, _from_cluster, *CLUSTER_OPTIONS))


def event_log_and_out(command: Command) -> Command:
    """Do the same for a command with an argument OUT, a file to write, after the log file."""
    return _with_log(command, f"FILE, {_WAYS}", (_before_out, _event_log, _from_cluster, *CLUSTER_OPTIONS))


def event_log_path(command: Command) -> Command:
    """Pass a command the path of a log file as ``event_log``. For commands that change the file, or whose logs no
    daemon serves, so that --from-cluster is not possible."""

    @wraps(command)
    def with_path(event_log: Path | None, log_file: Path | None, **given: Any) -> None:
        chosen = log_file or event_log
        if chosen is None:
            raise click.UsageError("give a log: FILE, --event-log FILE, or the variable VCD_EVENT_LOG")
        if log_file is not None and event_log is not None and not _by_variable():
            raise click.UsageError("give one log: FILE, or --event-log FILE")
        command(event_log=chosen, **given)

    decorated: Command = _positional(_event_log(with_path))
    return decorated


def optional_event_log(command: Command) -> Command:
    """Pass a command the log that it reads, or None."""
    return _with_log(command, "", (_event_log, _from_cluster, *CLUSTER_OPTIONS))


def _with_log(command: Command, ways: str, options: Iterable[Callable[[Command], Command]]) -> Command:
    @wraps(command)
    def with_log(
        event_log: Path | None,
        from_cluster: bool,
        kubeconfig: str | None,
        context: str | None,
        scheduler_namespace: str,
        token_file: Path | None,
        log_file: Path | None = None,
        paths: tuple[Path, ...] = (),
        **given: Any,
    ) -> None:
        if len(paths) > 2:
            raise click.UsageError("give FILE and OUT, or OUT alone")
        if paths:
            given["out"], log_file = paths[-1], paths[0] if len(paths) > 1 else None
        cluster = ChosenCluster(kubeconfig, context, scheduler_namespace, token_file)
        command(event_log=_chosen(ways, event_log, log_file, cluster, from_cluster=from_cluster), **given)

    decorated: Command = with_log
    for option in reversed([*options]):
        decorated = option(decorated)
    return decorated


def is_log_chosen() -> bool:
    """Return whether an option on the command line names a log, rather than the variable or the program's name."""
    given = map(click.get_current_context().get_parameter_source, ("event_log", "from_cluster"))
    return ParameterSource.COMMANDLINE in given


def _by_variable() -> bool:
    return click.get_current_context().get_parameter_source("event_log") is ParameterSource.ENVIRONMENT


def _chosen(
    ways: str, option: Path | None, file: Path | None, cluster: ChosenCluster, *, from_cluster: bool
) -> EventLog | None:
    """Return the chosen log; None if there is no choice and ``ways`` is empty. Raises UsageError."""
    given = [path for path in (None if _by_variable() else option, file) if path is not None]
    if len(given) + from_cluster > 1:
        raise click.UsageError(f"give one log: {ways or _WAYS}")
    if not given and (from_cluster or implied().implied):
        return ClusterLog(cluster.over(implied()))
    if cluster.given_options:
        raise click.UsageError(f"{', '.join(cluster.given_options)}: for --from-cluster only")
    if chosen := given[0] if given else option:
        return FileLog(chosen)
    if ways:
        raise click.UsageError(f"give a log: {ways}")
    return None


namespace_option = click.option(
    "-n",
    "--namespace",
    help="The namespace of NAME; by default 'default', or with --from-cluster the context's.",
    shell_complete=complete_named,
)

SUFFIXES = (".json", ".yaml", ".yml")
"""Files of a folder that are read, as by kubectl."""


def read_text(name: str) -> str:
    """Return the text of a file, or of standard input for ``-``. Raises Unusable."""
    try:
        if name == "-" and sys.stdin is None:
            raise Unusable("-: standard input is closed")
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return data.decode()
    except OSError as error:
        raise Unusable(f"{name}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise Unusable(f"{name}: not UTF-8 at byte {error.start}") from None


def read_manifests(names: Iterable[str]) -> list[Manifest]:
    """Return the objects in files, in the files of folders (not of subfolders), and in standard input (``-``).

    A file may contain several documents, in YAML or JSON, and lists of objects. Raises Unusable with the file, the
    document and the line of what is not an object with a kind and a name.
    """
    manifests: list[Manifest] = []
    for name in names:
        for file in _files(name):
            source = "standard input" if file == "-" else file
            for number, line, document in _documents(source, read_text(file)):
                manifests.extend(_objects(f"{source}: document {number} (line {line})", document))
    return manifests


def _files(name: str) -> list[str]:
    folder = Path(name)
    if name == "-" or not folder.is_dir():
        return [name]
    try:
        found = sorted(str(path) for path in folder.iterdir() if path.suffix in SUFFIXES and path.is_file())
    except OSError as error:
        raise Unusable(f"{name}: {error.strerror}") from None
    if not found:
        raise Unusable(f"{name}: the folder has no file that ends in {', '.join(SUFFIXES)}")
    return found


# --- documents --------------------------------------------------------------------------------------------------------


def _documents(name: str, text: str) -> list[tuple[int, int, Any]]:
    """Return the documents of a text, each with its number and its first line, both from 1."""
    found = _json_documents(name, text) if text.lstrip().startswith(("{", "[")) else None
    return _yaml_documents(name, text) if found is None else found


def _json_documents(name: str, text: str) -> list[tuple[int, int, Any]] | None:
    """Return JSON documents that follow each other; None for what is not JSON: it may be YAML that begins like JSON.

    Raises Unusable for a number with too many digits.
    """
    decoder = json.JSONDecoder()
    found: list[tuple[int, int, Any]] = []
    position = line = counted = 0
    while match := _INK.search(text, position):
        try:
            value, position = decoder.raw_decode(text, match.start())
        except json.JSONDecodeError:
            return None
        except RecursionError:
            return _json_documents(name, shallow(text.encode()).decode())
        except ValueError as error:  # an int of more digits than Python reads
            at = line + text.count("\n", counted, match.start()) + 1
            words = TOO_MANY_DIGITS if "digits" in str(error) else str(error)
            raise Unusable(f"{name}: document {len(found) + 1} (line {at}): {words}") from None
        line, counted = line + text.count("\n", counted, match.start()), match.start()
        found.append((len(found) + 1, line + 1, value))
    return found


def _yaml_documents(name: str, text: str) -> list[tuple[int, int, Any]]:
    try:
        return [(number, line, document) for number, (line, document) in enumerate(read_documents(text), 1)]
    except YamlError as error:
        where = f"document {error.document} (line {error.line})" if error.document else f"line {error.line}"
        raise Unusable(f"{name}: {where}: {error}") from None


_INK = re.compile(r"\S")

# --- problems of manifests --------------------------------------------------------------------------------------------

strict_option = click.option(
    "--strict", is_flag=True, help="Exit with 1 also if something in the manifests is not understood."
)
REFUSED = 1
"""The exit code if something was refused, or, with --strict, not understood."""


def print_reading(refused: Iterable[str], unknown: Iterable[str], *, strict: bool) -> None:
    """Print refused manifests, and parts that are not understood, on standard error."""
    print_lines((f"refused: {each}" for each in refused), err=True)
    print_lines((f"{'error' if strict else 'warning'}: {each}" for each in unknown), err=True)


def end_by(refused: Sequence[Any], unknown: Sequence[str], *, strict: bool) -> None:
    """Exit with code 1 if something was refused, or, if ``strict``, not understood."""
    if refused or (strict and unknown):
        raise click.exceptions.Exit(REFUSED)


# --- objects ----------------------------------------------------------------------------------------------------------


def _objects(where: str, document: Any) -> Iterator[Manifest]:
    """Yield the objects of a document: itself, or the items of a list. Raises Unusable for values outside JSON."""
    if document is None:
        return
    if not isinstance(document, Mapping):
        raise Unusable(f"{where}: an object must be a mapping, not {_type_name(document)}")
    kind = document.get("kind")
    if not isinstance(kind, str) or not kind:
        raise Unusable(f"{where}: it has no kind")
    items = document.get("items")
    if kind.endswith("List") and isinstance(items, list):
        for index, item in enumerate(items):
            place = f"{where}: items[{index}]"
            if not isinstance(item, Mapping):
                raise Unusable(f"{place}: an object must be a mapping, not {_type_name(item)}")
            kind_of_items = kind.removesuffix("List")
            yield from _objects(place, {"kind": kind_of_items, **item} if kind_of_items else item)
        return
    metadata = document.get("metadata")
    if not isinstance(metadata, Mapping) or not (metadata.get("name") or metadata.get("generateName")):
        raise Unusable(f"{where}: the {kind} has no metadata.name")
    try:
        yield plain(dict(document))
    except BadObject as error:
        raise Unusable(f"{where}: {error}") from None


def _type_name(value: Any) -> str:
    names = {list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "nothing" if value is None else type(value).__name__)

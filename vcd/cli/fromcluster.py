"""``--from-cluster``: read the log of a running daemon through the API server, with the user's own rights."""

from __future__ import annotations

import importlib
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from vcd.cli.command_errors import Unusable
from vcd.cli.printing import print_lines
from vcd.model.wording import span_in_words
from vcd.text.time_formats import moment
from vcd.timetravel.log_standing import errors_with_writer, standing
from vcd.timetravel.log_upgrade import up_to_date

if TYPE_CHECKING:  # importing the API client takes longer than most commands run
    from vcd.daemon.reader.log_copy import ReadUpTo

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True)
class ChosenCluster:
    """The cluster and scheduler whose log is read, by the options. ``implied``: the program's name implies
    ``--from-cluster``. ``namespace`` is the default one for names."""

    kubeconfig: str | None = None
    context: str | None = None
    scheduler_namespace: str = ""
    token_file: Path | None = None
    namespace: str = ""
    implied: bool = False

    def over(self, other: ChosenCluster) -> ChosenCluster:
        """Return these options, with those of ``other`` where these are unset."""
        own = {name: value for name, value in vars(self).items() if value}
        return replace(other, **own)

    @property
    def given_options(self) -> list[str]:
        """The options that were given."""
        return [f"--{name.replace('_', '-')}" for name, value in vars(self).items() if value and name != "implied"]


CLUSTER_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--kubeconfig",
        metavar="FILE",
        help="With --from-cluster: the kubeconfig; by default the one that kubectl uses.",
    ),
    click.option(
        "--context", metavar="NAME", help="With --from-cluster: the context; by default the kubeconfig's current one."
    ),
    click.option(
        "--scheduler-namespace",
        default="",
        metavar="NAMESPACE[/LEASE]",
        help="With --from-cluster: where vcd runs; by default volcano-system, or where the only log is.",
    ),
    click.option(
        "--token-file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="With --from-cluster: a token for audience vcd to send, instead of one created for vcd-reader.",
    ),
)
"""The options that choose a cluster."""


def implied() -> ChosenCluster:
    """Return the cluster that the program's name implies; for ``vcd`` itself, an empty choice."""
    found = click.get_current_context().find_object(ChosenCluster)
    return ChosenCluster() if found is None else found


class FollowedLog(Protocol):
    """A log that may grow, or be replaced by another file."""

    def reading(self) -> AbstractContextManager[Path]:
        """Return the current file, which stays for as long as the context lasts."""

    def is_other(self, path: Path) -> bool:
        """Return whether another file has replaced this one."""


def files_of(followed: FollowedLog, note: Callable[[str], None]) -> Iterator[Path]:
    """Yield the log's file, and each file that replaces it, with a note. A yielded file stays until the next one."""
    while True:
        with followed.reading() as path:
            yield path
        print_note(
            "note: another replica leads, and its log lacks some of the events above; the output continues with its log"
        )


class ClusterLog:
    """The log of a running daemon."""

    def __init__(self, cluster: ChosenCluster) -> None:
        self._cluster = cluster
        self.name = self.title = "the cluster's log"
        """Its name in messages, and in a headline; more specific once it is read."""
        self.namespace = "default"
        """The default namespace: once the log is read, that of the kubeconfig's context."""

    @contextmanager
    def reading(self) -> Iterator[Path]:
        """Yield a file with all that the leader has, for as long as the context lasts. Raises Unusable, LogError."""
        commands, request = self._log_request()
        with (
            _report_cluster_errors(),
            commands.copied_log(request, print_note) as found,
            errors_with_writer(found.path),
        ):
            self._announce(found.taken, found.context)
            yield found.path

    @contextmanager
    def following(self) -> Iterator[FollowedLog]:
        """Yield the log, updated while the context lasts."""
        commands, request = self._log_request()
        with _report_cluster_errors(), commands.followed(request, print_note) as found:
            self._announce(found.taken, found.context)
            yield found

    def _log_request(self) -> tuple[Any, Any]:
        importlib.import_module("vcd.daemon.structured_logging").configure(
            verbosity=-1
        )  # else log lines go to standard output
        commands = importlib.import_module("vcd.daemon.reader.cluster_log")
        one = self._cluster
        return commands, commands.LogRequest(one.kubeconfig, one.context, one.scheduler_namespace, one.token_file)

    def _announce(self, taken: ReadUpTo, context: Any) -> None:
        """Print on standard error which replica's log is read."""
        self.name = self.title = f"log of {taken.leader} in {context.name or 'this cluster'}"
        self.namespace = self._cluster.namespace or context.namespace or "default"
        last = f"up to session {taken.session} of {moment(taken.time)}" if taken.session else "no session yet"
        new = f"{taken.events:,} events new"
        if taken.age:
            new = f"as of {span_in_words(taken.age)} ago, because another command is copying it"
        click.echo(f"{self.name}, {last}; {new}", err=True)


@contextmanager
def _report_cluster_errors() -> Iterator[None]:
    try:
        yield
    except importlib.import_module("vcd.daemon.reader.kubeconfig").ClusterError as error:
        raise Unusable(str(error)) from None


def print_note(text: str) -> None:
    """Print a note on standard error."""
    print_lines([text], err=True)


_ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the program as an exit does, so that a copy of a log is removed. Ignored signals and
    those with a handler stay as they are; outside the main thread, which alone receives signals, nothing changes."""
    is_main = threading.current_thread() is threading.main_thread()
    own = [number for number in _ENDING if is_main and signal.getsignal(number) is signal.SIG_DFL]

    def end(number: int, _: object) -> None:
        for each in own:
            signal.signal(each, signal.SIG_IGN)  # a closing terminal sends it twice
        raise SystemExit(128 + number)

    try:
        for number in own:
            signal.signal(number, end)
        yield
    finally:
        for number in own:
            signal.signal(number, signal.SIG_DFL)


class FileLog:
    """A log in a file."""

    namespace = "default"

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = str(path)
        self.title = path.name

    @contextmanager
    def reading(self) -> Iterator[Path]:
        """Yield the file, or an upgraded copy if an older vcd wrote it. If the file may lack events of the queried
        time, print a note with how many, and which replica has them. Raises LogError."""
        with _exit_on_signals(), up_to_date(self._path, print_note) as path, errors_with_writer(self._path):
            if (found := standing(self._path)) and found.lacks:
                print_note(f"note: {found.words}")
            yield path

    @contextmanager
    def following(self) -> Iterator[FollowedLog]:
        """Yield the log for repeated reading."""
        with self.reading() as path:
            yield _FixedFile(path)


@dataclass(frozen=True)
class _FixedFile:
    """A file that is never replaced."""

    _path: Path

    @contextmanager
    def reading(self) -> Iterator[Path]:
        yield self._path

    def is_other(self, path: Path) -> bool:
        return path != self._path


EventLog = FileLog | ClusterLog
"""The log that a command reads."""

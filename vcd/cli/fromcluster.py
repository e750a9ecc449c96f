"""``--from-cluster``: a running daemon's own log, read through the API server by the person who asks."""

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

from vcd import api
from vcd.cli.errors import Unusable
from vcd.cli.printing import print_lines

if TYPE_CHECKING:  # what talks to an API server takes longer to import than most questions take
    from vcd.daemon.reader.log_copy import ReadUpTo

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True)
class ChosenCluster:
    """Whose log, as the options say; ``implied`` by the program's name, so that it need not be said. ``namespace`` is
    that of names, where no other is given with them."""

    kubeconfig: str | None = None
    context: str | None = None
    scheduler_namespace: str = ""
    token_file: Path | None = None
    namespace: str = ""
    implied: bool = False

    def over(self, other: ChosenCluster) -> ChosenCluster:
        """These, and what others say where they say nothing."""
        said = {name: value for name, value in vars(self).items() if value}
        return replace(other, **said)

    @property
    def told(self) -> list[str]:
        """The options that were given."""
        return [f"--{name.replace('_', '-')}" for name, value in vars(self).items() if value and name != "implied"]


CLUSTER_OPTIONS: tuple[Decorator, ...] = (
    click.option("--kubeconfig", metavar="FILE", help="With --from-cluster: as kubectl finds it unless given."),
    click.option("--context", metavar="NAME", help="With --from-cluster: the kubeconfig's current one unless given."),
    click.option(
        "--scheduler-namespace",
        default="",
        metavar="NAMESPACE[/LEASE]",
        help="With --from-cluster: where vcd runs; volcano-system, or where the only log is, unless given.",
    ),
    click.option(
        "--token-file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="With --from-cluster: a token for audience vcd to show, instead of one made for vcd-reader.",
    ),
)
"""What says which cluster."""


def implied() -> ChosenCluster:
    """The cluster that the program's name implies; none of ``vcd`` itself."""
    found = click.get_current_context().find_object(ChosenCluster)
    return ChosenCluster() if found is None else found


class FollowedLog(Protocol):
    """A log that may grow, or be in another file from some moment on."""

    def reading(self) -> AbstractContextManager[Path]:
        """Its file at the moment, which stays for as long as the context lasts."""

    def is_other(self, path: Path) -> bool:
        """Whether another file has the log now."""


def files_of(followed: FollowedLog, say: Callable[[str], None]) -> Iterator[Path]:
    """The file that has a log, and each that has it later, of which is told; none goes while it is looked at."""
    while True:
        with followed.reading() as path:
            yield path
        say("note: another replica leads, which has not all that was told before; from here on it is that one's log")


class ClusterLog:
    """The log of a running daemon."""

    def __init__(self, cluster: ChosenCluster) -> None:
        self._cluster = cluster
        self.name = self.title = "the cluster's log"
        """What it is called where it is told of, and in a headline; more once it is read."""
        self.namespace = "default"
        """The namespace of who names none: of the kubeconfig's context, once the log is read."""

    @contextmanager
    def reading(self) -> Iterator[Path]:
        """A file with all that the leader has, for as long as the context lasts. Raises Unusable, LogError."""
        commands, asked = self._asked()
        with _told(), commands.taken_over(asked, say) as found, api.told_of_standing(found.path):
            self._note(found.taken, found.context)
            yield found.path

    @contextmanager
    def following(self) -> Iterator[FollowedLog]:
        """The same, followed meanwhile."""
        commands, asked = self._asked()
        with _told(), commands.followed(asked, say) as found:
            self._note(found.taken, found.context)
            yield found

    def _asked(self) -> tuple[Any, Any]:
        importlib.import_module("vcd.daemon.logs").configure(verbosity=-1)  # else it is logged on standard output
        commands = importlib.import_module("vcd.daemon.reader.commands")
        one = self._cluster
        return commands, commands.LogRequest(one.kubeconfig, one.context, one.scheduler_namespace, one.token_file)

    def _note(self, taken: ReadUpTo, context: Any) -> None:
        """Say on standard error whose data answers."""
        self.name = self.title = f"log of {taken.leader} in {context.name or 'this cluster'}"
        self.namespace = self._cluster.namespace or context.namespace or "default"
        last = f"up to session {taken.session} of {api.moment(taken.time)}" if taken.session else "no session yet"
        new = f"{taken.events:,} events new"
        if taken.age:
            new = f"as it was {api.span_in_words(taken.age)} ago, since another command takes it over"
        click.echo(f"{self.name}, {last}; {new}", err=True)


@contextmanager
def _told() -> Iterator[None]:
    """What no cluster can be read for, in a line."""
    try:
        yield
    except importlib.import_module("vcd.daemon.reader.kubeconfig").ClusterError as error:
        raise Unusable(str(error)) from None


def say(text: str) -> None:
    """Tell something beside what is asked for."""
    print_lines([text], err=True)


_ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the program as an exit does, so that a copy of a log goes with it; what is ignored, or
    somebody else's, stays so, and all of them where this is not the main thread, which alone is told of signals."""
    is_main = threading.current_thread() is threading.main_thread()
    ours = [number for number in _ENDING if is_main and signal.getsignal(number) is signal.SIG_DFL]

    def end(number: int, _: object) -> None:
        for each in ours:
            signal.signal(each, signal.SIG_IGN)  # a terminal that closes says so twice
        raise SystemExit(128 + number)

    try:
        for number in ours:
            signal.signal(number, end)
        yield
    finally:
        for number in ours:
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
        """The file, or where an older vcd wrote it a copy that is brought up to date. Where it may lack what is asked
        for, it is told by how much, and who has it. Raises LogError."""
        with _ended_by_signals(), api.up_to_date(self._path, say) as path, api.told_of_standing(self._path):
            if (found := api.standing(self._path)) and found.lacks:
                say(f"note: {found.words}")
            yield path

    @contextmanager
    def following(self) -> Iterator[FollowedLog]:
        """The same, to be looked at again and again."""
        with self.reading() as path:
            yield _Same(path)


@dataclass(frozen=True)
class _Same:
    """A file that no other takes the place of."""

    _path: Path

    @contextmanager
    def reading(self) -> Iterator[Path]:
        yield self._path

    def is_other(self, path: Path) -> bool:
        return path != self._path


EventLog = FileLog | ClusterLog
"""The log that a command reads."""

"""The files in which what was read of a log is kept for the next question: one writes, others read meanwhile.

A folder for each log holds ``lock``, which the one who writes has; ``state.json``, which says what the newest file is
and how far it goes; and the file, ``events-N.sqlite``. History that the leader has no more is taken out of the file;
where somebody is reading it, out of a copy that is the newest from then on. A log that is begun anew is written into
another file, which is the newest once it has all.
"""

from __future__ import annotations

import fcntl
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from pathlib import Path

import msgspec

from vcd.daemon.reader.kubeconfig import ClusterError
from vcd.eventlog.errors import DamagedLog, LogError, explained
from vcd.eventlog.rewinding import rewind
from vcd.eventlog.standing import SUFFIX
from vcd.eventlog.store import make_file, migrations, note_damage, uri_of

_NAME = re.compile(r"events-([0-9]+)\.sqlite")
_READERS, _FOLLOWERS = "-readers", "-followers"
"""Beside a file: what is locked by those who read it, and by those who follow it."""
_BESIDE = ("", "-wal", "-shm", "-journal", "-lock", "-damaged", SUFFIX, f"{SUFFIX}.new", _READERS, _FOLLOWERS)


class Busy(Exception):
    """Somebody else holds a lock."""


class State(msgspec.Struct, frozen=True):
    """What the newest file is: its name, whose log it is of, up to which event what is written goes and up to which the
    leader's did, when it last had all that the leader had (seconds since the epoch; 0: not yet), and what is written to
    take its place (empty: it is written itself)."""

    file: str
    leader: str = ""
    head: int = 0
    of: int = 0
    complete_at: float = 0.0
    successor: str = ""


class Cache:
    """The folder of one log. What keeps it from being kept is raised as ClusterError, which says how to mend it."""

    def __init__(self, folder: Path) -> None:
        """Make the folder, for its owner alone. Raises ClusterError."""
        self.folder = folder
        with mendable(folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for each in (folder.parent, folder):
                each.chmod(0o700)

    @classmethod
    def of(cls, server: str, lease: str) -> Cache:
        """That of a log, by its API server's address and its Lease, in the schema of this vcd. Raises ClusterError."""
        try:
            base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        except RuntimeError:
            raise ClusterError(
                "there is no home directory to keep a log in; let XDG_CACHE_HOME name a folder"
            ) from None
        key = f"{server}\n{lease}\n{migrations()[-1][0]}"  # an older or newer vcd beside this one has its own
        return cls(Path(base) / "vcd" / sha256(key.encode()).hexdigest()[:16])

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the right to write while the context lasts. Raises Busy."""
        with _locked(self.folder / "lock", fcntl.LOCK_EX | fcntl.LOCK_NB):
            yield

    @contextmanager
    def reading(self, beside: str = _READERS) -> Iterator[Path]:
        """The newest file, which stays as it is, but for what is added, while the context lasts. Where it turns out to
        be damaged, who writes it next looks through all of it."""
        while True:
            path = self.path
            with _locked(_of(path, beside), fcntl.LOCK_SH):
                if path != self.path:
                    continue
                try:
                    yield path
                except DamagedLog as error:
                    note_damage(path, str(error))
                    raise
                return

    @contextmanager
    def following(self) -> Iterator[Path]:
        """The same, but for history that gets too old or too large, as in the leader's own file."""
        with self.reading(_FOLLOWERS) as path:
            yield path

    @property
    def state(self) -> State | None:
        """What was last published; None for nothing."""
        file = self.folder / "state.json"
        with mendable(file), suppress(FileNotFoundError, msgspec.MsgspecError):
            return msgspec.json.decode(file.read_bytes(), type=State)
        return None

    @property
    def path(self) -> Path:
        """The newest file, also one that is not there yet."""
        state = self.state
        return self._named("" if state is None else state.file) or self.folder / "events-1.sqlite"

    @property
    def written(self) -> Path:
        """The file that is written: the newest, or what is to take its place."""
        state = self.state
        return self._named("" if state is None else state.successor) or self.path

    def _named(self, name: str) -> Path | None:
        return self.folder / name if _NAME.fullmatch(name) else None

    # --- for who writes ---------------------------------------------------------------------------------------------

    def publish(self, state: State) -> None:
        """Say what the newest file is."""
        new = self.folder / "state.json.new"
        with mendable(new):
            new.write_bytes(msgspec.json.encode(state))
            new.replace(self.folder / "state.json")

    def go_back(self, to: int | None) -> None:
        """Take what is written back to an event, or begin another file to take its place (None). Raises DamagedLog for
        what cannot be taken back."""
        path = self.written
        if to is not None:
            with suppress(Busy), self._unused(path), mendable(path):
                rewind(path, to)
                return
        number = _NAME.fullmatch(path.name)
        new = path.with_name(f"events-{1 + int(number[1] if number else 0)}.sqlite")
        _remove(new)
        if to is None:
            self.publish(State(self.path.name, successor=new.name))
        else:
            _copy(path, new, to)
            self.publish(State(new.name))
        self.clear()

    @contextmanager
    def unread(self) -> Iterator[None]:
        """Let nobody begin to read what is written while the context lasts; who follows goes on. Raises Busy where
        somebody reads."""
        with _locked(_of(self.written, _READERS), fcntl.LOCK_EX | fcntl.LOCK_NB):
            yield

    @contextmanager
    def _unused(self, path: Path) -> Iterator[None]:
        """Let nobody begin to read or to follow a file. Raises Busy where somebody does."""
        alone = fcntl.LOCK_EX | fcntl.LOCK_NB
        with _locked(_of(path, _READERS), alone), _locked(_of(path, _FOLLOWERS), alone):
            yield

    def clear(self) -> None:
        """Remove the files that are neither read any more nor written."""
        needed = {self.path, self.written}
        with mendable(self.folder):
            others = [each for each in self.folder.iterdir() if _NAME.fullmatch(each.name) and each not in needed]
        for each in others:
            with suppress(Busy), self._unused(each):
                _remove(each)


@contextmanager
def mendable(path: Path) -> Iterator[None]:
    """Turn what keeps a file from being kept into a ClusterError that says how to mend it; that it is damaged, which is
    mended by beginning it anew, into DamagedLog."""
    try:
        yield
    except (LogError, OSError, sqlite3.Error) as error:
        said = explained(path, error)
        if isinstance(said, DamagedLog):
            raise said from error
        raise ClusterError(f"{said}; or let XDG_CACHE_HOME name another folder") from error


def _of(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


@contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    with mendable(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with mendable(path):
            try:
                fcntl.flock(descriptor, how)
            except BlockingIOError as error:
                raise Busy from error
        yield
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    with mendable(path):
        for suffix in _BESIDE:
            _of(path, suffix).unlink(missing_ok=True)


def _copy(path: Path, new: Path, to: int) -> None:
    """Copy a file, and take the copy back to an event; nothing is left of one that cannot be made."""
    uri = uri_of(path, "mode=ro")
    try:
        with mendable(new):
            make_file(new)
            with closing(sqlite3.connect(uri, uri=True)) as source, closing(sqlite3.connect(new)) as target:
                source.backup(target)
            rewind(new, to)
    except (ClusterError, DamagedLog):
        _remove(new)
        raise

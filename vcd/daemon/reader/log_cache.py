"""The cache folder of a cluster's log: one command writes it while other commands read it.

A folder has ``lock``, held by the writing process, ``state.json``, which names the newest file and its extent, and the
file ``events-N.sqlite``. History that the leader removed is removed from the file too, or, if a command reads the file,
from a copy that becomes the newest file. If the log is replaced, another file is written; it becomes the newest once it
is complete.

Before changing it: readers rely on a file that only grows while they hold its lock.
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
from vcd.eventlog.log_errors import DamagedLog, LogError, explain_error
from vcd.eventlog.log_file import NOTE_SUFFIX, create_file, migrations, note_damage, sqlite_uri
from vcd.eventlog.rewind import rewind
from vcd.eventlog.writer_status import SUFFIX

_NAME = re.compile(r"events-([0-9]+)\.sqlite")
_READERS, _FOLLOWERS = "-readers", "-followers"
"""Suffixes of the lock files of readers and of followers."""
_SUFFIXES = ("", "-wal", "-shm", "-journal", "-lock", NOTE_SUFFIX, SUFFIX, f"{SUFFIX}.new", _READERS, _FOLLOWERS)


class Busy(Exception):
    """Another process holds a lock."""


class State(msgspec.Struct, frozen=True):
    """The newest file: its name, the leader it was copied from, the last event of the written file (``head``) and of
    the leader's log (``of``), when it was last complete (seconds since the epoch; 0: never), and the file that will
    replace it (empty: it is written itself)."""

    file: str
    leader: str = ""
    head: int = 0
    of: int = 0
    complete_at: float = 0.0
    successor: str = ""


class Cache:
    """The folder of one log. Errors of the file system are raised as ClusterError, which states how to fix them."""

    def __init__(self, folder: Path) -> None:
        """Create the folder for its owner only. Raises ClusterError."""
        self.folder = folder
        with explained_errors(folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for each in (folder.parent, folder):
                each.chmod(0o700)

    @classmethod
    def of(cls, server: str, lease: str) -> Cache:
        """Return the folder for an API server, a Lease and this vcd's schema. Raises ClusterError."""
        try:
            base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        except RuntimeError:
            raise ClusterError(
                "there is no home directory for the copy of a log; set XDG_CACHE_HOME to a folder"
            ) from None
        key = f"{server}\n{lease}\n{migrations()[-1][0]}"  # other versions of vcd have their own folder
        return cls(Path(base) / "vcd" / sha256(key.encode()).hexdigest()[:16])

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the writer's lock while the context lasts. Raises Busy."""
        with _locked(self.folder / "lock", fcntl.LOCK_EX | fcntl.LOCK_NB):
            yield

    @contextmanager
    def reading(self, beside: str = _READERS) -> Iterator[Path]:
        """Return the newest file, which only grows while the context lasts.

        If the file turns out to be damaged, this marks it, and the next writer verifies all of it.
        """
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
        """Return the newest file, which grows and is subject to retention while the context lasts."""
        with self.reading(_FOLLOWERS) as path:
            yield path

    @property
    def state(self) -> State | None:
        """Return the last published state, if any."""
        file = self.folder / "state.json"
        with explained_errors(file), suppress(FileNotFoundError, msgspec.MsgspecError):
            return msgspec.json.decode(file.read_bytes(), type=State)
        return None

    @property
    def path(self) -> Path:
        """Return the newest file, which may not exist yet."""
        state = self.state
        return self._path_of("" if state is None else state.file) or self.folder / "events-1.sqlite"

    @property
    def written(self) -> Path:
        """Return the file to write: the newest, or its successor."""
        state = self.state
        return self._path_of("" if state is None else state.successor) or self.path

    def _path_of(self, name: str) -> Path | None:
        return self.folder / name if _NAME.fullmatch(name) else None

    # --- for the writing process -------------------------------------------------------------------------------------

    def publish(self, state: State) -> None:
        """Publish the newest file."""
        new = self.folder / "state.json.new"
        with explained_errors(new):
            new.write_bytes(msgspec.json.encode(state))
            new.replace(self.folder / "state.json")

    def go_back(self, to: int | None) -> None:
        """Rewind the written file to an event, or begin a successor (None). Raises DamagedLog."""
        path = self.written
        if to is not None:
            with suppress(Busy), self._unused(path), explained_errors(path):
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
        """Keep new readers, but not followers, away from the written file. Raises Busy if it has readers."""
        with _locked(_of(self.written, _READERS), fcntl.LOCK_EX | fcntl.LOCK_NB):
            yield

    @contextmanager
    def _unused(self, path: Path) -> Iterator[None]:
        """Keep new readers and followers away from a file. Raises Busy if it has any."""
        alone = fcntl.LOCK_EX | fcntl.LOCK_NB
        with _locked(_of(path, _READERS), alone), _locked(_of(path, _FOLLOWERS), alone):
            yield

    def clear(self) -> None:
        """Remove files that are neither read nor written."""
        needed = {self.path, self.written}
        with explained_errors(self.folder):
            others = [each for each in self.folder.iterdir() if _NAME.fullmatch(each.name) and each not in needed]
        for each in others:
            with suppress(Busy), self._unused(each):
                _remove(each)


@contextmanager
def explained_errors(path: Path) -> Iterator[None]:
    """Turn errors of a cached file into ClusterError with a remedy, or DamagedLog, if a new file is needed."""
    try:
        yield
    except (LogError, OSError, sqlite3.Error) as error:
        said = explain_error(path, error)
        if isinstance(said, DamagedLog):
            raise said from error
        raise ClusterError(f"{said}; or set XDG_CACHE_HOME to another folder") from error


def _of(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


@contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    with explained_errors(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with explained_errors(path):
            try:
                fcntl.flock(descriptor, how)
            except BlockingIOError as error:
                raise Busy from error
        yield
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    with explained_errors(path):
        for suffix in _SUFFIXES:
            _of(path, suffix).unlink(missing_ok=True)


def _copy(path: Path, new: Path, to: int) -> None:
    """Copy a file and rewind the copy to an event; remove a copy that fails."""
    uri = sqlite_uri(path, "mode=ro")
    try:
        with explained_errors(new):
            create_file(new)
            with closing(sqlite3.connect(uri, uri=True)) as source, closing(sqlite3.connect(new)) as target:
                source.backup(target)
            rewind(new, to)
    except (ClusterError, DamagedLog):
        _remove(new)
        raise

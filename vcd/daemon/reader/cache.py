"""The files in which what was read of a log is kept for the next question: one writes, others read meanwhile.

A folder for each log holds ``lock``, which the one who writes has; ``state.json``, which says what the newest file is
and how far it goes; and the file, ``events-N.sqlite``. History that the leader has no more is taken out of the file;
where somebody is reading it, out of a copy that is the newest from then on.
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
from urllib.parse import quote

import msgspec

from vcd.eventlog.rewinding import rewind

_NAME = re.compile(r"events-([0-9]+)\.sqlite")
_BESIDE = ("", "-wal", "-shm", "-lock", "-damaged", "-readers")


class Busy(Exception):
    """Somebody else holds a lock."""


class State(msgspec.Struct, frozen=True):
    """What the newest file is: its name, whose log it is of, up to which event it goes and up to which the leader's
    did, and when it last had all that the leader had (seconds since the epoch; 0: not yet)."""

    file: str
    leader: str = ""
    head: int = 0
    of: int = 0
    complete_at: float = 0.0


class Cache:
    """The folder of one log."""

    def __init__(self, folder: Path) -> None:
        """Make the folder, for its owner alone. Raises OSError."""
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in (folder.parent, folder):
            each.chmod(0o700)

    @classmethod
    def of(cls, server: str, lease: str) -> Cache:
        """That of a log, by its API server's address and its Lease. Raises OSError."""
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        return cls(Path(base) / "vcd" / sha256(f"{server}\n{lease}".encode()).hexdigest()[:16])

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the right to write while the context lasts. Raises Busy."""
        with _locked(self.folder / "lock", fcntl.LOCK_EX | fcntl.LOCK_NB):
            yield

    @contextmanager
    def reading(self) -> Iterator[Path]:
        """The newest file, which stays as it is, but for what is added, while the context lasts."""
        while True:
            path = self.path
            with _locked(_readers(path), fcntl.LOCK_SH):
                if path == self.path:
                    yield path
                    return

    @property
    def state(self) -> State | None:
        """What was last published; None for nothing."""
        try:
            return msgspec.json.decode((self.folder / "state.json").read_bytes(), type=State)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    @property
    def path(self) -> Path:
        """The newest file, also one that is not there yet."""
        state = self.state
        named = state is not None and _NAME.fullmatch(state.file) is not None
        return self.folder / (state.file if state is not None and named else "events-1.sqlite")

    # --- for who writes ---------------------------------------------------------------------------------------------

    def publish(self, state: State) -> None:
        """Say what the newest file is. Raises OSError."""
        new = self.folder / "state.json.new"
        new.write_bytes(msgspec.json.encode(state))
        new.replace(self.folder / "state.json")

    def go_back(self, to: int | None) -> None:
        """Take the newest file back to an event, or begin a new one (None). Raises LogError and OSError."""
        path = self.path
        if to is not None:
            with suppress(Busy), self.unread():
                rewind(path, to)
                return
        number = _NAME.fullmatch(path.name)
        new = path.with_name(f"events-{1 + int(number[1] if number else 0)}.sqlite")
        _remove(new)
        if to is not None:
            _copy(path, new)
            rewind(new, to)
        self.publish(State(new.name))
        self.clear()

    @contextmanager
    def unread(self) -> Iterator[None]:
        """Let nobody begin to read the newest file while the context lasts. Raises Busy where somebody does."""
        with _locked(_readers(self.path), fcntl.LOCK_EX | fcntl.LOCK_NB):
            yield

    def clear(self) -> None:
        """Remove the files that are not the newest and that nobody reads."""
        newest = self.path
        for each in self.folder.iterdir():
            if _NAME.fullmatch(each.name) and each != newest:
                with suppress(Busy), _locked(_readers(each), fcntl.LOCK_EX | fcntl.LOCK_NB):
                    _remove(each)


def _readers(path: Path) -> Path:
    return path.with_name(path.name + "-readers")


@contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, how)
        except BlockingIOError as error:
            raise Busy from error
        yield
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    for suffix in _BESIDE:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _copy(path: Path, new: Path) -> None:
    os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    uri = f"file:{quote(str(path))}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as source, closing(sqlite3.connect(new)) as target:
        source.backup(target)

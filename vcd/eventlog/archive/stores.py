"""Stores for segments: a directory, or a bucket of an S3-compatible store.

A store knows names and bytes only; `segments.py` knows their content. Several replicas can use one store at once: a
blob becomes visible under its name only when it is complete, and is never overwritten with other content.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from vcd.eventlog.archive.segment_names import END, ArchiveSegment
from vcd.eventlog.log_errors import LogError

_PARTIAL = ".partial"
_ABANDONED_AFTER = 3600.0
"""Seconds without a write after which a partial file belongs to a dead process."""
_CLIENT_CONFIG = {
    "connect_timeout": 10,
    "read_timeout": 60,
    "retries": {"mode": "standard", "max_attempts": 3},
    "request_checksum_calculation": "when_required",
    "response_checksum_validation": "when_required",
}
"""Time-outs in seconds, and attempts per call; a failed run is repeated later. Checksums are off where possible:
S3-compatible stores from before 2025 refuse the trailers, and segments have digests."""
_S3 = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>.*))?", re.DOTALL)


class ArchiveError(LogError):
    """An archive cannot be used."""


class ArchiveStore(Protocol):
    """Named blobs. Every method raises ArchiveError."""

    def sizes(self) -> dict[str, int]:
        """Return the size in bytes of every blob, by name."""

    def put(self, name: str, data: bytes) -> None:
        """Store a blob atomically."""

    def get(self, name: str) -> bytes:
        """Return a blob."""

    def delete(self, name: str) -> None:
        """Delete a blob, if it exists."""

    def tidy(self) -> None:
        """Delete what dead processes have left unfinished."""


def check_place(where: str) -> None:
    """Raise ArchiveError unless a text is the name of a directory or bucket; it need not exist."""
    if where.startswith("s3://"):
        if not _S3.fullmatch(where):
            raise ArchiveError(f"archive {where}: write it as s3://BUCKET or s3://BUCKET/PREFIX")
    elif re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*://", where):
        raise ArchiveError(f"archive {where}: it is neither a directory nor s3://BUCKET/PREFIX")


def store_of(where: str) -> ArchiveStore:
    """Return the store that a text names: a directory, or ``s3://BUCKET/PREFIX``. Raises ArchiveError."""
    check_place(where)
    return _Bucket(where) if where.startswith("s3://") else _Directory(Path(where))


class _Directory:
    """A directory, which must exist: creating it could hide that its volume is not mounted."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def sizes(self) -> dict[str, int]:
        with self._translate_errors():
            if not self._path.is_dir():
                raise ArchiveError(f"archive {self._path}: there is no such directory; mount it, or make it")
            found = {}
            for each in self._path.iterdir():
                with contextlib.suppress(FileNotFoundError):  # another replica can delete it at any time
                    status = each.stat()
                    if stat.S_ISREG(status.st_mode) and each.suffix != _PARTIAL:
                        found[each.name] = status.st_size
            return found

    def put(self, name: str, data: bytes) -> None:
        # a unique name, because another process may be writing the same segment
        partial = self._path / f"{name}.{secrets.token_hex(4)}{_PARTIAL}"
        with self._translate_errors():
            try:
                descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(descriptor, "wb") as file:
                    with contextlib.suppress(OSError):  # without locks, `tidy` uses the age only
                        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    file.write(data)
                    file.flush()
                    os.fsync(descriptor)
                partial.rename(self._path / name)
            except OSError:
                with contextlib.suppress(OSError):  # report the first error
                    partial.unlink()
                raise
            self._sync()

    def get(self, name: str) -> bytes:
        with self._translate_errors():
            return (self._path / name).read_bytes()

    def delete(self, name: str) -> None:
        with self._translate_errors():
            (self._path / name).unlink(missing_ok=True)

    def tidy(self) -> None:
        with self._translate_errors():
            for each in self._path.glob(f"*{_PARTIAL}"):
                if ArchiveSegment.read(each.name.split(END)[0] + END) is not None:
                    self._remove_abandoned(each)

    def _remove_abandoned(self, partial: Path) -> None:
        """Delete a partial file without recent writes, unless its writer holds the lock, as a suspended process does.

        A writer whose file was deleted fails to rename it and ships again.
        """
        try:
            if time.time() - partial.stat().st_mtime > _ABANDONED_AFTER and not _is_locked(partial):
                partial.unlink()
        except (FileNotFoundError, PermissionError):
            return  # another replica removed it, or another user's process will

    def _sync(self) -> None:
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ArchiveError(f"archive {self._path}: {error.strerror or error}") from error


def _is_locked(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    finally:
        os.close(descriptor)
    return False


class _Bucket:
    """A bucket. Credentials, region and endpoint are found as by every AWS tool."""

    def __init__(self, where: str) -> None:
        self._where = where
        match = _S3.fullmatch(where)
        assert match is not None
        self._bucket, prefix = match["bucket"], (match["prefix"] or "").strip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        try:
            session, config = (importlib.import_module(f"botocore.{name}") for name in ("session", "config"))
            self._errors: Any = importlib.import_module("botocore.exceptions")
        except ModuleNotFoundError as error:
            raise ArchiveError(
                f"archive {where}: needs an S3 client: pip install botocore, or vcd's wheel with its extra [s3]"
            ) from error
        with self._translate_errors():
            self._client: Any = session.Session().create_client("s3", config=config.Config(**_CLIENT_CONFIG))

    def sizes(self) -> dict[str, int]:
        found = {}
        with self._translate_errors():
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix, Delimiter="/"):
                for each in page.get("Contents", ()):
                    found[each["Key"].removeprefix(self._prefix)] = int(each["Size"])
        return found

    def put(self, name: str, data: bytes) -> None:
        with self._translate_errors():
            self._client.put_object(Bucket=self._bucket, Key=self._prefix + name, Body=data)

    def get(self, name: str) -> bytes:
        with self._translate_errors():
            data: bytes = self._client.get_object(Bucket=self._bucket, Key=self._prefix + name)["Body"].read()
            return data

    def delete(self, name: str) -> None:
        with self._translate_errors():
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + name)

    def tidy(self) -> None:
        """Do nothing: S3 stores no partial objects."""

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (self._errors.BotoCoreError, self._errors.ClientError, ValueError, OSError) as error:
            raise ArchiveError(f"archive {self._where}: {error}") from error

"""Errors about log files, with messages that state what is wrong, where, and what to do."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path


class LogError(Exception):
    """The event log cannot be used."""


class NewerSchema(LogError):
    """A newer vcd wrote the file."""


class SessionNotFound(LogError):
    """The session is not in the file."""


class DamagedLog(LogError):
    """The file is not a log or is incomplete; only another file can replace it."""


_DAMAGED = "it is truncated or damaged; restore a copy, or start a new file"
_CAUSES = (
    ("SQLITE_FULL", "the disk is full, or the file may not grow; free space and restart"),
    ("SQLITE_IOERR", "the disk does not read or write it; check the disk, its quota and file size limits, and restart"),
    ("SQLITE_BUSY", "another program holds it locked; end that program"),
    ("SQLITE_LOCKED", "another program holds it locked; end that program"),
    ("SQLITE_NOTADB", "it is not a vcd log; name another file"),
    ("SQLITE_CORRUPT", _DAMAGED),
    ("SQLITE_CANTOPEN", "it cannot be opened; check that the directory exists and may be written"),
    ("SQLITE_READONLY", "no permission to write it or its directory; check owner and mode"),
    ("SQLITE_PERM", "it may not be accessed; check owner and mode"),
    ("SQLITE_CONSTRAINT", "an event is in it already, with the same number"),
)
_FULL = (errno.ENOSPC, errno.EDQUOT)


def explain_error(path: Path, error: Exception) -> LogError:
    """Return the LogError for a failed access to ``path``."""
    if isinstance(error, LogError):
        return DamagedLog(str(error)) if isinstance(error, DamagedLog) else LogError(str(error))
    name, made = sqlite_name(error), DamagedLog if is_damage(error) else LogError
    for prefix, cause in _CAUSES:
        if name.startswith(prefix):
            return made(f"event log {path}: {cause} (SQLite: {error})")
    if is_damage(error):
        return made(f"event log {path}: {_DAMAGED} (a text in it, or in SQLite's message, is not UTF-8)")
    if isinstance(error, sqlite3.DatabaseError):
        return LogError(f"event log {path}: SQLite reports {error}")
    if isinstance(error, OSError) and error.errno in _FULL:
        return LogError(f"event log {path}: {error.strerror}; free space and restart")
    if isinstance(error, OSError):
        return LogError(f"event log {path}: {error.strerror or error}; check the path, its owner and mode")
    return LogError(f"event log {path}: {type(error).__name__}: {error}")


def sqlite_name(error: Exception) -> str:
    """Return SQLite's name of an error; empty for errors that Python raises, such as for invalid UTF-8."""
    return str(getattr(error, "sqlite_errorname", ""))


def is_damage(error: Exception) -> bool:
    """Return whether the file itself is wrong: SQLite reports corruption, or a text in it is not UTF-8."""
    is_no_text = isinstance(error, UnicodeDecodeError) or str(error).startswith("Could not decode to UTF-8")
    return is_no_text or sqlite_name(error).startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))

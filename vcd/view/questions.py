"""What the page asks about a log. This runs in a process of its own, so that a heavy question stops nobody's loop."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable
from functools import lru_cache
from multiprocessing import connection
from pathlib import Path

import msgspec

from vcd import api

PAGE = 2000
"""Sessions in one answer at most."""

_PATIENCE = 10
"""By how much it is nicer than the process that schedules: explaining waits, binding does not."""

Answer = tuple[int, bytes]
"""HTTP's status, and JSON."""


def begin() -> None:
    """Set a new worker process up: Ctrl-C is for the one who started it, and with that one it ends; work of others that
    wants the processor goes first."""
    os.nice(_PATIENCE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


def answer(path: str, question: str, given: tuple[str, ...]) -> Answer:
    """The answer to one of QUESTIONS about the log at ``path``; mistakes of the asker and of the file are answers, too.

    ``given`` are the values of the question's parameters, as they were written; empty for what was not given.
    """
    _, ask = QUESTIONS[question]
    try:
        return 200, ask(path, *given)
    except _Mistake as error:
        return _error(400, str(error))
    except api.NotFound as error:
        return _error(404, str(error))
    except api.LogError as error:
        return _error(500, str(error))
    except BaseException:
        _opened.cache_clear()  # it may have stopped half-way through a fold
        raise


def _error(status: int, sentence: str) -> Answer:
    if status == 500:
        _opened.cache_clear()
    return status, msgspec.json.encode({"error": sentence})


class _Mistake(Exception):
    """A parameter that cannot be read; the message says how to write it."""


# --- parameters -------------------------------------------------------------------------------------------------------


def _number(name: str, text: str, default: int) -> int:
    if not text:
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > 15:
        raise _Mistake(f"{name}: {text[:40]!r} is no session's number; write one such as {name}=1")
    return int(text)


def _session(path: str, name: str, text: str) -> int:
    """A session that is in the log; the last one where none is given."""
    ends = api.ends(_log(path).history)
    number = _number(name, text, ends.last)
    if not ends.last:
        raise api.NotFound("no session is in the log yet")
    if not ends.first <= number <= ends.last:
        raise api.NotFound(f"session {number} is not in the log; it has sessions {ends.first} to {ends.last}")
    return number


# --- questions --------------------------------------------------------------------------------------------------------


def _log(path: str) -> api.Log:
    file = Path(path)
    return _opened(path, file.stat().st_ino if file.exists() else 0)


@lru_cache(maxsize=1)
def _opened(path: str, file: int) -> api.Log:
    """The log of a file; nothing that is known of another one counts, though it had the same name."""
    _overview_of.cache_clear()
    _told.cache_clear()
    _job_at.cache_clear()
    _eta_at.cache_clear()
    return api.open(path)


def _head(path: str) -> bytes:
    return msgspec.json.encode(api.ends(_log(path).history))


def _sessions(path: str, first: str, last: str) -> bytes:
    ends = api.ends(_log(path).history)
    start, end = _number("from", first, ends.first), _number("to", last, ends.last)
    if end - start >= PAGE:
        raise _Mistake(f"from={start} to={end}: at most {PAGE} sessions are given at once; ask for fewer")
    return msgspec.json.encode(list(api.session_lines(_log(path).history, start, end)))


def _overview(path: str, session: str) -> bytes:
    return _overview_of(path, _session(path, "session", session))


@lru_cache(maxsize=16)
def _overview_of(path: str, number: int) -> bytes:
    """What a session left never changes, whatever is logged after it."""
    return msgspec.json.encode(api.overview(_log(path).history, number))


def _plan(path: str, number: str) -> bytes:
    return _told(path, _session(path, "number", number), api.ends(_log(path).history).head)


@lru_cache(maxsize=128)
def _told(path: str, number: int, head: int) -> bytes:
    """A session as of the log's head: outcomes of the calls, and the session after it, may come later."""
    return msgspec.json.encode({"session": number, "lines": _indented(_log(path).session(number).lines())})


def _job(path: str, key: str, session: str) -> bytes:
    namespace, slash, name = key.partition("/")
    if not (namespace and slash and name):
        raise _Mistake(f"key: {key[:80]!r} names no job; write one such as key=default/train")
    return _job_at(path, key, _session(path, "session", session))


@lru_cache(maxsize=128)
def _job_at(path: str, key: str, session: int) -> bytes:
    """A job as it was at a session: its title, its verdict where it waited, and its story."""
    job = _log(path).job(key, session=session)
    title, *story = job.story().lines()
    try:
        verdict = list(job.verdict().lines())
    except api.NotFound:  # it never waited
        verdict = []
    lines = _indented([title, *verdict, *story])
    return msgspec.json.encode({"key": key, "session": session, "lines": lines})


def _eta(path: str, key: str, session: str) -> bytes:
    return _eta_at(path, key, _session(path, "session", session))


@lru_cache(maxsize=128)
def _eta_at(path: str, key: str, session: int) -> bytes:
    """When a job starts that waits after a session, or did; what a session left never changes, nor is chance in it."""
    log = _log(path)
    job = log.job(key, session=session).story().key
    lines = api.eta_in_words(api.eta(log.history.reader.path, job, session=session))
    return msgspec.json.encode({"key": key, "session": session, "lines": _indented(lines)})


def _indented(lines: Iterable[str]) -> list[tuple[int, str]]:
    """Each line with the depth of its indent, since a page does not indent by spaces."""
    return [((len(line) - len(line.lstrip(" "))) // 2, line.strip()) for line in lines]


QUESTIONS: dict[str, tuple[tuple[str, ...], Callable[..., bytes]]] = {
    "head": ((), _head),
    "sessions": (("from", "to"), _sessions),
    "overview": (("session",), _overview),
    "session": (("number",), _plan),
    "job": (("key", "session"), _job),
    "eta": (("key", "session"), _eta),
}
"""The questions by name: their parameters, and who answers them."""
LONG = frozenset({"eta"})
"""Questions that may take many seconds: nobody else is to wait for them."""

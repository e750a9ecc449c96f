"""The world outside as deciding code sees it: one question, one answer, and a record of both (design law 2).

Deciding code asks through ``session.outside`` and in no other way. The daemon asks over HTTP and keeps what was
answered in the session's row; a replay answers from that record, so the same session decides the same without a
network. Where nobody can be asked (``vcd plan``), every answer is an error, which each plugin treats as its own
settings say.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from vcd.model.events import Asked

NOT_ASKED = "not asked then"
"""The error that answers, in a replay, what the recorded session did not ask."""

_DIGEST_BYTES = 16
_URLS_USER_INFO = re.compile(r"""([A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#"']*@""")
_PASSWORD = r"""(["']?elasticsearch\.password["']?[ \t]*:[ \t]*)"""
_PASSWORD_LINE = re.compile(rf"^([ \t]*){_PASSWORD}(?![ \t]*$).+$", re.MULTILINE)
_PASSWORD_INLINE = re.compile(rf"(?<=[{{,])([ \t]*){_PASSWORD}[^,}}\n]+")
_HIDDEN = r'\1\2"(not logged)"'
_USER_INFO = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)?[^/?#]*@")


@dataclass(frozen=True, slots=True)
class Question:
    """What a plugin asks: ``body`` is sent to ``url`` as JSON by POST.

    ``timeout`` is in nanoseconds, for the whole exchange; ``limit`` the most bytes an answer may have.
    """

    plugin: str
    url: str
    body: bytes
    timeout: int
    limit: int

    def digest(self) -> bytes:
        """What identifies it in a record; of user and password in the URL it holds nothing."""
        head = "\n".join((self.plugin, without_user_info(self.url), str(self.timeout), str(self.limit), ""))
        return hashlib.blake2b(head.encode() + self.body, digest_size=_DIGEST_BYTES).digest()


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of a question: ``body``, or the ``error`` in words that kept it from coming."""

    body: bytes = b""
    error: str = ""


class Outside(Protocol):
    """Whom a session asks."""

    def ask(self, question: Question) -> Reply:
        """The answer to a question; never raises."""


class Nobody:
    """Answers every question with an error."""

    def ask(self, question: Question) -> Reply:
        return Reply(error="nobody to ask")


NOBODY = Nobody()


class Recorder:
    """Asks another one, and keeps what was asked and answered, in order."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._asked: list[Asked] = []

    def ask(self, question: Question) -> Reply:
        reply = self._outside.ask(question)
        self._asked.append(Asked(question.digest(), reply.body, reply.error))
        return reply

    def restart(self) -> None:
        """Forget what was asked: the session that asked it was interrupted, and is decided from its beginning again."""
        self._asked.clear()

    @property
    def asked(self) -> tuple[Asked, ...]:
        """Everything so far."""
        return tuple(self._asked)


class Recorded:
    """Answers from a record, question by question in its order: what a replay asks.

    A question that is not the recorded one at its place is answered by the error ``NOT_ASKED``; ``departure`` says
    at which place that first was so.
    """

    def __init__(self, asked: Sequence[Asked]) -> None:
        self._asked = asked
        self._next = 0
        self._departure: tuple[str, str, str] | None = None

    def ask(self, question: Question) -> Reply:
        place, self._next = self._next, self._next + 1
        known = self._asked[place] if place < len(self._asked) else None
        if known is not None and known.question == question.digest():
            return Reply(known.answer, known.error)
        if self._departure is None:
            self._departure = (_at(place), _in_words(known), f"one of {question.plugin}, {question.digest().hex()}")
        return Reply(error=NOT_ASKED)

    def departure(self) -> tuple[str, str, str] | None:
        """Once the session is over: where its questions first differ from the record, what was recorded there, and
        what was asked now; None when they are the same."""
        if self._departure is None and self._next < len(self._asked):
            return _at(self._next), _in_words(self._asked[self._next]), "none"
        return self._departure


class Remembered:
    """Answers from a record whatever the order, for who looks at a session closer than the session did itself.

    A question that was asked several times gets its answers in turn, and the last one again after that.
    """

    def __init__(self, asked: Sequence[Asked]) -> None:
        self._replies: dict[bytes, deque[Reply]] = {}
        for one in asked:
            self._replies.setdefault(one.question, deque()).append(Reply(one.answer, one.error))

    def ask(self, question: Question) -> Reply:
        replies = self._replies.get(question.digest())
        if not replies:
            return Reply(error=NOT_ASKED)
        return replies.popleft() if len(replies) > 1 else replies[0]


def without_user_info(url: str) -> str:
    """A URL without the user and password that it may name."""
    return _USER_INFO.sub(lambda found: found[1] or "", url, count=1)


def without_secrets(text: str) -> str:
    """A configuration file without users and passwords: of its URLs, and of ``metrics``."""
    text = _URLS_USER_INFO.sub(r"\1", text)
    return _PASSWORD_INLINE.sub(_HIDDEN, _PASSWORD_LINE.sub(_HIDDEN, text))


def _at(place: int) -> str:
    return f"question {place} to the world outside"


def _in_words(asked: Asked | None) -> str:
    if asked is None:
        return "none"
    became = asked.error or f"answered with {len(asked.answer)} bytes"
    return f"{asked.question.hex()}, {became}"

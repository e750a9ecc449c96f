"""The only way from deciding code to outside services: ``session.outside`` (docs/laws.md, law 2).

The daemon sends each question over HTTP and stores the answers with the session. A replay reads them from there, so the
same session decides the same without a network. If no service can be called (``vcd plan``), every answer is an error,
and each plugin treats it as its settings state.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from vcd.model.events import Asked

NOT_ASKED = "not asked then"
"""The error in a replay for a question that the recorded session did not send."""
OUT_OF_TIME = "the time that it has in one session is used up"
"""The error for a question of a plugin that has used up its time in this session."""

_DIGEST_BYTES = 16
_URLS_USER_INFO = re.compile(r"""([A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#"']*@""")
_PASSWORD = r"""(["']?elasticsearch\.password["']?[ \t]*:[ \t]*)"""
_PASSWORD_LINE = re.compile(rf"^([ \t]*){_PASSWORD}(?![ \t]*$).+$", re.MULTILINE)
_PASSWORD_INLINE = re.compile(rf"(?<=[{{,])([ \t]*){_PASSWORD}[^,}}\n]+")
_HIDDEN = r'\1\2"(not logged)"'
_USER_INFO = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)?[^/?#]*@")


class Question(msgspec.Struct, frozen=True):
    """A question of a plugin: ``body`` is sent to ``url`` as JSON by POST.

    ``timeout`` is in nanoseconds, for the whole exchange; ``limit`` is the most bytes of an answer.
    """

    plugin: str
    url: str
    body: bytes
    timeout: int
    limit: int

    def digest(self) -> bytes:
        """Return the identity of the question in a record. It does not depend on user and password in the URL."""
        head = "\n".join((self.plugin, without_user_info(self.url), str(self.timeout), str(self.limit), ""))
        return hashlib.blake2b(head.encode() + self.body, digest_size=_DIGEST_BYTES).digest()


class Reply(msgspec.Struct, frozen=True):
    """The reply to a question: ``body``, or the ``error`` in words that prevented it."""

    body: bytes = b""
    error: str = ""


class Outside(Protocol):
    """Sends a session's questions to outside services."""

    def ask(self, question: Question) -> Reply:
        """Return the reply to a question; never raises."""

    def ask_all(self, questions: Sequence[Question], within: int) -> list[Reply]:
        """Return the replies to a plugin's questions in their order, possibly sent concurrently; never raises.

        ``within`` is the time in nanoseconds that these questions may take. After the first reply OUT_OF_TIME, all
        replies are OUT_OF_TIME.
        """


class OneByOne:
    """Base of implementations that answer one question at a time, without a time limit."""

    def ask(self, question: Question) -> Reply:
        """Return the reply to a question; never raises."""
        raise NotImplementedError

    def ask_all(self, questions: Sequence[Question], within: int) -> list[Reply]:
        replies: list[Reply] = []
        for question in questions:
            replies.append(self.ask(question))
            if replies[-1].error == OUT_OF_TIME:
                break
        return _end_at_out_of_time(replies, len(questions))


class Nobody(OneByOne):
    """Answers every question with an error."""

    def ask(self, question: Question) -> Reply:
        return Reply(error="nobody to ask")


NOBODY = Nobody()


class Recorder:
    """Forwards a session's questions, and records questions and replies in order.

    ``clock`` returns nanoseconds, to count the time that each plugin's questions take; the default counts none.
    """

    def __init__(self, outside: Outside, clock: Callable[[], int] = lambda: 0) -> None:
        self._outside = outside
        self._clock = clock
        self._exchanges: list[Asked] = []
        self._spent: dict[str, int] = {}

    def ask(self, question: Question) -> Reply:
        reply = self._outside.ask(question)
        self._record(question, reply)
        return reply

    def ask_all(self, questions: Sequence[Question], within: int) -> list[Reply]:
        if not questions:
            return []
        plugin = questions[0].plugin
        left = within - self._spent.get(plugin, 0)
        began = self._clock()
        try:
            replies = self._outside.ask_all(questions, left) if left > 0 else [Reply(error=OUT_OF_TIME)]
        finally:
            self._spent[plugin] = self._spent.get(plugin, 0) + self._clock() - began
        for question, reply in zip(questions, replies, strict=False):
            self._record(question, reply)
            if reply.error == OUT_OF_TIME:
                break  # all later replies are out of time, too
        return _end_at_out_of_time(replies, len(questions))

    def _record(self, question: Question, reply: Reply) -> None:
        self._exchanges.append(Asked(question.digest(), reply.body, reply.error))

    def restart(self) -> None:
        """Forget the record, because the session was interrupted and is decided again from its beginning. The time that
        it used remains counted."""
        self._exchanges.clear()

    @property
    def asked(self) -> tuple[Asked, ...]:
        """All questions and replies so far."""
        return tuple(self._exchanges)


class Recorded(OneByOne):
    """Answers questions from a record in its order, for a replay.

    A question that differs from the recorded one at its position gets the error ``NOT_ASKED``; ``departure`` returns
    the first such position.
    """

    def __init__(self, asked: Sequence[Asked]) -> None:
        self._exchanges = asked
        self._next = 0
        self._departure: tuple[str, str, str] | None = None

    def ask(self, question: Question) -> Reply:
        place, self._next = self._next, self._next + 1
        known = self._exchanges[place] if place < len(self._exchanges) else None
        if known is not None and known.question == question.digest():
            return Reply(known.answer, known.error)
        if self._departure is None:
            self._departure = (
                _position_in_words(place),
                _in_words(known),
                f"one of {question.plugin}, {question.digest().hex()}",
            )
        return Reply(error=NOT_ASKED)

    def departure(self) -> tuple[str, str, str] | None:
        """Return the first difference from the record after the session: position, recorded question, actual question;
        None if there is no difference."""
        if self._departure is None and self._next < len(self._exchanges):
            return _position_in_words(self._next), _in_words(self._exchanges[self._next]), "none"
        return self._departure


class Remembered(OneByOne):
    """Answers questions from a record in any order, for a trace, which decides jobs one by one.

    A question that was sent several times gets its replies in turn, then the last one again.
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


def _end_at_out_of_time(replies: Sequence[Reply], count: int) -> list[Reply]:
    """Return ``count`` replies: those up to the first OUT_OF_TIME, and OUT_OF_TIME for the rest."""
    ends = next((place for place, reply in enumerate(replies) if reply.error == OUT_OF_TIME), len(replies))
    return [*replies[:ends], *[Reply(error=OUT_OF_TIME)] * (count - ends)]


def without_user_info(url: str) -> str:
    """Return a URL without user and password."""
    return _USER_INFO.sub(lambda found: found[1] or "", url, count=1)


def without_secrets(text: str) -> str:
    """Return a configuration file without users and passwords in its URLs and in ``metrics``."""
    text = _URLS_USER_INFO.sub(r"\1", text)
    return _PASSWORD_INLINE.sub(_HIDDEN, _PASSWORD_LINE.sub(_HIDDEN, text))


def _position_in_words(place: int) -> str:
    return f"question {place} to the world outside"


def _in_words(asked: Asked | None) -> str:
    if asked is None:
        return "none"
    outcome = asked.error or f"answered with {len(asked.answer)} bytes"
    return f"{asked.question.hex()}, {outcome}"

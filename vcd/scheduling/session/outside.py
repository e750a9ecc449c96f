"""The world outside as deciding code sees it: one question, one answer, and a record of both (docs/laws.md, law 2).

Deciding code asks through ``session.outside`` and in no other way. The daemon asks over HTTP and keeps what was
answered in the session's row; a replay answers from that record, so the same session decides the same without a
network. Where nobody can be asked (``vcd plan``), every answer is an error, which each plugin treats as its own
settings say.
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
"""The error that answers, in a replay, what the recorded session did not ask."""
OUT_OF_TIME = "the time that it has in one session is used up"
"""The error that answers what a plugin asks when its questions took as long as they may in one session."""

_DIGEST_BYTES = 16
_URLS_USER_INFO = re.compile(r"""([A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#"']*@""")
_PASSWORD = r"""(["']?elasticsearch\.password["']?[ \t]*:[ \t]*)"""
_PASSWORD_LINE = re.compile(rf"^([ \t]*){_PASSWORD}(?![ \t]*$).+$", re.MULTILINE)
_PASSWORD_INLINE = re.compile(rf"(?<=[{{,])([ \t]*){_PASSWORD}[^,}}\n]+")
_HIDDEN = r'\1\2"(not logged)"'
_USER_INFO = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)?[^/?#]*@")


class Question(msgspec.Struct, frozen=True):
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


class Reply(msgspec.Struct, frozen=True):
    """What came of a question: ``body``, or the ``error`` in words that kept it from coming."""

    body: bytes = b""
    error: str = ""


class Outside(Protocol):
    """Whom a session asks."""

    def ask(self, question: Question) -> Reply:
        """The answer to a question; never raises."""

    def ask_all(self, questions: Sequence[Question], within: int) -> list[Reply]:
        """The answers to a plugin's questions, which may be asked at once, in the questions' order; never raises.

        ``within`` is in nanoseconds: how long all that the plugin asks so may take in one session. After the first
        that is answered by OUT_OF_TIME all are.
        """


class OneByOne:
    """Base of those who answer a question at a time, and know no time."""

    def ask(self, question: Question) -> Reply:
        """The answer to a question; never raises."""
        raise NotImplementedError

    def ask_all(self, questions: Sequence[Question], within: int) -> list[Reply]:
        replies: list[Reply] = []
        for question in questions:
            replies.append(self.ask(question))
            if replies[-1].error == OUT_OF_TIME:
                break
        return _all_out_after_the_first(replies, len(questions))


class Nobody(OneByOne):
    """Answers every question with an error."""

    def ask(self, question: Question) -> Reply:
        return Reply(error="nobody to ask")


NOBODY = Nobody()


class Recorder:
    """Asks another one in one session, and keeps what was asked and answered, in the order of the questions.

    ``clock`` gives nanoseconds, by which the time is counted that each plugin's questions take; without one they take
    none.
    """

    def __init__(self, outside: Outside, clock: Callable[[], int] = lambda: 0) -> None:
        self._outside = outside
        self._clock = clock
        self._asked: list[Asked] = []
        self._spent: dict[str, int] = {}

    def ask(self, question: Question) -> Reply:
        reply = self._outside.ask(question)
        self._keep(question, reply)
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
            self._keep(question, reply)
            if reply.error == OUT_OF_TIME:
                break  # so are all after it
        return _all_out_after_the_first(replies, len(questions))

    def _keep(self, question: Question, reply: Reply) -> None:
        self._asked.append(Asked(question.digest(), reply.body, reply.error))

    def restart(self) -> None:
        """Forget what was asked: the session that asked it was interrupted, and is decided from its beginning again.

        The time that it took is gone all the same.
        """
        self._asked.clear()

    @property
    def asked(self) -> tuple[Asked, ...]:
        """Everything so far."""
        return tuple(self._asked)


class Recorded(OneByOne):
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


class Remembered(OneByOne):
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


def _all_out_after_the_first(replies: Sequence[Reply], count: int) -> list[Reply]:
    """As many replies as were asked for: those up to the first OUT_OF_TIME, and that one for all others."""
    ends = next((place for place, reply in enumerate(replies) if reply.error == OUT_OF_TIME), len(replies))
    return [*replies[:ends], *[Reply(error=OUT_OF_TIME)] * (count - ends)]


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

"""Calls of an extender: the verb's URL, the request's bytes, and the answer as the verb's own structure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from vcd.scheduling.plugins.extender.wire import encode
from vcd.scheduling.session.outside import OUT_OF_TIME, Outside, Question, Reply

LARGEST_ANSWER = 10 << 20
"""Bytes (Volcano ``extender.maxBodySize``)."""

A = TypeVar("A", bound="Answer")


class Answer(msgspec.Struct, frozen=True):
    """Base of what verbs answer; fields have the wire's names in lower case, since Go reads them in any."""


class Nothing(Answer, frozen=True):
    """An answer of which only the status counts."""


class PredicateAnswer(Answer, frozen=True):
    """``status`` says why the node does not take the task, empty where it does; ``code`` is Volcano's."""

    status: str = ""
    code: int = 0


class PrioritizeAnswer(Answer, frozen=True):
    """Points by node."""

    node_score: dict[str, float] | None = msgspec.field(name="nodescore", default=None)
    error_message: str = msgspec.field(name="errormessage", default="")


class Victim(Answer, frozen=True):
    """A task that may go, known by its UID."""

    uid: str = ""


class VictimsAnswer(Answer, frozen=True):
    """``status`` 0 abstains."""

    status: int = 0
    victims: tuple[Victim, ...] = ()


class EnqueueableAnswer(Answer, frozen=True):
    """Below 0 rejects, above permits, 0 abstains."""

    status: int = 0


class OverusedAnswer(Answer, frozen=True):
    """Whether a queue has more than its share."""

    overused: bool = False


class ReadyAnswer(Answer, frozen=True):
    """Whether a job is ready."""

    status: bool = False


class EventAnswer(Answer, frozen=True):
    """Why a placement, or its reverse, is refused; empty where it is not."""

    error_message: str = msgspec.field(name="errormessage", default="")


class Said(msgspec.Struct, Generic[A], frozen=True):
    """What came of a call: the ``answer``, the verb's default where there is an ``error``."""

    answer: A
    error: str = ""


class Extender:
    """One extender in one session, which may take ``timeout`` for an answer and ``within`` for all (nanoseconds).

    Answers to questions are kept for the session, for questions of the same bytes; they are forgotten when it is told
    of something that happened, since what it answers may depend on that. Once it is ``out`` of the session it is not
    asked any more, and the reason is what every question is answered by.
    """

    def __init__(self, plugin: str, outside: Outside, prefix: str, timeout: int, within: int) -> None:
        self._plugin = plugin
        self._outside = outside
        self._prefix = prefix.rstrip("/")
        self._timeout = timeout
        self._within = within
        self._kept: dict[bytes, Said[Any]] = {}
        self.out = ""
        """Why it is not asked any more in this session; empty while it is."""
        self.failures = 0
        self.told = 0
        """How often it was told of something."""

    def ask(self, verb: str, request: Mapping[str, Any], kind: type[A]) -> Said[A]:
        """The answer to a question, which changes nothing."""
        return self.ask_all(verb, [request], kind)[0]

    def ask_all(self, verb: str, requests: Sequence[Mapping[str, Any]], kind: type[A]) -> list[Said[A]]:
        """The answers to questions that change nothing, and are asked side by side."""
        if self.out:
            return [Said(kind(), self.out)] * len(requests)
        questions = [self._question(verb, request) for request in requests]
        keys = [question.digest() for question in questions]
        new = {key: question for key, question in zip(keys, questions, strict=True) if key not in self._kept}
        self._kept.update(zip(new, self._call(list(new.values()), kind), strict=True))
        return [self._kept[key] for key in keys]

    def tell(self, verb: str, request: Mapping[str, Any], kind: type[A]) -> Said[A]:
        """The answer to something that happened."""
        if self.out:
            return Said(kind(), self.out)
        self.told += 1
        self._kept.clear()
        return self._call([self._question(verb, request)], kind)[0]

    def _question(self, verb: str, request: Mapping[str, Any]) -> Question:
        return Question(self._plugin, f"{self._prefix}/{verb}", encode(request), self._timeout, LARGEST_ANSWER)

    def _call(self, questions: Sequence[Question], kind: type[A]) -> list[Said[A]]:
        return [self._said(reply, kind) for reply in self._outside.ask_all(questions, self._within)]

    def _said(self, reply: Reply, kind: type[A]) -> Said[A]:
        if reply.error == OUT_OF_TIME:
            self.out = OUT_OF_TIME
        try:
            if reply.error:
                raise ValueError(reply.error)
            return Said(_read(reply.body, kind))
        except (ValueError, RecursionError) as error:
            self.failures += 1
            return Said(kind(), str(error) or type(error).__name__)


def _read(body: bytes, kind: type[A]) -> A:
    """An answer of bytes; msgspec's errors are ValueErrors. What is null, or not there, has its default."""
    if kind is Nothing:
        return kind()
    told = _folded(msgspec.json.decode(body))
    answer = kind() if told is None else msgspec.convert(told, kind)
    if isinstance(answer, PrioritizeAnswer):
        for name, points in (answer.node_score or {}).items():
            if not math.isfinite(points):
                raise ValueError(f"nodeScore.{name}: {points} is no number of points")
    return answer


def _folded(told: Any) -> Any:
    """Fields' names in lower case, nulls left out: of the answer, and of the objects in its lists."""
    if isinstance(told, list):
        return [_folded(one) for one in told if one is not None]
    if not isinstance(told, dict):
        return told
    return {
        name.casefold(): _folded(value) if isinstance(value, list) else value
        for name, value in told.items()
        if value is not None
    }

"""Calls to an extender: URL and body of a request, and the response as the verb's structure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from vcd.scheduling.plugins.extender.extender_encoding import encode
from vcd.scheduling.session.outside import OUT_OF_TIME, Outside, Question, Reply

LARGEST_ANSWER = 10 << 20
"""Bytes (Volcano ``extender.maxBodySize``)."""

A = TypeVar("A", bound="Answer")


class Answer(msgspec.Struct, frozen=True):
    """Base of responses. Fields have the wire's names in lower case, because Go reads them in any case."""


class Nothing(Answer, frozen=True):
    """A response of which only the status matters."""


class PredicateAnswer(Answer, frozen=True):
    """``status`` is why the node is refused, empty if it passes; ``code`` is Volcano's."""

    status: str = ""
    code: int = 0


class PrioritizeAnswer(Answer, frozen=True):
    """Points by node."""

    node_score: dict[str, float] | None = msgspec.field(name="nodescore", default=None)
    error_message: str = msgspec.field(name="errormessage", default="")


class Victim(Answer, frozen=True):
    """A permitted victim, identified by its UID."""

    uid: str = ""


class VictimsAnswer(Answer, frozen=True):
    """The named victims; ``status`` 0 abstains."""

    status: int = 0
    victims: tuple[Victim, ...] = ()


class EnqueueableAnswer(Answer, frozen=True):
    """``status`` below 0 rejects, above 0 permits, 0 abstains."""

    status: int = 0


class OverusedAnswer(Answer, frozen=True):
    """Whether a queue is overused."""

    overused: bool = False


class ReadyAnswer(Answer, frozen=True):
    status: bool = False


class EventAnswer(Answer, frozen=True):
    """Why a placement or its rollback is refused; empty if it is not."""

    error_message: str = msgspec.field(name="errormessage", default="")


class ExtenderResponse(msgspec.Struct, Generic[A], frozen=True):
    """The result of a call: the ``answer``, or the verb's default with an ``error``."""

    answer: A
    error: str = ""


class Extender:
    """One extender in one session, with ``timeout`` for a response and ``within`` for all calls (nanoseconds).

    Responses are cached for the session by the bytes of the request. Sending an event clears the cache, because
    responses may depend on events. If ``out`` is set, the extender is not called again in this session, and every call
    fails with that reason.
    """

    def __init__(self, plugin: str, outside: Outside, prefix: str, timeout: int, within: int) -> None:
        self._plugin = plugin
        self._outside = outside
        self._prefix = prefix.rstrip("/")
        self._timeout = timeout
        self._within = within
        self._cache: dict[bytes, ExtenderResponse[Any]] = {}
        self.out = ""
        """Why the extender is excluded from this session; empty if it is not."""
        self.failures = 0

    def query(self, verb: str, request: Mapping[str, Any], kind: type[A]) -> ExtenderResponse[A]:
        """Return the response to a request without side effects."""
        return self.query_all(verb, [request], kind)[0]

    def query_all(self, verb: str, requests: Sequence[Mapping[str, Any]], kind: type[A]) -> list[ExtenderResponse[A]]:
        """Return the responses to requests without side effects, which are sent concurrently."""
        if self.out:
            return [ExtenderResponse(kind(), self.out)] * len(requests)
        questions = [self._question(verb, request) for request in requests]
        keys = [question.digest() for question in questions]
        new = {key: question for key, question in zip(keys, questions, strict=True) if key not in self._cache}
        self._cache.update(zip(new, self._call(list(new.values()), kind), strict=True))
        return [self._cache[key] for key in keys]

    def notify(self, verb: str, request: Mapping[str, Any], kind: type[A]) -> ExtenderResponse[A]:
        """Send an event, and return the response."""
        if self.out:
            return ExtenderResponse(kind(), self.out)
        self._cache.clear()
        return self._call([self._question(verb, request)], kind)[0]

    def _question(self, verb: str, request: Mapping[str, Any]) -> Question:
        return Question(self._plugin, f"{self._prefix}/{verb}", encode(request), self._timeout, LARGEST_ANSWER)

    def _call(self, questions: Sequence[Question], kind: type[A]) -> list[ExtenderResponse[A]]:
        return [self._response(reply, kind) for reply in self._outside.ask_all(questions, self._within)]

    def _response(self, reply: Reply, kind: type[A]) -> ExtenderResponse[A]:
        if reply.error == OUT_OF_TIME:
            self.out = OUT_OF_TIME
        try:
            if reply.error:
                raise ValueError(reply.error)
            return ExtenderResponse(_read(reply.body, kind))
        except (ValueError, RecursionError) as error:
            self.failures += 1
            return ExtenderResponse(kind(), str(error) or type(error).__name__)


def _read(body: bytes, kind: type[A]) -> A:
    """Parse a response; null or missing fields have defaults. Raises ValueError, also msgspec's."""
    if kind is Nothing:
        return kind()
    fields = _folded(msgspec.json.decode(body))
    answer = kind() if fields is None else msgspec.convert(fields, kind)
    if isinstance(answer, PrioritizeAnswer):
        for name, points in (answer.node_score or {}).items():
            if not math.isfinite(points):
                raise ValueError(f"nodeScore.{name}: {points} is no number of points")
    return answer


def _folded(fields: Any) -> Any:
    """Return the response with field names in lower case and without nulls, including objects in lists."""
    if isinstance(fields, list):
        return [_folded(one) for one in fields if one is not None]
    if not isinstance(fields, dict):
        return fields
    return {
        name.casefold(): _folded(value) if isinstance(value, list) else value
        for name, value in fields.items()
        if value is not None
    }

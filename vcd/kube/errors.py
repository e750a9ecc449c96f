"""What goes wrong between us and the API server, each as a typed error; and reading what it answered."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from vcd.model import jsontext

RETRY_AFTER_LIMIT = 30.0
"""Seconds: a server that asks for a longer pause does not get it, or one answer could stop all scheduling."""

T = TypeVar("T")


class KubeError(Exception):
    """Anything that went wrong between us and the API server."""


class ApiError(KubeError):
    """The server answered with an error: HTTP ``status``, and the Status object's ``reason`` and ``message``.

    ``retry_after`` is in seconds, None where the server did not say.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class Unanswered(KubeError):
    """No answer came. ``sent`` is False when the request surely never reached the server."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Silent(KubeError):
    """Nothing came from a watch that the server had agreed to: nothing happened, or its other end is gone."""


class Malformed(KubeError):
    """An answer is not what the Kubernetes API specifies."""


class Fenced(KubeError):
    """The caller's fence said no: the request was not made."""

    def __init__(self) -> None:
        super().__init__("lost leadership")


class Superseded(KubeError):
    """What was to be written is so no more, now that it would be its turn: the request was not made."""


class WritesNothing(KubeError):
    """A client that only reads was to write: the request was not made."""


class _StatusDetails(msgspec.Struct):
    retry_after: float | None = msgspec.field(name="retryAfterSeconds", default=None)


class _Status(msgspec.Struct):
    code: int = 0
    reason: str | None = None
    message: str | None = None
    details: _StatusDetails | None = None


_status_decoder = msgspec.json.Decoder(_Status, strict=False)


def decoded(decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw, what: str) -> T:
    """What the API server answered, whatever bytes it is made of. Raises Malformed naming ``what`` it should be."""
    try:
        try:
            return decoder.decode(raw)
        except RecursionError:
            return decoder.decode(jsontext.shallow(raw))
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{what}: {error}") from error


def status_error(raw: bytes | msgspec.Raw, status: int = 0, retry_after: int = 0) -> ApiError:
    """The error in a Status object's JSON text; ``status`` and ``retry_after`` are the response's own."""
    try:
        answer = decoded(_status_decoder, raw, "status")
    except Malformed:
        answer = _Status(message=bytes(raw)[:200].decode(errors="replace").strip())
    wait = answer.details.retry_after if answer.details else None
    if retry_after:
        wait = float(retry_after)
    if wait is not None:
        wait = min(wait, RETRY_AFTER_LIMIT)
    return ApiError(status or answer.code, answer.reason or "", answer.message or "", wait)


def is_final(error: KubeError) -> bool:
    """Whether the server means it: asking again would bring the same answer."""
    return isinstance(error, ApiError) and error.status < 500 and error.status != 429

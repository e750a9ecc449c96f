"""Typed errors for requests to the API server, and decoding of its responses.

Every failure of `KubeClient` is a `KubeError`. The subclass and ``sent`` state whether the server may have processed
the request, which decides if a caller may repeat it (docs/laws.md, law 4).
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from vcd.model import jsontext

RETRY_AFTER_LIMIT = 30.0
"""Seconds. A longer Retry-After is shortened to this, so that one response cannot stop scheduling."""

T = TypeVar("T")


class KubeError(Exception):
    """Base class: a request to the API server failed."""


class ApiError(KubeError):
    """The server responded with an error: the HTTP status and the Status object's ``reason`` and ``message``.

    ``retry_after`` is in seconds, None if the server stated none.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class NoResponse(KubeError):
    """No complete response arrived. ``sent`` is False only if the request certainly did not reach the server."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class IdleWatch(KubeError):
    """An established watch delivered nothing for its idle timeout: no object changed, or the connection is dead."""


class BadResponse(KubeError):
    """A response is not what the Kubernetes API specifies."""


class LeadershipLost(KubeError):
    """The fence was closed: this replica no longer leads, and the request was not sent."""

    def __init__(self) -> None:
        super().__init__("lost leadership")


class ObsoleteWrite(KubeError):
    """The update was no longer needed when its turn came, and the request was not sent."""


class ReadOnlyClient(KubeError):
    """A read-only client refused a write; the request was not sent."""


class _StatusDetails(msgspec.Struct):
    retry_after: float | None = msgspec.field(name="retryAfterSeconds", default=None)


class _Status(msgspec.Struct):
    code: int = 0
    reason: str | None = None
    message: str | None = None
    details: _StatusDetails | None = None


_status_decoder = msgspec.json.Decoder(_Status, strict=False)


def decode(decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw, what: str) -> T:
    """Decode a response. Raises BadResponse, whose message begins with ``what``, whatever the bytes are."""
    try:
        try:
            return decoder.decode(raw)
        except RecursionError:
            return decoder.decode(jsontext.shallow(raw))
    except (ValueError, RecursionError) as error:
        raise BadResponse(f"{what}: {error}") from error


def status_error(raw: bytes | msgspec.Raw, status: int = 0, retry_after: int = 0) -> ApiError:
    """Return the error in a Status object's JSON; ``status`` and ``retry_after`` (seconds) are the response's."""
    try:
        answer = decode(_status_decoder, raw, "status")
    except BadResponse:
        answer = _Status(message=bytes(raw)[:200].decode(errors="replace").strip())
    wait = answer.details.retry_after if answer.details else None
    if retry_after:
        wait = float(retry_after)
    if wait is not None:
        wait = min(wait, RETRY_AFTER_LIMIT)
    return ApiError(status or answer.code, answer.reason or "", answer.message or "", wait)


def is_final(error: KubeError) -> bool:
    """Return whether repeating the same request would give the same response."""
    return isinstance(error, ApiError) and error.status < 500 and error.status != 429

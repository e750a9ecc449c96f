"""Errors of the API server: one exception with the ``v1.Status`` of the response, and functions that create it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class StatusCause(NamedTuple):
    """An invalid field: the API's cause type, the message without the field's path, and the path."""

    reason: str
    message: str
    field: str


@dataclass(eq=False)
class StatusError(Exception):
    """A refused request. ``code`` is the HTTP status."""

    code: int
    reason: str
    message: str
    details: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of the response: Retry-After if the details have the number of seconds."""
        seconds = (self.details or {}).get("retryAfterSeconds")
        return {"Retry-After": str(seconds)} if seconds else {}

    def status(self) -> dict[str, Any]:
        """Return the ``v1.Status`` of the response."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if self.details is not None:
            body["details"] = dict(self.details)
        body["code"] = self.code
        return body


def success(code: int | None = None, details: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a ``v1.Status`` of success."""
    body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        body["details"] = dict(details)
    if code is not None:
        body["code"] = code
    return body


def details_of(resource: str, name: str, **more: Any) -> dict[str, Any]:
    """Return Status details (name, group if any, kind) for a resource such as ``pods`` or ``jobs.batch.volcano.sh``."""
    plural, _, group = resource.partition(".")
    named = {"name": name} if name else {}
    return {**named, **({"group": group} if group else {}), "kind": plural, **more}


def not_found(resource: str, name: str) -> StatusError:
    """404: the object does not exist."""
    return StatusError(404, "NotFound", f'{resource} "{name}" not found', details_of(resource, name))


def already_exists(resource: str, name: str) -> StatusError:
    """409: the name is taken."""
    return StatusError(409, "AlreadyExists", f'{resource} "{name}" already exists', details_of(resource, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(resource: str, name: str, why: str = MODIFIED) -> StatusError:
    """409: the object is not in the state that the caller expects."""
    message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return StatusError(409, "Conflict", message, details_of(resource, name))


def forbidden(resource: str, name: str, why: str) -> StatusError:
    """403: admission or authorization denied the request."""
    return StatusError(403, "Forbidden", f'{resource} "{name}" is forbidden: {why}', details_of(resource, name))


def bad_request(message: str) -> StatusError:
    """400: the request is malformed."""
    return StatusError(400, "BadRequest", message)


def invalid(kind: str, group: str, name: str, causes: Iterable[StatusCause]) -> StatusError:
    """422: validation refused fields."""
    faults = list(causes)
    parts = [f"{fault.field}: {fault.message}" for fault in faults]
    text = parts[0] if len(parts) == 1 else f"[{', '.join(parts)}]"
    qualified = f"{kind}.{group}" if group else kind
    details = {**details_of(qualified, name), "causes": [fault._asdict() for fault in faults]}
    return StatusError(422, "Invalid", f'{qualified} "{name}" is invalid: {text}', details)


def expired(message: str, metadata: Mapping[str, Any] | None = None) -> StatusError:
    """410: the requested history was compacted."""
    return StatusError(410, "Expired", message, metadata=metadata or {})


def method_not_allowed() -> StatusError:
    """405: the resource has no such verb."""
    return StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def unsupported_media(accepted: Iterable[str]) -> StatusError:
    """415: the body has a format that the server does not accept."""
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return StatusError(415, "UnsupportedMediaType", message)

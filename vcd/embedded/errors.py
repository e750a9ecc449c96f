"""What the API server answers when it refuses: one exception, carrying the Status object of the answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class StatusCause(NamedTuple):
    """One field's fault: the API's cause type, the message after the field's path, and the path."""

    reason: str
    message: str
    field: str


@dataclass(eq=False)
class StatusError(Exception):
    """A request that is refused, with the HTTP status and the Status object that say why."""

    code: int
    reason: str
    message: str
    details: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message

    @property
    def headers(self) -> dict[str, str]:
        """Sent with the answer: when to ask again, where the details tell."""
        seconds = (self.details or {}).get("retryAfterSeconds")
        return {"Retry-After": str(seconds)} if seconds else {}

    def status(self) -> dict[str, Any]:
        """The ``v1.Status`` of the answer."""
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
    """A ``v1.Status`` that says Success."""
    body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        body["details"] = dict(details)
    if code is not None:
        body["code"] = code
    return body


def details_of(resource: str, name: str, **more: Any) -> dict[str, Any]:
    """Status details for a dotted plural (``pods``, ``jobs.batch.volcano.sh``): name, group when there is one, kind."""
    plural, _, group = resource.partition(".")
    named = {"name": name} if name else {}
    return {**named, **({"group": group} if group else {}), "kind": plural, **more}


def not_found(resource: str, name: str) -> StatusError:
    """404: no such object."""
    return StatusError(404, "NotFound", f'{resource} "{name}" not found', details_of(resource, name))


def already_exists(resource: str, name: str) -> StatusError:
    """409: the name is taken."""
    return StatusError(409, "AlreadyExists", f'{resource} "{name}" already exists', details_of(resource, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(resource: str, name: str, why: str = MODIFIED) -> StatusError:
    """409: the object is not what the caller took it for."""
    message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return StatusError(409, "Conflict", message, details_of(resource, name))


def forbidden(resource: str, name: str, why: str) -> StatusError:
    """403: admission or authorization said no."""
    return StatusError(403, "Forbidden", f'{resource} "{name}" is forbidden: {why}', details_of(resource, name))


def bad_request(message: str) -> StatusError:
    """400: the request cannot be understood."""
    return StatusError(400, "BadRequest", message)


def invalid(kind: str, group: str, name: str, causes: Iterable[StatusCause]) -> StatusError:
    """422: fields that validation refuses."""
    faults = list(causes)
    parts = [f"{fault.field}: {fault.message}" for fault in faults]
    text = parts[0] if len(parts) == 1 else f"[{', '.join(parts)}]"
    qualified = f"{kind}.{group}" if group else kind
    details = {**details_of(qualified, name), "causes": [fault._asdict() for fault in faults]}
    return StatusError(422, "Invalid", f'{qualified} "{name}" is invalid: {text}', details)


def expired(message: str, metadata: Mapping[str, Any] | None = None) -> StatusError:
    """410: history from before a compaction was asked for."""
    return StatusError(410, "Expired", message, metadata=metadata or {})


def method_not_allowed() -> StatusError:
    """405: the resource has no such verb."""
    return StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def unsupported_media(accepted: Iterable[str]) -> StatusError:
    """415: a body in a form that is not read."""
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return StatusError(415, "UnsupportedMediaType", message)

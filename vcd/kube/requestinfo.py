"""What a request to the API server was about and how it ended, for metrics and for faults of the installation.

Verbs and resources are those of RBAC, so that a refusal names the rule that is missing.
"""

from __future__ import annotations

from typing import NamedTuple

from vcd.kube.errors import ApiError

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_BEING_DELETED = "because it is being terminated"
"""What an API server says of an object for a namespace that is being deleted."""
_ANOTHER = "metadata.uid"
"""The field in the answer to a patch of an object that was made again under its name."""


_NOT_SERVED = "could not find the requested resource"
"""What an API server says of a part of an object that it does not serve, and not of an object that is gone. If it does
not serve the whole kind, lists fail, too, and name it."""


class CompletedRequest(NamedTuple):
    """A request that was made: ``code`` is the HTTP status, 0 without an answer; ``seconds`` is how long it took;
    ``error`` is the server's refusal; ``namespace`` is empty where the request names none."""

    verb: str
    resource: str
    code: int
    seconds: float
    error: ApiError | None = None
    namespace: str = ""


def verb_and_resource(method: str, path: str) -> tuple[str, str]:
    """Return the RBAC verb and ``resource`` or ``resource/subresource`` of a request; ``path`` may have a query.

    A path that is no resource's stands for itself.
    """
    plain, _, query = path.partition("?")
    root, *parts = plain.lstrip("/").split("/")
    parts = parts[1:] if root == "api" else parts[2:] if root == "apis" else []
    if len(parts) > 2 and parts[0] == "namespaces":
        parts = parts[2:]
    if not parts:
        return _VERBS.get(method, "get"), plain
    read = "get" if len(parts) > 1 else "watch" if "watch=" in query else "list"
    return _VERBS.get(method, read), "/".join((parts[0], *parts[2:3]))


def namespace_of(path: str) -> str:
    """Return the namespace of the objects that a request is about; empty for those of the cluster."""
    _, _, found = path.partition("/namespaces/")
    namespace, slash, _ = found.partition("?")[0].partition("/")
    return namespace if slash else ""


def is_installation_fault(error: ApiError) -> bool:
    """Whether a refusal is due to how vcd or the cluster is set up, and not to what happened to the object meanwhile.

    These are: a webhook that denies (400 unless it states another status), no right (403), a part of an
    object that is not served (404), an object that validation refuses (422), and a webhook that fails (5xx).
    """
    if error.status == 400:
        return True
    if error.status == 403:
        return _BEING_DELETED not in error.message
    if error.status == 404:
        return _NOT_SERVED in error.message
    if error.status == 422:
        return _ANOTHER not in error.message
    return error.status >= 500 and "webhook" in error.message

"""Describe requests to the API server by RBAC verb and resource, for metrics and for reports of installation faults.

RBAC's terms are used so that a refusal names the missing rule. The matched messages are kube-apiserver's own texts.
"""

from __future__ import annotations

from typing import NamedTuple

from vcd.kube.api_errors import ApiError

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_BEING_DELETED = "because it is being terminated"
"""Part of the refusal to create an object in a terminating namespace."""
_OTHER_UID = "metadata.uid"
"""Field named in the refusal to patch an object that was recreated under its name."""


_NOT_SERVED = "could not find the requested resource"
"""Message for a subresource that is not served, as opposed to a missing object. If the whole kind is not served, its
list fails with the same message."""


class CompletedRequest(NamedTuple):
    """A completed request. ``code`` is the HTTP status, 0 without a response; ``seconds`` is its duration;
    ``namespace`` is empty for cluster-scoped objects and for requests over all namespaces."""

    verb: str
    resource: str
    code: int
    seconds: float
    error: ApiError | None = None
    namespace: str = ""


def verb_and_resource(method: str, path: str) -> tuple[str, str]:
    """Return the RBAC verb and ``resource`` or ``resource/subresource`` of a request; ``path`` may have a query.

    For a path that names no resource, such as ``/version``, the resource is the path itself.
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
    """Return the namespace in a request's path; empty if it has none."""
    _, _, found = path.partition("/namespaces/")
    namespace, slash, _ = found.partition("?")[0].partition("/")
    return namespace if slash else ""


def is_installation_fault(error: ApiError) -> bool:
    """Return whether a refusal is due to the setup of vcd or the cluster, not to a concurrent change of the object.

    Faults are: a webhook that denies (400 unless it states another status), missing permission (403), a subresource
    that is not served (404), an object that fails validation (422), and a webhook that cannot be called (5xx).
    """
    if error.status == 400:
        return True
    if error.status == 403:
        return _BEING_DELETED not in error.message
    if error.status == 404:
        return _NOT_SERVED in error.message
    if error.status == 422:
        return _OTHER_UID not in error.message
    return error.status >= 500 and "webhook" in error.message

"""Who shows a token, and whether they may read the page: asked of the API server."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import msgspec

from vcd.kube.client import KubeClient, Urgency, decoded

PAGE_PATH = "/vcd/page"
"""What a reader must be allowed to ``get``, among nonResourceURLs. Not the address of a question of the page: any
authenticated user may get ``/api/*`` by Kubernetes' own roles."""
_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

T = TypeVar("T")


class Reader(NamedTuple):
    """Who a token stands for (empty: the API server does not know it), and whether they may read the page."""

    name: str
    may_read: bool


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _Known(msgspec.Struct):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)


class _TokenReview(msgspec.Struct):
    status: _Known = msgspec.field(default_factory=_Known)


class _Allowed(msgspec.Struct):
    allowed: bool = False
    denied: bool = False


class _AccessReview(msgspec.Struct):
    status: _Allowed = msgspec.field(default_factory=_Allowed)


async def reader_of(client: KubeClient, token: str) -> Reader:
    """Who shows a token (a TokenReview), and whether they may get ``PAGE_PATH`` (a SubjectAccessReview).

    Raises ApiError, Unanswered, and Malformed for an answer that is none.
    """
    known = (await _asked(client, _TOKENS, "TokenReview", {"token": token}, _TokenReview)).status
    user = known.user
    if not known.authenticated or not user.username:
        return Reader("", False)
    asked: dict[str, Any] = {"nonResourceAttributes": {"path": PAGE_PATH, "verb": "get"}, "user": user.username}
    asked |= {"uid": user.uid, "groups": user.groups or [], "extra": user.extra or {}}
    answer = (await _asked(client, _ACCESS, "SubjectAccessReview", asked, _AccessReview)).status
    return Reader(user.username, answer.allowed and not answer.denied)


async def _asked(client: KubeClient, path: str, kind: str, spec: dict[str, Any], answer: type[T]) -> T:
    group = path.split("/")[2]
    body = msgspec.json.encode({"apiVersion": f"{group}/v1", "kind": kind, "spec": spec})
    raw = await client.request("POST", path, body, urgency=Urgency.EVENT)
    return decoded(msgspec.json.Decoder(answer), raw, kind)

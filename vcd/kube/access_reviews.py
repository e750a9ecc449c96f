"""Authenticate and authorize callers through the API server: TokenReview and SubjectAccessReview."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from vcd.kube.api_errors import decode
from vcd.kube.client import KubeClient
from vcd.kube.write_limiter import Urgency

_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

T = TypeVar("T")


class User(msgspec.Struct, frozen=True):
    """A user in the terms of a SubjectAccessReview."""

    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None

    @property
    def name(self) -> str:
        return self.username


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: User = msgspec.field(default_factory=User)
    audiences: list[str] | None = None


class _TokenReview(msgspec.Struct):
    status: _TokenStatus = msgspec.field(default_factory=_TokenStatus)


class _AccessStatus(msgspec.Struct):
    allowed: bool = False
    denied: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessStatus = msgspec.field(default_factory=_AccessStatus)


async def review_token(client: KubeClient, token: str, audiences: Sequence[str] = ()) -> User | None:
    """Return the user that a token authenticates (a TokenReview); None if the API server rejects the token.

    With ``audiences``, the token must be valid for one of them and the response must confirm that: a server that
    ignores audiences accepts tokens issued for others. Raises ApiError, NoResponse, BadResponse.
    """
    spec: dict[str, Any] = {"token": token} | ({"audiences": list(audiences)} if audiences else {})
    status = (await _post_review(client, _TOKEN_REVIEWS, "TokenReview", spec, _TokenReview)).status
    if not status.authenticated or not status.user.username:
        return None
    if audiences and not set(audiences) & set(status.audiences or ()):
        return None
    return status.user


async def review_access(client: KubeClient, user: User, attributes: Mapping[str, Any]) -> bool:
    """Return whether a user may do something (a SubjectAccessReview).

    ``attributes`` is the review's ``resourceAttributes`` or ``nonResourceAttributes``. Raises ApiError, NoResponse,
    BadResponse.
    """
    spec = {**attributes, "user": user.username, "uid": user.uid}
    spec |= {"groups": user.groups or [], "extra": user.extra or {}}
    status = (await _post_review(client, _ACCESS_REVIEWS, "SubjectAccessReview", spec, _AccessReview)).status
    return status.allowed and not status.denied


async def _post_review(client: KubeClient, path: str, kind: str, spec: dict[str, Any], review: type[T]) -> T:
    group = path.split("/")[2]
    body = msgspec.json.encode({"apiVersion": f"{group}/v1", "kind": kind, "spec": spec})
    raw = await client.request("POST", path, body, urgency=Urgency.EVENT)
    return decode(msgspec.json.Decoder(review), raw, kind)

"""Whom a token stands for, and what they may do: asked of the API server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from vcd.kube.admission import Urgency
from vcd.kube.client import KubeClient
from vcd.kube.errors import decoded

_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

T = TypeVar("T")


class User(msgspec.Struct, frozen=True):
    """Somebody whom the API server knows, by all that a SubjectAccessReview asks with."""

    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None

    @property
    def name(self) -> str:
        """Their name in the cluster."""
        return self.username


class _Known(msgspec.Struct):
    authenticated: bool = False
    user: User = msgspec.field(default_factory=User)
    audiences: list[str] | None = None


class _TokenReview(msgspec.Struct):
    status: _Known = msgspec.field(default_factory=_Known)


class _Allowed(msgspec.Struct):
    allowed: bool = False
    denied: bool = False


class _AccessReview(msgspec.Struct):
    status: _Allowed = msgspec.field(default_factory=_Allowed)


async def user_of(client: KubeClient, token: str, audiences: Sequence[str] = ()) -> User | None:
    """Whom a token stands for (a TokenReview); None where the API server does not know it.

    With ``audiences`` it must have been made for one of these, and the answer must say so: a server that knows nothing
    of audiences says yes to tokens for others. Raises ApiError, Unanswered, and Malformed for an answer that is none.
    """
    asked: dict[str, Any] = {"token": token} | ({"audiences": list(audiences)} if audiences else {})
    known = (await _asked(client, _TOKENS, "TokenReview", asked, _TokenReview)).status
    if not known.authenticated or not known.user.username:
        return None
    if audiences and not set(audiences) & set(known.audiences or ()):
        return None
    return known.user


async def may(client: KubeClient, user: User, attributes: Mapping[str, Any]) -> bool:
    """Whether somebody may do something (a SubjectAccessReview); ``attributes`` is its ``resourceAttributes`` or
    ``nonResourceAttributes``. Raises ApiError, Unanswered, and Malformed for an answer that is none."""
    asked = {**attributes, "user": user.username, "uid": user.uid}
    asked |= {"groups": user.groups or [], "extra": user.extra or {}}
    answer = (await _asked(client, _ACCESS, "SubjectAccessReview", asked, _AccessReview)).status
    return answer.allowed and not answer.denied


async def _asked(client: KubeClient, path: str, kind: str, spec: dict[str, Any], answer: type[T]) -> T:
    group = path.split("/")[2]
    body = msgspec.json.encode({"apiVersion": f"{group}/v1", "kind": kind, "spec": spec})
    raw = await client.request("POST", path, body, urgency=Urgency.EVENT)
    return decoded(msgspec.json.Decoder(answer), raw, kind)

"""Whose token it is: asked of the API server."""

from __future__ import annotations

import msgspec

from vcd.kube.client import KubeClient, Urgency

_PATH = "/apis/authentication.k8s.io/v1/tokenreviews"


class _Status(msgspec.Struct):
    authenticated: bool = False


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


async def is_known(client: KubeClient, token: str) -> bool:
    """Whether the API server knows whose token it is (a TokenReview).

    Raises ApiError, Unanswered, and msgspec.MsgspecError for an answer that is none.
    """
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    answer = await client.request("POST", _PATH, msgspec.json.encode(body), urgency=Urgency.EVENT)
    return msgspec.json.decode(answer, type=_Review).status.authenticated

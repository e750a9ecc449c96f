"""Authentication and authorization reviews: who a token stands for; all is allowed unless told otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from vcd.embedded.resources import ResourceType

Object = dict[str, Any]
Permit = Callable[[Object], bool]
"""Whether what a SubjectAccessReview's spec asks about is allowed."""

_GROUPS: Final = ("authentication.k8s.io", "authorization.k8s.io")
_ANY: Final = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]


def is_review(rtype: ResourceType) -> bool:
    """Whether a type is asked by creating it, and never stored."""
    return rtype.group in _GROUPS


def answer(
    rtype: ResourceType, body: Object, identity: str, tokens: Mapping[str, str] | None, permit: Permit | None = None
) -> Object:
    """The review with its status; ``permit`` judges SubjectAccessReviews."""
    made: Object = {
        "kind": rtype.kind, "apiVersion": rtype.api_version, "metadata": {}, "spec": body.get("spec") or {}
    }  # fmt: skip
    if rtype.kind == "TokenReview":
        user = (tokens or {}).get(made["spec"].get("token", ""))
        made["status"] = {"authenticated": True, "user": _user(user)} if user else {"user": {}}
    elif rtype.kind == "SelfSubjectReview":
        made["status"] = {"userInfo": _user(identity)}
    elif rtype.kind == "SelfSubjectRulesReview":
        urls = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
        made["status"] = {"resourceRules": _ANY, "nonResourceRules": urls, "incomplete": False}
    elif rtype.kind == "SubjectAccessReview" and permit is not None:
        made["status"] = {"allowed": permit(made["spec"])}
    else:
        made["status"] = {"allowed": True}
    return made


def _user(name: str) -> Object:
    return {"username": name, "groups": ["system:authenticated"]}

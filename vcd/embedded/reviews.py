"""Authentication and authorization reviews: who a token stands for; all is allowed unless told otherwise."""

from __future__ import annotations

from typing import Any, Final

from vcd.embedded.resources import ResourceType

Object = dict[str, Any]

_GROUPS: Final = ("authentication.k8s.io", "authorization.k8s.io")
_ANY: Final = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]


def is_review(rtype: ResourceType) -> bool:
    """Whether a type is asked by creating it, and never stored."""
    return rtype.group in _GROUPS


def answer(rtype: ResourceType, body: Object, identity: str) -> Object:
    """The review with its status: no token is known, and all is allowed."""
    made: Object = {
        "kind": rtype.kind, "apiVersion": rtype.api_version, "metadata": {}, "spec": body.get("spec") or {}
    }  # fmt: skip
    if rtype.kind == "TokenReview":
        made["status"] = {"user": {}}
    elif rtype.kind == "SelfSubjectReview":
        made["status"] = {"userInfo": {"username": identity, "groups": ["system:authenticated"]}}
    elif rtype.kind == "SelfSubjectRulesReview":
        urls = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
        made["status"] = {"resourceRules": _ANY, "nonResourceRules": urls, "incomplete": False}
    else:
        made["status"] = {"allowed": True}
    return made

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
    status: Object = {"allowed": True}
    if rtype.kind == "TokenReview":
        status = {"user": {}}
    elif rtype.kind == "SelfSubjectReview":
        status = {"userInfo": {"username": identity, "groups": ["system:authenticated"]}}
    elif rtype.kind == "SelfSubjectRulesReview":
        urls = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
        status = {"resourceRules": _ANY, "nonResourceRules": urls, "incomplete": False}
    head = {"kind": rtype.kind, "apiVersion": rtype.api_version, "metadata": {}}
    return {**head, "spec": body.get("spec") or {}, "status": status}

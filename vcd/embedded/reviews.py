"""Answers authentication and authorization reviews: the user and audiences of a token, and a user's rights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from vcd.embedded.resource_types import ResourceType
from vcd.embedded.status_errors import StatusCause, bad_request, invalid

Object = dict[str, Any]

API_AUDIENCES: Final = ("https://kubernetes.default.svc.cluster.local",)
"""Audiences of tokens that name none; ``--api-audiences`` of a kube-apiserver."""

_GROUPS: Final = ("authentication.k8s.io", "authorization.k8s.io")
_ANY: Final = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
_ATTRIBUTES: Final = ("resourceAttributes", "nonResourceAttributes")


@dataclass(frozen=True)
class TokenUser:
    """The user of a token, and the token's audiences."""

    username: str
    groups: tuple[str, ...] = ("system:authenticated",)
    audiences: tuple[str, ...] = API_AUDIENCES
    uid: str = ""


def is_review(rtype: ResourceType) -> bool:
    """Return whether a type is a review, which is answered at its creation and not stored."""
    return rtype.group in _GROUPS


def answer(
    rtype: ResourceType,
    body: Object,
    identity: str,
    known: Callable[[str], TokenUser | None] = lambda _: None,
    permitted: Callable[[Object], bool] = lambda _: True,
) -> Object:
    """Return the review with its status. Raises StatusError for an incomplete spec.

    ``known`` returns the user of a token, ``permitted`` whether the spec of a SubjectAccessReview is allowed.
    """
    spec = body.get("spec") or {}
    status: Object = {"allowed": True}
    if rtype.kind == "TokenReview":
        status = _token_status(spec, known)
    elif rtype.kind == "SubjectAccessReview":
        _expect_subject_and_attributes(rtype, spec)
        status = {"allowed": permitted(spec)}
    elif rtype.kind == "SelfSubjectReview":
        status = {"userInfo": {"username": identity, "groups": ["system:authenticated"]}}
    elif rtype.kind == "SelfSubjectRulesReview":
        urls = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
        status = {"resourceRules": _ANY, "nonResourceRules": urls, "incomplete": False}
    head = {"kind": rtype.kind, "apiVersion": rtype.api_version, "metadata": {}}
    return {**head, "spec": spec, "status": status}


def _token_status(spec: Object, known: Callable[[str], TokenUser | None]) -> Object:
    """Return the status of a TokenReview. A token without one of the requested audiences is not authenticated."""
    if not spec.get("token"):
        raise bad_request("token is required for TokenReview in authentication")
    user, wanted = known(spec["token"]), spec.get("audiences") or API_AUDIENCES
    common = [] if user is None else [audience for audience in wanted if audience in user.audiences]
    if user is None:
        return {"user": {}, "error": "[invalid bearer token, unknown token]"}
    if not common:
        made = ", ".join(user.audiences)
        return {"user": {}, "error": f"[invalid bearer token, token audiences [{made}] are none of {list(wanted)}]"}
    user_info = {"username": user.username, "uid": user.uid, "groups": list(user.groups)}
    user_info = {name: value for name, value in user_info.items() if value}
    return {"authenticated": True, "user": user_info, "audiences": common}


def _expect_subject_and_attributes(rtype: ResourceType, spec: Object) -> None:
    """Raise StatusError 422 unless a SubjectAccessReview has a subject and one kind of attributes."""
    wrong = []
    if sum(bool(spec.get(name)) for name in _ATTRIBUTES) != 1:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        wrong.append(StatusCause("FieldValueInvalid", f'Invalid value: "": {why}', "spec.resourceAttributes"))
    if not spec.get("user") and not spec.get("groups"):
        why = "at least one of user or group must be specified"
        wrong.append(StatusCause("FieldValueInvalid", f'Invalid value: "": {why}', "spec.user"))
    if wrong:
        raise invalid(rtype.kind, rtype.group, "", wrong)

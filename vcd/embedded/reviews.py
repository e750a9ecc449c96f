"""Authentication and authorization reviews: who a token stands for and for whom it was made, and who may do what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from vcd.embedded.errors import StatusCause, bad_request, invalid
from vcd.embedded.resources import ResourceType

Object = dict[str, Any]

API_AUDIENCES: Final = ("https://kubernetes.default.svc.cluster.local",)
"""For whom tokens are that were made for nobody else; ``--api-audiences`` of a kube-apiserver."""

_GROUPS: Final = ("authentication.k8s.io", "authorization.k8s.io")
_ANY: Final = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
_ATTRIBUTES: Final = ("resourceAttributes", "nonResourceAttributes")


@dataclass(frozen=True)
class TokenUser:
    """Whom a token stands for, and for which audiences it was made."""

    username: str
    groups: tuple[str, ...] = ("system:authenticated",)
    audiences: tuple[str, ...] = API_AUDIENCES
    uid: str = ""


def is_review(rtype: ResourceType) -> bool:
    """Whether a type is asked by creating it, and never stored."""
    return rtype.group in _GROUPS


def answer(
    rtype: ResourceType,
    body: Object,
    identity: str,
    known: Callable[[str], TokenUser | None] = lambda _: None,
    permitted: Callable[[Object], bool] = lambda _: True,
) -> Object:
    """The review with its status: ``known`` tells whom a token stands for, ``permitted`` what a SubjectAccessReview's
    spec comes to. Raises StatusError for a spec that asks nothing."""
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
    """A token that was made for none of the audiences that are asked about is nobody's."""
    if not spec.get("token"):
        raise bad_request("token is required for TokenReview in authentication")
    user, wanted = known(spec["token"]), spec.get("audiences") or API_AUDIENCES
    common = [] if user is None else [audience for audience in wanted if audience in user.audiences]
    if user is None:
        return {"user": {}, "error": "[invalid bearer token, unknown token]"}
    if not common:
        made = ", ".join(user.audiences)
        return {"user": {}, "error": f"[invalid bearer token, token audiences [{made}] are none of {list(wanted)}]"}
    told = {"username": user.username, "uid": user.uid, "groups": list(user.groups)}
    told = {name: value for name, value in told.items() if value}
    return {"authenticated": True, "user": told, "audiences": common}


def _expect_subject_and_attributes(rtype: ResourceType, spec: Object) -> None:
    """Raises StatusError 422, as an API server does."""
    wrong = []
    if sum(bool(spec.get(name)) for name in _ATTRIBUTES) != 1:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        wrong.append(StatusCause("FieldValueInvalid", f'Invalid value: "": {why}', "spec.resourceAttributes"))
    if not spec.get("user") and not spec.get("groups"):
        why = "at least one of user or group must be specified"
        wrong.append(StatusCause("FieldValueInvalid", f'Invalid value: "": {why}', "spec.user"))
    if wrong:
        raise invalid(rtype.kind, rtype.group, "", wrong)

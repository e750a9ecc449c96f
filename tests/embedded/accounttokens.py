"""Issues tokens for TokenRequests of ServiceAccounts, and returns the user of a valid token."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from vcd.embedded.reviews import API_AUDIENCES, TokenUser
from vcd.embedded.status_errors import StatusCause, bad_request, invalid
from vcd.embedded.store import timestamp

Object = dict[str, Any]

_DEFAULT_SECONDS: Final = 3600
_LEAST_SECONDS: Final = 600
_MOST_SECONDS: Final = 1 << 32


@dataclass(frozen=True)
class _Issued:
    user: TokenUser
    until: float


class AccountTokens:
    """The issued tokens. ``now`` returns seconds since the epoch."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._issued: dict[str, _Issued] = {}

    def issue(self, account: Object, body: Object) -> Object:
        """Return a TokenRequest with its token. Raises StatusError 400 or 422 for an invalid request."""
        spec = body.get("spec") or {}
        if not isinstance(spec, dict):
            field = "TokenRequest.spec"
            raise bad_request(f"json: cannot unmarshal into Go struct field {field} of type v1.TokenRequestSpec")
        audiences, seconds = spec.get("audiences") or [], spec.get("expirationSeconds", _DEFAULT_SECONDS)
        if not isinstance(audiences, list) or not all(isinstance(each, str) for each in audiences):
            field = "TokenRequestSpec.spec.audiences"
            raise bad_request(f"json: cannot unmarshal into Go struct field {field} of type []string")
        fault = ""
        if not isinstance(seconds, int) or seconds < _LEAST_SECONDS:
            fault = f"Invalid value: {seconds}: may not specify a duration less than 10 minutes"
        elif seconds > _MOST_SECONDS:
            fault = f"Invalid value: {seconds}: may not specify a duration larger than 2^32 seconds"
        if fault:
            cause = StatusCause("FieldValueInvalid", fault, "spec.expirationSeconds")
            raise invalid("TokenRequest", "authentication.k8s.io", "", [cause])
        metadata = account["metadata"]
        namespace, name, until = metadata["namespace"], metadata["name"], self._now() + seconds
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        made = tuple(audiences) or API_AUDIENCES
        user = TokenUser(f"system:serviceaccount:{namespace}:{name}", groups, made, metadata["uid"])
        token = f"{namespace}.{name}.{secrets.token_urlsafe(16)}"
        self._issued[token] = _Issued(user, until)
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"audiences": list(made), "expirationSeconds": seconds, "boundObjectRef": None},
            "status": {"token": token, "expirationTimestamp": timestamp(until)},
        }

    def user_of(self, token: str) -> TokenUser | None:
        """Return the user of a token; None if it is unknown or expired."""
        found = self._issued.get(token)
        return found.user if found is not None and self._now() < found.until else None

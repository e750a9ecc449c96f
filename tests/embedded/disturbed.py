"""The embedded API server with what tests need of it: identities, faults, habits of other servers, silent watches."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from aiohttp import web

from tests.embedded import portforward
from tests.embedded.accounttokens import AccountTokens
from vcd.embedded.api_server import ADMIN, HEALTH, ApiServer
from vcd.embedded.listing import ListPage
from vcd.embedded.request import ApiCall, Target
from vcd.embedded.resource_types import ResourceType
from vcd.embedded.reviews import API_AUDIENCES, TokenUser
from vcd.embedded.status_errors import StatusError, forbidden
from vcd.embedded.store import Store
from vcd.embedded.watch_stream import WatchStream

Object = dict[str, Any]
Answer = web.StreamResponse | None
FaultHook = Callable[[web.Request], Answer | Awaitable[Answer]]


class Call(NamedTuple):
    """What authorization looks at: verb, dotted plural, subresource (or "") and namespace (None: not in one)."""

    verb: str
    resource: str
    subresource: str
    namespace: str | None


@dataclass
class Habits:
    """What an API server may do, and those behind proxies have done, to clients that must cope with it.

    ``bookmarks``: whether watches that ask for bookmarks get any. ``list_versions``: whether lists tell their
    resourceVersion. ``refuse_watches``: the HTTP status that every watch is refused with, 0 for none.
    ``fail_watches``: the code of the ERROR event that every watch ends with as soon as it is open, 0 for none.
    """

    bookmarks: bool = True
    list_versions: bool = True
    refuse_watches: int = 0
    fail_watches: int = 0


class Stallable(WatchStream):
    """A watch that can be kept silent while its connection stays open."""

    stalled = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._kept: list[bytes] = []

    @property
    def waiting(self) -> int:
        """How many lines are kept back."""
        return len(self._kept)

    def _push(self, line: bytes) -> None:
        if self.stalled:
            self._kept.append(line)
        else:
            super()._push(line)

    def resume(self) -> None:
        """Send what was kept back."""
        self.stalled = False
        kept, self._kept = self._kept, []
        for line in kept:
            self._push(line)

    def end(self) -> None:
        self.resume()
        super().end()


class DisturbedServer(ApiServer):
    """Serves a Store over HTTP, and not always well.

    ``tokens`` maps bearer tokens to the identities that they stand for; without it every request is the
    administrator's. ``bookmarks`` is the seconds between a watch's bookmarks. ``faults`` is called with each request
    before anything else and may answer it, delay it, or raise; ``authorize(identity, call, name)`` may refuse;
    ``permit(spec)`` answers SubjectAccessReviews, which else allow everything; ``audiences`` are those that a token
    was made for, where it is not the API server; ``minds_audiences`` is False for a server that knows nothing of
    audiences; ``audit`` counts the calls of each identity.
    """

    stream_type = Stallable

    def __init__(self, store: Store, *, tokens: dict[str, str] | None = None, bookmarks: float = 60.0) -> None:
        super().__init__(store)
        self.tokens = tokens
        self._account_tokens = AccountTokens(store.clock)
        self.faults: FaultHook | None = None
        self.habits = Habits()
        self.authorize: Callable[[str, Call, str], bool] | None = None
        self.permit: Callable[[Object], bool] | None = None
        self.audiences: dict[str, tuple[str, ...]] = {}
        self.minds_audiences = True
        self.audit: dict[str, dict[Call, int]] = {}
        self._seconds = bookmarks

    def cut_watches(self, resource: str | None = None) -> int:
        """End the open watches of a resource, or all; returns how many."""
        chosen = self.open_watches(resource)
        for stream in chosen:
            stream.end()
        return len(chosen)

    def stall_watches(self, resource: str | None = None) -> int:
        """Keep the open watches of a resource (or all) silent, connections open, until ``resume_watches``."""
        chosen = self.open_watches(resource)
        for stream in chosen:
            stream.stalled = True
        return len(chosen)

    def resume_watches(self) -> None:
        """Let stalled watches send what they kept back."""
        for stream in self.open_watches():
            stream.resume()

    def open_watches(self, resource: str | None = None) -> list[Stallable]:
        """The open watches of a resource, or all."""
        streams = [stream for stream in self._streams if isinstance(stream, Stallable)]
        return [stream for stream in streams if resource is None or stream.rtype.resource == resource]

    # --- in the server's place --------------------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if self.faults is not None:
            answer = self.faults(request)
            if inspect.isawaitable(answer):
                answer = await answer
            if answer is not None:
                return answer
        return await super()._handle(request)

    def _identity(self, request: web.Request) -> str:
        if self.tokens is None or request.path in HEALTH:
            return ADMIN
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        identity = self.tokens.get(token.strip()) if scheme.lower() == "bearer" else None
        if identity is None:
            raise StatusError(401, "Unauthorized", "Unauthorized")
        return identity

    def _permit(self, identity: str, verb: str, target: Target, name: str) -> None:
        call = Call(verb, target.rtype.resource, target.part, target.namespace)
        calls = self.audit.setdefault(identity, {})
        calls[call] = calls.get(call, 0) + 1
        if self.authorize is None or self.authorize(identity, call, name):
            return
        where = f' in the namespace "{target.namespace}"' if target.namespace else " at the cluster scope"
        named = target.rtype.plural + (f"/{target.part}" if target.part else "")
        why = f'User "{identity}" cannot {verb} resource "{named}" in API group "{target.rtype.group}"{where}'
        error = forbidden(target.rtype.resource, target.name, why)
        if not target.name:
            error.message = f"{target.rtype.resource} is forbidden: {why}"
        raise error

    def _review(self, rtype: ResourceType, asked: Object, identity: str) -> Object:
        if self.minds_audiences or rtype.kind != "TokenReview":
            return super()._review(rtype, asked, identity)
        made = super()._review(rtype, {"spec": {"token": (asked.get("spec") or {}).get("token")}}, identity)
        made["status"].pop("audiences", None)
        return made

    def _user_of(self, token: str) -> TokenUser | None:
        user = (self.tokens or {}).get(token)
        if user is None:
            return self._account_tokens.user_of(token)
        return TokenUser(user, audiences=self.audiences.get(token, API_AUDIENCES))

    async def _forward(self, request: web.Request, pod: Object) -> web.StreamResponse:
        return await portforward.serve(request, pod)

    def _issue_token(self, account: Object, body: Object) -> Object:
        return self._account_tokens.issue(account, body)

    def _is_permitted(self, asked: Object) -> bool:
        return self.permit is None or self.permit(asked)

    def _page(self, asked: ApiCall) -> ListPage:
        found = super()._page(asked)
        if not self.habits.list_versions:
            found.metadata.pop("resourceVersion")
        return found

    def _opened(self, asked: ApiCall) -> WatchStream:
        if self.habits.refuse_watches:
            raise StatusError(self.habits.refuse_watches, "InternalError", "watches are refused")
        stream = super()._opened(asked)
        if self.habits.fail_watches:
            stream.fail(StatusError(self.habits.fail_watches, "InternalError", "watches fail"))
        return stream

    def _bookmarks(self, asked: ApiCall) -> float | None:
        return self._seconds if self.habits.bookmarks and super()._bookmarks(asked) is not None else None

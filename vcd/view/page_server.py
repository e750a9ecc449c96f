"""The HTTP server of the page and its API. It only reads, and computes each answer from the log on request."""

from __future__ import annotations

import errno
import ssl
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from functools import partial
from importlib import resources
from pathlib import Path

import msgspec
import structlog
from aiohttp import web

from vcd.serving.authorization import Person, Reviews, Tokens
from vcd.serving.connection_limits import IDLE_SECONDS, listening
from vcd.serving.host_header import is_local, not_local, not_named
from vcd.view import questions
from vcd.view.page_documents import PageError
from vcd.view.page_openapi import description
from vcd.view.page_worker import Worker
from vcd.view.visibility import PAGE, UnreviewedRights, Visibility

_log = structlog.get_logger(__name__)

_ROUNDS = 8
"""Attempts to answer a question, each with more rights known. Three are enough unless new namespaces appear."""

_KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Server": "vcd",
}
_PRESERVED_HEADERS = ("Allow", "Retry-After", "WWW-Authenticate")

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ViewError(Exception):
    """The page cannot be served at an address; the message states why, and what to change."""


class View:
    """Serve the page of the log at ``path``, as an async context manager.

    It listens on ``host`` (empty: all addresses of the machine) and ``port`` (0: any free one). If other machines can
    reach that address, every request needs a bearer token, ``reviews`` decides what its user may see, the Host header
    must be one of ``hosts`` (see ``not_named``), and ``tls`` applies; without ``reviews`` it refuses to start. Errors
    name ``flag``, and ``called`` instead of the log's path if ``path`` is a copy. ``now`` is a clock in seconds.

    Worker processes answer the questions; they start with the first one.
    """

    def __init__(
        self,
        path: Path,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        reviews: Reviews | None = None,
        hosts: Collection[str] = (),
        tls: ssl.SSLContext | None = None,
        flag: str = "--address",
        called: str = "",
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._host = host
        self.port = port
        """The port that it listens on, once it listens."""
        self._flag = flag
        self._called = called
        self._local = is_local(host)
        self._tokens = None if self._local or reviews is None else Tokens(reviews, now)
        self._hosts = frozenset(name.lower() for name in hosts)
        self._tls = None if self._local else tls
        self._worker, self._patient = Worker(), Worker()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> View:
        """Listen. Raises ViewError."""
        where = f"{self._flag} {self._host}:{self.port}"
        if not self._local and self._tokens is None:
            raise ViewError(
                f"{where}: others could read the log there, and nothing reviews their tokens; serve it on 127.0.0.1 and"
                " reach it by a tunnel (kubectl port-forward, ssh -L)"
            )
        self._stack.push_async_callback(self._patient.stop)
        self._stack.push_async_callback(self._worker.stop)
        runner = web.AppRunner(
            self._application(),
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=1.0,
            keepalive_timeout=IDLE_SECONDS,
        )
        try:
            self.port = await self._stack.enter_async_context(listening(runner, self._host, self.port, self._tls))
        except OSError as error:
            await self._stack.aclose()
            taken = "; give another port" if error.errno == errno.EADDRINUSE else ""
            raise ViewError(f"{where}: {error.strerror or error}{taken}") from error
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening and cancel the questions under way."""
        await self._stack.aclose()

    @property
    def url(self) -> str:
        """The page's URL."""
        host = self._host or "0.0.0.0"
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[_errors_as_json, self._check_host])
        for file in resources.files("vcd.view").joinpath("static").iterdir():
            path = "/" if file.name == "index.html" else f"/{file.name}"
            application.router.add_get(path, _static(file.read_bytes(), _KINDS[Path(file.name).suffix]))
        application.router.add_get("/openapi.json", _static(msgspec.json.encode(description()), "application/json"))
        for name, question in questions.QUESTIONS.items():
            application.router.add_get(f"/api/{name}", self._question_handler(name, question.parameters))
        application.on_response_prepare.append(_add_headers)
        return application

    @web.middleware
    async def _check_host(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        host = request.headers.get("Host", "")
        refused = not_local(host) if self._local else not_named(host, self._hosts)
        refused = refused or _refuse_cross_site(request)
        if refused is not None:
            raise web.HTTPForbidden(text=refused)
        return await handler(request)

    def _question_handler(self, question: str, parameters: tuple[str, ...]) -> _Handler:
        async def asked(request: web.Request) -> web.StreamResponse:
            person = None if self._tokens is None else await self._tokens.person(request)
            unknown = [name for name in request.query if name not in parameters]
            if unknown:
                known = f"it takes {', '.join(parameters)}" if parameters else "it takes none"
                raise web.HTTPBadRequest(text=f"{request.path} has no parameter {unknown[0][:40]!r}; {known}")
            given = tuple(request.query.get(name, "") for name in parameters)
            requester = (request.remote or "") if person is None else person.name
            status, body = await self._answer(person, question, given, requester)
            return web.Response(status=status, body=body, content_type="application/json")

        return asked

    async def _answer(
        self, person: Person | None, question: str, given: tuple[str, ...], requester: str
    ) -> questions.Answer:
        """Answer a question for a user (None: a local user, who sees everything).

        The answer itself determines which rights matter, because it depends on the namespaces in the log. So the
        question is repeated with the missing rights until none is missing.
        """
        worker = self._patient if question in questions.LONG else self._worker
        ask = partial(worker.ask, str(self._path), question, given, called=self._called, requester=requester)
        if person is None or await person.may(PAGE):
            found = await ask(None)
            assert not isinstance(found, UnreviewedRights)
            return found
        known = person.known()
        for _ in range(_ROUNDS):
            try:
                found = await ask(Visibility(person.name, known))
            except web.HTTPException:
                raise
            except Exception as error:  # the message of the failure may name objects that the user must not see
                _log.exception("a question failed", question=question, given=given)
                raise web.HTTPInternalServerError(text="the query failed; the program's log has the error") from error
            if not isinstance(found, UnreviewedRights):
                return found
            known |= await person.rights(sorted(found.accesses), named=found.named)
        raise web.HTTPServiceUnavailable(text="the log grew while your rights were reviewed; try again")


# --- answers ----------------------------------------------------------------------------------------------------------


@web.middleware
async def _errors_as_json(request: web.Request, handler: _Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        sentence = error.text or error.reason
        if error.status == 404:
            sentence = f"there is no page {request.path[:80]}"
        elif error.status == 405:
            sentence = f"{request.method} is not allowed: the page only reads"
        headers = {name: error.headers[name] for name in _PRESERVED_HEADERS if name in error.headers}
        return _error(error.status, sentence, headers)
    except Exception as error:  # noqa: BLE001 - a plugin may fail when a session is decided again
        _log.exception("a question failed", path=request.path)
        return _error(500, f"the query failed with {type(error).__name__}: {error}", {})


def _refuse_cross_site(request: web.Request) -> str | None:
    """Return why a request is refused that a page of another site sent through the user's browser; None if it is not.
    That page could not read the answer, but it could keep this server busy by deciding sessions again."""
    site = request.headers.get("Sec-Fetch-Site", "")
    if site not in ("cross-site", "same-site") or not request.path.startswith("/api/"):
        return None
    return f"requests of other websites are refused (Sec-Fetch-Site: {site}); open the address itself"


def _error(status: int, sentence: str, headers: dict[str, str]) -> web.Response:
    body = msgspec.json.encode(PageError(sentence))
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
    response.headers["Cache-Control"] = "no-store" if request.path.startswith("/api/") else "no-cache"


def _static(body: bytes, kind: str) -> _Handler:
    async def page(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, content_type=kind, charset="utf-8")

    return page

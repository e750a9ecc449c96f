"""Who may ask a replica over HTTP, and its certificate: what the flags say of its ports, and what the API server."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Sequence

from aiohttp import web

from vcd.daemon.options import Options
from vcd.daemon.replicas.identity import AUDIENCE
from vcd.daemon.replicas.wire import PATH
from vcd.kube.access_reviews import User, review_access, review_token
from vcd.kube.client import KubeClient
from vcd.kube.connection import ConfigurationError
from vcd.serving.access import Access
from vcd.serving.people import Person, Tokens
from vcd.serving.tls import Certificate, CertificateError

LOG = Access("get", path=PATH)
"""What who follows the log must be allowed to."""
REPLICA = Access("put", path=PATH)
"""What a replica must be allowed to, whose log the next leader may take over."""
METRICS = Access("get", path="/metrics")
"""What a scraper must be allowed to, as in kubebuilder's projects."""


class ApiReviews:
    """The API server's reviews; tokens must be for one of ``audiences`` where there are any."""

    def __init__(self, client: KubeClient, audiences: Sequence[str] = ()) -> None:
        self._client = client
        self._audiences = audiences

    async def who(self, token: str) -> User | None:
        """Whom a token stands for; None: nobody. Raises KubeError."""
        return await review_token(self._client, token, self._audiences)

    async def may(self, who: User, access: Access) -> bool:
        """Whether they may do something. Raises KubeError."""
        return await review_access(self._client, who, access.attributes())


class Security:
    """What protects the ports of a replica.

    ``page`` reviews who asks the page, ``certificate`` is there where the flags name one. ``refused`` is called for
    each version of the certificate that cannot be used.
    """

    def __init__(self, options: Options, client: KubeClient, refused: Callable[[], None]) -> None:
        """Read the certificate. Raises ConfigurationError."""
        self.page = ApiReviews(client, options.page_audiences)
        self.certificate: Certificate | None = None
        self._secure_metrics = options.metrics_secure
        self._scrapers = Tokens(ApiReviews(client)) if options.metrics_require_token else None
        self._followers = Tokens(ApiReviews(client, [AUDIENCE]))
        self._refused = refused
        if options.tls_cert_file is not None and options.tls_private_key_file is not None:
            try:
                self.certificate = Certificate(options.tls_cert_file, options.tls_private_key_file)
            except CertificateError as error:
                raise ConfigurationError(str(error)) from error

    @property
    def metrics_tls(self) -> ssl.SSLContext | None:
        """By what the metrics are served; None for plain HTTP."""
        return self.certificate.context if self.certificate is not None and self._secure_metrics else None

    async def check_scraper(self, request: web.Request) -> None:
        """Let who may read the metrics pass: everybody, unless a token is required.

        Raises HTTPForbidden, and what ``Tokens.person`` raises.
        """
        if self._scrapers is None:
            return
        await _check(self._scrapers, request, METRICS, "read the metrics")

    async def check_follower(self, request: web.Request) -> bool:
        """Let who may follow the log pass, by a token that was made for vcd; whether it is a replica.

        Raises HTTPForbidden, and what ``Tokens.person`` raises.
        """
        person = await _check(self._followers, request, LOG, "follow the log")
        return await person.may(REPLICA)

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """The certificate follows its files meanwhile."""
        if self.certificate is None:
            yield
            return
        task = asyncio.get_running_loop().create_task(self.certificate.follow(self._refused))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _check(tokens: Tokens, request: web.Request, access: Access, what: str) -> Person:
    person = await tokens.person(request)
    if not await person.may(access):
        raise web.HTTPForbidden(text=f"{person.name} may not {what}: it takes {access}")
    return person

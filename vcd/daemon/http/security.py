"""Authorizes requests to a replica's ports by the API server's reviews, and holds the server certificate.

`vcd.serving` has the mechanisms (tokens, rights, certificates). This module applies the flags to the replica's ports.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Sequence

from aiohttp import web

from vcd.daemon.options import Options
from vcd.daemon.replicas.replica_identity import AUDIENCE
from vcd.daemon.replicas.replica_protocol import PATH
from vcd.kube.access_reviews import User, review_access, review_token
from vcd.kube.client import KubeClient
from vcd.kube.kube_connection import ConfigurationError
from vcd.serving.access_rights import Access
from vcd.serving.authorization import Person, Tokens
from vcd.serving.tls import Certificate, CertificateError

LOG = Access("get", path=PATH)
"""The right to follow the log."""
REPLICA = Access("put", path=PATH)
"""The right of a replica, from which the next leader may copy events."""
METRICS = Access("get", path="/metrics")
"""The right to read metrics, as in kubebuilder's projects."""


class ApiReviews:
    """The API server's reviews. Tokens must be for one of ``audiences``, if any are given."""

    def __init__(self, client: KubeClient, audiences: Sequence[str] = ()) -> None:
        self._client = client
        self._audiences = audiences

    async def who(self, token: str) -> User | None:
        """Return the user of a token; None if it is invalid. Raises KubeError."""
        return await review_token(self._client, token, self._audiences)

    async def may(self, who: User, access: Access) -> bool:
        """Return whether a user has a right. Raises KubeError."""
        return await review_access(self._client, who, access.attributes())


class Security:
    """Protects the ports of a replica.

    ``page`` reviews users of the web page. ``certificate`` is set if the flags name one. ``refused`` is called for each
    version of the certificate that cannot be used.
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
        """Return the TLS context for metrics; None for plain HTTP."""
        return self.certificate.context if self.certificate is not None and self._secure_metrics else None

    async def check_scraper(self, request: web.Request) -> None:
        """Authorize a scraper, if a token is required. Raises HTTPForbidden, and what ``Tokens.person`` raises."""
        if self._scrapers is None:
            return
        await _check(self._scrapers, request, METRICS, "read the metrics")

    async def check_follower(self, request: web.Request) -> bool:
        """Authorize a follower of the log by a token with audience vcd; return whether it is a replica.

        Raises HTTPForbidden, and what ``Tokens.person`` raises.
        """
        person = await _check(self._followers, request, LOG, "follow the log")
        return await person.may(REPLICA)

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Reload the certificate when its files change, while the context lasts."""
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
        raise web.HTTPForbidden(text=f"{person.name} may not {what}; {access} is required")
    return person

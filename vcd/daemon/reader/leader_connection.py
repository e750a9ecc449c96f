"""Connects to the leader's log through the API server: TLS inside a port-forward, pinned by the Lease's fingerprint.

Before changing it: no token may be sent before the certificate is compared with the fingerprint.
"""

from __future__ import annotations

import hmac
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

from vcd.daemon.reader.kubeconfig import ClusterError
from vcd.daemon.reader.leader_finder import Finder, Lease, NoLeader
from vcd.daemon.replicas import replica_protocol
from vcd.daemon.replicas.replica_network import Socket, connected
from vcd.kube.api_errors import ApiError
from vcd.kube.client import KubeClient
from vcd.kube.portforward import forward_port

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler


@asynccontextmanager
async def reached(client: KubeClient, finder: Finder, lease: Lease, token_file: Path | None) -> AsyncIterator[Socket]:
    """Connect to the log of a Lease holder, and close the connection with the context.

    Raises ClusterError if the user may not, NoLeader if the holder is gone, KubeError and what aiohttp raises.
    """
    at = await finder.pod(lease)
    headers = {"Authorization": f"Bearer {await finder.token(at, token_file)}"}
    try:
        async with forward_port(client, at.namespace, at.pod, at.port) as near:
            through = _Through(near, lease.address.fingerprint)
            async with connected(lease.address.url, headers, through) as stream:
                yield stream
    except aiohttp.WSServerHandshakeError as error:
        raise _refused(lease.holder, error) from None
    except ApiError as error:
        raise finder.may_not_forward(error, at) from None


def _refused(holder: str, error: aiohttp.WSServerHandshakeError) -> ClusterError | NoLeader:
    if error.status == 401:
        why = "create one for audience vcd that has not expired"
        return ClusterError(f"{holder} refuses the token; {why}")
    if error.status == 403:
        why = "bind its user to a ClusterRole with verb get on the nonResourceURL"
        return ClusterError(f"{holder} refuses to serve its log to this token; {why} {replica_protocol.PATH}")
    return NoLeader(f"{holder} answers with {error.status} {error.message}")


class _Through(aiohttp.BaseConnector):
    """Connects over an existing socket, by TLS with a pinned certificate."""

    def __init__(self, near: socket.socket, fingerprint: bytes) -> None:
        super().__init__(force_close=True)
        self._near = near
        self._fingerprint = fingerprint

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: object, timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        transport, protocol = await self._loop.create_connection(
            self._factory, sock=self._near, ssl=_any_certificate(), server_hostname=""
        )
        shown = transport.get_extra_info("ssl_object").getpeercert(binary_form=True) or b""
        if not hmac.compare_digest(sha256(shown).digest(), self._fingerprint):
            transport.abort()
            # happens after a restart of the container, until it takes the Lease again
            why = "has another certificate than the Lease names; no token was sent"
            raise NoLeader(f"the server at {req.url.host} {why}")
        return protocol


def _any_certificate() -> ssl.SSLContext:
    """Return a TLS context without verification, because the caller compares the fingerprint."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context

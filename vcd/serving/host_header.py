"""Checks of the Host header against DNS rebinding: a foreign page whose name resolves to this address is refused."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")
_OF_CLUSTERS = (".svc", ".cluster.local")


def is_local(host: str) -> bool:
    """Return whether only this machine reaches what listens on ``host``; an empty host means every address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_host(text: str) -> bool:
    """Return whether a text is a host name or an IP address, as in a Host header without the port."""
    return _is_address(text) or _NAME.fullmatch(text.lower()) is not None


def not_local(header: str) -> str | None:
    """Return why a request with this Host header is refused at a local address; None if it is not."""
    return (
        None
        if is_local(_host_in(header))
        else f"Host {header[:80]!r} is not this machine; open the page as http://localhost"
    )


def not_named(header: str, names: Collection[str]) -> str | None:
    """Return why a request with this Host header is refused by a server with these host names (lower case); None if it
    is not.

    Without names, hosts are accepted that public DNS cannot have: IP addresses, names of a single label, and names of
    Services (``*.svc``, ``*.cluster.local``).
    """
    host = _host_in(header)
    if host in names if names else _is_private_name(host):
        return None
    return f"Host {header[:80]!r} is not a host of this page; --page-host adds one"


def _is_private_name(host: str) -> bool:
    if _is_address(host):
        return True
    return _NAME.fullmatch(host) is not None and ("." not in host or host.endswith(_OF_CLUSTERS))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _host_in(header: str) -> str:
    """Return the host that a Host header names: lower case, without brackets, port and trailing dot."""
    name = header.lower()
    host = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    return host.removesuffix(".")

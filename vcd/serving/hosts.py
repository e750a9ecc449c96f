"""Under which names a port is asked: a page elsewhere whose name was made to point here is refused (DNS rebinding)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")
_OF_CLUSTERS = (".svc", ".cluster.local")


def is_local(host: str) -> bool:
    """Whether only this machine reaches what listens on ``host``; an empty one means every address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_host(text: str) -> bool:
    """Whether a text is a host's name or an IP address, as a Host header has it without the port."""
    return _is_address(text) or _NAME.fullmatch(text.lower()) is not None


def not_local(header: str) -> str | None:
    """Why a request with this Host header is refused where only this machine may ask; None where it is not."""
    return (
        None
        if is_local(_host_in(header))
        else f"Host {header[:80]!r} is not this machine; open the page as http://localhost"
    )


def not_named(header: str, names: Collection[str]) -> str | None:
    """Why a request with this Host header is refused that may name some hosts (lower case) only; None where it is not.

    Without any, what nobody can have in the public DNS is taken: IP addresses, names of a single label, and those of a
    cluster's services (``*.svc``, ``*.cluster.local``).
    """
    host = _host_in(header)
    if host in names if names else _cannot_be_bought(host):
        return None
    return f"Host {header[:80]!r} is no name of this page; --page-host adds one"


def _cannot_be_bought(host: str) -> bool:
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
    """The host that a Host header names, in lower case, without brackets, the port, and the dot of the root."""
    name = header.lower()
    host = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    return host.removesuffix(".")

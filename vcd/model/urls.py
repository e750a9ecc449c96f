"""Check addresses given by users, so that every part that takes one refuses the same ones at its start."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_HOST = re.compile(r"[\w.-]+|[0-9A-Fa-f:.]+(%[\w.-]+)?")


def url_problem(text: str) -> str:
    """Return what is wrong with the URL of a server to which paths are added; empty if nothing is."""
    if re.search(r"[\s\x00-\x1f]", text):
        return "it has a blank"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        return f"it is no URL ({error})"
    if parts.scheme not in ("http", "https"):
        return f"its scheme is {parts.scheme or 'missing'}, not http or https"
    if not _HOST.fullmatch(host):
        return f"{host or 'nothing'} is no host"
    if port == 0 or parts.netloc.endswith(":"):
        return "it has no port" if port is None else "0 is no port"
    return "it has a query or a fragment" if parts.query or parts.fragment else ""

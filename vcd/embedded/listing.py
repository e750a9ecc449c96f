"""Answers list requests: parameters, pages and continue tokens, and the encoded list."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from vcd.embedded.resource_types import ResourceType
from vcd.embedded.schema_codec import encode
from vcd.embedded.selection import selection
from vcd.embedded.status_errors import StatusError, bad_request, expired
from vcd.embedded.store import Store
from vcd.embedded.watch_cache import Entry, Key

_TOO_OLD_TOKEN: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
_TOKEN_VERSION: Final = "meta.k8s.io/v1"
_DIGITS: Final = 20
"""Digits of the largest 64-bit number."""


@dataclass(slots=True)
class ListPage:
    """Entries of one page, with the list's metadata."""

    entries: list[Entry]
    metadata: dict[str, Any]


def token(version: int, key: Key, namespace: str | None) -> str:
    """Return a continue token for the list at ``version`` (-1: the current one) after ``key``."""
    start = key[1] if namespace is not None or not key[0] else f"{key[0]}/{key[1]}"
    raw = json.dumps({"v": _TOKEN_VERSION, "rv": version, "start": start + "\0"}, separators=(",", ":"))
    return base64.urlsafe_b64encode(raw.encode()).decode().rstrip("=")


def _read_token(text: str, namespace: str | None, namespaced: bool) -> tuple[int, Key]:
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from None
    try:
        content = json.loads(raw)
        version, start = int(content["rv"]), str(content["start"]).removesuffix("\0").removeprefix("/")
    except (ValueError, KeyError, TypeError):
        found = chr(raw[0]) if raw else ""
        why = f"invalid character '{found}' looking for beginning of value" if raw else "unexpected end of JSON input"
        raise bad_request(f"invalid continue token: continue key is not valid: {why}") from None
    if not namespaced:
        return version, ("", start)
    if namespace is not None:
        return version, (namespace, start)
    first, _, name = start.partition("/")
    return version, (first, name)


def number(query: Mapping[str, str], name: str) -> int | None:
    """Parse a query parameter that is a count or a resourceVersion; None if it is absent. Raises StatusError 400."""
    text = query.get(name, "")
    if not text:
        return None
    fault = ""
    if not (text.isascii() and text.isdigit()):
        fault = "invalid syntax"
    elif len(text) > _DIGITS or int(text) >= 1 << 64:
        fault = "value out of range"
    if fault:
        raise bad_request(f'{name}: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": {fault}')
    return int(text)


def page(store: Store, rtype: ResourceType, namespace: str | None, query: Mapping[str, str]) -> ListPage:
    """Return the entries that a list request selects.

    Raises StatusError: 400 for invalid parameters, 410 for a version or token whose history was compacted, 504 for a
    version in the future.
    """
    chosen = selection(rtype, query)
    limit = number(query, "limit") or 0
    version, candidates = _candidates(store, rtype, namespace, query, limit)
    if query.get("resourceVersion") == "0" and not query.get("continue"):
        limit = 0
    entries: list[Entry] = []
    matches = None if chosen.everything else chosen.matches
    more = False
    for entry in candidates:
        if matches is not None and not matches(entry.obj):
            continue
        if limit and len(entries) == limit:
            more = True
            break
        entries.append(entry)
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if more:
        metadata["continue"] = token(version, entries[-1].key, namespace)
        if chosen.everything:
            metadata["remainingItemCount"] = 1 + sum(1 for _ in candidates)
    return ListPage(entries, metadata)


def _candidates(
    store: Store, rtype: ResourceType, namespace: str | None, query: Mapping[str, str], limit: int
) -> tuple[int, Iterator[Entry]]:
    shelf = store.shelf(rtype.storage)
    if query.get("continue"):
        if query.get("resourceVersion", "0") not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        version, after = _read_token(query["continue"], namespace, rtype.namespaced)
        if version < 0:
            return store.version, shelf.all(namespace, after)
        try:
            return version, shelf.at(version, namespace, after)
        except StatusError:
            again = token(-1, after, namespace)
            raise expired(_TOO_OLD_TOKEN, {"continue": again}) from None
    asked = number(query, "resourceVersion")
    match = query.get("resourceVersionMatch", "")
    if asked and asked > store.version:
        raise _too_large(asked, store.version)
    if asked and (match == "Exact" or (not match and limit)):
        return asked, shelf.at(asked, namespace)
    return store.version, shelf.all(namespace)


def _too_large(asked: int, current: int) -> StatusError:
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return StatusError(
        504, "Timeout", f"Timeout: Too large resource version: {asked}, current: {current}",
        {"causes": causes, "retryAfterSeconds": 1},
    )  # fmt: skip


def list_bytes(rtype: ResourceType, found: ListPage) -> bytes:
    """Encode a list from the entries' bytes. Items of built-in kinds have no kind and apiVersion."""
    head = encode({"kind": rtype.list_name, "apiVersion": rtype.api_version, "metadata": found.metadata})[:-1]
    if rtype.custom:
        items = b",".join([entry.json for entry in found.entries])
    else:
        skip = len(encode({"kind": rtype.kind, "apiVersion": rtype.api_version}))
        items = b",".join([b"{" + entry.json[skip:] for entry in found.entries])
    return b'%s,"items":[%s]}\n' % (head, items)

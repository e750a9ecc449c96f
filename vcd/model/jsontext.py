"""Parse third-party JSON texts without recursion: any nesting depth and any bytes are handled."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import msgspec

DEPTH = 100
"""Levels of nesting that are read. No field of a known kind is nested as deep; metadata.managedFields may be."""

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_NESTING = re.compile(_STRING.removesuffix(b'"') + rb'(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
"""A string that is cut off ends with the text: its contents are not scanned again."""
_STRUCTURE = re.compile(_STRING + rb'|[\[\]{},:"]', re.DOTALL)
_CLOSING = {b"{": b"}", b"[": b"]"}
_END = (b"", b"")
"""Yielded after the last part of a complete text."""


def shallow(raw: bytes | memoryview | msgspec.Raw) -> bytes:
    """Replace values nested deeper than DEPTH by null; an invalid text remains invalid."""
    text = bytes(raw)
    parts: list[bytes] = []
    depth = begin = 0
    for token in _NESTING.finditer(text):
        match token[0]:
            case b"{" | b"[":
                depth += 1
                if depth == DEPTH + 1:
                    parts += (text[begin : token.start()], b"null")
                    begin = len(text)
            case b"}" | b"]":
                if depth == DEPTH + 1:
                    begin = token.end()
                depth -= 1
    return b"".join([*parts, text[begin:]])


def members(raw: bytes | memoryview | msgspec.Raw) -> dict[str, bytes]:
    """Return the raw members of an object's text; empty if the text is no object."""
    return {string(key): value for key, value in _parts(bytes(raw), b"{") if key}


def is_object(raw: bytes | memoryview | msgspec.Raw) -> bool:
    """Whether a text is one complete object by its brackets and strings, with nothing after it."""
    return _END in _parts(bytes(raw), b"{")


def elements(raw: bytes | memoryview | msgspec.Raw) -> list[bytes]:
    """Return the raw elements of an array's text; empty if the text is no array."""
    return [value for _, value in _parts(bytes(raw), b"[") if value]


def string(raw: bytes) -> str:
    """Decode a JSON string, with U+FFFD for invalid characters; empty if it is no string."""
    if not raw.startswith(b'"'):
        return ""
    try:
        value = str(json.loads(raw.decode(errors="replace"), strict=False))
    except ValueError:
        return ""
    return value.encode(errors="replace").decode()


def _parts(text: bytes, opening: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield raw key (empty in an array) and value of each part, up to where the text is broken; _END if it is not."""
    begin, key = 0, b""
    open_: list[bytes] = []  # the closing brackets of open ones, the innermost last
    for token in _STRUCTURE.finditer(text):
        what, inner = token[0], len(open_) > 1
        if not open_ and (what != opening or text[: token.start()].strip()):
            return
        if what in _CLOSING:
            open_.append(_CLOSING[what])
            if len(open_) == 1:
                begin = token.end()
        elif what == b'"' or (what in (b"}", b"]") and what != open_[-1]):
            return
        elif inner:
            if what == open_[-1]:
                open_.pop()
        elif what == b":":
            key, begin = text[begin : token.start()].strip(), token.end()
        elif what in (b",", open_[-1]):
            value = text[begin : token.start()].strip()
            if value:
                yield key, value
            if what != b",":
                if not text[token.end() :].strip():
                    yield _END
                return
            key, begin = b"", token.end()

"""Parsing of annotations about cards: quotas, requests and accepted names (docs/semantics/capacity-card.md)."""

from __future__ import annotations

import msgspec

QUOTA = "volcano.sh/card.quota"
REQUEST = "volcano.sh/card.request"
CARD_NAME = "volcano.sh/card.name"
SEPARATOR = "|"
MILLI = 1000
"""Cards are counted in thousandths, like all scalar resources."""

Names = tuple[str, ...]

_MOST = 2**40
"""An implausible number of cards; beyond it sums could be inexact."""
_EXAMPLE = '{"NVIDIA-H200": 2}'
_COUNTS = msgspec.json.Decoder(dict[str, int])


class CardError(ValueError):
    """An unreadable annotation. The message states the problem and the remedy."""


def names_in(text: str) -> Names:
    """Return the distinct cards that a text such as ``A|B`` names, in its order. Raises CardError for an empty name."""
    names = [name.strip() for name in text.split(SEPARATOR)]
    if not all(names):
        raise CardError(f"{text!r} holds an empty card name; write names with {SEPARATOR} between them")
    return tuple(dict.fromkeys(names))


def _counts(text: str) -> dict[str, int]:
    try:
        counts = _COUNTS.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise CardError(
            f"{text[:200]!r} is no JSON object of whole numbers ({error}); write it as {_EXAMPLE}"
        ) from None
    for name, count in counts.items():
        if not 0 <= count <= _MOST:
            raise CardError(f"{count} of card {name!r} is not a number from 0 to {_MOST}")
    return counts


def read_quota(text: str) -> dict[str, int]:
    """Return a queue's cards by name, in thousandths. Raises CardError."""
    quota: dict[str, int] = {}
    for name, count in _counts(text).items():
        names = names_in(name)
        if len(names) > 1:
            raise CardError(f"{name!r} names several cards; a quota is given for each of them")
        quota[names[0]] = quota.get(names[0], 0) + count * MILLI
    return quota


def read_request(text: str) -> dict[Names, int]:
    """Return a group's cards by the acceptable names, in thousandths. Raises CardError."""
    request: dict[Names, int] = {}
    for name, count in _counts(text).items():
        names = names_in(name)
        request[names] = request.get(names, 0) + count * MILLI
    return request

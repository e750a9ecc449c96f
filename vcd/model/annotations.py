"""Read annotations that hold JSON: any text results in a value or one clear error."""

from __future__ import annotations

import json
from typing import Any, NoReturn


class AnnotationError(ValueError):
    """An annotation that cannot be read; the message describes what is wrong with its text."""


def json_mapping(text: str) -> dict[str, Any]:
    """Return the JSON object in ``text``, empty for null. Raises AnnotationError."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise AnnotationError(f"it is no JSON: {error}") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise AnnotationError("it must be a JSON object, in braces")
    return value


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number in JSON")

"""The fields of objects by path: which ones differ, their values as text, and setting one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

Path = tuple[str, ...]
Steps = dict[Path, tuple[Any, Any]]
"""The values of changed fields before and after, by path; None if the field did not exist."""


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the leaves of nested mappings with their paths; lists are leaves."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, (*path, str(name)))
    else:
        yield path, value


def changed_fields(before: Any, after: Any) -> Steps:
    """Return the fields that differ, in the order of their paths."""
    old, new = dict(leaves(before)), dict(leaves(after))
    paths = sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path))
    return {path: (old.get(path), new.get(path)) for path in paths}


def value_text(value: Any) -> str:
    """Return a value as it is written in a manifest; empty for None."""
    return "" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()


def set_field(plain: dict[str, Any], path: Path, value: Any) -> None:
    """Set a field of a manifest, or remove it (None); missing maps on the path are created.

    Raises ValueError with the name of a field on the path that is no map.
    """
    at = plain
    for name in path[:-1]:
        at = at.setdefault(name, {})
        if not isinstance(at, dict):
            raise ValueError(name)
    if value is None:
        at.pop(path[-1], None)
    else:
        at[path[-1]] = value

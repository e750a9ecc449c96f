"""The objects of one resource, sorted by key, and their history of changes, for lists, pages and watches."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from vcd.embedded.schema_codec import encode
from vcd.embedded.status_errors import expired

Object = dict[str, Any]
Key = tuple[str, str]

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"

_TOO_OLD: Final = "The resourceVersion for the provided list is too old."


@dataclass(slots=True, eq=False)
class Entry:
    """An object at one resourceVersion, immutable. Its JSON is encoded once, at first use."""

    key: Key
    version: int
    obj: Object
    _json: bytes | None = None

    @property
    def json(self) -> bytes:
        """Return the object as JSON, kind and apiVersion first."""
        if self._json is None:
            self._json = encode(self.obj)
        return self._json


@dataclass(slots=True, eq=False)
class Write:
    """One write: its kind (ADDED, MODIFIED, DELETED), and the object after and before it."""

    kind: str
    entry: Entry
    previous: Entry | None
    _line: bytes | None = None

    @property
    def version(self) -> int:
        """Return the write's resourceVersion."""
        return self.entry.version

    @property
    def line(self) -> bytes:
        """Return the watch event, one line of JSON that all watchers share."""
        if self._line is None:
            self._line = watch_line(self.kind, self.entry.json)
        return self._line


def watch_line(kind: str, json: bytes) -> bytes:
    """Return the watch event for an encoded object."""
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), json)


class Shelf:
    """Objects and history of one resource. Changes up to the resourceVersion ``floor`` may be missing."""

    def __init__(self, floor: int, keep: int) -> None:
        self.entries: dict[Key, Entry] = {}
        self.changes: deque[Write] = deque()
        self.floor = floor
        self._keys: list[Key] = []
        self._keep = keep

    def record(self, change: Write) -> None:
        """Apply and store a change, and drop the oldest change above the limit."""
        key = change.entry.key
        if change.kind == DELETED:
            del self.entries[key]
            del self._keys[bisect_left(self._keys, key)]
        else:
            if key not in self.entries:
                insort(self._keys, key)
            self.entries[key] = change.entry
        self.changes.append(change)
        if len(self.changes) > self._keep:
            self.floor = self.changes.popleft().version

    def compact(self, version: int) -> None:
        """Drop the changes up to a resourceVersion."""
        self.floor = max(self.floor, version)
        while self.changes and self.changes[0].version <= version:
            self.changes.popleft()

    def since(self, version: int) -> list[Write]:
        """Return the changes after a resourceVersion, oldest first. Raises StatusError 410 if they were dropped."""
        if version < self.floor:
            raise expired(f"too old resource version: {version} ({self.floor})")
        if not self.changes or self.changes[-1].version <= version:
            return []
        recent = []
        for change in reversed(self.changes):
            if change.version <= version:
                break
            recent.append(change)
        return recent[::-1]

    def all(self, namespace: str | None = None, after: Key | None = None) -> Iterator[Entry]:
        """Return the entries by key, of one namespace or all, after the key ``after``."""
        keys, entries = self._keys, self.entries
        first, last = self._range(namespace)
        if after is not None:
            first = max(first, bisect_right(keys, after))
        return (entries[key] for key in islice(keys, first, last))

    def count(self, namespace: str | None = None) -> int:
        """Return the number of objects."""
        first, last = self._range(namespace)
        return last - first

    def _range(self, namespace: str | None) -> tuple[int, int]:
        if namespace is None:
            return 0, len(self._keys)
        return bisect_left(self._keys, (namespace, "")), bisect_left(self._keys, (namespace + "\0", ""))

    def at(self, version: int, namespace: str | None, after: Key | None = None) -> Iterator[Entry]:
        """Return the entries at a past resourceVersion. Raises StatusError 410 if the history was dropped."""
        if version < self.floor:
            raise expired(_TOO_OLD)
        undone: dict[Key, Entry | None] = {}
        for change in reversed(self.changes):
            if change.version <= version:
                break
            undone[change.entry.key] = change.previous
        if not undone:
            return self.all(namespace, after)
        merged = {**self.entries, **undone}
        return (
            entry
            for key in sorted(merged)
            if (entry := merged[key]) is not None
            and (namespace is None or key[0] == namespace)
            and (after is None or key > after)
        )

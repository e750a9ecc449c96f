"""A bounded mapping that evicts its least recently used entry."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """Map at most ``size`` keys to values; ``get``, ``set`` and ``get_or_create`` count as uses. None is no value."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def set(self, key: K, value: V) -> None:
        """Set a value, evicting the least recently used entry if the cache is full."""
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._size:
            self._values.popitem(last=False)

    def get_or_create(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key, which ``make`` creates if it is missing."""
        value = self.get(key)
        if value is None:
            value = make()
            self.set(key, value)
        return value

    def drop(self, key: K) -> None:
        self._values.pop(key, None)

    def clear(self) -> None:
        self._values.clear()

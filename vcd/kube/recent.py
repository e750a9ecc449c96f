"""What was asked for or set last, and no more of it than is wanted."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The last ``size`` values that were asked for or set, by key."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The value of a key, None where there is none (any more)."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def set(self, key: K, value: V) -> None:
        """Remember a value; the oldest goes where there are too many."""
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._size:
            self._values.popitem(last=False)

    def find(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key, made where there is none."""
        value = self.get(key)
        if value is None:
            value = make()
            self.set(key, value)
        return value

    def drop(self, key: K) -> None:
        """Forget a key."""
        self._values.pop(key, None)

    def clear(self) -> None:
        """Forget all."""
        self._values.clear()

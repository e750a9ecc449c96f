"""Who comes first: heaps over keys, and the order of a job's tasks."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from vcd.scheduling.session.views import Task

T = TypeVar("T")

_DIGITS = 18
"""A longer number is no index: Volcano reads it into 64 bits."""


class PriorityQueue(Generic[T]):
    """The item with the smallest key first.

    A key is computed when its item is pushed, and holds while the item is in: what changes an item's key is work on
    that very item, done while it is out.
    """

    def __init__(self, key: Callable[[T], tuple[Any, ...]], items: Iterable[T] = ()) -> None:
        self._key = key
        self._count = 0
        self._heap: list[tuple[tuple[Any, ...], int, T]] = []
        for item in items:
            self._heap.append((key(item), self._next(), item))
        heapq.heapify(self._heap)

    def _next(self) -> int:
        self._count += 1
        return self._count

    def push(self, item: T) -> None:
        """Add an item, with its key as it is now."""
        heapq.heappush(self._heap, (self._key(item), self._next(), item))

    def pop(self) -> T:
        """Take the first. Raises IndexError when there is none."""
        return heapq.heappop(self._heap)[2]

    def rest(self) -> list[T]:
        """All items, in no particular order."""
        return [item for _, _, item in self._heap]

    def __len__(self) -> int:
        return len(self._heap)


def index_in_name(name: str) -> int | None:
    """The number at the end of a pod's name, where the name has three parts or more (Volcano ``CompareTask``)."""
    parts = name.split("-")
    last = parts[-1]
    if len(parts) < 3 or len(last) > _DIGITS or not (last.isascii() and last.isdigit()):
        return None
    return int(last)


def ordered_tasks(plugin_key: Callable[[Task], tuple[Any, ...]], tasks: list[Task]) -> list[Task]:
    """Tasks of one job, the first to be placed first: the plugins' key, then index in the name, age, uid and key.

    Indices count only when every task has one: mixed, Volcano's comparison is no order.
    """
    indices = [index_in_name(task.name) for task in tasks]
    by_index = None not in indices
    keyed = [
        ((*plugin_key(task), index if by_index else 0, task.created, task.uid, task.key), task)
        for task, index in zip(tasks, indices, strict=True)
    ]
    keyed.sort(key=lambda pair: pair[0])
    return [task for _, task in keyed]

"""Values with small numbers, tables of rows that grow, and logs of their latest changes.

These containers know nothing of Kubernetes. Nothing in them depends on hashes or addresses: the same events give the
same rows, so that a replay decides the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

NO_ROW = -1
"""In a column of row numbers: no node, or no job."""

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

_REMEMBERED = 256
"""Number of changes remembered one by one, plus one sixteenth of all things. Readers that missed more look at all."""

_BITS = 7
_PAGE = 1 << _BITS
"""Items in a page, the unit that is copied on write."""


class Changes(Generic[K]):
    """A log of changed keys, the latest last, for any number of readers that poll.

    ``count`` is the number of changes so far: a reader stores it and passes it to ``since`` next time. ``size``
    returns the number of keys.
    """

    def __init__(self, size: Callable[[], int]) -> None:
        self.count = 0
        self._size = size
        self._last: dict[K, int] = {}
        self._known_since = 0
        self._most = _REMEMBERED

    def note(self, key: K) -> None:
        """Record that something changed, was added or removed."""
        self.count += 1
        self._last.pop(key, None)
        self._last[key] = self.count
        if len(self._last) > self._most:
            self._forget()

    def _forget(self) -> None:
        """Forget the older half of the changes if there are too many for the number of things."""
        self._most = _REMEMBERED + self._size() // 16
        if len(self._last) > self._most:
            half = list(self._last.items())[len(self._last) // 2 :]
            self._known_since = half[0][1] - 1
            self._last = dict(half)

    def note_many(self, count: int) -> None:
        """Record many changes without their keys."""
        self.count += count
        self._last.clear()
        self._known_since = self.count

    def since(self, count: int) -> list[K] | None:
        """Return the keys changed after the first ``count`` changes, or None if that is no longer known."""
        if count < self._known_since:
            return None
        found: list[K] = []
        for key in reversed(self._last):
            if self._last[key] <= count:
                break
            found.append(key)
        return found


class Pages(Generic[T]):
    """A list that is copied often and changed little: copies share unchanged pages."""

    def __init__(self, items: Iterable[T] = ()) -> None:
        listed = list(items)
        self._pages: list[list[T]] = [listed[start : start + _PAGE] for start in range(0, len(listed), _PAGE)]
        self._count = len(listed)
        self._own: set[int] = set(range(len(self._pages)))
        """The pages that no copy shares."""

    def copy(self) -> Pages[T]:
        """Return a copy. Later changes of either do not affect the other."""
        copied: Pages[T] = Pages()
        copied._pages, copied._count = list(self._pages), self._count
        self._own.clear()
        return copied

    def append(self, item: T) -> None:
        page = self._count >> _BITS
        if page == len(self._pages):
            self._pages.append([])
            self._own.add(page)
        self._own_page(page).append(item)
        self._count += 1

    def __setitem__(self, place: int, item: T) -> None:
        if not 0 <= place < self._count:
            raise IndexError(place)
        self._own_page(place >> _BITS)[place & _PAGE - 1] = item

    def _own_page(self, page: int) -> list[T]:
        if page not in self._own:
            self._own.add(page)
            self._pages[page] = list(self._pages[page])
        return self._pages[page]

    def __getitem__(self, place: int) -> T:
        return self._pages[place >> _BITS][place & _PAGE - 1]

    def at(self, places: Iterable[int]) -> list[T]:
        """Return the items at some indexes."""
        pages = self._pages
        return [pages[place >> _BITS][place & _PAGE - 1] for place in places]

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._pages)

    def __len__(self) -> int:
        return self._count


class Computed:
    """A cache of results computed from something that does not change. Above ``most`` results all are dropped."""

    def __init__(self, most: int = 20_000) -> None:
        self._most = most
        self._found: dict[Hashable, Any] = {}

    def __call__(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the result of ``make``, computed once."""
        if key not in self._found:
            value = make()
            if len(self._found) >= self._most:
                self._found.clear()
            self._found[key] = value
        found: T = self._found[key]
        return found


class Interner(Generic[T]):
    """Numbers for values, with reference counts: unused numbers are freed, so memory follows the values in use."""

    def __init__(self) -> None:
        self.values: Pages[T | None] = Pages()
        self._numbers: dict[Hashable, int] = {}
        self._keys: list[Hashable] = []
        self._uses: list[int] = []
        self._free: list[int] = []
        self.changes: Changes[int] = Changes(self.__len__)
        """The numbers whose value changed."""

    def acquire(self, key: Hashable, make: Callable[[], T], uses: int = 1) -> int:
        """Return the number of the value with ``key``, and add ``uses`` references. ``make`` creates a new value."""
        number = self._numbers.get(key)
        if number is not None:
            self._uses[number] += uses
            return number
        value = make()
        if self._free:
            number = self._free.pop()
            self.values[number], self._keys[number], self._uses[number] = value, key, uses
        else:
            number = len(self.values)
            self.values.append(value)
            self._keys.append(key)
            self._uses.append(uses)
        self._numbers[key] = number
        self.changes.note(number)
        return number

    def acquire_all(self, uses: Mapping[Hashable, int], make: Callable[[Any], T]) -> dict[Hashable, int]:
        """Return the numbers of values by key, and add the given number of references to each."""
        if self._numbers:
            return {key: self.acquire(key, partial(make, key), count) for key, count in uses.items()}
        numbers = dict(zip(uses, range(len(uses)), strict=True))
        self._numbers, self._keys, self._uses, self._free = dict(numbers), list(uses), list(uses.values()), []
        self.values = Pages(map(make, uses))
        self.changes.note_many(len(uses))
        return numbers

    def uses(self, key: Hashable) -> int:
        """Return the number of references to the value with ``key``."""
        number = self._numbers.get(key)
        return 0 if number is None else self._uses[number]

    def release(self, number: int) -> None:
        """Remove one reference."""
        self._uses[number] -= 1
        if self._uses[number] == 0:
            del self._numbers[self._keys[number]]
            self.values[number] = None
            self._keys[number] = None
            self._free.append(number)
            self.changes.note(number)

    def __contains__(self, key: Hashable) -> bool:
        """Whether the value with ``key`` is in use."""
        return key in self._numbers

    def number(self, key: Hashable) -> int | None:
        """Return the number of the value with ``key``, or None if it is not in use."""
        return self._numbers.get(key)

    def is_known_as(self, number: int, key: Hashable) -> bool:
        """Whether ``key`` is the key of a number's value."""
        return self._keys[number] == key

    def __getitem__(self, number: int) -> T:
        value = self.values[number]
        if value is None:
            raise KeyError(number)
        return value

    def __len__(self) -> int:
        return len(self._numbers)


class DistinctValues(Generic[T]):
    """A list of distinct values, in the order of their first occurrence."""

    def __init__(self, key_of: Callable[[T], Hashable]) -> None:
        self.values: list[T] = []
        self._key_of = key_of
        self._places: dict[Hashable, int] = {}

    def place(self, value: T) -> int:
        """Return the index of the value, adding it if no equal one exists."""
        place = self._places.setdefault(self._key_of(value), len(self.values))
        if place == len(self.values):
            self.values.append(value)
        return place


class Rows:
    """Row numbers for keys; freed rows are reused. Columns of any type grow with it."""

    def __init__(self, **columns: npt.DTypeLike) -> None:
        self.row_of: dict[str, int] = {}
        self.keys: Pages[str | None] = Pages()
        self._free: list[int] = []
        self._capacity = 16
        self._columns = {name: np.zeros(self._capacity, dtype) for name, dtype in columns.items()}

    def column(self, name: str) -> npt.NDArray[np.integer[Any]]:
        """Return a column with an entry per row, freed rows included."""
        return self._columns[name][: len(self.keys)]

    def at(self, row: int, name: str) -> int:
        value: int = self._columns[name].item(row)
        return value

    def copy_columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return a copy of each column."""
        return {name: self.column(name).copy() for name in self._columns}

    def put(self, row: int, **values: int) -> None:
        """Write values into columns of a row."""
        for name, value in values.items():
            self._columns[name][row] = value

    def add(self, key: str) -> int:
        """Return the row of ``key``, added if it is new."""
        row = self.row_of.get(key)
        if row is not None:
            return row
        if self._free:
            row = self._free.pop()
            self.keys[row] = key
        else:
            row = len(self.keys)
            self.keys.append(key)
            if row == self._capacity:
                self._capacity *= 2
                for name, column in self._columns.items():
                    self._columns[name] = np.concatenate([column, np.zeros_like(column)])
        self.row_of[key] = row
        return row

    def begin(self, keys: Sequence[str], columns: Mapping[str, npt.NDArray[np.integer[Any]]]) -> None:
        """Replace all rows by these keys, in this order, with the given columns."""
        self.row_of, self.keys, self._free = {key: row for row, key in enumerate(keys)}, Pages(keys), []
        self._capacity = max(len(keys), self._capacity)
        for name, column in self._columns.items():
            self._columns[name] = np.zeros(self._capacity, column.dtype)
            self._columns[name][: len(keys)] = columns[name]

    def remove(self, key: str) -> int:
        """Free the row of ``key`` and return its number."""
        row = self.row_of.pop(key)
        self.keys[row] = None
        self._free.append(row)
        return row

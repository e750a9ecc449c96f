"""Small integers for values that many rows share, growing tables of rows, and what of either changed last."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

_REMEMBERED = 256
"""So many changes are known one by one, and of every sixteen things one: who missed more looks at all."""

_BITS = 7
_PAGE = 1 << _BITS
"""Items of a page: what is copied for the first one of them that changes."""


class Changes(Generic[K]):
    """Which of many things changed, the latest last, for any number of readers that look now and then.

    ``count`` is how many changes there were: a reader notes it, and asks next time what came ``since``. ``size`` says
    how many things there are.
    """

    def __init__(self, size: Callable[[], int]) -> None:
        self.count = 0
        self._size = size
        self._last: dict[K, int] = {}
        self._known_since = 0
        self._most = _REMEMBERED

    def note(self, key: K) -> None:
        """Something changed, was added or removed."""
        self.count += 1
        self._last.pop(key, None)
        self._last[key] = self.count
        if len(self._last) > self._most:
            self._forget()

    def _forget(self) -> None:
        """Forget the older half of what is known, where that is more than its share of all things."""
        self._most = _REMEMBERED + self._size() // 16
        if len(self._last) > self._most:
            half = list(self._last.items())[len(self._last) // 2 :]
            self._known_since = half[0][1] - 1
            self._last = dict(half)

    def note_many(self, count: int) -> None:
        """So many things changed, which are not known one by one."""
        self.count += count
        self._last.clear()
        self._known_since = self.count

    def since(self, count: int) -> list[K] | None:
        """What changed after there were ``count`` changes; None where that is no longer known."""
        if count < self._known_since:
            return None
        found: list[K] = []
        for key in reversed(self._last):
            if self._last[key] <= count:
                break
            found.append(key)
        return found


class Pages(Generic[T]):
    """A list that is copied often and changed little: copies share the pages that nobody wrote to since."""

    def __init__(self, items: Iterable[T] = ()) -> None:
        listed = list(items)
        self._pages: list[list[T]] = [listed[start : start + _PAGE] for start in range(0, len(listed), _PAGE)]
        self._count = len(listed)
        self._own: set[int] = set(range(len(self._pages)))
        """The pages that no copy has."""

    def copy(self) -> Pages[T]:
        """What is here now; later changes of either are not in the other."""
        copied: Pages[T] = Pages()
        copied._pages, copied._count = list(self._pages), self._count
        self._own.clear()
        return copied

    def append(self, item: T) -> None:
        """Add one at the end."""
        page = self._count >> _BITS
        if page == len(self._pages):
            self._pages.append([])
            self._own.add(page)
        self._written(page).append(item)
        self._count += 1

    def __setitem__(self, place: int, item: T) -> None:
        if not 0 <= place < self._count:
            raise IndexError(place)
        self._written(place >> _BITS)[place & _PAGE - 1] = item

    def _written(self, page: int) -> list[T]:
        if page not in self._own:
            self._own.add(page)
            self._pages[page] = list(self._pages[page])
        return self._pages[page]

    def __getitem__(self, place: int) -> T:
        return self._pages[place >> _BITS][place & _PAGE - 1]

    def at(self, places: Iterable[int]) -> list[T]:
        """What is at some places."""
        pages = self._pages
        return [pages[place >> _BITS][place & _PAGE - 1] for place in places]

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._pages)

    def __len__(self) -> int:
        return self._count


class Computed:
    """What was computed from something that does not change, by key, as long as that is there. Of more than ``most``
    results all are dropped."""

    def __init__(self, most: int = 20_000) -> None:
        self._most = most
        self._found: dict[Hashable, Any] = {}

    def __call__(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` computes, computed once."""
        if key not in self._found:
            value = make()
            if len(self._found) >= self._most:
                self._found.clear()
            self._found[key] = value
        found: T = self._found[key]
        return found


class Interner(Generic[T]):
    """Counts who uses a value and frees its number when nobody does: memory follows what is there, not what was."""

    def __init__(self) -> None:
        self.values: Pages[T | None] = Pages()
        self._numbers: dict[Hashable, int] = {}
        self._keys: list[Hashable] = []
        self._uses: list[int] = []
        self._free: list[int] = []
        self.changes: Changes[int] = Changes(self.__len__)
        """The numbers that stand for another value than they did."""

    def acquire(self, key: Hashable, make: Callable[[], T], uses: int = 1) -> int:
        """The number of the value known as ``key``, which ``make`` makes when it is new, for so many more uses."""
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
        """The numbers of the values known as some keys, by key, for so many more uses of each."""
        if self._numbers:
            return {key: self.acquire(key, partial(make, key), count) for key, count in uses.items()}
        numbers = dict(zip(uses, range(len(uses)), strict=True))
        self._numbers, self._keys, self._uses, self._free = dict(numbers), list(uses), list(uses.values()), []
        self.values = Pages(map(make, uses))
        self.changes.note_many(len(uses))
        return numbers

    def uses(self, key: Hashable) -> int:
        """Return how many use the value known as ``key``."""
        number = self._numbers.get(key)
        return 0 if number is None else self._uses[number]

    def release(self, number: int) -> None:
        """One user less."""
        self._uses[number] -= 1
        if self._uses[number] == 0:
            del self._numbers[self._keys[number]]
            self.values[number] = None
            self._keys[number] = None
            self._free.append(number)
            self.changes.note(number)

    def __contains__(self, key: Hashable) -> bool:
        """Whether anybody uses the value known as ``key``."""
        return key in self._numbers

    def number(self, key: Hashable) -> int | None:
        """The number of the value known as ``key``, None where nobody uses it."""
        return self._numbers.get(key)

    def is_known_as(self, number: int, key: Hashable) -> bool:
        """Whether a number stands for the value known as ``key``."""
        return self._keys[number] == key

    def __getitem__(self, number: int) -> T:
        value = self.values[number]
        if value is None:
            raise KeyError(number)
        return value

    def __len__(self) -> int:
        return len(self._numbers)


class Shared(Generic[T]):
    """Values, of which equal ones are one, at places in the order of their coming."""

    def __init__(self, key_of: Callable[[T], Hashable]) -> None:
        self.values: list[T] = []
        self._key_of = key_of
        self._places: dict[Hashable, int] = {}

    def place(self, value: T) -> int:
        """The place of a value that is equal to this one."""
        place = self._places.setdefault(self._key_of(value), len(self.values))
        if place == len(self.values):
            self.values.append(value)
        return place


class Rows:
    """Row numbers for keys; freed rows are used again. Columns of any type grow with it."""

    def __init__(self, **columns: npt.DTypeLike) -> None:
        self.row_of: dict[str, int] = {}
        self.keys: Pages[str | None] = Pages()
        self._free: list[int] = []
        self._room = 16
        self._columns = {name: np.zeros(self._room, dtype) for name, dtype in columns.items()}

    def column(self, name: str) -> npt.NDArray[np.integer[Any]]:
        """A column, as long as there are rows (freed ones included)."""
        return self._columns[name][: len(self.keys)]

    def at(self, row: int, name: str) -> int:
        """What a column holds for a row."""
        value: int = self._columns[name].item(row)
        return value

    def copied(self) -> dict[str, npt.NDArray[Any]]:
        """A copy of each column."""
        return {name: self.column(name).copy() for name in self._columns}

    def put(self, row: int, **values: int) -> None:
        """Write into columns of a row."""
        for name, value in values.items():
            self._columns[name][row] = value

    def add(self, key: str) -> int:
        """The row of ``key``, made when it is new."""
        row = self.row_of.get(key)
        if row is not None:
            return row
        if self._free:
            row = self._free.pop()
            self.keys[row] = key
        else:
            row = len(self.keys)
            self.keys.append(key)
            if row == self._room:
                self._room *= 2
                for name, column in self._columns.items():
                    self._columns[name] = np.concatenate([column, np.zeros_like(column)])
        self.row_of[key] = row
        return row

    def begin(self, keys: Sequence[str], columns: Mapping[str, npt.NDArray[np.integer[Any]]]) -> None:
        """Hold rows of these keys alone, in their order, with what the columns have for each."""
        self.row_of, self.keys, self._free = {key: row for row, key in enumerate(keys)}, Pages(keys), []
        self._room = max(len(keys), self._room)
        for name, column in self._columns.items():
            self._columns[name] = np.zeros(self._room, column.dtype)
            self._columns[name][: len(keys)] = columns[name]

    def remove(self, key: str) -> int:
        """Free the row of ``key`` and return its number."""
        row = self.row_of.pop(key)
        self.keys[row] = None
        self._free.append(row)
        return row

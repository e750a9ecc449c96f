"""Nodes that neither room nor usage tells apart: what predicates and scores say by these is computed once for all of
them. While a cluster fills up its nodes are in few such groups, however many kinds of tasks there are."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from vcd.scheduling.search.parts import Mask, Predicate, Rows, Score
from vcd.scheduling.session.nodes import Deltas, Floats, Ints, Nodes, Usage, UsedParts
from vcd.state.facts import rows_as_bytes

_NO_ROOM = -1


class NodesAlike:
    """The groups, kept up to date by the log of the nodes; the number of a group without nodes goes to a new one.

    ``of`` is each node's group. ``log`` lists groups in the order they were numbered, so that whoever keeps something
    per group knows what to compute again. Where a part may look at anything of a node, each node is a group.
    """

    def __init__(self, nodes: Nodes, parts: Iterable[Predicate | Score]) -> None:
        self.nodes = nodes
        columns = [part.node_columns() for part in parts]
        self._each_alone = None in columns
        self._position = len(nodes.log)
        if self._each_alone:
            self.log = nodes.log
            self.of: Rows = np.arange(len(nodes))
            return
        self.log = []
        fixed = np.vstack([nodes.usage.allocatable, *[column for several in columns for column in several or ()]])
        codes: dict[bytes, int] = {}
        self._codes = [codes.setdefault(kind, len(codes)) for kind in rows_as_bytes(fixed.T)]
        self._numbers: dict[tuple[int, bytes], int] = {}
        keys = zip(self._codes, rows_as_bytes(nodes.usage.matrix.T), strict=True)
        self.of = np.array([self._numbers.setdefault(key, len(self._numbers)) for key in keys], np.intp)
        self._keys = list(self._numbers)
        self._sizes: list[int] = np.bincount(self.of).tolist()
        self._unused: list[int] = []
        self._rows = np.zeros(len(nodes), np.intp)  # there are at most as many groups as nodes
        self._rows[: len(self._keys)] = np.unique(self.of, return_index=True)[1]
        whole = nodes.usage
        # taken in C order, since what reads them goes through one resource after the other
        self._usage, self._allocatable = (np.take(of, self._rows, axis=1) for of in (whole.matrix, whole.allocatable))
        self._floats = self._usage.astype(np.float64), self._allocatable[:2].astype(np.float64)
        self._whole: _UsageOfGroups | None = None

    def usage(self, numbers: Rows | None = None) -> Usage:
        """The usage of some groups, or all, each as of one of its nodes."""
        if self._each_alone:
            return self.nodes.usage if numbers is None else self.nodes.usage.take(numbers)
        if numbers is not None:
            return _UsageOfGroups(self, numbers)
        if self._whole is None:
            self._whole = _UsageOfGroups(self, slice(len(self._keys)))
        self._whole.forget()
        return self._whole

    def rows_in(self, groups: Mask) -> Rows:
        """The nodes in some groups, in order."""
        numbers: Rows = groups.nonzero()[0]
        if self._each_alone:
            return numbers
        if len(numbers) == 1 and self._sizes[numbers[0]] == 1:
            rows = self._rows[numbers]
            if self.of[rows[0]] == numbers[0]:  # else the one that it was made for has left
                return rows
        rows = (self.of == numbers[0] if len(numbers) == 1 else groups.take(self.of)).nonzero()[0]
        return rows

    def after(self, row: int, more: Ints) -> int | None:
        """The group of nodes that are as one would be with so much more usage; None where there is none."""
        if self._each_alone:
            return None
        return self._numbers.get((self._codes[row], (self.nodes.usage.matrix[:, row] + more).tobytes()))

    def catch_up(self) -> None:
        """Find the groups of the nodes that have changed."""
        log, start = self.nodes.log, self._position
        self._position = len(log)
        if not self._each_alone:
            for row in log[start:]:
                self._move(row)

    def _move(self, row: int) -> None:
        column = self.nodes.usage.matrix[:, row]
        key = (self._codes[row], column.tobytes())
        left = int(self.of[row])
        if key == self._keys[left]:
            return
        number = self._numbers.get(key)
        self._sizes[left] -= 1
        if not self._sizes[left]:
            del self._numbers[self._keys[left]]
            self._unused.append(left)
            if number is not None:
                self._usage[:, left] = _NO_ROOM  # so that a group without nodes is not found to be the best
        if number is None:
            number = self._numbers[key] = self._number(key)
            self._usage[:, number], self._floats[0][:, number], self._rows[number] = column, column, row
            if number != left:  # else they have what they had to allocate
                allocatable = self.nodes.usage.allocatable[:, row]
                self._allocatable[:, number], self._floats[1][:, number] = allocatable, allocatable[:2]
                self._whole = None
            self.log.append(number)
        self._sizes[number] += 1
        self.of[row] = number

    def _number(self, key: tuple[int, bytes]) -> int:
        if self._unused:
            number = self._unused.pop()
            self._keys[number] = key
            return number
        self._keys.append(key)
        self._sizes.append(0)
        return len(self._keys) - 1


class _UsageOfGroups(Usage):
    """The usage of groups, with what is kept of it, as of now."""

    __slots__ = ("_float_room", "_float_scored", "_float_used", "_parts")

    def __init__(self, alike: NodesAlike, at: slice | Rows) -> None:
        usage, allocatable = alike._usage[:, at], alike._allocatable[:, at]
        super().__init__(usage, allocatable, len(allocatable), alike._rows[at])
        floats, room = (of[:, at] for of in alike._floats)
        self._float_room = np.ascontiguousarray(room)
        first = 4 * self._r
        self._float_used, self._float_scored = floats[self._r : self._r + 2], floats[first : first + 2]
        self._parts: tuple[Deltas, UsedParts] | None = None

    def forget(self) -> None:
        """Groups are others now: what was computed of them holds no more."""
        self._parts = None

    @property
    def float_scored(self) -> Floats:
        return self._float_scored

    @property
    def float_room(self) -> Floats:
        return self._float_room

    def used_parts(self, deltas: Deltas) -> UsedParts:
        if self._parts is None or self._parts[0] is not deltas:
            self._parts = deltas, UsedParts(self._float_used, deltas.used, self._float_room)
        return self._parts[1]

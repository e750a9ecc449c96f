"""Groups of nodes with equal resources and usage. Predicates and scores that depend on usage are computed once a group.

In a cluster that fills up, there are few groups, however many kinds of tasks there are.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from vcd.scheduling.search.parts import Mask, Predicate, Reads, Rows, Score
from vcd.scheduling.session.nodes import Deltas, Floats, Ints, Nodes, Usage, UsedParts
from vcd.state.node_facts import rows_as_bytes

_NO_ROOM = -1


class NodeGroups:
    """The groups of nodes, updated from the log of changed nodes. The number of an empty group is reused.

    ``of`` is each node's group. ``log`` lists groups in the order in which they were numbered, so that caches by group
    know what to recompute. If a part also reads facts of a node, each node is its own group.
    """

    def __init__(self, nodes: Nodes, parts: Iterable[Predicate | Score]) -> None:
        self.nodes = nodes
        self._each_alone = any(part.reads & Reads.FACTS for part in parts)
        self._position = len(nodes.log)
        if self._each_alone:
            self.log = nodes.log
            self.of: Rows = np.arange(len(nodes))
            return
        self.log = []
        codes: dict[bytes, int] = {}
        self._codes = [codes.setdefault(size, len(codes)) for size in rows_as_bytes(nodes.usage.allocatable.T)]
        self._numbers: dict[tuple[int, bytes], int] = {}
        keys = zip(self._codes, rows_as_bytes(nodes.usage.matrix.T), strict=True)
        self.of = np.array([self._numbers.setdefault(key, len(self._numbers)) for key in keys], np.intp)
        self._keys = list(self._numbers)
        self._sizes: list[int] = np.bincount(self.of).tolist()
        self._unused: list[int] = []
        self._rows = np.zeros(len(nodes), np.intp)  # there are at most as many groups as nodes
        self._rows[: len(self._keys)] = np.unique(self.of, return_index=True)[1]
        whole = nodes.usage
        # in C order, since readers go through one resource after the other
        self._usage, self._allocatable = (np.take(of, self._rows, axis=1) for of in (whole.matrix, whole.allocatable))
        self._floats = self._usage.astype(np.float64), self._allocatable[:2].astype(np.float64)
        self._whole: _UsageOfGroups | None = None

    def usage(self, numbers: Rows | None = None) -> Usage:
        """Return the usage of some groups or all, taken from one node of each."""
        if self._each_alone:
            return self.nodes.usage if numbers is None else self.nodes.usage.take(numbers)
        if numbers is not None:
            return _UsageOfGroups(self, numbers)
        if self._whole is None:
            self._whole = _UsageOfGroups(self, slice(len(self._keys)))
        self._whole.forget()
        return self._whole

    def rows_in(self, groups: Mask) -> Rows:
        """Return the nodes in the given groups, in order of rows."""
        numbers: Rows = groups.nonzero()[0]
        if self._each_alone:
            return numbers
        if len(numbers) == 1 and self._sizes[numbers[0]] == 1:
            rows = self._rows[numbers]
            if self.of[rows[0]] == numbers[0]:  # otherwise the node that created the group has left it
                return rows
        rows = (self.of == numbers[0] if len(numbers) == 1 else groups.take(self.of)).nonzero()[0]
        return rows

    def after(self, row: int, more: Ints) -> int | None:
        """Return the group that a node would be in with ``more`` usage, or None if there is no such group."""
        if self._each_alone:
            return None
        return self._numbers.get((self._codes[row], (self.nodes.usage.matrix[:, row] + more).tobytes()))

    def catch_up(self) -> None:
        """Move changed nodes to their new groups."""
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
                self._usage[:, left] = _NO_ROOM  # no task fits an empty group, so it is never the best
        if number is None:
            number = self._numbers[key] = self._number(key)
            self._usage[:, number], self._floats[0][:, number], self._rows[number] = column, column, row
            if number != left:  # a group that reuses its node's last number has these already
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
    """The usage of groups at this moment, with cached conversions to floats."""

    __slots__ = ("_float_room", "_float_scored", "_float_used", "_parts")

    def __init__(self, groups: NodeGroups, at: slice | Rows) -> None:
        usage, allocatable = groups._usage[:, at], groups._allocatable[:, at]
        super().__init__(usage, allocatable, len(allocatable), groups._rows[at])
        floats, room = (of[:, at] for of in groups._floats)
        self._float_room = np.ascontiguousarray(room)
        used, scored = 2 * self._r, 4 * self._r  # where the rows of ``used`` and ``scored`` begin
        self._float_used, self._float_scored = floats[used : used + 2], floats[scored : scored + 2]
        self._parts: tuple[Deltas, UsedParts] | None = None

    def forget(self) -> None:
        """Drop cached results after groups have changed."""
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

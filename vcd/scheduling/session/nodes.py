"""The nodes of a session: fixed facts, and what is used of them, changing as tasks are placed in trial."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from vcd.state.facts import NodeFacts
from vcd.state.records import Shape
from vcd.state.snapshot import Snapshot
from vcd.state.sums import sum_of

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Usage:
    """What is used of some nodes, as int64 columns of shape (resources, nodes), or (nodes,) for ``pods``.

    ``idle`` is allocatable less used; ``used`` counts placed and releasing tasks, ``releasing`` those going away,
    ``pipelined`` those that wait for room; ``scored`` is cpu and memory as scores count them (pipelined included),
    ``pods`` the number of pods, pipelined included (both
    without those that this session evicts). ``rows`` are the nodes' rows in the facts, None for all.
    """

    __slots__ = ("_r", "allocatable", "matrix", "rows")

    def __init__(self, matrix: Ints, allocatable: Ints, resources: int, rows: npt.NDArray[np.intp] | None) -> None:
        self.matrix = matrix
        self.allocatable = allocatable
        self.rows = rows
        self._r = resources

    @property
    def idle(self) -> Ints:
        return self.matrix[: self._r]

    @property
    def used(self) -> Ints:
        return self.matrix[self._r : 2 * self._r]

    @property
    def releasing(self) -> Ints:
        return self.matrix[2 * self._r : 3 * self._r]

    @property
    def pipelined(self) -> Ints:
        return self.matrix[3 * self._r : 4 * self._r]

    @property
    def future_idle(self) -> Ints:
        """Idle plus releasing less pipelined."""
        room: Ints = np.add(self.idle, self.releasing)
        room -= self.pipelined
        return room

    def room_of(self, row: int) -> Ints:
        """One node's future idle room."""
        column, r = self.matrix[:, row], self._r
        room: Ints = column[:r] + column[2 * r : 3 * r] - column[3 * r : 4 * r]
        return room

    @property
    def requested(self) -> Ints:
        """Used plus pipelined: what kube-scheduler calls requested."""
        both: Ints = np.add(self.used, self.pipelined)
        return both

    @property
    def scored(self) -> Ints:
        return self.matrix[4 * self._r : 4 * self._r + 2]

    @property
    def float_scored(self) -> Floats:
        """``scored`` as float64, not to be written."""
        return self.scored.astype(np.float64)

    @property
    def float_room(self) -> Floats:
        """Cpu and memory of ``allocatable`` as float64, not to be written."""
        return self.allocatable[:2].astype(np.float64)

    def used_parts(self, deltas: Deltas) -> UsedParts:
        """What is used of cpu and memory without a task and with it, as parts of what each node has; only asked where
        ``Nodes.in_parts``."""
        return UsedParts(self.used[:2], deltas.request[:2, None], self.allocatable[:2])

    @property
    def pods(self) -> Ints:
        row: Ints = self.matrix[4 * self._r + 2]
        return row

    def take(self, rows: npt.NDArray[np.intp]) -> Usage:
        """The usage of some rows."""
        return Usage(self.matrix.take(rows, axis=1), self.allocatable.take(rows, axis=1), self._r, rows)

    def one(self, row: int) -> Usage:
        """The usage of one row, to be read before it changes."""
        rows = slice(row, row + 1)
        return Usage(self.matrix[:, rows], self.allocatable[:, rows], self._r, np.array([row], np.intp))

    def plus(self, delta: Ints, times: int) -> Usage:
        """The usage if ``delta`` were added to every node ``times`` times."""
        return Usage(self.matrix + (delta * times)[:, None], self.allocatable, self._r, self.rows)

    def __len__(self) -> int:
        return int(self.matrix.shape[1])


class UsedParts:
    """What is used of cpu and memory, as parts of what each node has: float64 of shape (without the task and with it,
    resources, nodes), not to be written. ``within`` is whether the task puts no node over."""

    __slots__ = ("parts", "within")

    def __init__(self, used: Ints | Floats, more: Ints | Floats, room: Ints | Floats) -> None:
        self.parts: Floats = np.empty((2, *used.shape))
        self.parts[0] = used
        np.add(used, more, out=self.parts[1])
        self.parts /= room
        with_task = self.parts[1]
        self.within = not with_task.size or with_task.item(with_task.argmax()) <= 1.0


class Deltas:
    """How a task of one shape changes its node's column of the usage matrix, by what is done with it."""

    def __init__(self, request: Ints, floor: Ints, amounts: tuple[int, ...], allocate: Ints, floats: Floats) -> None:
        self.request = request
        self.floor = floor
        self.amounts = amounts
        self.allocate = allocate
        self.used: Floats
        self.scored: Floats
        self.used, self.scored = floats
        """Cpu and memory, as they are used and as scores count them, shape (2, 1)."""

    @classmethod
    def of_each(cls, requests: Ints, scored: Ints) -> list[Deltas]:
        """Those of some shapes, given in rows."""
        zero, one = np.zeros_like(requests), np.ones((len(requests), 1), np.int64)
        allocate = np.hstack([-requests, requests, zero, zero, scored, one])
        amounts = map(tuple, requests.tolist())
        floats = np.hstack([requests[:, :2], scored]).astype(np.float64).reshape(-1, 2, 2, 1)
        return list(map(cls, requests, room_needed(requests), amounts, allocate, floats))

    @cached_property
    def pipeline(self) -> Ints:
        zero = np.zeros_like(self.request)
        return np.concatenate([zero, zero, zero, self.request, self._tail])

    @cached_property
    def evict(self) -> Ints:
        zero = np.zeros_like(self.request)
        return np.concatenate([zero, zero, self.request, zero, -self._tail])

    @property
    def _tail(self) -> Ints:
        return self.allocate[4 * len(self.request) :]


_UNASKED = int(np.iinfo(np.int64).min)
"""The floor of a resource that is not asked for: every room reaches it."""
_MASKS = 256
"""For how many floors the nodes with room are kept up to date."""
_FEW = 16
"""Up to this many rows are changed one by one, which is faster."""
_MIXED = object()
"""Marks a node whose changes in this session are more than placements of one shape."""


class Nodes:
    """The session's nodes.

    ``log`` lists rows in the order they were changed, so that whoever keeps something per node knows what to
    compute again. ``sole`` tells which rows only had tasks of one shape allocated, and how many.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.facts: NodeFacts = snapshot.facts
        self.resources = snapshot.resources
        self.column_of = self.facts.column_of
        allocatable = self.facts.cached(
            "allocatable by resource", lambda: np.ascontiguousarray(self.facts.allocatable.T)
        )
        self.opened = Usage(snapshot.usage, allocatable, len(snapshot.resources), None)
        """The usage as the session began."""
        self.usage = Usage(snapshot.usage.copy(), allocatable, len(snapshot.resources), None)
        self.total: Ints = self.facts.cached("total", lambda: sum_of(self.facts.allocatable))
        self.log: list[int] = []
        self.awaits_room = bool(self.usage.releasing.any())
        """Whether some room is releasing or pipelined; if not, future idle is idle."""
        self._sole: dict[int, tuple[object, int]] = {}
        self._with_room: dict[bytes, tuple[int, npt.NDArray[np.bool_]]] = {}

    def __len__(self) -> int:
        return len(self.facts)

    @property
    def in_parts(self) -> bool:
        """Whether all nodes have cpu and memory, and so little that a float64 tells what is used apart from it: the
        part that is used is above 1 just where more is used than there is."""
        amounts = self.usage.allocatable[:2]
        found: bool = self.facts.cached("in parts", lambda: bool((amounts > 0).all() and (amounts < 2**52).all()))
        return found

    def has_room(self, row: int, floor: Ints) -> bool:
        """Whether a node's idle room reaches a floor (``room_needed``) now."""
        return False not in (self.usage.idle[:, row] >= floor).tolist()

    def will_have_room(self, row: int, floor: Ints) -> bool:
        """Whether a node's room reaches a floor once what is being freed is free."""
        return False not in (self.usage.room_of(row) >= floor).tolist()

    def note_in(self, log: list[int]) -> None:
        """Have a list with the rows that change from now on."""
        self.log = log
        self._with_room.clear()

    def with_room(self, floor: Ints) -> npt.NDArray[np.bool_]:
        """Which nodes' room reaches a floor once what is being freed is free; read only, and as of now."""
        key = floor.tobytes()
        since, mask = self._with_room.pop(key, (0, None))
        if mask is None or len(self.log) - since > len(self):
            mask = fits(floor, self.usage.future_idle)
        else:
            for row in dict.fromkeys(self.log[since:]):
                mask[row] = self.will_have_room(row, floor)
        self._with_room[key] = len(self.log), mask
        if len(self._with_room) > _MASKS:
            del self._with_room[next(iter(self._with_room))]
        return mask

    def change(self, row: int, delta: Ints, shape: Shape | None, times: int) -> None:
        """Add ``delta`` to a node ``times`` (1 or -1) times; ``shape`` when it is an allocation of that shape."""
        if times > 0:
            self.usage.matrix[:, row] += delta
        else:
            self.usage.matrix[:, row] -= delta
        self.awaits_room |= shape is None
        before, count = self._sole.get(row, (shape, 0))
        self._sole[row] = (before, count + times) if before is shape and shape is not None else (_MIXED, 0)
        self.log.append(row)

    def change_together(self, rows: list[int], delta: Ints, shape: Shape) -> None:
        """``change`` each of some rows, of which one may be there several times, by an allocation of one shape."""
        counts: dict[int, int] = {}
        for row in rows:
            counts[row] = counts.get(row, 0) + 1
        if len(counts) > _FEW:
            self.usage.matrix[:, list(counts)] += delta[:, None] * np.fromiter(counts.values(), np.int64, len(counts))
        else:
            for row, times in counts.items():
                self.usage.matrix[:, row] += delta if times == 1 else delta * times
        for row, times in counts.items():
            before, count = self._sole.get(row, (shape, 0))
            self._sole[row] = (before, count + times) if before is shape else (_MIXED, 0)
        self.log.extend(counts)

    def sole(self, row: int, shape: Shape) -> int | None:
        """How many tasks of ``shape`` were allocated on a row to which nothing else happened; None if more did."""
        before, count = self._sole.get(row, (shape, 0))
        return count if before is shape else None


def room_needed(request: Ints) -> Ints:
    """The least room that takes a request, or each of several in rows: cpu and memory always count, other resources
    where they are asked for.

    So a node that is over in cpu takes nothing, one that is over in GPUs takes pods without GPU (Volcano
    ``Resource.LessEqual``).
    """
    floor = np.where(request > 0, request, _UNASKED)
    floor[..., :2] = request[..., :2]
    return floor


def fits(floor: Ints, room: Ints) -> npt.NDArray[np.bool_]:
    """Nodes whose room reaches a floor (``room_needed``) in all resources."""
    result: npt.NDArray[np.bool_] = room[0] >= floor[0]
    for column, least in enumerate(floor.tolist()):
        if column and least != _UNASKED:
            result &= room[column] >= least
    return result

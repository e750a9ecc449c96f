"""The nodes of a session: constant facts, and usage, which changes as tasks are placed in trial.

Every change of usage appends the node's row to `Nodes.log`, so that candidate tables recompute changed nodes only. Code
that changes the usage arrays directly makes these tables wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from vcd.state.node_facts import NodeFacts
from vcd.state.records import Shape
from vcd.state.snapshot import Snapshot
from vcd.state.sums import sum_of

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Usage:
    """The usage of some nodes, as int64 arrays of shape (resources, nodes), or (nodes,) for ``pods``.

    ``idle`` is allocatable minus used. ``used`` counts placed and terminating tasks, ``releasing`` terminating ones,
    and ``pipelined`` those that wait for resources being freed. ``scored`` is cpu and memory as scores count them, and
    ``pods`` the number of pods; both include pipelined tasks and exclude tasks that this session evicts. ``rows`` are
    the nodes' rows in the facts, None for all nodes.
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
    def future_idle(self) -> Ints:
        """Idle plus releasing minus pipelined."""
        return self.matrix[self._r : 2 * self._r]

    @property
    def used(self) -> Ints:
        return self.matrix[2 * self._r : 3 * self._r]

    @property
    def releasing(self) -> Ints:
        return self.matrix[3 * self._r : 4 * self._r]

    @property
    def pipelined(self) -> Ints:
        pipelined: Ints = self.idle + self.releasing
        pipelined -= self.future_idle
        return pipelined

    def future_idle_of(self, row: int) -> Ints:
        """Return the future idle resources of one node, as a view: read it before the usage changes."""
        return self.matrix[self._r : 2 * self._r, row]

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
        """``scored`` as float64. Read only."""
        return self.scored.astype(np.float64)

    @property
    def float_room(self) -> Floats:
        """Cpu and memory of ``allocatable`` as float64. Read only."""
        return self.allocatable[:2].astype(np.float64)

    def used_parts(self, deltas: Deltas) -> UsedParts:
        """Return the fractions of cpu and memory used without a task and with it. Requires ``Nodes.in_parts``."""
        return UsedParts(self.used[:2], deltas.request[:2, None], self.allocatable[:2])

    @property
    def pods(self) -> Ints:
        row: Ints = self.matrix[4 * self._r + 2]
        return row

    def take(self, rows: npt.NDArray[np.intp]) -> Usage:
        """Return the usage of some rows, as a copy."""
        return Usage(self.matrix.take(rows, axis=1), self.allocatable.take(rows, axis=1), self._r, rows)

    def one(self, row: int) -> Usage:
        """Return the usage of one row, as a view: read it before the usage changes."""
        rows = slice(row, row + 1)
        return Usage(self.matrix[:, rows], self.allocatable[:, rows], self._r, np.array([row], np.intp))

    def plus(self, delta: Ints, times: int) -> Usage:
        """Return the usage after adding ``delta`` to every node ``times`` times."""
        return Usage(self.matrix + (delta * times)[:, None], self.allocatable, self._r, self.rows)

    def __len__(self) -> int:
        return int(self.matrix.shape[1])


class UsedParts:
    """Used cpu and memory as fractions of what each node has.

    ``parts`` is float64 of shape (without the task and with it, resources, nodes), read only. ``within`` is whether the
    task overcommits no node.
    """

    __slots__ = ("parts", "within")

    def __init__(self, used: Ints | Floats, more: Ints | Floats, available: Ints | Floats) -> None:
        self.parts: Floats = np.empty((2, *used.shape))
        self.parts[0] = used
        np.add(used, more, out=self.parts[1])
        self.parts /= available
        with_task = self.parts[1]
        self.within = not with_task.size or with_task.item(with_task.argmax()) <= 1.0


class Deltas:
    """The change of its node's column of the usage matrix by a task of one shape, for each operation."""

    def __init__(self, request: Ints, floor: Ints, amounts: tuple[int, ...], allocate: Ints, floats: Floats) -> None:
        self.request = request
        self.floor = floor
        self.amounts = amounts
        self.allocate = allocate
        self.used: Floats
        self.scored: Floats
        self.used, self.scored = floats
        """Cpu and memory as used and as scored, of shape (2, 1)."""

    @classmethod
    def of_each(cls, requests: Ints, scored: Ints) -> list[Deltas]:
        """Return the deltas of some shapes, given as rows."""
        zero, one = np.zeros_like(requests), np.ones((len(requests), 1), np.int64)
        allocate = np.hstack([-requests, -requests, requests, zero, scored, one])
        amounts = map(tuple, requests.tolist())
        floats = np.hstack([requests[:, :2], scored]).astype(np.float64).reshape(-1, 2, 2, 1)
        return list(map(cls, requests, room_needed(requests), amounts, allocate, floats))

    @cached_property
    def pipeline(self) -> Ints:
        zero = np.zeros_like(self.request)
        return np.concatenate([zero, -self.request, zero, zero, self._tail])

    @cached_property
    def evict(self) -> Ints:
        zero = np.zeros_like(self.request)
        return np.concatenate([zero, self.request, zero, self.request, -self._tail])

    @property
    def _tail(self) -> Ints:
        return self.allocate[4 * len(self.request) :]


_NOT_REQUESTED = int(np.iinfo(np.int64).min)
"""The floor of a resource that is not requested: any amount reaches it."""
_MASKS = 256
"""For how many floors the mask of nodes with enough resources is updated."""
_FEW = 16
"""Up to this many rows are changed one by one, which is faster."""
_MIXED = object()
"""Marks a node whose changes in this session are not only placements of one shape."""


class Nodes:
    """The session's nodes.

    ``log`` has the rows in the order in which they changed, so that caches per node know what to compute again.
    ``sole`` returns, for a row on which only tasks of one shape were allocated, their number.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.facts: NodeFacts = snapshot.facts
        self.resources = snapshot.resources
        self.column_of = self.facts.column_of
        allocatable = self.facts.cached(
            "allocatable by resource", lambda: np.ascontiguousarray(self.facts.allocatable.T)
        )
        self.opened = Usage(snapshot.usage, allocatable, len(snapshot.resources), None)
        """The usage when the session began."""
        self.usage = Usage(snapshot.usage.copy(), allocatable, len(snapshot.resources), None)
        self.total: Ints = self.facts.cached("total", lambda: sum_of(self.facts.allocatable))
        self.log: list[int] = []
        self.awaits_room = bool(self.usage.releasing.any())
        """Whether any resources are releasing or pipelined; if not, future idle equals idle."""
        self._sole: dict[int, tuple[object, int]] = {}
        self._masks_by_floor: dict[bytes, tuple[int, npt.NDArray[np.bool_]]] = {}

    def __len__(self) -> int:
        return len(self.facts)

    @property
    def in_parts(self) -> bool:
        """Whether all nodes have cpu and memory, below 2**52, so that float64 fractions are exact enough: the used
        fraction exceeds 1 exactly if more is used than the node has."""
        amounts = self.usage.allocatable[:2]
        found: bool = self.facts.cached("in parts", lambda: bool((amounts > 0).all() and (amounts < 2**52).all()))
        return found

    def has_room(self, row: int, floor: Ints) -> bool:
        """Return whether a node's idle resources reach a floor (``room_needed``)."""
        return False not in (self.usage.idle[:, row] >= floor).tolist()

    def will_have_room(self, row: int, floor: Ints) -> bool:
        """Return whether a node's future idle resources reach a floor."""
        return False not in (self.usage.future_idle_of(row) >= floor).tolist()

    def note_in(self, log: list[int]) -> None:
        """Record the rows that change from now on in another list."""
        self.log = log
        self._masks_by_floor.clear()

    def with_room(self, floor: Ints) -> npt.NDArray[np.bool_]:
        """Return which nodes' future idle resources reach a floor. The mask is read only; a later call with
        the same floor updates it in place."""
        key = floor.tobytes()
        since, mask = self._masks_by_floor.pop(key, (0, None))
        if mask is None or len(self.log) - since > len(self):
            mask = fits(floor, self.usage.future_idle)
        else:
            for row in dict.fromkeys(self.log[since:]):
                mask[row] = self.will_have_room(row, floor)
        self._masks_by_floor[key] = len(self.log), mask
        if len(self._masks_by_floor) > _MASKS:
            del self._masks_by_floor[next(iter(self._masks_by_floor))]
        return mask

    def change(self, rows: Sequence[int], delta: Ints, shape: Shape | None, sign: int) -> None:
        """Add ``delta`` to each of some rows, which may repeat, or subtract it (``sign`` -1). ``shape`` is given for
        allocations of that shape."""
        counts: dict[int, int] = {}
        for row in rows:
            counts[row] = counts.get(row, 0) + sign
        if len(counts) > _FEW:
            self.usage.matrix[:, list(counts)] += delta[:, None] * np.fromiter(counts.values(), np.int64, len(counts))
        else:
            for row, times in counts.items():
                self.usage.matrix[:, row] += delta if times == 1 else delta * times
        self.awaits_room |= shape is None
        for row, times in counts.items():
            before, count = self._sole.get(row, (shape, 0))
            self._sole[row] = (before, count + times) if before is shape and shape is not None else (_MIXED, 0)
        self.log.extend(counts)

    def sole(self, row: int, shape: Shape) -> int | None:
        """Return how many tasks of ``shape`` were allocated on a row without any other change; None if there were other
        changes."""
        before, count = self._sole.get(row, (shape, 0))
        return count if before is shape else None


def room_needed(request: Ints) -> Ints:
    """Return the least idle resources that a request needs, also for several requests in rows: cpu and memory always
    count, other resources if they are requested.

    So a node with negative idle cpu takes no pod; one with negative idle GPUs takes pods without GPU (Volcano
    ``Resource.LessEqual``).
    """
    floor = np.where(request > 0, request, _NOT_REQUESTED)
    floor[..., :2] = request[..., :2]
    return floor


def fits(floor: Ints, available: Ints) -> npt.NDArray[np.bool_]:
    """Return the nodes whose resources reach a floor (``room_needed``)."""
    result: npt.NDArray[np.bool_] = available[0] >= floor[0]
    for column, least in enumerate(floor.tolist()):
        if column and least != _NOT_REQUESTED:
            result &= available[column] >= least
    return result

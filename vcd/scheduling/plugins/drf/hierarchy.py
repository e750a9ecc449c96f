"""The tree of queues for hierarchical drf (Volcano ``docs/design/hdrf.md``)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.scheduling.framework.order import LiveKey
from vcd.scheduling.framework.victims import Allowance
from vcd.scheduling.session.nodes import Ints
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.sums import sum_of, sums_by

_ANNOTATION = ReasonCode(
    "hierarchy-annotation", Cause.INVALID, "annotation {annotation} of queue {queue} {what}", remark=True
)

HIERARCHY = "volcano.sh/hierarchy"
WEIGHTS = "volcano.sh/hierarchy-weights"

ONE = 1 << 44
"""A share of 1. Shares are integers, so that sums do not depend on the order of summands."""
MOST = 16
"""The largest share of a job; it may exceed 1 while pods hold more than the cluster has."""
GRAIN = 1 << 10
"""Shares are compared in units of this size, because rounding could make equal shares differ."""
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")

Standing = tuple[tuple[bool, int], ...]
"""For each place on a queue's path, from the top: whether it is saturated, and its share by weight."""
Place = tuple[tuple[int, ...], int, bool]
"""What a child adds to the place above it: shares by resource, the largest of them, and whether it is saturated."""


class Places:
    """The queues' places in the tree. Number 0 is the root, and each place has a higher number than the one above it.

    ``path[q]`` are the places from below the root down to the place of queue number q's jobs. A queue without
    hierarchy, or whose place has other queues below it, gets an additional place there with weight 1. ``wrong[q]`` has
    problems with the queue's annotations.
    """

    def __init__(self, queues: Sequence[Queue]) -> None:
        self.above: list[int] = [-1]
        self.weight: list[float] = [1.0]
        self.path: list[tuple[int, ...]] = []
        self.wrong: list[list[Reason]] = [[] for _ in queues]
        self._names = ["root"]
        self._below: list[dict[str, int]] = [{}]
        self._weight_owner: dict[int, str] = {}
        paths = [self._walk(queue) for queue in queues]
        inner = [bool(self._below[path[-1]]) if path else True for path in paths]
        for queue, path, is_inner in zip(queues, paths, inner, strict=True):
            if is_inner:
                if path:
                    self._report(queue, HIERARCHY, "names a place with queues below it; give the jobs a queue below it")
                path = [*path, self._place(path[-1] if path else 0, f"queue/{queue.name}", 1.0)]
            self.path.append(tuple(path))

    def __len__(self) -> int:
        return len(self.above)

    def _walk(self, queue: Queue) -> list[int]:
        """Return the places that a queue's annotations name, and create new ones."""
        annotations = queue.record.queue.metadata.annotations
        text = annotations.get(HIERARCHY, "")
        if not text:
            return []
        names = text.split("/")
        weights = annotations.get(WEIGHTS, "").split("/")
        if names[0] != "root" or "" in names:
            self._report(queue, HIERARCHY, "is read as names below the root; write root/<name>/...")
        if len(weights) != len(names):
            self._report(queue, WEIGHTS, f"must hold one weight for each of the {len(names)} names; missing ones are 1")
        path: list[int] = []
        for depth, name in enumerate(names[1:], 1):
            weight = self._weight(queue, weights[depth]) if depth < len(weights) else 1.0
            place = self._place(path[-1] if path else 0, name, weight)
            owner = self._weight_owner.setdefault(place, queue.name)
            if self.weight[place] != weight:
                self._report(queue, WEIGHTS, f"differs from that of queue {owner} for {name}, whose weight holds")
            path.append(place)
        return path

    def _place(self, above: int, name: str, weight: float) -> int:
        found = self._below[above].get(name)
        if found is None:
            found = self._below[above][name] = len(self.above)
            self.above.append(above)
            self.weight.append(weight)
            self._names.append(name)
            self._below.append({})
        return found

    def _weight(self, queue: Queue, text: str) -> float:
        weight = float(text) if _NUMBER.fullmatch(text) else math.nan
        if 1 <= weight < math.inf:
            return weight
        self._report(queue, WEIGHTS, f"holds {text!r}, which counts as 1; write a number of at least 1")
        return 1.0

    def _report(self, queue: Queue, annotation: str, what: str) -> None:
        value = queue.record.queue.metadata.annotations.get(annotation, "")
        names = {"annotation": annotation, "queue": queue.name, "what": what, "is": value}
        self.wrong[queue.index].append(_ANNOTATION(names))


class _Tree:
    """Shares of all places while a certain set of resources is used up.

    A job's share is that of its dominant resource. The job is saturated if it holds some of a resource that is used up,
    or everything that it requests of a resource. The held amount of an inner place is a sum: the held amounts of its
    saturated children, and those of the other children scaled to the smallest share M among them (held x M / share). A
    place is saturated if all its children are.

    Every place stores these sums (``fixed`` of the saturated, ``scaled`` of held/share of the others), the number of
    unsaturated children, and a heap of their shares. So a change of a job costs only its path.
    """

    def __init__(self, hierarchy: Hierarchy, full: Sequence[bool], held: Ints) -> None:
        self._h = hierarchy
        self._full = tuple(full)
        self._width = len(hierarchy.totals)
        count = len(hierarchy.places)
        self._fixed = [[0] * self._width for _ in range(count)]
        self._scaled = [[0] * self._width for _ in range(count)]
        self._open = [0] * count
        self._heaps: list[list[int]] = [[] for _ in range(count)]
        self._shares: list[dict[int, int]] = [{} for _ in range(count)]
        self._base = held
        self._held: dict[int, list[int]] = {}
        self.position = 0
        self._load(held)
        none: Place = ((0,) * self._width, 0, True)
        self.state: list[Place] = [none] * count
        for place in range(count - 1, -1, -1):
            self.state[place] = self._sum_up(place)
            if place:
                self._count(hierarchy.places.above[place], self.state[place], 1)

    def _load(self, held: Ints) -> None:
        """Add up all jobs, in columns."""
        h = self._h
        jobs = np.flatnonzero(h.place_of >= 0)
        place, have, requested = h.place_of[jobs], held[jobs], h.request[jobs]
        parts = np.rint(np.minimum(have[:, h.columns] / h.totals, MOST) * ONE).astype(np.int64)
        share = parts.max(axis=1, initial=0)
        blocks = (requested > 0) & (have > 0) & ((have >= requested) | np.array(self._full, np.bool_))
        saturated = blocks.any(axis=1)
        open_ = np.bincount(place[~saturated], minlength=len(h.places)).tolist()
        fixed = sums_by(place[saturated], parts[saturated], len(h.places))
        scaled = np.zeros_like(fixed)
        rising = ~saturated & (share > 0)
        np.add.at(scaled, place[rising], np.rint(parts[rising] / share[rising, None] * ONE).astype(np.int64))
        self._fixed, self._scaled, self._open = fixed.tolist(), scaled.tolist(), open_
        for number, value in zip(place[rising].tolist(), share[rising].tolist(), strict=True):
            shares = self._shares[number]
            shares[value] = shares.get(value, 0) + 1
        for number, shares in enumerate(self._shares):
            self._heaps[number] = sorted(shares)

    def held(self, job: int) -> list[int]:
        """Return what a job holds in this tree."""
        found = self._held.get(job)
        return self._base[job].tolist() if found is None else found

    def put(self, job: int, held: list[int]) -> None:
        """Set what a job holds, and update its path."""
        place = int(self._h.place_of[job])
        if place < 0:
            return
        requested = self._h.request_of(job)
        before, after = self._leaf(self.held(job), requested), self._leaf(held, requested)
        self._held[job] = held
        while before != after:
            self._count(place, before, -1)
            self._count(place, after, 1)
            before, after = self.state[place], self._sum_up(place)
            self.state[place] = after
            if not place:
                return
            place = self._h.places.above[place]

    def _leaf(self, held: list[int], requested: list[int]) -> Place:
        parts = tuple([round(min(held[column] / total, MOST) * ONE) for column, total in self._h.total])
        saturated = False
        for have, want, full in zip(held, requested, self._full, strict=True):
            if want > 0 and have > 0 and (full or have >= want):
                saturated = True
                break
        return parts, max(parts, default=0), saturated

    def _count(self, place: int, child: Place, sign: int) -> None:
        """Add a child to a place's sums (``sign`` 1), or subtract it (-1)."""
        parts, share, saturated = child
        if saturated:
            fixed = self._fixed[place]
            for column, part in enumerate(parts):
                fixed[column] += sign * part
            return
        self._open[place] += sign
        if not share:
            return
        scaled = self._scaled[place]
        for column, part in enumerate(parts):
            scaled[column] += sign * round(part / share * ONE)
        shares = self._shares[place]
        left = shares.get(share, 0) + sign
        if left:
            shares[share] = left
            if sign > 0 and left == 1:
                heappush(self._heaps[place], share)
        else:
            del shares[share]

    def _sum_up(self, place: int) -> Place:
        heap, shares = self._heaps[place], self._shares[place]
        while heap and heap[0] not in shares:
            heappop(heap)
        least = min(heap[0], ONE) if heap else ONE
        parts = tuple(
            [
                fixed + (least * scaled + ONE // 2) // ONE
                for fixed, scaled in zip(self._fixed[place], self._scaled[place], strict=True)
            ]
        )
        return parts, max(parts, default=0), not self._open[place]


class Hierarchy:
    """Hierarchical drf of one session.

    ``held`` has the jobs that hold something other than ``allocated``. Each set of used-up resources has its own tree,
    which is updated from the log of changed jobs when it is needed.
    """

    def __init__(self, session: Session, held: dict[int, list[int]]) -> None:
        self.places = Places(session.queue_list)
        self._allocated = session.jobs.allocated
        self._changed = held
        self._log: list[int] = []
        totals = session.nodes.total.tolist()
        self.total = [(column, amount) for column, amount in enumerate(totals) if amount]
        self.columns = np.array([column for column, _ in self.total], np.intp)
        self.totals = np.array([amount for _, amount in self.total], np.float64)
        self._least_full: list[int] = totals
        self._sum: list[int] = sum_of(self._allocated).tolist()
        self.request = _requests(session)
        leaves = np.array([path[-1] for path in self.places.path], np.int64)
        self.place_of: npt.NDArray[np.int64] = np.where(self.request.any(axis=1), leaves[session.jobs.queue], -1)
        self._trees: dict[tuple[bool, ...], _Tree] = {}
        self._standings: dict[int, tuple[int, Standing]] = {}

    def request_of(self, job: int) -> list[int]:
        """Return what a job's tasks that have not ended request together."""
        return self.request[job].tolist()  # type: ignore[no-any-return]

    def moved(self, task: Task, times: int) -> None:
        """Record that a task's job holds the task's request ``times`` more often; negative: less."""
        total = self._sum
        for column, amount in enumerate(task.amounts):
            total[column] += times * amount
        self._log.append(task.job.index)

    def standing(self, queue: Queue) -> Standing:
        """Return for each place from the top whether it is saturated, and its share by weight."""
        stamp, found = self._standings.get(queue.index, (-1, ()))
        if stamp != len(self._log):
            found = self._key(self._tree(self._sum), queue)
            self._standings[queue.index] = (len(self._log), found)
        return found

    def reclaimable(self, reclaimer: Task) -> Allowance:
        """Permit victims whose queue, without the victim, would still come after the reclaiming queue with its task."""
        return _ComesAfter(self, reclaimer)

    def would_come_after(self, reclaimer: Task, task: Task) -> bool:
        """Return whether a task's queue without it would come after the reclaiming queue with the reclaiming task."""
        amounts = zip(self._sum, reclaimer.amounts, task.amounts, strict=True)
        tree = self._tree([have + more - less for have, more, less in amounts])
        gaining, losing = reclaimer.job.index, task.job.index
        before = tree.held(gaining)
        tree.put(gaining, [have + more for have, more in zip(before, reclaimer.amounts, strict=True)])
        held = tree.held(losing)
        tree.put(losing, [have - less for have, less in zip(held, task.amounts, strict=True)])
        result = is_before(self._key(tree, reclaimer.job.queue), self._key(tree, task.job.queue))
        tree.put(losing, held)
        tree.put(gaining, before)
        return result

    def _key(self, tree: _Tree, queue: Queue) -> Standing:
        state, weight = tree.state, self.places.weight
        return tuple(
            [
                (state[place][2], round(state[place][1] / weight[place] / GRAIN))
                for place in self.places.path[queue.index]
            ]
        )

    def _tree(self, total: list[int]) -> _Tree:
        """Return the up-to-date tree for the resources that are used up when ``total`` is held."""
        full = tuple([have >= least for have, least in zip(total, self._least_full, strict=True)])
        tree = self._trees.get(full)
        log = self._log
        if tree is None:
            held = self._allocated
            if self._changed:
                held = held.copy()
                held[list(self._changed)] = list(self._changed.values())
            tree = self._trees[full] = _Tree(self, full, held)
        elif tree.position < len(log):
            for job in dict.fromkeys(log[tree.position :]):
                tree.put(job, self._changed[job])
        tree.position = len(log)
        return tree

    def annotation_problems(self, queue: Queue) -> Iterator[Reason]:
        """Yield problems with a queue's annotations."""
        yield from self.places.wrong[queue.index]


class _ComesAfter(Allowance):
    """Permits victims whose queue would still come after the reclaiming queue, each considered alone as in Volcano."""

    def __init__(self, hierarchy: Hierarchy, reclaimer: Task) -> None:
        self._hierarchy = hierarchy
        self._reclaimer = reclaimer
        self._known: dict[tuple[int, tuple[int, ...]], bool] = {}

    def permits(self, task: Task) -> bool:
        key = (task.job.index, task.amounts)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._hierarchy.would_come_after(self._reclaimer, task)
        return known


def is_before(one: Standing, other: Standing) -> bool:
    """Return whether a queue is served before another.

    The first level from the top at which the two differ decides: the unsaturated queue comes first, then the one with
    the smaller share by weight.
    """
    depth = min(len(one), len(other))
    return one[:depth] < other[:depth]


class Rank(LiveKey):
    """A queue's sort key that compares the current standings.

    A placement in one queue changes the order of others in the same part of the tree, also while they are in a heap of
    queues. Volcano also compares current values, not those of the time when a queue was added.
    """

    __slots__ = ("_standing",)

    def __init__(self, standing: Callable[[], Standing]) -> None:
        self._standing = standing

    @property
    def standing(self) -> Standing:
        """See ``Hierarchy.standing``."""
        return self._standing()

    def now(self) -> Rank:
        """Return a copy that does not change with later placements."""
        standing = self.standing
        return Rank(lambda: standing)

    @property
    def shares(self) -> tuple[tuple[float, bool], ...]:
        """The queue's share by weight for each place from the top, and whether the place is saturated."""
        return tuple((share * GRAIN / ONE, saturated) for saturated, share in self.standing)

    def __lt__(self, other: Rank) -> bool:
        return is_before(self.standing, other.standing)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rank):
            return NotImplemented
        mine, theirs = self.standing, other.standing
        return not is_before(mine, theirs) and not is_before(theirs, mine)

    __hash__ = None  # type: ignore[assignment] # it changes


def _requests(session: Session) -> Ints:
    """Return by job what tasks that have not ended request."""
    tasks = session.snapshot.tasks
    alive = (session.job_of_row >= 0) & tasks.alive
    return sums_by(session.job_of_row[alive], session.requests[tasks.shape[alive]], len(session.jobs))

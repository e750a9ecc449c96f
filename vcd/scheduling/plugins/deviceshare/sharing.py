"""Usage of shared cards, and the shares that a pod would get: now, and after releasing cards are free.

*Now* includes terminating pods and excludes Pipelined pods; *later* is the reverse. A pod is therefore never placed on
a card whose resources are still releasing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial

import numpy as np
import numpy.typing as npt

from vcd.scheduling.plugins.deviceshare.shared_cards import (
    FULL,
    MIG,
    POINT,
    Card,
    Cards,
    Piece,
    PodRequest,
    Request,
    SharePlan,
    pick_slot,
)
from vcd.scheduling.search.parts import Mask
from vcd.scheduling.session.nodes import Ints
from vcd.scheduling.session.views import Task

Rows = npt.NDArray[np.intp]

_LAST = np.iinfo(np.int64).max
_FEW = 4
"""Up to this many changed nodes are planned one by one, more as columns."""
_Used = tuple[int, int, int, Sequence[tuple[int, int]]]
"""Memory, pods, cores and MIG positions used on a card."""
_NO_SLOTS: Sequence[tuple[int, int]] = ()


class _Side:
    """The usage of all cards, now or later."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.memory: Ints = np.zeros(shape, np.int64)
        self.pods: Ints = np.zeros(shape, np.int64)
        self.cores: Ints = np.zeros(shape, np.int64)
        self.slots: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.marks: dict[str, dict[tuple[int, int], int]] = {}

    def of(self, row: int, count: int) -> list[list[int]]:
        """Return the memory, pods and cores used on each of a node's first ``count`` cards."""
        return [column[row, :count].tolist() for column in (self.memory, self.pods, self.cores)]

    def add(self, row: int, pieces: Sequence[Piece], marks: Sequence[str], times: int) -> None:
        """Add a pod's shares (1), or remove them (-1)."""
        for piece in pieces:
            where = (row, piece.card)
            self.memory[where] += times * piece.takes
            self.pods[where] += times
            self.cores[where] += times * piece.cores
            if marks or piece.slot is not None:
                self._note(where, piece.slot, marks, times)

    def fill(self, shares: Sequence[tuple[int, Sequence[Piece], Sequence[str]]]) -> None:
        """Add the shares of many pods: (row, shares, marks)."""
        flat = [(row, piece.card, piece.takes, piece.cores) for row, pieces, _ in shares for piece in pieces]
        if flat:
            rows, cards, takes, cores = np.array(flat, np.int64).T
            np.add.at(self.memory, (rows, cards), takes)
            np.add.at(self.pods, (rows, cards), 1)
            np.add.at(self.cores, (rows, cards), cores)
        for row, pieces, marks in shares:
            for piece in pieces:
                if marks or piece.slot is not None:
                    self._note((row, piece.card), piece.slot, marks, 1)

    def _note(self, where: tuple[int, int], slot: tuple[int, int] | None, marks: Sequence[str], times: int) -> None:
        """Add or remove the MIG position and the marks that a pod leaves on its card."""
        if slot is not None:
            slots = self.slots.setdefault(where, [])
            if times > 0:
                slots.append(slot)
            else:
                slots.remove(slot)
        for mark in marks:
            holders = self.marks.setdefault(mark, {})
            holders[where] = holders.get(where, 0) + times
            if not holders[where]:
                del holders[where]


class Sharing:
    """Usage of all cards, and plans for pods.

    ``order`` is the order of a node's cards: "binpack" most memory used first, "spread" fewest pods first, "last" and
    "first" by place. ``factor`` is the number of MB in a unit of memory, for MIG. ``log`` lists changed nodes in order
    of the changes. ``unsettled`` has the nodes on which now and later ever differed.
    """

    def __init__(self, cards: Cards, order: str, factor: int = 1) -> None:
        self.cards = cards
        self.order = order
        self.factor = max(1, factor)
        self.now = _Side(cards.memory.shape)
        self.later = _Side(cards.memory.shape)
        self.log: list[int] = []
        self.unsettled: dict[int, None] = {}

    def fill(self, shares: Sequence[tuple[int, Sequence[Piece], Sequence[str]]], releasing: Sequence[bool]) -> None:
        """Add the shares of placed pods: (row, shares, marks), with whether each pod is terminating."""
        self.now.fill(shares)
        self.later.fill([share for share, is_releasing in zip(shares, releasing, strict=True) if not is_releasing])
        self.unsettled.update(
            (share[0], None) for share, is_releasing in zip(shares, releasing, strict=True) if is_releasing
        )

    def change(self, row: int, pieces: Sequence[Piece], marks: Sequence[str], now: int = 0, later: int = 0) -> None:
        """Add shares (1) or remove them (-1), now and later."""
        if now:
            self.now.add(row, pieces, marks, now)
        if later:
            self.later.add(row, pieces, marks, later)
        if now != later:
            self.unsettled[row] = None
        self.log.append(row)

    # --- one node ---------------------------------------------------------------------------------------------------

    def plan(self, pod_request: PodRequest, allowed: Sequence[bool], row: int, *, later: bool) -> SharePlan | None:
        """Return the shares that a pod would get on a node; None if the node's cards do not suffice."""
        cards = self.cards.nodes[row]
        used = self.used(row, later=later)
        barred = self._barred(pod_request, row, later)
        mig = self.cards.modes[row] == MIG
        pieces: list[Piece] = []
        points = 0
        for container, request in enumerate(pod_request.requests):
            left = request.number
            for place in self._ordered(used):
                if not left:
                    break
                if not allowed[place] or place in barred:
                    continue
                card, (memory, pods, cores, slots) = cards[place], used[place]
                if not _fits(request, card, memory, pods, cores):
                    continue
                need = takes = request.memory_on(card.memory)
                identity, slot = card.uuid, None
                if mig:
                    found = pick_slot(card.geometries, slots, need * self.factor)
                    if found is None:
                        continue
                    slot, size = found
                    takes = size // self.factor
                    identity = f"{card.uuid}[{card.geometries[slot[0]].group}-{slot[1]}]"
                    slots = [*slots, slot]
                points += self._points(memory + takes, card.memory, pods)
                used[place] = (memory + takes, pods + 1, cores + request.cores, slots)
                pieces.append(Piece(container, place, identity, need, request.cores, takes, slot))
                left -= 1
            if left:
                return None
        return SharePlan(tuple(pieces), points)

    def used(self, row: int, *, later: bool) -> list[_Used]:
        """Return the usage of each card of a node; for a pod that is placed now, the larger of now and later."""
        count = len(self.cards.nodes[row])
        ahead, here = self.later.of(row, count), self.now.of(row, count)
        if not later:
            ahead = [list(map(max, *columns)) for columns in zip(here, ahead, strict=True)]
        memory, pods, cores = ahead
        if self.cards.modes[row] != MIG:
            return list(zip(memory, pods, cores, [_NO_SLOTS] * count, strict=True))
        sides = (self.later,) if later else (self.now, self.later)
        slots = [[slot for side in sides for slot in side.slots.get((row, place), ())] for place in range(count)]
        return list(zip(memory, pods, cores, slots, strict=True))

    def is_settled(self, row: int) -> bool:
        """Return whether now and later have always been equal on a node."""
        return row not in self.unsettled

    def _barred(self, pod_request: PodRequest, row: int, later: bool) -> list[int]:
        """Return the cards of a node with marks that a pod avoids."""
        sides = (self.later,) if later else (self.now, self.later)
        return [
            place
            for mark in self._avoided(pod_request, row)
            for side in sides
            for place in range(len(self.cards.nodes[row]))
            if (row, place) in side.marks.get(mark, ())
        ]

    def _avoided(self, pod_request: PodRequest, row: int) -> Iterator[str]:
        mig = self.cards.modes[row] == MIG
        return (mark for mark in pod_request.avoids if not (mig and is_rule(mark)))

    def _ordered(self, used: Sequence[_Used]) -> list[int]:
        places = range(len(used))
        if self.order == "binpack":
            return sorted(places, key=lambda place: (-used[place][0], place))
        if self.order == "spread":
            return sorted(places, key=lambda place: (used[place][1], place))
        return list(places) if self.order == "first" else list(reversed(places))

    def _points(self, memory: int, size: int, pods: int) -> int:
        if self.order == "binpack":
            return 100 * POINT * memory // size if size else 0
        return 100 * POINT if self.order == "spread" and not pods else 0

    # --- all nodes --------------------------------------------------------------------------------------------------

    def fit(self, pod_request: PodRequest, allowed: Mask, rows: Rows | None, *, later: bool) -> tuple[Mask, Ints, Ints]:
        """Return for some nodes (None: all) whether their cards suffice for a pod, their points, and used memory."""
        chosen = np.arange(len(self.cards)) if rows is None else rows
        memory, pods, cores = (self._column(name, chosen, later) for name in ("memory", "pods", "cores"))
        size, slots = self.cards.memory[chosen], self.cards.slots[chosen]
        free = allowed[chosen] & ~self._barred_column(pod_request, chosen, later)
        ok = np.ones(len(chosen), np.bool_)
        points, total = np.zeros(len(chosen), np.int64), np.zeros(len(chosen), np.int64)
        for request in pod_request.requests:
            need = size * request.percent // 100 if request.percent is not None else np.full_like(size, request.memory)
            fits = free & (slots > pods) & (size - memory >= need) & (cores + request.cores <= FULL)
            if request.alone:
                fits &= pods == 0
            elif not request.cores:
                fits &= cores != FULL
            ok &= fits.sum(axis=1) >= request.number
            picked = self._first_ones(fits, memory, pods, request.number)
            points += np.where(picked, self._points_column(memory + need, size, pods), 0).sum(axis=1)
            taken = np.where(picked, need, 0)
            total += taken.sum(axis=1)
            memory = memory + taken
            pods = pods + picked
            cores = cores + picked * request.cores
        self._fit_mig(pod_request, allowed, chosen, later, ok, points, total)
        return ok, points, total

    def _fit_mig(
        self, pod_request: PodRequest, allowed: Mask, chosen: Rows, later: bool, ok: Mask, points: Ints, total: Ints
    ) -> None:
        """Plan nodes with MIG one by one: what fits depends on how each card is partitioned."""
        if not self.cards.mig_rows:
            return
        for i in np.flatnonzero(np.isin(chosen, self.cards.mig_rows)).tolist():
            row = int(chosen[i])
            plan = self.plan(pod_request, allowed[row].tolist(), row, later=later)
            ok[i] = plan is not None
            points[i], total[i] = (0, 0) if plan is None else (plan.points, plan.memory)

    def _column(self, name: str, chosen: Rows, later: bool) -> Ints:
        ahead: Ints = getattr(self.later, name)[chosen]
        return ahead if later else np.maximum(getattr(self.now, name)[chosen], ahead)

    def _barred_column(self, pod_request: PodRequest, chosen: Rows, later: bool) -> Mask:
        barred = np.zeros(self.cards.memory.shape, np.bool_)
        for mark in pod_request.avoids:
            for side in (self.later,) if later else (self.now, self.later):
                for where in side.marks.get(mark, ()):
                    barred[where] = True
        return barred[chosen]

    def _first_ones(self, fits: Mask, memory: Ints, pods: Ints, count: int) -> Mask:
        """Return a mask of the first ``count`` fitting cards of each node, in the order of cards."""
        places = np.arange(fits.shape[1])
        if self.order == "binpack":
            key = -memory * len(places) + places
        elif self.order == "spread":
            key = pods * len(places) + places
        else:
            key = np.broadcast_to(places if self.order == "first" else -places, fits.shape)
        first = np.argsort(np.where(fits, key, _LAST), axis=1, kind="stable")[:, :count]
        picked = np.zeros_like(fits)
        np.put_along_axis(picked, first, True, axis=1)
        return picked & fits

    def _points_column(self, memory: Ints, size: Ints, pods: Ints) -> Ints:
        if self.order == "binpack":
            return np.where(size > 0, 100 * POINT * memory // np.maximum(size, 1), 0)
        if self.order == "spread":
            return np.where(pods == 0, 100 * POINT, 0)
        return np.zeros_like(memory)


def is_rule(mark: str) -> bool:
    """Return whether a mark belongs to a rule for exclusive cards."""
    return mark.startswith("rule ")


def _fits(request: Request, card: Card, memory: int, pods: int, cores: int) -> bool:
    """Return whether one share of a request fits on a card."""
    if card.slots <= pods or card.memory - memory < request.memory_on(card.memory) or cores + request.cores > FULL:
        return False
    if request.alone:
        return pods == 0
    return cores != FULL or request.cores > 0


class Fitting:
    """Computes where one pod request fits, over all nodes, and updates it for changed nodes."""

    def __init__(self, sharing: Sharing, pod_request: PodRequest) -> None:
        self._sharing = sharing
        self.pod_request = pod_request
        self.allowed = sharing.cards.allowed(pod_request)
        count = len(sharing.cards)
        self.now, self.later = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        self.points, self.memory = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self._position = -1
        self._possible: Mask | None = None

    def refreshed(self) -> Fitting:
        """Recompute changed nodes, and return self."""
        log, start = self._sharing.log, self._position
        self._position = len(log)
        if start < 0:
            self._compute(None)
        elif start < len(log):
            touched = sorted(set(log[start:]))
            if len(touched) > _FEW:
                self._compute(np.array(touched, np.intp))
            else:
                for row in touched:
                    self._compute_one(row)
        return self

    def _compute(self, rows: Rows | None) -> None:
        where: Rows | slice = slice(None) if rows is None else rows
        now, points, memory = answer = self._sharing.fit(self.pod_request, self.allowed, rows, later=False)
        if self._sharing.unsettled:
            answer = self._sharing.fit(self.pod_request, self.allowed, rows, later=True)
        later, later_points, later_memory = answer
        self.now[where], self.later[where] = now, later
        self.points[where] = np.where(now, points, np.where(later, later_points, 0))
        self.memory[where] = np.where(now, memory, np.where(later, later_memory, 0))

    def _compute_one(self, row: int) -> None:
        later = self.plan(row, later=True)
        now = later if self._sharing.is_settled(row) else self.plan(row, later=False)
        self.now[row], self.later[row] = now is not None, later is not None
        best = now or later
        self.points[row], self.memory[row] = (0, 0) if best is None else (best.points, best.memory)

    def plan(self, row: int, *, later: bool) -> SharePlan | None:
        """Return the shares that the pod would get on a node."""
        return self._sharing.plan(self.pod_request, self.allowed[row].tolist(), row, later=later)

    @property
    def possible(self) -> Mask:
        """Nodes on which the request would fit if their cards were unused."""
        if self._possible is None:
            empty = Sharing(self._sharing.cards, self._sharing.order, self._sharing.factor)
            self._possible = empty.fit(self.pod_request, self.allowed, None, later=True)[0]
        return self._possible


class Fittings:
    """Where the tasks' requests fit. ``request_of`` returns a task's request, None if it requests no cards."""

    def __init__(self, sharing: Sharing, request_of: Callable[[Task], PodRequest | None]) -> None:
        self.request_of = request_of
        self.cards = sharing.cards
        self.of_request = cache(partial(Fitting, sharing))
        """Returns the `Fitting` of a request, as of its last refresh."""

    def release(self) -> None:
        """Drop ``request_of``: its owner refers to this object, and the cycle would delay their release."""
        del self.request_of

    def of(self, task: Task) -> Fitting:
        """Return where the task's request fits now."""
        pod_request = self.request_of(task)
        assert pod_request is not None
        return self.of_request(pod_request).refreshed()

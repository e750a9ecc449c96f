"""deviceshare's filters and score: free shares, one pod at a time, and the policy for cards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.plugins.deviceshare.assignments import Assignments
from vcd.scheduling.plugins.deviceshare.card_limits import CardLimits
from vcd.scheduling.plugins.deviceshare.shared_cards import POINT, PodRequest
from vcd.scheduling.plugins.deviceshare.sharing import Fittings
from vcd.scheduling.plugins.deviceshare.vgpu import MODE
from vcd.scheduling.search.parts import Mask, Predicate, Reads, Score, Scores
from vcd.scheduling.search.predicates.node_predicates import at_rows
from vcd.scheduling.session.nodes import Ints, Usage, fits
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task

_NO_CARD = ReasonCode("cards-full", Cause.DEVICE, "node(s) had no card with enough room", nodes_help=True)
_PROBLEM = ReasonCode("cards-unreadable", Cause.DEVICE, "{problem}", nodes_help=True)
_OTHER_MODE = ReasonCode(
    "cards-of-another-mode",
    Cause.DEVICE,
    f"node(s) share their cards in another mode than the pod's annotation {MODE} asks for",
    nodes_help=True,
)
_TOO_FEW = ReasonCode(
    "cards-too-few",
    Cause.DEVICE,
    "node(s) had too few cards of the kind and size that the pod asks for",
    nodes_help=True,
)
_BEYOND_QUEUE = ReasonCode(
    "cards-beyond-queue",
    Cause.QUEUE_CAPABILITY,
    "node(s) had only cards of which the pod's share exceeds what its queue has left",
    nodes_help=True,
)
_BEING_FREED = ReasonCode(
    "cards-leaving", Cause.LEAVING, "node(s) had cards whose room is still being freed", nodes_help=True
)
_HANDING_OUT = ReasonCode(
    "cards-handed-out",
    Cause.LEAVING,
    "node(s) whose device plugin still hands out the cards of another pod",
    nodes_help=True,
)


class SharedCards(Predicate):
    """Accepts nodes whose cards have enough free memory, cores and slots for a pod."""

    name: ClassVar[str] = "deviceshare"
    reason: ClassVar[Reason] = _NO_CARD()
    reads = Reads.PODS
    keys = ()
    waits: ClassVar[bool] = True

    def __init__(self, fittings: Fittings, limits: CardLimits) -> None:
        self._fittings = fittings
        self._limits = limits

    def applies(self, task: Task) -> bool:
        return self._fittings.request_of(task) is not None

    def key_of(self, task: Task) -> PodRequest | None:
        return self._fittings.request_of(task)

    def mask(self, task: Task, usage: Usage) -> Mask:
        """Accept nodes with free cards now, or later if other resources of the node make the pod wait anyway.

        If ``usage`` has selected rows, evictions are being tried, and the pod will be Pipelined anyway.
        """
        fitting = self._fittings.of(task)
        if usage.rows is None:
            result = fitting.now.copy()
            later = fitting.later & ~result
            if later.any():
                result |= later & ~fits(task.floor, usage.idle)
        else:
            result = fitting.later[usage.rows]
        left = self._limits.memory_left(fitting.pod_request.queue)
        if left is not None:
            result &= at_rows(fitting.memory, usage) <= left
        return result

    def unresolvable_nodes(self, task: Task, usage: Usage, failed: Mask) -> Mask:
        return failed & ~at_rows(self._fittings.of(task).possible, usage)

    def reasons(self, task: Task, usage: Usage, failed: Mask) -> Mapping[Reason, int]:
        fitting, cards = self._fittings.of(task), self._fittings.cards
        rows = np.arange(len(cards)) if usage.rows is None else usage.rows
        right_mode, left = cards.of_mode(fitting.pod_request), self._limits.memory_left(fitting.pod_request.queue)
        counts: Counter[Reason] = Counter()
        for row in rows[failed].tolist():
            if cards.problems[row]:
                reason = _PROBLEM({"problem": cards.problems[row]})
            elif not right_mode[row]:
                reason = _OTHER_MODE()
            elif not fitting.possible[row]:
                reason = _TOO_FEW()
            elif left is not None and fitting.now[row] and fitting.memory[row] > left:
                reason = _BEYOND_QUEUE()
            elif fitting.later[row]:
                reason = _BEING_FREED()
            else:
                reason = self.reason
            counts[reason] += 1
        return counts


class OneAtATime(Predicate):
    """Accepts nodes whose device plugin has served all of its pods with cards."""

    name: ClassVar[str] = "one pod at a time"
    reason: ClassVar[Reason] = _HANDING_OUT()
    reads = Reads.PODS | Reads.TIME
    keys = ()

    def __init__(self, session: Session, fittings: Fittings, assignments: Assignments) -> None:
        self._session = session
        self._fittings = fittings
        self._assignments = assignments

    def applies(self, task: Task) -> bool:
        return self._fittings.request_of(task) is not None

    def mask(self, task: Task, usage: Usage) -> Mask:
        """Accept nodes that are not busy, and nodes without idle resources: a Pipelined pod gets no cards yet.

        If ``usage`` has selected rows, evictions are being tried. Then accept none if the pod fits without evictions on
        a node that is busy only for the moment.
        """
        busy = self._assignments.busy(len(self._fittings.cards))
        if usage.rows is None:
            return ~(busy & fits(task.floor, usage.idle))
        session = self._session
        awaited = busy & self._fittings.of(task).now & framework_of(session).evaluator.static(task).mask
        waits = bool(awaited.any()) and bool((awaited & fits(task.floor, session.nodes.usage.idle)).any())
        return np.full(len(usage.rows), not waits)

    def unresolvable_nodes(self, task: Task, usage: Usage, failed: Mask) -> Mask:
        return failed & at_rows(self._assignments.busy(len(self._fittings.cards)), usage)


class CardScore(Score):
    """Scores nodes by the points of the cards that a pod would get under the policy, rounded to integers."""

    name: ClassVar[str] = "deviceshare"
    reads = Reads.PODS
    keys = ()

    def __init__(self, fittings: Fittings, weight: int) -> None:
        super().__init__(weight)
        self._fittings = fittings

    def applies(self, task: Task) -> bool:
        return self._fittings.request_of(task) is not None

    def key_of(self, task: Task) -> PodRequest | None:
        return self._fittings.request_of(task)

    def raw(self, task: Task, usage: Usage) -> Scores:
        points: Ints = at_rows(self._fittings.of(task).points, usage)
        return ((2 * points + POINT) // (2 * POINT)).astype(np.float64)

"""Capabilities of queues for what pods have of cards, summed over cards."""

from __future__ import annotations

from collections.abc import Sequence

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.scheduling.session.queues import Queue
from vcd.scheduling.session.session import Session

_BEYOND_CAPABILITY = ReasonCode(
    "queue-capability-of-cards",
    Cause.QUEUE_CAPABILITY,
    "queue has no room left within its capability of {name}, summed over cards",
    field="spec.capability",
)

_MILLI = 1000


class CardLimits:
    """What queues may hold, and hold, of two resources: memory and cores of cards. ``names`` are the resources' names,
    none where nothing is limited. A queue holds what its descendants hold, and its capability bounds them all."""

    def __init__(self, session: Session, names: Sequence[str]) -> None:
        self._names = names
        self._queues = session.queue_list
        self._by_name = session.queues
        self._limits: dict[int, list[int | None]] = {}
        for queue in session.queue_list:
            limits = [queue.record.capability.get(name) for name in names]
            if any(limit is not None for limit in limits):
                self._limits[queue.index] = limits
        self._held = {index: [0] * len(names) for index in self._limits}
        self._chains: list[list[int]] = []
        """The limited ones of each queue and its ancestors."""
        for queue in session.queue_list if self._limits else ():
            self._chains.append([above.index for above in session.lineage(queue) if above.index in self._limits])

    def __bool__(self) -> bool:
        """Whether any queue is limited."""
        return bool(self._limits)

    def count(self, queue: int, memory: int, cores: int) -> None:
        """A queue holds more, or with negative amounts less."""
        for index in self._chains[queue]:
            held = self._held[index]
            held[0] += memory * _MILLI
            held[1] += cores * _MILLI

    def memory_left(self, queue: str) -> int | None:
        """What a queue and its ancestors have left of memory, rounded down to whole units; None: there is no limit."""
        if not queue or not self._limits:
            return None
        chain = self._chains[self._by_name[queue].index]
        stated = [(self._limits[index][0], self._held[index][0]) for index in chain]
        left = [(limit - held) // _MILLI for limit, held in stated if limit is not None]
        return min(left) if left else None

    def refusal(self, queue: Queue, memory: int, cores: int) -> Reason | None:
        """Why a queue may not hold so much more; None where it may."""
        for index in self._chains[queue.index]:
            rows = zip(self._names, self._limits[index], self._held[index], (memory, cores), strict=True)
            for name, limit, held, amount in rows:
                asked = amount * _MILLI
                if limit is not None and asked and held + asked > limit:
                    amounts = [("asks", name, asked), ("allocated", name, held), ("capability", name, limit)]
                    return _BEYOND_CAPABILITY({"name": name, "queue": self._queues[index].name}, amounts)
        return None

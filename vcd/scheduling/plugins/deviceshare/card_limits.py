"""Queues' capabilities for shared cards, summed over cards."""

from __future__ import annotations

from collections.abc import Sequence

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session

_BEYOND_CAPABILITY = ReasonCode(
    "queue-capability-of-cards",
    Cause.QUEUE_CAPABILITY,
    "queue has no room left within its capability of {name}, summed over cards",
    field="spec.capability",
)

_MILLI = 1000


class CardLimits:
    """Limits and usage of queues for memory and cores of cards. ``names`` are the two resources, empty without limits.

    A queue's usage includes its descendants', and its capability limits the sum.
    """

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
        """For each queue, itself and its ancestors, if they have a limit."""
        for queue in session.queue_list if self._limits else ():
            self._chains.append([above.index for above in session.lineage(queue) if above.index in self._limits])

    def __bool__(self) -> bool:
        """Return whether any queue has a limit."""
        return bool(self._limits)

    def count(self, queue: int, memory: int, cores: int) -> None:
        """Add to a queue's usage; negative amounts subtract."""
        for index in self._chains[queue]:
            held = self._held[index]
            held[0] += memory * _MILLI
            held[1] += cores * _MILLI

    def memory_left(self, queue: str) -> int | None:
        """Return the memory left to a queue and its ancestors, rounded down to whole units; None without a limit."""
        if not queue or not self._limits:
            return None
        chain = self._chains[self._by_name[queue].index]
        stated = [(self._limits[index][0], self._held[index][0]) for index in chain]
        left = [(limit - held) // _MILLI for limit, held in stated if limit is not None]
        return min(left) if left else None

    def refusal(self, queue: Queue, memory: int, cores: int) -> Reason | None:
        """Return a reason if a queue may not use this much more."""
        for index in self._chains[queue.index]:
            rows = zip(self._names, self._limits[index], self._held[index], (memory, cores), strict=True)
            for name, limit, held, amount in rows:
                requested = amount * _MILLI
                if limit is not None and requested and held + requested > limit:
                    amounts = [("asks", name, requested), ("allocated", name, held), ("capability", name, limit)]
                    return _BEYOND_CAPABILITY({"name": name, "queue": self._queues[index].name}, amounts)
        return None

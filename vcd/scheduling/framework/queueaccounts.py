"""Accounts of queues, from which plugins that limit queues derive theirs, and the columns of their quantities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vcd.model.resource_requests import LARGEST_SUM
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session

UNLIMITED = 1 << 62
"""A capability without a limit. Sums of requests are far smaller."""


class Resources:
    """The session's resources by column. ``pods``, cpu and memory (columns 0 and 1) have special rules."""

    def __init__(self, session: Session) -> None:
        self.names = session.nodes.resources
        self.width = len(self.names)
        self.column_of = session.nodes.column_of
        self.pods = self.column_of["pods"]
        self.total: list[int] = session.nodes.total.tolist()
        self.compared = tuple(column for column in range(self.width) if column != self.pods)
        """The columns that quotas compare: all but the number of pods, as in Volcano."""

    def amounts(self, values: Mapping[str, int], default: int = 0) -> list[int]:
        """Return quantities by name as integers by column."""
        result = [default] * self.width
        for name, value in values.items():
            result[self.column_of[name]] = value
        return result

    def capability(self, values: Mapping[str, int]) -> list[int]:
        """Return a capability. A resource that is not named is unlimited, and cpu or memory of 0 (as in Volcano)."""
        result = self.amounts(values, UNLIMITED)
        for column in (0, 1):
            if result[column] <= 0:
                result[column] = UNLIMITED
        return result


class Inqueue:
    """What admitted groups may still take, by group priority: groups of lower priority do not count for a group."""

    def __init__(self, width: int) -> None:
        self._none = [0] * width
        self._of_priority: dict[int, list[int]] = {}

    def add(self, priority: int, amounts: Sequence[int]) -> None:
        """Count an admitted group."""
        self._of_priority[priority] = _sum(self._of_priority.get(priority, self._none), amounts)

    def ahead(self, priority: int) -> list[int]:
        """Return the sum over groups of at least ``priority``."""
        rows = [amounts for known, amounts in self._of_priority.items() if known >= priority]
        return rows[0] if len(rows) == 1 else _sum(self._none, *rows)

    def total(self) -> list[int]:
        """Return the sum over all groups."""
        return _sum(self._none, *self._of_priority.values())


class QueueAccount:
    """One queue's account; quantities are integers by column, and include the queues below it.

    ``lineage`` is the account itself, its parent's, and so on up to the root's (only itself if queues are flat).
    ``allocated`` includes pods whose group was deleted; ``request`` is allocated plus the requests of pending pods.
    ``elastic`` is what jobs hold above their minimum. ``QueueLedger.fill`` sets these. ``counted_guarantee`` is the
    reserved portion of the guarantee.
    """

    def __init__(self, queue: Queue, guarantee: list[int], capability: Sequence[float]) -> None:
        self.queue = queue
        self.name = queue.name
        self.lineage: Sequence[QueueAccount] = (self,)
        self.guarantee = self.counted_guarantee = guarantee
        self.capability = capability
        self.allocated: list[int]
        self.request: list[int]
        self.elastic: list[int]
        self.inqueue = Inqueue(len(guarantee))


def _sum(*rows: Sequence[int]) -> list[int]:
    return [min(sum(column), LARGEST_SUM) for column in zip(*rows, strict=True)]

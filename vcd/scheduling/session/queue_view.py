"""Queues in a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vcd.model.objects import ROOT_QUEUE
from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.state.records import QueueRecord
from vcd.state.sums import Ints, bounded

_CLOSED = ReasonCode(
    "queue-closed", Cause.QUEUE_CLOSED, "queue is {state}", mend="open the queue, or submit to another one"
)


class Queue:
    """A queue: its record, its weight, and its index in columns of queues."""

    __slots__ = ("created", "index", "is_open", "name", "reclaimable", "record", "state", "weight")

    def __init__(self, index: int, name: str, record: QueueRecord) -> None:
        self.index = index
        self.name = name
        self.record = record
        self.weight = record.queue.spec.weight
        self.state = record.queue.status.state
        self.is_open = record.queue.is_open
        self.created = record.created
        self.reclaimable = record.queue.spec.reclaimable is not False
        """Whether other queues may reclaim what it holds above its share; True unless its spec states False."""

    def why_closed(self) -> Reason:
        """Return why the queue takes no work."""
        return _CLOSED({"state": self.state})


def lineage_of(queues: Mapping[str, QueueRecord], name: str) -> tuple[str, ...]:
    """Return a queue and its ancestors by name, the root last. Stops at a missing parent, and at a cycle."""
    found: dict[str, None] = {}
    while name in queues and name not in found:
        found[name] = None
        if name == ROOT_QUEUE:
            break
        name = queues[name].queue.parent
    return tuple(found)


def with_descendants(sums: Ints, lineages: Sequence[Sequence[int]]) -> Ints:
    """Return sums by queue that include the queues below; ``lineages`` has each queue's index and its ancestors'."""
    total = sums.copy()
    for index, lineage in enumerate(lineages):
        for above in lineage[1:]:
            total[above] = bounded(total[above] + sums[index])
    return total

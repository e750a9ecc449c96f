"""Common parts of queue plugins: the switch for Volcano's formulas, their base class, and problems with queues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from vcd.model.quantity import format_resource
from vcd.model.reasons import Amount, Cause, ReasonCode
from vcd.model.resource_requests import CPU, MEMORY
from vcd.model.status import TaskStatus
from vcd.scheduling.framework.accounts import KeepsAccounts
from vcd.scheduling.framework.arguments import Argument
from vcd.scheduling.framework.ledger import QueueLedger
from vcd.scheduling.framework.queueaccounts import Resources
from vcd.scheduling.session.object_problems import Problem
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job
from vcd.state.holds import Hold
from vcd.state.sums import Ints

VOLCANO_SHARES = Argument(
    "volcanoSharesEnable",
    "bool",
    False,
    "Whether shares are calculated as in Volcano: pods that no node can take count as demand, nothing is lent beyond "
    "what a queue deserves, a queue that takes no work retains its guarantee, and each queue may take what the other "
    "queues' guarantees leave of the cluster, so several queues together can take a guarantee.",
)

HAS_DESERVED = ReasonCode(
    "queue-has-deserved", Cause.QUEUE_DESERVED, "queue has what it deserves", field="spec.deserved.{resource}"
)
"""Why a queue may not reclaim."""

_TRIED = (TaskStatus.ALLOCATED, TaskStatus.PIPELINED)


def contradictions(queue: Queue, resources: Resources, stated: Mapping[str, Mapping[str, int]]) -> Iterator[Problem]:
    """Yield what fields of a queue state beyond its own capability, which applies (Volcano #4292), and what the
    capability states without effect.

    ``stated`` has the quantities of these fields by resource.
    """
    capability = resources.capability(queue.record.capability)
    for field, quantities in stated.items():
        for name, amount, most in zip(resources.names, resources.amounts(quantities), capability, strict=True):
            if amount > most:
                text = (
                    f"spec.{field} {name} {format_resource(name, amount)} is more than the "
                    f"{format_resource(name, most)} of spec.capability, which holds: raise that or lower this"
                )
                yield Problem("Queue", queue.name, text)
    for name in (CPU, MEMORY):
        if queue.record.capability.get(name, 1) == 0:  # zero limits nothing, as in Volcano
            text = f"spec.capability {name} 0 limits nothing: close the queue, or state an amount above 0"
            yield Problem("Queue", queue.name, text)


class KeepsShares(KeepsAccounts):
    """Base class of plugins that define deserved shares of queues, and so what reclaim returns to a queue."""

    @cached_property
    def ledger(self) -> QueueLedger[Any]:
        """What queues hold and reserve. ``open`` sets it, or a subclass builds it when it is first needed."""
        raise NotImplementedError

    def job_enqueued(self, job: Job) -> None:
        """Count what an admitted group reserves in its queue and, in a tree, in all ancestors."""
        if job.record.min_resources is not None:
            self.ledger.admit(job)

    def holds(self) -> Iterator[Hold]:
        """Return the unused guarantees."""
        return self.ledger.holds()

    def stays_within_share(self, job: Job) -> bool:
        """Return whether the queue could reclaim for a group that is not admitted yet.

        It can if the queue stays within its share with the group's minimum resources and everything that admitted
        groups of the same or a higher priority may still take.
        """
        raise NotImplementedError

    def surplus(self, queue: Queue) -> Ints:
        """Return what each queue holds above its share, as (queues, resources), if ``queue`` uses all of its own share.

        This is an upper bound of what reclaim takes from each queue for ``queue``.
        """
        raise NotImplementedError


class Attempts:
    """What a job holds in statements that are not committed.

    Reasons that are noted during an attempt state this separately from what the queue has allocated, because it may be
    rolled back.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._cached: tuple[tuple[int, int], list[int]] = ((-1, -1), [])

    def of(self, job: Job) -> list[int]:
        """Return the amounts by column."""
        key = (job.index, self._session.trial.changes)
        if self._cached[0] != key:
            tried = [task.amounts for task in job.tasks() if task.status in _TRIED]
            none = [0] * len(self._session.nodes.resources)
            self._cached = key, [sum(column) for column in zip(none, *tried, strict=True)]
        return self._cached[1]

    def told(self, job: Job, columns: Iterable[int], allocated: Sequence[int]) -> list[Amount]:
        """Return amounts for a reason: what a queue has allocated without the job's attempt, and the attempt."""
        attempted = self.of(job)
        rest = [have - tried for have, tried in zip(allocated, attempted, strict=True)]
        return self._session.told(columns, allocated=rest, attempted=attempted)

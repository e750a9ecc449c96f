"""The ledger of queues: what each holds, requests, may still take, and is guaranteed, for plugins that limit queues.

A plugin derives its accounts from ``QueueAccount`` and adds its limits and its order. It has a ledger of its own, since
the arguments and flags of plugins differ. Allocated resources and unused guarantees follow the session's placements,
and ``inqueue`` its admissions. Everything else is counted when the session begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np

from vcd.model.reasons import Reason, ReasonCode
from vcd.scheduling.framework.demand import demand_of
from vcd.scheduling.framework.guarantees import Amounts, Guarantees, reserved_guarantee
from vcd.scheduling.framework.queueaccounts import QueueAccount
from vcd.scheduling.session.job_columns import elastic, inqueue_by_priority
from vcd.scheduling.session.queue_view import Queue, with_descendants
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job
from vcd.state.group_columns import GroupColumns
from vcd.state.holds import Hold, HoldKind
from vcd.state.sums import Ints, bounded, plus

A = TypeVar("A", bound=QueueAccount)


def allocated_by_queue(session: Session) -> Ints:
    """Return what queues hold when the session begins, as (queues, resources), including pods whose group was
    deleted."""
    return bounded(session.jobs.sums("allocated") + session.orphans.allocated)


def usage_by_queue(session: Session) -> tuple[Ints, Ints, Ints]:
    """Return what queues hold, what their pending pods request, and what their jobs hold above their minimum."""
    return allocated_by_queue(session), session.jobs.sums("pending"), session.jobs.sums(elastic)


class QueueLedger(Generic[A]):
    """The accounts of a session's queues, by index.

    Their columns are the session's first resources: cpu and memory, and usually all others. With ``as_volcano``,
    guarantees do not limit several queues together, and groups reserve for pods that no node can take.
    """

    guarantees: Guarantees
    """Set by ``protect_guarantees``."""

    def __init__(self, session: Session, accounts: list[A], as_volcano: bool) -> None:
        self.accounts = accounts
        self._session = session
        self._as_volcano = as_volcano

    # --- opening ------------------------------------------------------------------------------------------------------

    def fill(self, allocated: Ints, pending: Ints, above_minimum: Ints) -> None:
        """Set what queues hold and request, from sums by queue. Needs the final lineages."""
        self._width = allocated.shape[1]
        lineages = [[above.queue.index for above in account.lineage] for account in self.accounts]
        parts = (allocated, allocated + pending, above_minimum)
        rows = zip(*[with_descendants(part, lineages).tolist() for part in parts], strict=True)
        for account, row in zip(self.accounts, rows, strict=True):
            account.allocated, account.request, account.elastic = row

    def count_guarantees(self, takes_work: Callable[[A], bool]) -> None:
        """Set the reserved portions of guarantees: all of them with Volcano's formula."""
        for account in () if self._as_volcano else self.accounts:
            account.counted_guarantee = reserved_guarantee(
                account.guarantee, account.capability, account.allocated, takes_work(account)
            )

    def left_to_each(self, total: Amounts) -> list[list[int]]:
        """Return what the reserved guarantees of the others leave to each queue of a total."""
        counted = [account.counted_guarantee for account in self.accounts]
        left = [max(amount - sum([own[column] for own in counted]), 0) for column, amount in enumerate(total)]
        return [[rest + amount for rest, amount in zip(left, own, strict=True)] for own in counted]

    def protect_guarantees(self, total: Amounts, most: Sequence[Amounts] | None = None, without: str = "") -> None:
        """Begin to protect the reserved guarantees of all queues but ``without``.

        ``total`` limits all queues together, and ``most`` the children of each queue.
        """
        none = [0] * len(total)
        guaranteed = [
            none if self._as_volcano or account.name == without else account.counted_guarantee
            for account in self.accounts
        ]
        limits = most and [[min(pair) for pair in zip(amounts, total, strict=True)] for amounts in most]
        self.guarantees = Guarantees(self.accounts, guaranteed, total, limits)

    # --- what is admitted ---------------------------------------------------------------------------------------------

    @cached_property
    def groups(self) -> GroupColumns:
        """The groups with what they reserve.

        Read it only after the predicates are known: a group whose pods no node can take reserves nothing.
        """
        return self._session.jobs if self._as_volcano else demand_of(self._session).groups

    @cached_property
    def admitting(self) -> list[A]:
        """The accounts, with what admitted groups may still take."""
        reserved, priorities = self._inqueue(), self.groups.priorities.tolist()
        for index, rank in np.argwhere(reserved.any(axis=2)).tolist():
            for account in self.accounts[index].lineage:
                account.inqueue.add(priorities[rank], reserved[index, rank].tolist())
        return self.accounts

    def admit(self, job: Job) -> None:
        """Count what an admitted group reserves."""
        amounts = self.groups.reservable(job.index)[: self._width].tolist()
        for account in self.admitting[job.queue.index].lineage:
            account.inqueue.add(job.priority, amounts)

    def _inqueue(self) -> Ints:
        """Return what admitted groups may still take, as (queues, ranks of priorities, resources)."""
        return inqueue_by_priority(self.groups, len(self.accounts))

    # --- what happens -------------------------------------------------------------------------------------------------

    def charge(self, queue: Queue, amounts: Amounts, times: int) -> None:
        """Add ``times`` (negative to subtract) the amounts to what a queue and its ancestors hold."""
        for account in self.accounts[queue.index].lineage:  # in place, because readers hold on to these lists
            account.allocated[:] = plus(account.allocated, amounts, times)
        if not self.guarantees.is_idle:
            self.guarantees.charge(queue, amounts, times)

    def refusal(self, code: ReasonCode, queue: Queue, amounts: Amounts) -> Reason | None:
        """Return a reason if these amounts would use what other queues are guaranteed and have not allocated."""
        if self.guarantees.is_idle:
            return None
        over = self.guarantees.exceeded(queue, amounts, self._session.nodes.column_of["pods"])
        if not over:
            return None
        names = [other.name for other in self.guarantees.holders(over) if other.name != queue.name]
        return code({"queues": ", ".join(names)}, self._session.told(over, asks=amounts))

    def holds(self) -> Iterator[Hold]:
        """Yield the unused guarantees."""
        for queue, unused in self.guarantees.unused():
            named = zip(self._session.nodes.resources, unused, strict=False)
            yield Hold(HoldKind.GUARANTEE, queue.name, resources={name: amount for name, amount in named if amount})

"""The filter for quota that terminating pods still hold: no pod is bound on it before they are gone.

Like resources of a node, quota is assigned only when it is free. A pod can wait for releasing quota (Pipelined), as
for releasing resources of a node.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.scheduling.plugins.capacity_card.card_account import CardAccount
from vcd.scheduling.plugins.capacity_card.card_requests import CardRequest
from vcd.scheduling.plugins.capacity_card.node_cards import NodeCards
from vcd.scheduling.search.parts import Mask, Predicate, Reads
from vcd.scheduling.session.nodes import Usage, fits
from vcd.scheduling.session.views import Task


@dataclass(eq=False)
class QuotaFreed(Predicate):
    """Accepts only nodes on which the pod would be Pipelined anyway, while its queue's quota is still releasing."""

    name = "CardQuotaFreed"
    reason = ReasonCode(
        "card-quota-leaving",
        Cause.LEAVING,
        "node(s) had room, but pods that are being deleted still hold the queue's quota; wait until they are gone",
    )()
    reads = Reads.QUEUE
    keys = ()
    waits = True

    _cards: NodeCards
    _accounts: Sequence[CardAccount]
    _request_of: Callable[[Task], CardRequest]

    def applies(self, task: Task) -> bool:
        """Return whether pods of the queue are terminating and the pod requests anything that the queue counts."""
        if not self._accounts[task.job.queue.index].is_releasing():
            return False
        request = self._request_of(task)
        return bool(request.demands) or any(request.basic)

    def key_of(self, task: Task) -> Hashable:
        """Return the queue and the named cards."""
        demands = self._request_of(task).demands
        return task.job.queue.name, tuple([(demand.resource, demand.names, demand.named) for demand in demands])

    def mask(self, task: Task, usage: Usage) -> Mask:
        """Accept all nodes if ``usage`` has selected rows: then evictions are tried, and the pod will be Pipelined."""
        if usage.rows is not None:
            return np.ones(len(usage), np.bool_)
        account, request = self._accounts[task.job.queue.index], self._request_of(task)
        if account.waits_for_basic(request.basic):
            at_once = np.zeros(len(usage), np.bool_)
        else:
            at_once = np.ones(len(usage), np.bool_)
            for demand in request.demands:
                short = tuple([card for card in demand.names if account.waits_for_card(card, demand.amount)])
                if short:
                    at_once &= ~self._cards.mask(demand.resource, short, False)
        if at_once.all():
            return at_once
        return at_once | ~fits(task.floor, usage.idle)

    def reasons(self, task: Task, usage: Usage, failed: Mask) -> Mapping[Reason, int]:
        return {self.reason: int(failed.sum())}

"""Entitlements for reclaim: a queue's quota of cards, and what it deserves of cpu and memory.

A queue reclaims only while it stays within its entitlement, and victims belong to queues above theirs. So no two queues
exchange pods (docs/laws.md, law 8): what a queue reclaims cannot be reclaimed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from vcd.model.reasons import Reason
from vcd.model.status import ALLOCATED_STATUSES
from vcd.scheduling.framework.shares import HAS_DESERVED
from vcd.scheduling.framework.victims import Allowance
from vcd.scheduling.plugins.capacity_card.card_account import BASIC, CardAccount
from vcd.scheduling.plugins.capacity_card.card_ledger import CardLedger
from vcd.scheduling.plugins.capacity_card.card_requests import CardRequest
from vcd.scheduling.plugins.capacity_card.node_cards import NO_CARD, NodeCards
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.sums import Ints, plus, sums_before, sums_by

Mask = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


class Entitlements:
    """Computes what queues hold beyond their entitlement; cpu or memory counts only if some queue deserves any."""

    def __init__(self, session: Session, cards: NodeCards, ledger: CardLedger) -> None:
        self._session = session
        self._cards = cards
        self._ledger = ledger
        self._columns = [
            column for column in range(len(BASIC)) if any(account.deserved[column] for account in ledger.accounts)
        ]

    @property
    def divide_basic(self) -> bool:
        return bool(self._columns)

    def refuses(self, account: CardAccount, requested: Sequence[int], ahead: Sequence[int] = (0, 0)) -> Reason | None:
        """Return why a queue may not reclaim for pods without cards; None if it may.

        It may if it deserves what it holds, with the requested cpu and memory and what admitted groups reserve
        (``ahead``).
        """
        after = plus(plus(account.allocated, requested, 1), ahead, 1)
        wanted = [column for column in self._columns if requested[column]]
        if wanted and all(after[column] <= account.deserved[column] for column in wanted):
            return None
        amounts = [
            (role, BASIC[column], values[column])
            for role, values in (
                ("asks", requested),
                ("allocated", account.allocated),
                ("deserved", account.deserved),
            )
            for column in wanted
            if values[column]
        ]
        return HAS_DESERVED({"queue": account.name}, amounts)

    def exceeds(self, account: CardAccount, amounts: Sequence[int], evicted: Sequence[int]) -> bool:
        """Return whether a pod's queue, without ``gone``, holds more than it deserves of something that the pod has.

        The queue must also retain its guarantee without the pod.
        """
        left = plus(account.allocated, evicted, -1)
        borrows = any(amounts[column] and left[column] > account.deserved[column] for column in self._columns)
        rows = zip(amounts, left, account.guarantee, strict=True)
        return borrows and all(not amount or have - amount >= least for amount, have, least in rows)

    def surplus(self) -> Ints:
        """Return what reclaim takes from queues at most, as (queues, resources).

        It takes pods that use only cards beyond the quota, and pods without cards of queues that hold more than they
        deserve.
        """
        jobs = self._session.jobs
        rows = self._ledger.card_pods(ALLOCATED_STATUSES)
        rows = rows[self._session.job_of_row[rows] >= 0]
        without_cards = np.maximum(jobs.sums("allocated") - self._sum_by_queue(rows), 0)
        found = self._sum_by_queue(rows[self._use_borrowed_cards(rows)])
        for index, account in enumerate(self._ledger.accounts):
            over = [account.allocated[column] - account.deserved[column] for column in self._columns]
            if max(over, default=0) > 0:
                part = without_cards[index]
                part[self._columns] = np.clip(part[self._columns], 0, np.maximum(over, 0))
                found[index] += part
        return found

    def _use_borrowed_cards(self, rows: Ints) -> Mask:
        """Return a mask of pods that may be evicted because their queues exceed the quota of each card that they use.

        Pods with the fewest cards of a queue come first.
        """
        session, cards = self._session, self._cards
        nodes, requests = session.snapshot.tasks.node[rows], self._requests(rows)
        evictable: Mask = nodes >= 0
        borrowed = np.zeros((len(self._ledger.accounts), max(1, len(cards.names))), np.int64)
        for index, account in enumerate(self._ledger.accounts):
            for card in account.cards if account.problem is None else ():
                if card in cards.code_of:
                    borrowed[index, cards.code_of[card]] = max(-account.left(card), 0)
        if not borrowed.any():
            return np.zeros(len(rows), np.bool_)
        for resource, column in zip(cards.resources, cards.columns, strict=True):
            codes, amounts = cards.codes[resource][nodes], requests[:, column]
            keys = session.queue_of_row[rows].astype(np.int64) * borrowed.shape[1] + np.maximum(codes, 0)
            order = np.lexsort((*requests.T, amounts, keys))  # pods with equal requests are interchangeable here
            fits = np.zeros(len(rows), np.bool_)
            fits[order] = sums_before(keys[order], amounts[order]) + amounts[order] <= borrowed.ravel()[keys[order]]
            evictable &= (amounts == 0) | (fits & (codes != NO_CARD))
        return evictable

    def _requests(self, rows: Ints) -> Ints:
        requests: Ints = self._session.requests[self._session.snapshot.tasks.shape[rows]]
        return requests

    def _sum_by_queue(self, rows: Ints) -> Ints:
        return sums_by(self._session.queue_of_row[rows], self._requests(rows), len(self._ledger.accounts))


class BeyondEntitlement(Allowance):
    """Permits tasks that use only cards beyond their queue's quota, and tasks without cards of queues that borrow."""

    def __init__(
        self, ledger: CardLedger, request_of: Callable[[Task], CardRequest], entitlements: Entitlements | None
    ) -> None:
        """``entitlements`` is None if every task without cards may be evicted."""
        self._ledger = ledger
        self._request_of = request_of
        self._entitlements = entitlements
        self._cards_evicted: dict[tuple[int, str], int] = {}
        self._basic_evicted: dict[int, list[int]] = {}

    def permits(self, task: Task) -> bool:
        index, request = task.job.queue.index, self._request_of(task)
        account = self._ledger.accounts[index]
        used = self._ledger.charged(request, task.node)
        if not used:
            evicted = self._basic_evicted.get(index, [0, 0])
            return self._entitlements is None or self._entitlements.exceeds(account, request.basic, evicted)
        if account.problem is not None:
            return False  # an unreadable quota is no lowered quota: it permits no eviction
        return all(-account.left(card) - self._cards_evicted.get((index, card), 0) >= amount for card, amount in used)

    def spend(self, task: Task) -> None:
        index, request = task.job.queue.index, self._request_of(task)
        self._basic_evicted[index] = plus(self._basic_evicted.get(index, [0, 0]), request.basic, 1)
        for card, amount in self._ledger.charged(request, task.node):
            self._cards_evicted[index, card] = self._cards_evicted.get((index, card), 0) + amount

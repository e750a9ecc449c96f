"""Guarantees of queues that no borrower can take.

Volcano subtracts the other queues' guarantees from each queue's limit separately, so two borrowers together can take
what a third queue is guaranteed. ``Guarantees`` protects the sum. A guarantee is a hold (docs/laws.md, law 8) and
counts only while its queue could use it, so plugins use ``reserved_guarantee`` (docs/differences.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from vcd.model.selectors import Taint
from vcd.scheduling.framework.queueaccounts import QueueAccount
from vcd.scheduling.search.parts import Mask
from vcd.scheduling.search.predicates.node_predicates import HARD_EFFECTS
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.state.node_facts import NodeFacts
from vcd.state.sums import Ints, bounded, plus, sum_of

Amounts = Sequence[int]


def reserved_guarantee(guarantee: Amounts, most: Sequence[float], held: Amounts, takes_work: bool) -> list[int]:
    """Return what other queues must leave of a queue's guarantee, by column: at most its capability, ``most``, since it
    cannot use more.

    If the queue takes no work (it is not Open, or misconfigured), this is what it holds of the guarantee: none of its
    pods can be placed, so the rest would stay idle.
    """
    limits = most if takes_work else [min(pair) for pair in zip(most, held, strict=True)]
    return [int(min(pair)) for pair in zip(guarantee, limits, strict=True)]


def attainable(session: Session, allocated: Ints) -> list[int]:
    """Return what all queues together can have, by column: what they hold (``allocated``, by queue), plus the future
    idle resources of usable nodes.

    Nodes that are cordoned or have a lifecycle taint (``node.kubernetes.io/...``) are not usable. Resources of other
    schedulers' pods are in neither part. So guarantees are reserved only where pods can be placed.
    """
    facts = session.nodes.facts
    future_idle = np.maximum(session.nodes.usage.future_idle[: allocated.shape[1]], 0)
    is_usable = facts.cached("takes new pods", lambda: _takes_new_pods(facts))
    total: list[int] = bounded(sum_of(allocated) + sum_of(future_idle[:, is_usable], axis=1)).tolist()
    return total


def _takes_new_pods(facts: NodeFacts) -> Mask:
    codes, taint_sets = facts.taint_sets()
    has_failed = [any(map(_is_of_lifecycle, taints)) for taints in taint_sets]
    is_cordoned = np.array([node.spec.unschedulable for node in facts.nodes], np.bool_)
    result: Mask = ~is_cordoned & ~np.array(has_failed, np.bool_)[codes]
    return result


def _is_of_lifecycle(taint: Taint) -> bool:
    return taint.key.startswith("node.kubernetes.io/") and taint.effect in HARD_EFFECTS


class _Branch:
    """A queue and its descendants.

    ``held`` is what they hold, for a queue the list of its account. ``claimed`` is the same, with unused guarantees of
    descendants counted as held. ``most`` limits ``claimed`` (None: no limit).
    """

    __slots__ = ("above", "claimed", "held", "least", "most")

    def __init__(self, held: list[int]) -> None:
        self.above: _Branch | None = None
        self.held = held
        self.claimed = held[:]
        self.least: Amounts = [0] * len(held)
        self.most: Amounts | None = None

    def total(self, column: int, more: int = 0) -> int:
        """Return what the queue holds or is guaranteed, if it held ``more``."""
        return max(self.claimed[column] + more, self.least[column])


class Guarantees:
    """What queues are guaranteed, flat or as a tree; no queue can take what others are guaranteed.

    ``accounts`` has the queues by index, and ``guaranteed`` what each is guaranteed. ``total`` is what all queues can
    have (``attainable``), and ``most`` the limit for each queue's children together.
    """

    def __init__(
        self,
        accounts: Sequence[QueueAccount],
        guaranteed: Sequence[Amounts],
        total: Amounts,
        most: Sequence[Amounts] | None = None,
    ) -> None:
        self.is_idle = not any(any(amounts) for amounts in guaranteed)
        """Whether no queue has a guarantee, and nothing needs to be followed."""
        self._accounts = () if self.is_idle else accounts
        self._branches = [_Branch(account.allocated) for account in self._accounts]
        own = [account.allocated for account in self._accounts if len(account.lineage) == 1]
        self._root = _Branch([sum(column) for column in zip(*own, strict=True)])
        self._root.most = total
        for account, branch in zip(self._accounts, self._branches, strict=True):
            above = account.lineage[1:]
            branch.above = self._branches[above[0].queue.index] if above else self._root
            branch.most = None if most is None else most[account.queue.index]
        for account, branch in zip(self._accounts, self._branches, strict=True):
            before = [branch.total(column) for column in range(len(total))]
            branch.least = guaranteed[account.queue.index]
            self._pass_on(branch, before)

    def charge(self, queue: Queue, amounts: Amounts, times: int) -> None:
        """Follow a change of what a queue's account holds: ``times`` (negative for less) the amounts."""
        self._root.held = plus(self._root.held, amounts, times)
        branch = self._branches[queue.index]
        before = [branch.total(column) for column in range(len(amounts))]
        branch.claimed = plus(branch.claimed, amounts, times)
        self._pass_on(branch, before)

    def exceeded(self, queue: Queue, amounts: Amounts, skip: int) -> list[int]:
        """Return the columns, except ``skip``, in which a queue with these amounts would take others' guarantees."""
        return [
            column
            for column, amount in enumerate(amounts)
            if amount and column != skip and self._exceeds(self._branches[queue.index], column, amount)
        ]

    def unused(self) -> Iterator[tuple[Queue, list[int]]]:
        """Yield queues with the unused part of their guarantee; queues that use all of it are omitted."""
        for account, branch in zip(self._accounts, self._branches, strict=True):
            left = [max(least - claimed, 0) for least, claimed in zip(branch.least, branch.claimed, strict=True)]
            if any(left):
                yield account.queue, left

    def holders(self, columns: Sequence[int]) -> list[Queue]:
        """Return the queues with an unused guarantee in any of the columns."""
        return [queue for queue, left in self.unused() if any(left[column] for column in columns)]

    @staticmethod
    def _exceeds(branch: _Branch, column: int, more: int) -> bool:
        while branch.above is not None:
            before, above = branch.total(column), branch.above
            more = branch.total(column, more) - before
            if not more:
                return False  # covered by its own guarantee, or by that of a queue above it
            others = (above.claimed[column] - before) - (above.held[column] - branch.held[column])
            if others > 0 and above.most is not None and above.claimed[column] + more > above.most[column]:
                return True
            branch = above
        return False

    @staticmethod
    def _pass_on(branch: _Branch, before: Amounts) -> None:
        """Update ``claimed`` of all queues above a branch whose totals were ``before``."""
        above = branch.above
        while above is not None:
            columns = range(len(before))
            gained = [branch.total(column) - before[column] for column in columns]
            before = [above.total(column) for column in columns]
            above.claimed = [have + more for have, more in zip(above.claimed, gained, strict=True)]
            branch, above = above, above.above

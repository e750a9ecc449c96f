"""capacity's victims in reclaim: tasks that a queue below its deserved share may have evicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vcd.model.objects import ROOT_QUEUE
from vcd.scheduling.framework.queueaccounts import Resources
from vcd.scheduling.framework.victims import Allowance
from vcd.scheduling.plugins.capacity.capacity_accounts import Account
from vcd.scheduling.session.nodes import Nodes
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.views import Task


class _Relation(NamedTuple):
    """How a victim's queue is related to the reclaiming queue in the tree."""

    checked: tuple[Account, ...]
    """The victim's ancestors that must also have more than they deserve."""
    guaranteed: tuple[Account, ...]
    """The victim's ancestors with a guarantee that are not ancestors of the reclaiming queue."""
    above: tuple[Account, ...]
    """The union of both, without duplicates."""
    related: bool
    """Whether they share an ancestor below the root that is within ``ancestorReclaimLevel`` or has a guarantee.

    Neither queue then has a prior claim to what the ancestor is entitled to.
    """


class Reclaim:
    """Builds the allowances of capacity's victims."""

    def __init__(self, accounts: list[Account], resources: Resources, nodes: Nodes, level: int) -> None:
        self.accounts = accounts
        self._resources = resources
        self._nodes = nodes
        self._level = level
        self._relations: dict[tuple[int, int], _Relation] = {}

    def allowance(self, queue: Queue, wanted: Sequence[int], floor: Sequence[int] | None) -> Allowance:
        """Return an allowance for victims when ``queue`` requests ``wanted``.

        ``floor`` is the smallest capacity on a node with which the reclaiming task fits. None for a whole job, whose
        victims are evicted in bundles: the action itself then drops victims that do not help.
        """
        return _Reclaimable(self, self.accounts[queue.index], wanted, floor)

    def lacking_on(self, node: int, wanted: Sequence[int], floor: Sequence[int]) -> tuple[int, ...]:
        """Return the resources that are short on a node; if none is, the quota is short, so all requested ones."""
        if node >= 0:
            free = self._nodes.usage.future_idle_of(node).tolist()
            short = tuple([column for column, least in enumerate(floor) if least > free[column]])
            if short:
                return short
        return tuple([column for column in self._resources.compared if wanted[column]])

    def relation(self, preemptor: Account, account: Account) -> _Relation:
        """Return how an account is related to the reclaiming account."""
        return self._relations.get((preemptor.queue.index, account.queue.index)) or self._relate(preemptor, account)

    def _relate(self, preemptor: Account, account: Account) -> _Relation:
        others = account.lineage[1 : 1 + self._level]
        own = preemptor.lineage[1 : 1 + self._level]
        checked = tuple(
            above
            for depth, above in enumerate(others)
            if above.name != ROOT_QUEUE and not (depth < len(own) and own[depth] is above)
        )
        guaranteed = tuple(
            above
            for above in account.lineage[1:]
            if above.guaranteed and above.name != ROOT_QUEUE and above not in preemptor.lineage
        )
        above = tuple(above for above in account.lineage[1:] if above in checked or above in guaranteed)
        related = any(
            above.name != ROOT_QUEUE and (above in own or (above.guaranteed and above in preemptor.lineage))
            for depth, above in enumerate(account.lineage[1:])
            if depth < self._level or above.guaranteed
        )
        relation = _Relation(checked, guaranteed, above, related)
        self._relations[preemptor.queue.index, account.queue.index] = relation
        return relation


class _Reclaimable(Allowance):
    """Permits victims while their queues and their ancestors hold more than they are entitled to."""

    def __init__(
        self, reclaim: Reclaim, preemptor: Account, wanted: Sequence[int], floor: Sequence[int] | None
    ) -> None:
        self._reclaim = reclaim
        self._preemptor = preemptor
        self._wanted = wanted
        self._floor = floor
        self._blocked = _blocked(preemptor, wanted)
        self._wants_deserved = _deserves_some(preemptor, wanted)
        self._lacking: dict[int, tuple[int, ...]] = {}
        self._left: dict[int, list[int]] = {}

    def _left_of(self, account: Account) -> list[int]:
        return self._left.get(account.queue.index, account.allocated)

    def permits(self, task: Task) -> bool:
        amounts = task.amounts
        if self._floor is not None and not self._helps(task.node, amounts, self._floor):
            return False
        account = self._reclaim.accounts[task.job.queue.index]
        if self._blocked is not None and self._blocked not in account.lineage:
            return False
        relation = self._reclaim.relation(self._preemptor, account)
        allocated = self._left_of(account)
        if not _retains_guarantee(account, allocated, amounts):
            return False
        if not _deserves_some(account, amounts):
            if relation.related and not self._wants_deserved:
                return False
        elif not _exceeds(account, allocated, amounts):
            return False
        return not relation.above or self._ancestors_agree(relation, amounts)

    def _helps(self, node: int, amounts: tuple[int, ...], floor: Sequence[int]) -> bool:
        """Return whether a task on a node holds some of what the node lacks."""
        columns = self._lacking.get(node)
        if columns is None:
            columns = self._lacking[node] = self._reclaim.lacking_on(node, self._wanted, floor)
        return _holds_some(amounts, columns)

    def _ancestors_agree(self, relation: _Relation, amounts: tuple[int, ...]) -> bool:
        """Return whether the victim's ancestors have more than they deserve, and retain their guarantees."""
        for above in relation.checked:
            if _deserves_some(above, amounts) and not _exceeds(above, self._left_of(above), amounts):
                return False
        for above in relation.guaranteed:
            allocated = self._left_of(above)
            for column, least in above.guaranteed:
                if amounts[column] and allocated[column] - amounts[column] < least:
                    return False
        return True

    def spend(self, task: Task) -> None:
        for account in self._reclaim.accounts[task.job.queue.index].lineage:
            left = self._left.get(account.queue.index)
            if left is None:
                left = self._left[account.queue.index] = account.allocated[:]
            _take(left, task.amounts)


def _blocked(preemptor: Account, wanted: Sequence[int]) -> Account | None:
    """Return the nearest ancestor whose limit would be exceeded: only evictions below it help."""
    for account in preemptor.lineage[1:]:
        allocated, limits = account.allocated, account.limits
        for column, amount in enumerate(wanted):
            if amount and allocated[column] + amount > limits[column]:
                return account
    return None


def _holds_some(amounts: tuple[int, ...], columns: tuple[int, ...]) -> bool:
    for column in columns:  # noqa: SIM110 - called for every task of a node
        if amounts[column]:
            return True
    return False


def _deserves_some(account: Account, amounts: Sequence[int]) -> bool:
    """Return whether a queue deserves any resource that a task holds; otherwise the task is borrowed entirely."""
    for column, _ in account.entitled:  # noqa: SIM110 - called for every task of a node
        if amounts[column]:
            return True
    return False


def _exceeds(account: Account, allocated: list[int], amounts: tuple[int, ...]) -> bool:
    """Return whether a queue has more than it deserves of a resource that a task holds."""
    for column, deserved in account.claims:  # noqa: SIM110 - called for every task of a node
        if amounts[column] and allocated[column] > deserved:
            return True
    return False


def _retains_guarantee(account: Account, allocated: list[int], amounts: tuple[int, ...]) -> bool:
    """Return whether a queue retains its guarantee without a task."""
    for column, least in account.guaranteed:  # noqa: SIM110 - called for every task of a node
        if allocated[column] - amounts[column] < least:
            return False
    return True


def _take(allocated: list[int], amounts: tuple[int, ...]) -> None:
    for column, amount in enumerate(amounts):
        if amount:
            allocated[column] -= amount

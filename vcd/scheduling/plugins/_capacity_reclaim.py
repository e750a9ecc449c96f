"""capacity's part in reclaim: whose tasks may go for a queue that is below what it deserves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vcd.scheduling.nodes import Nodes
from vcd.scheduling.plugins._capacity_accounts import Account, Resources
from vcd.scheduling.plugins._capacity_tree import ROOT
from vcd.scheduling.views import Queue, Task


class _Relation(NamedTuple):
    """What the tree says of a victim's queue seen from the asker's."""

    checked: tuple[Account, ...]
    """The victim's ancestors that must have more than they deserve, too."""
    kept: tuple[Account, ...]
    """The victim's ancestors with a guarantee that the asker is no part of."""
    above: tuple[Account, ...]
    """All of these, each once."""
    related: bool
    """Whether both have an ancestor below the root in reach of ``ancestorReclaimLevel``, or one that is guaranteed
    something: of that neither has more right to it than the other."""


class Reclaim:
    """Names victims; what one call gives away counts against the queues in the same call."""

    def __init__(self, accounts: list[Account], resources: Resources, nodes: Nodes, level: int) -> None:
        self._accounts = accounts
        self._resources = resources
        self._nodes = nodes
        self._level = level
        self._relations: dict[tuple[int, int], _Relation] = {}

    def victims(
        self, queue: Queue, wanted: Sequence[int], floor: Sequence[int] | None, tasks: list[Task]
    ) -> list[Task]:
        """Those of ``tasks`` that may go for work of ``queue`` that asks for amounts, in the order given.

        ``floor`` is the least room on a node that takes the task that asks; None where a whole job does.
        """
        accounts = self._accounts
        asker = accounts[queue.index]
        blocked = _blocked(asker, wanted)
        wants_deserved = _deserves_some(asker, wanted)
        lacking: dict[int, tuple[int, ...]] = {}
        left: dict[int, list[int]] = {}
        result = []
        for task in tasks:
            amounts, node, index = task.amounts, task.node, task.job.queue.index
            columns = lacking.get(node)
            if columns is None:
                columns = lacking[node] = self._lacking_on(node, wanted, floor)
            if not _holds_some(amounts, columns):
                continue
            account = accounts[index]
            if blocked is not None and blocked not in account.chain:
                continue
            relation = self._relations.get((asker.queue.index, index)) or self._relate(asker, account)
            allocated = left.get(index)
            if allocated is None:
                allocated = left[index] = account.allocated[:]
            if not _keeps_guarantee(account, allocated, amounts):
                continue
            if not _deserves_some(account, amounts):
                if relation.related and not wants_deserved:
                    continue
            elif not _exceeds(account, allocated, amounts):
                continue
            if relation.above and not self._ancestors_agree(relation, left, amounts):
                continue
            _take(allocated, amounts)
            for above in relation.above:
                _take(left[above.queue.index], amounts)
            result.append(task)
        return result

    def _ancestors_agree(self, relation: _Relation, left: dict[int, list[int]], amounts: tuple[int, ...]) -> bool:
        """Whether the victim's ancestors have more than they deserve, and keep what they are guaranteed."""
        for above in relation.above:
            if above.queue.index not in left:
                left[above.queue.index] = above.allocated[:]
        for above in relation.checked:
            if _deserves_some(above, amounts) and not _exceeds(above, left[above.queue.index], amounts):
                return False
        for above in relation.kept:
            allocated = left[above.queue.index]
            for column, least in above.guaranteed:
                if amounts[column] and allocated[column] - amounts[column] < least:
                    return False
        return True

    def _lacking_on(self, node: int, wanted: Sequence[int], floor: Sequence[int] | None) -> tuple[int, ...]:
        """The resources of which a node will have too little; all that are asked for where it has enough, since then
        it is quota that must be freed."""
        if floor is not None and node >= 0:
            room = self._nodes.usage.room_of(node).tolist()
            short = tuple([column for column, least in enumerate(floor) if least > room[column]])
            if short:
                return short
        return tuple([column for column in self._resources.compared if wanted[column]])

    def _relate(self, asker: Account, account: Account) -> _Relation:
        theirs = account.chain[1 : 1 + self._level]
        ours = asker.chain[1 : 1 + self._level]
        checked = tuple(
            above
            for depth, above in enumerate(theirs)
            if above.name != ROOT and not (depth < len(ours) and ours[depth] is above)
        )
        kept = tuple(
            above for above in account.chain[1:] if above.guaranteed and above.name != ROOT and above not in asker.chain
        )
        above = tuple(above for above in account.chain[1:] if above in checked or above in kept)
        related = any(
            above.name != ROOT and (above in ours or (above.guaranteed and above in asker.chain))
            for depth, above in enumerate(account.chain[1:])
            if depth < self._level or above.guaranteed
        )
        relation = _Relation(checked, kept, above, related)
        self._relations[asker.queue.index, account.queue.index] = relation
        return relation


def _blocked(asker: Account, wanted: Sequence[int]) -> Account | None:
    """The nearest ancestor whose capability would be exceeded: only room freed below it would help."""
    for account in asker.chain[1:]:
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
    """Whether a queue deserves any of what a task holds; what it does not deserve is borrowed."""
    for column, _ in account.entitled:  # noqa: SIM110 - called for every task of a node
        if amounts[column]:
            return True
    return False


def _exceeds(account: Account, allocated: list[int], amounts: tuple[int, ...]) -> bool:
    """Whether a queue has more than it deserves of something that a task holds."""
    for column, deserved in account.claims:  # noqa: SIM110 - called for every task of a node
        if amounts[column] and allocated[column] > deserved:
            return True
    return False


def _keeps_guarantee(account: Account, allocated: list[int], amounts: tuple[int, ...]) -> bool:
    """Whether a queue has all that it is guaranteed without a task."""
    for column, least in account.guaranteed:  # noqa: SIM110 - called for every task of a node
        if allocated[column] - amounts[column] < least:
            return False
    return True


def _take(allocated: list[int], amounts: tuple[int, ...]) -> None:
    for column, amount in enumerate(amounts):
        if amount:
            allocated[column] -= amount

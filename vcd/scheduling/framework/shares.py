"""What queue plugins have in common: the switch for Volcano's formulas, and guarantees kept against all borrowers.

Volcano takes the other queues' guarantees from what each queue may have, one by one, so that two borrowers together can
take what a third is guaranteed. ``Guarantees`` keeps the sum free. A guarantee is a hold (docs/laws.md, law 8): it
counts only while its queue could use it, so plugins count ``reserved_guarantee`` (docs/differences.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from vcd.model.reasons import Amount, Cause, ReasonCode
from vcd.model.selectors import Taint
from vcd.model.status import TaskStatus
from vcd.scheduling.framework.accounts import KeepsAccounts
from vcd.scheduling.framework.arguments import Argument
from vcd.scheduling.search.parts import Mask
from vcd.scheduling.search.predicates.node import HARD_EFFECTS
from vcd.scheduling.session.queues import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job
from vcd.state.facts import NodeFacts
from vcd.state.sums import Ints, bounded, sum_of

VOLCANO_SHARES = Argument(
    "volcanoSharesEnable",
    "bool",
    False,
    "Whether shares are counted as in Volcano: pods that no node can take count as request, nothing is lent beyond "
    "what a queue deserves, a queue that takes no work keeps its guarantee, and each queue may take what the "
    "guarantees of the others leave of the cluster, so that several queues together can take a guarantee.",
)

HAS_DESERVED = ReasonCode(
    "queue-has-deserved", Cause.QUEUE_DESERVED, "queue has what it deserves", field="spec.deserved.{resource}"
)
"""Why a queue may not reclaim."""

Amounts = Sequence[int]
_TRIED = (TaskStatus.ALLOCATED, TaskStatus.PIPELINED)


def reserved_guarantee(guarantee: Amounts, held: Amounts, takes_work: bool) -> list[int]:
    """Return what other queues have to leave of a queue's guarantee, by column.

    If the queue takes no work (it is not Open, or it is misconfigured), that is what it holds of the guarantee: none
    of its pods can be placed, so the rest would stay idle.
    """
    return list(guarantee) if takes_work else [min(pair) for pair in zip(guarantee, held, strict=True)]


def attainable(session: Session, held: Ints) -> list[int]:
    """Return what queues can have together, by column of ``held``: that, and what is idle or being freed.

    Nodes that are cordoned or have a lifecycle taint (``node.kubernetes.io/...``) have nothing to give, and what pods
    of other schedulers take is in neither part. So guarantees are reserved on nodes on which pods can be placed.
    """
    facts = session.nodes.facts
    future_idle = np.maximum(session.nodes.usage.future_idle[: len(held)], 0)
    is_usable = facts.cached("takes new pods", lambda: _takes_new_pods(facts))
    total: list[int] = bounded(held + sum_of(future_idle[:, is_usable], axis=1)).tolist()
    return total


def _takes_new_pods(facts: NodeFacts) -> Mask:
    codes, taint_sets = facts.taint_sets()
    has_failed = [any(map(_is_of_lifecycle, taints)) for taints in taint_sets]
    is_cordoned = np.array([node.spec.unschedulable for node in facts.nodes], np.bool_)
    result: Mask = ~is_cordoned & ~np.array(has_failed, np.bool_)[codes]
    return result


def _is_of_lifecycle(taint: Taint) -> bool:
    return taint.key.startswith("node.kubernetes.io/") and taint.effect in HARD_EFFECTS


class KeepsShares(KeepsAccounts):
    """Base of the plugins that say what queues deserve, and so what reclaim gives back to a queue."""

    def stays_within_share(self, job: Job) -> bool:
        """Return whether the queue could reclaim for a group that is not admitted yet: with its minimum resources, and
        what groups admitted at its priority or above may still take, the queue stays within its share."""
        raise NotImplementedError

    def surplus(self, queue: Queue) -> Ints:
        """Return what each queue holds above its share, as (queues, resources), if ``queue`` takes all of its own; an
        upper bound of what reclaim takes from each for ``queue``."""
        raise NotImplementedError


class Attempts:
    """What a job holds in statements that are not committed: a reason that is noted while one is tried tells it apart
    from what the queue has allocated, since it may be rolled back."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._found: tuple[tuple[int, int], list[int]] = ((-1, -1), [])

    def of(self, job: Job) -> list[int]:
        """Return the amounts by column."""
        key = (job.index, self._session.trial.changes)
        if self._found[0] != key:
            tried = [task.amounts for task in job.tasks() if task.status in _TRIED]
            none = [0] * len(self._session.nodes.resources)
            self._found = key, [sum(column) for column in zip(none, *tried, strict=True)]
        return self._found[1]

    def told(self, job: Job, columns: Iterable[int], allocated: Sequence[int]) -> list[Amount]:
        """Return the amounts of a reason: what a queue has allocated without a job's attempt, and the attempt."""
        attempted = self.of(job)
        rest = [have - tried for have, tried in zip(allocated, attempted, strict=True)]
        return self._session.told(columns, allocated=rest, attempted=attempted)


class _Branch:
    """A queue and those below it. ``held`` is what it and they hold; ``kept`` the same, where what one below it is
    guaranteed counts as held. ``most`` is what the queues below may keep together, None: no limit."""

    __slots__ = ("above", "held", "kept", "least", "most", "name")

    def __init__(self, name: str, width: int) -> None:
        self.name = name
        self.above: _Branch | None = None
        self.held = [0] * width
        self.kept = [0] * width
        self.least: Amounts = [0] * width
        self.most: Amounts | None = None

    def total(self, column: int, more: int = 0) -> int:
        """Return what it holds or is guaranteed, with ``more`` held."""
        return max(self.kept[column] + more, self.least[column])


class Guarantees:
    """What queues hold and are guaranteed, flat or as a tree; nothing is placed for one that others are guaranteed.

    Quantities are integers by column of the session's resources. ``parents`` names the parent of each queue that has
    one; ``most`` is what a queue's children may have together; ``total`` is what all queues can have (``attainable``).
    """

    def __init__(
        self,
        guaranteed: Mapping[str, Amounts],
        total: Amounts,
        parents: Mapping[str, str] | None = None,
        most: Mapping[str, Amounts] | None = None,
    ) -> None:
        width, parents, most = len(total), parents or {}, most or {}
        root = _Branch("", width)
        root.most = total
        self._branches = {name: _Branch(name, width) for name in guaranteed}
        for name, branch in self._branches.items():
            branch.above = self._branches.get(parents.get(name, ""), root)
            branch.most = most.get(name)
        self.is_idle = not any(any(amounts) for amounts in guaranteed.values())
        """Whether nothing is guaranteed to any queue."""
        for name, amounts in {} if self.is_idle else guaranteed.items():
            branch = self._branches[name]
            before = [branch.total(column) for column in range(width)]
            branch.least = amounts
            self._pass_on(branch, before)

    def charge(self, queue: str, amounts: Amounts, times: int = 1) -> None:
        """Count what a queue holds more, or less."""
        if self.is_idle:
            return
        branch = self._branches[queue]
        above: _Branch | None = branch
        while above is not None:
            above.held = [have + times * amount for have, amount in zip(above.held, amounts, strict=True)]
            above = above.above
        before = [branch.total(column) for column in range(len(amounts))]
        branch.kept = [have + times * amount for have, amount in zip(branch.kept, amounts, strict=True)]
        self._pass_on(branch, before)

    def exceeded(self, queue: str, amounts: Amounts, skip: int) -> list[int]:
        """Return the columns, but for ``skip``, in which a queue with so much more would take what others are
        guaranteed."""
        if self.is_idle:
            return []
        return [
            column
            for column, amount in enumerate(amounts)
            if amount and column != skip and self._over(queue, column, amount)
        ]

    def unused(self) -> Iterator[tuple[str, list[int]]]:
        """Yield what queues are guaranteed and do not hold, by name; nothing for those that hold all of it."""
        for name, branch in self._branches.items():
            left = [max(least - kept, 0) for least, kept in zip(branch.least, branch.kept, strict=True)]
            if any(left):
                yield name, left

    def holders(self, columns: Sequence[int]) -> list[str]:
        """Return the queues that are guaranteed what they do not hold of some columns."""
        return [name for name, left in self.unused() if any(left[column] for column in columns)]

    def _over(self, queue: str, column: int, amount: int) -> bool:
        branch, more = self._branches[queue], amount
        while branch.above is not None:
            before, above = branch.total(column), branch.above
            more = branch.total(column, more) - before
            if not more:
                return False  # it has that by its own guarantee, or by one of a queue above it
            others = (above.kept[column] - before) - (above.held[column] - branch.held[column])
            if others > 0 and above.most is not None and above.kept[column] + more > above.most[column]:
                return True
            branch = above
        return False

    @staticmethod
    def _pass_on(branch: _Branch, before: list[int]) -> None:
        """Count for all queues above one what it keeps more than ``before``."""
        above = branch.above
        while above is not None:
            columns = range(len(before))
            gained = [branch.total(column) - before[column] for column in columns]
            before = [above.total(column) for column in columns]
            above.kept = [have + more for have, more in zip(above.kept, gained, strict=True)]
            branch, above = above, above.above

"""Common parts of queue plugins: the switch for Volcano's formulas, and guarantees that no borrower can take.

Volcano subtracts the other queues' guarantees from each queue's limit separately, so two borrowers together can take
what a third queue is guaranteed. ``Guarantees`` protects the sum. A guarantee is a hold (docs/laws.md, law 8) and
counts only while its queue could use it, so plugins use ``reserved_guarantee`` (docs/differences.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from vcd.model.quantity import format_resource
from vcd.model.reasons import Amount, Cause, ReasonCode
from vcd.model.requests import CPU, MEMORY
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
    "Whether shares are calculated as in Volcano: pods that no node can take count as demand, nothing is lent beyond "
    "what a queue deserves, a queue that takes no work retains its guarantee, and each queue may take what the other "
    "queues' guarantees leave of the cluster, so several queues together can take a guarantee.",
)

HAS_DESERVED = ReasonCode(
    "queue-has-deserved", Cause.QUEUE_DESERVED, "queue has what it deserves", field="spec.deserved.{resource}"
)
"""Why a queue may not reclaim."""

Amounts = Sequence[int]
_TRIED = (TaskStatus.ALLOCATED, TaskStatus.PIPELINED)


def reserved_guarantee(guarantee: Amounts, most: Sequence[float], held: Amounts, takes_work: bool) -> list[int]:
    """Return what other queues must leave of a queue's guarantee, by column: at most its capability, ``most``, since it
    cannot use more.

    If the queue takes no work (it is not Open, or misconfigured), this is what it holds of the guarantee: none of its
    pods can be placed, so the rest would stay idle.
    """
    limits = most if takes_work else [min(pair) for pair in zip(most, held, strict=True)]
    return [int(min(pair)) for pair in zip(guarantee, limits, strict=True)]


def above_capability(
    stated: Mapping[str, Amounts], capability: Sequence[float], resources: Sequence[str]
) -> Iterator[str]:
    """Yield what a queue's fields, given with their amounts by column, state beyond its own capability."""
    for field, amounts in stated.items():
        for name, amount, most in zip(resources, amounts, capability, strict=True):
            if amount > most:
                yield (
                    f"spec.{field} {name} {format_resource(name, amount)} is more than the "
                    f"{format_resource(name, int(most))} of spec.capability, which holds: raise that or lower this"
                )


def without_limit(capability: Mapping[str, int]) -> Iterator[str]:
    """Yield what a queue's capability states without effect: zero cpu or memory limits nothing, as in Volcano."""
    for name in (CPU, MEMORY):
        if capability.get(name, 1) == 0:
            yield f"spec.capability {name} 0 limits nothing: close the queue, or state an amount above 0"


def attainable(session: Session, held: Ints) -> list[int]:
    """Return what all queues together can have, by column of ``held``: that, plus the future idle resources of usable
    nodes.

    Nodes that are cordoned or have a lifecycle taint (``node.kubernetes.io/...``) are not usable. Resources of other
    schedulers' pods are in neither part. So guarantees are reserved only where pods can be placed.
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
    """Base class of plugins that define deserved shares of queues, and so what reclaim returns to a queue."""

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


class _Branch:
    """A queue and its descendants.

    ``held`` is what they hold. ``kept`` is the same, with unused guarantees of descendants counted as held. ``most``
    limits ``kept`` (None: no limit).
    """

    __slots__ = ("above", "held", "kept", "least", "most", "name")

    def __init__(self, name: str, width: int) -> None:
        self.name = name
        self.above: _Branch | None = None
        self.held = [0] * width
        self.kept = [0] * width
        self.least: Amounts = [0] * width
        self.most: Amounts | None = None

    def total(self, column: int, more: int = 0) -> int:
        """Return what the queue holds or is guaranteed, if it held ``more``."""
        return max(self.kept[column] + more, self.least[column])


class Guarantees:
    """What queues hold and are guaranteed, flat or as a tree; no queue can take what others are guaranteed.

    Quantities are integers by column of the session's resources. ``parents`` has the parent of each queue that has one,
    ``most`` the limit for a queue's children together, and ``total`` what all queues can have (``attainable``).
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
        """Whether no queue has a guarantee."""
        for name, amounts in {} if self.is_idle else guaranteed.items():
            branch = self._branches[name]
            before = [branch.total(column) for column in range(width)]
            branch.least = amounts
            self._pass_on(branch, before)

    def charge(self, queue: str, amounts: Amounts, times: int = 1) -> None:
        """Add ``times`` (negative to subtract) the amounts to what a queue holds."""
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
        """Return the columns, except ``skip``, in which a queue with these additional amounts would take other queues'
        guarantees."""
        if self.is_idle:
            return []
        return [
            column
            for column, amount in enumerate(amounts)
            if amount and column != skip and self._exceeds(queue, column, amount)
        ]

    def unused(self) -> Iterator[tuple[str, list[int]]]:
        """Yield queues with the part of their guarantee that they do not hold; queues that hold all of it are
        omitted."""
        for name, branch in self._branches.items():
            left = [max(least - kept, 0) for least, kept in zip(branch.least, branch.kept, strict=True)]
            if any(left):
                yield name, left

    def holders(self, columns: Sequence[int]) -> list[str]:
        """Return the queues with an unused guarantee in any of the columns."""
        return [name for name, left in self.unused() if any(left[column] for column in columns)]

    def _exceeds(self, queue: str, column: int, amount: int) -> bool:
        branch, more = self._branches[queue], amount
        while branch.above is not None:
            before, above = branch.total(column), branch.above
            more = branch.total(column, more) - before
            if not more:
                return False  # covered by its own guarantee, or by that of a queue above it
            others = (above.kept[column] - before) - (above.held[column] - branch.held[column])
            if others > 0 and above.most is not None and above.kept[column] + more > above.most[column]:
                return True
            branch = above
        return False

    @staticmethod
    def _pass_on(branch: _Branch, before: list[int]) -> None:
        """Update ``kept`` of all queues above a branch whose totals were ``before``."""
        above = branch.above
        while above is not None:
            columns = range(len(before))
            gained = [branch.total(column) - before[column] for column in columns]
            before = [above.total(column) for column in columns]
            above.kept = [have + more for have, more in zip(above.kept, gained, strict=True)]
            branch, above = above, above.above

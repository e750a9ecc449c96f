"""Scores of nodes by usage. The hottest code of a session: a few numpy calls over all rows.

Source: kube-scheduler 1.36 ``noderesources`` (``least_allocated``, ``most_allocated``, ``balanced_allocation``). Its
integer divisions are float64 divisions rounded down here: equal as long as 100 x allocatable is below 2**53.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import msgspec
import numpy as np
import numpy.typing as npt

from vcd.model.quantity import QuantityError
from vcd.model.resource_requests import CPU, MEMORY, resource_values, score_requests
from vcd.scheduling.search.parts import Reads, Score, Scores
from vcd.scheduling.session.nodes import Usage, UsedParts
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.node_facts import NodeFacts
from vcd.state.records import Shape

GPU = "nvidia.com/gpu"
_OVERSUBSCRIPTION = ("volcano.sh/oversubscription-cpu", "volcano.sh/oversubscription-memory")

Floats = npt.NDArray[np.float64]

# numpy takes a third less time with scalars of its own types, and with ``out`` passed by position
_ZERO, _HALF, _TWO, _FIFTY, _SEVENTY_FIVE, _HUNDRED = map(np.float64, (0, 0.5, 2, 50, 75, 100))


class _Capacity(NamedTuple):
    """Cpu and memory that the nodes list, as float64 of shape (2, nodes).

    ``complete``: all nodes list both. ``allocatable``: the amounts equal the nodes' allocatable.
    """

    amounts: Floats
    complete: bool
    allocatable: bool


def _capacity_of(facts: NodeFacts) -> _Capacity:
    """Return the capacity of nodes for kube-scheduler's scores: without oversubscription."""
    allocatable = np.ascontiguousarray(facts.allocatable[:, :2].T).astype(np.float64)
    amounts = allocatable.copy()
    for row, node in enumerate(facts.nodes):
        if not node.metadata.annotations.keys().isdisjoint(_OVERSUBSCRIPTION):
            try:
                listed = resource_values(node.status.allocatable or node.status.capacity)
            except QuantityError:
                continue  # such a node was excluded when it was decoded
            amounts[:, row] = listed.get(CPU, 0), listed.get(MEMORY, 0)
    return _Capacity(amounts, bool(amounts.all()), np.array_equal(amounts, allocatable))


class _UsageScore(Score):
    """Base of the scores that compare requests with the cpu and memory that a node's status lists."""

    keys = ()
    kinds = ()

    def __init__(self, session: Session, weight: float = 1) -> None:
        super().__init__(weight)
        facts = session.nodes.facts
        capacity: _Capacity = facts.cached("listed cpu and memory", lambda: _capacity_of(facts))
        self._amounts, self._complete, self._allocatable = capacity
        self.reads = Reads.USAGE if self._allocatable else Reads.USAGE | Reads.FACTS

    def capacity(self, usage: Usage) -> Floats:
        """Return cpu and memory of the rows, shape (2, rows)."""
        if usage.rows is None:
            return self._amounts
        return usage.float_room if self._allocatable else self._amounts[:, usage.rows]


class _MeanPercentage(_UsageScore):
    """Base of the scores that are a mean of two percentages, for cpu and memory, rounded down at each step.

    A resource that a node does not list is left out of its mean.
    """

    def __init__(self, session: Session, weight: float = 1) -> None:
        super().__init__(session, weight)
        self._own: dict[Shape, Floats] = {}

    def own(self, task: Task) -> Floats:
        """Return cpu and memory of the rated pod, shape (2, 1).

        Only its containers count: kube-scheduler ignores pod-level requests of the rated pod, but not of pods on a
        node.
        """
        shape, deltas = task.shape, task.deltas
        if shape.spec.resources is None:
            return deltas.scored
        found = self._own.get(shape)
        if found is None:
            amounts = score_requests(msgspec.structs.replace(shape.spec, resources=None))
            found = self._own[shape] = np.array(amounts, np.float64)[:, None]
        return found

    def mean(self, part: Floats, capacity: Floats) -> Scores:
        """Return the mean of ``100 x part / room`` over cpu and memory, shape (rows,); overwrites ``part``."""
        part *= _HUNDRED
        if self._complete:
            part /= capacity
        else:
            np.divide(part, capacity, out=part, where=capacity > 0)
        np.floor(part, part)
        mean: Scores = part[0] + part[1]
        if self._complete:
            mean *= _HALF
        else:
            mean[(capacity > 0).all(axis=0)] *= 0.5
        return np.floor(mean, mean)


class LeastRequested(_MeanPercentage):
    """The emptier the better: the mean of (allocatable - requested) x 100 / allocatable over cpu and memory.

    Requested includes the pod itself and pipelined pods, and 100m and 200Mi for containers without requests.
    """

    name = "leastrequested"

    def raw(self, task: Task, usage: Usage) -> Scores:
        capacity = self.capacity(usage)
        free: Floats = usage.float_scored + self.own(task)
        np.subtract(capacity, free, free)
        return self.mean(np.maximum(free, _ZERO, out=free), capacity)


class MostRequested(_MeanPercentage):
    """The fuller the better: the mean of requested x 100 / allocatable over cpu and memory.

    Requested counts as in LeastRequested, and at most as allocatable.
    """

    name = "mostrequested"

    def raw(self, task: Task, usage: Usage) -> Scores:
        capacity = self.capacity(usage)
        full: Floats = usage.float_scored + self.own(task)
        return self.mean(np.minimum(full, capacity, out=full), capacity)


class BalancedResource(_UsageScore):
    """Nodes whose resources are used more evenly with the pod than without it.

    50 + (50 + s(with) - s(without)) / 2, where s is (1 - standard deviation of the used fractions) x 100, rounded down,
    over cpu, memory and, if the pod requests it, nvidia.com/gpu, as far as the node has them. Pods that request none of
    the three are not rated.
    """

    name = "balancedresource"

    def __init__(self, session: Session, weight: float = 1) -> None:
        super().__init__(session, weight)
        self._gpu: int | None = session.nodes.column_of.get(GPU)
        self._nodes = session.nodes
        self._in_parts = self._allocatable and session.nodes.in_parts

    def applies(self, task: Task) -> bool:
        cpu, memory, *_ = task.amounts
        return bool(cpu or memory or self._wants_gpu(task))

    def raw(self, task: Task, usage: Usage) -> Scores:
        if self._complete and not self._wants_gpu(task):
            before, after = self._evenness_of_two(task, usage)
            return _improvement(after, before)
        capacity, used, columns = self.capacity(usage), self._used(usage), [0, 1]
        if self._wants_gpu(task):
            gpu = cast(int, self._gpu)
            capacity, columns = np.vstack([capacity, usage.allocatable[gpu]]), [0, 1, gpu]
            used = np.vstack([used, usage.used[gpu] + usage.pipelined[gpu]])
        before = _evenness(_deviation(used, capacity))
        return _improvement(_evenness(_deviation(used + task.request[columns, None], capacity)), before)

    def _evenness_of_two(self, task: Task, usage: Usage) -> Scores:
        """Return how evenly cpu and memory are used without and with the task, if all nodes have both: (2, nodes)."""
        if self._in_parts and not self._nodes.awaits_room:
            used = usage.used_parts(task.deltas)
        else:
            used = UsedParts(self._used(usage), task.deltas.used, self.capacity(usage))
        parts = used.parts if used.within else np.minimum(used.parts, 1.0)
        difference: Floats = parts[:, 0] - parts[:, 1]
        np.subtract(_TWO, np.abs(difference, difference), difference)
        difference *= _FIFTY  # (1 - difference / 2) x 100: halves and doubles are exact
        return np.floor(difference, difference)

    def _used(self, usage: Usage) -> Floats:
        return (usage.used[:2] + usage.pipelined[:2]).astype(np.float64)

    def _wants_gpu(self, task: Task) -> bool:
        return self._gpu is not None and bool(task.amounts[self._gpu])


def _evenness(deviation: Floats) -> Scores:
    """Return (1 - deviation) x 100, rounded down; overwrites ``deviation``."""
    np.subtract(1.0, deviation, deviation)
    deviation *= 100.0
    return np.floor(deviation, deviation)


def _improvement(after: Scores, before: Scores) -> Scores:
    """Return 50 + (50 + after - before) / 2, each step rounded down; overwrites ``after``."""
    after -= before
    after *= _HALF
    after += _SEVENTY_FIVE
    return np.floor(after, after)


def _deviation(used: Floats, capacity: Floats) -> Floats:
    """Return the standard deviation of the used fractions (each at most 1), 0 for nodes that have one resource.

    Summed in the order of the resources, as kube-scheduler does.
    """
    there = capacity > 0
    parts = np.divide(used, capacity, out=np.zeros_like(used), where=there)
    np.minimum(parts, 1.0, out=parts)
    count = there.sum(axis=0)
    total, squares = np.zeros(len(count)), np.zeros(len(count))
    for part in parts:
        total += part
    mean = total / np.maximum(count, 1)
    for part, has in zip(parts, there, strict=True):
        squares += np.where(has, (part - mean) * (part - mean), 0.0)
    several = np.where(count > 2, np.sqrt(squares / np.maximum(count, 1)), 0.0)
    highest = np.where(there, parts, -1.0).max(axis=0)
    lowest = np.where(there, parts, 2.0).min(axis=0)
    return np.where(count == 2, (highest - lowest) / 2, several)

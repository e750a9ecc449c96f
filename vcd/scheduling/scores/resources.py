"""Scores of nodes by how much of them is used. The hottest code of a session: a few numpy calls over all rows.

Source: kube-scheduler 1.36 ``noderesources`` (``least_allocated``, ``most_allocated``, ``balanced_allocation``).
Its integer divisions are float64 divisions rounded down here: equal as long as 100 x allocatable is below 2**53.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from vcd.model.objects import Node
from vcd.model.quantity import QuantityError
from vcd.model.requests import CPU, MEMORY, resource_values
from vcd.scheduling.nodes import Ints
from vcd.scheduling.plugin import Depends, Score, Scores

if TYPE_CHECKING:
    from vcd.scheduling.nodes import Usage
    from vcd.scheduling.session import Session, Task
    from vcd.state.facts import NodeFacts

GPU = "nvidia.com/gpu"
_MOST = 100.0
"""The best score (kube-scheduler's MaxNodeScore)."""

Floats = npt.NDArray[np.float64]


class _OfRoom(Score):
    """Base of the scores that compare requests with the cpu and memory that a node's status lists.

    What oversubscription adds to a node is not seen by kube-scheduler's scores.
    """

    depends = Depends.USAGE

    def __init__(self, session: Session, weight: float = 1) -> None:
        super().__init__(weight)
        facts = session.nodes.facts
        self._listed: Ints | None = facts.kept("listed cpu and memory", lambda: _listed(facts))
        self._own: dict[tuple[int, int], Ints] = {}

    def room(self, usage: Usage) -> Ints:
        """Cpu and memory of the rows, shape (2, rows)."""
        if self._listed is None:
            return usage.allocatable[:2]
        return self._listed if usage.rows is None else self._listed[:, usage.rows]

    def own(self, amounts: tuple[int, int]) -> Ints:
        """The task's two amounts as a column."""
        column = self._own.get(amounts)
        if column is None:
            column = self._own[amounts] = np.array(amounts, np.int64)[:, None]
        return column


def _listed(facts: NodeFacts) -> Ints | None:
    """Cpu and memory as the nodes list them, shape (2, nodes); None where that is all that there is of them."""
    amounts = np.array([_cpu_and_memory(node) for node in facts.nodes], np.int64).reshape(-1, 2)
    return None if (amounts == facts.allocatable[:, :2]).all() else np.ascontiguousarray(amounts.T)


def _cpu_and_memory(node: Node) -> tuple[int, int]:
    try:
        values = resource_values(node.status.allocatable or node.status.capacity)
    except QuantityError:
        return 0, 0  # such a node was set aside when it was decoded
    return values.get(CPU, 0), values.get(MEMORY, 0)


class _MeanPercentage(_OfRoom):
    """Base of the scores that are a mean of two percentages, cpu's and memory's, rounded down at each step.

    A resource that a node does not list is left out of its mean.
    """

    def percentage(self, part: Ints, room: Ints) -> Scores:
        """The mean of 100 x part / room over cpu and memory, shape (rows,)."""
        if room.all():
            percent = part / room
        else:
            percent = np.divide(part, room, out=np.zeros(room.shape), where=room > 0)
        np.floor(percent, out=percent)
        mean: Scores = percent[0] + percent[1]
        both = np.minimum(room[0], room[1]) > 0
        if both.all():
            mean *= 0.5
        else:
            mean[both] *= 0.5
        np.floor(mean, out=mean)
        return mean


class LeastRequested(_MeanPercentage):
    """The emptier the better: the mean of (allocatable - requested) x 100 / allocatable over cpu and memory.

    Requested counts the pod itself, those waiting for room, and 100m and 200Mi for containers that ask for none.
    """

    name = "leastrequested"

    def raw(self, task: Task, usage: Usage) -> Scores:
        room = self.room(usage)
        free = room - usage.scored
        free -= self.own(task.shape.scored)
        np.maximum(free, 0, out=free)
        free *= 100
        return self.percentage(free, room)


class MostRequested(_MeanPercentage):
    """The fuller the better: the mean of requested x 100 / allocatable over cpu and memory.

    Requested counts as in LeastRequested, and at most as allocatable.
    """

    name = "mostrequested"

    def raw(self, task: Task, usage: Usage) -> Scores:
        room = self.room(usage)
        full = usage.scored + self.own(task.shape.scored)
        np.minimum(full, room, out=full)
        full *= 100
        return self.percentage(full, room)


class BalancedResource(_OfRoom):
    """Nodes whose resources are used more evenly with the pod than without it.

    50 + (50 + s(with) - s(without)) / 2, s being (1 - standard deviation of the used fractions) x 100 rounded down,
    over cpu, memory and, when the pod asks for it, nvidia.com/gpu, as far as the node has them. Pods that ask for none
    of the three are not rated.
    """

    name = "balancedresource"

    def __init__(self, session: Session, weight: float = 1) -> None:
        super().__init__(session, weight)
        self._gpu: int | None = session.nodes.column_of.get(GPU)

    def applies(self, task: Task) -> bool:
        request = task.request
        return bool(request[0] or request[1] or self._wants_gpu(task))

    def raw(self, task: Task, usage: Usage) -> Scores:
        room = self.room(usage)
        used = usage.used[:2] + usage.pipelined[:2]
        own = task.request[:2, None]
        if self._wants_gpu(task):
            gpu = cast(int, self._gpu)
            room = np.vstack([room, usage.allocatable[gpu]])
            used = np.vstack([used, usage.used[gpu] + usage.pipelined[gpu]])
            own = task.request[[0, 1, gpu], None]
        evenness = _evenness if room.shape[0] > 2 or not room.all() else _evenness_of_two
        # with and without: one array of twice the rows halves the number of calls
        requests = np.concatenate([used + own, used], axis=1)
        scores = evenness(requests, np.concatenate([room, room], axis=1))
        count = room.shape[1]
        change: Scores = scores[:count] - scores[count:]
        change += 50.0
        change *= 0.5
        np.floor(change, out=change)
        change += 50.0
        return change

    def _wants_gpu(self, task: Task) -> bool:
        return self._gpu is not None and bool(task.request[self._gpu])


def _evenness_of_two(requests: Ints, room: Ints) -> Floats:
    """(1 - deviation) x 100 rounded down, of two resources that all nodes have: half of their difference."""
    fractions = requests / room
    np.minimum(fractions, 1.0, out=fractions)
    result: Floats = fractions[0] - fractions[1]
    np.abs(result, out=result)
    result *= 0.5
    return _scored(result)


def _evenness(requests: Ints, room: Ints) -> Floats:
    """(1 - deviation) x 100 rounded down, of any number of resources; those that a node lacks are left out."""
    there = room > 0
    fractions = np.divide(requests, room, out=np.zeros(room.shape), where=there)
    np.minimum(fractions, 1.0, out=fractions)
    count = there.sum(axis=0)
    total = fractions[0]
    for row in fractions[1:]:
        total = total + row
    mean = total / np.maximum(count, 1)
    squares = np.zeros(room.shape[1])
    for row, has in zip(fractions, there, strict=True):
        squares += np.where(has, (row - mean) * (row - mean), 0.0)
    highest = np.where(there, fractions, -1.0).max(axis=0)
    lowest = np.where(there, fractions, 2.0).min(axis=0)
    deviation = np.where(count > 2, np.sqrt(squares / np.maximum(count, 1)), 0.0)
    return _scored(np.where(count == 2, (highest - lowest) / 2, deviation))


def _scored(deviation: Floats) -> Floats:
    np.subtract(1.0, deviation, out=deviation)
    deviation *= _MOST
    np.floor(deviation, out=deviation)
    return deviation

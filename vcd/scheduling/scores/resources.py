"""Scores of nodes by how much of them is used. The hottest code of a session: a few numpy calls over all rows.

Source: kube-scheduler 1.36 ``noderesources`` (``least_allocated``, ``most_allocated``, ``balanced_allocation``).
Its integer divisions are float64 divisions rounded down here: equal as long as 100 x allocatable is below 2**53.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from vcd.model.quantity import QuantityError
from vcd.model.requests import CPU, MEMORY, resource_values
from vcd.scheduling.plugin import Depends, Score, Scores

if TYPE_CHECKING:
    from vcd.scheduling.nodes import Usage
    from vcd.scheduling.session import Session, Task
    from vcd.state.facts import NodeFacts

GPU = "nvidia.com/gpu"
_OVERSUBSCRIPTION = ("volcano.sh/oversubscription-cpu", "volcano.sh/oversubscription-memory")

Floats = npt.NDArray[np.float64]


class _Room(NamedTuple):
    """Cpu and memory that the nodes list, float64 of shape (2, nodes), and whether all nodes list both."""

    amounts: Floats
    complete: bool


def _room_of(facts: NodeFacts) -> _Room:
    """What kube-scheduler's scores take for a node's room: without what oversubscription adds to it."""
    amounts = np.ascontiguousarray(facts.allocatable[:, :2].T).astype(np.float64)
    for row, node in enumerate(facts.nodes):
        if any(name in node.metadata.annotations for name in _OVERSUBSCRIPTION):
            try:
                listed = resource_values(node.status.allocatable or node.status.capacity)
            except QuantityError:
                continue  # such a node was set aside when it was decoded
            amounts[:, row] = listed.get(CPU, 0), listed.get(MEMORY, 0)
    return _Room(amounts, bool(amounts.all()))


class _OfRoom(Score):
    """Base of the scores that compare requests with the cpu and memory that a node's status lists."""

    depends = Depends.USAGE

    def __init__(self, session: Session, weight: float = 1) -> None:
        super().__init__(weight)
        facts = session.nodes.facts
        room: _Room = facts.kept("listed cpu and memory", lambda: _room_of(facts))
        self._amounts, self._complete = room

    def room(self, usage: Usage) -> Floats:
        """Cpu and memory of the rows, shape (2, rows)."""
        return self._amounts if usage.rows is None else self._amounts[:, usage.rows]


class _MeanPercentage(_OfRoom):
    """Base of the scores that are a mean of two percentages, cpu's and memory's, rounded down at each step.

    A resource that a node does not list is left out of its mean.
    """

    def mean(self, part: Floats, room: Floats) -> Scores:
        """The mean of 100 x part / room over cpu and memory, shape (rows,); overwrites ``part``."""
        part *= 100.0
        if self._complete:
            part /= room
        else:
            np.divide(part, room, out=part, where=room > 0)
        np.floor(part, out=part)
        mean: Scores = part[0] + part[1]
        if self._complete:
            mean *= 0.5
        else:
            mean[(room > 0).all(axis=0)] *= 0.5
        np.floor(mean, out=mean)
        return mean


class LeastRequested(_MeanPercentage):
    """The emptier the better: the mean of (allocatable - requested) x 100 / allocatable over cpu and memory.

    Requested counts the pod itself, those waiting for room, and 100m and 200Mi for containers that ask for none.
    """

    name = "leastrequested"

    def raw(self, task: Task, usage: Usage) -> Scores:
        room = self.room(usage)
        free: Floats = room - usage.scored
        cpu, memory = task.shape.scored
        free[0] -= cpu
        free[1] -= memory
        np.maximum(free, 0.0, out=free)
        return self.mean(free, room)


class MostRequested(_MeanPercentage):
    """The fuller the better: the mean of requested x 100 / allocatable over cpu and memory.

    Requested counts as in LeastRequested, and at most as allocatable.
    """

    name = "mostrequested"

    def raw(self, task: Task, usage: Usage) -> Scores:
        room = self.room(usage)
        full = usage.scored.astype(np.float64)
        cpu, memory = task.shape.scored
        full[0] += cpu
        full[1] += memory
        np.minimum(full, room, out=full)
        return self.mean(full, room)


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
        # with the pod and without it in one array: half the calls
        fractions = np.zeros((2, *room.shape))
        if self._complete and len(room) == 2:
            np.divide(used + own, room, out=fractions[0])
            np.divide(used, room, out=fractions[1])
            deviation = _deviation_of_two(fractions)
        else:
            there = room > 0
            np.divide(used + own, room, out=fractions[0], where=there)
            np.divide(used, room, out=fractions[1], where=there)
            deviation = _deviation(fractions, there)
        return _improvement(deviation)

    def _wants_gpu(self, task: Task) -> bool:
        return self._gpu is not None and bool(task.request[self._gpu])


def _improvement(deviation: Floats) -> Scores:
    """The score from the deviations with the pod and without it, shape (2, rows); overwrites them."""
    np.subtract(1.0, deviation, out=deviation)
    deviation *= 100.0
    np.floor(deviation, out=deviation)
    change: Scores = deviation[0] - deviation[1]
    change += 50.0
    change *= 0.5
    np.floor(change, out=change)
    change += 50.0
    return change


def _deviation_of_two(fractions: Floats) -> Floats:
    """Standard deviation over the middle axis when it has two entries, which count as 1 at most: half of their
    difference."""
    np.minimum(fractions, 1.0, out=fractions)
    result: Floats = fractions[:, 0] - fractions[:, 1]
    np.abs(result, out=result)
    result *= 0.5
    return result


def _deviation(fractions: Floats, there: npt.NDArray[np.bool_]) -> Floats:
    """Standard deviation over the middle axis of the entries that are there, which count as 1 at most.

    Summed in the order of the resources, as kube-scheduler does; 0 where there is only one.
    """
    np.minimum(fractions, 1.0, out=fractions)
    count = there.sum(axis=0)
    total = np.zeros((2, fractions.shape[2]))
    for resource in range(len(there)):
        total += fractions[:, resource]
    mean = total / np.maximum(count, 1)
    squares = np.zeros_like(total)
    for resource, has in enumerate(there):
        apart = fractions[:, resource] - mean
        squares += np.where(has, apart * apart, 0.0)
    highest = np.where(there, fractions, -1.0).max(axis=1)
    lowest = np.where(there, fractions, 2.0).min(axis=1)
    several = np.where(count > 2, np.sqrt(squares / np.maximum(count, 1)), 0.0)
    return np.where(count == 2, (highest - lowest) / 2, several)

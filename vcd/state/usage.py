"""What pods use of nodes, kept up to date by which pods changed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vcd.model.status import TaskStatus
from vcd.state.content import Content
from vcd.state.sums import Ints, sums_by


def usage_of(snapshot: Content) -> Ints:
    """Per node, as (4 x resources + 3, nodes): what is idle, used, releasing and pipelined of each resource, then
    cpu and memory as scores count them, and the number of pods (``vcd.scheduling.session.nodes.Usage``)."""
    count, width = len(snapshot.facts), len(snapshot.resources)
    matrix = np.zeros((4 * width + 3, count), np.int64)
    _fill(matrix, snapshot, np.arange(count))
    return matrix


def usage_after(usage: Ints, before: Content, snapshot: Content, rows: Sequence[int]) -> Ints:
    """The usage of a later snapshot of the same nodes in which no more than some rows of tasks are others."""
    then, now = before.tasks.node, snapshot.tasks.node
    changed = np.array(rows, np.intp)
    touched = np.unique(np.concatenate([then[changed[changed < len(then)]], now[changed]]))
    touched = touched[touched >= 0]
    if not len(touched):
        return usage
    result = usage.copy()
    _fill(result, snapshot, touched)
    return result


def _fill(matrix: Ints, snapshot: Content, nodes: npt.NDArray[np.integer]) -> None:
    """Sum up some nodes."""
    facts, tasks, shapes, width = snapshot.facts, snapshot.tasks, snapshot.shape_columns, len(snapshot.resources)
    place = np.full(len(facts) + 2, -1, np.int64)  # two more for pods without a node, and whose node is gone
    place[nodes] = np.arange(len(nodes))
    there = place[tasks.node]
    rows = np.flatnonzero((there >= 0) & tasks.placed)
    there, shape, count = there[rows], tasks.shape[rows], len(nodes)
    releasing = np.flatnonzero(tasks.status[rows] == TaskStatus.RELEASING)
    for column in range(width):
        amounts = shapes.requests[shape, column]
        used = sums_by(there, amounts, count)
        matrix[width + column, nodes] = used
        matrix[column, nodes] = facts.allocatable[nodes, column] - used
        matrix[2 * width + column, nodes] = sums_by(there[releasing], amounts[releasing], count)
    for column in range(2):
        matrix[4 * width + column, nodes] = sums_by(there, shapes.scored[shape, column], count)
    matrix[4 * width + 2, nodes] = np.bincount(there, minlength=count)

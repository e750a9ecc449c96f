"""What pods use of nodes, updated by changed pods."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vcd.model.status import TaskStatus
from vcd.state.snapshot_content import Content
from vcd.state.sums import Ints, changed, sums_by


def usage_of(snapshot: Content) -> Ints:
    """Return the usage of each node, a matrix of shape (4 x resources + 3, nodes).

    Four rows per resource: idle, future idle, used, releasing. Then cpu and memory as scores count them, and the number
    of pods (``vcd.scheduling.session.nodes.Usage``).
    """
    rows = np.flatnonzero(snapshot.tasks.placed)
    held = sums_by(snapshot.tasks.node[rows], _held(snapshot, rows), len(snapshot.facts)).T
    return np.concatenate([*_idle(snapshot.facts.allocatable.T, held), held])


def usage_after(usage: Ints, before: Content, snapshot: Content, rows: Sequence[int]) -> Ints:
    """Return the usage of a later snapshot of the same nodes, in which only some rows of tasks changed."""
    width, changed_rows = len(snapshot.resources), np.array(rows, np.intp)
    then = changed_rows[changed_rows < len(before.tasks.node)]
    then, now = then[before.tasks.is_placed(then)], changed_rows[snapshot.tasks.is_placed(changed_rows)]
    left, joined = before.tasks.node[then].tolist(), snapshot.tasks.node[now].tolist()
    place = {node: at for at, node in enumerate(dict.fromkeys(left + joined))}
    if not place:
        return usage
    count, touched = len(place), list(place)
    keys = np.array([place[node] for node in left] + [place[node] + count for node in joined], np.intp)
    amounts = np.concatenate([_held(before, then), _held(snapshot, now)])
    less, more = sums_by(keys, amounts, 2 * count).reshape(2, count, -1)
    held = changed(usage[2 * width :, touched].T, less, more)
    if held is None:
        return usage_of(snapshot)
    result = usage.copy()
    result[:, touched] = np.concatenate([*_idle(snapshot.facts.allocatable[touched].T, held.T), held.T])
    return result


def _idle(allocatable: Ints, held: Ints) -> tuple[Ints, Ints]:
    """Return what nodes have idle, now and after terminating pods end."""
    width = len(allocatable)
    idle = allocatable - held[:width]
    return idle, idle + held[width : 2 * width]


def _held(snapshot: Content, rows: npt.NDArray[np.intp]) -> Ints:
    """Return what placed pods add to the usage of their node, in columns: all of it except idle resources."""
    tasks, shapes = snapshot.tasks, snapshot.shape_columns
    shape, width = tasks.shape[rows], len(snapshot.resources)
    amounts = np.zeros((2 * width + 3, len(rows)), np.int64)
    amounts[:width] = shapes.requests[shape].T
    amounts[width : 2 * width] = amounts[:width] * (tasks.status[rows] == TaskStatus.RELEASING)
    amounts[-3:-1] = shapes.scored[shape].T
    amounts[-1] = 1
    return amounts.T

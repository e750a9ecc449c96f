"""Nodes as who looks at them one by one sees them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from vcd.model.objects import Node
from vcd.scheduling.session.nodes import Ints, Usage
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task


class NodeView:
    """One node, for who looks at nodes one by one: names in place of columns.

    Quantities are whole numbers by resource name (cpu and scalars in thousandths, bytes and pods whole).
    All is read when it is asked for, and shows the node as it is at that moment. ``usage`` is where it is read from,
    the session's own unless given, and ``column`` the node's column there.
    """

    __slots__ = ("_column", "_session", "_usage", "row")

    def __init__(self, session: Session, row: int, usage: Usage | None = None, column: int | None = None) -> None:
        self._session = session
        self._usage = session.nodes.usage if usage is None else usage
        self._column = row if column is None else column
        self.row = row

    @property
    def name(self) -> str:
        return self._session.nodes.facts.names[self.row]

    @property
    def node(self) -> Node:
        """The object."""
        return self._session.nodes.facts.nodes[self.row]

    @property
    def labels(self) -> Mapping[str, str]:
        return self.node.metadata.labels

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.node.metadata.annotations

    @property
    def allocatable(self) -> dict[str, int]:
        """What pods may use of it."""
        return self._named(self._usage.allocatable)

    @property
    def used(self) -> dict[str, int]:
        """What placed pods use, and those that are going away."""
        return self._named(self._usage.used)

    @property
    def idle(self) -> dict[str, int]:
        """Allocatable less used; below zero where the node is over."""
        return self._named(self._usage.idle)

    @property
    def releasing(self) -> dict[str, int]:
        """What pods use that are going away."""
        return self._named(self._usage.releasing)

    @property
    def pods(self) -> int:
        """How many pods are on it or wait for its room, without those that this session evicts."""
        return int(self._usage.pods[self._column])

    @property
    def tasks(self) -> list[Task]:
        """The tasks of groups that are on it, in order of key: those that wait for its room, and those that are going
        away, too; not those that ended."""
        session = self._session
        return session.provided(_TasksByNode, lambda: _TasksByNode(session)).on(self.row)

    def _named(self, columns: Ints) -> dict[str, int]:
        return dict(zip(self._session.nodes.resources, columns[:, self._column].tolist(), strict=True))

    def __repr__(self) -> str:
        return f"NodeView({self.name!r})"


class _TasksByNode:
    """Which tasks are on which node, kept up with what changes in trial since it was last asked."""

    def __init__(self, session: Session) -> None:
        tasks = session.snapshot.tasks
        self._session = session
        self._seen = 0
        there = tasks.placed & (session.job_of_row >= 0)
        self._node_of: dict[int, int] = dict(
            zip(np.flatnonzero(there).tolist(), tasks.node[there].tolist(), strict=True)
        )
        self._rows: dict[int, dict[int, None]] = {}
        for row, node in self._node_of.items():
            self._rows.setdefault(node, {})[row] = None

    def on(self, node: int) -> list[Task]:
        """The tasks on a row of the nodes, in order of key."""
        moves = self._session.views.moves
        for task in moves[self._seen :]:
            self._move(task)
        self._seen = len(moves)
        return sorted((self._session.task(row) for row in self._rows.get(node, ())), key=lambda task: task.key)

    def _move(self, task: Task) -> None:
        before = self._node_of.pop(task.row, None)
        if before is not None:
            del self._rows[before][task.row]
        if task.node >= 0:
            self._node_of[task.row] = task.node
            self._rows.setdefault(task.node, {})[task.row] = None


def all_nodes(session: Session) -> Iterator[NodeView]:
    """All nodes, in order of name."""
    return (NodeView(session, row) for row in range(len(session.nodes)))

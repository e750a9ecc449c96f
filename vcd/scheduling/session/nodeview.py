"""Nodes as objects with names in place of columns, for plugins that look at one node at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from vcd.model.objects import Node
from vcd.scheduling.session.nodes import Ints, Usage
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task


class NodeView:
    """One node with quantities by resource name.

    Quantities are integers: cpu and scalars in thousandths, bytes and pods as they are. Properties read the current
    state. ``usage`` is the source, by default the session's, and ``column`` the node's column there.
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
        """The Node object."""
        return self._session.nodes.facts.nodes[self.row]

    @property
    def labels(self) -> Mapping[str, str]:
        return self.node.metadata.labels

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.node.metadata.annotations

    @property
    def allocatable(self) -> dict[str, int]:
        """What pods may use of the node."""
        return self._named(self._usage.allocatable)

    @property
    def used(self) -> dict[str, int]:
        """What placed and terminating pods use."""
        return self._named(self._usage.used)

    @property
    def idle(self) -> dict[str, int]:
        """Allocatable minus used; negative if the node is overcommitted."""
        return self._named(self._usage.idle)

    @property
    def releasing(self) -> dict[str, int]:
        """What terminating pods use."""
        return self._named(self._usage.releasing)

    @property
    def pods(self) -> int:
        """Number of pods that are placed or pipelined on it, without those that this session evicts."""
        return int(self._usage.pods[self._column])

    @property
    def tasks(self) -> list[Task]:
        """The tasks of groups on the node, by key, including pipelined and terminating ones, without ended ones."""
        session = self._session
        return session.provided(_TasksByNode, lambda: _TasksByNode(session)).on(self.row)

    def _named(self, columns: Ints) -> dict[str, int]:
        return dict(zip(self._session.nodes.resources, columns[:, self._column].tolist(), strict=True))

    def __repr__(self) -> str:
        return f"NodeView({self.name!r})"


class _TasksByNode:
    """The tasks on each node; each call applies the session's moves since the last one."""

    def __init__(self, session: Session) -> None:
        tasks = session.snapshot.tasks
        self._session = session
        self._moves_seen = 0
        is_placed = tasks.placed & (session.job_of_row >= 0)
        self._node_of: dict[int, int] = dict(
            zip(np.flatnonzero(is_placed).tolist(), tasks.node[is_placed].tolist(), strict=True)
        )
        self._rows: dict[int, dict[int, None]] = {}
        for row, node in self._node_of.items():
            self._rows.setdefault(node, {})[row] = None

    def on(self, node: int) -> list[Task]:
        """Return the tasks on a node's row, in order of key."""
        moves = self._session.views.moves
        for task in moves[self._moves_seen :]:
            self._move(task)
        self._moves_seen = len(moves)
        return sorted((self._session.task(row) for row in self._rows.get(node, ())), key=lambda task: task.key)

    def _move(self, task: Task) -> None:
        before = self._node_of.pop(task.row, None)
        if before is not None:
            del self._rows[before][task.row]
        if task.node >= 0:
            self._node_of[task.row] = task.node
            self._rows.setdefault(task.node, {})[task.row] = None


def all_nodes(session: Session) -> Iterator[NodeView]:
    """Yield all nodes, in order of name."""
    return (NodeView(session, row) for row in range(len(session.nodes)))

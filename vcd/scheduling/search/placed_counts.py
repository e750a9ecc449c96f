"""Affinity terms and host ports of placed pods, counted by domain, carried from snapshot to snapshot."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, NamedTuple, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

from vcd.model.objects import Pod
from vcd.scheduling.search.domain_counts import Domains, Ints, Sums
from vcd.state.records import Shape
from vcd.state.snapshot import Snapshot

K = TypeVar("K", bound=Hashable)
_Owner = tuple[Shape, str, Hashable]
"""Shape, namespace, and labels if they matter: one pod represents all with the same owner key."""
_Placement = tuple[_Owner, int]
"""An owner, and the row of its node."""


class _Moves(NamedTuple):
    """One pod of an owner, and the nodes that its pods came to (times 1) or left (-1)."""

    pod: Pod
    nodes: list[int]
    times: list[int]


class PlacedCounts(Generic[K]):
    """The number of placed pods by domain (``sums``), for each distinct thing (term, port) that placed pods have.

    Belongs to one snapshot and is never changed; ``after`` derives the next snapshot's. A subclass defines which shapes
    have such things, the things of a pod, and how a thing divides the nodes.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.facts = snapshot.facts
        self.sums: dict[K, Sums] = {}
        self._owners: dict[_Owner, tuple[Sequence[K], int]] = {}
        """The things that an owner's pods have, and how many of these pods are placed."""
        if snapshot.shape_columns.flags(self.has).any():
            self._load(snapshot)

    @staticmethod
    def has(shape: Shape) -> bool:
        """Whether pods of a shape have any. Must be a function of a module, because results are cached by it."""
        raise NotImplementedError

    @staticmethod
    def uses_labels(shape: Shape) -> bool:
        """Whether pods of one shape and namespace can have different things if their labels differ."""
        return False

    def things_of(self, pod: Pod) -> Sequence[K]:
        """Return the things that a pod has."""
        raise NotImplementedError

    def domains(self, thing: K) -> Domains:
        """Return how a thing divides the nodes."""
        raise NotImplementedError

    def after(self, earlier: Snapshot, snapshot: Snapshot, rows: Iterable[int]) -> Self:
        """Return the counts of a later snapshot, in which ``rows`` differ from this one's snapshot, ``earlier``."""
        result = type(self).__new__(type(self))
        result.__dict__.update(self.__dict__)
        result.sums, result._owners = self.sums.copy(), self._owners.copy()
        rows = sorted(set(rows))
        before, now = self._placements(earlier, rows), self._placements(snapshot, rows)
        moves: dict[_Owner, _Moves] = {}
        for of, found, other, times in ((earlier, before, now, -1), (snapshot, now, before, 1)):
            for row, (owner, node) in found.items():
                if other.get(row) != (owner, node):
                    move = moves.setdefault(owner, _Moves(of.tasks.pod(row), [], []))
                    move.nodes.append(node)
                    move.times.append(times)
        changed: dict[K, None] = {}
        for owner, (pod, nodes, signs) in moves.items():
            changed.update(dict.fromkeys(result._count(owner, pod, np.array(nodes), np.array(signs))))
        result.on_appeared([thing for thing in changed if thing in result.sums and thing not in self.sums])
        return result

    def on_appeared(self, things: Iterable[K]) -> None:
        """Handle things that placed pods have now and did not have in the previous snapshot."""

    def _placements(self, snapshot: Snapshot, rows: Iterable[int]) -> dict[int, _Placement]:
        """Return owner and node of the given pods, leaving out pods that are not placed or have no such things."""
        tasks, flags = snapshot.tasks, snapshot.shape_columns.flags(self.has)
        chosen = [row for row in rows if row < len(tasks.status) and tasks.placed[row] and flags[tasks.shape[row]]]
        return {row: (self._owner(snapshot, row), int(tasks.node[row])) for row in chosen}

    def _owner(self, snapshot: Snapshot, row: int) -> _Owner:
        tasks = snapshot.tasks
        pod, shape = tasks.pod(row), cast(Shape, snapshot.shapes[int(tasks.shape[row])])
        labels = tuple(sorted(pod.metadata.labels.items())) if self.uses_labels(shape) else None
        return shape, pod.metadata.namespace, labels

    def _count(self, owner: _Owner, pod: Pod, nodes: npt.NDArray[np.signedinteger], times: Ints) -> Sequence[K]:
        """Count pods of an owner that came to nodes (times 1) or left them (-1). Return what each pod has.

        Stored sums are never changed: earlier snapshots share them, and so do things with the same counts.
        """
        things, count = self._owners.get(owner) or (self.things_of(pod), 0)
        count += int(times.sum())
        if count:
            self._owners[owner] = things, count
        else:
            self._owners.pop(owner, None)
        counted: dict[tuple[Sums | None, Domains], Sums] = {}
        for thing in things:
            domains, before = self.domains(thing), self.sums.get(thing)
            after = counted.get((before, domains))
            if after is None:
                after = counted[before, domains] = Sums(domains.size) if before is None else before.copy()
                after.add_all(domains.codes[nodes], times)
            if after.total:
                self.sums[thing] = after
            else:
                self.sums.pop(thing, None)
        return things

    def _load(self, snapshot: Snapshot) -> None:
        """Count all placed pods, one owner at a time."""
        tasks, flags = snapshot.tasks, snapshot.shape_columns.flags
        rows = np.flatnonzero(tasks.placed & flags(self.has)[tasks.shape])
        shapes, namespaces = tasks.shape[rows], tasks.namespace[rows]
        labels = np.where(flags(self.uses_labels)[shapes], tasks.labels[rows], -1)
        order = np.lexsort((labels, namespaces, shapes))
        owners: Ints = np.stack([shapes, namespaces, labels])[:, order]
        firsts = np.flatnonzero(np.diff(owners, prepend=-2).any(axis=0))
        for part in np.split(rows[order], firsts[1:]) if len(rows) else ():
            row = int(part[0])
            self._count(self._owner(snapshot, row), tasks.pod(row), tasks.node[part], np.ones(len(part), np.int64))

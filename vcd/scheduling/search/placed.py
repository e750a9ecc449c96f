"""What placed pods have of their own (terms, host ports), counted by domain, from snapshot to snapshot."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, Self, TypeVar, cast

import numpy as np

from vcd.model.objects import Pod
from vcd.scheduling.search.domains import Domains, Ints, Sums
from vcd.state.records import Shape
from vcd.state.snapshot import Snapshot

K = TypeVar("K", bound=Hashable)
_Owner = tuple[Shape, str, Hashable]
"""Shape, namespace, and labels where these matter: of pods that are alike in these one is looked at."""
_Placement = tuple[_Owner, int]
"""An owner, and the row of its node."""


class PlacedCounts(Generic[K]):
    """Per distinct thing that placed pods have, the number of pods by domain (``sums``).

    It is of one snapshot and never changed: a later snapshot's is made of it (``after``). A subclass tells which shapes
    have any, what a pod has, and how each thing divides the nodes.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.facts = snapshot.facts
        self.sums: dict[K, Sums] = {}
        self._owners: dict[_Owner, tuple[Sequence[K], int]] = {}
        """What pods have, and how many of them are placed."""
        if snapshot.shape_columns.flags(self.has).any():
            self._load(snapshot)

    @staticmethod
    def has(shape: Shape) -> bool:
        """Whether pods of a shape have any; a module's function, by which results are cached."""
        raise NotImplementedError

    @staticmethod
    def minds_labels(shape: Shape) -> bool:
        """Whether pods of one shape and namespace have different things when their labels differ."""
        return False

    def things_of(self, pod: Pod) -> Sequence[K]:
        """What a pod has."""
        raise NotImplementedError

    def domains(self, thing: K) -> Domains:
        """How a thing divides the nodes."""
        raise NotImplementedError

    def after(self, earlier: Snapshot, snapshot: Snapshot, rows: Iterable[int]) -> Self:
        """The same of a later snapshot, in which some rows differ from the ``earlier`` one that this is of."""
        result = type(self).__new__(type(self))
        result.__dict__.update(self.__dict__)
        result.sums, result._owners = self.sums.copy(), self._owners.copy()
        copied: dict[K, None] = {}
        rows = sorted(set(rows))
        before, now = self._placements(earlier, rows), self._placements(snapshot, rows)
        for of, found, other, times in ((earlier, before, now, -1), (snapshot, now, before, 1)):
            for row, placement in found.items():
                if placement != other.get(row):
                    result._count(of, row, placement, times, copied)
        result.appeared([thing for thing in copied if thing not in self.sums])
        return result

    def appeared(self, things: Iterable[K]) -> None:
        """Called for what placed pods have now and had not in the snapshot that this was made of."""

    def _placements(self, snapshot: Snapshot, rows: Iterable[int]) -> dict[int, _Placement]:
        """Owner and node of the pods among some rows that count."""
        tasks, flags = snapshot.tasks, snapshot.shape_columns.flags(self.has)
        chosen = [row for row in rows if row < len(tasks.status) and tasks.placed[row] and flags[tasks.shape[row]]]
        return {row: (self._owner(snapshot, row), int(tasks.node[row])) for row in chosen}

    def _owner(self, snapshot: Snapshot, row: int) -> _Owner:
        tasks = snapshot.tasks
        pod, shape = tasks.pod(row), cast(Shape, snapshot.shapes[int(tasks.shape[row])])
        labels = tuple(sorted(pod.metadata.labels.items())) if self.minds_labels(shape) else None
        return shape, pod.metadata.namespace, labels

    def _count(self, snapshot: Snapshot, row: int, placement: _Placement, times: int, copied: dict[K, None]) -> None:
        owner, node = placement
        things, count = self._owners.get(owner) or (self.things_of(snapshot.tasks.pod(row)), 0)
        if count + times:
            self._owners[owner] = things, count + times
        else:
            del self._owners[owner]
        for thing in things:
            domains = self.domains(thing)
            if thing not in copied:
                copied[thing] = None
                found = self.sums.get(thing)
                self.sums[thing] = Sums(domains.size) if found is None else found.copy()
            self.sums[thing].add(int(domains.codes[node]), times)
            if not self.sums[thing].total:
                del self.sums[thing]
                del copied[thing]

    def _load(self, snapshot: Snapshot) -> None:
        """Count what is placed, one class of owners at a time."""
        tasks, flags = snapshot.tasks, snapshot.shape_columns.flags
        rows = np.flatnonzero(tasks.placed & flags(self.has)[tasks.shape])
        shapes, namespaces = tasks.shape[rows], tasks.namespace[rows]
        labels = np.where(flags(self.minds_labels)[shapes], tasks.labels[rows], -1)
        order = np.lexsort((labels, namespaces, shapes))
        owners: Ints = np.stack([shapes, namespaces, labels])[:, order]
        firsts = np.flatnonzero(np.diff(owners, prepend=-2).any(axis=0))
        for part in np.split(rows[order], firsts[1:]) if len(rows) else ():
            row = int(part[0])
            things = self.things_of(tasks.pod(row))
            self._owners[self._owner(snapshot, row)] = things, len(part)
            for thing in things:
                domains = self.domains(thing)
                if thing not in self.sums:
                    self.sums[thing] = Sums(domains.size)
                self.sums[thing].add_all(domains.codes[tasks.node[part]])

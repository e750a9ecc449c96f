"""The input of one session: the contents of the state, and results computed from them.

A snapshot never changes. `SnapshotMaker` derives it from the last one at a cost that grows with the changes; a result
that cannot be derived this way (`Updatable`) is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

from vcd.model.objects import Object
from vcd.model.resource_requests import UNOFFERED, names_in_order
from vcd.state.cluster_state import ClusterState
from vcd.state.gang_completion import Completion
from vcd.state.group_columns import GroupColumns
from vcd.state.interning import Changes, Interner, Pages
from vcd.state.node_facts import NodeFacts
from vcd.state.node_usage import usage_after, usage_of
from vcd.state.records import NodeRecord
from vcd.state.snapshot_content import GONE, Content, EarlierSnapshot, Objects, TaskColumns

T = TypeVar("T")
F = TypeVar("F", bound="Updatable")
Ints = npt.NDArray[np.int64]


class Updatable(Protocol):
    """A result that can be derived from the one of an earlier snapshot."""

    def after(self, earlier: Snapshot, snapshot: Snapshot, rows: Iterable[int]) -> Self:
        """Return the result for a later snapshot; only ``rows`` differ from ``earlier``, the snapshot of this one."""
        ...


@dataclass(frozen=True)
class Snapshot(Content):
    """The cluster at ``sequence``, with results computed from it, or updated from those of an earlier snapshot."""

    @cached_property
    def group_columns(self) -> GroupColumns:
        """The groups whose queue exists, with sums over their pods."""
        earlier = self.earlier
        if earlier is None or earlier.groups is None or earlier.waiting is None or earlier.rows is None:
            return GroupColumns(self)
        groups = list(dict.fromkeys([*earlier.groups, *earlier.waiting]))
        return cast(Snapshot, earlier.snapshot).group_columns.with_changes(self, groups, earlier.rows)

    @cached_property
    def usage(self) -> Ints:
        """What pods use of each node (``vcd.state.node_usage``). Read-only."""
        earlier = self.earlier
        if earlier is None or earlier.rows is None or earlier.snapshot.facts is not self.facts:
            return usage_of(self)
        return usage_after(cast(Snapshot, earlier.snapshot).usage, earlier.snapshot, self, earlier.rows)

    @cached_property
    def _derived(self) -> dict[Any, Any]:
        return {}

    def following(self, kind: Callable[[Snapshot], F]) -> F:
        """Return the result of ``kind`` for this snapshot.

        It is updated by the changed rows if an earlier snapshot with the same facts has it.
        """
        found: F | None = self._derived.get(kind) or self._derive(kind)
        if found is None:
            found = kind(self)
        self._derived[kind] = found
        return found

    def carry_over(self) -> None:
        """Derive all results of the earlier snapshot now, so that later snapshots can derive them from this one."""
        for kind in cast(Snapshot, self.earlier.snapshot)._derived if self.earlier is not None else ():
            if kind not in self._derived and (carried := self._derive(kind)) is not None:
                self._derived[kind] = carried

    def _derive(self, kind: Callable[[Snapshot], F]) -> F | None:
        earlier = self.earlier
        if earlier is None or earlier.rows is None or earlier.snapshot.facts is not self.facts:
            return None
        before: F | None = cast(Snapshot, earlier.snapshot)._derived.get(kind)
        return None if before is None else before.after(cast(Snapshot, earlier.snapshot), self, earlier.rows)


_FOLLOWING = frozenset({"shape_columns", "group_columns", "usage"})
"""Attributes that are derived from an earlier snapshot on first use."""


class SnapshotMaker:
    """Makes snapshots of one state, sharing what did not change since the last one."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._copies: dict[str, tuple[Any, Any]] = {}
        self._last: Snapshot | None = None
        self._counts: dict[str, int] = {}
        """The numbers of changes at the last snapshot."""
        self._base: tuple[Snapshot, dict[str, int]] | None = None
        """The last snapshot that computed its derived results, and its counts."""

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the current state. Copies the columns, and the node facts if a node changed."""
        state, resources = self._state, self._resources()
        made_from = (state.facts_version, resources)
        facts = self._copy(
            "facts", made_from, lambda: NodeFacts(selected_nodes(state.nodes, state.settings.node_selector), resources)
        )
        nominations = state.nominations()
        snapshot = Snapshot(
            sequence=state.sequence,
            resources=resources,
            facts=facts,
            tasks=self._copy("tasks", (made_from, state.changed_rows.count), lambda: self._tasks(facts, made_from)),
            job_keys=self._values("job_keys", state.job_keys),
            shapes=self._values("shapes", state.shapes),
            label_sets=self._values("label_sets", state.label_sets),
            namespaces=self._values("namespaces", state.namespaces),
            schedulers=self._values("schedulers", state.schedulers),
            groups=self._mapping("groups", state.changed_groups, state.groups),
            queues=self._copy("queues", state.changed_queues.count, lambda: dict(state.queues)),
            bad_queues={key: message for (kind, key), message in state.bad.items() if kind == "Queue"},
            others={kind: self._objects(kind, found) for kind, found in state.others.items()},
            others_version=dict(state.others_version),
            answers=dict(state.answers),
            waiting=self._mapping("waiting", state.changed_waiting, state.waiting),
            stranded=self._stranded(),
            # a pod from another version's checkpoint that is invalid for this version has no row
            backoffs={
                state.tasks.row_of[key]: backoff for key, backoff in state.backoffs.items() if key in state.tasks.row_of
            },
            released=dict(state.released),
            held_namespaces=dict(state.held_namespaces),
            turns=dict(state.turns),
            admissions=dict(state.admissions),
            volumes=dict(state.intended_volumes),
            annotations=dict(state.intended_annotations),
            lifting=dict(state.lifting),
            nominated={key: node for key, (node, _) in nominations.items()},
            nomination_turns={key: turn for key, (_, turn) in nominations.items()},
            evicted=dict(state.immunity.evicted),
            rounds=dict(state.rounds),
            former=dict(state.former),
            settings=state.settings,
        )
        self._follows(snapshot)
        return snapshot

    def _resources(self) -> tuple[str, ...]:
        """The names of the columns of quantities. Requests of pods do not add to them."""
        state = self._state
        made_from = (state.facts_version, state.changed_queues.count)
        return self._copy("resources", made_from, lambda: (*names_in_order(state.offered()), UNOFFERED))

    def _copy(self, name: str, made_from: Hashable, make: Callable[[], T]) -> T:
        """Return what ``make`` made, as long as ``made_from`` is the same."""
        known = self._copies.get(name)
        if known is None or known[0] != made_from:
            known = self._copies[name] = (made_from, make())
        copy: T = known[1]
        return copy

    def _stranded(self) -> dict[str, int]:
        """Return the gangs that are still incomplete: the state removes others only when a session is folded."""
        state = self._state
        if not state.stranded:
            return {}
        settled = Completion(state.tasks, state.pods, state.job_keys).settled(state.stranded, state.groups)
        return {key: since for key, since in state.stranded.items() if key not in settled}

    def _values(self, name: str, interner: Interner[T]) -> Pages[T | None]:
        return self._copy(name, interner.changes.count, interner.values.copy)

    def _mapping(self, name: str, changes: Changes[str], found: Mapping[str, T]) -> Mapping[str, T]:
        """Copy a mapping, from the last copy if the changes are known. Copying a dict that lost many keys is slow."""

        def make() -> dict[str, T]:
            count, last = self._copies.get(name, (-1, None))
            changed = changes.since(count)
            if last is None or changed is None:
                return dict(found)
            copy: dict[str, T] = last.copy()
            for key in reversed(changed):
                if key in found:
                    copy[key] = found[key]
                else:
                    copy.pop(key, None)
            return copy

        return self._copy(name, changes.count, make)

    def _objects(self, kind: str, found: dict[str, Object]) -> Objects:
        return self._copy(f"{kind} objects", self._state.others_version.get(kind, 0), lambda: Objects(found))

    def _tasks(self, facts: NodeFacts, facts_made_from: Hashable) -> TaskColumns:
        columns, names = self._state.tasks, self._state.node_names

        def rows() -> npt.NDArray[np.int32]:
            found = [-1 if name is None else facts.row_of.get(name, GONE) for name in names.values]
            return np.array([*found, -1], np.int32)

        row_of_name = self._copy("rows of nodes", (facts_made_from, names.changes.count), rows)
        return TaskColumns(
            **{**columns.copy_columns(), "node": row_of_name.take(columns.column("node"))},
            keys=columns.keys.copy(),
            pods=self._state.pods.copy(),
        )

    def _follows(self, snapshot: Snapshot) -> None:
        """Let a snapshot derive its results from the last snapshot that computed them, by the changes since."""
        last = self._last
        if last is not None and last.__dict__.keys() >= _FOLLOWING:
            last.carry_over()
            object.__setattr__(last, "earlier", None)
            self._base = (last, self._counts)
        if self._base is not None:
            base, counts = self._base
            since = {name: changes.since(counts[name]) for name, changes in self._changes().items()}
            object.__setattr__(snapshot, "earlier", EarlierSnapshot(base, **since))
        self._last = snapshot
        self._counts = {name: changes.count for name, changes in self._changes().items()}

    def _changes(self) -> dict[str, Changes[Any]]:
        state = self._state
        return {
            "groups": state.changed_groups,
            "waiting": state.changed_waiting,
            "rows": state.changed_rows,
            "shapes": state.shapes.changes,
        }


def selected_nodes(nodes: Mapping[str, NodeRecord], selector: tuple[str, ...]) -> Mapping[str, NodeRecord]:
    """Return the nodes with one of the labels ``key:value``; all for no labels (vc-scheduler --node-selector)."""
    if not selector:
        return nodes
    wanted = [tuple(pair.split(":", 1)) for pair in selector]
    return {
        name: record
        for name, record in nodes.items()
        if any(record.node.metadata.labels.get(key) == value for key, value in wanted)
    }

"""What one session decides from: the content of the state, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from vcd.model.requests import names_in_order
from vcd.state.cluster import ClusterState
from vcd.state.content import GONE, Content, Earlier, Objects, TaskColumns
from vcd.state.facts import NodeFacts
from vcd.state.groups import GroupColumns
from vcd.state.interning import Changes, Interner
from vcd.state.records import NodeRecord
from vcd.state.usage import usage_after, usage_of

T = TypeVar("T")
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Snapshot(Content):
    """The cluster at ``sequence``, and what follows from it: made of an earlier snapshot's by what changed since, where
    there is one."""

    @cached_property
    def group_columns(self) -> GroupColumns:
        """The groups whose queue exists, and what their pods sum up to."""
        earlier = self.earlier
        if earlier is None or earlier.groups is None or earlier.waiting is None or earlier.rows is None:
            return GroupColumns(self)
        groups = list(dict.fromkeys([*earlier.groups, *earlier.waiting]))
        return cast(Snapshot, earlier.snapshot).group_columns.with_changes(self, groups, earlier.rows)

    @cached_property
    def usage(self) -> Ints:
        """What pods use of each node (``vcd.state.usage``); not to be changed."""
        earlier = self.earlier
        if earlier is None or earlier.rows is None or earlier.snapshot.facts is not self.facts:
            return usage_of(self)
        return usage_after(cast(Snapshot, earlier.snapshot).usage, earlier.snapshot, self, earlier.rows)


_FOLLOWING = frozenset({"shape_columns", "group_columns", "usage"})
"""What a snapshot makes of an earlier one's, once it is asked for."""


class SnapshotMaker:
    """Makes snapshots of one state, keeping what did not change since the last one."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._facts: NodeFacts | None = None
        self._facts_version = -1
        self._resources: tuple[str, ...] = ()
        self._others: dict[str, tuple[int, Objects]] = {}
        self._copies: dict[str, tuple[int, Any]] = {}
        self._last: Snapshot | None = None
        self._counts: dict[str, int] = {}
        """How many changes there were at the last snapshot."""
        self._base: tuple[Snapshot, dict[str, int]] | None = None
        """The last snapshot that made what follows from it, and its counts."""

    def snapshot(self) -> Snapshot:
        """The state as it is now. Costs copies of the columns, and of the node facts when a node changed."""
        state = self._state
        self._refresh_facts()
        facts = self._facts
        assert facts is not None
        nominations = state.nominations()
        snapshot = Snapshot(
            sequence=state.sequence,
            resources=self._resources,
            facts=facts,
            tasks=self._tasks(facts),
            job_keys=self._values("job_keys", state.job_keys),
            shapes=self._values("shapes", state.shapes),
            label_sets=self._values("label_sets", state.label_sets),
            namespaces=self._values("namespaces", state.namespaces),
            schedulers=self._values("schedulers", state.schedulers),
            groups=self._copy("groups", state.changed_groups, lambda: dict(state.groups)),
            queues=self._copy("queues", state.changed_queues, lambda: dict(state.queues)),
            bad_queues={key: message for (kind, key), message in state.bad.items() if kind == "Queue"},
            others={kind: self._copy_of(kind) for kind in state.others},
            others_version=dict(state.others_version),
            answers=dict(state.answers),
            waiting=self._copy("waiting", state.changed_waiting, lambda: dict(state.waiting)),
            stranded=dict(state.stranded),
            volumes=dict(state.intended_volumes),
            annotations=dict(state.intended_annotations),
            lifting=dict(state.lifting),
            nominated={key: node for key, (node, _) in nominations.items()},
            nomination_turns={key: turn for key, (_, turn) in nominations.items()},
            evicted=dict(state.evicted),
            rounds=dict(state.rounds),
            former=dict(state.former),
            settings=state.settings,
        )
        self._follows(snapshot)
        return snapshot

    def _copy(self, name: str, changes: Changes[Any], make: Callable[[], T]) -> T:
        """A copy that holds until there is a change."""
        kept = self._copies.get(name)
        if kept is None or kept[0] != changes.count:
            kept = self._copies[name] = (changes.count, make())
        copy: T = kept[1]
        return copy

    def _values(self, name: str, interner: Interner[T]) -> list[T | None]:
        return self._copy(name, interner.changes, lambda: list(interner.values))

    def _tasks(self, facts: NodeFacts) -> TaskColumns:
        state, last = self._state, self._last
        columns = state.tasks
        if last is not None and last.facts is facts and self._counts["rows"] == state.changed_rows.count:
            return last.tasks
        names = self._copy("node_names", state.node_names.changes, lambda: list(state.node_names.values))
        row_of = facts.row_of
        known = self._copies.get("node_rows")
        if known is None or known[1][0] is not facts or known[1][1] is not names:
            found = [-1 if name is None else row_of.get(name, GONE) for name in names]
            known = self._copies["node_rows"] = (0, (facts, names, np.array([*found, -1], np.int32)))
        return TaskColumns(
            status=columns.column("status").astype(np.int8),
            node=known[1][2][columns.column("node")],
            job=columns.column("job").astype(np.int32),
            shape=columns.column("shape").astype(np.int32),
            labels=columns.column("labels").astype(np.int32),
            namespace=columns.column("namespace").astype(np.int32),
            scheduler=columns.column("scheduler").astype(np.int32),
            priority=columns.column("priority").astype(np.int32),
            created=columns.column("created").astype(np.int64),
            keys=columns.keys.copy(),
            pods=state.pods.copy(),
        )

    def _follows(self, snapshot: Snapshot) -> None:
        """Let a snapshot make what follows from it of what the last one has that made it, by what changed since."""
        last = self._last
        if last is not None and last.__dict__.keys() >= _FOLLOWING:
            object.__setattr__(last, "earlier", None)
            self._base = (last, self._counts)
        if self._base is not None:
            base, counts = self._base
            since = {name: changes.since(counts[name]) for name, changes in self._changes().items()}
            object.__setattr__(snapshot, "earlier", Earlier(base, **since))
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

    def _copy_of(self, kind: str) -> Objects:
        version = self._state.others_version.get(kind, 0)
        kept = self._others.get(kind)
        if kept is None or kept[0] != version:
            kept = self._others[kind] = (version, Objects(self._state.others[kind]))
        return kept[1]

    def _refresh_facts(self) -> None:
        state = self._state
        resources = tuple(names_in_order(state.resources))
        if self._facts_version != state.facts_version or resources != self._resources:
            self._facts = NodeFacts(_selected(state.nodes, state.settings.node_selector), resources)
            self._facts_version = state.facts_version
            self._resources = resources


def _selected(nodes: Mapping[str, NodeRecord], selector: tuple[str, ...]) -> Mapping[str, NodeRecord]:
    """The nodes that have one of the labels ``key:value``; all where none are given (vc-scheduler --node-selector)."""
    if not selector:
        return nodes
    wanted = [tuple(pair.split(":", 1)) for pair in selector]
    return {
        name: record
        for name, record in nodes.items()
        if any(record.node.metadata.labels.get(key) == value for key, value in wanted)
    }

"""Index of placed pods: how many match a selector, or have a certain term or port, on each node.

A session has one index (``index_of``). Nothing is computed before a task needs it. Results are cached, and
``PodIndex.move`` updates them for the touched node alone. Selectors are evaluated over
distinct label sets, namespaces once a session, terms once per distinct owner. So running pods that no query concerns,
and that have no terms themselves, cost nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar, cast

import msgspec
import numpy as np
import numpy.typing as npt

from vcd.model.objects import Namespace
from vcd.model.selectors import DOES_NOT_EXIST, EXISTS, IN, Requirement, Selector
from vcd.model.status import TaskStatus
from vcd.scheduling.search.domain_counts import Domains, Ints, Mask, Rows, Sums
from vcd.scheduling.search.placed_counts import PlacedCounts
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.interning import Pages

K = TypeVar("K", bound=Hashable)
H = TypeVar("H", bound="SessionCounts[Any]")

_MANY = 128
"""A selector that matches more label sets than this is not indexed by label set, but tested at each placement."""
_NAMESPACE_NAME = "kubernetes.io/metadata.name"


# --- queries ------------------------------------------------------------------------------------------------------


class Scope(msgspec.Struct, frozen=True, gc=False):
    """Namespaces: the named ones, and the ones whose labels the selector matches (None: no further ones)."""

    names: tuple[str, ...]
    selector: Selector | None = None


class PodQuery(msgspec.Struct, frozen=True):
    """Which pods to count: the selector matches their labels, and every scope contains their namespace.

    Terminating pods count only with ``terminating``.
    """

    selector: Selector
    scopes: tuple[Scope, ...]
    terminating: bool = True


# --- label sets ---------------------------------------------------------------------------------------------------


class _LabelColumn:
    """One label over the distinct label sets: value codes, and the sets in order of their code."""

    def __init__(self, key: str, label_sets: Pages[dict[str, str] | None]) -> None:
        code_of: dict[str | None, int] = {None: -1}
        texts = (labels.get(key) if labels else None for labels in label_sets)
        codes = [code_of.setdefault(text, len(code_of) - 1) for text in texts]
        self._codes = np.array(codes, np.int32)
        self._code_of = code_of
        self._order: Rows = np.argsort(self._codes, kind="stable")
        self._sorted = self._codes[self._order]

    def sets_with(self, values: Iterable[str]) -> Rows:
        """Return the label sets that have one of the values."""
        return _rows_with_values(self._order, self._sorted, np.array(self._wanted(values), np.int32))

    def holds(self, need: Requirement, sets: Rows) -> Mask:
        """Return which of the label sets meet a requirement."""
        codes = self._codes[sets]
        by_presence = need.operator in (EXISTS, DOES_NOT_EXIST)
        met: Mask = codes >= 0 if by_presence else np.isin(codes, self._wanted(need.values))
        return met if need.operator in (IN, EXISTS) else ~met

    def _wanted(self, values: Iterable[str]) -> list[int]:
        return [self._code_of[value] for value in values if value in self._code_of]


class _LabelSets:
    """The session's distinct label sets, with a column per label that a query uses."""

    def __init__(self, label_sets: Pages[dict[str, str] | None]) -> None:
        self.label_sets = label_sets
        self._columns: dict[str, _LabelColumn] = {}

    def matching(self, selector: Selector) -> Rows:
        """Return the numbers of the label sets that a selector matches. May include freed numbers, which no pod has."""
        if selector.nothing:
            return np.empty(0, np.intp)
        needs = sorted(selector.requirements, key=lambda need: need.operator != IN)
        if needs and needs[0].operator == IN:
            sets = self._column(needs[0].key).sets_with(needs.pop(0).values)
        else:
            sets = np.arange(len(self.label_sets))
        for need in needs:
            sets = sets[self._column(need.key).holds(need, sets)]
        return sets

    def _column(self, key: str) -> _LabelColumn:
        found = self._columns.get(key)
        if found is None:
            found = self._columns[key] = _LabelColumn(key, self.label_sets)
        return found


def _rows_with_values(order: Rows, ordered: npt.NDArray[np.int32], wanted: npt.NDArray[np.signedinteger]) -> Rows:
    """Return the entries of ``order`` whose value, in ``ordered``, is one of the few wanted ones."""
    firsts, lasts = np.searchsorted(ordered, wanted, "left"), np.searchsorted(ordered, wanted, "right")
    parts = [order[first:last] for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True) if first < last]
    return np.concatenate(parts) if parts else np.empty(0, np.intp)


# --- results ------------------------------------------------------------------------------------------------------


class Tally:
    """The pods that match a query, counted by node, and by each division of the nodes that was requested."""

    __slots__ = ("_by_domain", "_by_row", "_inside", "_sets", "_terminating")

    def __init__(self, nodes: int, inside: Mask, terminating: bool, sets: Mask | None) -> None:
        self._by_row = Sums(nodes)
        self._by_domain: dict[Domains, Sums] = {}
        self._inside = inside
        self._terminating = terminating
        self._sets = sets

    def includes(self, labels: int, namespace: int, terminating: bool) -> bool:
        """Whether it counts a pod. If the tally is indexed by label set, ``labels`` must be one of its sets."""
        if terminating and not self._terminating:
            return False
        return bool(self._inside[namespace]) and (self._sets is None or bool(self._sets[labels]))

    def add(self, row: int, times: int) -> None:
        """Count ``times`` more pods on a node."""
        self._by_row.add(row, times)
        for domains, sums in self._by_domain.items():
            sums.add(int(domains.codes[row]), times)

    def add_all(self, rows: npt.NDArray[np.signedinteger]) -> None:
        """Count one more pod for each entry. Only before the first read."""
        self._by_row.add_all(rows)

    @property
    def total(self) -> int:
        """The number of pods that it counts."""
        return self._by_row.total

    def by_node(self) -> Ints:
        """Return pods per row of the nodes. Read-only."""
        return self._by_row.counts()[:-1]

    def by_domain(self, domains: Domains) -> Sums:
        """Return pods per domain."""
        found = self._by_domain.get(domains)
        if found is None:
            found = self._by_domain[domains] = Sums(domains.size)
            counts = self.by_node()
            rows = np.flatnonzero(counts)
            found.add_all(np.repeat(domains.codes[rows], counts[rows]))
        return found


class SessionCounts(Generic[K]):
    """Things of one ``kind`` (terms, ports) that placed pods have, updated during the session.

    ``placed`` are the counts when the session began; counts that the session changed are copied. Subclasses set
    ``kind``.
    """

    kind: ClassVar[type[PlacedCounts[Any]]]

    def __init__(self, index: PodIndex) -> None:
        snapshot = index.session.snapshot
        self.placed: PlacedCounts[K] = snapshot.following(self.kind)
        self._index = index
        self._own: dict[K, Sums] = {}
        self._owners: dict[tuple[int, int, int], list[tuple[Sums, Rows]]] = {}
        flags = snapshot.shape_columns.flags
        self._having, self._by_labels = flags(self.kind.has), flags(self.kind.uses_labels)
        self.may_exist = bool(self._having.any())
        """Whether any pod, placed or not, has such things."""
        for row, node, times in index.moved():
            self.move(row, node, times)

    @property
    def is_empty(self) -> bool:
        """Whether no placed pod has any such thing, now or earlier in this session."""
        return not (self._own or self.placed.sums)

    def sums(self, thing: K) -> Sums | None:
        """Return the placed pods with a thing, by domain, or None if there were none in this session."""
        return self._own.get(thing) or self.placed.sums.get(thing)

    def has_things(self, shape: int) -> bool:
        """Whether pods of a shape, given by number, have such things."""
        return bool(self._having[shape])

    def move(self, row: int, node: int, times: int) -> None:
        """Record that a pod (by its row) came to a node (times 1) or left it (-1)."""
        if self.has_things(self._index.tasks.shape[row]):
            for sums, codes in self._changing(row):
                sums.add(int(codes[node]), times)

    def on_appeared(self, thing: K) -> None:
        """Handle a thing whose sums begin to change."""

    def _changing(self, row: int) -> list[tuple[Sums, Rows]]:
        """Return the sums in which a pod counts, each with the domain codes of the nodes."""
        tasks = self._index.tasks
        shape = int(tasks.shape[row])
        key = (shape, int(tasks.namespace[row]), int(tasks.labels[row]) if self._by_labels[shape] else -1)
        found = self._owners.get(key)
        if found is None:
            found = self._owners[key] = [self._changing_of(thing) for thing in self.placed.things_of(tasks.pod(row))]
        return found

    def _changing_of(self, thing: K) -> tuple[Sums, Rows]:
        domains = self.placed.domains(thing)
        sums = self._own.get(thing)
        if sums is None:
            before = self.placed.sums.get(thing)
            sums = self._own[thing] = Sums(domains.size) if before is None else before.copy()
            self.on_appeared(thing)
        return sums, domains.codes


class PodIndex:
    """The placed pods of a session: on a node, not ended; pipelined and terminating ones included."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.tasks = session.snapshot.tasks
        self._tallies: dict[PodQuery, Tally] = {}
        self._by_labels: dict[int, list[Tally]] = {}
        self._wide: list[Tally] = []
        self._held: dict[type[SessionCounts[Any]], SessionCounts[Any]] = {}
        self._inside: dict[tuple[Scope, ...], Mask] = {}
        self._moved: dict[int, dict[tuple[int, int], int]] = {}

    def release(self) -> None:
        """Drop results that refer back to this index."""
        self._held.clear()

    # --- updates ------------------------------------------------------------------------------------------------------

    def move(self, tasks: Sequence[Task], nodes: Sequence[int], times: int) -> None:
        """Record that tasks of one shape were placed (``times`` 1), each on the node of a row, or left it (-1): their
        placement was rolled back, or they are evicted."""
        shape = self.tasks.shape[tasks[0].row]
        held = [counts for counts in self._held.values() if counts.has_things(shape)]
        for task, node in zip(tasks, nodes, strict=True):
            moved = self._moved.setdefault(task.labels, {})
            net = moved.pop((task.row, node), 0) + times
            if net:
                moved[task.row, node] = net
            if self._tallies:
                self._count_move(task, node, times)
            for counts in held:
                counts.move(task.row, node, times)

    def _count_move(self, task: Task, node: int, times: int) -> None:
        labels, namespace = task.labels, int(self.tasks.namespace[task.row])
        for tally in (*self._by_labels.get(labels, ()), *self._wide):
            if tally.includes(labels, namespace, bool(self._terminating[task.row])):
                tally.add(node, times)

    def moved(self) -> Iterable[tuple[int, int, int]]:
        """Yield this session's net changes: row of the pod, node, 1 for placed or -1 for removed."""
        return ((row, node, net) for moves in self._moved.values() for (row, node), net in moves.items())

    # --- counting -----------------------------------------------------------------------------------------------------

    def tally(self, query: PodQuery) -> Tally:
        """Return the pods that match a query. The tally stays up to date for the rest of the session."""
        found = self._tallies.get(query)
        if found is None:
            found = self._tallies[query] = self._count(query)
        return found

    def count(self, selector: Selector, scope: Scope, terminating: bool = True) -> Ints:
        """Return placed pods per row of the nodes that a selector matches in a scope. Read-only.

        ``terminating`` includes terminating pods.
        """
        return self.tally(PodQuery(selector, (scope,), terminating)).by_node()

    def matching(self, query: PodQuery, rows: Rows) -> Mask:
        """Return which of some pods, placed or not, match a query; terminating ones count."""
        sets = self._label_sets.matching(query.selector)
        inside = self._inside_of(query.scopes)[self.tasks.namespace[rows]]
        found: Mask = inside & np.isin(self.tasks.labels[rows], sets)
        return found

    def _count(self, query: PodQuery) -> Tally:
        sets = self._label_sets.matching(query.selector)
        inside = self._inside_of(query.scopes)
        wide: Mask | None = None
        if len(sets) > _MANY:
            wide = np.zeros(len(self._label_sets.label_sets), np.bool_)
            wide[sets] = True
        tally = Tally(len(self.session.nodes), inside, query.terminating, wide)
        self._count_placed(tally, query, sets, wide)
        self._count_moved(tally, sets if wide is None else None)
        if wide is not None:
            self._wide.append(tally)
        else:
            for labels in sets.tolist():
                self._by_labels.setdefault(labels, []).append(tally)
        return tally

    def _count_placed(self, tally: Tally, query: PodQuery, sets: Rows, wide: Mask | None) -> None:
        tasks = self.tasks
        if wide is not None:
            rows = self.placed_rows[wide[tasks.labels[self.placed_rows]]]
        else:
            order, ordered = self._rows_by_labels
            rows = _rows_with_values(order, ordered, sets)
        counted = self._inside_of(query.scopes)[tasks.namespace[rows]]
        if not query.terminating:
            counted &= ~self._terminating[rows]
        tally.add_all(tasks.node[rows[counted]])

    def _count_moved(self, tally: Tally, sets: Rows | None) -> None:
        chosen = self._moved if sets is None else [labels for labels in sets.tolist() if labels in self._moved]
        for labels in chosen:
            for (row, node), net in self._moved[labels].items():
                if tally.includes(labels, int(self.tasks.namespace[row]), bool(self._terminating[row])):
                    tally.add(node, net)

    @cached_property
    def placed_rows(self) -> Rows:
        """The rows of the pods that were placed when the session began."""
        tasks = self.tasks
        return np.flatnonzero(tasks.placed)

    @cached_property
    def _rows_by_labels(self) -> tuple[Rows, npt.NDArray[np.int32]]:
        placed = self.placed_rows
        order = placed[np.argsort(self.tasks.labels[placed], kind="stable")]
        return order, self.tasks.labels[order]

    @cached_property
    def _terminating(self) -> Mask:
        """Terminating pods, by row."""
        tasks = self.tasks
        terminating: Mask = tasks.status == TaskStatus.RELEASING
        for row in np.flatnonzero(tasks.status == TaskStatus.UNKNOWN).tolist():
            pod = tasks.pods[row]
            terminating[row] = pod is not None and pod.metadata.deletion_timestamp is not None
        return terminating

    @cached_property
    def _label_sets(self) -> _LabelSets:
        return _LabelSets(self.session.snapshot.label_sets)

    # --- namespaces ---------------------------------------------------------------------------------------------------

    def is_inside(self, task: Task, scopes: tuple[Scope, ...]) -> bool:
        """Whether a task's namespace is in all scopes."""
        return bool(self._inside_of(scopes)[self.tasks.namespace[task.row]])

    def _inside_of(self, scopes: tuple[Scope, ...]) -> Mask:
        """Return which of the session's namespaces are in all scopes."""
        found = self._inside.get(scopes)
        if found is None:
            found = np.ones(len(self.session.snapshot.namespaces), np.bool_)
            for scope in scopes:
                found &= self._in_scope(scope)
            self._inside[scopes] = found
        return found

    def _in_scope(self, scope: Scope) -> Mask:
        names = self.session.snapshot.namespaces
        inside = np.zeros(len(names), np.bool_)
        inside[[self._namespace_numbers[name] for name in scope.names if name in self._namespace_numbers]] = True
        if scope.selector is not None:
            for number, name in enumerate(names):
                inside[number] |= name is not None and scope.selector.matches(self._labels_of_namespace(name))
        return inside

    @cached_property
    def _namespace_numbers(self) -> dict[str, int]:
        names = self.session.snapshot.namespaces
        return {name: number for number, name in enumerate(names) if name is not None}

    def _labels_of_namespace(self, name: str) -> dict[str, str]:
        """Return a namespace's labels, including the name label that the API server sets."""
        found = self.session.snapshot.others.get("Namespace", {}).get(name)
        labels = found.metadata.labels if isinstance(found, Namespace) else {}
        return {**labels, _NAMESPACE_NAME: name}

    # --- things of placed pods ----------------------------------------------------------------------------------------

    def counts_of(self, kind: type[H]) -> H:
        """Return the things of one kind that placed pods have, counted at the first call and up to date after that."""
        found = self._held.get(kind)
        if found is None:
            found = self._held[kind] = kind(self)
        return cast(H, found)


def index_of(session: Session) -> PodIndex:
    """Return the session's one index."""
    return session.provided(PodIndex, lambda: PodIndex(session))

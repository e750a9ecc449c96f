"""Where pods are: how many that match a selector, or that have a certain term or port, sit on each node.

A session has one index (``index_of``). Nothing is computed before a task needs it. What was asked once is kept, and
follows placements and their reverses (``PodIndex.placed``, ``PodIndex.removed``) by the touched node alone. Selectors
are evaluated over distinct label sets, namespaces once a session, terms once per distinct owner; so running pods that
nobody asks about, and that ask nothing themselves, cost nothing.
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
from vcd.scheduling.search.domains import Domains, Ints, Mask, Rows, Sums
from vcd.scheduling.search.placed import PlacedCounts
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.interning import Pages

K = TypeVar("K", bound=Hashable)
H = TypeVar("H", bound="Held[Any]")

_MANY = 128
"""A selector that more label sets than this match is looked up by label set at each placement, not filed under it."""
_NAMESPACE_NAME = "kubernetes.io/metadata.name"


# --- what is asked ------------------------------------------------------------------------------------------------


class Scope(msgspec.Struct, frozen=True, gc=False):
    """Namespaces: those named, and those whose labels a selector (None: no further ones) matches."""

    names: tuple[str, ...]
    selector: Selector | None = None


class Question(msgspec.Struct, frozen=True):
    """Which pods to count: labels that a selector matches, in namespaces that all scopes hold; pods that are being
    deleted only with ``terminating``."""

    selector: Selector
    scopes: tuple[Scope, ...]
    terminating: bool = True


# --- label sets ---------------------------------------------------------------------------------------------------


class _LabelColumn:
    """One label over the distinct label sets: codes, and the sets in order of their code."""

    def __init__(self, key: str, label_sets: Pages[dict[str, str] | None]) -> None:
        code_of: dict[str | None, int] = {None: -1}
        texts = (labels.get(key) if labels else None for labels in label_sets)
        codes = [code_of.setdefault(text, len(code_of) - 1) for text in texts]
        self._codes = np.array(codes, np.int32)
        self._code_of = code_of
        self._order: Rows = np.argsort(self._codes, kind="stable")
        self._sorted = self._codes[self._order]

    def sets_having(self, values: Iterable[str]) -> Rows:
        """The label sets that have one of the values."""
        return _chosen(self._order, self._sorted, np.array(self._wanted(values), np.int32))

    def holds(self, need: Requirement, sets: Rows) -> Mask:
        """Which of some label sets meet a requirement."""
        codes = self._codes[sets]
        by_presence = need.operator in (EXISTS, DOES_NOT_EXIST)
        met: Mask = codes >= 0 if by_presence else np.isin(codes, self._wanted(need.values))
        return met if need.operator in (IN, EXISTS) else ~met

    def _wanted(self, values: Iterable[str]) -> list[int]:
        return [self._code_of[value] for value in values if value in self._code_of]


class _LabelSets:
    """The session's distinct label sets, a column per label that is asked for."""

    def __init__(self, label_sets: Pages[dict[str, str] | None]) -> None:
        self.label_sets = label_sets
        self._columns: dict[str, _LabelColumn] = {}

    def matching(self, selector: Selector) -> Rows:
        """The numbers of the label sets that a selector matches (and perhaps of freed ones, which no pod has)."""
        if selector.nothing:
            return np.empty(0, np.intp)
        needs = sorted(selector.requirements, key=lambda need: need.operator != IN)
        if needs and needs[0].operator == IN:
            sets = self._column(needs[0].key).sets_having(needs.pop(0).values)
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


def _chosen(order: Rows, ordered: npt.NDArray[np.int32], wanted: npt.NDArray[np.signedinteger]) -> Rows:
    """Entries of ``order`` whose value, in ``ordered``, is one of the few wanted ones."""
    firsts, lasts = np.searchsorted(ordered, wanted, "left"), np.searchsorted(ordered, wanted, "right")
    parts = [order[first:last] for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True) if first < last]
    return np.concatenate(parts) if parts else np.empty(0, np.intp)


# --- answers ------------------------------------------------------------------------------------------------------


class Tally:
    """The pods that a question is about, counted by node, and by each division of the nodes that is asked for."""

    __slots__ = ("_by_domain", "_by_row", "_inside", "_sets", "_terminating")

    def __init__(self, nodes: int, inside: Mask, terminating: bool, sets: Mask | None) -> None:
        self._by_row = Sums(nodes)
        self._by_domain: dict[Domains, Sums] = {}
        self._inside = inside
        self._terminating = terminating
        self._sets = sets

    def is_about(self, labels: int, namespace: int, terminating: bool) -> bool:
        """Whether it counts a pod; ``labels`` must be among the sets that it is filed under, if it is."""
        if terminating and not self._terminating:
            return False
        return bool(self._inside[namespace]) and (self._sets is None or bool(self._sets[labels]))

    def add(self, row: int, times: int) -> None:
        """Count ``times`` more pods on a node."""
        self._by_row.add(row, times)
        for domains, sums in self._by_domain.items():
            sums.add(int(domains.codes[row]), times)

    def add_all(self, rows: npt.NDArray[np.signedinteger]) -> None:
        """Count one more pod for each entry; only before anything was asked."""
        self._by_row.add_all(rows)

    @property
    def total(self) -> int:
        """All pods that it counts."""
        return self._by_row.total

    def by_node(self) -> Ints:
        """Pods per row of the nodes. Not to be changed."""
        return self._by_row.counts()[:-1]

    def by_domain(self, domains: Domains) -> Sums:
        """Pods per domain."""
        found = self._by_domain.get(domains)
        if found is None:
            found = self._by_domain[domains] = Sums(domains.size)
            counts = self.by_node()
            rows = np.flatnonzero(counts)
            found.add_all(np.repeat(domains.codes[rows], counts[rows]))
        return found


class Held(Generic[K]):
    """What placed pods have of their own as a session goes on: what they had when it began (``placed``), and the sums
    that its placements changed. A subclass tells of what ``kind``."""

    kind: ClassVar[type[PlacedCounts[Any]]]

    def __init__(self, index: PodIndex) -> None:
        snapshot = index.session.snapshot
        self.placed: PlacedCounts[K] = snapshot.following(self.kind)
        self._index = index
        self._own: dict[K, Sums] = {}
        self._owners: dict[tuple[int, int, int], list[tuple[Sums, Rows]]] = {}
        flags = snapshot.shape_columns.flags
        self._having, self._by_labels = flags(self.kind.has), flags(self.kind.minds_labels)
        self.may_be = bool(self._having.any())
        """Whether any pods have such things, placed or not."""
        for row, node, times in index.moved():
            self.move(row, node, times)

    @property
    def is_empty(self) -> bool:
        """Whether no placed pod has any, or had one in this session."""
        return not (self._own or self.placed.sums)

    def sums(self, thing: K) -> Sums | None:
        """Placed pods that have a thing, by domain; None if none has it, or had it in this session."""
        return self._own.get(thing) or self.placed.sums.get(thing)

    def concerns(self, shape: int) -> bool:
        """Whether pods of a shape, by its number, have any."""
        return bool(self._having[shape])

    def move(self, row: int, node: int, times: int) -> None:
        """A pod (by its row) came to a node (times 1) or left it (-1)."""
        if self.concerns(self._index.tasks.shape[row]):
            for sums, codes in self._changing(row):
                sums.add(int(codes[node]), times)

    def appeared(self, thing: K) -> None:
        """Called for each thing whose sums begin to change."""

    def _changing(self, row: int) -> list[tuple[Sums, Rows]]:
        """The sums that a pod counts in, with the codes of the nodes."""
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
            self.appeared(thing)
        return sums, domains.codes


class PodIndex:
    """Placed pods of a session: on a node, not ended; pipelined ones and those being deleted included."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.tasks = session.snapshot.tasks
        self._tallies: dict[Question, Tally] = {}
        self._by_labels: dict[int, list[Tally]] = {}
        self._wide: list[Tally] = []
        self._held: dict[type[Held[Any]], Held[Any]] = {}
        self._inside: dict[tuple[Scope, ...], Mask] = {}
        self._moved: dict[int, dict[tuple[int, int], int]] = {}

    def release(self) -> None:
        """Let go of what was asked, which refers back to it."""
        self._held.clear()

    # --- following the session ----------------------------------------------------------------------------------------

    def placed(self, task: Task, row: int) -> None:
        """A task came to the node of a row."""
        self._move(task.row, task.labels, row, 1)

    def placed_together(self, tasks: Sequence[Task], nodes: Sequence[int]) -> None:
        """Several tasks of one shape came each to the node of a row."""
        shape = self.tasks.shape[tasks[0].row]
        counted = bool(self._tallies) or any(held.concerns(shape) for held in self._held.values())
        for task, node in zip(tasks, nodes, strict=True):
            if counted:
                self.placed(task, node)
            else:
                self._moved.setdefault(task.labels, {})[task.row, node] = 1

    def removed(self, task: Task, row: int) -> None:
        """A task left the node of a row: its placement was taken back, or it is evicted."""
        self._move(task.row, task.labels, row, -1)

    def _move(self, row: int, labels: int, node: int, times: int) -> None:
        moved = self._moved.setdefault(labels, {})
        net = moved.pop((row, node), 0) + times
        if net:
            moved[row, node] = net
        if self._tallies:
            namespace = int(self.tasks.namespace[row])
            for tally in (*self._by_labels.get(labels, ()), *self._wide):
                if tally.is_about(labels, namespace, bool(self._terminating[row])):
                    tally.add(node, times)
        for held in self._held.values():
            if held.may_be:
                held.move(row, node, times)

    def moved(self) -> Iterable[tuple[int, int, int]]:
        """What this session changed so far: rows of pods, their nodes, 1 for come and -1 for gone."""
        return ((row, node, net) for moves in self._moved.values() for (row, node), net in moves.items())

    # --- counting -----------------------------------------------------------------------------------------------------

    def tally(self, question: Question) -> Tally:
        """The pods that a question is about; it stays up to date for the rest of the session."""
        found = self._tallies.get(question)
        if found is None:
            found = self._tallies[question] = self._count(question)
        return found

    def count(self, selector: Selector, scope: Scope, terminating: bool = True) -> Ints:
        """Placed pods per row of the nodes that a selector matches in a scope; ``terminating`` counts those being
        deleted too. Not to be changed."""
        return self.tally(Question(selector, (scope,), terminating)).by_node()

    def matching(self, question: Question, rows: Rows) -> Mask:
        """Return which of some pods, placed or not, a question is about, terminating ones included."""
        sets = self._label_sets.matching(question.selector)
        inside = self._inside_of(question.scopes)[self.tasks.namespace[rows]]
        found: Mask = inside & np.isin(self.tasks.labels[rows], sets)
        return found

    def _count(self, question: Question) -> Tally:
        sets = self._label_sets.matching(question.selector)
        inside = self._inside_of(question.scopes)
        wide: Mask | None = None
        if len(sets) > _MANY:
            wide = np.zeros(len(self._label_sets.label_sets), np.bool_)
            wide[sets] = True
        tally = Tally(len(self.session.nodes), inside, question.terminating, wide)
        self._count_placed(tally, question, sets, wide)
        self._count_moved(tally, sets if wide is None else None)
        if wide is not None:
            self._wide.append(tally)
        else:
            for labels in sets.tolist():
                self._by_labels.setdefault(labels, []).append(tally)
        return tally

    def _count_placed(self, tally: Tally, question: Question, sets: Rows, wide: Mask | None) -> None:
        tasks = self.tasks
        if wide is not None:
            rows = self.placed_rows[wide[tasks.labels[self.placed_rows]]]
        else:
            order, ordered = self._rows_by_labels
            rows = _chosen(order, ordered, sets)
        counted = self._inside_of(question.scopes)[tasks.namespace[rows]]
        if not question.terminating:
            counted &= ~self._terminating[rows]
        tally.add_all(tasks.node[rows[counted]])

    def _count_moved(self, tally: Tally, sets: Rows | None) -> None:
        chosen = self._moved if sets is None else [labels for labels in sets.tolist() if labels in self._moved]
        for labels in chosen:
            for (row, node), net in self._moved[labels].items():
                if tally.is_about(labels, int(self.tasks.namespace[row]), bool(self._terminating[row])):
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
        """Pods that are being deleted, by row."""
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
        """Which of the session's namespaces are in all scopes."""
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
        """A namespace's labels; the API server gives each its name as one."""
        found = self.session.snapshot.others.get("Namespace", {}).get(name)
        labels = found.metadata.labels if isinstance(found, Namespace) else {}
        return {**labels, _NAMESPACE_NAME: name}

    # --- what placed pods have ----------------------------------------------------------------------------------------

    def held(self, kind: type[H]) -> H:
        """What placed pods have of a kind, counted when it is first asked for and up to date from then on."""
        found = self._held.get(kind)
        if found is None:
            found = self._held[kind] = kind(self)
        return cast(H, found)


def index_of(session: Session) -> PodIndex:
    """The session's one index."""
    return session.provided(PodIndex, lambda: PodIndex(session))

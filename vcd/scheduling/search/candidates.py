"""Candidate tables: which nodes take equivalent tasks, and which of them is best.

A table is built once per equivalence key of tasks (``vcd.scheduling.search.equivalence``). After a placement only the
changed node is computed again. While a node receives only tasks of one shape, its next keys are read from a *level*:
one computation for "every node has j more of these tasks". ``Memory`` carries tables from session to session. It is
only a cache: no decision may depend on its contents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count as count_from
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.model.resource_requests import PODS, UNOFFERED
from vcd.scheduling.search.equivalence import ApplyingParts, EquivalenceKey, EquivalenceKeys, Part
from vcd.scheduling.search.factscores import EXACT, FactScores, among, fixed_point
from vcd.scheduling.search.nodegroups import NodeGroups
from vcd.scheduling.search.parts import Mask, Predicate, Rows, Score, Scores, is_by_usage, is_moving
from vcd.scheduling.session.nodes import Ints, Nodes, Usage, fits
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.node_facts import NodeFacts
from vcd.state.shape_columns import unoffered

_TOO_MANY_PODS = ReasonCode("node-pods", Cause.NODE_ROOM, "Too many pods", nodes_help=True)()
_INSUFFICIENT = ReasonCode("node-room", Cause.NODE_ROOM, "Insufficient {resource}", nodes_help=True)

NOWHERE = np.iinfo(np.int64).min
"""The key of a node that does not take a task."""
_NOW = 61
"""Bit of a key: the task fits the node's idle resources. Nodes that fit only after releases come later."""
_HAS_ROOM = 1 << _NOW - 1
"""Keys above this value have the ``_NOW`` bit."""
_FEW = 20
"""Up to this many nodes are computed one by one; more are computed as one column."""
_COLUMNS = 500_000
"""Limit of nodes times cached tables, about a processor's cache. Above it, the oldest tables are dropped."""
_FEWEST_TABLES = 32
_NEVER, _ONCE = -2, -1
"""Values of ``_groups_position``: the groups were never computed, or computed once without being stored."""

_ByGroup = tuple[npt.NDArray[Any], ...]
_Stamp = tuple[int, int]
_Heap = list[tuple[int, int, Iterator[int]]]
"""For each node its key, negated; its row; and its keys after further placements."""


def _read_only(mask: Mask) -> Mask:
    mask.flags.writeable = False
    return mask


class Evaluator:
    """The predicates and scores of a session's plugins, and the tables built from them."""

    def __init__(
        self, session: Session, predicates: Sequence[Predicate], scores: Sequence[Score], memory: Memory
    ) -> None:
        self.session = session
        self.nodes: Nodes = session.nodes
        self.predicates = tuple(predicates)
        self.scores = tuple(scores)
        self.parts: tuple[Part, ...] = (*predicates, *scores)
        self.keys = EquivalenceKeys(session, self.parts)
        self.memory = memory
        self.bits = max(1, (len(self.nodes) - 1).bit_length()) if len(self.nodes) else 1
        self.ties = (len(self.nodes) - 1) - self.nodes.facts.ties(session.seed)
        self.limit = (1 << 59) >> self.bits
        lasting = [part for part in self.parts if not is_moving(part)]
        kinds = sorted({kind for part in lasting for kind in part.kinds or ()})
        self.versions = (
            session.policy_digest,
            tuple([(part.owner, part.name) for part in lasting]),
            *(session.snapshot.others_version.get(kind, 0) for kind in kinds),
        )
        self.everywhere: Mask = self.nodes.facts.cached(
            "everywhere", lambda: _read_only(np.ones(len(self.nodes), np.bool_))
        )
        self.evaluations = 0
        """Number of times that predicates and scores were computed over the nodes."""
        self._turn, self._is_own = memory.open(self), False

    def release(self) -> None:
        """Drop this evaluator's own tables, which refer back to it."""
        if self._is_own:
            self.memory.reset()

    def _tables(self) -> Memory:
        """Return the memory that holds this evaluator's tables.

        After a later session has opened the shared memory, an older session, for example one that explains an old
        decision, gets a private memory.
        """
        if self.memory.turn != self._turn:
            self.memory = Memory()
            self._turn, self._is_own = self.memory.open(self), True
        return self.memory

    def table(self, task: Task) -> Candidates:
        """Return the table of the task and its equivalents."""
        return self.table_of(task, *self.keys.of(task))

    def table_of(self, task: Task, key: EquivalenceKey, parts: ApplyingParts) -> Candidates:
        """Return the table for a key and the parts that apply; ``task`` is one with this key."""
        memory = self._tables()
        table = memory.tables.get(key)
        if table is None:
            table = memory.tables[key] = Candidates(self, task, parts)
        elif table.session is not self.session:
            table.reopen(self, task, parts)
        memory.used(key, table)
        return table

    def static(self, task: Task, previous: FactScores | None = None) -> FactScores:
        """Return the task's results of parts that depend on FACTS alone, shared by tasks that these parts read equally.

        ``previous`` is the result that the task's table holds already.
        """
        key, memory = self.keys.facts(task), self._tables()
        found = previous if previous is not None and previous.key == key else memory.statics.get(key)
        if found is None:
            self.evaluations += 1
            parts = [self.keys.fixed_parts[at] for at in self.keys.fixed(task)]
            found = memory.statics[key] = FactScores.of(key, task, parts, self.nodes, self.everywhere)
        memory.used_static(found)
        return found

    @property
    def node_groups(self) -> NodeGroups:
        """The nodes, grouped by resources and usage."""
        found = self.memory.node_groups
        if found is None:
            parts: tuple[Part, ...] = (*self.predicates, *[score for score in self.scores if score.weight])
            found = self.memory.node_groups = NodeGroups(self.nodes, [part for part in parts if is_by_usage(part)])
        return found

    def key_of(self, mask: Mask, now: Mask, points: Scores, rows: Rows | None) -> Ints:
        """Return sort keys: nodes with idle resources first, then by points, then in the seeded order.

        Nodes that do not pass get ``NOWHERE``. ``points`` are in fixed point, and overwritten.
        """
        np.minimum(points, self.limit, out=points)
        np.maximum(points, -self.limit, out=points)
        keys = points.astype(np.int64)
        keys <<= self.bits
        if np.count_nonzero(now):
            keys += now.astype(np.int64) << _NOW
        keys += self.ties if rows is None else self.ties[rows]
        np.putmask(keys, ~mask, NOWHERE)
        return keys


class NodeRating(NamedTuple):
    """How every node is rated for a task at one moment, by row.

    ``now`` marks the passing nodes with enough idle resources. ``points`` are by score, weighted, in fixed point.
    ``sum`` omits points that all nodes share. The largest of ``keys`` is the best node; the smallest int64 means that a
    node does not pass. ``refused`` counts the other nodes by reason.
    """

    passed: Mask
    now: Mask
    points: dict[str, Scores]
    sum: Scores
    keys: Ints
    refused: dict[Reason, int]


class Candidates:
    """The nodes for equivalent tasks, with a sort key each; the largest key is the best node."""

    def __init__(self, evaluator: Evaluator, task: Task, parts: ApplyingParts) -> None:
        self.reopen(evaluator, task, parts)

    def reopen(self, evaluator: Evaluator, task: Task, parts: ApplyingParts) -> None:
        """Move the table to another session. Results from facts and usage stay while they are still valid."""
        before = getattr(self, "static", None)
        if before is None:
            self._groups_position = _NEVER
            self._by_group: _ByGroup = ()
        self.session = evaluator.session
        self._evaluator = evaluator
        self.task = task
        self.static = evaluator.static(task, before)
        self._moving_predicates, self._moving_scores = parts.moving
        self._used, self._rated = parts.by_usage
        self._comparing = parts.comparing
        self._levels: list[Ints] = []
        self._off_level = 0
        self._compares = parts.compares or bool(self.static.compared)
        self._compares_facts = not (parts.compares or self._moving_predicates)
        self.is_simple = not (self._moving_predicates or self._compares)
        self._own: Candidates | None = None
        self._best_at: _Stamp | None = None
        self._keys_at: _Stamp | None = None
        if before is not self.static:
            self._log_position = -1
        if before is not self.static or self._moving_predicates:
            self._reasons: tuple[tuple[int, int], dict[Reason, int]] | None = None

    # --- queries ------------------------------------------------------------------------------------------------------

    def best(self) -> int | None:
        """Return the row of the best node, or None if no node passes."""
        if self.is_simple and self._log_position < 0 and self._groups_position == _NEVER:
            row = self._best_of_groups()
            if row is not None:
                return row
        self._catch_up()
        if self.is_simple:
            return _highest_key(self._keys)
        stamp = self._stamp()
        if self._best_at != stamp:
            self._best, self._best_at = self._best_combined(), stamp
        return self._best

    def _best_of_groups(self) -> int | None:
        """Return the best row from the node groups alone, or None if they do not decide it."""
        passed, now, points = self._groups(stored=False)
        worth = among(now if now is passed or now.any() else passed, points)
        if self.static.offset is not None and self.static.points is not None:
            row = self._best_of_first(worth)
            return (
                self._best_of(worth.take(self._evaluator.node_groups.of) + self.static.offset) if row is None else row
            )
        highest = _highest_of(worth)
        if not abs(highest) <= self._evaluator.limit:
            return None
        rows = self._evaluator.node_groups.rows_in(worth == highest)
        if self.static.mask is not self._evaluator.everywhere:
            rows = rows[self.static.mask[rows]]
        return self._first(rows) if len(rows) else None

    def _best_of_first(self, worth: Scores) -> int | None:
        """Return the best row if it is one of the nodes that facts put first, or None if it may be another.

        ``worth`` holds points by group, -inf for groups that do not pass.
        """
        of = self._evaluator.node_groups.of
        first = self.static.first(worth, of)
        among_first = worth.take(of.take(first.rows))
        highest, most = _highest_of(among_first), _highest_of(worth)
        if highest + first.points <= first.next + most:
            return None
        if not abs(highest) + abs(first.points) + abs(most) <= min(self._evaluator.limit, EXACT):
            return None
        return self._first(first.rows[among_first == highest])

    def _best_of(self, points: Scores) -> int | None:
        """Return the best row by points of all nodes (-inf: does not pass), or None if points exceed a key's range."""
        highest = _highest_of(points)
        return self._first((points == highest).nonzero()[0]) if abs(highest) <= self._evaluator.limit else None

    def _first(self, rows: Rows) -> int:
        """Return the first of the rows in the seeded order."""
        return int(rows[0] if len(rows) == 1 else rows[self._evaluator.ties[rows].argmax()])

    def _stamp(self) -> _Stamp:
        """Return a value that changes whenever combined keys may change."""
        return self._log_position, self.session.trial.changes

    def best_in_turn(self, count: int) -> list[int]:
        """Return the best nodes for ``count`` tasks, placed one after the other, as long as idle resources suffice.

        Return no rows if a placement may change more than the key of its own node.
        """
        if self._comparing or self.static.compared:
            return []
        if not all(part.stable_for(self.task, count) for part in self._moving_predicates):
            return []
        if self._moving_scores:
            return self._best_by_groups(count)
        keys = self.keys()
        heap = self._heap_of(_highest_with_room(keys, count), keys)
        found: list[int] = []
        while heap:
            key, row, later = heappop(heap)
            best_other = heap[0][0] if heap else -_HAS_ROOM
            while key < best_other:
                found.append(row)
                if len(found) == count:
                    return found
                key = -next(later)
            if key < -_HAS_ROOM:
                heappush(heap, (key, row, later))
        return found

    def _best_by_groups(self, count: int) -> list[int]:
        """Return ``best_in_turn`` if one score follows the placements, with equal points for all nodes of a group."""
        score = self._moving_scores[0]
        turn = score.in_turn(self.task) if len(self._moving_scores) == 1 else None
        if turn is None:
            return []
        evaluator = self._evaluator
        keys, most = self._passing_keys(), evaluator.limit // 2
        now = (keys > _HAS_ROOM).nonzero()[0]
        groups, ranks = turn.of[now], keys[now]
        if not len(now) or np.abs((ranks - (1 << _NOW)) >> evaluator.bits).max() > most:
            return []
        rated = np.bincount(groups, minlength=turn.count)
        heads = np.zeros(len(rated), np.int64)  # 0 means "none": each key with idle resources is larger
        np.maximum.at(heads, groups, ranks)
        heaps: dict[int, _Heap] = {}
        found: list[int] = []
        while len(found) < count and rated.any():
            points = fixed_point(score, turn.points(rated))
            if not np.abs(points).max() <= most:
                break
            group = int((heads + (points.astype(np.int64) << evaluator.bits)).argmax())
            if group not in heaps:
                heaps[group] = self._heap_of(now[groups == group].tolist(), keys)
            heap = heaps[group]
            _, row, later = heap[0]
            found.append(row)
            turn.place(group)
            key = next(later)
            if key > _HAS_ROOM:
                heapreplace(heap, (-key, row, later))
            else:
                heappop(heap)
                rated[group] -= 1
            heads[group] = -heap[0][0] if heap else 0
        return found

    def _heap_of(self, rows: list[int], keys: Ints) -> _Heap:
        """Return a heap of nodes, the largest key first. No two keys are equal."""
        own, together = self._own_table(), list[dict[int, int]]()
        heap = [(-keys.item(row), row, own.keys_after(row, rows, together)) for row in rows]
        heapify(heap)
        return heap

    def keys_after(self, row: int, rows: list[int], together: list[dict[int, int]]) -> Iterator[int]:
        """Yield the keys of a passing node after one more task of this shape, after two, and so on without end.

        Where no existing group equals the node, keys are computed for all ``rows`` at once and shared through
        ``together``.
        """
        nodes, more = self._evaluator.nodes, self.task.deltas.allocate
        sole = nodes.sole(row, self.task.shape)
        for added in count_from(1):
            if sole is not None and (len(rows) > _FEW or sole + added < len(self._levels)):
                yield self.level(sole + added).item(row)
                continue
            key = self.key_in_group(row, added) if len(rows) <= _FEW else None
            while key is None and len(together) < added:
                places = np.array(rows, np.intp)
                keys = self.keys_of(nodes.usage.take(places).plus(more, len(together) + 1), places)
                together.append(dict(zip(rows, keys.tolist(), strict=True)))
            yield together[added - 1][row] if key is None else key

    def _own_table(self) -> Candidates:
        """Return the table of the nodes' own keys: this one without the parts that depend on MOVING."""
        if self._own is None and not self.is_simple:
            evaluator, task = self._evaluator, self.task
            self._own = evaluator.table_of(task, *evaluator.keys.find(task, moving=False))
        return self._own or self

    def without(self, rows: Sequence[int], why: Reason) -> OtherCandidates:
        """Return this table without some nodes."""
        return OtherCandidates(self, list(rows), why)

    def passes(self, row: int) -> bool:
        """Whether a node takes the task, now or after releases."""
        return bool(self.keys()[row] != NOWHERE)

    def keys(self) -> Ints:
        """Return the current keys of all nodes; the smallest int64 marks nodes that do not pass."""
        self._catch_up()
        if not self.is_simple and self._keys_at != (stamp := self._stamp()):
            evaluator, self._keys_at = self._evaluator, stamp
            self._keys = evaluator.key_of(*self._combine(), None) if self._compares else self._passing_keys()
        return self._keys

    def _passing_keys(self) -> Ints:
        """Return the keys of a table that compares no nodes, without the moving scores."""
        keys = self._own_table().keys()
        for predicate in self._moving_predicates:
            keys = np.where(predicate.mask(self.task, self._evaluator.nodes.usage), keys, NOWHERE)
        return keys

    def passing(self) -> Mask:
        """Return the nodes that take the task, now or after releases."""
        result: Mask = self.keys() != NOWHERE
        return result

    def best_to_wait(self) -> int | None:
        """Return the best node where the task may wait: every failed predicate must be one with ``waits``.

        Return None if there is no such node. Call this only if no node passes.
        """
        if not any(predicate.waits for predicate in self._moving_predicates):
            return None
        passing = self.passing_on_all() & fits(self.task.floor, self._evaluator.nodes.usage.future_idle)
        return next(best_first(self.rating(passing), passing), None)

    def resolvable(self) -> Mask:
        """Return the nodes that take the task, or would take it after the right evictions."""
        task, usage = self.task, self._evaluator.nodes.usage
        result = self.static.mask.copy()
        for predicate in (*self._used, *self._moving_predicates):
            failed = ~predicate.mask(task, usage)
            if failed.any():
                result &= ~predicate.unresolvable_nodes(task, usage, failed)
        return result

    def rating(self, among: Mask) -> Ints:
        """Return keys of the nodes ``among``, whatever their free resources; the smallest int64 marks the others."""
        _, _, rating = self._groups(stored=False)
        _, points = self._with_facts(among, rating[self._evaluator.node_groups.of], None)
        self._add_comparing(points, among)
        return self._evaluator.key_of(among, np.zeros_like(among), points, None)

    def rated(self) -> NodeRating:
        """Rate all nodes now, score by score."""
        task, usage = self.task, self._evaluator.nodes.usage
        passed, now, together = self._combine()
        among, points = now if now.any() else passed, dict[str, Scores]()
        for score in self._evaluator.scores:
            if score.weight and score.applies(task):
                raw = score.raw(task, usage)
                of_score = fixed_point(score, score.normalise(raw, among))
                points[score.name] = points.get(score.name, 0) + of_score
        keys = self._evaluator.key_of(passed, now, together.copy(), None)
        return NodeRating(passed, now, points, together, keys, self.reasons())

    def passes_on(self, row: int) -> bool:
        """Whether a node passes all predicates now, its free resources aside."""
        if not self.static.mask[row]:
            return False
        usage = self._evaluator.nodes.usage.one(row)
        for predicate in (*self._used, *self._moving_predicates):  # noqa: SIM110 - called for each victim
            if not predicate.mask(self.task, usage).item():
                return False
        return True

    def passing_on_all(self) -> Mask:
        """Return ``passes_on`` for every node."""
        usage = self._evaluator.nodes.usage
        usage = usage.take(np.arange(len(usage)))
        result = self.static.mask.copy()
        for predicate in (*self._used, *self._moving_predicates):
            result &= predicate.mask(self.task, usage)
        return result

    # --- updates ------------------------------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        log = self._evaluator.memory.log
        start, end = self._log_position, len(log)
        if start == end:
            return
        self._log_position = end
        if not self.is_simple:
            return  # keys of such a table are combined when they are read
        if start < 0:
            self._renew(None)
            return
        touched = log[start:end]
        if len(touched) > 1:
            touched = sorted(set(touched))
        if len(touched) <= _FEW:
            touched = self._read_levels(touched)
        if touched:
            self._renew(touched)

    def _read_levels(self, touched: list[int]) -> list[int]:
        """Read keys from levels for nodes that received only tasks of this shape; return the other rows."""
        shape, sole, left = self.task.shape, self._evaluator.nodes.sole, []
        for row in touched:
            count = sole(row, shape)
            if count is not None and count >= len(self._levels) and self._off_level < _FEW:
                count, self._off_level = None, self._off_level + 1  # a level pays off only for more than a few nodes
            if count is None:
                left.append(row)
            else:
                self._put(row, self.level(count)[row])
        return left

    def _renew(self, touched: list[int] | None) -> None:
        """Recompute the keys of all nodes (None) or of some."""
        evaluator = self._evaluator
        if touched is None:
            keys = self._keys_by_group(None)
            if (keys != NOWHERE).any():
                self._keys = keys
            else:  # no node passes: tables share one column, to save memory
                self._keys = evaluator.memory.nowhere
                self._groups_position, self._by_group = _NEVER, ()
        elif self._by_group and len(touched) <= _FEW:
            columns, of = self._groups(), evaluator.node_groups.of
            found = self._keys_in(columns, [(of.item(row), row) for row in touched])
            self._put(np.array(touched, np.intp), np.array(found, np.int64))
        else:
            rows = np.array(touched, np.intp)
            taken = evaluator.nodes.usage.take
            self._put(rows, self._keys_by_group(rows) if self._by_group else self.keys_of(taken(rows), rows))

    def _keys_by_group(self, rows: Rows | None) -> Ints:
        """Return the keys of all or some nodes in a simple table, from the results of the nodes' groups."""
        columns, of = self._groups(), self._evaluator.node_groups.of
        passed, now, points = (column[of if rows is None else of[rows]] for column in columns)
        return self._keyed(passed, now, points, rows)

    def key_in_group(self, row: int, count: int) -> int | None:
        """Return the key of a passing node after ``count`` more tasks of this shape, if a group has that usage."""
        columns = self._groups()
        group = self._evaluator.node_groups.after(row, self.task.deltas.allocate * count)
        return None if group is None else self._keys_in(columns, [(group, row)])[0]

    def _keys_in(self, columns: _ByGroup, places: Iterable[tuple[int, int]]) -> list[int]:
        """Return the keys of (group, row) pairs, by the formula of ``_keyed``."""
        evaluator, mask, facts = self._evaluator, self.static.mask, self.static.points
        (passed, now, points), limit, bits, ties = columns, evaluator.limit, evaluator.bits, evaluator.ties
        keys: list[int] = []
        for group, row in places:
            if passed.item(group) and mask.item(row):
                worth = points.item(group) if facts is None else points.item(group) + facts.item(row)
                worth = int(max(-limit, min(limit, worth)))  # the same limits as in ``key_of``
                keys.append((worth << bits) + (now.item(group) << _NOW) + ties.item(row))
            else:
                keys.append(NOWHERE)
        return keys

    def _groups(self, stored: bool = True) -> _ByGroup:
        """Return what resources and usage decide per group of nodes: passes, has idle resources, points.

        Pass ``stored=False`` if one use is enough: many tables are read only once, so their first result is not stored.
        """
        node_groups = self._evaluator.node_groups
        node_groups.catch_up()
        start, end = self._groups_position, len(node_groups.log)
        if start == _NEVER and not stored:
            self._groups_position = _ONCE
            return self._by_usage(node_groups.usage())
        if start != end:
            self._groups_position = end
            numbers = None if start < 0 else np.array(sorted(set(node_groups.log[start:end])), np.intp)
            found = self._by_usage(node_groups.usage(numbers))
            if numbers is None:
                self._by_group = tuple(np.zeros(len(node_groups.of), column.dtype) for column in found)
            for column, new in zip(self._by_group, found, strict=True):
                column[slice(len(new)) if numbers is None else numbers] = new
        return self._by_group

    def _put(self, rows: Rows | int, keys: Any) -> None:
        if self._keys is self._evaluator.memory.nowhere:
            if not np.any(keys != NOWHERE):
                return
            self._keys = self._keys.copy()
        self._keys[rows] = keys

    @property
    def is_light(self) -> bool:
        """Whether the table stores no columns of its own, because no node passes."""
        return (
            self.is_simple
            and not self._levels
            and self._log_position >= 0
            and self._keys is self._evaluator.memory.nowhere
        )

    def _by_usage(self, usage: Usage) -> tuple[Mask, Mask, Scores]:
        """Return which nodes pass, which of them have idle resources now, and points, by resources and usage alone."""
        self._evaluator.evaluations += 1
        task = self.task
        awaits_room = self._evaluator.nodes.awaits_room
        passed = fits(task.floor, usage.future_idle if awaits_room else usage.idle)
        for predicate in self._used:
            passed &= predicate.mask(task, usage)
        now = passed & fits(task.floor, usage.idle) if awaits_room else passed
        points: Scores | None = None
        for score in self._rated:
            added = fixed_point(score, score.raw(task, usage))
            points = added if points is None else np.add(points, added, points)
        return passed, now, np.zeros(len(usage)) if points is None else points

    def _with_facts(self, passed: Mask, points: Scores, rows: Rows | None) -> tuple[Mask, Scores]:
        """Add the facts' mask and points for all nodes or some; ``points`` are overwritten."""
        static = self.static
        if static.mask is not self._evaluator.everywhere:
            passed = passed & (static.mask if rows is None else static.mask[rows])
        if static.points is not None:
            points += static.points if rows is None else static.points[rows]
        return passed, points

    def _keyed(self, passed: Mask, now: Mask, points: Scores, rows: Rows | None) -> Ints:
        """Return the keys of all nodes or some of a simple table; ``points`` are overwritten."""
        passed, points = self._with_facts(passed, points, rows)
        return self._evaluator.key_of(passed, now, points, rows)

    def keys_of(self, usage: Usage, rows: Rows | None) -> Ints:
        """Return the keys of some rows, or all, from facts and the given usage."""
        return self._keyed(*self._by_usage(usage), rows)

    def level(self, count: int) -> Ints:
        """Return the keys as if every node had ``count`` more tasks of this shape than when the session began."""
        levels = self._levels
        while len(levels) <= count:
            usage = self._evaluator.nodes.opened.plus(self.task.deltas.allocate, len(levels))
            levels.append(self.keys_of(usage, None))
        return levels[count]

    def _combine(self) -> tuple[Mask, Mask, Scores]:
        """Return which nodes pass, which have idle resources now, and the points, with all parts included."""
        task, usage = self.task, self._evaluator.nodes.usage
        passes, has_room, rating = self._groups()
        evaluator = self._evaluator
        of = evaluator.node_groups.of
        passed, points = self._with_facts(passes.take(of), rating.take(of), None)
        for predicate in self._moving_predicates:
            passed &= predicate.mask(task, usage)
        # as Volcano: nodes with idle resources are rated among themselves, the others only if there are none
        now = passed if has_room is passes else has_room.take(of) & passed
        self._add_comparing(points, now if now.any() else passed)
        return passed, now, points

    def _best_combined(self) -> int | None:
        """Return the best row by points, without building the keys of all nodes."""
        evaluator = self._evaluator
        passes, has_room, rating = self._groups(stored=False)
        if self._compares_facts:
            row = self._best_of_first(among(has_room, rating))
            if row is not None:
                return row
        masks = [predicate.mask(self.task, evaluator.nodes.usage) for predicate in self._moving_predicates]
        points = self._points_of(has_room, rating, masks)
        rated = points > -np.inf
        if has_room is not passes and not rated.any():
            points = self._points_of(passes, rating, masks)
            rated = points > -np.inf
        self._add_comparing(points, rated)
        row = self._best_of(points)
        if row is None and rated.any():
            return _highest_key(evaluator.key_of(*self._combine(), None))
        return row

    def _points_of(self, groups: Mask, rating: Scores, masks: list[Mask]) -> Scores:
        """Return points, without comparing scores, of nodes that pass the groups and all ``masks``; -inf for others."""
        points = among(groups, rating).take(self._evaluator.node_groups.of)
        if self.static.offset is not None:
            points += self.static.offset
        for mask in masks:
            np.putmask(points, ~mask, -np.inf)
        return points

    def _add_comparing(self, points: Scores, candidates: Mask) -> None:
        """Add the scores that compare nodes with each other, or depend on other pods, the job, queues or time."""
        task, usage = self.task, self._evaluator.nodes.usage
        for compared in self.static.compared:
            points += compared.points(candidates)
        for score in (*self._comparing, *self._moving_scores):
            points += fixed_point(score, score.normalise(score.raw(task, usage), candidates))

    # --- reasons ------------------------------------------------------------------------------------------------------

    def reasons(self) -> dict[Reason, int]:
        """Return why nodes do not take the task, with node counts. Each node counts for its first reason only."""
        self._catch_up()
        stamp = (self._log_position, self.session.trial.changes if self._moving_predicates else 0)
        if self._reasons is None or self._reasons[0] != stamp:
            self._reasons = (stamp, self._count_reasons())
        return self._reasons[1]

    def _count_reasons(self) -> dict[Reason, int]:
        self._evaluator.evaluations += 1
        counts: Counter[Reason] = Counter()
        task, usage, nodes = self.task, self._evaluator.nodes.usage, self._evaluator.nodes
        room = usage.future_idle
        short = task.floor[:, None] > room
        remaining = ~short.any(axis=0)
        for column, name in enumerate(nodes.resources):
            lacking = int(short[column].sum())
            if lacking:
                if name == UNOFFERED:
                    name = unoffered(nodes.column_of, task.shape.requests)
                counts[_TOO_MANY_PODS if name == PODS else _INSUFFICIENT({"resource": name})] += lacking
        for predicate in self._evaluator.predicates:
            if not predicate.applies(task):
                continue
            failed = remaining & ~predicate.mask(task, usage)
            if failed.any():
                counts.update(predicate.reasons(task, usage, failed))
            remaining &= ~failed
        return dict(sorted(counts.items(), key=lambda item: item[0].words))


class OtherCandidates:
    """A table without the nodes ``rows``, which the task cannot have for the reason ``why``."""

    def __init__(self, table: Candidates, rows: list[int], why: Reason) -> None:
        self._table, self._rows, self._why = table, rows, why

    def best(self) -> int | None:
        """Same as ``Candidates.best``."""
        return _highest_key(self.keys())

    def keys(self) -> Ints:
        """Same as ``Candidates.keys``."""
        return self._less(self._table.keys(), NOWHERE)

    def rated(self) -> NodeRating:
        """Same as ``Candidates.rated``."""
        rating = self._table.rated()
        count = int(rating.passed[self._rows].sum())
        return rating._replace(
            passed=self._less(rating.passed, False),
            now=self._less(rating.now, False),
            keys=self._less(rating.keys, NOWHERE),
            refused=rating.refused | ({self._why: count} if count else {}),
        )

    def _less(self, column: npt.NDArray[Any], nothing: Any) -> npt.NDArray[Any]:
        result = column.copy()
        result[self._rows] = nothing
        return result


def _highest_key(keys: Ints) -> int | None:
    if not keys.size:
        return None
    row = int(keys.argmax())
    return None if keys[row] == NOWHERE else row


def _highest_of(points: Scores) -> float:
    """Return the largest value, -inf if there is none."""
    return points.item(points.argmax()) if points.size else -np.inf


def _highest_with_room(keys: Ints, count: int) -> list[int]:
    """Return the rows of the ``count`` largest keys among nodes with idle resources, or fewer if there are fewer."""
    if count > _FEW:
        now = keys[keys > _HAS_ROOM]
        least = np.partition(now, -count)[-count] if len(now) > count else _HAS_ROOM + 1
        return list(np.flatnonzero(keys >= least).tolist())
    left, found = keys.copy(), []
    for _ in range(min(count, len(left))):
        row = int(left.argmax())
        if left[row] <= _HAS_ROOM:
            break
        found.append(row)
        left[row] = NOWHERE
    return found


def best_first(keys: Ints, among: Mask) -> Iterator[int]:
    """Yield the rows ``among`` that have a key, the largest key first."""
    left = np.where(among, keys, NOWHERE)
    while left.size:
        row = int(left.argmax())
        if left[row] == NOWHERE:
            return
        yield row
        left[row] = NOWHERE


def rate_last(keys: Ints, rows: Sequence[int]) -> None:
    """Move some nodes that have a key behind all others, in the order of ``rows``."""
    for place, row in enumerate(reversed(rows), 1):
        if keys[row] != NOWHERE:
            keys[row] = NOWHERE + place


class Memory:
    """What tables computed, carried from session to session. A cache: decisions are the same without it."""

    def __init__(self) -> None:
        self.turn = 0
        """How many sessions opened it. Its contents belong to the last of them."""
        self.tables: dict[Any, Candidates] = {}
        self.statics: dict[Hashable, FactScores] = {}
        self.nowhere: Ints = np.zeros(0, np.int64)
        """The keys of every table in which no node passes; read-only."""
        self.node_groups: NodeGroups | None = None
        self._recent: dict[Any, Candidates] = {}
        self._most = self._uses = 0
        self.log: list[int] = []
        self._facts: NodeFacts | None = None
        self._key: Any = None
        self._nodes: Nodes | None = None

    def reset(self) -> None:
        """Forget everything: after an aborted session, tables may reflect placements that never happened."""
        self._forget()
        self._facts = self._nodes = self._key = None

    def open(self, evaluator: Evaluator) -> int:
        """Begin a session: drop invalid results, log the nodes whose usage changed, and return the new ``turn``."""
        nodes = evaluator.nodes
        key = (evaluator.versions, evaluator.session.seed, nodes.resources)
        if self._facts is not nodes.facts or self._key != key or self._nodes is None:
            self._forget()
            self.nowhere = np.full(len(nodes), NOWHERE)
            self.nowhere.flags.writeable = False
        else:
            last = self._nodes.usage.matrix
            changed = np.flatnonzero((last != nodes.usage.matrix).any(axis=0)).tolist()
            self._drop_unused()
            self.log.extend(changed)
        nodes.note_in(self.log)
        if self.node_groups is not None:
            self.node_groups.nodes = nodes
        self._most = max(_FEWEST_TABLES, _COLUMNS // max(1, len(nodes)))
        self._facts, self._key, self._nodes = nodes.facts, key, nodes
        self.turn += 1
        return self.turn

    def used(self, key: Any, table: Candidates) -> None:
        """Note a use of a table. Of the least recently used tables, only those without columns stay."""
        recent = self._recent
        recent.pop(key, None)
        recent[key] = table
        if len(recent) > self._most:
            oldest = next(iter(recent))
            last = recent.pop(oldest)
            if not last.is_light:
                self.tables.pop(oldest, None)

    def used_static(self, static: FactScores) -> None:
        """Note a use of a static result. The least recently used ones stay only as part of their tables."""
        self._uses += 1
        static.used = self._uses
        if len(self.statics) > self._most:
            recent = sorted(self.statics.values(), key=lambda each: each.used)[-self._most // 2 :]
            self.statics = {each.key: each for each in recent}

    def _drop_unused(self) -> None:
        """Drop tables that the last session did not use; drop everything when the log has grown too long."""
        last = self._nodes
        self.tables = {key: table for key, table in self.tables.items() if table.session.nodes is last}
        self._recent = {key: table for key, table in self._recent.items() if key in self.tables}
        if len(self.log) > 1_000_000:
            self._forget()

    def _forget(self) -> None:
        self.tables.clear()
        self.statics.clear()
        self._recent.clear()
        self.node_groups = None
        self.log.clear()

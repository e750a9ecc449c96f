"""Demand: which pending pods some node could take, and how much of the idle resources their jobs can use.

Queue plugins divide resources by demand. A pod that no node can ever take must not count, because its request would
stay idle while it waits. Current usage does not matter: a pod that waits because the cluster is full counts. Node facts
matter (labels, taints, allocatable), and the predicates' ``reachable`` and ``divisions``, which consider pods that will
be placed later and pods that exclude each other. ``usable`` is stricter, because it withholds resources from others
now: it excludes nodes that currently refuse a pod for anything except resources.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vcd.model.status import READY_STATUSES, Phase, TaskStatus
from vcd.scheduling.framework.feasibility import MANY, Feasibility
from vcd.scheduling.framework.framework import Framework, framework_of
from vcd.scheduling.search.parts import Mask, Reads, distinguishes_pods
from vcd.scheduling.search.podterms import has_required_affinity, has_required_anti_affinity
from vcd.scheduling.session.job_columns import has_roles
from vcd.scheduling.session.nodes import room_needed
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.state.group_columns import GroupColumns, scheduling_gated
from vcd.state.records import Shape, is_unsupported
from vcd.state.sums import Ints, sum_of, sums_by

_READY = np.array([status in READY_STATUSES for status in TaskStatus], np.int64)
_HAVE = np.array([status in (*READY_STATUSES, TaskStatus.PIPELINED) for status in TaskStatus], np.int64)
_MOST_CLAIMS = 256
"""Kinds of pods with a later turn whose claims a session examines. Claims of further kinds count as accepted."""


def demand_of(session: Session) -> Demand:
    """Return the session's demand, computed on first use. Needs an opened framework."""
    return session.provided(Demand, lambda: Demand(framework_of(session)))


class _Kinds(NamedTuple):
    """Pending pods grouped by equivalence; one pod is evaluated for all pods of its kind.

    ``of`` is each pod's kind, ``first`` the position of one pod of each kind, and ``order`` the positions sorted by
    kind; the positions of kind k begin at ``starts[k]``.
    """

    of: Ints
    first: Ints
    order: Ints
    starts: Ints

    def places(self, kind: int) -> Ints:
        return self.order[self.starts[kind] : self.starts[kind + 1]]


class Demand:
    """The pods of a session's jobs that were pending when it began, one entry each.

    ``rows`` are rows of the snapshot's tasks, ``jobs`` the jobs' indices (ascending). ``can_be_placed`` is False for a
    pod of a queue that is not Open, with a scheduling gate, with unsupported fields, with claims that are refused, or
    that no empty node could take. If a plugin waits for complete gangs, ``can_be_placed`` is also False for all pods of
    a job if the pods that can be placed are fewer than its minimum.
    """

    def __init__(self, framework: Framework) -> None:
        self._framework = framework
        self._session = session = framework.session
        self.rows, self.jobs = session.views.pending.rows, session.views.pending.jobs
        self._shapes = session.snapshot.tasks.shape[self.rows]
        self.feasibility = Feasibility(framework)
        self._coming = np.zeros(len(session.job_of_row), np.bool_)
        """Pods, by row, that may be placed later, so that affinity to them can be satisfied."""
        self._most = self._most_together()
        self.can_be_placed = self._can_be_placed()
        self._never = np.zeros(len(session.job_of_row), np.bool_)
        self._never[self.rows[~self.can_be_placed]] = True

    def excluded(self) -> Ints:
        """Return the requests of pods that cannot be placed, as (queues, resources)."""
        never = ~self.can_be_placed
        requests = self._session.requests[self._shapes[never]]
        return sums_by(self._session.jobs.queue[self.jobs[never]], requests, len(self._session.queue_list))

    def is_excluded(self, task: Task) -> bool:
        """Return whether a pending task cannot be placed."""
        return bool(self._never[task.row])

    def may_gain(self, job: Job) -> bool:
        """Return whether a job has pods that can be placed. If it has none, lent resources do not help it."""
        return job.index in self._placeable

    @cached_property
    def _placeable(self) -> frozenset[int]:
        return frozenset(self.jobs[self.can_be_placed].tolist())

    def without(self, rows: Mask) -> Mask:
        """Return rows of tasks without pods that cannot be placed."""
        result: Mask = rows & ~self._never
        return result

    @cached_property
    def groups(self) -> GroupColumns:
        """The session's groups, without reservations that nothing could use.

        A pod that no node can take reserves nothing. Neither does a group if too few of its pods have a node for its
        minimum, or for that of a role. A group that still lacks pods reserves its minimum.
        """
        session, jobs = self._session, self._session.jobs
        if not len(session.nodes):
            return jobs
        pending = np.bincount(self.jobs, minlength=len(jobs))
        possible = self._possible(self._most > 0)
        ready = jobs.counts @ _READY
        never = (possible < pending) & (possible + ready < np.maximum(jobs.min_member, 1))
        never |= self._lacks_role(self._most > 0) & (pending + ready >= np.maximum(jobs.min_member, 1))
        never |= session.unsupported
        requests = session.requests[self._shapes]
        more = self._most == 0
        more &= ~(session.nodes.facts.too_large(requests) | scheduling_gated(session.snapshot, self.rows))
        of_job = self.jobs[more]
        rows = np.flatnonzero(never | (np.bincount(of_job, minlength=len(jobs)) > 0))
        return jobs.holding_back(rows, sums_by(of_job, requests[more], len(jobs))[rows], never[rows])

    def usable(self, unused: Ints) -> dict[int, Ints]:
        """Return how much of ``unused`` resources, as (queues, resources), each queue's admitted jobs can use now, by
        queue.

        A job can use them if the rest of its minimum, or one pod, fits into them. The sum is limited to whole pods that
        fit the future idle resources of feasible nodes. The result follows the session's placements.
        """
        session = self._session
        waits = self.can_be_placed & self._still_pending()
        counts = np.bincount(self.jobs[waits], minlength=len(session.jobs))
        chosen = np.flatnonzero((counts > 0) & (self._phases() != Phase.PENDING))
        totals = sums_by(self.jobs[waits], session.requests[self._shapes[waits]], len(session.jobs))[chosen]
        pending, queues = counts[chosen], session.jobs.queue[chosen]
        needed = np.clip(session.jobs.min_member[chosen] - self._placed_counts()[chosen], 1, pending)
        whole, rest = np.divmod(totals, pending[:, None])
        wish = whole * needed[:, None] - (-rest * needed[:, None] // pending[:, None])
        wish[:, session.nodes.column_of["pods"]] = 0
        able = ((wish <= unused[queues]) | (wish == 0)).all(axis=1) & wish.any(axis=1)
        limits = np.minimum(sums_by(queues[able], totals[able], len(unused)), unused)
        can_continue = np.zeros(len(session.jobs), np.bool_)
        can_continue[chosen[able]] = True
        places = self._with_idle_node(np.flatnonzero(waits & can_continue[self.jobs]))
        owners = session.jobs.queue[self.jobs[places]]
        return {queue: self._usable_by(places[owners == queue], limits[queue]) for queue in np.unique(owners).tolist()}

    def release(self) -> None:
        """Drop the tasks, which refer to their jobs."""
        self.feasibility.release()

    # --- what can be placed -----------------------------------------------------------------------------------------

    def _can_be_placed(self) -> Mask:
        session, free = self._session, self._is_free()
        result: Mask = free & (self._most > 0)
        if self._framework.participants["job_ready"].methods:
            jobs = session.jobs
            whole = self._possible(result) + jobs.counts @ _READY >= jobs.min_member
            result &= (whole & ~self._lacks_role(result))[self.jobs]
        return result

    def _lacks_role(self, chosen: Mask) -> Mask:
        """Return which jobs have too few pods of a role (minTaskMember) if only chosen pending pods count."""
        jobs = self._session.jobs
        result = jobs.lacks_role.copy()
        lost = np.zeros(len(self._session.job_of_row), np.bool_)
        lost[self.rows[~chosen]] = True
        for index in np.unique(self.jobs[~chosen & jobs.derived(has_roles)[self.jobs]]).tolist():
            result[index] = jobs.lacks(index, [row for row in jobs.rows_of(index) if not lost[row]])
        return result

    def _is_free(self) -> Mask:
        """Return which pods are prevented from being placed by nothing except nodes."""
        session = self._session
        is_open = np.array([queue.is_open for queue in session.queue_list], np.bool_)
        held = scheduling_gated(session.snapshot, self.rows) | session.unsupported[self.jobs]
        free: Mask = is_open[session.jobs.queue[self.jobs]] & ~held
        return free

    def _possible(self, chosen: Mask) -> Ints:
        """Return how many of the chosen pods of each job the nodes could take together if they were empty."""
        jobs, most = self._session.jobs, self._most
        possible = np.bincount(self.jobs[chosen], minlength=len(jobs))
        tight = chosen & (most < possible[self.jobs])
        pairs = self.jobs[tight] * len(self._session.snapshot.shapes) + self._shapes[tight]
        _, first, counts = np.unique(pairs, return_index=True, return_counts=True)
        surplus = np.maximum(counts - most[tight][first], 0)
        return possible - np.bincount(self.jobs[tight][first], surplus, minlength=len(jobs)).astype(np.int64)

    def _most_together(self) -> Ints:
        """Return for each pod how many equivalent ones the nodes could take together if they were empty."""
        session = self._session
        claims, near, apart = (
            session.snapshot.shape_columns.flags(of)[self._shapes]
            for of in (_names_volumes, has_required_affinity, has_required_anti_affinity)
        )
        kinds = self._kinds(claims | near, apart)
        self._coming = (session.snapshot.tasks.status == TaskStatus.PENDING) & bool(near.any())
        self._coming[self.rows] = False  # the remaining ones are pods of other schedulers
        found = np.full(len(kinds.first), MANY)
        by_pods = (claims | near | apart | self.feasibility.is_by_pod)[kinds.first]
        aside = np.bincount(kinds.of, ~session.turns.aside[self.jobs], len(kinds.first)) == 0
        supported = ~session.snapshot.shape_columns.flags(is_unsupported)[self._shapes[kinds.first]]
        later = by_pods & aside
        for chosen, by_facts in ((~by_pods & supported, False), (later & supported, True)):
            found[chosen] = self._count_plain(kinds.first[chosen], by_facts=by_facts)
        for kind in self._in_order(kinds, np.flatnonzero(later & claims[kinds.first]))[:_MOST_CLAIMS]:
            if self._is_refused(session.task(int(self.rows[kinds.first[kind]]))):
                found[kind] = 0
        for kind in self._in_order(kinds, np.flatnonzero(by_pods & ~aside)):
            at = int(kinds.first[kind])
            is_refused = bool(claims[at]) and self._is_refused(session.task(int(self.rows[at])))
            near[at] &= not is_refused
            found[kind] = 0 if is_refused else self._count(kinds, kind)
        if near.any():
            waiting = np.flatnonzero(near[kinds.first] & (found == 0))
            self._await_company(kinds, found, self._in_order(kinds, waiting))
        result: Ints = found[kinds.of]
        return result

    def _count_plain(self, places: Ints, *, by_facts: bool) -> list[int]:
        """Return for each kind how many of its pods the nodes could take together, if claims and other pods do not
        matter.

        ``places`` has the position of one pod per kind. With ``by_facts``, claims and other pods are ignored, for kinds
        that are tried in another session. Results are cached until the nodes' facts or the predicates change.
        """
        versions = self._framework.evaluator.versions
        known: dict[Hashable, int] = self._session.nodes.facts.cached(("pods together", by_facts, versions), dict)
        rows = self.rows[places].tolist()
        keys = self.feasibility.keys(rows)
        new = {key: row for key, row in zip(keys, rows, strict=True) if key not in known}
        for key, task in zip(new, self.feasibility.examples(list(new.values())), strict=True):
            known[key] = self._count_of(task, by_facts=by_facts)
        found = [known[key] for key in keys]
        known.clear()  # drop shapes that no pod has any more
        known.update(zip(keys, found, strict=True))
        return found

    def _count_of(self, task: Task, *, by_facts: bool) -> int:
        if by_facts:
            return self.feasibility.most_by_facts(task)
        return self.feasibility.most_together(task, self.rows[:0], self._coming)

    def _kinds(self, by_namespace: Mask, by_job: Mask) -> _Kinds:
        """Divide pods by what predicates on facts may read, and by namespace or job if claims or other pods matter."""
        namespaces = len(self._session.snapshot.namespaces) + 1
        scope = np.where(by_namespace, self._session.snapshot.tasks.namespace[self.rows] + 1, 0).astype(np.int64)
        scope = np.where(by_job, namespaces + self.jobs, scope)
        keys = self.feasibility.kinds(self.rows) * (namespaces + len(self._session.jobs)) + scope
        _, first, of, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        return _Kinds(of, first, np.argsort(of, kind="stable"), np.concatenate([[0], np.cumsum(counts)]))

    def _await_company(self, kinds: _Kinds, found: Ints, waiting: list[int]) -> None:
        """Update ``found`` for pods with required affinity to pending pods: these must be placeable, or of the same
        kind."""
        self._coming[self.rows[self._is_free() & (found[kinds.of] > 0)]] = True
        while waiting:
            for kind in waiting:
                found[kind] = self._count(kinds, kind, with_own=True)
            helped = [kind for kind in waiting if found[kind]]
            if not helped:
                return
            waiting = [kind for kind in waiting if not found[kind]]
            for places in map(kinds.places, helped):
                self._coming[self.rows[places]] = True

    def _in_order(self, kinds: _Kinds, chosen: Ints) -> list[int]:
        """Sort kinds by the key of their first pod: their numbers depend on the order in which shapes were first seen,
        and the questions of a session must not."""
        if not len(chosen):
            return []
        places = np.flatnonzero(np.isin(kinds.of, chosen))
        keys = self._session.snapshot.tasks.keys_of(self.rows[places].tolist())
        first: dict[int, str] = {}
        for kind, key in zip(kinds.of[places].tolist(), keys, strict=True):
            first[kind] = min(first.get(kind, key), key)
        return sorted(first, key=first.__getitem__)

    def _count(self, kinds: _Kinds, kind: int, with_own: bool = False) -> int:
        """Return how many pods of a kind the nodes could take together. With ``with_own``, each satisfies the affinity
        of others of its kind."""
        rows, coming = self.rows[kinds.places(kind)], self._coming
        if with_own:
            coming = coming.copy()
            coming[rows] = True
        first = min(zip(self._session.snapshot.tasks.keys_of(rows.tolist()), rows.tolist(), strict=True))[1]
        example = self.feasibility.example(first)
        if not self.feasibility.most_by_facts(example):
            return 0  # other pods can only exclude nodes, and are expensive to evaluate
        return self.feasibility.most_together(example, rows, coming)

    def _is_refused(self, task: Task) -> bool:
        """Return whether the claims that a task names are refused. Tasks with ephemeral volumes are not
        examined."""
        is_own = any(volume.ephemeral is not None for volume in task.shape.spec.volumes)
        return not is_own and self._framework.pre_predicate(task) is not None

    # --- current usage ----------------------------------------------------------------------------------------------

    def _with_idle_node(self, places: Ints) -> Ints:
        """Return the positions of pods whose request fits the future idle resources of some node."""
        nodes = self._session.nodes
        shapes, of = np.unique(self._shapes[places], return_inverse=True)
        suffices = [nodes.with_room(floor).any() for floor in room_needed(self._session.requests[shapes])]
        result: Ints = places[np.array(suffices, np.bool_)[of]]
        return result

    def _usable_by(self, places: Ints, most: Ints) -> Ints:
        """Return how much of the future idle resources some pods can use, limited to ``most``. The resource ``pods`` is
        left out."""
        session, found = self._session, np.zeros_like(most)
        future_idle = np.maximum(session.nodes.usage.future_idle, 0)
        most = np.minimum(most, sum_of(future_idle, axis=1))
        most[session.nodes.column_of["pods"]] = 0
        nodes, idle = np.zeros(len(session.nodes), np.bool_), np.zeros_like(most)
        for group in self._equivalent_groups(places):
            task, rows = self.feasibility.example(int(self.rows[group[0]])), self.rows[group]
            each = self.feasibility.fit_now(task, rows, self._coming)
            found += min(int(each.sum()), len(group)) * task.request
            if (more := (each > 0) & ~nodes).any():
                nodes |= more
                idle = sum_of(future_idle[:, nodes], axis=1)
            if (np.minimum(found, idle) >= most).all():
                break
        return np.minimum(np.minimum(found, idle), most)

    def _equivalent_groups(self, places: Ints) -> Iterator[Ints]:
        """Group pods of which one is evaluated for all: one shape and namespace, and equal labels and one job if these
        matter.

        Pods of a group, and groups by their first pod, are in order of key.
        """
        snapshot, tests = self._session.snapshot, self._framework.evaluator.predicates
        place_of = {int(self.rows[place]): place for place in places.tolist()}
        rows = snapshot.tasks.in_order(list(place_of))
        ordered = np.array([place_of[row] for row in rows], np.int64)
        namespaces = snapshot.tasks.namespace[rows]
        names = [snapshot.namespaces[number] or "" for number in np.unique(namespaces).tolist()]
        columns: list[npt.NDArray[np.signedinteger]] = [self._shapes[ordered], namespaces]
        if any(test.labels_matter_in(name) for test in tests for name in names):
            columns.append(snapshot.tasks.labels[rows])
        if any(test.reads & Reads.JOB or distinguishes_pods(test) for test in tests):
            columns.append(self.jobs[ordered])
        order = np.lexsort(columns)
        begins = np.any([np.diff(column[order], prepend=-2) != 0 for column in columns], axis=0)
        parts = [part for part in np.split(order, np.flatnonzero(begins)) if len(part)]
        yield from (ordered[part] for part in sorted(parts, key=lambda part: int(part[0])))

    def _still_pending(self) -> Mask:
        session = self._session
        status = session.snapshot.tasks.status.copy()
        for task in session.views.moves:
            status[task.row] = task.status
        status[list(session.backing_off)] = TaskStatus.UNKNOWN  # a pod that backs off withholds nothing
        result: Mask = status[self.rows] == TaskStatus.PENDING
        return result

    def _phases(self) -> Ints:
        session = self._session
        phases = session.views.phases.astype(np.int64)
        for job in session.views.jobs():
            phases[job.index] = job.phase
        for lead, others in session.classes.followers():
            phases[others] = phases[lead]
        return phases

    def _placed_counts(self) -> Ints:
        """Return how many pods of each job are placed or pipelined."""
        session = self._session
        have: Ints = session.jobs.counts @ _HAVE
        for job in session.views.jobs():
            if job.touched:
                have[job.index] = job.ready_count + job.waiting_count
        return have


def _names_volumes(shape: Shape) -> bool:
    return bool(shape.spec.volumes)

"""Verifies statements against the current state, between decision and log (docs/laws.md, law 3).

A session decides from a snapshot while events arrive; `stale_statements` returns what no longer holds. It changes no
statement and makes no request. In doubt it rejects, because the next session decides again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from vcd.model.events import Operation, Plan, Statement
from vcd.model.objects import Pod, PodGroup, PodGroupSpec, Queue
from vcd.model.resource_requests import CPU, MEMORY, PODS
from vcd.model.status import ALLOCATED_STATUSES, READY_STATUSES, TERMINATED_STATUSES, TaskStatus
from vcd.scheduling.framework import registry
from vcd.scheduling.search.predicates.claims import why_outdated
from vcd.scheduling.session.nodes import Ints, fits, room_needed
from vcd.scheduling.session.orphans import Orphans
from vcd.scheduling.session.queue_view import lineage_of
from vcd.state.interning import NO_ROW
from vcd.state.records import has_queue_gate
from vcd.state.snapshot import Snapshot
from vcd.state.sums import sum_of

_READY = tuple(map(int, READY_STATUSES))
_HOLDING = (*map(int, ALLOCATED_STATUSES), int(TaskStatus.RELEASING))
"""Terminating pods still hold what plugins limit."""


Reference = tuple[str, str]
"""Kind and key of an object."""


def placed_under(snapshot: Snapshot, group: str) -> tuple[Reference, ...]:
    """Return the objects that decide how a group's pods are placed: the group, its queue and the queues above."""
    queues = lineage_of(snapshot.queues, queue_name(snapshot, group) or "")
    return (("PodGroup", group), *(("Queue", name) for name in queues))


def evicted_under(snapshot: Snapshot, plan: Plan) -> dict[str, tuple[Reference, ...]]:
    """Return, by key of each pod that a plan evicts, the objects that can protect it.

    These are its group, the group's queue and the queues above. A pod without a group has none.
    """
    victims = {operation.key for operation in plan.operations("evict")}
    if not victims:
        return {}
    tasks, jobs = snapshot.tasks, snapshot.job_keys
    numbers = {key: int(tasks.job[row]) for row, key in enumerate(tasks.keys) if key in victims}
    groups = {key: jobs[number] or "" for key, number in numbers.items() if key is not None and number >= 0}
    objects = {group: placed_under(snapshot, group) for group in dict.fromkeys(groups.values())}
    return {key: objects[group] for key, group in groups.items()}


def differing(snapshot: Snapshot, read: Mapping[Reference, PodGroup | Queue | None]) -> dict[Reference, str]:
    """Return why objects in a snapshot differ from those read from the API server.

    Only what a decision depends on is compared: identity, spec, annotations, and whether a queue is open. ``read`` has
    None for a deleted object. An object that is not in the snapshot is not compared.
    """
    found: dict[Reference, str] = {}
    for (kind, key), now in read.items():
        known = _object(snapshot, (kind, key))
        if known is not None and (difference := _difference(known, now)):
            found[kind, key] = f"{kind} {key} {difference}, which its watch has not shown"
    return found


def _object(snapshot: Snapshot, reference: Reference) -> PodGroup | Queue | None:
    kind, key = reference
    if kind == "PodGroup":
        group = snapshot.groups.get(key)
        return None if group is None else group.group
    queue = snapshot.queues.get(key)
    return None if queue is None else queue.queue


def _difference(known: PodGroup | Queue, now: PodGroup | Queue | None) -> str:
    """Return how an object differs from the known one in what decisions depend on; empty if it does not."""
    if now is known:
        return ""
    if now is None or now.metadata.uid != known.metadata.uid:
        return "is gone"
    return "has changed" if _decisive_fields(now) != _decisive_fields(known) else ""


def _decisive_fields(obj: PodGroup | Queue) -> tuple[object, ...]:
    return obj.spec, obj.metadata.annotations, isinstance(obj, PodGroup) or obj.is_open


def stale_statements(
    plan: Plan, head: Snapshot, base: Snapshot, doubts: Mapping[Reference, str] | None = None
) -> tuple[tuple[int, str], ...]:
    """Return the statements of a plan that no longer hold, as pairs of index and reason.

    An operation holds under these conditions:

    - bind: the pod is pending under the same UID, its node exists with enough idle resources after the earlier
      statements, and the volumes chosen for it are free;
    - pipeline: the pod is pending under the same UID, so that no pod is evicted for a deleted one;
    - evict: the pod is placed under the same UID;
    - all: the pod has the same group, labels and relevant annotations, and does not request more than before.

    An operation that does not hold drops its statement as a whole, and later ones of its group: what a gang gets beyond
    its minimum must not come without the minimum. For the same reason, nothing is bound for a gang that lost a pod
    needed for its minimum (deleted or not admitted), or whose minimum changed.

    ``base`` is the snapshot that the plan was decided from. A queue that holds more than at the base, or whose
    capability changed, must stay within its capability; for all others the plan has checked it. Other limits of a queue
    are known only to plugins (``Plugin.quotas``). If the usage of such a queue grew, or its limits or the
    labels of its nodes changed, its pods are not bound until the next decision.

    A statement is also stale if the queue in which it places pods was closed, or if the PodGroup or a queue of a victim
    changed (``minMember``, ``reclaimable``). ``doubts`` has objects that differ from the API server, with the reason.
    Statements whose pods are placed or evicted under one of them are stale.
    """
    if not plan.statements:
        return ()
    check = _Head(plan, head, base)
    stale = []
    dropped: set[str] = set()
    broken, doubted = check.broken(plan.statements), _doubted_statements(plan, head, base, doubts or {})
    for index, (statement, doubtful) in enumerate(zip(plan.statements, check.doubtful(plan.statements), strict=True)):
        reason = "an earlier statement of its group was dropped" if statement.group in dropped else ""
        reason = reason or doubted.get(index, "") or broken.get(statement.group, "")
        if doubtful:
            reason = reason or check.accept(statement.operations)
        if reason:
            stale.append((index, reason))
            dropped.add(statement.group)
    return tuple(stale)


def _doubted_statements(plan: Plan, head: Snapshot, base: Snapshot, doubts: Mapping[Reference, str]) -> dict[int, str]:
    """Return the first reason of each stale statement, by index.

    A statement is stale here if it depends on an object in doubt, evicts under a changed object, or places pods in a
    queue that was closed.
    """
    protecting = evicted_under(base, plan)
    changed = _changed_objects(base, head, (each for objects in protecting.values() for each in objects))
    closed = {name: f"queue {name} was closed" for name in head.queues if _is_closed_since(base, head, name)}
    if not doubts and not changed and not closed:
        return {}
    found: dict[int, str] = {}
    for index, statement in enumerate(plan.statements):
        reasons = [doubts[each] for each in placed_under(head, statement.group) if each in doubts]
        if any(operation.verb != "evict" for operation in statement.operations):
            reasons.append(closed.get(queue_name(head, statement.group) or "", ""))
        victims = dict.fromkeys(each for one in statement.operations for each in protecting.get(one.key, ()))
        reasons.extend(doubts.get(each) or changed.get(each, "") for each in victims)
        if reason := next(filter(None, reasons), ""):
            found[index] = reason
    return found


def _is_closed_since(base: Snapshot, head: Snapshot, name: str) -> bool:
    known = base.queues.get(name)
    return known is not None and known.queue.is_open and not head.queues[name].queue.is_open


def _changed_objects(base: Snapshot, head: Snapshot, references: Iterable[Reference]) -> dict[Reference, str]:
    """Return why objects changed between base and head."""
    found: dict[Reference, str] = {}
    for reference in dict.fromkeys(references):
        known, now = _object(base, reference), _object(head, reference)
        if known is not None and (difference := _difference(known, now)):
            found[reference] = " ".join((*reference, difference, "since the snapshot"))
    return found


def _with_children(snapshot: Snapshot, held: dict[str, Counter[str]]) -> dict[str, Counter[str]]:
    """Return what queues hold together with their descendants."""
    total = {name: Counter(own) for name, own in held.items()}
    for name, own in held.items():
        for above in lineage_of(snapshot.queues, name)[1:]:
            total[above].update(own)
    return total


def _binds_of(plan: Plan, base: Snapshot) -> dict[str, Counter[str]]:
    row_of = {key: row for row, key in enumerate(base.tasks.keys) if key is not None}
    found = {name: Counter[str]() for name in base.queues}
    requests = base.shape_columns.requests
    for statement in plan.statements:
        queue = queue_name(base, statement.group)
        rows = [row_of[each.key] for each in statement.operations if each.verb == "bind" and each.key in row_of]
        if rows and queue in found:
            sums = sum_of(requests[base.tasks.shape[rows]])
            found[queue].update(dict(zip(base.resources, sums.tolist(), strict=True)))
    return found


def _changed_queues(plan: Plan, base: Snapshot, head: Snapshot) -> dict[str, dict[str, int]]:
    """Return the remaining capability of queues that hold more, or may hold something else, than at the base.

    A parent queue counts with its children if the plan enforced its capability; it does not if the hierarchy is flat.
    """
    before, now = _allocated_by_queue(base), _allocated_by_queue(head)
    remaining: dict[str, dict[str, int]] = {}
    parents = {record.queue.parent for record in head.queues.values()}
    if any(head.queues[name].capability for name in parents & head.queues.keys()):
        had, has, gets = (
            _with_children(at, of) for at, of in ((base, before), (head, now), (base, _binds_of(plan, base)))
        )
        for name in sorted(parents & head.queues.keys()):
            old = base.queues.get(name)
            limits = {} if old is None else old.capability
            if all(had[name][each] + gets[name][each] <= most for each, most in limits.items() if most):
                before[name], now[name] = had.get(name, Counter()), has[name]
    moved = {
        above
        for name, record in head.queues.items()
        if name in base.queues and base.queues[name].queue.spec.parent != record.queue.spec.parent
        for above in lineage_of(head.queues, name)[1:]
    }
    for name, record in head.queues.items():
        old = base.queues.get(name)
        known = {} if old is None else old.capability
        other = known != record.capability or name in moved
        if record.capability and (other or now[name] - before[name]):
            remaining[name] = {
                resource: limit - now[name][resource]
                for resource, limit in record.capability.items()
                # cpu or memory of zero means no limit to some plugins, and none of it to others; the plan has decided
                # which
                if resource != PODS and (limit or resource not in (CPU, MEMORY) or known.get(resource) != limit)
            }
    return remaining


class _PluginLimits:
    """Queues that plugins limit by annotations and that changed, and nodes whose labels or resources changed.

    The plan may be wrong about what these queues hold or may hold.
    """

    def __init__(self, base: Snapshot, head: Snapshot) -> None:
        limits = sorted({quota.annotation for kind in registry.plugins().values() for quota in kind.quotas})
        self.limited = tuple(
            name
            for name in sorted({*base.queues, *head.queues})
            if any(text is not None for snapshot in (base, head) for text in _limits(snapshot, name, limits))
        )
        self.nodes: frozenset[str] = frozenset()
        self.queues: frozenset[str] = frozenset()
        if self.limited:
            self.nodes = frozenset(_changed_nodes(base, head)) if head.facts is not base.facts else self.nodes
            changed = {name for name in self.limited if _limits(base, name, limits) != _limits(head, name, limits)}
            self.queues = frozenset(changed.union(self._queues_with_changes(base, head)))

    def _queues_with_changes(self, base: Snapshot, head: Snapshot) -> Iterator[str]:
        """Yield queues with a pod that came to another node, or that is another pod than before."""
        queues, nodes = _places(head, self.limited, _HOLDING)
        before, places = _places(base, self.limited, _HOLDING)
        if head.facts is not base.facts:
            rows = [head.facts.row_of.get(name, NO_ROW) for name in base.facts.names]
            places = np.array([*rows, NO_ROW], np.int64)[places]
        both = min(len(before), len(queues))
        same = np.zeros(len(queues), np.bool_)
        same[:both] = (queues[:both] == before[:both]) & (nodes[:both] == places[:both])
        if self.nodes:
            same &= ~np.isin(nodes, [head.facts.row_of[name] for name in sorted(self.nodes)])
        pods, known = head.tasks.pods, base.tasks.pods
        for row in np.flatnonzero(queues >= 0).tolist():
            if not same[row] or (pods[row] is not known[row] and _uid(pods[row]) != _uid(known[row])):
                yield self.limited[queues[row]]


def _uid(pod: Pod | None) -> str | None:
    return None if pod is None else pod.metadata.uid


def _limits(snapshot: Snapshot, name: str, limits: Iterable[str]) -> list[str | None]:
    record = snapshot.queues.get(name)
    return [None if record is None else record.queue.metadata.annotations.get(limit) for limit in limits]


def _changed_nodes(base: Snapshot, head: Snapshot) -> Iterator[str]:
    """Yield new nodes, and nodes whose labels or resource names changed."""
    for name, row in head.facts.row_of.items():
        now, old = head.facts.nodes[row], base.facts.row_of.get(name)
        before = None if old is None else base.facts.nodes[old]
        if before is now:
            continue
        if (
            before is None
            or before.metadata.labels != now.metadata.labels
            or before.status.allocatable.keys() != now.status.allocatable.keys()
        ):
            yield name


def _places(snapshot: Snapshot, queues: Sequence[str], statuses: tuple[int, ...]) -> tuple[Ints, Ints]:
    """Return, by row, which of the queues a placed pod with one of the statuses is in, and its node; -1 for others."""
    tasks, number_of = snapshot.tasks, {name: number for number, name in enumerate(queues)}
    held = (tasks.node >= 0) & np.isin(tasks.status, statuses)
    jobs = np.unique(tasks.job[held & (tasks.job >= 0)])
    of_job = np.full(len(snapshot.job_keys) + 1, NO_ROW, np.int64)  # one more for pods without a group
    keys = snapshot.job_keys.at(jobs.tolist())
    of_job[jobs] = [number_of.get(queue_name(snapshot, key or "") or "", NO_ROW) for key in keys]
    of_row = of_job[tasks.job]
    for row, queue in snapshot.orphans.items():
        of_row[row] = number_of.get(queue, NO_ROW)
    numbers = np.where(held, of_row, NO_ROW)
    return numbers, np.where(numbers >= 0, tasks.node, NO_ROW).astype(np.int64)


def _minimum(spec: PodGroupSpec) -> tuple[object, ...]:
    """Return the fields of a group that decide what must be placed together."""
    return spec.min_member, spec.min_task_member, spec.sub_group_policy


def _ready(snapshot: Snapshot) -> Ints:
    """Return how many pods of each job count towards its minimum."""
    tasks = snapshot.tasks
    ready = np.isin(tasks.status, _READY) & (tasks.job >= 0)
    counts: Ints = np.bincount(tasks.job[ready], minlength=len(snapshot.job_keys))
    return counts


def _allocated_by_queue(snapshot: Snapshot) -> dict[str, Counter[str]]:
    """Return what each queue has allocated, by resource, including pods whose group was deleted."""
    names = sorted(snapshot.queues)
    orphans = Orphans(snapshot, {name: number for number, name in enumerate(names)})
    sums = snapshot.group_columns.sums("allocated") + orphans.allocated
    return {
        name: Counter(dict(zip(snapshot.resources, held, strict=True)))
        for name, held in zip(names, sums.tolist(), strict=True)
    }


def queue_name(snapshot: Snapshot, group: str) -> str | None:
    """Return the queue of a group, or None if there is no such group."""
    record = snapshot.groups.get(group)
    return None if record is None else snapshot.settings.queue_of(record.group)


class _Head:
    """The pods and idle resources of the head state, less what accepted statements take."""

    def __init__(self, plan: Plan, head: Snapshot, base: Snapshot) -> None:
        self._head, self._base = head, base
        self._remaining = _changed_queues(plan, base, head)
        self._plugin_limits = _PluginLimits(base, head)
        self._row_of = {key: row for row, key in enumerate(head.tasks.keys) if key is not None}
        self._requests = head.shape_columns.requests
        self._idle = head.usage[: len(head.resources)].T.copy()
        self._relevant_annotations = tuple(sorted({name for kind in registry.plugins().values() for name in kind.keys}))

    def broken(self, statements: Sequence[Statement]) -> dict[str, str]:
        """Return groups with binds that may miss their minimum, with the reason.

        Either the minimum changed, or they lost more placed pods than they would have had above it. Groups with minima
        of roles or sub-groups may not lose any.
        """
        jobs, bound, found = dict[str, int](), Counter[str](), dict[str, str]()
        for statement in statements:
            for operation in statement.operations:
                if operation.verb == "bind" and (row := self._row_of.get(operation.key)) is not None:
                    bound[statement.group] += 1
                    jobs[statement.group] = int(self._head.tasks.job[row])
        before, now = _ready(self._base), _ready(self._head)
        for group, job in jobs.items():
            known, record = self._base.groups.get(group), self._head.groups.get(group)
            if record is None or not 0 <= job < len(before) or self._base.job_keys[job] != group:
                continue
            spec = record.group.spec
            whole = not spec.min_task_member and not spec.sub_group_policy
            spare = max(0, before[job] + bound[group] - spec.min_member) if whole else 0
            if known is not None and _minimum(known.group.spec) != _minimum(spec):
                found[group] = "the minimum of its gang is another one"
            elif before[job] - now[job] > spare:
                found[group] = "its gang has lost a pod on which its minimum rests"
        return found

    def doubtful(self, statements: Sequence[Statement]) -> list[bool]:
        """Return which statements must be checked operation by operation, in order; all others hold.

        The others only bind pending pods, to nodes and for queues with enough capacity for all statements together.
        """
        row_of, node_of, pods = self._row_of, self._head.facts.row_of, self._head.tasks.pods
        known, there = self._base.tasks.pods, len(self._base.tasks.pods)
        doubtful = np.zeros(len(statements), np.bool_)
        of: list[int] = []
        rows: list[int] = []
        nodes: list[int] = []
        for number, statement in enumerate(statements):
            for operation in statement.operations:
                row, node = row_of.get(operation.key), node_of.get(operation.node)
                pod = None if row is None else pods[row]
                if pod is None or pod.metadata.uid != operation.uid or operation.verb != "bind" or operation.volumes:
                    doubtful[number] = True
                if row is None or node is None:
                    doubtful[number] = True
                elif operation.verb == "bind":
                    doubtful[number] |= row >= there or pod is not known[row]  # the row may have a different pod by now
                    of.append(number)
                    rows.append(row)
                    nodes.append(node)
        if of:
            which, where = np.array(rows), np.array(nodes)
            taken = self._head.tasks.status[which] != TaskStatus.PENDING
            doubts = taken | self._short_nodes(which, where)[where] | self._in_short_queue(which)
            doubtful[np.array(of)[doubts]] = True
        found: list[bool] = doubtful.tolist()
        return found

    def _short_nodes(self, rows: Ints, nodes: Ints) -> npt.NDArray[np.bool_]:
        """Return, by node, whether these pods together may not fit, or a plugin's count may have changed."""
        requested = np.zeros_like(self._idle)
        np.add.at(requested, nodes, self._requests[self._head.tasks.shape[rows]])
        counts = requested > 0
        counts[:, :2] = True  # as in `room_needed`
        short = np.logical_or.reduce((requested > self._idle) & counts, axis=1)
        short[[self._head.facts.row_of[name] for name in sorted(self._plugin_limits.nodes)]] = True
        result: npt.NDArray[np.bool_] = short
        return result

    def _in_short_queue(self, rows: Ints) -> npt.NDArray[np.bool_]:
        """Return, by pod, whether its queue may lack capacity for all of these, or a plugin's count may have
        changed."""
        jobs, of_job = np.unique(self._head.tasks.job[rows], return_inverse=True)
        names = [self._queue_of_job(job) for job in jobs.tolist()]
        short = set(self._plugin_limits.queues)
        requests = self._requests[self._head.tasks.shape[rows]]
        lineages = {name: lineage_of(self._head.queues, name) for name in dict.fromkeys(names)}
        for name in sorted({above for lineage in lineages.values() for above in lineage} & self._remaining.keys()):
            mine = np.array([name in lineages[each] for each in names])[of_job]
            requested = dict(zip(self._head.resources, sum_of(requests[mine]).tolist(), strict=True))
            if any(requested.get(resource, 0) > max(0, left) for resource, left in self._remaining[name].items()):
                short.add(name)
        refused = [not short.isdisjoint((name, *lineages[name])) for name in names]
        in_short: npt.NDArray[np.bool_] = np.array(refused)[of_job]
        return in_short

    def _pod_change(self, row: int, verb: str) -> str:
        """Return what changed in a pod since the decision; empty if nothing did, or it did not exist then."""
        tasks, known = self._head.tasks, self._base.tasks
        now, before = tasks.pods[row], known.pods[row] if row < len(known.pods) else None
        if now is None or before is None or now is before or now.metadata.uid != before.metadata.uid:
            return ""
        if now.group_key != before.group_key:
            return "it is of another group now"
        if self._marks_of(now) != self._marks_of(before):
            return "its labels, or annotations that plugins heed, have changed"
        requested, shape = dict(self._requests_of(row)), self._base.shapes[int(known.shape[row])]
        known_requests = {} if shape is None else shape.requests
        if verb != "evict" and any(value > known_requests.get(name, 0) for name, value in requested.items()):
            return "it asks for more now"
        return ""

    def _marks_of(self, pod: Pod) -> tuple[object, ...]:
        marks = pod.metadata.annotations
        return pod.metadata.labels, *(marks.get(name) for name in self._relevant_annotations)

    def accept(self, operations: tuple[Operation, ...]) -> str:
        """Take the resources that the operations need. Return "" if all hold, else the first reason."""
        taken: list[tuple[int, int]] = []
        for operation in operations:
            reason = self._accept(operation, taken)
            if reason:
                for row, node in taken:
                    self._move(row, node, -1)
                return f"{operation.verb} {operation.key}: {reason}"
        return ""

    def _move(self, row: int, node: int, times: int) -> None:
        """Take a pod's resources from a node and its queue (times 1), or give them back (-1)."""
        tasks = self._head.tasks
        self._idle[node] -= times * self._requests[tasks.shape[row]]
        for left in self._remaining_of(row):
            for name, value in self._requests_of(row):
                if name in left:
                    left[name] -= times * value

    def _remaining_of(self, row: int) -> list[dict[str, int]]:
        """Return the remaining capability of a pod's queue and of those above it, for queues that must be checked."""
        lineage = lineage_of(self._head.queues, self._queue_of(row))
        return [self._remaining[name] for name in lineage if name in self._remaining]

    def _queue_of(self, row: int) -> str:
        return self._queue_of_job(int(self._head.tasks.job[row]))

    def _queue_of_job(self, job: int) -> str:
        key = self._head.job_keys[job] if job >= 0 else None
        return queue_name(self._head, key or "") or ""

    def _plugin_limit_doubt(self, row: int, node: str) -> str:
        """Return why the plan's count for a pod's queue may be wrong; empty if it is not."""
        plugin_limits, queue = self._plugin_limits, self._queue_of(row)
        if queue not in plugin_limits.limited:
            return ""
        if node in plugin_limits.nodes:
            return f"the labels of node {node} have changed"
        return "what its queue holds, or may hold, has changed" if queue in plugin_limits.queues else ""

    def _requests_of(self, row: int) -> Iterable[tuple[str, int]]:
        shape = self._head.shapes[int(self._head.tasks.shape[row])]
        return () if shape is None else [(name, value) for name, value in shape.requests.items() if value > 0]

    def _accept(self, operation: Operation, taken: list[tuple[int, int]]) -> str:
        tasks = self._head.tasks
        row = self._row_of.get(operation.key)
        pod = None if row is None else tasks.pods[row]
        if row is None or pod is None:
            return "the pod is gone"
        if pod.metadata.uid != operation.uid:
            return "another pod has its name now"
        if reason := self._pod_change(row, operation.verb):
            return reason
        if operation.verb == "evict":
            if tasks.status[row] in TERMINATED_STATUSES:
                return "the pod has ended"
            return "" if tasks.node[row] >= 0 else "the pod has no node"
        if tasks.status[row] != TaskStatus.PENDING:
            return "the pod is no longer pending"
        if operation.verb == "ungate":
            return "" if has_queue_gate(pod.spec) else "its scheduling gate is lifted already"
        node = self._head.facts.row_of.get(operation.node)
        if node is None:
            return f"node {operation.node} is gone"
        if operation.verb == "pipeline":
            return ""
        request = self._requests[tasks.shape[row]]
        if not fits(room_needed(request), self._idle[node][:, None])[0]:
            return f"node {operation.node} has no room left"
        for choice in operation.volumes:
            reason = why_outdated(choice, operation.node, self._head.others)
            if reason:
                return reason
        if any(
            value > left.get(name, value) for left in self._remaining_of(row) for name, value in self._requests_of(row)
        ):
            return "its queue has no room left within its capability"
        reason = self._plugin_limit_doubt(row, operation.node)
        if reason:
            return reason
        self._move(row, node, 1)
        taken.append((row, node))
        return ""

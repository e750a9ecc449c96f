"""nodegroup: restrict queues to groups of nodes, and rank the groups (docs/semantics/plugins.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from vcd.model.annotations import AnnotationError, json_mapping
from vcd.model.objects import ROOT_QUEUE, NodeGroupTerms
from vcd.model.quantity import QuantityError
from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.model.resource_requests import resource_values
from vcd.model.status import ALLOCATED_STATUSES
from vcd.scheduling.framework.accounts import KeepsAccounts
from vcd.scheduling.framework.arguments import Argument
from vcd.scheduling.search.parts import Mask, Predicate, Reads, Score, Scores
from vcd.scheduling.search.predicates.node_predicates import at_rows
from vcd.scheduling.session.nodes import Usage
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.node_facts import NO_VALUE
from vcd.state.sums import plus, sums_by

NODE_GROUP = "volcano.sh/nodegroup-name"
LIMITS = "volcano.sh/nodegroup-resource-limits"

REQUIRED_POINTS = 100.0
PREFERRED_POINTS = 50.0
AVOIDED_POINTS = -1.0

_NO_LABEL = ReasonCode("node-group-missing", Cause.NODE_POLICY, "node group label not found", nodes_help=True)
_NO_AFFINITY = ReasonCode("node-group-rules-missing", Cause.NODE_POLICY, "node group affinity not specified")
_UNSATISFIED = ReasonCode(
    "node-group", Cause.NODE_POLICY, "node does not satisfy the node group affinity", nodes_help=True
)
_EXCEEDED = ReasonCode("node-group-limit", Cause.QUEUE_CAPABILITY, "node group resource limit exceeded")
_INVALID = ReasonCode("node-group-limit-unreadable", Cause.INVALID, "node group resource limit annotation invalid")


class Rules(NamedTuple):
    """A queue's rules: names of node groups, in the queue's order."""

    required: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    anti_required: tuple[str, ...] = ()
    anti_preferred: tuple[str, ...] = ()

    def admit(self, group: str) -> bool:
        """Return whether a node group may be used: the last rule that names it decides."""
        if group in self.anti_preferred:
            return True
        if group in self.anti_required:
            return False
        return group in self.preferred or group in self.required

    def points(self, group: str, by_order: bool) -> float:
        """Return a node group's score; with ``by_order``, preferred groups score less the later they are listed."""
        if group in self.anti_preferred:
            return AVOIDED_POINTS
        points = REQUIRED_POINTS if group in self.required else 0.0
        if group in self.preferred:
            points += self._preferred_points(group) if by_order else PREFERRED_POINTS
        return points

    def _preferred_points(self, group: str) -> float:
        """Return 50 x (N - i) / N; for a group that is listed twice, the last place counts."""
        count = len(dict.fromkeys(self.preferred))
        last = len(self.preferred) - 1 - self.preferred[::-1].index(group)
        return PREFERRED_POINTS * (count - last) / count


class _Limit:
    """One queue's limits and allocated resources in one node group: (column, limit) pairs, quantities by column."""

    __slots__ = ("held", "limits")

    def __init__(self, limits: list[tuple[int, int]], width: int) -> None:
        self.limits = limits
        self.held = [0] * width

    def allows(self, amounts: tuple[int, ...]) -> bool:
        return all(self.held[column] + amounts[column] <= limit for column, limit in self.limits)


class _Treatment(NamedTuple):
    """The effect of a queue's rules (None: unreadable annotation): admitted nodes, their points, reasons for refusals.

    ``grouped`` and ``groupless`` are the reasons for nodes with and without a group.
    """

    rules: Rules | None
    admitted: Mask
    points: Scores
    grouped: Reason
    groupless: Reason = _NO_LABEL()


class NodeGroupAffinity(Predicate):
    """Accepts nodes in groups that the rules of the pod's queue admit."""

    name = "NodeGroup"
    reason = _UNSATISFIED()
    reads = Reads.FACTS
    keys = ()

    def __init__(self, plugin: NodeGroupPlugin) -> None:
        self._plugin = plugin

    def applies(self, task: Task) -> bool:
        return task.job.queue.index in self._plugin.tested

    def key_of(self, task: Task) -> Rules | None:
        return self._plugin.treatment(task).rules

    def mask(self, task: Task, usage: Usage) -> Mask:
        return at_rows(self._plugin.treatment(task).admitted, usage)

    def clauses(self, task: Task, usage: Usage) -> list[tuple[Reason, Mask]]:
        treatment, admitted = self._plugin.treatment(task), self.mask(task, usage)
        if (refusal := self._plugin.pre_predicate(task)) is not None:
            return [(refusal, admitted)]
        labelled = at_rows(self._plugin.codes, usage) != NO_VALUE
        return [(treatment.grouped, admitted | ~labelled), (treatment.groupless, admitted | labelled)]

    def reasons(self, task: Task, usage: Usage, failed: Mask) -> Mapping[Reason, int]:
        """Return Volcano's reasons."""
        treatment = self._plugin.treatment(task)
        labelled = at_rows(self._plugin.codes, usage) != NO_VALUE
        counts = Counter({treatment.groupless: int((failed & ~labelled).sum())})
        counts[treatment.grouped] += int((failed & labelled).sum())
        return {reason: count for reason, count in counts.items() if count}


class NodeGroupLimits(Predicate):
    """Accepts nodes in groups in which the pod's queue stays within its limits."""

    name = "NodeGroupLimits"
    reason = _EXCEEDED()
    reads = Reads.QUEUE
    keys = ()

    def __init__(self, plugin: NodeGroupPlugin) -> None:
        self._plugin = plugin

    def applies(self, task: Task) -> bool:
        return task.job.queue.index in self._plugin.limits

    def mask(self, task: Task, usage: Usage) -> Mask:
        passes = np.ones(len(self._plugin.groups) + 1, np.bool_)  # nodes without a group are last
        for code, limit in self._plugin.limits.get(task.job.queue.index, {}).items():
            passes[code] = limit.allows(task.amounts)
        result: Mask = passes[at_rows(self._plugin.codes, usage)]
        return result

    def unresolvable_nodes(self, task: Task, usage: Usage, failed: Mask) -> Mask:
        return failed


class NodeGroupScore(Score):
    """Scores nodes by the points of their group in the rules of the pod's queue."""

    name = "nodegroup"
    reads = Reads.FACTS
    keys = ()

    def __init__(self, plugin: NodeGroupPlugin) -> None:
        super().__init__(1)
        self._plugin = plugin

    def applies(self, task: Task) -> bool:
        return task.job.queue.index in self._plugin.rated

    def key_of(self, task: Task) -> Rules | None:
        return self._plugin.treatment(task).rules

    def raw(self, task: Task, usage: Usage) -> Scores:
        return at_rows(self._plugin.treatment(task).points, usage)


class NodeGroupPlugin(KeepsAccounts):
    """Restrict queues to the node groups that their affinity names; a node's group is its label.

    A queue with rules may use nodes of the groups that they name. If several rules name a group, the first of these
    decides: preferred anti-affinity (yes), required anti-affinity (no), preferred or required affinity (yes). A queue
    without rules may use no node with the label, and nodes without it only if `strict` is off. Score of a node: 100 for
    required affinity, plus 50 for preferred affinity (with `enablePreferredOrder` 50 x (N - i) / N for place i of N,
    counted from 0); -1 alone for preferred anti-affinity.

    With `enableHierarchy`, a queue without `spec.affinity` inherits that of its nearest ancestor; a queue without
    parent is below root. An affinity that names nothing counts as an affinity without rules, and stops inheritance.

    The queue's annotation `volcano.sh/nodegroup-resource-limits`, JSON such as
    `{"gpu": {"cpu": "100", "memory": "200Gi"}}`, limits what its pods hold in a group, for the listed resources. It is
    not inherited. With an unreadable annotation, the queue's pods wait and report it. Source: Volcano
    ``plugins/nodegroup``.
    """

    name = "nodegroup"
    keys = (NODE_GROUP, LIMITS)
    queue_fields = ("affinity", "parent?enableHierarchy")
    arguments = (
        Argument("strict", "bool", True, "Whether queues without rules may not use nodes without the label, either."),
        Argument(
            "enablePreferredOrder",
            "bool",
            False,
            "Whether a preferred group scores less the later the queue lists it.",
        ),
    )

    def open(self, session: Session) -> None:
        """Evaluate the rules and limits of queues that have jobs."""
        self._session = session
        self.codes, self.groups = session.nodes.facts.label(NODE_GROUP)
        self._code_of_row: list[int] = []
        self._treatments: dict[int, _Treatment] = {}
        self._refusals: dict[int, Reason] = {}
        self.limits: dict[int, dict[int, _Limit]] = {}
        """By queue and node group code, for queues with limits."""
        self._treatment_by: dict[Rules, _Treatment] = {}
        for index in np.unique(session.jobs.queue).tolist():
            self._load(session.queue_list[index])
        treatments = self._treatments.items()
        self.tested = frozenset(index for index, each in treatments if not each.admitted.all())
        """Queues whose rules exclude some node."""
        self.rated = frozenset(index for index, each in treatments if (each.points != each.points[:1]).any())
        """Queues whose rules give nodes different points."""
        if self.limits:
            self._code_of_row = self.codes.tolist()
            self._sum_up(session)

    # --- loading ----------------------------------------------------------------------------------------------------

    def _load(self, queue: Queue) -> None:
        rules, broken = self._rules_of(queue)
        try:
            limits = self._limits_of(queue)
        except AnnotationError as error:
            self._refusals[queue.index] = _unreadable(queue, error)
            count = len(self.codes)
            self._treatments[queue.index] = _Treatment(
                None, np.zeros(count, np.bool_), np.zeros(count), _INVALID(), _INVALID()
            )
            return
        if limits:
            self.limits[queue.index] = limits
        if not any(rules) and self.values["strict"]:
            self._refusals[queue.index] = _without_rules(queue, broken)
        if rules not in self._treatment_by:
            self._treatment_by[rules] = self._treat(rules)
        self._treatments[queue.index] = self._treatment_by[rules]

    def _treat(self, rules: Rules) -> _Treatment:
        by_order: bool = self.values["enablePreferredOrder"]
        points = np.array([*(rules.points(group, by_order) for group in self.groups), 0.0])[self.codes]
        return _Treatment(rules, self._admitted(rules), points, _UNSATISFIED() if any(rules) else _NO_AFFINITY())

    def _rules_of(self, queue: Queue) -> tuple[Rules, str]:
        """Return the effective rules of a queue, and a problem that prevents inheritance ("" if there is none)."""
        inherits = self.flags.get("enableHierarchy", False)
        lineage = self._session.lineage(queue) if inherits else [queue]
        for above in lineage:
            affinity = above.record.queue.spec.affinity
            if affinity is not None:
                near = affinity.node_group_affinity or NodeGroupTerms()
                far = affinity.node_group_anti_affinity or NodeGroupTerms()
                return Rules(near.required, near.preferred, far.required, far.preferred), ""
        highest = lineage[-1]
        parent = highest.record.queue.parent
        if not inherits or highest.name == ROOT_QUEUE:
            return Rules(), ""
        if parent in self._session.queues:
            return Rules(), f"queue {highest.name} is below itself: its parent {parent} is one of its descendants"
        missing = "cannot be used" if parent in self._session.snapshot.bad_queues else "does not exist"
        return Rules(), f"queue {highest.name} has the parent {parent}, which {missing}"

    def _limits_of(self, queue: Queue) -> dict[int, _Limit]:
        """Return a queue's limits by node group code. Raises AnnotationError."""
        text = queue.record.queue.metadata.annotations.get(LIMITS, "")
        if not text:
            return {}
        columns = self._session.nodes.column_of
        found = {}
        for group, quantities in sorted(json_mapping(text).items()):
            if quantities is not None and not isinstance(quantities, dict):
                raise AnnotationError(f'{group}: it must be a JSON object of resources, such as {{"cpu": "100"}}')
            try:
                amounts = resource_values(quantities or {})
            except QuantityError as error:
                raise AnnotationError(f"{group}: {error}") from None
            limits = [(columns[name], value) for name, value in amounts.items() if name in columns]
            if limits and group in self.groups:
                found[self.groups.index(group)] = _Limit(limits, len(columns))
        return found

    def _admitted(self, rules: Rules) -> Mask:
        has_rules = any(rules)
        table = [has_rules and rules.admit(group) for group in self.groups]
        table.append(not has_rules and not self.values["strict"])  # NO_VALUE is the last index
        result: Mask = np.array(table, np.bool_)[self.codes]
        return result

    def _sum_up(self, session: Session) -> None:
        """Add up what queues with limits have allocated in each node group."""
        tasks = session.snapshot.tasks
        limited = np.zeros(len(session.queue_list), np.bool_)
        limited[list(self.limits)] = True
        placed = (tasks.node >= 0) & (session.queue_of_row >= 0) & np.isin(tasks.status, tuple(ALLOCATED_STATUSES))
        rows = np.flatnonzero(placed)
        queues = session.queue_of_row[rows]
        rows, queues = rows[limited[queues]], queues[limited[queues]]
        count = len(self.groups) + 1
        keys = queues * count + self.codes[tasks.node[rows]] % count
        sums = sums_by(keys, session.requests[tasks.shape[rows]], len(session.queue_list) * count)
        for queue, limits in self.limits.items():
            for code, limit in limits.items():
                limit.held = sums[queue * count + code % count].tolist()

    # --- queries ----------------------------------------------------------------------------------------------------

    def treatment(self, task: Task) -> _Treatment:
        return self._treatments[task.job.queue.index]

    # --- points -----------------------------------------------------------------------------------------------------

    def pre_predicate(self, task: Task) -> Reason | None:
        """Return a reason if no node can take pods of the queue."""
        return self._refusals.get(task.job.queue.index)

    def predicates(self) -> Iterable[Predicate]:
        """Return the filter of the rules, and the filter of the limits if any queue has some."""
        yield NodeGroupAffinity(self)
        if self.limits:
            yield NodeGroupLimits(self)

    def node_order(self) -> Iterable[Score]:
        """Return the score of the rules."""
        yield NodeGroupScore(self)

    def charge(self, tasks: list[Task], rows: list[int], sign: int) -> None:
        """Update what the queue holds in the nodes' groups."""
        limits = self.limits.get(tasks[0].job.queue.index, {})
        for row in rows if limits else ():
            limit = limits.get(self._code_of_row[row])
            if limit is not None:
                limit.held = plus(limit.held, tasks[0].amounts, sign)


def _without_rules(queue: Queue, broken: str) -> Reason:
    detail = {"queue": queue.name, "mend": "give the queue spec.affinity, or the plugin the argument strict: false"}
    return _NO_AFFINITY({**detail, "inheritance": broken} if broken else detail)


def _unreadable(queue: Queue, error: AnnotationError) -> Reason:
    remedy = 'give each group its resources, as in {"group": {"cpu": "100", "memory": "200Gi"}}, or remove it'
    return _INVALID({"queue": queue.name, "annotation": LIMITS, "error": str(error), "mend": remedy})

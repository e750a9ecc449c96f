"""nodegroup: which groups of nodes a queue may use, and likes to (docs/semantics/plugins.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from vcd.model.annotations import AnnotationError, json_mapping
from vcd.model.objects import NodeGroupTerms
from vcd.model.quantity import QuantityError
from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.model.requests import resource_values
from vcd.model.status import ALLOCATED_STATUSES
from vcd.scheduling.framework.accounts import KeepsAccounts
from vcd.scheduling.framework.arguments import Argument
from vcd.scheduling.search.parts import Depends, Mask, Predicate, Score, Scores
from vcd.scheduling.search.predicates.node import at_rows
from vcd.scheduling.session.nodes import Usage
from vcd.scheduling.session.queues import Queue
from vcd.scheduling.session.session import ROOT_QUEUE, Session
from vcd.scheduling.session.views import Task
from vcd.state.facts import NO_VALUE
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
    """A queue's rules: names of node groups, as the queue lists them."""

    required: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    anti_required: tuple[str, ...] = ()
    anti_preferred: tuple[str, ...] = ()

    def admit(self, group: str) -> bool:
        """Whether a node group may be used: the last rule that names it decides."""
        if group in self.anti_preferred:
            return True
        if group in self.anti_required:
            return False
        return group in self.preferred or group in self.required

    def points(self, group: str, by_order: bool) -> float:
        """How much a node group is liked; preferred ones alike, or ``by_order`` of their list."""
        if group in self.anti_preferred:
            return AVOIDED_POINTS
        points = REQUIRED_POINTS if group in self.required else 0.0
        if group in self.preferred:
            points += self._preferred_points(group) if by_order else PREFERRED_POINTS
        return points

    def _preferred_points(self, group: str) -> float:
        """50 x (N - i) / N; of a group that is listed twice the last place counts."""
        count = len(dict.fromkeys(self.preferred))
        last = len(self.preferred) - 1 - self.preferred[::-1].index(group)
        return PREFERRED_POINTS * (count - last) / count


class _Limit:
    """What one queue may hold of one node group, and holds: (column, limit) pairs, amounts by column."""

    __slots__ = ("held", "limits")

    def __init__(self, limits: list[tuple[int, int]], width: int) -> None:
        self.limits = limits
        self.held = [0] * width

    def has_room(self, amounts: tuple[int, ...]) -> bool:
        return all(self.held[column] + amounts[column] <= limit for column, limit in self.limits)


class _Treatment(NamedTuple):
    """How the tasks of a queue are treated: by which rules (None: its annotation cannot be read), the nodes that are
    admitted, their points, and why nodes with and without a group are not admitted."""

    rules: Rules | None
    admitted: Mask
    points: Scores
    grouped: Reason
    groupless: Reason = _NO_LABEL()


class NodeGroupAffinity(Predicate):
    """A node is in a group that the rules of the pod's queue admit."""

    name = "NodeGroup"
    reason = _UNSATISFIED()
    differs_by_pod = False

    def __init__(self, plugin: NodeGroupPlugin) -> None:
        self._plugin = plugin

    def applies(self, task: Task) -> bool:
        return task.job.queue.index in self._plugin.tested

    def kind_of(self, task: Task) -> Rules | None:
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
        """Volcano's reasons."""
        treatment = self._plugin.treatment(task)
        labelled = at_rows(self._plugin.codes, usage) != NO_VALUE
        counts = Counter({treatment.groupless: int((failed & ~labelled).sum())})
        counts[treatment.grouped] += int((failed & labelled).sum())
        return {reason: count for reason, count in counts.items() if count}


class NodeGroupLimits(Predicate):
    """A node is in a group in which the pod's queue stays within its limits."""

    name = "NodeGroupLimits"
    reason = _EXCEEDED()
    depends = Depends.QUEUE
    unresolvable = True

    def __init__(self, plugin: NodeGroupPlugin) -> None:
        self._plugin = plugin

    def applies(self, task: Task) -> bool:
        return task.job.queue.index in self._plugin.limits

    def kind_of(self, task: Task) -> str:
        return task.job.queue.name

    def mask(self, task: Task, usage: Usage) -> Mask:
        room = np.ones(len(self._plugin.groups) + 1, np.bool_)  # nodes without a group have the last place
        for code, limit in self._plugin.limits.get(task.job.queue.index, {}).items():
            room[code] = limit.has_room(task.amounts)
        result: Mask = room[at_rows(self._plugin.codes, usage)]
        return result


class NodeGroupScore(Score):
    """The points that the rules of the pod's queue give to the node's group."""

    name = "nodegroup"

    def __init__(self, plugin: NodeGroupPlugin) -> None:
        super().__init__(1)
        self._plugin = plugin

    def applies(self, task: Task) -> bool:
        return task.job.queue.index in self._plugin.rated

    def kind_of(self, task: Task) -> Rules | None:
        return self._plugin.treatment(task).rules

    def raw(self, task: Task, usage: Usage) -> Scores:
        return at_rows(self._plugin.treatment(task).points, usage)


class NodeGroupPlugin(KeepsAccounts):
    """Queues use the groups of nodes that their affinity names; a node's group is its label.

    A queue with rules may use the nodes whose group they name; of several rules that name it the first of these
    decides: preferred anti-affinity (yes), required anti-affinity (no), preferred or required affinity (yes). A queue
    without rules may use no node with the label, and those without it only where `strict` is off. Points of a node:
    100 for required, 50 more for preferred affinity (with `enablePreferredOrder` 50 x (N - i) / N for place i of N,
    counted from 0); -1 and nothing else for preferred anti-affinity.

    With `enableHierarchy` a queue that has no `spec.affinity` takes that of its nearest ancestor; a queue without
    parent is under root. An affinity that names nothing is kept, and is no rule.

    The queue's annotation `volcano.sh/nodegroup-resource-limits`, JSON such as
    `{"gpu": {"cpu": "100", "memory": "200Gi"}}`, limits what its pods hold of a group, in the resources that it lists;
    it is not inherited. One that cannot be read keeps the queue's pods waiting and says so. Source: Volcano
    ``plugins/nodegroup``.
    """

    name = "nodegroup"
    treats_alike = True
    minds_placements = False
    annotations = (NODE_GROUP, LIMITS)
    queue_fields = ("affinity", "parent?enableHierarchy")
    arguments = (
        Argument("strict", "bool", True, "Whether queues without rules are kept from nodes without the label, too."),
        Argument(
            "enablePreferredOrder",
            "bool",
            False,
            "Whether preferred groups get the fewer points the later the queue lists them.",
        ),
    )

    def open(self, session: Session) -> None:
        """Work out how the tasks of each queue that has jobs are treated."""
        self._session = session
        self.codes, self.groups = session.nodes.facts.label(NODE_GROUP)
        self._code_of_row: list[int] = []
        self._treatments: dict[int, _Treatment] = {}
        self._refusals: dict[int, Reason] = {}
        self.limits: dict[int, dict[int, _Limit]] = {}
        """By queue and by the code of the node group, of queues that have some."""
        self._treatment_by: dict[Rules, _Treatment] = {}
        for index in np.unique(session.jobs.queue).tolist():
            self._load(session.queue_list[index])
        treatments = self._treatments.items()
        self.tested = frozenset(index for index, each in treatments if not each.admitted.all())
        """Queues whose rules keep their tasks from some node."""
        self.rated = frozenset(index for index, each in treatments if (each.points != each.points[:1]).any())
        """Queues whose rules give some nodes more points than others."""
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
        """The rules that hold for a queue, and what kept them from being looked for further up ("" if nothing did)."""
        inherits = self.flags.get("enableHierarchy", False)
        lineage = self._session.lineage(queue) if inherits else [queue]
        for above in lineage:
            affinity = above.record.queue.spec.affinity
            if affinity is not None:
                near = affinity.node_group_affinity or NodeGroupTerms()
                far = affinity.node_group_anti_affinity or NodeGroupTerms()
                return Rules(near.required, near.preferred, far.required, far.preferred), ""
        highest = lineage[-1]
        parent = highest.record.queue.spec.parent or ROOT_QUEUE
        if not inherits or highest.name == ROOT_QUEUE:
            return Rules(), ""
        if parent in self._session.queues:
            return Rules(), f"queue {highest.name} is below itself: its parent {parent} is one of its descendants"
        missing = "cannot be used" if parent in self._session.snapshot.bad_queues else "does not exist"
        return Rules(), f"queue {highest.name} has the parent {parent}, which {missing}"

    def _limits_of(self, queue: Queue) -> dict[int, _Limit]:
        """A queue's limits by the code of the node group. Raises AnnotationError."""
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
        """What the queues with limits hold of each node group."""
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

    # --- asking -----------------------------------------------------------------------------------------------------

    def treatment(self, task: Task) -> _Treatment:
        """What its queue's rules say."""
        return self._treatments[task.job.queue.index]

    # --- points -----------------------------------------------------------------------------------------------------

    def pre_predicate(self, task: Task) -> Reason | None:
        """Why no node at all may take the pods of a queue."""
        return self._refusals.get(task.job.queue.index)

    def predicates(self) -> Iterable[Predicate]:
        """The test of the rules, and that of the limits where any queue has some."""
        yield NodeGroupAffinity(self)
        if self.limits:
            yield NodeGroupLimits(self)

    def node_order(self) -> Iterable[Score]:
        """The points by the rules."""
        yield NodeGroupScore(self)

    def charge(self, tasks: list[Task], rows: list[int], sign: int) -> None:
        """The queue holds more, or less, of the nodes' groups."""
        limits = self.limits.get(tasks[0].job.queue.index, {})
        for row in rows if limits else ():
            limit = limits.get(self._code_of_row[row])
            if limit is not None:
                limit.held = plus(limit.held, tasks[0].amounts, sign)


def _without_rules(queue: Queue, broken: str) -> Reason:
    detail = {"queue": queue.name, "mend": "give the queue spec.affinity, or the plugin the argument strict: false"}
    return _NO_AFFINITY({**detail, "inheritance": broken} if broken else detail)


def _unreadable(queue: Queue, error: AnnotationError) -> Reason:
    mend = 'give each group its resources, as in {"group": {"cpu": "100", "memory": "200Gi"}}, or remove it'
    return _INVALID({"queue": queue.name, "annotation": LIMITS, "error": str(error), "mend": mend})

"""nodegroup: which groups of nodes a queue may use, and likes to (seed 000 s.5, seed 002, seed 003 s.6.8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from vcd.model.objects import NodeGroupTerms
from vcd.model.quantity import QuantityError
from vcd.model.requests import resource_values
from vcd.model.status import ALLOCATED_STATUSES
from vcd.scheduling.arguments import Argument
from vcd.scheduling.nodes import Usage
from vcd.scheduling.plugin import Depends, Mask, Plugin, Predicate, Refusal, Score, Scores
from vcd.scheduling.plugins._annotations import AnnotationError, json_mapping
from vcd.scheduling.plugins._apart import predicate_marks, score_marks
from vcd.scheduling.predicates.node import at_rows
from vcd.scheduling.session import Session
from vcd.scheduling.views import Queue, Task
from vcd.state.facts import NO_VALUE

NODE_GROUP = "volcano.sh/nodegroup-name"
LIMITS = "volcano.sh/nodegroup-resource-limits"
ROOT = "root"

REQUIRED_POINTS = 100.0
PREFERRED_POINTS = 50.0
AVOIDED_POINTS = -1.0

_NO_LABEL = "node group label not found"
_NO_AFFINITY = "node group affinity not specified"
_UNSATISFIED = "node does not satisfy the node group affinity"
_EXCEEDED = "node group resource limit exceeded"
_INVALID = "node group resource limit annotation invalid"


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
    """How the tasks of some queues are treated: the nodes that are admitted, limits by the code of the node group, and
    why nodes with and without a group are not admitted."""

    admitted: Mask
    limits: Mapping[int, _Limit]
    grouped: str
    groupless: str = _NO_LABEL


class NodeGroupAffinity(Predicate):
    """A node is in a group that the rules of the pod's queue admit, and in which the queue stays within its limits."""

    name = "NodeGroup"
    reason = _UNSATISFIED
    # a queue's rules are no facts of nodes, and its limits follow the queue's pods
    depends = Depends.PODS
    unresolvable = True

    def __init__(self, plugin: NodeGroupPlugin) -> None:
        self._plugin = plugin

    def applies(self, task: Task) -> bool:
        return self._plugin.test_class(task) > 0

    def mask(self, task: Task, usage: Usage) -> Mask:
        treatment = self._plugin.treatment(task)
        admitted = at_rows(treatment.admitted, usage)
        return admitted & self._within_limits(treatment, task, usage) if treatment.limits else admitted

    def _within_limits(self, treatment: _Treatment, task: Task, usage: Usage) -> Mask:
        room = np.ones(len(self._plugin.groups) + 1, np.bool_)  # nodes without a group have the last place
        for code, limit in treatment.limits.items():
            room[code] = limit.has_room(task.amounts)
        result: Mask = room[at_rows(self._plugin.codes, usage)]
        return result

    def reasons(self, task: Task, usage: Usage, failed: Mask) -> Mapping[str, int]:
        """Volcano's reasons, each node by its first one."""
        treatment = self._plugin.treatment(task)
        labelled = at_rows(self._plugin.codes, usage) != NO_VALUE
        admitted = at_rows(treatment.admitted, usage)
        counts = Counter(
            {
                treatment.groupless: int((failed & ~labelled).sum()),
                _EXCEEDED: int((failed & labelled & admitted).sum()),
            }
        )
        counts[treatment.grouped] += int((failed & labelled & ~admitted).sum())
        return {reason: count for reason, count in counts.items() if count}


class NodeGroupScore(Score):
    """The points that the rules of the pod's queue give to the node's group."""

    name = "nodegroup"
    depends = Depends.PODS  # as NodeGroupAffinity

    def __init__(self, plugin: NodeGroupPlugin) -> None:
        super().__init__(1)
        self._plugin = plugin

    def applies(self, task: Task) -> bool:
        return self._plugin.score_class(task) > 0

    def raw(self, task: Task, usage: Usage) -> Scores:
        return at_rows(self._plugin.points(task), usage)


class NodeGroupPlugin(Plugin):
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
    it is not inherited. One that cannot be read keeps the queue's pods waiting and says so. Source: seed 000 s.5,
    seed 003 s.6.8, Volcano ``plugins/nodegroup``.
    """

    name = "nodegroup"
    annotations = (NODE_GROUP, LIMITS)
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
        self._treatments: list[_Treatment] = []
        self._points: list[Scores] = []
        queues = len(session.queue_list)
        self._test_class = [0] * queues
        self._score_class = [0] * queues
        self._refusals: dict[int, Refusal] = {}
        self._limits: dict[int, dict[int, _Limit]] = {}
        self._class_of_test: dict[Hashable, int] = {}
        self._class_of_score: dict[Rules, int] = {}
        for index in np.unique(session.jobs.queue).tolist():
            self._load(session.queue_list[index])
        if self._limits:
            self._code_of_row = self.codes.tolist()
            self._sum_up(session)

    # --- loading ----------------------------------------------------------------------------------------------------

    def _load(self, queue: Queue) -> None:
        rules, broken = self._rules_of(queue)
        limits: dict[int, _Limit] = {}
        try:
            limits = self._limits_of(queue)
        except AnnotationError as error:
            self._refusals[queue.index] = _unreadable(queue, error)
            none = np.zeros(len(self.codes), np.bool_)
            self._test_class[queue.index] = self._new_test(_INVALID, _Treatment(none, {}, _INVALID, _INVALID))
            return
        if limits:
            self._limits[queue.index] = limits
        if not any(rules) and self.values["strict"]:
            self._refusals[queue.index] = _without_rules(queue, broken)
        treatment = _Treatment(self._admitted(rules), limits, _UNSATISFIED if any(rules) else _NO_AFFINITY)
        # a queue with limits has a class of its own, since no other shares what it holds
        self._test_class[queue.index] = self._new_test((queue.index, rules) if limits else rules, treatment)
        self._score_class[queue.index] = self._new_score(rules)

    def _new_test(self, key: Hashable, treatment: _Treatment) -> int:
        """The class of tasks that are treated so."""
        if key not in self._class_of_test:
            is_free = bool(treatment.admitted.all()) and not treatment.limits
            if not is_free:
                self._treatments.append(treatment)
            self._class_of_test[key] = 0 if is_free else len(self._treatments)
        return self._class_of_test[key]

    def _new_score(self, rules: Rules) -> int:
        """The class of tasks that nodes are rated for by the rules."""
        if rules not in self._class_of_score:
            by_order: bool = self.values["enablePreferredOrder"]
            points = np.array([*(rules.points(group, by_order) for group in self.groups), 0.0])[self.codes]
            is_flat = not len(points) or bool((points == points[0]).all())
            if not is_flat:
                self._points.append(points)
            self._class_of_score[rules] = 0 if is_flat else len(self._points)
        return self._class_of_score[rules]

    def _rules_of(self, queue: Queue) -> tuple[Rules, str]:
        """The rules that hold for a queue, and what kept them from being looked for further up ("" if nothing did)."""
        inherits = self.flags.get("enableHierarchy", False)
        seen = {queue.name}
        while True:
            spec = queue.record.queue.spec
            if spec.affinity is not None:
                near = spec.affinity.node_group_affinity or NodeGroupTerms()
                far = spec.affinity.node_group_anti_affinity or NodeGroupTerms()
                return Rules(near.required, near.preferred, far.required, far.preferred), ""
            if not inherits or queue.name == ROOT:
                return Rules(), ""
            parent = spec.parent or ROOT
            if parent in seen:
                return Rules(), f"queue {queue.name} is below itself: its parent {parent} is one of its descendants"
            if parent not in self._session.queues:
                return Rules(), f"queue {queue.name} has the parent {parent}, which does not exist"
            seen.add(parent)
            queue = self._session.queues[parent]

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
        limited[list(self._limits)] = True
        placed = (tasks.node >= 0) & (session.job_of_row >= 0) & np.isin(tasks.status, tuple(ALLOCATED_STATUSES))
        rows = np.flatnonzero(placed)
        queues = session.jobs.queue[session.job_of_row[rows]]
        rows, queues = rows[limited[queues]], queues[limited[queues]]
        sums = np.zeros((len(session.queue_list), len(self.groups) + 1, session.requests.shape[1]), np.int64)
        np.add.at(sums, (queues, self.codes[tasks.node[rows]]), session.requests[tasks.shape[rows]])
        for queue, limits in self._limits.items():
            for code, limit in limits.items():
                limit.held = sums[queue, code].tolist()

    # --- asking -----------------------------------------------------------------------------------------------------

    def test_class(self, task: Task) -> int:
        """Tasks of one class have the same predicate; 0: every node passes."""
        return self._test_class[task.job.queue.index]

    def score_class(self, task: Task) -> int:
        """Tasks of one class have the same score; 0: all nodes rate alike."""
        return self._score_class[task.job.queue.index]

    def treatment(self, task: Task) -> _Treatment:
        """What decides where a task of a class above 0 may go."""
        return self._treatments[self.test_class(task) - 1]

    def points(self, task: Task) -> Scores:
        """The points over all nodes for a task of a class above 0."""
        return self._points[self.score_class(task) - 1]

    # --- points -----------------------------------------------------------------------------------------------------

    def pre_predicate(self, task: Task) -> Refusal | None:
        """Why no node at all may take the pods of a queue."""
        return self._refusals.get(task.job.queue.index)

    def predicates(self) -> Iterable[Predicate]:
        """The one test, unless it fails nobody."""
        if self._treatments:
            yield NodeGroupAffinity(self)
            yield from predicate_marks(self.test_class, len(self._treatments), len(self._session.nodes))

    def node_order(self) -> Iterable[Score]:
        """The one score, unless it rates nobody."""
        if self._points:
            yield NodeGroupScore(self)
            yield from score_marks(self.score_class, len(self._points))

    def on_allocate(self, task: Task, row: int) -> None:
        """The queue holds more of the node's group."""
        self._add(task, row, 1)

    def on_deallocate(self, task: Task, row: int) -> None:
        """The queue holds less of the node's group."""
        self._add(task, row, -1)

    def _add(self, task: Task, row: int, sign: int) -> None:
        limits = self._limits.get(task.job.queue.index)
        if limits is None:
            return
        limit = limits.get(self._code_of_row[row])
        if limit is not None:
            held = limit.held
            for column, amount in enumerate(task.amounts):
                held[column] += sign * amount


def _without_rules(queue: Queue, broken: str) -> Refusal:
    detail = {"queue": queue.name, "mend": "give the queue spec.affinity, or the plugin the argument strict: false"}
    return Refusal(_NO_AFFINITY, {**detail, "inheritance": broken} if broken else detail)


def _unreadable(queue: Queue, error: AnnotationError) -> Refusal:
    mend = 'give each group its resources, as in {"group": {"cpu": "100", "memory": "200Gi"}}, or remove it'
    return Refusal(_INVALID, {"queue": queue.name, "annotation": LIMITS, "error": str(error), "mend": mend})

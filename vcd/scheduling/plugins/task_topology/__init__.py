"""task-topology: tasks of a job that talk to each other go to the same nodes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np

from vcd.model.reasons import Cause, ReasonCode
from vcd.model.status import TaskStatus
from vcd.scheduling.framework.arguments import Argument
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.plugins.task_topology.buckets import ANNOTATIONS, JobTopology, TopologyError, read_topology
from vcd.scheduling.search.parts import Depends, Score, Scores
from vcd.scheduling.session.nodes import Usage
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.records import TASK_SPEC

_INVALID = ReasonCode("task-topology-invalid", Cause.INVALID, "the group's task topology is invalid, it is ignored")

MAXIMUM = 100.0
"""The most points that a node gets before the weight (kube-scheduler's MaxNodeScore)."""


class TaskTopology(Score):
    """100 x weight x tasks / size of the job's largest bucket; see the plugin."""

    name = "task topology"
    depends = Depends.JOB

    def __init__(self, plugin: TaskTopologyPlugin, weight: int) -> None:
        super().__init__(1)
        self._plugin = plugin
        self._factor = weight * MAXIMUM

    def applies(self, task: Task) -> bool:
        return self._plugin.kind_of(task) is not None

    def kind_of(self, task: Task) -> Hashable:
        return self._plugin.kind_of(task)

    def raw(self, task: Task, usage: Usage) -> Scores:
        topology = self._plugin.topology_of(task)
        return topology.points(task, usage) * self._factor / topology.largest


class TaskTopologyPlugin(Plugin):
    """Puts the tasks of a job together, or apart, by what its group says of their roles (`volcano.sh/task-spec`).

    The group's annotations list roles: `volcano.sh/task-topology-affinity: "ps,worker;chief"` (ps and worker like each
    other's nodes, chief those of its own tasks), `volcano.sh/task-topology-anti-affinity` likewise (they shun them),
    `volcano.sh/task-topology-task-order: "ps,worker"` (ps first). They count while the job has pending tasks; with a
    role that no task of the job has, or one twice in a set, none of the three does.

    When a session begins, the tasks of roles that a rule names are put into buckets: those on nodes by node; then the
    others, in the given order, those that shun themselves before those that like others, themselves, or shun others,
    then by name: each into the bucket of which it likes most tasks, less those that it shuns, of several the one whose
    waiting tasks ask for least, or into a new one where it shuns more than it likes.

    - Tasks in buckets come first, those of the bucket with more waiting tasks before others, then of the older bucket,
      then by the given order.
    - Points of a node: 100 x weight x n / (tasks of the job's largest bucket), n being the bucket's tasks that are
      there, less the tasks there that the task shuns, plus those that wait and would fit there together (the last ones
      left out first). 0 where the task does not fit even in what is being freed, or is in no bucket.

    Source: Volcano ``plugins/task-topology``.
    """

    name = "task-topology"
    treats_alike = True
    annotations = (*ANNOTATIONS, TASK_SPEC)
    arguments = (
        Argument("task-topology.weight", "int", 1, "How much the points count; below 0 nodes are liked the less."),
    )

    def open(self, session: Session) -> None:
        """Put the tasks of jobs with a topology and pending tasks into buckets."""
        self._jobs: dict[int, JobTopology] = {}
        self._errors: dict[int, TopologyError] = {}
        for index in np.flatnonzero(session.jobs.counts[:, TaskStatus.PENDING]).tolist():
            annotations = session.jobs.records[index].group.metadata.annotations
            if not annotations or not any(key in annotations for key in ANNOTATIONS):
                continue
            tasks = session.job(index).tasks()
            try:
                topology = read_topology(annotations, {task.role for task in tasks})
            except TopologyError as error:
                self._errors[index] = error
            else:
                self._jobs[index] = JobTopology(topology, tasks)

    def close(self, session: Session) -> None:
        """Tell of the groups whose annotations count for nothing."""
        for index, error in self._errors.items():
            mend = f"name roles that pods of the job have in {TASK_SPEC}, each once in a set"
            session.job(index).note("annotation", self.name, _INVALID({"error": str(error), "mend": mend}))

    def kind_of(self, task: Task) -> tuple[str, str] | None:
        """What tasks of one job share for which the nodes rate alike: bucket and role; None in no bucket."""
        topology = self._jobs.get(task.job.index)
        return None if topology is None else topology.kind_of(task)

    def topology_of(self, task: Task) -> JobTopology:
        """The buckets of a task that is in one."""
        return self._jobs[task.job.index]

    # --- points -----------------------------------------------------------------------------------------------------

    def task_order(self, task: Task) -> tuple[int, int, int, int, int]:
        """Tasks in buckets first, the fullest bucket first; tasks of jobs without a topology are alike."""
        topology = self._jobs.get(task.job.index)
        return (1, 0, 0, 0, 0) if topology is None else topology.order(task)

    def node_order(self) -> Iterable[Score]:
        """The one score, if any job has buckets and the weight is not 0."""
        weight: int = self.values["task-topology.weight"]
        if weight and self._jobs:
            yield TaskTopology(self, weight)

    def on_allocate(self, task: Task, row: int) -> None:
        """A task of the bucket, if it is in one, is on the node."""
        topology = self._jobs.get(task.job.index)
        if topology is not None:
            topology.placed(task, row)

    def on_deallocate(self, task: Task, row: int) -> None:
        """A task is on the node no more."""
        topology = self._jobs.get(task.job.index)
        if topology is not None:
            topology.removed(task, row)

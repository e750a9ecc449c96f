"""task-topology: place tasks of a job that communicate on the same nodes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np

from vcd.model.reasons import Cause, ReasonCode
from vcd.model.status import TaskStatus
from vcd.scheduling.framework.arguments import Argument
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.plugins.task_topology.buckets import ANNOTATIONS, JobTopology, TopologyError, read_topology
from vcd.scheduling.search.parts import Reads, Score, Scores
from vcd.scheduling.session.nodes import Usage
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.records import TASK_SPEC

_INVALID = ReasonCode("task-topology-invalid", Cause.INVALID, "the group's task topology is invalid, it is ignored")

MAXIMUM = 100.0
"""The highest score of a node before the weight (kube-scheduler's MaxNodeScore)."""


class TaskTopology(Score):
    """100 x weight x tasks / size of the job's largest bucket; see TaskTopologyPlugin."""

    name = "task topology"
    reads = Reads.JOB
    keys = ()

    def __init__(self, plugin: TaskTopologyPlugin, weight: int) -> None:
        super().__init__(1)
        self._plugin = plugin
        self._factor = weight * MAXIMUM

    def applies(self, task: Task) -> bool:
        return self._plugin.key_of(task) is not None

    def key_of(self, task: Task) -> Hashable:
        return self._plugin.key_of(task)

    def raw(self, task: Task, usage: Usage) -> Scores:
        topology = self._plugin.topology_of(task)
        return topology.points(task, usage) * self._factor / topology.largest


class TaskTopologyPlugin(Plugin):
    """Place tasks of a job together or apart, by affinity between their roles (`volcano.sh/task-spec`).

    The group's annotations list roles. `volcano.sh/task-topology-affinity: "ps,worker;chief"` means that ps and worker
    prefer each other's nodes, and chief prefers nodes with other chief tasks. `volcano.sh/task-topology-anti-affinity`
    is the opposite. `volcano.sh/task-topology-task-order: "ps,worker"` schedules ps first. The annotations apply while
    the job has pending tasks. If one of them names a role that no task of the job has, or a role twice in a set, all
    three are ignored.

    When a session begins, tasks of the named roles are put into buckets. Tasks on nodes come first, one bucket per
    node. The others follow in the given order, then by rule (anti-affinity to the own role, affinity to other roles,
    affinity to the own role, anti-affinity to other roles), then by name. Each task is added to the bucket with the
    highest number of tasks that it has affinity to, less tasks that it has anti-affinity to. Of several, the bucket
    whose pending tasks request least is chosen. If the number is negative for all, the task begins a new bucket.

    - Tasks in buckets come first: those of the bucket with more pending tasks, then of the older bucket, then in the
      given order.
    - Score of a node: 100 x weight x n / (tasks of the job's largest bucket). n is the number of the bucket's tasks on
      the node, less tasks there that the task has anti-affinity to, plus pending tasks of the bucket that would fit
      there together (the last ones are left out first). The score is 0 if the task does not fit into idle and releasing
      resources, or is in no bucket.

    Source: Volcano ``plugins/task-topology``.
    """

    name = "task-topology"
    keys = (*ANNOTATIONS, TASK_SPEC)
    arguments = (Argument("task-topology.weight", "int", 1, "Weight of the score; below 0 it is subtracted."),)

    def open(self, session: Session) -> None:
        """Build the buckets of jobs with a topology and pending tasks."""
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
                session.classes.distinguish_pods(index)  # by their buckets

    def close(self, session: Session) -> None:
        """Note invalid annotations on their jobs."""
        for index, error in self._errors.items():
            remedy = f"name roles that pods of the job have in {TASK_SPEC}, each once in a set"
            session.job(index).note("annotation", self.name, _INVALID({"error": str(error), "mend": remedy}))

    def key_of(self, task: Task) -> tuple[str, str] | None:
        """Return bucket and role, by which tasks of one job have equal scores; None in no bucket."""
        topology = self._jobs.get(task.job.index)
        return None if topology is None else topology.key_of(task)

    def topology_of(self, task: Task) -> JobTopology:
        """Return the topology of a task that is in a bucket."""
        return self._jobs[task.job.index]

    # --- points -----------------------------------------------------------------------------------------------------

    def task_order(self, task: Task) -> tuple[int, int, int, int, int]:
        """Order tasks in buckets first, of the bucket with the most pending tasks first; other tasks are equal."""
        topology = self._jobs.get(task.job.index)
        return (1, 0, 0, 0, 0) if topology is None else topology.order(task)

    def node_order(self) -> Iterable[Score]:
        """Return the score, if any job has buckets and the weight is not 0."""
        weight: int = self.values["task-topology.weight"]
        if weight and self._jobs:
            yield TaskTopology(self, weight)

    def on_allocate(self, tasks: list[Task], rows: list[int]) -> None:
        """Count the tasks on their nodes."""
        topology = self._jobs.get(tasks[0].job.index)
        if topology is not None:
            for task, row in zip(tasks, rows, strict=True):
                topology.placed(task, row)

    def on_deallocate(self, tasks: list[Task], rows: list[int]) -> None:
        """Stop counting the tasks on their nodes."""
        topology = self._jobs.get(tasks[0].job.index)
        if topology is not None:
            for task, row in zip(tasks, rows, strict=True):
                topology.removed(task, row)

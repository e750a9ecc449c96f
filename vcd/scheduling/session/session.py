"""One session: the snapshot as jobs, queues, tasks and nodes.

Jobs, queues and tasks are views that are created on first access. Code that has to be fast uses whole columns
(``jobs``, ``nodes.usage``, ``snapshot.tasks``). Only statements change a session in trial.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from vcd.model.objects import Object
from vcd.model.projection_codec import BadObject, Foreign
from vcd.model.reasons import MEND_NAMED, Amount, Cause, Reason, ReasonCode
from vcd.model.resource_requests import UNOFFERED, format_sum
from vcd.model.status import (
    TaskStatus,
)
from vcd.model.unsupported import DEMANDS
from vcd.scheduling.session.equivalence_classes import EquivalenceClasses
from vcd.scheduling.session.gauges import Gauge
from vcd.scheduling.session.job_columns import has_ended, is_ready
from vcd.scheduling.session.nodes import Ints, Nodes
from vcd.scheduling.session.object_problems import Problem
from vcd.scheduling.session.orphans import Orphans
from vcd.scheduling.session.outside import NOBODY, Outside
from vcd.scheduling.session.queue_view import Queue, lineage_of
from vcd.scheduling.session.reason_templates import Condition
from vcd.scheduling.session.statement import Statement, Trial
from vcd.scheduling.session.turns import Turns
from vcd.scheduling.session.views import Job, Task, Views
from vcd.state.backoff import RefusalBackoff, namespace_backoff
from vcd.state.group_columns import Counts
from vcd.state.records import GroupRecord, Shape
from vcd.state.shape_columns import flags_of
from vcd.state.snapshot import Snapshot
from vcd.state.snapshot_content import NO_OBJECTS, Objects

_QUEUE_MISSING = ReasonCode(
    "queue-missing",
    Cause.QUEUE_MISSING,
    "queue {queue} does not exist",
    mend="create the queue, or name another one in the PodGroup's spec.queue",
)
_QUEUE_UNUSABLE = ReasonCode("queue-unusable", Cause.INVALID, "queue {queue} cannot be used", mend=MEND_NAMED)

S = TypeVar("S")
T = TypeVar("T", bound=Object)

_SHOWN_PODS = 3
"""The number of pods that a reason names."""

_S = TaskStatus


@runtime_checkable
class Releasable(Protocol):
    """A service of a session that refers to objects which refer back to it."""

    def release(self) -> None:
        """Drop these references."""


class Session:
    """The data on which actions and plugins work.

    ``now`` is in nanoseconds since the epoch; ``seed`` orders equal nodes; ``outside`` answers questions to outside
    services (``vcd.scheduling.session.outside``).
    """

    def __init__(
        self,
        snapshot: Snapshot,
        now: int,
        seed: int,
        *,
        policy_digest: str = "",
        outside: Outside = NOBODY,
        left_out: Sequence[str] = (),
    ) -> None:
        self.snapshot = snapshot
        self.outside = outside
        self.policy_digest = "/".join((policy_digest, *left_out))
        """The identity of the policy without failed plugins: cached tables of other plugins are not valid."""
        self.left_out = frozenset(left_out)
        """Plugins and actions that failed or took too long. Built-in plugins that call servers still take part."""
        self.now = now
        self.seed = seed
        self.full = False
        """Whether the limit of placements was reached, so that later jobs were not tried."""
        self.rounds: dict[str, None] = {}
        """Plugins that held a round in this session (``Plan.rounds``); set before it closes."""
        self.lapsed: list[str] = []
        """Admitted groups whose reservation ends with this session (``Plan.lapsed``)."""
        self.conditions: dict[int, Condition] = {}
        """Conditions of groups by the job's index."""
        self.settled: list[tuple[npt.NDArray[np.bool_], Condition]] = []
        """Conditions of many groups, as masks over the jobs' indices; ``conditions`` take precedence."""
        self._provided: dict[type, Any] = {}
        self.faults: tuple[str, ...] = ()
        self.interrupted: tuple[str, ...] = ()
        """Those of ``faults`` that took too long in an earlier attempt at this session, or in an earlier session."""
        self.errors: dict[str, Exception] = {}
        """The exceptions behind ``faults``, by name, for log lines."""
        self.gauges: dict[str, tuple[Gauge, ...] | Exception] = {}
        """Metrics of third-party plugins, after ``execution.take_gauges``."""
        self.wakes: tuple[int, ...] = ()
        """When the plugins' answers change with time alone (ns since the epoch), after ``execution.take_wakes``."""
        self.problems: dict[str, tuple[Problem, ...] | Exception] = {}
        """Misconfigurations that plugins found, after ``execution.take_problems``."""
        self.ungated: dict[int, Task] = {}
        """Tasks from which to remove the scheduling gate of their queue, by row, in the order of the decisions."""
        self.requests: Ints = snapshot.shape_columns.requests
        self.nodes = Nodes(snapshot)
        self.queue_list = [Queue(i, name, snapshot.queues[name]) for i, name in enumerate(sorted(snapshot.queues))]
        self.queues = {queue.name: queue for queue in self.queue_list}
        self.jobs = snapshot.group_columns
        self.job_of_row: Ints = self.jobs.of_row
        self.backing_off = self._backing_off()
        """Whether a task, by row, backs off: it is neither tried nor evicted before a later time."""
        self.views = Views(snapshot, self.queue_list, self.backing_off)
        self.trial = Trial(self.nodes, snapshot.tasks)
        self.pipelined_sub_jobs: list[Statement] = []
        """Statements of sub-jobs that are pipelined: not committed before they are ready."""
        self.classes = EquivalenceClasses(self.jobs)
        self.turns = Turns(len(self.jobs))
        self.orphans = Orphans(snapshot, {name: queue.index for name, queue in self.queues.items()})

    @cached_property
    def queue_of_row(self) -> Ints:
        """The queue, as an index of ``queue_list``, that each pod counts against: that of its job, or of its deleted
        group; -1 if there is none."""
        jobs = self.job_of_row
        result = np.where(jobs >= 0, np.append(self.jobs.queue, -1)[jobs], -1).astype(np.int64)
        result[self.orphans.rows] = self.orphans.queues
        return result

    @property
    def unsupported(self) -> npt.NDArray[np.bool_]:
        """Which groups, by index, have unsupported fields for which all of their pods wait."""
        if self.views.supported.issuperset(DEMANDS["PodGroup"]):
            return np.zeros(len(self.jobs), np.bool_)
        return self.jobs.unsupported

    def _backing_off(self) -> dict[int, RefusalBackoff]:
        found = {row: backoff for row, backoff in self.snapshot.backoffs.items() if backoff.until > self.now}
        for key, backoff in self.snapshot.released.items():
            index = self.jobs.index(key)
            if index is not None and backoff.until > self.now:
                found.update(dict.fromkeys(self.jobs.rows_of(index), backoff))
        held = self.snapshot.held_rows
        found.update({row: namespace_backoff(until) for row, until in held.items() if until > self.now})
        return found

    def namespace_held_until(self, namespace: str) -> int:
        """Return until when the pending pods of a namespace are not decided on (ns since the epoch); 0 if they are."""
        until = self.snapshot.held_namespaces.get(namespace, 0)
        return until if until > self.now else 0

    def queue_name_of(self, record: GroupRecord) -> str:
        """Return the name of a group's queue: the default queue if the group names none."""
        return self.snapshot.settings.queue_of(record.group)

    def why_no_queue(self, name: str) -> Reason:
        """Return why there is no queue of a name: it does not exist, or cannot be read."""
        problem = self.snapshot.bad_queues.get(name)
        if problem is None:
            return _QUEUE_MISSING({"queue": name})
        return _QUEUE_UNUSABLE({"queue": name, "problem": problem})

    def lineage(self, queue: Queue) -> list[Queue]:
        """Return a queue and its ancestors, the root last. Stops at a missing parent, and at a cycle."""
        return [self.queues[name] for name in lineage_of(self.snapshot.queues, queue.name)]

    def cached_for(self, kind: str, key: Hashable, make: Callable[[], S]) -> S:
        """Return the result of ``make``, which depends on objects of a kind only; cached until one of them changes."""
        held = self.snapshot.others.get(kind, NO_OBJECTS)
        result: S = held.cached(key, make) if isinstance(held, Objects) else make()
        return result

    def objects(self, kind: str, of: type[T]) -> Mapping[str, T]:
        """Return the objects of a kind that is not Pod, Node, PodGroup or Queue, by key, as the type in the kind's
        declaration.

        An object that was logged under another declaration and does not fit the type is omitted until it is listed
        again. Raises nothing.
        """
        return self.cached_for(kind, of, lambda: _typed(self.snapshot.others.get(kind, NO_OBJECTS), of))

    def shape_flags(self, of: Callable[[Shape], bool]) -> npt.NDArray[np.bool_]:
        """Return a bool per shape number."""
        return flags_of(self.snapshot.shapes, of)

    # --- views ------------------------------------------------------------------------------------------------------

    def job(self, index: int) -> Job:
        """Return the job of a row of ``jobs``."""
        return self.views.job(index)

    def all_jobs(self) -> Iterator[Job]:
        """Yield all jobs, in order of key."""
        return (self.job(index) for index in range(len(self.jobs)))

    def settle(self, condition: Condition) -> Iterator[Job]:
        """Set ``condition`` on jobs that have their minimum and no view; yield the jobs that the caller decides on.

        It omits ended jobs without a view, jobs that another job represents, and jobs that this session does not try;
        the last ones retain their conditions.
        """
        columns = self.jobs
        ready, ended = columns.derived(is_ready), columns.derived(has_ended)
        untouched = np.ones(len(columns), np.bool_)
        untouched[[job.index for job in self.views.jobs()]] = False
        for lead, followers in self.classes.followers():
            untouched[followers] &= untouched[lead]  # the lead's condition holds for its followers
        others = ~(self.classes.follows | self.later())
        self.settled.append((ready & ~ended & untouched, condition))
        return (self.job(index) for index in np.flatnonzero(others & (~untouched | ~(ready | ended))).tolist())

    def jobs_with_pending(self, of: Callable[[Shape], bool] | None = None) -> Iterator[Job]:
        """Yield jobs that had pending tasks when the session began, in order of key.

        ``of`` limits this to tasks of some shapes; it must be a function of a module. Jobs that another job represents
        (``classes``), and jobs that this session does not try (``turns``), are omitted.
        """
        jobs = self.views.pending.distinct
        if of is not None:
            chosen = self.snapshot.shape_columns.flags(of)[self.snapshot.tasks.shape[self.views.pending.rows]]
            jobs = self.views.pending.jobs_of(chosen)
        return (self.job(index) for index in self.tried(jobs))

    def tried(self, indices: npt.NDArray[np.intp]) -> list[int]:
        """Return the jobs, by index, that this session tries, without jobs that another job represents."""
        return self.classes.leads(indices[~self.turns.aside[indices]])

    def later(self) -> npt.NDArray[np.bool_]:
        """Return the jobs, by index, that this session does not try and that did not change. Their reasons and
        conditions remain."""
        later = self.turns.aside.copy()
        later[[job.index for job in self.views.jobs() if job.touched]] = False
        return later

    def take_turns(self) -> None:
        """Choose the jobs that this session tries. Before this call, every job counts as tried."""
        self.turns.take(self.snapshot, self.views.pending, self.classes)

    def task(self, row: int) -> Task:
        """Return the task of a row of the snapshot's columns. The row must belong to a job."""
        return self.views.task(row)

    def pending_rows_of(self, keys: Container[str]) -> list[int]:
        """Return the rows of the jobs' pending tasks with one of the keys, in order of key."""
        names = self.snapshot.tasks.keys
        found = ((name, row) for row in self.views.pending.rows.tolist() if (name := names[row]) in keys)
        return [row for _, row in sorted(found)]

    def releasing_on_nodes(self) -> Counts:
        """Return per job the number of terminating tasks on a node, even a deleted one, including those that this
        session evicted."""
        releasing: Counts = self.jobs.releasing.copy()
        touched = [job for job in self.views.jobs() if job.touched]
        rows = np.array([job.index for job in touched], np.intp)
        now = np.array([job.counts[_S.RELEASING] for job in touched], np.int32)
        releasing[rows] += now - self.jobs.counts[rows, _S.RELEASING]
        return releasing

    # --- nodes ------------------------------------------------------------------------------------------------------

    def nominated_node(self, task: Task) -> int | None:
        """Return the node on which an earlier preemption freed resources for a task, or None."""
        name = self.snapshot.nominated.get(task.key)
        return None if name is None else self.nodes.facts.row_of.get(name)

    def refusing_nodes(self, task: Task) -> list[int]:
        """Return the nodes for which the API server refused to bind a task, by row, the last refusal last."""
        backoff = self.snapshot.backoffs.get(task.row)
        names, row_of = () if backoff is None else backoff.nodes, self.nodes.facts.row_of
        return [row_of[name] for name in names if name in row_of]

    def is_full(self) -> bool:
        """Return whether the limit of placements per cycle is reached; the next cycle continues (docs/laws.md, law 3).

        Placements that stay pipelined do not count: each cycle repeats them, so it might never get further.
        """
        self.full = self.trial.placements - self.trial.staying >= self.snapshot.settings.placements
        return self.full

    @property
    def more(self) -> bool:
        """Whether the next session must follow at once, because this one did not try all jobs."""
        return self.full or self.turns.goes_on

    def commit_pipelined(self, job: Job) -> None:
        """Commit the pipelined statements of a job, except those of sub-jobs that are still not ready."""
        for statement in self.trial.pipelined.pop(job.index, []):
            if any(statement is other for other in self.pipelined_sub_jobs):
                statement.stay_pipelined()
            else:
                statement.commit()

    def release(self) -> None:
        """Break reference cycles when the session is no longer used.

        Otherwise only the garbage collector would free it. A collection over so many objects stops the whole program
        for a long time, and starts late, because the collector counts objects and ignores the size of columns.
        """
        self.views.release()
        self.trial.release()
        self.pipelined_sub_jobs.clear()
        for service in self._provided.values():
            if isinstance(service, Releasable):
                service.release()
        self._provided.clear()

    # --- services ---------------------------------------------------------------------------------------------------

    def provide(self, service: S) -> S:
        """Make ``service`` the session's only object of its type, and return it. If it is ``Releasable``, the session
        releases it."""
        self._provided[type(service)] = service
        return service

    def provided(self, kind: type[S], make: Callable[[], S] | None = None) -> S:
        """Return the session's only object of a type, created on first access.

        Raises KeyError if it does not exist and ``make`` is None.
        """
        found = self._provided.get(kind)
        if found is None:
            if make is None:
                raise KeyError(kind.__name__)
            found = self.provide(make())
        return cast(S, found)

    def amounts(self, values: Iterable[int]) -> dict[str, str]:
        """Return integers in the order of the session's resources as quantities by name, without zeros."""
        pairs = zip(self.nodes.resources, values, strict=True)
        return {name: format_sum(name, value) for name, value in pairs if value and name != UNOFFERED}

    def told(self, columns: Iterable[int], **amounts: Sequence[int] | Ints) -> list[Amount]:
        """Return amounts for a reason, for the resources of some columns: (role, resource, amount), without zeros.

        The keywords are the roles, with underscores for spaces.
        """
        names = [(column, self.nodes.resources[column]) for column in columns]
        return [
            (word.replace("_", " "), name, int(values[column]))
            for word, values in amounts.items()
            for column, name in names
            if values[column]
        ]


def _typed(found: Mapping[str, Object], of: type[T]) -> Mapping[str, T]:
    typed: dict[str, T] = {}
    for key, obj in found.items():
        if isinstance(obj, Foreign):
            try:
                typed[key] = obj.read_as(of)
            except BadObject:
                continue  # omit it: it was logged when a plugin declared other fields of the kind
        elif isinstance(obj, of):
            typed[key] = obj
    return typed

"""One session: the snapshot as jobs, queues, tasks and nodes.

Jobs, queues and tasks are views made when they are first asked for; whole columns are there for who wants speed
(``jobs``, ``nodes.usage``, ``snapshot.tasks``). What changes in trial is changed by statements only.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from vcd.model.codec import BadObject, Foreign
from vcd.model.objects import Object
from vcd.model.reasons import MEND_NAMED, Amount, Cause, Reason, ReasonCode
from vcd.model.requests import UNOFFERED, format_sum
from vcd.model.status import (
    TaskStatus,
)
from vcd.scheduling.session.alike import Condition
from vcd.scheduling.session.classes import EquivalenceClasses
from vcd.scheduling.session.gauges import Gauge
from vcd.scheduling.session.jobs import has_ended, is_ready
from vcd.scheduling.session.nodes import Ints, Nodes
from vcd.scheduling.session.orphans import Orphans
from vcd.scheduling.session.outside import NOBODY, Outside
from vcd.scheduling.session.queues import Queue
from vcd.scheduling.session.reasons import Problem
from vcd.scheduling.session.statement import Statement, Trial
from vcd.scheduling.session.turns import Turns
from vcd.scheduling.session.views import Job, Task, Views
from vcd.state.backoff import RefusalBackoff, namespace_backoff
from vcd.state.content import NO_OBJECTS, Objects
from vcd.state.groups import Counts
from vcd.state.records import GroupRecord, Shape
from vcd.state.shapes import flags_of
from vcd.state.snapshot import Snapshot

_QUEUE_MISSING = ReasonCode(
    "queue-missing",
    Cause.QUEUE_MISSING,
    "queue {queue} does not exist",
    mend="create the queue, or name another one in the PodGroup's spec.queue",
)
_QUEUE_UNUSABLE = ReasonCode("queue-unusable", Cause.INVALID, "queue {queue} cannot be used", mend=MEND_NAMED)

S = TypeVar("S")
T = TypeVar("T", bound=Object)

ROOT_QUEUE = "root"
"""Above all queues that name no parent."""
_NOWHERE = -1
"""The node of a pod that names none."""
_SHOWN_PODS = 3
"""How many pods a reason names."""

_S = TaskStatus


@runtime_checkable
class Releasable(Protocol):
    """A service of a session that has others which refer back to it."""

    def release(self) -> None:
        """Let go of them."""


class Session:
    """What actions and plugins work on.

    ``now`` is in nanoseconds since the epoch, ``seed`` orders equal nodes; ``outside`` answers questions to the world
    (``vcd.scheduling.session.outside``).
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
        """What was decided by: tables of other plugins do not hold."""
        self.left_out = frozenset(left_out)
        """The plugins and actions that failed or took too long; of plugins those are here that ask outside."""
        self.now = now
        self.seed = seed
        self.full = False
        """Whether the bound on placements was reached, so that jobs behind were not tried."""
        self.rounds: dict[str, None] = {}
        """Plugins that held a round in this session (``Plan.rounds``), to be set when it closes."""
        self.lapsed: list[str] = []
        """Admitted groups whose reservation ends with this session (``Plan.lapsed``)."""
        self.conditions: dict[int, Condition] = {}
        """Conditions of groups by the job's index: type, status, reason."""
        self.settled: list[tuple[npt.NDArray[np.bool_], Condition]] = []
        """Conditions of many groups, by the jobs' indices; those of ``conditions`` come before them."""
        self._provided: dict[type, Any] = {}
        self.faults: tuple[str, ...] = ()
        self.interrupted: tuple[str, ...] = ()
        """Those of ``faults`` that took too long in an earlier attempt at this session, or in one before it."""
        self.errors: dict[str, Exception] = {}
        """What those in ``faults`` raised, by name, for who tells of it."""
        self.gauges: dict[str, tuple[Gauge, ...] | Exception] = {}
        """What plugins that are not ours show, once that was taken (``execution.take_gauges``)."""
        self.wakes: tuple[int, ...] = ()
        """When time alone changes what plugins say (ns since the epoch), once that was taken
        (``execution.take_wakes``)."""
        self.problems: dict[str, tuple[Problem, ...] | Exception] = {}
        """What plugins find misconfigured, once that was taken (``execution.take_problems``)."""
        self.ungated: dict[int, Task] = {}
        """Tasks whose queue's scheduling gate is to be lifted, by row, in the order in which that was decided."""
        self.requests: Ints = snapshot.shape_columns.requests
        self.nodes = Nodes(snapshot)
        self.queue_list = [Queue(i, name, snapshot.queues[name]) for i, name in enumerate(sorted(snapshot.queues))]
        self.queues = {queue.name: queue for queue in self.queue_list}
        self.jobs = snapshot.group_columns
        self.job_of_row: Ints = self.jobs.of_row
        self.backing_off = self._backing_off()
        """Tasks that are not tried, or evicted, before a time that has not come, by row."""
        self.views = Views(snapshot, self.queue_list, self.backing_off)
        self.trial = Trial(self.nodes, snapshot.tasks)
        self.pipelined_sub_jobs: list[Statement] = []
        """Statements of sub-jobs that wait for room: not bound before they have it."""
        self.classes = EquivalenceClasses(self.jobs)
        self.turns = Turns(len(self.jobs))
        self.orphans = Orphans(snapshot, {name: queue.index for name, queue in self.queues.items()})

    @cached_property
    def queue_of_row(self) -> Ints:
        """The queue, as a row of ``queue_list``, that each pod counts against: its job's, or that of the group that it
        outlived; -1 where there is none."""
        jobs = self.job_of_row
        result = np.where(jobs >= 0, np.append(self.jobs.queue, -1)[jobs], -1).astype(np.int64)
        result[self.orphans.rows] = self.orphans.queues
        return result

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
        """Until when nothing is decided on the pending pods of a namespace (ns since the epoch); 0 if it is not held
        back."""
        until = self.snapshot.held_namespaces.get(namespace, 0)
        return until if until > self.now else 0

    def queue_name_of(self, record: GroupRecord) -> str:
        """The queue that a group is in: the default queue where it names none."""
        return self.snapshot.settings.queue_of(record.group)

    def why_no_queue(self, name: str) -> Reason:
        """Why there is no queue of a name: it could not be read, or nobody made it."""
        problem = self.snapshot.bad_queues.get(name)
        if problem is None:
            return _QUEUE_MISSING({"queue": name})
        return _QUEUE_UNUSABLE({"queue": name, "problem": problem})

    def lineage(self, queue: Queue) -> list[Queue]:
        """A queue and its ancestors, the root last; ends early at a parent that is not there, or that came before."""
        found = [queue]
        while found[-1].name != ROOT_QUEUE:
            parent = self.queues.get(found[-1].record.queue.spec.parent or ROOT_QUEUE)
            if parent is None or parent in found:
                break
            found.append(parent)
        return found

    def cached_for(self, kind: str, key: Hashable, make: Callable[[], S]) -> S:
        """What ``make`` computes from the objects of a kind alone, computed once as long as none of them changes."""
        held = self.snapshot.others.get(kind, NO_OBJECTS)
        kept: S = held.cached(key, make) if isinstance(held, Objects) else make()
        return kept

    def objects(self, kind: str, of: type[T]) -> Mapping[str, T]:
        """The objects of a kind beside pods, nodes, groups and queues, by key, as the type that the kind declares.

        One that was logged under another declaration, and that this type cannot read, is left out until it is listed
        again. Raises nothing.
        """
        return self.cached_for(kind, of, lambda: _typed(self.snapshot.others.get(kind, NO_OBJECTS), of))

    def shape_flags(self, of: Callable[[Shape], bool]) -> npt.NDArray[np.bool_]:
        """A bool per shape number."""
        return flags_of(self.snapshot.shapes, of)

    # --- views ------------------------------------------------------------------------------------------------------

    def job(self, index: int) -> Job:
        """The job of a row of ``jobs``."""
        return self.views.job(index)

    def all_jobs(self) -> Iterator[Job]:
        """All jobs, in order of key."""
        return (self.job(index) for index in range(len(self.jobs)))

    def settle(self, condition: Condition) -> Iterator[Job]:
        """Set ``condition`` on jobs that have their minimum and that nobody looked at; all others are left to the
        caller, but for jobs that ended, or whose turn comes later: what they were told in their time holds."""
        columns = self.jobs
        ready, ended = columns.derived(is_ready), columns.derived(has_ended)
        untouched = np.ones(len(columns), np.bool_)
        untouched[[job.index for job in self.views.jobs()]] = False
        for lead, followers in self.classes.followers():
            untouched[followers] &= untouched[lead]  # what is said of the lead is said of them
        others = ~(self.classes.follows | self.later())
        self.settled.append((ready & ~ended & untouched, condition))
        return (self.job(index) for index in np.flatnonzero(others & (~untouched | ~(ready | ended))).tolist())

    def jobs_with_pending(self, of: Callable[[Shape], bool] | None = None) -> Iterator[Job]:
        """Jobs that had pending tasks, of some shapes by a function of a module, when the session began, in order of
        key; without those for which another one stands (``classes``), and those that are not tried (``turns``)."""
        jobs = self.views.pending.distinct
        if of is not None:
            chosen = self.snapshot.shape_columns.flags(of)[self.snapshot.tasks.shape[self.views.pending.rows]]
            jobs = self.views.pending.jobs_of(chosen)
        return (self.job(index) for index in self.tried(jobs))

    def tried(self, indices: npt.NDArray[np.intp]) -> list[int]:
        """Those of some jobs, by index, that this session tries, without those for which another one stands."""
        return self.classes.leads(indices[~self.turns.aside[indices]])

    def later(self) -> npt.NDArray[np.bool_]:
        """The jobs, by index, whose turn comes in another session and of which nothing changed: their reasons
        and statuses stay those of their own turn."""
        later = self.turns.aside.copy()
        later[[job.index for job in self.views.jobs() if job.touched]] = False
        return later

    def take_turns(self) -> None:
        """Choose the jobs that this session tries; all of them, before it is called."""
        self.turns.take(self.snapshot, self.views.pending, self.classes)

    def task(self, row: int) -> Task:
        """The task of a row of the snapshot's columns; it must belong to a job."""
        return self.views.task(row)

    def pending_rows_of(self, keys: Container[str]) -> list[int]:
        """Rows of those of the jobs' pending tasks that have one of the keys, in order of key."""
        names = self.snapshot.tasks.keys
        found = ((name, row) for row in self.views.pending.rows.tolist() if (name := names[row]) in keys)
        return [row for _, row in sorted(found)]

    def releasing_on_nodes(self) -> Counts:
        """Per job, tasks that are being deleted and still sit on a node, be it one that is gone; those that
        this session evicted are among them."""
        releasing: Counts = self.jobs.releasing.copy()
        touched = [job for job in self.views.jobs() if job.touched]
        rows = np.array([job.index for job in touched], np.intp)
        now = np.array([job.counts[_S.RELEASING] for job in touched], np.int32)
        releasing[rows] += now - self.jobs.counts[rows, _S.RELEASING]
        return releasing

    # --- nodes ------------------------------------------------------------------------------------------------------

    def nominated_node(self, task: Task) -> int | None:
        """The node that an earlier preemption made room on for a task, None where there is none (any more)."""
        name = self.snapshot.nominated.get(task.key)
        return None if name is None else self.nodes.facts.row_of.get(name)

    def refusing_nodes(self, task: Task) -> list[int]:
        """The nodes for which the API server refused to bind a task, by row, the last refused one last."""
        backoff = self.snapshot.backoffs.get(task.row)
        names, row_of = () if backoff is None else backoff.nodes, self.nodes.facts.row_of
        return [row_of[name] for name in names if name in row_of]

    def is_full(self) -> bool:
        """Whether the bound on one cycle's work is reached; what is left goes on in the next (docs/laws.md, law 3).

        What stays pipelined does not count: each cycle makes it anew, and might get no further.
        """
        self.full = self.trial.placements - self.trial.staying >= self.snapshot.settings.placements
        return self.full

    @property
    def more(self) -> bool:
        """Whether the next session has to follow at once, since this one did not try all jobs."""
        return self.full or self.turns.goes_on

    def commit_pipelined(self, job: Job) -> None:
        """Commit what a job held without being ready, but for what sub-jobs hold that still are not."""
        for statement in self.trial.pipelined.pop(job.index, []):
            if any(statement is other for other in self.pipelined_sub_jobs):
                statement.stay_pipelined()
            else:
                statement.commit()

    def release(self) -> None:
        """Let go of what refers to each other, once nobody asks for it any more.

        Else only the garbage collector frees it: going through as many objects as a full session has, it makes the
        whole program stand still, and it begins late, since it counts objects and knows nothing of columns.
        """
        self.views.release()
        self.trial.release()
        self.pipelined_sub_jobs.clear()
        for service in self._provided.values():
            if isinstance(service, Releasable):
                service.release()
        self._provided.clear()

    # --- notes ------------------------------------------------------------------------------------------------------

    def provide(self, service: S) -> S:
        """Have ``service`` be the session's one object of its type, for all who ask; it is given back. One that is
        ``Releasable`` is released with the session."""
        self._provided[type(service)] = service
        return service

    def provided(self, kind: type[S], make: Callable[[], S] | None = None) -> S:
        """The session's one object of a type, made when it is first asked for.

        Raises KeyError where nobody provided it and there is no ``make``.
        """
        found = self._provided.get(kind)
        if found is None:
            if make is None:
                raise KeyError(kind.__name__)
            found = self.provide(make())
        return cast(S, found)

    def amounts(self, values: Iterable[int]) -> dict[str, str]:
        """Integers in the order of the session's resources as quantities by name, zeros left out."""
        pairs = zip(self.nodes.resources, values, strict=True)
        return {name: format_sum(name, value) for name, value in pairs if value and name != UNOFFERED}

    def told(self, columns: Iterable[int], **amounts: Sequence[int] | Ints) -> list[Amount]:
        """Several such of some resources, each name with a word before it, as in ``asks cpu``."""
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
                continue  # logged under another declaration of the kind
        elif isinstance(obj, of):
            typed[key] = obj
    return typed

"""The contents of a snapshot: copies of mutable columns, and shared immutable records.

A session reads these in another thread while events change the state. So a mutable column is copied, and a record is
replaced, never changed. `snapshot.py` has the results that are computed from the contents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt

from vcd.model.events import VolumeChoice, Waiting
from vcd.model.objects import Object, Pod
from vcd.model.status import TERMINATED_STATUSES, TaskStatus
from vcd.state.backoff import RefusalBackoff
from vcd.state.immunity import Evicted
from vcd.state.incomplete_admissions import IncompleteAdmission
from vcd.state.interning import NO_ROW, Computed, Pages
from vcd.state.node_facts import NodeFacts
from vcd.state.records import GroupRecord, QueueRecord, Settings, Shape, stated_queue
from vcd.state.shape_columns import ShapeColumns
from vcd.state.turns_taken import TurnsTaken

Ints = npt.NDArray[np.int64]
Index = npt.NDArray[np.int32]

_FEW = 10
"""Up to this many rows are read one by one, more of them column by column."""
_ALIVE = np.array([status not in TERMINATED_STATUSES for status in TaskStatus])
GONE = -2
"""The row for nodes that pods name and that do not exist."""


class Objects(dict[str, Object]):
    """The objects of one kind by key, never changed, shared by snapshots until one object changes.

    ``cached`` holds results computed from these objects alone.
    """

    def __init__(self, found: Mapping[str, Object]) -> None:
        super().__init__(found)
        self.cached = Computed()


NO_OBJECTS = Objects({})


def values_of(columns: Sequence[npt.NDArray[np.integer[Any]]], rows: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the values of some rows, from several columns."""
    if len(rows) <= _FEW:
        return [tuple([column.item(row) for column in columns]) for row in rows]
    places = np.array(rows, np.intp)
    return list(zip(*[column.take(places).tolist() for column in columns], strict=True))


class TaskColumns(msgspec.Struct, frozen=True, dict=True):
    """One row per pod.

    ``node`` is a row of the facts (-1: none, -2: a node that does not exist), ``job`` a number of ``job_keys`` (-1:
    none). Freed rows have no node and no job.
    """

    status: npt.NDArray[np.int8]
    node: Index
    job: Index
    shape: Index
    labels: Index
    namespace: Index
    scheduler: Index
    priority: Index
    created: Ints
    keys: Pages[str | None]
    pods: Pages[Pod | None]

    def pod(self, row: int) -> Pod:
        """Return the pod of a row that is not free."""
        return cast(Pod, self.pods[row])

    def pods_of(self, rows: Iterable[int]) -> list[Pod]:
        """Return the pods of rows that are not free."""
        return cast(list[Pod], self.pods.at(rows))

    def keys_of(self, rows: Iterable[int]) -> list[str]:
        """Return the keys of rows that are not free."""
        return cast(list[str], self.keys.at(rows))

    def uids_of(self, rows: Iterable[int]) -> list[str]:
        """Return the UIDs of the pods of rows that are not free."""
        return [pod.metadata.uid for pod in self.pods_of(rows)]

    def in_order(self, rows: Sequence[int]) -> list[int]:
        """Sort rows that are not free by key."""
        return [row for _, row in sorted(zip(self.keys_of(rows), rows, strict=True))]

    @cached_property
    def alive(self) -> npt.NDArray[np.bool_]:
        """Which pods did not end; freed rows are marked too."""
        alive: npt.NDArray[np.bool_] = _ALIVE[self.status]
        return alive

    @cached_property
    def placed(self) -> npt.NDArray[np.bool_]:
        """Which pods did not end and are on an existing node, or being bound to one."""
        placed: npt.NDArray[np.bool_] = (self.node >= 0) & self.alive
        return placed

    def is_placed(self, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
        """Return ``placed`` for some rows."""
        placed: npt.NDArray[np.bool_] = (self.node[rows] >= 0) & _ALIVE[self.status[rows]]
        return placed


@dataclass(frozen=True)
class Content:
    """The contents of a snapshot of the cluster at ``sequence``.

    ``resources`` names the columns of every matrix of quantities: cpu, memory, then by name. ``facts`` are the nodes in
    order of name. ``job_keys``, ``shapes``, ``label_sets``, ``namespaces`` and ``schedulers`` are indexed by the
    numbers in the columns of ``tasks``. ``volumes`` are the volumes chosen for claims of pods that are being bound,
    ``annotations`` are those set with a bind and not observed yet. ``lifting`` are pods whose queue admission gate is
    being removed, with their UIDs.

    ``nominated`` are pods that wait for evictions, with their node. ``nomination_turns`` orders these nominations,
    later is higher; 0 if only the API server states it. ``evicted`` are the pods that groups lost to others. ``rounds``
    is when plugins that act in rounds had their last one. ``former`` are groups that pods name and that do not exist,
    with their last queue, None if they were never observed.
    """

    sequence: int
    resources: tuple[str, ...]
    facts: NodeFacts
    tasks: TaskColumns
    job_keys: Pages[str | None]
    shapes: Pages[Shape | None]
    label_sets: Pages[dict[str, str] | None]
    namespaces: Pages[str | None]
    schedulers: Pages[str | None]
    groups: Mapping[str, GroupRecord]
    queues: Mapping[str, QueueRecord]
    bad_queues: Mapping[str, str]
    others: Mapping[str, Mapping[str, Object]]
    others_version: Mapping[str, int]
    answers: Mapping[str, bytes]
    waiting: Mapping[str, tuple[Waiting, ...]]
    stranded: Mapping[str, int]
    backoffs: Mapping[int, RefusalBackoff]
    """Pods with an operation that the API server refused, by row, whether or not the back-off is over."""
    released: Mapping[str, RefusalBackoff]
    """Released gangs with their back-off, by key of the group."""
    held_namespaces: Mapping[str, int]
    """Namespaces in which another scheduler binds vcd's pods, with the end of the hold (ns since the epoch)."""
    turns: Mapping[str, TurnsTaken]
    """Where the next session continues in namespaces with many kinds of pending pods."""
    admissions: Mapping[str, IncompleteAdmission]
    """Admitted groups without all pods of their minimum, by key."""
    volumes: Mapping[str, tuple[VolumeChoice, ...]]
    annotations: Mapping[str, Mapping[str, str]]
    lifting: Mapping[str, str]
    nominated: Mapping[str, str]
    nomination_turns: Mapping[str, int]
    evicted: Mapping[str, Evicted]
    rounds: Mapping[str, int]
    former: Mapping[str, str | None]
    settings: Settings

    @cached_property
    def held_rows(self) -> dict[int, int]:
        """The pending pods of ``held_namespaces``, by row, with the end of the hold."""
        found: dict[int, int] = {}
        for number, name in enumerate(self.namespaces) if self.held_namespaces else ():
            if until := self.held_namespaces.get(name or ""):
                is_pending = (self.tasks.namespace == number) & (self.tasks.status == TaskStatus.PENDING)
                found.update(dict.fromkeys(np.flatnonzero(is_pending).tolist(), until))
        return found

    @cached_property
    def orphans(self) -> Mapping[int, str]:
        """The queues of placed pods whose group was deleted, by row of the pod.

        The queue is that of the former group or, if it was never observed, the one that the pod names. Pods without
        either are left out. The queue may have been deleted, too.
        """
        if not self.former:
            return {}
        numbers = [number for number, key in enumerate(self.job_keys) if key in self.former]
        tasks = self.tasks
        held = np.isin(tasks.job, numbers) & (tasks.node != NO_ROW) & tasks.alive
        found = {}
        for row in np.flatnonzero(held).tolist():
            queue, pod = self.former[self.job_keys[tasks.job[row]] or ""], tasks.pods[row]
            if queue is None:
                queue = "" if pod is None else stated_queue(pod)
            else:
                queue = queue or self.settings.default_queue
            if queue:
                found[row] = queue
        return found

    earlier: EarlierSnapshot | None = field(default=None, init=False, repr=False, compare=False)

    # --- what follows from these ------------------------------------------------------------------------------------

    @cached_property
    def shape_columns(self) -> ShapeColumns:
        """The requests of each shape."""
        earlier = self.earlier
        if earlier is None or earlier.shapes is None or earlier.snapshot.resources != self.resources:
            return ShapeColumns(self.shapes, self.resources)
        columns = earlier.snapshot.shape_columns
        return columns.with_changes(self.shapes, earlier.shapes) if earlier.shapes else columns


class EarlierSnapshot(msgspec.Struct, frozen=True):
    """An earlier snapshot of the same state, and what changed since.

    These are keys of groups, keys of groups with other reasons for waiting, rows of tasks, and numbers of shapes. None:
    unknown.
    """

    snapshot: Content
    groups: list[str] | None
    waiting: list[str] | None
    rows: list[int] | None
    shapes: list[int] | None

"""Orders: keys and their labels, heaps of keys, and the order of a job's tasks and of victims.

Smaller keys come first, except in ``VictimOrder``. Every key ends in age and name, so that no order depends on chance.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

from vcd.model.events import Waiting
from vcd.scheduling.session.equivalence_classes import EquivalenceClass
from vcd.scheduling.session.reason_templates import open_reasons, pods_of, reasons_of
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.state.records import alike_in_order, index_in_name

T = TypeVar("T")
M = TypeVar("M", bound=Callable[..., Any])


def plain(value: Any) -> str:
    """Return the text of a key's value that has no label."""
    if isinstance(value, (bool, int, str)):
        return str(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, tuple):
        return "/".join(map(plain, value))
    return type(value).__name__


def yes_or_no(value: bool) -> str:
    """Return "yes" or "no", for a boolean value of a key."""
    return "yes" if value else "no"


class Label(NamedTuple):
    """The meaning of one value of a plugin's key.

    ``first`` and ``last`` describe the item that comes first or last by it, and ``shown`` formats the value.
    """

    name: str
    first: str
    last: str
    shown: Callable[[Any], str] = plain


class LiveKey:
    """A key that reads the current state when it is compared, so placements change it."""

    def now(self) -> Any:
        """Return a constant key with the current value, which compares with other keys as this one does now."""
        raise NotImplementedError


def settled(key: Any) -> Any:
    """Return a plugin's key with its current value, for later use."""
    return key.now() if isinstance(key, LiveKey) else key


PRIORITY = Label("priority", "higher priority", "lower priority", lambda value: str(-value))
SHARE = Label("share", "smaller share", "larger share")


def labelled(*labels: Label) -> Callable[[M], M]:
    """Declare the meaning of a plugin's key: a label for each value of the tuple, or one for the whole key."""

    def declare(method: M) -> M:
        method.__dict__["labels"] = labels
        return method

    return declare


def labels_of(plugin: object, point: str) -> tuple[Label, ...]:
    """Return the labels that a plugin declares for its keys at a point; empty if it declares none."""
    labels: tuple[Label, ...] = getattr(getattr(plugin, point), "labels", ())
    return labels


class PriorityQueue(Generic[T]):
    """A heap: the item with the smallest key comes first.

    A key is computed when its item is pushed, and holds while the item is in the queue. So an item's key may only
    change by work on that item while it is out.
    """

    def __init__(self, key: Callable[[T], tuple[Any, ...]], items: Iterable[T] = ()) -> None:
        self._key = key
        self._count = 0
        self._heap: list[tuple[tuple[Any, ...], int, T]] = []
        for item in items:
            self._heap.append((key(item), self._next(), item))
        heapq.heapify(self._heap)

    def _next(self) -> int:
        self._count += 1
        return self._count

    def push(self, item: T) -> None:
        """Add an item with its current key."""
        heapq.heappush(self._heap, (self._key(item), self._next(), item))

    def pop(self) -> T:
        """Remove and return the first item. Raises IndexError if there is none."""
        return heapq.heappop(self._heap)[2]

    def rest(self) -> list[T]:
        """Return all items, in no particular order."""
        return [item for _, _, item in self._heap]

    def copy(self, key: Callable[[T], tuple[Any, ...]]) -> PriorityQueue[T]:
        """Return a copy with the same order, in which ``key`` computes keys from now on."""
        result = PriorityQueue(key)
        result._heap, result._count = list(self._heap), self._count
        return result

    def __len__(self) -> int:
        return len(self._heap)


class _Turn(NamedTuple):
    """A heap entry for a job, or for the equivalent jobs that follow it in its class.

    ``templates`` are the reasons that the job had when the queue was created, as templates for its class. ``touched``
    is whether the job had been tried before.
    """

    key: tuple[Any, ...]
    number: int
    job: int
    equivalents: EquivalenceClass | None
    position: int
    templates: tuple[Waiting, ...] = ()
    touched: bool = False


class JobQueue:
    """The job with the smallest key first, without jobs that are equivalent to a failed one.

    The caller tries each popped job before it uses the queue again. The job failed if the session decided nothing since
    then (``Trial.decisions``). Until something is decided, equivalent jobs would fail in the same way, so they are
    skipped. Keys are computed when the queue is created or a job is pushed; see ``PriorityQueue``.
    """

    def __init__(self, session: Session, key: Callable[[Job], tuple[Any, ...]], jobs: Iterable[Job]) -> None:
        self._session = session
        self._key = key
        self._count = 0
        self._heap: list[_Turn] = []
        self._last_popped: tuple[_Turn, int] | None = None
        self._failed: dict[EquivalenceClass, int] = {}
        """For each class with a failed job, the number of decisions at that time."""
        for job in jobs:
            self._heap.append(self._turn_of(job))
        heapq.heapify(self._heap)

    def _turn_of(self, job: Job) -> _Turn:
        self._count += 1
        equivalents, position = self._session.classes.of(job.index) or (None, 0)
        templates = (
            () if equivalents is None or not job.why else open_reasons(job.why, pods_of(self._session.jobs, job.index))
        )
        return _Turn(self._key(job), self._count, job.index, equivalents, position, templates, job.touched)

    def push(self, job: Job) -> None:
        """Add a job with its current key."""
        self._settle()
        heapq.heappush(self._heap, self._turn_of(job)._replace(equivalents=None))

    def pop(self) -> Job:
        """Remove and return the first job. Raises IndexError if there is none."""
        self._settle()
        turn = heapq.heappop(self._heap)
        if turn.equivalents is not None:
            self._last_popped = turn, self._session.trial.decisions
        return self._lead(turn)

    def rest(self) -> list[Job]:
        """Return the remaining jobs, in no particular order; of equivalent jobs, only the representative."""
        self._settle()
        return [self._lead(turn) for turn in self._heap]

    def _lead(self, turn: _Turn) -> Job:
        """Return the job of an entry, as the representative of itself and the equivalent jobs after it."""
        session = self._session
        job = session.job(turn.job)
        if turn.equivalents is not None and session.classes.follows[turn.job]:
            session.classes.lead(turn.equivalents, turn.position)
            job.why[:] = reasons_of(turn.templates, job.key, pods_of(session.jobs, turn.job)) if turn.templates else ()
            job.touched |= turn.touched
        return job

    def __len__(self) -> int:
        """Return the number of entries: 0 if no job is left, otherwise at most the number of jobs."""
        self._settle()
        return len(self._heap)

    def _settle(self) -> None:
        """Push an entry for the next job equivalent to the popped one; skip jobs that would fail as others did."""
        if self._last_popped is not None:
            (turn, decisions), self._last_popped = self._last_popped, None
            if turn.equivalents is not None and decisions == self._session.trial.decisions:
                self._failed[turn.equivalents] = decisions
            self._push_after(turn, turn.position + 1)
        while self._heap and self._would_fail(self._heap[0]):
            if all(self._would_fail(turn) for turn in self._heap):
                self._heap.clear()
                return
            turn = heapq.heappop(self._heap)
            self._push_after(turn, self._first_beyond(turn, self._heap[0].key))

    def _would_fail(self, turn: _Turn) -> bool:
        """Return whether an equivalent job failed in the same situation. Former representatives are always tried."""
        equivalents = turn.equivalents
        return (
            equivalents is not None
            and self._failed.get(equivalents) == self._session.trial.decisions
            and bool(self._session.classes.follows[turn.job])
        )

    def _push_after(self, turn: _Turn, position: int) -> None:
        equivalents = turn.equivalents
        if equivalents is not None and position < equivalents.end_of(turn.position):
            heapq.heappush(
                self._heap,
                turn._replace(
                    key=self._key_at(turn, position), job=int(equivalents.order[position]), position=position
                ),
            )

    def _first_beyond(self, turn: _Turn, key: tuple[Any, ...]) -> int:
        assert turn.equivalents is not None
        end = turn.equivalents.end_of(turn.position)
        return bisect_left(range(end), key, turn.position + 1, end, key=lambda position: self._key_at(turn, position))

    def _key_at(self, turn: _Turn, position: int) -> tuple[Any, ...]:
        """Return the key of an equivalent job: only age and name differ."""
        assert turn.equivalents is not None
        index, jobs = int(turn.equivalents.order[position]), self._session.jobs
        return (*turn.key[:-2], int(jobs.created[index]), jobs.keys[index])


def ordered_tasks(plugin_key: Callable[[Task], tuple[Any, ...]] | None, tasks: list[Task]) -> list[Task]:
    """Return tasks of one job in order of placement: by the plugins' key, if any, then by index, age and name."""
    if len(tasks) < 2:
        return tasks
    keys, ages = [task.key for task in tasks], [task.created for task in tasks]
    order: Sequence[Any] = alike_in_order(keys, ages, lambda: [task.uid for task in tasks])
    if plugin_key is not None:
        order = [(plugin_key(task), last) for task, last in zip(tasks, order, strict=True)]
    return [task for _, task in sorted(zip(order, tasks, strict=True), key=itemgetter(0))]


class _VictimKey(NamedTuple):
    """A task's key in two forms, as for ``alike_in_order``: ``numbered`` includes the index in the task's name, and is
    used if all compared tasks have one. It is empty for a name without an index."""

    plain: tuple[Any, ...]
    numbered: tuple[Any, ...]


_KeysOfJob = tuple[tuple[Any, ...], dict[int, _VictimKey]]


class VictimOrder:
    """The order of eviction: tasks that would be placed last are evicted first.

    The keys of a job and its tasks are cached until one of its tasks moves.
    """

    def __init__(
        self, session: Session, job_key: Callable[[Job], tuple[Any, ...]], task_key: Callable[[Task], tuple[Any, ...]]
    ) -> None:
        self._moves = session.views.moves
        self._moves_seen = 0
        self._job_key = job_key
        self._task_key = task_key
        self._keys: dict[int, _KeysOfJob] = {}
        self._last_sorted: list[Task] = []
        """The result of the last sort."""
        self._unnumbered: set[int] = set()
        """Rows of the tasks in that result whose names have no index."""
        self._moved_jobs: set[int] = set()
        """Indices of the jobs whose tasks moved after that sort."""

    def _keys_of(self, job: Job) -> _KeysOfJob:
        """Return a job's key, and the cached keys of its tasks."""
        found = self._keys.get(job.index)
        if found is None:
            found = self._keys[job.index] = (self._job_key(job), {})
        return found

    def _catch_up(self) -> None:
        if self._moves_seen < len(self._moves):
            for task in self._moves[self._moves_seen :]:
                self._keys.pop(task.job.index, None)
                self._moved_jobs.add(task.job.index)
            self._moves_seen = len(self._moves)

    def job_key(self, job: Job) -> tuple[Any, ...]:
        """Return a job's key by the plugins' order: the job with the larger key loses pods first."""
        self._catch_up()
        return self._keys_of(job)[0]

    def sorted(self, tasks: list[Task]) -> list[Task]:
        """Return tasks in eviction order. The job that is served last comes first; within a job, the task that is
        placed last comes first."""
        self._catch_up()
        result = self._reuse_last_order(tasks)
        if result is None:
            keys = [self._key(task) for task in tasks]
            self._unnumbered = {task.row for task, key in zip(tasks, keys, strict=True) if not key.numbered}
            pairs = [
                (key.plain if self._unnumbered else key.numbered, task) for key, task in zip(keys, tasks, strict=True)
            ]
            pairs.sort(key=itemgetter(0), reverse=True)
            result = [task for _, task in pairs]
            self._last_sorted = result[:]
            self._moved_jobs.clear()
        return result

    def _reuse_last_order(self, tasks: list[Task]) -> list[Task] | None:
        """Return tasks in the order of the last sort, if that sort contained them and none of their jobs' tasks moved
        since; else None. This shortcut applies often: a node's victims are evicted one by one, and the remaining ones
        are sorted again."""
        rows = {task.row for task in tasks}
        found = [task for task in self._last_sorted if task.row in rows]
        if len(found) < len(tasks) or not self._moved_jobs.isdisjoint([task.job.index for task in found]):
            return None
        return None if self._unnumbered and self._unnumbered.isdisjoint(rows) else found

    def _key(self, task: Task) -> _VictimKey:
        job_key, keys = self._keys_of(task.job)
        found = keys.get(task.row)
        if found is None:
            first, last = (job_key, self._task_key(task)), (task.created, task.uid, task.key)
            index = index_in_name(task.name)
            found = _VictimKey((*first, 0, *last), () if index is None else (*first, index, *last))
            keys[task.row] = found
        return found

"""Who comes first: keys and what they mean, heaps over keys, and the order of a job's tasks."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

from vcd.model.events import Waiting
from vcd.scheduling.session.alike import open_reasons, pods_of, reasons_of
from vcd.scheduling.session.classes import EquivalenceClass
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.state.records import alike_in_order, index_in_name

T = TypeVar("T")
M = TypeVar("M", bound=Callable[..., Any])


def plain(value: Any) -> str:
    """A value of a key of which nothing is declared."""
    if isinstance(value, (bool, int, str)):
        return str(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, tuple):
        return "/".join(map(plain, value))
    return type(value).__name__


def yes_or_no(value: bool) -> str:
    """A yes or no of a key."""
    return "yes" if value else "no"


class Label(NamedTuple):
    """What one value of a plugin's key means: its ``name``, what is said of the one it puts ``first`` and of the one
    it puts ``last``, and how it is ``shown``."""

    name: str
    first: str
    last: str
    shown: Callable[[Any], str] = plain


class LiveKey:
    """A key that compares as things stand at that moment: what is placed meanwhile changes it."""

    def now(self) -> Any:
        """The key as it is now, which stays so; to all others it compares as this one does now."""
        raise NotImplementedError


def settled(key: Any) -> Any:
    """A plugin's key as it is now, for who looks at it later."""
    return key.now() if isinstance(key, LiveKey) else key


PRIORITY = Label("priority", "higher priority", "lower priority", lambda value: str(-value))
SHARE = Label("share", "smaller share", "larger share")


def labelled(*labels: Label) -> Callable[[M], M]:
    """Declares what a plugin's method of a point that orders answers: a label for each value, or one for the key."""

    def declare(method: M) -> M:
        method.__dict__["labels"] = labels
        return method

    return declare


def labels_of(plugin: object, point: str) -> tuple[Label, ...]:
    """The labels that a plugin declares for its keys at a point; none where it declares none."""
    labels: tuple[Label, ...] = getattr(getattr(plugin, point), "labels", ())
    return labels


class PriorityQueue(Generic[T]):
    """The item with the smallest key first.

    A key is computed when its item is pushed, and holds while the item is in: what changes an item's key is work on
    that very item, done while it is out.
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
        """Add an item, with its key as it is now."""
        heapq.heappush(self._heap, (self._key(item), self._next(), item))

    def pop(self) -> T:
        """Take the first. Raises IndexError when there is none."""
        return heapq.heappop(self._heap)[2]

    def rest(self) -> list[T]:
        """All items, in no particular order."""
        return [item for _, _, item in self._heap]

    def __len__(self) -> int:
        return len(self._heap)


class _Turn(NamedTuple):
    """The turn of a job, or of those alike that come after it: its key, its class and position there, and what was told
    of those before all of their turns, and whether they had been tried."""

    key: tuple[Any, ...]
    number: int
    job: int
    alike: EquivalenceClass | None
    position: int
    told: tuple[Waiting, ...] = ()
    touched: bool = False


class JobQueue:
    """The job with the smallest key first; of jobs alike that failed none, as long as nothing was decided since.

    Who pops a job tries it before the queue is asked again: it failed if the session decided nothing meanwhile
    (``Session.decisions``). For those alike whose turn comes until something is decided the same is true, as if each
    had been tried. Keys are computed when the queue is made or a job is pushed: see ``PriorityQueue``.
    """

    def __init__(self, session: Session, key: Callable[[Job], tuple[Any, ...]], jobs: Iterable[Job]) -> None:
        self._session = session
        self._key = key
        self._count = 0
        self._heap: list[_Turn] = []
        self._tried: tuple[_Turn, int] | None = None
        self._failed: dict[EquivalenceClass, int] = {}
        """Of classes of which a job failed, how much had been decided then."""
        for job in jobs:
            self._heap.append(self._turn_of(job))
        heapq.heapify(self._heap)

    def _turn_of(self, job: Job) -> _Turn:
        self._count += 1
        alike, position = self._session.classes.of(job.index) or (None, 0)
        told = () if alike is None or not job.why else open_reasons(job.why, pods_of(self._session.jobs, job.index))
        return _Turn(self._key(job), self._count, job.index, alike, position, told, job.touched)

    def push(self, job: Job) -> None:
        """Add a job, with its key as it is now."""
        self._settle()
        heapq.heappush(self._heap, self._turn_of(job)._replace(alike=None))

    def pop(self) -> Job:
        """Take the first. Raises IndexError when there is none."""
        self._settle()
        turn = heapq.heappop(self._heap)
        if turn.alike is not None:
            self._tried = turn, self._session.trial.decisions
        return self._lead(turn)

    def rest(self) -> list[Job]:
        """Those that are left, in no particular order; of jobs alike the first, that stands for the others."""
        self._settle()
        return [self._lead(turn) for turn in self._heap]

    def _lead(self, turn: _Turn) -> Job:
        """The job whose turn it is; from now on it stands for itself, and for those alike after it."""
        session = self._session
        job = session.job(turn.job)
        if turn.alike is not None and session.classes.follows[turn.job]:
            session.classes.lead(turn.alike, turn.position)
            job.why[:] = reasons_of(turn.told, job.key, pods_of(session.jobs, turn.job)) if turn.told else ()
            job.touched |= turn.touched
        return job

    def __len__(self) -> int:
        """How many turns are left: 0 when none is, else perhaps fewer than there are jobs."""
        self._settle()
        return len(self._heap)

    def _settle(self) -> None:
        """Give the turn after one that was taken to the next job alike, and pass over those that fail as others did."""
        if self._tried is not None:
            (turn, decisions), self._tried = self._tried, None
            if turn.alike is not None and decisions == self._session.trial.decisions:
                self._failed[turn.alike] = decisions
            self._push_after(turn, turn.position + 1)
        while self._heap and self._fails(self._heap[0]):
            if all(self._fails(turn) for turn in self._heap):
                self._heap.clear()
                return
            turn = heapq.heappop(self._heap)
            self._push_after(turn, self._first_beyond(turn, self._heap[0].key))

    def _fails(self, turn: _Turn) -> bool:
        """Whether one alike failed just so; a job that stood for itself before is tried in any case."""
        alike = turn.alike
        return (
            alike is not None
            and self._failed.get(alike) == self._session.trial.decisions
            and bool(self._session.classes.follows[turn.job])
        )

    def _push_after(self, turn: _Turn, position: int) -> None:
        alike = turn.alike
        if alike is not None and position < alike.end_of(turn.position):
            heapq.heappush(
                self._heap,
                turn._replace(key=self._key_at(turn, position), job=int(alike.order[position]), position=position),
            )

    def _first_beyond(self, turn: _Turn, key: tuple[Any, ...]) -> int:
        assert turn.alike is not None
        end = turn.alike.end_of(turn.position)
        return bisect_left(range(end), key, turn.position + 1, end, key=lambda position: self._key_at(turn, position))

    def _key_at(self, turn: _Turn, position: int) -> tuple[Any, ...]:
        """The key of one alike: it differs in age and name only."""
        assert turn.alike is not None
        index, jobs = int(turn.alike.order[position]), self._session.jobs
        return (*turn.key[:-2], int(jobs.created[index]), jobs.keys[index])


def ordered_tasks(plugin_key: Callable[[Task], tuple[Any, ...]] | None, tasks: list[Task]) -> list[Task]:
    """Tasks of one job, the first to be placed first: the plugins' key, if any, then the order of those alike to it."""
    if len(tasks) < 2:
        return tasks
    keys, ages = [task.key for task in tasks], [task.created for task in tasks]
    order: Sequence[Any] = alike_in_order(keys, ages, lambda: [task.uid for task in tasks])
    if plugin_key is not None:
        order = [(plugin_key(task), last) for task, last in zip(tasks, order, strict=True)]
    return [task for _, task in sorted(zip(order, tasks, strict=True), key=itemgetter(0))]


class _VictimKey(NamedTuple):
    """A task's key among tasks of which some have no number in their names, and among such that all have one (empty
    where it has none): as ``alike_in_order``."""

    plain: tuple[Any, ...]
    numbered: tuple[Any, ...]


_KeysOfJob = tuple[tuple[Any, ...], dict[int, _VictimKey]]


class VictimOrder:
    """In which order tasks go: those that would be placed last first. A job's key and those of its tasks hold until one
    of its tasks moves."""

    def __init__(
        self, session: Session, job_key: Callable[[Job], tuple[Any, ...]], task_key: Callable[[Task], tuple[Any, ...]]
    ) -> None:
        self._moves = session.views.moves
        self._seen = 0
        self._job_key = job_key
        self._task_key = task_key
        self._known: dict[int, _KeysOfJob] = {}
        self._last: list[Task] = []
        """The tasks that were sorted last."""
        self._unnumbered: set[int] = set()
        """Those of them, by row, that have no number in their names."""
        self._moved: set[int] = set()
        """The jobs, by index, of tasks that moved since."""

    def _of(self, job: Job) -> _KeysOfJob:
        """A job's key, and those of its tasks that were asked for; only while nothing moves."""
        found = self._known.get(job.index)
        if found is None:
            found = self._known[job.index] = (self._job_key(job), {})
        return found

    def _catch_up(self) -> None:
        if self._seen < len(self._moves):
            for task in self._moves[self._seen :]:
                self._known.pop(task.job.index, None)
                self._moved.add(task.job.index)
            self._seen = len(self._moves)

    def job_key(self, job: Job) -> tuple[Any, ...]:
        """A job's key by the plugins' order: the larger goes first."""
        self._catch_up()
        return self._of(job)[0]

    def sorted(self, tasks: list[Task]) -> list[Task]:
        """Tasks, the job that comes last first, and of each the task that comes last."""
        self._catch_up()
        result = self._still_in_order(tasks)
        if result is None:
            keys = [self._key(task) for task in tasks]
            self._unnumbered = {task.row for task, key in zip(tasks, keys, strict=True) if not key.numbered}
            pairs = [
                (key.plain if self._unnumbered else key.numbered, task) for key, task in zip(keys, tasks, strict=True)
            ]
            pairs.sort(key=itemgetter(0), reverse=True)
            result = [task for _, task in pairs]
            self._last = result[:]
            self._moved.clear()
        return result

    def _still_in_order(self, tasks: list[Task]) -> list[Task] | None:
        """Tasks as they were sorted last, where those and perhaps others were, and none of their jobs' tasks moved: of
        a node's that go one after the other, those that are left."""
        asked = {task.row for task in tasks}
        found = [task for task in self._last if task.row in asked]
        if len(found) < len(tasks) or not self._moved.isdisjoint([task.job.index for task in found]):
            return None
        return None if self._unnumbered and self._unnumbered.isdisjoint(asked) else found

    def _key(self, task: Task) -> _VictimKey:
        job_key, keys = self._of(task.job)
        found = keys.get(task.row)
        if found is None:
            first, last = (job_key, self._task_key(task)), (task.created, task.uid, task.key)
            index = index_in_name(task.name)
            found = _VictimKey((*first, 0, *last), () if index is None else (*first, index, *last))
            keys[task.row] = found
        return found

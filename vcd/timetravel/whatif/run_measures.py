"""Measures a run: waits, use, evictions, fairness, and their time series.

The simulated cluster calls `Measure` at each event; the module decides nothing. A `Course` has every change of a value,
so averages are exact for any span.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

import msgspec

from vcd.timetravel.whatif.logged_workload import GroupLife, Unit

GPU = "nvidia.com/gpu"
SPANS = 240
"""Spans into which the time of a series is cut for display."""

Amounts = Mapping[str, int]


class Course:
    """The exact time series of a value."""

    def __init__(self, begin: int) -> None:
        self._times = array("q", [begin])
        self._values = array("d", [0.0])

    @property
    def value(self) -> float:
        """The present value."""
        return self._values[-1]

    def set(self, time: int, value: float) -> None:
        """Set the value from ``time`` (ns) on."""
        if value == self._values[-1]:
            return
        if time == self._times[-1]:
            self._values[-1] = value
        else:
            self._times.append(time)
            self._values.append(value)

    def add(self, time: int, change: float) -> None:
        """Change the value from ``time`` (ns) on."""
        self.set(time, self._values[-1] + change)

    def mean(self, until: int) -> float:
        """Return the average from the beginning until a time."""
        return self._between(self._times[0], until)

    def points(self, until: int) -> list[tuple[int, float]]:
        """Return the beginning of each of some equal spans (ns), and the average over it."""
        begin = self._times[0]
        width = max(1, -(-(until - begin) // SPANS))
        return [(start, self._between(start, min(start + width, until))) for start in range(begin, until, width)]

    def _between(self, start: int, end: int) -> float:
        """Return the average between two times; the value if they are equal."""
        place = max(0, bisect_right(self._times, start) - 1)
        if end <= start:
            return self._values[place]
        total, at = 0.0, start
        while at < end:
            last = place + 1 == len(self._times)
            until = end if last else min(end, self._times[place + 1])
            total += self._values[place] * (until - at)
            at, place = until, place + 1
        return total / (end - start)


class JobRun(msgspec.Struct):
    """The outcome of a job (a group, or a pod without one). Times are ns since the epoch; ``started`` is when its
    minimum of pods first had nodes, ``ended`` when the last of its pods ended; None: not in this run. ``running`` and
    ``over`` count its pods."""

    key: str
    queue: str
    arrived: int
    minimum: int = 1
    started: int | None = None
    ended: int | None = None
    pods: int = 0
    running: int = 0
    over: int = 0

    @property
    def wait(self) -> int | None:
        """How long it waited; None if it never started."""
        return None if self.started is None else self.started - self.arrived


class _Queue(msgspec.Struct):
    """What a queue holds and how many of its pods wait, over time."""

    used: dict[str, Course] = msgspec.field(default_factory=dict)
    waiting: int = 0


class Measure:
    """Records the events of a run. ``gpu`` is the resource whose whole free cards are counted."""

    def __init__(self, begin: int, gpu: str = GPU) -> None:
        self.begin = begin
        self.gpu = gpu
        self.jobs: dict[str, JobRun] = {}
        self.evictions: Counter[str] = Counter()
        """By action."""
        self.victims: set[str] = set()
        """The keys of evicted pods."""
        self.lost: int = 0
        """Pod-nanoseconds that evicted pods had run for."""
        self.sessions = 0
        self.capacity: dict[str, Course] = {}
        self.used: dict[str, Course] = {}
        self.waiting = Course(begin)
        self.running = Course(begin)
        self.free_gpus = Course(begin)
        self.free_on_empty_nodes = Course(begin)
        """GPUs of nodes with no GPU in use."""
        self.fairness = Course(begin)
        """Jain's index of the queues' dominant shares by weight, while several have waiting pods; 1 is even."""
        self.queues: dict[str, _Queue] = {}
        self.invented_from: dict[str, int] = {}
        """The jobs whose run time is assumed, and until when they are known to have run (ns)."""
        self.closed = begin
        self.busy_until = begin
        """When the last pod arrived or got a node. After that, the scheduler has no influence: work only ends."""
        self._job_of: dict[str, str] = {}
        self._queue_of: dict[str, str] = {}
        self._since: dict[str, int] = {}
        self._nodes: dict[str, Amounts] = {}
        self._gpus_used: Counter[str] = Counter()

    # --- events -------------------------------------------------------------------------------------------------------

    def node(self, time: int, name: str, allocatable: Amounts) -> None:
        """Set a node's allocatable resources; empty: it is deleted."""
        before = self._nodes.get(name, {})
        for resource in sorted(before.keys() | allocatable.keys()):
            change = allocatable.get(resource, 0) - before.get(resource, 0)
            self.capacity.setdefault(resource, Course(self.begin)).add(time, change)
        free = self._gpus_of(name)
        self._nodes[name] = dict(allocatable)
        self._recount(time, name, free)

    def group(self, time: int, life: GroupLife, queue: str) -> None:
        """Note the arrival of a job's group, possibly after pods of it."""
        self.jobs.setdefault(life.key, JobRun(life.key, queue, time)).minimum = max(1, life.group.spec.min_member)

    def unit(self, time: int, unit: Unit, key: str, queue: str) -> None:
        """Note the arrival of a pod of the job ``key``, or of its replacement."""
        self.busy_until = time
        self._job_of[unit.key] = key
        job = self.jobs.setdefault(key, JobRun(key, queue, time))
        if unit.key not in self._queue_of:
            job.pods += 1
        self._queue_of[unit.key] = queue
        self.waiting.add(time, 1)
        self._of(queue).waiting += 1

    def starts(self, time: int, unit: Unit, node: str) -> None:
        """Note that a pod got a node."""
        self._since[unit.key] = self.busy_until = time
        self._use(time, unit, node, 1)
        job = self._job(unit)
        job.running += 1
        if job.started is None and job.running + job.over >= min(job.minimum, max(1, job.pods)):
            job.started = time

    def ends(self, time: int, unit: Unit, node: str) -> None:
        """Note that a pod ended, or was deleted while it waited (no node)."""
        job = self._job(unit)
        job.over += 1
        if node:
            job.running -= 1
            self._use(time, unit, node, -1)
        else:
            self.waiting.add(time, -1)
            self._of(self._queue_of[unit.key]).waiting -= 1
        if job.over == job.pods:
            job.ended = time

    def evicted(self, time: int, unit: Unit, action: str) -> None:
        """Note the eviction of a pod."""
        self.evictions[action] += 1
        self.victims.add(unit.key)
        self.lost += time - self._since[unit.key]

    def leaves(self, time: int, unit: Unit, node: str) -> None:
        """Note that an evicted pod is gone; its replacement is noted by ``unit``."""
        self._job(unit).running -= 1
        self._use(time, unit, node, -1)

    def invented(self, time: int, job: str) -> None:
        """Note that a pod of a job runs for an assumed time after ``time``, since no similar pod has ended."""
        self.invented_from[job] = min(time, self.invented_from.get(job, time))

    def assumed(self) -> tuple[list[str], int]:
        """Return the jobs with an assumed run time while another job starts after it, the earliest first, and how many
        jobs start after that."""
        starts = [job.started for job in self.jobs.values() if job.started is not None]
        by_time = sorted((time, job) for job, time in self.invented_from.items() if time < max(starts, default=0))
        return [job for _, job in by_time], sum(start > by_time[0][0] for start in starts) if by_time else 0

    def session(self, time: int, weights: Mapping[str, int]) -> None:
        """Note a session; ``weights`` are the queues'."""
        self.sessions += 1
        self.fairness.set(time, self._evenness(weights))

    def close(self, time: int) -> None:
        """End the run."""
        self.closed = time

    # --- sums ---------------------------------------------------------------------------------------------------------

    def _job(self, unit: Unit) -> JobRun:
        return self.jobs[self._job_of[unit.key]]

    def _of(self, queue: str) -> _Queue:
        return self.queues.setdefault(queue, _Queue())

    def _use(self, time: int, unit: Unit, node: str, sign: int) -> None:
        name = self._queue_of[unit.key]
        queue = self._of(name)
        for resource, amount in unit.requests.items():
            for courses in (self.used, queue.used):
                courses.setdefault(resource, Course(self.begin)).add(time, sign * amount)
        self.running.add(time, sign)
        if sign > 0:
            self.waiting.add(time, -1)
            queue.waiting -= 1
        gpus = unit.requests.get(self.gpu, 0)
        if gpus:
            free = self._gpus_of(node)
            self._gpus_used[node] += sign * gpus
            self._recount(time, node, free)

    def _gpus_of(self, node: str) -> tuple[int, int]:
        """Return the free GPUs of a node, and those that are free because none of the node's GPUs is in use."""
        has = self._nodes.get(node, {}).get(self.gpu, 0)
        left = max(0, has - self._gpus_used[node])
        return left, left if left == has else 0

    def _recount(self, time: int, node: str, before: tuple[int, int]) -> None:
        after = self._gpus_of(node)
        if after != before:
            self.free_gpus.add(time, after[0] - before[0])
            self.free_on_empty_nodes.add(time, after[1] - before[1])

    def _evenness(self, weights: Mapping[str, int]) -> float:
        shares = []
        waits = False
        for name, queue in self.queues.items():
            used = max((self._share(resource, course) for resource, course in queue.used.items()), default=0.0)
            if used or queue.waiting:
                shares.append(used / max(1, weights.get(name, 1)))
                waits |= queue.waiting > 0
        squares = sum(share * share for share in shares)
        if not waits or len(shares) < 2 or not squares:
            return 1.0
        return float(sum(shares)) ** 2 / (len(shares) * squares)

    def _share(self, resource: str, used: Course) -> float:
        total = self.capacity.get(resource)
        return used.value / total.value if total is not None and total.value and resource != "pods" else 0.0

    def utilisation(self) -> dict[str, float]:
        """Return the average used part of each resource."""
        until = self.busy_until
        totals = {name: course.mean(until) for name, course in sorted(self.capacity.items())}
        return {
            name: self.used[name].mean(until) / total for name, total in totals.items() if total and name in self.used
        }


class Waits(msgspec.Struct, frozen=True):
    """How long jobs waited from their arrival until their minimum of pods had nodes, in seconds; ``never`` jobs did
    not get there in this run. None: no job did."""

    jobs: int
    never: int
    median: float | None
    p95: float | None
    mean: float | None
    longest: float | None = None

    @classmethod
    def of(cls, waits: Sequence[float | None]) -> Waits:
        """Return the statistics of some waits in seconds; None: the job did not start."""
        known = [wait for wait in waits if wait is not None]
        mean = fmean(known) if known else None
        never, longest = len(waits) - len(known), max(known, default=None)
        return cls(len(waits), never, quantile(known, 0.5), quantile(known, 0.95), mean, longest)


def quantile(values: Iterable[float], share: float) -> float | None:
    """Return a quantile of values, interpolated between neighbours; None if there are no values."""
    ordered = sorted(values)
    if not ordered:
        return None
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)

"""Who is served before whom, and by which plugin's word: the orders of a session, factor by factor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from vcd.eventlog import LogReader
from vcd.model.status import TaskStatus
from vcd.model.words import counted, quantities_in_words, rfc3339
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.order import Label, labels_of, plain
from vcd.scheduling.framework.rules import plugin_of
from vcd.scheduling.session.queues import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.state.records import index_in_name
from vcd.timetravel.history import opened
from vcd.timetravel.why.explain import NotFound
from vcd.timetravel.words import moment

SHOWN_JOBS = 20
"""How many jobs of a queue the lines show."""

_SECOND = 1_000_000_000
S = TypeVar("S", Queue, Job)


class Factor(msgspec.Struct, frozen=True):
    """What one plugin says for an order: its values by name, as text. An earlier factor counts before a later one,
    and so does an earlier value."""

    plugin: str
    values: dict[str, str]


class Precedence(msgspec.Struct, frozen=True, omit_defaults=True):
    """What puts one before another, seen from the one: ``higher priority (10 against 5)``. ``plugin`` says so; empty
    where age or name decides, since no plugin tells the two apart."""

    words: str
    plugin: str = ""

    def __str__(self) -> str:
        return self.words + (f", says {self.plugin}" if self.plugin else "")


class OrderedQueue(msgspec.Struct, omit_defaults=True):
    """A queue's place: 1 is served first. ``waiting`` counts its jobs that wait; ``passed_over`` says why none of
    them is tried, where that is so; ``before_next`` why it comes before the next one."""

    position: int
    name: str
    waiting: int
    created: str
    factors: list[Factor]
    passed_over: str = ""
    before_next: Precedence | None = None


class OrderedJob(msgspec.Struct, omit_defaults=True):
    """A waiting job's place in its queue: 1 is served first. ``pending`` counts its pods without a node."""

    position: int
    key: str
    phase: str
    pending: int
    created: str
    factors: list[Factor]
    before_next: Precedence | None = None


class OrderExplanation(msgspec.Struct):
    """The orders of a session as it began, before anything was placed; what is placed may move them.

    ``jobs`` holds the waiting jobs by queue: those with pods without a node, and groups not admitted yet.
    """

    session: int
    time: str
    queues: list[OrderedQueue]
    jobs: dict[str, list[OrderedJob]]

    def lines(self) -> Iterator[str]:
        """Tables, each with what puts its first before its second."""
        yield f"session {self.session} at {self.time}, as it began: who is served before whom"
        if not self.queues:
            yield "no job waits in any queue"
            return
        yield from _queue_lines(self.queues)
        for name, jobs in self.jobs.items():
            yield ""
            yield from _job_lines(name, jobs)


def explain_order(path: str | Path, queue: str | None = None, session: int | None = None) -> OrderExplanation:
    """The order of the queues in which jobs wait, and of these jobs: of one queue, or of all.

    ``session`` is the session's number, the last one unless given. Raises NotFound for a queue or session that is not
    there, and LogError for a file that cannot be used.
    """
    with opened(path) as history:
        number = _session_number(history.reader, session)
        record, found = history.rerun(number, actions=False)
    if queue is not None and queue not in found.queues:
        raise NotFound(
            f"event log {path}: session {number} has no queue {queue}; there are {', '.join(sorted(found.queues))}"
        )
    waiting = _waiting(found)
    queues = [one for one in found.queue_list if one.index in waiting or one.name == queue]
    queues.sort(key=framework_of(found).queue_key)
    shown = [one for one in queues if queue in (None, one.name)]
    return OrderExplanation(
        number,
        moment(record.now),
        _ordered_queues(found, queues, waiting),
        {one.name: _ordered_jobs(found, waiting.get(one.index, [])) for one in shown},
    )


def _session_number(reader: LogReader, session: int | None) -> int:
    number = reader.last_session() if session is None else session
    if next(reader.sessions(number, number), None) is None:
        known = [info.number for info in reader.sessions()]
        there = f"it has sessions {known[0]} to {known[-1]}" if known else "it has no sessions"
        raise NotFound(f"event log {reader.path}: session {number} is not in it; {there}")
    return number


def _waiting(session: Session) -> dict[int, list[Job]]:
    """Jobs with pending pods, and groups not admitted yet, by the queue's index, each queue's in order."""
    found: dict[int, list[Job]] = {}
    for job in session.all_jobs():
        if job.is_pending() or job.counts[TaskStatus.PENDING]:
            found.setdefault(job.queue.index, []).append(job)
    for jobs in found.values():
        jobs.sort(key=framework_of(session).job_key)
    return found


def _ordered_queues(session: Session, queues: list[Queue], waiting: dict[int, list[Job]]) -> list[OrderedQueue]:
    return [
        OrderedQueue(
            position,
            queue.name,
            len(waiting.get(queue.index, [])),
            _creation(queue.created),
            factors,
            _passed_over(session, queue) if queue.index in waiting else "",
            before_next,
        )
        for position, (queue, factors, before_next) in enumerate(_compared(session, "queue_order", queues), 1)
    ]


def _compared(
    session: Session, point: str, ordered: Sequence[S]
) -> Iterator[tuple[S, list[Factor], Precedence | None]]:
    """Each in order, with what plugins say of it, and what puts it before the next one."""
    said = [(one, sayings(session, point, one)) for one in ordered]
    for place, (one, mine) in enumerate(said, 1):
        before_next = None
        if place < len(said):
            other, theirs = said[place]
            before_next = difference(mine, theirs) or by_age(one.created, other.created)
        yield one, [saying.factor() for saying in mine], before_next


def _passed_over(session: Session, queue: Queue) -> str:
    if not queue.is_open:
        return f"queue is {queue.state}"
    overused = framework_of(session).overused(queue)
    if overused is None:
        return ""
    plugin, refusal = overused
    detail = quantities_in_words(refusal.detail)
    return f"{refusal.words} ({plugin}: {detail})" if detail else f"{refusal.words} ({plugin})"


def _ordered_jobs(session: Session, jobs: list[Job]) -> list[OrderedJob]:
    return [
        OrderedJob(
            position,
            job.key,
            job.phase.text,
            job.counts[TaskStatus.PENDING],
            _creation(job.created),
            factors,
            before_next,
        )
        for position, (job, factors, before_next) in enumerate(_compared(session, "job_order", jobs), 1)
    ]


# --- what plugins say -------------------------------------------------------------------------------------------------


class Saying(NamedTuple):
    """A plugin's key for a queue, job or task at a point that orders, and what it declares of its keys there."""

    plugin: str
    labels: tuple[Label, ...]
    key: Any

    def values(self) -> list[tuple[Label, Any]]:
        """The key value by value; as a whole where its labels do not fit it."""
        if len(self.labels) > 1 and isinstance(self.key, tuple) and len(self.key) == len(self.labels):
            return list(zip(self.labels, self.key, strict=True))
        return [(self.labels[0] if len(self.labels) == 1 else Label(self.plugin, "first", "last"), self.key)]

    def factor(self) -> Factor:
        """The key as text."""
        return Factor(self.plugin, {label.name: _shown(label, value) for label, value in self.values()})


def _shown(label: Label, value: Any) -> str:
    try:
        return str(label.shown(value))
    except Exception:  # noqa: BLE001 - a stranger's defect: the rest is told all the same
        return plain(value)


def sayings(session: Session, point: str, *subject: Any) -> list[Saying]:
    """What each plugin says at a point that orders, in the order in which they count."""
    methods = framework_of(session).participants[point].methods
    return [Saying(plugin_of(method).name, labels_of(plugin_of(method), point), method(*subject)) for method in methods]


def difference(one: Sequence[Saying], other: Sequence[Saying], *, last_first: bool = False) -> Precedence | None:
    """What the first plugin that tells two apart says of the one, which comes before the other; None where none does.

    ``last_first``: the larger key comes first, as with victims.
    """
    for mine, theirs in zip(one, other, strict=True):
        if mine.key == theirs.key:
            continue
        for (label, value), (_, against) in zip(mine.values(), theirs.values(), strict=False):
            if value != against:
                words = label.last if last_first else label.first
                return Precedence(f"{words} ({_shown(label, value)} against {_shown(label, against)})", mine.plugin)
        return Precedence("last" if last_first else "first", mine.plugin)
    return None


def precedence(session: Session, one: Job, other: Job) -> Precedence | None:
    """Why one job is served before another, by their queues or else themselves; None where it is not."""
    if one.queue is not other.queue:
        if framework_of(session).queue_key(one.queue) > framework_of(session).queue_key(other.queue):
            return None
        found = _differing(session, "queue_order", (one.queue,), (other.queue,))
        return found or by_age(one.queue.created, other.queue.created)
    if framework_of(session).job_key(one) > framework_of(session).job_key(other):
        return None
    return _differing(session, "job_order", (one,), (other,)) or by_age(one.created, other.created)


def by_age(created: int, other: int, *, last_first: bool = False) -> Precedence:
    """Age and then name decide; ``created`` in seconds since the epoch."""
    if created == other:
        return Precedence("comes later by name" if last_first else "comes first by name")
    word = "created later" if last_first else "created earlier"
    return Precedence(f"{word} ({_creation(created)} against {_creation(other)})")


def goes_before(session: Session, one: Task, other: Task, queue: Queue, *, indexed: bool) -> Precedence:
    """Why one victim goes before another for a task of ``queue`` (see ``Framework.in_victim_order``). ``indexed``: the
    names of all who were offered with them end in an index."""
    mine, theirs = one.job.queue, other.job.queue
    if mine is not theirs:
        nearer = _differing(session, "victim_queue_order", (mine, queue), (theirs, queue))
        served = _differing(session, "queue_order", (mine,), (theirs,), last_first=True)
        return nearer or served or by_age(mine.created, theirs.created, last_first=True)
    if one.job is not other.job:
        found = _differing(session, "job_order", (one.job,), (other.job,), last_first=True)
        if found is not None:
            return found
    found = _differing(session, "task_order", (one,), (other,), last_first=True)
    if found is not None:
        return found
    if indexed and (index := index_in_name(one.name)) != (against := index_in_name(other.name)):
        return Precedence(f"higher index in its name ({index} against {against})")
    return by_age(one.created, other.created, last_first=True)


def _differing(
    session: Session, point: str, one: tuple[Any, ...], other: tuple[Any, ...], *, last_first: bool = False
) -> Precedence | None:
    return difference(sayings(session, point, *one), sayings(session, point, *other), last_first=last_first)


def _creation(created: int) -> str:
    """A creation time in seconds since the epoch; empty where the object has none."""
    return rfc3339(created * _SECOND) if created else ""


# --- tables -----------------------------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Rows under a head, columns aligned; an empty column is left out."""
    body = list(rows)
    kept = [place for place in range(len(head)) if any(row[place] for row in body)]
    widths = [max(len(row[place]) for row in (head, *body)) for place in kept]
    for row in (head, *body):
        yield "  ".join(row[place].ljust(width) for place, width in zip(kept, widths, strict=True)).rstrip()


def _columns(factors: Iterable[Factor]) -> list[str]:
    """A plugin's name where it has one value, else plugin and value."""
    return [
        factor.plugin if len(factor.values) == 1 else f"{factor.plugin}.{name}"
        for factor in factors
        for name in factor.values
    ]


def _texts(factors: Iterable[Factor]) -> list[str]:
    return [text for factor in factors for text in factor.values.values()]


def _queue_lines(queues: list[OrderedQueue]) -> Iterator[str]:
    head = ["#", "queue", "waiting", *_columns(queues[0].factors), "created", "passed over"]
    rows = [
        [str(one.position), one.name, str(one.waiting), *_texts(one.factors), one.created, one.passed_over]
        for one in queues
    ]
    yield from table(head, rows)
    yield from _first_before_second("queue", [(one.name, one.before_next) for one in queues])


def _job_lines(queue: str, jobs: list[OrderedJob]) -> Iterator[str]:
    yield f"queue {queue}: {counted(len(jobs), 'job')} waiting" if jobs else f"queue {queue}: no job waits"
    if not jobs:
        return
    head = ["#", "job", "phase", "pending", *_columns(jobs[0].factors), "created"]
    rows = [
        [str(one.position), one.key, one.phase, str(one.pending), *_texts(one.factors), one.created]
        for one in jobs[:SHOWN_JOBS]
    ]
    yield from table(head, rows)
    if len(jobs) > SHOWN_JOBS:
        yield f"and {len(jobs) - SHOWN_JOBS} more"
    yield from _first_before_second("job", [(one.key, one.before_next) for one in jobs])


def _first_before_second(noun: str, ordered: list[tuple[str, Precedence | None]]) -> Iterator[str]:
    if len(ordered) > 1:
        (first, why), (second, _) = ordered[:2]
        yield f"{noun} {first} comes before {second}: {why}"

"""Where queues, jobs and tasks stand in the orders of a session, value by value, and what puts one before another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from vcd.model.words import rfc3339
from vcd.scheduling.framework.order import Label, labels_of, plain, settled
from vcd.scheduling.framework.rules import Participants, plugin_of
from vcd.scheduling.session.queues import Queue
from vcd.scheduling.session.views import Job, Task
from vcd.state.records import index_in_name

_SECOND = 1_000_000_000

Who = Mapping[str, Participants]
"""Who takes part at each point."""


class Precedence(msgspec.Struct, frozen=True, omit_defaults=True):
    """What puts one before another, seen from the one: ``higher priority (10 against 5)``. ``plugin`` says so; empty
    where age or name decides, since no plugin tells the two apart."""

    words: str
    plugin: str = ""

    def __str__(self) -> str:
        return self.words + (f", says {self.plugin}" if self.plugin else "")


class OrderKey(NamedTuple):
    """A plugin's key at a point that orders, as it was then, and what it declares of its keys there."""

    plugin: str
    labels: tuple[Label, ...]
    key: Any

    def values(self) -> list[tuple[Label, Any]]:
        """The key value by value; as a whole where its labels do not fit it."""
        if len(self.labels) > 1 and isinstance(self.key, tuple) and len(self.key) == len(self.labels):
            return list(zip(self.labels, self.key, strict=True))
        return [(self.labels[0] if len(self.labels) == 1 else Label(self.plugin, "first", "last"), self.key)]

    def shown(self) -> dict[str, str]:
        """The values as text, by their names."""
        return {label.name: _shown(label, value) for label, value in self.values()}


_REFUSALS = ("the API server admitted it only in part", "the API server refused a pod of the other one")


class OrderStanding(NamedTuple):
    """A queue's or job's place in its order: what plugins say in the order in which it counts, then age and name."""

    said: tuple[OrderKey, ...]
    created: int
    name: str
    refusals: tuple[int, ...] = ()
    """Of a job: 0 if the API server admitted it only in part, else 1; and the end of its last back-off, 0 for none."""

    @property
    def key(self) -> tuple[Any, ...]:
        """As ``Framework.queue_key`` and ``Framework.job_key``: the smaller is served first."""
        return (*[each.key for each in self.said], *self.refusals, self.created, self.name)

    def before(self, other: OrderStanding) -> Precedence:
        """What puts it before another that comes after it."""
        found = _first_difference(self.said, other.said)
        for mine, theirs, words in zip(self.refusals, other.refusals, _REFUSALS, strict=False):
            if found is None and mine != theirs:
                return Precedence(words)
        return found or _by_age(self.created, other.created)


class VictimStanding(NamedTuple):
    """A task's place among those that may go for a task of a queue (``Framework.in_victim_order``): the larger key goes
    first, but that queues go by ``gives`` before all else, the smaller first."""

    queue: OrderStanding
    gives: tuple[OrderKey, ...]
    job: OrderStanding
    said: tuple[OrderKey, ...]
    number: int | None
    """The number that its name ends with; it counts where those of all who are compared do."""
    created: int

    def before(self, other: VictimStanding, *, indexed: bool) -> Precedence:
        """What lets it go before another; ``indexed``: the names of all who are compared end with a number."""
        if self.queue.name != other.queue.name:
            nearer, served = _first_difference(self.gives, other.gives), _last_first(self.queue.said, other.queue.said)
            return nearer or served or _by_age(self.queue.created, other.queue.created, last_first=True)
        found = None if self.job.name == other.job.name else _last_first(self.job.said, other.job.said)
        found = found or _last_first(self.said, other.said)
        if found is None and indexed and self.number != other.number:
            return Precedence(f"higher index in its name ({self.number} against {other.number})")
        return found or _by_age(self.created, other.created, last_first=True)


def standing_of_queue(who: Who, queue: Queue) -> OrderStanding:
    """A queue's place in the order of queues."""
    return OrderStanding(_said(who, "queue_order", queue), queue.created, queue.name)


def standing_of_job(who: Who, job: Job) -> OrderStanding:
    """A job's place in the order of its queue's jobs."""
    refusals = int(not job.is_stranded), job.refused_until
    return OrderStanding(_said(who, "job_order", job), job.created, job.key, refusals)


def victim_standing(who: Who, task: Task, queue: Queue) -> VictimStanding:
    """A task's place among those that may go for a task of ``queue``."""
    job = task.job
    return VictimStanding(
        standing_of_queue(who, job.queue),
        _said(who, "victim_queue_order", job.queue, queue),
        standing_of_job(who, job),
        _said(who, "task_order", task),
        index_in_name(task.name),
        task.created,
    )


def precedence(who: Who, one: Job, other: Job) -> Precedence | None:
    """Why one job is served before another, by their queues or else themselves; None where it is not."""
    if one.queue is not other.queue:
        mine, theirs = standing_of_queue(who, one.queue), standing_of_queue(who, other.queue)
    else:
        mine, theirs = standing_of_job(who, one), standing_of_job(who, other)
    return None if mine.key > theirs.key else mine.before(theirs)


def _said(who: Who, point: str, *subject: Any) -> tuple[OrderKey, ...]:
    methods = who[point].methods
    return tuple(
        OrderKey(plugin_of(method).name, labels_of(plugin_of(method), point), settled(method(*subject)))
        for method in methods
    )


def _first_difference(
    one: Iterable[OrderKey], other: Iterable[OrderKey], *, last_first: bool = False
) -> Precedence | None:
    """What the first plugin that tells two apart says of the one, which comes before the other; None where none
    does."""
    for mine, theirs in zip(one, other, strict=True):
        if mine.key == theirs.key:
            continue
        for (label, value), (_, against) in zip(mine.values(), theirs.values(), strict=False):
            if value != against:
                words = label.last if last_first else label.first
                return Precedence(f"{words} ({_shown(label, value)} against {_shown(label, against)})", mine.plugin)
        return Precedence("last" if last_first else "first", mine.plugin)
    return None


def _last_first(one: Sequence[OrderKey], other: Sequence[OrderKey]) -> Precedence | None:
    """The same where the larger key comes first."""
    return _first_difference(one, other, last_first=True)


def _by_age(created: int, other: int, *, last_first: bool = False) -> Precedence:
    """Age and then name decide; ``created`` in seconds since the epoch."""
    if created == other:
        return Precedence("comes later by name" if last_first else "comes first by name")
    word = "created later" if last_first else "created earlier"
    return Precedence(f"{word} ({creation_in_words(created)} against {creation_in_words(other)})")


def creation_in_words(created: int) -> str:
    """A creation time in seconds since the epoch; empty where the object has none."""
    return rfc3339(created * _SECOND) if created else ""


def _shown(label: Label, value: Any) -> str:
    try:
        return str(label.shown(value))
    except Exception:  # noqa: BLE001 - a stranger's defect: the rest is told all the same
        return plain(value)

"""The places of queues, jobs and tasks in a session's orders, value by value, and what puts one before another.

Used by traces and explanations. The keys must equal those of ``Framework.queue_key``, ``job_key`` and
``in_victim_order``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from vcd.model.wording import SECOND, rfc3339
from vcd.scheduling.framework.order import Label, labels_of, plain, settled
from vcd.scheduling.framework.rules import Participants, plugin_of
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.views import Job, Task
from vcd.state.records import index_in_name

PointParticipants = Mapping[str, Participants]
"""The participants of each point."""


class Precedence(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why one item comes before another: ``higher priority (10 against 5)``.

    ``plugin`` is the plugin that decides; empty if no plugin distinguishes the two, so that age or name decides.
    """

    words: str
    plugin: str = ""

    def __str__(self) -> str:
        return self.words + (f", says {self.plugin}" if self.plugin else "")


class OrderKey(NamedTuple):
    """A plugin's key at an ordering point at one moment, and its labels."""

    plugin: str
    labels: tuple[Label, ...]
    key: Any

    def values(self) -> list[tuple[Label, Any]]:
        """Return the key's values with their labels; the whole key with one label if the labels do not match it."""
        if len(self.labels) > 1 and isinstance(self.key, tuple) and len(self.key) == len(self.labels):
            return list(zip(self.labels, self.key, strict=True))
        return [(self.labels[0] if len(self.labels) == 1 else Label(self.plugin, "first", "last"), self.key)]

    def shown(self) -> dict[str, str]:
        """Return the values as text, by their names."""
        return {label.name: _format_value(label, value) for label, value in self.values()}


_REFUSALS = ("the API server admitted it only in part", "the API server refused a pod of the other one")


class OrderStanding(NamedTuple):
    """A queue's or job's place in its order: the plugins' keys in order of precedence, then age and name."""

    said: tuple[OrderKey, ...]
    created: int
    name: str
    refusals: tuple[int, ...] = ()
    """For a job: 0 if the API server admitted only a part of it, else 1; and the end of its last back-off, or 0."""

    @property
    def key(self) -> tuple[Any, ...]:
        """The key as in ``Framework.queue_key`` or ``Framework.job_key``: the smallest is served first."""
        return (*[each.key for each in self.said], *self.refusals, self.created, self.name)

    def before(self, other: OrderStanding) -> Precedence:
        """Return why this item comes before a later one."""
        found = _first_difference(self.said, other.said)
        for mine, theirs, words in zip(self.refusals, other.refusals, _REFUSALS, strict=False):
            if found is None and mine != theirs:
                return Precedence(words)
        return found or _by_age(self.created, other.created)


class VictimStanding(NamedTuple):
    """A task's place in the order of eviction for a task of a queue (``Framework.in_victim_order``).

    Queues are compared by ``gives`` first, the smallest first. By all other keys, the largest is evicted first.
    """

    queue: OrderStanding
    gives: tuple[OrderKey, ...]
    job: OrderStanding
    said: tuple[OrderKey, ...]
    number: int | None
    """The number at the end of the task's name. It counts only if all compared tasks have one."""
    created: int

    def before(self, other: VictimStanding, *, indexed: bool) -> Precedence:
        """Return why this task is evicted before another. ``indexed``: all compared names end with a number."""
        if self.queue.name != other.queue.name:
            nearer, served = _first_difference(self.gives, other.gives), _last_first(self.queue.said, other.queue.said)
            return nearer or served or _by_age(self.queue.created, other.queue.created, last_first=True)
        found = None if self.job.name == other.job.name else _last_first(self.job.said, other.job.said)
        found = found or _last_first(self.said, other.said)
        if found is None and indexed and self.number != other.number:
            return Precedence(f"higher index in its name ({self.number} against {other.number})")
        return found or _by_age(self.created, other.created, last_first=True)


def standing_of_queue(participants: PointParticipants, queue: Queue) -> OrderStanding:
    """Return a queue's place in the order of queues."""
    return OrderStanding(_keys(participants, "queue_order", queue), queue.created, queue.name)


def standing_of_job(participants: PointParticipants, job: Job) -> OrderStanding:
    """Return a job's place in the order of its queue's jobs."""
    refusals = int(not job.is_stranded), job.refused_until
    return OrderStanding(_keys(participants, "job_order", job), job.created, job.key, refusals)


def victim_standing(participants: PointParticipants, task: Task, queue: Queue) -> VictimStanding:
    """Return a task's place in the order of eviction for a task of ``queue``."""
    job = task.job
    return VictimStanding(
        standing_of_queue(participants, job.queue),
        _keys(participants, "victim_queue_order", job.queue, queue),
        standing_of_job(participants, job),
        _keys(participants, "task_order", task),
        index_in_name(task.name),
        task.created,
    )


def precedence(participants: PointParticipants, one: Job, other: Job) -> Precedence | None:
    """Return why one job is served before another, None if it is not. Jobs of two queues compare by their queues."""
    if one.queue is not other.queue:
        mine, theirs = standing_of_queue(participants, one.queue), standing_of_queue(participants, other.queue)
    else:
        mine, theirs = standing_of_job(participants, one), standing_of_job(participants, other)
    return None if mine.key > theirs.key else mine.before(theirs)


def _keys(participants: PointParticipants, point: str, *subject: Any) -> tuple[OrderKey, ...]:
    methods = participants[point].methods
    return tuple(
        OrderKey(plugin_of(method).name, labels_of(plugin_of(method), point), settled(method(*subject)))
        for method in methods
    )


def _first_difference(
    one: Iterable[OrderKey], other: Iterable[OrderKey], *, last_first: bool = False
) -> Precedence | None:
    """Return what the first plugin that distinguishes two items states about ``one``, which comes before ``other``;
    None if no plugin does."""
    for mine, theirs in zip(one, other, strict=True):
        if mine.key == theirs.key:
            continue
        for (label, value), (_, against) in zip(mine.values(), theirs.values(), strict=False):
            if value != against:
                words = label.last if last_first else label.first
                return Precedence(
                    f"{words} ({_format_value(label, value)} against {_format_value(label, against)})", mine.plugin
                )
        return Precedence("last" if last_first else "first", mine.plugin)
    return None


def _last_first(one: Sequence[OrderKey], other: Sequence[OrderKey]) -> Precedence | None:
    """Return the first difference in an order in which the larger key comes first."""
    return _first_difference(one, other, last_first=True)


def _by_age(created: int, other: int, *, last_first: bool = False) -> Precedence:
    """Return the precedence by age and then name; ``created`` is in seconds since the epoch."""
    if created == other:
        return Precedence("comes later by name" if last_first else "comes first by name")
    word = "created later" if last_first else "created earlier"
    return Precedence(f"{word} ({creation_in_words(created)} against {creation_in_words(other)})")


def creation_in_words(created: int) -> str:
    """Format a creation time in seconds since the epoch; empty if the object has none."""
    return rfc3339(created * SECOND) if created else ""


def _format_value(label: Label, value: Any) -> str:
    try:
        return str(label.shown(value))
    except Exception:  # noqa: BLE001 - a third-party defect: everything else is still displayed
        return plain(value)

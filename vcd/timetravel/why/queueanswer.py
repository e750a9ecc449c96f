"""The explanation of a queue, and its text: the short answer, and the whole story."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from vcd.diagnosis.diagnosedwaits import DiagnosedWait
from vcd.model.resource_requests import CPU, MEMORY, PODS
from vcd.model.wording import counted, some, span_in_words
from vcd.text.amounts import number, resource_name
from vcd.text.queue_templates import QUEUES
from vcd.text.text_table import aligned
from vcd.timetravel.queuestatistics import QueueStatistics
from vcd.timetravel.why.queuewaits import WaitedFor, WaitingJob
from vcd.timetravel.why.session_explanation import EvictedPod

_LAST = 5
"""The last evictions that are listed."""
_LAST_EDITS = 3


class QueueEdit(msgspec.Struct):
    """A change of the queue's object: when, and in which fields."""

    time: str
    text: str


class QueueSpan(msgspec.Struct, omit_defaults=True):
    """A time in which the queue's statistics stayed the same, between sessions with different ones.

    ``sessions`` are the first and the last of it that were decided again. ``figures`` are those of the first one, None
    while the queue did not exist. ``overused``: it used resources, and its plugin gave it no more, since that is all
    it deserves.
    """

    start: str
    seconds: float
    sessions: tuple[int, int]
    overused: bool = False
    figures: QueueStatistics | None = None


class QueueExplanation(msgspec.Struct, omit_defaults=True):
    """One queue from session ``first`` to session ``last``, over ``seconds``; times are RFC 3339.

    ``spans`` and ``overused_seconds`` come from ``sampled`` sessions that were decided again; ``reasons``, ``longest``
    and the evictions from the records of all sessions, about the queue's jobs and those of the queues ``below`` it.
    ``waited`` jobs waited at some time, ``waiting`` do at the end. A gang's missing minimum counts as a reason only if
    there is no other. ``evictions`` are those of these jobs' pods, ``evictions_for`` those that freed capacity for
    these jobs. ``notes`` state what is unknown. ``waits`` are the 20 longest waits at the end with their causes,
    ``waits_for`` the age (seconds) of the oldest pod without a node.
    """

    queue: str
    first: int
    last: int
    start: str
    until: str
    seconds: float
    sessions: int
    sampled: int
    edits: list[QueueEdit]
    spans: list[QueueSpan]
    overused_seconds: float
    waited: int
    waiting: int
    reasons: list[WaitedFor]
    longest: list[WaitingJob]
    evictions: list[EvictedPod]
    evictions_for: list[EvictedPod]
    below: int = 0
    notes: list[str] = []
    waits: list[DiagnosedWait] = []
    waits_for: list[float] = []

    def lines(self) -> Iterator[str]:
        """Yield the short answer: the queue's state, its waiting jobs and why they wait, evictions, changes."""
        figures = self.spans[-1].figures if self.spans else None
        waiting = self._sentence("waiting", count=f"{self.waiting:,}")
        if figures is None:
            yield self._sentence("gone")
        else:
            state = figures.state if not figures.overused else f"{figures.state}, overused"
            yield "  ".join([f"queue {self.queue}", state, f"weight {figures.weight}", *_under(figures), waiting])
            if rows := list(_amount_rows(figures)):
                yield from aligned(_AMOUNTS, rows)
        if self.waits:
            yield from aligned(_WAITS, _wait_rows(self))
        for name, text in (
            ("Evicted", _evictions_in_short(self)),
            ("Changed", some([f"{edit.time[11:19]} {edit.text}" for edit in reversed(self.edits)], _LAST_EDITS)),
            ("Note", "; ".join(self.notes)),
            ("As of", self._sentence("as of")),
        ):
            if text:
                yield f"{name:<9}{text}"

    def all_lines(self) -> Iterator[str]:
        """Yield the explanation in sentences, with times in UTC: its statistics, waits and evictions over time."""
        yield self._sentence("title")
        yield from (f"  {edit.time}  {edit.text}" for edit in self.edits)
        yield self._sentence("figures", sampled=f"{self.sampled}", sessions=counted(self.sessions, "session"))
        yield from self._spans()
        if self.overused_seconds:
            yield self._sentence("overused", overused=span_in_words(self.overused_seconds))
        yield from self._waits()
        yield from _eviction_lines("evicted from it", self.evictions)
        yield from _eviction_lines("evicted for it", self.evictions_for)
        yield from (f"note: {note}" for note in self.notes)

    def _spans(self) -> Iterator[str]:
        for span in self.spans:
            words = [*standing(span.figures), *(["overused"] if span.overused else [])]
            yield f"  {span.start}  {span_in_words(span.seconds):<12}  {'; '.join(words)}"

    def _sentence(self, code: str, **facts: str) -> str:
        """Return a sentence about the queue and those below it."""
        common = {"queue": self.queue, "first": f"{self.first}", "last": f"{self.last}", "until": self.until}
        common |= {"span": span_in_words(self.seconds), "below": counted(self.below, "queue")}
        return QUEUES.sentence(code, common | facts, ["below" if self.below else ""])

    def _waits(self) -> Iterator[str]:
        if not self.waited:
            yield self._sentence("none waited")
            return
        yield self._sentence("waited", jobs=counted(self.waited, "job"), waiting=f"{self.waiting:,}")
        for one in self.reasons:
            facts = {"span": span_in_words(one.seconds), "reason": one.reason, "jobs": counted(one.jobs, "job")}
            facts |= {"longest": one.longest, "most": span_in_words(one.longest_seconds)}
            yield QUEUES.sentence("reason", facts, ["many" if one.jobs > 1 else ""])
        yield QUEUES["longest"]
        for job in self.longest:
            facts = {"job": job.group, "where": f" (queue {job.queue})" if job.queue else ""}
            facts |= {"span": span_in_words(job.seconds), "reasons": job.waiting}
            yield QUEUES.sentence("job", facts, ["still" if job.still else ""])


def _under(figures: QueueStatistics) -> list[str]:
    return [f"under {figures.parent}"] if figures.parent else []


_AMOUNTS = ("RESOURCE", "USED", "DESERVED", "REQUESTED", "GUARANTEE", "LIMIT")
_WAITS = ("WAITING", "NEEDS", "SINCE", "WHY")
_SERIES = ("allocated", "deserved", "request", "guarantee", "capability")


def _amount_rows(figures: QueueStatistics) -> Iterator[Sequence[str]]:
    """Yield a row for each resource that the queue uses, deserves, requests or has guaranteed, or that limits it."""
    for resource in _resources(figures):
        amounts = [figures.amounts.get(series, {}).get(resource) for series in _SERIES]
        yield resource_name(resource), *("-" if each is None else number(resource, each) for each in amounts)


def _wait_rows(found: QueueExplanation) -> Iterator[Sequence[str]]:
    """Yield a row for each job that waits at the end."""
    for one, seconds in zip(found.waits, found.waits_for, strict=True):
        yield one.job, one.needs, span_in_words(round(seconds)), one.why
    if found.waiting > len(found.waits):
        yield QUEUES.sentence("more", {"count": f"{found.waiting - len(found.waits):,}"}), "", "", ""


def _evictions_in_short(found: QueueExplanation) -> str:
    """Return the evictions: ``7 pods of it by reclaim for queue production; 2 pods for it by preempt of queue
    default``."""
    lost = Counter((one.action, one.for_queue or "none") for one in found.evictions)
    won = Counter((one.action, one.queue or "none") for one in found.evictions_for)
    return "; ".join(
        QUEUES.sentence(code, {"pods": counted(count, "pod"), "action": action, "queue": queue})
        for code, counts in (("lost", lost), ("won", won))
        for (action, queue), count in counts.most_common()
    )


def _eviction_lines(title: str, evictions: Sequence[EvictedPod]) -> Iterator[str]:
    """Yield the evictions, counted by queues and action, and the last of them one by one."""
    if not evictions:
        return
    yield QUEUES.sentence("evicted", {"pods": counted(len(evictions), "pod"), "title": title})
    pairs = Counter((one.action, one.queue or "none", one.for_queue or "none") for one in evictions)
    for (action, loser, winner), count in pairs.most_common():
        facts = {"pods": counted(count, "pod"), "action": action, "loser": loser, "winner": winner}
        yield QUEUES.sentence("evicted pair", facts)
    if len(evictions) > _LAST:
        yield QUEUES.sentence("evicted last", {"count": f"{_LAST}"})
    for one in evictions[-_LAST:]:
        facts = {"time": one.time, "session": f"{one.session}", "pod": one.pod, "node": one.node}
        facts |= {"group": one.for_group, "reason": f" ({one.reason})" if one.reason else ""}
        yield QUEUES.sentence("evicted pod", facts)


def standing(figures: QueueStatistics | None) -> list[str]:
    """Return a queue's statistics: its state, then ``38 of 40 cpu deserved, requested 44, guarantee 10, limit 60`` for
    each resource."""
    if figures is None:
        return [QUEUES["no queue"]]
    head = ", ".join([figures.state, f"weight {figures.weight}", *_under(figures)])
    amounts = [_amount(figures, name) for name in _resources(figures)]
    return [head, *(amounts or [QUEUES["idle"]])]


def _resources(figures: QueueStatistics) -> list[str]:
    """Return the relevant resources of a queue: cpu and memory first, the others by name."""
    named: set[str] = set()
    for series in _SERIES:
        amounts = figures.amounts.get(series, {})
        named.update(name for name, value in amounts.items() if value or series == "capability")
    if PODS not in figures.amounts.get("capability", {}):
        named.discard(PODS)  # every pod requests one of them, and nothing limits that
    first = [name for name in (CPU, MEMORY) if name in named]
    return [*first, *sorted(named.difference(first))]


def _amount(figures: QueueStatistics, resource: str) -> str:
    amounts = {series: of[resource] for series, of in figures.amounts.items() if resource in of}
    used, is_share = amounts.get("allocated", 0), "deserved" in figures.amounts
    facts = {"used": number(resource, used), "deserved": number(resource, amounts.get("deserved", 0))}
    facts["resource"] = resource_name(resource)
    words = [QUEUES.sentence("used", facts, ["of deserved" if is_share else ""])]
    stated = {"request": amounts.get("request", 0) != used, "guarantee": bool(amounts.get("guarantee"))}
    stated["capability"] = "capability" in amounts
    words += [
        QUEUES.sentence(f"resource {series}", {"amount": number(resource, amounts.get(series, 0))})
        for series, is_stated in stated.items()
        if is_stated
    ]
    return ", ".join(words)

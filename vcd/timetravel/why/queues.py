"""A queue over the time of a log: what it had and was owed, who waited in it for what, who was evicted for whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from vcd.diagnosis.diagnosedwaits import DiagnosedWait
from vcd.eventlog import LogError, LogReader, SessionInfo
from vcd.model import events as ev
from vcd.model.codec import BadObject, decode_payload
from vcd.model.objects import Object
from vcd.model.requests import CPU, MEMORY, PODS
from vcd.model.words import counted, did_you_mean, some, span_in_words
from vcd.scheduling.framework.reasons import all_told
from vcd.state.cluster import ClusterState
from vcd.text.amounts import number, resource_name
from vcd.text.tables import aligned
from vcd.timetravel.errors import NotFound
from vcd.timetravel.figures import QueueFigures, held_back, queue_figures
from vcd.timetravel.history import History
from vcd.timetravel.overview import longest_waits, overview
from vcd.timetravel.standing import as_of
from vcd.timetravel.why.explain import keys_of
from vcd.timetravel.why.news import changed_fields
from vcd.timetravel.why.queuewaits import QueueCourse, WaitedFor, WaitingJob, first_sessions_after
from vcd.timetravel.why.sentences import waits_in_words
from vcd.timetravel.why.sessions import EvictedPod
from vcd.timetravel.words import moment

SAMPLES = 40
"""How many sessions are decided again for the figures, the last one aside."""
FOLDED = 20_000
"""Of a stretch of more events only sessions that follow checkpoints are decided again: nothing is folded for them."""
LOADED = 2
"""So many of these: to load a checkpoint takes a tenth of a second."""

_LAST = 5
"""How many evictions are listed that were last."""
_LAST_EDITS = 3
_SECOND = 1e9


class QueueEdit(msgspec.Struct):
    """The queue was created, changed or deleted by somebody: when, and in which fields."""

    time: str
    text: str


class QueueSpan(msgspec.Struct, omit_defaults=True):
    """A time in which the queue's figures stayed as they were, from one session to the next that had others.

    ``sessions`` are the first and the last that were looked at in it. ``standing`` tells the figures by resource;
    ``figures`` are those of the first session, None while the queue was not there. ``overused``: it had something, and
    its plugin gave it nothing more, since that is all it deserves.
    """

    start: str
    seconds: float
    sessions: tuple[int, int]
    standing: list[str]
    overused: bool = False
    figures: QueueFigures | None = None


class QueueExplanation(msgspec.Struct, omit_defaults=True):
    """One queue from session ``first`` to session ``last``, over ``seconds``; times are RFC 3339.

    ``spans`` come from ``sampled`` sessions that were decided again, and so does ``overused_seconds``; ``reasons``,
    ``longest`` and the evictions from the records of all sessions, of the queue's jobs and of those of the queues
    ``below`` it. ``waited`` jobs waited at some time, ``waiting`` do at the end. A gang's missing minimum is counted as
    a reason only where there is no other. ``evictions`` are those of these jobs' pods, ``evictions_for`` those that
    made room for these jobs. ``now`` tells in sentences how it stands at the end, ``notes`` what could not be told.
    ``waits`` are the 20 longest waits at the end with their causes, ``waits_for`` how long (seconds) the oldest pod
    without a node has been there.
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
    now: list[str]
    below: int = 0
    notes: list[str] = []
    waits: list[DiagnosedWait] = []
    waits_for: list[float] = []

    def lines(self) -> Iterator[str]:
        """Return the short answer: how the queue stands, what waits in it and why, evictions, changes."""
        figures = self.spans[-1].figures if self.spans else None
        waiting = f"{self.waiting:,} waiting{self._below(' in it and')}"
        if figures is None:
            yield f"queue {self.queue}  does not exist any more"
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
            ("As of", f"{self.until}, sessions {self.first} to {self.last}; --all shows its figures over time"),
        ):
            if text:
                yield f"{name:<9}{text}"

    def all_lines(self) -> Iterator[str]:
        """Return the explanation in sentences, with times in UTC: its figures, waits and evictions over time."""
        seconds = span_in_words(self.seconds)
        yield f"queue {self.queue}, sessions {self.first} to {self.last}, {seconds} until {self.until}"
        yield from (f"  {edit.time}  {edit.text}" for edit in self.edits)
        yield f"figures, by deciding {self.sampled} of {counted(self.sessions, 'session')} again:"
        yield from self._spans()
        if self.overused_seconds:
            yield f"  overused for {span_in_words(self.overused_seconds)} of {span_in_words(self.seconds)}"
        yield from self._waits()
        yield from _eviction_lines("evicted from it", self.evictions)
        yield from _eviction_lines("evicted for it", self.evictions_for)
        yield from (f"note: {note}" for note in self.notes)
        yield f"at session {self.last}, {self.until}:"
        yield from (f"  {sentence}" for sentence in self.now)

    def _spans(self) -> Iterator[str]:
        state = ""
        for span in self.spans:
            known, state = state, span.standing[0]
            words = [*span.standing[state == known :], *(["overused"] if span.overused else [])]
            told = "; ".join(words) or "nothing allocated, nothing asked for"
            yield f"  {span.start}  {span_in_words(span.seconds):<12}  {told}"

    def _below(self, words: str) -> str:
        return f"{words} {counted(self.below, 'queue')} below it" if self.below else ""

    def _waits(self) -> Iterator[str]:
        if not self.waited:
            yield f"none of its jobs waited{self._below(', nor of those of')}"
            return
        where = self._below(" in it and in")
        yield f"{counted(self.waited, 'job')} waited{where}, {self.waiting:,} at the end, all together:"
        for one in self.reasons:
            who = f"{counted(one.jobs, 'job')}, longest {one.longest} with {span_in_words(one.longest_seconds)}"
            yield f"  {span_in_words(one.seconds)} at {one.reason} ({who if one.jobs > 1 else one.longest})"
        yield "waited longest:"
        for job in self.longest:
            where = f" (queue {job.queue})" if job.queue else ""
            yield f"  {job.group}{where} {span_in_words(job.seconds)}" + (
                f", and still waits {job.waiting}" if job.still else ""
            )


def _under(figures: QueueFigures) -> list[str]:
    return [f"under {figures.parent}"] if figures.parent else []


_AMOUNTS = ("RESOURCE", "USED", "DESERVED", "REQUESTED", "GUARANTEE", "LIMIT")
_WAITS = ("WAITING", "NEEDS", "SINCE", "WHY")
_SERIES = ("allocated", "deserved", "request", "guarantee", "capability")


def _amount_rows(figures: QueueFigures) -> Iterator[Sequence[str]]:
    """A row for each resource that the queue uses, deserves, requests or has guaranteed, or that limits it."""
    for resource in _resources(figures):
        amounts = [figures.amounts.get(series, {}).get(resource) for series in _SERIES]
        yield resource_name(resource), *("-" if each is None else number(resource, each) for each in amounts)


def _wait_rows(found: QueueExplanation) -> Iterator[Sequence[str]]:
    """A row for each job that waits at the end."""
    for one, seconds in zip(found.waits, found.waits_for, strict=True):
        yield one.job, one.needs, span_in_words(round(seconds)), one.why
    if found.waiting > len(found.waits):
        yield f"... and {found.waiting - len(found.waits):,} more", "", "", ""


def _evictions_in_short(found: QueueExplanation) -> str:
    """``7 pods of it by reclaim for queue production; 2 pods for it by preempt of queue default``."""
    lost = Counter((one.action, one.for_queue or "none") for one in found.evictions)
    won = Counter((one.action, one.queue or "none") for one in found.evictions_for)
    parts = [f"{counted(n, 'pod')} of it by {action} for queue {queue}" for (action, queue), n in lost.most_common()]
    parts += [f"{counted(n, 'pod')} for it by {action} of queue {queue}" for (action, queue), n in won.most_common()]
    return "; ".join(parts)


def explain_queue(
    history: History, name: str, first: int | None = None, last: int | None = None, *, samples: int | None = None
) -> QueueExplanation:
    """Explain a queue from session ``first`` to session ``last`` of a log (None: from its beginning, to its end).

    Waits and evictions are those of all sessions of the range, in the queue and in those below it; for the figures at
    most ``samples`` of them (None: ``SAMPLES``, of a long log ``LOADED``) and the last one are decided again, of a long
    log those that follow its checkpoints. Raises
    NotFound when there is no such queue or session, naming those there are, and LogError for what the log does not
    hold.
    """
    reader, oldest = history.reader, history.oldest()
    infos = _sessions(reader, first, last)
    known = oldest.queues[name].queue if name in oldest.queues else None
    if known is None and next(reader.object_history("Queue", name), None) is None:
        keys = sorted(keys_of(reader, "Queue").union(oldest.queues))
        there = f"there is {some(keys)}" if keys else "there is none"
        raise NotFound(f"event log {reader.path}: no queue {name} is in it{did_you_mean(name, keys)}; {there}")
    since = reader.oldest() if first is None else infos[0].head
    edits = list(_edits(reader, name, known, since, infos[-1].sequence))
    return _explained(history, name, infos, edits, samples)


# --- names ------------------------------------------------------------------------------------------------------------


def _sessions(reader: LogReader, first: int | None, last: int | None) -> list[SessionInfo]:
    infos = reader.sessions_with_state(first, last)
    if infos:
        return infos
    kept = reader.sessions_with_state()
    there = f"; it has sessions {kept[0].number} to {kept[-1].number}" if kept else ""
    asked = f" from {first or 1} to {last or 'the end'}" if kept else ""
    raise NotFound(f"event log {reader.path}: it has no sessions{asked}{there}")


# --- the queue's own object -------------------------------------------------------------------------------------------


def _edits(reader: LogReader, name: str, known: Object | None, after: int, until: int) -> Iterator[QueueEdit]:
    """What was done to the queue between two events; ``known`` is how it was when the log begins."""
    for logged in reader.object_history("Queue", name):
        if logged.sequence > until:
            return
        text = ""
        event = logged.event
        if isinstance(event, ev.ObjectPut) and event.payload is not None:
            try:
                shown = decode_payload("Queue", event.payload)
            except BadObject as error:
                text = f"set aside: {error}"
            else:
                text = "created" if known is None else ", ".join(changed_fields("Queue", known, shown))
                known = shown
        elif isinstance(event, ev.ObjectBad):
            text = f"set aside: {event.message}"
        elif isinstance(event, ev.ObjectGone):
            known, text = None, "deleted"
        if text and logged.sequence > after:
            yield QueueEdit(moment(logged.time), text)


# --- figures ----------------------------------------------------------------------------------------------------------


class _Samples:
    """The queue's figures in sessions that were decided again, merged while they say the same."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._starts: list[int] = []
        self.spans: list[QueueSpan] = []
        self.failed: list[str] = []
        self.unreadable: LogError | None = None
        """Why the last session that could not be read was not."""
        self.count = 0

    def take(self, history: History, info: SessionInfo) -> None:
        """Decide a session again and look at the queue."""
        try:
            record, session = history.rerun(info.number)
        except Exception as error:  # noqa: BLE001 - a plugin may fail today; what the log says is told all the same
            self.unreadable = error if isinstance(error, LogError) else self.unreadable
            self.failed.append(f"deciding session {info.number} again fails with {type(error).__name__}: {error}")
            return
        self.count += 1
        plan = ev.decode_plan(record.plan)
        figures = held_back(queue_figures(session), session, plan).get(self._queue)
        overused = figures is not None and figures.overused
        standing = ["the queue is not there"] if figures is None else [_state(figures), *_amounts(figures)]
        last = self.spans[-1] if self.spans else None
        if last is not None and (last.standing, last.overused) == (standing, overused):
            last.sessions = (last.sessions[0], info.number)
            return
        self._starts.append(info.time)
        self.spans.append(QueueSpan(moment(info.time), 0.0, (info.number, info.number), standing, overused, figures))

    def finish(self, time: int) -> None:
        """The last span ends; each lasted until the next began."""
        ends = [*self._starts, time][1:]
        for span, start, end in zip(self.spans, self._starts, ends, strict=True):
            span.seconds = (end - start) / _SECOND


def _chosen(reader: LogReader, infos: Sequence[SessionInfo], samples: int | None) -> list[SessionInfo]:
    """At most so many sessions, evenly spaced, and the last."""
    among, most = infos, SAMPLES
    if infos[-1].head - infos[0].head > FOLDED:
        among = first_sessions_after(infos, [one.sequence for one in reader.checkpoints()])
        most = LOADED
    count = min(most if samples is None else samples, len(among))
    chosen = [among[place * len(among) // count] for place in range(count)]
    return chosen if chosen[-1:] == [infos[-1]] else [*chosen, infos[-1]]


def _state(figures: QueueFigures) -> str:
    return f"{figures.state}, weight {figures.weight}" + (f", under {figures.parent}" if figures.parent else "")


def _amounts(figures: QueueFigures) -> list[str]:
    """``allocated 38 of 40 cpu deserved, requested 44, guarantee 10, capability 60``, for each resource."""
    return [_amount(figures, name) for name in _resources(figures)]


def _resources(figures: QueueFigures) -> list[str]:
    """The resources that say something of a queue: cpu and memory first, the others by name."""
    named: set[str] = set()
    for series in _SERIES:
        amounts = figures.amounts.get(series, {})
        named.update(name for name, value in amounts.items() if value or series == "capability")
    if PODS not in figures.amounts.get("capability", {}):
        named.discard(PODS)  # every pod asks for one of them, and nothing limits that
    first = [name for name in (CPU, MEMORY) if name in named]
    return [*first, *sorted(named.difference(first))]


def _amount(figures: QueueFigures, resource: str) -> str:
    allocated = figures.quantity("allocated", resource)
    if "deserved" in figures.amounts:
        words = [f"allocated {allocated} of {figures.quantity('deserved', resource)} {resource} deserved"]
    else:
        words = [f"allocated {allocated} {resource}"]
    amounts = figures.amounts
    if amounts.get("request", {}).get(resource, 0) != amounts.get("allocated", {}).get(resource, 0):
        words.append(f"requested {figures.quantity('request', resource)}")
    if amounts.get("guarantee", {}).get(resource):
        words.append(f"guarantee {figures.quantity('guarantee', resource)}")
    if resource in amounts.get("capability", {}):
        words.append(f"capability {figures.quantity('capability', resource)}")
    return ", ".join(words)


# --- telling ----------------------------------------------------------------------------------------------------------


def _explained(
    history: History, name: str, infos: Sequence[SessionInfo], edits: list[QueueEdit], samples: int | None
) -> QueueExplanation:
    reader = history.reader
    course, end = _course(history, name, infos)
    figures = _Samples(name)
    for info in _chosen(reader, infos, samples):
        figures.take(history, info)
    if figures.unreadable is not None and not figures.count:
        raise figures.unreadable
    figures.finish(end)
    waits, lengths = _diagnosed(history, infos[-1], course, end)
    return QueueExplanation(
        name, infos[0].number, infos[-1].number, moment(infos[0].time), moment(end),
        seconds=(end - infos[0].time) / _SECOND,
        sessions=len(infos),
        sampled=figures.count,
        edits=edits,
        spans=figures.spans,
        overused_seconds=sum(span.seconds for span in figures.spans if span.overused),
        waited=len(course.jobs),
        waiting=course.waiting,
        reasons=course.by_reason(),
        longest=course.longest(),
        evictions=course.evictions,
        evictions_for=course.evictions_for,
        now=_now(name, figures.spans, course),
        below=course.below,
        notes=figures.failed,
        waits=waits,
        waits_for=lengths,
    )  # fmt: skip


def _diagnosed(
    history: History, last: SessionInfo, course: QueueCourse, end: int
) -> tuple[list[DiagnosedWait], list[float]]:
    """The causes of the longest waits at a time (ns), and how long each is; none where the last session cannot be
    decided again, which a note says."""
    try:
        jobs = {job.key: job for job in overview(history, last.number).jobs if job.queue in course.inside}
        waits = longest_waits(history, last.number, jobs.values())
    except Exception:  # noqa: BLE001 - `_Samples` notes it
        return [], []
    return waits, [(end - (jobs[one.group].since or end)) / _SECOND for one in waits]


def _course(history: History, name: str, infos: Sequence[SessionInfo]) -> tuple[QueueCourse, int]:
    """What happened to the queue's jobs, and the time up to which what the last session left counts: the next
    session's, or now for a log that is being written, else that of its last event."""
    reader, last = history.reader, infos[-1]
    following = next(reader.sessions(last.number + 1, None, 1), None)
    head, time = (reader.head(), as_of(reader)) if following is None else (following.head, following.time)
    begin = infos[0].head if reader.sessions_with_state(last=infos[0].number - 1) else reader.oldest()
    course = QueueCourse(name, reader, history.state(begin, jump=True) if begin else ClusterState())
    course.follow(infos, begin, head, lambda sequence: history.state(sequence, jump=True))
    course.finish(max(time, last.time))
    return course, max(time, last.time)


def _now(name: str, spans: Sequence[QueueSpan], course: QueueCourse) -> list[str]:
    """How the queue stands at the end."""
    told = []
    figures = spans[-1].figures if spans else None
    if spans and figures is None:
        told.append(f"queue {name} is not there")
    elif figures is not None:
        share = "" if figures.share is None else f", share {figures.share:.3g}"
        overused = (
            "; it is overused: while it has all it deserves, none of its jobs is tried" if figures.overused else ""
        )
        told.append(f"queue {name} is {_state(figures)}{share}{overused}")
        told += _amounts(figures) or ["it has nothing, and nobody asks for anything"]
    still = sorted(((job.total, group) for group, job in course.jobs.items() if job.waits), reverse=True)
    if still:
        length, group = still[0]
        reasons = waits_in_words(all_told(course.jobs[group].waits))
        told.append(
            f"{counted(len(still), 'job')} waiting, longest {group} for {span_in_words(length / _SECOND)}: {reasons}"
        )
    else:
        told.append("no job waits in it")
    return told


def _eviction_lines(title: str, evictions: Sequence[EvictedPod]) -> Iterator[str]:
    """Who from whom by which action, counted, and the last of them one by one."""
    if not evictions:
        return
    yield f"{counted(len(evictions), 'pod')} {title}:"
    pairs = Counter((one.action, one.queue or "none", one.for_queue or "none") for one in evictions)
    for (action, loser, winner), count in pairs.most_common():
        yield f"  {counted(count, 'pod')} of queue {loser} by {action} for queue {winner}"
    if len(evictions) > _LAST:
        yield f"  the last {_LAST} of them:"
    for one in evictions[-_LAST:]:
        reason = f" ({one.reason})" if one.reason else ""
        yield f"  {one.time}  session {one.session}: {one.pod} on {one.node} for {one.for_group}{reason}"

"""A queue over the time of a log: what it used and deserved, which jobs waited in it and why, which pods were
evicted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vcd.diagnosis.diagnosedwaits import DiagnosedWait
from vcd.eventlog import LogError, LogReader, SessionInfo
from vcd.model import events as ev
from vcd.model.objects import Object
from vcd.model.projection_codec import BadObject, decode_payload
from vcd.model.wording import did_you_mean, some
from vcd.state.cluster_state import ClusterState
from vcd.text.time_formats import moment
from vcd.timetravel.history import History
from vcd.timetravel.joblines import job_lines
from vcd.timetravel.log_standing import as_of
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.queuestatistics import held_back, queue_statistics
from vcd.timetravel.why.longestcauses import longest_waits
from vcd.timetravel.why.name_lookup import keys_of
from vcd.timetravel.why.queueanswer import QueueEdit, QueueExplanation, QueueSpan, standing
from vcd.timetravel.why.queuewaits import QueueHistory, first_sessions_after
from vcd.timetravel.why.statechanges import changes_of

SAMPLES = 40
"""Sessions that are decided again for the statistics, in addition to the last one."""
FOLDED = 20_000
"""Over more events than this, only sessions right after checkpoints are decided again, since folding takes long."""
LOADED = 2
"""The number of these: loading a checkpoint takes a tenth of a second."""

_SECOND = 1e9


def explain_queue(
    history: History, name: str, first: int | None = None, last: int | None = None, *, samples: int | None = None
) -> QueueExplanation:
    """Explain a queue from session ``first`` to session ``last`` of a log (None: from its beginning, to its end).

    Waits and evictions are those of all sessions of the range, in the queue and in those below it. For the statistics,
    at most ``samples`` of them (None: ``SAMPLES``, of a long log ``LOADED``) and the last one are decided again; of a
    long log, those after its checkpoints. Raises NotFound with the existing names if there is no such queue or
    session, and LogError for what the log does not have.
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
    return _explain(history, name, infos, edits, samples)


# --- names ------------------------------------------------------------------------------------------------------------


def _sessions(reader: LogReader, first: int | None, last: int | None) -> list[SessionInfo]:
    infos = reader.sessions_with_state(first, last)
    if infos:
        return infos
    existing = reader.sessions_with_state()
    there = f"; it has sessions {existing[0].number} to {existing[-1].number}" if existing else ""
    range_text = f" from {first or 1} to {last or 'the end'}" if existing else ""
    raise NotFound(f"event log {reader.path}: it has no sessions{range_text}{there}")


# --- the queue's own object -------------------------------------------------------------------------------------------


def _edits(reader: LogReader, name: str, known: Object | None, after: int, until: int) -> Iterator[QueueEdit]:
    """Yield the changes of the queue's object between two events; ``known`` is its content when the log begins."""
    for logged in reader.object_history("Queue", name):
        if logged.sequence > until:
            return
        text = ""
        event = logged.event
        if isinstance(event, ev.ObjectPut) and event.payload is not None:
            try:
                content = decode_payload("Queue", event.payload)
            except BadObject as error:
                text = f"set aside: {error}"
            else:
                text = "created" if known is None else ", ".join(changes_of("Queue", known, content))
                known = content
        elif isinstance(event, ev.ObjectBad):
            text = f"set aside: {event.message}"
        elif isinstance(event, ev.ObjectGone):
            known, text = None, "deleted"
        if text and logged.sequence > after:
            yield QueueEdit(moment(logged.time), text)


# --- statistics -------------------------------------------------------------------------------------------------------


class _Samples:
    """The queue's statistics in sessions that were decided again; equal consecutive ones are merged."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._starts: list[int] = []
        self.spans: list[QueueSpan] = []
        self.failed: list[str] = []
        self.unreadable: LogError | None = None
        """The error of the last unreadable session."""
        self.count = 0

    def take(self, history: History, info: SessionInfo) -> None:
        """Decide a session again and note the queue's statistics."""
        try:
            record, session = history.rerun(info.number)
        except Exception as error:  # noqa: BLE001 - a plugin may fail now; the logged facts are returned anyway
            self.unreadable = error if isinstance(error, LogError) else self.unreadable
            self.failed.append(f"deciding session {info.number} again fails with {type(error).__name__}: {error}")
            return
        self.count += 1
        plan = ev.decode_plan(record.plan)
        figures = held_back(queue_statistics(session), session, plan).get(self._queue)
        overused = figures is not None and figures.overused
        last = self.spans[-1] if self.spans else None
        if last is not None and (standing(last.figures), last.overused) == (standing(figures), overused):
            last.sessions = (last.sessions[0], info.number)
            return
        self._starts.append(info.time)
        self.spans.append(QueueSpan(moment(info.time), 0.0, (info.number, info.number), overused, figures))

    def finish(self, time: int) -> None:
        """End the last span; each lasted until the next began."""
        ends = [*self._starts, time][1:]
        for span, start, end in zip(self.spans, self._starts, ends, strict=True):
            span.seconds = (end - start) / _SECOND


def _choose_sessions(reader: LogReader, infos: Sequence[SessionInfo], samples: int | None) -> list[SessionInfo]:
    """Return at most ``samples`` sessions, evenly spaced, and the last."""
    among, most = infos, SAMPLES
    if infos[-1].head - infos[0].head > FOLDED:
        among = first_sessions_after(infos, [one.sequence for one in reader.checkpoints()])
        most = LOADED
    count = min(most if samples is None else samples, len(among))
    chosen = [among[place * len(among) // count] for place in range(count)]
    return chosen if chosen[-1:] == [infos[-1]] else [*chosen, infos[-1]]


# --- the answer -------------------------------------------------------------------------------------------------------


def _explain(
    history: History, name: str, infos: Sequence[SessionInfo], edits: list[QueueEdit], samples: int | None
) -> QueueExplanation:
    reader = history.reader
    course, end = _read_history(history, name, infos)
    figures = _Samples(name)
    for info in _choose_sessions(reader, infos, samples):
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
        below=course.below,
        notes=figures.failed,
        waits=waits,
        waits_for=lengths,
    )  # fmt: skip


def _diagnosed(
    history: History, last: SessionInfo, course: QueueHistory, end: int
) -> tuple[list[DiagnosedWait], list[float]]:
    """Return the causes of the longest waits at a time (ns), and their lengths; none if the last session cannot be
    decided again, which a note states."""
    try:
        record, session = history.rerun(last.number)
        lines = job_lines(session, ev.decode_plan(record.plan), record.now)
        jobs = {job.key: job for job in lines if job.queue in course.inside}
        waits = longest_waits(history, last.number, jobs.values())
    except Exception:  # noqa: BLE001 - `_Samples` notes it
        return [], []
    return waits, [(end - (jobs[one.group].since or end)) / _SECOND for one in waits]


def _read_history(history: History, name: str, infos: Sequence[SessionInfo]) -> tuple[QueueHistory, int]:
    """Return the history of the queue's jobs, and the time up to which the state after the last session counts: the
    next session's, or now for a log that is being written, else that of its last event."""
    reader, last = history.reader, infos[-1]
    following = next(reader.sessions(last.number + 1, None, 1), None)
    head, time = (reader.head(), as_of(reader)) if following is None else (following.head, following.time)
    begin = infos[0].head if reader.sessions_with_state(last=infos[0].number - 1) else reader.oldest()
    end = max(time, last.time)
    found = QueueHistory(name, reader, infos, history.state(begin, jump=True) if begin else ClusterState())
    found.follow(begin, head, end, lambda sequence: history.state(sequence, jump=True))
    return found, end

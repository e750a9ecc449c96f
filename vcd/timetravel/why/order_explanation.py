"""The order in which a session serves queues and jobs, and the plugins' values that determine it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from vcd.eventlog import LogReader
from vcd.model.status import Phase, TaskStatus
from vcd.model.wording import counted, did_you_mean, quantities_in_words, some
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.order_positions import (
    OrderStanding,
    Precedence,
    creation_in_words,
    standing_of_job,
    standing_of_queue,
)
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job
from vcd.text.order_templates import ORDERS
from vcd.text.text_table import aligned
from vcd.text.time_formats import moment
from vcd.timetravel.history import History
from vcd.timetravel.query_errors import NotFound

SHOWN_JOBS = 20
"""Jobs of a queue in the output, at most."""


class Factor(msgspec.Struct, frozen=True):
    """One plugin's values for an order, by name, as text. An earlier factor counts before a later one, and so does an
    earlier value."""

    plugin: str
    values: dict[str, str]


class OrderedQueue(msgspec.Struct, omit_defaults=True):
    """A queue's position: 1 is served first. ``waiting`` counts its waiting jobs; ``passed_over`` states why none of
    them is tried, if so; ``before_next`` why it comes before the next queue."""

    position: int
    name: str
    waiting: int
    created: str
    factors: list[Factor]
    passed_over: str = ""
    before_next: Precedence | None = None


class OrderedJob(msgspec.Struct, omit_defaults=True):
    """A waiting job's position in its queue: 1 is served first. ``pending`` counts its pods without a node."""

    position: int
    key: str
    phase: str
    pending: int
    created: str
    factors: list[Factor]
    before_next: Precedence | None = None


class OrderExplanation(msgspec.Struct):
    """The orders at the beginning of a session, which placements may change.

    ``jobs`` has the waiting jobs by queue: those with pods without a node, and groups that are not admitted.
    ``unqueued`` has the jobs that are never served, by the reason: the queue that they name does not exist.
    """

    session: int
    time: str
    queues: list[OrderedQueue]
    jobs: dict[str, list[OrderedJob]]
    unqueued: dict[str, list[str]] = {}

    def lines(self) -> Iterator[str]:
        """Yield tables, each with the reason why its first row comes before the second."""
        yield ORDERS.sentence("session", {"session": f"{self.session}", "time": self.time})
        if self.queues:
            yield from _queue_lines(self.queues)
        elif not self.unqueued:
            yield ORDERS["no queue"]
        for why, keys in self.unqueued.items():
            yield ORDERS.sentence("missing", {"why": why, "names": some(keys)})
        for name, jobs in self.jobs.items():
            yield ""
            yield from _job_lines(name, jobs)


def explain_order(history: History, queue: str | None = None, session: int | None = None) -> OrderExplanation:
    """Return the order of the queues with waiting jobs, and of these jobs: of one queue, or of all.

    ``session`` is the session's number, by default the last. Raises NotFound for an unknown queue or session, and
    LogError for what the log does not have.
    """
    number = _session_number(history.reader, session)
    record, found = history.rerun(number, actions=False)
    if queue is not None and queue not in found.queues:
        raise NotFound(
            f"event log {history.reader.path}: session {number} has no queue {queue}"
            f"{did_you_mean(queue, sorted(found.queues))}; there are {', '.join(sorted(found.queues))}"
        )
    waiting = {one.index: jobs for one in found.queue_list if (jobs := waiting_in_order(found, one))}
    queues = [one for one in found.queue_list if one.index in waiting or one.name == queue]
    queues.sort(key=framework_of(found).queue_key)
    displayed = [one for one in queues if queue in (None, one.name)]
    return OrderExplanation(
        number,
        moment(record.now),
        _ordered_queues(found, queues, waiting),
        {one.name: _ordered_jobs(found, waiting.get(one.index, [])) for one in displayed},
        _unqueued(found) if queue is None else {},
    )


def _unqueued(session: Session) -> dict[str, list[str]]:
    """Return the jobs that have not completed and whose queue does not exist or cannot be read, by that reason."""
    found: dict[str, list[str]] = {}
    for key, record in sorted(session.snapshot.groups.items()):
        name = session.queue_name_of(record)
        if name not in session.queues and record.group.status.phase != Phase.COMPLETED.text:
            found.setdefault(session.why_no_queue(name).words, []).append(key)
    return found


def _session_number(reader: LogReader, session: int | None) -> int:
    number = reader.last_session() if session is None else session
    if next(reader.sessions(number, number), None) is None:
        known = [info.number for info in reader.sessions()]
        there = f"it has sessions {known[0]} to {known[-1]}" if known else "it has no sessions"
        raise NotFound(f"event log {reader.path}: session {number} is not in it; {there}")
    return number


def waiting_in_order(session: Session, queue: Queue) -> list[Job]:
    """Return the jobs of a queue with pending pods, and those not admitted yet, in the order in which they are
    served."""
    jobs = session.jobs
    waited = (jobs.counts[:, TaskStatus.PENDING] > 0) | (jobs.phase == Phase.PENDING)  # at the beginning of the session
    found = [session.job(index) for index in np.flatnonzero(waited & (jobs.queue == queue.index)).tolist()]
    waiting = [job for job in found if job.is_pending() or job.counts[TaskStatus.PENDING]]
    return sorted(waiting, key=framework_of(session).job_key)


def _ordered_queues(session: Session, queues: list[Queue], waiting: dict[int, list[Job]]) -> list[OrderedQueue]:
    standings = [standing_of_queue(framework_of(session).participants, queue) for queue in queues]
    return [
        OrderedQueue(
            position,
            queue.name,
            len(waiting.get(queue.index, [])),
            creation_in_words(queue.created),
            _factors(standing),
            _passed_over(session, queue) if queue.index in waiting else "",
            before_next,
        )
        for position, (queue, standing, before_next) in enumerate(
            zip(queues, standings, _before_next(standings), strict=True), 1
        )
    ]


def _before_next(standings: Sequence[OrderStanding]) -> list[Precedence | None]:
    """Return why each comes before the next one; None for the last."""
    return [one.before(other) for one, other in pairwise(standings)] + [None] * bool(standings)


def _factors(standing: OrderStanding) -> list[Factor]:
    return [Factor(each.plugin, each.shown()) for each in standing.said]


def _passed_over(session: Session, queue: Queue) -> str:
    if not queue.is_open:
        return ORDERS.sentence("state", {"state": queue.state})
    overused = framework_of(session).overused(queue)
    if overused is None:
        return ""
    plugin, refusal = overused
    facts = {"words": refusal.words, "plugin": plugin, "detail": quantities_in_words(refusal.detail)}
    return ORDERS.sentence("overused", facts, ["detail" if facts["detail"] else ""])


def _ordered_jobs(session: Session, jobs: list[Job]) -> list[OrderedJob]:
    standings = [standing_of_job(framework_of(session).participants, job) for job in jobs]
    return [
        OrderedJob(
            position,
            job.key,
            job.phase.text,
            job.counts[TaskStatus.PENDING],
            creation_in_words(job.created),
            _factors(standing),
            before_next,
        )
        for position, (job, standing, before_next) in enumerate(
            zip(jobs, standings, _before_next(standings), strict=True), 1
        )
    ]


# --- tables -----------------------------------------------------------------------------------------------------------


def _columns(factors: Iterable[Factor]) -> list[str]:
    """Return a plugin's name if it has one value, else plugin and value."""
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
    yield from aligned(head, rows)
    yield from _first_before_second("queue", [(one.name, one.before_next) for one in queues])


def _job_lines(queue: str, jobs: list[OrderedJob]) -> Iterator[str]:
    yield ORDERS.sentence("queue", {"queue": queue, "count": counted(len(jobs), "job")}, ["" if jobs else "idle"])
    if not jobs:
        return
    head = ["#", "job", "phase", "pending", *_columns(jobs[0].factors), "created"]
    rows = [
        [str(one.position), one.key, one.phase, str(one.pending), *_texts(one.factors), one.created]
        for one in jobs[:SHOWN_JOBS]
    ]
    yield from aligned(head, rows)
    if len(jobs) > SHOWN_JOBS:
        yield ORDERS.sentence("more", {"count": f"{len(jobs) - SHOWN_JOBS}"})
    yield from _first_before_second("job", [(one.key, one.before_next) for one in jobs])


def _first_before_second(noun: str, ordered: list[tuple[str, Precedence | None]]) -> Iterator[str]:
    if len(ordered) > 1:
        (first, why), (second, _) = ordered[:2]
        yield ORDERS.sentence("first", {"noun": noun, "first": first, "second": second, "why": str(why)})

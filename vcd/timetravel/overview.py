"""The cluster at one session: queues, nodes, jobs and counts."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from vcd.diagnosis.diagnosedwaits import DiagnosedWait
from vcd.model import events as ev
from vcd.model.status import STATUSES, TERMINATED_STATUSES, TaskStatus
from vcd.model.wording import SECOND, did_you_mean
from vcd.scheduling.session.nodeview import all_nodes
from vcd.scheduling.session.session import Session
from vcd.timetravel.history import History
from vcd.timetravel.joblines import JobLine, job_lines, task_nodes, task_statuses
from vcd.timetravel.log_standing import LogStanding, as_of, standing
from vcd.timetravel.log_warnings import remarks
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.queuestatistics import QueueStatistics, held_back, queue_statistics
from vcd.timetravel.why.longestcauses import longest_waits

_RECENT = 60
"""Sessions over which their rate is computed."""


class NodeUse(msgspec.Struct, frozen=True):
    """A node: what pods may use of it and what they use, by resource in the units of ``QueueStatistics``; and its
    number of pods. ``ready`` unless its condition Ready states otherwise."""

    name: str
    ready: bool
    allocatable: dict[str, int]
    used: dict[str, int]
    pods: int
    labels: dict[str, str]


class PodLine(msgspec.Struct, frozen=True):
    """A pod on a node: its job (empty: none), its status, and its requests in the units of ``QueueStatistics``."""

    key: str
    job: str
    status: str
    asks: dict[str, int]


class Overview(msgspec.Struct, frozen=True):
    """The cluster at the end of a session, with its decisions carried out; ``time`` (ns) is the session's. Queues,
    nodes and jobs are in order of name; ``pods`` counts all pods by status."""

    session: int
    time: int
    queues: list[QueueStatistics]
    nodes: list[NodeUse]
    jobs: list[JobLine]
    pods: dict[str, int]


class Glance(msgspec.Struct, frozen=True):
    """A log at this moment: its last event and when that was logged (ns), its last session, the recent number of
    sessions per minute, and the cluster after the last one (None before the first).

    ``remarks`` are displayed first, ``waits`` has the causes of the longest waits, ``standing`` is which replica's log
    it is and how far it lags (None: unknown). Waits are counted up to ``as_of`` (ns): now for a log that is being
    written, else its last event.
    """

    head: int
    time: int
    session: int
    rate: float
    overview: Overview | None
    remarks: list[str] = []
    standing: LogStanding | None = None
    waits: list[DiagnosedWait] = []
    as_of: int = 0


def glances(history: History) -> Iterator[Glance]:
    """Yield a log's current state, without end, also while it is written. Raises LogError."""
    reader, last, waits = history.reader, None, list[DiagnosedWait]()
    while True:
        with reader.pinned():
            recent = list(reader.sessions(max(1, reader.last_session() - _RECENT)))
            number = recent[-1].number if recent else 0
            if recent and (last is None or last.session != number):
                last = overview(history, number)
                waits = longest_waits(history, number, last.jobs)
            span = recent[-1].time - recent[0].time if recent else 0
            rate = (len(recent) - 1) * 60 * SECOND / span if span else 0.0
            ends, until, stands = (reader.head(), reader.last_time()), as_of(reader), standing(reader.path)
            glance = Glance(*ends, number, rate, last, remarks(reader), stands, waits, until)
        yield glance


def overview(history: History, number: int) -> Overview:
    """Return the cluster at a session. Raises LogError if the log has no such session."""
    record, session = history.rerun(number)
    return _overview(number, record.now, ev.decode_plan(record.plan), session)


def overview_before_sessions(history: History) -> Overview:
    """Return the cluster after the log's last event, while the log has no session; its number is 0."""
    now, session = history.undecided()
    return _overview(0, now, ev.Plan(), session)


def _overview(number: int, now: int, plan: ev.Plan, session: Session) -> Overview:
    status = task_statuses(session)
    there = [row for row, key in enumerate(session.snapshot.tasks.keys) if key is not None]
    counts = np.bincount(status[there], minlength=STATUSES).tolist()
    return Overview(
        session=number,
        time=now,
        queues=list(held_back(queue_statistics(session), session, plan).values()),
        nodes=_nodes(session),
        jobs=job_lines(session, plan, now),
        pods={TaskStatus(i).name.capitalize(): count for i, count in enumerate(counts) if count},
    )


def pods_on(history: History, number: int, node: str) -> list[PodLine]:
    """Return the pods on a node, or with resources reserved there, at the end of a session, by key, without ended
    ones. Raises LogError, and NotFound for an unknown node."""
    _, session = history.rerun(number)
    tasks, shapes = session.snapshot.tasks, session.snapshot.shape_columns
    names = [view.name for view in all_nodes(session)]
    if node not in names:
        near = did_you_mean(node, names)
        raise NotFound(f"event log {history.reader.path}: session {number} has no node {node}{near}")
    status, places = task_statuses(session), task_nodes(session)
    found = []
    for row in np.flatnonzero(places == session.snapshot.facts.names.index(node)).tolist():
        key, job = tasks.keys[row], int(tasks.job[row])
        if key is not None and status[row] not in TERMINATED_STATUSES:
            asks = dict(zip(session.snapshot.resources, shapes.requests[tasks.shape[row]].tolist(), strict=True))
            group = session.snapshot.job_keys[job] if job >= 0 else ""
            words = TaskStatus(int(status[row])).name.capitalize()
            found.append(PodLine(key, group or "", words, _nonzero(asks)))
    return sorted(found, key=lambda line: line.key)


def _nodes(session: Session) -> list[NodeUse]:
    nodes = []
    for view in all_nodes(session):
        ready = all(one.status == "True" for one in view.node.status.conditions if one.type == "Ready")
        amounts = _nonzero(view.allocatable), _nonzero(view.used)
        nodes.append(NodeUse(view.name, ready, *amounts, view.pods, {**view.labels}))
    return nodes


def _nonzero(amounts: dict[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}

"""The cluster at one session, for who wants to see it whole: queues, nodes, jobs and counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from vcd.diagnosis.diagnosedwaits import DiagnosedWait, diagnosed_waits
from vcd.model import events as ev
from vcd.model.status import STATUSES, TaskStatus
from vcd.model.words import did_you_mean
from vcd.scheduling.closing import plan_of
from vcd.scheduling.framework.reasons import all_told
from vcd.scheduling.session.nodes import Ints
from vcd.scheduling.session.nodeview import all_nodes
from vcd.scheduling.session.session import Session
from vcd.state.groups import priorities_of
from vcd.state.records import GroupRecord
from vcd.timetravel.errors import NotFound
from vcd.timetravel.figures import QueueFigures, held_back, queue_figures
from vcd.timetravel.history import History
from vcd.timetravel.remarks import remarks
from vcd.timetravel.standing import LogStanding, as_of, standing
from vcd.timetravel.words import place_in_words

DIAGNOSED = 20
"""Of how many jobs the cause is looked for: each is asked of all nodes."""
_SECOND = 1_000_000_000
_RECENT = 60
"""Over how many sessions their rate is taken."""
_NEVER = np.iinfo(np.int64).max
_UNPLACED = (TaskStatus.PENDING, TaskStatus.PIPELINED)
_ENDED = (TaskStatus.SUCCEEDED, TaskStatus.FAILED)


class NodeUse(msgspec.Struct, frozen=True):
    """A node: what pods may use of it and what they use, in the units of ``QueueFigures``, by resource; and how many
    pods are on it. ``ready`` unless its condition Ready says otherwise."""

    name: str
    ready: bool
    allocatable: dict[str, int]
    used: dict[str, int]
    pods: int
    labels: dict[str, str]


class JobLine(msgspec.Struct, frozen=True):
    """A job (PodGroup): its phase after the session, its priority and minimum of pods, and how many pods there are,
    run, have no node, and ended. ``waiting`` says what it waits for (empty: for nothing that a session said), ``since``
    since when the oldest of its pods without a node is there (the group, while it has no pods; None: nothing waits), in
    ns.
    """

    key: str
    queue: str
    phase: str
    priority: int
    minimum: int
    pods: int
    running: int
    pending: int
    ended: int
    waiting: str
    since: int | None


class PodLine(msgspec.Struct, frozen=True):
    """A pod on a node: its job (empty: none), its status, and what it asks for, in the units of ``QueueFigures``."""

    key: str
    job: str
    status: str
    asks: dict[str, int]


class Overview(msgspec.Struct, frozen=True):
    """The cluster as a session left it, with what it decided counted as done; ``time`` (ns) is what it was decided
    for. Queues, nodes and jobs are in order of name; ``pods`` counts all pods by status."""

    session: int
    time: int
    queues: list[QueueFigures]
    nodes: list[NodeUse]
    jobs: list[JobLine]
    pods: dict[str, int]


class Glance(msgspec.Struct, frozen=True):
    """A log as it is at this moment: its last event and when that was logged (ns), its last session, how many sessions
    a minute there were of late, and the cluster after the last one (None before the first); ``remarks`` are told first,
    ``waits`` has the causes of those that wait longest, ``standing`` is whose log it is among the replicas' and by how
    much it lags (None: nobody says). Waits are counted up to ``as_of`` (ns): now for a log that is being written, else
    its last event.
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
    """A log as it is each time that it is looked at, also while it is written; without end. Raises LogError."""
    reader, last, waits = history.reader, None, list[DiagnosedWait]()
    while True:
        recent = list(reader.sessions(max(1, reader.last_session() - _RECENT)))
        if recent and (last is None or last.session != recent[-1].number):
            last = overview(history, recent[-1].number)
            waits = longest_waits(history, recent[-1].number, last.jobs)
        span = recent[-1].time - recent[0].time if recent else 0
        rate = (len(recent) - 1) * 60 * _SECOND / span if span else 0.0
        number = recent[-1].number if recent else 0
        stands = standing(reader.path)
        yield Glance(
            reader.head(), reader.last_time(), number, rate, last, remarks(reader), stands, waits, as_of(reader)
        )


def overview(history: History, number: int) -> Overview:
    """The cluster at a session. Raises LogError when the log has no such session."""
    record, session = history.rerun(number)
    status = _statuses(session)
    there = [row for row, key in enumerate(session.snapshot.tasks.keys) if key is not None]
    counts = np.bincount(status[there], minlength=STATUSES).tolist()
    return Overview(
        session=number,
        time=record.now,
        queues=list(held_back(queue_figures(session), session, ev.decode_plan(record.plan)).values()),
        nodes=_nodes(session),
        jobs=_jobs(session, record, status),
        pods={TaskStatus(i).name.capitalize(): count for i, count in enumerate(counts) if count},
    )


def pods_on(history: History, number: int, node: str) -> list[PodLine]:
    """The pods that a session left on a node, or held room for there, by key; not those that ended. Raises LogError,
    and NotFound for a node that is not there."""
    _, session = history.rerun(number)
    tasks, shapes = session.snapshot.tasks, session.snapshot.shape_columns
    names = [view.name for view in all_nodes(session)]
    if node not in names:
        near = did_you_mean(node, names)
        raise NotFound(f"event log {history.reader.path}: session {number} has no node {node}{near}")
    status, places = _statuses(session), tasks.node.astype(np.int64)
    for task in session.views.moves:
        places[task.row] = task.node
    found = []
    for row in np.flatnonzero(places == session.snapshot.facts.names.index(node)).tolist():
        key, job = tasks.keys[row], int(tasks.job[row])
        if key is not None and status[row] not in _ENDED:
            asks = dict(zip(session.snapshot.resources, shapes.requests[tasks.shape[row]].tolist(), strict=True))
            group = session.snapshot.job_keys[job] if job >= 0 else ""
            words = TaskStatus(int(status[row])).name.capitalize()
            found.append(PodLine(key, group or "", words, _nonzero(asks)))
    return sorted(found, key=lambda line: line.key)


def _statuses(session: Session) -> Ints:
    """The status of each row of the tasks at the end of the session."""
    status = session.snapshot.tasks.status.astype(np.int64)
    for task in session.views.moves:
        status[task.row] = task.status
    return status


def _nodes(session: Session) -> list[NodeUse]:
    nodes = []
    for view in all_nodes(session):
        ready = all(one.status == "True" for one in view.node.status.conditions if one.type == "Ready")
        amounts = _nonzero(view.allocatable), _nonzero(view.used)
        nodes.append(NodeUse(view.name, ready, *amounts, view.pods, {**view.labels}))
    return nodes


def _nonzero(amounts: dict[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}


def _jobs(session: Session, decided: ev.SessionDecided, status: Ints) -> list[JobLine]:
    """All groups, those whose queue does not exist included."""
    snapshot, plan = session.snapshot, ev.decode_plan(decided.plan)
    counts, oldest = _counted(session, status)
    number_of = {key: number for number, key in enumerate(snapshot.job_keys) if key is not None}
    records = [snapshot.groups[key] for key in sorted(snapshot.groups)]
    phases = {group.key: group.phase for group in plan.groups}
    reasons = _reasons(session, plan)
    lines = []
    for record, priority in zip(records, priorities_of(snapshot, records).tolist(), strict=True):
        key = record.group.key
        number = number_of.get(key, -1)
        have = counts[number].tolist()
        lines.append(
            JobLine(
                key=key,
                queue=session.queue_name_of(record),
                phase=phases.get(key) or record.group.status.phase or "Pending",
                priority=priority,
                minimum=record.group.spec.min_member,
                pods=sum(have),
                running=have[TaskStatus.RUNNING],
                pending=sum(have[status] for status in _UNPLACED),
                ended=sum(have[status] for status in _ENDED),
                waiting=reasons.get(key, ""),
                since=_since(record, sum(have), int(oldest[number]), decided.now),
            )
        )
    return lines


def _counted(session: Session, status: Ints) -> tuple[Ints, Ints]:
    """By number of ``job_keys``, with a last row for none: pods by status, and when the oldest pod without a node was
    created (seconds)."""
    tasks = session.snapshot.tasks
    count = len(session.snapshot.job_keys)
    rows = np.flatnonzero(tasks.job >= 0)
    job, status = tasks.job[rows].astype(np.int64), status[rows]
    counts = np.bincount(job * STATUSES + status, minlength=(count + 1) * STATUSES).reshape(count + 1, STATUSES)
    oldest = np.full(count + 1, _NEVER, np.int64)
    unplaced = np.isin(status, _UNPLACED)
    np.minimum.at(oldest, job[unplaced], tasks.created[rows][unplaced])
    return counts, oldest


def _since(record: GroupRecord, pods: int, oldest: int, now: int) -> int | None:
    """Not after ``now``, the session's time: the API server's clock may be ahead of it."""
    if pods and oldest == _NEVER:
        return None
    return min((oldest if pods else record.created) * _SECOND, now)


def longest_waits(history: History, number: int, jobs: Iterable[JobLine]) -> list[DiagnosedWait]:
    """Return the causes of the DIAGNOSED jobs that wait longest at a session, the oldest first; ``jobs`` are those of
    its overview."""
    _, session = history.rerun(number)
    oldest = sorted((job.since, job.key) for job in jobs if job.since is not None and job.waiting)[:DIAGNOSED]
    known = ev.waits_after(session.snapshot.waiting, plan_of(session).waiting)  # older logs have reasons in words
    found = {one.group: one for one in diagnosed_waits(session, {key: known[key] for _, key in oldest})}
    return [found[key] for _, key in oldest if key in found]


def _reasons(session: Session, plan: ev.Plan) -> dict[str, str]:
    """What groups wait for after the session, in words; what a plan says of a group replaces all that was known."""
    known = ev.waits_after(session.snapshot.waiting, plan.waiting)
    return {
        group: "; ".join(f"{place_in_words(one)}: {one.text}" for one in all_told(reasons))
        for group, reasons in known.items()
    }

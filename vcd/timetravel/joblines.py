"""The jobs of a cluster at the end of a session: how many pods are in which state, and what each job waits for.

Decisions of the session count as carried out, as in the rest of an overview.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from vcd.model import events as ev
from vcd.model.status import READY_STATUSES, STATUSES, TERMINATED_STATUSES, Phase, TaskStatus
from vcd.model.wording import SECOND
from vcd.scheduling.framework.declared_reasons import all_told
from vcd.scheduling.session.nodes import Ints
from vcd.scheduling.session.session import Session
from vcd.state.group_columns import priorities_of
from vcd.state.records import GroupRecord
from vcd.text.reason_sentences import reasons_text

STATES = ("waiting", "partial", "starting", "running", "terminating", "completed", "failed")
"""The states of a job: see `_state`."""
WAITING_STATES = ("waiting", "partial")
_NEVER = np.iinfo(np.int64).max
_UNPLACED = (TaskStatus.PENDING, TaskStatus.PIPELINED)


class JobLine(msgspec.Struct, frozen=True):
    """A job (PodGroup): its phase after the session, its priority and minimum of pods, and how many pods exist, run,
    have no node, and ended.

    ``waiting`` is what it waits for (empty: no session states a reason). ``since`` (ns) is when the oldest of its pods
    without a node was created, or the group while it has no pods (None: no pod waits). ``state`` is one of STATES.
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
    state: str


def task_statuses(session: Session) -> Ints:
    """Return the status of each row of the tasks at the end of the session."""
    status = session.snapshot.tasks.status.astype(np.int64)
    for task in session.views.moves:
        status[task.row] = task.status
    return status


def task_nodes(session: Session) -> Ints:
    """Return the node of each row of the tasks at the end of the session, by its number; -1 for none."""
    nodes = session.snapshot.tasks.node.astype(np.int64)
    for task in session.views.moves:
        nodes[task.row] = task.node
    return nodes


def job_lines(session: Session, plan: ev.Plan, now: int) -> list[JobLine]:
    """Return all groups by key, including those whose queue does not exist; ``plan`` is what the session decided, and
    ``now`` (ns) its time."""
    snapshot = session.snapshot
    counts, oldest = _count_pods(session, task_statuses(session))
    number_of = {key: number for number, key in enumerate(snapshot.job_keys) if key is not None}
    records = [snapshot.groups[key] for key in sorted(snapshot.groups)]
    phases = {group.key: group.phase for group in plan.groups}
    reasons = _reasons(session, plan)
    lines = []
    for record, priority in zip(records, priorities_of(snapshot, records).tolist(), strict=True):
        key = record.group.key
        number = number_of.get(key, -1)
        have = counts[number].tolist()
        phase = phases.get(key) or record.group.status.phase or Phase.PENDING.text
        minimum = record.group.spec.min_member
        lines.append(
            JobLine(
                key=key,
                queue=session.queue_name_of(record),
                phase=phase,
                priority=priority,
                minimum=minimum,
                pods=sum(have),
                running=have[TaskStatus.RUNNING],
                pending=_sum(have, _UNPLACED),
                ended=_sum(have, TERMINATED_STATUSES),
                waiting=reasons.get(key, ""),
                since=_since(record, sum(have), int(oldest[number]), now),
                state=_state(have, minimum, phase),
            )
        )
    return lines


def _state(have: Sequence[int], minimum: int, phase: str) -> str:
    """Return the state of a job, by its number of pods in each status, its minimum and its phase.

    It waits while pods have no node, or fewer than the minimum exist; it is partial if its minimum of pods has nodes
    regardless. It is starting until all pods with a node run. Failed pods that were replaced do not make it failed.
    """
    pods, ended, unplaced = sum(have), _sum(have, TERMINATED_STATUSES), _sum(have, _UNPLACED)
    has_minimum = _sum(have, READY_STATUSES) >= max(minimum, 1)
    # a group without minMember is Completed as soon as none of its pods runs, pending ones included
    if (phase == Phase.COMPLETED.text and not unplaced) or (pods and pods == ended):
        return "failed" if have[TaskStatus.FAILED] and not has_minimum else "completed"
    if unplaced or not pods:
        return "partial" if has_minimum else "waiting"
    if pods == ended + have[TaskStatus.RELEASING]:
        return "terminating"
    if not has_minimum:
        return "waiting"
    return "running" if pods == ended + have[TaskStatus.RUNNING] + have[TaskStatus.RELEASING] else "starting"


def _sum(have: Sequence[int], statuses: Sequence[TaskStatus]) -> int:
    return sum(have[status] for status in statuses)


def _count_pods(session: Session, status: Ints) -> tuple[Ints, Ints]:
    """Return by position in ``job_keys``, with an additional row for none, the pods by status, and when the oldest pod
    without a node was created (seconds)."""
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
    """Return since when (ns) the job waits; at most ``now``, the session's time, as the API server's clock may be
    ahead."""
    if pods and oldest == _NEVER:
        return None
    return min((oldest if pods else record.created) * SECOND, now)


def _reasons(session: Session, plan: ev.Plan) -> dict[str, str]:
    """Return what groups wait for after the session, in words; a plan's reasons replace a group's earlier ones."""
    known = ev.waits_after(session.snapshot.waiting, plan.waiting)
    return {group: reasons_text(all_told(reasons)) for group, reasons in known.items()}

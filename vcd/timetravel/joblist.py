"""All jobs of a log as flat rows, for lists and tables: the state of each, what it needs, and why it waits.

The causes come from `waits_over_time`; nothing is diagnosed here.
"""

from __future__ import annotations

import msgspec
import numpy as np

from vcd.diagnosis.diagnosedwaits import DiagnosedWait, job_name
from vcd.model import events as ev
from vcd.model.status import TERMINATED_STATUSES
from vcd.model.wording import SECOND, did_you_mean
from vcd.scheduling.session.session import Session
from vcd.scheduling.session_close import plan_of
from vcd.state.records import GroupRecord
from vcd.text.amounts import needs
from vcd.text.phrases import UNKNOWN
from vcd.timetravel.history import History
from vcd.timetravel.joblines import WAITING_STATES, JobLine, job_lines, task_nodes, task_statuses
from vcd.timetravel.log_standing import as_of
from vcd.timetravel.why.longestcauses import waits_over_time


class JobRow(msgspec.Struct, frozen=True):
    """A job after a session.

    ``namespace`` and ``name`` are those that users know, ``group`` is the name of its PodGroup, ``owner_kind`` the
    kind of the PodGroup's controller. ``state`` is one of STATES. ``needs`` is what its pods without a node request;
    for a job that does not wait, what all its pods request that have not ended.

    ``age`` is in seconds (None: the PodGroup states no creation time), ``waited`` in seconds since the oldest pod
    without a node was created, or the PodGroup while it has no pods (None: it does not wait). ``cause``, ``why`` and
    ``text`` are those of `DiagnosedWait`, empty if it does not wait.
    """

    namespace: str
    name: str
    state: str
    queue: str
    needs: str
    age: int | None
    waited: int | None
    cause: str
    why: str
    text: str
    group: str
    owner_kind: str
    priority: int
    minimum: int
    pods: int
    running: int
    pending: int
    ended: int
    nodes: list[str]

    @property
    def job(self) -> str:
        """The name that users know, with its namespace."""
        return f"{self.namespace}/{self.name}"


class Jobs(msgspec.Struct, frozen=True):
    """The jobs of a log by namespace and name, after its last session (0: there is none yet) at ``time`` (ns).
    Durations are counted up to ``as_of`` (ns): now for a log that is being written, else its last event."""

    session: int
    time: int
    as_of: int
    jobs: list[JobRow]


class JobFilter(msgspec.Struct, frozen=True):
    """Which jobs are listed: those with all these values; an empty value allows all."""

    namespace: str = ""
    queue: str = ""
    state: str = ""
    cause: str = ""

    def chosen(self, found: Jobs) -> Jobs:
        """Return the listed jobs."""
        wanted = {field: value for field, value in msgspec.structs.asdict(self).items() if value}
        rows = [row for row in found.jobs if all(getattr(row, field) == value for field, value in wanted.items())]
        return msgspec.structs.replace(found, jobs=rows)

    def missing(self, found: Jobs) -> str:
        """Return which value no job has, with the nearest existing one."""
        for field, wanted in msgspec.structs.asdict(self).items():
            values = dict.fromkeys(getattr(row, field) for row in found.jobs)
            if wanted and wanted not in values:
                return f"no job has {field} {wanted}{did_you_mean(wanted, filter(None, values))}"
        return "no job has all of these"


def jobs(history: History) -> Jobs:
    """Return the jobs of a log after its last session. Raises LogError."""
    reader = history.reader
    end = as_of(reader)
    if not any(reader.sessions(limit=1)):
        return Jobs(0, 0, end, [])
    record, session = history.rerun(reader.last_session())
    known = ev.waits_after(session.snapshot.waiting, plan_of(session).waiting)  # older logs have reasons in words
    lines = job_lines(session, ev.decode_plan(record.plan), record.now)
    unexplained = dict.fromkeys((one.key for one in lines if one.state == "waiting"), ())
    waits = {one.group: one for one in waits_over_time(history, record.session, session, {**unexplained, **known})}
    pods, groups = _Pods(session), session.snapshot.groups
    found = (_row(groups[one.key], one, waits.get(one.key), pods, end) for one in lines)
    return Jobs(record.session, record.now, end, sorted(found, key=lambda row: (row.namespace, row.name, row.group)))


def _row(record: GroupRecord, line: JobLine, wait: DiagnosedWait | None, pods: _Pods, as_of: int) -> JobRow:
    meta = record.group.metadata
    namespace, _, name = job_name(record.group).partition("/")
    is_waiting = line.state in WAITING_STATES
    return JobRow(
        namespace=namespace,
        name=name,
        state=line.state,
        queue=line.queue,
        needs=pods.needs(line.key) if wait is None else wait.needs,
        age=max(0, as_of // SECOND - record.created) if record.created else None,
        waited=(as_of - line.since) // SECOND if is_waiting and line.since is not None else None,
        cause="" if wait is None else str(wait.cause),
        why=(UNKNOWN if line.state == "waiting" else "") if wait is None else wait.why,
        text="" if wait is None else wait.text,
        group=meta.name,
        owner_kind=next((one.kind for one in meta.owner_references if one.controller), ""),
        priority=line.priority,
        minimum=line.minimum,
        pods=line.pods,
        running=line.running,
        pending=line.pending,
        ended=line.ended,
        nodes=pods.nodes(line.key),
    )


class _Pods:
    """The pods at a session's end that have not ended, by job."""

    def __init__(self, session: Session) -> None:
        snapshot = session.snapshot
        self._names, self._shapes = snapshot.facts.names, snapshot.shapes
        self._number_of = {key: number for number, key in enumerate(snapshot.job_keys) if key is not None}
        job = snapshot.tasks.job.astype(np.int64)
        rows = np.flatnonzero((job >= 0) & ~np.isin(task_statuses(session), TERMINATED_STATUSES))
        rows = rows[np.argsort(job[rows], kind="stable")]
        self._node, self._shape = task_nodes(session)[rows], snapshot.tasks.shape[rows]
        self._needs: dict[bytes, str] = {}
        self._begins = np.searchsorted(job[rows], np.arange(len(snapshot.job_keys) + 1))

    def needs(self, group: str) -> str:
        """Return what the pods of a group request; cached, since many groups request the same."""
        numbers = np.sort(self._shape[self._of(group)])
        if (key := numbers.tobytes()) not in self._needs:
            shapes = (self._shapes[number] for number in numbers.tolist())
            self._needs[key] = needs(shape.requests for shape in shapes if shape is not None)
        return self._needs[key]

    def nodes(self, group: str) -> list[str]:
        """Return the nodes with pods of a group, or with resources reserved for them."""
        return sorted({self._names[node] for node in self._node[self._of(group)].tolist() if node >= 0})

    def _of(self, group: str) -> slice:
        number = self._number_of.get(group)
        return slice(0) if number is None else slice(*self._begins[number : number + 2].tolist())

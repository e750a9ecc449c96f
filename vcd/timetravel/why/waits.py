"""Which job is asked about, and at which session it waited."""

from __future__ import annotations

from dataclasses import dataclass

from vcd.eventlog import LogReader
from vcd.eventlog.reader import is_decision
from vcd.model import events as ev
from vcd.scheduling.closing import plan_of
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job
from vcd.state.cluster import ClusterState
from vcd.timetravel.history import History
from vcd.timetravel.why.explain import Kind, NotFound, group_named, group_of


@dataclass(frozen=True)
class Wait:
    """A job that waits at a session, or one pod of it (``pod``, empty for the whole job): the session's record, the
    session decided again with its plan, and the reasons."""

    group: str
    pod: str
    record: ev.SessionDecided
    session: Session
    plan: ev.Plan
    reasons: tuple[ev.Waiting, ...]

    @property
    def name(self) -> str:
        """What was asked about: ``job default/train``, ``pod default/train-0``."""
        return f"pod {self.pod}" if self.pod else f"job {self.group}"

    @property
    def job(self) -> Job | None:
        """The job in the session; None where its queue does not exist."""
        index = self.session.jobs.index(self.group)
        return None if index is None else self.session.job(index)


def wait_of(
    history: History, kind: Kind, name: str, namespace: str, number: int | None, observers: tuple[Plugin, ...] = ()
) -> Wait:
    """A job or pod, named as ``explain`` names it, at a session in which it waits: at its last one where ``number`` is
    None. Raises NotFound where nothing has that name, or it does not wait there; LogError for a session that is not
    in the file."""
    reader = history.reader
    if "/" in name:
        namespace, _, name = name.partition("/")
    oldest = history.state(reader.oldest()) if reader.oldest() else ClusterState()
    pod = f"{namespace}/{name}" if kind == "pod" else ""
    group = group_of(reader, oldest, pod) if pod else group_named(reader, oldest, namespace, name)
    if not group:
        raise NotFound(f"event log {reader.path}: pod {pod} is in no group; only pods of groups are placed by sessions")
    if number is None:
        number = _last_wait(reader, oldest, group, pod)
    record, session = history.rerun(number, observers=observers)
    plan = plan_of(session)
    reasons = _reasons(session, plan, group)
    if not reasons or _is_bound(plan, pod):
        there = group in session.snapshot.groups
        what = "waits for nothing there" if there else "is not there yet, or not any more"
        raise NotFound(f"event log {reader.path}: session {number}: {'pod ' + pod if pod else 'job ' + group} {what}")
    return Wait(group, pod, record, session, plan, reasons)


def _is_bound(plan: ev.Plan, pod: str) -> bool:
    operations = (operation for statement in plan.statements for operation in statement.operations)
    return any(operation.verb == "bind" and operation.key == pod for operation in operations)


def _reasons(session: Session, plan: ev.Plan, group: str) -> tuple[ev.Waiting, ...]:
    """Why a group waits after a session: what its plan says, else what was known before."""
    if group not in session.snapshot.groups:
        return ()
    fresh = tuple(reason for reason in plan.waiting if reason.group == group)
    return tuple(reason for reason in fresh or session.snapshot.waiting.get(group, ()) if reason.gate)


def _last_wait(reader: LogReader, oldest: ClusterState, group: str, pod: str) -> int:
    """The last session after which a group waits, up to the one that bound the pod that is asked about."""
    gone = [
        logged.sequence
        for logged in reader.object_history("PodGroup", group)
        if isinstance(logged.event, ev.ObjectGone)
    ]
    bound = min((done.session for done in reader.operations_of(pod) if done.verb == "bind"), default=0) if pod else 0
    segments, word = reader.segments(), group.encode()
    waits, last, sessions = group in oldest.waiting, 0, 0
    for logged in reader.find(type="session"):
        event = logged.event
        if not isinstance(event, ev.SessionDecided) or not is_decision(segments, logged.sequence):
            continue
        sessions += 1
        if bound and event.session >= bound:
            break
        while gone and gone[0] < logged.sequence:
            gone.pop(0)
            waits = False
        if word in event.plan:  # most plans say nothing of the group, and need not be decoded
            said = [reason for reason in ev.decode_plan(event.plan).waiting if reason.group == group]
            waits = any(reason.gate for reason in said) if said else waits
        last = event.session if waits else last
    if not last:
        what = f"waits in none of its {sessions} sessions" if sessions else "waits nowhere: it has no sessions"
        raise NotFound(f"event log {reader.path}: {'pod ' + pod if pod else 'job ' + group} {what}")
    return last

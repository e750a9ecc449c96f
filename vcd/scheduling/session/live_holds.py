"""Live holds of the state in a session (docs/laws.md, law 8): binds in progress, nominations, immunities, back-offs
after refusals, and reservations of admitted groups that lack pods of their minimum.

Plugins return their own holds by ``Plugin.holds``; ``Framework.holds`` has all of them. Holds are computed on request
and decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from vcd.model.status import TaskStatus
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.session_immunity import immunity_of
from vcd.scheduling.session.views import Task
from vcd.state.backoff import backoff_holds
from vcd.state.holds import Hold, HoldKind
from vcd.state.incomplete_admissions import admission_holds


def state_holds(session: Session) -> Iterator[Hold]:
    """Yield the live holds of the state, in no particular order."""
    tasks = session.snapshot.tasks
    for job in session.all_jobs() if (tasks.status == TaskStatus.BINDING).any() else ():
        yield from (_on_node(session, HoldKind.BIND, task) for task in job.tasks() if task.status == TaskStatus.BINDING)
    for job in session.views.jobs():
        for task in job.tasks() if job.counts[TaskStatus.PIPELINED] else ():
            if task.status == TaskStatus.PIPELINED:
                yield _on_node(session, HoldKind.NOMINATION, task)
    for row in session.pending_rows_of(session.snapshot.nominated) if session.snapshot.nominated else ():
        task, node = session.task(row), session.nominated_node(session.task(row))
        if node is None or task.gated or task.status == TaskStatus.PIPELINED:
            continue
        if session.nodes.will_have_room(node, task.floor):
            yield _on_node(session, HoldKind.NOMINATION, task, node)
    for owner, task in immunity_of(session).owners():
        if task.node >= 0 and session.jobs.index(owner) is not None:
            yield Hold(HoldKind.IMMUNITY, owner, task.key, _name(session, task.node))
    snapshot = session.snapshot
    pods = ((_group_of(session, row), tasks.keys[row] or "", backoff) for row, backoff in snapshot.backoffs.items())
    yield from backoff_holds(pods, snapshot.released, session.now)
    yield from admission_holds(snapshot.admissions, snapshot.groups, snapshot.settings.admission_timeout)


def _group_of(session: Session, row: int) -> str:
    index = int(session.job_of_row[row])
    return session.jobs.keys[index] if index >= 0 else ""


def _on_node(session: Session, kind: HoldKind, task: Task, node: int = -1) -> Hold:
    """Return a hold of a task's request, on its node unless ``node`` is another one."""
    pairs = zip(session.nodes.resources, task.amounts, strict=True)
    requested = {name: amount for name, amount in pairs if amount}
    return Hold(kind, task.job.key, task.key, _name(session, task.node if node < 0 else node), requested)


def _name(session: Session, node: int) -> str:
    return session.nodes.facts.names[node] if node >= 0 else ""

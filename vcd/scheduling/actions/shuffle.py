"""shuffle: evict the running tasks that plugins want elsewhere (docs/semantics/actions.md)."""

from __future__ import annotations

from collections.abc import Iterator

from vcd.model.status import TaskStatus
from vcd.scheduling.eviction.victim_search import placed_tasks
from vcd.scheduling.framework.action import Action
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement
from vcd.scheduling.session.views import Task


class ShuffleAction(Action):
    """Evict the tasks named by the first tier of plugins that names any, job by job.

    Pods with ``volcano.sh/preemptable: "false"`` are left out. Later sessions place the pods again. Source: Volcano
    ``actions/shuffle``.
    """

    name = "shuffle"
    follows_order = True

    def execute(self, framework: Framework) -> None:
        session = framework.session
        statements: dict[int, Statement] = {}
        for victim in framework.victim_tasks(list(_running(session))):
            statement = statements.get(victim.job.index)
            if statement is None:
                statement = statements[victim.job.index] = framework.statement(self.name, victim.job)
            statement.evict(victim, "shuffle")
        for index in sorted(statements):
            statements[index].commit()


def _running(session: Session) -> Iterator[Task]:
    """Yield evictable running tasks on nodes of the session, in order of key."""
    keys = session.snapshot.tasks.keys
    for row in sorted(placed_tasks(session).rows.tolist(), key=lambda row: keys[row] or ""):
        task = session.task(row)
        if task.status == TaskStatus.RUNNING and task.preemptable:
            yield task

"""Place tasks again that wait on nodes with idle resources.

Actions that evict also pipeline tasks where no eviction is needed: on an idle node, or on what other evictions left
over. Only allocate and backfill bind. Allocate and backfill begin by making such tasks pending again.
"""

from __future__ import annotations

from collections.abc import Callable

from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.session.statement import Statement
from vcd.scheduling.session.views import Task

Waits = list[tuple[Statement, Task]]


def unpipeline_idle(framework: Framework, is_mine: Callable[[Task], bool]) -> None:
    """Make tasks pending again that wait for resources which are idle by now, if their job would be ready with them.

    ``is_mine`` selects the tasks that the action places. After evictions in this session, tasks that depend on the
    positions of other pods wait for the next session, since victims block them until then.
    """
    session = framework.session
    jobs: dict[int, Waits] = {}
    evicted = [task for statement in session.trial.statements for task in statement.evicted()]
    for statement in session.trial.statements:
        for task in statement.pipelined():
            if not is_mine(task) or (evicted and framework.evaluator.keys.moves(task, evicted)):
                continue
            if session.nodes.has_room(task.node, task.floor):
                jobs.setdefault(statement.job.index, []).append((statement, task))
    for index in sorted(jobs):
        if not _is_ready_with(framework, jobs[index]):
            continue
        for statement, task in jobs[index]:
            statement.unpipeline(task)
            if not len(statement):
                session.trial.statements.remove(statement)


def _is_ready_with(framework: Framework, waits: Waits) -> bool:
    """Whether a job would be ready if its tasks that wait for idle resources were allocated. Nothing changes."""
    job = waits[0][1].job
    trial = framework.statement("", job)
    places = [(statement, task, task.node, statement.unpipeline(task)) for statement, task in waits]
    for _, task, node, _ in places:
        trial.allocate([task], [node])
    ready = framework.job_ready(job)
    trial.discard()
    for statement, task, node, position in reversed(places):
        statement.pipeline_again(task, node, position)
    return ready

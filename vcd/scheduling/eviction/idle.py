"""Room that is idle now is waited for by nobody: who could be bound in it is placed anew.

Actions that make room let tasks wait also where nobody has to leave for them (a vacant node, what others' going left
over). allocate and backfill, which alone bind, begin by taking such tasks back; they are pending again then.
"""

from __future__ import annotations

from collections.abc import Callable

from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.session.statement import Statement
from vcd.scheduling.session.views import Task

Waits = list[tuple[Statement, Task]]


def unpipeline_idle(framework: Framework, is_mine: Callable[[Task], bool]) -> None:
    """Make tasks pending again that wait for idle room though their job could go on with it.

    ``is_mine`` says which tasks the action places. Where others evicted something, tasks that mind where pods are
    wait for the next session: who is releasing is in their way until then.
    """
    session = framework.session
    jobs: dict[int, Waits] = {}
    evicted = [task for statement in session.trial.statements for task in statement.evicted()]
    for statement in session.trial.statements:
        for task in statement.pipelined():
            if not is_mine(task) or (evicted and framework.evaluator.kinds.moves(task, evicted)):
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
    """Whether a job could be bound if those of its tasks that wait for idle room had it; nothing changes."""
    job = waits[0][1].job
    trial = framework.statement("", job)
    places = [(statement, task, task.node, statement.unpipeline(task)) for statement, task in waits]
    for _, task, node, _ in places:
        trial.allocate(task, node)
    ready = framework.job_ready(job)
    trial.discard()
    for statement, task, node, position in reversed(places):
        statement.pipeline_again(task, node, position)
    return ready

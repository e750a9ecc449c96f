"""Gangs that the API server admitted only in part: they come first, and are released if they stay incomplete.

A bind of a gang may fail for good after its others went through (docs/laws.md, law 3). The gang then holds resources in
vain. After ``Settings.release_after`` its pods are evicted, and it waits for its whole minimum again.
"""

from __future__ import annotations

from vcd.model.status import TaskStatus
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.session.statement import Statement
from vcd.state.backoff import RELEASE

_PLACED = (TaskStatus.BOUND, TaskStatus.RUNNING)


def release(framework: Framework) -> None:
    """Evict the placed pods of each gang that has been incomplete for too long.

    Plugins decide what is complete. Without such a plugin, any part of a group is.
    """
    session = framework.session
    limit = session.snapshot.settings.release_after * 1_000_000_000
    for key in sorted(session.snapshot.stranded):
        since = session.snapshot.stranded[key]
        index = session.jobs.index(key)
        if index is None or session.now - since < limit:
            continue
        job = session.job(index)
        if framework.job_ready(job):
            continue
        statement = Statement(session.trial, RELEASE, job)
        for task in job.tasks():
            if task.status in _PLACED and task.node >= 0 and not task.eviction_was_refused:
                statement.evict(task, f"its gang was let in only in part and not completed in {limit // 10**9} s")
        statement.commit()

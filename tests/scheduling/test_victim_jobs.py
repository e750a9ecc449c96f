"""The order of jobs that may lose tasks: kept up to date, it is the order that sorting all jobs again gives."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import pytest

from tests.dsl import gang, node, session_of
from tests.plugins.opened import job_of
from vcd.model.status import TaskStatus
from vcd.scheduling.eviction.victim_jobs import Ranks, VictimJobs
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.session.views import Job

CONF = "actions: gangpreempt\ntiers:\n- plugins:\n  - name: gang\n  - name: drf\n  - name: predicates\n"


@pytest.mark.parametrize("largest_first", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_order_follows_evictions_and_discards(seed: int, largest_first: bool) -> None:
    rng = random.Random(seed)
    sizes = {f"old{number}": rng.randint(1, 5) for number in range(8)}
    olds = [gang(name, size, members=rng.randint(1, size), on=["n1"] * size) for name, size in sizes.items()]
    session = session_of(node("n1", cpu=40), *olds, gang("new", 1), conf=CONF)
    framework, jobs = framework_of(session), [job_of(session, name) for name in sizes]

    def rank(some: Sequence[Job]) -> Iterable[Ranks]:
        for job in some:
            key = framework.victim_key(job) if job.counts[TaskStatus.RUNNING] else None
            yield Ranks(key if job.ready_count > job.min_available else None, key)

    def sorted_again() -> VictimJobs:
        return VictimJobs(session.views.moves, jobs, rank, largest_first=largest_first)

    kept = sorted_again()
    for _ in range(12):
        statement = framework.statement("gangpreempt", job_of(session, "new"))
        running = [task for job in jobs for task in job.tasks() if task.status == TaskStatus.RUNNING]
        for task in rng.sample(running, min(3, len(running))):
            statement.evict(task, "for a test")
        if rng.random() < 0.5:
            assert kept.current_orders() == sorted_again().current_orders()
        if rng.random() < 0.5:
            statement.discard()
        assert kept.current_orders() == sorted_again().current_orders()

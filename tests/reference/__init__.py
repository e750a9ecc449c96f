"""A slow reference scheduler: one Volcano session over plain manifests, in plain loops over plain objects."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.reference import (
    actions,
    cards,
    cpus,
    evictions,
    extender,
    fits,
    gangs,
    jobs,
    plugins,
    predicates,
    queues,
    quotas,
    rebalance,
    reclaims,
    scores,
    shuffles,
    usage,
)
from tests.reference.admission import admitted
from tests.reference.config import parse
from tests.reference.model import EPOCH, Job, build
from tests.reference.session import Session

PLUGINS = {
    "priority": plugins.priority,
    "gang": plugins.gang,
    "conformance": evictions.conformance,
    "pdb": evictions.pdb,
    "cdp": evictions.cdp,
    "overcommit": plugins.overcommit,
    "drf": plugins.drf,
    "proportion": plugins.proportion,
    "predicates": predicates.predicates,
    "nodeorder": scores.nodeorder,
    "binpack": scores.binpack,
    "sla": jobs.sla,
    "resourcequota": jobs.resourcequota,
    "task-topology": jobs.task_topology,
    "nodegroup": fits.nodegroup,
    "resource-strategy-fit": fits.resource_strategy_fit,
    "capacity": queues.capacity,
    "tdm": shuffles.tdm,
    "capacity-card": quotas.capacity_card,
    "numa-aware": cpus.numa_aware,
    "deviceshare": cards.deviceshare,
    "usage": usage.usage,
    "extender": extender.extender,
    "rescheduling": rebalance.rescheduling,
}
ACTIONS = {
    "enqueue": actions.enqueue,
    "allocate": actions.allocate,
    "backfill": actions.backfill,
    "preempt": evictions.preempt,
    "reclaim": reclaims.reclaim,
    "shuffle": shuffles.shuffle,
    "gangpreempt": gangs.gangpreempt,
    "gangreclaim": gangs.gangreclaim,
}


@dataclass
class Result:
    """What one session decided; keys are namespace/name."""

    binds: dict[str, str]
    evictions: list[str]
    pipelined: dict[str, str]
    phases: dict[str, str]
    why: dict[str, dict[str, Any]]
    annotations: dict[str, dict[str, str]] = field(default_factory=dict)
    """What is written to the pods that are bound, by the plugins that say something."""


def decide(
    objects: Iterable[dict[str, Any]],
    conf: str | None,
    now: datetime.datetime | None = None,
    seed: int = 0,
    pains: bool = True,
    *,
    makes_default: bool = True,
) -> Result:
    """Run one session. `conf` None is the compiled-in configuration; `now` is what deadlines are compared with.

    `makes_default` is as `model.build` has it. Without `pains` what docs/semantics/details.md marks [pains] is as in
    Volcano.
    Raises ValueError for a configuration or an object that the reference does not know.
    """
    configuration = parse(conf)
    session = Session(build(admitted(objects), makes_default=makes_default), configuration, seed, pains, now or EPOCH)
    for tier in configuration.tiers:
        for option in tier:
            PLUGINS[option.name](session, option.arguments)
    for start in session.openers:
        start()
    for name in configuration.actions:
        ACTIONS[name](session)
    for close in session.closers:
        close()
    all_jobs = session.cluster.jobs
    tasks = [task for job in all_jobs.values() for task in job.tasks]
    phases = {
        **session.cluster.orphans,
        **{key: _phase(job, key in session.unschedulable) for key, job in all_jobs.items()},
    }
    return Result(
        binds=dict(sorted(session.binds.items())),
        evictions=sorted(task.key for task in session.evicted),
        pipelined={task.key: task.node for task in sorted(tasks, key=lambda t: t.key) if task.status == "Pipelined"},
        phases=dict(sorted(phases.items())),
        why={key: found for key, job in sorted(all_jobs.items()) if (found := _why(job))},
        annotations=session.bind_annotations,
    )


def _phase(job: Job, unschedulable: bool) -> str:
    """The group's phase as the session leaves it."""
    if job.having("Running") and unschedulable:
        return "Unknown"
    completed = len(job.having("Succeeded", "Failed"))
    ending = sum(1 for task in job.having("Releasing") if task.node)
    scheduled = len(job.having("Running", "Bound")) + completed + ending
    if scheduled >= job.min_available:
        return "Completed" if scheduled == completed else "Running"
    is_over = job.phase == "Completed" and not job.tasks  # its pods were deleted
    return job.phase if job.phase == "Inqueue" or is_over else "Pending"


def _why(job: Job) -> dict[str, Any]:
    """Gate, queue and validity notes, and per pending task the reasons with their node counts."""
    pending = {task.key for task in job.having("Pending")}
    found: dict[str, Any] = dict(job.notes) if pending or job.is_pending else {}
    tasks = {key: reasons for key, reasons in sorted(job.fit_errors.items()) if key in pending}
    if tasks:
        found["tasks"] = tasks
    if pending and not job.is_ready:
        found["gang"] = {"ready": job.ready_count + job.pending_best_effort, "minimum": job.min_available}
    return found

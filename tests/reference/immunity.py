"""Who is not evicted again: what earlier sessions took is told by an annotation of the pods that took its place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.reference.model import Job, Task, annotations_of
from tests.reference.session import Session

REPLACES = "reference/replaces"
"""JSON: ``place`` among the pods of its group, the oldest first; for each of these (``knew``) the owners whose first
eviction came after it; ``lost``: how many pods the group lost, by owner; and whether nothing new happened since
(``undisturbed``)."""
REFUSED = "reference/refused"
"""Annotation of a pod of which the API server refused an operation last."""


def is_immune(session: Session, task: Task, job: Job) -> bool:
    """Whether a pod is not evicted for a job: it came for one that was evicted for this job or one just like it."""
    text = annotations_of(task.pod).get(REPLACES)
    if text is None:
        return False
    told = json.loads(text)
    owners = {owner for owner in told["lost"] if told["undisturbed"] or _is_like(session, owner, job)}
    lost = sum(told["lost"][owner] for owner in owners)
    replaces = [not owners.issubset(knew) for knew in told["knew"]]
    if not replaces[told["place"]]:
        return False
    return bool(lost) if all(replaces) else sum(replaces[: told["place"]]) < lost


def _is_like(session: Session, owner: str, job: Job) -> bool:
    other = session.cluster.jobs.get(owner)
    if owner == job.key or other is None:
        return owner == job.key
    waits = _waiting(other)
    if not waits or (other.queue, other.priority, waits) != (job.queue, job.priority, _waiting(job)):
        return False
    return _could_start(other) or not _could_start(job)


def _waiting(job: Job) -> list[Any]:
    """The specs of the pods that had no place when the session began, each once."""
    specs = [{name: part for name, part in task.spec.items() if name != "nodeName"} for task in _without_place(job)]
    return sorted({json.dumps(spec, sort_keys=True) for spec in specs})


def _could_start(job: Job) -> bool:
    """Whether a pod without a place would have one if there was room: it has no gate, and was not refused last."""
    return any(
        not task.spec.get("schedulingGates") and REFUSED not in annotations_of(task.pod) for task in _without_place(job)
    )


def _without_place(job: Job) -> Iterator[Task]:
    for task in job.tasks:
        is_there = task.spec.get("nodeName") or (task.pod.get("metadata") or {}).get("deletionTimestamp")
        if not is_there and (task.pod.get("status") or {}).get("phase") in (None, "", "Pending"):
            yield task

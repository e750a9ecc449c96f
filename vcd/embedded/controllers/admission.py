"""What Volcano's admission webhooks do to new Jobs, PodGroups and Queues: fill in defaults, and refuse what is wrong.

Each function takes the object as it came and returns it as it is to be stored; it raises StatusError to refuse it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from vcd.embedded.controllers import jobspec
from vcd.embedded.controllers.base import JOBS, NAMESPACES, PODGROUPS, QUEUES, Obj
from vcd.embedded.errors import StatusError
from vcd.embedded.store import Store
from vcd.model.controllers import with_defaults

Admission = Callable[[str, Obj], Obj]

QUEUE_ANNOTATION: Final = "scheduling.volcano.sh/queue-name"
DEFAULT_QUEUE: Final = "default"


def denied(webhook: str, message: str) -> StatusError:
    """400: an admission webhook said no, in the words of the API server."""
    return StatusError(400, "BadRequest", f'admission webhook "{webhook}" denied the request: {message}')


def admit_job(store: Store, job: Obj) -> Obj:
    """The Volcano Job with the defaults of Volcano's webhook, refused with all that is wrong or not supported."""
    filled = with_defaults(job)
    faults = jobspec.problems(filled) + _queue_problems(store, filled["spec"]["queue"])
    if faults:
        raise denied("validatejob.volcano.sh", " ".join(f"{fault};" for fault in faults))
    return filled


def admit_podgroup(store: Store, group: Obj) -> Obj:
    """The PodGroup in a queue: its own, or its namespace's by annotation, or ``default``."""
    spec = group.get("spec") or {}
    queue = spec.get("queue") or DEFAULT_QUEUE
    if queue == DEFAULT_QUEUE:
        namespace = _get(store, NAMESPACES, "", group["metadata"].get("namespace") or "default")
        queue = ((namespace or {}).get("metadata", {}).get("annotations") or {}).get(QUEUE_ANNOTATION, queue)
    return {**group, "spec": {**spec, "queue": queue}}


def admit_queue(_store: Store, queue: Obj) -> Obj:
    """The Queue with weight 1 and reclaimable where it does not say otherwise."""
    spec = dict(queue.get("spec") or {})
    spec["weight"] = spec.get("weight") or 1
    spec.setdefault("reclaimable", True)
    return {**queue, "spec": spec}


def admission(store: Store) -> Admission:
    """Admission of new objects as one function ``(resource, object) -> object``, for the store to call."""
    table = {JOBS: admit_job, PODGROUPS: admit_podgroup, QUEUES: admit_queue}

    def admit(resource: str, obj: Obj) -> Obj:
        return table[resource](store, obj) if resource in table else obj

    return admit


def _queue_problems(store: Store, name: str) -> list[str]:
    queue = _get(store, QUEUES, "", name)
    if queue is None:
        return [f'unable to find job queue: {QUEUES} "{name}" not found']
    faults = []
    state = (queue.get("status") or {}).get("state") or "Open"
    if state != "Open":
        faults.append(f"can only submit job to queue with state `Open`, queue `{name}` status is `{state}`")
    if name == "root":
        faults.append("can not submit job to root queue")
    elif children := sum((each.get("spec") or {}).get("parent") == name for each in store.list(QUEUES)):
        faults.append(f"can only submit job to leaf queue, queue `{name}` has {children} child queues")
    if (queue.get("spec") or {}).get("extendClusters"):
        faults.append(f"queue `{name}` forwards to other clusters, which the embedded cluster does not support")
    return faults


def _get(store: Store, resource: str, namespace: str, name: str) -> Obj | None:
    try:
        return store.get(resource, namespace, name)
    except StatusError as error:
        if error.code == 404:
            return None
        raise

"""Name the owners of live holds to the jobs that could use what is held (docs/laws.md, law 8).

After the last action, each job that waits gets remarks (gate ``held``) on the holds behind the first of its reasons:
capacity on nodes that is nominated for other jobs, reservations of admitted groups that lack pods, unused guarantees of
other queues, and the job's own pause after a refused eviction. A remark changes no cause, metric or decision. It is
displayed only after a reason or a verdict that it explains (``remarks_on``). Its text does not change while the holds
exist. So it names no pod, and only one of the owners of nominations, because these change from session to session.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from vcd.model.events import Waiting
from vcd.model.reasons import Amount, Cause, Reason, ReasonCode
from vcd.model.status import TaskStatus
from vcd.model.wording import rfc3339, some
from vcd.scheduling.framework.declared_reasons import cause_of, keeps_back
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.framework.registry import limits_of
from vcd.scheduling.search.parts import Mask
from vcd.scheduling.session.nodes import fits
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.state.backoff import resting_preemptors
from vcd.state.holds import Hold, HoldKind
from vcd.state.incomplete_admissions import admission_holds

HELD: Final = "held"
"""The gate of these remarks."""
NOMINATED: Final = ReasonCode(
    "held-nominated",
    Cause.LEAVING,
    "capacity that it could use is nominated for other jobs, such as {owner}",
    remark=True,
)
RESERVED: Final = ReasonCode(
    "held-reserved",
    Cause.ADMISSION,
    "resources are reserved for {owners}, admitted and without all of their pods",
    remark=True,
)
GUARANTEED: Final = ReasonCode(
    "held-guaranteed", Cause.OTHERS_GUARANTEE, "the limit excludes the unused guarantee of queue {owners}", remark=True
)
EVICTION_REFUSED: Final = ReasonCode(
    "eviction-refused",
    Cause.OUTSIDE,
    "the API server refused an eviction for it; other pods are evicted at {until} at the earliest",
    remark=True,
)
_FULL = (Cause.NODE_ROOM, Cause.FRAGMENTATION, Cause.CLUSTER_FULL)
_LIMITED = (Cause.QUEUE_CAPABILITY, Cause.PARENT_LIMIT)
_EXPLAINED = {
    NOMINATED.name: _FULL,
    RESERVED.name: (Cause.ADMISSION, *_LIMITED),
    GUARANTEED.name: _LIMITED,
    EVICTION_REFUSED.name: (
        *_FULL, *_LIMITED, Cause.QUEUE_DESERVED, Cause.OTHERS_GUARANTEE, Cause.ORDER,
        Cause.DEVICE, Cause.POD_AFFINITY, Cause.SPREAD, Cause.PORTS, Cause.VOLUME,
    ),
}  # fmt: skip
"""The causes that each remark explains.

A verdict with another cause needs no remark: ``others-guarantee`` names the queue itself, and a pod that is larger than
any node could not use what is held.
"""


def note_holds(framework: Framework) -> None:
    """Note on each job that waits which holds reserve what it could use."""
    holds = _Holds(framework)
    for job in framework.session.views.jobs():
        if job.why and (job.counts[TaskStatus.PENDING] or job.is_pending()):
            first = next(filter(keeps_back, job.why), None)
            for remark in () if first is None else holds.remarks_behind(job, first):
                job.note(HELD, "", remark)


def remarks_on(cause: str, reasons: Iterable[Waiting]) -> list[Waiting]:
    """Return the remarks among a group's reasons that explain a reason or a verdict with this cause."""
    held = [(one, one.reason) for one in reasons if one.gate == HELD]
    return [one for one, reason in held if isinstance(reason, Reason) and cause in _EXPLAINED.get(reason.code, ())]


class _Holds:
    """The holds at the end of a session, computed by kind on first use."""

    def __init__(self, framework: Framework) -> None:
        self._framework = framework
        self._session = framework.session
        self._reserved: dict[tuple[str, int, tuple[str, ...]], Reason | None] = {}
        self._resting = resting_preemptors(framework.session.backing_off.values(), framework.session.now)

    def remarks_behind(self, job: Job, why: Waiting) -> list[Reason]:
        """Return remarks on the holds behind a reason of a job, except holds whose owners the reason names itself."""
        cause, names = cause_of(why), dict(why.reason.names) if isinstance(why.reason, Reason) else {}
        limited = self._session.queues.get(names.get("queue", ""), job.queue)
        found: list[Reason | None] = []
        if why.gate == "predicate" and cause == Cause.NODE_ROOM:
            found += [self._nomination_remark(job, why)]
        if why.gate == "enqueue" and cause in _EXPLAINED[RESERVED.name] and "owners" not in names:
            found += [self._reservation_remark(None if cause == Cause.ADMISSION else limited, job, why)]
        if why.gate in ("enqueue", "queue") and cause in _LIMITED:
            found += [self._guarantee_remark(limited, why)]
        if job.key in self._resting and cause in _EXPLAINED[EVICTION_REFUSED.name]:
            found += [EVICTION_REFUSED({"until": rfc3339(self._resting[job.key])})]
        return list(filter(None, found))

    # --- nodes --------------------------------------------------------------------------------------------------------

    def _nomination_remark(self, job: Job, why: Waiting) -> Reason | None:
        """Return a remark with one job for which capacity is nominated on nodes that a pod could otherwise have.

        The remark continues to name the same job while that job has a nomination, because the others change from
        session to session.
        """
        task = next((task for task in job.pending() if task.key in why.pods[:1]), None)
        if task is None or not self._nominations.rows.size:
            return None
        owners = self._nominations.blocking_owners(task, self._framework.candidates(task).static.mask)
        if not owners:
            return None
        before = [_owner_in(one) for one in self._session.snapshot.waiting.get(job.key, ())]
        return NOMINATED({"owner": next((owner for owner in before if owner in owners), owners[0])})

    @cached_property
    def _nominations(self) -> _Nominations:
        return _Nominations(self._session)

    # --- queues -------------------------------------------------------------------------------------------------------

    def _reservation_remark(self, queue: Queue | None, job: Job, why: Waiting) -> Reason | None:
        """Return the reservations, of at least the job's priority, that limit a queue or (None) the cluster."""
        resources = tuple(why.reason.by_resource()) if isinstance(why.reason, Reason) else ()
        key = "" if queue is None else queue.name, job.priority, resources
        if key not in self._reserved:
            found = [hold for hold in self._admissions if self._counts(hold.owner, queue, job.priority)]
            self._reserved[key] = _of_owners(RESERVED, found, resources)
        return self._reserved[key]

    @cached_property
    def _admissions(self) -> list[Hold]:
        snapshot = self._session.snapshot
        found = admission_holds(snapshot.admissions, snapshot.groups, snapshot.settings.admission_timeout)
        return sorted(found, key=lambda hold: hold.owner)

    def _counts(self, owner: str, queue: Queue | None, priority: int) -> bool:
        session, index = self._session, self._session.jobs.index(owner)
        if index is None or session.jobs.priority[index] < priority:
            return False
        return queue is None or queue in session.lineage(session.job(index).queue)

    def _guarantee_remark(self, queue: Queue, why: Waiting) -> Reason | None:
        """Return the guarantees of other queues that cause a queue's limit: no declared capability is as low."""
        session, above = self._session, self._session.lineage(queue)
        low = [
            limit.resource
            for limit in limits_of(why)
            if limit.is_short
            and not any(0 < one.record.capability.get(limit.resource, 0) <= limit.limit for one in above)
        ]
        others = [(hold, session.queues.get(hold.owner, queue)) for hold in (self._guarantees if low else ())]
        excluding = [hold for hold, other in others if other not in above and queue not in session.lineage(other)]
        return _of_owners(GUARANTEED, excluding, low)

    @cached_property
    def _guarantees(self) -> list[Hold]:
        found = [hold for plugin in self._framework.plugins for hold in plugin.holds()]
        return sorted((hold for hold in found if hold.kind == HoldKind.GUARANTEE), key=lambda hold: hold.owner)


class _Nominations:
    """Capacity for which pods wait until others have terminated.

    Stored in columns, since each waiting job is compared with all of it. ``rows`` are the nodes, one for each pod.
    """

    def __init__(self, session: Session) -> None:
        usage, waiting = session.nodes.usage, [job for job in session.views.jobs() if job.counts[TaskStatus.PIPELINED]]
        self._owners = sorted(job.key for job in waiting)
        place = {owner: number for number, owner in enumerate(self._owners)}
        self._pods = [task for job in waiting for task in job.tasks() if task.status == TaskStatus.PIPELINED]
        self.rows = np.array([task.node for task in self._pods], np.int64)
        self._owner = np.array([place[task.job.key] for task in self._pods], np.int64)
        self._without = usage.future_idle + usage.pipelined

    def blocking_owners(self, task: Task, mask: Mask) -> list[str]:
        """Return the other jobs, by key, with nominated capacity that a pod could use; ``mask``: its feasible nodes."""
        capacity = self._without
        if task.job.key in self._owners:  # a job is not held up by its own nominations
            capacity = capacity.copy()
            for row in np.flatnonzero(self._owner == self._owners.index(task.job.key)).tolist():
                capacity[:, self._pods[row].node] -= self._pods[row].request
        useful = fits(task.floor, capacity[:, self.rows]) & mask[self.rows]
        found = [self._owners[number] for number in np.unique(self._owner[useful]).tolist()]
        return [owner for owner in found if owner != task.job.key]


def _owner_in(why: Waiting) -> str:
    """Return the job named by a remark on nominated capacity; empty for another reason."""
    reason = why.reason
    return dict(reason.names).get("owner", "") if isinstance(reason, Reason) and reason.code == NOMINATED.name else ""


def _of_owners(code: ReasonCode, holds: Iterable[Hold], resources: Sequence[str]) -> Reason | None:
    """Return a remark on the holds of some resources: owners, amounts and end; None if there are none."""
    held = [hold for hold in holds if hold.resources.keys() & set(resources)]
    if not held:
        return None
    sums = [(name, sum(hold.resources.get(name, 0) for hold in held)) for name in sorted(set(resources))]
    amounts: list[Amount] = [("held", name, amount) for name, amount in sums if amount]
    until = max(hold.until for hold in held)
    names = {"owners": some([hold.owner for hold in held])}
    return code({**names, "until": rfc3339(until)} if until else names, amounts)

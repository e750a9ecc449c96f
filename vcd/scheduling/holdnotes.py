"""Name the owners of live holds to the jobs that could use what is held (docs/laws.md, law 8).

After the last action, each job that waits is compared with the holds of the session: capacity on nodes that is
nominated for other jobs, reservations of admitted groups without pods, unused guarantees of other queues, and the job's
own pause after a refused eviction. A note is a remark: it comes after the reasons why the job waits, and changes no
cause, metric or decision. It names a few owners and no pods, so that it stays the same as long as the holds last.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from vcd.model.events import Waiting
from vcd.model.reasons import Amount, Cause, Reason, ReasonCode
from vcd.model.status import TaskStatus
from vcd.model.words import rfc3339, some
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.framework.reasons import cause_of
from vcd.scheduling.framework.registry import limits_of
from vcd.scheduling.search.parts import Mask
from vcd.scheduling.session.holds import state_holds
from vcd.scheduling.session.nodes import fits
from vcd.scheduling.session.session import ROOT_QUEUE, Session
from vcd.scheduling.session.views import Job, Task
from vcd.state.backoff import resting_preemptors
from vcd.state.holds import Hold, HoldKind

HELD: Final = "held"
"""The gate of these notes."""
NOMINATED: Final = ReasonCode(
    "held-nominated", Cause.LEAVING, "capacity on {nodes} is nominated for {owners}", remark=True
)
RESERVED: Final = ReasonCode(
    "held-reserved", Cause.ADMISSION, "{owners} admitted without pods, with resources reserved", remark=True
)
GUARANTEED: Final = ReasonCode(
    "held-guaranteed", Cause.OTHERS_GUARANTEE, "the unused guarantee of {owners} counts against the limit", remark=True
)
EVICTION_REFUSED: Final = ReasonCode(
    "eviction-refused",
    Cause.OUTSIDE,
    "the API server refused an eviction for it; other pods are evicted at {until} at the earliest",
    remark=True,
)
_NAMED = 3
_OF_QUEUE = (Cause.QUEUE_CAPABILITY, Cause.PARENT_LIMIT, Cause.QUEUE_DESERVED, Cause.OTHERS_GUARANTEE)


def note_holds(framework: Framework) -> None:
    """Note on each job that waits which holds of others keep what it could use."""
    session, notes = framework.session, _HoldNotes(framework)
    resting = resting_preemptors(session.backing_off.values(), session.now)
    for job in session.views.jobs():
        if not (job.why and (job.counts[TaskStatus.PENDING] or job.is_pending())):
            continue
        found = dict.fromkeys(note for why in job.why if (note := notes.of(job, why)) is not None)
        if job.key in resting:
            found[EVICTION_REFUSED({"until": rfc3339(resting[job.key])})] = None
        for note in found:
            job.note(HELD, "", note)


class _HoldNotes:
    """The holds of a session at its end, each kind found when it is first needed."""

    def __init__(self, framework: Framework) -> None:
        self._framework = framework
        self._session = framework.session
        self._reserved: dict[tuple[int, str, tuple[str, ...]], Reason | None] = {}

    def of(self, job: Job, why: Waiting) -> Reason | None:
        """Return the holds behind a reason of a job, None if there are none."""
        cause = cause_of(why)
        if why.gate == "predicate" and cause == Cause.NODE_ROOM and self._nominated:
            return self._on_nodes(job, why.pods[:1])
        if why.gate == "enqueue" and cause in (Cause.ADMISSION, *_OF_QUEUE) and self._admitted:
            found = self._reservations(job, cause)
            if found is not None:
                return found
        if why.gate in ("enqueue", "queue") and cause in (Cause.QUEUE_CAPABILITY, Cause.PARENT_LIMIT):
            return self._guarantees(job, why)
        return None

    # --- nodes --------------------------------------------------------------------------------------------------------

    @cached_property
    def _holds(self) -> list[Hold]:
        return sorted(state_holds(self._session), key=lambda hold: (hold.owner, hold.subject, hold.node))

    @cached_property
    def _nominated(self) -> _Nominated | None:
        """The nominations that take part of a node's capacity; None if there are none."""
        pipelined, row_of = self._session.nodes.usage.pipelined.any(axis=0), self._session.nodes.facts.row_of
        if not pipelined.any():
            return None
        taking = np.flatnonzero(pipelined).tolist()
        names = {self._session.nodes.facts.names[row] for row in taking}
        holds = [hold for hold in self._holds if hold.kind == HoldKind.NOMINATION and hold.node in names]
        return _Nominated(self._session, holds, [row_of[hold.node] for hold in holds]) if holds else None

    def _on_nodes(self, job: Job, pods: Sequence[str]) -> Reason | None:
        """Return the nominations without which one of the nodes has capacity for the pod of a job."""
        task = next((task for task in job.pending() if task.key in pods), None)
        if task is None or self._nominated is None:
            return None
        return self._nominated.useful_to(job, task, self._framework.candidates(task).static.mask)

    # --- queues -------------------------------------------------------------------------------------------------------

    @cached_property
    def _admitted(self) -> list[Hold]:
        return [hold for hold in self._holds if hold.kind == HoldKind.ADMISSION]

    def _reservations(self, job: Job, cause: str) -> Reason | None:
        """Return the reservations that count against the limit of a group that is not admitted: those of its queue, of
        the queues with the same parent, or of all."""
        asked = tuple(sorted(job.record.min_resources or ()))
        key = job.queue.index, cause, asked
        if key not in self._reserved:
            found = [hold for hold in self._admitted if hold.resources.keys() & set(asked)]
            found = [hold for hold in found if hold.owner != job.key and self._counts(hold.owner, job, cause)]
            ends = [hold.until for hold in found if hold.until]
            names = {"owners": _are(sorted(hold.owner for hold in found))}
            until = {"until": rfc3339(max(ends))} if ends else {}
            self._reserved[key] = RESERVED({**names, **until}, _sums(found, asked)) if found else None
        return self._reserved[key]

    def _counts(self, owner: str, job: Job, cause: str) -> bool:
        session, index = self._session, self._session.jobs.index(owner)
        if index is None:
            return False
        queue = session.job(index).queue
        if cause == Cause.ADMISSION or queue is job.queue:
            return True
        shared = {one.name for one in session.lineage(queue)} - {ROOT_QUEUE}
        return cause == Cause.PARENT_LIMIT and any(one.name in shared for one in session.lineage(job.queue))

    @cached_property
    def _guaranteed(self) -> list[Hold]:
        found = [hold for plugin in self._framework.plugins for hold in plugin.holds()]
        return sorted((hold for hold in found if hold.kind == HoldKind.GUARANTEE), key=lambda hold: hold.owner)

    def _guarantees(self, job: Job, why: Waiting) -> Reason | None:
        """Return the guarantees of other queues that make a limit: no capability that is stated is as low."""
        lineage = self._session.lineage(job.queue)
        low = [
            limit.resource
            for limit in limits_of(why)
            if limit.is_short
            and not any(0 < one.record.capability.get(limit.resource, 0) <= limit.limit for one in lineage)
        ]
        if not low:
            return None
        own = {queue.name for queue in lineage}
        held = [hold for hold in self._guaranteed if hold.owner not in own and hold.resources.keys() & set(low)]
        names = [f"queue {hold.owner}" for hold in held]
        return GUARANTEED({"owners": some(names, _NAMED)}, _sums(held, low)) if held else None


class _Nominated:
    """Nominations as columns, so that a look for each job that waits does not go through all of them."""

    def __init__(self, session: Session, holds: Sequence[Hold], rows: Sequence[int]) -> None:
        self._resources = session.nodes.resources
        self._names = session.nodes.facts.names
        self._owners = sorted({hold.owner for hold in holds})
        place = {owner: number for number, owner in enumerate(self._owners)}
        self._owner = np.array([place[hold.owner] for hold in holds])
        self._place = place
        self.rows, self._node = np.unique(np.array(rows), return_inverse=True)
        column_of = session.nodes.column_of
        self._held = np.zeros((len(self._resources), len(holds)), np.int64)
        for number, hold in enumerate(holds):
            for name, amount in hold.resources.items():
                self._held[column_of[name], number] = amount
        usage = session.nodes.usage
        self._most = usage.future_idle[:, self.rows] + usage.pipelined[:, self.rows]

    def useful_to(self, job: Job, task: Task, mask: Mask) -> Reason | None:
        """Return the nominations of others on the nodes that would have capacity for a task if nothing was nominated
        there but for its own job; ``mask`` has the nodes that it may be on."""
        most, others = self._most, self._owner != self._place.get(job.key, -1)
        if not others.all():
            own = np.zeros_like(most)
            np.add.at(own.T, self._node[~others], self._held[:, ~others].T)
            most = most - own
        useful = (fits(task.floor, most) & mask[self.rows])[self._node] & others
        if not useful.any():
            return None
        nodes = [self._names[row] for row in self.rows[np.unique(self._node[useful])].tolist()]
        owners = [self._owners[number] for number in np.unique(self._owner[useful]).tolist()]
        sums = self._held[:, useful].sum(axis=1)
        asked = (task.request > 0) & (sums > 0)
        amounts = [("held", self._resources[column], int(sums[column])) for column in np.flatnonzero(asked).tolist()]
        return NOMINATED({"nodes": some(nodes, _NAMED), "owners": some(owners, _NAMED)}, amounts)


def _are(owners: list[str]) -> str:
    return f"{some(owners, _NAMED)} {'is' if len(owners) == 1 else 'are'}"


def _sums(holds: Iterable[Hold], resources: Iterable[str]) -> list[Amount]:
    """Return what is held of some resources together."""
    held = list(holds)
    sums = ((name, sum(hold.resources.get(name, 0) for hold in held)) for name in sorted(set(resources)))
    return [("held", name, amount) for name, amount in sums if amount]

"""capacity's accounts: what each queue deserves and its limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vcd.model.status import READY_STATUSES, TaskStatus
from vcd.scheduling.framework.ledger import QueueLedger
from vcd.scheduling.framework.queueaccounts import QueueAccount, Resources
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.records import QUEUE_ADMISSION_GATE, has_foreign_gate, opts_into_queue_gate

_PENDING = int(TaskStatus.PENDING)
_PLACED = [int(status) for status in (*READY_STATUSES, TaskStatus.PIPELINED)]


class Account(QueueAccount):
    """One queue's account with its limits.

    ``real_capability`` is the capability less other queues' reserved guarantees. ``limits`` is what placements may not
    exceed. ``reserved`` is the quota of pods whose scheduling gate was removed and that have no node yet.
    """

    lineage: tuple[Account, ...]
    capability: list[int]

    def __init__(self, queue: Queue, resources: Resources) -> None:
        record = queue.record
        super().__init__(queue, resources.amounts(record.guarantee), resources.capability(record.capability))
        self.parent: Account | None = None
        self.children: list[Account] = []
        self.deserved = resources.amounts(record.deserved)
        self.real_capability = self.limits = self.capability
        self.reserved: list[int] | None = None
        self.wish: list[int] | None = None

    def takes_work(self, barred: Mapping[str, str]) -> bool:
        """Return whether pods of the queue, or of one below it, may be placed. ``barred``: misconfigured queues."""
        if self.children:
            return any(child.takes_work(barred) for child in self.children)
        return self.queue.is_open and self.name not in barred

    def settle(self, resources: Resources) -> None:
        """Compute derived fields; call it when deserved, guarantee and real capability are final."""
        record = self.queue.record
        named = {*record.deserved, *record.guarantee}
        self.deserved = [max(pair) for pair in zip(self.deserved, self.guarantee, strict=True)]
        self.guaranteed = tuple((column, amount) for column, amount in enumerate(self.guarantee) if amount > 0)
        self.entitled = tuple((column, amount) for column, amount in enumerate(self.deserved) if amount > 0)
        self.deserves_any = any(column != resources.pods for column, _ in self.entitled)
        # a scalar that is named with 0 is deserved none of; cpu and memory of 0 count as not named
        self.claims = tuple(
            (column, self.deserved[column])
            for column in resources.compared
            if self.deserved[column] > 0 or (column > 1 and resources.names[column] in named)
        )
        self.limits = list(self.real_capability)
        self.limits[resources.pods] = self.capability[resources.pods]  # guarantees reserve no number of pods

    @property
    def share(self) -> float:
        """The largest allocated/deserved; 1 for a queue that deserves nothing, so that it comes after the others."""
        if not self.deserves_any:
            return 1.0
        allocated = self.allocated
        return max([allocated[column] / deserved for column, deserved in self.entitled])

    @property
    def borrows(self) -> bool:
        """Whether placing ``wish`` would be borrowing, so that another queue could reclaim it at once."""
        wish = self.wish
        if wish is None:
            return False
        claimed = [(column, deserved) for column, deserved in self.claims if wish[column]]
        return not claimed or any(self.allocated[column] + wish[column] > deserved for column, deserved in claimed)

    def surplus(self) -> list[int]:
        """Return the most that reclaim could take from a leaf; zero if the leaf holds at most what it deserves."""
        held, claims = self.allocated, dict(self.claims)
        has_claimed = any(held[column] for column in claims)
        if self.children or (has_claimed and all(held[column] <= deserved for column, deserved in self.claims)):
            return [0] * len(held)
        return [max(amount - claims.get(column, 0), 0) for column, amount in enumerate(held)]


class Reservations:
    """Quota of pods whose scheduling gate was removed, until they have a node.

    See Volcano ``docs/design/scheduling-gates-queue-admission.md``.
    """

    def __init__(self, accounts: list[Account]) -> None:
        self._accounts = accounts
        self._holding: set[int] = set()
        self._known: set[int] = set()

    def open(self, session: Session) -> None:
        """Reserve for pods whose gate was removed in earlier sessions, or is being removed."""
        lifting = session.snapshot.lifting
        tasks = session.snapshot.tasks
        for row in np.flatnonzero((session.job_of_row >= 0) & (tasks.status == _PENDING)).tolist():
            pod = tasks.pods[row]
            if pod is None or QUEUE_ADMISSION_GATE not in pod.metadata.annotations:
                continue
            if not pod.spec.scheduling_gates or tasks.keys[row] in lifting:
                self.reserve(session.task(row))

    def holds(self, task: Task) -> bool:
        """Return whether a task has reserved quota."""
        return task.row in self._holding

    def reserve(self, task: Task) -> None:
        """Reserve quota for a task with the annotation, unless it waits for something other than its queue."""
        if task.unsupported or has_foreign_gate(task.shape.spec) or not opts_into_queue_gate(task.pod):
            return
        if task.row not in self._holding:
            self._known.add(task.row)
            self._holding.add(task.row)
            self._change(task, 1)

    def moved(self, task: Task, sign: int) -> None:
        """Release a task's reservation when it is placed (1); reserve again when its placement is rolled back (-1)."""
        if sign > 0 and task.row in self._holding:
            self._holding.remove(task.row)
            self._change(task, -1)
        elif sign < 0 and task.row in self._known and task.status == _PENDING:
            self.reserve(task)

    def _change(self, task: Task, sign: int) -> None:
        for account in self._accounts[task.job.queue.index].lineage:
            before = account.reserved or [0] * len(task.amounts)
            account.reserved = [have + sign * amount for have, amount in zip(before, task.amounts, strict=True)]


def set_flat_limits(ledger: QueueLedger[Account], resources: Resources) -> None:
    """Set real capabilities without a hierarchy: total less the others' guarantees, at most capability.

    Deserved is limited to it.
    """
    for account, left in zip(ledger.accounts, ledger.left_to_each(resources.total), strict=True):
        account.real_capability = [min(pair) for pair in zip(left, account.capability, strict=True)]
        account.deserved = [min(pair) for pair in zip(account.deserved, account.real_capability, strict=True)]


def set_wishes(accounts: list[Account], session: Session) -> bool:
    """Set the wishes of queues if groups that lost tasks to evictions are pending; return whether there are any.

    Queues that would only borrow then come after the queues for which these tasks were evicted (Volcano #4947).
    A job's wish is the rest of its minimum, or one task, by the mean of its pending tasks. A queue's wish is the
    largest of its evicted jobs' wishes, else the smallest of all its pending jobs'.
    """
    jobs = session.jobs
    counts = jobs.counts
    found = [at for key in sorted(session.snapshot.evicted) if (at := jobs.index(key)) is not None]
    evicted = np.zeros(len(jobs), np.bool_)
    evicted[found] = True
    waits = counts[:, _PENDING] > 0
    if not (evicted & waits).any():
        return False
    for chosen, reduce in ((waits, np.minimum.reduceat), (waits & evicted, np.maximum.reduceat)):
        rows = np.flatnonzero(chosen)
        pending = counts[rows, _PENDING]
        needed = np.clip(jobs.min_member[rows] - counts[rows][:, _PLACED].sum(axis=1), 1, pending)
        whole, rest = np.divmod(jobs.pending[rows], pending[:, None])
        wishes = whole * needed[:, None] + rest * needed[:, None] // pending[:, None]
        order = np.argsort(jobs.queue[rows], kind="stable")
        indices, starts = np.unique(jobs.queue[rows][order], return_index=True)
        for index, wish in zip(indices.tolist(), reduce(wishes[order], starts, axis=0).tolist(), strict=True):
            accounts[index].wish = wish
    return True


def request_of(tasks: list[Task]) -> Sequence[int]:
    """Return what tasks request together."""
    if len(tasks) == 1:
        return tasks[0].amounts
    return [sum(column) for column in zip(*[task.amounts for task in tasks], strict=True)]

"""capacity's accounts: deserved, guarantee, capability and allocated resources of each queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vcd.model.requests import LARGEST_SUM
from vcd.model.status import READY_STATUSES, TaskStatus
from vcd.scheduling.framework.shares import above_capability, reserved_guarantee, without_limit
from vcd.scheduling.session.jobs import elastic, inqueue_by_priority
from vcd.scheduling.session.queues import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.groups import GroupColumns
from vcd.state.records import QUEUE_ADMISSION_GATE, has_foreign_gate, opts_into_queue_gate

UNLIMITED = 1 << 62
"""A capability without a limit. Sums of requests are far smaller."""
_PENDING = int(TaskStatus.PENDING)
_PLACED = [int(status) for status in (*READY_STATUSES, TaskStatus.PIPELINED)]


class Resources:
    """The session's resources by column. ``pods``, cpu and memory (columns 0 and 1) have special rules."""

    def __init__(self, session: Session) -> None:
        self.names = session.nodes.resources
        self.width = len(self.names)
        self.column_of = session.nodes.column_of
        self.pods = self.column_of["pods"]
        self.total: list[int] = session.nodes.total.tolist()
        self.compared = tuple(column for column in range(self.width) if column != self.pods)
        """The columns that quotas compare: all but the number of pods, as in Volcano."""

    def amounts(self, values: Mapping[str, int], default: int = 0) -> list[int]:
        """Return quantities by name as integers by column."""
        result = [default] * self.width
        for name, value in values.items():
            result[self.column_of[name]] = value
        return result

    def capability(self, values: Mapping[str, int]) -> list[int]:
        """Return a capability. A resource that is not named is unlimited, and cpu or memory of 0 (as in Volcano)."""
        result = self.amounts(values, UNLIMITED)
        for column in (0, 1):
            if result[column] <= 0:
                result[column] = UNLIMITED
        return result


class Account:
    """One queue's account; quantities are integers by column.

    ``chain`` is the account itself, its parent's, and so on up to the root's (only itself if queues are flat).
    ``counted_guarantee`` is the reserved portion of the guarantee. ``real_capability`` is the capability less other
    queues' reserved guarantees. ``limits`` is what placements may not exceed.
    ``elastic`` is what jobs hold above their minimum. ``inqueue`` is what admitted groups may still take, by group
    priority. ``reserved`` is the quota of pods whose scheduling gate was removed and that have no node yet.
    """

    def __init__(self, queue: Queue, resources: Resources) -> None:
        record = queue.record
        self.queue = queue
        self.name = queue.name
        self.parent: Account | None = None
        self.children: list[Account] = []
        self.chain: tuple[Account, ...] = (self,)
        self.guarantee = self.counted_guarantee = resources.amounts(record.guarantee)
        self.deserved = resources.amounts(record.deserved)
        self.capability = resources.capability(record.capability)
        self.real_capability = self.limits = self.capability
        self.allocated = [0] * resources.width
        self.request = [0] * resources.width
        self.elastic = [0] * resources.width
        self.reserved: list[int] | None = None
        self.inqueue: dict[int, list[int]] = {}
        self.wish: list[int] | None = None

    def takes_work(self, barred: Mapping[str, str]) -> bool:
        """Return whether pods of the queue, or of one below it, may be placed. ``barred``: misconfigured queues."""
        if self.children:
            return any(child.takes_work(barred) for child in self.children)
        return self.queue.is_open and self.name not in barred

    def own(self) -> list[int]:
        """Return what the queue itself has allocated, without the queues below it."""
        below = [child.allocated for child in self.children]
        return [have - sum(others) for have, *others in zip(self.allocated, *below, strict=True)]

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

    def ahead(self, priority: int) -> list[int]:
        """Return what admitted groups of at least ``priority`` may still take."""
        rows = [amounts for known, amounts in self.inqueue.items() if known >= priority]
        if len(rows) == 1:
            return rows[0]
        return _sum(*rows) if rows else [0] * len(self.allocated)

    def reserve(self, amounts: list[int], priority: int) -> None:
        """Count an admitted group."""
        before = self.inqueue.get(priority)
        if before is None:
            self.inqueue[priority] = list(amounts)
        else:
            self.inqueue[priority] = _sum(before, amounts)

    def inqueue_sum(self) -> list[int]:
        """Return what all admitted groups may still take."""
        return _sum([0] * len(self.allocated), *self.inqueue.values())


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
        for account in self._accounts[task.job.queue.index].chain:
            before = account.reserved or [0] * len(task.amounts)
            account.reserved = [have + sign * amount for have, amount in zip(before, task.amounts, strict=True)]


def contradictions(accounts: list[Account], resources: Resources) -> list[tuple[str, str]]:
    """Return queues whose own capability is below what they deserve or are guaranteed (Volcano #4292), or limits
    nothing, and why.

    They continue; a capability that limits something applies.
    """
    found = []
    for account in accounts:
        stated = {"deserved": account.deserved, "guarantee.resource": account.guarantee}
        above = above_capability(stated, account.capability, resources.names)
        found += [(account.name, text) for text in (*above, *without_limit(account.queue.record.capability))]
    return found


def count_guarantees(accounts: list[Account], barred: Mapping[str, str], as_volcano: bool) -> None:
    """Set the reserved portions of guarantees, once allocated is known; all of the guarantee with Volcano's formula."""
    for account in () if as_volcano else accounts:
        most, held = account.capability, account.allocated
        account.counted_guarantee = reserved_guarantee(account.guarantee, most, held, account.takes_work(barred))


def set_flat_limits(accounts: list[Account], resources: Resources) -> None:
    """Set real capabilities without a hierarchy: total less the others' guarantees, at most capability.

    Deserved is limited to it.
    """
    counted = [sum(column) for column in zip(*[account.counted_guarantee for account in accounts], strict=True)]
    for account in accounts:
        account.real_capability = [
            min(max(total - guarantees, 0) + own, most)
            for total, guarantees, own, most in zip(
                resources.total, counted, account.counted_guarantee, account.capability, strict=True
            )
        ]
        account.deserved = [min(pair) for pair in zip(account.deserved, account.real_capability, strict=True)]


def fill(accounts: list[Account], session: Session) -> None:
    """Add up jobs, and pods whose group was deleted. Each account includes its descendants."""
    jobs = session.jobs
    sums = (jobs.sums(of).tolist() for of in ("allocated", "pending", elastic))
    for own, allocated, pending, above in zip(accounts, *sums, strict=True):
        for account in own.chain:
            account.allocated = _sum(account.allocated, allocated)
            account.request = _sum(account.request, allocated, pending)
            account.elastic = _sum(account.elastic, above)
    orphans = session.orphans
    for index in sorted(set(orphans.queues.tolist())):
        amounts = orphans.allocated[index].tolist()
        for account in accounts[index].chain:
            account.allocated = _sum(account.allocated, amounts)
            account.request = _sum(account.request, amounts)


def fill_reservations(accounts: list[Account], jobs: GroupColumns) -> None:
    """Add up what admitted groups may still take, along the tree."""
    reserved = inqueue_by_priority(jobs, len(accounts))
    priorities = jobs.priorities.tolist()
    for index, rank in np.argwhere(reserved.any(axis=2)).tolist():
        for account in accounts[index].chain:
            account.reserve(reserved[index, rank].tolist(), priorities[rank])


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


def _sum(*rows: list[int]) -> list[int]:
    return [min(sum(column), LARGEST_SUM) for column in zip(*rows, strict=True)]

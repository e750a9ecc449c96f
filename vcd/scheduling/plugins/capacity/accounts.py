"""capacity's accounts: what each queue deserves, is guaranteed, may have at most, and has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vcd.model.quantity import format_resource
from vcd.model.requests import LARGEST_SUM
from vcd.model.status import READY_STATUSES, TaskStatus
from vcd.scheduling.framework.shares import reserved_guarantee
from vcd.scheduling.session.jobs import elastic, inqueue_by_priority
from vcd.scheduling.session.queues import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.groups import GroupColumns
from vcd.state.records import QUEUE_ADMISSION_GATE, has_foreign_gate, opts_into_queue_gate

UNLIMITED = 1 << 62
"""A capability without a limit; no sum of requests comes near it."""
_PENDING = int(TaskStatus.PENDING)
_PLACED = [int(status) for status in (*READY_STATUSES, TaskStatus.PIPELINED)]


class Resources:
    """The session's resources by column; ``pods`` and the first two, cpu and memory, have rules of their own."""

    def __init__(self, session: Session) -> None:
        self.names = session.nodes.resources
        self.width = len(self.names)
        self.column_of = session.nodes.column_of
        self.pods = self.column_of["pods"]
        self.total: list[int] = session.nodes.total.tolist()
        self.compared = tuple(column for column in range(self.width) if column != self.pods)
        """The columns that quotas compare: Volcano leaves out the number of pods."""

    def amounts(self, values: Mapping[str, int], default: int = 0) -> list[int]:
        """Quantities by name as integers by column."""
        result = [default] * self.width
        for name, value in values.items():
            result[self.column_of[name]] = value
        return result

    def capability(self, values: Mapping[str, int]) -> list[int]:
        """What is not given is unlimited; so is cpu or memory of zero (Volcano's source)."""
        result = self.amounts(values, UNLIMITED)
        for column in (0, 1):
            if result[column] <= 0:
                result[column] = UNLIMITED
        return result


class Account:
    """One queue's account; amounts are integers by column.

    ``chain`` is the account itself, its parent's, and so on up to the root's (itself alone where queues are flat).
    ``kept`` is what other queues have to leave of the guarantee, ``real_capability`` what others' leave of the
    capability, ``limits`` what placements are held to.
    ``elastic`` is what jobs hold above their minimum, ``inqueue`` what admitted groups may still take, by the groups'
    priority; ``reserved`` what pods hold that the queue's scheduling gate let through and that have no node yet.
    """

    def __init__(self, queue: Queue, resources: Resources) -> None:
        record = queue.record
        self.queue = queue
        self.name = queue.name
        self.parent: Account | None = None
        self.children: list[Account] = []
        self.chain: tuple[Account, ...] = (self,)
        self.guarantee = self.kept = resources.amounts(record.guarantee)
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
        """Whether pods of the queue, or of one below it, could be placed; ``barred`` names misconfigured queues."""
        if self.children:
            return any(child.takes_work(barred) for child in self.children)
        return self.queue.is_open and self.name not in barred

    def own(self) -> list[int]:
        """Return what the queue has allocated without those below it."""
        below = [child.allocated for child in self.children]
        return [have - sum(others) for have, *others in zip(self.allocated, *below, strict=True)]

    def settle(self, resources: Resources) -> None:
        """Derive what the points ask for once deserved, guarantee and real capability are final."""
        record = self.queue.record
        named = {*record.deserved, *record.guarantee}
        self.deserved = [max(pair) for pair in zip(self.deserved, self.guarantee, strict=True)]
        self.guaranteed = tuple((column, amount) for column, amount in enumerate(self.guarantee) if amount > 0)
        self.entitled = tuple((column, amount) for column, amount in enumerate(self.deserved) if amount > 0)
        self.deserves_any = any(column != resources.pods for column, _ in self.entitled)
        # a scalar that is named with zero counts as deserved none of; cpu and memory of zero as not named
        self.claims = tuple(
            (column, self.deserved[column])
            for column in resources.compared
            if self.deserved[column] > 0 or (column > 1 and resources.names[column] in named)
        )
        self.limits = list(self.real_capability)
        self.limits[resources.pods] = self.capability[resources.pods]  # guarantees keep no places for pods

    @property
    def share(self) -> float:
        """The largest allocated/deserved; 1 where nothing is deserved, so that such a queue comes after the others."""
        if not self.deserves_any:
            return 1.0
        allocated = self.allocated
        return max([allocated[column] / deserved for column, deserved in self.entitled])

    @property
    def borrows(self) -> bool:
        """Whether what the queue wishes next could be reclaimed from it at once."""
        wish = self.wish
        if wish is None:
            return False
        claimed = [(column, deserved) for column, deserved in self.claims if wish[column]]
        return not claimed or any(self.allocated[column] + wish[column] > deserved for column, deserved in claimed)

    def surplus(self) -> list[int]:
        """What reclaim could take of a leaf at most; nothing where it holds some of what it deserves, and no more."""
        held, claims = self.allocated, dict(self.claims)
        has_claimed = any(held[column] for column in claims)
        if self.children or (has_claimed and all(held[column] <= deserved for column, deserved in self.claims)):
            return [0] * len(held)
        return [max(amount - claims.get(column, 0), 0) for column, amount in enumerate(held)]

    def ahead(self, priority: int) -> list[int]:
        """What admitted groups of at least a priority may still take."""
        rows = [amounts for known, amounts in self.inqueue.items() if known >= priority]
        if len(rows) == 1:
            return rows[0]
        return _sum(*rows) if rows else [0] * len(self.allocated)

    def reserve(self, amounts: list[int], priority: int) -> None:
        """An admitted group may take this much."""
        before = self.inqueue.get(priority)
        if before is None:
            self.inqueue[priority] = list(amounts)
        else:
            self.inqueue[priority] = _sum(before, amounts)

    def inqueue_sum(self) -> list[int]:
        """What all admitted groups may still take."""
        return _sum([0] * len(self.allocated), *self.inqueue.values())


class Reservations:
    """Pods whose queue's scheduling gate is lifted hold their quota from then until they have a node (Volcano
    ``docs/design/scheduling-gates-queue-admission.md``)."""

    def __init__(self, accounts: list[Account]) -> None:
        self._accounts = accounts
        self._holding: set[int] = set()
        self._known: set[int] = set()

    def open(self, session: Session) -> None:
        """Reserve for the pods that were let through in earlier cycles, or are being let through."""
        lifting = session.snapshot.lifting
        tasks = session.snapshot.tasks
        for row in np.flatnonzero((session.job_of_row >= 0) & (tasks.status == _PENDING)).tolist():
            pod = tasks.pods[row]
            if pod is None or QUEUE_ADMISSION_GATE not in pod.metadata.annotations:
                continue
            if not pod.spec.scheduling_gates or tasks.keys[row] in lifting:
                self.reserve(session.task(row))

    def holds(self, task: Task) -> bool:
        """Whether a task has its quota reserved."""
        return task.row in self._holding

    def reserve(self, task: Task) -> None:
        """Hold a task's quota where it is one of those; what waits for something else keeps it from nobody."""
        if task.unsupported or has_foreign_gate(task.shape.spec) or not opts_into_queue_gate(task.pod):
            return
        if task.row not in self._holding:
            self._known.add(task.row)
            self._holding.add(task.row)
            self._change(task, 1)

    def moved(self, task: Task, sign: int) -> None:
        """A task is counted where it is placed (1); one whose placement is undone (-1) holds its quota again."""
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
    """Queues that by their own capability can never have what they deserve or are guaranteed, and why
    (Volcano #4292). They are held to the capability, and go on."""
    found = []
    for account in accounts:
        for field, amounts in (("deserved", account.deserved), ("guarantee.resource", account.guarantee)):
            for column, (amount, most) in enumerate(zip(amounts, account.capability, strict=True)):
                if amount > most:
                    name = resources.names[column]
                    text = (
                        f"spec.{field} {name} {format_resource(name, amount)} is more than the "
                        f"{format_resource(name, most)} of spec.capability, which holds: raise that or lower this"
                    )
                    found.append((account.name, text))
    return found


def keep_guarantees(accounts: list[Account], barred: Mapping[str, str], as_volcano: bool) -> None:
    """Set what is kept of guarantees, once accounts know what they hold; all of it with Volcano's formula."""
    for account in accounts:
        takes_work = as_volcano or account.takes_work(barred)
        account.kept = reserved_guarantee(account.guarantee, account.allocated, takes_work)


def set_flat_limits(accounts: list[Account], resources: Resources) -> None:
    """Real capability of queues without a hierarchy: what others' guarantees leave of the cluster, up to capability.

    Nobody deserves more than that.
    """
    kept = [sum(column) for column in zip(*[account.kept for account in accounts], strict=True)]
    for account in accounts:
        account.real_capability = [
            min(max(total - guarantees, 0) + own, most)
            for total, guarantees, own, most in zip(
                resources.total, kept, account.kept, account.capability, strict=True
            )
        ]
        account.deserved = [min(pair) for pair in zip(account.deserved, account.real_capability, strict=True)]


def fill(accounts: list[Account], session: Session) -> None:
    """Sum up the jobs, and pods whose group is gone: each account holds its own queue's and its descendants'."""
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
    """Sum up what admitted groups may still take, along the tree."""
    reserved = inqueue_by_priority(jobs, len(accounts))
    priorities = jobs.priorities.tolist()
    for index, rank in np.argwhere(reserved.any(axis=2)).tolist():
        for account in accounts[index].chain:
            account.reserve(reserved[index, rank].tolist(), priorities[rank])


def mark_evicted(accounts: list[Account], session: Session) -> bool:
    """Whether groups wait that lost tasks to others; then accounts know their wishes, so that those who would only
    borrow come after those for whom it was taken (Volcano #4947).

    A job's wish is what it needs to go on: the rest of its minimum, or one task, by the mean of its pending tasks. A
    queue's is the largest of its evicted jobs', else the smallest of all its waiting jobs'.
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
    """What tasks ask for together."""
    if len(tasks) == 1:
        return tasks[0].amounts
    return [sum(column) for column in zip(*[task.amounts for task in tasks], strict=True)]


def _sum(*rows: list[int]) -> list[int]:
    return [min(sum(column), LARGEST_SUM) for column in zip(*rows, strict=True)]

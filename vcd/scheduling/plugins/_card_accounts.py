"""The accounts of all queues, made up from where pods are and what they ask for (seed 004 s.2.2.4.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vcd.model.objects import Object, Pod
from vcd.model.requests import CPU, MEMORY
from vcd.model.status import ALLOCATED_STATUSES, Phase, TaskStatus
from vcd.scheduling.jobs import has_gate
from vcd.scheduling.nodes import Ints
from vcd.scheduling.plugins._card_account import Account, add_to
from vcd.scheduling.plugins._card_nodes import NO_CARD, NodeCards
from vcd.scheduling.plugins._card_requests import (
    CARD_NAME,
    REQUEST,
    CardError,
    CardRequest,
    Names,
    card_request,
    read_request,
)
from vcd.scheduling.session import Session
from vcd.scheduling.views import Job, Task
from vcd.state.records import Shape

_ALLOCATED = tuple(int(status) for status in ALLOCATED_STATUSES)
_NOWHERE = -1


@dataclass(frozen=True)
class _Waiting:
    """Pending pods that ask for cards, counted by job and kind of request, in the order of jobs."""

    job: Ints
    kind: Ints
    count: Ints
    gated: npt.NDArray[np.bool_]


class Accounts:
    """The accounts of all queues of a session, and what its pods ask for.

    ``unlimited``: what asks for cards counts no cpu and memory (cardUnlimitedCpuMemory).
    """

    def __init__(self, session: Session, cards: NodeCards, unlimited: bool) -> None:
        self._session = session
        self._cards = cards
        self._unlimited = unlimited
        self._requests: dict[tuple[Shape, str | None, str | None], CardRequest] = {}
        self._kinds: list[CardRequest] = []
        self.held: list[tuple[int, str, int]] = []
        """What jobs hold as the session begins: job, card, amount."""
        self.queues = [Account(queue) for queue in session.queue_list]
        tasks = session.snapshot.tasks
        of_shape: npt.NDArray[np.bool_] = np.any(session.requests[:, cards.columns] > 0, axis=1)
        self._asks_cards = of_shape[tasks.shape] & (session.job_of_row >= 0)
        self._waiting = self._count_waiting()
        self._hold_cards()
        self._queue_cards()
        self._fill_basic()
        self._hold_leaving()

    # --- requests -----------------------------------------------------------------------------------------------------

    def request_of(self, task: Task) -> CardRequest:
        """What a task asks for."""
        own = task.pod.metadata.annotations.get(CARD_NAME)
        return self._request(task.shape, own, task.job.record.group.metadata.annotations.get(CARD_NAME))

    def _request(self, shape: Shape, own: str | None, inherited: str | None) -> CardRequest:
        key = (shape, own, inherited)
        found = self._requests.get(key)
        if found is None:
            requests = shape.requests
            uses_cards = any(requests.get(name, 0) > 0 for name in self._cards.resources)
            counted = not (self._unlimited and uses_cards)
            basic = (requests.get(CPU, 0), requests.get(MEMORY, 0)) if counted else (0, 0)
            found = self._requests[key] = card_request(requests, own, inherited, self._cards, basic)
        return found

    def charged(self, request: CardRequest, row: int) -> list[tuple[str, int]]:
        """What a pod on a node uses, by the node's card; by the first name where the node's card is not known."""
        used = []
        for ask in request.asks:
            card = self._cards.card_at(ask.resource, row) or (ask.names[0] if ask.named else None)
            if card is not None:
                used.append((card, ask.amount))
        return used

    def demand(self, job: Job) -> dict[Names, int]:
        """The cards that a group still wants: of its pods once there are any, of its annotation before. Raises
        CardError where that cannot be read."""
        if job.task_count:
            return self._sums(self._of_job(job.index))
        text = job.record.group.metadata.annotations.get(REQUEST)
        return {} if text is None else read_request(text)

    def reserved(self, job: Job) -> dict[Names, int]:
        """What an admitted group keeps for itself: its demand without pods that a scheduling gate holds, and nothing of
        a group that no node could hold."""
        if self._session.jobs.too_large[job.index]:
            return {}
        if not job.task_count:
            return self.demand(job)
        chosen = self._of_job(job.index)
        return self._sums(chosen[~self._waiting.gated[chosen]])

    def _of_job(self, job: int) -> Ints:
        first, last = np.searchsorted(self._waiting.job, [job, job + 1])
        return np.arange(first, last)

    def _sums(self, chosen: Ints) -> dict[Names, int]:
        sums: dict[Names, int] = {}
        pairs = zip(self._waiting.kind[chosen].tolist(), self._waiting.count[chosen].tolist(), strict=True)
        for kind, count in pairs:
            for names, amount in self._wanted(self._kinds[kind]):
                sums[names] = sums.get(names, 0) + amount * count
        return sums

    def _wanted(self, request: CardRequest) -> Iterator[tuple[Names, int]]:
        """What counts as demand: nothing of a pod that can have nothing, or that a nameless node may serve."""
        if request.refusal is None:
            for ask in request.asks:
                if ask.named or not self._cards.nameless[ask.resource].any():
                    yield ask.names, ask.amount

    def minimum(self, job: Job) -> tuple[int, int]:
        """A group's minimum of cpu and memory, as its queue counts them."""
        if self._unlimited and self._has_cards[job.index]:
            return 0, 0
        cpu, memory = self._session.jobs.min_resources[job.index, :2].tolist()
        return cpu, memory

    def waiting_of_jobs(self) -> Iterator[tuple[int, Names, int]]:
        """Job, names and amount of what is asked for and not placed as the session begins."""
        waiting = self._waiting
        for job, kind, count in zip(waiting.job.tolist(), waiting.kind.tolist(), waiting.count.tolist(), strict=True):
            for names, amount in self._wanted(self._kinds[kind]):
                yield job, names, amount * count

    def pod_of(self) -> dict[int, Pod]:
        """A pod that asks for cards, by job."""
        rows = np.flatnonzero(self._asks_cards)
        jobs, first = np.unique(self._session.job_of_row[rows], return_index=True)
        pods = self._session.snapshot.tasks.pods
        found = {job: pods[row] for job, row in zip(jobs.tolist(), rows[first].tolist(), strict=True)}
        return {job: pod for job, pod in found.items() if pod is not None}

    # --- filling ------------------------------------------------------------------------------------------------------

    def _count_waiting(self) -> _Waiting:
        session = self._session
        snapshot, tasks = session.snapshot, session.snapshot.tasks
        rows = np.flatnonzero(self._asks_cards & (tasks.status == TaskStatus.PENDING))
        texts: dict[str | None, int] = {None: 0}
        pods = tasks.pods
        own = np.array([texts.setdefault(_name_of(pods[row]), len(texts)) for row in rows.tolist()], np.int64)
        jobs, shapes = session.job_of_row[rows].astype(np.int64), tasks.shape[rows].astype(np.int64)
        distinct, inverse = np.unique(jobs, return_inverse=True)
        of_group = [_name_of(session.jobs.records[job].group) for job in distinct.tolist()]
        inherited = np.array([texts.setdefault(text, len(texts)) for text in of_group], np.int64)[inverse]
        count = len(texts)
        coded, kinds = np.unique((shapes * count + own) * count + inherited, return_inverse=True)
        known = list(texts)
        for code in coded.tolist():
            rest, group_text = divmod(code, count)
            number, own_text = divmod(rest, count)
            shape = snapshot.shapes[number]
            assert shape is not None
            self._kinds.append(self._request(shape, known[own_text], known[group_text]))
        gated = (session.shape_flags(has_gate) | session.nodes.too_large(session.requests))[shapes]
        pairs, counts = np.unique((jobs * max(1, len(coded)) + kinds) * 2 + gated, return_counts=True)
        rest_, flags = np.divmod(pairs, 2)
        job, kind = np.divmod(rest_, max(1, len(coded)))
        return _Waiting(job, kind, counts, flags.astype(np.bool_))

    def _hold_cards(self) -> None:
        """Allocated and elastic cards of queues, from where the pods are."""
        session, cards = self._session, self._cards
        tasks = session.snapshot.tasks
        rows = np.flatnonzero(self._asks_cards & np.isin(tasks.status, _ALLOCATED))
        jobs, nodes = session.job_of_row[rows].astype(np.int64), tasks.node[rows]
        there = nodes >= 0
        for resource, column in zip(cards.resources, cards.columns, strict=True):
            amounts = session.requests[tasks.shape[rows], column]
            codes = np.full(len(rows), NO_CARD, np.int32)
            codes[there] = cards.codes[resource][nodes[there]]
            self._hold(column, jobs, codes, amounts)
            for position in np.flatnonzero((codes == NO_CARD) & (amounts > 0)).tolist():
                self._hold_unknown(resource, int(rows[position]))
        for job, card, amount in self.held:
            allocated = self.queues[session.jobs.queue[job]].allocated
            allocated[card] = allocated.get(card, 0) + amount

    def _hold(self, column: int, jobs: Ints, codes: npt.NDArray[np.int32], amounts: Ints) -> None:
        known = (codes != NO_CARD) & (amounts > 0)
        width = max(1, len(self._cards.names))
        pairs, inverse = np.unique(jobs[known] * width + codes[known], return_inverse=True)
        sums = np.bincount(inverse, weights=amounts[known], minlength=len(pairs)).astype(np.int64)
        job, code = np.divmod(pairs, width)
        names = self._cards.names
        self.held += zip(job.tolist(), [names[number] for number in code.tolist()], sums.tolist(), strict=True)
        # what a job holds above its minimum is elastic; the minimum is taken off its cards in their order
        minimum = self._session.jobs.min_resources[job, column]
        before = np.cumsum(sums) - sums
        _, first = np.unique(job, return_index=True)
        starts = np.repeat(before[first], np.diff(np.append(first, len(job)))) if len(job) else before
        kept = np.clip(minimum - (before - starts), 0, sums)
        elastic = np.where(minimum > 0, sums - kept, 0)
        chosen = np.flatnonzero(elastic)
        for index in chosen.tolist():
            account = self.queues[self._session.jobs.queue[job[index]]]
            card = names[code[index]]
            account.elastic[card] = account.elastic.get(card, 0) + int(elastic[index])

    def _hold_unknown(self, resource: str, row: int) -> None:
        session = self._session
        job = int(session.job_of_row[row])
        shape = session.snapshot.shapes[session.snapshot.tasks.shape[row]]
        own = _name_of(session.snapshot.tasks.pods[row])
        assert shape is not None
        request = self._request(shape, own, _name_of(session.jobs.records[job].group))
        for ask in request.asks:
            if ask.resource == resource and ask.named:
                self.held.append((job, ask.names[0], ask.amount))

    def _hold_leaving(self) -> None:
        """What pods hold that are being deleted and still on a node."""
        session, tasks = self._session, self._session.snapshot.tasks
        leaving = (tasks.status == TaskStatus.RELEASING) & (tasks.node != _NOWHERE) & (session.job_of_row >= 0)
        for row in np.flatnonzero(leaving).tolist():
            job = int(session.job_of_row[row])
            shape = session.snapshot.shapes[tasks.shape[row]]
            assert shape is not None
            request = self._request(shape, _name_of(tasks.pods[row]), _name_of(session.jobs.records[job].group))
            account = self.queues[session.jobs.queue[job]]
            account.basic_leaving = [
                have + more for have, more in zip(account.basic_leaving, request.basic, strict=True)
            ]
            for card, amount in self.charged(request, int(tasks.node[row])):
                account.leaving[card] = account.leaving.get(card, 0) + amount

    def _queue_cards(self) -> None:
        """Requests and reservations of cards: who is admitted keeps what its pods, or its annotation, still want."""
        session, jobs, waiting = self._session, self._session.jobs, self._waiting
        for account in self.queues:
            account.request = {(card,): amount for card, amount in account.allocated.items()}
        allocated_tasks = jobs.counts[:, list(_ALLOCATED)].sum(axis=1)
        runs = jobs.states_minimum & (jobs.phase == Phase.RUNNING) & (allocated_tasks >= jobs.min_member)
        keeps = (((jobs.phase == Phase.INQUEUE) | runs) & ~jobs.too_large)[waiting.job] & ~waiting.gated
        self._add_up(np.ones_like(keeps), "request")
        self._add_up(keeps, "inqueue")
        has_cards = np.bincount(session.job_of_row[self._asks_cards], minlength=len(jobs)) > 0
        has_cards |= (jobs.min_resources[:, self._cards.columns] > 0).any(axis=1)
        unborn = (jobs.counts.sum(axis=1) == 0) & ((jobs.phase == Phase.INQUEUE) | (jobs.phase == Phase.PENDING))
        for index in np.flatnonzero(unborn).tolist():
            text = jobs.records[index].group.metadata.annotations.get(REQUEST)
            if text is None:
                continue
            has_cards[index] = True
            if jobs.phase[index] == Phase.INQUEUE and not jobs.too_large[index]:
                self._reserve_annotated(index, text)
        self._has_cards = has_cards

    def _reserve_annotated(self, index: int, text: str) -> None:
        try:
            wanted = read_request(text)
        except CardError:
            return  # it was admitted before the annotation was broken; its pods will be asked one by one
        add_to(self.queues[self._session.jobs.queue[index]].inqueue, wanted)

    def _add_up(self, chosen: npt.NDArray[np.bool_], field: str) -> None:
        waiting, width = self._waiting, max(1, len(self._kinds))
        keys = self._session.jobs.queue[waiting.job].astype(np.int64) * width + waiting.kind
        pairs, inverse = np.unique(keys[chosen], return_inverse=True)
        counts = np.bincount(inverse, weights=waiting.count[chosen], minlength=len(pairs)).astype(np.int64)
        for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
            queue, kind = divmod(pair, width)
            sums: dict[Names, int] = getattr(self.queues[queue], field)
            add_to(sums, {names: amount * count for names, amount in self._wanted(self._kinds[kind])})

    def _fill_basic(self) -> None:
        """Cpu and memory of queues; the limit is the capability, else what the guarantees of all leave."""
        session, jobs = self._session, self._session.jobs
        allocated, pending, minimum, inqueue = (
            column[:, :2].copy() for column in (jobs.allocated, jobs.pending, jobs.min_resources, jobs.missing)
        )
        inqueue[~(jobs.states_minimum & (jobs.phase == Phase.INQUEUE))] = 0
        inqueue += session.reserved_by_running()[:, :2]
        elastic = np.maximum(allocated - minimum, 0)
        if self._unlimited:
            inqueue[self._has_cards] = 0
            elastic[self._has_cards] = 0
            allocated -= self._of_card_pods(_ALLOCATED)
            pending -= self._of_card_pods((int(TaskStatus.PENDING),))
        total = session.nodes.total[:2].tolist()
        reserved = [sum(account.guarantee[column] for account in self.queues) for column in range(2)]
        sums = [_by_queue(session, part) for part in (allocated, pending, inqueue, elastic)]
        for index, account in enumerate(self.queues):
            account.basic_allocated = sums[0][index]
            account.basic_request = [have + want for have, want in zip(sums[0][index], sums[1][index], strict=True)]
            account.basic_inqueue, account.basic_elastic = sums[2][index], sums[3][index]
            account.limit = [
                may or max(all_ - kept, 0) + own
                for may, all_, kept, own in zip(account.capability, total, reserved, account.guarantee, strict=True)
            ]

    def _of_card_pods(self, statuses: tuple[int, ...]) -> Ints:
        """Cpu and memory, by job, of pods that ask for cards."""
        session, tasks = self._session, self._session.snapshot.tasks
        rows = np.flatnonzero(self._asks_cards & np.isin(tasks.status, statuses))
        jobs, amounts = session.job_of_row[rows], session.requests[tasks.shape[rows]]
        count = len(session.jobs)
        return np.stack(
            [np.bincount(jobs, weights=amounts[:, column], minlength=count).astype(np.int64) for column in range(2)],
            axis=1,
        )


def _by_queue(session: Session, per_job: Ints) -> list[list[int]]:
    sums = np.zeros((len(session.queue_list), per_job.shape[1]), np.int64)
    np.add.at(sums, session.jobs.queue, per_job)
    result: list[list[int]] = sums.tolist()
    return result


def _name_of(obj: Object | None) -> str | None:
    return None if obj is None else obj.metadata.annotations.get(CARD_NAME)

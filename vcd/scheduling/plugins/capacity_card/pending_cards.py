"""Pending pods that request cards, and what their groups' minimum needs (docs/semantics/capacity-card.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from vcd.model.objects import Object
from vcd.model.status import READY_STATUSES, TaskStatus
from vcd.scheduling.plugins.capacity_card.card_annotations import CARD_NAME, Names
from vcd.scheduling.plugins.capacity_card.card_requests import CardRequest
from vcd.scheduling.plugins.capacity_card.node_cards import NodeCards
from vcd.scheduling.session.session import Session
from vcd.state.group_columns import scheduling_gated
from vcd.state.records import Shape
from vcd.state.sums import Ints, sums_before, sums_by, times

Mask = npt.NDArray[np.bool_]
RequestOf = Callable[[Shape, str | None, str | None], CardRequest]


class PendingCards:
    """Pending pods counted by job and kind of request, ordered by job and then by request, smallest first.

    The smallest requests come first because a minimum that does not state which pods it includes needs no more.

    Fields by card resource and entry, in thousandths: ``requested`` is the request of all pods. ``needed`` is the part
    that the group's minimum still lacks. ``reserved`` is the same without pods behind a scheduling gate or too large
    for every node. The minimum is what minResources states of the resource; if it states nothing, as many pods as
    minMember lacks, pods without cards first. ``uncreated`` is, by resource and job, what minResources states beyond
    the existing pods' requests, while the group has fewer pods than minMember.
    """

    def __init__(self, session: Session, cards: NodeCards, requests_cards: Mask, request_of: RequestOf) -> None:
        self._session = session
        self._cards = cards
        self.kinds: list[CardRequest] = []
        self._count(np.flatnonzero(requests_cards & (session.snapshot.tasks.status == TaskStatus.PENDING)), request_of)
        wanted = [dict(self._wanted(kind)) for kind in self.kinds]
        self._order([tuple((name, *demand) for name, demand in each.items()) for each in wanted])
        self.names: dict[str, list[Names]] = {}
        """By resource and kind, the acceptable cards."""
        self.requested: dict[str, Ints] = {}
        self.needed: dict[str, Ints] = {}
        self.reserved: dict[str, Ints] = {}
        self.uncreated: dict[str, Ints] = {}
        for resource, column in zip(cards.resources, cards.columns, strict=True):
            demands = [each.get(resource, ((), 0)) for each in wanted]
            self.names[resource] = [names for names, _ in demands]
            of_pod = np.array([amount for _, amount in demands], np.int64)[self.kind]
            self.requested[resource] = times(of_pod, self.count)
            self.needed[resource] = self._of_minimum(column, of_pod, np.zeros(len(self.job), np.bool_))
            self.reserved[resource] = self._of_minimum(column, of_pod, self.gated)
            self.uncreated[resource] = self._of_uncreated_pods(column, self.requested[resource])

    def of_job(self, job: int) -> slice:
        """Return the entries of a job."""
        first, last = np.searchsorted(self.job, [job, job + 1]).tolist()
        return slice(first, last)

    def demand_of_uncreated(self, job: int) -> Iterator[tuple[Names, int]]:
        """Yield what pods still to be created will request of a job's minimum: any card that existing pods name."""
        kinds = self.kind[self.of_job(job)].tolist()
        for resource, amounts in self.uncreated.items():
            if amounts[job]:
                first, *others = dict.fromkeys(names for kind in kinds if (names := self.names[resource][kind]))
                yield tuple(sorted({*first}.union(*others))) if others else first, int(amounts[job])

    def with_several_ways(self) -> list[int]:
        """Return jobs whose pods may accept different sets of cards."""
        jobs, entries = np.unique(self.job, return_counts=True)
        found: list[int] = jobs[(entries > 1) | (len(self.requested) > 1)].tolist()
        return found

    def of_jobs(self) -> Iterator[tuple[int, Names, int]]:
        """Yield (job, names, amount) of all requests."""
        for resource, amounts in self.requested.items():
            names = self.names[resource]
            for entry in np.flatnonzero(amounts).tolist():
                yield int(self.job[entry]), names[self.kind[entry]], int(amounts[entry])

    def _count(self, rows: Ints, request_of: RequestOf) -> None:
        session = self._session
        snapshot, tasks = session.snapshot, session.snapshot.tasks
        texts: dict[str | None, int] = {None: 0}
        pods = tasks.pods
        own = np.array([texts.setdefault(card_name(pods[row]), len(texts)) for row in rows.tolist()], np.int64)
        jobs, shapes = session.job_of_row[rows].astype(np.int64), tasks.shape[rows].astype(np.int64)
        distinct, inverse = np.unique(jobs, return_inverse=True)
        of_group = [card_name(session.jobs.records[job].group) for job in distinct.tolist()]
        inherited = np.array([texts.setdefault(text, len(texts)) for text in of_group], np.int64)[inverse]
        count = len(texts)
        coded, kinds = np.unique((shapes * count + own) * count + inherited, return_inverse=True)
        known = list(texts)
        for code in coded.tolist():
            rest, group_text = divmod(code, count)
            number, own_text = divmod(rest, count)
            shape = snapshot.shapes[number]
            assert shape is not None
            self.kinds.append(request_of(shape, known[own_text], known[group_text]))
        gated = scheduling_gated(session.snapshot, rows) | session.nodes.facts.too_large(session.requests)[shapes]
        width = max(1, len(coded))
        pairs, self.count = np.unique((jobs * width + kinds) * 2 + gated, return_counts=True)
        rest_, flags = np.divmod(pairs, 2)
        self.job, self.kind = np.divmod(rest_, width)
        self.gated: Mask = flags.astype(np.bool_)

    def _order(self, keys: Sequence[tuple[tuple[str, Names, int], ...]]) -> None:
        """Sort the entries. The order must not depend on the numbers of shapes."""
        least = sorted(dict.fromkeys(keys), key=lambda demands: (sum(demand[-1] for demand in demands), demands))
        rank = {key: place for place, key in enumerate(least)}
        ranks = np.array([rank[key] for key in keys], np.int64)[self.kind]
        order = np.lexsort((self.gated, ranks, self.job))
        self.job, self.kind = self.job[order], self.kind[order]
        self.count, self.gated = self.count[order], self.gated[order]

    def _wanted(self, request: CardRequest) -> Iterator[tuple[str, tuple[Names, int]]]:
        """Yield what counts as demand: not pods that cannot be served, or that a node of unknown model may serve."""
        if request.refusal is None:
            for demand in request.demands:
                if demand.named or not self._cards.has_nameless[demand.resource]:
                    yield demand.resource, (demand.names, demand.amount)

    def _of_uncreated_pods(self, column: int, of_entries: Ints) -> Ints:
        """Return by job what its stated minimum lacks beyond its pods' requests (``of_entries``).

        It counts for jobs with fewer pods than minMember, some of which request the resource.
        """
        jobs = self._session.jobs
        there = jobs.counts[:, list(READY_STATUSES)].sum(axis=1) + jobs.counts[:, TaskStatus.PENDING]
        requested = sums_by(self.job, of_entries, len(jobs))
        lacks = np.maximum(jobs.min_resources[:, column] - jobs.allocated[:, column], 0)
        waits = jobs.states_minimum & (there < jobs.min_member) & (requested > 0)
        result: Ints = np.where(waits, np.maximum(lacks - requested, 0), 0)
        return result

    def _of_minimum(self, column: int, of_pod: Ints, without: Mask) -> Ints:
        """Return each entry's part of its group's minimum; entries in ``without`` use up their part and get 0."""
        jobs, job = self._session.jobs, self.job
        stated = jobs.states_minimum & (jobs.min_resources[:, column] > 0)
        lacks = np.maximum(jobs.min_resources[:, column] - jobs.allocated[:, column], 0)
        waiting = sums_by(job, self.count, len(jobs))
        others = jobs.counts[:, list(READY_STATUSES)].sum(axis=1) + jobs.counts[:, TaskStatus.PENDING] - waiting
        pods = np.maximum(jobs.min_member - others, 0)
        count = np.where(without, 0, self.count)
        lacks = np.maximum(lacks - sums_by(job, times(of_pod, self.count - count), len(jobs)), 0)
        pods = np.maximum(pods - sums_by(job, self.count - count, len(jobs)), 0)
        requested = times(of_pod, count)
        by_amount = np.clip(lacks[job] - sums_before(job, requested), 0, requested)
        by_pods = times(of_pod, np.clip(pods[job] - sums_before(job, count), 0, count))
        result: Ints = np.where(stated[job], by_amount, by_pods)
        return result


def card_name(obj: Object | None) -> str | None:
    """Return the annotation of a pod or group that names cards."""
    return None if obj is None else obj.metadata.annotations.get(CARD_NAME)

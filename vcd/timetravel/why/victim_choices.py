"""The victim searches of a session: which pods were considered, and which plugins permitted or protected them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from vcd.diagnosis.funnel import Funnel
from vcd.model.diagnosis import FunnelLine
from vcd.model.status import TaskStatus
from vcd.model.wording import counted, quantities_in_words
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.order_positions import Precedence
from vcd.scheduling.framework.trace import PointQuestion, Trace, VictimSearch
from vcd.scheduling.framework.victims import rule_of
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.text.eviction_templates import EVICTIONS
from vcd.timetravel.history import History
from vcd.timetravel.queuestatistics import QueueStatistics, queue_statistics


class Offer(msgspec.Struct):
    """A possible victim.

    ``rank`` is its position in the order in which victims were offered (0: it was not offered, ``rule`` states why),
    ``place`` that among the pods that the plugins permitted (0: it is not among them). ``plugin`` protected it, by
    ``rule``; ``alone``: it would have been permitted, and was protected because of earlier victims. ``helps``: it holds
    some of what the node lacks.
    """

    task: Task
    rank: int = 0
    place: int = 0
    plugin: str = ""
    rule: str = ""
    alone: bool = False
    helps: bool = True


Offers = dict[str, Offer]
"""By the keys of the pods."""


class VictimQuestion(msgspec.Struct):
    """A victim search for the preemptor ``asker`` of ``job`` (None: for the whole gang), with the state at that time.

    ``offers`` by key in eviction order; ``figures`` of all queues; what the preemptor requested (``asked``) and what
    of it the node ``lacked``, as quantities; ``no_room`` why the preemptor's queue had no capacity, if so;
    ``differences`` why the first of two pods is evicted before the second. ``needed`` states why an eviction was
    necessary, with the ``funnel`` of the nodes then; ``elsewhere`` the outcome of searches on other nodes before.
    """

    job: Job
    asker: Task | None
    offers: Offers
    let_go: tuple[str, ...]
    figures: dict[str, QueueStatistics]
    asked: dict[str, str]
    lacked: dict[str, str]
    no_room: str = ""
    differences: dict[tuple[str, str], Precedence] = msgspec.field(default_factory=dict)
    needed: str = ""
    funnel: list[FunnelLine] = msgspec.field(default_factory=list)
    elsewhere: str = ""


class EvictedTask(msgspec.Struct, frozen=True):
    """A pod that a session evicts: the victim search that led to it, None if there was none, and the plugins that want
    it on another node."""

    task: Task
    question: VictimQuestion | None
    wanted_by: tuple[str, ...]


def evicted(
    history: History, number: int, pods: Collection[str], jobs: Collection[str]
) -> tuple[Session, dict[str, EvictedTask]]:
    """Decide a session again, and return those of ``pods`` that it evicts for some ``jobs``, by key."""
    trace = Trace(frozenset((*pods, *jobs)), note=_SearchMoment.of)
    _, session = history.rerun(number, trace=trace)
    status = session.snapshot.tasks.status
    found = {}
    for task, row, _ in trace.moves():
        gone = task.status == TaskStatus.RELEASING and status[task.row] in (TaskStatus.BOUND, TaskStatus.RUNNING)
        if row is None and gone and task.key in pods:
            wanted = [
                answer.plugin
                for question in trace.at("victim_tasks")
                for answer in question.answers
                if any(each.row == task.row for each in answer.answer or ())
            ]
            found[task.key] = EvictedTask(task, _question(session, trace, task), tuple(wanted))
    return session, found


def _question(session: Session, trace: Trace, task: Task) -> VictimQuestion | None:
    """Return the last victim search that chose a task."""
    searches = trace.searches
    last = next((at for at in range(len(searches) - 1, -1, -1) if task in searches[at].going), None)
    if last is None:
        return None
    search = searches[last]
    if not isinstance(search.asker, Task):  # bundles of victims are searched one after another for one gang
        same = [each for each in searches[: last + 1] if each.asker is search.asker]
        offers: Offers = {}
        for each in same:  # a job may be searched more than once, for different pods
            new = _offers(session, each, after=offers)
            offers |= {key: one for key, one in new.items() if one.place or not (key in offers and offers[key].place)}
        placed = sorted((offer for offer in offers.values() if offer.place), key=lambda offer: offer.place)
        for place, offer in enumerate(placed, 1):
            offer.place = place
        requested = session.amounts(search.asker.wanted.tolist())
        first = same[0].noted
        return VictimQuestion(
            search.job, None, offers, search.rounds[-1].leave, search.noted.figures, requested, {},
            needed=first.needed, funnel=first.funnel,
        )  # fmt: skip
    question = _of_node(session, search, search.asker, trace.questions[: search.asked])
    question.elsewhere = _earlier_searches(search, searches[:last])
    return question


def _of_node(session: Session, search: VictimSearch, asker: Task, before: Sequence[PointQuestion]) -> VictimQuestion:
    assert search.room is not None
    short = asker.floor > search.room
    offers = _offers(session, search)
    for offer in offers.values():
        offer.helps = not short.any() or bool((offer.task.request[short] > 0).any())
    offers |= {task.key: Offer(task, rule=why) for task, why in search.exempt}
    return VictimQuestion(
        asker.job,
        asker,
        offers,
        search.rounds[-1].leave,
        search.noted.figures,
        session.amounts(asker.request.tolist()),
        session.amounts(np.where(short, asker.request - search.room, 0).tolist()),
        _queue_refusal(asker, before),
        _differences(search),
        search.noted.needed,
        search.noted.funnel,
    )


class _SearchMoment(NamedTuple):
    """A session at the time of a victim search: the statistics of its queues, and why an eviction was necessary."""

    figures: dict[str, QueueStatistics]
    needed: str
    funnel: list[FunnelLine]

    @classmethod
    def of(cls, session: Session, asker: Any) -> _SearchMoment:
        """Record the present, for a task or the context of several."""
        tasks = (asker,) if isinstance(asker, Task) else asker.tasks
        if len({task.shape for task in tasks}) > 1:  # one funnel would not be valid for all
            return cls(queue_statistics(session), "", [])
        funnel = Funnel(session, tasks[0])
        return cls(queue_statistics(session), _why_needed(funnel, len(tasks)), funnel.lines())


def _why_needed(funnel: Funnel, missing: int) -> str:
    """Return why an eviction is necessary: ``the 3 nodes that it may use had no capacity; n7 had, and
    dedicated=x:NoSchedule keeps it out``. Resources of terminating pods count as free, those of pipelined pods as
    used."""
    allowed, freed = int(funnel.allowed.sum()), funnel.freed
    fits = int(freed[funnel.allowed].sum())
    if fits >= missing:
        return ""  # the queue's limit was the reason, or the positions of other pods
    nodes = EVICTIONS.sentence("usable", {"nodes": counted(allowed, "node")}, ["one" if allowed == 1 else ""])
    facts = {"nodes": nodes, "fits": f"{fits}", "missing": f"{missing}"}
    words = EVICTIONS.sentence("some capacity" if fits else "no capacity", facts)
    excluded = np.flatnonzero((freed > 0) & ~funnel.allowed)
    if len(excluded):
        row = int(excluded[freed[excluded].argmax()])
        clause = next(one for one in funnel.lasting if not one.passes[row])
        name = funnel.session.nodes.facts.names[row]
        others = f" and {counted(len(excluded) - 1, 'other')}" if len(excluded) > 1 else ""
        words += EVICTIONS.sentence("excluded", {"node": name, "others": others, "clause": clause.text})
    return words


def _earlier_searches(search: VictimSearch, before: Sequence[VictimSearch]) -> str:
    """Return the outcome of earlier searches on other nodes for the same task: how many pods each plugin protected."""
    tried = [each for each in before if each.asker is search.asker and each.node != search.node]
    nodes = {each.node for each in tried}
    protected = Counter(name for each in tried for name in each.rounds[-1].kept.values())
    if not nodes:
        return ""
    facts = ({"plugin": name, "count": f"{count}"} for name, count in protected.most_common())
    words = ", ".join(EVICTIONS.sentence("protected", one) for one in facts)
    searched = EVICTIONS.sentence("searched before", {"nodes": counted(len(nodes), "node")})
    return f"{searched} ({words})" if words else searched


def _queue_refusal(asker: Task, before: Sequence[PointQuestion]) -> str:
    """Return why the queue of a task had no capacity at its last check."""
    for point, asked, _, outcome in reversed(before):
        if point == "allocatable" and asked[1] is asker:
            return "" if outcome is None else f"{outcome[1].words} ({quantities_in_words(outcome[1].detail)})"
    return ""


def _offers(session: Session, search: VictimSearch, after: Offers | None = None) -> Offers:
    """Return the outcome of each possible victim of a search, after those of earlier searches for the same gang."""
    after, first, last = after or {}, search.rounds[0], search.rounds[-1]
    rules = {plugin.name: rule_of(plugin, search.point) for plugin in framework_of(session).plugins}
    offers = {task.key: Offer(task, rank) for rank, task in enumerate(first.tasks, len(after) + 1)}
    taken = sum(offer.place > 0 for offer in after.values())
    for place, task in enumerate((*search.going, *search.beside), taken + 1):
        offers[task.key].place = place
    for row_of, alone in ((last.kept, False), (search.spared, True)):
        for task in first.tasks:
            name = row_of.get(task.row)
            if name is not None:
                offer = offers[task.key]
                offer.plugin, offer.rule, offer.alone = name, rules.get(name) or "does not permit it", alone
    return offers


def _differences(search: VictimSearch) -> dict[tuple[str, str], Precedence]:
    """Return why each possible victim comes before each later one."""
    tasks = search.rounds[0].tasks
    standings = [search.standings[task.row] for task in tasks]
    indexed = all(each.number is not None for each in standings)
    gone = {task.row for task in search.going}
    return {
        (one.key, other.key): standings[place].before(standings[later], indexed=indexed)
        for place, one in enumerate(tasks)
        for later, other in enumerate(tasks[place + 1 :], place + 1)
        if one.row in gone or other.row in gone
    }

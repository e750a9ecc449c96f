"""Who was asked to go, and who was let go by whom: a session is run again, and each plugin is asked for itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from vcd.model.status import TaskStatus
from vcd.model.words import quantities_in_words
from vcd.scheduling.eviction.room import EvictionContext, choose_victims, immune_rows, placed_tasks
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.rules import Participants, plugin_of, victims_of_tier
from vcd.scheduling.framework.victims import Victims
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.state.records import index_in_name
from vcd.timetravel.figures import QueueFigures, queue_figures
from vcd.timetravel.history import Observer
from vcd.timetravel.why.orders import Precedence, goes_before


@dataclass(slots=True)
class Offer:
    """A pod that could have gone. ``rank`` is its place in the order in which it was offered (0: it was not, ``rule``
    says why), ``place`` that among those that the plugins let go (0: none of them). ``plugin`` spared it, by ``rule``;
    ``alone`` it would have gone: it was spared for what goes before it. ``helps``: it holds some of what the node
    lacks."""

    task: Task
    rank: int = 0
    place: int = 0
    plugin: str = ""
    rule: str = ""
    alone: bool = False
    helps: bool = True


Offers = dict[str, Offer]
"""By the keys of the pods."""


def offered(
    session: Session,
    point: str,
    asker: Any,
    tasks: list[Task],
    without: Plugin | None = None,
    before: Offers | None = None,
) -> tuple[Offers, tuple[str, ...]]:
    """What comes of asking about tasks at one of the victims' points, after those asked about ``before`` in the same
    search, and by which plugins' leave those go who may; ``without`` is not asked."""
    before = before or {}
    offers = {task.key: Offer(task, rank) for rank, task in enumerate(tasks, len(before) + 1)}
    who = framework_of(session).participants[point].without(without)
    for tier in who.tiers:
        ask = partial(victims_of_tier(who, tier), asker, tasks)
        leave = ask()
        if not leave.answers:
            continue
        for offer in offers.values():
            offer.plugin = offer.rule = ""
        _note_spared(offers, leave, who, tasks)
        if isinstance(asker, Task):
            left, leave = choose_victims(asker, session.nodes.usage.room_of(tasks[0].node), ask)
        else:
            left = leave.together()
        _note_spared(offers, leave, who, [task for task in leave.tasks if task not in left])
        if left:
            for place, task in enumerate(left, sum(offer.place > 0 for offer in before.values()) + 1):
                offers[task.key].place = place
            for task in leave.tasks if isinstance(asker, Task) else ():
                offers[task.key].alone = bool(offers[task.key].rule)
            return offers, tuple([name for name, _ in leave.answers])
    return offers, ()


def _note_spared(offers: Offers, leave: Victims, who: Participants, tasks: Iterable[Task]) -> None:
    """Of the tasks that plugins keep as things are: the first of these, and the first sentence of what it says of
    itself at the point."""
    plugins = {plugin.name: plugin for plugin in map(plugin_of, who.methods)}
    for task in tasks:
        name = leave.protector(task)
        if name is not None:
            said = (getattr(type(plugins[name]), who.point).__doc__ or "").strip().partition("\n")[0].rstrip(".")
            offers[task.key].plugin = name
            offers[task.key].rule = f"lets go: {said[:1].lower()}{said[1:]}" if said else "does not let it go"


@dataclass(slots=True)
class VictimQuestion:
    """A question about victims for ``asker`` of ``job`` (no asker: for the whole gang), as things were when it was put.

    ``offers`` by key in the order in which they would go; ``figures`` of all queues; what was ``asked`` for and what
    of it the node ``lacked``, as quantities; ``no_room`` why the asker's queue had none, where that is so;
    ``differences`` why the first of two pods goes before the second.
    """

    job: Job
    asker: Task | None
    offers: Offers
    let_go: tuple[str, ...]
    figures: dict[str, QueueFigures]
    asked: dict[str, str]
    lacked: dict[str, str]
    no_room: str = ""
    differences: dict[tuple[str, str], Precedence] = field(default_factory=dict)


class VictimObserver(Observer):
    """Sees who is asked about and who goes.

    After the session ``made`` holds, for each watched pod that is evicted in the end, the pod's task and the question
    that led to it, None where nobody was asked; ``wanted_by`` the plugins that want a watched pod elsewhere of
    themselves.
    """

    def __init__(self, pods: Collection[str]) -> None:
        super().__init__()
        self._pods = frozenset(pods)
        self._asks: dict[str, VictimQuestion] = {}
        self._gang: tuple[Any, Offers] = (None, {})
        self._figures: tuple[int, dict[str, QueueFigures]] = (-1, {})
        self._immune: frozenset[int] | None = None
        self.made: dict[str, tuple[Task, VictimQuestion | None]] = {}
        self.wanted_by: dict[str, list[str]] = {}

    # --- what is asked ------------------------------------------------------------------------------------------------

    def preemptable(self, preemptor: Task, tasks: list[Task]) -> None:
        """Somebody is to go for a task of the same queue."""
        self._see_one("preemptable", preemptor, tasks)

    def reclaimable(self, reclaimer: Task, tasks: list[Task]) -> None:
        """Somebody is to go for a task of another queue."""
        self._see_one("reclaimable", reclaimer, tasks)

    def unified_evictable(self, context: Any, tasks: list[Task]) -> None:
        """Somebody is to go for a gang: bundle after bundle is asked about, in one context."""
        if not isinstance(context, EvictionContext):
            return  # an action of somebody else's asks in its own words
        if self._gang[0] is not context:
            self._gang = (context, {})
        offers = self._gang[1]
        new, let_go = offered(self.session, "unified_evictable", context, tasks, self, offers)
        offers |= new
        watched = [task for task in tasks if task.key in self._pods]
        if watched:
            asked = self.session.amounts(context.wanted.tolist())
            ask = VictimQuestion(context.job, None, offers, let_go, self._figures_now(), asked, {})
            self._asks.update((task.key, ask) for task in watched)

    def victim_tasks(self, tasks: list[Task]) -> tuple[()]:
        """Plugins may want somebody elsewhere."""
        for method in framework_of(self.session).participants["victim_tasks"].without(self).methods:
            for key in sorted({task.key for task in method(tasks)} & self._pods):
                self.wanted_by.setdefault(key, []).append(plugin_of(method).name)
        return ()

    def on_deallocate(self, task: Task, row: int) -> None:
        """A watched pod goes, unless it is a placement that is taken back."""
        if task.key in self._pods and task.status == TaskStatus.RELEASING:
            self.made[task.key] = task, self._asks.get(task.key)

    def on_allocate(self, task: Task, row: int) -> None:
        """An eviction is taken back."""
        self.made.pop(task.key, None)

    # --- how things are then ------------------------------------------------------------------------------------------

    def _see_one(self, point: str, asker: Task, tasks: list[Task]) -> None:
        watched = [task for task in tasks if task.key in self._pods]
        if not watched:
            return
        session, node = self.session, watched[0].node
        offers, let_go = offered(session, point, asker, tasks, self)
        room = session.nodes.usage.room_of(node)
        short = asker.floor > room
        for task in tasks:
            offers[task.key].helps = not short.any() or bool((task.request[short] > 0).any())
        refusal = framework_of(session).allocatable(asker.job.queue, asker)
        ask = VictimQuestion(
            asker.job,
            asker,
            offers,
            let_go,
            self._figures_now(),
            session.amounts(asker.request.tolist()),
            session.amounts(((asker.request - room) * short).tolist()),
            "" if refusal is None else f"{refusal[1].words} ({quantities_in_words(refusal[1].detail)})",
        )
        self._compare(ask, watched, tasks)
        self._add_not_asked(ask.offers, asker, point, node)
        self._asks.update((task.key, ask) for task in watched)

    def _figures_now(self) -> dict[str, QueueFigures]:
        if self._figures[0] != self.session.trial.changes:
            self._figures = (self.session.trial.changes, queue_figures(self.session))
        return self._figures[1]

    def _compare(self, ask: VictimQuestion, watched: list[Task], tasks: list[Task]) -> None:
        """Note why each watched pod goes before or after each of the others: at once, since keys move."""
        indexed = all(index_in_name(task.name) is not None for task in tasks)
        rank = {task.row: number for number, task in enumerate(tasks)}
        for mine in watched:
            for other in tasks:
                if other is not mine:
                    first, second = (mine, other) if rank[mine.row] < rank[other.row] else (other, mine)
                    why = goes_before(self.session, first, second, ask.job.queue, indexed=indexed)
                    ask.differences[first.key, second.key] = why

    def _add_not_asked(self, offers: Offers, asker: Task, point: str, node: int) -> None:
        """Add those on a node that were not even offered."""
        session = self.session
        if self._immune is None:
            self._immune = immune_rows(session)
        placed = placed_tasks(session)
        tasks = [session.task(row) for row in placed.rows[placed.nodes == node].tolist()]
        for task in sorted(tasks, key=lambda task: task.key):
            if task.key not in offers and task.status in (TaskStatus.BOUND, TaskStatus.RUNNING):
                rule = _why_not_asked(task, asker, point, task.row in self._immune)
                offers[task.key] = Offer(task, rule=rule)


def _why_not_asked(task: Task, asker: Task, point: str, immune: bool) -> str:
    """By the rules of the actions preempt and reclaim."""
    if not task.preemptable:
        return "says that it may not be preempted"
    if immune:
        return "took the place of an evicted pod"
    if asker.best_effort and not task.best_effort:
        return "is not best-effort, as the one that wants room is"
    queue = task.job.queue
    if point == "reclaimable":
        if queue is asker.job.queue:
            return f"is of queue {queue.name} itself"
        return "does not run yet" if queue.reclaimable else f"queue {queue.name} is not reclaimable"
    if queue is not asker.job.queue:
        return f"is of another queue, {queue.name}"
    return "is of the job itself" if task.job is asker.job else "is of another job"

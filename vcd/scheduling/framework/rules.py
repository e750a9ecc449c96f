"""How the answers of several plugins at a point become one, tier by tier (Volcano ``framework/session_plugins.go``).

A rule receives the participants of a point and returns the function that actions call. docs/plugins/README.md contains
the docstrings of rules in a table, so each is one line. The functions run for every placement, so they pass arguments
on without unpacking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from vcd.model.events import VolumeChoice, by_key
from vcd.model.reasons import Reason
from vcd.scheduling.framework.guard import Method
from vcd.scheduling.framework.plugin import Plugin, Vote
from vcd.scheduling.framework.victims import Victims
from vcd.scheduling.search.candidates import Candidates, OtherCandidates
from vcd.scheduling.session.queues import Queue
from vcd.scheduling.session.views import Task

Refused = tuple[str, Reason]
"""The refusing plugin, and the reason."""


class Participants(msgspec.Struct, frozen=True):
    """The methods of the plugins that take part at a point, tier by tier; ``protecting`` are methods that return which
    victims a plugin leaves unprotected."""

    point: str
    tiers: list[list[Method]]
    protecting: list[Method]

    @property
    def methods(self) -> list[Method]:
        """The methods of all tiers."""
        return [method for tier in self.tiers for method in tier]

    def without(self, plugin: Plugin | None) -> Participants:
        """Return the participants without one plugin."""
        tiers = [[method for method in tier if plugin_of(method) is not plugin] for tier in self.tiers]
        return Participants(self.point, tiers, [each for each in self.protecting if plugin_of(each) is not plugin])


def plugin_of(method: Method) -> Plugin:
    """Return the plugin that a bound method belongs to."""
    plugin: Plugin = method.__self__  # type: ignore[attr-defined]
    return plugin


def first_difference(who: Participants) -> Callable[[Any], tuple[Any, ...]]:
    """The first plugin that distinguishes two items decides; then age, then name."""
    methods = who.methods

    def ask(subject: Any) -> tuple[Any, ...]:
        key = []
        for method in methods:
            key.append(method(subject))  # noqa: PERF401 - a comprehension would be one more call
        return tuple(key)

    return ask


def first_difference_for(who: Participants) -> Callable[[Queue, Queue], tuple[Any, ...]]:
    """The first plugin that distinguishes two queues decides; else the queue that is served last loses pods first."""
    methods = who.methods
    return lambda queue, preemptor: tuple([method(queue, preemptor) for method in methods])


def first_refusal(who: Participants) -> Callable[[Any], Refused | None]:
    """One refusal refuses."""
    methods = who.methods

    def ask(subject: Any) -> Refused | None:
        for method in methods:
            refusal = method(subject)
            if refusal is not None:
                return plugin_of(method).name, refusal
        return None

    return ask


def first_refusal_for(who: Participants) -> Callable[[Queue, Any], Refused | None]:
    """One refusal refuses."""
    methods = who.methods

    def ask(queue: Queue, wanted: Any) -> Refused | None:
        for method in methods:
            refusal = method(queue, wanted)
            if refusal is not None:
                return plugin_of(method).name, refusal
        return None

    return ask


def unanimous(who: Participants) -> Callable[[Any], bool]:
    """All must accept."""
    methods = who.methods

    def ask(subject: Any) -> bool:
        for method in methods:  # noqa: SIM110 - called after every placement
            if not method(subject):
                return False
        return True

    return ask


def any_of(who: Participants) -> Callable[[Any], bool]:
    """One acceptance is enough; all are called."""
    methods = who.methods

    def ask(subject: Any) -> bool:
        answers = [method(subject) for method in methods]
        return any(answers)

    return ask


def unanimous_for(who: Participants) -> Callable[[Queue, Task, int], bool]:
    """All must accept."""
    methods = who.methods
    return lambda queue, task, count: all(method(queue, task, count) for method in methods)


def most(who: Participants) -> Callable[[Any], int]:
    """The largest number; 0 if no plugin returns one."""
    methods = who.methods
    return lambda subject: max((method(subject) for method in methods), default=0)


def unanimous_first_tier(who: Participants) -> Callable[[Any], bool]:
    """All plugins of the first tier with an answer must accept; without one, the result is no."""
    first = next((tier for tier in who.tiers if tier), None)
    return unanimous(Participants(who.point, [first], [])) if first else lambda subject: False


def first_reject(who: Participants) -> Callable[[Any], Refused | None]:
    """One reject rejects; a tier with a permit and no reject permits; if all tiers abstain, it is permitted."""
    tiers = who.tiers

    def ask(subject: Any) -> Refused | None:
        for tier in tiers:
            permitted = False
            for method in tier:
                answer = method(subject)
                if answer is Vote.PERMIT:
                    permitted = True
                elif answer is not Vote.ABSTAIN:
                    return plugin_of(method).name, answer
            if permitted:
                return None
        return None

    return ask


def no_reject(who: Participants) -> Callable[[Any], bool]:
    """One reject rejects; a tier with a permit and no reject permits; if all tiers abstain, it is permitted."""
    rejected = first_reject(who)
    return lambda subject: rejected(subject) is None


def parts(who: Participants) -> Callable[[], tuple[Any, ...]]:
    """All count: predicates filter, scores are added."""

    def ask() -> tuple[Any, ...]:
        found = []
        for method in who.methods:
            for part in method():
                part.owner = plugin_of(method).name
                found.append(part)
        return tuple(found)

    return ask


def first_choice(who: Participants) -> Callable[[Task, Candidates | OtherCandidates], int | None]:
    """The first plugin that returns a node, given the sort key of each node's row, decides; otherwise the scores."""
    methods = who.methods

    def ask(task: Task, candidates: Candidates | OtherCandidates) -> int | None:
        if methods:
            keys = candidates.keys()
            for method in methods:
                row: int | None = method(task, keys)
                if row is not None:
                    return row
        return candidates.best()

    return ask


def all_volumes(who: Participants) -> Callable[[Task, int], tuple[VolumeChoice, ...]]:
    """All count: volumes are bound."""
    methods = who.methods
    return lambda task, row: tuple([choice for method in methods for choice in method(task, row)])


def all_annotations(who: Participants) -> Callable[[Task, int], dict[str, str]]:
    """All count: annotations are written; if two plugins write the same one, the last wins."""
    methods = who.methods
    if not methods:
        return lambda task, row: {}
    return lambda task, row: by_key({key: text for method in methods for key, text in method(task, row).items()})


def tell(who: Participants) -> Callable[..., None]:
    """All are notified."""
    methods = who.methods

    def ask(*told: Any) -> None:
        for method in methods:
            method(*told)

    return ask


def consent(who: Participants) -> Callable[[Task, int], list[Refused]]:
    """All are notified; if one refuses, the placement is undone."""
    methods = who.methods

    def ask(task: Task, row: int) -> list[Refused]:
        refused = []
        for method in methods:
            refusal = method(task, row)
            if refusal is not None:
                refused.append((plugin_of(method).name, refusal))
        return refused

    return ask


def intersection(who: Participants) -> Callable[[Any, list[Task]], Victims]:
    """All plugins of a tier, and all that protect, must allow a victim; the first tier that allows one decides."""
    plugins = [plugin_of(method) for method in (*who.methods, *who.protecting)]
    lasts = not any(plugin.minds_exchanges() for plugin in plugins)
    tiers = [victims_of_tier(who, tier, lasts) for tier in who.tiers]

    def ask(asker: Any, tasks: list[Task]) -> Victims:
        refusals = []
        for tier in tiers if tasks else ():
            found = tier(asker, tasks)
            if found.first is not None:
                return found
            refusals.append(found)
        return Victims((), refusals=refusals)

    return ask


def victims_of_tier(who: Participants, tier: list[Method], lasts: bool = False) -> Callable[[Any, list[Task]], Victims]:
    """Return a function that returns the victims that one tier and the protecting plugins of other tiers allow; none if
    the tier has no opinion."""
    point = who.point
    plugins = [plugin_of(method) for method in tier]
    own = [(plugin_of(method).name, method) for method in tier]
    others = [(plugin_of(method).name, method) for method in who.protecting if plugin_of(method) not in plugins]

    def ask(asker: Any, tasks: list[Task]) -> Victims:
        answers = [(name, answer) for name, method in own if (answer := method(asker, tasks)) is not None]
        if not answers:
            return Victims(())
        answers += [(name, method(point, asker, tasks)) for name, method in others]
        return Victims(tasks, answers, lasts)

    return ask


def union_of_tier(who: Participants) -> Callable[[list[Task]], list[Task]]:
    """Any plugin of a tier names tasks; the first tier with a task that may be evicted decides."""

    def ask(tasks: list[Task]) -> list[Task]:
        for tier in who.tiers:
            named = _named(tier, tasks)
            if not named:
                continue
            free = _unless_protected(who, tasks).tasks
            left = unprotected(who, _named(tier, free) if len(free) < len(tasks) else named)
            if left:
                return left
        return []

    return ask


def unprotected(who: Participants, tasks: list[Task]) -> list[Task]:
    """Return the tasks that no plugin protects if they are all evicted without a preemptor."""
    return _unless_protected(who, tasks).together()


def _unless_protected(who: Participants, tasks: list[Task]) -> Victims:
    return Victims(tasks, ((plugin_of(method).name, method(who.point, None, tasks)) for method in who.protecting))


def _named(tier: Iterable[Method], tasks: list[Task]) -> list[Task]:
    """Return the tasks that any plugin of a tier names."""
    rows = frozenset([task.row for method in tier for task in method(tasks)])
    return [task for task in tasks if task.row in rows] if rows else []

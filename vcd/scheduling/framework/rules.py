"""How the answers of several plugins at a point become one, tier by tier (Volcano ``framework/session_plugins.go``).

A rule receives the participants of a point and returns the function that actions call. docs/plugins/README.md contains
the docstrings of rules in a table, so each is one line. The functions run for every placement, so they pass arguments
on without unpacking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from vcd.model.events import VolumeChoice, by_key
from vcd.model.kinds import Kind
from vcd.model.reasons import Reason
from vcd.scheduling.framework.guard import Method
from vcd.scheduling.framework.plugin import Plugin, Vote
from vcd.scheduling.framework.victims import Victims
from vcd.scheduling.search.candidates import Candidates, OtherCandidates
from vcd.scheduling.session.queue_view import Queue
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


def kind_names(kinds: Iterable[str | Kind]) -> tuple[str, ...]:
    """Return the names of declared kinds."""
    return tuple([kind if isinstance(kind, str) else kind.name for kind in kinds])


def plugin_of(method: Method) -> Plugin:
    """Return the plugin that a bound method belongs to."""
    plugin: Plugin = method.__self__  # type: ignore[attr-defined]
    return plugin


def first_difference(participants: Participants) -> Callable[[Any], tuple[Any, ...]]:
    """The first plugin that distinguishes two items decides; then age, then name."""
    methods = participants.methods

    def combine(subject: Any) -> tuple[Any, ...]:
        key = []
        for method in methods:
            key.append(method(subject))  # noqa: PERF401 - a comprehension would be one more call
        return tuple(key)

    return combine


def first_difference_for(participants: Participants) -> Callable[[Queue, Queue], tuple[Any, ...]]:
    """The first plugin that distinguishes two queues decides; else the queue that is served last loses pods first."""
    methods = participants.methods
    return lambda queue, preemptor: tuple([method(queue, preemptor) for method in methods])


def first_refusal(participants: Participants) -> Callable[..., Refused | None]:
    """One refusal refuses."""
    methods = participants.methods

    def combine(*subject: Any) -> Refused | None:
        for method in methods:
            refusal = method(*subject)
            if refusal is not None:
                return plugin_of(method).name, refusal
        return None

    return combine


def unanimous(participants: Participants) -> Callable[[Any], bool]:
    """All must accept."""
    methods = participants.methods

    def combine(subject: Any) -> bool:
        for method in methods:  # noqa: SIM110 - called after every placement
            if not method(subject):
                return False
        return True

    return combine


def any_of(participants: Participants) -> Callable[[Any], bool]:
    """One acceptance is enough; all are called."""
    methods = participants.methods

    def combine(subject: Any) -> bool:
        answers = [method(subject) for method in methods]
        return any(answers)

    return combine


def most(participants: Participants) -> Callable[[Any], int]:
    """The largest number; 0 if no plugin returns one."""
    methods = participants.methods
    return lambda subject: max((method(subject) for method in methods), default=0)


def unanimous_first_tier(participants: Participants) -> Callable[[Any], bool]:
    """All plugins of the first tier with an answer must accept; without one, the result is no."""
    first = next((tier for tier in participants.tiers if tier), None)
    return unanimous(Participants(participants.point, [first], [])) if first else lambda subject: False


def first_reject(participants: Participants) -> Callable[[Any], Refused | None]:
    """One reject rejects; a tier with a permit and no reject permits; if all tiers abstain, it is permitted."""
    tiers = participants.tiers

    def combine(subject: Any) -> Refused | None:
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

    return combine


def no_reject(participants: Participants) -> Callable[[Any], bool]:
    """One reject rejects; a tier with a permit and no reject permits; if all tiers abstain, it is permitted."""
    rejected = first_reject(participants)
    return lambda subject: rejected(subject) is None


def parts(participants: Participants) -> Callable[[], tuple[Any, ...]]:
    """All count: predicates filter, scores are added."""

    def combine() -> tuple[Any, ...]:
        found = []
        for method in participants.methods:
            for part in method():
                plugin = plugin_of(method)
                part.owner = plugin.name
                if part.kinds is None:
                    part.kinds = kind_names(plugin.kinds)
                found.append(part)
        return tuple(found)

    return combine


def first_choice(participants: Participants) -> Callable[[Task, Candidates | OtherCandidates], int | None]:
    """The first plugin that returns a node, given the sort key of each node's row, decides; otherwise the scores."""
    methods = participants.methods

    def combine(task: Task, candidates: Candidates | OtherCandidates) -> int | None:
        if methods:
            keys = candidates.keys()
            for method in methods:
                row: int | None = method(task, keys)
                if row is not None:
                    return row
        return candidates.best()

    return combine


def first_answer(participants: Participants) -> Callable[..., Any]:
    """The first plugin with an answer decides."""
    methods = participants.methods

    def combine(*arguments: Any) -> Any:
        for method in methods:
            answer = method(*arguments)
            if answer is not None:
                return answer
        return None

    return combine


def sums(participants: Participants) -> Callable[[Any, Sequence[Any]], list[float]]:
    """All count: ratings are added."""
    methods = participants.methods

    def combine(subject: Any, items: Sequence[Any]) -> list[float]:
        given = [ratings for method in methods if (ratings := method(subject, items))]
        return [sum(ratings) for ratings in zip(*given, strict=True)] if given else [0.0] * len(items)

    return combine


def all_volumes(participants: Participants) -> Callable[[Task, int], tuple[VolumeChoice, ...]]:
    """All count: volumes are bound."""
    methods = participants.methods
    return lambda task, row: tuple([choice for method in methods for choice in method(task, row)])


def all_annotations(participants: Participants) -> Callable[[Task, int], dict[str, str]]:
    """All count: annotations are written; if two plugins write the same one, the last wins."""
    methods = participants.methods
    if not methods:
        return lambda task, row: {}
    return lambda task, row: by_key({key: text for method in methods for key, text in method(task, row).items()})


def broadcast(participants: Participants) -> Callable[..., None]:
    """All are notified."""
    methods = participants.methods

    def combine(*arguments: Any) -> None:
        for method in methods:
            method(*arguments)

    return combine


def consent(participants: Participants) -> Callable[[list[Task], list[int]], list[Refused]]:
    """All are notified; if one refuses, the placement is undone."""
    methods = participants.methods

    def combine(tasks: list[Task], rows: list[int]) -> list[Refused]:
        refused = []
        for method in methods:
            refusal = method(tasks, rows)
            if refusal is not None:
                refused.append((plugin_of(method).name, refusal))
        return refused

    return combine


def intersection(participants: Participants) -> Callable[[Any, list[Task]], Victims]:
    """All plugins of a tier, and all that protect, must allow a victim; the first tier that allows one decides."""
    tiers = [victims_of_tier(participants, tier) for tier in participants.tiers]

    def combine(asker: Any, tasks: list[Task]) -> Victims:
        refusals = []
        for tier in tiers if tasks else ():
            found = tier(asker, tasks)
            if found.first is not None:
                return found
            refusals.append(found)
        return Victims((), refusals=refusals)

    return combine


def victims_of_tier(participants: Participants, tier: list[Method]) -> Callable[[Any, list[Task]], Victims]:
    """Return a function that returns the victims that one tier and the protecting plugins of other tiers allow; none if
    the tier has no opinion."""
    point = participants.point
    plugins = [plugin_of(method) for method in tier]
    own = [(plugin_of(method).name, method) for method in tier]
    others = [
        (plugin_of(method).name, method) for method in participants.protecting if plugin_of(method) not in plugins
    ]

    def combine(asker: Any, tasks: list[Task]) -> Victims:
        answers = [(name, answer) for name, method in own if (answer := method(asker, tasks)) is not None]
        if not answers:
            return Victims(())
        answers += [(name, method(point, asker, tasks)) for name, method in others]
        return Victims(tasks, answers)

    return combine


def union_of_tier(participants: Participants) -> Callable[[list[Task]], list[Task]]:
    """Any plugin of a tier names tasks; the first tier with a task that may be evicted decides."""

    def combine(tasks: list[Task]) -> list[Task]:
        for tier in participants.tiers:
            named = _named(tier, tasks)
            if not named:
                continue
            free = _unless_protected(participants, tasks).tasks
            left = unprotected(participants, _named(tier, free) if len(free) < len(tasks) else named)
            if left:
                return left
        return []

    return combine


def unprotected(participants: Participants, tasks: list[Task]) -> list[Task]:
    """Return the tasks that no plugin protects if they are all evicted without a preemptor."""
    return _unless_protected(participants, tasks).together()


def _unless_protected(participants: Participants, tasks: list[Task]) -> Victims:
    return Victims(
        tasks, ((plugin_of(method).name, method(participants.point, None, tasks)) for method in participants.protecting)
    )


def _named(tier: Iterable[Method], tasks: list[Task]) -> list[Task]:
    rows = frozenset([task.row for method in tier for task in method(tasks)])
    return [task for task in tasks if task.row in rows] if rows else []

"""Which pods may be evicted together: the combined answers of the plugins of a tier.

Answers about single pods apply first. What plugins allow for several pods together (``Allowance``) is then spent pod by
pod, on pods that no other plugin protects. So the order in which plugins are called changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from vcd.scheduling.session.views import Task

M = TypeVar("M", bound=Callable[..., Any])


class Allowance:
    """Pods that a plugin permits to evict only up to a common limit, such as a gang's surplus, a disruption budget, or
    a queue's excess over its share. Each victim uses a part of the limit.

    An allowance is created for one call. Pods are tried in one order. A pod that all allowances permit is evicted and
    spends from each of them. A pod that stays spends nothing, so the order of plugins does not matter.
    """

    records_refusals: bool = False
    """Whether ``spare`` is called for pods that are not permitted. If so, ``permits`` is called for all pods, not only
    until enough are found."""

    def permits(self, task: Task) -> bool:
        """Return whether a task may be evicted in addition to those that spent so far. Change nothing."""
        raise NotImplementedError

    def spend(self, task: Task) -> None:
        """Record that a permitted task is evicted."""

    def spare(self, task: Task) -> None:
        """Record that a task is not permitted. Called only if ``records_refusals`` is True."""

    def among(self, tasks: Sequence[Task]) -> list[Task]:
        """Return the tasks that this allowance alone permits together, and spend for them."""
        going = []
        for task in tasks:
            if self.permits(task):
                self.spend(task)
                going.append(task)
        return going


def victim_rule(words: str) -> Callable[[M], M]:
    """Declare which pods a method at a victims' point allows to evict, in words that follow "lets go: "."""

    def declare(method: M) -> M:
        method.__dict__["victim_rule"] = words
        return method

    return declare


def rule_of(plugin: object, point: str) -> str:
    """Return the plugin's declared rule (``victim_rule``) for evictions at a point; empty if it declares none."""
    words: str = getattr(getattr(plugin, point, None), "victim_rule", "")
    return f"lets go: {words}" if words else ""


VictimsAnswer = list[Task] | Allowance | None
"""An answer at a victims' point: the tasks that may be evicted, each judged alone; an allowance for several together;
or None for no opinion."""


class Victims:
    """The pods that may be evicted, in eviction order.

    ``answers`` has the name and the answer of each plugin with an opinion. Read ``first`` or ``tasks`` before the first
    call of ``take``, because allowances change when they are spent.
    """

    __slots__ = (
        "_candidates",
        "_first",
        "_is_spent",
        "_notifies",
        "_refusals",
        "_rows",
        "_shared",
        "_tasks",
        "answers",
    )

    def __init__(
        self,
        tasks: Sequence[Task],
        answers: Iterable[tuple[str, VictimsAnswer]] = (),
        refusals: Sequence[Victims] = (),
    ) -> None:
        self.answers: list[tuple[str, list[Task] | Allowance]] = []
        self._candidates = tasks
        self._refusals = refusals
        """The answers of each tier, if no tier allows a victim."""
        self._shared: list[Allowance] = []
        self._rows: frozenset[int] | None = None
        """Rows of the pods that all answers about single pods contain; None if no answer excludes a pod."""
        self._is_spent = False
        self._notifies = False
        self._first: tuple[Task | None] | None = None
        self._tasks: list[Task] | None = None
        for name, answer in answers:
            if answer is None:
                continue
            self.answers.append((name, answer))
            if isinstance(answer, Allowance):
                self._shared.append(answer)
                self._notifies |= answer.records_refusals
            elif answer != tasks:
                rows = frozenset([task.row for task in answer])
                self._rows = rows if self._rows is None else self._rows & rows

    @property
    def first(self) -> Task | None:
        """The first pod that may be evicted alone."""
        if self._first is None:
            self._first = (next(iter(self.tasks) if self._notifies else self._alone(), None),)
        return self._first[0]

    @property
    def tasks(self) -> list[Task]:
        """The pods that may be evicted, each alone."""
        if self._tasks is None:
            self._tasks = list(self._alone())
        return self._tasks

    def _alone(self) -> Iterator[Task]:
        rows = self._rows
        for task in self._candidates:
            if (rows is None or task.row in rows) and self._is_permitted(task):
                yield task

    def _is_permitted(self, task: Task) -> bool:
        for allowance in self._shared:
            if not allowance.permits(task):
                if allowance.records_refusals:
                    allowance.spare(task)
                return False
        return True

    def take(self, task: Task) -> bool:
        """Spend for one of ``tasks`` and return True, if it may be evicted in addition to those taken before."""
        if self._is_spent and not self._is_permitted(task):
            return False
        self._is_spent = True
        for allowance in self._shared:
            allowance.spend(task)
        return True

    def together(self) -> list[Task]:
        """Take and return the tasks that may be evicted together, in eviction order."""
        return [task for task in self.tasks if self.take(task)]

    @property
    def has_opinions(self) -> bool:
        """Whether any plugin has an opinion."""
        return bool(self.answers) or any(each.has_opinions for each in self._refusals)

    def keepers(self) -> list[str]:
        """Return the plugins that currently protect some of the pods, in the order of calls."""
        found = [name for each in self._refusals for name in each.keepers()]
        for name, answer in self.answers:
            if isinstance(answer, Allowance):
                protects = not all(answer.permits(task) for task in self._candidates)
            else:
                protects = len(answer) < len(self._candidates)
            if protects:
                found.append(name)
        return list(dict.fromkeys(found))

    def protector(self, task: Task) -> str | None:
        """Return the first plugin that currently protects a task; None if it may be evicted."""
        for name, answer in self.answers:
            if not (answer.permits(task) if isinstance(answer, Allowance) else task in answer):
                return name
        return None

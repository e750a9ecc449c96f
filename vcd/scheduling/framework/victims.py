"""Who may go together: the answers of the plugins that decide, made one.

What a plugin says of each pod for itself holds first; what it allows several pods together is given out afterwards, pod
by pod, to those that nobody else keeps. So the order in which plugins are asked changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from vcd.scheduling.session.views import Task

M = TypeVar("M", bound=Callable[..., Any])


class Allowance:
    """What a plugin lets go of several pods together: one that goes may leave less for the others, as with a gang's
    surplus, a disruption budget, or a queue's room above its share.

    Made for one question. Pods are tried in one order; a pod goes where all who were asked permit it, and then spends
    of each allowance. One that stays spends nothing, so that it does not matter in which order plugins are asked.
    """

    tells: bool = False
    """Whether it notes whom it keeps: then it is asked about all, and not only until enough go."""

    def permits(self, task: Task) -> bool:
        """Whether a task may go beside those that spent so far; changes nothing."""
        raise NotImplementedError

    def spend(self, task: Task) -> None:
        """A task goes that it permits."""

    def keeps(self, task: Task) -> None:
        """A task that it does not permit stays; told where it ``tells``."""

    def among(self, tasks: Sequence[Task]) -> list[Task]:
        """Those of ``tasks`` that may go together, if nobody else is asked; they spend."""
        going = []
        for task in tasks:
            if self.permits(task):
                self.spend(task)
                going.append(task)
        return going


def lets_go(words: str) -> Callable[[M], M]:
    """Declares whom a plugin's method at a victims' point lets go, in words that follow "lets go: "."""

    def declare(method: M) -> M:
        method.__dict__["lets_go"] = words
        return method

    return declare


def rule_of(plugin: object, point: str) -> str:
    """Whom a plugin lets go at a point, as it declares it; empty where it declares nothing."""
    words: str = getattr(getattr(plugin, point, None), "lets_go", "")
    return f"lets go: {words}" if words else ""


VictimsAnswer = list[Task] | Allowance | None
"""An answer at a victims' point: who may go, each for itself; what is allowed to them together; None: no opinion."""


class Victims:
    """Which of the pods in question may go, in the order in which they would.

    ``answers`` holds the name of each plugin that has an opinion, with what it allows. Who may go alone is to be asked
    for before any is taken.
    """

    __slots__ = ("_asked", "_first", "_refusals", "_rows", "_shared", "_spent", "_tasks", "_tells", "answers", "lasts")

    def __init__(
        self,
        tasks: Sequence[Task],
        answers: Iterable[tuple[str, VictimsAnswer]] = (),
        lasts: bool = False,
        refusals: Sequence[Victims] = (),
    ) -> None:
        self.answers: list[tuple[str, list[Task] | Allowance]] = []
        self.lasts = lasts
        """Whether it is the answer to the next one alike as well (``Plugin.minds_exchanges``), see ``again``."""
        self._asked = tasks
        self._refusals = refusals
        """Where no tier lets a pod go, the answers of each tier."""
        self._shared: list[Allowance] = []
        self._rows: frozenset[int] | None = None
        """The pods that all name who name some, each for itself; None where nobody keeps any so."""
        self._spent = False
        self._tells = False
        self._first: tuple[Task | None] | None = None
        self._tasks: list[Task] | None = None
        for name, answer in answers:
            if answer is None:
                continue
            self.answers.append((name, answer))
            if isinstance(answer, Allowance):
                self._shared.append(answer)
                self._tells |= answer.tells
            elif answer != tasks:
                rows = frozenset([task.row for task in answer])
                self._rows = rows if self._rows is None else self._rows & rows

    @property
    def first(self) -> Task | None:
        """The first that may go alone."""
        if self._first is None:
            self._first = (next(iter(self.tasks) if self._tells else self._alone(), None),)
        return self._first[0]

    @property
    def tasks(self) -> list[Task]:
        """Those that may go alone."""
        if self._tasks is None:
            self._tasks = list(self._alone())
        return self._tasks

    def _alone(self) -> Iterator[Task]:
        rows = self._rows
        for task in self._asked:
            if (rows is None or task.row in rows) and self._is_permitted(task):
                yield task

    def again(self, tasks: Sequence[Task]) -> Victims:
        """The same answers about those that are left, once the others went that were taken."""
        self._asked, self._tasks, self._first, self._spent = tasks, None, None, False
        return self

    def _is_permitted(self, task: Task) -> bool:
        for allowance in self._shared:
            if not allowance.permits(task):
                if allowance.tells:
                    allowance.keeps(task)
                return False
        return True

    def take(self, task: Task) -> bool:
        """Let one of ``tasks`` go, if it still may beside those taken before."""
        if self._spent and not self._is_permitted(task):
            return False
        self._spent = True
        for allowance in self._shared:
            allowance.spend(task)
        return True

    def together(self) -> list[Task]:
        """Those that may go together, the first first; they are taken."""
        return [task for task in self.tasks if self.take(task)]

    @property
    def has_opinions(self) -> bool:
        """Whether a plugin answered."""
        return bool(self.answers) or any(each.has_opinions for each in self._refusals)

    def keepers(self) -> list[str]:
        """Return the plugins that keep some of the pods in question as things are, in the order asked."""
        found = [name for each in self._refusals for name in each.keepers()]
        for name, answer in self.answers:
            if isinstance(answer, Allowance):
                keeps = not all(answer.permits(task) for task in self._asked)
            else:
                keeps = len(answer) < len(self._asked)
            if keeps:
                found.append(name)
        return list(dict.fromkeys(found))

    def protector(self, task: Task) -> str | None:
        """A plugin that keeps a task as things are, the first that was asked; None where it may go."""
        for name, answer in self.answers:
            if not (answer.permits(task) if isinstance(answer, Allowance) else task in answer):
                return name
        return None

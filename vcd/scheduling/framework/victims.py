"""Who may go together: the answers of the plugins that decide, made one.

What a plugin says of each pod for itself holds first; what it allows several pods together is given out afterwards, pod
by pod, to those that nobody else keeps. So the order in which plugins are asked changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from vcd.scheduling.framework.plugin import Allowance, Plugin, VictimsAnswer

if TYPE_CHECKING:
    from vcd.scheduling.session.views import Task


class _Named(Allowance):
    """Pods that a plugin names, each for itself."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self.rows = frozenset([task.row for task in tasks])

    def permits(self, task: Task) -> bool:
        return task.row in self.rows


class Leave:
    """Which of the pods in question may go, in the order in which they would; ``tasks`` are those that may alone.

    ``answers`` holds each plugin that has an opinion, with what it allows.
    """

    def __init__(self, tasks: Sequence[Task], answers: Iterable[tuple[Plugin, VictimsAnswer]] = ()) -> None:
        self.answers = [
            (plugin, answer if isinstance(answer, Allowance) else _Named(answer))
            for plugin, answer in answers
            if answer is not None
        ]
        self._shared = [allowance for _, allowance in self.answers if not isinstance(allowance, _Named)]
        named = [allowance.rows for _, allowance in self.answers if isinstance(allowance, _Named)]
        rows = frozenset.intersection(*named) if named else None
        self._spent = False
        self.tasks = [task for task in tasks if (rows is None or task.row in rows) and self._is_permitted(task)]

    def _is_permitted(self, task: Task) -> bool:
        for allowance in self._shared:  # noqa: SIM110 - called for every task of a node
            if not allowance.permits(task):
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

    def keeper(self, task: Task) -> Plugin | None:
        """A plugin that keeps a task as things are, the first that was asked; None where it may go."""
        return next((plugin for plugin, allowance in self.answers if not allowance.permits(task)), None)

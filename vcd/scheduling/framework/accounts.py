"""Who counts what tasks hold: placements, and what is taken back, told as one question."""

from __future__ import annotations

from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.session.views import Task


class KeepsAccounts(Plugin):
    """Base of the plugins whose accounts follow the tasks; what waits for room counts, too."""

    def charge(self, tasks: list[Task], rows: list[int], sign: int) -> None:
        """Alike tasks of one job come to nodes (1), or one goes (-1)."""
        raise NotImplementedError

    def on_allocate(self, task: Task, row: int) -> None:
        """More is held."""
        self.charge([task], [row], 1)

    def on_allocate_together(self, tasks: list[Task], rows: list[int]) -> None:
        """More is held."""
        self.charge(tasks, rows, 1)

    def on_deallocate(self, task: Task, row: int) -> None:
        """Less is held."""
        self.charge([task], [row], -1)

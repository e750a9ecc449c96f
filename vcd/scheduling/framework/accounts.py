"""A base class for plugins that count what tasks hold: placements and their reversals become one method."""

from __future__ import annotations

from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.session.views import Task


class KeepsAccounts(Plugin):
    """Base class of plugins whose accounts follow the tasks. Pipelined tasks count like allocated ones."""

    def charge(self, tasks: list[Task], rows: list[int], sign: int) -> None:
        """Count equivalent tasks of one job that are placed on nodes (``sign`` 1) or removed (-1)."""
        raise NotImplementedError

    def on_allocate(self, tasks: list[Task], rows: list[int]) -> None:
        """Charge placed tasks."""
        self.charge(tasks, rows, 1)

    def on_deallocate(self, tasks: list[Task], rows: list[int]) -> None:
        """Release removed tasks."""
        self.charge(tasks, rows, -1)

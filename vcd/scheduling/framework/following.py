"""Who tells the index of pods what moves: the first plugin of a session that needs it, and no other."""

from __future__ import annotations

from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.search.podindex import PodIndex, index_of
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task


class _Follower:
    """The plugin that does it in this session."""

    def __init__(self, plugin: Plugin) -> None:
        self.plugin = plugin


class FollowsPods(Plugin):
    """Base of the plugins that ask where pods are."""

    _followed: PodIndex | None = None

    def follow_pods(self, session: Session) -> None:
        """To be called by ``open`` when the plugin needs the index."""
        if session.provided(_Follower, lambda: _Follower(self)).plugin is self:
            self._followed = index_of(session)

    def on_allocate(self, task: Task, row: int) -> None:
        """A task was placed on a node, or waits for room there."""
        if self._followed is not None:
            self._followed.placed(task, row)

    def on_allocate_together(self, tasks: list[Task], rows: list[int]) -> None:
        """Several alike tasks were placed, each on its node."""
        if self._followed is not None:
            self._followed.placed_together(tasks, rows)

    def on_deallocate(self, task: Task, row: int) -> None:
        """A task was taken from a node."""
        if self._followed is not None:
            self._followed.removed(task, row)

"""Keeps the index of pods current: exactly one plugin of a session, the first that needs the index, updates it."""

from __future__ import annotations

from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.search.podindex import PodIndex, index_of
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task


class _Follower:
    """The plugin that updates the index in this session."""

    def __init__(self, plugin: Plugin) -> None:
        self.plugin = plugin


class FollowsPods(Plugin):
    """Base class of plugins that need the positions of pods."""

    _followed: PodIndex | None = None

    def follow_pods(self, session: Session) -> None:
        """Prepare the index. ``open`` calls this if the plugin needs it."""
        if session.provided(_Follower, lambda: _Follower(self)).plugin is self:
            self._followed = index_of(session)

    def on_allocate(self, tasks: list[Task], rows: list[int]) -> None:
        """Update the index of pods, if this plugin is the first that needs it."""
        if self._followed is not None:
            self._followed.move(tasks, rows, 1)

    def on_deallocate(self, tasks: list[Task], rows: list[int]) -> None:
        """Update the index of pods, if this plugin is the first that needs it."""
        if self._followed is not None:
            self._followed.move(tasks, rows, -1)

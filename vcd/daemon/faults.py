"""Which faults of plugins are news: each is told when it is first seen, and then now and then while it lasts."""

from __future__ import annotations

from collections.abc import Callable

from vcd.scheduling.framework.guard import name_in

REPEAT = 600.0
"""Seconds until a fault that lasts is told again."""
CHANGE = 60.0
"""Seconds until a plugin is told of again that fails in other words than before; they may name a pod or a time."""


class FaultNews:
    """What was last told of each plugin, and when. ``clock`` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told: dict[str, tuple[str, float]] = {}

    def is_news(self, fault: str) -> bool:
        """Whether a session's fault shall be told; it counts as told then."""
        name, now = name_in(fault), self._clock()
        before = self._told.get(name)
        if before is not None and now - before[1] < (REPEAT if fault == before[0] else CHANGE):
            return False
        self._told[name] = (fault, now)
        return True

"""Leaves out third-party plugins and actions that take too long.

Time is measured where a session calls a plugin and where the call returns. A call that returns late ends the session,
which is decided again without the plugin. A call that never returns cannot be stopped: ``/healthz`` fails, and the next
process leaves the plugin out, because the log has an event (`PluginLate`) with the end of its pause.

Before changing it: the session's thread and the event loop both use this object, so all fields need the lock.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from vcd.daemon.persistence.state_writer import StateWriter
from vcd.model.events import PluginLate
from vcd.scheduling.framework.guard import Interrupted, action_name

T = TypeVar("T")

ACTION_ALLOWANCE = 10
"""Factor of an action's time limit, because the time of built-in code that an action calls counts as the action's."""
PAUSES = 10
"""Pause of a late plugin, as a multiple of its time limit. The pause doubles if the plugin is late again within that
time after the pause."""
LONGEST_PAUSE = 600.0
GRACE = 5.0
"""Seconds that shutdown waits for a running session."""
_LOOKS = 0.25
"""Seconds between checks, at most; a twentieth of the limit if that is less."""


class _Late(NamedTuple):
    name: str
    point: str
    fault: str


@dataclass(eq=False)
class Watchdog:
    """A `vcd.scheduling.framework.guard.Watch` with a limit in seconds for each plugin's part in a session.

    ``clock`` gives monotonic seconds, ``wall`` nanoseconds since the epoch.
    """

    state_writer: StateWriter
    limit: float = math.inf
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], int] = time.time_ns

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._inside: list[tuple[str, str]] = []
        self._since = 0.0
        self._spent: dict[str, float] = {}
        self._late: _Late | None = None
        self._unreported: list[_Late] = []

    # --- in the event loop ------------------------------------------------------------------------------------------

    def begin(self, now: int) -> tuple[str, ...]:
        """Begin a session; return the plugins to leave out, as ``name: what happened``."""
        self._spent.clear()
        return tuple(late.fault for _, late in sorted(self.state_writer.state.late.items()) if now < late.until)

    async def attend(self, deciding: Coroutine[Any, Any, T]) -> T:
        """Await a session that another thread decides, and check for late plugins while it runs."""
        task = asyncio.get_running_loop().create_task(deciding)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=min(_LOOKS, self.limit / 20))
                with self._lock:
                    self._measure_time()
                await self._log_late()
            return task.result()
        finally:
            if not task.done() and self.stuck() is None:
                await asyncio.wait({task}, timeout=GRACE)
            task.cancel()

    def stuck(self) -> str | None:
        """Return which plugin does not return, so that only a restart helps; None if none hangs."""
        late = self._late
        return None if late is None else f"{late.name} does not come back from {late.point}"

    async def _log_late(self) -> None:
        with self._lock:
            unreported, self._unreported = self._unreported, []
        for name, _, fault in unreported:
            now, pause = self.wall(), round(self.limit * PAUSES * 1e9)
            before = self.state_writer.state.late.get(name)
            if before is not None and now < before.until + before.pause:
                pause = max(pause, min(2 * before.pause, round(LONGEST_PAUSE * 1e9)))
            await self.state_writer.put([PluginLate(name, fault, now + pause, pause)])

    # --- in the thread that decides ---------------------------------------------------------------------------------

    def enter(self, name: str, point: str) -> int:
        """Note that the thread calls a plugin or action, and pause the time of the caller. Raises Interrupted."""
        with self._lock:
            self._look_and_raise()
            self._inside.append((name, point))
            return len(self._inside) - 1

    def leave(self, depth: int) -> None:
        """Note that the call at ``depth`` returned. Raises Interrupted."""
        with self._lock:
            try:
                self._look_and_raise()
            finally:
                del self._inside[depth:]

    def check(self) -> None:
        """Raise Interrupted if the running plugin is late. If it catches that, the next call raises again."""
        with self._lock:
            self._look_and_raise()

    def verdict(self) -> str:
        """Return the fault to record after Interrupted ended a session."""
        with self._lock:
            late, self._late = self._late, None
            if late is None:
                raise RuntimeError("a session was interrupted, and not by the watchdog")
            self._inside.clear()
            self._spent.pop(late.name)  # so that its time starts at 0 if it stays in the session
            return late.fault

    # --- in both, under the lock ------------------------------------------------------------------------------------

    def _look_and_raise(self) -> None:
        self._measure_time()
        if self._late is not None:
            raise Interrupted

    def _measure_time(self) -> None:
        """Add the elapsed time to the running plugin, and note whether it is late."""
        now = self.clock()
        if self._inside:
            name, point = self._inside[-1]
            spent = self._spent[name] = self._spent.get(name, 0.0) + now - self._since
            allowed = self.limit * (ACTION_ALLOWANCE if name.startswith(action_name("")) else 1)
            if spent > allowed and self._late is None:
                self._late = _Late(name, point, f"{name}: took more than {allowed:g} s in one session, at {point}")
                self._unreported.append(self._late)
        self._since = now

"""Plugins and actions that take too long are left out: when they come back, or, where they do not, after a restart.

The time that each is in is measured at its gates. Who comes back late ends the session there, which is decided again
without it. Nothing can end a call that does not come back: the event loop notices it, ``/healthz`` says so, and the
next process leaves it out. That is known from the log, which has an event of each that is late, with a pause that ends.
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
"""How many times as long as a plugin an action may take: the time of all work of ours that it asks for is its own."""
PAUSES = 10
"""Who was late is left out for so many times the limit, and twice as long each time that it is late again before as
much time has passed once more."""
LONGEST_PAUSE = 600.0
GRACE = 5.0
"""Seconds that the end of the program waits for a session that is being decided."""
_LOOKS = 0.25
"""Seconds between looks; a twentieth of the limit where that is less."""


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
        self._untold: list[_Late] = []

    # --- in the event loop ------------------------------------------------------------------------------------------

    def begin(self, now: int) -> tuple[str, ...]:
        """A session begins that is decided for a time: who is left out of it, as ``name: what happened``."""
        self._spent.clear()
        return tuple(late.fault for _, late in sorted(self.state_writer.state.late.items()) if now < late.until)

    async def attend(self, deciding: Coroutine[Any, Any, T]) -> T:
        """What comes of a session that is decided in another thread; meanwhile look at who is in for too long."""
        task = asyncio.get_running_loop().create_task(deciding)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=min(_LOOKS, self.limit / 20))
                with self._lock:
                    self._look()
                await self._tell()
            return task.result()
        finally:
            if not task.done() and self.stuck() is None:
                await asyncio.wait({task}, timeout=GRACE)
            task.cancel()

    def stuck(self) -> str | None:
        """Who does not come back, so that only a restart helps, in words."""
        late = self._late
        return None if late is None else f"{late.name} does not come back from {late.point}"

    async def _tell(self) -> None:
        """Log who is late, and how long it is left out for that."""
        with self._lock:
            untold, self._untold = self._untold, []
        for name, _, fault in untold:
            now, pause = self.wall(), round(self.limit * PAUSES * 1e9)
            before = self.state_writer.state.late.get(name)
            if before is not None and now < before.until + before.pause:
                pause = max(pause, min(2 * before.pause, round(LONGEST_PAUSE * 1e9)))
            await self.state_writer.put([PluginLate(name, fault, now + pause, pause)])

    # --- in the thread that decides ---------------------------------------------------------------------------------

    def enter(self, name: str, point: str) -> int:
        """The thread goes into a plugin or action; the time of the one that it comes from stands still.

        Raises Interrupted as ``check`` does.
        """
        with self._lock:
            self._look_and_raise()
            self._inside.append((name, point))
            return len(self._inside) - 1

    def leave(self, depth: int) -> None:
        """The thread comes out of it, and is in ``depth`` others. Raises Interrupted as ``check`` does."""
        with self._lock:
            try:
                self._look_and_raise()
            finally:
                del self._inside[depth:]

    def check(self) -> None:
        """Raise Interrupted where who is in has taken too long. It may catch that: it is raised again on its way."""
        with self._lock:
            self._look_and_raise()

    def verdict(self) -> str:
        """What is to be recorded once Interrupted came out of a session."""
        with self._lock:
            late, self._late = self._late, None
            if late is None:
                raise RuntimeError("a session was interrupted, and not by the watchdog")
            self._inside.clear()
            self._spent.pop(late.name)  # one that stays, and does nothing any more, has its time anew
            return late.fault

    # --- in both, under the lock ------------------------------------------------------------------------------------

    def _look_and_raise(self) -> None:
        self._look()
        if self._late is not None:
            raise Interrupted

    def _look(self) -> None:
        """Count the time of who is in, and note whether it is late."""
        now = self.clock()
        if self._inside:
            name, point = self._inside[-1]
            spent = self._spent[name] = self._spent.get(name, 0.0) + now - self._since
            allowed = self.limit * (ACTION_ALLOWANCE if name.startswith(action_name("")) else 1)
            if spent > allowed and self._late is None:
                self._late = _Late(name, point, f"{name}: took more than {allowed:g} s in one session, at {point}")
                self._untold.append(self._late)
        self._since = now

"""Plugins and actions that take too long are interrupted in the thread that decides, and left out.

Python raises an exception in another thread where that one next runs a line of Python. It is asked to only while that
thread is in the code of the plugin that is to blame: entering and leaving it, and asking for the exception, happen
under one lock, and who leaves takes back what was asked for and did not come yet. So nobody else is hit, and nothing
is once the session is over. What never comes back to Python (a call that blocks) cannot be interrupted; it is told by
``/healthz``, since only a restart of the process helps.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from vcd.scheduling.framework.guard import Interrupted, action_name
from vcd.scheduling.framework.policy import Policy

_log = structlog.get_logger(__name__)

ACTION_ALLOWANCE = 10
"""How many times as long as a plugin an action may take: the time of all work of ours that it asks for is its own."""
PAUSES = 10
"""Who was interrupted is left out for so many times the limit, and twice as long each time that it happens again."""
LONGEST_PAUSE = 600.0
STUCK = 60.0
"""Seconds after an interruption that did not help, when the process counts as unhealthy."""
_AGAIN = 1.0
"""Seconds between interruptions of code that goes on all the same: it may catch every exception there is."""
_LOOKS = 0.25
"""Seconds between looks; a twentieth of the limit where that is less."""

_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc


def _interrupt(thread: int) -> None:
    _raise_in(ctypes.c_ulong(thread), ctypes.py_object(Interrupted))


def _take_back(thread: int) -> None:
    _raise_in(ctypes.c_ulong(thread), None)


@dataclass
class _Fired:
    """An interruption: of whom, where, and when it was last asked for."""

    name: str
    point: str
    first: float
    last: float


@dataclass
class _Suspended:
    """Who is left out: why, until when, and for how many seconds in all."""

    fault: str
    until: float
    pause: float


class Watchdog:
    """A `vcd.scheduling.framework.guard.Watch` with a limit in seconds for each plugin's part in a session.

    ``begin``, ``enter``, ``leave`` and ``verdict`` are called in the thread that decides, ``check`` in another.
    ``clock`` gives monotonic seconds.
    """

    def __init__(self, limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._lock = threading.Lock()
        self._inside: list[tuple[str, str]] = []
        self._since = self._began = 0.0
        self._thread = 0
        self._spent: dict[str, float] = {}
        self._fired: _Fired | None = None
        self._suspended: dict[str, _Suspended] = {}
        self._digest = ""
        self._deciding = False
        self._next_look: asyncio.TimerHandle | None = None

    # --- in the thread that decides ---------------------------------------------------------------------------------

    def begin(self, policy: Policy) -> tuple[str, ...]:
        """A session begins: who of the policy's plugins and actions is left out of it, as ``name: what happened``.

        Under another policy than before all are tried again.
        """
        with self._lock:
            if policy.digest != self._digest:
                self._suspended.clear()
                self._digest = policy.digest
            self._spent.clear()
            now = self._began = self._clock()
            return tuple(each.fault for each in self._suspended.values() if now < each.until)

    def enter(self, name: str, point: str) -> int:
        """The thread goes into a plugin or action; the time of the one that it comes from stands still."""
        with self._lock:
            if self._fired is not None:
                self._raise()
            self._count()
            depth = len(self._inside)
            self._inside.append((name, point))
            self._thread = threading.get_ident()
            return depth

    def leave(self, depth: int) -> None:
        """The thread comes out of it, and is in ``depth`` others. Once there are none, nobody is interrupted."""
        with self._lock:
            self._count()
            del self._inside[depth:]
            if self._fired is not None:
                self._raise()

    def verdict(self) -> str:
        """What is to be recorded once Interrupted came out of a session."""
        with self._lock:
            fired, self._fired = self._fired, None
            self._inside.clear()
            _take_back(threading.get_ident())
            if fired is None:
                raise RuntimeError("a session was interrupted, and not by the watchdog")
            self._spent.pop(fired.name, None)  # one that stays, and does nothing any more, has its time anew
            allowed = self._allowed(fired.name)
            fault = f"{fired.name}: interrupted at {fired.point}, since it took more than {allowed:g} s in one session"
            before = self._suspended.get(fired.name)
            pause = self._limit * PAUSES if before is None else min(before.pause * 2, LONGEST_PAUSE)
            self._suspended[fired.name] = _Suspended(fault, self._clock() + pause, pause)
            return fault

    def end(self) -> None:
        """A session is over. Who took part in it and kept to the limit has no past any more."""
        with self._lock:
            self._deciding = False
            for name in self._spent:
                each = self._suspended.get(name)
                if each is not None and each.until <= self._began:
                    del self._suspended[name]

    def _count(self) -> None:
        now = self._clock()
        if self._inside:
            name = self._inside[-1][0]
            self._spent[name] = self._spent.get(name, 0.0) + now - self._since
        self._since = now

    def _raise(self) -> None:
        """In place of the exception that was asked for, which may still be to come, or was caught."""
        _take_back(self._thread)
        raise Interrupted

    # --- in another thread ------------------------------------------------------------------------------------------

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Have the running event loop look now and then, until the session that is decided meanwhile is over.

        It goes on looking when the block is left before that, as when the program is to end.
        """
        loop = asyncio.get_running_loop()
        pause = min(_LOOKS, self._limit / 20)

        def look() -> None:
            self.check()
            self._next_look = loop.call_later(pause, look) if self._deciding else None

        self._deciding = True
        self._next_look = loop.call_later(pause, look)
        try:
            yield
        finally:
            if not self._deciding and self._next_look is not None:
                self._next_look.cancel()

    def check(self) -> None:
        """Interrupt who is in for longer than it may be."""
        with self._lock:
            if not self._inside:
                return
            name, point = self._inside[-1]
            now = self._clock()
            if self._fired is not None:
                if now - self._fired.last < _AGAIN:
                    return
                self._fired.last = now
                _interrupt(self._thread)
                return
            elif self._spent.get(name, 0.0) + now - self._since > self._allowed(name):
                self._fired = _Fired(name, point, now, now)
            else:
                return
            _interrupt(self._thread)
        _log.warning("interrupted", plugin=name, point=point, limit=self._allowed(name))

    def stuck(self) -> str | None:
        """Who could not be interrupted for so long that only a restart helps, in words."""
        with self._lock:
            fired = self._fired
            if fired is None or self._clock() - fired.first < STUCK:
                return None
            return f"{fired.name} does not come back from {fired.point}, and cannot be interrupted"

    def _allowed(self, name: str) -> float:
        return self._limit * (ACTION_ALLOWANCE if name.startswith(action_name("")) else 1)

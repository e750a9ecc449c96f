"""The clocks, threads and random identifiers of a program's machine, simulated.

Call ``install`` before vcd is imported, in a process that does nothing else: it replaces functions of the standard
library by ones that use the running loop.
"""

from __future__ import annotations

import asyncio
import builtins
import gc
import io
import os
import random
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, TypeVar

from tests.simulation.loop import PROCESS, Process, SimulatedLoop

T = TypeVar("T")
EPOCH = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
"""The start of simulations, in seconds since 1970."""
REAL_SECONDS = time.perf_counter
"""The real clock, to measure the cost of a simulation."""
_IN_MEMORY = "/dev/shm"
"""The folder for the temporary files of simulations, unless TMPDIR is set."""

OPENED: dict[int, Process | None] = {}
"""The owner of each descriptor's latest file that Python opened: a program, or None."""


class _Idle:
    """A thread that does not run: its work arrives through the loop."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def start(self) -> None: ...

    def join(self, timeout: float | None = None) -> None: ...


class _Thread(_Idle):
    """A thread whose work is done in the loop at the planned time."""

    def __init__(self, *, target: Callable[[], None], **_: Any) -> None:
        self._target = target

    def start(self) -> None:
        loop = _loop()
        loop.call_later(loop.work_time(), self._target)


class _Turns:
    """The queue of aiosqlite's thread: items are done in sequence, each takes its time, on the disk of the process."""

    def __init__(self) -> None:
        self._free = 0.0

    def put_nowait(self, item: tuple[Any, Callable[[], Any]]) -> None:
        loop, process = _loop(), PROCESS.get()
        disk = getattr(process, "disk", None)
        takes = loop.work_time() if disk is None else disk.time_of_write(loop)
        self._free = max(self._free, loop.time()) + takes
        loop.call_at(self._free, self._perform, disk, *item)

    def _perform(self, disk: Any, future: Any, function: Callable[[], Any]) -> None:
        try:
            result = function() if disk is None else disk.perform(function)
        except Exception as error:  # noqa: BLE001 - the waiting task receives it
            if future is not None and not future.done():
                future.set_exception(error)
            return
        if future is not None and not future.done():
            future.set_result(result)


async def _turn(_: float) -> None:
    """Work of other programs takes time."""
    await asyncio.sleep(_loop().work_time())


def _loop() -> SimulatedLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    return loop


def _simulated() -> SimulatedLoop | None:
    loop = asyncio._get_running_loop()
    return loop if isinstance(loop, SimulatedLoop) else None


def _monotonic(real: Callable[[], float]) -> Callable[..., float]:
    def now(*_: Any) -> float:
        loop = _simulated()
        if loop is None:
            return real()
        process = PROCESS.get()
        return 1000.0 + loop.time() + (process.monotonic_ahead if process else 0.0)

    return now


def _wall(real: Callable[[], float]) -> Callable[[], float]:
    def now() -> float:
        loop = _simulated()
        if loop is None:
            return real()
        process = PROCESS.get()
        return EPOCH + loop.time() + (process.wall_ahead if process else 0.0)

    return now


def _nanoseconds(clock: Callable[[], float]) -> Callable[[], int]:
    return lambda: round(clock() * 1e9)


def _uuid4() -> uuid.UUID:
    return uuid.UUID(int=random.getrandbits(128), version=4)


def _noted(real: Callable[..., Any]) -> Callable[..., Any]:
    """Open a file, and record its owner."""

    def opened(*args: Any, **options: Any) -> Any:
        found = real(*args, **options)
        OPENED[found if isinstance(found, int) else found.fileno()] = PROCESS.get()
        return found

    return opened


def _collect(generation: int = 2, real: Callable[[int], int] = gc.collect) -> int:
    return 0 if _simulated() else real(generation)


def _tried_once(faults: Callable[[Any], T]) -> Callable[[Any], T]:
    """Return a trial of configurations that tries each text once: its result is a function of the text."""
    known: dict[str, T] = {}

    def tried(policy: Any) -> T:
        if policy.digest not in known:
            known[policy.digest] = faults(policy)
        return known[policy.digest]

    return tried


def _own_clock() -> type[object]:
    """A program's clock: that of its machine, for every caller."""
    from vcd.kube.clock import SYSTEM_CLOCK, SteadyClock

    class OwnClock:
        def __init__(self) -> None:
            self._process = PROCESS.get()

        def monotonic(self) -> float:
            return self._asked(SYSTEM_CLOCK.monotonic)

        def wall(self) -> int:
            return self._asked(SYSTEM_CLOCK.wall)

        async def sleep(self, seconds: float) -> None:
            await SYSTEM_CLOCK.sleep(seconds)

        def _asked(self, clock: Callable[[], T]) -> T:
            token = PROCESS.set(self._process)
            try:
                return clock()
            finally:
                PROCESS.reset(token)

    class OwnSteadyClock(SteadyClock):
        def __init__(self) -> None:
            super().__init__(OwnClock())

    return OwnSteadyClock


def install() -> None:
    """Replace the standard library's clocks, threads and identifiers by simulated ones while a SimulatedLoop runs, and
    remove this machine's environment variables that vcd would read."""
    assert os.environ.get("PYTHONHASHSEED") == "0", "hashes of texts would differ from run to run"
    for name in [name for name in os.environ if name.startswith(("VCD_", "POD_"))]:
        del os.environ[name]
    if "TMPDIR" not in os.environ and os.access(_IN_MEMORY, os.W_OK):
        tempfile.tempdir = _IN_MEMORY
    time.monotonic = time.perf_counter = _monotonic(REAL_SECONDS)
    time.time = _wall(time.time)
    time.time_ns = _nanoseconds(time.time)
    time.monotonic_ns = time.perf_counter_ns = _nanoseconds(time.monotonic)
    time.clock_gettime = time.monotonic  # type: ignore[assignment]
    uuid.uuid4 = _uuid4
    os.open = _noted(os.open)
    io.open = builtins.open = _noted(io.open)
    sys.unraisablehook = lambda _: None  # output of killed processes
    gc.freeze = lambda: None  # what one simulation leaves must not stay in memory
    gc.collect = _collect  # type: ignore[assignment]

    from aiosqlite import core

    core.SimpleQueue = _Turns  # type: ignore[attr-defined]
    core.Thread = _Idle  # type: ignore[misc, assignment]

    from vcd.daemon import process, service
    from vcd.daemon.concurrency import followup, threads
    from vcd.daemon.metrics import metrics_collector

    service.SteadyClock = process.SteadyClock = _own_clock()  # type: ignore[misc, assignment]
    followup.SLICE = -1.0  # in simulated time no time slice ends, so each step is one slice
    followup.asyncio = SimpleNamespace(sleep=_turn, to_thread=asyncio.to_thread, Event=asyncio.Event)  # type: ignore[assignment]
    threads.threading = SimpleNamespace(Thread=_Thread)  # type: ignore[assignment]
    metrics_collector._TICK = 5.0  # the period of measuring pauses of the loop, which has none here

    from vcd.scheduling import configuration_trial

    configuration_trial.faults = _tried_once(configuration_trial.faults)

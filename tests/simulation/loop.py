"""An event loop on simulated time, with the processes whose tasks it runs.

Within a process, callbacks run in asyncio's order, on which programs may rely. Between processes the order is drawn, as
are the durations of threads, disks and networks: the seed decides what reality leaves open.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from typing import Any

_COLLECTED = "aclose(): asynchronous generator is already running"
"""Python's message for a generator of a killed process that is collected."""


class Standstill(Exception):
    """No callback is planned, so no time can pass."""


class Restless(Exception):
    """A run took more steps than any run that comes to rest."""


@dataclass(eq=False)
class Process:
    """A replica's program: it can end, be stopped, and has its own clock. ``name`` identifies it in traces."""

    name: str
    alive: bool = True
    stops: list[object] = field(default_factory=list)
    """The reasons for which it is stopped; while there is one, none of its callbacks run, and time passes."""
    wall_ahead: float = 0.0
    """Seconds by which its machine's wall clock is ahead of the true time."""
    busy: float = 0.0
    """Seconds added to each piece of work in a thread, because its machine is busy."""
    ready: deque[asyncio.Handle] = field(default_factory=deque)
    signals: dict[int, Callable[[], Any]] = field(default_factory=dict)
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    """The tasks that may still fail, and the failed tasks whose exception was not retrieved."""
    _looked_at: int = 0

    def __post_init__(self) -> None:
        digest = sha256(self.name.encode()).digest()
        self.monotonic_ahead = int.from_bytes(digest[:3], "big") / 16
        """The offset of its monotonic clock to the loop's: each machine has its own boot time."""

    @property
    def stopped(self) -> bool:
        """Stop it, as SIGSTOP does."""
        return bool(self.stops)

    def go_on(self, stop: object) -> None:
        """Remove one reason for which it is stopped, if it is present."""
        if stop in self.stops:
            self.stops.remove(stop)

    def begun(self, task: asyncio.Task[Any]) -> None:
        """Record a task until it has succeeded."""
        self.tasks.append(task)
        if len(self.tasks) > 2 * self._looked_at + 200:
            self.tasks = [each for each in self.tasks if not each.done() or _is_unseen(each)]
            self._looked_at = len(self.tasks)

    def unseen(self) -> list[asyncio.Task[Any]]:
        """Return the failed tasks whose exceptions were not retrieved, or none while a task may be about to retrieve
        them."""
        return [] if self.ready else [each for each in self.tasks if _is_unseen(each)]

    def context(self) -> Context:
        """Return a context whose tasks belong to this process."""
        context = copy_context()
        context.run(PROCESS.set, self)
        return context

    def kill(self) -> None:
        """End it as SIGKILL does."""
        self.alive = False
        self.ready.clear()


def _is_unseen(task: asyncio.Task[Any]) -> bool:
    """Return whether a task failed and its exception was not retrieved."""
    return bool(task._log_traceback)  # type: ignore[attr-defined]


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


class _Task(asyncio.Task[Any]):
    """A task with a fixed hash, so that the order of sets is the same in each run."""

    def __init__(self, number: int, coro: Any, **options: Any) -> None:
        self._number = number  # asyncio puts the task into a set at once
        super().__init__(coro, **options)
        self._log_destroy_pending = False  # a killed process leaves unfinished tasks

    def __hash__(self) -> int:
        return self._number


class _Future(asyncio.Future[Any]):
    """A future with a fixed hash, so that the order of sets is the same in each run. Its loop sets ``number``."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class _Ready:
    """The callbacks that are ready, by process. BaseEventLoop appends to it."""

    def __init__(self, world: Process) -> None:
        self.world = world
        self.processes = [world]

    def append(self, handle: asyncio.Handle) -> None:
        process = handle._context.get(PROCESS) or self.world  # type: ignore[attr-defined]
        if process.alive:
            process.ready.append(handle)

    def clear(self) -> None:
        for process in self.processes:
            process.ready.clear()


class SimulatedLoop(asyncio.BaseEventLoop):
    """``rng`` draws what reality leaves open. After ``most`` steps, Restless is raised."""

    def __init__(self, rng: Random, most: int) -> None:
        super().__init__()
        self._tasks = self._futures = 0
        self.rng = rng
        self.now = 0.0
        """Seconds since the simulation began."""
        self.steps = 0
        self.most = most
        self.world = Process("world")
        self._ready: Any = _Ready(self.world)
        self.set_task_factory(self._made)
        self._broken: list[dict[str, Any]] = []
        self.set_exception_handler(self._unseen)

    def _made(self, _: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        self._tasks += 1
        task = _Task(self._tasks, coro, loop=self, **options)
        context = options.get("context")
        process = PROCESS.get() if context is None else context.get(PROCESS)
        (process or self.world).begun(task)
        return task

    def _unseen(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if str(context.get("exception")) != _COLLECTED:
            self._broken.append(context)

    @property
    def broken(self) -> list[dict[str, Any]]:
        """The exceptions that no task retrieved."""
        for process in self._ready.processes:
            if process.alive:  # ended processes were examined at their end
                self.look_through(process)
        return self._broken

    def look_through(self, process: Process) -> None:
        """Record the exceptions of a process that no task retrieved, or will retrieve, because it has just ended."""
        for task in process.unseen():
            message = f"{process.name}: no task retrieved the exception of {task.get_coro().__qualname__}"  # type: ignore[union-attr]
            self._broken.append({"message": message, "exception": task.exception()})

    # --- processes ----------------------------------------------------------------------------------------------------

    def add_process(self, process: Process) -> None:
        """Run the tasks of a process from now on."""
        self._ready.processes = [each for each in self._ready.processes if each.alive]
        self._ready.processes.append(process)

    def add_signal_handler(self, sig: int, callback: Callable[..., Any], *args: Any) -> None:
        """Call a function of the calling process at a signal."""
        process, context = PROCESS.get(), copy_context()
        assert process is not None
        process.signals[sig] = lambda: self.call_soon(callback, *args, context=context)

    def remove_signal_handler(self, sig: int) -> bool:
        """Remove the calling process's handler of a signal."""
        process = PROCESS.get()
        return process is not None and process.signals.pop(sig, None) is not None

    # --- time ---------------------------------------------------------------------------------------------------------

    def time(self) -> float:
        """Simulated seconds."""
        return self.now

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Plan a callback. Times are compared as numbers, at a fifth of the cost of comparing handles."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, (when, handle))  # type: ignore[attr-defined]
        return handle

    def get_debug(self) -> bool:
        """Return False; asyncio calls this at each callback."""
        return False

    def _run_once(self) -> None:
        self.steps += 1
        if self.steps > self.most:
            raise Restless(f"{self.most} steps by {self.now:.3f} s")
        runnable = [each for each in self._ready.processes if each.ready and not each.stops]
        if not runnable:
            self._advance()
            return
        process = runnable[0] if len(runnable) == 1 else self.rng.choice(runnable)
        handle = process.ready.popleft()
        if not handle.cancelled():
            handle._run()

    def _advance(self) -> None:
        """Advance to the next planned moment; callbacks of one moment run in a drawn order."""
        scheduled: list[tuple[float, asyncio.TimerHandle]] = self._scheduled  # type: ignore[attr-defined]
        due: list[asyncio.TimerHandle] = []
        while scheduled and (not due or scheduled[0][0] <= self.now):
            when, handle = heapq.heappop(scheduled)
            if handle.cancelled():
                continue
            process = handle._context.get(PROCESS)  # type: ignore[attr-defined]
            if process is not None and not process.alive:
                continue
            self.now = max(self.now, when)
            due.append(handle)
        if not due:
            raise Standstill(f"nothing is left to happen after {self.now:.3f} s")
        if len(due) > 1:
            self.rng.shuffle(due)
        for handle in due:
            self._ready.append(handle)

    # --- edges --------------------------------------------------------------------------------------------------------

    def work_time(self) -> float:
        """Return the seconds that work in a thread takes: mostly almost none, sometimes long enough to matter."""
        draw, process = self.rng.random(), PROCESS.get()
        busy = 0.0 if process is None else process.busy * self.rng.random()
        return busy + (draw * 0.001 if draw < 0.9 else draw * 0.1)

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: Any) -> Any:
        """Do the work later, even if no task waits for it any more: threads cannot be cancelled."""
        future = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - the waiting task receives it
                if not future.done():
                    future.set_exception(error)
                return
            if not future.done():
                future.set_result(result)

        self.call_later(self.work_time(), work)
        return future

    def create_future(self) -> Any:
        """Return a new future."""
        future = _Future(loop=self)
        self._futures += 1
        future.number = -2 - self._futures
        return future

    def _write_to_self(self) -> None:
        """Do nothing: there is no other thread that has to wake this one."""

    def _process_events(self, event_list: object) -> None:
        """Do nothing: only this loop produces events."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is none."""

"""Run parts of a long task in processes, and return their results in order."""

from __future__ import annotations

import gc
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from multiprocessing import get_context, resource_tracker
from typing import TypeVar

from vcd.eventlog import LogError

T = TypeVar("T")
Part = tuple[int, int]
_GARBAGE = 5000
"""Allocations that trigger a garbage collection. Sessions allocate many objects, and Python's default of 700 costs a
tenth of their time."""
_AHEAD = 2
"""Parts that are queued for a process, so that it has the next one at once."""


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Yield an executor whose processes start on demand and are killed at the end of the context."""
    # spawn: a fork would copy locks of the caller's threads
    with ProcessPoolExecutor(count, get_context("spawn"), gc.set_threshold, (_GARBAGE,)) as executor:
        try:
            yield executor
        finally:
            for process in list((executor._processes or {}).values()):  # kill_workers() from Python 3.14 on
                process.kill()


@contextmanager
def ignoring_ctrl_c() -> Iterator[None]:
    """Let processes that start in this context ignore Ctrl-C; this process handles it and ends them."""
    # otherwise the first process would start it, and it unblocks SIGINT when it starts
    resource_tracker.ensure_running()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # processes inherit this mask
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@contextmanager
def worker_process() -> Iterator[Callable[[Callable[[], T]], Callable[[], T]]]:
    """Yield a function that starts work in another process, and returns a function that waits for its result. That one
    raises what the work raises, or LogError if the process ends early."""
    with processes(1) as executor:

        def begin(work: Callable[[], T]) -> Callable[[], T]:
            with ignoring_ctrl_c():
                begun = executor.submit(work)

            def wait() -> T:
                try:
                    return begun.result()
                except BrokenProcessPool:
                    raise LogError("a worker process ended unexpectedly") from None

            return wait

        yield begin


def in_order(
    work: Callable[[Part], Iterable[T]],
    parts: Sequence[Part],
    jobs: int,
    finished: Callable[[int], None] = lambda _: None,
) -> Iterator[T]:
    """Yield the results of ``parts`` in order, computed by ``work`` in up to ``jobs`` processes (at least one).
    ``finished`` is called with the number of results of each part as soon as it is done.

    Each process has consecutive parts; when these are done, it takes the last unstarted part of another. The processes
    end with the iterator. Raises what a part raises, and BrokenProcessPool if a process ends early, after the results
    of the parts before it.
    """
    count = min(max(jobs, 1), len(parts))
    with ExitStack() as stack:
        executors = [stack.enter_context(processes(1)) for _ in range(count)]
        shares = _Shares(len(parts), count)
        begun: dict[int, Future[list[T]]] = {}
        running: dict[Future[list[T]], int] = {}

        def begin(process: int) -> None:
            place = shares.next_of(process)
            if place is None:
                return
            try:
                begun[place] = executors[process].submit(_all_of, work, parts[place])
                running[begun[place]] = process
            except BrokenProcessPool as error:  # the process has ended, so the part has no result
                begun[place] = Future()
                begun[place].set_exception(error)

        with ignoring_ctrl_c():
            for process in [*range(count)] * _AHEAD:
                begin(process)
        for place in range(len(parts)):
            while place not in begun or not begun[place].done():
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    begin(running.pop(future))
                    if future.exception() is None:
                        finished(len(future.result()))
            yield from begun.pop(place).result()


class _Shares:
    """The parts that each process has not started yet."""

    def __init__(self, parts: int, processes: int) -> None:
        ends = [parts * (process + 1) // processes for process in range(processes)]
        self._left = [deque(range(begin, end)) for begin, end in pairwise([0, *ends])]

    def next_of(self, process: int) -> int | None:
        """Return the next part for a process, by its place; None if all are started."""
        own, most = self._left[process], max(self._left, key=len)
        if own:
            return own.popleft()
        return most.pop() if most else None


def _all_of(work: Callable[[Part], Iterable[T]], part: Part) -> list[T]:
    return list(work(part))

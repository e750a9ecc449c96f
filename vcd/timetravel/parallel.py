"""A long work in parts, done by processes of our own, with the results in the order of the parts."""

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
"""What is made is looked through for garbage after so many objects: sessions make many, and it takes a tenth of their
time at Python's own 700."""
_AHEAD = 2
"""So many parts a process is given, so that it has the next one at once."""


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that begin with the work that they are given and end with the context, whatever they do then."""
    # spawn: a fork would copy the threads' locks of whoever calls
    with ProcessPoolExecutor(count, get_context("spawn"), gc.set_threshold, (_GARBAGE,)) as executor:
        try:
            yield executor
        finally:
            for process in list((executor._processes or {}).values()):  # kill_workers() from Python 3.14 on
                process.kill()


@contextmanager
def kept_from_ctrl_c() -> Iterator[None]:
    """Processes that begin meanwhile are deaf to Ctrl-C: it is for this one alone, which ends them."""
    resource_tracker.ensure_running()  # else the first process begins it, and it lets SIGINT through when it has begun
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # processes begin with this one's mask
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@contextmanager
def beside() -> Iterator[Callable[[Callable[[], T]], Callable[[], T]]]:
    """What begins a work in a process of its own, and gives what waits for its result and raises what it raises, or
    LogError where the process ends before its time."""
    with processes(1) as executor:

        def begin(work: Callable[[], T]) -> Callable[[], T]:
            with kept_from_ctrl_c():
                begun = executor.submit(work)

            def wait() -> T:
                try:
                    return begun.result()
                except BrokenProcessPool:
                    raise LogError("a process that works beside this one ended before its time") from None

            return wait

        yield begin


def in_order(
    work: Callable[[Part], Iterable[T]],
    parts: Sequence[Part],
    jobs: int,
    finished: Callable[[int], None] = lambda _: None,
) -> Iterator[T]:
    """The results of ``parts``, done by up to ``jobs`` processes (at least one), to which ``work`` is sent;
    ``finished`` is told how many came, part by part, as soon as they did.

    Each process has parts that follow each other, and when it has done these takes the last that another has not begun.
    The processes end with the iterator, however that ends. Raises what a part raises, and BrokenProcessPool where a
    process ends before its time; the results of the parts before it are given first.
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
            except BrokenProcessPool as error:  # it has ended, and has no more results
                begun[place] = Future()
                begun[place].set_exception(error)

        with kept_from_ctrl_c():
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
    """Which parts each process has not begun yet."""

    def __init__(self, parts: int, processes: int) -> None:
        ends = [parts * (process + 1) // processes for process in range(processes)]
        self._left = [deque(range(begin, end)) for begin, end in pairwise([0, *ends])]

    def next_of(self, process: int) -> int | None:
        """The next part for a process, by its place; None where all are begun."""
        own, most = self._left[process], max(self._left, key=len)
        if own:
            return own.popleft()
        return most.pop() if most else None


def _all_of(work: Callable[[Part], Iterable[T]], part: Part) -> list[T]:
    return list(work(part))

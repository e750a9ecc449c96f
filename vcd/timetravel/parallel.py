"""A long work in parts, done by processes of our own, with the results in the order of the parts."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, resource_tracker
from typing import TypeVar

from vcd.eventlog import LogError

T = TypeVar("T")
Part = tuple[int, int]


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that begin with the work that they are given and end with the context, whatever they do then."""
    # spawn: a fork would copy the threads' locks of whoever calls
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as executor:
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


def in_order(work: Callable[[Part], Iterable[T]], parts: Sequence[Part], jobs: int) -> Iterator[T]:
    """The results of ``parts``, done by up to ``jobs`` processes, to which ``work`` is sent.

    The processes end with the iterator, however that ends. Raises what a part raises, and BrokenProcessPool where a
    process ends before its time; the results of the parts before it are given first.
    """
    with processes(min(jobs, len(parts))) as executor:
        with kept_from_ctrl_c():
            done = [executor.submit(_all_of, work, part) for part in parts]
        for future in done:
            yield from future.result()


def _all_of(work: Callable[[Part], Iterable[T]], part: Part) -> list[T]:
    return list(work(part))

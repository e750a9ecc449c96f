"""A long work in parts, done by processes of our own, with the results in the order of the parts."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")
Part = tuple[int, int]
Work = Callable[[Part], Iterable[T]]
Begin = Callable[..., AbstractContextManager[Work[T]]]
"""Makes the work in a process; a function of a module, since it is sent there by name."""


class Failed(Exception):
    """A part could not be done; the message is what the exception in its process said."""


class Lost(Exception):
    """A process ended before its part was done; ``code`` is its exit code, below zero for a signal's number."""

    def __init__(self, code: int | None) -> None:
        super().__init__(f"a process ended with {code}")
        self.code = code


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))


def in_order(
    begin: Begin[T],
    arguments: tuple[Any, ...],
    parts: Sequence[Part],
    jobs: int,
    expected: type[Exception],
    arrived: Callable[[], None] = lambda: None,
) -> Iterator[T]:
    """The results of ``parts``, done by up to ``jobs`` processes, each of which calls ``begin(*arguments)`` once.

    ``arrived`` is called for each result, as it comes. The processes end with the iterator, however that ends.
    Raises Failed where a part raises ``expected``, and Lost where a process ends before its time; all results before
    it are given first.
    """
    collected: _Collected[T] = _Collected(parts, arrived)
    with _processes(begin, arguments, min(jobs, len(parts)), expected) as running:
        for connection in running:
            collected.hand_out(connection)
        while not collected.is_whole:
            yield from collected.due()
            if collected.is_whole:
                return
            for ready in wait(list(running)):
                connection = cast(Connection, ready)
                try:
                    collected.take(connection)
                except (EOFError, ConnectionResetError):
                    process = running.pop(connection)
                    process.join()
                    collected.lost(connection, process.exitcode)


class _Collected(Generic[T]):
    """Results as they come, given out in order."""

    def __init__(self, parts: Sequence[Part], arrived: Callable[[], None]) -> None:
        self._parts = parts
        self._arrived = arrived
        self._results: list[deque[T | Exception]] = [deque() for _ in parts]
        self._ended = [False] * len(parts)
        self._handed_out = 0
        self._given = 0
        self._doing: dict[Connection, int] = {}

    @property
    def is_whole(self) -> bool:
        """Whether all was given out."""
        return self._given == len(self._parts)

    def hand_out(self, connection: Connection) -> None:
        """Give the next part to a process, where there is one left."""
        if self._handed_out < len(self._parts):
            self._doing[connection] = self._handed_out
            with suppress(BrokenPipeError):  # that it is gone is seen when it is read from
                connection.send(self._parts[self._handed_out])
            self._handed_out += 1

    def take(self, connection: Connection) -> None:
        """Receive one message of a process. Raises EOFError when it is gone."""
        kind, value = connection.recv()
        part = self._doing[connection]
        if kind == "result":
            self._results[part].append(value)
            self._arrived()
            return
        self._ended[part] = True
        if kind == "failed":
            self._results[part].append(Failed(value))
        else:
            self.hand_out(connection)

    def lost(self, connection: Connection, code: int | None) -> None:
        """A process is gone, and with it what it was doing."""
        part = self._doing[connection]
        if not self._ended[part]:
            self._results[part].append(Lost(code))
            self._ended[part] = True

    def due(self) -> Iterator[T]:
        """What is next in order and here."""
        while not self.is_whole:
            results = self._results[self._given]
            while results:
                result = results.popleft()
                if isinstance(result, (Failed, Lost)):
                    raise result
                assert not isinstance(result, Exception)
                yield result
            if not self._ended[self._given]:
                return
            self._given += 1


@contextmanager
def _processes(
    begin: Begin[T], arguments: tuple[Any, ...], count: int, expected: type[Exception]
) -> Iterator[dict[Connection, SpawnProcess]]:
    """Processes that wait for parts. Ctrl-C is for this one alone: it ends them."""
    context = multiprocessing.get_context("spawn")
    running: dict[Connection, SpawnProcess] = {}
    resource_tracker.ensure_running()  # else the first process begins it, and it lets SIGINT through when it has begun
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # processes begin with this one's mask
    try:
        try:
            for _ in range(count):
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(theirs, begin, arguments, expected), daemon=True)
                process.start()
                theirs.close()
                running[ours] = process
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        yield running
    finally:
        for process in running.values():
            process.terminate()
        for connection, process in running.items():
            connection.close()
            process.join()


def _serve(connection: Connection, begin: Begin[T], arguments: tuple[Any, ...], expected: type[Exception]) -> None:
    """What a process does: part after part, until nobody wants more."""
    try:
        part = connection.recv()
        try:
            with begin(*arguments) as work:
                while True:
                    for result in work(part):
                        connection.send(("result", result))
                    connection.send(("done", None))
                    part = connection.recv()
        except expected as error:
            connection.send(("failed", str(error)))
            connection.recv()  # until this process is ended: what comes after a failure is of no use
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # who wanted the results is gone

"""Gives a synchronous command the log of a running cluster: as it is now, or followed while the command runs.

`log_copy` does the work on an event loop. A followed log has a thread and a loop of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from vcd.daemon.reader.kubeconfig import Way, way_of
from vcd.daemon.reader.log_cache import Cache
from vcd.daemon.reader.log_copy import LogCopier, ReadUpTo, Say
from vcd.kube.kube_connection import Context

_LAST_WORDS = 1.0
"""Seconds for writing the last messages to a terminal."""


@dataclass(frozen=True)
class LogRequest:
    """Which log to read: kubeconfig and context, NAMESPACE or NAMESPACE/NAME of the Lease (empty: search), and a file
    with a token (default: create one)."""

    kubeconfig: str | None = None
    context: str | None = None
    where: str = ""
    token_file: Path | None = None

    async def taker(self, say: Say) -> tuple[Way, LogCopier]:
        """Connect, and return the copier. Raises ClusterError."""
        way = await way_of(self.kubeconfig, self.context, tunnel=True)
        return way, LogCopier(way, self.where, self.token_file, say)


@dataclass(frozen=True)
class ReadableLog:
    """A log's file, its extent, and the kubeconfig context (nameless: a pod's service account)."""

    path: Path
    taken: ReadUpTo
    context: Context


@contextmanager
def copied_log(asked: LogRequest, say: Say) -> Iterator[ReadableLog]:
    """Copy the log as it is now into a file that remains until the context ends. Raises ClusterError, LogError."""

    async def take() -> tuple[Cache, ReadUpTo, Context]:
        way, taker = await asked.taker(say)
        taken = await taker.once()
        return taker.cache, taken, way.context

    cache, taken, context = asyncio.run(take())
    with cache.reading() as path:
        yield ReadableLog(path, taken, context)


class Followed:
    """A log that is followed: its current file, and its extent at the start."""

    def __init__(self, cache: Cache, taken: ReadUpTo, context: Context) -> None:
        self._cache = cache
        self.taken = taken
        self.context = context

    def reading(self) -> AbstractContextManager[Path]:
        """Return the file, which is only subject to retention while the context lasts."""
        return self._cache.following()

    def is_other(self, path: Path) -> bool:
        """Return whether the log moved to another file, because the leader's history differs."""
        return self._cache.path != path


@contextmanager
def followed(asked: LogRequest, say: Say) -> Iterator[Followed]:
    """Follow the log in a thread while the context lasts. Raises ClusterError, LogError."""
    thread = _Thread(asked, say)
    thread.start()
    try:
        yield thread.began()
    finally:
        thread.stop()


class _Speaker(threading.Thread):
    """Writes messages in a thread of its own: a suspended terminal (Ctrl-S) must not stop the copying, because other
    commands read the same file."""

    def __init__(self, say: Say) -> None:
        super().__init__(name="speaker", daemon=True)
        self._say = say
        self._texts: SimpleQueue[str | None] = SimpleQueue()

    def __call__(self, text: str) -> None:
        self._texts.put(text)

    def run(self) -> None:
        while (text := self._texts.get()) is not None:
            self._say(text)

    def end(self) -> None:
        """Write the remaining messages, unless the terminal is suspended."""
        self._texts.put(None)
        self.join(_LAST_WORDS)


class _Thread(threading.Thread):
    """Follows a log on an event loop of its own."""

    def __init__(self, asked: LogRequest, say: Say) -> None:
        super().__init__(name="reader", daemon=True)
        self._asked = asked
        self._say = _Speaker(say)
        self._answered = threading.Event()
        self._followed: Followed | None = None
        self._failure: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None

    def run(self) -> None:
        self._say.start()
        asyncio.set_event_loop(self._loop)
        try:
            self._task = self._loop.create_task(self._follow())
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass  # `stop` was called
        except BaseException as error:  # noqa: BLE001 - `began` raises it to the caller
            self._failure = error
            if self._followed is not None:
                self._say(f"the log is followed no more: {error}")
        finally:
            self._say.end()
            self._answered.set()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    async def _follow(self) -> None:
        way, taker = await self._asked.taker(self._say)

        def ready(taken: ReadUpTo) -> None:
            self._followed = Followed(taker.cache, taken, way.context)
            self._answered.set()

        await taker.forever(ready)

    def began(self) -> Followed:
        """Return the log once it is complete; raise the error if that fails."""
        self._answered.wait()
        if self._followed is None:
            assert self._failure is not None
            raise self._failure
        return self._followed

    def stop(self) -> None:
        """Stop following."""
        if self.is_alive():
            self._loop.call_soon_threadsafe(self._end)
        self.join()

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()

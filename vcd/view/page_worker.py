"""Worker processes that answer the page's questions, so that an expensive question does not block the event loop."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from functools import partial
from multiprocessing import connection
from weakref import WeakValueDictionary

from aiohttp import web

from vcd.view import questions
from vcd.view.visibility import UnreviewedRights, Visibility

LIMIT = 60.0
"""Seconds that a question may wait for its turn, and then seconds that its answer may take."""

_PATIENCE = 10
"""Niceness above that of the scheduling process: decisions matter more than explanations."""


class Worker:
    """A process that answers one question at a time, and is replaced if it dies.

    Requesters take turns: at most one question of each waits for the process, and its other questions wait behind that
    one. So a requester that sends many questions delays any other requester by one question.
    """

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._turn = asyncio.Lock()
        self._turn_of = WeakValueDictionary[str, asyncio.Lock]()
        """Locks that are held while a question of a requester waits or is answered."""

    async def ask(
        self,
        path: str,
        question: str,
        given: tuple[str, ...],
        visibility: Visibility | None,
        called: str = "",
        requester: str = "",
    ) -> questions.Answer | UnreviewedRights:
        """Return the result of ``questions.answer``. Raises HTTPServiceUnavailable, and what the question raised."""
        own = self._turn_of.setdefault(requester, asyncio.Lock())
        try:
            with ExitStack() as turns:
                async with asyncio.timeout(LIMIT):
                    for lock in (own, self._turn):
                        await lock.acquire()
                        turns.callback(lock.release)
                held = turns.pop_all()
        except TimeoutError:
            words = f"busy: earlier queries took more than {LIMIT:.0f} s; try again"
            raise web.HTTPServiceUnavailable(text=words) from None
        answering = asyncio.create_task(
            self._answer(partial(questions.answer, path, question, given, visibility, called))
        )
        answering.add_done_callback(partial(self._end_turn, held))
        # if the client disconnects, the process keeps working, and the next question's time limit must not begin yet
        return await asyncio.shield(answering)

    async def _answer(
        self, answer: Callable[[], questions.Answer | UnreviewedRights]
    ) -> questions.Answer | UnreviewedRights:
        if self._pool is None:
            # a fork would copy the scheduler's threads in an undefined state
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(1, context, initializer=_begin)
        try:
            async with asyncio.timeout(LIMIT):
                return await asyncio.get_running_loop().run_in_executor(self._pool, answer)
        except TimeoutError:
            await self.stop()  # otherwise it would keep working on an abandoned answer while the next question waits
            raise web.HTTPServiceUnavailable(
                text=f"the answer takes more than {LIMIT:.0f} s; try again later"
            ) from None
        except BrokenProcessPool:
            self._pool = None
            raise web.HTTPServiceUnavailable(text="the worker process ended; try again") from None

    @staticmethod
    def _end_turn(held: ExitStack, answering: asyncio.Task[questions.Answer | UnreviewedRights]) -> None:
        held.close()
        if not answering.cancelled():
            answering.exception()  # retrieve the exception: the client may have disconnected

    async def stop(self) -> None:
        """Kill the process; it only reads."""
        if self._pool is None:
            return
        for process in list((self._pool._processes or {}).values()):  # kill_workers() from Python 3.14 on
            process.kill()
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)
        self._pool = None


def _begin() -> None:
    """Set up a new worker process: ignore Ctrl-C, which is meant for the parent; end with the parent; run at low
    priority."""
    os.nice(_PATIENCE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)

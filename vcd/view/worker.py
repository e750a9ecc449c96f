"""The process that answers what the page asks, so that a heavy question stops nobody's loop."""

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
from vcd.view.sight import PartialSight, Unasked

LIMIT = 60.0
"""Seconds that a question may take once it is its turn, and that it may wait for its turn."""

_PATIENCE = 10
"""By how much it is nicer than the process that schedules: explaining waits, binding does not."""


class Worker:
    """A process that answers one question at a time; a new one after one that died.

    Requesters take turns: of each, one question at most waits for the process, and the others wait for that one. So a
    requester that sends many questions delays each other requester by one of them.
    """

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._turn = asyncio.Lock()
        self._turn_of = WeakValueDictionary[str, asyncio.Lock]()
        """Held while a question of a requester waits for the process, or is answered."""

    async def ask(
        self,
        path: str,
        question: str,
        given: tuple[str, ...],
        sight: PartialSight | None,
        called: str = "",
        requester: str = "",
    ) -> questions.Answer | Unasked:
        """The answer, as ``questions.answer`` gives it. Raises HTTPServiceUnavailable, and what the question raised."""
        own = self._turn_of.setdefault(requester, asyncio.Lock())
        try:
            with ExitStack() as turns:
                async with asyncio.timeout(LIMIT):
                    for lock in (own, self._turn):
                        await lock.acquire()
                        turns.callback(lock.release)
                held = turns.pop_all()
        except TimeoutError:
            words = f"busy: the questions before this one took more than {LIMIT:.0f} s; ask again"
            raise web.HTTPServiceUnavailable(text=words) from None
        answering = asyncio.create_task(self._answer(partial(questions.answer, path, question, given, sight, called)))
        answering.add_done_callback(partial(self._end_turn, held))
        # who asked may go away: the process works on all the same, and the next question's limit must not begin
        return await asyncio.shield(answering)

    async def _answer(self, answer: Callable[[], questions.Answer | Unasked]) -> questions.Answer | Unasked:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")  # a fork would copy a scheduler's threads half-way
            self._pool = ProcessPoolExecutor(1, context, initializer=_begin)
        try:
            async with asyncio.timeout(LIMIT):
                return await asyncio.get_running_loop().run_in_executor(self._pool, answer)
        except TimeoutError:
            await self.stop()  # or it would work on, and the next question wait for nobody's answer
            raise web.HTTPServiceUnavailable(
                text=f"the answer takes more than {LIMIT:.0f} s; try again later"
            ) from None
        except BrokenProcessPool:
            self._pool = None
            raise web.HTTPServiceUnavailable(text="the process that answers ended; ask again") from None

    @staticmethod
    def _end_turn(held: ExitStack, answering: asyncio.Task[questions.Answer | Unasked]) -> None:
        held.close()
        if not answering.cancelled():
            answering.exception()  # looked at, since who asked may be gone

    async def stop(self) -> None:
        """End the process, whatever it does: it only reads."""
        if self._pool is None:
            return
        for process in list((self._pool._processes or {}).values()):  # kill_workers() from Python 3.14 on
            process.kill()
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)
        self._pool = None


def _begin() -> None:
    """Set a new worker process up: Ctrl-C is for the one who started it, and with that one it ends; work of others that
    wants the processor goes first."""
    os.nice(_PATIENCE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)

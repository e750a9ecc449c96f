"""Work in threads that nobody waits for at the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from vcd.daemon.concurrency import threads


async def test_what_it_gives_or_raises_is_told() -> None:
    assert await threads.in_thread(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await threads.in_thread(divmod, 1, 0)


async def test_one_cancelled_before_its_thread_began_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Callable[[], None]] = []
    called: list[int] = []

    class SlowToBegin(threading.Thread):
        def start(self) -> None:
            begun.append(self.run)

    monkeypatch.setattr(threads.threading, "Thread", SlowToBegin)
    waiting = asyncio.ensure_future(threads.in_thread(called.append, 1))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    begun[0]()
    assert called == []

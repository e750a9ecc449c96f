"""Ways to wait for other work that leave none of it behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    """Return when the first of some waits has ended, and the others, which are cancelled; raises what it raised."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:  # one that was cancelled may have failed at its last piece of work
        if not task.cancelled():
            task.result()


async def ended(work: Awaitable[T]) -> T:
    """What some work gives or raises; it is done to its end, though who waits for it is cancelled."""
    task, cancelled = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    result = task.result()
    if cancelled:
        raise asyncio.CancelledError
    return result


def is_cancelled() -> bool:
    """Whether the task that asks was told to end, and is not only waiting for one that was."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0

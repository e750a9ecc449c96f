"""Helpers for asyncio tasks: races between coroutines and work that must not be cancelled.

None of them leaves a running task behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def run_until_first(*coroutines: Coroutine[Any, Any, Any]) -> None:
    """Run coroutines until the first one ends, cancel the others and wait for them.

    Raises what any of them raised.
    """
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:  # all tasks: one can also fail while it handles its cancellation
        if not task.cancelled():
            task.result()


async def run_to_completion(work: Awaitable[T]) -> T:
    """Return the result of ``work``, which runs to its end even if the caller is cancelled.

    The cancellation is raised afterwards.
    """
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


def is_being_cancelled() -> bool:
    """Return whether the current task was cancelled, as opposed to a task that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0

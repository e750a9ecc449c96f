"""Work in threads that the program's end does not wait for: what they do may never come to an end."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What ``function`` gives, called in a thread of its own, which goes on alone when the wait is cancelled.

    It is not called when the wait was cancelled before the thread began.
    """
    future: Future[T] = Future()
    context = contextvars.copy_context()

    def work() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(context.run(function, *args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - who waits is told, whatever it is
            future.set_exception(error)

    threading.Thread(target=work, name=function.__name__, daemon=True).start()
    return await asyncio.wrap_future(future)

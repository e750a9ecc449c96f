"""Daemon threads for work that may never return, such as third-party plugins and name lookups.

The default executor is no alternative: the process waits for its threads at exit.
"""

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
    """Call ``function`` in a thread of its own, which continues if the caller is cancelled.

    The function is not called if the caller is cancelled before the thread starts.
    """
    future: Future[T] = Future()
    context = contextvars.copy_context()

    def work() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(context.run(function, *args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - raised to the caller
            future.set_exception(error)

    threading.Thread(target=work, name=function.__name__, daemon=True).start()
    return await asyncio.wrap_future(future)

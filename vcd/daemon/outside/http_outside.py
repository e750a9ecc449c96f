"""Sends a session's requests to outside services over HTTP: the session's thread waits, the event loop works.

It implements `vcd.scheduling.session.outside.Outside`; answers are recorded there. The timeout bounds the whole
exchange including the name lookup, so that a server that hangs or sends single bytes cannot delay a session longer.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import io
import re
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import aiohttp
from yarl import URL

from vcd.daemon.outside.http_client import headers_for, open_session, read_within
from vcd.scheduling.framework.arguments import format_duration
from vcd.scheduling.session.outside import OUT_OF_TIME, Question, Reply

_STOPPING = Reply(error="stopping")
AT_ONCE = 16
"""Questions in flight at a time, as many as vc-scheduler has workers for nodes."""
_LOOK = 0.25
"""Seconds between checks whether the waiting plugin is late."""
_LONGEST = 86_400.0
"""Longest timeout in seconds."""
_SPARED = 65_536
"""Bytes of an error's body that are read, so that the connection can be reused."""
_BLANK = re.compile(r"[\x00-\x20\x7f]")


class HttpOutside:
    """Send plugins' questions to outside services over persistent HTTP connections.

    Create it on the event loop and call it from other threads. ``look`` is called periodically during a wait, and may
    raise.
    """

    def __init__(self, look: Callable[[], None] = lambda: None) -> None:
        self._look = look
        self._loop = asyncio.get_running_loop()
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._session: aiohttp.ClientSession | None = None
        self._calls: set[asyncio.Task[Reply]] = set()
        self._closed = False

    def ask(self, question: Question) -> Reply:
        """Return the answer, or an error: a status other than 200, an answer that is too long, or a timeout."""
        (reply,) = self.ask_all([question], round(_LONGEST * 1e9))
        return reply

    def ask_all(self, questions: Sequence[Question], within: int) -> list[Reply]:
        """Return the answers of concurrent questions, AT_ONCE at a time.

        Questions without an answer after ``within`` nanoseconds get the error OUT_OF_TIME.
        """
        if self._closed:
            return [_STOPPING] * len(questions)
        answering = asyncio.run_coroutine_threadsafe(self._answer_all(questions, within / 1e9), self._loop)
        try:
            while not concurrent.futures.wait([answering], _LOOK).done:
                self._look()
            return answering.result()
        finally:
            answering.cancel()  # has an effect only if the wait was interrupted

    async def close(self) -> None:
        """Close all connections. Questions in flight and later ones get an error."""
        self._closed = True
        for call in self._calls:
            call.cancel()
        if self._session is not None:
            await self._session.close()

    async def _answer_all(self, questions: Sequence[Question], seconds: float) -> list[Reply]:
        if self._closed:
            return [_STOPPING] * len(questions)
        calls = [self._loop.create_task(self._answer(question)) for question in questions]
        self._calls.update(calls)
        try:
            await asyncio.wait(calls, timeout=seconds)
            return [_outcome(call) for call in calls]
        finally:
            self._calls.difference_update(calls)
            for call in calls:
                call.cancel()

    async def _answer(self, question: Question) -> Reply:
        try:
            target, headers = _target(question.url)
        except ValueError as error:
            return Reply(error=f"the address cannot be queried: {error}")
        async with self._at_once:
            try:
                async with asyncio.timeout(min(question.timeout / 1e9, _LONGEST)):
                    return await self._exchange(question, target, headers)
            except TimeoutError:
                return Reply(error=f"no answer within {format_duration(question.timeout)}")
            except aiohttp.ClientPayloadError:
                return Reply(error="the answer was cut off")
            except (aiohttp.ClientError, OSError, ValueError) as error:
                return Reply(error=_in_words(error))

    async def _exchange(self, question: Question, target: URL, headers: dict[str, str]) -> Reply:
        while True:
            kept: list[bool] = []
            try:
                return await self._post(question, target, headers, kept)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                if not kept:
                    raise  # else the server had closed a reused connection: try a new one

    async def _post(self, question: Question, target: URL, headers: dict[str, str], kept: list[bool]) -> Reply:
        post = self._http().post(
            target, data=io.BytesIO(question.body), headers=headers, allow_redirects=False, trace_request_ctx=kept
        )
        async with post as response:
            if response.status != 200:
                with contextlib.suppress(aiohttp.ClientPayloadError):
                    await response.content.read(_SPARED)
                return Reply(error=f"HTTP {response.status}")
            body = await read_within(response, question.limit)
            return Reply(error=f"the answer has more than {question.limit} bytes") if body is None else Reply(body)

    def _http(self) -> aiohttp.ClientSession:
        if self._session is None:
            trace = aiohttp.TraceConfig()
            trace.on_connection_reuseconn.append(_note_reuse)
            self._session = open_session(auto_decompress=False, trace_configs=[trace])
        return self._session


async def _note_reuse(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
    context.trace_request_ctx.append(True)


def _target(url: str) -> tuple[URL, dict[str, str]]:
    """Return a URL without user info, and the headers of a question to it."""
    target = URL(url)
    if target.scheme not in ("http", "https") or not target.host or _BLANK.search(url):
        raise ValueError("it is no URL with http:// or https:// and a host")
    headers = headers_for(target.user, target.password)
    return target.with_user(None), {**headers, "Content-Type": "application/json", "Accept-Encoding": "identity"}


def _outcome(call: asyncio.Task[Reply]) -> Reply:
    if not call.done():
        return Reply(error=OUT_OF_TIME)
    return _STOPPING if call.cancelled() else call.result()


def _in_words(error: Exception) -> str:
    """Format an error by type and text; prefer the operating system's error that aiohttp wraps."""
    shown = (error.__cause__ or error) if isinstance(error, aiohttp.ClientOSError) else error
    return f"{type(shown).__name__}: {shown}" if str(shown) else type(shown).__name__

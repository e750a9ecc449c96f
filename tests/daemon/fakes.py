"""A log that is durable when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from vcd.eventlog.log_writer import EventLog
from vcd.model.events import Event, SessionDecided


class FakeLog:
    """Gives numbers in the order of the calls; an append returns at once, or once the test lets it."""

    def __init__(self, *, held: bool = False, error: Exception | None = None) -> None:
        self.held = held
        self.error = error
        self.appended: list[Event] = []
        self.waiting: list[asyncio.Future[None]] = []

    async def append(self, events: Sequence[Event]) -> int:
        self.appended.extend(events)
        last = len(self.appended)
        if self.error is not None:
            raise self.error
        if self.held:
            gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.waiting.append(gate)
            await gate
        return last

    def flush_soon(self) -> None:
        """Nothing is gathered."""

    @property
    def last_session(self) -> int:
        return max((event.session for event in self.appended if isinstance(event, SessionDecided)), default=0)

    @property
    def sessions(self) -> list[SessionDecided]:
        """The sessions that were logged."""
        return [event for event in self.appended if isinstance(event, SessionDecided)]

    def as_log(self) -> EventLog:
        """Itself, where a real log is wanted."""
        return cast(EventLog, self)

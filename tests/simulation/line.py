"""A watch's connection between the API server and a replica."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from vcd.kube.api_errors import IdleWatch, NoResponse

if TYPE_CHECKING:
    from tests.simulation.network import Link


class Line:
    """An open watch's connection, to which the server writes."""

    def __init__(self, link: Link, path: str) -> None:
        self.path = path
        self._link = link
        self._chunks: deque[bytes | NoResponse | None] = deque()
        self._came = asyncio.Event()
        self.free = 0.0
        """The arrival time of the latest piece."""
        self.closed = False
        self.stalled = False
        """Whether the server's pieces do not arrive now although the connection is open."""
        self._kept: list[bytes | None] = []
        self._left: float | None = None

    @property
    def held(self) -> bool:
        """Return whether nothing arrives now."""
        return self.stalled or not self._link.road.down

    async def write(self, data: bytes) -> None:
        """Send a piece. Raises ConnectionResetError once the other end is gone."""
        if self.closed:
            raise ConnectionResetError
        if self._left is not None:
            self._pass(data[: int(self._left * len(data))])
            self.reset()
            raise ConnectionResetError
        self._pass(data)

    def end(self) -> None:
        """Close the server's end after everything that it wrote."""
        if not self.closed:
            self._pass(None)

    def resume(self) -> None:
        """Deliver the delayed pieces, unless another fault still delays them."""
        if self.held:
            return
        kept, self._kept = self._kept, []
        for data in kept:
            self._send(data)

    def reset(self) -> None:
        """End the connection. Pieces in transit arrive first; then the client notices the end, if it can."""
        self.closed = True
        self._kept.clear()
        if self._link.road.down:
            self._send(NoResponse(f"watch {self.path}: connection reset", sent=True))

    def reset_amid(self, share: float) -> None:
        """End the connection in the middle of the next piece, of which a share arrives."""
        self._left = share

    def _pass(self, data: bytes | None) -> None:
        if self.held or self._kept:
            self._kept.append(data)
        else:
            self._send(data)

    def _send(self, data: bytes | NoResponse | None) -> None:
        loop, link = self._link.loop, self._link
        self.free = max(self.free, loop.time() + link.takes() + link.road.late) + 1e-9
        loop.call_at(self.free, self._arrive, data, context=loop.world.context())

    def _arrive(self, data: bytes | NoResponse | None) -> None:
        if data != b"":
            self._chunks.append(data)
            self._came.set()

    async def chunks(self, idle: float) -> AsyncIterator[bytes]:
        """Yield what arrives. Raises IdleWatch after ``idle`` seconds of silence, NoResponse for a lost connection."""
        while True:
            while not self._chunks:
                self._came.clear()
                try:
                    async with asyncio.timeout(idle):
                        await self._came.wait()
                except TimeoutError:
                    raise IdleWatch(f"watch {self.path}: silent for {idle:g} s") from None
            data = self._chunks.popleft()
            if data is None:
                return
            if isinstance(data, NoResponse):
                raise data
            yield data

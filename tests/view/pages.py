"""A page over a log that tests wrote, and what asks it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from vcd.view.page_server import View


class Asker:
    """Asks a page over HTTP."""

    def __init__(self, view: View, http: aiohttp.ClientSession) -> None:
        self.view = view
        self._http = http

    async def get(self, path: str, method: str = "GET", **headers: str) -> tuple[int, Any, Any]:
        """Status, body (JSON decoded) and headers of an answer."""
        url = f"http://127.0.0.1:{self.view.port}/{path}"
        async with self._http.request(method, url, headers=headers) as answer:
            is_json = answer.content_type == "application/json" and method != "HEAD"
            return answer.status, await answer.json() if is_json else await answer.text(), answer.headers

    async def data(self, path: str) -> Any:
        """The data of a good answer."""
        status, body, _ = await self.get(f"api/{path}")
        assert status == 200, body
        return body

    async def error(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
        """Status and sentence of an error."""
        status, body, _ = await self.get(path, method, **headers)
        assert list(body) == ["error"]
        return status, body["error"]


@asynccontextmanager
async def asking(path: Path, host: str = "127.0.0.1", **options: Any) -> AsyncIterator[Asker]:
    """The page of a log, served on any free port."""
    async with View(path, host, **options) as view, aiohttp.ClientSession() as http:
        yield Asker(view, http)

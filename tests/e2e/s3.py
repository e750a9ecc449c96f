"""An S3-compatible store that does as a test says: it answers, refuses, or says nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from aiohttp import web

from vcd.serving.connection_limits import listening


class Bucket:
    """A bucket. While ``status`` is not 200 all is answered with it; while ``answers`` is not set, nothing is."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.status = 200
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked = 0
        self.url = ""

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        """Serve it on a port of this machine while the context lasts."""
        application = web.Application(client_max_size=1 << 30)
        application.router.add_route("*", "/{bucket}", self._answered)
        application.router.add_route("*", "/{bucket}/{key:.*}", self._answered)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        async with listening(runner, "127.0.0.1", 0) as port:
            self.url = f"http://127.0.0.1:{port}"
            try:
                yield
            finally:
                self.answers.set()

    async def _answered(self, request: web.Request) -> web.Response:
        self.asked += 1
        await self.answers.wait()
        if self.status != 200:
            text = f"<Error><Code>Injected{self.status}</Code><Message>as the test says</Message></Error>"
            return web.Response(status=self.status, text=text, content_type="application/xml")
        key = request.match_info.get("key", "")
        if request.method == "PUT":
            self.objects[key] = await request.read()
        elif request.method == "DELETE":
            self.objects.pop(key, None)
        elif key:
            return web.Response(body=self.objects[key])
        else:
            return web.Response(text=self._listed(request.query.get("prefix", "")), content_type="application/xml")
        return web.Response()

    def _listed(self, prefix: str) -> str:
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size></Contents>"
            for key, data in sorted(self.objects.items())
            if key.startswith(prefix)
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>"


def found_by_tools(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let AWS tools find a store as they find theirs, the credentials in a file."""
    credentials = folder / "credentials"
    credentials.write_text("[default]\naws_access_key_id = archivist\naws_secret_access_key = secret\n")
    for name, value in {
        "AWS_SHARED_CREDENTIALS_FILE": str(credentials),
        "AWS_ENDPOINT_URL_S3": url,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)

"""A real Chromium without a window, driven over its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.waiting import WAIT_LIMIT

LOOK = 0.05
"""Seconds between two looks at a page that is still changing."""

_KEYS = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowLeft": 37, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35}
_OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-port=0",
    "--window-size=1440,1000",
)  # fmt: skip


class Page:
    """A page that is open; ``complaints`` are the errors that it wrote to its console, or that nobody caught."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()
        self.complaints: list[str] = []

    async def listen(self) -> None:
        """Take what the browser says, until cancelled or it ends."""
        async for message in self._socket:
            said = json.loads(message.data)
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said)
            elif said["method"] == "Page.loadEventFired":
                self._loaded.set()
            elif said["method"] == "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(said["params"]["exceptionDetails"]))
            elif said["method"] == "Runtime.consoleAPICalled" and said["params"]["type"] in ("error", "warning"):
                self.complaints.append(json.dumps(said["params"]["args"]))
            elif said["method"] == "Log.entryAdded" and said["params"]["entry"]["level"] in ("error", "warning"):
                self.complaints.append(json.dumps(said["params"]["entry"]))

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """What a method of the protocol gives; an error of it fails."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        said = await asyncio.wait_for(answer, WAIT_LIMIT)
        assert "error" not in said, f"{method}: {said}"
        result: dict[str, Any] = said["result"]
        return result

    async def open(self, url: str) -> None:
        """Go to an address, and wait until all that its page names is loaded."""
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        self._loaded.clear()
        await self.call("Page.navigate", url=url)
        await asyncio.wait_for(self._loaded.wait(), WAIT_LIMIT)

    async def ask(self, script: str) -> Any:
        """The value of an expression in the page."""
        said = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in said, f"{script}: {said['exceptionDetails']}"
        return said["result"].get("value")

    async def until(self, script: str) -> Any:
        """The value of an expression once it is true; fails after `WAIT_LIMIT`."""
        deadline = time.monotonic() + WAIT_LIMIT
        while not (value := await self.ask(script)):
            shown = await self.ask("document.body.innerText")
            assert time.monotonic() < deadline, (
                f"{script} not within {WAIT_LIMIT:g} s; complaints {self.complaints}:\n{shown}"
            )
            await asyncio.sleep(LOOK)
        return value

    async def press(self, key: str, *, shift: bool = False) -> None:
        """Press and release a key, where the focus is."""
        code = {"windowsVirtualKeyCode": _KEYS[key], "key": key, "code": key, "modifiers": 8 if shift else 0}
        text = {"text": "\r"} if key == "Enter" else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **code, **text)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    async def write(self, text: str) -> None:
        """Write text where the focus is."""
        await self.call("Input.insertText", text=text)

    async def tab_to(self, script: str, *, shift: bool = False, most: int = 60) -> None:
        """Press Tab (with Shift: backwards) until an expression about ``document.activeElement`` is true."""
        for _ in range(most):
            await self.press("Tab", shift=shift)
            if await self.ask(script):
                return
        raise AssertionError(f"{most} times Tab do not lead to {script}")

    async def resize(self, width: int, height: int) -> None:
        """Give the window's content a size; one that is narrow is a phone's."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        await self.call("Emulation.setDeviceMetricsOverride", **size)

    async def picture(self, file: Path) -> None:
        """Write what the window shows as PNG."""
        data = (await self.call("Page.captureScreenshot", format="png"))["data"]
        await asyncio.to_thread(file.write_bytes, base64.b64decode(data))


@asynccontextmanager
async def browsing(folder: Path, *more: str) -> AsyncIterator[Page]:
    """A browser with one empty page; its files are in ``folder``, ``more`` are options for it."""
    program = shutil.which("chromium")
    assert program, "chromium is not on PATH: make external-tools"
    command = [program, *_OPTIONS, f"--user-data-dir={folder / 'profile'}", *more, "about:blank"]
    process = _started(command, folder / "chromium.log")
    try:
        port = await _port(folder / "profile" / "DevToolsActivePort", process)
        async with aiohttp.ClientSession() as http:
            async with http.get(f"http://127.0.0.1:{port}/json/list") as answer:
                (target,) = [one for one in await answer.json() if one["type"] == "page"]
            async with http.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Page(socket)
                listening = asyncio.create_task(page.listen())
                yield page
                listening.cancel()
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 20)


def _started(command: list[str], output: Path) -> subprocess.Popen[bytes]:
    with output.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=file)


def _words(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


async def _port(file: Path, process: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + WAIT_LIMIT
    while not (lines := await asyncio.to_thread(_words, file)):
        assert process.poll() is None and time.monotonic() < deadline, "chromium does not start"
        await asyncio.sleep(LOOK)
    return int(lines[0])

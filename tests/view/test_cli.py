"""``vcd view`` and ``vcd sim --view-address``: what they print, serve, and how they end."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import sys
from pathlib import Path

import aiohttp

from tests.cli.results import run_vcd as call
from tests.cli.test_older_log import SCHEMA_1
from tests.timetravel.histories import write_busy_history


async def started(*arguments: object) -> asyncio.subprocess.Process:
    """``python -m vcd`` in a process of its own."""
    command = [sys.executable, "-m", "vcd", *map(str, arguments)]
    return await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )


async def page_said(stream: asyncio.StreamReader | None) -> str:
    """The address of the page, once it is printed."""
    assert stream is not None
    async for line in stream:
        if b"http://" in line and b"API server" not in line:
            return line.decode().split()[-1]
    raise AssertionError("no page's address was printed")


async def last_session(url: str) -> int:
    """The last session that the page tells of."""
    async with aiohttp.ClientSession() as http, http.get(f"{url}api/head") as answer:
        return int((await answer.json())["last"])


async def test_it_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    await write_busy_history(tmp_path / "busy.log")
    process = await started("view", "--event-log", tmp_path / "busy.log", "--address", "127.0.0.1:0")
    try:
        assert await last_session(await page_said(process.stdout)) == 8
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = await process.communicate()
    assert (process.returncode, errors.decode()) == (0, "")


async def test_a_page_of_an_older_log_names_the_file_that_was_given(tmp_path: Path) -> None:
    older = Path(shutil.copy(SCHEMA_1, tmp_path / "older.sqlite"))
    process = await started("view", "--event-log", older, "--address", "127.0.0.1:0")
    try:
        url = f"{await page_said(process.stdout)}api/job?key=default/none"
        async with aiohttp.ClientSession() as http, http.get(url) as answer:
            assert (await answer.json())["error"].startswith(f"event log {older}: no job default/none is in it;")
    finally:
        process.send_signal(signal.SIGTERM)
        await process.communicate()


async def test_a_simulation_shows_its_log(tmp_path: Path) -> None:
    process = await started(
        "sim", "--nodes", "2", "--mix", "gangs=2,jobs=0,deployments=0,pods=2,size=2-3,run=20-60",
        "--event-log", tmp_path / "sim.log", "--view-address", "127.0.0.1:0", "-o", "json",
    )  # fmt: skip
    try:
        assert await last_session(await page_said(process.stderr)) >= 0
    finally:
        process.send_signal(signal.SIGINT)
        await process.communicate()
    assert process.returncode == 0


def test_a_missing_file_exits_with_2(tmp_path: Path) -> None:
    result = call("view", "--event-log", tmp_path / "none", "--address", "127.0.0.1:0")
    assert (result.exit_code, str(tmp_path / "none") in result.stderr) == (2, True)


def test_another_address_exits_with_2(tmp_path: Path) -> None:
    asyncio.run(write_busy_history(tmp_path / "busy.log"))
    result = call("view", "--event-log", tmp_path / "busy.log", "--address", ":0")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: --address :0: others could read the log there")


def test_what_is_no_address_exits_with_2(tmp_path: Path) -> None:
    result = call("view", "--event-log", tmp_path / "none", "--address", "nowhere")
    assert result.exit_code == 2
    assert "'nowhere' is not HOST:PORT; write :8080 or 127.0.0.1:8080" in result.stderr


async def test_a_simulation_whose_page_has_no_room_exits_with_2(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        process = await started("sim", "--nodes", "1", "--event-log", tmp_path / "sim.log", "--view-address", where)
        _, errors = await process.communicate()
    assert process.returncode == 2
    assert f"Error: --view-address {where}: " in errors.decode()

"""Who leads next has all that any replica had, before it writes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import BaseTestServer, TestServer

from tests.daemon.replicas.test_log_follower import Copy, Leader, following, leader
from tests.eventlog.samples import put, session, write_history
from vcd.daemon.replicas import replica_protocol
from vcd.daemon.replicas.follower_registry import Followers
from vcd.daemon.replicas.takeover import take_over
from vcd.eventlog import EventLog, LogError, verify
from vcd.eventlog.replication import Piece


class Reached:
    """Replicas by name; whoever is not among them cannot be reached."""

    def __init__(self, **replicas: Leader) -> None:
        self._replicas = replicas

    @asynccontextmanager
    async def connection(self, name: str, address: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        if name not in self._replicas:
            raise LogError(f"nobody at {address}")
        async with self._replicas[name].connection() as socket:
            yield socket


async def taken_over(copy: Copy, *names: str, **replicas: Leader) -> None:
    """Take over from some replicas; all of them answer as "leader"."""
    reached = Reached(**replicas)
    peers = [replica_protocol.Peer("leader", name) for name in names]

    def connect(_: str, address: str) -> object:
        return reached.connection(address, address)

    await take_over(peers, connect, lambda: Copy(copy.log, copy.follower._name).follower)  # type: ignore[arg-type]


async def copies(tmp_path: Path, *names: str) -> None:
    """Three sessions that all have."""
    await write_history(tmp_path / "a", 3)
    async with leader(tmp_path / "a") as lead:
        for name in names:
            async with following(lead, tmp_path / name):
                pass


async def test_what_one_of_the_others_has_is_taken_over_whoever_is_asked_first(tmp_path: Path) -> None:
    await copies(tmp_path, "b", "c", "d")
    async with leader(tmp_path / "a") as lead, following(lead, tmp_path / "b"):
        await lead.log.append([put(50), session(4, 1)])
        head = await lead.log.append([put(51)])
        assert await lead.followers.have(head)
    for order in (("b", "c"), ("c", "b"), ("gone", "c", "b")):
        async with leader(tmp_path / "b") as b, leader(tmp_path / "c") as c, EventLog.open(tmp_path / "d") as log:
            await taken_over(Copy(log, "d"), *order, b=b, c=c)
            assert log.head == head
    assert not verify(tmp_path / "d").problems


async def test_a_log_that_went_another_way_is_not_taken_over(tmp_path: Path) -> None:
    await copies(tmp_path, "b", "c")
    async with EventLog.open(tmp_path / "b") as log:
        await log.append([put(60), put(61)])
    async with EventLog.open(tmp_path / "c") as log:
        own = await log.append([put(70)])
    async with leader(tmp_path / "b") as b, EventLog.open(tmp_path / "c") as log:
        await taken_over(Copy(log, "c"), "b", b=b)
        assert log.head == own


@asynccontextmanager
async def mute() -> AsyncIterator[BaseTestServer]:
    """One that takes connections and never says a word."""

    async def serve(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for _ in socket:
            pass
        return socket

    application = web.Application()
    application.router.add_get(replica_protocol.PATH, serve)
    async with TestServer(application) as server:
        yield server


async def test_one_that_stops_answering_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcd.daemon.replicas.takeover.TAKEN", 0.1)
    await copies(tmp_path, "b", "c")
    async with leader(tmp_path / "a") as lead, following(lead, tmp_path / "c"):
        head = await lead.log.append([put(50)])
        assert await lead.followers.have(head)
    async with mute() as server, leader(tmp_path / "c") as c, EventLog.open(tmp_path / "b") as log:
        await taken_over(Copy(log, "b"), "mute", "c", mute=Leader(log, server, Followers()), c=c)
        assert log.head == head


async def test_a_log_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await copies(tmp_path, "b")
    async with leader(tmp_path / "a") as lead, EventLog.open(tmp_path / "b") as log:
        await lead.log.append([put(50)])

        async def fails(_: EventLog, __: Piece) -> Sequence[object]:
            log.failure = LogError("the disk is full")
            raise log.failure

        monkeypatch.setattr("vcd.daemon.replicas.log_follower.write_piece", fails)
        with pytest.raises(LogError, match="the disk is full"):
            await taken_over(Copy(log, "b"), "a", a=lead)


async def test_one_that_ends_and_lets_go_hands_all_over(tmp_path: Path) -> None:
    """Its next leader may ask while it ships the rest of its log to the archive."""
    async with leader(tmp_path / "a") as a, EventLog.open(tmp_path / "b") as log:
        await a.log.append([put(number) for number in range(5)])
        a.followers.dismissed.set()
        await taken_over(Copy(log, "b"), "a", a=a)
        assert log.head == a.log.head

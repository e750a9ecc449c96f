"""A start: nothing is decided before everything is known (Volcano #5174), and what was known before goes on."""

from __future__ import annotations

import asyncio
import signal
import socket
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from aiohttp import web

from tests.e2e.cluster import REQUEST_TIMEOUT, Cluster, until
from tests.sizes import some
from tests.waiting import WAIT_LIMIT

ALONE = "--identity=alone"
LISTED = {
    "pods": "/api/v1/pods",
    "queues": "/apis/scheduling.volcano.sh/v1beta1/queues",
    "nodes": "/api/v1/nodes",
    "groups": "/apis/scheduling.volcano.sh/v1beta1/podgroups",
    "volumes": "/api/v1/persistentvolumes",
}


class SlowList:
    """Keeps the first page of one list back until it is let go."""

    def __init__(self, path: str) -> None:
        self.asked = asyncio.Event()
        self.let = asyncio.Event()
        self._path = path

    async def __call__(self, request: web.Request) -> None:
        if request.path == self._path and "watch" not in request.query:
            self.asked.set()
            await self.let.wait()


@pytest.mark.parametrize("path", some(2, LISTED.values()), ids=LISTED)
async def test_nothing_is_bound_before_every_list_is_in(tmp_path: Path, path: str) -> None:
    slow = SlowList(path)
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        keys = cluster.submit("gang", 4)
        with cluster.faults(slow):
            daemon = await cluster.start("a", "--request-timeout=800ms")
            await asyncio.wait_for(slow.asked.wait(), WAIT_LIMIT)
            await until(lambda: _watched(cluster) >= 5, what="the other kinds are watched")
            await until(lambda: cluster.leader() is not None, what="it leads")
            assert await daemon.health("readyz") == 503
            assert cluster.binds == []
            slow.let.set()
            await cluster.until_bound(keys)
        assert await daemon.health("readyz") == 200


def _watched(cluster: Cluster) -> int:
    return len({stream.rtype.resource for stream in cluster.server.open_watches()})


async def test_after_a_restart_a_full_node_stays_full(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1, 4)
        daemon = await cluster.started("a", ALONE, E2E_UNFORKED="yes")
        await cluster.until_bound(cluster.submit("first", 4))
        await daemon.kill()
        keys = cluster.submit("second", 4)
        slow = SlowList(LISTED["pods"])
        with cluster.faults(slow):
            again = await cluster.start("a", ALONE, log=daemon.log)
            await asyncio.wait_for(slow.asked.wait(), WAIT_LIMIT)
            slow.let.set()
        await cluster.until_leading(again)
        await until(lambda: _waits(cluster, "second-0"), what="the pod is told why it waits")
        assert not cluster.bound(keys)


def _waits(cluster: Cluster, name: str) -> bool:
    conditions = cluster.store.get("pods", "default", name)["status"].get("conditions", [])
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)


async def test_a_bind_in_flight_at_the_takeover_is_not_missed(tmp_path: Path) -> None:
    """The old leader's last bind is carried out late, after it was stopped: the new one waits, lists, and sees it."""
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1, 4)
        first = await cluster.started("a")
        with cluster.holding_binds() as held:
            keys = cluster.submit("first", 4)
            await until(lambda: len(held) == 4)
            first.signal(signal.SIGSTOP)
            second = await cluster.start("b")
            await until(lambda: cluster.leader() is not None and second.lines("leadership_won"))
            taken = time.monotonic()
            held.release()  # within the request time-out that the new leader waits out
        more = cluster.submit("second", 4)
        await cluster.until_leading(second)
        await until(lambda: _waits(cluster, "second-0"), what="the second gang is told why it waits")
        lists = [made.at for made in cluster.calls(second, "list", since=taken) if made.call.resource == "pods"]
        assert lists[0] - taken > 0.9 * REQUEST_TIMEOUT
        assert cluster.bound(keys)
        assert not cluster.bound(more)


async def test_a_restart_goes_on_from_the_log(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(2)
        daemon = await cluster.started("a", ALONE)
        await cluster.until_bound(cluster.submit("first", 8))
        daemon.signal(signal.SIGTERM)
        assert await daemon.ended() == 0
        sessions = len(daemon.sessions())
        again = await cluster.started("a", ALONE, log=daemon.log)
        await cluster.until_bound(cluster.submit("second", 8))
        assert again.lines("started")[0]["session"] == sessions
        assert [session.session for session in again.sessions()] == list(range(1, len(again.sessions()) + 1))


async def test_two_schedulers_of_one_name_without_flags_elect_one(tmp_path: Path) -> None:
    """Pains 17: nothing but the log and the addresses is given, so the times are the defaults."""
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        replicas = [await cluster.start(name, short=False) for name in ("a", "b")]
        await cluster.until_bound(cluster.submit("gang", 8))
        leader = cluster.leader()
        follower = next(daemon for daemon in replicas if daemon is not leader)
        await until(lambda: cluster.calls(follower, "watch"))
        assert leader in replicas
        assert cluster.writes(follower) == []


async def test_a_taken_address_ends_the_start_with_one_line(tmp_path: Path) -> None:
    """Not with ten warnings of parts that never ran."""
    async with Cluster(tmp_path) as cluster:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            daemon = await cluster.start("a", f"--listen-address=127.0.0.1:{taken.getsockname()[1]}")
            assert await daemon.ended() == 1
        assert "address already in use" in daemon.lines("stopped")[0]["reason"]
        assert [line for line in daemon.output.read_text().splitlines() if not line.startswith("{")] == []


async def test_a_log_of_a_newer_vcd_ends_the_start_with_one_line(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        first = await cluster.started("a")
        first.signal(signal.SIGTERM)
        await first.ended()
        with closing(sqlite3.connect(first.log)) as db:
            (schema,) = db.execute("PRAGMA user_version").fetchone()
            db.execute(f"PRAGMA user_version = {schema + 1}")
        again = await cluster.start("a", log=first.log)
        assert await again.ended() == 2
        (stopped,) = again.lines("stopped")
        assert "a newer vcd wrote it" in stopped["reason"]
        assert "use that version, or name a new file" in stopped["reason"]
        assert "Traceback" not in again.output.read_text()
        with closing(sqlite3.connect(first.log)) as db:
            db.execute(f"PRAGMA user_version = {schema}")

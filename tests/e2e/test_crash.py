"""A lone daemon that is killed, or cannot write its log: nothing is lost or done twice (docs/laws.md, law 3)."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path

import pytest
from aiohttp import web

from tests.e2e.cluster import GROUPS, Cluster, Daemon, group, is_bind, until
from tests.sizes import WIDE
from vcd.eventlog import LogReader
from vcd.model.events import OperationDone
from vcd.timetravel.log_operations import verify

ALONE = "--identity=alone"
"""A replica that comes back under the name that it led by need not wait until its own lease has run out."""
ROUNDS, GANGS, GANG = (8 if WIDE else 4), 6, 8
CHECKPOINTS = "--checkpoint-interval=100"
LIMIT, GANGS_ENOUGH = "500000", 24
"""Bytes that the log's files may have, and gangs of 32 whose events are more than that."""


async def test_kills_at_random_moments_leave_every_gang_bound_once(tmp_path: Path) -> None:
    chance = random.Random(3)
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(ROUNDS * GANGS, GANG)
        keys: list[str] = []
        daemon = await cluster.started("a", ALONE, CHECKPOINTS, E2E_HOUSEKEEPING="0.1")
        for round_ in range(ROUNDS):
            for number in range(GANGS):
                keys += cluster.submit(f"gang-{round_}-{number}", GANG)
            wanted = len(cluster.binds) + chance.randrange(GANGS * GANG)
            await until(lambda wanted=wanted: len(cluster.binds) >= wanted)  # type: ignore[misc]
            await daemon.kill()
            assert verify(daemon.log).problems == []
            daemon = await cluster.started("a", ALONE, CHECKPOINTS, log=daemon.log, E2E_HOUSEKEEPING="0.1")
        await cluster.until_bound(keys)
        assert sorted(bind.key for bind in cluster.binds) == sorted(keys)


async def test_a_bind_that_was_decided_and_never_sent_is_made_after_the_restart(tmp_path: Path) -> None:
    held: list[web.Request] = []

    async def hold(request: web.Request) -> None:
        if is_bind(request):
            held.append(request)
            await asyncio.Event().wait()

    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        daemon = await cluster.started("a", ALONE)
        with cluster.faults(hold):
            keys = cluster.submit("gang", 8)
            await until(lambda: len(held) == 8)
            await daemon.kill()
        await cluster.started("a", ALONE, log=daemon.log)
        await cluster.until_bound(keys)


async def test_a_bind_whose_answer_was_never_read_is_known_after_the_restart(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        done: list[str] = []

        async def do_and_hold(request: web.Request) -> None:
            if is_bind(request):
                await cluster.carry_out(request)
                done.append(request.path)
                await asyncio.Event().wait()

        cluster.add_nodes(1)
        daemon = await cluster.started("a", ALONE)
        daemon.wire.hold()  # the watch cannot tell either
        with cluster.faults(do_and_hold):
            keys = cluster.submit("gang", 4)
            daemon.wire.release()
            await until(lambda: len(done) == 4)
            await daemon.kill()
        again = cluster.submit("next", 4)
        await cluster.started("a", ALONE, log=daemon.log)
        await cluster.until_bound(again)
        assert sorted(bind.key for bind in cluster.binds) == sorted(keys + again)


async def test_a_phase_that_was_decided_and_never_written_is_written_after_the_restart(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        daemon = await cluster.started("a", ALONE)
        daemon.wire.hold()
        cluster.store.create(GROUPS, group("empty", 1))
        held: list[web.Request] = []

        async def hold(request: web.Request) -> None:
            if request.method in ("GET", "PATCH") and request.path.endswith("/podgroups/empty"):
                held.append(request)
                await asyncio.Event().wait()

        with cluster.faults(hold):
            daemon.wire.release()
            await until(lambda: held)
            await daemon.kill()
        await cluster.started("a", ALONE, log=daemon.log)
        await until(lambda: cluster.store.get(GROUPS, "default", "empty").get("status", {}).get("phase") == "Inqueue")


async def test_a_full_disk_stops_the_scheduling(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(40, 50)
        daemon = await cluster.started("a", E2E_FILE_LIMIT=LIMIT)
        number = 0
        while daemon.running and number < GANGS_ENOUGH:
            number += 1
            keys = cluster.submit(f"gang-{number}", 32)
            await until(lambda keys=keys: cluster.bound(keys) or not daemon.running)  # type: ignore[misc]
        assert await daemon.ended() == 1
        assert await daemon.health() == 0
        assert "event log" in daemon.lines("stopped")[-1]["reason"]
        assert "Traceback" not in daemon.output.read_text()


async def test_after_a_full_disk_the_log_goes_on_with_nothing_lost(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(40, 50)
        daemon = await cluster.started("a", ALONE, E2E_FILE_LIMIT=LIMIT)
        keys = [key for number in range(GANGS_ENOUGH) for key in cluster.submit(f"gang-{number}", 32)]
        await daemon.ended()
        outcomes = _outcomes(daemon)
        await cluster.started("a", ALONE, log=daemon.log)
        await cluster.until_bound(keys)
        assert _outcomes(daemon)[: len(outcomes)] == outcomes
        assert sorted(bind.key for bind in cluster.binds) == sorted(keys)


@pytest.mark.parametrize("how", ["replaced", "deleted"])
async def test_a_log_that_is_taken_away_ends_the_scheduling(tmp_path: Path, how: str) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        daemon = await cluster.started("a", E2E_HOUSEKEEPING="0.05")
        await cluster.until_bound(cluster.submit("before", 4))
        if how == "replaced":
            shutil.copy(daemon.log, tmp_path / "copy")
            (tmp_path / "copy").replace(daemon.log)
        else:
            daemon.log.unlink()
        assert await daemon.ended() == 1
        what = {"replaced": "another file is in its place", "deleted": "no file is in its place"}[how]
        reason = daemon.lines("stopped")[-1]["reason"]
        assert reason.startswith(f"event log {daemon.log}: {what}")
        assert "Traceback" not in daemon.output.read_text()


async def test_a_log_that_another_process_writes_is_not_shared(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        first = await cluster.started("a")
        second = await cluster.start("b", log=first.log)
        assert await second.ended() == 1
        assert f"process {first.process.pid} writes it" in second.lines("stopped")[-1]["reason"]
        assert cluster.calls(second, "create", "update", "patch", "delete") == []


def _outcomes(daemon: Daemon) -> list[OperationDone]:
    with LogReader(daemon.log) as reader:
        return [logged.event for logged in reader.find(type="outcome") if isinstance(logged.event, OperationDone)]

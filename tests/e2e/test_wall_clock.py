"""A machine whose wall clock jumps ahead for a while: history stays, and the log's times are as if it had not."""

from __future__ import annotations

import time
from pathlib import Path

from tests.e2e.cluster import Cluster, Daemon, set_text, until
from vcd.eventlog import LogReader
from vcd.model import events as ev

WEEK = 7 * 24 * 3600


async def test_a_clock_that_jumps_ahead_deletes_nothing_and_dates_nothing_ahead(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(2)
        ahead = tmp_path / "ahead"
        ahead.write_text("0")
        flags = ("--checkpoint-interval=1", "--log-retention-age=1h")
        daemon = await cluster.started("a", *flags, E2E_WALL_AHEAD=str(ahead), E2E_HOUSEKEEPING="0.05")
        await cluster.until_bound(cluster.submit("before", 4))
        set_text(ahead, str(WEEK))
        await until(lambda: daemon.lines("the machine's wall clock jumped"))
        await cluster.until_bound(cluster.submit("meanwhile", 4))
        assert (await daemon.metrics())["vcd_clock_ahead_seconds"] > WEEK - 60
        checkpoints = _checkpoints(daemon)
        await until(lambda: _checkpoints(daemon) > checkpoints, what="the house is kept under the wrong time")
        set_text(ahead, "0")
        await cluster.until_bound(cluster.submit("after", 4))
        await until(lambda: daemon.events("clock"))
        with LogReader(daemon.log) as reader:
            assert reader.first() == 1
            times = [logged.time for logged in reader.read(0)]
        assert times == sorted(times)
        assert times[-1] <= time.time_ns()
        (jump,) = daemon.events("clock")
        assert isinstance(jump, ev.ClockJumped)
        assert abs(jump.by / 1e9 - WEEK) < 3600
        assert all(session.now <= time.time_ns() for session in daemon.sessions())


def _checkpoints(daemon: Daemon) -> int:
    with LogReader(daemon.log) as reader:
        return reader.checkpoints()[-1].sequence if reader.checkpoints() else 0

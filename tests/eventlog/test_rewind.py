"""A log that goes back keeps the configuration that was loaded before it begins."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests import dsl
from tests.eventlog.test_replication import agree, copied
from tests.timetravel.histories import CONF, scheduler
from vcd.eventlog import EventLog
from vcd.timetravel.log_operations import verify


async def test_one_that_was_loaded_again_after_that(tmp_path: Path) -> None:
    """Since the checkpoint that the log begins with nothing was decided. This replica led for a moment, with another
    flag, so that it loaded the configuration again; then it goes back, and the next leader decides under it."""
    path, leader = tmp_path / "events.sqlite", tmp_path / "leader.sqlite"
    async with scheduler(path) as made:
        await made.show(dsl.node("n1", cpu=8), dsl.queue("root"), dsl.queue("default"))
        record = await made.cycle()
        await made.checkpoint()
        await made.show(dsl.node("n2", cpu=8))
        head = made.state.sequence
        await made.log.retain(max_bytes=1)
        await copied(path, leader)
        await made.load(CONF, default_queue="other")
    async with EventLog.open(leader) as log:
        await log.append([msgspec.structs.replace(record, session=2, head=head)])
    await agree(leader, path)
    assert verify(leader).problems == []
    assert verify(path).problems == []

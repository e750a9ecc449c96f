"""What housekeeping keeps of a log that grows: in events and in bytes."""

from __future__ import annotations

import os
from pathlib import Path

from tests.kube.scripted import running
from tests.waiting import until
from vcd.daemon.metrics.metrics_collector import Metrics
from vcd.daemon.options import Options
from vcd.daemon.persistence.housekeeping import maintain_log
from vcd.daemon.persistence.state_writer import StateWriter
from vcd.eventlog.log_reader import LogReader
from vcd.eventlog.log_writer import EventLog
from vcd.kube.clock import SYSTEM_CLOCK
from vcd.model import events as ev
from vcd.model.projection_codec import encode_payload, from_manifest
from vcd.state.cluster_state import ClusterState

MIB = 1 << 20
LARGE = MIB // 8
"""Bytes that an annotation takes in the log; a tenant may change it as often as the API server lets it."""
WAL = 5 * MIB
"""What may be in the file beside the log, and reaches the log later."""


def patched(times: int, name: str = "p") -> ev.ObjectPut:
    """A pod as a watch delivers it after its annotation was patched, with text that no packer shortens."""
    meta = {
        "name": name,
        "namespace": "ns",
        "uid": "u",
        "resourceVersion": f"{times}",
        "annotations": {"note": os.urandom(LARGE).hex()},
    }
    kind, obj, _ = from_manifest({"kind": "Pod", "metadata": meta, "spec": {"containers": []}})
    return ev.ObjectPut(kind, obj.key, f"{times}", encode_payload(obj))


class House:
    """Housekeeping of a log, and how often it has looked."""

    def __init__(self, options: Options, log: EventLog) -> None:
        self.state_writer, self.looks = StateWriter(log, ClusterState()), 0
        self.keeping = maintain_log(options, self.state_writer, Metrics(), SYSTEM_CLOCK, self._look)

    def _look(self) -> None:
        self.looks += 1

    async def patch(self, first: int, count: int) -> None:
        """Have a pod patched so often, and wait until what follows of that is done."""
        await self.state_writer.put([patched(first + number) for number in range(count)])
        seen = self.looks
        await until(lambda: self.looks >= seen + 3)


async def test_few_large_events_do_not_outgrow_the_limit(tmp_path: Path) -> None:
    limit = 4 * MIB
    options = Options(event_log=tmp_path / "log", retention_size=limit, housekeeping_period=0.01)
    async with EventLog.open(options.event_log) as log:
        house = House(options, log)
        async with running(house.keeping):
            for first in range(0, 48, 12):
                await house.patch(first, 12)
                assert log.size() <= limit + 12 * LARGE + WAL
        with LogReader(options.event_log) as reader:
            assert (reader.first() or 0) > 1
            assert len(reader.checkpoints()) > 1, "it is not removed all at once"


async def test_a_state_larger_than_the_limit_is_kept_once_until_the_log_grows(tmp_path: Path) -> None:
    options = Options(event_log=tmp_path / "log", retention_size=2 * LARGE, housekeeping_period=0.01)
    async with EventLog.open(options.event_log) as log:
        house, kept = House(options, log), []
        keep = house.state_writer.checkpoint

        async def checkpoint() -> None:
            kept.append(house.looks)
            await keep()

        house.state_writer.checkpoint = checkpoint  # type: ignore[method-assign]
        async with running(house.keeping):
            await house.state_writer.put([patched(1, name=f"p{number}") for number in range(8)])
            seen = house.looks
            await until(lambda: house.looks >= seen + 20)
        assert len(kept) <= 2


async def test_without_a_limit_events_alone_count(tmp_path: Path) -> None:
    options = Options(event_log=tmp_path / "log", retention_size=None, housekeeping_period=0.01)
    async with EventLog.open(options.event_log) as log:
        house = House(options, log)
        async with running(house.keeping):
            await house.patch(0, 40)
        assert house.state_writer.checkpointed_at == 0

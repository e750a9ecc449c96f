"""Beginning from an archive where the log has its name from a link or is no file, and where no process can be begun."""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.eventlog.samples import put, write_history
from tests.kube.scripted import running, until
from vcd.daemon.metrics.metrics_collector import Metrics
from vcd.daemon.options import Options
from vcd.daemon.persistence import archiver
from vcd.daemon.persistence.archiver import Archiver, restore_from_archive
from vcd.eventlog import EventLog
from vcd.eventlog.archive.shipping import ShipJob, ship


@pytest.fixture
def no_more_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_: Any, **__: Any) -> Any:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")  # fork, at the pod's limit of pids

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refused)


@pytest.mark.usefixtures("no_more_processes")
async def test_a_run_that_gets_no_process_is_tried_again(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "log.sqlite") as log:
        await log.append([put(1)])
        metrics = Metrics()
        options = Options(event_log=log.path, archive=str(tmp_path / "archive"), archive_every=60.0)
        archiver = Archiver(options, log, metrics, "replica", lambda: 1)
        with capture_logs() as logs:
            async with running(archiver.run()):
                await until(lambda: [each["event"] for each in logs] == ["the event log is not shipped"])


@pytest.mark.usefixtures("no_more_processes")
async def test_a_replica_begins_without_its_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiver, "ATTEMPTS", 1)
    (tmp_path / "archive").mkdir()
    options = Options(event_log=tmp_path / "log.sqlite", archive=str(tmp_path / "archive"))
    await restore_from_archive(options, asyncio.Event(), nullcontext())


async def test_a_log_is_restored_to_where_its_link_leads(tmp_path: Path) -> None:
    large, path, archive = tmp_path / "large", tmp_path / "events.sqlite", tmp_path / "archive"
    large.mkdir()
    archive.mkdir()
    await write_history(tmp_path / "before", 2)
    ship(ShipJob(str(tmp_path / "before"), str(archive), "test", 1), lambda _: None)
    path.symlink_to(large / "events.sqlite")
    await restore_from_archive(Options(event_log=path, archive=str(archive)), asyncio.Event(), nullcontext())
    async with EventLog.open(path) as log:
        assert log.head == 12
    assert path.is_symlink()


async def test_what_is_no_file_is_left_alone(tmp_path: Path) -> None:
    path, archive = tmp_path / "events.sqlite", tmp_path / "archive"
    archive.mkdir()
    os.mkfifo(path)
    await restore_from_archive(Options(event_log=path, archive=str(archive)), asyncio.Event(), nullcontext())
    assert path.is_fifo()

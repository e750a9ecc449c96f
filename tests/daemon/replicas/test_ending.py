"""A replica that ends gives the Lease back and lets go of who follows it, whatever became of its log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
import structlog

from tests.daemon.replicas.test_log_follower import leader
from tests.eventlog.samples import SECOND, Clock, put, write_history
from tests.eventlog.test_replication import content
from tests.kube.scripted import client_of, running, scripted, until
from tests.kube.test_lease import LeaseServer
from tests.waiting import WAIT_LIMIT
from vcd.daemon import process
from vcd.daemon.leadership.leadership_terms import Terms
from vcd.daemon.persistence.state_writer import StateWriter
from vcd.daemon.replicas import log_follower, replica_network, replica_protocol
from vcd.daemon.replicas.log_divergence import rewind_and_preserve
from vcd.daemon.replicas.log_follower import LogDiverged, LogReplaced, OwnLogDamaged
from vcd.daemon.replicas.replica import Replica, TermEnded
from vcd.daemon.service import SchedulerService
from vcd.eventlog import EventLog
from vcd.eventlog.log_errors import DamagedLog
from vcd.eventlog.log_file import NOTE_SUFFIX, check_noted_damage
from vcd.kube.lease import LeaderElector
from vcd.state.cluster_state import ClusterState


async def admit(_: object) -> bool:
    return True


def replica_of(log: EventLog, elector: LeaderElector, server: Any) -> Replica:
    """A replica to which a server is each other replica."""
    replica = Replica(StateWriter(log, ClusterState()), elector, admit, dict)

    @contextlib.asynccontextmanager
    async def connection(*_: str) -> AsyncIterator[replica_network.Socket]:
        async with replica_network.connected(
            str(server.make_url(replica_protocol.PATH)), {}, aiohttp.TCPConnector()
        ) as socket:
            yield socket

    replica._connection = connection  # type: ignore[method-assign]
    return replica


def spoil_pages(path: Path) -> None:
    """Overwrite all pages of a log but the first, which has its schema's version."""
    with path.open("r+b") as file:
        size = file.seek(0, 2)
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))


def ending(replica: Replica, elector: LeaderElector, error: Exception | None) -> SchedulerService:
    """Of a service, what its end needs."""

    async def nothing(*_: object) -> None:
        pass

    idle = asyncio.Event()
    idle.set()
    terms: Any = SimpleNamespace(elector=elector, end=lambda: None, _elected=True)
    terms.release = lambda **given: Terms.release(terms, **given)
    service: Any = SimpleNamespace(
        client=SimpleNamespace(request_timeout=0.2, is_writing=False), commits=set(), terms=terms, replica=replica,
        status_reporter=SimpleNamespace(
            followup=SimpleNamespace(idle=idle), statuses=SimpleNamespace(wait_until_idle=nothing)
        ),
        outside=SimpleNamespace(close=nothing), archiver=SimpleNamespace(finish=nothing),
        state_writer=replica._state_writer, _failure=error, _leads_under=lambda: None,
    )  # fmt: skip
    service._keep = lambda: SchedulerService._keep(service)
    return cast(SchedulerService, service)


@pytest.mark.parametrize("begins_anew", [False, True])
async def test_one_whose_log_has_no_state_of_its_own_gives_the_lease_back(tmp_path: Path, *, begins_anew: bool) -> None:
    """It was told to end before it logged anything, or took over a log that begins with a checkpoint."""
    clock = Clock()
    await write_history(tmp_path / "a", 6, checkpoints=(4,), clock=clock)
    async with EventLog.open(tmp_path / "a", clock=clock) as log:
        await log.retain(max_age=60 * SECOND)
    async with (
        leader(tmp_path / "a") as lead, EventLog.open(tmp_path / "b") as log, scripted() as server,
        client_of(server) as client,
    ):  # fmt: skip
        lease, elector, error = LeaseServer(server), LeaderElector(client, identity="b"), None
        replica = replica_of(log, elector, lead.server)
        async with running(elector.run()) as elected:
            await until(elector.is_leader)
            if begins_anew:
                replica._led_by = {"leader": replica_protocol.Peer("leader", "")}
                with pytest.raises(LogReplaced) as raised:
                    await replica.become_leader()
                error = raised.value
            await SchedulerService._shut_down(ending(replica, elector, error), [elected])
        assert lease.spec["holderIdentity"] == ""
        assert replica.followers.dismissed.is_set()


@pytest.mark.parametrize(
    "error", [TermEnded("no longer leading", 0.0), LogReplaced(), LogDiverged(4, "leader"), OSError()]
)
async def test_one_that_begins_anew_has_not_failed(error: Exception) -> None:
    async def part() -> None:
        raise error

    service: Any = SimpleNamespace(_failure=None)
    stopping = asyncio.ensure_future(asyncio.Event().wait())
    with pytest.raises(type(error)):
        await SchedulerService._until_one_fails(service, stopping, [asyncio.ensure_future(part())])
    stopping.cancel()
    assert service._failure is (error if isinstance(error, OSError) else None)


async def test_one_that_is_told_to_end_while_it_takes_the_lead_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes what it had followed just now, and a disk is slow."""
    writing, written, write = asyncio.Event(), asyncio.Event(), log_follower.write_piece

    async def slow(*given: Any) -> Any:
        writing.set()
        await written.wait()
        return await write(*given)

    monkeypatch.setattr(log_follower, "write_piece", slow)
    elector = SimpleNamespace(
        identity="b", can_lead=None, check_now=lambda: None, holder="leader", holder_address="there", address="",
        has_log=True, lease_duration=15.0,
    )  # fmt: skip
    async with leader(tmp_path / "a") as lead, EventLog.open(tmp_path / "b") as log:
        await lead.log.append([put(1)])
        replica = replica_of(log, cast(LeaderElector, elector), lead.server)
        tasks = [asyncio.ensure_future(replica.run())]
        await writing.wait()
        tasks.append(asyncio.ensure_future(replica.become_leader()))
        await until(lambda: replica._leads.is_set())
        for task in tasks:
            task.cancel()
        written.set()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), WAIT_LIMIT)


async def test_a_follower_with_a_damaged_log_sets_it_aside_and_copies_the_leaders(tmp_path: Path) -> None:
    await write_history(tmp_path / "a", 5)
    await write_history(tmp_path / "b", 5)
    elector = SimpleNamespace(
        identity="b", can_lead=None, check_now=lambda: None, holder="leader", holder_address="there", address="",
        has_log=True, lease_duration=15.0,
    )  # fmt: skip
    async with leader(tmp_path / "a") as lead:
        async with EventLog.open(tmp_path / "b") as log:
            spoil_pages(tmp_path / "b")
            with pytest.raises(OwnLogDamaged, match="it is truncated or damaged; restore a copy"):
                await asyncio.wait_for(replica_of(log, cast(LeaderElector, elector), lead.server).run(), WAIT_LIMIT)
        spoiled = (tmp_path / "b").read_bytes()
        (tmp_path / f"b{NOTE_SUFFIX}").write_text("found while it was written")
        aside = rewind_and_preserve(tmp_path / "b", None)
        assert aside is not None and aside.read_bytes() == spoiled and not (tmp_path / "b").exists()
        with pytest.raises(DamagedLog):
            check_noted_damage(aside)
        async with EventLog.open(tmp_path / "b") as log:
            replica = replica_of(log, cast(LeaderElector, elector), lead.server)
            async with running(replica.run()):
                await until(replica.follower.caught_up.is_set)
    assert content(tmp_path / "b") == content(tmp_path / "a")


async def test_a_process_whose_log_is_damaged_starts_again_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.sqlite"
    await write_history(path, 5)
    spoil_pages(path)

    @contextlib.asynccontextmanager
    async def damaged(*_: object, **__: object) -> AsyncIterator[SchedulerService]:
        raise OwnLogDamaged(DamagedLog("event log events.sqlite: it is damaged"))
        yield

    monkeypatch.setattr(process, "open_service", damaged)
    options: Any = SimpleNamespace(event_log=path)
    unused: Any = None
    with structlog.testing.capture_logs() as lines:
        again = await process._run_service(options, unused, unused, asyncio.Event(), process._Restart(), unused)
    assert again == process._Restart(lacks=True) and not path.exists()
    (line,) = lines
    assert line["event"] == "the log is damaged: it is set aside, and the leader's log is copied"
    assert line["kept"] == str(tmp_path / "events-apart-1.sqlite") and "it is damaged" in line["reason"]
    assert (tmp_path / "events-apart-1.sqlite").exists()

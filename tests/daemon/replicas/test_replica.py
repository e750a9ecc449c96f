"""A replica says whether it has the log, and stands for the Lease only where it does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import structlog

from tests.eventlog.samples import put
from tests.kube.scripted import until
from vcd.daemon.persistence.state_writer import StateWriter
from vcd.daemon.replicas import replica
from vcd.daemon.replicas.replica import GRACE, LOOK, Replica
from vcd.daemon.replicas.replica_protocol import Peer
from vcd.eventlog import EventLog
from vcd.kube.lease import LeaderElector
from vcd.state.cluster_state import ClusterState

NOWHERE = f"https://127.0.0.1:1/vcd/log#sha256={'00' * 32}"


class Clock:
    """Time passes as fast as it is waited for."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


class Made:
    """A replica beside another that holds the Lease and cannot be reached."""

    def __init__(self, log: EventLog, clock: Clock) -> None:
        self.clock = clock
        lease = {"holder": "a", "holder_address": NOWHERE, "has_log": True, "lease_duration": 15.0}
        self.looks = 0
        self.elector = cast(LeaderElector, SimpleNamespace(identity="b", can_lead=None, check_now=self._look, **lease))

        async def admit(_: object) -> bool:
            raise AssertionError("nobody comes")

        self.replica = Replica(StateWriter(log, ClusterState()), self.elector, admit, dict, self.clock)

    def _look(self) -> None:
        self.looks += 1


@asynccontextmanager
async def made(path: Path, events: int = 0, clock: Clock | None = None) -> AsyncIterator[Made]:
    async with EventLog.open(path) as log:
        if events:
            await log.append([put(number) for number in range(events)])
        one = Made(log, clock or Clock())
        task = asyncio.ensure_future(one.replica.run())
        yield one
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def passed(one: Made, seconds: float) -> None:
    """Let time pass in which it tries to follow."""
    until = one.clock.now + seconds
    while one.clock.now < until:  # noqa: ASYNC110 - its own task lets time pass
        await asyncio.sleep(0)


async def test_one_that_had_the_log_is_ready_for_as_long_as_a_change_of_leaders_takes(tmp_path: Path) -> None:
    async with made(tmp_path / "log", events=1) as one:
        one.replica.follower.caught_up.set()
        assert one.replica.behind() is None
        await passed(one, 15 + GRACE)
        assert one.replica.behind() == "the log of a is not complete here: there is no connection"


class NoPauses(Clock):
    """No pause between attempts ever ends by itself."""

    async def sleep(self, seconds: float) -> None:
        await (super().sleep(seconds) if seconds == LOOK else asyncio.Event().wait())


async def test_where_the_leader_is_not_reached_the_lease_is_looked_at_and_who_leads_next_followed(
    tmp_path: Path,
) -> None:
    async with made(tmp_path / "log", events=1, clock=NoPauses()) as one:
        for looks, holder in enumerate(("c", "d", "e"), start=1):
            await until(lambda looks=looks: one.looks == looks)
            one.elector.holder = holder


async def test_nobody_is_followed_that_is_itself_or_is_nowhere(tmp_path: Path) -> None:
    """Another process may hold the Lease under this replica's identity."""
    async with made(tmp_path / "log", events=1) as one:
        assert one.replica._followed() == ("a", NOWHERE)
        one.elector.holder = one.elector.identity
        assert one.replica._followed() is None
        one.elector.holder, one.elector.holder_address = "a", ""
        assert one.replica._followed() is None


async def test_who_takes_the_lead_asks_the_leader_before_and_all_that_followed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Peer] = []

    async def take_over(peers: Sequence[Peer], *_: object) -> None:
        asked.extend(peers)

    monkeypatch.setattr(replica, "take_over", take_over)
    async with made(tmp_path / "log") as one:
        await until(lambda: one.replica._led_by)
        one.replica.follower.peers = (Peer("c", "https://c"), Peer("d", "https://d"))
        await one.replica.become_leader()
        assert {peer.name for peer in asked} == {"a", "c", "d"}
        assert one.replica._followed() is None


async def test_one_that_has_nothing_lets_others_lead_first(tmp_path: Path) -> None:
    async with made(tmp_path / "empty") as one:
        assert not one.elector.can_lead()
        one.elector.holder, one.elector.holder_address = "", ""  # who has it gave the Lease back
        assert not one.elector.can_lead()
        one.elector.has_log = False  # an older vcd leads: there is nothing to be had
        assert one.elector.can_lead()
        assert one.replica.behind() is None


async def test_one_that_has_a_log_of_its_own_stands_though_nobody_can_be_followed(tmp_path: Path) -> None:
    async with made(tmp_path / "log", events=3) as one:
        assert one.elector.can_lead()
        one.replica.follower.began = True  # but not while it takes another's over
        assert not one.elector.can_lead()


async def test_one_that_gave_up_a_part_of_its_log_lets_others_lead_first_until_it_has_the_rest(tmp_path: Path) -> None:
    async with made(tmp_path / "log", events=3) as one:
        one.replica.lacks = True
        assert not one.elector.can_lead()
        one.replica.follower.caught_up.set()
        assert one.elector.can_lead()


async def test_a_reason_not_to_follow_is_logged_once(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as lines:
        async with made(tmp_path / "log", events=1) as one:
            await until(lambda: one.looks >= 3)
            one.elector.holder_address = "nowhere"
            before = one.looks
            await until(lambda: one.looks >= before + 3)
    assert [line["event"] for line in lines] == ["the leader's log is not followed"] * 2
    assert "Cannot connect" in lines[0]["reason"] and "nowhere" in lines[1]["reason"]

"""A replica follows the log of the one that leads, over a connection: it has the same, and says how far."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import BaseTestServer, TestServer

from tests.eventlog.samples import SECOND, Clock, execute, put, session, write_history
from tests.eventlog.test_replication import content
from tests.kube.scripted import FakeClock, until
from vcd.daemon.leadership.replica_status import HearingClock
from vcd.daemon.replicas import replica_protocol
from vcd.daemon.replicas.follower_registry import FORGOTTEN, PATIENCE, SHORTEST, Follower, Followers
from vcd.daemon.replicas.log_divergence import rewind_and_preserve
from vcd.daemon.replicas.log_follower import LeaderBehind, LogDiverged, LogFollower, LogReplaced
from vcd.daemon.replicas.log_server import LogServer
from vcd.eventlog import EventLog, LogError, Logged, LogReader, verify
from vcd.eventlog.replication import EventsPiece, LogSource
from vcd.eventlog.rewind import rewind


class Leader:
    """A replica that leads: its log, and who follows it."""

    def __init__(self, log: EventLog, server: BaseTestServer, followers: Followers) -> None:
        self.log, self.server, self.followers = log, server, followers

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        async with aiohttp.ClientSession() as client:
            address = self.server.make_url(replica_protocol.PATH)
            async with client.ws_connect(address, max_msg_size=replica_protocol.LARGEST) as socket:
                yield socket


@asynccontextmanager
async def leader(path: Path, followers: Followers | None = None) -> AsyncIterator[Leader]:
    async with EventLog.open(path) as log:
        followers = followers or Followers()
        application = web.Application()
        application.router.add_get(replica_protocol.PATH, LogServer("leader", log, followers).serve)
        async with TestServer(application) as server:
            yield Leader(log, server, followers)


class Copy:
    """A replica that follows, and the events that it folded."""

    def __init__(self, log: EventLog, name: str = "follower") -> None:
        self.log = log
        self.folded: list[int] = []
        self.follower = LogFollower(name, log, self._fold)

    async def _fold(self, logged: Sequence[Logged]) -> None:
        self.folded += [one.sequence for one in logged]


@asynccontextmanager
async def following(
    lead: Leader, path: Path, name: str = "leader", address: str = "https://127.0.0.1/vcd/log"
) -> AsyncIterator[Copy]:
    """A replica, called by its file, that has caught up and goes on following until the end of the context."""
    async with EventLog.open(path) as log, lead.connection() as socket:
        copy = Copy(log, path.name)
        task = asyncio.ensure_future(copy.follower.follow(socket, name, address))
        try:
            await asyncio.wait([task, caught_up := asyncio.ensure_future(copy.follower.caught_up.wait())],
                               return_when=asyncio.FIRST_COMPLETED)  # fmt: skip
            caught_up.cancel()
            if task.done():
                await task
            yield copy
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_replica_without_a_log_takes_all_over(tmp_path: Path) -> None:
    await write_history(tmp_path / "a", 5, checkpoints=(2, 4))
    async with leader(tmp_path / "a") as lead, following(lead, tmp_path / "b") as copy:
        assert (copy.follower.leader, copy.follower.lag) == ("leader", 0)
        assert copy.folded == list(range(1, 31))
    assert content(tmp_path / "b") == content(tmp_path / "a")
    assert not verify(tmp_path / "b").problems


async def test_what_the_leader_logs_is_here_before_it_is_said_to_be(tmp_path: Path) -> None:
    async with leader(tmp_path / "a") as lead, following(lead, tmp_path / "b") as copy:
        for number in range(1, 6):
            head = await lead.log.append([put(number), session(number, 2 * number - 1)])
            assert await lead.followers.have(head)
            assert copy.log.head == head
        await lead.log.checkpoint(4, b"state" * 100)
        assert await lead.followers.have(await lead.log.append([put(6)]))
    assert content(tmp_path / "b") == content(tmp_path / "a")
    assert copy.folded == list(range(1, 12))


async def test_a_replica_goes_on_where_it_was(tmp_path: Path) -> None:
    await write_history(tmp_path / "a", 2, checkpoints=(2,))
    async with leader(tmp_path / "a") as lead:
        async with following(lead, tmp_path / "b") as copy:
            pass
        await lead.log.append([put(100)])
        async with following(lead, tmp_path / "b") as copy:
            assert copy.folded == [13]
    assert content(tmp_path / "b") == content(tmp_path / "a")


@pytest.mark.parametrize(("shared", "alone"), [(3, 1), (3, 2), (3, 40), (200, 200)])
async def test_of_logs_that_part_the_follower_goes_back_no_further_than_it_must(
    tmp_path: Path, shared: int, alone: int
) -> None:
    clock = Clock()
    await write_history(tmp_path / "a", shared, clock=clock)
    async with leader(tmp_path / "a") as lead, following(lead, tmp_path / "b"):
        pass
    await write_history(tmp_path / "b", alone, clock=clock)
    await write_history(tmp_path / "a", 1, checkpoints=(4,), clock=clock)
    async with leader(tmp_path / "a") as lead:
        with pytest.raises(LogDiverged) as raised:
            async with following(lead, tmp_path / "b"):
                pass
        assert raised.value.to == 6 * shared
        rewind(tmp_path / "b", raised.value.to)
        async with following(lead, tmp_path / "b"):
            pass
    assert content(tmp_path / "b") == content(tmp_path / "a")


async def test_a_follower_goes_back_by_nothing_that_it_did_not_hear_out(tmp_path: Path) -> None:
    clock = Clock()
    await write_history(tmp_path / "a", 3, clock=clock)
    async with leader(tmp_path / "a") as lead, following(lead, tmp_path / "b"):
        pass
    await write_history(tmp_path / "b", 3, clock=clock)
    await write_history(tmp_path / "a", 1, clock=clock)

    async def breaks_off(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        hello = replica_protocol.from_follower((await socket.receive()).data)
        assert isinstance(hello, replica_protocol.Hello)
        with LogSource(tmp_path / "a") as source:
            welcome = replica_protocol.Welcome(
                replica_protocol.VERSION, "leader", source.last_shared(hello.positions), [], source.head()
            )
        await socket.send_bytes(replica_protocol.packed(welcome))
        await socket.receive()
        return socket

    application = web.Application()
    application.router.add_get(replica_protocol.PATH, breaks_off)
    async with (
        TestServer(application) as server,
        EventLog.open(tmp_path / "c") as log,
        following(Leader(log, server, Followers()), tmp_path / "b") as copy,
    ):
        assert (copy.log.head, copy.follower.began, copy.follower.leader) == (36, False, "")


async def test_a_log_of_another_beginning_is_begun_anew(tmp_path: Path) -> None:
    await write_history(tmp_path / "a", 3)
    async with EventLog.open(tmp_path / "b") as log:
        await log.append([put(5), put(6)])
    async with leader(tmp_path / "a") as lead:
        with pytest.raises(LogDiverged) as raised:
            async with following(lead, tmp_path / "b"):
                pass
    assert raised.value.to is None


@pytest.mark.parametrize("more", [1, 50])
async def test_what_the_leader_does_not_have_yet_is_not_taken_back(tmp_path: Path, more: int) -> None:
    """A new leader that lags takes the rest over from those that have it: they keep it."""
    clock = Clock()
    await write_history(tmp_path / "a", 3, clock=clock)
    async with leader(tmp_path / "a") as lead, following(lead, tmp_path / "b"):
        pass
    await write_history(tmp_path / "b", more, clock=clock)
    async with leader(tmp_path / "a") as lead:
        with pytest.raises(LeaderBehind, match=f"leader has event 18, and this replica {18 + 6 * more}"):
            async with following(lead, tmp_path / "b"):
                pass


async def test_a_decision_waits_for_nobody_where_nobody_follows(tmp_path: Path) -> None:
    async with leader(tmp_path / "a") as lead:
        assert not await lead.followers.have(await lead.log.append([put(1)]))
        async with following(lead, tmp_path / "b"):
            pass
        assert not await lead.followers.have(await lead.log.append([put(2)]))


async def test_who_is_late_is_waited_for_no_more_until_it_has_caught_up(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "a") as log:
        clock = DrivenClock()
        followers = Followers(clock)
        with followers.joined("slow", "https://slow") as slow:
            first = await log.append([put(1)])
            followers.has(slow, first)
            assert not await followers.have(first)  # it was not told yet that this is all
            slow.reported = first
            followers.has(slow, first)
            second = await log.append([put(2)])
            waiting = asyncio.ensure_future(followers.have(second))
            await clock.asked.wait()
            clock.now += 2
            clock.slept.set()
            assert not await waiting
            assert followers.late == 1
            assert not await followers.have(second)  # at once
            slow.reported = second
            followers.has(slow, first)
            assert not await followers.have(first)
            clock.now += SHORTEST - 0.1
            followers.has(slow, second)
            assert not await followers.have(second)  # it has caught up, and was late a moment ago
            clock.now += 0.1
            followers.has(slow, second)
            assert await followers.have(second)


async def test_the_first_decision_of_a_term_waits_for_who_is_about_to_follow(tmp_path: Path) -> None:
    async with leader(tmp_path / "a") as lead:
        lead.followers.expect()
        waiting = asyncio.ensure_future(lead.followers.have(await lead.log.append([put(1)])))
        async with following(lead, tmp_path / "b"):
            assert await waiting


async def test_where_nobody_comes_only_the_first_decision_of_a_term_waits() -> None:
    clock = DrivenClock()
    followers = Followers(clock)
    followers.expect()
    waiting = asyncio.ensure_future(followers.have(1))
    await clock.asked.wait()
    clock.now += PATIENCE
    clock.slept.set()
    assert not await waiting
    assert not await followers.have(2)  # at once
    assert followers.late == 0


def test_who_is_late_again_and_again_is_waited_for_ever_more_seldom() -> None:
    follower, now, pauses = Follower("slow", "https://slow"), 0.0, []
    for _ in range(8):
        follower.was_late(now)
        began = now
        while not follower.keeps_up:
            now += 0.5
            follower.reported = 1
            follower.has_all_up_to(1, now)
        pauses.append(now - began)
    assert pauses == [2, 4, 8, 16, 32, 64, 64, 64]
    follower.was_late(now + FORGOTTEN)
    follower.has_all_up_to(1, now + FORGOTTEN + SHORTEST)
    assert follower.keeps_up


async def test_nobody_waits_for_one_that_only_reads(tmp_path: Path) -> None:
    async with leader(tmp_path / "a") as lead, following(lead, tmp_path / "b", address="") as copy:
        head = await lead.log.append([put(1)])
        assert not await lead.followers.have(head)
        await until(lambda: copy.log.head == head)
        assert lead.followers.replicas() == [] and not lead.followers.connected[0].keeps_up


async def test_replicas_are_told_of_each_other(tmp_path: Path) -> None:
    async with leader(tmp_path / "a") as lead, following(lead, tmp_path / "b", address="https://b") as one:
        await until(lambda: bool(lead.followers.replicas()))
        async with following(lead, tmp_path / "c", address="https://c"):
            await lead.log.append([put(1)])
            await until(lambda: [peer.address for peer in one.follower.peers] == ["https://c"])


class DrivenClock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked, self.slept = asyncio.Event(), asyncio.Event()

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.asked.set()
        await self.slept.wait()


async def test_a_follower_that_goes_ends_the_wait_for_it(tmp_path: Path) -> None:
    async with leader(tmp_path / "a") as lead:
        async with following(lead, tmp_path / "b"):
            (follower,) = lead.followers.connected
            waiting = asyncio.ensure_future(lead.followers.have(99))
        assert not await waiting
        assert lead.followers.connected == [] and follower.keeps_up


async def test_who_leads_no_more_lets_those_go_who_follow(tmp_path: Path) -> None:
    async with leader(tmp_path / "a") as lead, EventLog.open(tmp_path / "b") as log, lead.connection() as socket:
        follower = Copy(log).follower
        task = asyncio.ensure_future(follower.follow(socket, "leader", "https://127.0.0.1/vcd/log"))
        await follower.caught_up.wait()
        lead.followers.dismissed.set()
        await task
        assert follower.leader == ""


async def test_who_is_let_go_of_has_all_that_was_there(tmp_path: Path) -> None:
    async with leader(tmp_path / "a") as lead, EventLog.open(tmp_path / "b") as log, lead.connection() as socket:
        for _ in range(20):
            await lead.log.append([put(number) for number in range(500)])
        task = asyncio.ensure_future(Copy(log).follower.follow(socket, "leader", "https://127.0.0.1/vcd/log"))
        await until(lambda: log.head)
        lead.followers.dismissed.set()
        await task
        assert log.head == lead.log.head


OTHERWISE: dict[str, bytes | str] = {
    "nothing": b"",
    "nonsense": b"nonsense",
    "no frame": b"\x28\xb5\x2f\xfd" + b"\xff" * 20,
    "text": "text",
    "out of turn": replica_protocol.packed(replica_protocol.Have(5)),
    "another version": replica_protocol.packed(replica_protocol.Hello(99, "newer", [], [])),
}


@pytest.mark.parametrize("said", OTHERWISE.values(), ids=OTHERWISE)
async def test_who_speaks_otherwise_is_refused(tmp_path: Path, said: bytes | str) -> None:
    await write_history(tmp_path / "a", 1)
    async with leader(tmp_path / "a") as lead, lead.connection() as socket:
        await (socket.send_str(said) if isinstance(said, str) else socket.send_bytes(said))
        answer = await socket.receive(5)
        assert answer.type is aiohttp.WSMsgType.CLOSE
        assert answer.extra
        assert lead.followers.connected == []
    assert lead.log.failure is None or "closed" in str(lead.log.failure)


async def test_a_follower_refuses_what_is_not_the_leaders_next_event(tmp_path: Path) -> None:
    async def lies(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        await socket.send_bytes(
            replica_protocol.packed(replica_protocol.Welcome(replica_protocol.VERSION, "liar", None, [], None))
        )
        await socket.receive()
        await socket.send_bytes(
            replica_protocol.packed(EventsPiece([((7, 1, "gone", "Pod", "a/b", "1", None), b"x" * 16)]))
        )
        await socket.receive()
        return socket

    application = web.Application()
    application.router.add_get(replica_protocol.PATH, lies)
    async with TestServer(application) as server, EventLog.open(tmp_path / "b") as log:
        with pytest.raises(LogError, match="do not follow event 0"):
            async with following(Leader(log, server, Followers()), tmp_path / "c", "liar"):
                pass


async def test_who_is_not_the_leader_is_not_followed(tmp_path: Path) -> None:
    async with leader(tmp_path / "a") as lead:
        with pytest.raises(LogError, match="leader answers at the address of another"):
            async with following(lead, tmp_path / "b", "another"):
                pass


async def test_who_follows_keeps_up_though_more_comes_all_the_time(tmp_path: Path) -> None:
    """A clock that stands still: how busy the machine is does not matter."""
    async with leader(tmp_path / "a", Followers(FakeClock())) as lead, following(lead, tmp_path / "b"):
        more = asyncio.ensure_future(append_on(lead.log))
        for _ in range(20):
            assert await lead.followers.have(await lead.log.append([put(1)]))
        more.cancel()
        await asyncio.gather(more, return_exceptions=True)


async def append_on(log: EventLog) -> None:
    """Append until cancelled."""
    while True:
        await log.append([put(2)] * 20)


@pytest.mark.parametrize("after", [2, 3])
async def test_who_stops_following_has_folded_all_that_is_in_its_log(tmp_path: Path, after: int) -> None:
    await write_history(tmp_path / "a", 200)
    async with leader(tmp_path / "a") as lead, EventLog.open(tmp_path / "b") as log, lead.connection() as socket:
        copy = Copy(log)
        task = asyncio.ensure_future(copy.follower.follow(socket, "leader"))
        for _ in range(after):
            await log.growth().wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert copy.folded == list(range(1, log.head + 1)) != []
        assert await log.append([put(1)]) == len(copy.folded) + 1


async def test_a_beginning_that_is_written_is_told_though_who_follows_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    await write_history(tmp_path / "a", 6, checkpoints=(4,), clock=clock)
    async with EventLog.open(tmp_path / "a", clock=clock) as log:
        await log.retain(max_age=60 * SECOND)
    async with leader(tmp_path / "a") as lead, EventLog.open(tmp_path / "b") as log, lead.connection() as socket:
        task = asyncio.ensure_future(Copy(log).follower.follow(socket, "leader"))
        await log.growth().wait()  # the configurations are there; the checkpoint comes
        begun = asyncio.Event()
        monkeypatch.setattr(log, "start_from_checkpoint", told(log.start_from_checkpoint, begun))
        await begun.wait()
        task.cancel()
        with pytest.raises(LogReplaced):
            await task
        assert log.head == 24


def told(work: Callable[..., Awaitable[None]], begun: asyncio.Event) -> Callable[..., Awaitable[None]]:
    """The same work, which says when it begins."""

    async def telling(*given: Any) -> None:
        begun.set()
        await work(*given)

    return telling


async def test_what_is_sent_at_once_is_bounded_in_bytes(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "a") as log:
        await log.append([put(number, size=300_000) for number in range(40)])
    with LogSource(tmp_path / "a") as source:
        pieces = [
            piece for piece in (*source.pieces_from_start(), *source.new_pieces()) if isinstance(piece, EventsPiece)
        ]
    sizes = [sum(len(content[-1] or b"") for content, _ in piece.rows) for piece in pieces]
    assert len(pieces) > 2 and max(sizes) < 5 << 20
    assert [content[0] for piece in pieces for content, _ in piece.rows] == list(range(1, 41))


async def test_a_follower_goes_on_only_where_both_are_the_same(tmp_path: Path) -> None:
    await write_history(tmp_path / "a", 1)
    async with leader(tmp_path / "a") as lead, lead.connection() as socket:
        await socket.send_bytes(replica_protocol.packed(replica_protocol.Hello(replica_protocol.VERSION, "b", [], [])))
        assert isinstance(replica_protocol.from_leader((await socket.receive(5)).data), replica_protocol.Welcome)
        await socket.send_bytes(replica_protocol.packed(replica_protocol.Follow(10**6, [])))
        answer = await socket.receive(5)
        assert (answer.type, answer.extra) == (
            aiohttp.WSMsgType.CLOSE,
            "a follower must continue after event None, or from the beginning",
        )


async def test_a_follower_outlives_what_the_leaders_disk_changed(tmp_path: Path) -> None:
    path = tmp_path / "leader"
    await write_history(path, 4)
    execute(path, "UPDATE event SET resource_version = '77' WHERE sequence = 8")
    async with leader(path) as lead:
        async with following(lead, tmp_path / "follower") as copy:
            assert copy.log.head == 7
        for _ in range(2):
            with pytest.raises(LogError, match="no checkpoint after damaged event 8: event log"):
                async with following(lead, tmp_path / "follower"):
                    pass
        async with EventLog.open(tmp_path / "follower") as log:
            await log.append([put(1)])  # if that leader is lost, this replica can lead


@pytest.mark.parametrize(
    ("damages", "begins"),
    [("event SET key = 'ns/pod-77' WHERE sequence = 8", 12), ("checkpoint SET digest = x'00' WHERE sequence = 12", 18)],
)
async def test_a_copy_begins_with_the_checkpoint_after_all_that_is_damaged(
    tmp_path: Path, damages: str, begins: int
) -> None:
    path, own = tmp_path / "leader", tmp_path / "follower"
    await write_history(path, 6, checkpoints=(2, 3, 5))
    execute(path, f"UPDATE {damages}; UPDATE event SET resource_version = '77' WHERE sequence = 20")
    begun, has_all = [], False
    async with leader(path) as lead:
        while not has_all:
            try:
                async with following(lead, own) as copy:
                    has_all = copy.follower.caught_up.is_set()
            except LogReplaced:
                with LogReader(own) as reader:
                    begun.append(reader.oldest())
            except LogDiverged as diverged:
                rewind_and_preserve(own, diverged.to)
    assert begun == [begins, 30]
    assert not verify(own).problems
    with LogReader(path) as there, LogReader(own) as here:
        assert list(here.read(30)) == list(there.read(30))


async def test_what_was_heard_may_have_been_said_at_the_look_before(tmp_path: Path) -> None:
    """A process that was stopped reads what its leader said long ago; it knew no more than that until then."""
    await write_history(tmp_path / "a", 2)
    async with leader(tmp_path / "a") as lead, following(lead, tmp_path / "b") as copy:
        clock = FakeClock()
        hearing = HearingClock(copy.follower, clock)
        assert hearing.behind() == 0
        for seconds in (20, 1):
            clock.advance(seconds)
            heard = copy.follower.heard
            await until(lambda heard=heard: copy.follower.heard > heard)  # type: ignore[misc]
            assert hearing.behind() == seconds

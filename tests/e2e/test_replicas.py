"""Replicas of one log: who does not lead follows the leader, and no session is lost while one of them lives."""

from __future__ import annotations

import asyncio
import signal
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from tests.e2e.cluster import LEASES, NAMESPACE, Cluster, Daemon, failed, until
from tests.sizes import some
from vcd.api import explain
from vcd.eventlog import LogReader
from vcd.kube.lease import ADDRESS
from vcd.timetravel.log_operations import verify
from vcd.timetravel.replay import replay
from vcd.timetravel.why.explain import Explanation


class Replicas(Cluster):
    """A cluster whose daemons have one log."""

    async def start(
        self, name: str, *flags: str, log: Path | None = None, short: bool = True, **environment: str
    ) -> Daemon:
        token = self._token_file(name)
        own = "--replicas-address=127.0.0.1:0", "--replicas-advertise=127.0.0.1", f"--replicas-token-file={token}"
        return await super().start(name, *own, *flags, log=log, short=short, **environment)

    def _token_file(self, name: str) -> Path:
        """Where the token is by which a replica may follow, as the kubelet of its node would keep it."""
        self.may("create", "authentication.k8s.io", "tokenreviews")
        self.may("create", "authorization.k8s.io", "subjectaccessreviews")
        token = self.folder / f"token-of-{name}"
        token.write_text(token.name + "\n")
        self.server.audiences[token.name] = ("vcd",)
        return token

    def check_laws(self) -> None:
        """As elsewhere; and all logs tell the same as far as they go, or as far as a killed leader was followed."""
        assert not self._watched.broken
        assert not self.refused, f"beyond deploy/'s roles: {self.refused}"
        heads = {}
        for log in sorted({daemon.log for daemon in self.daemons}):
            assert not verify(log).problems
            with LogReader(log) as reader:
                heads[reader.head()] = log
                decided = reader.last_session()
            if decided:
                assert [each.difference for each in replay(log) if each.difference is not None] == []
        for shorter, longer in pairwise(sorted(heads)):
            with LogReader(heads[shorter]) as one, LogReader(heads[longer]) as other:
                if one.link(shorter) != other.link(shorter):
                    self._check_left_behind(one, other)

    def _check_left_behind(self, *logs: LogReader) -> None:
        """Two logs part: one is a killed leader's, and of its sessions at most the one that nobody else had yet."""
        both = min(log.head() for log in logs)
        while logs[0].link(both) != logs[1].link(both):
            both -= 1
        killed = {daemon.log: daemon.killed for daemon in self.daemons}  # of who had it last
        (alone,) = (log for log in logs if killed[log.path])
        assert sum(one.sequence > both for one in alone.sessions()) <= 1, (
            f"{logs[0].path} and {logs[1].path} part at {both}"
        )

    async def two(self) -> tuple[Daemon, Daemon]:
        """The leader and one that follows it."""
        leader = await self.started("a")
        follower = await self.start("b")
        await self.until_following(follower)
        return leader, follower

    async def agreed(self, nodes: int, pods: int) -> tuple[Daemon, Daemon]:
        """The leader, which has bound a gang, and one that follows it and has all of that, too."""
        self.add_nodes(nodes)
        leader, follower = await self.two()
        await self.until_bound(self.submit("gang", pods))
        await self.until_agreed(leader, follower)
        return leader, follower

    async def until_following(self, daemon: Daemon) -> None:
        """Wait until a replica has what the leader has."""
        await until(lambda: daemon.lines("following"), what=f"{daemon.name} follows")
        await daemon.until_healthy("readyz")

    async def until_agreed(self, *daemons: Daemon) -> None:
        """Wait until logs end with the same event."""

        def heads() -> set[int]:
            found = set()
            for daemon in daemons:
                with LogReader(daemon.log) as reader:
                    found.add(reader.head())
            return found

        await until(lambda: len(heads()) == 1, what="all have the same")


def sessions(daemon: Daemon) -> list[tuple[int, int, bytes]]:
    """The sessions in a replica's log."""
    return [(one.session, one.epoch, one.plan) for one in daemon.sessions()]


def story_of_gang(log: Path) -> Explanation:
    """The story of the gang, less the time of the question."""
    return msgspec.structs.replace(explain(log, "job", "gang"), as_of="", quiet=0.0)


async def test_who_follows_has_the_leaders_sessions_and_asks_nothing_of_the_api_server(tmp_path: Path) -> None:
    async with Replicas(tmp_path) as cluster:
        leader, follower = await cluster.agreed(2, 16)
        await until(lambda: sessions(follower) == sessions(leader) != [], what="both have the same sessions")
        assert {made.call.resource for made in cluster.calls(follower)} == {LEASES}
        await until(lambda: explain(leader.log, "job", "gang").now.endswith("16 Running"), what="all is told")
        await until(
            lambda: story_of_gang(follower.log) == story_of_gang(leader.log),
            what="both tell the same",
        )
        shown = {daemon.name: {name for name in await daemon.metrics() if "{" in name} for daemon in (leader, follower)}
        watched = {name: [each for each in shown[name] if each.startswith("vcd_watch_stale_")] for name in shown}
        assert (len(watched["a"]) > 5, watched["b"]) == (True, [])  # who watches nothing is not late with it


async def test_a_killed_leader_takes_no_session_with_it(tmp_path: Path) -> None:
    async with Replicas(tmp_path) as cluster:
        cluster.add_nodes(4)
        leader, follower = await cluster.two()
        keys = cluster.submit("first", 16)
        await cluster.until_bound(keys)
        await leader.kill()
        decided = sessions(leader)
        await cluster.until_leading(follower)
        await cluster.until_bound(cluster.submit("second", 16))
        acted = [one for one in decided if one in sessions(follower)]
        assert acted == decided[: len(acted)]
        assert {bind.key for bind in cluster.binds} >= set(keys)
        with LogReader(follower.log) as reader:
            logged = {key for (key,) in reader.rows("served", first=1, last=reader.last_session())}
        assert logged >= {bind.key for bind in cluster.binds}
        assert "bound" in {episode.what for episode in explain(follower.log, "job", "first").episodes}
        again = await cluster.start("a", log=leader.log)
        await cluster.until_following(again)
        await cluster.until_agreed(again, follower)


async def test_one_that_stood_still_while_another_led_goes_back_to_its_log(tmp_path: Path) -> None:
    async with Replicas(tmp_path) as cluster:
        cluster.add_nodes(4)
        leader, follower = await cluster.two()
        await cluster.until_bound(cluster.submit("first", 8))
        leader.signal(signal.SIGSTOP)
        await cluster.until_leading(follower)
        await cluster.until_bound(cluster.submit("second", 8))
        leader.signal(signal.SIGCONT)
        await until(lambda: leader.lines("leadership_lost"))
        await until(lambda: len(leader.lines("started")) > 1, what="it begins anew")
        await cluster.until_following(leader)
        await until(lambda: sessions(leader) == sessions(follower) != [], what="both have the same sessions")


async def test_a_leader_that_is_stopped_hands_all_over(tmp_path: Path) -> None:
    async with Replicas(tmp_path) as cluster:
        cluster.add_nodes(2)
        leader, follower = await cluster.two()
        await cluster.until_bound(cluster.submit("gang", 8))
        leader.signal(signal.SIGTERM)
        assert await leader.ended() == 0
        await cluster.until_leading(follower)
        with LogReader(leader.log) as old, LogReader(follower.log) as new:
            assert new.link(old.head()) == old.link(old.head())
        assert not await asyncio.to_thread(lambda: list(tmp_path.glob("*-apart-*")))


async def test_all_replicas_are_replaced_one_after_the_other_and_each_knows_what_was_before(tmp_path: Path) -> None:
    """A rolling update: a new one comes, is ready, and an old one goes; none has an old one's disk."""
    async with Replicas(tmp_path) as cluster:
        cluster.add_nodes(4)
        old = list(await cluster.two())
        await cluster.until_bound(cluster.submit("before", 8))
        decided = sessions(old[0])
        new = []
        for number, name in enumerate(("c", "d")):
            new.append(await cluster.start(name))
            await cluster.until_following(new[-1])
            keys = cluster.submit(f"during-{number}", 4)
            old[number].signal(signal.SIGTERM)
            assert await old[number].ended() == 0
            await cluster.until_bound(keys)
        await cluster.until_agreed(*new)
        for daemon in new:
            assert sessions(daemon)[: len(decided)] == decided
            assert "bound" in {episode.what for episode in explain(daemon.log, "job", "before").episodes}
            with LogReader(daemon.log) as reader:
                logged = {key for (key,) in reader.rows("served", first=1, last=reader.last_session())}
            assert logged == {bind.key for bind in cluster.binds}


@pytest.mark.parametrize("token", some(1, ["token-of-nobody", ""]))
async def test_a_follower_without_a_token_that_holds_is_not_ready_and_says_why(tmp_path: Path, token: str) -> None:
    async with Replicas(tmp_path) as cluster:
        leader = await cluster.started("a")
        file = tmp_path / "another-token"
        file.write_text(token)
        follower = await cluster.start("b", f"--replicas-token-file={file}")
        await until(lambda: follower.lines("the leader's log is not followed"))
        assert await follower.health("readyz") == 503
        assert "401" in follower.lines("the leader's log is not followed")[0]["reason"]
        leader.signal(signal.SIGTERM)
        await cluster.until_leading(follower)


async def test_beside_a_leader_that_is_not_followed_a_replica_is_ready(tmp_path: Path) -> None:
    """As during the update from a version that knows no followers."""
    async with Replicas(tmp_path) as cluster:
        await Cluster.start(cluster, "a")
        await until(lambda: cluster.lease() is not None)
        other = await cluster.start("b")
        await other.until_healthy("readyz")
        lease = next(one for one in cluster.store.list(LEASES, NAMESPACE))
        assert ADDRESS not in lease["metadata"].get("annotations", {})


@pytest.mark.parametrize("identity", ["", "--identity=a"])
async def test_a_leader_that_cannot_list_lets_another_lead(tmp_path: Path, identity: str) -> None:
    async with Replicas(tmp_path) as cluster:
        cluster.add_nodes(2)

        async def refuse(request: web.Request) -> web.Response | None:
            of_a = request.headers.get("Authorization", "").endswith("token-of-a")
            return failed(403, "Forbidden") if of_a and request.path.endswith("/nodes") else None

        with cluster.faults(refuse):
            one = await cluster.start("a", "--leader-elect-list-deadline=3s", *filter(None, [identity]))
            await until(lambda: cluster.lease() is not None)
            other = await cluster.start("b")
            await cluster.until_leading(other)
            await cluster.until_bound(cluster.submit("gang", 4))
            await until(lambda: one.lines("following"), what="a follows")
            await cluster.until_agreed(one, other)
            shown = await one.metrics()
            assert shown["vcd_lease_given_back_total"] == len(one.lines("leadership_lost")) >= 1
            assert shown["vcd_leader"] == 0


async def test_one_that_has_nothing_yet_lets_the_one_that_has_all_lead_again(tmp_path: Path) -> None:
    async with Replicas(tmp_path) as cluster:
        cluster.add_nodes(4)
        leader = await cluster.started("a")
        await cluster.until_bound(cluster.submit("gang", 8))
        decided = sessions(leader)
        file = tmp_path / "no-token"
        file.write_text("")
        follower = await cluster.start("b", f"--replicas-token-file={file}")
        await until(lambda: follower.lines("the leader's log is not followed"))
        await leader.kill()
        again = await cluster.start("a", log=leader.log)
        await cluster.until_leading(again)
        assert sessions(again)[: len(decided)] == decided
        file.write_text("token-of-b")
        await cluster.until_following(follower)
        await cluster.until_agreed(again, follower)


async def test_a_winner_that_lags_takes_over_what_only_another_has(tmp_path: Path) -> None:
    async with Replicas(tmp_path) as cluster:
        cluster.add_nodes(4)
        leader, follower = await cluster.two()
        lagging = await cluster.start("c")
        await cluster.until_following(lagging)

        async def refuse(request: web.Request) -> web.Response | None:
            of_b = request.headers.get("Authorization", "").endswith("token-of-b")
            return failed(503, "Busy") if of_b and request.method == "PUT" and "/leases/" in request.path else None

        lagging.signal(signal.SIGSTOP)
        await cluster.until_bound(cluster.submit("gang", 16))
        decided = sessions(leader)
        await until(lambda: sessions(follower)[: len(decided)] == decided, what="b has all that was done")
        with cluster.faults(refuse):
            await leader.kill()
            lagging.signal(signal.SIGCONT)
            await cluster.until_leading(lagging)
            assert lagging.lines("events were copied before leading")
            assert sessions(lagging)[: len(decided)] == decided
            await cluster.until_bound(cluster.submit("next", 4))
            await cluster.until_agreed(lagging, follower)
        assert len(follower.lines("started")) == 1
        assert not await asyncio.to_thread(lambda: list(tmp_path.glob("*-apart-*")))
        again = await cluster.start("a", log=leader.log)
        await cluster.until_following(again)
        await cluster.until_agreed(again, follower, lagging)

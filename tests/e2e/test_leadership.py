"""One writer (docs/laws.md, law 4): replicas told nothing of each other, and all that can befall the leader."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

from tests.e2e.cluster import (
    LEASE_DURATION,
    LEASES,
    NAMESPACE,
    RENEW_DEADLINE,
    REQUEST_TIMEOUT,
    RETRY_PERIOD,
    Cluster,
    Daemon,
    failed,
    is_bind,
    until,
)
from tests.sizes import some
from tests.waiting import assert_prompt
from vcd.daemon.controllers.role_label import LABEL
from vcd.model import events as ev

IN_FLIGHT = 64
"""Writes that a replica has in flight at once: the client's own bound."""
SPARE = 1.0
"""Seconds that a list, a decision and the machine's own delays may take on top of the times that law 4 states."""


async def two(cluster: Cluster, *flags: str) -> tuple[Daemon, Daemon]:
    """The leader and the follower, which has all lists in."""
    for name in ("a", "b"):
        await cluster.start(name, *flags)
    await until(lambda: cluster.leader() is not None, what="one leads")
    leader = cluster.leader()
    assert leader is not None
    await cluster.until_leading(leader)
    follower = next(daemon for daemon in cluster.daemons if daemon is not leader)
    await until(lambda: len({made.call.resource for made in cluster.calls(follower, "watch")}) > 5, what="b watches")
    return leader, follower


def outcomes(daemon: Daemon) -> dict[str, int]:
    """How many operations of its log ended how."""
    found: dict[str, int] = {}
    for event in daemon.events("outcome"):
        assert isinstance(event, ev.OperationDone)
        found[event.result] = found.get(event.result, 0) + 1
    return found


def epochs(daemon: Daemon) -> set[int]:
    return {session.epoch for session in daemon.sessions()}


async def test_of_two_replicas_one_schedules_and_sigterm_gives_the_lease_to_the_other(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(2)
        leader, follower = await two(cluster)
        await cluster.until_bound(cluster.submit("first", 8))
        assert leader.sessions()
        assert not follower.sessions()
        assert cluster.writes(follower) == []
        leader.signal(signal.SIGTERM)
        assert await leader.ended() == 0
        ended = time.monotonic()
        await until(lambda: cluster.leader() is follower)
        assert_prompt(time.monotonic() - ended, RETRY_PERIOD + SPARE)
        await cluster.until_bound(cluster.submit("second", 8))


async def test_a_killed_leader_is_followed_in_the_time_that_law_4_states(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(2)
        leader, follower = await two(cluster)
        leader.process.kill()
        killed = time.monotonic()
        keys = cluster.submit("gang", 16)
        await until(lambda: cluster.leader() is follower)
        taken = next(made.at for made in cluster.calls(follower, "update") if made.call.resource == LEASES)
        await cluster.until_bound(keys)
        decided = cluster.binds[0].at - taken
        assert_prompt(taken - killed, LEASE_DURATION + RETRY_PERIOD + REQUEST_TIMEOUT)
        assert decided >= REQUEST_TIMEOUT
        assert_prompt(decided, REQUEST_TIMEOUT + SPARE)


async def test_a_leader_that_stood_still_makes_no_call_under_its_old_epoch(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(8, 16)
        leader, follower = await two(cluster)
        with cluster.holding_binds(leader) as held:
            keys = cluster.submit("first", 2 * IN_FLIGHT)
            await until(lambda: len(held) == IN_FLIGHT)  # the rest has been decided, and queues for its turn
            leader.signal(signal.SIGSTOP)
            held.release()
            await until(lambda: cluster.leader() is follower)
            await cluster.until_leading(follower)
            keys += cluster.submit("second", 32, cpu=0)
            woke = time.monotonic()
            leader.signal(signal.SIGCONT)
            await until(lambda: leader.lines("leadership_lost"))
            await cluster.until_bound(keys)
        assert cluster.writes(leader, since=woke) == []
        assert len(held) == IN_FLIGHT


async def test_a_leader_whose_connection_is_lost_stops_before_another_may_lead(tmp_path: Path) -> None:
    """Once the connection is back, it follows the other one."""
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(2)
        leader, follower = await two(cluster)
        leader.wire.hold()
        lost = time.monotonic()
        await until(lambda: leader.lines("leadership_lost"))
        assert cluster.leader() is leader
        assert_prompt(time.monotonic() - lost, RENEW_DEADLINE + SPARE)
        await until(lambda: cluster.leader() is follower)
        leader.wire.cut()
        leader.wire.release()
        await cluster.until_bound(cluster.submit("gang", 16))
        await until(lambda: leader.has_seen(bind.key for bind in cluster.binds))
        assert leader.sessions() == []


async def test_what_a_lost_connection_kept_back_cannot_bind_under_the_old_epoch(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        leader, follower = await two(cluster)
        with cluster.holding_binds(leader) as held:
            keys = cluster.submit("gang", 8)
            await until(lambda: len(held) == 8)
            leader.wire.hold()
            await until(lambda: cluster.leader() is follower)
            await cluster.until_bound(keys)
            held.release()
        leader.wire.release()
        await until(lambda: leader.lines("leadership_lost"))
        assert {bind.key for bind in cluster.binds} == set(keys)


async def test_a_stolen_or_deleted_lease_ends_the_term_and_no_epoch_is_used_again(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(4)
        leader = await cluster.started("a")
        await cluster.until_bound(cluster.submit("first", 8))
        before, stolen = epochs(leader), time.monotonic()
        cluster.store.patch(LEASES, NAMESPACE, "volcano", {"spec": {"holderIdentity": "thief"}})
        await until(lambda: leader.lines("leadership_lost"))
        keys = cluster.submit("second", 8)
        await cluster.until_bound(keys)
        assert cluster.binds[-1].at - stolen >= LEASE_DURATION
        assert epochs(leader) > before
        before = epochs(leader)
        cluster.store.delete(LEASES, NAMESPACE, "volcano")
        await until(lambda: len(leader.lines("leadership_lost")) > 1)
        await cluster.until_bound(cluster.submit("third", 8))
        assert min(epochs(leader) - before) > max(before)


async def test_sigterm_lets_what_is_in_flight_end(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(2)
        daemon = await cluster.started("a")
        with cluster.holding_binds() as held:
            keys = cluster.submit("gang", 8)
            await until(lambda: len(held) == 8)
            daemon.signal(signal.SIGTERM)
            held.release()
            assert await daemon.ended() == 0
        assert cluster.bound(keys)
        assert outcomes(daemon) == {"done": 8}
        assert (cluster.lease() or {})["holderIdentity"] == ""


async def test_sigterm_keeps_the_lease_while_a_call_may_still_be_carried_out(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(2)
        daemon = await cluster.started("a")
        arrived: list[float] = []

        async def never(request: web.Request) -> None:
            if is_bind(request):
                arrived.append(time.monotonic())
                await asyncio.Event().wait()

        with cluster.faults(never):
            cluster.submit("gang", 4)
            await until(lambda: len(arrived) == 4)
            daemon.signal(signal.SIGTERM)
            await until(lambda: (cluster.lease() or {})["holderIdentity"] == "")
            assert time.monotonic() - arrived[-1] >= REQUEST_TIMEOUT
        assert await daemon.ended() == 0


# --- a leader that cannot schedule ------------------------------------------------------------------------------------


def refusing(daemon: str, *plurals: str, watches: bool = False) -> Callable[[web.Request], web.Response | None]:
    """Lists of some kinds are forbidden to one replica, and ``watches`` too if so said."""

    def hook(request: web.Request) -> web.Response | None:
        mine = request.headers.get("Authorization", "").endswith(f"token-of-{daemon}")
        asked = request.path.rpartition("/")[2]
        refused = mine and request.method == "GET" and asked in plurals and (watches or "watch" not in request.query)
        return failed(403, "Forbidden", f"may not list {asked}") if refused else None

    return hook


@pytest.mark.parametrize("plural", some(1, ["pods", "queues"]))
async def test_a_leader_that_cannot_list_a_kind_makes_room_for_one_that_can(tmp_path: Path, plural: str) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(2)
        with cluster.faults(refusing("a", plural)):
            blind = await cluster.start("a", "--leader-elect-list-deadline=3s")
            await until(lambda: cluster.lease() is not None, what="a holds the Lease")
            able = await cluster.start("b", "--leader-elect-list-deadline=3s")
            await cluster.until_leading(able)
            await cluster.until_bound(cluster.submit("gang", 16))
            assert await blind.health() == 200
            assert (await blind.metrics())["vcd_lease_given_back_total"] >= 1
        assert f"may not list {plural}" in blind.lines("leadership_lost")[0]["reason"]
        assert blind.sessions() == []


async def test_a_leader_that_could_not_list_leads_again_once_it_can(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(2)
        with cluster.faults(refusing("a", "nodes")):
            daemon = await cluster.start("a", "--leader-elect-list-deadline=3s")
            await until(lambda: daemon.lines("leadership_lost"))
        await cluster.until_leading(daemon)
        await cluster.until_bound(cluster.submit("gang", 16))


@pytest.mark.parametrize("plural, kind", some(1, [("queues", "Queue"), ("pods", "Pod")]))
async def test_a_leader_that_loses_a_kind_makes_room_for_one_that_has_it(
    tmp_path: Path, plural: str, kind: str
) -> None:
    """As after a change of its role: watches end, and neither they nor lists are granted any more."""
    stale, slow = "--leader-elect-stale-deadline=3s", "--leader-elect-list-deadline=1m"
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(4)
        blind = await cluster.start("a", stale, slow)
        await cluster.until_leading(blind)
        await cluster.until_bound(cluster.submit("before", 8))
        able = await cluster.start("b", stale, slow)
        await until(lambda: len(cluster.calls(able, "watch")) > 5, what="b watches")
        assert await blind.health("readyz") == 200
        with cluster.faults(refusing("a", plural, watches=True)):
            assert cluster.server.cut_watches() > 5
            await cluster.until_leading(able)
            await cluster.until_bound(cluster.submit("after", 16))
            shown = await blind.metrics()
            assert shown["vcd_lease_given_back_total"] == 1
            assert shown[f'vcd_watch_stale_seconds{{kind="{kind}"}}'] >= 3
            assert (await blind.health(), await blind.health("readyz")) == (200, 503)
        assert f"may not list {plural}" in blind.lines("leadership_lost")[0]["reason"]
        assert not able.lines("leadership_lost")


async def test_watches_that_nothing_happens_on_cost_no_leadership(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(2)
        daemon = await cluster.start("a", "--leader-elect-stale-deadline=4s", E2E_SILENCE="0.5")
        await cluster.until_leading(daemon)
        seen = len(cluster.calls(daemon, "watch"))
        await until(lambda: len(cluster.calls(daemon, "watch")) > seen + 160, what="silent watches are begun anew")
        assert not daemon.lines("leadership_lost")
        assert await daemon.health("readyz") == 200


async def test_the_leaders_pod_is_labelled(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(2)

        def role(name: str) -> str | None:
            found = next(pod for pod in cluster.store.list("pods") if pod["metadata"]["name"] == name)
            labels: dict[str, str] = found["metadata"]["labels"]
            assert labels["of"] == name
            return labels.get(LABEL)

        for name in ("one", "two"):
            spec = {
                "containers": [{"name": "vcd", "image": "vcd", "resources": {"requests": {"cpu": "1"}}}],
                "nodeName": "node-00",
                "schedulerName": "other",
            }
            metadata = {"name": name, "namespace": "default", "labels": {"of": name}}
            cluster.store.create("pods", {"metadata": metadata, "spec": spec})
        first = await cluster.start("a", POD_NAME="one", POD_NAMESPACE="default")
        await cluster.until_leading(first)
        await until(lambda: role("one") == "leader", what="the leader is labelled")
        second = await cluster.start("b", POD_NAME="two", POD_NAMESPACE="default")
        await until(lambda: role("two") == "follower", what="who follows is labelled")
        first.signal(signal.SIGSTOP)
        await cluster.until_leading(second)
        await until(lambda: role("two") == "leader", what="the next leader is labelled")
        first.signal(signal.SIGCONT)
        await until(lambda: role("one") == "follower", what="the one before is told so")

"""Three replicas under load at a real API server, and each way to lose the leader: no pod is lost or bound twice."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.e2e.cluster import Daemon, until
from tests.real.cluster import RealCluster
from tests.real.controlplane import ControlPlane
from tests.real.test_endtoend import Replicas
from tests.sizes import some
from vcd.api import explain
from vcd.eventlog import LogReader
from vcd.timetravel.log_operations import verify

pytestmark = pytest.mark.real

GANGS, GANG = 24, 16


async def kill(cluster: RealCluster, leader: Daemon) -> None:
    """As power loss does."""
    await leader.kill()


async def pause(cluster: RealCluster, leader: Daemon) -> None:
    """A process that stands still until another leads, and then goes on."""
    leader.signal(signal.SIGSTOP)
    await _another_leads(cluster, leader)
    leader.signal(signal.SIGCONT)
    await until(lambda: leader.lines("leadership_lost"), what="it knows that it does not lead")


async def part(cluster: RealCluster, leader: Daemon) -> None:
    """A network that lets nothing through between one replica and the API server, and then does again."""
    leader.wire.hold()
    await until(lambda: leader.lines("leadership_lost"), what="it knows that it does not lead")
    await _another_leads(cluster, leader)
    leader.wire.cut()
    leader.wire.release()


async def _another_leads(cluster: RealCluster, before: Daemon) -> None:
    await until(lambda: cluster.leader() not in (None, before), what="another one leads")


@pytest.mark.parametrize("lose", some(1, [kill, pause, part]))
async def test_a_leader_that_is_lost_under_load_loses_nothing(
    plane: ControlPlane, tmp_path: Path, lose: Callable[[RealCluster, Daemon], Awaitable[None]]
) -> None:
    async with RealCluster(tmp_path) as cluster:
        cluster.add_nodes(GANGS, GANG)
        leader = await cluster.started("a")
        for name in ("b", "c"):
            await cluster.start(name)
        keys = [key for number in range(GANGS) for key in cluster.submit(f"gang-{number}", GANG)]
        await until(lambda: len(cluster.binds) >= len(keys) // 4, what="a part is bound")
        await lose(cluster, leader)
        keys += cluster.submit("later", 8, cpu=0)
        await cluster.until_bound(keys)
        assert sorted(bind.key for bind in cluster.binds) == sorted(keys)


async def test_under_load_all_replicas_are_replaced_and_one_is_lost_and_each_explains_what_was_before(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """A rolling update of replicas of one log, then a node that is lost; none has an old one's disk."""
    async with Replicas(tmp_path) as cluster:
        cluster.add_nodes(GANGS, GANG)
        old = list(await cluster.two())
        keys = cluster.submit("before", GANG)
        await cluster.until_bound(keys)
        new: list[Daemon] = []
        for number, name in enumerate(("c", "d")):
            new.append(await cluster.start(name))
            await cluster.until_following(new[-1])
            keys += [key for each in range(4) for key in cluster.submit(f"during-{number}-{each}", GANG)]
            old[number].signal(signal.SIGTERM)
            assert await old[number].ended() == 0
        await until(lambda: cluster.leader() in new, what="a new one leads")
        lost = cluster.leader()
        assert lost is not None
        await cluster.until_leading(lost)
        keys += [key for each in range(4) for key in cluster.submit(f"after-{each}", GANG)]
        await lost.kill()
        cluster.daemons.remove(lost)  # with its disk
        await lost.wire.stop()
        (left,) = (daemon for daemon in new if daemon is not lost)
        await cluster.until_leading(left)
        await cluster.until_bound(keys)
        third = await cluster.start("e")
        await cluster.until_following(third)
        await cluster.until_agreed(left, third)
        for daemon in (left, third):
            assert not verify(daemon.log).problems
            with LogReader(daemon.log) as reader:
                logged = {key for (key,) in reader.rows("served", first=1, last=reader.last_session())}
            assert logged == set(keys)
            assert "bound" in {episode.what for episode in explain(daemon.log, "job", "before").episodes}
        assert sorted(bind.key for bind in cluster.binds) == sorted(keys)

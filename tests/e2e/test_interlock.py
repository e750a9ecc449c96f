"""Two schedulers of one name: vcd reports the other one, and holds back the namespaces in which that one binds."""

from __future__ import annotations

import time
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.beside import ShadowedCluster, first_fit
from tests.e2e.cluster import GROUPS, QUEUES, Cluster, Daemon, Made, Obj, failed, group, pod, until
from tests.e2e.first_fit import LEFT_ALONE
from tests.e2e.test_shadow import add
from vcd.embedded.api_server import ADMIN
from vcd.model import events as ev

QUIET = 3.0
PERIOD = f"--others-quiet-period={QUIET:g}s"
OTHER = "other"
TIGHT = "tight"
"""A queue from which vcd lets nobody in."""


def add_tight_queue(cluster: Cluster) -> None:
    cluster.store.create(QUEUES, {"metadata": {"name": TIGHT}, "spec": {"weight": 1, "capability": {"cpu": "500m"}}})


def add_for_the_other(cluster: Cluster, name: str, count: int) -> list[str]:
    """Jobs that vcd keeps waiting, and another scheduler does not; their pods' keys."""
    return [add(cluster, f"{name}-{number}", queue=TIGHT) for number in range(count)]


def binds_of(cluster: Cluster, daemon: Daemon, since: float = 0.0) -> list[Made]:
    return [made for made in cluster.calls(daemon, "create", since=since) if made.call.subresource == "binding"]


def events_of(cluster: Cluster, reason: str) -> list[Obj]:
    return [each for each in cluster.store.list("events") if each["reason"] == reason]


def holder(cluster: Cluster) -> str:
    return str((cluster.lease() or {}).get("holderIdentity", ""))


async def foreign_binds(daemon: Daemon) -> float:
    return (await daemon.metrics())["vcd_foreign_binds_total"]


async def bind(cluster: Cluster, key: str, node: str) -> int:
    """As a person does it, with `kubectl create -f binding.yaml`; the answer's status."""
    cluster.server.tokens[ADMIN] = ADMIN  # type: ignore[index]
    namespace, _, name = key.partition("/")
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    url = f"{cluster.server.url}/api/v1/namespaces/{namespace}/pods/{name}/binding"
    headers = {"Authorization": f"Bearer {ADMIN}"}
    async with aiohttp.ClientSession(headers=headers) as session, session.post(url, json=body) as answer:
        return answer.status


def add_elsewhere(cluster: Cluster, name: str) -> str:
    """A job of one pod in another namespace, which the other scheduler leaves alone; its key."""
    cluster.store.create(GROUPS, in_namespace(OTHER, group(name, 1)))
    made = pod(f"{name}-0", name)
    made["metadata"]["annotations"] |= {LEFT_ALONE: "true"}
    cluster.store.create("pods", in_namespace(OTHER, made))
    return f"{OTHER}/{name}-0"


def in_namespace(namespace: str, obj: Obj) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}


async def test_a_namespace_is_held_back_until_the_other_has_stopped_and_no_other_is(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(8, 16)
        add_tight_queue(cluster)
        cluster.store.create("namespaces", {"metadata": {"name": OTHER}})
        daemon = await cluster.started("a", PERIOD)
        await cluster.until_bound([add(cluster, "before")])
        held = holder(cluster)
        keys = add_for_the_other(cluster, "theirs", 6)
        async with first_fit(cluster):
            await cluster.until_bound(keys)
            await daemon.until_metric("vcd_namespaces_held_back", 1)
            began = time.monotonic()
            await cluster.until_bound([add(cluster, f"after-{number}") for number in range(10)])
            assert binds_of(cluster, daemon, since=began) == []
            await cluster.until_bound([add_elsewhere(cluster, "elsewhere")])
            assert len(binds_of(cluster, daemon, since=began)) == 1
            told = events_of(cluster, "ForeignBind")
            assert len(told) >= 3
            assert any("vcd decides nothing in this namespace until" in each["message"] for each in told)
        kept = add(cluster, "kept", alone=True)
        stopped = max(bound.at for bound in cluster.binds if not bound.key.startswith(f"{OTHER}/"))
        await cluster.until_bound([kept])
        assert cluster.binds[-1].at - stopped >= QUIET - 0.5
        await daemon.until_metric("vcd_namespaces_held_back", 0)
        assert holder(cluster) == held


async def test_a_replica_that_begins_anew_still_holds_the_namespace_back(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(8, 16)
        add_tight_queue(cluster)
        daemon = await cluster.started("a", "--others-quiet-period=1h")
        async with first_fit(cluster):
            await cluster.until_bound(add_for_the_other(cluster, "theirs", 3))
            await daemon.until_metric("vcd_namespaces_held_back", 1)
        await daemon.kill()
        again = await cluster.started("a", "--others-quiet-period=1h", log=daemon.log)
        assert (await again.metrics())["vcd_namespaces_held_back"] == 1


async def test_with_the_flag_it_goes_on(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(8, 16)
        add_tight_queue(cluster)
        daemon = await cluster.started("a", PERIOD, "--lead-beside-others")
        held = holder(cluster)
        async with first_fit(cluster):
            await cluster.until_bound(add_for_the_other(cluster, "theirs", 5))
            await daemon.until_metric("vcd_foreign_binds_total", 5)
        await cluster.until_bound([add(cluster, "ours")])
        assert holder(cluster) == held
        assert (await daemon.metrics())["vcd_namespaces_held_back"] == 0


@pytest.mark.parametrize("count", [1, 2])
async def test_what_a_person_binds_is_told_and_holds_nothing_back(tmp_path: Path, count: int) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(2, 16)
        add_tight_queue(cluster)
        daemon = await cluster.started("a", PERIOD)
        held = holder(cluster)
        for key in add_for_the_other(cluster, "by-hand", count):
            assert await bind(cluster, key, "node-01") == 201
        await daemon.until_metric("vcd_foreign_binds_total", count)
        await until(lambda: len(events_of(cluster, "ForeignBind")) == count, what="it is told")
        await cluster.until_bound([add(cluster, "ours")])
        assert holder(cluster) == held
        assert [type(one) for one in daemon.events("foreign")] == [ev.ForeignBound] * count


async def test_what_has_a_node_from_the_beginning_is_not_foreign(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(2, 16)
        daemon = await cluster.started("a", PERIOD)
        cluster.store.create(GROUPS, group("fixed", 1))
        for number in range(5):  # as a DaemonSet's, or a static one
            cluster.store.create("pods", pod(f"fixed-{number}", "fixed", 1, nodeName="node-00"))
        other = pod("other", "fixed", 1, schedulerName="default-scheduler")
        cluster.store.create("pods", other)
        assert await bind(cluster, "default/other", "node-01") == 201
        await cluster.until_bound([add(cluster, "ours")])
        assert await foreign_binds(daemon) == 0


async def test_replicas_are_no_strangers_to_each_other(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(8, 16)
        first = await cluster.started("a", PERIOD)
        second = await cluster.start("b", PERIOD)
        await until(lambda: second.lines("started"))
        keys = cluster.submit("early", 40)
        await until(lambda: len(cluster.binds) > 5, what="some are bound")
        await first.kill()
        keys += cluster.submit("late", 20)
        await cluster.until_bound(keys)
        assert cluster.leader() is second
        await second.until_metric("vcd_namespaces_held_back", 0)
        assert await foreign_binds(second) == 0


async def test_what_was_under_way_as_it_was_killed_is_its_own(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(8, 16)
        daemon = await cluster.started("a", PERIOD)
        with cluster.holding_binds() as held:
            keys = cluster.submit("gang", 12)
            await until(lambda: len(held) == 12, what="all binds are under way")
            await daemon.kill()
            held.release()
        again = await cluster.started("a", PERIOD, log=daemon.log)
        await cluster.until_bound([*keys, add(cluster, "next")])
        assert await foreign_binds(again) == 0


async def test_binds_without_an_answer_are_its_own(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(8, 16)
        daemon = await cluster.started("a", PERIOD)

        async def lost(request: aiohttp.web.Request) -> aiohttp.web.Response | None:
            if not (request.method == "POST" and request.path.endswith("/binding")):
                return None
            await cluster.carry_out(request)
            return failed(500, "InternalError")

        with cluster.faults(lost):
            await cluster.until_bound(cluster.submit("gang", 8))
        await cluster.until_bound([add(cluster, "next")])
        assert await foreign_binds(daemon) == 0


async def test_a_shadow_does_not_complain(tmp_path: Path) -> None:
    async with ShadowedCluster(tmp_path) as cluster:
        cluster.add_nodes(2, 16)
        shadow = await cluster.shadow()
        async with first_fit(cluster):
            await cluster.until_bound([add(cluster, f"job-{number}") for number in range(6)])
        await until(lambda: len(shadow.sessions()) > 0)
        shown = await shadow.metrics()
        assert not {"vcd_foreign_binds_total", "vcd_namespaces_held_back"} & {name for name in shown if shown[name]}
        assert shadow.lines("another scheduler bound a pod of vcd's schedulerName") == []

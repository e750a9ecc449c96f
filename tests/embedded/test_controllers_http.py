"""A jumping cluster whose scheduler is reached, and reaches it, over HTTP only."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import aiohttp

from tests.embedded.simulated import PODGROUPS, PODS, START, Obj
from tests.waiting import WAIT_LIMIT
from vcd.embedded.api_server import ApiServer
from vcd.embedded.cluster_clock import ClusterClock
from vcd.embedded.controllers.controller_base import JOBS
from vcd.embedded.controllers.pod_properties import condition_of, node_of, phase_of
from vcd.embedded.embedded_cluster import EmbeddedCluster
from vcd.embedded.store import Store
from vcd.embedded.workload_generator import Feeder, Mix, generate, install, parse_nodes

PATHS = {PODS: "/api/v1/pods", PODGROUPS: "/apis/scheduling.volcano.sh/v1beta1/podgroups"}


class HttpBinder:
    """Watches pods and groups, lets all groups in and binds all pods to the one node."""

    def __init__(self, cluster: EmbeddedCluster, session: aiohttp.ClientSession) -> None:
        self.cluster = cluster
        self.session = session
        self.seen = dict.fromkeys(PATHS, 0)
        self.acting = 0

    async def quiescent(self) -> bool:
        await asyncio.sleep(0)
        shelves = {resource: self.cluster.store.shelf(resource) for resource in PATHS}
        newest = {name: shelf.changes[-1].version for name, shelf in shelves.items() if shelf.changes}
        return not self.acting and all(self.seen[name] >= version for name, version in newest.items())

    async def watch(self, resource: str) -> None:
        version = str(self.cluster.store.version)
        query = {"watch": "1", "resourceVersion": version}
        async with self.session.get(PATHS[resource], params=query) as answer:
            async for line in answer.content:
                event = json.loads(line)
                await self.act(resource, event["type"], event["object"])
                self.seen[resource] = int(event["object"]["metadata"]["resourceVersion"])

    async def act(self, resource: str, kind: str, obj: Obj) -> None:
        if kind == "DELETED" or obj["metadata"].get("deletionTimestamp"):
            return
        base = f"{PATHS[resource].rpartition('/')[0]}/namespaces/default/{resource.partition('.')[0]}"
        url = f"{base}/{obj['metadata']['name']}"
        self.acting += 1
        if resource == PODGROUPS and (obj.get("status") or {}).get("phase", "Pending") == "Pending":
            await (await self.session.put(url, json={**obj, "status": {"phase": "Inqueue"}})).read()
        elif resource == PODS and not node_of(obj):
            await (await self.session.post(f"{url}/binding", json={"target": {"name": "node-0"}})).read()
        self.acting -= 1


@asynccontextmanager
async def served() -> AsyncIterator[EmbeddedCluster]:
    clock = ClusterClock(start=START, speed=None)
    store = Store(clock.now, Random(3))
    cluster = EmbeddedCluster(store, clock)
    install(store, parse_nodes("cpu=10000,memory=100Ti,pods=10000"))
    server = ApiServer(store)
    await server.start()
    try:
        async with aiohttp.ClientSession(server.url) as session, cluster, asyncio.TaskGroup() as group:
            binder = HttpBinder(cluster, session)
            clock.quiescent = binder.quiescent
            watches = [group.create_task(binder.watch(resource)) for resource in PATHS]
            yield cluster
            for watch in watches:
                watch.cancel()
    finally:
        await server.stop()


async def test_time_waits_for_a_scheduler_behind_http() -> None:
    async with served() as cluster:
        mix = Mix(gangs=4, jobs=4, deployments=0, pods=8, size=(2, 4), every=1000)
        arrivals = list(generate(mix, ["default"], seed=2))
        feeder = Feeder(cluster.store, cluster.clock, arrivals)
        feeder.start()
        async with asyncio.timeout(WAIT_LIMIT):
            await cluster.wait_idle()
        assert feeder.created == sum(len(each.objects) for each in arrivals)
        assert {phase_of(each) for each in cluster.store.list(PODS)} == {"Succeeded"}
        assert {each["status"]["state"]["phase"] for each in cluster.store.list(JOBS)} == {"Completed"}
        for each in cluster.store.list(PODS):
            bound = condition_of(each, "PodScheduled")
            assert bound is not None
            assert bound["lastTransitionTime"] == each["metadata"]["creationTimestamp"]

"""On an installation where nobody else makes them, the leader makes the queues root and default."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web

from tests.e2e.cluster import GROUPS, QUEUES, Cluster, Obj, failed, group, pod, until
from tests.sizes import some


def shown(cluster: Cluster) -> dict[str, Obj]:
    return {queue["metadata"]["name"]: queue["spec"] for queue in cluster.store.list(QUEUES, None)}


def add_node(cluster: Cluster) -> None:
    """A node that is ready, as no controller is there to say."""
    cluster.add_nodes(1, 4)
    cluster.store.patch("nodes", None, "node-00", {"spec": {"taints": None}})


def makes_queue(request: web.Request) -> bool:
    return request.method == "POST" and request.path.endswith("/queues")


@pytest.mark.parametrize("flags, default", [((), "default"), (("--default-queue=research",), "research")])
async def test_they_are_made_as_vc_scheduler_makes_them(tmp_path: Path, flags: tuple[str, ...], default: str) -> None:
    async with Cluster(tmp_path, controllers=False) as cluster:
        add_node(cluster)
        await cluster.started("a", *flags)
        await until(lambda: len(shown(cluster)) == 2, what="both queues are made")
        specs = shown(cluster)
        assert {name: (spec["weight"], spec["reclaimable"]) for name, spec in specs.items()} == {
            "root": (1, False),
            default: (1, True),
        }
        cluster.store.create(GROUPS, group("g", 1, queue=default))
        cluster.store.create("pods", pod("g-0", "g"))
        await cluster.until_bound(["default/g-0"])


async def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    async with Cluster(tmp_path, controllers=False) as cluster:
        mine = {"weight": 7, "reclaimable": False, "capability": {"cpu": "3"}}
        cluster.store.create(QUEUES, {"kind": "Queue", "metadata": {"name": "default"}, "spec": mine})
        daemon = await cluster.started("a")
        await until(lambda: "root" in shown(cluster), what="the other one is made")
        assert {key: shown(cluster)["default"][key] for key in mine} == mine
        assert [made.call.verb for made in cluster.writes(daemon) if made.call.resource == QUEUES] == ["create"]


async def test_somebody_who_is_faster_is_no_fault(tmp_path: Path) -> None:
    async with Cluster(tmp_path, controllers=False) as cluster:
        seen: list[str] = []

        def faster(request: web.Request) -> web.Response | None:
            if not makes_queue(request):
                return None
            seen.append(request.path)
            return failed(409, "AlreadyExists")

        with cluster.faults(faster):
            await cluster.started("a")
            await until(lambda: len(seen) == 2, what="both were tried")
        for name in ("root", "default"):
            cluster.store.create(QUEUES, {"kind": "Queue", "metadata": {"name": name}, "spec": {"weight": 1}})
        add_node(cluster)
        await cluster.until_bound(cluster.submit("g", 1))
        assert len(seen) == 2


@pytest.mark.parametrize("code, reason", some(1, [(403, "Forbidden"), (500, "InternalError"), (422, "Invalid")]))
async def test_a_refusal_is_said_and_not_fatal_and_tried_again(tmp_path: Path, code: int, reason: str) -> None:
    async with Cluster(tmp_path, controllers=False) as cluster:
        add_node(cluster)
        cluster.store.create(QUEUES, {"kind": "Queue", "metadata": {"name": "default"}, "spec": {"weight": 1}})

        def told() -> list[str]:
            return [e["message"] for e in cluster.store.list("events", None) if e["reason"] == "QueueMissing"]

        with cluster.faults(lambda request: failed(code, reason) if makes_queue(request) else None):
            await cluster.started("a")
            await cluster.until_bound(cluster.submit("g", 1))
            await until(told, what="an Event says what is missing")
        assert f"queue root is missing and cannot be created: {code} {reason}" in told()[0]
        await until(lambda: "root" in shown(cluster), what="it is made once the server lets it")

"""What pods that wait show, which is all that an autoscaler sees (pains.md, Volcano #3976)."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.cluster import Cluster, Obj, node, until


def scheduled(cluster: Cluster, name: str) -> Obj:
    """The condition PodScheduled of a pod; empty while it has none."""
    shown = cluster.store.get("pods", "default", name).get("status", {}).get("conditions", [])
    return next((one for one in shown if one["type"] == "PodScheduled"), {})


async def test_every_pod_of_a_gang_that_waits_is_unschedulable_with_the_real_reason(tmp_path: Path) -> None:
    """Two of three would find room; an autoscaler has to see that nodes are missing for all of them."""
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(2, 3)
        await cluster.started("a")
        keys = cluster.submit("gang", 3, cpu=2)
        names = [key.partition("/")[2] for key in keys]
        await until(lambda: all(scheduled(cluster, name) for name in names), what="conditions on all pods")
        for name in names:
            condition = scheduled(cluster, name)
            assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
            assert "Insufficient cpu" in condition["message"]

        cluster.store.create("nodes", node("late", 3))
        await cluster.until_bound(keys)
        await until(lambda: all(scheduled(cluster, name)["status"] == "True" for name in names))

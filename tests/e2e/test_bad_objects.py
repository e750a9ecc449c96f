"""An object that cannot be used never stops the cycle, and its owner is told (design law 6)."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.cluster import Cluster, group, pod, until

TOO_MUCH = "16Pi"


async def test_a_pod_that_cannot_be_counted_is_told_of_and_the_rest_is_bound(
    tmp_path: Path,
) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        await cluster.started("a")
        bad = pod("bad", "odd")
        bad["spec"]["containers"][0]["resources"]["requests"]["memory"] = TOO_MUCH
        cluster.store.create("podgroups.scheduling.volcano.sh", group("odd", 1))
        namespace = cluster.store.create("pods", bad)["metadata"]["namespace"]
        await cluster.until_bound(cluster.submit("good", 2))

        def told() -> list[str]:
            events = cluster.store.list("events", namespace)
            return [event["message"] for event in events if event["reason"] == "SetAside"]

        def conditions() -> list[str]:
            shown = cluster.store.get("pods", namespace, "bad")["status"].get("conditions", [])
            return [one["message"] for one in shown if one["reason"] == "SchedulerError"]

        await until(told)
        await until(conditions)
        assert "Pod" in told()[0] and "memory" in told()[0]
        assert conditions() == told()

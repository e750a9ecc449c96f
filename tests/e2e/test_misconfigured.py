"""A queue that contradicts itself (Volcano #4292) is told of: an Event on it, once, and a gauge."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.cluster import QUEUES, Cluster, Obj, node, until

CONF = """
actions: "enqueue, allocate"
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: capacity
"""
SERIES = 'vcd_misconfigured{kind="Queue",name="odd"}'


def told(cluster: Cluster) -> list[Obj]:
    return [event for event in cluster.store.list("events") if event["reason"] == "Misconfigured"]


async def test_a_queue_that_deserves_more_than_it_may_have_is_told_so_once(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.conf"
    file.write_text(CONF)
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        daemon = await cluster.started("a", f"--scheduler-conf={file}")
        spec = {"weight": 1, "capability": {"cpu": "2"}, "deserved": {"cpu": "4"}}
        odd = cluster.store.create(QUEUES, {"kind": "Queue", "metadata": {"name": "odd"}, "spec": spec})
        await until(lambda: told(cluster), what="the Event")
        event = told(cluster)[0]
        assert (event["type"], event["involvedObject"]["kind"], event["involvedObject"]["name"]) == (
            *("Warning", "Queue", "odd"),
        )
        assert event["involvedObject"]["uid"] == odd["metadata"]["uid"]
        assert "spec.deserved cpu 4 is more than the 2 of spec.capability" in event["message"]
        assert (await daemon.metrics())[SERIES] == 1

        await cluster.until_bound(cluster.submit("good", 2))
        cluster.store.create("nodes", node("more"))
        await cluster.until_bound(cluster.submit("better", 2))
        assert [(each["message"], each["count"]) for each in told(cluster)] == [(event["message"], 1)]

        queue = cluster.store.get(QUEUES, None, "odd")
        cluster.store.update(QUEUES, {**queue, "spec": {**queue["spec"], "capability": {"cpu": "4"}}})
        await cluster.until_bound(cluster.submit("best", 2))
        await daemon.until_metric(SERIES, None)
        assert len(told(cluster)) == 1

"""What pods that wait show, which is all that an autoscaler sees (Volcano #3976)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dsl import BY_QUEUE
from tests.e2e.cluster import GROUPS, QUEUES, Cluster, Obj, group, node, pod, until, until_quiet

ADMITTING = BY_QUEUE.replace("capacity", "overcommit")
"""A configuration by which a group waits to be let in."""


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
        why = "enough is free in sum, and too few nodes have all that a pod requests at once: it needs 3 pods, 2 fit"
        await until(lambda: all(scheduled(cluster, name).get("message") == why for name in names), what="the diagnosis")
        for name in names:
            condition = scheduled(cluster, name)
            assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")

        cluster.store.create("nodes", node("late", 3))
        await cluster.until_bound(keys)
        await until(lambda: all(scheduled(cluster, name)["status"] == "True" for name in names))


@pytest.mark.parametrize("flags, reason", [((), "WaitingForQueue"), (("--unschedulable=all",), "Unschedulable")])
async def test_a_pod_that_nodes_could_not_help_asks_for_none(
    tmp_path: Path, flags: tuple[str, ...], reason: str
) -> None:
    """Quota that a queue states; a pod behind somebody's gate keeps what the API server says of it."""
    (tmp_path / "conf").write_text(BY_QUEUE)
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1, 8)
        cluster.store.create(QUEUES, {"kind": "Queue", "metadata": {"name": "q"}, "spec": {"capability": {"cpu": "2"}}})
        await cluster.started("a", f"--scheduler-conf={tmp_path / 'conf'}", *flags)
        wanted = {"minMember": 1, "queue": "q"}
        meta = {"name": "g", "namespace": "default"}
        cluster.store.create("podgroups.scheduling.volcano.sh", {"kind": "PodGroup", "metadata": meta, "spec": wanted})
        cluster.store.create("pods", pod("gated", "g", 1, schedulingGates=[{"name": "example.com/wait"}]))
        cluster.store.create("pods", pod("large", "g", 3))
        await until(lambda: scheduled(cluster, "large"), what="a condition on the pod that waits for quota")
        condition = scheduled(cluster, "large")
        assert condition["reason"] == reason
        # the reason at first, then the diagnosis
        assert any(
            words in condition["message"] for words in ("no room within its capability", "queue q may use 2 cpu")
        )
        assert scheduled(cluster, "gated")["reason"] == "SchedulingGated"


async def test_writing_the_statuses_of_waiting_groups_reads_none_of_them(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        daemon = await cluster.started("a")
        for number in range(20):
            cluster.submit(f"waits-{number}", 1, cpu=100)
        await until(
            lambda: all(
                group.get("status", {}).get("conditions")
                for group in cluster.store.list("podgroups.scheduling.volcano.sh")
            )
        )
        read = [made for made in cluster.calls(daemon, "get") if made.call.resource.startswith("podgroups")]
        written = [made for made in cluster.calls(daemon, "patch") if made.call.resource.startswith("podgroups")]
        assert len(written) >= 20
        assert len(read) < 5


MINE = {"type": "Mine", "status": "True", "reason": "Because", "message": "mine", "lastTransitionTime": None}


async def test_a_verdict_is_not_written_again_after_a_restart_or_by_a_new_leader(tmp_path: Path) -> None:
    series = 'vcd_verdict_pods{cause="cluster-full",queue="default"}'  # the reason itself says node-room

    def group() -> Obj:
        return cluster.store.get(GROUPS, "default", "g")

    def condition() -> Obj:
        shown = group().get("status", {}).get("conditions", [])
        return next((one for one in shown if one["type"] == "Unschedulable"), {})

    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1, 3)
        daemon = await cluster.started("a")
        await cluster.until_bound(cluster.submit("x", 1, cpu=2))
        cluster.submit("g", 1, cpu=2)
        await until(lambda: "the cluster is full" in condition().get("message", ""), what="the verdict")
        message = condition()["message"]
        assert message == (
            "1/1 tasks in gang unschedulable: the cluster is full: 1 of 3 cpu are free, and it needs 2;"
            " default/x holds most"
        )
        both = {"status": {"conditions": [MINE, *group()["status"]["conditions"]]}}
        cluster.store.patch(GROUPS, "default", "g", both)
        version = group()["metadata"]["resourceVersion"]
        daemon.process.terminate()
        await daemon.ended()
        again = await cluster.started("a", log=daemon.log)
        await again.until_metric(series, 1)
        await again.kill()
        other = await cluster.started("b")
        await other.until_metric(series, 1)
        assert group()["metadata"]["resourceVersion"] == version
        assert [one["message"] for one in group()["status"]["conditions"]] == ["mine", message]


@pytest.mark.parametrize("admitted", [False, True])
async def test_a_pod_whose_gate_is_lifted_while_its_group_waits_is_told(tmp_path: Path, admitted: bool) -> None:
    """The API server's SchedulingGated stays until somebody says something else: no autoscaler would look at it."""
    (tmp_path / "conf").write_text(ADMITTING)
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1, 4)
        await cluster.started("a", f"--scheduler-conf={tmp_path / 'conf'}")
        more = {} if admitted else {"minResources": {"cpu": "40"}}
        cluster.store.create(GROUPS, group("g", 2, **more))
        cluster.store.create("pods", pod("plain", "g", 20))
        cluster.store.create("pods", pod("second", "g", 20))
        cluster.store.create("pods", pod("gated", "g", 20, schedulingGates=[{"name": "example.com/wait"}]))
        await until(lambda: scheduled(cluster, "plain").get("reason") == "Unschedulable", what="it waits")
        assert scheduled(cluster, "gated")["reason"] == "SchedulingGated"
        cluster.store.patch("pods", "default", "gated", {"spec": {"schedulingGates": []}})
        await until(lambda: scheduled(cluster, "gated")["reason"] == "Unschedulable", what="it is told, too")


async def test_since_when_a_pod_waits_stays_though_another_process_tells_why(tmp_path: Path) -> None:
    """By convention lastTransitionTime is when the status last changed, not the words."""
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(3, 2)  # with less in all, a queue's share would be a reason, too
        first = await cluster.started("a")
        cluster.submit("g", 1, cpu=5)
        told = "node-00, the largest"
        await until(lambda: told in scheduled(cluster, "g-0").get("message", ""), what="the diagnosis")
        before = {**scheduled(cluster, "g-0"), "lastTransitionTime": "2020-02-02T20:20:20Z"}
        cluster.store.patch("pods", "default", "g-0", {"status": {"conditions": [before]}}, "status")
        await until_quiet(first)
        await first.kill()
        await cluster.started("a", log=first.log)
        cluster.store.create("nodes", node("other", 4))
        await until(lambda: scheduled(cluster, "g-0")["message"] != before["message"], what="another reason")
        after = scheduled(cluster, "g-0")
        assert (after["status"], after["lastTransitionTime"]) == (before["status"], before["lastTransitionTime"])


async def test_a_pod_that_shows_another_reason_than_the_log_has_is_told_anew(tmp_path: Path) -> None:
    """Who decided it was killed before it could tell, or another leader said something else meanwhile."""
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1, 2)
        first = await cluster.started("a")
        cluster.submit("g", 1, cpu=5)
        cluster.submit("h", 1, cpu=5)
        await until(lambda: scheduled(cluster, "g-0") and scheduled(cluster, "h-0"), what="they are told")
        await until_quiet(first)
        true = scheduled(cluster, "g-0")["message"]
        await first.kill()
        old = {**scheduled(cluster, "g-0"), "message": "what once was"}
        cluster.store.patch("pods", "default", "g-0", {"status": {"conditions": [old]}}, "status")
        version = cluster.store.get("pods", "default", "h-0")["metadata"]["resourceVersion"]
        again = await cluster.started("a", log=first.log)
        await until(lambda: scheduled(cluster, "g-0")["message"] == true, what="it is told anew")
        await until_quiet(again)
        assert cluster.store.get("pods", "default", "h-0")["metadata"]["resourceVersion"] == version

"""Quotas of cards on a whole cluster: who is admitted, who keeps what, and what pods that wait are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.cluster import GROUPS, QUEUES, Cluster, Daemon, Obj, group, node, pod, until

CONF = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: predicates
  - name: capacity-card
"""
GPU, MODEL = "nvidia.com/gpu", "NVIDIA-H200"
DEPLOYMENTS = "deployments.apps"


def carded_node(name: str) -> Obj:
    made = node(name)
    made["metadata"]["labels"] |= {"nvidia.com/gpu.product": MODEL, "nvidia.com/gpu.memory": "81920"}
    for rooms in (made["status"]["allocatable"], made["status"]["capacity"]):
        rooms[GPU] = "8"
    return made


def card_queue(name: str, count: int) -> Obj:
    marks = {"volcano.sh/card.quota": f'{{"{MODEL}": {count}}}'}
    return {"kind": "Queue", "metadata": {"name": name, "annotations": marks}, "spec": {"weight": 1}}


def with_card(made: Obj, **marks: str) -> Obj:
    """A pod, or a template of pods, that asks for a card; ``marks`` are labels."""
    meta = made.setdefault("metadata", {})
    meta["annotations"] = {**meta.get("annotations", {}), "volcano.sh/card.name": f"NVIDIA-X|{MODEL}"}
    meta["labels"] = {
        **meta.get("labels", {}),
        **{f"volcano.sh/{key.replace('_', '-')}": text for key, text in marks.items()},
    }
    for container in made["spec"]["containers"]:
        for amounts in ("requests", "limits"):
            container["resources"][amounts] = {**container["resources"].get(amounts, {}), GPU: "1"}
    return made


async def leading(cluster: Cluster, folder: Path, quota: int, name: str = "a", **environment: str) -> Daemon:
    file = folder / "scheduler.conf"
    file.write_text(CONF)
    if name == "a":
        cluster.store.create("nodes", carded_node("cards"))
        cluster.store.create(QUEUES, card_queue("q", quota))
    return await cluster.started(name, f"--scheduler-conf={file}", **environment)


def told(cluster: Cluster, pod_name: str) -> str:
    """What the Events FailedScheduling of a pod say."""
    events = [event for event in cluster.store.list("events") if event["reason"] == "FailedScheduling"]
    return " ".join(event["message"] for event in events if event["involvedObject"]["name"] == pod_name)


def submit(cluster: Cluster, name: str, size: int, minimum: int, **marks: str) -> list[str]:
    add_group(cluster, name, minimum)
    return [add(cluster, name, number, **marks) for number in range(size)]


def add_group(cluster: Cluster, name: str, minimum: int) -> None:
    needs = {"cpu": str(minimum), GPU: str(minimum)}
    cluster.store.create(GROUPS, group(name, minimum, queue="q", minResources=needs))


def add(cluster: Cluster, name: str, number: int, **marks: str) -> str:
    cluster.store.create("pods", with_card(pod(f"{name}-{number}", name), **marks))
    return f"default/{name}-{number}"


def placed(cluster: Cluster, name: str) -> set[str]:
    pods = [each for each in cluster.store.list("pods") if each["spec"].get("nodeName")]
    return {each["metadata"]["name"] for each in pods if each["metadata"]["name"].startswith(name)}


async def test_every_pending_pod_of_a_refused_group_is_told_why(tmp_path: Path) -> None:
    """More pods than a reason names, and one that comes when all is said already."""
    async with Cluster(tmp_path) as cluster:
        daemon = await leading(cluster, tmp_path, quota=2)
        keys = [add(cluster, "big", number) for number in range(5)]
        await until(lambda: daemon.has_seen(keys))  # before it knows a pod that names cards, a group asks for none
        add_group(cluster, "big", minimum=5)
        names = [key.partition("/")[2] for key in keys]
        words = f"queue q may use 2 NVIDIA-X|{MODEL} (volcano.sh/card.quota): 0 in use, and it requests 5"
        await until(lambda: all(words in told(cluster, name) for name in names), what="an Event on each pod")
        add(cluster, "big", 5)
        await until(lambda: words in told(cluster, "big-5"), what="an Event on the late one")
        assert placed(cluster, "big") == set()


async def test_every_pod_that_finds_no_quota_is_told_so(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await leading(cluster, tmp_path, quota=1)
        submit(cluster, "web", 6, minimum=1)
        await until(lambda: placed(cluster, "web"), what="the first pod")
        left = {f"web-{number}" for number in range(6)} - placed(cluster, "web")
        await until(lambda: all("queue q may use" in told(cluster, name) for name in left), what="Events on the rest")


@pytest.mark.plugin("capacity-card")
async def test_a_deployment_of_four_pods_runs_three_where_the_quota_is_three(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        template = with_card({"metadata": {}, "spec": pod("", "")["spec"]})
        template["metadata"]["labels"]["app"] = "web"
        template["metadata"]["annotations"]["scheduling.volcano.sh/queue-name"] = "q"
        spec = {"replicas": 4, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        meta = {"name": "web", "namespace": "default"}
        cluster.store.create(QUEUES, card_queue("q", 3))
        cluster.store.create(DEPLOYMENTS, {"kind": "Deployment", "metadata": meta, "spec": spec})
        await until(lambda: len(cluster.store.list("pods")) == 4, what="all pods are there before anybody is admitted")
        cluster.store.create("nodes", carded_node("cards"))
        file = tmp_path / "scheduler.conf"
        file.write_text(CONF)
        await cluster.started("a", f"--scheduler-conf={file}")
        await until(lambda: len(placed(cluster, "web")) == 3, what="three of four")
        (waits,) = {each["metadata"]["name"] for each in cluster.store.list("pods")} - placed(cluster, "web")
        await until(lambda: told(cluster, waits), what="the Event on the fourth")
        assert "(volcano.sh/card.quota)" in told(cluster, waits)
        assert len(placed(cluster, "web")) == 3


async def test_pods_keep_their_cards_from_others_when_their_group_is_deleted_before_them(tmp_path: Path) -> None:
    """While the leader runs, and in the eyes of another one that never saw the group."""
    async with Cluster(tmp_path) as cluster:
        daemon = await leading(cluster, tmp_path, quota=3)
        await cluster.until_bound(submit(cluster, "old", 2, minimum=2, queue_name="q"))
        await until(lambda: all(each["status"].get("phase") == "Running" for each in cluster.store.list("pods")))
        cluster.store.delete(GROUPS, "default", "old")
        submit(cluster, "new", 3, minimum=1)
        await until(lambda: placed(cluster, "new") and all_but_one_told(cluster), what="one of three, and why")
        series = f'vcd_queue_card_allocated{{card="{MODEL}",queue_name="q"}}'
        await daemon.until_metric(series, 3)
        await until(lambda: cluster.store.get(QUEUES, None, "q")["status"]["allocated"][GPU] == "3", what="it is shown")

        await daemon.kill()
        other = await leading(cluster, tmp_path, quota=3, name="b")
        submit(cluster, "later", 1, minimum=1)
        await until(lambda: told(cluster, "later-0"), what="the refusal of the newcomer")
        assert (len(placed(cluster, "new")), placed(cluster, "later")) == (1, set())
        assert (await other.metrics())[series] == 3
        for name in ("old-0", "old-1"):
            cluster.store.delete("pods", "default", name)
        await until(lambda: len(placed(cluster, "new") | placed(cluster, "later")) == 3, what="what they left is taken")


def all_but_one_told(cluster: Cluster) -> bool:
    waiting = {f"new-{number}" for number in range(3)} - placed(cluster, "new")
    return len(waiting) == 2 and all(told(cluster, name) for name in waiting)

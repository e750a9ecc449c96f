"""Evictions over HTTP: a Volcano Job preempts another, a queue takes back its own; nobody is evicted twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.e2e.cluster import QUEUES, Cluster, Daemon, Obj, node, until

JOBS = "jobs.batch.volcano.sh"
CLASSES = "priorityclasses.scheduling.k8s.io"
TIERS = """
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
  - name: predicates
  - name: capacity
  - name: nodeorder
"""
PREEMPTING = f'actions: "enqueue, allocate, preempt, backfill"{TIERS}'
RECLAIMING = f'actions: "enqueue, allocate, reclaim, backfill"{TIERS}'
GRACE = 2
"""Seconds that a pod takes to leave: long enough for cycles that nominate another to its room."""


def job(name: str, replicas: int, *, minimum: int = 1, queue: str = "default", priority: str = "", cpu: int = 1) -> Obj:
    container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": str(cpu), "memory": "64Mi"}}}
    template = {"spec": {"terminationGracePeriodSeconds": GRACE, "containers": [container]}}
    spec: Obj = {
        "schedulerName": "volcano",
        "queue": queue,
        "minAvailable": minimum,
        "tasks": [{"name": "t", "replicas": replicas, "template": template}],
        **({"priorityClassName": priority} if priority else {}),
    }
    return {"kind": "Job", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


class Watched:
    """What became of pods, as the store saw it."""

    def __init__(self, cluster: Cluster) -> None:
        self.left: dict[str, Obj] = {}
        """Pods by UID, as they were when they began to leave."""
        self.nominated: dict[str, list[tuple[str, str]]] = {}
        """By name of a pod that had no node yet: where it was to wait, and what it was told, each time."""
        self.amid: list[str] = []
        """Pods that were bound to a node on which others were terminating."""
        self._leaving: dict[str, str] = {}
        self._bound: set[str] = set()
        cluster.store.subscribe(["pods"], self._note)

    def _note(self, event: str, _: str, pod: Obj) -> None:
        meta, status, place = pod["metadata"], pod.get("status", {}), pod["spec"].get("nodeName", "")
        if event == "DELETED":
            self._leaving.pop(meta["uid"], None)
            return
        if meta.get("deletionTimestamp"):
            self.left.setdefault(meta["uid"], pod)
            self._leaving[meta["uid"]] = place
        if place and meta["uid"] not in self._bound:
            self._bound.add(meta["uid"])
            if place in self._leaving.values():
                self.amid.append(meta["name"])
        if not place and status.get("nominatedNodeName"):
            told = (status["nominatedNodeName"], conditions(pod)["PodScheduled"]["message"])
            self.nominated.setdefault(meta["name"], []).append(told)

    def evictions(self) -> Counter[str]:
        """How often pods of each name were evicted."""
        return Counter(pod["metadata"]["name"] for pod in self.left.values())


def conditions(pod: Obj) -> dict[str, Obj]:
    return {one["type"]: one for one in pod["status"].get("conditions", [])}


def pods(cluster: Cluster, name: str, phase: str) -> list[Obj]:
    """Pods of a job in a phase that are not leaving."""
    return [
        pod
        for pod in cluster.store.list("pods", "default")
        if pod["metadata"]["name"].startswith(f"{name}-")
        and pod.get("status", {}).get("phase") == phase
        and not pod["metadata"].get("deletionTimestamp")
    ]


async def until_running(cluster: Cluster, name: str, count: int) -> None:
    await until(lambda: len(pods(cluster, name, "Running")) == count, what=f"{count} pods of {name} run")


async def started(cluster: Cluster, folder: Path, conf: str) -> Daemon:
    file = folder / "scheduler.conf"
    file.write_text(conf)
    return await cluster.started("a", f"--scheduler-conf={file}")


def check_evicted(watched: Watched, by: str, verb: str, count: int) -> None:
    """So many pods, each once, and each says on whose behalf."""
    assert len(watched.left) == count
    assert set(watched.evictions().values()) == {1}
    for pod in watched.left.values():
        shown = conditions(pod)
        assert (shown["DisruptionTarget"]["status"], shown["Ready"]["status"]) == ("True", "False")
        assert shown["DisruptionTarget"]["reason"] == "PreemptionByScheduler"
        for kind in ("DisruptionTarget", "Ready"):
            assert f"{verb} for default/{by}-" in shown[kind]["message"]


def check_waited(cluster: Cluster, watched: Watched, *names: str) -> None:
    """Pods were told the node where they waited, and were bound there once those who left were gone. Who had room
    before the others of its gang may have been told that it waits for them."""
    places = {bind.key.partition("/")[2]: bind.node for bind in cluster.binds}
    for name in names:
        told = watched.nominated[name]
        assert {place for place, _ in told} == {places[name]}
        assert told[0][1] == f"waits for capacity that evictions free on node {places[name]}"
    assert watched.amid == []


def told_of(cluster: Cluster, reason: str) -> set[str]:
    """The names of the pods that Events of a reason are about."""
    events = cluster.store.list("events", "default")
    return {event["involvedObject"]["name"] for event in events if event["reason"] == reason}


async def test_a_job_of_high_priority_preempts_a_lower_one(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(2, 4)
        for name, value in (("low", 10), ("high", 1000)):
            cluster.store.create(CLASSES, {"kind": "PriorityClass", "metadata": {"name": name}, "value": value})
        watched = Watched(cluster)
        daemon = await started(cluster, tmp_path, PREEMPTING)
        cluster.store.create(JOBS, job("low", 8, priority="low"))
        await until_running(cluster, "low", 8)

        cluster.store.create(JOBS, job("high", 3, minimum=3, priority="high"))
        await until_running(cluster, "high", 3)
        check_evicted(watched, "high", "preemption", 3)
        check_waited(cluster, watched, "high-t-0", "high-t-1", "high-t-2")
        await until(lambda: told_of(cluster, "Evict") == set(watched.evictions()), what="Events on who was evicted")

        await until(lambda: len(pods(cluster, "low", "Pending")) == 3, what="the job controller made new pods")
        assert len(pods(cluster, "low", "Running")) == 5
        cluster.store.create("nodes", node("late", 3))
        await until_running(cluster, "low", 8)
        check_evicted(watched, "high", "preemption", 3)
        shown = await daemon.metrics()
        assert shown["volcano_total_preemption_attempts"] >= 1
        assert shown['vcd_commit_operations_total{result="done",verb="evict"}'] == 3


async def test_a_queue_takes_back_what_it_deserves_from_one_that_borrowed(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(2, 4)
        for name in ("lender", "borrower"):
            spec = {"weight": 1, "reclaimable": True, "deserved": {"cpu": "4"}}
            cluster.store.create(QUEUES, {"kind": "Queue", "metadata": {"name": name}, "spec": spec})
        watched = Watched(cluster)
        await started(cluster, tmp_path, RECLAIMING)
        cluster.store.create(JOBS, job("old", 8, queue="borrower"))
        await until_running(cluster, "old", 8)

        cluster.store.create(JOBS, job("new", 4, minimum=4, queue="lender"))
        await until_running(cluster, "new", 4)
        check_evicted(watched, "new", "reclaim", 4)
        check_waited(cluster, watched, "new-t-0", "new-t-1", "new-t-2", "new-t-3")

        await until(lambda: len(pods(cluster, "old", "Pending")) == 4, what="the job controller made new pods")
        cluster.store.create("nodes", node("late", 4))
        await until_running(cluster, "old", 8)
        await until_running(cluster, "new", 4)
        check_evicted(watched, "new", "reclaim", 4)

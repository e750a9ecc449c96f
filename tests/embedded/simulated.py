"""A cluster for tests, with a jumping clock that the test drives and a stand-in for the scheduler."""

from __future__ import annotations

from random import Random
from typing import Any

from vcd.embedded.cluster_clock import ClusterClock
from vcd.embedded.controllers.controller_base import (
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    NODES,
    PODGROUPS,
    PODS,
    REPLICASETS,
    annotations_of,
    key_of,
)
from vcd.embedded.controllers.pod_properties import node_of, phase_of
from vcd.embedded.embedded_cluster import EmbeddedCluster
from vcd.embedded.store import Store

Obj = dict[str, Any]
START = 1_700_000_000.0


def jump_to(clock: ClusterClock, when: float) -> None:
    """Move a jumping clock to ``when`` (never back) and call what is due by then, each timer at its own time."""
    while clock._timers and clock._timers[0].when <= when:
        clock._now = max(clock._now, clock._timers[0].when)
        clock.fire_due()
    clock._now = max(clock._now, when)


def settle(cluster: EmbeddedCluster) -> None:
    """Without a loop: let the controllers do all that is to be done at the present time."""
    manager = cluster.manager
    if not manager._watched:
        manager.start()
    while manager.busy():
        manager._next()


def advance(cluster: EmbeddedCluster, seconds: float) -> None:
    """Without a loop: move a jumping clock on, from timer to timer, letting the controllers work at each."""
    clock, end = cluster.clock, cluster.clock.now() + seconds
    settle(cluster)
    while due := [timer.when for timer in clock._timers if not timer.cancelled and timer.when <= end]:
        jump_to(clock, min(due))
        settle(cluster)
    jump_to(clock, end)
    settle(cluster)


class Simulated:
    """Store, clock and cluster; every method leaves the controllers with nothing to do at the present time."""

    def __init__(self, nodes: int = 1, **resources: str) -> None:
        self.clock = ClusterClock(start=START, speed=None)
        self.store = Store(self.clock.now, Random(7))
        self.cluster = EmbeddedCluster(self.store, self.clock)
        for index in range(nodes):
            room = {"cpu": "64", "memory": "256Gi", "pods": "110", **resources}
            self.create(NODES, {"metadata": {"name": f"n{index}"}, "status": {"capacity": room}})
        self.settle()

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return self.clock.now() - START

    def settle(self) -> None:
        settle(self.cluster)

    def advance(self, seconds: float) -> None:
        advance(self.cluster, seconds)

    def create(self, resource: str, obj: Obj) -> Obj:
        created = self.store.create(resource, obj)
        self.settle()
        return self.store.get(resource, *key_of(created))

    def get(self, resource: str, name: str, namespace: str = "default") -> Obj:
        return self.store.get(resource, namespace, name)

    def patch(self, resource: str, name: str, patch: Obj, subresource: str | None = None) -> None:
        self.store.patch(resource, "default", name, patch, subresource)
        self.settle()

    def delete(self, resource: str, name: str, **options: Any) -> None:
        self.store.delete(resource, "default", name, **options)
        self.settle()

    def bind(self, pod: str, node: str = "n0") -> None:
        self.store.bind("default", pod, {"target": {"kind": "Node", "name": node}})
        self.settle()

    def let_in(self) -> None:
        """Move all pending groups to Inqueue, as the scheduler's enqueue does."""
        for group in self.store.list(PODGROUPS):
            if (group.get("status") or {}).get("phase", "Pending") == "Pending":
                self.store.update(PODGROUPS, {**group, "status": {"phase": "Inqueue"}})
        self.settle()

    def schedule(self, node: str = "n0") -> None:
        """Let all groups in and bind every pod that can be bound."""
        self.let_in()
        for pod in self.store.list(PODS):
            if not node_of(pod) and not pod["metadata"].get("deletionTimestamp"):
                self.bind(pod["metadata"]["name"], node)

    def run(self) -> None:
        """Schedule everything, and give the pods the time that they need to start."""
        self.schedule()
        self.advance(1)

    def finish(self, pod: str, phase: str = "Succeeded", code: int = 0) -> None:
        """End a pod, as its kubelet would report it."""
        ended = [
            {
                "name": "main",
                "image": "i",
                "imageID": "i",
                "ready": False,
                "restartCount": 0,
                "state": {"terminated": {"exitCode": code}},
            }
        ]
        self.patch(PODS, pod, {"status": {"phase": phase, "containerStatuses": ended}}, "status")

    def names(self, resource: str = PODS) -> list[str]:
        return [obj["metadata"]["name"] for obj in self.store.list(resource, "default")]

    def phases(self) -> dict[str, str]:
        return {pod["metadata"]["name"]: phase_of(pod) for pod in self.store.list(PODS, "default")}

    def group_of(self, pod: str) -> Obj:
        return self.get(PODGROUPS, annotations_of(self.get(PODS, pod))["scheduling.k8s.io/group-name"])

    def messages(self, reason: str) -> list[str]:
        return [event["message"] for event in self.store.list(EVENTS) if event["reason"] == reason]


def pod_spec(cpu: str = "1", **more: Any) -> Obj:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    return {"schedulerName": "volcano", "containers": [container], **more}


def pod(name: str, *, annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None,
        **spec: Any) -> Obj:  # fmt: skip
    meta = {"name": name, "namespace": "default", "annotations": annotations or {}, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod_spec(**spec)}


def deployment(name: str = "web", replicas: int = 3, *, annotations: dict[str, str] | None = None,
               image: str = "i", **spec: Any) -> Obj:  # fmt: skip
    template = {"metadata": {"labels": {"app": name}}, "spec": pod_spec()}
    template["spec"]["containers"][0]["image"] = image
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations or {}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template, **spec},
    }


def task(name: str, replicas: int = 1, *, cpu: str = "1", annotations: dict[str, str] | None = None,
         **more: Any) -> Obj:  # fmt: skip
    template = {"metadata": {"annotations": annotations or {}}, "spec": {**pod_spec(cpu), "restartPolicy": "Never"}}
    return {"name": name, "replicas": replicas, "template": template, **more}


def job(*tasks: Obj, name: str = "j", annotations: dict[str, str] | None = None,
        labels: dict[str, str] | None = None, **spec: Any) -> Obj:  # fmt: skip
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations or {}, "labels": labels or {}},
        "spec": {"tasks": list(tasks), **spec},
    }


__all__ = [
    "DEPLOYMENTS",
    "EVENTS",
    "JOBS",
    "NODES",
    "PODGROUPS",
    "PODS",
    "REPLICASETS",
    "START",
    "Obj",
    "Simulated",
    "deployment",
    "job",
    "pod",
    "pod_spec",
    "task",
]

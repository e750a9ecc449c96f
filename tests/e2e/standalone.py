"""A cluster without Volcano: no controller runs, daemons act in their place by the rights of components/controllers."""

from __future__ import annotations

import uuid
from pathlib import Path

from tests.deploy.kustomize import apply, render
from tests.deploy.rbac import Grant, grants
from tests.e2e.cluster import NAMESPACE, QUEUES, ROOT, Cluster, Obj, granted, pod

FLAG = "--controllers=podgroup,queue"
REPLICASETS, STATEFULSETS = "replicasets.apps", "statefulsets.apps"
GROUP = "scheduling.k8s.io/group-name"


def added() -> set[Grant]:
    """The rights that a daemon has there beside those of deploy/base."""
    found = render(ROOT / "deploy" / "base")
    apply(ROOT / "deploy" / "components" / "controllers", found)
    return grants(found.values(), "vcd-scheduler", NAMESPACE) - granted()


def alone(folder: Path, cpu: int = 8) -> Cluster:
    """Such a cluster with a node that is ready, and the default queue."""
    cluster = Cluster(folder, controllers=False)
    for right in added():
        cluster.may(right.verb, right.group, right.resource, namespace=right.namespace, name=right.name)
    cluster.add_nodes(1, cpu)
    cluster.store.patch("nodes", None, "node-00", {"spec": {"taints": None}})  # no controller is there to say so
    cluster.store.create(QUEUES, {"kind": "Queue", "metadata": {"name": "default"}, "spec": {"weight": 1}})
    return cluster


def bare(name: str, *, owner: Obj | None = None, cpu: int = 1, **annotations: str) -> Obj:
    """A pod that names no group, of an owner if given."""
    made = pod(name, "", cpu)
    made["metadata"]["annotations"] = annotations
    if owner is not None:
        made["metadata"]["ownerReferences"] = [reference(owner)]
    return made


def reference(owner: Obj) -> Obj:
    named = {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
    return {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True, **named}


def pod_set(cluster: Cluster, resource: str, name: str, replicas: int, **annotations: str) -> Obj:
    """A ReplicaSet or StatefulSet, of which nobody makes pods."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "pause"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    meta = {"name": name, "namespace": "default", "annotations": annotations}
    made = cluster.store.create(resource, {"metadata": meta, "spec": spec})
    kind = {REPLICASETS: "ReplicaSet", STATEFULSETS: "StatefulSet"}[resource]
    return {**made, "apiVersion": "apps/v1", "kind": kind}


def batch_job(name: str, **annotations: str) -> Obj:
    """A batch/v1 Job, which the embedded server does not store."""
    meta = {"name": name, "namespace": "default", "uid": str(uuid.uuid4()), "annotations": annotations}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"parallelism": 2}}


def group_named(cluster: Cluster, key: str) -> str:
    """The group that a pod's annotation names; empty where it has none."""
    namespace, _, name = key.partition("/")
    annotations = cluster.store.get("pods", namespace, name)["metadata"].get("annotations") or {}
    return str(annotations.get(GROUP, ""))

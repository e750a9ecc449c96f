"""deploy/'s roles against what the daemon asks for: nothing more is used, and nothing is granted that nobody uses.

Every test in this folder holds the server to the roles (`Cluster.check_laws`); here is the other direction.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from aiohttp import web

from tests.deploy.rbac import Grant, allows
from tests.e2e.cluster import (
    GROUPS,
    LEASES,
    NAMESPACE,
    Cluster,
    Made,
    Obj,
    failed,
    granted,
    group,
    is_bind,
    node,
    pod,
    request_of,
    until,
)
from tests.embedded.disturbed import Call

UNUSED = {
    Grant("patch", "", "pods", NAMESPACE, ""): "the label of its own pod, which no variable names here",
    Grant("delete", "", "pods", "", ""): "evictions, for which the configuration names no action",
    Grant("create", "scheduling.volcano.sh", "queues", "", ""): "the first queues, which the controllers made here",
    Grant("list", "metrics.k8s.io", "nodes", "", ""): "samples of usage, for which the configuration names no source",
    **{
        Grant("get", "custom.metrics.k8s.io", f"nodes/{metric}", "", ""): "samples of usage, too"
        for metric in ("node_cpu_usage_avg", "node_memory_usage_avg")
    },
    **{
        Grant(verb, group, resource, "", ""): f"the plugin {plugin}, which the configuration does not name"
        for group, resource, plugin in (
            ("policy", "poddisruptionbudgets", "pdb"),
            ("", "resourcequotas", "resourcequota"),
            ("nodeinfo.volcano.sh", "numatopologies", "numa-aware"),
            ("topology.volcano.sh", "hypernodes", "network-topology-aware"),
        )
        for verb in ("list", "watch")
    },
    **{
        Grant(verb, "", "configmaps", "kube-system", "volcano-vgpu-device-config"): "the plugin deviceshare, too"
        for verb in ("list", "watch")
    },
}
"""Rights that the default configuration makes no use of, and what they are for."""


def used(made: Iterable[Made]) -> set[Grant]:
    """The rights without which these calls would have been refused."""
    rights: set[Grant] = set()
    for each in made:
        asked = request_of(each.call, each.name)
        rights.update(right for right in granted() if allows({right}, asked))
    return rights


async def exercise(cluster: Cluster) -> None:
    """Have one daemon do all that a daemon does."""
    cluster.add_nodes(1, 8)
    in_doubt: list[str] = []

    def once(request: web.Request) -> web.Response | None:
        if is_bind(request) and not in_doubt:
            in_doubt.append(request.path)
            return failed(500, "InternalError")
        return None

    await cluster.started("a")
    with cluster.faults(once):
        await cluster.until_bound(cluster.submit("fits", 4))
    waiting = cluster.submit("waits", 2, nodeSelector={"kubernetes.io/hostname": "node-99"})
    await until(lambda: _events(cluster, "waits"), what="an Event tells why it waits")
    await until(lambda: _wrote(cluster, "patch", "pods", "status"), what="its condition is written")
    for cordoned in (True, False):  # another reason, and then the first one again: its Event is counted up
        seen = len(_events(cluster, "waits"))
        cluster.store.patch("nodes", None, "node-00", {"spec": {"unschedulable": cordoned}})
        await until(lambda seen=seen: len(_events(cluster, "waits")) > seen or _wrote(cluster, "patch", "events", ""))
    cluster.store.create("nodes", node("node-99", 4))
    await cluster.until_bound(waiting)
    await cluster.until_bound([_add_gated(cluster)])
    _add_volumes(cluster)
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("chosen", "made")]
    await cluster.until_bound(cluster.submit("stores", 1, volumes=volumes))
    await until(lambda: _wrote(cluster, "update", LEASES, ""), what="the Lease is renewed")
    await until(lambda: _wrote(cluster, "patch", "queues.scheduling.volcano.sh", "status"))


def _add_gated(cluster: Cluster) -> str:
    """A pod that waits at its queue's scheduling gate; its key."""
    gate = "scheduling.volcano.sh/queue-allocation-gate"
    cluster.store.create(GROUPS, group("gated", 1))
    made = pod("gated", "gated", 1, schedulingGates=[{"name": gate}])
    made["metadata"]["annotations"][gate] = "true"
    cluster.store.create("pods", made)
    return "default/gated"


def _add_volumes(cluster: Cluster) -> None:
    """A claim that a volume has to be chosen for, and one for which a volume is made, both once a pod has a node."""
    common = {"accessModes": ["ReadWriteOnce"]}
    for name, provisioner in (("chosen", "kubernetes.io/no-provisioner"), ("made", "disk.example")):
        kind = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
        cluster.store.create("storageclasses.storage.k8s.io", {"metadata": {"name": name}, **kind})
        asked = {**common, "storageClassName": name, "resources": {"requests": {"storage": "1Gi"}}}
        claim = {"metadata": {"name": name, "namespace": "default"}, "spec": asked}
        cluster.store.create("persistentvolumeclaims", claim)
    given = {**common, "storageClassName": "chosen", "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}
    cluster.store.create("persistentvolumes", {"metadata": {"name": "volume"}, "spec": given})


def _events(cluster: Cluster, name: str) -> list[Obj]:
    return [each for each in cluster.store.list("events", "default") if each["involvedObject"]["name"] == name]


def _wrote(cluster: Cluster, verb: str, resource: str, part: str) -> bool:
    return any((m.call.verb, m.call.resource, m.call.subresource) == (verb, resource, part) for m in cluster.made)


async def test_every_right_is_used_or_its_use_is_named(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await exercise(cluster)
        assert granted() - used(cluster.made) == set(UNUSED)


@pytest.mark.parametrize(
    "call, name",
    [
        (Call("list", "secrets", "", None), ""),
        (Call("update", "pods", "", "default"), "p"),
        (Call("create", "pods", "eviction", "default"), "p"),
        (Call("update", LEASES, "", NAMESPACE), "another"),
        (Call("delete", LEASES, "", NAMESPACE), "volcano"),
    ],
)
def test_the_server_of_these_tests_refuses_what_is_not_granted(tmp_path: Path, call: Call, name: str) -> None:
    cluster = Cluster(tmp_path)
    assert not cluster._authorize("a", call, name)
    assert cluster.refused

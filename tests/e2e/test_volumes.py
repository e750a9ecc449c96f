"""Pods whose claims wait for them: the claim is bound where the pod goes, then the pod, over HTTP from end to end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.e2e.cluster import Cluster, failed, until
from tests.waiting import WAIT_LIMIT
from vcd.model import events as ev

Obj = dict[str, Any]

LOCAL, MADE = "kubernetes.io/no-provisioner", "disk.example"


def storage_class(name: str, provisioner: str) -> Obj:
    return {
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
        "reclaimPolicy": "Delete" if provisioner == MADE else "Retain",
    }


def claim(name: str, storage: str) -> Obj:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def local_volume(name: str, node: str) -> Obj:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "5Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": "/mnt/disk"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    }


def using(name: str) -> list[Obj]:
    """The volumes of a pod that has one claim."""
    return [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]


class Volumes(Cluster):
    """A cluster with both classes; what was written about storage."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self.store.create("storageclasses.storage.k8s.io", storage_class("local", LOCAL))
        self.store.create("storageclasses.storage.k8s.io", storage_class("made", MADE))

    def claim(self, name: str = "data") -> Obj:
        return self.store.get("persistentvolumeclaims", "default", name)

    def volume(self, name: str) -> Obj:
        return self.store.get("persistentvolumes", None, name)

    def phase(self, name: str) -> str:
        phase: str = self.store.get("pods", "default", name)["status"].get("phase", "")
        return phase

    async def until_running(self, *names: str) -> None:
        await until(lambda: all(self.phase(name) == "Running" for name in names), what=f"{names} run")

    def where(self, key: str) -> str:
        (bind,) = [bind for bind in self.binds if bind.key == key]
        return bind.node


def outcomes(events: list[ev.Event]) -> list[str]:
    return [event.result for event in events if isinstance(event, ev.OperationDone)]


async def test_a_pod_runs_where_its_local_volume_is(tmp_path: Path) -> None:
    async with Volumes(tmp_path) as cluster:
        cluster.add_nodes(3)
        cluster.store.create("persistentvolumes", local_volume("disk", "node-01"))
        cluster.store.create("persistentvolumeclaims", claim("data", "local"))
        await cluster.started("a")
        (key,) = cluster.submit("user", 1, volumes=using("data"))
        await cluster.until_running("user-0")
        assert cluster.where(key) == "node-01"
        found = cluster.claim()
        assert (found["status"]["phase"], found["spec"]["volumeName"]) == ("Bound", "disk")
        assert cluster.volume("disk")["spec"]["claimRef"]["uid"] == found["metadata"]["uid"]


async def test_a_volume_is_made_where_the_pod_goes(tmp_path: Path) -> None:
    async with Volumes(tmp_path) as cluster:
        cluster.add_nodes(2)
        cluster.store.create("persistentvolumeclaims", claim("data", "made"))
        daemon = await cluster.started("a")
        (key,) = cluster.submit("user", 1, volumes=using("data"))
        await cluster.until_running("user-0")
        found = cluster.claim()
        assert found["status"]["phase"] == "Bound"
        assert found["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == cluster.where(key)
        await until(lambda: outcomes(daemon.events("outcome")) == ["done"], what="the outcome is logged")


async def test_two_pods_get_two_local_volumes(tmp_path: Path) -> None:
    async with Volumes(tmp_path) as cluster:
        cluster.add_nodes(2)
        for node in ("node-00", "node-01"):
            cluster.store.create("persistentvolumes", local_volume(f"disk-of-{node}", node))
        for name in ("one", "two"):
            cluster.store.create("persistentvolumeclaims", claim(name, "local"))
        await cluster.started("a")
        keys = [cluster.submit(f"user-{name}", 1, volumes=using(name))[0] for name in ("one", "two")]
        await cluster.until_running("user-one-0", "user-two-0")
        assert {cluster.where(key) for key in keys} == {"node-00", "node-01"}
        for name, key in zip(("one", "two"), keys, strict=True):
            assert cluster.claim(name)["spec"]["volumeName"] == f"disk-of-{cluster.where(key)}"


async def test_a_pod_that_waits_for_its_volume_holds_up_no_other(tmp_path: Path) -> None:
    async with Volumes(tmp_path) as cluster:
        cluster.add_nodes(1)
        cluster.store.create("persistentvolumeclaims", claim("data", "made"))
        wrote = asyncio.Event()

        def refuse(request: Any) -> Any:
            if request.method != "PATCH" or "persistentvolumeclaims" not in request.path:
                return None
            wrote.set()
            return failed(503, "ServiceUnavailable")

        await cluster.started("a")
        with cluster.faults(refuse):
            waiting = cluster.submit("user", 1, volumes=using("data"))
            await asyncio.wait_for(wrote.wait(), WAIT_LIMIT)
            await cluster.until_bound(cluster.submit("plain", 2))
            assert not cluster.bound(waiting)
        await cluster.until_running("user-0")


async def test_a_daemon_that_dies_between_volume_and_pod_goes_on_where_it_was(tmp_path: Path) -> None:
    async with Volumes(tmp_path) as cluster:
        cluster.add_nodes(3)
        cluster.store.create("persistentvolumes", local_volume("disk", "node-02"))
        cluster.store.create("persistentvolumeclaims", claim("data", "local"))

        def hold(request: Any) -> Any:
            return failed(503, "ServiceUnavailable") if request.path.endswith("/binding") else None

        daemon = await cluster.started("a", "--identity=alone")
        with cluster.faults(hold):
            (key,) = cluster.submit("user", 1, volumes=using("data"))
            await until(lambda: cluster.volume("disk")["spec"].get("claimRef"), what="the volume is told its claim")
            await daemon.kill()
        again = await cluster.start("a", "--identity=alone", log=daemon.log)
        await cluster.until_leading(again)
        await cluster.until_running("user-0")
        assert cluster.where(key) == "node-02"

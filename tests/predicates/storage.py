"""Manifests of claims, volumes, classes and CSI drivers."""

from __future__ import annotations

from typing import Any

Manifest = dict[str, Any]

WAITING = "WaitForFirstConsumer"


def claim(
    name: str,
    *,
    volume: str = "",
    storage_class: str = "late",
    size: str = "1Gi",
    bound: bool | None = None,
    selected: str = "",
    phase: str = "",
    **spec: Any,
) -> Manifest:
    """A claim; one that names a volume is bound to it unless said otherwise."""
    bound = bool(volume) if bound is None else bound
    marks = {"pv.kubernetes.io/bind-completed": "yes"} if bound else {}
    if selected:
        marks["volume.kubernetes.io/selected-node"] = selected
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": marks},
        "spec": {
            "volumeName": volume,
            "storageClassName": storage_class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            **spec,
        },
        "status": {"phase": phase or ("Bound" if bound else "Pending")},
    }


def volume(
    name: str,
    *,
    zones: tuple[str, ...] = (),
    storage_class: str = "late",
    size: str = "10Gi",
    driver: str = "",
    claim: str = "",
    phase: str = "",
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Manifest:
    """A volume, reachable in the given zones (label ``zone``), or everywhere; one with a driver is a CSI volume."""
    if zones:
        term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": list(zones)}]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    if driver:
        spec["csi"] = {"driver": driver, "volumeHandle": name}
    if claim:
        spec["claimRef"] = {"namespace": "default", "name": claim}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            **spec,
        },
        "status": {"phase": phase or ("Bound" if claim else "Available")},
    }


def storage_class(
    name: str = "late",
    *,
    mode: str = WAITING,
    provisioner: str = "kubernetes.io/no-provisioner",
    zones: tuple[str, ...] = (),
) -> Manifest:
    """A class; with ``zones`` it makes volumes there only."""
    topologies = [{"matchLabelExpressions": [{"key": "zone", "values": list(zones)}]}] if zones else []
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
        "allowedTopologies": topologies,
    }


def csi_node(name: str, **drivers: int | None) -> Manifest:
    """The drivers of a node and the most volumes of each (None: not stated); ``_`` in their names means ``.``."""
    listed = [
        {
            "name": driver.replace("_", "."),
            "nodeID": name,
            **({} if count is None else {"allocatable": {"count": count}}),
        }
        for driver, count in drivers.items()
    ]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name},
        "spec": {"drivers": listed},
    }


def csi_driver(name: str, *, storage_capacity: bool) -> Manifest:
    """A driver, with or without tracking of capacity."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": name},
        "spec": {"storageCapacity": storage_capacity},
    }


def capacity(name: str, topology: Manifest | None, storage_class: str = "late", **amounts: str) -> Manifest:
    """Room for new volumes: ``capacity`` and ``maximumVolumeSize``."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {"name": name, "namespace": "kube-system"},
        "storageClassName": storage_class,
        **({} if topology is None else {"nodeTopology": topology}),
        **amounts,
    }


def using(*claims: str) -> Manifest:
    """The part of a pod's spec that names claims."""
    return {
        "volumes": [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": name}} for i, name in enumerate(claims)]
    }

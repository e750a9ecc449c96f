"""The kinds vcd reads: where the API server serves them and which type holds them."""

from __future__ import annotations

import dataclasses

from vcd.model import objects as o


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind of object.

    ``name`` is the manifest's kind, ``group`` and ``version`` its API, ``plural`` its resource name,
    ``type`` the projected type that it is decoded into.
    """

    name: str
    group: str
    version: str
    plural: str
    namespaced: bool
    type: type[o.Object]

    @property
    def path(self) -> str:
        """The URL path of the list over all namespaces."""
        base = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        return f"{base}/{self.plural}"

    def object_path(self, key: str) -> str:
        """The URL path of one object, given ``namespace/name`` or ``name``."""
        base, _, plural = self.path.rpartition("/")
        if not self.namespaced:
            return f"{base}/{plural}/{key}"
        namespace, _, name = key.partition("/")
        return f"{base}/namespaces/{namespace}/{plural}/{name}"


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("Pod", "", "v1", "pods", True, o.Pod),
        Kind("Node", "", "v1", "nodes", False, o.Node),
        Kind("Namespace", "", "v1", "namespaces", False, o.Namespace),
        Kind("PodGroup", "scheduling.volcano.sh", "v1beta1", "podgroups", True, o.PodGroup),
        Kind("Queue", "scheduling.volcano.sh", "v1beta1", "queues", False, o.Queue),
        Kind("PriorityClass", "scheduling.k8s.io", "v1", "priorityclasses", False, o.PriorityClass),
        Kind("ResourceQuota", "", "v1", "resourcequotas", True, o.ResourceQuota),
        Kind("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets", True, o.PodDisruptionBudget),
        Kind("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims", True, o.PersistentVolumeClaim),
        Kind("PersistentVolume", "", "v1", "persistentvolumes", False, o.PersistentVolume),
        Kind("StorageClass", "storage.k8s.io", "v1", "storageclasses", False, o.StorageClass),
        Kind("CSINode", "storage.k8s.io", "v1", "csinodes", False, o.CSINode),
        Kind("CSIDriver", "storage.k8s.io", "v1", "csidrivers", False, o.CSIDriver),
        Kind("CSIStorageCapacity", "storage.k8s.io", "v1", "csistoragecapacities", True, o.CSIStorageCapacity),
        Kind("Numatopology", "nodeinfo.volcano.sh", "v1alpha1", "numatopologies", False, o.Numatopology),
    )
}

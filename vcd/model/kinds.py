"""The kinds that vcd reads: their API paths and the types that hold them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from vcd.model import objects as o

_ARGUMENT = re.compile(r"<(.+)>")


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind of object, or a part of one.

    ``name`` is the kind in the log and to plugins, ``group`` and ``version`` its API, ``plural`` its resource name.
    ``type`` is the projected type that it is decoded into: a frozen `vcd.model.objects.Object` whose fields are all
    that is stored. If ``namespace`` or ``object`` is given, only objects there, or of that name, are read; ``<key>`` in
    their place is replaced by the value of the plugin's argument. ``manifest`` is the kind in manifests, if it is not
    ``name``.
    """

    name: str
    group: str
    version: str
    plural: str
    namespaced: bool
    type: type[o.Object]
    namespace: str = ""
    object: str = ""
    manifest: str = ""

    @property
    def api_version(self) -> str:
        """``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def manifest_kind(self) -> str:
        """The kind in manifests and Events."""
        return self.manifest or self.name

    @property
    def is_narrow(self) -> bool:
        """Whether only some objects of the kind are read."""
        return bool(self.namespace or self.object)

    @property
    def _base(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def path(self) -> str:
        """The URL path of the list, over all namespaces or the one that is read."""
        within = f"/namespaces/{self.namespace}" if self.namespace else ""
        return f"{self._base}{within}/{self.plural}"

    @property
    def field_selector(self) -> str:
        """The field selector of the list, or ""."""
        return f"metadata.name={self.object}" if self.object else ""

    def selects(self, namespace: str, name: str) -> bool:
        """Whether an object of the kind is one that is read."""
        return self.namespace in ("", namespace) and self.object in ("", name)

    def with_arguments(self, values: Mapping[str, Any]) -> Kind:
        """Return the kind with argument values filled in. Raises KeyError for an argument that is not declared."""
        return dataclasses.replace(self, namespace=_fill(self.namespace, values), object=_fill(self.object, values))

    def argument_keys(self) -> tuple[str, ...]:
        """Return the arguments that select which objects are read."""
        found = (_ARGUMENT.fullmatch(text) for text in (self.namespace, self.object))
        return tuple(match[1] for match in found if match)

    def object_path(self, key: str) -> str:
        """Return the URL path of an object, given ``namespace/name`` or ``name``. Special characters are escaped."""
        base, plural = self._base, self.plural
        if not self.namespaced:
            return f"{base}/{plural}/{quote(key, safe='')}"
        namespace, _, name = key.partition("/")
        return f"{base}/namespaces/{quote(namespace, safe='')}/{plural}/{quote(name, safe='')}"


def _fill(text: str, values: Mapping[str, Any]) -> str:
    found = _ARGUMENT.fullmatch(text)
    return str(values[found[1]]) if found else text


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
        Kind("Service", "", "v1", "services", True, o.Service),
        Kind("ReplicationController", "", "v1", "replicationcontrollers", True, o.ReplicationController),
        Kind("ReplicaSet", "apps", "v1", "replicasets", True, o.ReplicaSet),
        Kind("StatefulSet", "apps", "v1", "statefulsets", True, o.StatefulSet),
        Kind("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims", True, o.PersistentVolumeClaim),
        Kind("PersistentVolume", "", "v1", "persistentvolumes", False, o.PersistentVolume),
        Kind("StorageClass", "storage.k8s.io", "v1", "storageclasses", False, o.StorageClass),
        Kind("CSINode", "storage.k8s.io", "v1", "csinodes", False, o.CSINode),
        Kind("CSIDriver", "storage.k8s.io", "v1", "csidrivers", False, o.CSIDriver),
        Kind("CSIStorageCapacity", "storage.k8s.io", "v1", "csistoragecapacities", True, o.CSIStorageCapacity),
        Kind("Numatopology", "nodeinfo.volcano.sh", "v1alpha1", "numatopologies", False, o.Numatopology),
        Kind("HyperNode", "topology.volcano.sh", "v1alpha1", "hypernodes", False, o.HyperNode),
    )
}

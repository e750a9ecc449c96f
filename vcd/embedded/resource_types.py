"""The served resource types: one row per built-in kind; custom resource definitions add types at run time."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CUSTOM_VERBS: Final = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_READING: Final = ("get", "list", "watch")
"""Verbs of kinds that schedulers read and for which there is no controller here, so that creating one is refused."""
STATUS_VERBS: Final = ("get", "patch", "update")


@dataclass(frozen=True)
class Subresource:
    """A subresource. ``kind``, ``group`` and ``version`` are empty if they are the resource's own."""

    name: str
    verbs: tuple[str, ...] = STATUS_VERBS
    kind: str = ""
    group: str = ""
    version: str = ""


STATUS: Final = Subresource("status")
SCALE: Final = Subresource("scale", STATUS_VERBS, "Scale", "autoscaling", "v1")


@dataclass(frozen=True)
class ResourceType:
    """A served kind: names, scope, verbs, and how its objects are stored.

    ``stored_as`` is the resource under which the objects are stored, if it is another one (``events.k8s.io`` has the
    core events). ``generation``: whether changes of the spec are counted. ``returns_deleted``: whether a DELETE returns
    the object. ``definition`` is the version entry of the custom resource definition, None for a built-in kind.
    """

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[Subresource, ...] = ()
    verbs: tuple[str, ...] = VERBS
    generation: bool = False
    returns_deleted: bool = False
    singular: str = ""
    list_kind: str = ""
    stored_as: str = ""
    definition: Mapping[str, Any] | None = field(default=None, compare=False)

    @property
    def resource(self) -> str:
        """Return the plural with the group: ``pods``, ``jobs.batch.volcano.sh``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage(self) -> str:
        """Return the resource under which the objects are stored."""
        return self.stored_as or self.resource

    @property
    def api_version(self) -> str:
        """Return ``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular_name(self) -> str:
        """Return the lower-case singular."""
        return self.singular or self.kind.lower()

    @property
    def list_name(self) -> str:
        """Return the kind of a list."""
        return self.list_kind or f"{self.kind}List"

    @property
    def custom(self) -> bool:
        """Return whether the type is defined by a custom resource definition."""
        return self.definition is not None

    @property
    def storage_hash(self) -> str:
        """Return discovery's storageVersionHash: of group/version/kind, as in an API server."""
        digest = hashlib.sha256(f"{self.group}/{self.version}/{self.kind}".encode()).digest()
        return base64.b64encode(digest[:8]).decode()

    def subresource(self, name: str) -> Subresource | None:
        """Return the subresource of that name; None if there is none."""
        return next((part for part in self.subresources if part.name == name), None)

    @property
    def has_status(self) -> bool:
        """Return whether status is a subresource."""
        return self.subresource("status") is not None


_CLUSTER: Final = {"namespaced": False}
_ALL: Final = {"categories": ("all",)}
_WITH_STATUS: Final = {"subresources": (STATUS,)}
_SCALED: Final = {"subresources": (SCALE, STATUS)}
_COUNTED: Final = {"generation": True}
_RETURNED: Final = {"returns_deleted": True}
_ONLY_READ: Final = {"verbs": _READING}
_ONLY_MADE: Final = {"verbs": ("create",)}
_POD_PARTS: Final = {
    "subresources": (
        Subresource("binding", ("create",), "Binding", "", "v1"),
        Subresource("eviction", ("create",), "Eviction", "policy", "v1"),
        Subresource("portforward", ("create", "get"), "PodPortForwardOptions", "", "v1"),
        STATUS,
    )
}
_ACCOUNT_PARTS: Final = {
    "subresources": (Subresource("token", ("create",), "TokenRequest", "authentication.k8s.io", "v1"),)
}
_NAMESPACE_VERBS: Final = {"verbs": tuple(verb for verb in VERBS if verb != "deletecollection")}

_SERVED: Final[dict[str, tuple[tuple[str, str, str, dict[str, Any]], ...]]] = {
    "": (
        ("configmaps", "ConfigMap", "cm", {}),
        ("events", "Event", "ev", {}),
        ("limitranges", "LimitRange", "limits", {}),
        ("namespaces", "Namespace", "ns", _CLUSTER | _WITH_STATUS | _NAMESPACE_VERBS),
        ("nodes", "Node", "no", _CLUSTER | _WITH_STATUS),
        ("persistentvolumeclaims", "PersistentVolumeClaim", "pvc", _WITH_STATUS | _RETURNED),
        ("persistentvolumes", "PersistentVolume", "pv", _CLUSTER | _WITH_STATUS | _RETURNED),
        ("pods", "Pod", "po", _ALL | _POD_PARTS | _COUNTED | _RETURNED),
        ("replicationcontrollers", "ReplicationController", "rc", _ALL | _ONLY_READ),
        ("resourcequotas", "ResourceQuota", "quota", _WITH_STATUS | _RETURNED),
        ("secrets", "Secret", "", {}),
        ("serviceaccounts", "ServiceAccount", "sa", _RETURNED | _ACCOUNT_PARTS),
        ("services", "Service", "svc", _ALL | _WITH_STATUS | _RETURNED),
    ),
    "apps": (
        ("deployments", "Deployment", "deploy", _ALL | _SCALED | _COUNTED),
        ("replicasets", "ReplicaSet", "rs", _ALL | _SCALED | _COUNTED),
        ("statefulsets", "StatefulSet", "sts", _ALL | _ONLY_READ),
    ),
    "events.k8s.io": (("events", "Event", "ev", {"stored_as": "events"}),),
    "authentication.k8s.io": (
        ("tokenreviews", "TokenReview", "", _CLUSTER | _ONLY_MADE),
        ("selfsubjectreviews", "SelfSubjectReview", "", _CLUSTER | _ONLY_MADE),
    ),
    "authorization.k8s.io": (
        ("localsubjectaccessreviews", "LocalSubjectAccessReview", "", _ONLY_MADE),
        ("selfsubjectaccessreviews", "SelfSubjectAccessReview", "", _CLUSTER | _ONLY_MADE),
        ("selfsubjectrulesreviews", "SelfSubjectRulesReview", "", _CLUSTER | _ONLY_MADE),
        ("subjectaccessreviews", "SubjectAccessReview", "", _CLUSTER | _ONLY_MADE),
    ),
    "policy": (("poddisruptionbudgets", "PodDisruptionBudget", "pdb", _WITH_STATUS | _COUNTED),),
    "rbac.authorization.k8s.io": (
        ("clusterrolebindings", "ClusterRoleBinding", "", _CLUSTER),
        ("clusterroles", "ClusterRole", "", _CLUSTER),
        ("rolebindings", "RoleBinding", "", {}),
        ("roles", "Role", "", {}),
    ),
    "storage.k8s.io": (
        ("csidrivers", "CSIDriver", "", _CLUSTER | _COUNTED | _RETURNED),
        ("csinodes", "CSINode", "", _CLUSTER | _RETURNED),
        ("csistoragecapacities", "CSIStorageCapacity", "", {}),
        ("storageclasses", "StorageClass", "sc", _CLUSTER | _RETURNED),
    ),
    "apiextensions.k8s.io": (
        (
            "customresourcedefinitions",
            "CustomResourceDefinition",
            "crd crds",
            _CLUSTER | _WITH_STATUS | _COUNTED | {"categories": ("api-extensions",)},
        ),
    ),
    "scheduling.k8s.io": (("priorityclasses", "PriorityClass", "pc", _CLUSTER | _COUNTED),),
    "coordination.k8s.io": (("leases", "Lease", "", {}),),
}
"""Stored built-in kinds by group: plural, kind, short names, and further fields of `ResourceType`."""


# Kinds that are sent but never stored.
BINDING: Final = ResourceType("bindings", "Binding", verbs=("create",))
EVICTION: Final = ResourceType("evictions", "Eviction", "policy", verbs=("create",))
DELETE_OPTIONS: Final = ResourceType("deleteoptions", "DeleteOptions", verbs=())
SCALES: Final = ResourceType("scales", "Scale", "autoscaling", verbs=())

BUILT_IN: Final = (
    BINDING,
    *(
        ResourceType(plural, kind, group, short_names=tuple(short.split()), **marks)
        for group, kinds in _SERVED.items()
        for plural, kind, short, marks in kinds
    ),
)
CRDS: Final = "customresourcedefinitions.apiextensions.k8s.io"
LIMIT_RANGES: Final = "limitranges"
PDBS: Final = "poddisruptionbudgets.policy"
POD_GROUPS: Final = "podgroups.scheduling.volcano.sh"
PRIORITY_CLASSES: Final = "priorityclasses.scheduling.k8s.io"
STORAGE_CLASSES: Final = "storageclasses.storage.k8s.io"


class Registry:
    """The currently served resource types, by resource and by path, in the order of registration."""

    def __init__(self) -> None:
        self._types: dict[str, ResourceType] = {}
        self._paths: dict[tuple[str, str, str], ResourceType] = {}
        self.version = 0
        for rtype in BUILT_IN:
            self.add(rtype)

    def add(self, rtype: ResourceType) -> None:
        """Serve a type; replace a type of the same resource and version."""
        if not self._types.get(rtype.resource) or self._types[rtype.resource].version == rtype.version:
            self._types[rtype.resource] = rtype
        self._paths[rtype.group, rtype.version, rtype.plural] = rtype
        self.version += 1

    def remove(self, resource: str) -> None:
        """Stop serving all versions of a resource."""
        self._types.pop(resource, None)
        for path, rtype in list(self._paths.items()):
            if rtype.resource == resource:
                del self._paths[path]
        self.version += 1

    def get(self, resource: str) -> ResourceType | None:
        """Return the type of a resource in its storage version; None if it is not served."""
        return self._types.get(resource)

    def at(self, group: str, version: str, plural: str) -> ResourceType | None:
        """Return the type that is served at a path; None if there is none."""
        return self._paths.get((group, version, plural))

    def __iter__(self) -> Iterator[ResourceType]:
        return iter(self._paths.values())

    def groups(self) -> dict[str, dict[str, list[ResourceType]]]:
        """Return the types by group and version, in the order of registration."""
        found: dict[str, dict[str, list[ResourceType]]] = {}
        for rtype in self:
            found.setdefault(rtype.group, {}).setdefault(rtype.version, []).append(rtype)
        return found


def custom_types(crd: Mapping[str, Any]) -> list[ResourceType]:
    """Return the resource types that a custom resource definition serves, storage version first."""
    spec = crd["spec"]
    names = spec["names"]
    made = []
    for version in sorted(spec["versions"], key=lambda entry: not entry.get("storage")):
        if not version.get("served"):
            continue
        declared = version.get("subresources") or {}
        parts = tuple([part for part in (STATUS, SCALE) if part.name in declared])
        made.append(
            ResourceType(
                plural=names["plural"],
                kind=names["kind"],
                group=spec["group"],
                version=version["name"],
                namespaced=spec["scope"] == "Namespaced",
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                subresources=parts,
                verbs=CUSTOM_VERBS,
                generation=True,
                singular=names.get("singular", ""),
                list_kind=names.get("listKind", ""),
                definition=version,
            )
        )
    return made

"""The resource types served: one row a kind; custom resource definitions add theirs while the server runs."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CUSTOM_VERBS: Final = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_READING: Final = ("get", "list", "watch")
"""The verbs of kinds that schedulers look at and that no controller here carries out: whoever makes one is told so."""
STATUS_VERBS: Final = ("get", "patch", "update")


@dataclass(frozen=True)
class Subresource:
    """A part of an object with a path of its own, its kind where that is another one, and its verbs."""

    name: str
    verbs: tuple[str, ...] = STATUS_VERBS
    kind: str = ""
    group: str = ""
    version: str = ""


STATUS: Final = Subresource("status")
SCALE: Final = Subresource("scale", STATUS_VERBS, "Scale", "autoscaling", "v1")


@dataclass(frozen=True)
class ResourceType:
    """A kind as it is served: names, scope, verbs and how its objects are kept.

    ``stored_as`` is the resource whose objects it shows (``events.k8s.io`` shows the core events); ``generation``
    says whether the server counts changes of the specification; ``returns_deleted`` whether a DELETE answers with the
    object; ``definition`` is the custom resource definition's version entry, None for a built-in kind.
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
        """Dotted plural: ``pods``, ``jobs.batch.volcano.sh``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage(self) -> str:
        """The dotted plural that the objects are stored under."""
        return self.stored_as or self.resource

    @property
    def api_version(self) -> str:
        """``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular_name(self) -> str:
        """Lower-case name of one object."""
        return self.singular or self.kind.lower()

    @property
    def list_name(self) -> str:
        """Kind of a list of these."""
        return self.list_kind or f"{self.kind}List"

    @property
    def custom(self) -> bool:
        """Whether a custom resource definition made it."""
        return self.definition is not None

    @property
    def storage_hash(self) -> str:
        """The hash that discovery gives of the stored form: of group/version/kind, as apiserver's discovery does."""
        digest = hashlib.sha256(f"{self.group}/{self.version}/{self.kind}".encode()).digest()
        return base64.b64encode(digest[:8]).decode()

    def subresource(self, name: str) -> Subresource | None:
        """The subresource of that name, None when there is none."""
        return next((part for part in self.subresources if part.name == name), None)

    @property
    def has_status(self) -> bool:
        """Whether status is written apart from the rest."""
        return self.subresource("status") is not None


def _core() -> Iterator[ResourceType]:
    create = ("create",)
    pod_parts = (
        Subresource("binding", create, "Binding", "", "v1"),
        Subresource("eviction", create, "Eviction", "policy", "v1"),
        STATUS,
    )
    yield BINDING
    yield ResourceType("configmaps", "ConfigMap", short_names=("cm",))
    yield ResourceType("events", "Event", short_names=("ev",))
    yield ResourceType(
        "namespaces",
        "Namespace",
        namespaced=False,
        short_names=("ns",),
        subresources=(STATUS,),
        verbs=tuple(verb for verb in VERBS if verb != "deletecollection"),
    )
    yield ResourceType("nodes", "Node", namespaced=False, short_names=("no",), subresources=(STATUS,))
    yield ResourceType(
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
        short_names=("pvc",),
        subresources=(STATUS,),
        returns_deleted=True,
    )
    yield ResourceType(
        "persistentvolumes",
        "PersistentVolume",
        namespaced=False,
        short_names=("pv",),
        subresources=(STATUS,),
        returns_deleted=True,
    )
    yield ResourceType(
        "pods",
        "Pod",
        short_names=("po",),
        categories=("all",),
        subresources=pod_parts,
        generation=True,
        returns_deleted=True,
    )
    yield ResourceType(
        "replicationcontrollers", "ReplicationController", short_names=("rc",), categories=("all",), verbs=_READING
    )
    yield ResourceType(
        "resourcequotas", "ResourceQuota", short_names=("quota",), subresources=(STATUS,), returns_deleted=True
    )
    yield ResourceType("secrets", "Secret")
    yield ResourceType("serviceaccounts", "ServiceAccount", short_names=("sa",), returns_deleted=True)
    yield ResourceType(
        "services", "Service", short_names=("svc",), categories=("all",), subresources=(STATUS,), returns_deleted=True
    )


def _groups() -> Iterator[ResourceType]:
    for plural, kind, short in (("deployments", "Deployment", "deploy"), ("replicasets", "ReplicaSet", "rs")):
        yield ResourceType(
            plural,
            kind,
            "apps",
            short_names=(short,),
            categories=("all",),
            subresources=(SCALE, STATUS),
            generation=True,
        )
    yield ResourceType("statefulsets", "StatefulSet", "apps", short_names=("sts",), categories=("all",), verbs=_READING)
    yield ResourceType("events", "Event", "events.k8s.io", short_names=("ev",), stored_as="events")
    create = ("create",)
    yield ResourceType("tokenreviews", "TokenReview", "authentication.k8s.io", namespaced=False, verbs=create)
    yield ResourceType(
        "selfsubjectreviews", "SelfSubjectReview", "authentication.k8s.io", namespaced=False, verbs=create
    )
    for plural, kind, namespaced in (
        ("localsubjectaccessreviews", "LocalSubjectAccessReview", True),
        ("selfsubjectaccessreviews", "SelfSubjectAccessReview", False),
        ("selfsubjectrulesreviews", "SelfSubjectRulesReview", False),
        ("subjectaccessreviews", "SubjectAccessReview", False),
    ):
        yield ResourceType(plural, kind, "authorization.k8s.io", namespaced=namespaced, verbs=create)
    yield ResourceType(
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        "policy",
        short_names=("pdb",),
        subresources=(STATUS,),
        generation=True,
    )
    for plural, kind, namespaced in (
        ("clusterrolebindings", "ClusterRoleBinding", False),
        ("clusterroles", "ClusterRole", False),
        ("rolebindings", "RoleBinding", True),
        ("roles", "Role", True),
    ):
        yield ResourceType(plural, kind, "rbac.authorization.k8s.io", namespaced=namespaced)
    yield ResourceType(
        "csidrivers", "CSIDriver", "storage.k8s.io", namespaced=False, generation=True, returns_deleted=True
    )
    yield ResourceType("csinodes", "CSINode", "storage.k8s.io", namespaced=False, returns_deleted=True)
    yield ResourceType("csistoragecapacities", "CSIStorageCapacity", "storage.k8s.io")
    yield ResourceType(
        "storageclasses",
        "StorageClass",
        "storage.k8s.io",
        namespaced=False,
        short_names=("sc",),
        returns_deleted=True,
    )
    yield ResourceType(
        "customresourcedefinitions",
        "CustomResourceDefinition",
        "apiextensions.k8s.io",
        namespaced=False,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        subresources=(STATUS,),
        generation=True,
    )
    yield ResourceType(
        "priorityclasses",
        "PriorityClass",
        "scheduling.k8s.io",
        namespaced=False,
        short_names=("pc",),
        generation=True,
    )
    yield ResourceType("leases", "Lease", "coordination.k8s.io")


# Kinds that are sent but never stored.
BINDING: Final = ResourceType("bindings", "Binding", verbs=("create",))
EVICTION: Final = ResourceType("evictions", "Eviction", "policy", verbs=("create",))
DELETE_OPTIONS: Final = ResourceType("deleteoptions", "DeleteOptions", verbs=())
SCALES: Final = ResourceType("scales", "Scale", "autoscaling", verbs=())

BUILT_IN: Final = (*_core(), *_groups())
CRDS: Final = "customresourcedefinitions.apiextensions.k8s.io"
PDBS: Final = "poddisruptionbudgets.policy"
PRIORITY_CLASSES: Final = "priorityclasses.scheduling.k8s.io"


class Registry:
    """The resource types served at this moment, by dotted plural and by path; keeps the order of registration."""

    def __init__(self) -> None:
        self._types: dict[str, ResourceType] = {}
        self._paths: dict[tuple[str, str, str], ResourceType] = {}
        self.version = 0
        for rtype in BUILT_IN:
            self.add(rtype)

    def add(self, rtype: ResourceType) -> None:
        """Serve a type; a type of the same resource and version is replaced."""
        if not self._types.get(rtype.resource) or self._types[rtype.resource].version == rtype.version:
            self._types[rtype.resource] = rtype
        self._paths[rtype.group, rtype.version, rtype.plural] = rtype
        self.version += 1

    def remove(self, resource: str) -> None:
        """Serve a resource no more, in none of its versions."""
        self._types.pop(resource, None)
        for path, rtype in list(self._paths.items()):
            if rtype.resource == resource:
                del self._paths[path]
        self.version += 1

    def get(self, resource: str) -> ResourceType | None:
        """The type of a dotted plural in its storage version."""
        return self._types.get(resource)

    def at(self, group: str, version: str, plural: str) -> ResourceType | None:
        """The type served at a path, None when there is none."""
        return self._paths.get((group, version, plural))

    def __iter__(self) -> Iterator[ResourceType]:
        return iter(self._paths.values())

    def groups(self) -> dict[str, dict[str, list[ResourceType]]]:
        """group -> version -> types, in the order of registration."""
        found: dict[str, dict[str, list[ResourceType]]] = {}
        for rtype in self:
            found.setdefault(rtype.group, {}).setdefault(rtype.version, []).append(rtype)
        return found


def custom_types(crd: Mapping[str, Any]) -> list[ResourceType]:
    """The resource types that a custom resource definition serves, storage version first."""
    spec = crd["spec"]
    names = spec["names"]
    made = []
    for version in sorted(spec["versions"], key=lambda entry: not entry.get("storage")):
        if not version.get("served"):
            continue
        declared = version.get("subresources") or {}
        parts = (
            *((STATUS,) if "status" in declared else ()),
            *((SCALE,) if "scale" in declared else ()),
        )
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

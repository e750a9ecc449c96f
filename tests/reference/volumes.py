"""Volume predicates: claims bound and unbound, zones, limits of CSI drivers; and what a session assumes of claims."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NoReturn

from tests.reference import labels as lb
from tests.reference.model import (
    Manifest,
    Node,
    Task,
    annotations_of,
    claim_names,
    key_of,
    labels,
    meta,
    storage_class_of,
)
from tests.reference.session import UNRESOLVABLE, UNSCHEDULABLE, PredicateFailure, Session
from tests.reference.values import quantity, whole

Reason = tuple[str, str]
NODE_CONFLICT = "node(s) had volume node affinity conflict"
BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
ZONES = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}


class Volumes:
    """The filters over one session's claims; reservations are taken back with the placement."""

    def __init__(self, session: Session) -> None:
        self.session, self.cluster = session, session.cluster
        self.reserved: dict[str, tuple[list[str], list[str]]] = {}

    # -- before any node ----------------------------------------------------

    def check_claims(self, task: Task) -> None:
        """Claims exist, live, and those that bind immediately are bound."""
        for name, own in claim_names(task.pod):
            claim = self._claim(task, name)
            if claim is None and own:
                self._fail(f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"')
            if claim is None:
                self._fail(f'persistentvolumeclaim "{name}" not found')
            if (claim.get("status") or {}).get("phase") == "Lost":
                self._fail(f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume')
            if meta(claim).get("deletionTimestamp"):
                self._fail(f'persistentvolumeclaim "{name}" is being deleted')
            if own and not _owned_by(claim, task):
                self._fail(f"PVC {key_of(claim)} was not created for pod {task.key} (pod is not owner)")
        if any(not _bound(claim) and not self._delayed(claim) for claim in self._claims(task)):
            self._fail("pod has unbound immediate PersistentVolumeClaims")

    def check_zones(self, task: Task) -> None:
        """Claims named by the pod resolve to volumes, or to a class that waits for the first consumer."""
        for name, own in claim_names(task.pod):
            if own:
                continue
            claim = self._claim(task, name)
            if not name or claim is None:
                self._fail(f'persistentvolumeclaim "{name}" not found', "VolumeZone")
            volume = _spec(claim).get("volumeName")
            if volume:
                if self.cluster.find("PersistentVolume", volume) is None:
                    self._fail(f'persistentvolume "{volume}" not found', "VolumeZone")
                continue
            wanted = storage_class_of(claim)
            if not wanted:
                self._fail("PersistentVolumeClaim had no pv name and storageClass name", "VolumeZone")
            found = self.cluster.find("StorageClass", wanted)
            if found is None:
                self._fail(f'storageclass.storage.k8s.io "{wanted}" not found', "VolumeZone")
            if found.get("volumeBindingMode") != "WaitForFirstConsumer":
                self._fail("PersistentVolume had no name", "VolumeZone")

    # -- per node -------------------------------------------------------------

    def zone(self, task: Task, node: Node) -> Reason | None:
        """A bound volume's zone and region labels match the node's."""
        if not any(key in node.labels for key in ZONES):
            return None
        for name, own in claim_names(task.pod):
            claim = None if own else self._claim(task, name)
            volume = None if claim is None else self._volume(_spec(claim).get("volumeName"))
            for key, values in sorted(labels(volume or {}).items()):
                if key not in ZONES:
                    continue
                value = node.labels.get(key, node.labels.get(ZONES[key]))
                if value is None or value not in values.split("__"):
                    return UNRESOLVABLE, "node(s) had no available volume zone"
        return None

    def limits(self, task: Task, node: Node) -> Reason | None:
        """No more volumes of a driver than its limit on the node; a volume counts once however many pods use it."""
        wanted: dict[str, str] = {}
        for name, _own in claim_names(task.pod):
            claim = self._claim(task, name)
            if claim is None:
                return UNRESOLVABLE, f'persistentvolumeclaim "{name}" not found'
            wanted.update(self._handle(claim))
        limits = {
            driver["name"]: int(driver["allocatable"]["count"])
            for driver in _spec(self.cluster.find("CSINode", node.name) or {}).get("drivers") or []
            if (driver.get("allocatable") or {}).get("count") is not None
        }
        attached: dict[str, str] = {}
        for other in node.pods() if wanted and limits else []:
            for name, _own in claim_names(other.pod):
                claim = self._claim(other, name)
                attached.update(self._handle(claim) if claim is not None else {})
        for driver in {driver for handle, driver in wanted.items() if handle not in attached}:
            count = sum(d == driver for h, d in wanted.items() if h not in attached)
            if driver in limits and sum(d == driver for d in attached.values()) + count > limits[driver]:
                return UNSCHEDULABLE, "node(s) exceed max volume count"
        return None

    def binding(self, task: Task, node: Node) -> Reason | None:
        """Bound volumes reach the node, and unbound claims find a volume or can be provisioned there."""
        found = self._find(task, node)
        return (UNRESOLVABLE, found) if isinstance(found, str) else None

    # -- reservation --------------------------------------------------------------

    def reserve(self, task: Task) -> None:
        """Assume what binding found, so that later tasks of the session see it. Pipelined tasks assume nothing."""
        claims = self._claims(task)
        if task.status != "Allocated" or all(_bound(claim) for claim in claims):
            return
        found = self._find(task, self.cluster.nodes[task.node])
        if isinstance(found, str):
            return
        static, dynamic = found
        taken = [v for v in static if v not in self.session.assumed_volumes]
        chosen = [c for c in dynamic if c not in self.session.assumed_claims]
        self.session.assumed_volumes.update({v: static[v] for v in taken})
        self.session.assumed_claims.update(dict.fromkeys(chosen, task.node))
        self.reserved[task.key] = (taken, chosen)

    def unreserve(self, task: Task) -> None:
        volumes, claims = self.reserved.pop(task.key, ([], []))
        for volume in volumes:
            del self.session.assumed_volumes[volume]
        for claim in claims:
            del self.session.assumed_claims[claim]

    # -- finding -------------------------------------------------------------------

    def reaching(self, task: Task, node: Node) -> Reason | None:
        """The volumes that claims are bound to reach the node."""
        for claim in self._claims(task):
            if not _bound(claim):
                continue
            volume = self._volume(_spec(claim)["volumeName"])
            if volume is None:
                return UNRESOLVABLE, NO_VOLUME
            if not _reaches(volume, node):
                return UNRESOLVABLE, NODE_CONFLICT
        return None

    def _find(self, task: Task, node: Node) -> str | tuple[dict[str, str], list[str]]:
        """Volume -> claim to bind and claims to provision at the node, or why that cannot be."""
        claims = self._claims(task)
        if (refused := self.reaching(task, node)) is not None:
            return refused[1]
        match: list[Manifest] = []
        provision: list[Manifest] = []
        for claim in [c for c in claims if not _bound(c)]:
            selected = self.session.assumed_claims.get(key_of(claim)) or annotations_of(claim).get(
                "volume.kubernetes.io/selected-node"
            )
            if selected and selected != node.name:
                return BIND_CONFLICT
            (provision if selected else match).append(claim)
        static: dict[str, str] = {}
        for claim in sorted(match, key=_size):
            volume = self._match(claim, node, static)
            if volume is None:
                provision.append(claim)
            else:
                static[meta(volume)["name"]] = key_of(claim)
        for claim in provision:
            if (problem := self._provision(claim, node)) is not None:
                return problem
        return static, [key_of(claim) for claim in provision]

    def _match(self, claim: Manifest, node: Node, taken: dict[str, str]) -> Manifest | None:
        """The volume meant for the claim, else the smallest that is free and suits it."""
        spec, wanted = _spec(claim), storage_class_of(claim)
        selector = lb.label_selector(spec["selector"]) if spec.get("selector") is not None else None
        smallest: Manifest | None = None
        for volume in self.cluster.all("PersistentVolume"):
            mine = _spec(volume)
            owner = self._owner(volume)
            if storage_class_of(volume) != wanted or meta(volume)["name"] in taken:
                continue
            if owner not in (None, key_of(claim)) or not _same_uid(volume, claim) or _size(volume) < _size(claim):
                continue
            if (spec.get("volumeMode") or "Filesystem") != (mine.get("volumeMode") or "Filesystem"):
                continue
            if (spec.get("volumeAttributesClassName") or "") != (mine.get("volumeAttributesClassName") or ""):
                continue
            if meta(volume).get("deletionTimestamp"):
                continue
            if owner is not None:
                return volume if _reaches(volume, node) else None
            if (volume.get("status") or {}).get("phase") != "Available" or not _reaches(volume, node):
                continue
            if selector is not None and not selector.matches(labels(volume)):
                continue
            if not set(spec.get("accessModes") or []) <= set(mine.get("accessModes") or []):
                continue
            if smallest is None or _size(volume) < _size(smallest):
                smallest = volume
        return smallest

    def _provision(self, claim: Manifest, node: Node) -> str | None:
        """Why the claim's class cannot provision a volume that the node reaches, if so."""
        found = self.cluster.find("StorageClass", storage_class_of(claim)) or {}
        if (found.get("provisioner") or "") in ("", "kubernetes.io/no-provisioner"):
            return BIND_CONFLICT
        allowed = found.get("allowedTopologies") or []
        if allowed and not any(_topology_term(term, node) for term in allowed):
            return BIND_CONFLICT
        driver = self.cluster.find("CSIDriver", found["provisioner"]) or {}
        requested = ((_spec(claim).get("resources") or {}).get("requests") or {}).get("storage")
        if requested is None or not _spec(driver).get("storageCapacity"):
            return None
        for capacity in self.cluster.all("CSIStorageCapacity"):
            limit = capacity.get("maximumVolumeSize", capacity.get("capacity"))
            if capacity.get("storageClassName") != meta(found)["name"] or limit is None:
                continue
            if capacity.get("nodeTopology") is None or whole(quantity(limit)) < whole(quantity(requested)):
                continue
            if lb.label_selector(capacity["nodeTopology"]).matches(node.labels):
                return None
        return NO_SPACE

    def _handle(self, claim: Manifest) -> dict[str, str]:
        """The claim's volume as the driver knows it -> the driver; empty when it is no CSI volume."""
        volume = self._volume(_spec(claim).get("volumeName"))
        if volume is not None:
            source = _spec(volume).get("csi")
            return {f"{source['driver']}/{source['volumeHandle']}": source["driver"]} if source else {}
        found = self.cluster.find("StorageClass", storage_class_of(claim)) or {}
        driver = found.get("provisioner")
        return {f"{driver}/unbound/{key_of(claim)}": driver} if driver else {}

    def _claim(self, task: Task, name: str) -> Manifest | None:
        return self.cluster.find("PersistentVolumeClaim", f"{task.namespace}/{name}")

    def _claims(self, task: Task) -> list[Manifest]:
        found = [self._claim(task, name) for name, _own in claim_names(task.pod)]
        return [claim for claim in found if claim is not None]

    def _volume(self, name: str | None) -> Manifest | None:
        return self.cluster.find("PersistentVolume", name) if name else None

    def _owner(self, volume: Manifest) -> str | None:
        assumed = self.session.assumed_volumes.get(meta(volume)["name"])
        reference = _spec(volume).get("claimRef")
        if assumed is not None or reference is None:
            return assumed
        return f"{reference.get('namespace') or 'default'}/{reference.get('name')}"

    def _delayed(self, claim: Manifest) -> bool:
        if _spec(claim).get("volumeName"):
            return False
        found = self.cluster.find("StorageClass", storage_class_of(claim)) or {}
        return bool(found.get("volumeBindingMode") == "WaitForFirstConsumer")

    @staticmethod
    def _fail(message: str, plugin: str = "VolumeBinding") -> NoReturn:
        raise PredicateFailure(f"plugin {plugin} pre-predicates failed {message}")


def _spec(manifest: Manifest) -> dict[str, Any]:
    return manifest.get("spec") or {}


def _bound(claim: Manifest) -> bool:
    return bool(_spec(claim).get("volumeName")) and "pv.kubernetes.io/bind-completed" in annotations_of(claim)


def _owned_by(claim: Manifest, task: Task) -> bool:
    owners = [owner for owner in meta(claim).get("ownerReferences") or [] if owner.get("controller")]
    return any(str(owner.get("uid") or "") == task.uid for owner in owners)


def _same_uid(volume: Manifest, claim: Manifest) -> bool:
    wanted = (_spec(volume).get("claimRef") or {}).get("uid")
    return not wanted or wanted == meta(claim).get("uid")


def _reaches(volume: Manifest, node: Node) -> bool:
    """The volume's node affinity admits the node; only labels are looked at."""
    required = (_spec(volume).get("nodeAffinity") or {}).get("required")
    if required is None:
        return True
    terms = [{"matchExpressions": t.get("matchExpressions") or []} for t in required.get("nodeSelectorTerms") or []]
    return lb.node_terms_match(terms, node.name, node.labels)


def _topology_term(term: dict[str, Any], node: Node) -> bool:
    expressions = term.get("matchLabelExpressions") or []
    return bool(expressions) and all(node.labels.get(e["key"]) in (e.get("values") or []) for e in expressions)


def _size(manifest: Manifest) -> Fraction:
    """A volume's capacity, or what a claim asks for."""
    spec = _spec(manifest)
    listed = spec.get("capacity") or (spec.get("resources") or {}).get("requests") or {}
    return quantity(listed.get("storage", 0))

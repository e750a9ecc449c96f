"""Predicates about the volumes behind a pod's claims: reach, zone, number, and capacity for new ones.

Source: kube-scheduler 1.36 ``volumebinding``, ``volumezone``, ``nodevolumelimits``. As in Volcano, conflicts of single
writers (kube-scheduler's ``volumerestrictions``) are not tested. Claims are not resources: Volcano's
``attachable-volumes-csi-<driver>`` of pods and nodes is left out (docs/differences.md).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vcd.model.objects import PersistentVolume
from vcd.model.reasons import MEND_NAMED, Cause, Reason, ReasonCode
from vcd.scheduling.search.parts import VOLUMES, Mask, Predicate, Reads
from vcd.scheduling.search.predicates.claims import (
    WAIT_FOR_FIRST_CONSUMER,
    Attachment,
    Attachments,
    PodClaim,
    Storage,
    claim_fault,
    class_of,
)
from vcd.scheduling.search.predicates.node_predicates import at_rows
from vcd.scheduling.session.nodes import Ints, Usage
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.node_facts import NO_VALUE, NodeFacts

ZONE_LABELS = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Labels of volumes that restrict them to nodes; the value is the node label to read if the node lacks the key."""
_STORAGE = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass")
UNLIMITED = np.iinfo(np.int64).max

_Fault = tuple[ReasonCode, dict[str, str]]
"""What is wrong with a claim, and the parameters of that reason."""

NODE_CONFLICT = ReasonCode(
    "volume-elsewhere", Cause.VOLUME, "node(s) had volume node affinity conflict", nodes_help=True
)()
NO_VOLUME = ReasonCode(
    "volume-gone", Cause.VOLUME, "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
)()
BIND_CONFLICT = ReasonCode(
    "no-volume-free", Cause.VOLUME, "node(s) didn't find available persistent volumes to bind", nodes_help=True
)()
NO_SPACE = ReasonCode("storage-full", Cause.VOLUME, "node(s) did not have enough free storage", nodes_help=True)()
_UNBOUND = ReasonCode("claims-unbound", Cause.VOLUME, "pod has unbound immediate PersistentVolumeClaims")
_MISSING = ReasonCode("claim-missing", Cause.VOLUME, 'persistentvolumeclaim "{name}" not found')
_NOT_MADE = ReasonCode(
    "claim-not-made",
    Cause.VOLUME,
    'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"',
)
_LOST = ReasonCode(
    "claim-lost", Cause.VOLUME, 'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
)
_GOING = ReasonCode("claim-going", Cause.VOLUME, 'persistentvolumeclaim "{name}" is being deleted')
_NOT_OWNED = ReasonCode("claim-not-owned", Cause.VOLUME, "PVC {owned} was not created for pod {pod} (pod is not owner)")
_UNREADABLE = ReasonCode(
    "claim-unreadable",
    Cause.VOLUME,
    'persistentvolumeclaim "{name}" cannot be read: {error}',
    mend=MEND_NAMED,
)
_NAMELESS = ReasonCode("claim-nameless", Cause.VOLUME, "PersistentVolumeClaim had no name")
_VOLUME_MISSING = ReasonCode("volume-missing", Cause.VOLUME, 'persistentvolume "{volume}" not found')
_NO_CLASS = ReasonCode("claim-classless", Cause.VOLUME, "PersistentVolumeClaim had no pv name and storageClass name")
_CLASS_MISSING = ReasonCode("class-missing", Cause.VOLUME, 'storageclass.storage.k8s.io "{class}" not found')
_VOLUME_NAMELESS = ReasonCode("volume-nameless", Cause.VOLUME, "PersistentVolume had no name")


# --- before any node --------------------------------------------------------------------------------------------------


def binding_refusal(storage: Storage, task: Task) -> Reason | None:
    """Return why a pod's claims fit no node: one is missing, lost, terminating, owned by another pod, or unbound."""
    wanted = storage.wanted(task)
    for claim in wanted.claims:
        fault = _fault(claim, task)
        if fault is not None:
            code, names = fault
            return code({**names, "filter": "VolumeBinding", "claim": f"{task.namespace}/{claim.name}"})
    if wanted.immediate:
        claims = ", ".join(claim.key for claim in wanted.immediate)
        return _UNBOUND({"filter": "VolumeBinding", "claim": claims})
    return None


def _fault(found: PodClaim, task: Task) -> _Fault | None:
    name, claim = found.name, found.claim
    if claim is None:
        if found.own:
            return _NOT_MADE, {"name": name}
        return _MISSING, {"name": name}
    if claim.status.phase == "Lost":
        return _LOST, {"name": name, "volume": claim.spec.volume_name}
    if claim.metadata.deletion_timestamp:
        return _GOING, {"name": name}
    if found.own and not any(owner.controller and owner.uid == task.uid for owner in claim.metadata.owner_references):
        return _NOT_OWNED, {"owned": claim.key, "pod": task.key}
    unreadable = claim_fault(claim)
    return None if unreadable is None else (_UNREADABLE, {"name": name, "error": unreadable})


def zone_refusal(storage: Storage, task: Task) -> Reason | None:
    """Return why the zone of a pod's volumes is unknown: a claim has neither a volume nor a class with late binding."""
    for found in storage.wanted(task).claims:
        fault = None if found.own else _zone_fault(storage, found)
        if fault is not None:
            code, names = fault
            return code({**names, "filter": "VolumeZone", "claim": f"{task.namespace}/{found.name}"})
    return None


def _zone_fault(storage: Storage, found: PodClaim) -> _Fault | None:
    claim = found.claim
    if claim is None:
        return (_MISSING, {"name": found.name}) if found.name else (_NAMELESS, {})
    volume, name = claim.spec.volume_name, class_of(claim)
    if volume:
        return None if volume in storage.volumes else (_VOLUME_MISSING, {"volume": volume})
    if not name:
        return _NO_CLASS, {}
    if name not in storage.classes:
        return _CLASS_MISSING, {"class": name}
    waits = storage.classes[name].volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
    return None if waits else (_VOLUME_NAMELESS, {})


def limits_refusal(storage: Storage, task: Task) -> Reason | None:
    """Return why a pod's volumes cannot be counted: a claim is missing."""
    for claim in storage.wanted(task).claims:
        if claim.claim is None:
            return _MISSING({"name": claim.name, "filter": "NodeVolumeLimits"})
    return None


# --- bound and unbound claims -----------------------------------------------------------------------------------------


class _ClaimPredicate(Predicate):
    """Base of the tests of a pod's claims; its clause names these."""

    _storage: Storage

    def clauses(self, task: Task, usage: Usage) -> list[tuple[Reason, Mask]]:
        claims = ", ".join(f"{task.namespace}/{claim.name}" for claim in self._storage.wanted(task).claims)
        reason = self.reason.declared({"claim": claims, "clause": f"claim {claims}"})
        return [(reason, self.mask(task, usage))]


class BoundVolumes(_ClaimPredicate):
    """A node reaches all volumes that the pod's claims are bound to."""

    name = "VolumeBinding"
    reason = NODE_CONFLICT
    reads = Reads.FACTS
    keys = (VOLUMES,)
    kinds = _STORAGE

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def applies(self, task: Task) -> bool:
        return bool(self._storage.wanted(task).bound)

    def mask(self, task: Task, usage: Usage) -> Mask:
        result = np.ones(len(usage), np.bool_)
        for volume in self._volumes(task):
            if volume is None:
                result[:] = False
            else:
                result &= at_rows(self._storage.reaches(volume), usage)
        return result

    def reasons(self, task: Task, usage: Usage, failed: Mask) -> Mapping[Reason, int]:
        reason = NO_VOLUME if None in self._volumes(task) else NODE_CONFLICT
        return {reason: int(failed.sum())}

    def _volumes(self, task: Task) -> list[PersistentVolume | None]:
        return [self._storage.volumes.get(claim.spec.volume_name) for claim in self._storage.wanted(task).bound]


class UnboundClaims(_ClaimPredicate):
    """On the node, each claim with late binding finds a free volume, or its class can provision one.

    Volumes and claims reserved by earlier placements of the session are not free.
    """

    name = "VolumeBinding"
    reason = BIND_CONFLICT
    reads = Reads.PODS
    keys = ()

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def applies(self, task: Task) -> bool:
        return bool(self._storage.wanted(task).delayed)

    def mask(self, task: Task, usage: Usage) -> Mask:
        found = self._storage.find(self._storage.wanted(task))
        result: Mask = ~at_rows(found.conflict | found.space, usage)
        return result

    def unresolvable_nodes(self, task: Task, usage: Usage, failed: Mask) -> Mask:
        return failed

    def reasons(self, task: Task, usage: Usage, failed: Mask) -> Mapping[Reason, int]:
        found = self._storage.find(self._storage.wanted(task))
        lacking = int((failed & at_rows(found.space, usage)).sum())
        counts = {BIND_CONFLICT: int(failed.sum()) - lacking, NO_SPACE: lacking}
        return {reason: count for reason, count in counts.items() if count}


class VolumeZone(_ClaimPredicate):
    """A node's zone and region are among those in the labels of the pod's bound volumes.

    Nodes without any such label pass: clusters of one zone need none.
    """

    name = "VolumeZone"
    reason = ReasonCode("volume-zone", Cause.VOLUME, "node(s) had no available volume zone", nodes_help=True)()
    reads = Reads.FACTS
    keys = (VOLUMES,)
    kinds = _STORAGE

    def __init__(self, session: Session, storage: Storage) -> None:
        self._facts = session.nodes.facts
        self._storage = storage

    def applies(self, task: Task) -> bool:
        return bool(self._places(task))

    def mask(self, task: Task, usage: Usage) -> Mask:
        result = np.ones(len(self._facts), np.bool_)
        for label, places in self._places(task):
            result &= _in_places(self._facts, label, places)
        return at_rows(result | ~_has_zone(self._facts), usage)

    def _places(self, task: Task) -> list[tuple[str, frozenset[str]]]:
        """Return label keys with the zones or regions from which the pod's volumes can be used."""
        found = []
        for claim in self._storage.wanted(task).claims:
            volume = None
            if claim.claim is not None and not claim.own:
                volume = self._storage.volumes.get(claim.claim.spec.volume_name)
            labels = {} if volume is None else volume.metadata.labels
            for key in ZONE_LABELS:
                places = frozenset(place.strip() for place in labels[key].split("__")) if key in labels else None
                if places and "" not in places:
                    found.append((key, places))
        return found


def _has_zone(facts: NodeFacts) -> Mask:
    result = np.zeros(len(facts), np.bool_)
    for key in ZONE_LABELS:
        result |= facts.label(key)[0] != NO_VALUE
    return result


def _in_places(facts: NodeFacts, label: str, places: frozenset[str]) -> Mask:
    codes, values = facts.label(label)
    result = np.isin(codes, [code for code, text in enumerate(values) if text in places])
    stable = ZONE_LABELS[label]
    if stable != label:
        others, texts = facts.label(stable)
        inside = np.isin(others, [code for code, text in enumerate(texts) if text in places])
        result |= (codes == NO_VALUE) & inside
    return result


# --- how many volumes -------------------------------------------------------------------------------------------------


class NodeVolumeLimits(_ClaimPredicate):
    """A node has at most as many volumes of a CSI driver attached as its CSINode allows; a shared volume counts once.

    A driver that the CSINode does not list, or lists without a count, is unlimited.
    """

    name = "NodeVolumeLimits"
    reason = ReasonCode("volume-count", Cause.VOLUME, "node(s) exceed max volume count", nodes_help=True)()
    reads = Reads.PODS
    keys = ()

    def __init__(self, session: Session, storage: Storage, attachments: Attachments) -> None:
        self._session = session
        self._storage = storage
        self._attachments = attachments
        self._limits: dict[str, Ints] = {}

    def applies(self, task: Task) -> bool:
        wanted = self._storage.wanted(task).attachments
        return any((self._limits_of(attachment.driver) < UNLIMITED).any() for attachment in wanted)

    def mask(self, task: Task, usage: Usage) -> Mask:
        result = np.ones(len(self._session.nodes), np.bool_)
        by_driver: dict[str, set[Attachment]] = {}
        for attachment in self._storage.wanted(task).attachments:
            by_driver.setdefault(attachment.driver, set()).add(attachment)
        for driver, attachments in by_driver.items():
            new = np.full(len(result), len(attachments), np.int64)
            for attachment in attachments:
                new[self._attachments.nodes_with(attachment)] -= 1
            result &= (new == 0) | (self._attachments.count(driver) + new <= self._limits_of(driver))
        return at_rows(result, usage)

    def _limits_of(self, driver: str) -> Ints:
        """Return the maximum number of a driver's volumes per node."""
        limits = self._limits.get(driver)
        if limits is None:
            limits = self._limits[driver] = np.full(len(self._session.nodes), UNLIMITED, np.int64)
            for name, row in self._session.nodes.facts.row_of.items():
                node = self._storage.nodes.get(name)
                for listed in () if node is None else node.spec.drivers:
                    if (
                        listed.name == driver
                        and listed.allocatable is not None
                        and listed.allocatable.count is not None
                    ):
                        limits[row] = listed.allocatable.count
        return limits

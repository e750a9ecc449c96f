"""The claims, volumes and storage classes behind pods, and what a session assumes of them.

Source: kube-scheduler 1.36 ``volumebinding`` (binder), ``nodevolumelimits``; component-helpers ``storage/volume``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt

from vcd.model.objects import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    Object,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodSpec,
    Quantities,
    StorageClass,
)
from vcd.model.quantity import QuantityError, parse_units
from vcd.model.selectors import IN, LabelSelector, NodeSelectorRequirement, NodeSelectorTerm, SelectorError
from vcd.model.status import TERMINATED_STATUSES, TaskStatus
from vcd.scheduling.nodes import Ints
from vcd.scheduling.plugin import Mask
from vcd.scheduling.predicates.node import matching

if TYPE_CHECKING:
    from vcd.scheduling.session import Session, Task

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"

K = TypeVar("K", bound=Object)


class PodClaim(NamedTuple):
    """A claim that a pod names, or that is ``own``: made for the pod from an ephemeral volume. None: not there."""

    name: str
    own: bool
    claim: PersistentVolumeClaim | None


class Attachment(NamedTuple):
    """A volume as its CSI driver knows it; equal for all pods that share the volume."""

    driver: str
    handle: str


@dataclass(frozen=True, eq=False)
class Wanted:
    """A pod's claims: ``bound`` ones, ``delayed`` ones (smallest first) that are bound when the pod is placed, and
    ``immediate`` ones that should have been bound before."""

    claims: tuple[PodClaim, ...] = ()
    bound: tuple[PersistentVolumeClaim, ...] = ()
    delayed: tuple[PersistentVolumeClaim, ...] = ()
    immediate: tuple[PersistentVolumeClaim, ...] = ()
    attachments: tuple[Attachment, ...] = ()


NOTHING = Wanted()


@dataclass(frozen=True, eq=False)
class Found:
    """Where a pod's unbound claims can be bound: ``conflict`` and ``space`` mark the nodes where they cannot, for want
    of a volume or of room to make one. ``choices``: per claim key its volumes and, per node, the index of the one
    chosen (-1: it is to be provisioned)."""

    conflict: Mask
    space: Mask
    choices: Mapping[str, tuple[list[str], npt.NDArray[np.int32]]]


def has_claims(spec: PodSpec) -> bool:
    """Whether a pod has volumes behind claims."""
    return any(volume.persistent_volume_claim is not None or volume.ephemeral is not None for volume in spec.volumes)


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Whether the volume controller has finished binding a claim."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations


def class_of(obj: PersistentVolumeClaim | PersistentVolume) -> str:
    """The storage class that a claim or volume is of; the old annotation comes first."""
    annotated = obj.metadata.annotations.get(_CLASS_ANNOTATION)
    return annotated if annotated is not None else obj.spec.storage_class_name or ""


def size_of(quantities: Quantities) -> int:
    """Bytes of storage, 0 where none are named. Raises QuantityError."""
    return parse_units(quantities.get("storage", 0))


class Storage:
    """The session's storage objects, and which unbound claims and volumes its placements have spoken for."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._facts = session.nodes.facts
        self.claims = self._all("PersistentVolumeClaim", PersistentVolumeClaim)
        self.volumes = self._all("PersistentVolume", PersistentVolume)
        self.classes = self._all("StorageClass", StorageClass)
        self.drivers = self._all("CSIDriver", CSIDriver)
        self.nodes = self._all("CSINode", CSINode)
        self._by_class: dict[str, list[tuple[int, str]]] | None = None
        self._wanted: dict[Hashable, Wanted] = {}
        self._rows: dict[str, npt.NDArray[np.intp]] = {}
        self._provision: dict[tuple[str, int | None], tuple[Mask, Mask]] = {}
        self._found: dict[Wanted, tuple[int, Found]] = {}
        self._assumed_volumes: dict[str, str] = {}
        self._assumed_claims: dict[str, str] = {}
        self._reserved: dict[str, tuple[list[str], list[str]]] = {}
        self._changes = 0
        self._assume_binding()

    def _all(self, kind: str, of: type[K]) -> Mapping[str, K]:
        return cast(Mapping[str, K], self._session.snapshot.others.get(kind, {}))

    # --- claims -----------------------------------------------------------------------------------------------------

    def pod_claims(self, pod: Pod) -> tuple[PodClaim, ...]:
        """A pod's claims, in the order of its volumes."""
        meta, found = pod.metadata, []
        for volume in pod.spec.volumes:
            if volume.persistent_volume_claim is not None:
                name, own = volume.persistent_volume_claim.claim_name, False
            elif volume.ephemeral is not None:
                name, own = f"{meta.name}-{volume.name}", True
            else:
                continue
            found.append(PodClaim(name, own, self.claims.get(f"{meta.namespace}/{name}")))
        return tuple(found)

    def wanted(self, task: Task) -> Wanted:
        """A task's claims, sorted by what is to be done with them; computed once per shape and namespace."""
        volumes = task.shape.spec.volumes
        if not volumes:
            return NOTHING
        own = task.name if any(volume.ephemeral is not None for volume in volumes) else None
        key = (task.shape, task.namespace, own)
        found = self._wanted.get(key)
        if found is None:
            found = self._wanted[key] = self.wanted_by(task.pod)
        return found

    def wanted_by(self, pod: Pod) -> Wanted:
        """A pod's claims, sorted by what is to be done with them."""
        claims = self.pod_claims(pod)
        if not claims:
            return NOTHING
        there = [claim.claim for claim in claims if claim.claim is not None]
        unbound = [claim for claim in there if not is_bound(claim)]
        delayed = [claim for claim in unbound if self.is_delayed(claim) and claim_fault(claim) is None]
        return Wanted(
            claims=claims,
            bound=tuple(claim for claim in there if is_bound(claim)),
            delayed=tuple(sorted(delayed, key=lambda claim: size_of(claim.spec.resources.requests))),
            immediate=tuple(claim for claim in unbound if not self.is_delayed(claim)),
            attachments=tuple(found for claim in there if (found := self.attachment(claim)) is not None),
        )

    def is_delayed(self, claim: PersistentVolumeClaim) -> bool:
        """Whether a claim is bound only when its first pod is placed."""
        found = self.classes.get(class_of(claim))
        return not claim.spec.volume_name and found is not None and found.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER

    def attachment(self, claim: PersistentVolumeClaim) -> Attachment | None:
        """What a claim's volume is, or will be, to its CSI driver; None for what is none of a driver's volumes."""
        volume = self.volumes.get(claim.spec.volume_name)
        if volume is not None:
            source = volume.spec.csi
            return None if source is None or not source.driver else Attachment(source.driver, source.volume_handle)
        found = self.classes.get(class_of(claim))
        if found is None or not found.provisioner:
            return None
        return Attachment(found.provisioner, f"unbound/{claim.key}")

    # --- where volumes can be used ------------------------------------------------------------------------------------

    def reaches(self, volume: PersistentVolume) -> Mask:
        """Nodes from which a volume can be used. As in kube-scheduler its terms see a node's labels, not its name."""
        affinity = volume.spec.node_affinity
        if affinity is None or affinity.required is None:
            return np.ones(len(self._facts), np.bool_)
        result = np.zeros(len(self._facts), np.bool_)
        for term in affinity.required.node_selector_terms:
            if not any(need.operator == IN for need in term.match_fields):
                result |= matching(self._facts, NodeSelectorTerm(match_expressions=term.match_expressions))
        return result

    def find(self, wanted: Wanted) -> Found:
        """Where the delayed claims can be bound, with what the session assumes by now."""
        kept = self._found.get(wanted)
        if kept is not None and kept[0] == self._changes:
            return kept[1]
        found = self._find(wanted)
        self._found[wanted] = (self._changes, found)
        return found

    def _find(self, wanted: Wanted) -> Found:
        count = len(self._facts)
        conflict, space = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        taken: dict[str, Mask] = {}
        choices: dict[str, tuple[list[str], npt.NDArray[np.int32]]] = {}
        for claim in wanted.delayed:
            selected = self._assumed_claims.get(claim.key) or claim.metadata.annotations.get(SELECTED_NODE)
            if selected:
                to_provision = np.zeros(count, np.bool_)
                row = self._facts.row_of.get(selected)
                if row is not None:
                    to_provision[row] = True
                conflict |= ~to_provision
                choices[claim.key] = ([], np.full(count, -1, np.int32))
            else:
                choices[claim.key] = self._match(claim, taken)
                to_provision = choices[claim.key][1] < 0
            can, enough = self._provisioning(claim)
            conflict |= to_provision & ~can
            space |= to_provision & ~enough
        return Found(conflict, space & ~conflict, choices)

    # --- existing volumes ---------------------------------------------------------------------------------------------

    def _match(self, claim: PersistentVolumeClaim, taken: dict[str, Mask]) -> tuple[list[str], npt.NDArray[np.int32]]:
        """On each node the smallest volume that suits a claim and that no other claim of the pod has taken there."""
        count = len(self._facts)
        names = self._suitable(claim)
        chosen = np.full(count, -1, np.int32)
        left = count
        for index, name in enumerate(names):
            rows = self._rows_of(name)
            rows = rows[chosen[rows] < 0]
            others = taken.get(name)
            if others is not None:
                rows = rows[~others[rows]]
            if rows.size:
                chosen[rows] = index
                taken.setdefault(name, np.zeros(count, np.bool_))[rows] = True
                left -= rows.size
                if not left:
                    break
        return names, chosen

    def _rows_of(self, name: str) -> npt.NDArray[np.intp]:
        rows = self._rows.get(name)
        if rows is None:
            rows = self._rows[name] = np.flatnonzero(self.reaches(self.volumes[name]))
        return rows

    def _suitable(self, claim: PersistentVolumeClaim) -> list[str]:
        """Volumes that a claim may be bound to, best first; only the one that is meant for it, where there is one."""
        spec = claim.spec
        needed = size_of(spec.resources.requests)
        selector = None if spec.selector is None else LabelSelector.compile(spec.selector)
        modes = set(spec.access_modes)
        meant, free = [], []
        for size, name in self._volumes_of(class_of(claim)):
            volume = self.volumes[name]
            owner = self._owner(volume)
            if size < needed or owner not in ("", claim.key) or volume.spec.volume_mode != spec.volume_mode:
                continue
            reference = volume.spec.claim_ref
            if volume.metadata.deletion_timestamp or (
                reference is not None and reference.uid and reference.uid != claim.metadata.uid
            ):
                continue
            if owner:
                meant.append(name)
            elif (
                volume.status.phase == "Available"
                and (selector is None or selector.matches(volume.metadata.labels))
                and modes.issubset(volume.spec.access_modes)
            ):
                free.append(name)
        return [min(meant)] if meant else free

    def _volumes_of(self, name: str) -> list[tuple[int, str]]:
        """Sizes and names of a class's volumes, smallest first."""
        if self._by_class is None:
            self._by_class = {}
            for key, volume in self.volumes.items():
                try:
                    size = size_of(volume.spec.capacity)
                except QuantityError:
                    continue  # the API server admits none such; nobody can say what it holds
                self._by_class.setdefault(class_of(volume), []).append((size, key))
            for volumes in self._by_class.values():
                volumes.sort()
        return self._by_class.get(name, [])

    def _owner(self, volume: PersistentVolume) -> str:
        assumed = self._assumed_volumes.get(volume.metadata.name)
        reference = volume.spec.claim_ref
        if assumed is not None or reference is None:
            return assumed or ""
        return f"{reference.namespace}/{reference.name}"

    # --- new volumes --------------------------------------------------------------------------------------------------

    def _provisioning(self, claim: PersistentVolumeClaim) -> tuple[Mask, Mask]:
        """Nodes for which a claim's class can make a volume at all, and those for which there is room."""
        requests = claim.spec.resources.requests
        key = (class_of(claim), size_of(requests) if "storage" in requests else None)
        found = self._provision.get(key)
        if found is None:
            found = self._provision[key] = self._evaluate_provisioning(*key)
        return found

    def _evaluate_provisioning(self, name: str, size: int | None) -> tuple[Mask, Mask]:
        count = len(self._facts)
        nowhere, everywhere = np.zeros(count, np.bool_), np.ones(count, np.bool_)
        found = self.classes.get(name)
        if found is None or found.provisioner in ("", NO_PROVISIONER):
            return nowhere, everywhere
        can = nowhere if found.allowed_topologies else everywhere
        for term in found.allowed_topologies:
            needs = (NodeSelectorRequirement(need.key, IN, need.values) for need in term.match_label_expressions)
            can = can | matching(self._facts, NodeSelectorTerm(match_expressions=tuple(needs)))
        driver = self.drivers.get(found.provisioner)
        if size is None or driver is None or not driver.spec.storage_capacity:
            return can, everywhere
        enough = nowhere
        capacities = self._all("CSIStorageCapacity", CSIStorageCapacity)
        for key in sorted(capacities):
            capacity = capacities[key]
            if capacity.storage_class_name == name and _volume_limit(capacity) >= size:
                enough = enough | self._accessible(capacity)
        return can, enough

    def _accessible(self, capacity: CSIStorageCapacity) -> Mask:
        topology = capacity.node_topology
        if topology is None:
            return np.zeros(len(self._facts), np.bool_)
        needs = [NodeSelectorRequirement(key, IN, (text,)) for key, text in sorted(topology.match_labels.items())]
        needs += [NodeSelectorRequirement(need.key, need.operator, need.values) for need in topology.match_expressions]
        if not needs:
            return np.ones(len(self._facts), np.bool_)
        return matching(self._facts, NodeSelectorTerm(match_expressions=tuple(needs)))

    # --- what placements assume ---------------------------------------------------------------------------------------

    def reserve(self, task: Task, row: int) -> None:
        """Speak for the volumes that a task placed now uses, so that later tasks of the session see it."""
        wanted = self.wanted(task)
        if wanted.delayed and task.status == TaskStatus.ALLOCATED:
            self._reserve(task.key, wanted, row)

    def unreserve(self, task: Task) -> None:
        """Take back what a task's placement had spoken for."""
        volumes, claims = self._reserved.pop(task.key, ([], []))
        for volume in volumes:
            del self._assumed_volumes[volume]
        for claim in claims:
            del self._assumed_claims[claim]
        self._changes += bool(volumes or claims)

    def _reserve(self, key: str, wanted: Wanted, row: int) -> None:
        volumes, claims = [], []
        for claim, (names, chosen) in self.find(wanted).choices.items():
            index = int(chosen[row])
            if index < 0:
                if claim not in self._assumed_claims:
                    self._assumed_claims[claim] = self._facts.names[row]
                    claims.append(claim)
            elif names[index] not in self._assumed_volumes:
                self._assumed_volumes[names[index]] = claim
                volumes.append(names[index])
        if volumes or claims:
            self._reserved[key] = (volumes, claims)
            self._changes += 1

    def _assume_binding(self) -> None:
        """Pods that an earlier session placed, and that are not bound yet, keep what they spoke for."""
        tasks = self._session.snapshot.tasks
        flags = self._session.shape_flags(lambda shape: has_claims(shape.spec))
        rows = np.flatnonzero((tasks.status == TaskStatus.BINDING) & (tasks.node >= 0) & flags[tasks.shape]).tolist()
        for key, row in sorted((tasks.keys[row] or "", row) for row in rows):
            wanted = self.wanted_by(cast(Pod, tasks.pods[row]))
            if wanted.delayed:
                self._reserve(key, wanted, int(tasks.node[row]))


def claim_fault(claim: PersistentVolumeClaim) -> str | None:
    """What of a claim cannot be read."""
    try:
        size_of(claim.spec.resources.requests)
        LabelSelector.compile(claim.spec.selector)
    except (QuantityError, SelectorError) as error:
        return str(error)
    return None


def _volume_limit(capacity: CSIStorageCapacity) -> int:
    """Bytes of the largest volume that can be made; -1 where nobody says."""
    limit: Any = capacity.capacity if capacity.maximum_volume_size is None else capacity.maximum_volume_size
    if limit is None:
        return -1
    try:
        return parse_units(limit)
    except QuantityError:
        return -1  # the API server admits none such; no volume can be promised


class Attachments:
    """Which volumes of CSI drivers the pods on each node use; a volume that several of them share counts once."""

    def __init__(self, session: Session, storage: Storage) -> None:
        self._storage = storage
        self._nodes = len(session.nodes)
        self._users: dict[Attachment, dict[int, int]] = {}
        self._counts: dict[str, Ints] = {}
        tasks = session.snapshot.tasks
        flags = session.shape_flags(lambda shape: has_claims(shape.spec))
        placed = (tasks.node >= 0) & ~np.isin(tasks.status, TERMINATED_STATUSES) & flags[tasks.shape]
        for row in np.flatnonzero(placed).tolist():
            self._change(storage.wanted_by(cast(Pod, tasks.pods[row])), int(tasks.node[row]), 1)

    def add(self, task: Task, row: int) -> None:
        """A task was placed."""
        self._change(self._storage.wanted(task), row, 1)

    def remove(self, task: Task, row: int) -> None:
        """A task was taken away."""
        self._change(self._storage.wanted(task), row, -1)

    def nodes_with(self, attachment: Attachment) -> npt.NDArray[np.intp]:
        """Rows of the nodes that use a volume already."""
        return np.fromiter(sorted(self._users.get(attachment, ())), np.intp)

    def count(self, driver: str) -> Ints:
        """Volumes of a driver per node. Not to be changed."""
        counts = self._counts.get(driver)
        if counts is None:
            counts = self._counts[driver] = np.zeros(self._nodes, np.int64)
        return counts

    def _change(self, wanted: Wanted, row: int, sign: int) -> None:
        for attachment in wanted.attachments:
            users = self._users.setdefault(attachment, {})
            before = users.pop(row, 0)
            after = before + sign
            if after:
                users[row] = after
            self.count(attachment.driver)[row] += (after > 0) - (before > 0)

"""Claims, volumes and storage classes behind pods, and the volumes that a session reserves for its placements.

Source: kube-scheduler 1.36 ``volumebinding`` (binder), ``nodevolumelimits``; component-helpers ``storage/volume``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
import numpy as np
import numpy.typing as npt

from vcd.model.events import VolumeChoice
from vcd.model.objects import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    Object,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    StorageClass,
)
from vcd.model.quantity import QuantityError, parse_units
from vcd.model.selectors import IN, LabelSelector, NodeSelectorRequirement, NodeSelectorTerm, SelectorError
from vcd.model.status import TaskStatus
from vcd.scheduling.search.parts import Mask
from vcd.scheduling.search.predicates.freevolumes import NONE, ChosenVolumes, ClassVolumes, reaches, size_of
from vcd.scheduling.search.predicates.node_predicates import matching
from vcd.scheduling.session.nodes import Ints
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.records import Shape

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"

K = TypeVar("K", bound=Object)


class PodClaim(NamedTuple):
    """A claim that a pod names, or that is made from its ephemeral volume (``own``). None: it does not exist."""

    name: str
    own: bool
    claim: PersistentVolumeClaim | None


class Attachment(NamedTuple):
    """A volume as its CSI driver identifies it; equal for all pods that share the volume."""

    driver: str
    handle: str


class ClaimsByBinding(msgspec.Struct, frozen=True, eq=False):
    """A pod's claims, by how they are bound.

    ``delayed`` claims (smallest first) are bound when the pod is placed. ``immediate`` claims should be bound already.
    """

    claims: tuple[PodClaim, ...] = ()
    bound: tuple[PersistentVolumeClaim, ...] = ()
    delayed: tuple[PersistentVolumeClaim, ...] = ()
    immediate: tuple[PersistentVolumeClaim, ...] = ()
    attachments: tuple[Attachment, ...] = ()


NOTHING = ClaimsByBinding()


class ClaimOptions(NamedTuple):
    """The volume that a claim would be bound to on each node.

    ``chosen`` is an index of the class's ``volumes`` per node. NONE, or ``volumes`` None: a new volume is provisioned.
    """

    claim: str
    volumes: ClassVolumes | None
    chosen: ChosenVolumes


class BindingOptions(msgspec.Struct, frozen=True, eq=False):
    """Where a pod's unbound claims can be bound.

    ``conflict`` marks nodes without a suitable volume, ``space`` nodes without capacity for a new one.
    """

    conflict: Mask
    space: Mask
    choices: tuple[ClaimOptions, ...]


class _Reservation(msgspec.Struct):
    """What the session assumes of a claim: the volume that it gets, or the node where its volume is provisioned.

    ``number`` is the volume's index in its class. ``taken`` is that class if the volume was free before. ``users``
    counts the pods that rely on this.
    """

    volume: str
    node: str
    number: int
    taken: ClassVolumes | None
    users: int = 0


def has_claims(shape: Shape) -> bool:
    """Whether pods of a shape have volumes behind claims."""
    volumes = shape.spec.volumes
    return any(volume.persistent_volume_claim is not None or volume.ephemeral is not None for volume in volumes)


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Whether the volume controller has finished binding a claim."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations


def class_of(obj: PersistentVolumeClaim | PersistentVolume) -> str:
    """Return the storage class of a claim or volume; the old annotation takes precedence."""
    annotated = obj.metadata.annotations.get(_CLASS_ANNOTATION)
    return annotated if annotated is not None else obj.spec.storage_class_name or ""


class Storage:
    """The session's storage objects, and which unbound claims and volumes its placements reserve."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._facts = session.nodes.facts
        self.claims = self._all("PersistentVolumeClaim", PersistentVolumeClaim)
        self.volumes = self._all("PersistentVolume", PersistentVolume)
        self.classes = self._all("StorageClass", StorageClass)
        self.drivers = self._all("CSIDriver", CSIDriver)
        self.nodes = self._all("CSINode", CSINode)
        self._free: dict[str, ClassVolumes] | None = None
        self._wanted: dict[Hashable, ClaimsByBinding] = {}
        self._provision: dict[tuple[str, int | None], tuple[Mask, Mask]] = {}
        self._found: dict[ClaimsByBinding, tuple[int, BindingOptions]] = {}
        self._assumed: dict[str, _Reservation] = {}
        self._reserved: dict[str, tuple[VolumeChoice, ...]] = {}
        self._changes = 0
        self._assume_binding()

    def _all(self, kind: str, of: type[K]) -> Mapping[str, K]:
        return cast(Mapping[str, K], self._session.snapshot.others.get(kind, {}))

    # --- claims -----------------------------------------------------------------------------------------------------

    def pod_claims(self, pod: Pod) -> tuple[PodClaim, ...]:
        """Return a pod's claims, in the order of its volumes."""
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

    def wanted(self, task: Task) -> ClaimsByBinding:
        """Return a task's claims, by how they are bound. Cached by shape and namespace."""
        volumes = task.shape.spec.volumes
        if not volumes:
            return NOTHING
        own = task.name if any(volume.ephemeral is not None for volume in volumes) else None
        key = (task.shape, task.namespace, own)
        found = self._wanted.get(key)
        if found is None:
            found = self._wanted[key] = self.wanted_by(task.pod)
        return found

    def wanted_by(self, pod: Pod) -> ClaimsByBinding:
        """Return a pod's claims, by how they are bound."""
        claims = self.pod_claims(pod)
        if not claims:
            return NOTHING
        there = [claim.claim for claim in claims if claim.claim is not None]
        unbound = [claim for claim in there if not is_bound(claim)]
        delayed = [claim for claim in unbound if self.is_delayed(claim) and claim_fault(claim) is None]
        return ClaimsByBinding(
            claims=claims,
            bound=tuple(claim for claim in there if is_bound(claim)),
            delayed=tuple(sorted(delayed, key=lambda claim: size_of(claim.spec.resources.requests))),
            immediate=tuple(claim for claim in unbound if not self.is_delayed(claim)),
            attachments=tuple(found for claim in there if (found := self.attachment(claim)) is not None),
        )

    def is_delayed(self, claim: PersistentVolumeClaim) -> bool:
        """Whether a claim is bound only when its first pod is placed (WaitForFirstConsumer)."""
        found = self.classes.get(class_of(claim))
        return not claim.spec.volume_name and found is not None and found.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER

    def attachment(self, claim: PersistentVolumeClaim) -> Attachment | None:
        """Return the attachment of a claim's current or future volume, or None if no CSI driver is known."""
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
        return reaches(self._facts, volume)

    def find(self, wanted: ClaimsByBinding) -> BindingOptions:
        """Return where the delayed claims can be bound, given the session's reservations so far."""
        cached = self._found.get(wanted)
        if cached is not None and cached[0] == self._changes:
            return cached[1]
        found = self._find(wanted)
        self._found[wanted] = (self._changes, found)
        return found

    def _find(self, wanted: ClaimsByBinding) -> BindingOptions:
        count = len(self._facts)
        conflict, space = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        choices: list[ClaimOptions] = []
        for claim in wanted.delayed:
            assumed = self._assumed.get(claim.key)
            selected = assumed.node if assumed is not None else claim.metadata.annotations.get(SELECTED_NODE)
            if selected:
                to_provision = np.array([name == selected for name in self._facts.names], np.bool_)
                conflict |= ~to_provision
                choices.append(ClaimOptions(claim.key, None, np.full(count, NONE, np.int64)))
            else:
                choices.append(self._choose(claim, choices))
                to_provision = choices[-1].chosen == NONE
            can, enough = self._provisioning(claim)
            conflict |= to_provision & ~can
            space |= to_provision & ~enough
        return BindingOptions(conflict, space & ~conflict, tuple(choices))

    def _choose(self, claim: PersistentVolumeClaim, earlier: list[ClaimOptions]) -> ClaimOptions:
        """Choose a claim's volumes, leaving out volumes that earlier claims of the pod chose."""
        volumes = self._volumes_of(class_of(claim))
        if volumes is None:
            return ClaimOptions(claim.key, None, np.full(len(self._facts), NONE, np.int64))
        taken = [choice.chosen for choice in earlier if choice.volumes is volumes]
        return ClaimOptions(claim.key, volumes, volumes.choose(claim, taken))

    def _volumes_of(self, name: str) -> ClassVolumes | None:
        """Return the volumes of a class, or None if there are none."""
        if self._free is None:
            members: dict[str, list[PersistentVolume]] = {}
            for volume in self.volumes.values():
                members.setdefault(class_of(volume), []).append(volume)
            self._free = {key: ClassVolumes(self._facts, volumes) for key, volumes in members.items()}
        return self._free.get(name)

    # --- new volumes --------------------------------------------------------------------------------------------------

    def _provisioning(self, claim: PersistentVolumeClaim) -> tuple[Mask, Mask]:
        """Return the nodes on which a claim's class can provision a volume, and the nodes with capacity for it."""
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

    # --- reservations -------------------------------------------------------------------------------------------------

    def reserve(self, task: Task, row: int) -> None:
        """Reserve the volumes of a task that is allocated now, so that later tasks of the session see it."""
        wanted = self.wanted(task)
        if wanted.delayed and task.status == TaskStatus.ALLOCATED:
            self._reserve(task.key, wanted, row)

    def unreserve(self, task: Task) -> None:
        """Release what a task's placement reserved."""
        for choice in self._reserved.pop(task.key, ()):
            self._release(choice.claim)

    def reserved(self, task: Task) -> tuple[VolumeChoice, ...]:
        """Return the volumes that a placed task's unbound claims get."""
        return self._reserved.get(task.key, ())

    def _reserve(self, key: str, wanted: ClaimsByBinding, row: int) -> None:
        choices, node = [], self._facts.names[row]
        for claim, volumes, chosen in self.find(wanted).choices:
            assumed = self._assumed.get(claim)
            number = int(chosen[row])
            if assumed is None:
                assumed = self._assume(claim, NONE if volumes is None else number, volumes, node)
            assumed.users += 1
            choices.append(VolumeChoice(claim, assumed.volume, self.claims[claim].metadata.uid))
        self._reserved[key] = tuple(choices)

    def _assume(self, claim: str, number: int, volumes: ClassVolumes | None, node: str) -> _Reservation:
        """Assume that a claim gets a volume or, if ``number`` is NONE, one that is provisioned on the node."""
        self._changes += 1
        if volumes is None or number == NONE:
            found = _Reservation("", node, NONE, None)
        else:
            taken = volumes if volumes.is_free(number) else None
            if taken is not None:
                taken.assume(number, claim)
            found = _Reservation(volumes.names[number], "", number, taken)
        self._assumed[claim] = found
        return found

    def _release(self, claim: str) -> None:
        assumed = self._assumed[claim]
        assumed.users -= 1
        if not assumed.users:
            del self._assumed[claim]
            if assumed.taken is not None:
                assumed.taken.release(assumed.number, claim)
            self._changes += 1

    def _assume_binding(self) -> None:
        """Reserve again what earlier sessions chose for claims that are still unbound."""
        snapshot = self._session.snapshot
        rows = {key: row for row, key in enumerate(snapshot.tasks.keys) if key in snapshot.volumes}
        for key in sorted(snapshot.volumes):
            node = int(snapshot.tasks.node[rows[key]])
            for choice in snapshot.volumes[key] if node >= 0 else ():
                claim = self.claims.get(choice.claim)
                if claim is not None and not is_bound(claim) and choice.claim not in self._assumed:
                    self._assume_chosen(choice, claim, self._facts.names[node])

    def _assume_chosen(self, choice: VolumeChoice, claim: PersistentVolumeClaim, node: str) -> None:
        """Assume an earlier session's choice. The extra user keeps it reserved for the whole session."""
        volumes = self._volumes_of(class_of(claim)) if choice.volume else None
        number = NONE if volumes is None else volumes.number_of(choice.volume)
        if number != NONE or not choice.volume:
            self._assume(choice.claim, number, volumes, node).users += 1


def why_outdated(choice: VolumeChoice, node: str, others: Mapping[str, Mapping[str, Object]]) -> str:
    """Return why a claim can no longer get its chosen volume on a node, or "" if it can.

    ``others`` is ``Snapshot.others``.
    """
    claim = cast(PersistentVolumeClaim | None, others.get("PersistentVolumeClaim", {}).get(choice.claim))
    if claim is None or claim.metadata.uid != choice.uid or claim.metadata.deletion_timestamp:
        return f"claim {choice.claim} is gone"
    bound = claim.spec.volume_name
    if bound and bound != choice.volume:
        return f"claim {choice.claim} was bound to volume {bound}"
    if bound:
        return ""
    if not choice.volume:
        selected = claim.metadata.annotations.get(SELECTED_NODE, node)
        return "" if selected == node else f"claim {choice.claim} is to be provisioned on node {selected}"
    volume = cast(PersistentVolume | None, others.get("PersistentVolume", {}).get(choice.volume))
    if volume is None or volume.metadata.deletion_timestamp:
        return f"volume {choice.volume} is gone"
    return "" if _can_be_bound(volume, claim) else f"volume {choice.volume} is no longer available"


def _can_be_bound(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    reference, meta = volume.spec.claim_ref, claim.metadata
    if reference is None:
        return volume.status.phase == "Available"
    return (reference.namespace, reference.name) == (meta.namespace, meta.name) and reference.uid in ("", meta.uid)


def claim_fault(claim: PersistentVolumeClaim) -> str | None:
    """Return what is invalid in a claim, or None."""
    try:
        size_of(claim.spec.resources.requests)
        LabelSelector.compile(claim.spec.selector)
    except (QuantityError, SelectorError) as error:
        return str(error)
    return None


def _volume_limit(capacity: CSIStorageCapacity) -> int:
    """Return the size in bytes of the largest volume that can be provisioned, or -1 if unknown."""
    limit: Any = capacity.capacity if capacity.maximum_volume_size is None else capacity.maximum_volume_size
    if limit is None:
        return -1
    try:
        return parse_units(limit)
    except QuantityError:
        return -1  # the API server refuses such a value, so this is rare


class Attachments:
    """The CSI volumes that pods on each node use. A volume shared by several pods of a node counts once."""

    def __init__(self, session: Session, storage: Storage) -> None:
        self._storage = storage
        self._nodes = len(session.nodes)
        self._users: dict[Attachment, dict[int, int]] = {}
        self._counts: dict[str, Ints] = {}
        tasks = session.snapshot.tasks
        flags = session.snapshot.shape_columns.flags(has_claims)
        placed = tasks.placed & flags[tasks.shape]
        for row in np.flatnonzero(placed).tolist():
            self._change(storage.wanted_by(cast(Pod, tasks.pods[row])), int(tasks.node[row]), 1)

    def add(self, task: Task, row: int) -> None:
        """Count the volumes of a task that was placed."""
        self._change(self._storage.wanted(task), row, 1)

    def remove(self, task: Task, row: int) -> None:
        """Stop counting the volumes of a task that was removed."""
        self._change(self._storage.wanted(task), row, -1)

    def nodes_with(self, attachment: Attachment) -> npt.NDArray[np.intp]:
        """Return the rows of the nodes that use a volume already."""
        return np.fromiter(sorted(self._users.get(attachment, ())), np.intp)

    def count(self, driver: str) -> Ints:
        """Return the number of a driver's volumes per node. Read-only."""
        counts = self._counts.get(driver)
        if counts is None:
            counts = self._counts[driver] = np.zeros(self._nodes, np.int64)
        return counts

    def _change(self, wanted: ClaimsByBinding, row: int, sign: int) -> None:
        for attachment in wanted.attachments:
            users = self._users.setdefault(attachment, {})
            before = users.pop(row, 0)
            after = before + sign
            if after:
                users[row] = after
            self.count(attachment.driver)[row] += (after > 0) - (before > 0)

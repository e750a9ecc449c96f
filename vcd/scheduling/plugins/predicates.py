"""predicates: filter the nodes that may take a pod (docs/semantics/plugins.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vcd.model.events import VolumeChoice
from vcd.model.reasons import Reason
from vcd.model.status import TaskStatus
from vcd.scheduling.framework.arguments import Argument
from vcd.scheduling.framework.pod_index_updates import FollowsPods
from vcd.scheduling.search.parts import Predicate
from vcd.scheduling.search.predicates.affinity_predicate import InterPodAffinity
from vcd.scheduling.search.predicates.claims import Attachments, Storage, has_claims
from vcd.scheduling.search.predicates.node_predicates import (
    NodeAffinity,
    NodeUnschedulable,
    PodCount,
    TaintToleration,
    affinity_refusal,
    tolerations_refusal,
)
from vcd.scheduling.search.predicates.ports import NodePorts
from vcd.scheduling.search.predicates.proportional import Proportional, Rate
from vcd.scheduling.search.predicates.spread_predicate import PodTopologySpread
from vcd.scheduling.search.predicates.volumes import (
    BoundVolumes,
    NodeVolumeLimits,
    UnboundClaims,
    VolumeZone,
    binding_refusal,
    limits_refusal,
    zone_refusal,
)
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.records import Shape

_CORES = "predicate.resources.<resource>.cpu"
_GIGABYTES = "predicate.resources.<resource>.memory"


_NO_CLAIMS = "ResourceClaims are not supported; pods that have one wait"
_NO_SHAPE = "kube-scheduler's score for volumes is off by default, too"


def _switch(name: str, default: bool, doc: str, without_effect: str = "") -> Argument:
    return Argument(f"predicate.{name}", "bool", default, doc, without_effect=without_effect)


class PredicatesPlugin(FollowsPods):
    """Filter nodes by kube-scheduler's predicates.

    Always active: a node takes at most its allocatable ``pods``, and it is not cordoned, unless the pod tolerates the
    taint ``node.kubernetes.io/unschedulable``. Active by default, with a switch each: node selector and required node
    affinity, taints, host ports, required pod affinity and anti-affinity, volume limits, volume zones, hard topology
    spread, and volume binding. Inactive by default: cpu and memory reserved for idle units of scarce resources.

    A pod is refused before any node is considered if one of its claims is missing, lost, being deleted, or should have
    been bound already; the reason names the claim. Node conditions are ignored, because the node controller converts
    them to taints. Source: Volcano ``plugins/predicates``, kube-scheduler 1.36's filters of the same names.
    """

    name = "predicates"
    without_it = "pods are bound whatever their selectors, affinity and tolerations are"
    bind_timeout = "volumebinding.bindTimeoutSeconds"
    kinds = (
        "CSIDriver",
        "CSINode",
        "CSIStorageCapacity",
        "Namespace",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "StorageClass",
    )
    keys = (
        "pv.kubernetes.io/bind-completed",
        "volume.beta.kubernetes.io/storage-class",
        "volume.kubernetes.io/selected-node",
    )
    arguments = (
        _switch("NodeAffinityEnable", True, "Whether nodes must match node selector and required node affinity."),
        _switch("NodePortsEnable", True, "Whether the pod's host ports must be free on the node."),
        _switch("TaintTolerationEnable", True, "Whether the pod must tolerate the node's hard taints."),
        _switch("PodAffinityEnable", True, "Whether required pod affinity and anti-affinity must hold."),
        _switch("NodeVolumeLimitsEnable", True, "Whether the limits of CSINode for attached volumes must hold."),
        _switch("VolumeZoneEnable", True, "Whether nodes must be in the zones of the pod's volumes."),
        _switch("PodTopologySpreadEnable", True, "Whether hard topology spread constraints must hold."),
        _switch("VolumeBindingEnable", True, "Whether nodes must reach, or find, volumes for the pod's claims."),
        _switch(
            "CacheEnable",
            False,
            "Whether results are cached for pods of one role.",
            "results are always cached until something that they depend on changes",
        ),
        _switch("ProportionalEnable", False, "Whether cpu and memory are reserved for idle units of scarce resources."),
        Argument("predicate.resources", "strings", (), "The scarce resources of ProportionalEnable."),
        Argument(_CORES, "float", 1.0, "Cores reserved for an idle unit of the resource; below 0 it means 1."),
        Argument(_GIGABYTES, "float", 1.0, "Gigabytes reserved for an idle unit of the resource; below 0 it means 1."),
        _switch(
            "DynamicResourceAllocationEnable",
            False,
            "Whether nodes must have devices for the pod's ResourceClaims.",
            _NO_CLAIMS,
        ),
        _switch("GPUSharingEnable", False, "Whether pods share GPUs.", "the plugin deviceshare handles shared GPUs"),
        _switch("GPUNumberEnable", False, "Whether pods get whole GPUs.", "the plugin deviceshare handles whole GPUs"),
        Argument(
            "volumebinding.bindTimeoutSeconds",
            "int",
            600,
            "Seconds that binding a pod's volumes may take; read when the program starts.",
            minimum=1,
        ),
        Argument("volumebinding.weight", "int", 1, "Weight of nodes whose volumes fit best.", without_effect=_NO_SHAPE),
        Argument(
            "volumebinding.shape",
            "list",
            (),
            "Points by the utilization of a volume.",
            fields=(
                Argument("utilization", "int", 0, "Percent of the volume.", minimum=0, maximum=100),
                Argument("score", "int", 0, "Points.", minimum=0, maximum=10),
            ),
            without_effect=_NO_SHAPE,
        ),
        Argument(
            "dynamicresources.filterTimeoutSeconds",
            "int",
            10,
            "The longest time to find devices.",
            without_effect=_NO_CLAIMS,
        ),
    )

    def open(self, session: Session) -> None:
        """Track the positions of pods if a filter needs them, and volumes if a pending pod has some."""
        self._session = session
        self._readable: dict[Shape, Reason | None] = {}
        self._affinity = InterPodAffinity(session) if self.is_on("PodAffinity") else None
        self._spread = PodTopologySpread(session) if self.is_on("PodTopologySpread") else None
        if self._affinity is not None or self._spread is not None or self.is_on("NodePorts"):
            self.follow_pods(session)
        self._storage: Storage | None = None
        self._attachments: Attachments | None = None
        tasks = session.snapshot.tasks
        pending = tasks.shape[tasks.status == TaskStatus.PENDING]
        if session.snapshot.shape_columns.flags(has_claims)[pending].any():
            self._storage = session.provided(Storage, lambda: Storage(session))
            if self.is_on("NodeVolumeLimits") and self._storage.nodes:
                self._attachments = Attachments(session, self._storage)

    def is_on(self, name: str) -> bool:
        """Return whether ``predicate.<name>Enable`` is true."""
        return bool(self.values[f"predicate.{name}Enable"])

    def predicates(self) -> Iterable[Predicate]:
        """Return the active filters, in Volcano's order: those of fixed node properties first."""
        session, storage, attachments = self._session, self._storage, self._attachments
        yield PodCount(session)
        unschedulable, taints = NodeUnschedulable(session), TaintToleration(session)
        if unschedulable.has_effect:
            yield unschedulable
        if self.is_on("NodeAffinity"):
            yield NodeAffinity(session)
        if self.is_on("TaintToleration") and taints.has_effect:
            yield taints
        if self.is_on("NodePorts"):
            yield NodePorts(session)
        if self._affinity is not None:
            yield self._affinity
        if storage is not None and attachments is not None:
            yield NodeVolumeLimits(session, storage, attachments)
        if storage is not None and self.is_on("VolumeZone"):
            yield VolumeZone(session, storage)
        if self._spread is not None:
            yield self._spread
        if storage is not None and self.is_on("VolumeBinding"):
            yield BoundVolumes(storage)
            yield UnboundClaims(storage)
        if self.is_on("Proportional"):
            yield Proportional(session, self._rates())

    def _rates(self) -> dict[str, Rate]:
        names: Sequence[str] = self.values["predicate.resources"]
        cores, gigabytes = self.values.matching(_CORES), self.values.matching(_GIGABYTES)
        return {name: Rate.of(cores.get(name), gigabytes.get(name)) for name in names}

    def pre_predicate(self, task: Task) -> Reason | None:
        """Return a reason if no node at all can take the pod."""
        spec = task.shape.spec
        reason = None
        if spec.tolerations or spec.affinity is not None:
            reason = self._unreadable(task.shape)
        if reason is None and self._affinity is not None and spec.affinity is not None:
            reason = self._affinity.refusal(task)
        if reason is None and self._spread is not None and spec.topology_spread_constraints:
            reason = self._spread.refusal(task)
        if reason is not None:
            return reason
        if self._storage is None or not spec.volumes:
            return None
        return self._volume_refusal(self._storage, task)

    def _unreadable(self, shape: Shape) -> Reason | None:
        """Return why a shape's tolerations or node affinity exclude all nodes, computed once per shape."""
        if shape not in self._readable:
            reason = tolerations_refusal(shape.spec)
            if reason is None and self.is_on("NodeAffinity"):
                reason = affinity_refusal(shape.spec)
            self._readable[shape] = reason
        return self._readable[shape]

    def _volume_refusal(self, storage: Storage, task: Task) -> Reason | None:
        tests = {"VolumeBinding": binding_refusal, "VolumeZone": zone_refusal, "NodeVolumeLimits": limits_refusal}
        found = (refusal_of(storage, task) for name, refusal_of in tests.items() if self.is_on(name))
        return next((refusal for refusal in found if refusal is not None), None)

    def pre_bind(self, task: Task, row: int) -> Iterable[VolumeChoice]:
        """Return the volumes chosen on the node for the task's unbound claims."""
        return () if self._storage is None else self._storage.reserved(task)

    def on_allocate(self, tasks: list[Task], rows: list[int]) -> None:
        """Record placed or pipelined tasks and their volumes on the nodes."""
        super().on_allocate(tasks, rows)
        for task, row in zip(tasks, rows, strict=True) if tasks[0].shape.spec.volumes else ():
            if self._attachments is not None:
                self._attachments.add(task, row)
            if self._storage is not None and self.is_on("VolumeBinding"):
                self._storage.reserve(task, row)

    def on_deallocate(self, tasks: list[Task], rows: list[int]) -> None:
        """Remove tasks from the nodes."""
        super().on_deallocate(tasks, rows)
        for task, row in zip(tasks, rows, strict=True) if tasks[0].shape.spec.volumes else ():
            if self._attachments is not None:
                self._attachments.remove(task, row)
            if self._storage is not None and self.is_on("VolumeBinding"):
                self._storage.unreserve(task)

"""The cluster's objects as a scheduler sees them: typed, frozen, projected.

Decoding a manifest or a watch line into these types *is* the projection of docs/laws.md: what no field here names
(environment, commands, arguments, managed fields, secrets) never enters the program. Field names are the API's own in
snake case.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import msgspec

from vcd.model.controllers import GROUP_NAME
from vcd.model.selectors import (
    Int32,
    Int64,
    LabelSelector,
    NodeSelector,
    PreferredSchedulingTerm,
    Taint,
    Toleration,
)

Quantities = dict[str, str | int | float]


class Projected(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Base of all projected types: camel case in JSON, defaults left out."""


T = TypeVar("T", bound=Projected)


def altered(obj: T, **fields: Any) -> T:
    """Return the object with changed fields. A dict for a part such as ``spec`` holds that part's changed fields."""
    for name, value in fields.items():
        part = getattr(obj, name)
        if isinstance(part, msgspec.Struct) and isinstance(value, dict):
            fields[name] = msgspec.structs.replace(part, **value)
    return msgspec.structs.replace(obj, **fields)


class OwnerReference(Projected, frozen=True):
    """The owner of an object; the controller's reference has ``controller`` set."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool = False


class ObjectMeta(Projected, frozen=True):
    """Metadata common to all kinds; times are RFC 3339 texts as the API server wrote them."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    deletion_grace_period_seconds: Int64 | None = None


class Object(Projected, frozen=True):
    """Any object: its metadata."""

    metadata: ObjectMeta = ObjectMeta()

    whole: ClassVar[bool] = True
    """Whether labels, annotations, owners and times are stored; False if nothing reads them."""

    @property
    def key(self) -> str:
        """``namespace/name``, or ``name`` for objects without a namespace."""
        meta = self.metadata
        return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


class Condition(Projected, frozen=True):
    """One condition of an object's status."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    transition_id: str = msgspec.field(name="transitionID", default="")


# --- pods ---------------------------------------------------------------------------------------------------------


class ResourceRequirements(Projected, frozen=True):
    """Requests and limits by resource name, as written."""

    requests: Quantities = {}
    limits: Quantities = {}


class ContainerPort(Projected, frozen=True):
    """A port of a container; only host ports matter to a scheduler."""

    container_port: Int32 = 0
    host_port: Int32 = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = "TCP"


class Container(Projected, frozen=True):
    """The part of a container that matters to a scheduler."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""


class PodAffinityTerm(Projected, frozen=True):
    """A term of pod affinity or anti-affinity."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Projected, frozen=True):
    """A preferred term and its weight, 1 to 100."""

    weight: Int32 = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Projected, frozen=True):
    """Required and preferred terms, for both affinity and anti-affinity."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=()
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class NodeAffinity(Projected, frozen=True):
    """Required and preferred node terms."""

    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: tuple[PreferredSchedulingTerm, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class Affinity(Projected, frozen=True):
    """The three affinities of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Projected, frozen=True):
    """How evenly pods must, or should, spread over the domains of a topology key."""

    max_skew: Int32 = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class ClaimVolumeSource(Projected, frozen=True):
    """A volume that names a claim."""

    claim_name: str = ""
    read_only: bool = False


class EphemeralVolumeSource(Projected, frozen=True):
    """A volume whose claim is created for the pod, named ``<pod>-<volume>``."""


class CsiVolume(Projected, frozen=True):
    """A volume of a CSI driver, and its handle unless it is inline."""

    driver: str = ""
    volume_handle: str = ""


class DiskSource(Projected, frozen=True):
    """A disk attached directly: only its identity matters, for conflicts and limits."""

    volume_id: str = msgspec.field(name="volumeID", default="")
    pd_name: str = ""
    disk_name: str = ""
    disk_uri: str = msgspec.field(name="diskURI", default="")
    read_only: bool = False


class Volume(Projected, frozen=True):
    """A volume of a pod, as far as it restricts the pod to nodes."""

    name: str = ""
    persistent_volume_claim: ClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    csi: CsiVolume | None = None
    gce_persistent_disk: DiskSource | None = msgspec.field(name="gcePersistentDisk", default=None)
    aws_elastic_block_store: DiskSource | None = msgspec.field(name="awsElasticBlockStore", default=None)
    azure_disk: DiskSource | None = None

    @property
    def binds(self) -> bool:
        """Whether it may restrict its pod to nodes. Most do not, such as tokens, whose names differ by pod."""
        return self != Volume(self.name)


class Named(Projected, frozen=True):
    """An object of which only existence matters: scheduling gate, resource claim (DRA), Workload (Kubernetes gangs)."""

    name: str = ""


class PodSchedulingGroup(Projected, frozen=True):
    """The Kubernetes PodGroup of a pod (1.36), not Volcano's."""

    pod_group_name: str = ""


class PodSpec(Projected, frozen=True):
    """The scheduling-relevant part of a pod's spec."""

    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Quantities = {}
    resources: ResourceRequirements | None = None
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    volumes: tuple[Volume, ...] = ()
    scheduling_gates: tuple[Named, ...] = ()
    resource_claims: tuple[Named, ...] = ()
    workload_ref: Named | None = None
    scheduling_group: PodSchedulingGroup | None = None
    host_network: bool = False
    termination_grace_period_seconds: Int64 | None = None
    active_deadline_seconds: Int64 | None = None


class ContainerStatus(Projected, frozen=True):
    """What the kubelet admitted for a container (``allocated_resources``) and what it runs with (``resources``)."""

    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: Quantities = {}


class PodStatus(Projected, frozen=True):
    """A pod's phase and conditions. Statuses of containers are only stored during an in-place resize."""

    phase: str = ""
    reason: str = ""
    nominated_node_name: str = ""
    start_time: str | None = None
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resources: ResourceRequirements | None = None
    allocated_resources: Quantities | None = None


class Pod(Object, frozen=True):
    """A pod (core/v1)."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def group_key(self) -> str:
        """The key of the group named by the pod's annotation, or ""."""
        name = self.metadata.annotations.get(GROUP_NAME)
        return f"{self.metadata.namespace}/{name}" if name else ""


# --- nodes --------------------------------------------------------------------------------------------------------


class NodeSpec(Projected, frozen=True):
    """A node's taints and its cordon."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = msgspec.field(name="providerID", default="")


class ContainerImage(Projected, frozen=True):
    """An image on a node: its names and size in bytes."""

    names: tuple[str, ...] = ()
    size_bytes: Int64 = 0


class NodeStatus(Projected, frozen=True):
    """A node's capacity, conditions and images."""

    capacity: Quantities = {}
    allocatable: Quantities = {}
    conditions: tuple[Condition, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    phase: str = ""


class Node(Object, frozen=True):
    """A node (core/v1)."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(Object, frozen=True):
    """A namespace: its labels select it in pod affinity."""


# --- Volcano ------------------------------------------------------------------------------------------------------


class NetworkTopology(Projected, frozen=True):
    """How close to each other pods request to be."""

    mode: str = ""
    highest_tier_allowed: Int32 | None = None
    highest_tier_name: str = ""


class SubGroupPolicy(Projected, frozen=True):
    """Which pods of a group form a sub-group: matching pods with the same values of ``match_label_keys``."""

    name: str = ""
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    sub_group_size: Int32 = 1
    min_sub_groups: Int32 = 0
    network_topology: NetworkTopology | None = None


class PodGroupSpec(Projected, frozen=True):
    """The spec of a group (scheduling.volcano.sh/v1beta1)."""

    min_member: Int32 = 0
    min_task_member: dict[str, Int32] = {}
    queue: str = ""
    priority_class_name: str = ""
    min_resources: Quantities | None = None
    network_topology: NetworkTopology | None = None
    sub_group_policy: tuple[SubGroupPolicy, ...] = ()


class PodGroupStatus(Projected, frozen=True):
    """The status of a group: phase, conditions, counts of its pods."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    running: Int32 = 0
    succeeded: Int32 = 0
    failed: Int32 = 0


class PodGroup(Object, frozen=True):
    """A group of pods that are scheduled together (scheduling.volcano.sh/v1beta1)."""

    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class Guarantee(Projected, frozen=True):
    """Resources reserved for a queue even while it does not use them."""

    resource: Quantities = {}


class NodeGroupTerms(Projected, frozen=True):
    """Names of node groups, required and preferred."""

    required: tuple[str, ...] = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=())
    preferred: tuple[str, ...] = msgspec.field(name="preferredDuringSchedulingIgnoredDuringExecution", default=())


class QueueAffinity(Projected, frozen=True):
    """A queue's affinity to node groups."""

    node_group_affinity: NodeGroupTerms | None = None
    node_group_anti_affinity: NodeGroupTerms | None = None


class Cluster(Projected, frozen=True):
    """Another cluster that may run a queue's jobs."""

    name: str = ""
    weight: Int32 = 0
    capacity: Quantities = {}


class QueueSpec(Projected, frozen=True):
    """The limits and shares of a queue (scheduling.volcano.sh/v1beta1)."""

    weight: Int32 = 0
    capability: Quantities = {}
    deserved: Quantities = {}
    guarantee: Guarantee = Guarantee()
    reclaimable: bool | None = None
    parent: str = ""
    priority: Int32 = 0
    affinity: QueueAffinity | None = None
    type: str = ""
    dequeue_strategy: str = ""
    extend_clusters: tuple[Cluster, ...] = ()


class QueueStatus(Projected, frozen=True):
    """A queue's state and what it has allocated."""

    state: str = ""
    allocated: Quantities = {}


ROOT_QUEUE = "root"
"""The queue above all others; vc-scheduler creates it when it starts."""


class Queue(Object, frozen=True):
    """A queue that groups are submitted to."""

    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()

    @property
    def is_open(self) -> bool:
        """Whether it admits new work; a queue without a state is open."""
        return self.status.state in ("", "Open")

    @property
    def parent(self) -> str:
        """The name of the queue above it: the root if it names none."""
        return self.spec.parent or ROOT_QUEUE


class PriorityClass(Object, frozen=True):
    """A named priority (scheduling.k8s.io/v1)."""

    value: Int32 = 0
    global_default: bool = False
    preemption_policy: str | None = None


# --- quotas and budgets -------------------------------------------------------------------------------------------


class ScopeRequirement(Projected, frozen=True):
    """One scope of a quota; operator In, NotIn, Exists or DoesNotExist."""

    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class ScopeSelector(Projected, frozen=True):
    """Scopes of a quota, ANDed."""

    match_expressions: tuple[ScopeRequirement, ...] = ()


class ResourceQuotaSpec(Projected, frozen=True):
    """Hard limits of a namespace, and the scopes that select the pods that count; all scopes must match."""

    hard: Quantities = {}
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(Projected, frozen=True):
    """How much of the limits is used."""

    hard: Quantities = {}
    used: Quantities = {}


class ResourceQuota(Object, frozen=True):
    """A namespace's quota (core/v1)."""

    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class SelectingSpec(Projected, frozen=True):
    """The selector of an object's pods."""

    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(Projected, frozen=True):
    """How many disruptions a budget still allows."""

    disruptions_allowed: Int32 = 0
    disrupted_pods: dict[str, str] = {}


class PodDisruptionBudget(Object, frozen=True):
    """A disruption budget (policy/v1)."""

    spec: SelectingSpec = SelectingSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


# --- workloads ----------------------------------------------------------------------------------------------------


class Slim(Object, frozen=True):
    """An object whose labels, annotations and owners are not stored."""

    whole: ClassVar[bool] = False


class ReplicaSet(Slim, frozen=True):
    """The pods of a ReplicaSet (apps/v1)."""

    spec: SelectingSpec = SelectingSpec()


class StatefulSet(Slim, frozen=True):
    """The pods of a StatefulSet (apps/v1)."""

    spec: SelectingSpec = SelectingSpec()


class LabelsSpec(Projected, frozen=True):
    """The labels of an object's pods; None selects nothing."""

    selector: dict[str, str] | None = None


class Service(Slim, frozen=True):
    """The pods behind a Service (core/v1)."""

    spec: LabelsSpec = LabelsSpec()


class ReplicationController(Slim, frozen=True):
    """The pods of a ReplicationController (core/v1)."""

    spec: LabelsSpec = LabelsSpec()


# --- storage ------------------------------------------------------------------------------------------------------


class ObjectReference(Projected, frozen=True):
    """A reference to an object in a namespace."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class PersistentVolumeClaimSpec(Projected, frozen=True):
    """The spec of a claim."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    selector: LabelSelector | None = None
    resources: ResourceRequirements = ResourceRequirements()


class PhaseStatus(Projected, frozen=True):
    """A status of which only the phase matters."""

    phase: str = ""


class PersistentVolumeClaim(Object, frozen=True):
    """A claim (core/v1)."""

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PhaseStatus = PhaseStatus()


class VolumeNodeAffinity(Projected, frozen=True):
    """The nodes that can reach a volume."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(Projected, frozen=True):
    """A volume's size, modes and location."""

    capacity: Quantities = {}
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    storage_class_name: str = ""
    claim_ref: ObjectReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiVolume | None = None
    gce_persistent_disk: DiskSource | None = msgspec.field(name="gcePersistentDisk", default=None)
    aws_elastic_block_store: DiskSource | None = msgspec.field(name="awsElasticBlockStore", default=None)
    azure_disk: DiskSource | None = None


class PersistentVolume(Object, frozen=True):
    """A volume (core/v1)."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PhaseStatus = PhaseStatus()


class TopologySelectorRequirement(Projected, frozen=True):
    """One key and its allowed values."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(Projected, frozen=True):
    """Requirements that must all hold."""

    match_label_expressions: tuple[TopologySelectorRequirement, ...] = ()


class StorageClass(Object, frozen=True):
    """A class of storage (storage.k8s.io/v1)."""

    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class VolumeNodeResources(Projected, frozen=True):
    """The maximum number of a driver's volumes on a node."""

    count: Int32 | None = None


class CSINodeDriver(Projected, frozen=True):
    """A CSI driver on a node."""

    name: str = ""
    node_id: str = msgspec.field(name="nodeID", default="")
    allocatable: VolumeNodeResources | None = None
    topology_keys: tuple[str, ...] = ()


class CSINodeSpec(Projected, frozen=True):
    """The CSI drivers of a node."""

    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(Object, frozen=True):
    """The CSI drivers on a node (storage.k8s.io/v1)."""

    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(Projected, frozen=True):
    """The declarations of a driver."""

    storage_capacity: bool = False
    attach_required: bool = True


class CSIDriver(Object, frozen=True):
    """A CSI driver (storage.k8s.io/v1)."""

    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Object, frozen=True):
    """Capacity of a driver for new volumes of a class, in a topology (storage.k8s.io/v1)."""

    storage_class_name: str = ""
    capacity: str | int | None = None
    maximum_volume_size: str | int | None = None
    node_topology: LabelSelector | None = None


# --- NUMA ---------------------------------------------------------------------------------------------------------


class CpuPlace(Projected, frozen=True):
    """The position of a CPU: numbers of its NUMA node, socket and core; cores are numbered within their socket."""

    numa: Int32 = 0
    socket: Int32 = 0
    core: Int32 = 0


class NumaResource(Projected, frozen=True):
    """Units of a resource that are free for exclusive use, as a list of numbers such as ``0-3,8``."""

    allocatable: str = ""


class NumaPodAllocation(Projected, frozen=True):
    """A pod to which the kubelet assigned units exclusively."""

    uid: str = ""
    name: str = ""
    namespace: str = ""


class NumatopologySpec(Projected, frozen=True):
    """A node's CPUs, the kubelet's policies by name, and what it reserves and assigned."""

    policies: dict[str, str] = {}
    res_reserved: dict[str, str] = {}
    numares: dict[str, NumaResource] = {}
    cpu_detail: dict[str, CpuPlace] = {}
    pod_allocations: tuple[NumaPodAllocation, ...] = ()


class Numatopology(Object, frozen=True):
    """The NUMA topology of the node of the same name (nodeinfo.volcano.sh/v1alpha1)."""

    spec: NumatopologySpec = NumatopologySpec()


# --- network topology -----------------------------------------------------------------------------------------------


class ExactMatch(Projected, frozen=True):
    """A member by its name."""

    name: str = ""


class RegexMatch(Projected, frozen=True):
    """Members by a regular expression that some part of their names matches."""

    pattern: str = ""


class MemberSelector(Projected, frozen=True):
    """The selector of a HyperNode's member; exactly one of the fields is set."""

    exact_match: ExactMatch | None = None
    regex_match: RegexMatch | None = None
    label_match: LabelSelector | None = None


class HyperNodeMember(Projected, frozen=True):
    """Nodes, or another HyperNode, that belong to a HyperNode; ``type`` is Node or HyperNode."""

    type: str = ""
    selector: MemberSelector = MemberSelector()


class HyperNodeSpec(Projected, frozen=True):
    """The tier of a HyperNode (nodes within a lower tier are closer to each other), and its members."""

    tier: Int32 = 0
    tier_name: str = ""
    members: tuple[HyperNodeMember, ...] = ()


class HyperNode(Object, frozen=True):
    """A part of the network (topology.volcano.sh/v1alpha1)."""

    spec: HyperNodeSpec = HyperNodeSpec()

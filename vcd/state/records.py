"""Objects with values that are computed from them once: the immutable side of the state's rows.

Invalid objects raise BadObject or QuantityError here, so that no record with an unreadable field enters the state.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from vcd.model.events import VolumeChoice
from vcd.model.objects import Node, Pod, PodGroup, PodGroupSpec, PodSpec, Queue
from vcd.model.projection_codec import BadObject, group_head
from vcd.model.quantity import QuantityError
from vcd.model.resource_requests import (
    LARGEST_SUM,
    is_best_effort,
    node_allocatable,
    pod_requests,
    resource_values,
    score_requests,
    within_bounds,
)
from vcd.model.status import Phase, TaskStatus, phase_of
from vcd.model.term_counts import MOST, share_equal_parts, terms_in_affinity, terms_in_spread, terms_in_sub_groups
from vcd.model.unsupported import demands, wishes

TASK_SPEC = "volcano.sh/task-spec"
TASK_PRIORITY = "volcano.sh/task-priority"
PREEMPTABLE = "volcano.sh/preemptable"
ZONE, ANY_ZONE = "volcano.sh/revocable-zone", "*"
QUEUE_NAMES = ("volcano.sh/queue-name", "scheduling.volcano.sh/queue-name")
"""Annotations or labels by which a pod names its queue: the Job controller sets the first, users set the second."""
QUEUE_ADMISSION_GATE = "scheduling.volcano.sh/queue-allocation-gate"

REPEATING_ACTIONS = ("shuffle", "release")
"""Actions that may evict a pod's replacement again: they limit their evictions by time."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_DIGITS = 18
"""A number with more digits is no index: Volcano parses it into 64 bits."""
TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})


_encode = msgspec.msgpack.Encoder(order="deterministic").encode


MOST_RESOURCES = 1000
"""Maximum number of resources in minResources. More would slow down sessions, and no cluster offers as many."""


def encoded_spec(spec: PodGroupSpec) -> bytes:
    """Return bytes that differ for specs that are not equal."""
    return _encode(spec)


def spec_key(spec: PodSpec) -> bytes:
    """Return 256 bits that differ for specs that are not equal: the encoded spec itself can be large."""
    return hashlib.blake2b(_encode(spec), digest_size=32).digest()


@functools.lru_cache(maxsize=1024)  # the pods of a job are created within seconds
def seconds_of(time: str | None) -> int:
    """Parse an RFC 3339 time into seconds since the epoch; 0 (before all others) if there is none.

    A time without a zone is UTC, whatever the machine's zone. Raises ValueError for an invalid time.
    """
    if not time:
        return 0
    moment = datetime.fromisoformat(time)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


_TERMS_A_KIND = 4
"""This many terms and requirements take about as long as one more kind of pods."""


class Shape(msgspec.Struct, frozen=True, eq=False):
    """All that scheduling reads from a pod's spec; tasks with equal specs and equal quantities share one.

    ``requests`` by resource name (units of ``vcd.model.resource_requests``). ``scored``: cpu and memory as scores count
    them. ``unsupported``: the fields for which its tasks have to wait (``vcd.model.unsupported``).
    """

    spec: PodSpec
    requests: dict[str, int]
    scored: tuple[int, int]
    best_effort: bool
    unsupported: tuple[str, ...] = ()

    @property
    def weight(self) -> int:
        """How many kinds it counts as for the limit of kinds per session: more if it has many terms."""
        terms = 0 if self.unsupported else terms_in_affinity(self.spec) + terms_in_spread(self.spec)
        return 1 + terms // _TERMS_A_KIND

    @classmethod
    def of(cls, spec: PodSpec, counted: PodSpec | None = None) -> Shape:
        """Return the shape of a spec without node name. Raises QuantityError.

        ``counted`` is the spec that quantities are taken from, if it differs from ``spec``
        (``resource_requests.counted_spec``).
        """
        share_equal_parts(spec)
        counted = spec if counted is None else counted
        requests = pod_requests(counted)
        return cls(spec, requests, score_requests(counted), is_best_effort(requests), demands("Pod", spec))


class NodeRecord(msgspec.Struct, frozen=True, eq=False):
    """A node, and what pods may use of it."""

    node: Node
    allocatable: dict[str, int]

    def offers_other_than(self, other: NodeRecord) -> bool:
        """Whether tasks may find other conditions than on ``other``: allocatable, labels, taints, cordon."""
        return (self.allocatable, self.node.spec, self.node.metadata.labels) != (
            other.allocatable,
            other.node.spec,
            other.node.metadata.labels,
        )

    @classmethod
    def of(cls, node: Node) -> NodeRecord:
        """Build a record. Raises BadObject for an invalid quantity."""
        try:
            return cls(node, node_allocatable(node))
        except QuantityError as error:
            raise BadObject("Node", node.key, f"status.allocatable: {error}") from error


class GroupRecord(msgspec.Struct, frozen=True, eq=False):
    """A PodGroup and its minimum resources (None if the group has none).

    ``unsupported`` are the fields for which its pods have to wait; ``passed_over`` are other unsupported fields.
    """

    group: PodGroup
    min_resources: dict[str, int] | None
    created: int
    phase: Phase
    unsupported: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()

    @classmethod
    def of(cls, group: PodGroup) -> GroupRecord:
        """Build a record. Raises BadObject for an invalid quantity or time."""
        created, spec = _age_and_spec(group, group.metadata.creation_timestamp, encoded_spec(group.spec))
        return cls(group, spec.minimum, created, phase_of(group.status.phase), spec.unsupported, spec.passed_over)


class _GroupSpec(NamedTuple):
    """What is computed from a PodGroup's spec: its queue, and fields as in ``GroupRecord``."""

    queue: str
    minimum: dict[str, int] | None
    unsupported: tuple[str, ...]
    passed_over: tuple[str, ...]


@functools.lru_cache(maxsize=4096)  # groups of one workload have equal specs
def _group_spec(encoded: bytes) -> _GroupSpec:
    """Decode a spec; the result is shared and must not be changed.

    Raises ValueError with the field.
    """
    spec = msgspec.msgpack.decode(encoded, type=PodGroupSpec)
    if (number := terms_in_sub_groups(spec)) > MOST:
        what = "policies, keys and requirements"
        raise ValueError(f"spec.subGroupPolicy: {number:,} {what} are more than the limit of {MOST:,}")
    minimum = None
    if spec.min_resources is not None:
        if (number := len(spec.min_resources)) > MOST_RESOURCES:
            raise ValueError(f"spec.minResources: {number:,} resources are more than the limit of {MOST_RESOURCES:,}")
        try:
            minimum = within_bounds(resource_values(spec.min_resources))
        except ValueError as error:
            raise ValueError(f"spec.minResources: {error}") from error
    return _GroupSpec(spec.queue, minimum, demands("PodGroup", spec), wishes("PodGroup", spec))


def _age_and_spec(group: PodGroup | None, created: str | None, encoded: bytes) -> tuple[int, _GroupSpec]:
    field = "metadata.creationTimestamp: "
    try:
        age = seconds_of(created)
        field = ""
        return age, _group_spec(encoded)
    except ValueError as error:
        raise BadObject("PodGroup", "" if group is None else group.key, f"{field}{error}") from error


def readable_group_queue(payload: bytes) -> str:
    """Return the queue that a PodGroup's payload names, or "". Raises BadObject if the object is invalid."""
    head = group_head(payload)
    return _age_and_spec(None, head.metadata.creation_timestamp, bytes(head.spec))[1].queue


class QueueRecord(msgspec.Struct, frozen=True, eq=False):
    """A queue and its quantities by resource name; ``passed_over`` are unsupported fields."""

    queue: Queue
    capability: dict[str, int]
    deserved: dict[str, int]
    guarantee: dict[str, int]
    created: int
    passed_over: tuple[str, ...] = ()

    def is_other_than(self, queue: Queue) -> bool:
        """Whether a queue's limits may differ: its spec, or annotations (quotas, limits, weights), changed."""
        return queue.spec != self.queue.spec or _volcano_annotations(queue) != _volcano_annotations(self.queue)

    @classmethod
    def of(cls, queue: Queue) -> QueueRecord:
        """Build a record. Raises BadObject naming the invalid field."""
        spec = queue.spec
        parsed = []
        for name, quantities in (
            ("capability", spec.capability),
            ("deserved", spec.deserved),
            ("guarantee.resource", spec.guarantee.resource),
        ):
            try:
                values = resource_values(quantities)
            except QuantityError as error:
                raise BadObject("Queue", queue.key, f"spec.{name}: {error}") from error
            parsed.append({resource: min(value, LARGEST_SUM) for resource, value in values.items()})
        try:
            created = seconds_of(queue.metadata.creation_timestamp)
        except ValueError as error:
            raise BadObject("Queue", queue.key, f"metadata.creationTimestamp: {error}") from error
        return cls(queue, parsed[0], parsed[1], parsed[2], created, wishes("Queue", spec))


def _volcano_annotations(queue: Queue) -> dict[str, str]:
    """Return the annotations of a queue that plugins read."""
    return {name: text for name, text in queue.metadata.annotations.items() if "volcano.sh/" in name}


def task_status(pod: Pod, node_name: str) -> TaskStatus:
    """Return a pod's status as a task (Volcano ``api/helpers.go`` getTaskStatus)."""
    phase = pod.status.phase or "Pending"
    if phase in ("Running", "Pending") and pod.metadata.deletion_timestamp:
        return TaskStatus.RELEASING
    if phase == "Running":
        return TaskStatus.RUNNING
    if phase == "Pending":
        return TaskStatus.BOUND if node_name else TaskStatus.PENDING
    return {"Succeeded": TaskStatus.SUCCEEDED, "Failed": TaskStatus.FAILED}.get(phase, TaskStatus.UNKNOWN)


def task_priority(pod: Pod) -> int:
    """Return the pod's priority, 1 if it has none; the annotation overrides it (docs/semantics/status.md)."""
    text = pod.metadata.annotations.get(TASK_PRIORITY)
    if text is not None and _INTEGER.fullmatch(text) and -(2**31) <= int(text) < 2**31:
        return int(text)
    return 1 if pod.spec.priority is None else pod.spec.priority


def task_role(pod: Pod) -> str:
    """Return the task of its job that a pod belongs to: annotation first, then label."""
    return pod.metadata.annotations.get(TASK_SPEC) or pod.metadata.labels.get(TASK_SPEC, "")


def index_in_name(name: str) -> int | None:
    """Return the number at the end of a pod's name with three parts or more (Volcano ``CompareTask``)."""
    parts = name.rsplit("-", 2)
    last = parts[-1]
    if len(parts) < 3 or len(last) > _DIGITS or not (last.isascii() and last.isdigit()):
        return None
    return int(last)


def indices_in_names(keys: Sequence[str]) -> list[int] | None:
    """Return ``index_in_name`` of pods by key; None unless every pod has one."""
    ends = [key[key.rfind("-") + 1 :] for key in keys]
    digits = "".join(ends)
    if not (digits.isascii() and digits.isdigit() and all(ends)) or max(map(len, ends)) > _DIGITS:
        return None
    if min([key.count("-", key.find("/")) for key in keys]) < 2:
        return None
    return list(map(int, ends))


def alike_in_order(
    keys: Sequence[str], ages: Sequence[int], uids: Callable[[], Sequence[str]]
) -> list[int] | list[tuple[int, int, str, str]]:
    """Return sort keys for the order of placement of a job's equivalent pods: index in the name, age, UID, key.

    ``keys``, ``ages`` and ``uids`` are lists by pod. Parts that make no difference are left out. Indexes only count if
    every pod has one: mixed, Volcano's comparison is no order.
    """
    indices = indices_in_names(keys)
    if indices is not None and len(set(indices)) == len(indices):
        return indices
    first = list(zip(indices or [0] * len(keys), ages, strict=True))
    last = [""] * len(keys) if len(set(first)) == len(first) else uids()
    return [(index, age, uid, key) for (index, age), uid, key in zip(first, last, keys, strict=True)]


def stated_queue(pod: Pod) -> str:
    """Return the queue that a pod names itself, by an annotation or else a label; empty if there is none."""
    meta = pod.metadata
    return next(
        (marks[name] for marks in (meta.annotations, meta.labels) for name in QUEUE_NAMES if marks.get(name)), ""
    )


SETS_OF_PODS = (("ReplicaSet", "apps/v1"), ("StatefulSet", "apps/v1"), ("ReplicationController", "v1"))
"""Kinds and versions of controllers whose pods are spread by default."""


def set_of(pod: Pod) -> tuple[tuple[str, str], str] | None:
    """Return (kind, version) and name of a pod's controller in ``SETS_OF_PODS``, or None."""
    for owner in pod.metadata.owner_references:
        if owner.controller:
            kind = (owner.kind, owner.api_version)
            return (kind, owner.name) if kind in SETS_OF_PODS else None
    return None


def is_preemptable(obj: Pod | PodGroup, unsaid: bool = True) -> bool:
    """Whether a pod, or a group as a gang, may be evicted: by annotation, else by label, else ``unsaid``."""
    meta = obj.metadata
    text = meta.annotations.get(PREEMPTABLE, meta.labels.get(PREEMPTABLE))
    return unsaid if text is None else text in TRUE


def uses_zones(obj: Pod | PodGroup) -> bool:
    """Whether a pod, or a group's pods, may be placed on nodes of revocable zones."""
    annotations = obj.metadata.annotations
    return annotations.get(ZONE) == ANY_ZONE if ZONE in annotations else annotations.get(PREEMPTABLE) in TRUE


def has_foreign_gate(spec: PodSpec) -> bool:
    """Whether a scheduling gate other than the queue's own holds the pod."""
    gates = spec.scheduling_gates
    return bool(gates) and any(gate.name != QUEUE_ADMISSION_GATE for gate in gates)


def has_queue_gate(spec: PodSpec) -> bool:
    """Whether the queue's own scheduling gate holds the pod."""
    return any(gate.name == QUEUE_ADMISSION_GATE for gate in spec.scheduling_gates)


def has_gate(shape: Shape) -> bool:
    """Whether an unsupported field, or a gate that is not the queue's own, holds tasks of a shape."""
    return bool(shape.unsupported) or has_foreign_gate(shape.spec)


def is_unsupported(shape: Shape) -> bool:
    """Whether an unsupported field holds tasks of a shape."""
    return bool(shape.unsupported)


def requests_nothing(shape: Shape) -> bool:
    """Whether tasks of a shape request nothing."""
    return shape.best_effort


def needs_no_room(shape: Shape) -> bool:
    """Whether pending tasks of a shape count as ready: they request nothing, and nothing holds them."""
    return shape.best_effort and not (shape.unsupported or shape.spec.scheduling_gates)


def opts_into_queue_gate(pod: Pod) -> bool:
    """Whether the pod opts into the queue's gate, which vcd removes once the queue has quota for the pod."""
    return pod.metadata.annotations.get(QUEUE_ADMISSION_GATE) == "true"


def name_bits(seed: int, name: str) -> int:
    """Return 64 bits of a name under a seed above 0, which define the seeded order of nodes."""
    return int.from_bytes(hashlib.blake2b(f"{seed - 1}/{name}".encode(), digest_size=8).digest(), "big")


class Settings(msgspec.Struct, frozen=True):
    """The program's flags that affect decisions: part of the log, so that a replay has them.

    ``scheduler_names``: pods with another scheduler are ignored (empty: none is). ``default_queue``: for groups that
    name no queue. ``placements`` and ``kinds`` limit one cycle: placements, and kinds of pods of one namespace that are
    tried (0: no limit, as in logs before 0.2, which lack it). ``release_after``: seconds until a gang is released that
    the API server admitted only in part. ``admission_timeout``: seconds until the reservation ends of an admitted group
    with fewer pods than its minimum, 0 for never (as in logs before 0.2, which lack it). ``shadow``: no decision is
    executed. ``controllers``: Volcano controllers that the program replaces (no decision depends on them).
    """

    scheduler_names: tuple[str, ...] = ("volcano",)
    default_queue: str = "default"
    placements: int = 50_000
    node_selector: tuple[str, ...] = ()
    release_after: int = 60
    shadow: bool = False
    controllers: tuple[str, ...] = ()
    admission_timeout: int = 300
    kinds: int = 16

    def queue_of(self, group: PodGroup) -> str:
        """Return the queue of a group: the default one if it names none."""
        return group.spec.queue or self.default_queue

    def as_done(self) -> Settings:
        """Return a copy under which decisions are executed."""
        return msgspec.structs.replace(self, shadow=False)

    def with_all_tried(self) -> Settings:
        """Return a copy under which one cycle tries all jobs: for single decisions that answer a query."""
        return msgspec.structs.replace(self, kinds=0)

    def as_text(self) -> dict[str, str]:
        """Return the form stored in the log."""
        text = {
            "scheduler-name": ",".join(self.scheduler_names),
            "default-queue": self.default_queue,
            "placements": str(self.placements),
            "node-selector": ",".join(self.node_selector),
            "release-after": str(self.release_after),
            "admission-timeout": str(self.admission_timeout),
            "kinds": str(self.kinds),
        }
        if self.controllers:
            text["controllers"] = ",".join(self.controllers)
        return {**text, "shadow": "true"} if self.shadow else text

    @classmethod
    def from_text(cls, text: dict[str, str]) -> Settings:
        """Parse what ``as_text`` returned; missing entries have their defaults."""
        default = cls()
        names = text.get("scheduler-name")
        selector = text.get("node-selector", "")
        return cls(
            default.scheduler_names if names is None else tuple(filter(None, names.split(","))),
            text.get("default-queue", default.default_queue),
            int(text.get("placements", default.placements)),
            tuple(filter(None, selector.split(","))),
            int(text.get("release-after", default.release_after)),
            text.get("shadow") == "true",
            tuple(filter(None, text.get("controllers", "").split(","))),
            int(text.get("admission-timeout", 0)),
            int(text.get("kinds", 0)),
        )


class Intent(msgspec.Struct):
    """A decision of a session about a pod that is not observed yet.

    ``volumes`` are those chosen for the pod's unbound claims, ``annotations`` are set with the bind.
    """

    session: int
    statement: int
    operation: int
    verb: str
    uid: str
    node: str = ""
    volumes: tuple[VolumeChoice, ...] = ()
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)

"""The columns that ``kubectl get`` displays for each kind, and their cells."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from vcd.embedded import schema
from vcd.embedded.cluster_clock import parse_timestamp
from vcd.embedded.resource_types import ResourceType
from vcd.embedded.schema_codec import at
from vcd.model.quantity import QuantityError, parse_units

Object = Mapping[str, Any]
Cell = Callable[[Object, float], Any]

NONE: Final = "<none>"
UNKNOWN: Final = "<unknown>"
_POD_SPEC, _POD_STATUS, _NODE_INFO = (
    f"io.k8s.api.core.v1.{name}" for name in ("PodSpec", "PodStatus", "NodeSystemInfo")
)


class Column(NamedTuple):
    """A column. ``cell`` returns the cell of an object; ``priority`` 1 means only in wide output.

    The description is a text, or a definition of ``schema`` and its member with the description.
    """

    name: str
    type: str
    cell: Cell
    priority: int = 0
    format: str = ""
    description: str | tuple[str, str] = ""

    def definition(self) -> dict[str, Any]:
        """Return the ``TableColumnDefinition``."""
        described = self.description
        if isinstance(described, tuple):
            described = schema.definitions()[described[0]]["properties"][described[1]]["description"]
        return {
            "name": self.name, "type": self.type, "format": self.format, "description": described,
            "priority": self.priority,
        }  # fmt: skip


class Columns:
    """The columns of a kind."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = tuple(columns)
        self.definitions = [column.definition() for column in columns]

    def cells(self, obj: Object, now: float) -> list[Any]:
        """Return the cells of an object; ``now`` (seconds since the epoch) is for ages."""
        return [column.cell(obj, now) for column in self._columns]


# --- helpers --------------------------------------------------------------------------------------------------------


def _get(path: str, default: Any = None) -> Cell:
    return lambda obj, now: at(obj, path, default)


def _text(path: str, default: str = NONE) -> Cell:
    return lambda obj, now: str(at(obj, path, default) or default)


# (seconds, unit, smaller unit): a time span below these seconds is written in the unit, and the rest in the smaller
# one.
_SECOND, _MINUTE, _HOUR, _DAY, _YEAR = (1, "s"), (60, "m"), (3600, "h"), (86400, "d"), (365 * 86400, "y")
_SPANS: Final = (
    (120, _SECOND, None), (600, _MINUTE, _SECOND), (3 * 3600, _MINUTE, None), (8 * 3600, _HOUR, _MINUTE),
    (48 * 3600, _HOUR, None), (8 * 86400, _DAY, _HOUR), (730 * 86400, _DAY, None), (8 * 365 * 86400, _YEAR, _DAY),
)  # fmt: skip


def human_duration(seconds: float) -> str:
    """Format a time span as kubectl does: ``45s``, ``3m20s``, ``5h``, ``12d``, ``2y10d``."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    whole = max(whole, 0)
    (size, unit), part = next(((unit, part) for below, unit, part in _SPANS if whole < below), (_YEAR, None))
    rest = whole % size // part[0] if part else 0
    return f"{whole // size}{unit}{rest}{part[1]}" if part and rest else f"{whole // size}{unit}"


def _since(*paths: str) -> Cell:
    """Return a cell with the time since the first of these times that exists."""

    def cell(obj: Object, now: float) -> str:
        seen = next(filter(None, (at(obj, path) for path in paths)), None)
        return human_duration(now - parse_timestamp(seen)) if seen else UNKNOWN

    return cell


_NAME: Final = Column("Name", "string", _get("metadata.name"), 0, "name", (schema.OBJECT_META, "name"))
_AGE: Final = Column(
    "Age", "string", _since("metadata.creationTimestamp"), description=(schema.OBJECT_META, "creationTimestamp")
)


def _labels(path: str) -> Cell:
    def cell(obj: Object, now: float) -> str:
        selector = at(obj, path, {})
        labels = selector.get("matchLabels", selector) if "matchExpressions" not in selector else {}
        return ",".join(f"{key}={labels[key]}" for key in sorted(labels)) or NONE

    return cell


def _listed(path: str, member: str) -> Cell:
    return lambda obj, now: ",".join(str(item.get(member, "")) for item in at(obj, path, ())) or NONE


# --- pods -----------------------------------------------------------------------------------------------------------


def pod_status(pod: Object) -> str:
    """Return a pod's status in kubectl's output: its phase, or a more specific reason."""
    status = pod.get("status") or {}
    shown = status.get("reason") or status.get("phase", "")
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            shown = "SchedulingGated"
    initializing = _initializing(pod)
    shown = initializing or _running_status(status, shown)
    if "deletionTimestamp" in pod["metadata"]:
        finished = status.get("phase") in ("Succeeded", "Failed")
        return "Unknown" if status.get("reason") == "NodeLost" else shown if finished else "Terminating"
    return shown


def _initializing(pod: Object) -> str:
    total = len(at(pod, "spec.initContainers", ()))
    sidecars = {each["name"] for each in at(pod, "spec.initContainers", ()) if each.get("restartPolicy") == "Always"}
    for index, container in enumerate(at(pod, "status.initContainerStatuses", ())):
        state = container.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if terminated is not None and terminated.get("exitCode") == 0:
            continue
        if container.get("name") in sidecars and container.get("started"):
            continue
        if terminated is not None:
            return f"Init:{terminated.get('reason') or 'ExitCode:' + str(terminated.get('exitCode'))}"
        if waiting and waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{total}"
    return ""


def _running_status(status: Object, shown: str) -> str:
    running = False
    for container in reversed(status.get("containerStatuses") or ()):
        state = container.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            shown = waiting["reason"]
        elif terminated is not None:
            signal = terminated.get("signal")
            code = f"Signal:{signal}" if signal else f"ExitCode:{terminated.get('exitCode')}"
            shown = terminated.get("reason") or code
        elif container.get("ready") and state.get("running") is not None:
            running = True
    if shown == "Completed" and running:
        conditions = status.get("conditions") or ()
        ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
        return "Running" if ready else "NotReady"
    return shown


def _pod_ready(pod: Object, now: float) -> str:
    ready = sum(1 for container in at(pod, "status.containerStatuses", ()) if container.get("ready"))
    return f"{ready}/{len(at(pod, 'spec.containers', ()))}"


def _restarts(pod: Object, now: float) -> str:
    containers = at(pod, "status.containerStatuses", ())
    count = sum(container.get("restartCount", 0) for container in containers)
    ends = [finish for each in containers if (finish := at(each, "lastState.terminated.finishedAt"))]
    if not count or not ends:
        return str(count)
    return f"{count} ({human_duration(now - max(map(parse_timestamp, ends)))} ago)"


def _readiness_gates(pod: Object, now: float) -> str:
    gates = [gate["conditionType"] for gate in at(pod, "spec.readinessGates", ())]
    if not gates:
        return NONE
    true = {each.get("type") for each in at(pod, "status.conditions", ()) if each.get("status") == "True"}
    return f"{sum(gate in true for gate in gates)}/{len(gates)}"


# --- nodes ----------------------------------------------------------------------------------------------------------


def _node_status(node: Object, now: float) -> str:
    ready = next((each for each in at(node, "status.conditions", ()) if each.get("type") == "Ready"), None)
    shown = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    return f"{shown},SchedulingDisabled" if at(node, "spec.unschedulable") else shown


_ROLE: Final = "node-role.kubernetes.io/"


def _node_roles(node: Object, now: float) -> str:
    labels = at(node, "metadata.labels", {})
    roles = [key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE)]
    if labels.get("kubernetes.io/role"):
        roles.append(labels["kubernetes.io/role"])
    return ",".join(sorted(role for role in roles if role)) or NONE


def _address(kind: str) -> Cell:
    def cell(node: Object, now: float) -> str:
        found = (each["address"] for each in at(node, "status.addresses", ()) if each.get("type") == kind)
        return str(next(found, NONE))

    return cell


# --- workloads ------------------------------------------------------------------------------------------------------


def _ready_replicas(obj: Object, now: float) -> str:
    return f"{at(obj, 'status.readyReplicas', 0)}/{at(obj, 'spec.replicas', 0)}"


def _bound(path: str) -> Cell:
    return lambda obj, now: str(at(obj, path, "N/A"))


_TEMPLATE: Final = (
    ("Containers", "string", _listed("spec.template.spec.containers", "name")),
    ("Images", "string", _listed("spec.template.spec.containers", "image")),
    ("Selector", "string", _labels("spec.selector")),
)

# --- storage --------------------------------------------------------------------------------------------------------

_MODES: Final = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _modes(path: str) -> Cell:
    return lambda obj, now: ",".join(_MODES.get(mode, mode) for mode in at(obj, path, ()))


def _claim_status(obj: Object, now: float) -> str:
    return "Terminating" if "deletionTimestamp" in obj["metadata"] else str(at(obj, "status.phase", ""))


def _claimed_by(obj: Object, now: float) -> str:
    ref = at(obj, "spec.claimRef", {})
    return f"{ref.get('namespace', '')}/{ref.get('name', '')}" if ref else ""


_VOLUME_MODE: Final = ("VolumeMode", "string", _get("spec.volumeMode", "<unset>"))


def _class_name(obj: Object, now: float) -> str:
    default = at(obj, "metadata.annotations", {}).get("storageclass.kubernetes.io/is-default-class") == "true"
    return f"{obj['metadata']['name']} (default)" if default else str(obj["metadata"]["name"])


# --- the rest -------------------------------------------------------------------------------------------------------


def _count(path: str) -> Cell:
    return lambda obj, now: len(at(obj, path, ()))


def _data(obj: Object, now: float) -> int:
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


def _ports(obj: Object, now: float) -> str:
    listed = [
        f"{port['port']}" + (f":{port['nodePort']}" if port.get("nodePort") else "") + f"/{port['protocol']}"
        for port in at(obj, "spec.ports", ())
    ]
    return ",".join(listed) or NONE


def _about(event: Object, now: float) -> str:
    return f"{at(event, 'involvedObject.kind', '').lower()}/{at(event, 'involvedObject.name', '')}"


def _source(event: Object, now: float) -> str:
    component = at(event, "source.component") or event.get("reportingComponent", "")
    return ", ".join(filter(None, (component, at(event, "source.host", ""))))


def _quota_used(*, limits: bool) -> Cell:
    def cell(obj: Object, now: float) -> str:
        hard = at(obj, "status.hard") or at(obj, "spec.hard", {})
        have = at(obj, "status.used", {})
        names = [name for name in sorted(hard) if name.startswith("limits.") == limits]
        return ", ".join(f"{name}: {have.get(name, 0)}/{hard[name]}" for name in names)

    return cell


def _role(obj: Object, now: float) -> str:
    return f"{at(obj, 'roleRef.kind', '')}/{at(obj, 'roleRef.name', '')}"


_CREATED: Final = (_NAME, Column("Created At", "date", _get("metadata.creationTimestamp")))


def _named_and_aged(*columns: tuple[Any, ...], wide: Sequence[tuple[Any, ...]] = ()) -> tuple[Column, ...]:
    """Return the columns of most kinds: name, specific columns, age, and those of wide output."""
    return (_NAME, *(Column(*each) for each in columns), _AGE, *(Column(*each)._replace(priority=1) for each in wide))


_KINDS: Final[dict[str, tuple[Column, ...]]] = {
    "pods": _named_and_aged(
        ("Ready", "string", _pod_ready, 0, "", "The aggregate readiness state of this pod for accepting traffic."),
        ("Status", "string", lambda pod, now: pod_status(pod), 0, "",
         "The aggregate status of the containers in this pod."),
        ("Restarts", "string", _restarts, 0, "",
         "The number of times the containers in this pod have been restarted and when the last container in "
         "this pod has restarted."),
        wide=(
            ("IP", "string", _text("status.podIP"), 1, "", (_POD_STATUS, "podIP")),
            ("Node", "string", _text("spec.nodeName"), 1, "", (_POD_SPEC, "nodeName")),
            ("Nominated Node", "string", _text("status.nominatedNodeName"), 1, "",
             (_POD_STATUS, "nominatedNodeName")),
            ("Readiness Gates", "string", _readiness_gates, 1, "", (_POD_SPEC, "readinessGates")),
        ),
    ),
    "nodes": (
        _NAME,
        Column("Status", "string", _node_status, 0, "", "The status of the node"),
        Column("Roles", "string", _node_roles, 0, "", "The roles of the node"),
        _AGE,
        Column("Version", "string", _get("status.nodeInfo.kubeletVersion", ""), 0, "",
               (_NODE_INFO, "kubeletVersion")),
        Column("Internal-IP", "string", _address("InternalIP"), 1),
        Column("External-IP", "string", _address("ExternalIP"), 1),
        Column("OS-Image", "string", _text("status.nodeInfo.osImage", UNKNOWN), 1),
        Column("Kernel-Version", "string", _text("status.nodeInfo.kernelVersion", UNKNOWN), 1),
        Column("Container-Runtime", "string", _text("status.nodeInfo.containerRuntimeVersion", UNKNOWN), 1),
    ),
    "deployments.apps": _named_and_aged(
        ("Ready", "string", _ready_replicas, 0, "", "Number of the pod with ready state"),
        ("Up-to-date", "string", _get("status.updatedReplicas", 0)),
        ("Available", "string", _get("status.availableReplicas", 0)),
        wide=_TEMPLATE,
    ),
    "replicasets.apps": _named_and_aged(
        ("Desired", "integer", _get("spec.replicas", 0)),
        ("Current", "integer", _get("status.replicas", 0)),
        ("Ready", "integer", _get("status.readyReplicas", 0)),
        wide=_TEMPLATE,
    ),
    "poddisruptionbudgets.policy": _named_and_aged(
        ("Min Available", "string", _bound("spec.minAvailable")),
        ("Max Unavailable", "string", _bound("spec.maxUnavailable")),
        ("Allowed Disruptions", "integer", _get("status.disruptionsAllowed", 0)),
    ),
    "persistentvolumeclaims": _named_and_aged(
        ("Status", "string", _claim_status),
        ("Volume", "string", _get("spec.volumeName", "")),
        ("Capacity", "string", _get("status.capacity.storage", "")),
        ("Access Modes", "string", _modes("status.accessModes")),
        ("StorageClass", "string", _get("spec.storageClassName", "")),
        wide=(_VOLUME_MODE,),
    ),
    "persistentvolumes": _named_and_aged(
        ("Capacity", "string", _get("spec.capacity.storage", "")),
        ("Access Modes", "string", _modes("spec.accessModes")),
        ("Reclaim Policy", "string", _get("spec.persistentVolumeReclaimPolicy", "")),
        ("Status", "string", _get("status.phase", "")),
        ("Claim", "string", _claimed_by),
        ("StorageClass", "string", _get("spec.storageClassName", "")),
        ("Reason", "string", _get("status.reason", "")),
        wide=(_VOLUME_MODE,),
    ),
    "storageclasses.storage.k8s.io": (
        _NAME._replace(cell=_class_name),
        Column("Provisioner", "string", _get("provisioner", "")),
        Column("ReclaimPolicy", "string", _get("reclaimPolicy", "Delete")),
        Column("VolumeBindingMode", "string", _get("volumeBindingMode", "Immediate")),
        Column("AllowVolumeExpansion", "string", _get("allowVolumeExpansion", False)),
        _AGE,
    ),
    "configmaps": _named_and_aged(("Data", "string", _data)),
    "services": _named_and_aged(
        ("Type", "string", _get("spec.type", "")),
        ("Cluster-IP", "string", _text("spec.clusterIP")),
        ("External-IP", "string", lambda obj, now: ",".join(at(obj, "spec.externalIPs", ())) or NONE),
        ("Port(s)", "string", _ports),
        wide=(("Selector", "string", _labels("spec.selector")),),
    ),
    "events": (
        Column("Last Seen", "string", _since("series.lastObservedTime", "lastTimestamp", "eventTime")),
        Column("Type", "string", _get("type", "")),
        Column("Reason", "string", _get("reason", "")),
        Column("Object", "string", _about),
        Column("Subobject", "string", _get("involvedObject.fieldPath", ""), 1),
        Column("Source", "string", _source, 1),
        Column("Message", "string", lambda obj, now: str(obj.get("message") or "").strip()),
        Column("First Seen", "string", _since("firstTimestamp", "eventTime"), 1),
        Column("Count", "string", _get("count", 1), 1),
        _NAME._replace(priority=1),
    ),
    "resourcequotas": _named_and_aged(
        ("Request", "string", _quota_used(limits=False)), ("Limit", "string", _quota_used(limits=True))
    ),
    "rolebindings.rbac.authorization.k8s.io": _named_and_aged(("Role", "string", _role)),
    "clusterrolebindings.rbac.authorization.k8s.io": _named_and_aged(("Role", "string", _role)),
    "limitranges": _CREATED,
    "roles.rbac.authorization.k8s.io": _CREATED,
    "clusterroles.rbac.authorization.k8s.io": _CREATED,
    "customresourcedefinitions.apiextensions.k8s.io": _CREATED,
    "namespaces": _named_and_aged(("Status", "string", _get("status.phase", ""))),
    "secrets": _named_and_aged(("Type", "string", _get("type", "")), ("Data", "string", _count("data"))),
    "serviceaccounts": _named_and_aged(("Secrets", "string", _count("secrets"))),
    "leases.coordination.k8s.io": _named_and_aged(("Holder", "string", _get("spec.holderIdentity", ""))),
    "priorityclasses.scheduling.k8s.io": _named_and_aged(
        ("Value", "integer", _get("value", 0)),
        ("Global-Default", "boolean", _get("globalDefault", False)),
        ("PreemptionPolicy", "string", _get("preemptionPolicy", "")),
    ),
    "csinodes.storage.k8s.io": _named_and_aged(("Drivers", "integer", _count("spec.drivers"))),
    "csidrivers.storage.k8s.io": _named_and_aged(
        ("AttachRequired", "boolean", _get("spec.attachRequired", True)),
        ("PodInfoOnMount", "boolean", _get("spec.podInfoOnMount", False)),
        ("StorageCapacity", "boolean", _get("spec.storageCapacity", False)),
    ),
    "csistoragecapacities.storage.k8s.io": _named_and_aged(
        ("StorageClassName", "string", _get("storageClassName", "")),
        ("Capacity", "string", _get("capacity", "")),
    ),
}  # fmt: skip


def columns_of(rtype: ResourceType) -> Columns:
    """Return the columns of a kind; for a custom resource, the ones in its definition."""
    if rtype.definition is not None:
        return Columns([_NAME, *_custom(rtype.definition)])
    return Columns(_KINDS.get(rtype.storage, (_NAME, _AGE)))


def _custom(definition: Mapping[str, Any]) -> list[Column]:
    declared = definition.get("additionalPrinterColumns")
    if not declared:
        return [_AGE._replace(type="date")]
    about = "Custom resource definition column (in JSONPath format): "
    return [
        Column(
            column["name"], column["type"], _json_path(column["jsonPath"], column["type"]),
            column.get("priority", 0), column.get("format", ""),
            column.get("description") or about + column["jsonPath"],
        )
        for column in declared
    ]  # fmt: skip


_STEP: Final = re.compile(r"\.([^.\[\]]+)|\['([^']+)'\]|\[(-?\d+)\]|\[(\*)\]")


def _json_path(path: str, kind: str) -> Cell:
    """Return a cell for a simple JSONPath: members, quoted members, indices and ``[*]``."""
    steps = [match.groups() for match in _STEP.finditer(path.replace("\\.", "\0"))]

    def cell(obj: Object, now: float) -> Any:
        found: list[Any] = [obj]
        for dotted, quoted, index, every in steps:
            member = (dotted or quoted or "").replace("\0", ".")
            found = [below for value in found for below in _below(value, member, index, every)]
        if not found or found[0] is None:
            return UNKNOWN if kind == "date" and path.endswith("Timestamp") else None
        return _as_cell(found[0], kind, now)

    return cell


def _below(value: Any, member: str, index: str | None, every: str | None) -> list[Any]:
    if isinstance(value, list):
        if every:
            return value
        if index is not None and -len(value) <= int(index) < len(value):
            return [value[int(index)]]
    elif isinstance(value, Mapping) and member in value:
        return [value[member]]
    return []


def _as_cell(value: Any, kind: str, now: float) -> Any:
    if kind == "date":
        try:
            return human_duration(now - parse_timestamp(value))
        except (TypeError, ValueError):
            return "<invalid>"
    if kind == "integer" and isinstance(value, str):
        try:
            return parse_units(value)
        except QuantityError:
            return None
    if kind == "string" and not isinstance(value, str):
        return str(value) if not isinstance(value, bool) else str(value).lower()
    return value

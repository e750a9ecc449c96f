"""Default values that the API server sets in built-in kinds, and admission of pods that needs no other objects.

The functions modify the given object, which is a copy of the store.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any, Final

from vcd.embedded.schema_codec import copy
from vcd.model.limitranges import fill_in_limit_range
from vcd.model.podadmission import fill_in_scheduling
from vcd.model.quantity import QuantityError, parse_milli

Object = dict[str, Any]


def _set(target: Object, /, **values: Any) -> None:
    """Set missing members, recursively in mappings."""
    for key, value in values.items():
        if isinstance(value, dict):
            _set(target.setdefault(key, {}), **value)
        else:
            target.setdefault(key, copy(value))


# --- pods -----------------------------------------------------------------------------------------------------------


def pod_spec(spec: Object) -> None:
    """Set the defaults of a pod's spec, also in a workload's template."""
    _set(spec, restartPolicy="Always", terminationGracePeriodSeconds=30, dnsPolicy="ClusterFirst", securityContext={})
    _set(spec, schedulerName="default-scheduler")
    if spec.get("serviceAccountName"):
        _set(spec, serviceAccount=spec["serviceAccountName"])
    for _, _, container in containers_of({"spec": spec}):
        _container(container)
    fill_in_scheduling(spec)
    for volume in spec.get("volumes") or ():
        _volume(volume)


def _container(container: Object) -> None:
    image = container.get("image") or ""
    tag = image.rpartition("/")[2]
    latest = "@" not in tag and (":" not in tag or tag.endswith(":latest"))
    _set(container, resources={}, terminationMessagePath="/dev/termination-log", terminationMessagePolicy="File")
    if image:
        _set(container, imagePullPolicy="Always" if latest else "IfNotPresent")
    for port in container.get("ports") or ():
        _set(port, protocol="TCP")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(probe):
            _probe(container[probe])
    for variable in container.get("env") or ():
        field_ref = (variable.get("valueFrom") or {}).get("fieldRef")
        if field_ref:
            _set(field_ref, apiVersion="v1")


def _probe(probe: Object) -> None:
    _set(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
    if probe.get("httpGet"):
        _set(probe["httpGet"], path="/", scheme="HTTP")


def _volume(volume: Object) -> None:
    sources = [key for key in volume if key != "name"]
    if not sources:
        volume["emptyDir"] = {}
    for source in ("configMap", "secret", "downwardAPI", "projected"):
        if volume.get(source):
            _set(volume[source], defaultMode=420)
    if volume.get("hostPath"):
        _set(volume["hostPath"], type="")


def _pod(pod: Object) -> None:
    pod_spec(pod["spec"])
    _set(pod["spec"], enableServiceLinks=True)
    for condition in (pod.get("status") or {}).get("conditions") or ():
        _set(condition, lastProbeTime=None, lastTransitionTime=None)


_TOLERATED_SECONDS: Final = 300


def tolerate_outages(pod: Object) -> None:
    """Tolerate a node that is not ready or unreachable for five minutes (DefaultTolerationSeconds admission)."""
    tolerations = list(pod["spec"].get("tolerations") or ())
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(
            toleration.get("key") in (key, None, "") and toleration.get("effect") in ("NoExecute", None, "")
            for toleration in tolerations
        ):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATED_SECONDS}
            )
    pod["spec"]["tolerations"] = tolerations


def qos_class(pod: Object) -> str:
    """Return Guaranteed, Burstable or BestEffort, from the cpu and memory of all containers."""
    asked = False
    guaranteed = True
    for _, _, container in containers_of(pod):
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            asked = asked or _positive(requests.get(name)) or _positive(limits.get(name))
            same = _positive(limits.get(name)) and _milli(requests.get(name)) == _milli(limits.get(name))
            guaranteed = guaranteed and same
    if not asked:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _milli(amount: str | None) -> int:
    if amount is None:
        return 0
    try:
        return parse_milli(amount)
    except QuantityError:
        return 1  # above int64; callers only need to know that it is not 0


def _positive(amount: str | None) -> bool:
    return _milli(amount) > 0


# --- other kinds ----------------------------------------------------------------------------------------------------

# Defaults that do not depend on other fields.
_FIXED: Final[dict[str, Object]] = {
    "pods": {"spec": {}},
    "nodes": {
        "spec": {},
        "status": {
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
            "nodeInfo": dict.fromkeys((
                "machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion",
                "kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture",
            ), ""),
        },
    },
    "deployments.apps": {
        "spec": {
            "replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
            "strategy": {"type": "RollingUpdate"},
        },
    },
    "replicasets.apps": {"spec": {"replicas": 1}},
    "services": {"spec": {"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster"}},
    "secrets": {"type": "Opaque"},
    "namespaces": {"metadata": {"labels": {}}, "spec": {"finalizers": ["kubernetes"]}},
    "persistentvolumeclaims": {"spec": {"volumeMode": "Filesystem"}},
    "persistentvolumes": {"spec": {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"}},
    "storageclasses.storage.k8s.io": {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
    "csidrivers.storage.k8s.io": {
        "spec": {
            "attachRequired": True, "podInfoOnMount": False, "storageCapacity": False,
            "fsGroupPolicy": "ReadWriteOnceWithFSType", "volumeLifecycleModes": ["Persistent"],
            "requiresRepublish": False, "seLinuxMount": False,
        },
    },
    "events": {
        "source": {}, "firstTimestamp": None, "lastTimestamp": None, "eventTime": None, "reportingComponent": "",
        "reportingInstance": "",
    },
    "priorityclasses.scheduling.k8s.io": {"value": 0, "preemptionPolicy": "PreemptLowerPriority"},
    "poddisruptionbudgets.policy": {"spec": {}},
    "customresourcedefinitions.apiextensions.k8s.io": {"spec": {"names": {}, "conversion": {"strategy": "None"}}},
}  # fmt: skip


def fill_in(resource: str, obj: Object) -> None:
    """Set the defaults of a built-in kind."""
    _set(obj, **_FIXED.get(resource, {}))
    if resource in _DEPENDING:
        _DEPENDING[resource](obj)


def _node(node: Object) -> None:
    for condition in node["status"].get("conditions") or ():
        _set(condition, lastHeartbeatTime=None, lastTransitionTime=None)


def _template(workload: Object) -> None:
    template = workload["spec"].get("template")
    if isinstance(template, dict):
        template.setdefault("metadata", {})
        if isinstance(template.get("spec"), dict):
            pod_spec(template["spec"])


def _deployment(deployment: Object) -> None:
    _template(deployment)
    strategy = deployment["spec"]["strategy"]
    if strategy["type"] == "RollingUpdate":
        _set(strategy.setdefault("rollingUpdate", {}), maxUnavailable="25%", maxSurge="25%")


def _service(service: Object) -> None:
    spec = service["spec"]
    if spec["type"] != "ExternalName":
        _set(spec, ipFamilies=["IPv4"], ipFamilyPolicy="SingleStack")
    for port in spec.get("ports") or ():
        _set(port, protocol="TCP", targetPort=port.get("port"))


def _secret(secret: Object) -> None:
    plain = secret.pop("stringData", None)
    if plain:
        data = secret.setdefault("data", {})
        data.update({key: base64.b64encode(text.encode()).decode() for key, text in plain.items()})


def _namespace(namespace: Object) -> None:
    metadata = namespace["metadata"]
    metadata["labels"]["kubernetes.io/metadata.name"] = metadata.get("name", "")


def _role_binding(binding: Object) -> None:
    _set(binding.get("roleRef") or {}, apiGroup="rbac.authorization.k8s.io")
    for subject in binding.get("subjects") or ():
        if subject.get("kind") in ("User", "Group"):
            _set(subject, apiGroup="rbac.authorization.k8s.io")


def _definition(crd: Object) -> None:
    names = crd["spec"]["names"]
    _set(names, singular=str(names.get("kind", "")).lower(), listKind=f"{names.get('kind', '')}List")


# Defaults that depend on other fields.
_DEPENDING: Final[dict[str, Callable[[Object], None]]] = {
    "pods": _pod,
    "nodes": _node,
    "deployments.apps": _deployment,
    "replicasets.apps": _template,
    "services": _service,
    "secrets": _secret,
    "limitranges": lambda limit_range: fill_in_limit_range(limit_range.get("spec") or {}),
    "namespaces": _namespace,
    "rolebindings.rbac.authorization.k8s.io": _role_binding,
    "clusterrolebindings.rbac.authorization.k8s.io": _role_binding,
    "customresourcedefinitions.apiextensions.k8s.io": _definition,
}

# Zero values that the API server encodes even if no client set them, so that no field manager owns them.
ZERO: Final[dict[str, Object]] = {
    "pods": {"spec": {"containers": []}},
    "events": {"source": {}, "involvedObject": {}, "eventTime": None, "firstTimestamp": None, "lastTimestamp": None,
               "reportingComponent": "", "reportingInstance": ""},
    "deployments.apps": {"spec": {"strategy": {}, "template": {"metadata": {}, "spec": {"containers": []}}}},
    "replicasets.apps": {"spec": {"template": {"metadata": {}, "spec": {"containers": []}}}},
}  # fmt: skip


def zero(resource: str, custom: bool) -> Object:
    """Return the object with which a first write is compared, to determine which fields the client set."""
    if custom:
        return {"metadata": {}}
    return {"metadata": {}, "spec": {}, "status": {}, **ZERO.get(resource, {})}


# The status of a new object.
NEW_STATUS: Final[dict[str, Object]] = {
    "deployments.apps": {},
    "replicasets.apps": {"replicas": 0},
    "services": {"loadBalancer": {}},
    "namespaces": {"phase": "Active"},
    "persistentvolumeclaims": {"phase": "Pending"},
    "persistentvolumes": {"phase": "Pending"},
    "resourcequotas": {},
    "poddisruptionbudgets.policy": {
        "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0
    },
}  # fmt: skip


def containers_of(pod: Object) -> Iterator[tuple[str, int, Object]]:
    """Yield (member, index, container) for each container of a pod."""
    for member in ("initContainers", "containers"):
        for index, container in enumerate(pod["spec"].get(member) or ()):
            yield member, index, container

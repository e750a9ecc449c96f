"""Where workloads of each kind have their pod templates, and how many pods they create: a table, and its reader.

To add a kind, add a row to ``SHAPES``. Volcano Jobs, CronJobs and DaemonSets count their pods by more than paths:
``vcd.timetravel.workload_expansion`` reads them. ``is_podless`` knows the kinds that create no pods.

Sources: the kinds' CustomResourceDefinitions, and the controllers that create the pods.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Manifest = dict[str, Any]


class PodsAt(NamedTuple):
    """Equal pods: ``at`` is the path to the mapping with their template and the numbers whose product is their count.

    In ``at``, ``[]`` means each item of a list and ``{}`` each value of a mapping. ``template`` and the ``counts`` are
    paths from there; of alternatives divided by ``|``, the first existing one counts. A missing count is 1, or the
    number after ``=``; ``less`` is subtracted. The last count is the number of pods at a time, ``most`` the total.
    """

    at: str = "spec"
    template: str = "template"
    counts: tuple[str, ...] = ("replicas",)
    name: str = ""
    less: int = 0
    most: str = ""


class WorkloadLayout(NamedTuple):
    """How a kind creates pods. A gang needs all of them, or as many as ``minimum`` states; ``copies`` is the number of
    gangs."""

    pods: tuple[PodsAt, ...] = (PodsAt(),)
    gang: bool = False
    suspend: str = ""
    minimum: str = ""
    copies: str = ""
    queue: str = ""
    priority: str = ""


def _training(member: str) -> WorkloadLayout:
    policy = "spec.runPolicy.schedulingPolicy"
    return WorkloadLayout(
        (PodsAt(f"spec.{member}{{}}"),), True, "spec.runPolicy.suspend", f"{policy}.minAvailable", "",
        f"{policy}.queue", f"{policy}.priorityClass",
    )  # fmt: skip


def _ray(cluster: str) -> WorkloadLayout:
    workers = PodsAt(f"{cluster}.workerGroupSpecs[]", "template", ("replicas|minReplicas=0", "numOfHosts"))
    return WorkloadLayout((PodsAt(f"{cluster}.headGroupSpec", "template", (), "head"), workers), True, "spec.suspend")


_LEADER = PodsAt("spec.leaderWorkerTemplate", "leaderTemplate|workerTemplate", (), "leader")
_WORKERS = PodsAt("spec.leaderWorkerTemplate", "workerTemplate", ("size",), "worker", 1)
_SPARK = WorkloadLayout(
    (PodsAt("spec.driver", counts=(), name="driver"), PodsAt("spec.executor", counts=("instances",), name="exec")),
    queue="spec.batchSchedulerOptions.queue",
    priority="spec.batchSchedulerOptions.priorityClassName",
)

SHAPES: Mapping[tuple[str, str], WorkloadLayout] = {
    ("Deployment", "apps"): WorkloadLayout(),
    ("ReplicaSet", "apps"): WorkloadLayout(),
    ("ReplicationController", ""): WorkloadLayout(),
    ("StatefulSet", "apps"): WorkloadLayout(),
    ("CloneSet", "apps.kruise.io"): WorkloadLayout(),
    ("StatefulSet", "apps.kruise.io"): WorkloadLayout(),
    ("Job", "batch"): WorkloadLayout((PodsAt(counts=("parallelism",), most="completions"),), suspend="spec.suspend"),
    ("JobSet", "jobset.x-k8s.io"): WorkloadLayout(
        (
            PodsAt(
                "spec.replicatedJobs[]",
                "template.spec.template",
                ("replicas", "template.spec.parallelism"),
                most="template.spec.completions",
            ),
        ),
        suspend="spec.suspend",
    ),
    ("LeaderWorkerSet", "leaderworkerset.x-k8s.io"): WorkloadLayout((_LEADER, _WORKERS), True, copies="spec.replicas"),
    ("RayCluster", "ray.io"): _ray("spec"),
    ("RayJob", "ray.io"): _ray("spec.rayClusterSpec"),
    ("RayService", "ray.io"): _ray("spec.rayClusterConfig"),
    ("RayCronJob", "ray.io"): _ray("spec.jobTemplate.rayClusterSpec"),
    ("SparkApplication", "sparkoperator.k8s.io"): _SPARK,
    ("ScheduledSparkApplication", "sparkoperator.k8s.io"): _SPARK,
    ("Notebook", "kubeflow.org"): WorkloadLayout((PodsAt(counts=()),)),
    ("PyTorchJob", "kubeflow.org"): _training("pytorchReplicaSpecs"),
    ("TFJob", "kubeflow.org"): _training("tfReplicaSpecs"),
    ("MPIJob", "kubeflow.org"): _training("mpiReplicaSpecs"),
    ("XGBoostJob", "kubeflow.org"): _training("xgbReplicaSpecs"),
    ("MXJob", "kubeflow.org"): _training("mxReplicaSpecs"),
    ("PaddleJob", "kubeflow.org"): _training("paddleReplicaSpecs"),
    ("JAXJob", "kubeflow.org"): _training("jaxReplicaSpecs"),
}

_PODLESS_GROUPS = frozenset({
    "", "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "authentication.k8s.io",
    "authorization.k8s.io", "autoscaling", "bus.volcano.sh", "cert-manager.io", "certificates.k8s.io",
    "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", "extensions", "external-secrets.io",
    "flowcontrol.apiserver.k8s.io", "gateway.networking.k8s.io", "kueue.x-k8s.io", "kustomize.config.k8s.io",
    "metrics.k8s.io", "networking.istio.io", "networking.k8s.io", "node.k8s.io", "nodeinfo.volcano.sh", "policy",
    "rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "scheduling.volcano.sh", "scheduling.x-k8s.io",
    "security.istio.io", "shard.volcano.sh", "snapshot.storage.k8s.io", "storage.k8s.io", "topology.volcano.sh",
})  # fmt: skip
_PODLESS = frozenset({
    ("ControllerRevision", "apps"), ("ScaledObject", "keda.sh"), ("TriggerAuthentication", "keda.sh"),
    ("PodMonitor", "monitoring.coreos.com"), ("Probe", "monitoring.coreos.com"),
    ("PrometheusRule", "monitoring.coreos.com"), ("ServiceMonitor", "monitoring.coreos.com"),
})  # fmt: skip
_OLD_WORKLOADS = ("DaemonSet", "Deployment", "ReplicaSet")
"""Kinds of the API group ``extensions``, which no server has since Kubernetes 1.22."""


def is_podless(kind: str, group: str) -> bool:
    """Return whether objects of a kind create no pods."""
    return (kind, group) in _PODLESS or (
        group in _PODLESS_GROUPS and not (group == "extensions" and kind in _OLD_WORKLOADS)
    )


def value_at(manifest: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path of keys, or None."""
    value: Any = manifest
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def holders(manifest: Manifest, at: str) -> Iterator[tuple[str, str, Manifest]]:
    """Yield name, path and value of each mapping that an ``at`` selects."""
    path, each = at.rstrip("[]{}"), at[-2:]
    value = value_at(manifest, path)
    if each == "[]":
        for index, item in enumerate(value if isinstance(value, list) else ()):
            if isinstance(item, Mapping):
                yield str(item.get("groupName") or item.get("name") or index), f"{path}[{index}]", dict(item)
    elif each == "{}":
        for key, item in sorted(value.items()) if isinstance(value, Mapping) else ():
            if isinstance(item, Mapping):
                yield str(key).lower(), f"{path}.{key}", dict(item)
    elif isinstance(value, Mapping):
        yield "", path, dict(value)


def first_given(holder: Manifest, paths: str) -> tuple[str, Any]:
    """Return the first path that has a value, and the value; else the first path and None."""
    found = ((path, value_at(holder, path)) for path in paths.split("|"))
    return next((each for each in found if each[1] is not None), (paths.partition("|")[0], None))


def templates_in(manifest: Manifest) -> Iterator[tuple[str, Manifest]]:
    """Yield path and value of all pods and pod templates: mappings with a list of containers, or with such a spec."""
    waiting: list[tuple[str, Any, Any]] = [("spec", manifest.get("spec"), manifest)]
    while waiting:
        path, value, parent = waiting.pop()
        if isinstance(value, Mapping):
            if isinstance(value.get("containers"), list):
                is_spec = path == "spec" or path.endswith(".spec")
                yield path.removesuffix("spec").removesuffix("."), parent if is_spec else {"spec": value}
                continue
            waiting.extend((f"{path}.{key}", value[key], value) for key in reversed([*value]))
        elif isinstance(value, list):
            waiting.extend((f"{path}[{index}]", item, value) for index, item in reversed([*enumerate(value)]))


# --- Spark ------------------------------------------------------------------------------------------------------------

_JAVA_MEMORY = re.compile(r"([0-9]{1,18})([bkmgt]?)b?", re.IGNORECASE)
_SPARK_POD = ("nodeSelector", "tolerations", "affinity", "schedulerName", "hostNetwork", "initContainers")
"""Fields of a driver or an executor that its pods take over."""
_LEAST_OVERHEAD = 384
"""Minimum memory overhead of a process in addition to its heap, in MiB; otherwise it is a tenth of the heap
(``spark.kubernetes``)."""
_KIBI = {"": 1 << 20, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def with_spark_templates(manifest: Manifest) -> Manifest:
    """Return a SparkApplication whose driver and executor have whole templates, as its operator creates their pods.

    The spec of a ScheduledSparkApplication becomes that of the application that it creates. Whole templates and other
    kinds stay as they are.
    """
    group = str(manifest.get("apiVersion") or "").partition("/")[0]
    if group != "sparkoperator.k8s.io" or not isinstance(manifest.get("spec"), Mapping):
        return manifest
    spec = _mapping(value_at(manifest, "spec.template") or manifest.get("spec"))
    roles = {name: _mapping(spec[name]) for name in ("driver", "executor") if name in spec}
    return {**manifest, "spec": {**spec, **{name: _with_template(role, spec) for name, role in roles.items()}}}


def _with_template(role: Manifest, spec: Manifest) -> Manifest:
    template = _mapping(role.get("template"))
    pod, meta = _mapping(template.get("spec")), _mapping(template.get("metadata"))
    first, *others = _list(pod.get("containers")) or [{}]
    own = {"name": "spark", "image": role.get("image") or spec.get("image") or "spark", **_mapping(first)}
    own["resources"] = {"requests": _spark_requests(role), **_spark_limits(role)}
    marks = {key: role[key] for key in ("labels", "annotations") if role.get(key)}
    parts = {key: role[key] for key in _SPARK_POD if role.get(key)}
    containers = [own, *others, *_list(role.get("sidecars"))]
    template = {"metadata": {**meta, **marks}, "spec": {**pod, **parts, "containers": containers}}
    return {**{key: value for key, value in role.items() if key != "sidecars"}, "template": template}


def _mapping(value: Any) -> Manifest:
    return dict(value) if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _spark_requests(role: Mapping[str, Any]) -> Manifest:
    return {"cpu": str(role.get("coreRequest") or role.get("cores") or 1), "memory": _spark_memory(role)}


def _spark_limits(role: Mapping[str, Any]) -> Manifest:
    limits = {"cpu": str(role["coreLimit"])} if role.get("coreLimit") else {}
    gpu = role.get("gpu")
    if isinstance(gpu, Mapping) and gpu.get("name"):
        limits[str(gpu["name"])] = str(gpu.get("quantity", 1))
    return {"limits": limits} if limits else {}


def _spark_memory(role: Mapping[str, Any]) -> str:
    """Return heap and overhead, in bytes; an invalid quantity is returned unchanged, so that the pod is refused."""
    heap, overhead = (_JAVA_MEMORY.fullmatch(str(role.get(key) or default)) for key, default in _MEMORY_FIELDS)
    if heap is None or overhead is None:
        return str(role.get("memory"))
    amount = int(heap[1]) * _KIBI[heap[2].lower()]
    more = int(overhead[1]) * _KIBI[overhead[2].lower()]
    return str(amount + (more if role.get("memoryOverhead") else max(amount // 10, _LEAST_OVERHEAD << 20)))


_MEMORY_FIELDS = (("memory", "1g"), ("memoryOverhead", "0"))

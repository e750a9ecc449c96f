"""Manifests of every kind that is read, and what becomes of them when one of their values is something odd."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from importlib import resources
from random import Random
from typing import Any

import msgspec

from vcd.model.kinds import KINDS

Manifest = dict[str, Any]
Place = tuple[Any, Any]

_TYPICAL: list[Manifest] = msgspec.json.decode((resources.files("vcd.eventlog") / "typical.json").read_bytes())
_BARE: list[Manifest] = [
    {
        "kind": name,
        "metadata": {"name": "a", **({"namespace": "ns"} if kind.namespaced else {})},
        "spec": {},
        "status": {},
    }
    for name, kind in KINDS.items()
    if name not in {manifest["kind"] for manifest in _TYPICAL}
]
MANIFESTS = [*_TYPICAL, *_BARE]

_TEMPLATE: Manifest = {
    "metadata": {"labels": {"app": "a"}, "annotations": {"volcano.sh/preemptable": "true"}},
    "spec": {
        "nodeSelector": {"zone": "a"},
        "priorityClassName": "high",
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": 1}}}],
    },
}
_TASK: Manifest = {
    "name": "t",
    "replicas": 2,
    "minAvailable": 1,
    "template": _TEMPLATE,
    "partitionPolicy": {"totalPartitions": 2, "partitionSize": 1, "networkTopology": {"mode": "soft"}},
}
_VOLCANO: Manifest = {"minAvailable": 2, "queue": "q", "tasks": [_TASK], "networkTopology": {"mode": "hard"}}
_BATCH: Manifest = {"parallelism": 2, "completions": 3, "template": _TEMPLATE}


_SIZED: Manifest = {"groupName": "g", "replicas": 2, "numOfHosts": 1, "suspend": False, "template": _TEMPLATE}
_POLICY: Manifest = {"suspend": False, "schedulingPolicy": {"minAvailable": 1, "queue": "q", "priorityClass": "high"}}
_LEADERS: Manifest = {"size": 2, "leaderTemplate": _TEMPLATE, "workerTemplate": _TEMPLATE}
_SPARK: Manifest = {
    "cores": 1, "coreLimit": "2", "memory": "1g", "memoryOverhead": "1m", "instances": 2, "image": "x",
    "gpu": {"name": "nvidia.com/gpu", "quantity": 1}, "labels": {"a": "b"}, "template": _TEMPLATE, "sidecars": [],
}  # fmt: skip


def _workload(version: str, kind: str, spec: Manifest) -> Manifest:
    marks = {"labels": {"app": "a"}, "annotations": {"scheduling.volcano.sh/group-min-member": "2"}}
    meta = {"name": "w", "namespace": "ns", "uid": "u", **marks}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": copy.deepcopy(spec)}


WORKLOADS = [
    *(
        _workload("apps/v1", kind, {"replicas": 2, "template": _TEMPLATE})
        for kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")
    ),
    _workload("v1", "ReplicationController", {"replicas": 2, "template": _TEMPLATE}),
    _workload("batch/v1", "Job", _BATCH),
    _workload("batch/v1", "CronJob", {"jobTemplate": {"spec": _BATCH}}),
    _workload("batch.volcano.sh/v1alpha1", "Job", _VOLCANO),
    _workload("batch.volcano.sh/v1alpha1", "CronJob", {"jobTemplate": {"spec": _VOLCANO}}),
    _workload("kubeflow.org/v1", "PyTorchJob", {"runPolicy": _POLICY, "pytorchReplicaSpecs": {"Worker": _SIZED}}),
    _workload("ray.io/v1", "RayCluster", {"headGroupSpec": _SIZED, "workerGroupSpecs": [_SIZED, _SIZED]}),
    _workload("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": [{"name": "j", "template": {"spec": _BATCH}}]}),
    _workload("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", {"replicas": 2, "leaderWorkerTemplate": _LEADERS}),
    _workload("sparkoperator.k8s.io/v1beta2", "SparkApplication", {"driver": _SPARK, "executor": _SPARK}),
]
"""What pods are made of."""


def _nested() -> Any:
    value: Any = {}
    for _ in range(2000):
        value = {"a": value}
    return value


def _cycle() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


ODD_JSON = (
    None, True, 0, -1, 1, 2**31, 2**63, 2**64, 10**30, -(10**30), 0.5, -1e308, "", "x", "-1", "1e99", "9" * 40, "1Ei",
    "9223372036854775807", "16Pi", "\0", "\u2028", "a/b", "2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z", [], {}, [None], [[]], {"": ""}, {"a": None}, ["x"], {"name": ""},
)  # fmt: skip
"""What a JSON text can hold."""

ODD = (
    *ODD_JSON, float("nan"), float("inf"), "\ud800", b"x", b"\xff", (), ("a",), {1: 2}, {None: 1}, {(1, 2): 3}, {1, 2},
    object(), _nested, _cycle, 10**5000, complex(1), range(3),
)  # fmt: skip
"""What a caller of Python's can hand over."""

_KEYS = ("name", "namespace", "spec", "labels", "items", "x")
_ODD_KEYS = (*_KEYS, "\ud800", 3, 1.5, True, None, (1, 2), b"x")


def _made(odd: Any) -> Any:
    """A value that nobody else holds, as it may be changed itself."""
    return odd() if odd in (_nested, _cycle) else copy.deepcopy(odd)


def places(value: Any, depth: int = 0) -> Iterator[Place]:
    """Every place in plain data, as far as it is not nested without end: the container and the key or index there."""
    if depth > 20:
        return
    keys: Any = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key], depth + 1)


def mutated(manifest: Manifest, seed: int, odd: Sequence[Any] = ODD) -> Manifest:
    """A copy of the manifest with a few of its values replaced, taken away or added; its kind stays.

    Keys that are no texts come with the values that are no JSON, `ODD`.
    """
    random, keys = Random(seed), _ODD_KEYS if odd is ODD else _KEYS
    changed = copy.deepcopy(manifest)
    for _ in range(random.randint(1, 3)):
        found = [place for place in places(changed) if place[1] != "kind"]
        if not found:
            break
        container, key = random.choice(found)
        what = random.choice(("replace", "remove", "add"))
        if what == "remove":
            del container[key]
        elif what == "add" and isinstance(container, dict):
            container[random.choice(keys)] = _made(random.choice(odd))
        else:
            container[key] = _made(random.choice(odd))
    return changed

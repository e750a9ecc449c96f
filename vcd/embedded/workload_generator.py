"""Generates a simulated cluster and its workload: nodes by shape, queues, random mixes, manifests with times.

An ``Arrival`` is a set of objects to create at a time; a ``Feeder`` creates them by the cluster clock. All random
values are seeded: the same specification and seed result in the same objects.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from random import Random
from typing import Any, Final

import structlog

from vcd.embedded.cluster_clock import FARTHEST, ClusterClock, parse_seconds
from vcd.embedded.controllers.controller_base import (
    DEPLOYMENTS,
    JOBS,
    NODES,
    PODGROUPS,
    PODS,
    QUEUES,
    Obj,
    annotations_of,
)
from vcd.embedded.controllers.pod_properties import quota_usage
from vcd.embedded.kubelet import RUN_SECONDS
from vcd.embedded.resource_types import CRDS, PRIORITY_CLASSES, ResourceType
from vcd.embedded.schema_codec import at
from vcd.embedded.status_errors import StatusError
from vcd.embedded.store import Store
from vcd.model.controllers import GROUP_NAME
from vcd.model.quantity import QuantityError, resource_value

AT_SECONDS: Final = "vcd.sim/at-seconds"
SCHEDULER: Final = "volcano"
IMAGE: Final = "registry.example/work:1"

_RESOURCES: Final = ("cpu", "memory", "pods", "ephemeral-storage")
_TOPOLOGY: Final = {"zone": "topology.kubernetes.io/zone", "region": "topology.kubernetes.io/region"}
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_COUNTED: Final = re.compile(r"\s*(\d+)\s*[*x]\s*(.*)", re.DOTALL)
_REPLACED: Final = (CRDS, QUEUES, PRIORITY_CLASSES, "namespaces")
_INDEX: Final = re.compile(r"\{i(?:(%|//)([1-9]\d*))?\}")

log = structlog.get_logger("vcd.embedded")


class WorkloadError(ValueError):
    """A node shape, queue, mix or manifest is invalid; the message names the part and the allowed values."""


@dataclass(frozen=True)
class Arrival:
    """Objects that are created together, ``at`` seconds after the start; ``objects`` are (resource, object)."""

    at: float
    objects: tuple[tuple[str, Obj], ...]


class Feeder:
    """Creates arrivals in the order of their times, which are relative to the construction of the feeder.

    Only the next arrival has a timer, so a long trace needs no memory. An object that the store refuses is logged,
    added to ``refused`` as (resource/namespace/name, message), and skipped.
    """

    def __init__(self, store: Store, clock: ClusterClock, arrivals: Iterable[Arrival]) -> None:
        self._store = store
        self._clock = clock
        self._arrivals = iter(arrivals)
        self._start = clock.now()
        self.created = 0
        self.refused: list[tuple[str, str]] = []

    def start(self) -> None:
        """Wait for the next arrival."""
        arrival = next(self._arrivals, None)
        if arrival is not None:
            self._clock.call_at(self._start + arrival.at, lambda: self._arrive(arrival))

    def _arrive(self, arrival: Arrival) -> None:
        for resource, obj in arrival.objects:
            self._create(resource, obj)
        self.start()

    def _create(self, resource: str, obj: Obj) -> None:
        try:
            self._put(resource, obj)
        except StatusError as error:
            meta = obj.get("metadata") or {}
            name = meta.get("name") or meta.get("generateName") or "?"
            self.refused.append((f"{resource}/{meta.get('namespace', '')}/{name}", error.message))
            log.warning("object refused", resource=resource, name=name, error=error.message)
        else:
            self.created += 1

    def _put(self, resource: str, obj: Obj) -> None:
        """Create an object, or replace it if it exists and is of a kind in `_REPLACED`, which every cluster has."""
        try:
            self._store.create(resource, obj)
        except StatusError as error:
            if error.reason != "AlreadyExists" or resource not in _REPLACED:
                raise
            self._store.update(resource, obj)


# --- nodes and queues -----------------------------------------------------------------------------------------------


def parse_nodes(spec: str) -> list[Obj]:
    """Parse a specification such as ``100*cpu=32,memory=256Gi,nvidia.com/gpu=8,zone=z{i%3}`` to node manifests.

    Shapes are separated by ``;``. A shape is an optional count (``100*`` or ``100x``) and ``key=value`` pairs.
    Resources are cpu, memory, pods (default: 110), ephemeral-storage, ``hugepages-*``, and names with a domain whose
    value is a quantity. ``zone`` and ``region`` are topology labels, ``name`` is the nodes' name (default:
    ``node-{i}``), ``taint:key=value:Effect`` is a taint, ``label:key=value`` and all other pairs are labels. ``{i}``,
    ``{i%3}`` and ``{i//3}`` in values are replaced by the node's index in its shape. Raises WorkloadError.
    """
    nodes: list[Obj] = []
    for shape in filter(str.strip, spec.split(";")):
        counted = _COUNTED.fullmatch(shape)
        count, body = (int(counted[1]), counted[2]) if counted else (1, shape)
        pairs = [_pair(part) for part in filter(str.strip, body.split(","))]
        offset = 0 if any(key == "name" for key, _ in pairs) else len(nodes)
        nodes.extend(_node(pairs, index, offset) for index in range(count))
    if not nodes:
        raise WorkloadError(f"node shapes {spec!r} name no node; write for example 10*cpu=32,memory=256Gi")
    names = [node["metadata"]["name"] for node in nodes]
    doubled = next((name for name, count in Counter(names).items() if count > 1), None)
    if doubled is not None:
        raise WorkloadError(f"node name {doubled!r} is given to several nodes; put {{i}} into it")
    return nodes


def node(name: str, resources: dict[str, str], labels: dict[str, str], taints: Iterable[Obj] = ()) -> Obj:
    """Return a node manifest with these resources as capacity and allocatable; the default for pods is 110."""
    room = {"pods": "110", **resources}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "spec": {"taints": list(taints)} if taints else {},
        "status": {"capacity": room, "allocatable": dict(room)},
    }


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.strip().partition("=")
    if not sign or not key:
        raise WorkloadError(f"node shape part {text.strip()!r} must be key=value, as in cpu=32")
    return key, value


def _node(pairs: list[tuple[str, str]], index: int, offset: int) -> Obj:
    name = f"node-{offset + index}"
    resources: dict[str, str] = {}
    labels: dict[str, str] = {}
    taints: list[Obj] = []
    for key, raw in pairs:
        value = _INDEX.sub(lambda form: _indexed(form, index), raw)
        if key == "name":
            name = value
        elif key.startswith("taint:"):
            taints.append(_taint(key.removeprefix("taint:"), value))
        elif key.startswith("label:"):
            labels[key.removeprefix("label:")] = value
        elif _is_resource(key, value):
            resources[key] = value
        else:
            labels[_TOPOLOGY.get(key, key)] = value
    return node(name, resources, labels, taints)


def _indexed(form: re.Match[str], index: int) -> str:
    if form[1] == "%":
        return str(index % int(form[2]))
    return str(index // int(form[2]) if form[1] else index)


def _is_resource(key: str, value: str) -> bool:
    known = key in _RESOURCES or key.startswith("hugepages-")
    if not known and "/" not in key:
        return False
    try:
        resource_value(key, value)
    except QuantityError as error:
        if known:
            raise WorkloadError(f"node shape: {error}") from None
        return False
    return True


def _taint(key: str, value: str) -> Obj:
    text, _, effect = value.rpartition(":")
    if effect not in _EFFECTS:
        raise WorkloadError(f"taint {key}={value} must end in :{', :'.join(_EFFECTS)}")
    return {"key": key, "value": text, "effect": effect}


def parse_queues(spec: str) -> list[Obj]:
    """Parse ``name:weight`` pairs separated by commas (``research:3,serving``) to Queue manifests; default weight 1.

    Raises WorkloadError.
    """
    queues = []
    for part in filter(None, (each.strip() for each in spec.split(","))):
        name, _, weight = part.partition(":")
        if weight and not (weight.isascii() and weight.isdigit() and int(weight) > 0):
            raise WorkloadError(f"queue {part!r}: the weight must be a whole number above zero")
        if not name:
            raise WorkloadError(f"queue {part!r} must be name:weight")
        queues.append(queue(name, int(weight or 1)))
    return queues


def queue(name: str, weight: int = 1) -> Obj:
    """Return a Queue manifest."""
    return {"metadata": {"name": name}, "spec": {"weight": weight, "reclaimable": True}}


def install(store: Store, nodes: Iterable[Obj], queues: Iterable[Obj] = ()) -> None:
    """Create nodes and queues; update the spec of existing queues. Raises StatusError."""
    for each in queues:
        try:
            store.create(QUEUES, each)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
            store.patch(QUEUES, "", each["metadata"]["name"], {"spec": each["spec"]})
    for each in nodes:
        store.create(NODES, each)


# --- workloads ------------------------------------------------------------------------------------------------------


def pod_spec(requests: dict[str, str], **more: object) -> Obj:
    """Return the spec of a pod with one container that requests ``requests``; extended resources are also limits."""
    limits = {name: amount for name, amount in requests.items() if name not in _RESOURCES}
    resources = {"requests": dict(requests), **({"limits": limits} if limits else {})}
    return {
        "schedulerName": SCHEDULER,
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": IMAGE, "resources": resources}],
        **more,
    }


def _metadata(name: str, **more: object) -> Obj:
    return {"namespace": "default", "name": name, **more}


def pod(name: str, spec: Obj, annotations: dict[str, str]) -> Obj:
    """Return a pod manifest."""
    return {"metadata": _metadata(name, annotations=annotations), "spec": spec}


def gang(
    name: str, queue_name: str, pods: list[Obj], annotations: dict[str, str] | None = None
) -> tuple[tuple[str, Obj], ...]:
    """Return a PodGroup that needs all of these equal pods, and the pods with the annotation that names it."""
    spec = {"minMember": len(pods), "queue": queue_name, "minResources": quota_usage(pods[0]["spec"], len(pods))}
    members = []
    for each in pods:
        marks = {**annotations_of(each), GROUP_NAME: name}
        members.append((PODS, {**each, "metadata": {**each["metadata"], "annotations": marks}}))
    return ((PODGROUPS, {"metadata": _metadata(name, annotations=annotations or {}), "spec": spec}), *members)


def task(name: str, replicas: int, spec: Obj, annotations: dict[str, str]) -> Obj:
    """Return a task of a Volcano Job."""
    return {"name": name, "replicas": replicas, "template": {"metadata": {"annotations": annotations}, "spec": spec}}


def job(name: str, queue_name: str, tasks: list[Obj], annotations: dict[str, str], **more: object) -> tuple[str, Obj]:
    """Return a Volcano Job that needs all pods of its tasks."""
    needed = sum(each["replicas"] for each in tasks)
    spec = {"schedulerName": SCHEDULER, "queue": queue_name, "minAvailable": needed, "tasks": tasks, **more}
    return JOBS, {"metadata": _metadata(name, annotations=annotations), "spec": spec}


@dataclass(frozen=True)
class Mix:
    """The numbers of generated workloads by kind, and their sizes and run times.

    ``every``: mean seconds between two arrivals (exponentially distributed); ``size``: pods of a gang, job or
    Deployment; ``run``: seconds that a pod runs (log-uniform); ``cpu``: cores of a pod, with 2 to 8 GiB for each;
    ``gpu``: GPUs of a pod with GPUs; ``gpu_share``: percentage of workloads with GPUs. Ranges are inclusive.
    """

    gangs: int = 20
    jobs: int = 20
    deployments: int = 4
    pods: int = 40
    every: float = 2.0
    size: tuple[int, int] = (2, 16)
    run: tuple[int, int] = (30, 600)
    cpu: tuple[int, int] = (1, 8)
    gpu: tuple[int, int] = (1, 4)
    gpu_share: int = 0


def parse_mix(spec: str) -> Mix:
    """Parse a mix such as ``gangs=20,jobs=10,run=30-300``: fields of Mix, ranges as ``low-high`` or one number.

    Raises WorkloadError.
    """
    kinds: dict[str, Any] = {field.name: type(field.default) for field in fields(Mix)}
    values: dict[str, Any] = {}
    for part in filter(None, (each.strip() for each in spec.split(","))):
        name, _, text = part.partition("=")
        name = name.replace("-", "_")
        if name not in kinds:
            raise WorkloadError(f"mix has no {name!r}; it has {', '.join(kinds)}")
        try:
            values[name] = _range(text) if kinds[name] is tuple else kinds[name](text)
        except ValueError:
            form = "a number or a range low-high" if kinds[name] is tuple else "a number"
            raise WorkloadError(f"mix: {name}={text!r} must be {form}") from None
    mix = Mix(**values)
    if min(mix.gangs, mix.jobs, mix.deployments, mix.pods) < 0 or not mix.every >= 0 or not 0 <= mix.gpu_share <= 100:
        raise WorkloadError("mix: counts and every must be zero or more, gpu_share a percentage")
    if max(mix.every, mix.run[1]) > FARTHEST:
        raise WorkloadError(f"mix: every and run must be {FARTHEST} seconds at most")
    return mix


def _range(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    bounds = int(low), int(high or low)
    if not 0 < bounds[0] <= bounds[1]:
        raise ValueError(text)
    return bounds


def generate(mix: Mix, queues: list[str], seed: int) -> Iterator[Arrival]:
    """Yield the arrivals of a mix in random order, each in a random one of these queues."""
    random = Random(seed)
    kinds = ["gang"] * mix.gangs + ["job"] * mix.jobs + ["deployment"] * mix.deployments + ["pod"] * mix.pods
    random.shuffle(kinds)
    at = 0.0
    counts = dict.fromkeys(kinds, 0)
    for kind in kinds:
        at += random.expovariate(1 / mix.every) if mix.every else 0.0
        name = f"{kind}-{counts[kind]}"
        counts[kind] += 1
        yield Arrival(at, _MAKERS[kind](_Draw(mix, random, random.choice(queues), name)))


@dataclass(frozen=True)
class _Draw:
    """A workload to generate: its name and queue, and the distributions of its random values."""

    mix: Mix
    random: Random
    queue: str
    name: str

    def size(self) -> int:
        return self.random.randint(*self.mix.size)

    def run(self) -> dict[str, str]:
        low, high = self.mix.run
        return {RUN_SECONDS: str(round(math.exp(self.random.uniform(math.log(low), math.log(high)))))}

    def requests(self) -> dict[str, str]:
        cores = self.random.randint(*self.mix.cpu)
        asked = {"cpu": str(cores), "memory": f"{cores * self.random.choice((2, 4, 8))}Gi"}
        if self.random.randrange(100) < self.mix.gpu_share:
            asked["nvidia.com/gpu"] = str(self.random.randint(*self.mix.gpu))
        return asked


def _make_gang(draw: _Draw) -> tuple[tuple[str, Obj], ...]:
    spec, run = pod_spec(draw.requests()), draw.run()
    pods = [pod(f"{draw.name}-{index}", spec, run) for index in range(draw.size())]
    return gang(draw.name, draw.queue, pods)


def _make_pod(draw: _Draw) -> tuple[tuple[str, Obj], ...]:
    marks = {**draw.run(), "scheduling.volcano.sh/queue-name": draw.queue}
    return ((PODS, pod(draw.name, pod_spec(draw.requests()), marks)),)


def _make_job(draw: _Draw) -> tuple[tuple[str, Obj], ...]:
    replicas, run = draw.size(), draw.run()
    workers = task("worker", replicas, pod_spec(draw.requests()), run)
    tasks = [task("master", 1, pod_spec({"cpu": "1", "memory": "2Gi"}), run), workers]
    policies = [{"event": "PodEvicted", "action": "RestartJob"}]
    return (job(draw.name, draw.queue, tasks, {}, policies=policies),)


def _make_deployment(draw: _Draw) -> tuple[tuple[str, Obj], ...]:
    """Return a Deployment; its pods do not end."""
    labels = {"app": draw.name}
    marks = {"labels": labels, "annotations": {"scheduling.volcano.sh/queue-name": draw.queue}}
    spec = {
        "replicas": draw.size(),
        "selector": {"matchLabels": labels},
        "template": {"metadata": marks, "spec": pod_spec(draw.requests(), restartPolicy="Always")},
    }
    return ((DEPLOYMENTS, {"metadata": _metadata(draw.name, labels=labels), "spec": spec}),)


_MAKERS: Final[dict[str, Callable[[_Draw], tuple[tuple[str, Obj], ...]]]] = {
    "gang": _make_gang,
    "pod": _make_pod,
    "job": _make_job,
    "deployment": _make_deployment,
}


def scheduled_manifests(store: Store, manifests: Iterable[Obj]) -> list[Arrival]:
    """Return arrivals of single objects by their annotation ``vcd.sim/at-seconds`` (default 0), sorted by time.

    Kinds that cannot be created are left out. Raises WorkloadError for an invalid time.
    """
    served: dict[tuple[str, str], ResourceType] = {}
    for each in store.registry:
        if {"create", "get"} <= set(each.verbs):
            served.setdefault((each.group, each.kind), each)
    found: list[Arrival] = []
    for manifest in manifests:
        rtype = served.get((str(manifest.get("apiVersion")).rpartition("/")[0], str(manifest.get("kind"))))
        if rtype is None:
            continue
        marks = at(manifest, "metadata.annotations")
        text = marks.get(AT_SECONDS, "0") if isinstance(marks, dict) else "0"
        where = f"{rtype.kind} {at(manifest, 'metadata.name')}: {AT_SECONDS}"
        try:
            seconds = parse_seconds(text)
        except (TypeError, ValueError):
            raise WorkloadError(f"{where}: {text!r} is not a number of seconds") from None
        if seconds > FARTHEST:
            raise WorkloadError(f"{where}: {text} is more than the {FARTHEST} there are")
        found.append(Arrival(seconds, ((rtype.resource, {**manifest, "apiVersion": rtype.api_version}),)))
    return sorted(found, key=lambda arrival: arrival.at)

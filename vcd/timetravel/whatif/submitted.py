"""Manifests of work as the groups and pods that controllers would make of them, for a cluster that a log knows."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from vcd.model.codec import BadObject, from_manifest
from vcd.model.manifests import (
    GROUP_NAME,
    QUEUE_NAME,
    Manifest,
    defaulted,
    flatten,
    group_for,
    with_limits_as_requests,
)
from vcd.model.objects import Pod, PodGroup, PriorityClass
from vcd.model.quantity import QuantityError, format_resource
from vcd.model.requests import pod_requests
from vcd.state.cluster import ClusterState
from vcd.state.records import TASK_SPEC, GroupRecord

JOB_NAME = "volcano.sh/job-name"
_MIN_MEMBER = "scheduling.volcano.sh/group-min-member"
_UID = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_READ = "a Pod, a PodGroup, a Volcano Job, a batch/v1 Job or a Deployment"


@dataclass
class Submitted:
    """Groups and pods, each in the order given; ``notes`` say what of the manifests was passed over."""

    groups: list[PodGroup] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class _Marks(msgspec.Struct, frozen=True):
    labels: dict[str, Any] | None = None
    annotations: dict[str, Any] | None = None


class _Template(msgspec.Struct, frozen=True):
    metadata: _Marks | None = None
    spec: Manifest | None = None


class _Task(msgspec.Struct, rename="camel"):
    template: _Template = _Template()
    name: str | None = None
    replicas: int = 0
    min_available: int | None = None
    depends_on: Any = None
    partition_policy: Any = None


class _JobSpec(msgspec.Struct, rename="camel"):
    """A Volcano Job's, as far as scheduling looks at it."""

    tasks: list[_Task] = []
    min_available: int | None = None
    queue: str | None = None
    priority_class_name: str | None = None
    volumes: Any = None


class _WorkloadSpec(msgspec.Struct, rename="camel"):
    """A Deployment's, or a batch Job's."""

    template: _Template = _Template()
    replicas: int | None = None
    parallelism: int | None = None
    completions: int | None = None


def submitted(manifests: Iterable[Any], state: ClusterState, created: str) -> Submitted:
    """What manifests become when they are submitted to a cluster in ``state`` at ``created`` (RFC 3339).

    Every pod is taken as this scheduler's. Raises BadObject for what cannot be read, is no work, is there already, or
    names what is not there.
    """
    found = Submitted()
    for manifest in flatten(manifests):
        _EXPANSIONS.get(_kind_of(manifest), _other)(_named(manifest), found)
    if not found.pods:
        raise BadObject("(no kind)", "", f"there is no pod in what is submitted; it takes {_READ}")
    _Admission(state, created).admit(found)
    return found


def job_name(group: str, pod: Pod | None) -> str:
    """The name by which users know a job: of its group, without the uid that a Volcano Job's has in it; where the group
    was made for a workload or a bare pod, of that, by one of its pods."""
    if pod is None or not group.partition("/")[2].startswith("podgroup-"):
        return _UID.sub("", group)
    owner = next((owner.name for owner in pod.metadata.owner_references if owner.controller), "")
    return f"{pod.metadata.namespace}/{owner or pod.metadata.name}"


def _kind_of(manifest: Manifest) -> tuple[str, str]:
    kind, group = str(manifest.get("kind", "")), str(manifest.get("apiVersion", "")).rpartition("/")[0]
    return (kind, group) if kind == "Job" else (kind, "")


def _named(manifest: Manifest) -> Manifest:
    """With a namespace, and a uid in the form of an API server's, the same for the same name."""
    meta = manifest.get("metadata") or {}
    if not isinstance(meta, Mapping):
        raise BadObject(str(manifest.get("kind", "")), "", "its metadata is no mapping")
    space, name = meta.get("namespace") or "default", str(meta.get("name") or "")
    if not name:
        raise BadObject(str(manifest.get("kind", "")) or "(no kind)", "", "it has no metadata.name")
    for field_name in ("labels", "annotations"):
        if not isinstance(meta.get(field_name) or {}, Mapping):
            raise BadObject(str(manifest.get("kind", "")), f"{space}/{name}", f"metadata.{field_name} is no mapping")
    identity = f"{manifest.get('kind')}/{space}/{name}"
    uid = meta.get("uid") or str(uuid.uuid5(uuid.NAMESPACE_URL, identity))
    return defaulted({**manifest, "metadata": {**meta, "namespace": space, "uid": uid}})


def _other(manifest: Manifest, _: Submitted) -> None:
    meta = manifest["metadata"]
    kind = str(manifest.get("kind", "")) or "(no kind)"
    of = f" of apiVersion {manifest.get('apiVersion')}" if kind == "Job" else ""
    raise BadObject(kind, f"{meta['namespace']}/{meta['name']}", f"what is submitted{of} is not read; it takes {_READ}")


# --- kinds ------------------------------------------------------------------------------------------------------------


def _pod(manifest: Manifest, found: Submitted) -> None:
    _, obj, _ = from_manifest(manifest)
    assert isinstance(obj, Pod)
    found.pods.append(obj)


def _group(manifest: Manifest, found: Submitted) -> None:
    _, obj, _ = from_manifest(manifest)
    assert isinstance(obj, PodGroup)
    found.groups.append(obj)


def _volcano_job(manifest: Manifest, found: Submitted) -> None:
    """A group with the job's minimum, and each task's pods (Volcano ``pkg/controllers/job``)."""
    meta, spec = manifest["metadata"], _spec(manifest, _JobSpec)
    tasks = [_checked(manifest, number, task) for number, task in enumerate(spec.tasks)]
    minima = {str(task.name): _minimum(task) for task in tasks}
    total = sum(task.replicas for task in tasks)
    minimum = spec.min_available or sum(minima.values())
    if minimum > total:
        raise _bad(manifest, f"spec.minAvailable is {minimum}, more than the {total} replicas of its tasks")
    name = f"{meta['name']}-{meta['uid']}"
    marks = {GROUP_NAME: name, JOB_NAME: meta["name"], QUEUE_NAME: spec.queue or "default"}
    pods: list[tuple[_Task, list[Pod]]] = []
    for task in tasks:
        own = {**marks, TASK_SPEC: str(task.name)}
        priority = {"priorityClassName": spec.priority_class_name} if spec.priority_class_name else {}
        names = [f"{meta['name']}-{task.name}-{index}" for index in range(task.replicas)]
        labels = {key: text for key, text in own.items() if key != GROUP_NAME}
        pods.append((task, [_made(manifest, task.template, one, own, labels, priority) for one in names]))
    group_spec: Manifest = {"minMember": minimum, "minTaskMember": minima, "queue": spec.queue or "default"}
    if spec.priority_class_name:
        group_spec["priorityClassName"] = spec.priority_class_name
    group_spec["minResources"] = _least(manifest, pods, minimum)
    _group({"kind": "PodGroup", "metadata": {**_inherited(meta), "name": name}, "spec": group_spec}, found)
    found.pods.extend(pod for _, made in pods for pod in made)
    found.notes.extend(_passed_over(meta["name"], spec))


def _checked(manifest: Manifest, number: int, task: _Task) -> _Task:
    task.name = task.name or f"default{number}"
    if task.replicas < 0 or not 0 <= _minimum(task) <= task.replicas:
        raise _bad(
            manifest,
            f"spec.tasks[{number}]: minAvailable {_minimum(task)} of {task.replicas} replicas; both are 0 or more, and "
            "minAvailable at most the replicas",
        )
    if task.partition_policy is not None:
        raise _bad(manifest, f"spec.tasks[{number}].partitionPolicy is not read here; submit its PodGroup and pods")
    return task


def _minimum(task: _Task) -> int:
    return task.replicas if task.min_available is None else task.min_available


def _passed_over(name: str, spec: _JobSpec) -> Iterator[str]:
    if any(task.depends_on for task in spec.tasks):
        yield f"dependsOn of job {name} is passed over: all its pods come at once"
    if spec.volumes:
        yield f"volumes of job {name} are passed over"


def _least(manifest: Manifest, pods: list[tuple[_Task, list[Pod]]], minimum: int) -> dict[str, str]:
    """What the least number of pods asks for: each task's minimum first where that is enough, else in order."""
    minima = [_minimum(task) for task, _ in pods]
    counts = minima if sum(minima) <= minimum else [0] * len(pods)
    total: dict[str, int] = {}
    left = minimum - sum(counts)
    for (_, made), least in zip(pods, counts, strict=True):
        more = min(left, len(made) - least)
        left -= more
        for pod in made[: least + more]:
            for resource, amount in _requests(manifest, pod).items():
                total[resource] = total.get(resource, 0) + amount
    return {resource: format_resource(resource, amount) for resource, amount in total.items()}


def _requests(manifest: Manifest, pod: Pod) -> dict[str, int]:
    try:
        return pod_requests(with_limits_as_requests(pod).spec)
    except QuantityError as error:
        raise _bad(manifest, f"resources of {pod.key}: {error}") from error


def _workload(manifest: Manifest, found: Submitted) -> None:
    """The pods of a Deployment or a batch Job; one group holds them, with the minimum that an annotation states."""
    meta, spec = manifest["metadata"], _spec(manifest, _WorkloadSpec)
    if manifest["kind"] == "Deployment":
        count = 1 if spec.replicas is None else spec.replicas
    else:
        parallel = 1 if spec.parallelism is None else spec.parallelism
        count = parallel if spec.completions is None else min(parallel, spec.completions)
        if spec.completions is not None and spec.completions > parallel:
            found.notes.append(
                f"job {meta['name']} runs {parallel} of its {spec.completions} completions at a time; only the first"
                f" {parallel} are looked at"
            )
    annotations = meta.get("annotations") or {}
    text = str(annotations.get(_MIN_MEMBER, ""))
    least = int(text) if text.isascii() and text.isdigit() else 1
    pods = [_made(manifest, spec.template, f"{meta['name']}-{index}", {}, {}, {}) for index in range(max(0, count))]
    if not pods:
        return
    implied = group_for(with_limits_as_requests(pods[0]))
    if GROUP_NAME not in pods[0].metadata.annotations:
        implied["metadata"]["annotations"].update(_inherited(meta)["annotations"])
        implied["spec"]["minMember"] = least
        implied["spec"]["minResources"] = {
            resource: format_resource(resource, amount * least)
            for resource, amount in _requests(manifest, pods[0]).items()
        }
        _group(implied, found)
        pods = [_in_group(pod, implied["metadata"]["name"]) for pod in pods]
    found.pods.extend(pods)


_EXPANSIONS = {
    ("Pod", ""): _pod,
    ("PodGroup", ""): _group,
    ("Job", "batch.volcano.sh"): _volcano_job,
    ("Job", "batch"): _workload,
    ("Deployment", ""): _workload,
}


def _made(
    owner: Manifest,
    template: _Template,
    name: str,
    annotations: dict[str, str],
    labels: dict[str, str],
    spec: Manifest,
) -> Pod:
    """A pod of a template; what ``spec`` says holds where the template says nothing."""
    meta, mine = template.metadata or _Marks(), owner["metadata"]
    pod = {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": mine["namespace"],
            "uid": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{mine['uid']}/{name}")),
            "labels": {**(meta.labels or {}), **labels},
            "annotations": {**(meta.annotations or {}), **annotations},
            "ownerReferences": [
                {
                    "kind": owner["kind"],
                    "apiVersion": owner.get("apiVersion", ""),
                    "name": mine["name"],
                    "uid": mine["uid"],
                    "controller": True,
                }
            ],
        },
        "spec": {**spec, **{key: value for key, value in (template.spec or {}).items() if value != ""}},
    }
    try:
        _, obj, _ = from_manifest(pod)
    except BadObject as error:
        raise _bad(owner, f"in its template: {error}") from error
    assert isinstance(obj, Pod)
    if not obj.spec.containers:
        raise _bad(owner, "its template has no spec.containers")
    return obj


def _inherited(meta: Manifest) -> Manifest:
    """What a group has of its workload's metadata: identity, and the labels and annotations that are Volcano's."""
    marks = {
        name: {key: text for key, text in (meta.get(name) or {}).items() if key.startswith("volcano.sh/")}
        for name in ("labels", "annotations")
    }
    return {"namespace": meta["namespace"], "uid": f"podgroup-{meta['uid']}", **marks}


def _spec(manifest: Manifest, kind: type[Any]) -> Any:
    try:
        return msgspec.convert(manifest.get("spec") or {}, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _bad(manifest, f"spec: {error}") from error


def _bad(manifest: Manifest, message: str) -> BadObject:
    meta = manifest["metadata"]
    return BadObject(str(manifest["kind"]), f"{meta['namespace']}/{meta['name']}", message)


# --- admission --------------------------------------------------------------------------------------------------------


class _Admission:
    """What the API server and Volcano's controllers add to pods and groups, and what they refuse."""

    def __init__(self, state: ClusterState, created: str) -> None:
        self._state = state
        self._created = created
        self._classes = {
            name: obj for name, obj in state.others.get("PriorityClass", {}).items() if isinstance(obj, PriorityClass)
        }

    def admit(self, found: Submitted) -> None:
        """Fill in and check; every pod is in a group afterwards."""
        groups = {group.key: self._new(group, group.key in self._state.groups) for group in found.groups}
        pods: dict[str, Pod] = {}
        for pod in found.pods:
            if pod.key in pods:
                raise BadObject("Pod", pod.key, "it is submitted twice")
            pods[pod.key] = made = self._pod(pod, groups)
            group = f"{pod.metadata.namespace}/{made.metadata.annotations[GROUP_NAME]}"
            if group not in groups and group not in self._state.groups:
                raise BadObject(
                    "Pod", pod.key, f"its group {group} is neither in the log nor submitted; submit the PodGroup, too"
                )
        for group_object in groups.values():
            GroupRecord.of(group_object)  # raises for quantities that cannot be read
        found.groups, found.pods = list(groups.values()), list(pods.values())

    def _new(self, obj: Any, there: bool) -> Any:
        if there:
            kind = type(obj).__name__
            raise BadObject(kind, obj.key, "the cluster has one of that name already; submit it under another name")
        meta = msgspec.structs.replace(obj.metadata, creation_timestamp=self._created)
        status = type(obj.status)() if isinstance(obj, PodGroup) else obj.status
        return msgspec.structs.replace(obj, metadata=meta, status=status)

    def _pod(self, pod: Pod, groups: dict[str, PodGroup]) -> Pod:
        pod = self._new(with_limits_as_requests(pod), pod.key in self._state.tasks.row_of)
        try:
            pod_requests(pod.spec)
        except QuantityError as error:
            raise BadObject("Pod", pod.key, f"resources: {error}") from error
        names = self._state.settings.scheduler_names
        ours = not names or pod.spec.scheduler_name in names
        spec = msgspec.structs.replace(
            pod.spec,
            node_name="",
            scheduler_name=pod.spec.scheduler_name if ours else names[0],
            priority=self._priority(pod),
        )
        pod = msgspec.structs.replace(pod, spec=spec, status=type(pod.status)(phase="Pending"))
        if GROUP_NAME not in pod.metadata.annotations:
            implied = from_manifest(group_for(pod))[1]
            assert isinstance(implied, PodGroup)
            groups.setdefault(implied.key, implied)
            pod = _in_group(pod, implied.metadata.name)
        return pod

    def _priority(self, pod: Pod) -> int | None:
        """Its own; else its class's, else the default class's."""
        name = pod.spec.priority_class_name
        if pod.spec.priority is not None:
            return pod.spec.priority
        if name:
            if name not in self._classes:
                raise BadObject("Pod", pod.key, f"its priorityClassName {name} is no PriorityClass that the log knows")
            return self._classes[name].value
        defaults = [(key, obj.value) for key, obj in self._classes.items() if obj.global_default]
        return min(defaults)[1] if defaults else None


def _in_group(pod: Pod, name: str) -> Pod:
    meta = msgspec.structs.replace(pod.metadata, annotations={**pod.metadata.annotations, GROUP_NAME: name})
    return msgspec.structs.replace(pod, metadata=meta)

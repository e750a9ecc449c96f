"""Workloads as the groups and pods that controllers make of them: one reading of manifests for plans and what-ifs."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from vcd.model.codec import BadObject, from_manifest
from vcd.model.controllers import (
    GROUP_NAME,
    Manifest,
    group_of_job,
    least_pods,
    min_member,
    pod_of_task,
    pod_of_template,
    tasks_of,
    template_spec,
    total_replicas,
    with_defaults,
)
from vcd.model.kinds import KINDS
from vcd.model.manifests import group_for, with_scheduling_defaults
from vcd.model.objects import NetworkTopology, Pod, PodGroup, altered
from vcd.model.quantity import QuantityError
from vcd.model.requests import format_sum, pod_requests

READ = (
    "a Pod, a PodGroup, a Volcano Job, a batch/v1 Job, a Deployment, a ReplicaSet, a ReplicationController, a"
    " StatefulSet, a CronJob (of either Job)"
)
"""What is understood, in words."""
_OVER = frozenset({"Completed", "Failed", "Aborted", "Terminated", "Completing", "Aborting", "Terminating"})
"""States in which a Volcano Job makes no more pods."""
_MOST_PODS = 100_000
"""Of one workload; more is taken for a mistake."""
_READ_LEVELS = 5
"""How deep the fields lie that are read of a spec: ``tasks``, one of them, its ``partitionPolicy``, what is in that."""


class Work(msgspec.Struct):
    """Groups and pods, each in the order given; ``notes`` say what of the manifests was passed over."""

    groups: list[PodGroup] = msgspec.field(default_factory=list)
    pods: list[Pod] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)


Admit = Callable[[Pod], Pod]
"""Returns a pod with what the API server fills in as a controller creates it."""


class _Marks(msgspec.Struct, frozen=True):
    labels: dict[str, Any] | None = None
    annotations: dict[str, Any] | None = None


class _Template(msgspec.Struct, frozen=True):
    metadata: _Marks | None = None
    spec: Manifest | None = None


class _Partitions(msgspec.Struct, rename="camel"):
    total_partitions: int = 0
    partition_size: int = 0
    min_partitions: int = 0
    network_topology: NetworkTopology | None = None


class TaskSpec(msgspec.Struct, rename="camel"):
    """A task of a Volcano Job: every field there is; what is Any is not looked at."""

    template: _Template = _Template()
    name: str | None = None
    replicas: int = 0
    min_available: int | None = None
    depends_on: Any = None
    partition_policy: _Partitions | None = None
    topology_policy: str = ""
    policies: Any = None
    max_retry: Any = None


class JobSpec(msgspec.Struct, rename="camel"):
    """A Volcano Job's spec: every field there is; what is Any is not looked at."""

    tasks: list[TaskSpec] = []
    min_available: int | None = None
    queue: str | None = None
    priority_class_name: str | None = None
    network_topology: NetworkTopology | None = None
    volumes: Any = None
    scheduler_name: Any = None
    policies: Any = None
    plugins: Any = None
    running_estimate: Any = None
    max_retry: Any = None
    ttl_seconds_after_finished: Any = None
    min_success: Any = None


class _WorkloadSpec(msgspec.Struct, rename="camel"):
    """What counts pods in a set of pods or a batch Job."""

    template: _Template = _Template()
    replicas: int | None = None
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool = False
    volume_claim_templates: Any = None


class _CronSpec(msgspec.Struct, rename="camel"):
    job_template: _Template = _Template()
    suspend: bool = False


def is_workload(manifest: Manifest) -> bool:
    """Whether pods are made of a manifest: one of a kind that this module knows."""
    return kind_of(manifest) in _EXPANSIONS


def named(manifest: Manifest, uid: str = "") -> Manifest:
    """With a namespace and a uid, ``uid`` where it has none. Raises BadObject for metadata that are none."""
    meta, kind = manifest.get("metadata") or {}, str(manifest.get("kind", ""))
    if not isinstance(meta, Mapping):
        raise BadObject(kind, "", "its metadata is no mapping")
    space, name = meta.get("namespace") or "default", str(meta.get("name") or "")
    if not name:
        raise BadObject(kind or "(no kind)", "", "it has no metadata.name")
    for field_name in ("labels", "annotations"):
        if not isinstance(meta.get(field_name) or {}, Mapping):
            raise BadObject(kind, f"{space}/{name}", f"metadata.{field_name} is no mapping")
    return {**manifest, "metadata": {**meta, "namespace": space, "uid": str(meta.get("uid") or uid)}}


def identity(manifest: Manifest) -> tuple[str, str, str]:
    """Kind, namespace and name of a named workload, as ``owners_in`` gives them."""
    meta = manifest["metadata"]
    return str(manifest["kind"]), str(meta["namespace"]), str(meta["name"])


def kind_of(manifest: Manifest) -> tuple[str, str]:
    """Kind and API group."""
    return str(manifest.get("kind", "")), str(manifest.get("apiVersion", "")).rpartition("/")[0]


def expand(manifest: Manifest, found: Work, admit: Admit = with_scheduling_defaults) -> None:
    """Add the groups and pods of a workload; it has a name, a namespace and a uid. One that is over adds none.

    Raises BadObject for what cannot be read.
    """
    if _is_over(manifest):
        found.notes.append(f"{called(manifest)} is over, and makes no pods")
        return
    _EXPANSIONS[kind_of(manifest)](manifest, found, admit)


def owners_in(manifests: Iterable[Manifest]) -> frozenset[tuple[str, str, str]]:
    """Kind, namespace and name of what owns some of the manifests: what these are made of is given."""
    return frozenset(
        (str(owner.get("kind", "")), str(meta.get("namespace") or "default"), str(owner.get("name", "")))
        for manifest in manifests
        for meta in [manifest.get("metadata") or {}]
        for owner in _list_of_mappings(meta.get("ownerReferences"))
    )


def makes_pods(manifest: Manifest) -> bool:
    """Whether a manifest of a kind that is not read is a DaemonSet or holds a pod's template, anywhere."""
    if kind_of(manifest) == ("DaemonSet", "apps"):
        return True
    waiting: list[Any] = [manifest.get("spec")]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            if isinstance(value.get("containers"), list):
                return True
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
    return False


def passed_over(manifests: Iterable[Manifest]) -> Iterator[str]:
    """Sentences about manifests that nobody reads: each that makes pods, the others by kind."""
    rest: Counter[str] = Counter()
    for manifest in manifests:
        kind = str(manifest.get("kind", "")) or "(no kind)"
        if makes_pods(manifest):
            yield f"{called(manifest)} is not read, so its pods are not planned; what is: {READ}"
        else:
            rest[kind] += 1
    if rest:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(rest.items()))
        yield f"passed over, as no scheduler reads them: {counts}"


def _list_of_mappings(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def called(manifest: Manifest) -> str:
    """Kind, namespace and name, for messages."""
    meta, kind = manifest.get("metadata") or {}, str(manifest.get("kind", "")) or "(no kind)"
    space = "" if kind in KINDS and not KINDS[kind].namespaced else f"{meta.get('namespace') or 'default'}/"
    return f"{kind} {space}{meta.get('name', '')}"


def _is_over(manifest: Manifest) -> bool:
    status = manifest.get("status")
    if not isinstance(status, Mapping) or manifest.get("kind") != "Job":
        return False
    state = status.get("state")
    if isinstance(state, Mapping) and state.get("phase") in _OVER:
        return True
    return any(
        each.get("type") in ("Complete", "Failed") and each.get("status") == "True"
        for each in _list_of_mappings(status.get("conditions"))
    )


# --- kinds ------------------------------------------------------------------------------------------------------------


def _volcano_job(manifest: Manifest, found: Work, admit: Admit) -> None:
    """A group with the job's minimum, and each task's pods."""
    spec = _spec(manifest, JobSpec)
    job = with_defaults({**manifest, "spec": msgspec.to_builtins(spec)})
    for number, task in enumerate(tasks_of(job)):
        _check_task(manifest, number, task)
    _not_negative(manifest, "spec.minAvailable", spec.min_available)
    total, minimum = _count(manifest, total_replicas(job)), job["spec"]["minAvailable"]
    if minimum > total:
        raise _bad(manifest, f"spec.minAvailable is {minimum}, more than the {total} replicas of its tasks")
    if not total:
        why = "none of spec.tasks has replicas" if spec.tasks else "spec.tasks is empty"
        found.notes.append(f"{called(manifest)} makes no pods: {why}")
    pods = [
        admit(_typed(manifest, pod_of_task(job, task, index)))
        for task in tasks_of(job)
        for index in range(task["replicas"])
    ]
    least: dict[str, int] = {}
    for task, count in ((task, count) for task, count in least_pods(job, lambda name: 0) if count):
        for resource, amount in _requests(manifest, _typed(manifest, pod_of_task(job, task, 0))).items():
            least[resource] = least.get(resource, 0) + amount * count
    group = group_of_job(job, {resource: format_sum(resource, amount) for resource, amount in least.items()})
    group["metadata"]["uid"] = f"podgroup-{job['metadata']['uid']}"
    _add_group(manifest, group, found)
    found.pods.extend(pods)
    found.notes.extend(_left_out(job["metadata"]["name"], spec))


def _check_task(manifest: Manifest, number: int, task: Manifest) -> None:
    where = f"spec.tasks[{number}]"
    _not_negative(manifest, f"{where}.replicas", task["replicas"])
    partitions = task.get("partitionPolicy")
    if partitions and partitions["partitionSize"] < 1:
        raise _bad(manifest, f"{where}.partitionPolicy.partitionSize is below 1")
    least = _not_negative(manifest, f"{where}.minAvailable", task["minAvailable"])
    if least > task["replicas"]:
        raise _bad(manifest, f"{where}: minAvailable {least} of {task['replicas']} replicas; make it at most these")
    _has_containers(manifest, template_spec(task), f"{where}.template")


def _left_out(name: str, spec: JobSpec) -> Iterator[str]:
    if any(task.depends_on for task in spec.tasks):
        yield f"dependsOn of job {name} is passed over: all its pods come at once"
    if spec.volumes:
        yield f"volumes of job {name} are passed over"


def _requests(manifest: Manifest, pod: Pod) -> dict[str, int]:
    try:
        return pod_requests(pod.spec)
    except QuantityError as error:
        raise _bad(manifest, f"resources of {pod.key}: {error}") from error


def _replicated(manifest: Manifest, found: Work, admit: Admit) -> None:
    """The pods of a Deployment, or of any set of pods."""
    spec = _spec(manifest, _WorkloadSpec)
    if spec.volume_claim_templates:
        found.notes.append(f"volumeClaimTemplates of {called(manifest)} are passed over")
    _has_containers(manifest, spec.template.spec, "spec.template")
    count = _not_negative(manifest, "spec.replicas", spec.replicas)
    if count == 0:
        found.notes.append(f"{called(manifest)} makes no pods: spec.replicas is 0")
    _alike(manifest, spec.template, count, found, admit)


def _batch_job(manifest: Manifest, found: Work, admit: Admit) -> None:
    spec = _spec(manifest, _WorkloadSpec)
    if spec.suspend:
        found.notes.append(f"{called(manifest)} is suspended, and makes no pods")
        return
    _has_containers(manifest, spec.template.spec, "spec.template")
    parallel = _not_negative(manifest, "spec.parallelism", spec.parallelism)
    _not_negative(manifest, "spec.completions", spec.completions)
    if 0 in (parallel, spec.completions):
        which = "completions" if parallel else "parallelism"
        found.notes.append(f"{called(manifest)} makes no pods: spec.{which} is 0")
    if spec.completions is not None and spec.completions > parallel:
        found.notes.append(
            f"job {manifest['metadata']['name']} runs {parallel} of its {spec.completions} completions at a time; only"
            f" the first {parallel} are looked at"
        )
    count = parallel if spec.completions is None else min(parallel, spec.completions)
    _alike(manifest, spec.template, count, found, admit)


def _alike(manifest: Manifest, template: _Template, count: int, found: Work, admit: Admit) -> None:
    """Pods of one template; one group holds them, with the minimum that an annotation states."""
    meta = manifest["metadata"]
    least = min_member(meta.get("annotations") or {})
    plain, pods = msgspec.to_builtins(template), []
    for index in range(_count(manifest, count)):
        pod = pod_of_template(manifest, plain)
        pod["metadata"]["name"] = f"{meta['name']}-{index}"
        pods.append(admit(_typed(manifest, pod)))
    if not pods:
        return
    requests = _requests(manifest, pods[0])
    if GROUP_NAME not in pods[0].metadata.annotations:
        implied = group_for(pods[0])
        own = (meta.get("annotations") or {}).items()
        implied["metadata"]["annotations"].update((key, text) for key, text in own if key.startswith("volcano.sh/"))
        implied["spec"]["minMember"] = least
        implied["spec"]["minResources"] = {
            resource: format_sum(resource, amount * least) for resource, amount in requests.items()
        }
        _add_group(manifest, implied, found)
        pods = [in_group(pod, implied["metadata"]["name"]) for pod in pods]
    found.pods.extend(pods)


def _cron_job(manifest: Manifest, found: Work, admit: Admit) -> None:
    """One run of a CronJob's template."""
    spec, meta = _spec(manifest, _CronSpec), manifest["metadata"]
    if spec.suspend:
        found.notes.append(f"{called(manifest)} is suspended, and makes no job")
        return
    marks = spec.job_template.metadata or _Marks()
    job = {
        "kind": "Job",
        "apiVersion": manifest.get("apiVersion", ""),
        "metadata": {
            **{key: meta[key] for key in ("name", "namespace", "uid")},
            "labels": marks.labels or {},
            "annotations": marks.annotations or {},
        },
        "spec": spec.job_template.spec or {},
    }
    found.notes.append(f"of {called(manifest)} one run is looked at")
    try:
        expand(job, found, admit)
    except BadObject as error:
        raise _bad(manifest, f"in spec.jobTemplate: {error.message}") from error


_EXPANSIONS = {
    ("Job", "batch.volcano.sh"): _volcano_job,
    ("Job", "batch"): _batch_job,
    **{
        (kind, group): _replicated
        for kind in ("Deployment", "ReplicaSet", "StatefulSet")
        for group in ("apps", "")  # what states no version is taken for what is read
    },
    ("ReplicationController", ""): _replicated,
    ("CronJob", "batch"): _cron_job,
    ("CronJob", "batch.volcano.sh"): _cron_job,
}


def _count(manifest: Manifest, count: int) -> int:
    if count > _MOST_PODS:
        raise _bad(manifest, f"it makes {count} pods; {_MOST_PODS} are the most that are looked at")
    return count


def _typed(owner: Manifest, pod: Manifest) -> Pod:
    """A pod as the type that scheduling reads, with the API server's defaults and a uid that is the same for the same
    name."""
    meta, uid = pod["metadata"], owner["metadata"]["uid"]
    meta["uid"] = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{uid}/{meta['name']}"))
    try:
        _, obj, _ = from_manifest(pod)
    except BadObject as error:
        raise _bad(owner, f"in its template: {error.message}") from error
    assert isinstance(obj, Pod)
    return with_scheduling_defaults(obj)


def _add_group(owner: Manifest, group: Manifest, found: Work) -> None:
    try:
        _, obj, _ = from_manifest(group)
    except BadObject as error:
        raise _bad(owner, f"its group: {error.message}") from error
    assert isinstance(obj, PodGroup)
    found.groups.append(obj)


def in_group(pod: Pod, name: str) -> Pod:
    """The pod as a member of a group."""
    return altered(pod, metadata={"annotations": {**pod.metadata.annotations, GROUP_NAME: name}})


def _spec(manifest: Manifest, kind: type[Any]) -> Any:
    """The spec as a type; what is null is taken as not given, as the API server takes it."""
    spec = manifest.get("spec")
    if spec is not None and not isinstance(spec, Mapping):
        raise _bad(manifest, f"spec is a mapping, not {type(spec).__name__}")
    try:
        return msgspec.convert(_without_nulls(spec or {}), kind, strict=False)
    except msgspec.ValidationError as error:
        words, _, path = str(error).partition(" - at `$")
        raise _bad(manifest, f"spec{path.rstrip('`')}: {words}") from error


def _without_nulls(value: Any, levels: int = _READ_LEVELS) -> Any:
    if isinstance(value, list) and levels:
        return [_without_nulls(each, levels - 1) for each in value]
    if not isinstance(value, Mapping) or not levels:
        return value
    kept = {key: entry for key, entry in value.items() if entry is not None}
    return {key: entry if key == "template" else _without_nulls(entry, levels - 1) for key, entry in kept.items()}


def _not_negative(manifest: Manifest, where: str, count: int | None) -> int:
    """The number of a field, 1 where it is not given."""
    if count is not None and count < 0:
        raise _bad(manifest, f"{where} is {count}; make it 0 or more")
    return 1 if count is None else count


def _has_containers(manifest: Manifest, spec: Any, where: str) -> None:
    if not isinstance(spec, Mapping) or not spec.get("containers"):
        raise _bad(manifest, f"{where} has no spec.containers; its pods need one at least")


def _bad(manifest: Manifest, message: str) -> BadObject:
    meta = manifest["metadata"]
    return BadObject(str(manifest["kind"]), f"{meta['namespace']}/{meta['name']}", message)

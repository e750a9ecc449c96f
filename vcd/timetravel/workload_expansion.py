"""Expands workloads into the groups and pods that their controllers create, for plans and what-ifs.

Most kinds are rows of `SHAPES`; kinds with rules of their own are functions in `_EXPANSIONS`. Limits on the number of
pods are checked before a pod is created, because a manifest can request any number.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from vcd.model import events as ev
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
from vcd.model.jobspec import problems
from vcd.model.kinds import KINDS
from vcd.model.manifests import group_for, with_scheduling_defaults
from vcd.model.objects import NetworkTopology, Node, Pod, PodGroup, altered
from vcd.model.projection_codec import BadObject, from_manifest
from vcd.model.quantity import QuantityError
from vcd.model.resource_requests import format_sum, pod_requests
from vcd.model.selectors import SelectorError, node_terms_match, tolerates
from vcd.model.wording import some
from vcd.text.manifest_templates import MANIFESTS
from vcd.timetravel.podtemplates import (
    SHAPES,
    PodsAt,
    WorkloadLayout,
    first_given,
    holders,
    value_at,
    with_spark_templates,
)

_OVER = frozenset({"Completed", "Failed", "Aborted", "Terminated", "Completing", "Aborting", "Terminating"})
"""States in which a Volcano Job creates no more pods."""
_ENDED = ("Complete", "Completed", "Failed", "Succeeded")
"""Conditions of a workload that creates no more pods."""
_MOST_PODS = 20_000
"""Pods of one workload, at most; one with more is refused before any of them is created."""
_QUEUE_LABEL = "volcano.sh/queue-name"
_READ_LEVELS = 5
"""The depth of the read fields of a spec: ``tasks``, one of them, its ``partitionPolicy``, the fields of that."""


class Work(msgspec.Struct):
    """Groups and pods, each in the given order; ``notes`` state which pods are not considered.

    ``others`` are the other submitted objects. ``unknown`` lists what is not understood, ``refused`` what an API
    server would refuse.
    """

    groups: list[PodGroup] = msgspec.field(default_factory=list)
    pods: list[Pod] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    others: list[ev.ObjectPut] = msgspec.field(default_factory=list)
    unknown: list[str] = msgspec.field(default_factory=list)
    refused: list[str] = msgspec.field(default_factory=list)


class ExpansionContext(NamedTuple):
    """What the pods of a workload depend on: ``admit`` fills in the API server's defaults; DaemonSets need nodes."""

    admit: Callable[[Pod], Pod] = with_scheduling_defaults
    nodes: Sequence[Node] = ()


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


class _Policy(msgspec.Struct, rename="camel"):
    event: str = ""
    events: list[str] = []
    exit_code: int | None = None
    action: str = ""
    timeout: str | None = None


class _JobVolume(msgspec.Struct, rename="camel"):
    mount_path: str = ""
    volume_claim_name: str = ""
    volume_claim: Any = None


class _DependsOn(msgspec.Struct):
    name: list[str] = []


class TaskSpec(msgspec.Struct, rename="camel"):
    """A task of a Volcano Job with all its fields; those of type Any are not read."""

    template: _Template = _Template()
    name: str | None = None
    replicas: int = 0
    min_available: int | None = None
    depends_on: _DependsOn | None = None
    partition_policy: _Partitions | None = None
    topology_policy: str = ""
    policies: list[_Policy] = []
    max_retry: int | None = None


class JobSpec(msgspec.Struct, rename="camel"):
    """A Volcano Job's spec with all its fields; those of type Any are not read."""

    tasks: list[TaskSpec] = []
    min_available: int | None = None
    queue: str | None = None
    priority_class_name: str | None = None
    network_topology: NetworkTopology | None = None
    volumes: list[_JobVolume] = []
    scheduler_name: Any = None
    policies: list[_Policy] = []
    plugins: dict[str, Any] = {}
    running_estimate: Any = None
    max_retry: int | None = None
    ttl_seconds_after_finished: int | None = None
    min_success: Any = None


class _CronSpec(msgspec.Struct, rename="camel"):
    job_template: _Template = _Template()
    suspend: bool = False


def is_workload(manifest: Manifest) -> bool:
    """Return whether this module can create the pods of a manifest's kind."""
    return kind_of(manifest) in SHAPES or kind_of(manifest) in _EXPANSIONS


def named(manifest: Manifest, uid: str = "") -> Manifest:
    """Return a manifest with a namespace and a uid, by default ``uid``. Raises BadObject for invalid metadata."""
    meta, kind = manifest.get("metadata") or {}, str(manifest.get("kind", ""))
    if not isinstance(meta, Mapping):
        raise BadObject(kind, "", "its metadata is not a mapping")
    space, name = meta.get("namespace") or "default", str(meta.get("name") or "")
    if not name:
        raise BadObject(kind or "(no kind)", "", "it has no metadata.name")
    for field_name in ("labels", "annotations"):
        if not isinstance(meta.get(field_name) or {}, Mapping):
            raise BadObject(kind, f"{space}/{name}", f"metadata.{field_name} is not a mapping")
    return {**manifest, "metadata": {**meta, "namespace": space, "uid": str(meta.get("uid") or uid)}}


def identity(manifest: Manifest) -> tuple[str, str, str]:
    """Return kind, namespace and name of a named workload, in the form of ``owners_in``."""
    meta = manifest["metadata"]
    return str(manifest["kind"]), str(meta["namespace"]), str(meta["name"])


def kind_of(manifest: Manifest) -> tuple[str, str]:
    """Return kind and API group."""
    return str(manifest.get("kind", "")), str(manifest.get("apiVersion", "")).rpartition("/")[0]


def expand(manifest: Manifest, found: Work, cluster: ExpansionContext = ExpansionContext()) -> None:  # noqa: B008 - a tuple
    """Add the groups and pods of a workload, which has a name, a namespace and a uid. A finished one adds none.

    Raises BadObject for what cannot be read.
    """
    if _is_over(manifest):
        found.notes.append(f"{called(manifest)} has ended, and makes no pods")
        return
    _EXPANSIONS.get(kind_of(manifest), _add_by_table)(manifest, found, cluster)


def owners_in(manifests: Iterable[Manifest]) -> frozenset[tuple[str, str, str]]:
    """Return kind, namespace and name of the owners of some manifests, whose pods are therefore given."""
    return frozenset(
        (str(owner.get("kind", "")), str(meta.get("namespace") or "default"), str(owner.get("name", "")))
        for manifest in manifests
        for meta in [manifest.get("metadata") or {}]
        for owner in _list_of_mappings(meta.get("ownerReferences"))
    )


def _list_of_mappings(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def called(manifest: Manifest) -> str:
    """Return kind, namespace and name, for messages."""
    meta, kind = manifest.get("metadata") or {}, str(manifest.get("kind", "")) or "(no kind)"
    space = "" if kind in KINDS and not KINDS[kind].namespaced else f"{meta.get('namespace') or 'default'}/"
    return f"{kind} {space}{meta.get('name', '')}"


def _is_over(manifest: Manifest) -> bool:
    status = manifest.get("status")
    if not isinstance(status, Mapping):
        return False
    state = status.get("state")
    if isinstance(state, Mapping) and state.get("phase") in _OVER:
        return True
    return any(
        each.get("type") in _ENDED and each.get("status") == "True"
        for each in _list_of_mappings(status.get("conditions"))
    )


# --- kinds ------------------------------------------------------------------------------------------------------------


def _volcano_job(manifest: Manifest, found: Work, cluster: ExpansionContext) -> None:
    """Add a group with the job's minimum, and each task's pods."""
    spec = _spec(manifest, JobSpec)
    job = with_defaults({**manifest, "spec": msgspec.to_builtins(spec)})
    for number, task in enumerate(tasks_of(job)):
        _check_task(manifest, number, task)
    _not_negative(manifest, "spec.minAvailable", spec.min_available)
    total, minimum = total_replicas(job), job["spec"]["minAvailable"]
    _check_count(manifest, total, {f"spec.tasks[{i}].replicas": task.replicas for i, task in enumerate(spec.tasks)})
    if minimum > total:
        raise _bad(manifest, f"spec.minAvailable is {minimum}, more than the {total} replicas of its tasks")
    if wrong := [*problems(job)] if spec.tasks else []:
        raise _bad(manifest, "; ".join(wrong))
    if not total:
        why = "none of spec.tasks has replicas" if spec.tasks else "spec.tasks is empty"
        found.notes.append(f"{called(manifest)} makes no pods: {why}")
    pods = [
        cluster.admit(_typed(manifest, pod_of_task(job, task, index)))
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
        yield MANIFESTS.sentence("depends on", {"job": name})
    if spec.volumes:
        yield MANIFESTS.sentence("volumes", {"job": name})


def _requests(manifest: Manifest, pod: Pod) -> dict[str, int]:
    try:
        return pod_requests(pod.spec)
    except QuantityError as error:
        raise _bad(manifest, f"resources of {pod.key}: {error}") from error


_PLAIN = WorkloadLayout()


class _Part(NamedTuple):
    """Equal pods of a workload: the common part of their names, their template, and their number."""

    name: str
    template: _Template
    number: int


def _add_by_table(manifest: Manifest, found: Work, cluster: ExpansionContext) -> None:
    shape = SHAPES[kind_of(manifest)]
    _check_spec(manifest)
    manifest = with_spark_templates(manifest)
    if shape.suspend and value_at(manifest, shape.suspend) is True:
        found.notes.append(f"{called(manifest)} is suspended, and makes no pods")
        return
    if value_at(manifest, "spec.volumeClaimTemplates"):
        found.notes.append(f"volumeClaimTemplates of {called(manifest)} are ignored")
    numbers: dict[str, int] = {}
    copies = _number(manifest, manifest, "", shape.copies, numbers) if shape.copies else 1
    parts = [part for each in shape.pods for part in _parts(manifest, each, numbers, found)]
    if not copies * sum(part.number for part in parts):
        zero = next((path for path, number in numbers.items() if not number), "")
        why = f"{zero} is 0" if zero else f"nothing is given at {shape.pods[0].at.rstrip('[]{}')}"
        found.notes.append(f"{called(manifest)} makes no pods: {why}")
        return
    _check_count(manifest, copies * sum(part.number for part in parts), numbers)
    for copy in range(copies):
        _add_pods(manifest, parts, found, cluster, shape, str(copy) if shape.copies else "")


def _parts(manifest: Manifest, pods: PodsAt, numbers: dict[str, int], found: Work) -> Iterator[_Part]:
    given = {"spec": {}, **manifest} if pods.at == "spec" else manifest
    for name, path, holder in holders(given, pods.at):
        if holder.get("suspend") is True and path != "spec":
            continue
        counts = [_number(manifest, holder, path, each, numbers) for each in pods.counts]
        if pods.most and value_at(holder, pods.most) is not None:
            most, at_once = _number(manifest, holder, path, pods.most, numbers), counts[-1]
            if most > at_once:
                field = pods.most.rpartition(".")[2]
                of = "" if path == "spec" else f" of each job of {path}"
                found.notes.append(
                    f"{called(manifest)} runs {at_once} of its {most} {field}{of} at a time; only the first {at_once}"
                    " are considered"
                )
            counts[-1] = min(at_once, most)
        count = math.prod(counts)
        where, template = first_given(holder, pods.template)
        yield _Part(pods.name or name, _template(manifest, template, f"{path}.{where}"), max(0, count - pods.less))


def _number(manifest: Manifest, holder: Manifest, path: str, field: str, numbers: dict[str, int]) -> int:
    """Return the number in a field of the table; it is also added to ``numbers`` by its path."""
    paths, _, default = field.partition("=")
    where, value = first_given(holder, paths)
    whole = f"{path}.{where}".removeprefix(".")
    number = _converted(manifest, value, int | None, whole)
    numbers[whole] = int(default or 1) if number is None else _not_negative(manifest, whole, number)
    return numbers[whole]


def _template(manifest: Manifest, value: Any, where: str) -> _Template:
    template: _Template = _converted(manifest, _without_nulls(value or {}), _Template, where)
    _has_containers(manifest, template.spec, where)
    return template


def _daemon_set(manifest: Manifest, found: Work, cluster: ExpansionContext) -> None:
    """Add a pod for each node on which the template may run, bound to it by affinity."""
    _check_spec(manifest)
    template = _template(manifest, value_at(manifest, "spec.template"), "spec.template")
    pod = _typed(manifest, _plain_pod(manifest, template, manifest["metadata"]["name"]))
    tolerant = _with_spec(template, tolerations=[*((template.spec or {}).get("tolerations") or ()), *_OUTAGES])
    pod = _typed(manifest, _plain_pod(manifest, tolerant, manifest["metadata"]["name"]))
    nodes = [node.metadata.name for node in cluster.nodes if _may_run(pod, node)]
    parts = [_Part(name, _with_spec(tolerant, affinity=_on_node(tolerant, name)), 1) for name in sorted(nodes)]
    if not parts:
        found.notes.append(f"{called(manifest)} makes no pods: the manifests have no node that its pods may run on")
    _add_pods(manifest, parts, found, cluster)


_OUTAGES = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect}
    for key, effect in (
        ("not-ready", "NoExecute"), ("unreachable", "NoExecute"), ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"), ("pid-pressure", "NoSchedule"), ("unschedulable", "NoSchedule"),
    )
]  # fmt: skip
"""Tolerations of a DaemonSet's pods. Source: Kubernetes ``pkg/controller/daemon/util``."""


def _with_spec(template: _Template, **fields: Any) -> _Template:
    return msgspec.structs.replace(template, spec={**(template.spec or {}), **fields})


def _on_node(template: _Template, name: str) -> Manifest:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {**((template.spec or {}).get("affinity") or {}), "nodeAffinity": terms}


def _may_run(pod: Pod, node: Node) -> bool:
    """Return whether a DaemonSet creates a pod for a node; an unreadable one creates none."""
    labels, affinity = node.metadata.labels, pod.spec.affinity
    required = affinity.node_affinity.required if affinity is not None and affinity.node_affinity is not None else None
    try:
        return (
            pod.spec.node_selector.items() <= labels.items()
            and (required is None or node_terms_match(required.node_selector_terms, labels, node.metadata.name))
            and all(
                taint.effect == "PreferNoSchedule" or tolerates(pod.spec.tolerations, taint)
                for taint in node.spec.taints
            )
        )
    except SelectorError:
        return False


def _add_pods(
    manifest: Manifest,
    parts: Sequence[_Part],
    found: Work,
    cluster: ExpansionContext,
    shape: WorkloadLayout = _PLAIN,
    copy: str = "",
) -> None:
    """Add the pods of some templates; those that name no group are in one group."""
    made: list[tuple[Pod, int]] = []
    for part in parts:
        name = "-".join(filter(None, (manifest["metadata"]["name"], copy, part.name)))
        pods = [
            cluster.admit(_typed(manifest, _plain_pod(manifest, part.template, f"{name}-{index}")))
            for index in range(part.number)
        ]
        if pods and GROUP_NAME not in pods[0].metadata.annotations:
            made.append((pods[0], part.number))
            group = f"podgroup-{manifest['metadata']['uid']}{copy and '-'}{copy}"
            pods = [in_group(pod, group) for pod in pods]
        found.pods.extend(pods)
    if made:
        _add_group(manifest, _group_of(manifest, made, shape, copy), found)


def _plain_pod(manifest: Manifest, template: _Template, name: str) -> Manifest:
    pod = pod_of_template(manifest, msgspec.to_builtins(template))
    pod["metadata"]["name"] = name
    return pod


def _group_of(manifest: Manifest, made: list[tuple[Pod, int]], shape: WorkloadLayout, copy: str) -> Manifest:
    """Return the group of a workload's pods: a gang needs all of them, unless it states another minimum."""
    meta = manifest["metadata"]
    annotations, labels = meta.get("annotations") or {}, meta.get("labels") or {}
    total = sum(count for _, count in made)
    stated = value_at(manifest, shape.minimum) if shape.minimum else None
    least = stated if type(stated) is int and 0 < stated < total else total if shape.gang else 1
    least = min_member(annotations, least)
    minimum: dict[str, int] = {}
    left = least
    for pod, count in made:
        for resource, amount in _requests(manifest, pod).items():
            minimum[resource] = minimum.get(resource, 0) + amount * min(count, left)
        left = max(0, left - count)
    for resource, amount in _requests(manifest, made[0][0]).items() if left else ():
        minimum[resource] += amount * left
    group = group_for(made[0][0])
    group["metadata"]["annotations"].update((key, text) for key, text in annotations.items() if _is_volcanos(key))
    group["metadata"]["name"] = group["metadata"]["uid"] = f"podgroup-{meta['uid']}{copy and '-'}{copy}"
    spec = group["spec"]
    spec["minMember"] = least
    spec["minResources"] = {name: format_sum(name, amount) for name, amount in minimum.items()}
    queue, priority = (value_at(manifest, path) if path else None for path in (shape.queue, shape.priority))
    spec["queue"] = spec["queue"] or queue or labels.get(_QUEUE_LABEL) or ""
    spec["priorityClassName"] = priority or spec["priorityClassName"]
    return group


def _is_volcanos(key: str) -> bool:
    return key.startswith("volcano.sh/")


def _cron_job(manifest: Manifest, found: Work, cluster: ExpansionContext) -> None:
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
    found.notes.append(f"of {called(manifest)} only one run is considered")
    try:
        expand(job, found, cluster)
    except BadObject as error:
        raise _bad(manifest, f"in spec.jobTemplate: {error.message}") from error


_EXPANSIONS: Mapping[tuple[str, str], Callable[[Manifest, Work, ExpansionContext], None]] = {
    ("Job", "batch.volcano.sh"): _volcano_job,
    ("DaemonSet", "apps"): _daemon_set,
    ("CronJob", "batch"): _cron_job,
    ("CronJob", "batch.volcano.sh"): _cron_job,
}
"""The kinds whose pods are counted by more than paths."""


def _check_count(manifest: Manifest, count: int, fields: Mapping[str, int]) -> None:
    """Raise BadObject for more pods than one workload may have; ``fields`` are the numbers that multiply to them."""
    if count > _MOST_PODS:
        largest = sorted(fields.items(), key=lambda item: -item[1])
        named_fields = some([f"{path} {number}" for path, number in largest if number > 1], 3)
        raise _bad(manifest, f"it makes {count:,} pods ({named_fields}); make them {_MOST_PODS:,} at most")


def _typed(owner: Manifest, pod: Manifest) -> Pod:
    """Return a pod as the type that scheduling reads, with the API server's defaults and a uid that is the same for
    the same name."""
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
    """Return the pod as a member of a group."""
    return altered(pod, metadata={"annotations": {**pod.metadata.annotations, GROUP_NAME: name}})


def _spec(manifest: Manifest, kind: type[Any]) -> Any:
    """Return the spec as a type; null counts as not given, as for the API server."""
    _check_spec(manifest)
    return _converted(manifest, _without_nulls(manifest.get("spec") or {}), kind, "spec")


def _check_spec(manifest: Manifest) -> None:
    spec = manifest.get("spec")
    if spec is not None and not isinstance(spec, Mapping):
        raise _bad(manifest, f"spec must be a mapping, not {type(spec).__name__}")


def _converted(manifest: Manifest, value: Any, kind: Any, where: str) -> Any:
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        words, _, path = str(error).partition(" - at `$")
        raise _bad(manifest, f"{where}{path.rstrip('`')}: {words}") from error


def _without_nulls(value: Any, levels: int = _READ_LEVELS) -> Any:
    if isinstance(value, list) and levels:
        return [_without_nulls(each, levels - 1) for each in value]
    if not isinstance(value, Mapping) or not levels:
        return value
    present = {key: entry for key, entry in value.items() if entry is not None}
    return {key: entry if key == "template" else _without_nulls(entry, levels - 1) for key, entry in present.items()}


def _not_negative(manifest: Manifest, where: str, count: int | None) -> int:
    """Return the number in a field, by default 1."""
    if count is not None and count < 0:
        raise _bad(manifest, f"{where} is {count}; make it 0 or more")
    return 1 if count is None else count


def _has_containers(manifest: Manifest, spec: Any, where: str) -> None:
    if not isinstance(spec, Mapping) or not spec.get("containers"):
        raise _bad(manifest, f"{where} has no spec.containers; its pods need one at least")


def _bad(manifest: Manifest, message: str) -> BadObject:
    meta = manifest["metadata"]
    return BadObject(str(manifest["kind"]), f"{meta['namespace']}/{meta['name']}", message)

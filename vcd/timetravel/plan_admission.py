"""What the API server and Volcano's webhooks change in manifests before they store them.

Plans call it for manifests that no API server has stored. Objects that a cluster lists have been admitted already. The
rules are in ``vcd.model.podadmission``, ``vcd.model.limitranges`` and ``vcd.timetravel.planned_quotas``; this module
finds the objects that they apply to.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from vcd.model.controllers import Manifest
from vcd.model.manifests import refusal_of, with_group_queue, with_priority, with_scheduling_defaults
from vcd.model.objects import Namespace, Pod, PodGroup, ResourceQuota
from vcd.model.podadmission import (
    UnknownPriorityClass,
    fill_in_group_queue,
    fill_in_queue,
    fill_in_runtime_class,
    fill_in_storage_class,
)
from vcd.model.projection_codec import BadObject, from_manifest
from vcd.model.wording import counted, some
from vcd.timetravel.manifest_limit_ranges import bounds_left_out, is_limit_range, read_limit_ranges
from vcd.timetravel.planned_quotas import PlannedQuotas, with_quota_status
from vcd.timetravel.podtemplates import templates_in
from vcd.timetravel.workload_expansion import is_workload, kind_of


class _Scheduling(msgspec.Struct, rename="camel"):
    node_selector: dict[str, str] | None = None
    tolerations: list[dict[str, Any]] | None = None


class _Overhead(msgspec.Struct, rename="camel"):
    pod_fixed: dict[str, Any] | None = None


class _RuntimeClass(msgspec.Struct, rename="camel"):
    """The fields of a RuntimeClass that admission reads."""

    overhead: _Overhead | None = None
    scheduling: _Scheduling | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    """The fields of a pod that admission by RuntimeClass reads."""

    runtime_class_name: str | None = None
    overhead: dict[str, Any] | None = None
    node_selector: dict[str, Any] | None = None
    tolerations: list[Any] | None = None


class PlanAdmission:
    """Fills in objects as the API server does, and refuses pods as it does.

    With ``schedulers``, the manifests come from an API server, and have been admitted. With ``is_whole`` they contain
    all priority classes: pods that name another one are refused. ``quotas`` apply if all pods are created at once.
    """

    def __init__(
        self,
        manifests: Sequence[Manifest],
        schedulers: Collection[str] | None,
        set_aside: Callable[[BadObject], None],
        *,
        is_whole: bool = False,
        quotas: bool = True,
    ) -> None:
        self._schedulers = schedulers
        self._priorities = _priority_classes(manifests)
        self._runtimes = _runtime_classes(manifests, set_aside)
        storages = (each for each in manifests if _is(each, "StorageClass", "storage.k8s.io"))
        self._storages = [each for each in storages if _is_readable(each)]
        self._limits = read_limit_ranges(manifests, set_aside)
        self._namespaces = {each.key: each.metadata.annotations for each, _ in _objects(manifests, Namespace)}
        self._quotas = PlannedQuotas(_quotas(manifests) if quotas and schedulers is None else ())
        self._is_whole = is_whole
        self.classes: set[str] = set()
        """Names of priority classes that are missing."""
        self._missing = set(bounds_left_out(self._limits))
        self._refused: dict[str, list[str]] = {}

    def is_ours(self, pod: Pod) -> bool:
        """Return whether this scheduler places a pod."""
        return self._schedulers is None or pod.spec.scheduler_name in self._schedulers

    def stored(self, manifest: Manifest) -> Manifest:
        """Return a manifest with the defaults of queues, PodGroups, claims and quotas, and of pods by their
        RuntimeClass.

        A manifest that cannot be read is returned unchanged.
        """
        if self._schedulers is not None:
            return manifest
        if _is(manifest, "Pod", "") or is_workload(manifest):
            return self._with_runtime(manifest)
        for kind, group, fill_in in self._filled:
            if _is(manifest, kind, group) and _is_readable(manifest):
                filled = {**manifest, "spec": {**(manifest.get("spec") or {})}}
                fill_in(filled)
                return filled
        return manifest

    @property
    def _filled(self) -> tuple[tuple[str, str, Callable[[Manifest], None]], ...]:
        """The kinds that are filled in as a whole: kind, API group, and the function that fills in."""
        return (
            ("Queue", "scheduling.volcano.sh", lambda queue: fill_in_queue(queue["spec"])),
            ("PodGroup", "scheduling.volcano.sh", self._fill_in_group),
            ("PersistentVolumeClaim", "", lambda claim: fill_in_storage_class(claim, self._storages)),
            ("ResourceQuota", "", self._fill_in_quota),
        )

    def _fill_in_group(self, manifest: Manifest) -> None:
        _, group, version = from_manifest(manifest)
        if isinstance(group, PodGroup) and not version and group.status.phase in ("", "Pending"):
            fill_in_group_queue(manifest["spec"], self._namespaces.get(group.metadata.namespace, {}))

    def _fill_in_quota(self, manifest: Manifest) -> None:
        if quota := self._quotas.by_key.get(_key(manifest)):
            manifest["status"] = msgspec.to_builtins(quota.status)

    def _with_runtime(self, manifest: Manifest) -> Manifest:
        if not any(spec.get("runtimeClassName") for spec in _pod_specs(manifest)):
            return manifest
        filled: Manifest = copy.deepcopy(manifest)
        for spec in _pod_specs(filled):
            try:
                name = msgspec.convert(spec, _PodSpec).runtime_class_name
            except msgspec.ValidationError:
                continue
            if name in self._runtimes:
                fill_in_runtime_class(spec, self._runtimes[name])
            elif name:
                self._missing.add(
                    f"there is no RuntimeClass {name}: its pods get no overhead and no node selector; add it"
                )
        return filled

    def admitted(self, pod: Pod, *, is_stored: bool = False) -> Pod:
        """Return a pod with defaults and priority. A missing priority class is noted, or raises BadObject with
        ``is_whole``.

        LimitRanges apply to pods that are created, not to one that ``is_stored`` already.
        """
        if self._schedulers is not None:
            return with_scheduling_defaults(pod)
        pod = with_scheduling_defaults(pod, None if is_stored else self._limits.get(pod.metadata.namespace))
        try:
            return with_priority(pod, self._priorities)
        except UnknownPriorityClass as error:
            if self._is_whole:
                raise BadObject("Pod", pod.key, f"there is no PriorityClass {error}; add it") from None
            if pod.spec.priority is None:
                self.classes.add(str(error))
            return pod

    def created(self, pods: Sequence[Pod]) -> list[Pod]:
        """Return the admitted pods of one workload that the API server creates, and note the others.

        A pod with a status is counted in the quotas' status already.
        """
        if self._schedulers is not None:
            return list(pods)
        refusals = {pod.key: refusal_of(pod, self._limits.get(pod.metadata.namespace)) for pod in pods}
        valid = [pod for pod in pods if not refusals[pod.key]]
        refusals.update(self._quotas.refused(pod for pod in valid if not pod.status.phase))
        for key, reason in refusals.items():
            if reason:
                self._refused.setdefault(reason, []).append(key)
        return [pod for pod in valid if not refusals[pod.key]]

    def in_queue(self, group: PodGroup) -> PodGroup:
        """Return a PodGroup that a controller creates, in its namespace's queue if it names none."""
        return with_group_queue(group, self._namespaces.get(group.metadata.namespace, {}))

    def notes(self) -> list[str]:
        """Return a sentence for each quota that is too small for all pods."""
        return self._quotas.notes()

    def unknown(self) -> list[str]:
        """Return a sentence for each missing class, and for each rule that is not applied."""
        classes = (f"there is no PriorityClass {name}: its pods have no priority; add it" for name in self.classes)
        return sorted([*classes, *self._missing])

    def refused(self) -> list[str]:
        """Return a sentence for the pods that are refused, by reason."""
        return [
            f"the API server refuses {counted(len(pods), 'pod')} ({some(sorted(pods))}): {reason}"
            for reason, pods in sorted(self._refused.items())
        ]


def is_stored(pod: Pod, version: str) -> bool:
    """Return whether an API server has stored a pod: it has a resource version, a node, or a phase after Pending."""
    return bool(version or pod.spec.node_name or pod.status.phase not in ("", "Pending"))


def is_applied(manifest: Manifest) -> bool:
    """Return whether only admission reads a manifest."""
    return _is_runtime_class(manifest) or is_limit_range(manifest)


def _is_runtime_class(manifest: Manifest) -> bool:
    return _is(manifest, "RuntimeClass", "node.k8s.io")


def _is(manifest: Manifest, kind: str, group: str) -> bool:
    """Return whether a manifest is of a kind; without an apiVersion, the API group is assumed to match."""
    return manifest["kind"] == kind and (not manifest.get("apiVersion") or kind_of(manifest)[1] == group)


def _is_readable(manifest: Manifest) -> bool:
    try:
        from_manifest(manifest)
    except BadObject:
        return False
    return True


T = TypeVar("T", Namespace, Pod, ResourceQuota)


def _objects(manifests: Iterable[Manifest], kind: type[T]) -> Iterator[tuple[T, str]]:
    """Yield the readable objects of a core kind, with their resource versions."""
    for manifest in manifests:
        if not _is(manifest, kind.__name__, ""):
            continue
        try:
            _, obj, version = from_manifest(manifest)
        except BadObject:
            continue
        if isinstance(obj, kind):
            yield obj, version


def _quotas(manifests: Sequence[Manifest]) -> list[ResourceQuota]:
    """Return the ResourceQuotas, those of files with the status that their controller will write."""
    quotas = list(_objects(manifests, ResourceQuota))
    pods = list(_objects(manifests, Pod)) if quotas else []
    existing = [pod for pod, version in pods if is_stored(pod, version) or pod.status.phase]
    return [quota if version else with_quota_status(quota, existing) for quota, version in quotas]


def _name(manifest: Manifest) -> str:
    return str((manifest.get("metadata") or {}).get("name", ""))


def _key(manifest: Manifest) -> str:
    return f"{manifest['metadata'].get('namespace') or 'default'}/{_name(manifest)}"


def _pod_specs(manifest: Manifest) -> list[Manifest]:
    return [template["spec"] for _, template in templates_in(manifest)]


def _runtime_classes(manifests: Iterable[Manifest], set_aside: Callable[[BadObject], None]) -> dict[str, Manifest]:
    """Return RuntimeClasses by name; unreadable ones are passed to ``set_aside``."""
    found: dict[str, Manifest] = {}
    for manifest in filter(_is_runtime_class, manifests):
        try:
            msgspec.convert(manifest, _RuntimeClass)
        except msgspec.ValidationError as error:
            set_aside(BadObject("RuntimeClass", _name(manifest), str(error)))
        else:
            found[_name(manifest)] = manifest
    return found


def _priority_classes(manifests: Iterable[Manifest]) -> dict[str, Manifest]:
    """Return PriorityClasses by name. One whose value is not an integer is ignored; a pod whose priority exceeds 64
    bits is set aside with its owner."""
    classes = [each for each in manifests if each["kind"] == "PriorityClass" and type(each.get("value")) is int]
    return {_name(each): _readable_class(each) for each in classes}


def _readable_class(manifest: Manifest) -> Manifest:
    """Return a class with its preemption policy, unless that is not a string."""
    policy = manifest.get("preemptionPolicy")
    return {**manifest, "preemptionPolicy": policy if isinstance(policy, str) else None}

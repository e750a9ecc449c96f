"""What the API server and Volcano's webhooks change in people's manifests before they store them.

Plans call it for manifests that no API server has seen. Objects that a cluster lists have been admitted already. The
rules are in ``vcd.model.podadmission``; this module finds the objects that they apply to.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from vcd.model.codec import BadObject, from_manifest
from vcd.model.controllers import Manifest
from vcd.model.manifests import with_priority, with_scheduling_defaults
from vcd.model.objects import Pod
from vcd.model.podadmission import (
    UnknownPriorityClass,
    fill_in_queue,
    fill_in_runtime_class,
    fill_in_storage_class,
)
from vcd.timetravel.workloads import is_workload, kind_of


class _Scheduling(msgspec.Struct, rename="camel"):
    node_selector: dict[str, str] | None = None
    tolerations: list[dict[str, Any]] | None = None


class _Overhead(msgspec.Struct, rename="camel"):
    pod_fixed: dict[str, Any] | None = None


class _RuntimeClass(msgspec.Struct, rename="camel"):
    """What admission reads of a RuntimeClass."""

    overhead: _Overhead | None = None
    scheduling: _Scheduling | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    """What admission by RuntimeClass reads of a pod."""

    runtime_class_name: str | None = None
    overhead: dict[str, Any] | None = None
    node_selector: dict[str, Any] | None = None
    tolerations: list[Any] | None = None


class PlanAdmission:
    """Fills in objects as the API server does; with ``schedulers`` named they come from one, and have been admitted."""

    def __init__(
        self, manifests: Sequence[Manifest], schedulers: Collection[str] | None, set_aside: Callable[[BadObject], None]
    ) -> None:
        self._schedulers = schedulers
        self._priorities = _priority_classes(manifests)
        self._runtimes = _runtime_classes(manifests, set_aside)
        storages = (each for each in manifests if _is(each, "StorageClass", "storage.k8s.io"))
        self._storages = [each for each in storages if _is_readable(each)]
        self._missing: set[str] = set()

    def is_ours(self, pod: Pod) -> bool:
        """Return whether this scheduler places a pod."""
        return self._schedulers is None or pod.spec.scheduler_name in self._schedulers

    def stored(self, manifest: Manifest) -> Manifest:
        """Return a manifest with a queue's weight, a claim's StorageClass and what RuntimeClasses add to its pods.

        A manifest that cannot be read is returned as it is.
        """
        if self._schedulers is not None:
            return manifest
        if _is(manifest, "Pod", "") or is_workload(manifest):
            return self._with_runtime(manifest)
        is_queue = _is(manifest, "Queue", "scheduling.volcano.sh")
        if not (is_queue or _is(manifest, "PersistentVolumeClaim", "")) or not _is_readable(manifest):
            return manifest
        filled = {**manifest, "spec": {**(manifest.get("spec") or {})}}
        if is_queue:
            fill_in_queue(filled["spec"])
        else:
            fill_in_storage_class(filled, self._storages)
        return filled

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
                    f"RuntimeClass {name} is not given: pods that name it get no overhead and no node selector; add it"
                )
        return filled

    def admitted(self, pod: Pod) -> Pod:
        """Return a pod with defaults and priority; a class that is not given is noted."""
        pod = with_scheduling_defaults(pod)
        if self._schedulers is not None:
            return pod
        try:
            return with_priority(pod, self._priorities)
        except UnknownPriorityClass as error:
            if pod.spec.priority is None:
                self._missing.add(f"PriorityClass {error} is not given: pods that name it have no priority; add it")
            return pod

    def notes(self) -> list[str]:
        """Return a sentence for each class that pods name and that is not given."""
        return sorted(self._missing)


def is_applied(manifest: Manifest) -> bool:
    """Return whether only admission reads a manifest."""
    return _is(manifest, "RuntimeClass", "node.k8s.io")


def _is(manifest: Manifest, kind: str, group: str) -> bool:
    """Whether a manifest is of a kind; one without an apiVersion is taken for what is read."""
    return manifest["kind"] == kind and (not manifest.get("apiVersion") or kind_of(manifest)[1] == group)


def _is_readable(manifest: Manifest) -> bool:
    try:
        from_manifest(manifest)
    except BadObject:
        return False
    return True


def _name(manifest: Manifest) -> str:
    return str((manifest.get("metadata") or {}).get("name", ""))


def _pod_specs(manifest: Manifest) -> Iterator[Manifest]:
    """The specifications of pods in a Pod or a workload."""
    waiting: list[Any] = [manifest.get("spec")]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping) and isinstance(value.get("containers"), list):
            yield cast(Manifest, value)
        elif isinstance(value, Mapping):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def _runtime_classes(manifests: Iterable[Manifest], set_aside: Callable[[BadObject], None]) -> dict[str, Manifest]:
    """RuntimeClasses by name; one that cannot be read is set aside."""
    found: dict[str, Manifest] = {}
    for manifest in filter(is_applied, manifests):
        try:
            msgspec.convert(manifest, _RuntimeClass)
        except msgspec.ValidationError as error:
            set_aside(BadObject("RuntimeClass", _name(manifest), str(error)))
        else:
            found[_name(manifest)] = manifest
    return found


def _priority_classes(manifests: Iterable[Manifest]) -> dict[str, Manifest]:
    """PriorityClasses by name. One whose value is no integer is no class; a pod whose priority is beyond 64 bits is set
    aside with its owner."""
    classes = [each for each in manifests if each["kind"] == "PriorityClass" and type(each.get("value")) is int]
    return {_name(each): _readable_class(each) for each in classes}


def _readable_class(manifest: Manifest) -> Manifest:
    """A class with its preemption policy, unless that is no text."""
    policy = manifest.get("preemptionPolicy")
    return {**manifest, "preemptionPolicy": policy if isinstance(policy, str) else None}

"""Normalise plain manifests as an API server and Volcano's controllers would: flatten, default, group."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from vcd.model.controllers import Manifest, topology_of
from vcd.model.jsontext import DEPTH, shallow
from vcd.model.kinds import KINDS, Kind
from vcd.model.limitranges import LimitRanges
from vcd.model.objects import ROOT_QUEUE, Pod, PodGroup, PodSpec, altered
from vcd.model.plainjson import NotJson, as_json
from vcd.model.podadmission import (
    SYSTEM_PRIORITIES,
    fill_in_group_queue,
    fill_in_priority,
    fill_in_scheduling,
    requests_above_limits,
)
from vcd.model.projection_codec import BadObject, without_managed_fields
from vcd.model.quantity import format_resource
from vcd.model.resource_requests import CPU, MEMORY, PODS, pod_requests

QUEUE_NAME = "scheduling.volcano.sh/queue-name"
_LISTS = 20
"""Maximum nesting of lists in lists."""
_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


def flatten(manifests: Iterable[Any], set_aside: Callable[[BadObject], None] | None = None) -> Iterator[Manifest]:
    """Yield single objects from documents and lists of any kind, in the form of `plain`.

    Each object has a kind, and metadata whose name and namespace are texts, if it has any; anything else raises
    BadObject. An object that JSON cannot hold is passed to ``set_aside``, or raises BadObject without it.
    """
    for manifest in _flatten((("", manifest) for manifest in manifests), 0):
        try:
            obj = plain(manifest)
        except BadObject as error:
            if set_aside is None:
                raise
            set_aside(error)
        else:
            yield obj


def plain(manifest: Manifest) -> Manifest:
    """Return a manifest with a kind, as an API server would send it: keys are texts, managed fields are left out.

    What is nested deeper than any field that is read becomes null. Raises BadObject for what JSON cannot hold.
    """
    try:
        raw = as_json(without_managed_fields(manifest))
    except NotJson as error:
        raise BadObject(*_identity(manifest), str(error)) from error
    if raw.count(b"{") + raw.count(b"[") > DEPTH:
        raw = shallow(raw)
    obj: Manifest = msgspec.json.decode(raw)
    # the original, because copies of a whole cluster would take much memory
    return manifest if obj == manifest else obj


def _identity(manifest: Manifest) -> tuple[str, str]:
    """Return kind and key of an object; invalid parts are empty."""
    kind, meta = manifest["kind"], manifest.get("metadata")
    name, space = (meta.get(field) if isinstance(meta, Mapping) else "" for field in ("name", "namespace"))
    if not _is_text(kind):
        return "(no kind)", ""
    if not (name and _is_text(name)):
        return kind, ""
    if kind in KINDS and not KINDS[kind].namespaced:
        return kind, name
    return kind, f"{space if space and _is_text(space) else 'default'}/{name}"


def _flatten(given: Iterable[tuple[str, Any]], depth: int) -> Iterator[Manifest]:
    """Yield objects from pairs of a default kind and a manifest."""
    for kind, manifest in given:
        if manifest is None:
            continue
        obj = _check(manifest, kind)
        if not obj["kind"].endswith("List") or not isinstance(obj.get("items"), list):
            yield obj
            continue
        if depth == _LISTS:
            raise BadObject(obj["kind"], "", f"lists in lists, more than {_LISTS} deep")
        of = obj["kind"].removesuffix("List")
        yield from _flatten(((of, item) for item in obj["items"]), depth + 1)


def _check(manifest: Any, kind: str) -> Manifest:
    """Return the manifest, of ``kind`` if it has none. Raises BadObject."""
    if not isinstance(manifest, Mapping):
        raise BadObject("(no kind)", "", f"a manifest must be a mapping, not {type(manifest).__name__}")
    obj = {"kind": kind, **manifest}
    if not _is_text(obj["kind"]):
        raise BadObject("(no kind)", "", f"kind must be a text, not {_describe(obj['kind'])}")
    meta = obj.get("metadata")
    if meta is not None and not isinstance(meta, Mapping):
        raise BadObject(obj["kind"], "", f"metadata must be a mapping, not {type(meta).__name__}")
    for field in ("name", "namespace"):
        value = (meta or {}).get(field)
        if value is not None and not _is_text(value):
            raise BadObject(obj["kind"], "", f"metadata.{field} must be a text, not {_describe(value)}")
    return obj


def _is_text(value: Any) -> bool:
    """Whether a value is a text that can be encoded: without lone surrogates."""
    return isinstance(value, str) and _LONE_SURROGATE.search(value) is None


def _describe(value: Any) -> str:
    return f"one with half a character: {value!a}" if isinstance(value, str) else type(value).__name__


def defaulted(manifest: Manifest, kinds: Iterable[Kind] = KINDS.values()) -> Manifest:
    """Return the manifest with the namespace and UID that an API server would set."""
    name = str(manifest.get("kind", ""))
    meta = dict(manifest.get("metadata") or {})
    if any(kind.namespaced for kind in kinds if kind.manifest_kind == name):
        meta["namespace"] = meta.get("namespace") or "default"
    meta["uid"] = meta.get("uid") or str(meta.get("name", ""))
    return {**manifest, "metadata": meta}


def default_queues(manifests: Iterable[Manifest], default: str = "default") -> Iterator[Manifest]:
    """Yield the queues that vc-scheduler creates at its start, unless the manifests have them.

    ``default`` is the queue of groups that name none.
    """
    there = {(m.get("metadata") or {}).get("name") for m in manifests if m.get("kind") == "Queue"}
    for name in dict.fromkeys((default, ROOT_QUEUE)):
        if name not in there:
            yield {"kind": "Queue", "metadata": {"name": name, "uid": name}, "spec": {"weight": 1}}


def system_classes(manifests: Iterable[Manifest]) -> Iterator[Manifest]:
    """Yield the priority classes that every cluster has, unless the manifests have them."""
    there = {(m.get("metadata") or {}).get("name") for m in manifests if m.get("kind") == "PriorityClass"}
    for name, value in SYSTEM_PRIORITIES.items():
        if name not in there:
            yield {"kind": "PriorityClass", "metadata": {"name": name, "uid": name}, "value": value}


def group_for(pod: Pod) -> Manifest:
    """Return the group that Volcano's controller creates for a pod without one: minimum 1, queue by annotation.

    Source: Volcano ``pkg/controllers/podgroup``. Raises QuantityError for invalid requests.
    """
    meta = pod.metadata
    owner = next((owner.uid for owner in meta.owner_references if owner.controller), "")
    requests, topology = pod_requests(pod.spec), topology_of(meta.annotations)
    minimum = {name: value for name, value in requests.items() if name in (CPU, MEMORY, "ephemeral-storage", PODS)}
    return {
        "kind": "PodGroup",
        "metadata": {
            "name": f"podgroup-{owner or meta.uid or meta.name}",
            "namespace": meta.namespace,
            "uid": f"podgroup-{owner or meta.uid}",
            "creationTimestamp": meta.creation_timestamp,
            "annotations": {k: v for k, v in meta.annotations.items() if k.startswith("volcano.sh/")},
        },
        "spec": {
            "minMember": 1,
            "queue": meta.annotations.get(QUEUE_NAME, ""),
            "priorityClassName": pod.spec.priority_class_name,
            "minResources": {name: format_resource(name, value) for name, value in minimum.items()},
            **({"networkTopology": topology} if topology else {}),
        },
        "status": {"phase": "Pending"},
    }


def with_scheduling_defaults(pod: Pod, limits: LimitRanges | None = None) -> Pod:
    """Return a pod with the requests and host ports that the API server fills in, also by LimitRanges."""
    try:
        encoded = _encode(pod.spec)
    except OverflowError:
        return pod  # a number beyond 64 bits, which makes the pod invalid when it is encoded for the log
    return msgspec.structs.replace(pod, spec=_spec_with_defaults(encoded, limits))


@lru_cache(maxsize=4096)  # cached, because pods of one template have equal specs
def _spec_with_defaults(encoded: bytes, limits: LimitRanges | None) -> PodSpec:
    spec: Manifest = msgspec.msgpack.decode(encoded)
    fill_in_scheduling(spec)
    if limits is not None:
        limits.fill_in(spec)
    return msgspec.convert(spec, PodSpec)


def refusal_of(pod: Pod, limits: LimitRanges | None = None) -> str:
    """Return why the API server refuses a pod whose defaults are filled in; empty if it does not."""
    try:
        return _refusal_of(_encode(pod.spec), limits)
    except OverflowError:
        return ""  # a number beyond 64 bits: encoding the pod for the log reports it


@lru_cache(maxsize=4096)
def _refusal_of(encoded: bytes, limits: LimitRanges | None) -> str:
    spec: Manifest = msgspec.msgpack.decode(encoded)
    for holder in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()), {**spec, "name": ""}):
        owner = f"container {holder['name']}" if holder.get("name") else "it"
        for name, request, limit in requests_above_limits(holder.get("resources") or {}):
            return f"{owner} requests {request} of {name}, above its limit of {limit}"
    broken = () if limits is None else limits.refusals(spec)
    return next((f"LimitRange {name}: {message}" for name, message in broken), "")


def with_group_queue(group: PodGroup, annotations: Mapping[str, str]) -> PodGroup:
    """Return a PodGroup in the queue named by its namespace's ``annotations``, if it names none itself."""
    spec = {"queue": group.spec.queue}
    fill_in_group_queue(spec, annotations)
    return group if spec["queue"] == group.spec.queue else altered(group, spec=spec)


def with_priority(pod: Pod, classes: Mapping[str, Manifest]) -> Pod:
    """Return a pod with the priority, class and preemption policy that priority admission fills in.

    ``classes`` are PriorityClasses by name. Raises UnknownPriorityClass.
    """
    stated = pod.spec
    spec = {"priorityClassName": stated.priority_class_name, "priority": stated.priority}
    spec["preemptionPolicy"] = stated.preemption_policy
    fill_in_priority(spec, classes)
    filled = {name: spec[camel] for name, camel in _FILLED_BY_PRIORITY}
    return altered(pod, spec=filled)


_FILLED_BY_PRIORITY = (
    ("priority", "priority"),
    ("priority_class_name", "priorityClassName"),
    ("preemption_policy", "preemptionPolicy"),
)
_encode = msgspec.msgpack.Encoder(order="deterministic").encode

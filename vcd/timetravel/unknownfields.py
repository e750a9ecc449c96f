"""Unknown fields in manifests of Volcano's kinds, which are likely typos."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, get_args, get_origin

import msgspec

from vcd.model.objects import PodGroupSpec, QueueSpec
from vcd.model.wording import did_you_mean
from vcd.text.manifest_templates import MANIFESTS
from vcd.timetravel.workload_expansion import JobSpec

_PODS = "template"
"""The field of a pod template, which is Kubernetes' own."""
_ROOT = ("apiVersion", "kind", "metadata", "spec", "status")
_OWNED: Mapping[tuple[str, str], type[msgspec.Struct]] = {
    ("PodGroup", "scheduling.volcano.sh"): PodGroupSpec,
    ("Queue", "scheduling.volcano.sh"): QueueSpec,
    ("Job", "batch.volcano.sh"): JobSpec,
}


def unknown_fields(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield each field of a PodGroup, Queue or Volcano Job that does not exist, as a path with the nearest existing
    one.

    Metadata and status are the API server's, and are not checked.
    """
    spec = _spec_of(manifest)
    if spec is None:
        return
    for key in manifest:
        if key not in _ROOT:
            yield _not_a_field(key, key, _ROOT)
    yield from _unknown(manifest.get("spec"), spec, "spec")


def _spec_of(manifest: Mapping[str, Any]) -> type[msgspec.Struct] | None:
    kind, group = str(manifest.get("kind", "")), str(manifest.get("apiVersion", "")).rpartition("/")[0]
    if kind in ("PodGroup", "Queue"):
        group = group or "scheduling.volcano.sh"  # without a version, the API group is assumed to match
    return _OWNED.get((kind, group))


def _unknown(value: Any, declared: Any, path: str) -> Iterator[str]:
    if isinstance(value, list):
        for item in get_args(declared)[:1]:
            for index, entry in enumerate(value):
                yield from _unknown(entry, item, f"{path}[{index}]")
        return
    struct = _struct_in(declared)
    if struct is None or not isinstance(value, Mapping):
        return
    fields = _fields_of(struct)
    for key, entry in value.items():
        if key == _PODS:
            continue
        if key in fields:
            yield from _unknown(entry, fields[key], f"{path}.{key}")
        else:
            yield _not_a_field(f"{path}.{key}", key, fields)


def _not_a_field(path: Any, key: Any, fields: Iterable[str]) -> str:
    return MANIFESTS.sentence("unknown field", {"path": f"{path}", "meant": did_you_mean(str(key), list(fields))})


@cache
def _fields_of(struct: type[msgspec.Struct]) -> Mapping[str, Any]:
    """Return the types of a struct's fields, by their names in manifests."""
    return {field.encode_name: field.type for field in msgspec.structs.fields(struct)}


def _struct_in(declared: Any) -> type[msgspec.Struct] | None:
    """Return the struct that a type is, or that it combines with None."""
    if get_origin(declared) in (dict, list, tuple):
        return None
    kinds = (declared, *get_args(declared))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, msgspec.Struct)), None)

"""The LimitRanges in manifests, by namespace."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from vcd.model.controllers import Manifest
from vcd.model.limitranges import LimitRanges, fill_in_limit_range
from vcd.model.projection_codec import BadObject
from vcd.model.quantity import QuantityError, parse_milli, resource_value
from vcd.text.manifest_templates import MANIFESTS
from vcd.timetravel.workload_expansion import kind_of

_Quantities = dict[str, str | int | float] | None


class _Item(msgspec.Struct, rename="camel"):
    type: str
    default: _Quantities = None
    default_request: _Quantities = None
    min: _Quantities = None
    max: _Quantities = None
    max_limit_request_ratio: _Quantities = None


class _Spec(msgspec.Struct):
    limits: list[_Item] | None = None


class _LimitRange(msgspec.Struct):
    """The fields of a LimitRange that admission reads."""

    spec: _Spec | None = None


def is_limit_range(manifest: Manifest) -> bool:
    """Return whether a manifest is a LimitRange."""
    return manifest.get("kind") == "LimitRange" and kind_of(manifest)[1] == ""


def read_limit_ranges(
    manifests: Iterable[Manifest], set_aside: Callable[[BadObject], None]
) -> Mapping[str, LimitRanges]:
    """Return LimitRanges by namespace. One that cannot be read is passed to ``set_aside``."""
    found: dict[str, list[Manifest]] = {}
    for manifest in filter(is_limit_range, manifests):
        meta = manifest.get("metadata") or {}
        space, name = str(meta.get("namespace") or "default"), str(meta.get("name") or "")
        try:
            spec = _read_spec(manifest)
        except (msgspec.ValidationError, QuantityError) as error:
            set_aside(BadObject("LimitRange", f"{space}/{name}", str(error)))
        else:
            found.setdefault(space, []).append({"metadata": {"name": name}, "spec": spec})
    return {space: LimitRanges(of_namespace) for space, of_namespace in found.items()}


def bounds_left_out(limits: Mapping[str, LimitRanges]) -> Iterator[str]:
    """Yield a sentence for each namespace with LimitRanges of kinds that are not checked."""
    for space, of_namespace in sorted(limits.items()):
        for kind in of_namespace.kinds_left_out():
            yield MANIFESTS.sentence("bounds", {"namespace": space, "kind": kind})


def _read_spec(manifest: Manifest) -> Manifest:
    """Return a LimitRange's specification with its defaults. Raises ValidationError, QuantityError."""
    for item in (msgspec.convert(manifest, _LimitRange).spec or _Spec()).limits or ():
        for quantities in (item.default, item.default_request, item.min, item.max):
            for name, text in (quantities or {}).items():
                resource_value(name, text)
        for text in (item.max_limit_request_ratio or {}).values():
            parse_milli(text)
    spec: Manifest = copy.deepcopy(manifest.get("spec") or {})
    fill_in_limit_range(spec)
    return spec

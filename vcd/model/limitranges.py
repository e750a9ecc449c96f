"""Apply the LimitRanges of a namespace to new pods: fill in requests and limits, and refuse pods out of bounds.

The embedded server, plans and what-ifs share this module. Specs are plain manifests and changed in place.
``vcd.model.podadmission`` has filled them in before, since the API server defaults a pod before it admits it. Bounds of
PersistentVolumeClaims are not applied.

Sources: Kubernetes ``plugin/pkg/admission/limitranger`` and ``SetDefaults_LimitRangeItem`` of
``pkg/apis/core/v1/defaults.go``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from vcd.model.controllers import Manifest
from vcd.model.podgroups import Amounts, container_amounts, pod_amounts
from vcd.model.quantity import format_resource, parse_milli, resource_value

CONTAINER: Final = "Container"
POD: Final = "Pod"


def fill_in_limit_range(spec: Manifest) -> None:
    """Fill in a LimitRange's own defaults: limits by its maxima; requests by its limits, else by its minima."""
    for item in spec.get("limits") or ():
        if item.get("type") == CONTAINER:
            default = {**(item.get("max") or {}), **(item.get("default") or {})}
            requests = {**(item.get("min") or {}), **default, **(item.get("defaultRequest") or {})}
            item.update({name: part for name, part in (("default", default), ("defaultRequest", requests)) if part})


class LimitRanges:
    """The LimitRanges of one namespace, with their own defaults filled in, applied in the order of their names.

    Their quantities must be valid.
    """

    def __init__(self, manifests: Iterable[Manifest] = ()) -> None:
        named = sorted((str(each["metadata"]["name"]), each) for each in manifests)
        self._items = [(name, item) for name, each in named for item in each.get("spec", {}).get("limits") or ()]

    def fill_in(self, spec: Manifest) -> None:
        """Fill in the default requests and limits of a pod's containers."""
        for _, item in self._items:
            if item.get("type") != CONTAINER:
                continue
            for container in _containers(spec):
                resources = container.get("resources") or {}
                for field, name in (("limits", "default"), ("requests", "defaultRequest")):
                    if item.get(name):
                        resources[field] = {**item[name], **(resources.get(field) or {})}
                container["resources"] = resources

    def kinds_left_out(self) -> list[str]:
        """Return the types of items that are not applied."""
        return sorted({str(item.get("type")) for _, item in self._items} - {CONTAINER, POD})

    def refusals(self, spec: Manifest) -> Iterator[tuple[str, str]]:
        """Yield the LimitRange's name and a message for each bound that a filled-in pod breaks."""
        for name, item in self._items:
            for requests, limits in _amounts_of(spec, item.get("type")):
                yield from ((name, message) for message in _messages(item, requests, limits))


def _containers(spec: Manifest) -> list[Manifest]:
    return [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]


def _amounts_of(spec: Manifest, of_type: Any) -> list[tuple[Amounts, Amounts]]:
    """Return requests and limits of what items of a type bound: each container, or the pod."""
    if of_type == CONTAINER:
        return [(container_amounts(each, "requests"), container_amounts(each, "limits")) for each in _containers(spec)]
    return [(pod_amounts(spec, "requests"), pod_amounts(spec, "limits"))] if of_type == POD else []


def _messages(item: Manifest, requests: Amounts, limits: Amounts) -> Iterator[str]:
    """Yield a message for each broken bound of an item, in the words of Kubernetes."""
    amounts, kind = {"request": requests, "limit": limits}, item["type"]
    for field, word, order, is_broken in _SIDES:
        for name, bound in _bounds(item, field):
            stated = f"{word} {name} usage per {kind} is {bound}"
            if name not in amounts[order[0]]:
                yield f"{stated}.  No {order[0]} is specified"
                continue
            found = [(what, amounts[what][name]) for what in order if name in amounts[what]]
            broken = [what for what, amount in found if is_broken(amount, resource_value(name, bound))]
            if broken:
                yield f"{stated}, but {broken[0]} is {format_resource(name, amounts[broken[0]][name])}"
    for name, bound in _bounds(item, "maxLimitRequestRatio"):
        stated = f"{name} max limit to request ratio per {kind} is {bound}"
        request, limit = requests.get(name, 0), limits.get(name, 0)
        if not (request and limit):
            lacking = "limit" if request else "request"
            yield f"{stated}, but no {lacking} is specified or {lacking} is 0"
        elif limit * 1000 > parse_milli(bound) * request:
            yield f"{stated}, but provided ratio is {limit / request:f}"


_SIDES: Final[tuple[tuple[str, str, tuple[str, str], Callable[[int, int], bool]], ...]] = (
    ("min", "minimum", ("request", "limit"), operator.lt),
    ("max", "maximum", ("limit", "request"), operator.gt),
)
"""For each bound: its field, its name in messages, the compared amounts (the first must be stated), the comparison."""


def _bounds(item: Manifest, field: str) -> list[tuple[str, Any]]:
    bounds: Mapping[str, Any] = item.get(field) or {}
    return sorted(bounds.items())

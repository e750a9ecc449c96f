"""Quantities as users write them: ``8 GPU``, ``1.5Ti memory``, ``0.5 cpu``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from vcd.model.quantity import QuantityError, resource_value
from vcd.model.reasons import is_bytes, shown
from vcd.model.resource_requests import CPU, MEMORY, PODS
from vcd.model.wording import some

_UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_PER_UNIT = 1000
"""All resources but bytes and pods are counted in thousandths."""
_OF_EVERY_POD = (CPU, MEMORY, PODS, "ephemeral-storage")
_LONGEST = 5
"""Characters of a quantity of bytes that is written in full."""


def resource_name(resource: str) -> str:
    """Return the name of a resource in text: ``GPU`` for ``nvidia.com/gpu``, others unchanged."""
    return "GPU" if resource.endswith(".com/gpu") else resource


def number(resource: str, amount: int) -> str:
    """Return a quantity of a resource (base units, as in reasons) without the resource's name.

    Thousandths are a decimal number (``0.5``), bytes have a binary suffix. A fraction that takes more than five
    characters is rounded to three digits.
    """
    if resource == PODS or not resource:
        return f"{amount:,}"
    if not is_bytes(resource):
        exact = f"{amount / _PER_UNIT:,.3f}".rstrip("0").rstrip(".")
        rounded = f"{amount / _PER_UNIT:,.0f}" if abs(amount) >= 100 * _PER_UNIT else f"{amount / _PER_UNIT:.3g}"
        return rounded if "." in exact and len(exact) > _LONGEST else exact
    exact = shown(resource, amount)
    return exact if len(exact) <= _LONGEST else _rounded(amount)


def plain_number(resource: str, amount: int) -> float:
    """Return a quantity of a resource (base units) in cores, bytes, or pieces."""
    return float(amount) if resource == PODS or is_bytes(resource) else amount / _PER_UNIT


def _rounded(amount: int) -> str:
    value, unit = float(amount), 0
    while abs(value) >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f}{_UNITS[unit]}" if value >= 100 else f"{value:.3g}{_UNITS[unit]}"


def amount_of(resource: str, amount: int) -> str:
    """Return a quantity with the name of its resource: ``8 GPU``."""
    return f"{number(resource, amount)} {resource_name(resource)}".rstrip()


def quantities_text(quantities: Mapping[str, str]) -> str:
    """Return quantities in Kubernetes' notation as users write them: ``4 cpu, 8Gi memory``."""
    return ", ".join(_quantity(name, text) for name, text in quantities.items())


def _quantity(resource: str, text: str) -> str:
    try:
        return amount_of(resource, resource_value(resource, text))
    except QuantityError:
        return f"{resource} {text}"


def pods_on_nodes(nodes: Iterable[str]) -> str:
    """Return the node of each pod as ``n1, n2 (3 pods)``, by name; the first four of many."""
    counts = Counter(nodes)
    return some([node if count == 1 else f"{node} ({count:,} pods)" for node, count in sorted(counts.items())])


def main_resource(requests: Mapping[str, int]) -> str:
    """Return the resource that characterizes a pod's requests: an extended one (the first by name), else cpu, else
    memory; empty if the pod requests none."""
    requested = sorted(name for name, amount in requests.items() if amount > 0)
    extended = [name for name in requested if name not in _OF_EVERY_POD]
    return next(iter([*extended, *(name for name in (CPU, MEMORY) if name in requested)]), "")


def needs(pods: Iterable[Mapping[str, int]]) -> str:
    """Return what pods request, given each one's requests: ``2 x 4 GPU``, ``1 x 4 GPU + 8 x 2 cpu``; more than two
    kinds are summed up: ``12 pods, 16 GPU``."""
    kinds: Counter[tuple[str, int]] = Counter()
    for requests in pods:
        resource = main_resource(requests)
        kinds[resource, requests.get(resource, 0)] += 1
    if not kinds:
        return ""
    most = kinds.most_common()
    if len(most) <= 2:
        return " + ".join(f"{count:,} x {amount_of(*kind) if kind[0] else 'nothing'}" for kind, count in most)
    first = main_resource({resource: 1 for resource, _ in kinds if resource})
    total = sum(count * amount for (resource, amount), count in kinds.items() if resource == first)
    return f"{sum(kinds.values()):,} pods, {amount_of(first, total)}"

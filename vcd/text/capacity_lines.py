"""The lines about a cluster's total and free capacity at the top of a screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from vcd.model.resource_requests import CPU, MEMORY
from vcd.model.wording import counted, some
from vcd.text.amounts import amount_of, main_resource, number, resource_name

_EXACT = 5
"""A histogram names up to this many distinct quantities exactly; with more, each quarter of the largest one is a
bar."""


class NodeAmounts(Protocol):
    """A node with its allocatable and used resources, in base units."""

    @property
    def name(self) -> str: ...
    @property
    def ready(self) -> bool: ...
    @property
    def allocatable(self) -> Mapping[str, int]: ...
    @property
    def used(self) -> Mapping[str, int]: ...


def cluster_resource(nodes: Iterable[NodeAmounts]) -> str:
    """Return the resource that characterizes a cluster: an extended one that its nodes offer, else cpu; empty if its
    nodes offer nothing."""
    return main_resource(_totals(nodes, lambda node: node.allocatable))


def resource_shown(first: str, amounts: Iterable[Mapping[str, int]]) -> str:
    """Return the resource that a queue's row displays: ``first`` if one of its quantities has it, else their main one;
    empty if all are zero."""
    known = {name: 1 for each in amounts for name, amount in each.items() if amount}
    return first if first in known else main_resource(known)


def capacity_lines(nodes: Sequence[NodeAmounts], waiting: int, running: int) -> Iterator[str]:
    """Return the lines about a cluster: used and free capacity, its jobs, free capacity per node, nodes not ready."""
    resource, ready = cluster_resource(nodes), [node for node in nodes if node.ready]
    jobs = f"{counted(waiting, 'job')} waiting, {running:,} running"
    ready_of_all = f"{len(ready):,}/{len(nodes):,} nodes"
    offered, used = (_totals(nodes, part) for part in (lambda node: node.allocatable, lambda node: node.used))
    if not resource:
        yield f"{ready_of_all}   {jobs}"
        return
    total, taken = offered[resource], used.get(resource, 0)
    beside = [name for name in (CPU, MEMORY) if name != resource and offered.get(name)]
    sums = [f"{name} {number(name, used.get(name, 0))}/{number(name, offered[name])}" for name in beside]
    free = f"{amount_of(resource, total)}: {number(resource, taken)} used, {number(resource, total - taken)} free"
    yield "   ".join([free, *sums])
    yield f"{ready_of_all}   free {resource_name(resource)} per node: {_histogram(resource, ready)}"
    if lost := sorted(node.name for node in nodes if not node.ready):
        yield f"Not ready: {some(lost)}"
    yield jobs


def _totals(nodes: Iterable[NodeAmounts], part: Callable[[NodeAmounts], Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for node in nodes:
        total.update(part(node))
    return dict(total)


def _histogram(resource: str, nodes: Sequence[NodeAmounts]) -> str:
    """Return how many nodes have which free quantity, a single node by its name: ``0: 3 nodes, 4: gpu-7``."""
    free = {node.name: max(node.allocatable.get(resource, 0) - node.used.get(resource, 0), 0) for node in nodes}
    bars: dict[tuple[int, str], list[str]] = {}
    largest, exact = max(free.values(), default=0), len(set(free.values())) <= _EXACT
    for name, amount in sorted(free.items()):
        bar = (amount, number(resource, amount)) if exact or not amount else _quarter(resource, amount, largest)
        bars.setdefault(bar, []).append(name)
    counted = [f"{words}: {_one_or_count(names)}" for (_, words), names in sorted(bars.items())]
    return ", ".join(counted) or "no node is ready"


def _one_or_count(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names):,} nodes"


def _quarter(resource: str, amount: int, largest: int) -> tuple[int, str]:
    """Return the upper end of the quarter of the largest quantity that contains this one, and its text."""
    end = largest * -(-4 * amount // largest) // 4
    return end, f"up to {number(resource, end)}"

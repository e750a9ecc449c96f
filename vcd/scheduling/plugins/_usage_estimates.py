"""What pods that no sample shows yet are going to use: the estimates of the plugin usage.

estimate = (request x request_ratio + (limit - request) x burst_ratio) x risk, within 0 and the limit; a limit that is
missing, or below the request, is the request. Best-effort pods count be_cpu and be_mem x risk. Risk is risk_factor
while the node's load, weighed over cpu and memory, is at least risk_threshold, else 1. Source: Volcano
``plugins/usage/estimator.go`` and ``shadow_cache.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vcd.model.objects import PodSpec
from vcd.model.quantity import QuantityError, parse_milli, parse_units, resource_value
from vcd.model.requests import CPU, MEMORY
from vcd.state.records import Shape

Floats = npt.NDArray[np.float64]

MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Estimator:
    """The section ``estimator``: ``be_cpu`` in thousandths, ``be_mem`` in bytes; what is invalid has its default."""

    request_ratio: float = 0.7
    burst_ratio: float = 0.0
    risk_threshold: float = 0.6
    risk_factor: float = 1.2
    be_cpu: float = 250.0
    be_mem: float = 200.0 * MEBIBYTE

    @classmethod
    def of(cls, section: Mapping[str, Any]) -> Estimator:
        """From the configuration's section."""
        given: dict[str, float] = {}
        for key in ("request_ratio", "burst_ratio", "risk_threshold"):
            value = number(section.get(key))
            if value is not None and 0 <= value <= 1:
                given[key] = value
        factor = number(section.get("risk_factor"))
        if factor is not None and factor >= 1:
            given["risk_factor"] = factor
        cpu, memory = section.get("be_cpu"), section.get("be_mem")
        for key, value in (("be_cpu", _cpu(cpu)), ("be_mem", _memory(memory))):
            if value is not None:
                given[key] = float(value)
        return cls(**given)


def number(value: object) -> float | None:
    """A number of the configuration, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return None
    return float(value)


def _cpu(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        found = parse_milli(value) if isinstance(value, str) else value
    except QuantityError:
        return None
    return found if found >= 0 else None


def _memory(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        found = parse_units(value) if isinstance(value, str) else value * MEBIBYTE
    except QuantityError:
        return None
    return found if found >= 0 else None


class Load:
    """The nodes' load, cpu in row 0 and memory in row 1: what samples show, and the estimates on top of it.

    ``percent`` and ``capacity`` have shape (2, nodes); ``weights`` are those of cpu and memory.
    """

    def __init__(self, estimator: Estimator, percent: Floats, capacity: Floats, weights: tuple[int, int]) -> None:
        self._estimator = estimator
        self._capacity = capacity
        self._there = capacity > 0
        self._shown = percent / 100.0 * capacity
        self._weights = weights
        self.estimated: Floats = np.zeros_like(percent)
        self._estimates: dict[int, tuple[int, float, float]] = {}
        self._of_shape: dict[Shape, tuple[tuple[float, float], tuple[float, float]]] = {}

    def composite(self) -> Floats:
        """The part of each node's cpu and memory that is, or soon will be, used: 0 to 1, 0 where it has none."""
        parts = np.zeros_like(self._capacity)
        np.divide(self._shown + self.estimated, self._capacity, out=parts, where=self._there)
        return np.clip(parts, 0.0, 1.0)

    def add(self, task: int, shape: Shape, row: int) -> None:
        """A pod that no sample shows yet is on a node; ``task`` is its row."""
        self.remove(task)
        risk = self._risk(row)
        if shape.best_effort:
            cpu, memory = self._estimator.be_cpu * risk, self._estimator.be_mem * risk
        else:
            requests, limits = self._amounts(shape)
            cpu, memory = (self._estimate(requests[part], limits[part], risk) for part in (0, 1))
        self._estimates[task] = (row, cpu, memory)
        self.estimated[0, row] += cpu
        self.estimated[1, row] += memory

    def remove(self, task: int) -> bool:
        """A pod is not there any more: exactly what it added goes; whether it had added anything."""
        if task not in self._estimates:
            return False
        row, cpu, memory = self._estimates.pop(task)
        self.estimated[0, row] = max(0.0, self.estimated[0, row] - cpu)
        self.estimated[1, row] = max(0.0, self.estimated[1, row] - memory)
        return True

    def _risk(self, row: int) -> float:
        total = sum(self._weights)
        load = 0.0
        if total:
            for part, weight in enumerate(self._weights):
                capacity = self._capacity[part, row]
                if capacity > 0:
                    used = (self._shown[part, row] + self.estimated[part, row]) / capacity
                    load += min(max(used, 0.0), 1.0) * weight
            load /= total
        return self._estimator.risk_factor if load >= self._estimator.risk_threshold else 1.0

    def _estimate(self, request: float, limit: float, risk: float) -> float:
        limit = max(limit, request)
        estimator = self._estimator
        estimate = (request * estimator.request_ratio + (limit - request) * estimator.burst_ratio) * risk
        return min(max(estimate, 0.0), limit)

    def _amounts(self, shape: Shape) -> tuple[tuple[float, float], tuple[float, float]]:
        found = self._of_shape.get(shape)
        if found is None:
            requests = (float(shape.requests.get(CPU, 0)), float(shape.requests.get(MEMORY, 0)))
            limits = (pod_limit(shape.spec, CPU), pod_limit(shape.spec, MEMORY))
            found = self._of_shape[shape] = (requests, limits)
        return found


def pod_limit(spec: PodSpec, resource: str) -> float:
    """The most that a pod may use of a resource: its containers' and sidecars' limits, or the largest init step's;
    a limit that is missing, or cannot be read, is 0."""

    def of(quantities: Mapping[str, str | int | float]) -> int:
        text = quantities.get(resource)
        try:
            return 0 if text is None else resource_value(resource, text)
        except QuantityError:
            return 0

    total = sum(of(container.resources.limits) for container in spec.containers)
    sidecars = largest = 0
    for container in spec.init_containers:
        limit = of(container.resources.limits)
        if container.restart_policy == "Always":
            total += limit
            sidecars += limit
            largest = max(largest, sidecars)
        else:
            largest = max(largest, limit + sidecars)
    total = max(total, largest)
    if spec.resources is not None and resource in spec.resources.limits:
        total = of(spec.resources.limits)
    return float(total + of(spec.overhead) if total else 0)

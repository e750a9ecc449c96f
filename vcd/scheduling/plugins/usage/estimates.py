"""Estimates of the usage of pods that samples do not include yet, for the plugin usage.

estimate = (request x request_ratio + (limit - request) x burst_ratio) x risk, between 0 and the limit. A limit that is
missing, or below the request, counts as the request. Best-effort pods count be_cpu x risk and be_mem x risk. Risk is
risk_factor while the node's load, the weighted mean of cpu and memory, is at least risk_threshold, else 1. Source:
Volcano ``plugins/usage/estimator.go`` and ``shadow_cache.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import msgspec
import numpy as np
import numpy.typing as npt

from vcd.model.objects import PodSpec
from vcd.model.quantity import QuantityError, resource_value
from vcd.model.resource_requests import CPU, MEMORY
from vcd.scheduling.framework.arguments import Argument
from vcd.state.records import Shape

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

Estimate = tuple[int, float, float]
"""A node's row, and the estimated cpu (thousandths) and memory (bytes) of a pod there."""

MEBIBYTE = 1 << 20


ESTIMATOR = (
    Argument("request_ratio", "float", 0.7, "The fraction of a request that is used.", minimum=0, maximum=1),
    Argument("burst_ratio", "float", 0.0, "The fraction used of limit - request.", minimum=0, maximum=1),
    Argument("risk_threshold", "float", 0.6, "The load above which a node is at risk.", minimum=0, maximum=1),
    Argument("risk_factor", "float", 1.2, "Factor of the estimates on a node at risk.", minimum=1),
    Argument("be_cpu", "cpu", 250, "The cpu of a best-effort pod."),
    Argument("be_mem", "memory", 200 * MEBIBYTE, "The memory of a best-effort pod."),
)


class Estimator(msgspec.Struct, frozen=True):
    """The argument ``estimator``: ``be_cpu`` in thousandths, ``be_mem`` in bytes."""

    request_ratio: float
    burst_ratio: float
    risk_threshold: float
    risk_factor: float
    be_cpu: float
    be_mem: float


class Load:
    """The nodes' load, cpu in row 0 and memory in row 1: samples plus estimates.

    ``percent`` and ``capacity`` have shape (2, nodes); ``weights`` are those of cpu and memory.
    """

    def __init__(self, estimator: Estimator, percent: Floats, capacity: Floats, weights: tuple[int, int]) -> None:
        self._estimator = estimator
        self._capacity = capacity
        self._there = capacity > 0
        self._measured = percent / 100.0 * capacity
        self._weights = weights
        self.estimated: Floats = np.zeros_like(percent)
        self.log: list[int] = []
        """The nodes in the order in which their estimates changed, so that callers can update what they derived."""
        self._estimates: dict[int, Estimate] = {}
        self._amounts_of = cache(_amounts_of)

    def composite(self, rows: Rows) -> Floats:
        """Return the fractions of some nodes' cpu and memory that are or soon will be used; 0 without capacity."""
        used, capacity = self._measured[:, rows] + self.estimated[:, rows], self._capacity[:, rows]
        parts = np.zeros_like(capacity)
        np.divide(used, capacity, out=parts, where=self._there[:, rows])
        return np.clip(parts, 0.0, 1.0)

    def add(self, task: int, shape: Shape, row: int) -> None:
        """Add a pod on a node that no sample includes yet; ``task`` is the pod's row."""
        self.remove(task)
        risk = self._risk(row)
        if shape.best_effort:
            cpu, memory = self._estimator.be_cpu * risk, self._estimator.be_mem * risk
        else:
            requests, limits = self._amounts_of(shape)
            cpu, memory = (self._estimate(requests[part], limits[part], risk) for part in (0, 1))
        self.put_back(task, (row, cpu, memory))

    def put_back(self, task: int, estimate: Estimate) -> None:
        """Add a pod with an earlier estimate."""
        row, cpu, memory = self._estimates[task] = estimate
        self.log.append(row)
        self.estimated[0, row] += cpu
        self.estimated[1, row] += memory

    def remove(self, task: int) -> Estimate | None:
        """Subtract what a pod added, and return it; None if it added nothing."""
        found = self._estimates.pop(task, None)
        if found is not None:
            row, cpu, memory = found
            self.log.append(row)
            self.estimated[0, row] = max(0.0, self.estimated[0, row] - cpu)
            self.estimated[1, row] = max(0.0, self.estimated[1, row] - memory)
        return found

    def _risk(self, row: int) -> float:
        total = sum(self._weights)
        load = 0.0
        if total:
            for part, weight in enumerate(self._weights):
                capacity = self._capacity[part, row]
                if capacity > 0:
                    used = (self._measured[part, row] + self.estimated[part, row]) / capacity
                    load += min(max(used, 0.0), 1.0) * weight
            load /= total
        return self._estimator.risk_factor if load >= self._estimator.risk_threshold else 1.0

    def _estimate(self, request: float, limit: float, risk: float) -> float:
        limit = max(limit, request)
        estimator = self._estimator
        estimate = (request * estimator.request_ratio + (limit - request) * estimator.burst_ratio) * risk
        return min(max(estimate, 0.0), limit)


def _amounts_of(shape: Shape) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return requests and limits of cpu and memory."""
    requests = (float(shape.requests.get(CPU, 0)), float(shape.requests.get(MEMORY, 0)))
    return requests, (pod_limit(shape.spec, CPU), pod_limit(shape.spec, MEMORY))


def pod_limit(spec: PodSpec, resource: str) -> float:
    """Return a pod's limit: of containers and sidecars, or of the largest init container if more; 0 if unreadable."""

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

"""What plugins show on the metrics page: plain values, so that deciding code needs no metrics library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import NamedTuple

from vcd.model.quantity import to_volcanos_unit
from vcd.model.requests import CPU, MEMORY


class Gauge(NamedTuple):
    """A value under a metric's full name; series not given again in the next session vanish."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


def resource_gauges(prefix: str, queue: str, resources: Sequence[str], values: Iterable[float]) -> Iterator[Gauge]:
    """Amounts of a queue under Volcano's three series: ``..._milli_cpu``, ``..._memory_bytes``,
    ``..._scalar_resources`` with a label per resource (Volcano ``pkg/scheduler/metrics/queue.go``). An infinite amount
    is no limit, and not shown."""
    label = ("queue_name", queue)
    for name, value in zip(resources, values, strict=True):
        if value == inf:
            continue
        if name == CPU:
            yield Gauge(f"{prefix}_milli_cpu", (label,), value)
        elif name == MEMORY:
            yield Gauge(f"{prefix}_memory_bytes", (label,), value)
        else:
            yield Gauge(f"{prefix}_scalar_resources", (label, ("resource", name)), value * to_volcanos_unit(name))

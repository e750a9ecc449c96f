"""Metrics of plugins as plain values, so that deciding code needs no metrics library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from vcd.model.quantity import to_volcanos_unit
from vcd.model.resource_requests import CPU, MEMORY, PODS, UNOFFERED
from vcd.scheduling.session.queue_view import Queue


class QueueFigure(NamedTuple):
    """A statistic of a queue, for explanations: one of SERIES for a resource in its base unit, or a plain number such
    as the queue's ``share`` (no resource)."""

    series: str
    queue: str
    resource: str
    value: float


class Gauge(NamedTuple):
    """A value with the metric's full name. A series that the next session does not return disappears.

    ``figure`` is the statistic of a queue that the value represents, if any.
    """

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float
    figure: QueueFigure | None = None


class JobGauge(NamedTuple):
    """A value for each of the session's jobs, in their order, with the metric's full name and the labels ``job_ns`` and
    ``job_id``. Exposed only if series per job are enabled."""

    name: str
    values: npt.NDArray[np.float64]


SERIES: Final = {
    "guarantee": "vcd_queue_guarantee",
    "deserved": "volcano_queue_deserved",
    "capability": "volcano_queue_capacity",
    "real_capability": "volcano_queue_real_capacity",
    "allocated": "volcano_queue_allocated",
    "request": "volcano_queue_request",
    "inqueue": "volcano_queue_inqueue",
}
"""Statistics that plugins keep of queues by resource, each with the prefix of its metric's names."""
_OWN = ("allocated", "request", "inqueue")
_ALWAYS = (CPU, MEMORY, PODS)


def resource_gauges(series: str, queue: str, resources: Sequence[str], values: Iterable[float]) -> Iterator[Gauge]:
    """Yield amounts of a queue, one of SERIES, in base units under Volcano's three names.

    The names are ``..._milli_cpu``, ``..._memory_bytes`` and ``..._scalar_resources`` with a label per resource
    (Volcano ``pkg/scheduler/metrics/queue.go``). An infinite amount means no limit, and is omitted.
    """
    label, prefix = ("queue_name", queue), SERIES[series]
    for name, value in zip(resources, values, strict=True):
        if value == inf:
            continue
        figure = QueueFigure(series, queue, name, value)
        if name == CPU:
            yield Gauge(f"{prefix}_milli_cpu", (label,), value, figure)
        elif name == MEMORY:
            yield Gauge(f"{prefix}_memory_bytes", (label,), value, figure)
        else:
            labels = (label, ("resource", name))
            yield Gauge(f"{prefix}_scalar_resources", labels, value * to_volcanos_unit(name), figure)


def resource_gauges_of(
    queue: Queue, resources: Sequence[str], series: Mapping[str, Sequence[float]]
) -> Iterator[Gauge]:
    """Yield ``resource_gauges`` of several series, for the resources that the queue holds, requests or limits.

    A cluster may offer hundreds of resources and have as many queues, so the others are omitted.
    """
    record, own = queue.record, [series[name] for name in _OWN]
    stated = {*_ALWAYS, *record.capability, *record.deserved, *record.guarantee}
    columns = [
        column
        for column, name in enumerate(resources)
        if name != UNOFFERED and (name in stated or any(values[column] for values in own))
    ]
    names = [resources[column] for column in columns]
    for name, values in series.items():
        yield from resource_gauges(name, queue.name, names, [values[column] for column in columns])


def queue_gauge(series: str, queue: str, value: float) -> Gauge:
    """Return a plain number of a queue: its ``share``, ``weight``, or whether it is ``overused``."""
    return Gauge(f"volcano_queue_{series}", (("queue_name", queue),), value, QueueFigure(series, queue, "", value))

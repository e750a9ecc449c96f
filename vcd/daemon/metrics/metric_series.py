"""Stores values of counters, gauges and histograms, and copies them for one scrape.

prometheus-client only renders the page. Its Counter would add ``_total`` to Volcano's names without it, and its
Histogram observes one value at a time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from prometheus_client import Metric
from prometheus_client.samples import Sample

LabelValues = tuple[str, ...]


class Family(NamedTuple):
    """Series of one name. ``kind`` is gauge, counter or histogram; ``bounds`` a histogram's buckets."""

    kind: str
    name: str
    doc: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    def page(self) -> Metric:
        """Return the family without series.

        prometheus-client adds ``_total`` to a counter's name, so a counter without that suffix becomes untyped.
        """
        if self.kind != "counter":
            return Metric(self.name, self.doc, self.kind)
        if self.name.endswith("_total"):
            return Metric(self.name.removesuffix("_total"), self.doc, "counter")
        return Metric(self.name, self.doc, "unknown")


def exponential(low: float, high: float, count: int) -> tuple[float, ...]:
    """Return ``count`` bounds from ``low`` to ``high`` with a constant factor between them (client_golang's
    ExponentialBucketsRange, which Volcano's histograms use)."""
    factor = (high / low) ** (1 / (count - 1))
    return tuple(low * factor**step for step in range(count))


class Distribution:
    """The counts of one histogram. ``counts`` has the values of each bucket, not cumulative."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def observe_many(self, values: npt.NDArray[np.float64]) -> None:
        """Count all values at once."""
        places = np.bincount(np.searchsorted(self.bounds, values), minlength=len(self.counts)).tolist()
        self.counts = [have + more for have, more in zip(self.counts, places, strict=True)]
        self.total += float(values.sum())

    def copy(self) -> Distribution:
        """Return a copy."""
        result = Distribution(self.bounds)
        result.counts, result.total = list(self.counts), self.total
        return result

    def samples(self, name: str, labels: dict[str, str]) -> Iterable[Sample]:
        """Yield Prometheus' samples: cumulative buckets, count and sum."""
        count = 0
        for bound, more in zip((*self.bounds, float("inf")), self.counts, strict=True):
            count += more
            text = "+Inf" if bound == float("inf") else repr(bound)
            yield Sample(f"{name}_bucket", {**labels, "le": text}, count)
        yield Sample(f"{name}_count", labels, count)
        yield Sample(f"{name}_sum", labels, self.total)


class SeriesStore:
    """The series of many families. Counters and distributions are created at their first use. Not thread-safe."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = {family.name: family for family in families}
        self._values: dict[str, dict[LabelValues, float]] = {}
        self._distributions: dict[str, dict[LabelValues, Distribution]] = {}
        for kind, name, _, labels, bounds in self._families.values():
            if kind == "histogram":
                self._distributions[name] = {} if labels else {(): Distribution(bounds)}
            else:
                self._values[name] = {} if labels or kind == "gauge" else {(): 0.0}

    def add(self, name: str, *labels: str, by: float = 1.0) -> None:
        """Increase a counter."""
        values = self._values[name]
        values[labels] = values.get(labels, 0.0) + by

    def show(self, name: str, values: float | Mapping[LabelValues, float]) -> None:
        """Set a family's single value, or replace all of its values by labels."""
        self._values[name] = dict(values) if isinstance(values, Mapping) else {(): values}

    def distribution(self, name: str, *labels: str) -> Distribution:
        """Return a family's distribution for these labels, to observe values with."""
        found = self._distributions[name].get(labels)
        if found is None:
            found = self._distributions[name][labels] = Distribution(self._families[name].bounds)
        return found

    def forget(self, gone: Callable[[str, str], bool]) -> None:
        """Drop the series that have a label for which ``gone(name, value)`` is true."""
        kept: tuple[dict[str, dict[LabelValues, Any]], ...] = (self._values, self._distributions)
        for name, series in ((name, series) for values in kept for name, series in values.items()):
            names = self._families[name].labels
            for labels in [each for each in series if any(map(gone, names, each))]:
                del series[labels]

    def copy(self) -> SeriesStore:
        """Return a copy for another thread to read."""
        result = SeriesStore(self._families.values())
        result._values = {name: dict(values) for name, values in self._values.items()}
        result._distributions = {
            name: {labels: value.copy() for labels, value in values.items()}
            for name, values in self._distributions.items()
        }
        return result

    def counted(self) -> SeriesStore:
        """Return a copy of counters and histograms, without gauges' values."""
        result = self.copy()
        result._values |= {name: {} for name, family in self._families.items() if family.kind == "gauge"}
        return result

    def pages(self) -> Iterable[Metric]:
        """Yield every family, including those without series."""
        for name, family in self._families.items():
            page = family.page()
            for labels, value in (self._values.get(name) or self._distributions.get(name, {})).items():
                names = dict(zip(family.labels, labels, strict=True))
                own = value.samples(name, names) if isinstance(value, Distribution) else [Sample(name, names, value)]
                page.samples.extend(own)
            yield page

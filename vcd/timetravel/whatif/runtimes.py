"""Estimates of run times from earlier pods: the product-limit estimate of Kaplan and Meier.

Pods that still ran when the log ended count for as long as they were observed, so that long jobs are not ignored. Pods
that ran already when first observed count from the age that they had then (left truncation: those that ended before
that age are not observed), and not at all if that age is unknown. A job counts once, however many pods it has: they
mostly end together, and are not independent observations.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from copy import copy
from itertools import groupby
from random import Random
from statistics import median

import msgspec

from vcd.model.objects import Pod
from vcd.model.resource_requests import pod_requests
from vcd.model.wording import SECOND
from vcd.state.records import task_role
from vcd.text.forecast_templates import FORECASTS
from vcd.timetravel.whatif.logged_workload import Unit, Workload, name_in_log

ENOUGH = 5
"""Ended jobs of a class that are needed to estimate from the class alone."""
LOW, HIGH = 0.1, 0.9
"""The quantiles between which four of five runs are expected to lie."""

_MOST = 0.99
"""Quantiles above it are replaced by it: the unobserved tail is infinite."""

_ROUNDING = 1e-9
_NEXT = ""
"""The name of the next, unobserved job, among those that have names."""

_NUMBER = re.compile(r"[-._]([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9]+)(?=[-._]|$)")
_TEMPLATE_HASH = "pod-template-hash"
_ALL = ("all",)
_OWN = 3
"""The number of classes, of those of a pod, that are its own kind."""
_IMPLIED_GROUP = "podgroup-"

_Run = tuple[int, bool, str, int]
"""How long a pod ran (ns), whether it ended then, its job, and how long it had run when first observed (ns)."""


class Estimate(msgspec.Struct, frozen=True):
    """The estimated total run time of a pod, in ns: the median, and the bounds of four in five. ``of`` describes the
    class of pods that it was estimated from, ``count`` is how many jobs of that class ended."""

    median: int
    low: int
    high: int
    of: str
    count: int


class Accuracy(msgspec.Struct, frozen=True):
    """How precisely estimates from the earlier half of a log's ended pods predict the later half.

    Numbers of pods ``learned`` from and ``tested`` on; the median of the ratio of the larger to the smaller of
    estimate and truth (1 is perfect), and the share of pods within their bounds (0.8 is expected).
    """

    learned: int
    tested: int
    median_ratio: float
    within_bounds: float

    @property
    def words(self) -> str:
        """The accuracy in a sentence."""
        facts = {"learned": f"{self.learned:,}", "ratio": f"{self.median_ratio:.2f}"}
        facts |= {"tested": f"{self.tested:,}", "within": f"{self.within_bounds:.0%}"}
        return FORECASTS.sentence("accuracy", facts)


class _Curve:
    """The share of pods that still run after some time, for the next job.

    Up to the last observed end it is the product-limit estimate with the next job among those at risk, which has not
    ended: that job falls with equal probability into any of the n + 1 gaps between n runs, also beyond them all
    (Hill's A(n); with censoring, Berliner and Hill, Bayesian Nonparametric Survival Analysis, JASA 83, 1988).
    Otherwise pods of a class of which few ended would never outlive these. Beyond all observed times, a running pod
    runs as long again with probability one half (a Pareto tail of index 1, as run times have: Harchol-Balter and
    Downey, Exploiting Process Lifetime Distributions for Dynamic Load Balancing, ACM TOCS 15, 1997).
    """

    def __init__(self, runs: Iterable[_Run], weights: Mapping[str, float]) -> None:
        """Create from ``runs`` with the ``weights`` of jobs, by default 1, also for the next one (the empty name)."""
        # a run without any observed time is no information
        known = sorted(run for run in runs if run[0] > run[3] or run[1])
        pods = Counter(job for _, _, job, _ in known)
        self.count = len({job for _, ended, job, _ in known if ended})
        self._times: list[int] = []
        self._left: list[float] = []
        parts = {job: weights.get(job, 1.0) / count for job, count in pods.items()}
        entering = deque(sorted((entry, parts[job]) for _, _, job, entry in known if entry))
        share, at_risk = 1.0, weights.get(_NEXT, 1.0) + sum(parts[job] for _, _, job, entry in known if not entry)
        for time, same in groupby(known, key=lambda run: run[0]):
            while entering and entering[0][0] < time:
                at_risk += entering.popleft()[1]
            outcomes = [(parts[job], ended) for _, ended, job, _ in same]
            over = sum(part for part, ended in outcomes if ended)
            if over:
                share *= 1 - over / at_risk
                self._times.append(time)
                self._left.append(share)
            at_risk -= sum(part for part, _ in outcomes)
        self._longest = known[-1][0] if known else 0

    def quantile(self, share: float, elapsed: int) -> int:
        """Return the total run time by which a share (0 to 1) of the pods that outlived ``elapsed`` has ended.

        At least one run must have ended.
        """
        share = min(share, _MOST)
        if elapsed > self._longest:
            return round(elapsed / (1 - share))
        begun = bisect_right(self._times, elapsed) if elapsed else 0  # a pod that has not run yet may end at once
        wanted = (self._left[begun - 1] if begun else 1.0) * (1 - share) * (1 + _ROUNDING)
        for time, left in zip(self._times[begun:], self._left[begun:], strict=True):
            if left <= wanted:
                return time
        return round(self._longest * self._left[-1] / wanted)


class RunTimes:
    """Estimates run times from the most specific class of which enough jobs have ended."""

    def __init__(self, runs: Iterable[tuple[Unit, int, bool]]) -> None:
        """Create from ``runs``: units, how long each ran (ns), and whether it ended then or was only not observed
        further."""
        self._runs: dict[Hashable, list[_Run]] = {}
        self._weights: Mapping[str, float] = {}
        self._curves: dict[Hashable, _Curve] = {}
        for unit, length, ended in runs:
            entry = 0 if unit.bound is None else max(0, unit.arrived - unit.bound)
            for key, _ in _classes(unit.pod):
                self._runs.setdefault(key, []).append((length, ended, unit.group or unit.key, entry))

    @classmethod
    def of(cls, work: Workload) -> RunTimes:
        """Learn from all runs in a log."""
        return cls(_known_at(work.end, work))

    def drawn(self, random: Random) -> RunTimes:
        """Return an estimator with random weights of the jobs (Rubin, The Bayesian Bootstrap, Annals of Statistics 9,
        1981). All estimates of one draw share its error, as the real knowledge does."""
        found = copy(self)
        jobs = sorted({job for _, _, job, _ in self._runs.get(_ALL, ())})
        found._weights = {job: random.expovariate(1) for job in (_NEXT, *jobs)}
        found._curves = {}
        return found

    @property
    def usual(self) -> int | None:
        """The median run time of all pods (ns); None if none ever ended."""
        found = self._curve(_ALL)
        return found.quantile(0.5, 0) if found is not None and found.count else None

    def is_vague(self, pod: Pod) -> bool:
        """Return whether too few jobs of the pod's own kind ended (of that name, or in its namespace with equal
        requests)."""
        own = (self._curve(key) for key, _ in _classes(pod)[:_OWN])
        return not any(curve is not None and curve.count >= ENOUGH for curve in own)

    def has_like(self, pod: Pod) -> bool:
        """Return whether jobs of the pod's own kind have ended, so that its run time is not invented."""
        own = (self._curve(key) for key, _ in _classes(pod)[:_OWN])
        return any(curve is not None and curve.count for curve in own)

    def estimate(self, pod: Pod, elapsed: int = 0) -> Estimate | None:
        """Return the estimate for a pod that has run for ``elapsed`` (ns); None if nothing ever ended."""
        found = self._curve_of(pod)
        if found is None:
            return None
        curve, words = found
        middle, low, high = (curve.quantile(share, elapsed) for share in (0.5, LOW, HIGH))
        return Estimate(middle, low, high, words, curve.count)

    def draw(self, pod: Pod, elapsed: int, uniform: float) -> int | None:
        """Return the total run time (ns) of a pod that has run for ``elapsed``, as the quantile ``uniform`` (0 to 1)
        of its class; None if nothing ever ended."""
        found = self._curve_of(pod)
        return None if found is None else found[0].quantile(uniform, elapsed)

    def _curve(self, key: Hashable) -> _Curve | None:
        """Return the curve of a class; None if no pod of it ran."""
        if key not in self._curves and key in self._runs:
            self._curves[key] = _Curve(self._runs[key], self._weights)
        return self._curves.get(key)

    def _curve_of(self, pod: Pod) -> tuple[_Curve, str] | None:
        """Return the most specific class of which enough jobs ended, else of which any did, with a description."""
        found: tuple[_Curve, str] | None = None
        for key, words in _classes(pod):
            curve = self._curve(key)
            if curve is not None and curve.count:
                if curve.count >= ENOUGH:
                    return curve, words
                found = found or (curve, words)
        return found


def accuracy(work: Workload) -> Accuracy | None:
    """Return how precisely run times are estimated. The estimator learns from the runs that ended first, half of all,
    and is tested on the others, from the age of each at that time.

    None unless at least two runs ended, at different times.
    """
    runs = sorted(_ended(work), key=lambda one: (one[2], one[0].key))
    cut = _half_time([ended for _, _, ended in runs])
    if cut is None:
        return None
    model = RunTimes(_known_at(cut, work))
    later = [(unit, run, max(0, run - (ended - cut))) for unit, run, ended in runs if ended > cut]
    ratios, within = [], 0
    for unit, run, elapsed in later:
        estimate = model.estimate(unit.pod, elapsed)
        assert estimate is not None  # at least one run had ended by then
        smaller, greater = sorted((max(run, SECOND), max(estimate.median, SECOND)))
        ratios.append(greater / smaller)
        within += estimate.low <= run <= estimate.high
    return Accuracy(len(runs) - len(later), len(later), median(ratios), within / len(later))


def _ended(work: Workload) -> Iterator[tuple[Unit, int, int]]:
    """Yield units with a known run time, with that, and when they ended."""
    for unit in work.units:
        if unit.run is not None and unit.ended is not None and unit.seen_whole:
            yield unit, unit.run, unit.ended


def _half_time(ends: list[int]) -> int | None:
    """Return when half of the runs had ended, with some left to end later; None if there is no such time."""
    earlier = [time for time in ends if time < ends[-1]]
    return ends[(len(ends) - 1) // 2] if earlier[(len(ends) - 1) // 2 :] else earlier[-1] if earlier else None


def _known_at(time: int, work: Workload) -> Iterator[tuple[Unit, int, bool]]:
    for unit in work.units:
        if unit.bound is not None and unit.bound <= time and unit.seen_whole:
            until = time if unit.ended is None else min(time, unit.ended)
            yield unit, until - unit.bound, until == unit.ended and unit.run is not None


def _classes(pod: Pod) -> list[tuple[Hashable, str]]:
    """Return the classes of a pod, the most specific first, with a description of each."""
    space = pod.metadata.namespace
    requests = tuple(sorted((key, value) for key, value in pod_requests(pod.spec).items() if key != "pods"))
    named = f"{space}/{_NUMBER.sub('', _name_of(pod))}*"
    return [
        (("named", named, task_role(pod), requests), FORECASTS.sentence("work named equal", {"name": named})),
        (("named", named), FORECASTS.sentence("work named", {"name": named})),
        (("asks", space, requests), FORECASTS.sentence("work in equal", {"name": space})),
        (("namespace", space), FORECASTS.sentence("work in", {"name": space})),
        (_ALL, FORECASTS["work"]),
    ]


def _name_of(pod: Pod) -> str:
    """Return the name that a user gave: of the workload that owns the pod, else of its group, else its own."""
    return name_in_log(_name_there(pod))


def _name_there(pod: Pod) -> str:
    meta = pod.metadata
    owner = next((owner.name for owner in meta.owner_references if owner.controller), "")
    if owner:
        return owner.removesuffix(f"-{meta.labels.get(_TEMPLATE_HASH, '')}")
    group = pod.group_key.partition("/")[2]
    return meta.name if not group or group.startswith(_IMPLIED_GROUP) else group

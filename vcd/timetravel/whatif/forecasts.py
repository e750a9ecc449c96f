"""Forecasts: their data, and their text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from vcd.model.wording import SECOND, counted, some, span_in_words
from vcd.scheduling.framework.declared_reasons import Told
from vcd.text.forecast_templates import FORECASTS
from vcd.text.outcomes import delay_sentence
from vcd.text.reason_sentences import reasons_text
from vcd.text.time_formats import clock
from vcd.timetravel.whatif.runtimes import HIGH, LOW, Estimate

LONGER = 60 * SECOND
"""By how much (ns) a job's start must change to be reported."""
_NAMED = 10


class Span(msgspec.Struct, frozen=True):
    """An uncertain time (ns since the epoch): its median, and the bounds between which it lies in four of five cases;
    it was reached in ``runs`` of the runs. ``median`` and ``high`` are None if it was reached in too few of them:
    without ``high``, it is ``low`` or later in four of five cases."""

    median: int | None
    low: int
    high: int | None
    runs: int


class Forecast(msgspec.Struct):
    """The forecast of a job (a PodGroup and its pods): ``key`` is the group's, ``name`` the one that users know.

    ``placed`` is where its pods are bound in the first session, ``waits`` why the others wait. ``starts`` is when its
    minimum of pods has nodes, ``ends`` when its last pod has ended (None: in no run, or not simulated); ``never`` is
    what it waits for at the end of runs in which it does not start. ``unlike`` are other running jobs without similar
    jobs that ended, those with the most pods first: they end in no run. ``runs_for`` is a pod's assumed run time; its
    ``count`` is 0 if nothing is known, or the user stated it.
    """

    key: str
    name: str
    queue: str
    pods: int
    minimum: int
    placed: dict[str, str]
    waits: list[Told]
    runs_for: Estimate | None
    starts: Span | None
    ends: Span | None
    never: list[Told]
    unlike: list[str] = []


class ForecastVictim(msgspec.Struct, frozen=True):
    """A pod that is evicted in ``runs`` of the runs, and not without the submitted jobs; ``reason`` if the first
    session evicts it."""

    pod: str
    job: str
    runs: int
    reason: str = ""


class Delay(msgspec.Struct, frozen=True):
    """Another job that starts later because of the submitted ones; ``by`` is the median delay (ns), None: it waits
    long after these have ended. ``before`` and ``after`` are its further waits without and with them (ns), ``why`` the
    cause of the longer wait in a few words, empty if unknown."""

    job: str
    queue: str
    by: int | None
    before: int = 0
    after: int | None = None
    why: str = ""


class Submission(msgspec.Struct):
    """The forecast of jobs at ``now`` (ns), after ``session`` of the log, from ``samples`` runs; 0: the first session
    places all of them, and no runs were requested.

    ``caveats`` are the assumptions of the forecast, ``notes`` other assumptions and omissions. The effects on other
    jobs (``evicted``, ``delayed``) come from ``compared`` of the runs. ``unknown`` lists what is not understood in the
    manifests, ``refused`` which objects and pods an API server would refuse.
    """

    now: int
    session: int
    samples: int
    compared: int
    jobs: list[Forecast]
    evicted: list[ForecastVictim]
    delayed: list[Delay]
    caveats: list[str]
    notes: list[str]
    unknown: list[str] = []
    refused: list[str] = []

    def lines(self) -> Iterator[str]:
        """Yield the answer in sentences, with times in UTC: when, the assumptions, then the details. Before any run,
        only what can be placed at once."""
        for job in self.jobs:
            yield _answer(job, self.now, self.samples)
        if not self.samples and any(job.starts is None for job in self.jobs):
            return
        if self.caveats and any(job.starts is not None for job in self.jobs):
            yield from (f"{'' if place else 'provided that':13} {one}" for place, one in enumerate(self.caveats))
        after = f", after session {self.session}" if self.session else ""
        runs = f"; {counted(self.samples, 'run')} of what follows" if self.samples else ""
        yield FORECASTS.sentence("as of", {"time": clock(self.now), "session": after, "runs": runs})
        for job in self.jobs:
            yield from _details(job, self.now, self.samples)
        yield from self._others()
        yield from (f"note: {note}" for note in self.notes)

    def _others(self) -> Iterator[str]:
        for victim in self.evicted[:_NAMED]:
            reason = f": {victim.reason}" if victim.reason else ""
            facts = {"runs": _of(victim.runs, self.compared), "pod": victim.pod, "job": victim.job, "reason": reason}
            yield FORECASTS.sentence("evicted", facts)
        yield from _more(len(self.evicted), "evicted for it")
        for delay in self.delayed[:_NAMED]:
            after = None if delay.after is None else _span(delay.after)
            yield delay_sentence(delay.job, delay.queue, _span(delay.before), after, delay.why)
        yield from _more(len(self.delayed), "waiting because of it")
        if self.compared and not self.evicted and not self.delayed:
            yield FORECASTS.sentence("no victims", {"longer": _span(LONGER)})


def span_of(times: Sequence[int | None], grains: Sequence[int] = (), until: int | None = None) -> Span | None:
    """Return the span of a time that was reached in runs (None: later than any, and than ``until``); None if it was
    reached in none, and ``until`` is not given. Each time may be late by up to its grain (ns), which the lower bound
    allows for.

    Of n runs the k-th is the quantile k/(n+1), so that the bounds hold for four in five of future cases, and not only
    for these runs. If the upper bound is unknown, the lower one leaves out the whole fifth.
    """
    known = sorted(time for time in times if time is not None)
    if not known:
        return None if until is None else Span(None, until, None, 0)
    earliest = sorted(
        time - grain for time, grain in zip(times, grains or [0] * len(times), strict=True) if time is not None
    )
    middle, high = (_quantile(known, len(times), share) for share in (0.5, HIGH))
    low = _quantile(earliest, len(times), LOW if high is not None else LOW + 1 - HIGH)
    last = earliest[-1] if until is None else max(until, known[-1])
    return Span(middle, last if low is None else low, high, len(known))


def _quantile(known: Sequence[int], count: int, share: float) -> int | None:
    """Return a quantile of ``count`` times of which the earliest are ``known``; None beyond these."""
    position = min(max(share * (count + 1) - 1, 0), count - 1)
    place, part = int(position), position - int(position)
    if place + (part > 0) >= len(known):
        return None
    return known[place] if not part else round(known[place] + part * (known[place + 1] - known[place]))


# --- text -------------------------------------------------------------------------------------------------------------


def start_in_words(starts: Span | None, now: int) -> str:
    """Return when a waiting job starts, in a few words: ``in 6 min (4 min to 12 min in four of five cases)``."""
    return "never" if starts is None else f"in {_after(starts, now)}"


def abstention(unlike: Sequence[str]) -> str:
    """Return why no start can be forecast: run times of jobs that hold capacity are not known."""
    return FORECASTS.sentence("abstention", {"unlike": some(unlike, 2)})


def _answer(job: Forecast, now: int, samples: int) -> str:
    facts, starts = {"name": job.name}, job.starts
    if starts is None and not samples:
        placed = f"{len(job.placed)} of {counted(job.pods, 'pod')}" if job.placed else "no pod"
        return FORECASTS.sentence("now", {**facts, "placed": placed, "why": _why(job.waits)})
    if starts is None:
        return FORECASTS.sentence("never", {**facts, "why": _why(job.never)})
    if len(job.placed) == job.pods and not samples:
        return FORECASTS.sentence("at once", {**facts, "places": _places(job.placed)})
    if starts.median is None and job.unlike:
        return FORECASTS.sentence("unknown", {**facts, "abstention": abstention(job.unlike)})
    if starts.median is None:
        facts |= {"runs": _of(starts.runs, samples), "low": _span(starts.low - now), "why": _why(job.never)}
        return FORECASTS.sentence("seldom", facts)
    return FORECASTS.sentence("starts", {**facts, "time": clock(starts.median), "after": _after(starts, now)})


def _details(job: Forecast, now: int, samples: int) -> Iterator[str]:
    facts = {"name": job.name, "queue": job.queue, "pods": counted(job.pods, "pod"), "minimum": f"{job.minimum}"}
    yield FORECASTS.sentence("job", facts)
    if job.runs_for is not None:
        yield from _run_time(job.runs_for)
    if job.placed and samples:
        yield FORECASTS.sentence("placed", {"places": _places(job.placed)})
    if job.waits and len(job.placed) < job.pods:
        yield FORECASTS.sentence("waits", {"reasons": reasons_text(job.waits)})
    if job.ends is not None and job.ends.median is not None:
        runs = "" if job.ends.runs == samples else f"; in {_of(job.ends.runs, samples)}"
        facts = {"time": clock(job.ends.median), "after": _after(job.ends, now), "runs": runs}
        yield FORECASTS.sentence("ends", facts)
    missed = 0 if job.starts is None else samples - job.starts.runs
    if missed > 0:
        yield FORECASTS.sentence("waits on", {"runs": _of(missed, samples), "why": _why(job.never)})


def _run_time(run: Estimate) -> Iterator[str]:
    bounds = "" if run.low == run.high else f" ({_span(run.low)} to {_span(run.high)} in four of five cases)"
    yield FORECASTS.sentence(
        "run time", {"median": _span(run.median), "bounds": bounds}, ["" if run.count else "assumed"]
    )
    if run.count:
        yield FORECASTS.sentence("run time source", {"of": run.of, "count": f"{run.count}"})


def _why(waits: Sequence[Told]) -> str:
    return f": it waits: {reasons_text(waits)}" if waits else ""


def _places(placed: dict[str, str]) -> str:
    return some([f"{pod.partition('/')[2]} to {node}" for pod, node in placed.items()], _NAMED)


def _after(span: Span, now: int) -> str:
    facts = {"low": _span(span.low - now)}
    if span.median is None:
        return FORECASTS.sentence("after unknown", facts)
    facts["median"] = _span(span.median - now)
    if span.high is None:
        return FORECASTS.sentence("after", facts, ["open"])
    facts["high"] = _span(span.high - now)
    return FORECASTS.sentence("after", facts, ["" if span.low == span.high else "between"])


def _of(runs: int, samples: int) -> str:
    return f"{runs} of {counted(samples, 'run')}"


def _more(count: int, what: str) -> Iterator[str]:
    if count > _NAMED:
        yield FORECASTS.sentence("more", {"count": f"{count - _NAMED:,}", "what": what})


def _span(nanoseconds: int) -> str:
    return span_in_words(nanoseconds / SECOND)


def assumed(groups: Sequence[str]) -> str:
    """Return groups by name, for a note."""
    return f"{counted(len(groups), 'group')} ({some(groups, 3)})"

"""Whether a log's workload, decided again under the log's own configuration, reproduces the record.

All comparisons depend on that: a baseline that differs from the record does not describe this cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median

import msgspec

from vcd.model.wording import SECOND, span_in_words
from vcd.text.outcomes import SENTENCES, baseline_sentence, differing_jobs
from vcd.timetravel.whatif.logged_workload import Workload
from vcd.timetravel.whatif.wait_shifts import JobWaits

_SLACK = 10
"""Seconds within which a start at the log's end may not be recorded yet."""
_JOBS = 0.01
"""The share of the jobs that may start in only one of the two, or after the log's end."""
_WAIT = 0.1
"""The share of the recorded mean wait by which the baseline's may differ;"""
_CYCLES = 2
"""or so many cycles of the log's scheduler: it decides in one, and observes the outcome in the next."""
_LONGEST_CYCLE = 60
"""Seconds: a scheduler that decides less often has nothing to decide."""
_NAMED = 20


class Fidelity(msgspec.Struct, frozen=True):
    """How many of the ``jobs`` that arrived started in the log (``recorded``), and decided again under the log's own
    configuration (``baseline``).

    ``lost`` started only in the log, ``late`` started again only after the log's end, ``gained`` started only again,
    well before the log's end; the first of each are named. ``recorded_wait`` and ``baseline_wait`` are the mean waits
    in seconds of the jobs that started in both. ``far``: the baseline does not reproduce the record, since more than
    one in a hundred jobs are lost, late or gained, or the mean waits differ by more than a tenth, 10 s and two cycles
    of the log's scheduler.
    """

    jobs: int
    recorded: int
    baseline: int
    lost: int
    late: int
    gained: int
    lost_jobs: list[str]
    late_jobs: list[str]
    gained_jobs: list[str]
    far: bool
    recorded_wait: float | None = None
    baseline_wait: float | None = None

    @property
    def sentences(self) -> list[str]:
        """Whether the baseline reproduces the record, and what differs."""
        found = [baseline_sentence(self.recorded, self.recorded - self.lost - self.late, unlike=self.far)]
        differ = (
            ("lost", self.lost, self.lost_jobs),
            ("late", self.late, self.late_jobs),
            ("gained", self.gained, self.gained_jobs),
        )
        found += [differing_jobs(kind, count, names) for kind, count, names in differ if count]
        if self.recorded_wait is not None and self.baseline_wait is not None:
            waits = (span_in_words(self.baseline_wait), span_in_words(self.recorded_wait))
            found.append(SENTENCES["waits"].format(wait=waits[0], logged=waits[1]))
        return found


def fidelity(work: Workload, recorded: JobWaits, baseline: JobWaits) -> Fidelity:
    """Compare how a workload's jobs started as recorded and in the baseline."""
    came = _arrivals(work)
    waits = [(job, recorded.get(job, ("", None))[1], baseline.get(job, ("", None))[1]) for job in came]
    both = {job: (then, again) for job, then, again in waits if then is not None and again is not None}
    left = {job: (work.end - arrived) / SECOND for job, arrived in came.items()}
    lost = sorted(job for job, then, again in waits if then is not None and again is None)
    late = sorted(job for job, (_, again) in both.items() if again > left[job] + _SLACK)
    gained = sorted(
        job for job, then, again in waits if then is None and again is not None and again < left[job] - _SLACK
    )
    then, again = (_mean([wait[place] for wait in both.values()]) for place in (0, 1))
    return Fidelity(
        jobs=len(came),
        recorded=sum(then is not None for _, then, _ in waits),
        baseline=sum(again is not None for _, _, again in waits),
        lost=len(lost),
        late=len(late),
        gained=len(gained),
        lost_jobs=lost[:_NAMED],
        late_jobs=late[:_NAMED],
        gained_jobs=gained[:_NAMED],
        far=len(lost) + len(late) + len(gained) > len(came) * _JOBS or _differ_clearly(then, again, _cycle(work)),
        recorded_wait=then,
        baseline_wait=again,
    )


def _arrivals(work: Workload) -> dict[str, int]:
    """Return when each job arrived that did not run already (ns since the epoch)."""
    ran_already = work.ran_already()
    came = {key: life.arrived for key, life in work.groups.items() if key not in ran_already}
    for unit in work.units:
        job = work.job_of(unit)
        if job not in ran_already:
            came[job] = min(unit.arrived, came.get(job, unit.arrived))
    return came


def _mean(waits: Sequence[float]) -> float | None:
    return fmean(waits) if waits else None


def _cycle(work: Workload) -> float:
    """Return the usual time between two sessions of the log (s), at most _LONGEST_CYCLE."""
    gaps = [later - earlier for earlier, later in pairwise(work.sessions)]
    return min(median(gaps) / SECOND, _LONGEST_CYCLE) if gaps else 0.0


def _differ_clearly(recorded: float | None, baseline: float | None, cycle: float) -> bool:
    if recorded is None or baseline is None:
        return False
    return abs(baseline - recorded) > max(recorded * _WAIT, _SLACK, cycle * _CYCLES)


def unlike_in_words(found: Fidelity) -> str:
    """Return the warning that the baseline does not reproduce the record, in a line."""
    return f"WARNING: the baseline {'; '.join(found.sentences)}"

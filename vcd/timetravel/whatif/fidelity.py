"""Whether a workload that is decided again as it was comes out as the log has it: what all comparisons rest on."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from vcd.model.words import counted, some
from vcd.timetravel.whatif.workload import SECOND, Workload

Waits = Mapping[str, tuple[str, float | None]]
"""Each job's queue and wait in seconds (None: it never started)."""

_SLACK = 10 * SECOND
"""Who starts within so long of the log's end may only be not shown yet, or be shown already."""
_PERCENT = 1
"""So much of the jobs may come out otherwise."""
_NAMED = 20
_TOLD = 5


class Fidelity(msgspec.Struct, frozen=True):
    """How many of the ``jobs`` that came started in the log (``recorded``), and decided again under the log's own
    configuration (``baseline``). ``lost`` started in the log alone, ``late`` decided again only after the log's end,
    ``gained`` decided again alone and well before that; the first of each are named. ``far`` is whether these are more
    than one in a hundred jobs."""

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

    @property
    def unfit(self) -> bool:
        """Whether what started in the log cannot be started again, so that nothing can be told by it."""
        return self.lost * 100 > self.recorded * _PERCENT

    @property
    def words(self) -> str:
        """How the two differ, in a sentence."""
        differ = (
            (self.lost, "that started never {does}", self.lost_jobs),
            (self.late, "that started {does} only after the log's end", self.late_jobs),
            (self.gained, "that never started {does}", self.gained_jobs),
        )
        parts = [
            f"{counted(count, 'job')} {which.format(does='does' if count == 1 else 'do')} ({some(names, _TOLD, count)})"
            for count, which, names in differ
            if count
        ]
        told = f": {'; '.join(parts)}" if parts else ""
        return (
            f"of {counted(self.jobs, 'job')} {self.recorded:,} started in the log, and {self.baseline:,} when it is"
            f" decided again as it was{told}"
        )


def fidelity(work: Workload, recorded: Waits, baseline: Waits) -> Fidelity:
    """How far a workload's jobs start as recorded when they are decided again."""
    ran_already = work.ran_already()
    came = {key: life.arrived for key, life in work.groups.items() if key not in ran_already}
    for unit in work.units:
        job = work.job_of(unit)
        if job not in ran_already:
            came[job] = min(unit.arrived, came.get(job, unit.arrived))

    def start(job: str, wait: float) -> float:
        return came[job] + wait * SECOND

    waits = [(job, recorded.get(job, ("", None))[1], baseline.get(job, ("", None))[1]) for job in came]
    lost = sorted(job for job, then, again in waits if then is not None and again is None)
    late = sorted(
        job
        for job, then, again in waits
        if then is not None and again is not None and start(job, again) > work.end + _SLACK
    )
    gained = sorted(
        job
        for job, then, again in waits
        if then is None and again is not None and start(job, again) < work.end - _SLACK
    )
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
        far=(len(lost) + len(late) + len(gained)) * 100 > len(came) * _PERCENT,
    )


def unlike_in_words(found: Fidelity) -> str:
    """The warning where the two are far apart."""
    return f"WARNING: these runs are not what the log shows: {found.words}"

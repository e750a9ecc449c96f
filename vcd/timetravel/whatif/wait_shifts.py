"""Which jobs wait longer or shorter in one run than in another, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from vcd.diagnosis.diagnosedwaits import DiagnosedWait
from vcd.text.job_names import without_uid

JobWaits = Mapping[str, tuple[str, float | None]]
"""Each job's queue and wait in seconds (None: it never started)."""
_NAMED_JOBS = 20


class Shift(msgspec.Struct, frozen=True):
    """A job whose wait in a run differs from its wait in the baseline, in seconds (None: it never started). ``name``
    is the one that users know, ``why`` the cause of the longer wait in a few words, empty if unknown."""

    run: str
    job: str
    queue: str
    baseline: float | None
    wait: float | None
    name: str = ""
    why: str = ""

    @property
    def is_longer(self) -> bool:
        """Whether the job waits longer than in the baseline."""
        return _length(self.wait) > _length(self.baseline)

    @property
    def amount(self) -> float:
        """By how many seconds the waits differ; infinite if the job starts in only one of the runs."""
        return 0.0 if self.wait == self.baseline else abs(_length(self.wait) - _length(self.baseline))


class WaitChanges(msgspec.Struct, frozen=True):
    """How many jobs wait ``shorter`` and ``longer`` in a run than in the baseline; ``worst`` are those that wait
    longer, the largest change first, as many as are named."""

    run: str
    shorter: int
    longer: int
    worst: list[Shift]


def shifts_of(run: str, before: JobWaits, after: JobWaits, delayed: Mapping[str, DiagnosedWait]) -> list[Shift]:
    """Return the jobs of a run that wait longer or shorter than before; ``delayed`` explains the longer waits."""
    found = []
    for job, (queue, wait) in after.items():
        shift = Shift(run, job, queue, before.get(job, (queue, None))[1], wait, without_uid(job))
        if shift.amount:
            cause = delayed.get(job) if shift.is_longer else None
            found.append(shift if cause is None else msgspec.structs.replace(shift, name=cause.job, why=cause.why))
    return found


def largest(shifts: Iterable[Shift]) -> list[Shift]:
    """Return the largest shifts first, as many as are named."""
    return sorted(shifts, key=lambda shift: (-shift.amount, shift.job))[:_NAMED_JOBS]


def effect_of(run: str, shifts: Iterable[Shift]) -> WaitChanges:
    """Return the effect of a run on the waits of jobs."""
    found = list(shifts)
    longer = [shift for shift in found if shift.is_longer]
    return WaitChanges(run, len(found) - len(longer), len(longer), largest(longer))


def _length(wait: float | None) -> float:
    return float("inf") if wait is None else wait

"""sla: no job waits longer than agreed (docs/semantics/plugins.md)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.model.status import Phase, TaskStatus
from vcd.model.words import rfc3339
from vcd.scheduling.framework.arguments import Argument, parse_duration
from vcd.scheduling.framework.order import Label, labelled
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.points import Vote
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job

_NO_DURATION = ReasonCode(
    "waiting-time-unreadable",
    Cause.INVALID,
    "annotation {key} of the group is no duration above zero, and is passed over",
    remark=True,
)

WAITING_TIME = "sla-waiting-time"
ANNOTATIONS = (f"volcano.sh/{WAITING_TIME}", WAITING_TIME)
"""Annotations of a group that state its waiting time; the first one that can be read holds."""

_SECOND = 10**9
_NEVER = 1 << 70
"""The deadline of a job without a waiting time: later than all others."""
_DEADLINE = Label(
    "deadline", "earlier deadline", "later deadline", lambda value: rfc3339(value, 3) if value < _NEVER else "none"
)


class SlaPlugin(Plugin):
    """Each job has a deadline: its group's creation plus its waiting time, which an annotation of the group states,
    or else the plugin's argument for all.

    - the job with the earlier deadline comes first, those without a waiting time come last;
    - from its deadline on a job is admitted although plugins of later tiers find no room for it, and it keeps the
      room that its tasks wait for although its gang is not complete. A plugin of the same or an earlier tier that
      rejects still has its way; list `sla` in a tier before `gang` where reserving room for a part of a gang is
      wanted.

    An annotation that is no duration above zero is passed over, and the waiting job says so. Source: Volcano
    ``plugins/sla``.
    """

    name = "sla"
    arguments = (
        Argument(
            WAITING_TIME,
            "duration",
            None,
            "How long a job may wait, from its group's creation, where the group states no time of its own "
            "(for example 1h2m3s); no limit where it is not given.",
            minimum=1,
        ),
    )
    annotations = ANNOTATIONS
    timed = True

    def open(self, session: Session) -> None:
        """Note the time; deadlines are made when they are asked for."""
        self._session = session
        self._now = session.now
        self._for_all: int | None = self.values[WAITING_TIME]
        self._deadlines: dict[int, int] = {}

    def deadline(self, job: Job) -> int:
        """Until when a job may wait, in nanoseconds since the epoch; later than any time where it has no limit."""
        found = self._deadlines.get(job.index)
        if found is None:
            waiting = waiting_time(job.record.group.metadata.annotations)[0]
            waiting = self._for_all if waiting is None else waiting
            found = _NEVER if waiting is None else job.created * _SECOND + waiting
            self._deadlines[job.index] = found
        return found

    @labelled(_DEADLINE)
    def job_order(self, job: Job) -> int:
        """The earlier deadline first."""
        return self.deadline(job)

    def job_enqueueable(self, job: Job) -> Vote:
        """From the deadline on it is admitted, and keeps the room that it waits for; no opinion before."""
        return Vote.PERMIT if self._now >= self.deadline(job) else Vote.ABSTAIN

    job_pipelined = job_enqueueable

    def wakes(self) -> Iterator[int]:
        """The deadlines of jobs that wait."""
        jobs = self._session.jobs
        waits = (jobs.phase == Phase.PENDING) | (jobs.counts[:, TaskStatus.PENDING] > 0)
        deadlines = (self.deadline(self._session.job(index)) for index in np.flatnonzero(waits).tolist())
        yield from (deadline for deadline in deadlines if deadline < _NEVER)

    def close(self, session: Session) -> None:
        """Waiting jobs tell of waiting times that cannot be read."""
        for job in session.jobs_with_pending():
            for refusal in waiting_time(job.record.group.metadata.annotations)[1]:
                job.note("invalid", self.name, refusal)


def waiting_time(annotations: dict[str, str]) -> tuple[int | None, tuple[Reason, ...]]:
    """The waiting time in nanoseconds that annotations state (None: none), and what is wrong with those passed over."""
    wrong: list[Reason] = []
    for key in ANNOTATIONS:
        text = annotations.get(key)
        if text is None:
            continue
        try:
            waiting = parse_duration(text)
        except ValueError:
            waiting = 0
        if waiting > 0:
            return waiting, tuple(wrong)
        wrong.append(
            _NO_DURATION(
                {"key": key, "annotation": key, "value": text, "write": "a duration above zero, for example 1h30m"}
            )
        )
    return None, tuple(wrong)

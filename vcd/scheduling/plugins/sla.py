"""sla: admit jobs that have waited as long as they may (docs/semantics/plugins.md)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.model.status import Phase, TaskStatus
from vcd.model.wording import SECOND, rfc3339
from vcd.scheduling.framework.arguments import Argument, parse_duration
from vcd.scheduling.framework.demand import demand_of
from vcd.scheduling.framework.order import Label, labelled
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.points import Vote
from vcd.scheduling.search.parts import ANY_KEY
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
"""A group's annotations for its waiting time; the first readable one counts."""

_NEVER = 1 << 70
"""The deadline of a job without a waiting time, after all other deadlines."""
_DEADLINE = Label(
    "deadline", "earlier deadline", "later deadline", lambda value: rfc3339(value, 3) if value < _NEVER else "none"
)


class SlaPlugin(Plugin):
    """Give each job a deadline: its group's creation time plus its waiting time.

    The waiting time comes from an annotation of the group, or else from the plugin's argument.

    - Jobs with earlier deadlines come first, jobs without a waiting time last.
    - From its deadline on, a job is admitted even if plugins of later tiers reject it, and its pipelined tasks retain
      their resources even if its gang is not complete, unless it can never be complete on the existing nodes. A plugin
      of the same or an earlier tier can still reject the job. To reserve resources for incomplete gangs, list `sla` in
      a tier before `gang`.

    An annotation that is not a duration above zero is ignored, and the pending job reports it. Source: Volcano
    ``plugins/sla``.
    """

    name = "sla"
    arguments = (
        Argument(
            WAITING_TIME,
            "duration",
            None,
            "How long a job may wait, from its group's creation, unless an annotation of the group states a time "
            "(for example 1h2m3s). Without it, only jobs with an annotation have a deadline.",
            minimum=1,
        ),
    )
    keys = (*ANNOTATIONS, ANY_KEY)  # the age of a job matters, too
    timed = True

    def open(self, session: Session) -> None:
        self._session = session
        self._now = session.now
        self._for_all: int | None = self.values[WAITING_TIME]
        self._deadlines: dict[int, int] = {}

    def deadline(self, job: Job) -> int:
        """Return a job's deadline in nanoseconds since the epoch; without a waiting time a time after all others."""
        found = self._deadlines.get(job.index)
        if found is None:
            waiting = waiting_time(job.record.group.metadata.annotations)[0]
            waiting = self._for_all if waiting is None else waiting
            found = _NEVER if waiting is None else job.created * SECOND + waiting
            self._deadlines[job.index] = found
        return found

    @labelled(_DEADLINE)
    def job_order(self, job: Job) -> int:
        """Order jobs by deadline, earliest first."""
        return self.deadline(job)

    def job_enqueueable(self, job: Job) -> Vote:
        """Permit from the deadline on; abstain before."""
        return Vote.PERMIT if self._now >= self.deadline(job) else Vote.ABSTAIN

    def job_pipelined(self, job: Job) -> Vote:
        """Permit from the deadline on, unless the job has no pods that could be placed, or never enough for its gang.

        Such a job would hold resources without end, and never use them.
        """
        vote = self.job_enqueueable(job)
        return vote if vote is Vote.ABSTAIN or demand_of(self._session).may_gain(job) else Vote.ABSTAIN

    def wakes(self) -> Iterator[int]:
        """Return the deadlines of pending jobs."""
        jobs = self._session.jobs
        waits = (jobs.phase == Phase.PENDING) | (jobs.counts[:, TaskStatus.PENDING] > 0)
        deadlines = (self.deadline(self._session.job(index)) for index in np.flatnonzero(waits).tolist())
        yield from (deadline for deadline in deadlines if deadline < _NEVER)

    def close(self, session: Session) -> None:
        """Note unreadable waiting times on pending jobs."""
        for job in session.jobs_with_pending():
            for refusal in waiting_time(job.record.group.metadata.annotations)[1]:
                job.note("invalid", self.name, refusal)


def waiting_time(annotations: dict[str, str]) -> tuple[int | None, tuple[Reason, ...]]:
    """Return the waiting time in nanoseconds (None: not stated), and reasons for unreadable annotations."""
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

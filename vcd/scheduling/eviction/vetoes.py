"""The rules that protect possible victims of a job, noted on the job when nothing is evicted for it.

The notes are remarks: they come after the reasons why the job waits and replace none. They name rules, not pods: every
change of a group's reasons and remarks is logged, and pods change often.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from vcd.model.events import Waiting
from vcd.model.reasons import Cause, ReasonCode
from vcd.scheduling.framework.victims import Victims
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task

PROTECTED: Final = ReasonCode(
    "victims-protected", Cause.ORDER, "pods whose eviction could make room for it are protected", remark=True
)
"""A plugin protects them: a gang's minimum, a budget, a priority that is not lower, a queue's share."""
MARKED: Final = ReasonCode(
    "victims-not-preemptable",
    Cause.ORDER,
    'pods whose eviction could make room for it say volcano.sh/preemptable: "false"',
    remark=True,
)
NOT_RECLAIMABLE: Final = ReasonCode(
    "victims-not-reclaimable",
    Cause.ORDER,
    "pods whose eviction could make room for it are of queues that are not reclaimable",
    remark=True,
)
REFUSED: Final = ReasonCode(
    "victims-refused",
    Cause.ORDER,
    "pods whose eviction could make room for it are not evicted for a time, since the API server refused it",
    remark=True,
)
IMMUNE: Final = ReasonCode(
    "victims-immune",
    Cause.ORDER,
    "pods whose eviction could make room for it replace pods that were evicted for it or an equivalent job",
    remark=True,
)
NOT_LOWER: Final = ReasonCode(
    "victims-not-lower",
    Cause.ORDER,
    "pods whose eviction could make room for it are of jobs whose priority is not lower",
    remark=True,
)
NOT_WHOLE: Final = ReasonCode(
    "victims-not-whole",
    Cause.ORDER,
    "jobs whose eviction could make room for it have no pod to spare, and allowWholeBundle is false",
    remark=True,
)
UNNAMED: Final = ReasonCode(
    "victims-unnamed", Cause.ORDER, "no plugin of the configuration names pods to evict for it", remark=True
)
NEVER_EVICTS: Final = ReasonCode(
    "never-evicts", Cause.ORDER, "no pod is evicted for it: its preemptionPolicy is Never", remark=True
)
MAY_NOT_RECLAIM: Final = ReasonCode(
    "may-not-reclaim", Cause.ORDER, "its queue may not reclaim for it: that would exceed its share", remark=True
)


class Vetoes:
    """The rules that one action met while it searched for a job's victims."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], ReasonCode] = {}

    def add(self, code: ReasonCode, plugin: str = "") -> None:
        """Add a rule of ``plugin`` (empty if no plugin is responsible)."""
        self._found[code.name, plugin] = code

    def add_unoffered(self, tasks: Iterable[Task]) -> None:
        """Add why pods that are not preemptable were not offered to the plugins."""
        for task in tasks:
            self.add(REFUSED if task.eviction_was_refused else MARKED)

    def add_protectors(self, victims: Victims) -> None:
        """Add the plugins that protect some of the candidates."""
        if not victims.has_opinions:
            self.add(UNNAMED)
        for name in victims.keepers():
            self.add(PROTECTED, name)

    def note(self, job: Job, action: str, *, evicted: bool) -> None:
        """Note the rules on a job by code and plugin, none if ``evicted``; earlier notes of the action are dropped."""
        job.why[:] = [waiting for waiting in job.why if waiting.gate != action]
        if not evicted:
            found = sorted(self._found.items(), key=lambda pair: pair[0])
            job.why += [Waiting(job.key, action, plugin, code()) for (_, plugin), code in found]


def has_unreclaimable_usage(session: Session, queue: Queue) -> bool:
    """Whether another queue that holds resources is not reclaimable."""
    held = session.jobs.sums("allocated")
    others = [other for other in session.queue_list if other is not queue and not other.reclaimable]
    return any(held[other.index].any() for other in others)

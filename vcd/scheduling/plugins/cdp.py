"""cdp: protect recently placed pods from eviction."""

from __future__ import annotations

from collections.abc import Iterator

from vcd.model.objects import Pod
from vcd.model.reasons import Cause, ReasonCode
from vcd.model.wording import SECOND
from vcd.scheduling.framework.arguments import parse_duration
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.victims import victim_rule
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.records import seconds_of

_NO_COOLDOWN = ReasonCode(
    "cooldown-unreadable",
    Cause.INVALID,
    "volcano.sh/cooldown-time of the pod is no duration from zero up, and does not protect it",
    remark=True,
)

COOLDOWN = "volcano.sh/cooldown-time"


class CdpPlugin(Plugin):
    """Cool-down protection: protect a running pod from eviction until its cool-down time since its placement is over.

    The cool-down time is a duration such as 10m in the pod's label or annotation `volcano.sh/cooldown-time`; the label
    wins. It begins with the last transition of the pod's condition PodScheduled to True. Pods that are not running,
    that lack this condition, or without a readable cool-down time are not protected. Pending jobs report unreadable
    cool-down times of their pods. Source: Volcano ``plugins/cdp``.
    """

    name = "cdp"
    keys = (COOLDOWN,)
    protects = True
    timed = True

    def open(self, session: Session) -> None:
        self._now = session.now
        self._ends: dict[int, None] = {}
        """When the cool-downs of protected candidates end (ns since the epoch)."""

    @victim_rule("all tasks except those in their cooldown time")
    def preemptable(self, preemptor: object, tasks: list[Task]) -> list[Task]:
        """Return the candidates that are not cooling down."""
        ends = [cools_until(task.pod) for task in tasks]
        self._ends.update(dict.fromkeys(end for end in ends if end > self._now))
        return [task for task, end in zip(tasks, ends, strict=True) if end <= self._now]

    reclaimable = unified_evictable = preemptable

    def wakes(self) -> Iterator[int]:
        """Return when the cool-downs of protected candidates end."""
        yield from self._ends

    def close(self, session: Session) -> None:
        """Note unreadable cool-down times on pending jobs."""
        for job in session.jobs_with_pending():
            for task in job.pending():
                text = stated(task.pod)
                if text is not None and cooldown_of(task.pod) is None:
                    names = {"value": text, "write": "a duration, for example 10m"}
                    job.note("invalid", self.name, _NO_COOLDOWN(names), task=task)


def stated(pod: Pod) -> str | None:
    """Return a pod's cool-down time as written: the label, else the annotation."""
    meta = pod.metadata
    return meta.labels.get(COOLDOWN, meta.annotations.get(COOLDOWN))


def cooldown_of(pod: Pod) -> int | None:
    """Return a pod's cool-down time in nanoseconds; None if it has none or it is unreadable."""
    text = stated(pod)
    if text is None:
        return None
    try:
        cooldown = parse_duration(text)
    except ValueError:
        return None
    return cooldown if cooldown >= 0 else None


def cools_until(pod: Pod) -> int:
    """Return until when a pod is protected (ns since the epoch); 0 if it is not."""
    cooldown = cooldown_of(pod)
    if not cooldown or pod.status.phase != "Running":
        return 0
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "True":
            try:
                placed = seconds_of(condition.last_transition_time)
            except ValueError:
                return 0
            return placed * SECOND + cooldown
    return 0

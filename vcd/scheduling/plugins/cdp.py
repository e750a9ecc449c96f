"""cdp: a pod that has just been placed is left alone for a while."""

from __future__ import annotations

from collections.abc import Iterator

from vcd.model.objects import Pod
from vcd.model.reasons import Cause, ReasonCode
from vcd.scheduling.framework.arguments import parse_duration
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.victims import lets_go
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

_SECOND = 10**9


class CdpPlugin(Plugin):
    """Cool-down protection: a running pod is no victim before its cool-down since it was placed is over.

    The cool-down is a duration such as 10m in the pod's label or annotation `volcano.sh/cooldown-time`, the label
    first. It begins with the last transition of the pod's condition PodScheduled to True; a pod that does not run, has
    no such condition, or states no cool-down that can be read is not protected. Waiting jobs say which of their pods
    state one that cannot be read. Source: Volcano ``plugins/cdp``.
    """

    name = "cdp"
    treats_alike = True
    annotations = (COOLDOWN,)
    protects = True
    timed = True

    def open(self, session: Session) -> None:
        """Note the time."""
        self._now = session.now
        self._ends: dict[int, None] = {}
        """When pods that kept their places for want of an end of their cool-down may go (ns since the epoch)."""

    def minds_exchanges(self) -> bool:
        """No: each pod cools down or does not."""
        return False

    @lets_go("all but those that cool down")
    def preemptable(self, asker: object, tasks: list[Task]) -> list[Task]:
        """All but those that cool down."""
        ends = [cools_until(task.pod) for task in tasks]
        self._ends.update(dict.fromkeys(end for end in ends if end > self._now))
        return [task for task, end in zip(tasks, ends, strict=True) if end <= self._now]

    reclaimable = unified_evictable = preemptable

    def wakes(self) -> Iterator[int]:
        """When possible victims have cooled down."""
        yield from self._ends

    def close(self, session: Session) -> None:
        """Waiting jobs tell of cool-downs that cannot be read."""
        for job in session.jobs_with_pending():
            for task in job.pending():
                text = stated(task.pod)
                if text is not None and cooldown_of(task.pod) is None:
                    names = {"value": text, "write": "a duration, for example 10m"}
                    job.note("invalid", self.name, _NO_COOLDOWN(names), task=task)


def stated(pod: Pod) -> str | None:
    """A pod's cool-down as written: the label, else the annotation."""
    meta = pod.metadata
    return meta.labels.get(COOLDOWN, meta.annotations.get(COOLDOWN))


def cooldown_of(pod: Pod) -> int | None:
    """A pod's cool-down in nanoseconds, None where it states none that can be read."""
    text = stated(pod)
    if text is None:
        return None
    try:
        cooldown = parse_duration(text)
    except ValueError:
        return None
    return cooldown if cooldown >= 0 else None


def cools_until(pod: Pod) -> int:
    """Return until when a pod is left alone (ns since the epoch); 0 for one that may go."""
    cooldown = cooldown_of(pod)
    if not cooldown or pod.status.phase != "Running":
        return 0
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "True":
            try:
                placed = seconds_of(condition.last_transition_time)
            except ValueError:
                return 0
            return placed * _SECOND + cooldown
    return 0

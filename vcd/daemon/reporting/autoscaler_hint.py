"""Which of the pods that wait could go if there were more nodes: what autoscalers add nodes for.

They do so for every pod whose condition PodScheduled is False with reason Unschedulable. A pod that waits for quota, or
for pods that nobody made, would get none of these nodes, so it says why it waits under a reason of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from vcd.model.events import Waiting
from vcd.model.reasons import Cause
from vcd.model.requests import CPU, MEMORY
from vcd.scheduling.framework import registry
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.quotas import CAPABILITY, DESERVED, QueueLimit
from vcd.scheduling.framework.reasons import declared, keeps_back
from vcd.state.records import QueueRecord

UNSCHEDULABLE = "Unschedulable"
"""More nodes may help."""
WAITING_FOR_QUEUE = "WaitingForQueue"
"""The queue has no quota left, is not open, or does not exist; or the namespace has no quota left."""
WAITING_FOR_PODS = "WaitingForPods"
"""Fewer pods exist than the group needs."""
POD_GROUP_MISSING = "PodGroupMissing"
"""The pod belongs to no PodGroup, so no session considers it."""
NOT_SUPPORTED = "NotSupported"
"""The pod or its group demands what vcd does not know."""

_REASONS = {
    "queue": WAITING_FOR_QUEUE,
    "enqueue": WAITING_FOR_QUEUE,
    "invalid": WAITING_FOR_PODS,
    "unsupported": NOT_SUPPORTED,
}
_SHARES = ("", CAPABILITY, DESERVED)
"""What a queue may have of the cluster, up to what it states; a reason with all of it zero does not name which."""


class PodReasons:
    """The reason in the condition of each pod of a group: ``reasons`` are the group's, ``queue`` where it is.

    A pod that has no reason of its own found room itself, or is like the ones that are named: it has the others'.
    """

    def __init__(self, reasons: Sequence[Waiting], queue: str, queues: Mapping[str, QueueRecord]) -> None:
        self._queue = queue
        self._queues = queues
        self._own: dict[str, list[Waiting]] = {}
        holding = list(filter(keeps_back, reasons))
        for waiting in holding:
            for pod in waiting.pods:
                self._own.setdefault(pod, []).append(waiting)
        self._others = self._reason([waiting for waiting in holding if waiting.gate != "gang"])

    def of(self, pod: str) -> str:
        """The reason for one pod, by its key."""
        own = self._own.get(pod)
        return self._others if own is None else self._reason(own)

    def _reason(self, reasons: Iterable[Waiting]) -> str:
        first = ""
        for waiting in reasons:
            if nodes_help(waiting, self._queue, self._queues):
                return UNSCHEDULABLE
            first = first or (WAITING_FOR_QUEUE if _only_leaving(waiting) else _REASONS.get(waiting.gate, ""))
        return first or UNSCHEDULABLE


def _only_leaving(waiting: Waiting) -> bool:
    """Whether there is room, which may be taken once others are gone."""
    code = declared(waiting.reason)
    return code is not None and code.cause is Cause.LEAVING and not code.nodes_help


def nodes_help(waiting: Waiting, queue: str, queues: Mapping[str, QueueRecord]) -> bool:
    """Whether more nodes could end a wait.

    At the gate of a queue they do where its share of the cluster is what is used up, and not what its spec states.
    """
    if waiting.gate not in _REASONS:
        return waiting.gate != "gated" and not _only_leaving(waiting)
    if waiting.gate not in ("queue", "enqueue"):
        return False
    code = declared(waiting.reason)
    if code is not None and code.nodes_help:
        return True
    zero = registry.plugins().get(waiting.plugin, Plugin).limits_zero
    short = [limit for limit in registry.limits_of(waiting) if limit.is_short]
    return bool(short) and not any(_is_stated(limit, limit.queue or queue, queues, zero) for limit in short)


def _is_stated(limit: QueueLimit, queue: str, queues: Mapping[str, QueueRecord], zero: bool) -> bool:
    """Whether a limit holds however many nodes there are."""
    if limit.bound not in _SHARES:
        return True
    stated = _stated(queue, queues, zero)
    return limit.resource in stated and stated[limit.resource] <= limit.limit


def _stated(queue: str, queues: Mapping[str, QueueRecord], zero: bool) -> dict[str, int]:
    """The least capability that a queue or one above it states. ``zero``: whether zero cpu or memory is one."""
    found: dict[str, int] = {}
    seen: list[str] = []
    while queue in queues and queue not in seen:
        seen.append(queue)
        for name, amount in queues[queue].capability.items():
            if amount or zero or name not in (CPU, MEMORY):
                found[name] = min(amount, found.get(name, amount))
        queue = queues[queue].queue.spec.parent
    return found

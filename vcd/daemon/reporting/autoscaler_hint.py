"""Chooses the reason of a pending pod's condition, so that cluster autoscalers add nodes only if nodes help.

Autoscalers add nodes for each pod whose condition PodScheduled is False with reason Unschedulable. A pod that waits for
quota, or for pods that do not exist, would not use these nodes, so its condition has another reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from vcd.model.events import Waiting
from vcd.model.reasons import Cause
from vcd.model.resource_requests import CPU, MEMORY
from vcd.scheduling.framework import registry
from vcd.scheduling.framework.declared_reasons import declared, keeps_back
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.quotas import CAPABILITY, DESERVED, QueueLimit
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
"""Bounds that grow with the cluster up to the queue's spec. A reason whose quantities are all zero names no bound."""


class PodReasons:
    """The condition's reason for each pod of a group, from the reasons and the queue of the group.

    A pod without its own reason fits a node, or is equivalent to pods that a reason names. Such a pod gets the reason
    of the group.
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
        """Return the reason for a pod, by its key."""
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
    """Return whether the pod only waits for terminating pods."""
    code = declared(waiting.reason)
    return code is not None and code.cause is Cause.LEAVING and not code.nodes_help


def nodes_help(waiting: Waiting, queue: str, queues: Mapping[str, QueueRecord]) -> bool:
    """Return whether more nodes could end a wait.

    They help against a queue limit if the limit is a share of the cluster, and not if the queue's spec states it.
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
    """Return whether a limit is independent of the number of nodes."""
    if limit.bound not in _SHARES:
        return True
    stated = _stated(queue, queues, zero)
    return limit.resource in stated and stated[limit.resource] <= limit.limit


def _stated(queue: str, queues: Mapping[str, QueueRecord], zero: bool) -> dict[str, int]:
    """Return the smallest capability of a queue and its ancestors. ``zero``: whether zero cpu or memory is a limit."""
    found: dict[str, int] = {}
    seen: list[str] = []
    while queue in queues and queue not in seen:
        seen.append(queue)
        for name, amount in queues[queue].capability.items():
            if amount or zero or name not in (CPU, MEMORY):
                found[name] = min(amount, found.get(name, amount))
        queue = queues[queue].queue.spec.parent
    return found

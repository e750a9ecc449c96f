"""Pods that are bound and still wait for their device plugin to assign their cards.

The kubelet does not inform a device plugin which pod it allocates for. The plugin takes the pod of its node with the
earliest bind time. So pods of one node get distinct times, and with NodeLockEnable a node gets the next such pod only
when it has served the one before (Volcano ``plugins/util/nodelock``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vcd.model.objects import Node
from vcd.model.wording import SECOND
from vcd.scheduling.plugins.deviceshare import gpushare, vgpu
from vcd.scheduling.search.parts import Mask
from vcd.state.node_facts import NodeFacts
from vcd.state.records import seconds_of

EXPIRES = 5 * 60
"""Seconds after which vcd stops waiting for a device plugin."""
_BEFORE = ("", "Pending")
"""The phases of pods that may still wait for their cards; a running pod has them."""


class Assignments:
    """Bind times of pods that still wait for their cards, by node, in ``unit`` nanoseconds."""

    def __init__(self, facts: NodeFacts, now: int, *, vgpu_cards: bool) -> None:
        self.unit = SECOND if vgpu_cards else 1
        self.now = now // self.unit
        span = EXPIRES * SECOND // self.unit
        self._oldest, self._latest = self.now - span, self.now + span
        self._times: dict[int, list[int]] = {}
        lock = vgpu.NODE_LOCK if vgpu_cards else gpushare.NODE_LOCK
        locks: dict[int, int] = facts.cached(("locks", lock), lambda: _locks(facts.nodes, lock))
        self._locked = [row for row, since in locks.items() if now // SECOND - since <= EXPIRES]

    def time_of(self, annotations: Mapping[str, str], phase: str) -> int | None:
        """Return when a placed pod was bound; None if it has its cards, or no plausible time."""
        vgpu_cards = self.unit == SECOND
        if phase not in _BEFORE or (vgpu_cards and annotations.get(vgpu.BIND_PHASE) != vgpu.ALLOCATING):
            return None
        text = annotations.get(vgpu.BIND_TIME if vgpu_cards else gpushare.PREDICATE_TIME, "")
        time = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None
        return None if time is None or time > self._latest else time

    def next(self, row: int) -> int:
        """Return a time for a pod that is bound now, after the times of the node's other pods."""
        latest: int = max([self.now - 1, *self._times.get(row, ())])
        return latest + 1

    def add(self, row: int, time: int) -> None:
        """Record a pod with cards on a node."""
        self._times.setdefault(row, []).append(time)

    def remove(self, row: int, time: int) -> None:
        """Undo ``add``."""
        self._times[row].remove(time)

    def busy(self, count: int) -> Mask:
        """Return a mask of ``count`` nodes: those with a pod that still waits for its cards."""
        result = np.zeros(count, np.bool_)
        result[self._locked] = True
        result[[row for row, times in self._times.items() if any(time >= self._oldest for time in times)]] = True
        return result


def _locks(nodes: Sequence[Node], lock: str) -> dict[int, int]:
    """Return since when (seconds) other schedulers lock nodes by an annotation, by row."""
    found: dict[int, int] = {}
    for row, node in enumerate(nodes):
        text = node.metadata.annotations.get(lock)
        try:
            if text:
                found[row] = seconds_of(text)
        except ValueError:
            continue  # its end is unknown; waiting pods are recognized by their own annotations
    return found

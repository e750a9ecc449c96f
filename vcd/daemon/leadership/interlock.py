"""The interlock against another scheduler: report foreign binds, and hold back the namespaces in which they happen.

A bind is foreign if one of vcd's pods was observed without a node and gets a node that no session of this log chose.
Nothing counts while another replica holds the Lease, because its sessions may not be in this log. Pods that were first
observed with their node, such as those of DaemonSets and static pods, do not count either.

A client that may create pods/binding in a namespace can produce foreign binds there, and nowhere else. Therefore a
foreign bind has consequences in its own namespace only. Which namespaces are held back is part of the state
(``ClusterState.held_namespaces``), so that replays and the next leader have it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, cast

import structlog

from vcd.daemon.metrics.metrics_collector import Metrics
from vcd.daemon.options import Options
from vcd.kube.clock import SYSTEM_CLOCK, Clock
from vcd.model import events as ev
from vcd.model.objects import Pod
from vcd.model.wording import SECOND, rfc3339
from vcd.state.cluster_state import ClusterState

_log = structlog.get_logger(__name__)

ENOUGH = 3
"""Foreign binds in a namespace within the quiet period that indicate another scheduler, not a user with `kubectl`."""
_EVENTS, _MINUTE = 10, 60 * SECOND
"""Events on pods per minute, over all namespaces; the metric counts all binds."""

Report = Callable[[str, str, str], None]
"""Reports a pod by key and UID, in words."""


@dataclass(frozen=True)
class ForeignBindSeen:
    """A pod with a foreign bind, its node, and the time of observation (ns since the epoch)."""

    key: str
    uid: str
    node: str
    at: int


@dataclass(eq=False)
class Interlock:
    """Detects foreign binds while this replica ``leads``. ``sink`` logs events, ``report`` records Events."""

    options: Options
    state: ClusterState
    leads: Callable[[], bool]
    sink: Callable[[Sequence[ev.Event]], Awaitable[object]]
    report: Report
    metrics: Metrics
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        self._period = round(self.options.others_quiet_period * SECOND)
        self._chosen: dict[str, set[tuple[str, str]]] = {}
        """UIDs and nodes that sessions chose, by pod, until the pod has a node, because a call may take effect late."""
        for key, intent in self.state.intents.items():
            self._chosen.setdefault(key, set()).add((intent.uid, intent.node))
        self._unplaced: dict[str, str] = {}
        """UIDs of vcd's pods that were observed without a node, by key."""
        self._placed: dict[str, str] = {}
        """UIDs of vcd's pods that were observed with a node, by key."""
        for key in self.state.tasks.row_of:
            self._note_node(key)
        self._last: dict[str, deque[int]] = {}
        """When the last foreign binds of a namespace were observed."""
        self._reported: deque[int] = deque(maxlen=_EVENTS)
        """When the last Events were recorded."""
        self._new: asyncio.Queue[ForeignBindSeen] = asyncio.Queue()
        self.metrics.series.add("vcd_foreign_binds_total", by=0)
        self.metrics.held_back = self.held_back

    def held_back(self) -> int:
        """Return how many namespaces are held back now."""
        now = self.clock.wall()
        return sum(until > now for until in self.state.held_namespaces.values())

    # --- detection ----------------------------------------------------------------------------------------------------

    def observe(self, event: ev.Event) -> None:
        """Note an event that is in the state."""
        if isinstance(event, ev.SessionDecided):
            for operation in event.accepted().operations("bind"):
                if operation.key in self.state.tasks.row_of:  # it may have been deleted since the snapshot
                    self._chosen.setdefault(operation.key, set()).add((operation.uid, operation.node))
        elif isinstance(event, (ev.ObjectPut, ev.ObjectGone, ev.ObjectBad)) and event.kind == "Pod":
            bound = self._note_node(event.key)
            if bound is not None:
                self._check_bind(*bound)

    def _note_node(self, key: str) -> tuple[str, str, str] | None:
        """Note a pod's node. Return key, UID and node if it is one of vcd's pods and just got a node."""
        row, before = self.state.tasks.row_of.get(key), self._unplaced.pop(key, "")
        if row is None:
            self._chosen.pop(key, None)
            self._placed.pop(key, None)
            return None
        uid, node = cast(Pod, self.state.pods[row]).metadata.uid, self.state.shown_nodes[row]
        names = self.state.settings.scheduler_names
        if names and self.state.schedulers[self.state.tasks.at(row, "scheduler")] not in names:
            return None
        if node:
            self._placed[key] = uid
            return (key, uid, node) if before == uid else None
        if self._placed.get(key) != uid:  # else a watch repeats an older state
            self._unplaced[key] = uid
        return None

    def _check_bind(self, key: str, uid: str, node: str) -> None:
        if (uid, node) not in self._chosen.pop(key, ()) and self.leads():
            self._new.put_nowait(ForeignBindSeen(key, uid, node, self.clock.wall()))

    # --- consequences -------------------------------------------------------------------------------------------------

    async def run(self) -> NoReturn:
        """Report foreign binds, and hold back namespaces in which there are too many, until cancelled."""
        while True:
            await self._report_bind(await self._new.get())

    async def _report_bind(self, found: ForeignBindSeen) -> None:
        self.metrics.series.add("vcd_foreign_binds_total")
        _log.warning("another scheduler bound a pod of vcd's schedulerName", pod=found.key, node=found.node)
        if not self.leads():
            return
        until = self._held_until(found)
        if len(self._reported) < _EVENTS or found.at - self._reported[0] >= _MINUTE:
            self._reported.append(found.at)
            words = f"bound to {found.node} by another scheduler, although vcd schedules pods of its schedulerName"
            what_follows = f"; vcd decides nothing in this namespace until {rfc3339(until)}" if until else ""
            self.report(found.key, found.uid, words + what_follows)
        await self.sink([ev.ForeignBound(found.key, found.uid, found.node, until)])

    def _held_until(self, found: ForeignBindSeen) -> int:
        """Return until when a foreign bind holds back its namespace (ns since the epoch); 0 if it does not."""
        if self.options.lead_beside_others:
            return 0
        namespace, after = found.key.partition("/")[0], found.at - self._period
        self._last = {name: times for name, times in self._last.items() if times[-1] > after}
        last = self._last.setdefault(namespace, deque(maxlen=ENOUGH))
        last.append(found.at)
        is_held = self.state.held_namespaces.get(namespace, 0) > found.at
        if not is_held and (len(last) < ENOUGH or last[0] <= after):
            return 0
        if not is_held:
            _log.error("a namespace is not scheduled any more: another scheduler binds pods there", namespace=namespace)
        return found.at + self._period

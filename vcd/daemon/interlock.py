"""An interlock against another scheduler: who binds pods of our scheduler name beside a leader is told, and given way.

A bind is foreign where a pod of ours that was seen without a node has one which no session of this log decided. While
another replica holds the Lease that says nothing: its sessions may not be in this log. Nor does a pod say anything that
is seen with its node from the beginning, as those of DaemonSets and static ones are.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NoReturn, cast

import structlog

from vcd.daemon.metrics import Metrics
from vcd.daemon.options import Options
from vcd.kube.clock import SYSTEM_CLOCK, Clock
from vcd.kube.lease import LeaderElector
from vcd.model import events as ev
from vcd.model.objects import Pod
from vcd.model.words import rfc3339, span_in_words
from vcd.state.cluster import ClusterState

_log = structlog.get_logger(__name__)

ENOUGH = 3
"""So many foreign binds within the quiet period are another scheduler; fewer may be a person's, with `kubectl`."""
_EVENTS, _MINUTE = 10, 60.0
"""So many Events at pods in a minute; the count goes on."""
_LOOK = 0.2
"""Seconds between looks at whether to give way."""

Report = Callable[[str, str, str], None]
"""Tells of a pod by key and UID, or of nothing but the cluster (both empty), in words."""


@dataclass(frozen=True)
class ForeignBindSeen:
    """A pod that somebody else bound, where, and when that was seen (monotonic seconds)."""

    key: str
    uid: str
    node: str
    at: float


@dataclass(eq=False)
class Interlock:
    """Watches who binds; ``leads`` is whether this replica does, ``sink`` logs events, ``report`` makes Events,
    ``settled`` waits until nothing is under way that this replica decided, and ``again`` is called when it may decide
    again."""

    options: Options
    state: ClusterState
    elector: LeaderElector
    leads: Callable[[], bool]
    sink: Callable[[Sequence[ev.Event]], Awaitable[object]]
    report: Report
    settled: Callable[[], Awaitable[None]]
    again: Callable[[], None]
    metrics: Metrics
    clock: Clock = SYSTEM_CLOCK
    """Not that of a simulation, which would have to stop at each look."""

    def __post_init__(self) -> None:
        self._period = self.options.others_quiet_period
        self._ours: dict[str, set[tuple[str, str]]] = {}
        """What sessions decided, by pod: UIDs and nodes. It is kept until the pod has a node: a call may come late."""
        for key, intent in self.state.intents.items():
            self._ours.setdefault(key, set()).add((intent.uid, intent.node))
        self._unplaced: dict[str, str] = {}
        """Pods of ours that were seen without a node, and their UIDs."""
        self._placed: dict[str, str] = {}
        """Pods of ours that were seen with a node, which they keep, and their UIDs."""
        for key in self.state.tasks.row_of:
            self._look(key)
        self._seen: deque[ForeignBindSeen] = deque()
        """Foreign binds of the last quiet period."""
        self._new: deque[ForeignBindSeen] = deque()
        self._doubtful: deque[ForeignBindSeen] = deque()
        """Seen while nobody held the Lease; they may be of one who took it since."""
        self._gave_way_at, self._heard = -math.inf, ""
        self._stepped_down = False
        """Whether this replica was the last to lead, as far as it knows, and gave way."""
        self._told = False
        """Whether it is told that this replica goes on beside another scheduler."""
        self.metrics.series.add("vcd_foreign_binds_total", by=0)
        self.elector.gives_way = self.gives_way

    # --- who bound it -------------------------------------------------------------------------------------------------

    def observe(self, event: ev.Event) -> None:
        """An event was folded."""
        if isinstance(event, ev.SessionDecided):
            for operation in event.accepted().operations("bind"):
                if operation.key in self.state.tasks.row_of:  # it may have gone while that was decided
                    self._ours.setdefault(operation.key, set()).add((operation.uid, operation.node))
        elif isinstance(event, (ev.ObjectPut, ev.ObjectGone, ev.ObjectBad)) and event.kind == "Pod":
            bound = self._look(event.key)
            if bound is not None:
                self._judge(*bound)

    def _look(self, key: str) -> tuple[str, str, str] | None:
        """Note how a pod is shown now. Key, UID and node of one of ours that has one since this look, and had none."""
        row, before = self.state.tasks.row_of.get(key), self._unplaced.pop(key, "")
        if row is None:
            self._ours.pop(key, None)
            self._placed.pop(key, None)
            return None
        uid, node = cast(Pod, self.state.pods[row]).metadata.uid, self.state.shown_nodes[row]
        names = self.state.settings.scheduler_names
        if names and self.state.schedulers[self.state.tasks.at(row, "scheduler")] not in names:
            return None
        if node:
            self._placed[key] = uid
            return (key, uid, node) if before == uid else None
        if self._placed.get(key) != uid:  # else a watch tells again what was so before
            self._unplaced[key] = uid
        return None

    def _judge(self, key: str, uid: str, node: str) -> None:
        if (uid, node) in self._ours.pop(key, ()):
            return
        now = self.clock.monotonic()
        found = ForeignBindSeen(key, uid, node, now)
        if self.leads():
            self._new.append(found)
        elif self._is_free_since(now):
            self._doubtful.append(found)

    def _is_free_since(self, moment: float) -> bool:
        """Whether no replica led then, and none of what one decided before was still to be seen."""
        elector = self.elector
        if self._stepped_down:  # what this one decided, it knows
            return elector.holder in ("", elector.identity)
        return self.options.leader_elect and moment - elector.free_since >= self.options.lease_duration

    # --- giving way ---------------------------------------------------------------------------------------------------

    def gives_way(self) -> bool:
        """Whether another scheduler is at work, and this replica decides nothing beside it."""
        if self.options.lead_beside_others:
            return False
        self._hear()
        return self.clock.monotonic() - self._gave_way_at < self._period

    def _hear(self) -> None:
        """Take over what the Lease says of a replica that gave way, where it is new."""
        said = self.elector.gave_way
        if said == self._heard:
            return
        self._heard = said
        try:
            age = self.clock.wall() / 1e9 - datetime.fromisoformat(said).timestamp()
        except ValueError:
            if said:
                _log.warning("the Lease says what is no time of giving way", annotation=said[:100])
            return
        self._gave_way_at = max(self._gave_way_at, self.clock.monotonic() - max(0.0, age))

    @property
    def _enough(self) -> int:
        """How many foreign binds are too many: one, where another scheduler was at work not long ago."""
        return 1 if self.clock.monotonic() - self._gave_way_at < 2 * self._period else ENOUGH

    async def run(self) -> NoReturn:
        """Tell of foreign binds, and give way where they are too many, until cancelled."""
        gave_way = False
        while True:
            self.metrics.series.show("vcd_gives_way", self.gives_way())
            if gave_way and not self.gives_way():
                _log.info("nobody else binds pods of ours any more", for_seconds=self._period)
                self.again()
            gave_way = self.gives_way()
            await self.clock.sleep(_LOOK)
            self._stepped_down = self._stepped_down and not self.leads()
            self._settle_doubts()
            while self._new:
                await self._tell(self._new.popleft())
            now = self.clock.monotonic()
            while self._seen and now - self._seen[0].at >= self._period:
                self._seen.popleft()
            if self._seen and len(self._seen) >= self._enough:
                await (self._go_on() if self.options.lead_beside_others else self._give_way())
            elif not self._seen:
                self._told = False

    def _settle_doubts(self) -> None:
        """Nobody holds the Lease still: then it was nobody of us."""
        while self._doubtful and self._doubtful[0].at < self.elector.looked_at:
            found = self._doubtful.popleft()
            if self._is_free_since(found.at):
                self._new.append(found)

    async def _tell(self, found: ForeignBindSeen) -> None:
        self._seen.append(found)
        self.metrics.series.add("vcd_foreign_binds_total")
        _log.warning("somebody else bound a pod of ours", pod=found.key, node=found.node)
        if self.leads():
            if sum(found.at - one.at < _MINUTE for one in self._seen) <= _EVENTS:
                words = f"bound to {found.node} by somebody else, while vcd schedules pods of its schedulerName"
                self.report(found.key, found.uid, words)
            await self.sink([ev.ForeignBound(found.key, found.uid, found.node)])

    async def _give_way(self) -> None:
        """Decide nothing more until nobody else bound anything for the quiet period; let go of the Lease."""
        last, began = self._seen[-1], not self.gives_way()
        self._gave_way_at = max(self._gave_way_at, last.at)
        if not began:
            return
        why, period = self._why(), span_in_words(self._period)
        _log.error("giving way to another scheduler", reason=why)
        if not self.leads():
            return
        self.report("", "", f"{why}; vcd decides nothing until that has stopped for {period}")
        try:
            async with asyncio.timeout(2 * self.options.request_timeout):
                await self.settled()
        except TimeoutError:
            _log.warning("giving way though something is still under way")
        self._stepped_down = True
        seen = self.clock.wall() - round((self.clock.monotonic() - last.at) * 1e9)
        self.elector.step_down(why, 0.0, rfc3339(seen, 6))

    async def _go_on(self) -> None:
        """Lead beside another scheduler, as it is told."""
        if not self._told and self.leads():
            self._told = True
            why = self._why()
            _log.error("going on beside another scheduler", reason=why)
            self.report("", "", f"{why}; vcd goes on beside it (--lead-beside-others)")

    def _why(self) -> str:
        last, period = self._seen[-1], span_in_words(self._period)
        return f"somebody else binds pods of ours: {len(self._seen)} in {period}, {last.key} to {last.node} the last"

"""Decides some sessions again in the background and compares the bytes of the plans (law 5 of docs/laws.md).

It uses no memory of earlier sessions, so it also checks that memory changes no decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from vcd.model import events as ev
from vcd.scheduling.decide import decide
from vcd.scheduling.framework.guard import is_ours
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.framework.registry import actions, plugins
from vcd.scheduling.session.outside import Recorded
from vcd.state.snapshot import Snapshot

_log = structlog.get_logger(__name__)


class ReplayCheck:
    """Decides each ``every``-th session again (0: none), and calls ``differs`` if the plan differs.

    One check runs at a time; sessions during a check are skipped. So are sessions with third-party plugins or actions,
    because a thread that hangs in one cannot be stopped.
    """

    def __init__(self, every: int, differs: Callable[[], None]) -> None:
        self._every = every
        self._differs = differs
        self._running: asyncio.Task[None] | None = None

    def see(self, snapshot: Snapshot, policy: Policy, record: ev.SessionDecided) -> None:
        """Check a session that was decided and logged, if it is due."""
        if self._every and not record.session % self._every and self._running is None and _is_builtin_only(policy):
            self._running = asyncio.get_running_loop().create_task(self._check(snapshot, policy, record))

    async def idle(self) -> None:
        """Return once no check runs."""
        if self._running is not None:
            await self._running

    async def _check(self, snapshot: Snapshot, policy: Policy, record: ev.SessionDecided) -> None:
        try:
            again = await asyncio.to_thread(_encoded, snapshot, policy, record)
        finally:
            self._running = None
        if again != record.plan:
            self._differs()
            _log.error(
                "a replay of a session decides differently; save the log, and run `vcd replay`",
                replayed_session=record.session,
            )


def _encoded(snapshot: Snapshot, policy: Policy, record: ev.SessionDecided) -> bytes:
    outside = Recorded(record.asked)
    plan = decide(snapshot, policy, record.now, record.seed, outside=outside, interrupted=record.interrupted)
    return ev.encode_plan(plan)


def _is_builtin_only(policy: Policy) -> bool:
    used = [plugins()[option.name] for tier in policy.tiers for option in tier]
    return all(map(is_ours, used)) and all(is_ours(actions()[name]) for name in policy.actions)

"""Law 5 of docs/laws.md, watched while it runs: some sessions are decided again, and must come out byte for byte."""

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
    """Decides every so many sessions (``every``; 0: none) once more in a thread, with nothing that was kept from
    earlier ones, and calls ``differs`` where another plan comes out. One at a time: what comes meanwhile is left out.

    Sessions with plugins or actions of others are passed over, too: what these do to a thread nobody can undo.
    """

    def __init__(self, every: int, differs: Callable[[], None]) -> None:
        self._every = every
        self._differs = differs
        self._running: asyncio.Task[None] | None = None

    def see(self, snapshot: Snapshot, policy: Policy, record: ev.SessionDecided) -> None:
        """A session was decided and logged."""
        if self._every and not record.session % self._every and self._running is None and _is_all_ours(policy):
            self._running = asyncio.get_running_loop().create_task(self._check(snapshot, policy, record))

    async def idle(self) -> None:
        """Return once nothing is being checked."""
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
                "a session comes out differently when it is decided again; keep the log, and replay it",
                replayed_session=record.session,
            )


def _encoded(snapshot: Snapshot, policy: Policy, record: ev.SessionDecided) -> bytes:
    outside = Recorded(record.asked)
    plan = decide(snapshot, policy, record.now, record.seed, outside=outside, interrupted=record.interrupted)
    return ev.encode_plan(plan)


def _is_all_ours(policy: Policy) -> bool:
    used = [plugins()[option.name] for tier in policy.tiers for option in tier]
    return all(map(is_ours, used)) and all(is_ours(actions()[name]) for name in policy.actions)

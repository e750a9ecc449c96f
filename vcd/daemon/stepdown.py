"""Giving the Lease back where this replica could not schedule with it: another one perhaps can."""

from __future__ import annotations

from collections.abc import Callable

from vcd.daemon.watches import Watches
from vcd.kube.clock import SYSTEM_CLOCK, SYSTEM_RANDOM, Backoff, Clock, Random
from vcd.kube.lease import LeaderElector

_LOOKS = 10
"""Looks at the lists within one deadline."""
_SHORTEST, _LONGEST = 2, 32
"""The first and the longest pause before standing again, in deadlines."""


class StepDown:
    """Has ``elector`` give the Lease back once a first list got no further for ``deadline`` seconds while it leads.

    It stands again after a pause of one to two deadlines, twice as long each time (32 deadlines at most) until a term
    in which all lists came in. ``told`` is called with the kinds and what their lists failed with.
    """

    def __init__(
        self,
        elector: LeaderElector,
        watches: Watches,
        deadline: float,
        told: Callable[[dict[str, str]], None],
        clock: Clock = SYSTEM_CLOCK,
        rand: Random = SYSTEM_RANDOM,
    ) -> None:
        self._elector = elector
        self._watches = watches
        self._deadline = deadline
        self._told = told
        self._clock = clock
        self._pauses = Backoff(_SHORTEST * deadline, _LONGEST * deadline, rand)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self._clock.sleep(self._deadline / _LOOKS)
            if self._elector.is_leader():
                self._look()

    def _look(self) -> None:
        missing = {kind: status for kind, status in self._watches.statuses().items() if not status.synced}
        if not missing:
            self._pauses.reset()
            return
        since = self._clock.monotonic() - self._deadline
        stuck = {kind: status.last_error for kind, status in missing.items() if status.got_on <= since}
        if stuck:
            self._told(stuck)
            words = ", ".join(f"{kind} ({error or 'no answer'})" for kind, error in stuck.items())
            self._elector.step_down(f"cannot list {words}", self._pauses.next())

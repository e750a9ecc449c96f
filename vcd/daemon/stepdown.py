"""Giving the Lease back where this replica does not see what it decides on: another one perhaps does."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vcd.daemon.watches import Watches
from vcd.kube.clock import SYSTEM_CLOCK, SYSTEM_RANDOM, Backoff, Clock, Random
from vcd.kube.lease import LeaderElector

_LOOKS = 10
"""Looks at the lists within one deadline."""
_SHORTEST, _LONGEST = 2, 32
"""The first and the longest pause before standing again, in deadlines."""


class StepDown:
    """Has ``elector`` give the Lease back, while it leads, once a first list got no further for ``deadline`` seconds,
    or a kind that was listed could neither be listed nor watched for ``stale_deadline`` seconds.

    It stands again after a pause of one to two deadlines, twice as long each time (32 deadlines at most) until a term
    in which all lists came in. ``told`` is called with the kinds and what their lists failed with.
    """

    def __init__(
        self,
        elector: LeaderElector,
        watches: Watches,
        deadline: float,
        stale_deadline: float,
        told: Callable[[dict[str, str]], None],
        clock: Clock = SYSTEM_CLOCK,
        rand: Random = SYSTEM_RANDOM,
    ) -> None:
        self._elector = elector
        self._watches = watches
        self._deadlines = (deadline, stale_deadline)
        self._told = told
        self._clock = clock
        self._pauses = Backoff(_SHORTEST * deadline, _LONGEST * deadline, rand)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self._clock.sleep(min(self._deadlines) / _LOOKS)
            if self._elector.is_leader():
                self._look()

    def _look(self) -> None:
        stuck = self._watches.stuck(*self._deadlines)
        if stuck:
            self._told(stuck)
            self._elector.step_down(cannot_list(stuck), self._pauses.next())
        elif self._watches.synced():
            self._pauses.reset()


def cannot_list(stuck: Mapping[str, str]) -> str:
    """What is wrong, in words: kinds, and what their lists failed with."""
    return "cannot list " + ", ".join(f"{kind} ({error})" for kind, error in stuck.items())

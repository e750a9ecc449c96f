"""States when this replica may decide: it holds the Lease, the last leader's calls ended, and all lists are complete.

Law 4 of docs/laws.md depends on the order in ``_lead``. The epoch is set last; every call to the API server checks it
through ``holds``. This module does not renew the Lease (`vcd.kube.lease`) and does not start sessions
(`cycle.session_loop`).
"""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import InitVar, dataclass
from typing import Any

import structlog

from vcd.daemon.faults.fault_monitor import Sighting
from vcd.daemon.metrics.metrics_collector import Metrics
from vcd.daemon.options import Options
from vcd.daemon.persistence.state_writer import StateWriter
from vcd.daemon.replicas.replica import Replica, TermEnded
from vcd.daemon.watching.watches import Watches
from vcd.kube.client import KubeClient
from vcd.kube.clock import SYSTEM_CLOCK, SYSTEM_RANDOM, Backoff, Clock, Random
from vcd.kube.lease import LeaderElector
from vcd.model import events as ev

_log = structlog.get_logger(__name__)

_FIRST_LIST = 10.0
"""Seconds without progress after which a failing first list is an installation fault."""
_LOOKS = 10
"""Checks of the lists within one deadline."""
_SHORTEST, _LONGEST = 2, 32
"""The first and the longest pause before standing for election again, in deadlines."""


@dataclass(eq=False)
class Terms:
    """Follows the Lease; ``began`` is called when this replica starts to decide."""

    options: InitVar[Options]
    client: InitVar[KubeClient]
    state_writer: StateWriter
    watches: Watches
    metrics: Metrics
    began: Callable[[], None]
    clock: Clock = SYSTEM_CLOCK
    rand: Random = SYSTEM_RANDOM
    make_replica: InitVar[Callable[[LeaderElector], Replica] | None] = None
    """Constructs this replica of a shared log, if there is one."""
    to_log_first: Callable[[], Sequence[ev.Event]] = tuple
    """Returns the first events of a replica that takes over a shared log."""

    def __post_init__(
        self, options: Options, client: KubeClient, make_replica: Callable[[LeaderElector], Replica] | None
    ) -> None:
        self._elected = options.leader_elect
        self._request_timeout = client.request_timeout
        self._deadlines = (options.list_deadline, options.stale_deadline)
        state = self.state_writer.state
        self.elector = LeaderElector(
            client,
            options.lease_namespace,
            options.lease_name,
            options.identity or f"{socket.gethostname()}_{uuid.uuid4()}",
            lease_duration=options.lease_duration,
            renew_deadline=options.renew_deadline,
            retry_period=options.retry_period,
            last_epoch=state.epoch if state.epoch or state.session else -1,
            pod_namespace=os.environ.get("POD_NAMESPACE", ""),
        )
        self._epoch: int | None = None
        self.replica = None if make_replica is None else make_replica(self.elector)
        self.writes = asyncio.Event()
        """Set while this replica writes its log: always, unless it follows another replica's log."""

    def leads(self) -> bool:
        """Return whether this replica decides now."""
        return self._epoch is not None and self.holds(self._epoch)

    def holds(self, epoch: int) -> bool:
        """Return whether this replica still leads under an epoch."""
        return self.elector.is_leader_in(epoch) if self._elected else epoch == 0

    def epoch_to_decide_under(self) -> int | None:
        """Return the epoch while this replica leads, all lists are complete, and the log can be written."""
        if not self.leads() or self.state_writer.log.failure is not None:
            return None
        return self._epoch if self.watches.synced() else None

    def cannot_list(self) -> str | None:
        """Return which kinds are stale and why, in words; None if no kind is."""
        stuck = self.watches.stuck(*self._deadlines)
        return "cannot list " + ", ".join(f"{kind} ({error})" for kind, error in stuck.items()) if stuck else None

    def kinds_not_listed(self) -> dict[str, Sighting]:
        """Return the same kinds as faults, earlier while a first list fails, and kinds that are not served."""
        stuck = self.watches.stuck(min(_FIRST_LIST, self._deadlines[0]), self._deadlines[1])
        found = {kind: Sighting(error) for kind, error in stuck.items()}
        return found | {kind: Sighting("the API server does not serve it") for kind in self.watches.not_served()}

    def identity_shared(self) -> dict[str, Sighting]:
        """Return a fault if another process holds the Lease under this replica's identity."""
        elector = self.elector
        if not elector.has_rival():
            return {}
        words = f"another process uses the identity {elector.identity!r}, too"
        return {f"{elector.namespace}/{elector.name}": Sighting(words)}

    def parts(self) -> list[Coroutine[Any, Any, None]]:
        """Return the coroutines to run while this replica may lead."""
        if not self._elected:
            return [self._lead(ev.LeadershipChanged(0, self.elector.identity, leading=True))]
        return [self._follow(), self.release_if_stale(), self.elector.run()]

    def end(self) -> None:
        """Decide nothing more."""
        self._epoch = None

    async def release(self, *, cut_off: bool) -> None:
        """Release the Lease after ``parts`` have ended.

        ``cut_off`` means that calls may still take effect. The Lease then runs out instead, because a replica that
        takes a released Lease does not wait for calls.
        """
        if self._elected:
            await self.elector.release(cut_off=cut_off)

    async def release_if_stale(self) -> None:
        """Release the Lease if this replica's view is stale, because another replica's may not be.

        It stands again after a pause that doubles from `_SHORTEST` to `_LONGEST`, until a term in which all lists
        were complete.
        """
        deadline = self._deadlines[0]
        pauses = Backoff(_SHORTEST * deadline, _LONGEST * deadline, self.rand)
        while True:
            await self.clock.sleep(min(self._deadlines) / _LOOKS)
            if not self.elector.is_leader():
                continue
            if why := self.cannot_list():
                self.metrics.series.add("vcd_lease_given_back_total")
                _log.error("the Lease is given back: what is known is too old", reason=why)
                self.elector.step_down(why, pauses.next())
            elif self.watches.synced():
                pauses.reset()

    async def _follow(self) -> None:
        """After a win: wait for the end of the old leader's requests, list again, then decide (docs/laws.md, law 4)."""
        async for change in self.elector.changes():
            self._epoch = None
            self.metrics.observe_leadership(change.leading, change.epoch)
            if change.leading:
                self.watches.restart_deadlines()  # what the watches missed before this term does not count against it
                await self._lead(change)
            elif self.replica is not None:
                raise TermEnded(f"no longer leading under epoch {change.epoch}", self.elector.abstains_until)
            else:
                _log.warning("no longer leading", epoch=change.epoch)
                await self.state_writer.put([change])

    async def _lead(self, change: ev.LeadershipChanged) -> None:
        if self._elected:
            if not await self.elector.wait_until_safe():
                return
            if self.replica is None:
                await self.watches.list_again()
            else:
                await self.replica.become_leader()
                await self.state_writer.put([change, *self.to_log_first()])
                self.writes.set()  # starts the watches, which list
        elif self.state_writer.state.intents:
            await asyncio.sleep(self._request_timeout)  # calls of the process before this one may still take effect
            await self.watches.list_again()
        if not await self.watches.wait_synced(lambda: self.holds(change.epoch)):
            return
        known = [] if self.replica is not None else [change]
        await self.state_writer.put([*known, *self._never_done()])
        if not self.holds(change.epoch):
            return
        self._epoch = change.epoch
        self.metrics.observe_leadership(True, change.epoch)
        _log.info("leading", epoch=change.epoch, identity=self.elector.identity)
        self.state_writer.changed.set()
        self.began()

    def _never_done(self) -> list[ev.Event]:
        """Return failed outcomes for intents of earlier terms that the fresh lists do not show.

        Their calls can no longer be in flight, so they did not take effect; without an outcome they would hold
        resources forever.
        """
        words = "not to be seen when the next term began"
        return [
            ev.OperationDone(intent.session, intent.statement, intent.operation, "failed", words)
            for intent in self.state_writer.state.intents.values()
        ]

"""Reads pods again whose bind or eviction succeeded by the API server's answer, but which the watch does not show.

The answer to a call is not proof: an API server restored from a backup, or a watch that lost an event, contradicts it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import structlog

from vcd.daemon.watching.watches import Watches
from vcd.kube.api_errors import KubeError
from vcd.kube.clock import SYSTEM_CLOCK, Clock
from vcd.kube.committer import Committer
from vcd.kube.watcher import Sink
from vcd.model.events import Event, Operation, OperationDone, Verb
from vcd.state.cluster_state import ClusterState
from vcd.state.records import Intent

_log = structlog.get_logger(__name__)

PATIENCE = 60.0
"""Seconds that the watch may take to show a successful call."""

_LOOKS = 4
"""Checks within that time."""

Call = tuple[int, int, int]


@dataclass(eq=False)
class OutcomeResolver:
    """Reads pods whose successful bind or eviction is not observed within ``PATIENCE`` seconds.

    If the call did not take effect, it is logged as failed. If it did, the watch missed it, so pods are listed again.
    Nothing is read unless ``fence`` returns that this replica leads.
    """

    committer: Committer
    state: ClusterState
    watches: Watches
    sink: Sink
    fence: Callable[[], bool]
    clock: Clock = SYSTEM_CLOCK
    _done: dict[Call, float] = field(default_factory=dict, init=False)

    def observe(self, event: Event) -> None:
        """Note the time of a successful call; other events are ignored."""
        if isinstance(event, OperationDone) and event.result == "done":
            self._done[event.session, event.statement, event.operation] = self.clock.monotonic()

    async def run(self) -> None:
        """Check periodically until cancelled."""
        while True:
            await self.clock.sleep(PATIENCE / _LOOKS)
            await self.look()

    async def look(self) -> None:
        """Check all calls that are due."""
        open_ = {(i.session, i.statement, i.operation): (key, i) for key, i in self.state.intents.items()}
        self._done = {call: since for call, since in self._done.items() if call in open_}
        due = self.clock.monotonic() - PATIENCE
        missed = False
        for call in [call for call, since in self._done.items() if since <= due]:
            if not self.fence():
                return
            missed = await self._is_missed(call, *open_[call]) or missed
        if missed:
            await self.watches.list_again(["Pod"])

    async def _is_missed(self, call: Call, key: str, intent: Intent) -> bool:
        """Return whether the watch missed the effect of a call; log a call without effect as failed."""
        operation = Operation(cast(Verb, intent.verb), key, intent.uid, intent.node)
        try:
            outcome = await self.committer.look_up(operation, self.fence)
        except KubeError as error:
            _log.warning("outcome_not_looked_up", pod=key, error=str(error))
            return False
        if self.state.intents.get(key) != intent:
            return False  # observed in the meantime
        _log.warning("outcome_not_observed", pod=key, verb=intent.verb, node=intent.node, found=outcome is not None)
        if outcome is not None:
            self._done[call] = self.clock.monotonic()  # the next list shows it
            return True
        words = "the API server reported success, but the pod was not changed"
        await self.sink([OperationDone(*call, "failed", words)])
        return False

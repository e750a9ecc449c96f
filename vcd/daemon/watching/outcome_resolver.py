"""Looking again at what the API server said was done, where no watch shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import structlog

from vcd.daemon.watching.watches import Watches
from vcd.kube.clock import SYSTEM_CLOCK, Clock
from vcd.kube.committer import Committer
from vcd.kube.errors import KubeError
from vcd.kube.watcher import Sink
from vcd.model.events import Event, Operation, OperationDone, Verb
from vcd.state.cluster import ClusterState
from vcd.state.records import Intent

_log = structlog.get_logger(__name__)

PATIENCE = 60.0
"""Seconds for which a call that was done may not show in the watch."""

_LOOKS = 4
"""Looks at what is due within that time."""

Call = tuple[int, int, int]


@dataclass(eq=False)
class OutcomeResolver:
    """Asks for pods that were bound or evicted, as the server said, and do not show it for ``PATIENCE`` seconds.

    What did not happen has failed, which is an event; what did happen was missed by the watch, so pods are listed
    again. ``fence`` says whether this replica leads: only then is anything looked at.
    """

    committer: Committer
    state: ClusterState
    watches: Watches
    sink: Sink
    fence: Callable[[], bool]
    clock: Clock = SYSTEM_CLOCK
    _done: dict[Call, float] = field(default_factory=dict, init=False)

    def observe(self, event: Event) -> None:
        """Note when a call was done; events of all kinds may be told."""
        if isinstance(event, OperationDone) and event.result == "done":
            self._done[event.session, event.statement, event.operation] = self.clock.monotonic()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.clock.sleep(PATIENCE / _LOOKS)
            await self.look()

    async def look(self) -> None:
        """Look at all that is due."""
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
        """Whether a pod shows what the watch of pods does not; what did not happen is told of."""
        operation = Operation(cast(Verb, intent.verb), key, intent.uid, intent.node)
        try:
            outcome = await self.committer.look_up(operation, self.fence)
        except KubeError as error:
            _log.warning("not_looked_up", pod=key, error=str(error))
            return False
        if self.state.intents.get(key) != intent:
            return False  # it came to be seen while it was asked for
        _log.warning("done_but_not_seen", pod=key, verb=intent.verb, node=intent.node, found=outcome is not None)
        if outcome is not None:
            self._done[call] = self.clock.monotonic()  # the list will tell
            return True
        words = "the API server said that it was done, and the pod does not show it"
        await self.sink([OperationDone(*call, "failed", words)])
        return False

"""Labels this replica's own pod as leader or follower, for Services, ``kubectl get pods -l`` and dashboards.

Nothing in vcd reads the label. A killed replica's label stays until its container restarts or its pod is deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import msgspec
import structlog

from vcd.daemon.controllers.write_retry import Retry
from vcd.kube.api_errors import KubeError
from vcd.kube.client import MERGE_PATCH, KubeClient
from vcd.kube.clock import SYSTEM_CLOCK, Clock
from vcd.kube.write_limiter import Urgency
from vcd.model.kinds import KINDS

log = structlog.get_logger(__name__)

LABEL = "vcd.volcano.sh/role"
LEADER, FOLLOWER = "leader", "follower"
_LOOK = 0.5
"""Seconds between checks whether this replica leads."""
_FIRST_PAUSE = 1.0
"""First pause between attempts in seconds."""


@dataclass(eq=False)
class RoleLabel:
    """Updates the label of pod ``key`` (``namespace/name``); a refusal is logged and repeated after a growing pause."""

    client: KubeClient
    key: str
    leads: Callable[[], bool]
    clock: Clock = SYSTEM_CLOCK

    async def run(self) -> NoReturn:
        """Update the label until cancelled."""
        shown, retry = "", Retry(self.clock, _FIRST_PAUSE)
        while True:
            role = LEADER if self.leads() else FOLLOWER
            if role == shown:
                await self.clock.sleep(_LOOK)
                continue
            try:
                await self._show(role)
            except KubeError as error:
                if retry.is_new_failure(error):
                    log.warning("label not set", pod=self.key, label=LABEL, error=str(error))
                await retry.pause()
            else:
                shown, retry = role, Retry(self.clock, _FIRST_PAUSE)

    async def _show(self, role: str) -> None:
        body = msgspec.json.encode({"metadata": {"labels": {LABEL: role}}})
        path = KINDS["Pod"].object_path(self.key)
        await self.client.request("PATCH", path, body, content_type=MERGE_PATCH, urgency=Urgency.STATUS)

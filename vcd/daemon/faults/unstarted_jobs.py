"""Finds Volcano Jobs that no controller has started: their status has no phase, so they have no PodGroup and no pods.

vcd's state has no Jobs, because no decision depends on them. With ``--check-volcano-jobs`` the leader lists them
periodically, which needs a permission of its own (deploy/components/volcano-jobs).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import NoReturn

import msgspec
import structlog

from vcd.daemon.faults.fault_monitor import Sighting
from vcd.kube.api_errors import ApiError, KubeError
from vcd.kube.client import KubeClient
from vcd.kube.clock import SYSTEM_CLOCK, Clock
from vcd.state.cluster_state import ClusterState

_log = structlog.get_logger(__name__)

_PATH = "/apis/batch.volcano.sh/v1alpha1/jobs"
_DEFAULT_SCHEDULER = "volcano"
"""The scheduler of a Job that names none."""
PERIOD = 20.0
"""Seconds between two lists. A Job is reported if two successive lists have it without a phase."""
_SHARE = 0.05
"""Largest share of the time that lists take. With many Jobs, lists are rarer."""


class _Metadata(msgspec.Struct):
    uid: str = ""
    namespace: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    scheduler_name: str = ""


class _State(msgspec.Struct):
    phase: str = ""


class _Status(msgspec.Struct):
    state: _State = msgspec.field(default_factory=_State)


class _Job(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_decoder = msgspec.json.Decoder(_Job)


@dataclass(eq=False)
class UnstartedJobs:
    """Lists Volcano Jobs of vcd's scheduler names while this replica ``leads``."""

    client: KubeClient
    state: ClusterState
    leads: Callable[[], bool]
    _: KW_ONLY
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        self._unstarted: dict[str, str] = {}
        """Namespaces of the Jobs without a phase in the last list, by UID."""
        self._reported: Counter[str] = Counter()
        """Number of Jobs that two successive lists had without a phase, by namespace."""
        self._failure = ""

    def look(self) -> dict[str, Sighting]:
        """Return the namespaces with Jobs that were not started."""
        return {name: Sighting("the status of Volcano Jobs has no phase", n) for name, n in self._reported.items()}

    async def run(self) -> NoReturn:
        """List periodically until cancelled."""
        while True:
            began = self.clock.monotonic()
            await self.check()
            await self.clock.sleep(max(PERIOD, (self.clock.monotonic() - began) / _SHARE))

    async def check(self) -> None:
        """List once. If the list fails, the result of the last one remains, unless the kind is not served."""
        try:
            found = await self._list() if self.leads() else {}
        except KubeError as error:
            if isinstance(error, ApiError) and error.status == 404:
                found = {}
            else:
                if str(error) != self._failure:
                    self.client.log_failure(_log, "Volcano Jobs cannot be listed", error)
                self._failure = str(error)
                return
        self._failure = ""
        self._reported = Counter(namespace for uid, namespace in found.items() if uid in self._unstarted)
        self._unstarted = found

    async def _list(self) -> dict[str, str]:
        """Return the namespaces of vcd's Jobs without a phase, by UID. Raises KubeError."""
        found: dict[str, str] = {}
        names = self.state.settings.scheduler_names
        async for page in self.client.list_pages(_PATH):
            if page.first:
                found.clear()
            for item in page.items:
                try:
                    job = _decoder.decode(item)
                except msgspec.MsgspecError:
                    continue  # a controller wrote this status, so the Job was started; or it is no valid Job
                scheduler = job.spec.scheduler_name or _DEFAULT_SCHEDULER
                if not job.status.state.phase and (scheduler in names or not names):
                    found[job.metadata.uid] = job.metadata.namespace
        return found

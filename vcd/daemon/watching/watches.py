"""Runs one watcher per kind that the configuration reads, and reports whether all lists are complete.

A single watcher (list, watch, resume) is in `vcd.kube.watcher`. Before changing it: a session may be decided only under
lists of all kinds, so ``read`` adds kinds before a new configuration is logged, and ``read_only`` removes kinds after.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import InitVar, dataclass

from vcd.kube.client import KubeClient
from vcd.kube.clock import SYSTEM_CLOCK, Clock
from vcd.kube.watcher import Sink, Watcher, WatchStatus
from vcd.model.kinds import Kind
from vcd.state.cluster_state import ClusterState

ESSENTIAL = frozenset({"Node", "Pod", "PodGroup", "Queue"})
"""Kinds without which nothing is scheduled. Others depend on the version of Kubernetes and on the plugins."""
_LOOK = 0.02
"""Seconds between checks whether all lists are complete."""


@dataclass(eq=False)
class Watches:
    """Runs a watcher for each kind. The set of kinds may change, and all kinds can be listed again."""

    client: KubeClient
    state: ClusterState
    sink: Sink
    kinds: InitVar[Iterable[Kind]]
    clock: Clock = SYSTEM_CLOCK
    on_synced: Callable[[], None] = lambda: None
    """Called when the last missing list is complete: until then no session considered the observed changes."""

    def __post_init__(self, kinds: Iterable[Kind]) -> None:
        self._watchers: dict[str, Watcher] = {kind.name: self._watcher(kind) for kind in kinds}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failed: asyncio.Future[None] | None = None
        self._replacing = asyncio.Lock()

    def expect(self, kinds: Iterable[Kind]) -> None:
        """Replace the kinds to watch, before ``run`` starts."""
        self._watchers = {kind.name: self._watcher(kind) for kind in kinds}

    def _watcher(self, kind: Kind) -> Watcher:
        return Watcher(self.client, kind, self.state, self.sink, clock=self.clock, on_synced=self._one_synced)

    def _one_synced(self) -> None:
        if self.synced():
            self.on_synced()

    @property
    def narrow(self) -> frozenset[str]:
        """Return the kinds whose watch selects only some objects."""
        return frozenset(name for name, watcher in self._watchers.items() if watcher.kind.is_narrow)

    def statuses(self) -> Mapping[str, WatchStatus]:
        """Return the status of each kind, whether its watch runs yet or not."""
        return {kind: watcher.status for kind, watcher in self._watchers.items()}

    def running(self) -> Mapping[str, WatchStatus]:
        """Return the status of each running watch: none while another replica's log is followed."""
        return {kind: self._watchers[kind].status for kind in self._tasks}

    def stuck(self, first: float, later: float) -> dict[str, str]:
        """Return stale kinds and their last errors: no progress for ``first`` seconds in the first list, or for
        ``later`` seconds after it."""
        now = self.clock.monotonic()
        return {
            kind: s.last_error or "no answer"
            for kind, s in self.running().items()
            if s.stale_seconds(now) >= (later if s.synced else first)
        }

    def not_served(self) -> list[str]:
        """Return the kinds in `ESSENTIAL` that the API server does not serve. Their lists count as empty."""
        return [kind for kind, status in self.running().items() if status.missing and kind in ESSENTIAL]

    def restart_deadlines(self) -> None:
        """Restart the deadlines of ``stuck``."""
        for watcher in self._watchers.values():
            watcher.status.progress_at = self.clock.monotonic()

    def synced(self) -> bool:
        """Return whether the first list of every kind is complete."""
        return all(watcher.status.synced for watcher in self._watchers.values())

    async def wait_synced(self, wanted: Callable[[], bool] = lambda: True) -> bool:
        """Wait until all lists are complete while ``wanted`` returns true; return whether they are."""
        while wanted() and not self.synced():  # noqa: ASYNC110 - happens once per term
            await asyncio.sleep(_LOOK)
        return self.synced()

    async def run(self) -> None:
        """Watch until cancelled; raises what a watcher raises."""
        self._failed = asyncio.get_running_loop().create_future()
        for kind in self._watchers:
            self._start(kind)
        try:
            await self._failed
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _start(self, kind: str) -> None:
        # so that the time before its start does not count as silence
        self._watchers[kind].status.progress_at = self.clock.monotonic()
        task = asyncio.get_running_loop().create_task(self._watchers[kind].run())
        self._tasks[kind] = task
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or self._failed is None or self._failed.done():
            return
        error = task.exception()
        if error is not None:
            self._failed.set_exception(error)

    async def list_again(self, kinds: Iterable[str] | None = None) -> None:
        """Drop the watches of all or the given kinds, and list again."""
        for name in list(self._watchers) if kinds is None else kinds:
            async with self._replacing:
                if known := self._watchers.get(name):  # the kind may have been removed in the meantime
                    await self._replace(known.kind)

    async def read(self, kinds: Iterable[Kind]) -> None:
        """Watch these kinds in addition; a kind whose selection changed is listed again."""
        async with self._replacing:
            for kind in kinds:
                known = self._watchers.get(kind.name)
                if known is None or known.kind != kind:
                    await self._replace(kind)

    async def read_only(self, kinds: Iterable[Kind]) -> None:
        """Stop watching all other kinds."""
        wanted = {kind.name for kind in kinds}
        async with self._replacing:
            for name in sorted(self._watchers.keys() - wanted):  # a kind that is not needed must not delay sessions
                await self._end(name)
                del self._watchers[name]
        self._one_synced()

    async def _replace(self, kind: Kind) -> None:
        await self._end(kind.name)
        self._watchers[kind.name] = self._watcher(kind)
        self._start(kind.name)

    async def _end(self, kind: str) -> None:
        task = self._tasks.pop(kind, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

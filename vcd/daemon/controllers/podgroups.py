"""PodGroups for pods that bring none, in the place of Volcano's podgroup controller (``--controllers=podgroup``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple, NoReturn

import msgspec
import numpy as np
import structlog

from vcd.daemon.concurrency.followup import in_slices
from vcd.daemon.controllers.retry import LONGEST_PAUSE, Retry
from vcd.daemon.controllers.workloads import WorkloadGone, Workloads, changes, group_for, group_key
from vcd.kube.client import MERGE_PATCH, KubeClient
from vcd.kube.clock import SYSTEM_CLOCK, Clock
from vcd.kube.errors import ApiError, KubeError, LeadershipLost, is_final
from vcd.kube.lru import LruCache
from vcd.kube.workqueue import WorkQueue, namespace_lane
from vcd.kube.write_limiter import Urgency
from vcd.model import events as ev
from vcd.model.controllers import GROUP_NAME, Manifest
from vcd.model.kinds import KINDS
from vcd.model.objects import Pod
from vcd.model.podgroups import NAME_PREFIX, QUEUE_ANNOTATION
from vcd.state.cluster import ClusterState

log = structlog.get_logger(__name__)

_POD, _GROUP = KINDS["Pod"], KINDS["PodGroup"]
_LOOK = 1.0
"""Seconds between looks at which pods lack a group, or lost it; those that come are seen at once."""
_SWEEP = 10.0
"""Seconds between two sweeps for groups that nobody needs."""
_SHOWS = 10.0
"""Seconds within which the watch shows what was written."""
_WORKERS = 16
_CAPACITY = 200_000
"""Groups that wait to be made; for others the next look comes."""
_FIRST_PAUSE = 0.2
"""Seconds between two attempts at first."""
_PATIENCE = 3
"""Attempts after which a fault or conflict that may pass is told, too."""
_COLLECTED = 6
"""Attempts, in a quarter of a minute, after which pods are told of whose owner is gone and that are not collected."""
_SETS = frozenset({"ReplicaSet", "StatefulSet"})
"""Whose group follows their annotations and template, and goes when they are scaled to nothing."""


class _Retry(Retry):
    """A group that could not be made; ``told_to`` has the pods that were told why, and their UIDs."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, _FIRST_PAUSE)
        self.told_to: dict[str, str] = {}


class _Lack(NamedTuple):
    """The group that a pod lacks, and its UID where it names none yet."""

    group: str
    uid: str


@dataclass(eq=False)
class PodGroups:
    """Makes the group of each pod of ours that names none, and names it in the pod's annotation, while this replica
    leads (``fence``).

    Everything follows from the state: names are deterministic, so that nothing is made twice, whoever led before. What
    the API server refuses is told to ``refused`` with the pods that wait for it, and tried again after a growing pause.
    Groups go with their owners by the API server's garbage collection; that of a set which was scaled to nothing is
    deleted here. Owner references are the pod's own, without ``blockOwnerDeletion``: nobody's deletion waits for a
    group, and so no right over anybody's finalizers is needed.
    """

    client: KubeClient
    state: ClusterState
    fence: Callable[[], bool]
    refused: Callable[[Pod, str], None]
    _: KW_ONLY
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        self._workloads = Workloads(self.client, self.fence)
        self._work: WorkQueue[str, None] = WorkQueue(_CAPACITY, lane_of=namespace_lane)
        self._pods: dict[str, dict[str, None]] = {}
        """The pods that are to be named a group, by the group's key."""
        self._lacks: dict[str, _Lack] = {}
        """What pods lacked when they were last looked at, by key; until they change."""
        self._retries: dict[str, _Retry] = {}
        """Groups that could not be made."""
        self._named: LruCache[str, float] = LruCache(_CAPACITY)
        """When pods were named their group that the watch has not shown so, by UID: one that comes again is another."""
        self._made: LruCache[str, float] = LruCache(_CAPACITY)
        """When groups were asked for that the watch has not shown yet."""
        self._unneeded: set[str] = set()
        """Groups without pods, as of the last sweep."""
        self._unswept: dict[str, Retry] = {}
        """Those of them that could not be looked after."""

    def observe(self, event: ev.Event) -> None:
        """An event was folded: a group is shown, or a pod may lack its own."""
        if isinstance(event, (ev.ObjectPut, ev.ObjectGone)) and event.kind == "Pod":
            self._lacks.pop(event.key, None)
        if not isinstance(event, ev.ObjectPut) or event.payload is None:
            return
        if event.kind == "PodGroup":
            self._made.drop(event.key)
        elif event.kind == "Pod" and self.fence():
            row = self.state.tasks.row_of.get(event.key)
            if row is not None and self.state.tasks.at(row, "job") < 0:
                self._consider(event.key)

    async def run(self) -> NoReturn:
        """Make what is missing until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._work.serve(_WORKERS, self._attend))
            tasks.create_task(self._look())
            tasks.create_task(self._sweep_at_times())  # which asks for one owner after the other
        raise RuntimeError("workers ended")

    # --- what is missing ------------------------------------------------------------------------------------------

    async def _look(self) -> NoReturn:
        while True:
            if self.fence():
                await in_slices(self._considered([*self._groupless(), *self._orphaned()]))
            await self.clock.sleep(_LOOK)

    def _groupless(self) -> Iterator[str]:
        """The keys of pods of ours that name no group."""
        tasks, names = self.state.tasks, self.state.settings.scheduler_names
        ours = [number for number, name in enumerate(self.state.schedulers.values) if name in names or not names]
        for row in np.flatnonzero((tasks.column("job") < 0) & np.isin(tasks.column("scheduler"), ours)).tolist():
            if (key := tasks.keys[row]) is not None:
                yield key

    def _orphaned(self) -> Iterator[str]:
        """The keys of pods whose group of this making is gone."""
        missing = {key for key in self.state.former if _is_made(key)}
        if missing:
            tasks = self.state.tasks
            jobs = [number for number, key in enumerate(self.state.job_keys.values) if key in missing]
            for row in np.flatnonzero(np.isin(tasks.column("job"), jobs)).tolist():
                if (key := tasks.keys[row]) is not None:
                    yield key

    def _considered(self, keys: list[str]) -> Iterator[None]:
        """Consider pods, with a pause wherever a yield is: there may be a great many."""
        for key in keys:
            self._consider(key)
            yield

    def _consider(self, key: str) -> None:
        """Queue a pod where it lacks its group, unless that rests or was named just now."""
        lack = self._lacks.get(key) or self._look_at(key)
        if lack is not None and not self._rests(lack):
            self._pods.setdefault(lack.group, {})[key] = None
            self._work.put(lack.group, None)

    def _look_at(self, key: str) -> _Lack | None:
        """What a pod lacks, as is remembered; None where it lacks nothing."""
        pod = self.state.pod(key)
        if pod is None or not self._is_without(pod):
            return None
        lack = self._lacks[key] = _Lack(group_key(pod), "" if pod.group_key else pod.metadata.uid)
        return lack

    def _rests(self, lack: _Lack) -> bool:
        retry, named = self._retries.get(lack.group), self._named.get(lack.uid)
        return (retry is not None and retry.rests) or (named is not None and self.clock.monotonic() < named + _SHOWS)

    def _is_without(self, pod: Pod) -> bool:
        """Whether a pod lacks its group."""
        names = self.state.settings.scheduler_names
        if (names and pod.spec.scheduler_name not in names) or pod.metadata.deletion_timestamp is not None:
            return False
        if pod.status.phase in ("Succeeded", "Failed"):
            return False
        return not pod.group_key or (pod.group_key not in self.state.groups and pod.group_key == group_key(pod))

    # --- making it ------------------------------------------------------------------------------------------------

    async def _attend(self, group: str, _: None) -> None:
        found = [self.state.pod(key) for key in self._pods.pop(group, {})]
        pods = [pod for pod in found if pod is not None and self._is_without(pod)]
        if not pods:
            self._retries.pop(group, None)
            return
        if (retry := self._retries.get(group)) is not None and retry.rests:
            return  # queued by a look while the attempt went on that failed
        try:
            await self._bring_about(group, pods[0])
            await self._name(group, pods)
        except LeadershipLost:
            self._pods.clear()
            self._retries.clear()  # who leads next looks for itself
        except WorkloadGone as error:  # so is what it owns, once the API server has collected it
            if (retry := self._failed(group)).attempts >= _COLLECTED:
                why = f"its owner is not there ({error}); delete the pod, or its reference"
                self._tell_pods(retry, group, pods, why)
        except KubeError as error:
            self._tell(self._failed(group, error), group, pods, error)
        else:
            self._retries.pop(group, None)

    async def _bring_about(self, group: str, pod: Pod) -> None:
        """Make a group, or bring that of a set up to date. Raises KubeError, WorkloadGone."""
        record, made = self.state.groups.get(group), self._made.get(group)
        if record is None and made is not None and self.clock.monotonic() < made + _SHOWS:
            return
        if record is not None and not any(owner.kind in _SETS for owner in pod.metadata.owner_references):
            return
        wanted = group_for(pod, await self._workloads.above(pod), self._queue_of(pod.metadata.namespace))
        if record is None:
            await self._create(group, wanted)
            return
        if changed := changes(msgspec.to_builtins(record.group), wanted):
            await self._write("PATCH", _GROUP.object_path(group), changed)
            log.info("podgroup follows its workload", group=group)

    def _queue_of(self, namespace: str) -> str:
        """The queue that a namespace names for groups that name none, as Volcano's webhook fills it in."""
        found = self.state.others.get("Namespace", {}).get(namespace)
        return "" if found is None else found.metadata.annotations.get(QUEUE_ANNOTATION, "")

    async def _create(self, group: str, wanted: Manifest) -> None:
        body = {"apiVersion": _GROUP.api_version, "kind": "PodGroup", **wanted}
        path = _GROUP.object_path(group).rpartition("/")[0]
        self._made.set(group, self.clock.monotonic())  # first: the watch may show the group before the answer is here
        try:
            await self._write("POST", path, body)
        except KubeError as error:
            self._made.drop(group)
            if not isinstance(error, ApiError) or error.reason != "AlreadyExists":
                raise
        else:
            log.info("podgroup made", group=group, minimum=wanted["spec"]["minMember"])

    async def _name(self, group: str, pods: list[Pod]) -> None:
        """Name the group in the pods' annotations. Raises the first KubeError, once all were tried."""
        naming = (self._annotate(pod, group.partition("/")[2]) for pod in pods if pod.group_key != group)
        errors = [error for error in await asyncio.gather(*naming, return_exceptions=True) if error is not None]
        for error in errors:
            raise error

    async def _annotate(self, pod: Pod, name: str) -> None:
        # the UID in a patch is a precondition: the server refuses another pod of that name
        body = {"metadata": {"uid": pod.metadata.uid, "annotations": {GROUP_NAME: name}}}
        try:
            await self._write("PATCH", _POD.object_path(pod.key), body)
        except ApiError as error:
            if error.status != 404:
                raise
        self._named.set(pod.metadata.uid, self.clock.monotonic())

    async def _write(self, method: str, path: str, body: Any) -> None:
        raw, content_type = msgspec.json.encode(body), MERGE_PATCH if method == "PATCH" else "application/json"
        await self.client.request(
            method, path, raw, content_type=content_type, urgency=Urgency.STATUS, fence=self.fence
        )

    # --- what goes wrong ------------------------------------------------------------------------------------------

    def _failed(self, group: str, error: KubeError | None = None) -> _Retry:
        retry = self._retries.setdefault(group, _Retry(self.clock))
        retry.failed(error)
        return retry

    def _tell(self, retry: _Retry, group: str, pods: list[Pod], error: KubeError) -> None:
        means_it = is_final(error) and not (isinstance(error, ApiError) and error.status == 409)
        if means_it or retry.attempts >= _PATIENCE:
            self._tell_pods(retry, group, pods, str(error))

    def _tell_pods(self, retry: _Retry, group: str, pods: list[Pod], why: str) -> None:
        """Tell the pods that wait for a group why it cannot be made, each once."""
        words = f"its PodGroup {group.partition('/')[2]} cannot be made: {why}"
        if retry.is_news(words):
            retry.told_to = {}
            log.warning("podgroup missing", group=group, pods=len(pods), error=why)
        for pod in pods:
            if retry.told_to.get(pod.key) != pod.metadata.uid:
                self.refused(pod, words)
        known = retry.told_to | {pod.key: pod.metadata.uid for pod in pods}
        retry.told_to = {key: uid for key, uid in known.items() if key in self.state.tasks.row_of}

    # --- what nobody needs any more -------------------------------------------------------------------------------

    async def _sweep_at_times(self) -> NoReturn:
        while True:
            await self.clock.sleep(_SWEEP)
            if self.fence():
                await self._sweep()

    async def _sweep(self) -> None:
        """Delete groups of sets that were scaled to nothing, which would ask for room as long as the set is there.

        Looked at are those that no pod named at two sweeps.
        """
        now = self.clock.monotonic()
        self._retries = {key: retry for key, retry in self._retries.items() if now < retry.due + LONGEST_PAUSE}
        without = {key for key in self.state.groups if _is_made(key) and key not in self.state.job_keys}
        self._unswept = {key: retry for key, retry in self._unswept.items() if key in without}
        resting = {key for key, retry in self._unswept.items() if retry.rests}
        for key in sorted((without & self._unneeded) - resting):
            try:
                await self._delete_if_unneeded(key)
            except LeadershipLost:
                break
            except KubeError as error:
                retry = self._unswept.setdefault(key, Retry(self.clock, _SWEEP))
                if retry.failed_anew(error):
                    log.warning("podgroup not looked after", group=key, error=str(error))
            else:
                self._unswept.pop(key, None)
        self._unneeded = without

    async def _delete_if_unneeded(self, key: str) -> None:
        record = self.state.groups.get(key)
        if record is None or (workload := await self._workloads.of_group(record.group, _SETS)) is None:
            return
        if workload.replicas != 0 or key in self.state.job_keys:
            return
        try:
            await self._write("DELETE", _GROUP.object_path(key), {"preconditions": {"uid": record.group.metadata.uid}})
        except ApiError as error:
            if error.status not in (404, 409):
                raise
        else:
            self._made.drop(key)
            log.info("podgroup deleted", group=key, reason="its owner is scaled to nothing")


def _is_made(group: str) -> bool:
    """Whether a group's name is one that is given here."""
    return group.partition("/")[2].startswith(NAME_PREFIX)

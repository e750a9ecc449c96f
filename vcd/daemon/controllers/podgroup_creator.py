"""Creates PodGroups for pods without one, in place of Volcano's podgroup controller (``--controllers=podgroup``).

Before changing it: all work follows from the state, and names are deterministic. So a new leader continues where the
last one stopped, and creates nothing twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple, NoReturn

import msgspec
import numpy as np
import structlog

from vcd.daemon.concurrency.followup import in_slices
from vcd.daemon.controllers.pod_owners import WorkloadGone, Workloads, changes, group_for, group_key
from vcd.daemon.controllers.write_retry import LONGEST_PAUSE, Retry
from vcd.kube.api_errors import ApiError, KubeError, LeadershipLost, is_final
from vcd.kube.client import MERGE_PATCH, KubeClient
from vcd.kube.clock import SYSTEM_CLOCK, Clock
from vcd.kube.lru import LruCache
from vcd.kube.workqueue import WorkQueue, namespace_lane
from vcd.kube.write_limiter import Urgency
from vcd.model import events as ev
from vcd.model.controllers import GROUP_NAME, Manifest
from vcd.model.kinds import KINDS
from vcd.model.objects import Pod
from vcd.model.podgroups import NAME_PREFIX, QUEUE_ANNOTATION
from vcd.state.cluster_state import ClusterState

log = structlog.get_logger(__name__)

_POD, _GROUP = KINDS["Pod"], KINDS["PodGroup"]
_LOOK = 1.0
"""Seconds between scans for pods that lack a group or lost it. New pods are handled at once."""
_SWEEP = 10.0
"""Seconds between two sweeps for unneeded groups."""
_SHOWS = 10.0
"""Seconds within which the watch delivers a write."""
_WORKERS = 16
_CAPACITY = 200_000
"""The most queued groups. The next scan finds the others."""
_FIRST_PAUSE = 0.2
"""Seconds after the first failed attempt."""
_PATIENCE = 3
"""Attempts after which a temporary fault or conflict is reported, too."""
_COLLECTED = 6
"""Attempts, within 15 seconds, after which pods are reported whose owner is gone and that were not collected."""
_SETS = frozenset({"ReplicaSet", "StatefulSet"})
"""Owners whose group follows their annotations and template, and is deleted when they are scaled to 0."""


class _Retry(Retry):
    """A group that could not be created. ``reported_to`` maps the pods at which this was reported to their UIDs."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, _FIRST_PAUSE)
        self.reported_to: dict[str, str] = {}


class _Lack(NamedTuple):
    """The group that a pod lacks. ``uid`` is the pod's, empty if the pod already names the group."""

    group: str
    uid: str


@dataclass(eq=False)
class PodGroups:
    """Creates the group of each of vcd's pods that names none, and names it in the pod's annotation, while this replica
    leads (``fence``).

    What the API server refuses is reported through ``refused`` for each pod, and tried again after a growing pause.
    The API server's garbage collection deletes groups with their owners; groups of sets with 0 replicas are deleted
    here. Owner references are copied from the pod without ``blockOwnerDeletion``, so that no deletion waits for a
    group, and vcd needs no permission on finalizers.
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
        """Pods to be annotated with a group, by the group's key."""
        self._lacks: dict[str, _Lack] = {}
        """Pods without their group as of their last change, by key."""
        self._retries: dict[str, _Retry] = {}
        """Groups that could not be created."""
        self._annotated_at: LruCache[str, float] = LruCache(_CAPACITY)
        """The time at which each pod was annotated, by UID, because a recreated pod has the same name."""
        self._created_at: LruCache[str, float] = LruCache(_CAPACITY)
        """When groups were created that the watch has not delivered yet."""
        self._unneeded: set[str] = set()
        """Groups without pods, as of the last sweep."""
        self._sweep_retries: dict[str, Retry] = {}
        """Groups without pods that could not be checked or deleted."""

    def observe(self, event: ev.Event) -> None:
        """Note an event that is in the state: an observed group, or a pod that may lack its group."""
        if isinstance(event, (ev.ObjectPut, ev.ObjectGone)) and event.kind == "Pod":
            self._lacks.pop(event.key, None)
        if not isinstance(event, ev.ObjectPut) or event.payload is None:
            return
        if event.kind == "PodGroup":
            self._created_at.drop(event.key)
        elif event.kind == "Pod" and self.fence():
            row = self.state.tasks.row_of.get(event.key)
            if row is not None and self.state.tasks.at(row, "job") < 0:
                self._consider(event.key)

    async def run(self) -> NoReturn:
        """Create missing groups until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._work.serve(_WORKERS, self._process))
            tasks.create_task(self._scan())
            tasks.create_task(self._sweep_periodically())  # a task of its own, as it requests one owner after the other
        raise RuntimeError("workers ended")

    # --- missing groups -------------------------------------------------------------------------------------------

    async def _scan(self) -> NoReturn:
        while True:
            if self.fence():
                await in_slices(self._consider_all([*self._pods_without_group(), *self._pods_of_deleted_groups()]))
            await self.clock.sleep(_LOOK)

    def _pods_without_group(self) -> Iterator[str]:
        tasks, names = self.state.tasks, self.state.settings.scheduler_names
        schedulers = [number for number, name in enumerate(self.state.schedulers.values) if name in names or not names]
        for row in np.flatnonzero((tasks.column("job") < 0) & np.isin(tasks.column("scheduler"), schedulers)).tolist():
            if (key := tasks.keys[row]) is not None:
                yield key

    def _pods_of_deleted_groups(self) -> Iterator[str]:
        """Yield the keys of pods whose group was created here and is deleted."""
        missing = {key for key in self.state.former if _has_own_name(key)}
        if missing:
            tasks = self.state.tasks
            jobs = [number for number, key in enumerate(self.state.job_keys.values) if key in missing]
            for row in np.flatnonzero(np.isin(tasks.column("job"), jobs)).tolist():
                if (key := tasks.keys[row]) is not None:
                    yield key

    def _consider_all(self, keys: list[str]) -> Iterator[None]:
        """Consider pods in slices that end at each yield."""
        for key in keys:
            self._consider(key)
            yield

    def _consider(self, key: str) -> None:
        """Queue a pod that lacks its group, unless a retry pauses or the pod was annotated just now."""
        lack = self._lacks.get(key) or self._find_lack(key)
        if lack is not None and not self._rests(lack):
            self._pods.setdefault(lack.group, {})[key] = None
            self._work.put(lack.group, None)

    def _find_lack(self, key: str) -> _Lack | None:
        """Return and cache the group that a pod lacks; None if it has one."""
        pod = self.state.pod(key)
        if pod is None or not self._is_without(pod):
            return None
        lack = self._lacks[key] = _Lack(group_key(pod), "" if pod.group_key else pod.metadata.uid)
        return lack

    def _rests(self, lack: _Lack) -> bool:
        retry, named = self._retries.get(lack.group), self._annotated_at.get(lack.uid)
        return (retry is not None and retry.rests) or (named is not None and self.clock.monotonic() < named + _SHOWS)

    def _is_without(self, pod: Pod) -> bool:
        names = self.state.settings.scheduler_names
        if (names and pod.spec.scheduler_name not in names) or pod.metadata.deletion_timestamp is not None:
            return False
        if pod.status.phase in ("Succeeded", "Failed"):
            return False
        return not pod.group_key or (pod.group_key not in self.state.groups and pod.group_key == group_key(pod))

    # --- creation -------------------------------------------------------------------------------------------------

    async def _process(self, group: str, _: None) -> None:
        found = [self.state.pod(key) for key in self._pods.pop(group, {})]
        pods = [pod for pod in found if pod is not None and self._is_without(pod)]
        if not pods:
            self._retries.pop(group, None)
            return
        if (retry := self._retries.get(group)) is not None and retry.rests:
            return  # a scan queued it during the attempt that failed
        try:
            await self._ensure(group, pods[0])
            await self._annotate_all(group, pods)
        except LeadershipLost:
            self._pods.clear()
            self._retries.clear()  # the next leader finds them itself
        except WorkloadGone as error:  # the API server's garbage collection should delete the pods soon
            if (retry := self._failed(group)).attempts >= _COLLECTED:
                why = f"its owner is not there ({error}); delete the pod, or its reference"
                self._report_at_pods(retry, group, pods, why)
        except KubeError as error:
            self._report(self._failed(group, error), group, pods, error)
        else:
            self._retries.pop(group, None)

    async def _ensure(self, group: str, pod: Pod) -> None:
        """Create a group, or update the group of a set. Raises KubeError, WorkloadGone."""
        record, made = self.state.groups.get(group), self._created_at.get(group)
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
            log.info("podgroup updated from its workload", group=group)

    def _queue_of(self, namespace: str) -> str:
        """Return the queue that a namespace's annotation names, as Volcano's webhook does; empty if none."""
        found = self.state.others.get("Namespace", {}).get(namespace)
        return "" if found is None else found.metadata.annotations.get(QUEUE_ANNOTATION, "")

    async def _create(self, group: str, wanted: Manifest) -> None:
        body = {"apiVersion": _GROUP.api_version, "kind": "PodGroup", **wanted}
        path = _GROUP.object_path(group).rpartition("/")[0]
        # first, because the watch may deliver it before the response
        self._created_at.set(group, self.clock.monotonic())
        try:
            await self._write("POST", path, body)
        except KubeError as error:
            self._created_at.drop(group)
            if not isinstance(error, ApiError) or error.reason != "AlreadyExists":
                raise
        else:
            log.info("podgroup created", group=group, minimum=wanted["spec"]["minMember"])

    async def _annotate_all(self, group: str, pods: list[Pod]) -> None:
        """Annotate the pods with the group. Raises the first KubeError after all attempts."""
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
        self._annotated_at.set(pod.metadata.uid, self.clock.monotonic())

    async def _write(self, method: str, path: str, body: Any) -> None:
        raw, content_type = msgspec.json.encode(body), MERGE_PATCH if method == "PATCH" else "application/json"
        await self.client.request(
            method, path, raw, content_type=content_type, urgency=Urgency.STATUS, fence=self.fence
        )

    # --- faults ---------------------------------------------------------------------------------------------------

    def _failed(self, group: str, error: KubeError | None = None) -> _Retry:
        retry = self._retries.setdefault(group, _Retry(self.clock))
        retry.failed(error)
        return retry

    def _report(self, retry: _Retry, group: str, pods: list[Pod], error: KubeError) -> None:
        is_permanent = is_final(error) and not (isinstance(error, ApiError) and error.status == 409)
        if is_permanent or retry.attempts >= _PATIENCE:
            self._report_at_pods(retry, group, pods, str(error))

    def _report_at_pods(self, retry: _Retry, group: str, pods: list[Pod], why: str) -> None:
        """Report at each pod once why its group cannot be created."""
        words = f"its PodGroup {group.partition('/')[2]} cannot be made: {why}"
        if retry.is_new_reason(words):
            retry.reported_to = {}
            log.warning("podgroup missing", group=group, pods=len(pods), error=why)
        for pod in pods:
            if retry.reported_to.get(pod.key) != pod.metadata.uid:
                self.refused(pod, words)
        known = retry.reported_to | {pod.key: pod.metadata.uid for pod in pods}
        retry.reported_to = {key: uid for key, uid in known.items() if key in self.state.tasks.row_of}

    # --- unneeded groups ------------------------------------------------------------------------------------------

    async def _sweep_periodically(self) -> NoReturn:
        while True:
            await self.clock.sleep(_SWEEP)
            if self.fence():
                await self._sweep()

    async def _sweep(self) -> None:
        """Delete groups of sets that are scaled to 0, because their minResources would still request capacity.

        Only groups that had no pods in two sweeps are considered.
        """
        now = self.clock.monotonic()
        self._retries = {key: retry for key, retry in self._retries.items() if now < retry.due + LONGEST_PAUSE}
        without = {key for key in self.state.groups if _has_own_name(key) and key not in self.state.job_keys}
        self._sweep_retries = {key: retry for key, retry in self._sweep_retries.items() if key in without}
        resting = {key for key, retry in self._sweep_retries.items() if retry.rests}
        for key in sorted((without & self._unneeded) - resting):
            try:
                await self._delete_if_unneeded(key)
            except LeadershipLost:
                break
            except KubeError as error:
                retry = self._sweep_retries.setdefault(key, Retry(self.clock, _SWEEP))
                if retry.is_new_failure(error):
                    log.warning("podgroup is not maintained", group=key, error=str(error))
            else:
                self._sweep_retries.pop(key, None)
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
            self._created_at.drop(key)
            log.info("podgroup deleted", group=key, reason="its owner is scaled to zero")


def _has_own_name(group: str) -> bool:
    """Return whether a group's name is one of this controller."""
    return group.partition("/")[2].startswith(NAME_PREFIX)

"""Bind a pod's volumes before the pod: write the scheduler's choice for the volume controllers and wait for them.

Source: kube-scheduler 1.36 ``volumebinding`` (BindPodVolumes). As there, nothing is rolled back on failure: the pod's
next placement respects a claim's selected node and a volume's claimRef.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, InitVar, dataclass
from functools import partial
from typing import cast

import msgspec

from vcd.kube.api_errors import ApiError, BadResponse, KubeError, LeadershipLost, is_final
from vcd.kube.client import MERGE_PATCH, KubeClient, pause_after
from vcd.kube.clock import SYSTEM_CLOCK, SYSTEM_RANDOM, Backoff, Clock, Random
from vcd.kube.write_limiter import Urgency, WriteLimiter
from vcd.model.events import Operation, Result, VolumeChoice
from vcd.model.kinds import KINDS, Kind
from vcd.model.objects import Object, ObjectReference, PersistentVolume, PersistentVolumeClaim
from vcd.model.projection_codec import BadObject, decode_json

BIND_TIMEOUT = 600.0
"""Seconds until a pod's volumes must be bound, as kube-scheduler's bindTimeoutSeconds."""

REPEATS_PER_SECOND = 50
"""Repeated steps per second, of up to three requests each, over all waiting pods. More would make the API server
throttle this client. Up to about 75 pods, each is still checked every 2 s."""

SELECTED_NODE = "volume.kubernetes.io/selected-node"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
_CLAIM, _VOLUME = KINDS["PersistentVolumeClaim"], KINDS["PersistentVolume"]
_encode = msgspec.json.Encoder().encode
_ATTEMPTS = 5
"""Attempts per step that end in a conflict."""


class VolumeError(Exception):
    """A pod's volumes cannot be bound; ``result`` and ``detail`` are the outcome of the pod's bind."""

    def __init__(self, result: Result, detail: str) -> None:
        super().__init__(detail)
        self.result = result
        self.detail = detail


@dataclass(eq=False)
class VolumeBinder:
    """Bind the volumes of any number of pods concurrently.

    Args:
        timeout: Seconds per pod. If many pods wait, the last check can be later.
        concurrency: Pods whose requests run at once. Pods that wait for a controller do not count.
    """

    client: KubeClient
    _: KW_ONLY
    timeout: float = BIND_TIMEOUT
    concurrency: InitVar[int] = 64
    clock: Clock = SYSTEM_CLOCK
    rand: Random = SYSTEM_RANDOM

    def __post_init__(self, concurrency: int) -> None:
        self._first_limiter = WriteLimiter(0, 1, concurrency, self.clock)
        self._repeat_limiter = WriteLimiter(REPEATS_PER_SECOND, REPEATS_PER_SECOND, concurrency, self.clock)

    async def bind(
        self, operation: Operation, fence: Callable[[], bool], check_pod: Callable[[], Awaitable[None]]
    ) -> None:
        """Return once all volumes of an operation are bound.

        ``check_pod`` raises VolumeError if the pod no longer needs them. Raises VolumeError and
        LeadershipLost.
        """
        work = _PodVolumes(self.client, operation.node, fence)
        deadline = self.clock.monotonic() + self.timeout
        for choice in operation.volumes:
            await self._repeat(partial(work.write_choice, choice), deadline, fence)
        missing = list(operation.volumes)

        async def check() -> str:
            while missing:
                missing_step = await work.check(missing[0])
                if missing_step:
                    await check_pod()
                    return missing_step
                del missing[0]
            return ""

        await self._repeat(check, deadline, fence)

    async def _repeat(self, step: Callable[[], Awaitable[str]], deadline: float, fence: Callable[[], bool]) -> None:
        backoff = Backoff(0.2, 2.0, self.rand)
        conflicts, limiter = 0, self._first_limiter
        while True:
            try:
                missing_step = await _run_limited(limiter, step, fence)
                if not missing_step:
                    return
                pause = backoff.next()
            except LeadershipLost:
                raise
            except KubeError as error:
                conflicts += _is_conflict(error)
                if (is_final(error) and not _is_conflict(error)) or conflicts >= _ATTEMPTS:
                    raise VolumeError("conflict" if _is_conflict(error) else "failed", str(error)) from error
                missing_step, pause = str(error), pause_after(error, backoff)
            rest = deadline - self.clock.monotonic()
            if rest <= 0:
                raise VolumeError("failed", f"binding volumes took longer than {self.timeout:g} s: {missing_step}")
            await self.clock.sleep(min(pause, rest))
            limiter = self._repeat_limiter


async def _run_limited(limiter: WriteLimiter, step: Callable[[], Awaitable[str]], fence: Callable[[], bool]) -> str:
    if not fence():
        raise LeadershipLost
    await limiter.acquire(Urgency.COMMIT)
    if not fence():  # pods of a lost term must not use up the rate of the next term's pods
        limiter.release(Urgency.COMMIT, unused=True)
        raise LeadershipLost
    try:
        return await step()
    finally:
        limiter.release(Urgency.COMMIT)


def _is_conflict(error: KubeError) -> bool:
    return isinstance(error, ApiError) and error.status == 409


@dataclass(eq=False)
class _PodVolumes:
    client: KubeClient
    node: str
    fence: Callable[[], bool]

    async def write_choice(self, choice: VolumeChoice) -> str:
        """Write a choice for the volume controllers, unless it is already there; return an empty text.

        Raises VolumeError if another choice was made, and KubeError.
        """
        claim, version = await self._read_claim(choice)
        if not choice.volume:
            await self._select_node(claim, version)
        elif claim.spec.volume_name != choice.volume:
            if claim.spec.volume_name:
                raise VolumeError("conflict", f"claim {claim.key} was bound to volume {claim.spec.volume_name}")
            await self._claim_volume(claim, choice.volume)
        return ""

    async def _select_node(self, claim: PersistentVolumeClaim, version: str) -> None:
        selected = claim.metadata.annotations.get(SELECTED_NODE)
        if selected == self.node:
            return
        if selected or claim.spec.volume_name:
            place = f"node {selected}" if selected else f"volume {claim.spec.volume_name}"
            raise VolumeError("conflict", f"claim {claim.key} was bound to {place}")
        meta = {"resourceVersion": version, "annotations": {SELECTED_NODE: self.node}}
        await self._patch(_CLAIM.object_path(claim.key), {"metadata": meta})

    async def _claim_volume(self, claim: PersistentVolumeClaim, name: str) -> None:
        volume, version = await self._read_volume(name)
        reference = volume.spec.claim_ref
        if reference is not None and not _is_for(reference, claim):
            raise VolumeError("conflict", f"volume {name} was bound to claim {reference.namespace}/{reference.name}")
        if reference is not None and reference.uid:
            return
        meta: dict[str, object] = {"resourceVersion": version}
        if reference is None:
            # lets the controller undo this when the claim is deleted
            meta["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
        chosen = {
            "apiVersion": "v1",
            "kind": _CLAIM.name,
            "namespace": claim.metadata.namespace,
            "name": claim.metadata.name,
            "uid": claim.metadata.uid,
        }
        await self._patch(_VOLUME.object_path(name), {"metadata": meta, "spec": {"claimRef": chosen}})

    async def check(self, choice: VolumeChoice) -> str:
        """Return what a claim still waits for; empty once it is bound as chosen.

        Raises VolumeError if that will not happen, and KubeError.
        """
        claim, _ = await self._read_claim(choice)
        bound = bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations
        if not choice.volume:
            if claim.metadata.annotations.get(SELECTED_NODE) != self.node:
                raise VolumeError("failed", f"provisioning failed for claim {claim.key}")
            return "" if bound else f"claim {claim.key} waits for its volume to be made"
        if claim.spec.volume_name not in ("", choice.volume):
            raise VolumeError("conflict", f"claim {claim.key} was bound to volume {claim.spec.volume_name}")
        if bound:
            return ""
        reference = (await self._read_volume(choice.volume))[0].spec.claim_ref
        if reference is None or not reference.uid or not _is_for(reference, claim):
            raise VolumeError("failed", f"claimRef of volume {choice.volume} was reset")
        return f"claim {claim.key} waits to be bound to volume {choice.volume}"

    # --- calls ------------------------------------------------------------------------------------------------------

    async def _read_claim(self, choice: VolumeChoice) -> tuple[PersistentVolumeClaim, str]:
        claim, version = await self._get(_CLAIM, choice.claim)
        if claim.metadata.uid != choice.uid:
            raise VolumeError("conflict", f"claim {choice.claim} is another one now")
        if claim.metadata.deletion_timestamp:
            raise VolumeError("conflict", f"claim {choice.claim} is being deleted")
        return cast(PersistentVolumeClaim, claim), version

    async def _read_volume(self, name: str) -> tuple[PersistentVolume, str]:
        volume, version = await self._get(_VOLUME, name)
        if volume.metadata.deletion_timestamp:
            raise VolumeError("conflict", f"volume {name} is being deleted")
        return cast(PersistentVolume, volume), version

    async def _get(self, kind: Kind, key: str) -> tuple[Object, str]:
        try:
            return decode_json(kind, await self.client.request("GET", kind.object_path(key), fence=self.fence))
        except ApiError as error:
            if error.status != 404:
                raise
            raise VolumeError("conflict", f"{kind.name} {key} no longer exists") from error
        except BadObject as error:
            raise BadResponse(str(error)) from error

    async def _patch(self, path: str, change: dict[str, object]) -> None:
        await self.client.request("PATCH", path, _encode(change), content_type=MERGE_PATCH, fence=self.fence)


def _is_for(reference: ObjectReference, claim: PersistentVolumeClaim) -> bool:
    """Return whether a volume is reserved for a claim; a reference without a UID matches any claim of that name."""
    meta = claim.metadata
    return (reference.namespace, reference.name) == (meta.namespace, meta.name) and reference.uid in ("", meta.uid)

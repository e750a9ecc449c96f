"""Binding a pod's volumes before the pod: telling the volume controllers what was chosen, and waiting for them.

Source: kube-scheduler 1.36 ``volumebinding`` (BindPodVolumes). As there, nothing is taken back on failure: a claim
that carries its node, or a volume that names its claim, is where the pod's next placement goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, InitVar, dataclass
from functools import partial
from typing import cast

import msgspec

from vcd.kube.admission import Admission, Urgency
from vcd.kube.client import MERGE_PATCH, KubeClient, pause_after
from vcd.kube.clock import SYSTEM_CLOCK, SYSTEM_RANDOM, Backoff, Clock, Random
from vcd.kube.errors import ApiError, Fenced, KubeError, Malformed, is_final
from vcd.model.codec import BadObject, decode_json
from vcd.model.events import Operation, Result, VolumeChoice
from vcd.model.kinds import KINDS, Kind
from vcd.model.objects import Object, ObjectReference, PersistentVolume, PersistentVolumeClaim

BIND_TIMEOUT = 600.0
"""Seconds until the volumes of a pod must be bound, as kube-scheduler's bindTimeoutSeconds."""

AGAIN_PER_SECOND = 50
"""Steps repeated in a second at most, by all pods that wait together, of up to three requests each: else the API server
would throttle this client, the Lease with it. Some 75 pods look each 2 s all the same."""

SELECTED_NODE = "volume.kubernetes.io/selected-node"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
_CLAIM, _VOLUME = KINDS["PersistentVolumeClaim"], KINDS["PersistentVolume"]
_encode = msgspec.json.Encoder().encode
_ATTEMPTS = 5
"""Writes of one object that meet another one's."""


class NotBound(Exception):
    """A pod's volumes were not bound; ``result`` and ``detail`` are the outcome of the pod's bind."""

    def __init__(self, result: Result, detail: str) -> None:
        super().__init__(detail)
        self.result = result
        self.detail = detail


@dataclass(eq=False)
class VolumeBinder:
    """Binds the volumes of pods, for any number of them at once.

    ``timeout`` (seconds) is how long a pod's volumes may take; where many wait, the last look at them comes as late as
    its turn. ``concurrency`` bounds the pods that make their first calls at once, and those that repeat them: those
    that wait make none.
    """

    client: KubeClient
    _: KW_ONLY
    timeout: float = BIND_TIMEOUT
    concurrency: InitVar[int] = 64
    clock: Clock = SYSTEM_CLOCK
    rand: Random = SYSTEM_RANDOM

    def __post_init__(self, concurrency: int) -> None:
        self._first = Admission(0, 1, concurrency, self.clock)
        self._again = Admission(AGAIN_PER_SECOND, AGAIN_PER_SECOND, concurrency, self.clock)

    async def bind(
        self, operation: Operation, fence: Callable[[], bool], check_pod: Callable[[], Awaitable[None]]
    ) -> None:
        """Return once all volumes of an operation are bound.

        ``check_pod`` raises NotBound when the pod needs them no more. Raises NotBound and Fenced.
        """
        work = _Binding(self.client, operation.node, fence)
        deadline = self.clock.monotonic() + self.timeout
        for choice in operation.volumes:
            await self._repeat(partial(work.choose, choice), deadline, fence)
        missing = list(operation.volumes)

        async def look() -> str:
            while missing:
                waits_for = await work.look(missing[0])
                if waits_for:
                    await check_pod()
                    return waits_for
                del missing[0]
            return ""

        await self._repeat(look, deadline, fence)

    async def _repeat(self, step: Callable[[], Awaitable[str]], deadline: float, fence: Callable[[], bool]) -> None:
        """Repeat a step until it waits for nothing any more. What passes, as an overloaded server, is waited out."""
        backoff = Backoff(0.2, 2.0, self.rand)
        conflicts, turns = 0, self._first
        while True:
            try:
                waits_for = await _in_turn(turns, step, fence)
                if not waits_for:
                    return
                pause = backoff.next()
            except Fenced:
                raise
            except KubeError as error:
                conflicts += _is_conflict(error)
                if (is_final(error) and not _is_conflict(error)) or conflicts >= _ATTEMPTS:
                    raise NotBound("conflict" if _is_conflict(error) else "failed", str(error)) from error
                waits_for, pause = str(error), pause_after(error, backoff)
            rest = deadline - self.clock.monotonic()
            if rest <= 0:
                raise NotBound("failed", f"binding volumes took longer than {self.timeout:g} s: {waits_for}")
            await self.clock.sleep(min(pause, rest))
            turns = self._again


async def _in_turn(turns: Admission, step: Callable[[], Awaitable[str]], fence: Callable[[], bool]) -> str:
    """Make a step at its turn. Who has lost its term takes none from those of the next. Raises Fenced."""
    if not fence():
        raise Fenced
    await turns.enter(Urgency.COMMIT)
    if not fence():
        turns.leave(Urgency.COMMIT, unused=True)
        raise Fenced
    try:
        return await step()
    finally:
        turns.leave(Urgency.COMMIT)


def _is_conflict(error: KubeError) -> bool:
    return isinstance(error, ApiError) and error.status == 409


@dataclass(eq=False)
class _Binding:
    """The calls for one pod's volumes."""

    client: KubeClient
    node: str
    fence: Callable[[], bool]

    async def choose(self, choice: VolumeChoice) -> str:
        """Write the choice where the volume controllers look, unless it is there. Returns an empty text.

        Raises NotBound when someone chose otherwise, and KubeError.
        """
        claim, version = await self._claim(choice)
        if not choice.volume:
            await self._choose_node(claim, version)
        elif claim.spec.volume_name != choice.volume:
            if claim.spec.volume_name:
                raise NotBound("conflict", f"claim {claim.key} was bound to volume {claim.spec.volume_name}")
            await self._choose_volume(claim, choice.volume)
        return ""

    async def _choose_node(self, claim: PersistentVolumeClaim, version: str) -> None:
        selected = claim.metadata.annotations.get(SELECTED_NODE)
        if selected == self.node:
            return
        if selected or claim.spec.volume_name:
            place = f"node {selected}" if selected else f"volume {claim.spec.volume_name}"
            raise NotBound("conflict", f"claim {claim.key} was bound to {place}")
        meta = {"resourceVersion": version, "annotations": {SELECTED_NODE: self.node}}
        await self._patch(_CLAIM.object_path(claim.key), {"metadata": meta})

    async def _choose_volume(self, claim: PersistentVolumeClaim, name: str) -> None:
        volume, version = await self._volume(name)
        reference = volume.spec.claim_ref
        if reference is not None and not _is_for(reference, claim):
            raise NotBound("conflict", f"volume {name} was bound to claim {reference.namespace}/{reference.name}")
        if reference is not None and reference.uid:
            return
        meta: dict[str, object] = {"resourceVersion": version}
        if reference is None:
            meta["annotations"] = {BOUND_BY_CONTROLLER: "yes"}  # the volume is set free again when the claim goes
        chosen = {
            "apiVersion": "v1",
            "kind": _CLAIM.name,
            "namespace": claim.metadata.namespace,
            "name": claim.metadata.name,
            "uid": claim.metadata.uid,
        }
        await self._patch(_VOLUME.object_path(name), {"metadata": meta, "spec": {"claimRef": chosen}})

    async def look(self, choice: VolumeChoice) -> str:
        """What a choice still waits for, in words; empty once the claim is bound as chosen.

        Raises NotBound when that will not come about, and KubeError.
        """
        claim, _ = await self._claim(choice)
        bound = bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations
        if not choice.volume:
            if claim.metadata.annotations.get(SELECTED_NODE) != self.node:
                raise NotBound("failed", f"provisioning failed for claim {claim.key}")
            return "" if bound else f"claim {claim.key} waits for its volume to be made"
        if claim.spec.volume_name not in ("", choice.volume):
            raise NotBound("conflict", f"claim {claim.key} was bound to volume {claim.spec.volume_name}")
        if bound:
            return ""
        reference = (await self._volume(choice.volume))[0].spec.claim_ref
        if reference is None or not reference.uid or not _is_for(reference, claim):
            raise NotBound("failed", f"claimRef of volume {choice.volume} was reset")
        return f"claim {claim.key} waits to be bound to volume {choice.volume}"

    # --- calls ------------------------------------------------------------------------------------------------------

    async def _claim(self, choice: VolumeChoice) -> tuple[PersistentVolumeClaim, str]:
        """The claim and its resource version."""
        claim, version = await self._get(_CLAIM, choice.claim)
        if claim.metadata.uid != choice.uid:
            raise NotBound("conflict", f"claim {choice.claim} is another one now")
        if claim.metadata.deletion_timestamp:
            raise NotBound("conflict", f"claim {choice.claim} is being deleted")
        return cast(PersistentVolumeClaim, claim), version

    async def _volume(self, name: str) -> tuple[PersistentVolume, str]:
        volume, version = await self._get(_VOLUME, name)
        if volume.metadata.deletion_timestamp:
            raise NotBound("conflict", f"volume {name} is being deleted")
        return cast(PersistentVolume, volume), version

    async def _get(self, kind: Kind, key: str) -> tuple[Object, str]:
        try:
            return decode_json(kind, await self.client.request("GET", kind.object_path(key), fence=self.fence))
        except ApiError as error:
            if error.status != 404:
                raise
            raise NotBound("conflict", f"{kind.name} {key} is gone") from error
        except BadObject as error:
            raise Malformed(str(error)) from error

    async def _patch(self, path: str, change: dict[str, object]) -> None:
        """The resource version in the change is a precondition, and the object's UID with it."""
        await self.client.request("PATCH", path, _encode(change), content_type=MERGE_PATCH, fence=self.fence)


def _is_for(reference: ObjectReference, claim: PersistentVolumeClaim) -> bool:
    """Whether a volume is meant for a claim; where it names no UID, whatever the claim's."""
    meta = claim.metadata
    return (reference.namespace, reference.name) == (meta.namespace, meta.name) and reference.uid in ("", meta.uid)

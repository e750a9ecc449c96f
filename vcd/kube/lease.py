"""Leadership by a Lease (docs/laws.md, law 4), compatible with client-go's leader election on the same object.

Only this replica's monotonic clock is trusted. A holder counts from the moment *before* it sent its last successful
renewal and stops ``renew_deadline`` later; a follower counts from the moment it first *saw* a renewal and takes the
lease ``lease_duration`` later. So the holder has stopped, and its last request has ended, before anyone takes over,
whatever the machines' wall clocks say.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import msgspec
import structlog

from vcd.kube.admission import Urgency
from vcd.kube.client import KubeClient
from vcd.kube.clock import SYSTEM_CLOCK, Clock
from vcd.kube.errors import ApiError, KubeError, Malformed, Unanswered, decoded
from vcd.kube.waits import first_of
from vcd.model.events import LeadershipChanged
from vcd.model.words import rfc3339

log = structlog.get_logger(__name__)

DEFAULT_NAMESPACE = "volcano-system"
DEFAULT_NAME = "volcano"
ADDRESS = "vcd.volcano.sh/log"
"""The annotation of a Lease that says whose log is followed where: an identity and an address. Who holds the Lease next
and does not know it leaves it there."""
POD_NAMESPACE = "vcd.volcano.sh/pod-namespace"
"""The annotation of a Lease that says in which namespace the pod is whose log is followed: it may be another one."""
RELEASED_SECONDS = 1
"""leaseDurationSeconds of a lease that its holder gave back (client-go writes the same)."""
MOST_EPOCHS = 2**30
"""leaseTransitions to which no elections come: somebody wrote more, and after 2**31 - 1 the API server takes none."""
_RIVALRY = 3
"""Lease durations for which another process with this identity is remembered: the two take turns."""
_ATTEMPTS = 3
"""To give a lease back that was written meanwhile, as by a renewal whose answer nobody waited for."""

_encode = msgspec.json.Encoder().encode


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct):
    metadata: dict[str, Any] = {}
    """Kept as it is: a renewal must not take away others' labels."""
    spec: _Spec = msgspec.field(default_factory=_Spec)


_decoder = msgspec.json.Decoder(_Lease, strict=False)


@dataclass(eq=False)
class LeaderElector:
    """Takes part in the election for one Lease. All times are seconds.

    ``last_epoch`` is the highest epoch that this replica knows, from its log at first: an epoch is never used twice,
    even when somebody deletes the Lease. That the times let no two replicas lead at once `vcd.daemon.options` sees to.
    """

    client: KubeClient
    namespace: str = DEFAULT_NAMESPACE
    name: str = DEFAULT_NAME
    identity: str = ""
    _: KW_ONLY
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    last_epoch: int = -1
    address: str = ""
    """Where this replica's log is followed; empty where it is not."""
    pod_namespace: str = ""
    """The namespace of this replica's pod; empty where it is not known."""
    may_stand: Callable[[], bool] = lambda: True
    """Whether this replica is fit to lead; one that is not lets others go first, for as long as the Lease lasts."""
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        self.epoch = self.last_epoch
        self.safe_at = float("inf")
        self.holder = ""
        self.holder_address = ""
        """Where the log of the holder that was last seen is followed; empty where it is not."""
        self.has_log = False
        """Whether who holds the Lease, or gave it back last, has a log that others have followed."""
        self.looked_at = 0.0
        """When the Lease was last seen."""
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"
        self._leading = False
        self._until = 0.0
        self._lease: _Lease | None = None
        self._seen: _Spec | None = None
        self._seen_at = 0.0
        self._rests_until = 0.0
        self._rival_seen = -math.inf
        """When the lease was last found to be another process's, under this replica's identity."""
        self._held = False
        """Whether the lease is still to be given back after stepping down."""
        self._to_look = asyncio.Event()
        """Set where the lease is to be looked at before the next attempt is due."""
        self._changes: asyncio.Queue[LeadershipChanged] = asyncio.Queue()

    def is_leader(self) -> bool:
        """Whether this replica leads now. The clock is asked each time: a stopped process wakes up as no leader."""
        return self._leading and self.clock.monotonic() < self._until

    def holds(self, epoch: int) -> bool:
        """Whether this replica still leads under the epoch that something was decided under."""
        return epoch == self.epoch and self.is_leader()

    def has_rival(self) -> bool:
        """Whether another process took the lease under this replica's identity, not long ago."""
        return self.clock.monotonic() - self._rival_seen < _RIVALRY * self.lease_duration

    async def wait_safe(self) -> bool:
        """Wait until no request of the last leader can be under way; False when leadership was lost meanwhile."""
        epoch = self.epoch
        if self.safe_at > self.clock.monotonic() and self._leading:
            await self.clock.sleep(self.safe_at - self.clock.monotonic())
        return self.holds(epoch)

    async def changes(self) -> AsyncIterator[LeadershipChanged]:
        """Each win and each loss, in order."""
        while True:
            yield await self._changes.get()

    async def run(self) -> None:
        """Stand for election until cancelled. Cancelling leaves the lease alone: see ``release``."""
        while True:
            if self._leading:
                await self._renew_round()
            else:
                await self.give_back_held()
                await self._acquire_round()

    def look(self) -> None:
        """Look at the lease now: who holds it has perhaps changed. A leader knows, and does not."""
        self._to_look.set()

    def step_down(self, why: str, pause: float) -> None:
        """Stop leading now, and do not stand for election for ``pause`` seconds.

        The lease is given back once no call that was made under it can be under way any more.
        """
        if self._leading:
            self._lose(why)
            self._held = True
            self._rests_until = self.clock.monotonic() + self.client.request_timeout + pause

    @property
    def rests_until(self) -> float:
        """When it stands again after it stepped down, by the monotonic clock."""
        return self._rests_until

    def rest_until(self, moment: float) -> None:
        """Do not stand for election before then."""
        self._rests_until = moment

    async def give_back_held(self) -> None:
        """Give back what is still held after stepping down; for who ends before ``run`` does so."""
        if self._held:
            await self.clock.sleep(self.client.request_timeout)
            await self._give_back()
            self._held = False

    async def release(self, *, cut_off: bool = False) -> None:
        """Stop leading, and give the lease back so that another may take it at once.

        Call it after ``run`` was cancelled and all calls made under the lease have ended; ``cut_off`` says that some
        may still be carried out, which is waited for. A failure is only logged: the lease then runs out by itself.
        """
        led = self._leading  # be it for longer than it renewed: it is given back only while it is still its own
        self._lose("released")
        if led and not cut_off:
            await self._give_back()
        else:
            self._held |= led
            await self.give_back_held()

    async def _give_back(self) -> None:
        lease = self._lease
        try:
            for left in reversed(range(_ATTEMPTS)):
                if lease is None or not self._is_own(lease):
                    return
                try:
                    self._observe(await self._put(self._given_back(lease)))
                    return
                except ApiError as error:
                    if error.status != 409 or not left:
                        raise
                lease = await self._get()
        except KubeError as error:
            log.warning("lease_not_released", error=str(error))

    def _is_own(self, lease: _Lease) -> bool:
        """Whether a lease is that of this replica's term; its name alone may be another process's, too."""
        return lease.spec.holder_identity == self.identity and lease.spec.lease_transitions == self.epoch

    def _given_back(self, lease: _Lease) -> _Lease:
        spec = _Spec("", RELEASED_SECONDS, self._now(), self._now(), lease.spec.lease_transitions)
        return _Lease(lease.metadata, spec)

    async def _acquire_round(self) -> None:
        self._to_look.clear()
        pause = self.retry_period
        try:
            if not await self._try_acquire():
                # not later than the moment it may be taken: takeover within lease duration plus retry period
                pause = min(pause, self._takes_at() - self.clock.monotonic())
        except KubeError as error:
            if isinstance(error, ApiError) and error.status == 409:
                log.info("lease_taken_by_another")
            else:
                self.client.log_failure(log, "lease_not_reached", error)
        await first_of(self.clock.sleep(max(pause, 0.05)), self._to_look.wait())

    async def _try_acquire(self) -> bool:
        sent = self.clock.monotonic()
        lease = await self._get()
        if lease is not None:
            self._observe(lease)
        own = self._seen is not None and self._seen.holder_identity == self.identity
        if self.clock.monotonic() < (self._rests_until if own else self._takes_at()):
            return False  # also where somebody deleted it: who held it may not have noticed
        if lease is None:
            fresh = self._seen is None
            self._won(await self._create(), sent, wait=not fresh)
            return True
        released = not lease.spec.holder_identity and lease.spec.lease_duration_seconds == RELEASED_SECONDS
        if _epoch(lease) < 0:
            log.warning("lease_transitions_ignored", found=lease.spec.lease_transitions, most=MOST_EPOCHS)
        sent = self.clock.monotonic()
        wanted = _Lease(self._addressed(lease.metadata), self._spec(self._now(), self.last_epoch + 1))
        self._won(await self._put(wanted), sent, wait=not released)
        return True

    async def _renew_round(self) -> None:
        """Renew once and pause; stop leading when the deadline has passed or the lease is another's."""
        if not self.is_leader():
            self._lose("renew deadline passed")
            return
        sent = self.clock.monotonic()
        try:
            await self._renew(sent)
        except KubeError as error:
            self.client.log_failure(log, "lease_not_renewed", error, seconds_left=round(self._until - sent, 3))
        if self._leading:
            left = max(0.0, self._until - self.clock.monotonic())
            renewed = self._until == sent + self.renew_deadline
            # after a failure sooner, and the sooner the less is left; at the deadline, to say that it has passed
            await self.clock.sleep(min(self.retry_period, left if renewed else max(0.1, left / 4), left))

    async def _renew(self, sent: float) -> None:
        lease = self._lease
        if lease is None:
            raise RuntimeError("leading without a lease")
        spec = msgspec.structs.replace(lease.spec, renew_time=self._now())
        try:
            self._lease = await self._put(_Lease(lease.metadata, spec), left=self._until - sent)
            self._observe(self._lease)
            self._go_on(sent)
            return
        except ApiError as error:
            if error.status not in (404, 409):
                raise
        except Unanswered:
            # it may have been written all the same; then our copy is old, and only then is a conflict no theft
            pass
        await self._look_again(spec, sent)

    async def _look_again(self, wanted: _Spec, sent: float) -> None:
        """Read the lease after a renewal that was refused or got no answer: is it still ours, or even renewed?"""
        lease = await self._get(left=self._until - self.clock.monotonic())
        if lease is None:
            self._lose("lease was deleted")
        elif lease.spec.holder_identity != self.identity:
            self._observe(lease)
            self._lose(f"lease was taken by {lease.spec.holder_identity!r}")
        elif lease.spec.lease_transitions != self.epoch:
            self._observe(lease)
            self._rival_seen = self.clock.monotonic()
            self._lose("lease was taken in our name")
        else:
            self._lease = lease
            self._observe(lease)
            if lease.spec == wanted:
                self._go_on(sent)

    def _go_on(self, sent: float) -> None:
        """It was renewed; too late where it was said meanwhile that this replica does not lead: a term has ended."""
        if self.is_leader():
            self._until = sent + self.renew_deadline

    def _won(self, lease: _Lease, sent: float, *, wait: bool) -> None:
        self._lease = lease
        self._observe(lease)
        self.epoch = lease.spec.lease_transitions or 0
        self._leading = True
        self._until = sent + self.renew_deadline
        self.safe_at = self.clock.monotonic() + (self.client.request_timeout if wait else 0.0)
        log.info("leading", epoch=self.epoch, identity=self.identity)
        self._changes.put_nowait(LeadershipChanged(self.epoch, self.identity, True))

    def _lose(self, why: str) -> None:
        if not self._leading:
            return
        self._leading = False
        self.safe_at = float("inf")
        tell = log.info if why == "released" else log.warning
        tell("leadership_lost", epoch=self.epoch, reason=why)
        self._changes.put_nowait(LeadershipChanged(self.epoch, self.identity, False))

    def _observe(self, lease: _Lease) -> None:
        """Note when the lease was last seen to change; its own times are another machine's and decide nothing."""
        self.last_epoch = max(self.last_epoch, _epoch(lease))
        self.holder = lease.spec.holder_identity or ""
        self.looked_at = self.clock.monotonic()
        whose, _, address = str(_annotations(lease.metadata).get(ADDRESS) or "").rpartition(" ")
        self.holder_address = address if whose == self.holder else ""
        self.has_log = bool(address) and self.holder in ("", whose)
        if lease.spec != self._seen:
            self._seen, self._seen_at = lease.spec, self.clock.monotonic()

    def _free_at(self) -> float:
        """When the lease last seen may be taken."""
        if self._seen is None or not self._seen.holder_identity:
            return self._seen_at
        return self._seen_at + (self._seen.lease_duration_seconds or self.lease_duration)

    def _takes_at(self) -> float:
        """When this replica takes the lease last seen, where nobody renews it."""
        lets_go_first = 0.0 if self.may_stand() else self.lease_duration
        return max(self._free_at() + lets_go_first, self._rests_until)

    def _now(self) -> str:
        return rfc3339(self.clock.wall(), 6)

    def _addressed(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """A Lease's metadata with this replica's address instead of that of the holder before."""
        before = _annotations(metadata)
        others = {name: text for name, text in before.items() if name not in (ADDRESS, POD_NAMESPACE)}
        own = {ADDRESS: f"{self.identity} {self.address}"} if self.address else {}
        if own and self.pod_namespace:
            own[POD_NAMESPACE] = self.pod_namespace
        return {**metadata, "annotations": others | own} if before or own else metadata

    def _spec(self, since: str, epoch: int) -> _Spec:
        return _Spec(self.identity, round(self.lease_duration), since, since, epoch)

    async def _get(self, left: float | None = None) -> _Lease | None:
        try:
            raw = await self._call("GET", f"{self._path}/{self.name}", None, left)
            return decoded(_decoder, raw, "lease")
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def _create(self) -> _Lease:
        wanted = _Lease(self._addressed({}), self._spec(self._now(), self.last_epoch + 1))
        return _written(await self._call("POST", self._path, self._body(wanted)), wanted)

    async def _put(self, lease: _Lease, left: float | None = None) -> _Lease:
        return _written(await self._call("PUT", f"{self._path}/{self.name}", self._body(lease), left), lease)

    def _body(self, lease: _Lease) -> bytes:
        meta = {"name": self.name, "namespace": self.namespace, **lease.metadata}
        meta.pop("managedFields", None)
        return _encode({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": lease.spec})

    async def _call(self, method: str, path: str, body: bytes | None, left: float | None = None) -> bytes:
        """One request that ends, at the latest, when there is nothing left to renew."""
        timeout = self.client.request_timeout if left is None else max(0.05, min(self.client.request_timeout, left))
        return await self.client.request(method, path, body, timeout=timeout, urgency=Urgency.LEASE)


def _epoch(lease: _Lease) -> int:
    """The epoch that a lease says; -1 for a number that elections do not come to."""
    number = lease.spec.lease_transitions or 0
    return number if number <= MOST_EPOCHS else -1


def _annotations(metadata: dict[str, Any]) -> dict[str, Any]:
    found = metadata.get("annotations")
    return found if isinstance(found, dict) else {}


def _written(raw: bytes, wanted: _Lease) -> _Lease:
    """The lease as the server answers that it is now. Raises Malformed where that is not what was written."""
    lease = decoded(_decoder, raw, "lease")
    of, said = wanted.spec, lease.spec
    if (said.holder_identity, said.lease_transitions) != (of.holder_identity, of.lease_transitions):
        raise Malformed(f"lease: the answer to a write is not what was written: {raw[:80]!r}")
    return lease

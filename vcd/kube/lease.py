"""Leader election by a Lease (docs/laws.md, law 4), compatible with client-go's on the same object.

Only this replica's monotonic clock counts, never the times in the Lease. A leader counts from *before* it sent its last
successful renewal and stops ``renew_deadline`` later. A follower counts from when it first *observed* a renewal and
takes over ``lease_duration`` later. So the leader has stopped, and its last request has ended, before a takeover.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import msgspec
import structlog

from vcd.kube.api_errors import ApiError, BadResponse, KubeError, NoResponse, decode
from vcd.kube.asyncio_tasks import run_until_first
from vcd.kube.client import KubeClient
from vcd.kube.clock import SYSTEM_CLOCK, Clock
from vcd.kube.write_limiter import Urgency
from vcd.model.events import LeadershipChanged
from vcd.model.wording import rfc3339

log = structlog.get_logger(__name__)

DEFAULT_NAMESPACE = "volcano-system"
DEFAULT_NAME = "volcano"
ADDRESS = "vcd.volcano.sh/log"
"""Lease annotation: identity and address of the replica whose log can be followed. A holder that does not know the
annotation leaves it in place, so the identity must be compared with the holder's."""
POD_NAMESPACE = "vcd.volcano.sh/pod-namespace"
"""Lease annotation: namespace of that replica's pod, which can differ from the Lease's."""
RELEASED_SECONDS = 1
"""leaseDurationSeconds of a released Lease, as in client-go."""
MAX_EPOCH = 2**30
"""Larger leaseTransitions are ignored as written by mistake: the API server accepts none above 2**31 - 1."""
_RIVAL_DURATIONS = 3
"""Lease durations for which a process with the same identity is remembered, because the two take turns as leader."""
_ATTEMPTS = 3
"""Attempts to release a Lease that was written concurrently, for example by a renewal that was cancelled."""

_encode = msgspec.json.Encoder().encode


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct):
    metadata: dict[str, Any] = {}
    """Written back unchanged, so that a renewal removes no labels or annotations of others."""
    spec: _Spec = msgspec.field(default_factory=_Spec)


_decoder = msgspec.json.Decoder(_Lease, strict=False)


@dataclass(eq=False)
class LeaderElector:
    """Take part in the election for one Lease. All durations are in seconds.

    ``last_epoch`` is the highest known epoch, at first from the log: an epoch is never used twice, even if the Lease is
    deleted. `vcd.daemon.options` checks that the durations allow no two leaders at once.
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
    """Where this replica's log can be followed; empty if it cannot."""
    pod_namespace: str = ""
    """Namespace of this replica's pod; empty if unknown."""
    can_lead: Callable[[], bool] = lambda: True
    """Whether this replica may lead. If not, it lets other replicas go first for one lease duration."""
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        self.epoch = self.last_epoch
        self.safe_at = float("inf")
        self.holder = ""
        self.holder_address = ""
        """Where the log of the last observed holder can be followed; empty if it cannot."""
        self.has_log = False
        """Whether the current holder, or the last one before a release, published its log."""
        self.observed_at = 0.0
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"
        self._leading = False
        self._leads_until = 0.0
        self._lease: _Lease | None = None
        self._last_spec: _Spec | None = None
        self._changed_at = 0.0
        self._abstains_until = 0.0
        self._rival_seen_at = -math.inf
        """When another process last held the Lease under this replica's identity."""
        self._must_release = False
        self._wake = asyncio.Event()
        """Set to read the Lease before the next attempt is due."""
        self._changes: asyncio.Queue[LeadershipChanged] = asyncio.Queue()

    def is_leader(self) -> bool:
        """Return whether this replica leads now, by the clock: a process resumed after suspension is no leader."""
        return self._leading and self.clock.monotonic() < self._leads_until

    def is_leader_in(self, epoch: int) -> bool:
        """Return whether this replica still leads under ``epoch``."""
        return epoch == self.epoch and self.is_leader()

    def has_rival(self) -> bool:
        """Return whether another process recently held the Lease under this replica's identity."""
        return self.clock.monotonic() - self._rival_seen_at < _RIVAL_DURATIONS * self.lease_duration

    async def wait_until_safe(self) -> bool:
        """Wait until no request of the previous leader can be in flight; return False if leadership was lost."""
        epoch = self.epoch
        if self.safe_at > self.clock.monotonic() and self._leading:
            await self.clock.sleep(self.safe_at - self.clock.monotonic())
        return self.is_leader_in(epoch)

    async def changes(self) -> AsyncIterator[LeadershipChanged]:
        """Yield each gain and loss of leadership, in order."""
        while True:
            yield await self._changes.get()

    async def run(self) -> None:
        """Take part in the election until cancelled. The Lease stays held after that: call ``release``."""
        while True:
            if self._leading:
                await self._renew_round()
            else:
                await self.release_if_held()
                await self._acquire_round()

    def check_now(self) -> None:
        """Read the Lease now, unless this replica leads."""
        self._wake.set()

    def step_down(self, why: str, pause: float) -> None:
        """Stop leading, and stay out of the election for ``pause`` seconds.

        The Lease is released once no request sent under it can be in flight.
        """
        if self._leading:
            self._end_term(why)
            self._must_release = True
            self._abstains_until = self.clock.monotonic() + self.client.request_timeout + pause

    @property
    def abstains_until(self) -> float:
        """Monotonic seconds until which this replica stays out of the election."""
        return self._abstains_until

    def abstain_until(self, moment: float) -> None:
        """Stay out of the election until ``moment`` (monotonic seconds)."""
        self._abstains_until = moment

    async def release_if_held(self) -> None:
        """Release a Lease still held after ``step_down``, if ``run`` ended before it did so."""
        if self._must_release:
            await self.clock.sleep(self.client.request_timeout)
            await self._release_lease()
            self._must_release = False

    async def release(self, *, cut_off: bool = False) -> None:
        """Stop leading and release the Lease, so that another replica can take over at once.

        Call it after ``run`` was cancelled and all requests under the Lease have ended, or with ``cut_off`` to wait
        until cancelled requests cannot take effect. Failures are only logged: the Lease expires then.
        """
        # not `is_leader`: past the deadline the Lease is released, too, if it is still this replica's
        led = self._leading
        self._end_term("released")
        if led and not cut_off:
            await self._release_lease()
        else:
            self._must_release |= led
            await self.release_if_held()

    async def _release_lease(self) -> None:
        lease = self._lease
        try:
            for left in reversed(range(_ATTEMPTS)):
                if lease is None or not self._is_of_this_term(lease):
                    return
                try:
                    self._observe(await self._put(self._released_lease(lease)))
                    return
                except ApiError as error:
                    if error.status != 409 or not left:
                        raise
                lease = await self._get()
        except KubeError as error:
            log.warning("lease_not_released", error=str(error))

    def _is_of_this_term(self, lease: _Lease) -> bool:
        """Return whether the Lease is this replica's; another process can use the same identity."""
        return lease.spec.holder_identity == self.identity and lease.spec.lease_transitions == self.epoch

    def _released_lease(self, lease: _Lease) -> _Lease:
        spec = _Spec("", RELEASED_SECONDS, self._now(), self._now(), lease.spec.lease_transitions)
        return _Lease(lease.metadata, spec)

    async def _acquire_round(self) -> None:
        self._wake.clear()
        pause = self.retry_period
        try:
            if not await self._try_acquire():
                # try as soon as it expires, so that a takeover takes at most lease duration plus retry period
                pause = min(pause, self._acquires_at() - self.clock.monotonic())
        except KubeError as error:
            if isinstance(error, ApiError) and error.status == 409:
                log.info("lease_taken_by_another")
            else:
                self.client.log_failure(log, "lease_not_reached", error)
        await run_until_first(self.clock.sleep(max(pause, 0.05)), self._wake.wait())

    async def _try_acquire(self) -> bool:
        sent = self.clock.monotonic()
        lease = await self._get()
        if lease is not None:
            self._observe(lease)
        own = self._last_spec is not None and self._last_spec.holder_identity == self.identity
        if self.clock.monotonic() < (self._abstains_until if own else self._acquires_at()):
            return False  # also if the Lease was deleted, because its holder may not have noticed and may still write
        if lease is None:
            fresh = self._last_spec is None
            self._begin_term(await self._create(), sent, wait=not fresh)
            return True
        released = not lease.spec.holder_identity and lease.spec.lease_duration_seconds == RELEASED_SECONDS
        if _epoch(lease) < 0:
            log.warning("lease_transitions_ignored", found=lease.spec.lease_transitions, most=MAX_EPOCH)
        sent = self.clock.monotonic()
        wanted = _Lease(self._with_address(lease.metadata), self._spec(self._now(), self.last_epoch + 1))
        self._begin_term(await self._put(wanted), sent, wait=not released)
        return True

    async def _renew_round(self) -> None:
        if not self.is_leader():
            self._end_term("renew deadline passed")
            return
        sent = self.clock.monotonic()
        try:
            await self._renew(sent)
        except KubeError as error:
            self.client.log_failure(log, "lease_not_renewed", error, seconds_left=round(self._leads_until - sent, 3))
        if self._leading:
            left = max(0.0, self._leads_until - self.clock.monotonic())
            renewed = self._leads_until == sent + self.renew_deadline
            # retry a failed renewal more often as the deadline approaches; wake at the deadline to end the term
            await self.clock.sleep(min(self.retry_period, left if renewed else max(0.1, left / 4), left))

    async def _renew(self, sent: float) -> None:
        lease = self._lease
        if lease is None:
            raise RuntimeError("leading without a lease")
        spec = msgspec.structs.replace(lease.spec, renew_time=self._now())
        try:
            self._lease = await self._put(_Lease(lease.metadata, spec), left=self._leads_until - sent)
            self._observe(self._lease)
            self._extend_term(sent)
            return
        except ApiError as error:
            if error.status not in (404, 409):
                raise
        except NoResponse:
            pass  # it may have been written; then our copy is outdated, and a conflict would not mean a lost Lease
        await self._reread(spec, sent)

    async def _reread(self, wanted: _Spec, sent: float) -> None:
        """After a failed renewal, read the Lease: it may be lost, still held, or even renewed."""
        lease = await self._get(left=self._leads_until - self.clock.monotonic())
        if lease is None:
            self._end_term("lease was deleted")
        elif lease.spec.holder_identity != self.identity:
            self._observe(lease)
            self._end_term(f"lease was taken by {lease.spec.holder_identity!r}")
        elif lease.spec.lease_transitions != self.epoch:
            self._observe(lease)
            self._rival_seen_at = self.clock.monotonic()
            self._end_term("another process took the lease with this identity")
        else:
            self._lease = lease
            self._observe(lease)
            if lease.spec == wanted:
                self._extend_term(sent)

    def _extend_term(self, sent: float) -> None:
        if self.is_leader():
            self._leads_until = sent + self.renew_deadline

    def _begin_term(self, lease: _Lease, sent: float, *, wait: bool) -> None:
        self._lease = lease
        self._observe(lease)
        self.epoch = lease.spec.lease_transitions or 0
        self._leading = True
        self._leads_until = sent + self.renew_deadline
        self.safe_at = self.clock.monotonic() + (self.client.request_timeout if wait else 0.0)
        log.info("leadership_won", epoch=self.epoch, identity=self.identity)
        self._changes.put_nowait(LeadershipChanged(self.epoch, self.identity, True))

    def _end_term(self, why: str) -> None:
        if not self._leading:
            return
        self._leading = False
        self.safe_at = float("inf")
        write = log.info if why == "released" else log.warning
        write("leadership_lost", epoch=self.epoch, reason=why)
        self._changes.put_nowait(LeadershipChanged(self.epoch, self.identity, False))

    def _observe(self, lease: _Lease) -> None:
        self.last_epoch = max(self.last_epoch, _epoch(lease))
        self.holder = lease.spec.holder_identity or ""
        self.observed_at = self.clock.monotonic()
        whose, _, address = str(_annotations(lease.metadata).get(ADDRESS) or "").rpartition(" ")
        self.holder_address = address if whose == self.holder else ""
        self.has_log = bool(address) and self.holder in ("", whose)
        if lease.spec != self._last_spec:
            self._last_spec, self._changed_at = lease.spec, self.clock.monotonic()

    def _expires_at(self) -> float:
        if self._last_spec is None or not self._last_spec.holder_identity:
            return self._changed_at
        return self._changed_at + (self._last_spec.lease_duration_seconds or self.lease_duration)

    def _acquires_at(self) -> float:
        delay = 0.0 if self.can_lead() else self.lease_duration
        return max(self._expires_at() + delay, self._abstains_until)

    def _now(self) -> str:
        return rfc3339(self.clock.wall(), 6)

    def _with_address(self, metadata: dict[str, Any]) -> dict[str, Any]:
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
            return decode(_decoder, raw, "lease")
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def _create(self) -> _Lease:
        wanted = _Lease(self._with_address({}), self._spec(self._now(), self.last_epoch + 1))
        return _decode_written(await self._call("POST", self._path, self._body(wanted)), wanted)

    async def _put(self, lease: _Lease, left: float | None = None) -> _Lease:
        return _decode_written(await self._call("PUT", f"{self._path}/{self.name}", self._body(lease), left), lease)

    def _body(self, lease: _Lease) -> bytes:
        meta = {"name": self.name, "namespace": self.namespace, **lease.metadata}
        meta.pop("managedFields", None)
        return _encode({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": lease.spec})

    async def _call(self, method: str, path: str, body: bytes | None, left: float | None = None) -> bytes:
        timeout = self.client.request_timeout if left is None else max(0.05, min(self.client.request_timeout, left))
        return await self.client.request(method, path, body, timeout=timeout, urgency=Urgency.LEASE)


def _epoch(lease: _Lease) -> int:
    number = lease.spec.lease_transitions or 0
    return number if number <= MAX_EPOCH else -1


def _annotations(metadata: dict[str, Any]) -> dict[str, Any]:
    found = metadata.get("annotations")
    return found if isinstance(found, dict) else {}


def _decode_written(raw: bytes, wanted: _Lease) -> _Lease:
    """Decode the response to a write. Raises BadResponse if it is not the Lease that was written."""
    lease = decode(_decoder, raw, "lease")
    sent, written = wanted.spec, lease.spec
    if (written.holder_identity, written.lease_transitions) != (sent.holder_identity, sent.lease_transitions):
        raise BadResponse(f"lease: the answer to a write is not what was written: {raw[:80]!r}")
    return lease

"""Planted bugs of vcd/kube: calls and their fences, watches, statuses, the Lease."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tests.simulation.mutants import replaces
from vcd.kube.api_errors import ApiError, KubeError, LeadershipLost
from vcd.kube.client import Body, KubeClient, pause_after
from vcd.kube.clock import Backoff, SystemClock
from vcd.kube.committer import Committer, Outcome, _Bind, _Call
from vcd.kube.kube_connection import Credentials
from vcd.kube.lease import LeaderElector, _Lease, _Spec
from vcd.kube.status_writer import StatusWriter
from vcd.kube.watcher import Watcher
from vcd.kube.write_limiter import WriteLimiter
from vcd.model.events import Event, KindListed, ObjectGone, Operation

# --- fences ---------------------------------------------------------------------------------------------------------

_make_bind, _send_request = _Bind.make, KubeClient._send


class _Unfenced(KubeClient):
    """The calls of a client, without their fences."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def request(self, method: str, path: str, body: Body | None = None, **options: Any) -> bytes:
        return await self._client.request(method, path, body, **{**options, "fence": None})


@replaces(_Bind.make, found_by="written by who leads")
async def bind_unfenced(self: _Bind, client: KubeClient, fence: Callable[[], bool]) -> None:
    """A replica that lost the Lease goes on binding pods while another one leads."""
    await _make_bind(self, _Unfenced(client), fence)


@replaces(KubeClient._send, found_by="written by who leads")
async def fence_not_asked_when_sent(
    self: KubeClient,
    method: str,
    path: str,
    body: Body | None,
    content_type: str,
    timeout: float,
    fence: Callable[[], bool] | None,
) -> bytes:
    """A call that waited for its connection while the Lease was lost is sent all the same."""
    if fence is not None and not fence():
        raise LeadershipLost
    return await _send_request(self, method, path, body, content_type, timeout, None)


@replaces(LeaderElector.is_leader_in, found_by="written by who leads")
def fence_ignores_epoch(self: LeaderElector, epoch: int) -> bool:
    """Decisions of an earlier term are carried out in a later one, from an old picture of the cluster."""
    return self.is_leader()


# --- binds and evictions --------------------------------------------------------------------------------------------

_attempt, _perform = Committer._attempt, Committer._perform


@replaces(_Bind.make, found_by="intended first")
async def binding_without_uid(self: _Bind, client: KubeClient, fence: Callable[[], bool]) -> None:
    """A pod that was created again under its name gets the node that was chosen for its predecessor."""
    await _make_bind(_Bind(msgspec.structs.replace(self.operation, uid="")), client, fence)


@replaces(Committer._attempt, found_by="outcomes are true")
async def conflict_is_success(self: Committer, call: _Call, fence: Callable[[], bool]) -> Outcome:
    """A bind that the server refused is reported as done: the pod waits, and its resources stay reserved."""
    outcome = await _attempt(self, call, fence)
    return Outcome("done") if outcome.result == "conflict" else outcome


@replaces(Committer._perform, found_by="nothing fails unseen")
async def commit_fails_unseen(self: Committer, operation: Operation, fence: Callable[[], bool]) -> Outcome:
    """An error in one operation ends the commit of its session, and only the program's output says so."""
    outcome = await _perform(self, operation, fence)
    if outcome.result not in ("done", "gone"):
        raise LookupError(outcome.detail)
    return outcome


# --- calls ----------------------------------------------------------------------------------------------------------


@replaces(pause_after, found_by="Retry-After is kept")
def retry_after_ignored(error: KubeError, backoff: Backoff) -> float:
    """A server that sheds load with Retry-After is called again at once by its scheduler."""
    operations = error.retry_after if isinstance(error, ApiError) else None
    return min(backoff.next(), operations or 30.0)


@replaces(WriteLimiter._take_token, found_by="calls are bounded")
def writes_without_rate(self: WriteLimiter) -> bool:
    """A scheduler with thousands of pods to place floods the API server, whatever its rate is."""
    return True


_refresh = Credentials.refresh


@replaces(Credentials.refresh, found_by="one leader")
async def token_never_read_again(self: Credentials, *, refused: bool = False, timeout: float | None = None) -> bool:
    """An hour after its start, when the kubelet has renewed its token, every call of a scheduler is refused."""
    return False if self.headers else await _refresh(self, refused=refused, timeout=timeout)


# --- watches --------------------------------------------------------------------------------------------------------

_may_resume, _emit, _apply_lines = Watcher._may_resume, Watcher._emit, Watcher._apply_lines


@replaces(Watcher._may_resume, found_by="state is the server's")
def no_list_after_410(self: Watcher, error: Exception) -> bool:
    """Once its version is compacted a kind is never read again: decisions follow a frozen picture."""
    return (isinstance(error, ApiError) and error.status == 410) or _may_resume(self, error)


@replaces(Watcher._emit, found_by="state is the server's")
async def ghosts_after_a_list(self: Watcher, batch: Sequence[Event]) -> None:
    """Objects that were deleted while nothing watched them stay for ever, and hold their resources."""
    is_list = any(isinstance(event, KindListed) for event in batch)
    await _emit(self, [event for event in batch if not (is_list and isinstance(event, ObjectGone))])


@replaces(Watcher._apply_lines, found_by="watches go on")
async def watch_goes_back(self: Watcher, lines: list[bytes]) -> None:
    """Each reconnect applies old events over new ones: pods lose their nodes, and their resources go to other pods."""
    version = self._version
    await _apply_lines(self, lines)
    self._version = version


@replaces(Watcher._emit, found_by="state is the server's")
async def listed_past_a_watch(self: Watcher, batch: Sequence[Event]) -> None:
    """A list that begins while a change is being logged misses it: an object that changed back stays as changed."""
    if batch:
        try:
            await self.sink(batch)
        except Exception as error:
            self._sink_failure = error
            raise
    await _emit(self, ())


@replaces(Watcher._retry, found_by="all come up")
async def first_list_once(self: Watcher, error: KubeError, *, is_new: bool = True) -> None:
    """A kind whose first list failed is never listed again: its replica can never take over."""
    await self.clock.sleep(pause_after(error, self._backoff) if self._version else 1e9)


# --- statuses -------------------------------------------------------------------------------------------------------

_should_retry = StatusWriter._should_retry


@replaces(StatusWriter.retry_unwritten, found_by="what failed is tried again")
def refused_twice_forgotten(self: StatusWriter) -> None:
    """A condition that a webhook denies for a while is never written, and no autoscaler reacts to its pod."""


@replaces(StatusWriter._should_retry, found_by="conflicts are read anew")
def status_kept_after_conflict(self: StatusWriter, target: tuple[str, str], error: KubeError) -> bool:
    """A group whose status another client changed keeps its old phase: each attempt names the same old version."""
    kind, key = target
    group = self._groups.get(key)
    again = _should_retry(self, target, error)
    if kind == "PodGroup" and group is not None:
        self._groups.set(key, group)
    return again


# --- the Lease ------------------------------------------------------------------------------------------------------

_begin_term = LeaderElector._begin_term


@replaces(SystemClock.monotonic, found_by="decided by who leads")
def monotonic_is_wall(self: SystemClock) -> float:
    """The Lease is measured on the wall clock: if the clock is set back, two replicas lead."""
    return time.time()


@replaces(LeaderElector.is_leader, found_by="written by who leads")
def deadline_not_kept(self: LeaderElector) -> bool:
    """A leader that cannot renew goes on leading while another one is elected."""
    return self._leading


@replaces(LeaderElector._begin_term, found_by="a new leader waits")
def new_leader_does_not_wait(self: LeaderElector, lease: _Lease, sent: float, *, wait: bool) -> None:
    """Calls of a former leader, whose Lease was deleted, arrive after the new one has listed: nodes get too much."""
    _begin_term(self, lease, sent, wait=False)


@replaces(LeaderElector._spec, found_by="an epoch is one term")
def epoch_reused(self: LeaderElector, since: str, epoch: int) -> _Spec:
    """Two leaders have one epoch, and neither logs nor fences can distinguish them."""
    return _Spec(self.identity, round(self.lease_duration), since, since, max(0, epoch - 1))

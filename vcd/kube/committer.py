"""Carry out a decided session: send binds and evictions to the API server and report each outcome as an event.

An operation is repeated only if it is known not to have happened. After a time-out, a lost connection or a 5xx the pod
is read first, as often as it takes. Every request is fenced by the session's epoch (docs/laws.md, laws 3 and 4). How
long a pod backs off after a refusal is decided elsewhere (``vcd/state/backoff.py``).
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import Callable
from functools import partial

import msgspec
import structlog

from vcd.kube.api_errors import ApiError, BadResponse, KubeError, LeadershipLost, NoResponse, decode, is_final
from vcd.kube.client import STRATEGIC_PATCH, KubeClient, pause_after
from vcd.kube.clock import SYSTEM_CLOCK, SYSTEM_RANDOM, Backoff, Clock, Random
from vcd.kube.event_recorder import EventRecorder
from vcd.kube.status_writer import StatusWriter
from vcd.kube.volume_binder import BIND_TIMEOUT, VolumeBinder, VolumeError
from vcd.kube.watcher import Sink
from vcd.model.events import Event, Operation, OperationDone, Plan, Result, SessionDecided
from vcd.model.kinds import KINDS
from vcd.model.objects import Condition, Named
from vcd.model.wording import rfc3339

log = structlog.get_logger(__name__)

POD = KINDS["Pod"]
UNSCHEDULABLE_REASON = "SchedulerError"
QUEUE_GATE = "scheduling.volcano.sh/queue-allocation-gate"
"""The scheduling gate that Volcano's webhook adds and the scheduler removes."""
_ATTEMPTS = 5
"""Attempts per operation; reading the pod does not count."""

Fence = Callable[[int], bool]
"""Returns whether this replica holds the Lease under the given epoch."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of an operation; fields as in ``OperationDone``."""

    result: Result
    detail: str = ""
    is_outage: bool = False


DONE = Outcome("done")


class _Answer(msgspec.Struct):
    """The response to a write: a Status, or the object after the write."""

    kind: str = ""
    status: msgspec.Raw = msgspec.Raw(b"null")


class _Meta(msgspec.Struct):
    uid: str = ""
    deletion_timestamp: str | None = msgspec.field(name="deletionTimestamp", default=None)


class _Spec(msgspec.Struct):
    node_name: str = msgspec.field(name="nodeName", default="")
    scheduling_gates: tuple[Named, ...] = msgspec.field(name="schedulingGates", default=())


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)


_answer_decoder = msgspec.json.Decoder(_Answer)
_pod_decoder = msgspec.json.Decoder(_Pod)
_encode = msgspec.json.Encoder().encode


@dataclasses.dataclass(eq=False)
class Committer:
    """Carry out sessions and report outcomes through ``sink``.

    Args:
        concurrency: Operations in progress per session. It exceeds the client's limit of writes in flight, so that
            binds are always queued there, ahead of Events.
        bind_timeout: Seconds that a pod's volumes may take to bind.
    """

    client: KubeClient
    sink: Sink
    fence: Fence
    recorder: EventRecorder
    conditions: StatusWriter
    _: dataclasses.KW_ONLY
    concurrency: int = 128
    bind_timeout: dataclasses.InitVar[float] = BIND_TIMEOUT
    clock: Clock = SYSTEM_CLOCK
    rand: Random = SYSTEM_RANDOM

    def __post_init__(self, bind_timeout: float) -> None:
        self._volumes = VolumeBinder(
            self.client, timeout=bind_timeout, concurrency=self.concurrency, clock=self.clock, rand=self.rand
        )

    async def commit(self, record: SessionDecided, plan: Plan) -> None:
        """Carry out every statement that is not stale; return when the sink has accepted each operation's outcome.

        Pipelined operations only reserve resources in the state: they need no request and have no outcome. Raises an
        ExceptionGroup of what the sink raises.
        """
        operations = _operations_to_perform(record, plan)
        work = deque(each for each in operations if not each[2].volumes)
        outcomes: asyncio.Queue[Event | None] = asyncio.Queue()
        fence = partial(self.fence, record.epoch)

        async def carry_out(statement: int, index: int, operation: Operation) -> None:
            outcome = await self._perform(operation, fence)
            is_refused = outcome.result not in ("done", "unknown") and fence()
            refused_at = self.clock.wall() if is_refused else 0
            result = (outcome.result, outcome.detail, refused_at, outcome.is_outage)
            outcomes.put_nowait(OperationDone(record.session, statement, index, *result))

        async def worker() -> None:
            while work:
                await carry_out(*work.popleft())

        async with asyncio.TaskGroup() as group:
            flusher = group.create_task(_forward_outcomes(outcomes, self.sink))
            workers = [group.create_task(worker()) for _ in range(min(self.concurrency, len(work)))]
            # a pod can wait minutes for its volumes, so these operations occupy no worker
            workers += [group.create_task(carry_out(*each)) for each in operations if each[2].volumes]
            if workers:
                await asyncio.wait(workers)
            outcomes.put_nowait(None)
            await flusher

    async def look_up(self, operation: Operation, fence: Callable[[], bool]) -> Outcome | None:
        """Return the outcome of an earlier operation from its pod; None if it did not happen. Raises KubeError."""
        call = self._call_for(operation)
        if isinstance(call, _Evict):
            call.has_deleted = True
        return await self._read_outcome(call, fence)

    async def _perform(self, operation: Operation, fence: Callable[[], bool]) -> Outcome:
        call = self._call_for(operation)
        try:
            outcome = await self._bind_volumes(call, fence) if operation.volumes else None
            outcome = outcome or await self._attempt(call, fence)
            self._report_to_owner(operation, outcome, fence)
        except Exception as error:  # a defect of vcd must not affect the session's other pods
            log.error("operation_raised", verb=operation.verb, pod=operation.key, error=repr(error), exc_info=True)
            outcome = await self._outcome_after_defect(call, fence, f"a defect of vcd: {error!r}")
        return outcome

    async def _outcome_after_defect(self, call: _Call, fence: Callable[[], bool], detail: str) -> Outcome:
        try:
            return await self._resolve_doubt(call, fence) or Outcome("failed", detail)
        except Exception:  # likely the same defect: the outcome remains "unknown", and the next leader looks it up
            log.exception("outcome_not_found", pod=call.operation.key)
            return Outcome("unknown", detail)

    def _call_for(self, operation: Operation) -> _Call:
        if operation.verb == "bind":
            return _Bind(operation)
        return _Ungate(operation) if operation.verb == "ungate" else _Evict(operation, self.clock)

    async def _bind_volumes(self, call: _Call, fence: Callable[[], bool]) -> Outcome | None:
        async def check_pod() -> None:
            outcome = await self._read_outcome(call, fence)
            if outcome is not None:
                raise VolumeError(outcome.result, outcome.detail)

        try:
            await self._volumes.bind(call.operation, fence, check_pod)
        except VolumeError as error:
            return Outcome(error.result, error.detail)
        except LeadershipLost as error:
            return Outcome("failed", str(error))
        return None

    async def _attempt(self, call: _Call, fence: Callable[[], bool]) -> Outcome:
        """Repeat a call until its outcome is known, reading the pod first whenever the outcome is in doubt."""
        backoff = Backoff(0.1, 5.0, self.rand)
        in_doubt = was_in_doubt = False
        problem: KubeError = BadResponse("not tried")
        for attempt in range(_ATTEMPTS):
            try:
                in_doubt = False
                await call.make(self.client, fence)
                return DONE
            except LeadershipLost as error:
                # an earlier attempt that timed out in a gateway may still reach the server
                return Outcome("unknown" if was_in_doubt else "failed", str(error))
            except ApiError as error:
                problem = error
                if is_final(error):
                    break
                in_doubt = error.status >= 500
            except NoResponse as error:
                problem, in_doubt = error, error.sent
            except BadResponse as error:  # a proxy may have replied, so the outcome is unknown
                problem, in_doubt = error, True
            was_in_doubt = was_in_doubt or in_doubt
            if in_doubt or attempt + 1 < _ATTEMPTS:
                await self.clock.sleep(pause_after(problem, backoff))
            if in_doubt:
                outcome = await self._resolve_doubt(call, fence)
                if outcome is not None:
                    return outcome
        if was_in_doubt and not in_doubt:  # an earlier attempt may have succeeded late and caused this 409
            outcome = await self._resolve_doubt(call, fence)
            if outcome is not None:
                return outcome
        result = _RESULT_BY_STATUS.get(problem.status, "failed") if isinstance(problem, ApiError) else "failed"
        return Outcome(result, str(problem), is_outage=not is_final(problem))

    async def _resolve_doubt(self, call: _Call, fence: Callable[[], bool]) -> Outcome | None:
        """Read the pod until the outcome is clear; None if the operation did not happen."""
        backoff = Backoff(0.1, 5.0, self.rand)
        while True:
            try:
                return await self._read_outcome(call, fence)
            except LeadershipLost as error:
                return Outcome("unknown", str(error))
            except KubeError as error:
                pause = pause_after(error, backoff)
                log.warning("outcome_in_doubt", pod=call.operation.key, error=str(error), retry_in=round(pause, 3))
                await self.clock.sleep(pause)

    async def _read_outcome(self, call: _Call, fence: Callable[[], bool]) -> Outcome | None:
        """Return the outcome according to the pod; None if the operation did not happen."""
        try:
            raw = await self.client.request("GET", POD.object_path(call.operation.key), fence=fence)
        except ApiError as error:
            if error.status != 404:
                raise
            return call.outcome_for(None)
        pod = decode(_pod_decoder, raw, f"pod {call.operation.key}")
        return call.outcome_for(pod if pod.metadata.uid == call.operation.uid else None)

    def _report_to_owner(self, operation: Operation, outcome: Outcome, fence: Callable[[], bool]) -> None:
        key, uid = operation.key, operation.uid
        if outcome.result == "done":
            if operation.verb == "bind":
                message = f"Successfully assigned {key} to {operation.node}"
                self.recorder.record("Pod", key, uid, "Normal", "Scheduled", message)
            elif operation.verb == "evict":
                self.recorder.record("Pod", key, uid, "Warning", "Evict", _evict_message(operation))
        if outcome.result in ("done", "gone"):
            return
        log.warning(
            "operation_not_done", verb=operation.verb, pod=key, node=operation.node, **dataclasses.asdict(outcome)
        )
        if operation.verb == "bind" and fence():  # after a lost term, the next leader reports why the pod is pending
            message = f"failed to bind to node {operation.node}: {outcome.detail}"
            condition = Condition("PodScheduled", "False", UNSCHEDULABLE_REASON, message)
            self.conditions.submit_pod_condition(key, uid, condition)


def _operations_to_perform(record: SessionDecided, plan: Plan) -> list[tuple[int, int, Operation]]:
    stale = {index for index, _ in record.stale}
    return [
        (statement, index, operation)
        for statement, each in enumerate(plan.statements)
        for index, operation in enumerate(each.operations)
        if statement not in stale and operation.verb != "pipeline"
    ]


_RESULT_BY_STATUS: dict[int, Result] = {404: "gone", 409: "conflict"}


def _evict_message(operation: Operation) -> str:
    return f"Pod is evicted, because of {operation.reason}"


@dataclasses.dataclass
class _Call:
    operation: Operation

    async def make(self, client: KubeClient, fence: Callable[[], bool]) -> None:
        """Send the requests that did not succeed yet."""
        raise NotImplementedError

    def outcome_for(self, pod: _Pod | None) -> Outcome | None:
        """Return the outcome for a pod (None: the pod is gone); None if the operation did not happen."""
        raise NotImplementedError


class _Bind(_Call):
    """POST to ``pods/binding``. The UID makes the server refuse a recreated pod of the same name."""

    async def make(self, client: KubeClient, fence: Callable[[], bool]) -> None:
        operation = self.operation
        namespace, _, name = operation.key.partition("/")
        body = _encode(
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "uid": operation.uid,
                    **({"annotations": operation.annotations} if operation.annotations else {}),
                },
                "target": {"apiVersion": "v1", "kind": "Node", "name": operation.node},
            }
        )
        raw = await client.request("POST", f"{POD.object_path(operation.key)}/binding", body, fence=fence)
        if not _is_success(raw, "binding"):
            raise BadResponse(f"binding of {operation.key}: the answer is no Status of success: {raw[:80]!r}")

    def outcome_for(self, pod: _Pod | None) -> Outcome | None:
        if pod is None:
            return Outcome("gone", "the pod was deleted")
        if pod.spec.node_name == self.operation.node:
            return DONE
        if pod.spec.node_name:
            return Outcome("conflict", f"already assigned to node {pod.spec.node_name}")
        if pod.metadata.deletion_timestamp:
            return Outcome("gone", "the pod is being deleted")
        return None


class _Ungate(_Call):
    """PATCH the queue gate out of the pod's scheduling gates, with the UID as precondition."""

    async def make(self, client: KubeClient, fence: Callable[[], bool]) -> None:
        gates = [{"name": QUEUE_GATE, "$patch": "delete"}]
        body = _encode({"metadata": {"uid": self.operation.uid}, "spec": {"schedulingGates": gates}})
        path = POD.object_path(self.operation.key)
        try:
            raw = await client.request("PATCH", path, body, content_type=STRATEGIC_PATCH, fence=fence)
        except ApiError as error:
            raise _as_conflict(error) from error
        if not _is_pod(raw, self.operation.uid):
            raise BadResponse(f"change of {self.operation.key}: the answer is not the pod: {raw[:80]!r}")

    def outcome_for(self, pod: _Pod | None) -> Outcome | None:
        if pod is None:
            return Outcome("gone", "the pod was deleted")
        if all(gate.name != QUEUE_GATE for gate in pod.spec.scheduling_gates):
            return DONE
        return Outcome("gone", "the pod is being deleted") if pod.metadata.deletion_timestamp else None


def _as_conflict(error: ApiError) -> ApiError:
    """Return a conflict for the 422 with which a PATCH rejects another UID."""
    return ApiError(409, "Conflict", error.message) if error.status == 422 else error


@dataclasses.dataclass
class _Evict(_Call):
    """PATCH conditions with the reason, then DELETE with the UID as precondition, as Volcano's evictor does."""

    clock: Clock
    has_marked: bool = False
    has_deleted: bool = False

    async def make(self, client: KubeClient, fence: Callable[[], bool]) -> None:
        path = POD.object_path(self.operation.key)
        if not self.has_marked:
            try:
                body = self._conditions_patch()
                await client.request("PATCH", f"{path}/status", body, content_type=STRATEGIC_PATCH, fence=fence)
            except ApiError as error:
                raise _as_conflict(error) from error
            self.has_marked = True
        self.has_deleted = True
        preconditions = {"uid": self.operation.uid}
        body = _encode({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions})
        raw = await client.request("DELETE", path, body, fence=fence)
        if not _is_success(raw, "deletion") and not _is_pod(raw, self.operation.uid):
            raise BadResponse(f"deletion of {self.operation.key}: the answer is neither Status nor pod: {raw[:80]!r}")

    def outcome_for(self, pod: _Pod | None) -> Outcome | None:
        if pod is None and not self.has_deleted:
            return Outcome("gone", "the pod was deleted")
        return DONE if pod is None or pod.metadata.deletion_timestamp else None

    def _conditions_patch(self) -> bytes:
        since = rfc3339(self.clock.wall())
        ready = Condition("Ready", "False", "Evict", _evict_message(self.operation), since)
        target = Condition("DisruptionTarget", "True", "PreemptionByScheduler", _evict_message(self.operation), since)
        # the UID in a patch is a precondition: the server refuses another pod of that name
        return _encode({"metadata": {"uid": self.operation.uid}, "status": {"conditions": [ready, target]}})


def _is_success(raw: bytes, what: str) -> bool:
    answer = decode(_answer_decoder, raw, what)
    return answer.kind == "Status" and bytes(answer.status) == b'"Success"'


def _is_pod(raw: bytes, uid: str) -> bool:
    return decode(_pod_decoder, raw, "pod").metadata.uid == uid


async def _forward_outcomes(outcomes: asyncio.Queue[Event | None], sink: Sink) -> None:
    batch: list[Event | None] = []
    while None not in batch:
        batch = [await outcomes.get()]
        while not outcomes.empty():
            batch.append(outcomes.get_nowait())
        if events := [each for each in batch if each is not None]:
            await sink(events)

"""Doing what a session intends: binds and evictions as API calls, and what became of each as an event.

An operation is tried again only while it is known not to have happened: after a time-out, a lost connection or a
server error the pod is looked at first, until it can be seen. Every call is fenced by the session's epoch
(docs/laws.md, laws 3 and 4). An outcome is reported at once; how long a refused pod backs off is the state's matter
(``vcd/state/backoff.py``).
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import Callable
from functools import partial

import msgspec
import structlog

from vcd.kube.client import STRATEGIC_PATCH, KubeClient, pause_after
from vcd.kube.clock import SYSTEM_CLOCK, SYSTEM_RANDOM, Backoff, Clock, Random
from vcd.kube.errors import ApiError, Fenced, KubeError, Malformed, Unanswered, decoded, is_final
from vcd.kube.recorder import Recorder
from vcd.kube.status import StatusWriter
from vcd.kube.volumes import BIND_TIMEOUT, NotBound, VolumeBinder
from vcd.kube.watcher import Sink
from vcd.model.events import Event, Operation, OperationDone, Plan, Result, SessionDecided
from vcd.model.kinds import KINDS
from vcd.model.objects import Condition, Named
from vcd.model.words import rfc3339

log = structlog.get_logger(__name__)

POD = KINDS["Pod"]
UNSCHEDULABLE_REASON = "SchedulerError"
QUEUE_GATE = "scheduling.volcano.sh/queue-allocation-gate"
"""The scheduling gate that Volcano's webhook sets, and the scheduler lifts."""
_ATTEMPTS = 5
"""Calls for one operation at most, the looks at what became of it not counted."""

Fence = Callable[[int], bool]
"""Whether this replica still holds the Lease under the given epoch."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of an operation."""

    result: Result
    detail: str = ""
    is_outage: bool = False
    """As in ``OperationDone``."""


DONE = Outcome("done")


class _Answer(msgspec.Struct):
    """What a write is answered with: a Status, or the object as it is now."""

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
    """Makes the calls of decided sessions and reports their outcomes through ``sink``.

    ``concurrency`` bounds the operations of one session under way at once: more than the client's admission lets in, so
    that the next one waits there already and no Event takes its place. A bind that has volumes to bind before waits for
    them beside those, for ``bind_timeout`` seconds at most.
    """

    client: KubeClient
    sink: Sink
    fence: Fence
    recorder: Recorder
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
        """Carry out every statement that is not stale; return when each operation's outcome went through the sink.

        Pipelined operations hold room in the state alone: they make no call and have no outcome.
        Raises an ExceptionGroup of what the sink raises.
        """
        wanted = _wanted(record, plan)
        work = deque(each for each in wanted if not each[2].volumes)
        outcomes: asyncio.Queue[Event | None] = asyncio.Queue()
        fence = partial(self.fence, record.epoch)

        async def carry_out(statement: int, index: int, operation: Operation) -> None:
            outcome = await self._perform(operation, fence)
            is_refused = outcome.result not in ("done", "unknown") and fence()
            refused_at = self.clock.wall() if is_refused else 0
            said = (outcome.result, outcome.detail, refused_at, outcome.is_outage)
            outcomes.put_nowait(OperationDone(record.session, statement, index, *said))

        async def worker() -> None:
            while work:
                await carry_out(*work.popleft())

        async with asyncio.TaskGroup() as group:
            flusher = group.create_task(_hand_over(outcomes, self.sink))
            workers = [group.create_task(worker()) for _ in range(min(self.concurrency, len(work)))]
            # what waits for its volumes holds up nothing else
            workers += [group.create_task(carry_out(*each)) for each in wanted if each[2].volumes]
            if workers:
                await asyncio.wait(workers)
            outcomes.put_nowait(None)
            await flusher

    async def look_up(self, operation: Operation, fence: Callable[[], bool]) -> Outcome | None:
        """What the pod shows became of an operation; None when it did not happen. Raises KubeError."""
        call = self._call_for(operation)
        if isinstance(call, _Evict):
            call.deleting = True
        return await self._look(call, fence)

    async def _perform(self, operation: Operation, fence: Callable[[], bool]) -> Outcome:
        call = self._call_for(operation)
        try:
            outcome = await self._bind_volumes(call, fence) if operation.volumes else None
            outcome = outcome or await self._attempt(call, fence)
            self._announce(operation, outcome, fence)
        except Exception as error:  # a defect, which keeps its own pod alone from being placed
            log.error("operation_raised", verb=operation.verb, pod=operation.key, error=repr(error), exc_info=True)
            outcome = await self._after_defect(call, fence, f"a defect of vcd: {error!r}")
        return outcome

    async def _after_defect(self, call: _Call, fence: Callable[[], bool], words: str) -> Outcome:
        """What became of an operation amid which something was raised; the next term looks where not even that can be
        found out."""
        try:
            return await self._settle(call, fence) or Outcome("failed", words)
        except Exception:  # the same defect, or another one
            log.exception("outcome_not_found", pod=call.operation.key)
            return Outcome("unknown", words)

    def _call_for(self, operation: Operation) -> _Call:
        if operation.verb == "bind":
            return _Bind(operation)
        return _Ungate(operation) if operation.verb == "ungate" else _Evict(operation, self.clock)

    async def _bind_volumes(self, call: _Call, fence: Callable[[], bool]) -> Outcome | None:
        """Bind what the pod's claims were promised; None when it is the pod's turn."""

        async def check_pod() -> None:
            verdict = await self._look(call, fence)
            if verdict is not None:
                raise NotBound(verdict.result, verdict.detail)

        try:
            await self._volumes.bind(call.operation, fence, check_pod)
        except NotBound as error:
            return Outcome(error.result, error.detail)
        except Fenced as error:
            return Outcome("failed", str(error))
        return None

    async def _attempt(self, call: _Call, fence: Callable[[], bool]) -> Outcome:
        """Call until the outcome is known; look before calling again when it is in doubt."""
        backoff = Backoff(0.1, 5.0, self.rand)
        doubt = doubted = False
        problem: KubeError = Malformed("not tried")
        for attempt in range(_ATTEMPTS):
            try:
                doubt = False
                await call.make(self.client, fence)
                return DONE
            except Fenced as error:  # a gateway may have given up on a call before that the server has yet to carry out
                return Outcome("unknown" if doubted else "failed", str(error))
            except ApiError as error:
                problem = error
                if is_final(error):
                    break
                doubt = error.status >= 500
            except Unanswered as error:
                problem, doubt = error, error.sent
            except Malformed as error:  # whoever said that it went well was no API server
                problem, doubt = error, True
            doubted = doubted or doubt
            if doubt or attempt + 1 < _ATTEMPTS:
                await self.clock.sleep(pause_after(problem, backoff))
            if doubt:
                verdict = await self._settle(call, fence)
                if verdict is not None:
                    return verdict
        if doubted and not doubt:  # a call before may have been carried out late: 409 may be its doing
            verdict = await self._settle(call, fence)
            if verdict is not None:
                return verdict
        result = _FINAL.get(problem.status, "failed") if isinstance(problem, ApiError) else "failed"
        return Outcome(result, str(problem), is_outage=not is_final(problem))

    async def _settle(self, call: _Call, fence: Callable[[], bool]) -> Outcome | None:
        """Clear a doubt, however long the server cannot tell: a pod in doubt would wait for ever. None: not done."""
        backoff = Backoff(0.1, 5.0, self.rand)
        while True:
            try:
                return await self._look(call, fence)
            except Fenced as error:
                return Outcome("unknown", str(error))
            except KubeError as error:
                pause = pause_after(error, backoff)
                log.warning("outcome_in_doubt", pod=call.operation.key, error=str(error), retry_in=round(pause, 3))
                await self.clock.sleep(pause)

    async def _look(self, call: _Call, fence: Callable[[], bool]) -> Outcome | None:
        """What the pod itself says became of the operation; None when it did not happen."""
        try:
            raw = await self.client.request("GET", POD.object_path(call.operation.key), fence=fence)
        except ApiError as error:
            if error.status != 404:
                raise
            return call.judge(None)
        pod = decoded(_pod_decoder, raw, f"pod {call.operation.key}")
        return call.judge(pod if pod.metadata.uid == call.operation.uid else None)

    def _announce(self, operation: Operation, outcome: Outcome, fence: Callable[[], bool]) -> None:
        """Tell the pod's owner, in Volcano's words; after the term in which that was decided the next leader says why
        the pod waits."""
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
        if operation.verb == "bind" and fence():
            message = f"failed to bind to node {operation.node}: {outcome.detail}"
            condition = Condition("PodScheduled", "False", UNSCHEDULABLE_REASON, message)
            self.conditions.submit_pod_condition(key, uid, condition)


def _wanted(record: SessionDecided, plan: Plan) -> list[tuple[int, int, Operation]]:
    """What is to be carried out of a plan, with the places of statement and operation."""
    stale = {index for index, _ in record.stale}
    return [
        (statement, index, operation)
        for statement, each in enumerate(plan.statements)
        for index, operation in enumerate(each.operations)
        if statement not in stale and operation.verb != "pipeline"
    ]


_FINAL: dict[int, Result] = {404: "gone", 409: "conflict"}


def _evict_message(operation: Operation) -> str:
    return f"Pod is evicted, because of {operation.reason}"


@dataclasses.dataclass
class _Call:
    """One operation's API calls."""

    operation: Operation

    async def make(self, client: KubeClient, fence: Callable[[], bool]) -> None:
        """Make the calls that were not made yet."""
        raise NotImplementedError

    def judge(self, pod: _Pod | None) -> Outcome | None:
        """The outcome that the pod shows (None: it is gone), or None when the operation did not happen."""
        raise NotImplementedError


class _Bind(_Call):
    """POST to the pod's binding subresource; the UID makes the server refuse another pod of that name."""

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
            raise Malformed(f"binding of {operation.key}: the answer is no Status of success: {raw[:80]!r}")

    def judge(self, pod: _Pod | None) -> Outcome | None:
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
    """PATCH the queue's own gate out of the pod's scheduling gates, with the UID as precondition."""

    async def make(self, client: KubeClient, fence: Callable[[], bool]) -> None:
        gates = [{"name": QUEUE_GATE, "$patch": "delete"}]
        body = _encode({"metadata": {"uid": self.operation.uid}, "spec": {"schedulingGates": gates}})
        path = POD.object_path(self.operation.key)
        try:
            raw = await client.request("PATCH", path, body, content_type=STRATEGIC_PATCH, fence=fence)
        except ApiError as error:
            raise _as_conflict(error) from error
        if not _is_pod(raw, self.operation.uid):
            raise Malformed(f"change of {self.operation.key}: the answer is not the pod: {raw[:80]!r}")

    def judge(self, pod: _Pod | None) -> Outcome | None:
        if pod is None:
            return Outcome("gone", "the pod was deleted")
        if all(gate.name != QUEUE_GATE for gate in pod.spec.scheduling_gates):
            return DONE
        return Outcome("gone", "the pod is being deleted") if pod.metadata.deletion_timestamp else None


def _as_conflict(error: ApiError) -> ApiError:
    """Another UID is, to a patch, a field that must not change, where a delete would call it a conflict."""
    return ApiError(409, "Conflict", error.message) if error.status == 422 else error


@dataclasses.dataclass
class _Evict(_Call):
    """Conditions that say why, then DELETE with the UID as precondition, as Volcano's evictor."""

    clock: Clock
    marked: bool = False
    deleting: bool = False

    async def make(self, client: KubeClient, fence: Callable[[], bool]) -> None:
        path = POD.object_path(self.operation.key)
        if not self.marked:
            try:
                await client.request("PATCH", f"{path}/status", self._mark(), content_type=STRATEGIC_PATCH, fence=fence)
            except ApiError as error:
                raise _as_conflict(error) from error
            self.marked = True
        self.deleting = True
        preconditions = {"uid": self.operation.uid}
        body = _encode({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions})
        raw = await client.request("DELETE", path, body, fence=fence)
        if not _is_success(raw, "deletion") and not _is_pod(raw, self.operation.uid):
            raise Malformed(f"deletion of {self.operation.key}: the answer is neither Status nor pod: {raw[:80]!r}")

    def judge(self, pod: _Pod | None) -> Outcome | None:
        if pod is None and not self.deleting:
            return Outcome("gone", "the pod was deleted")
        return DONE if pod is None or pod.metadata.deletion_timestamp else None

    def _mark(self) -> bytes:
        since = rfc3339(self.clock.wall())
        ready = Condition("Ready", "False", "Evict", _evict_message(self.operation), since)
        target = Condition("DisruptionTarget", "True", "PreemptionByScheduler", _evict_message(self.operation), since)
        # the UID in a patch is a precondition: the server refuses another pod of that name
        return _encode({"metadata": {"uid": self.operation.uid}, "status": {"conditions": [ready, target]}})


def _is_success(raw: bytes, what: str) -> bool:
    answer = decoded(_answer_decoder, raw, what)
    return answer.kind == "Status" and bytes(answer.status) == b'"Success"'


def _is_pod(raw: bytes, uid: str) -> bool:
    return decoded(_pod_decoder, raw, "pod").metadata.uid == uid


async def _hand_over(outcomes: asyncio.Queue[Event | None], sink: Sink) -> None:
    """Feed the sink, as many outcomes at a time as have come while it was busy with the last; None is the end."""
    batch: list[Event | None] = []
    while None not in batch:
        batch = [await outcomes.get()]
        while not outcomes.empty():
            batch.append(outcomes.get_nowait())
        if events := [each for each in batch if each is not None]:
            await sink(events)

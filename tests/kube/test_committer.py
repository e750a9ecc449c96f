"""Binds and evictions: every answer and every fault of the API server, and what is reported of each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from tests.kube.recorded import answer, exchange
from tests.kube.scripted import (
    Answer,
    FakeClock,
    HastyClock,
    Log,
    ScriptedServer,
    client_of,
    failure,
    running,
    scripted,
    until,
)
from vcd.kube.committer import Committer, Outcome
from vcd.kube.write_limiter import Urgency
from vcd.model.events import Operation, OperationDone, Plan, SessionDecided, Statement

UID = "982ef69e-ecd9-4e22-ab5b-e25d7d0f4e70"
BIND = Operation("bind", "default/g-p1", UID, "g-n1")
EVICT = Operation("evict", "default/g-p1", UID, "g-n1", "preempt")
BOUND = answer("bind")
LOST = [Answer(drop=True), Answer(hang=True), failure(500, "InternalError", ""), failure(504, "Timeout", "")]
LOST_IDS = ["dropped", "hanging", "500", "504"]


def pod(node: str = "", uid: str = UID, deleted: bool = False) -> Answer:
    meta = {"name": "g-p1", "namespace": "default", "uid": uid}
    if deleted:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return Answer(200, {"kind": "Pod", "metadata": meta, "spec": {"nodeName": node} if node else {}})


class Heard:
    """A recorder and condition writer that remember."""

    def __init__(self) -> None:
        self.events: list[tuple[str, ...]] = []
        self.conditions: list[tuple[Any, ...]] = []

    def record(self, *event: str) -> None:
        self.events.append(event)

    def submit_pod_condition(self, *condition: Any) -> None:
        self.conditions.append(condition)


class Fixture:
    def __init__(self, server: ScriptedServer, committer: Committer, log: Log, heard: Heard, clock: Any) -> None:
        self.server, self.committer, self.log, self.heard, self.clock = server, committer, log, heard, clock
        self.epoch = 3

    def fence(self, epoch: int) -> bool:
        return epoch == self.epoch

    async def commit(self, *operations: Operation, stale: tuple[tuple[int, str], ...] = ()) -> list[tuple[str, str]]:
        """Commit a statement of these operations; result and detail of each outcome, in order of operations."""
        return await self.commit_plan(Plan((Statement("default/g", "allocate", operations),)), stale)

    async def commit_plan(self, plan: Plan, stale: tuple[tuple[int, str], ...] = ()) -> list[tuple[str, str]]:
        await self.committer.commit(SessionDecided(7, 1, "", 0, 0, 3, {}, b"", stale), plan)
        outcomes = sorted(self.log.of(OperationDone), key=lambda done: (done.statement, done.operation))
        assert all(outcome.session == 7 for outcome in outcomes)
        return [(outcome.result, outcome.detail) for outcome in outcomes]

    def binds(self) -> int:
        return len(self.server.calls("POST", "binding"))


@pytest.fixture(name="f")
async def fixture() -> AsyncIterator[Fixture]:
    async with committing(HastyClock()) as f:
        yield f


@asynccontextmanager
async def committing(clock: Any, request_timeout: float = 0.1, **options: Any) -> AsyncIterator[Fixture]:
    log, heard = Log(), Heard()
    async with scripted() as server, client_of(server, request_timeout=request_timeout) as client:
        committer = Committer(
            client,
            log.sink,
            lambda epoch: f.fence(epoch),
            heard,
            heard,
            clock=clock,
            rand=lambda: 0.5,
            **options,
        )
        f = Fixture(server, committer, log, heard, clock)
        yield f


async def test_a_bind_is_the_recorded_request(f: Fixture) -> None:
    f.server.on("POST", "binding", BOUND)
    assert await f.commit(BIND) == [("done", "")]
    recorded = exchange("bind")["request"]
    call = f.server.calls("POST")[0]
    call.body["metadata"].pop("namespace")
    assert (call.path, call.body) == (recorded["path"], recorded["body"])


async def test_a_bind_writes_the_annotations_of_its_operation(f: Fixture) -> None:
    f.server.on("POST", "binding", BOUND)
    await f.commit(msgspec.structs.replace(BIND, annotations={"example.com/card": "0"}))
    assert f.server.calls("POST")[0].body["metadata"]["annotations"] == {"example.com/card": "0"}


async def test_outcomes_name_statement_and_operation(f: Fixture) -> None:
    f.server.on("POST", "/b/", failure(409, "Conflict", ""))
    f.server.on("POST", "/[ac]/", BOUND)
    statements = tuple(
        Statement("g", "allocate", tuple(Operation("bind", f"ns/{name}", name, "n") for name in names))
        for names in ("ab", "c")
    )
    await f.commit_plan(Plan(statements))
    done = {(event.statement, event.operation): event.result for event in f.log.of(OperationDone)}
    assert done == {(0, 0): "done", (0, 1): "conflict", (1, 0): "done"}


async def test_no_event_is_written_while_a_bind_waits() -> None:
    count = 200  # of which the client has 64 under way at once
    statement = Statement("g", "allocate", tuple(Operation("bind", f"ns/{n}", str(n), "n") for n in range(count)))
    async with committing(HastyClock(), request_timeout=30.0) as f:
        f.server.on("POST", "", BOUND)
        async with running(f.commit_plan(Plan((statement,)))) as ended:
            await until(f.binds)
            client = f.committer.client
            await client.request("POST", "/api/v1/namespaces/ns/events", b"{}", urgency=Urgency.EVENT)
            await ended
        places = [number for number, call in enumerate(f.server.seen) if call.path.endswith("/events")]
    assert len(places) == 1
    assert places[0] >= count - 64


FALSE = {
    "a proxy's page": "<html>welcome</html>",
    "nothing": b"",
    "an empty object": {},
    "another kind": {"kind": "PodList", "metadata": {}, "items": []},
    "no kind": {"status": "Success"},
    "a failure": {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict"},
    "odd bytes": b"\xff" * 10,
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("body", FALSE.values(), ids=FALSE)
async def test_a_binding_is_done_only_when_a_status_or_the_pod_itself_says_so(f: Fixture, body: Any) -> None:
    f.server.on("POST", "binding", Answer(200, body), BOUND)
    f.server.on("GET", "pods/g-p1", pod())
    assert await f.commit(BIND) == [("done", "")]
    assert [call.method for call in f.server.seen] == ["POST", "GET", "POST"]


async def test_a_binding_that_was_made_although_its_answer_is_lost_in_another_is_not_repeated(f: Fixture) -> None:
    f.server.on("POST", "binding", Answer(200, "<html>welcome</html>"))
    f.server.on("GET", "pods/g-p1", pod(node="g-n1"))
    assert await f.commit(BIND) == [("done", "")]
    assert f.binds() == 1


async def test_bindings_that_are_never_made_whatever_is_answered_have_failed(f: Fixture) -> None:
    f.server.on("POST", "binding", Answer(201, {}))
    f.server.on("GET", "pods/g-p1", pod())
    [(result, detail)] = await f.commit(BIND)
    assert (result, f.binds()) == ("failed", 5)
    assert "no Status of success" in detail


@pytest.mark.parametrize("body", [*FALSE.values(), {"kind": "Pod", "metadata": {"uid": "another"}}])
async def test_an_eviction_is_done_only_when_a_status_or_the_pod_itself_says_so(f: Fixture, body: Any) -> None:
    f.server.on("PATCH", "pods/g-p1/status", Answer(200, {}))
    f.server.on("DELETE", "pods/g-p1", Answer(200, body), answer("after the eviction"))
    f.server.on("GET", "pods/g-p1", pod(node="g-n1"))
    assert await f.commit(EVICT) == [("done", "")]
    assert len(f.server.calls("DELETE")) == 2


async def test_an_eviction_that_a_status_confirms_is_done_at_once(f: Fixture) -> None:
    f.server.on("PATCH", "pods/g-p1/status", Answer(200, {}))
    f.server.on("DELETE", "pods/g-p1", Answer(200, {"kind": "Status", "status": "Success"}))
    assert await f.commit(EVICT) == [("done", "")]
    assert [call.method for call in f.server.seen] == ["PATCH", "DELETE"]


async def test_stale_statements_and_pipelined_operations_make_no_call(f: Fixture) -> None:
    f.server.on("POST", "binding", BOUND)
    plan = Plan(
        (
            Statement("a", "allocate", (Operation("bind", "ns/a", "a", "n"),)),
            Statement("b", "allocate", (Operation("pipeline", "ns/b", "b", "n"), Operation("bind", "ns/c", "c", "n"))),
        )
    )
    assert await f.commit_plan(plan, stale=((0, "node gone"),)) == [("done", "")]
    assert [call.path for call in f.server.seen] == ["/api/v1/namespaces/ns/pods/c/binding"]


async def test_an_empty_plan_says_nothing(f: Fixture) -> None:
    assert await f.commit_plan(Plan()) == []
    assert f.log.batches == []


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("bind again", "conflict"),
        ("bind with a wrong UID", "conflict"),
        ("bind a gated pod", "conflict"),
        ("bind a missing pod", "gone"),
        ("no token", "failed"),
    ],
)
async def test_a_refusal_is_an_outcome_and_is_not_repeated(f: Fixture, name: str, result: str) -> None:
    f.server.on("POST", "binding", answer(name))
    outcomes = await f.commit(BIND)
    assert outcomes == [(result, outcomes[0][1])]
    assert answer(name).body["message"] in outcomes[0][1]
    assert f.binds() == 1


async def test_too_many_requests_is_tried_again_when_the_server_says(f: Fixture) -> None:
    f.server.on("POST", "binding", failure(429, "TooManyRequests", "", Retry_After="3"), BOUND)
    assert await f.commit(BIND) == [("done", "")]
    assert f.clock.slept == [3]
    assert f.server.calls("GET") == []


@pytest.mark.parametrize("fault", LOST, ids=LOST_IDS)
async def test_a_bind_in_doubt_that_happened_is_done_and_not_repeated(f: Fixture, fault: Answer) -> None:
    f.server.on("POST", "binding", fault)
    f.server.on("GET", "pods/g-p1", answer("after the bind"))
    assert await f.commit(BIND) == [("done", "")]
    assert f.binds() == 1


@pytest.mark.parametrize("fault", LOST, ids=LOST_IDS)
async def test_a_bind_in_doubt_that_did_not_happen_is_repeated(f: Fixture, fault: Answer) -> None:
    f.server.on("POST", "binding", fault, BOUND)
    f.server.on("GET", "pods/g-p1", pod())
    assert await f.commit(BIND) == [("done", "")]
    assert [call.method for call in f.server.seen] == ["POST", "GET", "POST"]


@pytest.mark.parametrize(
    ("found", "result"),
    [
        (pod(node="g-n9"), "conflict"),
        (pod(node="g-n1", uid="another"), "gone"),
        (pod(deleted=True), "gone"),
        (answer("gone"), "gone"),
    ],
    ids=["on another node", "another pod", "being deleted", "deleted"],
)
async def test_a_bind_in_doubt_is_judged_by_the_pod(f: Fixture, found: Answer, result: str) -> None:
    f.server.on("POST", "binding", Answer(drop=True))
    f.server.on("GET", "pods/g-p1", found)
    assert [outcome for outcome, _ in await f.commit(BIND)] == [result]
    assert f.binds() == 1


async def test_a_bind_carried_out_late_is_done_although_its_repetition_conflicts(f: Fixture) -> None:
    f.server.on("POST", "binding", Answer(hang=True), answer("bind again"))
    f.server.on("GET", "pods/g-p1", pod(), answer("after the bind"))
    assert await f.commit(BIND) == [("done", "")]
    assert f.binds() == 2


async def test_a_conflict_after_doubt_stays_one_when_the_pod_is_not_ours(f: Fixture) -> None:
    f.server.on("POST", "binding", Answer(hang=True), answer("bind again"))
    f.server.on("GET", "pods/g-p1", pod(), pod(node="g-n2"))
    assert await f.commit(BIND) == [("conflict", "already assigned to node g-n2")]


@pytest.mark.parametrize(("found", "result"), [(answer("after the bind"), "done"), (pod(), "failed")])
async def test_a_bind_that_was_in_doubt_has_not_failed_before_it_is_looked_at_once_more(
    f: Fixture, found: Answer, result: str
) -> None:
    """A gateway answered while the first call was on its way; it arrived after the pod was looked at."""
    f.server.on("POST", "binding", failure(502, "BadGateway", ""), failure(403, "Forbidden", "a webhook denied it"))
    f.server.on("GET", "pods/g-p1", pod(), found)
    assert [outcome for outcome, _ in await f.commit(BIND)] == [result]
    assert [call.method for call in f.server.seen][:4] == ["POST", "GET", "POST", "GET"]


async def test_a_doubt_is_cleared_although_later_calls_were_surely_refused(f: Fixture) -> None:
    """The first call was carried out after the pod was looked at; all others got 429."""
    f.server.on("POST", "binding", failure(502, "BadGateway", ""), failure(429, "TooManyRequests", ""))
    f.server.on("GET", "pods/g-p1", pod(), pod(node="g-n1"))
    assert await f.commit(BIND) == [("done", "")]
    assert (f.binds(), len(f.server.calls("GET"))) == (5, 2)


@pytest.mark.parametrize(
    ("status", "looks", "pauses"), [(503, 5, 5), (429, 0, 4)], ids=["each in doubt", "none in doubt"]
)
async def test_the_pod_is_looked_at_once_after_each_call_in_doubt(
    f: Fixture, status: int, looks: int, pauses: int
) -> None:
    f.server.on("POST", "binding", failure(status, "Refused", ""))
    f.server.on("GET", "pods/g-p1", pod())
    assert [result for result, _ in await f.commit(BIND)] == ["failed"]
    assert (f.binds(), len(f.server.calls("GET")), len(f.clock.slept)) == (5, looks, pauses)


async def test_what_cannot_be_looked_at_is_looked_at_again_and_not_repeated(f: Fixture) -> None:
    f.server.on("POST", "binding", Answer(drop=True))
    refusals = [failure(503, "ServiceUnavailable", ""), failure(403, "Forbidden", ""), Answer(drop=True)] * 4
    f.server.on("GET", "pods/g-p1", *refusals, pod(node="g-n1"))
    assert await f.commit(BIND) == [("done", "")]
    assert f.binds() == 1


async def test_what_surely_never_happened_has_failed() -> None:
    async with committing(HastyClock()) as f:
        f.server.on("POST", "binding", failure(429, "TooManyRequests", ""))
        assert [result for result, _ in await f.commit(BIND)] == ["failed"]
        assert f.binds() == 5
        assert f.clock.slept[:4] == sorted(f.clock.slept[:4])


@pytest.mark.parametrize("refusal", [403, 404, 409, 422])
@pytest.mark.parametrize("operation", [BIND, EVICT], ids=["bind", "evict"])
async def test_a_refusal_is_logged_at_once_with_its_time(f: Fixture, operation: Operation, refusal: int) -> None:
    for method in ("POST", "PATCH"):
        f.server.on(method, "", failure(refusal, "Refused", "a webhook denied it"))
    for _ in range(3):
        began = f.clock.wall()
        await f.commit(operation)
        assert f.log.of(OperationDone)[-1].refused_at == began
        assert "a webhook denied it" in f.log.of(OperationDone)[-1].detail
    assert f.clock.slept == []


@pytest.mark.parametrize("refusal", [401, 403, 404, 409, 422])
async def test_a_refusal_is_no_outage(f: Fixture, refusal: int) -> None:
    f.server.on("POST", "binding", failure(refusal, "Refused", "a policy denied it"))
    await f.commit(BIND)
    assert [done.is_outage for done in f.log.of(OperationDone)] == [False]


@pytest.mark.parametrize(
    "trouble",
    [failure(500, "InternalError", "failed calling webhook"), failure(429, "TooManyRequests", ""), Answer(drop=True)],
    ids=["a webhook that does not answer", "too many requests", "a lost connection"],
)
async def test_an_outage_is_no_refusal(trouble: Answer) -> None:
    """No other node would have fared better."""
    async with committing(HastyClock()) as f:
        f.server.on("POST", "binding", trouble)
        f.server.on("GET", "pods/g-p1", pod())
        assert [result for result, _ in await f.commit(BIND)] == ["failed"]
        (done,) = f.log.of(OperationDone)
        assert done.is_outage and done.refused_at


async def test_what_was_done_was_not_refused(f: Fixture) -> None:
    f.server.on("POST", "binding", BOUND)
    await f.commit(BIND)
    assert [done.refused_at for done in f.log.of(OperationDone)] == [0]


async def test_without_the_lease_no_call_is_made(f: Fixture) -> None:
    f.epoch = 4
    assert await f.commit(BIND, EVICT) == [("failed", "lost leadership")] * 2
    assert [done.refused_at for done in f.log.of(OperationDone)] == [0, 0]  # nobody refused anything
    assert f.server.seen == []
    assert f.heard.conditions == []  # which this replica could write by now, had it the Lease again


async def test_losing_the_lease_stops_the_remaining_operations() -> None:
    async with committing(HastyClock(), concurrency=1) as f:

        def lose(_: Any) -> Answer:
            f.epoch = 4
            return BOUND

        f.server.on("POST", "binding", lose)
        operations = [Operation("bind", f"ns/p{i}", f"u{i}", "n") for i in range(3)]
        assert await f.commit(*operations) == [("done", "")] + [("failed", "lost leadership")] * 2
        assert f.binds() == 1


async def test_losing_the_lease_after_a_call_that_may_come_late_leaves_the_outcome_unknown(f: Fixture) -> None:
    def lose(_: Any) -> Answer:
        f.epoch = 4
        return pod()

    f.server.on("POST", "binding", failure(502, "BadGateway", ""))
    f.server.on("GET", "pods/g-p1", lose)
    assert await f.commit(BIND) == [("unknown", "lost leadership")]
    assert f.binds() == 1


async def test_losing_the_lease_while_in_doubt_leaves_the_outcome_unknown(f: Fixture) -> None:
    def lose(_: Any) -> Answer:
        f.epoch = 4
        return Answer(drop=True)

    f.server.on("POST", "binding", lose)
    assert await f.commit(BIND) == [("unknown", "lost leadership")]
    assert f.server.calls("GET") == []


async def test_the_fence_is_asked_again_before_a_repetition() -> None:
    clock = FakeClock()
    async with committing(clock) as f:
        f.server.on("POST", "binding", failure(429, "TooManyRequests", ""))
        async with running(f.commit(BIND)) as commit:
            await until(lambda: clock.sleeping)
            f.epoch = 4
            clock.advance(10)
            assert await commit == [("failed", "lost leadership")]
        assert f.binds() == 1


async def test_an_eviction_says_why_before_it_deletes(f: Fixture) -> None:
    f.server.on("PATCH", "pods/g-p1/status", Answer(200, {}))
    f.server.on("DELETE", "pods/g-p1", answer("after the eviction"))
    assert await f.commit(EVICT) == [("done", "")]
    patch, delete = f.server.seen
    assert patch.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert patch.body["metadata"] == {"uid": UID}
    reasons = {condition["type"]: condition for condition in patch.body["status"]["conditions"]}
    assert reasons["Ready"]["reason"] == "Evict"
    assert reasons["Ready"]["message"] == "Pod is evicted, because of preempt"
    assert reasons["DisruptionTarget"]["reason"] == "PreemptionByScheduler"
    assert delete.body["preconditions"] == {"uid": UID}


@pytest.mark.parametrize("status", [409, 422])
async def test_an_eviction_never_touches_another_pod_of_that_name(f: Fixture, status: int) -> None:
    f.server.on("PATCH", "pods/g-p1/status", failure(status, "Invalid", "metadata.uid: Invalid value: immutable"))
    assert [result for result, _ in await f.commit(EVICT)] == ["conflict"]
    assert f.server.calls("DELETE") == []


async def test_a_delete_of_another_uid_is_a_conflict(f: Fixture) -> None:
    f.server.on("PATCH", "pods/g-p1/status", Answer(200, {}))
    f.server.on("DELETE", "pods/g-p1", failure(409, "Conflict", "the UID in the precondition"))
    assert [result for result, _ in await f.commit(EVICT)] == ["conflict"]


async def test_evicting_a_pod_that_is_gone_is_gone(f: Fixture) -> None:
    f.server.on("PATCH", "pods/g-p1/status", answer("gone"))
    assert [result for result, _ in await f.commit(EVICT)] == ["gone"]


@pytest.mark.parametrize("found", [answer("after the eviction"), answer("gone"), pod(uid="another")])
async def test_an_eviction_in_doubt_that_happened_is_done(f: Fixture, found: Answer) -> None:
    f.server.on("PATCH", "pods/g-p1/status", Answer(200, {}))
    f.server.on("DELETE", "pods/g-p1", failure(504, "Timeout", ""))
    f.server.on("GET", "pods/g-p1", found)
    operation = Operation("evict", "default/g-p1", UID, "", "preempt")
    assert await f.commit(operation) == [("done", "")]
    assert len(f.server.calls("DELETE")) == 1


async def test_an_eviction_whose_reason_is_in_doubt_goes_on_while_the_pod_is_there(f: Fixture) -> None:
    f.server.on("PATCH", "pods/g-p1/status", failure(504, "Timeout", ""), Answer(200, {}))
    f.server.on("GET", "pods/g-p1", pod(node="g-n1"))
    f.server.on("DELETE", "pods/g-p1", answer("after the eviction"))
    assert await f.commit(EVICT) == [("done", "")]
    assert [call.method for call in f.server.seen] == ["PATCH", "GET", "PATCH", "DELETE"]


async def test_an_eviction_in_doubt_that_did_not_happen_is_repeated_without_its_reason(f: Fixture) -> None:
    f.server.on("PATCH", "pods/g-p1/status", Answer(200, {}))
    f.server.on("DELETE", "pods/g-p1", failure(504, "Timeout", ""), answer("after the eviction"))
    f.server.on("GET", "pods/g-p1", pod(node="g-n1"))
    assert await f.commit(EVICT) == [("done", "")]
    assert [call.method for call in f.server.seen] == ["PATCH", "DELETE", "GET", "DELETE"]


async def test_done_operations_are_announced_in_volcanos_words(f: Fixture) -> None:
    f.server.on("POST", "binding", BOUND)
    f.server.on("PATCH", "", Answer(200, {}))
    f.server.on("DELETE", "", Answer(200, {}))
    await f.commit(BIND, EVICT)
    assert sorted(f.heard.events) == [
        ("Pod", "default/g-p1", UID, "Normal", "Scheduled", "Successfully assigned default/g-p1 to g-n1"),
        ("Pod", "default/g-p1", UID, "Warning", "Evict", "Pod is evicted, because of preempt"),
    ]


async def test_a_failed_bind_becomes_a_condition(f: Fixture) -> None:
    f.server.on("POST", "binding", answer("bind a gated pod"))
    await f.commit(BIND)
    key, uid, condition = f.heard.conditions[0]
    assert (key, uid) == ("default/g-p1", UID)
    assert (condition.type, condition.status, condition.reason) == ("PodScheduled", "False", "SchedulerError")
    assert condition.message.startswith("failed to bind to node g-n1: 409 Conflict")


@pytest.mark.parametrize(
    ("operation", "answers", "warnings"),
    [
        (BIND, BOUND, 0),
        (BIND, answer("gone"), 0),
        (EVICT, answer("gone"), 0),
        (EVICT, failure(403, "Forbidden", "a webhook denied it"), 1),
    ],
    ids=["bound", "pod gone before its bind", "pod gone before its eviction", "eviction refused"],
)
async def test_only_a_failed_bind_becomes_a_condition(
    f: Fixture, operation: Operation, answers: Answer, warnings: int
) -> None:
    for method in ("POST", "PATCH"):
        f.server.on(method, "", answers)
    with capture_logs() as logs:
        await f.commit(operation)
    assert f.heard.conditions == []
    assert [each["event"] for each in logs] == ["operation_not_done"] * warnings


async def test_concurrency_is_bounded() -> None:
    async with committing(HastyClock(), concurrency=4) as f:
        under_way = most = 0

        async def bind(_: Any) -> Answer:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await until(lambda: under_way == 4 or f.binds() == 8)
            under_way -= 1
            return BOUND

        f.server.on("POST", "binding", bind)
        await f.commit(*(Operation("bind", f"ns/p{i}", f"u{i}", "n") for i in range(8)))
        assert most == 4


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (BOUND, ("done", "")),
        (Answer(409, {"kind": "Status", "reason": "Conflict"}), ("failed", "a defect of vcd: KeyError('a defect')")),
    ],
)
async def test_a_defect_keeps_its_own_pod_alone_from_an_outcome(
    f: Fixture, monkeypatch: pytest.MonkeyPatch, answer: Answer, outcome: tuple[str, str]
) -> None:
    report = f.committer._report_to_owner

    def defective(operation: Operation, outcome: Outcome, fence: Callable[[], bool]) -> None:
        if operation == BIND:
            raise KeyError("a defect")
        report(operation, outcome, fence)

    monkeypatch.setattr(f.committer, "_report_to_owner", defective)
    other = Operation("bind", "default/other", "u-other", "n")
    f.server.on("POST", f"{BIND.key.partition('/')[2]}/binding", answer)
    f.server.on("POST", "other/binding", BOUND)
    f.server.on("GET", BIND.key.partition("/")[2], pod(BIND.node if answer is BOUND else ""))
    assert await f.commit(BIND, other) == [outcome, ("done", "")]
    assert len(f.server.calls("GET")) == 1


async def test_a_defect_that_meets_the_look_too_leaves_that_outcome_alone_unknown(
    f: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = f.committer.client.request

    async def defective(method: str, path: str, *args: Any, **options: Any) -> bytes:
        if BIND.key.partition("/")[2] in path:
            raise KeyError("a defect")
        return await request(method, path, *args, **options)

    monkeypatch.setattr(f.committer.client, "request", defective)
    f.server.on("POST", "other/binding", BOUND)
    other = Operation("bind", "default/other", "u-other", "n")
    assert await f.commit(BIND, other) == [("unknown", "a defect of vcd: KeyError('a defect')"), ("done", "")]
    assert [done.refused_at for done in f.log.of(OperationDone)] == [0, 0]


async def test_a_sink_that_fails_ends_the_commit(f: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(batch: Any) -> None:
        raise OSError("disk full")

    f.server.on("POST", "binding", BOUND)
    monkeypatch.setattr(f.committer, "sink", full)
    with pytest.raises(ExceptionGroup) as caught:
        await f.commit(BIND)
    assert caught.group_contains(OSError, match="disk full")


# --- the queue's scheduling gate --------------------------------------------------------------------------------------

LIFT = Operation("ungate", "default/g-p1", UID)
GATE = "scheduling.volcano.sh/queue-allocation-gate"


def gated(*gates: str, **options: Any) -> Answer:
    shown = pod(**options)
    shown.body["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
    return shown


async def test_a_gate_is_patched_out_of_the_pod_that_it_was_decided_for(f: Fixture) -> None:
    f.server.on("PATCH", "pods/g-p1", gated())
    assert await f.commit(LIFT) == [("done", "")]
    (call,) = f.server.calls("PATCH")
    assert call.body == {
        "metadata": {"uid": UID},
        "spec": {"schedulingGates": [{"name": GATE, "$patch": "delete"}]},
    }
    assert (f.heard.events, f.heard.conditions) == ([], [])


@pytest.mark.parametrize(
    ("code", "reason", "result"),
    [(404, "NotFound", "gone"), (422, "Invalid", "conflict"), (403, "Forbidden", "failed")],
)
async def test_a_lifting_that_is_refused_is_not_repeated(f: Fixture, code: int, reason: str, result: str) -> None:
    f.server.on("PATCH", "pods/g-p1", failure(code, reason, "no"))
    outcomes = await f.commit(LIFT)
    assert outcomes == [(result, outcomes[0][1])]
    assert len(f.server.calls("PATCH")) == 1


@pytest.mark.parametrize("fault", LOST, ids=LOST_IDS)
@pytest.mark.parametrize(
    ("found", "result", "calls"),
    [
        (gated("example.com/other"), "done", 1),
        (gated(GATE), "done", 2),
        (gated(GATE, uid="another"), "gone", 1),
        (gated(GATE, deleted=True), "gone", 1),
        (answer("gone"), "gone", 1),
    ],
    ids=["it happened", "it did not", "another pod", "being deleted", "deleted"],
)
async def test_a_lifting_in_doubt_is_looked_at_first(
    f: Fixture, fault: Answer, found: Answer, result: str, calls: int
) -> None:
    f.server.on("PATCH", "pods/g-p1", fault, gated())
    f.server.on("GET", "pods/g-p1", found)
    assert [outcome[0] for outcome in await f.commit(LIFT)] == [result]
    assert len(f.server.calls("PATCH")) == calls

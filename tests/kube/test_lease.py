"""Law 4 of docs/laws.md: one writer. The Lease's rules are the API server's, recorded; time is turned by the tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.kube.recorded import exchange
from tests.kube.scripted import Answer, FakeClock, ScriptedServer, Seen, client_of, failure, running, scripted, until
from tests.kube.test_kube_connection import hang, kubeconfig, plugin
from vcd.kube.client import KubeClient
from vcd.kube.kube_connection import connect
from vcd.kube.lease import ADDRESS, DEFAULT_NAME, DEFAULT_NAMESPACE, POD_NAMESPACE, LeaderElector
from vcd.model.events import LeadershipChanged

DURATION, DEADLINE, RETRY, REQUEST = 15.0, 10.0, 2.0, 4.0


class LeaseServer:
    """The Lease as the API server keeps it: 404, 409 on a stale version, one version a write (as recorded)."""

    def __init__(self, server: ScriptedServer | None = None) -> None:
        self.object: dict[str, Any] | None = None
        self.version = 100
        self.cut: set[str] = set()
        """User agents whose requests are lost."""
        self.deaf: set[str] = set()
        """User agents whose writes are carried out, but not answered."""
        for method in ("GET", "POST", "PUT") if server is not None else ():
            server.on(method, "/leases", self.answer)

    def write(self, spec: dict[str, Any]) -> None:
        """Write the lease, as somebody else."""
        meta = {"name": DEFAULT_NAME, "namespace": DEFAULT_NAMESPACE, "labels": {"kept": "yes"}}
        self._store({"metadata": meta, "spec": spec})

    @property
    def spec(self) -> dict[str, Any]:
        assert self.object is not None
        spec: dict[str, Any] = self.object["spec"]
        return spec

    def _store(self, obj: dict[str, Any]) -> None:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.object = obj

    def answer(self, seen: Seen) -> Answer:
        agent = seen.headers["User-Agent"]
        if agent in self.cut:
            return Answer(drop=True)
        answer = self.apply(seen)
        return Answer(drop=True) if agent in self.deaf and seen.method != "GET" else answer

    def apply(self, seen: Seen) -> Answer:
        if seen.method == "POST":
            if self.object is not None:
                return failure(409, "AlreadyExists", "leases already exists")
            self._store(seen.body)
            return Answer(201, self.object)
        if self.object is None:
            return failure(404, "NotFound", "leases not found")
        if seen.method == "PUT":
            if seen.body["metadata"]["resourceVersion"] != self.object["metadata"]["resourceVersion"]:
                recorded = exchange("renew from a stale copy")["response"]
                return Answer(recorded["status"], recorded["body"])
            self._store(seen.body)
        return Answer(200, self.object)


class Fixture:
    """A lease, a clock, and replicas."""

    def __init__(self, server: ScriptedServer, stack: AsyncExitStack) -> None:
        self.server = server
        self.lease = LeaseServer(server)
        self.clock = FakeClock()
        self._stack = stack
        self._running: dict[str, asyncio.Task[Any]] = {}

    async def replica(self, name: str, clock: FakeClock | None = None, **options: Any) -> LeaderElector:
        """A replica that stands for election."""
        client = await self._stack.enter_async_context(client_of(self.server, user_agent=name))
        elector = LeaderElector(client, identity=name, clock=clock or self.clock, **options)
        self._running[name] = await self._stack.enter_async_context(running(elector.run()))
        return elector

    async def kill(self, elector: LeaderElector) -> None:
        """Stop a replica as kill -9 would: it says nothing more."""
        task = self._running[elector.identity]
        task.cancel()
        await asyncio.wait([task])

    async def ending(self, name: str = "a") -> LeaderElector:
        """A replica that leads, and whose election was ended so that it can give the lease back."""
        elector = await self.replica(name)
        await self.settle()
        await self.kill(elector)
        return elector

    async def settle(self, sleepers: int = 1) -> None:
        """Wait until every replica is asleep."""
        await until(lambda: self.clock.sleeping >= sleepers)

    async def pass_time(self, seconds: float, sleepers: int = 1) -> None:
        """Let time pass in steps small enough that nobody oversleeps."""
        for _ in range(round(seconds / 0.5)):
            await self.settle(sleepers)
            self.clock.advance(0.5)
        await self.settle(sleepers)


@pytest.fixture(name="f")
async def fixture() -> AsyncIterator[Fixture]:
    async with scripted() as server, AsyncExitStack() as stack:
        yield Fixture(server, stack)


def taken(elector: LeaderElector) -> list[LeadershipChanged]:
    """The changes that an elector has announced so far."""
    changes = []
    while not elector._changes.empty():
        changes.append(elector._changes.get_nowait())
    return changes


async def test_the_first_replica_makes_the_lease_and_leads(f: Fixture) -> None:
    a = await f.replica("a")
    await f.settle()
    assert a.is_leader()
    assert f.lease.spec == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:00.000000Z",
        "leaseTransitions": 0,
    }
    assert taken(a) == [LeadershipChanged(0, "a", True)]


async def test_name_and_namespace_are_vc_schedulers(f: Fixture) -> None:
    await f.replica("a")
    await f.settle()
    assert f.server.seen[0].path == "/apis/coordination.k8s.io/v1/namespaces/volcano-system/leases/volcano"


async def test_the_lease_is_renewed_each_retry_period(f: Fixture) -> None:
    await f.replica("a")
    await f.pass_time(3 * RETRY)
    assert len(f.server.calls("PUT")) == 3
    assert f.lease.spec["renewTime"] == "2026-01-01T00:00:06.000000Z"


async def test_a_second_replica_follows(f: Fixture) -> None:
    a = await f.replica("a")
    await f.settle()
    b = await f.replica("b")
    await f.pass_time(60, sleepers=2)
    assert (a.is_leader(), b.is_leader(), b.holder) == (True, False, "a")


async def test_takeover_after_a_kill_comes_within_lease_duration_plus_retry_period(f: Fixture) -> None:
    a = await f.replica("a")
    await f.settle()
    b = await f.replica("b")
    await f.pass_time(9, sleepers=2)
    await f.kill(a)
    killed = f.clock.now
    while not b.is_leader():
        await f.settle()
        f.clock.advance(0.25)
    assert f.clock.now - killed + RETRY > DEADLINE + REQUEST
    assert f.clock.now - killed <= DURATION + RETRY
    assert b.epoch == 1


async def test_the_new_leader_waits_out_the_old_ones_requests(f: Fixture) -> None:
    f.lease.write({"holderIdentity": "dead", "leaseDurationSeconds": 15, "leaseTransitions": 4})
    b = await f.replica("b")
    await f.pass_time(DURATION)
    assert b.is_leader()
    safe = asyncio.create_task(b.wait_until_safe())
    await f.pass_time(REQUEST - 0.5, sleepers=2)
    assert not safe.done()
    f.clock.advance(0.5)
    assert await safe


@pytest.mark.parametrize(
    ("spec", "seconds", "is_safe"),
    [
        ({"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 0}, 0.0, True),
        ({"holderIdentity": "", "leaseDurationSeconds": 15, "leaseTransitions": 0}, 0.0, False),
        ({"holderIdentity": "dead", "leaseDurationSeconds": 1, "leaseTransitions": 0}, 1.0, False),
        ({"holderIdentity": "dead"}, DURATION, False),
        ({}, 0.0, False),
    ],
    ids=["given back", "emptied by hand", "held for a second", "without a duration", "without fields"],
)
async def test_only_a_lease_that_was_given_back_is_safe_at_once(
    f: Fixture, spec: dict[str, Any], seconds: float, is_safe: bool
) -> None:
    f.lease.write(spec)
    b = await f.replica("b")
    if seconds:
        await f.pass_time(seconds - 0.5)
        assert not b.is_leader()
        await f.pass_time(0.5)
    await f.settle()
    assert (b.is_leader(), b.epoch) == (True, 1)
    assert (b.safe_at <= f.clock.now) == is_safe


async def test_a_replica_that_lost_the_lease_at_once_waits_for_nothing(f: Fixture) -> None:
    a = await f.replica("a")
    await f.settle()
    a.step_down("cannot list Pod", 60.0)
    assert not await a.wait_until_safe()


async def test_waiting_ends_in_false_when_leadership_is_lost_meanwhile(f: Fixture) -> None:
    f.lease.write({"holderIdentity": "dead", "leaseDurationSeconds": 15, "leaseTransitions": 4})
    b = await f.replica("b")
    await f.pass_time(DURATION)
    safe = asyncio.create_task(b.wait_until_safe())
    await f.settle(2)
    f.lease.write({**f.lease.spec, "holderIdentity": "thief"})
    await f.pass_time(REQUEST - 0.5, sleepers=2)
    f.clock.advance(0.5)
    assert not await safe


async def test_a_stopped_process_wakes_up_as_no_leader(f: Fixture) -> None:
    a = await f.replica("a")
    await f.settle()
    f.clock.now += DEADLINE  # SIGSTOP: time passes, nothing runs
    assert not a.is_leader()
    assert not a.is_leader_in(0)


async def test_a_holder_that_cannot_renew_stops_before_the_lease_can_be_taken(f: Fixture) -> None:
    a = await f.replica("a")
    await f.settle()
    b = await f.replica("b")
    await f.settle(2)
    f.lease.cut.add("a")
    start = f.clock.now
    stopped = taken_over = 0.0
    while not taken_over:
        await f.settle(2)
        f.clock.advance(0.25)
        await f.settle(2)
        assert not (a.is_leader() and b.is_leader())
        stopped = stopped or (0.0 if a.is_leader() else f.clock.now)
        taken_over = f.clock.now if b.is_leader() else 0.0
    assert stopped - start <= DEADLINE
    assert taken_over - stopped > REQUEST
    assert taken(a)[-1] == LeadershipChanged(0, "a", False)


async def test_the_deadline_counts_from_before_the_renewal_was_sent(f: Fixture) -> None:
    a = await f.replica("a")
    await f.settle()

    def slow(seen: Seen) -> Answer:
        f.clock.now += 3  # the answer takes three seconds
        return f.lease.answer(seen)

    f.server.on("PUT", "/leases", slow)
    sent = f.clock.now + RETRY
    await f.clock.advance_when_asleep(RETRY)
    await until(lambda: f.server.calls("PUT"))
    await f.settle()
    f.clock.now = sent + DEADLINE - 0.001
    assert a.is_leader()
    f.clock.now = sent + DEADLINE
    assert not a.is_leader()


async def test_a_lost_connection_that_comes_back_in_time_costs_nothing(f: Fixture) -> None:
    a = await f.replica("a")
    await f.settle()
    f.lease.cut.add("a")
    await f.pass_time(6)
    f.lease.cut.clear()
    await f.pass_time(30)
    assert a.is_leader()
    assert taken(a) == [LeadershipChanged(0, "a", True)]


async def test_a_renewal_that_failed_is_tried_again_the_sooner_the_less_is_left(f: Fixture) -> None:
    await f.replica("a")
    await f.settle()
    f.lease.cut.add("a")
    while f.clock.now < 1000.0 + DEADLINE:
        await f.settle()
        f.clock.advance(f.clock.next_wake - f.clock.now)
    pauses = f.clock.slept
    assert pauses[:4] == [RETRY, (DEADLINE - RETRY) / 4, 1.5, 1.125]
    assert pauses[-3:] == pytest.approx([0.1, 0.1, DEADLINE - sum(pauses[:-1])])


async def test_a_renewal_takes_no_longer_than_the_term_lasts(f: Fixture) -> None:
    """Nor than other requests: the answer to one that was lost is not waited for until the term has ended."""
    elector, timeouts = await f.replica("a"), list[float]()
    await f.settle()
    request = elector.client.request

    async def seen(*args: Any, timeout: float, **options: Any) -> bytes:
        timeouts.append(timeout)
        return await request(*args, timeout=timeout, **options)

    elector.client.request = seen  # type: ignore[method-assign, assignment]
    f.lease.cut.add("a")
    while f.clock.now < 1000.0 + DEADLINE:
        await f.settle()
        f.clock.advance(f.clock.next_wake - f.clock.now)
    assert timeouts[0] == REQUEST
    assert 0 < min(timeouts) < 0.2
    assert timeouts == sorted(timeouts, reverse=True)


async def test_renewals_whose_answers_are_lost_are_no_theft(f: Fixture) -> None:
    a = await f.replica("a")
    await f.settle()
    f.lease.deaf.add("a")
    await f.pass_time(4)
    f.lease.deaf.clear()
    await f.pass_time(10)
    assert taken(a) == [LeadershipChanged(0, "a", True)]
    assert a.is_leader()


async def test_leading_again_is_a_new_epoch(f: Fixture) -> None:
    a = await f.replica("a")
    await f.settle()
    f.lease.cut.add("a")
    await f.pass_time(DEADLINE + 1)
    f.lease.cut.clear()
    await f.pass_time(RETRY)
    assert taken(a) == [
        LeadershipChanged(0, "a", True),
        LeadershipChanged(0, "a", False),
        LeadershipChanged(1, "a", True),
    ]
    assert (a.is_leader_in(0), a.is_leader_in(1)) == (False, True)


async def test_a_stolen_lease_is_noticed_at_the_next_renewal(f: Fixture) -> None:
    a = await f.replica("a")
    await f.settle()
    f.lease.write({**f.lease.spec, "holderIdentity": "thief", "leaseTransitions": 1})
    await f.pass_time(RETRY)
    assert not a.is_leader()
    assert f.lease.spec["holderIdentity"] == "thief"


async def test_a_lease_that_another_process_of_the_same_name_took_ends_the_term(f: Fixture) -> None:
    a = await f.replica("a")
    await f.settle()
    f.lease.write({**f.lease.spec, "leaseTransitions": 1})
    await f.pass_time(RETRY)
    assert taken(a)[:2] == [LeadershipChanged(0, "a", True), LeadershipChanged(0, "a", False)]


async def test_a_change_by_others_that_leaves_us_the_holder_is_no_theft(f: Fixture) -> None:
    a = await f.replica("a")
    await f.settle()
    f.lease.write(dict(f.lease.spec))
    await f.pass_time(3 * RETRY)
    assert taken(a) == [LeadershipChanged(0, "a", True)]
    assert f.lease.object is not None
    assert f.lease.object["metadata"]["labels"] == {"kept": "yes"}


async def test_a_deleted_lease_ends_the_epoch_for_good(f: Fixture) -> None:
    a = await f.replica("a")
    await f.settle()
    f.lease.object = None
    await f.pass_time(2 * RETRY)
    assert [(change.epoch, change.leading) for change in taken(a)] == [(0, True), (0, False), (1, True)]


async def test_a_deleted_lease_is_not_made_again_while_who_held_it_may_not_know(f: Fixture) -> None:
    a = await f.replica("a")
    await f.settle()
    b = await f.replica("b")
    await f.settle(2)
    f.lease.cut.add("a")
    f.lease.object = None
    b.check_now()
    await until(lambda: len(f.server.calls("GET")) >= 3)
    await f.pass_time(DEADLINE, sleepers=2)
    assert not a.is_leader() and not b.is_leader()
    await f.pass_time(DURATION - DEADLINE + RETRY, sleepers=2)
    assert b.is_leader()


async def test_an_epoch_known_from_the_log_is_never_used_again(f: Fixture) -> None:
    a = await f.replica("a", last_epoch=41)
    await f.settle()
    assert a.epoch == f.lease.spec["leaseTransitions"] == 42


async def test_transitions_after_which_none_fits_are_ignored_and_told_of(f: Fixture) -> None:
    f.lease.write({"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 2**31 - 1})
    with capture_logs() as logs:
        a = await f.replica("a", last_epoch=41)
        await f.settle()
    assert a.is_leader()
    assert a.epoch == f.lease.spec["leaseTransitions"] == 42
    assert [each["found"] for each in logs if each["event"] == "lease_transitions_ignored"] == [2**31 - 1]


async def test_only_one_of_many_gets_a_free_lease(f: Fixture) -> None:
    f.lease.write({"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 4})
    electors = [await f.replica(name) for name in "abcd"]
    await f.pass_time(3 * RETRY, sleepers=4)
    assert [elector.is_leader() for elector in electors].count(True) == 1
    assert max(elector.epoch for elector in electors) == 5


async def test_a_released_lease_is_taken_at_once_and_is_safe_at_once(f: Fixture) -> None:
    a = await f.replica("a")
    await f.settle()
    b = await f.replica("b")
    await f.settle(2)
    await f.kill(a)
    await a.release()
    assert (a.is_leader(), f.lease.spec["holderIdentity"]) == (False, "")
    await f.pass_time(RETRY)
    assert b.is_leader()
    assert await b.wait_until_safe()


async def test_a_lease_that_was_written_meanwhile_is_given_back_all_the_same(f: Fixture) -> None:
    """As by a renewal whose answer nobody waited for."""
    a = await f.ending()
    f.lease.write(f.lease.spec)
    await a.release()
    assert f.lease.spec["holderIdentity"] == ""


@pytest.mark.parametrize("transitions", [0, 1])
async def test_a_lease_that_another_took_meanwhile_is_left_alone(f: Fixture, transitions: int) -> None:
    a = await f.ending()
    f.lease.write({**f.lease.spec, "holderIdentity": "thief", "leaseTransitions": transitions})
    await a.release()
    assert f.lease.spec["holderIdentity"] == "thief"


async def test_a_lease_that_is_deleted_while_it_is_given_back_stays_deleted(f: Fixture) -> None:
    a = await f.ending()

    def deleted(seen: Seen) -> Answer:
        f.lease.object = None
        return failure(409, "Conflict", "the object has been modified")

    f.server.on("PUT", "/leases", deleted)
    await a.release()
    assert f.lease.object is None


async def test_a_lease_that_another_process_of_the_same_name_took_is_left_alone(f: Fixture) -> None:
    a = await f.ending("same")
    b = await f.replica("same")
    await until(b.is_leader)
    await a.release()
    assert (f.lease.spec["holderIdentity"], f.lease.spec["leaseTransitions"]) == ("same", 1)


async def test_who_took_too_long_to_end_gives_the_lease_back_while_nobody_took_it(f: Fixture) -> None:
    a = await f.ending()
    f.clock.advance(DEADLINE + 1)
    assert not a.is_leader()
    await a.release()
    assert f.lease.spec["holderIdentity"] == ""


@pytest.mark.parametrize(("status", "attempts"), [(409, 3), (403, 1), (500, 1)])
async def test_a_lease_that_cannot_be_written_runs_out(f: Fixture, status: int, attempts: int) -> None:
    """A conflict is tried again, as another renewal may have been carried out; another refusal is not."""
    a = await f.ending()
    f.server.on("PUT", "/leases", failure(status, "Refused", "no"))
    before = len(f.server.calls("PUT"))
    with capture_logs() as logs:
        await a.release()
    assert len(f.server.calls("PUT")) == before + attempts
    assert [each["event"] for each in logs if each["log_level"] == "warning"] == ["lease_not_released"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (failure(409, "AlreadyExists", "leases already exists"), ("lease_taken_by_another", "info")),
        (failure(403, "Forbidden", "leases is forbidden"), ("lease_not_reached", "warning")),
    ],
)
async def test_who_loses_a_race_for_the_lease_does_not_warn(f: Fixture, answer: Answer, told: tuple[str, str]) -> None:
    f.server.on("POST", "/leases", answer)
    with capture_logs() as logs:
        a = await f.replica("a")
        await f.settle()
    assert not a.is_leader()
    assert [(each["event"], each["log_level"]) for each in logs] == [told]


async def test_a_follower_releases_nothing(f: Fixture) -> None:
    await f.replica("a")
    await f.settle()
    b = await f.replica("b")
    await f.settle(2)
    await f.kill(b)
    await b.release()
    assert f.lease.spec["holderIdentity"] == "a"


async def test_wall_clocks_decide_nothing(f: Fixture) -> None:
    f.lease.write(
        {
            "holderIdentity": "old",
            "leaseDurationSeconds": 15,
            "renewTime": "1999-01-01T00:00:00.000000Z",
            "leaseTransitions": 1,
        }
    )
    b = await f.replica("b")
    await f.pass_time(DURATION - 0.5)
    assert not b.is_leader()
    await f.pass_time(0.5)
    assert b.is_leader()


async def test_the_holders_own_lease_duration_counts(f: Fixture) -> None:
    f.lease.write({"holderIdentity": "old", "leaseDurationSeconds": 40, "leaseTransitions": 1})
    b = await f.replica("b")
    await f.pass_time(39)
    assert not b.is_leader()


async def test_a_server_in_trouble_is_asked_each_retry_period(f: Fixture) -> None:
    f.server.on("GET", "/leases", failure(500, "InternalError", ""))
    a = await f.replica("a")
    await f.pass_time(3 * RETRY)
    assert not a.is_leader()
    assert len(f.server.calls("GET")) == 4


async def test_changes_are_told_in_order(f: Fixture) -> None:
    a = await f.replica("a")
    await f.settle()
    f.lease.write({**f.lease.spec, "holderIdentity": "thief", "leaseTransitions": 1})
    await f.pass_time(RETRY)
    changes = a.changes()
    assert [(await anext(changes)).leading, (await anext(changes)).leading] == [True, False]
    await changes.aclose()  # type: ignore[attr-defined]


async def test_who_steps_down_leads_no_more_and_gives_the_lease_back_once_its_requests_have_ended(f: Fixture) -> None:
    a = await f.replica("a")
    await f.settle()
    b = await f.replica("b")
    await f.pass_time(RETRY, sleepers=2)
    a.step_down("cannot list Pod", 60.0)
    assert not a.is_leader()
    await f.pass_time(REQUEST, sleepers=2)
    assert f.lease.spec["holderIdentity"] == "a"
    await f.pass_time(2 * RETRY, sleepers=2)
    assert (f.lease.spec["holderIdentity"], b.is_leader()) == ("b", True)
    assert [change.leading for change in taken(a)] == [True, False]


async def test_who_ends_with_calls_cut_off_gives_the_lease_back_once_they_have_ended(f: Fixture) -> None:
    a = await f.replica("a")
    await f.settle()
    await f.kill(a)
    ending = asyncio.ensure_future(a.release(cut_off=True))
    await f.settle()
    assert (a.is_leader(), f.lease.spec["holderIdentity"]) == (False, "a")
    f.clock.advance(REQUEST)
    await ending
    assert f.lease.spec["holderIdentity"] == ""


@pytest.mark.parametrize(
    "end", [LeaderElector.release_if_held, LeaderElector.release, partial(LeaderElector.release, cut_off=True)]
)
async def test_who_ends_while_its_requests_end_gives_the_lease_back(
    f: Fixture, end: Callable[[LeaderElector], Coroutine[Any, Any, None]]
) -> None:
    a = await f.replica("a")
    await f.settle()
    a.step_down("cannot list Pod", 60.0)
    await f.pass_time(2 * RETRY)
    await f.kill(a)
    ending = asyncio.ensure_future(end(a))
    await f.settle()
    f.clock.advance(REQUEST)
    await ending
    assert f.lease.spec["holderIdentity"] == ""


async def test_who_stepped_down_stands_again_after_its_pause(f: Fixture) -> None:
    a = await f.replica("a")
    await f.settle()
    a.step_down("cannot list Pod", 60.0)
    await f.pass_time(59.0)
    assert not a.is_leader()
    assert f.lease.spec["holderIdentity"] == ""
    await f.pass_time(REQUEST + 2 * RETRY)
    assert a.is_leader()
    assert a.epoch == 1


async def test_who_rests_sees_who_leads(f: Fixture) -> None:
    a = await f.replica("a")
    await f.settle()
    b = await f.replica("b")
    await f.pass_time(RETRY, sleepers=2)
    a.step_down("cannot list Pod", 600.0)
    await f.pass_time(REQUEST + 3 * RETRY, sleepers=2)
    assert (b.is_leader(), a.holder) == (True, "b")


async def test_a_look_that_is_asked_for_is_made_at_once(f: Fixture) -> None:
    a = await f.replica("a")
    await f.settle()
    b = await f.replica("b")
    await f.settle(2)
    await f.kill(a)
    await a.release()
    b.check_now()
    await until(b.is_leader)


async def test_who_lets_others_go_first_looks_each_retry_period(f: Fixture) -> None:
    f.lease.write({"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 4})
    a = await f.replica("a", can_lead=lambda: False)
    await f.pass_time(3 * RETRY)
    assert len(f.server.calls("GET")) == 4
    await f.pass_time(DURATION)
    assert a.is_leader()


async def test_a_lease_that_cannot_be_given_back_runs_out(f: Fixture) -> None:
    a = await f.replica("a")
    await f.settle()
    b = await f.replica("b")
    await f.settle(2)
    f.lease.cut.add("a")
    a.step_down("cannot list Pod", 600.0)
    await f.pass_time(DURATION + 2 * RETRY, sleepers=2)
    assert b.is_leader()


async def test_a_follower_has_nothing_to_step_down_from(f: Fixture) -> None:
    f.lease.write({"holderIdentity": "other", "leaseDurationSeconds": 15, "leaseTransitions": 4})
    a = await f.replica("a")
    await f.settle()
    a.step_down("cannot list Pod", 600.0)
    await f.pass_time(DURATION + RETRY)
    assert a.is_leader()


def _lease_of(holder: str, transitions: int) -> dict[str, Any]:
    return {"kind": "Lease", "metadata": {}, "spec": {"holderIdentity": holder, "leaseTransitions": transitions}}


@pytest.mark.parametrize("body", [{}, _lease_of("another", 0), _lease_of("a", 1), "<html>"])
async def test_nobody_leads_by_an_answer_that_is_not_the_lease_as_it_was_written(f: Fixture, body: Any) -> None:
    f.server.on("POST", "leases", Answer(201, body))
    elector = await f.replica("a")
    await f.settle()
    assert not elector.is_leader()
    f.server.on("POST", "leases", f.lease.answer)
    await f.pass_time(4)
    assert elector.is_leader()


async def test_the_lease_says_where_its_holders_log_is_followed(f: Fixture) -> None:
    a = await f.replica("a", address="https://a/vcd/log#sha256=00")
    await f.settle()
    b = await f.replica("b", address="https://b/vcd/log#sha256=01")
    await f.settle(2)
    assert (b.holder, b.holder_address) == ("a", "https://a/vcd/log#sha256=00")
    await f.kill(a)
    await f.pass_time(20)
    assert b.is_leader()
    assert f.lease.object is not None
    assert f.lease.object["metadata"]["annotations"] == {ADDRESS: "b https://b/vcd/log#sha256=01"}


async def test_the_lease_says_in_which_namespace_the_pod_of_its_holder_is(f: Fixture) -> None:
    a = await f.replica("a", address="https://a/vcd/log#sha256=00", pod_namespace="batch")
    await f.settle()
    assert f.lease.object is not None
    told = {ADDRESS: "a https://a/vcd/log#sha256=00", POD_NAMESPACE: "batch"}
    assert f.lease.object["metadata"]["annotations"] == told
    await f.kill(a)
    b = await f.replica("b", address="https://b/vcd/log#sha256=01")
    await f.pass_time(20)
    assert b.is_leader()
    assert f.lease.object["metadata"]["annotations"] == {ADDRESS: "b https://b/vcd/log#sha256=01"}


async def test_who_is_not_followed_takes_the_address_of_another_away(f: Fixture) -> None:
    a = await f.replica("a", address="https://a/vcd/log#sha256=00", pod_namespace="batch")
    await f.settle()
    await f.kill(a)
    assert f.lease.object is not None
    f.lease.object["metadata"]["annotations"]["example.com/kept"] = "yes"
    b = await f.replica("b", pod_namespace="batch")
    await f.pass_time(20)
    assert b.is_leader()
    assert f.lease.object["metadata"]["annotations"] == {"example.com/kept": "yes"}


async def test_a_lease_that_was_given_back_says_that_there_is_a_log(f: Fixture) -> None:
    a = await f.replica("a", address="https://a:1/vcd/log")
    await f.settle()
    b = await f.replica("b", can_lead=lambda: not b.has_log)
    await f.settle(2)
    await f.kill(a)
    await a.release()
    b.check_now()
    await f.pass_time(DURATION - RETRY)
    assert (b.holder, b.has_log, b.is_leader()) == ("", True, False)
    f.lease.write({**f.lease.spec, "holderIdentity": "vc-scheduler"})
    await f.pass_time(RETRY)
    assert not b.has_log


@pytest.mark.parametrize(
    ("holder", "written", "has_log", "address"),
    [
        ("a", "a https://a/vcd/log", True, "https://a/vcd/log"),
        ("", "a https://a/vcd/log", True, ""),
        (None, "a https://a/vcd/log", True, ""),
        ("vc-scheduler", "a https://a/vcd/log", False, ""),
        ("a", None, False, ""),
        ("", None, False, ""),
    ],
    ids=["held", "given back", "without a holder", "taken by another client", "no log", "none left"],
)
async def test_a_log_is_followed_at_the_address_of_the_holder_alone(
    f: Fixture, holder: str | None, written: str | None, has_log: bool, address: str
) -> None:
    """client-go writes back what it does not know."""
    metadata = {"name": DEFAULT_NAME, "annotations": {} if written is None else {ADDRESS: written}}
    f.lease._store({"metadata": metadata, "spec": {"holderIdentity": holder, "leaseTransitions": 1}})
    b = await f.replica("b", can_lead=lambda: False)
    await f.settle()
    assert (b.holder, b.has_log, b.holder_address) == (holder or "", has_log, address)


async def test_who_did_not_lead_for_a_moment_begins_another_term(f: Fixture) -> None:
    elector, led = await f.replica("a"), list[bool]()
    await f.settle()
    assert elector.is_leader()
    epoch = elector.epoch

    def late(seen: Seen) -> Answer:
        answer = f.lease.answer(seen)
        f.clock.now += DEADLINE - RETRY + 0.5  # the process is stopped, or the answer is as late
        led.append(elector.is_leader_in(epoch))  # what is asked meanwhile: writers forget what they were to write
        f.server.on("PUT", "/leases", f.lease.answer)
        return answer

    f.server.on("PUT", "/leases", late)
    await f.pass_time(RETRY)
    await until(lambda: led)
    await f.settle()
    assert led == [False]
    assert not elector.is_leader_in(epoch)


# --- credentials ------------------------------------------------------------------------------------------------------


async def test_a_plugin_for_credentials_that_hangs_ends_no_term(tmp_path: Path) -> None:
    """The renewal that asks for new credentials goes out with the old ones, which may hold."""
    clock = FakeClock()  # of the credentials alone
    async with scripted() as server:
        lease = LeaseServer(server)
        path = kubeconfig(tmp_path / "k", plugin(tmp_path / "p", "2001-01-01T00:00:00Z"), server.url)
        found = await connect(path, clock=clock)
        async with KubeClient(found, request_timeout=1.0) as client:
            elector = LeaderElector(client, identity="a", lease_duration=60.0, renew_deadline=40.0, retry_period=0.05)
            async with running(elector.run()):
                await until(elector.is_leader)
                gate = hang(tmp_path / "p")
                clock.now += 61
                await until((tmp_path / "p.hung").exists)
                renewed = lease.version
                await until(lambda: lease.version > renewed + 5)
                assert elector.is_leader()
            gate.unlink()
            await found.credentials.refresh()  # the plugin ends


async def test_two_replicas_of_one_identity_know_of_each_other_until_one_is_gone(f: Fixture) -> None:
    a = await f.replica("a")
    await f.pass_time(RETRY)
    assert not a.has_rival()
    twin = LeaderElector(a.client, identity="a", clock=f.clock)
    async with running(twin.run()):
        await f.pass_time(4 * RETRY, sleepers=2)
        assert a.has_rival()
        assert twin.has_rival()
    await f.pass_time(4 * DURATION)
    assert a.is_leader()
    assert not a.has_rival()


async def test_a_replica_that_is_restarted_under_its_identity_has_no_rival(f: Fixture) -> None:
    a = await f.replica("a")
    await f.settle()
    await f.kill(a)
    again = await f.replica("a")
    await f.pass_time(3 * RETRY)
    assert again.is_leader()
    assert not again.has_rival()

"""A leader whose lists do not come in gives the Lease back, and stands again after growing pauses; time is turned."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, MutableMapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog

from tests.daemon.fakes import FakeLog
from tests.daemon.watching.test_watches import serve
from tests.kube.scripted import Answer, FakeClock, Log, ScriptedServer, client_of, failure, running, scripted, until
from tests.kube.test_lease import LeaseServer
from vcd.daemon.leadership.leadership_terms import Terms
from vcd.daemon.metrics.metrics_collector import Metrics
from vcd.daemon.options import Options
from vcd.daemon.persistence.state_writer import StateWriter
from vcd.daemon.watching.watches import Watches
from vcd.kube.client import KubeClient
from vcd.kube.lease import LeaderElector
from vcd.model.events import Event, LeadershipChanged, OperationDone, PolicyLoaded
from vcd.model.kinds import KINDS
from vcd.state.cluster_state import ClusterState

DEADLINE, STALE = 60.0, 300.0
GOOD = Answer(200, {"metadata": {"resourceVersion": "5"}, "items": []})
REFUSED = failure(403, "Forbidden", "may not list pods")


class Fixture:
    """A replica that stands for election and lists Nodes and Pods. The elector's clock goes with the others'."""

    def __init__(self, server: ScriptedServer, clocks: tuple[FakeClock, FakeClock], elector: LeaderElector) -> None:
        self.server = server
        self.elector = elector
        self.lines: Sequence[MutableMapping[str, Any]] = ()
        self.terms: Terms
        self._clocks = clocks
        self._began = clocks[0].now

    @property
    def told(self) -> list[str]:
        """Why the Lease was given back, as the log says it."""
        return [line["reason"] for line in self.lines if line["event"].startswith("the Lease is given back")]

    @property
    def passed(self) -> float:
        """Seconds since it began."""
        return self._clocks[0].now - self._began

    async def pass_time(self, seconds: float = 0.5) -> None:
        """Turn the clocks once the elector, and who looks at the lists, sleep."""
        await until(lambda: all(clock.sleeping for clock in self._clocks))
        for clock in self._clocks:
            clock.advance(seconds)

    async def pass_time_until_it_leads(self, leads: bool, limit: float) -> None:
        """Turn the clocks until it leads, or until it does not."""
        while self.elector.is_leader() != leads:
            assert self.passed < limit
            await self.pass_time()


@asynccontextmanager
async def replica(pods: Answer, *, takes_over: float = 0.0) -> AsyncIterator[Fixture]:
    """``pods`` answers the list of pods. For ``takes_over`` seconds the Lease is held and nothing is listed yet, as
    where replicas have one log."""
    async with scripted() as server, AsyncExitStack() as stack:
        client = await stack.enter_async_context(client_of(server))
        LeaseServer(server)
        serve(server, "/api/v1/nodes", "Node")
        serve(server, "/api/v1/pods", "Pod")
        server.on("GET", r"/api/v1/pods\?(?!.*watch)", pods)
        clocks, log = (FakeClock(), FakeClock()), Log()
        watches = Watches(client, log, log.sink, [KINDS["Node"], KINDS["Pod"]], clocks[1])  # type: ignore[arg-type]
        elector = LeaderElector(client, identity="a", clock=clocks[0])
        it = Fixture(server, clocks, elector)
        it.lines = stack.enter_context(structlog.testing.capture_logs())
        options = Options(list_deadline=DEADLINE, stale_deadline=STALE)
        state_writer = StateWriter(FakeLog().as_log(), ClusterState())
        terms = Terms(options, client, state_writer, watches, Metrics(), lambda: None, clocks[1], lambda: 0.5)
        terms.elector, it.terms = elector, terms
        for part in (elector.run(), terms.release_if_stale()):
            await stack.enter_async_context(running(part))
        await until(elector.is_leader)
        while it.passed < takes_over:
            await it.pass_time()
        terms.writes.set()
        await stack.enter_async_context(running(watches.run()))
        await until(lambda: bool(server.calls("GET", "/api/v1/pods")))
        yield it


async def test_a_leader_that_may_not_list_a_kind_steps_down_after_the_deadline_and_names_it() -> None:
    async with replica(REFUSED) as it:
        await it.pass_time_until_it_leads(False, 2 * DEADLINE)
        assert DEADLINE <= it.passed <= 1.2 * DEADLINE
        assert [why.partition(" (")[0] for why in it.told] == ["cannot list Pod"]


async def test_it_stands_again_after_a_pause_that_grows() -> None:
    """What is lost between a win and a loss is about one deadline; what lies between a loss and a win doubles."""
    async with replica(REFUSED) as it:
        pauses = []
        for _ in range(4):
            await it.pass_time_until_it_leads(False, it.passed + 2 * DEADLINE)
            lost = it.passed
            await it.pass_time_until_it_leads(True, it.passed + 40 * DEADLINE)
            pauses.append(it.passed - lost)
        assert pauses[0] >= DEADLINE
        assert all(later > 1.7 * earlier for earlier, later in itertools.pairwise(pauses))


@pytest.mark.parametrize("takes_over", [0.0, 1.5 * DEADLINE], ids=["from the start", "after it followed for long"])
async def test_a_leader_whose_lists_are_in_keeps_the_lease(takes_over: float) -> None:
    async with replica(GOOD, takes_over=takes_over) as it:
        while it.passed < 3 * DEADLINE:
            await it.pass_time(1.0)
            assert it.elector.is_leader()
        assert it.told == []


async def test_its_lists_have_the_whole_deadline_from_when_they_are_asked_for() -> None:
    async with replica(REFUSED, takes_over=1.5 * DEADLINE) as it:
        await it.pass_time_until_it_leads(False, 3 * DEADLINE)
        assert 2.5 * DEADLINE <= it.passed <= 2.7 * DEADLINE


async def test_a_list_that_comes_in_after_all_lets_it_lead_when_its_pause_is_over() -> None:
    async with replica(REFUSED) as it:
        await it.pass_time_until_it_leads(False, 2 * DEADLINE)
        serve(it.server, "/api/v1/pods", "Pod")
        await it.pass_time_until_it_leads(True, 5 * DEADLINE)
        while it.passed < 10 * DEADLINE:
            await it.pass_time(1.0)
            assert it.elector.is_leader()


# --- what was listed once ---------------------------------------------------------------------------------------------

FAULTS = [REFUSED, failure(500, "InternalError", "etcd"), Answer(drop=True), Answer(200, "<html>a proxy</html>")]


@asynccontextmanager
async def losing(fault: Answer) -> AsyncIterator[Fixture]:
    """A leader that has listed and watched pods, and from now on only gets ``fault`` for them."""
    async with replica(GOOD) as it:
        await until(lambda: len(it.server.calls("GET", "/pods")) == 2)
        it.server.on("GET", "/api/v1/pods", fault)
        it.server.end_watches()
        yield it


@pytest.mark.parametrize("fault", FAULTS, ids=["403", "500", "dropped", "html"])
async def test_a_leader_that_loses_a_kind_steps_down_after_the_longer_deadline_and_names_it(fault: Answer) -> None:
    async with losing(fault) as it:
        await it.pass_time_until_it_leads(False, 2 * STALE)
        assert STALE <= it.passed <= STALE + 0.3 * DEADLINE
        assert [why.partition(" (")[0] for why in it.told] == ["cannot list Pod"]


async def test_what_fails_for_less_than_that_costs_no_leadership() -> None:
    async with losing(REFUSED) as it:
        while it.passed < 0.9 * STALE:
            await it.pass_time()
        serve(it.server, "/api/v1/pods", "Pod")
        while it.passed < 3 * STALE:
            await it.pass_time()
            assert it.elector.is_leader()
        assert it.told == []


async def test_watches_that_are_silent_cost_no_leadership() -> None:
    async with replica(GOOD) as it:
        await until(lambda: len(it.server.calls("GET", "/pods")) == 2)
        while it.passed < 2 * STALE:
            await it.pass_time(1.0)
            assert it.elector.is_leader()
        assert len(it.server.calls("GET", "/pods")) == 2


async def test_where_nobody_can_do_better_it_stands_again_after_pauses_that_grow_and_asks_seldom() -> None:
    async with losing(REFUSED) as it:
        await it.pass_time_until_it_leads(False, 2 * STALE)
        lost, pauses = it.passed, []
        for _ in range(3):
            await it.pass_time_until_it_leads(True, it.passed + 40 * DEADLINE)
            pauses.append(it.passed - lost)
            await it.pass_time_until_it_leads(False, it.passed + 2 * STALE)
            lost = it.passed
        assert pauses[0] >= DEADLINE
        assert all(later > 1.7 * earlier for earlier, later in itertools.pairwise(pauses))
        assert len(it.server.calls("GET", "/pods")) < it.passed / 10


async def test_what_was_missed_before_a_term_is_not_held_against_it() -> None:
    """As where no server was there for long: who wins the Lease first may have watches that pause for longer."""
    async with losing(REFUSED) as it:
        while it.passed < 0.9 * STALE:
            await it.pass_time()
        again, elector = LeadershipChanged(2, "a", leading=True), it.terms.elector
        it.terms.elector = cast(LeaderElector, SimpleNamespace(changes=lambda: _once(again), wait_until_safe=_never))
        await it.terms._follow()
        it.terms.elector = elector
        while it.passed < 1.8 * STALE:
            await it.pass_time()
            assert it.elector.is_leader()
        await it.pass_time_until_it_leads(False, 2 * STALE)


async def _once(change: LeadershipChanged) -> AsyncIterator[LeadershipChanged]:
    yield change


async def _never() -> bool:
    return False


# --- parts that are looked at by themselves ---------------------------------------------------------------------------


async def _yes(*_: object) -> bool:
    return True


class Alone:
    """Terms whose log, watches and election are what a test says; ``logged`` is what they log."""

    def __init__(self, *, epoch: int = 0, session: int = 0, identity: str = "", replica: Any = None) -> None:
        self.logged: list[Event] = []
        self.state = SimpleNamespace(epoch=epoch, session=session, intents={})
        self.log = SimpleNamespace(failure=None)
        self.watches = SimpleNamespace(
            synced=lambda: True, wait_synced=_yes, list_again=_yes, stuck=lambda *_: {}, not_served=lambda: []
        )
        state_writer = SimpleNamespace(state=self.state, log=self.log, put=self._put, changed=asyncio.Event())
        options = Options(identity=identity, list_deadline=DEADLINE, stale_deadline=STALE)
        client = cast(KubeClient, SimpleNamespace(request_timeout=1.0))
        watches = cast(Watches, self.watches)
        self.terms = Terms(
            options,
            client,
            cast(StateWriter, state_writer),
            watches,
            Metrics(),
            lambda: None,
            make_replica=lambda _: replica,
            to_log_first=lambda: [POLICY],
        )

    async def _put(self, events: Sequence[Event]) -> None:
        self.logged += events

    async def lead(self, epoch: int, holds: bool = True) -> None:
        """Let it win the Lease."""
        elector = SimpleNamespace(
            wait_until_safe=_yes, is_leader_in=lambda other: holds and other == epoch, identity="a"
        )
        self.terms.elector = cast(LeaderElector, elector)
        await self.terms._lead(LeadershipChanged(epoch, "a", leading=True))


POLICY, WON = PolicyLoaded("digest", ""), LeadershipChanged(5, "a", leading=True)


@pytest.mark.parametrize(
    ("epoch", "session", "last"),
    [(0, 0, -1), (0, 3, 0), (4, 0, 4), (4, 3, 4)],
    ids=["an empty log", "sessions of epoch 0", "an epoch without sessions", "an epoch and sessions"],
)
async def test_an_epoch_that_the_log_knows_is_not_used_again(epoch: int, session: int, last: int) -> None:
    """Epoch 0 is in a log only if there is a session: an empty log has it, too."""
    assert Alone(epoch=epoch, session=session).terms.elector.last_epoch == last


async def test_an_identity_that_is_not_given_is_of_this_process_alone() -> None:
    assert Alone(identity="given").terms.elector.identity == "given"
    first, second = (Alone().terms.elector.identity for _ in range(2))
    assert first != second
    assert first.startswith(f"{socket.gethostname()}_")


async def test_it_decides_only_while_it_leads_sees_all_lists_and_can_write_its_log() -> None:
    it = Alone()
    assert it.terms.epoch_to_decide_under() is None
    await it.lead(5)
    assert (it.terms.leads(), it.terms.epoch_to_decide_under()) == (True, 5)
    it.watches.synced = lambda: False
    assert it.terms.epoch_to_decide_under() is None
    it.watches.synced, it.log.failure = lambda: True, OSError("disk full")
    assert it.terms.epoch_to_decide_under() is None
    it.log.failure = None
    it.terms.elector = cast(LeaderElector, SimpleNamespace(is_leader_in=lambda _: False))
    assert (it.terms.leads(), it.terms.epoch_to_decide_under()) == (False, None)


@pytest.mark.parametrize("follows", [False, True], ids=["a log of its own", "one log"])
async def test_a_term_begins_with_what_its_log_has_to_say(follows: bool) -> None:
    """Which term it is, once; the policy where the log was another's; and what never happened in the term before."""
    replica = SimpleNamespace(become_leader=_yes) if follows else None
    it = Alone(replica=replica)
    it.state.intents["default/p"] = SimpleNamespace(session=3, statement=0, operation=1)
    await it.lead(5)
    failed = OperationDone(3, 0, 1, "failed", "not to be seen when the next term began")
    assert it.logged == [WON, *([POLICY] if follows else []), failed]


@pytest.mark.parametrize("first", [5.0, DEADLINE], ids=["a short list deadline", "a long one"])
async def test_kinds_that_are_not_listed_are_noticed_before_the_lease_is_given_back(first: float) -> None:
    it = Alone()
    it.terms._deadlines = (first, STALE)
    it.watches.stuck = lambda *deadlines: {"Pod": f"after {deadlines[0]:g} s and {deadlines[1]:g} s"}
    it.watches.not_served = lambda: ["PodGroup"]
    assert {kind: sighting.message for kind, sighting in it.terms.kinds_not_listed().items()} == {
        "Pod": f"after {min(first, 10.0):g} s and 300 s",
        "PodGroup": "the API server does not serve it",
    }

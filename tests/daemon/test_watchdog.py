"""Plugins that take too long: interrupted where they are, left out, recorded; and nobody else is hit."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import pytest

from tests.daemon.fakes import FakeLog
from tests.daemon.test_cycle import puts
from tests.daemon.test_metrics import value
from tests.dsl import NOW_NS, gang, node, session_of
from tests.kube.scripted import FakeClock
from vcd.api import read_policy
from vcd.daemon import watchdog as module
from vcd.daemon.cycle import Cycle
from vcd.daemon.faults import CHANGE, REPEAT, FaultNews
from vcd.daemon.keeper import Keeper
from vcd.daemon.metrics import Metrics
from vcd.daemon.options import OptionError, parse_options
from vcd.daemon.watchdog import ACTION_ALLOWANCE, LONGEST_PAUSE, PAUSES, STUCK, Watchdog
from vcd.eventlog.plain import event_line
from vcd.eventlog.rows import Logged
from vcd.model import events as ev
from vcd.model.manifests import default_queues
from vcd.scheduling.decide import decide
from vcd.scheduling.framework import registry
from vcd.scheduling.framework.action import Action
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.framework.guard import Gate, Interrupted
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.session.outside import Question, Recorded, Reply
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job
from vcd.state.cluster import ClusterState
from vcd.state.snapshot import Snapshot, SnapshotMaker
from vcd.timetravel.why.placement import choices

CONF = "actions: allocate\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n"
WITH = CONF + "  - name: slow\n"
LIMIT = 0.4
POLICY = read_policy(CONF)


# --- with a clock that a test turns -----------------------------------------------------------------------------------


class Asked:
    """What would be raised in the deciding thread, and was taken back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.raised: list[int] = []
        self.taken_back: list[int] = []
        monkeypatch.setattr(module, "_interrupt", self.raised.append)
        monkeypatch.setattr(module, "_take_back", self.taken_back.append)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def dog(clock: FakeClock) -> Watchdog:
    made = Watchdog(5.0, clock.monotonic)
    made.begin(POLICY)
    return made


def overdue(dog: Watchdog, clock: FakeClock, name: str = "slow", point: str = "job_order") -> str:
    """A session in which one plugin takes too long; the verdict."""
    dog.begin(POLICY)
    dog.enter(name, point)
    clock.advance(5.1 * (ACTION_ALLOWANCE if name.startswith("action ") else 1))
    dog.check()
    with pytest.raises(Interrupted):
        dog.leave(0)
    verdict = dog.verdict()
    dog.end()
    return verdict


def test_nobody_is_interrupted_within_the_limit(dog: Watchdog, clock: FakeClock, asked: Asked) -> None:
    dog.enter("slow", "open")
    clock.advance(5.0)
    dog.check()
    dog.leave(0)
    assert asked.raised == []


def test_who_is_over_the_limit_is_interrupted_in_its_thread(dog: Watchdog, clock: FakeClock, asked: Asked) -> None:
    dog.enter("slow", "open")
    clock.advance(5.1)
    dog.check()
    assert asked.raised == [threading.get_ident()]


def test_who_was_interrupted_has_its_time_anew(dog: Watchdog, clock: FakeClock, asked: Asked) -> None:
    """It may stay in the session, which is decided again, though it does nothing in it any more."""
    dog.enter("slow", "open")
    clock.advance(5.1)
    dog.check()
    with pytest.raises(Interrupted):
        dog.leave(0)
    dog.verdict()
    dog.enter("slow", "open")
    clock.advance(1.0)
    dog.check()
    dog.leave(0)
    assert len(asked.raised) == 1


def test_the_times_of_a_session_add_up(dog: Watchdog, clock: FakeClock, asked: Asked) -> None:
    for _ in range(2):
        dog.enter("slow", "job_order")
        clock.advance(2.0)
        dog.leave(0)
    dog.enter("slow", "job_order")
    clock.advance(1.1)
    dog.check()
    assert len(asked.raised) == 1


def test_the_time_between_its_points_is_not_its_own(dog: Watchdog, clock: FakeClock, asked: Asked) -> None:
    for _ in range(4):
        dog.enter("slow", "job_order")
        clock.advance(1.0)
        dog.leave(0)
        clock.advance(100.0)
        dog.check()
    assert asked.raised == []


def test_each_session_begins_anew(dog: Watchdog, clock: FakeClock, asked: Asked) -> None:
    for _ in range(3):
        dog.begin(POLICY)
        dog.enter("slow", "open")
        clock.advance(4.0)
        dog.check()
        dog.leave(0)
        dog.end()
    assert asked.raised == []


def test_the_time_in_another_plugin_is_that_plugins(dog: Watchdog, clock: FakeClock, asked: Asked) -> None:
    """One that asks the session asks other plugins, which are to blame for their own time."""
    dog.enter("asks", "open")
    clock.advance(3.0)
    dog.enter("slow", "job_order")
    clock.advance(4.0)
    dog.leave(1)
    clock.advance(1.9)
    dog.check()
    assert asked.raised == []
    dog.enter("slow", "job_order")
    clock.advance(1.1)
    dog.check()
    with pytest.raises(Interrupted):
        dog.leave(0)
    assert dog.verdict().startswith("slow: ")


def test_who_comes_back_before_the_exception_takes_it_back(dog: Watchdog, clock: FakeClock, asked: Asked) -> None:
    dog.enter("slow", "open")
    clock.advance(5.1)
    dog.check()
    with pytest.raises(Interrupted):
        dog.leave(0)
    assert asked.taken_back == asked.raised


def test_who_goes_on_into_another_plugin_is_stopped_there(dog: Watchdog, clock: FakeClock, asked: Asked) -> None:
    dog.enter("slow", "open")
    clock.advance(5.1)
    dog.check()
    with pytest.raises(Interrupted):
        dog.enter("other", "job_order")
    with pytest.raises(Interrupted):  # it may have caught that
        dog.leave(0)
    assert dog.verdict().startswith("slow: ")


def test_who_catches_the_exception_is_interrupted_again(dog: Watchdog, clock: FakeClock, asked: Asked) -> None:
    dog.enter("slow", "open")
    clock.advance(5.1)
    for _ in range(3):
        dog.check()
        dog.check()
        clock.advance(1.0)
    assert len(asked.raised) == 3


def test_nobody_is_interrupted_once_it_has_come_back(dog: Watchdog, clock: FakeClock, asked: Asked) -> None:
    """It comes out of the session then, and what came in the midst of that would end the program."""
    dog.enter("slow", "open")
    clock.advance(5.1)
    dog.check()
    for _ in range(2):
        with pytest.raises(Interrupted):
            dog.leave(0)
    clock.advance(100.0)
    dog.check()
    assert len(asked.raised) == 1


def test_who_catches_what_came_from_a_plugin_within_it_is_interrupted_again(
    dog: Watchdog, clock: FakeClock, asked: Asked
) -> None:
    dog.enter("slow", "open")
    dog.enter("quick", "job_order")
    dog.leave(1)
    clock.advance(5.1)
    dog.check()
    for _ in range(2):
        with pytest.raises(Interrupted):
            dog.enter("quick", "job_order")
        clock.advance(1.1)
        dog.check()
    assert len(asked.raised) == 3


def test_nobody_is_interrupted_after_the_verdict(dog: Watchdog, clock: FakeClock, asked: Asked) -> None:
    overdue(dog, clock)
    clock.advance(100.0)
    dog.check()
    assert len(asked.raised) == 1


def test_a_verdict_names_plugin_point_and_limit(dog: Watchdog, clock: FakeClock, asked: Asked) -> None:
    assert overdue(dog, clock) == "slow: interrupted at job_order, since it took more than 5 s in one session"


def test_an_action_may_take_longer(dog: Watchdog, clock: FakeClock, asked: Asked) -> None:
    dog.enter("action slow", "execute")
    clock.advance(5.0 * ACTION_ALLOWANCE)
    dog.check()
    dog.leave(0)
    assert asked.raised == []
    verdict = overdue(dog, clock, "action slow", "execute")
    assert verdict == "action slow: interrupted at execute, since it took more than 50 s in one session"


def test_who_was_interrupted_is_left_out_for_a_while(dog: Watchdog, clock: FakeClock, asked: Asked) -> None:
    verdict = overdue(dog, clock)
    clock.advance(5.0 * PAUSES - 0.1)
    assert dog.begin(POLICY) == (verdict,)
    dog.end()
    clock.advance(0.2)
    assert dog.begin(POLICY) == ()


def test_it_is_left_out_for_longer_each_time(dog: Watchdog, clock: FakeClock, asked: Asked) -> None:
    pauses = []
    for _ in range(6):
        overdue(dog, clock)
        began = clock.now
        while dog.begin(POLICY):
            dog.end()
            clock.advance(1.0)
        pauses.append(clock.now - began)
    assert pauses == pytest.approx([50.0, 100.0, 200.0, 400.0, LONGEST_PAUSE, LONGEST_PAUSE])


def test_who_keeps_to_the_limit_has_no_past(dog: Watchdog, clock: FakeClock, asked: Asked) -> None:
    overdue(dog, clock)
    clock.advance(50.0)
    assert dog.begin(POLICY) == ()
    dog.enter("slow", "open")
    dog.leave(0)
    dog.end()
    overdue(dog, clock)
    clock.advance(50.0)
    assert dog.begin(POLICY) == ()


def test_another_policy_tries_it_again(dog: Watchdog, clock: FakeClock, asked: Asked) -> None:
    overdue(dog, clock)
    assert dog.begin(read_policy(CONF + "  - name: drf\n")) == ()


def test_who_cannot_be_interrupted_makes_the_process_unhealthy(dog: Watchdog, clock: FakeClock, asked: Asked) -> None:
    dog.enter("slow", "open")
    clock.advance(5.1)
    dog.check()
    assert dog.stuck() is None
    clock.advance(STUCK + 0.1)
    assert dog.stuck() == "slow does not come back from open, and cannot be interrupted"
    with pytest.raises(Interrupted):
        dog.leave(0)
    dog.verdict()
    assert dog.stuck() is None


def test_an_interruption_from_elsewhere_is_an_error(dog: Watchdog) -> None:
    with pytest.raises(RuntimeError, match="not by the watchdog"):
        dog.verdict()


# --- in threads -------------------------------------------------------------------------------------------------------


@contextmanager
def checking(dog: Watchdog) -> Iterator[None]:
    """Another thread that looks as often as it can."""
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            dog.check()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def spin(seconds: float) -> int:
    """Python for so long."""
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        count += 1
    return count


def test_only_who_is_late_is_hit_however_close_it_comes() -> None:
    """Many sessions that end about when the exception is asked for: it must come out of the slow one, or not at all."""
    dog = Watchdog(0.001)
    slow, quick = Gate("slow", dog), Gate("quick", dog)
    chance = random.Random(7)
    outcomes: list[str] = []

    def session() -> str:
        dog.begin(POLICY)
        try:
            quick.ask("open", None, (), spin, 0.0)
            slow.ask("open", None, (), lambda: quick.ask("job_order", None, (), spin, 0.0))
            slow.ask("job_order", None, (), spin, chance.uniform(0.0005, 0.0015))
            quick.ask("close", None, (), spin, 0.0)
        except Interrupted:
            return dog.verdict().partition(":")[0]
        finally:
            dog.end()
        return "in time"

    with checking(dog):
        while len(outcomes) < 300 or min(outcomes.count("slow"), outcomes.count("in time")) < 20:
            outcomes.append(session())
            spin(0.0002)  # what was asked for too late would be raised here, and fail the test
    assert set(outcomes) <= {"slow", "in time", "quick"}


def test_an_endless_loop_that_catches_everything_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AGAIN", 0.001)
    dog = Watchdog(0.01)

    def stubborn() -> None:
        while True:
            with contextlib.suppress(BaseException):
                spin(0)

    with checking(dog), pytest.raises(Interrupted):
        dog.begin(POLICY)
        Gate("slow", dog).ask("open", None, (), stubborn)
    assert dog.verdict().startswith("slow: ")


# --- in cycles --------------------------------------------------------------------------------------------------------


class Slow(Plugin):
    """Never comes back from a point once there is a group."""

    name = "slow"

    def job_order(self, job: Job) -> int:
        while True:
            pass


class SlowToOpen(Slow):
    def open(self, session: Session) -> None:
        while True:
            pass


class SlowToShow(Plugin):
    name = "slow"

    def gauges(self) -> Any:
        while True:
            pass


class SlowToFail(Plugin):
    """Catches what it can, and fails in another way then."""

    name = "slow"

    def job_order(self, job: Job) -> int:
        try:
            while True:
                pass
        finally:
            raise RuntimeError("what was that?")


class Endless(Action):
    name = "slow"

    def execute(self, framework: Framework) -> None:
        while True:
            pass


def offered(monkeypatch: pytest.MonkeyPatch, **kinds: type[Plugin]) -> None:
    known = MappingProxyType({**registry.plugins(), **kinds})
    monkeypatch.setattr(registry, "plugins", lambda: known)


class Replica:
    """A cycle with a watchdog on a fake log."""

    def __init__(self, conf: str = WITH, limit: float = LIMIT, **options: Any) -> None:
        self.log = FakeLog()
        self.keeper = Keeper(self.log.as_log(), ClusterState())
        self.policy = read_policy(conf)
        self.watchdog = Watchdog(limit)
        self.handed: list[tuple[ev.Plan, Session]] = []
        self.cycle = Cycle(
            self.keeper,
            lambda: self.policy,
            lambda: 1,
            lambda record, plan, session, durations: self.handed.append((plan, session)),
            clock=lambda: NOW_NS,
            watchdog=self.watchdog,
            **options,
        )

    async def happen(self, *objects: Any) -> None:
        await self.keeper.put(puts(*objects))

    def snapshot(self, record: ev.SessionDecided) -> Snapshot:
        """What a session was decided from."""
        state = ClusterState()
        for sequence, event in enumerate(self.log.appended[: record.head], 1):
            state.apply(sequence, event)
        return SnapshotMaker(state).snapshot()

    def again(self, record: ev.SessionDecided, **options: Any) -> ev.Plan:
        """A recorded session decided from the log, as a replay does it."""
        given = (self.snapshot(record), self.policy, record.now, record.seed)
        return decide(*given, interrupted=record.interrupted, **options)


async def with_a_gang(replica: Replica) -> Replica:
    await replica.happen(*default_queues([]), node("n", cpu=4), gang("g", 1, cpu=1))
    return replica


FAULT = f"slow: interrupted at {{}}, since it took more than {LIMIT:g} s in one session"


@pytest.mark.parametrize(
    ("plugin", "point"),
    [(Slow, "job_order"), (SlowToOpen, "open"), (SlowToShow, "gauges")],
)
async def test_a_session_goes_on_without_a_plugin_that_does_not_come_back(
    monkeypatch: pytest.MonkeyPatch, plugin: type[Plugin], point: str
) -> None:
    offered(monkeypatch, slow=plugin)
    replica = await with_a_gang(Replica())
    if plugin is Slow:
        await replica.happen(gang("h", 1, cpu=1))
    await replica.cycle.once(1)
    (record,) = replica.log.sessions
    plan = ev.decode_plan(record.plan)
    assert record.interrupted == plan.faults == (FAULT.format(point),)
    assert "default/g-0" in [op.key for s in plan.statements for op in s.operations]


async def test_its_replay_gives_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, slow=Slow)
    replica = await with_a_gang(Replica())
    await replica.cycle.once(1)
    (record,) = replica.log.sessions
    assert record.interrupted
    assert ev.encode_plan(replica.again(record)) == record.plan


async def test_a_plugin_that_raises_beside_it_is_named_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the session as in its replay, though it raised before the other one was interrupted."""

    class Raises(Plugin):
        name = "raises"

        def open(self, session: Session) -> None:
            raise RuntimeError("no")

    offered(monkeypatch, slow=Slow, raises=Raises)
    replica = await with_a_gang(Replica(WITH.replace("  - name: slow", "  - name: raises\n  - name: slow")))
    await replica.cycle.once(1)
    (record,) = replica.log.sessions
    assert ev.decode_plan(record.plan).faults == (FAULT.format("job_order"), "raises: RuntimeError('no')")
    assert ev.encode_plan(replica.again(record)) == record.plan


async def test_who_raises_when_it_is_interrupted_is_told_as_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, slow=SlowToFail)
    replica = await with_a_gang(Replica())
    await replica.cycle.once(1)
    assert replica.log.sessions[0].interrupted == (FAULT.format("job_order"),)


async def test_two_that_do_not_come_back_are_both_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(SlowToOpen):
        name = "other"

    offered(monkeypatch, slow=Slow, other=Other)
    replica = await with_a_gang(Replica(WITH + "  - name: other\n"))
    await replica.cycle.once(1)
    (record,) = replica.log.sessions
    assert [fault.partition(":")[0] for fault in record.interrupted] == ["other", "slow"]
    assert ev.encode_plan(replica.again(record)) == record.plan


async def test_an_action_that_does_not_come_back_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    known = MappingProxyType({**registry.actions(), "slow": Endless})
    monkeypatch.setattr(registry, "actions", lambda: known)
    replica = await with_a_gang(Replica(CONF.replace("allocate", '"slow, allocate"'), limit=0.02))
    await replica.cycle.once(1)
    (record,) = replica.log.sessions
    assert record.interrupted == ("action slow: interrupted at execute, since it took more than 0.2 s in one session",)
    assert replica.keeper.state.intents["default/g-0"].node == "n"
    assert ev.encode_plan(replica.again(record)) == record.plan


async def test_the_loop_turns_while_a_plugin_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, slow=Slow)
    replica = await with_a_gang(Replica())
    session = asyncio.ensure_future(replica.cycle.once(1))
    turns = 0
    while not session.done():
        await replica.happen(node("m", cpu=turns % 3 + 1))  # what a watch does with a change
        turns += 1
    await session
    assert turns > 10
    assert replica.log.sessions[0].head < replica.keeper.state.sequence - 10


async def test_later_sessions_do_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []

    class Counted(Slow):
        def open(self, session: Session) -> None:
            opened.append(1)

    offered(monkeypatch, slow=Counted)
    replica = await with_a_gang(Replica(limit=LIMIT))
    for name in ("a", "b", "c"):
        await replica.happen(gang(name, 1, cpu=1))
        await replica.cycle.once(1)
    first, *others = replica.log.sessions
    assert opened == [1]
    assert [record.interrupted for record in others] == [first.interrupted] * 2
    assert all(ev.encode_plan(replica.again(record)) == record.plan for record in replica.log.sessions)


async def test_what_it_asked_the_world_outside_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session was decided without it: a replay has nobody who asks again."""

    class Server:
        def ask(self, question: Question) -> Reply:
            return Reply(question.body)

    def ask(session: Session, body: bytes) -> None:
        session.outside.ask(Question("asks", "http://server/", body, 10**9, 100))

    class Asks(Plugin):
        name = "asks"

        def open(self, session: Session) -> None:
            ask(session, b"good")

    class AsksAndStays(Slow):
        def open(self, session: Session) -> None:
            ask(session, b"bad")

    offered(monkeypatch, asks=Asks, slow=AsksAndStays)
    replica = await with_a_gang(Replica(WITH + "  - name: asks\n", outside=Server()))
    await replica.cycle.once(1)
    (record,) = replica.log.sessions
    assert record.interrupted
    assert [asked.answer for asked in record.asked] == [b"good"]
    outside = Recorded(record.asked)
    assert ev.encode_plan(replica.again(record, outside=outside)) == record.plan
    assert outside.departure() is None


async def test_it_is_looked_after_when_the_program_ends_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the program would wait for its thread for ever."""
    offered(monkeypatch, slow=Slow)
    replica = await with_a_gang(Replica())
    session = asyncio.ensure_future(replica.cycle.once(1))
    while not replica.watchdog._inside:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    session.cancel()
    await asyncio.wait([session])
    while replica.watchdog._inside or replica.watchdog._deciding:  # noqa: ASYNC110 - fails by the test's time-out
        await asyncio.sleep(0.001)


async def test_nothing_looks_after_a_session_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = await with_a_gang(Replica(CONF))
    checks: list[int] = []
    monkeypatch.setattr(replica.watchdog, "check", lambda: checks.append(1))
    await replica.cycle.once(1)
    assert replica.watchdog._next_look is not None
    assert replica.watchdog._next_look.cancelled()


async def test_gauges_are_asked_for_in_the_thread_that_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the loop they would stop the watches and the lease."""
    threads: list[int] = []

    class Shows(Plugin):
        name = "slow"

        def gauges(self) -> Any:
            threads.append(threading.get_ident())
            return ()

    offered(monkeypatch, slow=Shows)
    replica = await with_a_gang(Replica())
    await replica.cycle.once(1)
    plan, session = replica.handed[0]
    Metrics().observe_session(session, plan, replica.log.sessions[0], {})
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


async def test_who_explains_a_session_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, slow=Slow)
    replica = await with_a_gang(Replica())
    await replica.cycle.once(1)
    (record,) = replica.log.sessions
    made = choices(replica.snapshot(record), replica.policy, record, {"default/g-0"})
    assert made["default/g-0"].node == "n"


async def test_the_log_shows_who_was_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, slow=Slow)
    replica = await with_a_gang(Replica())
    await replica.cycle.once(1)
    (record,) = replica.log.sessions
    line = event_line(Logged(7, NOW_NS, record))
    assert line["what"].endswith(f" 0 stale; failed and left out: {FAULT.format('job_order')}")
    assert line["event"]["interrupted"] == (FAULT.format("job_order"),)


def test_an_action_is_counted_under_its_name() -> None:
    session = session_of(node("n"))
    metrics = Metrics()
    metrics.observe_session(session, ev.Plan(faults=("action odd: RuntimeError('a: b')",)), None, {})
    assert value(metrics, "vcd_plugin_faults_total", plugin="action odd") == 1


@pytest.mark.parametrize(("given", "limit"), [([], 5.0), (["0"], 0.0), (["1m30s"], 90.0)])
def test_the_limit_is_a_flag(given: list[str], limit: float) -> None:
    assert parse_options({"plugin-timeout": given}).plugin_timeout == limit


def test_the_limit_is_not_negative() -> None:
    with pytest.raises(OptionError, match="--plugin-timeout: must be at least 0"):
        parse_options({"plugin-timeout": ["-1s"]})


# --- news -------------------------------------------------------------------------------------------------------------


def news(clock: FakeClock) -> Callable[[str], bool]:
    return FaultNews(clock.monotonic).is_news


def test_a_fault_that_lasts_is_told_now_and_then(clock: FakeClock) -> None:
    is_news = news(clock)
    told = 0
    for _ in range(int(REPEAT) * 3):
        told += is_news("slow: too slow")
        clock.advance(1.0)
    assert told == 3


def test_other_words_are_told_sooner(clock: FakeClock) -> None:
    is_news = news(clock)
    told = 0
    for second in range(int(CHANGE) * 3):
        told += is_news(f"slow: pod-{second} is odd")
        clock.advance(1.0)
    assert told == 3


def test_each_plugin_is_news(clock: FakeClock) -> None:
    is_news = news(clock)
    assert [is_news("a: no"), is_news("b: no"), is_news("a: no")] == [True, True, False]

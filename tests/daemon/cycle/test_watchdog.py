"""Plugins that take too long: noticed when they come back, or by the loop where they do not; left out, and recorded."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tests.daemon.cycle.test_session_loop import puts
from tests.daemon.fakes import FakeLog
from tests.daemon.metrics.test_metrics_collector import value
from tests.daemon.pages import observe_session
from tests.dsl import NOW_NS, gang, node, session_of
from tests.kube.scripted import FakeClock, until
from tests.waiting import WAIT_LIMIT
from vcd.daemon.cycle import watchdog
from vcd.daemon.cycle.session_loop import Cycle
from vcd.daemon.cycle.watchdog import ACTION_ALLOWANCE, LONGEST_PAUSE, PAUSES, Watchdog
from vcd.daemon.metrics.metrics_collector import Metrics
from vcd.daemon.options import OptionError, parse_options
from vcd.daemon.persistence.state_writer import StateWriter, restore
from vcd.eventlog.event_lines import format_event_line
from vcd.eventlog.log_writer import EventLog
from vcd.eventlog.rows import Logged
from vcd.model import events as ev
from vcd.model.manifests import default_queues
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import decide
from vcd.scheduling.framework import registry
from vcd.scheduling.framework.action import Action
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.framework.guard import Gate, Interrupted
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.session.outside import Question, Recorded, Reply
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import Snapshot, SnapshotMaker
from vcd.timetravel.history import opened
from vcd.timetravel.why.placement import choices

CONF = "actions: allocate\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n"
WITH = CONF + "  - name: slow\n"
LIMIT = 5.0
LATE = LIMIT + 0.1
POLICY = read_policy(CONF)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


# --- sessions as its gates see them -----------------------------------------------------------------------------------


class Kennel:
    """A watchdog on a fake log, whose sessions a test goes through."""

    def __init__(self, clock: FakeClock, limit: float = LIMIT) -> None:
        self.clock = clock
        self.log = FakeLog()
        self.state_writer = StateWriter(self.log.as_log(), ClusterState())
        self.dog = Watchdog(self.state_writer, limit, clock.monotonic, clock.wall)

    async def session(self, deciding: Callable[[Watchdog], None]) -> tuple[tuple[str, ...], str]:
        """Go through a session: who is left out of it from the beginning, and who was late in it."""
        left_out = self.dog.begin(self.clock.wall())

        async def decide() -> str:
            try:
                deciding(self.dog)
            except Interrupted:
                return self.dog.verdict()
            return ""

        return left_out, await self.dog.attend(decide())

    async def late(self, name: str = "slow", point: str = "job_order") -> str:
        """A session in which one takes too long."""
        seconds = LATE * (ACTION_ALLOWANCE if name.startswith("action ") else 1)
        return (await self.session(lambda dog: self.ask(name, point, seconds)))[1]

    def ask(self, name: str, point: str, *seconds: float) -> None:
        for each in seconds:
            Gate(name, self.dog).ask(point, None, (), self.clock.advance, each)

    @property
    def told(self) -> list[ev.PluginLate]:
        return [event for event in self.log.appended if isinstance(event, ev.PluginLate)]


@pytest.fixture
def kennel(clock: FakeClock) -> Kennel:
    return Kennel(clock)


async def test_who_keeps_to_the_limit_goes_on(kennel: Kennel) -> None:
    assert await kennel.session(lambda dog: kennel.ask("slow", "open", LIMIT)) == ((), "")
    assert kennel.told == []


async def test_who_comes_back_late_ends_the_session_at_its_gate(kennel: Kennel) -> None:
    after: list[int] = []

    def deciding(dog: Watchdog) -> None:
        kennel.ask("slow", "open", LATE)
        after.append(1)

    assert await kennel.session(deciding) == ((), "slow: took more than 5 s in one session, at open")
    assert after == []


async def test_the_times_of_a_session_add_up(kennel: Kennel) -> None:
    _, late = await kennel.session(lambda dog: kennel.ask("slow", "job_order", 2.0, 2.0, 1.1))
    assert late


async def test_the_time_between_its_points_is_not_its_own(kennel: Kennel) -> None:
    def deciding(dog: Watchdog) -> None:
        for _ in range(4):
            kennel.ask("slow", "job_order", 1.0)
            kennel.clock.advance(100.0)

    assert await kennel.session(deciding) == ((), "")


async def test_each_session_begins_anew(kennel: Kennel) -> None:
    for _ in range(3):
        assert await kennel.session(lambda dog: kennel.ask("slow", "open", 4.0)) == ((), "")


@pytest.mark.parametrize(("again", "late"), [(LIMIT, ""), (LATE, "asks")])
async def test_the_time_in_another_plugin_is_that_plugins(kennel: Kennel, again: float, late: str) -> None:
    """One that asks the session asks other plugins, which are to blame for their own time."""

    def asks() -> None:
        kennel.ask("slow", "job_order", 4.9)
        kennel.clock.advance(again)

    _, fault = await kennel.session(lambda dog: Gate("asks", dog).ask("open", None, (), asks))
    assert fault.partition(":")[0] == late


async def test_who_catches_what_came_from_a_plugin_within_it_is_stopped_at_its_own_gate(kennel: Kennel) -> None:
    def asks() -> None:
        with pytest.raises(Interrupted):
            kennel.ask("slow", "job_order", LATE)
        with pytest.raises(Interrupted):  # nor does it get any further
            kennel.ask("quick", "job_order", 0.0)

    _, late = await kennel.session(lambda dog: Gate("asks", dog).ask("open", None, (), asks))
    assert late.startswith("slow: ")


async def test_who_waits_for_an_answer_is_stopped_while_it_waits(kennel: Kennel) -> None:
    def waits() -> None:
        kennel.clock.advance(LATE)
        kennel.dog.check()
        raise AssertionError("it went on")

    _, late = await kennel.session(lambda dog: Gate("slow", dog).ask("open", None, (), waits))
    assert late.startswith("slow: ")


async def test_who_raises_when_it_comes_back_late_is_told_as_late(kennel: Kennel) -> None:
    def fails() -> None:
        kennel.clock.advance(LATE)
        raise RuntimeError("what was that?")

    _, late = await kennel.session(lambda dog: Gate("slow", dog).ask("open", None, (), fails))
    assert late == "slow: took more than 5 s in one session, at open"


async def test_one_that_stays_has_its_time_anew(kennel: Kennel) -> None:
    """It takes part in the session that is decided again, though it does nothing in it any more."""

    def deciding(dog: Watchdog) -> None:
        with pytest.raises(Interrupted):
            kennel.ask("slow", "open", LATE)
        dog.verdict()
        kennel.ask("slow", "open", 1.0)

    assert await kennel.session(deciding) == ((), "")


async def test_an_action_may_take_longer(kennel: Kennel) -> None:
    assert await kennel.session(lambda dog: kennel.ask("action slow", "execute", LIMIT * ACTION_ALLOWANCE)) == ((), "")
    assert await kennel.late("action slow", "execute") == (
        "action slow: took more than 50 s in one session, at execute"
    )


async def test_without_a_limit_nobody_is_late(clock: FakeClock) -> None:
    kennel = Kennel(clock, math.inf)
    assert await kennel.session(lambda dog: kennel.ask("slow", "open", 1e9)) == ((), "")


async def test_an_interruption_from_elsewhere_is_an_error(kennel: Kennel) -> None:
    with pytest.raises(RuntimeError, match="not by the watchdog"):
        kennel.dog.verdict()


# --- pauses -----------------------------------------------------------------------------------------------------------


async def test_who_was_late_is_left_out_for_a_while(kennel: Kennel) -> None:
    fault = await kennel.late()
    assert [(late.name, late.fault, late.pause) for late in kennel.told] == [("slow", fault, int(LIMIT * PAUSES * 1e9))]
    kennel.clock.advance(LIMIT * PAUSES - 0.1)
    assert kennel.dog.begin(kennel.clock.wall()) == (fault,)
    kennel.clock.advance(0.2)
    assert kennel.dog.begin(kennel.clock.wall()) == ()


async def test_it_is_left_out_for_longer_each_time(kennel: Kennel) -> None:
    for _ in range(6):
        await kennel.late()
        kennel.clock.advance(kennel.told[-1].pause / 1e9)
    pauses = [late.pause / 1e9 for late in kennel.told]
    assert pauses == [50.0, 100.0, 200.0, 400.0, LONGEST_PAUSE, LONGEST_PAUSE]


async def test_who_kept_to_the_limit_for_as_long_again_has_no_past(kennel: Kennel) -> None:
    await kennel.late()
    kennel.clock.advance(2 * LIMIT * PAUSES)
    await kennel.late()
    assert [late.pause / 1e9 for late in kennel.told] == [50.0, 50.0]


async def test_a_limit_beyond_the_longest_pause_is_no_reason_for_a_shorter_one(clock: FakeClock) -> None:
    kennel = Kennel(clock, 100.0)
    for _ in range(2):
        await kennel.session(lambda dog: kennel.ask("slow", "open", 100.1))
        clock.advance(1000.0)
    assert [late.pause / 1e9 for late in kennel.told] == [1000.0, 1000.0]


async def test_another_policy_tries_it_again(kennel: Kennel) -> None:
    await kennel.state_writer.put([ev.PolicyLoaded("one", CONF)])
    await kennel.late()
    await kennel.state_writer.put([ev.PolicyLoaded("one", CONF, {"a": "setting"})])
    assert kennel.dog.begin(kennel.clock.wall()) != ()
    await kennel.state_writer.put([ev.PolicyLoaded("two", CONF)])
    assert kennel.dog.begin(kennel.clock.wall()) == ()


@pytest.mark.parametrize("checkpointed", [False, True])
async def test_who_was_late_is_left_out_after_a_restart(tmp_path: Path, clock: FakeClock, checkpointed: bool) -> None:
    path = tmp_path / "log"
    kennel = Kennel(clock)
    fault = await kennel.late()
    async with EventLog.open(path, clock=clock.wall) as log:
        state_writer = StateWriter(log, ClusterState())
        await state_writer.put(kennel.told)
        if checkpointed:
            await log.checkpoint(state_writer.state.sequence, state_writer.state.dump())
    again = Watchdog(StateWriter(FakeLog().as_log(), restore(path)), LIMIT, clock.monotonic, clock.wall)
    assert again.begin(clock.wall()) == (fault,)
    clock.advance(LIMIT * PAUSES)
    assert again.begin(clock.wall()) == ()


# --- who does not come back -------------------------------------------------------------------------------------------


class Hung:
    """A plugin or action that is in until a test lets it go."""

    def __init__(self) -> None:
        self.inside = threading.Event()
        self.released = threading.Event()

    def __call__(self, *_: object) -> None:
        self.inside.set()
        assert self.released.wait(WAIT_LIMIT)


@pytest.fixture
def hung() -> Iterator[Hung]:
    made = Hung()
    yield made
    made.released.set()


async def test_who_does_not_come_back_is_told_at_once(kennel: Kennel, hung: Hung) -> None:
    def deciding(dog: Watchdog) -> None:
        Gate("slow", dog).ask("open", None, (), hung)

    kennel.dog.begin(kennel.clock.wall())
    waiting = asyncio.ensure_future(kennel.dog.attend(asyncio.to_thread(deciding, kennel.dog)))
    await until(hung.inside.is_set)
    assert (kennel.dog.stuck(), kennel.told) == (None, [])
    kennel.clock.advance(LATE)
    await until(lambda: kennel.told)
    assert kennel.told[0].fault == "slow: took more than 5 s in one session, at open"
    assert kennel.dog.stuck() == "slow does not come back from open"
    hung.released.set()
    with pytest.raises(Interrupted):
        await waiting
    kennel.dog.verdict()
    assert kennel.dog.stuck() is None
    assert len(kennel.told) == 1


# --- in cycles --------------------------------------------------------------------------------------------------------

TIME = FakeClock()
"""What the plugins below take too much of."""


def offered(monkeypatch: pytest.MonkeyPatch, **kinds: type[Plugin]) -> None:
    known = MappingProxyType({**registry.plugins(), **kinds})
    monkeypatch.setattr(registry, "plugins", lambda: known)


class Slow(Plugin):
    """Takes too long at a point once there is a group."""

    name = "slow"

    def job_order(self, job: Job) -> int:
        TIME.advance(LATE)
        return 0


class SlowToOpen(Slow):
    def open(self, session: Session) -> None:
        TIME.advance(LATE)


class SlowToShow(Plugin):
    name = "slow"

    def gauges(self) -> Any:
        TIME.advance(LATE)
        return ()


class SlowAction(Action):
    name = "slow"

    def execute(self, framework: Framework) -> None:
        TIME.advance(LATE * ACTION_ALLOWANCE)


class Replica:
    """A cycle with a watchdog on a fake log."""

    def __init__(self, conf: str = WITH, **options: Any) -> None:
        self.log = FakeLog()
        self.state_writer = StateWriter(self.log.as_log(), ClusterState())
        self.policy = read_policy(conf)
        self.watchdog = Watchdog(self.state_writer, LIMIT, TIME.monotonic, lambda: NOW_NS)
        self.handed: list[tuple[ev.Plan, Session]] = []
        self.cycle = Cycle(
            self.state_writer,
            lambda: self.policy,
            lambda: 1,
            lambda record, plan, session, durations: self.handed.append((plan, session)),
            clock=lambda: NOW_NS,
            watchdog=self.watchdog,
            **options,
        )

    async def happen(self, *objects: Any) -> None:
        await self.state_writer.put(puts(*objects))

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


FAULT = f"slow: took more than {LIMIT:g} s in one session, at {{}}"


@pytest.mark.parametrize(
    ("plugin", "point"),
    [(Slow, "job_order"), (SlowToOpen, "open"), (SlowToShow, "gauges")],
)
async def test_a_session_is_decided_again_without_a_plugin_that_comes_back_late(
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
    """In the session as in its replay, though it raised before the other one was late."""

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


async def test_two_that_are_late_are_both_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(SlowToOpen):
        name = "other"

    offered(monkeypatch, slow=Slow, other=Other)
    replica = await with_a_gang(Replica(WITH + "  - name: other\n"))
    await replica.cycle.once(1)
    (record,) = replica.log.sessions
    assert [fault.partition(":")[0] for fault in record.interrupted] == ["other", "slow"]
    assert ev.encode_plan(replica.again(record)) == record.plan


async def test_an_action_that_comes_back_late_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    known = MappingProxyType({**registry.actions(), "slow": SlowAction})
    monkeypatch.setattr(registry, "actions", lambda: known)
    replica = await with_a_gang(Replica(CONF.replace("allocate", '"slow, allocate"')))
    await replica.cycle.once(1)
    (record,) = replica.log.sessions
    assert record.interrupted == ("action slow: took more than 50 s in one session, at execute",)
    assert replica.state_writer.state.intents["default/g-0"].node == "n"
    assert ev.encode_plan(replica.again(record)) == record.plan


def hanging(hung: Hung) -> type[Plugin]:
    class Hangs(Plugin):
        name = "slow"

        def open(self, session: Session) -> None:
            hung(session)

    return Hangs


async def test_the_loop_turns_while_a_plugin_does_not_come_back(monkeypatch: pytest.MonkeyPatch, hung: Hung) -> None:
    """Watches go on and the log says who it is; should it come back, the session is decided without it."""
    offered(monkeypatch, slow=hanging(hung))
    replica = await with_a_gang(Replica())
    session = asyncio.ensure_future(replica.cycle.once(1))
    await until(hung.inside.is_set)
    head = replica.state_writer.state.sequence
    await replica.happen(node("m", cpu=2))
    TIME.advance(LATE)
    await until(lambda: replica.state_writer.state.late)
    assert (replica.state_writer.state.late["slow"].fault, replica.log.sessions) == (FAULT.format("open"), [])
    hung.released.set()
    await session
    (record,) = replica.log.sessions
    assert (record.head, record.interrupted) == (head, (FAULT.format("open"),))


async def test_the_programs_end_does_not_wait_for_who_does_not_come_back(
    monkeypatch: pytest.MonkeyPatch, hung: Hung
) -> None:
    monkeypatch.setattr(watchdog, "GRACE", 2 * WAIT_LIMIT)
    offered(monkeypatch, slow=hanging(hung))
    replica = await with_a_gang(Replica())
    session = asyncio.ensure_future(replica.cycle.once(1))
    await until(hung.inside.is_set)
    TIME.advance(LATE)
    await until(replica.watchdog.stuck)
    session.cancel()
    await asyncio.wait({session}, timeout=WAIT_LIMIT)
    assert session.cancelled()
    assert {thread.daemon for thread in threading.enumerate() if thread.name == "_decide"} == {True}


async def test_the_programs_end_waits_a_while_for_a_session_in_the_works(
    monkeypatch: pytest.MonkeyPatch, hung: Hung
) -> None:
    closed: list[int] = []

    class Closes(Plugin):
        name = "slow"

        def open(self, session: Session) -> None:
            hung(session)

        def close(self, session: Session) -> None:
            closed.append(1)

    offered(monkeypatch, slow=Closes)
    replica = await with_a_gang(Replica())
    session = asyncio.ensure_future(replica.cycle.once(1))
    await until(hung.inside.is_set)
    session.cancel()
    await asyncio.wait({session}, timeout=0.05)
    assert not session.done()
    hung.released.set()
    await asyncio.wait({session})
    assert closed == [1]


async def test_later_sessions_do_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []

    class Counted(Slow):
        def open(self, session: Session) -> None:
            opened.append(1)

    offered(monkeypatch, slow=Counted)
    replica = await with_a_gang(Replica())
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
    observe_session(Metrics(), session, plan, replica.log.sessions[0], {})
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


async def test_who_explains_a_session_does_not_ask_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[int] = []

    class Counted(SlowToOpen):
        def open(self, session: Session) -> None:
            asked.append(1)
            super().open(session)

    offered(monkeypatch, slow=Counted)
    replica = await with_a_gang(Replica())
    await replica.cycle.once(1)
    policy = ev.PolicyLoaded(replica.policy.digest, replica.policy.text, {})
    async with EventLog.open(tmp_path / "log") as log:
        await log.append([*replica.log.appended, policy])
    with opened(tmp_path / "log") as history:
        made = choices(history, 1, {"default/g-0"})
    assert made["default/g-0"].node == "n"
    assert asked == [1]


async def test_the_log_shows_who_was_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, slow=Slow)
    replica = await with_a_gang(Replica())
    await replica.cycle.once(1)
    (record,) = replica.log.sessions
    line = format_event_line(Logged(7, NOW_NS, record))
    assert line["what"].endswith(f" 0 stale; failed: {FAULT.format('job_order')}")
    assert line["event"]["interrupted"] == (FAULT.format("job_order"),)


def test_an_action_is_counted_under_its_name() -> None:
    session = session_of(node("n"))
    metrics = Metrics()
    observe_session(metrics, session, ev.Plan(faults=("action odd: RuntimeError('a: b')",)), None, {})
    assert value(metrics, "vcd_plugin_faults_total", plugin="action odd") == 1


@pytest.mark.parametrize(("given", "limit"), [([], 5.0), (["0"], 0.0), (["1m30s"], 90.0)])
def test_the_limit_is_a_flag(given: list[str], limit: float) -> None:
    assert parse_options({"plugin-timeout": given}).plugin_timeout == limit


def test_the_limit_is_not_negative() -> None:
    with pytest.raises(OptionError, match="--plugin-timeout: must be at least 0"):
        parse_options({"plugin-timeout": ["-1s"]})

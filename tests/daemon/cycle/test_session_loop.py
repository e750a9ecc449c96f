"""The cycle: when it decides, when it does not, and what becomes of a plan that comes too late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from tests.daemon.fakes import FakeLog
from tests.dsl import BARE, NOW_NS, flat, gang, group, node, queue
from tests.kube.scripted import running, until
from vcd.daemon.cycle.session_loop import Cycle, wait_for_more
from vcd.daemon.persistence.state_writer import StateWriter
from vcd.model import events as ev
from vcd.model.manifests import default_queues, defaulted
from vcd.model.projection_codec import encode_payload, from_manifest
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.session.session import Session
from vcd.state.cluster_state import ClusterState


def puts(*objects: Any) -> list[ev.Event]:
    found: list[ev.Event] = []
    for manifest in flat(objects):
        kind, obj, version = from_manifest(defaulted(manifest))
        found.append(ev.ObjectPut(kind, obj.key, version, encode_payload(obj)))
    return found


class Replica:
    """A cycle on a fake log; ``epoch`` None: it does not lead."""

    def __init__(self) -> None:
        self.log = FakeLog()
        self.state_writer = StateWriter(self.log.as_log(), ClusterState())
        self.epoch: int | None = 1
        self.handed: list[tuple[ev.SessionDecided | None, ev.Plan]] = []
        self.asked = 0
        self.cycle = Cycle(
            self.state_writer,
            lambda: read_policy(BARE),
            self._may_decide,
            self._handover,
            gather=_at_once,
            clock=lambda: NOW_NS,
        )

    def _may_decide(self) -> int | None:
        self.asked += 1
        return self.epoch

    def _handover(
        self, record: ev.SessionDecided | None, plan: ev.Plan, session: Session, durations: dict[str, float]
    ) -> None:
        self.handed.append((record, plan))

    async def happen(self, *objects: Any) -> None:
        await self.state_writer.put(puts(*objects))

    async def settled(self) -> None:
        """Until it waits for a change."""
        await until(lambda: self.cycle.idle.is_set() and not self.state_writer.changed.is_set())

    @asynccontextmanager
    async def runs(self) -> AsyncIterator[None]:
        async with running(self.cycle.run()):
            yield


async def _at_once(fruitless: int, new_work: asyncio.Event) -> None:
    await asyncio.sleep(0)


@pytest.fixture
async def replica() -> Replica:
    found = Replica()
    await found.state_writer.put(puts(*default_queues([]), node("n", cpu=4)))
    return found


def meanwhile(replica: Replica, monkeypatch: pytest.MonkeyPatch, happening: Callable[[], None]) -> None:
    """Let something happen in the loop's thread while the first plan is being decided."""
    decide, loop, done = replica.cycle._decide, asyncio.get_running_loop(), list[bool]()

    def slowly(*arguments: Any) -> Any:
        result = decide(*arguments)
        if not done:
            done.append(True)
            asyncio.run_coroutine_threadsafe(_call(happening), loop).result()
        return result

    monkeypatch.setattr(replica.cycle, "_decide", slowly)


async def _call(happening: Callable[[], Any]) -> None:
    result = happening()
    if asyncio.iscoroutine(result):
        await result


async def test_a_change_starts_a_session(replica: Replica) -> None:
    async with replica.runs():
        await replica.settled()
        await replica.happen(gang("g", 1, cpu=1))
        await until(lambda: replica.log.sessions)
    plan = ev.decode_plan(replica.log.sessions[-1].plan)
    assert [op.key for s in plan.statements for op in s.operations] == ["default/g-0"]


async def test_it_wakes_when_a_back_off_ends_and_does_not_poll(replica: Replica) -> None:
    woken, due = list[int](), asyncio.Event()

    async def alarm(at: int) -> None:
        woken.append(at)
        await due.wait()

    replica.cycle.until = alarm
    async with replica.runs():
        await replica.happen(gang("g", 1, cpu=1))
        await until(lambda: replica.log.sessions)
        await replica.state_writer.put([ev.OperationDone(1, 0, 0, "failed", "denied", NOW_NS)])
        await until(lambda: woken)
        await replica.settled()
        sessions = len(replica.log.sessions)
        replica.cycle.clock = lambda: woken[-1]
        due.set()
        await until(lambda: len(replica.log.sessions) > sessions)
    assert woken == [NOW_NS + 1_000_000_000]
    plan = ev.decode_plan(replica.log.sessions[-1].plan)
    assert [op.key for s in plan.statements for op in s.operations] == ["default/g-0"]


async def test_a_back_off_that_ends_while_a_session_is_decided_is_not_missed(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [NOW_NS]

    async def alarm(at: int) -> None:
        if now[0] < at:
            await asyncio.Event().wait()

    def passes() -> None:
        now[0] += 2_000_000_000

    def binds() -> int:
        plans = [ev.decode_plan(record.plan) for record in replica.log.sessions]
        return sum(op.verb == "bind" for plan in plans for s in plan.statements for op in s.operations)

    replica.cycle.clock, replica.cycle.until = lambda: now[0], alarm
    async with replica.runs():
        await replica.happen(gang("g", 1, cpu=1))
        await until(lambda: binds() == 1)
        await replica.settled()
        meanwhile(replica, monkeypatch, passes)
        await replica.state_writer.put([ev.OperationDone(1, 0, 0, "failed", "denied", NOW_NS)])  # a back-off of 1 s
        await until(lambda: binds() == 2)


async def test_the_record_names_what_it_was_decided_from(replica: Replica) -> None:
    await replica.happen(gang("g", 1, cpu=1))
    head = replica.state_writer.state.sequence
    await replica.cycle.once(7)  # the epoch it was told is not the one in force: nothing is logged
    assert replica.log.sessions == []
    await replica.cycle.once(1)
    (record,) = replica.log.sessions
    assert (record.session, record.head, record.epoch, record.now, record.seed) == (1, head, 1, NOW_NS, 0)
    assert record.policy == read_policy(BARE).digest


async def test_sessions_are_numbered_in_a_row(replica: Replica) -> None:
    for name in ("a", "b", "c"):
        await replica.happen(gang(name, 1, cpu=1))
        await replica.cycle.once(1)
    assert [record.session for record in replica.log.sessions] == [1, 2, 3]


async def test_it_knows_the_event_of_the_last_session(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not the last one that is in the state when the session is."""
    append, more = replica.log.append, list[asyncio.Task[None]]()

    async def and_more_after_a_session(events: Sequence[ev.Event]) -> int:
        last = await append(events)
        if isinstance(events[0], ev.SessionDecided) and not more:
            more.append(asyncio.create_task(replica.happen(node("later"))))
            await until(lambda: len(replica.log.appended) > last)
        return last

    monkeypatch.setattr(replica.log, "append", and_more_after_a_session)
    seen = list[tuple[int, int]]()

    def handover(record: ev.SessionDecided | None, *_: Any) -> None:
        if record is not None and not seen:
            seen.append((replica.cycle.logged, replica.log.appended.index(record) + 1))

    replica.cycle.handover = handover
    async with replica.runs():
        await replica.happen(gang("g", 1, cpu=1))
        await until(lambda: seen)
    [(logged, event)] = seen
    assert logged == event < len(replica.log.appended)


async def test_it_decides_nothing_while_it_does_not_lead(replica: Replica) -> None:
    replica.epoch = None
    async with replica.runs():
        await replica.happen(gang("g", 1, cpu=1))
        await until(lambda: replica.asked)
        await replica.settled()
    assert (replica.log.sessions, replica.handed) == ([], [])


async def test_it_decides_once_it_leads(replica: Replica) -> None:
    replica.epoch = None
    async with replica.runs():
        await replica.happen(gang("g", 1, cpu=1))
        await until(lambda: replica.asked)
        await replica.settled()
        replica.epoch = 2
        await replica.state_writer.put([ev.LeadershipChanged(2, "me", True)])
        await until(lambda: replica.log.sessions)
    assert replica.log.sessions[0].epoch == 2


@pytest.mark.parametrize("later", [None, 2])
async def test_a_plan_whose_epoch_ended_while_deciding_is_dropped(
    replica: Replica, monkeypatch: pytest.MonkeyPatch, later: int | None
) -> None:
    await replica.happen(gang("g", 1, cpu=1))
    meanwhile(replica, monkeypatch, lambda: setattr(replica, "epoch", later))
    assert await replica.cycle.once(1) is False
    assert (replica.log.sessions, replica.handed) == ([], [])


async def test_nothing_is_logged_when_all_is_shown_as_decided(replica: Replica) -> None:
    """A gang runs, and group and queues show it: another node changes no decision."""
    shown = list(gang("g", 1, on=["n"], cpu=1, phase="Running"))
    reason = "tasks in gang are ready to be scheduled"
    shown[0]["status"] |= {"running": 1, "conditions": [{"type": "Scheduled", "status": "True", "reason": reason}]}
    usage = {"state": "Open", "allocated": {"cpu": "1", "pods": "1"}}
    await replica.happen(shown, *[{**queue, "status": usage} for queue in default_queues([])])
    await replica.happen(node("m"))
    await replica.cycle.once(1)
    assert replica.log.sessions == []


async def test_a_session_without_a_decision_is_handed_over_without_a_record(replica: Replica) -> None:
    assert await replica.cycle.once(1) is False
    assert replica.log.sessions == []
    assert replica.handed == [(None, ev.Plan())]


async def test_a_statement_that_went_stale_while_deciding_is_logged_as_such(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    await replica.happen(gang("g", 1, cpu=1))
    meanwhile(replica, monkeypatch, lambda: replica.state_writer.put([ev.ObjectGone("Node", "n")]))
    assert await replica.cycle.once(1) is True
    assert replica.log.sessions[0].stale == ((0, "bind default/g-0: node n is gone"),)
    assert replica.state_writer.state.intents == {}


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (ev.ObjectGone("Node", "n"), "bind default/g-0: node n is gone"),
        (ev.ObjectGone("Pod", "default/g-1"), "bind default/g-1: the pod is gone"),
        (group("g", minMember=3), "the minimum of its gang is another one"),
        (
            queue("default", capability={"cpu": "1"}),
            "bind default/g-1: its queue has no room left within its capability",
        ),
    ],
    ids=["node", "pod", "minimum", "capability"],
)
async def test_an_event_that_is_logged_before_the_session_is_verified_against(
    replica: Replica, monkeypatch: pytest.MonkeyPatch, event: Any, why: str
) -> None:
    """Also one that is not durable yet when the plan is there, so that the state does not show it."""
    await replica.happen(gang("g", 2, cpu=1))
    putting = list[asyncio.Task[int]]()

    async def begin() -> None:
        replica.log.held = True
        happened = [event] if isinstance(event, ev.ObjectGone) else puts(event)
        putting.append(asyncio.ensure_future(replica.state_writer.put(happened)))
        await until(lambda: replica.log.waiting)
        replica.log.held = False
        asyncio.get_running_loop().call_later(0.02, replica.log.waiting[0].set_result, None)

    meanwhile(replica, monkeypatch, begin)
    await replica.cycle.once(1)
    await putting[0]
    (record,) = replica.log.sessions
    assert replica.log.appended[-1] == record
    assert [reason for _, reason in record.stale] == [why]
    assert replica.state_writer.state.intents == {}


async def test_what_went_stale_is_decided_again_at_once(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    await replica.happen(node("m", cpu=4), gang("g", 1, cpu=1))
    gone = [ev.ObjectGone("Node", "n"), ev.ObjectGone("Node", "m")]
    meanwhile(replica, monkeypatch, lambda: replica.state_writer.put([*gone, *puts(node("k", cpu=4))]))
    async with replica.runs():
        await until(lambda: len(replica.log.sessions) >= 2)
        await replica.settled()
    assert replica.state_writer.state.intents["default/g-0"].node == "k"


async def test_work_that_the_bound_left_goes_on_at_once(replica: Replica) -> None:
    from vcd.state.records import Settings

    await replica.state_writer.put([ev.PolicyLoaded("", "", Settings(placements=1).as_text())])
    await replica.happen(*[list(gang(name, 1, cpu=1)) for name in "abc"])
    async with replica.runs():
        await until(lambda: len(replica.state_writer.state.intents) == 3)
        await replica.settled()
    assert len(replica.log.sessions) >= 3


async def test_it_is_idle_until_something_happens(replica: Replica) -> None:
    async with replica.runs():
        await replica.settled()
        asked = replica.asked
        for _ in range(50):
            await asyncio.sleep(0)
        assert replica.asked == asked


async def test_the_loop_goes_on_while_a_plan_is_decided(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan waits for something that only the loop can do."""
    await replica.happen(gang("g", 1, cpu=1))
    turns: list[int] = []
    meanwhile(replica, monkeypatch, lambda: turns.append(1))
    await replica.cycle.once(1)
    assert turns == [1]


async def test_what_queues_have_allocated_is_logged_once_a_period(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is decided on anew at each change, until the API server shows the status that is being written."""
    await replica.happen(gang("g", 1, cpu=1))
    await replica.cycle.once(1)
    for _ in range(3):
        await replica.cycle.once(1)
    assert [bool(ev.decode_plan(record.plan).statements) for record in replica.log.sessions] == [True]
    assert [record for record, _ in replica.handed[1:]] == [None, None, None]
    monkeypatch.setattr(replica.cycle, "clock", lambda: NOW_NS + 1_000_000_000)
    await replica.cycle.once(1)
    assert ev.decode_plan(replica.log.sessions[-1].plan) == replica.handed[-2][1] != ev.Plan()


async def test_what_was_held_back_is_said_though_nothing_changes(replica: Replica) -> None:
    """What was said may have been lost on the way."""
    time = NOW_NS
    replica.cycle.clock, replica.cycle.period = lambda: time, 0.01
    async with replica.runs():
        await replica.happen(gang("g", 1, cpu=1))
        await until(lambda: replica.handed)
        replica.state_writer.changed.set()
        await until(lambda: len(replica.handed) > 2)
        assert len(replica.log.sessions) == 1
        time += 1_000_000_000
        await until(lambda: len(replica.log.sessions) > 1)


async def test_the_first_session_of_another_term_says_all_again(replica: Replica) -> None:
    await replica.happen(gang("g", 1, cpu=1))
    for epoch in (1, 1, 1, 2, 2):
        replica.epoch = epoch
        await replica.cycle.once(epoch)
    assert [record.epoch for record in replica.log.sessions] == [1, 2]


async def test_changes_that_call_for_nothing_are_gathered_for_longer(replica: Replica) -> None:
    """Until there was a pause, or something was decided about a pod."""
    fruitless: list[int] = []

    async def gather(sessions: int, new_work: asyncio.Event) -> None:
        fruitless.append(sessions)
        await asyncio.sleep(0)

    def again(*_: Any) -> None:
        if len(fruitless) < 4:
            replica.state_writer.changed.set()

    replica.cycle.gather, replica.cycle.handover = gather, again
    async with replica.runs():
        await replica.settled()
        assert fruitless == [0, 1, 2, 3]
        await replica.happen(gang("g", 1, cpu=1))
        await until(lambda: replica.log.sessions)
        await replica.settled()
    assert fruitless[4:] == [0] * len(fruitless[4:])


async def test_sessions_that_only_try_the_next_kinds_of_pods_are_gathered_for_longer(replica: Replica) -> None:
    fruitless: list[int] = []

    async def gather(sessions: int, new_work: asyncio.Event) -> None:
        fruitless.append(sessions)

    replica.state_writer.state.settings = replace(replica.state_writer.state.settings, kinds=1)
    await replica.happen(*(gang(f"g{cpu}", 1, cpu=cpu) for cpu in (97, 98, 99)))
    replica.cycle.gather = gather
    async with replica.runs():
        await replica.settled()
    assert fruitless == list(range(len(fruitless)))
    assert len(fruitless) >= 3


async def test_other_work_makes_way_until_a_session_is_logged(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside: list[bool] = []

    @contextmanager
    def in_session() -> Iterator[None]:
        inside.append(True)
        yield
        inside.pop()

    replica.cycle.in_session = in_session
    await replica.happen(gang("g", 1, cpu=1))
    meanwhile(replica, monkeypatch, lambda: setattr(replica.log, "held", True))
    async with replica.runs():
        await until(lambda: replica.log.waiting)
        assert inside
        assert replica.cycle.deciding.locked()
        replica.log.held = False
        replica.log.waiting[0].set_result(None)
        await replica.settled()
        assert not inside
        assert not replica.cycle.deciding.locked()


@pytest.mark.parametrize(
    ("objects", "is_work"),
    [
        ([*gang("g", 1, cpu=1)], True),
        ([*gang("g", 1, cpu=1, on=["n"], phase="Running")], False),
        ([*gang("g", 1, cpu=1, spec={"schedulerName": "other"}, phase="Running")], False),
        ([group("g", phase="Pending")], True),
        ([group("g", phase="Inqueue")], True),
        ([group("g", phase="Running")], False),
        ([node("m", cpu=1)], False),
    ],
)
async def test_only_what_has_no_place_yet_is_new_work(replica: Replica, objects: list[Any], is_work: bool) -> None:
    replica.state_writer.new_work.clear()
    await replica.happen(*objects)
    assert replica.state_writer.new_work.is_set() is is_work
    replica.state_writer.new_work.clear()
    for event in puts(*objects):
        await replica.state_writer.put([replace(event, resource_version="2")])  # it is shown once more
    assert not replica.state_writer.new_work.is_set()


@pytest.mark.parametrize(("fruitless", "waits"), [(0, 0), (1, 0.02), (4, 0.08), (99, 0.08)])
async def test_new_work_ends_the_longer_gathering(
    fruitless: int, waits: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    timeout = asyncio.timeout

    def noted(seconds: float) -> asyncio.Timeout:
        waited.append(seconds)
        return timeout(3600)

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(asyncio, "timeout", noted)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    new_work = asyncio.Event()
    new_work.set()
    await wait_for_more(fruitless, new_work)
    assert waited == [pytest.approx(waits), 0.02]


async def test_what_was_decided_about_a_group_is_not_the_next_ones(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    await replica.happen(gang("g", 1, cpu=1))
    key = "default/g"
    first = group("g", phase="Pending")
    first["metadata"]["uid"] = "first"
    await replica.happen(first)

    async def remade() -> None:
        other: Any = group("g", phase="Pending", minimum={"cpu": 999})
        other["metadata"]["uid"] = "another"
        await replica.state_writer.put([ev.ObjectGone("PodGroup", key), *puts(other)])

    meanwhile(replica, monkeypatch, remade)
    await replica.cycle.once(1)
    assert replica.log.sessions == []  # it decides anew
    shown = replica.state_writer.state.groups[key].group
    assert (shown.metadata.uid, shown.status.phase) == ("another", "Pending")

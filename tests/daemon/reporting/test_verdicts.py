"""Verdicts in the daemon: what is asked when, what is shown of it, and what a next session waits for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.cycle.test_session_loop import puts
from tests.dsl import gang, group, node, pod, queue
from tests.kube.scripted import FakeClock, running, until
from tests.timetravel.questions import verdict
from tests.waiting import WAIT_LIMIT
from vcd.daemon.cycle.session_loop import Cycle
from vcd.daemon.cycle.watchdog import Watchdog
from vcd.daemon.persistence.state_writer import StateWriter, restore
from vcd.daemon.reporting import verdicts
from vcd.daemon.reporting.verdicts import QUANTITIES_DELAY, Verdicts
from vcd.eventlog.log_errors import LogError
from vcd.eventlog.log_writer import EventLog
from vcd.model import events as ev
from vcd.model.manifests import default_queues
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.framework.guard import Gate
from vcd.scheduling.search.predicates.node_predicates import NodeAffinity
from vcd.scheduling.session.session import Session
from vcd.text.condition_texts import sentence_of
from vcd.timetravel.history import opened
from vcd.timetravel.joblist import jobs
from vcd.timetravel.overview import overview
from vcd.timetravel.why.longestcauses import longest_waits

CONF = """\
actions: "enqueue, allocate"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: proportion
  - name: predicates
"""
LIMIT = 5.0
FULL = "1/1 tasks in gang unschedulable: the cluster is full: "


class Replica:
    """A cycle and its verdicts on a log; sessions are told at once."""

    def __init__(self, path: Path, log: EventLog, clock: FakeClock) -> None:
        self.path, self.clock = path, clock
        self.shown: list[tuple[str, str]] = []
        self.shows: dict[str, str] = {}
        """What groups show: as who shows messages does, those are left out that are there."""
        self.causes: dict[str, str] = {}
        self.failed: list[tuple[str, str]] = []
        self.state_writer = StateWriter(log, restore(path))
        self.dog = Watchdog(self.state_writer, LIMIT, clock.monotonic, clock.wall)
        policy = read_policy(CONF)
        self.cycle = Cycle(
            self.state_writer, lambda: policy, lambda: 1, self._handover, clock=clock.wall, watchdog=self.dog
        )
        self.verdicts = Verdicts(
            path,
            self.state_writer.state,
            self.cycle.deciding,
            self.dog,
            self._show,
            self._count,
            lambda name, error: self.failed.append((name, str(error))),
            clock,
        )
        self.state_writer.observers.append(self.verdicts.observe)

    def _show(self, group: str, message: str, first: bool) -> None:
        if self.shows.get(group) != message and not (first and group in self.shows):
            self.shows[group] = message
            self.shown.append((group, message))

    def _count(self, causes: Mapping[str, str]) -> None:
        self.causes.update(causes)

    def _handover(
        self, record: ev.SessionDecided | None, plan: ev.Plan, session: Session, durations: dict[str, float]
    ) -> None:
        self.verdicts.session(record, plan, session, self.clock.wall())

    async def happen(self, *objects: Any) -> None:
        await self.state_writer.put(puts(*objects))

    async def session(self, *objects: Any, seconds: float = 10.0) -> None:
        """Something happens, a session is decided on it and asked; then time passes."""
        await self.happen(*objects)
        await self.cycle.once(1)
        await self.verdicts.idle.wait()
        self.clock.advance(seconds)


@asynccontextmanager
async def replica_on(path: Path, clock: FakeClock) -> AsyncIterator[Replica]:
    async with AsyncExitStack() as stack:
        log = await stack.enter_async_context(EventLog.open(path, clock=clock.wall))
        made = Replica(path, log, clock)
        await stack.enter_async_context(running(made.verdicts.run()))
        yield made


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def replica(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Replica]:
    async with replica_on(tmp_path / "log", clock) as made:
        policy = read_policy(CONF)
        await made.state_writer.put([ev.PolicyLoaded(policy.digest, policy.text, {})])
        await made.happen(*default_queues([]), node("n", cpu=4), gang("x", 1, on=["n"], cpu=3))
        yield made


async def test_the_message_is_what_explain_says_and_the_cause_is_counted(replica: Replica) -> None:
    await replica.session(gang("g", 1, cpu=2))
    ((group, message),) = replica.shown
    assert group == "default/g"
    assert message == f"{FULL}1 of 4 cpu are free, and it needs 2; default/x holds most"
    assert verdict(replica.path, "g").text.endswith(message.partition("unschedulable: ")[2])
    assert replica.causes == {"default/g": "cluster-full"}


async def test_condition_explain_and_lists_state_one_sentence_though_pods_wait_for_different_reasons(
    replica: Replica,
) -> None:
    chosen = pod("g-1", group="g", cpu=1, spec={"nodeSelector": {"tier": "h100"}})
    await replica.session(group("g", members=1), pod("g-0", group="g", cpu=2), chosen)
    sentence = sentence_of(replica.shows["default/g"])
    with opened(replica.path) as history:
        (row,) = [one for one in jobs(history).jobs if one.name == "g"]
        (wait,) = longest_waits(history, 1, overview(history, 1).jobs)
    assert sentence == verdict(replica.path, "g").why == row.text == wait.text
    assert row.why == wait.why


async def test_a_job_of_another_namespace_is_named_in_explain_and_not_in_the_condition(replica: Replica) -> None:
    secret = group("g", namespace="tenant"), pod("g-0", group="g", namespace="tenant", cpu=2)
    await replica.session(secret)
    ((owner, message),) = replica.shown
    assert owner == "tenant/g"
    assert message.endswith("and it needs 2; a job of another namespace holds most")
    assert verdict(replica.path, "tenant/g").text.endswith("; default/x holds most")


async def test_the_same_is_not_shown_again_and_other_figures_after_a_while(replica: Replica) -> None:
    await replica.session(gang("g", 1, cpu=2))
    await replica.session(node("n", cpu=4, labels={"a": "b"}))
    assert len(replica.shown) == 1
    await replica.session(gang("g", 1, cpu=3), seconds=0)
    assert len(replica.shown) == 1
    await replica.clock.advance_when_asleep(QUANTITIES_DELAY)
    await until(lambda: len(replica.shown) == 2)
    assert replica.shown[1] == ("default/g", f"{FULL}1 of 4 cpu are free, and it needs 3; default/x holds most")


async def test_a_remark_on_holds_follows_a_verdict_that_it_explains_and_ends_as_other_figures(replica: Replica) -> None:
    """The first job waits for what terminates; the second one could use that."""
    leaves = gang("x", 1, on=["n"], cpu=3, deleting=True)
    await replica.session(node("other", cpu=1), leaves, gang("a", 1, cpu=3), gang("g", 1, cpu=2))
    alone = "1/1 tasks in gang unschedulable: 2 cpu are free in sum, 1 on a node at most; it requests 2: it needs 1 pod"
    assert (
        replica.shows["default/g"]
        == f"{alone}; capacity that it could use is nominated for other jobs, such as default/a"
    )
    await replica.state_writer.put([ev.ObjectGone("PodGroup", "default/a"), ev.ObjectGone("Pod", "default/a-0")])
    await replica.session(gang("x", 1, on=["n"], cpu=3), seconds=0)
    assert "nominated" in replica.shows["default/g"]
    await replica.clock.advance_when_asleep(QUANTITIES_DELAY)
    await until(lambda: replica.shows["default/g"] == alone)


async def test_a_verdict_that_names_whose_guarantee_it_is_needs_no_remark(replica: Replica) -> None:
    owner = queue("owner", guarantee={"resource": {"cpu": 3}})
    await replica.session(owner, queue("q"), gang("g", 1, queue="q", cpu=2, phase="Pending", minimum={"cpu": 2}))
    assert replica.causes == {"default/g": "others-guarantee"}
    assert replica.shows["default/g"].count("owner") == 1
    assert [one.gate for one in replica.state_writer.state.waiting["default/g"]] == ["enqueue", "held", "gang"]


async def test_another_cause_is_shown_once_it_held_longest(replica: Replica) -> None:
    closed = queue("q", state="Closed")
    await replica.session(closed, gang("g", 1, cpu=2, queue="q"), seconds=30)
    assert replica.causes == {"default/g": "queue-closed"}
    await replica.session(queue("q"), seconds=20)
    assert replica.causes == {"default/g": "queue-closed"}
    assert verdict(replica.path, "g").cause == "queue-closed"
    await replica.session(node("n", cpu=4, labels={"a": "b"}), seconds=20)
    await replica.session(node("n", cpu=4, labels={"a": "c"}))
    assert replica.causes == {"default/g": "cluster-full"}
    assert verdict(replica.path, "g").cause == "cluster-full"
    assert [message.partition("unschedulable: ")[2][:15] for _, message in replica.shown] == [
        "queue is Closed", "the cluster is ",
    ]  # fmt: skip


async def test_a_cause_that_comes_to_have_held_longest_in_a_cluster_at_rest_is_stated(replica: Replica) -> None:
    await replica.session(queue("q", state="Closed"), gang("g", 1, cpu=2, queue="q"), seconds=30)
    await replica.session(queue("q"), seconds=0)
    assert replica.causes == {"default/g": "queue-closed"}
    await replica.clock.advance_when_asleep(20)
    assert replica.causes == {"default/g": "queue-closed"}
    await replica.clock.advance_when_asleep(10)
    await until(lambda: replica.causes == {"default/g": "cluster-full"})
    assert replica.shows["default/g"].startswith(FULL)
    assert replica.verdicts._pause() is None


async def test_the_message_has_the_latest_quantities_of_its_cause_after_a_start(
    tmp_path: Path, clock: FakeClock
) -> None:
    """The job waited longest for reasons that only the process before has diagnosed."""
    async with replica_on(tmp_path / "log", clock) as before:
        policy = read_policy(CONF)
        await before.state_writer.put([ev.PolicyLoaded(policy.digest, policy.text, {})])
        await before.happen(*default_queues([]), node("a", cpu=2))
        await before.session(gang("g", 1, cpu=5), seconds=100)
    assert "node a, the largest, has 2" in before.shows["default/g"]
    async with replica_on(tmp_path / "log", clock) as after:
        after.shows.update(before.shows)
        await after.session(node("b", cpu=4))
        assert after.causes == {"default/g": "unschedulable-shape"}
        assert sentence_of(after.shows["default/g"]) == verdict(after.path, "g").why
        assert "node b, the largest, has 4" in after.shows["default/g"]


async def test_that_the_queue_went_takes_the_place_of_what_it_was_before(replica: Replica) -> None:
    await replica.session(queue("q"), gang("g", 1, cpu=2, queue="q"), seconds=20)
    await replica.state_writer.put([ev.ObjectGone("Queue", "q")])
    await replica.session(seconds=30)
    await replica.session(node("n", cpu=4, labels={"a": "b"}))
    assert replica.causes == {"default/g": "queue-missing"}
    assert replica.shows == {"default/g": "queue q does not exist"}


async def test_a_wait_after_a_run_is_told_of_alone(replica: Replica) -> None:
    await replica.session(queue("q", state="Closed"), gang("g", 1, cpu=1, queue="q"), seconds=1000)
    assert replica.causes == {"default/g": "queue-closed"}
    await replica.session(queue("q"), gang("g", 1, on=["n"], cpu=1, queue="q", phase="Running"))
    await replica.state_writer.put([ev.ObjectGone("Pod", "default/g-0")])
    await replica.session()
    await replica.session(gang("g", 1, cpu=2, queue="q"))
    assert replica.causes == {"default/g": "cluster-full"}
    found = verdict(replica.path, "g")
    assert (found.cause, found.earlier, found.earlier_waited) == ("cluster-full", 1, 1000)


async def test_a_wait_ends_while_its_group_cannot_be_read(replica: Replica) -> None:
    await replica.session(queue("q", state="Closed"), gang("g", 1, cpu=2, queue="q"), seconds=1000)
    assert replica.causes == {"default/g": "queue-closed"}
    await replica.state_writer.put([ev.ObjectBad("PodGroup", "default/g", "2", "spec: not an object")])
    await replica.session(queue("q"))
    await replica.session(group("g", queue="q", phase="Inqueue"))
    await replica.session(node("n", cpu=1))
    assert replica.causes["default/g"] == verdict(replica.path, "g").cause != "queue-closed"


async def test_how_long_it_waited_before_a_start_is_read_from_the_log(
    replica: Replica, tmp_path: Path, clock: FakeClock
) -> None:
    await replica.session(queue("q", state="Closed"), gang("g", 1, cpu=2, queue="q"), seconds=1000)
    await replica.session(queue("q"), gang("h", 1, cpu=3), seconds=10)
    (tmp_path / "again").write_bytes((tmp_path / "log").read_bytes())
    again = Replica(tmp_path / "log", replica.state_writer.log, clock)
    async with running(again.verdicts.run()):
        await again.session(node("n", cpu=4, labels={"a": "b"}))
        assert again.causes == {"default/h": "cluster-full"}  # why g waited longest nobody told this process
        assert again.shows["default/g"].startswith(FULL)  # it shows nothing, and this is what is known of now
        again.shows["default/g"] = "what the process before said"
        await again.session(node("n", cpu=4, labels={"a": "d"}))
        assert again.shows["default/g"] == "what the process before said"
        await again.session(queue("q", state="Closed"))
        assert again.causes["default/g"] == "queue-closed"


async def test_a_term_begins_with_what_the_log_says(replica: Replica) -> None:
    await replica.session(gang("g", 1, cpu=2))
    replica.verdicts.begin()
    replica.shows.clear()
    await replica.session(node("n", cpu=4, labels={"a": "b"}))
    assert [group for group, _ in replica.shown] == ["default/g", "default/g"]
    assert replica.shown[0] == replica.shown[1]


async def test_a_term_whose_log_cannot_be_read_begins_with_what_the_state_knows(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object) -> None:
        raise LogError("no such luck")

    await replica.session(node("n", cpu=1), gang("g", 1, cpu=2))
    replica.verdicts.begin()
    replica.shown.clear()
    replica.shows.clear()
    monkeypatch.setattr("vcd.daemon.reporting.wait_history._read", unreadable)
    await replica.session(node("n", cpu=1, labels={"a": "b"}))  # of which the session states nothing new
    assert replica.state_writer.state.session == 2
    assert [group for group, _ in replica.shown] == ["default/g"]


async def test_a_message_in_whose_place_a_group_shows_another_is_shown_again(replica: Replica) -> None:
    """A session told its reasons meanwhile, or nobody took it; other figures wait as before."""
    await replica.session(gang("g", 1, cpu=2))
    replica.shows["default/g"] = "what a session said"
    await replica.session(gang("g", 1, cpu=3))
    assert replica.shown[0] == replica.shown[1]
    assert len(replica.shown) == 2


async def test_a_group_that_is_gone_is_not_asked_about(replica: Replica) -> None:
    await replica.session(gang("g", 1, cpu=2))
    await replica.state_writer.put([ev.ObjectGone("Pod", "default/g-0"), ev.ObjectGone("PodGroup", "default/g")])
    await replica.session(node("n", cpu=4, labels={"a": "b"}))
    assert len(replica.shown) == 1


async def test_a_group_that_goes_while_others_decide_is_not_asked_about(replica: Replica) -> None:
    replica.verdicts.deciding = deciding = asyncio.Lock()
    async with deciding:
        await replica.happen(gang("g", 1, cpu=2))
        await replica.cycle.once(1)
        await until(lambda: bool(deciding._waiters))
        await replica.state_writer.put([ev.ObjectGone("Pod", "default/g-0"), ev.ObjectGone("PodGroup", "default/g")])
    await replica.verdicts.idle.wait()
    assert replica.shown == []
    assert "default/g" not in replica.verdicts._known


async def test_who_fails_at_being_asked_again_is_told_of(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("no such luck")

    monkeypatch.setattr(NodeAffinity, "clauses", broken)
    await replica.session(gang("g", 1, cpu=2, spec={"nodeSelector": {"a": "b"}}))
    assert replica.failed == [("vcd", "no such luck")]
    ((_, message),) = replica.shown
    assert "evaluating the nodes again fails with ZeroDivisionError: no such luck" in message


# --- what it costs ----------------------------------------------------------------------------------------------------


async def test_a_next_session_waits_for_one_group_at_most(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, go_on, asked = threading.Event(), threading.Event(), list[str]()
    diagnosed = verdicts.diagnosed

    def slowly(wait: Any, *more: Any) -> Any:
        asked.append(wait.group)
        entered.set()
        assert go_on.wait(WAIT_LIMIT)
        return diagnosed(wait, *more)

    monkeypatch.setattr(verdicts, "diagnosed", slowly)
    await replica.happen(*[list(gang(name, 1, cpu=2)) for name in "abc"])
    await replica.cycle.once(1)
    await until(entered.is_set)
    await replica.happen(gang("d", 1, cpu=2))
    following = asyncio.ensure_future(replica.cycle.once(1))
    await until(lambda: bool(replica.cycle.deciding._waiters))
    asked_then = list[str]()
    decide = replica.cycle._decide
    monkeypatch.setattr(replica.cycle, "_decide", lambda *given: (asked_then.extend(asked), decide(*given))[1])
    go_on.set()
    await following
    await replica.verdicts.idle.wait()
    assert asked_then == ["default/a"]
    assert sorted(set(asked)) == [f"default/{name}" for name in "abcd"]


async def test_many_groups_are_asked_about_some_at_a_time(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "MAX_GROUPS", 2)
    paused, go_on = asyncio.Event(), asyncio.Event()

    async def sleep(seconds: float) -> None:
        paused.set()
        await go_on.wait()
        go_on.clear()

    monkeypatch.setattr(replica.clock, "sleep", sleep)
    await replica.session(*[list(gang(name, 1, cpu=2)) for name in "abc"], seconds=0)
    await paused.wait()
    assert len(replica.causes) == 2
    go_on.set()
    await until(lambda: len(replica.causes) == 3)


async def test_where_nobody_waits_nothing_is_kept(replica: Replica) -> None:
    await replica.session(gang("g", 1, cpu=1))
    assert replica.verdicts.idle.is_set()
    assert (replica.shown, replica.causes, replica.verdicts._session) == ([], {}, None)


async def test_who_takes_too_long_at_being_asked_again_is_late_and_the_reasons_are_told(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: object) -> None:
        replica.clock.now += LIMIT + 1

    gate = Gate("slow", replica.dog)
    monkeypatch.setattr(NodeAffinity, "clauses", lambda *_: gate.ask("predicates", None, (), late))
    await replica.session(gang("g", 1, cpu=1, spec={"nodeSelector": {"a": "b"}}))
    assert [late.name for late in replica.state_writer.state.late.values()] == ["slow"]
    ((_, message),) = replica.shown
    assert message.startswith("1/1 tasks in gang unschedulable: 1 node ")
    monkeypatch.undo()
    await replica.session(gang("h", 1, cpu=3))
    assert replica.causes["default/h"] == "cluster-full"


async def test_what_its_pause_meets_is_not_lost(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    await replica.session(gang("g", 1, cpu=2), seconds=0)
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        raise OSError("no clock")

    monkeypatch.setattr(replica.clock, "sleep", sleep)
    monkeypatch.setattr(replica.verdicts, "_pause", lambda: 1.0)
    with pytest.raises(OSError, match="no clock"):
        async with running(replica.verdicts.run()) as asking:
            await until(lambda: asking.done() or len(slept) > 1)
    assert len(slept) == 1

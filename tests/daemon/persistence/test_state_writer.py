"""The state_writer: through the log first, in the log's order."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.daemon.fakes import FakeLog
from tests.dsl import Manifest, gang, group, node
from tests.kube.scripted import running, until
from tests.waiting import WAIT_LIMIT
from vcd.daemon.persistence.state_writer import StateWriter, restore
from vcd.eventlog import EventLog, LogReader
from vcd.eventlog.log_errors import DamagedLog, LogError
from vcd.model import events as ev
from vcd.model.manifests import defaulted
from vcd.model.projection_codec import encode_payload, from_manifest
from vcd.state.cluster_state import ClusterState


def put(name: str) -> ev.ObjectPut:
    kind, obj, version = from_manifest(node(name))
    return ev.ObjectPut(kind, obj.key, version, encode_payload(obj))


def state_writer(log: FakeLog) -> StateWriter:
    return StateWriter(log.as_log(), ClusterState())


async def test_an_event_is_in_the_state_when_put_returns() -> None:
    kept = state_writer(FakeLog())
    await kept.put([put("a"), put("b")])
    assert (sorted(kept.state.nodes), kept.state.sequence) == (["a", "b"], 2)


async def test_nothing_is_in_the_state_before_it_is_durable() -> None:
    log = FakeLog(held=True)
    kept = state_writer(log)
    async with running(kept.put([put("a")])) as task:
        await until(lambda: log.waiting)
        assert log.appended
        assert (dict(kept.state.nodes), kept.state.sequence) == ({}, 0)
        log.waiting[0].set_result(None)
        await task
    assert list(kept.state.nodes) == ["a"]


async def test_what_cannot_be_logged_is_not_folded() -> None:
    kept = state_writer(FakeLog(error=LogError("disk full")))
    with pytest.raises(LogError, match="disk full"):
        await kept.put([put("a")])
    assert kept.state.sequence == 0
    assert not kept.changed.is_set()


async def test_what_cannot_be_folded_is_told_to_who_put_it_and_to_who_keeps_the_program_running() -> None:
    kept = state_writer(FakeLog())

    def defective(_: ev.Event) -> None:
        raise ValueError("a defect")

    kept.observers.append(defective)
    stopping = asyncio.ensure_future(kept.until_broken())
    with pytest.raises(ValueError, match="a defect"):
        await kept.put([put("a")])
    with pytest.raises(ValueError, match="a defect"):
        await stopping


async def test_after_an_event_that_cannot_be_folded_nobody_waits_and_no_state_is_kept() -> None:
    log = FakeLog(held=True)
    kept = state_writer(log)
    fold = kept.state.apply

    def defective(sequence: int, event: ev.Event) -> None:
        if isinstance(event, ev.ObjectPut) and event.key == "a":
            raise ValueError("a defect")
        fold(sequence, event)

    kept.state.apply = defective  # type: ignore[method-assign]
    async with asyncio.timeout(WAIT_LIMIT):
        puts = [asyncio.ensure_future(kept.put([put(name)])) for name in ("a", "b", "c")]
        await until(lambda: len(log.waiting) == 3)
        for waiting in (log.waiting[1], log.waiting[0], log.waiting[2]):
            waiting.set_result(None)
        assert [repr(each) for each in await asyncio.gather(*puts, return_exceptions=True)] == [
            "ValueError('a defect')"
        ] * 3
        with pytest.raises(ValueError, match="a defect"):
            await kept.checkpoint()


async def test_what_cannot_be_logged_ends_the_program_whoever_put_it() -> None:
    log = FakeLog()
    log.error = LogError("disk full")
    kept = state_writer(log)
    broken = asyncio.ensure_future(kept.until_broken())
    with pytest.raises(LogError, match="disk full"):
        await kept.put([put("a")])
    with pytest.raises(LogError, match="disk full"):
        await broken


async def test_events_are_folded_in_the_logs_order_though_appends_return_out_of_it() -> None:
    log, seen = FakeLog(held=True), list[str]()
    kept = state_writer(log)
    kept.observers.append(lambda event: seen.append(event.key if isinstance(event, ev.ObjectPut) else ""))
    async with running(kept.put([put("a"), put("b")])) as first, running(kept.put([put("c")])) as second:
        await until(lambda: len(log.waiting) == 2)
        log.waiting[1].set_result(None)
        await until(lambda: kept._durable)
        assert (seen, second.done()) == ([], False)
        log.waiting[0].set_result(None)
        await asyncio.gather(first, second)
    assert seen == ["a", "b", "c"]
    assert kept.state.sequence == 3


async def test_many_puts_at_once_end_in_one_order() -> None:
    log = FakeLog(held=True)
    kept = state_writer(log)
    tasks = [asyncio.ensure_future(kept.put([put(f"n{i}")])) for i in range(20)]
    await until(lambda: len(log.waiting) == 20)
    for gate in reversed(log.waiting):
        gate.set_result(None)
    await asyncio.gather(*tasks)
    assert list(kept.state.nodes) == [f"n{i}" for i in range(20)]


async def test_a_caller_that_is_cancelled_leaves_no_gap() -> None:
    log = FakeLog(held=True)
    kept = state_writer(log)
    async with running(kept.put([put("a")])) as task:
        await until(lambda: log.waiting)
        task.cancel()
    log.waiting[0].set_result(None)
    log.held = False
    await kept.put([put("b")])
    assert list(kept.state.nodes) == ["a", "b"]


@pytest.mark.parametrize(("error", "said"), [(LogError("disk full"), 0), (RuntimeError("a defect"), 1)])
async def test_a_log_that_fails_once_its_caller_is_gone_tells_so_itself(error: Exception, said: int) -> None:
    unseen = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context.get("exception")))
    log = FakeLog(held=True)
    async with running(state_writer(log).put([put("a")])) as task:
        await until(lambda: log.waiting)
        task.cancel()
        await asyncio.wait([task])
    log.waiting[0].set_exception(error)
    await until(lambda: len(asyncio.all_tasks()) == 1)
    gc.collect()
    assert unseen == [error] * said


async def test_it_goes_on_where_a_restored_state_ends() -> None:
    log, state = FakeLog(), ClusterState()
    log.appended.append(put("a"))
    state.apply(1, put("a"))
    kept = StateWriter(log.as_log(), state)
    await kept.put([put("b")])
    assert state.sequence == 2


async def test_no_events_need_no_log() -> None:
    log = FakeLog(held=True)
    await state_writer(log).put([])
    assert log.appended == []


@pytest.mark.parametrize(
    ("event", "wakes"),
    [
        (put("a"), True),
        (ev.ObjectGone("Node", "a"), True),
        (ev.PolicyLoaded("digest", ""), True),
        (ev.LeadershipChanged(1, "me", True), True),
        (ev.OperationDone(1, 0, 0, "conflict"), True),
        (ev.OperationDone(1, 0, 0, "done"), False),
        (ev.KindListed("Node", "7"), False),
        (ev.SessionDecided(1, 0, "", 0, 0, 1, {}, ev.encode_plan(ev.Plan())), False),
    ],
)
async def test_what_gives_reason_for_a_cycle(event: ev.Event, wakes: bool) -> None:
    kept = state_writer(FakeLog())
    await kept.put([event])
    assert kept.changed.is_set() is wakes


def shown(manifest: Manifest, **status: object) -> ev.ObjectPut:
    """An object as the API server shows it, with other fields of its status."""
    whole = defaulted(manifest)
    kind, obj, version = from_manifest({**whole, "status": {**whole.get("status", {}), **status}})
    return ev.ObjectPut(kind, obj.key, version, encode_payload(obj))


@pytest.mark.parametrize(
    ("node_name", "phase", "wakes"), [("a", "Pending", False), ("b", "Pending", True), ("a", "Running", True)]
)
async def test_a_bind_that_is_shown_as_it_was_intended_calls_for_no_session(
    node_name: str, phase: str, wakes: bool
) -> None:
    kept = state_writer(FakeLog())
    pod = next(manifest for manifest in gang("g", 1) if manifest["kind"] == "Pod")
    await kept.put([put("a"), put("b"), shown(pod)])
    key, uid = (
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}",
        from_manifest(defaulted(pod))[1].metadata.uid,
    )
    bind = ev.Statement("default/g", "allocate", (ev.Operation("bind", key, uid, "a"),))
    await kept.put([ev.SessionDecided(1, 3, "", 0, 0, 1, {}, ev.encode_plan(ev.Plan((bind,))))])
    kept.changed.clear()
    bound = {**pod, "spec": {**pod["spec"], "nodeName": node_name}}
    await kept.put([shown(bound, phase=phase)])
    assert kept.changed.is_set() is wakes
    kept.changed.clear()
    await kept.put([shown(bound, phase="Running")])  # what nobody intended is news
    assert kept.changed.is_set()


async def test_a_status_that_is_shown_as_it_was_intended_calls_for_no_session() -> None:
    kept = state_writer(FakeLog())
    await kept.put([shown(group("g"), phase="Pending")])
    plan = ev.Plan(groups=(ev.GroupStatus("default/g", "Inqueue", None, was="Pending"),))
    await kept.put([ev.SessionDecided(1, 1, "", 0, 0, 1, {}, ev.encode_plan(plan))])
    kept.changed.clear()
    await kept.put([shown(group("g"), phase="Inqueue")])
    assert not kept.changed.is_set()
    await kept.put([shown(group("g"), phase="Unknown")])
    assert kept.changed.is_set()


async def test_a_session_that_changes_many_groups_is_folded_in_slices_and_what_follows_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The event loop used to stand still for seconds where 50,000 groups were refused at once."""
    monkeypatch.setattr("vcd.daemon.concurrency.followup.SLICE", 0.0)  # each step is a slice, however fast the machine
    count = 500
    kept = state_writer(FakeLog())
    groups = [group(f"g{number}", phase="Pending") for number in range(count)]
    decoded = [from_manifest(defaulted(manifest)) for manifest in groups]
    await kept.put([ev.ObjectPut(kind, obj.key, "", encode_payload(obj)) for kind, obj, _ in decoded])
    waiting = [ev.Waiting(obj.key, "enqueue", "overcommit", "no room") for _, obj, _ in decoded]
    condition = ("Unschedulable", "True", "NotEnoughResources", "no room")
    statuses = [ev.GroupStatus(obj.key, "Pending", condition, was="Pending") for _, obj, _ in decoded]
    plan = ev.encode_plan(ev.Plan(groups=tuple(statuses), waiting=tuple(waiting)))
    session = ev.SessionDecided(1, count, "", 0, 0, 1, {}, plan)
    turns: list[tuple[int, bool]] = []
    done = asyncio.Event()

    async def turning() -> None:
        while not done.is_set():
            turns.append((len(kept.state.waiting), kept.whole.is_set()))
            await asyncio.sleep(0)

    async with running(turning()):
        first, second = asyncio.ensure_future(kept.put([session])), asyncio.ensure_future(kept.put([put("a")]))
        await second
        assert first.done()
        done.set()
    amid = [known for known, whole in turns if not whole]
    assert len(amid) > 2
    assert any(0 < known < count for known in amid)
    assert kept.whole.is_set()
    assert (len(kept.state.waiting), kept.state.sequence, list(kept.state.nodes)) == (count, count + 2, ["a"])


async def test_a_session_that_places_many_pods_is_folded_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcd.daemon.concurrency.followup.SLICE", 0.0)
    count = 500
    kept = state_writer(FakeLog())
    decoded = [from_manifest(defaulted(manifest)) for manifest in gang("g", count)]
    await kept.put([ev.ObjectPut(kind, obj.key, "", encode_payload(obj)) for kind, obj, _ in decoded])
    pods = [obj for kind, obj, _ in decoded if kind == "Pod"]
    binds = tuple(ev.Operation("bind", pod.key, pod.metadata.uid, "a") for pod in pods)
    plan = ev.encode_plan(ev.Plan((ev.Statement("default/g", "allocate", binds),)))
    intended: list[int] = []
    done = asyncio.Event()

    async def turning() -> None:
        while not done.is_set():
            intended.append(len(kept.state.intents))
            await asyncio.sleep(0)

    async with running(turning()):
        await kept.put([ev.SessionDecided(1, count + 1, "", 0, 0, 1, {}, plan)])
        done.set()
    assert sum(0 < known < count for known in intended) > 2
    assert len(kept.state.intents) == count


async def test_a_checkpoint_of_another_vcd_that_cannot_be_read_is_told_with_its_file(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "log") as log:
        await log.append([put("a")])
        await log.checkpoint(1, b"\x81\xa4pods\x01")
    with pytest.raises(LogError, match="log: checkpoint 1 was written by another vcd, which this one cannot read"):
        restore(tmp_path / "log")


@pytest.mark.parametrize(("changed", "stops"), [(1, False), (3, True)])
async def test_nothing_is_folded_that_was_changed_since_it_was_logged(
    tmp_path: Path, changed: int, stops: bool
) -> None:
    async with EventLog.open(tmp_path / "log") as log:
        await log.append([put("a"), put("b")])
        await log.checkpoint(2, folded([put("a"), put("b")]).dump())
        await log.append([put("c"), put("d")])
    with closing(sqlite3.connect(tmp_path / "log")) as connection:
        exchange = "UPDATE event SET payload = (SELECT payload FROM event WHERE sequence = 4) WHERE sequence = ?"
        connection.execute(exchange, (changed,))
        connection.commit()
    if stops:
        with pytest.raises(DamagedLog, match="log: event 3 was changed after it was logged; restore a copy, or move"):
            restore(tmp_path / "log")
    else:  # the checkpoint is what is gone on from
        assert restore(tmp_path / "log").nodes.keys() == {"a", "b", "c", "d"}


def folded(events: list[ev.ObjectPut]) -> ClusterState:
    state = ClusterState()
    for sequence, event in enumerate(events, 1):
        state.apply(sequence, event)
    return state


# --- events at the head of the log ------------------------------------------------------------------------------------


async def test_what_is_put_at_the_head_is_made_of_all_that_precedes_it_and_what_comes_later_goes_behind() -> None:
    log, seen = FakeLog(held=True), list[list[str]]()
    kept = state_writer(log)

    def made() -> list[ev.Event]:
        seen.append(sorted(kept.state.nodes))
        return [put("row")]

    before = asyncio.ensure_future(kept.put([put("before")]))
    await until(lambda: log.waiting)
    row = asyncio.ensure_future(kept.put_at_head(made))
    await asyncio.sleep(0)
    later = [asyncio.ensure_future(kept.put([put(f"later-{number}")])) for number in range(3)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert (seen, len(log.appended)) == ([], 1)
    log.held = False
    log.waiting[0].set_result(None)
    assert await row == 2
    await asyncio.gather(before, *later)
    assert seen == [["before"]]
    assert [event.key for event in log.appended if isinstance(event, ev.ObjectPut)] == [
        "before", "row", "later-0", "later-1", "later-2",
    ]  # fmt: skip


async def test_later_events_are_admitted_once_those_at_the_head_have_their_numbers() -> None:
    """They need not wait until the session is durable and folded: the log orders them."""
    log = FakeLog(held=True)
    kept = state_writer(log)
    row = asyncio.ensure_future(kept.put_at_head(lambda: [put("row")]))
    later = asyncio.ensure_future(kept.put([put("later")]))
    await until(lambda: len(log.waiting) == 2)
    for waiting in log.waiting:
        waiting.set_result(None)
    assert (await row, await later) == (1, 2)


async def test_events_that_never_end_do_not_keep_the_head_from_being_reached(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "log") as log:
        kept = StateWriter(log, ClusterState())

        async def storm(name: str) -> None:
            while True:
                await kept.put([put(name)])

        tasks = [asyncio.ensure_future(storm(f"n{number}")) for number in range(20)]
        rows, behind = list[int | None](), list[int]()
        for _ in range(10):
            behind.append(kept.log.head)
            rows.append(await kept.put_at_head(lambda: [put(f"after-{kept.state.sequence}")]))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    with LogReader(tmp_path / "log") as reader:
        made = {one.sequence: one.event.key for one in reader.find(type="put") if isinstance(one.event, ev.ObjectPut)}
    assert [made[row or 0] for row in rows] == [f"after-{(row or 0) - 1}" for row in rows]
    assert all((row or 0) - head < 100 for row, head in zip(rows, behind, strict=True))


@pytest.mark.parametrize("how", ["nothing", "raises", "cancelled"])
async def test_where_nothing_is_put_at_the_head_others_go_on(how: str) -> None:
    log, made = FakeLog(held=True), list[str]()
    kept = state_writer(log)

    def make() -> list[ev.Event]:
        made.append(how)
        if how == "raises":
            raise ValueError(how)
        return []

    first = asyncio.ensure_future(kept.put([put("first")]))
    await until(lambda: log.waiting)
    row = asyncio.ensure_future(kept.put_at_head(make))
    await asyncio.sleep(0)
    later = asyncio.ensure_future(kept.put([put("later")]))
    if how == "cancelled":
        row.cancel()
    log.held = False
    await asyncio.sleep(0)
    log.waiting[0].set_result(None)
    await asyncio.gather(row, return_exceptions=True)
    assert (await first, await later) == (1, 2)
    assert made == ([] if how == "cancelled" else [how])
    assert row.cancelled() or isinstance(row.exception(), ValueError) or row.result() is None


async def test_nothing_is_made_for_the_head_of_a_log_that_failed() -> None:
    log = FakeLog(error=LogError("disk full"))
    kept = state_writer(log)
    with pytest.raises(LogError, match="disk full"):
        await kept.put([put("a")])
    with pytest.raises(LogError, match="disk full"):
        await kept.put_at_head(lambda: pytest.fail("the state is not that of the log"))
    with pytest.raises(LogError, match="disk full"):
        await kept.put([put("b")])

"""Appending: numbers, order, durability, what is refused."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import anyio
import pytest

from tests.eventlog.samples import Clock, execute, gone, outcome, put, session, write_history
from vcd.eventlog import EventLog, LogError, LogReader
from vcd.eventlog.log_writer import GATHER_LIMIT
from vcd.eventlog.sql_statements import statements
from vcd.model import events as e


def read_all(path: Path) -> list[e.Event]:
    with LogReader(path) as reader:
        return [logged.event for logged in reader.read()]


EVERY_EVENT: list[e.Event] = [
    e.ObjectPut("Pod", "ns/a", "7", b"x" * 3000),
    e.ObjectPut("Pod", "ns/a", "8", b""),
    e.ObjectPut("Pod", "ns/a", "9", None),
    e.ObjectGone("Node", "n1", "10"),
    e.ObjectBad("Pod", "ns/b", "11", "spec.priority: expected int"),
    e.KindListed("Queue", "12"),
    e.PolicyLoaded("digest", "actions: allocate"),
    e.LeadershipChanged(3, "replica-a", True),
    e.Answered("usage/n1", b"\x00\xff" * 100),
    e.PluginLate("slow", "slow: too slow", 2_000_000_000, 1_000_000_000),
    e.InstallationFault("no-group", "ns", "pods name no PodGroup"),
    session(1, 9),
    outcome(1),
]


async def test_every_event_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    async with EventLog.open(path) as log:
        assert await log.append(EVERY_EVENT) == len(EVERY_EVENT)
    assert read_all(path) == EVERY_EVENT


async def test_sequence_numbers_follow_the_order_of_the_calls(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "log.sqlite") as log:
        calls = [log.append([put(n), gone(n)]) for n in range(500)]
        assert await asyncio.gather(*calls) == list(range(2, 1002, 2))
    assert [event.resource_version for event in read_all(log.path)] == [str(n // 2) for n in range(1000)]


async def test_calls_that_wait_share_a_transaction(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "log.sqlite") as log:
        commits: list[int] = []
        take = log._next_transaction
        log._next_transaction = lambda: commits.append(1) or take()  # type: ignore[method-assign, func-returns-value]
        await asyncio.gather(*(log.append([gone(n)]) for n in range(2000)))
    assert len(commits) <= 2


@pytest.mark.parametrize("hurry", ["a session", "a checkpoint", "the end"])
async def test_what_comes_soon_after_a_shared_transaction_shares_the_next_unless_one_is_in_a_hurry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hurry: str
) -> None:
    monkeypatch.setattr("vcd.eventlog.log_writer.GATHER_SECONDS", 3600.0)
    async with EventLog.open(tmp_path / "log.sqlite") as log:
        await asyncio.gather(log.append([put(1)]), log.append([gone(1)]))
        waiting = [asyncio.ensure_future(log.append([put(number)])) for number in range(2, 5)]
        await asyncio.to_thread(read_all, log.path)
        assert (log.head, [each.done() for each in waiting]) == (2, [False] * 3)
        if hurry == "a session":
            assert await log.append([session(1, 2)]) == 6
        elif hurry == "a checkpoint":
            await log.checkpoint(2, b"state")
    assert [await each for each in waiting] == [3, 4, 5]


async def test_where_enough_wait_the_next_transaction_does_not_wait_for_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vcd.eventlog.log_writer.GATHER_SECONDS", 3600.0)
    async with EventLog.open(tmp_path / "log.sqlite") as log:
        await asyncio.gather(log.append([put(1)]), log.append([gone(1)]))
        for _ in range(3):  # each is a shared transaction, after which the next gathers again
            await asyncio.gather(*(log.append([put(number)]) for number in range(GATHER_LIMIT)))
        waiting = [asyncio.ensure_future(log.append([put(number)])) for number in range(GATHER_LIMIT - 1)]
        await asyncio.to_thread(read_all, log.path)
        assert (log.head, any(each.done() for each in waiting)) == (2 + 3 * GATHER_LIMIT, False)
    assert len(await asyncio.gather(*waiting)) == GATHER_LIMIT - 1


async def test_one_who_writes_alone_never_waits_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcd.eventlog.log_writer.GATHER_SECONDS", 3600.0)
    async with EventLog.open(tmp_path / "log.sqlite") as log:
        assert [await log.append([put(number)]) for number in range(10)] == list(range(1, 11))


async def test_an_append_can_be_read_by_others_once_it_is_acknowledged(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "log.sqlite") as log:
        sequence = await log.append([put(1)])
        with LogReader(log.path) as reader:
            assert reader.head() == sequence == log.head


async def test_numbers_go_on_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    async with EventLog.open(path) as log:
        await log.append([put(1), session(1, 1)])
    async with EventLog.open(path) as log:
        assert (log.head, log.last_session) == (2, 1)
        assert await log.append([put(2)]) == 3


async def test_times_come_from_the_clock_and_never_go_back(tmp_path: Path) -> None:
    clock = Clock(100)
    async with EventLog.open(tmp_path / "log.sqlite", clock=clock) as log:
        await log.append([put(1)])
        clock.now = 50
        await log.append([put(2)])
        clock.now = 200
        await log.append([put(3)])
    with LogReader(log.path) as reader:
        assert [logged.time for logged in reader.read()] == [100, 100, 200]


async def test_events_of_a_cancelled_caller_are_written(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "log.sqlite") as log:
        task = asyncio.create_task(log.append([put(1)]))
        await asyncio.sleep(0)
        task.cancel()
        assert await log.append([put(2)]) == 2
    assert len(read_all(log.path)) == 2


async def test_leaving_the_log_writes_what_waits(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "log.sqlite") as log:
        waiting = asyncio.ensure_future(log.append([put(1)]))
        await asyncio.sleep(0)
    assert await waiting == 1


async def test_a_cancelled_scope_still_writes_what_waits_and_frees_the_file(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    with anyio.CancelScope() as scope:
        async with EventLog.open(path) as log:
            scope.cancel()
            await log.append([put(1)])
    async with EventLog.open(path) as log:
        assert log.head == 1


async def test_a_closed_log_refuses_appends(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "log.sqlite") as log:
        pass
    with pytest.raises(LogError, match="closed"):
        await log.append([put(1)])


async def test_no_events_return_the_head(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "log.sqlite") as log:
        await log.append([put(1)])
        assert await log.append([]) == 1


async def test_a_session_out_of_turn_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "log.sqlite") as log:
        with pytest.raises(ValueError, match="session 2 cannot follow session 0"):
            await log.append([session(2, 0)])
        assert await log.append([session(1, 0)]) == 1


async def test_a_session_enters_with_its_statements_and_operations_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    async with EventLog.open(path) as log:
        await log.append([put(1)])
        execute(
            path,
            "CREATE TRIGGER full BEFORE INSERT ON operation WHEN NEW.operation = 1"
            " BEGIN SELECT RAISE(ABORT, 'no room'); END",
        )
        with pytest.raises(LogError, match="no room"):
            await log.append([session(1, 1)])
    execute(path, "DROP TRIGGER full")
    with LogReader(path) as reader:
        assert reader.head() == 1
        assert list(reader.sessions()) == []
        assert list(reader.operations_of("ns/pod-1")) == []


async def test_the_index_finds_sessions_by_pod_and_by_number(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 2)
    async with EventLog.open(path) as log:
        await log.append([session(3, log.head, (9,), stale=True)])
    with LogReader(path) as reader:
        found = [
            (o.session, o.statement, o.operation, o.group, o.verdict, o.result)
            for o in reader.operations_of("ns/pod-2")
        ]
        assert found == [(1, 0, 1, "ns/gang", "accepted", "done"), (2, 0, 1, "ns/gang", "accepted", "done")]
        assert [(o.verdict, o.result) for o in reader.operations_of("ns/pod-9")] == [("stale", None)]
        assert [info.number for info in reader.sessions(2, 2)] == [2]
        assert reader.session(3) == session(3, 12, (9,), stale=True)
        with pytest.raises(LogError, match="session 4 is not in it; it has sessions 1 to 3"):
            reader.session(4)


async def test_an_objects_history_is_found_by_kind_and_key(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "log.sqlite") as log:
        await log.append([put(1), put(2), gone(1), e.ObjectPut("PodGroup", "ns/pod-1", "5", None), put(1)])
    with LogReader(log.path) as reader:
        assert [(one.sequence, one.event) for one in reader.object_history("Pod", "ns/pod-1")] == [
            (1, put(1)), (3, gone(1)), (5, put(1)),
        ]  # fmt: skip


@pytest.mark.parametrize("statement", ["object", "events_of"])
async def test_an_objects_events_are_found_through_the_index(tmp_path: Path, statement: str) -> None:
    await write_history(tmp_path / "log.sqlite", 1)
    with sqlite3.connect(tmp_path / "log.sqlite") as connection:
        values = dict.fromkeys(("kind", "key", "type", "after", "until", "limit"))
        plan = connection.execute(f"EXPLAIN QUERY PLAN {statements('read')[statement]}", values).fetchall()
    connection.close()
    assert "INDEX event_object" in plan[0][3]


async def test_reading_a_range(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "log.sqlite") as log:
        await log.append([gone(n) for n in range(1, 2001)])
    with LogReader(log.path) as reader:
        assert [one.sequence for one in reader.read(700, 1900)] == list(range(701, 1901))
        assert [one.sequence for one in reader.last(3)] == [1998, 1999, 2000]
        assert [one.sequence for one in reader.find(key="ns/pod-5", type="gone")] == [5]


async def test_a_configuration_is_found_by_its_digest(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "log.sqlite") as log:
        await log.append([e.PolicyLoaded("d1", "one"), e.PolicyLoaded("d2", "two"), e.PolicyLoaded("d1", "one")])
    with LogReader(log.path) as reader:
        assert (reader.policy("d1"), reader.policy("d2")) == ("one", "two")
        with pytest.raises(LogError, match="configuration d3 is not in it"):
            reader.policy("d3")


async def test_pods_are_packed_well(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "log.sqlite") as log:
        await log.append([put(1, size=4000)])
    with sqlite3.connect(log.path) as connection:
        ((packed,),) = connection.execute("SELECT length(payload) FROM event").fetchall()
    connection.close()
    assert packed < len(put(1, size=4000).payload or b"") * 0.7


async def test_packed_rows_are_read_with_the_files_own_dictionary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 1)
    before = read_all(path)
    monkeypatch.setattr("vcd.eventlog.log_file.build_dictionary", lambda: b"another dictionary of a later version")
    async with EventLog.open(path) as log:
        await log.append([put(1)])
    assert read_all(path) == [*before, put(1)]

"""Which change made it worse: changes in histories where one of them is known to, taken back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import dsl
from tests.dsl import Manifest
from tests.timetravel.histories import START, Scheduler, scheduler
from tests.timetravel.plays import CONF
from vcd.model import events as ev
from vcd.model.objects import Queue
from vcd.timetravel import bisect
from vcd.timetravel.alterations import alterations
from vcd.timetravel.bisect import bisect_job, bisect_waits
from vcd.timetravel.history import opened
from vcd.timetravel.query_errors import NotFound

SECOND = 1_000_000_000
NO_GANG = CONF.replace("  - name: gang\n", "")
IDLE = CONF.replace("enqueue, allocate, backfill", "enqueue")


def small(cpu: int, **more: Any) -> Manifest:
    return dsl.queue("small", capability={"cpu": str(cpu)}, **more)


async def passing(made: Scheduler, seconds: int) -> None:
    """Sessions of a second each, in which what is bound runs."""
    for _ in range(seconds):
        await made.carry_out(await made.cycle())


async def begun(made: Scheduler, cpu: int = 8) -> None:
    """A cluster with room for all, and a session."""
    await made.show([dsl.node(f"n{i}", cpu=8) for i in range(2)], dsl.queue("root"), dsl.queue("default"), small(cpu))
    await passing(made, 1)


async def starved(path: Path, *, cause: bool = True) -> Path:
    """Session 2: a weight that does not matter; 4: the capability is lowered; 6: the job comes; 8: the state of the
    queue is written, and a configuration that decides alike is loaded; 10: it waits still."""
    async with scheduler(path, CONF) as made:
        await begun(made)
        await made.show(dsl.queue("default", weight=2))
        await passing(made, 2)
        await made.show(small(2 if cause else 8))
        await passing(made, 2)
        await made.show(dsl.gang("bert", 2, cpu=2 if cause else 9, queue="small", phase="Pending", created=5))
        await passing(made, 2)
        await made.show({**small(2 if cause else 8), "status": {"state": "Open", "allocated": {"cpu": "0"}}})
        await made.load(CONF + "# alike\n")
        await passing(made, 3)
    return path


async def test_changes_are_what_people_write(tmp_path: Path) -> None:
    with opened(await starved(tmp_path / "log")) as history:
        found = alterations(history)
        assert [(one.told.session, one.told.kind, one.told.key, one.told.what) for one in found] == [
            (2, "Queue", "default", "changed"),
            (4, "Queue", "small", "changed"),
            (8, "configuration", "", "changed"),
        ]
        assert [str(step) for step in found[1].told.steps] == ["spec.capability.cpu 8 -> 2"]
        assert found[1].told.text == "Queue small: spec.capability.cpu 8 -> 2 (session 4, 2026-01-01T00:00:03.000Z)"
        assert [one.told.event for one in alterations(history, 3, 4)] == [found[1].told.event]
        assert alterations(history, 9) == []


async def test_what_a_later_change_says_stays_where_one_is_taken_back(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", CONF) as made:
        await begun(made)
        for cpu, weight in ((4, 2), (2, 2)):
            await made.show(small(cpu, weight=weight))
            await passing(made, 1)
    with opened(tmp_path / "log") as history:
        first, second = alterations(history)
        now = history.state(history.reader.head()).queues["small"].queue
        without_first, without_second = first.of_object(now), second.of_object(now)
    assert isinstance(without_first, Queue) and isinstance(without_second, Queue)
    assert (without_first.spec.weight, without_first.spec.capability) == (1, {"cpu": "2"})
    assert (without_second.spec.weight, without_second.spec.capability) == (2, {"cpu": "4"})


async def test_the_change_that_keeps_a_job_out_is_found(tmp_path: Path) -> None:
    found = bisect_job(await starved(tmp_path / "log"), "bert")
    assert found.found is not None
    assert (found.found.change.key, found.found.session, found.found.pods, found.started) == ("small", 6, 2, None)
    assert [one.session for one in found.changes] == [6, None, None]
    head, *rest = found.lines()
    assert head == (
        "bert would have started at session 6 (2026-01-01T00:00:05.000Z), and it never started: Queue small:"
        " spec.capability.cpu 8 -> 2 (session 4, 2026-01-01T00:00:03.000Z) prevented it (verified)"
    )
    assert any("without Queue default: spec.weight 1 -> 2" in line and "does not start" in line for line in rest)


async def test_where_no_change_does_all_are_named(tmp_path: Path) -> None:
    found = bisect_job(await starved(tmp_path / "log", cause=False), "bert")
    head, *rest = found.lines()
    assert (found.found, head.startswith("none of 2 changes prevented the start of bert")) == (None, True)
    assert [line.split(":")[0].strip() for line in rest[:2]] == ["without Queue default", "without configuration"]
    with pytest.raises(NotFound):
        bisect_job(tmp_path / "log", "nobody")


async def test_the_earliest_session_is_found_among_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that needs a node's room and the quota: without the change it starts once the other has ended."""
    async with scheduler(tmp_path / "log", CONF) as made:
        await made.show(dsl.node("n1", cpu=8), dsl.queue("root"), dsl.queue("default"), small(8))
        await made.show(dsl.gang("first", 1, cpu=6))
        await passing(made, 1)
        await made.show(small(1), dsl.gang("bert", 1, cpu=4, queue="small", phase="Pending", created=1))
        await passing(made, 30)
        await made.finish("default/first-0")
        await passing(made, 30)
    every = bisect_job(tmp_path / "log", "bert")
    assert every.found is not None and every.found.session == 32
    monkeypatch.setattr(bisect, "SESSIONS", 3)
    assert bisect_job(tmp_path / "log", "bert").found == every.found


async def test_of_many_changes_halves_are_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with scheduler(tmp_path / "log", CONF) as made:
        await begun(made)
        for number in range(6):
            await made.show(dsl.queue(f"other-{number}"), dsl.queue("default", weight=number + 2))
            await passing(made, 1)
            if number == 3:
                await made.show(small(1))
        await made.show(dsl.gang("bert", 1, cpu=4, queue="small", phase="Pending", created=9))
        await passing(made, 3)
    found = bisect_job(tmp_path / "log", "bert")
    assert found.found is not None and found.found.change.key == "small"
    assert [one.change.what for one in found.changes].count("created") == 6
    monkeypatch.setattr(bisect, "ONE_BY_ONE", 100)
    each = bisect_job(tmp_path / "log", "bert")
    assert (each.found, each.decisions > found.decisions) == (found.found, True)


async def test_a_configuration_that_keeps_a_job_out(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", NO_GANG) as made:
        await begun(made)
        await made.load(CONF)
        await passing(made, 1)
        await made.show(dsl.gang("bert", 4, cpu=8))
        await passing(made, 3)
    found = bisect_job(tmp_path / "log", "bert")
    assert found.found is None  # it needs its minimum all the same
    (change,) = found.changes
    assert (change.change.kind, [str(step) for step in change.change.steps]) == (
        "configuration",
        ["nothing -> name: gang"],
    )


async def test_a_quota_that_was_created_and_a_class_that_was_lowered(tmp_path: Path) -> None:
    conf = CONF + "  - name: resourcequota\n"
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "tight", "namespace": "default"},
        "spec": {"hard": {"cpu": "1"}},
        "status": {"hard": {"cpu": "1"}, "used": {"cpu": "0"}},
    }
    async with scheduler(tmp_path / "log", conf) as made:
        await made.show(dsl.priority_class("high", 100))
        await begun(made)
        await made.show(quota)
        await passing(made, 1)
        await made.show(dsl.priority_class("high", 10))
        await made.show(dsl.gang("bert", 1, cpu=4, phase="Pending", minimum={"cpu": 4}, created=3))
        await passing(made, 2)
        await made.delete("ResourceQuota", "default/tight")
        await passing(made, 2)
    found = bisect_job(tmp_path / "log", "bert")
    assert found.found is not None
    assert (found.found.change.kind, found.found.change.what, found.found.session) == ("ResourceQuota", "created", 3)
    assert found.started == 5
    with opened(tmp_path / "log") as history:
        assert [(one.told.kind, one.told.what) for one in alterations(history)] == [
            ("ResourceQuota", "created"),
            ("PriorityClass", "changed"),
            ("ResourceQuota", "gone"),
        ]


async def test_a_change_before_the_first_session_is_one(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", CONF) as made:
        await made.show(dsl.node("n1", cpu=8), dsl.queue("root"), dsl.queue("default"), small(8))
        await made.show(small(2))
        await made.show(dsl.gang("bert", 2, cpu=2, queue="small", phase="Pending"))
        await passing(made, 2)
    found = bisect_job(tmp_path / "log", "bert")
    assert found.found is not None
    assert found.found.change.text.startswith("Queue small: spec.capability.cpu 8 -> 2 (session 1, ")
    assert (found.found.session, len(found.changes)) == (1, 1)


async def test_a_queue_that_went_kept_its_jobs_out(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", CONF) as made:
        await begun(made)
        await made.delete("Queue", "small")
        await made.show(dsl.gang("bert", 2, cpu=2, queue="small"))
        await passing(made, 2)
    found = bisect_job(tmp_path / "log", "bert")
    assert found.found is not None
    assert found.found.change.text.startswith("Queue small: gone (session 2, ")
    assert (found.found.session, found.found.pods) == (2, 2)


async def test_a_change_after_the_wait_is_not_said_to_have_been_tried(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", CONF) as made:
        await begun(made)
        await made.show(small(2), dsl.gang("bert", 2, cpu=2, queue="small", phase="Pending", created=1))
        await passing(made, 3)
        await made.show(small(8))
        await passing(made, 3)
        await made.show(small(9))
        await passing(made, 1)
    found = bisect_job(tmp_path / "log", "bert")
    assert [(one.session, one.tried) for one in found.changes] == [(2, True), (None, False), (None, False)]
    assert found.started == 5
    words = "not tried, as no session of that wait that can be tried had it"
    assert [line.endswith(words) for line in found.lines()] == [False, False, True, True, False]


async def test_without_a_change_there_is_none(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.node("n1", cpu=4), dsl.queue("default"), dsl.gang("job", 1, cpu=8))
        await made.cycle()
    assert next(iter(bisect_job(tmp_path / "log", "job").lines())).startswith("nothing was changed before a session")


# --- waits ------------------------------------------------------------------------------------------------------------


async def slowed(path: Path) -> Path:
    """Jobs of ten seconds each two seconds, in a queue whose capability is lowered in the middle, and others."""
    async with scheduler(path, CONF) as made:
        await begun(made)
        ends: dict[int, list[str]] = {}
        for second in range(1, 90):
            made.clock.now = START + second * SECOND
            for key in ends.pop(second, ()):
                await made.finish(key)
            if second == 20:
                await made.show(dsl.queue("default", weight=3))
            if second == 30:
                await made.show(small(2))
            if second % 3 == 0 and second < 60:
                await made.show(dsl.gang(f"job-{second}", 1, cpu=2, queue="small", phase="Pending", created=second))
            record = await made.cycle(seconds=0)
            await made.carry_out(record)
            for one in ev.decode_plan(record.plan).operations("bind"):
                ends.setdefault(second + 8, []).append(one.key)
    return path


async def test_the_change_that_made_waits_longer_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be changes taken back one by one or, of many, by halves."""
    found = bisect_waits(await slowed(tmp_path / "log"), "small")
    assert found.found is not None
    assert found.found.change.key == "small"
    assert found.found.p95 < 5 < 30 < found.p95
    assert [one.change.key for one in found.effects] == ["small", "default"]
    assert next(iter(found.lines())).endswith(
        "without Queue small: spec.capability.cpu 8 -> 2 (session 31, 2026-01-01T00:00:30.000Z) (verified)"
    )
    assert bisect_waits(tmp_path / "log", "", 1, 29).found is None  # that one changed nothing
    with pytest.raises(NotFound, match="no job was in queue none"):
        bisect_waits(tmp_path / "log", "none")
    monkeypatch.setattr(bisect, "ONE_BY_ONE", 1)
    halves = bisect_waits(tmp_path / "log", "small")
    assert (halves.found, [one.key for one in halves.set_aside]) == (found.found, [])


async def test_a_configuration_that_made_waits_longer(tmp_path: Path) -> None:
    """Without the allocate action nothing is given a node any more."""
    async with scheduler(tmp_path / "log", CONF) as made:
        await begun(made)
        for second in range(1, 30):
            made.clock.now = START + second * SECOND
            if second == 10:
                await made.load(CONF.replace("enqueue, allocate, backfill", "enqueue"))
            if second % 5 == 0:
                await made.show(dsl.gang(f"job-{second}", 1, cpu=1, phase="Pending", created=second))
            await made.carry_out(await made.cycle(seconds=0))
    found = bisect_waits(tmp_path / "log")
    assert found.found is not None
    assert (found.found.change.kind, found.never, found.found.never) == ("configuration", 4, 0)
    assert found.found.p95 < 2 < found.p95


async def test_a_configuration_that_was_replaced_is_not_blamed_for_the_next(tmp_path: Path) -> None:
    """Session 2: a configuration that decides alike; 4: one that keeps the job out."""
    async with scheduler(tmp_path / "log", CONF) as made:
        await begun(made)
        await made.load(CONF + "# alike\n")
        await passing(made, 2)
        await made.load(IDLE)
        await made.show(dsl.gang("bert", 1, cpu=6, phase="Pending", created=3))
        await passing(made, 3)
    found = bisect_job(tmp_path / "log", "bert")
    assert [(one.change.session, one.session) for one in found.changes] == [(4, 4), (2, None)]
    assert found.found is not None and found.found.change.session == 4


async def lowered_twice(path: Path, sessions: int) -> None:
    """A quota that is lowered, raised and lowered again, each time before a session; the job comes after all."""
    async with scheduler(path, CONF) as made:
        await begun(made)
        for cpu in (2, 8, 2):
            await made.show(small(cpu))
            await passing(made, 1)
        await made.show(dsl.gang("bert", 2, cpu=2, queue="small", phase="Pending", created=4))
        await passing(made, sessions)


async def test_of_two_changes_alike_the_one_in_force_is_blamed(tmp_path: Path) -> None:
    await lowered_twice(tmp_path / "log", 2)
    found = bisect_job(tmp_path / "log", "bert")
    assert [(one.change.session, one.session) for one in found.changes] == [(4, 5), (2, None), (3, None)]


async def test_of_two_changes_alike_only_one_is_taken_back_from_the_workload(tmp_path: Path) -> None:
    await lowered_twice(tmp_path / "log", 5)
    found = bisect_waits(tmp_path / "log", "small")
    assert found.found is not None and found.found.change.session == 4
    assert {one.change.session: one.never for one in found.effects} == {2: 1, 3: 1, 4: 0}


async def test_a_configuration_that_came_again_is_not_taken_back_with_the_first(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", CONF) as made:
        await begun(made)
        for conf in (IDLE, CONF, IDLE):
            await made.load(conf)
            await passing(made, 1)
        await made.show(dsl.gang("bert", 1, cpu=6, phase="Pending", created=4))
        await passing(made, 5)
    assert [(one.change.session, one.session) for one in bisect_job(tmp_path / "log", "bert").changes] == [
        (4, 5), (2, None), (3, None),
    ]  # fmt: skip
    found = bisect_waits(tmp_path / "log")
    assert found.found is not None and found.found.change.session == 4

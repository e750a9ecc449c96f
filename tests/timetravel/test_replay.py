"""Replay: the same input gives the same bytes, and what does not is named."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from tests import dsl
from tests.timetravel.histories import (
    CONF,
    SCORED,
    scheduler,
    write_busy_history,
    write_history_that_begins_amid_a_session,
)
from vcd.eventlog import LogError, LogReader, SessionInfo
from vcd.model import events as ev
from vcd.timetravel import log_operations
from vcd.timetravel.plan_differences import first_difference
from vcd.timetravel.replay import Replayed, _parts, replay

ROOT = Path(__file__).parents[2]
ONE_NODE = (dsl.node("n1"), dsl.queue("default"))


def differing(path: Path, first: int | None = None, last: int | None = None) -> list[int]:
    return [one.session for one in replay(path, first, last) if one.difference is not None]


@pytest.mark.parametrize("memory", [True, False])
def test_every_plan_of_a_history_comes_out_the_same(busy: Path, memory: bool) -> None:
    assert [(one.session, one.difference) for one in replay(busy, memory=memory)] == [(n, None) for n in range(1, 9)]


def test_events_between_head_and_session_are_not_decided_on(busy: Path) -> None:
    with LogReader(busy) as reader:
        (info,) = reader.sessions(3, 3)
    assert info.sequence - info.head > 3
    assert differing(busy, first=3, last=3) == []


@pytest.mark.parametrize("hash_seed", ["1", "4242"])
def test_replay_is_the_same_under_any_hash_seed(busy: Path, hash_seed: str) -> None:
    command = [sys.executable, "-c", "from vcd.cli import main; main()", "replay", "--event-log", str(busy)]
    env = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "sessions 1 to 8: 8 of 8 identical (13 operations)\n")


def test_a_range_of_sessions_is_chosen(busy: Path) -> None:
    assert [one.session for one in replay(busy, 3, 5)] == [3, 4, 5]


def test_the_number_of_sessions_is_told_first(busy: Path) -> None:
    told: list[int] = []
    next(replay(busy, 3, 5, total=told.append))
    assert told == [3]


def test_history_whose_beginning_is_gone_replays_from_its_checkpoint(busy: Path) -> None:
    log_operations.compact(busy, max_age=1)
    assert [(one.session, one.difference) for one in replay(busy)] == [(n, None) for n in range(5, 9)]


def test_a_session_whose_history_is_gone_is_an_error(busy: Path) -> None:
    log_operations.compact(busy, max_age=1)
    with pytest.raises(LogError, match="session 2 is not in it"):
        list(replay(busy, 2, 2))


async def test_each_session_is_decided_by_the_configuration_of_its_day(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", CONF) as made:
        await made.show(*ONE_NODE, dsl.gang("a", 1, cpu=9, phase="Pending", minimum={"cpu": 9}))
        await made.cycle()
        await made.load(CONF.replace("enqueue, ", ""))
        await made.cycle()
    with LogReader(tmp_path / "log") as reader:
        policies = {info.policy for info in reader.sessions()}
    assert (len(policies), differing(tmp_path / "log")) == (2, [])


async def test_settings_of_the_day_decide_again(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", CONF) as made:
        await made.load(CONF, **{"scheduler-name": "other"})
        await made.show(*ONE_NODE, dsl.gang("a", 1, cpu=1))
        record = await made.cycle()
    assert ev.decode_plan(record.plan).statements == ()
    assert differing(tmp_path / "log") == []


async def test_a_configuration_that_was_logged_after_the_head_is_found(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", CONF) as made:
        await made.show(*ONE_NODE, dsl.gang("a", 1, cpu=9, phase="Pending", minimum={"cpu": 9}))
        await made.cycle(made.read(CONF.replace("enqueue, ", "")))
    assert differing(tmp_path / "log") == []


async def test_a_configuration_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", CONF) as made:
        await made.show(*ONE_NODE, dsl.gang("a", 1, cpu=1))
        record = await made.cycle()
        text = CONF.replace("gang", "gong")
        await made.tell(ev.PolicyLoaded("f" * 64, text))
        head = made.state.sequence
        await made.tell(msgspec.structs.replace(record, session=2, head=head, policy="f" * 64))
    with pytest.raises(
        LogError, match=r"session 2 .* configuration f{16}, which this version cannot read: line 5: .*gong"
    ):
        list(replay(tmp_path / "log"))


async def test_another_version_is_told_beside_the_difference(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(*ONE_NODE, dsl.gang("a", 1, cpu=1))
        await made.cycle(forge=lambda plan: ev.Plan(), made_by={"vcd": "0.0.1", "my-plugin": "3"})
    (one,) = replay(tmp_path / "log")
    assert one.difference is not None
    assert one.versions["my-plugin"] == ("3", "")
    assert one.versions["vcd"][0] == "0.0.1"


async def test_a_plan_that_was_tampered_with_is_named(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.node("n1"), dsl.node("n2"), dsl.queue("default"), dsl.gang("a", 2, cpu=8))
        await made.cycle(forge=_swap_nodes)
    (one,) = replay(tmp_path / "log")
    assert one.difference is not None
    assert one.difference.where == "statement 0 (allocate for default/a), operation 0"
    assert {one.difference.recorded, one.difference.replayed} == {
        "bind default/a-0 to n1",
        "bind default/a-0 to n2",
    }


def _elsewhere(node: str) -> Callable[[ev.Plan], ev.Plan]:
    """A forger who binds the one pod of a plan to ``node``."""

    def forge(plan: ev.Plan) -> ev.Plan:
        (statement,) = plan.statements
        (bind,) = statement.operations
        other = msgspec.structs.replace(bind, node=node)
        return msgspec.structs.replace(plan, statements=(msgspec.structs.replace(statement, operations=(other,)),))

    return forge


@pytest.mark.parametrize(
    ("then", "why"),
    [
        ("half", r"half rates (?P<other>\d+) points \(.*leastrequested .*\) now"),
        ("n9", "no node n9 was there"),
        ("small", r"small does not take default/a-0 now \(1 node Insufficient cpu\)"),
    ],
)
async def test_a_bind_to_another_node_rates_both(tmp_path: Path, then: str, why: str) -> None:
    async with scheduler(tmp_path / "log", SCORED) as made:
        await made.show(dsl.queue("default"), dsl.node("small", cpu=1), dsl.node("empty"), dsl.node("half"))
        await made.show(dsl.gang("old", 1, cpu=4, on=["half"], phase="Running"))
        await made.show(dsl.gang("a", 1, cpu=2))
        await made.cycle(forge=_elsewhere(then))
    (one,) = replay(tmp_path / "log")
    assert one.difference is not None
    assert (one.difference.recorded, one.difference.replayed) == (
        f"bind default/a-0 to {then}",
        "bind default/a-0 to empty",
    )
    now, other = one.difference.why
    best = re.fullmatch(r"empty rates (\d+) points \(.*leastrequested .*\) now", now)
    rated = re.fullmatch(why, other)
    assert best is not None and rated is not None
    assert int(best[1]) > int(rated.groupdict().get("other", 0))


def _swap_nodes(plan: ev.Plan) -> ev.Plan:
    (statement,) = plan.statements
    first, second = statement.operations
    operations = (
        msgspec.structs.replace(first, node=second.node),
        msgspec.structs.replace(second, node=first.node),
    )
    return msgspec.structs.replace(plan, statements=(msgspec.structs.replace(statement, operations=operations),))


def _with_words(plan: ev.Plan) -> ev.Plan:
    """A plan as version 2 had it: with the words of conditions, and groups that only have other words now."""
    groups = [
        msgspec.structs.replace(one, condition=(*one.condition[:3], "1/1 tasks in gang unschedulable: no room"))
        for one in plan.groups
        if one.condition is not None
    ]
    only_words = ev.GroupStatus("default/old", "Inqueue", ("Unschedulable", "True", "NotEnoughResources", "x"))
    return msgspec.structs.replace(plan, groups=(*groups, only_words))


@pytest.mark.parametrize(("version", "where"), [("2", None), ("3", "group status 0")])
async def test_words_of_conditions_in_older_plans_are_not_compared(
    tmp_path: Path, version: str, where: str | None
) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(*ONE_NODE, dsl.gang("a", 1, cpu=100, phase="Inqueue"))
        await made.cycle(forge=_with_words, made_by={"plan": version})
    (one,) = replay(tmp_path / "log")
    assert (one.difference and one.difference.where) == where


async def test_a_status_beside_its_condition_is_compared_in_older_plans(tmp_path: Path) -> None:
    def otherwise(plan: ev.Plan) -> ev.Plan:
        (status,) = plan.groups
        return msgspec.structs.replace(plan, groups=(msgspec.structs.replace(status, running=7),))

    async with scheduler(tmp_path / "log") as made:
        await made.show(*ONE_NODE, dsl.gang("a", 1, cpu=100, phase="Inqueue"))
        await made.cycle(forge=otherwise, made_by={"plan": "2"})
    (one,) = replay(tmp_path / "log")
    assert one.difference is not None and one.difference.where == "group status 0"


async def test_a_plugin_that_fails_today_is_a_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(*ONE_NODE, dsl.gang("a", 1, cpu=1))
        await made.cycle()

    def broken(*arguments: object, **more: object) -> None:
        raise ZeroDivisionError("no such luck")

    monkeypatch.setattr("vcd.timetravel.replay.decide", broken)
    (one,) = replay(tmp_path / "log")
    assert str(one.difference) == "deciding: recorded a plan; replayed ZeroDivisionError: no such luck"


async def _write_handover(path: Path) -> None:
    """The log of two replicas, each of which decided two sessions."""
    async with scheduler(path, epoch=1) as made:
        await made.show(*ONE_NODE, dsl.gang("a", 1, cpu=2), dsl.gang("b", 2, cpu=1))
        for epoch in (1, 2):
            if epoch == 2:
                await made.tell(ev.LeadershipChanged(2, "replica-2", leading=True))
            await made.carry_out(await made.cycle())
            await made.carry_out(await made.cycle())


async def test_two_replicas_histories_replay_across_the_handover(tmp_path: Path) -> None:
    await _write_handover(tmp_path / "both")
    assert [(one.session, one.epoch, one.difference) for one in replay(tmp_path / "both")] == [
        (1, 1, None),
        (2, 1, None),
        (3, 2, None),
        (4, 2, None),
    ]


# --- processes --------------------------------------------------------------------------------------------------------


@pytest.fixture
def fine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process is begun for a single session."""
    monkeypatch.setattr("vcd.timetravel.replay.LEAST", 1)


@pytest.mark.usefixtures("fine")
async def test_any_number_of_processes_gives_the_same(tmp_path: Path) -> None:
    await write_busy_history(tmp_path / "busy")
    await _write_handover(tmp_path / "both")
    advanced: list[None] = []
    for path, sessions in ((tmp_path / "busy", 8), (tmp_path / "both", 4)):
        spread = list(replay(path, jobs=2, advanced=lambda: advanced.append(None)))
        assert spread == list(replay(path))
        assert len(spread) == sessions
    assert len(advanced) == 12


@pytest.mark.usefixtures("fine")
async def test_processes_tell_differences_and_errors_as_one_does(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", SCORED) as made:
        await made.show(*ONE_NODE, dsl.gang("a", 1, cpu=1))
        record = await made.cycle(forge=_elsewhere("n9"))
        await made.tell(msgspec.structs.replace(record, session=2, head=1000))
    for jobs in (1, 2):
        found: list[Replayed] = []
        with pytest.raises(LogError, match=r"it ends with event .*, before event 1000"):
            found.extend(replay(tmp_path / "log", jobs=jobs))
        assert [one.difference.recorded for one in found if one.difference] == ["bind default/a-0 to n9"]


def _infos(count: int) -> list[SessionInfo]:
    """Sessions of which each has ten events."""
    return [SessionInfo(n, 10 * n, 0, 10 * n - 1, 1, 0, "", 0, 0) for n in range(1, count + 1)]


@pytest.mark.parametrize(
    ("sessions", "jobs", "checkpoints", "parts"),
    [
        (3200, 2, [], [(n, n + 99) for n in range(1, 3200, 100)]),
        (99, 4, [], [(1, 50), (51, 99)]),
        (50, 4, [], [(1, 50)]),
        (200, 1, [], [(1, 50), (51, 100), (101, 150), (151, 200)]),
        (400, 2, [700, 1100, 1750], [(1, 50), (51, 100), (101, 150), (151, 175), (176, 225), (226, 275), (276, 325)]),
    ],
)
def test_sessions_are_cut_at_checkpoints_and_where_it_pays(
    sessions: int, jobs: int, checkpoints: list[int], parts: list[tuple[int, int]]
) -> None:
    found = _parts(_infos(sessions), checkpoints, jobs)
    assert found[: len(parts)] == parts
    assert [number for first, last in found for number in range(first, last + 1)] == list(range(1, sessions + 1))


# --- files that are not as they should be -----------------------------------------------------------------------------


async def test_a_log_without_sessions_is_an_error(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log"):
        pass
    with pytest.raises(LogError, match="it has no sessions"):
        list(replay(tmp_path / "log"))


async def test_a_log_that_ends_before_a_head_is_an_error(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(*ONE_NODE, dsl.gang("a", 1, cpu=1))
        record = await made.cycle()
        await made.tell(msgspec.structs.replace(record, session=2, head=1000))
    with pytest.raises(LogError, match=r"it ends with event .*, before event 1000"):
        list(replay(tmp_path / "log"))


# --- differences ------------------------------------------------------------------------------------------------------


@dataclass
class Case:
    """Two plans and what tells them apart."""

    recorded: ev.Plan
    replayed: ev.Plan
    where: str
    words: tuple[str, str]


BIND = ev.Operation("bind", "ns/p", "u", "n1")
ACT = ev.Statement("ns/g", "allocate", (BIND,))
DIFFERENCES = {
    "a statement more": Case(
        ev.Plan(),
        ev.Plan(statements=(ACT,)),
        "statement 0",
        ("nothing", "allocate for ns/g with 1 operations, first bind ns/p to n1"),
    ),
    "an operation less": Case(
        ev.Plan(statements=(msgspec.structs.replace(ACT, operations=(BIND, BIND)),)),
        ev.Plan(statements=(ACT,)),
        "statement 0 (allocate for ns/g), operation 1",
        ("bind ns/p to n1", "nothing"),
    ),
    "another verb": Case(
        ev.Plan(statements=(ACT,)),
        ev.Plan(statements=(msgspec.structs.replace(ACT, operations=(ev.Operation("pipeline", "ns/p", "u", "n1"),)),)),
        "statement 0 (allocate for ns/g), operation 0",
        ("bind ns/p to n1", "hold capacity on n1 for ns/p"),
    ),
    "another reason to evict": Case(
        ev.Plan(statements=(ev.Statement("ns/g", "preempt", (ev.Operation("evict", "ns/p", "u", "n1", "for x"),)),)),
        ev.Plan(statements=(ev.Statement("ns/g", "preempt", (ev.Operation("evict", "ns/p", "u", "n1", "for y"),)),)),
        "statement 0 (preempt for ns/g), operation 0",
        ("evict ns/p from n1 (for x)", "evict ns/p from n1 (for y)"),
    ),
    "another phase": Case(
        ev.Plan(groups=(ev.GroupStatus("ns/g", "Inqueue", running=1, was="Pending"),)),
        ev.Plan(groups=(ev.GroupStatus("ns/g", "Running", ("Scheduled", "True", "ready", ""), running=1),)),
        "group status 0",
        ("ns/g Inqueue with 1 running (was Pending)", "ns/g Running with 1 running, condition Scheduled=True ready"),
    ),
    "another usage": Case(
        ev.Plan(queues=(ev.QueueUsage("q", {"cpu": "1"}),)),
        ev.Plan(queues=(ev.QueueUsage("q", {}),)),
        "queue usage 0",
        ("queue q has cpu 1 allocated", "queue q has nothing allocated"),
    ),
    "another reason to wait": Case(
        ev.Plan(waiting=(ev.Waiting("ns/g", "predicate", "", "Insufficient cpu", 3, 1, ("ns/p",)),)),
        ev.Plan(waiting=(ev.Waiting("ns/g", ""),)),
        "reason to wait 0",
        ("ns/g waits at predicate for p: 3 nodes Insufficient cpu", "ns/g waits no more"),
    ),
    "another fault": Case(ev.Plan(faults=("drf: x",)), ev.Plan(), "fault 0", ("drf: x", "nothing")),
    "work left": Case(ev.Plan(more=True), ev.Plan(), "work left 0", ("True", "False")),
}


@pytest.mark.parametrize("case", DIFFERENCES.values(), ids=DIFFERENCES.keys())
def test_the_first_difference_is_told_in_words(case: Case) -> None:
    found = first_difference(ev.encode_plan(case.recorded), case.replayed)
    assert (found.where, (found.recorded, found.replayed)) == (case.where, case.words)


def test_bytes_that_are_no_plan_are_a_difference() -> None:
    assert "cannot read" in first_difference(b"\xc1", ev.Plan()).recorded


def test_plans_that_say_the_same_in_other_bytes_differ() -> None:
    assert first_difference(b"\x81\xa4more\xc2", ev.Plan()).where == "the encoded plan"


async def test_a_session_whose_state_retention_took_away_is_left_out_unless_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log"
    await write_history_that_begins_amid_a_session(path)
    assert [(one.session, one.difference) for one in replay(path)] == [(2, None)]
    with pytest.raises(LogError, match="cannot be rebuilt"):
        list(replay(path, 1, 1))

"""The short answer about a job: what it says, line by line, in no more columns than a terminal has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import dsl
from tests.timetravel.histories import CONF, START, scheduler
from vcd import api
from vcd.eventlog.writer_status import WriterStatus, write_status
from vcd.timetravel.history import opened
from vcd.timetravel.joblist import jobs
from vcd.timetravel.overview import glances
from vcd.timetravel.why.job_answer import answer_lines

COLUMNS = 120


def answer(log: Path, name: str, session: int | None = None, *, change: bool = False) -> list[str]:
    with api.open(log) as opened:
        job = opened.job(name, "default", session)
        found = job.change(job.verdict().session) if change else None
        lines = list(answer_lines(job.story(), job.verdict(), job.obstacles(), found))
    assert max(map(len, lines)) <= COLUMNS
    assert len(set(lines)) == len(lines)
    return lines


def test_a_job_that_waits(busy: Path) -> None:
    assert answer(busy, "large", 7, change=True) == [
        "default/large  WAITING 10 min  queue default  5 x 7 cpu, all or nothing",
        "Why      The cluster is full: 34 of 40 cpu are free, and it needs 35; default/second holds most.",
        "Queue    default has 0 of its deserved 32 cpu",
        "Held by  default/second 6 cpu",
        "Helps    job default/large's minMember 5 -> 3: 3 of 5 pods are bound, to n2, n3, n4",
        "History  00:00:05 created, 5 pods created; 00:10:05 admitted",
        "As of    2026-01-01T00:10:05.000Z",
    ]


async def test_a_job_has_its_place_among_those_of_its_queue_that_wait(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", CONF) as made:
        await made.show(dsl.queue("default"), dsl.node("n1", cpu=4), dsl.priority_class("high", 10))
        await made.show(dsl.gang("runs", 1, cpu=4, on=["n1"], phase="Running"))
        await made.show(dsl.gang("first", 1, cpu=2, group_spec={"priorityClassName": "high"}))
        await made.show(dsl.gang("second", 1, cpu=2, created=1), dsl.gang("third", 1, cpu=2, created=2))
        await made.cycle()
    place = "default has 4 of its deserved 4 cpu; 3rd of 3 waiting jobs"
    assert f"Queue    {place}, behind second, first (priority 10)" in answer(tmp_path / "log", "third")


async def test_a_job_for_which_nothing_is_evicted_says_which_rules_protect_the_victims(tmp_path: Path) -> None:
    conf = CONF.replace('"enqueue, allocate, backfill"', '"allocate, preempt"')
    high, low = ({"priorityClassName": name} for name in ("high", "low"))
    async with scheduler(tmp_path / "log", conf) as made:
        await made.show(dsl.queue("default"), dsl.node("n1", cpu=4))
        await made.show(dsl.priority_class("high", 10), dsl.priority_class("low", 1))
        await made.show(dsl.gang("low", 2, cpu=2, on=["n1", "n1"], phase="Running", group_spec=low))
        await made.show(dsl.gang("urgent", 1, cpu=2, group_spec=high))
        await made.cycle()
    assert "Evicts   nothing: gang protects pods (preempt)" in answer(tmp_path / "log", "urgent")


def test_a_wait_goes_on_in_a_quiet_cluster_while_its_log_is_written(
    busy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = WriterStatus("leader", "vcd-0", "volcano-system/vcd", "vcd-0", 0.0)
    monkeypatch.setattr("time.time", lambda: START / 1e9 + 1266)
    monkeypatch.setattr("time.time_ns", lambda: START + 1266 * 10**9)
    write_status(busy, said)
    lines = answer(busy, "third")
    assert lines[0] == "default/third  WAITING 21 min 4 s  queue small  2 x 2 cpu, all or nothing"
    assert lines[-1] == "As of    2026-01-01T00:21:06.000Z; the last event was 10 min before"
    with api.open(busy) as log:
        assert log.job("third").verdict().waited == 21 * 60 + 3
        assert "default/third  2 x 2 cpu  21 min 4 s" in "\n".join(log.queue("small").lines())
        glance = next(glances(log.history))
    assert glance.as_of == START + 1266 * 10**9


def test_a_log_that_nothing_writes_any_more_is_as_of_its_last_event(
    busy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: START / 1e9)
    write_status(busy, WriterStatus("leader", "vcd-0", "volcano-system/vcd", "vcd-0", 0.0))
    monkeypatch.setattr("time.time", lambda: START / 1e9 + 1266)
    assert answer(busy, "third")[-1] == "As of    2026-01-01T00:11:06.000Z"


def test_a_job_that_waited_is_told_with_its_pods_and_places(busy: Path) -> None:
    why = "the cluster is full: 34 of 40 cpu are free, and it needs 35; default/second holds most"
    assert answer(busy, "large") == [
        "default/large  5 Running  queue default",
        f"Before   Waited 11 min: {why}.",
        "Placed   n2, n3, n4 (3 pods), session 8",
        "History  00:00:05 created, 5 pods created; 00:10:05 admitted; 00:11:05 5 pods bound; 00:11:06 5 pods running",
        "As of    2026-01-01T00:11:06.000Z",
    ]


def test_a_queues_limit_is_told_with_who_holds_it(busy: Path) -> None:
    assert answer(busy, "third")[:4] == [
        "default/third  WAITING 11 min 4 s  queue small  2 x 2 cpu, all or nothing",
        "Why      Queue small may use 8 cpu (spec.capability.cpu): 6 in use, and it requests 4.",
        "Queue    small has 6 of its deserved 8 cpu",
        "Held by  default/second 6 cpu",
    ]


def test_a_pod_that_runs_does_not_wait_with_its_job(busy: Path) -> None:
    with api.open(busy) as opened:
        verdict = opened.job("third", "default").verdict()
        assert verdict.still
        story = opened.pod("large-0", "default")
        head, second, *_ = answer_lines(story, verdict)
    assert head == "default/large-0  Running  queue default"
    assert second.startswith("Before   Waited 11 min 3 s: ")


async def test_a_bind_that_failed_is_no_placement(tmp_path: Path) -> None:
    """The answer named the node of the last decision as the place, and counted each failed bind as one done."""
    async with scheduler(tmp_path / "log", CONF) as made:
        await made.show(dsl.queue("default"), dsl.node("n1"), dsl.gang("g", 2, cpu=1))
        await made.carry_out(await made.cycle(), "failed", "a webhook denied it")
    with api.open(tmp_path / "log") as opened:
        lines = list(answer_lines(opened.job("g", "default").story()))
    assert "History  00:00:00 created, 2 pods created; 00:00:01 2 binds failed" in lines
    assert not [line for line in lines if line.startswith("Placed")]


async def test_a_job_whose_pods_are_all_deleted_is_terminating_as_in_the_list_of_jobs(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", CONF) as made:
        await made.show(dsl.queue("default"), dsl.node("n1", cpu=4), dsl.gang("a", 2, cpu=9))
        await made.carry_out(await made.cycle())
        await made.show(dsl.gang("a", 2, cpu=9, deleting=True))
        await made.carry_out(await made.cycle())
    with opened(tmp_path / "log") as history:
        (row,) = jobs(history).jobs
    assert row.state == "terminating"
    head, why, *_ = answer(tmp_path / "log", "a")
    assert head.startswith("default/a  2 terminating  ")
    assert why == f"Why      {row.text[:1].upper()}{row.text[1:]}."


async def test_a_remedy_is_stated_without_a_search_of_changes(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", CONF) as made:
        await made.show(dsl.queue("default"), [dsl.node(f"n{number}", cpu=4) for number in range(3)])
        for number in range(3):
            await made.show(dsl.gang(f"x{number}", 1, cpu=2, on=[f"n{number}"], phase="Running"))
        await made.show(dsl.gang("g", 1, cpu=3))
        await made.cycle()
    remedy = "Remedy   3 cpu free on one node: fewer pieces of it in use, or another node"
    assert remedy in answer(tmp_path / "log", "g")
    assert not [line for line in answer(tmp_path / "log", "g", change=True) if line.startswith("Remedy")]

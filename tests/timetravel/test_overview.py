"""The cluster at a session: queues, nodes, jobs and counts, worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import dsl
from tests.timetravel.histories import CONF, START, scheduler, write_busy_history
from vcd.eventlog import LogError
from vcd.timetravel.history import opened
from vcd.timetravel.overview import JobLine, Overview, overview

SECOND = 1_000_000_000
CREATED = START


@pytest.fixture
async def log(tmp_path: Path) -> Path:
    """Two nodes of 8 cpu; a gang of 2 x 4 cpu that is placed in session 1 and runs in session 2, one of 3 x 4 cpu that
    never fits as a whole, a group without a queue, and a pod that nobody groups."""
    path = tmp_path / "log"
    lost = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    async with scheduler(path, CONF.replace("enqueue, ", "")) as made:
        await made.show(
            dsl.node("n1", labels={"zone": "a"}),
            dsl.node("n2", status=lost, gpu=2),
            dsl.queue("default", weight=3, capability={"cpu": "12"}),
            dsl.priority_class("high", 7),
            dsl.gang("first", 2, cpu=4, memory=1, group_spec={"priorityClassName": "high"}),
            dsl.gang("later", 3, cpu=4, memory=1, created=30),
            dsl.group("lonely", queue="nowhere", created=40),
            dsl.pod("alone"),
        )
        made.clock.now += 60 * SECOND
        await made.carry_out(await made.cycle())
        await made.finish("default/first-0")
        await made.cycle()
    return path


def job(found: Overview, name: str) -> JobLine:
    (one,) = [line for line in found.jobs if line.key == f"default/{name}"]
    return one


def shown(path: Path, session: int = 2) -> Overview:
    with opened(path) as history:
        return overview(history, session)


def test_the_session_that_is_asked_for_is_shown(log: Path) -> None:
    times = {one.session: one.time - START for one in (shown(log), shown(log, 1))}
    assert times == {1: 60 * SECOND, 2: 61 * SECOND}


def test_what_a_session_decides_counts_as_done(log: Path) -> None:
    found = shown(log, 1)
    assert found.pods == {"Pending": 4, "Binding": 2}
    assert sum(node.used.get("cpu", 0) for node in found.nodes) == 8000
    assert [queue.amounts["allocated"]["cpu"] for queue in found.queues if queue.name == "default"] == [8000]


def test_a_node_shows_its_room_and_what_is_used(log: Path) -> None:
    first, second = shown(log).nodes
    room = {"cpu": 8000, "memory": 32 << 30, "pods": 110}
    assert (first.name, first.ready, first.labels["zone"], first.allocatable) == ("n1", True, "a", room)
    assert (second.name, second.ready, second.allocatable) == ("n2", False, {**room, "nvidia.com/gpu": 2000})
    assert sorted((node.used.get("cpu", 0), node.pods) for node in (first, second)) == [(0, 0), (4000, 1)]


def test_a_job_shows_its_pods_and_what_it_waits_for(log: Path) -> None:
    found = shown(log)
    first, later = job(found, "first"), job(found, "later")
    assert (first.queue, first.priority, first.minimum, first.pods, first.running) == ("default", 7, 2, 2, 1)
    assert (first.phase, first.pending, first.waiting, first.since) == ("Running", 0, "", None)
    assert (later.priority, later.pods, later.running, later.pending) == (0, 3, 0, 3)
    assert later.waiting.startswith("later-2: queue has no room within what it deserves (allocated 4 cpu, ")
    assert later.since == CREATED + 30 * SECOND


def test_a_group_whose_queue_is_not_there_is_shown(log: Path) -> None:
    lonely = job(shown(log), "lonely")
    assert (lonely.queue, lonely.pods, lonely.since) == ("nowhere", 0, CREATED + 40 * SECOND)
    assert lonely.waiting == "queue nowhere does not exist"


async def test_nothing_waits_since_later_than_the_session(tmp_path: Path) -> None:
    """The API server's clock may be ahead of the scheduler's."""
    async with scheduler(tmp_path / "log", CONF) as made:
        await made.show(dsl.queue("default"), dsl.gang("a", 1, created=7), dsl.group("b", created=7))
        await made.cycle()
    found = shown(tmp_path / "log", 1)
    assert [one.since for one in found.jobs] == [found.time, found.time]


async def test_one_history_gives_many_sessions_as_fresh_ones_do(tmp_path: Path) -> None:
    await write_busy_history(tmp_path / "busy")
    with opened(tmp_path / "busy") as history:
        there_and_back = [overview(history, number) for number in (1, 2, 5, 8, 3)]
    assert there_and_back == [shown(tmp_path / "busy", number) for number in (1, 2, 5, 8, 3)]


def test_a_session_that_is_not_there_is_an_error(log: Path) -> None:
    with pytest.raises(LogError, match="session 9 is not in it; it has sessions 1 to 2"):
        shown(log, 9)

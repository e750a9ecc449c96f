"""The timeline of what people and failures changed: nodes, queues, the configuration, faults; never the workload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests import dsl
from tests.cli.results import without_defect
from tests.timetravel.histories import START, Scheduler, scheduler
from vcd import api
from vcd.cli import main
from vcd.eventlog import LogError
from vcd.model import events as ev

LOST: dict[str, Any] = {"conditions": [{"type": "Ready", "status": "False"}]}
TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}


async def at(made: Scheduler, seconds: int, *objects: Any) -> None:
    """Objects that are shown so many seconds after the beginning, and a session on them."""
    made.clock.now = START + seconds * 1_000_000_000
    await made.show(*objects)
    await made.carry_out(await made.cycle(seconds=0))


async def begin(made: Scheduler) -> None:
    nodes = [dsl.node(f"n{number}", cpu=8) for number in range(4)]
    await made.tell(ev.KindListed("Node", "1"))  # as each daemon logs
    await at(made, 0, dsl.queue("a"), *nodes)


async def changed(path: Path, *steps: Any) -> list[str]:
    """The lines about a log in which each of some steps follows a minute after the one before."""
    async with scheduler(path) as made:
        await begin(made)
        for minute, objects in enumerate(steps, 1):
            await at(made, 60 * minute, *objects)
    with api.open(path) as log:
        head, *lines = log.changes().lines()
    count = "nothing" if not lines else f"{len(lines)} change{'' if len(lines) == 1 else 's'}"
    assert head.startswith(count)
    return lines


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (dsl.node("n1", cpu=8, status=LOST), "Node n1 not ready"),
        (dsl.node("n1", cpu=8, unschedulable=True), "Node n1 cordoned"),
        (dsl.node("n1", cpu=8, taints=[TAINT]), "Node n1: got taint team=a:NoSchedule"),
        (dsl.node("n1", cpu=6), "Node n1: allocatable cpu 8 -> 6"),
        (dsl.node("n1", cpu=8, labels={"zone": "b"}), "Node n1: label zone nothing -> b"),
        (dsl.node("n9", cpu=8), "Node n9 added"),
    ],
)
async def test_each_change_of_a_node_is_a_line_and_so_is_its_end(tmp_path: Path, node: Any, expected: str) -> None:
    lines = await changed(tmp_path / "log", [node])
    assert lines == [f"00:01:00  {expected}"]


async def test_what_was_changed_back_is_a_change_of_its_own(tmp_path: Path) -> None:
    there, gone = dsl.node("n1", cpu=8), dsl.node("n1", cpu=8, taints=[TAINT], status=LOST, unschedulable=True)
    lines = await changed(tmp_path / "log", [gone], [there])
    assert [line.split("  ")[1] for line in lines] == [
        "Node n1 not ready",
        "Node n1 cordoned",
        "Node n1: got taint team=a:NoSchedule",
        "Node n1 ready again",
        "Node n1 uncordoned",
        "Node n1: lost taint team=a:NoSchedule",
    ]


async def test_what_happens_to_many_nodes_within_a_minute_is_one_line(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await begin(made)
        for seconds, name in ((60, "n0"), (90, "n1"), (119, "n2"), (180, "n3")):
            await at(made, seconds, dsl.node(name, cpu=8, status=LOST))
    with api.open(tmp_path / "log") as log:
        found = log.changes()
    assert list(found.lines())[1:] == ["00:01:00  3 Nodes not ready: n0, n1, n2", "00:03:00  Node n3 not ready"]
    assert [one.names for one in found.changes] == [["n0", "n1", "n2"], ["n3"]]


async def test_queues_and_the_configuration_are_among_it_and_jobs_are_not(tmp_path: Path) -> None:
    lines = await changed(
        tmp_path / "log", [dsl.queue("a", weight=3)], [dsl.gang("job", 1, cpu=1)], [dsl.queue("b", weight=1)]
    )
    assert lines == ["00:01:00  Queue a: spec.weight 1 -> 3", "00:03:00  Queue b created"]


async def test_a_fault_begins_and_is_over(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await begin(made)
        for seconds, message in ((60, "the API server refuses a write"), (90, "")):
            made.clock.now = START + seconds * 1_000_000_000
            await made.tell(ev.InstallationFault("write-refused", "create pods/binding 403", message))
    with api.open(tmp_path / "log") as log:
        assert list(log.changes().lines())[1:] == [
            "00:01:00  fault write-refused create pods/binding 403: the API server refuses a write",
            "00:01:30  fault write-refused create pods/binding 403 is over",
        ]


async def test_around_a_job_is_from_ten_minutes_before_it_came_until_it_was_bound(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await begin(made)
        for minute in (10, 25, 40, 60):
            await at(made, 60 * minute, dsl.queue("a", weight=minute))
            if minute == 25:
                await at(made, 30 * 60, dsl.gang("job", 1, cpu=1, created=30 * 60))
                await at(made, 31 * 60, dsl.gang("job", 1, cpu=1, created=30 * 60, on=["n0"], phase="Running"))
    with api.open(tmp_path / "log") as log:
        assert list(log.changes(around="job").lines()) == [
            "1 change in 10 min from 2026-01-01T00:20:00.000Z to 2026-01-01T00:30:00.000Z",
            "00:25:00  Queue a: spec.weight 10 -> 25",
        ]


async def test_the_command_takes_a_time_and_no_name(tmp_path: Path) -> None:
    await changed(tmp_path / "log", [dsl.queue("a", weight=3)], [dsl.queue("a", weight=4)])

    def run(*arguments: str) -> Any:
        command = ["explain", "changes", *arguments, "--event-log", str(tmp_path / "log")]
        return without_defect(CliRunner().invoke(main, command))

    assert run("--since", "00:02").stdout.splitlines()[1:] == ["00:02:00  Queue a: spec.weight 3 -> 4"]
    assert run("--at", "00:01").stdout.splitlines()[1:] == ["00:01:00  Queue a: spec.weight 1 -> 3"]
    refused = run("queue")
    assert (refused.exit_code, "explain changes has no name argument" in refused.stderr) == (2, True)


async def test_a_log_without_sessions_has_no_changes_yet(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log"):
        pass
    with api.open(tmp_path / "log") as log, pytest.raises(LogError, match="it has no sessions"):
        log.changes()

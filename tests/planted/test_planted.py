"""Of causes that were planted, vcd names the right one with the right object; and what was planted is the cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.planted.asking import malformed, misnamed, verdict_of
from tests.planted.causes import CAUSES, planted
from tests.planted.census import room_cause
from tests.planted.plant import Plant
from tests.planted.runs import by_hand, under_a_daemon
from vcd.eventlog import LogReader
from vcd.model import events as ev

EXPLAINED = tuple(CAUSES)
"""Codes whose verdict is there: of these it is asked for."""
SEEDS = range(3)
OF_ROOMS = (
    "unschedulable-shape", "selector", "taint", "unschedulable-node", "node-room", "fragmentation", "cluster-full",
)  # fmt: skip
FULL = ("order", "leaving")
"""Causes at which the cluster is full while the job waits; at all that are neither there is room."""
SHORT_BEFORE = ("selector", "cluster-full", "queue-capability", "volume", "gated", "leaving")
"""Codes that are also planted behind a queue that is closed for a short while before."""


def plants(*codes: str) -> list[Plant]:
    """A few plants of each code."""
    return [planted(code, seed) for code in codes for seed in SEEDS]


# --- what is planted --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plant", plants(*CAUSES), ids=lambda plant: plant.label)
async def test_the_job_waits_for_its_cause_and_for_nothing_else(plant: Plant, tmp_path: Path) -> None:
    ran = await by_hand(plant, tmp_path / "planted")
    assert ran.placed(plant.asked) == 0
    assert [key for stage in plant.stages for key in stage.runs if not ran.placed(key)] == []
    mended = await by_hand(plant.fixed(), tmp_path / "mended")
    assert mended.started


@pytest.mark.parametrize("plant", plants(*CAUSES), ids=lambda plant: plant.label)
async def test_room_is_the_cause_where_it_was_planted_and_nowhere_else(plant: Plant, tmp_path: Path) -> None:
    if plant.variant == "affinity":
        return  # by what cannot be read no node can be counted
    ran = await by_hand(plant, tmp_path / "planted")
    wanted = plant.code if plant.code in OF_ROOMS else "cluster-full" if plant.code in FULL else ""
    assert room_cause(plant, ran) == wanted


def test_a_seed_gives_the_same_cluster_again() -> None:
    for code in CAUSES:
        assert planted(code, 7) == planted(code, 7)
        assert planted(code, 7) != planted(code, 8)


@pytest.mark.parametrize("code", CAUSES)
async def test_the_job_waits_under_a_daemon(code: str, tmp_path: Path) -> None:
    plant = planted(code, 1)
    with LogReader(await under_a_daemon(plant, tmp_path)) as reader:
        decided = [logged.event for logged in reader.find(type="session")]
    plans = [ev.decode_plan(session.plan) for session in decided if isinstance(session, ev.SessionDecided)]
    groups = {
        statement.group
        for plan in plans
        for statement in plan.statements
        if any(operation.verb == "bind" for operation in statement.operations)
    }
    assert plans
    assert plant.asked not in groups
    assert groups.issuperset(key for stage in plant.stages for key in stage.runs)


# --- what is said -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plant", plants(*EXPLAINED), ids=lambda plant: plant.label)
async def test_the_verdict_names_what_was_planted(plant: Plant, tmp_path: Path) -> None:
    await by_hand(plant, tmp_path / "log")
    verdict = verdict_of(tmp_path / "log", plant)
    assert [*misnamed(plant, verdict), *malformed(plant, verdict)] == []


@pytest.mark.parametrize("code", EXPLAINED)
async def test_the_verdict_of_a_daemons_log_names_what_was_planted(code: str, tmp_path: Path) -> None:
    plant = planted(code, 2)
    verdict = verdict_of(await under_a_daemon(plant, tmp_path), plant)
    assert [*misnamed(plant, verdict), *malformed(plant, verdict)] == []


@pytest.mark.parametrize("code", [code for code in SHORT_BEFORE if code in EXPLAINED])
async def test_the_cause_that_held_longest_is_named(code: str, tmp_path: Path) -> None:
    plant = planted(code, 3).after_closed()
    await by_hand(plant, tmp_path / "log")
    verdict = verdict_of(tmp_path / "log", plant)
    assert [*misnamed(plant, verdict), *malformed(plant, verdict)] == []
    assert verdict.share < 1

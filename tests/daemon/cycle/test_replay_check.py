"""The check of law 5 (docs/laws.md) beside the live cycle: which sessions, and what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import dsl
from tests.world import World
from vcd.daemon.cycle.replay_check import ReplayCheck
from vcd.model import events as ev
from vcd.scheduling.configuration import read_policy
from vcd.state.snapshot import Snapshot


def decided(number: int = 100) -> tuple[World, Snapshot, ev.SessionDecided]:
    """A session that binds a gang, with the snapshot that it was decided from."""
    world = World(dsl.node("n", cpu=4), dsl.gang("g", 2, cpu=2))
    snapshot = world.maker.snapshot()
    now = world.now
    plan = world.decide()
    record = ev.SessionDecided(number, snapshot.sequence, world.policy.digest, now, 0, 1, {}, ev.encode_plan(plan))
    return world, snapshot, record


async def differences(number: int, every: int = 100, *, forged: bool = False) -> int:
    """How many differences are counted after one session."""
    world, snapshot, record = decided(number)
    if forged:
        record = ev.SessionDecided(
            record.session, record.head, record.policy, record.now, record.seed, 1, {}, ev.encode_plan(ev.Plan())
        )
    counted: list[None] = []
    check = ReplayCheck(every, lambda: counted.append(None))
    check.see(snapshot, world.policy, record)
    await check.idle()
    return len(counted)


async def test_the_same_plan_is_no_difference() -> None:
    assert await differences(100) == 0


async def test_another_plan_is_counted() -> None:
    assert await differences(100, forged=True) == 1


@pytest.mark.parametrize(("number", "every"), [(101, 100), (99, 100), (100, 0)])
async def test_only_every_so_many_sessions_are_looked_at(number: int, every: int) -> None:
    assert await differences(number, every, forged=True) == 0


async def test_one_is_looked_at_at_a_time() -> None:
    world, snapshot, record = decided()
    forged = ev.SessionDecided(100, record.head, record.policy, record.now, 0, 1, {}, ev.encode_plan(ev.Plan()))
    counted: list[None] = []
    check = ReplayCheck(100, lambda: counted.append(None))
    check.see(snapshot, world.policy, forged)
    check.see(snapshot, world.policy, forged)
    await check.idle()
    assert len(counted) == 1
    check.see(snapshot, world.policy, forged)
    await check.idle()
    assert len(counted) == 2


async def test_a_session_with_a_plugin_of_others_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("vcd.daemon.cycle.replay_check.is_ours", lambda extension: extension.name != "gang")
    world, snapshot, record = decided()
    assert "gang" in read_policy(world.policy.text).text
    counted: list[None] = []
    check = ReplayCheck(1, lambda: counted.append(None))
    check.see(snapshot, world.policy, ev.SessionDecided(100, record.head, record.policy, 0, 0, 1, {}, b""))
    await check.idle()
    assert counted == []

"""Full clusters, cycle after cycle until rest: no eviction cycle goes on, and laws 3, 5 and 7 (docs/laws.md) hold.

``VCD_SEEDS`` asks for more clusters, or for a range, as `tests/sizes.py` says.
"""

from __future__ import annotations

import pytest

from tests.laws.accounts import Accounts
from tests.laws.contention import Contention
from tests.laws.histories import sessions
from tests.laws.rivals import Rivals
from tests.sizes import blocks
from vcd.model import events as ev
from vcd.scheduling.decide import decide
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import SnapshotMaker

BLOCK = 40
CYCLES = 40


def does_something(plan: ev.Plan) -> bool:
    return any(operation.verb != "pipeline" for each in plan.statements for operation in each.operations)


@pytest.mark.parametrize("block", blocks(10, 400, BLOCK), ids=lambda block: f"{block.start}-{block.stop - 1}")
def test_without_new_input_no_workload_is_evicted_twice(block: range) -> None:
    for seed in block:
        world = Contention(seed)
        quiet = 0
        for _ in range(CYCLES):
            quiet = 0 if does_something(world.cycle()) else quiet + 1
            if quiet == 3:
                break
        assert quiet == 3, f"seed {seed}: no rest after {CYCLES} cycles"
        twice = {key: count for key, count in world.evictions.items() if count > 1}
        assert not twice, f"seed {seed}: {twice}"


@pytest.mark.parametrize("block", blocks(10, 400, BLOCK)[:1], ids=lambda block: f"{block.start}-{block.stop - 1}")
@pytest.mark.parametrize("busy", [False, True], ids=["nothing new", "always something new"])
def test_where_everyone_may_take_from_everyone_an_eviction_cycle_ends(busy: bool, block: range) -> None:
    """Without new input each pod is evicted once at most. With it, once at most for the same preemptor."""
    evicted = 0
    for seed in block:
        world, quiet, cycles = Rivals(seed, busy=busy), 0, 0
        while quiet < 3 and cycles < CYCLES:
            quiet, cycles = 0 if does_something(world.cycle()) else quiet + 1, cycles + 1
        assert quiet == 3, f"seed {seed}: no rest after {CYCLES} cycles"
        counts = world.taken if busy else world.evictions
        assert all(count == 1 for count in counts.values()), f"seed {seed}: {counts}"
        evicted += len(counts)
    assert evicted > len(block) // 2, "the worlds are about something"


@pytest.mark.parametrize("block", blocks(10, 400, BLOCK)[:5], ids=lambda block: f"{block.start}-{block.stop - 1}")
def test_nothing_is_over_and_no_gang_is_broken(block: range) -> None:
    for seed in block:
        world = Contention(seed)
        for cycle in range(6):
            before = Accounts(world.state)
            gangs = {group: before.short_of(group) for group in before.groups}
            plan = world.cycle()
            check(f"seed {seed}, cycle {cycle}", before, gangs, plan)


def check(where: str, accounts: Accounts, gangs: dict[str, int], plan: ev.Plan) -> None:
    """Law 7 on one plan: rooms and capabilities after it, and gangs that it took from."""
    evicted = [op.key for each in plan.statements for op in each.operations if op.verb == "evict"]
    assert len(set(evicted)) == len(evicted), f"{where}: a pod is evicted twice"
    whole = {each.action for each in plan.statements if each.action.startswith("gang")}
    for statement in plan.statements:
        bound = [op.key for op in statement.operations if op.verb == "bind"]
        accounts.bind(statement.operations)
        for node in sorted({accounts.node_of[key] for key in bound}):
            assert not accounts.over_on(node, bound), f"{where}: {node} is over"
        for queue in sorted({accounts.queue_of(key) for key in bound}):
            assert not accounts.above_capability(queue, bound), f"{where}: queue {queue} is over"
        if any(op.verb == "evict" for op in statement.operations):
            waiting = [op.key for op in statement.operations if op.verb == "pipeline"]
            assert waiting, f"{where}: {statement.group} evicts and waits for nothing"
            assert accounts.short_of(statement.group) <= len(waiting), f"{where}: {statement.group} will not be whole"
    taken_from = {accounts.group_of(key) for key in evicted}
    for key in evicted:
        accounts.node_of[key] = ""
    for group in sorted(taken_from):
        left = [key for key, node in accounts.node_of.items() if node and accounts.group_of(key) == group]
        if left and gangs[group] <= 0:
            assert accounts.short_of(group) <= 0, f"{where}: {group} is left with {left} ({whole})"


@pytest.mark.parametrize("block", blocks(10, 400, BLOCK)[:3], ids=lambda block: f"{block.start}-{block.stop - 1}")
def test_a_replay_gives_the_same_bytes_with_and_without_memory(block: range) -> None:
    for seed in block:
        world = Contention(seed)
        for _ in range(5):
            world.cycle()
        state, position = ClusterState(), 0
        for record in sessions(world.log):
            for event in world.log[position : record.head]:
                position += 1
                state.apply(position, event)
            plan = decide(SnapshotMaker(state).snapshot(), world.policy, record.now, record.seed)
            assert ev.encode_plan(plan) == record.plan, f"seed {seed}, session {record.session}"
            assert ClusterState.load(state.dump()).dump() == state.dump(), f"seed {seed}: checkpoint"

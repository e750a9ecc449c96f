"""usage equals the slow reference on random samples, which the daemon would have in its log."""

from __future__ import annotations

from typing import Any

import pytest

from tests.laws.plans import without
from tests.laws.test_reference import blocks
from tests.parity.cases import NOW
from tests.reference import decide
from tests.reference.clusters import RandomCase
from tests.reference.sampled import sampled_case
from tests.reference.usage import KIND
from vcd.scheduling.closing import plan_of
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import run
from vcd.scheduling.framework.registry import kinds_read
from vcd.scheduling.framework.usage_samples import NodeUsage, Samples, answered
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.planning import state_of


def plan_with_sample(case: RandomCase) -> dict[str, dict[str, str]]:
    """The fast core's binds, pipelined and evicted pods with their nodes, the sample being in the log."""
    policy = read_policy(case.conf)
    state = state_of([one for one in case.objects if one["kind"] != KIND], kinds=kinds_read(policy))
    for one in case.objects:
        if one["kind"] == KIND:
            nodes = {name: NodeUsage(**usage) for name, usage in one["nodes"].items()}
            state.apply(state.sequence + 1, answered(Samples(one["at"], "prometheus", nodes)))
    plan = plan_of(run(SnapshotMaker(state).snapshot(), policy, int(NOW.timestamp()) * 10**9, 0))
    operations = [operation for statement in plan.statements for operation in statement.operations]
    return {
        verb: {one.key: one.node for one in operations if one.verb == verb} for verb in ("bind", "pipeline", "evict")
    }


def wrong(case: RandomCase) -> dict[str, Any]:
    """What the two decide differently."""
    slow, fast = decide(case.objects, case.conf, NOW), plan_with_sample(case)
    pairs = {"binds": (slow.binds, fast["bind"]), "pipelined": (slow.pipelined, fast["pipeline"])}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


@pytest.mark.parametrize("block", blocks(), ids=lambda block: f"{block.start}-{block.stop - 1}")
def test_the_fast_core_minds_usage_as_the_reference(block: range) -> None:
    assert {seed: found for seed in block if (found := wrong(sampled_case(seed)))} == {}


def test_the_samples_matter() -> None:
    """That the comparison is about something: without the plugin many clusters come out otherwise."""
    cases = [sampled_case(seed) for seed in range(100)]
    results = [decide(case.objects, case.conf, NOW) for case in cases]
    others = [decide(case.objects, without(case.conf, "usage"), NOW) for case in cases]
    assert sum(one.binds != other.binds for one, other in zip(results, others, strict=True)) >= 25

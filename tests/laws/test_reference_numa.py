"""numa-aware equals the slow reference on random machines: binds, phases, and the CPUs that are written to pods."""

from __future__ import annotations

from typing import Any

import pytest

from tests.laws.plans import planned_annotations, without
from tests.laws.test_reference import blocks, differences
from tests.parity.cases import NOW
from tests.reference import decide
from tests.reference.clusters import RandomCase
from tests.reference.cpus import GIVEN, own_cpus
from tests.reference.machines import machine_case
from tests.reference.model import build


def wrong(case: RandomCase) -> dict[str, Any]:
    """What the two decide differently, the CPUs of bound pods included."""
    found: dict[str, Any] = differences(case)
    slow, fast = decide(case.objects, case.conf, NOW).annotations, planned_annotations(case)
    if slow != fast:
        found["annotations"] = {key: (slow.get(key), fast.get(key)) for key in sorted({*slow, *fast})}
    return found


@pytest.mark.parametrize("block", blocks(), ids=lambda block: f"{block.start}-{block.stop - 1}")
def test_the_fast_core_hands_out_cpus_as_the_reference(block: range) -> None:
    assert {seed: found for seed in block if (found := wrong(machine_case(seed)))} == {}


def test_the_machines_matter() -> None:
    """That the comparison is about something: without the plugin many clusters come out otherwise."""
    cases = [machine_case(seed) for seed in range(100)]
    results = [decide(case.objects, case.conf, NOW) for case in cases]
    others = [decide(case.objects, without(case.conf, "numa-aware"), NOW) for case in cases]
    assert sum(one.binds != other.binds for one, other in zip(results, others, strict=True)) >= 30
    assert sum(GIVEN in marks for result in results for marks in result.annotations.values()) >= 50


def test_limits_make_some_pods_guaranteed_and_others_not() -> None:
    """That the comparison is about something: many pods state limits that do not make them Guaranteed."""
    tasks = [task for seed in range(60) for task in build(machine_case(seed).objects).tasks.values()]
    limited = [task for task in tasks if any("limits" in one["resources"] for one in task.spec["containers"])]
    assert sum(own_cpus(task) is None for task in limited) >= 50
    assert sum(own_cpus(task) is not None for task in limited) >= 200

"""Pain 20: unschedulable jobs are retried for nothing, and one bad pod stops backfill (volcano #5551, #4028)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.dsl import flat, gang, group, node, pod
from tests.laws.answering import Answering
from tests.sizes import WIDE
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.search.predicates.node_predicates import NodeAffinity

IMPOSSIBLE: dict[str, Callable[[int], dict[str, Any]]] = {
    "one shape, too large": lambda i: {"cpu": 9},
    "one shape, no such node": lambda i: {"cpu": 1, "spec": {"nodeSelector": {"disk": "tape"}}},
    "each its own shape": lambda i: {"cpu": 9, "memory": f"{i + 1}Mi"},
}


def impossible(kind: str, count: int) -> Answering:
    jobs = [gang(f"g{i}", 1, phase="Inqueue", created=i, **IMPOSSIBLE[kind](i)) for i in range(count)]
    world = Answering([node(f"n{i}", cpu=8) for i in range(10)], flat(jobs))
    world.cycle()
    return world


def evaluations(world: Answering) -> int:
    assert world.session is not None
    return framework_of(world.session).evaluator.evaluations


@pytest.mark.parametrize("kind", IMPOSSIBLE)
def test_impossible_jobs_are_not_evaluated_again_while_nothing_changes(kind: str) -> None:
    count = 10_000 if WIDE and "one" in kind else 500
    world = impossible(kind, count)
    assert evaluations(world) > 0
    world.cycle()
    assert evaluations(world) == 0
    assert len(world.state.waiting) == count


def test_not_even_for_their_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[str] = Counter()
    mask = NodeAffinity.mask

    def counted(self: NodeAffinity, *arguments: Any) -> Any:
        calls["mask"] += 1
        return mask(self, *arguments)

    monkeypatch.setattr(NodeAffinity, "mask", counted)
    world = impossible("one shape, no such node", 10)
    assert calls.pop("mask") > 0
    world.cycle()
    assert calls["mask"] == 0


def test_a_change_that_matters_has_them_evaluated_and_run() -> None:
    world = impossible("one shape, too large", 10)
    world.cycle()
    world.put(node("large", cpu=9))
    world.rest()
    assert world.placed() == {"g0-0": "large"}


def test_room_that_becomes_free_is_noticed() -> None:
    world = Answering(node("n", cpu=4), gang("old", 1, on=["n"], cpu=3, phase="Running"), gang("g", 1, cpu=2))
    world.rest()
    world.finish("default/old-0")
    world.rest()
    assert world.placed("g") == {"g-0": "n"}


@pytest.mark.parametrize(
    "bad",
    [
        {"spec": {"schedulingGates": [{"name": "wait"}]}},
        {"spec": {"nodeSelector": {"disk": "tape"}}},
        {"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "lost"}}]}},
    ],
    ids=["gated", "no such node", "missing claim"],
)
@pytest.mark.parametrize("same_job", [True, False])
def test_a_best_effort_pod_behind_a_bad_one_binds(bad: dict[str, Any], same_job: bool) -> None:
    other = "g" if same_job else "h"
    world = Answering(node("n"), group("g"), group("h", created=1))
    world.put(pod("a-bad", group="g", **bad), pod("b-good", group=other, created=1))
    world.rest()
    assert world.placed() == {"b-good": "n"}

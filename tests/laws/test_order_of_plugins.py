"""The order of plugins within a tier changes no outcome: plans are the same bytes, whatever it is.

That holds of all points but those that are about order themselves: at job_order, queue_order, task_order, sub_job_order
and victim_queue_order the first plugin that tells two apart decides, by definition, here as in Volcano, and at
best_node the first that answers. So plugins that answer at one of these keep their order among
themselves, or, so that these may change places, too, all but one have their orders turned off by their flags.

``VCD_SEEDS`` asks for more clusters, or for a range, as `tests/sizes.py` says.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dsl import NOW_NS, flat
from tests.laws.contention import objects_of
from tests.sizes import blocks
from vcd.model import events as ev
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import decide
from vcd.scheduling.framework.points import IN_CONFIGURED_ORDER, POINTS
from vcd.scheduling.framework.registry import plugins
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.planning import state_of

BLOCK = 25
ORDERS = 8
"""How many orders of plugins are tried on each cluster; all where there are no more."""
ACTIONS = (
    "enqueue, allocate, preempt, reclaim, backfill",
    "enqueue, allocate, reclaim, preempt",
    "enqueue, allocate, gangpreempt, gangreclaim, backfill",
    "allocate, shuffle, backfill",
)
OF_THE_SPECIFICATION = ["priority", "gang", "conformance", "pdb", "cdp"]
_ORDER_POINTS = [point for point in POINTS.values() if point.rule in IN_CONFIGURED_ORDER]
_ZONE = "n0"


class Case:
    """A full cluster with budgets, cool-downs and system pods, and tiers of plugins in any order."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.objects = list(_protected(rng, flat(objects_of(rng))))
        self.actions = rng.choice(ACTIONS)
        shares = rng.choice(("proportion", "capacity"))
        rest = ["drf", "predicates", shares, "nodeorder", "overcommit"]
        self.tiers = rng.choice(
            (
                [OF_THE_SPECIFICATION, rest],
                [["priority", "gang", "conformance"], [*rest, "pdb", "cdp"]],
                [["priority", "gang"], ["conformance", "cdp", "pdb", *rest]],
                [[*OF_THE_SPECIFICATION, shares], ["drf", "predicates", "nodeorder", "overcommit"]],
                [[*OF_THE_SPECIFICATION, *rest]],
            )
        )
        if "shuffle" in self.actions:
            self.tiers = [*self.tiers[:-1], [*self.tiers[-1], "tdm"]]
        self.keeps_orders = rng.random() < 0.5
        self._leading = {point.name: rng.choice(_answering(point.name, self.tiers)) for point in _ORDER_POINTS}

    def orders(self, rng: random.Random) -> Iterator[list[list[str]]]:
        """The tiers in other orders of plugins."""
        tried = [self._orders_of(tier, rng) for tier in self.tiers]
        for number in range(ORDERS):
            yield [orders[number % len(orders)] for orders in tried]

    def _orders_of(self, tier: list[str], rng: random.Random) -> list[list[str]]:
        every = [rng.sample(tier, len(tier)) for _ in range(ORDERS)] if len(tier) > 4 else _permutations(tier)
        return [self._in_kept_order(tier, order) for order in every] if self.keeps_orders else every

    def _in_kept_order(self, tier: list[str], order: list[str]) -> list[str]:
        """The plugins that answer at points of order as in the file, the others where they came to be."""
        answering = [name for name in tier if any(_answers(name, point.name) for point in _ORDER_POINTS)]
        places = iter(answering)
        return [next(places) if name in answering else name for name in order]

    def plan(self, tiers: list[list[str]]) -> ev.Plan:
        """What one cycle decides with the plugins in this order."""
        lines = [f'actions: "{self.actions}"', "tiers:"]
        for tier in tiers:
            lines.append("- plugins:")
            for name in tier:
                lines += [f"  - name: {name}", *[f"    {flag}: false" for flag in self._silenced(name)]]
                if name == "tdm":
                    lines += ["    arguments:", "      tdm.revocable-zone.rz1: 01:00-01:01"]
        snapshot = SnapshotMaker(state_of(self.objects)).snapshot()
        return decide(snapshot, read_policy("\n".join(lines) + "\n"), NOW_NS, 0)

    def _silenced(self, name: str) -> list[str]:
        if self.keeps_orders:
            return []
        points = [point for point in _ORDER_POINTS if _answers(name, point.name) and self._leading[point.name] != name]
        return sorted({point.flag for point in points if point.flag})


def _permutations(tier: list[str]) -> list[list[str]]:
    return [list(order) for order in itertools.permutations(tier)]


def _answers(name: str, point: str) -> bool:
    return hasattr(plugins()[name], point)


def _answering(point: str, tiers: list[list[str]]) -> list[str]:
    return [name for tier in tiers for name in tier if _answers(name, point)] or [""]


def _protected(rng: random.Random, objects: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The objects, some pods protected in one way or several; jobs with something to spare, and a closed zone."""
    for manifest in objects:
        meta = manifest["metadata"]
        if manifest["kind"] == "Pod":
            if rng.random() < 0.3:
                meta.setdefault("annotations", {})["volcano.sh/cooldown-time"] = rng.choice(("600h", "1s", "soon"))
                manifest["status"]["conditions"] = [
                    {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-21T07:00:00Z"}
                ]
            if rng.random() < 0.25:
                manifest["spec"]["priorityClassName"] = "system-node-critical"
            meta["labels"]["part"] = rng.choice("ab")
            if rng.random() < 0.5:
                meta["annotations"].setdefault("volcano.sh/preemptable", "true")
        if manifest["kind"] == "PodGroup" and rng.random() < 0.5:
            manifest["spec"]["minMember"] = max(1, manifest["spec"]["minMember"] - 1)
        if manifest["kind"] == "Node" and meta["name"] == _ZONE:
            meta["labels"]["volcano.sh/revocable-zone"] = "rz1"
        yield manifest
    for number in range(rng.randint(0, 3)):
        label = rng.choice(({"app": rng.choice("xyz")}, {"part": rng.choice("ab")}))
        yield {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": f"b{number}", "namespace": "default"},
            "spec": {"selector": {"matchLabels": label}},
            "status": {"disruptionsAllowed": rng.choice((0, 1, 1, 2))},
        }


def evictions(plan: ev.Plan) -> int:
    return sum(operation.verb == "evict" for statement in plan.statements for operation in statement.operations)


@pytest.mark.parametrize("block", blocks(8, 200, BLOCK), ids=lambda block: f"{block.start}-{block.stop - 1}")
def test_the_plan_is_the_same_bytes_in_every_order(block: range) -> None:
    evicted = 0
    for seed in block:
        case = Case(seed)
        expected = case.plan(case.tiers)
        evicted += evictions(expected) > 0
        for tiers in case.orders(random.Random(seed)):
            plan = case.plan(tiers)
            assert ev.encode_plan(plan) == ev.encode_plan(expected), f"seed {seed}: {tiers} and {case.tiers}"
    assert evicted, "no cluster in which somebody goes"

"""The trace with quotas of cards: what each queue may hold, a small run, and laws that are seen to be broken."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from bench import cardtrace, gputrace
from bench.cardlaws import Broken, Found, Reading
from tests.dsl import gang, group, node, pod, priority_class, queue
from tests.plugins.opened import conf
from tests.world import World

DATA = Path(__file__).parents[1] / "data" / "trace"
T4 = {"nvidia.com/gpu.product": "T4", "nvidia.com/gpu.memory": "15360"}
GPU = "nvidia.com/gpu"
CARELESS = 'actions: "enqueue, allocate"\ntiers:\n- plugins: [{name: gang}, {name: predicates}]\n'


@pytest.fixture(autouse=True)
def _in_the_tests_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def figures(**options: Any) -> dict[str, Any]:
    rows = cardtrace.run(replayed=False, files=DATA, **options)
    return {each["what"].strip(): each["value"] for each in rows}


def test_a_small_trace_keeps_all_laws_and_serves_all_tasks() -> None:
    found = figures(part=0.5)
    assert found["tasks that ran to their end"] == 11
    assert found["tasks that fit no node (t-10)"] == 1
    assert found["most of a quota that be held (cpu)"] == 100


def test_without_the_plugin_the_quota_is_seen_to_be_broken() -> None:
    with pytest.raises(Broken, match=r"after session .*: queue .* holds"):
        figures(part=0.5, policy=CARELESS)


def test_without_a_trace_the_row_says_so(tmp_path: Path) -> None:
    assert "skipped" in cardtrace.run(files=tmp_path)[0]["what"]


def test_each_queue_may_hold_a_part_of_what_it_would_and_its_largest_gang() -> None:
    tasks, nodes = gputrace.read_tasks(DATA / "pods.csv"), cardtrace.nodes_of(DATA / "nodes.csv")
    found = cardtrace.shares(tasks, nodes, 300.0, 0.5)
    # t-04 and t-05 are a gang of 8 V100M16 or V100M32 each, and there are 8 of either
    assert {card: count for card, count in found["burstable"].cards.items() if count} == {
        "G2": 8,
        "V100M16": 8,
        "V100M32": 8,
    }
    assert (found["burstable"].cpu, found["burstable"].memory) == (16_000, 2 * 30_720)
    assert found["be"].cards["T4"] == 1


def test_queues_say_what_they_may_hold() -> None:
    share = cardtrace.Share({"T4": 3}, cpu=1500, memory=2048)
    found = cardtrace.queues_of({"q": share})[0]
    assert json.loads(found["metadata"]["annotations"]["volcano.sh/card.quota"]) == {"T4": 3}
    assert found["spec"]["capability"] == {"cpu": "1500m", "memory": "2048Mi"}
    assert str(share) == "T4 3; 2 cores, 2 GiB"


def test_priorities_are_drawn_by_name_and_all_occur() -> None:
    tasks = gputrace.read_tasks(DATA / "pods.csv")
    assert [cardtrace.class_of(task) for task in tasks] == [cardtrace.class_of(task) for task in tasks]
    assert {cardtrace.class_of(task) for task in tasks} <= set(cardtrace.CLASSES)


# --- what a log shows -------------------------------------------------------------------------------------------------


def reading(world: World) -> Found:
    found = Reading()
    for sequence, event in enumerate(world.log, 1):
        found.take(sequence, event)
    return found.found


def limited(quota: dict[str, int], **spec: Any) -> dict[str, Any]:
    manifest = queue("q", **spec)
    manifest["metadata"]["annotations"] = {"volcano.sh/card.quota": json.dumps(quota)}
    return manifest


def card_node(gpus: int = 4) -> dict[str, Any]:
    return node("n", cpu=8, labels=T4, **{GPU: gpus})


@pytest.mark.parametrize(
    ("may", "told"),
    [
        (limited({"T4": 1}), "after session 1: queue q holds 2000 of T4, and may hold 1000"),
        (limited({"A10": 5}), "after session 1: queue q holds T4, of which it has no quota"),
        (limited({"T4": 2}, capability={"cpu": 1}), "after session 1: queue q holds 2000 of cpu, and may hold 1000"),
    ],
)
def test_a_queue_over_what_it_may_hold_is_seen(may: dict[str, Any], told: str) -> None:
    world = World(card_node(), may, gang("g", 2, queue="q", cpu=1, **{GPU: 1}), conf=CARELESS)
    world.cycle()
    with pytest.raises(Broken) as broken:
        reading(world)
    assert str(broken.value) == told


def test_a_pod_that_is_on_its_way_out_still_counts() -> None:
    old = group("old", queue="q"), pod("old", group="old", on="n", deleting=True, **{GPU: 1})
    world = World(card_node(), limited({"T4": 1}), *old, gang("g", 1, queue="q", **{GPU: 1}), conf=CARELESS)
    world.cycle()
    with pytest.raises(Broken, match="holds 2000 of T4"):
        reading(world)


def preempting() -> World:
    """A pod of low priority goes for one of high priority."""
    high = gang("high", 1, queue="q", group_spec={"priorityClassName": "high"}, spec={"priority": 10}, **{GPU: 1})
    world = World(
        card_node(1),
        priority_class("high", 10),
        limited({"T4": 2}),
        gang("low", 1, queue="q", on=["n"], **{GPU: 1}),
        high,
        conf=conf("priority", "conformance", "predicates", actions="allocate, preempt"),
    )
    world.cycle()
    assert world.evicted == ["default/low-0"]
    return world


def test_evictions_are_counted_by_action() -> None:
    found = reading(preempting())
    assert (dict(found.evictions), len(found.evicted)) == ({"preempt": 1}, 1)


def test_one_who_is_evicted_twice_is_seen_though_it_came_back_as_another_pod() -> None:
    world = preempting()
    world.cycle()
    world.remove("Pod", "default/high-0")
    world.put(pod("low-0", group="low", on="n", **{GPU: 1}), group("low", queue="q", priorityClassName=""))
    decided = next(event for event in world.log if type(event).__name__ == "SessionDecided")
    world.happen(decided)
    with pytest.raises(Broken, match="default/low-0 was evicted already"):
        reading(world)


def test_what_ran_to_its_end_was_bound_and_finished() -> None:
    world = World(card_node(), limited({"T4": 2}), gang("g", 1, queue="q", **{GPU: 1}), conf=CARELESS)
    world.cycle()
    assert reading(world).finished == set()
    world.update_pod("default/g-0", phase="Succeeded")
    found = reading(world)
    assert found.bound == found.finished != set()
    assert found.used["q"]["T4"] == 0.5

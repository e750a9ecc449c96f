"""The capacity that a nominated pod waits for goes to a job of higher priority that needs it and further evictions: no
pod starts only to be evicted for that job, and nothing changes if that job gets nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import Manifest, gang, node, priority_class, queue
from tests.pains.test_nominated_room import PREEMPTS, Leaving, job
from vcd.state.snapshot import Snapshot

ORDERS = [*PREEMPTS[:2], "allocate, gangpreempt", "gangpreempt, allocate"]
DISPLACED = "capacity that it waited for is given to default/urgent, a job of higher priority in its queue"


def urgent(size: int = 1, *, cpu: int = 4, on: str = "", **options: Any) -> list[Manifest]:
    """A job that outranks all others; all of its pods, or those of one that may be anywhere, want ``cpu``."""
    spec: dict[str, Any] = {"priority": 100_000}
    if on:
        spec["nodeSelector"] = {"kubernetes.io/hostname": on}
    return list(gang("urgent", size, cpu=cpu, group_spec={"priorityClassName": "urgent"}, spec=spec, **options))


def freeing(actions: str, nodes: int = 1, *, jobs: int = 1) -> Leaving:
    """On each node a pod of ``old`` is evicted for a pod of ``hi``, a gang or as many ``jobs``, beside one of ``rest``,
    which has its priority."""
    names = ["hi"] if jobs == 1 else [f"hi{number}" for number in range(jobs)]
    places = [f"n{number}" for number in range(nodes)]
    world = Leaving(
        priority_class("urgent", 100_000),
        queue("mine", capability={"cpu": 4 * nodes}),
        queue("other"),
        [node(place, cpu=4) for place in places],
        job("old", nodes, members=0, on=places, cpu=2, rank="low", queue="mine"),
        job("rest", nodes, members=0, on=places, cpu=2, rank="high", created=-5, queue="mine"),
        *[job(name, nodes // jobs, cpu=2, rank="high", queue="mine") for name in names],
        actions=actions,
    )
    world.cycle()
    assert world.evicted == [f"default/old-{number}" for number in range(nodes)]
    return world


@pytest.mark.parametrize("stay", [0, 2])
@pytest.mark.parametrize("actions", PREEMPTS)
def test_a_nominee_does_not_start_to_be_evicted(actions: str, stay: int) -> None:
    world = freeing(actions)
    world.put(urgent(queue="mine"))
    world.cycle()
    assert world.state.nominations().keys() == {"default/urgent-0"}
    assert DISPLACED in [one.reason for one in world.why("hi")]
    world.until_placed(stay)
    assert world.placed() == {"urgent-0": "n0"}
    assert world.evicted == ["default/old-0", "default/rest-0"]


@pytest.mark.parametrize("actions", ORDERS)
def test_a_gang_takes_what_a_gang_of_nominees_holds_on_several_nodes(actions: str) -> None:
    world = freeing(actions, 3)
    world.put(urgent(3, queue="mine"))
    world.until_placed(1)
    assert world.placed() == {f"urgent-{number}": f"n{number}" for number in range(3)}
    assert len(world.evicted) == 6


@pytest.mark.parametrize("actions", ORDERS)
def test_a_gang_that_loses_one_nominee_holds_nothing(actions: str) -> None:
    """A later job of lower priority has what the gang cannot use."""
    world = freeing(actions, 2)
    world.put(urgent(queue="mine", on="n0"))
    world.cycle()
    assert world.state.nominations().keys() == {"default/urgent-0"}
    world.remove("Pod", *world.going)
    world.going.clear()
    world.put(job("late", 1, cpu=2, rank="low", created=20, queue="mine"))
    world.until_placed(0)
    assert world.placed() == {"urgent-0": "n0", "rest-1": "n1", "late-0": "n1"}
    assert world.evicted == ["default/old-0", "default/old-1", "default/rest-0"]


@pytest.mark.parametrize("actions", ORDERS)
def test_it_may_have_others_evicted_elsewhere(actions: str) -> None:
    world = freeing(actions)
    world.put(urgent(queue="mine"))
    world.cycle()
    world.put(queue("mine", capability={"cpu": 8}), node("n1", cpu=2))
    world.put(job("more", 1, members=0, on=["n1"], cpu=2, rank="low", queue="mine"))
    world.until_placed(2)
    assert world.placed() == {"urgent-0": "n0", "hi-0": "n1"}
    assert world.evicted == ["default/old-0", "default/rest-0", "default/more-0"]


@pytest.mark.parametrize("actions", ORDERS)
def test_only_the_nominees_in_the_way_lose_their_capacity(actions: str) -> None:
    world = freeing(actions, 3, jobs=3)
    nominated = {key: where for key, (where, _) in world.state.nominations().items()}
    world.put(urgent(queue="mine", on="n1"))
    world.cycle()
    kept = {key: where for key, where in nominated.items() if where != "n1"}
    assert {key: where for key, (where, _) in world.state.nominations().items()} == {"default/urgent-0": "n1", **kept}
    world.until_placed(1)
    placed = {"urgent-0": "n1", "rest-0": "n0", "rest-2": "n2"}
    assert world.placed() == placed | {key.partition("/")[2]: where for key, where in kept.items()}


@pytest.mark.parametrize("actions", ORDERS[:2])
def test_pods_beyond_their_jobs_minimum_wait_on(actions: str) -> None:
    """A job waits on two nodes and needs one of them."""
    waiting = job("hi", 2, members=1, cpu=2, rank="high")
    for number in range(2):
        waiting[1 + number]["status"]["nominatedNodeName"] = f"n{number}"
    world = Leaving(
        priority_class("urgent", 100_000),
        [node(f"n{number}", cpu=4) for number in range(2)],
        job("old", 2, members=0, on=["n0", "n1"], cpu=2, deleting=True),
        job("rest", 2, members=0, on=["n0", "n1"], cpu=2, rank="high", created=-5),
        waiting,
        urgent(on="n1"),
        actions=actions,
    )
    plan = world.decide()
    held = {each.key: each.node for statement in plan.statements for each in statement.operations}
    assert held == {"default/rest-1": "n1", "default/urgent-0": "n1", "default/hi-0": "n0"}


@pytest.mark.parametrize("actions", ["allocate, preempt", "preempt, allocate"])
def test_a_nominee_is_not_displaced_without_an_eviction(actions: str) -> None:
    """The urgent pod lacks only what the nominee holds of their queue's capability; allocate decides on that."""
    world = freeing(actions)
    other = urgent(queue="mine", cpu=2, on="n1")
    other[1]["spec"]["tolerations"] = [{"operator": "Exists"}]
    world.put(node("n1", cpu=2, taints=[{"key": "urgent", "effect": "NoSchedule"}]), other)
    plan = world.cycle()
    assert [each.key for statement in plan.statements for each in statement.operations] == ["default/hi-0"]
    assert DISPLACED not in [one.reason for one in world.why("hi")]


@pytest.mark.parametrize(
    "others",
    [
        [urgent(cpu=5, queue="mine")],
        [urgent(2, queue="mine")],
        [urgent(queue="other")],
        [job("urgent", 1, cpu=4, rank="high", created=9, queue="mine")],
        [job("first", 1, cpu=4, rank="low", created=-9, queue="mine")],
    ],
    ids=["does not fit", "fits in part", "of another queue", "of the same priority", "of a lower one"],
)
@pytest.mark.parametrize("actions", ORDERS)
def test_a_nominee_keeps_its_capacity_beside_a_job(actions: str, others: list[Any]) -> None:
    world = freeing(actions)
    world.put(*others)
    world.cycle()
    assert "default/hi-0" in world.state.nominations()
    world.until_placed(1)
    assert world.placed() == {"hi-0": "n0", "rest-0": "n0"}
    assert world.evicted == ["default/old-0"]


@pytest.mark.parametrize("actions", ORDERS)
def test_a_nomination_lasts_if_the_statement_for_the_other_is_dropped(actions: str) -> None:
    """The urgent pod is deleted between the decision and its row in the log."""
    world = freeing(actions)
    world.put(urgent(queue="mine"))
    decided = world.maker.snapshot

    def snapshot() -> Snapshot:
        found = decided()
        world.maker.snapshot = decided  # type: ignore[method-assign]
        world.remove("Pod", "default/urgent-0")
        return found

    world.maker.snapshot = snapshot  # type: ignore[method-assign]
    plan = world.decide()
    assert [statement.group for statement in plan.statements if statement.operations] == ["default/urgent"]
    assert world.state.nominations().keys() == {"default/hi-0"}
    world.until_placed(0)
    assert world.placed() == {"hi-0": "n0", "rest-0": "n0"}

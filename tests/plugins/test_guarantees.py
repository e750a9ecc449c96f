"""Other queues leave the guarantees of all queues together that could use them, and no more."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import Manifest, gang, node, planned, pod, queue, session_of
from tests.plugins.opened import conf
from tests.plugins.test_lending import bound, elastic, jobs
from tests.world import World
from vcd.scheduling.framework.framework import framework_of
from vcd.state.holds import HoldKind

PLUGINS = ("proportion", "capacity")
TREE = f"{conf('gang', 'predicates', 'capacity', actions='allocate')}    enableHierarchy: true\n"
GPUS = {"nvidia.com/gpu": "3"}


def settings(plugin: str, actions: str = "allocate", **arguments: Any) -> str:
    return conf("gang", "predicates", plugin, actions=actions, arguments=arguments or None)


def guaranteed(name: str = "g", state: str = "Open", **spec: Any) -> Manifest:
    return queue(name, state=state, guarantee={"resource": GPUS}, deserved=GPUS, **spec)


def room(gpus: int = 9) -> Manifest:
    return node("n", cpu=64, gpu=gpus)


def held(name: str, count: int) -> list[Manifest]:
    """Running jobs of a queue, one pod with one GPU each."""
    return [m for i in range(count) for m in gang(f"{name}-h{i}", 1, queue=name, on=["n"], phase="Running", gpu=1)]


def borrowers(gpus: int = 9) -> list[Any]:
    """Two queues of which each asks for all of the cluster."""
    return [room(gpus), queue("x"), queue("y"), jobs("x", gpus), jobs("y", gpus)]


@pytest.mark.parametrize("gpus", [3, 6, 9])
@pytest.mark.parametrize(("state", "kept"), [("", 3), ("Open", 3), ("Closing", 0), ("Closed", 0)])
@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_queue_that_takes_no_work_keeps_no_guarantee(plugin: str, state: str, kept: int, gpus: int) -> None:
    found = bound(*borrowers(gpus), guaranteed(state=state), conf=settings(plugin))
    assert sum(found.values()) == gpus - kept


@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_guarantee_above_the_queues_own_capability_is_neither_used_nor_kept(plugin: str) -> None:
    """Under proportion the queue had its whole guarantee; under both, others left what it cannot use."""
    asked = [jobs("g", 9), *borrowers(), guaranteed(capability={"nvidia.com/gpu": "1"})]
    assert bound(*asked, conf=settings(plugin))["g"] == 1
    assert sum(bound(*asked, conf=settings(plugin)).values()) == 9
    assert sum(bound(*borrowers(), guaranteed(capability={"nvidia.com/gpu": "1"}), conf=settings(plugin)).values()) == 8
    (told,) = planned(guaranteed(capability={"nvidia.com/gpu": "1"}), conf=settings(plugin)).problems["Queue g"][-1:]
    assert told.startswith("spec.guarantee.resource nvidia.com/gpu 3 is more than the 1 of spec.capability")


@pytest.mark.parametrize("plugin", PLUGINS)
def test_volcanos_formula_keeps_it(plugin: str) -> None:
    alone = [room(), queue("x"), jobs("x", 9), guaranteed(state="Closed")]
    assert sum(bound(*alone, conf=settings(plugin, volcanoSharesEnable=True)).values()) == 6
    assert sum(bound(*alone, conf=settings(plugin)).values()) == 9


@pytest.mark.parametrize("plugin", PLUGINS)
def test_pods_that_wait_in_a_closing_queue_keep_nothing_either(plugin: str) -> None:
    """None of them gets a place while the queue is not Open."""
    assert sum(bound(*borrowers(), guaranteed(state="Closing"), jobs("g", 9), conf=settings(plugin)).values()) == 9


@pytest.mark.parametrize("plugin", PLUGINS)
def test_what_a_closing_queue_holds_of_its_guarantee_is_not_reclaimed(plugin: str) -> None:
    queues = [queue("x", deserved={"nvidia.com/gpu": "9"}), guaranteed(state="Closing")]
    world = World(room(), queues, held("g", 2), elastic("x", 9), conf=settings(plugin, "allocate, reclaim"))
    for _ in range(3):
        world.cycle()
    assert not world.evicted
    assert len(world.placed("x")) == 7


@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_queue_that_opens_again_gets_its_guarantee_back(plugin: str) -> None:
    settled = settings(plugin, "allocate, reclaim")
    world = World(room(), queue("x"), guaranteed(state="Closed"), elastic("x", 9), conf=settled)
    world.cycle()
    assert len(world.placed("x")) == 9
    world.put(guaranteed(), *jobs("g", 3))
    for _ in range(8):
        world.cycle()
    assert len(world.placed("g")) == 3


@pytest.mark.parametrize(("state", "owners"), [("Open", ["g"]), ("Closing", [])])
@pytest.mark.parametrize("plugin", PLUGINS)
def test_only_a_live_guarantee_is_listed_as_a_hold(plugin: str, state: str, owners: list[str]) -> None:
    session = session_of(room(), guaranteed(state=state), jobs("g", 1), conf=settings(plugin))
    holds = framework_of(session).holds()
    assert [hold.owner for hold in holds if hold.kind is HoldKind.GUARANTEE] == owners


def other_nodes(kind: str, gpus: int) -> list[Manifest]:
    """A node of which no queue can have anything, for one reason or another."""
    if kind == "foreign":
        others = {"schedulerName": "default-scheduler"}
        pods = [pod(f"f{i}", on="m", spec=others, gpu=1) for i in range(gpus)]
        return [node("m", cpu=64, gpu=gpus), *pods]
    taint = {"key": f"node.kubernetes.io/{kind}", "effect": "NoSchedule"}
    extra = {"unschedulable": True} if kind == "cordoned" else {"taints": [taint]}
    return [node("m", cpu=64, gpu=gpus, **extra)]


@pytest.mark.parametrize("gpus", [1, 3, 8])
@pytest.mark.parametrize("kind", ["foreign", "cordoned", "not-ready"])
@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_guarantee_is_reserved_on_nodes_that_queues_can_use(plugin: str, kind: str, gpus: int) -> None:
    found = bound(*borrowers(), *other_nodes(kind, gpus), guaranteed(), conf=settings(plugin))
    assert sum(found.values()) == 9 - 3


@pytest.mark.parametrize("plugin", PLUGINS)
def test_pods_of_queues_on_a_cordoned_node_count_as_held(plugin: str) -> None:
    """The guarantee is used there, so that no more of it is reserved elsewhere."""
    on_m = [m for i in range(3) for m in gang(f"g-h{i}", 1, queue="g", on=["m"], phase="Running", gpu=1)]
    found = bound(*borrowers(), *other_nodes("cordoned", 8), guaranteed(), on_m, conf=settings(plugin))
    assert sum(found.values()) == 9


# --- a tree ---------------------------------------------------------------------------------------------------------


def tree(*states: str, team: str = "Open") -> dict[str, int]:
    """Who gets 9 GPUs beside queues below one team, each of which is guaranteed 3."""
    team_due = {"nvidia.com/gpu": str(3 * len(states))}
    leaves = [guaranteed(f"g{at}", state=state, parent="team") for at, state in enumerate(states)]
    top = queue("team", state=team, parent="root", guarantee={"resource": team_due}, deserved=team_due)
    others = [queue(name, parent="root") for name in "xy"]
    return bound(room(), queue("root"), top, *leaves, *others, jobs("x", 9), jobs("y", 9), conf=TREE)


@pytest.mark.parametrize(
    ("states", "kept"),
    [(("Open", "Open"), 6), (("Open", "Closed"), 6), (("Closed", "Closing"), 0), (("Closed",), 0), (("Open",), 3)],
)
def test_a_parents_guarantee_is_kept_while_any_queue_below_takes_work(states: tuple[str, ...], kept: int) -> None:
    """What one of them leaves, its siblings may use."""
    assert sum(tree(*states).values()) == 9 - kept


def test_a_parents_own_state_does_not_end_it_as_its_leaves_take_work() -> None:
    assert sum(tree("Open", team="Closed").values()) == 6


def test_a_misconfigured_queue_keeps_no_guarantee() -> None:
    """Its parent does not exist, so nothing is placed in it."""
    objects = [room(), queue("root"), queue("x", parent="root"), jobs("x", 9)]
    assert sum(bound(*objects, guaranteed(parent="root"), conf=TREE).values()) == 6
    assert sum(bound(*objects, guaranteed(parent="nowhere"), conf=TREE).values()) == 9
    assert sum(bound(*objects, guaranteed(parent="nowhere"), jobs("g", 3), conf=TREE).values()) == 9


def test_a_closed_leaf_keeps_what_it_holds_and_no_more() -> None:
    objects = [room(), queue("root"), queue("x", parent="root"), jobs("x", 9)]
    assert sum(bound(*objects, guaranteed(state="Closed", parent="root"), held("g", 2), conf=TREE).values()) == 7


# --- capacity-card --------------------------------------------------------------------------------------------------


def carded(state: str = "Open", pods: int = 0, **arguments: Any) -> dict[str, int]:
    """Who gets 9 cpus beside a queue that is guaranteed 3; ``pods`` of its own wait."""
    kept = queue("g", state=state, guarantee={"resource": {"cpu": "3"}})
    wants = [m for name in "xy" for m in small(name, 9)] + small("g", pods)
    settled = conf("gang", "predicates", "capacity-card", actions="allocate", arguments=arguments or None)
    return bound(node("n", cpu=9), queue("x"), queue("y", capability={"cpu": "9"}), kept, wants, conf=settled)


def small(name: str, count: int) -> list[Manifest]:
    return [m for i in range(count) for m in gang(f"{name}-{i}", 1, queue=name, created=i, cpu=1, memory=1)]


def test_capacity_card_keeps_a_guarantee_of_cpu_against_two_borrowers() -> None:
    """One of which has a capability of all."""
    assert sum(carded().values()) == 6
    assert carded(pods=9)["g"] >= 3


def test_capacity_card_with_volcanos_formula_keeps_it_one_by_one() -> None:
    assert sum(carded(volcanoSharesEnable=True).values()) == 9


@pytest.mark.parametrize("state", ["Closing", "Closed"])
def test_capacity_card_keeps_nothing_for_a_queue_that_is_not_open(state: str) -> None:
    assert sum(carded(state).values()) == 9


def test_capacity_card_names_the_queue_that_has_the_guarantee() -> None:
    kept = queue("g", guarantee={"resource": {"cpu": "3"}})
    settled = conf("gang", "predicates", "capacity-card", actions="allocate")
    world = World(node("n", cpu=9), queue("x"), queue("y"), kept, small("x", 3), small("y", 4), conf=settled)
    world.cycle()
    (waits,) = [name for name in ("x-0", "x-1", "x-2", "y-0", "y-1", "y-2", "y-3") if not world.placed(name)]
    assert "what is left is guaranteed to other queues" in world.reasons(waits)

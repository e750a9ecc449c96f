"""Pain 1: an evicted pod comes back and is evicted again (volcano #4947, #4949, #377)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import gang, node, priority_class, queue
from tests.laws.returning import Returning
from tests.sizes import some

CYCLES = 12
ACTIONS = "enqueue, allocate, preempt, reclaim, backfill"
SHARES = pytest.mark.parametrize("shares", ["proportion", "capacity"])
RENAMES = pytest.mark.parametrize("renames", [False, True], ids=["under its own name", "under another name"])


def conf(shares: str, actions: str = ACTIONS, *, decides: bool = False) -> str:
    """Below gang's tier, proportion and capacity are not asked for victims that gang names; above it they decide."""
    plugins = [["priority", "gang", "conformance"], ["predicates", shares, "nodeorder"]]
    if decides:
        plugins = [["priority", "conformance", "predicates", shares, "nodeorder"], ["gang"]]
    lines = [f'actions: "{actions}"', "tiers:"]
    for tier in plugins:
        lines += ["- plugins:", *[f"  - name: {name}" for name in tier]]
    return "\n".join(lines) + "\n"


def contended(shares: str, *wanted: Any, actions: str = ACTIONS, decides: bool = False, **options: Any) -> Returning:
    """8 CPU: q1 deserves 3 and runs one pod of 4; q2 deserves 5, runs one of 1 and wants 4 more."""
    return Returning(
        node("n", cpu=8),
        queue("q1", weight=3, deserved={"cpu": "3", "memory": "12Gi"}),
        queue("q2", weight=5, deserved={"cpu": "5", "memory": "20Gi"}),
        gang("a", 1, on=["n"], queue="q1", cpu=4, phase="Running", minimum={"cpu": 4}),
        gang("b", 1, on=["n"], queue="q2", cpu=1, phase="Running", minimum={"cpu": 1}),
        *wanted,
        conf=conf(shares, actions, decides=decides),
        **options,
    )


def one_of_four(phase: str = "Pending") -> Any:
    return gang("c", 1, queue="q2", cpu=4, phase=phase, minimum={"cpu": 4}, created=2)


@pytest.mark.parametrize("decides", [False, True], ids=["gang decides", "shares decide"])
@RENAMES
@SHARES
def test_one_eviction_and_the_evicted_pod_waits(shares: str, renames: bool, decides: bool) -> None:
    world = contended(shares, one_of_four(), renames=renames, decides=decides)
    world.cycles(CYCLES)
    assert world.evictions == {"default/a-0": 1}
    assert sorted(world.placed()) == ["b-0", "c-0"]
    assert world.why("a")


@SHARES
def test_four_pods_cost_no_more_than_one_of_their_size(shares: str) -> None:
    world = contended(shares, gang("c", 4, queue="q2", cpu=1, phase="Pending", minimum={"cpu": 4}, created=2))
    world.cycles(CYCLES)
    assert world.evictions == {"default/a-0": 1}
    assert sorted(world.placed()) == ["b-0", "c-0", "c-1", "c-2", "c-3"]


@SHARES
@pytest.mark.parametrize(
    "actions",
    [
        "enqueue, reclaim, allocate",
        "enqueue, allocate, reclaim",
        "reclaim, allocate",
        "enqueue, allocate, gangreclaim",
    ],
)
def test_so_it_is_in_every_order_of_actions(shares: str, actions: str) -> None:
    world = contended(shares, one_of_four("Inqueue"), actions=actions)
    world.cycles(CYCLES)
    assert world.evictions == {"default/a-0": 1}
    assert sorted(world.placed()) == ["b-0", "c-0"]


@SHARES
def test_the_evicted_pod_runs_again_once_there_is_room(shares: str) -> None:
    world = contended(shares, one_of_four())
    world.cycles(CYCLES)
    world.finish("default/c-0")
    world.cycles(CYCLES)
    assert "a-0" in world.placed()
    assert world.evictions == {"default/a-0": 1}


@SHARES
def test_no_more_queues_than_two_pass_a_place_on(shares: str) -> None:
    """Each queue deserves less than a pod of its own holds, and two of four wait: who got its place keeps it."""
    queues = [queue(f"q{i}", deserved={"cpu": "2", "memory": "8Gi"}) for i in range(4)]
    jobs = [
        gang(f"g{i}", 1, on=["n"] if i < 2 else (), queue=f"q{i}", cpu=4, phase="Inqueue", created=i) for i in range(4)
    ]
    world = Returning(node("n", cpu=8), queues, *jobs, conf=conf(shares))
    world.cycles(CYCLES)
    assert len(world.placed()) == 2
    assert all(count == 1 for count in world.evictions.values())
    assert len(world.evictions) <= 2


@RENAMES
@SHARES
def test_nor_does_preemption_within_a_queue_go_on_and_on(shares: str, renames: bool) -> None:
    spec = {"priority": 1000}
    world = Returning(
        node("n", cpu=8),
        priority_class("high", 1000),
        gang("low", 2, members=1, on=["n", "n"], cpu=4, phase="Running"),
        gang(
            "high", 1, cpu=4, phase="Pending", minimum={"cpu": 4}, group_spec={"priorityClassName": "high"}, spec=spec
        ),
        conf=conf(shares),
        renames=renames,
    )
    world.cycles(CYCLES)
    assert sum(world.evictions.values()) == 1
    assert len(world.placed("high")) == len(world.placed("low")) == 1


# --- a new job is new input -----------------------------------------------------------------------------------------

TAKES = pytest.mark.parametrize("action", ["preempt", "reclaim", "gangpreempt", "gangreclaim"])
ENDS = pytest.mark.parametrize("ends", ["completes", "is deleted"])


def lent(action: str, **options: Any) -> Returning:
    """Two pods of web fill the node; a job of class high, in a queue of its own where reclaim takes, may evict them."""
    return Returning(
        node("n", cpu=4),
        queue("q1", deserved={"cpu": "4", "memory": "16Gi"}),
        queue("q2", deserved={"cpu": "0"}),
        priority_class("high", 1000),
        priority_class("mid", 500),
        gang("web", 2, members=1, on=["n", "n"], queue="q2" if "reclaim" in action else "q1", cpu=2, phase="Running"),
        conf=conf("capacity", f"enqueue, allocate, {action}"),
        **options,
    )


def urgent(world: Returning, name: str) -> None:
    spec = {"priorityClassName": "high", "priority": 1000}
    group = {"priorityClassName": "high"}
    world.put(
        gang(name, 1, queue="q1", cpu=2, phase="Inqueue", group_spec=group, spec=spec, created=world.state.session)
    )
    world.cycles(6)


def end(world: Returning, name: str, ends: str) -> None:
    if ends == "completes":
        world.finish(f"default/{name}-0")
    else:
        world.remove("Pod", f"default/{name}-0")
        world.remove("PodGroup", f"default/{name}")
    world.cycles(6)


@ENDS
@RENAMES
@TAKES
def test_each_new_job_may_have_the_replacement_of_an_evicted_pod_evicted(action: str, renames: bool, ends: str) -> None:
    """kai-scheduler#84: after a few urgent jobs none had anything evicted any more."""
    world = lent(action, renames=renames)
    for number in range(4):
        urgent(world, f"urgent{number}")
        assert f"urgent{number}-0" in world.placed()
        assert sum(world.evictions.values()) == number + 1
        end(world, f"urgent{number}", ends)
        assert len(world.placed("web")) == 2


@TAKES
def test_what_the_last_job_left_is_no_memory_of_it(action: str) -> None:
    world = lent(action)
    urgent(world, "urgent")
    assert world.state.immunity.evicted.keys() == {"default/web"}
    end(world, "urgent", "completes")
    assert world.state.immunity.evicted == {}


def test_the_lower_pod_is_evicted_though_it_was_evicted_before() -> None:
    """Not the one of middle priority that was not."""
    world = Returning(
        node("n", cpu=4),
        queue("q1"),
        [priority_class("high", 1000), priority_class("mid", 500)],
        gang("low", 1, members=0, on=["n"], queue="q1", cpu=2, phase="Running"),
        gang(
            "mid",
            1,
            members=0,
            on=["n"],
            queue="q1",
            cpu=2,
            phase="Running",
            group_spec={"priorityClassName": "mid"},
            spec={"priorityClassName": "mid", "priority": 500},
        ),
        conf=conf("capacity", "enqueue, allocate, preempt"),
    )
    for number in range(3):
        urgent(world, f"urgent{number}")
        end(world, f"urgent{number}", "completes")
    assert world.evictions == {"default/low-0": 3}


# --- nor is one that a newer reason is behind, though others always wait ----------------------------------------------

DISPLACES = pytest.mark.parametrize(
    "actions", ["preempt", "preempt, reclaim", "gangpreempt", "gangpreempt, gangreclaim"], ids=lambda a: a.split()[-1]
)


def yielding(actions: str) -> str:
    """A configuration in which gangs do not protect their minimum."""
    lines = ["enablePreemptable: false", "enableReclaimable: false", "enableUnifiedEvictable: false"]
    return conf("capacity", actions).replace("name: gang\n", "\n    ".join(["name: gang", *lines]) + "\n")


def displacing(actions: str, lows: int, *more: Any, **options: Any) -> Returning:
    """Two full nodes: a pod of class mid on one, one of ``lows`` pods without a class on the other, the rest wait."""
    middle = {"priorityClassName": "mid"}
    return Returning(
        [node("n0", cpu=1), node("n1", cpu=1)],
        queue("q1", deserved={"cpu": "2", "memory": "8Gi"}),
        queue("q2", deserved={"cpu": "0"}),
        [priority_class("high", 1000), priority_class("mid", 500)],
        gang(
            "mid",
            1,
            members=1,
            on=["n0"],
            cpu=1,
            queue="q1",
            phase="Running",
            group_spec=middle,
            spec={"priority": 500},
        ),
        gang("low", lows, members=1, on=["n1"], cpu=1, queue="q2" if "reclaim" in actions else "q1", phase="Running"),
        *more,
        conf=yielding(f"allocate, {actions}"),
        **options,
    )


def displace(world: Returning, name: str, place: str) -> None:
    """A job of class high comes that only runs where ``mid`` does."""
    spec = {"priority": 1000, "nodeSelector": {"kubernetes.io/hostname": place}}
    group = {"priorityClassName": "high"}
    created = world.state.session
    world.put(gang(name, 1, cpu=1, queue="q1", phase="Inqueue", group_spec=group, spec=spec, created=created))
    world.cycles(6)


@pytest.mark.parametrize(("lows", "renames"), some(1, [(3, True), (3, False), (1, True), (6, True)]))
@DISPLACES
def test_who_is_displaced_again_and_again_displaces_lower_pods_each_time(
    actions: str, renames: bool, lows: int
) -> None:
    """Pods of the lower group always wait, so that its losses did not end: the second to last waited for the last."""
    world = displacing(actions, lows, renames=renames)
    for number in range(lows + 3):
        (place,) = world.placed("mid").values()
        displace(world, f"high{number}", place)
        assert [len(world.placed(name)) for name in ("high", "mid", "low")] == [1, 1, 0], f"round {number}"
        world.finish(f"default/high{number}-0")
        world.remove("Pod", f"default/high{number}-0")
        world.cycles(6)
        assert len(world.placed("mid")) == len(world.placed("low")) == 1, f"round {number}"


@DISPLACES
def test_a_job_that_evicts_once_is_reason_for_one_more_eviction_not_for_many(actions: str) -> None:
    """Its input is older than what was evicted because of it."""
    world = displacing(actions, 3)
    displace(world, "high", "n0")
    before = dict(world.evictions)
    assert sum(before.values()) == 2
    for number in range(5):
        world.put(gang(f"news{number}", 1, queue="q1", cpu=99, phase="Inqueue"))
        world.cycles(2)
    assert world.evictions == before


@pytest.mark.parametrize("depth", some(1, [4, 2]))
def test_a_chain_of_groups_passes_the_reason_on(depth: int) -> None:
    """Each class displaces the next lower one; pods of the lowest always wait."""
    classes = [priority_class(f"c{rank}", rank) for rank in range(1, depth + 1)]
    groups = [
        gang(
            f"g{rank}",
            1 if rank > 1 else 4,
            members=1,
            cpu=1,
            on=[f"n{rank}"],
            queue="q1",
            phase="Running",
            group_spec={"priorityClassName": f"c{rank}"},
            spec={"priority": rank},
        )
        for rank in range(1, depth + 1)
    ]
    nodes = [node(f"n{rank}", cpu=1) for rank in range(1, depth + 1)]
    world = Returning(
        nodes, queue("q1"), classes, priority_class("high", 1000), *groups, conf=yielding("allocate, preempt")
    )
    for number in range(6):
        (place,) = world.placed(f"g{depth}").values()
        displace(world, f"high{number}", place)
        world.cycles(2 * depth)
        assert all(len(world.placed(f"g{rank}")) == (rank > 1) for rank in range(1, depth + 1)), f"round {number}"
        world.finish(f"default/high{number}-0")
        world.remove("Pod", f"default/high{number}-0")
        world.cycles(6)
        assert all(len(world.placed(f"g{rank}")) == 1 for rank in range(1, depth + 1)), f"round {number}"

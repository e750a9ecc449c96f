"""A queue that deserves something, has nothing and asks for what exists does not starve for ever under proportion.

Shares are of what our pods can have: what other schedulers' pods hold, nodes that none of our pods tolerates, and what
is left of nodes when our pods, all of one size, fill them, is nobody's to deserve.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import pytest

from tests.dsl import gang, node, planned, pod, priority_class, queue
from tests.laws.accounts import Accounts
from tests.laws.returning import Returning
from tests.sizes import blocks

Manifest = dict[str, Any]

DEFAULT = """\
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""
FIRST_TIER = """\
actions: "allocate, reclaim"
tiers:
- plugins:
  - name: priority
  - name: proportion
  - name: gang
- plugins:
  - name: predicates
"""
TAINT = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
BLOCK = 25


def others(name: str, on: str, **amounts: Any) -> Manifest:
    """A running pod of another scheduler."""
    return pod(name, on=on, namespace="kube-system", spec={"schedulerName": "default-scheduler"}, **amounts)


def workers(count: int, *, room: float = 1, **more: Any) -> list[Manifest]:
    """Nodes of 4 cpu of which others hold all but ``room``."""
    names = [f"w{number}" for number in range(count)]
    held = [others(f"of-{name}", name, cpu=f"{int((4 - room) * 1000)}m") for name in names]
    return [*[node(name, cpu=4, **more) for name in names], *held]


def borrowed(*places: str, waiting: int = 1) -> list[Any]:
    """Two jobs of low priority in queues of their own that hold all places, and one of high priority in a third."""
    half = len(places) // 2
    return [
        *[queue(name) for name in ("q1", "q2", "q3")],
        *[priority_class("low", 1), priority_class("high", 9)],
        *[
            gang(f"j{n}", half, members=1, queue=f"q{n}", on=on, cpu=1, phase="Running", group_spec=LOW)
            for n, on in ((1, places[:half]), (2, places[half:]))
        ],
        gang("j3", waiting, queue="q3", cpu=1, created=9, group_spec={"priorityClassName": "high"}),
    ]


LOW = {"priorityClassName": "low"}
UNUSABLE = {
    "a tainted control plane": lambda: [node("control", cpu=4, taints=[TAINT])],
    "a cordoned node": lambda: [node("cordoned", cpu=4, unschedulable=True)],
    "a node for others": lambda: [node("gpus", cpu=4, taints=[{"key": "gpu", "value": "yes", "effect": "NoExecute"}])],
    "nothing more": list,
}


@pytest.mark.parametrize("conf", [DEFAULT, FIRST_TIER], ids=["default tiers", "in the first tier"])
@pytest.mark.parametrize("unusable", sorted(UNUSABLE))
@pytest.mark.parametrize("room", [1, 1.5, 1.9])
def test_a_third_queue_gets_its_part_of_four_places(conf: str, unusable: str, room: float) -> None:
    """Four workers with room for one pod each, which two other queues hold."""
    result = planned(*UNUSABLE[unusable](), *workers(4, room=room), *borrowed("w0", "w1", "w2", "w3"), conf=conf)
    assert len(result.evictions) == 1
    assert list(result.pipelined) == ["default/j3-0"]


@pytest.mark.parametrize("resource", ["memory", "gpu"])
def test_of_any_resource(resource: str) -> None:
    """Six places; others hold the rest of the nodes, a tainted one has twice as much."""
    names = [f"n{number}" for number in range(6)]
    nodes = [node(name, **{resource: 4}) for name in names]
    held = [others(f"of-{name}", name, **{resource: 3}) for name in names]
    jobs = [
        gang(f"j{n}", 3, members=0, queue=f"q{n}", on=names[3 * n : 3 * n + 3], phase="Running", **{resource: 1})
        for n in range(2)
    ]
    late = gang("late", 2, members=1, queue="q2", **{resource: 1})
    queues = [queue(f"q{n}") for n in range(3)]
    wide = node("control", taints=[TAINT], **{resource: 48})
    result = planned(wide, *nodes, *held, *queues, *jobs, late, conf=DEFAULT)
    assert len(result.evictions) >= 1
    assert "default/late-0" in result.pipelined


TOLERANT = {"tolerations": [{"key": TAINT["key"], "operator": "Exists"}]}


@pytest.mark.parametrize("conf", [DEFAULT, FIRST_TIER], ids=["default tiers", "in the first tier"])
@pytest.mark.parametrize("team", ["q1", "ml"])
@pytest.mark.parametrize("pods", [1, 3])
def test_nodes_that_only_others_may_use_are_no_room_of_those_that_may_not(conf: str, team: str, pods: int) -> None:
    """A large tainted node, which some pods of ours tolerate, is no part of what the waiting pod can have."""
    large = [queue("ml"), node("large", cpu=16, gpu=8, taints=[TAINT])]
    theirs = gang("t", pods, queue=team, members=0, on=["large"], cpu=1, gpu=1, phase="Running", spec=TOLERANT)
    world = Returning(*large, theirs, *workers(4), *borrowed("w0", "w1", "w2", "w3"), conf=conf)
    world.cycles(6)
    assert "j3-0" in world.placed()
    assert list(world.evictions.values()) == [1]
    assert "t-0" in world.placed()


def test_who_tolerates_a_node_has_the_room_there() -> None:
    """Two of the three that wait find it; the third is above what its queue deserves of all of it, and nobody goes."""
    nodes = [node("large", cpu=2, taints=[TAINT]), *workers(4)]
    late = gang("late", 3, members=0, queue="q4", cpu=1, spec=TOLERANT, created=9)
    world = Returning(*nodes, queue("q4"), *borrowed("w0", "w1", "w2", "w3", waiting=0), late, conf=DEFAULT)
    world.cycles(6)
    assert [world.placed().get(f"late-{number}") for number in range(3)] == ["large", "large", None]
    assert world.evicted == []


def test_the_reason_names_the_veto_and_the_queues_that_it_keeps() -> None:
    """Queue q3 has its third of three places; it wants one more, which q1 and q2 keep."""
    objects = [*workers(3), *[queue(name) for name in ("q1", "q2", "q3")]]
    jobs = [gang(f"j{n}", 2, members=0, queue=f"q{n}", on=[f"w{n - 1}"], cpu=1, phase="Running") for n in (1, 2)]
    mine = [gang("mine", 1, members=0, queue="q3", on=["w2"], cpu=1, phase="Running")]
    late = [gang("late", 1, queue="q3", cpu=1)]
    result = planned(*objects, *jobs, *mine, *late, conf=FIRST_TIER)
    assert result.evictions == []
    told = {why["reason"]: why for why in result.why["default/late"]}["queues keep their part of what can be had"]
    assert (told["gate"], told["plugin"], told["detail"]) == ("queue", "proportion", {"queues": "q1, q2"})


class Borrowed(Returning):
    """Queues of different weights, whose jobs hold what can be had and need none of it, until one comes late.

    ``beside`` are objects of others, of which none of these queues' pods can have anything.
    """

    def __init__(self, seed: int, beside: Iterable[Any] = ()) -> None:
        rng = random.Random(seed)
        self.size = rng.choice((1, 1, 2))
        count = rng.randint(2, 6)
        self.places = [f"w{number}" for number in range(count) for _ in range(rng.randint(0, 3))] or ["w0"]
        room = {name: self.size * self.places.count(name) for name in [f"w{number}" for number in range(count)]}
        extra = rng.choice((0, 250, 500, 900))
        objects: list[Any] = []
        for name, cpu in room.items():
            held = rng.randint(0, 6)
            objects.append(node(name, cpu=f"{(cpu + held) * 1000 + extra}m"))
            objects += [others(f"of-{name}", name, cpu=held)] if held else []
        objects += [
            node(f"control{number}", cpu=rng.randint(1, 16), taints=[TAINT]) for number in range(rng.randint(0, 2))
        ]
        queues = [f"q{number}" for number in range(rng.randint(2, 4))]
        self.weights = {name: rng.choice((1, 1, 2, 3)) for name in [*queues, "late"]}
        objects += [queue(name, weight=weight) for name, weight in self.weights.items()]
        holders = [rng.choice(queues) for _ in self.places]
        for name in queues:
            on = [place for place, holder in zip(self.places, holders, strict=True) if holder == name]
            if on:
                more = rng.randint(0, 2)
                objects += gang(
                    f"of-{name}", len(on) + more, members=0, queue=name, on=on, cpu=self.size, phase="Running"
                )
        for number in range(rng.randint(1, 3)):
            objects += gang(f"late{number}", 1, queue="late", cpu=self.size, created=99)
        super().__init__(objects, *beside, conf=rng.choice((DEFAULT, FIRST_TIER)), renames=rng.random() < 0.4)

    def pods_of(self) -> dict[str, tuple[int, int]]:
        """Of each queue, how many pods there are and how many have a place."""
        counts: dict[str, tuple[int, int]] = {}
        accounts = Accounts(self.state)
        for key, each in accounts.pods.items():
            name = each.metadata.annotations.get("scheduling.k8s.io/group-name")
            if name is not None and name != "train":
                of = accounts.groups[f"default/{name}"].group.spec.queue
                pods, placed = counts.get(of, (0, 0))
                counts[of] = pods + 1, placed + bool(accounts.node_of[key])
        return counts

    def parts(self) -> dict[str, Fraction]:
        """What each queue deserves of the places, in pods: by weight, and no more than it has pods."""
        wants = {name: pods for name, (pods, _) in self.pods_of().items()}
        parts = dict.fromkeys(wants, Fraction(0))
        left, hungry = Fraction(len(self.places)), set(wants)
        while left and hungry:
            weights = sum(self.weights[name] for name in hungry)
            given = {name: left * self.weights[name] / weights for name in hungry}
            for name in sorted(hungry):
                more = min(given[name], wants[name] - parts[name])
                parts[name] += more
                left -= more
            hungry = {name for name in hungry if parts[name] < wants[name]}
        return parts


def large_nodes(seed: int) -> list[Any]:
    """Tainted nodes of which a queue of its own has some, and may want more."""
    rng = random.Random(-1 - seed)
    names = [f"large{number}" for number in range(rng.randint(1, 3))]
    on = [name for name in names for _ in range(rng.randint(0, 3))]
    count = max(1, len(on) + rng.choice((0, 0, 1, 9)))
    return [
        queue("ml", weight=rng.randint(1, 3)),
        *[node(name, cpu=rng.randint(4, 16), gpu=3, taints=[TAINT]) for name in names],
        gang("train", count, members=0, queue="ml", on=on, cpu=1, gpu=1, phase="Running", spec=TOLERANT),
    ]


@pytest.mark.parametrize(
    "beside", [lambda seed: [], large_nodes], ids=["all", "beside nodes that others alone may use"]
)
@pytest.mark.parametrize("block", blocks(10, 200, BLOCK), ids=lambda block: f"{block.start}-{block.stop - 1}")
def test_no_queue_starves_within_its_part_while_another_holds_more_than_its_own(
    block: range, beside: Callable[[int], list[Any]]
) -> None:
    """Pods of one size; what is evicted comes back, and nobody is evicted twice."""
    reclaimed = 0
    for seed in block:
        world = Borrowed(seed, beside(seed))
        world.cycles(8)
        before = world.evictions.total()
        world.cycles(3)
        reclaimed += before > 0
        assert world.evictions.total() == before, f"seed {seed}: no rest"
        assert max(world.evictions.values(), default=0) <= 1, f"seed {seed}: {world.evictions}"
        parts, pods = world.parts(), world.pods_of()
        above = [name for name, (_, placed) in pods.items() if placed > parts[name]]
        count, placed = pods["late"]
        starves = placed < count and placed + 1 <= parts["late"]
        assert not (starves and above), f"seed {seed}: {pods}, parts {parts}"
    assert reclaimed, "no cluster in which somebody reclaims"

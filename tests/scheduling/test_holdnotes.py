"""A job that waits learns whose hold keeps what it could use (docs/laws.md, law 8)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.dsl import Manifest, gang, group, node, priority_class, queue
from tests.scheduling.test_admissions import PLUGINS, ghosts
from tests.scheduling.test_backoff import PREEMPTING, Refusing
from tests.world import World
from vcd.scheduling.framework.reasons import Told, keeps_back

CLASSES = [priority_class("high", 100), priority_class("mid", 50), priority_class("low", 1)]
GANGPREEMPTING = PREEMPTING.replace("preempt", "gangpreempt")
GUARANTEEING = """\
actions: "enqueue, allocate"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: predicates
  - name: {plugin}
"""


def held(world: World, name: str) -> list[Told]:
    """What is told of holds; it never keeps the job back."""
    notes = [one for one in world.state.waiting.get(f"default/{name}", ()) if one.gate == "held"]
    assert not any(map(keeps_back, notes))
    return [one for one in world.why(name) if one.gate == "held"]


class Lingering(World):
    """Evicted pods terminate, and are not gone yet."""

    def leave(self, key: str) -> None:
        pass


def preempted(conf: str, nodes: int, *others: Manifest | Iterable[Manifest]) -> Lingering:
    """Of three cpu on each node two are freed for a gang; others come after that was decided."""
    names = [f"n{number}" for number in range(nodes)]
    low = [name for name in names for _ in range(3)]
    world = Lingering(
        *[node(name, cpu=3, labels={"name": name}) for name in names],
        *CLASSES,
        gang("low", len(low), members=1, cpu=1, on=low, group_spec={"priorityClassName": "low"}),
        gang("high", nodes, cpu=2, group_spec={"priorityClassName": "high"}),
        conf=conf,
    )
    world.cycle()
    world.put(*others)
    world.cycle()
    return world


def late(name: str = "late", **options: Any) -> Iterable[Manifest]:
    return gang(name, 1, **{"cpu": 1, "group_spec": {"priorityClassName": "low"}, "created": 9, **options})


@pytest.mark.parametrize("conf", [PREEMPTING, GANGPREEMPTING])
@pytest.mark.parametrize("nodes", [1, 2])
def test_nominated_capacity_is_told_with_its_owner(conf: str, nodes: int) -> None:
    world = preempted(conf, nodes, late())
    assert set(world.evicted) and "high-0" not in world.placed()
    (note,) = held(world, "late")
    where = ", ".join(f"n{number}" for number in range(nodes))
    assert note.text.startswith(f"capacity on {where} is nominated for default/high")
    assert note.amounts["cpu"] == {"held": 2000 * nodes}
    assert held(world, "high") == []


@pytest.mark.parametrize(
    "options", [{"cpu": 4}, {"spec": {"nodeSelector": {"name": "elsewhere"}}}, {"gpu": 1}], ids=str
)
def test_what_a_job_could_not_use_is_not_told(options: dict[str, Any]) -> None:
    world = preempted(PREEMPTING, 2, late(**options))
    assert world.why("late")
    assert held(world, "late") == []


def test_equivalent_jobs_are_told_the_same() -> None:
    world = preempted(PREEMPTING, 1, *[late(f"late-{number}") for number in range(4)])
    notes = [held(world, f"late-{number}") for number in range(4)]
    assert all(len(found) == 1 and found[0].text == notes[0][0].text for found in notes)


def test_the_note_ends_with_the_hold() -> None:
    world = preempted(PREEMPTING, 1, late())
    assert held(world, "late")
    world.remove("Pod", *sorted(set(world.evicted)))
    world.rest()
    assert world.placed("high")
    assert world.why("late")
    assert held(world, "late") == []


@pytest.mark.parametrize("plugin", PLUGINS)
def test_reservations_of_groups_without_pods_are_told(plugin: str) -> None:
    world = ghosts(plugin)
    world.cycle()
    world.cycle()
    (note,) = held(world, "new")
    assert note.text.startswith("default/ghost0, default/ghost1 are admitted without pods, with resources reserved")
    assert "until 2026-" in note.text
    assert note.amounts["cpu"] == {"held": 8000}


@pytest.mark.parametrize("plugin", ["overcommit", "capacity"])
def test_a_reservation_in_another_queue_is_told_where_the_limit_is_of_all(plugin: str) -> None:
    world = ghosts(plugin)
    world.put(queue("r", capability={"cpu": 2}))
    world.put(gang("other", 1, queue="r", cpu=4, phase="Pending", minimum={"cpu": 4}, created=9))
    world.cycle()
    world.cycle()
    assert bool(held(world, "other")) == (plugin == "overcommit")


@pytest.mark.parametrize("plugin", ["proportion", "capacity"])
@pytest.mark.parametrize("guaranteed", [5, 8])
def test_the_guarantee_that_makes_a_limit_is_told(plugin: str, guaranteed: int) -> None:
    world = World(
        node("n", cpu=8),
        queue("owner", guarantee={"resource": {"cpu": guaranteed}}, deserved={"cpu": guaranteed}),
        queue("other", capability={"cpu": 8}),
        gang("new", 1, queue="other", cpu=4, phase="Pending", minimum={"cpu": 4}),
        conf=GUARANTEEING.format(plugin=plugin),
    )
    world.cycle()
    (note,) = held(world, "new")
    assert note.text.startswith("the unused guarantee of queue owner counts against the limit")
    assert note.amounts["cpu"] == {"held": guaranteed * 1000}


def test_a_capability_is_no_guarantee_of_others() -> None:
    world = World(
        node("n", cpu=8),
        queue("owner", guarantee={"resource": {"cpu": 2}}, deserved={"cpu": 2}),
        queue("other", capability={"cpu": 3}),
        gang("new", 1, queue="other", cpu=4, phase="Pending", minimum={"cpu": 4}),
        conf=GUARANTEEING.format(plugin="capacity"),
    )
    world.cycle()
    assert world.why("new")
    assert held(world, "new") == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_job_is_told_when_others_are_evicted_after_a_refusal(jobs: int) -> None:
    world = Refusing(
        node("n", cpu=4),
        priority_class("high", 9),
        gang("low", 4, members=1, cpu=1, on=["n"] * 4),
        refuses=lambda operation: operation.verb == "evict",
        conf=PREEMPTING,
    )
    world.put(*[gang(f"high-{n}", 1, cpu=1, group_spec={"priorityClassName": "high"}) for n in range(jobs)])
    world.cycle()
    world.cycle()
    for number in range(jobs):
        (note,) = held(world, f"high-{number}")
        assert "refused an eviction for it; other pods are evicted at 2026-11-21T08:" in note.text


def test_where_nothing_is_held_nothing_is_told() -> None:
    world = World(node("n", cpu=1), gang("a", 1, cpu=1, on=["n"]), gang("b", 1, cpu=1), group("empty"))
    world.cycle()
    assert world.why("b")
    assert held(world, "b") == held(world, "empty") == []

"""A job that waits learns whose hold keeps what it could use (docs/laws.md, law 8)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.dsl import Manifest, gang, group, node, priority_class, queue
from tests.plugins.opened import conf
from tests.scheduling.test_admissions import PLUGINS, ghosts, timed
from tests.scheduling.test_backoff import PREEMPTING, Refusing
from tests.world import World
from vcd.model.events import Waiting
from vcd.model.reasons import CODES, Cause, Reason
from vcd.scheduling.framework.declared_reasons import Told, keeps_back
from vcd.scheduling.holdnotes import remarks_on
from vcd.text.reason_sentences import reason_text

CLASSES = [priority_class("high", 100), priority_class("mid", 50), priority_class("low", 1)]
GANGPREEMPTING = PREEMPTING.replace("preempt", "gangpreempt")


def admitting(plugin: str, **arguments: Any) -> str:
    return conf("priority", "gang", "predicates", plugin, actions="enqueue, allocate", arguments=arguments)


def held(world: World, name: str) -> list[Told]:
    """What is told of holds; it never keeps the job back."""
    notes = [one for one in world.state.waiting.get(f"default/{name}", ()) if one.gate == "held"]
    assert not any(map(keeps_back, notes))
    return [one for one in world.why(name) if one.gate == "held"]


class Lingering(World):
    """Evicted pods terminate, and are not gone yet."""

    def leave(self, key: str) -> None:
        pass


def preempted(configured: str, nodes: int, *others: Manifest | Iterable[Manifest]) -> Lingering:
    """Of three cpu on each node two are freed for a gang; others come after that was decided."""
    names = [f"n{number}" for number in range(nodes)]
    low = [name for name in names for _ in range(3)]
    world = Lingering(
        *[node(name, cpu=3, labels={"name": name}) for name in names],
        *CLASSES,
        gang("low", len(low), members=1, cpu=1, on=low, group_spec={"priorityClassName": "low"}),
        gang("high", nodes, cpu=2, group_spec={"priorityClassName": "high"}),
        conf=configured,
    )
    world.cycle()
    world.put(*others)
    world.cycle()
    return world


def late(name: str = "late", **options: Any) -> Iterable[Manifest]:
    return gang(name, 1, **{"cpu": 1, "group_spec": {"priorityClassName": "low"}, "created": 9, **options})


@pytest.mark.parametrize("configured", [PREEMPTING, GANGPREEMPTING])
@pytest.mark.parametrize("nodes", [1, 2])
def test_nominated_capacity_is_told_with_its_owner(configured: str, nodes: int) -> None:
    world = preempted(configured, nodes, late())
    assert set(world.evicted) and "high-0" not in world.placed()
    (note,) = held(world, "late")
    assert reason_text(note) == "capacity that it could use is nominated for other jobs, such as default/high"
    assert held(world, "high") == []


@pytest.mark.parametrize("configured", [PREEMPTING, GANGPREEMPTING])
@pytest.mark.parametrize("nodes", [2, 3])
def test_the_words_stay_as_long_as_the_same_job_has_nominated_capacity(configured: str, nodes: int) -> None:
    """Victims are gone on one node after the other, so that nodes and amounts change from session to session."""
    world = preempted(configured, nodes, late())
    said = held(world, "late")
    assert len(said) == 1
    for number in range(nodes - 1):
        placed = world.placed()
        world.remove("Pod", *sorted({key for key in world.evicted if placed.get(key[8:]) == f"n{number}"}))
        world.cycle()
        plan = world.cycle()
        assert not world.placed("high")
        assert held(world, "late") == said
        assert "default/late" not in {waiting.group for waiting in plan.waiting}


def test_a_remark_of_an_earlier_version_is_replaced() -> None:
    world = preempted(PREEMPTING, 1, late())
    said = held(world, "late")
    earlier = Reason("held-nominated", (("nodes", "n0"), ("owners", "default/gone")))
    world.state.waiting["default/late"] = (Waiting("default/late", "held", "", earlier),)
    world.cycle()
    assert held(world, "late") == said


@pytest.mark.parametrize("more", [1, 4])
def test_the_owner_that_is_named_stays_while_others_come_and_go(more: int) -> None:
    world = preempted(PREEMPTING, more + 1, late())
    said = held(world, "late")
    urgent = {"priorityClassName": "high"}
    for number in range(more):
        world.put(gang(f"a{number}", 1, cpu=1, group_spec=urgent))
        plan = world.cycle()
        assert f"default/a{number}-0" in {one.key for each in plan.statements for one in each.operations}
        assert held(world, "late") == said
    world.remove("PodGroup", "default/high")
    world.remove("Pod", *[f"default/high-{number}" for number in range(more + 1)])
    world.cycle()
    assert held(world, "late") != said


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
    assert all(len(found) == 1 and reason_text(found[0]) == reason_text(notes[0][0]) for found in notes)


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
    assert reason_text(note).startswith(
        "resources are reserved for default/ghost0, default/ghost1, admitted and without all of their pods (held 8 cpu"
    )
    assert "until 2026-" in reason_text(note)
    assert note.amounts == {"cpu": {"held": 8000}}


@pytest.mark.parametrize("plugin", ["overcommit", "capacity"])
def test_a_reservation_in_another_queue_is_told_where_the_limit_is_of_all(plugin: str) -> None:
    world = ghosts(plugin)
    world.put(queue("r", capability={"cpu": 2}))
    world.put(gang("other", 1, queue="r", cpu=4, phase="Pending", minimum={"cpu": 4}, created=9))
    world.cycle()
    world.cycle()
    assert bool(held(world, "other")) == (plugin == "overcommit")


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize(("priority", "named"), [("low", ["ghost0", "ghost1"]), ("mid", ["ghost1"]), ("high", [])])
def test_reservations_of_lower_priority_are_not_told(plugin: str, priority: str, named: list[str]) -> None:
    """A pod that runs keeps the job out in any case."""
    world = timed(node("n", cpu=8), queue("q", capability={"cpu": 8, "memory": "1Ti"}), *CLASSES, plugin=plugin)
    minimum = {"cpu": 4, "memory": "1Gi", "pods": 1}
    options: dict[str, Any] = {"queue": "q", "phase": "Pending", "minimum": minimum}
    world.put(group(f"ghost{number}", priorityClassName=name, **options) for number, name in enumerate(("low", "mid")))
    world.cycle()
    world.put(gang("runs", 1, queue="q", cpu=6, minimum={"cpu": 6}, on=["n"]))
    world.put(gang("new", 1, cpu=4, group_spec={"priorityClassName": priority}, **options))
    world.cycle()
    world.cycle()
    assert any(one.gate == "enqueue" for one in world.why("new"))
    notes = held(world, "new")
    text = "".join(map(reason_text, notes))
    assert [name for name in ("ghost0", "ghost1") if f"default/{name}" in text] == named
    assert [note.amounts for note in notes] == [{"cpu": {"held": 4000 * len(named)}}] * bool(named)


@pytest.mark.parametrize("plugin", ["proportion", "capacity"])
@pytest.mark.parametrize("guaranteed", [5, 8])
def test_the_guarantee_that_makes_a_limit_is_told(plugin: str, guaranteed: int) -> None:
    world = World(
        node("n", cpu=8),
        queue("owner", guarantee={"resource": {"cpu": guaranteed}}, deserved={"cpu": guaranteed}),
        queue("other", capability={"cpu": 8}),
        gang("new", 1, queue="other", cpu=4, phase="Pending", minimum={"cpu": 4}),
        conf=admitting(plugin),
    )
    world.cycle()
    (note,) = held(world, "new")
    assert reason_text(note).startswith("the limit excludes the unused guarantee of queue owner (held ")
    assert note.amounts == {"cpu": {"held": guaranteed * 1000}}


@pytest.mark.parametrize("other", ["beside", "below"])
def test_in_a_tree_the_guarantees_beside_the_limited_queue_are_told(other: str) -> None:
    """The parent's limit excludes what its sibling is guaranteed, not what a queue below it is."""
    world = World(
        node("n", cpu=8),
        queue("parent", guarantee={"resource": {"cpu": 1}}, deserved={"cpu": 1}),
        queue("below", parent="parent", guarantee={"resource": {"cpu": 1}}, deserved={"cpu": 1}),
        queue("runs", parent="parent"),
        queue("asks", parent="parent"),
        queue("beside", guarantee={"resource": {"cpu": 4}}, deserved={"cpu": 4}),
        gang("runs", 1, queue="runs", cpu=2, on=["n"]),
        gang("new", 1, queue="asks", cpu=3, phase="Pending", minimum={"cpu": 3}),
        conf=admitting("capacity") + "    enableHierarchy: true\n",
    )
    world.cycle()
    assert world.why("new")[0].cause == Cause.PARENT_LIMIT
    (note,) = held(world, "new")
    assert (f"queue {other}" in reason_text(note)) == (other == "beside")


def test_a_capability_is_no_guarantee_of_others() -> None:
    world = World(
        node("n", cpu=8),
        queue("owner", guarantee={"resource": {"cpu": 2}}, deserved={"cpu": 2}),
        queue("other", capability={"cpu": 3}),
        gang("new", 1, queue="other", cpu=4, phase="Pending", minimum={"cpu": 4}),
        conf=admitting("capacity"),
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
        assert "refused an eviction for it; other pods are evicted at 2026-11-21T08:" in reason_text(note)


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_remark_belongs_to_the_first_reason(nodes: int) -> None:
    """A pod that is larger than any node could not use what a queue is guaranteed; its siblings have another reason."""
    world = World(
        *[node(f"n{number}", cpu=8) for number in range(nodes)],
        queue("owner", guarantee={"resource": {"cpu": 8 * nodes - 1}}, deserved={"cpu": 8 * nodes - 1}),
        queue("other", deserved={"cpu": 1}),
        gang("large", 3, queue="other", cpu=99),
        gang("small", 3, queue="other", cpu=2),
        conf=admitting("capacity"),
    )
    world.cycle()
    assert [world.why(name)[0].cause for name in ("large", "small")] == [Cause.SHAPE, Cause.QUEUE_CAPABILITY]
    assert held(world, "large") == []
    assert len(held(world, "small")) == 1


@pytest.mark.parametrize("cause", sorted(Cause))
def test_remarks_follow_what_they_explain(cause: Cause) -> None:
    codes = ["held-nominated", "held-reserved", "held-guaranteed", "eviction-refused"]
    reasons = [
        Waiting("default/g", "held", "", CODES[code]({"owners": "a", "owner": "a", "until": "then"})) for code in codes
    ]
    follow = {
        Cause.CLUSTER_FULL: {"held-nominated", "eviction-refused"},
        Cause.ADMISSION: {"held-reserved"},
        Cause.PARENT_LIMIT: {"held-reserved", "held-guaranteed", "eviction-refused"},
        Cause.OTHERS_GUARANTEE: {"eviction-refused"},  # it names the queue itself
        Cause.SHAPE: set[str](),
        Cause.TAINT: set[str](),
    }
    found = {one.reason.code for one in remarks_on(cause, [*reasons, Waiting("default/g", "held", "", "old words")])}
    assert found == follow.get(cause, found)


def test_where_nothing_is_held_nothing_is_told() -> None:
    world = World(node("n", cpu=1), gang("a", 1, cpu=1, on=["n"]), gang("b", 1, cpu=1), group("empty"))
    world.cycle()
    assert world.why("b")
    assert held(world, "b") == held(world, "empty") == []

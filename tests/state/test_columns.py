"""What a snapshot makes of an earlier one's by what changed is what it makes from nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from tests.dsl import Manifest, gang, group, node, pod, priority_class, queue
from tests.laws.histories import History
from tests.sizes import seeds
from tests.world import World
from vcd.model import events as ev
from vcd.scheduling.session.job_columns import elastic, inqueue, is_ready
from vcd.state.group_columns import By, Derived
from vcd.state.interning import Changes
from vcd.state.snapshot import Snapshot, SnapshotMaker

_CLUSTERS, _CHANGES = seeds(24, 60), 12
_SUMMED: tuple[str | Derived, ...] = ("allocated", "pending", elastic, inqueue)


def _assert_same(kept: Snapshot, fresh: Snapshot) -> None:
    for name, column in vars(kept.tasks).items():
        assert np.array_equal(column, getattr(fresh.tasks, name)), name
    assert np.array_equal(kept.usage, fresh.usage)
    assert (kept.resources, kept.facts.names) == (fresh.resources, fresh.facts.names)
    assert np.array_equal(kept.facts.allocatable, fresh.facts.allocatable)
    shapes = len(fresh.shape_columns.requests)
    assert np.array_equal(kept.shape_columns.requests[:shapes], fresh.shape_columns.requests)
    ours, theirs = kept.group_columns, fresh.group_columns
    assert ours.keys == theirs.keys
    assert all(mine is other for mine, other in zip(ours.records, theirs.records, strict=True))
    for name, column in vars(theirs).items():
        if isinstance(column, np.ndarray):
            assert np.array_equal(getattr(ours, name), column), name
    rows = np.arange(len(theirs))
    assert [ours.rows_of(row) for row in rows.tolist()] == [theirs.rows_of(row) for row in rows.tolist()]
    assert ours.members(rows) == theirs.members(rows)
    for of in (is_ready, inqueue):
        assert np.array_equal(ours.derived(of), theirs.derived(of))
    for summed, by in itertools.product(_SUMMED, By):
        assert np.array_equal(ours.sums(summed, by), theirs.sums(summed, by)), (summed, by)
    for name in ("groups", "queues", "waiting"):
        assert getattr(kept, name) == getattr(fresh, name)
    for name in ("job_keys", "shapes", "label_sets", "namespaces", "schedulers"):
        assert list(getattr(kept, name)) == list(getattr(fresh, name))


def _look(maker: SnapshotMaker) -> Snapshot:
    """A snapshot, with all that follows from it made."""
    snapshot = maker.snapshot()
    columns = snapshot.group_columns
    assert len(columns.derived(is_ready)) == len(columns.derived(inqueue)) == len(columns)
    for summed, by in itertools.product(_SUMMED, By):
        columns.sums(summed, by)
    assert snapshot.usage.shape[1] == len(snapshot.facts)
    return snapshot


@pytest.mark.parametrize("batch", range(4))
def test_snapshots_of_random_histories(batch: int) -> None:
    for seed in _CLUSTERS[batch::4]:
        history = History(seed)
        maker = SnapshotMaker(history.state)
        _look(maker)
        for _ in range(_CHANGES):
            history.change()
            if history.random.random() < 0.4:
                history.cycle()
            if history.random.random() < 0.3:
                maker.snapshot()  # nobody asks what follows from it, as of one that a plan is verified against
            _assert_same(_look(maker), SnapshotMaker(history.state).snapshot())


def test_groups_queues_and_classes_come_and_go() -> None:
    world = World(node("n", cpu=8), queue("q"), gang("b", 2, queue="q"), gang("d", 1, queue="lost"))
    maker = SnapshotMaker(world.state)
    _look(maker)

    def check(*keys: str) -> None:
        kept = _look(maker)
        _assert_same(kept, SnapshotMaker(world.state).snapshot())
        assert kept.group_columns.keys == [f"default/{key}" for key in keys]

    world.put(gang("a", 3, queue="q"), gang("c", 1, queue="q"))
    check("a", "b", "c")
    world.put(queue("lost"))
    check("a", "b", "c", "d")
    world.remove("PodGroup", "default/b", "default/d")
    world.put(gang("e", 2, queue="q"))
    check("a", "c", "e")
    world.put(group("b", queue="q"))  # its pods were there all the time
    check("a", "b", "c", "e")
    assert maker.snapshot().group_columns.counts[1].sum() == 2
    world.put(priority_class("high", 7, default=True))
    check("a", "b", "c", "e")
    world.put(pod("x", group="a", cpu=1000))
    world.remove("Pod", "default/c-0")
    check("a", "b", "c", "e")
    world.put(node("large", cpu=2000))
    check("a", "b", "c", "e")
    world.remove("Queue", "q")
    check()


def _policy(setting: str, text: str) -> ev.PolicyLoaded:
    return ev.PolicyLoaded("p", "actions: allocate", {setting: text})


NODE, OTHER = node("n", cpu=4, labels={"zone": "a"}), node("other", cpu=16, labels={"zone": "b"})


@pytest.mark.parametrize(
    ("nodes", "change"),
    [
        ([NODE], lambda w: w.happen(_policy("default-queue", "q"))),
        ([NODE], lambda w: w.happen(_policy("scheduler-name", "other"))),
        ([NODE, OTHER], lambda w: w.happen(_policy("node-selector", "zone:a"))),
        ([NODE], lambda w: w.put(queue("q", capability={"nvidia.com/gpu": 8}))),
        ([NODE], lambda w: w.put(node("n", cpu=4, gpu=1))),
        ([NODE], lambda w: w.put(queue("a"))),
        ([NODE], lambda w: w.happen(ev.ForeignBound("default/a-0", "u", "n", until=60 * 10**9))),
        ([NODE], lambda w: w.put(priority_class("high", 7))),
        ([NODE], lambda w: w.remove("PriorityClass", "high")),
        ([NODE], lambda w: w.put(node("n", cpu=16))),
        ([NODE], lambda w: w.put(node("m", cpu=1, memory=64))),
        ([NODE], lambda w: w.remove("Node", "n")),
        ([NODE], lambda w: w.put(node("a", cpu=1))),
        ([NODE], lambda w: w.put(pod("late", on="not there", group="a"))),
        ([], lambda w: w.put(NODE)),
        ([], lambda w: w.put(queue("q", capability={"nvidia.com/gpu": 8}))),
    ],
    ids=[
        *("default queue", "names of schedulers", "selector of nodes", "resources of a queue", "resources of a node"),
        *("queues", "namespaces held back", "a class", "no class"),
        *("a larger node", "a node of another form", "no node", "a node before", "a pod"),
        *("the first node", "resources without nodes"),
    ],
)
def test_groups_are_judged_anew_when_what_all_depend_on_changes(
    nodes: list[Manifest], change: Callable[[World], None]
) -> None:
    """The columns of groups and tasks follow from this, too, though no group is another one."""
    large = gang("large", 2, queue="q", cpu=8, minimum={"cpu": 16, "gpu": 2}, group_spec={"priorityClassName": "high"})
    wide = gang("wide", 1, queue="q", cpu=1, memory=48)
    runs = gang("runs", 1, queue="q", cpu=1, on=["n"])
    world = World(*nodes, runs, queue("q"), priority_class("high", 3), gang("a", 2, queue="", cpu=1), large, wide)
    maker = SnapshotMaker(world.state)
    _look(maker)
    change(world)
    _assert_same(_look(maker), SnapshotMaker(world.state).snapshot())


def test_many_groups_come_and_go_at_once() -> None:
    count = 2500
    world = World(node("n", cpu=8), queue("q"), *(gang(f"{number:04}", 1, queue="q") for number in range(1, count, 2)))
    maker = SnapshotMaker(world.state)
    _look(maker)
    world.put(*(gang(f"{number:04}", 1, queue="q") for number in range(0, count, 2)))
    _assert_same(_look(maker), SnapshotMaker(world.state).snapshot())
    world.remove("PodGroup", *(f"default/{number:04}" for number in range(0, count, 3)))
    kept = _look(maker)
    _assert_same(kept, SnapshotMaker(world.state).snapshot())
    assert len(kept.group_columns) == count - len(range(0, count, 3))


def test_a_snapshot_in_use_does_not_change() -> None:
    world = World(node("n", cpu=8), queue("q"), gang("a", 2, queue="q"))
    maker = SnapshotMaker(world.state)
    before = _look(maker)
    then = before.group_columns.counts.copy(), before.usage.copy(), list(before.group_columns.keys)
    world.put(gang("b", 2, queue="q"))
    world.cycle()
    _look(maker)
    assert np.array_equal(before.group_columns.counts, then[0])
    assert np.array_equal(before.usage, then[1])
    assert before.group_columns.keys == then[2]


def test_changes_are_known_one_by_one_until_there_were_too_many() -> None:
    changes: Changes[int] = Changes(lambda: 10)
    for number in range(5):
        changes.note(number)
    seen = changes.count
    assert changes.since(seen) == []
    changes.note(3)
    changes.note(9)
    assert changes.since(seen) == [9, 3]
    for number in range(100, 1000):
        changes.note(number)
    assert changes.since(seen) is None
    recent = changes.since(changes.count - 5)
    assert recent == [999, 998, 997, 996, 995]

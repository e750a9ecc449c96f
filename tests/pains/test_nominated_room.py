"""Room that evictions freed for somebody is his until he has it, whoever asks first; nobody is evicted again for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from tests.dsl import ONE_TIER, Manifest, gang, node, priority_class, queue
from tests.world import World
from vcd.model import events as ev
from vcd.model.projection_codec import encode_payload

RECLAIMS = [
    "enqueue, allocate, reclaim",
    "enqueue, reclaim, allocate",
    "reclaim, backfill, allocate",
    "preempt, reclaim, allocate, backfill",
    "enqueue, backfill, allocate, reclaim",
    "enqueue, allocate, gangreclaim",
    "gangreclaim, gangpreempt, allocate, backfill",
]
PREEMPTS = [
    "enqueue, allocate, preempt",
    "preempt, allocate",
    "reclaim, preempt, allocate",
    "reclaim, backfill, preempt, allocate",
    "gangreclaim, gangpreempt, allocate",
    "allocate, gangpreempt, reclaim",
]
CLASSES = [priority_class("high", 1000), priority_class("low", 10)]


class Leaving(World):
    """A cluster in which who is evicted takes a few sessions to leave."""

    def __init__(self, *objects: Manifest | Iterable[Manifest], actions: str) -> None:
        super().__init__(CLASSES, *objects, conf=f'actions: "{actions}"{ONE_TIER}')
        self.going: list[str] = []

    def leave(self, key: str) -> None:
        """It begins to leave."""
        self.going.append(key)
        self._change(key, deletion_timestamp="2026-01-01T00:00:00Z")

    def until_placed(self, stay: int) -> None:
        """One session that evicts, ``stay`` more while nobody left yet, and some after all left."""
        self.cycle()
        for _ in range(stay):
            self.cycle()
        self.remove("Pod", *self.going)
        self.going.clear()
        for _ in range(3):
            self.cycle()

    def show(self, name: str, where: str) -> None:
        """The API server shows on a pod where it is nominated to."""
        found = self.state.pod(f"default/{name}")
        assert found is not None
        status = msgspec.structs.replace(found.status, nominated_node_name=where)
        found = msgspec.structs.replace(found, status=status)
        self.happen(ev.ObjectPut("Pod", found.key, "", encode_payload(found)))

    def _change(self, key: str, **meta: Any) -> None:
        found = self.state.pod(key)
        assert found is not None
        found = msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, **meta))
        self.happen(ev.ObjectPut("Pod", key, "", encode_payload(found)))


def job(name: str, size: int, *, rank: str = "", **options: Any) -> list[Manifest]:
    group = {"priorityClassName": rank} if rank else {}
    spec = {"priority": {"high": 1000, "low": 10, "": 0}[rank]}
    return list(gang(name, size, group_spec=group, spec=spec, **options))


def nominated(manifests: list[Manifest], *places: str) -> list[Manifest]:
    for manifest, place in zip(manifests[1:], places, strict=True):
        manifest["status"]["nominatedNodeName"] = place
    return manifests


def reclaiming(actions: str, size: int, *, known: bool, nodes: int = 1) -> Leaving:
    """low holds all of the cluster; stale was nominated there long ago, hi may take it back."""
    cpu, places = 3 // size, [f"n{number % nodes}" for number in range(size)]
    stale = job("stale", size, queue="qa", cpu=cpu)
    return Leaving(
        queue("qa", deserved={"cpu": "2"}),
        queue("qb", deserved={"cpu": "0"}),
        queue("qc", deserved={"cpu": "3"}),
        [node(f"n{number}", cpu=3 // nodes) for number in range(nodes)],
        job("low", size, members=0, queue="qb", on=places, cpu=cpu),
        nominated(stale, *places) if known else stale,
        job("hi", size, queue="qc", cpu=cpu),
        actions=actions,
    )


@pytest.mark.parametrize("stay", [0, 2])
@pytest.mark.parametrize("size, nodes", [(1, 1), (3, 1), (3, 3)])
@pytest.mark.parametrize("actions", RECLAIMS)
def test_an_old_nomination_does_not_take_what_was_made_for_another(
    actions: str, size: int, nodes: int, stay: int
) -> None:
    world = reclaiming(actions, size, known=True, nodes=nodes)
    world.until_placed(stay)
    assert world.placed().keys() == {f"hi-{number}" for number in range(size)}
    assert sorted(world.evicted) == [f"default/low-{number}" for number in range(size)]


@pytest.mark.parametrize("actions", RECLAIMS)
@pytest.mark.parametrize("when", ["before hi's is shown", "after hi's is shown"])
def test_nor_does_one_that_the_api_server_shows_only_later(actions: str, when: str) -> None:
    world = reclaiming(actions, 1, known=False)
    world.cycle()
    shown = ["stale-0", "hi-0"] if when.startswith("before") else ["hi-0", "stale-0"]
    for name in shown:
        world.show(name, "n0")
        world.cycle()
    world.until_placed(1)
    assert world.placed() == {"hi-0": "n0"}
    assert world.evicted == ["default/low-0"]


def test_who_was_nominated_beside_another_stays_so() -> None:
    """Two nominations to one node, of different sessions, for both of which it has room."""
    world = Leaving(
        node("n0", cpu=4),
        job("old", 4, members=0, on=["n0"] * 4, cpu=1),
        job("first", 1, cpu=2, rank="high"),
        actions="allocate, preempt",
    )
    world.cycle()
    world.put(job("second", 1, cpu=2, rank="high", created=9))
    world.until_placed(1)
    assert world.placed() == {"first-0": "n0", "second-0": "n0"}
    assert len(world.evicted) == 4


# --- in every order of actions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stay", [0, 1, 2])
@pytest.mark.parametrize("actions", PREEMPTS)
def test_no_other_queue_takes_what_a_preemption_is_freeing(actions: str, stay: int) -> None:
    """asks is first in everything, and may take what nobody has to give up; hi would have to evict another then."""
    world = Leaving(
        queue("mine", deserved={"cpu": "1"}, reclaimable=False),
        queue("asks", deserved={"cpu": "2"}),
        [node(name, cpu=2) for name in ("n0", "n1")],
        job("low", 2, members=0, queue="mine", on=["n0", "n1"], cpu=2, rank="low"),
        job("hi", 1, queue="mine", cpu=2, rank="high"),
        actions=actions,
    )
    world.cycle()
    world.put(job("asks", 1, queue="asks", cpu=2, rank="high", created=-9))
    world.until_placed(stay)
    assert len(world.evicted) == 1
    assert world.placed("hi").keys() == {"hi-0"}
    assert world.placed("asks") == {}


@pytest.mark.parametrize("stay", [0, 1])
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize(
    "actions",
    [
        "enqueue, backfill, allocate, preempt",
        "backfill, preempt, allocate",
        "preempt, backfill, allocate",
        "backfill, allocate, gangpreempt",
        "enqueue, allocate, backfill, preempt",
    ],
)
def test_no_best_effort_pod_gets_an_evicted_pods_place(actions: str, size: int, stay: int) -> None:
    """The node has a place for each pod that is on it, and no more."""
    world = Leaving(
        node("n0", cpu=size, pods=size),
        job("low", size, members=0, on=["n0"] * size, cpu=1, rank="low"),
        job("small", 2, members=0, rank="high", created=-9),
        job("hi", size, cpu=1, rank="high"),
        actions=actions,
    )
    world.until_placed(stay)
    assert world.placed() == {f"hi-{number}": "n0" for number in range(size)}
    assert sorted(world.evicted) == [f"default/low-{number}" for number in range(size)]


@pytest.mark.parametrize("actions", ["backfill, allocate, preempt", "preempt, backfill, allocate", "reclaim, allocate"])
def test_who_cannot_have_his_room_yet_is_told_so_once(actions: str) -> None:
    """A gang of two, of which the room of one only is there: whichever action asks first, the reasons are the same."""
    world = Leaving(
        node("n0", cpu=2),
        nominated(job("mine", 2, cpu=2), "n0", "n0"),
        actions=actions,
    )
    world.cycle()
    assert world.placed() == {}
    told = [(one.gate, one.reason, one.pods) for one in world.why("mine") if one.gate not in ("gang", "reclaim")]
    assert told == [("queue", "queue has no room within its capability", ("default/mine-1",))]


# --- what is no nomination --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "actions", ["allocate", "enqueue, allocate, backfill", "backfill, allocate", "preempt, allocate"]
)
def test_a_nominated_best_effort_pod_does_not_put_its_job_before_others(actions: str) -> None:
    mine = job("mine", 2, members=1, cpu=2, rank="low")
    mine[2]["spec"]["containers"][0]["resources"] = {}
    mine[2]["status"]["nominatedNodeName"] = "n0"
    world = Leaving(node("n0", cpu=2), mine, job("first", 1, cpu=2, rank="high"), actions=actions)
    world.cycle()
    assert world.placed("first") == {"first-0": "n0"}
    assert "mine-0" not in world.placed()


def test_who_lost_his_room_to_another_nomination_has_no_precedence_for_what_else_there_is() -> None:
    """Two old nominations to n0, which takes one of them; the other's job comes where it belongs."""
    world = Leaving(
        node("n0", cpu=2),
        node("n1", cpu=2),
        nominated(job("a", 1, cpu=2, rank="low"), "n0"),
        nominated(job("b", 1, cpu=2, rank="low"), "n0"),
        job("first", 1, cpu=2, rank="high"),
        actions="allocate",
    )
    world.cycle()
    assert world.placed() == {"a-0": "n0", "first-0": "n1"}


@pytest.mark.parametrize("stay", [1, 3])
@pytest.mark.parametrize("actions", PREEMPTS)
def test_a_nominated_pod_does_not_wait_beside_an_idle_node(actions: str, stay: int) -> None:
    """The evicted pod takes long to end; a later job of lower priority does not get the node that became idle."""
    world = Leaving(
        node("n0", cpu=2),
        job("old", 1, members=0, on=["n0"], cpu=2, rank="low"),
        job("hi", 1, cpu=2, rank="high"),
        actions=actions,
    )
    for _ in range(stay):
        world.cycle()
    world.put(node("n1", cpu=2), *job("new", 1, cpu=2, rank="low"))
    world.cycle()
    assert world.placed() == {"old-0": "n0", "hi-0": "n1"}
    world.until_placed(0)
    assert world.placed() == {"new-0": "n0", "hi-0": "n1"}


# --- a job of higher priority ---------------------------------------------------------------------------------------

URGENT = priority_class("urgent", 100_000)


def urgent(cpu: int = 2, **options: Any) -> list[Manifest]:
    """A job that comes while capacity is being freed for another one, and outranks it."""
    spec = {"priorityClassName": "urgent"}
    return list(gang("urgent", 1, cpu=cpu, group_spec=spec, spec={"priority": 100_000}, created=9, **options))


def freeing(actions: str, *others: Any) -> Leaving:
    """old leaves n0 for hi."""
    world = Leaving(
        URGENT,
        node("n0", cpu=2),
        job("old", 1, members=0, on=["n0"], cpu=2, rank="low"),
        job("hi", 1, cpu=2, rank="high"),
        *others,
        actions=actions,
    )
    world.cycle()
    assert world.evicted == ["default/old-0"]
    return world


@pytest.mark.parametrize("stay", [0, 2])
@pytest.mark.parametrize("actions", [*PREEMPTS[:4], "allocate, gangpreempt, reclaim"])
def test_the_higher_priority_takes_nominated_capacity_first(actions: str, stay: int) -> None:
    """And no pod is evicted twice for it: kube-scheduler gives the capacity to it at once."""
    world = freeing(actions)
    world.put(urgent())
    world.until_placed(stay)
    assert (world.placed(), world.evicted) == ({"urgent-0": "n0"}, ["default/old-0"])
    assert "default/hi-0" not in world.state.nominations()


@pytest.mark.parametrize("actions", PREEMPTS[:4])
def test_the_lower_nominee_may_have_others_evicted_elsewhere(actions: str) -> None:
    world = freeing(actions)
    world.put(node("n1", cpu=2), job("more", 1, members=0, on=["n1"], cpu=2, rank="low"), urgent())
    world.until_placed(2)
    assert world.placed() == {"urgent-0": "n0", "hi-0": "n1"}
    assert world.evicted == ["default/old-0", "default/more-0"]


@pytest.mark.parametrize(
    ("others", "placed"),
    [
        ([urgent(cpu=3)], {"hi-0": "n0"}),
        ([urgent(), node("n1", cpu=2)], {"hi-0": "n0", "urgent-0": "n1"}),
        ([list(gang("equal", 1, cpu=2, group_spec={"priorityClassName": "high"}, created=9))], {"hi-0": "n0"}),
        ([queue("other"), urgent(queue="other")], {"hi-0": "n0"}),
    ],
    ids=["does not fit", "fits elsewhere", "of the same priority", "of another queue"],
)
@pytest.mark.parametrize("actions", PREEMPTS[:2])
def test_a_nomination_holds_against_a_job_that(actions: str, others: list[Any], placed: dict[str, str]) -> None:
    world = freeing(actions)
    world.put(*others)
    world.until_placed(1)
    assert world.placed() == placed


def test_many_equivalent_jobs_of_higher_priority_come_first_one_by_one() -> None:
    world = freeing("allocate, preempt")
    for number in range(3):
        spec = {"priorityClassName": "urgent"}
        world.put(gang(f"u{number}", 1, cpu=1, group_spec=spec, spec={"priority": 100_000}, created=9 + number))
    world.until_placed(1)
    assert world.placed() == {"u0-0": "n0", "u1-0": "n0"}

"""Law: what is found of one of many jobs alike and said of all is what is found of each, were each tried.

``VCD_SEEDS`` asks for more clusters, or for a range, as `tests/sizes.py` says.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterable, Iterator

import pytest

from tests.dsl import ONE_TIER, Manifest, flat, gang, group, node, pod, queue
from tests.laws.answering import Answering
from tests.laws.keeping import keeping_case
from tests.reference.carded import CARD_RESOURCES, carded_case
from tests.reference.clusters import RandomCase, random_case
from tests.reference.crowded import crowded_case
from tests.reference.ganging import gang_case
from tests.reference.machines import machine_case
from tests.reference.rebalancing import rebalance_case
from tests.reference.reclaiming import reclaim_case
from tests.reference.wider import wide_case
from tests.sizes import seeds
from vcd.model import events as ev
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.plugins.capacity_card.card_annotations import QUOTA
from vcd.scheduling.session.views import Job
from vcd.state.records import Settings

_GROUP = "scheduling.k8s.io/group-name"
_CYCLES = 4
_GANGS = """
actions: "gangpreempt, allocate"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: predicates
"""


def _with_room(seed: int) -> RandomCase:
    """A case of cards whose nodes and quotas have room for many of its gangs, most of which have pods all alike."""
    case, rng = carded_case(seed), random.Random(seed)
    for one in case.objects:
        if one["kind"] == "PodGroup" and _waits(case.objects, one) and rng.random() < 0.7:
            first, *others = _pods(case.objects, one)
            for other in others:
                other["spec"] = first["spec"]
                other["metadata"] |= {name: first["metadata"].get(name, {}) for name in ("annotations", "labels")}
        if one["kind"] == "Node":
            listed = one["status"]["allocatable"]
            listed |= {name: str(8 * int(listed[name])) for name in CARD_RESOURCES if name in listed}
            listed |= {"cpu": "64", "memory": "256Gi", "pods": "110"}
            one["status"]["capacity"] = dict(listed)
        marks = one["metadata"].get("annotations") or {}
        if QUOTA in marks:
            marks[QUOTA] = json.dumps({card: 2 * count for card, count in json.loads(marks[QUOTA]).items()})
    return case


CASES: dict[str, Callable[[int], RandomCase]] = {
    "placing": random_case,
    "quotas": wide_case,
    "cards": carded_case,
    "cards with room": _with_room,
    "crowds": crowded_case,
    "gangs": gang_case,
    "numa": machine_case,
    "rebalance": rebalance_case,
    "reclaim": reclaim_case,
    "kept parts": keeping_case,
}


class _TellsApart(Plugin):
    """To it no two jobs are alike: it orders jobs and declares no keys."""

    name = "tells-apart"

    def job_order(self, job: Job) -> int:
        return 0


class _Each(Answering):
    """A world in which each job is tried."""

    observers = (_TellsApart({}),)


def _crowd(seed: int, case: RandomCase) -> list[Manifest]:
    """The case, with many more groups like some of its own: other names, ages and labels, each its own pods."""
    rng = random.Random(seed)
    objects = [copy.deepcopy(one) for one in case.objects]
    waiting = [one for one in objects if one["kind"] == "PodGroup" and _waits(objects, one)]
    for number, one in enumerate(rng.sample(waiting, min(3, len(waiting)))):
        pods = list(_pods(objects, one))
        if rng.random() < 0.4:  # a gang of many that are alike
            one, pods = _larger(rng, one, pods)
        for copied in range(rng.randint(2, 6)):
            objects.extend(_again(rng, one, pods, f"{number}-{copied}"))
    rng.shuffle(objects)
    return objects


def _larger(rng: random.Random, group: Manifest, pods: list[Manifest]) -> tuple[Manifest, list[Manifest]]:
    """A group and its pods, with more pods like its first and another minimum."""
    more = [*pods, *[pods[0]] * rng.randint(2, 5)]
    return {**group, "spec": {**group["spec"], "minMember": rng.randint(1, len(more))}}, more


def _pods(objects: list[Manifest], group: Manifest) -> Iterator[Manifest]:
    meta = group["metadata"]
    for one in objects:
        mine = one["metadata"].get("annotations", {}).get(_GROUP) == meta["name"]
        if one["kind"] == "Pod" and mine and one["metadata"].get("namespace") == meta.get("namespace"):
            yield one


def _waits(objects: list[Manifest], group: Manifest) -> bool:
    pods = list(_pods(objects, group))
    return bool(pods) and not any(one["spec"].get("nodeName") for one in pods)


def _again(rng: random.Random, group: Manifest, pods: list[Manifest], suffix: str) -> Iterator[Manifest]:
    born = f"2026-01-01T00:00:{rng.randint(0, 20):02}Z"
    name = f"{rng.choice('amz')}{group['metadata']['name']}-{suffix}"
    labels = {"app": name} if rng.random() < 0.7 else {}
    yield {**group, "metadata": {**group["metadata"], "name": name, "creationTimestamp": born}}
    for index, one in enumerate(pods):
        meta = copy.deepcopy(one["metadata"])
        meta |= {"name": f"{name}-{index}", "uid": f"{name}-{index}", "creationTimestamp": born}
        meta["annotations"][_GROUP] = name
        meta["labels"] = {**meta.get("labels", {}), **labels}
        yield {**one, "metadata": meta}


@pytest.mark.parametrize("name", CASES)
def test_one_of_many_alike_stands_for_all(name: str) -> None:
    for seed in seeds(3, 60):
        case = CASES[name](seed)
        objects = _crowd(seed, case)
        together, apart = Answering(objects, conf=case.conf), _Each(objects, conf=case.conf)
        # Without turns: of equivalent jobs only the first counts there, so more jobs have their turn with classes.
        bound = Settings(placements=random.Random(seed).choice((1, 4, 9, 50_000)), kinds=0).as_text()
        for world in (together, apart):
            world.happen(ev.PolicyLoaded(world.policy.digest, world.policy.text, bound))
        for cycle in range(_CYCLES):
            mine, each = together.cycle(), apart.cycle()
            assert ev.encode_plan(mine) == ev.encode_plan(each), f"seed {seed}, cycle {cycle}"
            assert apart.session is not None and not apart.session.classes.classes


def test_many_jobs_alike_are_tried_once() -> None:
    jobs = [gang(f"j{number}", 1, cpu=3, queue="default") for number in range(50)]
    world = Answering(node("full", cpu=4), gang("there", 1, cpu=4, on=["full"]), *jobs)
    world.cycle()
    assert world.session is not None
    assert len([job for job in world.session.views.jobs() if job.why]) == 1
    assert {world.reasons(f"j{number}") for number in range(50)} == {world.reasons("j0")}
    assert all(world.why(f"j{number}")[0].pods == (f"default/j{number}-0",) for number in range(50))


def _as_if_each(*objects: Manifest | Iterable[Manifest], conf: str | None = None, placements: int = 100) -> Answering:
    """A world after cycles that decide what they do where each job is tried."""
    manifests = flat(objects)
    together, apart = Answering(manifests, conf=conf), _Each(manifests, conf=conf)
    for world in (together, apart):
        world.happen(ev.PolicyLoaded(world.policy.digest, world.policy.text, Settings(placements=placements).as_text()))
    for cycle in range(_CYCLES):
        mine, each = ev.decode_plan(ev.encode_plan(together.cycle())), ev.decode_plan(ev.encode_plan(apart.cycle()))
        assert mine == each, f"cycle {cycle}"
    return together


def test_each_reason_names_a_pod_of_its_own_group_be_it_the_last_of_many() -> None:
    world = _as_if_each(node("n", cpu=4), *[gang(f"j{number}", 6, cpu=1) for number in range(3)])
    for number in range(3):
        assert world.why(f"j{number}")[0].pods[0] == f"default/j{number}-4"
        assert world.state.groups[f"default/j{number}"].group.status.conditions[0].type == "Unschedulable"


@pytest.mark.parametrize("actions", ["allocate", "enqueue, allocate, backfill", "enqueue, allocate, preempt, reclaim"])
@pytest.mark.parametrize("members", [0, 1])
def test_who_had_no_turn_before_the_bound_was_reached_is_told_nothing(actions: str, members: int) -> None:
    jobs = [gang(f"j{number}", 3, members=members, cpu=1) for number in range(4)]
    _as_if_each(node("n", cpu=4), *jobs, conf=f'actions: "{actions}"\n{ONE_TIER}', placements=1)


def test_where_a_queue_is_closed_the_pods_are_named_that_would_be_tried_first() -> None:
    ages = {"early": range(4), "late": range(4, 0, -1)}
    jobs = [
        [
            group(name, queue="shut"),
            *[pod(f"{name}{at}", group=name, cpu=1, created=age) for at, age in enumerate(born)],
        ]
        for name, born in ages.items()
    ]
    world = _as_if_each(node("n", cpu=4), queue("shut", state="Closed"), *jobs)
    assert world.why("early")[0].pods == ("default/early0", "default/early1", "default/early2")
    assert world.why("late")[0].pods == ("default/late3", "default/late2", "default/late1")


def test_of_pods_that_are_larger_than_any_node_the_first_by_name_is_told_whichever_would_be_tried_first() -> None:
    ages = {"early": range(3), "late": range(3, 0, -1), "later": range(3, 0, -1)}
    jobs = [
        [group(name, members=3), *[pod(f"{name}-{at}x", group=name, cpu=5, created=age) for at, age in enumerate(born)]]
        for name, born in ages.items()
    ]
    world = _as_if_each(node("n", cpu=4), *jobs)
    assert [world.why(name)[0].pods for name in ages] == [(f"default/{name}-0x",) for name in ages]


def test_many_jobs_alike_that_no_node_could_hold_are_tried_once() -> None:
    world = _as_if_each(node("n", cpu=4), *[gang(f"j{number}", 2, cpu=5) for number in range(20)], gang("fits", 1))
    assert world.session is not None
    assert len([job for job in world.session.views.jobs() if job.why]) == 1
    assert len({world.reasons(f"j{number}") for number in range(20)}) == 1


def test_who_was_tried_in_an_earlier_action_is_told_so_though_his_turn_did_not_come_again() -> None:
    jobs = [gang(f"j{number}", 3, members=1, cpu=2) for number in range(3)]
    nodes = [node(name, cpu=3) for name in ("m", "n")]
    world = _as_if_each(*nodes, *jobs, conf=_GANGS, placements=1)
    assert world.why("j2")

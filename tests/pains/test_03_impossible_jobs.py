"""Pain 3: impossible jobs hold quota (volcano #4471, #5006)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import flat, gang, group, node, pod, queue
from tests.laws.answering import Answering

TOO_LARGE = "a pod of the group is larger than any node"


def single(name: str, cpu: int, created: int) -> list[dict[str, Any]]:
    minimum = {"cpu": cpu}
    return flat([gang(name, 1, cpu=cpu, queue="q", phase="Pending", minimum=minimum, created=created)])


def small_cluster() -> list[dict[str, Any]]:
    return [*[node(f"n{i}", cpu=8) for i in range(3)], queue("q", capability={"cpu": "20"})]


@pytest.fixture
def world() -> Answering:
    world = Answering(small_cluster(), single("big-a", 9, 1), single("big-b", 9, 2), single("fits", 8, 3))
    world.rest()
    return world


def test_the_job_that_fits_runs(world: Answering) -> None:
    assert list(world.placed()) == ["fits-0"]


@pytest.mark.parametrize("name", ["big-a", "big-b"])
def test_an_impossible_job_says_that_no_node_is_large_enough(world: Answering, name: str) -> None:
    first = world.why(name)[0]
    assert first.reason == TOO_LARGE
    assert first.detail == {"needs cpu": "9", "largest node cpu": "8"}


@pytest.mark.parametrize("name", ["big-a", "big-b"])
def test_an_impossible_job_is_admitted_so_that_a_node_can_be_added_for_it(world: Answering, name: str) -> None:
    assert world.state.groups[f"default/{name}"].group.status.phase == "Inqueue"


def test_an_impossible_job_runs_once_a_node_is_large_enough(world: Answering) -> None:
    world.put(node("large", cpu=9))
    world.rest()
    assert world.placed("big") == {"big-a-0": "large"}


# --- every account ----------------------------------------------------------------------------------------------------

LIMITED: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "overcommit": ("overcommit", [queue("q")]),
    "proportion": ("proportion", [queue("q", capability={"cpu": "20"})]),
    "capacity": ("capacity", [queue("q", capability={"cpu": "20"})]),
    "hierarchy": (
        "capacity\n    enableHierarchy: true",
        [queue("root"), queue("above", capability={"cpu": "20"}), queue("q", parent="above")],
    ),
    "resourcequota": (
        "resourcequota",
        [
            queue("q"),
            {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": {"name": "quota", "namespace": "default"},
                "status": {"hard": {"cpu": "20"}, "used": {"cpu": "0"}},
            },
        ],
    ),
    "capacity-card": ("capacity-card", [queue("q", capability={"cpu": "20"})]),
}
VOLCANO_JOB = [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "u", "controller": True}]


def limited(plugin: str, *jobs: list[dict[str, Any]]) -> Answering:
    """Three nodes of 8 cpu, of which queue q, namespace or cluster can admit 20 (overcommit: 28.8)."""
    name, furniture = LIMITED[plugin]
    conf = f'actions: "enqueue, allocate, backfill"\ntiers:\n- plugins:\n  - name: gang\n  - name: {name}\n'
    return Answering([node(f"n{i}", cpu=8) for i in range(3)], furniture, *jobs, conf=conf)


def impossible(count: int, phase: str, pods: bool) -> list[list[dict[str, Any]]]:
    """Jobs whose only pod is larger than a node, with pods, or before the Job's controller made them."""
    jobs = []
    for number in range(count):
        job = flat([gang(f"big-{number}", 1, cpu=12, queue="q", phase=phase, minimum={"cpu": 12}, created=number)])
        job[0]["metadata"]["ownerReferences"] = VOLCANO_JOB
        jobs.append(job if pods else job[:1])
    return jobs


def phase_of(world: Answering, name: str) -> str:
    return world.state.groups[f"default/{name}"].group.status.phase


@pytest.mark.parametrize("plugin", sorted(LIMITED))
@pytest.mark.parametrize("phase", ["Pending", "Inqueue"])
@pytest.mark.parametrize("pods", [True, False], ids=["pods", "no pods"])
def test_what_no_node_could_hold_counts_in_no_account(plugin: str, phase: str, pods: bool) -> None:
    """Neither in the session that admits it nor in later ones."""
    world = limited(plugin, *impossible(4, phase, pods), single("fits-a", 8, 10), single("fits-b", 8, 11))
    world.rest()
    assert [phase_of(world, f"big-{number}") for number in range(4)] == ["Inqueue"] * 4
    assert world.placed("fits").keys() == {"fits-a-0", "fits-b-0"}
    for number in range(4):
        assert world.why(f"big-{number}")[0].reason == TOO_LARGE
    newcomer = group("new", queue="q", phase="Pending", minimum={"cpu": 4}, created=20)
    world.put(newcomer)
    world.rest()
    assert phase_of(world, "new") == "Inqueue"


@pytest.mark.parametrize("plugin", sorted(LIMITED.keys() - {"resourcequota"}))
@pytest.mark.parametrize("pods", [True, False], ids=["pods", "no pods"])
def test_it_is_judged_again_and_reserves_once_a_node_could_hold_it(plugin: str, pods: bool) -> None:
    """The larger node is full, so that nothing is placed: what counts is what is reserved."""
    world = limited(plugin, *impossible(4, "Pending", pods))
    world.rest()
    full = gang("full", 1, cpu=1, on=["large"], queue="default", phase="Running")
    world.put(node("large", cpu=12), full, group("new", queue="q", phase="Pending", minimum={"cpu": 4}, created=20))
    world.rest()
    assert phase_of(world, "new") == "Pending"
    assert TOO_LARGE not in world.reasons("big-0")


@pytest.mark.parametrize("plugin", ["overcommit", "proportion", "capacity"])
def test_what_spark_states_for_all_of_its_pods_is_reserved(plugin: str) -> None:
    """minMember 1 with the resources of driver and executors: no pod is that large, and all of it is wanted."""
    spark = group("spark", members=1, queue="q", phase="Pending", minimum={"cpu": 18})
    world = limited(plugin, [spark], [group("new", queue="q", phase="Pending", minimum={"cpu": 12}, created=1)])
    world.rest()
    assert (phase_of(world, "spark"), phase_of(world, "new")) == ("Inqueue", "Pending")


@pytest.mark.parametrize("plugin", ["overcommit", "proportion", "capacity"])
def test_of_a_group_that_runs_pods_that_no_node_could_hold_are_not_reserved(plugin: str) -> None:
    """A driver that runs, and executors that are larger than any node."""
    executors = [pod(f"executor-{i}", group="spark", cpu=9) for i in range(2)]
    spark = group("spark", members=1, queue="q", phase="Running", minimum={"cpu": 19})
    driver = pod("driver", group="spark", cpu=1, on="n0")
    new = group("new", queue="q", phase="Pending", minimum={"cpu": 12}, created=1)
    world = limited(plugin, [spark, driver, *executors], [new])
    world.rest()
    assert phase_of(world, "new") == "Inqueue"

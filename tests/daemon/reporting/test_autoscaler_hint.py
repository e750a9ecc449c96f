"""Autoscalers add nodes for pods that say Unschedulable: only those do that more nodes could help."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import Manifest, flat, gang, group, node, pod, queue, session_after
from tests.plugins.test_capacity_card import card_queue, carded, users
from vcd.daemon.reporting.autoscaler_hint import (
    NOT_SUPPORTED,
    UNSCHEDULABLE,
    WAITING_FOR_PODS,
    WAITING_FOR_QUEUE,
    PodReasons,
)
from vcd.scheduling.session_close import plan_of
from vcd.timetravel.planning import state_of

CONF = """
actions: "{actions}"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: predicates
  - name: nodeorder
{plugins}"""


def conf(*plugins: str, actions: str = "enqueue, allocate, backfill") -> str:
    return CONF.format(actions=actions, plugins="".join(f"  - name: {name}\n" for name in plugins))


def reasons(name: str, *objects: Any, using: str) -> dict[str, str]:
    """The reason of each pending pod of a job after a cycle, by the end of its name."""
    manifests = flat(objects)
    session = session_after(*manifests, conf=using)
    key = f"default/{name}"
    told = [waiting for waiting in plan_of(session).waiting if waiting.group == key and waiting.gate]
    assert told, "the job waits for nothing"
    job = session.job(session.jobs.index(key))
    found = PodReasons(told, job.queue.name, state_of(manifests).queues)
    return {task.name.rpartition("-")[2]: found.of(task.key) for task in job.pending()}


def both(reason: str) -> dict[str, str]:
    return {"0": reason, "1": reason}


SHARING = ["capacity", "proportion"]
PHASES = ["Pending", "Inqueue"]


def asking(
    phase: str, size: int = 2, *, members: int | None = None, minimum: bool = True, **options: Any
) -> list[Manifest]:
    """A job whose group is to be admitted, or was."""
    (name,) = [key for key in options if key in ("cpu", "gpu", "memory")]
    least = {name: options[name] * (size if members is None else members)} if minimum else None
    return list(gang("g", size, members=members, phase=phase, minimum=least, **options))


@pytest.mark.parametrize("plugin", SHARING)
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("resource", ["cpu", "gpu", "memory"])
def test_quota_that_the_queue_states_is_no_matter_of_nodes(resource: str, phase: str, plugin: str) -> None:
    full = queue(
        "q", capability={"nvidia.com/gpu" if resource == "gpu" else resource: "1" if resource != "memory" else "1Gi"}
    )
    found = reasons("g", node("n", gpu=8), full, asking(phase, queue="q", **{resource: 1}), using=conf(plugin))
    assert found == both(WAITING_FOR_QUEUE)


@pytest.mark.parametrize("plugin", SHARING)
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("capability", [{}, {"cpu": "100"}], ids=["none stated", "more than the cluster has"])
def test_a_share_of_a_full_cluster_is(capability: dict[str, str], phase: str, plugin: str) -> None:
    """Default configuration: proportion refuses what the cluster has no room for, and nodes would give it."""
    found = reasons(
        "g",
        node("n", cpu=4),
        queue("q", capability=capability),
        gang("old", 1, on=["n"], cpu=3, queue="q", phase="Running"),
        asking(phase, queue="q", cpu=1, members=2),
        using=conf(plugin),
    )
    assert found == both(UNSCHEDULABLE)


@pytest.mark.parametrize("phase", PHASES)
def test_so_is_overcommit(phase: str) -> None:
    found = reasons("g", node("n", cpu=1), asking(phase, cpu=3), using=conf("overcommit"))
    assert found == both(UNSCHEDULABLE)


def test_and_a_pod_that_no_node_could_hold() -> None:
    for phase in PHASES:
        found = reasons("g", node("n", cpu=1), asking(phase, cpu=3), using=conf())
        assert found == both(UNSCHEDULABLE)


@pytest.mark.parametrize("members, minimum", [(2, 2), (1, 1)])
def test_a_gang_whose_members_find_no_node_is_helped_by_nodes(members: int, minimum: int) -> None:
    """The first has room, the second has none: both wait for a node."""
    found = reasons("g", node("n", cpu=1), asking("Inqueue", cpu=1, members=members), using=conf("capacity"))
    assert set(found.values()) == {UNSCHEDULABLE}


def test_one_whose_other_members_wait_for_quota_is_not() -> None:
    found = reasons(
        "g",
        node("n"),
        queue("q", capability={"cpu": "3"}),
        asking("Inqueue", 5, queue="q", cpu=1, minimum=False),
        using=conf("capacity"),
    )
    assert found == dict.fromkeys("01234", WAITING_FOR_QUEUE)


def test_each_pod_has_its_own_reason() -> None:
    """One asks for a node that is not there, the other for more than its queue has left."""
    objects = [
        node("n"),
        queue("q", capability={"cpu": "4"}),
        group("g", members=1, queue="q"),
        pod("g-0", group="g", cpu=1, spec={"nodeSelector": {"zone": "none"}}),
        pod("g-1", group="g", cpu=5),
    ]
    assert reasons("g", *objects, using=conf("capacity")) == {"0": UNSCHEDULABLE, "1": WAITING_FOR_QUEUE}


@pytest.mark.parametrize("capability, expected", [({"cpu": "1"}, WAITING_FOR_QUEUE), ({}, UNSCHEDULABLE)])
def test_in_a_hierarchy_the_queue_that_refuses_counts(capability: dict[str, str], expected: str) -> None:
    parent, child = queue("parent", parent="root", capability=capability), queue("q", parent="parent")
    using = conf("capacity").replace("name: capacity\n", "name: capacity\n    enableHierarchy: true\n")
    found = reasons(
        "g", node("n", cpu=1), queue("root"), parent, child, asking("Inqueue", queue="q", cpu=1), using=using
    )
    assert found == both(expected)


@pytest.mark.parametrize(
    "card, expected",
    [({"cpu": "1"}, WAITING_FOR_QUEUE), ({}, UNSCHEDULABLE)],
)
def test_of_card_quotas_only_what_the_cluster_has_left_is(card: dict[str, str], expected: str) -> None:
    full = queue("q", capability=card)
    found = reasons(
        "g", node("n", cpu=2), full, asking("Inqueue", queue="q", minimum=False, cpu=2), using=conf("capacity-card")
    )
    assert set(found.values()) == {expected}


@pytest.mark.parametrize("quota, expected", [({"new": 2}, UNSCHEDULABLE), ({"new": 0}, WAITING_FOR_QUEUE)])
def test_a_card_that_no_node_has_is_a_matter_of_nodes_where_the_queue_may_have_it(
    quota: dict[str, int], expected: str
) -> None:
    objects = [card_queue("q", quota), carded("n", "old"), users("g", 2, "new", members=2)]
    assert reasons("g", *objects, using=conf("capacity-card")) == both(expected)


def test_quota_that_pods_still_hold_that_are_being_deleted_is_no_matter_of_nodes() -> None:
    old = [group("old", queue="q"), pod("old-0", group="old", on="n", cpu=2, deleting=True)]
    new = gang("new", 2, queue="q", cpu=1, members=2)
    objects = [node("n", cpu=8), queue("q", capability={"cpu": 3}), old, new]
    assert reasons("new", *objects, using=conf("capacity-card")) == both(WAITING_FOR_QUEUE)


@pytest.mark.parametrize("state", ["Closed", "Closing"])
def test_a_queue_that_is_not_open(state: str) -> None:
    found = reasons("g", node("n"), queue("q", state=state), asking("Inqueue", queue="q", cpu=1), using=conf())
    assert found == both(WAITING_FOR_QUEUE)


def test_a_namespace_without_quota() -> None:
    quota = {
        "kind": "ResourceQuota",
        "metadata": {"name": "r", "namespace": "default"},
        "spec": {"hard": {"requests.cpu": "1"}},
        "status": {"hard": {"requests.cpu": "1"}, "used": {"requests.cpu": "0"}},
    }
    minimum = group("g", members=2, phase="Pending", minResources={"requests.cpu": "2"})
    pods = [pod(f"g-{number}", group="g", cpu=1) for number in range(2)]
    assert reasons("g", node("n"), quota, minimum, *pods, using=conf("resourcequota")) == both(WAITING_FOR_QUEUE)


def test_too_few_pods() -> None:
    found = reasons("g", node("n"), asking("Inqueue", cpu=1, members=3, minimum=False), using=conf())
    assert found == both(WAITING_FOR_PODS)


def test_what_is_not_supported() -> None:
    hard = {"networkTopology": {"mode": "hard"}}
    found = reasons("g", node("n"), asking("Inqueue", cpu=1, group_spec=hard), using=conf())
    assert found == both(NOT_SUPPORTED)

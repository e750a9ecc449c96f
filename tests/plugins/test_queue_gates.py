"""What capacity and proportion have in common: quantities of a queue, its order, the groups and tasks it takes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import Manifest, gang, group, node, planned, queue, session_of
from tests.plugins.opened import conf, job_of, plugin_of, queue_of, task_of
from tests.reasons import told
from vcd.model.reasons import Reason
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.points import Vote
from vcd.scheduling.plugins.capacity import CapacityPlugin
from vcd.scheduling.plugins.proportion import ProportionPlugin
from vcd.scheduling.session.session import Session

EACH = pytest.mark.parametrize("name", ["capacity", "proportion"])
"""The plugins that hold the rule."""
GATES = {"schedulingGates": [{"name": "example.com/wait"}]}


def wants(name: str, cpu: int, *, on: str = "n", running: int = 0, **options: Any) -> list[Manifest]:
    """A group of 1-CPU pods in the queue of its name (unless told otherwise), the first of them running."""
    options = {"queue": name, "members": 0, "cpu": 1, "memory": 0, **options}
    return list(gang(name, cpu, on=[on] * running, **options))


def plugin(session: Session) -> CapacityPlugin | ProportionPlugin:
    return plugin_of(session, CapacityPlugin | ProportionPlugin)  # type: ignore[type-var]


def gauge(session: Session, series: str, name: str, prefix: str = "volcano_queue", **labels: str) -> float:
    """The only value of a series of a queue."""
    wanted = {"queue_name": name, **labels}
    found = [
        entry.value
        for entry in plugin(session).gauges()
        if entry.name == f"{prefix}_{series}" and dict(entry.labels) == wanted
    ]
    assert len(found) == 1
    return found[0]


def cpus(session: Session, series: str, name: str) -> float:
    return gauge(session, f"{series}_milli_cpu", name) / 1000


def first(session: Session, *names: str) -> str:
    return min((queue_of(session, name) for name in names), key=framework_of(session).queue_key).name


def opened(name: str, *objects: Any, flags: str = "") -> Session:
    return session_of(node("n", cpu=8), *objects, conf=conf(name) + flags)


# --- quantities -----------------------------------------------------------------------------------------------------


@EACH
def test_a_queue_has_its_own_guarantee_in_reach_and_not_those_of_others(name: str) -> None:
    guaranteed = queue("q1", guarantee={"resource": {"cpu": "5"}})
    session = opened(name, guaranteed, queue("q2"), wants("q1", 9), wants("q2", 9))
    assert (cpus(session, "real_capacity", "q1"), cpus(session, "real_capacity", "q2")) == (8, 3)


@EACH
def test_the_capability_bounds_the_real_capacity(name: str) -> None:
    session = opened(name, queue("q", capability={"cpu": "3"}), wants("q", 1))
    assert (cpus(session, "capacity", "q"), cpus(session, "real_capacity", "q")) == (3, 3)


@EACH
def test_running_and_pending_pods_are_the_request(name: str) -> None:
    session = opened(name, queue("q", deserved={"cpu": "4"}), wants("q", 5, running=2))
    assert (cpus(session, "allocated", "q"), cpus(session, "request", "q")) == (2, 5)


# --- order ----------------------------------------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize(
    ("priority", "flags", "expected"), [(0, "", "q2"), (5, "", "q1"), (0, "    enableQueueOrder: false\n", "q1")]
)
def test_priority_decides_then_the_smaller_share_then_age(name: str, priority: int, flags: str, expected: str) -> None:
    """8 CPU, deserved 4 and 4: q1 has a share of 3/4, q2 of 1/4."""
    half = {"deserved": {"cpu": "4"}}
    queues = [queue("q1", priority=priority, **half), queue("q2", **half)]
    session = opened(name, *queues, wants("q1", 9, running=3), wants("q2", 9, running=1), flags=flags)
    assert (gauge(session, "share", "q1"), gauge(session, "share", "q2")) == (0.75, 0.25)
    assert first(session, "q1", "q2") == expected


# --- tasks ----------------------------------------------------------------------------------------------------------


@EACH
def test_a_task_that_asks_for_another_resource_is_not_held_back(name: str) -> None:
    objects = [queue("q", capability={"cpu": "1"}), wants("q", 1, running=1)]
    waits = gang("mem", 1, queue="q", memory=1, created=9)
    assert planned(node("n"), *objects, waits, conf=conf(name, actions="allocate")).binds == {"default/mem-0": "n"}


@pytest.mark.parametrize(
    ("name", "flags"),
    [("capacity", ["enabledAllocatable"]), ("proportion", ["enabledAllocatable", "enabledOverused"])],
)
def test_allocatable_off_lets_the_queue_go_beyond(name: str, flags: list[str]) -> None:
    off = conf(name, actions="allocate") + "".join(f"    {flag}: false\n" for flag in flags)
    assert len(planned(node("n"), queue("q", capability={"cpu": "2"}), wants("q", 5), conf=off).binds) == 5


@EACH
@pytest.mark.parametrize("state", ["Closed", "Closing", "Unknown"])
def test_a_queue_that_is_not_open_takes_nothing(name: str, state: str) -> None:
    session = opened(name, queue("q", state=state), wants("q", 1))
    q, task, refusal = queue_of(session, "q"), task_of(session, "q-0"), (f"queue is {state}", {})
    assert told(plugin(session).allocatable(q, task, 1)) == refusal
    assert told(plugin(session).job_enqueueable(job_of(session, "q"))) == refusal
    if name == "capacity":
        assert told(plugin(session).preemptive(q, [task])) == refusal


# --- admission ------------------------------------------------------------------------------------------------------


def new(cpu: int | None, **options: Any) -> Manifest:
    minimum = None if cpu is None else {"cpu": cpu}
    return group("new", queue="q", members=99, phase="Pending", created=9, minimum=minimum, **options)


def vote(name: str, *objects: Any) -> Vote | Reason:
    """The plugin's answer to the group `new` of a queue with a capability of 8 CPU."""
    session = session_of(node("n", cpu=16), queue("q", capability={"cpu": "8"}), *objects, conf=conf(name))
    return plugin(session).job_enqueueable(job_of(session, "new"))


@EACH
@pytest.mark.parametrize(
    ("old", "fits"),
    [
        ({}, 8),
        ({"size": 3, "running": 3, "phase": "Running"}, 5),
        # 5 allocated, 3 of them elastic
        ({"size": 5, "members": 2, "running": 5, "phase": "Running", "minimum": {"cpu": 2}}, 6),
        # minimum 4, 1 of it allocated: 1 + 3
        ({"size": 4, "running": 1, "minimum": {"cpu": 4}}, 4),
        ({"size": 4, "members": 1, "running": 1, "phase": "Running", "minimum": {"cpu": 4}}, 4),
        # no plugin waits for what the gates of others hold
        ({"size": 4, "spec": GATES, "minimum": {"cpu": 4}}, 8),
    ],
    ids=["alone", "running", "elastic", "admitted", "started", "gated"],
)
def test_a_group_is_admitted_within_the_real_capacity(name: str, old: dict[str, Any], fits: int) -> None:
    options = {"queue": "q", "cpu": 1, "minimum": {"cpu": 3}, **old}
    size, running = options.pop("size", 0), options.pop("running", 0)
    objects = list(gang("old", size, on=["n"] * running, **options)) if size else []
    assert vote(name, *objects, new(fits)) is Vote.PERMIT
    assert isinstance(vote(name, *objects, new(fits + 1)), Reason)


@EACH
def test_a_group_without_minimum_is_permitted(name: str) -> None:
    assert vote(name, new(None)) is Vote.PERMIT


@pytest.mark.parametrize(("name", "more"), [("capacity", {"queue": "q"}), ("proportion", {})])
def test_the_refusal_names_all_quantities(name: str, more: dict[str, str]) -> None:
    old = list(gang("old", 3, queue="q", on=["n"] * 3, cpu=1, phase="Running", minimum={"cpu": 3}))
    assert told(vote(name, *old, new(6))) == (
        "queue resource quota insufficient",
        {**more, "asks cpu": "6", "would hold cpu": "9", "capability cpu": "8"},
    )


@EACH
def test_a_group_admitted_in_the_same_cycle_counts(name: str) -> None:
    groups = [
        group(key, queue="q", members=99, phase="Pending", minimum={"cpu": cpu}, created=created)
        for created, (key, cpu) in enumerate([("a", 5), ("b", 4), ("c", 3)])
    ]
    objects = [node("n", cpu=10), queue("q", capability={"cpu": "8"}), *groups]
    phases = planned(*objects, conf=conf(name, actions="enqueue")).phases
    assert [phases[f"default/{key}"] for key in "abc"] == ["Inqueue", "Pending", "Inqueue"]


@EACH
@pytest.mark.parametrize("places", [{"capability": {"pods": "1"}}, {}], ids=["capability", "node"])
def test_the_number_of_pods_is_not_compared_at_admission(name: str, places: dict[str, Any]) -> None:
    waits = group("new", queue="q", phase="Pending", minimum={"pods": 9})
    session = session_of(node("n", pods=1), queue("q", **places), waits, conf=conf(name))
    assert plugin(session).job_enqueueable(job_of(session, "new")) is Vote.PERMIT

"""The ledger of queues counts the same for each queue plugin, through placements, their reversal and admissions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import flat, gang, node, planned, priority_class, queue, session_of
from tests.plugins.opened import conf, job_of, plugin_of, queue_of, task_of
from vcd.model.objects import Queue, QueueSpec
from vcd.model.status import ALLOCATED_STATUSES, TaskStatus
from vcd.scheduling.framework.queueaccounts import QueueAccount
from vcd.scheduling.framework.shares import KeepsShares
from vcd.scheduling.session.queue_view import lineage_of
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement
from vcd.state.records import QueueRecord

FLAT = ["proportion", "capacity", "capacity-card"]
TREE = conf("priority", "gang", "predicates", "capacity").replace(
    "name: capacity", "name: capacity\n    enableHierarchy: true"
)
CONFS = {**{name: conf("priority", "gang", "predicates", name) for name in FLAT}, "tree": TREE}
PHASES = {"admitted": "Inqueue", "new": "Pending"}
HELD = (*ALLOCATED_STATUSES, TaskStatus.PIPELINED)

each_plugin = pytest.mark.parametrize("plugin", CONFS)


def opened(plugin: str) -> Session:
    """Queues a and b below top, each with two running and two pending pods of 1 cpu; in a, groups without pods, of
    which one is admitted."""
    guaranteed: dict[str, Any] = {"guarantee": {"resource": {"cpu": 3}}}
    top = guaranteed if plugin == "tree" else {}
    return session_of(
        [node("n", cpu=16), priority_class("low", 1), priority_class("high", 9)],
        [queue("top", **top), queue("a", parent="top", **guaranteed), queue("b", parent="top")],
        *[gang(name, 4, members=1, queue=name, on=["n", "n"], cpu=1, phase="Running") for name in ("a", "b")],
        *[
            gang(name, 0, phase=phase, queue="a", minimum={"cpu": cpu}, group_spec={"priorityClassName": name})
            for name, phase, cpu in (("low", "Inqueue", 2), ("high", "Pending", 3))
        ],
        conf=CONFS[plugin],
    )


def account(session: Session, name: str) -> QueueAccount:
    found: QueueAccount = plugin_of(session, KeepsShares).ledger.admitting[queue_of(session, name).index]
    return found


def cpus(session: Session) -> dict[str, int]:
    """The cpus that each queue holds, as its account counts them."""
    return {name: account(session, name).allocated[0] // 1000 for name in ("a", "b", "top")}


def counted(session: Session, plugin: str) -> dict[str, int]:
    """The same, counted from the tasks."""
    held = {
        name: sum(task.amounts[0] // 1000 for task in job_of(session, name).tasks() if task.status in HELD)
        for name in ("a", "b")
    }
    return {**held, "top": sum(held.values()) if plugin == "tree" else 0}


@each_plugin
def test_allocated_follows_placements_evictions_and_their_reversal(plugin: str) -> None:
    session = opened(plugin)
    before = cpus(session)
    assert before == counted(session, plugin) == {"a": 2, "b": 2, "top": 4 if plugin == "tree" else 0}
    statement = Statement(session.trial, "test", job_of(session, "a"))
    statement.allocate([task_of(session, "a-2"), task_of(session, "a-3")], [0, 0])
    statement.evict(task_of(session, "b-0"), "for a test")
    assert cpus(session) == counted(session, plugin) == {"a": 4, "b": 1, "top": 5 if plugin == "tree" else 0}
    statement.discard()
    assert cpus(session) == before


@each_plugin
def test_an_unused_guarantee_shrinks_as_its_queue_grows(plugin: str) -> None:
    session = opened(plugin)
    ledger = plugin_of(session, KeepsShares).ledger

    def unused() -> dict[str, int]:
        return {found.name: amounts[0] // 1000 for found, amounts in ledger.guarantees.unused()}

    assert unused() == {"a": 1}
    statement = Statement(session.trial, "test", job_of(session, "a"))
    statement.allocate([task_of(session, "a-2")], [0])
    assert unused() == {}
    statement.discard()
    assert unused() == {"a": 1}


@each_plugin
def test_admitted_groups_count_for_their_priority_and_below_and_for_ancestors(plugin: str) -> None:
    session = opened(plugin)
    found = plugin_of(session, KeepsShares)
    assert account(session, "a").inqueue.total()[0] == 2000
    found.job_enqueued(job_of(session, "high"))
    for name in ("a", "top") if plugin == "tree" else ("a",):
        inqueue = account(session, name).inqueue
        assert [inqueue.ahead(priority)[0] for priority in (1, 5, 9, 10)] == [5000, 3000, 3000, 0]
        assert inqueue.total()[0] == 5000
    assert account(session, "b").inqueue.total()[0] == 0


@pytest.mark.parametrize(
    ("parents", "lineage"),
    [
        ({"q": "p", "p": "", "root": ""}, ("q", "p", "root")),
        ({"q": "p", "p": ""}, ("q", "p")),
        ({"q": "missing", "root": ""}, ("q",)),
        ({"q": "p", "p": "q"}, ("q", "p")),
        ({"q": "", "root": "p", "p": ""}, ("q", "root")),
        ({"p": ""}, ()),
    ],
    ids=["a tree", "no root", "a missing parent", "a cycle", "a root that names a parent", "no such queue"],
)
def test_a_lineage_ends_at_the_root_at_a_missing_parent_and_before_a_repetition(
    parents: dict[str, str], lineage: tuple[str, ...]
) -> None:
    queues = {name: QueueRecord.of(Queue(spec=QueueSpec(parent=parent))) for name, parent in parents.items()}
    assert lineage_of(queues, "q") == lineage


@pytest.mark.parametrize("plugin", ["capacity", "proportion"])
def test_admitted_groups_count_before_overcommit_lets_a_queue_reclaim(plugin: str) -> None:
    """A queue deserves 4 cpu and has admitted a group of 4; another queue borrows all nodes."""
    overcommit = "- plugins:\n  - name: overcommit\n    arguments:\n      overcommit-factor: 1.6\n"
    policy = conf("priority", "predicates", plugin, actions="enqueue, allocate, reclaim")
    borrowed = flat(
        gang(f"b{i}", 1, queue="borrower", on=["n"], phase="Running", minimum={"cpu": 1}, cpu=1) for i in range(8)
    )
    groups = flat(gang(name, 4, queue="q", phase=phase, minimum={"cpu": 4}, cpu=1) for name, phase in PHASES.items())
    queues = [queue(name, deserved={"cpu": "4"}) for name in ("q", "borrower")]
    plan = planned(node("n", cpu=8), queues, borrowed, groups, conf=policy.replace("tiers:\n", f"tiers:\n{overcommit}"))
    assert plan.phases["default/new"] == "Pending"

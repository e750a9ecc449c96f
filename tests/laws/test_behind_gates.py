"""Whose doing it is when something raises: nobody knows of ours, which are asked directly, until the session is decided
again with all plugins behind gates. So it has to decide the same there, and what raises has to raise again."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest

from tests.dsl import NOW_NS, flat, gang, node
from tests.laws.contention import conf_of, objects_of
from tests.laws.test_declared import CYCLES
from tests.reasons import because
from tests.sizes import seeds
from vcd.model import events as ev
from vcd.model.manifests import default_queues
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import decide
from vcd.scheduling.framework import guard, registry
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.framework.victims import Allowance
from vcd.scheduling.search.parts import Predicate, Reads, Score
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.planning import state_of

CONF = "actions: enqueue, allocate, preempt, backfill\ntiers:\n- plugins:\n  - name: gang\n"
WITH = CONF + "  - name: failing\n"


def plan_of(policy: Policy, objects: list[dict[str, Any]]) -> ev.Plan:
    made = list(flat(objects))
    return decide(SnapshotMaker(state_of([*default_queues(made), *made])).snapshot(), policy, NOW_NS, 0)


def plan_behind_gates(policy: Policy, objects: list[dict[str, Any]]) -> ev.Plan:
    real = guard.Guard
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "Guard", lambda watch, **how: real(watch, **{**how, "everyone": True}))
        return plan_of(policy, objects)


@pytest.mark.parametrize("number", range(len(CYCLES)))
def test_every_plugin_decides_the_same_behind_a_gate(number: int) -> None:
    policy, objects = CYCLES[number]
    assert plan_behind_gates(policy, objects) == plan_of(policy, objects)


@pytest.mark.parametrize("seed", seeds(30, 60))
def test_full_clusters_are_decided_the_same_behind_gates(seed: int) -> None:
    rng = random.Random(seed)
    policy, objects = read_policy(conf_of(rng)), list(flat(objects_of(rng)))
    assert plan_behind_gates(policy, objects) == plan_of(policy, objects)


# --- who is to blame --------------------------------------------------------------------------------------------------


def fails(*_: Any) -> Any:
    raise RuntimeError("no")


class _Predicate(Predicate):
    name = "failing"
    reason = because("failing")
    reads = Reads.USAGE

    def mask(self, task: Any, usage: Any) -> Any:
        return fails()


class _Score(Score):
    name = "failing"
    raw = fails


class _Allowance(Allowance):
    spend = fails

    def permits(self, task: Any) -> bool:
        return True


FAILING: dict[str, Callable[..., Any]] = {
    "__init__": fails,
    "open": fails,
    "close": fails,
    "job_order": fails,
    "allocatable": fails,
    "on_allocate": fails,
    "on_deallocate": fails,
    "predicates": lambda self: [_Predicate()],
    "node_order": lambda self: [_Score()],
    "preemptable": lambda self, asker, tasks: _Allowance(),
}


def ours(monkeypatch: pytest.MonkeyPatch, **members: Any) -> None:
    """Have a plugin of vcd's named failing, with these members."""
    kind = type("Failing", (Plugin,), {"name": "failing", "__module__": "vcd.failing", **members})
    known = {**registry.plugins(), "failing": kind}
    monkeypatch.setattr(registry, "plugins", lambda: MappingProxyType(known))


def cluster() -> list[dict[str, Any]]:
    """A node that is full, with a job of two of which one may go, one with room for one pod, and two that wait."""
    old = gang("old", 2, members=1, on=["n", "n"], cpu=2)
    return list(flat([node("n", cpu=4), node("m", cpu=2), old, gang("new", 1, cpu=2), gang("later", 1, cpu=2)]))


FORBIDDING = {"allocatable": "bind", "predicates": "bind", "preemptable": "evict"}
"""Where the failing plugin can forbid an operation, and then does (tests/laws/test_failing_plugins.py)."""


@pytest.mark.parametrize("member", FAILING)
def test_one_of_ours_that_raises_is_named(monkeypatch: pytest.MonkeyPatch, member: str) -> None:
    ours(monkeypatch)
    policy = read_policy(WITH)
    ours(monkeypatch, **{member: FAILING[member]})
    plan = plan_of(policy, cluster())
    assert plan.faults == ("failing: RuntimeError('no')",)
    if member in FORBIDDING:
        verbs = {operation.verb for statement in plan.statements for operation in statement.operations}
        assert FORBIDDING[member] not in verbs
    else:
        assert plan.statements == plan_of(read_policy(CONF), cluster()).statements


def test_what_raises_once_and_not_again_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be found by nobody, were the second attempt's plan taken."""
    calls: list[None] = []

    def once(self: Any, tasks: Any, rows: Any) -> None:
        calls.append(None)
        if len(calls) == 1:
            fails()

    ours(monkeypatch)
    policy = read_policy(WITH)
    ours(monkeypatch, on_allocate=once)
    with pytest.raises(RuntimeError, match="no"):
        plan_of(policy, cluster())

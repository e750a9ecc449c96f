"""pdb: what disruption budgets leave of the victims."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dsl import NOW, Manifest, flat, gang, group, node, planned, pod, priority_class, session_of
from tests.plugins.opened import conf, job_of, let_go, plugin_of, task_of, tasks_of
from tests.sizes import examples
from vcd.scheduling.framework.declared_reasons import all_told
from vcd.scheduling.plugins.pdb import PdbPlugin
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement

CONF = conf("pdb")
POINTS = ("preemptable", "reclaimable", "unified_evictable")
WEB = {"matchLabels": {"app": "web"}}


def budget(
    name: str,
    allowed: int,
    selector: Manifest | None = WEB,
    *,
    disrupted: tuple[str, ...] = (),
    namespace: str = "default",
) -> Manifest:
    """A budget that allows so many disruptions now."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {} if selector is None else {"selector": selector},
        "status": {"disruptionsAllowed": allowed, "disruptedPods": dict.fromkeys(disrupted, "2026-11-21T07:59:59Z")},
    }


def web(name: str, labels: dict[str, str] | None = None, **options: Any) -> Manifest:
    """A running pod of app web."""
    return pod(name, group="g", on="n", labels={"app": "web"} if labels is None else labels, cpu=1, **options)


def opened(*objects: Manifest) -> Session:
    return session_of(node("n"), group("g"), group("want"), pod("p", group="want", cpu=1), *objects, conf=CONF)


def victims(session: Session, *names: str, point: str = "preemptable") -> list[str]:
    return let_go(plugin_of(session, PdbPlugin), point, task_of(session, "p"), tasks_of(session, *names))


# --- what a budget covers -------------------------------------------------------------------------------------------


def select(key: str, operator: str, *values: str) -> Manifest:
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": [*values]} if values else {})}]}


FRONT = budget("front", 0, {"matchLabels": {"tier": "front"}})
BOTH = web("a", {"app": "web", "tier": "front"})
DB, BATCH, BARE = web("b", {"app": "db"}), web("b", {"app": "batch"}), web("b", {})


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(
    ("budgets", "pods", "gone"),
    [
        pytest.param([], [web("b"), web("a")], "ba", id="no budget"),
        pytest.param([budget("web", 2)], [web("c"), web("a"), web("b")], "ca", id="the first that are asked for"),
        pytest.param([budget("web", 0)], [web("a")], "", id="none"),
        pytest.param([budget("web", -1)], [web("a")], "", id="a negative number"),
        pytest.param([budget("web", 0)], [web("a"), BATCH], "b", id="other labels"),
        pytest.param([budget("web", 0)], [web("a"), BARE], "b", id="no labels"),
        pytest.param([budget("web", 0, namespace="other"), budget("web", 1)], [web("a")], "a", id="namespaces"),
        pytest.param([budget("all", 0, None)], [web("a")], "a", id="no selector"),
        pytest.param([budget("all", 0, {})], [web("a")], "a", id="an empty selector"),
        pytest.param([budget("all", 0, {"matchLabels": {}})], [web("a")], "a", id="no labels to match"),
        pytest.param([budget("b", 1, select("app", "In", "web", "db"))], [web("a"), DB], "a", id="an expression"),
        pytest.param([budget("b", 0, select("app", "DoesNotExist"))], [BARE, web("a")], "a", id="absent labels"),
        pytest.param([FRONT, budget("web", 1)], [BOTH], "", id="all budgets of a pod must allow it"),
        pytest.param([FRONT, budget("web", 1)], [BOTH, web("b")], "b", id="a pod that stays takes nothing"),
        pytest.param([budget("web", 1, disrupted=("a",))], [web("a"), web("b"), web("c")], "ab", id="counted already"),
    ],
)
def test_pods_may_be_evicted_as_far_as_the_budgets_that_cover_them_allow(
    point: str, budgets: list[Manifest], pods: list[Manifest], gone: str
) -> None:
    names = [pod["metadata"]["name"] for pod in pods]
    assert victims(opened(*budgets, *pods), *names, point=point) == list(gone)


def test_each_question_begins_anew() -> None:
    session = opened(budget("web", 1), web("a"), web("b"))
    assert victims(session, "a", "b") == victims(session, "a", "b") == ["a"]


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        (
            {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["w"]}]},
            "its selector cannot be read; mend spec.selector",
        ),
        ({}, "its selector is empty; state the labels of its pods in spec.selector"),
        (None, "its selector is empty; state the labels of its pods in spec.selector"),
    ],
)
def test_a_budget_that_selects_no_pod_is_reported(selector: Manifest | None, why: str) -> None:
    session = opened(budget("odd", 0, selector), web("a"))
    assert victims(session, "a") == victims(session, "a", point="reclaimable") == ["a"]
    told = [(waits.plugin, waits.reason) for waits in all_told(job_of(session, "want").why)]
    assert told == [("pdb", f"PodDisruptionBudget default/odd protects nothing: {why}")]


# --- what is spent --------------------------------------------------------------------------------------------------


def test_evictions_of_the_session_are_spent() -> None:
    session = opened(budget("web", 1), web("a"), web("b"))
    statement = Statement(session.trial, "preempt", job_of(session, "want"))
    statement.evict(task_of(session, "a"), "test")
    assert victims(session, "b") == []


def test_an_eviction_taken_back_is_not_spent() -> None:
    session = opened(budget("web", 1), web("a"), web("b"))
    statement = Statement(session.trial, "preempt", job_of(session, "want"))
    statement.evict(task_of(session, "a"), "test")
    statement.discard()
    statement.evict(task_of(session, "b"), "test")
    statement.discard()
    assert victims(session, "a", "b") == ["a"]


def test_placements_spend_nothing() -> None:
    session = opened(budget("web", 1), web("a"), pod("q", group="want", labels={"app": "web"}, cpu=1))
    statement = Statement(session.trial, "allocate", job_of(session, "want"))
    statement.allocate([task_of(session, "q")], [0])
    assert victims(session, "a") == ["a"]
    statement.discard()
    assert victims(session, "a") == ["a"]


def leaving(name: str, since: int, grace: int | None = None) -> Manifest:
    """A pod whose deletion was asked for some seconds ago."""
    spec = {} if grace is None else {"terminationGracePeriodSeconds": grace}
    manifest = web(name, spec=spec)
    until = NOW + datetime.timedelta(seconds=(30 if grace is None else grace) - since)
    manifest["metadata"]["deletionTimestamp"] = until.isoformat().replace("+00:00", "Z")
    return manifest


@pytest.mark.parametrize(
    ("since", "grace", "left"),
    [
        pytest.param(9, None, [], id="just now"),
        pytest.param(10, None, ["b"], id="settled"),
        pytest.param(9, 300, [], id="just now, with a long grace period"),
        pytest.param(10, 300, ["b"], id="settled, with a long grace period"),
    ],
)
def test_pods_that_began_to_leave_just_now_are_spent(since: int, grace: int | None, left: list[str]) -> None:
    """The budget's status may not know of them yet."""
    assert victims(opened(budget("web", 1), leaving("a", since, grace), web("b")), "b") == left


@pytest.mark.parametrize(("since", "grace", "left"), [(9, 1, []), (10, 1, ["b"]), (9, 600, []), (10, 600, ["b"])])
def test_who_deletes_a_pod_may_choose_its_grace_period(since: int, grace: int, left: list[str]) -> None:
    """As ``kubectl delete --grace-period`` does: the API server says which it was."""
    manifest = leaving("a", since - grace + 30)
    manifest["metadata"]["deletionGracePeriodSeconds"] = grace
    assert victims(opened(budget("web", 1), manifest, web("b")), "b") == left


def test_a_leaving_pod_that_the_status_has_counted_is_not_spent_twice() -> None:
    assert victims(opened(budget("web", 1, disrupted=("a",)), leaving("a", 1), web("b")), "b") == ["b"]


# --- in a cycle -----------------------------------------------------------------------------------------------------

PREEMPT = """\
actions: "allocate, preempt"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: pdb
  - name: predicates
"""


def contended(*budgets: Manifest) -> list[Manifest]:
    low = {"labels": {"app": "web"}, "spec": {"priority": 10, "priorityClassName": "low"}}
    high = {"spec": {"priority": 100, "priorityClassName": "high"}}
    return flat(
        [
            node("n", cpu=4),
            priority_class("low", 10),
            priority_class("high", 100),
            gang("run", 4, members=1, on=["n"] * 4, cpu=1, group_spec={"priorityClassName": "low"}, **low),
            gang("new", 3, members=1, cpu=1, group_spec={"priorityClassName": "high"}, **high),
            *budgets,
        ]
    )


@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_no_more_are_evicted_than_the_budget_allows_although_another_tier_decides(allowed: int) -> None:
    result = planned(*contended(budget("web", allowed)), conf=PREEMPT)
    assert len(result.evictions) == min(allowed, 1)


def test_the_budget_is_shared_by_all_preemptors_of_a_cycle() -> None:
    objects = contended(budget("web", 1))
    more = gang("also", 1, cpu=1, group_spec={"priorityClassName": "high"}, spec={"priority": 100})
    assert len(planned(*objects, more, conf=PREEMPT).evictions) == 1


def test_it_reads_budgets() -> None:
    assert (PdbPlugin.kinds, PdbPlugin.protects, PdbPlugin.timed) == (("PodDisruptionBudget",), True, True)


# --- held to plain loops --------------------------------------------------------------------------------------------

labels = st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"), max_size=2)
drawn_budget = st.tuples(labels, st.integers(0, 3), st.sampled_from(["default", "other"]), st.sets(st.integers(0, 7)))


@settings(max_examples=examples(60), deadline=None)
@given(
    budgets=st.lists(drawn_budget, max_size=4),
    pods=st.lists(labels, min_size=1, max_size=8),
    evicted=st.sets(st.integers(0, 7), max_size=3),
)
def test_it_is_the_specification(budgets: list[Any], pods: list[dict[str, str]], evicted: set[int]) -> None:
    manifests = [
        budget(f"b{number}", allowed, {"matchLabels": need}, namespace=where, disrupted=tuple(f"p{i}" for i in known))
        for number, (need, allowed, where, known) in enumerate(budgets)
    ]
    session = opened(*manifests, *(web(f"p{i}", marks) for i, marks in enumerate(pods)))
    gone = [i for i in sorted(evicted) if i < len(pods)]
    statement = Statement(session.trial, "preempt", job_of(session, "want"))
    for i in gone:
        statement.evict(task_of(session, f"p{i}"), "test")
    rest = [i for i in range(len(pods)) if i not in gone]
    left = [allowed for _, allowed, _, _ in budgets]

    def taken(i: int) -> list[int]:
        return [
            number
            for number, (need, _, where, known) in enumerate(budgets)
            if where == "default" and need and need.items() <= pods[i].items() and i not in known
        ]

    for i in gone:
        for number in taken(i):
            left[number] -= 1
    expected = []
    for i in rest:
        if all(left[number] > 0 for number in taken(i)):
            expected.append(f"p{i}")
            for number in taken(i):
                left[number] -= 1
    assert victims(session, *(f"p{i}" for i in rest)) == expected

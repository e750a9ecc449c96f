"""What is computed once of nodes is kept under all that it depends on: two questions never share an answer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.dsl import node
from tests.world import World
from vcd.model.selectors import NodeSelectorRequirement, NodeSelectorTerm, Toleration
from vcd.state.node_facts import NodeFacts

NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "NoExecute"


def facts() -> NodeFacts:
    taints = [{"key": "a", "effect": NO_SCHEDULE}, {"key": "b", "effect": NO_EXECUTE}]
    world = World(
        node("n1", labels={"rank": "1", "age": "30"}, taints=taints),
        node("n2", labels={"rank": "2", "age": "20"}, taints=taints[:1]),
        node("n3", labels={"rank": "3", "age": "ten"}),
        node("n4"),
    )
    return world.maker.snapshot().facts


def _term(key: str, operator: str, *values: str) -> NodeSelectorTerm:
    return NodeSelectorTerm((NodeSelectorRequirement(key, operator, values),))


Ask = Callable[[NodeFacts], list[object]]
A = Toleration(key="a", operator="Exists")
QUESTIONS: dict[str, tuple[Ask, list[object]]] = {
    "rank above 1": (lambda f: f.matches_term(_term("rank", "Gt", "1")).tolist(), [False, True, True, False]),
    "age above 25": (lambda f: f.matches_term(_term("age", "Gt", "25")).tolist(), [True, False, False, False]),
    "rank below 2": (lambda f: f.matches_term(_term("rank", "Lt", "2")).tolist(), [True, False, False, False]),
    "rank in": (lambda f: f.matches_term(_term("rank", "In", "1", "3")).tolist(), [True, False, True, False]),
    "rank not in": (lambda f: f.matches_term(_term("rank", "NotIn", "1", "3")).tolist(), [False, True, False, True]),
    "rank between": (lambda f: f.matches_term(_term("rank", "In", "15")).tolist(), [False] * 4),
    "has a rank": (lambda f: f.matches_term(_term("rank", "Exists")).tolist(), [True, True, True, False]),
    "has no rank": (lambda f: f.matches_term(_term("rank", "DoesNotExist")).tolist(), [False, False, False, True]),
    "labels": (lambda f: f.matches_labels({"rank": "2", "age": "20"}).tolist(), [False, True, False, False]),
    "no such labels": (lambda f: f.matches_labels({"none": "1"}).tolist(), [False] * 4),
    "no such label": (lambda f: f.matches_term(_term("none", "In", "1")).tolist(), [False] * 4),
    "taints": (lambda f: f.untolerated((), (NO_SCHEDULE, NO_EXECUTE)).tolist(), [2, 1, 0, 0]),
    "taints of one effect": (lambda f: f.untolerated((), (NO_EXECUTE,)).tolist(), [1, 0, 0, 0]),
    "tolerated taints": (lambda f: f.untolerated((A,), (NO_SCHEDULE, NO_EXECUTE)).tolist(), [1, 0, 0, 0]),
    "ties of no seed": (lambda f: f.ties(0).tolist(), [0, 1, 2, 3]),
}


@pytest.mark.parametrize("last", QUESTIONS)
def test_an_answer_does_not_depend_on_what_was_asked_before(last: str) -> None:
    asked = facts()
    for ask, _ in QUESTIONS.values():
        ask(asked)
    ask, answer = QUESTIONS[last]
    assert ask(asked) == ask(facts()) == answer


@pytest.mark.parametrize(("wanted", "examined"), [({}, 1), ({"rank": "2"}, 2), ({"rank": "7"}, 1)], ids=str)
def test_a_selector_costs_no_more_than_the_labels_of_nodes(
    monkeypatch: pytest.MonkeyPatch, wanted: dict[str, str], examined: int
) -> None:
    asked, keys = facts(), list[str]()
    label = asked.label
    monkeypatch.setattr(asked, "label", lambda key: keys.append(key) or label(key))  # type: ignore[func-returns-value]
    assert not asked.matches_labels({**wanted, **{f"none-{number}": "1" for number in range(5000)}}).any()
    assert len(keys) == examined


def test_each_seed_orders_nodes_in_its_own_way() -> None:
    asked = facts()
    orders = {tuple(asked.ties(seed).tolist()) for seed in range(1, 30)}
    assert len(orders) > 10
    assert all(sorted(order) == list(range(4)) for order in orders)
    assert np.array_equal(asked.ties(7), facts().ties(7))

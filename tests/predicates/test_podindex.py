"""The index of placed pods."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given

from tests.dsl import Manifest, gang, node, pod, session_of
from tests.predicates.random_pods import (
    SEEDS,
    Twins,
    following,
    random_affinity,
    random_keys,
    random_selector,
    tasks_of,
)
from tests.reference.labels import label_selector
from tests.reference.model import meta
from vcd.model.selectors import EVERYTHING, NOTHING, LabelSelector
from vcd.scheduling.search.domain_counts import Sums, domains_of
from vcd.scheduling.search.podindex import PodQuery, Scope, index_of
from vcd.scheduling.search.podterms import OpposingTerms
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement

HERE = Scope(("default",))
WEB = LabelSelector.compile(LabelSelector({"app": "web"}))
NODES = [node("n1", labels={"zone": "a"}), node("n2", labels={"zone": "a"}), node("n3")]


def counted(session: Session, terminating: bool = True) -> list[int]:
    """Pods labelled web per node."""
    found: list[int] = index_of(session).count(WEB, HERE, terminating).tolist()
    return found


def web(name: str, **more: object) -> Manifest:
    return pod(name, labels={"app": "web"}, **more)  # type: ignore[arg-type]


@given(SEEDS)
def test_counts_equal_plain_loops_after_any_placements_and_reverses(seed: int) -> None:
    twins = Twins.of(seed, random_affinity)
    index, random = index_of(twins.session), Random(seed)
    asked = []
    for _ in range(15):
        twins.step()
        if random.random() < 0.4:
            names = tuple(random.sample(("one", "two", "three"), random.randint(1, 3)))
            asked.append((random_selector(random), Scope(names), random.random() < 0.5))
        for manifest, scope, terminating in asked:
            typed = LabelSelector.compile(manifest)
            expected = [
                sum(
                    label_selector(manifest).matches(other.labels)
                    and other.namespace in scope.names
                    and (terminating or not meta(other.pod).get("deletionTimestamp"))
                    for other in place.pods()
                )
                for place in twins.nodes()
            ]
            assert index.count(typed, scope, terminating).tolist() == expected


@given(SEEDS)
def test_terms_of_placed_pods_equal_a_fresh_count_after_any_steps(seed: int) -> None:
    twins = Twins.of(seed, lambda random: random_affinity(random) | {"x": random_keys(random)})
    index = index_of(twins.session)
    early = index.counts_of(OpposingTerms)
    for _ in range(15):
        twins.step()
    fresh = OpposingTerms(index)
    terms = {term for each in twins.tasks.values() for term in early.placed.things_of(each.pod)}
    for term in terms:
        assert _counts(early.sums(term)) == _counts(fresh.sums(term))


def _counts(sums: Sums | None) -> list[int]:
    return sums.counts().tolist() if sums is not None and sums.total else []


def test_a_session_has_one_index() -> None:
    session = session_of(*NODES)
    assert index_of(session) is index_of(session)


def test_counts_placed_pods_per_node() -> None:
    assert counted(session_of(*NODES, web("a", on="n1"), web("b", on="n1"), web("c", on="n3"), web("d"))) == [2, 0, 1]


def test_ended_pods_are_not_placed() -> None:
    assert counted(session_of(*NODES, web("a", on="n1", phase="Succeeded"), web("b", on="n1", phase="Failed"))) == [
        0, 0, 0,
    ]  # fmt: skip


def test_pods_on_nodes_that_are_not_there_are_nowhere() -> None:
    assert counted(session_of(*NODES, web("a", on="gone"))) == [0, 0, 0]


@pytest.mark.parametrize(("terminating", "expected"), [(True, [2, 0, 0]), (False, [1, 0, 0])])
def test_pods_being_deleted_count_as_asked(terminating: bool, expected: list[int]) -> None:
    assert counted(session_of(*NODES, web("a", on="n1", deleting=True), web("b", on="n1")), terminating) == expected


def test_a_lost_pod_being_deleted_is_terminating() -> None:
    assert counted(session_of(*NODES, web("a", on="n1", phase="Unknown", deleting=True)), terminating=False) == [
        0,
        0,
        0,
    ]


def test_pipelined_and_allocated_tasks_count_until_taken_back() -> None:
    session = session_of(*NODES, *gang("g", 2, labels={"app": "web"}))
    index, tasks = index_of(session), tasks_of(session)
    session.trial.hooks = following(index)
    statement = Statement(session.trial, "test", tasks["default/g-0"].job)
    statement.allocate([tasks["default/g-0"]], [0])
    statement.pipeline([tasks["default/g-1"]], [2])
    assert counted(session) == [1, 0, 1]
    statement.discard()
    assert counted(session) == [0, 0, 0]


def test_evicted_tasks_do_not_count_until_the_eviction_is_taken_back() -> None:
    session = session_of(*NODES, web("a", on="n1"))
    index, task = index_of(session), tasks_of(session)["default/a"]
    session.trial.hooks = following(index)
    statement = Statement(session.trial, "test", task.job)
    statement.evict(task, "test")
    assert counted(session) == [0, 0, 0]
    statement.discard()
    assert counted(session) == [1, 0, 0]


def test_domains_add_their_nodes_up() -> None:
    session = session_of(*NODES, web("a", on="n1"), web("b", on="n2"), web("c", on="n3"))
    sums = index_of(session).tally(PodQuery(WEB, (HERE,))).by_domain(domains_of(session.nodes.facts, "zone"))
    assert (sums.counts().tolist(), sums.total) == ([2, 0], 2)


def test_scopes_must_all_hold_a_namespace() -> None:
    session = session_of(*NODES, web("a", on="n1"), web("b", on="n2", namespace="other"))
    tally = index_of(session).tally(PodQuery(WEB, (HERE, Scope(("default", "other")))))
    assert tally.by_node().tolist() == [1, 0, 0]


def test_unknown_namespaces_have_their_name_as_a_label() -> None:
    named = LabelSelector.compile(LabelSelector({"kubernetes.io/metadata.name": "default"}))
    session = session_of(*NODES, web("a", on="n1"), web("b", on="n2", namespace="other"))
    assert index_of(session).count(WEB, Scope((), named)).tolist() == [1, 0, 0]


def test_everything_and_nothing() -> None:
    session = session_of(*NODES, web("a", on="n1"), pod("b", on="n1"))
    index = index_of(session)
    assert [index.count(selector, HERE).tolist() for selector in (EVERYTHING, NOTHING)] == [[2, 0, 0], [0, 0, 0]]


def test_selectors_that_many_label_sets_match_follow_placements() -> None:
    many = [pod(f"p{i}", on="n1" if i else "", labels={"app": "web", "i": str(i)}) for i in range(1100)]
    session = session_of(*NODES, *many)
    assert counted(session) == [1099, 0, 0]
    index_of(session).move([tasks_of(session)["default/p0"]], [1], 1)
    assert counted(session) == [1099, 1, 0]


def test_nothing_is_computed_before_it_is_asked_for() -> None:
    session = session_of(*NODES, web("a", on="n1"))
    index = index_of(session)
    index.move([tasks_of(session)["default/a"]], [0], 1)
    assert not {"placed_rows", "_rows_by_labels", "_label_sets", "_terminating"} & set(vars(index))


@pytest.mark.parametrize("size", [10, 500])
def test_sums_count_alike_as_dict_and_as_array(size: int) -> None:
    random = Random(size)
    sums, expected = Sums(size), np.zeros(size + 1, np.int64)
    for _ in range(2000):
        number, times = random.randrange(-1, size), random.choice((1, 1, -1))
        sums.add(number, times)
        if number >= 0:
            expected[number] += times
    assert sums.counts().tolist() == expected.tolist()
    assert sums.positive().tolist() == (expected > 0).tolist()
    assert sums.total == expected.sum()


def test_sums_take_many_at_once() -> None:
    sums = Sums(100)
    sums.add(3, 1)
    sums.add_all(np.array([*range(100), -1, 3]))
    assert (sums.total, sums.counts()[3], sums.counts()[-1]) == (102, 3, 0)
    sums.add_all(np.arange(100))
    assert (sums.total, sums.counts()[3], sums.counts()[4]) == (202, 4, 2)

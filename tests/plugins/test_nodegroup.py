"""nodegroup: rules of queues for groups of nodes, their inheritance, limits, points."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dsl import gang, node, planned, queue, session_of
from tests.plugins.opened import task_of
from tests.predicates.asking import pending
from tests.reasons import by_words
from tests.sizes import examples
from tests.world import World
from vcd.model.status import TaskStatus
from vcd.scheduling import decide
from vcd.scheduling.framework.demand import demand_of
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement

Manifest = dict[str, Any]

GROUP = "volcano.sh/nodegroup-name"
LIMITS = "volcano.sh/nodegroup-resource-limits"


def conf(*, flags: str = "", **arguments: Any) -> str:
    lines = ["actions: allocate", "tiers:", "- plugins:", "  - name: gang", "  - name: nodegroup"]
    lines += [f"    {flag}" for flag in flags.split(", ") if flag]
    if arguments:
        lines += ["    arguments:", *(f"      {key}: {value}" for key, value in arguments.items())]
    return "\n".join(lines) + "\n"


HIERARCHY = conf(flags="enableHierarchy: true")


def of_group(name: str, group: str | None = None, **room: Any) -> Manifest:
    return node(name, labels={} if group is None else {GROUP: group}, **room)


def affinity(
    required: Iterable[str] = (),
    preferred: Iterable[str] = (),
    anti_required: Iterable[str] = (),
    anti_preferred: Iterable[str] = (),
) -> Manifest:
    def terms(hard: Iterable[str], soft: Iterable[str]) -> Manifest:
        return {
            "requiredDuringSchedulingIgnoredDuringExecution": list(hard),
            "preferredDuringSchedulingIgnoredDuringExecution": list(soft),
        }

    return {
        "nodeGroupAffinity": terms(required, preferred),
        "nodeGroupAntiAffinity": terms(anti_required, anti_preferred),
    }


def limited(name: str, limits: str, **rules: Any) -> Manifest:
    made = queue(name, affinity=affinity(**rules))
    made["metadata"]["annotations"] = {LIMITS: limits}
    return made


def of_queue(name: str, group: str | None = None, **options: Any) -> list[Manifest]:
    """A group with one pod, both named as their queue unless said otherwise."""
    return list(gang(group or name, 1, queue=name, **{"cpu": 1, **options}))


FOUR = [of_group("a", "A"), of_group("b", "B"), of_group("c", "C"), of_group("none")]


def allowed(session: Session, task: str) -> set[str]:
    """The nodes that may take a task, by all predicates of the session and by its refusals."""
    asked = pending(session, task)
    if framework_of(session).pre_predicate(asked) is not None:
        return set()
    names = session.nodes.facts.names
    return {names[row] for row in np.flatnonzero(framework_of(session).candidates(asked).passing())}


def rated(session: Session, task: str) -> dict[str, float]:
    """The points of the nodes that have some."""
    asked, names = pending(session, task), session.nodes.facts.names
    total = np.zeros(len(names))
    for score in framework_of(session).evaluator.scores:
        if score.weight and score.applies(asked):
            total += score.raw(asked, session.nodes.usage)
    return {name: float(value) for name, value in zip(names, total, strict=True) if value}


def nodes_of(*queues: Manifest, configuration: str = conf()) -> dict[str, set[str]]:
    """The nodes that each queue's pods may go to."""
    names = [made["metadata"]["name"] for made in queues]
    session = session_of(*FOUR, *queues, *[of_queue(name) for name in names], conf=configuration)
    return {name: allowed(session, f"{name}-0") for name in names}


# --- rules ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"required": ["A"]}, {"a"}),
        ({"preferred": ["A", "B"]}, {"a", "b"}),
        ({"required": ["A"], "preferred": ["B"]}, {"a", "b"}),
        ({"anti_required": ["A"]}, set()),
        ({"anti_preferred": ["A"]}, {"a"}),
        ({"required": ["A", "B"], "anti_required": ["A"]}, {"b"}),
        ({"preferred": ["A", "B"], "anti_required": ["A"]}, {"b"}),
        ({"anti_required": ["A"], "anti_preferred": ["A"]}, {"a"}),
        ({"required": ["B"], "anti_preferred": ["A"]}, {"a", "b"}),
        ({"required": ["no such group"]}, set()),
    ],
)
def test_the_last_rule_that_names_a_group_decides(rules: Manifest, expected: set[str]) -> None:
    assert nodes_of(queue("q", affinity=affinity(**rules))) == {"q": expected}


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"required": ["A"]}, {"a": 100}),
        ({"preferred": ["A"]}, {"a": 50}),
        ({"required": ["A"], "preferred": ["A", "B"]}, {"a": 150, "b": 50}),
        ({"required": ["A"], "preferred": ["A"], "anti_preferred": ["A"]}, {"a": -1}),
        ({"required": ["A"], "anti_required": ["A"], "preferred": ["B"]}, {"a": 100, "b": 50}),
    ],
)
def test_points_are_100_and_50_and_minus_one(rules: Manifest, expected: dict[str, float]) -> None:
    session = session_of(*FOUR, queue("q", affinity=affinity(**rules)), of_queue("q"), conf=conf())
    assert rated(session, "q-0") == expected


def test_the_example_of_the_specification() -> None:
    nodes = [of_group("gpu", "gpu-pool"), of_group("large", "high-memory-pool"), of_group("cpu", "cpu-only-pool")]
    rules = affinity(["gpu-pool"], ["high-memory-pool"], ["cpu-only-pool"])
    session = session_of(*nodes, queue("gpu-queue", affinity=rules), of_queue("gpu-queue"), conf=conf())
    assert allowed(session, "gpu-queue-0") == {"gpu", "large"}
    assert rated(session, "gpu-queue-0") == {"gpu": 100, "large": 50}


def test_an_empty_label_is_a_group() -> None:
    session = session_of(
        of_group("n", ""), of_group("m"), queue("q", affinity=affinity([""])), of_queue("q"), conf=conf()
    )
    assert allowed(session, "q-0") == {"n"}


def test_rules_of_one_kind_alone_may_be_given() -> None:
    only = queue("q", affinity={"nodeGroupAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ["A"]}})
    assert nodes_of(only) == {"q": {"a"}}


def test_pods_of_one_shape_follow_the_rules_of_their_own_queues() -> None:
    groups = ["A", "B", "C", "D", "E", "F"]
    nodes = [of_group(f"n-{group}", group) for group in groups]
    queues = [queue(f"q-{group}", affinity=affinity([group])) for group in groups]
    jobs = [of_queue(f"q-{group}") for group in groups]
    result = planned(*nodes, *queues, *jobs, conf=conf())
    assert result.binds == {f"default/q-{group}-0": f"n-{group}" for group in groups}


@pytest.mark.parametrize("off", ["enablePredicate", "enableNodeOrder"])
def test_tables_stay_apart_with_one_point_off(off: str) -> None:
    nodes = [of_group("a", "A"), of_group("b", "B")]
    queues = [queue("qa", affinity=affinity(["A"])), queue("qb", affinity=affinity(["B"]))]
    result = planned(*nodes, *queues, of_queue("qa"), of_queue("qb"), conf=conf(flags=f"{off}: false"))
    assert result.binds == {"default/qa-0": "a", "default/qb-0": "b"}


def test_nodes_are_preferred_by_their_points() -> None:
    nodes = [of_group("a", "A"), of_group("b", "B"), of_group("c", "C")]
    rules = queue("q", affinity=affinity(["B"], ["A"], anti_preferred=["C"]))
    result = planned(*nodes, rules, gang("q", 3, queue="q", cpu=8), conf=conf())
    assert result.binds == dict(zip(["default/q-0", "default/q-1", "default/q-2"], ["b", "a", "c"], strict=True))


def test_tables_kept_from_the_cycle_before_follow_changed_rules() -> None:
    world = World(*FOUR, queue("q", affinity=affinity(["A"])), of_queue("q", "first"), conf=conf())
    world.cycle()
    world.put(queue("q", affinity=affinity(["B"])), of_queue("q", "second"))
    world.cycle()
    assert world.placed() == {"first-0": "a", "second-0": "b"}


# --- strict -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strict", "rules", "expected"),
    [
        ("true", None, set()),
        ("false", None, {"none"}),
        ("false", affinity(), {"none"}),
        ("true", affinity(["A"]), {"a"}),
        ("false", affinity(["A"]), {"a"}),
    ],
)
def test_nodes_without_group_are_for_queues_without_rules_where_strict_is_off(
    strict: str, rules: Manifest | None, expected: set[str]
) -> None:
    assert nodes_of(queue("q", affinity=rules), configuration=conf(strict=strict)) == {"q": expected}


def test_strict_is_on_unless_switched_off() -> None:
    assert nodes_of(queue("q")) == {"q": set()}


def test_without_groups_and_rules_and_strict_nothing_is_tested() -> None:
    session = session_of(node("n"), queue("q"), of_queue("q"), conf=conf(strict="false"))
    task = pending(session, "q-0")
    assert not any(part.applies(task) for part in framework_of(session).evaluator.parts)
    assert allowed(session, "q-0") == {"n"}


# --- order of preference ----------------------------------------------------------------------------------------------


def test_preferred_groups_count_by_their_place_where_that_is_on() -> None:
    """50 x (3 - i) / 3."""
    rules = queue("q", affinity=affinity(["A"], ["C", "A", "B"]))
    session = session_of(*FOUR, rules, of_queue("q"), conf=conf(enablePreferredOrder="true"))
    assert rated(session, "q-0") == pytest.approx({"c": 50, "a": 100 + 100 / 3, "b": 50 / 3})


def test_of_a_group_listed_twice_the_last_place_counts() -> None:
    """Two groups, so that place 2 is worth 50 x (2 - 2) / 2."""
    rules = queue("q", affinity=affinity([], ["A", "B", "A"]))
    session = session_of(*FOUR, rules, of_queue("q"), conf=conf(enablePreferredOrder="true"))
    assert rated(session, "q-0") == {"b": 25}


# --- hierarchy --------------------------------------------------------------------------------------------------------


TREE = (
    queue("root", affinity=affinity(["A"])),
    queue("team-1", parent="root"),
    queue("team-2", parent="root", affinity=affinity(["B"])),
    queue("project-x", parent="team-1", affinity=affinity(["C"])),
    queue("project-y", parent="team-1"),
)


def test_queues_inherit_from_the_nearest_ancestor() -> None:
    """The picture of Volcano's description."""
    assert nodes_of(*TREE, configuration=HIERARCHY) == {
        "root": {"a"},
        "team-1": {"a"},
        "team-2": {"b"},
        "project-x": {"c"},
        "project-y": {"a"},
    }


def test_nothing_is_inherited_unless_switched_on() -> None:
    assert nodes_of(*TREE)["project-y"] == set()


def test_points_are_inherited_too() -> None:
    session = session_of(*FOUR, *TREE, of_queue("project-y"), conf=HIERARCHY)
    assert rated(session, "project-y-0") == {"a": 100}


def test_a_queue_without_parent_is_under_root() -> None:
    assert nodes_of(queue("root", affinity=affinity(["B"])), queue("q"), configuration=HIERARCHY)["q"] == {"b"}


def test_the_nearest_ancestor_wins() -> None:
    queues = (queue("root", affinity=affinity(["A"])), queue("mid", affinity=affinity(["B"])), queue("q", parent="mid"))
    assert nodes_of(*queues, configuration=HIERARCHY)["q"] == {"b"}


def test_an_affinity_of_its_own_that_names_nothing_is_not_replaced() -> None:
    queues = (queue("root", affinity=affinity(["A"])), queue("q", affinity={}))
    assert nodes_of(*queues, configuration=HIERARCHY)["q"] == set()


def test_a_missing_parent_leaves_a_queue_without_rules_and_is_named() -> None:
    result = planned(*FOUR, queue("q", parent="gone"), of_queue("q"), conf=HIERARCHY)
    why = next(reason for reason in result.why["default/q"] if reason.get("plugin") == "nodegroup")
    assert why["reason"] == "node group affinity not specified"
    assert why["detail"]["inheritance"] == "queue q has the parent gone, which does not exist"
    assert "strict: false" in why["detail"]["mend"]


def test_a_parent_that_was_set_aside_is_not_called_missing() -> None:
    bad = queue("gone", capability={"cpu": "-1"})
    result = planned(*FOUR, bad, queue("q", parent="gone"), of_queue("q"), conf=HIERARCHY)
    why = next(reason for reason in result.why["default/q"] if reason.get("plugin") == "nodegroup")
    assert why["detail"]["inheritance"] == "queue q has the parent gone, which cannot be used"


def test_a_circle_of_parents_ends() -> None:
    queues = (queue("p", parent="q"), queue("q", parent="p"))
    result = planned(*FOUR, *queues, of_queue("q"), conf=HIERARCHY)
    why = next(reason for reason in result.why["default/q"] if reason.get("plugin") == "nodegroup")
    assert why["detail"]["inheritance"] == "queue p is below itself: its parent q is one of its descendants"


def test_a_queue_with_rules_beside_a_broken_parent_is_not_touched() -> None:
    assert nodes_of(queue("q", parent="gone", affinity=affinity(["A"])), configuration=HIERARCHY) == {"q": {"a"}}


# --- reasons ----------------------------------------------------------------------------------------------------------


def reasons(*objects: Any, task: str, configuration: str = conf()) -> dict[str, int]:
    session = session_of(*objects, conf=configuration)
    return by_words(framework_of(session).candidates(pending(session, task)).reasons())


def test_each_node_gives_its_reason() -> None:
    found = reasons(*FOUR, queue("q", affinity=affinity(["X"])), of_queue("q"), task="q-0")
    assert found == {"node group label not found": 1, "node does not satisfy the node group affinity": 3}


def test_groups_are_closed_to_queues_without_rules() -> None:
    found = reasons(*FOUR[:3], queue("q"), of_queue("q"), task="q-0", configuration=conf(strict="false"))
    assert found == {"node group affinity not specified": 3}


def test_evicting_pods_would_not_help() -> None:
    session = session_of(*FOUR, queue("q", affinity=affinity(["A"])), of_queue("q"), conf=conf())
    assert framework_of(session).candidates(pending(session, "q-0")).resolvable().tolist() == [
        True,
        False,
        False,
        False,
    ]


# --- limits -----------------------------------------------------------------------------------------------------------


AB = {"required": ["A", "B"], "preferred": ["A"]}


def test_a_queue_overflows_into_the_next_group_at_its_limit() -> None:
    """3 cpu of A at most: the fourth pod goes to B."""
    q = limited("q", '{"A": {"cpu": "3", "memory": "200Gi"}}', **AB)
    result = planned(*FOUR, q, gang("g", 4, queue="q", cpu=1), conf=conf())
    assert sorted(result.binds.values()) == ["a", "a", "a", "b"]


def test_a_pod_that_reaches_the_limit_exactly_fits() -> None:
    session = session_of(*FOUR, limited("q", '{"A": {"cpu": 2}}', required=["A"]), of_queue("q", cpu=2), conf=conf())
    assert allowed(session, "q-0") == {"a"}


@pytest.mark.parametrize(
    ("limits", "asks", "fits"),
    [
        ('{"A": {"memory": "1Gi"}}', {"cpu": 8, "memory": "1Gi"}, True),
        ('{"A": {"memory": "1Gi"}}', {"memory": "1025Mi"}, False),
        ('{"A": {"nvidia.com/gpu": "1"}}', {"gpu": 2}, False),
        ('{"A": {"pods": "0"}}', {}, False),
        ('{"A": {"cpu": "0"}}', {"memory": "1Gi", "cpu": 0}, True),
        ('{"A": {"example.com/unknown": "0", "count/pods": "0"}}', {}, True),
        ('{"A": null, "Z": {"cpu": "0"}}', {}, True),
        ("null", {}, True),
        ("", {}, True),
    ],
)
def test_only_the_listed_resources_are_limited(limits: str, asks: Manifest, fits: bool) -> None:
    room = of_group("a", "A", gpu=4)
    session = session_of(room, limited("q", limits, required=["A"]), of_queue("q", **asks), conf=conf())
    assert allowed(session, "q-0") == ({"a"} if fits else set())


def test_what_the_queue_holds_of_the_group_counts() -> None:
    objects = [
        *[of_group("a", "A"), of_group("a2", "A"), of_group("b", "B")],
        *[limited("q", '{"A": {"cpu": "5"}}', **AB), queue("other", affinity=affinity(["A"]))],
        *gang("running", 2, queue="q", on=["a", "a2"], cpu=2, phase="Running"),
        *gang("elsewhere", 1, queue="q", on=["b"], cpu=4, phase="Running"),
        *gang("foreign", 1, queue="other", on=["a"], cpu=4, phase="Running"),
        *gang("leaving", 1, queue="q", on=["a2"], cpu=3, deleting=True, phase="Running"),
    ]
    one = session_of(*objects, of_queue("q", "p", cpu=1), conf=conf())
    assert allowed(one, "p-0") == {"a", "a2", "b"}
    two = session_of(*objects, of_queue("q", "p", cpu=2), conf=conf())
    assert allowed(two, "p-0") == {"b"}


def test_a_limit_is_for_all_nodes_of_the_group() -> None:
    nodes = [of_group("a1", "A"), of_group("a2", "A")]
    q = limited("q", '{"A": {"cpu": "10"}}', required=["A"])
    result = planned(*nodes, q, gang("g", 3, members=1, queue="q", cpu=4), conf=conf())
    assert len(result.binds) == 2


def test_each_queue_has_its_own_limit() -> None:
    queues = [limited("p", '{"A": {"cpu": "1"}}', required=["A"]), limited("q", '{"A": {"cpu": "2"}}', required=["A"])]
    jobs = [gang(name, 4, members=1, queue=name, cpu=1) for name in ("p", "q")]
    result = planned(of_group("a", "A"), *queues, *jobs, conf=conf())
    assert sorted(key.partition("/")[2][0] for key in result.binds) == ["p", "q", "q"]


def test_trials_and_evictions_are_counted_and_taken_back() -> None:
    q = limited("q", '{"A": {"cpu": "4"}}', required=["A"])
    running = gang("r", 1, queue="q", on=["a"], cpu=2, phase="Running")
    session = session_of(of_group("a", "A"), q, running, gang("g", 2, queue="q", cpu=2), conf=conf())
    first, second, old = (task_of(session, name) for name in ("g-0", "g-1", "r-0"))
    statement = Statement(session.trial, "allocate", first.job)
    statement.allocate([first], [0])
    assert allowed(session, "g-1") == set()
    point = statement.save()
    statement.evict(old, "test")
    assert allowed(session, "g-1") == {"a"}
    statement.undo(point)
    assert allowed(session, "g-1") == set()
    statement.discard()
    assert allowed(session, "g-1") == {"a"}
    assert second.status == TaskStatus.PENDING


def test_a_pod_that_waits_for_room_counts() -> None:
    q = limited("q", '{"A": {"cpu": "3"}}', required=["A"])
    session = session_of(of_group("a", "A"), q, gang("g", 2, queue="q", cpu=2), conf=conf())
    first = task_of(session, "g-0")
    Statement(session.trial, "allocate", first.job).pipeline([first], [0])
    assert allowed(session, "g-1") == set()


def test_limits_are_not_inherited() -> None:
    parent = limited("parent", '{"A": {"cpu": "0"}}', required=["A"])
    assert nodes_of(parent, queue("child", parent="parent"), configuration=HIERARCHY) == {
        "parent": set(),
        "child": {"a"},
    }


def test_the_limit_is_a_reason_of_its_own() -> None:
    found = reasons(*FOUR, limited("q", '{"A": {"cpu": "0"}}', **AB), of_queue("q", cpu=9), task="q-0")
    assert found["Insufficient cpu"] == 4
    found = reasons(*FOUR, limited("q", '{"A": {"cpu": "0"}}', required=["A"]), of_queue("q"), task="q-0")
    assert found == {
        "node group label not found": 1,
        "node does not satisfy the node group affinity": 2,
        "node group resource limit exceeded": 1,
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "it is no JSON"),
        ("[" * 100_000, "it is no JSON"),
        ('["A"]', "it must be a JSON object"),
        ('{"A": 3}', "A: it must be a JSON object of resources"),
        ('{"A": {"cpu": "three"}}', "A: resource cpu"),
        ('{"A": {"cpu": "-1"}}', "negative"),
        ('{"A": {"cpu": []}}', "A: resource cpu"),
        ('{"A": {"cpu": NaN}}', "NaN"),
    ],
)
def test_limits_that_cannot_be_read_keep_the_queues_pods_waiting(text: str, words: str) -> None:
    objects = [*FOUR, limited("q", text, required=["A"]), queue("other", affinity=affinity(["A"]))]
    result = planned(*objects, of_queue("q"), of_queue("other"), conf=conf())
    assert result.binds == {"default/other-0": "a"}
    why = next(reason for reason in result.why["default/q"] if reason.get("plugin") == "nodegroup")
    assert why["reason"] == "node group resource limit annotation invalid"
    assert words in why["detail"]["error"]
    assert (why["detail"]["queue"], why["detail"]["annotation"]) == ("q", LIMITS)
    assert "Gi" in why["detail"]["mend"]


def test_no_node_passes_while_limits_cannot_be_read() -> None:
    found = reasons(*FOUR, limited("q", "{", required=["A"]), of_queue("q"), task="q-0")
    assert found == {"node group resource limit annotation invalid": 4}


# --- the columns are the rules ----------------------------------------------------------------------------------------

groups = st.sampled_from(["A", "B", "C", None])
names = st.lists(st.sampled_from(["A", "B", "C"]), max_size=2)
rules_of = st.one_of(
    st.none(),
    st.fixed_dictionaries(dict.fromkeys(("required", "preferred", "anti_required", "anti_preferred"), names)),
)
queues_of = st.lists(st.tuples(rules_of, st.sampled_from([None, 0, 1, 2, 3])), min_size=3, max_size=3)


@settings(max_examples=examples(80), deadline=None)
@given(
    labels=st.lists(groups, min_size=1, max_size=5),
    given_=queues_of,
    running=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=4),
    strict=st.booleans(),
    hierarchy=st.booleans(),
    ordered=st.booleans(),
    asks=st.integers(1, 3),
)
def test_the_columns_are_the_rules(
    labels: list[str | None],
    given_: list[tuple[dict[str, list[str]] | None, int | None]],
    running: list[tuple[int, int]],
    strict: bool,
    hierarchy: bool,
    ordered: bool,
    asks: int,
) -> None:
    parents = ["", "q0", "q1"]
    queues = []
    for i, (rules, most) in enumerate(given_):
        made = queue(f"q{i}", parent=parents[i], affinity=None if rules is None else affinity(**rules))
        if most is not None:
            made["metadata"]["annotations"] = {LIMITS: f'{{"A": {{"cpu": {most}}}}}'}
        queues.append(made)
    running = [(q, n) for q, n in running if n < len(labels)]
    old = [gang(f"r{i}", 1, queue=f"q{q}", on=[f"n{n}"], cpu=1, phase="Running") for i, (q, n) in enumerate(running)]
    new = [of_queue(f"q{i}", cpu=asks) for i in range(3)]
    nodes = [of_group(f"n{i}", label, cpu=100) for i, label in enumerate(labels)]
    configuration = conf(
        flags="enableHierarchy: true" if hierarchy else "",
        strict=str(strict).lower(),
        enablePreferredOrder=str(ordered).lower(),
    )
    session = session_of(*nodes, *queues, *old, *new, conf=configuration)
    for i, (_, most) in enumerate(given_):
        rules = naive_rules(given_, i, hierarchy)
        held = sum(q == i and labels[n] == "A" for q, n in running)
        within = most is None or held + asks <= most
        expected = {
            f"n{n}" for n, label in enumerate(labels) if naive_passes(rules, label, strict) and (label != "A" or within)
        }
        assert allowed(session, f"q{i}-0") == expected
        points = {f"n{n}": naive_points(rules, label, ordered) for n, label in enumerate(labels)}
        if len(set(points.values())) > 1:
            assert rated(session, f"q{i}-0") == {name: value for name, value in points.items() if value}


def naive_rules(given_: list[tuple[dict[str, list[str]] | None, int | None]], i: int, hierarchy: bool) -> dict:
    """The rules of a queue, from above where it has none."""
    while given_[i][0] is None and hierarchy and i > 0:
        i -= 1
    return given_[i][0] or {}


def naive_passes(rules: dict[str, list[str]], label: str | None, strict: bool) -> bool:
    """The flow chart of Volcano's description."""
    if label is None:
        return not strict and not any(rules.values())
    passes = label in rules.get("required", []) or label in rules.get("preferred", [])
    if label in rules.get("anti_required", []):
        passes = False
    return passes or label in rules.get("anti_preferred", [])


def naive_points(rules: dict[str, list[str]], label: str | None, ordered: bool) -> float:
    """The score of Volcano's description."""
    points = 0.0
    preferred = rules.get("preferred", [])
    if label in rules.get("required", []):
        points += 100
    if label in preferred:
        place = max(i for i, name in enumerate(preferred) if name == label)
        points += 50 * (len(set(preferred)) - place) / len(set(preferred)) if ordered else 50
    return -1.0 if label in rules.get("anti_preferred", []) else points


# --- demand by queue --------------------------------------------------------------------------------------------------

SHARES = conf() + "  - name: predicates\n  - name: proportion\n"


def test_what_is_remembered_of_pods_of_one_shape_is_by_queue() -> None:
    """The pod that could use the nodes goes between two sessions; the other queue's is of the same shape."""
    world = World(
        of_group("n", "g", cpu=8),
        queue("none", affinity=affinity(required=["no-such"])),
        queue("some", affinity=affinity(required=["g"])),
        gang("full", 8, cpu=1, on=["n"] * 8, queue="some"),
        gang("x", 1, cpu=1, queue="some"),
        gang("y", 1, cpu=1, queue="none"),
        conf=SHARES,
    )
    assert _excluded(world) == {"x": False, "y": True}
    world.remove("Pod", "default/x-0")
    world.remove("PodGroup", "default/x")
    assert _excluded(world) == {"y": True}


def test_what_is_remembered_of_pods_holds_while_the_rules_of_their_queue_stay() -> None:
    """The rules change between two sessions, and nothing else does: no number of the first holds in the second."""
    world = World(
        of_group("n", "g", cpu=8),
        queue("some", affinity=affinity(required=["no-such"])),
        gang("x", 1, cpu=1, queue="some"),
        conf=SHARES,
    )
    assert _excluded(world) == {"x": True}
    world.put(queue("some", affinity=affinity(required=["g"])))
    assert _excluded(world) == {"x": False}


def _excluded(world: World) -> dict[str, bool]:
    session = decide.run(world.maker.snapshot(), world.policy, world.now, 0, world.memory)
    waiting = [job for job in session.all_jobs() if job.pending()]
    return {job.name: demand_of(session).is_excluded(job.pending()[0]) for job in waiting}

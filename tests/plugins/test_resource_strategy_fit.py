"""resource-strategy-fit: strategies by resource, patterns, pods' own, avoidance, proportions."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dsl import gang, group, node, planned, pod, session_of
from tests.predicates.asking import passing, pending, reasons
from tests.sizes import examples
from tests.world import World
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.framework.arguments import ArgumentError, parse_arguments
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.policy import PolicyError
from vcd.scheduling.framework.registry import plugins
from vcd.scheduling.search.factscores import SCALE
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement

Manifest = dict[str, Any]

GPU = "nvidia.com/gpu"
TYPE = "volcano.sh/resource-strategy-scoring-type"
WEIGHT = "volcano.sh/resource-strategy-weight"
MOST = {"type": "MostAllocated"}
LEAST = {"type": "LeastAllocated"}


def conf(flags: dict[str, Any] | None = None, **arguments: Any) -> str:
    plugin = {"name": "resource-strategy-fit", "arguments": arguments, **(flags or {})}
    return yaml.safe_dump({"actions": "allocate", "tiers": [{"plugins": [plugin]}]})


def only(**strategies: Any) -> dict[str, Any]:
    """Arguments with these strategies, and a weight of 1."""
    return {"resourceStrategyFitWeight": 1, "resources": strategies}


def rated(*objects: Any, task: str = "p", **arguments: Any) -> dict[str, float]:
    session = session_of(*objects, conf=conf(**arguments))
    return total(session, task)


def total(session: Session, task: str = "p") -> dict[str, float]:
    """The points of all nodes, to a millionth."""
    asked = pending(session, task)
    points = np.zeros(len(session.nodes))
    for score in framework_of(session).evaluator.scores:
        if score.weight and score.applies(asked):
            points += np.rint(score.raw(asked, session.nodes.usage) * SCALE)
    return dict(zip(session.nodes.facts.names, (points / SCALE).tolist(), strict=True))


# --- strategies -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("strategy", "points"), [(MOST, 50), (LEAST, 50)])
def test_the_example_of_the_specification(strategy: Manifest, points: float) -> None:
    """Capacity 10, used 3, request 2: one half either way."""
    assert rated(node("n", cpu=10), pod("a", on="n", cpu=3), pod("p", cpu=2), **only(cpu=strategy)) == {"n": points}


def test_most_allocated_is_how_full_the_node_would_be() -> None:
    assert rated(node("n", cpu=8), pod("a", on="n", cpu=3), pod("p", cpu=3), **only(cpu=MOST)) == {"n": 75}


def test_least_allocated_is_what_would_be_left() -> None:
    assert rated(node("n", cpu=8), pod("a", on="n", cpu=3), pod("p", cpu=3), **only(cpu=LEAST)) == {"n": 25}


def test_each_resource_counts_by_its_weight() -> None:
    """The specification's configuration: gpu packed (2), cpu and memory spread (1 each), weight 10."""
    resources = {GPU: {**MOST, "weight": 2}, "cpu": {**LEAST, "weight": 1}, "memory": {**LEAST, "weight": 1}}
    objects = [node("n", cpu=8, memory="8Gi", gpu=4), pod("p", cpu=2, memory="4Gi", gpu=1)]
    expected = (2 * 0.25 + 0.75 + 0.5) / 4 * 100 * 10
    assert rated(*objects, resourceStrategyFitWeight=10, resources=resources) == {"n": expected}


def test_only_what_the_pod_asks_for_counts() -> None:
    assert rated(node("n", cpu=8, gpu=4), pod("p", cpu=2), **only(cpu=MOST, **{GPU: MOST})) == {"n": 25}


def test_cpu_and_memory_are_spread_by_default() -> None:
    objects = [node("n", cpu=8, memory="8Gi"), pod("p", cpu=2, memory="4Gi")]
    expected = {"n": (0.75 + 0.5) / 2 * 100 * 10}
    assert rated(*objects) == expected
    assert rated(*objects, resources={}) == expected


@pytest.mark.parametrize(("weight", "factor"), [(1, 1), (3, 3), (-1, 10), (-100, 10)])
def test_the_plugins_weight_multiplies_and_is_ten_where_it_is_negative(weight: int, factor: int) -> None:
    found = rated(node("n", cpu=8), pod("p", cpu=2), resourceStrategyFitWeight=weight, resources={"cpu": MOST})
    assert found == {"n": 25 * factor}


def test_a_plugin_of_weight_zero_rates_nothing() -> None:
    session = session_of(node("n"), pod("p", cpu=1), conf=conf(resourceStrategyFitWeight=0))
    assert framework_of(session).evaluator.scores == ()


@pytest.mark.parametrize("weight", [0, -4])
def test_weights_of_resources_below_one_mean_one(weight: int) -> None:
    strategies = {"cpu": {**MOST, "weight": weight}, "memory": {**MOST, "weight": 3}}
    found = rated(node("n", cpu=8, memory="8Gi"), pod("p", cpu=2, memory="4Gi"), **only(**strategies))
    assert found == {"n": pytest.approx((0.25 + 3 * 0.5) / 4 * 100)}


@pytest.mark.parametrize("strategy", [{}, None])
def test_without_a_type_it_is_least_allocated(strategy: Manifest | None) -> None:
    assert rated(node("n", cpu=8), pod("p", cpu=2), **only(cpu=strategy)) == {"n": 75}


def test_a_resource_that_would_not_fit_makes_it_zero() -> None:
    objects = [node("n", cpu=8, memory="8Gi"), pod("a", on="n", memory="6Gi"), pod("p", cpu=2, memory="4Gi")]
    assert rated(*objects, **only(cpu=MOST, memory=MOST)) == {"n": 0}


def test_a_resource_that_the_node_lacks_adds_nothing_but_its_weight() -> None:
    objects = [node("n", cpu=8), node("m", cpu=8, gpu=4), pod("p", cpu=2, gpu=2)]
    assert rated(*objects, **only(cpu=MOST, **{GPU: MOST})) == {"n": 12.5, "m": 37.5}


def test_pods_that_wait_for_room_do_not_count() -> None:
    session = session_of(node("n", cpu=8), pod("a", cpu=4), pod("p", cpu=2), conf=conf(**only(cpu=MOST)))
    first = pending(session, "a")
    Statement(session.trial, "allocate", first.job).pipeline([first], [0])
    assert total(session) == {"n": 25}


def test_gpus_are_packed_while_cpu_is_spread() -> None:
    nodes = [node(f"n{i}", cpu=16, gpu=8) for i in range(3)]
    running = [pod("g", on="n1", cpu=1, gpu=4), pod("c", on="n2", cpu=8)]
    jobs = [*gang("gpu", 2, cpu=0, gpu=2), *gang("cpu", 1, cpu=8)]
    result = planned(*nodes, *running, *jobs, conf=conf(resources={GPU: MOST, "cpu": LEAST}))
    assert result.binds == {"default/gpu-0": "n1", "default/gpu-1": "n1", "default/cpu-0": "n0"}


def test_the_point_may_be_switched_off() -> None:
    session = session_of(node("n"), pod("p", cpu=1), conf=conf({"enableNodeOrder": False}))
    assert framework_of(session).evaluator.scores == ()


# --- patterns ---------------------------------------------------------------------------------------------------------

VENDOR = "vendor.com/gpu-a100"


def by_pattern(**strategies: Any) -> float:
    """The points of a node whose unit of VENDOR is a quarter of what it has: 25 packed, 75 spread."""
    objects = [node("n", **{VENDOR: 4}), pod("p", requests={VENDOR: "1"})]
    return rated(*objects, **only(**strategies))["n"]


@pytest.mark.parametrize(
    ("strategies", "points"),
    [
        ({"vendor.com/*": MOST}, 25),
        ({"vendor*": MOST}, 25),
        ({"vendor.com/gpu-a100*": MOST}, 25),
        ({"other.com/*": MOST}, 0),
        ({"vendor.com/*": MOST, VENDOR: LEAST}, 75),
        ({VENDOR: LEAST, "vendor.com/gpu-a*": MOST}, 75),
        ({"vendor.com/*": LEAST, "vendor.com/gpu*": MOST}, 25),
        ({"vendor.com/gpu*": MOST, "vendor.com/*": LEAST}, 25),
    ],
)
def test_exact_names_come_before_patterns_and_longer_ones_before_shorter(strategies: Manifest, points: float) -> None:
    assert by_pattern(**strategies) == points


@pytest.mark.parametrize("pattern", ["*", "*/gpu-a100", "vendor.*/gpu-a100", "vendor.com/**", "*.com/*"])
def test_other_patterns_are_ignored(pattern: str) -> None:
    assert by_pattern(**{pattern: MOST}) == 0
    assert by_pattern(**{pattern: MOST, "vendor*": LEAST}) == 75


# --- strategies of pods -----------------------------------------------------------------------------------------------


def own(kind: str | None, weights: str | None) -> dict[str, str]:
    return {key: text for key, text in ((TYPE, kind), (WEIGHT, weights)) if text is not None}


def with_own(kind: str | None, weights: str | None, **arguments: Any) -> float:
    """Half of cpu and a quarter of memory asked for; spread by the configuration unless said otherwise: 62.5."""
    objects = [
        node("n", cpu=8, memory="8Gi"),
        pod("p", cpu=4, memory="2Gi", annotations=own(kind, weights)),
    ]
    return rated(*objects, **{"resourceStrategyFitWeight": 1, **arguments})["n"]


@pytest.mark.parametrize(
    ("kind", "weights", "points"),
    [
        ("MostAllocated", '{"cpu": 2, "memory": 1}', (2 * 0.5 + 0.25) / 3 * 100),
        ("LeastAllocated", '{"cpu": 2, "memory": 1}', (2 * 0.5 + 0.75) / 3 * 100),
        ("MostAllocated", '{"memory": 1}', 25),
        ("MostAllocated", '{"cpu": 0, "memory": 1}', 25),
        ("MostAllocated", '{"nvidia.com/gpu": 1}', 0),
        ("MostAllocated", '{"cpu": null}', 0),
        ("MostAllocated", "{}", 0),
        ("MostAllocated", "null", 0),
        ("MostAllocated", '{"mem*": 1}', 0),
        (None, '{"cpu": 1}', 62.5),
        ("", '{"cpu": 1}', 62.5),
        (None, None, 62.5),
    ],
)
def test_a_pods_annotations_replace_the_configurations_strategies(
    kind: str | None, weights: str | None, points: float
) -> None:
    assert with_own(kind, weights) == pytest.approx(points, abs=1e-6)


def test_the_plugins_weight_counts_for_pods_of_their_own_strategy_too() -> None:
    found = with_own("MostAllocated", '{"cpu": 1}', resourceStrategyFitWeight=7)
    assert found == 350


def test_with_weight_zero_annotations_count_for_nothing() -> None:
    assert with_own("MostAllocated", '{"cpu": 1}', resourceStrategyFitWeight=0) == 0


BROKEN = [
    ("MostAllocated", None, f"{WEIGHT} is missing"),
    ("MostAllocated", "", f"{WEIGHT} is missing"),
    ("MostAllocated", "{", "it is no JSON"),
    ("MostAllocated", "[" * 100_000, "it is no JSON"),
    ("MostAllocated", "[1]", "it must be a JSON object"),
    ("MostAllocated", '{"cpu": "1"}', "the weight of cpu is '1', not an integer"),
    ("MostAllocated", '{"cpu": 1.5}', "the weight of cpu is 1.5, not an integer"),
    ("MostAllocated", '{"cpu": true}', "the weight of cpu is True, not an integer"),
    ("MostAllocated", '{"cpu": 9223372036854775808}', "not an integer"),
    ("MostAllocated", '{"cpu": Infinity}', "Infinity"),
    ("Most", '{"cpu": 1}', "'Most' is not one of MostAllocated, LeastAllocated"),
]


@pytest.mark.parametrize(("kind", "weights", "words"), BROKEN)
def test_a_strategy_that_cannot_be_read_gives_no_points_and_is_told_of(
    kind: str, weights: str | None, words: str
) -> None:
    assert with_own(kind, weights) == 0
    result = planned(node("n"), gang("g", 1, cpu=9, annotations=own(kind, weights)), gang("ok", 1, cpu=1), conf=conf())
    assert result.binds == {"default/ok-0": "n"}
    why = [reason for reason in result.why["default/g"] if reason.get("plugin") == "resource-strategy-fit"]
    assert [reason["reason"] for reason in why] == ["the pod's resource strategy is invalid, it is rated by none"]
    assert words in why[0]["detail"]["error"]
    assert WEIGHT in why[0]["detail"]["mend"]


def test_what_is_wrong_is_told_in_the_order_of_names_whichever_pod_came_first() -> None:
    marks = {"p-0": {TYPE: "MostAllocated"}, "p-1": {TYPE: "LeastAllocated", WEIGHT: "[]"}, "p-2": {TYPE: "other"}}
    pods = [pod(name, group="g", annotations=each, cpu=1) for name, each in marks.items()]
    for came in (pods, pods[::-1]):
        world = World(node("n", cpu=2), group("g", members=3), came, conf=conf())
        world.cycle()
        told = [each.pods for each in world.why("g") if each.gate == "annotation"]
        assert told == [("default/p-0", "default/p-2"), ("default/p-1",)]


def test_pods_of_one_shape_are_rated_by_their_own_strategies() -> None:
    """n0 is fuller, n1 emptier; four strategies and none, so that tables are kept apart by several marks."""
    nodes = [node("n0", cpu=64, memory=64), node("n1", cpu=64, memory=64), pod("a", on="n0", cpu=10, memory=1)]
    kinds = {
        "p0": (None, None, "n1"),
        "p1": ("MostAllocated", '{"cpu": 1}', "n0"),
        "p2": ("LeastAllocated", '{"cpu": 1}', "n1"),
        "p3": ("MostAllocated", '{"cpu": 2}', "n0"),
        "p4": ("LeastAllocated", '{"cpu": 1, "memory": 1}', "n1"),
    }
    pods = [pod(name, cpu=1, memory=1, annotations=own(kind, text)) for name, (kind, text, _) in kinds.items()]
    result = planned(*nodes, *pods, conf=conf())
    assert result.binds == {f"default/{name}": where for name, (_, _, where) in kinds.items()}


def test_tables_kept_from_the_cycle_before_know_nothing_of_annotations() -> None:
    world = World(node("n0"), node("n1"), pod("a", on="n0", cpu=4), conf=conf())
    world.put(gang("first", 1, cpu=1))
    world.cycle()
    world.put(gang("second", 1, cpu=1, annotations=own("MostAllocated", '{"cpu": 1}')), gang("third", 1, cpu=1))
    world.cycle()
    assert world.placed() == {"a": "n0", "first-0": "n1", "second-0": "n0", "third-0": "n1"}


# --- scarce resources -------------------------------------------------------------------------------------------------

T4, A10 = "nvidia.com/t4", "nvidia.com/a10"
THREE = [
    node("node1", cpu=32, memory=64),
    node("node2", cpu=16, memory=32, **{T4: 10}),
    node("node3", cpu=16, memory=32, **{T4: 5, A10: 10}),
]


def avoiding(*objects: Any, **sra: Any) -> dict[str, float]:
    settings_ = {"enable": True, "resources": f"{T4}, {A10}", "weight": 2, **sra}
    return rated(*objects, resourceStrategyFitWeight=0, sra=settings_)


@pytest.mark.parametrize(
    ("asks", "points"),
    [
        ({}, [200, 100, 0]),
        ({T4: "2"}, [0, 100, 0]),
        ({T4: "1", A10: "2"}, [0, 0, 0]),
    ],
)
def test_pods_stay_away_from_scarce_resources_that_they_do_not_need(asks: Manifest, points: list[float]) -> None:
    """The table of Volcano's design document, weight 2 and 1 for each resource."""
    task = pod("p", requests={"cpu": "2", "memory": "4Gi", **asks})
    assert list(avoiding(*THREE, task).values()) == points


def test_scarce_resources_count_by_their_weights() -> None:
    """T4 3 of 4, A10 1 of 4."""
    found = avoiding(*THREE, pod("p", cpu=1), resourceWeight={T4: 3})
    assert found == {"node1": 200, "node2": 50, "node3": 0}


def test_a_negative_weight_of_a_scarce_resource_means_one() -> None:
    assert avoiding(*THREE, pod("p", cpu=1), resourceWeight={T4: -3, A10: 1})["node2"] == 100


def test_scarce_resources_that_no_node_has_leave_all_nodes_alike() -> None:
    assert set(avoiding(*THREE, pod("p", cpu=1), resources="example.com/none").values()) == {200}


@pytest.mark.parametrize("sra", [{"resources": ""}, {"resourceWeight": {T4: 0, A10: 0}}, {"weight": 0}, {"weight": -1}])
def test_nothing_to_avoid_and_no_weight_rate_nothing(sra: Manifest) -> None:
    assert set(avoiding(*THREE, pod("p", cpu=1), **sra).values()) == {0}


def test_avoidance_is_off_unless_switched_on() -> None:
    sra = {"resources": T4, "weight": 10}
    assert set(rated(*THREE, pod("p", cpu=1), resourceStrategyFitWeight=0, sra=sra).values()) == {0}


def test_the_weight_of_avoidance_is_one_where_not_given() -> None:
    sra = {"enable": True, "resources": T4}
    assert rated(*THREE, pod("p", cpu=1), resourceStrategyFitWeight=0, sra=sra)["node1"] == 100


def test_avoidance_is_added_to_the_strategies() -> None:
    sra = {"enable": True, "resources": T4, "weight": 2}
    found = rated(*THREE, pod("p", cpu=8), **only(cpu=MOST), sra=sra)
    assert found == {"node1": 225, "node2": 50, "node3": 50}


# --- proportions ------------------------------------------------------------------------------------------------------


def proportional(*objects: Any, enable: bool = True, resources: str = GPU, **rates: float) -> Session:
    proportion = {f"{GPU}.{name}": rate for name, rate in rates.items()}
    settings_ = {"enable": enable, "resources": resources, "resourceProportion": proportion}
    return session_of(*objects, conf=conf(proportional=settings_))


@pytest.mark.parametrize(
    ("cpu", "memory", "fits"),
    [(10, "18G", True), (9, "18G", False), (10, "17999999999", False)],
)
def test_idle_units_keep_their_cores_and_gigabytes(cpu: int, memory: str, fits: bool) -> None:
    """The specification's example: 2 idle GPUs keep 2 x 4 cores and 2 x 8 x 10^9 bytes; the pod takes 2 and 2 G."""
    session = proportional(node("n", cpu=cpu, memory=memory, gpu=2), pod("p", cpu=2, memory="2G"), cpu=4, memory=8)
    assert passing(session, "Proportional") == ({"n"} if fits else set())


def test_the_example_of_the_design_document() -> None:
    """74 cores, 128 G, 8 GPUs, 8 of each per GPU: the first pod of 8 fits, the second would leave 58 of 64."""
    settings_ = {"enable": True, "resources": GPU, "resourceProportion": {f"{GPU}.cpu": 8, f"{GPU}.memory": 8}}
    jobs = [gang(f"single-{i}", 1, cpu=8, memory="8G") for i in range(2)]
    result = planned(node("n", cpu=74, memory="128G", gpu=8), *jobs, conf=conf(proportional=settings_))
    assert len(result.binds) == 1


def test_pods_that_ask_for_the_scarce_resource_may_take_what_is_kept() -> None:
    session = proportional(node("n", cpu=4, gpu=2), pod("p", cpu=4, gpu=1), cpu=4, memory=0)
    assert passing(session, "Proportional") == {"n"}


def test_rates_not_given_and_negative_ones_are_one() -> None:
    session = proportional(node("n", cpu=8, gpu=2), node("m", cpu=9, gpu=2), pod("p", cpu=7), cpu=-5)
    assert passing(session, "Proportional") == {"m"}


def test_the_reason_names_the_resource() -> None:
    session = proportional(node("n", cpu=8, gpu=1), pod("p", cpu=5), cpu=4)
    assert reasons(session, "Proportional") == {f"proportional of resource {GPU} check failed": 1}


@pytest.mark.parametrize("off", [{"enable": False}, {"resources": ""}, {"resources": "cpu, memory"}])
def test_proportions_are_off_unless_switched_on_for_a_scarce_resource(off: Manifest) -> None:
    session = proportional(node("n", cpu=1, gpu=8), pod("p", cpu=1), **off)
    assert framework_of(session).evaluator.predicates == ()


# --- wrong values -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"resources": {"cpu": {"weight": "many"}}}, "resources.cpu.weight: 'many' is not an integer"),
        ({"resources": {"cpu": {"type": 3}}}, "resources.cpu.type: 3 is not one of MostAllocated, LeastAllocated"),
        (
            {"resources": {"cpu": {"type": "MostAlocated"}}},
            "'MostAlocated' is not one of MostAllocated, LeastAllocated; did you mean MostAllocated?",
        ),
        ({"resources": {"cpu": 3}}, "resources.cpu: 3 is not a mapping of type, weight"),
        ({"resources": {7: 3}}, "resources.7: 3 is not a mapping of type, weight"),
        ({"sra": {"enable": "perhaps"}}, "sra.enable: 'perhaps' is not true or false"),
        ({"sra": {"weight": 1.5}}, "sra.weight: 1.5 is not an integer"),
        ({"sra": {"resources": GPU, "resourceWeight": {GPU: "x"}}}, f"sra.resourceWeight.{GPU}: 'x' is not an integer"),
        ({"sra": {"resourceWeight": 3}}, "sra.resourceWeight: 3 is not a mapping"),
        (
            {"proportional": {"resources": GPU, "resourceProportion": {f"{GPU}.cpu": "x"}}},
            f"proportional.resourceProportion.{GPU}.cpu: 'x' is not a number",
        ),
    ],
)
def test_wrong_values_are_named_with_the_whole_way_to_them(arguments: Manifest, words: str) -> None:
    plugin = plugins()["resource-strategy-fit"]
    with pytest.raises(ArgumentError) as raised:
        plugin(parse_arguments(plugin.arguments, arguments))
    assert words in str(raised.value)


def test_a_wrong_value_within_a_mapping_is_an_error_of_the_file_with_its_line() -> None:
    with pytest.raises(PolicyError) as raised:
        read_policy(conf(resources={"cpu": {"type": "MostAllocated", "weight": "many"}}))
    assert str(raised.value).endswith('arguments.resources.cpu.weight: "many": must be an integer')
    assert raised.value.problems[0].line == 8


# --- the columns are the formula --------------------------------------------------------------------------------------

amounts = st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100))
strategies_of = st.tuples(st.sampled_from(["MostAllocated", "LeastAllocated"]), st.integers(1, 4))
RESOURCES = ("cpu", "memory", GPU)


@settings(max_examples=examples(60), deadline=None)
@given(
    rows=st.lists(st.tuples(amounts, amounts), min_size=1, max_size=5),
    asks=amounts,
    chosen=st.lists(st.none() | strategies_of, min_size=3, max_size=3),
    pods=st.none() | st.tuples(st.sampled_from(["MostAllocated", "LeastAllocated"]), st.lists(st.integers(0, 4))),
    factor=st.integers(1, 10),
    sra=st.none() | st.tuples(st.integers(1, 5), st.integers(0, 3), st.integers(0, 3)),
)
def test_the_columns_are_the_formula(
    rows: list[tuple[tuple[int, ...], tuple[int, ...]]],
    asks: tuple[int, ...],
    chosen: list[tuple[str, int] | None],
    pods: tuple[str, list[int]] | None,
    factor: int,
    sra: tuple[int, int, int] | None,
) -> None:
    configured = {
        name: {"type": found[0], "weight": found[1]} for name, found in zip(RESOURCES, chosen, strict=True) if found
    }
    objects: list[Manifest] = []
    for i, (used, room) in enumerate(rows):
        objects.append(node(f"n{i}", cpu=room[0], memory=str(room[1]), gpu=room[2]))
        objects.append(pod(f"used{i}", on=f"n{i}", cpu=used[0], memory=str(used[1]), gpu=used[2]))
    marks = {}
    if pods is not None:
        given_weights = dict(zip(RESOURCES, pods[1], strict=False))
        marks = own(pods[0], json.dumps(given_weights))
        used_by = {name: (pods[0], weight) for name, weight in given_weights.items()}
    elif configured:
        used_by = {name: (found["type"], found["weight"]) for name, found in configured.items()}
    else:
        used_by = {"cpu": ("LeastAllocated", 1), "memory": ("LeastAllocated", 1)}
    arguments: dict[str, Any] = {"resourceStrategyFitWeight": factor, "resources": configured}
    if sra is not None:
        weights = {GPU: sra[1], "cpu": sra[2]}
        arguments["sra"] = {"enable": True, "resources": f"{GPU},cpu", "weight": sra[0], "resourceWeight": weights}
    task = pod("p", cpu=asks[0], memory=str(asks[1]), gpu=asks[2], annotations=marks)
    found = list(rated(*objects, task, **arguments).values())
    expected = [
        naive(used, asks, room, used_by) * 100 * factor + (0.0 if sra is None else naive_sra(asks, room, *sra))
        for used, room in rows
    ]
    assert found == pytest.approx(expected, abs=2e-6)


def naive(used: tuple[int, ...], asks: tuple[int, ...], room: tuple[int, ...], by: dict[str, tuple[str, int]]) -> float:
    """The specification's score with plain numbers."""
    score, weights = 0.0, 0
    for name, has_used, wanted, has in zip(RESOURCES, used, asks, room, strict=True):
        if not wanted or name not in by:
            continue
        kind, weight = by[name]
        weights += weight
        if weight and has:
            finally_used = has_used + wanted
            if finally_used > has:
                return 0.0
            score += (finally_used if kind == "MostAllocated" else has - finally_used) * weight / has
    return score / weights if weights > 0 else score


def naive_sra(asks: tuple[int, ...], room: tuple[int, ...], weight: int, gpu: int, cpu: int) -> float:
    """The specification's avoidance with plain numbers."""
    if gpu + cpu == 0 or any(wanted and not has for wanted, has in zip(asks, room, strict=True)):
        return 0.0
    return (1 - ((room[2] > 0) * gpu + (room[0] > 0) * cpu) / (gpu + cpu)) * 100 * weight

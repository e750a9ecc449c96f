"""usage: thresholds, score and estimates from samples; what is unknown is never zero."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dsl import NOW_NS, flat, gang, node, open_session, pod
from tests.plugins.opened import plugin_of, task_of
from tests.predicates.asking import applies, passing, reasons, with_arguments
from tests.scores.rating import points
from tests.sizes import examples
from vcd.model.events import Answered
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import instances, run
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.policy import PolicyError
from vcd.scheduling.framework.usage_samples import (
    FRESH,
    NodeUsage,
    Samples,
    UsageError,
    answered,
    known_usage,
    read_samples,
)
from vcd.scheduling.plugins.usage import UsagePlugin
from vcd.scheduling.search.candidates import Memory
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement
from vcd.state.snapshot import Snapshot, SnapshotMaker
from vcd.timetravel.planning import state_of

SECOND = 1_000_000_000
MI = 1 << 20
Nodes = Mapping[str, tuple[float, float]]


def sampled(nodes: Nodes, at: int = NOW_NS) -> Answered:
    return answered(Samples(at, "prometheus", {name: NodeUsage(*usage) for name, usage in nodes.items()}))


def snapshot_of(answer: Answered | None, *objects: Any) -> Snapshot:
    state = state_of(flat(objects))
    if answer is not None:
        state.apply(state.sequence + 1, answer)
    return SnapshotMaker(state).snapshot()


def opened(
    answer: Answered | Nodes | None, *objects: Any, now: int = NOW_NS, tail: str = "", **arguments: Any
) -> Session:
    """A session in which no action ran; arguments with dots for underscores that stand for them."""
    given_ = {key.replace("_weight", ".weight"): json.dumps(value) for key, value in arguments.items()}
    policy = read_policy(with_arguments("usage", given_) + tail)
    told = answer if isinstance(answer, Answered | None) else sampled(answer)
    return open_session(snapshot_of(told, *objects), policy, instances(policy), now, 0)


def old(manifest: dict[str, Any], start: str = "2026-11-20T08:00:00Z") -> dict[str, Any]:
    """A running pod that started so long ago that samples show it."""
    manifest["status"]["startTime"] = start
    return manifest


def gauges(session: Session) -> dict[tuple[str, str], float]:
    return {
        (gauge.name, dict(gauge.labels).get("why", "")): gauge.value
        for gauge in plugin_of(session, UsagePlugin).gauges()
    }


BUSY = {"cool": (10.0, 10.0), "cpu": (80.5, 10.0), "mem": (10.0, 99.0), "edge": (80.0, 80.0)}
NODES = [node(name) for name in (*BUSY, "unknown")]
POD = pod("p", cpu=1)

# --- thresholds -------------------------------------------------------------------------------------------------------


def test_nodes_above_a_threshold_take_nothing() -> None:
    session = opened(BUSY, NODES, POD)
    assert passing(session, "usage") == {"cool", "edge", "unknown"}
    assert reasons(session, "usage") == {
        "cpu usage of the node is above 80%": 1,
        "memory usage of the node is above 80%": 1,
    }


def test_a_node_above_both_is_counted_by_its_cpu() -> None:
    assert reasons(opened({"n": (90, 90)}, node("n"), POD), "usage") == {"cpu usage of the node is above 80%": 1}


def test_thresholds_are_configured() -> None:
    session = opened(BUSY, NODES, POD, thresholds={"cpu": 100, "mem": 79})
    assert passing(session, "usage") == {"cool", "cpu", "unknown"}


@pytest.mark.parametrize("value", [-1, 101, "abc", 50.5, True])
def test_an_invalid_threshold_is_an_error(value: Any) -> None:
    with pytest.raises(PolicyError, match=r"arguments\.thresholds\.cpu: .*must be an integer from 0 to 100"):
        opened(BUSY, NODES, POD, thresholds={"cpu": value, "mem": 7})


def test_a_threshold_without_a_value_has_its_default() -> None:
    plugin = plugin_of(opened(BUSY, NODES, POD, thresholds={"cpu": None, "mem": 7}), UsagePlugin)
    assert plugin.thresholds == (80, 7)


@pytest.mark.parametrize("value", [0, 100])
def test_thresholds_may_be_anything_from_0_to_100(value: int) -> None:
    assert plugin_of(opened(BUSY, NODES, POD, thresholds={"cpu": value}), UsagePlugin).thresholds == (value, 80)


def test_evictions_do_not_help() -> None:
    session = opened(BUSY, NODES, POD)
    task, usage = task_of(session, "p"), session.nodes.usage
    (predicate,) = framework_of(session).evaluator.predicates
    failed = ~predicate.mask(task, usage)
    assert predicate.unresolvable_nodes(task, usage, failed).tolist() == failed.tolist()


def test_the_filter_can_be_turned_off() -> None:
    policy = read_policy("actions: allocate\ntiers:\n- plugins:\n  - name: usage\n    enablePredicate: false\n")
    session = run(snapshot_of(sampled({"n": (99, 99)}), node("n"), gang("g", 1, cpu=1)), policy, NOW_NS, 0)
    assert [op.node for statement in session.trial.statements for op in statement.operations()] == ["n"]


def test_pods_go_to_the_least_used_node_that_is_not_too_busy() -> None:
    policy = read_policy(with_arguments("usage", {"cpu.weight": 9}))
    usage = {"a": (50.0, 10.0), "b": (10.0, 81.0), "c": (20.0, 20.0)}
    session = run(snapshot_of(sampled(usage), [node(name) for name in usage], gang("g", 1, cpu=1)), policy, NOW_NS, 0)
    assert [op.node for statement in session.trial.statements for op in statement.operations()] == ["c"]


# --- score ------------------------------------------------------------------------------------------------------------


def test_the_example_of_the_specification() -> None:
    assert points(opened({"n": (40, 60)}, node("n"), POD), "usage") == {"n": 250}


def test_weights_are_configured() -> None:
    session = opened({"n": (40, 60)}, node("n"), POD, usage_weight=1, cpu_weight=3, memory_weight=1)
    assert points(session, "usage") == {"n": pytest.approx((0.6 * 3 + 0.4) / 4 * 100)}


@pytest.mark.parametrize(("key", "default"), [("usage_weight", 250), ("cpu_weight", 250), ("memory_weight", 250)])
def test_a_negative_weight_means_the_default(key: str, default: float) -> None:
    assert points(opened({"n": (40, 60)}, node("n"), POD, **{key: -3}), "usage") == {"n": default}


@pytest.mark.parametrize("weights", [{"usage_weight": 0}, {"cpu_weight": 0, "memory_weight": 0}])
def test_weights_of_zero_rate_nothing(weights: dict[str, int]) -> None:
    assert framework_of(opened({"n": (40, 60)}, node("n"), POD, **weights)).evaluator.scores == ()


# --- unknown ----------------------------------------------------------------------------------------------------------


def test_a_node_without_a_sample_passes_gets_no_points_and_is_counted() -> None:
    session = opened({"n": (90, 10)}, node("n"), node("new"), POD)
    assert passing(session, "usage") == {"new"}
    assert points(session, "usage")["new"] == 0
    assert gauges(session) == {
        ("vcd_usage_known_nodes", ""): 1,
        ("vcd_usage_unknown_nodes", "no sample of the node"): 1,
    }


@pytest.mark.parametrize(
    ("answer", "now", "why"),
    [
        (None, NOW_NS, "no sample yet"),
        (sampled({"n": (99, 99)}), NOW_NS + FRESH + 1, "the last sample is too old"),
        (Answered("usage", b"{}"), NOW_NS, "the last sample cannot be read"),
    ],
)
def test_unknown_usage_is_not_zero_usage(answer: Answered | None, now: int, why: str) -> None:
    session = opened(answer, node("n"), POD, now=now)
    assert not applies(session, "usage")
    assert framework_of(session).evaluator.scores == ()  # no points for any node
    assert gauges(session) == {("vcd_usage_known_nodes", ""): 0, ("vcd_usage_unknown_nodes", why): 1}


@pytest.mark.parametrize("age", [0, FRESH, -3600 * SECOND])
def test_a_sample_holds_for_five_minutes(age: int) -> None:
    session = opened(sampled({"n": (99, 99)}), node("n"), POD, now=NOW_NS + age)
    assert passing(session, "usage") == set()


@pytest.mark.parametrize("busy", [(99, 10), (10, 99)])
def test_a_node_that_was_measured_too_long_ago_is_unknown(busy: tuple[float, float]) -> None:
    """Its source says when it measured each node; those measured lately still count."""
    nodes = {"old": NodeUsage(*busy, NOW_NS - FRESH), "new": NodeUsage(*busy, NOW_NS - SECOND)}
    sample = answered(Samples(NOW_NS, "metrics_server", nodes))
    objects = [node("old"), node("new"), POD]
    assert passing(opened(sample, *objects, now=NOW_NS), "usage") == set()
    later = opened(sample, *objects, now=NOW_NS + 1)
    assert passing(later, "usage") == {"old"}
    assert gauges(later) == {("vcd_usage_known_nodes", ""): 1, ("vcd_usage_unknown_nodes", "no sample of the node"): 1}


def test_a_sample_all_of_which_is_old_is_too_old() -> None:
    sample = answered(Samples(NOW_NS, "metrics_server", {"n": NodeUsage(99, 99, NOW_NS - FRESH - 1)}))
    assert known_usage({"usage": sample.answer}, NOW_NS).why == "the last sample is too old"


def test_a_sample_without_times_of_its_nodes_is_as_it_was() -> None:
    """What older logs hold, byte for byte."""
    assert json.loads(sampled({"n": (1, 2)}).answer)["nodes"] == {"n": {"cpu": 1.0, "memory": 2.0}}


def test_kept_tables_follow_the_samples() -> None:
    policy, memory = read_policy(with_arguments("usage")), Memory()
    objects = [node("a"), node("b"), *gang("g", 1, cpu=1)]
    chosen = []
    for usage in ({"a": (10, 10), "b": (70, 70)}, {"a": (70, 70), "b": (10, 10)}, {"a": (10, 10), "b": (90, 90)}):
        session = run(snapshot_of(sampled(usage), *objects), policy, NOW_NS, 0, memory)
        chosen += [op.node for statement in session.trial.statements for op in statement.operations()]
    assert chosen == ["a", "b", "a"]


def test_time_alone_starts_cycles_and_so_do_samples() -> None:
    assert UsagePlugin.timed
    assert UsagePlugin.outside == ("usage",)


# --- samples ----------------------------------------------------------------------------------------------------------


def test_a_sample_is_read_as_it_was_written() -> None:
    event = sampled({"n": (12.5, 99)})
    assert event.question == "usage"
    told = {"at": NOW_NS, "source": "prometheus", "nodes": {"n": {"cpu": 12.5, "memory": 99.0}}}
    assert json.loads(event.answer) == told
    assert read_samples(json.dumps(told).encode()).nodes["n"] == NodeUsage(12.5, 99.0)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "truncated"),
        (b"[]", "object"),
        (b'{"at": "now", "source": "x", "nodes": {}}', "at"),
        (b'{"at": -1, "source": "x", "nodes": {}}', "at: -1"),
        (b'{"at": 1, "source": "x", "nodes": {"n": {"cpu": 1}}}', "memory"),
        (b'{"at": 1, "source": "x", "nodes": {"n": {"cpu": 101, "memory": 1}}}', r"nodes\.n\.cpu: 101"),
        (b'{"at": 1, "source": "x", "nodes": {"n": {"cpu": 1, "memory": -0.5}}}', r"nodes\.n\.memory: -0\.5"),
        (b"[" * 100_000, "."),
    ],
)
def test_a_sample_that_is_none_says_what_is_wrong(answer: bytes, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_samples(answer)


def test_what_is_not_known_says_why() -> None:
    old_one = {"usage": sampled({"n": (1, 1)}).answer}
    known = known_usage(old_one, NOW_NS + 400 * SECOND)
    assert (known.nodes, known.why, known.detail) == ({}, "the last sample is too old", "6m40s old, more than 5m")
    assert known_usage(old_one, NOW_NS).nodes == {"n": NodeUsage(1, 1)}
    assert known_usage({"usage": b"{"}, NOW_NS).detail


# --- estimates --------------------------------------------------------------------------------------------------------


def cpu_part(session: Session, name: str = "n") -> float:
    """The part of a node's cpu that counts as used."""
    row = session.nodes.facts.row_of[name]
    return float(plugin_of(session, UsagePlugin)._load.composite(np.array([row]))[0, 0])


def test_a_pod_that_was_just_placed_counts_by_its_request() -> None:
    session = opened({"n": (10, 10)}, node("n", cpu=10), POD)
    task = task_of(session, "p")
    statement = Statement(session.trial, "allocate", task.job)
    statement.allocate([task], [0])
    assert cpu_part(session) == pytest.approx(0.1 + 0.7 * 1 / 10)
    statement.discard()
    assert cpu_part(session) == pytest.approx(0.1)


def test_an_estimate_changes_the_score_of_the_next_pod() -> None:
    session = opened({"a": (10, 10), "b": (10, 10)}, node("a", cpu=10), node("b", cpu=10), gang("g", 2, cpu=2))
    first, second = task_of(session, "g-0"), task_of(session, "g-1")
    before = points(session, "usage", second.name)
    Statement(session.trial, "allocate", first.job).allocate([first], [0])
    after = points(session, "usage", second.name)
    assert before["a"] == before["b"] == after["b"]
    assert after["a"] == pytest.approx(before["a"] - 0.14 / 2 * 500)


def test_pods_that_are_placed_at_once_count_as_if_they_were_placed_one_by_one() -> None:
    found = []
    for at_once in (True, False):
        nodes = [node("a", cpu=10), node("b", cpu=10)]
        session = opened({"a": (10, 10), "b": (55, 10)}, nodes, gang("g", 4, cpu=2))
        tasks, rows = [task_of(session, f"g-{i}") for i in range(4)], [1, 0, 1, 1]
        statement = Statement(session.trial, "allocate", tasks[0].job)
        before = points(session, "usage", "g-3")
        if at_once:
            statement.allocate(tasks, rows)
        else:
            for task, row in zip(tasks, rows, strict=True):
                statement.allocate([task], [row])
        found.append([cpu_part(session, "a"), cpu_part(session, "b"), points(session, "usage", "g-3")])
        statement.discard()
        assert points(session, "usage", "g-3") == before
    assert found[0] == found[1]


def test_pods_of_one_gang_spread_over_nodes_that_are_alike() -> None:
    policy = read_policy("actions: allocate\ntiers:\n- plugins:\n  - name: gang\n  - name: usage\n")
    usage = {f"n{i}": (10.0, 10.0) for i in range(3)}
    session = run(snapshot_of(sampled(usage), [node(name) for name in usage], gang("g", 3, cpu=1)), policy, NOW_NS, 0)
    assert sorted(op.node for s in session.trial.statements for op in s.operations()) == ["n0", "n1", "n2"]


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        ({}, 0.7 * 1000),
        ({"request_ratio": 1}, 1000),
        ({"request_ratio": 0.5, "burst_ratio": 0.5}, 0.5 * 1000 + 0.5 * 3000),
        ({"burst_ratio": 1, "request_ratio": 1, "risk_threshold": 0, "risk_factor": 2}, 4000),
        ({"risk_threshold": 0.1}, 0.7 * 1000 * 1.2),
        ({"risk_threshold": 0.1, "risk_factor": 3}, 0.7 * 1000 * 3),
        ({"burst_ratio": None}, 0.7 * 1000),
    ],
)
def test_the_estimate_of_a_pod(estimator: dict[str, Any], expected: float) -> None:
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "4"}}}]}
    session = opened({"n": (20, 20)}, node("n", cpu=100), pod("p", spec=spec), estimator=estimator)
    task = task_of(session, "p")
    Statement(session.trial, "allocate", task.job).allocate([task], [0])
    assert plugin_of(session, UsagePlugin)._load.estimated[0, 0] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("estimator", "cpu", "memory"),
    [
        ({}, 250, 200 * MI),
        ({"be_cpu": "1", "be_mem": "1Gi"}, 1000, 1024 * MI),
        ({"be_cpu": 100, "be_mem": 50}, 100, 50 * MI),
    ],
)
def test_the_estimate_of_a_best_effort_pod(estimator: dict[str, Any], cpu: float, memory: float) -> None:
    session = opened({"n": (20, 20)}, node("n", cpu=100), pod("p"), estimator=estimator)
    task = task_of(session, "p")
    Statement(session.trial, "backfill", task.job).allocate([task], [0])
    estimated = plugin_of(session, UsagePlugin)._load.estimated
    assert (estimated[0, 0], estimated[1, 0]) == (cpu, memory)


def test_pods_that_the_last_sample_does_not_show_count_from_the_beginning() -> None:
    objects = [
        node("n", cpu=100),
        pod("bound", on="n", phase="Pending", cpu=1),
        old(pod("young", on="n", cpu=10), "2026-11-21T07:59:50Z"),
        old(pod("old", on="n", cpu=50), "2026-11-21T07:59:20Z"),
        pod("unknown-start", on="n", cpu=20),
        old(pod("done", on="n", phase="Succeeded", cpu=30), "2026-11-21T07:59:50Z"),
    ]
    assert cpu_part(opened({"n": (20, 20)}, *objects, POD)) == pytest.approx(0.2 + 0.7 * 31 / 100)


def test_what_is_young_follows_the_sampling_interval() -> None:
    objects = [node("n", cpu=100), old(pod("x", on="n", cpu=10), "2026-11-21T07:59:20Z"), POD]
    found = [
        cpu_part(opened({"n": (20, 20)}, *objects, tail=f"metrics:\n  interval: {each}\n")) for each in ("1m", "5s", "")
    ]
    assert found == [pytest.approx(0.27), pytest.approx(0.2), pytest.approx(0.2)]


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        *((key, 1.1, "a number from 0 to 1") for key in ("request_ratio", "burst_ratio", "risk_threshold")),
        ("burst_ratio", -1, "a number from 0 to 1"),
        ("request_ratio", "x", "a number from 0 to 1"),
        ("risk_threshold", True, "a number from 0 to 1"),
        ("risk_factor", 0.9, "a number of at least 1"),
        ("risk_factor", [], "a number of at least 1"),
        *(("be_cpu", value, "an amount of cpu such as 250m") for value in (-1, "abc", 1.5, True)),
        *(("be_mem", value, "an amount of memory such as 200Mi") for value in ("-5Mi", 1.5, {})),
    ],
)
def test_an_invalid_estimator_is_an_error(key: str, value: Any, allowed: str) -> None:
    with pytest.raises(PolicyError, match=rf"arguments\.estimator\.{key}: .*must be {allowed}"):
        opened(BUSY, NODES, POD, estimator={key: value})


def test_a_trial_eviction_of_a_pod_that_samples_show_leaves_no_trace() -> None:
    session = opened({"n": (20, 20)}, node("n", cpu=100), old(pod("x", on="n", cpu=10)), POD)
    task = task_of(session, "x")
    statement = Statement(session.trial, "preempt", task.job)
    statement.evict(task, "for another")
    statement.discard()
    assert cpu_part(session) == pytest.approx(0.2)


def test_a_trial_eviction_of_a_pod_that_no_sample_shows_leaves_no_trace() -> None:
    """It counts as before, though the node is at risk by another one since it was estimated."""
    young = [pod(name, on="n", cpu=2) for name in ("x", "y")]
    session = opened({"n": (55, 55)}, node("n", cpu=10), young, POD)
    before, task = points(session, "usage", "p"), task_of(session, "x")
    for _ in range(2):
        statement = Statement(session.trial, "preempt", task.job)
        statement.evict(task, "for another")
        assert points(session, "usage", "p") != before
        statement.discard()
        assert points(session, "usage", "p") == before


def test_the_whole_of_a_node_is_its_capacity() -> None:
    made = node("n", cpu=8)
    made["status"]["capacity"]["cpu"] = "16"
    session = opened({"n": (0, 0)}, made, POD)
    task = task_of(session, "p")
    Statement(session.trial, "allocate", task.job).allocate([task], [0])
    assert cpu_part(session) == pytest.approx(0.7 / 16)


percent = st.floats(0, 100, allow_nan=False).map(lambda value: round(value, 2))


@settings(max_examples=examples(60))
@given(
    rows=st.lists(st.tuples(percent, percent, st.integers(0, 3), st.booleans()), min_size=1, max_size=5),
    weights=st.tuples(st.integers(0, 9), st.integers(0, 4), st.integers(0, 4)),
    thresholds=st.tuples(st.integers(0, 100), st.integers(0, 100)),
)
def test_the_columns_are_the_formula(
    rows: list[tuple[float, float, int, bool]], weights: tuple[int, int, int], thresholds: tuple[int, int]
) -> None:
    objects: list[Any] = []
    for i, (_, _, placed, _) in enumerate(rows):
        objects.append(node(f"n{i}", cpu=10, memory=10))
        objects += [pod(f"x{i}-{k}", on=f"n{i}", phase="Pending", cpu=2, memory=1) for k in range(placed)]
    usage = {f"n{i}": (cpu, memory) for i, (cpu, memory, _, known) in enumerate(rows) if known}
    factor, *of_resources = weights
    session = opened(
        usage,
        *objects,
        POD,
        usage_weight=factor,
        cpu_weight=of_resources[0],
        memory_weight=of_resources[1],
        thresholds={"cpu": thresholds[0], "mem": thresholds[1]},
    )
    passed, scores = naive(rows, factor, (of_resources[0], of_resources[1]), thresholds)
    assert passing(session, "usage") == {f"n{i}" for i, passes in enumerate(passed) if passes}
    if any(scores):
        assert list(points(session, "usage").values()) == pytest.approx(scores)


def naive(
    rows: list[tuple[float, float, int, bool]], factor: int, weights: tuple[int, int], thresholds: tuple[int, int]
) -> tuple[list[bool], list[float]]:
    """Filter and formula, node by node: each pod asks for 2 of 10 cpu and 1 of 10 Gi."""
    passed, scores = [], []
    for cpu, memory, placed, known in rows:
        passed.append(not known or not (cpu > thresholds[0] or memory > thresholds[1]))
        estimates = [0.0, 0.0]

        def parts(estimates: list[float] = estimates, shown: tuple[float, float] = (cpu, memory)) -> list[float]:
            return [min(max(shown[i] / 100 + estimates[i] / 10, 0.0), 1.0) for i in (0, 1)]

        for _ in range(placed):
            load = sum(part * weight for part, weight in zip(parts(), weights, strict=True)) / (sum(weights) or 1)
            risk = 1.2 if load >= 0.6 else 1.0
            estimates[0] += min(2 * 0.7 * risk, 2)
            estimates[1] += min(1 * 0.7 * risk, 1)
        unused = [1 - part for part in parts()]
        total = sum(weights)
        mean = sum(part * weight for part, weight in zip(unused, weights, strict=True)) / total if total else 0.0
        scores.append(mean * 100 * factor if known else 0.0)
    return passed, scores

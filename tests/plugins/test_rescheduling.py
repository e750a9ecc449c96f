"""rescheduling: who leaves busy nodes, when, and what keeps a pod where it is."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dsl import NOW_NS, gang, group, node, open_session, pod, priority_class, quantities, queue, session_of
from tests.plugins.opened import plugin_of, tasks_of
from tests.sizes import examples
from tests.world import World
from vcd.model import events as ev
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import instances, run
from vcd.scheduling.framework.arguments import ArgumentError, parse_arguments
from vcd.scheduling.framework.policy import PolicyError
from vcd.scheduling.plugins.rescheduling import ReschedulingPlugin
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement
from vcd.scheduling.session_close import plan_of
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import Snapshot

Manifest = dict[str, Any]
MINUTE = 60 * 10**9
PARAMS = {"thresholds": {"cpu": 20, "memory": 20}, "targetThresholds": {"cpu": 50, "memory": 50}}
PREEMPTABLE = "volcano.sh/preemptable"


def config(actions: str = "shuffle", plugins: Iterable[str] = (), **arguments: Any) -> str:
    arguments.setdefault("strategies", [{"name": "lowNodeUtilization", "params": PARAMS}])
    lines = [f'actions: "{actions}"', "tiers:", "- plugins:", *[f"  - name: {name}" for name in plugins]]
    lines += ["  - name: rescheduling", "    arguments:"]
    return "\n".join([*lines, *[f"      {key}: {json.dumps(value)}" for key, value in arguments.items()]]) + "\n"


def sample(usage: dict[str, tuple[float, float]], at: int = NOW_NS) -> bytes:
    nodes = {name: {"cpu": cpu, "memory": memory} for name, (cpu, memory) in usage.items()}
    return json.dumps({"at": at, "source": "test", "nodes": nodes}).encode()


def snapshot_of(objects: Iterable[Any], usage: dict[str, tuple[float, float]] | bytes | None, conf: str) -> Snapshot:
    answer = sample(usage) if isinstance(usage, dict) else usage
    answers = {} if answer is None else {"usage": answer}
    return dataclasses.replace(session_of(*objects, conf=conf).snapshot, answers=answers)


def evicted(
    *objects: Any,
    usage: dict[str, tuple[float, float]] | bytes | None,
    now: int = NOW_NS,
    plugins: Iterable[str] = (),
    **arguments: Any,
) -> list[str]:
    """The pods that one cycle with shuffle evicts, in the order of the plan."""
    conf = config(plugins=plugins, **arguments)
    plan = plan_of(run(snapshot_of(objects, usage, conf), read_policy(conf), now, 0))
    assert plan.faults == ()
    return [op.key.partition("/")[2] for each in plan.statements for op in each.operations if op.verb == "evict"]


def opened(
    objects: Iterable[Any], usage: dict[str, tuple[float, float]], now: int = NOW_NS, **arguments: Any
) -> Session:
    conf = config(**arguments)
    policy = read_policy(conf)
    return open_session(snapshot_of(objects, usage, conf), policy, instances(policy), now, 0)


def crowd(*pods: str, on: str = "busy", queue: str = "default", **options: Any) -> list[Manifest]:
    """A group that may lose all of its running pods."""
    return [group("g", members=0, queue=queue), *[pod(name, on=on, group="g", **options) for name in pods]]


PAIR = [node("busy", cpu=10, memory="100Gi"), node("idle", cpu=10, memory="100Gi")]
HOT = {"busy": (80.0, 10.0), "idle": (10.0, 10.0)}


# --- whom -----------------------------------------------------------------------------------------------------------


def test_pods_leave_until_the_node_is_below_its_target() -> None:
    """80 percent less 10 for each pod: after the fourth it uses 40."""
    assert evicted(*PAIR, *crowd("a", "b", "c", "d", "e", cpu=1), usage=HOT) == ["a", "b", "c", "d"]


def test_pods_leave_until_the_idle_nodes_would_reach_their_target() -> None:
    """The idle node may take 40 percent of 10 cpu: pods of 3 cpu leave while something of the 4 is left."""
    hot = {"busy": (100.0, 10.0), "idle": (10.0, 10.0)}
    assert evicted(*PAIR, *crowd("a", "b", "c", cpu=3), usage=hot) == ["a", "b"]


def test_memory_counts_like_cpu() -> None:
    hot = {"busy": (10.0, 60.0), "idle": (10.0, 10.0)}
    assert evicted(*PAIR, *crowd("a", "b", cpu=1, memory=20), usage=hot) == ["a"]


def test_the_busiest_node_comes_first() -> None:
    cluster = [*PAIR, node("busier", cpu=10, memory="100Gi"), group("g", members=0)]
    pods = [pod("a", on="busy", group="g", cpu=4), pod("b", on="busier", group="g", cpu=4)]
    assert evicted(*cluster, *pods, usage={**HOT, "busier": (75.0, 30.0)}) == ["b"]


def test_a_node_is_idle_only_below_every_threshold_and_while_it_takes_pods() -> None:
    crowded = crowd("a", cpu=1)
    assert evicted(*PAIR, *crowded, usage={"busy": (80.0, 10.0), "idle": (19.9, 19.9)}) == ["a"]
    assert evicted(*PAIR, *crowded, usage={"busy": (80.0, 10.0), "idle": (20.0, 10.0)}) == []
    assert evicted(*PAIR, *crowded, usage={"busy": (80.0, 10.0), "idle": (10.0, 20.0)}) == []
    cordoned = node("idle", cpu=10, memory="100Gi", unschedulable=True)
    assert evicted(PAIR[0], cordoned, *crowded, usage=HOT) == []


def test_a_node_is_busy_only_above_the_target() -> None:
    assert evicted(*PAIR, *crowd("a", cpu=1), usage={"busy": (50.0, 50.0), "idle": (10.0, 10.0)}) == []
    assert evicted(*PAIR, *crowd("a", cpu=1), usage={"busy": (50.1, 50.0), "idle": (10.0, 10.0)}) == ["a"]


def test_lower_priority_goes_first_and_none_before_any() -> None:
    priorities = {"a": 5, "b": None, "c": 1}
    order = []
    while priorities:
        pods = [
            pod(name, on="busy", group="g", cpu=1, spec={} if value is None else {"priority": value})
            for name, value in priorities.items()
        ]
        (first,) = evicted(*PAIR, group("g", members=0), *pods, usage={**HOT, "busy": (50.1, 10.0)})
        order.append(first)
        del priorities[first]
    assert order == ["b", "c", "a"]


def test_of_equal_priority_the_lower_quality_of_service_goes_first() -> None:
    """A best-effort pod frees nothing, so another one goes after it."""
    limits = {"limits": {"cpu": "1", "memory": "1Gi"}}
    kinds = {
        "a-guaranteed": {
            "spec": {"containers": [{"name": "c", "resources": {**limits, "requests": limits["limits"]}}]}
        },
        "b-burstable": {"cpu": 1},
        "c-best-effort": {},
    }

    def go(*names: str) -> list[str]:
        pods = [pod(name, on="busy", group="g", **kinds[name]) for name in names]
        return evicted(*PAIR, group("g", members=0), *pods, usage={**HOT, "busy": (50.1, 10.0)})

    assert go("a-guaranteed", "b-burstable") == ["b-burstable"]
    assert go("b-burstable", "c-best-effort") == ["b-burstable", "c-best-effort"]
    assert go(*kinds) == ["b-burstable", "c-best-effort"]


def test_a_pod_that_asks_for_cards_alone_is_best_effort() -> None:
    """Quality of service is of cpu and memory, as Kubernetes has it."""
    card = {"nvidia.com/gpu": 1}
    nodes = [node(name, cpu=10, memory="100Gi", **card) for name in ("busy", "idle")]
    pods = [pod("a", on="busy", group="g", cpu=1), pod("b", on="busy", group="g", requests=quantities(card))]
    assert evicted(*nodes, group("g", members=0), *pods, usage={**HOT, "busy": (50.1, 10.0)}) == ["a", "b"]


def test_a_pod_with_requests_of_its_own_but_no_limits_is_burstable() -> None:
    """They decide in its containers' place."""
    amounts = {"cpu": "1", "memory": "1Gi"}
    guaranteed = {"containers": [{"name": "c", "resources": {"limits": amounts, "requests": amounts}}]}
    pods = [
        pod("a", on="busy", group="g", spec=guaranteed),
        pod("b", on="busy", group="g", spec={**guaranteed, "resources": {"requests": amounts}}),
    ]
    assert evicted(*PAIR, group("g", members=0), *pods, usage={**HOT, "busy": (50.1, 10.0)}) == ["b"]


def test_what_is_leaving_already_counts_as_gone() -> None:
    leaving = [pod("z", on="busy", cpu=4, deleting=True)]
    assert evicted(*PAIR, *crowd("a", cpu=1), *leaving, usage=HOT) == []


# --- who stays --------------------------------------------------------------------------------------------------------


def test_a_pod_that_is_not_preemptable_stays() -> None:
    stays = {PREEMPTABLE: "false"}
    assert evicted(*PAIR, *crowd("a", cpu=1, annotations=stays), usage=HOT) == []


def test_a_group_keeps_its_minimum() -> None:
    cluster = gang("g", 3, members=2, on=["busy"] * 3, cpu=1)
    assert evicted(*PAIR, *cluster, usage=HOT) == ["g-0"]


@pytest.mark.parametrize(("value", "expected"), [(2_000_000_000, []), (1_999_999_999, ["a"])])
def test_system_critical_pods_stay(value: int, expected: list[str]) -> None:
    assert evicted(*PAIR, *crowd("a", cpu=1, spec={"priority": value}), usage=HOT) == expected


def test_the_class_of_pods_that_stay_can_be_named() -> None:
    params = {**PARAMS, "thresholdPriorityClassName": "mine"}
    strategies = [{"name": "lowNodeUtilization", "params": params}]
    cluster = [*PAIR, group("g", members=0), priority_class("mine", 10)]
    pods = [pod(f"p{value}", on="busy", group="g", cpu=1, spec={"priority": value}) for value in (9, 10)]
    assert evicted(*cluster, *pods, usage=HOT, strategies=strategies) == ["p9"]
    strategies[0]["params"] = {**params, "thresholdPriorityClassName": "nobody"}
    assert evicted(*cluster, *pods, usage=HOT, strategies=strategies) == ["p10", "p9"]


def test_a_pod_that_no_idle_node_would_take_stays_unless_that_is_not_asked() -> None:
    only_busy = {"nodeSelector": {"kubernetes.io/hostname": "busy"}}
    cluster = [*PAIR, *crowd("a", cpu=1, spec=only_busy)]
    assert evicted(*cluster, usage=HOT, plugins=["predicates"]) == []
    strategies = [{"name": "lowNodeUtilization", "params": {**PARAMS, "nodeFit": False}}]
    assert evicted(*cluster, usage=HOT, plugins=["predicates"], strategies=strategies) == ["a"]


def test_a_pod_that_is_larger_than_any_idle_nodes_room_stays() -> None:
    full = pod("b", on="idle", cpu=8, annotations={PREEMPTABLE: "false"})
    assert evicted(*PAIR, full, *crowd("a", cpu=3), usage=HOT) == []


@pytest.mark.parametrize(
    ("free", "expected"), [({"cpu": 7}, ["a"]), ({"cpu": 5}, ["a", "b"]), ({"cpu": 1, "memory": 95}, ["a"])]
)
def test_no_more_pods_leave_than_idle_nodes_have_places_for(free: Manifest, expected: list[str]) -> None:
    """The others would only come back to the busy node, and leave it again in the next round."""
    full = pod("full", on="idle", annotations={PREEMPTABLE: "false"}, **free)
    assert evicted(*PAIR, full, *crowd("a", "b", "c", cpu=2, memory=3), usage=HOT) == expected


def test_places_are_counted_node_by_node() -> None:
    nodes = [PAIR[0], *[node(name, cpu=10, memory="100Gi") for name in ("idle", "idler")]]
    full = [pod(f"full-{name}", on=name, cpu=8, annotations={PREEMPTABLE: "false"}) for name in ("idle", "idler")]
    usage = {"busy": (100.0, 10.0), "idle": (10.0, 10.0), "idler": (5.0, 5.0)}
    assert evicted(*nodes, *full, *crowd("a", "b", "c", cpu=2), usage=usage) == ["a", "b"]


# --- selectors and strategies -----------------------------------------------------------------------------------------


def test_queues_can_be_selected() -> None:
    cluster = [*PAIR, queue("q"), *crowd("a", cpu=1, queue="q")]
    assert evicted(*cluster, usage=HOT, queueSelector=["q", "other"]) == ["a"]
    assert evicted(*cluster, usage=HOT, queueSelector=["other"]) == []


def test_all_selected_labels_must_be_there() -> None:
    cluster = [*PAIR, *crowd("a", cpu=1, labels={"business": "offline", "team": "5"})]
    assert evicted(*cluster, usage=HOT, labelSelector={"business": "offline", "team": 5}) == ["a"]
    assert evicted(*cluster, usage=HOT, labelSelector={"business": "offline", "team": "test"}) == []


def with_strategies(*names: str) -> list[Manifest]:
    return [*[{"name": name} for name in names], {"name": "lowNodeUtilization", "params": PARAMS}]


def test_offline_only_wants_pods_that_say_so() -> None:
    cluster = [*PAIR, group("g", members=0)]
    pods = [
        pod("said", on="busy", group="g", cpu=1, annotations={PREEMPTABLE: "true"}),
        pod("labelled", on="busy", group="g", cpu=1, labels={PREEMPTABLE: "true"}),
        pod("silent", on="busy", group="g", cpu=1),
    ]
    assert evicted(*cluster, *pods, usage=HOT, strategies=with_strategies("offlineOnly")) == ["labelled", "said"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((), "a-small"),
        (("lowPriorityFirst",), "a-small"),
        (("shortLifeTimeFirst",), "b-young"),
        (("bigObjectFirst",), "c-big"),
        (("moreReplicasFirst",), "b-young"),
        (("moreReplicasFirst", "bigObjectFirst"), "b-young"),
        (("bigObjectFirst", "moreReplicasFirst"), "c-big"),
    ],
)
def test_strategies_put_others_in_front(names: tuple[str, ...], expected: str) -> None:
    cluster = [*PAIR, group("one", members=0), group("two", members=0)]
    pods = [
        pod("a-small", on="busy", group="one", cpu=1, created=5),
        pod("b-young", on="busy", group="two", cpu=1, created=9),
        pod("c-big", on="busy", group="one", cpu=1, memory=90, created=3),
        *[pod(f"d{i}", group="two", cpu=1, created=1) for i in range(2)],
    ]
    usage = {**HOT, "busy": (50.1, 10.0)}
    assert evicted(*cluster, *pods, usage=usage, strategies=with_strategies(*names)) == [expected]


def test_without_the_strategy_nobody_goes() -> None:
    assert evicted(*PAIR, *crowd("a", cpu=1), usage=HOT, strategies=[{"name": "offlineOnly"}]) == []


@pytest.mark.parametrize("strategies", [None, [], [{"name": "lowNodeUtilization"}]])
def test_by_default_all_thresholds_are_a_hundred(strategies: list[Manifest] | None) -> None:
    """No node can use more, so nobody goes."""
    given_ = {} if strategies is None else {"strategies": strategies}
    values = parse_arguments(ReschedulingPlugin.arguments, given_)
    plugin = ReschedulingPlugin(values)
    assert plugin._low_node is not None
    assert plugin._low_node.low == plugin._low_node.high == {"cpu": 100.0, "memory": 100.0}


@pytest.mark.parametrize(
    ("strategies", "said"),
    [
        (["lowNodeUtilization"], r"strategies\[0\]: 'lowNodeUtilization' is not a mapping of name, params"),
        ([{"name": "lowNodeUtilisation"}], "did you mean lowNodeUtilization"),
        ([{"params": {}}], r"strategies\[0\].name: None is not given: one of lowNodeUtilization"),
        ([{"name": "lowNodeUtilization", "params": 5}], "is not a mapping"),
        ([{"name": "lowNodeUtilization", "params": {"thresholds": 20}}], "is not a mapping"),
        ([{"name": "lowNodeUtilization", "params": {"thresholds": {"cpu": 101}}}], "a number from 0 to 100"),
        ([{"name": "lowNodeUtilization", "params": {"thresholds": {"cpu": True}}}], "a number from 0 to 100"),
        ([{"name": "lowNodeUtilization", "params": {"nodeFit": "yes"}}], "true or false"),
        ([{"name": "lowNodeUtilization", "params": {"thresholdPriorityClassName": 5}}], "is not a text"),
    ],
)
def test_wrong_strategies_are_errors_that_name_what_was_meant(strategies: list[Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        ReschedulingPlugin(parse_arguments(ReschedulingPlugin.arguments, {"strategies": strategies}))


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"param": {}}, "strategies[0].param is not read; did you mean params?"),
        ({"params": {"threshold": {}}}, "strategies[0].params.threshold is not read; did you mean thresholds?"),
        (
            {"params": {"thresholds": {"cpus": 20}}},
            "strategies[0].params.thresholds.cpus is not read; did you mean cpu?",
        ),
        ({"params": {"numberOfNodes": 3}}, "strategies[0].params.numberOfNodes has no effect: "),
    ],
)
def test_what_nobody_reads_of_a_strategy_is_told(entry: Manifest, said: str) -> None:
    given = {"strategies": [{"name": "lowNodeUtilization", **entry}]}
    (warning,) = parse_arguments(ReschedulingPlugin.arguments, given).warnings
    assert warning.startswith(said)


def test_a_wrong_strategy_is_an_error_when_the_file_is_read() -> None:
    with pytest.raises(PolicyError, match=r"line 6: .*strategies.*did you mean lowNodeUtilization"):
        read_policy(config(strategies=[{"name": "lowNodeUtilisation"}]))


def test_pods_may_be_named_among_the_thresholds() -> None:
    params = {key: {**value, "pods": 1} for key, value in PARAMS.items()}
    strategies = [{"name": "lowNodeUtilization", "params": params}]
    assert evicted(*PAIR, *crowd("a", cpu=1), usage=HOT, strategies=strategies) == ["a"]


def test_the_metrics_period_is_accepted() -> None:
    assert evicted(*PAIR, *crowd("a", cpu=1), usage=HOT, metricsPeriod="10m") == ["a"]


def test_an_interval_below_a_second_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="at least 1s"):
        parse_arguments(ReschedulingPlugin.arguments, {"interval": "10ms"})


# --- what is not known ------------------------------------------------------------------------------------------------


IMPOSSIBLE = b'{"at": 1, "source": "s", "nodes": {"busy": {"cpu": 180, "memory": 1}}}'


@pytest.mark.parametrize(
    "usage",
    [None, b"{", IMPOSSIBLE, sample(HOT, NOW_NS - 5 * MINUTE - 1)],
    ids=["none", "unreadable", "impossible", "old"],
)
def test_where_usage_is_unknown_nobody_goes(usage: bytes | None) -> None:
    assert evicted(*PAIR, *crowd("a", cpu=1), usage=usage) == []


def test_a_sample_of_five_minutes_still_holds() -> None:
    assert evicted(*PAIR, *crowd("a", cpu=1), usage=sample(HOT, NOW_NS - 5 * MINUTE)) == ["a"]


def test_a_node_without_a_sample_is_neither_idle_nor_busy() -> None:
    cluster = [*PAIR, node("other", cpu=10), *crowd("a", cpu=1)]
    assert evicted(*cluster, usage={"busy": (80.0, 10.0)}) == []
    assert evicted(*cluster, usage={"idle": (10.0, 10.0)}) == []
    assert evicted(*cluster, usage=HOT) == ["a"]


def test_a_sample_of_a_node_that_is_not_there_does_not_matter() -> None:
    assert evicted(*PAIR, *crowd("a", cpu=1), usage={**HOT, "gone": (5.0, 5.0)}) == ["a"]


# --- when -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interval", "offset", "expected"),
    [
        ("5m", 0, True),
        ("5m", 15 * 10**9 - 1, True),
        ("5m", 15 * 10**9, False),
        ("5m", 5 * MINUTE - 1, False),
        ("20m", 30 * 10**9 - 1, True),
        ("20m", 30 * 10**9, False),
        ("10s", 10**9 - 1, True),
        ("10s", 10**9, False),
        ("1s", 10**9 - 1, True),
    ],
)
def test_a_round_is_due_at_the_beginning_of_each_interval(interval: str, offset: int, expected: bool) -> None:
    """The time of the tests is a whole hour."""
    session = opened([*PAIR, *crowd("a", cpu=1)], HOT, now=NOW_NS + offset, interval=interval)
    assert plugin_of(session, ReschedulingPlugin).is_due() is expected


def at(offset: int) -> str:
    moment = datetime.datetime.fromtimestamp(NOW_NS // 10**9 + offset, datetime.UTC)
    return moment.isoformat().replace("+00:00", "Z")


def due(*objects: Any) -> bool:
    session = opened([*PAIR, *crowd("a", "b", cpu=1), *objects], HOT, now=NOW_NS + 5 * 10**9)
    return plugin_of(session, ReschedulingPlugin).is_due()


def born(name: str, offset: int, **options: Any) -> Manifest:
    manifest = pod(name, **options)
    manifest["metadata"]["creationTimestamp"] = at(offset)
    return manifest


def leaver(asked: int, grace: int | None = None) -> Manifest:
    """A pod that was asked to go so many seconds after the interval began."""
    manifest = pod("z", on="busy", cpu=1, spec={} if grace is None else {"terminationGracePeriodSeconds": grace})
    manifest["metadata"]["deletionTimestamp"] = at(asked + (30 if grace is None else grace))
    return manifest


@pytest.mark.parametrize("offset", [-1, 1])
def test_what_others_delete_or_create_cancels_no_round(offset: int) -> None:
    """Any unrelated deletion, or new pod of a group that had some, in the first part of an interval cancelled it."""
    assert due()
    assert due(leaver(offset))
    assert due(leaver(offset, grace=600))
    assert due(born("c", offset, group="g"))
    assert due(group("new"), born("c", offset, group="new"))


def in_rounds(interval: str = "5m") -> World:
    """A busy node that has more to give than the idle one takes at once."""
    world = World(*PAIR, *crowd("a", "b", "c", cpu=1), conf=config(interval=interval))
    world.happen(ev.Answered("usage", sample({**HOT, "busy": (50.1, 10.0)})))
    return world


def gone(world: World) -> list[str]:
    """Who goes in a cycle that is carried out."""
    return [op.key for each in world.cycle().statements for op in each.operations if op.verb == "evict"]


def test_in_one_interval_one_round_is_held_and_in_the_next_another() -> None:
    world = in_rounds()
    began = world.now
    assert gone(world) == ["default/a"]
    assert world.state.rounds == {"rescheduling": began}
    world.happen(ev.Answered("usage", sample(HOT, world.now)))
    assert gone(world) == []
    world.now += 5 * MINUTE
    world.happen(ev.Answered("usage", sample(HOT, world.now)))
    assert gone(world)


def test_a_round_that_evicts_nobody_is_none() -> None:
    """Pods that others protect, or a node that is not busy yet: it may still come within its part of the interval."""
    world = World(*PAIR, *crowd("a", "b", "c", cpu=1), conf=config())
    world.happen(ev.Answered("usage", sample({**HOT, "busy": (30.0, 10.0)})))
    assert (gone(world), world.state.rounds) == ([], {})
    world.now += 10**9
    world.happen(ev.Answered("usage", sample({**HOT, "busy": (50.1, 10.0)}, world.now)))
    assert gone(world) == ["default/a"]


def test_what_another_plugin_shuffles_is_no_round() -> None:
    """tdm evicts from a zone that is closed in the same part of the interval."""
    other = '- name: tdm\n    arguments: {tdm.revocable-zone.z: "0:00-0:01"}\n  - name: rescheduling'
    closed = config().replace("- name: rescheduling", other, 1)
    zone = node("zone", labels={"volcano.sh/revocable-zone": "z"})
    world = World(*PAIR, zone, *crowd("a", "b", "c", cpu=1), *gang("t", 1, cpu=1, on=["zone"]), conf=closed)
    assert gone(world) == ["default/t-0"]
    world.happen(ev.Answered("usage", sample({**HOT, "busy": (50.1, 10.0)})))
    assert gone(world) == ["default/a"]


def test_a_checkpoint_keeps_when_the_last_round_was() -> None:
    world = in_rounds()
    gone(world)
    assert ClusterState.load(world.state.dump()).rounds == world.state.rounds


def test_an_eviction_in_flight_counts_as_a_round() -> None:
    world = World(*PAIR, *crowd("a", "b", "c", cpu=1), conf=config())
    world.happen(ev.Answered("usage", sample({**HOT, "busy": (50.1, 10.0)})))
    assert [op.key for each in world.decide().statements for op in each.operations] == ["default/a"]
    world.happen(ev.Answered("usage", sample(HOT, world.now)))
    assert world.decide().statements == ()


def test_a_pod_that_goes_already_is_not_named_again() -> None:
    session = opened([*PAIR, *crowd("a", "b", cpu=1)], HOT)
    plugin = plugin_of(session, ReschedulingPlugin)
    victims = plugin.victim_tasks(tasks_of(session, "a", "b"))
    assert [task.name for task in victims] == ["a", "b"]
    Statement(session.trial, "shuffle", victims[0].job).evict(victims[0], "moved")
    assert [task.name for task in plugin.victim_tasks(victims)] == ["b"]


def test_time_and_samples_make_cycles() -> None:
    assert ReschedulingPlugin.timed
    assert ReschedulingPlugin.outside == ("usage",)


def test_the_victims_are_of_those_given_and_in_their_order() -> None:
    session = opened([*PAIR, *crowd("a", "b", "c", cpu=1)], HOT)
    plugin = plugin_of(session, ReschedulingPlugin)
    assert [task.name for task in plugin.victim_tasks(tasks_of(session, "c", "a"))] == ["c", "a"]


def test_gauges_show_how_many_go_and_how_much_is_known() -> None:
    session = opened([*PAIR, *crowd("a", cpu=1)], HOT)
    plugin = plugin_of(session, ReschedulingPlugin)
    plugin.victim_tasks(tasks_of(session, "a"))
    assert {gauge.name: gauge.value for gauge in plugin.gauges()} == {
        "vcd_rescheduling_victims": 1,
        "vcd_rescheduling_known_nodes": 2,
    }


def test_shuffle_evicts_in_one_statement_a_group() -> None:
    conf = config()
    snapshot = snapshot_of([*PAIR, *crowd("a", "b", cpu=1)], HOT, conf)
    (statement,) = plan_of(run(snapshot, read_policy(conf), NOW_NS, 0)).statements
    assert isinstance(statement, ev.Statement)
    assert (statement.action, [op.verb for op in statement.operations]) == ("shuffle", ["evict", "evict"])


# --- against plain loops ------------------------------------------------------------------------------------------

percents = st.integers(0, 100).map(float)


@settings(max_examples=examples(60), deadline=None)
@given(
    usage=st.lists(st.tuples(percents, percents), min_size=2, max_size=5),
    pods=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(0, 3)), max_size=8),
    target=st.integers(20, 90),
)
def test_the_choice_is_the_designs(
    usage: list[tuple[float, float]], pods: list[tuple[int, int, int]], target: int
) -> None:
    """Nodes of 10 cpu and 100 Gi; pods are (node, cpu, priority)."""
    pods = [entry for entry in pods if entry[0] < len(usage)]
    low = [i for i, (cpu, memory) in enumerate(usage) if cpu < 20 and memory < 20]
    high = [i for i in range(len(usage)) if i not in low and max(usage[i]) > target]
    left = sum(int(target * 10000 * 0.01) - int(usage[i][0] * 10000 * 0.01) for i in low)
    rest = sum(int(target * (100 << 30) * 0.01) - int(usage[i][1] * (100 << 30) * 0.01) for i in low)
    expected = []
    for i in sorted(high, key=lambda i: (-sum(usage[i]), i)) if low else []:
        cpu = usage[i][0]
        for j in sorted((j for j in range(len(pods)) if pods[j][0] == i), key=lambda j: (pods[j][2], j)):
            if max(cpu, usage[i][1]) < target or left <= 0 or rest <= 0:
                break
            cpu -= 100 * pods[j][1] * 1000 / 10000
            left -= pods[j][1] * 1000
            expected.append(f"p{j}")
    params = {"thresholds": {"cpu": 20, "memory": 20}, "targetThresholds": {"cpu": target, "memory": target}}
    strategies = [{"name": "lowNodeUtilization", "params": {**params, "nodeFit": False}}]
    cluster = [node(f"n{i}", cpu=10, memory=100) for i in range(len(usage))]
    running = [
        pod(f"p{j}", on=f"n{i}", group="g", cpu=cpu, spec={"priority": priority})
        for j, (i, cpu, priority) in enumerate(pods)
    ]
    shown = {f"n{i}": each for i, each in enumerate(usage)}
    found = evicted(*cluster, group("g", members=0), *running, usage=shown, strategies=strategies)
    assert sorted(found) == sorted(expected)

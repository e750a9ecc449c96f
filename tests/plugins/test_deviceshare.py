"""deviceshare: cards that pods share, one behaviour each, and the columns against the rules in plain loops."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dsl import (
    NOW_NS,
    gang,
    group,
    node,
    open_session,
    planned,
    pod,
    priority_class,
    queue,
    session_after,
    session_of,
)
from tests.plugins.opened import conf, plugin_of, queue_of, task_of
from tests.predicates.asking import passing, pending, reasons, refusal
from tests.scores.rating import named, points
from tests.sizes import examples
from tests.world import World
from vcd.model.status import TaskStatus
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import instances
from vcd.scheduling.framework.arguments import ArgumentError, parse_arguments
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.policy import PolicyError
from vcd.scheduling.plugins.deviceshare import DeviceSharePlugin
from vcd.scheduling.search.candidates import Memory
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement
from vcd.scheduling.session_close import plan_of
from vcd.timetravel.planning import PlanResult

Manifest = dict[str, Any]
NUMBER, MEMORY, CORES = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"
PERCENT = "volcano.sh/vgpu-memory-percentage"
IDS = "volcano.sh/vgpu-ids-new"
V100 = "NVIDIA-Tesla V100"


def config(weight: int = 0, policy: str = "", actions: str = "allocate", **more: Any) -> str:
    arguments = {"deviceshare.VGPUEnable": True, "deviceshare.ScheduleWeight": weight}
    if policy:
        arguments["deviceshare.SchedulePolicy"] = policy
    arguments |= {f"deviceshare.{key}": value for key, value in more.items()}
    return conf("priority", "gang", "predicates", "deviceshare", arguments=arguments, actions=actions)


def register(*cards: str) -> str:
    return "".join(f"{card}:" for card in cards)


def card(
    uuid: str, memory: int = 16000, slots: int = 10, kind: str = V100, health: str = "true", mode: str = ""
) -> str:
    return f"{uuid},{slots},{memory},{kind},{health},{mode or 'hami-core'}"


def gpus(name: str, *cards: str, text: str | None = None, **room: Any) -> Manifest:
    manifest = node(name, **{NUMBER: 100, MEMORY: 1000000, CORES: 10000, PERCENT: 10000, **room})
    manifest["metadata"]["annotations"] = {"volcano.sh/node-vgpu-register": register(*cards) if text is None else text}
    return manifest


def asks(
    number: int | None = 1, memory: int | None = None, cores: int | None = None, percent: int | None = None
) -> Manifest:
    stated = {NUMBER: number, MEMORY: memory, CORES: cores, PERCENT: percent}
    return {name: str(value) for name, value in stated.items() if value is not None}


def vpod(name: str, *, annotations: Manifest | None = None, on: str = "", ids: str = "", **options: Any) -> Manifest:
    """A pod with one container; ``ids`` are the cards that it has."""
    amounts = {key: options.pop(key) for key in ("number", "memory", "cores", "percent") if key in options}
    marks = {**(annotations or {}), **({IDS: ids} if ids else {})}
    return pod(name, on=on, annotations=marks, requests={"cpu": "1", **asks(**amounts)}, **options)


def opened(*objects: Any, **arguments: Any) -> Session:
    return session_of(*objects, conf=config(**arguments))


def nodes_for(*objects: Any, task: str | None = None, **arguments: Any) -> set[str]:
    return passing(opened(*objects, **arguments), "deviceshare", task)


def bound(*objects: Any, conf: str) -> dict[str, Manifest]:
    """What one cycle writes to the pods that it binds."""
    return {
        operation.key.partition("/")[2]: dict(operation.annotations)
        for statement in plan_of(session_after(*objects, conf=conf)).statements
        for operation in statement.operations
        if operation.verb == "bind"
    }


def test_annotations_of_a_bind_are_by_key_as_they_are_read_back() -> None:
    (marks,) = bound(
        gpus("n", card("a")), group("g"), vpod("p", group="g", number=1, memory=1000), conf=config()
    ).values()
    assert len(marks) > 1
    assert list(marks) == sorted(marks)


def chosen(*objects: Any, conf: str) -> dict[str, str]:
    """The cards that the pods bound in one cycle get."""
    return {name: annotations[IDS] for name, annotations in bound(*objects, conf=conf).items()}


def test_without_its_test_of_nodes_a_placement_without_a_card_is_refused() -> None:
    """As in Volcano: no node is left out or rated for its cards, and who gets none is not bound."""
    on = config(weight=9, policy="binpack")
    off = on.replace("name: deviceshare", "name: deviceshare\n    enablePredicate: false")
    small, large = gpus("a", card("A", 8000)), gpus("b", card("B", 16000))
    assert bound(small, large, vpod("p", memory=10000), conf=off) == {}
    assert chosen(small, large, vpod("p", memory=6000), conf=off) == {"p": "A,NVIDIA,6000,0:"}
    assert bound(small, large, vpod("p", memory=6000, cores=101), conf=off) == {}
    assert framework_of(session_after(small, vpod("p", memory=6000), conf=off)).evaluator.scores == ()


# --- room on cards ------------------------------------------------------------------------------------------------


def test_a_share_must_fit_one_card_however_much_the_node_has() -> None:
    halves = gpus("halves", card("A", 8000), card("B", 8000))
    assert nodes_for(halves, gpus("whole", card("C", 16000)), vpod("p", memory=10000)) == {"whole"}


FREE = card("A")


def taking(ids: str, **options: Any) -> Manifest:
    """A pod on the node that has these cards."""
    return vpod("a", on="n", memory=1, ids=ids, **options)


@pytest.mark.parametrize(
    ("cards", "there", "wanted", "fits"),
    [
        pytest.param([card("A", 8000), card("B", 8000)], [], asks(2, 8000), True, id="memory of each card"),
        pytest.param([card("A", 8000), card("B", 8000)], [], asks(2, 8001), False, id="too much memory of each"),
        pytest.param([FREE], [taking("A,NVIDIA,1,60:")], asks(1, 1, 40), True, id="the cores that are left"),
        pytest.param([FREE], [taking("A,NVIDIA,1,60:")], asks(1, 1, 41), False, id="more cores than are left"),
        pytest.param([FREE], [taking("A,NVIDIA,1,0:")], asks(1, 1, 100), False, id="all cores of a used card"),
        pytest.param([FREE, card("B")], [taking("A,NVIDIA,1,0:")], asks(1, 1, 100), True, id="all of a free card"),
        pytest.param([FREE], [taking("A,NVIDIA,1,100:")], asks(1, 1), False, id="a card without a core left"),
        pytest.param([card("A", slots=1)], [taking("A,NVIDIA,1,0:")], asks(1, 1), False, id="no slot left"),
        pytest.param([card("A", slots=2)], [taking("A,NVIDIA,1,0:")], asks(1, 1), True, id="a slot left"),
        pytest.param([card("A", health="false")], [], asks(1, 1), False, id="unhealthy"),
        pytest.param([card("A", kind="MLU-370")], [], asks(1, 1), False, id="not of NVIDIA"),
        pytest.param(
            [FREE], [taking("A,NVIDIA,9000,0:;A,NVIDIA,6000,0:")], asks(1, 2000), False, id="shares of two containers"
        ),
        pytest.param(
            [FREE], [taking("A,NVIDIA,16000,0:", phase="Succeeded")], asks(1, 16000), True, id="of a pod that ended"
        ),
    ],
)
def test_a_node_passes_if_its_cards_have_what_a_pod_requests(
    cards: list[str], there: list[Manifest], wanted: Manifest, fits: bool
) -> None:
    requesting = pod("p", requests={"cpu": "1", **wanted})
    assert nodes_for(gpus("n", *cards), *there, requesting) == ({"n"} if fits else set())


def test_a_pod_that_asks_for_memory_only_gets_one_card() -> None:
    result = chosen(gpus("n", card("A"), card("B")), vpod("p", number=None, memory=3000), conf=config())
    assert result == {"p": "B,NVIDIA,3000,0:"}


def test_a_pod_that_asks_for_no_memory_gets_all_of_the_card() -> None:
    result = chosen(gpus("n", card("A", 16000)), vpod("p"), conf=config())
    assert result == {"p": "A,NVIDIA,16000,0:"}


def test_a_percentage_is_of_the_card_and_goes_before_memory() -> None:
    result = chosen(gpus("n", card("A", 16001)), vpod("p", memory=3, percent=50), conf=config())
    assert result == {"p": "A,NVIDIA,8000,0:"}


def test_each_container_gets_its_own_cards() -> None:
    containers = [
        {"name": name, "resources": {"limits": asks(memory=memory)}} for name, memory in (("a", 9000), ("b", 8000))
    ]
    containers.insert(1, {"name": "none", "resources": {"limits": {"cpu": "1"}}})
    containers[0]["resources"]["requests"] = asks(memory=9000)
    two = pod("p", spec={"containers": containers})
    assert chosen(gpus("n", card("A"), card("B")), two, conf=config()) == {"p": "B,NVIDIA,9000,0:;A,NVIDIA,8000,0:"}


def test_a_pod_without_cards_is_not_tested() -> None:
    assert nodes_for(node("n"), vpod("q", memory=1), pod("p", cpu=1), task="p") == {"n"}


def test_with_every_switch_off_cards_are_not_looked_at() -> None:
    session = opened(gpus("n", card("A", 1)), vpod("p", memory=5), VGPUEnable=False)
    assert not plugin_of(session, DeviceSharePlugin).active
    assert framework_of(session).pre_predicate(pending(session)) is None


# --- what is written, and read back ---------------------------------------------------------------------------------


def test_the_bind_tells_the_device_plugin_everything() -> None:
    result = bound(gpus("n", card("A"), card("B")), vpod("p", number=2, memory=3000, cores=50), conf=config())
    seconds = str(NOW_NS // 10**9)
    cards = "B,NVIDIA,3000,50:A,NVIDIA,3000,50:"
    assert result == {
        "p": {
            "volcano.sh/vgpu-node": "n",
            "volcano.sh/vgpu-time": seconds,
            IDS: cards,
            "volcano.sh/devices-to-allocate": cards,
            "volcano.sh/bind-phase": "allocating",
            "volcano.sh/bind-time": seconds,
        }
    }


def test_pods_of_one_session_see_each_other() -> None:
    result = chosen(gpus("n", card("A"), card("B")), gang("g", 3, members=1, requests=asks(memory=9000)), conf=config())
    assert sorted(result.values()) == ["A,NVIDIA,9000,0:", "B,NVIDIA,9000,0:"]


def test_a_bind_in_flight_holds_its_card() -> None:
    world = World(gpus("n", card("A")), group("g"), vpod("p", memory=9000, group="g"), conf=config())
    assert [op.node for s in world.decide().statements for op in s.operations] == ["n"]
    world.put(group("h"), vpod("q", memory=9000, group="h"))
    assert world.decide().statements == ()
    assert "no card with enough room" in world.reasons("h")


@pytest.mark.parametrize("ids", ["A", "A,NVIDIA,x,0:", "A,NVIDIA,-5,0:", "Z,NVIDIA,16000,0:", ";;:,:,", "A,NVIDIA,1"])
def test_an_annotation_that_cannot_be_read_holds_nothing(ids: str) -> None:
    assert nodes_for(gpus("n", card("A")), vpod("a", on="n", memory=1, ids=ids), vpod("p", memory=16000)) == {"n"}


def test_a_discarded_trial_gives_its_cards_back() -> None:
    session = opened(gpus("n", card("A")), vpod("p", memory=9000), vpod("q", memory=9000))
    statement = Statement(session.trial, "allocate", pending(session, "p").job)
    statement.allocate([pending(session, "p")], [0])
    assert passing(session, "deviceshare", "q") == set()
    statement.discard()
    assert passing(session, "deviceshare", "q") == {"n"}


# --- room that is being freed -----------------------------------------------------------------------------------------


def test_room_of_a_leaving_pod_is_waited_for_and_not_given_out() -> None:
    leaving = vpod("a", on="n", memory=9000, ids="A,NVIDIA,9000,0:", deleting=True)
    idle = opened(gpus("n", card("A")), leaving, vpod("p", memory=9000))
    assert passing(idle, "deviceshare") == set()
    assert reasons(idle, "deviceshare") == {"node(s) had cards whose room is still being freed": 1}
    full = gpus("n", card("A"), **{MEMORY: 16000})
    assert nodes_for(full, leaving, vpod("p", memory=9000)) == {"n"}
    assert planned(full, leaving, vpod("p", memory=9000), conf=config()).binds == {}


def test_an_evicted_pods_card_counts_later_only_and_comes_back_with_undo() -> None:
    victim = vpod("a", on="n", memory=9000, ids="A,NVIDIA,9000,0:", group="v")
    session = opened(gpus("n", card("A"), **{MEMORY: 16000}), group("v"), victim, vpod("p", memory=9000))
    assert passing(session, "deviceshare") == set()
    statement = Statement(session.trial, "preempt", pending(session).job)
    statement.evict(task_of(session, "a"), "preempted")
    assert passing(session, "deviceshare") == {"n"}
    statement.pipeline([pending(session)], [0])
    statement.undo()
    assert passing(session, "deviceshare") == set()


def test_a_pod_that_waits_keeps_its_card_from_others() -> None:
    leaving = vpod("a", on="n", memory=9000, ids="A,NVIDIA,9000,0:", deleting=True)
    full = gpus("n", card("A"), **{MEMORY: 16000})
    session = opened(full, leaving, vpod("p", memory=9000), vpod("q", memory=7001))
    Statement(session.trial, "allocate", pending(session, "p").job).pipeline([pending(session, "p")], [0])
    assert passing(session, "deviceshare", "q") == set()


def test_a_trial_of_eviction_sees_the_card_free_whatever_else_the_node_has() -> None:
    victim = vpod("a", on="n", memory=9000, ids="A,NVIDIA,9000,0:", group="v")
    session = opened(gpus("n", card("A")), group("v"), victim, vpod("p", memory=9000))
    table = framework_of(session).candidates(pending(session))
    assert not table.passes_on(0)
    Statement(session.trial, "preempt", pending(session).job).evict(task_of(session, "a"), "preempted")
    assert table.passes_on(0)
    assert not table.passes(0)  # a bind would come before the card is free


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
def test_preemption_frees_a_card_although_the_node_has_room_in_sum(action: str) -> None:
    low = [vpod(f"a{i}", on="n", memory=9000, ids=f"{uuid},NVIDIA,9000,0:", group="low") for i, uuid in enumerate("AB")]
    high = vpod("p", memory=12000, group="high", spec={"priority": 100})
    groups = [priority_class("top", 100), group("low", members=0), group("high", priorityClassName="top")]
    cluster = [gpus("n", card("A"), card("B")), *groups, *low, high]
    plan = plan_of(session_after(*cluster, conf=config(0, actions=f"allocate, {action}")))
    done = [(op.verb, op.key) for statement in plan.statements for op in statement.operations]
    assert ("pipeline", "default/p") in done
    assert len([verb for verb, _ in done if verb == "evict"]) == 1


def test_no_eviction_helps_where_the_cards_are_too_small() -> None:
    taken = vpod("a", on="full", memory=16000, ids="B,NVIDIA,16000,0:")
    session = opened(gpus("small", card("A", 8000)), gpus("full", card("B")), taken, vpod("p", memory=16000))
    predicate = next(part for part in framework_of(session).evaluator.predicates if part.name == "deviceshare")
    usage, task = session.nodes.usage, pending(session)
    unresolvable = predicate.unresolvable_nodes(task, usage, ~predicate.mask(task, usage))
    assert dict(zip(session.nodes.facts.names, unresolvable.tolist(), strict=True)) == {"full": False, "small": True}


# --- which card, which node ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "expected"), [("binpack", "B"), ("spread", "A"), ("", "C")])
def test_the_policy_orders_a_nodes_cards(policy: str, expected: str) -> None:
    taken = [
        vpod("b1", on="n", memory=4000, ids="B,NVIDIA,4000,0:"),
        vpod("c1", on="n", memory=1000, ids="C,NVIDIA,1000,0:"),
    ]
    result = chosen(gpus("n", card("A"), card("B"), card("C")), *taken, vpod("p", memory=2000), conf=config(0, policy))
    assert result["p"].startswith(f"{expected},")


def test_binpack_scores_memory_used_with_the_pod() -> None:
    cluster = [gpus("n", card("A", 16000), card("B", 8000)), vpod("a", on="n", memory=4000, ids="A,NVIDIA,4000,0:")]
    session = opened(*cluster, vpod("p", number=2, memory=4000), weight=3, policy="binpack")
    assert points(session, "deviceshare") == {"n": 100 * 8000 / 16000 + 100 * 4000 / 8000}
    assert named(session, "deviceshare").weight == 3


def test_spread_scores_cards_that_nobody_used() -> None:
    cluster = [gpus("n", card("A"), card("B")), vpod("a", on="n", memory=4000, ids="A,NVIDIA,4000,0:")]
    session = opened(*cluster, vpod("p", number=2, memory=4000), weight=1, policy="spread")
    assert points(session, "deviceshare") == {"n": 100}


def test_the_score_is_rounded_to_the_next_integer() -> None:
    session = opened(
        gpus("n", card("A", 3)), gpus("m", card("B", 200)), vpod("p", memory=1), weight=1, policy="binpack"
    )
    assert points(session, "deviceshare") == {"n": 33, "m": 1}


@pytest.mark.parametrize("weight", [0, -1])
def test_without_a_weight_nothing_is_scored(weight: int) -> None:
    assert framework_of(opened(gpus("n", card("A")), vpod("p"), weight=weight, policy="binpack")).evaluator.scores == ()


@pytest.mark.parametrize(("policy", "expected"), [("binpack", "used"), ("spread", "free")])
def test_pods_go_where_the_policy_wants(policy: str, expected: str) -> None:
    cluster = [gpus("used", card("A")), gpus("free", card("B"))]
    taken = vpod("a", on="used", memory=4000, ids="A,NVIDIA,4000,0:")
    result = planned(*cluster, taken, vpod("p", memory=4000), conf=config(10, policy))
    assert result.binds == {"default/p": expected}


# --- annotations of pods ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, {"v", "a"}),
        ({"nvidia.com/use-gputype": "a100"}, {"a"}),
        ({"nvidia.com/use-gputype": "T4, v100"}, {"v"}),
        ({"nvidia.com/nouse-gputype": "V100"}, {"a"}),
        ({"nvidia.com/nouse-gputype": "V100,A100"}, set()),
        ({"nvidia.com/use-gputype": "V100", "nvidia.com/nouse-gputype": "V100"}, {"v"}),
        ({"volcano.sh/vgpu-use-gpuuuid": " A , Z"}, {"v"}),
        ({"volcano.sh/vgpu-nouse-gpuuuid": "A"}, {"a"}),
        ({"volcano.sh/vgpu-use-gpuuuid": "A", "volcano.sh/vgpu-nouse-gpuuuid": "A"}, set()),
        ({"volcano.sh/vgpu-use-gpuuuid": " , "}, {"v", "a"}),
        ({"volcano.sh/vgpu-mode": "hami-core"}, {"v", "a"}),
        ({"volcano.sh/vgpu-mode": "mps"}, set()),
    ],
)
def test_annotations_choose_cards(annotations: Manifest, expected: set[str]) -> None:
    cluster = [gpus("v", card("A")), gpus("a", card("B", kind="NVIDIA-A100-PCIE"))]
    assert nodes_for(*cluster, vpod("p", memory=1, annotations=annotations)) == expected


def test_pods_alike_but_for_their_annotations_are_told_apart() -> None:
    cluster = [gpus("a", card("A")), gpus("b", card("B")), gpus("c", card("C"))]
    pods = [vpod(f"p{uuid}", memory=1, group="g", annotations={"volcano.sh/vgpu-use-gpuuuid": uuid}) for uuid in "ABC"]
    result = planned(*cluster, group("g", members=3), *pods, conf=config())
    assert result.binds == {"default/pA": "a", "default/pB": "b", "default/pC": "c"}


def test_the_tables_that_are_kept_do_not_mix_pods_with_other_annotations() -> None:
    memory, policy = Memory(), read_policy(config())
    cluster = [gpus("a", card("A")), gpus("b", card("B"))]

    def row_for(uuid: str) -> str:
        ask = vpod("p", memory=1, annotations={"volcano.sh/vgpu-use-gpuuuid": uuid})
        snapshot = session_of(*cluster, ask, conf=config()).snapshot
        session = open_session(snapshot, policy, instances(policy), NOW_NS, 0, memory)
        row = framework_of(session).candidates(pending(session)).best()
        return session.nodes.facts.names[row] if row is not None else ""

    assert [row_for(uuid) for uuid in "ABA"] == ["a", "b", "a"]


def test_running_pods_are_told_apart_too() -> None:
    """Who moves them (rescheduling) asks where they could go."""
    running = [
        vpod(f"p{uuid}", on="a", memory=1, ids="A,NVIDIA,1,0:", annotations={"volcano.sh/vgpu-use-gpuuuid": uuid})
        for uuid in "AB"
    ]
    session = opened(gpus("a", card("A")), gpus("b", card("B")), *running)
    tables = [framework_of(session).candidates(task_of(session, f"p{uuid}")).passing().tolist() for uuid in "AB"]
    assert tables == [[True, False], [False, True]]


def test_pods_of_a_group_that_spreads_share_no_card() -> None:
    policy = {"volcano.sh/vgpu-podgroup-policy": "spread"}
    pods = [vpod(f"p{i}", memory=1, group="g", annotations=policy) for i in range(3)]
    result = chosen(gpus("n", card("A"), card("B")), group("g"), *pods, conf=config(0, "binpack"))
    assert sorted(result.values()) == ["A,NVIDIA,1,0:", "B,NVIDIA,1,0:"]


def test_running_pods_of_the_group_count_with_or_without_the_annotation() -> None:
    running = vpod("a", on="n", memory=1, group="g", ids="A,NVIDIA,1,0:")
    spread = vpod("p", memory=1, group="g", annotations={"volcano.sh/vgpu-podgroup-policy": "spread"})
    other = vpod("q", memory=1, group="h", annotations={"volcano.sh/vgpu-podgroup-policy": "spread"})
    cluster = [gpus("n", card("A")), group("g"), group("h"), running, spread, other]
    assert nodes_for(*cluster, task="p") == set()
    assert nodes_for(*cluster, task="q") == {"n"}


RULES = "[{workloadType: training}, {workloadType: batch, priority: high}]"


def test_pods_of_one_rule_share_no_card() -> None:
    pods = [vpod(f"p{i}", memory=1, labels={"workloadType": "training"}) for i in range(3)]
    result = chosen(gpus("n", card("A"), card("B")), *pods, conf=config(0, "binpack", GPUExclusiveRules=RULES))
    assert sorted(result.values()) == ["A,NVIDIA,1,0:", "B,NVIDIA,1,0:"]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"workloadType": "training"}, set()),
        ({"workloadType": "batch", "priority": "high"}, {"n"}),
        ({"workloadType": "batch"}, {"n"}),
        ({}, {"n"}),
    ],
)
def test_other_rules_and_pods_without_one_do_not_mind(labels: Manifest, expected: set[str]) -> None:
    holder = vpod("a", on="n", memory=1, labels={"workloadType": "training"}, ids="A,NVIDIA,1,0:")
    cluster = [gpus("n", card("A")), holder, vpod("p", memory=1, labels=labels)]
    assert nodes_for(*cluster, GPUExclusiveRules=RULES) == expected


def test_numbers_and_truth_values_in_rules_are_texts() -> None:
    holder = vpod("a", on="n", memory=1, labels={"tier": "5", "batch": "true"}, ids="A,NVIDIA,1,0:")
    cluster = [gpus("n", card("A")), holder, vpod("p", memory=1, labels={"tier": "5", "batch": "true"})]
    assert nodes_for(*cluster, GPUExclusiveRules="[{tier: 5, batch: true}]") == set()
    assert nodes_for(*cluster, GPUExclusiveRules="[{tier: 6, batch: true}]") == {"n"}


@pytest.mark.parametrize("rules", ["[{}]", "[text]"])
def test_a_rule_without_labels_is_an_error(rules: str) -> None:
    with pytest.raises(PolicyError, match=r"labels and their values|must be a mapping of <label>|must be a list"):
        read_policy(config(GPUExclusiveRules=rules))


# --- bad objects, and reasons ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amounts", "words"),
    [
        ({NUMBER: "1", CORES: "101"}, "more than 100 percent"),
        ({NUMBER: "1", PERCENT: "150"}, "more than 100 percent"),
        ({NUMBER: "500m"}, "must be a whole number"),
        ({NUMBER: "1", MEMORY: "3G"}, "must be a whole number below 2^31"),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_containers_name(amounts: Manifest, words: str) -> None:
    session = opened(gpus("n", card("A")), pod("p", requests=amounts))
    said = refusal(session)
    assert said is not None and said.startswith("container c") and words in said


def test_a_container_that_asks_for_no_card_gets_none() -> None:
    assert bound(gpus("n", card("A")), vpod("p", number=0), conf=config()) == {"p": {}}


@pytest.mark.parametrize(
    ("name", "manifest", "said"),
    [
        ("none", node("n"), "node(s) had no vGPU cards registered"),
        ("no allocatable", gpus("n", card("A"), **{CORES: 0}), "node(s) had no vGPU cards registered"),
        ("short", gpus("n", text="A,10,16000:"), "cannot be read"),
        ("no number", gpus("n", text="A,ten,16000,NVIDIA,true,hami-core:"), "cannot be read"),
        ("twice", gpus("n", card("A"), card("A")), "cannot be read"),
        ("empty", gpus("n", text=""), "cannot be read"),
        ("negative", gpus("n", text="A,10,-16000,NVIDIA,true,hami-core:"), "cannot be read"),
        ("small", gpus("n", card("A", 10)), "too few cards of the kind and size"),
    ],
)
def test_reasons_say_what_is_wrong_with_a_node(name: str, manifest: Manifest, said: str) -> None:
    (reason,) = reasons(opened(manifest, vpod("p", memory=2000)), "deviceshare")
    assert said in reason


def test_reasons_tell_mode_from_room() -> None:
    taken = vpod("a", on="n", memory=16000, ids="A,NVIDIA,16000,0:")
    assert reasons(opened(gpus("n", card("A")), taken, vpod("p", memory=1)), "deviceshare") == {
        "node(s) had no card with enough room": 1
    }
    (reason,) = reasons(
        opened(gpus("n", card("A")), vpod("p", memory=1, annotations={"volcano.sh/vgpu-mode": "mig"})), "deviceshare"
    )
    assert "in another mode" in reason


@pytest.mark.parametrize(
    ("on", "said"),
    [
        (("VGPUEnable", "GPUSharingEnable"), "GPUSharingEnable: must be false where deviceshare.VGPUEnable is true"),
        (("VGPUEnable", "GPUNumberEnable"), "GPUNumberEnable: must be false where deviceshare.VGPUEnable is true"),
        (("GPUSharingEnable", "GPUNumberEnable"), "GPUNumberEnable: must be false where deviceshare.GPUSharingEnable"),
    ],
)
def test_switches_that_exclude_each_other_are_an_error_when_the_file_is_read(on: tuple[str, ...], said: str) -> None:
    arguments = {f"deviceshare.{name}": True for name in on}
    with pytest.raises(PolicyError, match=re.escape(said)):
        read_policy(conf("deviceshare", arguments=arguments))


def test_another_policy_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="binpack, spread"):
        parse_arguments(DeviceSharePlugin.arguments, {"deviceshare.SchedulePolicy": "binpak"})


# --- what is not supported ----------------------------------------------------------------------------------------

MIND, HAMI = "AscendMindClusterVNPUEnable", "AscendHAMiVNPUEnable"
NPU, NPU_MEMORY, NPU_CORE = "huawei.com/Ascend310P", "huawei.com/Ascend310P-memory", "huawei.com/npu-core"


@pytest.mark.parametrize("switch", [MIND, HAMI])
def test_a_configuration_that_turns_on_virtual_npus_is_warned_of(switch: str) -> None:
    (warning,) = read_policy(conf("deviceshare", arguments={f"deviceshare.{switch}": True})).warnings
    assert warning.line == 6
    assert f"deviceshare.{switch}: Not supported: pods that request virtual Ascend NPUs wait" in str(warning)
    assert read_policy(conf("deviceshare", arguments={f"deviceshare.{switch}": False})).warnings == ()


@pytest.mark.parametrize(
    ("switch", "asked", "placed"),
    [
        (MIND, {NPU_CORE: "1"}, False),
        (MIND, {NPU: "1"}, True),
        (HAMI, {NPU: "1"}, False),
        (HAMI, {NPU_MEMORY: "1024"}, False),
        (HAMI, {NPU_CORE: "1"}, True),
        (HAMI, {"cpu": "1"}, True),
        ("NodeLockEnable", {NPU: "1"}, True),
    ],
)
def test_pods_that_ask_for_virtual_npus_wait_where_these_are_turned_on(
    switch: str, asked: Manifest, placed: bool
) -> None:
    """Bound without the annotations that its device plugin needs, such a pod would get whichever NPU."""
    there = node("n", **{NPU: 8, NPU_MEMORY: 8000, NPU_CORE: 8})
    text = conf("gang", "predicates", "deviceshare", arguments={f"deviceshare.{switch}": True}, actions="allocate")
    result = planned(there, group("g"), pod("p", group="g", requests={"cpu": "1"} | asked), conf=text)
    assert result.binds == ({"default/p": "n"} if placed else {})
    reasons_ = [entry["reason"] for entries in result.why.values() for entry in entries]
    assert placed or any("Ascend vNPU is not supported" in reason for reason in reasons_)


@pytest.mark.parametrize("listed", ["\n- {resourceName: ex.com/npu}", "\n  configs:\n  - {resourceName: ex.com/npu}"])
def test_the_config_map_says_which_resources_are_virtual_npus(listed: str) -> None:
    text = conf("gang", "predicates", "deviceshare", arguments={f"deviceshare.{HAMI}": True}, actions="allocate")
    cluster = [
        node("n", **{"ex.com/npu": 8, NPU: 8}),
        pod("a", requests={"ex.com/npu": "1"}),
        pod("b", requests={NPU: "1"}),
    ]
    assert planned(config_map(f"vnpus:{listed}\n"), *cluster, conf=text).binds == {"default/b": "n"}
    assert planned(config_map("vnpus: 5"), *cluster, conf=text).binds == {"default/a": "n", "default/b": "n"}
    assert planned(*cluster, conf=text).binds == {"default/a": "n"}


# --- queues -------------------------------------------------------------------------------------------------------


def capped(**capability: Any) -> Manifest:
    names = {"memory": MEMORY, "cores": CORES}
    return queue("q", capability={names[key]: str(value) for key, value in capability.items()})


def in_queue(*objects: Any, **options: Any) -> PlanResult:
    return planned(*objects, conf=config(0, **options))


def test_a_capability_holds_for_the_sum_over_cards() -> None:
    cluster = [gpus("n", card("A"), card("B")), group("g", queue="q"), vpod("p", group="g", number=2, memory=3000)]
    assert in_queue(capped(memory=6000), *cluster).binds == {"default/p": "n"}
    refused = in_queue(capped(memory=5999), *cluster)
    assert refused.binds == {}
    (why,) = [waiting for waiting in refused.why["default/g"] if waiting["gate"] == "queue"]
    assert "capability of volcano.sh/vgpu-memory, summed over cards" in why["reason"]
    assert why["detail"] == {
        "queue": "q",
        f"asks {MEMORY}": "6k",
        f"allocated {MEMORY}": "0",
        f"capability {MEMORY}": "5999",
    }


def test_cores_are_summed_over_cards_as_well() -> None:
    cluster = [gpus("n", card("A"), card("B")), group("g", queue="q")]
    ask = vpod("p", group="g", number=2, memory=1, cores=30)
    assert in_queue(capped(cores=60), *cluster, ask).binds == {"default/p": "n"}
    assert in_queue(capped(cores=59), *cluster, ask).binds == {}


def test_what_runs_counts_by_its_annotation() -> None:
    running = vpod("a", on="n", group="g", number=2, memory=3000, ids="A,NVIDIA,3000,0:B,NVIDIA,3000,0:")
    cluster = [gpus("n", card("A"), card("B")), group("g", queue="q"), running, vpod("p", group="g", memory=2000)]
    assert in_queue(capped(memory=8000), *cluster).binds == {"default/p": "n"}
    assert in_queue(capped(memory=7999), *cluster).binds == {}


def test_what_runs_on_cards_that_nobody_knows_counts_by_what_it_asks_for() -> None:
    running = vpod("a", on="n", group="g", number=2, memory=3000)
    cluster = [gpus("n", card("A"), card("B")), group("g", queue="q"), running, vpod("p", group="g", memory=2000)]
    assert in_queue(capped(memory=7999), *cluster).binds == {}


def test_what_runs_counts_when_its_group_is_gone() -> None:
    """Its queue is what the pod says, where nobody saw the group."""
    running = vpod("a", on="n", group="gone", number=2, memory=3000, ids="A,NVIDIA,3000,0:B,NVIDIA,3000,0:")
    running["metadata"]["labels"] = {"volcano.sh/queue-name": "q"}
    cluster = [gpus("n", card("A"), card("B")), group("g", queue="q"), running, vpod("p", group="g", memory=2000)]
    assert in_queue(capped(memory=8000), *cluster).binds == {"default/p": "n"}
    assert in_queue(capped(memory=7999), *cluster).binds == {}


def test_pods_of_one_session_count_together() -> None:
    cluster = [gpus("n", card("A"), card("B")), gang("g", 3, members=1, queue="q", requests=asks(2, 1000))]
    assert len(in_queue(capped(memory=5999), *cluster).binds) == 2


def test_shares_of_cards_are_measured_on_the_node_chosen() -> None:
    cluster = [gpus("big", card("A", 32000)), gpus("small", card("B", 8000)), group("g", queue="q")]
    ask = vpod("p", group="g", percent=50)
    assert in_queue(capped(memory=4000), *cluster, ask).binds == {"default/p": "small"}
    assert in_queue(capped(memory=3999), *cluster, ask).binds == {}
    session = session_of(capped(memory=3999), *cluster, ask, conf=config())
    (reason,) = reasons(session, "deviceshare")
    assert "exceeds what its queue has left" in reason


def test_an_ancestors_capability_holds_too() -> None:
    parent = queue("p", capability={MEMORY: "3000"})
    child, other = queue("c", parent="p"), queue("d", parent="p")
    cluster = [gpus("n", card("A")), group("g", queue="c"), group("h", queue="d")]
    pods = [vpod("a", group="g", memory=2000), vpod("b", group="h", memory=2000)]
    assert len(in_queue(parent, child, other, *cluster, *pods).binds) == 1


def test_queues_that_are_each_others_parents_end() -> None:
    session = opened(
        queue("a", parent="b", capability={MEMORY: "5"}), queue("b", parent="a"), gpus("n", card("A")), vpod("p")
    )
    assert plugin_of(session, DeviceSharePlugin).limits.memory_left("b") == 5


def test_an_eviction_gives_its_queue_room_and_its_undo_takes_it_back() -> None:
    running = vpod("a", on="n", group="g", memory=3000, ids="A,NVIDIA,3000,0:")
    session = opened(
        capped(memory=3000), gpus("n", card("A")), group("g", queue="q"), running, vpod("p", group="g", memory=1)
    )
    asking, home = pending(session), queue_of(session, "q")
    plugin = plugin_of(session, DeviceSharePlugin)
    assert framework_of(session).allocatable(home, asking, 1) is not None
    assert plugin.preemptive(home, [asking]) is not None
    statement = Statement(session.trial, "reclaim", asking.job)
    statement.evict(task_of(session, "a"), "reclaimed")
    assert framework_of(session).allocatable(home, asking, 1) is None
    assert plugin.preemptive(home, [asking]) is None
    statement.discard()
    assert framework_of(session).allocatable(home, asking, 1) is not None


# --- MIG ----------------------------------------------------------------------------------------------------------

A100 = "NVIDIA-A100-SXM4-40GB"
DEVICE_CONFIG = """
nvidia:
  knownMigGeometries:
  - models: ["A100-SXM4-40GB"]
    allowedGeometries:
    - group: group1
      geometries:
      - {name: 1g.5gb, memory: 5120, count: 7}
    - group: group2
      geometries:
      - {name: 2g.10gb, memory: 10240, count: 3}
      - {name: 1g.5gb, memory: 5120, count: 1}
"""


def config_map(text: str, name: str = "volcano-vgpu-device-config", namespace: str = "kube-system") -> Manifest:
    """The device plugin's ConfigMap."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"device-config.yaml": text}}


def with_config(text: str, *objects: Any, **more: Any) -> Session:
    """A session of a cluster that has the device plugin's ConfigMap."""
    return opened(config_map(text), *objects, **more)


def placed_ids(session: Session, *names: str, row: int = 0) -> list[str]:
    """The cards that pods get one after another."""
    found = []
    for name in names:
        task = task_of(session, name)
        Statement(session.trial, "allocate", task.job).allocate([task], [row])
        found.append(session.trial.hooks.annotations(task, row).get(IDS, ""))
    return found


def mig(*uuids: str) -> Manifest:
    return gpus("n", *[card(uuid, 40960, kind=A100, mode="mig") for uuid in uuids])


def test_a_mig_share_is_the_smallest_instance_of_the_first_way_to_cut() -> None:
    session = with_config(DEVICE_CONFIG, mig("A"), vpod("p", memory=3000), vpod("q", memory=6000))
    assert placed_ids(session, "p") == ["A[group1-0],NVIDIA,3000,0:"]
    assert passing(session, "deviceshare", "q") == set()  # the card is cut into 5 GB now


def test_a_larger_share_cuts_the_card_in_another_way() -> None:
    session = with_config(DEVICE_CONFIG, mig("A"), *[vpod(f"p{i}", memory=6000) for i in range(4)], vpod("q", memory=1))
    assert placed_ids(session, "p0", "p1", "p2") == [f"A[group2-{i}],NVIDIA,6000,0:" for i in range(3)]
    assert passing(session, "deviceshare", "p3") == set()
    assert placed_ids(session, "q") == ["A[group2-3],NVIDIA,1,0:"]


def test_what_pods_have_of_a_mig_card_is_read_back() -> None:
    holders = [vpod(f"a{i}", on="n", memory=6000, ids=f"A[group2-{i}],NVIDIA,6000,0:") for i in (0, 2)]
    session = with_config(DEVICE_CONFIG, mig("A"), *holders, vpod("p", memory=6000))
    assert placed_ids(session, "p") == ["A[group2-1],NVIDIA,6000,0:"]


def test_two_containers_get_two_instances() -> None:
    containers = [{"name": name, "resources": {"limits": asks(memory=6000)}} for name in "ab"]
    session = with_config(DEVICE_CONFIG, mig("A"), pod("p", spec={"containers": containers}))
    assert placed_ids(session, "p") == ["A[group2-0],NVIDIA,6000,0:;A[group2-1],NVIDIA,6000,0:"]


def test_a_pod_for_mig_goes_to_mig_nodes_only() -> None:
    wanted = {"volcano.sh/vgpu-mode": "mig"}
    session = with_config(DEVICE_CONFIG, mig("A"), gpus("h", card("B")), vpod("p", memory=1, annotations=wanted))
    assert passing(session, "deviceshare") == {"n"}


def test_binpack_counts_the_instances_memory() -> None:
    session = with_config(DEVICE_CONFIG, mig("A"), vpod("p", memory=6000), weight=1, policy="binpack")
    assert points(session, "deviceshare") == {"n": 25}


def test_rules_of_exclusive_cards_do_not_count_on_mig_nodes() -> None:
    holder = vpod("a", on="n", memory=6000, labels={"workloadType": "training"}, ids="A[group2-0],NVIDIA,6000,0:")
    ask = vpod("p", memory=6000, labels={"workloadType": "training"})
    assert passing(with_config(DEVICE_CONFIG, mig("A"), holder, ask, GPUExclusiveRules=RULES), "deviceshare") == {"n"}


def test_the_arguments_name_the_config_map() -> None:
    cluster = [mig("A"), vpod("p", memory=1)]
    elsewhere = {"KnownGeometriesCMName": "mine", "KnownGeometriesCMNamespace": "ours"}
    mine, other = config_map(DEVICE_CONFIG, "mine", "ours"), config_map(DEVICE_CONFIG, "other", "ours")
    assert nodes_for(mine, *cluster, **elsewhere) == {"n"}
    assert nodes_for(other, *cluster, **elsewhere) == {"n"}
    wanted = [mig("A"), vpod("p", memory=1, annotations={"volcano.sh/vgpu-mode": "mig"})]
    assert nodes_for(mine, *wanted, **elsewhere) == {"n"}
    assert nodes_for(other, *wanted, **elsewhere) == set()


def test_the_configuration_names_resources_and_the_factor() -> None:
    text = DEVICE_CONFIG + "  gpuMemoryFactor: 10\n  resourceMemoryName: example.com/blocks\n"
    session = with_config(
        text,
        gpus("n", card("A", 4096, kind=A100, mode="mig"), **{"example.com/blocks": 4096}),
        pod("p", requests={"example.com/blocks": "600"}),
        pod("q", requests={"example.com/blocks": "600"}),
    )
    assert placed_ids(session, "p", "q") == ["A[group2-0],NVIDIA,600,0:", "A[group2-1],NVIDIA,600,0:"]


@pytest.mark.parametrize(
    "text",
    ["", "{", "nvidia: 5", "nvidia: {knownMigGeometries: [5, {models: x}]}", "since: 2026-02-30", "a: " + "[" * 4000],
)
def test_a_configuration_that_cannot_be_read_knows_no_geometry(text: str) -> None:
    assert placed_ids(with_config(text, mig("A"), vpod("p", memory=1)), "p") == ["A,NVIDIA,1,0:"]


def test_cards_of_a_model_that_nobody_knows_are_shared_by_hami_core() -> None:
    unknown = gpus("n", card("A", 40960, kind="NVIDIA-H20", mode="mig"))
    session = with_config(DEVICE_CONFIG, unknown, vpod("p", memory=3000), vpod("q", memory=3000))
    assert placed_ids(session, "p", "q") == ["A,NVIDIA,3000,0:"] * 2
    mode = {"volcano.sh/vgpu-mode": "mig"}
    assert passing(with_config(DEVICE_CONFIG, unknown, vpod("p", memory=1, annotations=mode)), "deviceshare") == set()


def test_without_a_config_map_no_model_is_known() -> None:
    assert placed_ids(opened(mig("A"), vpod("p", memory=3000)), "p") == ["A,NVIDIA,3000,0:"]


# --- one pod at a time --------------------------------------------------------------------------------------------

TIME, PHASE = "volcano.sh/bind-time", "volcano.sh/bind-phase"
LOCK = {"NodeLockEnable": True}
SECONDS = NOW_NS // 10**9


def handed(name: str, phase: str = "allocating", age: int = 0, status: str = "Pending", **options: Any) -> Manifest:
    """A pod that was bound some seconds ago, and what its node's device plugin did since."""
    marks = {PHASE: phase, TIME: str(SECONDS - age)}
    return vpod(name, on="n", memory=1000, ids="A,NVIDIA,1000,0:", phase=status, annotations=marks, **options)


def test_a_node_takes_one_pod_with_cards_until_its_device_plugin_took_it_over() -> None:
    """Pods of one time cannot be told apart by the device plugin, which pairs them with their cards by it."""
    cluster = [gpus("n", card("A"), card("B")), gang("g", 3, members=1, requests=asks(memory=1000)), pod("free")]
    world = World(*cluster, conf=config(**LOCK))
    assert len([op for s in world.decide().statements for op in s.operations if op.key.startswith("default/g")]) == 1
    assert world.decide().statements == ()  # the bind is under way
    (first,) = world.state.intents
    assert first == "default/g-0"
    world.put(handed("g-0", group="g"))
    assert world.decide().statements == ()
    assert "still hands out the cards of another pod" in world.reasons("g")
    world.put(handed("g-0", group="g", phase="success"))
    assert [op.key for s in world.decide().statements for op in s.operations] == ["default/g-1"]


@pytest.mark.parametrize(
    ("there", "taken"),
    [
        (handed("a"), False),
        (handed("a", age=300), False),
        (handed("a", age=301), True),
        (handed("a", phase="success"), True),
        (handed("a", phase="failed"), True),
        (handed("a", status="Running"), True),
        (handed("a", status="Succeeded"), True),
        (handed("a", deleting=True), False),
        (handed("a", deleting=True, status="Running"), True),
        (handed("a", age=-(10**9)), True),  # a time that cannot be
    ],
)
def test_who_keeps_the_next_pod_with_cards_from_a_node(there: Manifest, taken: bool) -> None:
    session = opened(gpus("n", card("A")), there, vpod("p", memory=1000), **LOCK)
    assert passing(session, "one pod at a time") == ({"n"} if taken else set())
    assert nodes_for(gpus("n", card("A")), there, vpod("p", memory=1000)) == {"n"}


@pytest.mark.parametrize(("age", "taken"), [(0, False), (299, False), (301, True)])
def test_the_lock_that_another_scheduler_wrote_on_a_node_holds_for_five_minutes(age: int, taken: bool) -> None:
    locked = gpus("n", card("A"))
    at = datetime.datetime.fromtimestamp(SECONDS - age, datetime.UTC).isoformat().replace("+00:00", "Z")
    locked["metadata"]["annotations"]["hamivgpu"] = at
    session = opened(locked, vpod("p", memory=1000), **LOCK)
    assert passing(session, "one pod at a time") == ({"n"} if taken else set())


def test_pods_without_cards_go_anywhere() -> None:
    assert bound(gpus("n", card("A")), handed("a"), pod("p", cpu=1), conf=config(**LOCK)).keys() == {"p"}


def test_a_trial_that_is_taken_back_leaves_the_node_to_others() -> None:
    session = opened(gpus("n", card("A")), vpod("p", memory=1000), vpod("q", memory=1000), **LOCK)
    first = task_of(session, "p")
    statement = Statement(session.trial, "allocate", first.job)
    statement.allocate([first], [0])
    assert passing(session, "one pod at a time", "q") == set()
    statement.discard()
    assert passing(session, "one pod at a time", "q") == {"n"}


def test_nobody_is_evicted_where_a_node_has_room_as_soon_as_its_device_plugin_is_done() -> None:
    """Other nodes' pods go for a preemptor only when it would not have its room without them."""
    classes = [priority_class("high", 10), priority_class("low", 1)]
    victim = vpod("v", on="m", group="low", memory=16000, ids="B,NVIDIA,16000,0:")
    low = [group("low", members=0, priorityClassName="low"), victim]
    asking = [group("high", priorityClassName="high"), vpod("p", group="high", memory=1000)]
    cluster = [*classes, gpus("m", card("B")), *low, *asking]
    actions = "allocate, preempt"
    free, full = gpus("n", card("A")), gpus("n", card("A"), cpu=1)
    assert planned(free, handed("a"), *cluster, conf=config(actions=actions, **LOCK)).evictions == []
    assert planned(full, handed("a"), *cluster, conf=config(actions=actions, **LOCK)).evictions == ["default/v"]


def test_a_full_node_can_be_waited_for_while_it_hands_out_cards() -> None:
    """A pod that waits there gets no cards yet."""
    leaving = pod("b", on="n", cpu=8, deleting=True)
    cluster = [gpus("n", card("A"), cpu=8), handed("a"), leaving, vpod("p", memory=1000)]
    session = opened(*cluster, **LOCK)
    assert passing(session, "one pod at a time") == {"n"}


def test_without_the_switch_pods_of_one_node_have_times_of_their_own() -> None:
    """The device plugin takes the oldest first; of two with one time it may take either."""
    nodes = [gpus("m", card("C")), gpus("n", card("A"))]
    result = bound(*nodes, handed("a", age=-1), gang("g", 4, members=1, requests=asks(memory=5000)), conf=config())
    times: dict[str, list[int]] = {}
    for written in result.values():
        times.setdefault(written["volcano.sh/vgpu-node"], []).append(int(written[TIME]))
    assert len(result) == 4
    assert sorted(times["n"]) == [SECONDS + 2 + i for i in range(len(times["n"]))]
    assert sorted(times["m"]) == [SECONDS + i for i in range(len(times["m"]))]


def test_gpu_sharing_keeps_to_one_pod_at_a_time_as_well() -> None:
    cluster = [indexed("n"), *gang("g", 2, members=1, requests={GPU_MEMORY: "500"})]
    times = [int(written["volcano.sh/predicate-time"]) for written in bound(*cluster, conf=old("GPUSharing")).values()]
    assert sorted(times) == [NOW_NS, NOW_NS + 1]
    assert len(bound(*cluster, conf=old("GPUSharing", **LOCK))) == 1


# --- GPU sharing and GPU number -----------------------------------------------------------------------------------

GPU_MEMORY, GPU_NUMBER, INDEX = "volcano.sh/gpu-memory", "volcano.sh/gpu-number", "volcano.sh/gpu-index"


def old(kind: str, **more: Any) -> str:
    arguments = {f"deviceshare.{key}": value for key, value in {f"{kind}Enable": True, **more}.items()}
    return conf("gang", "predicates", "deviceshare", arguments=arguments, actions="allocate")


def indexed(name: str, memory: int = 2000, number: int = 2, ill: str = "") -> Manifest:
    manifest = node(name, **{GPU_MEMORY: memory, GPU_NUMBER: number})
    manifest["metadata"]["annotations"] = {"volcano.sh/gpu-unhealthy-ids": ill} if ill else {}
    return manifest


def sharing(name: str, memory: int, on: str = "", index: str = "", **options: Any) -> Manifest:
    marks = {INDEX: index} if index else {}
    return pod(name, on=on, annotations=marks, requests={GPU_MEMORY: str(memory)}, **options)


def test_memory_must_fit_one_card_of_equal_size() -> None:
    for memory, expected in ((1000, {"n"}), (1001, set())):
        session = session_of(indexed("n"), sharing("p", memory), conf=old("GPUSharing"))
        assert passing(session, "deviceshare") == expected


def test_the_first_card_with_room_is_taken_and_written() -> None:
    taken = sharing("a", 800, on="n", index="0")
    result = bound(indexed("n"), taken, sharing("p", 300), conf=old("GPUSharing"))
    assert result == {"p": {INDEX: "1", "volcano.sh/predicate-time": str(NOW_NS)}}


def test_pods_that_ended_use_no_memory() -> None:
    ended = sharing("a", 1000, on="n", index="0", phase="Failed")
    assert bound(indexed("n"), ended, sharing("p", 1000), conf=old("GPUSharing"))["p"][INDEX] == "0"


def test_a_card_that_holds_more_than_it_has_takes_no_more() -> None:
    over = [sharing(f"a{i}", 900, on="n", index="0") for i in range(2)]
    result = bound(indexed("n", 4000), *over, sharing("p", 1500), conf=old("GPUSharing"))
    assert result["p"][INDEX] == "1"


def test_unhealthy_cards_are_left_out() -> None:
    result = bound(indexed("n", ill="0, x"), sharing("p", 300), conf=old("GPUSharing"))
    assert result["p"][INDEX] == "1"


def test_the_larger_of_containers_and_init_containers_counts() -> None:
    init = {"initContainers": [{"name": "i", "resources": {"limits": {GPU_MEMORY: "1001"}}}]}
    session = session_of(indexed("n"), sharing("p", 300, spec=init), conf=old("GPUSharing"))
    assert passing(session, "deviceshare") == set()


def test_whole_cards_are_for_one_pod() -> None:
    asks_two = pod("p", requests={GPU_NUMBER: "2"})
    holder = pod("a", on="n", requests={GPU_NUMBER: "1"}, annotations={INDEX: "1"})
    result = bound(indexed("n", number=4, memory=0), holder, asks_two, conf=old("GPUNumber"))
    assert result["p"][INDEX] == "0,2"


def test_whole_cards_are_counted() -> None:
    session = session_of(indexed("n"), pod("p", requests={GPU_NUMBER: "3"}), conf=old("GPUNumber"))
    assert passing(session, "deviceshare") == set()


@pytest.mark.parametrize("manifest", [node("n", **{GPU_NUMBER: 2}), node("n"), indexed("n", number=0)])
def test_a_node_without_both_capacities_has_no_cards(manifest: Manifest) -> None:
    session = session_of(manifest, sharing("p", 1), conf=old("GPUSharing"))
    assert passing(session, "deviceshare") == set()
    (reason,) = reasons(session, "deviceshare")
    assert "no cards in their capacity" in reason


@pytest.mark.parametrize("index", ["7", "x", "", "-1", "0,0"])
def test_an_index_that_is_none_holds_nothing_more_than_it_names(index: str) -> None:
    holder = pod("a", on="n", requests={GPU_NUMBER: "1"}, annotations={INDEX: index})
    result = bound(indexed("n"), holder, pod("p", requests={GPU_NUMBER: "1"}), conf=old("GPUNumber"))
    assert result["p"][INDEX] == ("1" if index == "0,0" else "0")


# --- gauges -------------------------------------------------------------------------------------------------------


def test_the_series_of_cards_and_pods_are_volcanos() -> None:
    running = vpod("a", on="n", memory=3000, cores=20, ids="A,NVIDIA,3000,20:")
    session = opened(gpus("n", card("A", 16000)), running)
    shown = {(g.name.removeprefix("volcano_vgpu_device_"), *g.labels): g.value for g in plugin_gauges(session)}
    where = (("devID", "A"), ("NodeName", "n"))
    assert shown == {
        ("memory_limit", *where): 16000,
        ("shared_number", *where): 1,
        ("allocated_memory", *where): 3000,
        ("allocated_cores", *where): 20,
        ("memory_allocation_for_a_certain_pod", *where, ("podName", "a")): 3000,
        ("core_allocation_for_a_certain_pod", *where, ("podName", "a")): 20,
    }


def test_without_pods_on_cards_nothing_is_shown() -> None:
    assert plugin_gauges(opened(gpus("n", card("A")), pod("p", cpu=1))) == []


def plugin_gauges(session: Session) -> list[Any]:
    return list(plugin_of(session, DeviceSharePlugin).gauges())


# --- columns against plain loops ------------------------------------------------------------------------------------

Shared = tuple[int, int, int]
"""Memory, pods, cores used of a card."""


def naive(
    sizes: list[int], slots: int, used: list[Shared], ask: list[tuple[int, int, int, int]], policy: str
) -> tuple[list[list[int]], float] | None:
    """Cards per container, and points, by the rules: (number, memory, percent or -1, cores) a container."""
    state, result, score = [list(entry) for entry in used], [], 0.0
    for number, memory, percent, cores in ask:
        order = list(range(len(sizes)))
        if policy == "binpack":
            order.sort(key=lambda i: (-state[i][0], i))
        elif policy == "spread":
            order.sort(key=lambda i: (state[i][1], i))
        else:
            order.reverse()
        got: list[int] = []
        for i in order:
            need = sizes[i] * percent // 100 if percent >= 0 else memory
            if len(got) == number or state[i][1] >= slots or sizes[i] - state[i][0] < need:
                continue
            if state[i][2] + cores > 100 or (cores == 100 and state[i][1]) or (state[i][2] == 100 and not cores):
                continue
            if policy == "spread" and not state[i][1]:
                score += 100
            state[i] = [state[i][0] + need, state[i][1] + 1, state[i][2] + cores]
            if policy == "binpack" and sizes[i]:
                score += 100 * state[i][0] / sizes[i]
            got.append(i)
        if len(got) < number:
            return None
        result.append(got)
    return result, score


containers = st.tuples(
    st.integers(1, 3), st.integers(1, 9), st.sampled_from([-1, -1, 0, 30, 100]), st.sampled_from([0, 0, 20, 60, 100])
)
held = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6), st.sampled_from([0, 30, 100])), max_size=5)


@settings(max_examples=examples(120), deadline=None)
@given(
    clusters=st.lists(st.tuples(st.lists(st.integers(1, 12), min_size=1, max_size=4), held), min_size=1, max_size=7),
    slots=st.integers(1, 3),
    ask=st.lists(containers, min_size=1, max_size=2),
    policy=st.sampled_from(["binpack", "spread", ""]),
)
def test_columns_and_single_nodes_are_the_specification(
    clusters: list[tuple[list[int], list[Shared]]], slots: int, ask: list[tuple[int, int, int, int]], policy: str
) -> None:
    objects, expected = [], {}
    for i, (sizes, holders) in enumerate(clusters):
        used: list[Shared] = [(0, 0, 0)] * len(sizes)
        objects.append(gpus(f"n{i}", *[card(f"U{i}-{c}", size, slots) for c, size in enumerate(sizes)]))
        for h, (place, memory, cores) in enumerate(holders):
            if place < len(sizes):
                before = used[place]
                used[place] = (before[0] + memory, before[1] + 1, before[2] + cores)
                ids = f"U{i}-{place},NVIDIA,{memory},{cores}:"
                objects.append(vpod(f"h{i}-{h}", on=f"n{i}", memory=1, ids=ids))
        expected[f"n{i}"] = naive(sizes, slots, used, ask, policy)
    limits = [
        asks(number, None if percent >= 0 else memory, cores, percent if percent >= 0 else None)
        for number, memory, percent, cores in ask
    ]
    spec = {"containers": [{"name": f"c{i}", "resources": {"limits": entry}} for i, entry in enumerate(limits)]}
    session = opened(*objects, pod("p", spec=spec), weight=1, policy=policy)
    assert passing(session, "deviceshare") == {name for name, answer in expected.items() if answer is not None}
    rated = points(session, "deviceshare")
    plugin, task = plugin_of(session, DeviceSharePlugin), pending(session)
    for name, answer in expected.items():
        row = session.nodes.facts.row_of[name]
        plan = plugin.fittings.of(task).plan(row, later=False)
        if answer is None:
            assert plan is None
            continue
        assert plan is not None
        cards = [[piece.card for piece in plan.pieces if piece.container == c] for c in range(len(ask))]
        assert cards == answer[0]
        assert rated[name] == pytest.approx(answer[1], abs=0.51)


@settings(max_examples=examples(60), deadline=None)
@given(moves=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.booleans()), max_size=12))
def test_what_is_kept_up_to_date_is_what_is_computed_anew(moves: list[tuple[int, int, bool]]) -> None:
    """Placements, waits and their reverses leave no trace, and every look agrees with a fresh one."""
    nodes = [gpus(f"n{i}", card(f"A{i}", 9), card(f"B{i}", 6)) for i in range(3)]
    pods = [vpod(f"p{i}", memory=2 + i, group="g") for i in range(6)]
    session = opened(*nodes, group("g", members=1), *pods, weight=1, policy="binpack")
    statement = Statement(session.trial, "allocate", task_of(session, "p0").job)
    plugin = plugin_of(session, DeviceSharePlugin)
    for number, row, now in moves:
        task = task_of(session, f"p{number}")
        fitting = plugin.fittings.of(task)
        if task.node >= 0 or not fitting.later[row] or (now and not fitting.now[row]):
            continue
        (statement.allocate if now else statement.pipeline)([task], [row])
        for other in range(6):
            check_fresh(session, plugin, task_of(session, f"p{other}"))
    statement.discard()
    for row in range(3):
        assert not plugin._sharing.now.memory[row].any() and not plugin._sharing.later.memory[row].any()


def check_fresh(session: Session, plugin: DeviceSharePlugin, task: Any) -> None:
    kept = plugin.fittings.of(task)
    before: Iterable[Any] = [column.tolist() for column in (kept.now, kept.later, kept.points, kept.memory)]
    fresh = type(kept)(plugin._sharing, kept.pod_request).refreshed()
    assert before == [column.tolist() for column in (fresh.now, fresh.later, fresh.points, fresh.memory)]


@settings(max_examples=examples(60), deadline=None)
@given(moves=st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=14))
def test_queues_accounts_are_the_sums_of_what_their_pods_hold(moves: list[tuple[int, bool]]) -> None:
    """Placements, evictions and their reverses, against sums made anew; a parent holds what its children do."""
    queues = [queue("p", capability={MEMORY: "1000"}), queue("q", parent="p", capability={CORES: "1000"})]
    nodes = [gpus(f"n{i}", card(f"A{i}", 100), card(f"B{i}", 100)) for i in range(2)]
    running = [vpod(f"p{i}", on="n0", memory=7, cores=5, group="g", ids=f"A0,NVIDIA,{7 + i},5:") for i in range(4)]
    waiting = [vpod(f"p{i}", number=2, memory=i, cores=3, group="g") for i in range(4, 8)]
    session = opened(*queues, *nodes, group("g", queue="q", members=0), *running, *waiting)
    plugin, statement = plugin_of(session, DeviceSharePlugin), Statement(session.trial, "a", task_of(session, "p0").job)
    for number, back in moves:
        task = task_of(session, f"p{number}")
        if back:
            statement.undo(max(0, statement.save() - 1))
        elif number < 4 and task.status == TaskStatus.RUNNING:
            statement.evict(task, "")
        elif number >= 4 and task.node < 0:
            statement.allocate([task], [number % 2])
        here = [number for number in range(8) if holds(task_of(session, f"p{number}"))]
        memory = sum(7 + number if number < 4 else 2 * number for number in here)
        cores = sum(5 if number < 4 else 6 for number in here)
        asked = {queue_of(session, name).index: held for name, held in zip("pq", ((memory, cores),) * 2, strict=True)}
        assert plugin.limits._held == {index: [1000 * amount for amount in held] for index, held in asked.items()}


def holds(task: Any) -> bool:
    """Whether a task is on a node, and not going away."""
    return task.node >= 0 and task.status != TaskStatus.RELEASING

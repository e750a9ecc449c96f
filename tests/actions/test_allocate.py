"""allocate."""

from __future__ import annotations

import pytest

from tests.dsl import BARE, Manifest, gang, group, node, planned, pod, priority_class, queue
from tests.laws.answering import Answering
from tests.world import World

PROPORTION = BARE + "  - name: proportion\n"
NO_GANG = BARE.replace("  - name: gang\n", "")


def test_a_gang_is_bound_whole() -> None:
    assert set(planned(node("n", cpu=3), gang("g", 3, cpu=1), conf=BARE).binds) == {f"default/g-{i}" for i in range(3)}


def test_a_gang_that_does_not_fit_binds_nothing() -> None:
    result = planned(node("n", cpu=2), gang("g", 3, cpu=1), conf=BARE)
    assert result.binds == {}
    assert {
        **{"gate": "predicate", "code": "node-room", "cause": "node-room", "reason": "Insufficient cpu"},
        **{"nodes": 1, "tasks": 1, "pods": ["default/g-2"]},
    } in result.why["default/g"]


def test_room_of_a_failed_gang_goes_to_the_next_job() -> None:
    result = planned(node("n", cpu=2), gang("big", 3, cpu=1), gang("small", 2, cpu=1, created=5), conf=BARE)
    assert set(result.binds) == {"default/small-0", "default/small-1"}


def test_beyond_its_minimum_a_job_gets_what_there_is() -> None:
    assert len(planned(node("n", cpu=3), gang("g", 5, members=2, cpu=1), conf=BARE).binds) == 3


def test_the_higher_priority_comes_first() -> None:
    result = planned(
        node("n", cpu=1),
        priority_class("high", 10),
        gang("low", 1, cpu=1),
        gang("urgent", 1, cpu=1, created=9, group_spec={"priorityClassName": "high"}),
        conf=BARE,
    )
    assert result.binds == {"default/urgent-0": "n"}


def test_a_task_waits_for_room_that_is_being_freed() -> None:
    leaving = gang("old", 1, on=["n"], cpu=2, deleting=True)
    result = planned(node("n", cpu=2), leaving, gang("g", 1, cpu=2), conf=BARE)
    assert result.pipelined == {"default/g-0": "n"}
    assert result.binds == {}


def test_a_gang_that_partly_waits_for_room_holds_all_of_it_and_binds_nothing() -> None:
    leaving = gang("old", 1, on=["n"], cpu=2, deleting=True)
    result = planned(node("n", cpu=4), leaving, gang("g", 2, cpu=2), gang("late", 1, cpu=1, created=9), conf=BARE)
    assert result.binds == {}
    assert list(result.pipelined) == ["default/g-1"]


def test_a_gated_pod_is_not_placed_and_says_so() -> None:
    gates = {"schedulingGates": [{"name": "wait"}]}
    result = planned(node("n"), gang("g", 1, cpu=1, spec=gates), conf=BARE)
    assert result.binds == {}
    assert "a scheduling gate holds the pod" in [why["reason"] for why in result.why["default/g"]]


def test_a_nominated_node_is_tried_first() -> None:
    waiting = pod("a", group="g", cpu=1)
    waiting["status"]["nominatedNodeName"] = "n3"
    nodes = [node(f"n{i}") for i in range(6)]
    assert planned(*nodes, group("g"), waiting, conf=BARE).binds == {"default/a": "n3"}


def test_an_overused_queue_gets_nothing() -> None:
    result = planned(
        node("n", cpu=8),
        queue("q", capability={"cpu": "2"}),
        gang("old", 2, on=["n", "n"], cpu=1, queue="q", phase="Running"),
        gang("g", 1, cpu=1, queue="q", created=5),
        conf=PROPORTION,
    )
    assert result.binds == {}
    assert result.why["default/g"][0]["gate"] == "queue"


def test_a_role_that_found_no_node_is_not_tried_again() -> None:
    roles = {"volcano.sh/task-spec": "ps"}
    big = [pod(f"ps-{i}", group="g", cpu=9, annotations=roles) for i in range(3)]
    small = [pod(f"w-{i}", group="g", cpu=1) for i in range(2)]
    result = planned(node("n", cpu=8), group("g", members=2), *big, *small, conf=BARE)
    assert set(result.binds) == {"default/w-0", "default/w-1"}
    failing = [why for why in result.why["default/g"] if why["gate"] == "predicate"]
    assert [why["tasks"] for why in failing] == [1]


def test_the_bound_on_placements_leaves_the_rest_to_the_next_cycle() -> None:
    from vcd.model.events import PolicyLoaded
    from vcd.state.records import Settings

    world = World(node("n", cpu=8), *[list(gang(f"g{i}", 1, cpu=1)) for i in range(4)], conf=BARE)
    world.happen(PolicyLoaded("", "", Settings(placements=3).as_text()))
    first = world.cycle()
    assert len(first.statements) == 3
    assert first.more
    assert len(world.cycle().statements) == 1


def test_what_only_holds_room_leaves_the_bound_on_placements_to_others() -> None:
    """By sla a gang that waits for too long holds what it gets, in each cycle anew."""
    from vcd.model.events import PolicyLoaded
    from vcd.state.records import Settings

    tiers = "- plugins:\n  - name: sla\n    arguments:\n      sla-waiting-time: 1s\n"
    conf = BARE.replace("tiers:\n", f"tiers:\n{tiers}")
    world = World(node("n", cpu=3), gang("old", 2, cpu=2), gang("new", 1, cpu=1, created=1), conf=conf)
    world.happen(PolicyLoaded("", "", Settings(placements=1).as_text()))
    world.cycle()
    assert list(world.placed()) == ["new-0"]


def test_a_broken_gang_is_filled_before_an_equal_newcomer() -> None:
    """Volcano #5805, with drf ranking the newcomer's smaller share first."""
    conf = BARE + "- plugins:\n  - name: drf\n"
    broken = gang("old", 3, on=["n", "n"], cpu=2)
    result = planned(node("n", cpu=6), broken, gang("new", 1, cpu=2, created=9), conf=conf)
    assert list(result.binds) == ["default/old-2"]


def test_pods_of_other_schedulers_use_room_but_are_not_placed() -> None:
    world = World(node("n", cpu=4), gang("g", 1, cpu=3), conf=BARE)
    world.put(
        pod("theirs", on="n", cpu=2, spec={"schedulerName": "default-scheduler"}),
        group("h"),
        pod("pending", group="h", cpu=1, spec={"schedulerName": "default-scheduler"}),
    )
    assert world.cycle().statements == ()


# --- a second round ---------------------------------------------------------------------------------------------------


def of_one_role(*cpus: int) -> list[Manifest]:
    """Pods of the role worker of group g, the first to be tried first."""
    role = {"volcano.sh/task-spec": "worker"}
    return [pod(f"p-{i}", group="g", cpu=cpu, annotations=role, created=i) for i, cpu in enumerate(cpus)]


@pytest.mark.parametrize("conf", [BARE, NO_GANG], ids=["gang", "no gang"])
def test_a_pod_is_not_left_for_good_because_another_of_its_role_found_no_node(conf: str) -> None:
    """Pods of a role mostly ask for the same; where one asks for less, it has its turn when nothing else could go."""
    assert planned(node("n"), group("g", members=1), of_one_role(9, 2), conf=conf).binds == {"default/p-1": "n"}


def test_those_passed_over_come_in_the_order_that_all_pods_of_the_job_have() -> None:
    """By age, since one of them has no number in its name, though those that are left have one."""
    role = {"volcano.sh/task-spec": "worker"}
    asks = (("big", 9), ("g-p-1", 2), ("g-p-0", 2))
    pods = [pod(name, group="g", cpu=cpu, annotations=role, created=i) for i, (name, cpu) in enumerate(asks)]
    assert planned(node("n", cpu=3), group("g", members=1), pods, conf=BARE).binds == {"default/g-p-1": "n"}


def test_a_gang_is_made_up_of_those_of_a_role_that_find_room() -> None:
    result = planned(node("n"), group("g", members=2, minTaskMember={"worker": 2}), of_one_role(9, 2, 9, 3), conf=BARE)
    assert result.binds == {"default/p-1": "n", "default/p-3": "n"}


def test_who_was_passed_over_waits_while_others_are_placed() -> None:
    """As in Volcano, which never tries it: in the session that places something else it is not tried yet."""
    world = Answering(node("n"), group("g"), of_one_role(9, 2), gang("other", 1, cpu=3), conf=BARE)
    assert {op.key for each in world.cycle().statements for op in each.operations} == {"default/other-0"}
    world.rest()
    assert world.placed("p") == {"p-1": "n"}


def test_a_reason_is_told_once_for_each_pod_in_two_rounds() -> None:
    gated = pod("gated", group="g", cpu=1, spec={"schedulingGates": [{"name": "wait"}]})
    result = planned(node("n"), group("g"), of_one_role(9, 9), gated, conf=BARE)
    assert [why["pods"] for why in result.why["default/g"] if why["gate"] == "gated"] == [["default/gated"]]


def test_a_role_that_has_its_minimum_takes_no_room_from_one_that_has_not() -> None:
    """Tried in their order, the worker takes what the master needs, and the gang starts with neither."""
    worker = pod("a", group="g", cpu=2, annotations={"volcano.sh/task-spec": "worker"})
    master = pod("b", group="g", cpu=2, annotations={"volcano.sh/task-spec": "master"})
    result = planned(node("n", cpu=3), group("g", members=1, minTaskMember={"master": 1}), worker, master, conf=BARE)
    assert result.binds == {"default/b": "n"}


@pytest.mark.parametrize(
    "conf", [PROPORTION, PROPORTION.replace("proportion", "capacity")], ids=["proportion", "capacity"]
)
def test_a_role_that_has_its_minimum_takes_no_room_of_the_queue_from_one_that_has_not(conf: str) -> None:
    """A worker that takes up the queue's room in trial does not keep out the master, without which nobody starts."""
    pods = [
        pod(f"p-{i}", group="g", cpu=2, annotations={"volcano.sh/task-spec": role}, created=i)
        for i, role in enumerate(("worker", "master"))
    ]
    q = queue("q", capability={"cpu": "3"})
    roles = group("g", members=1, queue="q", minTaskMember={"master": 1})
    assert planned(node("n", cpu=8), q, roles, pods, conf=conf).binds == {"default/p-1": "n"}


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_second_round_lends_what_the_queue_of_the_job_deserves_too_little_of(workers: int) -> None:
    """The queue may lend two cpus, one pod's worth. A worker is tried first, and the gang needs a ps."""
    queues = [queue("q", capability={"cpu": "2"}), queue("other", weight=4)]
    roles = group("g", members=1, queue="q", minTaskMember={"ps": 1})
    pods = [
        pod(f"p-{i}", group="g", cpu=2, annotations={"volcano.sh/task-spec": role}, created=i)
        for i, role in enumerate([*["worker"] * workers, "ps"])
    ]
    others = [*gang("runs", 1, cpu=2, queue="other", on="n"), *gang("large", 1, cpu=5, queue="other")]
    conf = BARE + "  - name: proportion\n"
    assert planned(node("n", cpu=6), queues, roles, pods, others, conf=conf).binds == {f"default/p-{workers}": "n"}


def test_a_job_that_was_tried_first_for_its_nomination_has_a_second_round_too() -> None:
    """The nominated pod and the small one make up the gang, though the large one between them finds no node."""
    pods = of_one_role(2, 9, 2)
    pods[0]["status"]["nominatedNodeName"] = "n"
    result = planned(node("n"), group("g", members=2), pods, conf=BARE)
    assert result.binds == {"default/p-0": "n", "default/p-2": "n"}


def test_pods_of_one_spec_of_which_one_has_unwanted_labels_are_not_all_left() -> None:
    """Where pods are alike but for their labels, one that others shun fails for itself alone."""
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    shuns = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    role = {"volcano.sh/task-spec": "worker"}
    pods = [
        pod(name, group="g", cpu=1, annotations=role, labels={"app": app}, created=i)
        for i, (name, app) in enumerate((("a", "web"), ("b", "db")))
    ]
    there = pod("there", on="n", cpu=1, spec=shuns)
    with_predicates = BARE + "  - name: predicates\n"
    assert planned(node("n"), there, group("g"), pods, conf=with_predicates).binds == {"default/b": "n"}


def test_a_gang_that_lacks_a_pod_whose_affinity_cannot_be_read_costs_nobody_else_the_predicates() -> None:
    """An API server of before 1.27 takes such values, and keeps them: the plugin was left out of each session."""
    term = {
        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["no label!"]}]},
        "topologyKey": "kubernetes.io/hostname",
    }
    spec = {
        "nodeSelector": {"nowhere": "to be found"},
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
    }
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    result = planned(
        *[node("a", taints=[taint]), group("odd", members=2), pod("odd-0", group="odd", cpu=1)],
        *[pod("odd-1", group="odd", spec=spec), gang("g", 1, cpu=1)],
        conf=BARE + "  - name: predicates\n",
    )
    assert result.faults == []
    assert result.binds == {}

"""The verdict on a waiting job: cause, whom it is about and the figures, in cases computed by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import dsl
from tests.dsl import Manifest
from tests.timetravel.histories import CONF, scheduler
from tests.timetravel.questions import first_causes, verdict
from tests.timetravel.test_counterfactual import CAPACITY, PLAIN, log_of, running, short_queue
from vcd.scheduling.search.predicates.node_predicates import NodeAffinity
from vcd.timetravel.why.verdict import Verdict

GPU = "nvidia.com/gpu"
ML = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}
OVERCOMMIT = """\
actions: "enqueue, allocate"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: overcommit
  - name: predicates
"""


def about(found: Verdict) -> tuple[str, dict[str, str]]:
    return found.cause, found.subject


async def test_a_pod_larger_than_the_largest_node_that_its_selector_allows(tmp_path: Path) -> None:
    path = await log_of(
        tmp_path,
        PLAIN,
        [
            dsl.node("n1", gpu=8),
            dsl.node("n2", gpu=4, labels={"tier": "b"}),
            dsl.node("n3", gpu=2, labels={"tier": "b"}),
        ],
        list(dsl.gang("bert", 1, gpu=8, spec={"nodeSelector": {"tier": "b"}})),
    )
    found = verdict(path, "bert")
    assert about(found) == ("unschedulable-shape", {"node": "n2", "clause": "nodeSelector tier=b"})
    assert found.amounts == {GPU: {"asks": 8000, "largest": 4000}}
    assert found.text.endswith(
        "can never run here: a pod requests 8 GPU, and node n2, the largest with nodeSelector tier=b, has 4"
    )


@pytest.mark.parametrize(
    ("affinity", "label", "why"),
    [
        (None, "a", "a policy (node group affinity not specified) excludes 2 of 2 nodes, 2 of these with capacity"),
        (["b"], "a", "a policy (node does not satisfy the node group affinity) excludes 2 of 2 nodes, 2 of these"),
        (["b"], None, "a policy (node group label not found) excludes 2 of 2 nodes, 2 of these with capacity"),
    ],
    ids=["no rules", "other group", "no label"],
)
async def test_each_way_in_which_node_groups_exclude_nodes(
    tmp_path: Path, affinity: list[str] | None, label: str | None, why: str
) -> None:
    labels = {} if label is None else {"volcano.sh/nodegroup-name": label}
    terms = {} if affinity is None else {
        "affinity": {"nodeGroupAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": affinity}}
    }  # fmt: skip
    path = await log_of(
        tmp_path,
        PLAIN.replace("  - name: predicates\n", "  - name: predicates\n  - name: nodegroup\n"),
        [dsl.node(f"n{i}", labels=labels) for i in range(2)],
        [dsl.queue("q", **terms), *dsl.gang("bert", 1, cpu=1, queue="q")],
    )
    found = verdict(path, "bert")
    assert (found.cause, found.text.partition(": ")[2][: len(why)]) == ("node-policy", why)
    remedy = "give the queue spec.affinity, or the plugin the argument strict: false"
    (lost,) = first_causes(path).causes
    assert (lost.mend == remedy) is (affinity is None)


async def test_a_selector_that_fits_too_few_nodes(tmp_path: Path) -> None:
    tiers = [dsl.node(f"n{i}", labels={"tier": "a100"} if i < 2 else {}) for i in range(10)]
    path = await log_of(
        tmp_path, PLAIN, tiers, list(dsl.gang("bert", 4, cpu=8, spec={"nodeSelector": {"tier": "a100"}}))
    )
    found = verdict(path, "bert")
    assert about(found) == ("selector", {"clause": "nodeSelector tier=a100"})
    assert found.amounts == {"": {"nodes": 10, "needs": 4, "fits": 2, "passes": 2, "excluded with room": 8}}
    assert found.text == (
        "bert waits 0 s: nodeSelector tier=a100 fits 2 of 10 nodes, 8 others with capacity; it needs 4 pods, 2 fit"
    )


@pytest.mark.parametrize(
    ("closed", "cause", "clause", "words"),
    [
        ({"taints": [ML]}, "taint", "dedicated=ml:NoSchedule", "taint dedicated=ml:NoSchedule"),
        ({"unschedulable": True}, "unschedulable-node", "spec.unschedulable", "a cordon (spec.unschedulable)"),
    ],
)
async def test_nodes_with_room_that_are_closed(
    tmp_path: Path, closed: Manifest, cause: str, clause: str, words: str
) -> None:
    nodes = [dsl.node(f"n{i}", **(closed if i else {})) for i in range(3)]
    path = await log_of(tmp_path, PLAIN, nodes, running("x", 1, "n0", cpu=8), list(dsl.gang("bert", 1, cpu=8)))
    found = verdict(path, "bert")
    assert about(found) == (cause, {"clause": clause})
    assert found.text == f"bert waits 0 s: {words} excludes 2 of 3 nodes, 2 of these with capacity; it needs 1 pod"


async def test_an_annotation_that_is_passed_over_is_no_cause(tmp_path: Path) -> None:
    job = list(dsl.gang("bert", 1, cpu=4))
    job[0]["metadata"]["annotations"] = {"sla-waiting-time": "soon"}
    conf = PLAIN.replace("  - name: gang\n", "  - name: gang\n  - name: sla\n")
    path = await log_of(tmp_path, conf, dsl.node("n0", cpu=8), running("x", 1, "n0", cpu=6), job)
    found = verdict(path, "bert")
    assert about(found) == ("cluster-full", {"holder": "default/x"})
    assert [one.cause for one in first_causes(path).causes] == ["cluster-full"]


async def test_a_taint_is_tolerated_with_its_value_alone(tmp_path: Path) -> None:
    """Of two taints with a key it is the other that keeps the job from room."""
    web = {"key": "dedicated", "value": "web", "effect": "NoSchedule"}
    nodes = [dsl.node("n0", taints=[ML]), dsl.node("n1", taints=[web])]
    path = await log_of(tmp_path, PLAIN, nodes, running("x", 1, "n0", cpu=8), list(dsl.gang("bert", 1, cpu=8)))
    assert verdict(path, "bert", change=True).fix == "tolerate taint dedicated=web:NoSchedule"


async def test_room_in_pieces(tmp_path: Path) -> None:
    nodes = [dsl.node(f"n{i}", cpu=8) for i in range(3)]
    jobs = [running(f"x{i}", 1, f"n{i}", cpu=5) for i in range(3)]
    path = await log_of(tmp_path, PLAIN, nodes, *jobs, list(dsl.gang("bert", 1, cpu=8)))
    found = verdict(path, "bert")
    assert found.cause == "fragmentation"
    assert found.amounts["cpu"] == {"asks": 8000, "free": 9000, "pod": 8000, "largest": 3000}
    assert found.text == ("bert waits 0 s: 9 cpu are free in sum, 3 on a node at most; it requests 8: it needs 1 pod")


async def test_a_full_cluster(tmp_path: Path) -> None:
    nodes = [dsl.node(f"n{i}", cpu=8) for i in range(3)]
    jobs = [running(f"x{i}", 1, f"n{i}", cpu=6 + (i == 1)) for i in range(3)]
    path = await log_of(tmp_path, PLAIN, nodes, *jobs, list(dsl.gang("bert", 1, cpu=8)))
    found = verdict(path, "bert")
    assert about(found) == ("cluster-full", {"holder": "default/x1"})
    assert found.text == (
        "bert waits 0 s: the cluster is full: 5 of 24 cpu are free, and it needs 8; default/x1 holds most"
    )


async def test_a_pool_that_is_held(tmp_path: Path) -> None:
    nodes = [dsl.node(f"n{i}", cpu=16, labels={"pool": "big"}) for i in range(2)] + [
        dsl.node(f"s{i}", cpu=4) for i in range(8)
    ]
    jobs = [running("x", 1, "n0", cpu=12), running("y", 1, "n1", cpu=14)]
    path = await log_of(
        tmp_path, PLAIN, nodes, *jobs, list(dsl.gang("bert", 1, cpu=8, spec={"nodeSelector": {"pool": "big"}}))
    )
    found = verdict(path, "bert")
    assert about(found) == ("node-room", {"node": "n0", "holder": "default/x"})
    assert found.text == ("bert waits 0 s: no node that it may use has 8 cpu free (n0 has most, 4, held by default/x)")


async def test_a_pool_with_room_for_some_of_the_pods(tmp_path: Path) -> None:
    nodes = [dsl.node("n0", cpu=16, labels={"pool": "big"}), *(dsl.node(f"s{i}", cpu=4) for i in range(8))]
    spec = {"nodeSelector": {"pool": "big"}}
    path = await log_of(
        tmp_path, PLAIN, nodes, running("x", 1, "n0", cpu=6), list(dsl.gang("bert", 2, cpu=8, spec=spec))
    )
    found = verdict(path, "bert")
    assert about(found) == ("node-room", {"node": "n0", "holder": "default/x"})
    assert found.text == (
        "bert waits 0 s: nodes that it may use fit 1 of 2 pods of 8 cpu (n0 has most, 10, held by default/x)"
    )


async def test_room_for_some_of_the_pods_and_the_rest_in_pieces(tmp_path: Path) -> None:
    nodes = [dsl.node("n0", cpu=5, gpu=2), dsl.node("n1", cpu=8)]
    found = verdict(await log_of(tmp_path, PLAIN, nodes, list(dsl.gang("bert", 2, cpu=4, gpu=1))), "bert")
    assert found.cause == "fragmentation"
    assert found.text == (
        "bert waits 0 s: enough is free in sum, and too few nodes have all that a pod requests at once: it needs 2"
        " pods, 1 fit"
    )


async def test_a_spread_is_not_taken_for_a_label_that_all_nodes_have(tmp_path: Path) -> None:
    """n1 is full: once n0 has one of the pods more there would be too many."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    job = list(dsl.gang("web", 4, cpu=1, labels={"app": "web"}, spec={"topologySpreadConstraints": [spread]}))
    nodes = [dsl.node("n0"), dsl.node("n1")]
    found = verdict(await log_of(tmp_path, PLAIN, nodes, running("x", 1, "n1", cpu=8), job), "web")
    assert about(found) == ("spread", {"term": "topologySpreadConstraints: maxSkew 1 by kubernetes.io/hostname"})


async def test_the_queues_capability(tmp_path: Path) -> None:
    found = verdict(await short_queue(tmp_path), "train")
    assert about(found) == ("queue-capability", {"queue": "team-a", "field": "spec.capability.cpu"})
    assert found.text == (
        "train waits 0 s: queue team-a may use 40 cpu (spec.capability.cpu): 30 in use, and it requests 12"
    )


BY_WEIGHT = CONF + "  - name: predicates\n"
VOLCANO_SHARES = BY_WEIGHT.replace(
    "- name: proportion\n", "- name: proportion\n    arguments:\n      volcanoSharesEnable: true\n"
)


async def test_what_a_queue_deserves_by_weight(tmp_path: Path) -> None:
    # only Volcano's formula counts b2, which no node can take, and lends nothing of what b claims
    path = await log_of(
        tmp_path,
        VOLCANO_SHARES,
        [dsl.node("n1", cpu=20)],
        dsl.queue("a", weight=1),
        dsl.queue("b", weight=3),
        running("old", 1, "n1", queue="a", cpu=5),
        running("other", 1, "n1", queue="b", cpu=10),
        list(dsl.gang("b2", 1, queue="b", cpu=30, created=1)),
        list(dsl.gang("train", 1, queue="a", cpu=3, created=1)),
    )
    found = verdict(path, "train")
    assert found.text == ("train waits 0 s: queue a may use 5 cpu (spec.weight): 5 in use, and it requests 3")
    assert about(found) == ("queue-deserved", {"queue": "a", "field": "spec.weight"})


async def test_what_another_queue_deserves_and_can_use_is_not_lent(tmp_path: Path) -> None:
    # b deserves 15 of 20 cpu and holds 5; of the two pods of 5 that its gang needs 7 idle cpu fit one: that is kept
    path = await log_of(
        tmp_path,
        BY_WEIGHT,
        [dsl.node("n1", cpu=20)],
        dsl.queue("a", weight=1),
        dsl.queue("b", weight=3),
        running("old", 1, "n1", queue="a", cpu=8),
        running("other", 1, "n1", queue="b", cpu=5),
        list(dsl.gang("b2", 2, queue="b", cpu=5, created=1)),
        list(dsl.gang("train", 1, queue="a", cpu=3, created=1)),
    )
    found = verdict(path, "train")
    assert about(found) == ("others-guarantee", {"queue": "b", "field": "spec.weight"})
    assert found.text == (
        "train waits 0 s: what queue b deserves and can use (spec.weight) leaves 15 cpu: 13 in use, and it requests 3"
    )


async def test_what_is_guaranteed_to_two_queues_is_not_lent_and_the_larger_is_named(tmp_path: Path) -> None:
    # 12 of 20 cpu are guaranteed and unused, the queue itself deserves 4 and holds them
    path = await log_of(
        tmp_path,
        BY_WEIGHT,
        [dsl.node("n1", cpu=20)],
        dsl.queue("a", weight=1),
        dsl.queue("b", weight=1),
        dsl.queue("less", guarantee={"resource": {"cpu": "5"}}),
        dsl.queue("more", guarantee={"resource": {"cpu": "7"}}),
        running("old", 1, "n1", queue="a", cpu=4),
        list(dsl.gang("train", 1, queue="a", cpu=5, created=1)),
    )
    found = verdict(path, "train")
    assert about(found) == ("others-guarantee", {"queue": "more", "field": "spec.guarantee.resource.cpu"})
    assert found.amounts == {"cpu": {"asks": 5000, "has": 4000, "limit": 8000}}


async def test_what_is_lent_ends_at_the_capability(tmp_path: Path) -> None:
    # a deserves 5 of 20 cpu; b leaves 10, of which a may have 1 more
    path = await log_of(
        tmp_path,
        BY_WEIGHT,
        [dsl.node("n1", cpu=20)],
        dsl.queue("a", weight=1, capability={"cpu": "6"}),
        dsl.queue("b", weight=3),
        running("old", 1, "n1", queue="a", cpu=5),
        running("other", 1, "n1", queue="b", cpu=10),
        list(dsl.gang("b2", 1, queue="b", cpu=5, created=1, spec={"nodeSelector": {"no": "such"}})),
        list(dsl.gang("train", 1, queue="a", cpu=3, created=1)),
    )
    found = verdict(path, "train")
    assert about(found) == ("queue-capability", {"queue": "a", "field": "spec.capability.cpu"})
    assert found.amounts == {"cpu": {"asks": 3000, "has": 5000, "limit": 6000}}


async def test_admission(tmp_path: Path) -> None:
    path = await log_of(
        tmp_path,
        OVERCOMMIT,
        [dsl.node("n1", cpu=20)],
        list(dsl.gang("first", 1, cpu=20, phase="Inqueue", minimum={"cpu": 20})),
        list(dsl.gang("train", 1, cpu=8, phase="Pending", minimum={"cpu": 8}, created=1)),
    )
    found = verdict(path, "train")
    assert found.text == (
        "train waits 0 s: what it needs went to default/first (created earlier (2026-01-01T00:00:00Z against "
        "2026-01-01T00:00:01Z)) first"
    )


@pytest.mark.parametrize("pods", [True, False], ids=["pods", "no pods"])
@pytest.mark.parametrize("plugin", ["capacity", "proportion", "capacity-card"])
@pytest.mark.parametrize(
    ("capability", "subject", "of_queue"),
    [
        ({"cpu": "4"}, {"field": "spec.capability.cpu"}, "4 cpu (spec.capability.cpu)"),
        ({}, {}, "4 cpu"),
    ],
    ids=["capability", "no capability"],
)
async def test_admitted_groups_reserve_the_queues_limit_while_the_cluster_is_idle(
    tmp_path: Path, capability: dict[str, str], subject: dict[str, str], of_queue: str, plugin: str, pods: bool
) -> None:
    late = list(dsl.gang("late", 1, cpu=1, phase="Pending", minimum={"cpu": 1}, created=1, queue="q"))
    path = await log_of(
        tmp_path,
        CAPACITY.replace("capacity", plugin),
        [dsl.node("n1", cpu=4)],
        [dsl.queue("q", **({"capability": capability} if capability else {}))],
        dsl.group("early", members=4, minimum={"cpu": 4}, queue="q"),
        late if pods else late[:1],
    )
    found = verdict(path, "late")
    assert about(found) == ("admission", {"queue": "q", "holder": "default/early", **subject})
    assert found.amounts == {"cpu": {"asks": 1000, "has": 4000, "limit": 4000, "reserved": 4000}}
    assert found.text == (
        f"late waits 0 s: queue q may use {of_queue}: 4 reserved, most for default/early, and it requests 1"
    )
    (lost,) = first_causes(path).causes
    also = " and in spec.capability.cpu of queue q" if capability else ""
    assert lost.mend == f"the end of default/early, or 1 cpu more on nodes{also}"


async def test_a_capability_is_partly_in_use_and_partly_reserved(tmp_path: Path) -> None:
    """The other queue's pods do not count against it."""
    path = await log_of(
        tmp_path,
        CAPACITY,
        [dsl.node("n1", cpu=20)],
        [dsl.queue("q", capability={"cpu": "6"}), dsl.queue("other")],
        list(dsl.gang("x", 2, cpu=1, on=["n1"] * 2, phase="Running", minimum={"cpu": 2}, queue="q")),
        running("y", 1, "n1", cpu=8, queue="other"),
        dsl.group("small", members=1, minimum={"cpu": 1}, queue="q"),
        dsl.group("early", members=2, minimum={"cpu": 3}, queue="q"),
        list(dsl.gang("late", 1, cpu=1, phase="Pending", minimum={"cpu": 1}, created=1, queue="q")),
    )
    found = verdict(path, "late")
    assert about(found)[0] == "queue-capability"
    assert found.text == (
        "late waits 0 s: queue q may use 6 cpu (spec.capability.cpu): 2 in use, 4 reserved, most for default/early,"
        " and it requests 1"
    )
    (lost,) = first_causes(path).causes
    assert lost.mend == "raise spec.capability.cpu of queue q by 1 cpu"


async def test_a_queue_whose_pods_hold_the_whole_cluster(tmp_path: Path) -> None:
    path = await log_of(
        tmp_path,
        CAPACITY,
        [dsl.node("n1", cpu=4)],
        dsl.queue("q", capability={"cpu": "4"}),
        running("x", 1, "n1", cpu=4, queue="q"),
        list(dsl.gang("late", 1, cpu=1, phase="Pending", minimum={"cpu": 1}, created=1, queue="q")),
    )
    assert about(verdict(path, "late")) == ("cluster-full", {"holder": "default/x"})


async def test_overtaken(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "events.log", PLAIN) as made:
        await made.show(dsl.queue("root"), dsl.queue("default"), dsl.priority_class("high", 10), dsl.node("n1", cpu=8))
        await made.show(running("x", 1, "n1", cpu=4))
        await made.show(dsl.gang("train", 1, cpu=8))
        await made.carry_out(await made.cycle())
        await made.delete("Pod", "default/x-0")
        await made.delete("PodGroup", "default/x")
        await made.show(dsl.gang("late", 1, cpu=8, created=5, group_spec={"priorityClassName": "high"}))
        await made.carry_out(await made.cycle())
        await made.carry_out(await made.cycle(seconds=500))
        await made.carry_out(await made.cycle(seconds=500))
    found = verdict(tmp_path / "events.log", "train")
    assert found.text == (
        "train waits 8 min 22 s: what it needs went to default/late (higher priority (10 against 0), says priority) "
        "first; 1 later job overtook it"
    )
    assert found.cause == "order" and found.subject["ahead"] == "default/late"


async def test_the_smallest_change_is_said_with_it(tmp_path: Path) -> None:
    tiers = [dsl.node(f"n{i}", labels={"tier": "a100"} if i < 2 else {}) for i in range(10)]
    job = dsl.gang("bert", 4, cpu=8, spec={"nodeSelector": {"tier": "a100"}})
    found = verdict(await log_of(tmp_path, PLAIN, tiers, list(job)), "bert", change=True)
    assert (found.fix, found.verified) == ("label n2 and n3 tier=a100", True)
    assert found.text.endswith("2 fit; label n2 and n3 tier=a100, and it starts (verified)")


@pytest.mark.parametrize(
    ("nodes", "size", "fix"),
    [
        ([{"taints": [ML]}, {"taints": [ML]}], 1, "tolerate taint dedicated=ml:NoSchedule"),
        ([{"unschedulable": True}, {"unschedulable": True}], 1, "uncordon n0"),
        ([{}], 3, "job default/bert's minMember 3 -> 1"),
        ([{"cpu": 4}], 1, "node n0's room of cpu 4 -> 8"),
    ],
)
async def test_changes_by_what_they_cost(tmp_path: Path, nodes: list[Manifest], size: int, fix: str) -> None:
    there = [dsl.node(f"n{i}", **options) for i, options in enumerate(nodes)]
    found = verdict(await log_of(tmp_path, PLAIN, there, list(dsl.gang("bert", size, cpu=8))), "bert", change=True)
    assert found.fix == fix


async def test_pods_that_keep_each_other_away(tmp_path: Path) -> None:
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    spec = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    nodes = [dsl.node(f"n{i}") for i in range(3)]
    job = list(dsl.gang("web", 4, cpu=1, labels={"app": "web"}, spec=spec))
    found = verdict(await log_of(tmp_path, PLAIN, nodes, job), "web", change=True)
    assert about(found) == ("pod-affinity", {"term": "podAntiAffinity app=web by kubernetes.io/hostname"})
    assert found.text == (
        "web waits 0 s: podAntiAffinity app=web by kubernetes.io/hostname: 0 of 3 nodes pass it; it needs 4 pods, 24 "
        "fit; drop the pods' podAntiAffinity, and it starts (verified)"
    )


async def test_a_port_that_is_taken(tmp_path: Path) -> None:
    def ports(name: str) -> Manifest:
        asks = {"requests": {"cpu": "1"}}
        ports = [{"hostPort": 8080, "containerPort": 80}]
        return {"containers": [{"name": name, "image": "i", "resources": asks, "ports": ports}]}

    nodes = [dsl.node(f"n{i}") for i in range(2)]
    jobs = [list(dsl.gang(f"x{i}", 1, on=[f"n{i}"], phase="Running", spec=ports("a"))) for i in range(2)]
    path = await log_of(tmp_path, PLAIN, nodes, *jobs, list(dsl.gang("web", 1, spec=ports("b"))))
    assert about(verdict(path, "web")) == ("ports", {"term": "hostPort 8080/TCP"})


async def test_pods_that_are_not_there(tmp_path: Path) -> None:
    group, *pods = dsl.gang("train", 3, members=5, cpu=1)
    found = verdict(await log_of(tmp_path, PLAIN, dsl.node("n1"), [group, *pods]), "train")
    assert about(found) == ("pods-missing", {"owner": "whoever made the group"})
    assert found.amounts == {"": {"pods": 3, "minimum": 5}}


async def test_a_long_name_leaves_room_for_the_cause(tmp_path: Path) -> None:
    long = "a" * 120 + "b" * 120
    jobs = [running(long, 1, "n1", cpu=8), list(dsl.gang(long.replace("b", "c"), 1, cpu=8))]
    found = verdict(await log_of(tmp_path, PLAIN, dsl.node("n1", cpu=8), *jobs), long.replace("b", "c"))
    mine, other = f"{'a' * 23}...{'c' * 23}", f"default/{'a' * 15}...{'b' * 23}"
    words = "the cluster is full: 0 of 8 cpu are free, and it needs 8"
    assert found.text == f"{mine} waits 0 s: {words}; {other} holds most"


@pytest.mark.parametrize("actions", ["allocate", "allocate, backfill"])
async def test_pods_that_ask_for_nothing_behind_a_cordon(tmp_path: Path, actions: str) -> None:
    """They are there, though the gang counts them as none that could be placed."""
    conf = PLAIN.replace("allocate", actions)
    path = await log_of(tmp_path, conf, dsl.node("n1", unschedulable=True), list(dsl.gang("bert", 2)))
    assert about(verdict(path, "bert")) == ("unschedulable-node", {"clause": "spec.unschedulable"})


async def test_a_gate_and_a_closed_queue(tmp_path: Path) -> None:
    gated = list(dsl.gang("gated", 1, cpu=1, spec={"schedulingGates": [{"name": "example.com/hold"}]}))
    closed = list(dsl.gang("closed", 1, queue="shut", cpu=1))
    path = await log_of(tmp_path, PLAIN, dsl.node("n1"), dsl.queue("shut", state="Closed"), gated, closed)
    assert about(verdict(path, "gated")) == ("gated", {"gate": "example.com/hold"})
    assert verdict(path, "gated").why == "a scheduling gate holds the pod: example.com/hold"
    assert about(verdict(path, "closed")) == ("queue-closed", {"queue": "shut", "state": "Closed"})
    assert verdict(path, "closed").why == "queue is Closed: shut"


async def test_no_node_at_all_and_none_that_a_selector_matches(tmp_path: Path) -> None:
    job = list(dsl.gang("bert", 1, cpu=8, spec={"nodeSelector": {"tier": "x"}}))
    found = verdict(await log_of(tmp_path, PLAIN, job), "bert", change=True)
    assert (found.cause, found.fix, found.text) == ("unschedulable-node", "", "bert waits 0 s: there is no node")
    (tmp_path / "full").mkdir()
    path = await log_of(tmp_path / "full", PLAIN, dsl.node("n1"), running("x", 1, "n1", cpu=8), job)
    assert about(verdict(path, "bert")) == ("selector", {"clause": "nodeSelector tier=x"})


async def test_a_selector_that_no_node_matches_names_the_values_that_exist(tmp_path: Path) -> None:
    nodes = [dsl.node(f"n{number}", labels={"tier": f"t{number}"}) for number in range(7)]
    job = list(dsl.gang("bert", 1, cpu=8, spec={"nodeSelector": {"tier": "x"}}))
    found = verdict(await log_of(tmp_path, PLAIN, nodes, job), "bert")
    assert about(found) == ("selector", {"clause": "nodeSelector tier=x", "existing": "t0, t1, t2, t3, t4"})
    assert found.amounts[""]["existing"] == 7
    assert found.why == (
        "nodeSelector tier=x fits 0 of 7 nodes (existing: t0, t1, t2, t3, t4 and 2 more), 7 others with capacity;"
        " it needs 1 pod"
    )


async def test_a_reason_with_a_causes_name_and_none_of_its_figures(tmp_path: Path) -> None:
    """Cards that exist nowhere are a shape that no node takes, and capacity-card says it in words of its own."""
    conf = CAPACITY.replace("capacity", "capacity-card")
    job = list(dsl.gang("bert", 1, gpu=1, annotations={"volcano.sh/card.name": "NVIDIA-H200"}))
    node = dsl.node("n1", gpu=2, labels={"nvidia.com/gpu.product": "NVIDIA-A100"})
    queue = dsl.queue("team", annotations={"volcano.sh/card.quota": '{"NVIDIA-H200": 4}'})
    found = verdict(await log_of(tmp_path, conf, node, queue, job), "bert")
    assert "NVIDIA-H200" in found.text


async def test_a_plugin_that_fails_when_it_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def clauses(*_: object) -> None:
        raise ZeroDivisionError("no such node")

    monkeypatch.setattr(NodeAffinity, "clauses", clauses)
    job = list(dsl.gang("bert", 1, cpu=8, spec={"nodeSelector": {"tier": "x"}}))
    found = verdict(await log_of(tmp_path, PLAIN, dsl.node("n1"), job), "bert")
    assert found.cause == "selector"
    assert found.text.endswith("(evaluating the nodes again fails with ZeroDivisionError: no such node)")

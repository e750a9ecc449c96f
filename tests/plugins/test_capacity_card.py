"""capacity-card: admission, placement and accounts of queues by card, with the examples of its description."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.dsl import flat, gang, group, node, planned, pod, priority_class, queue, session_after, session_of
from tests.laws.returning import Returning
from tests.plugins.opened import conf, job_of, plugin_of, queue_of, task_of
from tests.scores.rating import points, rated
from tests.sizes import some
from tests.world import World
from vcd.model import events as ev
from vcd.model.reasons import Reason
from vcd.model.status import TaskStatus
from vcd.scheduling.framework.declared_reasons import Told
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.points import Vote
from vcd.scheduling.plugins.capacity_card import CapacityCardPlugin
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement

Manifest = dict[str, Any]

A, B = "NVIDIA-GeForce-RTX-4090", "NVIDIA-GeForce-RTX-4090-D"
H200, ASCEND = "NVIDIA-H200", "Ascend-910B"
GPU = "nvidia.com/gpu"


def carded(
    name: str,
    card: str,
    gpu: int = 8,
    *,
    vendor: str = "nvidia.com",
    kind: str = "gpu",
    memory: str = "81920",
    **room: Any,
) -> Manifest:
    """A node with whole cards; ``room`` may hold other resources, ``labels`` more labels."""
    labels = {
        f"{vendor}/{kind}.product": card,
        f"{vendor}/{kind}.count": str(gpu),
        f"{vendor}/{kind}.memory": memory,
        **room.pop("labels", {}),
    }
    return node(name, labels=labels, **{"cpu": 64, "memory": 256, f"{vendor}/{kind}": gpu, **room})


def card_queue(name: str, quota: Mapping[str, int] | str | None = None, **spec: Any) -> Manifest:
    """A queue with a quota of cards, as a mapping or as the annotation's text."""
    manifest = queue(name, **spec)
    if quota is not None:
        text = quota if isinstance(quota, str) else json.dumps(quota)
        manifest["metadata"]["annotations"] = {"volcano.sh/card.quota": text}
    return manifest


def annotated(manifest: Manifest, **annotations: str) -> Manifest:
    """An object with ``card_name``, ``card_request`` as annotations."""
    marks = {f"volcano.sh/{key.replace('_', '.')}": text for key, text in annotations.items()}
    meta = manifest["metadata"]
    return {**manifest, "metadata": {**meta, "annotations": {**meta.get("annotations", {}), **marks}}}


def users(name: str, size: int, card: str | None, *, gpu: int = 1, **options: Any) -> list[Manifest]:
    """A gang whose pods ask for cards by name."""
    marks = {} if card is None else {"volcano.sh/card.name": card}
    return flat([gang(name, size, gpu=gpu, annotations=marks, **{"queue": "q", "members": 1, **options})])


def card_conf(*before: str, actions: str = "enqueue, allocate, backfill", **arguments: Any) -> str:
    return conf(*(before or ("priority", "gang", "predicates")), "capacity-card", arguments=arguments, actions=actions)


def opened(*objects: Any, **arguments: Any) -> Session:
    return session_of(*objects, conf=card_conf(**arguments))


def answer(session: Session, name: str) -> Vote | Reason:
    return plugin_of(session, CapacityCardPlugin).job_enqueueable(job_of(session, name))


def enqueue_reason(session: Session, name: str) -> str | None:
    said = answer(session, name)
    return said.words if isinstance(said, Reason) else None


def allocate_reason(session: Session, name: str) -> str | None:
    task = task_of(session, name)
    refused = framework_of(session).allocatable(task.job.queue, task, 1)
    return None if refused is None else refused[1].words


def gauges(session: Session) -> dict[tuple[str, ...], float]:
    shown = plugin_of(session, CapacityCardPlugin).gauges()
    return {(gauge.name, *(text for _, text in gauge.labels)): gauge.value for gauge in shown}


def why_of(world: World, name: str) -> list[Told]:
    """What a group waits for, without what gang sums up."""
    return [why for why in world.why(name) if why.plugin != "gang"]


TOO_MUCH = (
    "Queue <cr-queue1> has insufficient <NVIDIA-H200> quota: requested <5>, total would be <5>, but capability is <3>"
)

# --- examples of its description --------------------------------------------------------------------------------------

QUEUE1 = {
    "NVIDIA-H200": 3,
    "NVIDIA-H800": 2,
    "NVIDIA-GeForce-RTX-4090": 2,
    "NVIDIA-H800/mps-80g*1/2": 2,
    "NVIDIA-H200/mig-1g.18gb-mixed": 3,
    "NVIDIA-H200/mig-3g.71gb-mixed": 1,
}
CR_QUEUE1 = card_queue(
    "cr-queue1",
    QUEUE1,
    capability={"cpu": 4, "memory": "4Gi"},
    guarantee={"resource": {"cpu": 2, "memory": "2Gi"}},
)
MANY_MODELS = [
    carded("h200", H200, 7, **{"nvidia.com/mig-3g.71gb": 1, "nvidia.com/mig-1g.18gb": 3}),
    carded("h800", "NVIDIA-H800", 4, labels={"nvidia.com/gpu.replicas": "2"}, **{"nvidia.com/gpu.shared": 8}),
    carded("g4090", A, 8),
]
RESOURCE_OF = {"mps": "nvidia.com/gpu.shared", "1g": "nvidia.com/mig-1g.18gb", "3g": "nvidia.com/mig-3g.71gb"}


@pytest.mark.parametrize("card", QUEUE1)
def test_the_example_queue_takes_its_quota_of_each_card_and_no_more(card: str) -> None:
    resource = next((RESOURCE_OF[part] for part in RESOURCE_OF if f"/{part}" in card or f"mig-{part}" in card), GPU)
    pods = gang(
        "g", 8, members=1, queue="cr-queue1", requests={resource: "1"}, annotations={"volcano.sh/card.name": card}
    )
    result = planned(CR_QUEUE1, *MANY_MODELS, pods, conf=card_conf())
    assert len(result.binds) == QUEUE1[card]


def test_a_card_that_the_quota_does_not_list_cannot_be_used() -> None:
    session = opened(card_queue("q", {H200: 3}), carded("n", A), users("g", 1, A))
    assert allocate_reason(session, "g-0") == (
        f"Queue <q> has insufficient <{A}> quota: requested <1>, total would be <1>, but capability is <0>"
    )


def test_a_group_that_is_too_large_is_told_in_the_documents_words() -> None:
    five = annotated(
        group("g", queue="cr-queue1", phase="Pending", minimum={"cpu": 1}), card_request='{"NVIDIA-H200":5}'
    )
    assert enqueue_reason(opened(CR_QUEUE1, carded("n", H200), five), "g") == TOO_MUCH
    world = World(CR_QUEUE1, carded("n", H200), five, conf=card_conf())
    world.cycle()
    assert [(why.gate, why.plugin, why.reason) for why in why_of(world, "g")] == [
        ("enqueue", "capacity-card", TOO_MUCH)
    ]


def test_a_pod_that_is_too_large_is_told_in_the_documents_words() -> None:
    world = World(CR_QUEUE1, carded("n", H200), users("g", 1, H200, gpu=5, queue="cr-queue1"), conf=card_conf())
    world.cycle()
    assert [(why.gate, why.reason, why.pods) for why in why_of(world, "g")] == [("queue", TOO_MUCH, ("default/g-0",))]


def test_the_example_job_of_two_cards_is_admitted_and_placed() -> None:
    job = [
        annotated(m, card_request='{"NVIDIA-H200":2}') if m["kind"] == "PodGroup" else m
        for m in flat(
            [users("cr-job", 2, H200, members=2, queue="cr-queue1", phase="Pending", minimum={"cpu": 1, "gpu": 2})]
        )
    ]
    result = planned(CR_QUEUE1, *MANY_MODELS, job, conf=card_conf())
    assert set(result.binds.values()) == {"h200"}
    assert len(result.binds) == 2


def test_the_example_of_two_cards_takes_the_first_and_then_the_second() -> None:
    nodes = [carded("a", B), carded("b", A)]
    result = planned(card_queue("q", {A: 1, B: 1}), *nodes, users("cr-job", 2, f"{A}|{B}", members=2), conf=card_conf())
    assert sorted(result.binds.values()) == ["a", "b"]


@pytest.mark.parametrize(
    ("names", "resource", "told"),
    [
        (f"{A}|{H200}/mig-1g.18gb-mixed", GPU, "nvidia.com/mig-1g.18gb"),
        (f"{H200}/mig-1g.18gb-mixed|{H200}/mig-3g.71gb-mixed", "nvidia.com/mig-1g.18gb", "nvidia.com/mig-3g.71gb"),
        (f"{H200}|{ASCEND}", GPU, "huawei.com/npu"),
    ],
)
def test_cards_of_different_resources_are_refused_on_the_pod(names: str, resource: str, told: str) -> None:
    asks = gang("g", 1, queue="q", requests={resource: "1"}, annotations={"volcano.sh/card.name": names})
    quota = dict.fromkeys(names.split("|"), 3)
    npu = carded("npu", ASCEND, vendor="huawei.com", kind="npu")
    world = World(card_queue("q", quota), *MANY_MODELS, npu, asks, conf=card_conf())
    world.cycle()
    (why,) = why_of(world, "g")
    assert why.pods == ("default/g-0",)
    assert "cards of different resources cannot stand for each other" in why.reason
    assert told in why.reason


def test_the_document_s_limits_of_cpu_and_memory_hold() -> None:
    session = opened(CR_QUEUE1, node("n"), gang("g", 2, queue="cr-queue1", cpu=5, memory="1Gi"))
    assert allocate_reason(session, "g-0") == (
        "Queue <cr-queue1> has insufficient <cpu> quota: requested <5>, total would be <5>, but capability is <4>"
    )
    session = opened(CR_QUEUE1, node("n"), gang("g", 1, queue="cr-queue1", cpu=1, memory="5Gi"))
    assert allocate_reason(session, "g-0") == (
        "Queue <cr-queue1> has insufficient <memory> quota: requested <5Gi>, total would be <5Gi>, "
        "but capability is <4Gi>"
    )


# --- cpu and memory ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("resource", "other"), [("cpu", "memory"), ("memory", "cpu")])
def test_a_capability_of_zero_means_none_and_one_that_is_not_set_what_the_cluster_has_left(
    resource: str, other: str
) -> None:
    objects = [card_queue("q", {A: 2}, capability={resource: "0"}), carded("n", A)]
    for asked, allowed in ((resource, False), (other, True)):
        wants = flat(
            [gang("g", 1, queue="q", **{asked: 1}), group("p", queue="q", phase="Pending", minimum={asked: 1})]
        )
        session = opened(*objects, *wants)
        for reason in (allocate_reason(session, "g-0"), enqueue_reason(session, "p")):
            assert (reason is None) == allowed
            assert allowed or f"insufficient <{resource}> quota" in str(reason)
            assert allowed or "but capability is <0>" in str(reason)
    shown = gauges(opened(*objects))
    series = {"cpu": "volcano_queue_capacity_milli_cpu", "memory": "volcano_queue_capacity_memory_bytes"}
    assert shown[series[resource], "q"] == 0
    assert (series[other], "q") not in shown


def test_without_capability_a_queue_may_use_what_the_guarantees_leave_and_its_own() -> None:
    objects = [
        node("n", cpu=10),
        card_queue("q", guarantee={"resource": {"cpu": 1}}),
        card_queue("r", guarantee={"resource": {"cpu": 3}}),
    ]
    assert allocate_reason(opened(*objects, gang("g", 1, queue="q", cpu=7)), "g-0") is None
    reason = allocate_reason(opened(*objects, gang("g", 1, queue="q", cpu="7001m")), "g-0")
    assert reason is not None
    assert "<7001m>, but capability is <7>" in reason


def test_pods_with_cards_count_cpu_and_memory_unless_told_otherwise() -> None:
    objects = [card_queue("q", {A: 8}, capability={"cpu": 4}), carded("n", A), users("g", 1, A, cpu=5)]
    reason = allocate_reason(opened(*objects), "g-0")
    assert reason is not None
    assert "<cpu>" in reason
    assert allocate_reason(opened(*objects, cardUnlimitedCpuMemory="true"), "g-0") is None


def test_unlimited_cpu_and_memory_is_for_pods_with_cards_only() -> None:
    objects = [card_queue("q", {A: 8}, capability={"cpu": 4}), carded("n", A)]
    session = opened(*objects, users("g", 1, A, cpu=4), gang("c", 1, queue="q", cpu=4), cardUnlimitedCpuMemory="true")
    card = task_of(session, "g-0")
    Statement(session.trial, "allocate", card.job).allocate([card], [0])
    assert allocate_reason(session, "c-0") is None
    cpu = task_of(session, "c-0")
    Statement(session.trial, "allocate", cpu.job).allocate([cpu], [0])
    assert gauges(session)["volcano_queue_allocated_milli_cpu", "q"] == 4000


def test_what_runs_already_counts_no_cpu_where_it_has_cards_and_is_unlimited() -> None:
    objects = [card_queue("q", {A: 8}, capability={"cpu": 4}), carded("n", A)]
    running = [users("g", 1, A, cpu=4, on=["n"]), *gang("c", 1, queue="q", cpu=3, on=["n"])]
    for unlimited, cpu in (("true", 3000), ("false", 7000)):
        shown = gauges(opened(*objects, *running, cardUnlimitedCpuMemory=unlimited))
        assert shown["volcano_queue_allocated_milli_cpu", "q"] == cpu


def test_a_group_with_cards_is_admitted_without_regard_to_cpu_where_that_is_unlimited() -> None:
    wants = users("g", 1, A, cpu=5, phase="Pending", minimum={"cpu": 5, "gpu": 1})
    objects = [card_queue("q", {A: 8}, capability={"cpu": 4}), carded("n", A), *flat([wants])]
    assert "<cpu>" in (enqueue_reason(opened(*objects), "g") or "")
    assert enqueue_reason(opened(*objects, cardUnlimitedCpuMemory="true"), "g") is None


# --- admission --------------------------------------------------------------------------------------------------------


def asking(name: str, cards: str, phase: str = "Pending", **spec: Any) -> Manifest:
    return annotated(group(name, queue="q", phase=phase, minimum={"cpu": 1}, **spec), card_request=cards)


def test_the_annotation_counts_until_there_are_pods() -> None:
    base = [card_queue("q", {A: 3}), carded("n", A)]
    assert enqueue_reason(opened(*base, asking("g", json.dumps({A: 4}))), "g") is not None
    pods = [pod("g-0", group="g", gpu=3, annotations={"volcano.sh/card.name": A})]
    assert enqueue_reason(opened(*base, asking("g", json.dumps({A: 4})), *pods), "g") is None


def test_admission_counts_what_is_allocated_and_what_was_admitted() -> None:
    base = [card_queue("q", {A: 6}), carded("n", A), users("running", 2, A, on=["n", "n"])]
    waiting = asking("waiting", json.dumps({A: 3}), phase="Inqueue")
    session = opened(*base, waiting, asking("g", json.dumps({A: 1})), asking("h", json.dumps({A: 2})))
    assert enqueue_reason(session, "g") is None
    assert "requested <2>, total would be <7>, but capability is <6>" in (enqueue_reason(session, "h") or "")


def test_admission_within_one_session_adds_up() -> None:
    session = session_after(
        card_queue("q", {A: 3}),
        carded("n", A),
        asking("a", json.dumps({A: 2}), created=1),
        asking("b", json.dumps({A: 2}), created=2),
        conf=card_conf(),
    )
    assert [job_of(session, name).phase.text for name in "ab"] == ["Inqueue", "Pending"]


def test_what_a_running_group_holds_above_its_minimum_is_elastic() -> None:
    base = [card_queue("q", {A: 4}), carded("n", A)]
    grown = users("running", 3, A, on=["n"] * 3, minimum={"gpu": 1}, phase="Running")
    session = opened(*base, grown, asking("g", json.dumps({A: 3})), asking("h", json.dumps({A: 4})))
    assert enqueue_reason(session, "g") is None  # 3 + 3 - 2 <= 4
    assert "total would be <5>" in (enqueue_reason(session, "h") or "")


CLASSES = [priority_class("high", 1000), priority_class("middle", 50), priority_class("low", 1)]


@pytest.mark.parametrize(("rank", "admitted"), [("high", True), ("middle", False), ("low", False)])
def test_reservations_of_lower_priority_do_not_keep_a_group_out(rank: str, admitted: bool) -> None:
    """Of cards, by the annotation."""
    base = [*CLASSES, card_queue("q", {A: 4}), carded("n", A)]
    waiting = [asking(f"w{i}", json.dumps({A: 2}), phase="Inqueue", priorityClassName="middle") for i in range(3)]
    session = opened(*base, *waiting, asking("g", json.dumps({A: 4}), priorityClassName=rank))
    assert (enqueue_reason(session, "g") is None) == admitted


@pytest.mark.parametrize("pods", [0, 2])
@pytest.mark.parametrize("unlimited", [False, True])
def test_reservations_of_cpu_count_by_priority_too(unlimited: bool, pods: int) -> None:
    base = [*CLASSES, card_queue("q", capability={"cpu": 8}), carded("n", A)]
    waiting = gang("w", pods, queue="q", members=2, minimum={"cpu": 8}, cpu=4, group_spec={"priorityClassName": "low"})
    ranks = ("high", "low")
    new = [
        group(f"g-{rank}", members=2, queue="q", phase="Pending", minimum={"cpu": 8}, priorityClassName=rank)
        for rank in ranks
    ]
    session = opened(*base, waiting, *new, cardUnlimitedCpuMemory=unlimited)
    assert [enqueue_reason(session, f"g-{rank}") is None for rank in ranks] == [True, False]


def test_reservations_of_one_session_count_by_priority_too() -> None:
    """Queue high is served first; what its group reserves keeps out groups of its priority and below."""
    groups = [
        asking(name, json.dumps({A: 3}), created=created, priorityClassName=rank)
        for created, (name, rank) in enumerate([("a", "low"), ("b", "high"), ("c", "high"), ("d", "low")])
    ]
    session = session_after(*CLASSES, card_queue("q", {A: 3}), carded("n", A), *groups, conf=card_conf("gang"))
    assert [job_of(session, name).phase.text for name in "abcd"] == ["Inqueue", "Inqueue", "Pending", "Pending"]


def test_what_pods_to_come_reserve_counts_by_priority() -> None:
    """A gang of three has one pod so far, which tells the card of the others."""
    base = [*CLASSES, card_queue("q", {A: 3}), carded("n", A)]
    low = users("low", 1, A, members=3, minimum={"gpu": 3}, group_spec={"priorityClassName": "low"})
    ranks = ("high", "low")
    new = [asking(f"g-{rank}", json.dumps({A: 2}), priorityClassName=rank) for rank in ranks]
    session = opened(*base, low, *new)
    assert [enqueue_reason(session, f"g-{rank}") is None for rank in ranks] == [True, False]


def test_cards_that_may_stand_for_each_other_are_admitted_by_their_sum() -> None:
    """Quotas 5 and 3, of which 2 and 1 are used: four more of either make 7 of 8."""
    base = [
        card_queue("q", {A: 5, B: 3}),
        carded("a", A),
        carded("b", B),
        users("x", 2, A, on=["a", "a"]),
        users("y", 1, B, on=["b"]),
    ]
    session = opened(*base, asking("g", json.dumps({f"{A}|{B}": 5})), asking("h", json.dumps({f"{A}|{B}": 6})))
    assert enqueue_reason(session, "g") is None
    assert enqueue_reason(session, "h") == (
        f"Queue <q> has insufficient <{A}|{B}> quota: requested <6>, total would be <9>, but capability is <8>"
    )


def test_a_deployment_of_four_runs_three_where_the_quota_is_three() -> None:
    """Admission counts what the minimum needs, though all pods are there; allocation then fills the quota."""
    web = users("web", 4, A, members=1, phase="Pending", minimum={"cpu": 1, "gpu": 1})
    world = World(card_queue("q", {A: 3}), carded("n", A), web, conf=card_conf())
    world.rest()
    assert len(world.placed("web")) == 3


@pytest.mark.parametrize(
    ("pods", "members", "minimum", "quota", "needs"),
    [
        (6, 1, {"cpu": 1}, 1, 1),  # minResources is silent on cards: as many pods as minMember
        (6, 5, {"cpu": 1}, 4, 5),
        (6, 2, {"gpu": 4}, 3, 4),  # where it is not, it says what the minimum is
        (6, 4, {"gpu": 2}, 2, 2),
        (3, 3, {"gpu": 9}, 2, 3),  # never more than there is to place
    ],
)
def test_admission_counts_the_minimum(pods: int, members: int, minimum: dict[str, int], quota: int, needs: int) -> None:
    asks = users("g", pods, A, members=members, phase="Pending", minimum=minimum)
    reason = enqueue_reason(opened(card_queue("q", {A: quota}), carded("n", A), asks), "g")
    told = f"requested <{needs}>, total would be <{needs}>, but capability is <{quota}>"
    assert reason is None if needs <= quota else told in str(reason)


@pytest.mark.parametrize(("quota", "admitted"), [({A: 4, B: 9}, False), ({A: 5}, True)])
def test_what_is_stated_counts_before_all_pods_are_there(quota: dict[str, int], admitted: bool) -> None:
    """A gang that was seen while its pods were being made is not let in where it can never start."""
    asks = [
        group("g", queue="q", phase="Pending", minimum={"gpu": 5}, members=5),
        *(pod(f"g-{number}", group="g", gpu=1, annotations={"volcano.sh/card.name": A}) for number in range(2)),
    ]
    reason = enqueue_reason(opened(card_queue("q", quota), carded("a", A), carded("b", B), asks), "g")
    assert reason is None if admitted else "requested <5>, total would be <5>, but capability is <4>" in str(reason)


def test_pods_to_come_may_have_any_card_that_those_name_which_are_there() -> None:
    pods = [pod(f"g-{n}", group="g", gpu=1, annotations={"volcano.sh/card.name": n}) for n in (A, B)]
    asks = [group("g", queue="q", phase="Pending", minimum={"gpu": 6}, members=6), *pods]
    for quota, admitted in (({A: 1, B: 4}, False), ({A: 5, B: 1}, True), ({A: 1, B: 5}, True), ({A: 6}, False)):
        reason = enqueue_reason(opened(card_queue("q", quota), carded("a", A), carded("b", B), asks), "g")
        assert (reason is None) == admitted


def test_an_admitted_gang_keeps_what_its_pods_to_come_will_ask_for() -> None:
    base = [card_queue("q", {A: 6}), carded("n", A)]
    half = [
        group("half", queue="q", phase="Inqueue", minimum={"gpu": 4}, members=4),
        pod("half-0", group="half", gpu=1, annotations={"volcano.sh/card.name": A}),
    ]
    session = opened(*base, half, asking("g", json.dumps({A: 2})), asking("h", json.dumps({A: 3})))
    assert enqueue_reason(session, "g") is None
    assert "requested <3>, total would be <7>" in str(enqueue_reason(session, "h"))


def test_an_admitted_group_keeps_what_its_minimum_needs_and_no_more() -> None:
    base = [card_queue("q", {A: 5}), carded("n", A)]
    waits = users("waits", 4, A, members=2, minimum={"cpu": 1})
    session = opened(*base, waits, asking("g", json.dumps({A: 3})), asking("h", json.dumps({A: 4})))
    assert enqueue_reason(session, "g") is None
    assert "requested <4>, total would be <6>" in str(enqueue_reason(session, "h"))


def test_what_of_its_minimum_a_group_has_is_not_wanted_twice() -> None:
    base = [card_queue("q", {A: 4}), carded("n", A)]
    half = users("half", 3, A, members=2, on=["n"], minimum={"gpu": 2})
    session = opened(*base, half, asking("g", json.dumps({A: 2})), asking("h", json.dumps({A: 3})))
    assert enqueue_reason(session, "g") is None
    assert "requested <3>, total would be <5>" in str(enqueue_reason(session, "h"))


def test_pods_without_cards_are_the_first_of_a_minimum() -> None:
    """A master and four workers, of which three pods are the minimum: two cards, or three without the master."""
    marks = {"volcano.sh/card.name": A}
    spec = {"queue": "q", "phase": "Pending", "minimum": {"cpu": 1}, "members": 3}
    workers = [pod(f"w-{i}", group="g", gpu=1, annotations=marks) for i in range(4)]
    for master, needs in (([pod("m", group="g", cpu=1)], 2), ([], 3)):
        for quota in (needs - 1, needs):
            session = opened(card_queue("q", {A: quota}), carded("n", A), group("g", **spec), *workers, *master)
            assert (enqueue_reason(session, "g") is None) == (quota == needs)


def test_of_pods_with_different_cards_those_that_ask_for_the_least_are_the_minimum() -> None:
    marks = [{"volcano.sh/card.name": card} for card in (A, B)]
    pods = [pod("big", group="g", gpu=4, annotations=marks[0]), pod("small", group="g", gpu=1, annotations=marks[1])]
    for quota, admitted in (({B: 1}, True), ({A: 4}, False)):
        waits = group("g", queue="q", phase="Pending", minimum={"cpu": 1}, members=1)
        session = opened(card_queue("q", quota), carded("a", A), carded("b", B), waits, *pods)
        assert (enqueue_reason(session, "g") is None) == admitted


def test_pods_that_a_gate_holds_reserve_nothing() -> None:
    gated = users("gated", 2, A, spec={"schedulingGates": [{"name": "wait"}]})
    session = opened(card_queue("q", {A: 3}), carded("n", A), gated, asking("g", json.dumps({A: 3})))
    assert enqueue_reason(session, "g") is None


@pytest.mark.parametrize("state", ["Closed", "Closing"])
def test_a_queue_that_is_not_open_admits_and_places_nothing(state: str) -> None:
    session = opened(card_queue("q", {A: 3}, state=state), carded("n", A), users("g", 1, A))
    assert enqueue_reason(session, "g") == allocate_reason(session, "g-0") == f"queue is {state}"


# --- placement --------------------------------------------------------------------------------------------------------


def test_a_deployment_that_grows_is_held_at_its_quota_and_gives_back_when_it_shrinks() -> None:
    world = World(card_queue("q", {A: 3}), carded("n", A), users("web", 5, A, members=1), conf=card_conf())
    world.rest()
    assert len(world.placed("web")) == 3
    assert "insufficient" in world.reasons("web")
    world.remove("Pod", f"default/{min(world.placed('web'))}")
    world.rest()
    assert len(world.placed("web")) == 3


def test_of_several_cards_one_with_quota_left_is_taken_though_the_first_has_room() -> None:
    result = planned(
        card_queue("q", {A: 1, B: 4}), carded("a", A), carded("b", B), users("g", 4, f"{A}|{B}"), conf=card_conf()
    )
    assert sorted(result.binds.values()) == ["a", "b", "b", "b"]


def test_where_no_card_has_quota_left_the_reason_names_each() -> None:
    session = opened(card_queue("q", {A: 1}), carded("a", A), carded("b", B), users("g", 1, f"{A}|{B}", gpu=2))
    assert allocate_reason(session, "g-0") == (
        f"Queue <q> has insufficient <{A}> quota: requested <2>, total would be <2>, but capability is <1>; "
        f"Queue <q> has insufficient <{B}> quota: requested <2>, total would be <2>, but capability is <0>"
    )


def test_nodes_whose_card_has_no_quota_left_say_so() -> None:
    objects = [carded("a", A), carded("b", B, 1), users("x", 1, B, on=["b"], queue="r"), users("g", 1, f"{A}|{B}")]
    world = World(card_queue("q", {B: 3}), card_queue("r", {B: 1}), *objects, conf=card_conf())
    world.cycle()
    reasons = {why.reason: why.nodes for why in why_of(world, "g")}
    insufficient = "requested <1>, total would be <1>, but capability is <0>"
    assert reasons == {
        f"Queue <q> has insufficient <{A}> quota: {insufficient}": 1,
        f"Insufficient {GPU}": 1,
    }


def test_a_pod_that_names_one_card_lands_on_no_other_even_without_affinity() -> None:
    result = planned(
        card_queue("q", {A: 4, B: 4}), carded("b", B), users("g", 1, A), carded("a", A, 1), conf=card_conf()
    )
    assert result.binds == {"default/g-0": "a"}
    world = World(card_queue("q", {A: 4}), carded("b", B), carded("a", A, 0), users("g", 1, A), conf=card_conf())
    world.cycle()
    assert {why.reason: why.nodes for why in why_of(world, "g")}[f"node(s) had no card <{A}>"] == 1


def test_pods_that_differ_in_annotation_or_queue_alone_do_not_share_what_was_found_for_others() -> None:
    quotas = [card_queue("q", {A: 2, B: 2}), card_queue("r", {A: 0, B: 2})]
    nodes = [carded("a", A), carded("b", B)]
    pods = [
        users("x", 1, A),
        users("y", 1, B),
        users("z", 1, f"{A}|{B}", queue="q"),
        users("w", 1, f"{A}|{B}", queue="r"),
    ]
    binds = planned(*quotas, *nodes, *pods, conf=card_conf()).binds
    assert binds == {"default/x-0": "a", "default/y-0": "b", "default/z-0": "a", "default/w-0": "b"}


def test_a_pod_without_a_name_takes_its_group_s() -> None:
    manifests = flat([users("g", 1, None)])
    named = [annotated(m, card_name=B) if m["kind"] == "PodGroup" else m for m in manifests]
    result = planned(card_queue("q", {A: 1, B: 1}), carded("a", A), carded("b", B), named, conf=card_conf())
    assert result.binds == {"default/g-0": "b"}


def test_a_pod_that_names_no_card_is_charged_for_the_one_it_gets() -> None:
    objects = [carded("a", A), carded("b", B), users("g", 3, None)]
    assert sorted(planned(card_queue("q", {B: 2}), *objects, conf=card_conf()).binds.values()) == ["b", "b"]
    session = opened(card_queue("q", {}), *objects)
    refused = framework_of(session).allocatable(queue_of(session, "q"), task_of(session, "g-0"), 1)
    assert refused is not None
    assert refused[1].detail == {"or": "name one card in volcano.sh/card.name"}


def test_a_running_pod_is_charged_by_its_node_whatever_it_names() -> None:
    session = opened(card_queue("q", {A: 4, B: 4}), carded("b", B), users("g", 2, f"{A}|{B}", on=["b", "b"], gpu=2))
    shown = gauges(session)
    assert shown["vcd_queue_card_allocated", "q", B] == 4
    assert shown["vcd_queue_card_allocated", "q", A] == 0


def test_a_running_pod_whose_node_is_gone_is_charged_by_the_card_it_names() -> None:
    session = opened(card_queue("q", {A: 2}), carded("a", A), users("g", 3, A, on=["gone", "gone"]))
    assert "total would be <3>" in (allocate_reason(session, "g-2") or "")


def test_placements_and_their_reverses_are_charged() -> None:
    session = opened(card_queue("q", {A: 2}), carded("a", A), users("g", 3, A))
    first, second = task_of(session, "g-0"), task_of(session, "g-1")
    statement = Statement(session.trial, "allocate", first.job)
    statement.allocate([first], [0])
    statement.pipeline([second], [0])
    assert allocate_reason(session, "g-2") is not None
    assert gauges(session)["vcd_queue_card_allocated", "q", A] == 2
    statement.discard()
    assert allocate_reason(session, "g-2") is None
    assert gauges(session)["vcd_queue_card_allocated", "q", A] == 0


def test_scalars_that_are_no_cards_are_not_bounded() -> None:
    roce = {"cpu": "1", "rdma/roce": "4"}
    objects = [carded("n", A, **{"rdma/roce": 8}), gang("g", 2, queue="q", requests=roce)]
    assert len(planned(card_queue("q", {}), *objects, conf=card_conf()).binds) == 2


def test_a_cluster_that_shrinks_below_what_is_used_evicts_nobody_and_places_nothing() -> None:
    world = World(card_queue("q", {A: 6}), carded("n", A, 4), users("g", 4, A), conf=card_conf())
    world.rest()
    assert len(world.placed("g")) == 4
    world.put(carded("n", A, 1), users("late", 1, A))
    world.rest()
    assert world.evicted == []
    assert (len(world.placed("g")), len(world.placed("late"))) == (4, 0)
    assert f"Insufficient {GPU}" in world.reasons("late")


def test_a_quota_that_shrinks_below_what_is_used_evicts_nobody_and_holds_the_rest() -> None:
    world = World(card_queue("q", {A: 4}), carded("n", A), users("g", 4, A), conf=card_conf())
    world.rest()
    world.put(card_queue("q", {A: 1}), users("late", 1, A))
    world.rest()
    assert (len(world.placed("g")), len(world.placed("late")), world.evicted) == (4, 0, [])
    assert "total would be <5>, but capability is <1>" in world.reasons("late")


def test_quotas_may_sum_up_to_more_than_the_cluster_has() -> None:
    queues = [card_queue("q", {A: 3}), card_queue("r", {A: 3})]
    pods = [users("x", 3, A), users("y", 3, A, queue="r")]
    assert len(planned(*queues, carded("n", A, 4), *pods, conf=card_conf()).binds) == 4


def test_parents_of_queues_mean_nothing() -> None:
    queues = [card_queue("parent", {A: 1}), card_queue("q", {A: 3}, parent="parent")]
    assert len(planned(*queues, carded("n", A), users("x", 3, A), conf=card_conf()).binds) == 3


def test_preemption_within_a_queue_stays_within_its_quota() -> None:
    actions = "enqueue, allocate, preempt"
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100}
    low = users("low", 2, A, on=["a", "a"], phase="Running")
    urgent = users("high", 1, A, gpu=1, members=1, group_spec={"priorityClassName": "high"}, spec={"priority": 100})
    objects = [card_queue("q", {A: 2}), carded("a", A), high, low, urgent]
    result = planned(*objects, conf=card_conf(actions=actions))
    assert len(result.evictions) == 1


# --- reclaim ----------------------------------------------------------------------------------------------------------


def reclaiming(be: int, *tiers: str, action: str = "reclaim") -> World:
    """A full node: queue be runs two pods of one, ls wants its own; gang stands behind, so that it lets singles go."""
    text = conf(*(tiers or ("priority", "conformance")), actions=f"allocate, {action}")
    text += "- plugins: [{name: gang}, {name: predicates}, {name: capacity-card}]\n"
    runs = [users(f"run-{i}", 1, A, queue="be", on=["n"]) for i in range(2)]
    quotas = card_queue("be", {A: be}), card_queue("ls", {A: 2})
    return World(carded("n", A, 2), *quotas, *runs, users("new", 1, A, queue="ls"), conf=text)


@pytest.mark.parametrize(("quota", "evicted"), [(2, 0), (1, 1), (0, 1)])
@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
def test_reclaim_takes_cards_only_from_a_queue_beyond_its_quota(quota: int, evicted: int, action: str) -> None:
    world = reclaiming(quota, action=action)
    world.rest()
    assert len(world.evicted) == evicted
    assert len(world.placed("new")) == evicted


def test_a_queue_gives_no_more_than_it_holds_beyond_its_quota() -> None:
    world = reclaiming(1)
    world.put(users("more", 1, A, queue="ls"))
    world.rest()
    assert len(world.evicted) == 1


def test_a_pod_of_more_cards_than_its_queue_holds_beyond_its_quota_stays() -> None:
    text = conf("priority", "conformance", "predicates", "capacity-card", actions="allocate, reclaim")
    big = users("big", 1, A, queue="be", gpu=2, on=["n"])
    world = World(
        carded("n", A, 2),
        card_queue("be", {A: 1}),
        card_queue("ls", {A: 2}),
        big,
        users("new", 1, A, queue="ls"),
        conf=text,
    )
    world.rest()
    assert world.evicted == []


@pytest.mark.parametrize("text", ['{"NVIDIA-H200": "4"}', '{"NVIDIA-H200": 4.0}', '{"NVIDIA-H200": 4', ""])
@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
def test_nobody_goes_for_a_quota_that_cannot_be_read(text: str, action: str) -> None:
    """A slip of the pen in a queue's annotation cost the queue all pods that it had."""
    world = World(
        *[carded("n", H200, 4), card_queue("q", text), card_queue("r", {H200: 4})],
        users("old", 4, H200, on=["n"] * 4),
        users("new", 2, H200, queue="r", members=2),
        conf=card_conf("priority", "gang", "predicates", actions=f"enqueue, {action}, allocate"),
    )
    world.cycle()
    assert world.evicted == []


PLUGINS = pytest.mark.parametrize(
    ("plugins", "size"), [(("priority", "conformance", "predicates"), 1), (("priority", "gang", "predicates"), 4)]
)
ACTIONS = pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
Plugins = tuple[str, ...]


def contended(
    plugins: Plugins, size: int, action: str, a: Manifest, b: Manifest, cpu: int = 8, memory: float = 0, **options: Any
) -> Returning:
    """Jobs of queue a hold all cpu of a node; as many of queue b wait. Pods that are evicted come back."""
    jobs = [
        gang(
            f"{name}{i}",
            size,
            queue=name,
            members=1,
            on=["n"] * size if runs else (),
            phase=phase,
            cpu=1,
            memory=memory,
        )
        for name, runs, phase in (("a", True, "Running"), ("b", False, "Inqueue"))
        for i in range(cpu // size)
    ]
    text = conf(*plugins, "capacity-card", actions=f"enqueue, allocate, {action}", arguments=options or None)
    world = Returning(carded("n", A, 8, cpu=cpu), card_queue("a", **a), card_queue("b", **b), *jobs, conf=text)
    world.cycles(20)
    return world


def deserves(**amounts: int) -> Manifest:
    return {"deserved": {name: str(amount) for name, amount in amounts.items()}}


@ACTIONS
@PLUGINS
@pytest.mark.parametrize("cpu", [4, 16])
@pytest.mark.parametrize("shares", some(3, [((2, 6),), ((0, 4),), ((16, 0),), ((4, 4),), ((16, 16),)]))
def test_no_two_queues_exchange_pods_without_cards(
    plugins: Plugins, size: int, action: str, cpu: int, shares: tuple[int, int]
) -> None:
    mine, theirs = shares
    world = contended(plugins, size, action, deserves(cpu=mine), deserves(cpu=theirs), cpu)
    assert {name[:9] for name in world.evictions} <= {"default/a"}
    assert set(world.evictions.values()) <= {1}
    assert len(world.placed("b")) == len(world.evictions)
    lent = min(max(cpu - mine, 0), theirs)
    assert len(world.evictions) <= lent
    if size == 1:
        assert len(world.evictions) == lent


@ACTIONS
@PLUGINS
def test_nor_do_queues_that_deserve_different_resources(plugins: Plugins, size: int, action: str) -> None:
    """Of what is divided each is within its part of one, and beyond it of the other."""
    world = contended(plugins, size, action, deserves(cpu=8), {"deserved": {"memory": "8Gi"}}, memory=1)
    assert world.evictions == {}


@ACTIONS
def test_a_guarantee_is_not_reclaimed_though_more_is_held_of_something_else(action: str) -> None:
    plain = ("priority", "predicates")
    mine = {"deserved": {"cpu": "2"}, "guarantee": {"resource": {"memory": "6Gi"}}}
    theirs = {"deserved": {"cpu": "8", "memory": "8Gi"}}
    assert len(contended(plain, 1, action, mine, theirs, memory=1).evictions) == 2
    assert len(contended(plain, 1, action, deserves(cpu=2), theirs, memory=1).evictions) == 8


@ACTIONS
@pytest.mark.parametrize(("due", "as_volcano"), [(0, False), (8, True)])
def test_reclaim_of_pods_without_cards_is_left_to_the_other_plugins(action: str, due: int, as_volcano: bool) -> None:
    plain, same = ("priority", "predicates"), deserves(cpu=due)
    world = contended(plain, 1, action, same, same, volcanoSharesEnable=as_volcano)
    assert set(world.evictions.values()) == {1}  # each pod once: its replacement is immune (docs/laws.md, law 8)


@ACTIONS
@pytest.mark.parametrize("held", [1, 4])
def test_cards_that_pods_without_cards_keep_from_a_queue_come_back(action: str, held: int) -> None:
    """They hold the cpu of a node with idle cards; their queue does not deserve it."""
    text = conf("priority", "predicates", "capacity-card", actions=f"enqueue, allocate, {action}")
    borrowed = gang("old", held, members=1, queue="be", cpu=4 / held, on=["n"] * held, phase="Running")
    queues = card_queue("be"), card_queue("ls", {A: 4})
    world = Returning(carded("n", A, 4, cpu=4), *queues, borrowed, users("new", 1, A, queue="ls", cpu=1), conf=text)
    world.cycles(10)
    assert len(world.evictions) == 1
    assert list(world.placed("new")) == ["new-0"]


# --- quota that is still being freed ----------------------------------------------------------------------------------


def leaving(name: str, on: str, **amounts: Any) -> list[Manifest]:
    """A pod that is being deleted and still on its node."""
    return flat([group(name, queue="q"), pod(name, group=name, on=on, deleting=True, **amounts)])


def test_nobody_is_bound_on_quota_that_a_pod_still_holds_that_is_being_deleted() -> None:
    old = leaving("old", "n", gpu=1)
    world = World(carded("n", A, 4), card_queue("q", {A: 1}), old, users("new", 1, A), conf=card_conf())
    world.cycle()
    assert world.placed("new") == {}
    assert "still hold the queue's quota" in world.reasons("new")
    world.remove("Pod", "default/old")
    world.rest()
    assert list(world.placed("new")) == ["new-0"]


def test_who_finds_its_quota_still_held_waits_where_the_room_is_still_held_too() -> None:
    nodes, quota, old = (
        [carded("full", A, 1), carded("free", A, 4)],
        card_queue("q", {A: 1}),
        leaving("old", "full", gpu=1),
    )
    session = session_after(nodes, quota, old, users("new", 1, A), conf=card_conf())
    task = task_of(session, "new-0")
    assert (task.status, session.nodes.facts.names[task.node]) == (TaskStatus.PIPELINED, "full")


def test_cards_that_are_leaving_leave_the_other_named_ones_alone() -> None:
    nodes = [carded("a", A, 4), carded("b", B, 4)]
    quota = card_queue("q", {A: 1, B: 1})
    world = World(nodes, quota, leaving("old", "a", gpu=1), users("new", 1, f"{A}|{B}"), conf=card_conf())
    world.rest()
    assert world.placed("new") == {"new-0": "b"}


def test_cpu_and_memory_that_are_leaving_are_waited_for_too() -> None:
    limited = card_queue("q", capability={"cpu": 4, "memory": "4Gi"})
    new = gang("new", 1, queue="q", cpu=2, memory=1)
    world = World(carded("n", A), limited, leaving("old", "n", cpu=3, memory=1), new, conf=card_conf())
    world.cycle()
    assert world.placed("new") == {}
    world.remove("Pod", "default/old")
    world.rest()
    assert list(world.placed("new")) == ["new-0"]


def test_where_the_quota_holds_nobody_only_who_leaves_with_the_same_card_is_waited_for() -> None:
    """enabledAllocatable false: what lacks of card B, or of cpu, is nobody's who is leaving with card A."""
    off = card_conf(actions="allocate").replace(
        "name: capacity-card", "name: capacity-card\n    enabledAllocatable: false"
    )
    nodes, quota = [carded("a", A, 4), carded("b", B, 4)], card_queue("q", {A: 1, B: 1}, capability={"cpu": 1})
    held = users("held", 1, B, on=["b"], cpu=1)
    world = World(nodes, quota, leaving("old", "a", gpu=1), held, users("new", 1, B, cpu=1), conf=off)
    world.rest()
    assert world.placed("new") == {"new-0": "b"}


def test_what_a_preemption_frees_is_bound_only_when_it_is_free() -> None:
    """Whoever asks next; and nobody else goes meanwhile."""
    tiers = conf("priority", "conformance", "predicates", "capacity-card", actions="allocate, preempt")
    world = World(
        priority_class("high", 10),
        carded("n", A, 4),
        card_queue("q", {A: 1}),
        users("low", 1, A, on=["n"]),
        users("first", 1, A, group_spec={"priorityClassName": "high"}, spec={"priority": 10}),
        users("next", 1, A, group_spec={"priorityClassName": "high"}, spec={"priority": 10}),
        conf=tiers,
    )
    for _ in range(3):
        plan = world.decide()
        assert [op.key for s in plan.statements for op in s.operations if op.verb == "bind"] == []
    evicted = [op.key for event in world.log for op in evictions_of(event)]
    assert evicted == ["default/low-0"]
    world.remove("Pod", "default/low-0")
    world.rest()
    assert len(world.placed("first")) + len(world.placed("next")) == 1


def evictions_of(event: ev.Event) -> list[ev.Operation]:
    plan = ev.decode_plan(event.plan) if isinstance(event, ev.SessionDecided) else ev.Plan()
    return [op for statement in plan.statements for op in statement.operations if op.verb == "evict"]


def test_an_eviction_that_is_taken_back_leaves_nothing() -> None:
    session = opened(carded("n", A, 4), card_queue("q", {A: 2}), users("run", 1, A, on=["n"], cpu=1))
    account = plugin_of(session, CapacityCardPlugin)._queues[queue_of(session, "q").index]
    statement = Statement(session.trial, "preempt", job_of(session, "run"))
    statement.evict(task_of(session, "run-0"), "")
    assert (account.left(A), account.cards_releasing, account.releasing[0]) == (2000, {A: 1000}, 1000)
    statement.discard()
    assert (account.left(A), account.is_releasing()) == (1000, False)


# --- order ------------------------------------------------------------------------------------------------------------


def test_cards_are_preferred_in_the_order_in_which_they_are_named() -> None:
    nodes = [carded("a", A), carded("b", B), carded("c", H200), carded("d", "other")]
    session = opened(card_queue("q", {A: 1}), *nodes, users("g", 1, f"{B}|{A}|{H200}"))
    assert points(session, "CardOrder") == {"a": 50, "b": 100, "c": 25, "d": 0}


def test_the_order_of_cards_has_a_weight() -> None:
    objects = [card_queue("q", {A: 1}), carded("a", A), users("g", 1, f"{B}|{A}"), carded("b", B)]
    assert [
        s.weight for s in framework_of(opened(*objects, nodeOrderWeight=2.5)).evaluator.scores if s.name == "CardOrder"
    ] == [2.5]
    assert all(
        score.name != "CardOrder" for score in framework_of(opened(*objects, nodeOrderWeight=0)).evaluator.scores
    )


def test_one_card_is_no_preference() -> None:
    assert not rated(opened(card_queue("q", {A: 1}), carded("a", A), users("g", 1, A)), "CardOrder")


def test_queues_of_higher_priority_come_first_then_those_that_use_less_of_their_quota() -> None:
    queues = [card_queue("q", {A: 4}), card_queue("r", {A: 4, B: 2}), card_queue("s", {}, priority=1)]
    running = [users("x", 2, A, on=["a", "a"]), users("y", 1, A, on=["a"], queue="r"), users("z", 1, A, queue="s")]
    session = opened(*queues, carded("a", A), *running)
    order = sorted((queue_of(session, name) for name in "qrs"), key=framework_of(session).queue_key)
    assert [queue.name for queue in order] == ["s", "r", "q"]
    assert gauges(session)["volcano_queue_share", "q"] == 0.5


@pytest.mark.parametrize("quota", [None, {}, {B: 3}, {A: 0, B: 3}])
def test_a_queue_that_holds_cards_without_quota_comes_last(quota: dict[str, int] | None) -> None:
    """Where its quota no longer lists a card that its pods have, it has more than it deserves, as with a quota of 0."""
    queues = [card_queue("p", quota), card_queue("q", {A: 4})]
    running = [users("x", 1, A, on=["a"], queue="p"), users("y", 1, A, on=["a"])]
    session = opened(*queues, carded("a", A), *running, cardUnlimitedCpuMemory=True)
    assert sorted("pq", key=lambda name: framework_of(session).queue_key(queue_of(session, name))) == ["q", "p"]
    assert gauges(session)["volcano_queue_share", "p"] == 1.0


@pytest.mark.parametrize(
    ("spec", "share"),
    [
        ({"deserved": {"cpu": 4, "memory": "8Gi"}}, 0.5),
        ({"deserved": {"cpu": 1, "memory": "8Gi"}, "guarantee": {"resource": {"cpu": 2}}}, 0.5),
        ({"deserved": {"cpu": 2, "memory": "64Gi"}}, 0.5),
        ({"deserved": {"cpu": 4}}, 1.0),  # memory is used, and none is deserved
        ({"capability": {"cpu": 4, "memory": "8Gi"}}, 1.0),
    ],
)
def test_the_share_of_cpu_and_memory_is_that_of_what_is_deserved(spec: dict[str, Any], share: float) -> None:
    objects = [carded("n", A), users("g", 1, A, cpu=1, memory="4Gi", on=["n"])]
    shown = gauges(opened(card_queue("q", {A: 4}, **spec), *objects))
    assert shown["volcano_queue_share", "q"] == share


def test_what_is_deserved_is_bounded_by_what_others_are_guaranteed_and_never_below_the_own_guarantee() -> None:
    queues = [
        card_queue("q", {A: 4}, deserved={"cpu": 100, "memory": "1Gi"}, guarantee={"resource": {"memory": "2Gi"}}),
        card_queue("r", guarantee={"resource": {"cpu": 14}}),
    ]
    shown = gauges(opened(*queues, carded("n", A)))
    assert shown["volcano_queue_deserved_milli_cpu", "q"] == 50_000
    assert shown["volcano_queue_deserved_memory_bytes", "q"] == 2 * 1024**3
    assert shown["volcano_queue_deserved_scalar_resources", "q", A] == 4000
    assert shown["volcano_queue_deserved_milli_cpu", "r"] == 14_000


def test_queues_come_by_the_part_of_what_they_deserve_whatever_their_capability() -> None:
    """Both run half of what the other may have; the one with the smaller part of its deserved comes first."""
    queues = [
        card_queue("q", {A: 4}, deserved={"cpu": 2, "memory": "64Gi"}, capability={"cpu": 60}),
        card_queue("r", {A: 4}, deserved={"cpu": 8, "memory": "64Gi"}, capability={"cpu": 2}),
    ]
    runs = [users(f"{name}-runs", 1, A, queue=name, cpu=1, memory="1Gi", on=["n"]) for name in "qr"]
    plugin = plugin_of(session := opened(*queues, carded("n", A), *runs), CapacityCardPlugin)
    assert plugin.queue_order(queue_of(session, "r")) < plugin.queue_order(queue_of(session, "q"))


# --- what cannot be read ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "null",
        '{"x": "3"}',
        '{"x": 1.5}',
        '{"x": -1}',
        '{"x": true}',
        '{"a|b": 1}',
        '{"": 1}',
        '{"x": 1e30}',
        "[" * 5000,
    ],
)
def test_a_quota_that_cannot_be_read_stops_its_queue_s_cards_alone_and_says_so(text: str) -> None:
    queues = [card_queue("bad", text), card_queue("q", {A: 1})]
    pods = [users("x", 1, A, queue="bad"), gang("cpu", 1, queue="bad", cpu=1), users("y", 1, A)]
    pending = annotated(group("w", queue="bad", phase="Pending", minimum={"cpu": 1}), card_request=json.dumps({A: 1}))
    world = World(*queues, carded("n", A), *pods, pending, conf=card_conf())
    world.cycle()
    assert set(world.placed()) == {"cpu-0", "y-0"}
    for name in ("x", "w"):
        (why,) = why_of(world, name)
        assert why.reason.startswith("annotation volcano.sh/card.quota of queue bad: ")


@pytest.mark.parametrize("text", ["", "{", '{"x": "3"}', '{"x": -1}', '{"x||y": 1}'])
def test_a_request_that_cannot_be_read_keeps_nobody_out_and_is_told_on_the_group(text: str) -> None:
    """`card.request` is optional: one that says nothing is a warning, never a wall."""
    base = [card_queue("q", {A: 1}), carded("n", A)]
    world = World(*base, asking("bad", text), asking("good", json.dumps({A: 1})), conf=card_conf())
    world.cycle()
    assert {world.state.groups[f"default/{name}"].group.status.phase for name in ("bad", "good")} == {"Inqueue"}
    session = opened(*base, asking("bad", text), asking("good", json.dumps({A: 1})))
    (problem,) = plugin_of(session, CapacityCardPlugin).problems()
    assert (problem.kind, problem.key) == ("PodGroup", "default/bad")
    assert problem.message.startswith("annotation volcano.sh/card.request: ")


def test_a_request_that_broke_after_admission_reserves_nothing() -> None:
    session = opened(
        card_queue("q", {A: 1}), carded("n", A), asking("bad", "{", phase="Inqueue"), asking("g", json.dumps({A: 1}))
    )
    assert enqueue_reason(session, "g") is None


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("|", "holds an empty card name"),
        (f"{A}||{B}", "holds an empty card name"),
        ("NVIDIA-X", "no node has card <NVIDIA-X>"),
        ("NVIDIA-X|NVIDIA-Y", "no node has card <NVIDIA-X|NVIDIA-Y>"),
    ],
)
def test_a_name_that_cannot_be_served_stops_its_pod_alone_and_says_so(name: str, told: str) -> None:
    objects = [
        card_queue("q", {A: 4, B: 4}),
        carded("a", A),
        carded("b", B),
        users("bad", 1, name),
        users("good", 1, A),
    ]
    world = World(*objects, conf=card_conf())
    world.cycle()
    assert set(world.placed()) == {"good-0"}
    (why,) = why_of(world, "bad")
    assert why.reason.startswith("annotation volcano.sh/card.name of the pod: ")
    assert told in why.reason


@pytest.mark.parametrize("names", [f"{A}|NVIDIA-X", f"NVIDIA-X|{A}", f"NVIDIA-X|{A}|NVIDIA-Y", f"X|Y|{A}"])
@pytest.mark.parametrize("minimum", [None, {"gpu": 2}])
def test_any_card_that_is_named_will_do_though_no_node_has_the_others(
    names: str, minimum: dict[str, int] | None
) -> None:
    """Wherever the card stands that nodes have: the others have nothing free, no more."""
    asks = users("g", 2, names, members=2, phase="Pending", minimum=minimum)
    result = planned(card_queue("q", {A: 4}), carded("a", A), asks, conf=card_conf())
    assert result.binds == {"default/g-0": "a", "default/g-1": "a"}


def test_any_slice_that_is_named_will_do_though_no_node_has_the_first() -> None:
    mig = "nvidia.com/mig-1g.5gb"
    asks = gang(
        "g",
        1,
        queue="q",
        requests={mig: "1"},
        annotations={"volcano.sh/card.name": f"{B}/mig-1g.5gb-mixed|{A}/mig-1g.5gb-mixed"},
    )
    quota = card_queue("q", {f"{A}/mig-1g.5gb-mixed": 1})
    assert planned(quota, carded("a", A, **{mig: 3}), carded("b", B), asks, conf=card_conf()).binds == {
        "default/g-0": "a"
    }


def test_a_card_that_no_node_has_is_not_a_matter_of_quota() -> None:
    """Nodes with it may come, so its pods wait for nodes, not for the queue."""
    world = World(card_queue("q", {"NVIDIA-X": 2}), carded("a", A), users("g", 1, "NVIDIA-X"), conf=card_conf())
    world.cycle()
    (why,) = why_of(world, "g")
    assert (why.gate, "no node has card <NVIDIA-X>" in why.reason) == ("predicate", True)
    world.put(carded("x", "NVIDIA-X"))
    world.rest()
    assert world.placed("g") == {"g-0": "x"}


def test_pods_on_the_last_card_of_its_kind_are_charged_when_its_node_is_gone() -> None:
    """What they hold does not stop being held when no node shows the card any more."""
    runs = users("run", 2, B, on=["gone", "gone"])
    session = opened(card_queue("q", {B: 2}), carded("a", A), runs, users("g", 1, B))
    assert gauges(session)["vcd_queue_card_allocated", "q", B] == 2
    assert allocate_reason(session, "g-0") is not None


def test_a_pod_that_names_a_card_and_asks_for_none_is_told() -> None:
    asks = gang("g", 1, queue="q", cpu=1, annotations={"volcano.sh/card.name": A})
    reason = allocate_reason(opened(card_queue("q", {A: 1}), carded("a", A), asks), "g-0")
    assert reason is not None
    assert reason.endswith(f"the pod asks for no {GPU}, the resource of card <{A}>")


def test_a_pod_without_cards_in_a_group_that_names_one_is_as_any_other() -> None:
    manifests = flat([gang("g", 1, queue="q", cpu=1)])
    named = [annotated(m, card_name=A) if m["kind"] == "PodGroup" else m for m in manifests]
    assert len(planned(card_queue("q", {A: 1}), carded("a", A), named, conf=card_conf()).binds) == 1


def test_a_wrong_name_is_told_where_the_queue_s_gate_is_off() -> None:
    text = card_conf().replace("name: capacity-card", "name: capacity-card\n    enabledAllocatable: false")
    session = session_of(card_queue("q", {A: 1}), carded("a", A), users("g", 1, "NVIDIA-X"), conf=text)
    refused = framework_of(session).pre_predicate(task_of(session, "g-0"))
    assert refused is not None
    assert "no node has card <NVIDIA-X>" in refused[1].words


# --- several tasks at once --------------------------------------------------------------------------------------------


def test_tasks_together_may_take_what_the_quota_leaves() -> None:
    session = opened(card_queue("q", {A: 2}, capability={"cpu": 4}), carded("a", A), users("g", 3, A, cpu=1))
    plugin = plugin_of(session, CapacityCardPlugin)
    tasks = [task_of(session, f"g-{i}") for i in range(3)]
    assert plugin.preemptive(queue_of(session, "q"), tasks[:2]) is None
    refused = plugin.preemptive(queue_of(session, "q"), tasks)
    assert refused is not None
    assert "requested <3>, total would be <3>, but capability is <2>" in refused.words


def alike(cards: str, count: int) -> tuple[bool, bool]:
    """Whether so many of a gang's pods, which name cards and ask for one cpu, may be placed at once: in a queue of two
    A and four B with four cpus, by its quotas and by what they leave to choose."""
    nodes = [carded("a", A), carded("b", B)]
    session = opened(card_queue("q", {A: 2, B: 4}, capability={"cpu": 4}), nodes, users("g", 5, cards, cpu=1))
    task, plugin = task_of(session, "g-0"), plugin_of(session, CapacityCardPlugin)
    model = next(part for part in plugin.predicates() if part.name == "CardModel")
    assert framework_of(session).many_at_once
    return plugin.allocatable(queue_of(session, "q"), task, count) is None, model.stable_for(task, count)


def test_alike_pods_are_placed_at_once_as_far_as_each_has_the_choice_that_the_first_has() -> None:
    assert alike(A, 2) == (True, True)
    assert alike(A, 3) == (False, False)
    assert alike(B, 4) == (True, True)
    assert alike(f"{B}|{A}", 2) == (True, True)
    assert alike(f"{B}|{A}", 3) == (False, False)  # two may have taken all of A: for the third it would be B


def test_alike_pods_are_placed_at_once_as_far_as_cpu_goes() -> None:
    assert alike(B, 5) == (False, False)
    assert alike(f"NVIDIA-X|{B}", 4) == (True, True)
    session = opened(card_queue("q", {A: 9}, capability={"cpu": 4}), carded("a", A), users("g", 5, A, cpu=1))
    plugin, task = plugin_of(session, CapacityCardPlugin), task_of(session, "g-0")
    assert plugin.allocatable(queue_of(session, "q"), task, 4) is None
    assert plugin.allocatable(queue_of(session, "q"), task, 5) is not None


def test_where_nobody_is_refused_for_cards_each_still_has_to_have_the_same_choice() -> None:
    text = card_conf().replace("name: capacity-card", "name: capacity-card\n    enabledAllocatable: false")
    plans = [
        planned(
            card_queue("q", {A: 1, B: 3}),
            carded("a", A),
            carded("b", B),
            users("g", 4, f"{A}|{B}", members=4),
            conf=conf,
        )
        for conf in (text, card_conf())
    ]
    assert [sorted(plan.binds.values()) for plan in plans] == [["a", "b", "b", "b"]] * 2


# --- gauges -----------------------------------------------------------------------------------------------------------


def owned(manifests: list[Manifest], kind: str, **labels: str) -> list[Manifest]:
    result = []
    for manifest in manifests:
        meta = {**manifest["metadata"]}
        if manifest["kind"] == "Pod":
            meta["ownerReferences"] = [{"kind": kind, "name": "w", "uid": "w", "apiVersion": "v1", "controller": True}]
            meta["labels"] = {f"volcano.sh/{key.replace('_', '.')}": text for key, text in labels.items()}
        result.append({**manifest, "metadata": meta})
    return result


def test_gauges_by_queue_and_card() -> None:
    session = opened(
        card_queue("q", {A: 4, H200: 1}, capability={"cpu": 8}),
        carded("a", A, 6),
        carded("h", H200, 2),
        users("x", 2, A, on=["a", "a"], cpu=1, minimum={"gpu": 1}),
        users("y", 1, f"{A}|{B}", gpu=2),
    )
    shown = gauges(session)
    assert shown["vcd_queue_card_quota", "q", A] == shown["vcd_queue_card_guarantee", "q", A] == 4
    assert shown["vcd_queue_card_allocated", "q", A] == 2
    assert shown["vcd_queue_card_elastic", "q", A] == 1
    assert shown["vcd_queue_card_quota", "q", H200] == 1
    assert shown["volcano_queue_allocated_scalar_resources", "q", A] == 2000
    assert shown["volcano_queue_capacity_scalar_resources", "q", A] == 4000
    assert shown["volcano_queue_capacity_milli_cpu", "q"] == 8000
    assert ("volcano_queue_capacity_memory_bytes", "q") not in shown  # none set is no limit, not a limit of 0
    assert shown["volcano_queue_real_capacity_milli_cpu", "q"] == 8000
    assert shown["volcano_queue_request_scalar_resources", "q", A] == 2000
    assert shown["volcano_queue_request_scalar_resources", "q", f"{A}|{B}"] == 2000
    assert shown["volcano_queue_inqueue_scalar_resources", "q", f"{A}|{B}"] == 2000
    assert shown["vcd_cards_total", A] == 6
    assert shown["vcd_cards_total", H200] == 2
    assert shown["vcd_card_nodes_unidentified", GPU] == 0


def test_online_and_offline_by_owner_and_by_label() -> None:
    session = session_after(
        card_queue("q", {A: 20}),
        carded("a", A, 20),
        owned(users("deployment", 1, A, on=["a"]), "ReplicaSet"),
        users("bare", 1, A, on=["a"], gpu=2),
        owned(users("job", 1, A, on=["a"], gpu=4), "Job"),
        owned(users("labelled", 1, A, on=["a"], gpu=3), "ReplicaSet", service_type="offline"),
        owned(users("new", 1, A, gpu=5), "Job"),
        conf=card_conf(),
    )
    shown = gauges(session)
    assert shown["vcd_cards_allocated", A, "online"] == 3
    assert shown["vcd_cards_allocated", A, "offline"] == 12
    assert shown["vcd_cards_requested", A, "offline"] == 12


def test_a_quota_that_cannot_be_read_is_told_on_the_queue() -> None:
    session = opened(carded("n", A, 1), card_queue("q", "{broken"), card_queue("r", {A: 1}), users("g", 1, A))
    (problem,) = plugin_of(session, CapacityCardPlugin).problems()
    assert (problem.kind, problem.key) == ("Queue", "q")
    assert problem.message.startswith("annotation volcano.sh/card.quota of queue q: ")

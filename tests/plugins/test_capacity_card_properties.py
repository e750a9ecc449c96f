"""capacity-card on random clusters: no queue above its quota, and the columns against plain counting."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dsl import flat, gang, node
from tests.plugins.opened import plugin_of
from tests.plugins.test_capacity_card import GPU, card_conf, card_queue, carded, users
from tests.predicates.asking import named
from tests.sizes import examples
from tests.world import World
from vcd.model import events as ev
from vcd.model.objects import Node, Pod
from vcd.model.projection_codec import decode_payload
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.plugins.capacity_card import CapacityCardPlugin

Manifest = dict[str, Any]

MODELS = ("A", "B", "C")
MIG = "nvidia.com/mig-1g.5gb"
NAMES = (None, "A", "B", "A|B", "B|A", "C|B|A", "A|C")
CLASSES = [
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": f"p{value}"}, "value": value}
    for value in (0, 10)
]

some_nodes = st.lists(
    st.tuples(st.sampled_from((*MODELS, None)), st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=5
)
some_quotas = st.lists(st.dictionaries(st.sampled_from(MODELS), st.integers(0, 4)), min_size=1, max_size=3)
some_jobs = st.lists(
    st.tuples(
        st.integers(1, 4),  # pods
        st.sampled_from(NAMES),
        st.integers(1, 3),  # cards of each pod
        st.integers(0, 2),  # queue
        st.booleans(),  # a gang
        st.sampled_from((0, 10)),  # priority
        st.sampled_from(("Inqueue", "Pending")),
        st.booleans(),  # slices instead of whole cards
    ),
    min_size=1,
    max_size=6,
)
some_actions = st.sampled_from(
    ("enqueue, allocate, backfill", "allocate", "enqueue, allocate, preempt", "enqueue, allocate, reclaim, preempt")
)


def room(index: int, model: str | None, gpus: int, slices: int) -> Manifest:
    extra = {MIG: slices} if slices else {}
    return node(f"n{index}", gpu=gpus, **extra) if model is None else carded(f"n{index}", model, gpus, **extra)


def objects_of(nodes: list[Any], quotas: list[dict[str, int]], jobs: list[Any]) -> list[Manifest]:
    """A cluster; slices of a model have the quota of its whole cards, too."""
    result = [room(index, *values) for index, values in enumerate(nodes)]
    for index, quota in enumerate(quotas):
        sliced = {f"{model}/mig-1g.5gb-mixed": count for model, count in quota.items()}
        result.append(card_queue(f"q{index}", {**quota, **sliced}))
    for index, (size, name, cards, where, is_gang, priority, phase, slices) in enumerate(jobs):
        texts = {} if name is None else {"volcano.sh/card.name": name}
        if slices and name is not None:
            texts = {"volcano.sh/card.name": "|".join(f"{part}/mig-1g.5gb-mixed" for part in name.split("|"))}
        result += flat(
            [
                gang(
                    f"j{index}",
                    size,
                    members=size if is_gang else 1,
                    queue=f"q{where % len(quotas)}",
                    phase=phase,
                    created=index,
                    minimum={"cpu": 1},
                    annotations=texts,
                    group_spec={"priorityClassName": f"p{priority}"},
                    spec={"priority": priority},
                    requests={MIG if slices else GPU: str(cards)},
                )
            ]
        )
    return CLASSES + result


def used(world: World) -> Counter[tuple[str, str]]:
    """Cards used by queue and card, counted by what the nodes' labels say, pod by pod; the queue is that of a pod's
    group as it was last put."""
    counts: Counter[tuple[str, str]] = Counter()
    puts = [event for event in world.log if isinstance(event, ev.ObjectPut) and event.kind == "PodGroup"]
    queues = {event.key: decode_payload("PodGroup", event.payload or b"").spec.queue for event in puts}
    for key in sorted(world.state.tasks.row_of):
        pod = world.state.pod(key)
        assert isinstance(pod, Pod)
        if not pod.spec.node_name:
            continue
        where: Node = world.state.nodes[pod.spec.node_name].node
        model = where.metadata.labels.get("nvidia.com/gpu.product")
        queue = queues[f"default/{pod.metadata.annotations['scheduling.k8s.io/group-name']}"]
        for resource, text in pod.spec.containers[0].resources.requests.items():
            if model is not None and resource in (GPU, MIG):
                counts[queue, model if resource == GPU else f"{model}/mig-1g.5gb-mixed"] += int(text)
    return counts


def quotas_of(world: World) -> dict[str, dict[str, int]]:
    return {
        name: json.loads(record.queue.metadata.annotations.get("volcano.sh/card.quota", "{}"))
        for name, record in world.state.queues.items()
    }


def check(world: World) -> None:
    quotas = quotas_of(world)
    for (queue, card), count in used(world).items():
        assert count <= quotas[queue].get(card, 0), (queue, card)


@settings(max_examples=examples(70), deadline=None)
@given(
    nodes=some_nodes,
    quotas=some_quotas,
    jobs=some_jobs,
    later=some_jobs,
    actions=some_actions,
    ends=st.integers(0, 5),
    gone=st.sets(st.integers(0, 5)),
)
def test_no_queue_ever_uses_more_of_a_card_than_its_quota(
    nodes: list[Any],
    quotas: list[dict[str, int]],
    jobs: list[Any],
    later: list[Any],
    actions: str,
    ends: int,
    gone: set[int],
) -> None:
    """Whatever comes, ends, or is deleted before its pods."""
    world = World(
        *objects_of(nodes, quotas, jobs), conf=card_conf("priority", "gang", "predicates", "nodeorder", actions=actions)
    )
    for _ in range(2):
        world.cycle()
        check(world)
    for name in sorted(world.placed())[:ends]:
        world.remove("Pod", f"default/{name}")
    world.remove("PodGroup", *[f"default/j{index}" for index in sorted(gone)])
    names = {f"j{index}": f"k{index}" for index in range(len(later))}
    for manifest in objects_of(nodes, quotas, later):
        if manifest["kind"] in ("Pod", "PodGroup"):
            text = json.dumps(manifest)
            for old, new in names.items():
                text = text.replace(f'"{old}', f'"{new}').replace(f"-{old}-", f"-{new}-")
            world.put(json.loads(text))
    for _ in range(2):
        world.cycle()
        check(world)


@settings(max_examples=examples(40), deadline=None)
@given(nodes=some_nodes, quotas=some_quotas, jobs=some_jobs)
def test_what_was_kept_from_earlier_sessions_changes_nothing(
    nodes: list[Any], quotas: list[dict[str, int]], jobs: list[Any]
) -> None:
    worlds = [World(*objects_of(nodes, quotas, jobs), conf=card_conf(), memory=memory) for memory in (True, False)]
    for _ in range(3):
        first, second = [world.cycle() for world in worlds]
        assert first == second


@settings(max_examples=examples(40), deadline=None)
@given(nodes=some_nodes, quotas=some_quotas, jobs=some_jobs, name=st.sampled_from(NAMES), cards=st.integers(1, 3))
def test_the_columns_are_what_plain_counting_says(
    nodes: list[Any], quotas: list[dict[str, int]], jobs: list[Any], name: str | None, cards: int
) -> None:
    world = World(*objects_of(nodes, quotas, jobs), conf=card_conf())
    world.cycle()
    world.put(*users("asker", 1, name, gpu=cards, queue="q0"))
    world.policy = read_policy(card_conf(actions="enqueue"))
    world.decide()
    session = world.session
    assert session is not None
    counted = used(world)
    accounts = plugin_of(session, CapacityCardPlugin)._queues
    for account in accounts:
        mine = {card: count * 1000 for (queue, card), count in counted.items() if queue == account.name}
        assert {card: amount for card, amount in account.cards.items() if amount} == mine
    task = session.task(list(session.snapshot.tasks.keys).index("default/asker-0"))
    if framework_of(session).pre_predicate(task) is not None:
        return  # a pod that names what no node has is tried nowhere
    models = [node_.metadata.labels.get("nvidia.com/gpu.product") for node_ in session.nodes.facts.nodes]
    there = [gpus > 0 for _, gpus, _ in nodes]
    for test in named(session, "CardModel"):
        if test.applies(task):
            mask = test.mask(task, session.nodes.usage).tolist()
            for model, has_room, passes in zip(models, there, mask, strict=True):
                assert not has_room or passes == naive_pass(model, name, quotas[0], counted, cards)
    for score in framework_of(session).evaluator.scores:
        if score.name == "CardOrder" and score.applies(task):
            order = (name or "").split("|")
            rated = score.raw(task, session.nodes.usage).tolist()
            assert rated == [100 / 2 ** order.index(model) if model in order else 0 for model in models]


def naive_pass(
    model: str | None, name: str | None, quota: dict[str, int], counted: Counter[tuple[str, str]], cards: int
) -> bool:
    """Whether a node of a model may take a pod of the queue q0 (docs/semantics/capacity-card.md)."""
    if model is None:
        return name is None
    if name is not None and model not in name.split("|"):
        return False
    if name is not None and "|" not in name:
        return True
    return counted["q0", model] + cards <= quota.get(model, 0)

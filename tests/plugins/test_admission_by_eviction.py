"""A group is admitted to a full cluster or queue if preempt or reclaim could serve it."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from tests.dsl import gang, node, planned, priority_class, queue
from tests.plugins.opened import conf
from tests.world import World

CLASSES = [priority_class("low", 1), priority_class("high", 1000)]
LIMITS = {"capability": {"cpu": "8"}, "deserved": {"cpu": "8"}}


def phase(plugin: str, *, actions: str = "enqueue, allocate, preempt", name: str = "high", **options: Any) -> str:
    """The phase of a group of 4 cpu that asks to be admitted beside low ones of 8 cpu, all that its queue may have."""
    lows = [
        m
        for i in range(8)
        for m in gang(f"l{i}", 1, queue="q", on=["n"], phase="Running", minimum={"cpu": 1}, cpu=1, **_of("low"))
    ]
    asks = gang("new", 4, queue="q", phase="Pending", minimum={"cpu": options.pop("cpu", 4)}, cpu=1, **_of(name))
    nodes = node("n", cpu=8 if plugin == "overcommit" else 32)
    settings = conf("priority", "predicates", plugin, actions=actions, arguments=options or None)
    return planned(nodes, *CLASSES, queue("q", **LIMITS), lows, asks, conf=settings).phases["default/new"]


def _of(name: str) -> dict[str, Any]:
    return {"group_spec": {"priorityClassName": name}, "spec": {"priorityClassName": name}}


PLUGINS = ("overcommit", "proportion", "capacity")


@pytest.mark.parametrize("plugin", PLUGINS)
def test_what_preempt_could_free_counts(plugin: str) -> None:
    assert phase(plugin) == "Inqueue"
    assert phase(plugin, actions="enqueue, allocate, gangpreempt") == "Inqueue"


@pytest.mark.parametrize("plugin", PLUGINS)
def test_more_than_that_does_not_nor_equal_priority_nor_without_the_action(plugin: str) -> None:
    assert phase(plugin, cpu=12) == "Pending"
    assert phase(plugin, name="low") == "Pending"
    assert phase(plugin, actions="enqueue, allocate") == "Pending"
    assert phase(plugin, countVictimsEnable=False) == "Pending"


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize(("member", "admitted"), [(8, False), (4, True)])
@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
def test_what_a_gang_keeps_does_not_count_unless_gangs_are_evicted_whole(
    plugin: str, member: int, admitted: bool, action: str
) -> None:
    low = gang(
        "low", 8, members=member, queue="q", on=["n"] * 8, phase="Running", minimum={"cpu": member}, cpu=1, **_of("low")
    )
    asks = gang("new", 4, queue="q", phase="Pending", minimum={"cpu": 4}, cpu=1, **_of("high"))
    settings = conf("gang", "priority", "predicates", plugin, actions=f"enqueue, allocate, {action}")
    nodes = node("n", cpu=8 if plugin == "overcommit" else 32)
    found = planned(nodes, *CLASSES, queue("q", **LIMITS), low, asks, conf=settings).phases["default/new"]
    assert found == ("Inqueue" if admitted or action == "gangpreempt" else "Pending")


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize(("action", "flag"), [("preempt", "enablePreemptable"), ("reclaim", "enableReclaimable")])
def test_a_gang_keeps_nothing_if_no_plugin_protects_it(plugin: str, size: int, action: str, flag: str) -> None:
    """As in Volcano's default configuration, with `enablePreemptable: false` for gang."""
    owner, asker = ("q", "q") if action == "preempt" else ("borrower", "q")
    share = {"capability": {"cpu": "8"}, "deserved": {"cpu": "4"}}
    low = gang(
        "low", size, queue=owner, on=["n"] * size, phase="Running", minimum={"cpu": 8}, cpu=8 // size, **_of("low")
    )
    objects = [node("n", cpu=8), *CLASSES, queue("q", **share), queue("borrower", **share), *low]
    plugins = ["priority", "predicates", plugin] if plugin != "overcommit" else ["priority", "predicates", "proportion"]
    settings = conf("gang", *plugins, "overcommit", actions=f"enqueue, allocate, {action}")
    settings = settings.replace("  - name: gang\n", f"  - name: gang\n    {flag}: false\n")
    for state in ("Inqueue", "Pending"):
        asks = gang("new", 2, queue=asker, phase=state, minimum={"cpu": 4}, cpu=2, **_of("high"))
        result = planned(*objects, asks, conf=settings)
        assert result.evictions
        assert result.phases["default/new"] == "Inqueue"


@pytest.mark.parametrize("plugin", PLUGINS)
def test_what_may_not_be_preempted_does_not_count(plugin: str) -> None:
    low = [
        *gang("low", 8, members=8, queue="q", on=["n"] * 8, phase="Running", minimum={"cpu": 8}, cpu=1, **_of("low"))
    ]
    low[0]["metadata"]["annotations"] = {"volcano.sh/preemptable": "false"}
    asks = gang("new", 4, queue="q", phase="Pending", minimum={"cpu": 4}, cpu=1, **_of("high"))
    settings = conf("priority", "predicates", plugin, actions="enqueue, allocate, gangpreempt")
    nodes = node("n", cpu=8 if plugin == "overcommit" else 32)
    assert planned(nodes, *CLASSES, queue("q", **LIMITS), low, asks, conf=settings).phases["default/new"] == "Pending"


# --- reclaim ----------------------------------------------------------------------------------------------------------

SHARES = ("proportion", "capacity")
BORROWER, OWNER = {"deserved": {"cpu": "4"}}, {"deserved": {"cpu": "4"}}


def reclaims(
    share: str,
    *,
    actions: str = "enqueue, allocate, reclaim",
    cpu: int = 4,
    count: int = 8,
    member: int = 1,
    pods: bool = False,
    borrower: dict[str, Any] | None = None,
    owner: dict[str, Any] | None = None,
    plugins: tuple[str, ...] = ("priority", "gang", "predicates"),
    **options: Any,
) -> World:
    """Two queues share 8 cpus; b holds all of them, and a group of a asks to be admitted."""
    minimum = {"cpu": member}
    held = gang("b", count, members=member, queue="b", on=["n"] * count, phase="Running", minimum=minimum, cpu=1)
    asks = gang("a", 4 if pods else 0, members=4, queue="a", phase="Pending", minimum={"cpu": cpu}, cpu=1)
    settled = conf(*plugins, share, "overcommit", actions=actions, arguments={"overcommit-factor": 1.0, **options})
    queues = queue("a", **(owner or OWNER)), queue("b", **{**BORROWER, **(borrower or {})})
    return World(node("n", cpu=8), *queues, held, asks, conf=settled)


def admits(share: str, **options: Any) -> bool:
    return "a" in {status.key.partition("/")[2]: status for status in reclaims(share, **options).decide().groups}


@pytest.mark.parametrize("pods", [True, False])
@pytest.mark.parametrize("share", SHARES)
def test_what_reclaim_could_free_counts(share: str, pods: bool) -> None:
    assert admits(share, pods=pods)
    assert admits(share, pods=pods, actions="enqueue, allocate, gangreclaim")


@pytest.mark.parametrize("share", SHARES)
def test_it_does_not_count_without_the_action_or_by_the_switch(share: str) -> None:
    assert not admits(share, actions="enqueue, allocate")
    assert not admits(share, actions="enqueue, allocate, preempt")
    assert not admits(share, countVictimsEnable=False)


@pytest.mark.parametrize("share", SHARES)
def test_no_more_counts_than_the_queue_deserves_and_others_hold_above_their_share(share: str) -> None:
    assert not admits(share, cpu=5)
    assert not admits(share, borrower={"reclaimable": False})
    assert not admits(share, borrower={"deserved": {"cpu": "5"}, "guarantee": {"resource": {"cpu": "5"}}})


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize(("member", "admitted"), [(4, True), (5, False), (8, False)])
def test_what_a_gang_of_another_queue_keeps_does_not_count(share: str, member: int, admitted: bool) -> None:
    assert admits(share, member=member) == admitted
    assert admits(share, member=member, actions="enqueue, allocate, gangreclaim")


@pytest.mark.parametrize("share", SHARES)
def test_the_group_gets_what_it_was_admitted_for(share: str) -> None:
    world = reclaims(share, pods=True)
    for _ in range(8):
        world.cycle()
    assert len(world.placed("a")) == 4
    assert len(world.evicted) == 4


def test_groups_of_one_queue_are_admitted_up_to_its_share_together() -> None:
    more = gang("a2", 0, members=4, queue="a", phase="Pending", created=5, minimum={"cpu": 4}, cpu=1)
    for share in SHARES:
        world = reclaims(share)
        world.put(*more)
        assert len([status for status in world.decide().groups if status.key.startswith("default/a")]) == 1


def test_without_a_plugin_that_gives_queues_a_share_reclaim_counts_nothing() -> None:
    assert not admits("drf")


# --- capacity-card ----------------------------------------------------------------------------------------------------

CARD = "NVIDIA-H200"


def card_admits(
    count: int = 4,
    size: int = 1,
    wanted: int = 2,
    name: str = "high",
    minimum: bool = True,
    members: int | None = None,
    actions: str = "enqueue, allocate, preempt",
    **options: Any,
) -> bool:
    """Whether a group of 2 cards is admitted to a queue whose quota of 4 groups of lower priority hold."""
    card, gpu = {"volcano.sh/card.name": CARD}, "nvidia.com/gpu"
    labels = {f"{gpu}.product": CARD, f"{gpu}.memory": "81920"}
    shelf = node("n", labels=labels, **{"cpu": 64, "memory": 64, gpu: 16})
    shared = {"queue": "q", "gpu": 1, "cpu": 1, "annotations": card}
    lows = [
        m
        for i in range(count)
        for m in gang(
            f"l{i}",
            size,
            members=size if members is None else members,
            on=["n"] * size,
            phase="Running",
            minimum={"cpu": size, "gpu": size} if minimum else None,
            **shared,
            **_of("low"),
        )
    ]
    asks = gang("new", wanted, phase="Pending", minimum={"cpu": wanted, "gpu": wanted}, **shared, **_of(name))
    quota = queue("q", capability={"cpu": "4"})
    quota["metadata"]["annotations"] = {"volcano.sh/card.quota": json.dumps({CARD: 4})}
    settled = conf("gang", "priority", "predicates", "capacity-card", actions=actions, arguments=options or None)
    return planned(shelf, *CLASSES, quota, lows, asks, conf=settled).phases["default/new"] != "Pending"


@pytest.mark.parametrize("minimum", [True, False])
def test_what_preempt_could_free_of_cards_cpu_and_memory_counts(minimum: bool) -> None:
    assert card_admits(minimum=minimum)
    assert card_admits(wanted=4, minimum=minimum)
    assert not card_admits(wanted=5, minimum=minimum)
    assert not card_admits(name="low", minimum=minimum)
    assert not card_admits(actions="enqueue, allocate", minimum=minimum)
    assert not card_admits(countVictimsEnable=False, minimum=minimum)


def test_cards_of_a_gang_that_stays_do_not_count_unless_it_goes_as_a_whole() -> None:
    assert not card_admits(count=1, size=4)
    assert card_admits(count=1, size=4, actions="enqueue, allocate, gangpreempt")


@pytest.mark.parametrize(("count", "size", "members", "free"), [(1, 4, 1, 3), (1, 4, 2, 2), (1, 4, 3, 1), (2, 2, 1, 2)])
def test_cards_above_min_member_count_if_no_minimum_is_stated(count: int, size: int, members: int, free: int) -> None:
    admits = partial(card_admits, count=count, size=size, members=members, minimum=False)
    assert admits(wanted=free)
    assert not admits(wanted=free + 1)
    assert not admits(wanted=1, name="low")
    assert not admits(wanted=1, actions="enqueue, allocate")
    assert not admits(wanted=1, countVictimsEnable=False)


def test_cards_are_counted_where_cpu_and_memory_are_not() -> None:
    assert card_admits(cardUnlimitedCpuMemory=True)
    assert not card_admits(wanted=5, cardUnlimitedCpuMemory=True)


# --- capacity-card and reclaim ----------------------------------------------------------------------------------------

COUNTS = pytest.mark.parametrize("count", [1, 4, 16])
NAMES_CARD = {"volcano.sh/card.name": CARD}
WAYS = pytest.mark.parametrize("way", ["pods", "annotation", "minResources alone"])


def lent_cards(
    count: int,
    *,
    actions: str = "enqueue, allocate, reclaim",
    wanted: int | None = None,
    owner: int | None = None,
    borrower: int = 0,
    way: str = "pods",
    member: int = 1,
    spec: dict[str, Any] | None = None,
    plugins: tuple[str, ...] = ("priority", "predicates"),
    **options: Any,
) -> World:
    """Queue b holds all cards, and all cpu, of a node; its quota became ``borrower``. A group of queue a, whose quota
    is ``owner``, wants ``wanted`` cards."""
    wanted, owner, gpu = wanted or count, count if owner is None else owner, "nvidia.com/gpu"
    labels = {f"{gpu}.product": CARD, f"{gpu}.memory": "81920"}
    shelf = node("n", labels=labels, **{"cpu": count, "memory": 512, gpu: count})
    shared: dict[str, Any] = {"gpu": 1, "cpu": 1}
    least = {"cpu": member, "gpu": member}
    held = gang(
        "b",
        count,
        members=member,
        queue="b",
        on=["n"] * count,
        phase="Running",
        minimum=least,
        annotations=NAMES_CARD,
        **shared,
    )
    marks = NAMES_CARD if way == "pods" else {}
    pods = wanted if way == "pods" else 0
    asks = list(gang("a", pods, members=wanted, queue="a", phase="Pending", annotations=marks, **shared))
    asks[0]["spec"]["minResources"] = {"cpu": str(wanted), gpu: str(wanted)}
    if way == "annotation":
        asks[0]["metadata"]["annotations"] = {"volcano.sh/card.request": json.dumps({CARD: wanted})}
    queues = [_with_quota(queue("a"), owner), _with_quota(queue("b", **(spec or {})), borrower)]
    arguments = {"overcommit-factor": 1.0, **options}
    settled = conf(*plugins, "capacity-card", "overcommit", actions=actions, arguments=arguments)
    return World(shelf, *queues, held, asks, conf=settled)


def _with_quota(manifest: dict[str, Any], cards: int) -> dict[str, Any]:
    manifest["metadata"]["annotations"] = {"volcano.sh/card.quota": json.dumps({CARD: cards})}
    return manifest


def is_admitted(world: World) -> bool:
    return ("default/a", "Inqueue") in {(status.key, status.phase) for status in world.decide().groups}


@WAYS
@COUNTS
def test_cards_that_reclaim_could_free_count(count: int, way: str) -> None:
    assert is_admitted(lent_cards(count, way=way))
    assert is_admitted(lent_cards(count, way=way, actions="enqueue, allocate, gangreclaim"))


@WAYS
@COUNTS
def test_cards_do_not_count_without_reclaim_or_by_the_switch(count: int, way: str) -> None:
    assert not is_admitted(lent_cards(count, way=way, actions="enqueue, allocate"))
    assert not is_admitted(lent_cards(count, way=way, actions="enqueue, allocate, preempt"))
    assert not is_admitted(lent_cards(count, way=way, countVictimsEnable=False))


@WAYS
@COUNTS
def test_a_queue_at_its_quota_is_not_admitted(count: int, way: str) -> None:
    assert not is_admitted(lent_cards(count, way=way, owner=count - 1))


@COUNTS
def test_no_more_cards_count_than_a_queue_holds_beyond_its_quota(count: int) -> None:
    assert not is_admitted(lent_cards(count, borrower=1))
    assert not is_admitted(lent_cards(count, borrower=count))
    assert not is_admitted(lent_cards(count, spec={"reclaimable": False}))
    if count > 1:
        assert is_admitted(lent_cards(count, borrower=1, wanted=count - 1))


@pytest.mark.parametrize("count", [4, 16])
def test_cards_that_a_gang_of_another_queue_keeps_do_not_count(count: int) -> None:
    gangs = ("priority", "gang", "predicates")
    assert not is_admitted(lent_cards(count, plugins=gangs, member=count))
    assert not is_admitted(lent_cards(count, plugins=gangs, member=count - 2, wanted=3))
    assert is_admitted(lent_cards(count, plugins=gangs, member=count - 2, wanted=2))
    assert is_admitted(
        lent_cards(count, plugins=gangs, member=count, wanted=3, actions="enqueue, allocate, gangreclaim")
    )


@COUNTS
@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
def test_a_group_gets_the_cards_that_it_was_admitted_for(count: int, action: str) -> None:
    world = lent_cards(count, actions=f"enqueue, allocate, {action}")
    for _ in range(4):
        world.cycle()
    assert len(world.placed("a")) == len(world.evicted) == count


def test_cards_of_groups_of_one_queue_count_up_to_its_quota_together() -> None:
    world = lent_cards(8, owner=4, wanted=4)
    more = list(gang("a2", 4, queue="a", phase="Pending", created=5, gpu=1, cpu=1, annotations=NAMES_CARD))
    more[0]["spec"]["minResources"] = {"nvidia.com/gpu": "4"}
    world.put(more)
    assert [status.key for status in world.decide().groups if status.key.startswith("default/a")] == ["default/a"]


@pytest.mark.parametrize(("deserved", "admitted"), [(4, True), (3, False), (None, False)])
def test_cpu_that_reclaim_could_free_counts_up_to_what_is_deserved(deserved: int | None, admitted: bool) -> None:
    share = {"deserved": {} if deserved is None else {"cpu": str(deserved)}}
    assert admits("capacity-card", owner=share, borrower={"deserved": {}}) == admitted

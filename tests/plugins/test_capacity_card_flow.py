"""capacity-card: demands for cards that may stand for each other fit as a whole, or are not admitted."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dsl import group, pod
from tests.plugins.opened import job_of, plugin_of, queue_of, task_of
from tests.plugins.test_capacity_card import (
    H200,
    A,
    B,
    asking,
    card_conf,
    card_queue,
    carded,
    enqueue_reason,
    opened,
    users,
)
from tests.sizes import examples
from tests.world import World
from vcd.scheduling.plugins.capacity_card import CapacityCardPlugin
from vcd.scheduling.plugins.capacity_card.maximum_flow import Flow

AB, BC = f"{A}|{B}", f"{B}|{H200}"
NODES = [carded("a", A), carded("b", B), carded("h", H200)]


@pytest.mark.parametrize(
    ("quota", "reserved", "asks", "told"),
    [
        ({A: 2, B: 2}, [], {A: 2, AB: 3}, f"<{AB}> quota: requested <3>, total would be <5>, but capability is <4>"),
        ({A: 2, B: 2}, [], {A: 2, AB: 2}, None),
        ({A: 2, B: 2}, [{AB: 4}], {A: 2}, f"<{A}> quota: requested <2>, total would be <6>, but capability is <4>"),
        ({A: 2, B: 2}, [{AB: 2}], {A: 2}, None),
        ({A: 1, B: 1, H200: 1}, [{AB: 2}], {BC: 2}, f"<{BC}> quota: requested <2>, total would be <4>, but capability"),
        ({A: 1, B: 1, H200: 1}, [{AB: 2}], {BC: 1}, None),
        ({A: 3, B: 0, H200: 4}, [{A: 1}, {f"{A}|{H200}": 3}], {A: 2}, None),  # who is flexible makes room
        (
            {A: 3, B: 0, H200: 2},
            [{A: 1}, {f"{A}|{H200}": 3}],
            {A: 2},
            f"<{A}> quota: requested <2>, total would be <6>",
        ),
    ],
)
def test_what_is_admitted_fits_as_a_whole(
    quota: dict[str, int], reserved: list[dict[str, int]], asks: dict[str, int], told: str | None
) -> None:
    """In each order in which names can be written, and reservations made."""
    for names in itertools.permutations(asks):
        for order in itertools.permutations(reserved):
            before = [asking(f"r{i}", json.dumps(cards), phase="Inqueue") for i, cards in enumerate(order)]
            session = opened(
                card_queue("q", quota), NODES, before, asking("g", json.dumps({n: asks[n] for n in names}))
            )
            reason = enqueue_reason(session, "g")
            assert (reason is None) == (told is None)
            assert told is None or told in str(reason)


def test_pods_are_admitted_by_the_same_rule_as_annotations() -> None:
    base = [card_queue("q", {A: 2, B: 2}), NODES, users("x", 4, AB, members=4, minimum={"gpu": 4})]
    late = users("late", 2, A, members=2, phase="Pending", minimum={"gpu": 2})
    assert enqueue_reason(opened(*base, late), "late") is not None
    world = World(*base, late, conf=card_conf())
    world.rest()
    assert (len(world.placed("x")), len(world.placed("late"))) == (4, 0)


def test_the_reason_names_the_cards_that_are_short_together() -> None:
    waits = asking("w", json.dumps({A: 2}), phase="Inqueue")
    session = opened(card_queue("q", {A: 2, B: 2}), NODES, waits, asking("g", json.dumps({AB: 3})))
    assert enqueue_reason(session, "g") == (
        f"Queue <q> has insufficient <{AB}> quota: requested <3>, total would be <5>, but capability is <4>"
    )
    session = opened(
        card_queue("q", {A: 1, B: 1, H200: 1}),
        NODES,
        asking("w", json.dumps({AB: 2}), phase="Inqueue"),
        asking("g", json.dumps({BC: 2})),
    )
    assert str(enqueue_reason(session, "g")).endswith(
        f"but capability is <3>, for {'|'.join(sorted((A, B, H200)))} together"
    )


def test_a_reservation_that_no_longer_fits_keeps_nobody_from_other_cards() -> None:
    """The quota of A was lowered below what was admitted: whoever asks for B takes nothing from that."""
    too_much = asking("w", json.dumps({A: 5}), phase="Inqueue")
    base = [card_queue("q", {A: 1, B: 2}), NODES, too_much]
    assert enqueue_reason(opened(*base, asking("g", json.dumps({B: 2}))), "g") is None
    assert enqueue_reason(opened(*base, asking("g", json.dumps({AB: 2}))), "g") is None
    assert enqueue_reason(opened(*base, asking("g", json.dumps({AB: 3}))), "g") is not None


def test_tasks_together_fit_as_a_whole_beside_what_is_allocated() -> None:
    session = opened(card_queue("q", {A: 2, B: 1}), NODES, users("x", 2, A), users("y", 2, AB))
    plugin, queue = plugin_of(session, CapacityCardPlugin), queue_of(session, "q")
    first, flexible = [task_of(session, f"x-{i}") for i in range(2)], [task_of(session, f"y-{i}") for i in range(2)]
    assert plugin.preemptive(queue, [*first, flexible[0]]) is None
    assert plugin.preemptive(queue, [*first, *flexible]) is not None


# --- where a pod may choose ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quota", "pods"),
    [
        ({A: 2, B: 2}, [AB, AB, A, A]),  # the first two would take A, which they name first
        ({A: 1, B: 1, H200: 1}, [AB, BC, A]),
        ({A: 1, B: 1, H200: 1}, [f"{B}|{A}", f"{H200}|{B}", H200]),
        ({A: 2, B: 1, H200: 3}, [f"{A}|{B}|{H200}"] * 3 + [AB, AB, A]),
    ],
)
@pytest.mark.parametrize("backwards", [False, True])
def test_a_gang_that_fits_as_a_whole_is_placed_whichever_pod_comes_first(
    quota: dict[str, int], pods: list[str], backwards: bool
) -> None:
    """No pod with a choice takes the only card that another one of its gang names."""
    order = pods[::-1] if backwards else pods
    made = [
        pod(f"g-{i}", group="g", gpu=1, annotations={"volcano.sh/card.name": names}) for i, names in enumerate(order)
    ]
    world = World(card_queue("q", quota), NODES, group("g", queue="q", members=len(pods)), made, conf=card_conf())
    world.rest()
    assert len(world.placed("g")) == len(pods)


def test_a_group_that_needs_few_of_its_pods_takes_the_cards_that_are_there() -> None:
    made = [pod(f"g-{i}", group="g", gpu=1, annotations={"volcano.sh/card.name": n}) for i, n in enumerate([AB, A])]
    world = World(card_queue("q", {A: 1, B: 1}), carded("a", A), group("g", queue="q"), made, conf=card_conf())
    world.rest()
    assert world.placed("g") == {"g-0": "a"}


def test_of_gangs_that_are_equal_but_for_what_is_left_of_them_each_minds_its_own() -> None:
    """Both have a pod of either card; one has nobody beside it that needs A."""
    mixed = [pod(f"m-{i}", group="m", gpu=1, annotations={"volcano.sh/card.name": n}) for i, n in enumerate([AB, A])]
    alone = [pod("s-0", group="s", gpu=1, annotations={"volcano.sh/card.name": AB})]
    groups = [group("m", queue="q", members=2), group("s", queue="q", members=1, created=1)]
    world = World(card_queue("q", {A: 2, B: 1}), NODES, groups, mixed, alone, conf=card_conf())
    world.rest()
    assert world.placed() == {"m-0": "a", "m-1": "a", "s-0": "b"}


# --- against trying everything ----------------------------------------------------------------------------------------

CARDS = ("A", "B", "C", "D")
some_names = st.lists(st.sampled_from(CARDS), min_size=1, max_size=3, unique=True).map(tuple)
some_demands = st.lists(st.tuples(some_names, st.integers(1, 3)), max_size=4)
some_room = st.dictionaries(st.sampled_from(CARDS), st.integers(0, 3))


def fits(left: dict[str, int], demands: list[tuple[tuple[str, ...], int]]) -> bool:
    """Whether some way to give every single card out serves all."""
    singles = [names for names, amount in demands for _ in range(amount)]
    if not singles:
        return True
    for card in singles[0]:
        if left.get(card, 0):
            rest = [(names, 1) for names in singles[1:]]
            if fits({**left, card: left[card] - 1}, rest):
                return True
    return False


@settings(max_examples=examples(300), deadline=None)
@given(left=some_room, demands=some_demands)
def test_demands_are_served_just_where_some_way_to_give_cards_out_serves_all(
    left: dict[str, int], demands: list[tuple[tuple[str, ...], int]]
) -> None:
    for order in (demands, demands[::-1]):
        flow = Flow(left)
        missing = [flow.serve(names, amount) for names, amount in order]
        assert (not any(missing)) == fits(left, demands)


@settings(max_examples=examples(200), deadline=None)
@given(left=some_room, demands=some_demands)
def test_whatever_the_order_as_much_is_served_in_all(
    left: dict[str, int], demands: list[tuple[tuple[str, ...], int]]
) -> None:
    totals = set()
    for order in itertools.permutations(demands):
        flow = Flow(left)
        totals.add(sum(flow.serve(names, amount) for names, amount in order))
    assert len(totals) == 1


@settings(max_examples=examples(150), deadline=None)
@given(quota=some_room, groups=st.lists(st.dictionaries(some_names, st.integers(1, 3), max_size=3), max_size=4))
def test_what_one_session_admits_fits_together(quota: dict[str, int], groups: list[dict[tuple[str, ...], int]]) -> None:
    """Group after group, as enqueue comes to them: each is admitted just where it fits beside those before it."""
    texts = [json.dumps({"|".join(names): amount for names, amount in wanted.items()}) for wanted in groups]
    made = [asking(f"g{i}", text) for i, text in enumerate(texts)]
    session = opened(card_queue("q", quota), [carded(card.lower(), card) for card in CARDS], made)
    plugin = plugin_of(session, CapacityCardPlugin)
    admitted: list[tuple[tuple[str, ...], int]] = []
    for index, text in enumerate(texts):
        wanted = [(tuple(name.split("|")), amount) for name, amount in json.loads(text).items()]
        job = job_of(session, f"g{index}")
        allowed = enqueue_reason(session, f"g{index}") is None
        assert allowed == fits(quota, [*admitted, *wanted])
        if allowed:
            plugin.job_enqueued(job)
            admitted += wanted


def test_many_sets_of_many_cards_are_quick() -> None:
    """Tens of distinct sets over tens of cards: the sums are exact, and nobody waits for them."""
    cards = [f"card-{i:02}" for i in range(40)]
    flow = Flow(dict.fromkeys(cards, 10_000_000))
    chain = [tuple(cards[i : i + 3]) for i in range(38)]
    assert sum(flow.serve(names, 10_000_000) for names in chain) == 0
    assert [flow.serve((card,), 10_000_000) for card in (cards[0], cards[-1])] == [0, 0]
    assert flow.serve((cards[20],), 1) == 1
    assert flow.reached((cards[20],)) == tuple(cards)

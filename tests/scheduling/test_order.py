"""Who comes first."""

from __future__ import annotations

import random

import pytest

from tests.dsl import group, pod, session_of
from tests.plugins.opened import conf, job_of, named
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.order import PriorityQueue
from vcd.state.records import index_in_name, indices_in_names

CONF = conf("priority", "gang")


def in_order(*pods: dict, configuration: str = CONF) -> list[str]:
    session = session_of(group("g"), *pods, conf=configuration)
    return named(framework_of(session).in_task_order(job_of(session, "g").pending()))


def test_the_smallest_key_comes_first() -> None:
    queue = PriorityQueue(lambda item: (item,), [3, 1, 2])
    assert [queue.pop() for _ in range(len(queue))] == [1, 2, 3]


def test_equal_keys_come_in_the_order_of_pushing() -> None:
    queue = PriorityQueue(lambda item: (item[0],), [(1, "first"), (0, "zero")])
    queue.push((1, "second"))
    assert [queue.pop()[1] for _ in range(3)] == ["zero", "first", "second"]


def test_a_key_is_computed_anew_when_its_item_comes_back() -> None:
    weight = {"a": 1, "b": 2}
    queue = PriorityQueue(lambda item: (weight[item],), ["a", "b"])
    weight["a"] = 3
    queue.push(queue.pop())
    assert [queue.pop(), queue.pop()] == ["b", "a"]


def test_popping_from_an_empty_queue_raises() -> None:
    with pytest.raises(IndexError):
        PriorityQueue(lambda item: (item,)).pop()


def test_the_rest_is_all_that_was_not_popped() -> None:
    queue = PriorityQueue(lambda item: (item,), [3, 1, 2])
    queue.pop()
    assert sorted(queue.rest()) == [2, 3]


def test_an_item_pushed_at_random_times_comes_out_in_order() -> None:
    rand = random.Random(4)
    items = [rand.randrange(50) for _ in range(200)]
    queue = PriorityQueue(lambda item: (item,), items[:100])
    for item in items[100:]:
        queue.push(item)
    assert [queue.pop() for _ in items] == sorted(items)


def test_tasks_come_by_the_plugins_first() -> None:
    pods = [pod("g-w-0", group="g"), pod("g-w-1", group="g", spec={"priority": 9})]
    assert in_order(*pods) == ["g-w-1", "g-w-0"]


def test_then_by_the_index_at_the_end_of_their_names() -> None:
    assert in_order(*[pod(f"g-w-{i}", group="g", created=20 - i) for i in (10, 9, 2)]) == ["g-w-2", "g-w-9", "g-w-10"]


def test_a_name_of_two_parts_has_no_index() -> None:
    assert in_order(pod("g-0", group="g", created=5), pod("g-1", group="g", created=1)) == ["g-1", "g-0"]


def test_indices_do_not_count_when_a_task_has_none() -> None:
    pods = [pod("g-w-0", group="g", created=5), pod("g-w-1", group="g", created=1), pod("other", group="g", created=3)]
    assert in_order(*pods) == ["g-w-1", "other", "g-w-0"]


@pytest.mark.parametrize(
    "odd", ["w-1", "w-a-1", "w-a-", "w-a-x1", "w-a-\u0661", "w-a-" + "1" * 18, "w-a-" + "1" * 19, "-1", ""]
)
def test_pods_have_indices_together_where_each_has_one(odd: str) -> None:
    """Names are looked at after the namespace, which may have dashes of its own."""
    index = index_in_name(odd)
    expected = None if index is None else [7, index]
    assert indices_in_names(["n-a-m/w-b-7", f"n-a-m/{odd}"]) == expected


def test_then_by_age_then_uid_then_name() -> None:
    old, young, twin = (pod(name, group="g", created=created) for name, created in (("c", 1), ("a", 2), ("b", 2)))
    twin["metadata"]["uid"] = "0"
    assert in_order(young, twin, old) == ["c", "b", "a"]


def test_the_order_does_not_depend_on_the_order_of_arrival() -> None:
    rand = random.Random(1)
    pods = [
        pod(f"p-{name}-{rand.randrange(3)}", group="g", created=rand.randrange(3), spec={"priority": rand.randrange(2)})
        for name in "abcdefgh"
    ]
    expected = in_order(*pods)
    for _ in range(5):
        rand.shuffle(pods)
        assert in_order(*pods) == expected

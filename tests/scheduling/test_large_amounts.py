"""Amounts as large as real nodes have them, and larger: they are counted, and sums of them stay what they are."""

from __future__ import annotations

import msgspec
import pytest

from tests.dsl import gang, group, node, planned, session_of
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.plugins.extender.extender_encoding import Wire
from vcd.timetravel.queuestatistics import queue_statistics

QUEUES = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: gang
  - name: overcommit
  - name: predicates
  - name: {queues}
"""


@pytest.mark.parametrize("queues", ["proportion", "capacity", "capacity-card"])
@pytest.mark.parametrize("resource", ["ephemeral-storage", "hugepages-2Mi"])
def test_the_disks_of_many_large_nodes_are_summed_up(resource: str, queues: str) -> None:
    """Of 30 TB a node, 400 nodes are beyond int64 in thousandths of a byte, and one is beyond what floats count."""
    nodes = [node(f"n{number}", **{resource: "28Ti"}) for number in range(400)]
    wanted = {"cpu": 1, resource: "27Ti"}
    asks = gang("g", 3, phase="Pending", minimum={"cpu": 3, resource: "81Ti"}, **wanted)
    result = planned(*nodes, asks, conf=QUEUES.format(queues=queues))
    assert len(set(result.binds.values())) == 3
    assert (result.set_aside, result.faults) == ({}, [])


def test_a_disk_that_is_full_takes_nobody() -> None:
    wanted = {"cpu": 1, "ephemeral-storage": "15Ti"}
    result = planned(node("n", **{"ephemeral-storage": "28Ti"}), gang("g", 2, members=1, **wanted))
    assert result.binds == {"default/g-0": "n"}


@pytest.mark.parametrize("amount", ["9007199254741", "9P"])
def test_a_node_that_shows_more_than_can_be_counted_is_used_all_the_same(amount: str) -> None:
    shown = {"example.com/bytes": amount}
    asks = gang("g", 1, cpu=1, **{"example.com/bytes": "4T"})
    assert planned(node("n", **shown), asks).binds == {"default/g-0": "n"}


@pytest.mark.parametrize("text", ["-1e300", "-9000"])
def test_a_node_that_lacks_more_than_it_has_takes_nobody_and_takes_nothing_from_others(text: str) -> None:
    """An agent writes on nodes what may be lent out beyond what they have."""
    odd = node("odd")
    odd["metadata"]["annotations"] = {"volcano.sh/oversubscription-cpu": text}
    asks = gang("g", 3, phase="Pending", minimum={"cpu": 9}, cpu=3)
    assert set(planned(odd, node("n", cpu=9), asks).binds.values()) == {"n"}


@pytest.mark.parametrize("amount", ["9007199254741", "9P"])
def test_a_group_that_asks_for_more_than_can_be_counted_is_set_aside(amount: str) -> None:
    odd = [group(f"odd{number}", minimum={"cpu": amount}, phase="Inqueue") for number in range(3)]
    asks = gang("g", 1, phase="Pending", minimum={"cpu": 1}, cpu=1)
    result = planned(node("n"), *odd, asks)
    assert result.binds == {"default/g-0": "n"}
    assert list(result.set_aside) == [f"PodGroup default/odd{number}" for number in range(3)]


def test_who_reads_volcanos_numbers_gets_volcanos_unit() -> None:
    """Thousandths of a byte, in its metrics and in what an extender is sent; people are told of bytes."""
    disk = {"ephemeral-storage": "2Ki"}
    objects = [node("n", **disk), *gang("g", 1, on=["n"], cpu=1, **{"ephemeral-storage": "1Ki"})]
    session = session_of(*objects, conf=QUEUES.format(queues="proportion"))
    gauges = next(plugin for plugin in framework_of(session).plugins if plugin.name == "proportion").gauges()
    values = {gauge.labels: gauge.value for gauge in gauges if gauge.name == "volcano_queue_allocated_scalar_resources"}
    assert values[("queue_name", "default"), ("resource", "ephemeral-storage")] == 1024_000
    assert queue_statistics(session)["default"].quantity("allocated", "ephemeral-storage") == "1Ki"
    sent = msgspec.json.decode(Wire(session).node(0))
    amounts = [sent[place]["ScalarResources"]["ephemeral-storage"] for place in ("Used", "Idle", "Capacity")]
    assert amounts == [1024_000, 1024_000, 2048_000]


@pytest.mark.parametrize("more", [2, 3])
def test_what_is_one_byte_over_is_over_also_beyond_what_floats_count(more: int) -> None:
    """binpack gives no points to a node that the pod would put over: ``full`` is so by less than floats can tell."""
    conf = "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n  - name: binpack\n"
    conf += "    arguments:\n      binpack.cpu: 0\n"
    most = 2**53
    leaving = [
        gang("goes", 1, members=1, cpu=1, memory=str(most), on=["full"], deleting=True),
        gang("stays", 1, members=1, cpu=1, memory=str(more), on=["full"]),
        gang("half", 1, members=1, cpu=4, memory=str(most // 2), on=["other"], deleting=True),
    ]
    nodes = [node(name, cpu=4, memory=str(most)) for name in ("full", "other")]
    plan = planned(*nodes, *leaving, gang("new", 1, cpu=1, memory="1"), conf=conf)
    assert plan.pipelined == {"default/new-0": "other"}

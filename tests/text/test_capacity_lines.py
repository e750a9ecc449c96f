"""What is free in a cluster, as the first lines of a screen say it."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from vcd.text.capacity_lines import capacity_lines, cluster_resource, resource_shown

GPU = "nvidia.com/gpu"
GI = 1 << 30


class Node(NamedTuple):
    name: str
    ready: bool
    allocatable: dict[str, int]
    used: dict[str, int]


def gpu_nodes(*used: int, ready: bool = True) -> list[Node]:
    """Nodes with 8 GPU, 64 cpu and 512Gi each."""
    offered = {GPU: 8000, "cpu": 64_000, "memory": 512 * GI, "pods": 110}
    return [Node(f"n{i}", ready, offered, {GPU: each * 1000, "cpu": each * 4000}) for i, each in enumerate(used)]


def test_a_cluster_of_gpus_is_counted_in_gpus() -> None:
    assert list(capacity_lines(gpu_nodes(8, 8, 2), 5, 2)) == [
        "24 GPU: 18 used, 6 free   cpu 72/192   memory 0/1.5Ti",
        "3/3 nodes   free GPU per node: 0: 2 nodes, 6: n2",
        "5 jobs waiting, 2 running",
    ]


def test_many_amounts_are_quarters_of_the_largest() -> None:
    _, histogram, _ = capacity_lines(gpu_nodes(0, 1, 2, 3, 5, 6, 7, 8, 8), 0, 0)
    assert histogram == (
        "9/9 nodes   free GPU per node: 0: 2 nodes, up to 2: 2 nodes, up to 4: n4, up to 6: 2 nodes, up to 8: 2 nodes"
    )


def test_what_a_lost_node_has_is_no_free_capacity_of_a_node() -> None:
    lines = list(capacity_lines([*gpu_nodes(8), Node("lost", False, {GPU: 4000}, {})], 0, 0))
    assert lines[1:3] == ["1/2 nodes   free GPU per node: 0: n0", "Not ready: lost"]


def test_a_cluster_without_nodes_has_its_jobs() -> None:
    assert list(capacity_lines([], 3, 0)) == ["0/0 nodes   3 jobs waiting, 0 running"]


def test_a_cluster_that_lost_all_nodes_says_so() -> None:
    assert list(capacity_lines(gpu_nodes(0, ready=False), 0, 0))[1:3] == [
        "0/1 nodes   free GPU per node: no node is ready",
        "Not ready: n0",
    ]


@pytest.mark.parametrize(
    ("offered", "expected"),
    [({}, ""), ({"cpu": 1, "memory": 1}, "cpu"), ({"cpu": 1, "example.com/x": 1}, "example.com/x")],
)
def test_the_resource_of_a_cluster(offered: dict[str, int], expected: str) -> None:
    assert cluster_resource([Node("n", True, offered, {})]) == expected


def test_a_queue_is_shown_by_the_clusters_resource_unless_it_has_none_of_it() -> None:
    assert resource_shown(GPU, [{"cpu": 5}, {GPU: 1}]) == GPU
    assert resource_shown(GPU, [{"cpu": 5, GPU: 0}, {"memory": 7}]) == "cpu"
    assert resource_shown(GPU, [{}, {}]) == ""

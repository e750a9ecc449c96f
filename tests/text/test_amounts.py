"""Amounts as users write them."""

from __future__ import annotations

import pytest

from vcd.text.amounts import amount_of, main_resource, needs

GI = 2**30


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("nvidia.com/gpu", 8000, "8 GPU"),
        ("amd.com/gpu", 500, "0.5 GPU"),
        ("example.com/card", 3000, "3 example.com/card"),
        ("cpu", 500, "0.5 cpu"),
        ("cpu", 1_250_000, "1,250 cpu"),
        ("cpu", 12_125, "12.1 cpu"),
        ("nvidia.com/gpu", 533_333, "533 GPU"),
        ("nvidia.com/gpu", 1_066_667, "1,067 GPU"),
        ("memory", 64 * GI, "64Gi memory"),
        ("memory", 1536 * GI, "1.5Ti memory"),
        ("memory", 1000 * 2**20 + 1, "1000Mi memory"),
        ("memory", 12345678, "11.8Mi memory"),
        ("memory", 0, "0 memory"),
        ("memory", 100, "100 memory"),
        ("requests.memory", 5 * GI, "5Gi requests.memory"),
        ("pods", 1200, "1,200 pods"),
        ("", 3, "3"),
    ],
)
def test_an_amount(resource: str, amount: int, text: str) -> None:
    assert amount_of(resource, amount) == text


@pytest.mark.parametrize(
    ("requests", "resource"),
    [
        ({"cpu": 1000, "memory": GI, "pods": 1, "nvidia.com/gpu": 1000}, "nvidia.com/gpu"),
        ({"cpu": 1000, "b.com/x": 1, "a.com/x": 1}, "a.com/x"),
        ({"cpu": 1000, "memory": GI}, "cpu"),
        ({"cpu": 0, "memory": GI, "ephemeral-storage": 1}, "memory"),
        ({"pods": 1}, ""),
        ({}, ""),
    ],
)
def test_the_resource_by_which_a_pod_is_known(requests: dict[str, int], resource: str) -> None:
    assert main_resource(requests) == resource


GPU, LARGE, CPU, NOTHING = {"nvidia.com/gpu": 4000, "cpu": 1000}, {"nvidia.com/gpu": 8000}, {"cpu": 2000}, {"pods": 1}


@pytest.mark.parametrize(
    ("pods", "text"),
    [
        ([], ""),
        ([GPU], "1 x 4 GPU"),
        ([GPU] * 1200, "1,200 x 4 GPU"),
        ([GPU, CPU, CPU], "2 x 2 cpu + 1 x 4 GPU"),
        ([GPU, LARGE, CPU], "3 pods, 12 GPU"),
        ([NOTHING], "1 x nothing"),
        ([NOTHING, CPU, {"cpu": 1000}], "3 pods, 3 cpu"),
    ],
)
def test_what_pods_need(pods: list[dict[str, int]], text: str) -> None:
    assert needs(pods) == text

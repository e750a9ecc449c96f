"""The score by images that nodes have already."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dsl import node, pod, session_of
from tests.predicates.asking import with_arguments
from tests.scores.rating import points, rated
from tests.sizes import examples
from vcd.scheduling.session.session import Session

Manifest = dict[str, Any]

MI = 2**20


def having(name: str, **sizes: int) -> Manifest:
    """A node with images, sizes in Mi."""
    images = [{"names": [f"registry/{image}:1"], "sizeBytes": size * MI} for image, size in sizes.items()]
    return node(name, status={"images": images})


def running(*images: str, init: tuple[str, ...] = ()) -> Manifest:
    """A pod with a container per image."""
    containers = [{"name": f"c{i}", "image": image} for i, image in enumerate(images)]
    inits = [{"name": f"i{i}", "image": image} for i, image in enumerate(init)]
    return pod("p", spec={"containers": containers, "initContainers": inits})


def opened(*objects: Manifest) -> Session:
    return session_of(*objects, conf=with_arguments("nodeorder"))


LATEST = node("n", status={"images": [{"names": ["host:5000/a:latest"], "sizeBytes": 1000 * MI}]})
A = "registry/a:1"


@pytest.mark.parametrize(
    ("nodes", "pod", "expected"),
    [
        # between 23 and 1000 Mi, times the share of nodes that have the image
        ([having("n", a=900), node("m")], running(A), {"n": 100 * (450 - 23) // (1000 - 23), "m": 0}),
        ([having("n", a=22)], running(A), {"n": 0}),
        ([having("n", a=5000)], running(A), {"n": 100}),
        ([LATEST], running("host:5000/a"), {"n": 100}),
        ([having("n", a=1000, b=1000)], running(A, init=("registry/b:1",)), {"n": 100}),
        ([having("n", a=500)], running(A, A), {"n": 100 * (1000 - 23) // (2000 - 23)}),
    ],
    ids=["share", "small", "huge", "no tag is latest", "init container", "twice"],
)
def test_bytes_of_the_images_of_all_containers_count(
    nodes: list[Manifest], pod: Manifest, expected: dict[str, float]
) -> None:
    assert points(opened(*nodes, pod), "imagelocality") == expected


def test_a_pod_whose_images_are_nowhere_is_not_rated() -> None:
    assert not rated(opened(having("n", a=500), running("registry/b:1")), "imagelocality")


@settings(max_examples=examples(50), deadline=None)
@given(
    sizes=st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(1, 3000)), min_size=1, max_size=5),
    wanted=st.lists(st.sampled_from("abc"), min_size=1, max_size=3),
)
def test_the_columns_are_the_formula(sizes: list[dict[str, int]], wanted: list[str]) -> None:
    session = opened(
        *(having(f"n{i}", **held) for i, held in enumerate(sizes)), running(*(f"registry/{i}:1" for i in wanted))
    )
    expected = []
    for held in sizes:
        total = 0
        for image in wanted:
            spread = sum(image in other for other in sizes) / len(sizes)
            total += int(held[image] * MI * spread) if image in held else 0
        most = 1000 * MI * len(wanted)
        total = min(max(total, 23 * MI), most)
        expected.append(100 * (total - 23 * MI) // (most - 23 * MI))
    assert list(points(session, "imagelocality").values()) == expected

"""LimitRanges, rule by rule: their own defaults, what they fill in of pods, and what they refuse."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.embedded.serving import make_store
from vcd.embedded.status_errors import StatusError
from vcd.model.limitranges import LimitRanges, fill_in_limit_range
from vcd.model.manifests import refusal_of, with_scheduling_defaults
from vcd.model.objects import Pod
from vcd.model.projection_codec import from_manifest

Manifest = dict[str, Any]


def limit_range(name: str = "l", kind: str = "Container", **item: Any) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"limits": [{"type": kind, **item}]},
    }


def limits(*manifests: Manifest) -> LimitRanges:
    stored = copy.deepcopy(list(manifests))
    for manifest in stored:
        fill_in_limit_range(manifest["spec"])
    return LimitRanges(stored)


def container(name: str = "c", **resources: Manifest) -> Manifest:
    return {"name": name, "image": "image", "resources": resources}


@pytest.mark.parametrize(
    ("item", "default", "requests"),
    [
        ({"default": {"cpu": "2"}}, {"cpu": "2"}, {"cpu": "2"}),
        ({"default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}, {"cpu": "2"}, {"cpu": "1"}),
        ({"max": {"cpu": "4"}}, {"cpu": "4"}, {"cpu": "4"}),
        ({"max": {"cpu": "4"}, "default": {"cpu": "3"}}, {"cpu": "3"}, {"cpu": "3"}),
        ({"min": {"cpu": "1"}}, None, {"cpu": "1"}),
        ({"min": {"cpu": "1"}, "max": {"cpu": "4"}}, {"cpu": "4"}, {"cpu": "4"}),
        ({"maxLimitRequestRatio": {"cpu": "2"}}, None, None),
    ],
)
def test_defaults_of_a_limit_range(item: Manifest, default: Manifest | None, requests: Manifest | None) -> None:
    spec = limit_range(**item)["spec"]
    fill_in_limit_range(spec)
    assert (spec["limits"][0].get("default"), spec["limits"][0].get("defaultRequest")) == (default, requests)


def test_only_items_of_containers_have_defaults() -> None:
    spec = limit_range(kind="Pod", max={"cpu": "4"})["spec"]
    before = copy.deepcopy(spec)
    fill_in_limit_range(spec)
    assert spec == before


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}),
        ({"requests": {"cpu": "500m"}}, {"limits": {"cpu": "2"}, "requests": {"cpu": "500m"}}),
        ({"limits": {"cpu": "4"}, "requests": {"cpu": "4"}}, {"limits": {"cpu": "4"}, "requests": {"cpu": "4"}}),
        (
            {"requests": {"memory": "1Gi"}},
            {"limits": {"cpu": "2"}, "requests": {"cpu": "1", "memory": "1Gi"}},
        ),
    ],
)
def test_only_what_is_not_stated_is_filled_in(resources: Manifest, expected: Manifest) -> None:
    spec = {"containers": [container(**resources)], "initContainers": [container("i", **resources)]}
    limits(limit_range(default={"cpu": "2"}, defaultRequest={"cpu": "1"})).fill_in(spec)
    assert [spec[member][0]["resources"] for member in ("containers", "initContainers")] == [expected, expected]


def test_the_first_limit_range_by_name_comes_first() -> None:
    spec = {"containers": [container()]}
    second = limit_range("b", default={"cpu": "2", "memory": "2Gi"})
    limits(second, limit_range("a", default={"cpu": "1"})).fill_in(spec)
    assert spec["containers"][0]["resources"]["limits"] == {"cpu": "1", "memory": "2Gi"}


TWO: Manifest = {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}


@pytest.mark.parametrize(
    ("item", "resources", "message"),
    [
        ({"min": {"cpu": "2"}}, TWO, ""),
        ({"min": {"cpu": "3"}}, TWO, "minimum cpu usage per Container is 3, but request is 2"),
        ({"min": {"cpu": "2"}}, {"requests": {"cpu": "2"}}, ""),
        ({"max": {"cpu": "2"}}, TWO, ""),
        ({"max": {"cpu": "1"}}, TWO, "maximum cpu usage per Container is 1, but limit is 2"),
        ({"maxLimitRequestRatio": {"cpu": "2"}}, {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}, ""),
        (
            {"maxLimitRequestRatio": {"cpu": "1500m"}},
            {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
            "cpu max limit to request ratio per Container is 1500m, but provided ratio is 2.000000",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"requests": {"cpu": "1"}},
            "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0",
        ),
        (
            {"maxLimitRequestRatio": {"memory": "2"}},
            TWO,
            "memory max limit to request ratio per Container is 2, but no request is specified or request is 0",
        ),
    ],
)
def test_bounds_of_containers(item: Manifest, resources: Manifest, message: str) -> None:
    found = limits(limit_range(**item)).refusals({"containers": [container(**resources)]})
    assert list(found) == ([("l", message)] if message else [])
    starting = {"containers": [container(**TWO)], "initContainers": [container("i", **resources)]}
    assert bool(list(limits(limit_range(**item)).refusals(starting))) is bool(message)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"max": {"cpu": "4"}}, ""),
        ({"max": {"cpu": "3"}}, "maximum cpu usage per Pod is 3, but limit is 4"),
        ({"min": {"cpu": "5"}}, "minimum cpu usage per Pod is 5, but request is 4"),
        ({"max": {"memory": "1Gi"}}, "maximum memory usage per Pod is 1Gi.  No limit is specified"),
        ({"min": {"memory": "1Gi"}}, "minimum memory usage per Pod is 1Gi.  No request is specified"),
    ],
)
def test_bounds_of_the_pod_as_a_whole(item: Manifest, message: str) -> None:
    spec = {"containers": [container("a", **TWO), container("b", **TWO)]}
    assert [found for _, found in limits(limit_range(kind="Pod", **item)).refusals(spec)] == [message] * bool(message)


# --- the same in the embedded server and in plans ---------------------------------------------------------------------

RANGES = [
    limit_range("a", default={"cpu": "2"}, defaultRequest={"cpu": "1"}, max={"memory": "2Gi"}),
    limit_range("b", "Pod", max={"cpu": "4"}),
]
SPECS: list[Manifest] = [
    {"containers": [container()]},
    {"containers": [container(limits={"cpu": "500m"})]},
    {"containers": [container(requests={"cpu": "500m"})], "initContainers": [container("i")]},
    {"containers": [container(requests={"cpu": "4"})]},  # above the default limit
    {"containers": [container(limits={"memory": "4Gi"})]},
    {"containers": [container("a"), container("b"), container("c")]},  # 6 cpu together
    {"containers": [container()], "resources": {"limits": {"cpu": "3"}}},
]


@pytest.mark.parametrize("spec", SPECS)
def test_a_plan_fills_in_and_refuses_as_the_embedded_server(spec: Manifest) -> None:
    store = make_store()
    for each in RANGES:
        store.create("limitranges", each)
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}, "spec": spec}
    admitted = with_scheduling_defaults(read(manifest), known := LimitRanges(store.list("limitranges")))
    try:
        stored = read(store.create("pods", manifest))
    except StatusError as error:
        assert error.code in (403, 422)
        assert refusal_of(admitted, known)
        return
    assert not refusal_of(admitted, known)
    compared = ("containers", "init_containers", "resources")
    assert [getattr(admitted.spec, name) for name in compared] == [getattr(stored.spec, name) for name in compared]


def read(manifest: Manifest) -> Pod:
    obj = from_manifest(manifest)[1]
    assert isinstance(obj, Pod)
    return obj


def test_the_embedded_server_stores_limit_ranges_with_their_defaults() -> None:
    stored = make_store().create("limitranges", limit_range(max={"cpu": "4"}))
    assert stored["spec"]["limits"] == [
        {"type": "Container", "max": {"cpu": "4"}, "default": {"cpu": "4"}, "defaultRequest": {"cpu": "4"}}
    ]


def test_the_embedded_server_tells_what_a_limit_range_refuses() -> None:
    store = make_store()
    store.create("limitranges", limit_range(max={"cpu": "1", "memory": "1Gi"}))
    spec = {"containers": [container(limits={"cpu": "2", "memory": "2Gi"})]}
    with pytest.raises(StatusError) as raised:
        store.create("pods", {"metadata": {"name": "p"}, "spec": spec})
    assert raised.value.code == 403
    assert "[maximum cpu usage per Container is 1, but limit is 2, maximum memory" in str(raised.value)


@pytest.mark.parametrize("amount", ["99999999999999999999", "-1"])
def test_a_limit_range_that_cannot_be_read_is_refused(amount: str) -> None:
    with pytest.raises(StatusError) as raised:
        make_store().create("limitranges", limit_range(max={"cpu": amount}))
    assert raised.value.code == 422


@pytest.mark.parametrize(("queue", "expected"), [("", "team"), ("default", "team"), ("own", "own")])
def test_the_embedded_server_puts_a_pod_group_in_its_namespaces_queue(queue: str, expected: str) -> None:
    store = make_store()
    marks = {"scheduling.volcano.sh/queue-name": "team"}
    store.create("namespaces", {"metadata": {"name": "n", "annotations": marks}})
    made = {
        "metadata": {"name": "g", "namespace": "n"},
        "spec": {"minMember": 1, **({"queue": queue} if queue else {})},
    }
    assert store.create("podgroups.scheduling.volcano.sh", made)["spec"]["queue"] == expected

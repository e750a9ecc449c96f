"""In-place resize: a pod counts with the largest of what it shall have, was admitted with, and runs with."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.dsl import BY_QUEUE, Manifest, gang, group, node, planned, pod, quantities, queue
from tests.world import World
from vcd.model.objects import Pod
from vcd.model.projection_codec import encode_payload, from_manifest
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import SnapshotMaker

INFEASIBLE = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
DEFERRED = {**INFEASIBLE, "reason": "Deferred"}


def status_of(actual: Manifest | None, allocated: Manifest | None = None, name: str = "c") -> Manifest:
    found: Manifest = {"name": name, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
    if actual is not None:
        found["resources"] = {"requests": quantities(actual), "limits": quantities(actual)}
    if allocated is not None:
        found["allocatedResources"] = quantities(allocated)
    return found


def resized(
    name: str,
    *statuses: Manifest,
    field: str = "containerStatuses",
    condition: Manifest | None = None,
    on: str = "n",
    **options: Any,
) -> Manifest:
    manifest = pod(name, group="old", on=on, **options)
    manifest["status"][field] = list(statuses)
    manifest["status"]["conditions"] = [condition] if condition else []
    return manifest


def room_left(*old: Manifest, resource: str, room: int) -> int:
    """How many pods of one unit still fit beside ``old``."""
    amounts = {"cpu": 100, "memory": 100, resource: room}
    result = planned(
        node("n", **amounts), group("old"), *old, gang("new", room, members=1, **{resource: 1}), conf=BY_QUEUE
    )
    return len(result.binds)


@pytest.mark.parametrize("resource", ["cpu", "memory"])
@pytest.mark.parametrize(
    "spec, actual, allocated, condition, counts",
    [
        (2, None, None, None, 2),
        (2, 2, 2, None, 2),
        (2, 5, 5, None, 5),
        (2, 3, 5, None, 5),
        (2, 5, 2, None, 5),
        (6, 2, 2, None, 6),
        (6, 2, 2, DEFERRED, 6),
        (6, 2, 2, INFEASIBLE, 2),
        (6, 3, 2, INFEASIBLE, 3),
        (2, None, 5, None, 2),
    ],
    ids=[
        "no status", "not resized", "shrinking", "shrinking, admitted with more", "shrinking, running with more",
        "growing", "growing later", "never growing", "never growing, running with more", "of an older kubelet",
    ],
)  # fmt: skip
def test_a_container_counts_with_the_largest(
    resource: str, spec: int, actual: int | None, allocated: int | None, condition: Manifest | None, counts: int
) -> None:
    shown = status_of(
        None if actual is None else {resource: actual}, None if allocated is None else {resource: allocated}
    )
    one = resized("a", shown, condition=condition, **{resource: spec})
    assert room_left(one, resource=resource, room=8) == 8 - counts


def test_each_container_counts_by_itself_and_the_pod_is_the_sum() -> None:
    one = resized("a", status_of({"cpu": 1}, {"cpu": 1}), status_of({"cpu": 3}, {"cpu": 3}, "d"), cpu=2)
    one["spec"]["containers"].append({"name": "d", "resources": {"requests": {"cpu": "1"}}})
    assert room_left(one, resource="cpu", room=8) == 3


@pytest.mark.parametrize("restarts, counts", [("Always", 5), ("", 2)], ids=["a sidecar", "an init step"])
def test_sidecars_are_resized_and_steps_are_not(restarts: str, counts: int) -> None:
    init = {"name": "i", "resources": {"requests": {"cpu": "1"}}, **({"restartPolicy": restarts} if restarts else {})}
    shown = status_of({"cpu": 3}, {"cpu": 3}, "i")
    one = resized("a", shown, field="initContainerStatuses", cpu=2, spec={"initContainers": [init]})
    one["spec"]["containers"][0]["name"] = "c"
    assert room_left(one, resource="cpu", room=8) == 8 - counts


def test_a_pod_with_requests_as_a_whole_is_counted_with_the_largest_of_these() -> None:
    one = pod("a", group="old", on="n", cpu=1, spec={"resources": {"requests": {"cpu": "2"}}})
    one["status"].update(resources={"requests": {"cpu": "4"}}, allocatedResources={"cpu": "3"})
    assert room_left(one, resource="cpu", room=8) == 4


def test_a_queue_holds_what_its_pods_are_counted_with() -> None:
    one = resized("a", status_of({"cpu": 3}, {"cpu": 3}), cpu=1)
    objects = [node("n"), queue("q", capability={"cpu": "4"}), group("old", queue="q"), one]
    result = planned(*objects, gang("new", 2, members=1, cpu=1, queue="q"), conf=BY_QUEUE)
    assert len(result.binds) == 1


def test_room_comes_back_when_the_resize_is_done() -> None:
    before, after = ({"cpu": 6}, {"cpu": 6}), ({"cpu": 2}, {"cpu": 2})
    world = World(
        node("n"), group("old"), resized("a", status_of(*before), cpu=2), gang("new", 1, cpu=4), conf=BY_QUEUE
    )
    world.cycle()
    assert world.placed("new") == {}
    world.put(resized("a", status_of(*after), cpu=2))
    world.cycle()
    assert world.placed("new") == {"new-0": "n"}
    assert len(world.state.shapes) == 2


def test_a_checkpoint_and_the_rest_are_the_whole() -> None:
    world = World(node("n"), group("old"), resized("a", status_of({"cpu": 6}, {"cpu": 6}), cpu=2), conf=BY_QUEUE)
    loaded = ClusterState.load(world.state.dump())
    assert loaded.dump() == world.state.dump()
    assert [shape.requests["cpu"] for shape in loaded.shapes.values if shape] == [6000]
    shown = loaded.pod("default/a")
    assert shown is not None and shown.spec.containers[0].resources.requests == {"cpu": "2"}


def test_what_the_kubelet_repeats_of_the_spec_is_not_kept() -> None:
    """Else every pod that starts would make its payload longer, and a new one."""
    without = pod("a", group="old", on="n", cpu=2)
    repeated = resized("a", status_of({"cpu": 2}, {"cpu": 2}), cpu=2)
    assert encode_payload(from_manifest(without)[1]) == encode_payload(from_manifest(repeated)[1])
    obj = from_manifest(resized("a", status_of({"cpu": 2}, {"cpu": 3}), cpu=2))[1]
    assert isinstance(obj, Pod)
    (kept,) = obj.status.container_statuses
    assert (kept.name, kept.allocated_resources) == ("c", {"cpu": "3"})


def test_a_status_that_cannot_be_read_sets_the_pod_aside_with_its_name() -> None:
    result = planned(node("n"), group("old"), resized("a", status_of({"cpu": "x"}, {"cpu": 1}), cpu=2), conf=BY_QUEUE)
    assert list(result.set_aside) == ["Pod default/a"]


@pytest.mark.parametrize("amount", ["9E", "9007199254741", "1e30"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_running_pod_that_asks_for_more_than_can_be_counted_gives_no_room_away(amount: str, restarted: bool) -> None:
    """Whoever owns a pod may ask so in place. It was set aside, and its room was given to others."""
    owned = resized("a", status_of({"cpu": 6}, {"cpu": 6}), cpu=6)
    asks = copy.deepcopy(owned)
    asks["spec"]["containers"][0]["resources"]["requests"]["cpu"] = amount
    world = World([node("n", cpu=8), group("old"), owned], conf=BY_QUEUE)
    world.put(asks)
    if restarted:
        world.state = ClusterState.load(world.state.dump())
        world.maker = SnapshotMaker(world.state)
    world.put(*gang("new", 3, members=1, cpu=2))
    assert world.cycle().statements == ()
    assert list(world.state.bad) == [("Pod", "default/a")]
    refused = {**asks, "status": {**asks["status"], "conditions": [INFEASIBLE]}}
    world.put(refused)
    assert len(world.cycle().statements) == 1
    assert world.state.bad == {}


def test_a_pod_on_no_node_that_cannot_be_counted_is_set_aside() -> None:
    result = planned(node("n"), gang("g", 1, cpu="9E"), gang("h", 1, cpu=1))
    assert (result.binds, list(result.set_aside)) == ({"default/h-0": "n"}, ["Pod default/g-0"])


def test_a_pod_counts_with_what_it_runs_with_from_the_first_that_is_told_of_it() -> None:
    world = World(node("n"), group("old"), pod("a", group="old", on="n", cpu=2), gang("new", 1, cpu=4), conf=BY_QUEUE)
    world.put(resized("a", status_of({"cpu": 6}, {"cpu": 6}), cpu=2))
    world.cycle()
    assert world.placed("new") == {}

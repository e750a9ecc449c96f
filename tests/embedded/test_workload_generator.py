"""Node shapes, queues, generated mixes, timed manifests, and how they arrive."""

from random import Random
from typing import Any

import pytest

from tests.embedded.simulated import START, Simulated, jump_to
from vcd.embedded.cluster_clock import ClusterClock
from vcd.embedded.controllers.controller_base import DEPLOYMENTS, JOBS, NODES, PODGROUPS, PODS, QUEUES
from vcd.embedded.store import Store
from vcd.embedded.workload_generator import (
    Arrival,
    Feeder,
    Mix,
    WorkloadError,
    generate,
    install,
    parse_mix,
    parse_nodes,
    parse_queues,
    scheduled_manifests,
)


def room(node: dict[str, Any]) -> dict[str, str]:
    allocatable: dict[str, str] = node["status"]["allocatable"]
    return allocatable


# --- nodes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", ["3*cpu=32,memory=256Gi", "3x cpu=32,memory=256Gi", " 3 * cpu=32, memory=256Gi ;"])
def test_a_shape_makes_its_count_of_nodes(spec: str) -> None:
    nodes = parse_nodes(spec)
    assert [each["metadata"]["name"] for each in nodes] == ["node-0", "node-1", "node-2"]
    assert room(nodes[0]) == {"pods": "110", "cpu": "32", "memory": "256Gi"}


def test_shapes_are_counted_on() -> None:
    nodes = parse_nodes("2*cpu=1;1*cpu=2")
    assert [(each["metadata"]["name"], room(each)["cpu"]) for each in nodes] == [
        ("node-0", "1"),
        ("node-1", "1"),
        ("node-2", "2"),
    ]


def test_names_with_a_quantity_under_a_domain_are_resources() -> None:
    node = parse_nodes("cpu=1,nvidia.com/gpu=8,nvidia.com/gpu.product=A100")[0]
    assert room(node)["nvidia.com/gpu"] == "8"
    assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == "A100"


def test_zone_is_the_topology_label() -> None:
    nodes = parse_nodes("4*cpu=1,zone=z{i%2}")
    zones = [each["metadata"]["labels"]["topology.kubernetes.io/zone"] for each in nodes]
    assert zones == ["z0", "z1", "z0", "z1"]


def test_the_index_is_filled_in() -> None:
    nodes = parse_nodes("4*cpu=1,name=gpu-{i},rack=r{i//2}")
    assert [(each["metadata"]["name"], each["metadata"]["labels"]["rack"]) for each in nodes] == [
        ("gpu-0", "r0"),
        ("gpu-1", "r0"),
        ("gpu-2", "r1"),
        ("gpu-3", "r1"),
    ]


def test_a_label_can_look_like_a_resource() -> None:
    node = parse_nodes("cpu=1,label:example.com/rank=3")[0]
    assert node["metadata"]["labels"]["example.com/rank"] == "3"


def test_taints_are_set() -> None:
    node = parse_nodes("cpu=1,taint:dedicated=gpu:NoSchedule")[0]
    assert node["spec"]["taints"] == [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", "name no node"),
        ("0*cpu=1", "name no node"),
        ("3*cpu", "must be key=value"),
        ("cpu=lots", "cpu"),
        ("2*cpu=1,name=same", "given to several nodes"),
        ("cpu=1,taint:a=b:Never", "must end in :NoSchedule"),
    ],
)
def test_a_wrong_shape_is_an_error_that_names_it(spec: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        parse_nodes(spec)


# --- queues ---------------------------------------------------------------------------------------------------------


def test_queues_have_their_weights() -> None:
    queues = parse_queues("research:3, serving")
    assert [(each["metadata"]["name"], each["spec"]["weight"]) for each in queues] == [("research", 3), ("serving", 1)]


@pytest.mark.parametrize("spec", ["a:0", "a:-1", "a:x", ":3"])
def test_a_wrong_queue_is_an_error(spec: str) -> None:
    with pytest.raises(WorkloadError, match="queue"):
        parse_queues(spec)


def test_a_queue_that_exists_gets_the_weight() -> None:
    sim = Simulated()
    install(sim.store, [], parse_queues("default:5,new:2"))
    assert {each["metadata"]["name"]: each["spec"]["weight"] for each in sim.store.list(QUEUES)} == {
        "default": 5,
        "new": 2,
        "root": 1,
    }


# --- mixes ----------------------------------------------------------------------------------------------------------


def test_a_mix_is_read_by_name() -> None:
    mix = parse_mix("gangs=3, run=10-20,every=0.5,size=4")
    assert mix == Mix(gangs=3, run=(10, 20), every=0.5, size=(4, 4))


@pytest.mark.parametrize(
    ("spec", "message"),
    [("gang=3", "mix has no 'gang'"), ("gangs=x", "must be a number"), ("run=9-3", "range"),
     ("gangs=-1", "zero or more"), ("gpu-share=101", "percentage"), ("every=nan", "zero or more"),
     ("every=inf", "seconds at most"), ("every=1e300", "seconds at most"), (f"run=1-{10**400}", "seconds at most")],
)  # fmt: skip
def test_a_wrong_mix_is_an_error(spec: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        parse_mix(spec)


SMALL = Mix(gangs=5, jobs=4, deployments=3, pods=6, gpu_share=50)


def test_a_mix_makes_as_many_of_each_kind() -> None:
    first = [arrival.objects[0][0] for arrival in generate(SMALL, ["default"], seed=1)]
    assert {kind: first.count(kind) for kind in set(first)} == {PODGROUPS: 5, JOBS: 4, DEPLOYMENTS: 3, PODS: 6}


def test_equal_seeds_make_equal_mixes() -> None:
    assert list(generate(SMALL, ["a", "b"], seed=1)) == list(generate(SMALL, ["a", "b"], seed=1))


def test_other_seeds_make_other_mixes() -> None:
    assert list(generate(SMALL, ["a", "b"], seed=1)) != list(generate(SMALL, ["a", "b"], seed=2))


def test_arrivals_are_in_order() -> None:
    times = [arrival.at for arrival in generate(SMALL, ["default"], seed=1)]
    assert times == sorted(times)


def test_all_at_once_without_a_gap() -> None:
    assert {arrival.at for arrival in generate(Mix(every=0), ["default"], seed=1)} == {0.0}


def test_a_gang_needs_all_its_pods() -> None:
    mix = Mix(gangs=1, jobs=0, deployments=0, pods=0, size=(3, 3))
    objects = next(generate(mix, ["default"], seed=1)).objects
    group, pods = objects[0][1], [obj for _, obj in objects[1:]]
    assert (group["spec"]["minMember"], len(pods)) == (3, 3)
    assert {each["metadata"]["annotations"]["scheduling.k8s.io/group-name"] for each in pods} == {"gang-0"}


def test_the_cluster_takes_all_that_is_generated() -> None:
    sim = Simulated()
    arrivals = list(generate(SMALL, ["default"], seed=1))
    feeder = Feeder(sim.store, sim.clock, arrivals)
    feeder.start()
    sim.advance(10_000)
    assert (feeder.created, feeder.refused) == (sum(len(each.objects) for each in arrivals), [])


# --- arriving -------------------------------------------------------------------------------------------------------


def config_map(name: str) -> tuple[str, dict[str, Any]]:
    return "configmaps", {"metadata": {"name": name}}


def test_objects_are_created_at_their_time() -> None:
    sim = Simulated()
    Feeder(sim.store, sim.clock, [Arrival(5, (config_map("a"),)), Arrival(9, (config_map("b"),))]).start()
    sim.advance(5)
    assert sim.names("configmaps") == ["a"]
    sim.advance(4)
    assert sim.names("configmaps") == ["a", "b"]


def test_what_is_refused_is_told_and_the_rest_goes_on() -> None:
    clock = ClusterClock(start=START, speed=None)
    store = Store(clock.now, Random(1))
    feeder = Feeder(store, clock, [Arrival(0, (config_map("a"), config_map("a"), config_map("b")))])
    feeder.start()
    jump_to(clock, START)
    assert feeder.created == 2
    assert feeder.refused == [("configmaps//a", 'configmaps "a" already exists')]


def test_manifests_arrive_at_their_annotated_time() -> None:
    late = {"name": "b", "annotations": {"vcd.sim/at-seconds": "30"}}
    manifests = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": late},
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}},
    ]
    arrivals = scheduled_manifests(Simulated().store, manifests)
    assert [(each.at, each.objects[0][0]) for each in arrivals] == [(0.0, NODES), (30.0, "configmaps")]


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (
            {"apiVersion": "v1", "kind": "Node", "metadata": {"annotations": {"vcd.sim/at-seconds": "soon"}}},
            "'soon' is not a number of seconds",
        ),
        *(
            ({"apiVersion": "v1", "kind": "Node", "metadata": {"annotations": {"vcd.sim/at-seconds": at}}}, message)
            for at, message in (
                ("nan", "'nan' is not a number of seconds"),
                (None, "None is not a number of seconds"),
                ([5], r"\[5\] is not a number of seconds"),
                ("inf", "inf is more than the"),
                ("999999999999", "999999999999 is more than the"),
            )
        ),
    ],
)
def test_a_time_that_is_none_is_an_error(manifest: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        scheduled_manifests(Simulated().store, [manifest])


def test_what_nobody_can_create_there_is_left_out_and_another_version_is_served() -> None:
    manifests = [
        {"apiVersion": "x/v1", "kind": "Thing", "metadata": {"name": "a"}},
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "a"}},
        {"apiVersion": "scheduling.volcano.sh/v1alpha2", "kind": "Queue", "metadata": {"name": "a"}},
    ]
    ((_, ((resource, made),)),) = (
        (each.at, each.objects) for each in scheduled_manifests(Simulated().store, manifests)
    )
    assert (resource, made["apiVersion"]) == (QUEUES, "scheduling.volcano.sh/v1beta1")


def test_what_is_there_from_the_beginning_is_replaced() -> None:
    sim = Simulated()
    capped = {"metadata": {"name": "default"}, "spec": {"weight": 1, "capability": {"cpu": "1"}}}
    feeder = Feeder(sim.store, sim.clock, [Arrival(0, ((QUEUES, capped),))])
    feeder.start()
    sim.advance(0)
    assert (feeder.refused, sim.store.get(QUEUES, None, "default")["spec"]["capability"]) == ([], {"cpu": "1"})

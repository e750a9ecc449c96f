"""numa-aware: CPUs of their own for Guaranteed pods, one behaviour each, and the choice against plain loops."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dsl import gang, group, node, planned, pod, session_after, session_of
from tests.plugins.opened import conf, plugin_of, task_of
from tests.predicates.asking import applies, passing, pending, reasons, refusal
from tests.scores.rating import named, points, rated
from tests.sizes import examples
from tests.world import World
from vcd.model.objects import CpuPlace, Numatopology
from vcd.model.projection_codec import BadObject, decode_payload, encode_payload, from_manifest
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.plugins.numa_aware import NumaAwarePlugin
from vcd.scheduling.plugins.numa_aware.cpus import (
    Layout,
    TopologyError,
    assign,
    cpus_to_reserve,
    hints,
    read_cpus,
    write_cpus,
)
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement
from vcd.scheduling.session_close import plan_of

Manifest = dict[str, Any]
CPUS = "volcano.sh/numa-cpus"
POLICY = "volcano.sh/numa-topology-policy"


def detail(*sizes: int, threads: int = 1) -> dict[str, dict[str, int]]:
    """CPUs in order, so many on each NUMA node, one socket a NUMA node; ``threads`` CPUs make a core."""
    places: dict[str, dict[str, int]] = {}
    for numa, size in enumerate(sizes):
        for i in range(size):
            places[str(len(places))] = {"numa": numa, "socket": numa, "core": i // threads}
    return places


def topology(
    name: str,
    *sizes: int,
    policy: str = "best-effort",
    manager: str = "static",
    free: str | None = None,
    reserved: str = "",
    threads: int = 1,
    assigned: tuple[str, ...] = (),
    **spec: Any,
) -> Manifest:
    """What the exporter says of a node; all CPUs are free unless ``free`` names them."""
    cpus = detail(*sizes, threads=threads)
    return {
        "apiVersion": "nodeinfo.volcano.sh/v1alpha1",
        "kind": "Numatopology",
        "metadata": {"name": name},
        "spec": {
            "policies": {"CPUManagerPolicy": manager, "TopologyManagerPolicy": policy},
            "resReserved": {"cpu": reserved} if reserved else {},
            "numares": {"cpu": {"allocatable": f"0-{len(cpus) - 1}" if free is None else free, "capacity": len(cpus)}},
            "cpuDetail": cpus,
            "podAllocations": [
                {"uid": f"uid-default-{name}", "name": name, "namespace": "default"} for name in assigned
            ],
            **spec,
        },
    }


def numa(name: str, *sizes: int, **options: Any) -> list[Manifest]:
    """A node and its topology."""
    return [node(name, cpu=sum(sizes)), topology(name, *sizes, **options)]


def guaranteed(name: str, *cpus: str | int, policy: str | None = None, **options: Any) -> Manifest:
    """A Guaranteed pod whose containers ask for so many CPUs each."""
    amounts = [{"cpu": str(count), "memory": "1Mi"} for count in cpus]
    containers = [{"name": f"c{i}", "resources": {"limits": each, "requests": each}} for i, each in enumerate(amounts)]
    marks = options.pop("annotations", {}) | ({} if policy is None else {POLICY: policy})
    return pod(name, annotations=marks, spec={"containers": containers, **options.pop("spec", {})}, **options)


def config(actions: str = "allocate", **arguments: Any) -> str:
    return conf("gang", "predicates", "numa-aware", arguments=arguments, actions=actions)


def opened(*objects: Any, **arguments: Any) -> Session:
    return session_of(*objects, conf=config(**arguments))


def nodes_for(*objects: Any, task: str | None = None) -> set[str]:
    return passing(opened(*objects), "numa-aware", task)


def written(*objects: Any) -> dict[str, str | None]:
    """The CPUs that the pods bound in one cycle get."""
    return {
        operation.key.partition("/")[2]: operation.annotations.get(CPUS)
        for statement in plan_of(session_after(*objects, conf=config())).statements
        for operation in statement.operations
        if operation.verb == "bind"
    }


# --- the kind -----------------------------------------------------------------------------------------------------


def test_the_object_is_decoded_and_comes_back_from_the_log() -> None:
    kind, obj, _ = from_manifest(topology("n", 1, 1, threads=1, reserved="500m", assigned=("p",)))
    assert kind == "Numatopology" and isinstance(obj, Numatopology) and obj.key == "n"
    assert obj.spec.policies == {"CPUManagerPolicy": "static", "TopologyManagerPolicy": "best-effort"}
    assert obj.spec.res_reserved == {"cpu": "500m"}
    assert obj.spec.numares["cpu"].allocatable == "0-1"
    assert obj.spec.cpu_detail == {"0": CpuPlace(0, 0, 0), "1": CpuPlace(1, 1, 0)}
    assert (obj.spec.pod_allocations[0].uid, obj.spec.pod_allocations[0].name) == ("uid-default-p", "p")
    assert decode_payload(kind, encode_payload(obj)) == obj


def test_a_field_of_a_wrong_type_is_a_bad_object() -> None:
    with pytest.raises(BadObject, match="Numatopology n"):
        from_manifest(topology("n", 1, cpuDetail={"0": {"numa": "x"}}))


# --- policies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("restart", "cpus", "expected"), [("Always", 2, []), ("Always", 1, ["n"]), ("", 2, ["n"])])
def test_a_sidecar_has_cpus_beside_the_containers(restart: str, cpus: int, expected: list[str]) -> None:
    """Three are free: the kubelet would not admit a pod whose sidecar and container have two each."""
    first = guaranteed("p", cpus)["spec"]["containers"][0] | ({"restartPolicy": restart} if restart else {})
    asks = guaranteed("p", 2, policy="best-effort", spec={"initContainers": [first | {"name": "first"}]})
    assert sorted(nodes_for(*numa("n", 2, 2, free="0-2"), asks)) == expected


def test_the_users_guides_practice() -> None:
    """The pod of 16 CPUs goes to the node that has them on one NUMA node."""
    cluster = [*numa("node-1", 12, 12), *numa("node-2", 20, 20)]
    for seed in range(4):
        result = planned(*cluster, guaranteed("p", 16, policy="best-effort"), conf=config(weight=10), seed=seed)
        assert result.binds == {"default/p": "node-2"}


@pytest.mark.parametrize(
    ("policy", "free", "expected"),
    [
        ("single-numa-node", "0-7", True),
        ("single-numa-node", "0-1,4-5", False),
        ("restricted", "0-7", True),
        ("restricted", "0-1,4-5", False),
        ("best-effort", "0-1,4-5", True),
        ("best-effort", "0-1,4", False),
    ],
)
def test_four_cpus_on_two_nodes_of_four(policy: str, free: str, expected: bool) -> None:
    cluster = numa("n", 4, 4, policy=policy, free=free)
    assert nodes_for(*cluster, guaranteed("p", 4, policy=policy)) == ({"n"} if expected else set())


def test_restricted_takes_two_nodes_for_what_no_single_one_could_hold() -> None:
    cluster = [*numa("r", 4, 4, policy="restricted"), *numa("s", 4, 4, policy="single-numa-node")]
    assert nodes_for(*cluster, guaranteed("p", 6, policy="restricted")) == {"r"}
    assert nodes_for(*cluster, guaranteed("p", 6, policy="single-numa-node")) == set()


@pytest.mark.parametrize("policy", ["single-numa-node", "restricted", "best-effort"])
def test_the_node_must_have_the_pods_policy(policy: str) -> None:
    cluster = [
        each for name in ("single-numa-node", "restricted", "best-effort") for each in numa(name, 4, policy=name)
    ]
    assert nodes_for(*cluster, guaranteed("p", 1, policy=policy)) == {policy}


@pytest.mark.parametrize("policy", [None, "", "none"])
def test_a_pod_without_a_policy_must_still_be_admitted(policy: str | None) -> None:
    cluster = [
        *numa("split", 4, 4, policy="single-numa-node", free="0-1,4-5"),
        *numa("plain", 4, 4, policy="none", free="0-1,4-5"),
        *numa("shared", 4, 4, manager="none"),
        node("unknown"),
    ]
    assert nodes_for(*cluster, guaranteed("p", 4, policy=policy)) == {"plain", "shared", "unknown"}


ANOTHER = f"node(s) had another topology manager policy than the pod's annotation {POLICY} asks for"
NOT_ADMITTED = "node(s) could not give each container its CPUs as the topology manager policy wants"
UNREADABLE = "node(s) had a Numatopology that cannot be read; restart their resource exporter"


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        ([node("n")], "node(s) had no Numatopology"),
        (numa("n", 4, manager="none"), "node(s) had a CPUManagerPolicy other than static"),
        (numa("n", 4, policy="restricted"), ANOTHER),
        (numa("n", 4, policy="of its own"), ANOTHER),
        (numa("n", 4, free=""), "node(s) had no CPUs left for exclusive use"),
        (numa("n", 4, free="0-1"), NOT_ADMITTED),
        (numa("n", 4, free="3-1"), UNREADABLE),
        (numa("n", 4, reserved="much"), UNREADABLE),
    ],
)
def test_reasons_say_what_is_wrong_with_a_node(objects: list[Manifest], said: str) -> None:
    session = opened(*objects, guaranteed("p", 3, policy="best-effort"))
    assert reasons(session, "numa-aware") == {said: 1}
    (part,) = (part for part in framework_of(session).evaluator.predicates if part.name == "numa-aware")
    failed = np.ones(len(session.nodes), np.bool_)
    assert part.unresolvable_nodes(task_of(session, "p"), session.nodes.usage, failed).all()


def test_a_policy_that_no_kubelet_has_is_refused() -> None:
    session = opened(*numa("n", 4), guaranteed("p", 1, policy="besteffort"))
    assert refusal(session) == (
        f"annotation {POLICY} is 'besteffort'; it must be one of none, best-effort, restricted, single-numa-node"
    )


def test_every_pod_sees_its_own_policy_though_they_are_alike() -> None:
    cluster = [*numa("b", 4), *numa("r", 4, policy="restricted")]
    pods = [
        guaranteed("p1", 1, policy="best-effort", group="g"),
        guaranteed("p2", 1, policy="restricted", group="g"),
    ]
    assert planned(*cluster, group("g", members=2), *pods, conf=config()).binds == {
        "default/p1": "b",
        "default/p2": "r",
    }


# --- which pods -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "manifest",
    [
        pod("p", cpu=3, memory=1, annotations={POLICY: "best-effort"}),
        guaranteed("p", 3, policy="best-effort", spec={"initContainers": [{"name": "i"}]}),
        pod("p", annotations={POLICY: "best-effort"}),
    ],
)
def test_pods_that_are_not_guaranteed_are_not_tested(manifest: Manifest) -> None:
    assert not applies(opened(*numa("n", 4, free=""), manifest), "numa-aware")


def test_limits_alone_make_a_pod_guaranteed() -> None:
    limits = {"limits": {"cpu": "3", "memory": "1Mi"}}
    ask = pod("p", annotations={POLICY: "best-effort"}, spec={"containers": [{"name": "c", "resources": limits}]})
    assert nodes_for(*numa("n", 4, free="0-1"), ask) == set()
    assert nodes_for(*numa("n", 4), ask) == {"n"}


def test_limits_of_the_pod_as_a_whole_make_it_guaranteed() -> None:
    whole = {"limits": {"cpu": "3", "memory": "1Mi"}, "requests": {"cpu": "3", "memory": "1Mi"}}
    containers = [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]
    ask = pod("p", annotations={POLICY: "best-effort"}, spec={"containers": containers, "resources": whole})
    assert nodes_for(*numa("n", 4, free="0-1"), ask) == set()


@pytest.mark.parametrize("stated", [{"requests": {"cpu": "2"}}, {"limits": {"cpu": "2"}}])
def test_resources_of_the_pod_as_a_whole_decide_where_it_states_any(stated: Manifest) -> None:
    """Its containers' limits make it Guaranteed no more, as in Kubernetes: the kubelet gives it no CPUs of its own."""
    assert written(*numa("n", 4), guaranteed("p", 2, spec={"resources": stated})) == {"p": None}
    assert written(*numa("n", 4), guaranteed("p", 2)) == {"p": "0-1"}


def test_a_fraction_of_a_cpu_is_not_exclusive() -> None:
    cluster = numa("n", 4, free="0")
    assert nodes_for(*cluster, guaranteed("p", "2500m", policy="best-effort")) == {"n"}
    assert written(*cluster, guaranteed("p", "2500m", policy="best-effort")) == {"p": None}


def test_containers_are_admitted_one_by_one() -> None:
    cluster = numa("n", 4, 4, policy="single-numa-node")
    assert written(*cluster, guaranteed("p", 3, 3, policy="single-numa-node")) == {"p": "0-2,4-6"}
    assert nodes_for(*cluster, guaranteed("p", 3, 3, 2, policy="single-numa-node")) == set()


# --- which CPUs -----------------------------------------------------------------------------------------------------


def test_the_lowest_node_that_holds_them_is_taken() -> None:
    assert written(*numa("n", 4, 4), guaranteed("p", 3, policy="best-effort")) == {"p": "0-2"}


def test_what_the_kubelet_reserves_is_not_given_out() -> None:
    cluster = numa("n", 4, 4, reserved="1500m")
    assert written(*cluster, guaranteed("p", 2, policy="best-effort")) == {"p": "2-3"}


def test_whole_sockets_then_cores_then_threads_of_the_fullest_core() -> None:
    layout = Layout({key: CpuPlace(**place) for key, place in detail(4, 4, threads=2).items()})
    assert write_cpus(layout.take(read_cpus("0-7"), 7) or 0) == "0-6"
    assert write_cpus(layout.take(read_cpus("0-1,3-7"), 6) or 0) == "0-1,4-7"
    assert write_cpus(layout.take(read_cpus("1-7"), 1) or 0) == "1"
    assert write_cpus(layout.take(read_cpus("0-2,4-7"), 2) or 0) == "0-1"
    assert layout.take(read_cpus("0-2"), 4) is None
    assert layout.take(read_cpus("0-2"), 0) == 0


def test_cores_are_numbered_within_their_socket() -> None:
    layout = Layout({str(i): CpuPlace(i // 2, i // 2, 0) for i in range(4)})
    assert len(layout.cores) == 2
    assert write_cpus(layout.take(read_cpus("1-3"), 2) or 0) == "2-3"


@pytest.mark.parametrize(("text", "cpus"), [("", ""), ("0-3,8", "0-3,8"), (" 5, 1 ,2", "1-2,5"), ("7-7", "7")])
def test_lists_of_cpus_are_read_and_written(text: str, cpus: str) -> None:
    assert write_cpus(read_cpus(text)) == cpus


@pytest.mark.parametrize("text", ["x", "3-1", "1-", "-1", "0-99999", "1;2", "٣"])
def test_other_texts_are_no_lists_of_cpus(text: str) -> None:
    with pytest.raises(TopologyError, match="is not a list of CPUs"):
        read_cpus(text)


@pytest.mark.parametrize(
    "places",
    [{"x": {}}, {"0": {"numa": -1}}, {str(i): {"numa": i} for i in range(9)}],
)
def test_layouts_that_cannot_be_are_refused(places: dict[str, dict[str, int]]) -> None:
    with pytest.raises(TopologyError, match=r"spec\.cpuDetail"):
        Layout({key: CpuPlace(**place) for key, place in places.items()})


# --- pods in flight -----------------------------------------------------------------------------------------------


def test_pods_of_one_session_get_cpus_of_their_own() -> None:
    pods = [guaranteed(f"p{i}", 2, policy="best-effort", group="g") for i in range(3)]
    assert written(*numa("n", 4), group("g"), *pods) == {"p0": "0-1", "p1": "2-3"}


def test_without_its_test_of_nodes_it_rates_and_hands_out_nothing() -> None:
    """As in Volcano, where both follow from what the test found."""
    off = config(weight=5).replace("name: numa-aware", "name: numa-aware\n    enablePredicate: false")
    for text, marks in ((off, {}), (config(weight=5), {CPUS: "0-1"})):
        session = session_after(*numa("n", 4), guaranteed("p", 2, policy="best-effort"), conf=text)
        (statement,) = plan_of(session).statements
        assert [dict(operation.annotations) for operation in statement.operations] == [marks]
        assert ("numa-aware" in {score.name for score in framework_of(session).evaluator.scores}) == bool(marks)


def test_a_placement_taken_back_frees_them() -> None:
    session = opened(*numa("n", 4), guaranteed("p", 3, policy="best-effort"), guaranteed("q", 3, policy="best-effort"))
    statement = Statement(session.trial, "allocate", pending(session, "p").job)
    statement.allocate([pending(session, "p")], [0])
    assert passing(session, "numa-aware", "q") == set()
    statement.discard()
    assert passing(session, "numa-aware", "q") == {"n"}


def test_a_bind_in_flight_keeps_its_cpus() -> None:
    objects = [*numa("n", 4), group("g"), guaranteed("p", 2, policy="best-effort", group="g")]
    world = World(*objects, conf=config())
    world.decide()
    world.put(group("h"), guaranteed("q", 2, policy="best-effort", group="h"))
    (statement,) = world.decide().statements
    assert [dict(op.annotations) for op in statement.operations] == [{CPUS: "2-3"}]


def running(name: str, cpus: str, count: int = 2) -> Manifest:
    return guaranteed(name, count, on="n", annotations={CPUS: cpus})


def test_a_pod_that_the_kubelet_lists_keeps_no_more_than_the_kubelet_says() -> None:
    cluster = [running("a", "0-1"), guaranteed("p", 4, policy="best-effort")]
    assert nodes_for(node("n"), topology("n", 6, free="2-5", assigned=("a",)), *cluster) == {"n"}
    assert nodes_for(node("n"), topology("n", 6, free="0-5"), *cluster) == {"n"}
    assert nodes_for(node("n"), topology("n", 6, free="0-4"), *cluster) == set()


def test_a_pod_is_known_by_its_uid_or_its_name() -> None:
    for listed in ({"uid": "uid-default-a"}, {"name": "a", "namespace": "default"}):
        exported = topology("n", 4, free="0-1", podAllocations=[listed])
        assert nodes_for(node("n"), exported, running("a", "0-1"), guaranteed("p", 2, policy="best-effort")) == {"n"}
    exported = topology("n", 4, free="0-1", podAllocations=[{"uid": "other", "name": "a", "namespace": "elsewhere"}])
    assert nodes_for(node("n"), exported, running("a", "0-1"), guaranteed("p", 2, policy="best-effort")) == set()


def test_for_cpus_that_the_kubelet_gave_to_others_as_many_others_are_kept() -> None:
    """Two pods were to get 0-1 and 2-3; the kubelet gave the first one 2-3."""
    exported = topology("n", 6, free="0-1,4-5", assigned=("a",))
    cluster = [node("n"), exported, running("a", "0-1"), running("b", "2-3")]
    assert written(*cluster, guaranteed("p", 2, policy="best-effort")) == {"p": "4-5"}
    assert nodes_for(*cluster, guaranteed("p", 3, policy="best-effort")) == set()


# --- exporters that do not list pods ------------------------------------------------------------------------------


def coming(name: str, cpus: str, count: int = 2) -> Manifest:
    """A pod that is bound and does not run yet."""
    return guaranteed(name, count, on="n", phase="Pending", annotations={CPUS: cpus} if cpus else {})


@pytest.mark.parametrize("room", [1, 2, 3, 4])
def test_a_pod_whose_cpus_are_missing_from_what_is_free_holds_no_others(room: int) -> None:
    """As exporters in the field publish: the CPUs that are free, and no list of pods."""
    cluster = [node("n"), topology("n", 8, free="4-7"), running("a", "0-1"), running("b", "2-3")]
    assert nodes_for(*cluster, guaranteed("p", room, policy="best-effort")) == {"n"}
    assert nodes_for(*cluster, guaranteed("p", 5, policy="best-effort")) == set()


@pytest.mark.parametrize(
    ("pods", "free", "most"),
    [
        ([running("a", "0-1")], "2-7", 6),
        ([running("a", "0-1")], "0-5", 6),  # the kubelet gave it others than it was to get
        ([running("a", "0-1")], "0-7", 6),  # it runs, and the exporter has not looked since
        ([running("a", "0-1")], "0-6", 5),  # of what it was given only a part is seen
        ([running("a", ""), running("b", "0-1")], "2-3,6-7", 4),  # another scheduler placed the first one
        ([running("a", "2-3"), running("b", "0-1")], "2-7", 4),  # of the second one is seen, of the first is not
        ([coming("a", "0-1")], "2-7", 6),
        ([coming("a", "0-1")], "0-7", 6),
        ([coming("a", "0-1")], "1-6", 6),  # it was given 0 and 7
        ([coming("a", "0-1")], "0-5", 4),  # 6 and 7 may be those of a pod that is gone
        ([coming("a", "0-1"), running("b", "")], "2-7", 4),  # 0 and 1 are those of the one that runs
        ([coming("a", "0-3", 4), running("b", "4-5")], "6-7", 2),
        ([coming("a", "0-3", 4), running("b", "4-5")], "0-3,6-7", 2),
        ([guaranteed("a", 2, on="n", deleting=True, annotations={CPUS: "0-1"})], "2-7", 6),
        ([guaranteed("a", 1, 1, on="n", annotations={CPUS: "0-1"})], "0,3-7", 6),
    ],
)
def test_what_is_left_where_pods_are_not_listed(pods: list[Manifest], free: str, most: int) -> None:
    cluster = [node("n", cpu=64), topology("n", 8, free=free), *pods]
    assert nodes_for(*cluster, guaranteed("p", most, policy="best-effort")) == {"n"}
    assert nodes_for(*cluster, guaranteed("p", most + 1, policy="best-effort")) == set()


def test_cpus_that_the_kubelet_reserves_are_nobodys() -> None:
    """Whether or not the exporter counts them as free."""
    for free in ("0-7", "1-7"):
        cluster = [node("n", cpu=64), topology("n", 8, free=free, reserved="1"), running("a", "1-2")]
        assert nodes_for(*cluster, guaranteed("p", 5, policy="best-effort")) == {"n"}
        assert nodes_for(*cluster, guaranteed("p", 6, policy="best-effort")) == set()


@pytest.mark.parametrize("listed", [True, False])
def test_a_node_fills_up_pod_by_pod_whatever_the_exporter_says_of_pods(listed: bool) -> None:
    """Two pods of two CPUs at a time: bound, seen by the exporter, running; until all of the eight are given."""
    world = World(*numa("n", 4, 4), conf=config())
    names = [f"p{i}" for i in range(5)]
    given: dict[str, str] = {}
    for number, name in enumerate(names):
        world.put(group(f"g{number}"), guaranteed(name, 2, policy="best-effort", group=f"g{number}"))
        for statement in world.cycle().statements:
            for operation in statement.operations:
                given[operation.key.partition("/")[2]] = operation.annotations[CPUS]
        marks = {name: {CPUS: cpus} for name, cpus in given.items()}
        world.put(*[guaranteed(each, 2, on="n", annotations=marks[each], group=f"g{each[1:]}") for each in given])
        left = 0xFF & ~sum(read_cpus(cpus) for cpus in given.values())
        world.put(topology("n", 4, 4, free=write_cpus(left), assigned=tuple(given) if listed else ()))
    assert given == {"p0": "0-1", "p1": "2-3", "p2": "4-5", "p3": "6-7"}


def test_they_are_kept_on_the_same_numa_node_where_possible() -> None:
    layout = Layout({key: CpuPlace(**place) for key, place in detail(4, 4).items()})
    assert write_cpus(cpus_to_reserve(layout, read_cpus("0-1,6-7"), read_cpus("4-5"))) == "6-7"
    assert write_cpus(cpus_to_reserve(layout, read_cpus("0-1,7"), read_cpus("4-5"))) == "0,7"
    assert write_cpus(cpus_to_reserve(layout, read_cpus("7"), read_cpus("4-5"))) == "7"


@pytest.mark.parametrize("text", ["", "x", "90"])
def test_an_annotation_that_names_no_cpu_of_the_node_keeps_none(text: str) -> None:
    cluster = [*numa("n", 4), running("a", text), guaranteed("p", 4, policy="best-effort")]
    assert nodes_for(*cluster) == {"n"}


def test_pods_that_ended_keep_none() -> None:
    ended = guaranteed("a", 2, on="n", phase="Succeeded", annotations={CPUS: "0-1"})
    assert nodes_for(*numa("n", 4), ended, guaranteed("p", 4, policy="best-effort")) == {"n"}


def test_an_evicted_pod_keeps_its_cpus_until_the_kubelet_frees_them() -> None:
    victim = guaranteed("a", 2, on="n", annotations={CPUS: "0-1"}, group="v")
    session = opened(*numa("n", 4), group("v"), victim, guaranteed("p", 4, policy="best-effort"))
    statement = Statement(session.trial, "preempt", pending(session).job)
    statement.evict(task_of(session, "a"), "preempted")
    assert passing(session, "numa-aware") == set()
    statement.undo()
    assert plugin_of(session, NumaAwarePlugin).bind_annotations(task_of(session, "a"), 0) == {}


# --- the score ----------------------------------------------------------------------------------------------------


def test_the_designs_example() -> None:
    """One, two and four NUMA nodes of four: 75, 50 and 0, times the weight of 10."""
    cluster = [
        *numa("a", 4, 4, 4, 4),
        *numa("b", 4, 4, 4, 4, free="0-1,4-5"),
        *numa("c", 4, 4, 4, 4, free="0,4,8,12"),
    ]
    session = opened(*cluster, guaranteed("p", 4, policy="best-effort"), weight=10)
    assert points(session, "numa-aware") == {"a": 75, "b": 50, "c": 0}
    assert named(session, "numa-aware").weight == 10
    assert planned(*cluster, guaranteed("p", 4, policy="best-effort"), conf=config(weight=10)).binds == {
        "default/p": "a"
    }


def test_only_nodes_that_pass_are_compared_and_parts_are_cut_off() -> None:
    cluster = [*numa("a", 4, 4, 4), *numa("b", 4, 4, 4, free="0-1,4-5"), *numa("c", 4, 4, 4, free="0-1,4,8")]
    session = opened(*cluster, guaranteed("p", 4, policy="best-effort"))
    assert points(session, "numa-aware") == {"a": 67, "b": 34, "c": 0}
    assert points(session, "numa-aware", feasible={"a", "b"}) == {"a": 50, "b": 0}


def test_without_exclusive_cpus_all_nodes_have_the_full_score() -> None:
    session = opened(*numa("a", 4), *numa("b", 4), guaranteed("p", "1500m", policy="best-effort"))
    assert points(session, "numa-aware") == {"a": 100, "b": 100}


@pytest.mark.parametrize("policy", [None, "none"])
def test_a_pod_without_a_policy_is_not_rated(policy: str | None) -> None:
    assert not rated(opened(*numa("n", 4), guaranteed("p", 1, policy=policy)), "numa-aware")


def test_the_weight_is_one_unless_given_and_none_at_zero() -> None:
    cluster = [*numa("n", 4), guaranteed("p", 1, policy="best-effort")]
    assert named(opened(*cluster), "numa-aware").weight == 1
    assert framework_of(opened(*cluster, weight=0)).evaluator.scores == ()


def test_a_gang_fills_what_its_policy_leaves() -> None:
    cluster = [each for i in range(2) for each in numa(f"n{i}", 4, 4, policy="single-numa-node")]
    limits = {"cpu": "3", "memory": "1Mi"}
    spec = {"containers": [{"name": "c", "resources": {"limits": limits, "requests": limits}}]}
    marks = {POLICY: "single-numa-node"}
    fits = planned(*cluster, gang("g", 4, spec=spec, annotations=marks), conf=config())
    assert sorted(fits.binds.values()) == ["n0", "n0", "n1", "n1"]
    assert planned(*cluster, gang("g", 5, spec=spec, annotations=marks), conf=config()).binds == {}


# --- against plain loops ------------------------------------------------------------------------------------------


def naive_admits(numa_of: list[int], free: set[int], policy: str, counts: list[int]) -> bool | None:
    """Whether a single container is admitted, by the documentation of the topology manager; None: do not care."""
    (count,) = counts
    nodes = sorted(set(numa_of))
    subsets = [set(chosen) for size in range(1, len(nodes) + 1) for chosen in combinations(nodes, size)]
    able = [each for each in subsets if sum(numa_of[cpu] in each for cpu in free) >= count]
    if policy in ("none", "best-effort"):
        return len(free) >= count
    enough = [len(each) for each in subsets if sum(place in each for place in numa_of) >= count]
    least = min(enough, default=len(nodes))
    if policy == "restricted":
        return any(len(each) == least for each in able)
    return any(len(each) == least == 1 for each in able)


@settings(max_examples=examples(200), deadline=None)
@given(
    numa_of=st.lists(st.integers(0, 3), min_size=1, max_size=10),
    seed=st.sets(st.integers(0, 9)),
    policy=st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]),
    count=st.integers(1, 6),
)
def test_admission_is_the_topology_managers(numa_of: list[int], seed: set[int], policy: str, count: int) -> None:
    places = {str(cpu): CpuPlace(place, place // 2, cpu // 2) for cpu, place in enumerate(numa_of)}
    layout, free = Layout(places), {cpu for cpu in seed if cpu < len(numa_of)}
    mask = sum(1 << cpu for cpu in free)
    found = assign(layout, mask, policy, [count])
    assert (found is not None) == naive_admits(numa_of, free, policy, [count])
    ranked = [(not hint.preferred, hint.nodes.bit_count(), hint.nodes) for hint in hints(layout, mask, count)]
    assert ranked == sorted(ranked), "the best one is not the first"
    if found is None:
        return
    assert found.bit_count() == count and found & mask == found
    used = {numa_of[cpu] for cpu in range(len(numa_of)) if found >> cpu & 1}
    if policy == "single-numa-node":
        assert len(used) == 1
    elif policy != "none":
        fewest = min(hint.nodes.bit_count() for hint in hints(layout, mask, count))
        assert len(used) <= fewest or policy == "best-effort"


@settings(max_examples=examples(100), deadline=None)
@given(moves=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1)), max_size=10))
def test_what_is_kept_up_to_date_is_what_is_computed_anew(moves: list[tuple[int, int]]) -> None:
    pods = [guaranteed(f"p{i}", 1 + i % 3, policy="best-effort", group="g") for i in range(6)]
    session = opened(*numa("n0", 2, 2), *numa("n1", 4), group("g"), *pods)
    plugin = plugin_of(session, NumaAwarePlugin)
    statement = Statement(session.trial, "allocate", task_of(session, "p0").job)
    for number, row in moves:
        task = task_of(session, f"p{number}")
        if task.node < 0 and plugin.fitting_of(task).passed[row]:
            statement.allocate([task], [row])
        for other in range(6):
            ask = task_of(session, f"p{other}")
            kept = plugin.fitting_of(ask)
            plugin._fittings.clear()
            fresh = plugin.fitting_of(ask)
            assert kept.passed.tolist() == fresh.passed.tolist() and kept.spread.tolist() == fresh.spread.tolist()
    statement.discard()
    assert plugin._free == [15, 15]


@pytest.mark.parametrize("cpu", ["1500m", "2"])
def test_a_pod_without_a_policy_is_not_left_because_another_of_its_role_wants_one_that_no_node_has(cpu: str) -> None:
    """Both have one spec; the annotation alone tells them apart."""
    role = {"volcano.sh/task-spec": "worker"}
    picky = guaranteed("picky", cpu, policy="single-numa-node", group="g", annotations=role)
    plain = guaranteed("plain", cpu, group="g", annotations=role, created=1)
    for policy in ("restricted", "none"):
        result = planned(*numa("n", 4, policy=policy), group("g"), picky, plain, conf=config())
        assert result.binds == {"default/plain": "n"}

"""What the API server fills in of pods: rule by rule, in plans as in the embedded server, and what comes of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import group, node, planned, pod
from tests.embedded.serving import make_store
from vcd.model.codec import from_manifest
from vcd.model.manifests import with_priority, with_scheduling_defaults
from vcd.model.objects import Pod
from vcd.model.podadmission import UnknownPriorityClass, fill_in_priority, fill_in_scheduling

Manifest = dict[str, Any]
FEW = "actions: allocate, preempt\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n  - name: predicates\n"
ALLOCATE = FEW.replace(", preempt", "")


def container(name: str = "c", **resources: Manifest) -> Manifest:
    return {"name": name, "image": "image", "resources": resources}


def priority_class(name: str, value: int, **more: Any) -> Manifest:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        **more,
    }


@pytest.mark.parametrize(
    ("spec", "requests"),
    [
        ({"limits": {"cpu": "4"}}, {"cpu": "4"}),
        ({"limits": {"cpu": "4", "memory": "8Gi"}}, {"cpu": "4", "memory": "1Gi"}),  # containers ask for memory
        ({"limits": {"cpu": "4"}, "requests": {"cpu": "2"}}, {"cpu": "2"}),
        ({"limits": {"cpu": "4", "nvidia.com/gpu": "1"}}, {"cpu": "4"}),  # no resource of a pod as a whole
        ({"requests": {"cpu": "2"}}, {"cpu": "2"}),
        ({}, {}),
    ],
)
def test_requests_of_the_pod_as_a_whole(spec: Manifest, requests: Manifest) -> None:
    filled = {"containers": [container(requests={"memory": "1Gi"})], "resources": spec}
    fill_in_scheduling(filled)
    expected = {"memory": "1Gi", **requests} if spec.get("limits") else requests
    assert filled["resources"].get("requests", {}) == expected


def test_limits_of_containers_are_requests_before_the_pod_is_summed_up() -> None:
    starting = [container("s", limits={"cpu": "3"}), {**container("r", limits={"cpu": "1"}), "restartPolicy": "Always"}]
    spec = {
        "initContainers": starting,
        "containers": [container(limits={"cpu": "1"})],
        "resources": {"limits": {"cpu": "9"}},
    }
    fill_in_scheduling(spec)
    assert spec["resources"]["requests"] == {"cpu": "3"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, (0, None, "PreemptLowerPriority")),
        ({"priorityClassName": "never"}, (7, "never", "Never")),
        (
            {"priorityClassName": "never", "preemptionPolicy": "PreemptLowerPriority"},
            (7, "never", "PreemptLowerPriority"),
        ),
        ({"priorityClassName": "never", "priority": 9}, (9, "never", "Never")),
    ],
)
def test_priority_of_a_class(spec: Manifest, expected: tuple[Any, ...]) -> None:
    spec = dict(spec)
    fill_in_priority(spec, {"never": priority_class("never", 7, preemptionPolicy="Never")})
    assert (spec["priority"], spec.get("priorityClassName"), spec["preemptionPolicy"]) == expected


def test_the_least_global_default_counts() -> None:
    found = [priority_class("a", 9, globalDefault=True), priority_class("b", 5, globalDefault=True)]
    spec: Manifest = {}
    fill_in_priority(spec, {each["metadata"]["name"]: each for each in [*found, priority_class("c", 1)]})
    assert (spec["priority"], spec["priorityClassName"]) == (5, "b")


def test_a_class_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UnknownPriorityClass, match="gone"):
        fill_in_priority({"priorityClassName": "gone"}, {})


SPECS: list[Manifest] = [
    {"containers": [container(limits={"cpu": "2", "memory": "1Gi"}, requests={"cpu": "1"})]},
    {"containers": [container(requests={"memory": "1Gi"})], "resources": {"limits": {"cpu": "4", "memory": "2Gi"}}},
    {"containers": [{**container(), "ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 81}]}],
     "hostNetwork": True},
    {"containers": [container()], "initContainers": [container("i", limits={"cpu": "1"})], "priorityClassName": "high"},
    {"containers": [container()], "priorityClassName": "system-node-critical"},
]  # fmt: skip


@pytest.mark.parametrize("default", [True, False])
@pytest.mark.parametrize("spec", SPECS)
def test_a_plan_fills_in_what_the_embedded_server_stores(spec: Manifest, default: bool) -> None:
    store = make_store()
    store.create("priorityclasses.scheduling.k8s.io", priority_class("high", 50, preemptionPolicy="Never"))
    store.create("priorityclasses.scheduling.k8s.io", priority_class("low", 5, globalDefault=default))
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}, "spec": spec}
    stored = read(store.create("pods", manifest)).spec
    classes = {each["metadata"]["name"]: each for each in store.list("priorityclasses.scheduling.k8s.io")}
    filled = with_priority(with_scheduling_defaults(read(manifest)), classes).spec
    compared = ("containers", "init_containers", "resources", "priority", "priority_class_name", "preemption_policy")
    assert [getattr(filled, name) for name in compared] == [getattr(stored, name) for name in compared]


def read(manifest: Manifest) -> Pod:
    obj = from_manifest(manifest)[1]
    assert isinstance(obj, Pod)
    return obj


# --- what comes of it in a plan ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "classes"),
    [
        ({}, {"priorityClassName": "high"}, [priority_class("high", 1)]),
        ({"priorityClassName": "low"}, {}, [priority_class("low", -1)]),
        ({"priorityClassName": "low"}, {}, [priority_class("low", 3), priority_class("usual", 5, globalDefault=True)]),
        ({"priority": 1000}, {"priorityClassName": "system-node-critical"}, []),
    ],
)
def test_the_pod_of_higher_priority_is_placed_first(first: Manifest, second: Manifest, classes: list[Manifest]) -> None:
    pods = [pod(name, group="g", cpu=1, spec=spec) for name, spec in (("a", first), ("b", second))]
    assert planned(node("n", cpu=1), group("g"), *pods, *classes, conf=ALLOCATE).binds == {"default/b": "n"}


@pytest.mark.parametrize(("policy", "victims"), [("Never", 0), ("PreemptLowerPriority", 1), (None, 1)])
@pytest.mark.parametrize("default", [True, False])
def test_the_preemption_policy_of_a_class_holds(policy: str | None, victims: int, default: bool) -> None:
    name = {} if default else {"priorityClassName": "high"}
    classes = [priority_class("high", 9, globalDefault=default, preemptionPolicy=policy)]
    low = [
        group("low", phase="Running"),
        *[pod(f"low-{i}", group="low", on="n", cpu=1, spec={"priority": 0}) for i in "ab"],
    ]
    high = [group("high", priorityClassName="high"), pod("high-0", group="high", cpu=1, spec=name)]
    low[0]["spec"]["priorityClassName"] = "system-none"
    result = planned(node("n", cpu=2), priority_class("system-none", 0), *low, *high, *classes, conf=FEW)
    assert len(result.evictions) == victims


@pytest.mark.parametrize(("cpu", "fits"), [("4", True), ("5", False)])
def test_pod_level_limits_are_requests(cpu: str, fits: bool) -> None:
    spec = {"containers": [container(requests={"memory": "1Gi"})], "resources": {"limits": {"cpu": cpu}}}
    result = planned(node("n", cpu=4), group("g"), pod("g-0", group="g", spec=spec), conf=ALLOCATE)
    assert bool(result.binds) is fits


@pytest.mark.parametrize("host", [True, False])
def test_ports_of_the_hosts_network_are_host_ports(host: bool) -> None:
    ports = [{"name": "c", "image": "image", "ports": [{"containerPort": 9000}]}]
    groups = [group(name, created=i) for i, name in enumerate("ab")]
    pods = [pod(f"{name}-0", group=name, spec={"hostNetwork": host, "containers": ports}) for name in "ab"]
    assert len(planned(node("n"), *groups, *pods, conf=FEW.replace("allocate", "allocate, backfill")).binds) == 2 - host


def test_a_workloads_pods_are_filled_in_as_well() -> None:
    spec = {"containers": [container(requests={"memory": "1Gi"})], "resources": {"limits": {"cpu": "3"}}}
    workload = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
                "spec": {"replicas": 2, "template": {"spec": spec}}}  # fmt: skip
    assert len(planned(node("n", cpu=4), workload, conf=ALLOCATE).binds) == 1


def test_a_class_that_is_not_given_is_noted() -> None:
    pods = [pod("a", cpu=1, spec={"priorityClassName": "gone"}), pod("b", cpu=1, spec={"priorityClassName": "gone"})]
    result = planned(node("n"), *pods, conf=ALLOCATE)
    assert result.notes == ["PriorityClass gone is not given: pods that name it have no priority; add it"]
    assert len(result.binds) == 2

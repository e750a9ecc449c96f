"""What the API server fills in of pods, claims and queues: rule by rule, and what comes of it.

Plans and the embedded server fill in the same.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.dsl import flat, gang, group, moment, node, planned, pod, queue
from tests.embedded.serving import make_store
from vcd.model.manifests import with_priority, with_scheduling_defaults
from vcd.model.objects import Pod
from vcd.model.podadmission import (
    UnknownPriorityClass,
    fill_in_priority,
    fill_in_runtime_class,
    fill_in_scheduling,
    fill_in_storage_class,
)
from vcd.model.projection_codec import from_manifest
from vcd.scheduling.configuration import read_policy
from vcd.state.records import Settings
from vcd.timetravel import planning

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
    assert result.unknown == ["there is no PriorityClass gone: its pods have no priority; add it"]
    assert len(result.binds) == 2


# --- objects that pods, claims and queues are stored by ---------------------------------------------------------------

SYSTEM = ["system-cluster-critical", "system-node-critical"]
PROPORTION = "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n  - name: proportion\n"


@pytest.mark.parametrize("name", SYSTEM)
@pytest.mark.parametrize("size", [1, 3])
def test_groups_have_the_system_classes_without_their_manifests(name: str, size: int) -> None:
    first = gang("first", size, cpu=1, created=1)
    system = gang("system", size, cpu=1, created=2, group_spec={"priorityClassName": name})
    binds = planned(node("n", cpu=size), first, system, conf=ALLOCATE).binds
    assert sorted(binds) == [f"default/system-{number}" for number in range(size)]


@pytest.mark.parametrize("name", SYSTEM)
def test_a_bare_pod_of_a_system_class_preempts(name: str) -> None:
    running = gang("low", 1, members=1, on=["n"], cpu=1)
    urgent = pod("urgent", cpu=1, spec={"priorityClassName": name})
    assert planned(node("n", cpu=1), running, urgent, conf=FEW.replace("gang", "gang\n    enablePreemptable: false")
                   ).evictions == ["default/low-0"]  # fmt: skip


def test_a_system_class_that_is_given_counts_as_it_is() -> None:
    first = gang("first", 1, cpu=1, created=1)
    system = gang("system", 1, cpu=1, created=2, group_spec={"priorityClassName": SYSTEM[0]})
    given = priority_class(SYSTEM[0], -5)
    assert list(planned(node("n", cpu=1), first, system, given, conf=ALLOCATE).binds) == ["default/first-0"]


@pytest.mark.parametrize(("weight", "share"), [({}, 4), ({"weight": 0}, 4), ({"weight": None}, 4), ({"weight": 3}, 6)])
def test_a_queue_without_a_weight_has_the_weight_1(weight: Manifest, share: int) -> None:
    stated = {"kind": "Queue", "metadata": {"name": "a"}, "spec": weight}
    gangs = [gang(f"{name}-gang", 8, members=1, queue=name, cpu=1) for name in "ab"]
    binds = planned(node("n", cpu=8), stated, queue("b"), *gangs, conf=PROPORTION).binds
    assert sum(key.startswith("default/a-") for key in binds) == share


def runtime_class(**more: Any) -> Manifest:
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "kata"},
        "handler": "k",
        **more,
    }


OVERHEAD, SELECTOR = {"podFixed": {"cpu": "1"}}, {"nodeSelector": {"kata": "yes"}}
TOLERATION = {"key": "kata", "operator": "Exists"}


@pytest.mark.parametrize(
    ("found", "own", "expected"),
    [
        ({"overhead": OVERHEAD}, {}, {"overhead": {"cpu": "1"}}),
        ({"overhead": OVERHEAD}, {"overhead": {"cpu": "2"}}, {"overhead": {"cpu": "2"}}),
        ({"scheduling": SELECTOR}, {"nodeSelector": {"a": "b"}}, {"nodeSelector": {"a": "b", "kata": "yes"}}),
        ({"scheduling": {"tolerations": [TOLERATION]}}, {}, {"tolerations": [TOLERATION]}),
        ({"scheduling": {"tolerations": [TOLERATION]}}, {"tolerations": [TOLERATION]}, {"tolerations": [TOLERATION]}),
        ({"overhead": None, "scheduling": None}, {}, {}),
    ],
)
def test_what_a_runtime_class_adds(found: Manifest, own: Manifest, expected: Manifest) -> None:
    spec = dict(own)
    fill_in_runtime_class(spec, runtime_class(**found))
    assert spec == expected


def _of(kind: str, spec: Manifest) -> list[Manifest]:
    """A pod with this specification: alone, of a Deployment, or of a Volcano Job."""
    template = {"spec": {"containers": [container(requests={"cpu": "1"})], **spec}}
    if kind == "Pod":
        return [pod("p", cpu=1, spec=spec)]
    if kind == "Deployment":
        return [{"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "p"}, "spec": {"template": template}}]
    tasks = [{"name": "t", "replicas": 1, "template": template}]
    return [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "p"},
             "spec": {"schedulerName": "volcano", "minAvailable": 1, "tasks": tasks}}]  # fmt: skip


@pytest.mark.parametrize("kind", ["Pod", "Deployment", "Job"])
def test_a_plan_applies_runtime_classes(kind: str) -> None:
    work = _of(kind, {"runtimeClassName": "kata"})
    before = copy.deepcopy(work)
    nodes = [node("a", cpu=2), node("b", cpu=2, labels={"kata": "yes"})]
    chosen = planned(*nodes, *work, runtime_class(scheduling=SELECTOR, overhead=OVERHEAD), conf=ALLOCATE)
    assert (list(chosen.binds.values()), chosen.notes) == (["b"], [])
    too_much = runtime_class(scheduling=SELECTOR, overhead={"podFixed": {"cpu": "1500m"}})
    assert planned(*nodes, *work, too_much, conf=ALLOCATE).binds == {}
    assert work == before


def test_a_runtime_class_that_is_not_given_or_not_readable_is_told() -> None:
    note = "there is no RuntimeClass kata: its pods get no overhead and no node selector; add it"
    work = _of("Pod", {"runtimeClassName": "kata"})
    result = planned(node("n"), *work, conf=ALLOCATE)
    assert (len(result.binds), result.unknown) == (1, [note])
    result = planned(node("n"), *work, runtime_class(overhead=[1]), conf=ALLOCATE)
    assert (len(result.binds), result.unknown, list(result.set_aside)) == (1, [note], ["RuntimeClass kata"])


def storage_class(name: str, *, default: str | None = "true", created: int = 0, beta: bool = False) -> Manifest:
    marks = {f"storageclass.{'beta.' if beta else ''}kubernetes.io/is-default-class": default} if default else {}
    zones = [{"matchLabelExpressions": [{"key": "zone", "values": [name]}]}]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": marks, "creationTimestamp": moment(created)},
        "provisioner": "csi",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": zones,
    }


@pytest.mark.parametrize(
    ("classes", "claim", "chosen"),
    [
        ([storage_class("z1", default=None), storage_class("z2")], {}, "z2"),
        ([storage_class("z1", default="false"), storage_class("z2", beta=True)], {}, "z2"),
        ([storage_class("z1", created=1), storage_class("z2", created=2), storage_class("z3", created=1)], {}, "z2"),
        ([storage_class("z2"), storage_class("z1")], {}, "z1"),
        ([storage_class("z1"), storage_class("z2", default=None)], {"storageClassName": "z2"}, "z2"),
        ([storage_class("z1")], {"storageClassName": ""}, ""),
        ([storage_class("z1")], {"volumeName": "there"}, None),
        ([storage_class("z1", default=None)], {}, None),
    ],
)
def test_a_claim_without_a_class_gets_the_default_one(
    classes: list[Manifest], claim: Manifest, chosen: str | None
) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **claim}
    manifest = {"kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "default"}, "spec": dict(spec)}
    fill_in_storage_class(manifest, classes)
    assert manifest["spec"].get("storageClassName") == chosen
    nodes = [node(name, labels={"zone": name}) for name in ("z1", "z2", "z3")]
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    result = planned(*nodes, *classes, {**manifest, "spec": spec}, pod("p", spec={"volumes": volumes}, cpu=1))
    assert result.binds == ({"default/p": chosen} if chosen else {})


@pytest.mark.parametrize(("claim", "chosen"), [({}, "z2"), ({"storageClassName": ""}, ""), ({"volumeName": "v"}, None)])
def test_the_embedded_server_fills_in_the_default_storage_class(claim: Manifest, chosen: str | None) -> None:
    store = make_store()
    for each in (storage_class("z1", default=None), storage_class("z2")):
        store.create("storageclasses.storage.k8s.io", each)
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **claim}
    manifest = {"metadata": {"name": "c", "namespace": "default"}, "spec": spec}
    assert store.create("persistentvolumeclaims", manifest)["spec"].get("storageClassName") == chosen


def test_what_a_cluster_lists_was_admitted() -> None:
    settings = Settings(scheduler_names=("volcano",))
    zero = {"kind": "Queue", "metadata": {"name": "a"}, "spec": {"weight": 0}}
    work = _of("Pod", {"runtimeClassName": "kata", "priority": 0})
    objects = [node("n", cpu=1), *work, runtime_class(overhead=OVERHEAD)]
    result = planning.plan(objects, read_policy(PROPORTION), 0, 0, settings)
    assert (len(result.binds), result.notes) == (1, [])
    gangs = flat(gang(f"{name}-gang", 8, members=1, queue=name, cpu=1) for name in "ab")
    result = planning.plan([node("n", cpu=8), zero, queue("b"), *gangs], read_policy(PROPORTION), 0, 0, settings)
    assert all(key.startswith("default/b-") for key in result.binds)

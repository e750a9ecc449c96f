"""Plan, simulation and what-if read the same of a manifest, and say the same about it."""

from __future__ import annotations

import copy
from random import Random

import pytest

from tests.dsl import Manifest, node, planned
from tests.timetravel.publicshapes import DEPLOYMENT, SHAPES, SPEC, Shape, grouped, job, obj, pod, spark
from vcd.cli.sim import CONTROLLED
from vcd.embedded.bootstrap import volcano_definitions
from vcd.embedded.cluster_clock import ClusterClock
from vcd.embedded.store import Store
from vcd.embedded.workload_generator import Feeder, scheduled_manifests
from vcd.timetravel.manifest_reader import Reading, read, to_create
from vcd.timetravel.planning import state_of
from vcd.timetravel.podtemplates import SHAPES as KINDS
from vcd.timetravel.podtemplates import with_spark_templates
from vcd.timetravel.whatif.submitted_groups import NothingSubmitted, submitted
from vcd.timetravel.workload_expansion import is_workload, kind_of

CREATED = "2026-01-01T00:00:00Z"
NODES = [
    node("a", cpu=64),
    node("b", cpu=64, labels={"pool": "gpu"}),
    node("c", cpu=64, taints=[{"key": "k", "effect": "NoSchedule"}]),
]
STATE = state_of(NODES)
CONF = 'actions: "enqueue, allocate"\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n'


def created(manifests: list[Manifest]) -> tuple[list[Manifest], Reading]:
    reading = read(copy.deepcopy(manifests), to_create=True)
    return to_create(reading, CONTROLLED, copy.deepcopy(NODES)), reading


@pytest.mark.parametrize("name", SHAPES)
def test_plan_submission_and_simulation_have_the_same_pods_and_say_the_same(name: str) -> None:
    shape = SHAPES[name]
    result = planned(*NODES, *copy.deepcopy(shape.manifests), conf=CONF)
    assert len(result.binds) == shape.pods, result
    expect(shape, [*result.refused, *result.unknown])
    if shape.pods:
        found = submitted(copy.deepcopy(shape.manifests), STATE, CREATED)
        assert len(found.pods) == pods_anew(name)
        expect(shape, [*found.refused, *found.unknown])
    else:
        with pytest.raises(NothingSubmitted):
            submitted(copy.deepcopy(shape.manifests), STATE, CREATED)
    objects, reading = created(shape.manifests)
    controlled = [each for each in objects if is_workload(each)]
    made = len(submitted(controlled, STATE, CREATED).pods) if controlled and shape.pods else 0
    assert made + sum(each["kind"] == "Pod" for each in objects) == pods_anew(name)
    expect(shape, [*reading.refused(), *reading.unknown])


def pods_anew(name: str) -> int:
    """Of a printed workload all pods are made anew."""
    return 3 if name == "a printed deployment with all that it made" else SHAPES[name].pods


def expect(shape: Shape, told: list[str]) -> None:
    assert len(told) == len(shape.told), told
    for line, beginning in zip(told, shape.told, strict=True):
        assert line.startswith(beginning), line


def test_the_embedded_server_takes_all_that_is_read() -> None:
    for name, shape in SHAPES.items():
        clock = ClusterClock(speed=None)
        store = Store(clock.now, Random(1))
        feeder = Feeder(store, clock, scheduled_manifests(store, created(shape.manifests)[0]))
        for arrival in feeder._arrivals:
            for resource, manifest in arrival.objects:
                feeder._create(resource, manifest)
        assert feeder.refused == [], name


@pytest.mark.parametrize("name", ["a spark application", "a spark application with templates", "a pytorch job"])
def test_a_simulation_schedules_the_pods_of_work_that_names_no_scheduler(name: str) -> None:
    pods = [each for each in created(SHAPES[name].manifests)[0] if each["kind"] == "Pod"]
    assert {each["spec"]["schedulerName"] for each in pods} == {"volcano"}
    assert all(len(each["spec"]["containers"]) == 1 for each in pods)


def test_a_simulation_names_the_pods_of_other_schedulers() -> None:
    work = {"spec": {**SPEC, "schedulerName": "other"}}
    given = [pod("a"), pod("b", schedulerName="volcano"), pod("c", schedulerName="other")]
    _, reading = created([*given, obj("apps/v1", "Deployment", spec={"template": work})])
    (note,) = reading.notes
    assert note == (
        "pods of scheduler other stay pending, as no such scheduler runs: Pod default/c, Deployment default/w"
    )


def test_what_a_webhook_of_volcano_refuses_no_command_takes() -> None:
    task = {"name": "t", "replicas": 1, "template": {"spec": {"containers": [{"name": "c", "image": "c"}]}}}
    job = obj("batch.volcano.sh/v1alpha1", "Job", spec={"tasks": [task, task], "plugins": {"shh": []}})
    words = ["Job default/w: duplicated task name t; unable to find job plugin: shh; there are env, "]
    result, (objects, reading) = planned(*NODES, copy.deepcopy(job), conf=CONF), created([job])
    assert objects == []
    for told in (result.refused, reading.refused()):
        assert [line[: len(words[0])] for line in told] == words
    with pytest.raises(NothingSubmitted, match=words[0]):
        submitted([job], STATE, CREATED)


@pytest.mark.parametrize(
    ("manifest", "note"),
    [
        (job(suspend=True), "Job default/w is suspended, and makes no pods"),
        (obj("apps/v1", "DaemonSet", spec={"template": {"spec": {**SPEC, "nodeSelector": {"no": "node"}}}}), "no node"),
    ],
    ids=["suspended", "nowhere"],
)
def test_a_submission_of_no_pods_says_why(manifest: Manifest, note: str) -> None:
    with pytest.raises(NothingSubmitted, match=note) as raised:
        submitted([manifest], STATE, CREATED)
    assert [note in each for each in raised.value.notes] == [True]


def test_definitions_that_the_embedded_server_has_are_replaced() -> None:
    clock = ClusterClock(speed=None)
    store = Store(clock.now, Random(1))
    feeder = Feeder(store, clock, scheduled_manifests(store, copy.deepcopy([*volcano_definitions()])))
    for arrival in feeder._arrivals:
        feeder._create(*arrival.objects[0])
    assert (feeder.refused, feeder.created) == ([], len(volcano_definitions()))


def test_every_kind_of_the_table_has_a_row() -> None:
    rows = {kind_of(each) for shape in SHAPES.values() for each in shape.manifests if each}
    assert KINDS.keys() <= rows
    assert len(SHAPES) >= 100


# --- one by one -------------------------------------------------------------------------------------------------------


def groups_of(*manifests: Manifest) -> dict[str, int]:
    return {key: record.group.spec.min_member for key, record in state_of([*NODES, *manifests]).groups.items()}


@pytest.mark.parametrize(
    ("name", "minima"),
    [
        ("a pytorch job", [4]),
        ("a pytorch job with a minimum", [2]),
        ("a ray cluster", [4]),
        ("a leader worker set", [4, 4]),
        ("a job set", [1]),
        ("a spark application", [1]),
        ("a stateful set", [1]),
    ],
)
def test_gangs_need_all_their_pods(name: str, minima: list[int]) -> None:
    assert sorted(groups_of(*SHAPES[name].manifests).values()) == minima


def test_a_training_job_is_in_the_queue_that_its_policy_names() -> None:
    (group,) = state_of(SHAPES["a pytorch job of a queue"].manifests).groups.values()
    assert group.group.spec.queue == "q"


@pytest.mark.parametrize(
    ("role", "memory"),
    [
        ({"memory": "512m"}, (512 + 384) << 20),
        ({"memory": "10g"}, (10 << 30) + (1 << 30)),
        ({"memory": "1g", "memoryOverhead": "512m"}, (1024 + 512) << 20),
        ({}, (1024 + 384) << 20),
    ],
)
def test_a_spark_pod_has_memory_beyond_its_heap(role: Manifest, memory: int) -> None:
    made = with_spark_templates(spark(role, {}))["spec"]["driver"]["template"]["spec"]
    assert made["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": str(memory)}


def test_what_others_depend_on_is_created_first() -> None:
    queue = obj("scheduling.volcano.sh/v1beta1", "Queue", "q")
    given = [pod(meta={"namespace": "x"}), queue, obj("scheduling.k8s.io/v1", "PriorityClass", "high", value=1)]
    assert [each["kind"] for each in read(given, to_create=True).objects] == [
        "Namespace",
        "PriorityClass",
        "Queue",
        "Pod",
    ]


def test_generated_names_are_numbered_in_order_beside_given_ones() -> None:
    given = [{**pod(), "metadata": {"generateName": "p-"}}, pod("p-1"), {**pod(), "metadata": {"generateName": "p-"}}]
    assert [each["metadata"]["name"] for each in read(given, to_create=False).objects] == ["p-2", "p-1", "p-3"]


def test_pods_of_an_owner_that_is_not_understood_are_created() -> None:
    owner = obj("example.com/v1", "Foo", "foo")
    reference = {"apiVersion": "example.com/v1", "kind": "Foo", "name": "foo", "uid": "u", "controller": True}
    found = read([owner, pod(meta={"ownerReferences": [reference]})], to_create=True)
    assert [each["kind"] for each in found.objects if each["kind"] != "Namespace"] == ["Pod"]


def test_what_a_server_has_set_is_not_created_anew() -> None:
    (name,) = ("as a cluster prints it",)
    (made,), _ = created(SHAPES[name].manifests)
    assert (made["metadata"], "status" in made) == ({"name": "w"}, False)
    (there,) = read(SHAPES[name].manifests, to_create=False).objects
    assert there["metadata"]["resourceVersion"] == "12"


def test_a_group_may_be_the_clusters() -> None:
    reading = read([grouped("a", "g")], {"PodGroup": ["default/g"]}, to_create=True)
    assert (len(reading.objects), reading.refused()) == (1, [])


def test_a_class_that_is_not_given_is_named_by_all() -> None:
    urgent = [pod(priorityClassName="high")]
    plan = planned(*NODES, *urgent, conf=CONF)
    objects, reading = created(urgent)
    assert plan.unknown == reading.unknown == ["there is no PriorityClass high: its pods have no priority; add it"]
    assert [each["kind"] for each in objects] == ["PriorityClass", "Pod"]
    with pytest.raises(NothingSubmitted, match="there is no PriorityClass high; add it"):
        submitted(urgent, state_of(NODES), CREATED)


def test_pods_that_nobody_owns_come_when_their_workload_would() -> None:
    late = copy.deepcopy(SHAPES["a tf job"].manifests[0])
    late["metadata"]["annotations"] = {"vcd.sim/at-seconds": "30"}
    objects, _ = created([late, DEPLOYMENT])
    assert {each["metadata"].get("annotations", {}).get("vcd.sim/at-seconds") for each in objects} == {None, "30"}
    assert all("ownerReferences" not in each["metadata"] for each in objects)

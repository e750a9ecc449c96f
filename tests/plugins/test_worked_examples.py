"""Worked examples of Volcano's written descriptions that no other test has: one test each, with their own numbers.

The other examples stand beside what they show, in the tests of their plugin, mostly under a name such as
``test_the_example_of_the_specification``. Configurations are read by test_configuration_samples.py.

Not tested as written, since the descriptions slip there (docs/semantics/plugins.md, capacity-card.md):

- resource-strategy-fit multiplies 2 x 8 x 1M to 16 Gi: the formula counts, and its unit is 10^9 bytes a piece;
- resource-strategy-fit says that ``nvidia.*`` has its asterisk in the middle: it is at the end;
- capacity-card names the annotation ``volcano.sh/card.card``: it is ``volcano.sh/card.name``;
- capacity-card names a card of 97871 MiB ``mps-90g``: by its formula it is 96 GiB;
- capacity-card keeps pods of RTX 4090 to nodes of H200: they can go nowhere, so the examples here have no affinity.
"""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest
import yaml

from tests.dsl import (
    BARE,
    NOW,
    Manifest,
    gang,
    group,
    node,
    planned,
    pod,
    priority_class,
    queue,
    session_after,
    session_of,
)
from tests.embedded.simulated import JOBS, Simulated
from tests.embedded.simulated import job as volcano_job
from tests.embedded.simulated import task as task_spec
from tests.plugins.opened import conf, job_of, let_go, named, plugin_of, task_of, tasks_of
from tests.plugins.test_configuration_samples import text_of
from tests.predicates.asking import passing, pending
from tests.scores.rating import points
from tests.world import World
from vcd.model.reasons import Reason
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.plugins.cdp import CdpPlugin
from vcd.scheduling.plugins.drf import DrfPlugin
from vcd.scheduling.plugins.gang import GangPlugin
from vcd.scheduling.plugins.pdb import PdbPlugin
from vcd.scheduling.plugins.task_topology import TaskTopologyPlugin
from vcd.scheduling.session.session import Session

GPU = "nvidia.com/gpu"
ROLE = "volcano.sh/task-spec"


def parsed(text: str) -> Manifest:
    loaded: Manifest = yaml.safe_load(text)
    return loaded


# --- 000: plugins -----------------------------------------------------------------------------------------------------


def test_000_1_4_a_class_of_1000_comes_before_who_has_none() -> None:
    """The class high-priority, value 1000, under the configuration shown there."""
    high = parsed(
        """
        apiVersion: scheduling.k8s.io/v1
        kind: PriorityClass
        metadata:
          name: high-priority
        value: 1000
        globalDefault: false
        description: "High priority for critical jobs"
        """
    )
    result = planned(
        node("n", cpu=1),
        high,
        gang("first", 1, cpu=1),
        gang("critical", 1, cpu=1, created=9, group_spec={"priorityClassName": "high-priority"}),
        conf=text_of("plugins-priority"),
    )
    assert list(result.binds) == ["default/critical-0"]


def test_000_4_4_a_budget_of_two_lets_one_of_three_go() -> None:
    """my-pdb, minAvailable 2, app my-app; of three healthy pods its controller lets one go."""
    budget = parsed(
        """
        apiVersion: policy/v1
        kind: PodDisruptionBudget
        metadata:
          name: my-pdb
        spec:
          minAvailable: 2
          selector:
            matchLabels:
              app: my-app
        """
    )
    budget["metadata"]["namespace"] = "default"
    budget["status"] = {"disruptionsAllowed": 3 - 2, "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 3}
    mine = [pod(f"my-{i}", group="g", on="n", labels={"app": "my-app"}) for i in range(3)]
    other = pod("other", group="g", on="n", labels={"app": "other"})
    session = session_of(
        *[node("n"), group("g", members=0), group("want"), pod("p", group="want"), budget, *mine, other],
        conf=text_of("plugins-pdb"),
    )
    asked = tasks_of(session, "my-0", "my-1", "my-2", "other")
    assert let_go(plugin_of(session, PdbPlugin), "preemptable", task_of(session, "p"), asked) == ["my-0", "other"]


@pytest.mark.parametrize(
    ("minimum", "admitted"),
    [
        ({"cpu": "100", "memory": "200Gi", GPU: "8"}, True),
        ({"cpu": "100001m"}, False),
        ({"memory": "201Gi"}, False),
        ({GPU: "9"}, False),
    ],
)
def test_000_7_4_the_quota_of_a_team(minimum: dict[str, str], admitted: bool) -> None:
    """team-quota holds the namespace team-a to 100 CPU, 200 Gi and 8 GPUs."""
    quota = parsed(
        """
        apiVersion: v1
        kind: ResourceQuota
        metadata:
          name: team-quota
          namespace: team-a
        spec:
          hard:
            cpu: "100"
            memory: "200Gi"
            nvidia.com/gpu: "8"
        """
    )
    quota["status"] = {"hard": quota["spec"]["hard"], "used": {}}
    cluster = [node("n", cpu=999, memory=999, gpu=99), quota]
    asks = group("g", phase="Pending", namespace="team-a")
    asks["spec"]["minResources"] = minimum
    result = planned(*cluster, asks, conf=text_of("plugins-resourcequota"))
    assert (result.phases.get("team-a/g") == "Inqueue") is admitted


def distributed(*roles: str, affinity: str = "", anti: str = "", order: str = "", members: int) -> list[Manifest]:
    """The group distributed-training and its pods ``<role>-<number>``."""
    texts = {"affinity": affinity, "anti-affinity": anti, "task-order": order}
    made = group("distributed-training", members=members)
    made["metadata"]["annotations"] = {f"volcano.sh/task-topology-{key}": text for key, text in texts.items() if text}
    marks = [(role, {ROLE: role.rpartition("-")[0]}) for role in roles]
    return [made, *(pod(role, group="distributed-training", annotations=mark, cpu=1) for role, mark in marks)]


def buckets(session: Session) -> list[list[str]]:
    topology = plugin_of(session, TaskTopologyPlugin)._jobs[session.jobs.index("default/distributed-training")]
    found: dict[int, list[str]] = {}
    for row, bucket in sorted(topology.bucket_of.items()):
        found.setdefault(bucket.index, []).append(session.task(row).name)
    return [sorted(found[index]) for index in sorted(found)]


def test_000_8_3_two_buckets_of_two_and_a_server_in_none() -> None:
    """Workers 0 and 1 are a bucket on node A, 2 and 3 one on node B; ps-0 may go anywhere."""
    objects = distributed("worker-0", "worker-1", "worker-2", "worker-3", "ps-0", affinity="worker", members=5)
    for i, manifest in enumerate(objects[1:5]):
        manifest["spec"]["nodeName"] = "ab"[i // 2]
        manifest["status"]["phase"] = "Running"
    nodes = [node(name) for name in "abc"]
    session = session_of(*nodes, *objects, conf=text_of("plugins-task-topology"))
    assert buckets(session) == [["worker-0", "worker-1"], ["worker-2", "worker-3"]]
    assert points_of_all(session) == {"a": 0, "b": 0, "c": 0}
    assert "default/ps-0" in planned(*nodes, *objects, conf=text_of("plugins-task-topology")).binds


def test_000_8_3_of_two_pairs_the_lost_worker_returns_to_the_other_of_its_pair() -> None:
    """With room for two on A and for one more on B: worker-1 joins worker-0 (1 + 1 of a bucket
    of 2, against 1 on B and C), not worker-2."""
    objects = distributed("worker-0", "worker-2", "worker-1", affinity="worker", members=3)
    for i, manifest in enumerate(objects[1:3]):
        manifest["spec"]["nodeName"] = "ab"[i]
        manifest["status"]["phase"] = "Running"
    session = session_of(*[node(name) for name in "abc"], *objects, conf=text_of("plugins-task-topology"))
    assert buckets(session) == [["worker-0", "worker-1"], ["worker-2"]]
    assert points(session, "task topology", "worker-1") == {"a": 1000, "b": 500, "c": 500}


def test_000_8_4_a_group_with_affinity_anti_affinity_and_order() -> None:
    """Workers like the server and shun each other, ps comes first; five members, the weight 10.

    Into the server's bucket goes worker-0 (1) and worker-1, which likes the server as much as it shunned worker-0 (0);
    worker-2 (1 - 2) begins the next. So worker-1 follows them (2 there - 1 shunned + 1 waiting, against 1 elsewhere),
    worker-2 and worker-3 go where no worker is (1, against 1 - 2 and 1 - 1).
    """
    objects = distributed(
        *("ps-0", "worker-0", "worker-1", "worker-2", "worker-3"),
        affinity="worker,ps",
        anti="worker",
        order="ps,worker",
        members=5,
    )
    nodes = [node(name, cpu=4) for name in "abcd"]
    session = session_of(*nodes, *objects, conf=text_of("plugins-task-topology"))
    assert buckets(session) == [["ps-0", "worker-0", "worker-1"], ["worker-2"], ["worker-3"]]
    waiting = job_of(session, "distributed-training").pending()
    assert named(framework_of(session).in_task_order(waiting)) == [
        "ps-0",
        "worker-0",
        "worker-1",
        "worker-2",
        "worker-3",
    ]
    assert points(session, "task topology", "ps-0") == dict.fromkeys("abcd", 3 * 10 * 100 / 3)
    binds = planned(*nodes, *objects, conf=text_of("plugins-task-topology")).binds
    together = {f"default/{name}": "a" for name in ("ps-0", "worker-0", "worker-1")}
    assert binds == together | {"default/worker-2": "b", "default/worker-3": "c"}


def scheduled(manifest: Manifest, ago: int) -> Manifest:
    since = (NOW - datetime.timedelta(seconds=ago)).isoformat().replace("+00:00", "Z")
    manifest["status"]["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": since}]
    return manifest


@pytest.mark.parametrize(("text", "seconds"), [("10m", 600), ("5m", 300)])
def test_000_10_4_pods_cool_down_for_ten_and_for_five_minutes(text: str, seconds: int) -> None:
    """The label volcano.sh/cooldown-time of a pod, and of the four workers of elastic-training."""
    marks = {"volcano.sh/cooldown-time": text}
    fresh = [scheduled(pod(f"worker-{i}", group="g", on="n", labels=marks), seconds - 1) for i in range(2)]
    stale = [scheduled(pod(f"worker-{i}", group="g", on="n", labels=marks), seconds) for i in range(2, 4)]
    session = session_of(
        *[node("n"), group("g", members=0), group("want"), pod("p", group="want"), *fresh, *stale],
        conf=text_of("plugins-cdp"),
    )
    asked = tasks_of(session, *(f"worker-{i}" for i in range(4)))
    assert named(plugin_of(session, CdpPlugin).preemptable(task_of(session, "p"), asked)) == ["worker-2", "worker-3"]


def test_000_10_4_the_template_of_a_job_hands_its_label_to_the_pods() -> None:
    """A Volcano Job of four workers whose template has the label 5m."""
    sim = Simulated()
    worker = task_spec("worker", 4)
    worker["template"].setdefault("metadata", {})["labels"] = {"volcano.sh/cooldown-time": "5m"}
    sim.create(JOBS, volcano_job(worker, name="elastic-training"))
    sim.settle()
    sim.let_in()
    pods = [sim.get("pods", name) for name in sim.names()]
    assert [each["metadata"]["labels"]["volcano.sh/cooldown-time"] for each in pods] == ["5m"] * 4


@pytest.mark.parametrize(
    ("pattern", "resource", "rates"),
    [
        ("nvidia.com/*", GPU, True),
        ("cloudml.gpu/*", "cloudml.gpu/a100", True),
        ("*", GPU, False),
        ("*.com/gpu", GPU, False),
    ],
)
def test_000_11_3_patterns_that_count_and_that_do_not(pattern: str, resource: str, rates: bool) -> None:
    """An asterisk at the end, and not alone."""
    strategies = json.dumps({pattern: {"type": "MostAllocated"}})
    session = session_of(
        node("n", **{resource: 4}),
        pod("p", requests={resource: "1"}),
        conf=conf("resource-strategy-fit", arguments={"resourceStrategyFitWeight": 1, "resources": strategies}),
    )
    assert points_of_all(session) == {"n": 25 if rates else 0}


def points_of_all(session: Session) -> dict[str, float]:
    """The points of the nodes for the first pending task, of all scores."""
    task, found = pending(session), dict.fromkeys(session.nodes.facts.names, 0.0)
    for score in framework_of(session).evaluator.scores:
        if score.weight and score.applies(task):
            values = score.raw(task, session.nodes.usage) * score.weight
            found = {name: found[name] + float(value) for name, value in zip(found, values, strict=True)}
    return found


@pytest.mark.parametrize(
    ("asks", "expected"),
    [
        ({"cpu": 1}, {"a": 0, "b": 1000, "c": 0}),
        ({"cpu": 1, "gpu": 1}, {"a": 0, "b": 0, "c": 0}),
    ],
)
def test_000_11_3_pods_without_gpus_leave_the_nodes_that_have_some(
    asks: dict[str, int], expected: dict[str, float]
) -> None:
    """The picture of SRA: A has 8 GPUs, B none, C 4. (1 - 1/1) x 100 x 10 on A and C, (1 - 0) on B; a
    node that lacks what the pod asks for gets nothing either, so GPU pods go to A or C."""
    nodes = [node("a", gpu=8), node("b"), node("c", gpu=4)]
    sample = parsed(text_of("plugins-resource-strategy-fit"))
    arguments = sample["tiers"][0]["plugins"][0]["arguments"]
    only = {"resourceStrategyFitWeight": 0, "sra": json.dumps(arguments["sra"])}
    session = session_of(*nodes, pod("p", **asks), conf=conf("resource-strategy-fit", arguments=only))
    assert points_of_all(session) == expected
    placed = planned(*nodes, pod("p", **asks), conf=conf("resource-strategy-fit", arguments=only)).binds
    assert placed["default/p"] in ({"b"} if "gpu" not in asks else {"a", "c"})


@pytest.mark.parametrize(
    ("cpu", "memory", "fits"), [(4, "4G", True), (5, "1G", False), (1, "5G", False), (4, "4000000001", False)]
)
def test_000_the_gpu_training_cluster_keeps_8_cores_and_32_gigabytes_for_each_gpu(
    cpu: int, memory: str, fits: bool
) -> None:
    """000, summary: two idle GPUs keep 16 cores and 64 G of 20 cores and 68 G."""
    sample = parsed(text_of("plugins-summary-gpu-training"))
    (arguments,) = [
        entry["arguments"]
        for tier in sample["tiers"]
        for entry in tier["plugins"]
        if entry["name"] == "resource-strategy-fit"
    ]
    session = session_of(
        node("n", cpu=20, memory="68G", gpu=2),
        pod("p", cpu=cpu, memory=memory),
        conf=conf("resource-strategy-fit", arguments={key: json.dumps(value) for key, value in arguments.items()}),
    )
    assert passing(session, "Proportional") == ({"n"} if fits else set())


# --- 001: actions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cpu", "phase"), [(3, "Inqueue"), (2, "Pending")])
def test_001_1_a_training_of_three_is_admitted_where_three_can_run(cpu: int, phase: str) -> None:
    """A TensorFlow job of at least three pods is marked as schedulable if there is room for them."""
    waiting = group("tensorflow", members=3, phase="Pending", minimum={"cpu": 3})
    result = planned(node("n", cpu=cpu), waiting, conf=text_of("actions-allocate"))
    assert result.phases.get("default/tensorflow", "Pending") == phase


def test_001_2_high_priority_in_the_queue_of_higher_weight_first() -> None:
    """Queues of weight 3 and 1 share 4 CPU as 3 and 1; in each the higher priority goes first."""
    jobs = [
        gang(
            f"{name}-{kind}-{i}",
            1,
            queue=name,
            cpu=1,
            created=i if kind == "low" else 9 + i,
            group_spec={"priorityClassName": kind},
        )
        for name in ("heavy", "light")
        for kind in ("low", "high")
        for i in range(2)
    ]
    result = planned(
        *[node("n", cpu=4), priority_class("high", 100), priority_class("low", 1)],
        *[queue("heavy", weight=3), queue("light", weight=1), *jobs],
        conf=text_of("actions-allocate"),
    )
    placed = sorted(key.partition("/")[2] for key in result.binds)
    assert placed == ["heavy-high-0-0", "heavy-high-1-0", "heavy-low-0-0", "light-high-0-0"]


def test_001_4_production_preempts_development_of_its_queue() -> None:
    """The cluster is full of development's pods; as many are ended as production needs, of lowest priority."""
    classes = [priority_class(name, value) for name, value in (("production", 1000), ("dev", 10), ("play", 1))]
    development = [
        gang(name, 2, members=0, on=["n"] * 2, cpu=1, phase="Running", group_spec={"priorityClassName": name})
        for name in ("dev", "play")
    ]
    production = gang("production", 3, cpu=1, group_spec={"priorityClassName": "production"})
    elsewhere = gang("elsewhere", 1, members=0, queue="q", on=["n"], cpu=1, phase="Running")
    world = World(
        *[node("n", cpu=5), *classes, queue("q"), *development, elsewhere, production], conf=text_of("actions-preempt")
    )
    world.rest()
    assert sorted(world.placed("production")) == ["production-0", "production-1", "production-2"]
    assert (len(world.placed("play")), len(world.placed("dev")), len(world.placed("elsewhere"))) == (0, 1, 1)
    assert len(world.evicted) == 3


def test_001_5_production_takes_back_what_development_borrowed() -> None:
    """Weights 60, 30, 10 of 10 CPU; development holds 6 (more than half), production asks for 6 and has 4.

    Nobody asks for anything in test, so its 1 goes to development, which production leaves 4.
    """
    world = World(
        node("n", cpu=10),
        *[queue(name, weight=weight) for name, weight in (("production", 60), ("development", 30), ("test", 10))],
        *[gang(f"dev{i}", 1, members=0, queue="development", on=["n"], cpu=1, phase="Running") for i in range(6)],
        *[gang(f"old{i}", 1, queue="production", on=["n"], cpu=1, phase="Running") for i in range(4)],
        *[gang(f"new{i}", 1, queue="production", cpu=1) for i in range(2)],
        conf=text_of("actions-allocate"),
    )
    world.rest()
    assert (len(world.placed("dev")), len(world.placed("old")), len(world.placed("new"))) == (4, 4, 2)
    assert len(world.evicted) == 2


# --- 002: code --------------------------------------------------------------------------------------------------------


def test_002_a_job_that_wants_five_of_four_is_rejected() -> None:
    """002, Job and Task: minAvailable 5, two tasks of two; it gets no pods, and is never tried were they there."""
    sim = Simulated()
    wrong = volcano_job(*(task_spec(name, 2) for name in ("task-1", "task-2")), minAvailable=5)
    made = sim.create(JOBS, wrong)
    assert "should not be greater than total replicas" in made["status"]["state"]["message"]
    session = session_of(node("n"), gang("g", 4, members=5, cpu=1), conf=BARE)
    found = plugin_of(session, GangPlugin).job_valid(job_of(session, "g"))
    assert isinstance(found, Reason)
    assert (found.detail["valid"], found.detail["min"]) == ("4", "5")


def test_002_gang_three_of_five_go_together_then_others_come_first() -> None:
    """002, gang: replicas 5, minAvailable 3; with its third pod the job is ready, and another job goes before the
    fourth and the fifth."""
    result = planned(
        node("n", cpu=4), gang("large", 5, members=3, cpu=1), gang("small", 1, cpu=1, created=9), conf=BARE
    )
    assert sorted(result.binds) == ["default/large-0", "default/large-1", "default/large-2", "default/small-0"]
    result = planned(node("n", cpu=2), gang("large", 5, members=3, cpu=1), conf=BARE)
    assert result.binds == {}


@pytest.mark.parametrize(
    ("cpu", "memory", "of_cpu", "of_memory"), [(8, 16, 0.25, 0.125), (4, 32, 0.125, 0.25)], ids=["JobA", "JobB"]
)
def test_002_drf_the_dominant_resource_of_two_jobs(cpu: int, memory: int, of_cpu: float, of_memory: float) -> None:
    """002, drf: 32 CPU and 128 G. A holds 8 CPU and 16 G, 25 % and 12.5 %; B 4 CPU and 32 G, 12.5 % and 25 %."""

    def share(**amounts: int) -> float:
        objects = [node("n", cpu=32, memory=128), gang("g", 1, on=["n"], phase="Running", **amounts)]
        session = session_of(*objects, conf=conf("drf"))
        return plugin_of(session, DrfPlugin).job_order(job_of(session, "g"))

    assert (share(cpu=cpu), share(memory=memory), share(cpu=cpu, memory=memory)) == (of_cpu, of_memory, 0.25)


# --- 003: plugins in brief --------------------------------------------------------------------------------------------


def test_003_6_2_4_weights_of_four_resources() -> None:
    """Weight x (requested + used) / allocatable; cpu 5, memory 1, GPU 2, foo 3, the plugin 10."""
    foo = "example.com/foo"
    session = session_of(
        node("n", cpu=8, memory="8Gi", **{GPU: 4, foo: 10}),
        pod("a", on="n", cpu=2, memory="1Gi", **{foo: 1}),
        pod("p", cpu=2, memory="1Gi", **{GPU: 1, foo: 4}),
        conf=text_of("framework-binpack"),
    )
    expected = (5 * 4 / 8 + 1 * 2 / 8 + 2 * 1 / 4 + 3 * 5 / 10) / (5 + 1 + 2 + 3) * 100 * 10
    assert points_of_all(session) == {"n": pytest.approx(expected)}


@pytest.mark.parametrize(("cpu", "memory", "fits"), [(2, "2G", True), (3, "2G", False), (2, "3G", False)])
def test_003_6_6_each_gpu_keeps_4_cores_and_8_gigabytes(cpu: int, memory: str, fits: bool) -> None:
    """nvidia.com/gpu, 4 and 8: at least 4 CPU and 8 G for each GPU. The code that is quoted there counts
    thousandths of them, which it calls a defect; the meaning counts."""
    session = session_of(
        node("n", cpu=6, memory="10G", gpu=1), pod("p", cpu=cpu, memory=memory), conf=text_of("framework-predicates")
    )
    assert passing(session, "Proportional") == ({"n"} if fits else set())


@pytest.mark.parametrize(("cpu", "phase"), [(10, "Inqueue"), (11, "Pending")])
def test_003_6_11_4_a_factor_of_one_admits_what_there_is(cpu: int, phase: str) -> None:
    """The factor 1.0."""
    waiting = group("g", phase="Pending", minimum={"cpu": cpu})
    result = planned(node("n", cpu=10), waiting, conf=text_of("framework-overcommit"))
    assert result.phases.get("default/g", "Pending") == phase


# --- 004: capacity-card -----------------------------------------------------------------------------------------------

H200 = "NVIDIA-H200"
A, B = "NVIDIA-GeForce-RTX-4090", "NVIDIA-GeForce-RTX-4090-D"
CARDS = text_of("cards-capacity-card")


def carded(name: str, card: str, count: int) -> Manifest:
    labels = {f"{GPU}.product": card, f"{GPU}.count": str(count), f"{GPU}.memory": "81920"}
    return node(name, labels=labels, cpu=64, memory=256, gpu=count)


def card_queue(name: str, quota: dict[str, int]) -> Manifest:
    made = queue(name)
    made["metadata"]["annotations"] = {"volcano.sh/card.quota": json.dumps(quota)}
    return made


def replica(name: str, card: str, queue_name: str = "cr-queue1", **options: Any) -> Manifest:
    """A pod of the Deployment cr-deployment: it names its queue itself."""
    marks = {"volcano.sh/card.name": card, "scheduling.volcano.sh/queue-name": queue_name}
    return pod(name, annotations=marks, gpu=1, **options)


def test_004_2_2_2_2_2_two_replicas_are_charged_to_the_queue_that_they_name() -> None:
    """cr-deployment, two replicas of NVIDIA-H200 in cr-queue1, kept to such nodes by affinity."""
    within = {"key": f"{GPU}.product", "operator": "In", "values": [H200]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [within]}]}
    spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    pods = [replica(f"cr-deployment-{i}", H200, spec=spec) for i in range(2)]
    nodes = [carded("h200", H200, 8), carded("other", A, 8)]
    cluster = [card_queue("cr-queue1", {H200: 3}), *nodes]
    assert planned(*cluster, *pods, conf=CARDS).binds == {f"default/cr-deployment-{i}": "h200" for i in range(2)}
    session = session_after(card_queue("cr-queue1", {H200: 1}), *nodes, *pods, conf=CARDS)
    assert {task.job.queue.name for task in tasks_of(session, "cr-deployment-0")} == {"cr-queue1"}
    assert len([op for statement in session.trial.statements for op in statement.operations()]) == 1


def test_004_2_2_3_3_2_replicas_of_either_card() -> None:
    """Two replicas of RTX 4090 or 4090-D, each kind with one card left in the queue."""
    pods = [replica(f"cr-deployment-{i}", f"{A}|{B}") for i in range(2)]
    nodes = [carded("a", A, 8), carded("b", B, 8)]
    result = planned(card_queue("cr-queue1", {A: 1, B: 1}), *nodes, *pods, conf=CARDS)
    assert sorted(result.binds.values()) == ["a", "b"]


def test_004_2_3_2_more_may_be_handed_out_than_is_left() -> None:
    """Two H200 are left; a queue may still be given three, and gets the two."""
    queues = [card_queue("old", {H200: 6}), card_queue("cr-queue1", {H200: 3})]
    runs = [replica(f"old-{i}", H200, "old", on="n") for i in range(6)]
    wants = [replica(f"new-{i}", H200) for i in range(3)]
    assert len(planned(*queues, carded("n", H200, 8), *runs, *wants, conf=CARDS).binds) == 2


def test_004_2_4_1_eleven_handed_out_of_ten() -> None:
    """Ten cards, quotas of eleven: ten pods run, one waits, nothing breaks."""
    queues = [card_queue("q1", {H200: 6}), card_queue("q2", {H200: 5})]
    pods = [replica(f"{name}-{i}", H200, name) for name, count in (("q1", 6), ("q2", 5)) for i in range(count)]
    result = planned(*queues, carded("n", H200, 10), *pods, conf=CARDS)
    assert len(result.binds) == 10
    assert sum(bool(reasons) for reasons in result.why.values()) == 1


def test_004_1_1_a_node_of_seven_whole_cards_and_four_slices() -> None:
    """8 H200, one of them cut into one 3g.71gb and three 1g.18gb; each is used up by itself."""
    machine = carded("n", H200, 7)
    slices = {"nvidia.com/mig-3g.71gb": 1, "nvidia.com/mig-1g.18gb": 3}
    for room in ("allocatable", "capacity"):
        machine["status"][room] |= {name: str(count) for name, count in slices.items()}
    machine["metadata"]["labels"][f"{GPU}.count"] = "8"
    names = {GPU: H200} | {name: f"{H200}/{name.partition('/')[2]}-mixed" for name in slices}
    pods = [
        pod(
            f"{number}-{i}",
            requests={resource: "1"},
            annotations={"volcano.sh/card.name": card, "scheduling.volcano.sh/queue-name": "q"},
        )
        for number, (resource, card) in enumerate(names.items())
        for i in range(8)
    ]
    binds = planned(card_queue("q", dict.fromkeys(names.values(), 8)), machine, *pods, conf=CARDS).binds
    counts = [sum(key.startswith(f"default/{number}-") for key in binds) for number in range(3)]
    assert counts == [7, 1, 3]

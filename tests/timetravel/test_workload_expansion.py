"""Plans and submissions understand the same workloads, in the same way; what is not understood is named."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.dsl import Manifest, node, planned, pod, priority_class
from vcd.state.cluster_state import ClusterState
from vcd.timetravel.planning import state_of
from vcd.timetravel.whatif.submitted_groups import submitted
from vcd.timetravel.workload_expansion import Work, expand, named

CONF = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: predicates
"""
TEMPLATE = {
    "metadata": {"labels": {"app": "a"}},
    "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]},
}


def workload(kind: str, version: str, name: str = "w", **spec: Any) -> Manifest:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


VOLCANO = "batch.volcano.sh/v1alpha1"


def volcano(version: str = VOLCANO, **spec: Any) -> Manifest:
    tasks = [
        {"name": "ps", "replicas": 1, "template": TEMPLATE},
        {"name": "worker", "replicas": 3, "template": TEMPLATE},
    ]
    return workload("Job", version, **{"tasks": tasks, "minAvailable": 3, **spec})


WORKLOADS: dict[str, tuple[Manifest, int, int]] = {
    "Volcano Job": (volcano(), 4, 3),
    "batch Job": (workload("Job", "batch/v1", parallelism=3, template=TEMPLATE), 3, 1),
    "Deployment": (workload("Deployment", "apps/v1", replicas=2, template=TEMPLATE), 2, 1),
    "ReplicaSet": (workload("ReplicaSet", "apps/v1", replicas=3, template=TEMPLATE), 3, 1),
    "ReplicationController": (workload("ReplicationController", "v1", replicas=2, template=TEMPLATE), 2, 1),
    "StatefulSet": (workload("StatefulSet", "apps/v1", template=TEMPLATE), 1, 1),
    "CronJob": (workload("CronJob", "batch/v1", jobTemplate={"spec": {"parallelism": 2, "template": TEMPLATE}}), 2, 1),
    "Volcano CronJob": (workload("CronJob", VOLCANO, jobTemplate={"spec": volcano()["spec"]}), 4, 3),
    "Pod": ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "w"}, "spec": TEMPLATE["spec"]}, 1, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_plan_places_its_pods(name: str) -> None:
    manifest, pods, minimum = WORKLOADS[name]
    result = planned(node("n"), manifest, conf=CONF)
    assert (len(result.binds), len(result.phases)) == (pods, 1)
    (group,) = state_of([manifest]).groups.values()
    assert group.group.spec.min_member == minimum


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_submission_takes_it_for_the_same(name: str) -> None:
    manifest, _, _ = WORKLOADS[name]
    found = submitted([manifest], ClusterState(), "2026-01-01T00:00:00Z")
    state = state_of([manifest])
    (group,), (planned_group,) = found.groups, state.groups.values()
    assert group.spec == planned_group.group.spec
    assert sorted(one.key for one in found.pods) == sorted(state.tasks.row_of)
    for one in found.pods:
        shown = state.pod(one.key)
        assert shown is not None and shown.spec.containers == one.spec.containers
        assert shown.metadata.labels == one.metadata.labels


@pytest.mark.parametrize("room, bound", [(4, 4), (3, 3), (2, 0)])
def test_a_gang_is_planned_as_one(room: int, bound: int) -> None:
    assert len(planned(node("n", cpu=room), volcano(), conf=CONF).binds) == bound


def test_network_topology_of_a_job_or_a_pod_is_not_lost_on_the_way() -> None:
    hard = {"mode": "hard", "highestTierAllowed": 1}
    marked = {**TEMPLATE, "metadata": {"annotations": {"volcano.sh/network-topology-highest-tier": "1"}}}
    divided = volcano()
    divided["spec"]["tasks"][1]["partitionPolicy"] = {"totalPartitions": 3, "partitionSize": 1, "networkTopology": hard}
    for manifest in (
        volcano(networkTopology=hard),
        divided,
        workload("Deployment", "apps/v1", template=marked),
        pod("p", cpu=1, annotations={"volcano.sh/network-topology-mode": "hard"}),
    ):
        result = planned(node("n"), manifest, conf=CONF)
        (reasons,) = result.why.values()
        assert result.binds == {}
        assert reasons[0]["gate"] == "unsupported"


def test_partitions_become_sub_groups() -> None:
    divided = volcano(minAvailable=1)
    divided["spec"]["tasks"][1].update(replicas=4, minAvailable=0)
    divided["spec"]["tasks"][1]["partitionPolicy"] = {"totalPartitions": 2, "partitionSize": 2}
    result = planned(node("n", cpu=4), divided, conf=CONF)
    assert Counter(key.split("-")[1] for key in result.binds) == {"ps": 1, "worker": 2}


def test_the_least_partitions_are_a_tasks_minimum() -> None:
    divided = volcano(minAvailable=None)
    divided["spec"]["tasks"][1].update(replicas=4)
    divided["spec"]["tasks"][1]["partitionPolicy"] = {"totalPartitions": 2, "partitionSize": 2, "minPartitions": 1}
    (group,) = state_of([divided]).groups.values()
    assert group.group.spec.min_task_member == {"ps": 1, "worker": 2}
    assert group.group.spec.min_member == 3
    assert len(planned(node("n", cpu=3), divided, conf=CONF).binds) == 3


def test_a_jobs_pods_bear_volcanos_marks() -> None:
    marked = volcano(queue="q")
    marked["metadata"]["labels"] = {"volcano.sh/preemptable": "true", "mine": "1"}
    marked["metadata"]["annotations"] = {"volcano.sh/jdb-min-available": "2", "mine": "1"}
    shown = state_of([marked]).pod("default/w-worker-2")
    assert shown is not None
    assert shown.metadata.labels == {
        "app": "a",
        "volcano.sh/job-name": "w",
        "volcano.sh/job-namespace": "default",
        "volcano.sh/preemptable": "true",
        "volcano.sh/queue-name": "q",
        "volcano.sh/task-index": "2",
        "volcano.sh/task-spec": "worker",
    }
    assert shown.metadata.annotations["volcano.sh/jdb-min-available"] == "2"
    assert "mine" not in shown.metadata.annotations


def test_pods_have_the_priority_of_their_class() -> None:
    urgent = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "priorityClassName": "high"}}
    state = state_of([priority_class("high", 9), workload("Deployment", "apps/v1", template=urgent)])
    shown = state.pod("default/w-0")
    assert shown is not None and shown.spec.priority == 9


# --- what is given already --------------------------------------------------------------------------------------------


def owned(manifest: Manifest, by: Manifest) -> Manifest:
    owner = {"kind": by["kind"], "apiVersion": by["apiVersion"], "name": by["metadata"]["name"], "controller": True}
    meta = {**manifest["metadata"], "ownerReferences": [{**owner, "uid": "u"}]}
    return {**manifest, "metadata": meta}


def test_a_workload_whose_pods_are_given_makes_no_more_of_them() -> None:
    """As kubectl get -o yaml prints a Deployment with its ReplicaSet and its pods."""
    deployment = workload("Deployment", "apps/v1", replicas=2, template=TEMPLATE)
    replicas = owned(workload("ReplicaSet", "apps/v1", "w-abc", replicas=2, template=TEMPLATE), deployment)
    pods = [owned(pod(f"w-abc-{number}", cpu=1), replicas) for number in range(2)]
    assert sorted(planned(node("n"), deployment, replicas, *pods, conf=CONF).binds) == [
        "default/w-abc-0",
        "default/w-abc-1",
    ]
    assert sorted(planned(node("n"), deployment, replicas, conf=CONF).binds) == ["default/w-abc-0", "default/w-abc-1"]
    assert sorted(planned(node("n"), deployment, conf=CONF).binds) == ["default/w-0", "default/w-1"]


@pytest.mark.parametrize(
    "manifest, status",
    [
        (volcano(), {"state": {"phase": "Completed"}}),
        (workload("Job", "batch/v1", template=TEMPLATE), {"conditions": [{"type": "Complete", "status": "True"}]}),
    ],
    ids=["Volcano Job", "batch Job"],
)
def test_what_is_over_makes_none_and_may_be_submitted_anew(manifest: Manifest, status: Manifest) -> None:
    ended = {**manifest, "status": status}
    result = planned(node("n"), ended, conf=CONF)
    assert (result.binds, result.notes) == ({}, ["Job default/w has ended, and makes no pods"])
    assert submitted([ended], ClusterState(), "2026-01-01T00:00:00Z").pods


@pytest.mark.parametrize(
    "manifest",
    [
        workload("Job", "batch/v1", suspend=True, template=TEMPLATE),
        workload("CronJob", "batch/v1", suspend=True, jobTemplate={"spec": {"template": TEMPLATE}}),
    ],
    ids=["Job", "CronJob"],
)
def test_what_is_suspended_makes_none_and_says_so(manifest: Manifest) -> None:
    result = planned(node("n"), manifest, conf=CONF)
    assert result.binds == {}
    assert "suspended" in result.notes[0]


# --- what is not understood -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "manifest, key, message",
    [
        (workload("Deployment", "apps/v1", replicas="many"), "Deployment default/w", "spec.replicas: Expected `int"),
        (
            workload("Deployment", "apps/v1", replicas=10**9, template=TEMPLATE),
            "Deployment default/w",
            "make them 20,000 at most",
        ),
        (volcano(minAvailable=9), "Job default/w", "more than the 4 replicas"),
        (workload("StatefulSet", "apps/v1"), "StatefulSet default/w", "no spec.containers"),
        *(
            (
                workload(kind, "apps/v1", replicas=-4, template=TEMPLATE),
                f"{kind} default/w",
                "spec.replicas is -4; make",
            )
            for kind in ("Deployment", "ReplicaSet", "StatefulSet")
        ),
        *(
            (workload(kind, "apps/v1", template=template), f"{kind} default/w", "spec.template has no spec.containers")
            for kind in ("Deployment", "ReplicaSet", "StatefulSet")
            for template in (None, {"spec": None}, {"spec": {"containers": []}})
        ),
        (
            workload("StatefulSet", "apps/v1", replicas="two", template=TEMPLATE),
            "StatefulSet default/w",
            "spec.replicas: ",
        ),
        (workload("ReplicaSet", "apps/v1", template=3), "ReplicaSet default/w", "spec.template: "),
        (
            workload("Job", "batch/v1", parallelism=-1, template=TEMPLATE),
            "Job default/w",
            "spec.parallelism is -1; make",
        ),
        (
            workload("Job", "batch/v1", completions=-1, template=TEMPLATE),
            "Job default/w",
            "spec.completions is -1; make",
        ),
        (workload("Job", "batch/v1", template=None), "Job default/w", "spec.template has no spec.containers"),
        (
            workload("CronJob", "batch/v1", jobTemplate={"spec": {"parallelism": -1, "template": TEMPLATE}}),
            "CronJob default/w",
            "in spec.jobTemplate: spec.parallelism is -1",
        ),
        (
            workload("CronJob", VOLCANO, jobTemplate={"spec": {"tasks": [{}]}}),
            "CronJob default/w",
            "spec.tasks[0].templ",
        ),
        (
            volcano(tasks=[{"replicas": -4, "template": TEMPLATE}]),
            "Job default/w",
            "spec.tasks[0].replicas is -4; make",
        ),
        (
            volcano(tasks=[{"replicas": 1, "template": None}]),
            "Job default/w",
            "spec.tasks[0].template has no spec.cont",
        ),
        (volcano(minAvailable=-1), "Job default/w", "spec.minAvailable is -1; make it 0 or more"),
        ({**volcano(), "metadata": {"name": "w", "labels": {"a": 1}}}, "Job default/w", "its group: Expected `str`"),
        ({"kind": "Deployment", "metadata": {}}, "Deployment ", "it has no metadata.name"),
        (
            {"kind": "Deployment", "metadata": {"name": "w", "labels": 3}},
            "Deployment default/w",
            "labels is not a mapping",
        ),
    ],
)
def test_a_workload_that_cannot_be_read_is_set_aside_and_the_rest_is_planned(
    manifest: Manifest, key: str, message: str
) -> None:
    result = planned(node("n"), manifest, pod("p", cpu=1), conf=CONF)
    assert message in result.set_aside[key]
    assert result.binds == {"default/p": "n"}


@pytest.mark.parametrize(
    "manifest, note",
    [
        (
            workload("StatefulSet", "apps/v1", replicas=0, template=TEMPLATE),
            "StatefulSet default/w {}spec.replicas is 0",
        ),
        (workload("Job", "batch/v1", parallelism=0, template=TEMPLATE), "Job default/w {}spec.parallelism is 0"),
        (workload("Job", "batch/v1", completions=0, template=TEMPLATE), "Job default/w {}spec.completions is 0"),
        (workload("Job", VOLCANO), "Job default/w {}spec.tasks is empty"),
        (workload("Job", VOLCANO, tasks=[{"template": TEMPLATE}]), "Job default/w {}none of spec.tasks has replicas"),
    ],
)
def test_a_workload_that_makes_no_pods_says_so(manifest: Manifest, note: str) -> None:
    assert note.format("makes no pods: ") in planned(node("n"), manifest, conf=CONF).notes


def test_a_daemon_set_has_a_pod_on_each_node_that_it_may_run_on() -> None:
    nodes = [
        node("a"),
        node("b", labels={"pool": "gpu"}),
        node("c", taints=[{"key": "k", "effect": "NoSchedule"}]),
        node("d", taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]),
    ]
    made = workload("DaemonSet", "apps/v1", template=TEMPLATE)
    assert planned(*nodes[:3], made, conf=CONF).binds == {"default/w-a-0": "a", "default/w-b-0": "b"}
    assert len(state_of([*nodes, made]).tasks.row_of) == 3
    picky = workload(
        "DaemonSet", "apps/v1", template={**TEMPLATE, "spec": {**TEMPLATE["spec"], "nodeSelector": {"pool": "gpu"}}}
    )
    assert planned(*nodes, picky, conf=CONF).binds == {"default/w-b-0": "b"}
    result = planned(nodes[0], picky, conf=CONF)
    assert result.notes == ["DaemonSet default/w makes no pods: the manifests have no node that its pods may run on"]


def test_what_is_null_counts_as_not_given() -> None:
    given = workload("Job", "batch/v1", parallelism=None, completions=None, suspend=None, template=TEMPLATE)
    assert len(planned(node("n", cpu=8), given, conf=CONF).binds) == 1


@pytest.mark.parametrize(
    "version, kind",
    [("scheduling.k8s.io/v1alpha2", "PodGroup"), ("kueue.x-k8s.io/v1beta1", "Queue"), ("ray.io/v1", "Job")],
)
def test_another_groups_kind_of_the_same_name_is_not_taken_for_what_is_read(version: str, kind: str) -> None:
    result = planned(node("n"), workload(kind, version, minMember=3), conf=CONF)
    assert result.phases == {}
    known = version.startswith(("scheduling", "kueue"))
    assert len(result.unknown) == (0 if known else 1)


def test_what_is_read_by_other_configurations_is_not_told_of() -> None:
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": {}}
    assert planned(node("n"), budget, conf=CONF).notes == []


@pytest.mark.parametrize(
    "manifest, words",
    [
        (volcano(queu="q"), ["spec.queu is not a field; did you mean queue?"]),
        (
            volcano(tasks=[{"replica": 1, "template": {"speck": 1, **TEMPLATE}}]),
            ["spec.tasks[0].replica is not a field; did you mean replicas?"],
        ),
        (
            workload(
                "PodGroup",
                "scheduling.volcano.sh/v1beta1",
                minMembers=2,
                networkTopology={"mod": "soft", "mode": "soft"},
            ),
            [
                "spec.minMembers is not a field; did you mean minMember?",
                "spec.networkTopology.mod is not a field; did you mean mode?",
            ],
        ),
        (
            workload(
                "PodGroup", "scheduling.volcano.sh/v1beta1", subGroupPolicy=[{"labelSelector": {"matchLabel": {}}}]
            ),
            ["spec.subGroupPolicy[0].labelSelector.matchLabel is not a field; did you mean matchLabels?"],
        ),
        (
            {**workload("Queue", "scheduling.volcano.sh/v1beta1", weight=1), "specs": {}},
            ["specs is not a field; did you mean spec?"],
        ),
        (
            workload(
                "Queue",
                "scheduling.volcano.sh/v1beta1",
                extendClusters=[{"name": "x", "capacity": {"cpu": "1"}}],
                capability={"cpuu": "1"},
            ),
            [],
        ),
        (workload("Deployment", "apps/v1", replica=3, template=TEMPLATE), []),
    ],
)
def test_fields_that_there_are_none_of_are_named(manifest: Manifest, words: list[str]) -> None:
    """Of the kinds that are Volcano's own; what is Kubernetes' own is left to its API server."""
    name = "Queue w" if manifest["kind"] == "Queue" else f"{manifest['kind']} default/w"
    assert planned(node("n"), manifest, conf=CONF).unknown == [f"{name}: {each}" for each in words]


def test_a_submission_names_them_too() -> None:
    found = submitted([volcano(minAvailble=2)], ClusterState(), "2026-01-01T00:00:00Z")
    assert found.unknown == ["Job default/w: spec.minAvailble is not a field; did you mean minAvailable?"]


def test_left_out_parts_are_noted() -> None:
    work = Work()
    expand(named(workload("StatefulSet", "apps/v1", template=TEMPLATE, volumeClaimTemplates=[{}]), "u"), work)
    assert work.notes == ["volumeClaimTemplates of StatefulSet default/w are ignored"]

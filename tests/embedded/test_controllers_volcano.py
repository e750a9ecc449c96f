"""PodGroups of plain pods, queues, and jobs that Volcano's webhooks refuse."""

from typing import Any

import pytest

from tests.embedded.simulated import DEPLOYMENTS, PODGROUPS, PODS, REPLICASETS, Simulated, deployment, job, pod, task
from vcd.embedded.controllers.controller_base import COMMANDS, JOBS, QUEUES, annotations_of, labels_of
from vcd.embedded.controllers.pod_properties import limits_of, quota_usage, requests_of
from vcd.embedded.controllers.queue_controller import state_after

GROUP = "scheduling.k8s.io/group-name"


@pytest.fixture
def sim() -> Simulated:
    return Simulated()


# --- PodGroups ------------------------------------------------------------------------------------------------------


def test_a_bare_pod_gets_a_group_of_one(sim: Simulated) -> None:
    uid = sim.create(PODS, pod("a"))["metadata"]["uid"]
    group = sim.group_of("a")
    assert group["metadata"]["name"] == f"podgroup-{uid}"
    assert (group["spec"]["minMember"], group["status"]["phase"]) == (1, "Pending")


def test_the_group_of_a_bare_pod_goes_with_it(sim: Simulated) -> None:
    sim.create(PODS, pod("a"))
    sim.delete(PODS, "a")
    assert sim.names(PODGROUPS) == []


def test_pods_of_other_schedulers_get_no_group(sim: Simulated) -> None:
    sim.create(PODS, pod("a", schedulerName="default-scheduler"))
    assert sim.names(PODGROUPS) == []


def test_a_pod_with_a_group_gets_no_other(sim: Simulated) -> None:
    sim.create(PODS, pod("a", annotations={GROUP: "mine"}))
    assert sim.names(PODGROUPS) == []


def test_pods_of_a_replica_set_share_a_group(sim: Simulated) -> None:
    sim.create(DEPLOYMENTS, deployment(replicas=3))
    uid = sim.store.list(REPLICASETS)[0]["metadata"]["uid"]
    assert sim.names(PODGROUPS) == [f"podgroup-{uid}"]
    assert {annotations_of(each)[GROUP] for each in sim.store.list(PODS)} == {f"podgroup-{uid}"}


def test_the_group_takes_its_minimum_from_the_workload(sim: Simulated) -> None:
    sim.create(DEPLOYMENTS, deployment(annotations={"scheduling.volcano.sh/group-min-member": "3"}))
    spec = sim.store.list(PODGROUPS)[0]["spec"]
    assert (spec["minMember"], spec["minResources"]["cpu"]) == (3, "3")


@pytest.mark.parametrize("text", ["-1", "many", "", "1.5"])
def test_a_senseless_minimum_counts_as_one(sim: Simulated, text: str) -> None:
    sim.create(DEPLOYMENTS, deployment(annotations={"scheduling.volcano.sh/group-min-member": text}))
    assert sim.store.list(PODGROUPS)[0]["spec"]["minMember"] == 1


def test_volcano_annotations_of_a_deployment_are_copied(sim: Simulated) -> None:
    given = {"volcano.sh/card.name": "A", "other.example/x": "1", "scheduling.volcano.sh/queue-name": "q"}
    sim.create(DEPLOYMENTS, deployment(annotations=given))
    assert annotations_of(sim.store.list(PODGROUPS)[0]) == {"volcano.sh/card.name": "A"}


def test_volcano_marks_of_a_bare_pod_are_copied(sim: Simulated) -> None:
    marks = {"volcano.sh/card.name": "A", "x.example/y": "1"}
    sim.create(PODS, pod("a", annotations=marks, labels={"volcano.sh/preemptable": "false", "app": "a"}))
    group = sim.group_of("a")
    assert annotations_of(group) == {"volcano.sh/card.name": "A"}
    assert labels_of(group) == {"volcano.sh/preemptable": "false"}


def test_volcano_labels_of_a_deployment_are_copied(sim: Simulated) -> None:
    spec = deployment()
    spec["metadata"]["labels"] = {"volcano.sh/kind": "online", "app": "web"}
    sim.create(DEPLOYMENTS, spec)
    assert labels_of(sim.store.list(PODGROUPS)[0]) == {"volcano.sh/kind": "online"}


def test_a_pods_own_mark_overrules_the_workloads(sim: Simulated) -> None:
    spec = deployment(annotations={"volcano.sh/preemptable": "true"})
    spec["spec"]["template"]["metadata"]["annotations"] = {"volcano.sh/preemptable": "false"}
    sim.create(DEPLOYMENTS, spec)
    assert annotations_of(sim.store.list(PODGROUPS)[0])["volcano.sh/preemptable"] == "false"


def test_queue_and_priority_come_from_the_pod(sim: Simulated) -> None:
    sim.store.create("priorityclasses.scheduling.k8s.io", {"metadata": {"name": "high"}, "value": 9})
    marks = {"scheduling.volcano.sh/queue-name": "q"}
    sim.create(PODS, pod("a", annotations=marks, priorityClassName="high"))
    spec = sim.group_of("a")["spec"]
    assert (spec["queue"], spec["priorityClassName"]) == ("q", "high")


def test_a_group_without_queue_is_in_the_default_one(sim: Simulated) -> None:
    sim.create(PODS, pod("a"))
    assert sim.group_of("a")["spec"]["queue"] == "default"


def test_network_topology_comes_from_the_pods_annotations(sim: Simulated) -> None:
    marks = {"volcano.sh/network-topology-mode": "Soft", "volcano.sh/network-topology-highest-tier": "2"}
    sim.create(PODS, pod("a", annotations=marks))
    assert sim.group_of("a")["spec"]["networkTopology"] == {"mode": "soft", "highestTierAllowed": 2}


def test_a_replica_set_scaled_to_nothing_loses_its_group(sim: Simulated) -> None:
    sim.create(DEPLOYMENTS, deployment(replicas=1))
    sim.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 0}})
    assert sim.names(PODGROUPS) == []


def test_a_replica_set_scaled_up_again_gets_a_group_again(sim: Simulated) -> None:
    sim.create(DEPLOYMENTS, deployment(replicas=1))
    for count in (0, 2):
        sim.patch(DEPLOYMENTS, "web", {"spec": {"replicas": count}})
    assert len(sim.names(PODGROUPS)) == 1


def test_usage_is_named_as_a_quota_names_it() -> None:
    resources = {"requests": {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "2"}, "limits": {"cpu": "1"}}
    spec = {"containers": [{"resources": resources}]}
    assert quota_usage(spec, 2) == {
        "count/pods": "2", "cpu": "1", "limits.cpu": "2", "memory": "2Gi", "nvidia.com/gpu": "4", "pods": "2",
        "requests.cpu": "1", "requests.memory": "2Gi", "requests.nvidia.com/gpu": "4",
    }  # fmt: skip


def containers(*cpus: str, **more: str) -> list[dict[str, Any]]:
    return [{"resources": {"requests": {"cpu": cpu}}, **more} for cpu in cpus]


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": containers("1", "2")}, 3000),
        ({"containers": containers("1"), "initContainers": containers("5", "2")}, 5000),
        ({"containers": containers("1"), "initContainers": containers("2", restartPolicy="Always")}, 3000),
        (
            {
                "containers": containers("1"),
                "initContainers": [*containers("1", restartPolicy="Always"), *containers("4")],
            },
            5000,
        ),
        ({"containers": containers("1"), "overhead": {"cpu": "250m"}}, 1250),
        ({"containers": containers("1"), "resources": {"requests": {"cpu": "4"}}}, 4000),
    ],
)
def test_a_pod_asks_for_what_its_containers_need_at_most(spec: dict[str, Any], cpu: int) -> None:
    assert requests_of(spec) == {"cpu": cpu}


def test_overhead_raises_only_limits_that_are_set() -> None:
    spec = {"containers": [{"resources": {"limits": {"cpu": "1"}}}], "overhead": {"cpu": "1", "memory": "1Gi"}}
    assert limits_of(spec) == {"cpu": 2000}


# --- queues ---------------------------------------------------------------------------------------------------------


def queue_status(sim: Simulated, name: str) -> dict[str, Any]:
    status: dict[str, Any] = sim.get(QUEUES, name, "").get("status") or {}
    return status


def test_default_and_root_queue_are_made(sim: Simulated) -> None:
    assert [each["metadata"]["name"] for each in sim.store.list(QUEUES)] == ["default", "root"]


def test_the_root_queue_cannot_be_reclaimed_from(sim: Simulated) -> None:
    assert sim.get(QUEUES, "root", "")["spec"]["reclaimable"] is False


def test_a_new_queue_is_open_and_below_root(sim: Simulated) -> None:
    sim.create(QUEUES, {"metadata": {"name": "q"}, "spec": {"weight": 2}})
    assert queue_status(sim, "q")["state"] == "Open"
    assert sim.get(QUEUES, "q", "")["spec"]["parent"] == "root"


def test_groups_are_counted_by_phase(sim: Simulated) -> None:
    for name in ("a", "b"):
        sim.create(PODS, pod(name))
    group = sim.group_of("a")
    sim.store.update(PODGROUPS, {**group, "status": {"phase": "Running"}})
    sim.settle()
    status = queue_status(sim, "default")
    assert (status["pending"], status["running"]) == (1, 1)


def test_a_group_that_goes_is_no_longer_counted(sim: Simulated) -> None:
    sim.create(PODS, pod("a"))
    sim.delete(PODS, "a")
    assert queue_status(sim, "default")["pending"] == 0


def test_what_the_scheduler_writes_is_kept(sim: Simulated) -> None:
    sim.store.patch(QUEUES, None, "default", {"status": {"allocated": {"cpu": "4"}}}, "status")
    sim.create(PODS, pod("a"))
    assert queue_status(sim, "default")["allocated"] == {"cpu": "4"}


def command(sim: Simulated, action: str, name: str) -> None:
    target = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "name": name, "uid": "1"}
    sim.store.create(COMMANDS, {"metadata": {"name": f"{action}-{name}".lower()}, "action": action, "target": target})
    sim.settle()


def test_a_closed_queue_without_groups_is_closed(sim: Simulated) -> None:
    sim.create(QUEUES, {"metadata": {"name": "q"}, "spec": {}})
    command(sim, "CloseQueue", "q")
    assert queue_status(sim, "q")["state"] == "Closed"


def test_a_closed_queue_with_groups_is_closing_until_they_are_gone(sim: Simulated) -> None:
    sim.create(PODS, pod("a"))
    command(sim, "CloseQueue", "default")
    assert queue_status(sim, "default")["state"] == "Closing"
    sim.delete(PODS, "a")
    assert queue_status(sim, "default")["state"] == "Closed"


def test_a_command_is_taken_away(sim: Simulated) -> None:
    command(sim, "CloseQueue", "default")
    assert sim.names(COMMANDS) == []


def test_a_closed_queue_opens_again(sim: Simulated) -> None:
    command(sim, "CloseQueue", "default")
    command(sim, "OpenQueue", "default")
    assert queue_status(sim, "default")["state"] == "Open"


def test_root_cannot_be_closed(sim: Simulated) -> None:
    command(sim, "CloseQueue", "root")
    assert queue_status(sim, "root")["state"] == "Open"


def family(sim: Simulated) -> None:
    sim.create(QUEUES, {"metadata": {"name": "top"}, "spec": {}})
    sim.create(QUEUES, {"metadata": {"name": "leaf"}, "spec": {"parent": "top"}})


def test_closing_a_queue_closes_its_children(sim: Simulated) -> None:
    family(sim)
    command(sim, "CloseQueue", "top")
    assert queue_status(sim, "leaf")["state"] == "Closed"


def test_opening_a_queue_opens_the_children_closed_with_it(sim: Simulated) -> None:
    family(sim)
    command(sim, "CloseQueue", "top")
    command(sim, "OpenQueue", "top")
    assert queue_status(sim, "leaf")["state"] == "Open"


def test_opening_a_queue_leaves_children_closed_that_were_before(sim: Simulated) -> None:
    family(sim)
    command(sim, "CloseQueue", "leaf")
    command(sim, "CloseQueue", "top")
    command(sim, "OpenQueue", "top")
    assert queue_status(sim, "leaf")["state"] == "Closed"


def test_a_queue_below_a_closed_one_cannot_be_opened(sim: Simulated) -> None:
    family(sim)
    command(sim, "CloseQueue", "top")
    command(sim, "OpenQueue", "leaf")
    assert queue_status(sim, "leaf")["state"] == "Closed"


@pytest.mark.parametrize(
    ("state", "action", "groups", "after"),
    [
        ("", "", 0, "Open"), ("Open", "", 3, "Open"), ("Open", "CloseQueue", 0, "Closed"),
        ("Open", "CloseQueue", 2, "Closing"), ("Closing", "", 2, "Closing"), ("Closing", "", 0, "Closed"),
        ("Closed", "", 0, "Closed"), ("Closed", "CloseQueue", 2, "Closed"), ("Closed", "OpenQueue", 0, "Open"),
        ("Unknown", "", 0, "Unknown"), ("Odd", "", 0, "Unknown"), ("Unknown", "CloseQueue", 1, "Closing"),
    ],
)  # fmt: skip
def test_queue_states(state: str, action: str, groups: int, after: str) -> None:
    assert state_after(state, action, groups) == after


# --- wrong jobs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"metadata": {"name": "j"}, "spec": {}}, "No task specified"),
        (job(task("a"), task("a")), "duplicated task name a"),
        (job(task("a", 2), minAvailable=3), "should not be greater than total replicas"),
        (job(task("a", 2, minAvailable=3)), "'minAvailable' is greater than 'replicas' in task: a"),
        (job(task("a", policies=[{"event": "OutOfSync", "action": "AbortJob"}])), "invalid policy event 'OutOfSync'"),
        (job(task("a"), policies=[{"event": "PodFailed", "action": "Nope"}]), "invalid policy action 'Nope'"),
        (job(task("a"), policies=[{"exitCode": 0, "action": "AbortJob"}]), "0 is not a valid error code"),
        (job(task("a"), policies=[{"action": "AbortJob"}]), "either event and exitCode"),
        (
            job(task("a"), policies=[{"event": "PodFailed", "exitCode": 1, "action": "AbortJob"}]),
            "must not specify event and exitCode simultaneously",
        ),
        (
            job(task("a"), policies=[{"event": each, "action": "AbortJob"} for each in ("*", "PodFailed")]),
            "no other policy should be here",
        ),
        (job(task("a", dependsOn={"name": ["a"]})), "directed acyclic graph"),
        (job(task("a", dependsOn={"name": ["b"]})), "depends on b, which is no task"),
        (job(task("a"), plugins={"mqi": []}), "unable to find job plugin: mqi"),
        (job(task("a"), volumes=[{"mountPath": "/x"}]), "one of volumeClaim and volumeClaimName"),
        (job(task("a"), volumes=[{"mountPath": "/x", "volumeClaimName": c} for c in "ab"]), "duplicated mountPath: /x"),
        (job(task("a"), policies=[{"event": "PodPending", "action": "AbortJob", "timeout": "soon"}]), "no duration"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_job_stands_in_its_status(sim: Simulated, wrong: dict[str, Any], message: str) -> None:
    sim.create(JOBS, wrong)
    state = sim.get(JOBS, wrong["metadata"]["name"])["status"]["state"]
    assert (state["phase"], state["reason"]) == ("Pending", "Unsupported")
    assert message in state["message"]

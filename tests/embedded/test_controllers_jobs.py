"""Volcano Jobs: pods, group, policies, phases, dependencies, ends."""

from typing import Any

import pytest

from tests.embedded.simulated import JOBS, PODGROUPS, PODS, Simulated, job, pod, task
from vcd.embedded.controllers.controller_base import COMMANDS, annotations_of, labels_of
from vcd.embedded.controllers.jobpods import min_resources
from vcd.embedded.controllers.pod_properties import is_active
from vcd.model.controllers import with_defaults
from vcd.model.jobspec import duration_seconds


@pytest.fixture
def sim() -> Simulated:
    return Simulated()


def status(sim: Simulated, name: str = "j") -> dict[str, Any]:
    found: dict[str, Any] = sim.get(JOBS, name)["status"]
    return found


def phase(sim: Simulated) -> str:
    return str(status(sim)["state"]["phase"])


def running(sim: Simulated, *tasks: dict[str, Any], **spec: Any) -> None:
    """A job whose pods all run."""
    sim.create(JOBS, job(*tasks, **spec))
    sim.run()


def policy(event: str, action: str, **more: Any) -> dict[str, Any]:
    return {"event": event, "action": action, **more}


# --- pods and group -------------------------------------------------------------------------------------------------


def test_a_job_makes_its_group_first(sim: Simulated) -> None:
    made = sim.create(JOBS, job(task("a", 2), queue="default"))
    assert sim.names(PODGROUPS) == [f"j-{made['metadata']['uid']}"]
    assert sim.names() == []


def test_pods_come_once_the_group_is_let_in(sim: Simulated) -> None:
    sim.create(JOBS, job(task("a", 2), task("b", 1)))
    sim.let_in()
    assert sim.names() == ["j-a-0", "j-a-1", "j-b-0"]


def test_pods_carry_volcanos_marks(sim: Simulated) -> None:
    sim.create(JOBS, job(task("a", 2), annotations={"volcano.sh/preemptable": "false", "x/y": "1"}))
    sim.let_in()
    made = sim.get(PODS, "j-a-1")
    uid = sim.get(JOBS, "j")["metadata"]["uid"]
    assert annotations_of(made) == {
        "scheduling.k8s.io/group-name": f"j-{uid}",
        "volcano.sh/job-name": "j",
        "volcano.sh/job-retry-count": "0",
        "volcano.sh/job-version": "0",
        "volcano.sh/preemptable": "false",
        "volcano.sh/queue-name": "default",
        "volcano.sh/task-index": "1",
        "volcano.sh/task-spec": "a",
        "volcano.sh/template-uid": "j-a",
    }
    assert labels_of(made) == {
        "volcano.sh/job-name": "j",
        "volcano.sh/job-namespace": "default",
        "volcano.sh/queue-name": "default",
        "volcano.sh/task-index": "1",
        "volcano.sh/task-spec": "a",
    }


def test_pods_take_scheduler_and_priority_of_the_job(sim: Simulated) -> None:
    sim.store.create("priorityclasses.scheduling.k8s.io", {"metadata": {"name": "high"}, "value": 9})
    one = task("a")
    del one["template"]["spec"]["schedulerName"]
    sim.create(JOBS, job(one, schedulerName="other", priorityClassName="high"))
    sim.let_in()
    spec = sim.get(PODS, "j-a-0")["spec"]
    assert (spec["schedulerName"], spec["priority"]) == ("other", 9)


def test_the_group_follows_the_job(sim: Simulated) -> None:
    marks = {"volcano.sh/card.request": "{}", "mine": "1"}
    sim.create(JOBS, job(task("a", 3, minAvailable=1), task("b"), minAvailable=2, queue="default", annotations=marks,
                         labels={"team": "x"}))  # fmt: skip
    group = sim.store.list(PODGROUPS)[0]
    spec = group["spec"]
    assert (spec["minMember"], spec["minTaskMember"], spec["queue"]) == (2, {"a": 1, "b": 1}, "default")
    assert (annotations_of(group), labels_of(group)) == (marks, {"team": "x"})


def test_env_tells_each_pod_its_index(sim: Simulated) -> None:
    sim.create(JOBS, job(task("a", 2), plugins={"env": []}))
    sim.let_in()
    assert sim.get(PODS, "j-a-1")["spec"]["containers"][0]["env"] == [
        {"name": "VC_TASK_INDEX", "value": "1"},
        {"name": "VK_TASK_INDEX", "value": "1"},
    ]


def test_svc_names_the_pods_and_makes_the_service(sim: Simulated) -> None:
    sim.create(JOBS, job(task("a"), plugins={"svc": []}))
    sim.let_in()
    spec = sim.get(PODS, "j-a-0")["spec"]
    assert (spec["hostname"], spec["subdomain"]) == ("j-a-0", "j")
    assert sim.get("services", "j")["spec"]["clusterIP"] == "None"


CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def test_a_job_makes_the_claims_of_its_volumes(sim: Simulated) -> None:
    sim.create(JOBS, job(task("a"), volumes=[{"mountPath": "/data", "volumeClaim": CLAIM}]))
    sim.let_in()
    (name,) = sim.names("persistentvolumeclaims")
    assert name.startswith("j-pvc-")
    assert sim.get(PODS, "j-a-0")["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == name


def test_a_job_waits_for_the_claim_that_it_names(sim: Simulated) -> None:
    sim.create(JOBS, job(task("a"), volumes=[{"mountPath": "/data", "volumeClaimName": "c"}]))
    assert (sim.names(PODGROUPS), len(sim.messages("PVCError"))) == ([], 1)
    sim.create("persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": CLAIM})
    sim.advance(10)
    assert len(sim.names(PODGROUPS)) == 1


def test_claims_are_mounted(sim: Simulated) -> None:
    sim.create("persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": CLAIM})
    sim.create(JOBS, job(task("a"), volumes=[{"mountPath": "/data", "volumeClaimName": "c"}]))
    sim.let_in()
    spec = sim.get(PODS, "j-a-0")["spec"]
    assert spec["volumes"][0]["persistentVolumeClaim"]["claimName"] == "c"
    assert spec["containers"][0]["volumeMounts"][0]["mountPath"] == "/data"


def test_partitions_are_marked_and_grouped(sim: Simulated) -> None:
    sim.create(JOBS, job(task("a", 4, partitionPolicy={"totalPartitions": 2, "partitionSize": 2, "minPartitions": 1})))
    sim.let_in()
    marks = [labels_of(each)["volcano.sh/partition-id"] for each in sim.store.list(PODS)]
    assert marks == ["0", "0", "1", "1"]
    assert sim.store.list(PODGROUPS)[0]["spec"]["subGroupPolicy"][0]["subGroupSize"] == 2


def test_a_pod_whose_name_is_taken_comes_later(sim: Simulated) -> None:
    sim.create(PODS, pod("j-a-0"))
    sim.create(JOBS, job(task("a", 2)))
    sim.let_in()
    assert sorted(labels_of(each).get("volcano.sh/task-index", "-") for each in sim.store.list(PODS)) == ["-", "1"]


def test_scaling_up_adds_pods(sim: Simulated) -> None:
    running(sim, task("a", 1))
    sim.patch(JOBS, "j", {"spec": {"minAvailable": 1, "tasks": [task("a", 3)]}})
    assert sim.names() == ["j-a-0", "j-a-1", "j-a-2"]


def test_scaling_down_removes_the_last_pods_and_is_no_eviction(sim: Simulated) -> None:
    restart = [policy("PodEvicted", "RestartJob")]
    running(sim, task("a", 3), minAvailable=1, policies=restart)
    sim.patch(JOBS, "j", {"spec": {"tasks": [task("a", 1)]}})
    sim.advance(30)
    assert (sim.names(), phase(sim), status(sim).get("retryCount", 0)) == (["j-a-0"], "Running", 0)


def test_the_group_is_scaled_with_the_job(sim: Simulated) -> None:
    running(sim, task("a", 1))
    sim.patch(JOBS, "j", {"spec": {"minAvailable": 2, "tasks": [task("a", 2)]}})
    spec = sim.store.list(PODGROUPS)[0]["spec"]
    assert (spec["minMember"], spec["minResources"]["cpu"]) == (2, "2")


def test_a_deleted_job_takes_pods_and_group_along(sim: Simulated) -> None:
    running(sim, task("a", 2))
    sim.delete(JOBS, "j")
    sim.advance(30)
    assert (sim.names(), sim.names(PODGROUPS)) == ([], [])


# --- least resources ------------------------------------------------------------------------------------------------


def least_cpu(*tasks: dict[str, Any], **spec: Any) -> str:
    return min_resources(with_defaults(job(*tasks, **spec)), {"": 0, "low": 1, "high": 9}.__getitem__)["cpu"]


def prioritized(name: str, replicas: int, cpu: str, priority: str, **more: Any) -> dict[str, Any]:
    made = task(name, replicas, cpu=cpu, **more)
    made["template"]["spec"]["priorityClassName"] = priority
    return made


def test_all_replicas_count_where_all_are_needed() -> None:
    assert least_cpu(task("a", 2, cpu="1"), task("b", 1, cpu="4")) == "6"


def test_task_minima_count_before_other_replicas() -> None:
    assert least_cpu(task("a", 5, cpu="1", minAvailable=1), task("b", 2, cpu="4"), minAvailable=4) == "10"


def test_replicas_of_higher_priority_fill_up_first() -> None:
    low = prioritized("a", 5, "1", "low", minAvailable=1)
    high = prioritized("b", 5, "10", "high", minAvailable=1)
    assert least_cpu(low, high, minAvailable=3) == "21"


def test_below_the_task_minima_the_first_by_priority_count() -> None:
    low, high = prioritized("a", 5, "1", "low"), prioritized("b", 2, "10", "high")
    assert least_cpu(low, high, minAvailable=3) == "21"


# --- phases ---------------------------------------------------------------------------------------------------------


def test_a_new_job_is_pending(sim: Simulated) -> None:
    sim.create(JOBS, job(task("a", 2)))
    assert phase(sim) == "Pending"
    assert status(sim)["conditions"][0]["status"] == "Pending"


def test_a_job_runs_once_enough_pods_do(sim: Simulated) -> None:
    sim.create(JOBS, job(task("a", 3), minAvailable=2))
    sim.let_in()
    sim.bind("j-a-0")
    sim.advance(1)
    assert phase(sim) == "Pending"
    sim.bind("j-a-1")
    sim.advance(1)
    assert phase(sim) == "Running"


def test_status_counts_pods_in_all_and_by_task(sim: Simulated) -> None:
    sim.create(JOBS, job(task("a", 2), task("b", 1)))
    sim.let_in()
    sim.bind("j-a-0")
    sim.advance(1)
    found = status(sim)
    assert (found["pending"], found["running"], found["minAvailable"]) == (2, 1, 3)
    assert found["taskStatusCount"] == {"a": {"phase": {"Pending": 1, "Running": 1}}, "b": {"phase": {"Pending": 1}}}


def test_a_job_completes_with_its_pods(sim: Simulated) -> None:
    running(sim, task("a", 2, annotations={"vcd.sim/run-seconds": "10"}))
    sim.advance(10)
    assert (phase(sim), status(sim)["succeeded"]) == ("Completed", 2)


def test_a_finished_job_keeps_its_ended_pods_and_loses_its_group(sim: Simulated) -> None:
    running(sim, task("a", 2, annotations={"vcd.sim/run-seconds": "10"}))
    sim.advance(10)
    assert (sim.names(), sim.names(PODGROUPS)) == (["j-a-0", "j-a-1"], [])


def test_a_job_with_too_few_successes_fails(sim: Simulated) -> None:
    running(sim, task("a", 2))
    sim.finish("j-a-0")
    sim.finish("j-a-1", "Failed", 1)
    assert phase(sim) == "Failed"


def test_enough_successes_are_enough(sim: Simulated) -> None:
    running(sim, task("a", 2, minAvailable=1), minAvailable=1)
    sim.finish("j-a-0")
    sim.finish("j-a-1", "Failed", 1)
    assert phase(sim) == "Completed"


def test_a_task_below_its_minimum_fails_the_job(sim: Simulated) -> None:
    running(sim, task("a", 2, minAvailable=1), task("b", 1, minAvailable=1), minAvailable=2)
    sim.finish("j-a-0")
    sim.finish("j-a-1")
    sim.finish("j-b-0", "Failed", 1)
    assert phase(sim) == "Failed"


def test_min_success_completes_the_job_and_stops_the_rest(sim: Simulated) -> None:
    running(sim, task("a", 3), minSuccess=1)
    sim.finish("j-a-0")
    assert phase(sim) == "Completed"
    sim.advance(30)
    assert sim.names() == ["j-a-0"]


def test_a_job_that_lost_too_many_pods_is_pending_again(sim: Simulated) -> None:
    running(sim, task("a", 2))
    sim.delete(PODS, "j-a-0", grace_period=0)
    assert phase(sim) == "Pending"


def test_a_lost_pod_is_made_anew(sim: Simulated) -> None:
    running(sim, task("a", 2))
    old = sim.get(PODS, "j-a-0")["metadata"]["uid"]
    sim.delete(PODS, "j-a-0", grace_period=0)
    assert sim.get(PODS, "j-a-0")["metadata"]["uid"] != old


def test_time_to_live_ends_a_finished_job(sim: Simulated) -> None:
    running(sim, task("a", annotations={"vcd.sim/run-seconds": "10"}), ttlSecondsAfterFinished=100)
    sim.advance(10 + 99)
    assert sim.names(JOBS) == ["j"]
    sim.advance(1)
    assert (sim.names(JOBS), sim.names()) == ([], [])


# --- policies -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "first", "last"),
    [("AbortJob", "Aborting", "Aborted"), ("TerminateJob", "Terminating", "Terminated"),
     ("CompleteJob", "Completing", "Completed")],
)  # fmt: skip
def test_an_action_that_ends_the_job_waits_for_its_pods(sim: Simulated, action: str, first: str, last: str) -> None:
    running(sim, task("a", 2), policies=[policy("PodFailed", action)])
    sim.finish("j-a-0", "Failed", 1)
    assert phase(sim) == first
    sim.advance(30)
    assert (phase(sim), sim.names(), sim.names(PODGROUPS)) == (last, ["j-a-0"], [])


def test_restart_begins_anew(sim: Simulated) -> None:
    running(sim, task("a", 2), policies=[policy("PodFailed", "RestartJob")])
    sim.finish("j-a-0", "Failed", 1)
    assert (phase(sim), status(sim)["retryCount"], status(sim)["version"]) == ("Restarting", 1, 1)
    sim.advance(30)
    sim.run()
    assert (phase(sim), sim.phases()) == ("Running", {"j-a-0": "Running", "j-a-1": "Running"})
    assert annotations_of(sim.get(PODS, "j-a-0"))["volcano.sh/job-version"] == "1"


def test_one_failure_of_several_pods_restarts_once(sim: Simulated) -> None:
    running(sim, task("a", 3), policies=[policy("PodFailed", "RestartJob")])
    for index in range(3):
        sim.store.patch(PODS, "default", f"j-a-{index}", {"status": {"phase": "Failed"}}, "status")
    sim.settle()
    assert status(sim)["retryCount"] == 1


def test_a_job_fails_after_its_last_retry(sim: Simulated) -> None:
    failing = {"vcd.sim/run-seconds": "5", "vcd.sim/exit-code": "1"}
    running(sim, task("a", annotations=failing), maxRetry=2, policies=[policy("PodFailed", "RestartJob")])
    for _ in range(6):
        sim.advance(40)
        sim.run()
    assert (phase(sim), status(sim)["retryCount"]) == ("Failed", 2)
    assert sim.phases() == {"j-a-0": "Failed"}


def test_an_eviction_restarts_the_job_by_policy(sim: Simulated) -> None:
    running(sim, task("a", 2), policies=[policy("PodEvicted", "RestartJob")])
    sim.delete(PODS, "j-a-0", grace_period=0)
    assert phase(sim) == "Restarting"


def test_restarting_pods_are_no_evictions(sim: Simulated) -> None:
    both = {"events": ["PodFailed", "PodEvicted"], "action": "RestartJob"}
    running(sim, task("a", 2), policies=[both])
    sim.finish("j-a-0", "Failed", 1)
    sim.advance(30)
    sim.run()
    assert (phase(sim), status(sim)["retryCount"]) == ("Running", 1)


def test_a_completed_task_completes_the_job_by_policy(sim: Simulated) -> None:
    running(sim, task("master"), task("worker", 2), policies=[policy("TaskCompleted", "CompleteJob")])
    sim.finish("j-master-0")
    sim.advance(30)
    assert (phase(sim), sim.names()) == ("Completed", ["j-master-0"])


def test_a_task_is_completed_only_with_all_its_pods(sim: Simulated) -> None:
    running(sim, task("a", 2), task("b"), policies=[policy("TaskCompleted", "CompleteJob")])
    sim.finish("j-a-0")
    assert phase(sim) == "Running"


def test_the_tasks_own_policy_comes_first(sim: Simulated) -> None:
    own = [policy("PodFailed", "AbortJob")]
    running(sim, task("a", policies=own), task("b"), policies=[policy("PodFailed", "RestartJob")])
    sim.finish("j-a-0", "Failed", 1)
    assert phase(sim) == "Aborting"


def test_any_event_is_matched_by_a_star(sim: Simulated) -> None:
    running(sim, task("a", 2), policies=[policy("*", "TerminateJob")])
    sim.finish("j-a-0", "Failed", 1)
    assert phase(sim) == "Terminating"


def test_a_star_does_not_answer_that_pods_are_new(sim: Simulated) -> None:
    running(sim, task("a", 2), policies=[policy("*", "TerminateJob")])
    assert phase(sim) == "Running"


@pytest.mark.parametrize(("code", "after"), [(3, "Aborting"), (4, "Running")])
def test_an_exit_code_is_matched(sim: Simulated, code: int, after: str) -> None:
    running(sim, task("a", 2), policies=[{"exitCode": 3, "action": "AbortJob"}])
    sim.finish("j-a-0", "Failed", code)
    assert phase(sim) == after


@pytest.mark.parametrize(
    ("action", "kept"),
    [("RestartTask", {"j-b-0"}), ("RestartPod", {"j-a-1", "j-b-0"}), ("RestartPartition", {"j-a-1", "j-b-0"})],
)
def test_a_target_is_restarted_alone(sim: Simulated, action: str, kept: set[str]) -> None:
    split = {"totalPartitions": 2, "partitionSize": 1}
    running(sim, task("a", 2, partitionPolicy=split), task("b"), policies=[policy("PodFailed", action)])
    before = {each["metadata"]["name"]: each["metadata"]["uid"] for each in sim.store.list(PODS)}
    sim.finish("j-a-0", "Failed", 1)
    sim.advance(30)
    after = {each["metadata"]["name"]: each["metadata"]["uid"] for each in sim.store.list(PODS)}
    assert {name for name in before if after.get(name) == before[name]} == kept
    assert set(after) == set(before)


def test_a_restarted_target_keeps_the_group(sim: Simulated) -> None:
    running(sim, task("a", 2), policies=[policy("PodFailed", "RestartPod")])
    group = sim.store.list(PODGROUPS)[0]["metadata"]["uid"]
    sim.finish("j-a-0", "Failed", 1)
    assert [each["metadata"]["uid"] for each in sim.store.list(PODGROUPS)] == [group]


def test_a_policy_with_a_timeout_waits(sim: Simulated) -> None:
    running(sim, task("a", 2), policies=[policy("PodFailed", "AbortJob", timeout="1m30s")])
    sim.finish("j-a-0", "Failed", 1)
    sim.advance(89)
    assert phase(sim) == "Running"
    sim.advance(1)
    assert phase(sim) == "Aborting"


def test_pods_that_are_pending_for_too_long_are_an_event(sim: Simulated) -> None:
    sim.create(JOBS, job(task("a", 2), policies=[policy("PodPending", "AbortJob", timeout="60s")]))
    sim.let_in()
    sim.advance(60)
    assert phase(sim) in ("Aborting", "Aborted")


def test_pods_that_were_started_in_time_are_none(sim: Simulated) -> None:
    running(sim, task("a", 2), policies=[policy("PodPending", "AbortJob", timeout="60s")])
    sim.advance(100)
    assert phase(sim) == "Running"


def test_a_lost_gang_is_an_event(sim: Simulated) -> None:
    running(sim, task("a", 2), policies=[policy("Unknown", "RestartJob")])
    group = sim.store.list(PODGROUPS)[0]
    sim.store.update(PODGROUPS, {**group, "status": {"phase": "Unknown"}})
    sim.settle()
    assert phase(sim) == "Restarting"


def test_containers_that_restart_too_often_are_an_event(sim: Simulated) -> None:
    running(sim, task("a", 2, maxRetry=2), policies=[policy("TaskFailed", "TerminateJob")])
    for name in ("j-a-0", "j-a-1"):
        statuses = sim.get(PODS, name)["status"]["containerStatuses"]
        sim.patch(PODS, name, {"status": {"containerStatuses": [{**statuses[0], "restartCount": 1}]}}, "status")
    assert phase(sim) == "Terminating"


def test_an_action_is_told_in_an_event(sim: Simulated) -> None:
    running(sim, task("a"), policies=[policy("PodFailed", "AbortJob")])
    sim.finish("j-a-0", "Failed", 1)
    assert sim.messages("ExecuteAction")[0].strip() == "Start to execute action AbortJob"


# --- commands -------------------------------------------------------------------------------------------------------


def command(sim: Simulated, action: str) -> None:
    target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "1"}
    sim.store.create(
        COMMANDS, {"metadata": {"name": action.lower(), "namespace": "default"}, "action": action, "target": target}
    )
    sim.settle()


def test_a_command_aborts_a_job(sim: Simulated) -> None:
    running(sim, task("a", 2))
    command(sim, "AbortJob")
    sim.advance(30)
    assert (phase(sim), sim.names()) == ("Aborted", [])


def test_a_command_resumes_an_aborted_job(sim: Simulated) -> None:
    running(sim, task("a", 2))
    command(sim, "AbortJob")
    sim.advance(30)
    command(sim, "ResumeJob")
    sim.run()
    assert phase(sim) == "Running"


# --- dependencies ---------------------------------------------------------------------------------------------------


def test_a_task_waits_for_the_one_that_it_depends_on(sim: Simulated) -> None:
    sim.create(JOBS, job(task("a", 2), task("b", dependsOn={"name": ["a"]})))
    sim.let_in()
    assert sim.names() == ["j-a-0", "j-a-1"]
    sim.run()
    assert sim.names() == ["j-a-0", "j-a-1", "j-b-0"]


def test_the_minimum_of_a_task_is_enough_to_depend_on(sim: Simulated) -> None:
    sim.create(JOBS, job(task("a", 2, minAvailable=1), task("b", dependsOn={"name": ["a"]})))
    sim.let_in()
    sim.bind("j-a-0")
    sim.advance(1)
    assert "j-b-0" in sim.names()


@pytest.mark.parametrize(("iteration", "starts"), [("any", True), ("all", False)])
def test_one_or_all_of_several(sim: Simulated, iteration: str, starts: bool) -> None:
    depends = {"name": ["a", "b"], "iteration": iteration}
    sim.create(JOBS, job(task("a"), task("b"), task("c", dependsOn=depends)))
    sim.let_in()
    sim.bind("j-a-0")
    sim.advance(1)
    assert ("j-c-0" in sim.names()) is starts


# --- refused --------------------------------------------------------------------------------------------------------


def test_what_is_wrong_is_said_in_the_status(sim: Simulated) -> None:
    sim.create(JOBS, job(task("a"), plugins={"mqi": []}))
    state = status(sim)["state"]
    assert (state["phase"], state["reason"]) == ("Pending", "Unsupported")
    assert state["message"].startswith("unable to find job plugin: mqi; there are env, ")


def test_a_job_with_a_plugin_that_nothing_would_read_runs(sim: Simulated) -> None:
    sim.create(JOBS, job(task("a"), plugins={"ssh": [], "mpi": []}))
    sim.let_in()
    assert sim.names() == ["j-a-0"]


def test_a_refused_job_gets_neither_group_nor_pods(sim: Simulated) -> None:
    sim.create(JOBS, job(task("a"), plugins={"mqi": []}))
    sim.let_in()
    assert (sim.names(PODGROUPS), sim.names()) == ([], [])


def test_a_refused_job_is_told_in_one_event(sim: Simulated) -> None:
    sim.create(JOBS, job(task("a"), plugins={"mqi": []}))
    sim.patch(JOBS, "j", {"metadata": {"labels": {"x": "y"}}})
    assert len(sim.messages("Unsupported")) == 1


def test_a_corrected_job_runs(sim: Simulated) -> None:
    sim.create(JOBS, job(task("a"), plugins={"mqi": []}))
    sim.patch(JOBS, "j", {"spec": {"plugins": None}})
    sim.run()
    assert phase(sim) == "Running"
    assert "message" not in status(sim)["state"]


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1h30m", 5400), ("500ms", 0.5), ("1.5s", 1.5)])
def test_durations_are_read_as_go_writes_them(text: str, seconds: float) -> None:
    assert duration_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "1d", "s", "1s x"])
def test_other_texts_are_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        duration_seconds(text)


def test_large_jobs_are_worked_off_quickly() -> None:
    sim = Simulated(cpu="2000", pods="2000", memory="2000Gi")
    sim.create(JOBS, job(task("a", 500, annotations={"vcd.sim/run-seconds": "60"})))
    sim.let_in()
    for name in sim.names():
        sim.store.bind("default", name, {"target": {"name": "n0"}})
    sim.advance(100)
    assert phase(sim) == "Completed"
    assert not any(is_active(each) for each in sim.store.list(PODS))

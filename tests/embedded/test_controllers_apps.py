"""Deployments, ReplicaSets, garbage collection, node taints and disruption budgets."""

from typing import Any

import pytest

from tests.cost.counting import calls_of
from tests.embedded.simulated import DEPLOYMENTS, NODES, PODS, REPLICASETS, Simulated, deployment, pod
from vcd.embedded.controllers.controller_base import annotations_of
from vcd.embedded.controllers.deployment_controller import percent_of, template_hash
from vcd.embedded.controllers.pod_properties import is_active, is_ready
from vcd.embedded.resource_types import PDBS

CONFIGMAPS = "configmaps"


@pytest.fixture
def sim() -> Simulated:
    return Simulated()


def rolled_out(sim: Simulated, **given: Any) -> None:
    sim.create(DEPLOYMENTS, deployment(**given))
    sim.run()


def replicas(sim: Simulated) -> dict[str, int]:
    """Wanted replicas by image."""
    return {
        each["spec"]["template"]["spec"]["containers"][0]["image"]: each["spec"]["replicas"]
        for each in sim.store.list(REPLICASETS)
    }


def available(sim: Simulated) -> int:
    return sum(is_ready(each) and is_active(each) for each in sim.store.list(PODS))


# --- Deployment -----------------------------------------------------------------------------------------------------


def test_a_deployment_makes_its_pods(sim: Simulated) -> None:
    sim.create(DEPLOYMENTS, deployment(replicas=3))
    assert len(sim.names()) == 3


def test_pods_carry_the_template_hash(sim: Simulated) -> None:
    sim.create(DEPLOYMENTS, deployment(replicas=1))
    labels = sim.store.list(PODS)[0]["metadata"]["labels"]
    assert sim.names(REPLICASETS) == [f"web-{labels['pod-template-hash']}"]


def test_annotations_of_a_deployment_reach_its_replica_set(sim: Simulated) -> None:
    sim.create(DEPLOYMENTS, deployment(annotations={"volcano.sh/card.name": "A"}))
    assert annotations_of(sim.store.list(REPLICASETS)[0])["volcano.sh/card.name"] == "A"


def test_status_counts_what_runs(sim: Simulated) -> None:
    rolled_out(sim, replicas=2)
    status = sim.get(DEPLOYMENTS, "web")["status"]
    assert (status["replicas"], status["readyReplicas"], status["availableReplicas"]) == (2, 2, 2)
    assert "unavailableReplicas" not in status


def test_a_deployment_is_available_once_enough_pods_are(sim: Simulated) -> None:
    def condition() -> str:
        found = sim.get(DEPLOYMENTS, "web")["status"]["conditions"]
        return next(each["status"] for each in found if each["type"] == "Available")

    sim.create(DEPLOYMENTS, deployment(replicas=2))
    assert condition() == "False"
    sim.run()
    assert condition() == "True"


def progress(sim: Simulated) -> tuple[str, str]:
    found = sim.get(DEPLOYMENTS, "web")["status"]["conditions"]
    return next((each["status"], each["reason"]) for each in found if each["type"] == "Progressing")


def test_a_deployment_is_in_progress_until_its_pods_run(sim: Simulated) -> None:
    sim.create(DEPLOYMENTS, deployment(replicas=1))
    sim.advance(60)
    assert progress(sim) == ("True", "ReplicaSetUpdated")
    sim.run()
    assert progress(sim) == ("True", "NewReplicaSetAvailable")


def test_a_complete_deployment_stays_so_when_it_loses_a_pod(sim: Simulated) -> None:
    rolled_out(sim, replicas=2)
    sim.delete(PODS, sim.names()[0], grace_period=0)
    sim.advance(100)
    assert progress(sim) == ("True", "NewReplicaSetAvailable")


def test_scaling_up_adds_pods(sim: Simulated) -> None:
    rolled_out(sim, replicas=1)
    sim.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 4}})
    assert len(sim.names()) == 4


def test_scaling_down_removes_pods_that_do_not_run_first(sim: Simulated) -> None:
    rolled_out(sim, replicas=2)
    running = set(sim.names())
    sim.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 4}})
    sim.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 2}})
    assert set(sim.names()) == running


def test_a_deleted_pod_is_replaced(sim: Simulated) -> None:
    rolled_out(sim, replicas=1)
    old = sim.names()[0]
    sim.delete(PODS, old)
    active = [each["metadata"]["name"] for each in sim.store.list(PODS) if is_active(each)]
    assert len(active) == 1
    assert active != [old]


def test_a_failed_pod_is_replaced(sim: Simulated) -> None:
    rolled_out(sim, replicas=1)
    sim.finish(sim.names()[0], "Failed", 1)
    assert sorted(sim.phases().values()) == ["Failed", "Pending"]


def test_a_new_template_starts_a_roll_within_its_bounds(sim: Simulated) -> None:
    rolled_out(sim, replicas=4)
    sim.store.update(DEPLOYMENTS, deployment(replicas=4, image="new"))
    sim.settle()
    assert replicas(sim) == {"i": 3, "new": 2}


def test_a_roll_ends_with_new_pods_only(sim: Simulated) -> None:
    rolled_out(sim, replicas=4)
    sim.store.update(DEPLOYMENTS, deployment(replicas=4, image="new"))
    for _ in range(6):
        sim.run()
        sim.advance(30)
    images = {each["spec"]["containers"][0]["image"] for each in sim.store.list(PODS)}
    assert (images, len(sim.names())) == ({"new"}, 4)


@pytest.mark.parametrize(("surge", "unavailable"), [(0, 1), (1, 0), (2, 2), ("50%", 0)])
def test_a_roll_never_leaves_its_bounds(sim: Simulated, surge: int | str, unavailable: int) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
    rolled_out(sim, replicas=4, strategy=strategy)
    sim.store.update(DEPLOYMENTS, deployment(replicas=4, image="new", strategy=strategy))
    most = 4 + percent_of(surge, 4, round_up=True)
    for _ in range(40):
        sim.run()
        active = sum(is_active(each) for each in sim.store.list(PODS))
        assert active <= most
        assert available(sim) >= 4 - unavailable
    assert replicas(sim) == {"i": 0, "new": 4}


def test_recreate_waits_for_the_old_pods_to_be_gone(sim: Simulated) -> None:
    recreate = {"type": "Recreate"}
    rolled_out(sim, replicas=2, strategy=recreate)
    sim.store.update(DEPLOYMENTS, deployment(replicas=2, image="new", strategy=recreate))
    sim.advance(29)
    assert {each["spec"]["containers"][0]["image"] for each in sim.store.list(PODS)} == {"i"}
    sim.advance(1)
    assert {each["spec"]["containers"][0]["image"] for each in sim.store.list(PODS)} == {"new"}


def test_recreate_does_not_wait_for_pods_that_ended(sim: Simulated) -> None:
    recreate = {"type": "Recreate"}
    rolled_out(sim, replicas=1, strategy=recreate)
    sim.finish(sim.names()[0], "Failed")
    sim.store.update(DEPLOYMENTS, deployment(replicas=1, image="new", strategy=recreate))
    sim.advance(30)
    assert replicas(sim) == {"i": 0, "new": 1}


def test_replacing_a_pod_costs_the_same_however_many_ended(sim: Simulated) -> None:
    rolled_out(sim, replicas=2)

    def replace(times: int) -> int:
        calls = 0
        for _ in range(times):
            running = next(name for name, phase in sim.phases().items() if phase == "Running")
            calls += calls_of(lambda name=running: sim.finish(name, "Failed")).total()  # type: ignore[misc]
            sim.run()
        return calls

    replace(5)
    first, second = replace(10), replace(10)
    assert second - first < 10  # a look at each of the ended pods would make 100 more; a cache miss makes one


def test_a_paused_deployment_does_not_roll(sim: Simulated) -> None:
    rolled_out(sim, replicas=2)
    sim.store.update(DEPLOYMENTS, deployment(replicas=2, image="new", paused=True))
    sim.settle()
    assert replicas(sim) == {"i": 2}


def test_a_paused_deployment_is_scaled(sim: Simulated) -> None:
    rolled_out(sim, replicas=2)
    sim.store.update(DEPLOYMENTS, deployment(replicas=5, image="new", paused=True))
    sim.settle()
    assert replicas(sim) == {"i": 5}


def test_scaling_in_the_middle_of_a_roll_stays_within_the_bounds(sim: Simulated) -> None:
    rolled_out(sim, replicas=10)
    sim.store.update(DEPLOYMENTS, deployment(replicas=10, image="new"))
    sim.settle()
    sim.store.update(DEPLOYMENTS, deployment(replicas=20, image="new"))
    sim.settle()
    assert sum(replicas(sim).values()) == 25
    sim.store.update(DEPLOYMENTS, deployment(replicas=4, image="new"))
    for _ in range(20):
        sim.run()
    assert {image: count for image, count in replicas(sim).items() if count} == {"new": 4}


def test_old_replica_sets_beyond_the_limit_go(sim: Simulated) -> None:
    for image in ("a", "b", "c"):
        spec = deployment(replicas=0, image=image, revisionHistoryLimit=1)
        if sim.names(DEPLOYMENTS):
            sim.store.update(DEPLOYMENTS, spec)
        else:
            sim.store.create(DEPLOYMENTS, spec)
        sim.advance(1)
    assert set(replicas(sim)) == {"b", "c"}


def test_revisions_count_up(sim: Simulated) -> None:
    rolled_out(sim, replicas=1)
    sim.store.update(DEPLOYMENTS, deployment(replicas=1, image="new"))
    sim.settle()
    assert annotations_of(sim.get(DEPLOYMENTS, "web"))["deployment.kubernetes.io/revision"] == "2"


def test_a_refused_pod_is_reported(sim: Simulated) -> None:
    spec = deployment(replicas=1)
    spec["spec"]["template"]["spec"]["priorityClassName"] = "absent"
    sim.create(DEPLOYMENTS, spec)
    condition = sim.store.list(REPLICASETS)[0]["status"]["conditions"][0]
    assert condition["type"] == "ReplicaFailure"
    assert "no PriorityClass with name absent" in sim.messages("FailedCreate")[0]


def test_a_refused_pod_is_tried_again(sim: Simulated) -> None:
    spec = deployment(replicas=1)
    spec["spec"]["template"]["spec"]["priorityClassName"] = "late"
    sim.create(DEPLOYMENTS, spec)
    sim.store.create("priorityclasses.scheduling.k8s.io", {"metadata": {"name": "late"}, "value": 5})
    sim.advance(60)
    assert sim.store.list(PODS)[0]["spec"]["priority"] == 5


def test_equal_templates_have_equal_hashes() -> None:
    assert template_hash({"a": 1, "b": 2}) == template_hash({"b": 2, "a": 1})


def test_a_count_is_no_percentage() -> None:
    with pytest.raises(ValueError, match="percentage"):
        percent_of("three", 10, round_up=True)


# --- garbage collection ---------------------------------------------------------------------------------------------


def owned(sim: Simulated, name: str, *owners: str) -> None:
    refs = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner,
            "uid": sim.get(CONFIGMAPS, owner)["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }
        for owner in owners
    ]
    sim.create(CONFIGMAPS, {"metadata": {"name": name, "ownerReferences": refs}})


def test_what_a_deleted_object_owned_goes_with_it(sim: Simulated) -> None:
    rolled_out(sim, replicas=2)
    sim.delete(DEPLOYMENTS, "web")
    sim.advance(30)
    assert (sim.names(REPLICASETS), sim.names()) == ([], [])


def test_an_object_with_another_owner_left_stays(sim: Simulated) -> None:
    for name in ("a", "b"):
        sim.create(CONFIGMAPS, {"metadata": {"name": name}})
    owned(sim, "c", "a", "b")
    sim.delete(CONFIGMAPS, "a")
    refs = sim.get(CONFIGMAPS, "c")["metadata"]["ownerReferences"]
    assert [ref["name"] for ref in refs] == ["b"]


def test_an_object_created_for_an_owner_that_is_gone_goes(sim: Simulated) -> None:
    ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "0-0-0"}
    sim.store.create(CONFIGMAPS, {"metadata": {"name": "c", "ownerReferences": [ref]}})
    sim.settle()
    assert sim.names(CONFIGMAPS) == []


def test_an_owner_of_an_unknown_kind_is_not_taken_for_gone(sim: Simulated) -> None:
    ref = {"apiVersion": "x.example/v1", "kind": "Thing", "name": "t", "uid": "0-0-0"}
    sim.create(CONFIGMAPS, {"metadata": {"name": "c", "ownerReferences": [ref]}})
    assert sim.names(CONFIGMAPS) == ["c"]


def test_foreground_deletion_waits_for_the_dependents(sim: Simulated) -> None:
    rolled_out(sim, replicas=1)
    sim.delete(DEPLOYMENTS, "web", propagation="Foreground")
    assert sim.names(DEPLOYMENTS) == ["web"]
    sim.advance(30)
    assert sim.names(DEPLOYMENTS) == []


def test_orphaning_deletion_keeps_the_dependents(sim: Simulated) -> None:
    rolled_out(sim, replicas=1)
    sim.delete(REPLICASETS, sim.names(REPLICASETS)[0], propagation="Orphan")
    sim.store.delete(DEPLOYMENTS, "default", "web", propagation="Orphan")
    orphans = [each for each in sim.store.list(PODS) if not each["metadata"].get("ownerReferences")]
    assert len(orphans) == 1


def test_objects_of_a_kind_defined_later_are_collected(sim: Simulated) -> None:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    names = {"plural": "things", "kind": "Thing", "singular": "thing"}
    sim.create(
        "customresourcedefinitions.apiextensions.k8s.io",
        {
            "metadata": {"name": "things.x.example"},
            "spec": {"group": "x.example", "names": names, "scope": "Namespaced", "versions": [version]},
        },
    )
    sim.create(CONFIGMAPS, {"metadata": {"name": "a"}})
    ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": sim.get(CONFIGMAPS, "a")["metadata"]["uid"]}
    sim.create(
        "things.x.example",
        {"apiVersion": "x.example/v1", "kind": "Thing", "metadata": {"name": "t", "ownerReferences": [ref]}},
    )
    sim.delete(CONFIGMAPS, "a")
    assert sim.names("things.x.example") == []


def test_pods_of_a_vanished_node_go(sim: Simulated) -> None:
    sim.create(PODS, pod("a"))
    sim.bind("a")
    sim.advance(1)
    sim.store.delete(NODES, None, "n0")
    sim.advance(39)
    assert sim.names() == ["a"]
    sim.advance(1)
    assert sim.names() == []


def test_pods_of_a_node_that_comes_back_stay(sim: Simulated) -> None:
    sim.create(PODS, pod("a"))
    sim.bind("a")
    sim.advance(1)
    sim.store.delete(NODES, None, "n0")
    sim.advance(20)
    sim.create(NODES, {"metadata": {"name": "n0"}, "status": {"capacity": {"cpu": "4", "memory": "4Gi"}}})
    sim.advance(60)
    assert sim.names() == ["a"]


def test_a_deleted_namespace_takes_its_objects_along(sim: Simulated) -> None:
    sim.create("namespaces", {"metadata": {"name": "x"}})
    spec = deployment(replicas=1)
    spec["metadata"]["namespace"] = "x"
    sim.store.create(DEPLOYMENTS, spec)
    sim.settle()
    sim.store.delete("namespaces", None, "x")
    sim.settle()
    assert "x" not in [each["metadata"]["name"] for each in sim.store.list("namespaces")]


# --- node taints ----------------------------------------------------------------------------------------------------


def taints(sim: Simulated) -> set[str]:
    return {taint["key"] for taint in sim.get(NODES, "n0", "")["spec"].get("taints", [])}


def test_a_cordoned_node_is_tainted(sim: Simulated) -> None:
    sim.store.patch(NODES, None, "n0", {"spec": {"unschedulable": True}})
    sim.settle()
    assert taints(sim) == {"node.kubernetes.io/unschedulable"}


def test_an_uncordoned_node_loses_the_taint(sim: Simulated) -> None:
    for unschedulable in (True, None):
        sim.store.patch(NODES, None, "n0", {"spec": {"unschedulable": unschedulable}})
        sim.settle()
    assert taints(sim) == set()


def test_a_node_that_is_not_ready_is_tainted_beside_its_own_taints(sim: Simulated) -> None:
    own = {"key": "mine", "effect": "NoSchedule"}
    sim.store.patch(NODES, None, "n0", {"spec": {"taints": [own]}})
    down = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    sim.store.patch(NODES, None, "n0", down, "status")
    sim.settle()
    assert taints(sim) == {"mine", "node.kubernetes.io/not-ready"}


# --- disruption budgets ---------------------------------------------------------------------------------------------


def budget(sim: Simulated, **spec: Any) -> dict[str, Any]:
    full = {"selector": {"matchLabels": {"app": "web"}}, **spec}
    sim.create(PDBS, {"metadata": {"name": "b"}, "spec": full})
    status: dict[str, Any] = sim.get(PDBS, "b")["status"]
    return status


def test_a_budget_allows_what_is_above_the_minimum(sim: Simulated) -> None:
    rolled_out(sim, replicas=3)
    assert budget(sim, minAvailable=2)["disruptionsAllowed"] == 1


@pytest.mark.parametrize(
    ("spec", "allowed"), [({"minAvailable": "50%"}, 1), ({"maxUnavailable": 1}, 1), ({"maxUnavailable": "50%"}, 2)]
)
def test_shares_are_of_the_replicas_wanted(sim: Simulated, spec: dict[str, Any], allowed: int) -> None:
    rolled_out(sim, replicas=3)
    assert budget(sim, **spec)["disruptionsAllowed"] == allowed


def test_only_ready_pods_are_healthy(sim: Simulated) -> None:
    sim.create(DEPLOYMENTS, deployment(replicas=3))
    status = budget(sim, minAvailable=1)
    assert (status.get("currentHealthy", 0), status["disruptionsAllowed"]) == (0, 0)


def test_an_eviction_uses_the_budget_up(sim: Simulated) -> None:
    rolled_out(sim, replicas=2)
    budget(sim, minAvailable=1)
    sim.store.evict("default", sim.names()[0], {})
    sim.settle()
    assert sim.get(PDBS, "b")["status"]["disruptionsAllowed"] == 0


def test_pods_whose_controller_has_no_scale_allow_no_disruption(sim: Simulated) -> None:
    ref = {"apiVersion": "x/v1", "kind": "Thing", "name": "t", "uid": "1", "controller": True}
    made = pod("a", labels={"app": "web"})
    made["metadata"]["ownerReferences"] = [ref]
    sim.create(PODS, made)
    condition = budget(sim, maxUnavailable=1)["conditions"][0]
    assert (condition["reason"], condition["status"]) == ("SyncFailed", "False")
    assert "Thing t" in condition["message"]


def test_ended_pods_are_not_expected(sim: Simulated) -> None:
    sim.create(PODS, pod("a", labels={"app": "web"}))
    sim.finish("a")
    assert budget(sim, minAvailable=1).get("expectedPods", 0) == 0


def test_a_forgotten_disruption_counts_again(sim: Simulated) -> None:
    rolled_out(sim, replicas=2)
    budget(sim, minAvailable=1)
    stuck = {"status": {"disruptedPods": {sim.names()[0]: "2023-11-14T22:13:20Z"}}}
    sim.patch(PDBS, "b", stuck, "status")
    assert sim.get(PDBS, "b")["status"]["disruptionsAllowed"] == 0
    sim.advance(121)
    assert sim.get(PDBS, "b")["status"]["disruptionsAllowed"] == 1

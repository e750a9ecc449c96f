"""The store's rules for one object: creating, changing, deleting, telling."""

from __future__ import annotations

from typing import Any

import pytest

from tests.embedded.serving import config_map, make_store, pod, queue
from vcd.embedded.status_errors import StatusError
from vcd.embedded.store import Store

QUEUES = "queues.scheduling.volcano.sh"
GROUPS = "podgroups.scheduling.volcano.sh"
PDBS = "poddisruptionbudgets.policy"


@pytest.fixture
def store() -> Store:
    return make_store()


def code(error: pytest.ExceptionInfo[StatusError]) -> int:
    return error.value.code


def test_a_seeded_store_makes_the_same_names_and_uids() -> None:
    first, second = (make_store().create("pods", {"metadata": {"generateName": "a-"}, "spec": pod("x")["spec"]})
                     for _ in range(2))  # fmt: skip
    assert first == second
    assert first["metadata"]["name"].startswith("a-")


def test_the_callers_object_is_not_kept(store: Store) -> None:
    mine = pod("a")
    store.create("pods", mine)
    mine["spec"]["containers"][0]["image"] = "changed"
    assert store.get("pods", "default", "a")["spec"]["containers"][0]["image"] == "busybox"


def test_a_stored_object_is_never_changed_in_place(store: Store) -> None:
    before = store.create("pods", pod("a"))
    version = before["metadata"]["resourceVersion"]
    store.patch("pods", "default", "a", {"metadata": {"labels": {"x": "y"}}})
    assert before["metadata"]["resourceVersion"] == version
    assert "x" not in before["metadata"]["labels"]


def test_generation_counts_specification_not_status_nor_labels(store: Store) -> None:
    store.create(QUEUES, queue("q", weight=2))
    store.patch(QUEUES, None, "q", {"status": {"state": "Open"}}, "status")
    store.patch(QUEUES, None, "q", {"metadata": {"labels": {"a": "b"}}})
    assert store.get(QUEUES, None, "q")["metadata"]["generation"] == 1
    assert store.patch(QUEUES, None, "q", {"spec": {"weight": 3}})["metadata"]["generation"] == 2


def test_subscribers_hear_each_change_of_their_resources_only(store: Store) -> None:
    heard: list[tuple[str, str, str]] = []
    end = store.subscribe(["pods"], lambda kind, resource, obj: heard.append((kind, resource, obj["metadata"]["name"])))
    store.create("pods", pod("a"))
    store.create("configmaps", config_map("c"))
    store.patch("pods", "default", "a", {"metadata": {"labels": {"x": "y"}}})
    end()
    store.create("pods", pod("b"))
    assert heard == [("ADDED", "pods", "a"), ("MODIFIED", "pods", "a")]


@pytest.mark.parametrize(
    ("made", "field"),
    [
        (pod("Upper"), "metadata.name"),
        ({**pod("a"), "metadata": {}}, "metadata.name"),
        ({**pod("a"), "spec": {"containers": [{"name": "c"}]}}, "spec.containers[0].image"),
        ({**pod("a"), "metadata": {"name": "a", "labels": {"-": "x"}}}, "metadata.labels"),
        (pod("a", restartPolicy="Sometimes"), "spec.restartPolicy"),
    ],
)
def test_invalid_objects_are_refused_by_field(store: Store, made: dict[str, Any], field: str) -> None:
    with pytest.raises(StatusError) as error:
        store.create("pods", made)
    assert code(error) == 422
    assert [cause["field"] for cause in error.value.status()["details"]["causes"]] == [field]


def test_requests_beyond_limits_are_refused(store: Store) -> None:
    made = pod("a")
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}, "limits": {"cpu": "1500m"}}
    with pytest.raises(StatusError, match="must be less than or equal to cpu limit"):
        store.create("pods", made)


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1000m", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1024Mi"}}, "Guaranteed"),
    ],
)
def test_quality_of_service(store: Store, resources: dict[str, Any], expected: str) -> None:
    made = pod("a")
    made["spec"]["containers"][0]["resources"] = resources
    assert store.create("pods", made)["status"]["qosClass"] == expected


def test_the_global_default_priority_class_applies(store: Store) -> None:
    store.create("priorityclasses.scheduling.k8s.io", {"metadata": {"name": "d"}, "value": 7, "globalDefault": True})
    spec = store.create("pods", pod("a"))["spec"]
    assert (spec["priorityClassName"], spec["priority"]) == ("d", 7)


def test_a_pod_can_be_replaced_by_its_own_manifest(store: Store) -> None:
    store.create("pods", pod("a"))
    changed = pod("a")
    changed["spec"]["containers"][0]["image"] = "other"
    assert store.update("pods", changed)["spec"]["containers"][0]["image"] == "other"


def test_a_gate_can_go_but_not_come(store: Store) -> None:
    store.create("pods", pod("a", schedulingGates=[{"name": "x/y"}]))
    assert "schedulingGates" not in store.patch("pods", "default", "a", {"spec": {"schedulingGates": None}})["spec"]
    with pytest.raises(StatusError, match="only deletion is allowed"):
        store.patch("pods", "default", "a", {"spec": {"schedulingGates": [{"name": "x/y"}]}})


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("1024Mi", "1Gi"), ("1.5Gi", "1536Mi"), ("0.5", "500m"), ("1500m", "1500m"), ("2000", "2k"), ("1e3", "1e3"),
        ("1E", "1E"), ("0Gi", "0"), ("512Ki", "512Ki"), ("0.5Ki", "512"), ("1.5Ki", "1536"), ("0.1n", "1n"), (2, "2"),
        ("100M", "100M"), ("1000m", "1"), ("-1", "-1"), ("0.0001Gi", "107375"),
    ],
)  # fmt: skip
def test_quantities_are_kept_in_canonical_form(store: Store, written: Any, kept: str) -> None:
    made = store.create("resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"memory": written}}})
    assert made["spec"]["hard"]["memory"] == kept


# --- binding and eviction -------------------------------------------------------------------------------------------


def bound(store: Store, name: str = "a", phase: str = "Running", **spec: Any) -> dict[str, Any]:
    store.create("pods", pod(name, **spec))
    store.bind("default", name, {"target": {"name": "n1"}})
    ready = [{"type": "Ready", "status": "True"}]
    return store.patch("pods", "default", name, {"status": {"phase": phase, "conditions": ready}}, "status")


def test_binding_carries_annotations_over(store: Store) -> None:
    store.create("pods", pod("a"))
    store.bind("default", "a", {"metadata": {"annotations": {"x": "y"}}, "target": {"name": "n1"}})
    made = store.get("pods", "default", "a")
    assert (made["metadata"]["annotations"], made["spec"]["nodeName"]) == ({"x": "y"}, "n1")


def budget(store: Store, allowed: int, **status: int) -> None:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
    store.create(PDBS, {"metadata": {"name": "b"}, "spec": spec})
    written = {"observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1}
    store.patch(PDBS, "default", "b", {"status": {**written, **status}}, "status")


def test_an_eviction_spends_the_budget(store: Store) -> None:
    bound(store)
    budget(store, 1)
    store.evict("default", "a", {})
    status = store.get(PDBS, "default", "b")["status"]
    assert status["disruptionsAllowed"] == 0
    assert list(status["disruptedPods"]) == ["a"]
    assert "deletionTimestamp" in store.get("pods", "default", "a")["metadata"]


def test_an_eviction_waits_for_a_budget_that_nobody_has_counted(store: Store) -> None:
    bound(store)
    budget(store, 1, observedGeneration=0)
    with pytest.raises(StatusError) as error:
        store.evict("default", "a", {})
    assert (code(error), error.value.headers) == (429, {"Retry-After": "10"})


def test_a_finished_pod_is_evicted_whatever_the_budget_says(store: Store) -> None:
    bound(store, phase="Succeeded")
    budget(store, 0)
    store.evict("default", "a", {})
    assert store.list("pods") == []


def test_two_budgets_for_one_pod_are_an_error(store: Store) -> None:
    bound(store)
    budget(store, 1)
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
    store.create(PDBS, {"metadata": {"name": "c"}, "spec": spec})
    with pytest.raises(StatusError, match="more than one PodDisruptionBudget"):
        store.evict("default", "a", {})


# --- deleting -------------------------------------------------------------------------------------------------------


def test_a_second_delete_can_only_shorten_the_grace(store: Store) -> None:
    bound(store)
    store.delete("pods", "default", "a", grace_period=20)
    assert store.delete("pods", "default", "a", grace_period=25)["metadata"]["deletionGracePeriodSeconds"] == 20
    assert store.delete("pods", "default", "a", grace_period=5)["metadata"]["deletionGracePeriodSeconds"] == 5


def test_a_pod_with_a_finalizer_goes_with_it(store: Store) -> None:
    store.create("pods", {**pod("a"), "metadata": {"name": "a", "finalizers": ["x/y"]}})
    store.delete("pods", "default", "a")
    assert len(store.list("pods")) == 1
    store.patch("pods", "default", "a", {"metadata": {"finalizers": None}})
    assert store.list("pods") == []


def test_foreground_deletion_waits_only_where_somebody_collects_garbage(store: Store) -> None:
    store.create("configmaps", config_map("c"))
    store.delete("configmaps", "default", "c", propagation="Foreground")
    assert store.list("configmaps") == []
    store.garbage_collected = True
    store.create("configmaps", config_map("c"))
    doomed = store.delete("configmaps", "default", "c", propagation="Foreground")
    assert doomed["metadata"]["finalizers"] == ["foregroundDeletion"]


# --- custom resources -----------------------------------------------------------------------------------------------


def definition(**version: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {
                    "size": {"type": "integer", "minimum": 1}, "color": {"type": "string", "enum": ["red", "blue"]},
                }, "required": ["size"]}}}}, **version}],
        },
    }  # fmt: skip


CRDS = "customresourcedefinitions.apiextensions.k8s.io"


def test_a_definition_serves_its_kind_and_ends_with_it(store: Store) -> None:
    made = store.create(CRDS, definition())
    assert [each["type"] for each in made["status"]["conditions"]] == ["NamesAccepted", "Established"]
    store.create("widgets.example.com", {"metadata": {"name": "w"}, "spec": {"size": 1}})
    store.delete(CRDS, None, "widgets.example.com")
    with pytest.raises(StatusError) as error:
        store.list("widgets.example.com")
    assert code(error) == 404


@pytest.mark.parametrize(
    ("spec", "field", "text"),
    [
        ({"size": 0}, "spec.size", "should be greater than or equal to 1"),
        ({"size": "x"}, "spec.size", "must be of type integer"),
        ({"size": 1, "color": "green"}, "spec.color", 'supported values: "red", "blue"'),
        ({}, "spec.size", "Required value"),
    ],
)
def test_a_custom_resource_is_checked_by_its_schema(store: Store, spec: dict[str, Any], field: str, text: str) -> None:
    store.create(CRDS, definition())
    with pytest.raises(StatusError) as error:
        store.create("widgets.example.com", {"metadata": {"name": "w"}, "spec": spec})
    (cause,) = error.value.status()["details"]["causes"]
    assert cause["field"] == field
    assert text in cause["message"]


def test_volcano_defaults_are_filled_in(store: Store) -> None:
    assert store.create(GROUPS, {"metadata": {"name": "g"}, "spec": {}})["spec"] == {"queue": "default"}

"""What plans and what-ifs do with objects that an API server would store otherwise, or refuse."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import BY_QUEUE, gang, group, node, planned, pod, priority_class, queue
from tests.dsl import policy_of as policy
from tests.plugins.opened import conf
from vcd.model.projection_codec import BadObject
from vcd.state.records import Settings
from vcd.timetravel import planning
from vcd.timetravel.planning import state_of
from vcd.timetravel.whatif.submitted_groups import submitted

Manifest = dict[str, Any]
ALLOCATE = 'actions: "allocate, backfill"\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n'
FULL = BY_QUEUE.replace("capacity", "proportion")
CREATED = "2026-01-01T00:00:00Z"


def limit_range(name: str = "l", kind: str = "Container", namespace: str = "default", **item: Any) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"limits": [{"type": kind, **item}]},
    }


def work(kind: str, replicas: int = 1, least: int | None = None, **resources: Manifest) -> list[Manifest]:
    """Pods of one container: bare, of a Deployment, or of a Volcano Job."""
    template = {"spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}}
    if kind == "Pod":
        bare = {"apiVersion": "v1", "kind": "Pod", "spec": template["spec"]}
        return [{**bare, "metadata": {"name": f"w-{number}"}} for number in range(replicas)]
    if kind == "Deployment":
        spec: Manifest = {"replicas": replicas, "template": template}
        return [{"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "w"}, "spec": spec}]
    spec = {"minAvailable": replicas if least is None else least}
    spec["tasks"] = [{"name": "t", "replicas": replicas, "template": template}]
    return [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "w"}, "spec": spec}]


KINDS = ["Pod", "Deployment", "Job"]

# --- LimitRange -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("item", [{"defaultRequest": {"cpu": "2"}}, {"default": {"cpu": "2"}}, {"max": {"cpu": "2"}}])
def test_default_requests_count(kind: str, size: int, item: Manifest) -> None:
    made = work(kind, size + 1, least=1)
    result = planned(node("n", cpu=2 * size), limit_range(**item), *made, conf=ALLOCATE)
    assert (len(result.binds), result.notes) == (size, [])
    elsewhere = limit_range(namespace="other", **item)
    assert len(planned(node("n", cpu=2 * size), elsewhere, *made, conf=ALLOCATE).binds) == size + 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("of_type", "item", "message"),
    [
        ("Container", {"max": {"cpu": "1"}}, "maximum cpu usage per Container is 1, but limit is 2"),
        ("Pod", {"max": {"cpu": "1"}}, "maximum cpu usage per Pod is 1, but limit is 2"),
        ("Container", {"min": {"cpu": "3"}}, "minimum cpu usage per Container is 3, but request is 2"),
    ],
)
def test_pods_out_of_bounds_are_not_placed(kind: str, of_type: str, item: Manifest, message: str) -> None:
    made = work(kind, 2, limits={"cpu": "2"})
    result = planned(node("n", cpu=64), limit_range(kind=of_type, **item), *made, conf=ALLOCATE)
    names = {"Pod": "default/w-0, default/w-1", "Deployment": "default/w-0, default/w-1"}
    refused = names.get(kind, "default/w-t-0, default/w-t-1")
    assert (result.binds, result.refused) == (
        {},
        [f"the API server refuses 2 pods ({refused}): LimitRange l: {message}"],
    )
    assert list(result.phases) == (["default/w-job-w"] if kind == "Job" else [])


def test_the_minimum_of_a_deployments_group_has_the_defaults() -> None:
    state = state_of([limit_range(default={"cpu": "2"}), *work("Deployment", 3)])
    (record,) = state.groups.values()
    assert (record.group.spec.min_resources or {})["cpu"] == "2"


def test_pods_that_an_api_server_has_stored_keep_what_they_request() -> None:
    limits = limit_range(default={"cpu": "9"})
    stored = pod("p")
    stored["metadata"]["resourceVersion"] = "5"
    bound = pod("q", on="n")
    assert list(planned(node("n", cpu=2), limits, stored, bound, conf=ALLOCATE).binds) == ["default/p"]


def test_objects_of_a_cluster_are_not_admitted_again() -> None:
    objects = [node("n", cpu=2), limit_range(default={"cpu": "9"}), *gang("g", 1)]
    of_cluster = planning.plan(objects, policy(ALLOCATE), 0, 0, Settings(scheduler_names=("volcano",)))
    assert len(of_cluster.binds) == 1


@pytest.mark.parametrize("item", [{"max": {"cpu": "x"}}, {"max": [1]}, {"default": {"cpu": "-1"}}])
def test_a_limit_range_that_cannot_be_read_is_set_aside(item: Manifest) -> None:
    result = planned(node("n"), limit_range(**item), *work("Pod"), conf=ALLOCATE)
    assert (len(result.binds), list(result.set_aside)) == (1, ["LimitRange default/l"])


def test_bounds_of_claims_are_noted() -> None:
    claims = limit_range(kind="PersistentVolumeClaim", max={"storage": "1Gi"})
    expected = ["bounds of LimitRanges of namespace default on each PersistentVolumeClaim are not applied"]
    assert planned(node("n"), claims, conf=ALLOCATE).unknown == expected


# --- requests above limits --------------------------------------------------------------------------------------------

ABOVE: Manifest = {"requests": {"cpu": "4"}, "limits": {"cpu": "2"}}


@pytest.mark.parametrize("kind", KINDS)
def test_pods_that_request_more_than_their_limit_are_not_placed(kind: str) -> None:
    result = planned(node("n", cpu=64), *work(kind, **ABOVE), conf=ALLOCATE)
    name = "default/w-t-0" if kind == "Job" else "default/w-0"
    reason = "container c requests 4 of cpu, above its limit of 2"
    assert (result.binds, result.refused) == ({}, [f"the API server refuses 1 pod ({name}): {reason}"])


@pytest.mark.parametrize(
    ("spec", "refused"),
    [
        ({"initContainers": [{"name": "i", "image": "i", "resources": ABOVE}]}, True),
        ({"resources": ABOVE}, True),
        ({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2000m"}}}, False),
    ],
)
def test_all_requests_of_a_pod_are_compared(spec: Manifest, refused: bool) -> None:
    assert bool(planned(node("n", cpu=64), pod("p", cpu=1, spec=spec), conf=ALLOCATE).refused) is refused


def test_a_default_limit_below_a_request_refuses_the_pod() -> None:
    result = planned(node("n"), limit_range(default={"cpu": "1"}), *work("Pod", requests={"cpu": "2"}), conf=ALLOCATE)
    assert (result.binds, len(result.refused)) == ({}, 1)


# --- the queue of a namespace -----------------------------------------------------------------------------------------

TEAM: Manifest = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "default", "annotations": {"scheduling.volcano.sh/queue-name": "team"}},
}
SMALL = queue("team", capability={"cpu": "1", "memory": "1Ti"})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("configuration", [FULL, BY_QUEUE])
def test_work_without_a_queue_is_in_its_namespaces(kind: str, configuration: str) -> None:
    objects = [node("n", cpu=8), SMALL, *work(kind, requests={"cpu": "2"})]
    assert len(planned(*objects, conf=configuration).binds) == 1
    assert planned(*objects, TEAM, conf=configuration).binds == {}


@pytest.mark.parametrize(
    ("named", "phase", "expected"),
    [
        ("", "", "team"),
        ("default", "Pending", "team"),
        ("own", "", "own"),
        ("default", "Running", "default"),
    ],
)
def test_a_pod_group_is_in_its_namespaces_queue(named: str, phase: str, expected: str) -> None:
    state = state_of([TEAM, group("g", queue=named, phase=phase)])
    assert state.groups["default/g"].group.spec.queue == expected


def test_a_pod_group_that_is_stored_stays_in_its_queue() -> None:
    stored = group("g", phase="Pending")
    stored["metadata"]["resourceVersion"] = "5"
    assert state_of([TEAM, stored]).groups["default/g"].group.spec.queue == "default"


# --- quotas -----------------------------------------------------------------------------------------------------------


def quota(name: str = "q", used: Manifest | None = None, spec: Manifest | None = None, **hard: str) -> Manifest:
    limits = {key.replace("_", "."): text for key, text in hard.items()}
    status = {} if used is None else {"status": {"hard": limits, "used": used}}
    meta = {"name": name, "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": meta,
        "spec": {"hard": limits, **(spec or {})},
        **status,
    }


CPU: Manifest = {"requests": {"cpu": "1"}}


@pytest.mark.parametrize("used", [None, {"requests.cpu": "0"}])
@pytest.mark.parametrize(("size", "least", "binds"), [(6, 6, 0), (6, 4, 4), (4, 4, 4), (10, 1, 4)])
def test_a_gang_has_the_pods_that_its_quota_allows(used: Manifest | None, size: int, least: int, binds: int) -> None:
    job = work("Job", size, least, **CPU)
    result = planned(node("n", cpu=64), quota(used=used, requests_cpu="4"), *job, conf=FULL)
    assert len(result.binds) == binds
    refused = [note for note in result.refused if "ResourceQuota default/q is exceeded: requests.cpu 4" in note]
    assert len(refused) == (size > 4)


@pytest.mark.parametrize("hard", [{"pods": "2"}, {"count/pods": "2"}, {"cpu": "2"}, {"limits.memory": "2Gi"}])
def test_each_resource_that_a_quota_limits(hard: Manifest) -> None:
    made = work("Deployment", 3, limits={"memory": "1Gi"}, **CPU)
    assert len(planned(node("n"), quota(**hard), *made, conf=ALLOCATE).binds) == 2


def test_pods_that_are_there_use_a_quota_without_status() -> None:
    there = [pod("a", on="n", cpu=1), pod("b", on="n", cpu=1, phase="Succeeded"), pod("c", cpu=1)]
    result = planned(node("n", cpu=64), quota(pods="3"), *there, *work("Deployment", 3, **CPU), conf=ALLOCATE)
    assert sorted(result.binds) == ["default/c", "default/w-0"]


def test_a_quota_without_status_holds_at_enqueue() -> None:
    waiting = group("g", phase="Pending", minimum={"cpu": 4})
    admitting = conf("resourcequota", actions="enqueue")
    for cpu, phase in (("3", "Pending"), ("4", "Inqueue")):
        assert planned(node("n", cpu=64), quota(cpu=cpu), waiting, conf=admitting).phases == {"default/g": phase}


def test_pods_outside_a_quotas_scopes_are_created() -> None:
    scoped = quota(pods="0", spec={"scopes": ["BestEffort"]})
    assert len(planned(node("n"), scoped, *work("Deployment", 2, **CPU), conf=ALLOCATE).binds) == 2
    assert planned(node("n"), scoped, *work("Deployment", 2), conf=ALLOCATE).binds == {}


def test_a_pod_that_does_not_state_what_its_quota_limits_is_refused() -> None:
    result = planned(node("n"), quota(requests_cpu="4"), *work("Pod"), conf=ALLOCATE)
    reason = "ResourceQuota default/q: it must specify requests.cpu"
    assert (result.binds, result.refused) == ({}, [f"the API server refuses 1 pod (default/w-0): {reason}"])


def test_a_quota_too_small_for_all_workloads_is_noted() -> None:
    second = work("Deployment", 2, **CPU)[0]
    second["metadata"] = {"name": "v"}
    result = planned(node("n"), quota(requests_cpu="3"), *work("Deployment", 2, **CPU), second, conf=ALLOCATE)
    assert (len(result.binds), result.notes) == (
        4,
        [
            "ResourceQuota default/q has too little requests.cpu for all pods of this plan: the API server refuses"
            " those that come last"
        ],
    )


# --- what-ifs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_submitted_has_the_defaults_of_limit_ranges(kind: str) -> None:
    state = state_of([node("n")])
    found = submitted([limit_range(default={"cpu": "2"}), *work(kind, 2)], state, CREATED)
    assert [each.spec.containers[0].resources.requests for each in found.pods] == [{"cpu": "2"}] * 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("limits", "resources", "message"),
    [
        ([], ABOVE, "container c requests 4 of cpu, above its limit of 2"),
        ([limit_range(max={"cpu": "1"})], {"limits": {"cpu": "2"}}, "LimitRange l: maximum cpu usage per Container"),
    ],
)
def test_what_the_api_server_refuses_is_not_submitted(
    kind: str, limits: list[Manifest], resources: Manifest, message: str
) -> None:
    with pytest.raises(BadObject, match=rf"the API server refuses 1 pod \(default/w-.*0\): {message}"):
        submitted([*limits, *work(kind, **resources)], state_of([node("n")]), CREATED)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_submitted_is_in_its_namespaces_queue(kind: str) -> None:
    state = state_of([TEAM, SMALL])
    assert [each.spec.queue for each in submitted(work(kind), state, CREATED).groups] == ["team"]


def test_a_submitted_deployment_has_the_global_default_class() -> None:
    state = state_of([priority_class("usual", 7, default=True)])
    found = submitted(work("Deployment"), state, CREATED)
    assert [each.spec.priority_class_name for each in found.groups] == ["usual"]

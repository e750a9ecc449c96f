"""ResourceQuotas on the embedded cluster: what they refuse, and what their status counts."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.embedded.simulated import Obj, Simulated, job, pod, task
from vcd.embedded.status_errors import StatusError
from vcd.embedded.store import Store


def quota(name: str = "limits", scopes: tuple[str, ...] = (), **hard: str) -> Obj:
    spec: dict[str, Any] = {"hard": {key.replace("_", "."): value for key, value in hard.items()}}
    return {"metadata": {"name": name}, "spec": {**spec, **({"scopes": list(scopes)} if scopes else {})}}


def used(cluster: Simulated, name: str = "limits") -> dict[str, str]:
    found: dict[str, str] = cluster.store.get("resourcequotas", "default", name)["status"]["used"]
    return found


def started(*quotas: Obj) -> Simulated:
    cluster = Simulated()
    for each in quotas:
        cluster.store.create("resourcequotas", each)
    cluster.settle()
    return cluster


def test_pods_beyond_a_quota_are_refused() -> None:
    cluster = started(quota(requests_cpu="3", pods="5"))
    for number in range(3):
        cluster.store.create("pods", pod(f"p{number}", cpu="1"))
    assert used(cluster) == {"pods": "3", "requests.cpu": "3"}
    with pytest.raises(StatusError) as refused:
        cluster.store.create("pods", pod("p3", cpu="500m"))
    assert refused.value.code == 403
    assert str(refused.value) == (
        'pods "p3" is forbidden: exceeded quota: limits, requested: requests.cpu=500m, used: requests.cpu=3,'
        " limited: requests.cpu=3"
    )


def test_a_pod_states_what_a_quota_limits() -> None:
    cluster = started(quota(limits_memory="1Gi"))
    with pytest.raises(StatusError, match=r"failed quota: limits: must specify limits\.memory$"):
        cluster.store.create("pods", pod("p"))


def test_pods_that_end_or_go_give_back_what_they_used() -> None:
    cluster = started(quota(pods="2"))
    for number in range(2):
        cluster.store.create("pods", pod(f"p{number}"))
    cluster.store.patch("pods", "default", "p0", {"status": {"phase": "Succeeded"}}, "status")
    cluster.settle()
    assert used(cluster) == {"pods": "1"}
    cluster.store.delete("pods", "default", "p1")
    cluster.settle()
    assert used(cluster) == {"pods": "0"}


def test_a_quota_that_is_smaller_than_what_is_there_refuses_more() -> None:
    cluster = started()
    for number in range(3):
        cluster.store.create("pods", pod(f"p{number}"))
    cluster.store.create("resourcequotas", quota(pods="2"))
    cluster.settle()
    assert used(cluster) == {"pods": "3"}
    with pytest.raises(StatusError, match="requested: pods=1, used: pods=3, limited: pods=2"):
        cluster.store.create("pods", pod("p3"))


def test_a_scope_chooses_the_pods_that_count() -> None:
    cluster = started(quota(scopes=("BestEffort",), pods="1"))
    for number in range(2):
        cluster.store.create("pods", pod(f"p{number}", cpu="1"))
    assert used(cluster) == {"pods": "0"}


def test_objects_are_counted_by_kind_and_claims_by_storage() -> None:
    cluster = started(quota(**{"count/configmaps": "1", "requests.storage": "10Gi", "persistentvolumeclaims": "3"}))
    claim = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "6Gi"}}}}
    cluster.store.create("configmaps", {"metadata": {"name": "first"}})
    cluster.store.create("persistentvolumeclaims", {"metadata": {"name": "first"}, **claim})
    assert used(cluster) == {"count/configmaps": "1", "persistentvolumeclaims": "1", "requests.storage": "6Gi"}
    for resource, limit in (("configmaps", "count/configmaps=1"), ("persistentvolumeclaims", "requests.storage=10Gi")):
        with pytest.raises(StatusError, match=f"exceeded quota: .* limited: {limit}"):
            cluster.store.create(resource, {"metadata": {"name": "second"}, **(claim if "storage" in limit else {})})
    cluster.store.delete("configmaps", "default", "first")
    cluster.settle()
    assert used(cluster)["count/configmaps"] == "0"


def test_a_trial_run_of_a_request_uses_nothing() -> None:
    store = Store(random=Random(1))
    store.create("resourcequotas", quota(pods="1"))
    store.patch("resourcequotas", "default", "limits", {"status": {"hard": {"pods": "1"}}}, "status")
    rtype = store.type_of("pods")
    cleaned, _ = store.codec.read(rtype, pod("p"))
    store.insert(rtype, cleaned, dry_run=True)
    store.create("pods", pod("p"))


def test_a_job_makes_its_pods_once_the_quota_has_enough() -> None:
    cluster = started(quota(pods="1"))
    cluster.create("pods", pod("other"))
    cluster.create("jobs.batch.volcano.sh", job(task("worker", 1), name="train"))
    cluster.let_in()
    assert cluster.names() == ["other"]
    cluster.delete("pods", "other")
    cluster.advance(300)  # a controller tries again after at most five minutes
    assert cluster.names() == ["train-worker-0"]
